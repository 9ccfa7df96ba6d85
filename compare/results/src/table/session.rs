//! `session.json`: what is common to all rows of a run; and the stages as they are built.

use super::kind::{ProblemPlace, Source};
use super::subject::Subject;
pub use common::claim::Relation;
use common::device::BackendKind;
use common::inputs::Family;
use common::limits::DeviceLimits;
use common::metric::Metric;
use common::problem::{Dtype, Mask, Shape};
use common::resources::{KernelFacts, PtxasEntry};
use common::serving::Cache;
pub use common::stage::Role;
use common::verdict::GateId;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

/// The circumstances under which rows were measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Session {
    /// `20261125T070721Z-nvidia-h200`: names are in the order of time.
    #[serde(rename = "session")]
    pub name: String,
    pub git: Git,
    pub machine: Machine,
    pub tier: Tier,
    pub backend: BackendKind,
    #[serde(default, skip_serializing_if = "Selection::is_all")]
    pub scope: Selection,
    pub host_compiler: String,
    pub device_compiler: DeviceCompiler,
    /// The smaller device that the run was limited to, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceLimits>,
    /// Versions of what measured: `ncu 2025.3.1.0`, `torch 2.11.0+cu130`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<Source, Vec<String>>,
    /// Whether the program had debug information to name source lines.
    pub source_lines: bool,
    pub progress: Progress,
    /// Gates that this machine, backend and tier cannot measure, with why and what it would take: a
    /// row without them is complete. Of a run only.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub unmeasurable: BTreeMap<GateId, String>,
    /// How many rows were written; of a run only.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub rows: usize,
    /// Every stage, whether or not the run selected it; of the program, not of the file.
    #[serde(skip)]
    pub stages: Vec<StageMeta>,
    /// The file of --input; of the running program alone, since a run names no folder.
    #[serde(skip)]
    pub input: Option<PathBuf>,
}

fn is_zero(n: &usize) -> bool {
    *n == 0
}

/// A stage as a session had it built.
#[derive(Clone, Debug, PartialEq)]
pub struct StageMeta {
    /// `stage0-scalar`.
    pub id: String,
    pub idea: String,
    pub predecessor: Option<String>,
    pub role: Role,
    pub default_variant: String,
    /// Hash of kernel.cu, headers and flags. Rows of another identity are STALE.
    pub identity: String,
    pub claims: Vec<Claim>,
    /// Claims that are refuted, with what was measured.
    pub negatives: Vec<Negative>,
    /// The variants in the order of kernel.cu, without those that the device refuses.
    pub variants: Vec<VariantMeta>,
    /// Variants with instances that the device cannot run, which is no failure, and what those
    /// need.
    pub refused: Vec<(String, String)>,
}

/// A variant as a session had it built.
#[derive(Clone, Debug, PartialEq)]
pub struct VariantMeta {
    /// `wmma-qk-32x64`.
    pub name: String,
    /// `wmma-qk`.
    pub family: String,
    /// Whether it takes sequences as they are served.
    pub serves: bool,
    /// The type of K and V that it reads, and no other, where it is not that of Q.
    pub cache: Option<Cache>,
    /// One instance per element type and head size, without those that the device refuses.
    pub kernels: Vec<KernelBuild>,
}

/// A kernel instance, with what was built of it.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelBuild {
    pub facts: KernelFacts,
    /// Per architecture; empty without nvcc.
    pub built: Vec<BuiltKernel>,
}

/// The machine code of an instance for one architecture.
#[derive(Clone, Debug, PartialEq)]
pub struct BuiltKernel {
    pub ptxas: PtxasEntry,
    /// Figures of its machine code; empty if it was not read.
    pub code: Vec<(Metric, f64)>,
}

impl VariantMeta {
    /// Returns the part of its name that follows the family: `32x64-k2`.
    pub fn preset(&self) -> &str {
        self.name
            .strip_prefix(&self.family)
            .unwrap_or_default()
            .trim_start_matches('-')
    }

