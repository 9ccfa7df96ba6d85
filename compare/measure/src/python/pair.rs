//! From interleaved samples to figures, ratios and verdicts. Pure.

use common::metric::Metric;
use common::timing::stats::{SampleError, Summary};
use common::timing::sustained::Sustained;
use common::timing::{Comparison, SpeedOfLight, claim};
use common::verdict::{GateResult, Verdict};
use results::table::{Kind, ProblemPlace, Row, Subject};
use std::ops::Range;

/// The most passes of rounds, while it is undecided who is faster.
const PASSES: usize = 4;

/// The samples of an arm, in microseconds.
pub type ArmSamples = Vec<f64>;

/// Takes samples of `arms` arms, at least `samples` of each, in rounds of `0 1 … n n … 1 0`: of any
/// two arms each round has two samples, mirrored around its middle, so that a drift within it
/// cancels as in A B B A. Takes up to [`PASSES`] times as many while it is undecided which of the
/// first `ours` arms are faster than the fastest of the others.
pub fn rounds<E>(
    arms: usize,
    ours: usize,
    samples: usize,
    mut sample: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Vec<ArmSamples>, E> {
    let mut samples_of_arms = vec![Vec::new(); arms];
    for pass in 0..PASSES {
        if pass > 0 && !is_open(&samples_of_arms, ours) {
            break;
        }
        for _ in 0..samples.div_ceil(2) {
            for arm in (0..arms).chain((0..arms).rev()) {
                samples_of_arms[arm].push(sample(arm)?);
            }
        }
    }
    Ok(samples_of_arms)
}

/// Returns whether gate L1 leaves undecided if any of the first `ours` arms is faster than the
/// fastest of the others.
fn is_open(samples: &[Vec<f64>], ours: usize) -> bool {
    let (our_arms, their_arms) = samples.split_at(ours);
    let fastest = their_arms
        .iter()
        .min_by(|a, b| p50(a, f64::NAN).total_cmp(&p50(b, f64::NAN)));
    let Some(base) = fastest else {
        return false;
    };
    our_arms.iter().any(|arm| is_undecided(base, arm))
}

fn is_undecided(base: &[f64], arm: &[f64]) -> bool {
    match Comparison::new(base, arm) {
        Ok(pair) => claim::judge(&pair.ratios, pair.noise(), 1.0).verdict == Verdict::Ambiguous,
        Err(_) => true,
    }
}

/// Returns the median of an arm's samples, or `otherwise` where they have none.
fn p50(samples: &[f64], otherwise: f64) -> f64 {
    Summary::new(samples).map_or(otherwise, |summary| summary.p50)
}

/// Arms by their places among all, in that order.
#[derive(Clone, Debug, PartialEq)]
pub struct SustainedArms {
    pub arms: Vec<usize>,
    /// The fastest peer, which is one of them.
    pub peer: usize,
}

/// Returns the arms that are timed sustained where one of all reaches the power limit: the fastest
/// of the first `ours` and the library's choice, with the fastest of the others, by their bursts.
/// Returns nothing where a side is missing.
pub fn sustained_arms(
    samples: &[&[f64]],
    ours: usize,
    library: Option<usize>,
) -> Option<SustainedArms> {
    let fastest_of_ours = fastest_of(samples, 0..ours)?;
    let peer = fastest_of(samples, ours..samples.len())?;
    let mut arms = vec![fastest_of_ours, peer];
    arms.extend(library.filter(|arm| *arm != fastest_of_ours));
    arms.sort_unstable();
    Some(SustainedArms { arms, peer })
}

fn fastest_of(samples: &[&[f64]], mut arms: Range<usize>) -> Option<usize> {
    let first = arms.next()?;
    let mut fastest = first;
    let mut least_us = p50(samples[first], f64::INFINITY);
    for arm in arms {
        let us = p50(samples[arm], f64::INFINITY);
        if us < least_us {
            (fastest, least_us) = (arm, us);
        }
    }
    Some(fastest)
}

/// Leaves the bursts alone where the `peer` that was timed sustained turns out wrong: ours would
/// have no rival in its regime. An arm without a burst goes.
pub fn without_wrong_peer(sampled: &mut Vec<Sampled>, peer: &Subject) {
    let is_right = sampled
        .iter()
        .any(|arm| arm.subject == *peer && arm.is_right());
    if is_right {
        return;
    }
    for arm in sampled.iter_mut() {
        arm.sustained = None;
    }
    sampled.retain(|arm| !arm.device_us.is_empty());
}

/// The least share of the time that passed here that a process must report in the median of its
/// chunks. A chunk is 25 ms with its lead-in, or more. Asking for it, starting it and learning of
/// its end take some tenths of a millisecond on a quiet host; where three programs share each of
/// its cores, medians of 0.72 to 0.85 were seen of honest ones.
const LEAST_REPORTED: f64 = 0.7;

/// Returns what is wrong with the clock of a process that reported such shares of the time that
/// passed here, chunk by chunk. Its median counts: one chunk that an honest process ends late fails
/// nothing, and one that is reported in full hides no others.
pub fn wrong_clock(reported: &[f64]) -> Option<String> {
    // NaN counts as 0.
    let mut shares: Vec<f64> = reported.iter().map(|share| share.max(0.0)).collect();
    shares.sort_by(f64::total_cmp);
    let median = shares.get(shares.len() / 2).copied().unwrap_or(0.0);
    if median >= LEAST_REPORTED {
        return None;
    }
    Some(format!(
        "its process reports {:.0} % of the time that passes here, expected at least {:.0} %: its \
         clock or its launches were tampered with, or other work on this host delays them",
        100.0 * median,
        100.0 * LEAST_REPORTED
    ))
}

/// An arm's samples, and the judgement of its outputs.
pub struct Sampled {
    pub subject: Subject,
    /// Device time in bursts, in rounds; none of the library's choice where it was timed sustained
    /// alone.
    pub device_us: Vec<f64>,
    /// The counted time of an arm that was timed sustained, too: its row has this.
    pub sustained: Option<Sustained>,
    /// The host's time of a call from Python.
    pub host_us: Option<Vec<f64>>,
    pub judged: crate::timed_problem::Judged,
}

impl Sampled {
    /// Returns whether no gate fails its outputs.
    pub fn is_right(&self) -> bool {
        !self.judged.gates.iter().any(GateResult::is_fail)
    }

    /// Makes its row; `cache` is the state of the cache that the buffers amount to.
    pub fn row(&self, place: &ProblemPlace, cache: &str) -> Result<Row, SampleError> {
        let device_time = Summary::new(self.us())?;
        let kind = Kind::PeerTime(place.clone());
        let timed = Row::new(&self.subject, kind)
            .timed(&device_time, &self.judged.gates)
            .conditions(cache);
        let mut row = self.in_regime(timed);
        row = row.figure(Metric::MaxError, self.judged.max_abs);
        if let Some(host_us) = &self.host_us {
            let host_time = Summary::new(host_us)?;
            row = row.figure(Metric::HostP50, host_time.p50);
        }
        Ok(row)
    }

    /// Returns the samples of its row.
    fn us(&self) -> &[f64] {
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

/// Makes the row of a peer's time over ours, both sustained or both in bursts; `cache` is the state
/// of the cache that the buffers amount to. A side whose output is wrong has no ratio, nor have
/// sides without a regime in common; a time that is impossible fails.
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
    let is_sustained = ours.sustained.is_some() && theirs.sustained.is_some();
    let (base, new) = if is_sustained {
        (theirs.us(), ours.us())
    } else {
        (&*theirs.device_us, &*ours.device_us)
    };
    if base.is_empty() || new.is_empty() {
        return Ok(None);
    }
    let row = Row::peer_pair(
        ours.subject.clone(),
        theirs.subject.clone(),
        place.clone(),
        &Comparison::new(base, new)?,
        speed_of_light,
    );
    Ok(Some(if is_sustained {
        ours.in_regime(row.conditions(cache))
    } else {
        row
    }))
}
