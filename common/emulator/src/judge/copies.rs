use std::ops::Range;

use super::hint::CopyHint;
use super::order::Actor;
use crate::heap::of_list;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
    /// The copy's number among those of the cluster, from 0.
    tag: u32,
    pub(crate) thread: u32,
    /// The copy's number among those of its thread, from 1.
    pub(crate) number: u32,
    pub(crate) site: u32,
    to: (usize, usize),
    from: (u32, u32),
    committed: bool,
    pub(crate) arrives: Option<u32>,
    /// The last wait that left it in flight: its site, and the number of groups that it leaves.
    pub(crate) waited: Option<(u32, u32)>,
}

impl Copy {
    pub(crate) fn new(thread: u32, site: u32, to: Range<usize>, from: Range<u32>) -> Self {
        Self {
            tag: 0,
            thread,
            number: 0,
            site,
            to: (to.start, to.end),
            from: (from.start, from.end),
            committed: false,
            arrives: None,
            waited: None,
        }
    }

    pub(crate) fn bytes(&self) -> Range<usize> {
        self.to.0..self.to.1
    }

    pub(crate) fn source(&self) -> Option<(u32, u32)> {
        let (start, end) = self.from;
        (start < end).then_some((start, end - start))
    }
}

/// The number of copies from which on those that nobody asks for are looked for.
const MANY_COPIES: usize = 4096;

#[derive(Debug, Default)]
pub(crate) struct Copies {
    /// By tag: those under way and, of the others, at least the last to each byte.
    copies: Vec<Copy>,
    /// The number of copies so far.
    tags: u32,
    /// The number of copies from which on those that nobody asks for are forgotten.
    many: usize,
    under_way: Vec<Vec<u32>>,
    issued: Vec<u32>,
    last_wait: Vec<Option<u32>>,
    /// The copy that will write each byte of shared memory: its tag + 1.
    pending: Vec<u32>,
    count: usize,
}

impl Copies {
    pub(crate) fn start(&mut self, threads: u32, shared_bytes: usize) {
        self.copies.clear();
        (self.tags, self.many) = (0, MANY_COPIES);
        self.under_way.iter_mut().for_each(Vec::clear);
        self.under_way.resize_with(threads as usize, Vec::new);
        self.issued.clear();
        self.issued.resize(threads as usize, 0);
        self.last_wait.clear();
        self.last_wait.resize(threads as usize, None);
        self.pending.clear();
        self.pending.resize(shared_bytes, 0);
        self.count = 0;
    }

    /// Returns the bytes of the cluster's copies that are kept.
    pub(super) fn history_bytes(&self) -> usize {
        let under_way: usize = self.under_way.iter().map(of_list).sum();
        of_list(&self.copies) + under_way
    }

    /// Returns the first byte of `range` with an in-flight copy, and the copy.
    #[inline]
    pub(crate) fn under_way(&self, range: Range<usize>) -> Option<(usize, Copy)> {
        if self.count == 0 {
            return None;
        }
        let start = range.start;
        let skipped = self.pending[range].iter().position(|&tag| tag != 0)?;
        let at = start + skipped;
        let tag = self.pending[at];
        Some((at, *self.copy(tag - 1)))
    }

    fn index(&self, tag: u32) -> usize {
        self.copies.partition_point(|copy| copy.tag < tag)
    }

    fn copy(&self, tag: u32) -> &Copy {
        &self.copies[self.index(tag)]
    }

    /// Forgets copies that have landed and whose bytes others have written since.
    fn forget_overwritten(&mut self) {
        let mut under_way: Vec<u32> = self.under_way.iter().flatten().copied().collect();
        under_way.sort_unstable();
        let mut is_written = vec![false; self.pending.len()];
        let mut kept = Vec::new();
        for copy in self.copies.iter().rev() {
            let bytes = &mut is_written[copy.bytes()];
            let is_last = bytes.contains(&false);
            bytes.fill(true);
            if is_last || under_way.binary_search(&copy.tag).is_ok() {
                kept.push(*copy);
            }
        }
        kept.reverse();
        self.copies = kept;
    }

    pub(crate) fn latest(&self, at: usize) -> Option<&Copy> {
        self.copies
            .iter()
            .rev()
            .find(|copy| copy.bytes().contains(&at))
    }

