//! The state of a variant, from its gates.

use super::View;
use super::list::distinct;
use crate::table::session::Tier;
use crate::table::{CORRECT_MODEL, Judged, Place, Row, Session, Source, StageMeta, Subject, Table};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::Dtype;
use common::verdict::{GateId, Verdict};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// No gate fails, and everything that can be measured was.
    Green,
    Failed(Vec<GateId>),
    /// There should be data for these gates and is not.
    NoData(Vec<GateId>),
    /// The run does not include it, because of its tier or flags.
    NotRun(String),
    /// Measured on another version of the kernel.
    Stale,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub subject: Subject,
    pub gate: GateId,
    pub reason: String,
}

/// The rank of a verdict among those of one gate on one subject: the lowest stands for all.
pub fn rank(verdict: Verdict) -> usize {
    Verdict::WORST_FIRST
        .iter()
        .position(|other| *other == verdict)
        .unwrap_or_default()
}

/// What each gate says of a variant over all rows of one kernel: FAIL if any does, else PASS, else NO DATA. The row over all cases
/// covers single cases.
pub fn gates(view: &View<'_>, subject: &Subject) -> BTreeMap<GateId, Judged> {
    let mut gates: BTreeMap<GateId, Judged> = BTreeMap::new();
    let counts = |row: &&Row| {
        row.paired_with.is_none()
            && !matches!(row.place, Place::Case(..))
            && !matches!(row.source, Source::SelfTest | Source::Peers | Source::Claim)
            && !view.is_stale(row)
    };
    for row in view.table.about(subject).filter(counts) {
        // Timed buffers count only if they are wrong: a PASS there says nothing about the other cases.
        let is_timed = row.source == Source::Gpu && row.place != Place::All;
        let counts =
            |(_, judged): &(&GateId, &Judged)| !is_timed || judged.verdict == Verdict::Fail;
        for (&gate, judged) in row.verdicts.iter().filter(counts) {
            let mut judged = judged.clone();
            if is_timed {
                judged.reason = format!("{} as timed: {}", row.place, judged.reason);
            }
            let before = gates.entry(gate).or_insert_with(|| judged.clone());
            let do_fail = [before.verdict, judged.verdict] == [Verdict::Fail; 2];
            if rank(judged.verdict) < rank(before.verdict) {
                *before = judged;
            } else if do_fail && judged.reason != before.reason {
                before.reason += &format!("; {}", judged.reason);
            }
        }
    }
    gates
}

pub fn with(
    gates: &BTreeMap<GateId, Judged>,
    verdict: Verdict,
) -> impl Iterator<Item = (GateId, &Judged)> {
    let gates = gates.iter().map(|(gate, judged)| (*gate, judged));
    gates.filter(move |(_, judged)| judged.verdict == verdict)
}

/// The row of a variant over all its cases on one backend.
pub fn summary<'a>(view: &'a View<'_>, subject: &Subject, source: Source) -> Option<&'a Row> {
    view.table.row(subject, &Place::All, source)
}

/// The number of cases that were judged; `None` if the variant was not run.
pub fn cases(view: &View<'_>, subject: &Subject) -> Option<f64> {
    summary(view, subject, view.backend())?.value(Metric::Cases)
}

/// The gates that must pass before a latency is shown.
pub const NEEDED: [GateId; 5] = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6];

/// Whether a variant's latency may be shown: all correctness gates pass. C4, C8 and B1 may have no data: C4 does not apply to some
/// problems, C8 only to kernels that write log-sum-exps, B1 only to problems of some tiers.
pub fn is_green(view: &View<'_>, subject: &Subject, source: Source) -> bool {
    let Some(row) = summary(view, subject, source) else {
        return false;
    };
    let optional = [GateId::C4, GateId::C8, GateId::B1];
    let passes = |gate: &GateId| row.says(*gate) == Some(Verdict::Pass);
    let may_pass = |gate: &GateId| {
        matches!(
            row.says(*gate),
            None | Some(Verdict::Pass | Verdict::NoData)
        )
    };
    let hazards = gates(view, subject).remove(&GateId::H1);
    row.value(Metric::CasesFailed).unwrap_or(0.0) == 0.0
        && hazards.is_none_or(|judged| judged.verdict != Verdict::Fail)
        && NEEDED.iter().all(passes)
        && optional.iter().all(may_pass)
}

/// Whether the report should have evidence for `gate`: what the run's machine, backend and tier can measure; of a committed table
/// everything that a run on a GPU measures.
pub fn measurable(view: &View<'_>, gate: GateId) -> bool {
    let Some(run) = view.run else {
        return gate != GateId::H1;
    };
    !run.unmeasurable.contains_key(&gate)
}

