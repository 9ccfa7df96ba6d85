//! Registers, variables and literals of an entry, and where each is at run time.

use std::collections::HashMap;

use emulator::MAX_SHARED_BYTES;

use super::outcome::Result;
use crate::parse::{Declaration, Entry, Kind, Module, Refusal, is_number};
use crate::program::Program;
use crate::step::{Constant, Slot, Special};

/// The most registers of a thread: 8 MiB of them. A compiler emits some thousands.
const MOST_REGISTERS: u32 = 1 << 20;

/// The most bytes of a thread's own variables: twice what CUDA has, since those of functions are
/// not laid over each other.
const MOST_LOCAL_BYTES: u32 = 1 << 20;

/// The most bytes of the module's variables: they are there before the memory of a launch is
/// reckoned, and once more for each launch.
const MOST_GLOBAL_BYTES: u32 = 256 << 20;

/// Registers of one declaration: `%r<8>` is a prefix and a count, `p` a name alone.
#[derive(Clone, Debug)]
struct Registers {
    name: String,
    first: Slot,
    count: Option<u32>,
}

/// Registers are reused when their scope ends.
#[derive(Debug, Default)]
struct Scope {
    registers: Vec<Registers>,
    variables: Vec<String>,
    first: u32,
}

/// A variable by its name and the function that declares it, if any does.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Variable {
    function: Option<String>,
    name: String,
}

/// The names of a body whose function calls another one.
#[derive(Debug)]
struct Caller {
    symbols: HashMap<String, Constant>,
    /// The function that is called, and its first scope.
    callee: String,
    first_scope: usize,
}

pub(super) struct Names<'a> {
    module: &'a Module,
    scopes: Vec<Scope>,
    next_register: u32,
    most_registers: u32,
    constants: Vec<Constant>,
    known_constants: HashMap<Constant, Slot>,
    /// The variables and parameters of the body at hand.
    symbols: HashMap<String, Constant>,
    /// The module's variables that have their memory, and those of functions that outlive a call.
    placed: HashMap<Variable, Constant>,
    /// The functions whose bodies are open, outermost first.
    functions: Vec<Caller>,
    static_shared_bytes: u32,
    dynamic_alignment: u32,
    local_bytes: u32,
    globals: Vec<u8>,
}

impl<'a> Names<'a> {
    pub(super) fn new(module: &'a Module, entry: &Entry) -> Self {
        let mut symbols = HashMap::new();
        for parameter in &entry.parameters {
            symbols.insert(
                parameter.name.clone(),
                Constant::Parameter(parameter.offset),
            );
        }
        Self {
            module,
            scopes: vec![Scope::default()],
            // The first register is where results go that nobody wants.
            next_register: 1,
            most_registers: 1,
            constants: Vec::new(),
            known_constants: HashMap::new(),
            symbols,
            placed: HashMap::new(),
            functions: Vec::new(),
            static_shared_bytes: 0,
            dynamic_alignment: 1,
            local_bytes: 0,
            globals: Vec::new(),
        }
    }

    pub(super) const SINK: Slot = 0;

    pub(super) fn enter(&mut self) {
        self.scopes.push(Scope {
            first: self.next_register,
            ..Scope::default()
        });
    }

    pub(super) fn leave(&mut self) {
        if let Some(scope) = self.scopes.pop()
            && !self.scopes.is_empty()
        {
            self.next_register = scope.first;
            for name in scope.variables {
                self.symbols.remove(&name);
            }
        }
    }

    /// Enters the body of a function, which sees its own names alone and finds its parameters and
    /// results where the caller has put them.
    pub(super) fn enter_function(&mut self, name: &str, bound: HashMap<String, Constant>) {
        self.functions.push(Caller {
            symbols: std::mem::replace(&mut self.symbols, bound),
            callee: name.to_owned(),
            first_scope: self.scopes.len(),
        });
        self.enter();
    }

    /// Returns to the caller's names. The body has closed its scope.
    pub(super) fn leave_function(&mut self) {
        if let Some(caller) = self.functions.pop() {
            self.symbols = caller.symbols;
        }
    }

    /// Returns the place of a variable in the thread's own memory.
    pub(super) fn local(&self, name: &str) -> Option<Constant> {
        let place = self.symbols.get(name).copied();
        place.filter(|it| matches!(it, Constant::Local(_)))
    }

