//! Missing data: what the report should have, and what its machine cannot measure.

use super::View;
use super::claims::Claimed;
use super::list::joined;
use super::state::{State, cases, measurable};
use crate::table::session::{Progress, Tier};
use crate::table::{Kind, ProblemPlace, Row, Session, StageMeta, Subject};
use common::metric::{self, Metric};
use common::verdict::{GateId, Verdict};
use std::collections::BTreeSet;
use std::fmt;

/// Evidence that a report lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Missing {
    pub what: String,
    pub why: String,
    /// Whether the report should have it. If so, the exit code is 3.
    pub required: bool,
    /// The stage that lacks it, if it is one stage's.
    pub stage: Option<String>,
    /// Whether it is the timing of a pair.
    pub is_timing: bool,
}

impl Missing {
    fn required(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            why: why.into(),
            required: true,
            stage: None,
            is_timing: false,
        }
    }

    fn optional(what: impl Into<String>, why: impl Into<String>) -> Self {
        Self {
            required: false,
            ..Self::required(what, why)
        }
    }

    fn in_stage(self, stage: &str) -> Self {
        Self {
            stage: Some(stage.to_string()),
            ..self
        }
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.why)
    }
}

/// Returns all evidence that a report lacks.
pub fn missing(view: &View<'_>, states: &[(Subject, State)], claims: &[Claimed]) -> Vec<Missing> {
    if view.session().is_none() {
        let why = "there is no run and no committed table";
        return vec![Missing::required("every row", why)];
    }
    let mut missing = Vec::new();
    for (subject, state) in states {
        if let State::NoData(gates) = state {
            missing.push(variant_without(view, subject, gates));
        }
    }
    missing.extend(claims.iter().filter_map(|claimed| of_claim(view, claimed)));
    missing.extend(untested(view));
    if let Some(run) = view.run {
        missing.extend(interruption(run));
        missing.extend(unsupported_run(view, run));
        missing.extend(unmeasurable(view, run));
        for stage in uncovering_stages(view, run) {
            missing.extend(uncovered(view, stage));
        }
    }
    missing
}

/// Returns what a variant lacks; every gate where none is named.
fn variant_without(view: &View<'_>, subject: &Subject, gates: &[GateId]) -> Missing {
    let names = if gates.is_empty() {
        "every gate".to_string()
    } else {
        joined(gates, ", ")
    };
    let why = if cases(view, subject).unwrap_or(0.0) == 0.0 {
        "none of its cases ran"
    } else if *gates == [GateId::C7] {
        "`compare sanitize` on its GPU completes the run"
    } else {
        "none of its cases had this evidence"
    };
    Missing::required(format!("{subject}: {names}"), why).in_stage(subject.stage())
}

/// Returns the parts of the self-test that could not be tried.
fn untested(view: &View<'_>) -> Vec<Missing> {
    let mut missing = Vec::new();
    for row in view.table.self_tests() {
        let Some(judged) = row.verdicts.get(&GateId::S1) else {
            continue;
        };
        if judged.verdict == Verdict::NoData {
            let what = format!("{} of the self-test", row.place());
            missing.push(Missing {
                required: view.run.is_none(),
                ..Missing::required(what, judged.reason.clone())
            });
        }
    }
    missing
}

/// Returns what a run that did not come to its end lacks.
fn interruption(run: &Session) -> Option<Missing> {
    match run.progress {
        Progress::Partial { finished, planned } if finished < planned => {
            let lacking = format!("{} of {planned} cases", planned - finished);
            Some(Missing::required(lacking, "the run was interrupted"))
        }
        // Variants and claims say which they lack.
        Progress::Partial { .. } => {
            let why = "the run was interrupted";
            Some(Missing::optional("some timings", why))
        }
        Progress::Complete { .. } => None,
    }
}

/// Returns every case, if none of the run's variants supports any.
fn unsupported_run(view: &View<'_>, run: &Session) -> Option<Missing> {
    let mut summaries = view
        .table
        .rows()
        .filter(|row| row.kind == Kind::Checked(run.backend) && view.is_of_run(row))
        .peekable();
    summaries.peek()?;
    if summaries.any(has_run) {
        return None;
    }
    let why = "no variant of this run supports any of its problems";
    Some(Missing::required("every case", why))
}

fn has_run(row: &Row) -> bool {
    [Metric::Cases, Metric::CasesFailed]
        .into_iter()
        .any(|metric| row.value(metric) > Some(0.0))
}

