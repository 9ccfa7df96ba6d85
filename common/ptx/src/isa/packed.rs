//! Arithmetic on values of 16 bits, alone and in pairs. What FP64 does not hold exactly is rounded to
//! odd on the way, so that a result is rounded once.

use super::float::lies_above;
use super::half::{from_bf16, from_f16, to_bf16, to_f16};
use super::odd::{fused_to_odd, sum_to_odd, to_odd};
use super::{Apply, Table};

/// A format of 16 bits.
trait Narrow {
    fn value(code: u16) -> f32;
    fn code(value: f32) -> u16;
}

struct F16;
struct Bf16;

impl Narrow for F16 {
    fn value(code: u16) -> f32 {
        from_f16(code)
    }

    fn code(value: f32) -> u16 {
        to_f16(value)
    }
}

impl Narrow for Bf16 {
    fn value(code: u16) -> f32 {
        from_bf16(code)
    }

    fn code(value: f32) -> u16 {
        to_bf16(value)
    }
}

fn fused<N: Narrow>(a: u16, b: u16, c: u16) -> u16 {
    let [x, y, z] = [a, b, c].map(N::value);
    N::code(to_odd(fused_to_odd(x, y, z)))
}

fn sum<N: Narrow>(a: u16, b: u16) -> u16 {
    let [x, y] = [a, b].map(|code| f64::from(N::value(code)));
    N::code(to_odd(sum_to_odd(x, y)))
}

fn difference<N: Narrow>(a: u16, b: u16) -> u16 {
    let [x, y] = [a, b].map(|code| f64::from(N::value(code)));
    N::code(to_odd(sum_to_odd(x, -y)))
}

fn product<N: Narrow>(a: u16, b: u16) -> u16 {
    N::code(to_odd(f64::from(N::value(a)) * f64::from(N::value(b))))
}

fn larger<N: Narrow>(a: u16, b: u16) -> u16 {
    let (x, y) = (N::value(a), N::value(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => 0x7fff,
        (true, false) => b,
        (false, true) => a,
        _ if lies_above(x, y) => a,
        _ => b,
    }
}

fn smaller<N: Narrow>(a: u16, b: u16) -> u16 {
    let (x, y) = (N::value(a), N::value(b));
    match (x.is_nan(), y.is_nan()) {
        (true, true) => 0x7fff,
        (true, false) => b,
        (false, true) => a,
        _ if lies_above(x, y) => b,
        _ => a,
    }
}

/// Replaces a code by another one; a NaN becomes 0x7fff.
fn signed<N: Narrow>(code: u16, change: fn(u16) -> u16) -> u16 {
    if N::value(code).is_nan() {
        0x7fff
    } else {
        change(code)
    }
}

fn negated<N: Narrow>(code: u16) -> u16 {
    signed::<N>(code, |bits| bits ^ 0x8000)
}

fn magnitude<N: Narrow>(code: u16) -> u16 {
    signed::<N>(code, |bits| bits & 0x7fff)
}

fn halves(word: u64) -> [u16; 2] {
    [word as u16, (word >> 16) as u16]
}

fn pack([low, high]: [u16; 2]) -> u64 {
    u64::from(high) << 16 | u64::from(low)
}

macro_rules! narrow {
    ($table:ident, $name:literal, $narrow:ty) => {
        narrow!($table, $name, $narrow, "add", sum);
        narrow!($table, $name, $narrow, "sub", difference);
        narrow!($table, $name, $narrow, "mul", product);
        narrow!($table, $name, $narrow, "add.rn", sum);
        narrow!($table, $name, $narrow, "sub.rn", difference);
        narrow!($table, $name, $narrow, "mul.rn", product);
        narrow!($table, $name, $narrow, "max", larger);
        narrow!($table, $name, $narrow, "min", smaller);
        $table.add(
            concat!("fma.rn.", $name),
            Apply::Three(|a, b, c| fused::<$narrow>(a as u16, b as u16, c as u16).into()),
        );
        $table.add(
            concat!("fma.rn.", $name, "x2"),
            Apply::Three(|a, b, c| {
                let [x, y, z] = [a, b, c].map(halves);
                pack([0, 1].map(|half| fused::<$narrow>(x[half], y[half], z[half])))
            }),
        );
        narrow!($table, $name, $narrow, one "neg", negated);
        narrow!($table, $name, $narrow, one "abs", magnitude);
    };
    ($table:ident, $name:literal, $narrow:ty, one $operation:literal, $apply:ident) => {
        $table.add(
            concat!($operation, ".", $name),
            Apply::One(|a| $apply::<$narrow>(a as u16).into()),
        );
        $table.add(
            concat!($operation, ".", $name, "x2"),
            Apply::One(|a| pack(halves(a).map($apply::<$narrow>))),
        );
    };
    ($table:ident, $name:literal, $narrow:ty, $operation:literal, $apply:ident) => {
        $table.add(
            concat!($operation, ".", $name),
            Apply::Two(|a, b| $apply::<$narrow>(a as u16, b as u16).into()),
        );
        $table.add(
            concat!($operation, ".", $name, "x2"),
            Apply::Two(|a, b| {
                let (x, y) = (halves(a), halves(b));
                pack([0, 1].map(|half| $apply::<$narrow>(x[half], y[half])))
            }),
        );
    };
}

pub(super) fn fill(table: &mut Table) {
    narrow!(table, "f16", F16);
    narrow!(table, "bf16", Bf16);
}
