use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

const RESAMPLES: usize = 1000;

/// Seed of every interval: the same samples give the same report.
const SEED: u64 = 0x5eed;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// 2.5 %.
    pub low: f64,
    /// 97.5 %.
    pub high: f64,
}

/// In the samples' unit: microseconds per launch wherever this workspace stores one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub samples: usize,
    pub min: f64,
    pub p50: f64,
    pub p90: f64,
    pub mean: f64,
    /// With `samples - 1`; 0 for a single sample.
    pub std: f64,
    pub p50_interval: Interval,
}

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SampleError {
    #[error("no samples: at least one is needed")]
    Empty,
    #[error("sample {index} is {value}, not a positive finite time; the timer is broken")]
    NotATime { index: usize, value: f64 },
    #[error(
        "paired samples differ in number or are odd: {base} of the base, {new} of the candidate; each A B B A round gives two of each"
    )]
    Unpaired { base: usize, new: usize },
}

impl Summary {
    pub fn of(samples: &[f64]) -> Result<Self, SampleError> {
        let sorted = checked_and_sorted(samples)?;
        let mean = mean(samples);
        let n = samples.len();
        let variance =
            samples.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (n.max(2) - 1) as f64;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let mut resample = vec![0.0; n];
        let medians = (0..RESAMPLES).map(|_| {
            resample.fill_with(|| samples[below(&mut rng, n)]);
            select_percentile(&mut resample, 0.5)
        });
        Ok(Self {
            samples: n,
            min: sorted[0],
            p50: percentile(&sorted, 0.5),
            p90: percentile(&sorted, 0.9),
            mean,
            std: variance.sqrt(),
            p50_interval: interval(medians.collect()),
        })
    }

    /// `(p90 - p50) / p50`.
    pub fn noise(&self) -> f64 {
        (self.p90 - self.p50) / self.p50
    }
}

/// Of two summaries' values, with the 95 % interval of resampling whole rounds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// `base / new`: above 1, the candidate is faster.
    pub value: f64,
    pub interval: Interval,
}

/// `base / new`, of the figures of claims.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratios {
    pub p50: Ratio,
    pub p90: Ratio,
    pub mean: Ratio,
}

impl Ratios {
    /// Samples in rounds of A B B A: `2 r` and `2 r + 1` of both slices are round `r`. Rounds are resampled whole, so that
    /// drift moves both sides at once.
    pub fn of(base: &[f64], new: &[f64]) -> Result<Self, SampleError> {
        if base.len() != new.len() || !base.len().is_multiple_of(2) {
            return Err(SampleError::Unpaired {
                base: base.len(),
                new: new.len(),
            });
        }
        let (base_sorted, new_sorted) = (checked_and_sorted(base)?, checked_and_sorted(new)?);
        let rounds = base.len() / 2;
        let mut rng = ChaCha8Rng::seed_from_u64(SEED);
        let (mut a, mut b) = (base.to_vec(), new.to_vec());
        let mut resampled = [const { Vec::new() }; 3];
        for _ in 0..RESAMPLES {
            for slot in 0..rounds {
                let round = below(&mut rng, rounds);
                a[2 * slot..][..2].copy_from_slice(&base[2 * round..][..2]);
                b[2 * slot..][..2].copy_from_slice(&new[2 * round..][..2]);
            }
            resampled[0].push(select_percentile(&mut a, 0.5) / select_percentile(&mut b, 0.5));
            resampled[1].push(select_percentile(&mut a, 0.9) / select_percentile(&mut b, 0.9));
            resampled[2].push(mean(&a) / mean(&b));
        }
        let [p50, p90, means] = resampled.map(interval);
        let at = |p| percentile(&base_sorted, p) / percentile(&new_sorted, p);
        Ok(Self {
            p50: Ratio {
                value: at(0.5),
                interval: p50,
            },
            p90: Ratio {
                value: at(0.9),
                interval: p90,
            },
            mean: Ratio {
                value: mean(base) / mean(new),
                interval: means,
            },
        })
    }
}

/// The `p`-th quantile (`0.0..=1.0`) of sorted values, linear between the two nearest ranks: `p * (n - 1)` from 0 (NumPy's
/// default, Hyndman and Fan's type 7).
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
    if let Some((index, &value)) = samples
        .iter()
        .enumerate()
        .find(|(_, x)| !(x.is_finite() && **x > 0.0))
    {
        return Err(SampleError::NotATime { index, value });
    }
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Ok(sorted)
}

