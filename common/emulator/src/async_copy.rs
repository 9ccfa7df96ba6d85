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
        assert_eq!(
            dst,
            [1, 2, 3, 0, 255, 255, 255, 255],
            "what was never committed does not land"
        );
        copies.discard();
        copies.commit();
        copies.wait(0, |_| ());
        assert_eq!(dst[4..], [255; 4]);
    }

    #[test]
    fn groups_whose_copies_have_landed_are_still_groups() {
        let src = [1u8, 2, 3, 4];
        let mut dst = [0u8; 4];
        let mut copies = AsyncCopies::default();
        let at = dst.as_mut_ptr();
        // SAFETY: all ranges lie in the arrays above, which outlive the waits.
        let issue = |copies: &mut AsyncCopies, i: usize| unsafe {
            copies.issue(at.add(i), src.as_ptr().add(i), 1, 1, i as u32);
        };
        issue(&mut copies, 0);
        issue(&mut copies, 1);
        copies.commit();
        issue(&mut copies, 2);
        let before_last = copies.issued();
        copies.commit();
        issue(&mut copies, 3);
        let mut landed = Vec::new();
        copies.land(1, |tag| landed.push(tag));
        copies.land(before_last, |tag| landed.push(tag));
        copies.land(before_last, |tag| landed.push(tag));
        assert_eq!(landed, [0, 1, 2]);
        copies.commit();
        assert_eq!(
            copies.wait(2, |tag| landed.push(tag)),
            Some(2),
            "only the first group is waited for"
        );
        assert_eq!(
            (
                copies.wait(0, |tag| landed.push(tag)),
                copies.wait(0, |_| ())
            ),
            (Some(4), None)
        );
        assert_eq!(landed, [0, 1, 2, 3]);
    }
}
