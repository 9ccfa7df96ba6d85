//! A model of a correct kernel: tiled online softmax in f32, unnormalised P rounded to its type where it meets V, one
//! division at the end. Without the order and truncation inside a tensor core's accumulator, and without ex2.approx (2 ulp).

use super::Fault;
use crate::e4m3::E4m3;
use crate::format::Format;
use crate::inputs::{Inputs, Operand};
use crate::problem::Dtype;
use crate::reference::Probability;
use crate::reference::panels::{self, TILE_ROWS, pack_heads, pack_rows};
use crate::reference::row_index;
#[cfg(test)]
use emulator::trace::Seen;
use rayon::prelude::*;

/// What changes a kernel's rounding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    pub block_n: usize,
    /// P's type where it meets V.
    pub probability: Probability,
}

impl Model {
    /// Tiles of 16 keys, so that small problems have several, and P in 16 bits.
    pub fn of(dtype: Dtype) -> Self {
        Self {
            block_n: 16,
            probability: Probability::half(dtype),
        }
    }
}

type Packed = panels::Packed<f32, 8>;

#[derive(Clone)]
pub(crate) struct RowState {
    max: f32,
    sum: f32,
    accumulator: Vec<f32>,
    /// With the first key of their tile, for the tests of explain.
    #[cfg(test)]
    pub(crate) shown: Vec<(usize, Seen, Vec<f32>)>,
}

impl Model {
    /// Of dense row numbers `rows`, ascending, `head_dim` values each; with a fault, if it is inside of the kernel.
    pub fn output(&self, inputs: &Inputs, rows: &[usize], fault: Option<Fault>) -> Vec<f32> {
        let format = inputs.problem.dtype.output();
        self.finished(inputs, rows, fault, |state, _, output_scale| {
            let inverse = if state.sum == 0.0 {
                0.0
            } else {
                output_scale / state.sum
            };
            state.accumulator.into_iter().map(move |value| match fault {
                Some(Fault::OutputTruncated) => format.toward_zero((value * inverse).into()),
                Some(Fault::ThroughF16) => format.round(Format::F16.round(value * inverse)),
                _ => format.round(value * inverse),
            })
        })
    }

    pub(super) fn lse(&self, inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
        let rows = all_rows(inputs);
        self.finished(
            inputs,
            &rows,
            None,
            |RowState { max, sum, .. }, scale, _| {
                // `max` is of scores times `scale`, which has log2(e) in it.
                let lse = match fault {
                    Some(Fault::LseInBase2) => max + sum.log2(),
                    Some(Fault::LseUnscaled) => max / scale + sum.ln(),
                    Some(Fault::LseWithoutMaximum) => sum.ln(),
                    Some(Fault::LseOfEmptyRow) if sum == 0.0 => f32::MIN,
                    _ => (max + sum.log2()) * std::f32::consts::LN_2,
                };
                [lse]
            },
        )
    }

    /// `finish` takes the state of a row after all tiles, the factor of its scores and that of its output.
    pub(crate) fn finished<T: Send, Values: IntoIterator<Item = T>>(
        &self,
        inputs: &Inputs,
        rows: &[usize],
        fault: Option<Fault>,
        finish: impl Fn(RowState, f32, f32) -> Values + Sync + Send + Copy,
    ) -> Vec<T> {
        let shape = inputs.problem.shape;
        let (dim, group) = (shape.head_dim, shape.heads_q / shape.heads_kv);
        let (keys, values) = if fault == Some(Fault::SwappedKeysAndValues) {
            (&inputs.v, &inputs.k)
        } else {
            (&inputs.k, &inputs.v)
        };
        let [q, k, v] = [&inputs.q, keys, values].map(|operand| decode(operand, fault));
        let heads: Vec<usize> = (0..shape.batch * shape.heads_kv).collect();
        let packed: Vec<Packed> = pack_heads(&shape, &heads, &k, &v);
        panels::tiles(&shape, rows)
            .into_par_iter()
            .flat_map_iter(|rows| {
                let [b, h, _] = row_index(&inputs.problem, rows[0]);
                let kv_head = match fault {
                    Some(Fault::WrongKeyHead) => h % shape.heads_kv,
                    _ => h / group,
                };
                let scale_batch = if fault == Some(Fault::ScalesOfFirstBatch) {
                    0
                } else {
                    b
                };
                let scale = |operand: &Operand, head| operand.scale(scale_batch, head);
                // The factors of the scores and of the output; exp(x) = 2^(x log2 e), folded into the former.
                let score_scale = scale(&inputs.q, h)
                    * scale(keys, kv_head)
                    * inputs.problem.softmax_scale
                    * std::f32::consts::LOG2_E;
                let packed = &packed[b * shape.heads_kv + kv_head];
                let of_rows = rows.iter().map(|&row| &q[row * dim..(row + 1) * dim]);
                let q_tile = pack_rows(of_rows, dim);
                let states = self.tiles(inputs, rows, &q_tile, packed, score_scale, fault);
                let output_scale = scale(values, kv_head);
                states
                    .into_iter()
                    .flat_map(move |state| finish(state, score_scale, output_scale))
            })
            .collect()
    }

