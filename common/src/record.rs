//! What a run leaves behind: a few files in one folder, versioned, each value present only where it was measured.
//!
//! A status tag decides which fields exist, so that 0 never stands for "not measured". [`store`] reads and writes the
//! folder; the types here say what is in it.

mod build;
mod cases;
mod peers;
mod profile;
mod sanitizer;
pub mod store;

pub use build::{
    BaseTerms, BuildMeta, BuiltKernel, ClaimTerms, DeviceCompiler, EvidenceTerms, GateScope, Git, Gpu, KernelBuild,
    Machine, Measurable, Progress, Refusal, Scope, StageBuild, Tier, VariantBuild,
};
pub use peers::{
    Ceilings, OurArm, Over, PeerArm, PeerClaimResult, PeerClaimTerms, PeerFigures, PeerOutcome, PeerProblem, Peers,
};
pub use profile::{Profile, Profiled};
pub use sanitizer::{Sanitizer, SanitizerCheck};

use crate::check::CaseResult;
use crate::evidence::Counting;
use crate::faults::Caught;
use crate::problem::{Dtype, Mask, Shape};
use crate::suppression::Synchronisation;
use crate::timing::{Comparison, Measurement};
use crate::verdict::{GateId, GateResult};
use serde::{Deserialize, Deserializer, Serialize};

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
    /// `profile.json`: what ncu read; absent where it was not run.
    pub profile: Option<Profile>,
    /// `sanitizer.json`: what compute-sanitizer found; absent where it was not run.
    pub sanitizer: Option<Sanitizer>,
    /// `peers.json`; absent until `compare peers` has completed the record.
    pub peers: Option<Peers>,
}

/// All cases, and the gate on the gates. Errors are written with five digits, and gates that passed without a reason
/// (`cases`).
#[derive(Clone, Debug, PartialEq)]
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
    /// Whether they miss each synchronisation site that is left out; on the emulator, whatever the run was on.
    pub synchronisation: Synchronisation,
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
    /// Stages of which not every variant was timed on every problem, or of which that would have been enough.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<TimingScope>,
}

/// What was not timed of a stage. An arm is a variant on a problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimingScope {
    /// The stage.
    pub stage: String,
    /// Arms that were left out.
    pub left_out: usize,
    /// Arms that there are.
    pub of: usize,
    /// Why, in words.
    pub why: String,
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

/// Evidence for the stated reasons (E1), the counters that it is drawn from, and the sanitizer's findings (C7).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Rows of evidence.
    pub rows: Vec<EvidenceRow>,
    /// Evidence that there is not, and why.
    pub absent: Vec<GateResult>,
    /// What the emulator counts of the claims' problems, whatever the backend of the run. Records of before it was
    /// counted have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<VariantCounters>,
    /// The evidence claims that were judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub claims: Vec<EvidenceResult>,
}

/// What a variant counts on the claims' problems.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VariantCounters {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// The stage's identity when it was counted.
    pub identity: String,
    /// What came of it with f16.
    #[serde(flatten)]
    pub counting: Counting,
    /// What came of it with e4m3; absent where that was not in the run, or another variant speaks for this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub e4m3: Option<Counting>,
}

impl VariantCounters {
    /// What came of it with `dtype`.
    pub fn with(&self, dtype: Dtype) -> Option<&Counting> {
        match dtype {
            Dtype::F16 => Some(&self.counting),
            Dtype::E4m3 => self.e4m3.as_ref(),
        }
    }

    /// The first hazard that was met while it was counted.
    pub fn hazard(&self) -> Option<&str> {
        Dtype::ALL.into_iter().find_map(|dtype| match self.with(dtype)? {
            Counting::Hazardous { reason } => Some(reason.as_str()),
            _ => None,
        })
    }
}

/// An evidence claim as judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvidenceResult {
    /// The stage that claims.
    pub stage: String,
    /// The claim.
    #[serde(flatten)]
    pub terms: EvidenceTerms,
    /// The identity of the claiming stage.
    pub identity: String,
    /// Gate E1, with the figures in its reason.
    pub result: GateResult,
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
    /// The family of variants.
    pub family: String,
    /// The claim in words. Records of before it was written have none, and refute all claims of the family.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// The stage's identity. The record covers no other.
    pub identity: String,
    /// What was measured.
    pub evidence: String,
}

/// JSON has no NaN: serde_json writes null, this reads it back.
fn null_is_nan<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::<f64>::deserialize(deserializer)?.unwrap_or(f64::NAN))
}
