//! Floating-point arithmetic. Names say rounding, flushing and saturation; every variant that is
//! listed rounds to the nearest, ties to even.

use super::odd::fused_to_odd;
use super::{Apply, Binary, Table, Word};

/// Replaces a subnormal by a zero of its sign.
#[inline]
fn flush(value: f32) -> f32 {
    if value.is_subnormal() {
        return 0.0f32.copysign(value);
    }
    value
}

#[inline]
fn modify_in<const FTZ: bool>(word: u64) -> f32 {
    let value = f32::take(word);
    if FTZ { flush(value) } else { value }
}

/// Flushes and saturates a result; a NaN saturates to 0. A NaN that arithmetic makes is canonical.
#[inline]
fn modify_out<const FTZ: bool, const SAT: bool>(result: f32) -> u64 {
    let mut value = if FTZ { flush(result) } else { result };
    if SAT {
        value = if value.is_nan() {
            0.0
        } else {
            value.clamp(0.0, 1.0) + 0.0
        };
    }
    canonical(value)
}

const CANONICAL_NAN: u64 = 0x7fff_ffff;

/// Returns a result of FP32, of which each NaN is the same.
#[inline]
pub(super) fn canonical(value: f32) -> u64 {
    if value.is_nan() {
        return CANONICAL_NAN;
    }
    value.put()
}

type Sum = fn(f32, f32) -> f32;

#[derive(Clone, Copy)]
struct Add;
#[derive(Clone, Copy)]
struct Subtract;
#[derive(Clone, Copy)]
struct Multiply;
#[derive(Clone, Copy)]
struct Divide;

/// An operation on two values.
trait Operation {
    const APPLY: Sum;

    /// Returns whether a result is flushed though it is the smallest normal number.
    #[inline]
    fn is_flushed(_: f32, _: f32) -> bool {
        false
    }
}

impl Operation for Add {
    const APPLY: Sum = |a, b| a + b;
}

impl Operation for Subtract {
    const APPLY: Sum = |a, b| a - b;
}

impl Operation for Multiply {
    const APPLY: Sum = |a, b| a * b;

    #[inline]
    fn is_flushed(a: f32, b: f32) -> bool {
        rounds_below_normal(f64::from(a) * f64::from(b))
    }
}

/// Returns whether a number, rounded to 24 bits, is nearer to zero than all normal ones of FP32. That
/// is what Hopper flushes: a number that FP32 rounds up to the smallest normal one may be below it.
#[inline]
fn rounds_below_normal(exact: f64) -> bool {
    let tie = f64::from(f32::MIN_POSITIVE) * (1.0 - f64::from(f32::EPSILON) / 4.0);
    exact.abs() < tie
}

impl Operation for Divide {
    const APPLY: Sum = |a, b| a / b;
}

/// A division that takes the reciprocal of a divisor beyond 2^126 for zero, as `div.approx` does.
#[derive(Clone, Copy)]
struct DivideByReciprocal;

impl Operation for DivideByReciprocal {
    const APPLY: Sum = |a, b| {
        if b.is_finite() && b.abs() > 2f32.powi(126) {
            a * 0f32.copysign(b)
        } else {
            a / b
        }
    };
}

fn binary<O: Operation, const FTZ: bool, const SAT: bool>(a: u64, b: u64) -> u64 {
    let [x, y] = [a, b].map(modify_in::<FTZ>);
    let mut result = O::APPLY(x, y);
    if FTZ && O::is_flushed(x, y) {
        result = 0f32.copysign(result);
    }
    modify_out::<FTZ, SAT>(result)
}

fn fused<const FTZ: bool, const SAT: bool>(a: u64, b: u64, c: u64) -> u64 {
    let [x, y, z] = [a, b, c].map(modify_in::<FTZ>);
    let mut result = x.mul_add(y, z);
    let is_smallest = result.abs() == f32::MIN_POSITIVE;
    if FTZ && is_smallest && rounds_below_normal(fused_to_odd(x, y, z)) {
        result = 0f32.copysign(result);
    }
    modify_out::<FTZ, SAT>(result)
}

fn add_binary<O: Operation>(table: &mut Table, name: &str) {
    for rounding in ["", ".rn"] {
        let forms: [(&str, Binary); 4] = [
            ("", binary::<O, false, false>),
            (".ftz", binary::<O, true, false>),
            (".sat", binary::<O, false, true>),
            (".ftz.sat", binary::<O, true, true>),
        ];
        for (modifiers, apply) in forms {
            table.add(
                format!("{name}{rounding}{modifiers}.f32"),
                Apply::Two(apply),
            );
        }
    }
}

