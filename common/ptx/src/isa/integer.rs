//! Integer arithmetic, logic and moves.

use super::{Apply, Table, one, three, two};

pub(super) fn fill(table: &mut Table) {
    arithmetic(table);
    products(table);
    quotients(table);
    logic(table);
    shifts(table);
    fields(table);
    selections(table);
}

fn arithmetic(table: &mut Table) {
    two!(table, "add", ["u16" u16, "s16" u16, "u32" u32, "s32" u32, "u64" u64, "s64" u64], |a, b| a.wrapping_add(b));
    two!(table, "sub", ["u16" u16, "s16" u16, "u32" u32, "s32" u32, "u64" u64, "s64" u64], |a, b| a.wrapping_sub(b));
    two!(table, "min", ["u16" u16, "s16" i16, "u32" u32, "s32" i32, "u64" u64, "s64" i64], |a, b| a.min(b));
    two!(table, "max", ["u16" u16, "s16" i16, "u32" u32, "s32" i32, "u64" u64, "s64" i64], |a, b| a.max(b));
    two!(table, "add.sat", ["s32" i32], |a, b| a.saturating_add(b));
    two!(table, "sub.sat", ["s32" i32], |a, b| a.saturating_sub(b));
    one!(table, "neg", ["s16" i16, "s32" i32, "s64" i64], |a| a.wrapping_neg());
    one!(table, "abs", ["s16" i16, "s32" i32, "s64" i64], |a| a.wrapping_abs());
}

/// Adds a product of which the low half, the high half or the whole is taken.
macro_rules! product {
    ($table:ident, $suffix:literal, $type:ty, $wide:ty, $unsigned:ty) => {{
        use $crate::isa::Word;
        fn wide(a: u64, b: u64) -> $wide {
            <$wide>::from(<$type as Word>::take(a)).wrapping_mul(<$type as Word>::take(b).into())
        }
        fn high(a: u64, b: u64) -> $type {
            (wide(a, b) >> <$type>::BITS) as $type
        }
        fn low(a: u64, b: u64) -> $type {
            wide(a, b) as $type
        }
        $table.add(
            concat!("mul.lo.", $suffix),
            Apply::Two(|a, b| low(a, b).put()),
        );
        $table.add(
            concat!("mul.hi.", $suffix),
            Apply::Two(|a, b| high(a, b).put()),
        );
        $table.add(
            concat!("mad.lo.", $suffix),
            Apply::Three(|a, b, c| low(a, b).wrapping_add(Word::take(c)).put()),
        );
        $table.add(
            concat!("mad.hi.", $suffix),
            Apply::Three(|a, b, c| high(a, b).wrapping_add(Word::take(c)).put()),
        );
    }};
}

macro_rules! wide_product {
    ($table:ident, $suffix:literal, $type:ty, $wide:ty) => {{
        use $crate::isa::Word;
        fn wide(a: u64, b: u64) -> $wide {
            <$wide>::from(<$type as Word>::take(a)).wrapping_mul(<$type as Word>::take(b).into())
        }
        $table.add(
            concat!("mul.wide.", $suffix),
            Apply::Two(|a, b| wide(a, b).put()),
        );
        $table.add(
            concat!("mad.wide.", $suffix),
            Apply::Three(|a, b, c| wide(a, b).wrapping_add(Word::take(c)).put()),
        );
    }};
}

fn products(table: &mut Table) {
    product!(table, "u16", u16, u32, u16);
    product!(table, "s16", i16, i32, u16);
    product!(table, "u32", u32, u64, u32);
    product!(table, "s32", i32, i64, u32);
    product!(table, "u64", u64, u128, u64);
    product!(table, "s64", i64, i128, u64);
    wide_product!(table, "u16", u16, u32);
    wide_product!(table, "s16", i16, i32);
    wide_product!(table, "u32", u32, u64);
    wide_product!(table, "s32", i32, i64);
}

