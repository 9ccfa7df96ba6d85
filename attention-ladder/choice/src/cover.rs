//! The instances that a model's file has: few, and something fast for every problem.

use super::equations::{Instance, ProblemId};
use std::collections::{BTreeMap, BTreeSet};

/// The logarithm of how much slower than the fastest a variant without a time at a problem is taken
/// to be: 20 times.
const UNTIMED_LOG_RATIO: f64 = 3.0;

/// The time of an instance at a problem.
pub struct Time {
    pub problem: ProblemId,
    pub us: f64,
}

pub type Times = BTreeMap<Instance, Vec<Time>>;

/// How much slower than the fastest an instance is at a problem.
struct Lag {
    problem: ProblemId,
    log_ratio: f64,
}

/// Returns instances that together have something fast for every problem. Each next one is the one
/// that gains most over those before it, as long as it gains `min_mean_gain` on average over all
/// problems.
pub fn cover(times: &Times, min_mean_gain: f64) -> BTreeSet<Instance> {
    let fastest = fastest_times(times);
    let min_gain = min_mean_gain * fastest.len() as f64;
    let lags = lags(times, &fastest);
    let mut best_so_far: BTreeMap<ProblemId, f64> = fastest
        .keys()
        .map(|problem| (*problem, UNTIMED_LOG_RATIO))
        .collect();
    let mut kept = BTreeSet::new();
    while let Some(next) = greatest_gain(&lags, &best_so_far, min_gain) {
        for lag in &lags[next] {
            let best = best_so_far.entry(lag.problem).or_insert(lag.log_ratio);
            *best = best.min(lag.log_ratio);
        }
        kept.insert(next.clone());
    }
    kept
}

fn fastest_times(times: &Times) -> BTreeMap<ProblemId, f64> {
    let mut fastest = BTreeMap::new();
    for time in times.values().flatten() {
        let least = fastest.entry(time.problem).or_insert(time.us);
        *least = time.us.min(*least);
    }
    fastest
}

fn lags<'a>(
    times: &'a Times,
    fastest: &BTreeMap<ProblemId, f64>,
) -> BTreeMap<&'a Instance, Vec<Lag>> {
    let mut lags = BTreeMap::new();
    for (instance, own_times) in times {
        let of_instance = own_times.iter().map(|time| Lag {
            problem: time.problem,
            log_ratio: (time.us / fastest[&time.problem]).ln(),
        });
        lags.insert(instance, of_instance.collect());
    }
    lags
}

/// Returns the instance that gains most over what is kept so far, if it gains at least `min_gain`.
fn greatest_gain<'a>(
    lags: &BTreeMap<&'a Instance, Vec<Lag>>,
    best_so_far: &BTreeMap<ProblemId, f64>,
    min_gain: f64,
) -> Option<&'a Instance> {
    let mut greatest = None;
    let mut greatest_gain = min_gain;
    for (instance, own_lags) in lags {
        let gains = own_lags
            .iter()
            .map(|lag| (best_so_far[&lag.problem] - lag.log_ratio).max(0.0));
        let gain: f64 = gains.sum();
        // Of equal gains the last counts.
        if gain >= greatest_gain {
            greatest = Some(*instance);
            greatest_gain = gain;
        }
    }
    greatest
}
