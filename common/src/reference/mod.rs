//! FP64 attention on the kernel's values, and a same-precision baseline, whose error tells how
//! accurate that precision lets a kernel be.

use crate::inputs::{Inputs, Operand};
use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::sequences::{Sequence, sinks};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;
use std::ops::Range;

pub mod agree;
mod error;
pub mod gpu;
pub mod layout;
pub(crate) mod panels;

pub use crate::probability::{E4M3_PROBABILITY_SCALE, Probability};
pub use error::{Disagreement, ReferenceError};

use panels::{PackedHead, Real, pack_heads, pack_rows, tiles};

/// The number of visible scores above which a sample of the rows is computed: two processors take
/// about a minute for as many.
pub const MAX_FULL_SCORES: u64 = 1 << 28;
/// The same for sequences as they are served, which no GPU computes references of.
pub const MAX_FULL_SERVED_SCORES: u64 = 1 << 25;
/// The number of scores of a sample, about.
const SAMPLED_SCORES: u64 = 1 << 25;
/// The seed of a sample, so that its rows depend on the problem's extents and mask only.
const SAMPLE_SEED: u64 = 0x5a3c_f00d;
/// The rows of queries, and of keys, that kernels take at a time: at their edges the rows of a
/// sample are not left to chance.
const TILE_EXTENTS: [usize; 6] = [16, 32, 64, 96, 128, 256];

/// The values by which an output is judged; arrays hold [`Reference::rows`], `head_dim` values
/// each.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Dense row numbers `(b * heads_q + h) * seq_q + s`, ascending: all that exist, or a sample
    /// with the first and last row of every head, and rows at the edges of tiles.
    pub rows: Vec<usize>,
    pub sampled: bool,
    /// FP64 attention on the dequantised inputs; 0 in rows without a key.
    pub output: Vec<f64>,
    /// The natural logarithm of the sum of exponentials of scaled scores, in FP64, one a row; -inf
    /// without a key.
    pub lse: Vec<f64>,
    /// Scores, softmax and P·V in f32, P normalised and rounded to its type, output rounded to its
    /// format.
    pub baseline: Vec<f32>,
    /// FP64 attention on the values before rounding to E4M3, for gate C4; `None` for real tensors
    /// and other dtypes.
    pub unquantised: Option<Vec<f64>>,
    pub probability: Probability,
    /// The root mean square of the V that a row averages (its batch and key head, all keys), C4's
    /// unit.
    pub value_rms: Vec<f64>,
    /// The longest row of Q times the longest of K times the softmax scale: no logit is larger, nor
    /// any sum on the way to one.
    pub largest_score: f64,
}

/// Computes the reference of all rows or, above [`MAX_FULL_SCORES`], of a sample.
pub fn reference(inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
    reference_of_rows(inputs, p, judged_rows(&inputs.problem))
}

/// Returns all rows of a problem, or the sample.
fn judged_rows(problem: &Problem) -> Vec<usize> {
    if is_sampled(problem) {
        sample_rows(problem)
    } else {
        problem.existing_rows()
    }
}

fn is_sampled(problem: &Problem) -> bool {
    let most = if problem.is_dense() {
        MAX_FULL_SCORES
    } else {
        MAX_FULL_SERVED_SCORES
    };
    problem.scores() > most
}

/// The size of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampleSize {
    /// The number of rows that are judged.
    pub judged: usize,
    /// The number of all rows.
    pub all: usize,
}

/// Returns the size of a problem's sample; `None` where all rows are judged.
pub fn sample_size(problem: &Problem) -> Option<SampleSize> {
    if !is_sampled(problem) {
        return None;
    }
    Some(SampleSize {
        judged: sample_rows(problem).len(),
        all: row_count(problem),
    })
}

/// Computes the reference of these rows: dense numbers, ascending, each at most once.
pub fn reference_of_rows(
    inputs: &Inputs,
    p: Probability,
    rows: Vec<usize>,
) -> Result<Reference, ReferenceError> {
    compose(&Host, inputs, &Widened::new(inputs)?, p, rows)
}

