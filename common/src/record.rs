//! What a run leaves behind: four files in one folder, versioned, each value present only where it was measured.
//!
//! A status tag decides which fields exist, so that 0 never stands for "not measured". [`store`] reads and writes the
//! folder; the types here say what is in it.

pub mod store;

use crate::check::CaseResult;
use crate::device::BackendKind;
use crate::faults::Caught;
use crate::problem::{Dtype, Mask, Shape};
use crate::resources::{KernelFacts, Occupancy, PtxasEntry};
use crate::timing::{Comparison, Measurement};
use crate::verdict::{GateId, GateResult};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The version of every record file. A reader refuses any other.
pub const SCHEMA: u32 = 1;

/// All that one run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// `build_meta.json`.
    pub meta: BuildMeta,
    /// `correctness_summary.json`.
    pub correctness: Correctness,
    /// `perf_baseline.json`; absent where nothing was timed.
    pub performance: Option<Performance>,
    /// `evidence.json`.
    pub evidence: Evidence,
    /// `negative.json`: claims that the record was committed to refute. Only in committed records.
    pub negative: Option<Negative>,
}

/// How much a run checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Tier {
    /// A few traced problems on each stage's default variant.
    T0,
    /// T0 on every variant, all input families on `small`, three seeds on `mission`.
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
    /// [`SCHEMA`].
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
    /// Environment variables that change the build, where set.
    pub toggles: BTreeMap<String, String>,
    /// For each gate, whether this machine, backend and tier can measure it.
    pub gates: Vec<GateScope>,
    /// Every stage, whether or not the run selected it.
    pub stages: Vec<StageBuild>,
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
    /// Hash of kernel.cu, headers and flags. Numbers of another identity are STALE.
    pub identity: String,
    /// The host C++ compiler of the emulated build.
    pub host_compiler: String,
    /// The GPU compiler.
    pub device_compiler: DeviceCompiler,
    /// Gate R1 over all variants: no two compile to the same code.
    pub distinct: GateResult,
    /// Its variants, in the order of kernel.cu.
    pub variants: Vec<VariantBuild>,
}

impl StageBuild {
    /// Finds a variant.
    pub fn variant(&self, name: &str) -> Option<&VariantBuild> {
        self.variants.iter().find(|variant| variant.name == name)
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

/// All cases, and the gate on the gates.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Correctness {
    /// [`SCHEMA`].
    pub schema: u32,
    /// What the cases say about each variant.
    pub variants: Vec<VariantSummary>,
    /// Every case in the order in which it ran.
    pub cases: Vec<CaseResult>,
    /// Passing cases that were left out to keep a committed record small; the summaries count them.
    pub omitted_cases: usize,
    /// Whether the gates catch planted faults.
    pub planted: Planted,
}

/// What the cases say about one variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantSummary {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The stage's identity when the cases ran.
    pub identity: String,
    /// Cases that ran.
    pub checked: usize,
    /// Cases that the variant does not take.
    pub unsupported: usize,
    /// Launches that failed.
    pub failed: usize,
    /// One line per gate that said anything.
    pub gates: Vec<GateSummary>,
    /// The largest error, and where; absent where nothing ran.
    pub worst: Option<WorstError>,
}

/// One gate over all cases of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GateSummary {
    /// The verdict over all: any FAIL, else any AMBIGUOUS, else any PASS, else NO DATA.
    #[serde(flatten)]
    pub result: GateResult,
    /// Cases that passed.
    pub passed: usize,
    /// Cases that the gate judged or should have judged.
    pub of: usize,
}

/// The largest error of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorstError {
    /// Largest absolute error against the FP64 reference on the inputs that the kernel sees.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_abs: f64,
    /// Largest error of a row relative to that row's size.
    #[serde(deserialize_with = "null_is_nan")]
    pub max_row: f64,
    /// The case: `mission f16 full normal:0`.
    pub at: String,
}

/// Whether the gates catch planted faults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Planted {
    /// They were tried.
    Tried {
        /// The correct model first, then each fault.
        subjects: Vec<Caught>,
    },
    /// They were not.
    NotTried {
        /// Why.
        reason: String,
    },
}

/// All that was timed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Performance {
    /// [`SCHEMA`].
    pub schema: u32,
    /// How it was timed, in words.
    pub method: String,
    /// One entry per variant, problem and figure.
    pub timings: Vec<Timing>,
    /// The claims that were judged.
    pub claims: Vec<ClaimResult>,
}

/// One timed arm.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The stage's identity when it was timed.
    pub identity: String,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Device time and single launch, with their samples, the cache, the warm-up, clocks and temperatures.
    pub measurement: Measurement,
    /// Whether the samples are all there.
    pub samples: Samples,
    /// The correctness gates on the buffers that were timed, after timing.
    pub after: Vec<GateResult>,
}

/// Whether the raw samples of a measurement are in the record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Samples {
    /// All of them, in order.
    Raw,
    /// Left out to keep a committed record small; the summaries are of all of them.
    Omitted,
}

/// A claim as judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// The stage that claims.
    pub stage: String,
    /// The claim.
    #[serde(flatten)]
    pub terms: ClaimTerms,
    /// The best green variant of the family.
    pub variant: String,
    /// The best green variant of the base.
    pub base_variant: String,
    /// The identity of the claiming stage.
    pub identity: String,
    /// Both arms, alternated in one process.
    pub comparison: Comparison,
    /// The ratio between the variants of both families that share a preset, where there are such.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_preset: Option<SamePreset>,
    /// Gate L1.
    pub result: GateResult,
}

/// Two variants that differ in the stage's idea alone.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SamePreset {
    /// The preset: `32x64`.
    pub preset: String,
    /// Both arms.
    pub comparison: Comparison,
}

/// Evidence for the stated reasons (E1), and the sanitizer's findings (C7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Rows of evidence.
    pub rows: Vec<EvidenceRow>,
    /// Evidence that there is not, and why.
    pub absent: Vec<GateResult>,
}

/// One piece of evidence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceRow {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The instrument: `emulator counters`, `ncu 2025.3`, `compute-sanitizer`.
    pub source: String,
    /// What was looked at: `shared-memory bank conflicts`.
    pub what: String,
    /// What was read.
    pub value: String,
    /// What it means.
    pub result: GateResult,
}

/// Why a committed record refutes claims.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Negative {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Why the claim is not met, in words.
    pub reason: String,
    /// The GPU it was refuted on; absent for evidence from the emulator.
    pub gpu: Option<String>,
    /// The claims.
    pub claims: Vec<RefutedClaim>,
}

/// A claim that a record refutes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RefutedClaim {
    /// The gate: L1 or E1.
    pub gate: GateId,
    /// The stage.
    pub stage: String,
    /// The family of variants (L1) or the variant (E1).
    pub family: String,
    /// The stage's identity. The record covers no other.
    pub identity: String,
    /// What was measured.
    pub evidence: String,
}

/// JSON has no NaN: serde_json writes null, this reads it back.
fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
