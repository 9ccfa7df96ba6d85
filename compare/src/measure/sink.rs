//! Who is told of results as they come, and why measuring may end early.

use super::limits;
use super::plan::PlannedCase;
use crate::table::Run;
use common::device::cuda::CudaError;
use common::reference::ReferenceError;

#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    #[error("{case}: no reference")]
    Reference {
        case: String,
        #[source]
        source: ReferenceError,
    },
    #[error(
        "{case}: {reason}; after a sticky CUDA error this process cannot use the GPU any more; what was finished is in the run's folder"
    )]
    Sticky { case: String, reason: String },
    #[error("{case}: {reason}; {}", limits::memory_advice())]
    NoMemory { case: String, reason: String },
    #[error("timing failed")]
    Timing(#[from] CudaError),
    /// Ctrl-C: what has ended is kept.
    #[error("interrupted")]
    Interrupted,
    #[error("cannot write {what}")]
    Unwritable {
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Is told what happens, as it happens, and may end it.
pub trait Sink {
    /// `label` starts; `done` of `total` steps of this kind are finished.
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize);
    fn output(&mut self, _: &PlannedCase, _: &[f32]) -> Result<(), ExecuteError> {
        Ok(())
    }
    fn grown(&mut self, _: &mut Run) -> Result<(), ExecuteError> {
        Ok(())
    }
}
