//! The reasons why there is no reference.

use crate::device::cuda::CudaError;
use crate::inputs::InputError;

/// A reason why there is no reference.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReferenceError {
    /// Inputs that are not finite: a NaN in a reference would match anything.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Finite inputs whose scores overflow.
    #[error("the {which} reference is not finite at row [{}, {}, {}]", row[0], row[1], row[2])]
    NotFinite {
        /// "FP64", "baseline" or "unquantised".
        which: &'static str,
        /// The first such row, `[b, h, s]`.
        row: [usize; 3],
    },
    /// A reference on a GPU was not computed.
    #[error(transparent)]
    Gpu(#[from] CudaError),
    /// A reference on a GPU is not the host's, where both were computed.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
}

/// A value of the GPU's reference that is not the host's.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{problem}: the {what} at row [{}, {}, {}] is {gpu:e} by the GPU's reference and {host:e} by \
     the host's, more than {bound:e} apart: references of large problems cannot be trusted on this \
     GPU; run again with another driver, nvcc or GPU, or smaller problems alone (--shapes), whose \
     references the host computes",
    row[0], row[1], row[2]
)]
pub struct Disagreement {
    /// Shape, dtype, mask and the type of P.
    pub problem: String,
    /// "output", "log-sum-exp", "baseline" or "unquantised output".
    pub what: &'static str,
    /// `[b, h, s]`.
    pub row: [usize; 3],
    pub gpu: f64,
    pub host: f64,
    pub bound: f64,
}
