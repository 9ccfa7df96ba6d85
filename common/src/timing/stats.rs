//! Summaries of samples, with intervals by resampling.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const RESAMPLES: usize = 1000;

/// The seed of every interval: the same samples give the same report.
const SEED: u64 = 0x5eed;

/// A 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The quantile of 2.5 %.
    pub low: f64,
    /// The quantile of 97.5 %.
    pub high: f64,
}

/// Figures of samples, in their unit: microseconds per launch wherever this workspace stores one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub samples: usize,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub mean: f64,
    /// The standard deviation, with `samples - 1`; 0 for a single sample.
    pub std: f64,
    pub p50_interval: Interval,
}

/// Samples that cannot be times.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    #[error("no samples: at least one is needed")]
    Empty,
    #[error("sample {index} is {value}, not a positive finite time; the timer is broken")]
    NotATime { index: usize, value: f64 },
    #[error(
        "paired samples differ in number or are odd: {base} of the base, {new} of the candidate; \
         each A B B A round gives two of each"
    )]
    Unpaired { base: usize, new: usize },
}

impl Summary {
    pub fn new(samples: &[f64]) -> Result<Self, SampleError> {
        let sorted = checked_and_sorted(samples)?;
        let average = mean(samples);
        let n = samples.len();
        let squares: f64 = samples.iter().map(|x| (x - average).powi(2)).sum();
        let variance = squares / (n.max(2) - 1) as f64;
        Ok(Self {
            samples: n,
            min: sorted[0],
            p50: percentile(&sorted, 0.5),
            p90: percentile(&sorted, 0.9),
            mean: average,
            std: variance.sqrt(),
            p50_interval: interval(resampled_medians(samples)),
        })
    }

    /// Returns `(p90 - p50) / p50`.
    pub fn noise(&self) -> f64 {
        (self.p90 - self.p50) / self.p50
    }
}

/// The ratio of two summaries' values, with the 95 % interval of resampling whole rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// `base / new`: above 1, the candidate is faster.
    pub value: f64,
    pub interval: Interval,
}

/// The ratios `base / new` of the figures of claims.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    pub p50: Ratio,
    pub p90: Ratio,
    pub mean: Ratio,
}

impl Ratios {
    /// Computes the ratios of samples in rounds of A B B A: `2 r` and `2 r + 1` of both slices are
    /// round `r`. Rounds are resampled whole, so that drift moves both sides at once.
    pub fn new(base: &[f64], new: &[f64]) -> Result<Self, SampleError> {
        if base.len() != new.len() || !base.len().is_multiple_of(2) {
            return Err(SampleError::Unpaired {
                base: base.len(),
                new: new.len(),
            });
        }
        let base_sorted = checked_and_sorted(base)?;
        let new_sorted = checked_and_sorted(new)?;
        let resampled = ResampledRatios::draw(base, new);
        let quantile_ratio = |p| percentile(&base_sorted, p) / percentile(&new_sorted, p);
        Ok(Self {
            p50: Ratio {
                value: quantile_ratio(0.5),
                interval: interval(resampled.p50),
            },
            p90: Ratio {
                value: quantile_ratio(0.9),
                interval: interval(resampled.p90),
            },
            mean: Ratio {
                value: mean(base) / mean(new),
                interval: interval(resampled.mean),
            },
        })
    }
}

/// The ratios of [`RESAMPLES`] draws of rounds.
#[derive(Default)]
struct ResampledRatios {
    p50: Vec<f64>,
    p90: Vec<f64>,
    mean: Vec<f64>,
}

impl ResampledRatios {
    fn draw(base: &[f64], new: &[f64]) -> Self {
        let rounds = base.len() / 2;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut drawn_base = base.to_vec();
        let mut drawn_new = new.to_vec();
        let mut ratios = Self::default();
        for _ in 0..RESAMPLES {
            for slot in 0..rounds {
                let round = below(&mut rng, rounds);
                copy_round(&mut drawn_base, slot, base, round);
                copy_round(&mut drawn_new, slot, new, round);
            }
            ratios.push(&mut drawn_base, &mut drawn_new);
        }
        ratios
    }

