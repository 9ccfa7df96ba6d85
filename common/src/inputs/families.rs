use super::{Family, Tensor};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

const SHIFT: f32 = 0.5;
const LARGE: f32 = 8.0;
/// Above the others' noise: weight e^12, against 16,384 others of about 1 each.
const WINNER_LOGIT: f32 = 12.0;
/// Plus ln(keys): key 0 takes about 73 % of the weight at every length, and the others still matter.
const SINK_LOGIT: f32 = 2.0;
/// Otherwise the other keys would not matter.
const SINK_VALUE: f32 = 1.0 / 16.0;
/// FlashAttention-3: one value in a thousand gets N(0, 100), on top.
const OUTLIER_RATE: f64 = 0.001;
const OUTLIER_DEVIATION: f32 = 10.0;
/// Elements of Q are 2^x · (1 + N / 8), x uniform from 0 to the first for each row, those of K N − 5 · 2^x, x uniform from 0
/// to the second for each key: logits of −30 to −1,700 at head_dim 64 and 128.
const DEEP_ROWS: f64 = 2.0;
const DEEP_KEYS: f64 = 2.8;
const DEEP_KEY: f32 = 5.0;
const DEEP_NOISE: f32 = 0.125;
/// Factor of a head between these; the last, of the last element of a near tie: one step of f16.
const HUGE: (f32, f32) = (60.0, 100.0);
const NEAR_TIE: f32 = 1.0 + 1.0 / 1024.0;
/// All keys lean by the first along all dimensions, a row of Q by one of the others: logits near 16 · sqrt(head_dim) times
/// that.
const MIXED_KEY: f32 = 16.0;
const MIXED_ROWS: [f32; 5] = [-8.0, -2.0, 0.0, 2.0, 8.0];
/// Elements of a row of Q are 2 to one of these, those of every second key the last, those of the others that times 1/2 + N / 4: sums
/// of equal keys are exact, whatever the order. Their scaled scores lie nearly half a step of f32 from the next f32.
const COLOSSAL_ROWS: (f64, f64) = (7.0, 14.0);
const COLOSSAL_KEY: f32 = 9792.0;
const SUBNORMAL_VALUES: i32 = -15;
/// Q is multiplied by 2 to the first, K divided by it, V of even heads multiplied by 2 to the second, of odd ones divided:
/// logits of N(0, 1), and nothing that f16 holds.
const WIDE_LOGITS: i32 = 30;
const WIDE_VALUES: i32 = 40;
/// The largest magnitude becomes ±448.
const CLAMP: f32 = 1.0;
/// Scales are 2^x, x uniform between these.
const SCALE_EXPONENTS: (f64, f64) = (-6.0, 1.0);

/// Deviates from ChaCha8, with +, −, ×, ÷ and square root alone: the same bits on every machine.
pub struct Stream {
    rng: ChaCha8Rng,
    spare: Option<f64>,
}

impl Stream {
    /// Different keys and indices are independent.
    fn new(seed: u64, family: Family, purpose: Purpose, index: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        // The family's name and not its place in the enum: adding one must not change the others' values.
        for (slot, byte) in key[8..24].iter_mut().zip(family.name().bytes()) {
            *slot = byte;
        }
        key[24] = purpose.byte();
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(index);
        Self { rng, spare: None }
    }