    /// Returns whether a claim about `family` is about it.
    pub fn is_of(&self, family: &str) -> bool {
        self.family == family || self.name == family
    }

    /// Returns whether it takes the sequences of a shape, with K and V in the type that they have.
    pub fn takes_shape(&self, shape: &Shape) -> bool {
        (shape.is_dense() || self.serves) && shape.serving.cache == self.cache
    }

    /// Returns whether it has an instance for an element type.
    pub fn takes(&self, dtype: Dtype) -> bool {
        let mut kernels = self.kernels.iter();
        kernels.any(|kernel| kernel.facts.dtype == dtype)
    }

    /// Returns the instance for the claims' problem: head_dim 64.
    pub fn claims_kernel(&self, dtype: Dtype) -> Option<&KernelBuild> {
        self.instance(dtype, 64)
    }

    /// Returns the instance for an element type and head size.
    pub fn instance(&self, dtype: Dtype, head_dim: usize) -> Option<&KernelBuild> {
        self.kernels
            .iter()
            .find(|kernel| (kernel.facts.dtype, kernel.facts.head_dim) == (dtype, head_dim))
    }
}

/// The second problem at which rungs are shown: a grid that fills any GPU.
pub const LARGE: &str = "big";

impl StageMeta {
    /// Returns the subjects of all variants.
    pub fn subjects(&self) -> impl Iterator<Item = Subject> {
        self.variants
            .iter()
            .map(|variant| self.subject(&variant.name))
    }

    /// Returns the subject of a variant.
    pub fn subject(&self, variant: &str) -> Subject {
        Subject::variant(&self.id, variant)
    }

    /// Returns the variant of this name.
    pub fn variant(&self, name: &str) -> Option<&VariantMeta> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// Returns whether it has an instance for an element type.
    pub fn takes(&self, dtype: Dtype) -> bool {
        self.variants.iter().any(|variant| variant.takes(dtype))
    }

    /// Returns whether it claims to be faster than a peer on the problem.
    pub fn claims_over_peer(&self, place: &ProblemPlace) -> bool {
        self.claims.iter().any(|claim| {
            matches!(claim.relation, Relation::FasterThanPeer { .. }) && claim.place == *place
        })
    }

    /// Returns the variants of a family; `family` may also be the name of a variant.
    pub fn family<'a>(&'a self, family: &'a str) -> impl Iterator<Item = &'a VariantMeta> {
        self.variants
            .iter()
            .filter(move |variant| variant.is_of(family))
    }

    /// Returns the subjects of a family's variants.
    pub fn family_subjects<'a>(&'a self, family: &'a str) -> impl Iterator<Item = Subject> + 'a {
        self.family(family)
            .map(|variant| self.subject(&variant.name))
    }

    /// Returns the family's variant with this preset, which differs from other families' only in
    /// its idea.
    pub fn same_preset<'a>(&'a self, family: &'a str, preset: &str) -> Option<&'a VariantMeta> {
        self.claimants(family)
            .find(|variant| variant.preset() == preset)
    }

    /// Returns the stage's default if it is of this family, else the first of the family that the
    /// device can run on the claims' problem.
    pub fn default_of<'a>(&'a self, family: &'a str) -> Option<&'a VariantMeta> {
        self.family(family)
            .find(|variant| variant.name == self.default_variant)
            .or(self.claimants(family).next())
    }

    fn claimants<'a>(&'a self, family: &'a str) -> impl Iterator<Item = &'a VariantMeta> {
        let dtype = self.first_dtype();
        self.family(family)
            .filter(move |variant| variant.claims_kernel(dtype).is_some())
    }

    /// Returns the element type that it is shown and counted with: the first that it supports.
    pub fn first_dtype(&self) -> Dtype {
        for dtype in Dtype::ALL {
            let mut variants = self.variants.iter();
            if variants.any(|variant| variant.claims_kernel(dtype).is_some()) {
                return dtype;
            }
        }
        Dtype::F16
    }

    /// Returns the claims' problem in its first element type.
    pub fn first_place(&self) -> ProblemPlace {
        ProblemPlace::claims(self.first_dtype())
    }

