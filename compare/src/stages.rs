//! The ladder: the one place where a stage is registered.

use crate::answer::NoData;
use crate::measure::builds;
use crate::measure::machine;
use crate::table::files::{entries, read};
use crate::table::{Negative, StageMeta, StoreError};
use anyhow::{Context, bail};
use clap::ValueEnum;
use common::choice::Model;
use common::device::cuda::CudaDevice;
use common::limits::DeviceLimits;
use common::stage::{Artifacts, Attention, LoadedStage};
use kernel_build::report::GpuBuild;
use std::path::Path;

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
    &stage12_decode::Decode,
    &stage13_shares::Shares,
];

/// The stages whose code the library has: those that `attention-ladder` links.
const LIBRARY: [&str; 9] = [
    "stage5-swizzle",
    "stage6-tma",
    "stage7-wgmma",
    "stage8-overlap",
    "stage9-cluster",
    "stage10-fp8",
    "stage11-spread",
    "stage12-decode",
    "stage13-shares",
];

/// Where the library has its choice, by GPU model, in the workspace.
pub const CHOICE: &str = "attention-ladder/choice";

/// Beside each stage: why its claims fail. A claim that is recorded there and fails is refuted, which is no error.
pub const NEGATIVES: &str = "negatives.json";

pub struct Ladder {
    pub stages: Vec<LoadedStage>,
    pub gpu: Result<CudaDevice, String>,
}

/// Where kernels run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Backend {
    /// The GPU if one can be used, else the emulator
    #[default]
    Auto,
    /// An NVIDIA GPU
    Cuda,
    /// The functional emulator: checks, never times
    Emulated,
}

impl Backend {
    /// Opens the ladder, with the GPU if the backend wants one.
    pub fn open(self) -> anyhow::Result<Ladder> {
        if self == Backend::Emulated {
            return Ladder::without_gpu("not asked for: --backend emulated");
        }
        match Ladder::open()? {
            Ladder {
                gpu: Err(reason), ..
            } if self == Backend::Cuda => bail!("--backend cuda: {reason}"),
            ladder => Ok(ladder),
        }
    }
}

impl Ladder {
    /// Reads every stage's table and build report, and opens the GPU.
    pub fn open() -> anyhow::Result<Self> {
        let stages = load()?;
        let gpu = CudaDevice::open(0).map_err(|error| error.to_string());
        let gpu =
            gpu.and_then(|gpu| without_code(&stages, gpu.info().limits()).map_or(Ok(gpu), Err));
        Ok(Self { stages, gpu })
    }

    pub fn without_gpu(reason: &str) -> anyhow::Result<Self> {
        Ok(Self {
            stages: load()?,
            gpu: Err(reason.to_string()),
        })
    }

    /// Limits the stages to what the open GPU, or the smaller device that was asked for, can run.
    pub fn limit(&mut self, asked: Option<DeviceLimits>) -> anyhow::Result<()> {
        let limits = DeviceLimits::of_launches(
            asked,
            self.gpu.as_ref().ok().map(|gpu| gpu.info().limits()),
        )?;
        self.stages
            .iter_mut()
            .for_each(|stage| stage.device = limits);
        Ok(())
    }

    /// The GPU, which a command needs `to` do its work.
    pub fn gpu_to(&self, to: &str) -> Result<&CudaDevice, NoData> {
        self.gpu
            .as_ref()
            .map_err(|reason| NoData(format!("there is no GPU to {to}: {reason}")))
    }

    /// The stages as built, with the refutations that stand beside each in the workspace; none outside of it.
    pub fn builds(&self) -> Result<Vec<StageMeta>, StoreError> {
        let mut builds = builds::builds(&self.stages);
        if let Some(root) = machine::workspace() {
            for build in &mut builds {
                build.negatives = refuted(&root.join(&build.id))?;
            }
        }
        Ok(builds)
    }
}

