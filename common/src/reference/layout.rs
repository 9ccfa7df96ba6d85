//! What the kernel of `attend.cu` reads: dense arrays, and a table of tiles of rows.

use super::panels::{TILE_ROWS, tiles};
use super::{E4M3_PROBABILITY_SCALE, Probability, key_head, row_index};
use crate::problem::Problem;
use rayon::prelude::*;
use std::ffi::c_void;

/// Threads of a block.
pub const THREADS: usize = 128;

/// Up to four rows of one head; a block takes one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// In the list of rows.
    pub first_row: i32,
    pub rows: i32,
    /// Of K and V.
    pub head: i32,
    /// Keys that some row sees.
    pub most: i32,
    /// Keys that each row sees; none of a row that is not there.
    pub visible: [i32; TILE_ROWS],
    /// Factors of the scores and of the output.
    pub score_scale: f64,
    pub output_scale: f64,
}

/// How P is rounded.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// A factor of P while it is rounded.
    pub scale: f32,
    /// Of the significand, behind the first; 0: not rounded.
    pub bits: i32,
    /// Of a normal number.
    pub least_exponent: i32,
    /// Whether the division by the sum comes afterwards.
    pub is_first: i32,
}

impl From<Probability> for Rounding {
    fn from(p: Probability) -> Self {
        let (scale, bits, least_exponent) = match p {
            Probability::F32 => (1.0, 0, 0),
            Probability::F16 => (1.0, 10, -14),
            Probability::Bf16 => (1.0, 7, -126),
            Probability::E4m3 => (E4M3_PROBABILITY_SCALE, 3, -6),
        };
        Self {
            scale,
            bits,
            least_exponent,
            is_first: (p == Probability::E4m3).into(),
        }
    }
}

/// Addresses where the kernel runs, and extents.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// `[rows, head_dim]`.
    pub q: *const c_void,
    /// `[heads, head_dim, seq_kv]`.
    pub keys: *const c_void,
    /// `[heads, seq_kv, head_dim]`.
    pub values: *const c_void,
    /// Of the first block.
    pub tiles: *const Tile,
    /// [`Layout::weights_of_tile`] for each block.
    pub weights: *mut c_void,
    /// `[rows, head_dim]`.
    pub out: *mut c_void,
    /// `[rows]`.
    pub lse: *mut f64,
    pub seq_kv: i32,
    pub head_dim: i32,
    pub rounding: Rounding,
}

/// The arrays of one call, in the arithmetic of T.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout<'a, T> {
    /// Of the rows alone.
    pub q: Vec<T>,
    /// K with a line for each element of a head, so that neighbouring threads read neighbouring keys.
    pub keys: Vec<T>,
    pub values: &'a [T],
    pub tiles: Vec<Tile>,
    pub rounding: Rounding,
    pub seq_kv: usize,
    pub head_dim: usize,
}

impl<'a, T: Copy + Default + Send + Sync> Layout<'a, T> {
    /// Lays out `rows`, ascending, of Q, K and V. `scales(b, h)`: the factors of the scores and of the output.
    pub fn new(
        problem: &Problem,
        rows: &[usize],
        [q, k, values]: [&'a [T]; 3],
        rounding: Rounding,
        scales: impl Fn(usize, usize) -> [f64; 2],
    ) -> Self {
        let shape = &problem.shape;
        let dim = shape.head_dim;
        let mut first_row = 0;
        let tile = |rows: &[usize]| {
            let [b, h, _] = row_index(problem, rows[0]);
            let [score_scale, output_scale] = scales(b, h);
            let mut visible = [0; TILE_ROWS];
            for (visible, &row) in visible.iter_mut().zip(rows) {
                *visible = problem.visible_keys(row % shape.seq_q) as i32;
            }
            let tile = Tile {
                first_row,
                rows: rows.len() as i32,
                head: key_head(problem, rows[0]) as i32,
                // Rows ascend, and so does what they see.
                most: visible[rows.len() - 1],
                visible,
                score_scale,
                output_scale,
            };
            first_row += tile.rows;
            tile
        };
        Self {
            q: rows
                .iter()
                .flat_map(|&row| &q[row * dim..(row + 1) * dim])
                .copied()
                .collect(),
            keys: columns(k, shape.seq_kv, dim),
            values,
            tiles: tiles(shape, rows).into_iter().map(tile).collect(),
            rounding,
            seq_kv: shape.seq_kv,
            head_dim: dim,
        }
    }
}

impl<T> Layout<'_, T> {
    pub fn rows(&self) -> usize {
        self.q.len() / self.head_dim
    }

    /// How many T a block keeps its weights in.
    pub fn weights_of_tile(&self) -> usize {
        TILE_ROWS * (self.seq_kv + THREADS)
    }
}

/// Transposes each head of K.
fn columns<T: Copy + Default + Send + Sync>(k: &[T], seq_kv: usize, dim: usize) -> Vec<T> {
    let mut columns = vec![T::default(); k.len()];
    columns
        .par_chunks_mut(seq_kv)
        .enumerate()
        .for_each(|(line, column)| {
            let (head, element) = (line / dim, line % dim);
            let of_head = &k[head * seq_kv * dim..][..seq_kv * dim];
            for (value, row) in column.iter_mut().zip(of_head.chunks_exact(dim)) {
                *value = row[element];
            }
        });
    columns
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Dtype, Mask, Shape};

    #[test]
    fn tiles_are_rows_of_one_head_with_its_key_head_and_what_each_row_sees() {
        let shape = Shape {
            batch: 2,
            heads_q: 4,
            heads_kv: 2,
            seq_q: 6,
            seq_kv: 5,
            head_dim: 64,
        };
        let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
        let [q, kv] = [2 * 4 * 6, 2 * 2 * 5]
            .map(|rows| -> Vec<f64> { (0..rows * 64).map(f64::from).collect() });
        // Rows 0 to 5 of head 0, then rows 1 and 5 of head 3 of the second batch.
        let rows: Vec<usize> = (0..6).chain([7 * 6 + 1, 7 * 6 + 5]).collect();
        let rounding = Rounding::from(Probability::F32);
        let layout = Layout::new(&problem, &rows, [&q, &kv, &kv], rounding, |b, h| {
            [b as f64, h as f64]
        });
        let tile = |first_row, rows, head, visible: [i32; 4], scales: [f64; 2]| Tile {
            first_row,
            rows,
            head,
            most: visible[rows as usize - 1],
            visible,
            score_scale: scales[0],
            output_scale: scales[1],
        };
        let expected = [
            tile(0, 4, 0, [0, 1, 2, 3], [0.0, 0.0]),
            tile(4, 2, 0, [4, 5, 0, 0], [0.0, 0.0]),
            tile(6, 2, 3, [1, 5, 0, 0], [1.0, 3.0]),
        ];
        assert_eq!(layout.tiles, expected);
        assert_eq!(layout.rows(), 8);
        assert_eq!(layout.q[6 * 64], ((7 * 6 + 1) * 64) as f64);
        // Key 4 of element 1 of the last head.
        assert_eq!(
            layout.keys[(3 * 64 + 1) * 5 + 4],
            ((3 * 5 + 4) * 64 + 1) as f64
        );
    }
}
