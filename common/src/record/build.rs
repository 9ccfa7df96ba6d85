//! `build_meta.json`: what was built, where, and what the run set out to do.

use super::PeerClaimTerms;
use crate::device::BackendKind;
use crate::evidence::{Quantity, Relation};
use crate::limits::DeviceLimits;
use crate::problem::Dtype;
use crate::resources::{KernelFacts, Occupancy, PtxasEntry};
use crate::verdict::{GateId, GateResult};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How much a run checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// A few traced problems and extreme logits on each stage's default variant.
    T0,
    /// T0 on every variant, all input families on `small`, extreme logits on short rows, `mission` with each dtype (on
    /// defaults three seeds of f16), five tiles of each variant's own keys.
    T1,
    /// Every named and edge shape, both masks, all families, five seeds.
    T2,
}

impl fmt::Display for Tier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Tier::T0 => "T0",
            Tier::T1 => "T1",
            Tier::T2 => "T2",
        })
    }
}

/// What was built, where, and what the run set out to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuildMeta {
    /// [`SCHEMA`](super::SCHEMA).
    pub schema: u32,
    /// When the run started, UTC: `2026-11-20T18:30:00Z`.
    pub started: String,
    /// Whether the run came to its end.
    pub progress: Progress,
    /// The version of `compare`.
    pub tool_version: String,
    /// The command line; a path is reduced to its last part.
    pub command: Vec<String>,
    /// The source that was built.
    pub git: Git,
    /// The machine.
    pub machine: Machine,
    /// How much was checked.
    pub tier: Tier,
    /// Where the kernels ran.
    pub backend: BackendKind,
    /// Whether flags narrowed the tier.
    pub scope: Scope,
    /// The smaller device that the run was limited to, if it was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<DeviceLimits>,
    /// Environment variables that change the build, where set.
    pub toggles: BTreeMap<String, String>,
    /// Whether the program could tell source lines; false where it was stripped. Older records do not say.
    #[serde(default = "unknown_is_fine")]
    pub source_lines: bool,
    /// For each gate, whether this machine, backend and tier can measure it.
    pub gates: Vec<GateScope>,
    /// Every stage, whether or not the run selected it.
    pub stages: Vec<StageBuild>,
}

fn unknown_is_fine() -> bool {
    true
}

/// How far a run came.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Progress {
    /// It is running, or was interrupted.
    Partial {
        /// Cases finished.
        finished: usize,
        /// Cases planned.
        planned: usize,
    },
    /// It came to its end.
    Complete {
        /// Cases run.
        cases: usize,
        /// How long it took.
        seconds: u64,
    },
}

/// Which source was built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Git {
    /// A checkout.
    Commit {
        /// The commit.
        sha: String,
        /// Whether files differed from it.
        dirty: bool,
    },
    /// No checkout, or no git.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// Where a run took place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// A short name for folders: `nvidia-h200`, `x86-64-linux`.
    pub name: String,
    /// Operating system and processor architecture: `linux x86_64`.
    pub platform: String,
    /// Processors available to the run.
    pub processors: usize,
    /// The GPU.
    pub gpu: Gpu,
}

/// The GPU of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Gpu {
    /// One was opened.
    Present {
        /// `NVIDIA H200`.
        name: String,
        /// The architecture: `sm_90`.
        arch: String,
        /// The driver's version.
        driver: String,
        /// Multiprocessors.
        multiprocessors: u32,
        /// Shared memory that a block may opt in to.
        shared_opt_in_bytes: usize,
    },
    /// None, or none that can be used.
    Absent {
        /// Why.
        reason: String,
    },
}

impl Gpu {
    /// Its name, where there is one.
    pub fn name(&self) -> Option<&str> {
        match self {
            Gpu::Present { name, .. } => Some(name),
            Gpu::Absent { .. } => None,
        }
    }

    /// Whether it runs machine code for `compiled` as it is: `sm_90a` is code for `sm_90` alone.
    pub fn runs(&self, compiled: &str) -> bool {
        matches!(self, Gpu::Present { arch, .. } if compiled.trim_end_matches(['a', 'f']) == arch)
    }
}

/// Whether flags narrowed the tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Scope {
    /// The whole tier.
    Whole,
    /// Only what the flags selected.
    Selected {
        /// The flags: `--stages stage0-scalar`.
        flags: Vec<String>,
    },
}

/// Whether a gate can be measured here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateScope {
    /// The gate.
    pub gate: GateId,
    /// Whether it can.
    #[serde(flatten)]
    pub measurable: Measurable,
}

/// Whether something can be measured by this machine, backend and tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Measurable {
    /// Yes: a row without it is missing data.
    Yes,
    /// No: a row without it is complete.
    No {
        /// Why, and what it would take.
        reason: String,
    },
}

/// A stage as built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageBuild {
    /// `stage0-scalar`.
    pub id: String,
    /// Its one idea.
    pub idea: String,
    /// The stage it is a diff of.
    pub predecessor: Option<String>,
    /// The variant that quick runs use.
    pub default_variant: String,
    /// What it promises.
    pub claims: Vec<ClaimTerms>,
    /// What it promises against peers. Records of before it did have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub peer_claims: Vec<PeerClaimTerms>,
    /// The figures that show why, one entry per quantity. Records of before they were stated have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub evidence: Vec<EvidenceTerms>,
    /// Hash of kernel.cu, headers and flags. Numbers of another identity are STALE.
    pub identity: String,
    /// The host C++ compiler of the emulated build.
    pub host_compiler: String,
    /// The GPU compiler.
    pub device_compiler: DeviceCompiler,
    /// Gate R1 over all variants: no two compile to the same code.
    pub distinct: GateResult,
    /// Its variants, in the order of kernel.cu, without what the device refuses.
    pub variants: Vec<VariantBuild>,
    /// What the device refuses, one entry per variant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<Refusal>,
}

