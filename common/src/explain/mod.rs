//! Why a row is wrong: what a kernel showed of it in the emulator against an FP64 model of each step, which takes what the
//! kernel had before the step, so that no bound grows.

mod investigate;
mod look;
mod operands;
mod steps;

use crate::inputs::{Inputs, Operand};
use crate::problem::Dtype;
use crate::reference::Probability;
use emulator::trace::Observations;

pub use investigate::{InvestigateError, Investigated, investigate};
pub use look::{Action, Suspect};
pub use operands::{Quantity, Wrong};
pub use steps::{Cell, Chain, Step, chains};

use look::Doubt;
use operands::Operands;

#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    pub quantity: Quantity,
    /// Indices in [`Explained::chains`] and its steps; none for the row as a whole.
    pub at: Option<[usize; 2]>,
    pub wrong: Vec<Wrong>,
    pub of: usize,
    pub look: Vec<Suspect>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Explained {
    pub chains: Vec<Chain>,
    pub deviation: Option<Deviation>,
    pub closest: Option<Closest>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Closest {
    /// What it is of.
    pub quantity: Quantity,
    pub share: f64,
    /// The first key of its tile; none for the row as a whole.
    pub tile: Option<i64>,
    pub look: Vec<Suspect>,
}

pub struct Case<'a> {
    pub inputs: &'a Inputs,
    /// Batch, head and query row.
    pub row: [usize; 3],
    /// P's type where it meets V.
    pub probability: Probability,
    pub is_shared: bool,
    /// The stored row; none where it did not come to that.
    pub output: Option<&'a [f32]>,
}

const UNIT: f64 = 1.0 / (1u64 << 24) as f64;

/// A largest score that kernels scale exactly, as `is_far` of softmax.cuh has it.
const FAR: f64 = (1u64 << 28) as f64;
/// Hopper adds up products of E4M3 in so few bits: `common/docs/fp8-accumulation.md`.
const E4M3_UNIT: f64 = 1.0 / (1u64 << 13) as f64;
/// ex2.approx is within 2 ulp; a multiply-add and a product stand around it.
const EXPONENTIAL: f64 = 8.0 * UNIT;

impl Operands {
    fn new(case: &Case<'_>) -> Self {
        let (inputs, [b, h, s]) = (case.inputs, case.row);
        let shape = inputs.problem.shape;
        let wide = |operand: &Operand| operand.codes().into_iter().map(f64::from).collect();
        let head_kv = h / (shape.heads_q / shape.heads_kv);
        let head = b * shape.heads_kv + head_kv;
        let scale = |operand: &Operand, head| f64::from(operand.scale(b, head));
        let (q, dim): (Vec<f64>, _) = (wide(&inputs.q), shape.head_dim);
        let row = (b * shape.heads_q + h) * shape.seq_q + s;
        let scales = scale(&inputs.q, h) * scale(&inputs.k, head_kv);
        Self {
            q: q[row * dim..][..dim].to_vec(),
            k: wide(&inputs.k),
            v: wide(&inputs.v),
            scale_log2: f64::from(inputs.problem.softmax_scale) * std::f64::consts::LOG2_E * scales,
            value_scale: scale(&inputs.v, head_kv),
            dim,
            keys: shape.seq_kv,
            head,
            visible: inputs.problem.visible_keys(s),
            dtype: inputs.problem.dtype,
        }
    }

