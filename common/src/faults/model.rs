//! A model of a correct kernel: tiled online softmax in f32, unnormalised P rounded to its type
//! where it meets V, one division at the end. It has neither the order and truncation inside a
//! tensor core's accumulator nor ex2.approx (2 ulp).

use super::Fault;
use crate::e4m3::E4m3;
use crate::format::Format;
use crate::inputs::{Inputs, Operand};
use crate::probability::Probability;
use crate::problem::{Dtype, Problem};
use crate::reference::panels::{self, TILE_ROWS, pack_heads, pack_rows};
use crate::reference::row_index;
use emulator::trace::Seen;
use rayon::prelude::*;
use std::ops::Range;

/// The choices that change a kernel's rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// The number of keys in a tile.
    pub block_n: usize,
    /// P's type where it meets V.
    pub probability: Probability,
}

type PackedHead = panels::PackedHead<f32, 8>;

/// The state of a row between two tiles.
#[derive(Clone)]
pub(crate) struct RowState {
    max: f32,
    sum: f32,
    accumulator: Vec<f32>,
    pub(crate) shown: Record,
}

/// The figures that a kernel would show of a row, tile by tile. Only the tests of
/// explain have a use for it.
#[derive(Clone, Default)]
pub(crate) struct Record {
    #[cfg(test)]
    pub(crate) values: Vec<ShownValues>,
}

/// The values of one kind that a kernel would show of a tile.
#[cfg(test)]
#[derive(Clone)]
pub(crate) struct ShownValues {
    /// The first key of the tile.
    pub(crate) tile: usize,
    pub(crate) what: Seen,
    pub(crate) values: Vec<f32>,
}

/// A row after all tiles.
pub(crate) struct FinishedRow {
    pub(crate) state: RowState,
    /// The factor of the row's scores. It has log2(e) in it: exp(x) = 2^(x log2 e).
    pub(crate) score_scale: f32,
    /// The factor of the row's output.
    output_scale: f32,
}

impl Model {
    /// Returns the model with tiles of 16 keys, so that small problems have several, and P in 16
    /// bits.
    pub fn for_dtype(dtype: Dtype) -> Self {
        Self {
            block_n: 16,
            probability: Probability::half(dtype),
        }
    }

    /// Computes the rows with the dense numbers `rows`, ascending, `head_dim` values each; with a
    /// fault, if it is inside of the kernel.
    pub fn output(&self, inputs: &Inputs, rows: &[usize], fault: Option<Fault>) -> Vec<f32> {
        let format = inputs.problem.dtype.output();
        self.finished(inputs, rows, fault, |row| {
            let inverse = if row.state.sum == 0.0 {
                0.0
            } else {
                row.output_scale / row.state.sum
            };
            let accumulator = row.state.accumulator.into_iter();
            accumulator.map(move |value| match fault {
                Some(Fault::OutputTruncated) => format.toward_zero((value * inverse).into()),
                Some(Fault::ThroughF16) => format.round(Format::F16.round(value * inverse)),
                _ => format.round(value * inverse),
            })
        })
    }

    /// Computes the log-sum-exps of all rows; with a fault, if it is one of theirs.
    pub(super) fn lse(&self, inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
        self.finished(inputs, &all_rows(inputs), None, |row| {
            let RowState { max, sum, .. } = row.state;
            let lse = match fault {
                Some(Fault::LseInBase2) => max + sum.log2(),
                Some(Fault::LseUnscaled) => max / row.score_scale + sum.ln(),
                Some(Fault::LseWithoutMaximum) => sum.ln(),
                Some(Fault::LseOfEmptyRow) if sum == 0.0 => f32::MIN,
                _ => (max + sum.log2()) * std::f32::consts::LN_2,
            };
            [lse]
        })
    }

