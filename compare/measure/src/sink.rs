//! The receiver of results as they come, and the reasons why measuring may end early.

use common::device::cuda::CudaError;
use common::reference::ReferenceError;
use results::table::{Run, StoreError};

/// A reason why a run ends early.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    #[error("{case}: no reference")]
    Reference {
        case: String,
        #[source]
        source: ReferenceError,
    },
    #[error(
        "{case}: {reason}; after a sticky CUDA error this process cannot use the GPU any more; what \
         was finished is in the run's folder"
    )]
    Sticky { case: String, reason: String },
    #[error(
        "{case}: {reason}; raise `ulimit -v` and `ulimit -d`, set vm.overcommit_memory=1, or run \
         fewer cases at once by RAYON_NUM_THREADS=1"
    )]
    NoMemory { case: String, reason: String },
    #[error("timing failed")]
    Timing(#[from] CudaError),
    /// Ctrl-C came; the results so far are kept.
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Unwritable(#[from] StoreError),
}

/// The step in which the inputs of a case are made.
pub const INPUTS: &str = "inputs of case";

/// The step in which one kernel is timed alone, in less than a second.
pub const TIMING: &str = "timing";

/// The step in which one kernel is timed alone on a problem that takes longer.
pub const LARGE_TIMING: &str = "large timing";

/// The step in which two kernels are timed against each other.
pub const PAIR: &str = "pair";

/// The step in which all variants are timed on a random problem.
pub const RANDOM_PROBLEM: &str = "random problem";

/// The receiver of what a run does and finds.
pub trait Sink {
    /// Takes note that the step `label` starts; `done` of `total` steps of this kind are finished.
    fn on_start(&mut self, kind: &'static str, label: &str, done: usize, total: usize);
    /// Takes note of new rows; an error ends the run.
    fn on_rows_added(&mut self, run: &mut Run) -> Result<(), ExecuteError>;
}
