//! Instructions whose result depends on their operands alone, each by its whole name.
//!
//! What is not in these tables, or is no variant of [`crate::step::Op`], is refused by name.

mod compare;
mod convert;
mod float;
pub(crate) mod half;
mod integer;
mod odd;
mod packed;

use std::collections::HashMap;
use std::sync::LazyLock;

pub(crate) use compare::{Relation, comparison};
pub(crate) use float::sum_in_global_memory;

/// How far a result is that of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fidelity {
    /// The specification defines every bit.
    Exact,
    /// The specification allows an error; the result here is rounded once.
    Approximate,
}

/// A function of its operands, by its whole name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Function {
    pub name: &'static str,
    pub operands: usize,
    pub fidelity: Fidelity,
}

/// Functions of words; a register holds its value in the low bits.
pub(crate) type Unary = fn(u64) -> u64;
pub(crate) type Binary = fn(u64, u64) -> u64;
pub(crate) type Ternary = fn(u64, u64, u64) -> u64;
pub(crate) type Quaternary = fn(u64, u64, u64, u64) -> u64;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Apply {
    One(Unary),
    Two(Binary),
    Three(Ternary),
    Four(Quaternary),
}

impl Apply {
    pub(crate) fn operands(self) -> usize {
        match self {
            Self::One(_) => 1,
            Self::Two(_) => 2,
            Self::Three(_) => 3,
            Self::Four(_) => 4,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pure {
    pub(crate) apply: Apply,
    pub(crate) fidelity: Fidelity,
    /// Whether a counter counts it as an exponential.
    pub(crate) is_exponential: bool,
}

/// The instructions by name.
#[derive(Default)]
pub(crate) struct Table(HashMap<String, Pure>);

impl Table {
    fn add(&mut self, name: impl Into<String>, apply: Apply) {
        self.insert(name.into(), apply, Fidelity::Exact, false);
    }

    fn add_approximate(&mut self, name: impl Into<String>, apply: Apply) {
        self.insert(name.into(), apply, Fidelity::Approximate, false);
    }

    fn add_exponential(&mut self, name: impl Into<String>, apply: Apply) {
        self.insert(name.into(), apply, Fidelity::Approximate, true);
    }

    fn insert(&mut self, name: String, apply: Apply, fidelity: Fidelity, is_exponential: bool) {
        let pure = Pure {
            apply,
            fidelity,
            is_exponential,
        };
        let known = self.0.insert(name, pure);
        debug_assert!(known.is_none(), "an instruction stands in the tables once");
    }
}

static TABLE: LazyLock<Table> = LazyLock::new(|| {
    let mut table = Table::default();
    integer::fill(&mut table);
    float::fill(&mut table);
    convert::fill(&mut table);
    packed::fill(&mut table);
    table
});

pub(crate) fn find(name: &str) -> Option<Pure> {
    TABLE.0.get(name).copied()
}

/// Returns the functions of the tables, sorted by name.
pub(crate) fn listed() -> Vec<Function> {
    let mut all: Vec<_> = TABLE
        .0
        .iter()
        .map(|(name, pure)| Function {
            name,
            operands: pure.apply.operands(),
            fidelity: pure.fidelity,
        })
        .collect();
    all.sort_unstable_by_key(|function| function.name);
    all
}

/// A value in the low bits of a word.
pub(crate) trait Word: Copy {
    fn take(word: u64) -> Self;
    fn put(self) -> u64;
}

macro_rules! words {
    ($($type:ty as $unsigned:ty),*) => {
        $(impl Word for $type {
            #[inline]
            fn take(word: u64) -> Self {
                word as $type
            }

            #[inline]
            fn put(self) -> u64 {
                u64::from(self as $unsigned)
            }
        })*
    };
}

words!(
    u8 as u8, i8 as u8, u16 as u16, i16 as u16, u32 as u32, i32 as u32, u64 as u64, i64 as u64
);

impl Word for f32 {
    #[inline]
    fn take(word: u64) -> Self {
        Self::from_bits(word as u32)
    }

    #[inline]
    fn put(self) -> u64 {
        self.to_bits().into()
    }
}

impl Word for f64 {
    #[inline]
    fn take(word: u64) -> Self {
        Self::from_bits(word)
    }

    #[inline]
    fn put(self) -> u64 {
        self.to_bits()
    }
}

impl Word for bool {
    #[inline]
    fn take(word: u64) -> Self {
        word & 1 == 1
    }

    #[inline]
    fn put(self) -> u64 {
        self.into()
    }
}

/// Adds a function of one, two or three values of a type, which names the instruction's end.
macro_rules! one {
    ($table:ident, $name:literal, [$($suffix:literal $type:ty),*], $apply:expr) => {
        $($table.add(concat!($name, ".", $suffix), $crate::isa::Apply::One(|a| {
            let apply: fn($type) -> $type = $apply;
            $crate::isa::Word::put(apply($crate::isa::Word::take(a)))
        }));)*
    };
}

macro_rules! two {
    ($table:ident, $name:literal, [$($suffix:literal $type:ty),*], $apply:expr) => {
        $($table.add(concat!($name, ".", $suffix), $crate::isa::Apply::Two(|a, b| {
            let apply: fn($type, $type) -> $type = $apply;
            $crate::isa::Word::put(apply(
                $crate::isa::Word::take(a),
                $crate::isa::Word::take(b),
            ))
        }));)*
    };
}

macro_rules! three {
    ($table:ident, $name:literal, [$($suffix:literal $type:ty),*], $apply:expr) => {
        $($table.add(concat!($name, ".", $suffix), $crate::isa::Apply::Three(|a, b, c| {
            let apply: fn($type, $type, $type) -> $type = $apply;
            $crate::isa::Word::put(apply(
                $crate::isa::Word::take(a),
                $crate::isa::Word::take(b),
                $crate::isa::Word::take(c),
            ))
        }));)*
    };
}

pub(crate) use {one, three, two};

#[cfg(test)]
mod tests;
