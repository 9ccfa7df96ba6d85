//! What a kernel showed of one query row, as the steps of an online softmax.

use emulator::trace::{Observations, Observed, Seen};
use std::collections::BTreeMap;

/// A value, or its parts, as the lanes of a warp show it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// The values, keyed by the thread of the block.
    pub lanes: BTreeMap<u32, f64>,
    pub place: usize,
    pub way: usize,
}

impl Cell {
    /// Returns the sum of the lanes' parts.
    pub fn sum(&self) -> f64 {
        self.lanes.values().sum()
    }

    /// Returns one lane's value, where all have the same.
    pub fn any(&self) -> f64 {
        self.lanes.values().next().copied().unwrap_or(f64::NAN)
    }

    /// Returns the sum of the parts' magnitudes, which bounds what adding up rounds.
    pub fn magnitude(&self) -> f64 {
        self.lanes.values().map(|value| value.abs()).sum()
    }
}

/// One tile of keys, as a warp showed it. Maps are keyed by key or by output column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The first key of the tile.
    pub tile: i64,
    pub scores: BTreeMap<i64, Cell>,
    /// The maximum of score * scale_log2.
    pub max: Option<Cell>,
    pub sum: Option<Cell>,
    /// Whether each lane shows a part of the sum.
    pub sum_in_parts: bool,
    pub probabilities: BTreeMap<i64, Cell>,
    pub rescaled: BTreeMap<i64, Cell>,
    pub output: BTreeMap<i64, Cell>,
}

impl Step {
    /// Returns the running sum of the row, if the step shows it.
    pub fn row_sum(&self) -> Option<f64> {
        let cell = self.sum.as_ref()?;
        Some(if self.sum_in_parts {
            cell.sum()
        } else {
            cell.any()
        })
    }
}

/// The steps of one warp in the order in which it showed them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    pub block: [u32; 3],
    pub warp: u32,
    pub steps: Vec<Step>,
}

/// A warp of a launch.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Warp {
    block: [u32; 3],
    warp: u32,
}

/// Groups what a kernel showed of a row by the warp that showed it.
pub fn group_by_warp(observations: &Observations) -> Vec<Chain> {
    let mut chains: BTreeMap<Warp, Chain> = BTreeMap::new();
    for observed in &observations.values {
        let (block, warp) = (observed.block, observed.thread / 32);
        let chain = chains.entry(Warp { block, warp }).or_insert_with(|| Chain {
            block,
            warp,
            steps: Vec::new(),
        });
        chain.step_mut(observed).add(observed);
    }
    chains.into_values().collect()
}

impl Chain {
    /// Returns the step that shows a value: that of its tile, a new one at the first sight of it. At
    /// the end kernels show the output under tile 0; where the row's keys begin behind that tile, it
    /// is the last step's.
    fn step_mut(&mut self, observed: &Observed) -> &mut Step {
        let tile = i64::from(observed.tile);
        let of_tile = self.steps.iter().position(|step| step.tile == tile);
        let known = match observed.what {
            Seen::Output => of_tile.or(self.steps.len().checked_sub(1)),
            _ => of_tile,
        };
        let index = known.unwrap_or(self.steps.len());
        if known.is_none() {
            self.steps.push(Step {
                tile,
                ..Step::default()
            });
        }
        &mut self.steps[index]
    }
}

impl Step {
    fn add(&mut self, observed: &Observed) {
        let index = i64::from(observed.index);
        let key = self.tile + index;
        let cell = match observed.what {
            Seen::Score => self.scores.entry(key).or_default(),
            Seen::Probability => self.probabilities.entry(key).or_default(),
            Seen::Rescaled => self.rescaled.entry(index).or_default(),
            Seen::Output => self.output.entry(index).or_default(),
            Seen::State | Seen::LaneState if observed.element % 2 == 0 => {
                self.max.get_or_insert_default()
            }
            Seen::State | Seen::LaneState => {
                self.sum_in_parts = observed.what == Seen::LaneState;
                self.sum.get_or_insert_default()
            }
        };
        // A score belongs to one lane: what another showed before is no part of it.
        if matches!(observed.what, Seen::Score | Seen::Probability) {
            cell.lanes.clear();
        }
        cell.lanes.insert(observed.thread, observed.value.into());
        (cell.place, cell.way) = (observed.place, observed.way);
    }
}
