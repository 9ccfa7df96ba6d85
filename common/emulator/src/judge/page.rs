//! Shadow memory of a page of outputs: who has touched each byte first, and neighbouring bytes that
//! one thread has touched.

use std::ops::Range;

use super::memory::PAGE_BYTES;
use super::order::{Cell, How};

/// The first access to a byte. `thread` is the thread's number + 1, or 0 if there was none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Touch {
    site: u32,
    pub(super) thread: u32,
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
    pub(super) number: u32,
    pub(super) cells: Vec<Cell>,
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
    pub(super) fn writers(&self, bytes: Range<usize>) -> impl Iterator<Item = u32> {
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
