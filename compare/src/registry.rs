//! The ladder: the one place where a stage is registered.

use common::device::cuda::CudaDevice;
use common::limits::{DeviceError, DeviceLimits};
use common::stage::{Attention, LoadError, LoadedStage};

/// Every stage, in the order of the ladder.
pub static STAGES: &[&dyn Attention] = &[
    &stage0_scalar::Scalar,
    &stage1_cpasync::CpAsync,
    &stage2_simd_pv::SimdPv,
    &stage3_wmma_pv::WmmaPv,
    &stage4_warpspec::WarpSpec,
    &stage5_swizzle::Swizzle,
];

/// Reads every stage's table and build report.
pub fn load() -> Result<Vec<LoadedStage>, LoadError> {
    STAGES.iter().map(|stage| LoadedStage::load(*stage)).collect()
}

/// Has `stages` refuse what the open GPU cannot run, or the smaller device that was asked for.
pub fn limit(
    stages: &mut [LoadedStage],
    gpu: Option<&CudaDevice>,
    asked: Option<DeviceLimits>,
) -> Result<(), DeviceError> {
    let limits = DeviceLimits::of_launches(asked, gpu.map(|gpu| gpu.info().limits()))?;
    stages.iter_mut().for_each(|stage| stage.device = limits);
    Ok(())
}