    /// Reads a declaration of registers or of a variable.
    pub(super) fn declare(&mut self, line: u32, text: &str) -> Result<()> {
        let Some(rest) = text.strip_prefix(".reg") else {
            return self.declare_variable(line, &Declaration::read(line, text)?);
        };
        let (of, names) = rest
            .trim()
            .split_once(char::is_whitespace)
            .ok_or_else(|| Refusal::invalid(line, "`.reg` without a name"))?;
        if matches!(of, ".b128" | ".v2" | ".v4") {
            return Err(Refusal::unknown(line, format!(".reg {of}")));
        }
        for name in names.split(',').map(str::trim) {
            let (prefix, count) = match name.split_once('<') {
                Some((prefix, count)) => {
                    let number = count.trim_end_matches('>').trim().parse().map_err(|_| {
                        Refusal::invalid(line, format!("`{name}` is no range of registers"))
                    })?;
                    (prefix.trim(), Some(number))
                }
                None => (name, None),
            };
            let first = self.next_register as Slot;
            let next = self.next_register.checked_add(count.unwrap_or(1));
            let Some(end) = next.filter(|&it| it <= MOST_REGISTERS) else {
                let reason = format!(
                    "with `{name}` a thread has more than {MOST_REGISTERS} registers: declare those \
                     that are used"
                );
                return Err(Refusal::invalid(line, reason));
            };
            self.next_register = end;
            self.most_registers = self.most_registers.max(end);
            let scope = self.scopes.last_mut().expect("the body's scope is open");
            scope.registers.push(Registers {
                name: prefix.to_owned(),
                first,
                count,
            });
        }
        Ok(())
    }

    fn declare_variable(&mut self, line: u32, declaration: &Declaration) -> Result<()> {
        let place = match (self.functions.last(), declaration.kind) {
            (Some(caller), Kind::Shared | Kind::Global | Kind::Constant) => {
                let function = Some(caller.callee.clone());
                self.place_once(line, function, declaration)?
            }
            _ => self.place(line, declaration)?,
        };
        let scope = self.scopes.last_mut().expect("the body's scope is open");
        scope.variables.push(declaration.name.clone());
        self.symbols.insert(declaration.name.clone(), place);
        Ok(())
    }

    /// Gives a variable that outlives a call its memory, the same for all who name it.
    fn place_once(
        &mut self,
        line: u32,
        function: Option<String>,
        declaration: &Declaration,
    ) -> Result<Constant> {
        let name = declaration.name.clone();
        let variable = Variable { function, name };
        if let Some(&known) = self.placed.get(&variable) {
            return Ok(known);
        }
        let place = self.place(line, declaration)?;
        self.placed.insert(variable, place);
        Ok(place)
    }

    /// Gives a variable its memory.
    fn place(&mut self, line: u32, declaration: &Declaration) -> Result<Constant> {
        if declaration.kind == Kind::Shared && declaration.count.is_none() {
            self.dynamic_alignment = self.dynamic_alignment.max(declaration.alignment);
            return Ok(Constant::DynamicShared);
        }
        let place = match declaration.kind {
            Kind::Shared => declaration
                .take(&mut self.static_shared_bytes, MAX_SHARED_BYTES as u32)
                .map(|offset| Constant::Bits(offset.into())),
            Kind::Local | Kind::Parameter => declaration
                .take(&mut self.local_bytes, MOST_LOCAL_BYTES)
                .map(Constant::Local),
            Kind::Global | Kind::Constant => self.place_global(declaration),
        };
        place.ok_or_else(|| no_place(line, declaration))
    }

    /// Gives a variable of the module its memory; `None` if there is none left.
    fn place_global(&mut self, declaration: &Declaration) -> Option<Constant> {
        let mut used = self.globals.len() as u32;
        let offset = declaration.take(&mut used, MOST_GLOBAL_BYTES)?;
        self.globals.resize(offset as usize, 0);
        self.globals.extend_from_slice(&declaration.initial);
        self.globals.resize(used as usize, 0);
        Some(Constant::Global(offset))
    }

    fn find_register(&self, name: &str) -> Option<Slot> {
        let first = self.functions.last().map_or(0, |caller| caller.first_scope);
        for scope in self.scopes[first..].iter().rev() {
            for registers in scope.registers.iter().rev() {
                let slot = match registers.count {
                    None => (registers.name == name).then_some(registers.first),
                    Some(count) => name
                        .strip_prefix(registers.name.as_str())
                        .and_then(|digits| digits.parse::<u32>().ok())
                        .filter(|&index| index < count)
                        .map(|index| registers.first + index as Slot),
                };
                if slot.is_some() {
                    return slot;
                }
            }
        }
        None
    }

