//! What a variant counts on a problem of the claims, from as few blocks as stand for the launch.

use crate::device::Staged;
use crate::device::emulated::{Selection, trace};
use crate::problem::{Mask, Problem};
use crate::stage::Prepared;
use emulator::trace::Counted;
pub use emulator::trace::Counters;
use emulator::{Schedule, TraceReport};

/// The outcome of counting a launch. The fields that exist depend on the status.
#[derive(Clone, Debug, PartialEq)]
#[allow(
    clippy::large_enum_variant,
    reason = "nearly every outcome is the large one"
)]
pub enum Counting {
    /// It was counted.
    Counted {
        /// Counters of the whole launch.
        launch: Counters,
        /// Blocks that were traced; the others are like them.
        traced_blocks: u64,
        /// Blocks of the launch.
        launch_blocks: u64,
        /// Tiles of the launch: pairs of a tile of queries and a tile of keys, over all heads.
        tiles: u64,
    },
    /// The traced blocks have a hazard (gate H1): figures of a broken kernel mean nothing.
    Hazardous {
        /// The first hazard.
        reason: String,
    },
    /// It was not counted.
    NotCounted {
        /// Why.
        reason: String,
    },
}

impl Counting {
    /// Counters of the launch, or why there are none.
    pub fn launch(&self) -> Result<&Counters, &str> {
        match self {
            Counting::Counted { launch, .. } => Ok(launch),
            Counting::Hazardous { reason } | Counting::NotCounted { reason } => Err(reason),
        }
    }
}

/// Counts the launch of `prepared` on `staged`. Where no mask and no ragged tile makes blocks different, the first and
/// the last block are traced and stand for all; if they differ after all, or where blocks may differ, every block is.
pub fn count(prepared: &Prepared<'_>, staged: &Staged) -> Counting {
    let ends = [[0; 3], prepared.grid.map(|size| size - 1)];
    let sample =
        (are_blocks_alike(prepared, &staged.problem) && ends[0] != ends[1]).then_some(&ends[..]);
    let counted = match traced(prepared, staged, sample) {
        Ok(counted) if counted.launch().is_none() => traced(prepared, staged, None),
        other => other,
    };
    match counted {
        Err(counting) => *counting,
        Ok(counted) => Counting::Counted {
            launch: counted.launch().unwrap_or(counted.sum),
            traced_blocks: counted.traced_blocks,
            launch_blocks: counted.launch_blocks,
            tiles: tiles(prepared, &staged.problem),
        },
    }
}

/// The counters of some blocks, or why there are none.
fn traced(
    prepared: &Prepared<'_>,
    staged: &Staged,
    blocks: Option<&[[u32; 3]]>,
) -> Result<Counted, Box<Counting>> {
    let selection = Selection {
        blocks,
        ..Selection::default()
    };
    match trace(prepared, staged, Schedule::InOrder, &selection) {
        Err(fault) => Err(Box::new(Counting::NotCounted {
            reason: fault.to_string(),
        })),
        Ok(None) => {
            let reason = "the C++ compiler has no traced build; g++ 12 or later has".to_string();
            Err(Box::new(Counting::NotCounted { reason }))
        }
        Ok(Some(TraceReport {
            hazards, counted, ..
        })) => match hazards.first() {
            Some(hazard) => Err(Box::new(Counting::Hazardous {
                reason: hazard.to_string(),
            })),
            None => Ok(counted),
        },
    }
}

/// Whether each block does the same work: one whole tile of queries each, all keys visible to all of them.
fn are_blocks_alike(prepared: &Prepared<'_>, problem: &Problem) -> bool {
    let (shape, block_m) = (&problem.shape, prepared.kernel.block_m);
    let grid = [shape.seq_q / block_m, shape.heads_q, shape.batch].map(|size| size as u32);
    problem.mask == Mask::Full && shape.seq_q.is_multiple_of(block_m) && prepared.grid == grid
}

fn tiles(prepared: &Prepared<'_>, problem: &Problem) -> u64 {
    let (shape, kernel) = (&problem.shape, prepared.kernel);
    let per_head = shape.seq_q.div_ceil(kernel.block_m) * shape.seq_kv.div_ceil(kernel.block_n);
    (shape.batch * shape.heads_q * per_head) as u64
}
