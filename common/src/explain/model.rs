//! The FP64 model of one step of a row. It starts from what the kernel had before the step, so that
//! bounds do not grow from step to step.

use super::operands::{Operands, Quantity, Wrong};
use super::rounding::{E4M3_UNIT, EXPONENTIAL, UNIT, exponential_error};
use super::steps::{Cell, Step};
use crate::probability::Probability;

/// The magnitude of scaled scores from which kernels round the scale (`is_far` of softmax.cuh).
const FAR: f64 = (1u64 << 28) as f64;
/// The number of powers of two that a score may exceed a maximum of earlier tiles by: no
/// exponential overflows f32.
const MOST_ABOVE_MAXIMUM: f64 = 15.0;

/// The state of a warp between two steps, in the kernel's own figures.
#[derive(Debug)]
pub(super) struct State {
    pub max: f64,
    pub sum: f64,
    pub output: Vec<f64>,
    /// The sum of the magnitudes of the lanes' parts, for each column of the output.
    pub magnitude: Vec<f64>,
}

impl State {
    /// Returns the state of a warp that has seen no key.
    pub fn empty(dim: usize) -> Self {
        Self {
            max: f64::from(f32::MIN),
            sum: 0.0,
            output: vec![0.0; dim],
            magnitude: vec![0.0; dim],
        }
    }

    /// Returns the factor that brings sums and outputs so far under the maximum `max`.
    pub fn factor(&self, max: f64) -> f64 {
        (self.max - max).exp2()
    }

    /// Returns the state after `step`. What the kernel does not show there stays as it is.
    pub fn after(&self, step: &Step) -> Self {
        let mut next = Self {
            max: self.maximum_in(step),
            sum: step.row_sum().unwrap_or(self.sum),
            output: self.output.clone(),
            magnitude: self.magnitude.clone(),
        };
        for column in 0..self.output.len() {
            if let Some(cell) = step.output.get(&(column as i64)) {
                next.output[column] = cell.sum();
                next.magnitude[column] = cell.magnitude();
            }
        }
        next
    }

    fn maximum_in(&self, step: &Step) -> f64 {
        step.max.as_ref().map_or(self.max, Cell::any)
    }
}

/// A number of the kernel beside the model's, and the cell that shows it.
pub(super) struct Shown<'a> {
    pub cell: &'a Cell,
    pub number: Wrong,
}

/// A value of the model, and what a kernel's may differ from it.
#[derive(Clone, Copy)]
struct Expected {
    value: f64,
    bound: f64,
}

impl Expected {
    /// Puts the number that a kernel shows in `cell` beside this value.
    fn beside(self, at: i64, cell: &Cell, kernel: f64) -> Shown<'_> {
        Shown {
            cell,
            number: Wrong {
                at,
                kernel,
                model: self.value,
                bound: self.bound,
            },
        }
    }
}

/// The model of one step: each method computes one quantity for every number that the kernel shows.
/// They build on the kernel's own figures of the quantities before.
pub(super) struct StepModel<'step, 'a> {
    operands: &'a Operands,
    step: &'step Step,
    before: &'a State,
    /// P's type where it meets V.
    probability: Probability,
    /// The factor of this step's scores.
    scale: f64,
    /// The running maximum of the kernel after this step.
    max: f64,
    /// The factor of sums and outputs so far, and its relative error.
    factor: f64,
    factor_error: f64,
}

impl<'step, 'a> StepModel<'step, 'a> {
    pub fn new(
        operands: &'a Operands,
        step: &'step Step,
        before: &'a State,
        probability: Probability,
    ) -> Self {
        let max = before.maximum_in(step);
        Self {
            operands,
            step,
            before,
            probability,
            scale: score_scale(step, operands.scale_log2),
            max,
            factor: before.factor(max),
            factor_error: exponential_error(before.max, max),
        }
    }

