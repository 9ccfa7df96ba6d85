//! `tune/<gpu>.json`: the fastest variants of each stage and problem, as `compare tune` keeps them and
//! `attention-ladder` chooses by them.

use crate::problem::{Dtype, Mask, Problem, Shape};
use serde::{Deserialize, Serialize};

/// Variants that are kept of a stage on a problem.
pub const KEPT: usize = 3;

/// The version of the file.
pub const SCHEMA: u32 = 1;

/// `tune/<gpu>.json`: the best variants of the stages on one GPU.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TuningCache {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `NVIDIA H200`.
    pub gpu: String,
    /// One per stage and problem, sorted.
    pub entries: Vec<Entry>,
}

/// The best variants of a stage on a problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// The stage.
    pub stage: String,
    /// The stage's identity when it was tuned. The entry holds for no other.
    pub identity: String,
    /// The shape's name, or its extents.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// When it was tuned, UTC.
    pub tuned: String,
    /// Green variants that were timed.
    pub timed: usize,
    /// Variants that were not. The best are then the best of the others: a guess, which is better than none to whoever wants a fast
    /// kernel ([`TuningCache::nearest`]), and not what is known to be the best ([`TuningCache::of`]).
    #[serde(default, skip_serializing_if = "is_zero")]
    pub untimed: usize,
    /// The fastest of them, at most [`KEPT`], fastest first.
    pub best: Vec<Ranked>,
}

/// A green variant and its time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ranked {
    /// The variant.
    pub variant: String,
    /// Median of device time, in microseconds.
    pub p50_us: f64,
    /// 90th percentile.
    pub p90_us: f64,
    /// Hash of the machine code that ran, which no other variant has; absent where the driver translated PTX.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sass_sha256: Option<String>,
}

fn is_zero(untimed: &usize) -> bool {
    *untimed == 0
}

/// What a file says of a stage on a problem.
#[derive(Clone, Debug, PartialEq)]
pub enum Known<'a> {
    /// These are the best.
    Fresh(&'a [Ranked]),
    /// They were, of another version of the kernel.
    Stale,
    /// Nothing.
    Absent,
}

impl TuningCache {
    /// A file of `gpu` without entries.
    pub fn none(gpu: &str) -> Self {
        Self {
            schema: SCHEMA,
            gpu: gpu.to_string(),
            entries: vec![],
        }
    }

