//! Numbers of a launch, and the elements that hold them.

use crate::isa::half::{from_bf16, from_e4m3, from_f16, to_bf16, to_e4m3, to_f16};
use std::fmt;
use thiserror::Error;

/// The least whole number from which on a binary64 does not have all of them.
const INEXACT: f64 = 9_007_199_254_740_992.0;

/// The largest value of an E4M3.
const MOST_E4M3: f64 = 448.0;

/// A number as it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A number without a point, which is exact.
    Whole(i128),
    Real(f64),
}

impl Number {
    /// Returns how far another number is. Whole ones are subtracted exactly.
    pub fn distance(self, other: Self) -> f64 {
        if let (Some(here), Some(there)) = (self.whole(), other.whole()) {
            return here.abs_diff(there) as f64;
        }
        let (here, there) = (self.real(), other.real());
        // Infinities are equal, and their difference is a NaN.
        if here == there {
            return 0.0;
        }
        (here - there).abs()
    }

    fn whole(self) -> Option<i128> {
        match self {
            Self::Whole(number) => Some(number),
            // An i128 has all numbers that these are.
            Self::Real(number) => {
                (number.fract() == 0.0 && number.abs() < 2f64.powi(100)).then_some(number as i128)
            }
        }
    }

    fn real(self) -> f64 {
        match self {
            Self::Whole(number) => number as f64,
            Self::Real(number) => number,
        }
    }
}

impl From<f64> for Number {
    fn from(number: f64) -> Self {
        Self::Real(number)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(f),
            Self::Real(number) => number.fmt(f),
        }
    }
}

/// A number that an element does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
#[error("{number} does not fit in {}, which takes {}", element.name(), element.range())]
pub struct NumberError {
    pub number: Number,
    pub element: ElementType,
}

/// The element type of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    U8,
    E4m3,
    F16,
    Bf16,
    F32,
    I32,
    I64,
}

impl ElementType {
    pub fn bytes(self) -> usize {
        match self {
            Self::U8 | Self::E4m3 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::I32 => 4,
            Self::I64 => 8,
        }
    }

    /// Returns the values of elements.
    pub fn decode(self, bytes: &[u8]) -> Vec<f64> {
        let chunks = bytes.chunks_exact(self.bytes());
        chunks.map(|element| self.number(element).real()).collect()
    }

