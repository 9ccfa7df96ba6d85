//! The operands of one row in FP64, and the quantities that are compared.

use super::rounding::{E4M3_UNIT, TANGENT, UNIT};
use crate::inputs::{Inputs, Operand};
use crate::probability::Probability;
use crate::problem::Dtype;
use crate::sequences::sinks;
use std::f64::consts::LOG2_E;
use std::ops::Range;

/// A row to explain.
pub struct Case<'a> {
    pub inputs: &'a Inputs,
    /// Batch, head and query row.
    pub row: [usize; 3],
    /// P's type where it meets V.
    pub probability: Probability,
    /// Whether the blocks of a cluster share the row.
    pub is_shared: bool,
    /// The stored row; none where the kernel did not come to that.
    pub output: Option<&'a [f32]>,
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Quantity {
        /// Q·K, masked, not scaled; under a softcap its tangent, whose factor is the cap.
        Score = "S",
        /// The running maximum of scaled scores, in base 2.
        Maximum = "the running maximum",
        /// Exponentials under the maximum.
        Probability = "P",
        Sum = "the running sum",
        /// O so far, under the new maximum.
        Rescaled = "O, rescaled,",
        Output = "O",
        /// The keys that count in a row.
        Keys = "the set of keys",
        Result = "the stored output",
    }
}

/// A number of the kernel beside the model's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// Key or output column; 0 for what the row has once.
    pub at: i64,
    pub kernel: f64,
    pub model: f64,
    /// Largest difference allowed.
    pub bound: f64,
}

impl Wrong {
    /// Returns whether the kernel's number is within its bound. Infinities must agree, and NaN
    /// never does.
    pub(super) fn is_right(&self) -> bool {
        self.kernel == self.model || (self.kernel - self.model).abs() <= self.bound
    }

    /// Returns the numbers that are beyond their bounds.
    pub(super) fn only_wrong(numbers: impl Iterator<Item = Self>) -> Vec<Self> {
        numbers.filter(|number| !number.is_right()).collect()
    }

    /// Returns the part of its bound that the difference takes, 0 if that is no number.
    pub(super) fn share_of_bound(&self) -> f64 {
        let share = (self.kernel - self.model).abs() / self.bound;
        if share.is_finite() { share } else { 0.0 }
    }
}

/// The operands that a query row meets, in FP64.
pub(super) struct Operands {
    q: Vec<f64>,
    k: Vec<f64>,
    v: Vec<f64>,
    /// The factor of the scores under which their exponentials are powers of two.
    pub scale_log2: f64,
    pub value_scale: f64,
    pub dim: usize,
    keys: usize,
    /// `batch * heads_kv + head_kv`.
    head: usize,
    /// The keys that the row sees.
    pub visible: Range<usize>,
    /// The factor of a score whose tangent is taken; `None` without a softcap.
    tangent_scale: Option<f64>,
    /// The row's sink in base 2, as a maximum of scaled scores.
    pub sink: Option<f64>,
    pub dtype: Dtype,
}

/// A score of the model, and what a kernel's may differ from it.
pub(super) struct ModelScore {
    pub value: f64,
    pub bound: f64,
}

impl ModelScore {
    /// Returns the hyperbolic tangent of `scale` times the score.
    fn tangent(self, scale: f64) -> Self {
        Self {
            value: (self.value * scale).tanh(),
            bound: self.bound * scale.abs() + TANGENT,
        }
    }
}

impl Operands {
    pub fn new(case: &Case<'_>) -> Self {
        let inputs = case.inputs;
        let [batch, head, query] = case.row;
        let shape = inputs.problem.shape;
        let dim = shape.head_dim;
        let head_kv = head / (shape.heads_q / shape.heads_kv);
        let row = (batch * shape.heads_q + head) * shape.seq_q + query;
        let scales =
            f64::from(inputs.q.scale(batch, head)) * f64::from(inputs.k.scale(batch, head_kv));
        let score_scale = f64::from(inputs.problem.softmax_scale) * scales;
        let softcap = shape.serving.softcap.map(f64::from);
        let sequence = shape.sequences()[batch];
        Self {
            q: widened(&inputs.q)[row * dim..][..dim].to_vec(),
            k: widened(&inputs.k),
            v: widened(&inputs.v),
            scale_log2: softcap.unwrap_or(score_scale) * LOG2_E,
            value_scale: f64::from(inputs.v.scale(batch, head_kv)),
            dim,
            keys: shape.seq_kv,
            head: batch * shape.heads_kv + head_kv,
            visible: inputs.problem.visible(sequence, query),
            tangent_scale: softcap.map(|cap| score_scale / cap),
            sink: sinks(&shape)
                .get(head)
                .map(|&logit| f64::from(logit) * LOG2_E),
            dtype: inputs.problem.dtype,
        }
    }

    pub fn sees(&self, key: i64) -> bool {
        usize::try_from(key).is_ok_and(|index| self.visible.contains(&index))
    }

    /// Returns the score of a key as kernels show it: minus infinity where the row does not see it.
    pub fn score(&self, key: i64) -> ModelScore {
        let row_of_k = self.row_of(&self.k, key);
        let Some(key_row) = row_of_k.filter(|_| self.sees(key)) else {
            return ModelScore {
                value: f64::NEG_INFINITY,
                bound: 0.0,
            };
        };
        let products = self.q.iter().zip(key_row).map(|(q, k)| q * k);
        let magnitude: f64 = products.clone().map(f64::abs).sum();
        let f32_rounding = (self.dim + 8) as f64 * UNIT;
        let rounding = match self.dtype {
            Dtype::F16 | Dtype::Bf16 => f32_rounding,
            Dtype::E4m3 => f32_rounding + (self.dim / 32) as f64 * E4M3_UNIT,
        };
        let score = ModelScore {
            value: products.sum(),
            bound: rounding * magnitude,
        };
        match self.tangent_scale {
            None => score,
            Some(scale) => score.tangent(scale),
        }
    }

    /// Returns an element of V without scale, 0 where there is none.
    pub fn value(&self, key: i64, column: usize) -> f64 {
        let element = self.row_of(&self.v, key).and_then(|row| row.get(column));
        element.copied().unwrap_or(0.0)
    }

    /// Returns the row of K or V, if there is such a key.
    fn row_of<'a>(&self, operand: &'a [f64], key: i64) -> Option<&'a [f64]> {
        let index = usize::try_from(key).ok()?;
        if index >= self.keys {
            return None;
        }
        Some(&operand[(self.head * self.keys + index) * self.dim..][..self.dim])
    }
}

fn widened(operand: &Operand) -> Vec<f64> {
    operand.codes().into_iter().map(f64::from).collect()
}