    /// Of K or V, where there is such a key.
    fn row<'a>(&self, of: &'a [f64], key: i64) -> Option<&'a [f64]> {
        let key = usize::try_from(key).ok().filter(|key| *key < self.keys)?;
        Some(&of[(self.head * self.keys + key) * self.dim..][..self.dim])
    }

    fn sees(&self, key: i64) -> bool {
        (0..self.visible as i64).contains(&key)
    }

    fn score(&self, key: i64) -> (f64, f64) {
        let Some(k) = self.row(&self.k, key).filter(|_| self.sees(key)) else {
            return (f64::NEG_INFINITY, 0.0);
        };
        let magnitude: f64 = self.q.iter().zip(k).map(|(q, k)| (q * k).abs()).sum();
        let rounding = (self.dim + 8) as f64 * UNIT;
        let rounding = match self.dtype {
            Dtype::F16 | Dtype::Bf16 => rounding,
            Dtype::E4m3 => rounding + (self.dim / 32) as f64 * E4M3_UNIT,
        };
        (dot(&self.q, k), rounding * magnitude)
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[derive(Debug)]
struct Before {
    max: f64,
    sum: f64,
    output: Vec<f64>,
    /// Of the lanes' parts.
    magnitude: Vec<f64>,
}

impl Before {
    fn nothing(dim: usize) -> Self {
        Self {
            max: f64::from(f32::MIN),
            sum: 0.0,
            output: vec![0.0; dim],
            magnitude: vec![0.0; dim],
        }
    }

    /// Of sums and outputs so far under a new maximum.
    fn factor(&self, max: f64) -> f64 {
        (self.max - max).exp2()
    }
}

/// As `far_scale` of softmax.cuh.
fn far_scale(scale_log2: f64) -> f64 {
    scale_log2.abs().log2().ceil().exp2().copysign(scale_log2)
}

/// Relative error of a power of two whose exponent is a difference of these.
fn exponential(of: f64, shift: f64) -> f64 {
    EXPONENTIAL + (4.0 * UNIT * (of.abs() + shift.abs())).min(100.0).exp_m1()
}

/// Infinities must agree, and NaN never does.
fn is_right(wrong: &Wrong) -> bool {
    wrong.kernel == wrong.model || (wrong.kernel - wrong.model).abs() <= wrong.bound
}

struct Found<'a> {
    quantity: Quantity,
    wrong: Vec<Wrong>,
    of: usize,
    cell: &'a Cell,
}

#[derive(Clone, Copy, Default)]
struct Largest<'a> {
    share: f64,
    of: Option<(Quantity, &'a Cell)>,
}

fn share(of: &Wrong) -> f64 {
    let share = (of.kernel - of.model).abs() / of.bound;
    if share.is_finite() { share } else { 0.0 }
}

fn compare<'a>(
    largest: &mut Largest<'a>,
    quantity: Quantity,
    cells: impl IntoIterator<Item = (i64, &'a Cell, f64, (f64, f64))>,
) -> Result<(), Found<'a>> {
    let (mut wrong, mut of, mut first) = (Vec::new(), 0, None);
    for (at, cell, kernel, (model, bound)) in cells {
        let found = Wrong {
            at,
            kernel,
            model,
            bound,
        };
        of += 1;
        if share(&found) > largest.share {
            *largest = Largest {
                share: share(&found),
                of: Some((quantity, cell)),
            };
        }
        if !is_right(&found) {
            wrong.push(found);
            first.get_or_insert(cell);
        }
    }
    match first {
        None => Ok(()),
        Some(cell) => Err(Found {
            quantity,
            wrong,
            of,
            cell,
        }),
    }
}