    /// Returns a copy in flight that reads some of these bytes.
    pub(crate) fn reads(&self, place: u32, bytes: usize) -> Option<Copy> {
        if self.count == 0 {
            return None;
        }
        for &tag in self.under_way.iter().flatten() {
            let copy = self.copy(tag);
            let (start, end) = copy.from; // empty if it reads nothing
            if start < place + bytes as u32 && place < end {
                return Some(*copy);
            }
        }
        None
    }

    pub(crate) fn issue(&mut self, mut copy: Copy) -> u32 {
        if self.copies.len() >= self.many {
            self.forget_overwritten();
            self.many = MANY_COPIES.max(2 * self.copies.len());
        }
        let tag = self.tags;
        self.tags += 1;
        copy.tag = tag;
        let count = &mut self.issued[copy.thread as usize];
        *count += 1;
        copy.number = *count;
        self.pending[copy.bytes()].fill(tag + 1);
        self.under_way[copy.thread as usize].push(tag);
        self.copies.push(copy);
        self.count += 1;
        tag
    }

    pub(crate) fn commit(&mut self, thread: u32) {
        self.each_under_way(thread, |copy| copy.committed = true);
    }

    pub(crate) fn arrive(&mut self, thread: u32, site: u32) {
        self.each_under_way(thread, |copy| {
            copy.arrives.get_or_insert(site);
        });
    }

    pub(crate) fn land(&mut self, tag: u32) -> Copy {
        let copy = *self.copy(tag);
        self.under_way[copy.thread as usize].retain(|&other| other != tag);
        self.count -= 1;
        copy
    }

    /// Takes the copy from a byte. Returns whether the byte waited for it.
    pub(crate) fn clear(&mut self, at: usize, tag: u32) -> bool {
        let has_waited = self.pending[at] == tag + 1;
        if has_waited {
            self.pending[at] = 0;
        }
        has_waited
    }

    pub(crate) fn waited(&mut self, thread: u32, newest: u32, site: u32) {
        self.last_wait[thread as usize] = Some(site);
        self.each_under_way(thread, |copy| copy.waited = Some((site, newest)));
    }

    /// Changes each copy of a thread that is under way.
    fn each_under_way(&mut self, thread: u32, change: impl Fn(&mut Copy)) {
        for place in 0..self.under_way[thread as usize].len() {
            let index = self.index(self.under_way[thread as usize][place]);
            change(&mut self.copies[index]);
        }
    }

    pub(crate) fn why_under_way(&self, copy: &Copy, reader: Actor) -> CopyHint {
        if let Some(arrive) = copy.arrives {
            return CopyHint::PhaseNotObserved { arrive };
        }
        if let Some((wait, newest)) = copy.waited {
            if !copy.committed {
                return CopyHint::NotCommitted { wait };
            }
            return CopyHint::LeftUnderWay {
                wait,
                newest,
                same_warp: reader.warp() == copy.thread / 32,
            };
        }
        match self.last_wait[reader.thread() as usize] {
            Some(wait) if reader.thread() != copy.thread => CopyHint::OthersWait { wait },
            _ => CopyHint::NotWaited,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Issues a copy of thread 0 to 16 bytes.
    fn issued(copies: &mut Copies, start: usize, site: u32) -> u32 {
        copies.issue(Copy::new(0, site, start..start + 16, 0..16))
    }

    #[test]
    fn what_is_remembered_of_copies_does_not_grow_with_their_number() {
        let mut copies = Copies::default();
        copies.start(1, 64);
        let first = issued(&mut copies, 48, 7);
        copies.land(first);
        let waiting = issued(&mut copies, 0, 8);
        for round in 0..10 * MANY_COPIES as u32 {
            let tag = issued(&mut copies, 16, round);
            copies.land(tag);
        }
        assert!(
            copies.copies.len() <= MANY_COPIES,
            "{}",
            copies.copies.len()
        );
        let site_at = |at| copies.latest(at).map(|copy| copy.site);
        let last = 10 * MANY_COPIES as u32 - 1;
        assert_eq!(
            [50, 3, 20, 40].map(site_at),
            [Some(7), Some(8), Some(last), None]
        );
        assert_eq!(copies.land(waiting).site, 8);
    }

    #[test]
    fn a_copy_under_way_is_kept_though_others_write_its_bytes() {
        let mut copies = Copies::default();
        copies.start(1, 64);
        let early = issued(&mut copies, 0, 5);
        for _ in 0..2 * MANY_COPIES {
            let tag = issued(&mut copies, 0, 6);
            copies.land(tag);
        }
        copies.commit(0);
        assert_eq!(copies.land(early).site, 5);
    }
}
