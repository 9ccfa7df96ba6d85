//! The ladder: the one place where a stage is registered.

#![forbid(unsafe_code)]

use anyhow::{Context, bail};
use clap::ValueEnum;
use common::choice::{Model, retain_listed};
use common::device::cuda::CudaDevice;
use common::limits::DeviceLimits;
use common::stage::{Attention, LoadedStage};
use kernel_build::report::GpuBuild;
use results::builds;
use results::table::files::{entries, read};
use results::table::{Negative, StageMeta, StoreError};
use results::workspace;
use std::path::Path;

/// All stages, in the order of the ladder.
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
    &stage13_persistent::Persistent,
    &stage14_served::Served,
];

/// The variants that the library chooses among, one STAGE/VARIANT a line.
const LIBRARY: &str = include_str!("../../../attention-ladder/choice/variants.txt");

/// The stage that the library links and does not choose: calls with sequences' lengths launch it.
#[cfg(test)]
const SERVED: &str = "stage14-served";

/// The file beside each stage that records why its claims fail. A claim that is recorded there and
/// fails is refuted, which is no error.
pub const NEGATIVES: &str = "negatives.json";

/// The stages as loaded, with the GPU that they run on.
pub struct Ladder {
    pub stages: Vec<LoadedStage>,
    pub gpu: Result<CudaDevice, String>,
}

/// The place where kernels run.
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
        let ladder = Ladder::open()?;
        match &ladder.gpu {
            Err(reason) if self == Backend::Cuda => bail!("--backend cuda: {reason}"),
            _ => Ok(ladder),
        }
    }
}

impl Ladder {
    /// Reads every stage's table and build report, and opens the GPU.
    pub fn open() -> anyhow::Result<Self> {
        let stages = load()?;
        let gpu = match CudaDevice::open(0) {
            Ok(device) => match without_code(&stages, device.info().limits()) {
                Some(reason) => Err(reason),
                None => Ok(device),
            },
            Err(error) => Err(error.to_string()),
        };
        Ok(Self { stages, gpu })
    }

    /// Loads the stages without a GPU, for this reason.
    pub fn without_gpu(reason: &str) -> anyhow::Result<Self> {
        Ok(Self {
            stages: load()?,
            gpu: Err(reason.to_string()),
        })
    }

    /// Limits the stages to what the open GPU, or the smaller device that was asked for, can run.
    pub fn limit(&mut self, asked: Option<DeviceLimits>) -> anyhow::Result<()> {
        let limits_of_gpu = match &self.gpu {
            Ok(device) => Some(device.info().limits()),
            Err(_) => None,
        };
        let limits = DeviceLimits::of_launches(asked, limits_of_gpu)?;
        for stage in &mut self.stages {
            stage.device = limits;
        }
        Ok(())
    }

    /// Returns the stages as built, with the refutations that stand beside each in the workspace;
    /// none outside of it.
    pub fn builds(&self) -> Result<Vec<StageMeta>, StoreError> {
        let mut builds = builds::builds(&self.stages);
        if let Some(root) = workspace::find() {
            for build in &mut builds {
                build.negatives = refuted(&root.join(&build.id))?;
            }
        }
        Ok(builds)
    }
}

/// Reads `negatives.json` in the stage's folder; nothing if there is none.
fn refuted(folder: &Path) -> Result<Vec<Negative>, StoreError> {
    let path = folder.join(NEGATIVES);
    match read(&path)? {
        Some(text) => serde_json::from_slice(&text).map_err(StoreError::malformed(&path)),
        None => Ok(vec![]),
    }
}

/// Returns why the stages cannot run on a GPU although it has their instructions.
pub fn without_code(stages: &[LoadedStage], gpu: DeviceLimits) -> Option<String> {
    stages.iter().find_map(|stage| {
        let architectures = stage.attention.artifacts().architectures;
        let is_for_gpu = architectures.is_empty() || architectures.iter().any(|arch| gpu.is(arch));
        if !is_for_gpu {
            return None;
        }
        let why = lack_of_code(&stage.report.gpu, gpu)?;
        Some(format!(
            "{} was built {why} and build again",
            stage.info().id
        ))
    })
}