/// Inputs in FP64, once for all references of them.
struct Widened {
    /// Dequantised Q, K and V.
    values: [Vec<f64>; 3],
    /// The values before rounding to E4M3; `None` for real tensors and other dtypes.
    unquantised: Option<[Vec<f64>; 3]>,
}

impl Widened {
    /// Widens inputs, or refuses those that no reference is computed of.
    fn new(inputs: &Inputs) -> Result<Self, ReferenceError> {
        inputs.check()?;
        Ok(Self {
            values: [&inputs.q, &inputs.k, &inputs.v].map(Operand::dequantised),
            unquantised: match inputs.problem.dtype {
                Dtype::E4m3 => unquantised_values(inputs),
                Dtype::F16 | Dtype::Bf16 => None,
            },
        })
    }
}

/// The outputs of rows, and the log-sum-exp of each.
pub(crate) struct Attended<T> {
    pub output: Vec<T>,
    pub lse: Vec<f64>,
}

/// A device that computes the parts of a reference that grow with the number of scores.
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
    widened: &Widened,
    p: Probability,
    rows: Vec<usize>,
) -> Result<Reference, ReferenceError> {
    let problem = &inputs.problem;
    let values = &widened.values;
    let exact = attention.exact(problem, &rows, values)?;
    let mut baseline = attention.baseline(inputs, &rows, p)?;
    problem.dtype.output().round_all(&mut baseline);
    let unquantised = match &widened.unquantised {
        Some(operands) => Some(attention.exact(problem, &rows, operands)?.output),
        None => None,
    };
    let composed = Reference {
        sampled: rows.len() < row_count(problem),
        output: exact.output,
        lse: exact.lse,
        baseline,
        unquantised,
        probability: p,
        value_rms: value_rms(problem, &rows, &values[2]),
        largest_score: largest_score(problem, values),
        rows,
    };
    composed.check_finite(problem)?;
    Ok(composed)
}

impl Reference {
    /// Refuses scores that overflow. A row without a key has a log-sum-exp of minus infinity.
    fn check_finite(&self, problem: &Problem) -> Result<(), ReferenceError> {
        let dim = problem.shape.head_dim;
        let not_finite = |which, index: usize| ReferenceError::NotFinite {
            which,
            row: row_index(problem, self.rows[index]),
        };
        if let Some(element) = self.output.iter().position(|value| !value.is_finite()) {
            return Err(not_finite("FP64", element / dim));
        }
        let mut lses = self.lse.iter();
        if let Some(row) = lses.position(|lse| lse.is_nan() || *lse == f64::INFINITY) {
            return Err(not_finite("FP64", row));
        }
        if let Some(element) = self.baseline.iter().position(|value| !value.is_finite()) {
            return Err(not_finite("baseline", element / dim));
        }
        let mut unquantised = self.unquantised.iter().flatten();
        if let Some(element) = unquantised.position(|value| !value.is_finite()) {
            return Err(not_finite("unquantised", element / dim));
        }
        Ok(())
    }
}

/// Computes [`Reference::largest_score`] from dequantised Q, K and V.
fn largest_score(problem: &Problem, [q, k, _]: &[Vec<f64>; 3]) -> f64 {
    let dim = problem.shape.head_dim;
    longest_row(q, dim) * longest_row(k, dim) * f64::from(problem.softmax_scale.abs())
}

fn longest_row(values: &[f64], dim: usize) -> f64 {
    values
        .par_chunks(dim)
        .map(sum_of_squares)
        .reduce(|| 0.0, f64::max)
        .sqrt()
}

/// Computes [`Reference::value_rms`] from dequantised V.
fn value_rms(problem: &Problem, rows: &[usize], values: &[f64]) -> Vec<f64> {
    let head_len = problem.shape.seq_kv * problem.shape.head_dim;
    let rms_of_heads: Vec<f64> = values
        .par_chunks(head_len)
        .map(|head| (sum_of_squares(head) / head_len as f64).sqrt())
        .collect();
    rows.iter()
        .map(|&row| rms_of_heads[key_head(problem, row)])
        .collect()
}

