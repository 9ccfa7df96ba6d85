use std::ops::Range;

use super::clocks::Agent;
use super::deeds::RawTile;
use super::order::{Actor, How};
use super::requests::Space;
use super::side::Side;

/// An access as the judge takes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    pub(super) actor: Actor,
    /// The lanes of a warp that take part.
    pub(super) lanes: u32,
    pub(super) distribution: u64,
    /// The clock of an agent's operation.
    pub(super) clock: u32,
    pub(super) how: How,
    pub(super) site: u32,
}

impl Operation {
    pub(super) fn new(actor: Actor, how: How, site: u32) -> Self {
        Self {
            actor,
            lanes: 1,
            distribution: 0,
            clock: 0,
            how,
            site,
        }
    }

    pub(super) fn side(&self) -> Side {
        Side {
            actor: self.actor,
            how: self.how,
            site: self.site,
        }
    }
}

/// The generic-proxy writer of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The thread, or with a flag the warp, or the thread whose copies they are.
    writer: u32,
    /// The fences of the block until then; the number of a copy that arrives at an mbarrier.
    pub(super) number: u32,
    pub(super) site: u32,
    pub(super) how: How,
}

const WARP: u32 = 1 << 31;
const COPIES: u32 = 1 << 30;

impl Written {
    pub(super) const NOBODY: Self = Self {
        writer: 0,
        number: 0,
        site: 0,
        how: How::Write,
    };

    #[inline]
    pub(super) fn new(actor: Actor, how: How, number: u32, site: u32) -> Self {
        let writer = match actor {
            Actor::Warp(warp) => warp | WARP,
            Actor::Copies(thread) => thread | COPIES,
            _ => actor.thread(),
        };
        Self {
            writer,
            number,
            site,
            how,
        }
    }

    pub(super) fn actor(&self) -> Actor {
        let number = self.writer & !(WARP | COPIES);
        if self.writer & WARP != 0 {
            Actor::Warp(number)
        } else if self.writer & COPIES != 0 {
            Actor::Copies(number)
        } else {
            Actor::Thread(number)
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fork {
    pub(crate) agent: Agent,
    /// The operation's number among those of the agent, in order of completion, from 1. Those that
    /// complete together may share one.
    pub(crate) clock: u32,
    /// The first of the issuing threads.
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) site: u32,
}

/// Bytes of shared memory, by their offset, or of global memory, by their place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(super) space: Space,
    pub(super) start: u32,
    pub(super) count: u32,
}

impl Bytes {
    pub(super) fn shared(range: Range<usize>) -> Self {
        Self {
            space: Space::Shared,
            start: range.start as u32,
            count: range.len() as u32,
        }
    }

    pub(crate) fn global(place: u32, count: usize) -> Self {
        Self {
            space: Space::Global,
            start: place,
            count: count as u32,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    pub(super) operation: Operation,
    pub(super) agent: Agent,
    pub(super) bytes: Bytes,
}

/// A TMA box: its place in shared memory, and its rows in the tensor as addresses and lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TmaBox<Rows> {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: Rows,
    /// Boxes of its height before it in its head.
    pub(crate) number: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Fetch {
    /// The bytes of shared memory that it fills.
    pub(super) range: Range<usize>,
    /// Place and bytes of the first row inside the tensor.
    pub(super) first_row: Option<(u32, u32)>,
    /// See [`TmaBox::number`].
    pub(super) number: u32,
}

impl Fetch {
    /// Returns the tile that a deed is about; `None` if it lies outside the tensor.
    pub(super) fn tile(&self) -> Option<RawTile> {
        let (place, _) = self.first_row?;
        Some(RawTile {
            place,
            number: self.number,
        })
    }
}