    /// Returns the numbers of `quantity` that a step shows: none for quantities of a whole row.
    pub fn numbers(&self, quantity: Quantity) -> Vec<Shown<'step>> {
        match quantity {
            Quantity::Score => self.scores(),
            Quantity::Maximum => self.maximum(),
            Quantity::Probability => self.probabilities(),
            Quantity::Sum => self.sum(),
            Quantity::Rescaled => self.rescaled(),
            Quantity::Output => self.output(),
            Quantity::Keys | Quantity::Result => Vec::new(),
        }
    }

    fn scores(&self) -> Vec<Shown<'step>> {
        let mut shown = Vec::new();
        for (&key, cell) in &self.step.scores {
            let score = self.operands.score(key);
            let expected = Expected {
                value: score.value,
                bound: score.bound,
            };
            shown.push(expected.beside(key, cell, cell.any()));
        }
        shown
    }

    fn maximum(&self) -> Vec<Shown<'step>> {
        let Some(cell) = &self.step.max else {
            return Vec::new();
        };
        let largest = scores(self.step)
            .map(|score| score * self.scale)
            .fold(self.before.max, f64::max);
        // A maximum of earlier tiles will do as long as no exponential overflows: P and the sum are
        // judged by it.
        let is_kept = self.max == self.before.max && largest - self.max < MOST_ABOVE_MAXIMUM;
        let value = if is_kept { self.max } else { largest };
        let expected = Expected {
            value,
            bound: 4.0 * UNIT * value.abs(),
        };
        let lanes = cell.lanes.values();
        lanes
            .map(|&kernel| expected.beside(0, cell, kernel))
            .collect()
    }

    fn probabilities(&self) -> Vec<Shown<'step>> {
        let mut shown = Vec::new();
        for (&key, cell) in &self.step.probabilities {
            let score = self.step.scores.get(&key).map_or(f64::NAN, Cell::any);
            let scaled = score * self.scale;
            let value = (scaled - self.max).exp2();
            let rounding = if value == 0.0 {
                0.0
            } else {
                value * exponential_error(scaled, self.max)
            };
            let expected = Expected {
                value,
                bound: rounding + f64::from(f32::MIN_POSITIVE),
            };
            shown.push(expected.beside(key, cell, cell.any()));
        }
        shown
    }

    fn sum(&self) -> Vec<Shown<'step>> {
        let Some(cell) = &self.step.sum else {
            return Vec::new();
        };
        let added: f64 = self.step.probabilities.values().map(Cell::any).sum();
        let kept = self.before.sum * self.factor;
        let value = kept + added;
        let adding_error = self.step.probabilities.len() as f64 * UNIT + EXPONENTIAL;
        let expected = Expected {
            value,
            bound: value * adding_error + kept * self.factor_error,
        };
        if self.step.sum_in_parts {
            return vec![expected.beside(0, cell, cell.sum())];
        }
        let lanes = cell.lanes.values();
        lanes
            .map(|&kernel| expected.beside(0, cell, kernel))
            .collect()
    }

    fn rescaled(&self) -> Vec<Shown<'step>> {
        let mut shown = Vec::new();
        for (&column, cell) in &self.step.rescaled {
            let expected = self.rescaled_column(column);
            shown.push(expected.beside(column, cell, cell.sum()));
        }
        shown
    }

    /// Computes a column of the output so far under the new maximum.
    fn rescaled_column(&self, column: i64) -> Expected {
        let output = at_column(&self.before.output, column);
        let magnitude = at_column(&self.before.magnitude, column);
        Expected {
            value: output * self.factor,
            bound: magnitude * self.factor * (self.factor_error + 4.0 * UNIT),
        }
    }

    fn output(&self) -> Vec<Shown<'step>> {
        let weights = self.weights();
        let mut shown = Vec::new();
        for (&column, cell) in &self.step.output {
            let expected = self.output_column(column, cell, &weights);
            shown.push(expected.beside(column, cell, cell.sum()));
        }
        shown
    }

    /// Computes a column of the output after this step: what was there, and P times V.
    fn output_column(&self, column: i64, cell: &Cell, weights: &[Weight]) -> Expected {
        // Where the kernel shows O before P times V, its own figures are what was there.
        let (before, magnitude_before) = match self.step.rescaled.get(&column) {
            Some(rescaled) => {
                let exact = Expected {
                    value: rescaled.sum(),
                    bound: 0.0,
                };
                (exact, rescaled.magnitude())
            }
            None => {
                let rescaled = self.rescaled_column(column);
                (rescaled, rescaled.value.abs())
            }
        };
        let mut magnitude = magnitude_before + cell.magnitude();
        let mut value = before.value;
        for weight in weights {
            let element = self.operands.value(weight.key, column_index(column));
            let product = weight.p * element;
            value += product;
            magnitude += product.abs();
        }
        let f32_rounding = (weights.len() + 16) as f64 * UNIT;
        let rounding = match self.probability {
            Probability::F32 | Probability::F16 | Probability::Bf16 => f32_rounding,
            Probability::E4m3 => f32_rounding + weights.len() as f64 / 32.0 * E4M3_UNIT,
        };
        Expected {
            value,
            bound: rounding * magnitude + before.bound,
        }
    }

    /// Returns P of the step as it meets V, without zeros.
    fn weights(&self) -> Vec<Weight> {
        let mut weights = Vec::new();
        for (&key, cell) in &self.step.probabilities {
            let p = rounded(cell.any(), self.probability);
            if p != 0.0 {
                weights.push(Weight { key, p });
            }
        }
        weights
    }
}

/// P of one key, as it meets V.
struct Weight {
    key: i64,
    p: f64,
}

fn rounded(p: f64, probability: Probability) -> f64 {
    let mut value = [p as f32];
    probability.round(&mut value);
    value[0].into()
}

/// Returns the value of a column: 0 beyond head_dim, where boxes are filled with zeros, and NaN,
/// which no kernel's is equal to, before the first.
fn at_column(values: &[f64], column: i64) -> f64 {
    match usize::try_from(column) {
        Ok(index) => values.get(index).copied().unwrap_or(0.0),
        Err(_) => f64::NAN,
    }
}

/// Returns the index of a column, one that no output has if it is negative.
fn column_index(column: i64) -> usize {
    usize::try_from(column).unwrap_or(usize::MAX)
}

fn scores(step: &Step) -> impl Iterator<Item = f64> {
    step.scores.values().map(Cell::any)
}

/// Returns the factor of the step's scores. The largest decides: from [`FAR`] on kernels use a
/// power of two (`far_scale` of softmax.cuh).
fn score_scale(step: &Step, scale_log2: f64) -> f64 {
    let largest = scores(step).fold(f64::NEG_INFINITY, f64::max);
    if (largest * scale_log2).abs() < FAR {
        scale_log2
    } else {
        scale_log2.abs().log2().ceil().exp2().copysign(scale_log2)
    }
}