    /// What is known of `stage`, as it is built now, on a problem.
    pub fn of(&self, stage: &str, identity: &str, problem: &Problem) -> Known<'_> {
        match self
            .entries
            .iter()
            .find(|entry| entry.is_of(stage, problem) && entry.is_whole())
        {
            None => Known::Absent,
            Some(entry) if entry.identity != identity => Known::Stale,
            Some(entry) => Known::Fresh(&entry.best),
        }
    }

    /// Whether `variant` of `stage`, as it is built now, is among the best on any problem; `None` where nothing is known.
    pub fn is_kept_anywhere(&self, stage: &str, identity: &str, variant: &str) -> Option<bool> {
        let mut entries = self
            .entries
            .iter()
            .filter(|entry| entry.stage == stage && entry.identity == identity)
            .filter(|entry| entry.is_whole())
            .peekable();
        entries.peek()?;
        Some(entries.any(|entry| entry.best.iter().any(|ranked| ranked.variant == variant)))
    }

    /// The stages and variants to try on `problem`, best first: those of the problem itself where they are known, then of the problems
    /// that are nearest, the fastest of each first. What was true of another version of a kernel stands: it is the best guess.
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

    /// Replaces what is known of a stage on a problem by the first of all that are `ranked`. Where no variant is green any
    /// more, nothing is known. A ranking of some variants does not replace one of all of the same kernel.
    pub fn put(&mut self, ranked: &Entry, tuned: &str) {
        let mut entry = Entry {
            tuned: tuned.to_string(),
            timed: ranked.best.len(),
            ..ranked.clone()
        };
        entry.best.truncate(KEPT);
        let key = |entry: &Entry| (entry.stage.clone(), entry.shape, entry.dtype, entry.mask);
        let is_known = |other: &Entry| {
            key(other) == key(&entry) && other.identity == entry.identity && other.is_whole()
        };
        let is_guess = !entry.is_whole();
        if is_guess && (entry.best.is_empty() || self.entries.iter().any(is_known)) {
            return;
        }
        self.entries.retain(|other| key(other) != key(&entry));
        if !entry.best.is_empty() {
            self.entries.push(entry);
        }
        let place = |entry: &Entry| {
            (
                entry.stage.clone(),
                entry.shape_name.clone(),
                entry.dtype.name(),
                entry.mask.name(),
            )
        };
        self.entries.sort_by_key(place);
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

    /// Whether every variant was timed, so that the best are known.
    pub fn is_whole(&self) -> bool {
        self.untimed == 0
    }

    /// Whether it is of a stage on a problem.
    pub fn is_of(&self, stage: &str, problem: &Problem) -> bool {
        (self.stage.as_str(), self.shape, self.dtype, self.mask)
            == (stage, problem.shape, problem.dtype, problem.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(stage: &str, shape: Shape, mask: Mask, best: &[(&str, f64)]) -> Entry {
        Entry {
            stage: stage.into(),
            identity: "1".into(),
            shape_name: shape.to_string(),
            shape,
            dtype: Dtype::F16,
            mask,
            tuned: String::new(),
            timed: best.len(),
            untimed: 0,
            best: best
                .iter()
                .map(|&(variant, p50_us)| Ranked {
                    variant: variant.into(),
                    p50_us,
                    p90_us: p50_us,
                    sass_sha256: None,
                })
                .collect(),
        }
    }

    #[test]
    fn the_nearest_problem_comes_first_and_its_fastest_variant() {
        let (small, large) = (Shape::bhsd(1, 8, 512, 64), Shape::bhsd(4, 16, 4096, 64));
        let cache = TuningCache {
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
            ..TuningCache::none("")
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
    fn a_ranking_of_some_variants_is_a_guess_that_replaces_no_knowledge() {
        let shape = Shape::bhsd(1, 8, 512, 64);
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let of = |variant, untimed| Entry {
            untimed,
            ..entry("a", shape, Mask::Full, &[(variant, 5.0)])
        };
        let identity = of("", 0).identity;
        let says = |cache: &TuningCache| {
            let names = cache.nearest(&problem).into_iter().map(|(_, name)| name);
            let is_known = cache.of("a", &identity, &problem) != Known::Absent;
            let kept = cache.is_kept_anywhere("a", &identity, "some");
            (names.collect::<Vec<_>>().join(" "), is_known, kept)
        };
        let mut cache = TuningCache::none("");
        cache.put(&of("some", 2), "first");
        assert_eq!(says(&cache), ("some".into(), false, None));
        cache.put(&of("all", 0), "second");
        assert_eq!(says(&cache), ("all".into(), true, Some(false)));
        cache.put(&of("some", 1), "third");
        assert_eq!(says(&cache), ("all".into(), true, Some(false)));
        let newer = Entry {
            identity: "newer".into(),
            ..of("some", 1)
        };
        cache.put(&newer, "fourth");
        assert_eq!(says(&cache).0, "some", "what is known is of another kernel");
    }

    #[test]
    fn bf16_goes_by_f16_where_that_is_nearer_and_e4m3_by_nothing_else() {
        let (small, large) = (Shape::bhsd(1, 8, 512, 64), Shape::bhsd(4, 16, 4096, 64));
        let of = |dtype, shape, variant| Entry {
            dtype,
            ..entry("a", shape, Mask::Full, &[(variant, 5.0)])
        };
        let cache = TuningCache {
            entries: vec![
                of(Dtype::F16, small, "f16-small"),
                of(Dtype::F16, large, "f16-large"),
                of(Dtype::Bf16, large, "bf16-large"),
                of(Dtype::E4m3, small, "e4m3-small"),
            ],
            ..TuningCache::none("")
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
