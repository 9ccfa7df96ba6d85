//! Rounding to odd: what is not exact becomes that neighbour whose last bit is set, so that a second
//! rounding, to a format narrower by two bits or more, is as good as one.

/// Rounds a number to an odd FP32.
pub(super) fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() || near.is_infinite() || near.to_bits() & 1 == 1 {
        return near;
    }
    let is_toward_zero = back.abs() < value.abs();
    let bits = near.to_bits();
    f32::from_bits(if is_toward_zero { bits + 1 } else { bits - 1 })
}

/// Rounds the sum of two numbers, which are far from the ends of FP64's range, to an odd FP64.
pub(super) fn sum_to_odd(a: f64, b: f64) -> f64 {
    let near = a + b;
    // What the sum lacks, exactly (Knuth's TwoSum).
    let of_b = near - a;
    let lacks = (a - (near - of_b)) + (b - of_b);
    let bits = near.to_bits();
    if lacks == 0.0 || lacks.is_nan() || bits & 1 == 1 {
        return near;
    }
    let is_toward_zero = (lacks > 0.0) == (near > 0.0);
    f64::from_bits(if is_toward_zero { bits + 1 } else { bits - 1 })
}

/// Rounds a product and a sum as one to an odd FP64. The product of two FP32 is exact in FP64.
pub(super) fn fused_to_odd(x: f32, y: f32, z: f32) -> f64 {
    sum_to_odd(f64::from(x) * f64::from(y), f64::from(z))
}
