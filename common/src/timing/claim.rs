//! Gate L1: judges a claimed speedup by a comparison of two arms.

use super::stats::{Interval, Ratio, Ratios, SampleError, Summary, checked_and_sorted, percentile};
use crate::verdict::{GateId, GateResult, Verdict};

/// The largest [`Summary::noise`] at which intervals alone decide.
pub const NOISE_LIMIT: f64 = 0.02;

/// The parts of a session, which are compared one by one. Scatter from round to round is in the
/// intervals; an arm that becomes another one in between is not.
const PARTS: usize = 5;

/// The distance from 1 that the whole interval of the same code stays within. Placement of buffers
/// alone moves a kernel by a few tenths of a percent.
pub const SAME_MARGIN: f64 = 0.005;

/// Two arms that were timed in turns.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The microseconds per launch of the base.
    pub base: Summary,
    /// The microseconds per launch of the candidate.
    pub new: Summary,
    pub ratios: Ratios,
    /// The largest distance of a fifth of the session from all.
    pub drift: f64,
}

named! {
    /// The change of a candidate from its base, by the interval of the median's ratio and a margin.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Change {
        Same = "SAME",
        Faster = "FASTER",
        Slower = "SLOWER",
        Ambiguous = "AMBIGUOUS",
    }
}

impl Change {
    pub fn from_ratio(ratio: &Ratio, margin: f64) -> Self {
        let Interval { low, high } = ratio.interval;
        let (below, above) = (1.0 / (1.0 + margin), 1.0 + margin);
        if low > above {
            Change::Faster
        } else if high < below {
            Change::Slower
        } else if low >= below && high <= above {
            Change::Same
        } else {
            Change::Ambiguous
        }
    }
}

impl Comparison {
    /// Compares the samples of an A B B A run, in rounds as in [`Ratios::new`].
    pub fn new(base: &[f64], new: &[f64]) -> Result<Self, SampleError> {
        let ratios = Ratios::new(base, new)?;
        Ok(Self {
            base: Summary::new(base)?,
            new: Summary::new(new)?,
            ratios,
            drift: drift_of_session(base, new)?,
        })
    }

    /// Returns the noise of the noisier arm; above the limit, how far the ratio drifts if that is
    /// less: at a GPU's power limit clocks wander under both arms alike. NaN where either arm has
    /// none.
    pub fn noise(&self) -> f64 {
        let (base, new) = (self.base.noise(), self.new.noise());
        // `f64::max` passes over a NaN.
        let arms = if base > new || base.is_nan() {
            base
        } else {
            new
        };
        if arms > NOISE_LIMIT && self.drift < arms {
            self.drift
        } else {
            arms
        }
    }

    pub fn is_noisy(&self) -> bool {
        is_noisy(self.noise())
    }

    pub fn change(&self) -> Change {
        Change::from_ratio(&self.ratios.p50, SAME_MARGIN)
    }
}

/// Judges `base / new >= at_least` on p50, p90 and mean: each whole interval must reach the claim
/// to pass; one wholly below fails. Above [`NOISE_LIMIT`] an interval is first widened by all of
/// the noise to either side. [`SpeedOfLight::impossible`](super::SpeedOfLight::impossible) comes
/// first.
pub fn judge(ratios: &Ratios, noise: f64, at_least: f64) -> GateResult {
    let result = |verdict, reason| GateResult {
        gate: GateId::L1,
        verdict,
        reason,
    };
    if noise.is_nan() {
        return result(Verdict::Ambiguous, "no figure for the noise".to_string());
    }
    let margin = if is_noisy(noise) { noise } else { 0.0 };
    let figures = [
        ("p50", ratios.p50),
        ("p90", ratios.p90),
        ("mean", ratios.mean),
    ];
    let verdicts = figures.map(|(_, ratio)| reaches(&ratio, at_least, margin));
    let verdict = [Verdict::Fail, Verdict::Ambiguous]
        .into_iter()
        .find(|worst| verdicts.contains(worst))
        .unwrap_or(Verdict::Pass);
    let list = figures.map(|(name, ratio)| {
        let Interval { low, high } = ratio.interval;
        format!("{name} {:.3}x [{low:.3}, {high:.3}]", ratio.value)
    });
    let widened = if margin > 0.0 {
        format!(" ± noise of {:.1} %", 100.0 * noise)
    } else {
        String::new()
    };
    result(
        verdict,
        format!("{}, claim {at_least:.2}x{widened}", list.join(", ")),
    )
}

