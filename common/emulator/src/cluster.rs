//! The blocks of a cluster: they run together, on one OS thread, as threads that are numbered through. Rank and place in
//! shared memory follow from the number; a launch without clusters is one of clusters of one block.

use std::ops::Range;

/// Dynamic shared memory of the largest block: what sm_90 can opt in to.
pub const MAX_SHARED_BYTES: usize = 227 * 1024;

/// Behind the largest shared memory of a block, as abi.h declares it.
pub(crate) const GUARD_BYTES: usize = 4096;

/// Bytes from the shared memory of one block of a cluster to that of the next.
pub(crate) const STRIDE: usize = MAX_SHARED_BYTES + GUARD_BYTES;

/// Of the blocks that run together: how many, their size, and where their shared memory lies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub(crate) blocks: u32,
    /// Of one block.
    pub(crate) threads: u32,
    /// Address of the first block's shared memory.
    pub(crate) start: usize,
    /// Dynamic shared bytes of one block.
    pub(crate) declared: usize,
}

impl Cluster {
    /// One block.
    #[cfg(test)]
    pub(crate) fn one(threads: u32, shared: Range<usize>) -> Self {
        Self {
            blocks: 1,
            threads,
            start: shared.start,
            declared: shared.len(),
        }
    }

    /// Threads of all blocks.
    pub(crate) fn all_threads(&self) -> u32 {
        self.blocks * self.threads
    }

    /// The block of a thread.
    pub(crate) fn rank(&self, thread: u32) -> u32 {
        thread / self.threads
    }

    /// The threads of a block.
    pub(crate) fn members(&self, rank: u32) -> Range<u32> {
        rank * self.threads..(rank + 1) * self.threads
    }

    /// Where the shared memory of a thread's block begins, from that of the first.
    pub(crate) fn base(&self, thread: u32) -> usize {
        self.rank(thread) as usize * STRIDE
    }

    /// Bytes from the first to the last declared byte.
    pub(crate) fn span(&self) -> usize {
        (self.blocks as usize - 1) * STRIDE + self.declared
    }

    /// Whether `bytes` bytes from an offset on are declared, all by one block.
    pub(crate) fn declares(&self, offset: usize, bytes: usize) -> bool {
        offset < self.span() && offset % STRIDE + bytes <= self.declared
    }

    /// The same of an address; where it is, from the first block's shared memory.
    pub(crate) fn locate(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.checked_sub(self.start)?;
        self.declares(offset, bytes).then_some(offset)
    }

    /// A declared byte by its offset in the shared memory of its block.
    pub(crate) fn within_block(offset: usize) -> usize {
        offset % STRIDE
    }
}
