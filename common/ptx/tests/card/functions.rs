//! Experiments of the functions of operands, each from its name alone.

use std::fmt::Write;

use ptx::Fidelity;
use ptx::instructions::{Function, functions};

use crate::experiment::{Experiment, Format, THREADS, Tolerance, module};
use crate::operands::{Draw, Holds, all};

/// The sets of an instruction of several operands.
const SETS: usize = 16 * THREADS as usize;

/// The sets of which all results are kept.
const KEPT_SETS: usize = 4 * THREADS as usize;

/// A type as an instruction names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Type(&'static str);

impl Type {
    fn bits(self) -> u32 {
        match self.0 {
            "pred" => 1,
            "u8" | "s8" | "b8" => 8,
            "u16" | "s16" | "b16" | "f16" | "bf16" | "e4m3x2" | "e5m2x2" => 16,
            "u64" | "s64" | "b64" | "f64" => 64,
            _ => 32,
        }
    }

    fn holds(self) -> Holds {
        match self.0 {
            "pred" => Holds::Predicate,
            "shift" => Holds::Shift,
            "place" => Holds::Place,
            "f16" => Holds::F16,
            "bf16" => Holds::Bf16,
            "f16x2" => Holds::F16x2,
            "bf16x2" => Holds::Bf16x2,
            "f32" => Holds::F32,
            "f64" => Holds::F64,
            "angle" => Holds::Angle,
            "exponent" => Holds::Exponent,
            "ordinary" => Holds::Ordinary,
            _ => Holds::Integer(self.bits()),
        }
    }

    fn format(self) -> Format {
        match self.0 {
            "f16" => Format::F16,
            "bf16" => Format::Bf16,
            "f16x2" => Format::F16x2,
            "bf16x2" => Format::Bf16x2,
            "f32" => Format::F32,
            "f64" => Format::F64,
            _ => Format::Bits,
        }
    }

    /// Returns the register of an operand. Values of 8 bits have wider registers in PTX.
    fn register(self, index: usize) -> String {
        let letter = match self.bits() {
            1 => 'p',
            16 => 'h',
            64 => 'd',
            _ => 'r',
        };
        format!("%{letter}{index}")
    }

    /// Returns the instructions that load an operand.
    fn load(self, index: usize) -> String {
        let (register, offset) = (self.register(index), 8 * index);
        match self.bits() {
            1 => format!(
                "ld.global.b32 %r{index}, [%from+{offset}];\n\
                 setp.ne.b32 {register}, %r{index}, 0;\n"
            ),
            16 => format!("ld.global.b16 {register}, [%from+{offset}];\n"),
            64 => format!("ld.global.b64 {register}, [%from+{offset}];\n"),
            _ => format!("ld.global.b32 {register}, [%from+{offset}];\n"),
        }
    }

    /// Returns the instructions that store a result.
    fn store(self, index: usize, word: usize) -> String {
        let (register, offset) = (self.register(index), 8 * word);
        match self.bits() {
            1 => format!(
                "selp.b32 %r{index}, 1, 0, {register};\nst.global.b32 [%to+{offset}], %r{index};\n"
            ),
            16 => format!("st.global.b16 [%to+{offset}], {register};\n"),
            64 => format!("st.global.b64 [%to+{offset}], {register};\n"),
            _ => format!("st.global.b32 [%to+{offset}], {register};\n"),
        }
    }
}

/// The types of a function's result and operands.
struct Signature {
    to: Type,
    from: Vec<Type>,
}

fn doubled(name: &str) -> &'static str {
    match name {
        "u16" => "u32",
        "s16" => "s32",
        "u32" => "u64",
        _ => "s64",
    }
}

