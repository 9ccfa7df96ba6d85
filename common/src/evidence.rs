//! What a variant counts, from as few blocks as stand for the launch.

use crate::device::Staged;
use crate::device::emulated::{Selection, trace};
use crate::problem::{Mask, Problem};
use crate::stage::{Prepared, Unsupported};
use emulator::trace::Counted;
pub use emulator::trace::Counters;
use emulator::{Fault, Schedule};

#[derive(Clone, Debug, PartialEq)]
pub struct CountedLaunch {
    pub counters: Counters,
    /// Blocks that were traced; the others are like them.
    pub traced_blocks: u64,
    pub launch_blocks: u64,
    /// Pairs of a tile of queries and a tile of keys, over all heads.
    pub tiles: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum NotCounted {
    /// Gate H1 fails: figures of a broken kernel mean nothing.
    #[error("{0}")]
    Hazard(String),
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    #[error("the traced build does not start: {0}")]
    NotTraced(#[from] Fault),
}

/// Where no mask and no ragged tile makes blocks different, the first and the last are traced and stand for all, if they agree.
pub fn count(prepared: &Prepared<'_>, staged: &Staged) -> Result<CountedLaunch, NotCounted> {
    let ends = [[0; 3], prepared.grid.map(|size| size - 1)];
    let sample =
        (are_blocks_alike(prepared, &staged.problem) && ends[0] != ends[1]).then_some(&ends[..]);
    let mut counted = traced(prepared, staged, sample)?;
    if counted.launch().is_none() {
        counted = traced(prepared, staged, None)?;
    }
    Ok(CountedLaunch {
        counters: counted.launch().unwrap_or(counted.sum),
        traced_blocks: counted.traced_blocks,
        launch_blocks: counted.launch_blocks,
        tiles: tiles(prepared, &staged.problem),
    })
}

fn traced(
    prepared: &Prepared<'_>,
    staged: &Staged,
    blocks: Option<&[[u32; 3]]>,
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

/// One whole tile of queries each, and all keys visible.
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
