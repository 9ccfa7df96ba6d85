//! Verdicts: of gates, claims, and the gates on the gates.

use super::{Class, Metric, Reason, Row};
use crate::comparison::{Judgement, caught, resource_gate, summary_of};
use common::record::{ClaimResult, EvidenceResult, Planted, Record};
use common::verdict::{GateId, Verdict};
use std::collections::BTreeMap;

/// Every verdict that either side has. A gate that fails now and did not fail before is worse whatever the backend; all
/// else needs the same backend.
pub fn gates(base: &Record, new: &Record) -> Vec<Row> {
    let mut rows = Vec::new();
    for stage in &new.meta.stages {
        for variant in &stage.variants {
            rows.extend(of_variant(base, new, &stage.id, &variant.name));
        }
    }
    rows.extend(claims::<ClaimResult>(base, new));
    rows.extend(claims::<EvidenceResult>(base, new));
    rows.extend(gates_on_gates(base, new));
    rows
}

type Verdicts = BTreeMap<GateId, (Verdict, String)>;

/// All that `record` says of a variant; a failure wins over anything else that the same gate says.
fn verdicts(record: &Record, stage: &str, variant: &str) -> Verdicts {
    let mut verdicts = Verdicts::new();
    let mut say = |gate: GateId, verdict: Verdict, reason: &str| {
        let said = verdicts.entry(gate).or_insert((verdict, reason.to_string()));
        if verdict == Verdict::Fail {
            *said = (verdict, reason.to_string());
        }
    };
    for gate in summary_of(record, stage, variant).into_iter().flat_map(|summary| &summary.gates) {
        say(gate.result.gate, gate.result.verdict, &gate.result.reason);
    }
    let build = record.meta.stages.iter().find(|build| build.id == stage);
    let built = build.and_then(|build| resource_gate(build, build.variant(variant)?));
    built.iter().for_each(|gate| say(GateId::R1, gate.result.verdict, &gate.result.reason));
    let is_here = |other_stage: &str, other: &str| (other_stage, other) == (stage, variant);
    for counters in record.evidence.counters.iter().filter(|c| is_here(&c.stage, &c.variant)) {
        if let Some(reason) = counters.hazard() {
            say(GateId::H1, Verdict::Fail, reason);
        }
    }
    for row in record.evidence.rows.iter().filter(|row| is_here(&row.stage, &row.variant)) {
        if row.result.gate <= GateId::C7 {
            say(row.result.gate, row.result.verdict, &row.result.reason);
        }
    }
    verdicts
}

fn of_variant(base: &Record, new: &Record, stage: &str, variant: &str) -> Vec<Row> {
    let (before, after) = (verdicts(base, stage, variant), verdicts(new, stage, variant));
    let row = |gate, class, reason| Row::new(stage, Some(variant), Metric::Gate(gate), class, reason);
    let mut rows = Vec::new();
    for (&gate, (verdict, why)) in &after {
        let was = before.get(&gate).map(|(verdict, _)| *verdict);
        // R1 is of the compiler, not of the backend.
        let comparable = base.meta.backend == new.meta.backend || gate == GateId::R1;
        let Some((class, reason)) = turned(was, *verdict, comparable) else { continue };
        let mut row = row(gate, class, reason).note(why.clone());
        (row.base, row.new) = (was.map(|was| was.to_string()), Some(verdict.to_string()));
        row.required = class == Class::NoData && super::presence::covers(new, base);
        rows.push(row);
    }
    // A variant that was not run at all has a row of its own.
    let ran = !after.is_empty() && super::presence::covers(new, base);
    for (&gate, (verdict, _)) in before.iter().filter(|(gate, _)| ran && !after.contains_key(gate)) {
        if *verdict != Verdict::NoData {
            let row = row(gate, Class::NoData, Reason::NewlyMissing).note("judged in the base only");
            rows.push(Row { base: Some(verdict.to_string()), required: gate != GateId::R1, ..row });
        }
    }
    rows
}

