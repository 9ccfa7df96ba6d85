//! Products of elements are exact in FP32. Of f16 and bf16 each element of D adds them in ascending k, every sum rounded to
//! FP32: tensor cores add in another order and with another internal width, so D agrees with a GPU's only within that. Of
//! e4m3 the sum is what Hopper's tensor cores make of it, bit by bit.

use super::operand::{CHUNK, Descriptor, Element, Form, ROWS, bfloat, e4m3, elements, half};

pub(crate) type Fragment = [[u32; 4]; 128];

const WIDTH: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Slabs {
    /// [64][K]
    a: Vec<f32>,
    /// [K][N]
    b: Vec<f32>,
}

impl Slabs {
    pub(crate) fn take_a(&mut self, element: Element, shared: &[u8], a: Descriptor) {
        self.a.clear();
        for at in a.chunks(Form::AlongK { rows: ROWS }) {
            elements(element, &shared[at..at + CHUNK], |_, value| {
                self.a.push(value)
            });
        }
    }

    /// Thread t of the warpgroup, in warp w with lane l, holds rows 16 w + l / 4 and the eighth after it.
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
                        Element::Bf16 => bfloat((register >> (16 * part)) as u16),
                        Element::E4m3 => e4m3((register >> (8 * part)) as u8),
                    };
                }
            }
        }
    }

    pub(crate) fn take_b(
        &mut self,
        element: Element,
        shared: &[u8],
        b: Descriptor,
        columns: usize,
        along_n: bool,
    ) {
        let depth = element.depth();
        self.b.clear();
        if along_n {
            for at in b.chunks(Form::AlongN { columns }) {
                elements(element, &shared[at..at + CHUNK], |_, value| {
                    self.b.push(value)
                });
            }
            return;
        }
        self.b.resize(depth * columns, 0.0);
        let each = CHUNK * depth / 32;
        for (chunk, at) in b.chunks(Form::AlongK { rows: columns }).enumerate() {
            let (column, first) = (chunk / 2, chunk % 2 * each);
            let line = &mut self.b;
            elements(element, &shared[at..at + CHUNK], |index, value| {
                line[(first + index) * columns + column] = value
            });
        }
    }

    pub(crate) fn multiply(
        &self,
        element: Element,
        d: &mut [f32],
        columns: usize,
        accumulate: bool,
    ) {
        let depth = element.depth();
        for (row, d) in self.a.chunks_exact(depth).zip(d.chunks_exact_mut(columns)) {
            for (first, d) in (0..columns).step_by(WIDTH).zip(d.chunks_exact_mut(WIDTH)) {
                let mut sums = [0.0; WIDTH];
                if accumulate {
                    sums.copy_from_slice(d);
                }
                let b = self.b.chunks_exact(columns).map(|b| {
                    let b: &[f32; WIDTH] = b[first..first + WIDTH]
                        .try_into()
                        .expect("columns are a multiple of 8");
                    b
                });
                match element {
                    Element::F16 | Element::Bf16 => add_rounded(&mut sums, row, b),
                    Element::E4m3 => add_aligned(&mut sums, row, b),
                }
                d.copy_from_slice(&sums);
            }
        }
    }
}

/// In ascending k, every sum rounded to FP32.
fn add_rounded<'b>(
    sums: &mut [f32; WIDTH],
    row: &[f32],
    b: impl Iterator<Item = &'b [f32; WIDTH]>,
) {
    for (&left, b) in row.iter().zip(b) {
        sums.iter_mut()
            .zip(b)
            .for_each(|(sum, right)| *sum += left * right);
    }
}

/// In fixed point: each addend is cut off [`FRACTION`] bits below the exponent of the largest, that of a product being the
/// sum of its factors' exponents, and so is the sum below its own.
fn add_aligned<'b>(
    sums: &mut [f32; WIDTH],
    row: &[f32],
    b: impl Iterator<Item = &'b [f32; WIDTH]> + Clone,
) {
    let mut largest = sums.map(exponent);
    for (&left, b) in row.iter().zip(b.clone()) {
        let left = code_exponent(left);
        largest
            .iter_mut()
            .zip(b)
            .for_each(|(most, &right)| *most = (left + code_exponent(right)).max(*most));
    }
    // Addends as whole numbers: 33 of less than 2^(FRACTION + 2).
    let scale = largest.map(|most| power_of_two(FRACTION - most.max(LEAST)));
    let mut whole: [i32; WIDTH] = std::array::from_fn(|i| (sums[i] * scale[i]) as i32);
    let mut is_finite = sums.map(f32::is_finite);
    for (&left, b) in row.iter().zip(b) {
        for (i, right) in b.iter().enumerate() {
            let product = left * right;
            whole[i] += (product * scale[i]) as i32;
            is_finite[i] &= product.is_finite();
        }
    }
    for (i, sum) in sums.iter_mut().enumerate() {
        let exact = whole[i] as f32 / scale[i];
        let cut = f32::from_bits(
            exact.to_bits() & !((1 << (f32::MANTISSA_DIGITS as i32 - 1 - FRACTION)) - 1),
        );
        *sum = if is_finite[i] { cut } else { f32::NAN };
    }
}

