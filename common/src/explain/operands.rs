//! What is compared of a row, and what the model has of it.

use crate::problem::Dtype;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Quantity {
        /// Q·K, masked, not scaled.
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

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wrong {
    /// Key or output column; 0 for what the row has once.
    pub at: i64,
    pub kernel: f64,
    pub model: f64,
    /// Largest difference allowed.
    pub bound: f64,
}

pub struct Operands {
    pub q: Vec<f64>,
    pub k: Vec<f64>,
    pub v: Vec<f64>,
    pub scale_log2: f64,
    pub value_scale: f64,
    pub dim: usize,
    pub keys: usize,
    /// `batch * heads_kv + head_kv`.
    pub head: usize,
    pub visible: usize,
    pub dtype: Dtype,
}