    pub(super) fn register(&self, line: u32, name: &str) -> Result<Slot> {
        if name == "_" {
            return Ok(Self::SINK);
        }
        self.find_register(name)
            .ok_or_else(|| Refusal::invalid(line, format!("there is no register `{name}`")))
    }

    /// Returns a register, a special register or a variable's address.
    pub(super) fn named(&mut self, line: u32, name: &str) -> Result<Slot> {
        if let Some(slot) = self.find_register(name) {
            return Ok(slot);
        }
        if name.starts_with('%') {
            return match special(name) {
                Some(known) => Ok(self.constant(Constant::Special(known))),
                None => Err(Refusal::unknown(line, name)),
            };
        }
        if let Some(&known) = self.symbols.get(name) {
            return Ok(self.constant(known));
        }
        if is_number(name) {
            let reason = format!(
                "`{name}` is no literal: an integer has up to 64 bits, `0f` takes 8 hexadecimal \
                 digits, and `0d` takes 16"
            );
            return Err(Refusal::invalid(line, reason));
        }
        let module = self.module;
        let Some(declaration) = module.variables.iter().find(|it| it.name == name) else {
            return Err(Refusal::invalid(line, format!("`{name}` is not declared")));
        };
        let place = self.place_once(line, None, declaration)?;
        Ok(self.constant(place))
    }

    pub(super) fn constant(&mut self, constant: Constant) -> Slot {
        if let Some(&slot) = self.known_constants.get(&constant) {
            return slot;
        }
        self.constants.push(constant);
        let slot = -(self.constants.len() as Slot);
        self.known_constants.insert(constant, slot);
        slot
    }

    pub(super) fn finish(self, program: Program) -> Program {
        Program {
            registers: self.most_registers,
            constants: self.constants,
            static_shared_bytes: self
                .static_shared_bytes
                .next_multiple_of(self.dynamic_alignment),
            local_bytes: self.local_bytes,
            globals: self.globals,
            ..program
        }
    }
}

/// Returns the refusal of a variable that has no memory left.
fn no_place(line: u32, declaration: &Declaration) -> Refusal {
    let (space, most) = match declaration.kind {
        Kind::Shared => ("shared memory", MAX_SHARED_BYTES as u32),
        Kind::Local | Kind::Parameter => ("a thread's own memory", MOST_LOCAL_BYTES),
        Kind::Global | Kind::Constant => ("the module's memory", MOST_GLOBAL_BYTES),
    };
    let reason = format!(
        "with `{}` ({} bytes) the variables of the entry take more than {most} bytes of {space}: \
         make it smaller, or name fewer",
        declaration.name,
        declaration.bytes()
    );
    Refusal::invalid(line, reason)
}

fn special(name: &str) -> Option<Special> {
    let (base, dimension) = match name.rsplit_once('.') {
        Some((base, "x")) => (base, 0),
        Some((base, "y")) => (base, 1),
        Some((base, "z")) => (base, 2),
        Some(_) => return None,
        None => (name, 0),
    };
    Some(match base {
        "%tid" => Special::Thread(dimension),
        "%ntid" => Special::BlockSize(dimension),
        "%ctaid" => Special::Block(dimension),
        "%nctaid" => Special::Grid(dimension),
        "%laneid" => Special::Lane,
        "%warpid" => Special::Warp,
        "%cluster_ctarank" => Special::ClusterRank,
        "%cluster_nctarank" => Special::ClusterSize,
        "%cluster_ctaid" => Special::BlockInCluster(dimension),
        "%cluster_nctaid" => Special::ClusterExtent(dimension),
        "%clusterid" => Special::Cluster(dimension),
        "%nclusterid" => Special::Clusters(dimension),
        "%lanemask_lt" => Special::LanesBelow,
        "%lanemask_le" => Special::LanesUpTo,
        "%lanemask_gt" => Special::LanesAbove,
        "%lanemask_ge" => Special::LanesFrom,
        "%lanemask_eq" => Special::LaneBit,
        "%dynamic_smem_size" => Special::DynamicSharedBytes,
        "%total_smem_size" => Special::TotalSharedBytes,
        _ => return None,
    })
}