/// Bits of a sum of e4m3 products behind the first: what Hopper's tensor cores keep (`common/docs/fp8-accumulation.md`).
const FRACTION: i32 = 13;
/// Below the exponent of every product of codes, and above that of 0.
const LEAST: i32 = -100;

/// -127 for 0 and subnormals.
fn exponent(value: f32) -> i32 {
    (value.to_bits() >> 23 & 0xff) as i32 - 127
}

/// Of an e4m3 value, as its code has it: subnormals have that of the smallest normal. 0 is far below all others.
fn code_exponent(value: f32) -> i32 {
    if value == 0.0 {
        2 * LEAST
    } else {
        exponent(value).max(-6)
    }
}

/// 2^`exponent`, of -126 to 127.
fn power_of_two(exponent: i32) -> f32 {
    f32::from_bits(((exponent + 127) as u32) << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row of A against one column of B, on top of `sum`.
    fn dot(sum: f32, a: &[f32], b: &[f32]) -> f32 {
        let (mut row, mut columns, mut sums) = ([0.0; 32], [[0.0; WIDTH]; 32], [0.0; WIDTH]);
        row[..a.len()].copy_from_slice(a);
        columns
            .iter_mut()
            .zip(b)
            .for_each(|(column, &value)| column[3] = value);
        sums[3] = sum;
        add_aligned(&mut sums, &row, columns.iter());
        sums[3]
    }

    #[test]
    fn sums_of_codes_lose_what_lies_13_bits_below_the_largest() {
        assert_eq!(dot(0.0, &[], &[]), 0.0);
        assert_eq!(dot(5.0, &[3.0, -2.0], &[7.0, 4.0]), 18.0);
        // 2^16, and ones: each is an eighth of the last place, and cut off on its own.
        let ones = [[256.0].as_slice(), &[1.0; 31]].concat();
        assert_eq!(dot(0.0, &ones, &ones), 65536.0);
        assert_eq!(dot(65536.0, &[1.0; 32], &[1.0; 32]), 65536.0);
        assert_eq!(dot(-65536.0, &[1.0; 32], &[1.0; 32]), -65536.0);
        // The exponent of 1.5 * 1.5 is 0 here, and 1 of what it adds up to.
        assert_eq!(dot(0.0, &[1.5, 2f32.powi(-6)], &[1.5, 2f32.powi(-7)]), 2.25);
        assert_eq!(
            dot(0.0, &[1.0, 2f32.powi(-6)], &[1.0, 2f32.powi(-7)]),
            1.0 + 2f32.powi(-13)
        );
        // A subnormal factor, 2^-9, counts with the exponent of 2^-6: 2^-9 * 2^-6 lies 13 bits below -6 + 4.
        assert_eq!(
            dot(0.0, &[2f32.powi(-9), 2f32.powi(-6)], &[16.0, 2f32.powi(-9)]),
            2f32.powi(-5) + 2f32.powi(-15)
        );
        assert_eq!(
            dot(0.0, &[2f32.powi(-9), 2f32.powi(-6)], &[32.0, 2f32.powi(-9)]),
            2f32.powi(-4)
        );
        // What it starts with is cut off, too, below 2^3 by 2^-10.
        assert_eq!(dot(8.0 + 1.5 / 1024.0, &[], &[]), 8.0 + 1.0 / 1024.0);
        assert_eq!(
            dot(-8.0 - 1.5 / 1024.0, &[], &[]),
            -8.0 - 1.0 / 1024.0,
            "towards 0"
        );
        assert!(dot(f32::NAN, &[1.0], &[1.0]).is_nan() && dot(0.0, &[f32::NAN], &[0.0]).is_nan());
    }
}