    /// Runs the model and collects what `finish` makes of each row.
    pub(crate) fn finished<T: Send, Values: IntoIterator<Item = T>>(
        &self,
        inputs: &Inputs,
        rows: &[usize],
        fault: Option<Fault>,
        finish: impl Fn(FinishedRow) -> Values + Sync + Send + Copy,
    ) -> Vec<T> {
        let launch = Launch::new(*self, inputs, fault);
        panels::tiles(&inputs.problem.shape, rows)
            .into_par_iter()
            .flat_map_iter(|tile_rows| launch.run(tile_rows).into_iter().flat_map(finish))
            .collect()
    }
}

/// The model on one set of inputs.
struct Launch<'a> {
    model: Model,
    inputs: &'a Inputs,
    fault: Option<Fault>,
    q: Vec<f32>,
    /// K and V of each head.
    heads: Vec<PackedHead>,
}

impl<'a> Launch<'a> {
    fn new(model: Model, inputs: &'a Inputs, fault: Option<Fault>) -> Self {
        let shape = inputs.problem.shape;
        let (keys, values) = keys_and_values(inputs, fault);
        let head_numbers: Vec<usize> = (0..shape.batch * shape.heads_kv).collect();
        let k = decode(keys, fault);
        let v = decode(values, fault);
        Self {
            model,
            inputs,
            fault,
            q: decode(&inputs.q, fault),
            heads: pack_heads(&shape, &head_numbers, &k, &v),
        }
    }

    /// Computes the rows of one tile, all of one head.
    fn run(&self, rows: &[usize]) -> Vec<FinishedRow> {
        let shape = self.inputs.problem.shape;
        let [batch, head, _] = row_index(&self.inputs.problem, rows[0]);
        let kv_head = if self.fault == Some(Fault::WrongKeyHead) {
            head % shape.heads_kv
        } else {
            head / (shape.heads_q / shape.heads_kv)
        };
        let scale_batch = if self.fault == Some(Fault::ScalesOfFirstBatch) {
            0
        } else {
            batch
        };
        let (keys, values) = keys_and_values(self.inputs, self.fault);
        let score_scale = self.inputs.q.scale(scale_batch, head)
            * keys.scale(scale_batch, kv_head)
            * self.inputs.problem.softmax_scale
            * std::f32::consts::LOG2_E;
        let output_scale = values.scale(scale_batch, kv_head);

        let dim = shape.head_dim;
        let q_rows = rows.iter().map(|&row| &self.q[row * dim..(row + 1) * dim]);
        let tile = RowTile {
            model: self.model,
            problem: &self.inputs.problem,
            fault: self.fault,
            rows,
            q: pack_rows(q_rows, dim),
            head: &self.heads[batch * shape.heads_kv + kv_head],
            score_scale,
        };
        let mut finished = Vec::new();
        for state in tile.run() {
            finished.push(FinishedRow {
                state,
                score_scale,
                output_scale,
            });
        }
        finished
    }
}

/// Up to [`TILE_ROWS`] rows of one head, which go through the keys together.
struct RowTile<'a> {
    model: Model,
    problem: &'a Problem,
    fault: Option<Fault>,
    /// Dense numbers of the rows.
    rows: &'a [usize],
    q: Vec<[f32; TILE_ROWS]>,
    head: &'a PackedHead,
    score_scale: f32,
}