fn sum_of_squares(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum()
}

/// Computes FP64 attention on the values before rounding, rows as in [`reference_of_rows`]; `None`
/// for real tensors.
pub fn unquantised_rows(inputs: &Inputs, rows: &[usize]) -> Option<Vec<f64>> {
    let values = unquantised_values(inputs)?;
    Some(attend_f64(&inputs.problem, rows, &values).output)
}

/// Returns Q, K and V before rounding; `None` for real tensors.
fn unquantised_values(inputs: &Inputs) -> Option<[Vec<f64>; 3]> {
    let widen = |operand: &Operand| -> Option<Vec<f64>> {
        let values = operand.unquantised.as_ref()?;
        Some(values.iter().map(|&value| f64::from(value)).collect())
    };
    Some([widen(&inputs.q)?, widen(&inputs.k)?, widen(&inputs.v)?])
}

/// Returns the indices `[b, h, s]` of a row of Q or O.
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
    problem.query_rows()
}

/// Returns a sample of about [`SAMPLED_SCORES`], the same number of rows from every head, and of
/// [`edge_rows`], again as many at most.
fn sample_rows(problem: &Problem) -> Vec<usize> {
    let room = problem.shape.seq_q;
    let heads = problem.shape.batch * problem.shape.heads_q;
    let sampled_rows = SAMPLED_SCORES / problem.shape.seq_kv as u64;
    let sequences = problem.shape.sequences();
    let edges = edge_rows(problem);
    let mut rng = ChaCha8Rng::seed_from_u64(SAMPLE_SEED);
    let mut sample = Vec::new();
    for head in 0..heads {
        let seq = sequences[head / problem.shape.heads_q].queries;
        if seq == 0 {
            continue;
        }
        let per_head = (sampled_rows as usize / heads).max(2).min(seq);
        // Where heads are many, each has a part of the edges.
        let edges_per_head = per_head.min(edges.len());
        let mut rows_of_head = Vec::with_capacity(per_head + edges_per_head);
        // One row from each of per_head equal stretches, the outermost at the ends.
        for part in 0..per_head {
            let (start, end) = (part * seq / per_head, (part + 1) * seq / per_head);
            rows_of_head.push(start + (rng.next_u64() % (end - start) as u64) as usize);
        }
        (rows_of_head[0], rows_of_head[per_head - 1]) = (0, seq - 1);
        for turn in 0..edges_per_head {
            let index = head * edges_per_head + turn;
            rows_of_head.push(edges[index % edges.len()]);
        }
        rows_of_head.retain(|row| *row < seq);
        rows_of_head.sort_unstable();
        rows_of_head.dedup();
        sample.extend(rows_of_head.into_iter().map(|row| head * room + row));
    }
    sample
}

/// Returns the rows of a head on both sides of the first and the last edge of tiles of
/// [`TILE_EXTENTS`]. Under a causal mask it returns those that begin to see a key, or the first or
/// last edge of a tile of keys, too.
fn edge_rows(problem: &Problem) -> Vec<usize> {
    let Shape { seq_q, seq_kv, .. } = problem.shape;
    let mut edges = vec![0, seq_q - 1];
    for tile in TILE_EXTENTS {
        for edge in [tile, seq_q / tile * tile] {
            edges.extend([edge.saturating_sub(1), edge]);
        }
        if problem.mask != Mask::Causal {
            continue;
        }
        let first_edge = problem.visible_keys(0).next_multiple_of(tile);
        for keys in [0, tile, first_edge, seq_kv / tile * tile] {
            // The row that sees so many keys: causal masks are aligned at the last row.
            if let Some(row) = (keys + seq_q).checked_sub(seq_kv + 1) {
                edges.extend([row, row + 1]);
            }
        }
    }
    edges.retain(|row| *row < seq_q);
    edges.sort_unstable();
    edges.dedup();
    edges
}

