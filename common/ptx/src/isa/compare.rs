//! Comparisons of `setp` and `set`, by the name of the relation and of the type.

use super::Word;
use super::half::{from_bf16, from_f16};

/// A relation between two words.
pub(crate) type Relation = fn(u64, u64) -> bool;

macro_rules! ordered {
    ($type:ty, $relation:expr) => {
        match $relation {
            "eq" => |a, b| <$type>::take(a) == <$type>::take(b),
            "ne" => |a, b| <$type>::take(a) != <$type>::take(b),
            "lt" | "lo" => |a, b| <$type>::take(a) < <$type>::take(b),
            "le" | "ls" => |a, b| <$type>::take(a) <= <$type>::take(b),
            "gt" | "hi" => |a, b| <$type>::take(a) > <$type>::take(b),
            "ge" | "hs" => |a, b| <$type>::take(a) >= <$type>::take(b),
            _ => return None,
        }
    };
}

/// Relations of numbers are false for a NaN, but for `ne`, of which only ordered pairs are; those
/// that end in `u` are true for one.
macro_rules! float {
    ($relation:expr, $value:expr) => {
        match $relation {
            "eq" => |a, b| $value(a) == $value(b),
            "ne" => |a, b| $value(a) < $value(b) || $value(a) > $value(b),
            "lt" => |a, b| $value(a) < $value(b),
            "le" => |a, b| $value(a) <= $value(b),
            "gt" => |a, b| $value(a) > $value(b),
            "ge" => |a, b| $value(a) >= $value(b),
            "equ" => |a, b| !($value(a) < $value(b) || $value(a) > $value(b)),
            "neu" => |a, b| $value(a) != $value(b),
            "ltu" => |a, b| !($value(a) >= $value(b)),
            "leu" => |a, b| !($value(a) > $value(b)),
            "gtu" => |a, b| !($value(a) <= $value(b)),
            "geu" => |a, b| !($value(a) < $value(b)),
            "num" => |a, b| !$value(a).is_nan() && !$value(b).is_nan(),
            "nan" => |a, b| $value(a).is_nan() || $value(b).is_nan(),
            _ => return None,
        }
    };
}

fn single(word: u64) -> f32 {
    f32::take(word)
}

fn flushed(word: u64) -> f32 {
    let value = f32::take(word);
    if value.is_subnormal() { 0.0 } else { value }
}

fn double(word: u64) -> f64 {
    f64::take(word)
}

fn half(word: u64) -> f32 {
    from_f16(word as u16)
}

fn brain(word: u64) -> f32 {
    from_bf16(word as u16)
}

#[expect(
    clippy::neg_cmp_op_on_partial_ord,
    reason = "a NaN makes the negated relation true, as PTX wants"
)]
pub(crate) fn comparison(relation: &str, ftz: bool, of: &str) -> Option<Relation> {
    if ftz && of != "f32" {
        return None;
    }
    let is_bits = of.starts_with('b') && of != "bf16";
    if is_bits && !matches!(relation, "eq" | "ne") {
        return None;
    }
    let function: Relation = match of {
        "u16" | "b16" => ordered!(u16, relation),
        "s16" => ordered!(i16, relation),
        "u32" | "b32" => ordered!(u32, relation),
        "s32" => ordered!(i32, relation),
        "u64" | "b64" => ordered!(u64, relation),
        "s64" => ordered!(i64, relation),
        "f32" if ftz => float!(relation, flushed),
        "f32" => float!(relation, single),
        "f64" => float!(relation, double),
        "f16" => float!(relation, half),
        "bf16" => float!(relation, brain),
        _ => return None,
    };
    Some(function)
}
