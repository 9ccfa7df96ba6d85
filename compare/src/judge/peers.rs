//! The ladder beside its peers: whose figures are shown, what is won and lost, and fast_p.

use super::best::p50;
use super::list::grouped;
use super::state::{cases, is_green};
use super::{Known, Origin};
use crate::record::{Figure, On, Place, Record, Row, Source, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Shape};
use serde::Serialize;

/// The speedups of fast_p.
const P: [f64; 3] = [1.0, 1.5, 2.0];

/// The peer that fast_p is about: what a user gets who chooses nothing.
pub const DEFAULT: &str = "torch-default";

/// KernelBench runs a program on this many random inputs before it calls it correct.
const INPUTS: f64 = 5.0;

/// One problem: our fastest candidate, and the fastest right peer.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub place: Place,
    /// Whose session these figures are of.
    pub record: &'a Record,
    pub origin: Origin,
    pub ours: &'a Row,
    /// The fastest peer, and our speedup over it with its interval; absent where none was right.
    pub fastest: Option<(&'a Row, &'a Row)>,
}

/// How ours stands against a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Won,
    Lost,
    /// The interval of the ratio has 1 in it.
    Undecided,
}

/// By the interval of the ratio, peer's time / ours.
pub fn outcome(ratio: Figure) -> Outcome {
    let (low, high) = ratio.ends();
    match () {
        () if low > 1.0 => Outcome::Won,
        () if high < 1.0 => Outcome::Lost,
        () => Outcome::Undecided,
    }
}

/// The newest figures of peers.
pub struct Beside<'a> {
    /// The newest session.
    pub record: &'a Record,
    pub origin: Origin,
    /// Those of the newest session, and of older ones what it did not come to: what is lost does not go unsaid because a session
    /// ended before it.
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

/// The share of f16 problems on which the fastest of ours, or the candidate, is right and more than p times as fast as PyTorch's
/// default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FastP {
    pub of: usize,
    /// p, and how many problems.
    pub faster: Vec<(f64, usize)>,
}

/// Candidates of the session, ours and theirs, in the order of the record.
pub fn arms(record: &Record) -> impl Iterator<Item = &Row> {
    let is_arm = |row: &&Row| row.against.is_none() && row.on.problem().is_some();
    record
        .by(Source::Peers)
        .filter(is_arm)
        .filter(|row| !row.has(Metric::PeakShare))
}

/// The growth of our device time with the sequence length.
pub struct Growth<'a> {
    pub origin: Origin,
    /// By head_dim and sequence length; at least one.
    pub rows: Vec<(Shape, &'a Row)>,
}

/// Ours alone by sequence length, of the run, else of the newest record that has it.
pub fn growth<'a>(known: &Known<'a>) -> Option<Growth<'a>> {
    known.sources().into_iter().find_map(|(name, record)| {
        let of_shape = |row: &'a Row| Some((record.meta.shape(&row.on.problem()?.shape)?, row));
        let mut rows: Vec<(Shape, &Row)> = record
            .by(Source::Peers)
            .filter(|row| row.has(Metric::PeakShare))
            .filter_map(of_shape)
            .collect();
        rows.sort_by_key(|(shape, _)| (shape.head_dim, shape.seq_kv));
        let origins = rows
            .iter()
            .map(|(_, row)| known.origin(name, record, row.subject.stage(), true));
        let origin = worst(origins)?;
        Some(Growth { origin, rows })
    })
}

/// Stale where any of them is.
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

/// The fastest peer whose output is right, of those that `is_rival`, and our speedup over it.
pub fn fastest<'a>(
    record: &'a Record,
    ours: &Row,
    is_rival: impl Fn(&Subject) -> bool,
) -> Option<(&'a Row, &'a Row)> {
    let theirs = arms(record)
        .filter(|row| row.on == ours.on && is_rival(&row.subject) && !is_ours(record, row));
    // There is no speedup over one that is wrong.
    let right = theirs.filter_map(|peer| Some((peer, over(record, ours, &peer.subject)?)));
    right.min_by(|a, b| p50(a.0).total_cmp(&p50(b.0)))
}

