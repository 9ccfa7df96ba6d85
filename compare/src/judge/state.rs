//! The state of a variant, from its gates.

use super::list::distinct;
use super::{Known, place};
use crate::record::meta::{GateScope, Measurable, Scope, Tier, first_place};
use crate::record::{CORRECT_MODEL, Judged, On, Record, Row, Source, StageMeta, Subject};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::Dtype;
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// The state of a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", content = "detail", rename_all = "snake_case")]
pub enum State {
    /// No gate fails, and everything that can be measured was.
    Green,
    Failed(Vec<GateId>),
    Ambiguous(Vec<GateId>),
    /// The record should have data for these gates and does not.
    NoData(Vec<GateId>),
    /// The record does not include it, because of its tier or flags.
    NotRun(String),
    /// Measured on another version of the kernel.
    Stale,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Failure {
    pub subject: Subject,
    pub gate: GateId,
    pub reason: String,
}

/// Whether the gate judges variants: L1 and E1 judge claims, S1 the gates themselves.
fn is_of_variants(gate: GateId) -> bool {
    !matches!(gate, GateId::L1 | GateId::E1 | GateId::S1)
}

/// The rank of a verdict among those of one gate on one subject: the lowest stands for all.
pub fn rank(verdict: Verdict) -> usize {
    let of = |other: &Verdict| *other == verdict;
    Verdict::WORST_FIRST.iter().position(of).unwrap_or_default()
}

/// What each gate says of a variant over all rows of a record: FAIL if any does, else AMBIGUOUS, else PASS, else NO DATA. The row over
/// all cases covers single cases.
pub fn gates(record: &Record, subject: &Subject) -> BTreeMap<GateId, Judged> {
    let mut gates: BTreeMap<GateId, Judged> = BTreeMap::new();
    let rows = record.rows.iter();
    let rows = rows.filter(|row| row.subject == *subject && row.against.is_none());
    let counts = |by: Source| !matches!(by, Source::Peers | Source::SelfTest);
    for row in rows.filter(|row| !matches!(row.on, On::Case(..)) && counts(row.by)) {
        // Timed buffers count only if they are wrong: a PASS there says nothing about the other cases.
        let is_timed = row.by == Source::Gpu && row.on != On::All;
        let counts = |(gate, judged): &(&GateId, &Judged)| match is_timed {
            true => judged.verdict == Verdict::Fail,
            false => is_of_variants(**gate),
        };
        for (&gate, judged) in row.verdicts.iter().filter(counts) {
            let mut judged = judged.clone();
            if is_timed {
                judged.reason = format!("{} as timed: {}", row.on, judged.reason);
            }
            let said = gates.entry(gate).or_insert_with(|| judged.clone());
            let do_fail = [said.verdict, judged.verdict] == [Verdict::Fail; 2];
            if rank(judged.verdict) < rank(said.verdict) {
                *said = judged;
            } else if do_fail && judged.reason != said.reason {
                said.reason += &format!("; {}", judged.reason);
            }
        }
    }
    gates
}

/// The gates with this verdict.
pub fn with(
    gates: &BTreeMap<GateId, Judged>,
    verdict: Verdict,
) -> impl Iterator<Item = (GateId, &Judged)> {
    let gates = gates.iter().map(|(gate, judged)| (*gate, judged));
    gates.filter(move |(_, judged)| judged.verdict == verdict)
}

/// The row of a variant over all its cases.
pub fn summary<'a>(record: &'a Record, subject: &Subject) -> Option<&'a Row> {
    record.row(subject, &On::All, record.meta.backend.into())
}

/// A figure of the instance of the stage's first element type and head_dim 64 as compiled for the GPU of the record, else for the
/// last architecture built.
pub fn compiled(record: &Record, subject: &Subject, metric: Metric) -> Option<f64> {
    let dtype = first_place(record.stage(subject.stage())).dtype;
    let instances = record.instances(subject, Source::Ptxas, dtype, 64);
    let figures: Vec<(&str, f64)> = instances
        .filter_map(|(arch, row)| Some((arch?, row.value(metric)?)))
        .collect();
    let runs = |arch: &str| record.meta.machine.gpu.runs(arch);
    figures
        .iter()
        .find(|(arch, _)| runs(arch))
        .or(figures.last())
        .map(|(_, value)| *value)
}

