//! Gate L1: what a comparison of two arms says about a claimed speedup.

use super::stats::{Ratio, Ratios, SampleError, Summary, checked_and_sorted, percentile};
use crate::verdict::{GateId, GateResult, Verdict};

/// Largest [`Summary::noise`] at which intervals alone decide.
pub const NOISE_LIMIT: f64 = 0.02;

/// Of a session, looked at one by one. Scatter from round to round is in the intervals; an arm that becomes another one in
/// between is not.
const PARTS: usize = 5;

/// Of the whole interval from 1. Placement of buffers alone moves a kernel by a few tenths of a percent.
pub const SAME_MARGIN: f64 = 0.005;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// Microseconds per launch, as `new`.
    pub base: Summary,
    pub new: Summary,
    pub ratios: Ratios,
    /// Largest distance of a fifth of the session from all.
    pub drift: f64,
}

named! {
    /// Of a candidate from its base, by the interval of the median's ratio and a margin.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Change {
        Same = "SAME",
        Faster = "FASTER",
        Slower = "SLOWER",
        Ambiguous = "AMBIGUOUS",
    }
}

impl Change {
    pub fn of(ratio: &Ratio, margin: f64) -> Self {
        let interval = ratio.interval;
        let (below, above) = (1.0 / (1.0 + margin), 1.0 + margin);
        if interval.low > above {
            Change::Faster
        } else if interval.high < below {
            Change::Slower
        } else if interval.low >= below && interval.high <= above {
            Change::Same
        } else {
            Change::Ambiguous
        }
    }
}

impl Comparison {
    /// Samples of an A B B A run, in rounds as in [`Ratios::of`].
    pub fn of(base: &[f64], new: &[f64]) -> Result<Self, SampleError> {
        let ratios = Ratios::of(base, new)?;
        Ok(Self {
            base: Summary::of(base)?,
            new: Summary::of(new)?,
            ratios,
            drift: drift_of_session(base, new)?,
        })
    }

    /// Of the noisier arm; above the limit, how far the ratio drifts: at a GPU's power limit clocks wander under both arms
    /// alike. NaN where either arm has none.
    pub fn noise(&self) -> f64 {
        let [base, new] = [self.base.noise(), self.new.noise()];
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
        Change::of(&self.ratios.p50, SAME_MARGIN)
    }
}