/// Peers of the run, else of the newest record that has them; each problem of the newest session on that GPU that came to it, whatever it
/// found: where ours was wrong, an older figure would hide it.
pub fn beside<'a>(known: &Known<'a>) -> Option<Beside<'a>> {
    let mut newest: Option<&'a Record> = None;
    let mut problems: Vec<Problem<'a>> = Vec::new();
    let mut came_to: Vec<&Place> = Vec::new();
    for (name, record) in known.sources() {
        if newest.is_some_and(|newest| newest.meta.gpu() != record.meta.gpu()) {
            continue;
        }
        problems.extend(problems_of(known, name, record, &came_to));
        came_to.extend(arms(record).filter_map(|row| row.on.problem()));
        if !came_to.is_empty() {
            newest.get_or_insert(record);
        }
    }
    let record = newest?;
    let size = |problem: &Problem<'_>| {
        let shape = problem.record.meta.shape(&problem.place.shape);
        shape.map_or(0, |shape| {
            shape.batch * shape.heads_q * shape.seq_q * shape.seq_kv * shape.head_dim
        })
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

/// Peers that the session has not timed on problems of its own where they were the fastest when they were last timed on the same
/// GPU, in `others` (newest first), with the number of these problems: what is won without them says less.
fn left_out<'a>(
    record: &Record,
    others: impl IntoIterator<Item = &'a Record>,
) -> Vec<(&'a Subject, usize)> {
    let same_gpu = others
        .into_iter()
        .filter(|other| !std::ptr::eq(*other, record) && other.meta.gpu() == record.meta.gpu());
    let mut seen: Vec<(&Subject, &On)> = Vec::new();
    let mut missing: Vec<(&Subject, &On)> = Vec::new();
    for other in same_gpu {
        let timed = arms(other).filter(|row| row.has(Metric::P50));
        let (ours, theirs): (Vec<&Row>, Vec<&Row>) = timed.partition(|row| is_ours(other, row));
        for peer in theirs {
            let found = (&peer.subject, &peer.on);
            if seen.contains(&found) {
                continue; // a newer session says more
            }
            seen.push(found);
            let here: Vec<&Row> = arms(record).filter(|row| row.on == peer.on).collect();
            let came_to = here.iter().any(|row| is_ours(record, row));
            let mut again = here.iter().filter(|row| row.subject == peer.subject);
            if !came_to || again.any(|row| row.has(Metric::P50)) {
                continue;
            }
            let mut beside = ours.iter().filter(|ours| ours.on == peer.on);
            let is_fastest = beside.any(|ours| {
                fastest(other, ours, |_| true).is_some_and(|(row, _)| row.subject == peer.subject)
            });
            if is_fastest {
                missing.push(found);
            }
        }
    }
    let by_peer = grouped(missing).into_iter();
    by_peer.map(|(peer, on)| (peer, on.len())).collect()
}

/// The same in words.
pub fn without<'a>(
    record: &Record,
    others: impl IntoIterator<Item = &'a Record>,
) -> impl Iterator<Item = String> {
    left_out(record, others)
        .into_iter()
        .map(|(peer, problems)| {
            format!("without {peer}, the fastest on {problems} of its problems in older records")
        })
}

/// The problems of one session but those that newer ones came to.
fn problems_of<'a>(
    known: &Known<'a>,
    name: Option<&'a str>,
    record: &'a Record,
    came_to: &[&Place],
) -> Vec<Problem<'a>> {
    let mut problems: Vec<Problem<'a>> = Vec::new();
    for ours in arms(record).filter(|row| is_ours(record, row) && row.failure().is_none()) {
        let Some(place) = ours.on.problem().filter(|place| !came_to.contains(place)) else {
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
    let mut speedups = Vec::new();
    let is_f16 = |problem: &&Problem<'_>| problem.place.dtype == Dtype::F16;
    for Problem { ours, .. } in problems.iter().filter(is_f16) {
        let default = Subject::from(DEFAULT);
        let is_timed = arms(record)
            .any(|row| row.subject == default && row.on == ours.on && row.has(Metric::P50));
        if !is_timed {
            continue; // nor is any that an older session stands in for
        }
        let is_right =
            is_green(record, &ours.subject) && cases(record, &ours.subject) >= Some(INPUTS);
        // Ours has no ratio where the timed buffers are wrong.
        let speedup = over(record, ours, &default)
            .filter(|_| is_right)
            .and_then(|row| row.value(Metric::SpeedupP50));
        speedups.push(speedup.unwrap_or(0.0));
    }
    let faster = P
        .map(|p| (p, speedups.iter().filter(|&&speedup| speedup > p).count()))
        .to_vec();
    (!speedups.is_empty()).then_some(FastP {
        of: speedups.len(),
        faster,
    })
}
