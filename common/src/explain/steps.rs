//! What a kernel showed of one query row, as the steps of an online softmax.

use emulator::trace::{Observations, Observed, Seen};
use std::collections::BTreeMap;

/// A value, or its parts, by lane.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Cell {
    /// By thread of the block.
    pub lanes: BTreeMap<u32, f64>,
    pub place: usize,
    pub way: usize,
}

impl Cell {
    pub fn sum(&self) -> f64 {
        self.lanes.values().sum()
    }

    /// One lane's value, where all have the same.
    pub fn any(&self) -> f64 {
        self.lanes.values().next().copied().unwrap_or(f64::NAN)
    }

    /// The sum of magnitudes, which bounds what adding up rounds.
    pub fn magnitude(&self) -> f64 {
        self.lanes.values().map(|value| value.abs()).sum()
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    pub tile: i64,
    pub scores: BTreeMap<i64, Cell>,
    /// Maximum of score * scale_log2.
    pub max: Option<Cell>,
    pub sum: Option<Cell>,
    /// Whether lanes have parts of it.
    pub sum_in_parts: bool,
    pub probabilities: BTreeMap<i64, Cell>,
    pub rescaled: BTreeMap<i64, Cell>,
    pub output: BTreeMap<i64, Cell>,
}

impl Step {
    pub fn row_sum(&self) -> Option<f64> {
        let cell = self.sum.as_ref()?;
        Some(if self.sum_in_parts {
            cell.sum()
        } else {
            cell.any()
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    pub block: [u32; 3],
    pub warp: u32,
    pub steps: Vec<Step>,
}

pub fn chains(observations: &Observations) -> Vec<Chain> {
    let mut chains: BTreeMap<([u32; 3], u32), Chain> = BTreeMap::new();
    for seen in &observations.values {
        let key = (seen.block, seen.thread / 32);
        let chain = chains.entry(key).or_insert_with(|| Chain {
            block: key.0,
            warp: key.1,
            steps: Vec::new(),
        });
        let tile = i64::from(seen.tile);
        let at = chain.steps.iter().position(|step| step.tile == tile);
        let at = at.unwrap_or_else(|| {
            chain.steps.push(Step {
                tile,
                ..Step::default()
            });
            chain.steps.len() - 1
        });
        chain.steps[at].take(seen);
    }
    chains.into_values().collect()
}

impl Step {
    fn take(&mut self, seen: &Observed) {
        let index = i64::from(seen.index);
        let key = self.tile + index;
        let cell = match seen.what {
            Seen::Score => self.scores.entry(key).or_default(),
            Seen::Probability => self.probabilities.entry(key).or_default(),
            Seen::Rescaled => self.rescaled.entry(index).or_default(),
            Seen::Output => self.output.entry(index).or_default(),
            Seen::State | Seen::LaneState if seen.element % 2 == 0 => {
                self.max.get_or_insert_default()
            }
            Seen::State | Seen::LaneState => {
                self.sum_in_parts = seen.what == Seen::LaneState;
                self.sum.get_or_insert_default()
            }
        };
        // A score is one lane's: what another showed before is no part of it.
        if matches!(seen.what, Seen::Score | Seen::Probability) {
            cell.lanes.clear();
        }
        cell.lanes.insert(seen.thread, seen.value.into());
        (cell.place, cell.way) = (seen.place, seen.way);
    }
}