/// `base / new >= at_least` on p50, p90 and mean: each whole interval must reach the claim to pass; one wholly below fails.
/// Above [`NOISE_LIMIT`] an interval is first widened by all of the noise to either side.
/// [`SpeedOfLight::impossible`](super::SpeedOfLight::impossible) comes first.
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
    let list = figures.map(|(name, r)| {
        format!(
            "{name} {:.3}x [{:.3}, {:.3}]",
            r.value, r.interval.low, r.interval.high
        )
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

/// The largest distance of a part's median ratio from that of all, relative to it. Rounds as in [`Ratios::of`].
fn drift_of_session(base: &[f64], new: &[f64]) -> Result<f64, SampleError> {
    let of_round =
        |(base, new): (&[f64], &[f64])| base.iter().sum::<f64>() / new.iter().sum::<f64>();
    let ratios: Vec<f64> = base.chunks(2).zip(new.chunks(2)).map(of_round).collect();
    let median = |ratios: &[f64]| Ok(percentile(&checked_and_sorted(ratios)?, 0.5));
    let all = median(&ratios)?;
    let mut drift = 0.0_f64;
    for part in ratios.chunks(ratios.len().div_ceil(PARTS)) {
        drift = drift.max((median(part)? - all).abs() / all);
    }
    Ok(drift)
}

/// NaN is noise.
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
    use crate::timing::stats::Interval;
    use crate::timing::testing::{rounds, scattered};

    fn measured(base_us: f64, new_us: f64, seed: u64) -> Comparison {
        let (base, new) = rounds(250, base_us, new_us, seed);
        Comparison::of(&base, &new).unwrap()
    }

    fn l1(comparison: &Comparison, at_least: f64) -> GateResult {
        judge(&comparison.ratios, comparison.noise(), at_least)
    }

    #[test]
    fn a_delay_is_seen_and_the_same_code_twice_is_the_same() {
        for seed in 0..20 {
            let change = |base, new| measured(base, new, seed).change();
            assert_eq!(change(10.0, 10.0), Change::Same, "seed {seed}");
            for slowed in [10.1, 10.2, 10.5] {
                let both = [change(10.0, slowed), change(slowed, 10.0)];
                assert_eq!(
                    both,
                    [Change::Slower, Change::Faster],
                    "{slowed}, seed {seed}"
                );
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
            let found = Change::of(&Ratio { value, interval }, SAME_MARGIN);
            assert_eq!(found, expected, "{value} [{low}, {high}]");
        }
    }

    #[test]
    fn noise_that_both_arms_share_cancels_and_an_arm_that_changes_widens_the_interval() {
        let (base, new) = rounds(250, 12.0, 10.0, 3);
        let slowed = |samples: &[f64], is_slow: fn(usize) -> bool| -> Vec<f64> {
            let clock = |round: usize| if is_slow(round) { 1.06 } else { 1.0 };
            samples
                .iter()
                .enumerate()
                .map(|(i, us)| us * clock(i / 2))
                .collect()
        };
        let wandering: fn(usize) -> bool = |round| round % 7 < 2;
        let shared = Comparison::of(&slowed(&base, wandering), &slowed(&new, wandering)).unwrap();
        assert!(
            shared.new.noise() > 2.0 * NOISE_LIMIT && shared.noise() < NOISE_LIMIT,
            "{shared:?}"
        );
        assert_eq!(l1(&shared, 1.10).verdict, Verdict::Pass);
        assert_eq!(l1(&shared, 1.25).verdict, Verdict::Fail);
        // What one arm alone does from round to round is its own, and in the intervals: its slow tail decides.
        let of_one = Comparison::of(&base, &slowed(&new, wandering)).unwrap();
        assert!(of_one.new.noise() > 2.0 * NOISE_LIMIT && of_one.noise() < NOISE_LIMIT);
        let tail = of_one.ratios.p90.interval;
        assert!(tail.high < 1.16, "{of_one:?}");
        assert_eq!(l1(&of_one, tail.low - 0.001).verdict, Verdict::Pass);
        assert_eq!(l1(&of_one, tail.high + 0.001).verdict, Verdict::Fail);
        // What it does for half of the session, or for a fifth of it, may be anything.
        let half: fn(usize) -> bool = |round| round >= 125;
        for is_slow in [half, |round| round < 50] {
            let changed = slowed(&new, is_slow);
            let of_one = Comparison::of(&base, &changed).unwrap();
            // The least figure decides: p90 of the arm that changed.
            let (least, noise) = (of_one.ratios.p90.interval, of_one.noise());
            assert!(noise > NOISE_LIMIT, "{of_one:?}");
            for (claim, expected) in [
                (least.low / (1.0 + 1.1 * noise), Verdict::Pass),
                (least.low / (1.0 + 0.9 * noise), Verdict::Ambiguous),
                (least.high * (1.0 + 0.9 * noise), Verdict::Ambiguous),
                (least.high * (1.0 + 1.1 * noise), Verdict::Fail),
            ] {
                let result = l1(&of_one, claim);
                assert_eq!(result.verdict, expected, "{claim}: {}", result.reason);
                assert!(result.reason.contains(" ± noise of "), "{}", result.reason);
            }
        }
    }

    #[test]
    fn more_rounds_tell_a_percent() {
        let pass = |rounds: usize, faster: f64| {
            let passed = |seed: &u64| {
                let (base, new) = scattered(rounds, 10.0 * faster, 10.0, *seed, 0.05);
                let comparison = Comparison::of(&base, &new).unwrap();
                assert!(rounds < 100 || comparison.base.noise() > NOISE_LIMIT);
                l1(&comparison, 1.0).verdict == Verdict::Pass
            };
            (0..40).filter(passed).count()
        };
        let [few, many, same] = [pass(10, 1.01), pass(160, 1.01), pass(160, 1.0)];
        assert!(few <= 2 && many >= 25 && same <= 2, "{few} {many} {same}");
    }

    fn literal(p50: (f64, f64), p90: (f64, f64), mean: (f64, f64), p90_us: f64) -> Comparison {
        let ratio = |(low, high)| Ratio {
            value: (low + high) / 2.0,
            interval: Interval { low, high },
        };
        let summary = |p50: f64, p90: f64| Summary {
            samples: 500,
            min: p50,
            p50,
            p90,
            mean: p50,
            std: 0.1,
            p50_interval: Interval {
                low: p50,
                high: p50,
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
        // Within the limit, whatever the drift.
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
