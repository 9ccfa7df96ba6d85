//! Narrow floating-point formats, on integers and `f32` alone.

/// Returns the value of a binary16, NaN payloads included.
pub(crate) fn from_f16(half: u16) -> f32 {
    let magnitude = u32::from(half & 0x7fff) << 13;
    // Scaling by 2^112 normalises a subnormal, too.
    let scaled = f32::from_bits(magnitude) * 2f32.powi(112);
    let mut bits = scaled.to_bits();
    if magnitude >= 0x0f80_0000 {
        bits = magnitude | 0x7f80_0000; // infinity or NaN
    }
    f32::from_bits(bits | u32::from(half & 0x8000) << 16)
}

/// Rounds to the nearest binary16, ties to even; NaN becomes 0x7fff.
pub(crate) fn to_f16(value: f32) -> u16 {
    let all = value.to_bits();
    let sign = (all >> 16 & 0x8000) as u16;
    let magnitude = all & 0x7fff_ffff;
    if magnitude > 0x7f80_0000 {
        return 0x7fff;
    }
    if magnitude >= 0x477f_f000 {
        return sign | 0x7c00;
    }
    if magnitude < 0x3880_0000 {
        // Adding 0.5 puts the half's last bit at the float's last bit, and the addition rounds.
        let shifted = f32::from_bits(magnitude) + 0.5;
        return sign | (shifted.to_bits() - 0x3f00_0000) as u16;
    }
    let odd = magnitude >> 13 & 1;
    sign | ((magnitude - 0x3800_0000 + 0x0fff + odd) >> 13) as u16
}

pub(crate) fn from_bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

/// Rounds to the nearest bfloat16, ties to even; NaN becomes 0x7fff.
pub(crate) fn to_bf16(value: f32) -> u16 {
    if value.is_nan() {
        return 0x7fff;
    }
    let all = value.to_bits();
    (all.wrapping_add(0x7fff + (all >> 16 & 1)) >> 16) as u16
}

/// Returns the value of an E4M3: bias 7, no infinity, NaN at 0x7f.
pub(crate) fn from_e4m3(code: u8) -> f32 {
    if code & 0x7f == 0x7f {
        return f32::from_bits(0x7fff_ffff);
    }
    from_f16(u16::from(code & 0x80) << 8 | u16::from(code & 0x7f) << 7) * 256.0
}

/// Rounds to the nearest E4M3, ties to even; what is beyond 448 becomes 448.
pub(crate) fn to_e4m3(value: f32) -> u8 {
    let sign = (value.to_bits() >> 24 & 0x80) as u8;
    if value.is_nan() {
        return 0x7f;
    }
    let magnitude = value.abs();
    if magnitude >= 464.0 {
        return sign | 0x7e;
    }
    // The last bit of a subnormal is 2^-9; of any other value it is 3 places below the first.
    let exponent = if magnitude < 2f32.powi(-6) {
        -6
    } else {
        (magnitude.to_bits() >> 23) as i32 - 127
    };
    let steps = (magnitude * 2f32.powi(3 - exponent)).round_ties_even() as u32;
    let code = ((exponent + 6) as u32 * 8 + steps) as u8;
    sign | code.min(0x7e)
}

/// Returns the value of an E5M2, which is the upper half of a binary16.
pub(crate) fn from_e5m2(code: u8) -> f32 {
    from_f16(u16::from(code) << 8)
}
