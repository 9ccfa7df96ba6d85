//! The counters of a variant, from as few blocks as stand for the launch.

use crate::device::Staged;
use crate::device::emulated::{Selection, blocks, trace};
use crate::problem::{Mask, Problem, Shape};
use crate::stage::{Prepared, Unsupported};
use emulator::trace::Counted;
pub use emulator::trace::Counters;
use emulator::{BlockIndex, Fault, Schedule};

/// The counters of a launch.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedLaunch {
    pub counters: Counters,
    /// The number of blocks that were traced; the others are like them.
    pub traced_blocks: u64,
    pub launch_blocks: u64,
    /// The number of pairs of a tile of queries and a tile of keys, over all heads.
    pub tiles: u64,
}

/// A reason why there are no counters.
#[derive(Debug, thiserror::Error)]
pub enum NotCounted {
    /// A hazard, so that gate H1 fails: figures of a broken kernel mean nothing.
    #[error("{0}")]
    Hazard(String),
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error("the traced build does not start: {0}")]
    NotTraced(#[from] Fault),
}

/// Counts a launch. Where no mask and no ragged tile makes blocks different, the first and the last
/// are traced and stand for all, if they agree.
pub fn count(prepared: &Prepared<'_>, staged: &Staged) -> Result<CountedLaunch, NotCounted> {
    let ends = [[0; 3], blocks(prepared).map(|size| size - 1)];
    let has_sample = are_blocks_alike(prepared, &staged.problem) && ends[0] != ends[1];
    let mut counted = count_blocks(prepared, staged, has_sample.then_some(&ends[..]))?;
    if counted.launch().is_none() {
        counted = count_blocks(prepared, staged, None)?;
    }
    Ok(CountedLaunch {
        counters: counted.launch().unwrap_or(counted.sum),
        traced_blocks: counted.traced_blocks,
        launch_blocks: counted.launch_blocks,
        tiles: tiles(prepared, &staged.problem),
    })
}

/// Traces these blocks, or all.
fn count_blocks(
    prepared: &Prepared<'_>,
    staged: &Staged,
    blocks: Option<&[BlockIndex]>,
) -> Result<Counted, NotCounted> {
    let selection = Selection {
        blocks,
        ..Selection::default()
    };
    let report = trace(prepared, staged, Schedule::InOrder, &selection)?;
    match report.hazards.first() {
        Some(hazard) => Err(NotCounted::Hazard(hazard.to_string())),
        None => Ok(report.counted),
    }
}

/// Returns whether each block has one whole tile of queries, and all keys are visible.
fn are_blocks_alike(prepared: &Prepared<'_>, problem: &Problem) -> bool {
    let Shape {
        batch,
        heads_q,
        seq_q,
        ..
    } = problem.shape;
    let block_m = prepared.kernel.block_m;
    let grid = [seq_q / block_m, heads_q, batch].map(|size| size as u32);
    problem.mask == Mask::Full
        && seq_q.is_multiple_of(block_m)
        && !prepared.is_persistent
        && prepared.grid == grid
}

fn tiles(prepared: &Prepared<'_>, problem: &Problem) -> u64 {
    let Shape {
        batch,
        heads_q,
        seq_q,
        seq_kv,
        ..
    } = problem.shape;
    let kernel = prepared.kernel;
    let per_head = seq_q.div_ceil(kernel.block_m) * seq_kv.div_ceil(kernel.block_n);
    (batch * heads_q * per_head) as u64
}