impl RowTile<'_> {
    fn run(&self) -> Vec<RowState> {
        let unseen =
            vec![RowState::unseen(self.problem.shape.head_dim, self.fault); self.rows.len()];
        let mut states = unseen.clone();
        let mut first_part = Vec::new();
        let seq_kv = self.problem.shape.seq_kv;
        let tile_count = seq_kv.div_ceil(self.model.block_n);
        for tile in 0..tile_count {
            let is_middle = tile == tile_count / 2;
            if is_middle && self.has(Fault::DroppedTile) {
                continue;
            }
            if is_middle && self.has(Fault::UnweightedMerge) {
                first_part = std::mem::replace(&mut states, unseen.clone());
            }
            let start = tile * self.model.block_n;
            let keys = start..(start + self.model.block_n).min(seq_kv);
            let mut scores = self.scores(&keys);
            self.softmax(&keys, &mut scores, &mut states);
            self.add_values(&keys, &scores, &mut states);
        }
        for (state, part) in states.iter_mut().zip(first_part) {
            state.add_unweighted(&part);
        }
        states
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    /// Returns the number of keys that a row of the tile counts.
    fn counted_keys(&self, row: usize) -> usize {
        let seq_kv = self.problem.shape.seq_kv;
        match self.visible_keys(row) {
            visible if self.has(Fault::CausalOffByOne) => (visible + 1).min(seq_kv),
            0 if self.has(Fault::EmptyRowAveraged) => seq_kv,
            visible => visible,
        }
    }

    /// Returns the number of keys that a row of the tile sees.
    fn visible_keys(&self, row: usize) -> usize {
        let query = self.rows[row] % self.problem.shape.seq_q;
        self.problem.visible_keys(query)
    }

    /// Computes the scaled and masked scores of a tile of keys. Each row has as many as a full
    /// tile.
    fn scores(&self, keys: &Range<usize>) -> Vec<Vec<f32>> {
        let mut scores = vec![vec![f32::NEG_INFINITY; self.model.block_n]; self.rows.len()];
        let counted: Vec<usize> = (0..self.rows.len())
            .map(|row| self.counted_keys(row))
            .collect();
        let dims = 0..self.problem.shape.head_dim;
        self.head
            .keys
            .multiply(&self.q, dims, keys.clone(), |row, key, sum| {
                if row < counted.len() && key < counted[row] {
                    scores[row][key - keys.start] = sum * self.score_scale;
                }
            });
        for (row, row_scores) in scores.iter_mut().enumerate() {
            if self.has(Fault::EmptyRowAveraged) && self.visible_keys(row) == 0 {
                row_scores[..keys.len()].fill(0.0);
            }
            if self.has(Fault::UnmaskedPadding) && counted[row] == self.problem.shape.seq_kv {
                row_scores[keys.len()..].fill(0.0);
            }
        }
        scores
    }

    /// Turns the scores of each row into P and brings its state under the new maximum.
    fn softmax(&self, keys: &Range<usize>, scores: &mut [Vec<f32>], states: &mut [RowState]) {
        let mut neighbour_max = None;
        for (row_scores, state) in scores.iter_mut().zip(states) {
            state.shown.add(keys.start, Seen::Score, row_scores);
            let own_max = row_scores.iter().copied().fold(state.max, f32::max);
            let max = match neighbour_max.replace(own_max) {
                Some(neighbour) if self.has(Fault::NeighbourState) => neighbour,
                _ => own_max,
            };
            if max == f32::NEG_INFINITY {
                row_scores.fill(0.0);
            } else {
                self.softmax_row(keys.start, max, row_scores, state);
            }
        }
    }

    /// Turns the scores of one row into P under `max`.
    fn softmax_row(&self, first_key: usize, max: f32, row: &mut [f32], state: &mut RowState) {
        let rescale = (state.max - max).exp2();
        for score in row.iter_mut() {
            *score = (*score - max).exp2();
        }
        state.max = max;
        state.sum = state.sum * rescale + row.iter().sum::<f32>();
        if self.has(Fault::SumInHalf) {
            state.sum = self.format().round(state.sum);
        }
        state
            .shown
            .add(first_key, Seen::State, &[state.max, state.sum]);
        state.shown.add(first_key, Seen::Probability, row);
        if !self.has(Fault::MissingRescale) {
            for value in &mut state.accumulator {
                *value *= rescale;
            }
        }
        match self.fault {
            Some(Fault::ProbabilityInE4m3) => Probability::E4m3.round(row),
            Some(Fault::ProbabilityTruncated) => {
                for p in row.iter_mut() {
                    *p = self.format().toward_zero((*p).into());
                }
            }
            _ => self.model.probability.round(row),
        }
    }

    /// Adds P times V of a tile of keys to the accumulators.
    fn add_values(&self, keys: &Range<usize>, p: &[Vec<f32>], states: &mut [RowState]) {
        let is_stale = self.has(Fault::StaleTile) && keys.start > 0;
        let v_start = if is_stale {
            keys.start - self.model.block_n
        } else {
            keys.start
        };
        // Columns of P past the end meet no V: the padding of V is zero.
        let p_tile = pack_rows(p.iter().map(|row| &row[..keys.len()]), keys.len());
        let v_keys = v_start..v_start + keys.len();
        let columns = 0..self.problem.shape.head_dim;
        self.head
            .values
            .multiply(&p_tile, v_keys, columns, |row, column, sum| {
                if let Some(state) = states.get_mut(row) {
                    let value = &mut state.accumulator[column];
                    *value = self.accumulated(*value + sum);
                }
            });
        for state in states {
            state
                .shown
                .add(keys.start, Seen::Output, &state.accumulator);
        }
    }

    /// Returns a value as the accumulator holds it.
    fn accumulated(&self, value: f32) -> f32 {
        const LOST_BITS: u32 = f32::MANTISSA_DIGITS - 1 - 13;
        match self.fault {
            Some(Fault::AccumulatorInHalf) => self.format().round(value),
            Some(Fault::AccumulatorCutOff) if self.format() == Format::F16 => {
                f32::from_bits(value.to_bits() >> LOST_BITS << LOST_BITS)
            }
            _ => value,
        }
    }

    fn format(&self) -> Format {
        self.problem.dtype.output()
    }
}

