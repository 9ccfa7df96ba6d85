//! The best variant, and its latency.

use super::Known;
use super::state::{is_green, summary};
use crate::table::{On, Place, Row, Source, StageMeta, Subject, Table};
use common::metric::Metric;

pub fn is_latency(row: &Row) -> bool {
    row.by == Source::Gpu
        && row.against.is_none()
        && row.on.problem().is_some()
        && row.has(Metric::P50)
}

pub fn timed(table: &Table) -> impl Iterator<Item = &Row> {
    table.rows().filter(|row| is_latency(row))
}

pub fn time<'a>(table: &'a Table, subject: &Subject, place: &Place) -> Option<&'a Row> {
    let row = table.row(subject, &On::Problem(place.clone()), Source::Gpu);
    row.filter(|row| is_latency(row))
}

/// Why a latency must not be shown, if so: its kernel is not green, or its outputs were wrong as timed.
pub fn withheld(known: &Known<'_>, row: &Row) -> Option<String> {
    let subject = &row.subject;
    match summary(known, subject, Source::Gpu) {
        Some(summary) if summary.identity == row.identity => {}
        // What was green when it was accepted is shown as STALE.
        Some(_) if known.is_stale(row) => return None,
        _ => return Some(format!("{subject} was not checked on this kernel")),
    }
    if !is_green(known, subject, Source::Gpu) {
        return Some(format!("{subject} is not green on C1-C6 and B1"));
    }
    let (gate, judged) = row.failed().next()?;
    Some(format!(
        "{subject}: {gate} failed on the timed buffers: {}",
        judged.reason
    ))
}

/// Latencies that may be shown: the variant is green, and its outputs were right after timing.
pub fn shown<'a>(known: &'a Known<'_>) -> impl Iterator<Item = &'a Row> {
    timed(&known.table).filter(|row| withheld(known, row).is_none())
}

pub fn p50(row: &Row) -> f64 {
    row.value(Metric::P50).unwrap_or(f64::INFINITY)
}

/// The fastest shown variant of a stage on a problem, of those that `is_eligible`: of the kernels as they are now, if any is.
pub fn best<'a>(
    known: &'a Known<'_>,
    stage: &StageMeta,
    place: &Place,
    is_eligible: impl Fn(&str) -> bool,
) -> Option<&'a Row> {
    let names = stage.variants.iter().map(|variant| &*variant.name);
    let rows = names
        .filter(|name| is_eligible(name))
        .filter_map(|name| time(&known.table, &stage.subject(name), place))
        .filter(|row| withheld(known, row).is_none());
    fastest(known, rows)
}

/// Of the kernels as they are now, if any is.
pub fn fastest<'a>(known: &Known<'_>, rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    let is_stale = |row: &Row| known.is_stale(row);
    rows.min_by(|a, b| (is_stale(a).cmp(&is_stale(b))).then(p50(a).total_cmp(&p50(b))))
}

pub fn best_of<'a>(
    known: &'a Known<'_>,
    stage: &StageMeta,
    family: &str,
    place: &Place,
) -> Option<&'a Row> {
    let is_of_family = |name: &str| stage.family(family).any(|variant| variant.name == name);
    best(known, stage, place, is_of_family)
}

/// The best variant of a stage: the fastest that the device can run on mission, in the stage's first element type; without any
/// latency the default.
pub fn subject(known: &Known<'_>, stage: &StageMeta) -> Subject {
    let row = best(known, stage, &stage.first_place(), |_| true);
    row.map_or_else(
        || stage.subject(&stage.default_variant),
        |row| row.subject.clone(),
    )
}

/// A latency, or why it is withheld; `None` if it was not timed.
pub fn latency<'a>(
    known: &'a Known<'_>,
    subject: &Subject,
    place: &Place,
) -> Option<Result<&'a Row, String>> {
    let row = time(&known.table, subject, place)?;
    Some(withheld(known, row).map_or(Ok(row), Err))
}
