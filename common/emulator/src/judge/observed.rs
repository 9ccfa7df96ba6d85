//! What kernels show of one query row by ATTN_OBSERVE, and from where its output was stored.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;

use super::order::How;
use crate::extent::BlockIndex;
use crate::fault::Place;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    pub row: [i32; 3],
    /// The bytes of the row in the allocation `o`.
    pub output: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Seen {
    /// The score of a key.
    Score,
    /// The maximum and the sum of the row, alternating.
    State,
    /// The maximum, and the sum of the lane's keys alone, alternating.
    LaneState,
    /// The probability of a key.
    Probability,
    Rescaled,
    Output,
}

impl Seen {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Step {
    /// The keys that a row sees are counted.
    Visible,
    /// Scores of invisible keys become -inf.
    Mask,
    Exponential,
    /// Their sum is added to the row's.
    Sum,
    /// The output so far is rescaled to the new maximum.
    Rescale,
    Join,
    /// Parts of a row over different keys are merged.
    Merge,
}

impl Step {
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Does {
    Access(How),
    Step(Step),
}

impl fmt::Display for Does {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Access(how) => how.verb(),
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

/// A value that a thread has shown, and its way to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sighting {
    pub(crate) shown: Shown,
    pub(crate) thread: u32,
    pub(crate) site: u32,
    /// The index in [`Trail::ways`].
    pub(crate) way: u32,
}

/// An action of a thread, and its site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Mark {
    pub(crate) site: u32,
    pub(crate) does: Does,
}

/// The number of visible keys of a row, as a thread counts them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyCount {
    pub(crate) thread: u32,
    pub(crate) site: u32,
    pub(crate) keys: i32,
}

#[derive(Debug, Default)]
pub(crate) struct Trail {
    /// The last mark of each step, thread by thread.
    steps: Vec<Vec<Mark>>,
    /// The accesses of each thread since it showed something.
    accesses: Vec<Vec<Mark>>,
    /// The way of each thread to what it shows now: its index in `ways`.
    ways_of: Vec<u32>,
    /// The ways to values, each once.
    pub(crate) ways: Vec<Vec<Mark>>,
    /// Sites that have read global memory, each with a place that it has read.
    pub(crate) reads: BTreeMap<u32, u32>,
    /// Sites of steps that join what threads have.
    pub(crate) ends: BTreeSet<Mark>,
    pub(crate) visible: Vec<KeyCount>,
}

impl Trail {
    pub(crate) fn start(&mut self, threads: u32) {
        *self = Self {
            steps: vec![Vec::new(); threads as usize],
            accesses: vec![Vec::new(); threads as usize],
            ways_of: vec![0; threads as usize],
            ..Self::default()
        };
    }

    pub(crate) fn passes(&mut self, threads: Range<u32>, site: u32, how: How) {
        let mark = Mark {
            site,
            does: Does::Access(how),
        };
        for thread in threads {
            if let Some(accesses) = self.accesses.get_mut(thread as usize)
                && accesses.last() != Some(&mark)
            {
                accesses.retain(|&known| known != mark);
                accesses.push(mark);
            }
        }
    }

    pub(crate) fn steps(&mut self, thread: u32, step: Step, value: i32, site: u32) {
        let mark = Mark {
            site,
            does: Does::Step(step),
        };
        match step {
            Step::Visible => self.visible.push(KeyCount {
                thread,
                site,
                keys: value,
            }),
            Step::Join | Step::Merge => {
                self.ends.insert(mark);
            }
            Step::Mask | Step::Exponential | Step::Sum | Step::Rescale => {
                let steps = &mut self.steps[thread as usize];
                steps.retain(|known| known.does != mark.does);
                steps.push(mark);
            }
        }
    }

    /// Returns the thread's way to what it shows. An array's elements come one by one.
    pub(crate) fn way(&mut self, thread: u32, element: i32) -> u32 {
        let index = thread as usize;
        if element == 0 {
            let mut way = self.steps[index].clone();
            way.append(&mut self.accesses[index]);
            let known = self.ways.iter().rposition(|other| *other == way);
            self.ways_of[index] = known.unwrap_or(self.ways.len()) as u32;
            if known.is_none() {
                self.ways.push(way);
            }
        }
        self.ways_of[index]
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub what: Seen,
    pub tile: i32,
    /// The key relative to `tile`, or the output column; of a state, that of its place.
    pub index: i32,
    pub element: i32,
    pub value: f32,
    pub block: BlockIndex,
    pub thread: u32,
    pub place: usize,
    pub way: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Passed {
    pub does: Does,
    /// The source line and those that called it, innermost first.
    pub places: Vec<Place>,
}

/// A place that reads a tensor in global memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorRead {
    /// The name of its allocation.
    pub tensor: String,
    /// The source line and those that called it, innermost first.
    pub places: Vec<Place>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observations {
    /// The values, thread by thread in program order.
    pub values: Vec<Observed>,
    pub places: Vec<Vec<Place>>,
    /// Ways to the values: where the thread last made each step, then from where it or its warp has
    /// accessed memory since it showed something else, in order.
    pub ways: Vec<Vec<Passed>>,
    pub reads: Vec<TensorRead>,
    pub stores: Vec<Vec<Place>>,
    pub ends: Vec<Passed>,
    /// Visible keys of a row, as counted by threads that showed something of it, and where.
    pub visible: Vec<(i32, Passed)>,
}

impl Observations {
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.stores.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks that the shim's header has these enumerators of `name` in this order, and that their
    /// numbers are read as these values.
    fn assert_numbered<T: PartialEq + std::fmt::Debug>(
        name: &str,
        from_number: impl Fn(u32) -> Option<T>,
        expected: &[(&str, T)],
    ) {
        let header = include_str!("../../include/attn/observe.cuh");
        let declaration = format!("enum class {name} {{");
        let (_, rest) = header.split_once(&declaration).expect("it is declared");
        let (body, _) = rest.split_once('}').expect("it has an end");
        let mut numbered = (0..).zip(body.split(',').map(str::trim));
        for (enumerator, value) in expected {
            let (number, declared) = numbered.next().unwrap();
            assert_eq!(
                (declared, from_number(number).as_ref()),
                (*enumerator, Some(value))
            );
        }
        assert_eq!(numbered.next(), None);
        assert_eq!(from_number(expected.len() as u32), None);
    }

    #[test]
    fn numbers_are_those_of_the_header() {
        assert_numbered(
            "Seen",
            Seen::from_number,
            &[
                ("SCORES", Seen::Score),
                ("STATE", Seen::State),
                ("LANE_STATE", Seen::LaneState),
                ("PROBABILITIES", Seen::Probability),
                ("RESCALED", Seen::Rescaled),
                ("OUTPUT", Seen::Output),
            ],
        );
        assert_numbered(
            "Step",
            Step::from_number,
            &[
                ("VISIBLE", Step::Visible),
                ("MASK", Step::Mask),
                ("EXPONENTIAL", Step::Exponential),
                ("SUM", Step::Sum),
                ("RESCALE", Step::Rescale),
                ("JOIN", Step::Join),
                ("MERGE", Step::Merge),
            ],
        );
    }
}
