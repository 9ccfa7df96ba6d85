//! cp.async of one CUDA thread: copies land as late as the kernel's waits allow.

use std::collections::VecDeque;

/// The content of shared memory before it is written: NaN as f32, f16 and e4m3.
pub(crate) const POISON: u8 = 0xFF;

#[derive(Clone, Copy, Debug)]
struct Copy {
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    src_bytes: usize,
    tag: u32,
}

#[derive(Debug, Default)]
pub(crate) struct AsyncCopies {
    copies: VecDeque<Copy>,
    /// The copies issued when each committed group was closed that is not yet waited for, oldest
    /// first.
    groups: VecDeque<u64>,
    issued: u64,
}

impl AsyncCopies {
    /// Starts a copy: the destination is poison until the wait that covers it.
    ///
    /// # Safety
    /// `dst` is valid for writing `bytes`, `src` for reading `src_bytes` ≤ `bytes`, and both stay
    /// so until the copy has landed or is discarded.
    pub(crate) unsafe fn issue(
        &mut self,
        dst: *mut u8,
        src: *const u8,
        bytes: usize,
        src_bytes: usize,
        tag: u32,
    ) {
        // SAFETY: the caller vouches for dst.
        unsafe { dst.write_bytes(POISON, bytes) };
        self.copies.push_back(Copy {
            dst,
            src,
            bytes,
            src_bytes,
            tag,
        });
        self.issued += 1;
    }

    pub(crate) fn issued(&self) -> u64 {
        self.issued
    }

    pub(crate) fn commit(&mut self) {
        self.groups.push_back(self.issued);
    }

    /// Lands all but the `newest` groups, and passes each copy's tag to `landed`. Returns how many
    /// copies have landed so far, if there was a group to land.
    pub(crate) fn wait(&mut self, newest: usize, landed: impl FnMut(u32)) -> Option<u64> {
        let covered = self.groups.len().saturating_sub(newest);
        let issued = self.groups.drain(..covered).next_back()?;
        self.land(issued, landed);
        Some(issued)
    }

    /// Lands what is still in flight of the thread's first `issued` copies.
    pub(crate) fn land(&mut self, issued: u64, mut landed: impl FnMut(u32)) {
        let later = (self.issued - issued) as usize;
        let count = self.copies.len().saturating_sub(later);
        for Copy {
            dst,
            src,
            bytes,
            src_bytes,
            tag,
        } in self.copies.drain(..count)
        {
            // SAFETY: `issue`'s caller vouches for both ranges until now. memmove semantics, since
            // nothing says that a kernel's source and destination differ.
            unsafe {
                src.copy_to(dst, src_bytes);
                dst.add(src_bytes).write_bytes(0, bytes - src_bytes);
            }
            landed(tag);
        }
    }

    pub(crate) fn discard(&mut self) {
        self.copies.clear();
        self.groups.clear();
        self.issued = 0;
    }
}

#[cfg(test)]
mod tests;
