//! What kernels show of one query row by ATTN_OBSERVE, and from where the row's output was stored.

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::fault::Place;

/// The row that someone wants to know about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Batch, head and query row.
    pub row: [i32; 3],
    /// Its bytes in the allocation that is called `o`.
    pub output: Range<usize>,
}

/// What a value is, as `attn/observe.cuh` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Seen {
    /// A score, by key.
    Score,
    /// Maximum and sum of the row, by turns.
    State,
    /// The same, the sum being that of the lane's keys alone.
    LaneState,
    /// An exponential, by key.
    Probability,
    /// Output before the product of the tile, by column.
    Rescaled,
    /// Output after it, by column.
    Output,
}

impl Seen {
    /// By the number of the shim's enum.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [
            Self::Score,
            Self::State,
            Self::LaneState,
            Self::Probability,
            Self::Rescaled,
            Self::Output,
        ]
        .get(number as usize)
        .copied()
    }
}

/// `EmulatorObserved` of abi.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shown {
    pub(crate) what: u32,
    pub(crate) row: [i32; 3],
    pub(crate) tile: i32,
    pub(crate) index: i32,
    pub(crate) element: i32,
    pub(crate) value: f32,
}

/// A value of the watched row, in the order in which its thread showed them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// What it is.
    pub what: Seen,
    /// First key of the tile.
    pub tile: i32,
    /// Key, counted from there, or output column; of a state, that of its place.
    pub index: i32,
    /// Of the array that was shown.
    pub element: i32,
    /// As the thread has it.
    pub value: f32,
    /// blockIdx.
    pub block: [u32; 3],
    /// Linear index in the block.
    pub thread: u32,
    /// Where, and from where that was inlined: innermost first. Index in [`Observations::places`].
    pub place: usize,
}

/// What the blocks showed of the watched row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    /// Values, thread by thread in program order.
    pub values: Vec<Observed>,
    /// The places of the values.
    pub places: Vec<Vec<Place>>,
    /// From where the row's output was stored, each place once.
    pub stores: Vec<Vec<Place>>,
}

impl Observations {
    /// Whether nothing was shown, or nobody asked.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.stores.is_empty()
    }
}
