//! The comparison core: records in, [`Report`] out. Pure functions; nothing here reads a clock, a file or a device.
//!
//! Words: a *run* is the record of this invocation. A *committed* record is one in `results/`. A number is *STALE* when
//! the kernel that it was measured on has another identity than the one built now, or another machine measured this
//! time; it is shown with its origin and never enters a ratio with a number of another record.

mod changes;
mod claims;
mod counters;
pub mod diff;
mod distinction;
mod evidence;
mod figures;
pub mod history;
mod latency;
mod missing;
pub mod peers;
pub mod representative;
mod summary;
mod verdict;

pub use changes::{Change, Direction};
pub use claims::{ClaimRow, ClaimState, Judgement, Standing, failed_claims};
pub use counters::{CounterRow, Delta, differing};
pub use evidence::{
    Measured, NCU_TOLERANCE, judge as judge_evidence, named as named_by_evidence, pairs as evidence_pairs,
};
pub use figures::{FIGURES, Figure, metrics as ncu_metrics};
pub use latency::{ByShape, Figures, Latency, Origin, Speedup, headline, is_mission, withheld};
pub use missing::Missing;
pub use peers::Against;
pub use summary::{describe, is_green, summarise};
pub use verdict::{Exit, Overall, caught, subject_name};

use common::device::BackendKind;
use common::record::{
    BuildMeta, ClaimResult, DeviceCompiler, Evidence, EvidenceResult, GateSummary, KernelBuild, Measurable,
    PeerClaimResult, Planted, Profile, Record, Sanitizer, SanitizerCheck, Scope, StageBuild, Tier, TimingScope,
    VariantBuild, VariantSummary, WorstError,
};
use common::resources::Occupancy;
use common::suppression::Synchronisation;
use common::verdict::{GateId, GateResult, Verdict};
use serde::Serialize;

/// A committed record: the name of its folder, and what is in it.
pub type Committed = (String, Record);

/// All that a report says, ready to be laid out.
#[derive(Clone, Debug)]
pub struct Report {
    /// What to think and to do.
    pub overall: Overall,
    /// What the report is of.
    pub subject: Option<Subject>,
    /// What differs from the committed records, regressions first.
    pub changes: Vec<Change>,
    /// Data that there should be, or that this machine cannot have.
    pub missing: Vec<Missing>,
    /// Gates that failed, each with its reason.
    pub failures: Vec<Failure>,
    /// One row per variant, in the order of the ladder.
    pub rows: Vec<Row>,
    /// One row per claim of speed.
    pub claims: Vec<ClaimRow<ClaimResult>>,
    /// One row per claim against peers.
    pub peer_claims: Vec<ClaimRow<PeerClaimResult>>,
    /// One row per claim of evidence.
    pub evidence_claims: Vec<ClaimRow<EvidenceResult>>,
    /// What the variants count.
    pub counters: Vec<CounterRow>,
    /// How that differs from what they are compared with.
    pub deltas: Vec<Delta>,
    /// What ncu read of the subject's variants, where it was run.
    pub profile: Option<Profile>,
    /// What compute-sanitizer found, where it was run.
    pub sanitizer: Option<Sanitizer>,
    /// Evidence for the stated reasons.
    pub evidence: Option<Evidence>,
    /// Device time by shape, where there is any.
    pub by_shape: Vec<ByShape>,
    /// The matrix peak of the GPU that timed it, in FLOP/s, and who says so.
    pub matrix_peak: Option<(f64, String)>,
    /// What was not timed for it.
    pub timing_scopes: Vec<TimingScope>,
    /// The ladder beside its peers, where they were measured.
    pub peers: Option<Against>,
    /// The gates on the gates.
    pub planted: Planted,
    /// Whether they miss each synchronisation site that is left out.
    pub synchronisation: Synchronisation,
    /// The ladder as it is built now.
    pub stages: Vec<StageBuild>,
}

impl Report {
    /// What the device refuses: `stage3-wmma-pv/wmma-pv-32x128-k2: f16 d64 needs 105472 bytes of shared memory; …`.
    pub fn refused(&self) -> impl Iterator<Item = String> {
        self.stages.iter().flat_map(|stage| stage.refused.iter().map(|refusal| format!("{}/{refusal}", stage.id)))
    }
}

