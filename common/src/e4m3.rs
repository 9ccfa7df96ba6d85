//! OCP FP8 E4M3FN: 1 sign, 4 exponent bits (bias 7), 3 mantissa bits; no infinity; `0x7f` and
//! `0xff` are NaN; at most 448 (OCP 8-bit Floating Point Specification (OFP8) 1.0, table 1).
//!
//! Overflow saturates, as with CUDA's `__NV_SATFINITE` and `cvt.satfinite`. PyTorch and ml_dtypes
//! make it NaN: their files differ in values above 464.

/// An E4M3 number by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct E4m3(u8);

const SIGN: u8 = 0x80;
const NAN: u8 = 0x7f;
const MAX_BITS: u8 = 0x7e;
/// The mantissa bits that are dropped: f32 has 23, E4M3 has 3.
const DROPPED_BITS: u32 = 23 - 3;
/// The difference of the biases: f32 exponents are biased by 127, E4M3's by 7.
const BIAS_SHIFT: u32 = 127 - 7;
const MIN_NORMAL_F32_BITS: u32 = (127 - 6) << 23;
const SUBNORMAL_STEP: f32 = 1.0 / 512.0;

impl E4m3 {
    pub const MAX: f32 = 448.0;

    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    pub const fn to_bits(self) -> u8 {
        self.0
    }

    pub const fn is_nan(self) -> bool {
        self.0 & NAN == NAN
    }

    /// Rounds to nearest, ties to even. Beyond ±448 it saturates; NaN stays NaN and keeps its sign.
    pub fn from_f32(value: f32) -> Self {
        let sign = ((value.to_bits() >> 24) as u8) & SIGN;
        if value.is_nan() {
            return Self(sign | NAN);
        }
        let magnitude = value.abs();
        let code = if magnitude.to_bits() < MIN_NORMAL_F32_BITS {
            // Subnormal: an integer number of steps. 8 steps are the smallest normal, whose code is
            // 8, too.
            (magnitude / SUBNORMAL_STEP).round_ties_even() as u8
        } else {
            let bits = magnitude.to_bits();
            // Half a step minus one, plus one if the kept part is odd: carries exactly when
            // rounding up is due.
            let odd = (bits >> DROPPED_BITS) & 1;
            let rounded = (bits + ((1 << (DROPPED_BITS - 1)) - 1) + odd) >> DROPPED_BITS;
            (rounded - (BIAS_SHIFT << 3)).min(u32::from(MAX_BITS)) as u8
        };
        Self(sign | code)
    }

    /// Returns the exact value.
    pub fn to_f32(self) -> f32 {
        let exponent = u32::from(self.0 >> 3) & 0xf;
        let mantissa = u32::from(self.0 & 7);
        let magnitude = if self.is_nan() {
            f32::NAN
        } else if exponent == 0 {
            mantissa as f32 * SUBNORMAL_STEP
        } else {
            f32::from_bits(((exponent + BIAS_SHIFT) << 23) | (mantissa << DROPPED_BITS))
        };
        if self.0 & SIGN == 0 {
            magnitude
        } else {
            -magnitude
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use float8::F8E4M3;

    fn ladder() -> Vec<f32> {
        (0..=MAX_BITS)
            .map(|bits| E4m3::from_bits(bits).to_f32())
            .collect()
    }

    fn assert_agrees_with_oracle(value: f32) {
        assert_eq!(
            E4m3::from_f32(value).to_bits(),
            F8E4M3::from_f32(value).to_bits(),
            "{value:e}"
        );
    }

    #[test]
    fn every_code_decodes_as_the_oracle_and_encodes_to_itself() {
        for bits in 0..=u8::MAX {
            let (ours, oracle) = (E4m3::from_bits(bits), F8E4M3::from_bits(bits));
            assert_eq!(ours.is_nan(), bits & 0x7f == 0x7f);
            assert_eq!(E4m3::from_f32(ours.to_f32()).to_bits(), bits);
            if ours.is_nan() {
                assert!(ours.to_f32().is_nan() && oracle.to_f32().is_nan());
            } else {
                assert_eq!(
                    ours.to_f32().to_bits(),
                    oracle.to_f32().to_bits(),
                    "{bits:#x}"
                );
            }
        }
    }

    #[test]
    fn midpoints_round_to_even_and_their_f32_neighbours_to_the_nearest() {
        for (low, pair) in ladder().windows(2).enumerate() {
            let midpoint = (pair[0] + pair[1]) / 2.0;
            let code = |value| usize::from(E4m3::from_f32(value).to_bits());
            let even = low + (low & 1);
            assert_eq!(code(midpoint), even, "{midpoint}");
            assert_eq!(code(midpoint.next_down()), low);
            assert_eq!(code(midpoint.next_up()), low + 1);
        }
    }

    #[test]
    fn overflow_saturates_and_nan_stays() {
        for value in [
            448.0,
            449.0,
            464.0,
            464.0f32.next_up(),
            480.0,
            1e30,
            f32::MAX,
            f32::INFINITY,
        ] {
            assert_eq!(E4m3::from_f32(value).to_bits(), MAX_BITS);
            assert_eq!(E4m3::from_f32(-value).to_bits(), MAX_BITS | SIGN);
        }
        assert_eq!(E4m3::from_f32(f32::NAN.copysign(1.0)).to_bits(), 0x7f);
        assert_eq!(E4m3::from_f32(f32::NAN.copysign(-1.0)).to_bits(), 0xff);
        for value in [
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            2f32.powi(-10),
            2f32.powi(-10).next_up(),
        ] {
            assert_agrees_with_oracle(value);
            assert_agrees_with_oracle(-value);
        }
    }

    #[test]
    fn rounding_agrees_with_the_oracle_over_a_sweep_of_f32() {
        // 1,048,576 patterns, every 4,096th of both signs; NaNs are compared as NaN.
        for step in 0..=u32::MAX >> 12 {
            let value = f32::from_bits(step << 12 | 0x5a5);
            if value.is_nan() {
                assert!(E4m3::from_f32(value).is_nan());
            } else {
                assert_agrees_with_oracle(value);
            }
        }
    }
}
