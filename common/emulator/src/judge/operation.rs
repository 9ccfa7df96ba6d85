use std::ops::Range;

use super::clocks::Agent;
use super::order::{Actor, How};
use super::raw::Side;
use super::requests::Space;

#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) actor: Actor,
    pub(super) lanes: u32,
    pub(super) distribution: u64,
    pub(super) clock: u32,
    pub(super) how: How,
    pub(super) site: u32,
}

impl Made {
    pub(super) fn by(actor: Actor, how: How, site: u32) -> Self {
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

/// Generic-proxy writer of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The thread, or the warp with the highest bit set.
    pub(super) by: u32,
    /// Fences of the block until then.
    pub(super) fences: u32,
    pub(super) site: u32,
    pub(super) how: How,
}

const WARP: u32 = 1 << 31;

impl Written {
    pub(super) const NOBODY: Self = Self {
        by: 0,
        fences: 0,
        site: 0,
        how: How::Write,
    };

    #[inline]
    pub(super) fn new(actor: Actor, how: How, fences: u32, site: u32) -> Self {
        let by = match actor {
            Actor::Warp(warp) => warp | WARP,
            actor => actor.thread(),
        };
        Self {
            by,
            fences,
            site,
            how,
        }
    }

    pub(super) fn actor(&self) -> Actor {
        if self.by & WARP == 0 {
            Actor::Thread(self.by)
        } else {
            Actor::Warp(self.by & !WARP)
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Fork {
    pub(crate) agent: Agent,
    /// Among those of the agent, in order of completion, from 1. Those that complete together may share one.
    pub(crate) clock: u32,
    /// First of the issuing threads.
    pub(crate) first: u32,
    pub(crate) count: u32,
    pub(crate) site: u32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct UnderWay {
    pub(super) made: Made,
    pub(super) agent: Agent,
    pub(super) space: Space,
    pub(super) start: u32,
    pub(super) bytes: u32,
}

/// A TMA box: its place in shared memory, and its rows in the tensor as addresses and lengths.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TmaBox<Rows> {
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
    pub(crate) rows: Rows,
}

#[derive(Clone, Debug)]
pub(super) struct Fetch {
    /// In shared memory.
    pub(super) range: Range<usize>,
    /// Place and bytes of the first row inside the tensor.
    pub(super) first_row: Option<(u32, u32)>,
}
