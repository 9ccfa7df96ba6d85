//! The interface to what kernels are timed on: a GPU, or in tests one that is made up.

use common::device::Staged;
use common::device::cuda::{
    CudaDevice, CudaError, DeviceInfo, InputPool, RankedArm, Timed, TimedPair,
};
use common::inputs::Inputs;
use common::problem::Problem;
use common::reference::{self, Probability, Reference, ReferenceError};
use common::stage::{LoadedStage, Prepared};
use common::timing::Plan;
use std::rc::Rc;

/// A kernel that is ready to be launched.
#[derive(Clone, Copy)]
pub struct Kernel<'a> {
    pub stage: &'a LoadedStage,
    pub prepared: &'a Prepared<'a>,
}

/// A device on which kernels are timed.
pub trait Timer {
    fn info(&self) -> &DeviceInfo;

    /// Makes a pool of inputs that are read from device memory, or from the cache.
    fn pool(&self, contents: Vec<Staged>, is_cold: bool) -> Result<Rc<InputPool>, CudaError>;

    /// Returns whether it computes the references of a problem itself, not on the host.
    fn makes_reference(&self, _: &Problem) -> bool {
        false
    }

    /// Computes a reference: on the host, unless a GPU computes those of large problems.
    fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        reference::reference(inputs, p)
    }

    /// Times an empty kernel, in microseconds.
    fn zero_us(&self, plan: &Plan) -> Result<f64, CudaError>;

    /// Times a kernel alone.
    fn time(
        &self,
        kernel: Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &Plan,
    ) -> Result<Timed, CudaError>;

    /// Times two kernels interleaved, A B B A.
    fn time_pair(
        &self,
        base: Kernel<'_>,
        new: Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &Plan,
    ) -> Result<TimedPair, CudaError>;

    /// Times all kernels in turns, quickly: in full those that may be the fastest, and the one with
    /// the index `chosen` (see [`common::timing::race`]). A kernel that fails has its error in
    /// place of a time.
    ///
    /// # Errors
    ///
    /// The GPU cannot be used any more.
    fn rank(
        &self,
        kernels: &[Kernel<'_>],
        chosen: Option<usize>,
        pool: &Rc<InputPool>,
        plan: &Plan,
    ) -> Result<Vec<RankedArm>, CudaError>;
}

impl Timer for CudaDevice {
    fn info(&self) -> &DeviceInfo {
        self.info()
    }

    fn pool(&self, contents: Vec<Staged>, is_cold: bool) -> Result<Rc<InputPool>, CudaError> {
        self.pool(contents, is_cold)
    }

    fn makes_reference(&self, problem: &Problem) -> bool {
        self.makes_reference(problem)
    }

    fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        self.reference(inputs, p)
    }

    fn zero_us(&self, plan: &Plan) -> Result<f64, CudaError> {
        Ok(self.zero_line(plan)?.device.p50)
    }

    fn time(
        &self,
        kernel: Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &Plan,
    ) -> Result<Timed, CudaError> {
        self.measure(&mut self.arm(kernel.stage, kernel.prepared, pool)?, plan)
    }

    fn time_pair(
        &self,
        base: Kernel<'_>,
        new: Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &Plan,
    ) -> Result<TimedPair, CudaError> {
        let mut base_arm = self.arm(base.stage, base.prepared, pool)?;
        let mut new_arm = self.arm(new.stage, new.prepared, pool)?;
        self.measure_pair(&mut base_arm, &mut new_arm, plan)
    }

    fn rank(
        &self,
        kernels: &[Kernel<'_>],
        chosen: Option<usize>,
        pool: &Rc<InputPool>,
        plan: &Plan,
    ) -> Result<Vec<RankedArm>, CudaError> {
        let arms = kernels
            .iter()
            .map(|kernel| self.arm(kernel.stage, kernel.prepared, pool))
            .collect();
        self.rank(arms, chosen, plan)
    }
}