    /// Adds the ratios of one draw, whose samples it reorders.
    fn push(&mut self, base: &mut [f64], new: &mut [f64]) {
        let base_p50 = select_percentile(base, 0.5);
        let new_p50 = select_percentile(new, 0.5);
        self.p50.push(base_p50 / new_p50);
        let base_p90 = select_percentile(base, 0.9);
        let new_p90 = select_percentile(new, 0.9);
        self.p90.push(base_p90 / new_p90);
        self.mean.push(mean(base) / mean(new));
    }
}

/// Copies both samples of a round.
fn copy_round(samples: &mut [f64], slot: usize, source: &[f64], round: usize) {
    samples[2 * slot] = source[2 * round];
    samples[2 * slot + 1] = source[2 * round + 1];
}

/// Returns the medians of [`RESAMPLES`] draws of samples.
fn resampled_medians(samples: &[f64]) -> Vec<f64> {
    let mut rng = ChaCha8Rng::seed_from_u64(SEED);
    let mut drawn = vec![0.0; samples.len()];
    let mut medians = Vec::with_capacity(RESAMPLES);
    for _ in 0..RESAMPLES {
        for slot in &mut drawn {
            *slot = samples[below(&mut rng, samples.len())];
        }
        medians.push(select_percentile(&mut drawn, 0.5));
    }
    medians
}

/// Returns the `p`-th quantile (`0.0..=1.0`) of sorted values, linear between the two nearest
/// ranks: `p * (n - 1)` from 0 (NumPy's default, Hyndman and Fan's type 7).
pub fn percentile(sorted: &[f64], p: f64) -> f64 {
    let rank = p * (sorted.len() - 1) as f64;
    let below = rank as usize;
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (rank - below as f64) * (sorted[above] - sorted[below])
}

