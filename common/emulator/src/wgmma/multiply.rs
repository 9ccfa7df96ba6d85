//! Products of elements are exact in FP32. Of f16 and bf16 each element of D adds them in ascending
//! k, every sum rounded to FP32: tensor cores add in another order and with another internal width,
//! so D agrees with a GPU's only within that. Of e4m3 the sum is what Hopper's tensor cores make of
//! it, bit by bit.

use super::operand::{CHUNK, Descriptor, Element, Form, ROWS, bfloat, e4m3, elements, half};
use super::shape::Shape;

/// The registers of A of each thread of a warpgroup.
pub(crate) type Fragment = [[u32; 4]; 128];

const WIDTH: usize = 8;

/// The operands of a product as numbers.
#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// `[64][K]`
    a: Vec<f32>,
    /// `[K][N]`
    b: Vec<f32>,
}

impl Slabs {
    pub(crate) fn take_a(&mut self, element: Element, shared: &[u8], a: Descriptor) {
        self.a.clear();
        for at in a.chunks(Form::AlongK { rows: ROWS }) {
            let chunk = &shared[at..at + CHUNK];
            elements(element, chunk, |_, value| self.a.push(value));
        }
    }

    /// Takes A from registers: thread t of the warpgroup, in warp w with lane l, holds rows
    /// 16 w + l / 4 and the eighth after it.
    pub(crate) fn take_fragment(&mut self, element: Element, fragment: &Fragment) {
        let depth = element.depth();
        self.a.clear();
        self.a.resize(ROWS * depth, 0.0);
        let per_register = depth / 8;
        for (thread, registers) in fragment.iter().enumerate() {
            let (warp, lane) = (thread / 32, thread % 32);
            for (index, register) in registers.iter().enumerate() {
                let row = 16 * warp + lane / 4 + index % 2 * 8;
                let column = lane % 4 * per_register + index / 2 * (depth / 2);
                let first = row * depth + column;
                for part in 0..per_register {
                    self.a[first + part] = match element {
                        Element::F16 => half((register >> (16 * part)) as u16),
                        Element::Bf16 => bfloat((register >> (16 * part)) as u16),
                        Element::E4m3 => e4m3((register >> (8 * part)) as u8),
                    };
                }
            }
        }
    }

    pub(super) fn take_b(&mut self, shape: &Shape, shared: &[u8]) {
        let (element, columns) = (shape.element, shape.columns);
        self.b.clear();
        if shape.along_n {
            for at in shape.b.chunks(Form::AlongN { columns }) {
                let chunk = &shared[at..at + CHUNK];
                elements(element, chunk, |_, value| self.b.push(value));
            }
            return;
        }
        let depth = element.depth();
        self.b.resize(depth * columns, 0.0);
        let per_chunk = CHUNK * depth / 32;
        let chunks = shape.b.chunks(Form::AlongK { rows: columns });
        for (number, at) in chunks.enumerate() {
            let (column, first) = (number / 2, number % 2 * per_chunk);
            let b = &mut self.b;
            elements(element, &shared[at..at + CHUNK], |index, value| {
                b[(first + index) * columns + column] = value;
            });
        }
    }

    pub(super) fn multiply(&self, shape: &Shape, d: &mut [f32]) {
        let (depth, columns) = (shape.element.depth(), shape.columns);
        let rows = self.a.chunks_exact(depth);
        for (a_row, d_row) in rows.zip(d.chunks_exact_mut(columns)) {
            let firsts = (0..columns).step_by(WIDTH);
            for (first, d_part) in firsts.zip(d_row.chunks_exact_mut(WIDTH)) {
                let mut sums = [0.0; WIDTH];
                if shape.accumulate {
                    sums.copy_from_slice(d_part);
                }
                let b_rows = self.b.chunks_exact(columns);
                let b_parts = b_rows.map(|b_row| part_of_row(b_row, first));
                match shape.element {
                    Element::F16 | Element::Bf16 => add_rounded(&mut sums, a_row, b_parts),
                    Element::E4m3 => add_aligned(&mut sums, a_row, b_parts),
                }
                d_part.copy_from_slice(&sums);
            }
        }
    }
}

#[inline]
fn part_of_row(row: &[f32], first: usize) -> &[f32; WIDTH] {
    row[first..first + WIDTH]
        .try_into()
        .expect("columns are a multiple of 8")
}

/// Adds products in ascending k, every sum rounded to FP32.
fn add_rounded<'b>(
    sums: &mut [f32; WIDTH],
    row: &[f32],
    columns: impl Iterator<Item = &'b [f32; WIDTH]>,
) {
    for (&left, right) in row.iter().zip(columns) {
        for (sum, value) in sums.iter_mut().zip(right) {
            *sum += left * value;
        }
    }
}

/// Adds products in fixed point: each addend is cut off [`FRACTION`] bits below the exponent of the
/// largest, that of a product being the sum of its factors' exponents, and so is the sum below its
/// own.
fn add_aligned<'b>(
    sums: &mut [f32; WIDTH],
    row: &[f32],
    columns: impl Iterator<Item = &'b [f32; WIDTH]> + Clone,
) {
    // Addends as whole numbers: 33 of less than 2^(FRACTION + 2).
    let largest = largest_exponents(sums, row, columns.clone());
    let scale = largest.map(|most| power_of_two(FRACTION - most.max(LEAST)));
    let mut whole = [0i32; WIDTH];
    for (i, sum) in sums.iter().enumerate() {
        whole[i] = (sum * scale[i]) as i32;
    }
    let mut is_finite = sums.map(f32::is_finite);
    for (&left, right) in row.iter().zip(columns) {
        for (i, value) in right.iter().enumerate() {
            let product = left * value;
            whole[i] += (product * scale[i]) as i32;
            is_finite[i] &= product.is_finite();
        }
    }
    let dropped_bits = f32::MANTISSA_DIGITS as i32 - 1 - FRACTION;
    let kept_bits = u32::MAX << dropped_bits;
    for (i, sum) in sums.iter_mut().enumerate() {
        *sum = f32::NAN;
        if is_finite[i] {
            let exact = whole[i] as f32 / scale[i];
            *sum = f32::from_bits(exact.to_bits() & kept_bits);
        }
    }
}

/// Returns the exponent of the largest addend of each sum.
fn largest_exponents<'b>(
    sums: &[f32; WIDTH],
    row: &[f32],
    columns: impl Iterator<Item = &'b [f32; WIDTH]>,
) -> [i32; WIDTH] {
    let mut largest = sums.map(exponent);
    for (&left, right) in row.iter().zip(columns) {
        let left_exponent = code_exponent(left);
        for (most, &value) in largest.iter_mut().zip(right) {
            *most = (left_exponent + code_exponent(value)).max(*most);
        }
    }
    largest
}

/// The bits of a sum of e4m3 products behind the first that Hopper's tensor cores keep
/// (`common/docs/fp8-accumulation.md`).
const FRACTION: i32 = 13;
/// An exponent below that of every product of codes, and above that of 0.
const LEAST: i32 = -100;

/// Returns the exponent of a number: -127 for 0 and subnormals.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32 - 127
}

/// Returns the exponent of an e4m3 value as its code has it: subnormals have that of the smallest
/// normal. 0 is far below all others.
fn code_exponent(value: f32) -> i32 {
    if value == 0.0 {
        2 * LEAST
    } else {
        exponent(value).max(-6)
    }
}

/// Returns 2^`exponent`, for -126 to 127.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[cfg(test)]
mod tests;
