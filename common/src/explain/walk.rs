//! The walk through the steps that the warps of a kernel showed of a row.

use super::explained::Deviation;
use super::look;
use super::model::{State, StepModel};
use super::operands::{Operands, Quantity, Wrong};
use super::steps::{Cell, Chain, Step};
use crate::probability::Probability;
use emulator::trace::Observations;

/// The quantities of a step in the order in which a kernel computes them.
const QUANTITIES_OF_STEPS: [Quantity; 6] = [
    Quantity::Score,
    Quantity::Maximum,
    Quantity::Probability,
    Quantity::Sum,
    Quantity::Rescaled,
    Quantity::Output,
];

/// The findings of a walk through all chains.
#[derive(Default)]
pub(super) struct Walk<'a> {
    /// The state of each warp at its end, or before its first step that deviates.
    pub ends: Vec<State>,
    /// The deviation of the earliest step of all chains; among equals that of the earliest
    /// quantity.
    pub first_deviation: Option<StepDeviation<'a>>,
    /// The number closest to its bound.
    pub nearest: Option<Nearest<'a>>,
}

/// A quantity of a step that leaves its bounds.
pub(super) struct StepDeviation<'a> {
    /// Indices of the chain and of its step.
    at: [usize; 2],
    quantity: Quantity,
    wrong: Vec<Wrong>,
    /// The number of numbers that were compared.
    compared: usize,
    /// The cell that shows the first of `wrong`.
    cell: &'a Cell,
}

/// The number of all steps whose difference takes the largest part of its bound.
pub(super) struct Nearest<'a> {
    pub share: f64,
    pub quantity: Quantity,
    pub cell: &'a Cell,
    /// The first key of its tile.
    pub tile: i64,
}

impl<'a> Walk<'a> {
    /// Compares all steps with the model; in each chain, up to the first that deviates.
    pub fn through(chains: &'a [Chain], operands: &Operands, probability: Probability) -> Self {
        let mut walk = Self::default();
        for (chain_index, chain) in chains.iter().enumerate() {
            let mut state = State::empty(operands.dim);
            for (step_index, step) in chain.steps.iter().enumerate() {
                let model = StepModel::new(operands, step, &state, probability);
                if let Some(deviation) = walk.judge(&model, step, [chain_index, step_index]) {
                    walk.keep_earliest(deviation);
                    break;
                }
                state = state.after(step);
            }
            walk.ends.push(state);
        }
        walk
    }

    /// Compares one step. Returns the first quantity that deviates: later ones follow from it.
    fn judge(
        &mut self,
        model: &StepModel<'a, '_>,
        step: &Step,
        at: [usize; 2],
    ) -> Option<StepDeviation<'a>> {
        for quantity in QUANTITIES_OF_STEPS {
            let numbers = model.numbers(quantity);
            for shown in &numbers {
                self.keep_nearest(Nearest {
                    share: shown.number.share_of_bound(),
                    quantity,
                    cell: shown.cell,
                    tile: step.tile,
                });
            }
            let first_wrong = numbers.iter().find(|shown| !shown.number.is_right());
            if let Some(first) = first_wrong {
                return Some(StepDeviation {
                    at,
                    quantity,
                    wrong: Wrong::only_wrong(numbers.iter().map(|shown| shown.number)),
                    compared: numbers.len(),
                    cell: first.cell,
                });
            }
        }
        None
    }

    fn keep_nearest(&mut self, candidate: Nearest<'a>) {
        let largest_share = self.nearest.as_ref().map_or(0.0, |nearest| nearest.share);
        if candidate.share > largest_share {
            self.nearest = Some(candidate);
        }
    }

    fn keep_earliest(&mut self, candidate: StepDeviation<'a>) {
        let is_earliest = match &self.first_deviation {
            None => true,
            Some(known) => candidate.order() < known.order(),
        };
        if is_earliest {
            self.first_deviation = Some(candidate);
        }
    }
}

impl StepDeviation<'_> {
    /// Returns what decides between the deviations of two chains.
    fn order(&self) -> (usize, Quantity) {
        (self.at[1], self.quantity)
    }

    /// Adds the places to look at.
    pub fn describe(
        self,
        chains: &[Chain],
        operands: &Operands,
        observations: &Observations,
    ) -> Deviation {
        let [chain, step] = self.at;
        let step_shown = &chains[chain].steps[step];
        let doubt = look::doubt(operands, step_shown, self.quantity, &self.wrong);
        Deviation {
            quantity: self.quantity,
            at: Some(self.at),
            compared: self.compared,
            look: look::suspects_of_value(
                observations,
                self.quantity,
                self.cell,
                doubt,
                operands.visible.end,
            ),
            wrong: self.wrong,
        }
    }
}