/// A division by zero yields all ones, and so does its remainder: the specification leaves both open,
/// and Hopper does this.
fn quotients(table: &mut Table) {
    two!(table, "div", ["u16" u16, "u32" u32, "u64" u64], |a, b| a.checked_div(b).unwrap_or(!0));
    two!(table, "div", ["s16" i16, "s32" i32, "s64" i64], |a, b| if b == 0 {
        -1
    } else {
        a.wrapping_div(b)
    });
    two!(table, "rem", ["u16" u16, "u32" u32, "u64" u64], |a, b| a.checked_rem(b).unwrap_or(!0));
    two!(table, "rem", ["s16" i16, "s32" i32, "s64" i64], |a, b| if b == 0 {
        -1
    } else {
        a.wrapping_rem(b)
    });
}

fn logic(table: &mut Table) {
    two!(table, "and", ["b16" u16, "b32" u32, "b64" u64, "pred" bool], |a, b| a & b);
    two!(table, "or", ["b16" u16, "b32" u32, "b64" u64, "pred" bool], |a, b| a | b);
    two!(table, "xor", ["b16" u16, "b32" u32, "b64" u64, "pred" bool], |a, b| a ^ b);
    one!(table, "not", ["b16" u16, "b32" u32, "b64" u64, "pred" bool], |a| !a);
    one!(table, "cnot", ["b16" u16, "b32" u32, "b64" u64], |a| (a == 0).into());
    one!(table, "mov", ["b16" u16, "u16" u16, "s16" u16, "b32" u32, "u32" u32, "s32" u32, "b64" u64, "u64" u64, "s64" u64, "pred" bool], |a| a);
    table.add("mov.f32", Apply::One(|a| a & u64::from(u32::MAX)));
    table.add("mov.f64", Apply::One(|a| a));
    one!(table, "popc", ["b32" u32], |a| a.count_ones());
    table.add("popc.b64", Apply::One(|a| a.count_ones().into()));
    one!(table, "clz", ["b32" u32], |a| a.leading_zeros());
    table.add("clz.b64", Apply::One(|a| a.leading_zeros().into()));
    one!(table, "brev", ["b32" u32, "b64" u64], |a| a.reverse_bits());
    one!(table, "bfind", ["u32" u32], |a| a.checked_ilog2().unwrap_or(u32::MAX));
    table.add(
        "lop3.b32",
        Apply::Four(|a, b, c, lookup| {
            let mut result = 0;
            for (row, [x, y, z]) in (0..8u64).map(|row| (row, [row >> 2, row >> 1, row])) {
                if lookup >> row & 1 == 1 {
                    let term = |word: u64, bit: u64| if bit & 1 == 1 { word } else { !word };
                    result |= term(a, x) & term(b, y) & term(c, z);
                }
            }
            result & u64::from(u32::MAX)
        }),
    );
}

/// Shifts by the width or more leave nothing, or the sign.
fn shifts(table: &mut Table) {
    table.add(
        "shl.b16",
        Apply::Two(|a, b| (a as u16).checked_shl(b as u32).unwrap_or(0).into()),
    );
    table.add(
        "shl.b32",
        Apply::Two(|a, b| (a as u32).checked_shl(b as u32).unwrap_or(0).into()),
    );
    table.add(
        "shl.b64",
        Apply::Two(|a, b| a.checked_shl(b as u32).unwrap_or(0)),
    );
    for name in ["shr.u16", "shr.b16"] {
        table.add(
            name,
            Apply::Two(|a, b| (a as u16).checked_shr(b as u32).unwrap_or(0).into()),
        );
    }
    for name in ["shr.u32", "shr.b32"] {
        table.add(
            name,
            Apply::Two(|a, b| (a as u32).checked_shr(b as u32).unwrap_or(0).into()),
        );
    }
    for name in ["shr.u64", "shr.b64"] {
        table.add(
            name,
            Apply::Two(|a, b| a.checked_shr(b as u32).unwrap_or(0)),
        );
    }
    table.add(
        "shr.s16",
        Apply::Two(|a, b| u64::from((a as i16 >> (b as u32).min(15)) as u16)),
    );
    table.add(
        "shr.s32",
        Apply::Two(|a, b| u64::from((a as i32 >> (b as u32).min(31)) as u32)),
    );
    table.add(
        "shr.s64",
        Apply::Two(|a, b| (a as i64 >> (b as u32).min(63)) as u64),
    );
    three!(table, "shf.l.wrap", ["b32" u32], |a, b, c| funnel_left(a, b, c & 31));
    three!(table, "shf.l.clamp", ["b32" u32], |a, b, c| funnel_left(a, b, c.min(32)));
    three!(table, "shf.r.wrap", ["b32" u32], |a, b, c| funnel_right(a, b, c & 31));
    three!(table, "shf.r.clamp", ["b32" u32], |a, b, c| funnel_right(a, b, c.min(32)));
}

