//! The ladder: the one place where a stage is registered.

use crate::answer::NoData;
use crate::measure::builds::{self, StageBuild};
use crate::record::StageMeta;
use common::device::cuda::{CudaDevice, CudaError, DeviceInfo};
use common::limits::{DeviceError, DeviceLimits};
use common::stage::{Artifacts, Attention, LoadError, LoadedStage};
use kernel_build::report::GpuBuild;
use std::path::Path;
use std::str::FromStr;
use std::sync::Mutex;

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
    &stage10_fp8::Fp8,
    &stage11_spread::Spread,
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

/// How many GPUs of the host share the cases of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpus {
    /// So many, from number 0.
    Count(usize),
    /// All that the driver shows.
    All,
}

impl FromStr for Gpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse()) {
            ("all", _) => Ok(Gpus::All),
            (_, Ok(count)) if count > 0 => Ok(Gpus::Count(count)),
            _ => Err("give a number of GPUs, 1 or more, or `all`".to_string()),
        }
    }
}

/// Why the GPUs that were asked for cannot share a run.
#[derive(Debug, thiserror::Error)]
pub enum GpusError {
    /// There are not so many, or one of them cannot be opened.
    #[error("--gpus {asked}: GPU {ordinal} cannot be used: {source}")]
    Open {
        /// How many were asked for.
        asked: usize,
        /// The one that is missing.
        ordinal: usize,
        source: CudaError,
    },
    /// A record is of one kind of GPU.
    #[error(
        "--gpus: GPU {ordinal} is {other}, GPU 0 {first}, and a record is of one kind of GPU; name those alike by \
         CUDA_VISIBLE_DEVICES"
    )]
    Unlike {
        ordinal: usize,
        other: String,
        /// That of the first.
        first: String,
    },
}

/// The GPUs that share the cases with the first, which alone is timed.
pub fn other_gpus(first: &CudaDevice, asked: Gpus) -> Result<Vec<Mutex<CudaDevice>>, GpusError> {
    let mut others = Vec::new();
    for ordinal in 1.. {
        if asked == Gpus::Count(ordinal) {
            break;
        }
        let other = match (CudaDevice::open(ordinal), asked) {
            (Ok(other), _) => other,
            (Err(CudaError::NoDevice { .. }), Gpus::All) => break,
            (Err(source), _) => {
                let asked = match asked {
                    Gpus::Count(asked) => asked,
                    Gpus::All => ordinal + 1,
                };
                return Err(GpusError::Open {
                    asked,
                    ordinal,
                    source,
                });
            }
        };
        alike(ordinal, first.info(), other.info())?;
        others.push(Mutex::new(other));
    }
    Ok(others)
}

fn alike(ordinal: usize, first: &DeviceInfo, other: &DeviceInfo) -> Result<(), GpusError> {
    let kind = |info: &DeviceInfo| {
        (
            info.name.clone(),
            info.compute_capability,
            info.sms,
            info.shared_optin_bytes,
        )
    };
    if kind(first) == kind(other) {
        return Ok(());
    }
    Err(GpusError::Unlike {
        ordinal,
        other: format!("{} with {} SMs", other.name, other.sms),
        first: format!("{} with {} SMs", first.name, first.sms),
    })
}

/// Writes the sources of a stage's kernels, as this program was built from them, below `work`; kernel.cu as `of_kernel` makes it.
pub fn write_sources(
    stage: &LoadedStage,
    work: &Path,
    of_kernel: impl Fn(&str) -> String,
) -> std::io::Result<()> {
    for (name, text) in stage.attention.artifacts().sources {
        let path = work.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(work))?;
        let text = match name.ends_with("/kernel.cu") {
            true => of_kernel(text),
            false => text.to_string(),
        };
        std::fs::write(path, text)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use common::reference::Probability;
    use std::collections::BTreeSet;

    /// C2 and C3 take their bounds from the type that a kernel declares for P, and C8 judges only those that declare log-sum-exps:
    /// a stage that declares less than its predecessor is judged by less, and stays green.
    #[test]
    fn only_these_stages_declare_less_than_their_predecessor() {
        let stages: Vec<LoadedStage> = STAGES
            .iter()
            .map(|stage| LoadedStage::load(*stage).unwrap())
            .collect();
        let mut less = BTreeSet::new();
        for stage in &stages {
            let id = stage.info().id;
            let before = stages
                .iter()
                .find(|other| stage.info().predecessor == Some(other.info().id));
            for kernel in &stage.kernels {
                let dtype = kernel.dtype;
                let alike = before.and_then(|b| b.kernels.iter().find(|k| k.dtype == dtype));
                let (probability, lse) = match (alike, before) {
                    (Some(kernel), _) => (kernel.probability, kernel.lse),
                    (None, Some(_)) => (Probability::half(dtype), false),
                    (None, None) => (Probability::F32, false),
                };
                let exact_first = Probability::declarable(dtype).iter();
                let rank = |p| exact_first.clone().position(|other| *other == p);
                if rank(kernel.probability) > rank(probability) {
                    less.insert(format!("{id}: P of {dtype}"));
                }
                if lse && !kernel.lse {
                    less.insert(format!("{id}: log-sum-exps of {dtype}"));
                }
            }
        }
        let expected = [
            "stage10-fp8: P of e4m3",
            "stage10-fp8: log-sum-exps of e4m3",
            "stage3-wmma-pv: P of e4m3",
            "stage3-wmma-pv: P of f16",
        ];
        assert_eq!(less, BTreeSet::from(expected.map(String::from)));
    }

    #[test]
    fn gpus_that_share_a_run_are_of_one_kind() {
        let first = DeviceInfo {
            name: "NVIDIA H200".into(),
            uuid: "GPU-a".into(),
            compute_capability: (9, 0),
            sms: 132,
            l2_bytes: 60 << 20,
            shared_optin_bytes: 227 << 10,
            cuda_version: (13, 0),
            driver_version: None,
        };
        let twin = DeviceInfo {
            uuid: "GPU-b".into(),
            ..first.clone()
        };
        assert!(alike(1, &first, &twin).is_ok());
        let slice = DeviceInfo { sms: 60, ..twin };
        assert_eq!(
            alike(1, &first, &slice).unwrap_err().to_string(),
            "--gpus: GPU 1 is NVIDIA H200 with 60 SMs, GPU 0 NVIDIA H200 with 132 SMs, and a record is of one kind of GPU; \
             name those alike by CUDA_VISIBLE_DEVICES"
        );
    }
}
