//! Failures of a call: a code of the C interface and a message.

use common::device::cuda::CudaError;
use common::problem::ProblemError;
use common::stage::{LoadError, Unsupported};

/// The kind of a failure, as C sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Code {
    Unsupported = crate::ATTENTION_LADDER_UNSUPPORTED as isize,
    Invalid = crate::ATTENTION_LADDER_INVALID as isize,
    Unavailable = crate::ATTENTION_LADDER_UNAVAILABLE as isize,
    Driver = crate::ATTENTION_LADDER_DRIVER as isize,
    Internal = crate::ATTENTION_LADDER_INTERNAL as isize,
}

/// The reason why a call failed.
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
            ProblemError::HeadDim { .. }
            | ProblemError::CacheHeadDim { .. }
            | ProblemError::TooLarge { .. } => Code::Unsupported,
            _ => Code::Invalid,
        };
        Self::new(code, error.to_string())
    }
}

impl From<&CudaError> for Code {
    fn from(error: &CudaError) -> Self {
        match error {
            CudaError::NoDriver
            | CudaError::DriverTooOld { .. }
            | CudaError::NoDevice { .. }
            | CudaError::NotBuilt { .. }
            | CudaError::NoCode { .. } => Code::Unavailable,
            _ => Code::Driver,
        }
    }
}

impl From<CudaError> for Failure {
    fn from(error: CudaError) -> Self {
        Self::new(Code::from(&error), error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::new(Code::Internal, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cudarc::driver::DriverError;
    use cudarc::driver::sys::CUresult;

    #[test]
    fn a_code_says_whose_fault_it_is() {
        let no_kernel = Unsupported::ByItself {
            reason: String::new(),
        };
        let too_large = ProblemError::TooLarge {
            name: "batch",
            value: 1 << 20,
            max: 65_535,
        };
        let broken_stage = LoadError {
            stage: "stage5-swizzle",
            problem: String::new(),
        };
        for (failure, code) in [
            (Failure::from(no_kernel), Code::Unsupported),
            (too_large.into(), Code::Unsupported),
            (ProblemError::Scale { scale: 0.0 }.into(), Code::Invalid),
            (broken_stage.into(), Code::Internal),
            (CudaError::Sticky.into(), Code::Driver),
        ] {
            assert_eq!(failure.code, code, "{}", failure.message);
        }
    }

    #[test]
    fn what_machine_or_build_lack_is_unavailable() {
        let stage = "stage5-swizzle".to_string();
        for error in [
            CudaError::NoDriver,
            CudaError::DriverTooOld {
                needed: (13, 0),
                found: (12, 8),
            },
            CudaError::NoDevice {
                ordinal: 1,
                count: 1,
            },
            CudaError::NotBuilt {
                stage: stage.clone(),
            },
            CudaError::NoCode {
                stage,
                symbol: "any kernel".to_string(),
                capability: (7, 5),
                error: DriverError(CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU),
            },
        ] {
            // A driver's error is not displayed here: cudarc asks libcuda for its text.
            assert_eq!(Code::from(&error), Code::Unavailable);
        }
    }

    #[test]
    fn a_call_of_the_driver_that_fails_is_the_drivers() {
        let error = CudaError::Driver {
            doing: "encoding a tensor map",
            error: DriverError(CUresult::CUDA_ERROR_INVALID_VALUE),
        };
        assert_eq!(Code::from(&error), Code::Driver);
    }
}