/// The number of cases that were judged; `None` if the variant was not run.
pub fn cases(record: &Record, subject: &Subject) -> Option<f64> {
    summary(record, subject)?.value(Metric::Cases)
}

/// Whether a variant's latency may be shown: all correctness gates pass. C4, C8 and B1 may have no data: C4 does not apply to some
/// problems, C8 only to kernels that write log-sum-exps, B1 only to problems of some tiers.
pub fn is_green(record: &Record, subject: &Subject) -> bool {
    let Some(row) = summary(record, subject) else {
        return false;
    };
    let needed = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6];
    let optional = [GateId::C4, GateId::C8, GateId::B1];
    let passes = |gate: &GateId| row.says(*gate) == Some(Verdict::Pass);
    let may_pass = |gate: &GateId| {
        matches!(
            row.says(*gate),
            None | Some(Verdict::Pass | Verdict::NoData)
        )
    };
    let hazards = gates(record, subject).remove(&GateId::H1);
    row.value(Metric::CasesFailed).unwrap_or(0.0) == 0.0
        && hazards.is_none_or(|judged| judged.verdict != Verdict::Fail)
        && needed.iter().all(passes)
        && optional.iter().all(may_pass)
}

/// Whether the machine, backend and tier of a record can measure `gate`.
pub fn measurable(record: &Record, gate: GateId) -> bool {
    let is_so = |scope: &GateScope| scope.gate == gate && scope.measurable == Measurable::Yes;
    record.meta.gates.iter().any(is_so)
}

/// Whether the record needs gate C7: in the full tier on a GPU, also for a selection of stages. `compare sanitize` adds it.
pub fn needs_sanitizer(record: &Record) -> bool {
    (record.meta.tier, record.meta.backend) == (Tier::T2, BackendKind::Cuda)
}

/// Whether compute-sanitizer was run on anything.
pub fn is_sanitized(record: &Record) -> bool {
    record.by(Source::ComputeSanitizer).next().is_some()
}

/// The variants that ran and lack the C7 that the record needs.
pub fn unsanitized(record: &Record) -> Vec<Subject> {
    let by = Source::ComputeSanitizer;
    let lacks = |subject: &Subject| record.row(subject, &On::All, by).is_none();
    let ran = |subject: &Subject| cases(record, subject) > Some(0.0);
    let mut variants: Vec<Subject> = record.variants().collect();
    variants.retain(|subject| needs_sanitizer(record) && ran(subject) && lacks(subject));
    variants
}

/// The record that decides a variant's state, and its row there: the run's, or that of the newest committed record of the same machine
/// that includes it. So a new stage needs a record of itself only.
fn judged<'a>(
    known: &Known<'a>,
    newest: &'a Record,
    subject: &Subject,
) -> Option<(&'a Record, &'a Row)> {
    let is_alike = |record: &&Record| {
        (place(record), record.meta.device) == (place(newest), newest.meta.device)
    };
    let older = known.committed.iter().rev().map(|(_, record)| record);
    let older = older.filter(|_| known.run.is_none()).filter(is_alike);
    let mut records = [newest].into_iter().chain(older);
    records.find_map(|record| Some((record, summary(record, subject)?)))
}

