//! The state of a variant, from its gates.

use super::View;
use super::list::distinct;
use crate::table::session::Tier;
use crate::table::{CORRECT_MODEL, Judged, Kind, Row, StageMeta, Subject, Table};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::Dtype;
use common::verdict::{GateId, Verdict};
use std::collections::BTreeMap;

/// The verdict of all gates on a variant.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    /// No gate fails, and everything that can be measured was.
    Green,
    Failed(Vec<GateId>),
    /// The gates that should have data and have none.
    NoData(Vec<GateId>),
    /// The reason why the run does not include it: its tier or flags.
    NotRun(String),
    /// The row is of another version of the kernel.
    Stale,
}

/// A gate that a variant fails.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub subject: Subject,
    pub gate: GateId,
    pub reason: String,
}

/// Returns the rank of a verdict among those of one gate on one subject: the lowest stands for all.
pub fn rank(verdict: Verdict) -> usize {
    Verdict::WORST_FIRST
        .iter()
        .position(|other| *other == verdict)
        .unwrap_or_default()
}

/// A row's part in the verdicts on its subject.
enum Weight {
    /// It judges all cases that its instrument ran.
    Whole,
    /// It judges timed buffers, which count only if they are wrong: a PASS there says nothing about
    /// the other cases.
    FailuresAlone,
    /// It judges something else than the subject's kernel, or is counted in another row.
    None,
}

impl Weight {
    fn new(kind: &Kind) -> Self {
        match kind {
            Kind::Declared(_)
            | Kind::Compiled { .. }
            | Kind::Checked(_)
            | Kind::Counters(_)
            | Kind::RandomTime(_)
            | Kind::Regret
            | Kind::Profile(_)
            | Kind::Sanitized
            | Kind::GivenOutput(_) => Self::Whole,
            Kind::Latency(_) => Self::FailuresAlone,
            // The row over all cases covers single cases.
            Kind::Case(..)
            | Kind::CandidateCase(_)
            | Kind::Pair { .. }
            | Kind::PeerSession
            | Kind::PeerTime(_)
            | Kind::PeerPair { .. }
            | Kind::Fault(_)
            | Kind::Site(_)
            | Kind::Timer(_)
            | Kind::Claim(_) => Self::None,
        }
    }
}

/// Returns the verdict of each gate on a variant over all rows of one kernel: FAIL if any row
/// fails, else PASS, else NO DATA.
pub fn gates(view: &View<'_>, subject: &Subject) -> BTreeMap<GateId, Judged> {
    let mut gates: BTreeMap<GateId, Judged> = BTreeMap::new();
    for row in view.table.about(subject) {
        if view.is_stale(row) {
            continue;
        }
        match Weight::new(&row.kind) {
            Weight::None => {}
            Weight::Whole => {
                for (&gate, judged) in &row.verdicts {
                    add_verdict(&mut gates, gate, judged.clone());
                }
            }
            Weight::FailuresAlone => {
                for (gate, judged) in row.failed() {
                    let reason = format!("{} as timed: {}", row.place(), judged.reason);
                    let as_timed = Judged {
                        reason,
                        ..judged.clone()
                    };
                    add_verdict(&mut gates, gate, as_timed);
                }
            }
        }
    }
    gates
}

/// Adds a verdict to those of other rows: the worst stands, and failures have all their reasons.
fn add_verdict(gates: &mut BTreeMap<GateId, Judged>, gate: GateId, judged: Judged) {
    let Some(before) = gates.get_mut(&gate) else {
        gates.insert(gate, judged);
        return;
    };
    let do_both_fail = [before.verdict, judged.verdict] == [Verdict::Fail; 2];
    if rank(judged.verdict) < rank(before.verdict) {
        *before = judged;
    } else if do_both_fail && judged.reason != before.reason {
        before.reason += &format!("; {}", judged.reason);
    }
}

fn with_verdict(gates: &BTreeMap<GateId, Judged>, verdict: Verdict) -> Vec<GateId> {
    gates
        .iter()
        .filter(|(_, judged)| judged.verdict == verdict)
        .map(|(gate, _)| *gate)
        .collect()
}

/// Returns the row of a variant over all its cases on one backend.
pub fn summary<'a>(view: &'a View<'_>, subject: &Subject, backend: BackendKind) -> Option<&'a Row> {
    view.table.checked(subject, backend)
}

/// Returns the number of cases that were judged; `None` if the variant was not run.
pub fn cases(view: &View<'_>, subject: &Subject) -> Option<f64> {
    summary(view, subject, view.backend())?.value(Metric::Cases)
}

