//! Programs that are timed in turn, of this process and of a Python.

use common::device::cuda::{self, CudaError};
use common::reference::Probability;
use common::timing::sustained::Sustained;
use results::table::Subject;

/// A program that is timed on one problem.
pub(super) struct Arm<'a> {
    pub(super) subject: Subject,
    pub(super) program: Program<'a>,
    /// Microseconds per launch, roughly.
    pub(super) us: f64,
    /// The samples of its bursts.
    pub(super) device_us: Vec<f64>,
    pub(super) sustained: Option<Sustained>,
}

pub(super) enum Program<'a> {
    Ours {
        arm: Box<cuda::Arm<'a>>,
        probability: Probability,
    },
    Theirs {
        /// The index of the Python that has it.
        python: usize,
        /// The share of the time that passed here that it reported, chunk by chunk.
        reported: Vec<f64>,
    },
}

/// The side that failed while arms were timed.
pub(super) enum ArmError {
    /// The GPU, or a kernel of ours.
    Ours(anyhow::Error),
    /// The Python of this index.
    Python { index: usize, error: anyhow::Error },
}

impl From<CudaError> for ArmError {
    fn from(error: CudaError) -> Self {
        ArmError::Ours(error.into())
    }
}

impl<'a> Arm<'a> {
    pub(super) fn new(subject: Subject, program: Program<'a>, us: f64) -> Self {
        Self {
            subject,
            program,
            us,
            device_us: Vec::new(),
            sustained: None,
        }
    }

    /// Returns our arm; none of a peer.
    pub(super) fn ours(&mut self) -> Option<&mut cuda::Arm<'a>> {
        match &mut self.program {
            Program::Ours { arm, .. } => Some(arm.as_mut()),
            Program::Theirs { .. } => None,
        }
    }

    /// Returns the index of the Python that has it; none of ours.
    pub(super) fn python(&self) -> Option<usize> {
        match self.program {
            Program::Ours { .. } => None,
            Program::Theirs { python, .. } => Some(python),
        }
    }
}