impl Operands {
    fn judge<'a>(
        &self,
        step: &'a Step,
        before: &Before,
        p: Probability,
        of_bounds: &mut Largest<'a>,
    ) -> Result<(), Found<'a>> {
        let scores = step.scores.iter();
        compare(
            of_bounds,
            Quantity::Score,
            scores.map(|(&key, cell)| (key, cell, cell.any(), self.score(key))),
        )?;
        let max = step.max.as_ref().map_or(before.max, Cell::any);
        let scale = self.scale(step);
        if let Some(cell) = &step.max {
            let model = maximum(step, scale, before.max);
            // A maximum of earlier tiles will do as long as no exponential overflows: P and the sum are judged by it.
            let model = match max == before.max && model - max < 15.0 {
                true => max,
                false => model,
            };
            let bound = 4.0 * UNIT * model.abs();
            let lanes = cell.lanes.values();
            compare(
                of_bounds,
                Quantity::Maximum,
                lanes.map(|&kernel| (0, cell, kernel, (model, bound))),
            )?;
        }
        let probabilities = step.probabilities.iter();
        compare(
            of_bounds,
            Quantity::Probability,
            probabilities.map(|(&key, cell)| {
                let score = step.scores.get(&key).map_or(f64::NAN, Cell::any);
                let of = score * scale;
                let model = (of - max).exp2();
                let bound = match model {
                    0.0 => 0.0,
                    _ => model * exponential(of, max),
                };
                let bound = bound + f64::from(f32::MIN_POSITIVE);
                (key, cell, cell.any(), (model, bound))
            }),
        )?;
        let factor = before.factor(max);
        let slack = exponential(before.max, max);
        if let Some(cell) = &step.sum {
            let added: f64 = step.probabilities.values().map(Cell::any).sum();
            let model = before.sum * factor + added;
            let bound = model * (step.probabilities.len() as f64 * UNIT + EXPONENTIAL)
                + before.sum * factor * slack;
            let values: Vec<f64> = if step.sum_in_parts {
                vec![cell.sum()]
            } else {
                cell.lanes.values().copied().collect()
            };
            let values = values.into_iter();
            compare(
                of_bounds,
                Quantity::Sum,
                values.map(|kernel| (0, cell, kernel, (model, bound))),
            )?;
        }
        let column = |at: i64| usize::try_from(at).unwrap_or(usize::MAX);
        let rescaled = |at: i64| {
            let output = before.output.get(column(at)).copied().unwrap_or(f64::NAN);
            let magnitude = before.magnitude.get(column(at)).copied().unwrap_or(0.0);
            (output * factor, magnitude * factor * (slack + 4.0 * UNIT))
        };
        let cells = step.rescaled.iter();
        compare(
            of_bounds,
            Quantity::Rescaled,
            cells.map(|(&at, cell)| (at, cell, cell.sum(), rescaled(at))),
        )?;
        let weights = weights(step, p);
        compare(
            of_bounds,
            Quantity::Output,
            step.output.iter().map(|(&at, cell)| {
                let (base, slack, parts) = match step.rescaled.get(&at) {
                    Some(cell) => (cell.sum(), 0.0, cell.magnitude()),
                    None => {
                        let (base, slack) = rescaled(at);
                        (base, slack, base.abs())
                    }
                };
                let mut magnitude = parts + cell.magnitude();
                let mut model = base;
                for &(key, weight) in &weights {
                    let value = self.row(&self.v, key).and_then(|row| row.get(column(at)));
                    let product = weight * value.copied().unwrap_or(0.0);
                    model += product;
                    magnitude += product.abs();
                }
                let rounding = (weights.len() + 16) as f64 * UNIT;
                let rounding = match p {
                    Probability::F32 | Probability::F16 | Probability::Bf16 => rounding,
                    Probability::E4m3 => rounding + weights.len() as f64 / 32.0 * E4M3_UNIT,
                };
                (at, cell, cell.sum(), (model, rounding * magnitude + slack))
            }),
        )
    }

    /// What the step's scores are scaled by: their largest decides.
    fn scale(&self, step: &Step) -> f64 {
        let scores = step.scores.values().map(Cell::any);
        let largest = scores.fold(f64::NEG_INFINITY, f64::max);
        match (largest * self.scale_log2).abs() < FAR {
            true => self.scale_log2,
            false => far_scale(self.scale_log2),
        }
    }
}

/// With that of the keys before; by the kernel's scores.
fn maximum(step: &Step, scale: f64, before: f64) -> f64 {
    let scores = step.scores.values().map(Cell::any);
    scores.map(|score| score * scale).fold(before, f64::max)
}

fn rounded(p: Probability, weight: f64) -> f64 {
    let mut weight = [weight as f32];
    p.round(&mut weight);
    weight[0].into()
}

/// P of a step, as it meets V.
fn weights(step: &Step, p: Probability) -> Vec<(i64, f64)> {
    let cells = step.probabilities.iter();
    cells
        .map(|(&key, cell)| (key, rounded(p, cell.any())))
        .filter(|(_, weight)| *weight != 0.0)
        .collect()
}

/// By the kernel's own figures.
fn after(step: &Step, before: &Before) -> Before {
    let max = step.max.as_ref().map_or(before.max, Cell::any);
    let of = |at: usize, of: &dyn Fn(&Cell) -> f64, none: &[f64]| {
        step.output.get(&(at as i64)).map_or(none[at], of)
    };
    Before {
        max,
        sum: step.row_sum().unwrap_or(before.sum),
        output: (0..before.output.len())
            .map(|at| of(at, &Cell::sum, &before.output))
            .collect(),
        magnitude: (0..before.output.len())
            .map(|at| of(at, &Cell::magnitude, &before.magnitude))
            .collect(),
    }
}

