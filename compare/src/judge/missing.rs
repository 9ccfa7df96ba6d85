//! Missing data: what the report should have, and what its machine cannot measure.

use super::View;
use super::claims::Claimed;
use super::list::joined;
use super::state::{State, cases, measurable};
use crate::table::session::{Progress, Tier};
use crate::table::{Place, ProblemPlace, Row, Session, Source, Subject};
use common::metric::{self, Metric};
use common::verdict::{GateId, Verdict};
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    pub what: String,
    pub why: String,
    /// Whether the report should have it. If so, the exit code is 3.
    pub required: bool,
    /// Whose it is, if it is one stage's.
    pub stage: Option<String>,
}

impl Missing {
    fn in_stage(self, stage: &str) -> Self {
        let stage = Some(stage.to_string());
        Self { stage, ..self }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

fn required(what: impl Into<String>, why: impl Into<String>) -> Missing {
    Missing {
        what: what.into(),
        why: why.into(),
        required: true,
        stage: None,
    }
}

fn optional(what: impl Into<String>, why: impl Into<String>) -> Missing {
    Missing {
        required: false,
        ..required(what, why)
    }
}

pub fn missing(view: &View<'_>, states: &[(Subject, State)], claims: &[Claimed]) -> Vec<Missing> {
    if view.session().is_none() {
        let why = "there is no run and no committed table";
        return vec![required("every row", why)];
    }
    let mut missing = Vec::new();
    for (subject, state) in states {
        let State::NoData(gates) = state else {
            continue;
        };
        let names = match gates.is_empty() {
            true => "every gate".to_string(),
            false => joined(gates, ", "),
        };
        let why = match &gates[..] {
            _ if cases(view, subject).unwrap_or(0.0) == 0.0 => "none of its cases ran",
            [GateId::C7] => "`compare sanitize` on its GPU completes the run",
            _ => "none of its cases had this evidence",
        };
        let what = format!("{subject}: {names}");
        missing.push(required(what, why).in_stage(subject.stage()));
    }
    missing.extend(of_claims(view, claims));
    let untested = view.table.rows_by(Source::SelfTest).filter_map(|row| {
        let judged = row.verdicts.get(&GateId::S1)?;
        (judged.verdict == Verdict::NoData).then_some((row, judged))
    });
    missing.extend(untested.map(|(row, judged)| Missing {
        what: format!("{} of the self-test", row.place),
        why: judged.reason.clone(),
        required: view.run.is_none(),
        stage: None,
    }));
    if let Some(run) = view.run {
        missing.extend(of_run(view, run));
        missing.extend(uncovered(view, run));
    }
    missing
}

/// What the run of a report set out to have, and what its machine cannot measure.
fn of_run(view: &View<'_>, run: &Session) -> Vec<Missing> {
    let mut missing = Vec::new();
    match run.progress {
        Progress::Partial { finished, planned } if finished < planned => {
            let lacking = format!("{} of {planned} cases", planned - finished);
            missing.push(required(lacking, "the run was interrupted"));
        }
        // Variants and claims say which they lack.
        Progress::Partial { .. } => {
            missing.push(optional("some timings", "the run was interrupted"));
        }
        _ => {}
    }
    let summaries = (view.table.rows_by(run.backend.into()))
        .filter(|row| row.place == Place::All && view.is_of_run(row));
    let ran = |row: &Row| {
        let metrics = [Metric::Cases, Metric::CasesFailed];
        metrics
            .into_iter()
            .any(|metric| row.value(metric) > Some(0.0))
    };
    let ran: Vec<bool> = summaries.map(ran).collect();
    if !ran.is_empty() && !ran.contains(&true) {
        missing.push(required(
            "every case",
            "no variant of this run supports any of its problems",
        ));
    }
    // `compare sanitize` may have added it.
    let is_added = |gate: GateId| {
        let mut findings = view.table.rows_by(Source::ComputeSanitizer);
        gate == GateId::C7 && findings.any(|row| view.is_of_run(row))
    };
    let unmeasurable = run
        .unmeasurable
        .iter()
        .filter(|(gate, _)| !is_added(**gate));
    missing.extend(unmeasurable.map(|(gate, reason)| optional(format!("gate {gate}"), reason)));
    if !run.source_lines {
        let why = "the program has no debug information, so that `compare accept` refuses the run: build it unstripped";
        missing.push(optional("source lines", why));
    }
    missing
}

fn of_claims(view: &View<'_>, claims: &[Claimed]) -> Vec<Missing> {
    let mut missing = Vec::new();
    for claimed in claims {
        if claimed.verdict() != Some(Verdict::NoData) {
            continue;
        }
        if claimed.claim.is_of_speed() {
            let is_peer = claimed.claim.relation.base().is_none();
            let is_due = !is_peer && claimed.claim.is_about(view.gpu());
            if measurable(view, GateId::L1) && view.is_whole() && is_due {
                let lacking = match times_problem(view.run, &claimed.claim.place) {
                    true => required(claimed.title(), "it was not timed"),
                    false => optional(claimed.title(), "`--full` times it"),
                };
                missing.push(lacking.in_stage(&claimed.stage));
            }
            continue;
        }
        // A gate that cannot be measured has a line of its own.
        let is_measured = match claimed.claim.metric.source() {
            metric::Source::Counters | metric::Source::Declared
                if !measurable(view, GateId::E1) =>
            {
                continue;
            }
            metric::Source::Compiler | metric::Source::MachineCode
                if !measurable(view, GateId::R1) =>
            {
                continue;
            }
            metric::Source::MachineCode => !view.is_quick(),
            source => source != metric::Source::Profile,
        };
        missing.push(Missing {
            what: claimed.title(),
            why: claimed.finding.reason.clone(),
            required: is_measured && view.is_whole(),
            stage: Some(claimed.stage.clone()),
        });
    }
    missing
}

/// Problems that no variant of a stage supports, although every stage must support all. It cannot be told if flags selected variants.
fn uncovered(view: &View<'_>, run: &Session) -> Vec<Missing> {
    if !run.scope.variants.is_empty() {
        return Vec::new();
    }
    let mut missing = Vec::new();
    for stage in view.stages {
        let (mut refused, mut supported): (BTreeSet<&ProblemPlace>, BTreeSet<&ProblemPlace>) =
            Default::default();
        // Cases are the run's alone.
        for row in view.table.rows() {
            if let Place::Case(place, _) = &row.place
                && row.subject.stage() == stage.id
            {
                let side = if row.verdicts.is_empty() {
                    &mut refused
                } else {
                    &mut supported
                };
                side.insert(place);
            }
        }
        missing.extend(refused.difference(&supported).map(|place| {
            let what = format!("{}: {place}", stage.id);
            required(what, "no variant supports it; every stage must").in_stage(&stage.id)
        }));
    }
    missing
}

/// Returns whether a run of this tier times the claims about a problem: short of `--full` those about
/// the problem that claims are about unless they name one. A committed table has all.
fn times_problem(run: Option<&Session>, place: &ProblemPlace) -> bool {
    run.is_none_or(|run| run.tier == Tier::T2)
        || place.problem().is_some_and(|problem| problem.has_claims())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario;
    use common::problem::{Dtype, Mask};

    #[test]
    fn claims_about_problems_that_full_alone_times_are_required_of_full_alone() {
        let places =
            ["mission", "big"].map(|shape| ProblemPlace::new(shape, Dtype::F16, Mask::Full));
        let required = |words: &str| {
            let run = scenario::run(words);
            places
                .each_ref()
                .map(|place| times_problem(Some(&run.session), place))
        };
        assert_eq!(required("timed; tier 2"), [true, true]);
        assert_eq!(required("timed; tier 1"), [true, false]);
        assert_eq!(
            places.map(|place| times_problem(None, &place)),
            [true, true]
        );
    }
}
