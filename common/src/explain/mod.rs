//! Explains why a row is wrong: compares what a kernel showed of it in the emulator with an FP64
//! model of each step. A step of the model starts from what the kernel had before it, so that no
//! bound grows.
//!
//! [`explain()`] walks through the steps of each warp ([`walk`]), then compares the stored row
//! ([`ends`]), and names lines to look at ([`look`]). [`model`] computes what each step should
//! show.

mod ends;
mod explained;
mod investigate;
mod look;
mod model;
mod operands;
mod rounding;
mod steps;
mod walk;

use emulator::trace::Observations;

pub use explained::{Closest, Deviation, Explained};
pub use investigate::{InvestigateError, Investigated, investigate};
pub use look::{Action, Suspect};
pub use operands::{Case, Quantity, Wrong};
pub use steps::{Cell, Chain, Step};

use ends::StoredRow;
use look::Doubt;
use operands::Operands;
use walk::{Nearest, Walk};

/// Finds where a row first leaves its bounds or, if it does not, which number is closest to that.
pub fn explain(case: &Case<'_>, observations: &Observations) -> Explained {
    let operands = Operands::new(case);
    let chains = steps::group_by_warp(observations);
    let walk = Walk::through(&chains, &operands, case.probability);
    let stored = case
        .output
        .map(|output| StoredRow::compare(&operands, case.is_shared, &walk.ends, output));

    let deviation = match (walk.first_deviation, &stored) {
        (Some(first), _) => Some(first.describe(&chains, &operands, observations)),
        (None, Some(row)) => ends::miscounted_keys(&operands, &chains, observations)
            .or_else(|| row.deviation(observations)),
        (None, None) => None,
    };
    let closest = match deviation {
        Some(_) => None,
        None => closest(walk.nearest, stored.as_ref(), &operands, observations),
    };
    Explained {
        chains,
        deviation,
        closest,
    }
}

fn closest(
    nearest_of_steps: Option<Nearest<'_>>,
    stored: Option<&StoredRow>,
    operands: &Operands,
    observations: &Observations,
) -> Option<Closest> {
    let stored_share = stored.map_or(0.0, StoredRow::largest_share);
    if let Some(nearest) = nearest_of_steps.filter(|nearest| nearest.share > stored_share) {
        return Some(Closest {
            quantity: nearest.quantity,
            share: nearest.share,
            tile: Some(nearest.tile),
            look: look::suspects_of_value(
                observations,
                nearest.quantity,
                nearest.cell,
                Doubt::Here,
                operands.visible.end,
            ),
        });
    }
    let row = stored?;
    Some(Closest {
        quantity: Quantity::Result,
        share: stored_share,
        tile: None,
        look: row.suspects(observations),
    })
}

#[cfg(test)]
mod tests;