pub(super) fn fill(table: &mut Table) {
    add_binary::<Add>(table, "add");
    add_binary::<Subtract>(table, "sub");
    add_binary::<Multiply>(table, "mul");
    for name in ["fma", "mad"] {
        table.add(
            format!("{name}.rn.f32"),
            Apply::Three(fused::<false, false>),
        );
        table.add(
            format!("{name}.rn.ftz.f32"),
            Apply::Three(fused::<true, false>),
        );
        table.add(
            format!("{name}.rn.sat.f32"),
            Apply::Three(fused::<false, true>),
        );
        table.add(
            format!("{name}.rn.ftz.sat.f32"),
            Apply::Three(fused::<true, true>),
        );
    }
    quotients(table);
    signs(table);
    extremes(table);
    functions(table);
    doubles(table);
}

fn quotients(table: &mut Table) {
    table.add("div.rn.f32", Apply::Two(binary::<Divide, false, false>));
    table.add("div.rn.ftz.f32", Apply::Two(binary::<Divide, true, false>));
    for (name, apply) in [
        ("div.full.f32", binary::<Divide, false, false> as Binary),
        ("div.full.ftz.f32", binary::<Divide, true, false>),
        ("div.approx.f32", binary::<DivideByReciprocal, false, false>),
        (
            "div.approx.ftz.f32",
            binary::<DivideByReciprocal, true, false>,
        ),
    ] {
        table.add_approximate(name, Apply::Two(apply));
    }
    table.add(
        "rcp.rn.f32",
        Apply::One(|a| modify_out::<false, false>(1.0 / f32::take(a))),
    );
    table.add_approximate(
        "rcp.approx.f32",
        Apply::One(|a| modify_out::<false, false>(1.0 / f32::take(a))),
    );
    table.add_approximate(
        "rcp.approx.ftz.f32",
        Apply::One(|a| modify_out::<true, false>(1.0 / modify_in::<true>(a))),
    );
}

fn signs(table: &mut Table) {
    table.add("neg.f32", Apply::One(|a| canonical(-f32::take(a))));
    table.add("abs.f32", Apply::One(|a| canonical(f32::take(a).abs())));
    table.add(
        "neg.ftz.f32",
        Apply::One(|a| canonical(-modify_in::<true>(a))),
    );
    table.add(
        "abs.ftz.f32",
        Apply::One(|a| canonical(modify_in::<true>(a).abs())),
    );
    table.add(
        "copysign.f32",
        Apply::Two(|a, b| f32::take(b).copysign(f32::take(a)).put()),
    );
}

/// Returns whether a number lies above another one; -0 lies below +0.
pub(super) fn lies_above(a: f32, b: f32) -> bool {
    a > b || a == b && a.is_sign_positive()
}

/// Returns the larger value; a NaN loses against a number, and -0 lies below +0.
fn larger(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if lies_above(a, b) => a,
        _ => b,
    }
}

fn smaller(a: f32, b: f32) -> f32 {
    match (a.is_nan(), b.is_nan()) {
        (true, _) => b,
        (_, true) => a,
        _ if lies_above(a, b) => b,
        _ => a,
    }
}

/// Makes a NaN win instead.
fn with_nan(a: f32, b: f32, otherwise: Sum) -> f32 {
    if a.is_nan() || b.is_nan() {
        f32::NAN
    } else {
        otherwise(a, b)
    }
}

fn extreme<const FTZ: bool>(a: u64, b: u64, choose: Sum) -> u64 {
    modify_out::<FTZ, false>(choose(modify_in::<FTZ>(a), modify_in::<FTZ>(b)))
}

fn extremes(table: &mut Table) {
    table.add("max.f32", Apply::Two(|a, b| extreme::<false>(a, b, larger)));
    table.add(
        "min.f32",
        Apply::Two(|a, b| extreme::<false>(a, b, smaller)),
    );
    table.add(
        "max.ftz.f32",
        Apply::Two(|a, b| extreme::<true>(a, b, larger)),
    );
    table.add(
        "min.ftz.f32",
        Apply::Two(|a, b| extreme::<true>(a, b, smaller)),
    );
    table.add(
        "max.NaN.f32",
        Apply::Two(|a, b| extreme::<false>(a, b, |x, y| with_nan(x, y, larger))),
    );
    table.add(
        "min.NaN.f32",
        Apply::Two(|a, b| extreme::<false>(a, b, |x, y| with_nan(x, y, smaller))),
    );
    table.add(
        "max.ftz.NaN.f32",
        Apply::Two(|a, b| extreme::<true>(a, b, |x, y| with_nan(x, y, larger))),
    );
    table.add(
        "min.ftz.NaN.f32",
        Apply::Two(|a, b| extreme::<true>(a, b, |x, y| with_nan(x, y, smaller))),
    );
}