/// The record that a report is of.
#[derive(Clone, Debug, PartialEq)]
pub struct Subject {
    /// Whether it is this run's, or the committed one that stands in for a run.
    pub is_run: bool,
    /// The folder's name.
    pub name: String,
    /// What was built, where and for what.
    pub meta: BuildMeta,
    /// Cases that ran.
    pub cases: usize,
}

/// One variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The stage.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// Whether it speaks for its stage: the fastest, or the default where nothing was timed.
    pub is_headline: bool,
    /// What the gates say; absent where no case of the variant was run.
    pub gates: Vec<GateSummary>,
    /// The verdict over C, H and R gates.
    pub state: RowState,
    /// Cases that ran.
    pub checked: usize,
    /// Its largest error.
    pub worst: Option<WorstError>,
    /// What it takes.
    pub resources: Resources,
    /// How long it takes.
    pub latency: Latency,
}

/// The verdict on a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", content = "detail", rename_all = "snake_case")]
pub enum RowState {
    /// No gate fails, and all that can be measured is.
    Green,
    /// These gates fail.
    Failed(Vec<GateId>),
    /// The evidence does not decide.
    Ambiguous(Vec<GateId>),
    /// Data is missing for these gates that this run should have.
    NoData(Vec<GateId>),
    /// The run did not include it.
    NotRun {
        /// Why: the tier or the flags.
        reason: String,
    },
    /// Measured on another version of the kernel.
    Stale {
        /// What has changed.
        reason: String,
    },
}

/// What the instance for f16 and head_dim 64 takes; the first one where there is no such instance.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Resources {
    /// Query rows and keys per tile.
    pub tile: [usize; 2],
    /// Threads per block.
    pub threads: u32,
    /// Dynamic shared memory.
    pub shared_bytes: usize,
    /// Per architecture built: name, registers, occupancy. Empty without nvcc.
    pub built: Vec<(String, u32, Option<Occupancy>)>,
}

/// A gate that failed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    /// `stage0-scalar/wmma-qk-32x64`.
    pub place: String,
    /// The gate, and why.
    pub result: GateResult,
}

/// Compares the ladder as built now with this run, if there is one, and with the committed records, oldest first.
pub fn report(stages: &[StageBuild], run: Option<(&str, &Record)>, committed: &[Committed]) -> Report {
    // Without a run, the newest committed record that timed something stands in, else the newest.
    let stand_in = || {
        let timed = committed.iter().rev().find(|(_, record)| record.performance.is_some());
        timed.or(committed.last()).map(|(name, record)| (name.as_str(), record))
    };
    let subject = run.or_else(stand_in);
    let stages = &as_recorded(stages, subject.map(|(_, record)| record))[..];
    // What is limited to a smaller device is not compared with devices that were there; refuted claims stay refuted.
    let is_limited = subject.is_some_and(|(_, record)| record.meta.device.is_some());
    let shown = if is_limited { &[] } else { committed };
    let rows: Vec<Row> = stages
        .iter()
        .flat_map(|stage| stage.variants.iter().map(move |variant| row(stage, variant, subject, run.is_some(), shown)))
        .collect();
    let claims = claims::rows::<ClaimResult>(stages, subject, run.is_some(), committed);
    let peer_claims = claims::rows::<PeerClaimResult>(stages, subject, run.is_some(), committed);
    let evidence_claims = claims::rows::<EvidenceResult>(stages, subject, run.is_some(), committed);
    let of_speed = claims.iter().map(ClaimRow::standing).chain(peer_claims.iter().map(ClaimRow::standing));
    let standings: Vec<_> = of_speed.chain(evidence_claims.iter().map(ClaimRow::standing)).collect();
    let counters = subject.map(|(_, record)| counters::rows(stages, record)).unwrap_or_default();
    let failures = failures(subject);
    let missing = missing::missing(stages, &rows, &claims, &evidence_claims, subject);
    let changes = subject.map(|subject| changes::against(subject, shown)).unwrap_or_default();
    let planted = match subject {
        Some((_, record)) => record.correctness.planted.clone(),
        None => Planted::NotTried { reason: "no run and no committed record".into() },
    };
    let synchronisation = match subject {
        Some((_, record)) => record.correctness.synchronisation.clone(),
        None => Synchronisation::NotTried { reason: "no run and no committed record".into() },
    };
    let (by_shape, timing_scopes, matrix_peak) = latency::by_shape(stages, subject, run.is_some(), shown);
    let overall = verdict::overall(&verdict::Facts {
        subject: subject.map(|(_, record)| record),
        is_run: run.is_some(),
        rows: &rows,
        claims: &standings,
        failures: &failures,
        missing: &missing,
        changes: &changes,
        planted: &planted,
        synchronisation: &synchronisation,
    });
    Report {
        overall,
        subject: subject.map(|(name, record)| Subject {
            is_run: run.is_some(),
            name: name.to_string(),
            meta: record.meta.clone(),
            cases: record.correctness.cases.len() + record.correctness.omitted_cases,
        }),
        changes,
        missing,
        failures,
        rows,
        claims,
        peers: peers::against(stages, subject, run.is_some(), shown),
        peer_claims,
        evidence_claims,
        deltas: counters::deltas(stages, &counters),
        counters,
        profile: subject.and_then(|(_, record)| record.profile.clone()),
        sanitizer: subject.and_then(|(_, record)| record.sanitizer.clone()),
        evidence: subject.map(|(_, record)| record.evidence.clone()),
        by_shape,
        matrix_peak,
        timing_scopes,
        planted,
        synchronisation,
        stages: stages.to_vec(),
    }
}

