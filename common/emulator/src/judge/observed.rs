//! What kernels show of one query row by ATTN_OBSERVE, and from where the row's output was stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::order::How;
use super::raw;
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

/// A step of the algorithm, as `attn/observe.cuh` says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Step {
    /// Counts the keys that a row sees.
    Visible,
    /// Scores of keys that a row does not see become -inf.
    Mask,
    /// Scores become exponentials.
    Exponential,
    /// Their sum is added to the row's.
    Sum,
    /// The output so far is brought under the new maximum.
    Rescale,
    /// The lanes' parts of a row's sum become one.
    Join,
    /// Parts of a row over different keys become one.
    Merge,
}

impl Step {
    /// By the number of the shim's enum.
    pub(crate) fn from_number(number: u32) -> Option<Self> {
        [
            Self::Visible,
            Self::Mask,
            Self::Exponential,
            Self::Sum,
            Self::Rescale,
            Self::Join,
            Self::Merge,
        ]
        .get(number as usize)
        .copied()
    }
}

/// What a thread does on its way to a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Does {
    /// An access to memory.
    Access(How),
    /// A step that the kernel marks.
    Step(Step),
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Access(how) => raw::does(*how),
            Self::Step(Step::Visible) => "counts the keys that a row sees",
            Self::Step(Step::Mask) => "masks scores",
            Self::Step(Step::Exponential) => "takes exponentials",
            Self::Step(Step::Sum) => "adds to the row's sum",
            Self::Step(Step::Rescale) => "rescales O",
            Self::Step(Step::Join) => "joins the lanes' sums",
            Self::Step(Step::Merge) => "merges parts of a row",
        })
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

/// The way to what each thread shows next: where it last made each step, and from where it has accessed memory since it last
/// showed something.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    steps_of: Vec<Vec<(u32, Step)>>,
    since: Vec<Vec<(u32, How)>>,
    /// The way to what each thread shows now, as a number in `ways`.
    ways_of: Vec<u32>,
    /// Each once.
    pub(crate) ways: Vec<Vec<(u32, Does)>>,
    /// The sites that have read global memory, each with a place that it has read.
    pub(crate) reads: BTreeMap<u32, u32>,
    /// The sites of steps that bring together what threads have.
    pub(crate) ends: BTreeSet<(u32, Step)>,
    /// Numbers of keys that rows see: thread, site and number.
    pub(crate) visible: Vec<(u32, u32, i32)>,
}

impl Trail {
    pub(crate) fn start(&mut self, threads: u32) {
        *self = Self {
            steps_of: vec![Vec::new(); threads as usize],
            since: vec![Vec::new(); threads as usize],
            ways_of: vec![0; threads as usize],
            ..Self::default()
        };
    }

    pub(crate) fn passes(&mut self, threads: Range<u32>, site: u32, how: How) {
        for thread in threads {
            if let Some(since) = self.since.get_mut(thread as usize)
                && since.last() != Some(&(site, how))
            {
                since.retain(|&known| known != (site, how));
                since.push((site, how));
            }
        }
    }

    pub(crate) fn steps(&mut self, thread: u32, step: Step, value: i32, site: u32) {
        match step {
            Step::Visible => self.visible.push((thread, site, value)),
            Step::Join | Step::Merge => {
                self.ends.insert((site, step));
            }
            Step::Mask | Step::Exponential | Step::Sum | Step::Rescale => {
                let steps = &mut self.steps_of[thread as usize];
                steps.retain(|&(_, known)| known != step);
                steps.push((site, step));
            }
        }
    }

    /// The way to an array that a thread shows; its elements come one by one.
    pub(crate) fn way(&mut self, thread: u32, element: i32) -> u32 {
        let thread = thread as usize;
        if element == 0 {
            let steps = self.steps_of[thread].iter();
            let accesses = std::mem::take(&mut self.since[thread]);
            let way: Vec<(u32, Does)> = steps
                .map(|&(site, step)| (site, Does::Step(step)))
                .chain(
                    accesses
                        .into_iter()
                        .map(|(site, how)| (site, Does::Access(how))),
                )
                .collect();
            let known = self.ways.iter().rposition(|known| *known == way);
            self.ways_of[thread] = known.unwrap_or(self.ways.len()) as u32;
            if known.is_none() {
                self.ways.push(way);
            }
        }
        self.ways_of[thread]
    }
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
    /// Where the thread last made each step, and from where it, or its warp, has accessed memory since it showed something
    /// else. Index in [`Observations::ways`].
    pub way: usize,
}

/// An access or a step on the way to a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passed {
    /// What happens there.
    pub does: Does,
    /// Where, and from where that was inlined: innermost first.
    pub places: Vec<Place>,
}

/// What the blocks showed of the watched row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observations {
    /// Values, thread by thread in program order.
    pub values: Vec<Observed>,
    /// The places of the values.
    pub places: Vec<Vec<Place>>,
    /// The ways to the values: steps, then accesses, each in order of the last one from each place.
    pub ways: Vec<Vec<Passed>>,
    /// From where global memory was read, with the name of the allocation.
    pub reads: Vec<(String, Vec<Place>)>,
    /// From where the row's output was stored, each place once.
    pub stores: Vec<Vec<Place>>,
    /// Where the blocks bring together what lanes and warps have of a row.
    pub ends: Vec<Passed>,
    /// How many keys rows see, as threads that showed something of the row have counted, in that order: the number, and where.
    pub visible: Vec<(i32, Passed)>,
}

impl Observations {
    /// Whether nothing was shown, or nobody asked.
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.stores.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The enumerators of an enum of the shim's header, by number.
    fn enumerators(name: &str) -> Vec<&'static str> {
        let header = include_str!("../../include/attn/observe.cuh");
        let body = header.split(&format!("enum class {name} {{")).nth(1);
        let body = body.and_then(|rest| rest.split('}').next());
        let body = body.expect("the header declares it");
        body.split(',').map(str::trim).collect()
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        let seen = [
            ("SCORES", Seen::Score),
            ("STATE", Seen::State),
            ("LANE_STATE", Seen::LaneState),
            ("PROBABILITIES", Seen::Probability),
            ("RESCALED", Seen::Rescaled),
            ("OUTPUT", Seen::Output),
        ];
        assert_eq!(enumerators("Seen"), seen.map(|(name, _)| name));
        for (number, (name, what)) in (0..).zip(seen) {
            assert_eq!(Seen::from_number(number), Some(what), "{name}");
        }
        assert_eq!(Seen::from_number(seen.len() as u32), None);
        let steps = [
            ("VISIBLE", Step::Visible),
            ("MASK", Step::Mask),
            ("EXPONENTIAL", Step::Exponential),
            ("SUM", Step::Sum),
            ("RESCALE", Step::Rescale),
            ("JOIN", Step::Join),
            ("MERGE", Step::Merge),
        ];
        assert_eq!(enumerators("Step"), steps.map(|(name, _)| name));
        for (number, (name, step)) in (0..).zip(steps) {
            assert_eq!(Step::from_number(number), Some(step), "{name}");
        }
        assert_eq!(Step::from_number(steps.len() as u32), None);
    }
}
