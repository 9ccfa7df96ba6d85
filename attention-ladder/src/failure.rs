//! Failures of a call: a code of the C interface and a message.

use common::device::cuda::CudaError;
use common::problem::ProblemError;
use common::stage::{LoadError, Unsupported};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Unsupported = crate::ATTENTION_LADDER_UNSUPPORTED as isize,
    Invalid = crate::ATTENTION_LADDER_INVALID as isize,
    Unavailable = crate::ATTENTION_LADDER_UNAVAILABLE as isize,
    Driver = crate::ATTENTION_LADDER_DRIVER as isize,
    Internal = crate::ATTENTION_LADDER_INTERNAL as isize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub code: Code,
    pub message: String,
}

impl Failure {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }
}

impl From<Unsupported> for Failure {
    fn from(error: Unsupported) -> Self {
        Self::new(Code::Unsupported, error.to_string())
    }
}

impl From<ProblemError> for Failure {
    fn from(error: ProblemError) -> Self {
        let code = match error {
            ProblemError::HeadDim { .. } | ProblemError::TooLarge { .. } => Code::Unsupported,
            _ => Code::Invalid,
        };
        Self::new(code, error.to_string())
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        let code = match error {
            CudaError::NoDriver
            | CudaError::DriverTooOld { .. }
            | CudaError::NoDevice { .. }
            | CudaError::NotBuilt { .. }
            | CudaError::NoCode { .. } => Code::Unavailable,
            _ => Code::Driver,
        };
        Self::new(code, error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}
