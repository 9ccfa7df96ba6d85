//! Makes a case that fails as small as it can be and still fail, one dimension at a time.

use super::Case;
use crate::image::BASE_ALIGN;
use crate::inputs::Family;
use crate::placement::{DIMENSIONS, Order, Placement, STRIDE_ALIGN};
use crate::problem::{Dtype, HEAD_DIMS, Mask, Shape};
use crate::serving::{Lengths, Serving, Window};

/// The end of a search for a smaller case.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shrunk {
    pub case: Case,
    /// The number of smaller cases that `fails` answered for.
    pub tries: usize,
    /// Whether no smaller case fails: otherwise the search was stopped, or had no tries left.
    pub is_smallest: bool,
}

/// The answer to [`shrink`] about a smaller case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Fails,
    Passes,
    /// Keeps the smallest case so far.
    Stop,
}

/// Returns the cases that are smaller in one dimension.
type Dimension = fn(&Case) -> Vec<Case>;

/// The dimensions in which cases become smaller; those that make them cheapest to run come first.
const STEPS: [Dimension; 13] = [
    serving, batch, heads, groups, lengths, queries, keys, layouts, gaps, head_dim, values,
    options, dtype,
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

/// Returns 1 and then numbers ever closer to `n`: so the smallest number that fails is found in few
/// steps where all larger ones fail.
fn less(n: usize) -> Vec<usize> {
    let mut smaller = Vec::new();
    let mut step = n.saturating_sub(1);
    while step > 0 {
        smaller.push(n - step);
        step /= 2;
    }
    smaller
}

/// Returns the case with another shape. The default scale stays the default.
fn with_shape(case: &Case, shape: Shape) -> Case {
    let has_default_scale = case.problem.has_default_scale();
    let mut smaller = *case;
    smaller.problem.shape = shape;
    if has_default_scale {
        smaller = smaller.with_default_scale();
    }
    smaller
}

/// Returns the cases with fewer of an extent, of which there are `n`; `change` sets it.
fn with_less(case: &Case, n: usize, change: impl Fn(&mut Shape, usize)) -> Vec<Case> {
    let mut smaller = Vec::new();
    for extent in less(n) {
        let mut shape = case.problem.shape;
        change(&mut shape, extent);
        smaller.push(with_shape(case, shape));
    }
    smaller
}

/// Returns cases without one of the properties of sequences as they are served, or without all but
/// a cache: variants that read one take nothing else.
fn serving(case: &Case) -> Vec<Case> {
    let whole = case.problem.shape.serving;
    let without = [
        Serving {
            cache: whole.cache,
            ..Serving::DENSE
        },
        Serving {
            page_rows: None,
            ..whole
        },
        Serving {
            lengths: Lengths::Equal,
            ..whole
        },
        Serving {
            window: Window::default(),
            ..whole
        },
        Serving {
            sinks: false,
            ..whole
        },
        Serving {
            softcap: None,
            ..whole
        },
        Serving {
            cache: None,
            ..whole
        },
    ];
    let simpler = without.map(|serving| {
        let shape = Shape {
            serving,
            ..case.problem.shape
        };
        with_shape(case, shape)
    });
    others(case, simpler)
}

fn batch(case: &Case) -> Vec<Case> {
    with_less(case, case.problem.shape.batch, |shape, batch| {
        shape.batch = batch;
    })
}

/// Returns cases with fewer key heads and as many query heads each.
fn heads(case: &Case) -> Vec<Case> {
    let group = case.problem.shape.heads_q / case.problem.shape.heads_kv;
    with_less(case, case.problem.shape.heads_kv, |shape, heads_kv| {
        shape.heads_q = heads_kv * group;
        shape.heads_kv = heads_kv;
    })
}

/// Returns cases with fewer query heads of each key head.
fn groups(case: &Case) -> Vec<Case> {
    let group = case.problem.shape.heads_q / case.problem.shape.heads_kv;
    with_less(case, group, |shape, smaller_group| {
        shape.heads_q = shape.heads_kv * smaller_group;
    })
}

/// Returns cases in which both lengths are smaller by as many rows.
fn lengths(case: &Case) -> Vec<Case> {
    let shorter = case.problem.shape.seq_q.min(case.problem.shape.seq_kv);
    with_less(case, shorter, |shape, rows| {
        shape.seq_q -= shorter - rows;
        shape.seq_kv -= shorter - rows;
    })
}

fn queries(case: &Case) -> Vec<Case> {
    with_less(case, case.problem.shape.seq_q, |shape, seq_q| {
        shape.seq_q = seq_q;
    })
}

fn keys(case: &Case) -> Vec<Case> {
    with_less(case, case.problem.shape.seq_kv, |shape, seq_kv| {
        shape.seq_kv = seq_kv;
    })
}

/// Returns the case with a head_dim that kernels are compiled for: a smaller one, if it has such.
fn head_dim(case: &Case) -> Vec<Case> {
    let whole = case.problem.shape.head_dim;
    let mut smaller = Vec::new();
    for head_dim in HEAD_DIMS {
        if head_dim < whole || !HEAD_DIMS.contains(&whole) {
            let mut shape = case.problem.shape;
            shape.head_dim = head_dim;
            smaller.push(with_shape(case, shape));
        }
    }
    smaller
}

/// Returns the candidates that differ from the case.
fn others(case: &Case, candidates: impl IntoIterator<Item = Case>) -> Vec<Case> {
    candidates
        .into_iter()
        .filter(|candidate| candidate != case)
        .collect()
}

/// Returns cases with all tensors packed, or one; then with one in the usual order.
fn layouts(case: &Case) -> Vec<Case> {
    let mut candidates = vec![Case {
        placements: [Placement::PACKED; 4],
        ..*case
    }];
    for tensor in 0..4 {
        candidates.push(with_placement(case, tensor, Placement::PACKED));
    }
    for (tensor, placement) in case.placements.into_iter().enumerate() {
        let ordered = Placement {
            order: Order::Bhsd,
            ..placement
        };
        candidates.push(with_placement(case, tensor, ordered));
    }
    others(case, candidates)
}

/// Returns cases with fewer bytes in a gap or before the first element of one tensor.
fn gaps(case: &Case) -> Vec<Case> {
    let mut smaller = Vec::new();
    for (tensor, placement) in case.placements.into_iter().enumerate() {
        for dimension in 0..DIMENSIONS {
            for bytes in fewer_bytes(placement.gaps[dimension]) {
                let mut narrower = placement;
                narrower.gaps[dimension] = bytes;
                smaller.push(with_placement(case, tensor, narrower));
            }
        }
        let mut offsets = fewer_bytes(placement.offset);
        if placement.offset >= BASE_ALIGN {
            offsets.push(placement.offset % BASE_ALIGN);
        }
        for offset in offsets {
            let earlier = Placement {
                offset,
                ..placement
            };
            smaller.push(with_placement(case, tensor, earlier));
        }
    }
    smaller
}

/// Returns smaller numbers of bytes; one unit, too, which often shows what a larger gap does where
/// those between do not.
fn fewer_bytes(bytes: usize) -> Vec<usize> {
    let units = bytes / STRIDE_ALIGN;
    let mut fewer = Vec::new();
    for units_and_one in less(units + 1) {
        fewer.push((units_and_one - 1) * STRIDE_ALIGN);
    }
    if units > 1 {
        fewer.push(STRIDE_ALIGN);
    }
    fewer
}

fn with_placement(case: &Case, tensor: usize, placement: Placement) -> Case {
    let mut smaller = *case;
    smaller.placements[tensor] = placement;
    smaller
}

/// Returns cases of the plainest family, or with the first seed.
fn values(case: &Case) -> Vec<Case> {
    let plain = Case {
        family: Family::Normal,
        ..*case
    };
    let first = Case { seed: 0, ..*case };
    others(case, [Case { seed: 0, ..plain }, plain, first])
}

/// Returns cases with all keys visible, the default scale, a larger scale replaced by 1, or no
/// log-sum-exps.
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
    others(case, [full, default, unscaled, without_lse])
}

/// Returns the case in f16, which every family but those of another type has.
fn dtype(case: &Case) -> Vec<Case> {
    if !Family::for_dtype(Dtype::F16).contains(&case.family) {
        return Vec::new();
    }
    let mut in_f16 = *case;
    in_f16.problem.dtype = Dtype::F16;
    others(case, [in_f16])
}