    fn tiles(
        &self,
        inputs: &Inputs,
        rows: &[usize],
        q_tile: &[[f32; TILE_ROWS]],
        (keys, values): &Packed,
        score_scale: f32,
        fault: Option<Fault>,
    ) -> Vec<RowState> {
        let shape = inputs.problem.shape;
        let dim = shape.head_dim;
        let format = inputs.problem.dtype.output();
        let sees = |row: usize| inputs.problem.visible_keys(row % shape.seq_q);
        let visible: Vec<usize> = rows
            .iter()
            .map(|&row| match (fault, sees(row)) {
                (Some(Fault::CausalOffByOne), keys) => (keys + 1).min(shape.seq_kv),
                (Some(Fault::EmptyRowAveraged), 0) => shape.seq_kv,
                (_, keys) => keys,
            })
            .collect();

        let max = if fault == Some(Fault::MaximumFromZero) {
            0.0
        } else {
            f32::NEG_INFINITY
        };
        let unseen = vec![
            RowState {
                max,
                sum: 0.0,
                accumulator: vec![0.0; dim],
                #[cfg(test)]
                shown: Vec::new(),
            };
            rows.len()
        ];
        let mut states = unseen.clone();
        let mut first_part = Vec::new();
        let tile_count = shape.seq_kv.div_ceil(self.block_n);
        for tile in 0..tile_count {
            if fault == Some(Fault::DroppedTile) && tile == tile_count / 2 {
                continue;
            }
            if fault == Some(Fault::UnweightedMerge) && tile == tile_count / 2 {
                first_part = std::mem::replace(&mut states, unseen.clone());
            }
            let start = tile * self.block_n;
            let end = (start + self.block_n).min(shape.seq_kv);
            let mut scores = vec![vec![f32::NEG_INFINITY; self.block_n]; rows.len()];
            keys.multiply(q_tile, 0..dim, start..end, |row, key, sum| {
                if row < rows.len() && key < visible[row] {
                    let flat = fault == Some(Fault::EmptyRowAveraged) && sees(rows[row]) == 0;
                    scores[row][key - start] = if flat { 0.0 } else { sum * score_scale };
                }
            });
            let mut before = None;
            for (row, scores) in scores.iter_mut().enumerate() {
                if fault == Some(Fault::UnmaskedPadding) && visible[row] == shape.seq_kv {
                    scores[end - start..].fill(0.0);
                }
                let state = &mut states[row];
                #[cfg(test)]
                state.shown.push((start, Seen::Score, scores.clone()));
                let mut max = scores.iter().copied().fold(state.max, f32::max);
                if let (Some(Fault::NeighbourState), Some(neighbour)) = (fault, before.replace(max))
                {
                    max = neighbour;
                }
                if max == f32::NEG_INFINITY {
                    scores.fill(0.0);
                    continue;
                }
                let rescale = (state.max - max).exp2();
                scores
                    .iter_mut()
                    .for_each(|score| *score = (*score - max).exp2());
                state.max = max;
                state.sum = state.sum * rescale + scores.iter().sum::<f32>();
                if fault == Some(Fault::SumInHalf) {
                    state.sum = format.round(state.sum);
                }
                #[cfg(test)]
                state.shown.extend([
                    (start, Seen::State, vec![max, state.sum]),
                    (start, Seen::Probability, scores.clone()),
                ]);
                if fault != Some(Fault::MissingRescale) {
                    state
                        .accumulator
                        .iter_mut()
                        .for_each(|value| *value *= rescale);
                }
                match fault {
                    Some(Fault::ProbabilityInE4m3) => Probability::E4m3.round(scores),
                    Some(Fault::ProbabilityTruncated) => {
                        scores
                            .iter_mut()
                            .for_each(|score| *score = format.toward_zero((*score).into()));
                    }
                    _ => self.probability.round(scores),
                }
            }
            // Columns of P past the end meet no V: the padding of V is zero.
            let v_start = if fault == Some(Fault::StaleTile) && tile > 0 {
                start - self.block_n
            } else {
                start
            };
            let p_tile = pack_rows(
                scores.iter().map(|scores| &scores[..end - start]),
                end - start,
            );
            values.multiply(
                &p_tile,
                v_start..v_start + end - start,
                0..dim,
                |row, column, sum| {
                    if row < rows.len() {
                        let value = &mut states[row].accumulator[column];
                        *value += sum;
                        if fault == Some(Fault::AccumulatorInHalf) {
                            *value = format.round(*value);
                        }
                        if fault == Some(Fault::AccumulatorCutOff) && format == Format::F16 {
                            const LOST_BITS: u32 = f32::MANTISSA_DIGITS - 1 - 13;
                            *value = f32::from_bits(value.to_bits() >> LOST_BITS << LOST_BITS);
                        }
                    }
                },
            );
            #[cfg(test)]
            for state in &mut states {
                let output = state.accumulator.clone();
                state.shown.push((start, Seen::Output, output));
            }
        }
        for (state, part) in states.iter_mut().zip(first_part) {
            state.sum += part.sum;
            let values = state.accumulator.iter_mut().zip(part.accumulator);
            values.for_each(|(value, other)| *value += other);
        }
        states
    }
}

pub(super) fn all_rows(inputs: &Inputs) -> Vec<usize> {
    let [batch, heads, rows, _] = inputs.q.extents;
    (0..batch * heads * rows).collect()
}

/// Without scale, or as a decoder with other levels reads them.
fn decode(operand: &Operand, fault: Option<Fault>) -> Vec<f32> {
    let mut codes = operand.codes();
    if fault == Some(Fault::ThroughF16) {
        Format::F16.round_all(&mut codes);
    }
    if fault == Some(Fault::CodecMismatch) && operand.dtype == Dtype::E4m3 {
        // Encoded as (x + 1) * 127.5, decoded as (u - 128) / 127, x in units of the largest value (P4).
        for code in &mut codes {
            let x = *code / E4m3::MAX;
            *code = ((x + 1.0) * 127.5 - 128.0) / 127.0 * E4m3::MAX;
        }
    }
    codes
}
