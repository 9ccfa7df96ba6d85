//! The kernels of `cu/gpu.cu` on a GPU.

use std::io::Write;
use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaModule, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, sys};
use cudarc::nvrtc::Ptx;
use emulator_kernels::{FATBIN, KernelParams};

/// The first GPU, with the kernels loaded.
pub struct Gpu {
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

impl Gpu {
    /// Opens it. Where there is none, says so past libtest, which shows no output of a test that passes.
    pub fn open() -> Option<Self> {
        // SAFETY: tries to load the driver's library and closes it again.
        let has_driver = unsafe { sys::is_culib_present() };
        if !has_driver || !CudaContext::device_count().is_ok_and(|count| count > 0) {
            let mut terminal = std::io::stderr();
            writeln!(terminal, "no GPU: the wrappers of attn/ptx were checked in the emulator alone").unwrap();
            return None;
        }
        let fatbin = FATBIN.expect("nvcc was not found when this test was built: run scripts/cuda-toolkit");
        let context = CudaContext::new(0).expect("a GPU and its driver");
        let module = context.load_module(Ptx::from_binary(fatbin.to_vec())).expect("code for this GPU");
        Some(Self { stream: context.default_stream(), module })
    }

    /// Whether the GPU has the instructions of kernel `name`; says so where it has not.
    pub fn has(&self, name: &str) -> bool {
        let has = self.module.load_function(name).is_ok();
        if !has {
            let mut terminal = std::io::stderr();
            writeln!(terminal, "this GPU is no sm_90a: {name} was checked in the emulator alone").unwrap();
        }
        has
    }

    /// Runs one block of kernel `name`; returns its first output, which starts as zeros.
    pub fn run(
        &self,
        name: &str,
        threads: u32,
        shared: usize,
        inputs: [&[u8]; 3],
        number: i32,
        output_bytes: usize,
    ) -> Vec<u8> {
        let stream = &self.stream;
        // The driver refuses empty allocations.
        let filled = |bytes| if <[u8]>::is_empty(bytes) { &[0u8] } else { bytes };
        let inputs = inputs.map(|bytes| stream.clone_htod(filled(bytes)).unwrap());
        let output = stream.alloc_zeros::<u8>(output_bytes).unwrap();
        let address = |slice| {
            let (address, _guard) = DevicePtr::device_ptr(slice, stream);
            address as usize
        };
        let params = KernelParams {
            input: inputs.each_ref().map(|input| address(input) as *const _),
            output: [address(&output), 0].map(|address| address as *mut _),
            numbers: [number, 0, 0, 0],
        };
        // SAFETY: a `repr(C)` struct of pointers and integers without padding.
        let bytes = unsafe { std::slice::from_raw_parts((&raw const params).cast::<u8>(), size_of::<KernelParams>()) };
        let params = stream.clone_htod(bytes).unwrap();
        let function = self.module.load_function(name).unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = LaunchConfig { grid_dim: (1, 1, 1), block_dim: (threads, 1, 1), shared_mem_bytes: shared as u32 };
        let mut launch = stream.launch_builder(&function);
        launch.arg(&params);
        // SAFETY: every kernel of `gpu.cu` takes the address of its params, whose buffers live until after the wait below
        // and have the sizes that the kernel documents.
        unsafe { launch.launch(config) }.unwrap_or_else(|error| panic!("{name}: {error}"));
        stream.synchronize().unwrap_or_else(|error| panic!("{name}: {error}"));
        stream.clone_dtoh(&output).unwrap()
    }
}