/// The ladder as it stands now, with what the subject's compilers said of it. A run's record holds the stages of this
/// very build; a report from committed records must not depend on the compilers of the machine that renders it.
fn as_recorded(stages: &[StageBuild], record: Option<&Record>) -> Vec<StageBuild> {
    let recorded = |stage: &StageBuild| {
        let stages = record.into_iter().flat_map(|record| &record.meta.stages);
        stages.clone().find(|other| (&other.id, &other.identity) == (&stage.id, &stage.identity)).cloned()
    };
    let unbuilt = |stage: &StageBuild| {
        let mut stage = stage.clone();
        stage.device_compiler = DeviceCompiler::Absent { reason: "no record of this version of the kernel".into() };
        stage.distinct = GateResult::no_data(GateId::R1, "no record of this version of the kernel");
        stage.host_compiler = "unknown".into();
        stage.variants.iter_mut().flat_map(|variant| &mut variant.kernels).for_each(|kernel| kernel.built.clear());
        stage
    };
    stages
        .iter()
        .map(|stage| {
            let known = recorded(stage).unwrap_or_else(|| unbuilt(stage));
            // Words and promises are not part of the identity, and the default is, where a device cannot run all.
            let StageBuild { idea, predecessor, default_variant, claims, peer_claims, evidence, .. } = stage.clone();
            let default_variant =
                if known.refused.is_empty() { default_variant } else { known.default_variant.clone() };
            StageBuild { idea, predecessor, default_variant, claims, peer_claims, evidence, ..known }
        })
        .collect()
}

fn row(
    stage: &StageBuild,
    variant: &VariantBuild,
    subject: Option<(&str, &Record)>,
    is_run: bool,
    committed: &[Committed],
) -> Row {
    let summary = subject.and_then(|(_, record)| summary_of(record, &stage.id, &variant.name));
    let resource_gate = resource_gate(stage, variant);
    let mut gates = summary.map(|summary| summary.gates.clone()).unwrap_or_default();
    if summary.is_some() {
        gates.extend(subject.and_then(|(_, record)| sanitizer_gate(stage, &variant.name, record)));
        gates.extend(resource_gate);
    }
    Row {
        stage: stage.id.clone(),
        variant: variant.name.clone(),
        is_headline: variant.name == latency::headline(stage, subject, is_run, committed),
        state: state(stage, summary, &gates, subject.map(|(_, record)| record), is_run),
        checked: summary.map_or(0, |summary| summary.checked),
        worst: summary.and_then(|summary| summary.worst.clone()),
        resources: resources(variant),
        latency: latency::of_variant(stage, &variant.name, subject, is_run, committed),
        gates,
    }
}

/// What a record says of a variant.
pub fn summary_of<'a>(record: &'a Record, stage: &str, variant: &str) -> Option<&'a VariantSummary> {
    record
        .correctness
        .variants
        .iter()
        .find(|summary| (summary.stage.as_str(), summary.variant.as_str()) == (stage, variant))
}