/// The gates that must pass before a latency is shown.
pub const NEEDED: [GateId; 5] = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6];

/// The gates that may have no data all the same: C4 does not apply to some problems, C8 only to
/// kernels that write log-sum-exps, B1 and B2 only to problems of some tiers.
const OPTIONAL: [GateId; 4] = [GateId::C4, GateId::C8, GateId::B1, GateId::B2];

/// Returns whether a variant's latency may be shown: all correctness gates pass.
pub fn is_green(view: &View<'_>, subject: &Subject, backend: BackendKind) -> bool {
    let Some(row) = summary(view, subject, backend) else {
        return false;
    };
    if row.value(Metric::CasesFailed).unwrap_or(0.0) != 0.0 {
        return false;
    }
    if let Some(hazards) = gates(view, subject).get(&GateId::H1)
        && hazards.verdict == Verdict::Fail
    {
        return false;
    }
    NEEDED
        .iter()
        .all(|gate| row.says(*gate) == Some(Verdict::Pass))
        && OPTIONAL.iter().all(|gate| {
            let verdict = row.says(*gate);
            matches!(verdict, None | Some(Verdict::Pass | Verdict::NoData))
        })
}

/// Returns whether the report should have evidence for `gate`: what the run's machine, backend and
/// tier can measure; of a committed table everything that a run on a GPU measures.
pub fn measurable(view: &View<'_>, gate: GateId) -> bool {
    match view.run {
        Some(run) => !run.unmeasurable.contains_key(&gate),
        None => !matches!(gate, GateId::H1 | GateId::B2),
    }
}

/// Returns whether every variant needs gate C7: in a committed table, and in the full tier on a
/// GPU, also for a selection of stages. `compare sanitize` adds it.
pub fn needs_sanitizer(view: &View<'_>) -> bool {
    view.run
        .is_none_or(|run| (run.tier, run.backend) == (Tier::T2, BackendKind::Cuda))
}

/// Returns the variants that ran and lack the C7 that they need.
pub fn unsanitized(view: &View<'_>) -> Vec<Subject> {
    if !needs_sanitizer(view) {
        return Vec::new();
    }
    let mut lacking = Vec::new();
    for subject in view.stages.iter().flat_map(StageMeta::subjects) {
        let Some(row) = summary(view, &subject, view.backend()) else {
            continue;
        };
        let has_cases = view.is_reported(row) && row.value(Metric::Cases) > Some(0.0);
        let findings = view.table.row(&subject, Kind::Sanitized);
        if has_cases && findings.is_none_or(|sanitized| view.is_stale(sanitized)) {
            lacking.push(subject);
        }
    }
    lacking
}

/// The numbers of cases that a row over all of them counts.
struct Counts {
    checked: usize,
    failed: usize,
    unsupported: usize,
}

impl Counts {
    fn new(row: &Row) -> Self {
        let count = |metric| row.value(metric).unwrap_or(0.0) as usize;
        Self {
            checked: count(Metric::Cases),
            failed: count(Metric::CasesFailed),
            unsupported: count(Metric::CasesUnsupported),
        }
    }
}

/// Returns the state of a variant of the ladder as it is built now.
pub fn state(view: &View<'_>, stage: &StageMeta, subject: &Subject) -> State {
    let Some(row) = summary(view, subject, view.backend()) else {
        return unreported(view);
    };
    if !view.is_reported(row) {
        return unreported(view);
    }
    if view.is_stale(row) {
        return State::Stale;
    }
    let counts = Counts::new(row);
    if counts.checked == 0 && counts.failed == 0 && counts.unsupported > 0 {
        return State::NotRun("it supports none of these problems".into());
    }
    let gates = gates(view, subject);
    let failed = with_verdict(&gates, Verdict::Fail);
    if !failed.is_empty() {
        return State::Failed(failed);
    }
    let passed = with_verdict(&gates, Verdict::Pass);
    let mut lacking = Vec::new();
    // A selection may leave a gate without a case.
    if view.is_whole() {
        lacking.extend(GateId::ALL);
        lacking.retain(|gate| !is_accounted_for(view, stage, &counts, &passed, *gate));
    }
    if is_sanitizer_due(view) && !passed.contains(&GateId::C7) {
        lacking.push(GateId::C7);
    }
    if counts.checked == 0 || !lacking.is_empty() {
        return State::NoData(lacking);
    }
    State::Green
}