/// Computes FP64 attention on dense values.
fn attend_f64(problem: &Problem, rows: &[usize], [q, k, v]: &[Vec<f64>; 3]) -> Attended<f64> {
    attend::<f64, 4>(
        problem,
        &problem.shape.sequences(),
        &sinks(&problem.shape),
        rows,
        [q, k, v],
        |_, _| exact_scales(problem),
        |scores, sink| {
            if let Some(cap) = problem.shape.serving.softcap.map(f64::from) {
                for score in scores.iter_mut() {
                    *score = cap * (*score / cap).tanh();
                }
            }
            let sink_score = sink.map_or(f64::NEG_INFINITY, f64::from);
            let largest = scores.iter().copied().fold(sink_score, f64::max);
            for score in scores.iter_mut() {
                *score = (*score - largest).exp();
            }
            let sum = scores.iter().sum::<f64>() + (sink_score - largest).exp();
            for weight in scores.iter_mut() {
                *weight /= sum;
            }
            largest + sum.ln()
        },
    )
}

/// Returns the factors of the scores and of the output, on dequantised values.
fn exact_scales(problem: &Problem) -> [f64; 2] {
    [f64::from(problem.softmax_scale), 1.0]
}

/// Returns the factors of the scores and of the output, on codes: they have the scales of the
/// operands, as in the kernels.
fn baseline_scales(inputs: &Inputs, b: usize, h: usize) -> [f32; 2] {
    let Inputs { problem, q, k, v } = inputs;
    let head_kv = h / (problem.shape.heads_q / problem.shape.heads_kv);
    [
        q.scale(b, h) * k.scale(b, head_kv) * problem.softmax_scale,
        v.scale(b, head_kv),
    ]
}

/// Returns `e^x` rounded once, from FP64: a GPU computes the same, where its own functions of f32
/// are less exact.
fn exponential(x: f32) -> f32 {
    f64::from(x).exp() as f32
}

/// Computes the baseline on codes, before its last rounding.
fn attend_baseline(inputs: &Inputs, rows: &[usize], p: Probability) -> Vec<f32> {
    let problem = &inputs.problem;
    let (sequences, sinks) = (problem.shape.sequences(), sinks(&problem.shape));
    attend_baseline_of(&sequences, &sinks, inputs, rows, p).output
}

/// Computes the baseline of sequences of these lengths, with these sinks.
pub(crate) fn attend_baseline_of(
    sequences: &[Sequence],
    sinks: &[f32],
    inputs: &Inputs,
    rows: &[usize],
    p: Probability,
) -> Attended<f32> {
    let Inputs { problem, q, k, v } = inputs;
    attend::<f32, 8>(
        problem,
        sequences,
        sinks,
        rows,
        [&q.codes(), &k.codes(), &v.codes()],
        |b, h| baseline_scales(inputs, b, h),
        |scores, sink| {
            if let Some(cap) = problem.shape.serving.softcap.map(f32::from) {
                for score in scores.iter_mut() {
                    *score = cap * (*score / cap).tanh();
                }
            }
            let sink_score = sink.unwrap_or(f32::NEG_INFINITY);
            let largest = scores.iter().copied().fold(sink_score, f32::max);
            for score in scores.iter_mut() {
                *score = exponential(*score - largest);
            }
            let sum = scores.iter().sum::<f32>() + exponential(sink_score - largest);
            // E4M3 is rounded before the division, like in the kernels.
            if p == Probability::E4m3 {
                p.round(scores);
            }
            for weight in scores.iter_mut() {
                *weight /= sum;
            }
            if p != Probability::E4m3 {
                p.round(scores);
            }
            largest + sum.ln()
        },
    )
}