/// Gate R1 over the instances of a variant; `None` where nothing was compiled for a GPU.
fn resource_gate(stage: &StageBuild, variant: &VariantBuild) -> Option<GateSummary> {
    let results: Vec<&GateResult> =
        variant.kernels.iter().flat_map(|kernel| &kernel.built).map(|built| &built.result).collect();
    let failed: Vec<String> = results.iter().filter(|r| r.verdict == Verdict::Fail).map(|r| r.reason.clone()).collect();
    let shares_code = stage.distinct.verdict == Verdict::Fail && stage.distinct.reason.contains(&variant.name);
    let passed = results.len() - failed.len();
    let mut reasons = failed;
    reasons.extend(shares_code.then(|| stage.distinct.reason.clone()));
    let result = GateResult::judge(
        GateId::R1,
        reasons.is_empty(),
        if reasons.is_empty() { "within the caps".to_string() } else { reasons.join("; ") },
    );
    (!results.is_empty()).then_some(GateSummary { result, passed, of: results.len() })
}

/// What compute-sanitizer says of a variant of this version of the kernel.
fn sanitized<'a>(record: &'a Record, stage: &StageBuild, variant: &str) -> Vec<&'a SanitizerCheck> {
    let checks = record.sanitizer.iter().flat_map(|sanitizer| &sanitizer.checks);
    let is_of = |check: &&SanitizerCheck| {
        (check.stage.as_str(), check.variant.as_str(), &check.identity) == (&stage.id, variant, &stage.identity)
    };
    checks.filter(is_of).collect()
}

/// Whether gate C7 is part of the record: of a whole run on a GPU, which `compare sanitize` completes.
fn needs_sanitizer(meta: &BuildMeta) -> bool {
    (meta.tier, meta.backend, &meta.scope) == (Tier::T2, BackendKind::Cuda, &Scope::Whole)
}

/// The variants that ran and whose C7 the record needs and does not have. What a device refuses has not run.
pub fn unsanitized(record: &Record) -> Vec<String> {
    let places = record.meta.stages.iter().flat_map(|stage| stage.variants.iter().map(move |variant| (stage, variant)));
    let lacking =
        places.filter(|(stage, variant)| sanitizer_gate(stage, &variant.name, record).is_some_and(|gate| gate.of == 0));
    lacking.map(|(stage, variant)| format!("{}/{}", stage.id, variant.name)).collect()
}

/// Gate C7 over the tools; `None` where none was run on the variant, and none has to be.
fn sanitizer_gate(stage: &StageBuild, variant: &str, record: &Record) -> Option<GateSummary> {
    let checks = sanitized(record, stage, variant);
    if checks.is_empty() {
        let has_run = |summary: &VariantSummary| summary.checked > 0 && summary.identity == stage.identity;
        let is_due = needs_sanitizer(&record.meta) && summary_of(record, &stage.id, variant).is_some_and(has_run);
        let result = GateResult::no_data(GateId::C7, "`compare sanitize` has not looked at it");
        return is_due.then_some(GateSummary { result, passed: 0, of: 0 });
    }
    let with = |verdict: Verdict| checks.iter().filter(move |check| check.result.verdict == verdict);
    let worst = with(Verdict::Fail).chain(with(Verdict::NoData)).chain(with(Verdict::Pass)).next()?;
    let result = GateResult { reason: format!("{}: {}", worst.tool, worst.result.reason), ..worst.result.clone() };
    Some(GateSummary { result, passed: with(Verdict::Pass).count(), of: checks.len() })
}

fn resources(variant: &VariantBuild) -> Resources {
    let Some(KernelBuild { facts, built }) = representative::instance(variant) else {
        return Resources { tile: [0; 2], threads: 0, shared_bytes: 0, built: vec![] };
    };
    Resources {
        tile: [facts.block_m, facts.block_n],
        threads: facts.threads,
        shared_bytes: facts.dynamic_shared_bytes,
        built: built.iter().map(|b| (b.ptxas.arch.clone(), b.ptxas.resources.registers, b.occupancy)).collect(),
    }
}

/// Gates that a variant's row is judged by: correctness, hazards, resources.
pub fn judges_rows(gate: GateId) -> bool {
    gate <= GateId::R1
}

