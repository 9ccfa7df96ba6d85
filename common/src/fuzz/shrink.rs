//! Makes a case that fails as small as it can be and still fail, one dimension at a time.

use super::Case;
use crate::image::BASE_ALIGN;
use crate::inputs::Family;
use crate::placement::{DIMENSIONS, Order, Placement, STRIDE_ALIGN};
use crate::problem::{Dtype, HEAD_DIMS, Mask, Shape};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shrunk {
    pub case: Case,
    /// Smaller cases that `fails` answered for.
    pub tries: usize,
    /// Whether no smaller case fails: otherwise it was told to stop, or had no tries left.
    pub is_smallest: bool,
}

/// What [`shrink`] is told of a smaller case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Fails,
    Passes,
    /// Keep what there is.
    Stop,
}

/// What smaller cases differ in; the cheapest to run come first.
const STEPS: [fn(&Case) -> Vec<Case>; 12] = [
    batch, heads, groups, lengths, queries, keys, layouts, gaps, head_dim, values, options, dtype,
];

/// Takes the first smaller case that fails, dimension by dimension, until no dimension has one.
pub fn shrink(case: Case, most_tries: usize, mut fails: impl FnMut(&Case) -> Answer) -> Shrunk {
    let mut shrunk = Shrunk {
        case,
        tries: 0,
        is_smallest: false,
    };
    loop {
        let before = shrunk.case;
        for step in STEPS {
            let mut smaller = step(&shrunk.case).into_iter();
            while let Some(candidate) = smaller.next() {
                if shrunk.tries == most_tries {
                    return shrunk;
                }
                match fails(&candidate) {
                    Answer::Fails => {
                        shrunk.case = candidate;
                        smaller = step(&candidate).into_iter();
                    }
                    Answer::Passes => {}
                    Answer::Stop => return shrunk,
                }
                shrunk.tries += 1;
            }
        }
        if shrunk.case == before {
            return Shrunk {
                is_smallest: true,
                ..shrunk
            };
        }
    }
}

/// 1 and, if that passes, what lies ever closer to `n`: so the smallest number that fails is found in few steps where all larger
/// ones fail.
fn less(n: usize) -> Vec<usize> {
    let steps = std::iter::successors(n.checked_sub(1), |step| Some(step / 2));
    let mut smaller: Vec<usize> = steps
        .take_while(|step| *step > 0)
        .map(|step| n - step)
        .collect();
    smaller.dedup();
    smaller
}

/// The default scale stays the default.
fn with_shape(case: &Case, shape: Shape) -> Case {
    let has_default = case.with_default_scale() == *case;
    let mut smaller = *case;
    smaller.problem.shape = shape;
    if has_default {
        smaller = smaller.with_default_scale();
    }
    smaller
}

fn shapes(case: &Case, shapes: impl IntoIterator<Item = Shape>) -> Vec<Case> {
    let shapes = shapes.into_iter();
    shapes.map(|shape| with_shape(case, shape)).collect()
}

fn batch(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    shapes(
        case,
        less(shape.batch)
            .into_iter()
            .map(|batch| Shape { batch, ..shape }),
    )
}

/// Fewer key heads with as many query heads each.
fn heads(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    let group = shape.heads_q / shape.heads_kv;
    let fewer = less(shape.heads_kv).into_iter().map(|heads_kv| Shape {
        heads_q: heads_kv * group,
        heads_kv,
        ..shape
    });
    shapes(case, fewer)
}

/// Fewer query heads of each key head.
fn groups(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    let smaller = less(shape.heads_q / shape.heads_kv)
        .into_iter()
        .map(|group| Shape {
            heads_q: shape.heads_kv * group,
            ..shape
        });
    shapes(case, smaller)
}

/// Both by as many rows.
fn lengths(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    let shorter = shape.seq_q.min(shape.seq_kv);
    let smaller = less(shorter).into_iter().map(|rows| Shape {
        seq_q: shape.seq_q - (shorter - rows),
        seq_kv: shape.seq_kv - (shorter - rows),
        ..shape
    });
    shapes(case, smaller)
}

