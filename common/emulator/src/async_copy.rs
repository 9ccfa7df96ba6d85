//! cp.async of one CUDA thread: copies are collected in groups and land as late as the kernel's waits allow.

use std::collections::VecDeque;

/// What shared memory holds before it is written: NaN as f32, f16 and e4m3.
pub(crate) const POISON: u8 = 0xFF;

/// A copy under way.
#[derive(Clone, Copy, Debug)]
struct Copy {
    dst: *mut u8,
    src: *const u8,
    bytes: usize,
    /// Bytes read; the rest of the destination becomes 0.
    src_bytes: usize,
    /// What the trace calls it.
    tag: u32,
}

/// The copies that one thread has issued and not yet waited for.
#[derive(Debug, Default)]
pub(crate) struct AsyncCopies {
    copies: VecDeque<Copy>,
    /// Copies in each committed group, oldest first.
    groups: VecDeque<usize>,
    /// Copies issued since the last commit.
    open: usize,
}

impl AsyncCopies {
    /// Starts a copy: the destination is poison until the wait that covers it.
    ///
    /// # Safety
    /// `dst` is valid for writing `bytes`, `src` for reading `src_bytes` ≤ `bytes`, and both stay so until the copy has
    /// landed or is discarded.
    pub(crate) unsafe fn issue(&mut self, dst: *mut u8, src: *const u8, bytes: usize, src_bytes: usize, tag: u32) {
        // SAFETY: the caller vouches for dst.
        unsafe { dst.write_bytes(POISON, bytes) };
        self.copies.push_back(Copy { dst, src, bytes, src_bytes, tag });
        self.open += 1;
    }

    /// Closes the group of the copies issued since the last commit; it may be empty.
    pub(crate) fn commit(&mut self) {
        self.groups.push_back(self.open);
        self.open = 0;
    }

    /// Lands all groups but the `newest` ones; `landed` gets the tag of each copy.
    pub(crate) fn wait(&mut self, newest: usize, mut landed: impl FnMut(u32)) {
        while self.groups.len() > newest {
            let copies = self.groups.pop_front().expect("len is above newest");
            for copy in self.copies.drain(..copies) {
                // SAFETY: `issue`'s caller vouches for both ranges until now. memmove semantics, since nothing says
                // that a kernel's source and destination differ.
                unsafe {
                    copy.src.copy_to(copy.dst, copy.src_bytes);
                    copy.dst.add(copy.src_bytes).write_bytes(0, copy.bytes - copy.src_bytes);
                }
                landed(copy.tag);
            }
        }
    }

    /// Forgets what has not landed, and says how much that was.
    pub(crate) fn discard(&mut self) -> usize {
        let unwaited = self.copies.len();
        self.copies.clear();
        self.groups.clear();
        self.open = 0;
        unwaited
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_land_in_order_and_only_when_waited_for() {
        let src = [1u8, 2, 3, 4, 5, 6, 7, 8];
        let mut dst = [0u8; 8];
        let mut copies = AsyncCopies::default();
        let at = dst.as_mut_ptr();
        // SAFETY: all ranges lie in the arrays above, which outlive the waits.
        unsafe {
            copies.issue(at, src.as_ptr(), 2, 2, 10);
            copies.commit();
            copies.issue(at.add(2), src.as_ptr().add(2), 2, 1, 11);
            copies.commit();
            copies.issue(at.add(4), src.as_ptr().add(4), 4, 4, 12);
        }
        let mut landed = Vec::new();
        copies.wait(2, |tag| landed.push(tag));
        assert_eq!(dst, [255; 8]);
        copies.wait(1, |tag| landed.push(tag));
        assert_eq!(dst, [1, 2, 255, 255, 255, 255, 255, 255]);
        copies.wait(0, |tag| landed.push(tag));
        assert_eq!(landed, [10, 11]);
        assert_eq!(dst, [1, 2, 3, 0, 255, 255, 255, 255], "what was never committed does not land");
        assert_eq!(copies.discard(), 1);
        copies.commit();
        copies.wait(0, |_| ());
        assert_eq!(dst[4..], [255; 4]);
    }
}