/// Whether a run could measure `gate`.
fn measurable(meta: &BuildMeta, gate: GateId) -> bool {
    meta.gates.iter().any(|scope| scope.gate == gate && scope.measurable == Measurable::Yes)
}

fn state(
    stage: &StageBuild,
    summary: Option<&VariantSummary>,
    gates: &[GateSummary],
    record: Option<&Record>,
    is_run: bool,
) -> RowState {
    let (Some(summary), Some(record)) = (summary, record) else {
        let reason = match record.map(|record| &record.meta) {
            None => "nothing was run".to_string(),
            Some(BuildMeta { scope: Scope::Selected { .. }, .. }) => "not selected".to_string(),
            Some(meta) => format!("not in tier {}", meta.tier),
        };
        return RowState::NotRun { reason };
    };
    let meta = &record.meta;
    if summary.identity != stage.identity {
        return RowState::Stale { reason: "the kernel has changed since".to_string() };
    }
    let with = |verdict: Verdict| -> Vec<GateId> {
        gates.iter().filter(|gate| gate.result.verdict == verdict).map(|gate| gate.result.gate).collect()
    };
    if summary.checked == 0 && summary.failed == 0 && summary.unsupported > 0 {
        return RowState::NotRun { reason: "it takes none of these problems".to_string() };
    }
    let failed = with(Verdict::Fail);
    if !failed.is_empty() {
        return RowState::Failed(failed);
    }
    let ambiguous = with(Verdict::Ambiguous);
    if !ambiguous.is_empty() {
        return RowState::Ambiguous(ambiguous);
    }
    // A selection may leave a gate without a case; a whole tier may not, but for C4, which has nothing to say about most
    // problems, where the device cannot run the variant on the others.
    let excused = |gate: GateId| gate == GateId::C7 || gate == GateId::C4 && summary.unsupported > 0;
    let has_data = |gate: GateId| gates.iter().any(|g| g.result.gate == gate && g.result.verdict == Verdict::Pass);
    let mut lacking: Vec<GateId> = meta
        .gates
        .iter()
        .map(|scope| scope.gate)
        .filter(|&gate| judges_rows(gate) && !excused(gate) && measurable(meta, gate) && !has_data(gate))
        .collect();
    // A run ends before `compare sanitize` can begin.
    let is_sanitized = record.sanitizer.is_some() || !is_run;
    if is_sanitized && needs_sanitizer(meta) && !has_data(GateId::C7) {
        lacking.push(GateId::C7);
    }
    if summary.checked == 0 || meta.scope == Scope::Whole && !lacking.is_empty() {
        return RowState::NoData(lacking);
    }
    RowState::Green
}

fn failures(subject: Option<(&str, &Record)>) -> Vec<Failure> {
    let Some((_, record)) = subject else { return Vec::new() };
    let mut failures = Vec::new();
    for summary in &record.correctness.variants {
        let place = format!("{}/{}", summary.stage, summary.variant);
        let failed = summary.gates.iter().filter(|gate| gate.result.verdict == Verdict::Fail);
        failures.extend(failed.map(|gate| Failure { place: place.clone(), result: gate.result.clone() }));
    }
    for stage in &record.meta.stages {
        for variant in &stage.variants {
            let place = format!("{}/{}", stage.id, variant.name);
            let gates = [sanitizer_gate(stage, &variant.name, record), resource_gate(stage, variant)];
            let failed = gates.into_iter().flatten().filter(|gate| gate.result.verdict == Verdict::Fail);
            failures.extend(failed.map(|gate| Failure { place: place.clone(), result: gate.result }));
        }
    }
    // What the emulator's judge found while it counted.
    for counters in &record.evidence.counters {
        if let Some(reason) = counters.hazard() {
            let place = format!("{}/{}", counters.stage, counters.variant);
            failures.push(Failure { place, result: GateResult::judge(GateId::H1, false, reason) });
        }
    }
    // The sanitizer's findings, and what the gates say of an output that came with real tensors.
    let rows = record.evidence.rows.iter().filter(|row| row.result.gate <= GateId::C7);
    let failed = rows.filter(|row| row.result.verdict == Verdict::Fail);
    failures.extend(
        failed.map(|row| Failure { place: format!("{}/{}", row.stage, row.variant), result: row.result.clone() }),
    );
    failures
}

#[cfg(test)]
mod tests;
