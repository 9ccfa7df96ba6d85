//! Figures on both sides, by the registry of metrics.

use super::{Change, Difference, Group, Join, Judgement, What};
use crate::judge::blocks;
use crate::table::{Kind, ProblemPlace, Row, Table};
use common::metric::{Better, Metric, Spec, Threshold};

impl Join<'_> {
    pub(super) fn figures(&self, old: &Row, new: &Row) -> Vec<Difference> {
        let Some(group) = Group::of_kind(&new.kind) else {
            return vec![];
        };
        if group == Group::Latency {
            return vec![self.latency(old, new)];
        }
        if let Some(why) = self.incomparable(old, new) {
            let judgement = Judgement::new(Change::Missing, why);
            return vec![Difference::new(new, What::Row(group), judgement)];
        }
        if group == Group::Errors
            && let Some(cases) = self.other_cases(old, new)
        {
            return vec![cases];
        }
        let mut differences = Vec::new();
        for (metric, figure) in &old.figures {
            differences.extend(self.figure(*metric, figure.value, new));
        }
        if differences.is_empty() && has_exact_figures(&new.kind) {
            let judgement = Judgement::new(Change::Unchanged, "exact");
            differences.push(self.difference(new, What::Row(group), judgement));
        }
        differences
    }

    /// Returns the numbers of cases, if they differ: the largest error of other cases would be
    /// another figure.
    fn other_cases(&self, old: &Row, new: &Row) -> Option<Difference> {
        let (was, is) = (old.value(Metric::Cases)?, new.value(Metric::Cases)?);
        if was == is {
            return None;
        }
        let judgement = if is < was {
            Judgement::new(Change::Missing, "it ran fewer than in the base")
        } else {
            Judgement::new(Change::Informational, "it ran more than in the base")
        };
        let cases = self.difference(new, What::Metric(Metric::Cases), judgement);
        Some(cases.values(Some(was.to_string()), Some(is.to_string())))
    }

    /// Judges one figure that the base has; `None` if it is not compared, or is exactly the same.
    fn figure(&self, metric: Metric, was: f64, new: &Row) -> Option<Difference> {
        let what = What::Metric(metric);
        let threshold = metric.spec().threshold;
        let Some(figure) = new.figures.get(&metric) else {
            if has_to_be_compared(threshold) {
                let judgement = Judgement::new(Change::Missing, lacking(new));
                return Some(self.difference(new, what, judgement));
            }
            return None;
        };
        let is = figure.value;
        let judgement = match threshold {
            Threshold::NotCompared | Threshold::Interval(_) => return None,
            Threshold::Absolute(margin) => {
                let why = format!("share of the bound; margin {:.0} % of it", 100.0 * margin);
                Judgement::new(moved(was, is, margin), why)
            }
            _ if was == is => return None,
            _ => self.exact(metric, was, is, new),
        };
        let shown_base = shown(self.base, new, metric, was);
        let shown_new = shown(self.new, new, metric, is);
        let difference = self.difference(new, what, judgement);
        Some(
            difference
                .values(Some(shown_base), Some(shown_new))
                .figures(was, Some(is)),
        )
    }

    /// Judges a figure that has no noise.
    fn exact(&self, metric: Metric, was: f64, is: f64, new: &Row) -> Judgement {
        let Spec {
            threshold,
            better,
            because,
            ..
        } = metric.spec();
        let (change, opposite) = match better {
            Better::Informational => return Judgement::new(Change::Informational, because),
            Better::Lower if is < was => (Change::Better, Change::Worse),
            Better::Higher if is > was => (Change::Better, Change::Worse),
            Better::Lower | Better::Higher => (Change::Worse, Change::Better),
        };
        let yields_to_latency = threshold == Threshold::ExactUnlessLatency;
        if yields_to_latency && self.latencies_agree_on(new) == Some(opposite) {
            let why = "the measured latency says the opposite";
            return Judgement::new(Change::Informational, why);
        }
        Judgement::new(change, because)
    }

    /// Returns what latencies show of the kernel that a row is about: better or worse if all that
    /// decide agree.
    fn latencies_agree_on(&self, row: &Row) -> Option<Change> {
        let (mut is_better, mut is_worse) = (false, false);
        for new in self.new.about(&row.subject) {
            let Some(problem) = new.problem() else {
                continue;
            };
            if !new.is_latency() || !is_of(&row.kind, problem) {
                continue;
            }
            let Some(old) = self.base.get(&new.key()) else {
                continue;
            };
            if old.is_latency() {
                let change = self.latency(old, new).change;
                is_better |= change == Change::Better;
                is_worse |= change == Change::Worse;
            }
        }
        match (is_better, is_worse) {
            (true, false) => Some(Change::Better),
            (false, true) => Some(Change::Worse),
            (true, true) | (false, false) => None,
        }
    }
}

/// Returns whether a row that has no differences is worth the word that it is unchanged.
fn has_exact_figures(kind: &Kind) -> bool {
    match kind {
        Kind::Compiled { .. } | Kind::Counters(_) => true,
        Kind::Declared(_)
        | Kind::Checked(_)
        | Kind::Case(..)
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
        | Kind::Fault(_)
        | Kind::Site(_)
        | Kind::Timer(_)
        | Kind::Claim(_)
        | Kind::GivenOutput(_) => false,
    }
}

/// Returns whether a figure that only the base has is missing.
fn has_to_be_compared(threshold: Threshold) -> bool {
    !matches!(
        threshold,
        Threshold::NotCompared | Threshold::Interval(_) | Threshold::Absolute(_)
    )
}

fn lacking(new: &Row) -> String {
    let why = "the new side does not have it";
    match &new.note {
        Some(note) => format!("{why}: {note}"),
        None => why.to_string(),
    }
}

/// Returns a value as pages show it; of an occupancy with the blocks that it amounts to.
fn shown(table: &Table, row: &Row, metric: Metric, value: f64) -> String {
    let shown = metric.show(value);
    if metric != Metric::Occupancy {
        return shown;
    }
    match blocks::per_sm(table, row, value) {
        Some(blocks) => format!("{shown} ({blocks} per SM)"),
        None => shown,
    }
}

/// Returns whether the kernel that counters or resources are about runs on a problem.
fn is_of(kind: &Kind, problem: &ProblemPlace) -> bool {
    match kind {
        Kind::Declared(instance) | Kind::Compiled { instance, .. } => {
            problem.instance() == Some(*instance)
        }
        Kind::Counters(counted) => problem == counted,
        Kind::Checked(_)
        | Kind::Case(..)
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
        | Kind::Fault(_)
        | Kind::Site(_)
        | Kind::Timer(_)
        | Kind::Claim(_)
        | Kind::GivenOutput(_) => false,
    }
}

/// Returns how an error changed, given as a share of its bound.
fn moved(was: f64, is: f64, margin: f64) -> Change {
    let crosses = was <= 1.0 && is > 1.0;
    if is.is_nan() || crosses || is - was > margin {
        Change::Worse
    } else if was.is_nan() || was - is > margin {
        Change::Better
    } else {
        Change::Unchanged
    }
}
