//! The best variant, its latency, and where that is from.

use super::list::grouped;
use super::state::is_green;
use super::{Known, Origin};
use crate::record::{On, Place, Record, Row, Source, StageMeta, Subject};
use common::metric::Metric;

/// Whether the row is the latency of a variant on a problem.
pub fn is_latency(row: &Row) -> bool {
    row.by == Source::Gpu
        && row.against.is_none()
        && row.on.problem().is_some()
        && row.has(Metric::P50)
}

/// All latencies of a record, shown or withheld.
pub fn timed(record: &Record) -> impl Iterator<Item = &Row> {
    record.rows.iter().filter(|row| is_latency(row))
}

/// The latency of a variant on a problem, shown or withheld.
pub fn time<'a>(record: &'a Record, subject: &Subject, place: &Place) -> Option<&'a Row> {
    let row = record.row(subject, &On::Problem(place.clone()), Source::Gpu);
    row.filter(|row| is_latency(row))
}

/// Why a latency must not be shown, if so.
pub fn withheld(record: &Record, row: &Row) -> Option<String> {
    if super::state::summary(record, &row.subject).is_none() {
        return Some(format!(
            "{} was not checked in the run that timed it",
            row.subject
        ));
    }
    if !is_green(record, &row.subject) {
        return Some(format!(
            "{} is not green on C1-C6 and B1 in the run that timed it",
            row.subject
        ));
    }
    let (gate, judged) = row.failed().next()?;
    Some(format!(
        "{}: {gate} failed on the timed buffers: {}",
        row.subject, judged.reason
    ))
}

/// Latencies that may be shown: the variant is green in the same record, and its outputs were right after timing.
pub fn shown(record: &Record) -> impl Iterator<Item = &Row> {
    timed(record).filter(|row| withheld(record, row).is_none())
}

pub fn p50(row: &Row) -> f64 {
    row.value(Metric::P50).unwrap_or(f64::INFINITY)
}

/// The fastest shown variant of a stage on a problem, of those that `takes` accepts.
pub fn best<'a>(
    record: &'a Record,
    stage: &str,
    place: &Place,
    takes: impl Fn(&str) -> bool,
) -> Option<&'a Row> {
    // `withheld` looks through the whole record, so it comes last.
    let of_stage =
        timed(record).filter(|row| row.subject.stage() == stage && row.on.problem() == Some(place));
    let taken = of_stage.filter(|row| takes(row.subject.name()));
    fastest(taken.filter(|row| withheld(record, row).is_none()))
}

/// Ties go to the first by name.
pub fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.min_by(|a, b| {
        p50(a)
            .total_cmp(&p50(b))
            .then_with(|| a.subject.cmp(&b.subject))
    })
}

/// The fastest shown variant of a family.
pub fn best_of<'a>(
    record: &'a Record,
    stage: &StageMeta,
    family: &str,
    place: &Place,
) -> Option<&'a Row> {
    best(record, &stage.id, place, |name| {
        stage.family(family).any(|variant| variant.name == name)
    })
}

/// The best variant of a stage: the fastest that the device can run on mission, in the stage's first element type. It is taken from
/// the first record that timed the kernel as it is now, else from an older one; without any it is the default.
pub fn variant<'a>(known: &Known<'a>, stage: &'a StageMeta) -> &'a str {
    let dtype = stage.first_dtype();
    let place = Place::claims(dtype);
    let runs = |name: &str| {
        let variant = stage.variant(name);
        variant.is_some_and(|variant| variant.takes_claims.contains(&dtype))
    };
    let (of_now, older): (Vec<_>, Vec<_>) = known.records().partition(|record| record.is_of(stage));
    let mut all = of_now.into_iter().chain(older);
    let found = all.find_map(|record| best(record, &stage.id, &place, runs));
    found.map_or(&stage.default_variant, |row| row.subject.name())
}

/// The same as a subject.
pub fn subject(known: &Known<'_>, stage: &StageMeta) -> Subject {
    stage.subject(variant(known, stage))
}

/// The latency of a variant on a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Latency<'a> {
    Measured {
        row: &'a Row,
        record: &'a Record,
        origin: Origin,
    },
    /// Measured, and not shown.
    Withheld(String),
    NoData,
}

/// From the run, else from the newest committed record of the kernel as it is now, else from the newest.
pub fn latency<'a>(known: &Known<'a>, subject: &Subject, place: &Place) -> Latency<'a> {
    let mut stale = None;
    for (name, record) in known.sources() {
        let Some(row) = time(record, subject, place) else {
            continue;
        };
        if let Some(reason) = withheld(record, row) {
            if name.is_none() {
                return Latency::Withheld(reason);
            }
            continue;
        }
        let origin = known.origin(name, record, subject.stage(), true);
        let is_stale = origin.is_stale();
        let latency = Latency::Measured {
            row,
            record,
            origin,
        };
        match is_stale {
            true => stale = stale.or(Some(latency)),
            false => return latency,
        }
    }
    stale.unwrap_or(Latency::NoData)
}

/// Every record that shows this latency of the kernel as it is now, on the same GPU as `like`; newest first.
pub fn alike<'a>(
    known: &Known<'a>,
    like: &Record,
    subject: &Subject,
    place: &Place,
) -> impl Iterator<Item = (&'a Record, &'a Row)> {
    let shows = move |(name, record): (Option<&str>, &'a Record)| {
        let row = time(record, subject, place)?;
        let is_shown = withheld(record, row).is_none()
            && super::place(record) == super::place(like)
            && !known.origin(name, record, subject.stage(), true).is_stale();
        is_shown.then_some((record, row))
    };
    known.sources().into_iter().filter_map(shows)
}

/// The base and `base / new` of the medians in one record: over the best variant of the predecessor, and over that of the first
/// stage's default family.
pub fn speedups(record: &Record, row: &Row) -> [Option<(Subject, f64)>; 2] {
    let previous = |place: &Place| {
        let stage = record.stage(row.subject.stage())?;
        best(record, stage.predecessor.as_deref()?, place, |_| true)
    };
    let first = |place: &Place| {
        let first = record.meta.stages.first()?;
        let default = first.variant(&first.default_variant)?;
        best_of(record, first, &default.family, place)
    };
    let place = row.on.problem();
    [place.and_then(previous), place.and_then(first)]
        .map(|base| base.map(|base| (base.subject.clone(), p50(base) / p50(row))))
}

/// A problem, and the best row of each stage on it.
pub type OnProblem<'a> = (Place, Vec<Option<&'a Row>>);

/// The best of each stage on every problem of the first record with latencies, in the order of its rows.
pub fn by_problem<'a>(known: &Known<'a>) -> Vec<OnProblem<'a>> {
    let record = known
        .records()
        .find(|record| shown(record).next().is_some());
    let rows = record.into_iter().flat_map(shown);
    let rows = rows.filter(|row| known.stage(row.subject.stage()).is_some());
    let by_place = grouped(rows.filter_map(|row| Some((row.on.problem()?, row))));
    let best_of_each = |(place, rows): (&Place, Vec<&'a Row>)| {
        let of = |stage: &StageMeta| {
            let of_stage = |row: &&Row| row.subject.stage() == stage.id;
            fastest(rows.iter().copied().filter(of_stage))
        };
        (place.clone(), known.stages.iter().map(of).collect())
    };
    by_place.into_iter().map(best_of_each).collect()
}
