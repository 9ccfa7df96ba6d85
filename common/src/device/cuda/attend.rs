//! Computes attention by the kernel of references, for [`crate::reference::gpu`].

use super::{CudaDevice, CudaError, LaunchName};
use crate::problem::Problem;
use crate::reference::Attended;
use crate::reference::gpu::{FATBIN, Real};
use crate::reference::layout::{Layout, Params, THREADS, Tile};
use cudarc::driver::{
    CudaFunction, CudaSlice, DeviceRepr, LaunchConfig, PushKernelArg, ValidAsZeroBits,
};
use std::time::Duration;

/// The scores of one launch: the slowest GPU in FP64 computes them in a tenth of a second, far
/// below the watchdog's time, and their weights take 256 MiB.
const LAUNCH_SCORES: usize = 1 << 25;

/// The name of the kernel in errors, where a stage has its own.
const NAME: &str = "the reference";

// SAFETY: `repr(C)` structs of numbers, as the kernel declares them.
unsafe impl DeviceRepr for Tile {}
// SAFETY: a `repr(C)` struct of numbers and device addresses, as the kernel declares it.
unsafe impl DeviceRepr for Params {}

impl CudaDevice {
    /// Computes outputs and log-sum-exps of the rows of `layout`, in launches of [`LAUNCH_SCORES`].
    pub(crate) fn attend<T: Real + DeviceRepr + ValidAsZeroBits>(
        &self,
        problem: &Problem,
        layout: &Layout<'_, T>,
    ) -> Result<Attended<T>, CudaError> {
        self.check_usable()?;
        let function = self.reference_kernel(T::ENTRY)?;
        let name = LaunchName {
            stage: NAME.to_string(),
            variant: T::ENTRY.to_string(),
            problem: format!("{} {} {}", problem.shape, problem.dtype, problem.mask),
        };
        let tiles_at_once = (LAUNCH_SCORES / layout.weights_of_tile()).clamp(1, layout.tiles.len());
        let device_q = self.upload(&layout.q)?;
        let device_keys = self.upload(&layout.keys)?;
        let device_values = self.upload(layout.values)?;
        let device_tiles = self.upload(&layout.tiles)?;
        let weights = self.zeros::<T>(tiles_at_once * layout.weights_of_tile())?;
        let out = self.zeros::<T>(layout.q.len())?;
        let lse = self.zeros::<f64>(layout.rows())?;
        for first in (0..layout.tiles.len()).step_by(tiles_at_once) {
            let params = Params {
                q: self.address(&device_q),
                keys: self.address(&device_keys),
                values: self.address(&device_values),
                tiles: self
                    .address(&device_tiles)
                    .cast::<Tile>()
                    .wrapping_add(first),
                weights: self.address(&weights),
                out: self.address(&out),
                lse: self.address(&lse).cast(),
                seq_kv: layout.seq_kv as i32,
                head_dim: layout.head_dim as i32,
                rounding: layout.rounding,
            };
            let blocks = tiles_at_once.min(layout.tiles.len() - first);
            self.launch_reference(&function, &params, blocks, &name)?;
        }
        Ok(Attended {
            output: self.download(&out)?,
            lse: self.download(&lse)?,
        })
    }

    fn zeros<T: DeviceRepr + ValidAsZeroBits>(
        &self,
        len: usize,
    ) -> Result<CudaSlice<T>, CudaError> {
        self.stream
            .alloc_zeros::<T>(len)
            .map_err(|error| self.driver_error("allocating memory for a reference", error))
    }

    /// Launches one block per tile and waits for their end.
    fn launch_reference(
        &self,
        function: &CudaFunction,
        params: &Params,
        blocks: usize,
        name: &LaunchName,
    ) -> Result<(), CudaError> {
        let config = LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (THREADS as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.stream.launch_builder(function);
        launch.arg(params);
        // SAFETY: both entries take `Params` by value. Its addresses are allocations of the sizes
        // that the kernel documents, which the caller keeps until the launch has been waited for.
        let launched = unsafe { launch.launch(config) };
        launched.map_err(|error| self.launch_error(name, error))?;
        self.finish(name, Duration::ZERO)
    }

    fn reference_kernel(&self, entry: &str) -> Result<CudaFunction, CudaError> {
        let fatbin = FATBIN.ok_or_else(|| CudaError::NotBuilt {
            stage: NAME.to_string(),
        })?;
        let module = self.load_module(NAME, fatbin)?;
        module
            .load_function(entry)
            .map_err(|error| self.no_code(NAME, entry, error))
    }
}