/// A variant of which the device cannot run some instance. That is no failure.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Refusal {
    /// The variant.
    pub variant: String,
    /// Which instances, and what they need.
    pub reason: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.variant, self.reason)
    }
}

impl StageBuild {
    /// Finds a variant.
    pub fn variant(&self, name: &str) -> Option<&VariantBuild> {
        self.variants.iter().find(|variant| variant.name == name)
    }

    /// The variants of a family, in the order of kernel.cu.
    pub fn family<'a>(&'a self, family: &'a str) -> impl Iterator<Item = &'a VariantBuild> {
        self.variants.iter().filter(move |variant| variant.family == family)
    }

    /// The family's variant of this preset: it differs from others of the preset in its idea alone. The device can run it
    /// on the claims' problem.
    pub fn twin<'a>(&'a self, family: &'a str, preset: &str) -> Option<&'a VariantBuild> {
        self.claimants(family).find(|variant| variant.preset() == preset)
    }

    /// The variant that speaks for a family: the stage's default, else the first that the device can run on the claims'
    /// problem.
    pub fn default_of<'a>(&'a self, family: &'a str) -> Option<&'a VariantBuild> {
        self.family(family).find(|variant| variant.name == self.default_variant).or(self.claimants(family).next())
    }

    fn claimants<'a>(&'a self, family: &'a str) -> impl Iterator<Item = &'a VariantBuild> {
        self.family(family).filter(|variant| variant.claims_kernel(Dtype::F16).is_some())
    }
}

/// A promised speedup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimTerms {
    /// The family of variants that must be faster.
    pub family: String,
    /// The stage of the base.
    pub base_stage: String,
    /// The family of the base.
    pub base_family: String,
    /// The ratio base / candidate promised on p50, p90 and mean.
    pub at_least: f64,
    /// With which element type.
    #[serde(default)]
    pub dtype: Dtype,
}

impl fmt::Display for ClaimTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ClaimTerms { family, base_stage, base_family, at_least, dtype } = self;
        write!(f, "{family} >= {at_least:.2}x over {base_stage} {base_family}{}", with(*dtype))
    }
}

/// Claims are about f16 unless they say otherwise, as they did when there were no others.
fn with(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F16 => "",
        Dtype::E4m3 => " with e4m3",
    }
}

/// What is predicted of one quantity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceTerms {
    /// The family of variants, each of which is judged.
    pub family: String,
    /// What is looked at.
    pub quantity: Quantity,
    /// What is predicted of it.
    #[serde(flatten)]
    pub relation: Relation<BaseTerms>,
    /// With which element type.
    #[serde(default)]
    pub dtype: Dtype,
    /// Why it must be so.
    pub why: String,
}

/// The other side of a ratio.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaseTerms {
    /// The stage of the base.
    pub stage: String,
    /// The family of its variants.
    pub family: String,
}

impl EvidenceTerms {
    /// What is predicted, without what of: `0.5 to 0.8x stage0-scalar scalar`.
    pub fn prediction(&self) -> String {
        match &self.relation {
            Relation::Ratio { base: BaseTerms { stage, family }, at_least, at_most } => {
                match (at_least == at_most, *at_least) {
                    (true, 1.0) => format!("as in {stage} {family}"),
                    (true, factor) => format!("{factor}x {stage} {family}"),
                    (false, _) => format!("{at_least} to {at_most}x {stage} {family}"),
                }
            }
            Relation::AtLeast { bound } => format!(">= {}", self.quantity.show(*bound)),
            Relation::AtMost { bound } => format!("<= {}", self.quantity.show(*bound)),
        }
    }
}

impl fmt::Display for EvidenceTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} {}{}", self.family, self.quantity, self.prediction(), with(self.dtype))
    }
}

/// The GPU compiler of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum DeviceCompiler {
    /// It built the GPU code.
    Built {
        /// `13.0.88`.
        nvcc: String,
        /// Its flags, without paths.
        flags: Vec<String>,
        /// The architectures.
        archs: Vec<String>,
    },
    /// There was none.
    Absent {
        /// Why, and what to do.
        reason: String,
    },
}

/// A variant as built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantBuild {
    /// `wmma-qk-32x64`.
    pub name: String,
    /// `wmma-qk`.
    pub family: String,
    /// One instance per dtype and head size.
    pub kernels: Vec<KernelBuild>,
}

impl VariantBuild {
    /// What follows the family in its name: `32x64-k2`.
    pub fn preset(&self) -> &str {
        self.name.strip_prefix(&self.family).unwrap_or_default().trim_start_matches('-')
    }

    /// The instance of the claims' problem: of head_dim 64.
    pub fn claims_kernel(&self, dtype: Dtype) -> Option<&KernelBuild> {
        self.kernels.iter().find(|kernel| (kernel.facts.dtype, kernel.facts.head_dim) == (dtype, 64))
    }
}

/// An instance of a variant as built.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KernelBuild {
    /// What kernel.cu declares.
    #[serde(flatten)]
    pub facts: KernelFacts,
    /// What the compiler reported, and gate R1, per architecture; empty without nvcc.
    pub built: Vec<BuiltKernel>,
}

/// An instance as compiled for one architecture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BuiltKernel {
    /// What the compiler reported.
    #[serde(flatten)]
    pub ptxas: PtxasEntry,
    /// Theoretical occupancy; absent for an architecture whose limits are not known.
    pub occupancy: Option<Occupancy>,
    /// Gate R1.
    pub result: GateResult,
}