/// Whether every variant needs gate C7: in a committed table, and in the full tier on a GPU, also for a selection of stages.
/// `compare sanitize` adds it.
pub fn needs_sanitizer(view: &View<'_>) -> bool {
    let is_full = |run: &Session| (run.tier, run.backend) == (Tier::T2, BackendKind::Cuda);
    view.run.is_none_or(is_full)
}

/// The variants that ran and lack the C7 that they need.
pub fn unsanitized(view: &View<'_>) -> Vec<Subject> {
    let subjects = view.stages.iter().flat_map(StageMeta::subjects);
    let lacks = |subject: &Subject| {
        let row = summary(view, subject, view.backend()).filter(|row| view.is_reported(row));
        let has_cases = row.is_some_and(|row| row.value(Metric::Cases) > Some(0.0));
        let found = summary(view, subject, Source::ComputeSanitizer);
        has_cases && found.is_none_or(|found| view.is_stale(found))
    };
    match needs_sanitizer(view) {
        true => subjects.filter(lacks).collect(),
        false => vec![],
    }
}

/// Of the ladder as built now.
pub fn state(view: &View<'_>, stage: &StageMeta, subject: &Subject) -> State {
    let row = summary(view, subject, view.backend());
    let Some(row) = row.filter(|row| view.is_reported(row)) else {
        return match (view.is_whole(), view.is_quick()) {
            (false, _) => State::NotRun("not selected".into()),
            // Every other tier has every variant.
            (true, true) => State::NotRun("not in tier T0".into()),
            (true, false) => State::NoData(vec![]),
        };
    };
    if view.is_stale(row) {
        return State::Stale;
    }
    let [checked, failed, unsupported] =
        [Metric::Cases, Metric::CasesFailed, Metric::CasesUnsupported]
            .map(|metric| row.value(metric).unwrap_or(0.0) as usize);
    if checked == 0 && failed == 0 && unsupported > 0 {
        return State::NotRun("it supports none of these problems".into());
    }
    let gates = gates(view, subject);
    let that = |verdict| -> Vec<GateId> { with(&gates, verdict).map(|(gate, _)| gate).collect() };
    let [failed, passed] = [Verdict::Fail, Verdict::Pass].map(that);
    if !failed.is_empty() {
        return State::Failed(failed);
    }
    // A selection may leave a gate without a case, except C7. C8 may lack one because the kernel writes no log-sum-exps, and C4, which
    // applies to few problems, because the device cannot run the variant on them, or because the quick tier has none of them for a
    // stage of E4M3 alone.
    let has_no_c4 = unsupported > 0 || view.is_quick() && stage.first_dtype() == Dtype::E4m3;
    let waived =
        |gate: GateId| matches!(gate, GateId::C7 | GateId::C8) || gate == GateId::C4 && has_no_c4;
    let is_lacking = |gate: &GateId| {
        view.is_whole()
            // L1 and E1 judge claims, S1 the gates themselves.
            && !matches!(gate, GateId::L1 | GateId::E1 | GateId::S1)
            && !waived(*gate)
            && measurable(view, *gate)
            && !passed.contains(gate)
    };
    let mut lacking: Vec<GateId> = GateId::ALL.into_iter().filter(is_lacking).collect();
    // `compare sanitize` comes after the run.
    let is_due = view.run.is_none()
        || (view.table.rows_by(Source::ComputeSanitizer)).any(|row| view.is_of_run(row));
    if is_due && needs_sanitizer(view) && !passed.contains(&GateId::C7) {
        lacking.push(GateId::C7);
    }
    if checked == 0 || !lacking.is_empty() {
        return State::NoData(lacking);
    }
    State::Green
}

/// Every gate that fails, once for each subject: a variant, a stage, or outputs for real tensors.
pub fn failures(view: &View<'_>) -> Vec<Failure> {
    let failing = view.table.rows().filter(|row| row.failure().is_some());
    let of_subject = |subject: &Subject| {
        let gates = gates(view, subject);
        let failure = |(gate, judged): (_, &Judged)| Failure {
            subject: subject.clone(),
            gate,
            reason: judged.reason.clone(),
        };
        with(&gates, Verdict::Fail).map(failure).collect::<Vec<_>>()
    };
    distinct(failing.map(|row| &row.subject))
        .into_iter()
        .flat_map(of_subject)
        .collect()
}

/// What the self-test found wrong (gate S1): surviving faults and mutants, and sites wrongly listed as redundant.
pub fn self_test(table: &Table) -> impl Iterator<Item = &Row> {
    let rows = table.rows_by(Source::SelfTest);
    rows.filter(|row| row.failure().is_some())
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
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
        } else if !matches!(&row.place, Place::Named(what) if what == CORRECT_MODEL) {
            tally.faults += 1;
            tally.faults_killed += usize::from(is_killed && is_right);
        }
    }
    tally
}

#[cfg(test)]
mod tests;
