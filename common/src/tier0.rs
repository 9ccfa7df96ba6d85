//! Tier T0: what `cargo test` runs for every stage on the emulator.

use crate::inputs::Family;
use crate::problem::{Dtype, Mask, Problem, Shape};
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

/// f16 and E4M3; of BF16, whose kernels differ from f16's in a type alone, those of several heads or of rows without a key.
pub fn cases() -> Vec<Case> {
    let one_head = |seq_q, seq_kv| Shape {
        seq_kv,
        ..Shape::bhsd(1, 1, seq_q, 64)
    };
    let shapes = [
        (Shape::bhsd(1, 1, 32, 64), Mask::Full),
        (one_head(113, 203), Mask::Causal),
        // Neither the batches nor the key heads are as many as the query heads of a group.
        (
            Shape {
                heads_kv: 2,
                ..Shape::bhsd(2, 6, 17, 64)
            },
            Mask::Full,
        ),
        (Shape::bhsd(1, 1, 17, 128), Mask::Causal),
        // More rows than the tallest block has see no key, and its last ones do.
        (one_head(EMPTY_ROWS + 17, 17), Mask::Causal),
    ];
    let case = |(shape, mask): (Shape, Mask), dtype| {
        let is_grouped = shape.heads_q > 1;
        let problem = Problem::new(shape, dtype, mask).expect("tier 0 states valid problems");
        let family = if is_grouped && dtype == Dtype::E4m3 {
            Family::RandomScales
        } else {
            Family::Normal
        };
        // Twelve blocks that differ in their addresses alone: what runs within one depends on a schedule elsewhere.
        Case {
            problem,
            family,
            schedules: if is_grouped {
                &SCHEDULES[..1]
            } else {
                &SCHEDULES
            },
        }
    };
    let takes = |shape: &Shape, dtype| {
        dtype != Dtype::Bf16 || shape.heads_q > 1 || shape.seq_q > shape.seq_kv
    };
    shapes
        .iter()
        .flat_map(|&shape| Dtype::ALL.map(|dtype| (shape, dtype)))
        .filter(|((shape, _), dtype)| takes(shape, *dtype))
        .map(|(shape, dtype)| case(shape, dtype))
        .collect()
}

/// In rows of 5 keys, in every row of a block, and BF16's range: once, untraced.
pub fn extremes() -> Vec<Case> {
    let shape = Shape {
        seq_kv: 5,
        ..Shape::bhsd(1, 1, 131, 64)
    };
    let case = |dtype, family| {
        let problem = Problem::new(shape, dtype, Mask::Full).expect("tier 0 states valid problems");
        Case {
            problem,
            family,
            schedules: &SCHEDULES[..1],
        }
    };
    Dtype::ALL
        .into_iter()
        .flat_map(|dtype| Family::EXTREME.map(|family| case(dtype, family)))
        .chain([case(Dtype::Bf16, Family::WideRange)])
        .collect()
}

/// Another softmax scale; causal rows of which a warp's first sees one key less than whole tiles hold; causal rows over whole
/// tiles; colossal scores over several tiles; subnormal values. Once, untraced.
pub fn others() -> Vec<Case> {
    let one_head = |seq_q, seq_kv, head_dim| Shape {
        seq_kv,
        ..Shape::bhsd(1, 1, seq_q, head_dim)
    };
    let of = |dtype| {
        let scaled = |head_dim| {
            // More than one tile of keys: maxima rise from one to the next.
            Problem::with_scale(one_head(33, 129, head_dim), dtype, Mask::Full, OTHER_SCALE)
        };
        let ragged = Mask::ALL.map(|mask| Problem::new(one_head(65, 127, 64), dtype, mask));
        let aligned = Problem::new(one_head(64, 64, 64), dtype, Mask::Causal);
        [
            scaled(64),
            scaled(128),
            ragged[0].clone(),
            ragged[1].clone(),
            aligned,
        ]
    };
    let case = |family| {
        move |problem: Result<Problem, _>| Case {
            problem: problem.expect("tier 0 states valid problems"),
            family,
            schedules: &SCHEDULES[..1],
        }
    };
    let several = |dtype| Problem::new(one_head(33, 600, 64), dtype, Mask::Causal);
    let normal = Dtype::ALL
        .into_iter()
        .flat_map(of)
        .map(case(Family::Normal));
    let colossal = Dtype::ALL
        .into_iter()
        .map(several)
        .map(case(Family::Colossal));
    normal
        .chain(colossal)
        .chain([case(Family::Subnormal)(several(Dtype::F16))])
        .collect()
}

/// Before the first that sees one: a block of the tallest tile and part of another.
const EMPTY_ROWS: usize = crate::image::GAP_ROWS + 137;

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
