//! The ladder: the one place where a stage is registered.

use crate::answer::NoData;
use crate::measure::builds::{self, StageBuild};
use crate::record::StageMeta;
use common::device::cuda::CudaDevice;
use common::limits::{DeviceError, DeviceLimits};
use common::stage::{Artifacts, Attention, LoadError, LoadedStage};
use kernel_build::report::GpuBuild;

/// Every stage, in the order of the ladder.
pub static STAGES: &[&dyn Attention] = &[
    &stage0_scalar::Scalar,
    &stage1_cpasync::CpAsync,
    &stage2_simd_pv::SimdPv,
    &stage3_wmma_pv::WmmaPv,
    &stage4_warpspec::WarpSpec,
    &stage5_swizzle::Swizzle,
    &stage6_tma::Tma,
    &stage7_wgmma::Wgmma,
    &stage8_overlap::Overlap,
    &stage9_cluster::Cluster,
];

/// Why there is no ladder to work on.
#[derive(Debug, thiserror::Error)]
pub enum LadderError {
    /// A stage is broken.
    #[error("the ladder cannot be loaded; build again with `cargo build`")]
    Load(#[from] LoadError),
    /// The device that was asked for cannot stand for this one, or the GPU's limits are not known.
    #[error(transparent)]
    Device(#[from] DeviceError),
}

/// The stages as they are built, and what they can run on.
pub struct Ladder {
    /// In the ladder's order.
    pub stages: Vec<LoadedStage>,
    /// The GPU, or why there is none.
    pub gpu: Result<CudaDevice, String>,
}

impl Ladder {
    /// Reads every stage's table and build report, and opens the GPU.
    pub fn open() -> Result<Self, LadderError> {
        let stages = load()?;
        let gpu = CudaDevice::open(0).map_err(|error| error.to_string());
        let gpu =
            gpu.and_then(|gpu| without_code(&stages, gpu.info().limits()).map_or(Ok(gpu), Err));
        Ok(Self { stages, gpu })
    }

    /// The same without a GPU, which nobody asked for.
    pub fn without_gpu(reason: &str) -> Result<Self, LadderError> {
        Ok(Self {
            stages: load()?,
            gpu: Err(reason.to_string()),
        })
    }

    /// Has the stages refuse what the open GPU cannot run, or the smaller device that was asked for.
    pub fn limit(&mut self, asked: Option<DeviceLimits>) -> Result<(), LadderError> {
        let limits = DeviceLimits::of_launches(
            asked,
            self.gpu.as_ref().ok().map(|gpu| gpu.info().limits()),
        )?;
        self.stages
            .iter_mut()
            .for_each(|stage| stage.device = limits);
        Ok(())
    }

    /// The GPU that a command needs `to` do its work.
    pub fn gpu_to(&self, to: &str) -> Result<&CudaDevice, NoData> {
        self.gpu
            .as_ref()
            .map_err(|reason| NoData(format!("there is no GPU to {to}: {reason}")))
    }

    /// What a record says of the stages.
    pub fn builds(&self) -> Vec<StageBuild> {
        builds::builds(&self.stages)
    }
}

/// Why the stages cannot run on a GPU that has their instructions.
pub fn without_code(stages: &[LoadedStage], gpu: DeviceLimits) -> Option<String> {
    let lacks = |stage: &&LoadedStage| {
        let Artifacts {
            fatbin,
            architectures,
            ..
        } = stage.attention.artifacts();
        fatbin.is_none()
            && (architectures.is_empty() || architectures.iter().any(|arch| gpu.is(arch)))
    };
    let stage = stages.iter().find(lacks)?;
    let GpuBuild::Absent { reason, remedy } = &stage.report.gpu else {
        return None;
    };
    Some(format!(
        "{} was built without GPU code, {reason}; {remedy} and build again",
        stage.info().id
    ))
}

/// Reads every stage's table and build report.
pub fn load() -> Result<Vec<LoadedStage>, LadderError> {
    Ok(STAGES
        .iter()
        .map(|stage| LoadedStage::load(*stage))
        .collect::<Result<_, _>>()?)
}

/// What a record says of the stages, without a device.
pub fn builds() -> Result<Vec<StageBuild>, LadderError> {
    Ok(builds::builds(&load()?))
}

/// The stages as judges know them.
pub fn metas() -> Result<Vec<StageMeta>, LadderError> {
    Ok(builds::metas(&builds()?))
}