/// What `negatives.json` in the stage's folder says; nothing if there is none.
fn refuted(folder: &Path) -> Result<Vec<Negative>, StoreError> {
    let path = folder.join(NEGATIVES);
    match read(&path)? {
        Some(text) => serde_json::from_slice(&text).map_err(StoreError::malformed(&path)),
        None => Ok(vec![]),
    }
}

/// Why the stages cannot run on a GPU although it has their instructions.
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

pub fn load() -> anyhow::Result<Vec<LoadedStage>> {
    let stages = STAGES.iter().map(|stage| LoadedStage::load(*stage));
    let stages: Result<_, _> = stages.collect();
    stages.context("the ladder cannot be loaded; build again with `cargo build`")
}

/// Loads the stages that the library has, and so chooses among.
pub fn library() -> anyhow::Result<Vec<LoadedStage>> {
    let mut stages = load()?;
    stages.retain(|stage| LIBRARY.contains(&stage.info().id));
    Ok(stages)
}

/// Reads what the library knows of GPUs' times.
pub fn models(folder: &Path) -> anyhow::Result<Vec<Model>> {
    let mut models = Vec::new();
    for path in entries(folder)? {
        if path
            .extension()
            .is_some_and(|extension| extension == "json")
        {
            let fail = || format!("cannot read the library's choice {}", path.display());
            let text = std::fs::read(&path).with_context(fail)?;
            models.push(serde_json::from_slice(&text).with_context(fail)?);
        }
    }
    Ok(models)
}

pub fn builds() -> anyhow::Result<Vec<StageMeta>> {
    Ok(Ladder::without_gpu("not asked for")?.builds()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::reference::Probability;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn a_model_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let model = r#"{"gpu":"GPU","capability":90,"multiprocessors":132,"costs":[]}"#;
        std::fs::write(folder.path().join("gpu.json"), model).unwrap();
        std::fs::write(folder.path().join(".gpu.json.swp"), "of an editor").unwrap();
        assert_eq!(models(folder.path()).unwrap().len(), 1);
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        let error = format!("{:#}", models(folder.path()).unwrap_err());
        let says = ["cannot read the library's choice ", "broken.json: EOF"];
        assert!(says.iter().all(|says| error.contains(says)), "{error}");
    }

    #[test]
    fn a_refutation_needs_a_reason() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(refuted(folder.path()).unwrap(), []);
        let read = |text: &str| {
            fs::write(folder.path().join(NEGATIVES), text).unwrap();
            let read = refuted(folder.path()).map_err(anyhow::Error::from);
            read.map_err(|error| format!("{error:#}"))
        };
        let entry = |why| format!(r#"[{{"claim":"a","measured":"b","why":"{why}"}}]"#);
        assert_eq!(read(&entry("it waits")).unwrap()[0].why, "it waits");
        for (text, says) in [("[", "EOF"), (&entry(" "), "`why` is empty")] {
            let error = read(text).unwrap_err();
            assert!(
                error.contains("negatives.json: line 1 is malformed: "),
                "{error}"
            );
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn the_library_has_the_stages_that_it_links() {
        let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec();
        let packages = metadata.unwrap().packages;
        let library = packages.iter().find(|of| *of.name == "attention-ladder");
        let linked = library.unwrap().dependencies.iter().filter(|dependency| {
            let is_linked = dependency.kind == cargo_metadata::DependencyKind::Normal;
            is_linked
                && STAGES
                    .iter()
                    .any(|stage| stage.info().id == dependency.name)
        });
        let linked: BTreeSet<&str> = linked.map(|dependency| &*dependency.name).collect();
        assert_eq!(linked, BTreeSet::from(LIBRARY));
        let loaded = library_ids();
        assert_eq!(loaded, LIBRARY, "in the order of the ladder");
    }

    fn library_ids() -> Vec<&'static str> {
        let stages = super::library().unwrap();
        stages.iter().map(|stage| stage.info().id).collect()
    }

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
            "stage5-swizzle: P of e4m3",
            "stage9-cluster: P of e4m3",
            "stage9-cluster: log-sum-exps of e4m3",
        ];
        assert_eq!(less, BTreeSet::from(expected.map(String::from)));
    }
}
