//! The kernels of `cu/gpu.cu` on a GPU.

use std::io::Write;
use std::sync::Arc;

use common::device::cuda::{encode, is_present};
use common::maps::TensorMap;
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaContext, CudaModule, CudaStream, DevicePtr, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::Ptx;
use emulator_kernels::{FATBIN, KernelParams};

use crate::launch::{Buffer, Run, bytes_of};

pub struct Gpu {
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

/// Past libtest, which hides the output of a test that passes.
fn say(text: &str) {
    let mut terminal = std::io::stderr();
    writeln!(terminal, "{text}").unwrap();
}

impl Gpu {
    /// Where there is none, says so.
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

    /// Whether the GPU has the instructions of kernel `name`; says so where not.
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
    pub fn launch(&self, name: &str, launch: &Run, output_bytes: usize) -> Vec<u8> {
        let mut inputs = launch.inputs.clone();
        let stream = &self.stream;
        // The driver refuses empty allocations.
        let filled = |bytes: &[u8]| {
            if bytes.is_empty() {
                vec![0]
            } else {
                bytes.to_vec()
            }
        };
        let address = |slice| {
            let (address, _guard) = DevicePtr::device_ptr(slice, stream);
            address as usize
        };
        let output = stream.alloc_zeros::<u8>(output_bytes).unwrap();
        let tensor = stream.clone_htod(&filled(&inputs[0])).unwrap();
        for (of, map) in &launch.maps {
            let base = match of {
                Buffer::Input => address(&tensor),
                Buffer::Output => address(&output),
            };
            let encoded = encode(&TensorMap {
                base: base + map.base,
                extents: map.extents,
                strides: map.strides,
                box_columns: map.box_columns,
                box_rows: map.box_rows,
                swizzle: map.swizzle,
                element_bytes: map.element_bytes,
            });
            inputs[1].extend(bytes_of(&encoded.unwrap()));
        }
        let [_, second, third] = inputs.map(|bytes| stream.clone_htod(&filled(&bytes)).unwrap());
        let params = KernelParams {
            input: [&tensor, &second, &third].map(|input| address(input) as *const _),
            output: [address(&output), 0].map(|address| address as *mut _),
            numbers: launch.numbers,
        };
        let params = stream.clone_htod(&bytes_of(&[params])).unwrap();
        let function = self.module.load_function(name);
        let function = function.unwrap_or_else(|error| panic!("{name}: {error}"));
        // Above 48 KB a kernel has to ask.
        function
            .set_attribute(
                CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                launch.shared_bytes as i32,
            )
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = LaunchConfig {
            grid_dim: launch.grid.into(),
            block_dim: launch.block.into(),
            shared_mem_bytes: launch.shared_bytes as u32,
        };
        let mut launch = stream.launch_builder(&function);
        launch.arg(&params);
        // SAFETY: every kernel of `gpu.cu` takes the address of its params, whose buffers live
        // until after the wait below and have the sizes that the kernel documents.
        let done = unsafe { launch.launch(config) }.and_then(|_| stream.synchronize());
        done.unwrap_or_else(|error| panic!("{name}: {error}"));
        stream.clone_dtoh(&output).unwrap()
    }
}
