//! Calls of device functions. A function's steps stand in its caller's, once for each call, so that
//! a place knows from where it was reached.

use std::collections::HashMap;

use emulator::Place;

use super::labels::Labels;
use super::operands::list_in;
use super::{Decoder, Result, Text};
use crate::parse::Function;
use crate::parse::places::Places;
use crate::step::{Constant, Guard, Op, Step};

/// The label behind the last instruction of a function, where `ret` goes. No text has it.
const END: &str = "";

/// The most instructions that an entry has with those of the functions that it calls.
const MOST_STEPS: usize = 1 << 20;

/// The most calls that are open within each other: the decoder's own stack holds each.
const MOST_OPEN: usize = 256;

/// The most places of calls that are kept: one for each call that an instruction, or another call,
/// came by. Each takes some 100 bytes, and functions that call each other twice double them with
/// each level.
const MOST_PASSED: usize = 1 << 21;

/// The functions without a body that the toolkit has.
const FAILED_ASSERTION: &str = "__assertfail";
const PRINT: &str = "vprintf";

/// The state of a body whose decoding goes on behind a call.
struct Suspended {
    labels: Labels,
    places: Places,
    callers: Vec<Place>,
    is_inline: bool,
}

/// The function that a call names, and the variables that it is given.
struct Call<'a> {
    name: &'a str,
    results: Vec<&'a str>,
    arguments: Vec<&'a str>,
}

impl<'a> Call<'a> {
    /// Reads `(result), name, (arguments)`, of which either list may be missing.
    fn read(text: &Text<'a>) -> Result<Self> {
        let (results, rest) = match text.operands.split_first() {
            Some((first, rest)) if first.starts_with('(') => (list_in(first), rest),
            _ => (Vec::new(), text.operands),
        };
        let (name, arguments) = match rest {
            [name] => (name, Vec::new()),
            [name, arguments, ..] if arguments.starts_with('(') => (name, list_in(arguments)),
            _ => return Err(text.invalid("it names no function")),
        };
        if name.starts_with('%') {
            return Err(text.invalid(format!(
                "a call through a register (`{name}`) is not implemented: call the function by \
                 its name"
            )));
        }
        Ok(Self {
            name,
            results,
            arguments,
        })
    }
}

impl Decoder<'_> {
    /// Decodes `call (result), name, (arguments)`.
    pub(super) fn call(&mut self, text: &Text<'_>, guard: Option<Guard>) -> Result<()> {
        let call = Call::read(text)?;
        let module = self.module;
        let Some(function) = module.function(call.name) else {
            return self.call_of_toolkit(text, call.name, guard);
        };
        if self.calls.iter().any(|caller| caller == call.name) {
            return Err(text.invalid(format!(
                "`{}` calls itself, directly or through others: recursion is not implemented",
                call.name
            )));
        }
        self.check_call(text, call.name)?;
        let skip = guard.map(|given| self.push_skip(text.line, given));
        let bound = self.bound(text, function, &call)?;
        self.names.enter_function(call.name, bound);
        self.calls.push(call.name.to_owned());
        let suspended = self.suspend(text.line);
        let read = self.read(&mut module.function_body(function));
        let resolved = read.and_then(|()| self.end_function(text));
        self.resume(suspended);
        self.calls.pop();
        self.names.leave_function();
        if let Some(step) = skip {
            self.steps[step].op = Op::Branch(self.steps.len() as u32);
        }
        resolved
    }

    /// Refuses a call that stands too deep, or one too many.
    fn check_call(&mut self, text: &Text<'_>, name: &str) -> Result<()> {
        if self.calls.len() >= MOST_OPEN {
            return Err(text.invalid(format!(
                "`{name}` is called through more than {MOST_OPEN} functions: call it from an outer \
                 one"
            )));
        }
        self.passed += self.callers.len() + 1;
        if self.passed > MOST_PASSED {
            return Err(text.invalid(format!(
                "`{name}` is called too often: a function stands in the entry once for each call, \
                 and there are more than {MOST_PASSED} places with all that they came by; call it \
                 in a loop, or from fewer functions"
            )));
        }
        Ok(())
    }

    fn call_of_toolkit(&mut self, text: &Text<'_>, name: &str, guard: Option<Guard>) -> Result<()> {
        let op = match name {
            FAILED_ASSERTION => Op::Trap("an assertion failed"),
            PRINT => Op::Nothing,
            _ => return Err(text.invalid(format!("`{name}` has no body in this module"))),
        };
        self.push_step(text.line, op, guard);
        Ok(())
    }

    /// Adds a jump over a call for threads that do not make it. Returns its step.
    fn push_skip(&mut self, line: u32, guard: Guard) -> usize {
        let opposite = Guard {
            is_negated: !guard.is_negated,
            ..guard
        };
        self.push_step(line, Op::Nothing, Some(opposite));
        self.steps.len() - 1
    }

    fn push_step(&mut self, line: u32, op: Op, guard: Option<Guard>) {
        let site = self.site(line);
        self.steps.push(Step {
            op,
            guard,
            touches_product: false,
            site,
        });
    }

    /// Returns where the function finds its parameters and leaves its results: in the variables that
    /// the caller names.
    fn bound(
        &self,
        text: &Text<'_>,
        function: &Function,
        call: &Call<'_>,
    ) -> Result<HashMap<String, Constant>> {
        let signature = function.signature()?;
        let mut bound = HashMap::new();
        for (declared, given) in [
            (&signature.results, &call.results),
            (&signature.parameters, &call.arguments),
        ] {
            if declared.len() != given.len() {
                return Err(text.invalid(format!(
                    "`{}` has {} variables here, where it declares {}",
                    function.name,
                    given.len(),
                    declared.len()
                )));
            }
            for (formal, name) in declared.iter().zip(given) {
                let Some(place) = self.names.local(name) else {
                    return Err(text.invalid(format!(
                        "`{name}` is no variable of `.param` space of the caller"
                    )));
                };
                bound.insert(formal.name.clone(), place);
            }
        }
        Ok(bound)
    }

    fn suspend(&mut self, line: u32) -> Suspended {
        let mut callers = self.frames(line);
        callers.extend_from_slice(&self.callers);
        let mut places = self.module.places.clone();
        places.restart();
        Suspended {
            labels: std::mem::take(&mut self.labels),
            places: std::mem::replace(&mut self.places, places),
            callers: std::mem::replace(&mut self.callers, callers),
            is_inline: std::mem::take(&mut self.is_inline),
        }
    }

    fn resume(&mut self, suspended: Suspended) {
        let Suspended {
            labels,
            places,
            callers,
            is_inline,
        } = suspended;
        self.labels = labels;
        (self.places, self.callers) = (places, callers);
        self.is_inline = is_inline;
    }

    /// Ends a function's body behind its last instruction.
    fn end_function(&mut self, call: &Text<'_>) -> Result<()> {
        if self.steps.len() > MOST_STEPS {
            return Err(call.invalid(format!(
                "with what is called, the entry has more than {MOST_STEPS} instructions"
            )));
        }
        self.labels.define(call.line, END, self.steps.len())?;
        self.resolve_jumps()
    }

    /// Decodes `ret`: the end of the thread, or of the function.
    pub(super) fn returns(&mut self, text: &Text<'_>) -> Op {
        if self.calls.is_empty() {
            return Op::Exit;
        }
        self.labels.jump(text.line, END, self.steps.len());
        Op::Nothing
    }
}
