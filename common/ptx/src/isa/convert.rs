//! `cvt`, by the names of both types.

use super::float::canonical;
use super::half::{from_bf16, from_e4m3, from_e5m2, from_f16, to_bf16, to_e4m3, to_f16};
use super::{Apply, Table, Word};

macro_rules! integers {
    ($table:ident, $([$to:literal $target:ty]),*) => {
        $(from_integers!($table, $to, $target,
            ["u8" u8], ["s8" i8], ["u16" u16], ["s16" i16], ["u32" u32], ["s32" i32], ["u64" u64], ["s64" i64]);)*
    };
}

/// A result is extended by its sign to the width of its register, which may be wider than the type.
/// PTX has `.sat` where a value can be out of range alone.
macro_rules! from_integers {
    ($table:ident, $to:literal, $target:ty, $([$from:literal $source:ty]),*) => {
        $(
            $table.add(concat!("cvt.", $to, ".", $from), Apply::One(|a| (<$source>::take(a) as $target) as u64));
            let range = i128::from(<$target>::MIN)..=i128::from(<$target>::MAX);
            if !range.contains(&<$source>::MIN.into()) || !range.contains(&<$source>::MAX.into()) {
                $table.add(concat!("cvt.sat.", $to, ".", $from), Apply::One(|a| {
                    let value = i128::from(<$source>::take(a));
                    (value.clamp(<$target>::MIN.into(), <$target>::MAX.into()) as $target) as u64
                }));
            }
        )*
    };
}

macro_rules! to_floats {
    ($table:ident, $([$from:literal $source:ty]),*) => {
        $(
            $table.add(concat!("cvt.rn.f32.", $from), Apply::One(|a| (<$source>::take(a) as f32).put()));
            $table.add(concat!("cvt.rn.f64.", $from), Apply::One(|a| (<$source>::take(a) as f64).put()));
            $table.add(concat!("cvt.rn.f16.", $from), Apply::One(|a| to_f16(<$source>::take(a) as f32).put()));
        )*
    };
}

/// Out of range is the nearest integer, as Rust has it too. A NaN becomes 0; where source or result
/// has 64 bits, it becomes the integer whose upper bit alone is set.
macro_rules! from_floats {
    ($table:ident, $([$to:literal $target:ty]),*) => {
        $(
            $table.add(concat!("cvt.rzi.", $to, ".f32"), Apply::One(|a| integer!(f32, $target, a, trunc)));
            $table.add(concat!("cvt.rni.", $to, ".f32"), Apply::One(|a| integer!(f32, $target, a, round_ties_even)));
            $table.add(concat!("cvt.rmi.", $to, ".f32"), Apply::One(|a| integer!(f32, $target, a, floor)));
            $table.add(concat!("cvt.rpi.", $to, ".f32"), Apply::One(|a| integer!(f32, $target, a, ceil)));
            $table.add(concat!("cvt.rzi.", $to, ".f64"), Apply::One(|a| integer!(f64, $target, a, trunc)));
        )*
    };
}

macro_rules! integer {
    ($source:ty, $target:ty, $word:expr, $round:ident) => {{
        let value = <$source>::take($word);
        if value.is_nan() && size_of::<$source>().max(size_of::<$target>()) == 8 {
            1 << (<$target>::BITS - 1)
        } else {
            (value.$round() as $target).put()
        }
    }};
}

pub(super) fn fill(table: &mut Table) {
    integers!(table, ["u8" u8], ["s8" i8], ["u16" u16], ["s16" i16], ["u32" u32], ["s32" i32], ["u64" u64], ["s64" i64]);
    to_floats!(table, ["u16" u16], ["s16" i16], ["u32" u32], ["s32" i32], ["u64" u64], ["s64" i64]);
    from_floats!(table, ["u32" u32], ["s32" i32], ["u64" u64], ["s64" i64]);
    between_floats(table);
    pairs(table);
}

fn between_floats(table: &mut Table) {
    table.add("cvt.f32.f16", Apply::One(|a| canonical(from_f16(a as u16))));
    table.add("cvt.f32.bf16", Apply::One(|a| from_bf16(a as u16).put()));
    table.add(
        "cvt.rn.f16.f32",
        Apply::One(|a| to_f16(f32::take(a)).into()),
    );
    table.add(
        "cvt.rn.bf16.f32",
        Apply::One(|a| to_bf16(f32::take(a)).into()),
    );
    table.add("cvt.f64.f32", Apply::One(|a| f64::from(f32::take(a)).put()));
    table.add(
        "cvt.rn.f32.f64",
        Apply::One(|a| (f64::take(a) as f32).put()),
    );
    table.add(
        "cvt.rni.f32.f32",
        Apply::One(|a| canonical(f32::take(a).round_ties_even())),
    );
    table.add(
        "cvt.rzi.f32.f32",
        Apply::One(|a| canonical(f32::take(a).trunc())),
    );
    table.add(
        "cvt.rmi.f32.f32",
        Apply::One(|a| canonical(f32::take(a).floor())),
    );
    table.add(
        "cvt.rpi.f32.f32",
        Apply::One(|a| canonical(f32::take(a).ceil())),
    );
}

/// Packs two codes of 16 bits, the first operand in the upper half.
fn pack(upper: u16, lower: u16) -> u64 {
    u64::from(upper) << 16 | u64::from(lower)
}

/// Returns the code of the largest number in place of that of an infinity, with its sign.
fn finite(code: u16, infinity: u16) -> u16 {
    if code & 0x7fff == infinity {
        code - 1
    } else {
        code
    }
}

fn pairs(table: &mut Table) {
    table.add(
        "cvt.rn.f16x2.f32",
        Apply::Two(|a, b| pack(to_f16(f32::take(a)), to_f16(f32::take(b)))),
    );
    table.add(
        "cvt.rn.bf16x2.f32",
        Apply::Two(|a, b| pack(to_bf16(f32::take(a)), to_bf16(f32::take(b)))),
    );
    table.add(
        "cvt.rn.satfinite.f16x2.f32",
        Apply::Two(|a, b| {
            let code = |bits| finite(to_f16(f32::take(bits)), 0x7c00);
            pack(code(a), code(b))
        }),
    );
    table.add(
        "cvt.rn.satfinite.bf16x2.f32",
        Apply::Two(|a, b| {
            let code = |bits| finite(to_bf16(f32::take(bits)), 0x7f80);
            pack(code(a), code(b))
        }),
    );
    table.add(
        "cvt.rn.satfinite.e4m3x2.f32",
        Apply::Two(|a, b| u64::from(to_e4m3(f32::take(a))) << 8 | u64::from(to_e4m3(f32::take(b)))),
    );
    table.add(
        "cvt.rn.f16x2.e4m3x2",
        Apply::One(|a| {
            pack(
                to_f16(from_e4m3((a >> 8) as u8)),
                to_f16(from_e4m3(a as u8)),
            )
        }),
    );
    table.add(
        "cvt.rn.f16x2.e5m2x2",
        Apply::One(|a| {
            pack(
                to_f16(from_e5m2((a >> 8) as u8)),
                to_f16(from_e5m2(a as u8)),
            )
        }),
    );
}
