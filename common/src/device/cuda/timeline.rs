//! Kernels that take notes for a timeline, in place of a stage's own.

use super::{Arm, BoundKernel, CudaDevice, CudaError, InputPool};
use crate::device::{Execution, Staged};
use crate::stage::{LoadedStage, Prepared};
use crate::timeline::notes::{BLOCK_SYMBOL, NOTES_SYMBOL};
use cudarc::driver::{CudaModule, CudaViewMut, DriverError};
use cudarc::nvrtc::Ptx;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

/// A stage's kernel as it was compiled with the timeline's headers.
pub struct Noting<'d> {
    device: &'d CudaDevice,
    kernel: BoundKernel,
    module: Arc<CudaModule>,
}

impl fmt::Debug for Noting<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Noting")
            .field("kernel", &self.kernel.name)
            .finish_non_exhaustive()
    }
}

impl CudaDevice {
    /// Loads machine code of the stage's kernel that takes notes, of block number `block`: x, then
    /// y, then z.
    pub fn noting(
        &self,
        stage: &LoadedStage,
        prepared: &Prepared<'_>,
        staged: &Staged,
        code: &[u8],
        block: u32,
    ) -> Result<Noting<'_>, CudaError> {
        self.check_usable()?;
        let module = self
            .context
            .load_module(Ptx::from_binary(code.to_vec()))
            .map_err(|error| self.no_code(stage.info().id, "a kernel that takes notes", error))?;
        let noting = Noting {
            device: self,
            kernel: self.bind_in(&module, stage, prepared, staged)?,
            module,
        };
        let mut number = noting.global(BLOCK_SYMBOL)?;
        self.stream
            .memcpy_htod(&block.to_le_bytes(), &mut number)
            .map_err(noting.failed("choosing the block that takes notes"))?;
        Ok(noting)
    }
}

impl<'d> Noting<'d> {
    /// Launches the kernel once, as [`CudaDevice::execute`] does the stage's own.
    pub fn execute(
        &self,
        prepared: &Prepared<'_>,
        staged: &Arc<Staged>,
    ) -> Result<Execution, CudaError> {
        self.device.check_usable()?;
        self.device.execute_bound(&self.kernel, prepared, staged)
    }

    /// Returns the kernel as something that can be timed beside the stage's own.
    pub fn arm(&self, prepared: &Prepared<'_>, pool: &Rc<InputPool>) -> Result<Arm<'d>, CudaError> {
        self.device.check_usable()?;
        self.device.arm_of(self.kernel.clone(), prepared, pool)
    }

    /// Forgets the notes of earlier launches.
    pub fn clear(&self) -> Result<(), CudaError> {
        let mut notes = self.global(NOTES_SYMBOL)?;
        self.device
            .stream
            .memset_zeros(&mut notes)
            .map_err(self.failed("clearing notes"))
    }

    /// Copies the notes of the last launch to the host; see [`crate::timeline::notes::read`].
    pub fn notes(&self) -> Result<Vec<u8>, CudaError> {
        let notes = self.global(NOTES_SYMBOL)?;
        let mut host = vec![0; notes.len()];
        let stream = &self.device.stream;
        stream
            .memcpy_dtoh(&notes, &mut host)
            .and_then(|()| stream.synchronize())
            .map_err(self.failed("copying notes from the GPU"))?;
        Ok(host)
    }

    fn global(&self, name: &str) -> Result<CudaViewMut<'_, u8>, CudaError> {
        self.module
            .get_global(name, &self.device.stream)
            .map_err(|error| {
                let stage = &self.kernel.name.stage;
                self.device.no_code(stage, name, error)
            })
    }

    fn failed(&self, doing: &'static str) -> impl Fn(DriverError) -> CudaError {
        move |error| self.device.driver_error(doing, error)
    }
}
