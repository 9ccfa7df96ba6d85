//! What the gates say of a variant.

use super::list::distinct;
use super::{Known, place};
use crate::record::meta::{Measurable, Scope, Tier};
use crate::record::{CORRECT_MODEL, Judged, Of, On, Record, Row, Source, StageMeta, Subject};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::Dtype;
use common::verdict::{GateId, Verdict};
use serde::Serialize;
use std::collections::BTreeMap;

/// The verdict on a variant.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", content = "detail", rename_all = "snake_case")]
pub enum State {
    /// No gate fails, and all that can be measured is.
    Green,
    Failed(Vec<GateId>),
    Ambiguous(Vec<GateId>),
    /// Data is missing for these gates that the record should have.
    NoData(Vec<GateId>),
    /// The record does not include it, and why: the tier or the flags.
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

/// Whether a variant is judged by it: correctness, hazards, resources. Claims are judged by L1 and E1, the gates
/// themselves by S1.
fn is_of_variants(gate: GateId) -> bool {
    !matches!(gate, GateId::L1 | GateId::E1 | GateId::S1)
}

/// Where a verdict stands among those that a gate says of one subject: the first stands for all.
pub fn rank(verdict: Verdict) -> usize {
    let of = |other: &Verdict| *other == verdict;
    Verdict::WORST_FIRST.iter().position(of).unwrap_or_default()
}

/// What each gate says of a variant over all rows of a record: any FAIL, else any AMBIGUOUS, else any PASS, else NO DATA.
/// Single cases are summed up in the row of all.
pub fn gates(record: &Record, subject: &Subject) -> BTreeMap<GateId, Judged> {
    let mut gates: BTreeMap<GateId, Judged> = BTreeMap::new();
    let rows = record
        .rows
        .iter()
        .filter(|row| row.subject == *subject && row.against.is_none());
    // A candidate is timed by nobody else: what is wrong there is all that is known of it.
    let counts = |by: Source| match by {
        Source::Peers => record.meta.of() == Of::Candidate,
        by => by != Source::SelfTest,
    };
    for row in rows.filter(|row| !matches!(row.on, On::Case(..)) && counts(row.by)) {
        // Timed buffers count where they are wrong: passing there is no evidence on all cases.
        let is_timed = row.by == Source::Gpu && row.on != On::All;
        let counts = |(gate, judged): &(&GateId, &Judged)| match is_timed {
            true => judged.verdict == Verdict::Fail,
            false => is_of_variants(**gate) || row.by == Source::Peers,
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

/// Those that say so.
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

/// Cases of a variant that were judged; none where it was not run.
pub fn cases(record: &Record, subject: &Subject) -> Option<f64> {
    summary(record, subject)?.value(Metric::Cases)
}

/// Whether a variant's figures may be believed, so that its time may be shown: no correctness gate fails or wavers, and
/// all have evidence but C4, which has nothing to say about some problems, C8, which judges kernels that write log-sum-exps, and
/// B1, which judges those of a tier.
pub fn is_green(record: &Record, subject: &Subject) -> bool {
    let Some(row) = summary(record, subject) else {
        return false;
    };
    let needed = [GateId::C1, GateId::C2, GateId::C3, GateId::C5, GateId::C6];
    row.value(Metric::CasesFailed).unwrap_or(0.0) == 0.0
        && gates(record, subject)
            .get(&GateId::H1)
            .is_none_or(|judged| judged.verdict != Verdict::Fail)
        && needed
            .into_iter()
            .all(|gate| row.says(gate) == Some(Verdict::Pass))
        && [GateId::C4, GateId::C8, GateId::B1]
            .into_iter()
            .all(|gate| matches!(row.says(gate), None | Some(Verdict::Pass | Verdict::NoData)))
}

/// Whether the machine, backend and tier of a record can measure `gate`.
pub fn measurable(record: &Record, gate: GateId) -> bool {
    record
        .meta
        .gates
        .iter()
        .any(|scope| scope.gate == gate && scope.measurable == Measurable::Yes)
}

/// Whether gate C7 is part of the record: of the full tier on a GPU, which `compare sanitize` completes. A selection of
/// stages needs it as well: once committed it stands for them.
pub fn needs_sanitizer(record: &Record) -> bool {
    let of = (record.meta.of(), record.meta.tier, record.meta.backend);
    of == (Of::Ladder, Tier::T2, BackendKind::Cuda)
}

/// Whether compute-sanitizer was run on anything.
pub fn is_sanitized(record: &Record) -> bool {
    record.by(Source::ComputeSanitizer).next().is_some()
}

/// The variants that ran and whose C7 the record needs and does not have. What a device refuses has not run.
pub fn unsanitized(record: &Record) -> Vec<Subject> {
    let lacks = |subject: &Subject| {
        record
            .row(subject, &On::All, Source::ComputeSanitizer)
            .is_none()
    };
    let ran = |subject: &Subject| cases(record, subject) > Some(0.0);
    record
        .variants()
        .filter(|subject| needs_sanitizer(record) && ran(subject) && lacks(subject))
        .collect()
}

/// The record that says what a variant is, and its row there: the run's; of committed ones the newest on that machine that
/// includes it, so that a new stage costs its own record and no other's.
fn judged<'a>(
    known: &Known<'a>,
    newest: &'a Record,
    subject: &Subject,
) -> Option<(&'a Record, &'a Row)> {
    let is_alike = |record: &&Record| {
        (place(record), record.meta.device) == (place(newest), newest.meta.device)
    };
    let older = known
        .committed
        .iter()
        .rev()
        .map(|(_, record)| record)
        .filter(|_| known.run.is_none())
        .filter(is_alike);
    let mut records = [newest].into_iter().chain(older);
    records.find_map(|record| Some((record, summary(record, subject)?)))
}

/// The verdict on a variant of the ladder as built now.
pub fn state(known: &Known<'_>, stage: &StageMeta, subject: &Subject) -> State {
    let Some((_, newest)) = known.subject() else {
        return State::NotRun("nothing was run".into());
    };
    let Some((record, row)) = judged(known, newest, subject) else {
        let tier = newest.meta.tier;
        return match &newest.meta.scope {
            Scope::Selected { .. } => State::NotRun("not selected".into()),
            Scope::Whole if !newest.variants().any(|other| other == *subject) => {
                State::NotRun("not in the record, nor declared then".into())
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
        return State::NotRun("it takes none of these problems".into());
    }
    let gates = gates(record, subject);
    let that =
        |verdict: Verdict| -> Vec<GateId> { with(&gates, verdict).map(|(gate, _)| gate).collect() };
    match (that(Verdict::Fail), that(Verdict::Ambiguous)) {
        (failed, _) if !failed.is_empty() => return State::Failed(failed),
        (_, ambiguous) if !ambiguous.is_empty() => return State::Ambiguous(ambiguous),
        _ => {}
    }
    // A selection may leave a gate without a case, C7 excepted; a whole tier may not, but for C4, which has nothing to say
    // about most problems, where the device cannot run the variant on the others or where the quick tier has none of them because the
    // stage is of E4M3 alone, and C8, which kernels without log-sum-exps have not.
    let has_no_c4 =
        unsupported > 0 || record.meta.tier == Tier::T0 && stage.first_dtype() == Dtype::E4m3;
    let waived =
        |gate: GateId| matches!(gate, GateId::C7 | GateId::C8) || gate == GateId::C4 && has_no_c4;
    let has_data = |gate: GateId| {
        gates
            .get(&gate)
            .is_some_and(|judged| judged.verdict == Verdict::Pass)
    };
    let due = GateId::ALL
        .into_iter()
        .filter(|&gate| is_of_variants(gate) && !waived(gate) && measurable(record, gate));
    let is_whole = record.meta.scope == Scope::Whole;
    let mut lacking: Vec<GateId> = due.filter(|&gate| is_whole && !has_data(gate)).collect();
    // A run ends before `compare sanitize` can begin.
    let is_due = is_sanitized(record) || known.run.is_none();
    if is_due && needs_sanitizer(record) && !has_data(GateId::C7) {
        lacking.push(GateId::C7);
    }
    if checked == 0 || !lacking.is_empty() {
        return State::NoData(lacking);
    }
    State::Green
}

/// Every gate that fails in a record, of variants, of stages and of real tensors' outputs; each once a subject.
pub fn failures(record: &Record) -> Vec<Failure> {
    let failing = record
        .rows
        .iter()
        .filter(|row| row.against.is_none() && row.failure().is_some());
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

/// What the self-test found wrong (gate S1): faults that survive, and synchronisation that is not as listed.
pub fn self_test(record: &Record) -> impl Iterator<Item = &Row> {
    record
        .by(Source::SelfTest)
        .filter(|row| row.failure().is_some())
}

/// What the self-test killed, by its figures and verdicts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Tally {
    pub faults: usize,
    /// By a gate, with every element type to which they apply.
    pub faults_killed: usize,
    /// Kernels without one of their synchronisation sites.
    pub sites: usize,
    pub sites_killed: usize,
    /// That survive and are listed with their reason.
    pub redundant: usize,
}

/// Counts the rows of a self-test. What could not be tried has no figures, and the correct model is no fault.
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
