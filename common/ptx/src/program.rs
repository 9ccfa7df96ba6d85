//! An entry ready to launch.

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
    /// The threads of a block that the entry asks for.
    pub(crate) threads: Option<[u32; 3]>,
    /// The extents whose product is the most threads of a block.
    pub(crate) most_threads: Option<[u32; 3]>,
    /// The blocks of a cluster that the entry asks for.
    pub(crate) cluster: Option<u32>,
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

    /// Returns the blocks of a cluster that the entry asks for; 1 if it asks for none.
    pub fn cluster(&self) -> u32 {
        self.cluster.unwrap_or(1)
    }

    pub(crate) fn elects(&self) -> bool {
        self.opcodes.iter().any(|name| name == "elect.sync")
    }

    /// Returns the names of the instructions that the entry has, sorted.
    pub fn opcodes(&self) -> &[String] {
        &self.opcodes
    }

    pub fn instructions(&self) -> usize {
        self.steps.len()
    }
}