/// What a verdict turned into; `None` where there is nothing to say.
fn turned(was: Option<Verdict>, is: Verdict, comparable: bool) -> Option<(Class, Reason)> {
    match (was, is) {
        (Some(Verdict::Fail), Verdict::Fail) => Some((Class::Same, Reason::Equal)),
        (_, Verdict::Fail) => Some((Class::Worse, Reason::NewlyFailing)),
        _ if !comparable => None,
        (Some(Verdict::Fail), Verdict::Pass) => Some((Class::Better, Reason::NewlyPassing)),
        (Some(Verdict::Pass), Verdict::Ambiguous) => Some((Class::Ambiguous, Reason::NewlyUndecided)),
        (Some(Verdict::Pass | Verdict::Fail), Verdict::NoData) => Some((Class::NoData, Reason::NewlyMissing)),
        (Some(was), is) if was == is => Some((Class::Same, Reason::Equal)),
        _ => None,
    }
}

/// The claims that both sides judged; those of speed on one GPU only.
fn claims<J: Judgement>(base: &Record, new: &Record) -> Vec<Row> {
    let gpus = [base, new].map(|record| record.meta.machine.gpu.name());
    let is_comparable = |judged: &&J| !judged.is_of_a_gpu() || gpus[0] == gpus[1];
    let (of_base, of_new) = (J::judged(base), J::judged(new));
    let find = |stage: &str, title: &str| -> Option<Verdict> {
        let mut judged = of_base.iter();
        judged.find(|other| other.refuted().stage == stage && other.refuted().what == title).map(|j| j.result().verdict)
    };
    let mut rows = Vec::new();
    for judged in of_new.iter().filter(is_comparable) {
        let claim = judged.refuted();
        let was = find(&claim.stage, &claim.what);
        let is = judged.result();
        let Some((mut class, mut reason)) = turned(was, is.verdict, true) else { continue };
        let refuted =
            new.negative.iter().flat_map(|negative| &negative.claims).any(|other| {
                (&other.stage, &other.what, &other.identity) == (&claim.stage, &claim.what, &claim.identity)
            });
        if class == Class::Worse && refuted {
            (class, reason) = (Class::Changed, Reason::RefutedAndRecorded);
        }
        let mut row = Row::new(&claim.stage, None, Metric::Claim(claim.what), class, reason).note(is.reason.clone());
        (row.base, row.new) = (was.map(|was| was.to_string()), Some(is.verdict.to_string()));
        rows.push(row);
    }
    // A promise that is taken back is said, lest a failed claim be mended by deleting it.
    for judged in of_base.iter().filter(is_comparable) {
        let claim = judged.refuted();
        let stands = new.meta.stages.iter().find(|stage| stage.id == claim.stage);
        let stands = stands.is_none_or(|stage| J::claimed(stage).iter().any(|terms| terms.to_string() == claim.what));
        if !stands {
            let row = Row::new(&claim.stage, None, Metric::Claim(claim.what), Class::Changed, Reason::OneSideOnly);
            rows.push(Row { base: Some(judged.result().verdict.to_string()), ..row }.note("no longer claimed"));
        }
    }
    rows
}

/// Planted faults that escape, and synchronisation sites that are not as listed.
fn gates_on_gates(base: &Record, new: &Record) -> Vec<Row> {
    let escaped = |record: &Record| match &record.correctness.planted {
        Planted::Tried { subjects } => {
            let (caught, of) = caught(subjects);
            Some(of - caught + subjects.iter().filter(|s| s.fault.is_none() && !s.as_it_should()).count())
        }
        Planted::NotTried { .. } => None,
    };
    let mut rows = Vec::new();
    let wrong = |record: &Record| record.correctness.synchronisation.wrong().len();
    let found = [
        (escaped(base), escaped(new), "planted faults that escape"),
        (Some(wrong(base)), Some(wrong(new)), "synchronisation sites that are not as listed"),
    ];
    for (was, is, what) in found {
        let (Some(was), Some(is)) = (was, is) else { continue };
        let (class, reason) = match is.cmp(&was) {
            std::cmp::Ordering::Greater => (Class::Worse, Reason::NewlyFailing),
            std::cmp::Ordering::Less => (Class::Better, Reason::NewlyPassing),
            std::cmp::Ordering::Equal => (Class::Same, Reason::Equal),
        };
        rows.push(Row::new("", None, Metric::GatesOnGates, class, reason).values(was, is).note(what));
    }
    rows
}
