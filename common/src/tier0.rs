//! Tier T0: the cases that `cargo test` runs for every stage on the emulator.

use crate::inputs::Family;
use crate::problem::{Dtype, Mask, Problem, parse_shape};
use crate::serving::Cache;
use emulator::Schedule;

/// The schedules under all of which outputs must have the same bits.
pub const SCHEDULES: [Schedule; 3] = [Schedule::InOrder, Schedule::Reversed, Schedule::Shuffled(1)];

/// A problem with inputs of one family.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub problem: Problem,
    pub family: Family,
    /// The schedules beside the launch on rows that are far apart.
    pub schedules: &'static [Schedule],
}

impl Case {
    /// Returns the case with K and V in a cache of this type, or without one; `None` where there is
    /// no such problem.
    pub fn in_cache(self, cache: Option<Cache>) -> Option<Self> {
        let problem = self.problem.in_cache(cache).ok()?;
        Some(Self { problem, ..self })
    }
}

/// The first schedule alone.
const ONCE: &[Schedule] = &[SCHEDULES[0]];

fn case(
    extents: &str,
    dtype: Dtype,
    mask: Mask,
    family: Family,
    schedules: &'static [Schedule],
) -> Case {
    Case {
        problem: parse_shape(extents)
            .and_then(|shape| Problem::new(shape, dtype, mask))
            .expect("tier 0 states valid problems"),
        family,
        schedules,
    }
}

/// Returns the cases in f16 and E4M3; those of several heads or of rows without a key in BF16, too,
/// whose kernels differ from f16's in a type alone.
pub fn cases() -> Vec<Case> {
    use Family::{Normal, RandomScales};
    let (all, two) = (&Dtype::ALL[..], &Dtype::ALL[..2]);
    let mut cases = Vec::new();
    for (extents, mask, dtypes, family_of_e4m3, schedules) in [
        ("1x1x32x64", Mask::Full, two, Normal, &SCHEDULES[..]),
        ("1x1x113:203x64", Mask::Causal, two, Normal, &SCHEDULES),
        // Neither the batches nor the key heads are as many as the query heads of a group. Twelve
        // blocks that differ in their addresses alone: what runs within one depends on a schedule
        // elsewhere.
        ("2x6:2x17x64", Mask::Full, all, RandomScales, ONCE),
        ("1x1x17x128", Mask::Causal, two, Normal, &SCHEDULES),
        // More rows than the tallest block has see no key, and its last ones do.
        ("1x1x410:17x64", Mask::Causal, all, Normal, &SCHEDULES),
    ] {
        for &dtype in dtypes {
            let family = if dtype == Dtype::E4m3 {
                family_of_e4m3
            } else {
                Normal
            };
            cases.push(case(extents, dtype, mask, family, schedules));
        }
    }
    cases
}

/// Returns extreme logits in rows of 5 keys, in every row of a block, and BF16's range: once,
/// untraced.
pub fn extremes() -> Vec<Case> {
    let extreme = |dtype, family| case("1x1x131:5x64", dtype, Mask::Full, family, ONCE);
    let mut cases = Vec::new();
    for dtype in Dtype::ALL {
        cases.extend(Family::EXTREME.map(|family| extreme(dtype, family)));
    }
    cases.push(extreme(Dtype::Bf16, Family::WideRange));
    cases
}

/// Returns cases with another softmax scale; causal rows of which a warp's first sees one key less
/// than whole tiles hold; causal rows over whole tiles; colossal scores over several tiles;
/// subnormal values. Once, untraced.
pub fn others() -> Vec<Case> {
    let mut cases = Vec::new();
    for dtype in Dtype::ALL {
        let normal = |extents, mask| case(extents, dtype, mask, Family::Normal, ONCE);
        // More than one tile of keys: maxima rise from one to the next.
        for extents in ["1x1x33:129x64", "1x1x33:129x128"] {
            let mut scaled = normal(extents, Mask::Full);
            scaled.problem.softmax_scale = OTHER_SCALE;
            cases.push(scaled);
        }
        cases.push(normal("1x1x65:127x64", Mask::Full));
        cases.push(normal("1x1x65:127x64", Mask::Causal));
        cases.push(normal("1x1x64x64", Mask::Causal));
    }
    let several_tiles = |dtype, family| case("1x1x33:600x64", dtype, Mask::Causal, family, ONCE);
    for dtype in Dtype::ALL {
        cases.push(several_tiles(dtype, Family::Colossal));
    }
    cases.push(several_tiles(Dtype::F16, Family::Subnormal));
    cases
}

