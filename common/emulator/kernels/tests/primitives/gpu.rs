//! The kernels of `cu/gpu.cu` on a GPU.

use std::io::Write;
use std::sync::Arc;

use common::device::cuda::{encode, is_present};
use common::maps::TensorMap;
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{
    CudaContext, CudaFunction, CudaModule, CudaSlice, CudaStream, DevicePtr, LaunchConfig,
    PushKernelArg,
};
use cudarc::nvrtc::Ptx;
use emulator_kernels::{FATBIN, KernelParams};

use crate::launch::{Buffer, Run, bytes_of};

pub struct Gpu {
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

/// Prints past libtest, which hides the output of a test that passes.
fn say(text: &str) {
    let mut terminal = std::io::stderr();
    writeln!(terminal, "{text}").unwrap();
}

impl Gpu {
    /// Opens the first GPU; says so where there is none.
    pub fn open() -> Option<Self> {
        if !is_present() || !CudaContext::device_count().is_ok_and(|count| count > 0) {
            say("no GPU: the wrappers of attn/ptx were checked in the emulator alone");
            return None;
        }
        let fatbin =
            FATBIN.expect("nvcc was not found when this test was built: run scripts/cuda-toolkit");
        let context = CudaContext::new(0).expect("a GPU and its driver");
        let module = context
            .load_module(Ptx::from_binary(fatbin.to_vec()))
            .expect("code for this GPU");
        Some(Self {
            stream: context.default_stream(),
            module,
        })
    }

    /// Returns whether the GPU has the instructions of kernel `name`; says so where not.
    pub fn has(&self, name: &str) -> bool {
        let has = self.module.load_function(name).is_ok();
        if !has {
            say(&format!(
                "this GPU is no sm_90a: {name} was checked in the emulator alone"
            ));
        }
        has
    }

    /// Returns the first output, initially zeros.
    pub fn launch(&self, name: &str, run: &Run, output_bytes: usize) -> Vec<u8> {
        let stream = &self.stream;
        let output = stream.alloc_zeros::<u8>(output_bytes).unwrap();
        let tensor = self.upload(&run.inputs[0]);
        let (input, result) = (self.address(&tensor), self.address(&output));
        let mut maps = run.inputs[1].clone();
        for (buffer, map) in &run.maps {
            let base = match buffer {
                Buffer::Input => input,
                Buffer::Output => result,
            };
            maps.extend(encoded(map, base + map.base));
        }
        let (second, third) = (self.upload(&maps), self.upload(&run.inputs[2]));
        let addresses = [input, self.address(&second), self.address(&third)];
        let params = KernelParams {
            input: addresses.map(|address| address as *const _),
            output: [result, 0].map(|address| address as *mut _),
            numbers: run.numbers,
        };
        let device_params = self.upload(&bytes_of(&[params]));
        let function = self.function(name, run.shared_bytes);
        let config = LaunchConfig {
            grid_dim: run.grid.into(),
            block_dim: run.block.into(),
            shared_mem_bytes: run.shared_bytes as u32,
        };
        let mut launch = stream.launch_builder(&function);
        launch.arg(&device_params);
        // SAFETY: every kernel of `gpu.cu` takes the address of its params, whose buffers live
        // until after the wait below and have the sizes that the kernel documents.
        let done = unsafe { launch.launch(config) }.and_then(|_| stream.synchronize());
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        stream.clone_dtoh(&output).unwrap()
    }

    /// Copies bytes to the GPU. The driver refuses empty allocations.
    fn upload(&self, bytes: &[u8]) -> CudaSlice<u8> {
        let filled = if bytes.is_empty() { &[0] } else { bytes };
        self.stream.clone_htod(filled).unwrap()
    }

    fn address(&self, slice: &CudaSlice<u8>) -> usize {
        let (address, _guard) = DevicePtr::device_ptr(slice, &self.stream);
        address as usize
    }

    fn function(&self, name: &str, shared_bytes: usize) -> CudaFunction {
        let function = self
            .module
            .load_function(name)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        // Above 48 KB a kernel has to ask.
        function
            .set_attribute(
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                shared_bytes as i32,
            )
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        function
    }
}

/// Encodes a tensor map of the emulator's for the GPU.
fn encoded(map: &emulator::TensorMap, base: usize) -> Vec<u8> {
    let words = encode(&TensorMap {
        base,
        extents: map.extents,
        strides: map.strides,
        box_columns: map.box_columns,
        box_rows: map.box_rows,
        swizzle: map.swizzle,
        element_bytes: map.element_bytes,
    });
    bytes_of(&words.unwrap())
}