fn select_percentile(values: &mut [f64], p: f64) -> f64 {
    let rank = p * (values.len() - 1) as f64;
    let (_, &mut low, above) = values.select_nth_unstable_by(rank as usize, f64::total_cmp);
    let fraction = rank - rank.floor();
    if fraction == 0.0 {
        return low;
    }
    let high = above.iter().copied().fold(f64::INFINITY, f64::min);
    low + fraction * (high - low)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn interval(mut values: Vec<f64>) -> Interval {
    values.sort_unstable_by(f64::total_cmp);
    Interval {
        low: percentile(&values, 0.025),
        high: percentile(&values, 0.975),
    }
}

pub(super) fn checked_and_sorted(samples: &[f64]) -> Result<Vec<f64>, SampleError> {
    if samples.is_empty() {
        return Err(SampleError::Empty);
    }
    for (index, &value) in samples.iter().enumerate() {
        if !(value.is_finite() && value > 0.0) {
            return Err(SampleError::NotATime { index, value });
        }
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

/// Returns a uniform number below `n`. The bias of one multiplication is under `n / 2^64`.
fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::testing::{Samples, rounds};
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_numpy_linear() {
        assert_percentiles(&[5.0], [5.0, 5.0, 5.0, 5.0, 5.0, 5.0]);
        assert_percentiles(&[1.0, 2.0], [1.0, 1.1, 1.25, 1.5, 1.9, 2.0]);
        assert_percentiles(&[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.4, 2.0, 3.0, 4.6, 5.0]);
        assert_percentiles(&[1.0, 1.0, 2.0, 10.0], [1.0, 1.0, 1.0, 1.5, 7.6, 10.0]);
    }

    /// Compares with `numpy.percentile(values, [0, 10, 25, 50, 90, 100])`.
    #[track_caller]
    fn assert_percentiles(values: &[f64], expected: [f64; 6]) {
        for (p, quantile) in [0.0, 0.1, 0.25, 0.5, 0.9, 1.0].into_iter().zip(expected) {
            let computed = percentile(values, p);
            assert!(
                (computed - quantile).abs() < 1e-12,
                "{values:?} at {p}: {computed}, expected {quantile}"
            );
        }
    }

    #[test]
    fn a_summary_of_known_samples() {
        let s = Summary::new(&[4.0, 2.0, 5.0, 1.0, 3.0]).unwrap();
        assert_eq!((s.samples, s.min, s.p50, s.mean), (5, 1.0, 3.0, 3.0));
        assert!((s.p90 - 4.6).abs() < 1e-12);
        assert!((s.std - 2.5f64.sqrt()).abs() < 1e-12);
        assert!((s.noise() - 1.6 / 3.0).abs() < 1e-12);
        // With so few, 6 % of the resampled medians are the least, and as many the largest.
        assert_eq!((s.p50_interval.low, s.p50_interval.high), (1.0, 5.0));
    }

    #[test]
    fn a_summary_of_one_sample_has_no_spread() {
        let single = Summary::new(&[7.0]).unwrap();
        assert_eq!(single.std, 0.0);
        let interval = Interval {
            low: 7.0,
            high: 7.0,
        };
        assert_eq!(single.p50_interval, interval);
    }

    #[test]
    fn broken_timers_are_refused() {
        assert_eq!(Summary::new(&[]), Err(SampleError::Empty));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                matches!(
                    Summary::new(&[1.0, bad]),
                    Err(SampleError::NotATime { index: 1, .. })
                ),
                "{bad}"
            );
            let ratios = Ratios::new(&[1.0, 1.0], &[1.0, bad]);
            assert!(matches!(
                ratios,
                Err(SampleError::NotATime { index: 1, .. })
            ));
        }
        assert_eq!(
            Ratios::new(&[1.0, 1.0], &[1.0]),
            Err(SampleError::Unpaired { base: 2, new: 1 })
        );
        assert_eq!(
            Ratios::new(&[1.0], &[1.0]),
            Err(SampleError::Unpaired { base: 1, new: 1 })
        );
        assert_eq!(Ratios::new(&[], &[]), Err(SampleError::Empty));
    }

    #[test]
    fn an_interval_leaves_out_one_in_40_at_either_end() {
        let Interval { low, high } = interval((0..=1000).rev().map(f64::from).collect());
        assert_eq!((low, high), (25.0, 975.0));
    }

    #[test]
    fn each_figure_has_its_own_quantile_and_rounds_are_resampled_whole() {
        let base = [1.0, 1.0, 2.0, 9.0];
        let same = Ratios::new(&base, &base).unwrap();
        for Ratio { value, interval } in [same.p50, same.p90, same.mean] {
            assert_eq!([value, interval.low, interval.high], [1.0; 3]);
        }
        let faster = Ratios::new(&base, &[1.0; 4]).unwrap();
        assert_eq!(faster.p50.value, 1.5);
        assert_eq!(faster.p90.value, percentile(&base, 0.9));
        assert_eq!(faster.mean.value, 3.25);
    }

    #[test]
    fn shared_drift_cancels_in_the_ratio() {
        let Samples { base, new } = rounds(250, 10.0, 8.0, 11);
        let ratios = Ratios::new(&base, &new).unwrap();
        let again = Ratios::new(&base, &new).unwrap();
        assert_eq!(ratios, again, "the same samples");
        for Ratio { value, interval } in [ratios.p50, ratios.p90, ratios.mean] {
            assert!(
                interval.low <= value && value <= interval.high,
                "{interval:?}"
            );
            assert!((value - 1.25).abs() < 0.005, "{value}");
        }
        let Interval { low, high } = ratios.p50.interval;
        assert!(high - low < 0.005, "{low} to {high}");
    }

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(
            mut values in prop::collection::vec(0.001f64..1e6, 1..60),
            p in 0.0f64..=1.0,
        ) {
            let selected = select_percentile(&mut values.clone(), p);
            values.sort_unstable_by(f64::total_cmp);
            let sorted = percentile(&values, p);
            prop_assert!((selected - sorted).abs() <= 1e-9 * sorted, "{} {}", selected, sorted);
        }
    }
}
