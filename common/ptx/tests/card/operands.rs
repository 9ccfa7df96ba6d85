//! Operand sets: special values, random bits and moderate numbers, the same on every machine.

/// A generator of words (splitmix64).
pub struct Draw(u64);

impl Draw {
    /// Makes the generator of a name.
    pub fn of(name: &str) -> Self {
        let mut draw = Self(0);
        for byte in name.bytes() {
            draw.0 = draw.0.wrapping_add(byte.into());
            draw.0 = draw.word();
        }
        draw
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    /// Returns a number from 0 to `end` - 1.
    pub fn below(&mut self, end: u64) -> u64 {
        self.word() % end
    }

    fn one_of(&mut self, words: &[u64]) -> u64 {
        words[self.below(words.len() as u64) as usize]
    }

    /// Returns a number from -1 to 1.
    fn fraction(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }

    /// Returns a number of either sign between 2^-20 and 2^20, or between -8 and 8.
    pub fn moderate(&mut self) -> f64 {
        let fraction = self.fraction();
        if self.below(2) == 0 {
            return 8.0 * fraction;
        }
        let sign = if self.below(2) == 0 { 1.0 } else { -1.0 };
        sign * (20.0 * fraction).exp2()
    }
}

/// What an operand holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    Predicate,
    Integer(u32),
    /// A number of bits to shift by.
    Shift,
    /// A place or a length of a field, of which 8 bits count.
    Place,
    F16,
    Bf16,
    F16x2,
    Bf16x2,
    F32,
    F64,
    /// Values of FP32 for a function that is approximate: most are moderate.
    Ordinary,
    /// An angle, as a value of FP32.
    Angle,
    /// An exponent of 2, as a value of FP32.
    Exponent,
}

const F32: [u32; 30] = [
    0,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0000,
    0x7fff_ffff,
    0x7f80_0001,
    0xffc1_2345,
    0xffa5_4321,
    1,
    0x8000_0001,
    0x007f_ffff,
    0x807f_ffff,
    0x0080_0000,
    0x8080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x3f80_0001,
    0x3f7f_ffff,
    0x3f00_0000,
    0x3fc0_0000,
    0x4020_0000,
    0x4f00_0000,
    0xcf00_0000,
    0x5f80_0000,
    0x477f_f000,
    0x43e8_0000,
    0x3300_0000,
];

const F64: [u64; 24] = [
    0,
    0x8000_0000_0000_0000,
    0x3ff0_0000_0000_0000,
    0xbff0_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_0000_0000,
    0x7fff_ffff_ffff_ffff,
    0x7ff0_0000_0000_0001,
    0xfff8_1234_5678_9abc,
    1,
    0x8000_0000_0000_0001,
    0x000f_ffff_ffff_ffff,
    0x0010_0000_0000_0000,
    0x7fef_ffff_ffff_ffff,
    0xffef_ffff_ffff_ffff,
    0x3ff0_0000_0000_0001,
    0x3fe0_0000_0000_0000,
    0x3ff8_0000_0000_0000,
    0x41e0_0000_0000_0000,
    0xc1e0_0000_0000_0000,
    0x43e0_0000_0000_0000,
    0x36a0_0000_0000_0000,
    0x47ef_ffff_f000_0000,
];

const F16: [u64; 22] = [
    0, 0x8000, 0x3c00, 0xbc00, 0x7c00, 0xfc00, 0x7e00, 0x7fff, 0x7c01, 0xfe12, 1, 0x8001, 0x03ff,
    0x83ff, 0x0400, 0x7bff, 0xfbff, 0x3c01, 0x3bff, 0x3800, 0x3e00, 0x1001,
];

const BF16: [u64; 22] = [
    0, 0x8000, 0x3f80, 0xbf80, 0x7f80, 0xff80, 0x7fc0, 0x7fff, 0x7f81, 0xffc1, 1, 0x8001, 0x007f,
    0x807f, 0x0080, 0x7f7f, 0xff7f, 0x3f81, 0x3f7f, 0x3f00, 0x3fc0, 0x2001,
];