/// Returns the cases of kernels that take sequences as they are served: lengths of 0 and 1 among
/// longer ones, windows, sinks, softcaps, pages and other head sizes, alone and together.
pub fn served() -> Vec<Case> {
    let mut cases = Vec::new();
    for (extents, mask) in [
        ("4x2:1x150x64+packed=even:0:1", Mask::Full),
        ("4x2:1x150x64+packed=even:0:1", Mask::Causal),
        (
            "3x4:2x40:300x128+packed=even:1:2+window=60:0+sinks",
            Mask::Full,
        ),
        // A window alone, wider and narrower than a tile, and one to both sides.
        ("1x2x300x64+window=200:*", Mask::Causal),
        ("1x2x300x64+window=20:*", Mask::Causal),
        ("3x2:1x20:140x64+used=even:0:5+window=33:7", Mask::Full),
        // Queries without a key, whose rows are a sink's.
        ("2x2x70:20x64+used=even:3:1+sinks", Mask::Causal),
        ("3x8:1x1:200x64+packed=even:1:3+page=16+sinks", Mask::Causal),
        (
            "2x2x150:290x64+packed=mixed:3:1+page=64+cap=30",
            Mask::Causal,
        ),
        (
            "3x8:1x3:260x128+packed=tail:1:4+page=128+window=90:*+sinks+cap=20",
            Mask::Causal,
        ),
        ("2x2:1x5:300x64+page=256", Mask::Full),
        // Rows shorter than a tile's: of one box, of two, and of a copy that the warp makes itself.
        ("2x2x70:150x40", Mask::Causal),
        ("1x4:2x130:260x72", Mask::Full),
        ("3x2x90:140x96+packed=even:1:2", Mask::Causal),
        ("2x4:1x3:200x80+page=16+sinks", Mask::Causal),
    ] {
        let served_case = |dtype, schedules| case(extents, dtype, mask, Family::Normal, schedules);
        cases.push(served_case(Dtype::F16, &SCHEDULES[..]));
        cases.push(served_case(Dtype::Bf16, ONCE));
    }
    cases.push(case_far_below_sinks());
    cases
}

/// Returns rows whose scores all lie far below their sink: probabilities that were relative to the
/// sink would be subnormal halves.
fn case_far_below_sinks() -> Case {
    let extents = "1x2x29:149x64+sinks";
    let mut far_below = case(extents, Dtype::F16, Mask::Full, Family::AllNegative, ONCE);
    far_below.problem.softmax_scale = OTHER_SCALE;
    far_below
}

/// A softmax scale far from 1/8 and 1/sqrt(128).
const OTHER_SCALE: f32 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Inputs;
    use crate::problem::Shape;
    use std::collections::BTreeSet;

    #[test]
    fn every_dtype_shows_a_wrong_head_a_wrong_scale_and_a_row_without_a_key() {
        for dtype in Dtype::ALL {
            let mut cases_of_dtype = cases();
            cases_of_dtype.retain(|case| case.problem.dtype == dtype);
            let Case {
                problem, family, ..
            } = cases_of_dtype
                .iter()
                .find(|case| is_grouped(case.problem.shape))
                .expect("a grouped case with several batches and key heads");
            let Inputs { q, k, v, .. } = Inputs::generate(problem, *family, 0);
            for scales in [q.scales, k.scales, v.scales] {
                let distinct: BTreeSet<u32> = scales.iter().map(|scale| scale.to_bits()).collect();
                assert_eq!(distinct.len(), scales.len());
                let least = scales.iter().copied().fold(f32::INFINITY, f32::min);
                let most = scales.iter().copied().fold(0.0, f32::max);
                assert!(dtype != Dtype::E4m3 || most > 2.0 * least, "{scales:?}");
            }
            // The first block has no key, whatever the stage, and a warp has rows with and without.
            let has_such_rows = cases_of_dtype.iter().any(|case| {
                let empty = empty_rows(&case.problem);
                empty > crate::image::GAP_ROWS && !empty.is_multiple_of(16)
            });
            assert!(has_such_rows, "{dtype}");
        }
    }

    /// Returns whether neither batches nor key heads are as many as the query heads of a group.
    fn is_grouped(shape: Shape) -> bool {
        let group = shape.heads_q / shape.heads_kv;
        shape.batch > 1
            && shape.heads_kv > 1
            && group > 1
            && group != shape.heads_kv
            && group != shape.batch
    }

    fn empty_rows(problem: &Problem) -> usize {
        let rows = 0..problem.shape.seq_q;
        rows.filter(|&row| problem.visible_keys(row) == 0).count()
    }
}