impl Signature {
    fn of(function: &Function) -> Self {
        let parts: Vec<&'static str> = function.name.split('.').collect();
        let last = parts[parts.len() - 1];
        let before = parts[parts.len() - 2];
        let (to, from): (&'static str, Vec<&'static str>) = match parts[0] {
            "cvt" => (before, vec![last; function.operands]),
            "slct" => (before, vec![before, before, last]),
            "selp" => (last, vec![last, last, "pred"]),
            "mul" if before == "wide" => (doubled(last), vec![last, last]),
            "mad" if before == "wide" => (doubled(last), vec![last, last, doubled(last)]),
            "shl" | "shr" => (last, vec![last, "shift"]),
            "shf" => (last, vec![last, last, "shift"]),
            "bfe" => (last, vec![last, "place", "place"]),
            "bfi" => (last, vec![last, last, "place", "place"]),
            "popc" | "clz" | "bfind" => ("u32", vec![last]),
            "sin" | "cos" => (last, vec!["angle"]),
            "ex2" => (last, vec!["exponent"]),
            "lop3" => (last, vec![last; 3]),
            _ if function.fidelity == Fidelity::Approximate => {
                (last, vec!["ordinary"; function.operands])
            }
            _ => (last, vec![last; function.operands]),
        };
        Self {
            to: Type(to),
            from: from.into_iter().map(Type).collect(),
        }
    }

    fn operand_sets(&self, function: &Function) -> Vec<u64> {
        let mut draw = Draw::of(function.name);
        if let [only] = self.from.as_slice()
            && let Some(count) = all(only.holds())
        {
            return (0..count).collect();
        }
        let sets = match function.fidelity {
            Fidelity::Exact => SETS,
            Fidelity::Approximate => KEPT_SETS,
        };
        let mut words = Vec::with_capacity(sets * self.from.len());
        for _ in 0..sets {
            let set: Vec<u64> = self
                .from
                .iter()
                .map(|of| of.holds().draw(&mut draw))
                .collect();
            if self.is_specified(&set) {
                words.extend(set);
            }
        }
        words
    }

    /// Returns whether the specification bounds the error: it does so for angles up to two pi.
    fn is_specified(&self, set: &[u64]) -> bool {
        self.from.iter().zip(set).all(|(of, &word)| {
            let angle = f32::from_bits(word as u32).abs();
            of.0 != "angle" || !angle.is_finite() || angle <= std::f32::consts::TAU
        })
    }
}

/// Returns the errors that the specification allows. One of 2^-N of a result is at most 2^(24-N) ulp;
/// the rounding here is half of one.
fn tolerance(function: &Function) -> Option<Tolerance> {
    if function.fidelity == Fidelity::Exact {
        return None;
    }
    let (ulps, absolute_exponent) = match function.name.split('.').next() {
        Some("sin" | "cos") => (0, Some(-20)),
        Some("lg2") => (5, Some(-22)),
        Some("ex2" | "rsqrt") => (5, None),
        Some("tanh") => (1 << 13, None),
        _ => (2, None),
    };
    Some(Tolerance {
        ulps,
        absolute_exponent,
    })
}

fn experiment(function: &Function) -> Experiment {
    let signature = Signature::of(function);
    let count = signature.from.len();
    let mut body = String::new();
    let mut registers = signature.to.register(count);
    for (index, of) in signature.from.iter().enumerate() {
        body += &of.load(index);
        let _ = write!(registers, ", {}", of.register(index));
    }
    let mut results = 1;
    if function.name == "lop3.b32" {
        // The table is part of the instruction.
        results = 256;
        for table in 0..results {
            let _ = writeln!(body, "{} {registers}, {table};", function.name);
            body += &signature.to.store(count, table);
        }
    } else {
        let _ = writeln!(body, "{} {registers};", function.name);
        body += &signature.to.store(count, 0);
    }
    Experiment {
        row: function.name.to_owned(),
        also: &[],
        part: "",
        text: module("", &body, count, results),
        words: count,
        operands: signature.operand_sets(function),
        results: vec![signature.to.format(); results],
        tolerance: tolerance(function),
        model: None,
        blocks: 1,
    }
}

/// Returns an experiment for each function.
pub fn experiments() -> Vec<Experiment> {
    functions().iter().map(experiment).collect()
}
