//! Draws the values of each family.

use super::family::{Family, Tensor};
use crate::quantise;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

/// The mean of shifted values.
const SHIFT: f32 = 0.5;
const LARGE: f32 = 8.0;
/// The logit of a winner above the others' noise: weight e^12, against 16,384 others of about 1
/// each.
const WINNER_LOGIT: f32 = 12.0;
/// The logit of a sink, plus ln(keys): key 0 takes about 73 % of the weight at every length, and
/// the others still matter.
const SINK_LOGIT: f32 = 2.0;
/// The factor of a sink's value: otherwise the other keys would not matter.
const SINK_VALUE: f32 = 1.0 / 16.0;
/// The share of outliers (FlashAttention-3): one value in a thousand gets N(0, 100), on top.
const OUTLIER_RATE: f64 = 0.001;
const OUTLIER_DEVIATION: f32 = 10.0;
/// The largest x of a row of Q, whose elements are 2^x · (1 + N / 8), x uniform from 0.
const DEEP_ROWS: f64 = 2.0;
/// The largest x of a key, whose elements are N − 5 · 2^x, x uniform from 0: logits of −30 to
/// −1,700 at head_dim 64 and 128.
const DEEP_KEYS: f64 = 2.8;
const DEEP_KEY: f32 = 5.0;
const DEEP_NOISE: f32 = 0.125;
/// The bounds of the factor of a head.
const HUGE: (f32, f32) = (60.0, 100.0);
/// The factor of the last element of a near tie: one step of f16.
const NEAR_TIE: f32 = 1.0 + 1.0 / 1024.0;
/// The lean of all keys along all dimensions.
const MIXED_KEY: f32 = 16.0;
/// The leans of rows of Q: logits near 16 · sqrt(head_dim) times that.
const MIXED_ROWS: [f32; 5] = [-8.0, -2.0, 0.0, 2.0, 8.0];
/// The bounds of x of a row of Q, whose elements are 2^x, x whole.
const COLOSSAL_ROWS: (f64, f64) = (7.0, 14.0);
/// The elements of every second key; those of the others are that times 1/2 + N / 4. Sums of equal
/// keys are exact, whatever the order. Their scaled scores lie nearly half a step of f32 from the
/// next f32.
const COLOSSAL_KEY: f32 = 9792.0;
/// The exponent of V's factor.
const SUBNORMAL_VALUES: i32 = -15;
/// The exponent of the factor of Q, by which K is divided: logits of N(0, 1), and nothing that f16
/// holds.
const WIDE_LOGITS: i32 = 30;
/// The exponent of the factor of V in even heads, by which it is divided in odd ones.
const WIDE_VALUES: i32 = 40;
/// The largest magnitude of saturated values, which becomes ±448.
const CLAMP: f32 = 1.0;
/// The bounds of x of scales, which are 2^x, x uniform.
const SCALE_EXPONENTS: (f64, f64) = (-6.0, 1.0);
/// The bounds of x of what a cache's scales have beyond those that its largest values need, which is
/// 2^x, x uniform: without it the heads of a tensor would have about the same.
const CACHE_EXPONENTS: (f64, f64) = (0.0, 3.0);

/// Random numbers from ChaCha8, made with +, −, ×, ÷ and square root alone: the same bits on every
/// machine.
pub struct Stream {
    rng: ChaCha8Rng,
    spare: Option<f64>,
}

