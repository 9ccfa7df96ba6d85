//! The body of an entry to instructions with resolved operands.

mod atomics;
mod basic;
mod calls;
mod copies;
mod labels;
mod matrix;
mod names;
mod operands;
mod outcome;
mod synchronisation;

use std::collections::{BTreeSet, HashMap, HashSet};

use emulator::Place;
use emulator::guest::Site;

use crate::parse::error::ParseError;
use crate::parse::places::{Places, useful};
use crate::parse::scan::{Piece, Scanner, split_operands};
use crate::parse::{Entry, Module, Refusal};
use crate::program::{Bank, Program};
use crate::step::{Guard, Op, Slot, Step};
use labels::Labels;
use names::Names;
use outcome::Result;

impl Module {
    /// Decodes an entry.
    ///
    /// # Errors
    ///
    /// An entry that is not there, or what its body has that is refused.
    pub fn entry(&self, name: &str) -> std::result::Result<Program, ParseError> {
        let entry = self.find(name)?;
        decode(self, entry, self.body(entry)).map_err(|refusal| refusal.of_file(&self.file))
    }
}

/// An instruction as its text has it.
#[derive(Clone, Copy, Debug)]
struct Text<'a> {
    line: u32,
    opcode: &'a str,
    operands: &'a [&'a str],
}

impl<'a> Text<'a> {
    fn unknown(&self) -> Refusal {
        Refusal::unknown(self.line, self.opcode)
    }

    fn invalid(&self, reason: impl AsRef<str>) -> Refusal {
        Refusal::invalid(self.line, format!("`{}`: {}", self.opcode, reason.as_ref()))
    }

    fn operand(&self, index: usize) -> Result<&'a str> {
        self.operands
            .get(index)
            .copied()
            .ok_or_else(|| self.invalid(format!("operand {} is missing", index + 1)))
    }

    fn demand_operands(&self, least: usize, most: usize) -> Result<()> {
        let count = self.operands.len();
        if (least..=most).contains(&count) {
            return Ok(());
        }
        Err(self.invalid(format!(
            "{count} operands, where it takes {least} to {most}"
        )))
    }

    fn parts(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        self.opcode.split('.')
    }

    /// Returns the last part of the opcode: the type of its literals.
    fn type_name(&self) -> &'a str {
        self.parts().next_back_part()
    }
}

trait LastPart<'a> {
    fn next_back_part(self) -> &'a str;
}

impl<'a, I: Iterator<Item = &'a str>> LastPart<'a> for I {
    fn next_back_part(self) -> &'a str {
        self.last().unwrap_or_default()
    }
}

struct Decoder<'a> {
    module: &'a Module,
    names: Names<'a>,
    places: Places,
    steps: Vec<Step>,
    labels: Labels,
    sites: HashMap<SiteKey, Site>,
    opcodes: BTreeSet<String>,
    banks: Vec<Bank>,
    bank_words: u32,
    fragments: HashSet<Slot>,
    is_inline: bool,
    /// The functions whose bodies are open, outermost first.
    calls: Vec<String>,
    /// The lines of the calls of these functions, innermost first.
    callers: Vec<Place>,
    /// The places of calls that are kept, for all instructions.
    passed: usize,
}

/// Instructions with the same key share a site.
#[derive(PartialEq, Eq, Hash)]
struct SiteKey {
    frames: Vec<Place>,
    line: u32,
}

pub(crate) fn decode(module: &Module, entry: &Entry, mut body: Scanner<'_>) -> Result<Program> {
    let mut places = module.places.clone();
    places.restart();
    let mut decoder = Decoder {
        module,
        names: Names::new(module, entry),
        places,
        steps: Vec::new(),
        labels: Labels::default(),
        sites: HashMap::new(),
        opcodes: BTreeSet::new(),
        banks: Vec::new(),
        bank_words: 0,
        fragments: HashSet::new(),
        is_inline: false,
        calls: Vec::new(),
        callers: Vec::new(),
        passed: 0,
    };
    decoder.read(&mut body)?;
    decoder.finish(entry)
}

