//! From interleaved samples to figures, ratios and verdicts. Pure.

use crate::table::{Kind, ProblemPlace, Row, Subject};
use common::metric::Metric;
use common::timing::stats::{SampleError, Summary};
use common::timing::sustained::Sustained;
use common::timing::{Comparison, SpeedOfLight, claim};
use common::verdict::{GateResult, Verdict};
use std::ops::Range;

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

/// The arms that are timed sustained where one of all reaches the power limit: the fastest of the first `ours` and what the library
/// chooses, by their bursts, with the fastest of the others. None where a side is missing.
pub fn sustained_arms(
    samples: &[&[f64]],
    ours: usize,
    library: Option<usize>,
) -> Option<SustainedArms> {
    let p50 = |arm: &usize| Summary::of(samples[*arm]).map_or(f64::INFINITY, |summary| summary.p50);
    let fastest = |arms: Range<usize>| arms.min_by(|a, b| p50(a).total_cmp(&p50(b)));
    let (fastest_of_ours, peer) = (fastest(0..ours)?, fastest(ours..samples.len())?);
    let library = library.filter(|library| *library != fastest_of_ours);
    let mut arms = vec![fastest_of_ours, peer];
    arms.extend(library);
    arms.sort_unstable();
    Some(SustainedArms { arms, peer })
}

/// Arms by their places among all, in that order.
#[derive(Clone, Debug, PartialEq)]
pub struct SustainedArms {
    pub arms: Vec<usize>,
    /// The fastest peer, which is one of them.
    pub peer: usize,
}

/// Leaves the bursts alone where the `peer` that was timed sustained turns out wrong: ours would have no rival in its regime. An arm
/// without a burst goes.
pub fn without_wrong_peer(sampled: &mut Vec<Sampled>, peer: &Subject) {
    let is_right = |arm: &Sampled| arm.subject == *peer && arm.is_right();
    if sampled.iter().any(is_right) {
        return;
    }
    for arm in sampled.iter_mut() {
        arm.sustained = None;
    }
    sampled.retain(|arm| !arm.device_us.is_empty());
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
    /// Device time in bursts, in rounds; none of the library's choice where it was timed sustained alone.
    pub device_us: Vec<f64>,
    /// The counted time of an arm that was timed sustained, too: its row has this.
    pub sustained: Option<Sustained>,
    /// Of the host, for a call from Python.
    pub host_us: Option<Vec<f64>>,
    pub judged: crate::measure::timed_problem::Judged,
}

impl Sampled {
    pub fn is_right(&self) -> bool {
        !self.judged.gates.iter().any(GateResult::is_fail)
    }

    /// Its row. `cache` is what the buffers amount to.
    pub fn row(&self, place: &ProblemPlace, cache: &str) -> Result<Row, SampleError> {
        let row = Row::new(&self.subject, Kind::PeerTime(place.clone()))
            .timed(&Summary::of(self.us())?, &self.judged.gates)
            .conditions(cache);
        let row = self.in_regime(row);
        let host = self.host_us.as_deref().map(Summary::of).transpose()?;
        Ok(row
            .with_figures(host.map(|host| (Metric::HostP50, host.p50)))
            .figure(Metric::MaxError, self.judged.max_abs))
    }

    /// The samples of its row.
    pub fn us(&self) -> &[f64] {
        match &self.sustained {
            Some(sustained) => &sustained.us,
            None => &self.device_us,
        }
    }

    fn in_regime(&self, row: Row) -> Row {
        match &self.sustained {
            Some(sustained) => row.sustained_by(&sustained.load),
            None => row,
        }
    }
}

/// A peer's time over ours, both sustained or both in bursts; `cache` is what the buffers amount to. A side whose output is wrong has no
/// ratio, nor have sides without a regime in common; a time that is impossible fails.
pub fn pair(
    theirs: &Sampled,
    ours: &Sampled,
    place: &ProblemPlace,
    cache: &str,
    speed_of_light: &SpeedOfLight,
) -> Result<Option<Row>, SampleError> {
    if !(ours.is_right() && theirs.is_right()) {
        return Ok(None);
    }
    let are_sustained = ours.sustained.is_some() && theirs.sustained.is_some();
    let [base, new] = [theirs, ours].map(|arm| match are_sustained {
        true => arm.us(),
        false => &arm.device_us,
    });
    if base.is_empty() || new.is_empty() {
        return Ok(None);
    }
    let row = Row::peer_pair(
        ours.subject.clone(),
        theirs.subject.clone(),
        place.clone(),
        &Comparison::of(base, new)?,
        speed_of_light,
    );
    Ok(Some(match are_sustained {
        true => ours.in_regime(row.conditions(cache)),
        false => row,
    }))
}
