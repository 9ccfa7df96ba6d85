//! Experiments of the instructions that are no functions of their operands alone.

mod barriers;
mod comparisons;
mod copies;
mod lanes;
mod matrices;
mod memory;
mod products;

use crate::experiment::{Experiment, Format, Model, THREADS, Tolerance, clustered, module};
use crate::operands::{Draw, Holds};

/// The sets of which each thread takes 8.
const SETS: usize = 8 * THREADS as usize;

/// What an experiment is made of.
struct Plan {
    row: &'static str,
    also: &'static [&'static str],
    part: &'static str,
    /// The shared and local variables.
    variables: &'static str,
    body: String,
    sets: usize,
    results: Vec<Format>,
    tolerance: Option<Tolerance>,
    blocks: u32,
}

impl Plan {
    /// Plans an experiment whose body stores `results` words of bits.
    fn new(row: &'static str, results: usize, body: impl Into<String>) -> Self {
        Self {
            row,
            also: &[],
            part: "",
            variables: "",
            body: body.into(),
            sets: SETS,
            results: vec![Format::Bits; results],
            tolerance: None,
            blocks: 1,
        }
    }

    fn also(self, also: &'static [&'static str]) -> Self {
        Self { also, ..self }
    }

    fn part(self, part: &'static str) -> Self {
        Self { part, ..self }
    }

    fn variables(self, variables: &'static str) -> Self {
        Self { variables, ..self }
    }

    fn sets(self, sets: usize) -> Self {
        Self { sets, ..self }
    }

    fn results(self, results: Vec<Format>) -> Self {
        Self { results, ..self }
    }

    /// Allows a distance of some ulp.
    fn within(self, ulps: u64) -> Self {
        Self {
            tolerance: Some(Tolerance {
                ulps,
                absolute_exponent: None,
            }),
            ..self
        }
    }

    /// Runs a cluster of two blocks.
    fn clustered(self) -> Self {
        Self { blocks: 2, ..self }
    }

    /// Draws the operands of all sets.
    fn on(self, operands: &[Holds]) -> Experiment {
        let mut draw = self.draw();
        let words = operands.len() * self.sets;
        let cycle = operands.iter().cycle().take(words);
        let drawn = cycle.map(|holds| holds.draw(&mut draw)).collect();
        self.with(operands.len(), drawn)
    }

    /// Draws all words by one function.
    fn drawn(self, words: usize, one: fn(&mut Draw) -> u64) -> Experiment {
        let mut draw = self.draw();
        let drawn = (0..words * self.sets).map(|_| one(&mut draw)).collect();
        self.with(words, drawn)
    }

    fn draw(&self) -> Draw {
        Draw::of(&format!("{} {}", self.row, self.part))
    }

    fn with(self, words: usize, operands: Vec<u64>) -> Experiment {
        let text = module(self.variables, &self.body, words, self.results.len());
        Experiment {
            row: self.row.to_owned(),
            also: self.also,
            part: self.part,
            text: if self.blocks == 1 {
                text
            } else {
                clustered(&text)
            },
            words,
            operands,
            results: self.results,
            tolerance: self.tolerance,
            model: None,
            blocks: self.blocks,
        }
    }
}

impl Experiment {
    /// Says what the card's results equal.
    fn modelled(self, model: Model) -> Self {
        Self {
            model: Some(model),
            ..self
        }
    }
}

/// Returns the loads of words of 32 bits to %r0 and up.
fn loads(count: usize) -> String {
    (0..count)
        .map(|index| format!("ld.global.b32 %r{index}, [%from+{}];\n", 8 * index))
        .collect()
}

/// Returns the stores of registers of 32 bits from `%r{first}` up.
fn stores(first: usize, count: usize) -> String {
    (0..count)
        .map(|index| format!("st.global.b32 [%to+{}], %r{};\n", 8 * index, first + index))
        .collect()
}

/// Returns `%r0, %r1` and so on.
fn registers(first: usize, count: usize) -> String {
    let names: Vec<String> = (first..first + count)
        .map(|index| format!("%r{index}"))
        .collect();
    names.join(", ")
}

/// Returns all experiments; those that could stop a card come last.
pub fn experiments() -> Vec<Experiment> {
    [
        comparisons::experiments(),
        memory::experiments(),
        lanes::experiments(),
        matrices::experiments(),
        barriers::experiments(),
        copies::experiments(),
        products::experiments(),
        vec![barriers::asynchronous_store()],
    ]
    .concat()
}
