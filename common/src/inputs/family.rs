//! The names of what is drawn: distributions and tensors.

use crate::problem::Dtype;
use serde::{Deserialize, Serialize};

named! {
    /// A distribution of inputs. Each shows faults that others hide.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum Family {
        /// N(0, 1).
        Normal = "normal",
        /// N(0.5, 1): sums do not average away.
        Shifted = "shifted",
        /// Q = |N|, K = −|N|, V = N: padding keys (logit 0) would win.
        AllNegative = "all-negative",
        /// 8 · N(0, 1): logits of several hundred, close to one-hot rows.
        Large = "large",
        /// One key per head wins with a logit near 12 above the others.
        Peaked = "peaked",
        /// Key 0 takes three quarters of the weight, with a value 16 times smaller, as attention
        /// sinks do.
        Sink = "sink",
        /// N(0, 1) + N(0, 100) · Bernoulli(0.001), FlashAttention-3's outliers (section 4.2 of its
        /// paper).
        Outliers = "outliers",
        /// Logits between −2000 and −20, the largest of a row between −40 and −200 where it sees
        /// many keys: a running maximum that starts at 0, and padding keys, win by far.
        DeepNegative = "deep-negative",
        /// 60 to 100 · N(0, 1): one-hot rows, but for every fourth key, which repeats the one
        /// before, exactly or but for one step of f16: ties and near ties.
        Huge = "huge",
        /// Maxima of neighbouring rows thousands apart, over keys that all count: another row's
        /// state over- or underflows.
        MixedScale = "mixed-scale",
        /// Scores of 1e7 to 1e9 for every key of a row, positive or negative: half of the keys
        /// alike, which win together in rows of positive ones; in the others one key wins. f32
        /// holds such a score to no better than 1 to 64.
        Colossal = "colossal",
        /// F16: V of N(0, 1) · 2^-15, subnormals nearly all, and so is O.
        Subnormal = "subnormal",
        /// E4M3: N(0, 1) clamped to ±1, a third of the codes at ±448.
        Saturated = "saturated",
        /// E4M3: codes of N(0, 1) under scales drawn from [2^-6, 2].
        RandomScales = "random-scales",
        /// E4M3: head 0 of Q, 1 of K, 2 of V (modulo their number) is zero.
        ZeroHead = "zero-head",
        /// BF16: Q of 2^30 · N(0, 1), K of 2^-30 · N(0, 1), V of 2^±40 · N(0, 1) in alternating
        /// heads: beyond f16.
        WideRange = "wide-range",
    }
}

impl Family {
    /// The families with logits far from 0 or far apart.
    pub const EXTREME: [Family; 3] = [Family::DeepNegative, Family::Huge, Family::MixedScale];

    /// Returns the families that a dtype is tested with.
    pub fn for_dtype(dtype: Dtype) -> Vec<Family> {
        let mut families = Self::ALL.to_vec();
        families.retain(|family| match family {
            Family::Saturated | Family::RandomScales | Family::ZeroHead => dtype == Dtype::E4m3,
            Family::WideRange => dtype == Dtype::Bf16,
            Family::Subnormal => dtype == Dtype::F16,
            _ => true,
        });
        families
    }
}

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Tensor {
        Q = "q",
        K = "k",
        V = "v",
    }
}
