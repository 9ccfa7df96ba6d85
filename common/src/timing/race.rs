//! The race of many arms on one problem: all have a short figure, and those that may be the fastest
//! a full one. Pure: the caller takes the samples.

/// The samples of an arm that drops out. With three, the fastest and the slowest are further apart
/// than the arm's median is from either.
pub const SHORT_SAMPLES: usize = 3;

/// The samples of an arm that stays.
pub const FULL_SAMPLES: usize = 9;

/// The factor of the best short figure's upper bound from which the lower bound of another drops
/// out. Bounds are the fastest and the slowest sample, so that noise keeps an arm in the race; on
/// top comes the cost at which the regret of a choice misses its goal, so that whatever decides
/// about that goal has a full figure.
pub const MARGIN: f64 = 1.1;

/// Takes the samples of so many arms, in turns, by `sample`, which returns nothing of an arm that
/// failed: it has no further ones. The first round warms up. The `chosen` arm never drops out.
pub fn race(
    arms: usize,
    chosen: Option<usize>,
    mut sample: impl FnMut(usize) -> Option<f64>,
) -> Vec<Vec<f64>> {
    let mut racing: Vec<usize> = (0..arms).collect();
    racing.retain(|&arm| sample(arm).is_some());
    let mut samples = vec![Vec::new(); arms];
    for round in 0..FULL_SAMPLES {
        if round == SHORT_SAMPLES {
            let limit = MARGIN * best_upper_bound(&racing, &samples);
            racing.retain(|&arm| Some(arm) == chosen || lower_bound(&samples[arm]) <= limit);
        }
        racing.retain(|&arm| match sample(arm) {
            Some(us) => {
                samples[arm].push(us);
                true
            }
            None => false,
        });
    }
    samples
}

fn best_upper_bound(racing: &[usize], samples: &[Vec<f64>]) -> f64 {
    let mut best = f64::INFINITY;
    for &arm in racing {
        let slowest = samples[arm].iter().copied().fold(0.0, f64::max);
        best = best.min(slowest);
    }
    best
}

fn lower_bound(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Races arms that take these times, one a round; the last is repeated. Returns the number of
    /// samples of each.
    fn samples_of<const N: usize>(times: [&[f64]; N], chosen: Option<usize>) -> [usize; N] {
        let mut rounds = [0; N];
        let samples = race(N, chosen, |arm| {
            let round = rounds[arm];
            rounds[arm] += 1;
            times[arm].get(round).or(times[arm].last()).copied()
        });
        std::array::from_fn(|arm| samples[arm].len())
    }

    #[test]
    fn a_slow_arm_is_not_timed_further() {
        assert_eq!(
            samples_of([&[10.0], &[11.1], &[500.0]], None),
            [FULL_SAMPLES, SHORT_SAMPLES, SHORT_SAMPLES]
        );
    }

    #[test]
    fn an_arm_within_the_margin_is_timed_in_full() {
        assert_eq!(
            samples_of([&[10.0], &[10.9]], None),
            [FULL_SAMPLES, FULL_SAMPLES]
        );
    }

    #[test]
    fn the_chosen_arm_is_timed_in_full_however_slow_it_is() {
        assert_eq!(
            samples_of([&[500.0], &[10.0], &[400.0]], Some(0)),
            [FULL_SAMPLES, FULL_SAMPLES, SHORT_SAMPLES]
        );
    }

    #[test]
    fn an_arm_drops_out_by_its_fastest_sample() {
        // After the warm-up one sample of the second arm is within the margin.
        assert_eq!(
            samples_of([&[10.0], &[20.0, 20.0, 10.9, 20.0]], None),
            [FULL_SAMPLES, FULL_SAMPLES]
        );
    }

    #[test]
    fn the_margin_is_over_the_slowest_sample_of_the_best() {
        assert_eq!(
            samples_of([&[10.0, 10.0, 12.0, 10.0], &[13.0]], None),
            [FULL_SAMPLES, FULL_SAMPLES]
        );
    }

    #[test]
    fn the_first_round_counts_for_nothing() {
        assert_eq!(
            samples_of([&[10.0], &[1.0, 20.0], &[90.0, 10.0]], None),
            [FULL_SAMPLES, SHORT_SAMPLES, FULL_SAMPLES]
        );
    }

    #[test]
    fn an_arm_that_fails_has_no_further_samples() {
        let mut rounds = [0; 2];
        let samples = race(2, None, |arm| {
            rounds[arm] += 1;
            (arm == 1 || rounds[arm] <= 2).then_some(10.0 + arm as f64)
        });
        assert_eq!(samples[0], [10.0]);
        assert_eq!(samples[1].len(), FULL_SAMPLES);
    }

    #[test]
    fn a_race_of_arms_that_all_fail_has_no_samples() {
        assert_eq!(samples_of([&[], &[]], Some(1)), [0, 0]);
    }

    #[test]
    fn the_samples_of_a_round_are_taken_in_turns() {
        let mut order = Vec::new();
        race(2, None, |arm| {
            order.push(arm);
            Some(10.0)
        });
        assert_eq!(order, [0, 1].repeat(1 + FULL_SAMPLES));
    }
}