impl Stream {
    /// Makes a stream; those of different arguments are independent.
    fn new(seed: u64, family: Family, purpose: Purpose, index: u64) -> Self {
        let mut key = [0; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        // The family's name and not its place in the enum: adding one must not change the others'
        // values.
        for (slot, byte) in key[8..24].iter_mut().zip(family.name().bytes()) {
            *slot = byte;
        }
        key[24] = purpose.byte();
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(index);
        Self { rng, spare: None }
    }

    /// Returns a number in [0, 1) of 53 bits.
    pub fn uniform(&mut self) -> f64 {
        (self.rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Returns a normal deviate by Marsaglia's polar method (SIAM Review 6:260, 1964), which needs
    /// no sine.
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

/// The purpose of a stream.
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

/// Computes the logarithm of a positive normal number from its exponent and the series of atanh:
/// |s| <= 0.1716, so that the term left out, 2 s^25 / 25, is below 1e-20.
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

/// Computes 2^x: the fraction's first 24 bits select factors 2^(1/2), 2^(1/4), …
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

/// A tensor before rounding.
pub(super) struct Drawn {
    /// `[batch, heads, rows, head_dim]`, dense.
    pub values: Vec<f32>,
    /// The scales for E4M3, where the family sets them.
    pub scales: Option<Vec<f32>>,
}

impl Drawn {
    /// Sets the scales of a cache, which hold its largest values and differ from head to head.
    pub(super) fn with_scales_of_cache(
        self,
        seed: u64,
        tensor: Tensor,
        [batch, heads, rows, dim]: [usize; 4],
    ) -> Self {
        let mut scales = draw_powers(seed, tensor, batch * heads, CACHE_EXPONENTS);
        let heads_of_values = self.values.par_chunks(rows * dim);
        scales
            .par_iter_mut()
            .zip(heads_of_values)
            .for_each(|(scale, values)| *scale *= quantise::scale_of(values));
        Self {
            values: self.values,
            scales: Some(scales),
        }
    }
}

/// Draws a tensor of these extents, one stream per batch and head.
pub(super) fn draw(family: Family, seed: u64, tensor: Tensor, extents: [usize; 4]) -> Drawn {
    let [batch, heads, rows, dim] = extents;
    let mut values = vec![0f32; batch * heads * rows * dim];
    values
        .par_chunks_mut(rows * dim)
        .enumerate()
        .for_each(|(number, head_values)| {
            let mut head = Head {
                family,
                seed,
                tensor,
                number: number as u64,
                rows,
                dim,
                values: head_values,
                stream: Stream::new(seed, family, Purpose::Values(tensor), number as u64),
            };
            head.draw();
            // Head 0 of Q, 1 of K, 2 of V.
            if family == Family::ZeroHead && number % heads == tensor as usize % heads {
                head.values.fill(0.0);
            }
        });
    if family != Family::RandomScales {
        return Drawn {
            values,
            scales: None,
        };
    }
    let scales = draw_powers(seed, tensor, batch * heads, SCALE_EXPONENTS);
    for (head_values, &scale) in values.chunks_mut(rows * dim).zip(&scales) {
        change(head_values, |value| value * scale);
    }
    Drawn {
        values,
        scales: Some(scales),
    }
}

/// Draws powers 2^x, x uniform between these bounds.
fn draw_powers(seed: u64, tensor: Tensor, count: usize, (low, high): (f64, f64)) -> Vec<f32> {
    let mut stream = Stream::new(seed, Family::RandomScales, Purpose::Scales(tensor), 0);
    (0..count)
        .map(|_| two_to(low + (high - low) * stream.uniform()) as f32)
        .collect()
}

fn change(values: &mut [f32], to: impl Fn(f32) -> f32) {
    for value in values {
        *value = to(*value);
    }
}

/// One head of a tensor while it is drawn.
struct Head<'a> {
    family: Family,
    seed: u64,
    tensor: Tensor,
    /// The dense number of the head over all batches.
    number: u64,
    rows: usize,
    dim: usize,
    values: &'a mut [f32],
    stream: Stream,
}

impl Head<'_> {
    /// Draws N(0, 1) values and shapes them.
    fn draw(&mut self) {
        self.values.fill_with(|| self.stream.normal());
        match self.family {
            Family::Normal | Family::RandomScales | Family::ZeroHead => {}
            Family::Shifted => change(self.values, |value| value + SHIFT),
            Family::AllNegative => match self.tensor {
                Tensor::Q => change(self.values, f32::abs),
                Tensor::K => change(self.values, |value| -value.abs()),
                Tensor::V => {}
            },
            Family::Large => change(self.values, |value| value * LARGE),
            Family::Outliers => self.add_outliers(),
            Family::DeepNegative => self.make_deep_negative(),
            Family::Huge => self.make_huge(),
            Family::MixedScale => self.make_mixed_scale(),
            Family::Colossal => self.make_colossal(),
            Family::Subnormal if self.tensor == Tensor::V => {
                self.multiply_by_two_to(SUBNORMAL_VALUES)
            }
            Family::Subnormal => {}
            Family::WideRange => self.multiply_by_two_to(match self.tensor {
                Tensor::Q => WIDE_LOGITS,
                Tensor::K => -WIDE_LOGITS,
                Tensor::V if self.number.is_multiple_of(2) => WIDE_VALUES,
                Tensor::V => -WIDE_VALUES,
            }),
            Family::Saturated => change(self.values, |value| value.clamp(-CLAMP, CLAMP)),
            Family::Peaked => {
                let place =
                    Stream::new(self.seed, self.family, Purpose::Winner, self.number).uniform();
                let winner = (place * self.rows as f64) as usize;
                self.lean_towards(winner, WINNER_LOGIT);
            }
            Family::Sink => {
                self.lean_towards(0, natural_log(self.rows as f64) as f32 + SINK_LOGIT);
                if self.tensor == Tensor::V {
                    change(&mut self.values[..self.dim], |value| value * SINK_VALUE);
                }
            }
        }
    }

    fn multiply_by_two_to(&mut self, exponent: i32) {
        let factor = two_to(exponent.into()) as f32;
        change(self.values, |value| value * factor);
    }

    fn add_outliers(&mut self) {
        for value in self.values.iter_mut() {
            if self.stream.uniform() < OUTLIER_RATE {
                *value += OUTLIER_DEVIATION * self.stream.normal();
            }
        }
    }

    fn make_deep_negative(&mut self) {
        for row in self.values.chunks_mut(self.dim) {
            match self.tensor {
                Tensor::Q => {
                    let length = two_to(DEEP_ROWS * self.stream.uniform()) as f32;
                    change(row, |value| length * (1.0 + DEEP_NOISE * value));
                }
                Tensor::K => {
                    let length = DEEP_KEY * two_to(DEEP_KEYS * self.stream.uniform()) as f32;
                    change(row, |value| value - length);
                }
                Tensor::V => {}
            }
        }
    }

    fn make_huge(&mut self) {
        let (low, high) = HUGE;
        let factor = low + (high - low) * self.stream.uniform() as f32;
        change(self.values, |value| value * factor);
        if self.tensor != Tensor::K {
            return;
        }
        let dim = self.dim;
        for key in (1..self.rows).step_by(4) {
            self.values
                .copy_within((key - 1) * dim..key * dim, key * dim);
            if key % 8 == 5 {
                self.values[(key + 1) * dim - 1] *= NEAR_TIE;
            }
        }
    }

    fn make_mixed_scale(&mut self) {
        for row in self.values.chunks_mut(self.dim) {
            let lean = match self.tensor {
                Tensor::Q => {
                    let place = MIXED_ROWS.len() as f64 * self.stream.uniform();
                    MIXED_ROWS[place as usize]
                }
                Tensor::K => MIXED_KEY,
                Tensor::V => 0.0,
            };
            change(row, |value| value + lean);
        }
    }

    fn make_colossal(&mut self) {
        for (index, row) in self.values.chunks_mut(self.dim).enumerate() {
            match self.tensor {
                Tensor::Q => {
                    let (low, high) = COLOSSAL_ROWS;
                    let exponent = (low + (high - low) * self.stream.uniform()).floor();
                    row.fill((two_to(exponent) as f32).copysign(row[0]));
                }
                Tensor::K if index % 2 == 0 => row.fill(COLOSSAL_KEY),
                Tensor::K => change(row, |value| COLOSSAL_KEY * (0.5 + 0.25 * value)),
                Tensor::V => {}
            }
        }
    }

    /// Makes one key win in every row with `logit`.
    ///
    /// Queries lean towards one direction of signs, shared by all heads so that grouped heads agree
    /// on it; the winning key lies along it: logit = dim * amplitude / sqrt(dim) at the default
    /// scale.
    fn lean_towards(&mut self, winner: usize, logit: f32) {
        let dim = self.dim;
        let mut direction = Stream::new(self.seed, self.family, Purpose::Direction, 0);
        let signs: Vec<f32> = (0..dim)
            .map(|_| if direction.uniform() < 0.5 { -1.0 } else { 1.0 })
            .collect();
        match self.tensor {
            Tensor::Q => {
                for row in self.values.chunks_mut(dim) {
                    add(row, &signs, 1.0);
                }
            }
            Tensor::K => {
                let amplitude = logit / (dim as f32).sqrt();
                add(
                    &mut self.values[winner * dim..(winner + 1) * dim],
                    &signs,
                    amplitude,
                );
            }
            Tensor::V => {}
        }
    }
}

fn add(row: &mut [f32], direction: &[f32], amplitude: f32) {
    for (value, sign) in row.iter_mut().zip(direction) {
        *value += amplitude * sign;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_and_power_agree_with_libm() {
        for step in 1..4000 {
            let x = f64::from(step) / 1999.5;
            let bound = 4e-16 * (1.0 + x.ln().abs());
            assert!((natural_log(x) - x.ln()).abs() <= bound, "{x}");
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
            let computed = moment(power);
            assert!(
                (computed - expected).abs() <= bound,
                "moment {power}: {computed}"
            );
        }
        let beyond = draws.iter().filter(|x| x.abs() > 1.959_964).count() as f64 / f64::from(n);
        assert!((beyond - 0.05).abs() <= 0.003, "{beyond}");
    }
}