impl Holds {
    /// Returns one operand. What lies above its width is random.
    pub fn draw(self, draw: &mut Draw) -> u64 {
        match self {
            Self::Predicate => draw.below(2),
            Self::Integer(bits) => integer(bits, draw),
            Self::Shift => match draw.below(4) {
                0 => draw.one_of(&[
                    0,
                    1,
                    15,
                    16,
                    17,
                    31,
                    32,
                    33,
                    63,
                    64,
                    65,
                    255,
                    256,
                    0xffff_ffff,
                ]),
                1 => draw.word(),
                _ => draw.below(72),
            },
            Self::Place => match draw.below(4) {
                0 => draw.below(256),
                _ => draw.below(66),
            },
            Self::F16 => half(&F16, draw, |value| half_bits(value, 5, 10)),
            Self::Bf16 => half(&BF16, draw, |value| half_bits(value, 8, 7)),
            Self::F16x2 => Self::F16.draw(draw) & 0xffff | Self::F16.draw(draw) << 16,
            Self::Bf16x2 => Self::Bf16.draw(draw) & 0xffff | Self::Bf16.draw(draw) << 16,
            Self::F32 => match draw.below(3) {
                0 => single_special(draw),
                1 => draw.word(),
                _ => single_bits(draw.moderate()),
            },
            Self::F64 => match draw.below(3) {
                0 => draw.one_of(&F64),
                1 => draw.word(),
                _ => draw.moderate().to_bits(),
            },
            Self::Ordinary => match draw.below(8) {
                0 => single_special(draw),
                1 => draw.word(),
                _ => single_bits(draw.moderate()),
            },
            Self::Angle => match draw.below(8) {
                0 => single_special(draw),
                _ => single_bits(std::f64::consts::TAU * draw.fraction()),
            },
            Self::Exponent => match draw.below(8) {
                0 => single_special(draw),
                1..4 => single_bits(4.0 * draw.fraction()),
                _ => single_bits(152.0 * draw.fraction()),
            },
        }
    }
}

fn single_special(draw: &mut Draw) -> u64 {
    F32[draw.below(F32.len() as u64) as usize].into()
}

fn single_bits(value: f64) -> u64 {
    (value as f32).to_bits().into()
}

fn integer(bits: u32, draw: &mut Draw) -> u64 {
    let most = 1u64 << (bits - 1);
    match draw.below(4) {
        0 => draw.one_of(&[
            0,
            1,
            2,
            3,
            u64::MAX,
            u64::MAX - 1,
            most,
            most - 1,
            most.wrapping_neg(),
            most.wrapping_add(1),
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0xffff_ff80,
            0xffff_ffff_ffff_8000,
        ]),
        1 => draw.below(100),
        2 => draw.below(100).wrapping_neg(),
        // As many leading zeros or ones as not.
        _ => {
            let shift = draw.below(bits.into());
            (draw.word() as i64 >> shift) as u64
        }
    }
}

fn half(special: &[u64], draw: &mut Draw, encode: fn(f64) -> u64) -> u64 {
    match draw.below(3) {
        0 => draw.one_of(special),
        1 => draw.word(),
        _ => encode(draw.moderate()),
    }
}

/// Returns a code near a value, whose mantissa is cut off.
fn half_bits(value: f64, exponent_bits: u32, mantissa_bits: u32) -> u64 {
    let bits = value.to_bits();
    let bias = (1i64 << (exponent_bits - 1)) - 1;
    let exponent = (bits >> 52 & 0x7ff) as i64 - 1023 + bias;
    let clamped = exponent.clamp(0, (1 << exponent_bits) - 2) as u64;
    let mantissa = bits >> (52 - mantissa_bits) & ((1 << mantissa_bits) - 1);
    bits >> 63 << 15 | clamped << mantissa_bits | mantissa
}

/// Returns all values that an operand can have, if they are few.
pub fn all(holds: Holds) -> Option<u64> {
    match holds {
        Holds::Integer(8) => Some(256),
        Holds::Integer(16) | Holds::F16 | Holds::Bf16 => Some(1 << 16),
        _ => None,
    }
}
