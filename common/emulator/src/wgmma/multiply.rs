//! The arithmetic of one product. Products of elements are exact in FP32; each element of D adds them in ascending k,
//! every sum rounded to FP32. Tensor cores add in another order and with another internal width (less than FP32 for
//! e4m3), so D agrees with a GPU's only within that.

use super::operand::{CHUNK, Descriptor, Element, Form, ROWS, e4m3, elements, half};

/// A warpgroup's fragment of A: of each thread four registers.
pub(crate) type Fragment = [[u32; 4]; 128];

/// Columns of D that are summed up together.
const WIDTH: usize = 8;

/// Both operands as numbers, kept for their memory.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// [64][K]
    a: Vec<f32>,
    /// [K][N]
    b: Vec<f32>,
}

impl Slabs {
    /// A along K in shared memory.
    pub(crate) fn take_a(&mut self, element: Element, shared: &[u8], a: Descriptor) {
        self.a.clear();
        for at in a.chunks(Form::AlongK { rows: ROWS }) {
            elements(element, &shared[at..at + CHUNK], |_, value| self.a.push(value));
        }
    }

    /// A in registers: thread t of the warpgroup, in warp w with lane l, holds rows 16 w + l / 4 and the eighth after it.
    pub(crate) fn take_fragment(&mut self, element: Element, fragment: &Fragment) {
        let depth = element.depth();
        self.a.clear();
        self.a.resize(ROWS * depth, 0.0);
        let each = depth / 8;
        for (thread, registers) in fragment.iter().enumerate() {
            let (warp, lane) = (thread / 32, thread % 32);
            for (index, register) in registers.iter().enumerate() {
                let row = 16 * warp + lane / 4 + index % 2 * 8;
                let first = row * depth + lane % 4 * each + index / 2 * (depth / 2);
                for part in 0..each {
                    self.a[first + part] = match element {
                        Element::F16 => half((register >> (16 * part)) as u16),
                        Element::E4m3 => e4m3((register >> (8 * part)) as u8),
                    };
                }
            }
        }
    }

    /// B in shared memory, of `columns` columns.
    pub(crate) fn take_b(&mut self, element: Element, shared: &[u8], b: Descriptor, columns: usize, along_n: bool) {
        let depth = element.depth();
        self.b.clear();
        if along_n {
            for at in b.chunks(Form::AlongN { columns }) {
                elements(element, &shared[at..at + CHUNK], |_, value| self.b.push(value));
            }
            return;
        }
        self.b.resize(depth * columns, 0.0);
        let each = CHUNK * depth / 32;
        for (chunk, at) in b.chunks(Form::AlongK { rows: columns }).enumerate() {
            let (column, first) = (chunk / 2, chunk % 2 * each);
            let line = &mut self.b;
            elements(element, &shared[at..at + CHUNK], |index, value| line[(first + index) * columns + column] = value);
        }
    }

    /// D = A * B, or D + A * B.
    pub(crate) fn multiply(&self, d: &mut [f32], columns: usize, accumulate: bool) {
        let depth = self.a.len() / ROWS;
        for (row, d) in self.a.chunks_exact(depth).zip(d.chunks_exact_mut(columns)) {
            for (first, d) in (0..columns).step_by(WIDTH).zip(d.chunks_exact_mut(WIDTH)) {
                let mut sums = [0.0; WIDTH];
                if accumulate {
                    sums.copy_from_slice(d);
                }
                for (&left, b) in row.iter().zip(self.b.chunks_exact(columns)) {
                    let b: &[f32; WIDTH] = b[first..first + WIDTH].try_into().expect("columns are a multiple of 8");
                    sums.iter_mut().zip(b).for_each(|(sum, right)| *sum += left * right);
                }
                d.copy_from_slice(&sums);
            }
        }
    }
}
