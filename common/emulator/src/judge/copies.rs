use std::ops::Range;

use super::hint::CopyHint;
use super::order::Actor;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Copy {
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

#[derive(Debug, Default)]
pub(crate) struct Copies {
    copies: Vec<Copy>,
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
        Some((at, self.copies[tag as usize - 1]))
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
            let copy = self.copies[tag as usize];
            let (start, end) = copy.from; // empty if it reads nothing
            if start < place + bytes as u32 && place < end {
                return Some(copy);
            }
        }
        None
    }

    pub(crate) fn issue(&mut self, mut copy: Copy) -> u32 {
        let tag = self.copies.len() as u32;
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
        for &tag in &self.under_way[thread as usize] {
            self.copies[tag as usize].committed = true;
        }
    }

    pub(crate) fn arrive(&mut self, thread: u32, site: u32) {
        for &tag in &self.under_way[thread as usize] {
            self.copies[tag as usize].arrives.get_or_insert(site);
        }
    }

    pub(crate) fn land(&mut self, tag: u32) -> Copy {
        let copy = self.copies[tag as usize];
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
        for &tag in &self.under_way[thread as usize] {
            self.copies[tag as usize].waited = Some((site, newest));
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
