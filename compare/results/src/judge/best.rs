//! The best variant, and its latency.

use super::View;
use super::state::{is_green, summary};
use crate::table::{ProblemPlace, Row, StageMeta, Subject};
use common::device::BackendKind;
use common::metric::Metric;
use common::verdict::GateId;

/// The reason why a latency must not be shown.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Withheld {
    #[error("{0} was not checked on this kernel")]
    Unchecked(Subject),
    #[error("{0} does not pass C1-C6 and B1")]
    NotGreen(Subject),
    #[error("{subject}: {gate} failed on the timed buffers: {reason}")]
    WrongAsTimed {
        subject: Subject,
        gate: GateId,
        reason: String,
    },
}

/// Returns why a latency must not be shown, if so: its kernel is not green, or its outputs were
/// wrong as timed.
pub fn withheld(view: &View<'_>, row: &Row) -> Option<Withheld> {
    let subject = &row.subject;
    let Some(summary) = summary(view, subject, BackendKind::Cuda) else {
        return Some(Withheld::Unchecked(subject.clone()));
    };
    if summary.identity != row.identity {
        // What was green when it was accepted is shown as STALE.
        let is_unchecked = !view.is_stale(row);
        return is_unchecked.then(|| Withheld::Unchecked(subject.clone()));
    }
    if !is_green(view, subject, BackendKind::Cuda) {
        return Some(Withheld::NotGreen(subject.clone()));
    }
    let (gate, judged) = row.failed().next()?;
    Some(Withheld::WrongAsTimed {
        subject: subject.clone(),
        gate,
        reason: judged.reason.clone(),
    })
}

/// Returns the latencies that may be shown: the variant is green, and its outputs were right after
/// timing.
pub fn shown<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Row> {
    view.table
        .latencies()
        .filter(|row| withheld(view, row).is_none())
}

/// Returns the median time, in microseconds; NaN where there is none.
pub fn p50(row: &Row) -> f64 {
    row.value(Metric::P50).unwrap_or(f64::INFINITY)
}

/// Returns the fastest shown variant of a stage on a problem, of those that `is_eligible`: of the
/// kernels as they are now, if any is.
pub fn best<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    problem: &ProblemPlace,
    is_eligible: impl Fn(&str) -> bool,
) -> Option<&'a Row> {
    let rows = stage
        .variants
        .iter()
        .filter(|variant| is_eligible(&variant.name))
        .filter_map(|variant| view.table.latency(&stage.subject(&variant.name), problem))
        .filter(|row| withheld(view, row).is_none());
    fastest(view, rows)
}

/// Returns the fastest of the kernels as they are now, if any is, else the fastest of all.
pub fn fastest<'a>(view: &View<'_>, rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.min_by(|a, b| {
        let freshness = view.is_stale(a).cmp(&view.is_stale(b));
        freshness.then(p50(a).total_cmp(&p50(b)))
    })
}

/// Returns the latency of a family's fastest variant on a problem.
pub fn best_of<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    family: &str,
    problem: &ProblemPlace,
) -> Option<&'a Row> {
    best(view, stage, problem, |name| {
        stage.family(family).any(|variant| variant.name == name)
    })
}

/// Returns the best variant of a stage: the fastest that the device can run on mission, in the
/// stage's first element type; without any latency the default.
pub fn subject(view: &View<'_>, stage: &StageMeta) -> Subject {
    match best(view, stage, &stage.first_place(), |_| true) {
        Some(row) => row.subject.clone(),
        None => stage.subject(&stage.default_variant),
    }
}

/// A latency that was measured.
#[derive(Clone, Debug, PartialEq)]
pub enum Latency<'a> {
    Shown(&'a Row),
    Withheld(Withheld),
}

/// Returns a latency, or why it is withheld; `None` if it was not timed.
pub fn latency<'a>(
    view: &'a View<'_>,
    subject: &Subject,
    problem: &ProblemPlace,
) -> Option<Latency<'a>> {
    let row = view.table.latency(subject, problem)?;
    Some(match withheld(view, row) {
        Some(why) => Latency::Withheld(why),
        None => Latency::Shown(row),
    })
}
