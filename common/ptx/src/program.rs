//! An entry ready to launch.

use std::ffi::c_void;

use emulator::Launch;
use emulator::trace::{Access, Allocation};

use crate::execute;
use crate::parse::Parameter;
use crate::step::{Constant, Slot, Step};

/// Accumulators of one list of registers: where they are while products hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bank {
    pub(crate) registers: Box<[Slot]>,
    /// The offset of its first value in the thread's area, in words of 4 bytes.
    pub(crate) offset: u32,
}

/// An entry with resolved operands. It is the body of each thread of a launch.
#[derive(Clone, Debug)]
pub struct Program {
    pub(crate) name: String,
    pub(crate) steps: Vec<Step>,
    pub(crate) registers: u32,
    pub(crate) constants: Vec<Constant>,
    /// The bytes of shared variables with a size of their own.
    pub(crate) static_shared_bytes: u32,
    pub(crate) local_bytes: u32,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) parameter_bytes: u32,
    pub(crate) banks: Vec<Bank>,
    pub(crate) bank_words: u32,
    /// The module's variables as they are before a launch.
    pub(crate) globals: Vec<u8>,
    pub(crate) opcodes: Vec<String>,
}

impl Program {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn static_shared_bytes(&self) -> u32 {
        self.static_shared_bytes
    }

    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    pub fn parameter_bytes(&self) -> u32 {
        self.parameter_bytes
    }

    /// Returns the names of the instructions that the entry has, sorted.
    pub fn opcodes(&self) -> &[String] {
        &self.opcodes
    }

    pub fn instructions(&self) -> usize {
        self.steps.len()
    }
}

/// A program and the arguments of one launch.
#[derive(Debug)]
pub struct Invocation<'a> {
    pub(crate) program: &'a Program,
    pub(crate) parameters: *const u8,
    pub(crate) globals: Vec<u8>,
    pub(crate) dynamic_shared_bytes: u32,
}

impl<'a> Invocation<'a> {
    /// Binds a program to its parameters.
    ///
    /// # Safety
    /// `parameters` is aligned as the entry declares and holds as many bytes as it takes; they and
    /// all that they point to outlive the launch.
    pub unsafe fn new(
        program: &'a Program,
        parameters: *const c_void,
        dynamic_shared_bytes: usize,
    ) -> Self {
        Self {
            program,
            parameters: parameters.cast(),
            globals: program.globals.clone(),
            dynamic_shared_bytes: dynamic_shared_bytes as u32,
        }
    }

    /// Returns the module's own variables, for the traced launch.
    pub fn variables(&self) -> Allocation {
        Allocation::whole(
            "the module's variables",
            self.globals.as_ptr(),
            self.globals.len(),
            Access::Output,
        )
    }

    /// Makes `launch` one of this program. Its dynamic shared memory becomes all that a block has.
    pub fn launch(&self, launch: &Launch) -> Launch {
        let statics = self.program.static_shared_bytes as usize;
        Launch {
            entry: execute::thread,
            params: std::ptr::from_ref(self).cast(),
            dynamic_shared_bytes: statics + launch.dynamic_shared_bytes,
            ..*launch
        }
    }
}