impl RowState {
    /// Returns the state before the first key.
    fn unseen(dim: usize, fault: Option<Fault>) -> Self {
        let max = if fault == Some(Fault::MaximumFromZero) {
            0.0
        } else {
            f32::NEG_INFINITY
        };
        Self {
            max,
            sum: 0.0,
            accumulator: vec![0.0; dim],
            shown: Record::default(),
        }
    }

    /// Adds a part of the keys as if it had the same maximum.
    fn add_unweighted(&mut self, part: &Self) {
        self.sum += part.sum;
        for (value, other) in self.accumulator.iter_mut().zip(&part.accumulator) {
            *value += other;
        }
    }
}

impl Record {
    #[cfg(test)]
    fn add(&mut self, first_key: usize, what: Seen, values: &[f32]) {
        self.values.push(ShownValues {
            tile: first_key,
            what,
            values: values.to_vec(),
        });
    }

    #[cfg(not(test))]
    fn add(&mut self, _first_key: usize, _what: Seen, _values: &[f32]) {}
}

/// Returns the dense numbers of all rows.
pub(super) fn all_rows(inputs: &Inputs) -> Vec<usize> {
    let [batch, heads, rows, _] = inputs.q.extents;
    (0..batch * heads * rows).collect()
}

/// Returns what the kernel takes for K and for V.
fn keys_and_values(inputs: &Inputs, fault: Option<Fault>) -> (&Operand, &Operand) {
    if fault == Some(Fault::SwappedKeysAndValues) {
        (&inputs.v, &inputs.k)
    } else {
        (&inputs.k, &inputs.v)
    }
}

/// Returns an operand's values without scale, or as a decoder with other levels reads them.
fn decode(operand: &Operand, fault: Option<Fault>) -> Vec<f32> {
    let mut codes = operand.codes();
    if fault == Some(Fault::ThroughF16) {
        Format::F16.round_all(&mut codes);
    }
    if fault == Some(Fault::CodecMismatch) && operand.dtype == Dtype::E4m3 {
        // Encoded as (x + 1) * 127.5, decoded as (u - 128) / 127, x in units of the largest value
        // (P4).
        for code in &mut codes {
            let x = *code / E4m3::MAX;
            *code = ((x + 1.0) * 127.5 - 128.0) / 127.0 * E4m3::MAX;
        }
    }
    codes
}
