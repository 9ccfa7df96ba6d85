//! Coroutine stacks, pooled per OS thread: making one costs an mmap and an mprotect (5 to 7 µs),
//! which a block of 128 threads would pay 128 times.

use corosensei::stack::{DefaultStack, Stack, StackPointer};

use crate::async_copy::POISON;

/// A kernel's frames at -O2 are a few KiB (its register arrays), a WMMA executed by the last lane
/// adds 5 KiB, and a panic in the scheduler must still fit. Untouched pages cost address space
/// only, and a guard page turns an overflow into a fault of the process instead of silent
/// corruption.
const STACK_BYTES: usize = 128 * 1024;

/// The offsets of stacks in their pages differ: frames at the same depth of all stacks would
/// else share a few L1 sets and evict each other at every switch.
const PAGE_BYTES: usize = 4096;
const STAGGER_BYTES: usize = 9 * 64;

/// The bytes below the base that are poisoned when a thread starts: a kernel's frame (the stages'
/// are below 4 KiB in both builds). 16 KiB would cost 10 % of the plain build's time on the mission
/// shape, this 2 %.
const POISONED_BYTES: usize = 4 * 1024;
const POISONED_BYTES_TRACED: usize = 16 * 1024;

/// The bytes that a traced thread uses: those that are poisoned, within whole pages, and one page
/// more for what lies below the frames of the interpreter.
pub(crate) const USED_BYTES: usize = POISONED_BYTES_TRACED + 3 * PAGE_BYTES;

pub(crate) struct LaneStack {
    memory: DefaultStack,
    offset: usize,
}

impl LaneStack {
    pub(crate) fn new(index: usize) -> std::io::Result<Self> {
        Ok(Self {
            memory: DefaultStack::new(STACK_BYTES)?,
            offset: index * STAGGER_BYTES % PAGE_BYTES,
        })
    }

    /// Poisons where the thread's frames will lie: a register array that the kernel forgets to
    /// initialise is NaN, as f32 and as f16, instead of what the previous thread left or a fresh
    /// page's zero. The thread must have no frame yet.
    pub(crate) fn poison(&mut self, is_traced: bool) {
        let bytes = if is_traced {
            POISONED_BYTES_TRACED
        } else {
            POISONED_BYTES
        };
        let start = self.base().get() - bytes;
        // SAFETY: the bytes below the base belong to this stack alone (STACK_BYTES is far more),
        // and nothing runs on it.
        unsafe { (start as *mut u8).write_bytes(POISON, bytes) };
    }

    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        self.limit().get()..self.base().get()
    }
}

// SAFETY: base and limit are those of a valid stack, except that the base lies lower by less than a
// page, which STACK_BYTES has room for, and by a multiple of 64, which keeps its alignment.
unsafe impl Stack for LaneStack {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.memory.base().get() - self.offset)
            .expect("a stack does not start at address 0")
    }

    fn limit(&self) -> StackPointer {
        self.memory.limit()
    }
}