/// The state of a variant of the ladder as built now.
pub fn state(known: &Known<'_>, stage: &StageMeta, subject: &Subject) -> State {
    let Some(newest) = known.record() else {
        return State::NotRun("nothing was run".into());
    };
    let Some((record, row)) = judged(known, newest, subject) else {
        let tier = newest.meta.tier;
        return match &newest.meta.scope {
            Scope::Selected { .. } => State::NotRun("not selected".into()),
            Scope::Whole if !newest.variants().any(|other| other == *subject) => {
                State::NotRun("the record does not declare it".into())
            }
            // Every other tier has every variant.
            Scope::Whole if tier == Tier::T0 => State::NotRun(format!("not in tier {tier}")),
            Scope::Whole => State::NoData(vec![]),
        };
    };
    if !record.is_of(stage) {
        return State::Stale;
    }
    let [checked, failed, unsupported] =
        [Metric::Cases, Metric::CasesFailed, Metric::CasesUnsupported]
            .map(|metric| row.value(metric).unwrap_or(0.0) as usize);
    if checked == 0 && failed == 0 && unsupported > 0 {
        return State::NotRun("it supports none of these problems".into());
    }
    let gates = gates(record, subject);
    let that = |verdict| -> Vec<GateId> { with(&gates, verdict).map(|(gate, _)| gate).collect() };
    match (that(Verdict::Fail), that(Verdict::Ambiguous)) {
        (failed, _) if !failed.is_empty() => return State::Failed(failed),
        (_, ambiguous) if !ambiguous.is_empty() => return State::Ambiguous(ambiguous),
        _ => {}
    }
    // A selection may leave a gate without a case, except C7. In a whole tier, C8 may lack one because the kernel writes no
    // log-sum-exps, and C4, which applies to few problems, because the device cannot run the variant on them, or because the quick tier
    // has none of them for a stage of E4M3 alone.
    let has_no_c4 =
        unsupported > 0 || record.meta.tier == Tier::T0 && stage.first_dtype() == Dtype::E4m3;
    let waived =
        |gate: GateId| matches!(gate, GateId::C7 | GateId::C8) || gate == GateId::C4 && has_no_c4;
    let passed = that(Verdict::Pass);
    let is_lacking = |gate: &GateId| {
        record.meta.scope == Scope::Whole
            && is_of_variants(*gate)
            && !waived(*gate)
            && measurable(record, *gate)
            && !passed.contains(gate)
    };
    let mut lacking: Vec<GateId> = GateId::ALL.into_iter().filter(is_lacking).collect();
    // `compare sanitize` comes after the run.
    let is_due = is_sanitized(record) || known.run.is_none();
    if is_due && needs_sanitizer(record) && !passed.contains(&GateId::C7) {
        lacking.push(GateId::C7);
    }
    if checked == 0 || !lacking.is_empty() {
        return State::NoData(lacking);
    }
    State::Green
}

/// Every gate that fails in a record, once for each subject: a variant, a stage, or outputs for real tensors.
pub fn failures(record: &Record) -> Vec<Failure> {
    let is_failing = |row: &&Row| row.against.is_none() && row.failure().is_some();
    let failing = record.rows.iter().filter(is_failing);
    let of = |subject: &Subject| {
        let gates = gates(record, subject);
        let failure = |(gate, judged): (_, &Judged)| Failure {
            subject: subject.clone(),
            gate,
            reason: judged.reason.clone(),
        };
        with(&gates, Verdict::Fail).map(failure).collect::<Vec<_>>()
    };
    distinct(failing.map(|row| &row.subject))
        .into_iter()
        .flat_map(of)
        .collect()
}

/// What the self-test found wrong (gate S1): surviving faults and mutants, and sites wrongly listed as redundant.
pub fn self_test(record: &Record) -> impl Iterator<Item = &Row> {
    let rows = record.by(Source::SelfTest);
    rows.filter(|row| row.failure().is_some())
}

/// What the self-test killed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    pub faults: usize,
    /// With every element type that they apply to.
    pub faults_killed: usize,
    /// Mutants: kernels without one of their synchronisation sites.
    pub sites: usize,
    pub sites_killed: usize,
    /// Mutants that survive and are listed with a reason.
    pub redundant: usize,
}

/// Counts the rows of a self-test. A fault that could not be tried has no figures; the correct model is not a fault.
pub fn tally<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Tally {
    let mut tally = Tally::default();
    for row in rows {
        let Some(failed) = row.value(Metric::CasesFailed) else {
            continue;
        };
        let (is_killed, is_right) = (failed > 0.0, row.failure().is_none());
        if !row.subject.name().is_empty() {
            tally.sites += 1;
            tally.sites_killed += usize::from(is_killed);
            tally.redundant += usize::from(!is_killed && is_right);
        } else if !matches!(&row.on, On::Named(what) if what == CORRECT_MODEL) {
            tally.faults += 1;
            tally.faults_killed += usize::from(is_killed && is_right);
        }
    }
    tally
}

#[cfg(test)]
mod tests;
