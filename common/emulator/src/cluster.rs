//! The blocks of a cluster run on one OS thread, as threads that are numbered through. A launch
//! without clusters is one of clusters of one block.

use std::ops::Range;

/// The dynamic shared memory of the largest block: what sm_90 can opt in to.
pub const MAX_SHARED_BYTES: usize = 227 * 1024;

/// The most threads of a cluster: each warp has a bit of 64.
pub(crate) const MAX_TOGETHER: u32 = 2048;

pub(crate) const GUARD_BYTES: usize = 4096;

pub(crate) const STRIDE: usize = MAX_SHARED_BYTES + GUARD_BYTES;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Cluster {
    pub(crate) blocks: u32,
    pub(crate) threads: u32,
    pub(crate) start: usize,
    pub(crate) declared: usize,
}

impl Cluster {
    #[cfg(test)]
    pub(crate) fn of_one_block(threads: u32, shared: Range<usize>) -> Self {
        Self {
            blocks: 1,
            threads,
            start: shared.start,
            declared: shared.len(),
        }
    }

    pub(crate) fn all_threads(&self) -> u32 {
        self.blocks * self.threads
    }

    pub(crate) fn rank(&self, thread: u32) -> u32 {
        thread / self.threads
    }

    pub(crate) fn members(&self, rank: u32) -> Range<u32> {
        rank * self.threads..(rank + 1) * self.threads
    }

    /// Returns where the shared memory of a thread's block starts, relative to the first block's.
    pub(crate) fn base(&self, thread: u32) -> usize {
        self.rank(thread) as usize * STRIDE
    }

    pub(crate) fn span(&self) -> usize {
        (self.blocks as usize - 1) * STRIDE + self.declared
    }

    /// Returns whether one block declares all `bytes` bytes from `offset` on.
    pub(crate) fn declares(&self, offset: usize, bytes: usize) -> bool {
        offset < self.span() && offset % STRIDE + bytes <= self.declared
    }

    pub(crate) fn locate(&self, address: usize, bytes: usize) -> Option<usize> {
        let offset = address.checked_sub(self.start)?;
        self.declares(offset, bytes).then_some(offset)
    }

    /// Returns a byte's offset in the shared memory of its own block.
    pub(crate) fn within_block(offset: usize) -> usize {
        offset % STRIDE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_block_declares_its_own_bytes() {
        let cluster = Cluster {
            blocks: 2,
            threads: 32,
            start: 4096,
            declared: 100,
        };
        for (offset, bytes, is_declared) in [
            (0, 100, true),
            (1, 100, false),
            (STRIDE - 4, 4, false),
            (STRIDE, 100, true),
            (STRIDE + 1, 100, false),
            (2 * STRIDE, 4, false),
        ] {
            let located = cluster.locate(4096 + offset, bytes);
            assert_eq!(located, is_declared.then_some(offset), "{offset}");
        }
    }
}