fn queries(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    shapes(
        case,
        less(shape.seq_q)
            .into_iter()
            .map(|seq_q| Shape { seq_q, ..shape }),
    )
}

fn keys(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    shapes(
        case,
        less(shape.seq_kv)
            .into_iter()
            .map(|seq_kv| Shape { seq_kv, ..shape }),
    )
}

fn head_dim(case: &Case) -> Vec<Case> {
    let shape = case.problem.shape;
    let smaller = HEAD_DIMS.into_iter().filter(|dim| *dim < shape.head_dim);
    shapes(case, smaller.map(|head_dim| Shape { head_dim, ..shape }))
}

/// Packed: all tensors, or one; or in the usual order.
fn layouts(case: &Case) -> Vec<Case> {
    let all = Case {
        placements: [Placement::PACKED; 4],
        ..*case
    };
    let alone = (0..4).map(|tensor| with_placement(case, tensor, Placement::PACKED));
    let ordered = (0..4).map(|tensor| {
        let placement = Placement {
            order: Order::Bhsd,
            ..case.placements[tensor]
        };
        with_placement(case, tensor, placement)
    });
    let smaller = [all].into_iter().chain(alone).chain(ordered);
    smaller.filter(|smaller| smaller != case).collect()
}

/// Fewer bytes in a gap or before the first element of one tensor.
fn gaps(case: &Case) -> Vec<Case> {
    let mut smaller = Vec::new();
    for (tensor, placement) in case.placements.iter().enumerate() {
        for dimension in 0..DIMENSIONS {
            for bytes in fewer_bytes(placement.gaps[dimension]) {
                let mut placement = *placement;
                placement.gaps[dimension] = bytes;
                smaller.push(with_placement(case, tensor, placement));
            }
        }
        let behind_boundary =
            (placement.offset >= BASE_ALIGN).then_some(placement.offset % BASE_ALIGN);
        for offset in fewer_bytes(placement.offset).chain(behind_boundary) {
            let placement = Placement {
                offset,
                ..*placement
            };
            smaller.push(with_placement(case, tensor, placement));
        }
    }
    smaller
}

/// One unit too, which often shows what a larger gap does where those between do not.
fn fewer_bytes(bytes: usize) -> impl Iterator<Item = usize> {
    let units = bytes / STRIDE_ALIGN;
    let one = (units > 1).then_some(STRIDE_ALIGN);
    let fewer = less(units + 1).into_iter();
    fewer.map(|units| (units - 1) * STRIDE_ALIGN).chain(one)
}

fn with_placement(case: &Case, tensor: usize, placement: Placement) -> Case {
    let mut smaller = *case;
    smaller.placements[tensor] = placement;
    smaller
}

/// The plainest family, or the first of its seeds.
fn values(case: &Case) -> Vec<Case> {
    let plain = Case {
        family: Family::Normal,
        ..*case
    };
    let first = Case { seed: 0, ..*case };
    let smaller = [Case { seed: 0, ..plain }, plain, first].into_iter();
    smaller.filter(|smaller| smaller != case).collect()
}

/// All keys visible, the default scale or, of larger ones, 1; no log-sum-exps.
fn options(case: &Case) -> Vec<Case> {
    let mut full = *case;
    full.problem.mask = Mask::Full;
    let default = case.with_default_scale();
    let mut unscaled = *case;
    if case.problem.softmax_scale > default.problem.softmax_scale {
        unscaled.problem.softmax_scale = 1.0;
    }
    let without_lse = Case {
        lse: false,
        ..*case
    };
    let smaller = [full, default, unscaled, without_lse].into_iter();
    smaller.filter(|smaller| smaller != case).collect()
}

/// f16, which every family but those of another type has.
fn dtype(case: &Case) -> Vec<Case> {
    let mut smaller = *case;
    smaller.problem.dtype = Dtype::F16;
    let is_smaller = smaller != *case && Family::for_dtype(Dtype::F16).contains(&case.family);
    is_smaller.then_some(smaller).into_iter().collect()
}
