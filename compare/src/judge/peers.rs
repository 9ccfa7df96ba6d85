//! Ours against peers: which figures are shown, what is won and lost, and fast_p.

use super::best::p50;
use super::state::{cases, is_green};
use super::{Known, Origin};
use crate::record::{Figure, Place, Record, Row, Source, Subject};
use common::metric::Metric;
use common::problem::Dtype;
use serde::Serialize;

/// The speedups of fast_p.
const P: [f64; 3] = [1.0, 1.5, 2.0];

/// The peer of fast_p: what PyTorch chooses by itself.
pub const DEFAULT: &str = "torch-default";

/// KernelBench calls a program correct after this many random inputs.
const INPUTS: f64 = 5.0;

/// One problem: the fastest of ours, and the fastest peer whose output is right.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub place: Place,
    /// The session that timed it.
    pub record: &'a Record,
    pub origin: Origin,
    pub ours: &'a Row,
    /// The fastest peer and our speedup over it, unless none was right.
    pub fastest: Option<(&'a Row, &'a Row)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Won,
    Lost,
    /// The interval of the ratio contains 1.
    Undecided,
}

/// By the interval of peer's time / ours.
pub fn outcome(ratio: Figure) -> Outcome {
    let (low, high) = ratio.ends();
    match () {
        () if low > 1.0 => Outcome::Won,
        () if high < 1.0 => Outcome::Lost,
        () => Outcome::Undecided,
    }
}

/// Ours beside peers.
pub struct Beside<'a> {
    /// The newest session.
    pub record: &'a Record,
    pub origin: Origin,
    /// Of the newest session, and of older ones what it did not time: a session that ended early hides no loss.
    pub problems: Vec<Problem<'a>>,
    /// Of the newest session.
    pub fast: Option<FastP>,
}

impl<'a> Beside<'a> {
    /// The problems that are not of the newest session.
    pub fn older(&self) -> impl Iterator<Item = &Problem<'a>> {
        self.problems
            .iter()
            .filter(|problem| !std::ptr::eq(problem.record, self.record))
    }
}

/// The share of f16 problems on which the fastest of ours is right and more than p times as fast as PyTorch's
/// default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FastP {
    pub of: usize,
    /// p, and how many problems.
    pub faster: Vec<(f64, usize)>,
}

/// The arms of a session, ours and theirs, in the order of the record. Older sessions also timed some of ours with nothing beside
/// them, for their share of a matrix product's rate.
pub fn arms(record: &Record) -> impl Iterator<Item = &Row> {
    let is_arm = |row: &&Row| row.against.is_none() && row.on.problem().is_some();
    let is_alone = |row: &Row| {
        let mut others = record.by(Source::Peers);
        let is_other = |other: &Row| other.on == row.on && other.subject != row.subject;
        row.has(Metric::PeakShare) && !others.any(is_other)
    };
    record
        .by(Source::Peers)
        .filter(is_arm)
        .filter(move |row| !is_alone(row))
}

/// The first that is stale, else the first.
fn worst(origins: impl Iterator<Item = Origin>) -> Option<Origin> {
    origins.reduce(|worst, origin| if worst.is_stale() { worst } else { origin })
}

pub fn is_ours(record: &Record, row: &Row) -> bool {
    record.stage(row.subject.stage()).is_some()
}

/// Our speedup over a peer on a problem.
pub fn over<'a>(record: &'a Record, ours: &Row, peer: &Subject) -> Option<&'a Row> {
    record.pair(&ours.subject, peer, &ours.on, Source::Peers)
}

/// The fastest peer whose output is right, of those that `is_rival` accepts, and our speedup over it.
pub fn fastest<'a>(
    record: &'a Record,
    ours: &Row,
    is_rival: impl Fn(&Subject) -> bool,
) -> Option<(&'a Row, &'a Row)> {
    let theirs = arms(record)
        .filter(|row| row.on == ours.on && is_rival(&row.subject) && !is_ours(record, row));
    // A wrong peer has no speedup.
    let right = theirs.filter_map(|peer| Some((peer, over(record, ours, &peer.subject)?)));
    right.min_by(|a, b| p50(a.0).total_cmp(&p50(b.0)))
}

