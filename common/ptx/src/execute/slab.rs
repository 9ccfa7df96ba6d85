//! The memory of a thread: constants, registers, accumulators in flight, local memory.

use std::cell::RefCell;

use emulator::guest::POISON;

use crate::program::Program;

thread_local! {
    /// The slabs of the threads that this OS thread runs, by their number in the cluster.
    static SLABS: RefCell<Vec<Vec<u64>>> = const { RefCell::new(Vec::new()) };
}

/// The most groups, and products, that a thread may have in flight.
pub(super) const MOST: usize = 256;

/// The operations in flight, as plain words of the slab.
#[repr(C)]
pub(super) struct Header {
    /// The number of products so far.
    pub(super) issued: u64,
    pub(super) complete: u64,
    pub(super) first_group: u64,
    /// The number of groups so far.
    pub(super) groups: u64,
    /// The products up to the end of each group.
    pub(super) ends: [u64; MOST],
    /// The registers of A of each product.
    pub(super) fragments: [[u32; 4]; MOST],
}

const FIXED_WORDS: usize = size_of::<Header>() / 8;

/// Pointers into the slab of a thread, valid until its OS thread runs another block.
#[derive(Clone, Copy)]
pub(super) struct Slab {
    /// The first register; constants lie below.
    pub(super) registers: *mut u64,
    pub(super) header: *mut Header,
    /// The product up to which each bank is in flight; 0 where it is not.
    pub(super) bank_last: *mut u64,
    /// The operation that holds each register.
    pub(super) held: *mut u64,
    pub(super) banks: *mut f32,
    pub(super) local: *mut u8,
    pub(super) local_bytes: usize,
}

/// The words of each part of a slab, in order.
struct Parts {
    constants: usize,
    registers: usize,
    fixed: usize,
    bank_last: usize,
    held: usize,
    banks: usize,
    local: usize,
}

impl Parts {
    fn new(program: &Program) -> Self {
        let has_products = !program.banks.is_empty();
        let registers = program.registers as usize;
        Self {
            // Even, so that local memory stays on a boundary of 16 bytes.
            constants: program.constants.len(),
            registers,
            fixed: if has_products { FIXED_WORDS } else { 0 },
            bank_last: program.banks.len(),
            held: if has_products { registers } else { 0 },
            banks: (program.bank_words as usize).div_ceil(2),
            local: (program.local_bytes as usize).div_ceil(8) + 1,
        }
    }

    fn words(&self) -> usize {
        let kept = self.constants + self.registers + self.fixed + self.bank_last;
        kept + self.held + self.banks + self.local
    }
}

/// Returns the bytes of the slab of a thread.
pub(crate) fn bytes_of_thread(program: &Program) -> u64 {
    let list = size_of::<Vec<u64>>();
    (list + size_of::<u64>() * Parts::new(program).words()) as u64
}

impl Slab {
    /// Returns the slab of a thread that starts: registers are poison, and nothing is in flight.
    pub(super) fn of_thread(program: &Program, number: u32) -> Self {
        let parts = Parts::new(program);
        let start = SLABS.with_borrow_mut(|slabs| {
            let index = number as usize;
            if slabs.len() <= index {
                slabs.resize_with(index + 1, Vec::new);
            }
            let slab = &mut slabs[index];
            if slab.len() < parts.words() {
                *slab = vec![0; parts.words()];
            }
            slab.as_mut_ptr()
        });
        let registers = start.wrapping_add(parts.constants);
        let fixed = registers.wrapping_add(parts.registers);
        let bank_last = fixed.wrapping_add(parts.fixed);
        let held = bank_last.wrapping_add(parts.bank_last);
        let banks = held.wrapping_add(parts.held);
        let local = banks.wrapping_add(parts.banks);
        let aligned = (local as usize).next_multiple_of(16) as *mut u8;
        let cleared = parts.fixed + parts.bank_last + parts.held;
        // SAFETY: the slab has `parts.words()` words, of which these are parts in order; no other
        // frame refers to them, since one cluster runs on an OS thread at a time.
        unsafe {
            registers
                .cast::<u8>()
                .write_bytes(POISON, 8 * parts.registers);
            fixed.write_bytes(0, cleared);
            local.cast::<u8>().write_bytes(POISON, 8 * parts.local);
        }
        Self {
            registers,
            header: fixed.cast(),
            bank_last,
            held,
            banks: banks.cast(),
            local: aligned,
            local_bytes: program.local_bytes as usize,
        }
    }

    /// Returns whether an address is the thread's own memory.
    pub(super) fn is_local(&self, address: usize) -> bool {
        address.wrapping_sub(self.local as usize) < self.local_bytes
    }
}
