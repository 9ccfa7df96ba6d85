//! A running thread, and the launch that it belongs to.

use std::ffi::c_void;

use emulator::guest::Thread;
use emulator::trace::{Access, Allocation};

use super::slab::Slab;
use crate::program::Program;
use crate::step::{Address, Slot};

/// A program and the arguments of one launch.
#[derive(Debug)]
pub struct Invocation<'a> {
    pub(super) program: &'a Program,
    pub(super) parameters: *const u8,
    pub(super) globals: Vec<u8>,
    pub(super) dynamic_shared_bytes: u32,
    pub(super) election: Election,
}

/// The lane that `elect.sync` elects of those that it names. The PTX ISA leaves it open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Election {
    /// Lane 0 or 31, as the schedule says.
    #[default]
    AsScheduled,
    /// What kernels count on that ask for thread 0 elsewhere.
    Lowest,
    Highest,
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
            election: Election::default(),
        }
    }

    #[must_use]
    pub fn electing(self, election: Election) -> Self {
        Self { election, ..self }
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
}

/// A running thread. It owns nothing.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) thread: Thread<'a>,
    pub(super) program: &'a Program,
    pub(super) invocation: &'a Invocation<'a>,
    pub(super) slab: Slab,
    pub(super) is_traced: bool,
}

impl<'a> Frame<'a> {
    pub(super) fn start(thread: Thread<'a>, invocation: &'a Invocation<'a>) -> Self {
        let program = invocation.program;
        let slab = Slab::of_thread(program, thread.number());
        let frame = Self {
            thread,
            program,
            invocation,
            slab,
            is_traced: thread.is_traced(),
        };
        for (index, &constant) in program.constants.iter().enumerate() {
            frame.set(-1 - index as Slot, frame.value_of(constant));
        }
        frame
    }

    /// Returns the word of an operand.
    #[inline]
    pub(super) fn get(&self, slot: Slot) -> u64 {
        // SAFETY: decoding has made each slot one of the slab's constants or registers, and this
        // thread alone uses them.
        unsafe { *self.slab.registers.offset(slot as isize) }
    }

    #[inline]
    pub(super) fn set(&self, slot: Slot, value: u64) {
        // SAFETY: see get.
        unsafe { *self.slab.registers.offset(slot as isize) = value };
    }

    #[inline]
    pub(super) fn get_u32(&self, slot: Slot) -> u32 {
        self.get(slot) as u32
    }

    #[inline]
    pub(super) fn is_set(&self, slot: Slot) -> bool {
        self.get(slot) & 1 == 1
    }

    #[inline]
    pub(super) fn address(&self, address: Address) -> u64 {
        self.get(address.base).wrapping_add(address.offset as u64)
    }
}
