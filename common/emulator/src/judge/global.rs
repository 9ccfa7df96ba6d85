//! Outputs in global memory: order within a block byte by byte, and what each block has touched, to
//! compare blocks. Reads of inputs are no race, and their writes are reported as such.

use std::collections::BTreeSet;
use std::ops::Range;

use super::between::Between;
use super::memory::PAGE_BYTES;
use super::order::{Cell, How, Order, Race, note};

/// The first access to a byte. `thread` is the thread's number + 1, or 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    site: u32,
    thread: u32,
}

impl Touch {
    pub(super) const NOBODY: Self = Self { site: 0, thread: 0 };

    pub(super) fn new(thread: u32, site: u32) -> Self {
        Self {
            site,
            thread: thread + 1,
        }
    }

    /// Returns the run of the thread that has touched these bytes; none if nobody has.
    pub(super) fn run(self, start: u32, bytes: u32, kind: RunKind) -> Option<Run> {
        let Self { site, thread } = self;
        (thread != 0).then(|| Run {
            start,
            bytes,
            site,
            thread: thread - 1,
            kind,
        })
    }
}

/// The bytes of host memory for each byte of an output that a cluster touches.
pub(crate) const BYTES_PER_BYTE: usize =
    size_of::<Cell>() + RunKind::ALL.len() * size_of::<Touch>();

/// Shadow memory of a page of outputs.
#[derive(Debug)]
pub(super) struct Page {
    number: u32,
    cells: Vec<Cell>,
    reads: Vec<Touch>,
    writes: Vec<Touch>,
    strong: Vec<Touch>,
}

impl Page {
    pub(super) fn new(number: u32) -> Self {
        let touches = vec![Touch::NOBODY; PAGE_BYTES];
        Self {
            number,
            cells: vec![Cell::default(); PAGE_BYTES],
            reads: touches.clone(),
            strong: touches.clone(),
            writes: touches,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn touches(&self, kind: RunKind) -> &[Touch] {
        match kind {
            RunKind::Read => &self.reads,
            RunKind::Write => &self.writes,
            RunKind::Strong => &self.strong,
        }
    }

    pub(super) fn touches_mut(&mut self, kind: RunKind) -> &mut [Touch] {
        match kind {
            RunKind::Read => &mut self.reads,
            RunKind::Write => &mut self.writes,
            RunKind::Strong => &mut self.strong,
        }
    }

    /// Returns the sites that have written some of these bytes, by their offset in the page.
    fn writers(&self, bytes: Range<usize>) -> impl Iterator<Item = u32> {
        let touches =
            [RunKind::Write, RunKind::Strong].map(|kind| &self.touches(kind)[bytes.clone()]);
        let touched = touches.into_iter().flatten();
        touched
            .filter(|touch| touch.thread != 0)
            .map(|touch| touch.site)
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
    pub(super) const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Strong];

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

    /// Returns whether `next` goes on where this one ends, by the same thread from the same place.
    pub(super) fn continues(&self, next: &Self) -> bool {
        let rest = Self {
            start: self.end(),
            bytes: next.bytes,
            ..*self
        };
        rest == *next
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
                self.pages.push(Page::new(0));
            }
            let page = &mut self.pages[self.used];
            page.number = number as u32;
            for kind in RunKind::ALL {
                page.touches_mut(kind).fill(Touch::NOBODY);
            }
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
            let touches = touched.touches_mut(kind)[range].iter_mut();
            for touch in touches.filter(|touch| touch.thread == 0) {
                *touch = Touch::new(thread, site);
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

    /// Returns the sites that have written some of these bytes, by their places.
    pub(crate) fn writers(&self, bytes: Range<usize>) -> BTreeSet<u32> {
        let mut sites = BTreeSet::new();
        for page in &self.pages[..self.used] {
            let start = page.number as usize * PAGE_BYTES;
            let first = bytes.start.clamp(start, start + PAGE_BYTES);
            let end = bytes.end.clamp(start, start + PAGE_BYTES);
            sites.extend(page.writers(first - start..end - start));
        }
        sites
    }

    /// Enters what the cluster with this number in the launch has touched.
    pub(crate) fn tell(&self, cluster: u32, between: &mut Between) {
        for page in &self.pages[..self.used] {
            between.enter(cluster, page);
        }
    }
}