/// Returns why a build has no code for a GPU, and the remedy; `None` if it has.
fn lack_of_code(build: &GpuBuild, gpu: DeviceLimits) -> Option<String> {
    let capability = gpu.capability;
    match build {
        GpuBuild::Absent { reason, remedy } => {
            Some(format!("without GPU code, {reason}; {remedy}"))
        }
        GpuBuild::Built(code) if code.runs_on(capability) => None,
        GpuBuild::Built(code) => {
            let images = code.images();
            Some(format!(
                "for {images}, of which none runs on compute capability {}.{}; add \
                 sm_{capability} to ATTENTION_CUDA_ARCHS",
                capability / 10,
                capability % 10
            ))
        }
    }
}

/// Loads the stages of the ladder.
pub fn load() -> anyhow::Result<Vec<LoadedStage>> {
    STAGES
        .iter()
        .map(|stage| LoadedStage::load(*stage))
        .collect::<Result<_, _>>()
        .context("the ladder cannot be loaded; build again with `cargo build`")
}

/// Loads the stages that the library chooses among, each with the variants that it has.
pub fn library() -> anyhow::Result<Vec<LoadedStage>> {
    let mut stages = load()?;
    retain_listed(&mut stages, LIBRARY)?;
    Ok(stages)
}

/// Reads the library's models of GPUs' times.
pub fn models(folder: &Path) -> anyhow::Result<Vec<Model>> {
    let mut paths = entries(folder)?;
    paths.retain(|path| path.extension() == Some("json".as_ref()));
    let mut models = Vec::new();
    for path in paths {
        let model = read_model(&path)
            .with_context(|| format!("cannot read the library's choice {}", path.display()))?;
        models.push(model);
    }
    Ok(models)
}

fn read_model(path: &Path) -> anyhow::Result<Model> {
    Ok(serde_json::from_slice(&std::fs::read(path)?)?)
}