    /// Returns [`LARGE`] in its first element type.
    pub fn large_place(&self) -> ProblemPlace {
        ProblemPlace::new(LARGE, self.first_dtype(), Mask::Full)
    }

    /// Returns the problem that a branch is for; nothing for a rung.
    pub fn own_place(&self) -> Option<ProblemPlace> {
        match self.role {
            Role::Rung => None,
            Role::Branch { problem: own, .. } => {
                Some(ProblemPlace::new(own.shape, own.dtype, own.mask))
            }
        }
    }

    /// Returns the problems at which the ladder's tables show it.
    pub fn places(&self) -> Vec<ProblemPlace> {
        match self.own_place() {
            Some(own) => vec![own],
            None => vec![self.first_place(), self.large_place()],
        }
    }
}

/// Returns the stage of this id.
pub fn by_id<'a>(stages: &'a [StageMeta], id: &str) -> Option<&'a StageMeta> {
    stages.iter().find(|stage| stage.id == id)
}

/// Returns all claims, with their stages.
pub fn claims(stages: &[StageMeta]) -> impl Iterator<Item = (&StageMeta, &Claim)> {
    stages
        .iter()
        .flat_map(|stage| stage.claims.iter().map(move |claim| (stage, claim)))
}

/// A statement of a stage about its kernels, which measurements refute or not.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    pub family: String,
    /// The metric; p50 stands for p50, p90 and mean, each of which must reach the target.
    pub metric: Metric,
    pub relation: Relation,
    pub place: ProblemPlace,
    /// The only GPU that it is about.
    pub gpu: Option<String>,
    pub why: String,
}

impl Claim {
    /// Returns what identifies it among the claims of its stage, whatever it promises: `swizzle p50
    /// over stage0-scalar wmma-qk on mission f16 full`.
    pub fn id(&self) -> String {
        let Self {
            family,
            metric,
            place,
            ..
        } = self;
        let relation = match &self.relation {
            Relation::Faster { base, .. } => format!("over {base}"),
            Relation::FasterThanPeer { rival, .. } => format!("over {rival}"),
            Relation::Ratio { base, .. } => format!("against {base}"),
            Relation::AtLeast { .. } => "at least".to_string(),
            Relation::AtMost { .. } => "at most".to_string(),
        };
        format!("{family} {metric} {relation} on {place}{}", self.of_gpu())
    }

    fn of_gpu(&self) -> String {
        match &self.gpu {
            Some(name) => format!(", {name}"),
            None => String::new(),
        }
    }

    /// Returns whether it is about the kernels on this GPU model.
    pub fn is_about(&self, gpu: Option<&str>) -> bool {
        self.gpu.is_none() || self.gpu.as_deref() == gpu
    }

    /// Returns whether it is about time, and so about a particular GPU.
    pub fn is_of_speed(&self) -> bool {
        matches!(
            self.relation,
            Relation::Faster { .. } | Relation::FasterThanPeer { .. }
        )
    }

    /// Returns the prediction without its subject: `0.5 to 0.8x stage0-scalar scalar`.
    pub fn prediction(&self) -> String {
        match &self.relation {
            Relation::Faster { base, at_least } => format!(">= {at_least:.2}x over {base}"),
            Relation::FasterThanPeer {
                rival, at_least, ..
            } => format!(">= {at_least:.2}x over {rival}"),
            Relation::Ratio {
                base,
                at_least,
                at_most,
            } => match (at_least == at_most, *at_least) {
                (true, 1.0) => format!("as in {base}"),
                (true, factor) => format!("{factor}x {base}"),
                (false, _) => format!("{at_least} to {at_most}x {base}"),
            },
            Relation::AtLeast { bound } => format!(">= {}", self.metric.show(*bound)),
            Relation::AtMost { bound } => format!("<= {}", self.metric.show(*bound)),
        }
    }
}

