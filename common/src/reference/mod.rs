//! FP64 attention on the kernel's values, and a same-precision baseline, whose error says how accurate that precision lets a
//! kernel be.

use crate::device::cuda::CudaError;
use crate::e4m3::E4m3;
use crate::format::Format;
use crate::inputs::{InputError, Inputs, Operand};
use crate::problem::{Dtype, Mask, Problem, Shape};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

pub mod agree;
pub mod gpu;
pub mod layout;
pub(crate) mod panels;

use agree::Disagreement;
use panels::{Packed, Real, pack_heads, pack_rows, tiles};

named! {
    /// P's type where it meets V.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Probability {
        /// Never rounded.
        F32 = "f32",
        F16 = "f16",
        Bf16 = "bf16",
        /// Scaled by 2^8 before rounding (see [`E4M3_PROBABILITY_SCALE`]).
        E4m3 = "e4m3",
    }
}

/// FP8 kernels keep `exp(s - max) * 2^8` in E4M3 and divide at the end, so that weights down to 2^-17 of the largest survive
/// (FlashAttention-3, `hopper/softmax.h`, `Max_offset = 8`). Normalised first, weights below 2^-10 would be lost: with some
/// thousands of keys nearly all.
pub const E4M3_PROBABILITY_SCALE: f32 = 256.0;

impl Probability {
    pub fn of_operands(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F16 => Probability::F16,
            Dtype::E4m3 => Probability::E4m3,
            Dtype::Bf16 => Probability::Bf16,
        }
    }

    /// P in the output's format.
    pub fn half(dtype: Dtype) -> Self {
        match dtype.output() {
            Format::F16 => Probability::F16,
            Format::Bf16 => Probability::Bf16,
        }
    }

    /// Nothing less exact than 16 bits or the inputs: it sets how far C2 and C3 let an output be off.
    pub fn declarable(dtype: Dtype) -> &'static [Self] {
        match dtype {
            Dtype::F16 => &[Probability::F32, Probability::F16],
            Dtype::Bf16 => &[Probability::F32, Probability::Bf16],
            Dtype::E4m3 => &[Probability::F32, Probability::F16, Probability::Bf16],
        }
    }

    /// The type that P is rounded to where a kernel declares `self`: 16 bits are the output's, though a kernel may declare
    /// fewer because its scores are less exact.
    pub fn held(self, dtype: Dtype) -> Self {
        match self {
            Probability::F16 | Probability::Bf16 => Self::half(dtype),
            Probability::F32 | Probability::E4m3 => self,
        }
    }

    pub fn format(self) -> Option<Format> {
        match self {
            Probability::F16 => Some(Format::F16),
            Probability::Bf16 => Some(Format::Bf16),
            Probability::F32 | Probability::E4m3 => None,
        }
    }

    /// Weights of at most 1, in place, as values.
    pub(crate) fn round(self, weights: &mut [f32]) {
        match self {
            Probability::F32 => {}
            Probability::F16 => Format::F16.round_all(weights),
            Probability::Bf16 => Format::Bf16.round_all(weights),
            Probability::E4m3 => weights.iter_mut().for_each(|weight| {
                *weight = E4m3::from_f32(*weight * E4M3_PROBABILITY_SCALE).to_f32()
                    / E4M3_PROBABILITY_SCALE;
            }),
        }
    }
}