pub fn explain(case: &Case<'_>, observations: &Observations) -> Explained {
    let operands = Operands::new(case);
    let visible = operands.visible;
    let chains = chains(observations);
    let mut ends = Vec::new();
    let mut first: Option<(Found<'_>, [usize; 2])> = None;
    let (mut largest, mut largest_tile) = (Largest::default(), None);
    for (at, chain) in chains.iter().enumerate() {
        let mut before = Before::nothing(operands.dim);
        for (tile, step) in chain.steps.iter().enumerate() {
            let known = largest.share;
            let judged = operands.judge(step, &before, case.probability, &mut largest);
            if largest.share > known {
                largest_tile = Some(step.tile);
            }
            if let Err(found) = judged {
                let is_first = first.as_ref().is_none_or(|(known, [_, known_tile])| {
                    (tile, found.quantity) < (*known_tile, known.quantity)
                });
                if is_first {
                    first = Some((found, [at, tile]));
                }
                break;
            }
            before = after(step, &before);
        }
        ends.push(before);
    }
    let stored = |output| stored(&operands, case, &ends, output);
    let stored: Vec<Wrong> = case.output.map(stored).unwrap_or_default();
    let deviation = match first {
        Some((found, at)) => {
            let step = &chains[at[0]].steps[at[1]];
            let (quantity, wrong) = (found.quantity, found.wrong);
            let doubt = look::doubt(&operands, step, quantity, &wrong);
            Some(Deviation {
                quantity,
                at: Some(at),
                of: found.of,
                look: look::look(observations, quantity, found.cell, doubt, visible),
                wrong,
            })
        }
        None => case.output.and_then(|_| {
            keys(&operands, &chains, observations).or_else(|| result(&stored, observations))
        }),
    };
    let of_stored = stored.iter().map(share).fold(0.0, f64::max);
    let closest = match largest.of {
        _ if deviation.is_some() => None,
        Some((quantity, cell)) if largest.share > of_stored => Some(Closest {
            quantity,
            share: largest.share,
            tile: largest_tile,
            look: look::look(observations, quantity, cell, Doubt::Here, visible),
        }),
        _ => (!stored.is_empty()).then(|| Closest {
            quantity: Quantity::Result,
            share: of_stored,
            tile: None,
            look: look::look_at_end(observations, &stored, &stored),
        }),
    };
    Explained {
        chains,
        deviation,
        closest,
    }
}

/// Each visible key counts once, in one warp.
fn keys(operands: &Operands, chains: &[Chain], observations: &Observations) -> Option<Deviation> {
    let mut times = vec![0; operands.visible];
    let mut last = None;
    for step in chains.iter().flat_map(|chain| &chain.steps) {
        for (&key, cell) in &step.scores {
            if operands.sees(key) {
                times[key as usize] += 1;
                last = Some(cell);
            }
        }
    }
    let wrong: Vec<Wrong> = (0..)
        .zip(&times)
        .filter(|(_, times)| **times != 1)
        .map(|(at, &times)| Wrong {
            at,
            kernel: times.into(),
            model: 1.0,
            bound: 0.0,
        })
        .collect();
    if wrong.is_empty() {
        return None;
    }
    let (quantity, visible, doubt) = (Quantity::Keys, operands.visible, Doubt::Here);
    let look = last.map(|cell| look::look(observations, quantity, cell, doubt, visible));
    Some(Deviation {
        quantity,
        at: None,
        of: times.len(),
        look: look.unwrap_or_default(),
        wrong,
    })
}

/// The stored row against what the warps had at their end.
fn stored(operands: &Operands, case: &Case<'_>, ends: &[Before], output: &[f32]) -> Vec<Wrong> {
    let max = ends
        .iter()
        .map(|end| end.max)
        .fold(f64::from(f32::MIN), f64::max);
    let factors: Vec<f64> = ends.iter().map(|end| end.factor(max)).collect();
    let sum: f64 = ends.iter().zip(&factors).map(|(end, f)| end.sum * f).sum();
    let inverse = match sum > 0.0 {
        true => operands.value_scale / sum,
        false => 0.0,
    };
    let found = (0..operands.dim).map(|at| {
        let of = |values: fn(&Before) -> &[f64]| -> f64 {
            let parts = ends.iter().zip(&factors);
            parts.map(|(end, f)| values(end)[at] * f).sum::<f64>() * inverse
        };
        let (model, magnitude) = (of(|end| &end.output), of(|end| &end.magnitude));
        let slack = exponential(max, max) * ends.len() as f64 + 64.0 * UNIT;
        let stored = operands.dtype.output().unit();
        let mut bound = model.abs() * stored + magnitude.abs() * slack + UNIT;
        if case.is_shared {
            bound += magnitude.abs() * stored + 4.0 * UNIT * operands.value_scale.abs();
        }
        Wrong {
            at: at as i64,
            kernel: output[at].into(),
            model,
            bound,
        }
    });
    found.collect()
}

fn result(stored: &[Wrong], observations: &Observations) -> Option<Deviation> {
    let wrong: Vec<Wrong> = stored.iter().copied().filter(|it| !is_right(it)).collect();
    if wrong.is_empty() {
        return None;
    }
    Some(Deviation {
        quantity: Quantity::Result,
        at: None,
        of: stored.len(),
        look: look::look_at_end(observations, stored, &wrong),
        wrong,
    })
}

#[cfg(test)]
mod tests;