/// Computes attention of sequences of these lengths, with these sinks, in T, with panels of `N`
/// columns. `scales(b, h)` returns the factors of the
/// scores and of the output. `softmax` turns a row's scaled, visible scores, and the sink of its
/// head, into weights and returns their log-sum-exp.
fn attend<T: Real, const N: usize>(
    problem: &Problem,
    sequences: &[Sequence],
    sinks: &[f32],
    rows: &[usize],
    [q, k, v]: [&[T]; 3],
    scales: impl Fn(usize, usize) -> [T; 2] + Sync,
    softmax: impl Fn(&mut [T], Option<f32>) -> T + Sync,
) -> Attended<T> {
    // Rows ascend, and so do their heads.
    let mut heads: Vec<usize> = rows.iter().map(|&row| key_head(problem, row)).collect();
    heads.dedup();
    let packed: Vec<PackedHead<T, N>> = pack_heads(&problem.shape, &heads, k, v);
    let attended_tiles: Vec<Attended<T>> = tiles(&problem.shape, rows)
        .into_par_iter()
        .map(|tile_rows| {
            let [b, h, _] = row_index(problem, tile_rows[0]);
            let place = heads.binary_search(&key_head(problem, tile_rows[0]));
            let head = &packed[place.expect("each row's head is packed")];
            let tile = TileOfRows {
                rows: tile_rows,
                visible: visible_to(problem, sequences[b], tile_rows),
                sink: sinks.get(h).copied(),
            };
            attend_tile(&tile, q, head, scales(b, h), &softmax)
        })
        .collect();
    let mut attended = Attended {
        output: Vec::new(),
        lse: Vec::new(),
    };
    for tile in attended_tiles {
        attended.output.extend(tile.output);
        attended.lse.extend(tile.lse);
    }
    attended
}

/// Returns the keys that each row of a tile sees.
fn visible_to(problem: &Problem, sequence: Sequence, rows: &[usize]) -> Vec<Range<usize>> {
    let seq_q = problem.shape.seq_q;
    rows.iter()
        .map(|row| problem.visible(sequence, row % seq_q))
        .collect()
}

/// Rows of one head, ascending.
struct TileOfRows<'a> {
    rows: &'a [usize],
    /// The keys that each row sees, which ascend, too.
    visible: Vec<Range<usize>>,
    /// The sink of the head.
    sink: Option<f32>,
}

/// Computes the rows of one tile: their outputs and log-sum-exps.
fn attend_tile<T: Real, const N: usize>(
    tile: &TileOfRows<'_>,
    q: &[T],
    head: &PackedHead<T, N>,
    [score_scale, output_scale]: [T; 2],
    softmax: &impl Fn(&mut [T], Option<f32>) -> T,
) -> Attended<T> {
    let TileOfRows {
        rows,
        ref visible,
        sink,
    } = *tile;
    let dim = head.values.columns();
    let keys = visible[0].start..visible[visible.len() - 1].end;
    let q_tile = pack_rows(rows.iter().map(|&row| &q[row * dim..(row + 1) * dim]), dim);
    let mut weights = vec![vec![T::default(); keys.len()]; rows.len()];
    head.keys
        .multiply(&q_tile, 0..dim, keys.clone(), |row, key, sum| {
            if row < visible.len() && visible[row].contains(&key) {
                weights[row][key - keys.start] = sum * score_scale;
            }
        });
    let mut lse = vec![f64::NEG_INFINITY; rows.len()];
    for (row, seen) in visible.iter().enumerate() {
        if !seen.is_empty() || sink.is_some() {
            let scores = &mut weights[row][seen.start - keys.start..seen.end - keys.start];
            lse[row] = softmax(scores, sink).into();
        }
    }
    let p_tile = pack_rows(weights.iter().map(Vec::as_slice), keys.len());
    let mut output = vec![T::default(); rows.len() * dim];
    let columns = 0..dim;
    head.values
        .multiply(&p_tile, keys, columns, |row, column, sum| {
            if row < visible.len() {
                output[row * dim + column] = sum * output_scale;
            }
        });
    Attended { output, lse }
}

#[cfg(test)]
mod tests;