/// Visible scores above which a sample of the rows is computed: two processors take about a minute for as many.
pub const MAX_FULL_SCORES: u64 = 1 << 28;
/// Scores of a sample, about.
const SAMPLED_SCORES: u64 = 1 << 25;
/// The rows depend on the problem's extents and mask only.
const SAMPLE_SEED: u64 = 0x5a3c_f00d;
/// Rows of queries, and of keys, that kernels take at a time: at their edges the rows of a sample are not left to chance.
const TILE_EXTENTS: [usize; 6] = [16, 32, 64, 96, 128, 256];

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum ReferenceError {
    /// A NaN in a reference would match anything.
    #[error(transparent)]
    Input(#[from] InputError),
    /// Finite inputs whose scores overflow.
    #[error("the {which} reference is not finite at row [{}, {}, {}]", row[0], row[1], row[2])]
    NotFinite {
        /// "FP64", "baseline" or "unquantised".
        which: &'static str,
        /// The first, `[b, h, s]`.
        row: [usize; 3],
    },
    /// A reference on a GPU was not computed.
    #[error(transparent)]
    Gpu(#[from] CudaError),
    /// A reference on a GPU is not the host's, where both were computed.
    #[error(transparent)]
    Disagreement(#[from] Disagreement),
}

/// What an output is judged by; arrays hold [`Reference::rows`], `head_dim` values each.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Dense row numbers `(b * heads_q + h) * seq_q + s`, ascending: all, or a sample with the first and last row of every
    /// head, and rows at the edges of tiles.
    pub rows: Vec<usize>,
    pub sampled: bool,
    /// FP64 attention on the dequantised inputs; 0 in rows without a key.
    pub output: Vec<f64>,
    /// One a row: the natural logarithm of the sum of exponentials of scaled scores, in FP64; -inf without a key.
    pub lse: Vec<f64>,
    /// Scores, softmax and P·V in f32, P normalised and rounded to its type, output rounded to its format.
    pub baseline: Vec<f32>,
    /// E4M3: FP64 attention on the values before rounding, for gate C4; `None` for real tensors and other dtypes.
    pub unquantised: Option<Vec<f64>>,
    pub probability: Probability,
    /// Of a row: root mean square of the V that it averages (its batch and key head, all keys), C4's unit.
    pub value_rms: Vec<f64>,
    /// The longest row of Q times the longest of K times the softmax scale: no logit is larger, nor any sum on the way to
    /// one.
    pub largest_score: f64,
}

/// Above [`MAX_FULL_SCORES`] of a sample of rows.
pub fn reference(inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
    reference_of_rows(inputs, p, judged_rows(&inputs.problem))
}

/// Returns all rows of a problem, or the sample.
fn judged_rows(problem: &Problem) -> Vec<usize> {
    match is_sampled(problem) {
        true => sample_rows(problem),
        false => (0..row_count(problem)).collect(),
    }
}

fn is_sampled(problem: &Problem) -> bool {
    problem.scores() > MAX_FULL_SCORES
}

/// How many rows of a problem are judged, and how many it has, where a sample is.
pub fn sample(problem: &Problem) -> Option<(usize, usize)> {
    is_sampled(problem).then(|| (sample_rows(problem).len(), row_count(problem)))
}

/// Dense row numbers, ascending, each at most once.
pub fn reference_of_rows(
    inputs: &Inputs,
    p: Probability,
    rows: Vec<usize>,
) -> Result<Reference, ReferenceError> {
    compose(&Host, inputs, p, rows)
}

/// Outputs, and the log-sum-exp of each row.
type Attended<T> = (Vec<T>, Vec<f64>);

/// What computes the parts of a reference that grow with the number of scores.
trait Attention {
    /// Computes FP64 attention on dense values.
    fn exact(
        &self,
        problem: &Problem,
        rows: &[usize],
        values: &[Vec<f64>; 3],
    ) -> Result<Attended<f64>, ReferenceError>;

    /// Computes [`Reference::baseline`], before its last rounding.
    fn baseline(
        &self,
        inputs: &Inputs,
        rows: &[usize],
        p: Probability,
    ) -> Result<Vec<f32>, ReferenceError>;
}

/// The host's processors.
struct Host;

impl Attention for Host {
    fn exact(
        &self,
        problem: &Problem,
        rows: &[usize],
        values: &[Vec<f64>; 3],
    ) -> Result<Attended<f64>, ReferenceError> {
        Ok(attend_f64(problem, rows, values))
    }

    fn baseline(
        &self,
        inputs: &Inputs,
        rows: &[usize],
        p: Probability,
    ) -> Result<Vec<f32>, ReferenceError> {
        Ok(attend_baseline(inputs, rows, p))
    }
}

/// Composes a reference of what `attention` computes.
fn compose(
    attention: &dyn Attention,
    inputs: &Inputs,
    p: Probability,
    rows: Vec<usize>,
) -> Result<Reference, ReferenceError> {
    inputs.check()?;
    let problem = &inputs.problem;
    let values = [&inputs.q, &inputs.k, &inputs.v].map(Operand::dequantised);
    let square = |values: &[f64]| values.iter().map(|value| value * value).sum::<f64>();
    let longest = |values: &[f64]| {
        values
            .par_chunks(problem.shape.head_dim)
            .map(square)
            .reduce(|| 0.0, f64::max)
            .sqrt()
    };
    let largest_score =
        longest(&values[0]) * longest(&values[1]) * f64::from(problem.softmax_scale.abs());
    let kv_len = problem.shape.seq_kv * problem.shape.head_dim;
    let rms: Vec<f64> = values[2]
        .par_chunks(kv_len)
        .map(|head| (square(head) / kv_len as f64).sqrt())
        .collect();
    let value_rms = rows
        .iter()
        .map(|&row| rms[key_head(problem, row)])
        .collect();
    let (exact, lse) = attention.exact(problem, &rows, &values)?;
    let mut baseline = attention.baseline(inputs, &rows, p)?;
    problem.dtype.output().round_all(&mut baseline);
    let widened = match problem.dtype {
        Dtype::E4m3 => unquantised_values(inputs),
        Dtype::F16 | Dtype::Bf16 => None,
    };
    let unquantised = widened
        .map(|values| attention.exact(problem, &rows, &values))
        .transpose()?
        .map(|(output, _)| output);

    let finite = |which, bad: Option<usize>| match bad {
        Some(row) => Err(ReferenceError::NotFinite {
            which,
            row: row_index(problem, rows[row]),
        }),
        None => Ok(()),
    };
    let row_of = |element: usize| element / problem.shape.head_dim;
    let is_bad = |value: &f64| !value.is_finite();
    finite("FP64", exact.iter().position(is_bad).map(row_of))?;
    let is_no_lse = |&lse: &f64| lse.is_nan() || lse == f64::INFINITY;
    finite("FP64", lse.iter().position(is_no_lse))?;
    let bad = baseline.iter().position(|value| !value.is_finite());
    finite("baseline", bad.map(row_of))?;
    let bad = unquantised.iter().flatten().position(is_bad);
    finite("unquantised", bad.map(row_of))?;
    let sampled = rows.len() < row_count(problem);
    Ok(Reference {
        rows,
        sampled,
        output: exact,
        lse,
        baseline,
        unquantised,
        probability: p,
        value_rms,
        largest_score,
    })
}

/// FP64 attention on the values before rounding, rows as in [`reference_of_rows`]; `None` for real tensors.
pub fn unquantised_rows(inputs: &Inputs, rows: &[usize]) -> Option<Vec<f64>> {
    let values = unquantised_values(inputs)?;
    Some(attend_f64(&inputs.problem, rows, &values).0)
}

/// Returns Q, K and V before rounding; `None` for real tensors.
fn unquantised_values(inputs: &Inputs) -> Option<[Vec<f64>; 3]> {
    let widen = |operand: &Operand| -> Option<Vec<f64>> {
        let values = operand.unquantised.as_ref()?;
        Some(values.iter().map(|&value| f64::from(value)).collect())
    };
    Some([widen(&inputs.q)?, widen(&inputs.k)?, widen(&inputs.v)?])
}

/// `[b, h, s]`, of Q or O.
pub fn row_index(problem: &Problem, row: usize) -> [usize; 3] {
    let (heads, seq) = (problem.shape.heads_q, problem.shape.seq_q);
    [row / (heads * seq), row / seq % heads, row % seq]
}

/// Returns the head of K and V that a row reads, of those of all batches.
fn key_head(problem: &Problem, row: usize) -> usize {
    let [b, h, _] = row_index(problem, row);
    let Shape {
        heads_q, heads_kv, ..
    } = problem.shape;
    b * heads_kv + h / (heads_q / heads_kv)
}

fn row_count(problem: &Problem) -> usize {
    problem.shape.batch * problem.shape.heads_q * problem.shape.seq_q
}

/// About [`SAMPLED_SCORES`], the same number of rows from every head; and [`edge_rows`], again as many at most.
fn sample_rows(problem: &Problem) -> Vec<usize> {
    let (heads, seq) = (
        problem.shape.batch * problem.shape.heads_q,
        problem.shape.seq_q,
    );
    let rows = SAMPLED_SCORES / problem.shape.seq_kv as u64;
    let per_head = (rows as usize / heads).max(2).min(seq);
    let edges = edge_rows(problem);
    // Where heads are many, each has a part of them.
    let edges_per_head = per_head.min(edges.len());
    let mut rng = ChaCha8Rng::seed_from_u64(SAMPLE_SEED);
    let mut sample = Vec::with_capacity(heads * (per_head + edges_per_head));
    for head in 0..heads {
        // One row from each of per_head equal stretches, the outermost at the ends.
        let mut picked: Vec<usize> = (0..per_head)
            .map(|part| {
                let (start, end) = (part * seq / per_head, (part + 1) * seq / per_head);
                start + (rng.next_u64() % (end - start) as u64) as usize
            })
            .collect();
        (picked[0], picked[per_head - 1]) = (0, seq - 1);
        let turn = edges
            .iter()
            .cycle()
            .skip(head * edges_per_head % edges.len());
        picked.extend(turn.take(edges_per_head));
        picked.sort_unstable();
        picked.dedup();
        sample.extend(picked.into_iter().map(|row| head * seq + row));
    }
    sample
}

/// The rows of a head on both sides of the first and the last edge of tiles of [`TILE_EXTENTS`], and of causal ones those that begin
/// to see a key, or the first or last edge of a tile of keys.
fn edge_rows(problem: &Problem) -> Vec<usize> {
    let (seq_q, seq_kv) = (problem.shape.seq_q, problem.shape.seq_kv);
    // The row that sees so many keys; causal masks are aligned at the last row.
    let seeing = |keys: usize| (keys + seq_q).checked_sub(seq_kv + 1);
    let diagonal = |tile: usize| {
        let keys = [
            0,
            tile,
            problem.visible_keys(0).next_multiple_of(tile),
            seq_kv / tile * tile,
        ];
        keys.into_iter().filter_map(seeing)
    };
    let is_causal = problem.mask == Mask::Causal;
    let mut edges: Vec<usize> = TILE_EXTENTS
        .into_iter()
        .flat_map(|tile| {
            let of_queries = [tile, seq_q / tile * tile].map(|edge| edge.wrapping_sub(1));
            let of_keys = is_causal.then(|| diagonal(tile));
            of_queries.into_iter().chain(of_keys.into_iter().flatten())
        })
        .flat_map(|row| [row, row.wrapping_add(1)])
        .chain([0, seq_q - 1])
        .filter(|row| *row < seq_q)
        .collect();
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// On dense values: outputs and log-sum-exps.
fn attend_f64(problem: &Problem, rows: &[usize], [q, k, v]: &[Vec<f64>; 3]) -> Attended<f64> {
    attend::<f64, 4>(
        problem,
        rows,
        [q, k, v],
        |_, _| exact_scales(problem),
        |scores| {
            let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            scores
                .iter_mut()
                .for_each(|score| *score = (*score - largest).exp());
            let sum: f64 = scores.iter().sum();
            scores.iter_mut().for_each(|score| *score /= sum);
            largest + sum.ln()
        },
    )
}

/// Returns the factors of the scores and of the output, on dequantised values.
fn exact_scales(problem: &Problem) -> [f64; 2] {
    [f64::from(problem.softmax_scale), 1.0]
}

/// Returns the same on codes: scales are factors of the scores and of the output, as in the kernels.
fn baseline_scales(inputs: &Inputs, b: usize, h: usize) -> [f32; 2] {
    let Inputs { problem, q, k, v } = inputs;
    let head_kv = h / (problem.shape.heads_q / problem.shape.heads_kv);
    [
        q.scale(b, h) * k.scale(b, head_kv) * problem.softmax_scale,
        v.scale(b, head_kv),
    ]
}

/// Returns `e^x` rounded once, from FP64: a GPU computes the same, where its own functions of f32 are less exact.
fn exponential(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

/// On codes, as values.
fn attend_baseline(inputs: &Inputs, rows: &[usize], p: Probability) -> Vec<f32> {
    let Inputs { problem, q, k, v } = inputs;
    attend::<f32, 8>(
        problem,
        rows,
        [&q.codes(), &k.codes(), &v.codes()],
        |b, h| baseline_scales(inputs, b, h),
        |scores| {
            let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            scores
                .iter_mut()
                .for_each(|score| *score = exponential(*score - largest));
            let sum: f32 = scores.iter().sum();
            if p == Probability::E4m3 {
                p.round(scores);
            }
            scores.iter_mut().for_each(|score| *score /= sum);
            if p != Probability::E4m3 {
                p.round(scores);
            }
            largest + sum.ln()
        },
    )
    .0
}

/// In T, with panels of `N` columns. `scales(b, h)`: the factors of the scores and of the output; `softmax` turns a row's
/// scaled, visible scores into weights and gives their log-sum-exp. Outputs, and log-sum-exps in FP64.
fn attend<T: Real, const N: usize>(
    problem: &Problem,
    rows: &[usize],
    [q, k, v]: [&[T]; 3],
    scales: impl Fn(usize, usize) -> [T; 2] + Sync,
    softmax: impl Fn(&mut [T]) -> T + Sync,
) -> Attended<T> {
    let shape = &problem.shape;
    let dim = shape.head_dim;
    let mut heads: Vec<usize> = rows.iter().map(|&row| key_head(problem, row)).collect();
    heads.dedup();
    let packed: Vec<Packed<T, N>> = pack_heads(shape, &heads, k, v);
    let of_tile = |rows: &[usize]| {
        let [b, h, _] = row_index(problem, rows[0]);
        // Rows ascend, and so do their heads.
        let place = heads.binary_search(&key_head(problem, rows[0]));
        let (keys, values) = &packed[place.expect("each row's head is packed")];
        let [score_scale, output_scale] = scales(b, h);
        // Rows ascend, and so does what they see.
        let visible: Vec<usize> = rows
            .iter()
            .map(|&row| problem.visible_keys(row % shape.seq_q))
            .collect();
        let most = visible[visible.len() - 1];

        let q_tile = pack_rows(rows.iter().map(|&row| &q[row * dim..(row + 1) * dim]), dim);
        let mut weights = vec![vec![T::default(); most]; rows.len()];
        keys.multiply(&q_tile, 0..dim, 0..most, |row, key, sum| {
            if row < visible.len() && key < visible[row] {
                weights[row][key] = sum * score_scale;
            }
        });
        let mut lse = vec![f64::NEG_INFINITY; rows.len()];
        for ((weights, &visible), lse) in weights.iter_mut().zip(&visible).zip(&mut lse) {
            if visible > 0 {
                *lse = softmax(&mut weights[..visible]).into();
            }
        }
        let p_tile = pack_rows(weights.iter().map(Vec::as_slice), most);
        let mut out = vec![T::default(); rows.len() * dim];
        values.multiply(&p_tile, 0..most, 0..dim, |row, column, sum| {
            if row < visible.len() {
                out[row * dim + column] = sum * output_scale;
            }
        });
        (out, lse)
    };
    let (out, lse): (Vec<_>, Vec<_>) = tiles(shape, rows).into_par_iter().map(of_tile).unzip();
    (out.concat(), lse.concat())
}

#[cfg(test)]
mod tests;
