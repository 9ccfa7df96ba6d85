//! Experiments of the instructions that are no functions of their operands alone.

use crate::experiment::Experiment;

pub fn experiments() -> Vec<Experiment> {
    Vec::new()
}