impl fmt::Display for Claim {
    /// Writes its prediction; a claim that names no problem is about mission with f16.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_of_speed() {
            String::new()
        } else {
            format!(": {}", self.metric)
        };
        write!(f, "{}{what} {}", self.family, self.prediction())?;
        match (&self.relation, self.place.dtype) {
            (Relation::FasterThanPeer { .. }, _) => write!(f, " on {}", self.place),
            (_, dtype) if self.place != ProblemPlace::claims(dtype) => {
                write!(f, " on {}", self.place)
            }
            (_, Dtype::F16) => Ok(()),
            (_, dtype) => write!(f, " with {dtype}"),
        }?;
        f.write_str(&self.of_gpu())
    }
}

/// A claim that is refuted: it stands in `negatives.json` beside the stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Negative {
    /// [`Claim::id`].
    pub claim: String,
    /// The GPU that it is refuted on; absent if the figures do not depend on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    pub measured: String,
    #[serde(deserialize_with = "reason")]
    pub why: String,
}

/// Reads a reason, which has words.
fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    match text.trim() {
        "" => Err(D::Error::custom(
            "`why` is empty: why is the claim not met?",
        )),
        _ => Ok(text),
    }
}

impl Session {
    /// Returns the GPU model on which the session ran.
    pub fn gpu(&self) -> Option<&str> {
        self.machine.gpu.name()
    }

    /// Returns whether it ran the whole of tier T2, to its end.
    pub fn is_whole_tier2(&self) -> bool {
        let is_at_its_end = matches!(self.progress, Progress::Complete { .. });
        self.tier == Tier::T2 && self.scope.is_all() && is_at_its_end
    }

    /// Returns why `accept` refuses it, whatever it measures.
    pub fn unacceptable(&self) -> Option<String> {
        let name = &self.name;
        match &self.git {
            Git::Commit { dirty: false, .. } => {}
            Git::Commit { sha, .. } => {
                return Some(format!(
                    "{name} was built from {sha:.12} with uncommitted changes; commit them, and \
                     run again"
                ));
            }
            Git::Unknown { reason } => {
                return Some(format!(
                    "the source of {name} is unknown ({reason}); run it in a git checkout"
                ));
            }
        }
        if !self.source_lines {
            return Some(format!(
                "{name} was made by a program without debug information, so that hazards in it \
                 name no source lines; build it unstripped (no `strip`, no \
                 CARGO_PROFILE_*_DEBUG=0) and run `compare` again"
            ));
        }
        None
    }

    /// Returns whether both are of one run: on the same card, and asked for the same.
    pub fn is_same_run(&self, other: &Self) -> bool {
        self.name == other.name
            && self.machine == other.machine
            && self.tier == other.tier
            && self.backend == other.backend
            && self.scope == other.scope
    }

    /// Returns whether variants had a part of the cases that a table's gates stand for.
    pub fn has_fewer_cases(&self) -> bool {
        self.tier < Tier::T2 || self.scope.has_problems()
    }

    /// Returns the session as tables keep it, without what is a run's alone.
    pub fn committed(&self) -> Self {
        Self {
            unmeasurable: BTreeMap::new(),
            rows: 0,
            ..self.clone()
        }
    }

    /// Returns the architecture of the machine code that its GPU runs: `sm_90a`.
    pub fn compiled_arch(&self) -> Option<&str> {
        let DeviceCompiler::Built { archs, .. } = &self.device_compiler else {
            return None;
        };
        let gpu = &self.machine.gpu;
        archs.iter().find(|arch| gpu.runs(arch)).map(String::as_str)
    }
}

/// The amount of evidence that a run was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// A few traced problems and extreme logits on each stage's default variant.
    T0,
    /// T0 on every variant, several of each variant's own key tiles, and the claims' problem: in
    /// the emulator on default variants, and of the others one like it.
    T1,
    /// T1, and all input families on `small`, extreme logits on short rows, three seeds of
    /// `mission`; on a GPU every small named and edge shape, both masks, all families, five seeds.
    T2,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{self:?}"))
    }
}

/// The progress of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Progress {
    /// It is running, or was interrupted.
    Partial {
        finished: usize,
        planned: usize,
    },
    Complete {
        cases: usize,
    },
}

