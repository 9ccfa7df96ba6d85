//! The relative errors of operations on a GPU.

/// The relative error of one operation in f32.
pub(super) const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
/// The relative error of Hopper's sums of E4M3 products: `common/docs/fp8-accumulation.md`.
pub(super) const E4M3_UNIT: f64 = 1.0 / (1u64 << 13) as f64;
/// The relative error of an exponential: ex2.approx is within 2 ulp, and a multiply-add and a
/// product stand around it.
pub(super) const EXPONENTIAL: f64 = 8.0 * UNIT;

/// The error of a hyperbolic tangent by an exponential and a quotient, as `cap_scores` of stage 14
/// computes it.
pub(super) const TANGENT: f64 = 16.0 * UNIT;

/// Returns the relative error of a power of two whose exponent is `exponent - shift`.
pub(super) fn exponential_error(exponent: f64, shift: f64) -> f64 {
    let exponent_error = 4.0 * UNIT * (exponent.abs() + shift.abs());
    EXPONENTIAL + exponent_error.min(100.0).exp_m1()
}