/// Returns the state of a variant that the report has no row of.
fn unreported(view: &View<'_>) -> State {
    if !view.is_whole() {
        State::NotRun("not selected".into())
    } else if view.is_quick() {
        // Every other tier has every variant.
        State::NotRun("not in tier T0".into())
    } else {
        State::NoData(vec![])
    }
}

/// Returns whether every variant must have gate C7 by now: `compare sanitize` comes after the run.
fn is_sanitizer_due(view: &View<'_>) -> bool {
    let mut sanitized = view.table.sanitized();
    let was_sanitized = view.run.is_none() || sanitized.any(|row| view.is_of_run(row));
    was_sanitized && needs_sanitizer(view)
}

/// Returns whether `gate` passed, or no verdict on it is expected of a variant with these cases.
fn is_accounted_for(
    view: &View<'_>,
    stage: &StageMeta,
    counts: &Counts,
    passed: &[GateId],
    gate: GateId,
) -> bool {
    if passed.contains(&gate) || !measurable(view, gate) {
        return true;
    }
    match gate {
        // L1 and E1 judge claims, S1 the gates themselves.
        GateId::L1 | GateId::E1 | GateId::S1 => true,
        // `compare sanitize` comes after the run; a kernel may write no log-sum-exps.
        GateId::C7 | GateId::C8 => true,
        // C4 applies to few problems: the device may be unable to run the variant on them, and the
        // quick tier has none of them for a stage of E4M3 alone.
        GateId::C4 => {
            counts.unsupported > 0 || view.is_quick() && stage.first_dtype() == Dtype::E4m3
        }
        GateId::C1
        | GateId::C2
        | GateId::C3
        | GateId::C5
        | GateId::C6
        | GateId::B1
        | GateId::B2
        | GateId::H1
        | GateId::R1 => false,
    }
}

/// Returns every gate that fails, once for each subject: a variant, a stage, or outputs for real
/// tensors.
pub fn failures(view: &View<'_>) -> Vec<Failure> {
    let failing = view.table.rows().filter(|row| row.failure().is_some());
    let mut failures = Vec::new();
    for subject in distinct(failing.map(|row| &row.subject)) {
        for (gate, judged) in gates(view, subject) {
            if judged.verdict == Verdict::Fail {
                failures.push(Failure {
                    subject: subject.clone(),
                    gate,
                    reason: judged.reason,
                });
            }
        }
    }
    failures
}

/// Returns what the self-test found wrong (gate S1): surviving faults and mutants, and sites
/// wrongly listed as redundant.
pub fn self_test(table: &Table) -> impl Iterator<Item = &Row> {
    table.self_tests().filter(|row| row.failure().is_some())
}

/// The numbers of planted faults and of mutants, kernels without one of their synchronisation
/// sites.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    pub faults: usize,
    /// The number of faults that are killed with every element type that they apply to.
    pub faults_killed: usize,
    pub sites: usize,
    pub sites_killed: usize,
    /// The number of mutants that survive and are listed with a reason.
    pub redundant: usize,
}

/// Counts the rows of a self-test. A fault that could not be tried has no figures; the correct
/// model is not a fault.
pub fn tally<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Tally {
    let mut tally = Tally::default();
    for row in rows {
        let Some(cases_failed) = row.value(Metric::CasesFailed) else {
            continue;
        };
        let (is_killed, is_right) = (cases_failed > 0.0, row.failure().is_none());
        match &row.kind {
            Kind::Site(_) => {
                tally.sites += 1;
                tally.sites_killed += usize::from(is_killed);
                tally.redundant += usize::from(!is_killed && is_right);
            }
            Kind::Fault(name) if name == CORRECT_MODEL => {}
            Kind::Fault(_) => {
                tally.faults += 1;
                tally.faults_killed += usize::from(is_killed && is_right);
            }
            Kind::Timer(_)
            | Kind::Declared(_)
            | Kind::Compiled { .. }
            | Kind::Checked(_)
            | Kind::Case(..)
            | Kind::Counters(_)
            | Kind::Latency(_)
            | Kind::Pair { .. }
            | Kind::RandomTime(_)
            | Kind::Regret
            | Kind::PeerSession
            | Kind::PeerTime(_)
            | Kind::PeerPair { .. }
            | Kind::CandidateCase(_)
            | Kind::Profile(_)
            | Kind::Sanitized
            | Kind::Claim(_)
            | Kind::GivenOutput(_) => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests;