/// The revision that the program was built from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Git {
    Commit {
        sha: String,
        /// Whether files differed from the commit.
        dirty: bool,
    },
    /// Not a git checkout, or git is missing.
    Unknown { reason: String },
}

/// The machine that a session ran on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// A short name for folders: `nvidia-h200`, `linux-x86-64`.
    pub name: String,
    /// Operating system and processor architecture: `linux x86_64`.
    pub platform: String,
    pub gpu: Gpu,
}

/// The GPU of a machine, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Gpu {
    Present {
        /// `NVIDIA H200`.
        name: String,
        /// The UUID of this card; empty in older sessions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        uuid: String,
        /// `sm_90`.
        arch: String,
        driver: String,
        multiprocessors: u32,
    },
    /// There is none, or none that can be used.
    Absent { reason: String },
}

impl Gpu {
    /// Returns the model.
    pub fn name(&self) -> Option<&str> {
        match self {
            Gpu::Present { name, .. } => Some(name),
            Gpu::Absent { .. } => None,
        }
    }

    /// Returns the compute capability: `sm_90`.
    pub fn arch(&self) -> Option<&str> {
        match self {
            Gpu::Present { arch, .. } => Some(arch),
            Gpu::Absent { .. } => None,
        }
    }

    /// Returns whether it runs machine code for `compiled` directly; code for `sm_90a` runs only on
    /// `sm_90`.
    pub fn runs(&self, compiled: &str) -> bool {
        matches!(self, Gpu::Present { arch, .. } if compiled.trim_end_matches(['a', 'f']) == arch)
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gpu::Present {
                name,
                arch,
                driver,
                multiprocessors,
                ..
            } => write!(f, "{name} ({arch}, {multiprocessors} SMs, driver {driver})"),
            Gpu::Absent { reason } => write!(f, "no GPU ({reason})"),
        }
    }
}

/// The selection of a command's flags; everything where nothing is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Selection {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stages: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub variants: Vec<String>,
    /// Names or extents.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shapes: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dtypes: Vec<Dtype>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub masks: Vec<Mask>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub seeds: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub families: Vec<Family>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<String>,
    /// The number of random problems.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub regret: Option<usize>,
}

impl Selection {
    /// Returns whether nothing was left out.
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Returns whether problems or inputs were given, in place of a tier's.
    pub fn has_problems(&self) -> bool {
        let Self {
            stages: _,
            variants: _,
            shapes,
            dtypes,
            masks,
            seeds,
            families,
            input,
            regret,
        } = self;
        !(shapes.is_empty()
            && dtypes.is_empty()
            && masks.is_empty()
            && seeds.is_empty()
            && families.is_empty()
            && input.is_none()
            && regret.is_none())
    }
}

impl fmt::Display for Selection {
    /// Writes it as the flags of a command: `--stages 5,6 --shapes mission`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn words(values: &[impl ToString]) -> String {
            let words: Vec<String> = values.iter().map(ToString::to_string).collect();
            words.join(",")
        }
        let flags = [
            ("--stages", words(&self.stages)),
            ("--variants", words(&self.variants)),
            ("--shapes", words(&self.shapes)),
            ("--dtypes", words(&self.dtypes)),
            ("--masks", words(&self.masks)),
            ("--seeds", words(&self.seeds)),
            ("--families", words(&self.families)),
            ("--input", self.input.clone().unwrap_or_default()),
            ("--random-problems", words(self.regret.as_slice())),
        ];
        let mut arguments = Vec::new();
        for (flag, values) in flags {
            if !values.is_empty() {
                arguments.push(format!("{flag} {values}"));
            }
        }
        f.write_str(&arguments.join(" "))
    }
}

/// The compiler of the GPU code, or the reason why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum DeviceCompiler {
    Built {
        /// `13.0.88`.
        nvcc: String,
        /// Its flags, without paths.
        flags: Vec<String>,
        archs: Vec<String>,
    },
    Absent {
        reason: String,
    },
}
