//! Which variant is best, by which figure, and whose it is.

use super::list::grouped;
use super::state::is_green;
use super::{Known, Origin};
use crate::record::meta::Gpu;
use crate::record::{On, Place, Record, Row, Source, StageMeta, Subject};
use common::metric::Metric;

/// Whether it is a variant's latency on a problem.
pub fn is_latency(row: &Row) -> bool {
    row.by == Source::Gpu
        && row.against.is_none()
        && row.on.problem().is_some()
        && row.has(Metric::P50)
}

/// Latencies of a record, shown or not.
pub fn timed(record: &Record) -> impl Iterator<Item = &Row> {
    record.rows.iter().filter(|row| is_latency(row))
}

/// The latency of a variant on a problem, shown or not.
pub fn time<'a>(record: &'a Record, subject: &Subject, place: &Place) -> Option<&'a Row> {
    let row = record.row(subject, &On::Problem(place.clone()), Source::Gpu);
    row.filter(|row| is_latency(row))
}

/// Why a latency may not be shown.
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

/// Latencies that may be shown: green in the same record, and green after timing.
pub fn shown(record: &Record) -> impl Iterator<Item = &Row> {
    timed(record).filter(|row| withheld(record, row).is_none())
}

pub fn p50(row: &Row) -> f64 {
    row.value(Metric::P50).unwrap_or(f64::INFINITY)
}

/// The fastest shown variant of a stage on a problem, of those that `takes`.
pub fn best<'a>(
    record: &'a Record,
    stage: &str,
    place: &Place,
    takes: impl Fn(&str) -> bool,
) -> Option<&'a Row> {
    // Whether a row may be shown is asked last: it takes a look at the whole record.
    let of_stage =
        timed(record).filter(|row| row.subject.stage() == stage && row.on.problem() == Some(place));
    let taken = of_stage.filter(|row| takes(row.subject.name()));
    fastest(taken.filter(|row| withheld(record, row).is_none()))
}

/// Of two with the same median the first by name, in whatever order they were written.
pub fn fastest<'a>(rows: impl Iterator<Item = &'a Row>) -> Option<&'a Row> {
    rows.min_by(|a, b| {
        p50(a)
            .total_cmp(&p50(b))
            .then_with(|| a.subject.cmp(&b.subject))
    })
}

/// The fastest of a family.
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

/// The best variant of a stage: the fastest shown one on mission in its first element type, in the first record that timed the kernel
/// as it is now, else as it was, of those that the device can run; the default where there is none.
pub fn variant<'a>(known: &Known<'a>, stage: &'a StageMeta) -> &'a str {
    let dtype = stage.first_dtype();
    let place = Place::claims(dtype);
    let runs = |name: &str| {
        stage
            .variant(name)
            .is_some_and(|variant| variant.takes_claims.contains(&dtype))
    };
    let records = known.sources().into_iter().map(|(_, record)| record);
    let (of_now, older): (Vec<_>, Vec<_>) = records.partition(|record| record.is_of(stage));
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
    NoData(String),
}

/// This run's, else the newest committed one of the kernel as it is now, else the newest.
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
    stale.unwrap_or_else(|| {
        Latency::NoData(match known.run.map(|(_, run)| &run.meta.machine.gpu) {
            Some(Gpu::Absent { reason }) => {
                format!("no GPU here ({reason}), and no committed record has it")
            }
            Some(Gpu::Present { .. }) => {
                "not timed in this run, and no committed record has it".into()
            }
            None => "no committed record has it".into(),
        })
    })
}

/// Every record of the kernel as it is now on the GPU of `like` that shows this latency, the newest first.
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

/// `base / new` of the medians of two rows of one record.
pub fn speedup(base: Option<&Row>, new: &Row) -> Option<(Subject, f64)> {
    base.map(|base| (base.subject.clone(), p50(base) / p50(new)))
}

/// Against the best variant of the predecessor, and of the first stage's default family, in the same record.
pub fn speedups(record: &Record, row: &Row) -> [Option<(Subject, f64)>; 2] {
    let On::Problem(place) = &row.on else {
        return [None, None];
    };
    let stage = record.stage(row.subject.stage());
    let previous =
        stage.and_then(|stage| best(record, stage.predecessor.as_deref()?, place, |_| true));
    let first = record.meta.stages.first();
    let first = first.and_then(|first| {
        best_of(
            record,
            first,
            &first.variant(&first.default_variant)?.family,
            place,
        )
    });
    [speedup(previous, row), speedup(first, row)]
}

/// A problem, and the best row of each stage of the ladder on it.
pub type OnProblem<'a> = (Place, Vec<Option<&'a Row>>);

/// The best of each stage on every problem of the first record that timed any, in the order of the rows.
pub fn by_problem<'a>(known: &Known<'a>) -> Vec<OnProblem<'a>> {
    let mut records = known.sources().into_iter().map(|(_, record)| record);
    let rows = records
        .find(|record| shown(record).next().is_some())
        .into_iter()
        .flat_map(shown)
        .filter(|row| known.stage(row.subject.stage()).is_some());
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
