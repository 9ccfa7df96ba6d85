//! The inner product of reference and model: a small register tile over panels that the compiler
//! vectorises.

use crate::problem::Shape;
use rayon::prelude::*;
use std::ops::{AddAssign, Mul};

/// The number of rows that are multiplied at a time.
pub(crate) const TILE_ROWS: usize = 4;

pub(crate) trait Real:
    Copy + Default + Send + Sync + AddAssign + Mul<Output = Self> + Into<f64>
{
}
impl Real for f32 {}
impl Real for f64 {}

/// A matrix `[depth, columns]` in panels of `N` columns, the last one padded with zeros.
pub(crate) struct Panels<T, const N: usize> {
    data: Vec<[T; N]>,
    depth: usize,
    columns: usize,
}

impl<T: Real, const N: usize> Panels<T, N> {
    /// Packs `matrix[depth, columns]`, row-major: V, over keys.
    pub fn new(matrix: &[T], columns: usize) -> Self {
        let depth = matrix.len() / columns;
        Self::pack(depth, columns, |k, column| matrix[k * columns + column])
    }

    /// Packs `matrix[columns, depth]`: K, over the head's dimension.
    pub fn transposed(matrix: &[T], depth: usize) -> Self {
        Self::pack(depth, matrix.len() / depth, |k, column| {
            matrix[column * depth + k]
        })
    }

    fn pack(depth: usize, columns: usize, at: impl Fn(usize, usize) -> T) -> Self {
        let mut data = vec![[T::default(); N]; columns.div_ceil(N) * depth];
        for column in 0..columns {
            for k in 0..depth {
                data[column / N * depth + k][column % N] = at(k, column);
            }
        }
        Self {
            data,
            depth,
            columns,
        }
    }

    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Computes `out[row][column] = sum over k in depths of a[k - depths.start][row] *
    /// self[k][column]`, k in order, in T, for the panels that cover `columns`; `emit` receives
    /// row, column and sum.
    pub fn multiply(
        &self,
        a: &[[T; TILE_ROWS]],
        depths: std::ops::Range<usize>,
        columns: std::ops::Range<usize>,
        mut emit: impl FnMut(usize, usize, T),
    ) {
        debug_assert!(
            depths.len() == a.len() && depths.end <= self.depth && columns.end <= self.columns
        );
        if columns.is_empty() {
            return;
        }
        for panel in columns.start / N..columns.end.div_ceil(N) {
            let packed = &self.data[panel * self.depth..][depths.clone()];
            let mut sums = [[T::default(); N]; TILE_ROWS];
            for (left, right) in a.iter().zip(packed) {
                for row in 0..TILE_ROWS {
                    for column in 0..N {
                        sums[row][column] += left[row] * right[column];
                    }
                }
            }
            for (row, sums_of_row) in sums.iter().enumerate() {
                for (column, &sum) in (panel * N..).zip(sums_of_row) {
                    if columns.contains(&column) {
                        emit(row, column, sum);
                    }
                }
            }
        }
    }
}

/// K and V of one head.
pub(crate) struct PackedHead<T, const N: usize> {
    pub keys: Panels<T, N>,
    pub values: Panels<T, N>,
}

/// Packs these of the heads of K and V.
pub(crate) fn pack_heads<T: Real, const N: usize>(
    shape: &Shape,
    heads: &[usize],
    k: &[T],
    v: &[T],
) -> Vec<PackedHead<T, N>> {
    let dim = shape.head_dim;
    let len = shape.seq_kv * dim;
    heads
        .par_iter()
        .map(|head| {
            let elements = head * len..(head + 1) * len;
            PackedHead {
                keys: Panels::transposed(&k[elements.clone()], dim),
                values: Panels::new(&v[elements], dim),
            }
        })
        .collect()
}

/// Groups dense row numbers, ascending, in tiles of one head.
pub(crate) fn tiles<'a>(shape: &Shape, rows: &'a [usize]) -> Vec<&'a [usize]> {
    rows.chunk_by(|a, b| a / shape.seq_q == b / shape.seq_q)
        .flat_map(|of_head| of_head.chunks(TILE_ROWS))
        .collect()
}

/// Packs up to `TILE_ROWS` rows of `[rows, depth]` for [`Panels::multiply`]; missing rows are zero.
pub(crate) fn pack_rows<'a, T: Real + 'a>(
    rows: impl Iterator<Item = &'a [T]>,
    depth: usize,
) -> Vec<[T; TILE_ROWS]> {
    let mut packed = vec![[T::default(); TILE_ROWS]; depth];
    for (r, row) in rows.take(TILE_ROWS).enumerate() {
        for (slot, &value) in packed.iter_mut().zip(row) {
            slot[r] = value;
        }
    }
    packed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_are_those_of_the_definition() {
        let (depth, columns) = (7, 11);
        let matrix: Vec<f64> = (0..depth * columns)
            .map(|i| (i * i % 31) as f64 - 9.0)
            .collect();
        let transpose: Vec<f64> = (0..depth * columns)
            .map(|i| matrix[i % depth * columns + i / depth])
            .collect();
        let rows: Vec<f64> = (0..3 * depth).map(|i| (i % 5) as f64 + 0.5).collect();
        let packed = pack_rows(rows.chunks(depth), depth);
        for panels in [
            Panels::<f64, 4>::new(&matrix, columns),
            Panels::transposed(&transpose, depth),
        ] {
            let mut seen = 0;
            panels.multiply(&packed[1..6], 1..6, 2..10, |row, column, sum| {
                let mut expected = 0.0;
                if row < 3 {
                    for k in 1..6 {
                        expected += rows[row * depth + k] * matrix[k * columns + column];
                    }
                }
                assert_eq!(sum, expected, "{row} {column}");
                seen += 1;
            });
            assert_eq!(seen, TILE_ROWS * 8);
        }
    }
}
