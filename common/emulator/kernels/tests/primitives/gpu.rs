//! The kernels of `cu/gpu.cu` on a GPU.

use std::io::Write;
use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaModule, CudaStream, DevicePtr, LaunchConfig, PushKernelArg, sys,
};
use cudarc::nvrtc::Ptx;
use emulator::TensorMap;
use emulator_kernels::{FATBIN, KernelParams};

use crate::launch::{Buffer, Run};

pub struct Gpu {
    stream: Arc<CudaStream>,
    module: Arc<CudaModule>,
}

impl Gpu {
    /// Where there is none, says so past libtest, which hides the output of a test that passes.
    pub fn open() -> Option<Self> {
        // SAFETY: tries to load the driver's library and closes it again.
        let has_driver = unsafe { sys::is_culib_present() };
        if !has_driver || !CudaContext::device_count().is_ok_and(|count| count > 0) {
            let mut terminal = std::io::stderr();
            writeln!(
                terminal,
                "no GPU: the wrappers of attn/ptx were checked in the emulator alone"
            )
            .unwrap();
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
            let mut terminal = std::io::stderr();
            writeln!(
                terminal,
                "this GPU is no sm_90a: {name} was checked in the emulator alone"
            )
            .unwrap();
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
            inputs[1].extend(encode(&TensorMap {
                base: base + map.base,
                ..*map
            }));
        }
        let [_, second, third] = inputs.map(|bytes| stream.clone_htod(&filled(&bytes)).unwrap());
        let params = KernelParams {
            input: [&tensor, &second, &third].map(|input| address(input) as *const _),
            output: [address(&output), 0].map(|address| address as *mut _),
            numbers: launch.numbers,
        };
        // SAFETY: a `repr(C)` struct of pointers and integers without padding.
        let bytes = unsafe {
            std::slice::from_raw_parts((&raw const params).cast::<u8>(), size_of::<KernelParams>())
        };
        let params = stream.clone_htod(bytes).unwrap();
        let function = self
            .module
            .load_function(name)
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        let config = LaunchConfig {
            grid_dim: launch.grid.into(),
            block_dim: launch.block.into(),
            shared_mem_bytes: launch.shared_bytes as u32,
        };
        let mut launch = stream.launch_builder(&function);
        launch.arg(&params);
        // SAFETY: every kernel of `gpu.cu` takes the address of its params, whose buffers live until after the wait below
        // and have the sizes that the kernel documents.
        unsafe { launch.launch(config) }.unwrap_or_else(|error| panic!("{name}: {error}"));
        stream
            .synchronize()
            .unwrap_or_else(|error| panic!("{name}: {error}"));
        stream.clone_dtoh(&output).unwrap()
    }
}

/// The driver's own encoding of a map.
fn encode(map: &TensorMap) -> [u8; 128] {
    let &TensorMap {
        base,
        extents,
        strides,
        box_columns,
        box_rows,
        swizzle,
        element_bytes,
    } = map;
    let (boxes, steps) = ([box_columns, box_rows, 1, 1], [1u32; 4]);
    let element = match element_bytes {
        1 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_UINT8,
        2 => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        _ => sys::CUtensorMapDataType::CU_TENSOR_MAP_DATA_TYPE_FLOAT32,
    };
    let swizzle = match swizzle {
        64 => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_64B,
        _ => sys::CUtensorMapSwizzle::CU_TENSOR_MAP_SWIZZLE_128B,
    };
    let mut encoded = std::mem::MaybeUninit::<sys::CUtensorMap>::zeroed();
    // SAFETY: the driver is loaded, and reads as many numbers of each array as a tensor of rank 4 has.
    let result = unsafe {
        sys::cuTensorMapEncodeTiled(
            encoded.as_mut_ptr(),
            element,
            4,
            base as *mut _,
            extents.as_ptr().cast(),
            strides.as_ptr().cast(),
            boxes.as_ptr(),
            steps.as_ptr(),
            sys::CUtensorMapInterleave::CU_TENSOR_MAP_INTERLEAVE_NONE,
            swizzle,
            sys::CUtensorMapL2promotion::CU_TENSOR_MAP_L2_PROMOTION_NONE,
            sys::CUtensorMapFloatOOBfill::CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
        )
    };
    assert_eq!(result, sys::CUresult::CUDA_SUCCESS, "{map:?}");
    // SAFETY: 128 bytes, all of which were set.
    unsafe { encoded.as_ptr().cast::<[u8; 128]>().read() }
}