    /// In [0, 1), 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// By Marsaglia's polar method (SIAM Review 6:260, 1964), which needs no sine.
    pub fn normal(&mut self) -> f32 {
        if let Some(spare) = self.spare.take() {
            return spare as f32;
        }
        loop {
            let (x, y) = (2.0 * self.uniform() - 1.0, 2.0 * self.uniform() - 1.0);
            let square = x * x + y * y;
            if square < 1.0 && square > 0.0 {
                let factor = (-2.0 * natural_log(square) / square).sqrt();
                self.spare = Some(y * factor);
                return (x * factor) as f32;
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Purpose {
    Values(Tensor),
    Direction,
    Winner,
    Scales(Tensor),
}

impl Purpose {
    fn byte(self) -> u8 {
        match self {
            Purpose::Values(tensor) => tensor as u8,
            Purpose::Direction => 3,
            Purpose::Winner => 4,
            Purpose::Scales(tensor) => 5 + tensor as u8,
        }
    }
}

/// Of a positive normal number, from its exponent and the series of atanh: |s| <= 0.1716, so that the term left out, 2 s^25 /
/// 25, is below 1e-20.
fn natural_log(x: f64) -> f64 {
    const LN_2: f64 = std::f64::consts::LN_2;
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) as i64 - 1023) as f64;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let square = s * s;
    let series = (0..12).rev().fold(0.0, |sum, term| {
        sum * square + 1.0 / f64::from(2 * term + 1)
    });
    exponent * LN_2 + 2.0 * s * series
}

/// The fraction's first 24 bits select factors 2^(1/2), 2^(1/4), …
fn two_to(x: f64) -> f64 {
    let whole = x.floor();
    let mut fraction = x - whole;
    let mut value = f64::from_bits(((whole as i64 + 1023) as u64) << 52);
    let mut root = 2f64;
    for _ in 0..24 {
        root = root.sqrt();
        fraction *= 2.0;
        if fraction >= 1.0 {
            fraction -= 1.0;
            value *= root;
        }
    }
    value
}

/// The values before rounding of `[batch, heads, rows, head_dim]`, dense, one stream per batch and head; for E4M3 the scales, where
/// the family sets them.
pub(super) fn draw(
    family: Family,
    seed: u64,
    tensor: Tensor,
    extents: [usize; 4],
) -> (Vec<f32>, Option<Vec<f32>>) {
    let [batch, heads, rows, dim] = extents;
    let mut values = vec![0f32; batch * heads * rows * dim];
    values
        .par_chunks_mut(rows * dim)
        .enumerate()
        .for_each(|(head, values)| {
            let mut stream = Stream::new(seed, family, Purpose::Values(tensor), head as u64);
            values.fill_with(|| stream.normal());
            shape_head(
                family,
                seed,
                tensor,
                head as u64,
                (rows, dim),
                values,
                &mut stream,
            );
            // Head 0 of Q, 1 of K, 2 of V.
            if family == Family::ZeroHead && head % heads == tensor as usize % heads {
                values.fill(0.0);
            }
        });
    let scales = (family == Family::RandomScales).then(|| {
        let mut stream = Stream::new(seed, family, Purpose::Scales(tensor), 0);
        let (low, high) = SCALE_EXPONENTS;
        (0..batch * heads)
            .map(|_| two_to(low + (high - low) * stream.uniform()) as f32)
            .collect::<Vec<f32>>()
    });
    for (values, &scale) in values.chunks_mut(rows * dim).zip(scales.iter().flatten()) {
        change(values, |value| value * scale);
    }
    (values, scales)
}

fn change(values: &mut [f32], to: impl Fn(f32) -> f32) {
    values.iter_mut().for_each(|value| *value = to(*value));
}

/// From N(0, 1) values.
fn shape_head(
    family: Family,
    seed: u64,
    tensor: Tensor,
    head: u64,
    (rows, dim): (usize, usize),
    values: &mut [f32],
    stream: &mut Stream,
) {
    match family {
        Family::Normal | Family::RandomScales | Family::ZeroHead => {}
        Family::Shifted => change(values, |value| value + SHIFT),
        Family::AllNegative => match tensor {
            Tensor::Q => change(values, f32::abs),
            Tensor::K => change(values, |value| -value.abs()),
            Tensor::V => {}
        },
        Family::Large => change(values, |value| value * LARGE),
        Family::Outliers => {
            for value in values.iter_mut() {
                if stream.uniform() < OUTLIER_RATE {
                    *value += OUTLIER_DEVIATION * stream.normal();
                }
            }
        }
        Family::DeepNegative => {
            for row in values.chunks_mut(dim) {
                let mut length = |most: f64| two_to(most * stream.uniform()) as f32;
                match tensor {
                    Tensor::Q => {
                        let length = length(DEEP_ROWS);
                        change(row, |value| length * (1.0 + DEEP_NOISE * value));
                    }
                    Tensor::K => {
                        let length = DEEP_KEY * length(DEEP_KEYS);
                        change(row, |value| value - length);
                    }
                    Tensor::V => {}
                }
            }
        }
        Family::Huge => {
            let factor = HUGE.0 + (HUGE.1 - HUGE.0) * stream.uniform() as f32;
            change(values, |value| value * factor);
            for key in (1..rows).step_by(4).filter(|_| tensor == Tensor::K) {
                values.copy_within((key - 1) * dim..key * dim, key * dim);
                if key % 8 == 5 {
                    values[(key + 1) * dim - 1] *= NEAR_TIE;
                }
            }
        }
        Family::MixedScale => {
            for row in values.chunks_mut(dim) {
                let lean = match tensor {
                    Tensor::Q => MIXED_ROWS[(MIXED_ROWS.len() as f64 * stream.uniform()) as usize],
                    Tensor::K => MIXED_KEY,
                    Tensor::V => 0.0,
                };
                change(row, |value| value + lean);
            }
        }
        Family::Colossal => {
            for (at, row) in values.chunks_mut(dim).enumerate() {
                match tensor {
                    Tensor::Q => {
                        let (low, high) = COLOSSAL_ROWS;
                        let length = two_to((low + (high - low) * stream.uniform()).floor()) as f32;
                        row.fill(length.copysign(row[0]));
                    }
                    Tensor::K if at % 2 == 0 => row.fill(COLOSSAL_KEY),
                    Tensor::K => change(row, |value| COLOSSAL_KEY * (0.5 + 0.25 * value)),
                    Tensor::V => {}
                }
            }
        }
        Family::Subnormal if tensor == Tensor::V => {
            let factor = two_to(SUBNORMAL_VALUES.into()) as f32;
            change(values, |value| value * factor);
        }
        Family::Subnormal => {}
        Family::WideRange => {
            let exponent = match tensor {
                Tensor::Q => WIDE_LOGITS,
                Tensor::K => -WIDE_LOGITS,
                Tensor::V if head.is_multiple_of(2) => WIDE_VALUES,
                Tensor::V => -WIDE_VALUES,
            };
            let factor = two_to(exponent.into()) as f32;
            change(values, |value| value * factor);
        }
        Family::Saturated => change(values, |value| value.clamp(-CLAMP, CLAMP)),
        Family::Peaked | Family::Sink => {
            let (winner, logit) = match family {
                Family::Sink => (0, natural_log(rows as f64) as f32 + SINK_LOGIT),
                _ => {
                    let place = Stream::new(seed, family, Purpose::Winner, head).uniform();
                    ((place * rows as f64) as usize, WINNER_LOGIT)
                }
            };
            // Queries lean towards one direction of signs, shared by all heads so that grouped heads agree on it; the
            // winning key lies along it: logit = dim * amplitude / sqrt(dim) at the default scale.
            let amplitude = logit / (dim as f32).sqrt();
            let mut direction = Stream::new(seed, family, Purpose::Direction, 0);
            let signs: Vec<f32> = (0..dim)
                .map(|_| if direction.uniform() < 0.5 { -1.0 } else { 1.0 })
                .collect();
            let lean = |row: &mut [f32], by: f32| {
                row.iter_mut()
                    .zip(&signs)
                    .for_each(|(value, sign)| *value += by * sign)
            };
            let winning_row = winner * dim..(winner + 1) * dim;
            match tensor {
                Tensor::Q => values.chunks_mut(dim).for_each(|row| lean(row, 1.0)),
                Tensor::K => lean(&mut values[winning_row], amplitude),
                Tensor::V if family == Family::Sink => {
                    change(&mut values[winning_row], |value| value * SINK_VALUE);
                }
                Tensor::V => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_power_agree_with_libm() {
        for step in 1..4000 {
            let x = f64::from(step) / 1999.5;
            assert!(
                (natural_log(x) - x.ln()).abs() <= 4e-16 * (1.0 + x.ln().abs()),
                "{x}"
            );
            let y = f64::from(step) / 571.0 - 6.0;
            assert!((two_to(y) / y.exp2() - 1.0).abs() <= 1e-7, "{y}");
        }
        assert!((natural_log(1e-300) / 1e-300f64.ln() - 1.0).abs() <= 1e-15);
    }

    #[test]
    fn normal_deviates_have_the_moments_of_the_normal_distribution() {
        let mut stream = Stream::new(1, Family::Normal, Purpose::Values(Tensor::Q), 0);
        let n = 200_000;
        let draws: Vec<f64> = (0..n).map(|_| f64::from(stream.normal())).collect();
        let moment = |power| draws.iter().map(|x| x.powi(power)).sum::<f64>() / f64::from(n);
        // Five standard errors of each estimate: sqrt(1, 2, 15, 96) / sqrt(n).
        for (power, expected, error) in
            [(1, 0.0, 1.0), (2, 1.0, 1.42), (3, 0.0, 3.88), (4, 3.0, 9.8)]
        {
            let bound = 5.0 * error / f64::from(n).sqrt();
            assert!(
                (moment(power) - expected).abs() <= bound,
                "moment {power}: {}",
                moment(power)
            );
        }
        let beyond = draws.iter().filter(|x| x.abs() > 1.959_964).count() as f64 / f64::from(n);
        assert!((beyond - 0.05).abs() <= 0.003, "{beyond}");
    }
}
