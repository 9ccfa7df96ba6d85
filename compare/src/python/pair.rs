//! From interleaved samples to figures, ratios and verdicts. Pure.

use crate::measure::rows;
use crate::table::{Place, ProblemPlace, Row, Source, Subject};
use common::metric::Metric;
use common::timing::stats::{SampleError, Summary};
use common::timing::{Comparison, SpeedOfLight, claim};
use common::verdict::{GateResult, Verdict};

/// Rounds are taken this many times at most, while it is inconclusive who is faster.
const PASSES: usize = 4;

/// Samples of `arms` arms, at least `samples` of each, in rounds of `0 1 … n n … 1 0`: of any two arms each round has two samples,
/// mirrored around its middle, so that a drift within it cancels as in A B B A. Up to [`PASSES`] times as many while it is inconclusive
/// which of the first `ours` arms are faster than the fastest of the others.
pub fn rounds<E>(
    arms: usize,
    ours: usize,
    samples: usize,
    mut sample: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let mut taken = vec![Vec::new(); arms];
    for pass in 0..PASSES {
        if pass > 0 && !is_open(&taken, ours) {
            break;
        }
        for _ in 0..samples.div_ceil(2) {
            for arm in (0..arms).chain((0..arms).rev()) {
                taken[arm].push(sample(arm)?);
            }
        }
    }
    Ok(taken)
}

/// Whether gate L1 leaves inconclusive if any of the first `ours` arms is faster than the fastest of the others.
fn is_open(samples: &[Vec<f64>], ours: usize) -> bool {
    let (ours, theirs) = samples.split_at(ours);
    let p50 = |arm: &&Vec<f64>| Summary::of(arm).map_or(f64::NAN, |summary| summary.p50);
    let fastest = theirs.iter().min_by(|a, b| p50(a).total_cmp(&p50(b)));
    let is_inconclusive = |base: &[f64], arm: &[f64]| {
        Comparison::of(base, arm).map_or(true, |pair| {
            claim::judge(&pair.ratios, pair.noise(), 1.0).verdict == Verdict::Ambiguous
        })
    };
    fastest.is_some_and(|base| ours.iter().any(|arm| is_inconclusive(base, arm)))
}

/// The share of the time that passed here that a process must report in the median of its chunks. A chunk is 25 ms with its
/// lead-in, or more. Asking for it, starting it and learning of its end take some tenths of a millisecond on a quiet host; where
/// three programs share each of its cores, medians of 0.72 to 0.85 were seen of honest ones.
const LEAST_REPORTED: f64 = 0.7;

/// What is wrong with the clock of a process that reported such shares of the time that passed here, chunk by chunk. Its median
/// counts: one chunk that an honest process ends late fails nothing, and one that is reported in full hides no others.
pub fn wrong_clock(reported: &[f64]) -> Option<String> {
    let mut reported = reported.to_vec();
    // NaN counts as 0.
    reported
        .iter_mut()
        .for_each(|share| *share = share.max(0.0));
    reported.sort_by(f64::total_cmp);
    let median = reported.get(reported.len() / 2).copied().unwrap_or(0.0);
    (median < LEAST_REPORTED).then(|| {
        format!(
            "its process reports {:.0} % of the time that passes here, expected at least {:.0} %: its clock or its launches were tampered with, or other work on this host delays them",
            100.0 * median,
            100.0 * LEAST_REPORTED
        )
    })
}

/// One arm's samples and what the gates say of its output.
pub struct Sampled {
    pub subject: Subject,
    /// Device time, in rounds.
    pub device_us: Vec<f64>,
    /// Of the host, for a call from Python.
    pub host_us: Option<Vec<f64>>,
    pub judged: crate::measure::timed_problem::Judged,
}

impl Sampled {
    fn is_right(&self) -> bool {
        !self.judged.gates.iter().any(GateResult::is_fail)
    }

    /// Its row. `cache` is what the buffers amount to.
    pub fn row(&self, place: &ProblemPlace, cache: &str) -> Result<Row, SampleError> {
        let row = Row::new(&self.subject, Place::Problem(place.clone()), Source::Peers);
        let row = rows::arm(row, &Summary::of(&self.device_us)?, &self.judged.gates);
        let host = self.host_us.as_deref().map(Summary::of).transpose()?;
        Ok(row
            .conditions(cache)
            .with_figures(host.map(|host| (Metric::HostP50, host.p50)))
            .figure(Metric::MaxError, self.judged.max_abs))
    }
}

/// A peer's time over ours. A side whose output is wrong has no ratio; a time that is impossible fails.
pub fn pair(
    theirs: &Sampled,
    ours: &Sampled,
    place: &ProblemPlace,
    speed_of_light: &SpeedOfLight,
) -> Result<Option<Row>, SampleError> {
    if !(ours.is_right() && theirs.is_right()) {
        return Ok(None);
    }
    Ok(Some(rows::pair(
        ours.subject.clone(),
        theirs.subject.clone(),
        place.clone(),
        Source::Peers,
        &Comparison::of(&theirs.device_us, &ours.device_us)?,
        speed_of_light,
    )))
}

/// A peer that was not timed: on a problem, or on none because it is not there.
pub fn absent(peer: &str, place: Place, reason: impl Into<String>) -> Row {
    Row::new(peer, place, Source::Peers).note(reason)
}
