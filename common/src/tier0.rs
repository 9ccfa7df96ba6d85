//! Tier T0: what `cargo test` runs for every stage on the emulator.

use crate::inputs::Family;
use crate::problem::{Dtype, Mask, Problem, parse_shape};
use emulator::Schedule;

/// Outputs must have the same bits under all.
pub const SCHEDULES: [Schedule; 3] = [Schedule::InOrder, Schedule::Reversed, Schedule::Shuffled(1)];

#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub problem: Problem,
    pub family: Family,
    /// Beside the launch on rows that are far apart.
    pub schedules: &'static [Schedule],
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
    let problem = parse_shape(extents).and_then(|shape| Problem::new(shape, dtype, mask));
    Case {
        problem: problem.expect("tier 0 states valid problems"),
        family,
        schedules,
    }
}

/// f16 and E4M3; of BF16, whose kernels differ from f16's in a type alone, those of several heads or of rows without a key.
pub fn cases() -> Vec<Case> {
    use Family::{Normal, RandomScales};
    let (all, two) = (&Dtype::ALL[..], &Dtype::ALL[..2]);
    let mut cases = Vec::new();
    for (extents, mask, dtypes, of_e4m3, schedules) in [
        ("1x1x32x64", Mask::Full, two, Normal, &SCHEDULES[..]),
        ("1x1x113:203x64", Mask::Causal, two, Normal, &SCHEDULES),
        // Neither the batches nor the key heads are as many as the query heads of a group. Twelve blocks that differ in their
        // addresses alone: what runs within one depends on a schedule elsewhere.
        ("2x6:2x17x64", Mask::Full, all, RandomScales, ONCE),
        ("1x1x17x128", Mask::Causal, two, Normal, &SCHEDULES),
        // More rows than the tallest block has see no key, and its last ones do.
        ("1x1x410:17x64", Mask::Causal, all, Normal, &SCHEDULES),
    ] {
        cases.extend(dtypes.iter().map(|&dtype| {
            let is_e4m3 = dtype == Dtype::E4m3;
            let family = if is_e4m3 { of_e4m3 } else { Normal };
            case(extents, dtype, mask, family, schedules)
        }));
    }
    cases
}

/// In rows of 5 keys, in every row of a block, and BF16's range: once, untraced.
pub fn extremes() -> Vec<Case> {
    let case = |dtype, family| case("1x1x131:5x64", dtype, Mask::Full, family, ONCE);
    Dtype::ALL
        .into_iter()
        .flat_map(|dtype| Family::EXTREME.map(|family| case(dtype, family)))
        .chain([case(Dtype::Bf16, Family::WideRange)])
        .collect()
}

/// Another softmax scale; causal rows of which a warp's first sees one key less than whole tiles hold; causal rows over whole
/// tiles; colossal scores over several tiles; subnormal values. Once, untraced.
pub fn others() -> Vec<Case> {
    let several = |dtype, family| case("1x1x33:600x64", dtype, Mask::Causal, family, ONCE);
    let of = |dtype| {
        let normal = |extents, mask| case(extents, dtype, mask, Family::Normal, ONCE);
        // More than one tile of keys: maxima rise from one to the next.
        let scaled = |extents| {
            let mut scaled = normal(extents, Mask::Full);
            scaled.problem.softmax_scale = OTHER_SCALE;
            scaled
        };
        [
            scaled("1x1x33:129x64"),
            scaled("1x1x33:129x128"),
            normal("1x1x65:127x64", Mask::Full),
            normal("1x1x65:127x64", Mask::Causal),
            normal("1x1x64x64", Mask::Causal),
        ]
    };
    let colossal = Dtype::ALL.map(|dtype| several(dtype, Family::Colossal));
    let normal = Dtype::ALL.into_iter().flat_map(of);
    let subnormal = several(Dtype::F16, Family::Subnormal);
    normal.chain(colossal).chain([subnormal]).collect()
}

/// Far from 1/8 and 1/sqrt(128).
const OTHER_SCALE: f32 = 0.3;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Inputs;
    use std::collections::BTreeSet;

    #[test]
    fn every_dtype_shows_a_wrong_head_a_wrong_scale_and_a_row_without_a_key() {
        for dtype in Dtype::ALL {
            let cases: Vec<Case> = cases()
                .into_iter()
                .filter(|case| case.problem.dtype == dtype)
                .collect();
            let grouped = cases.iter().find(|case| {
                let shape = case.problem.shape;
                let group = shape.heads_q / shape.heads_kv;
                shape.batch > 1
                    && shape.heads_kv > 1
                    && group > 1
                    && group != shape.heads_kv
                    && group != shape.batch
            });
            let Case {
                problem, family, ..
            } = grouped.expect("a grouped case with several batches and key heads");
            let Inputs { q, k, v, .. } = Inputs::generate(problem, *family, 0);
            for scales in [q.scales, k.scales, v.scales] {
                let distinct: BTreeSet<u32> = scales.iter().map(|scale| scale.to_bits()).collect();
                assert_eq!(distinct.len(), scales.len());
                let [least, most] =
                    [f32::min, f32::max].map(|pick| scales.iter().copied().reduce(pick));
                assert!(
                    dtype != Dtype::E4m3 || most > least.map(|least| 2.0 * least),
                    "{scales:?}"
                );
            }
            let empty = |problem: &Problem| {
                (0..problem.shape.seq_q)
                    .filter(|&row| problem.visible_keys(row) == 0)
                    .count()
            };
            // The first block has no key, whatever the stage, and a warp has rows with and without.
            assert!(
                cases
                    .iter()
                    .map(|case| empty(&case.problem))
                    .any(|empty| { empty > crate::image::GAP_ROWS && empty % 16 != 0 })
            );
        }
    }
}