/// Returns what the machine of the run cannot measure.
fn unmeasurable(view: &View<'_>, run: &Session) -> Vec<Missing> {
    let mut missing = Vec::new();
    for (gate, reason) in &run.unmeasurable {
        // `compare sanitize` may have added it.
        let is_added = *gate == GateId::C7 && view.table.sanitized().any(|row| view.is_of_run(row));
        if !is_added {
            missing.push(Missing::optional(format!("gate {gate}"), reason));
        }
    }
    if !run.source_lines {
        let why = "the program has no debug information, so that `compare accept` refuses the run: \
                   build it unstripped";
        missing.push(Missing::optional("source lines", why));
    }
    missing
}

/// Returns a claim without data, unless its gate cannot be measured, which has a line of its own.
fn of_claim(view: &View<'_>, claimed: &Claimed) -> Option<Missing> {
    if claimed.verdict() != Some(Verdict::NoData) {
        return None;
    }
    if claimed.claim.is_of_speed() {
        return of_speed_claim(view, claimed);
    }
    let (gate, is_measured) = match claimed.claim.metric.source() {
        metric::Source::Counters | metric::Source::Declared => (Some(GateId::E1), true),
        metric::Source::Compiler => (Some(GateId::R1), true),
        metric::Source::MachineCode => (Some(GateId::R1), !view.is_quick()),
        metric::Source::Profile => (None, false),
        metric::Source::Gpu => (None, true),
    };
    if let Some(needed) = gate
        && !measurable(view, needed)
    {
        return None;
    }
    let missing = Missing {
        required: is_measured && view.is_whole(),
        ..Missing::required(claimed.title(), claimed.finding.reason.clone())
    };
    Some(missing.in_stage(&claimed.stage))
}

fn of_speed_claim(view: &View<'_>, claimed: &Claimed) -> Option<Missing> {
    let is_over_peer = claimed.claim.relation.base().is_none();
    if is_over_peer || !view.is_asked_about(&claimed.claim) {
        return None;
    }
    if !measurable(view, GateId::L1) || !view.is_whole() {
        return None;
    }
    let missing = if times_problem(view.run, &claimed.claim.place) {
        Missing::required(claimed.title(), "it was not timed")
    } else {
        Missing::optional(claimed.title(), "`--full` times it")
    };
    Some(Missing {
        is_timing: true,
        ..missing.in_stage(&claimed.stage)
    })
}

/// Returns the stages of which a run can tell what problems they support: none if flags selected
/// variants.
fn uncovering_stages<'a>(view: &View<'a>, run: &Session) -> &'a [StageMeta] {
    if run.scope.variants.is_empty() {
        view.stages
    } else {
        &[]
    }
}

/// Returns the problems that no variant of a stage supports, although every stage must support all.
fn uncovered(view: &View<'_>, stage: &StageMeta) -> Vec<Missing> {
    let mut refused: BTreeSet<&ProblemPlace> = BTreeSet::new();
    let mut supported: BTreeSet<&ProblemPlace> = BTreeSet::new();
    // Cases are the run's alone.
    for row in view.table.rows() {
        if let Kind::Case(_, case) = &row.kind
            && row.subject.stage() == stage.id
        {
            let side = if row.verdicts.is_empty() {
                &mut refused
            } else {
                &mut supported
            };
            side.insert(&case.problem);
        }
    }
    let mut missing = Vec::new();
    for problem in refused.difference(&supported) {
        let what = format!("{}: {problem}", stage.id);
        let why = "no variant supports it; every stage must";
        missing.push(Missing::required(what, why).in_stage(&stage.id));
    }
    missing
}

/// Returns whether a run of this tier times the claims about a problem: short of `--full` those
/// about the problem that claims are about unless they name one. A committed table has all.
fn times_problem(run: Option<&Session>, place: &ProblemPlace) -> bool {
    run.is_none_or(|session| session.tier == Tier::T2)
        || place.problem().is_some_and(|problem| problem.has_claims())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{US, timed};
    use common::problem::{Dtype, Mask};

    #[test]
    fn claims_about_problems_that_full_alone_times_are_required_of_full_alone() {
        let places =
            ["mission", "big"].map(|shape| ProblemPlace::new(shape, Dtype::F16, Mask::Full));
        let required = |tier: Tier| {
            let run = timed(US).changed(|session| session.tier = tier);
            places
                .each_ref()
                .map(|place| times_problem(Some(&run.session), place))
        };
        assert_eq!(required(Tier::T2), [true, true]);
        assert_eq!(required(Tier::T1), [true, false]);
        assert_eq!(
            places.map(|place| times_problem(None, &place)),
            [true, true]
        );
    }
}