fn funnel_left(low: u32, high: u32, shift: u32) -> u32 {
    let pair = u64::from(high) << 32 | u64::from(low);
    (pair << shift >> 32) as u32
}

fn funnel_right(low: u32, high: u32, shift: u32) -> u32 {
    let pair = u64::from(high) << 32 | u64::from(low);
    (pair >> shift) as u32
}

fn fields(table: &mut Table) {
    table.add(
        "bfi.b32",
        Apply::Four(|a, b, start, count| insert(a, b, start, count, 32)),
    );
    table.add(
        "bfi.b64",
        Apply::Four(|a, b, start, count| insert(a, b, start, count, 64)),
    );
    table.add(
        "bfe.u32",
        Apply::Three(|a, start, count| extract(a, start, count, 32)),
    );
    table.add(
        "bfe.u64",
        Apply::Three(|a, start, count| extract(a, start, count, 64)),
    );
    table.add(
        "bfe.s32",
        Apply::Three(|a, start, count| extract_signed(a, start, count, 32) & u64::from(u32::MAX)),
    );
    table.add(
        "bfe.s64",
        Apply::Three(|a, start, count| extract_signed(a, start, count, 64)),
    );
    table.add("prmt.b32", Apply::Three(permute));
}

fn low_mask(count: u64) -> u64 {
    if count >= 64 {
        u64::MAX
    } else {
        (1 << count) - 1
    }
}

fn insert(field: u64, word: u64, start: u64, count: u64, width: u64) -> u64 {
    let (first, bits) = (start & 0xff, count & 0xff);
    if first >= width {
        return word & low_mask(width);
    }
    let mask = low_mask(bits) << first & low_mask(width);
    (word & !mask | field << first & mask) & low_mask(width)
}

fn extract(word: u64, start: u64, count: u64, width: u64) -> u64 {
    let first = start & 0xff;
    if first >= width {
        return 0;
    }
    (word & low_mask(width)) >> first & low_mask(count & 0xff)
}

fn extract_signed(word: u64, start: u64, count: u64, width: u64) -> u64 {
    let (first, bits) = (start & 0xff, count & 0xff);
    if bits == 0 {
        return 0;
    }
    let sign_at = (first + bits - 1).min(width - 1);
    let sign = word >> sign_at & 1;
    let field = extract(word, start, count, width);
    let kept = bits.min(width.saturating_sub(first));
    if sign == 1 {
        field | !low_mask(kept)
    } else {
        field
    }
}

/// Takes four bytes of eight; bit 3 of a selector replicates the byte's sign.
fn permute(a: u64, b: u64, selectors: u64) -> u64 {
    let bytes = a & u64::from(u32::MAX) | b << 32;
    let mut result = 0;
    for place in 0..4 {
        let selector = selectors >> (4 * place);
        let byte = bytes >> (8 * (selector & 7)) & 0xff;
        let taken = match (selector & 8 != 0, byte & 0x80 != 0) {
            (false, _) => byte,
            (true, true) => 0xff,
            (true, false) => 0,
        };
        result |= taken << (8 * place);
    }
    result
}

fn selections(table: &mut Table) {
    for name in [
        "selp.b16", "selp.u16", "selp.s16", "selp.b32", "selp.u32", "selp.s32", "selp.f32",
        "selp.b64", "selp.u64", "selp.s64", "selp.f64",
    ] {
        table.add(
            name,
            Apply::Three(|a, b, is_first| if is_first & 1 == 1 { a } else { b }),
        );
    }
    for name in [
        "slct.u32.s32",
        "slct.s32.s32",
        "slct.b32.s32",
        "slct.f32.s32",
    ] {
        table.add(
            name,
            Apply::Three(|a, b, c| if c as i32 >= 0 { a } else { b }),
        );
    }
}
