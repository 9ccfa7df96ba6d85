//! `choice/<gpu>.json`: the fastest variants of each stage and problem on a GPU.

use common::problem::{Dtype, Mask, Problem, Shape};
use serde::Deserialize;

/// The fastest variants on one GPU.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChoiceTable {
    /// `NVIDIA H200`.
    pub gpu: String,
    /// One per stage and problem.
    pub entries: Vec<Entry>,
}

/// The fastest variants of a stage on a problem.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    pub stage: String,
    pub shape: Shape,
    pub dtype: Dtype,
    pub mask: Mask,
    /// Fastest first.
    pub best: Vec<Timed>,
}

/// A variant and its time.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    pub variant: String,
    /// Median of device time, in microseconds.
    pub p50_us: f64,
}

impl ChoiceTable {
    /// The stages and variants to try on `problem`, best first: those of the problem itself where they are known, then of the problems
    /// that are nearest, the fastest of each first.
    pub fn nearest(&self, problem: &Problem) -> Vec<(&str, &str)> {
        let mut found: Vec<(f64, f64, &str, &str)> = Vec::new();
        for entry in &self.entries {
            let Some(distance) = entry.distance(problem) else {
                continue;
            };
            let ranked = entry.best.iter();
            found.extend(ranked.map(|best| (distance, best.p50_us, &*entry.stage, &*best.variant)));
        }
        found.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        found
            .into_iter()
            .map(|(.., stage, variant)| (stage, variant))
            .collect()
    }
}

/// Of how much less use an entry of the other mask is: as if one extent were off by a factor of this.
const OTHER_MASK: f64 = 1.5;

/// The same of an entry in bf16 for a problem in f16, or the other way round: variants took 0.985 to 1.022 times as long on an H200.
const OTHER_FORMAT: f64 = 1.022;

impl Entry {
    /// How unlike the entry's problem is: the factors, as powers of two, by which rows of queries (over heads and batches, which is
    /// how many blocks there are) and keys differ. `None` for another size of element or head, whose kernels are others.
    fn distance(&self, problem: &Problem) -> Option<f64> {
        let (ours, theirs) = (&self.shape, &problem.shape);
        if (self.dtype.bytes(), ours.head_dim) != (problem.dtype.bytes(), theirs.head_dim) {
            return None;
        }
        let queries = |shape: &Shape| (shape.batch * shape.heads_q * shape.seq_q) as f64;
        let factor = |a: f64, b: f64| (a / b).log2().abs();
        let unless = |is_same: bool, other: f64| if is_same { 0.0 } else { other.log2() };
        Some(
            factor(queries(ours), queries(theirs))
                + factor(ours.seq_kv as f64, theirs.seq_kv as f64)
                + unless(self.mask == problem.mask, OTHER_MASK)
                + unless(self.dtype == problem.dtype, OTHER_FORMAT),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(stage: &str, shape: Shape, mask: Mask, best: &[(&str, f64)]) -> Entry {
        let timed = |&(variant, p50_us): &(&str, f64)| Timed {
            variant: variant.into(),
            p50_us,
        };
        Entry {
            stage: stage.into(),
            shape,
            dtype: Dtype::F16,
            mask,
            best: best.iter().map(timed).collect(),
        }
    }

    #[test]
    fn the_nearest_problem_comes_first_and_its_fastest_variant() {
        let (small, large) = (Shape::bhsd(1, 8, 512, 64), Shape::bhsd(4, 16, 4096, 64));
        let cache = ChoiceTable {
            entries: vec![
                entry("a", small, Mask::Full, &[("small", 5.0), ("slower", 6.0)]),
                entry("b", small, Mask::Full, &[("fast", 4.0)]),
                entry("b", small, Mask::Causal, &[("causal", 4.0)]),
                entry("b", large, Mask::Full, &[("large", 500.0)]),
                entry(
                    "b",
                    Shape::bhsd(1, 8, 512, 128),
                    Mask::Full,
                    &[("wide", 1.0)],
                ),
            ],
            gpu: String::new(),
        };
        let order = |shape, mask| -> String {
            let problem = Problem::new(shape, Dtype::F16, mask).unwrap();
            let names = cache
                .nearest(&problem)
                .into_iter()
                .map(|(_, variant)| variant);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(small, Mask::Full), "fast small slower causal large");
        assert_eq!(order(small, Mask::Causal), "causal fast small slower large");
        let ragged = Shape::bhsd(2, 16, 3000, 64);
        assert_eq!(order(ragged, Mask::Full), "large fast small slower causal");
        assert_eq!(order(Shape::bhsd(1, 1, 1, 128), Mask::Causal), "wide");
    }

    #[test]
    fn bf16_goes_by_f16_where_that_is_nearer_and_e4m3_by_nothing_else() {
        let (small, large) = (Shape::bhsd(1, 8, 512, 64), Shape::bhsd(4, 16, 4096, 64));
        let of = |dtype, shape, variant| Entry {
            dtype,
            ..entry("a", shape, Mask::Full, &[(variant, 5.0)])
        };
        let cache = ChoiceTable {
            entries: vec![
                of(Dtype::F16, small, "f16-small"),
                of(Dtype::F16, large, "f16-large"),
                of(Dtype::Bf16, large, "bf16-large"),
                of(Dtype::E4m3, small, "e4m3-small"),
            ],
            gpu: String::new(),
        };
        let order = |shape, dtype| -> String {
            let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
            let names = cache.nearest(&problem).into_iter().map(|(_, name)| name);
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(order(small, Dtype::Bf16), "f16-small bf16-large f16-large");
        assert_eq!(order(large, Dtype::Bf16), "bf16-large f16-large f16-small");
        assert_eq!(order(large, Dtype::F16), "f16-large bf16-large f16-small");
        assert_eq!(order(large, Dtype::E4m3), "e4m3-small");
    }
}