/// Uniform. The bias of one multiplication is under `n / 2^64`.
fn below(rng: &mut ChaCha8Rng, n: usize) -> usize {
    ((u128::from(rng.next_u64()) * n as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timing::testing::rounds;
    use proptest::prelude::*;

    #[test]
    fn percentiles_are_numpy_linear() {
        // numpy.percentile(values, [0, 10, 25, 50, 90, 100])
        let cases: [(&[f64], [f64; 6]); 4] = [
            (&[5.0], [5.0, 5.0, 5.0, 5.0, 5.0, 5.0]),
            (&[1.0, 2.0], [1.0, 1.1, 1.25, 1.5, 1.9, 2.0]),
            (&[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 1.4, 2.0, 3.0, 4.6, 5.0]),
            (&[1.0, 1.0, 2.0, 10.0], [1.0, 1.0, 1.0, 1.5, 7.6, 10.0]),
        ];
        for (values, expected) in cases {
            for (p, want) in [0.0, 0.1, 0.25, 0.5, 0.9, 1.0].into_iter().zip(expected) {
                let got = percentile(values, p);
                assert!(
                    (got - want).abs() < 1e-12,
                    "{values:?} at {p}: {got}, expected {want}"
                );
            }
        }
    }

    #[test]
    fn a_summary_of_known_samples() {
        let s = Summary::of(&[4.0, 2.0, 5.0, 1.0, 3.0]).unwrap();
        assert_eq!((s.samples, s.min, s.p50, s.mean), (5, 1.0, 3.0, 3.0));
        assert!((s.p90 - 4.6).abs() < 1e-12);
        assert!((s.std - 2.5f64.sqrt()).abs() < 1e-12);
        assert!((s.noise() - 1.6 / 3.0).abs() < 1e-12);
        // Of so few, 6 % of the resampled medians are the least, and as many the largest.
        assert_eq!((s.p50_interval.low, s.p50_interval.high), (1.0, 5.0));
        let one = Summary::of(&[7.0]).unwrap();
        assert_eq!(
            (one.std, one.p50_interval),
            (
                0.0,
                Interval {
                    low: 7.0,
                    high: 7.0
                }
            )
        );
    }

    #[test]
    fn broken_timers_are_refused() {
        assert_eq!(Summary::of(&[]), Err(SampleError::Empty));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(
                matches!(
                    Summary::of(&[1.0, bad]),
                    Err(SampleError::NotATime { index: 1, .. })
                ),
                "{bad}"
            );
            let ratios = Ratios::of(&[1.0, 1.0], &[1.0, bad]);
            assert!(matches!(
                ratios,
                Err(SampleError::NotATime { index: 1, .. })
            ));
        }
        assert_eq!(
            Ratios::of(&[1.0, 1.0], &[1.0]),
            Err(SampleError::Unpaired { base: 2, new: 1 })
        );
        assert_eq!(
            Ratios::of(&[1.0], &[1.0]),
            Err(SampleError::Unpaired { base: 1, new: 1 })
        );
        assert_eq!(Ratios::of(&[], &[]), Err(SampleError::Empty));
    }

    #[test]
    fn an_interval_leaves_out_one_in_40_at_either_end() {
        let of = interval((0..=1000).rev().map(f64::from).collect());
        assert_eq!((of.low, of.high), (25.0, 975.0));
    }

    #[test]
    fn each_figure_is_of_its_quantile_and_rounds_are_resampled_whole() {
        let base = [1.0, 1.0, 2.0, 9.0];
        let of = |new: &[f64]| Ratios::of(&base, new).map(|of| [of.p50, of.p90, of.mean]);
        for Ratio { value, interval } in of(&base).unwrap() {
            assert_eq!([value, interval.low, interval.high], [1.0; 3]);
        }
        let values = of(&[1.0; 4]).unwrap().map(|ratio| ratio.value);
        assert_eq!(values, [1.5, percentile(&base, 0.9), 3.25]);
    }

    #[test]
    fn shared_drift_cancels_in_the_ratio() {
        let (base, new) = rounds(250, 10.0, 8.0, 11);
        let ratios = Ratios::of(&base, &new).unwrap();
        assert_eq!(
            ratios,
            Ratios::of(&base, &new).unwrap(),
            "of the same samples"
        );
        for ratio in [ratios.p50, ratios.p90, ratios.mean] {
            assert!(
                ratio.interval.low <= ratio.value && ratio.value <= ratio.interval.high,
                "{ratio:?}"
            );
            assert!((ratio.value - 1.25).abs() < 0.005, "{ratio:?}");
        }
        assert!(
            ratios.p50.interval.high - ratios.p50.interval.low < 0.005,
            "{:?}",
            ratios.p50
        );
    }

    proptest! {
        #[test]
        fn selection_agrees_with_sorting(mut values in prop::collection::vec(0.001f64..1e6, 1..60), p in 0.0f64..=1.0) {
            let selected = select_percentile(&mut values.clone(), p);
            values.sort_unstable_by(f64::total_cmp);
            let sorted = percentile(&values, p);
            prop_assert!((selected - sorted).abs() <= 1e-9 * sorted, "{} {}", selected, sorted);
        }
    }
}