impl Decoder<'_> {
    fn read(&mut self, body: &mut Scanner<'_>) -> Result<()> {
        let mut depth = 1;
        while depth > 0 {
            let Some(piece) = body.next()? else {
                let line = body.position().1;
                return Err(Refusal::invalid(line, "the body has no `}`"));
            };
            match piece {
                Piece::Close => {
                    depth -= 1;
                    self.names.leave();
                    self.labels.leave();
                }
                Piece::Open { line, text } => {
                    if !text.is_empty() {
                        return Err(Refusal::unknown(line, text));
                    }
                    depth += 1;
                    self.names.enter();
                    self.labels.enter();
                }
                Piece::Line { text, .. } => {
                    if text.starts_with(".loc") {
                        self.places.locate(text);
                    } else if text.starts_with(".file") {
                        self.places.file(text);
                    }
                }
                Piece::Label { line, name } => {
                    self.labels.define(line, name, self.steps.len())?;
                }
                Piece::Inline { begins } => self.is_inline = begins,
                Piece::Statement { line, text } => self.statement(line, text)?,
            }
        }
        Ok(())
    }

    fn statement(&mut self, line: u32, text: &str) -> Result<()> {
        if let Some(directive) = text.strip_prefix('.') {
            if directive.starts_with("pragma") {
                return Ok(());
            }
            return self.names.declare(line, text);
        }
        if text.is_empty() || declares_targets(text) {
            return Ok(());
        }
        let (predicate, instruction) = match text.strip_prefix('@') {
            Some(rest) => rest
                .trim_start()
                .split_once(char::is_whitespace)
                .ok_or_else(|| Refusal::invalid(line, "a predicate without an instruction"))?,
            None => ("", text),
        };
        let (opcode, operands) = match instruction.trim().split_once([' ', '\t', '\n']) {
            Some((opcode, rest)) => (opcode, split_operands(rest)),
            None => (instruction.trim(), Vec::new()),
        };
        let instruction_text = Text {
            line,
            opcode,
            operands: &operands,
        };
        let guard = self.guard(line, predicate)?;
        self.opcodes.insert(opcode.to_owned());
        if matches!(opcode, "call" | "call.uni") {
            return self.call(&instruction_text, guard);
        }
        let op = self.op(&instruction_text)?;
        let site = self.site(line);
        self.steps.push(Step {
            op,
            guard,
            touches_product: false,
            site,
        });
        Ok(())
    }

    fn guard(&mut self, line: u32, text: &str) -> Result<Option<Guard>> {
        if text.is_empty() {
            return Ok(None);
        }
        let name = text.trim_start_matches('!');
        Ok(Some(Guard {
            predicate: self.names.register(line, name)?,
            is_negated: name.len() != text.len(),
        }))
    }

    /// Returns the site of the instruction at hand: its source line, or that of the PTX text.
    fn site(&mut self, line: u32) -> Site {
        let mut frames = self.frames(line);
        frames.extend_from_slice(&self.callers);
        let key = SiteKey { frames, line };
        if let Some(&known) = self.sites.get(&key) {
            return known;
        }
        self.passed += self.callers.len();
        let site = Site::new(&key.frames[0], key.frames.clone());
        self.sites.insert(key, site);
        site
    }

    /// Returns the source lines of the instruction at hand, or that of the PTX text.
    fn frames(&self, line: u32) -> Vec<Place> {
        let mut frames = useful(self.places.frames(), self.is_inline);
        if frames.is_empty() {
            frames.push(Place {
                file: self.module.file.clone(),
                line,
            });
        }
        frames
    }

    fn op(&mut self, text: &Text<'_>) -> Result<Op> {
        match text.parts().next().unwrap_or_default() {
            "bra" | "ret" | "exit" | "trap" | "setp" | "mov" | "nanosleep" | "griddepcontrol" => {
                self.basic(text)
            }
            "ld" | "ldu" | "st" | "cvta" | "isspacep" | "mapa" => self.memory(text),
            "atom" | "red" => self.atomic(text),
            "bar" | "barrier" | "fence" | "membar" | "mbarrier" | "setmaxnreg" => {
                self.synchronisation(text)
            }
            "shfl" | "vote" | "elect" | "redux" => self.exchange(text),
            "cp" | "prefetch" => self.copy(text),
            "ldmatrix" | "stmatrix" | "mma" | "wmma" => self.warp_matrix(text),
            "wgmma" => self.warpgroup(text),
            _ => self.pure(text),
        }
    }

    fn resolve_jumps(&mut self) -> Result<()> {
        for jump in self.labels.jumps() {
            self.steps[jump.step].op = Op::Branch(self.labels.target(jump)?);
        }
        Ok(())
    }

    fn finish(mut self, entry: &Entry) -> Result<Program> {
        self.resolve_jumps()?;
        let mut held = self.fragments.clone();
        for bank in &self.banks {
            held.extend(bank.registers.iter().copied());
        }
        for step in &mut self.steps {
            let mut touches = false;
            step.op
                .each_slot(&mut |slot, _| touches |= held.contains(&slot));
            step.touches_product = touches;
        }
        let site = self.site(entry.line);
        self.steps.push(Step {
            op: Op::Exit,
            guard: None,
            touches_product: false,
            site,
        });
        Ok(self.names.finish(Program {
            name: entry.name.clone(),
            steps: self.steps,
            registers: 0,
            constants: Vec::new(),
            static_shared_bytes: 0,
            local_bytes: 0,
            parameters: entry.parameters.clone(),
            parameter_bytes: entry.parameter_bytes,
            threads: entry.threads,
            most_threads: entry.most_threads,
            cluster: entry.cluster.map(|extent| extent.iter().product()),
            banks: self.banks,
            bank_words: self.bank_words,
            globals: Vec::new(),
            opcodes: self.opcodes.into_iter().collect(),
        }))
    }
}

/// Returns whether a statement names what a call through a register may reach.
fn declares_targets(text: &str) -> bool {
    text.split_once(':').is_some_and(|(_, rest)| {
        let declared = rest.trim_start();
        declared.starts_with(".callprototype") || declared.starts_with(".calltargets")
    })
}
