//! The comparison of a row as a whole: the keys that count in it, and the stored numbers.

use super::explained::Deviation;
use super::look::{self, Doubt, Suspect};
use super::model::State;
use super::operands::{Operands, Quantity, Wrong};
use super::rounding::{UNIT, exponential_error};
use super::steps::Chain;
use emulator::trace::Observations;

/// Returns the visible keys that do not count exactly once in all chains.
pub(super) fn miscounted_keys(
    operands: &Operands,
    chains: &[Chain],
    observations: &Observations,
) -> Option<Deviation> {
    let first_key = operands.visible.start;
    let mut counts = vec![0u32; operands.visible.len()];
    let mut last_cell = None;
    for step in chains.iter().flat_map(|chain| &chain.steps) {
        for (&key, cell) in &step.scores {
            if operands.sees(key) {
                counts[key as usize - first_key] += 1;
                last_cell = Some(cell);
            }
        }
    }
    let keys = operands.visible.clone().zip(&counts);
    let wrong = Wrong::only_wrong(keys.map(|(key, &count)| Wrong {
        at: key as i64,
        kernel: count.into(),
        model: 1.0,
        bound: 0.0,
    }));
    if wrong.is_empty() {
        return None;
    }
    let look = match last_cell {
        Some(cell) => look::suspects_of_value(
            observations,
            Quantity::Keys,
            cell,
            Doubt::Here,
            operands.visible.end,
        ),
        None => Vec::new(),
    };
    Some(Deviation {
        quantity: Quantity::Keys,
        at: None,
        compared: counts.len(),
        look,
        wrong,
    })
}

/// The stored row beside what the warps had at their ends.
pub(super) struct StoredRow {
    numbers: Vec<Wrong>,
}

impl StoredRow {
    /// Merges the ends of all warps, as the kernel has to, and compares what it stored.
    pub fn compare(operands: &Operands, is_shared: bool, ends: &[State], stored: &[f32]) -> Self {
        let merge = Merge::new(ends, operands);
        let exponential = exponential_error(merge.max, merge.max);
        let slack = exponential * ends.len() as f64 + 64.0 * UNIT;
        let storing_error = operands.dtype.output().unit();
        let mut numbers = Vec::new();
        for (column, &kernel) in stored[..operands.dim].iter().enumerate() {
            let model = merge.weighted(|end| end.output[column]);
            let magnitude = merge.weighted(|end| end.magnitude[column]).abs();
            let mut bound = model.abs() * storing_error + magnitude * slack + UNIT;
            if is_shared {
                bound += magnitude * storing_error + 4.0 * UNIT * operands.value_scale.abs();
            }
            numbers.push(Wrong {
                at: column as i64,
                kernel: kernel.into(),
                model,
                bound,
            });
        }
        Self { numbers }
    }

    /// Returns the largest part of its bound that a number's difference takes.
    pub fn largest_share(&self) -> f64 {
        let shares = self.numbers.iter().map(Wrong::share_of_bound);
        shares.fold(0.0, f64::max)
    }

    /// Returns the columns that are stored wrong, though every step was right.
    pub fn deviation(&self, observations: &Observations) -> Option<Deviation> {
        let wrong = Wrong::only_wrong(self.numbers.iter().copied());
        if wrong.is_empty() {
            return None;
        }
        Some(Deviation {
            quantity: Quantity::Result,
            at: None,
            compared: self.numbers.len(),
            look: look::suspects_at_end(observations, &self.numbers, &wrong),
            wrong,
        })
    }

    /// Returns the places to look at where all of the row is in doubt.
    pub fn suspects(&self, observations: &Observations) -> Vec<Suspect> {
        look::suspects_at_end(observations, &self.numbers, &self.numbers)
    }
}

/// The merge of the warps' ends, and of the row's sink, under their common maximum.
struct Merge<'a> {
    ends: &'a [State],
    max: f64,
    /// The factor of each end.
    factors: Vec<f64>,
    /// The factor of the output; 0 for a row without keys.
    inverse: f64,
}

impl<'a> Merge<'a> {
    fn new(ends: &'a [State], operands: &Operands) -> Self {
        let largest = ends.iter().map(|end| end.max).chain(operands.sink);
        let max = largest.fold(f64::from(f32::MIN), f64::max);
        let factors: Vec<f64> = ends.iter().map(|end| end.factor(max)).collect();
        let parts = ends.iter().zip(&factors);
        let of_keys: f64 = parts.map(|(end, factor)| end.sum * factor).sum();
        let of_sink = operands.sink.map_or(0.0, |sink| (sink - max).exp2());
        let sum = of_keys + of_sink;
        let inverse = if sum > 0.0 {
            operands.value_scale / sum
        } else {
            0.0
        };
        Self {
            ends,
            max,
            factors,
            inverse,
        }
    }

    /// Computes the merged row's figure from one of each end.
    fn weighted(&self, figure: impl Fn(&State) -> f64) -> f64 {
        let parts = self.ends.iter().zip(&self.factors);
        let sum: f64 = parts.map(|(end, factor)| figure(end) * factor).sum();
        sum * self.inverse
    }
}
