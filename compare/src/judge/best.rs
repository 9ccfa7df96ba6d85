//! The best variant, and its latency.

use super::View;
use super::state::{is_green, summary};
use crate::table::{Place, ProblemPlace, Row, Source, StageMeta, Subject, Table};
use common::metric::Metric;

pub fn is_latency(row: &Row) -> bool {
    row.source == Source::Gpu
        && row.paired_with.is_none()
        && row.place.problem().is_some()
        && row.has(Metric::P50)
}

pub fn timed(table: &Table) -> impl Iterator<Item = &Row> {
    table.rows().filter(|row| is_latency(row))
}

pub fn time<'a>(table: &'a Table, subject: &Subject, place: &ProblemPlace) -> Option<&'a Row> {
    let row = table.row(subject, &Place::Problem(place.clone()), Source::Gpu);
    row.filter(|row| is_latency(row))
}

/// Why a latency must not be shown, if so: its kernel is not green, or its outputs were wrong as timed.
pub fn withheld(view: &View<'_>, row: &Row) -> Option<String> {
    let subject = &row.subject;
    match summary(view, subject, Source::Gpu) {
        Some(summary) if summary.identity == row.identity => {}
        // What was green when it was accepted is shown as STALE.
        Some(_) if view.is_stale(row) => return None,
        _ => return Some(format!("{subject} was not checked on this kernel")),
    }
    if !is_green(view, subject, Source::Gpu) {
        return Some(format!("{subject} is not green on C1-C6 and B1"));
    }
    let (gate, judged) = row.failed().next()?;
    Some(format!(
        "{subject}: {gate} failed on the timed buffers: {}",
        judged.reason
    ))
}

/// Latencies that may be shown: the variant is green, and its outputs were right after timing.
pub fn shown<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Row> {
    timed(&view.table).filter(|row| withheld(view, row).is_none())
}

pub fn p50(row: &Row) -> f64 {
    row.value(Metric::P50).unwrap_or(f64::INFINITY)
}

/// The fastest shown variant of a stage on a problem, of those that `is_eligible`: of the kernels as they are now, if any is.
pub fn best<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    place: &ProblemPlace,
    is_eligible: impl Fn(&str) -> bool,
) -> Option<&'a Row> {
    let names = stage.variants.iter().map(|variant| &*variant.name);
    let rows = names
        .filter(|name| is_eligible(name))
        .filter_map(|name| time(&view.table, &stage.subject(name), place))
        .filter(|row| withheld(view, row).is_none());
    fastest(view, rows)
}

/// Of the kernels as they are now, if any is.
pub fn fastest<'a>(view: &View<'_>, rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    let is_stale = |row: &Row| view.is_stale(row);
    rows.min_by(|a, b| (is_stale(a).cmp(&is_stale(b))).then(p50(a).total_cmp(&p50(b))))
}

pub fn best_of<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    family: &str,
    place: &ProblemPlace,
) -> Option<&'a Row> {
    let is_of_family = |name: &str| stage.family(family).any(|variant| variant.name == name);
    best(view, stage, place, is_of_family)
}

/// The best variant of a stage: the fastest that the device can run on mission, in the stage's first element type; without any
/// latency the default.
pub fn subject(view: &View<'_>, stage: &StageMeta) -> Subject {
    let row = best(view, stage, &stage.first_place(), |_| true);
    row.map_or_else(
        || stage.subject(&stage.default_variant),
        |row| row.subject.clone(),
    )
}

/// A latency, or why it is withheld; `None` if it was not timed.
pub fn latency<'a>(
    view: &'a View<'_>,
    subject: &Subject,
    place: &ProblemPlace,
) -> Option<Result<&'a Row, String>> {
    let row = time(&view.table, subject, place)?;
    Some(withheld(view, row).map_or(Ok(row), Err))
}
