//! The arrays that the kernel of `attend.cu` reads: dense ones, and a table of tiles of rows.

use super::panels::{TILE_ROWS, tiles};
use super::{E4M3_PROBABILITY_SCALE, Probability, key_head, row_index};
use crate::problem::{Problem, Shape};
use rayon::prelude::*;
use std::ffi::c_void;

/// The number of threads of a block.
pub const THREADS: usize = 128;

/// Up to four rows of one head; a block takes one.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tile {
    /// The index of the first row in the list of rows.
    pub first_row: i32,
    pub rows: i32,
    /// The head of K and V.
    pub head: i32,
    /// The number of keys that some row sees.
    pub most: i32,
    /// The number of keys that each row sees; 0 for a row that is not there.
    pub visible: [i32; TILE_ROWS],
    /// The factor of the scores.
    pub score_scale: f64,
    /// The factor of the output.
    pub output_scale: f64,
}

/// The rounding of P.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rounding {
    /// The factor of P while it is rounded.
    pub scale: f32,
    /// The bits of the significand behind the first; 0 where P is not rounded.
    pub bits: i32,
    /// The least exponent of a normal number.
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

/// The kernel's parameters: addresses where it runs, and extents.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Params {
    /// `[rows, head_dim]`.
    pub q: *const c_void,
    /// `[heads, head_dim, seq_kv]`.
    pub keys: *const c_void,
    /// `[heads, seq_kv, head_dim]`.
    pub values: *const c_void,
    /// The tile of the first block.
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
    /// The listed rows of Q.
    pub q: Vec<T>,
    /// K with a line for each element of a head, so that neighbouring threads read neighbouring
    /// keys.
    pub keys: Vec<T>,
    pub values: &'a [T],
    pub tiles: Vec<Tile>,
    pub rounding: Rounding,
    pub seq_kv: usize,
    pub head_dim: usize,
}

impl<'a, T: Copy + Default + Send + Sync> Layout<'a, T> {
    /// Lays out `rows`, ascending, of Q, K and V. `scales(b, h)` returns the factors of the scores
    /// and of the output.
    pub fn new(
        problem: &Problem,
        rows: &[usize],
        [q, k, values]: [&'a [T]; 3],
        rounding: Rounding,
        scales: impl Fn(usize, usize) -> [f64; 2],
    ) -> Self {
        let Shape {
            seq_kv, head_dim, ..
        } = problem.shape;
        let mut tile_table: Vec<Tile> = Vec::new();
        let mut first_row = 0;
        for tile_rows in tiles(&problem.shape, rows) {
            let [b, h, _] = row_index(problem, tile_rows[0]);
            let tile = Tile::new(problem, tile_rows, first_row, scales(b, h));
            first_row += tile.rows;
            tile_table.push(tile);
        }
        let mut q_rows = Vec::with_capacity(rows.len() * head_dim);
        for row in rows {
            q_rows.extend_from_slice(&q[row * head_dim..(row + 1) * head_dim]);
        }
        Self {
            q: q_rows,
            keys: transpose_heads(k, seq_kv, head_dim),
            values,
            tiles: tile_table,
            rounding,
            seq_kv,
            head_dim,
        }
    }
}

impl Tile {
    fn new(
        problem: &Problem,
        rows: &[usize],
        first_row: i32,
        [score_scale, output_scale]: [f64; 2],
    ) -> Self {
        let mut visible = [0; TILE_ROWS];
        for (keys, row) in visible.iter_mut().zip(rows) {
            *keys = problem.visible_keys(row % problem.shape.seq_q) as i32;
        }
        Self {
            first_row,
            rows: rows.len() as i32,
            head: key_head(problem, rows[0]) as i32,
            // Rows ascend, and so does what they see.
            most: visible[rows.len() - 1],
            visible,
            score_scale,
            output_scale,
        }
    }
}

impl<T> Layout<'_, T> {
    pub fn rows(&self) -> usize {
        self.q.len() / self.head_dim
    }

    /// Returns how many T a block keeps its weights in.
    pub fn weights_of_tile(&self) -> usize {
        TILE_ROWS * (self.seq_kv + THREADS)
    }
}

/// Transposes each head of K.
fn transpose_heads<T: Copy + Default + Send + Sync>(k: &[T], seq_kv: usize, dim: usize) -> Vec<T> {
    let mut lines = vec![T::default(); k.len()];
    lines
        .par_chunks_mut(seq_kv)
        .enumerate()
        .for_each(|(index, line)| {
            let (head, element) = (index / dim, index % dim);
            let head_rows = k[head * seq_kv * dim..][..seq_kv * dim].chunks_exact(dim);
            for (value, row) in line.iter_mut().zip(head_rows) {
                *value = row[element];
            }
        });
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::{Dtype, Mask};
    use crate::serving::Serving;

    #[test]
    fn tiles_are_rows_of_one_head_with_its_key_head_and_what_each_row_sees() {
        let shape = Shape {
            batch: 2,
            heads_q: 4,
            heads_kv: 2,
            seq_q: 6,
            seq_kv: 5,
            head_dim: 64,
            serving: Serving::DENSE,
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
        let tile = |first_row, count, head, visible: [i32; 4], scales: [f64; 2]| Tile {
            first_row,
            rows: count,
            head,
            most: visible[count as usize - 1],
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