/// Returns the stages as built, without a GPU.
pub fn builds() -> anyhow::Result<Vec<StageMeta>> {
    Ok(Ladder::without_gpu("not asked for")?.builds()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::reference::Probability;
    use common::stage::Role;
    use std::collections::BTreeSet;
    use std::fs;

    #[test]
    fn every_claim_of_a_stage_has_words_of_its_own() {
        for stage in builds().unwrap() {
            let mut words = BTreeSet::new();
            let doubled = stage
                .claims
                .iter()
                .find(|claim| !words.insert(claim.to_string()));
            assert!(doubled.is_none(), "{}: {}", stage.id, doubled.unwrap());
        }
    }

    #[test]
    fn a_model_that_cannot_be_read_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let model = r#"{"gpu":"GPU","capability":90,"multiprocessors":132,"costs":[]}"#;
        std::fs::write(folder.path().join("gpu.json"), model).unwrap();
        std::fs::write(folder.path().join(".gpu.json.swp"), "of an editor").unwrap();
        assert_eq!(models(folder.path()).unwrap().len(), 1);
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        let error = format!("{:#}", models(folder.path()).unwrap_err());
        for part in ["cannot read the library's choice ", "broken.json: EOF"] {
            assert!(error.contains(part), "{error}");
        }
    }

    /// Reads a file of refutations with this text.
    fn refutations(text: &str) -> anyhow::Result<Vec<Negative>> {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(NEGATIVES), text).unwrap();
        Ok(refuted(folder.path())?)
    }

    #[test]
    fn a_stage_without_a_file_has_no_refutations() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(refuted(folder.path()).unwrap(), []);
    }

    #[test]
    fn a_refutation_has_its_reason() {
        let text = r#"[{"claim":"a","measured":"b","why":"it waits"}]"#;
        assert_eq!(refutations(text).unwrap()[0].why, "it waits");
    }

    #[test]
    fn a_refutation_without_a_reason_is_malformed() {
        let without_reason = r#"[{"claim":"a","measured":"b","why":" "}]"#;
        for (text, reason) in [("[", "EOF"), (without_reason, "`why` is empty")] {
            let error = format!("{:#}", refutations(text).unwrap_err());
            let start = "negatives.json: line 1 is malformed: ";
            assert!(error.contains(start), "{error}");
            assert!(error.contains(reason), "{error}");
        }
    }

    /// Pages show the main path as one stage after another, each with its gain over the one before.
    #[test]
    fn a_rung_follows_the_rung_before() {
        let mut before = None;
        for stage in STAGES {
            let info = stage.info();
            if info.role != Role::Rung {
                continue;
            }
            assert_eq!(
                info.predecessor, before,
                "{}: a rung's predecessor is the rung before; give any other stage Role::Branch",
                info.id
            );
            before = Some(info.id);
        }
    }

    #[test]
    fn the_library_has_the_stages_that_it_links() {
        let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec();
        let packages = metadata.unwrap().packages;
        let package = packages
            .iter()
            .find(|package| *package.name == "attention-ladder")
            .unwrap();
        let mut linked = BTreeSet::new();
        for dependency in &package.dependencies {
            let is_linked = dependency.kind == cargo_metadata::DependencyKind::Normal;
            let is_stage = STAGES
                .iter()
                .any(|stage| stage.info().id == dependency.name);
            if is_linked && is_stage {
                linked.insert(&*dependency.name);
            }
        }
        let stages = library().unwrap();
        let mut expected: BTreeSet<&str> = stages.iter().map(|stage| stage.info().id).collect();
        expected.insert(SERVED);
        assert_eq!(linked, expected);
    }

    #[test]
    fn the_library_has_the_variants_of_its_list_and_no_other() {
        let stages = library().unwrap();
        let mut variants = Vec::new();
        for stage in &stages {
            for variant in stage.variants() {
                variants.push(format!("{}/{variant}", stage.info().id));
            }
        }
        assert_eq!(variants, LIBRARY.lines().collect::<Vec<_>>());
    }

    #[test]
    fn a_variant_that_no_stage_has_is_not_of_a_library() {
        let mut stages = load().unwrap();
        let list = "stage5-swizzle/swizzle-64x64\nstage5-swizzle/swizzle-65x64\n";
        let error = retain_listed(&mut stages, list).unwrap_err();
        assert_eq!(error.variant, "stage5-swizzle/swizzle-65x64");
    }

    /// Returns the predecessor of a stage, that one's, and so on.
    fn ancestors<'a>(stage: &LoadedStage, stages: &'a [LoadedStage]) -> Vec<&'a LoadedStage> {
        let mut before = Vec::new();
        let mut next = stage.info().predecessor;
        while let Some(id) = next {
            let ancestor = stages.iter().find(|other| other.info().id == id);
            before.extend(ancestor);
            next = ancestor.and_then(|found| found.info().predecessor);
        }
        before
    }

    /// Adds what a stage declares less than the nearest stage before it with the same element type.
    fn add_weaker_declarations(
        stage: &LoadedStage,
        stages: &[LoadedStage],
        weaker: &mut BTreeSet<String>,
    ) {
        let id = stage.info().id;
        let before = ancestors(stage, stages);
        for kernel in &stage.kernels {
            let dtype = kernel.dtype;
            let alike = before
                .iter()
                .flat_map(|ancestor| &ancestor.kernels)
                .find(|other| other.dtype == dtype);
            let (probability, lse) = match alike {
                Some(other) => (other.probability, other.lse),
                None if before.is_empty() => (Probability::F32, false),
                None => (Probability::half(dtype), false),
            };
            let exact_first = Probability::declarable(dtype);
            let rank = |wanted| exact_first.iter().position(|other| *other == wanted);
            if rank(kernel.probability) > rank(probability) {
                weaker.insert(format!("{id}: P of {dtype}"));
            }
            if lse && !kernel.lse {
                weaker.insert(format!("{id}: log-sum-exps of {dtype}"));
            }
        }
    }

    /// C2 and C3 take their bounds from the type that a kernel declares for P, and C8 judges only
    /// those that declare log-sum-exps: a stage that declares less than its predecessor is judged
    /// by less, and stays green.
    #[test]
    fn only_these_stages_declare_less_than_their_predecessor() {
        let stages = load().unwrap();
        let mut weaker = BTreeSet::new();
        for stage in &stages {
            add_weaker_declarations(stage, &stages, &mut weaker);
        }
        let expected = [
            "stage10-fp8: P of e4m3",
            "stage10-fp8: log-sum-exps of e4m3",
            "stage3-wmma-pv: P of e4m3",
            "stage3-wmma-pv: P of f16",
            "stage9-cluster: P of e4m3",
            "stage9-cluster: log-sum-exps of e4m3",
        ];
        assert_eq!(weaker, BTreeSet::from(expected.map(String::from)));
    }
}