/// Returns the largest distance of a part's median ratio from that of all, relative to it. Rounds
/// are those of [`Ratios::new`].
fn drift_of_session(base: &[f64], new: &[f64]) -> Result<f64, SampleError> {
    let mut ratios = Vec::with_capacity(base.len() / 2);
    for (base_round, new_round) in base.chunks(2).zip(new.chunks(2)) {
        let base_us: f64 = base_round.iter().sum();
        let new_us: f64 = new_round.iter().sum();
        ratios.push(base_us / new_us);
    }
    let all = median(&ratios)?;
    let mut drift = 0.0_f64;
    for part in ratios.chunks(ratios.len().div_ceil(PARTS)) {
        drift = drift.max((median(part)? - all).abs() / all);
    }
    Ok(drift)
}

fn median(values: &[f64]) -> Result<f64, SampleError> {
    Ok(percentile(&checked_and_sorted(values)?, 0.5))
}

/// Returns whether intervals alone do not decide. NaN is noise.
fn is_noisy(noise: f64) -> bool {
    noise.is_nan() || noise > NOISE_LIMIT
}

fn reaches(ratio: &Ratio, at_least: f64, margin: f64) -> Verdict {
    if ratio.interval.low / (1.0 + margin) >= at_least {
        Verdict::Pass
    } else if ratio.interval.high * (1.0 + margin) < at_least {
        Verdict::Fail
    } else {
        Verdict::Ambiguous
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::SpeedOfLight;
    use crate::timing::testing::{Samples, rounds, scattered};

    fn measured(base_us: f64, new_us: f64, seed: u64) -> Comparison {
        let Samples { base, new } = rounds(250, base_us, new_us, seed);
        Comparison::new(&base, &new).unwrap()
    }

    fn l1(comparison: &Comparison, at_least: f64) -> GateResult {
        judge(&comparison.ratios, comparison.noise(), at_least)
    }

    #[test]
    fn a_delay_is_seen_and_the_same_code_twice_is_the_same() {
        for seed in 0..20 {
            let change_from = |base, new| measured(base, new, seed).change();
            assert_eq!(change_from(10.0, 10.0), Change::Same, "seed {seed}");
            for slowed in [10.1, 10.2, 10.5] {
                let case = format!("{slowed}, seed {seed}");
                assert_eq!(change_from(10.0, slowed), Change::Slower, "{case}");
                assert_eq!(change_from(slowed, 10.0), Change::Faster, "{case}");
            }
        }
    }

    #[test]
    fn a_change_is_beyond_the_margin_with_its_whole_interval() {
        for (value, low, high, expected) in [
            (1.0, 0.996, 1.005, Change::Same),
            (1.0, 0.994, 1.004, Change::Ambiguous),
            (1.02, 1.006, 1.03, Change::Faster),
            (1.02, 1.005, 1.03, Change::Ambiguous),
            (0.98, 0.97, 0.995, Change::Slower),
            (0.98, 0.97, 0.9951, Change::Ambiguous),
            (f64::NAN, f64::NAN, f64::NAN, Change::Ambiguous),
        ] {
            let interval = Interval { low, high };
            let change = Change::from_ratio(&Ratio { value, interval }, SAME_MARGIN);
            assert_eq!(change, expected, "{value} [{low}, {high}]");
        }
    }

    /// Returns the samples with those of slow rounds lengthened by 6 %.
    fn slowed(samples: &[f64], is_slow: fn(usize) -> bool) -> Vec<f64> {
        let mut lengthened = samples.to_vec();
        for (i, us) in lengthened.iter_mut().enumerate() {
            if is_slow(i / 2) {
                *us *= 1.06;
            }
        }
        lengthened
    }

    /// Returns whether a clock that wanders throughout the session is low.
    fn is_wandering(round: usize) -> bool {
        round % 7 < 2
    }

    #[test]
    fn noise_that_both_arms_share_cancels() {
        let Samples { base, new } = rounds(250, 12.0, 10.0, 3);
        let base_slowed = slowed(&base, is_wandering);
        let new_slowed = slowed(&new, is_wandering);
        let shared = Comparison::new(&base_slowed, &new_slowed).unwrap();
        assert!(shared.new.noise() > 2.0 * NOISE_LIMIT, "{shared:?}");
        assert!(shared.noise() < NOISE_LIMIT, "{shared:?}");
        assert_eq!(l1(&shared, 1.10).verdict, Verdict::Pass);
        assert_eq!(l1(&shared, 1.25).verdict, Verdict::Fail);
    }

    /// Scatter of one arm from round to round is its own, and in the intervals: its slow tail
    /// decides.
    #[test]
    fn scatter_of_one_arm_is_in_the_intervals() {
        let Samples { base, new } = rounds(250, 12.0, 10.0, 3);
        let scattering = Comparison::new(&base, &slowed(&new, is_wandering)).unwrap();
        assert!(scattering.new.noise() > 2.0 * NOISE_LIMIT);
        assert!(scattering.noise() < NOISE_LIMIT);
        let tail = scattering.ratios.p90.interval;
        assert!(tail.high < 1.16, "{scattering:?}");
        assert_eq!(l1(&scattering, tail.low - 0.001).verdict, Verdict::Pass);
        assert_eq!(l1(&scattering, tail.high + 0.001).verdict, Verdict::Fail);
    }

    /// An arm that changes for half of the session, or for a fifth of it, may be anything.
    #[test]
    fn an_arm_that_changes_widens_the_interval() {
        let Samples { base, new } = rounds(250, 12.0, 10.0, 3);
        let second_half: fn(usize) -> bool = |round| round >= 125;
        let first_fifth: fn(usize) -> bool = |round| round < 50;
        for is_slow in [second_half, first_fifth] {
            let changing = Comparison::new(&base, &slowed(&new, is_slow)).unwrap();
            // The least figure decides: p90 of the arm that changed.
            let (least, noise) = (changing.ratios.p90.interval, changing.noise());
            assert!(noise > NOISE_LIMIT, "{changing:?}");
            for (claim, expected) in [
                (least.low / (1.0 + 1.1 * noise), Verdict::Pass),
                (least.low / (1.0 + 0.9 * noise), Verdict::Ambiguous),
                (least.high * (1.0 + 0.9 * noise), Verdict::Ambiguous),
                (least.high * (1.0 + 1.1 * noise), Verdict::Fail),
            ] {
                let result = l1(&changing, claim);
                assert_eq!(result.verdict, expected, "{claim}: {}", result.reason);
                assert!(result.reason.contains(" ± noise of "), "{}", result.reason);
            }
        }
    }

    /// Returns how many of 40 noisy sessions pass a claim of 1 on a candidate that is so much
    /// faster.
    fn passed_sessions(round_count: usize, faster: f64) -> usize {
        let mut passed = 0;
        for seed in 0..40 {
            let Samples { base, new } = scattered(round_count, 10.0 * faster, 10.0, seed, 0.05);
            let comparison = Comparison::new(&base, &new).unwrap();
            assert!(round_count < 100 || comparison.base.noise() > NOISE_LIMIT);
            if l1(&comparison, 1.0).verdict == Verdict::Pass {
                passed += 1;
            }
        }
        passed
    }

    #[test]
    fn more_rounds_distinguish_a_percent() {
        let few_rounds = passed_sessions(10, 1.01);
        let many_rounds = passed_sessions(160, 1.01);
        let same_code = passed_sessions(160, 1.0);
        assert!(few_rounds <= 2, "{few_rounds}");
        assert!(many_rounds >= 25, "{many_rounds}");
        assert!(same_code <= 2, "{same_code}");
    }

    /// Returns a comparison with these intervals of ratios, and `new` with a p90 of `p90_us`.
    fn literal(p50: (f64, f64), p90: (f64, f64), mean: (f64, f64), p90_us: f64) -> Comparison {
        let ratio = |(low, high)| Ratio {
            value: (low + high) / 2.0,
            interval: Interval { low, high },
        };
        let summary = |median: f64, tail: f64| Summary {
            samples: 500,
            min: median,
            p50: median,
            p90: tail,
            mean: median,
            std: 0.1,
            p50_interval: Interval {
                low: median,
                high: median,
            },
        };
        Comparison {
            base: summary(12.0, 12.1),
            new: summary(10.0, p90_us),
            ratios: Ratios {
                p50: ratio(p50),
                p90: ratio(p90),
                mean: ratio(mean),
            },
            drift: f64::INFINITY,
        }
    }

    #[test]
    fn the_noisier_arm_decides() {
        let good = (1.15, 1.20);
        let mut arms = literal(good, good, good, 10.1);
        arms.base.p90 = 12.6;
        assert!((arms.noise() - 0.05).abs() < 1e-12, "{arms:?}");
        arms.base.p90 = f64::NAN;
        assert!(arms.noise().is_nan());
    }

    #[test]
    fn noise_within_the_limit_counts_whatever_the_drift() {
        let good = (1.15, 1.20);
        let mut arms = literal(good, (0.9, 0.95), (0.9, 0.95), 10.1);
        arms.drift = 0.0;
        assert!((arms.noise() - 0.01).abs() < 1e-12, "{arms:?}");
        assert_eq!(arms.change(), Change::Faster, "by its median");
    }

    #[test]
    fn one_bad_figure_decides() {
        let (good, crossing, bad) = ((1.15, 1.20), (1.05, 1.15), (0.99, 1.05));
        let table = [
            (good, good, good, 10.1, Verdict::Pass),
            (good, crossing, good, 10.1, Verdict::Ambiguous),
            (good, good, bad, 10.1, Verdict::Fail),
            (crossing, bad, good, 10.1, Verdict::Fail),
            // Exactly at the claim passes; the upper end at the claim does not fail.
            ((1.10, 1.11), good, good, 10.1, Verdict::Pass),
            ((1.00, 1.10), good, good, 10.1, Verdict::Ambiguous),
            // Up to noise of 2 % the interval decides, above it no figure within the noise does.
            (good, good, good, 10.2, Verdict::Pass),
            (good, good, good, 10.3, Verdict::Pass),
            (good, good, good, 10.6, Verdict::Ambiguous),
            (bad, bad, bad, 10.3, Verdict::Fail),
            (bad, bad, bad, 10.6, Verdict::Ambiguous),
            (good, good, bad, 10.6, Verdict::Ambiguous),
            ((f64::NAN, f64::NAN), good, good, 10.1, Verdict::Ambiguous),
            (good, good, good, f64::NAN, Verdict::Ambiguous),
        ];
        for (p50, p90, mean, p90_us, expected) in table {
            let result = l1(&literal(p50, p90, mean, p90_us), 1.10);
            assert_eq!(
                (result.gate, result.verdict),
                (GateId::L1, expected),
                "{p50:?} {p90:?} {mean:?} {p90_us}: {}",
                result.reason
            );
        }
    }

    #[test]
    fn a_kernel_that_does_nothing_is_refused() {
        let speed_of_light = SpeedOfLight::default().with_zero_line(0.61);
        let result = speed_of_light
            .impossible(measured(10.0, 0.62, 1).new.min)
            .unwrap();
        assert_eq!((result.gate, result.verdict), (GateId::L1, Verdict::Fail));
        assert!(
            result.reason.contains("impossible") && result.reason.contains("empty kernel"),
            "{}",
            result.reason
        );
        let possible = measured(10.0, 5.0, 1);
        assert_eq!(speed_of_light.impossible(possible.new.min), None);
        assert_eq!(l1(&possible, 1.10).verdict, Verdict::Pass);
    }
}
