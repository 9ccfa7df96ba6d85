//! The two 16-bit formats, of outputs and of P. Outputs are held as the f32 values of their codes,
//! which is exact and keeps codes apart.

use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};
use rayon::prelude::*;

/// The least number of values that one thread converts, compares or looks at: decode has hundreds
/// of millions.
pub(crate) const SHARE: usize = 1 << 14;

named! {
    /// A 16-bit floating-point format.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Format {
        /// IEEE binary16: 11 bits of significand, at most 65504.
        F16 = "f16",
        /// bfloat16: 8 bits of significand, the range of f32.
        Bf16 = "bf16",
    }
}

impl Format {
    /// Rounds to nearest, ties to even; beyond the range, to infinity.
    pub fn encode(self, value: f32) -> u16 {
        match self {
            Format::F16 => f16::from_f32(value).to_bits(),
            Format::Bf16 => bf16::from_f32(value).to_bits(),
        }
    }

    /// Returns the exact value of a code; payloads of quiet NaNs are kept.
    pub fn decode(self, code: u16) -> f32 {
        match self {
            Format::F16 => f16::from_bits(code).to_f32(),
            Format::Bf16 => bf16::from_bits(code).to_f32(),
        }
    }

    /// Reads as many elements of two bytes each, little endian, as there is room for.
    pub fn decode_into(self, values: &mut [f32], bytes: &[u8]) {
        for (value, &code) in values.iter_mut().zip(bytes.as_chunks().0) {
            *value = self.decode(u16::from_le_bytes(code));
        }
    }

    /// Reads elements of two bytes each, little endian.
    pub fn decode_bytes(self, bytes: &[u8]) -> Vec<f32> {
        let codes = bytes.as_chunks::<2>().0.par_iter().with_min_len(SHARE);
        codes
            .map(|&code| self.decode(u16::from_le_bytes(code)))
            .collect()
    }

    /// Writes elements as [`Format::decode_bytes`] reads them.
    pub fn encode_bytes(self, values: &[f32]) -> Vec<u8> {
        let codes: Vec<[u8; 2]> = values
            .par_iter()
            .with_min_len(SHARE)
            .map(|&value| self.encode(value).to_le_bytes())
            .collect();
        codes.into_flattened()
    }

    pub fn round(self, value: f32) -> f32 {
        self.decode(self.encode(value))
    }

    pub fn round_all(self, values: &mut [f32]) {
        match self {
            Format::F16 => {
                let mut codes = vec![f16::ZERO; values.len()];
                codes.convert_from_f32_slice(values);
                codes.convert_to_f32_slice(values);
            }
            Format::Bf16 => {
                for value in values {
                    *value = self.round(*value);
                }
            }
        }
    }

    /// Rounds to the nearest value that is no further from 0.
    pub fn toward_zero(self, value: f64) -> f32 {
        let nearest = self.encode(value as f32);
        let further = f64::from(self.decode(nearest)).abs() > value.abs();
        self.decode(nearest - u16::from(further))
    }

    pub fn significand_bits(self) -> i32 {
        match self {
            Format::F16 => 11,
            Format::Bf16 => 8,
        }
    }

    /// Returns half the distance from 1 to the next value: what rounding costs at most, relatively.
    pub fn unit(self) -> f64 {
        2f64.powi(-self.significand_bits())
    }

    /// Returns the smallest normal value: below it there are fewer bits.
    pub fn smallest_normal(self) -> f64 {
        match self {
            Format::F16 => f16::MIN_POSITIVE.to_f64(),
            Format::Bf16 => bf16::MIN_POSITIVE.to_f64(),
        }
    }

    /// Returns the spacing at magnitude `value`; below [`Format::smallest_normal`] that of
    /// subnormals.
    pub fn ulp(self, value: f64) -> f64 {
        let least = self.smallest_normal();
        let normal = if value.is_normal() {
            value.abs().max(least)
        } else {
            least
        };
        let exponent = ((normal.to_bits() >> 52) & 0x7ff) as i32 - 1023;
        2f64.powi(exponent + 1 - self.significand_bits())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_those_of_the_format() {
        let cases = [
            (Format::F16, 0.0, -24),
            (Format::F16, 1e-6, -24),
            (Format::F16, 6.2e-5, -24),
            (Format::F16, 1.0, -10),
            (Format::F16, 1.999, -10),
            (Format::F16, 2.0, -9),
            (Format::F16, 500.0, -2),
            (Format::Bf16, 0.0, -133),
            (Format::Bf16, 1e-6, -27),
            (Format::Bf16, 1.0, -7),
            (Format::Bf16, 1.999, -7),
            (Format::Bf16, 2.0, -6),
            (Format::Bf16, 1e6, 12),
        ];
        for (format, value, exponent) in cases {
            assert_eq!(format.ulp(value), 2f64.powi(exponent), "{value} {format:?}");
            let code = format.encode(value as f32);
            let next = f64::from(format.decode(code + 1)) - f64::from(format.decode(code));
            assert!(format.ulp(value) <= next, "{value} {format:?}");
        }
        assert_eq!(Format::ALL.map(Format::unit), [1.0 / 2048.0, 1.0 / 256.0]);
    }

    #[test]
    fn every_code_survives_and_no_two_become_one_value() {
        for format in Format::ALL {
            let mut seen = std::collections::BTreeSet::new();
            for code in 0..=u16::MAX {
                let value = format.decode(code);
                if !value.is_nan() {
                    assert_eq!(format.encode(value), code, "{format:?}");
                    assert!(seen.insert(value.to_bits()), "{format:?} {code:#x}");
                }
            }
        }
    }

    #[test]
    fn roundings_are_to_nearest_even_and_towards_zero() {
        let next = 1.0 + 1.0 / 128.0;
        let tie = 1.0 + 1.0 / 256.0;
        let cases = [
            (tie, 1.0),
            (tie + f32::EPSILON, next),
            (1.0 + 3.0 / 256.0, 1.0 + 1.0 / 64.0),
        ];
        for (value, nearest) in cases {
            assert_eq!(Format::Bf16.round(value), nearest);
            assert_eq!(Format::Bf16.round(-value), -nearest);
        }
        assert_eq!(Format::Bf16.toward_zero(f64::from(next) - 1e-6), 1.0);
        assert_eq!(Format::Bf16.toward_zero(f64::from(-next)), -next);
        assert_eq!(Format::F16.toward_zero(0.1), 0.099_975_586);
        assert_eq!(Format::F16.round(65520.0), f32::INFINITY);
        assert_eq!(Format::Bf16.round(70000.0), 70144.0);
    }
}
