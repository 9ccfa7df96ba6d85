//! Arithmetic on values of 16 bits, alone and in pairs. Sums and products of such values are exact
//! in FP64, so that a result is rounded once.

use super::float::lies_above;
use super::half::{from_bf16, from_f16, to_bf16, to_f16};
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

/// Rounds to an odd FP32, from which a second rounding to a narrower format is exact.
fn to_odd(value: f64) -> f32 {
    let near = value as f32;
    let back = f64::from(near);
    if back == value || value.is_nan() || near.is_infinite() || near.to_bits() & 1 == 1 {
        return near;
    }
    let is_toward_zero = back.abs() < value.abs();
    let bits = near.to_bits();
    f32::from_bits(if is_toward_zero { bits + 1 } else { bits - 1 })
}

fn fused<N: Narrow>(a: u16, b: u16, c: u16) -> u16 {
    let [x, y, z] = [a, b, c].map(|code| f64::from(N::value(code)));
    N::code(to_odd(x.mul_add(y, z)))
}

fn sum<N: Narrow>(a: u16, b: u16) -> u16 {
    N::code(to_odd(f64::from(N::value(a)) + f64::from(N::value(b))))
}

fn difference<N: Narrow>(a: u16, b: u16) -> u16 {
    N::code(to_odd(f64::from(N::value(a)) - f64::from(N::value(b))))
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
        $table.add(
            concat!("neg.", $name),
            Apply::One(|a| (a ^ 0x8000) & 0xffff),
        );
        $table.add(
            concat!("neg.", $name, "x2"),
            Apply::One(|a| (a ^ 0x8000_8000) & 0xffff_ffff),
        );
        $table.add(concat!("abs.", $name), Apply::One(|a| a & 0x7fff));
        $table.add(
            concat!("abs.", $name, "x2"),
            Apply::One(|a| a & 0x7fff_7fff),
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
