//! Made-up samples for tests.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// The samples of two arms, in microseconds.
pub(crate) struct Samples {
    pub(crate) base: Vec<f64>,
    pub(crate) new: Vec<f64>,
}

/// Makes the samples of rounds A B B A: noise of about 0.3 % on each sample, a shared drift of 1 %,
/// and one sample in 40 hit by a 5 % spike.
pub(crate) fn rounds(rounds: usize, base_us: f64, new_us: f64, seed: u64) -> Samples {
    scattered(rounds, base_us, new_us, seed, 0.003)
}

/// Makes such samples with `scatter` times as much noise as three numbers between 0 and 1 add up
/// to.
pub(crate) fn scattered(
    rounds: usize,
    base_us: f64,
    new_us: f64,
    seed: u64,
    scatter: f64,
) -> Samples {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut unit = move || rng.next_u64() as f64 / u64::MAX as f64;
    let mut draw = |centre: f64, round: usize| {
        let drift = 0.01 * (round as f64 / 30.0).sin();
        let noise = scatter * (unit() + unit() + unit() - 1.5);
        let spike = if unit() < 0.025 { 0.05 } else { 0.0 };
        centre * (1.0 + drift + noise + spike)
    };
    let (mut base, mut new) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        base.push(draw(base_us, round));
        new.push(draw(new_us, round));
        new.push(draw(new_us, round));
        base.push(draw(base_us, round));
    }
    Samples { base, new }
}