    pub const ALL: [Self; 7] = [
        Self::U8,
        Self::E4m3,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::I32,
        Self::I64,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::E4m3 => "e4m3",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::I32 => "i32",
            Self::I64 => "i64",
        }
    }

    fn range(self) -> &'static str {
        match self {
            Self::U8 => "whole numbers from 0 to 255",
            Self::E4m3 => "numbers from -448 to 448, and nan",
            Self::F16 => "numbers from -65504 to 65504, inf, -inf and nan",
            Self::Bf16 => "numbers from -3.38e38 to 3.38e38, inf, -inf and nan",
            Self::F32 => "numbers from -3.4e38 to 3.4e38, inf, -inf and nan",
            Self::I32 => {
                "whole numbers from -2147483648 to 4294967295, those from 2147483648 on by their \
                 bits"
            }
            Self::I64 => {
                "whole numbers from -9223372036854775808 to 18446744073709551615, those from \
                 9223372036854775808 on by their bits, and those beyond 9007199254740991 written \
                 without a point"
            }
        }
    }

    pub fn is_integer(self) -> bool {
        matches!(self, Self::U8 | Self::I32 | Self::I64)
    }

    /// Appends the bytes of an element.
    ///
    /// # Errors
    ///
    /// A number that the type does not hold. A fraction of a floating-point type is rounded.
    pub fn encode(self, number: Number, to: &mut Vec<u8>) -> Result<(), NumberError> {
        let refused = NumberError {
            number,
            element: self,
        };
        let bits = if self.is_integer() {
            self.integer(number)
        } else {
            self.float(number.real())
        };
        let word = bits.ok_or(refused)?.to_le_bytes();
        to.extend(&word[..self.bytes()]);
        Ok(())
    }

    /// Returns the number that an element has once it is stored: signed, where a word was written
    /// by its bits. Those that no element holds stay as they are.
    pub fn stored(self, number: Number) -> Number {
        match self.integer(number) {
            Some(bits) if self.is_integer() => self.number(&bits.to_le_bytes()[..self.bytes()]),
            _ => number,
        }
    }

    /// Returns a drawn number as the type has it: an integer has no fraction.
    pub(crate) fn drawn(self, real: f64) -> Number {
        let number = if self.is_integer() {
            real.trunc()
        } else {
            real
        };
        Number::Real(number)
    }

    /// Returns the number of an element's bytes.
    pub fn number(self, bytes: &[u8]) -> Number {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        let bits = u64::from_le_bytes(word);
        match self {
            Self::U8 => Number::Whole(bits.into()),
            Self::I32 => Number::Whole((bits as i32).into()),
            Self::I64 => Number::Whole((bits as i64).into()),
            Self::E4m3 => Number::Real(from_e4m3(bits as u8).into()),
            Self::F16 => Number::Real(from_f16(bits as u16).into()),
            Self::Bf16 => Number::Real(from_bf16(bits as u16).into()),
            Self::F32 => Number::Real(f32::from_bits(bits as u32).into()),
        }
    }

    /// Returns the bits of an integer; nothing for a number that it does not hold exactly.
    fn integer(self, number: Number) -> Option<u64> {
        let range = match self {
            Self::U8 => 0..=u8::MAX.into(),
            Self::I32 => i32::MIN.into()..=u32::MAX.into(),
            _ => i128::from(i64::MIN)..=u64::MAX.into(),
        };
        let is_exact = match number {
            Number::Whole(_) => true,
            Number::Real(real) => real.abs() < INEXACT,
        };
        let whole = number.whole()?;
        (is_exact && range.contains(&whole)).then_some(whole as u64)
    }

    /// Returns the bits of a floating-point number; nothing where a finite one became infinite, or
    /// the largest E4M3.
    fn float(self, real: f64) -> Option<u64> {
        let single = real as f32;
        let (bits, is_finite) = match self {
            Self::E4m3 => (to_e4m3(single).into(), real.abs() <= MOST_E4M3),
            Self::F16 => {
                let half = to_f16(single);
                (half.into(), from_f16(half).is_finite())
            }
            Self::Bf16 => {
                let half = to_bf16(single);
                (half.into(), from_bf16(half).is_finite())
            }
            _ => (single.to_bits().into(), single.is_finite()),
        };
        let has_infinity = self != Self::E4m3;
        let is_held = is_finite || real.is_nan() || (real.is_infinite() && has_infinity);
        is_held.then_some(bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(element: ElementType, number: Number) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        element.encode(number, &mut bytes).ok().map(|()| bytes)
    }

    #[test]
    fn an_integer_that_its_type_does_not_hold_is_refused() {
        for (element, least, most) in [
            (ElementType::U8, 0, 255),
            (ElementType::I32, i32::MIN.into(), u32::MAX.into()),
            (ElementType::I64, i64::MIN.into(), u64::MAX.into()),
        ] {
            for held in [least, most, 0, 7] {
                assert!(bytes(element, Number::Whole(held)).is_some(), "{held}");
            }
            for beyond in [least - 1, most + 1] {
                assert_eq!(bytes(element, Number::Whole(beyond)), None, "{beyond}");
            }
            for real in [2.7, f64::NAN, f64::INFINITY, 1e30, -1e30] {
                assert_eq!(bytes(element, Number::Real(real)), None, "{real}");
            }
            assert!(bytes(element, Number::Real(3.0)).is_some());
        }
        assert_eq!(bytes(ElementType::I64, Number::Real(INEXACT)), None);
    }

    #[test]
    fn a_word_without_a_sign_is_taken_by_its_bits() {
        let most = Number::Whole(u32::MAX.into());
        assert_eq!(bytes(ElementType::I32, most), Some(vec![0xff; 4]));
        assert_eq!(ElementType::I32.stored(most), Number::Whole(-1));
        let widest = Number::Whole(u64::MAX.into());
        assert_eq!(ElementType::I64.stored(widest), Number::Whole(-1));
        assert_eq!(ElementType::F32.stored(most), most);
    }

    #[test]
    fn a_finite_number_that_would_become_infinite_is_refused() {
        for (element, most, beyond) in [
            (ElementType::E4m3, 448.0, 449.0),
            (ElementType::F16, 65504.0, 65520.0),
            (ElementType::Bf16, 3.38e38, 3.4e38),
            (ElementType::F32, f32::MAX.into(), 3.5e38),
        ] {
            for sign in [1.0, -1.0] {
                assert!(bytes(element, Number::Real(sign * most)).is_some());
                assert_eq!(bytes(element, Number::Real(sign * beyond)), None);
            }
            assert!(bytes(element, Number::Real(f64::NAN)).is_some());
            let infinity = bytes(element, Number::Real(f64::INFINITY));
            assert_eq!(infinity.is_some(), element != ElementType::E4m3);
        }
    }

    #[test]
    fn whole_numbers_beyond_a_binary64_differ() {
        let (here, there) = (9_007_199_254_740_993, 9_007_199_254_740_992);
        let distance = Number::Whole(here).distance(Number::Whole(there));
        assert_eq!(distance, 1.0);
        assert_eq!(Number::Whole(here).distance(Number::Real(INEXACT)), 1.0);
        let infinity = Number::Real(f64::INFINITY);
        assert_eq!(infinity.distance(infinity), 0.0);
        assert!(Number::Real(f64::NAN).distance(infinity).is_nan());
    }

    #[test]
    fn a_refusal_names_the_number_the_type_and_what_it_takes() {
        let refused = ElementType::U8.encode(Number::Whole(300), &mut Vec::new());
        let message = "300 does not fit in u8, which takes whole numbers from 0 to 255";
        assert_eq!(refused.unwrap_err().to_string(), message);
    }
}