/// From the run, else from the newest record with peers. Each problem is taken from the newest session on that GPU that timed it,
/// whatever it found: an older figure must not hide that ours was wrong.
pub fn beside<'a>(known: &Known<'a>) -> Option<Beside<'a>> {
    let mut newest: Option<&'a Record> = None;
    let mut problems: Vec<Problem<'a>> = Vec::new();
    let mut done: Vec<&Place> = Vec::new();
    for (name, record) in known.sources() {
        if newest.is_some_and(|newest| newest.meta.gpu() != record.meta.gpu()) {
            continue;
        }
        problems.extend(problems_of(known, name, record, &done));
        done.extend(arms(record).filter_map(|row| row.on.problem()));
        if !done.is_empty() {
            newest.get_or_insert(record);
        }
    }
    let record = newest?;
    let size = |problem: &Problem<'_>| {
        let shape = problem.record.meta.shape(&problem.place.shape);
        shape.map_or(0, |s| s.batch * s.heads_q * s.seq_q * s.seq_kv * s.head_dim)
    };
    problems.sort_by_key(|problem| (problem.place.dtype, size(problem), problem.place.mask));
    let of_newest = problems
        .iter()
        .filter(|problem| std::ptr::eq(problem.record, record));
    let origin = worst(of_newest.map(|problem| problem.origin.clone()))?;
    let fast = fast(record, &problems);
    Some(Beside {
        record,
        origin,
        problems,
        fast,
    })
}

/// The problems of one session that no newer one has `done`.
fn problems_of<'a>(
    known: &Known<'a>,
    name: Option<&'a str>,
    record: &'a Record,
    done: &[&Place],
) -> Vec<Problem<'a>> {
    let mut problems: Vec<Problem<'a>> = Vec::new();
    for ours in arms(record).filter(|row| is_ours(record, row) && row.failure().is_none()) {
        let Some(place) = ours.on.problem().filter(|place| !done.contains(place)) else {
            continue;
        };
        match problems.iter_mut().find(|known| known.place == *place) {
            Some(known) if p50(ours) < p50(known.ours) => known.ours = ours,
            Some(_) => {}
            None => problems.push(Problem {
                place: place.clone(),
                record,
                origin: Origin::Run,
                ours,
                fastest: None,
            }),
        }
    }
    for problem in &mut problems {
        problem.origin = known.origin(name, record, problem.ours.subject.stage(), true);
        problem.fastest = fastest(record, problem.ours, |_| true);
    }
    problems
}

fn fast(record: &Record, problems: &[Problem<'_>]) -> Option<FastP> {
    let default = Subject::from(DEFAULT);
    // A problem that only an older session timed is not of this one.
    let is_timed = |problem: &&Problem<'_>| {
        let row = record.row(&default, &problem.ours.on, Source::Peers);
        problem.place.dtype == Dtype::F16 && row.is_some_and(|row| row.has(Metric::P50))
    };
    let speedup = |Problem { ours, .. }: &Problem<'_>| {
        let is_right =
            is_green(record, &ours.subject) && cases(record, &ours.subject) >= Some(INPUTS);
        // If the timed output was wrong there is no ratio.
        let over = over(record, ours, &default).filter(|_| is_right);
        over.and_then(|row| row.value(Metric::SpeedupP50))
            .unwrap_or(0.0)
    };
    let speedups: Vec<f64> = problems.iter().filter(is_timed).map(speedup).collect();
    let faster = |p| (p, speedups.iter().filter(|&&speedup| speedup > p).count());
    (!speedups.is_empty()).then(|| FastP {
        of: speedups.len(),
        faster: P.map(faster).into(),
    })
}