fn functions(table: &mut Table) {
    table.add_exponential(
        "ex2.approx.ftz.f32",
        Apply::One(|a| modify_out::<true, false>(modify_in::<true>(a).exp2())),
    );
    table.add_exponential(
        "ex2.approx.f32",
        Apply::One(|a| modify_out::<false, false>(f32::take(a).exp2())),
    );
    table.add_approximate(
        "lg2.approx.ftz.f32",
        Apply::One(|a| modify_out::<true, false>(modify_in::<true>(a).log2())),
    );
    table.add_approximate(
        "lg2.approx.f32",
        Apply::One(|a| modify_out::<false, false>(f32::take(a).log2())),
    );
    table.add(
        "sqrt.rn.f32",
        Apply::One(|a| modify_out::<false, false>(f32::take(a).sqrt())),
    );
    for (name, apply) in [
        (
            "sqrt.approx.f32",
            Apply::One(|a| modify_out::<false, false>(f32::take(a).sqrt())),
        ),
        (
            "sqrt.approx.ftz.f32",
            Apply::One(|a| modify_out::<true, false>(modify_in::<true>(a).sqrt())),
        ),
        (
            "rsqrt.approx.f32",
            Apply::One(|a| modify_out::<false, false>(reciprocal_root(f32::take(a)))),
        ),
        (
            "rsqrt.approx.ftz.f32",
            Apply::One(|a| modify_out::<true, false>(reciprocal_root(modify_in::<true>(a)))),
        ),
        (
            "tanh.approx.f32",
            Apply::One(|a| modify_out::<false, false>(f32::take(a).tanh())),
        ),
        (
            "sin.approx.f32",
            Apply::One(|a| modify_out::<false, false>(f32::take(a).sin())),
        ),
        (
            "cos.approx.f32",
            Apply::One(|a| modify_out::<false, false>(f32::take(a).cos())),
        ),
    ] {
        table.add_approximate(name, apply);
    }
}

fn reciprocal_root(value: f32) -> f32 {
    f64::from(value).sqrt().recip() as f32
}

/// The bit that makes a NaN of FP64 a quiet one.
const QUIET: u64 = 1 << 51;

/// Returns a result of FP64. The specification leaves open which NaN arithmetic yields; Hopper yields
/// the first one among the operands, in an order that depends on the operation, and makes it quiet.
#[inline]
fn double(result: f64, operands: &[f64]) -> u64 {
    if !result.is_nan() {
        return result.put();
    }
    match operands.iter().find(|operand| operand.is_nan()) {
        Some(nan) => nan.put() | QUIET,
        None => INVALID,
    }
}

/// The NaN that an operation on numbers yields.
const INVALID: u64 = 0xfff8_0000_0000_0000;

/// Adds to a number of FP64 in global memory, where a NaN keeps all of its bits.
pub(crate) fn sum_in_global_memory(old: u64, value: u64) -> u64 {
    match [value, old]
        .into_iter()
        .find(|&word| f64::take(word).is_nan())
    {
        Some(nan) => nan,
        None => double(f64::take(old) + f64::take(value), &[]),
    }
}

fn doubles(table: &mut Table) {
    for rounding in ["", ".rn"] {
        let forms: [(&str, Binary); 3] = [
            ("add", |a, b| {
                let [x, y] = [a, b].map(f64::take);
                double(x + y, &[y, x])
            }),
            ("sub", |a, b| {
                let [x, y] = [a, b].map(f64::take);
                double(x - y, &[y, x])
            }),
            ("mul", |a, b| {
                let [x, y] = [a, b].map(f64::take);
                double(x * y, &[y, x])
            }),
        ];
        for (name, apply) in forms {
            table.add(format!("{name}{rounding}.f64"), Apply::Two(apply));
        }
    }
    table.add(
        "div.rn.f64",
        Apply::Two(|a, b| {
            let [x, y] = [a, b].map(f64::take);
            double(x / y, &[x, y])
        }),
    );
    table.add(
        "fma.rn.f64",
        Apply::Three(|a, b, c| {
            let [x, y, z] = [a, b, c].map(f64::take);
            double(x.mul_add(y, z), &[y, z, x])
        }),
    );
    table.add("neg.f64", Apply::One(|a| sign_of_double(a, a ^ SIGN)));
    table.add("abs.f64", Apply::One(|a| sign_of_double(a, a & !SIGN)));
}

const SIGN: u64 = 1 << 63;

/// Returns a number with another sign; a NaN keeps its own.
fn sign_of_double(word: u64, changed: u64) -> u64 {
    if f64::take(word).is_nan() {
        word | QUIET
    } else {
        changed
    }
}
