//! Outputs in global memory: order within a block byte by byte, and what each block has touched, to
//! compare blocks. Reads of inputs are no race, and their writes are reported as such.

use super::memory::PAGE_BYTES;
use super::order::{Cell, How, Order, Race, note};

/// The first access to a byte. `thread` is the thread's number + 1, or 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Touch {
    site: u32,
    thread: u32,
}

#[derive(Debug)]
struct Page {
    number: u32,
    cells: Vec<Cell>,
    reads: Vec<Touch>,
    writes: Vec<Touch>,
    strong: Vec<Touch>,
}

impl Page {
    /// Adds the runs of one kind of access.
    fn add_runs(&self, touches: &[Touch], kind: RunKind, runs: &mut Vec<Run>) {
        let mut start = self.number * PAGE_BYTES as u32;
        for same in touches.chunk_by(|left, right| left == right) {
            let Touch { site, thread } = same[0];
            let bytes = same.len() as u32;
            if thread != 0 {
                runs.push(Run {
                    start,
                    bytes,
                    site,
                    thread: thread - 1,
                    kind,
                });
            }
            start += bytes;
        }
    }
}

/// The kind of access of a run. Strong reads are not told from strong writes: another block's weak
/// read is a race with either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RunKind {
    Read,
    Write,
    Strong,
}

impl From<How> for RunKind {
    fn from(how: How) -> Self {
        if how.is_strong() {
            Self::Strong
        } else if how.is_write() {
            Self::Write
        } else {
            Self::Read
        }
    }
}

impl RunKind {
    /// Returns whether accesses of two blocks to one byte are a race.
    pub(crate) fn conflicts(self, other: Self) -> bool {
        match (self, other) {
            (Self::Read, Self::Read) | (Self::Strong, Self::Strong) => false,
            (Self::Read | Self::Write | Self::Strong, _) => true,
        }
    }

    pub(crate) fn how(self) -> How {
        match self {
            Self::Read => How::Read,
            Self::Write => How::Write,
            Self::Strong => How::Atomic,
        }
    }
}

/// Neighbouring bytes touched by one thread from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) start: u32,
    pub(crate) bytes: u32,
    pub(crate) site: u32,
    pub(crate) thread: u32,
    pub(crate) kind: RunKind,
}

impl Run {
    pub(crate) fn end(&self) -> u32 {
        self.start + self.bytes
    }
}

#[derive(Debug, Default)]
pub(crate) struct Global {
    /// The index of each page in `pages`, plus 1; 0 if it is untouched.
    index: Vec<u32>,
    pages: Vec<Page>,
    used: usize,
}

impl Global {
    pub(crate) fn start(&mut self, bytes: u64) {
        self.index.clear();
        self.index.resize((bytes as usize).div_ceil(PAGE_BYTES), 0);
        self.used = 0;
    }

    fn page(&mut self, number: usize) -> &mut Page {
        if self.index[number] == 0 {
            if self.used == self.pages.len() {
                let touches = vec![Touch::default(); PAGE_BYTES];
                let cells = vec![Cell::default(); PAGE_BYTES];
                self.pages.push(Page {
                    number: 0,
                    cells,
                    reads: touches.clone(),
                    strong: touches.clone(),
                    writes: touches,
                });
            }
            let page = &mut self.pages[self.used];
            page.number = number as u32;
            page.reads.fill(Touch::default());
            page.writes.fill(Touch::default());
            page.strong.fill(Touch::default());
            self.used += 1;
            self.index[number] = self.used as u32;
        }
        &mut self.pages[self.index[number] as usize - 1]
    }

    /// Enters an access. `races` gets the bytes for which it is not ordered with an event.
    #[allow(clippy::too_many_arguments, reason = "the parts of one access")]
    pub(crate) fn touch(
        &mut self,
        order: &mut Order,
        place: u32,
        bytes: usize,
        event: u32,
        how: How,
        thread: u32,
        site: u32,
        races: &mut Vec<Race>,
    ) {
        let kind = RunKind::from(how);
        let (mut at, end) = (place as usize, place as usize + bytes);
        while at < end {
            let next = (at / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES).min(end);
            let touched = self.page(at / PAGE_BYTES);
            let range = at % PAGE_BYTES..at % PAGE_BYTES + (next - at);
            let skipped = at - place as usize;
            let race = |index, other| note(races, skipped + index, other);
            let cells = touched.cells[range.clone()].iter_mut();
            if kind == RunKind::Write {
                order.write(cells, event, race);
            } else {
                order.read(cells, event, race);
            }
            let touches = match kind {
                RunKind::Read => &mut touched.reads,
                RunKind::Write => &mut touched.writes,
                RunKind::Strong => &mut touched.strong,
            };
            for touch in touches[range].iter_mut().filter(|touch| touch.thread == 0) {
                *touch = Touch {
                    site,
                    thread: thread + 1,
                };
            }
            at = next;
        }
    }

    pub(crate) fn survive(&mut self, order: &mut Order, place: u32, bytes: usize, event: u32) {
        let (mut at, end) = (place as usize, place as usize + bytes);
        while at < end {
            let next = (at / PAGE_BYTES * PAGE_BYTES + PAGE_BYTES).min(end);
            let page = self.page(at / PAGE_BYTES);
            let cells = &mut page.cells[at % PAGE_BYTES..][..next - at];
            order.survive(cells.iter_mut(), event);
            at = next;
        }
    }

    pub(crate) fn finish(&mut self) -> Vec<Run> {
        let mut runs = Vec::new();
        let used = &mut self.pages[..self.used];
        used.sort_by_key(|page| page.number);
        for page in used {
            page.add_runs(&page.reads, RunKind::Read, &mut runs);
            page.add_runs(&page.writes, RunKind::Write, &mut runs);
            page.add_runs(&page.strong, RunKind::Strong, &mut runs);
        }
        runs
    }
}
