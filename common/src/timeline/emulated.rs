//! The order of what the warps of one block do, from the emulator.

use super::{Axis, Sources, Span, Timeline, What};
use crate::device::Staged;
use crate::device::emulated::{Selection, blocks, execute_traced};
use crate::stage::{Attention, Prepared};
use emulator::trace::{Deed, Tile};
use emulator::{Fault, Schedule};

/// Runs the traced build, and returns what the warps of block number `block` (x, then y, then z) do
/// in steps, which are the same in every schedule. A warp is its first lane: what another lane does
/// that was elected is not there, and which one is elected is up to the schedule.
///
/// # Errors
///
/// A launch that is refused.
pub fn order(
    stage: &dyn Attention,
    prepared: &Prepared<'_>,
    staged: &Staged,
    block: u32,
    schedule: Schedule,
) -> Result<Timeline, Fault> {
    let [width, height, _] = blocks(prepared);
    let index = [
        block % width,
        block / width % height,
        block / width / height,
    ];
    let cluster = prepared.kernel.cluster.max(1);
    let first = [index[0] - index[0] % cluster, index[1], index[2]];
    let names: Vec<&'static str> = What::ALL
        .iter()
        .flat_map(|what| what.functions().iter().copied())
        .collect();
    let selection = Selection {
        blocks: Some(&[first]),
        deeds: &names,
        ..Selection::default()
    };
    let report = execute_traced(prepared, staged, schedule, &selection)?.report;
    let sources = Sources(stage.artifacts().sources);
    let warps = prepared.kernel.threads.div_ceil(32) as usize;
    let mut spans: Vec<Span> = report
        .deeds
        .iter()
        .filter(|deed| deed.block == index)
        .filter_map(|deed| span(deed, sources))
        .collect();
    spans.sort_by_key(|span| span.warp);
    Ok(Timeline {
        axis: Axis::Steps,
        warps,
        spans,
        cut: vec![],
        hazards: report.hazards.len() + report.more_hazards,
    })
}

/// Returns a deed as a span; `None` for an operation that is not noted.
fn span(deed: &Deed, sources: Sources<'_>) -> Option<Span> {
    let place = deed.places.first().filter(|place| place.line > 0);
    Some(Span {
        warp: deed.warp as usize,
        what: What::of_function(deed.operation)?,
        begin: deed.begin,
        end: deed.end,
        argument: deed.object,
        site: place.map(|known| sources.at(&known.file, known.line)),
        tile: deed.tile.as_ref().map(tile),
    })
}

/// Returns the tile as pictures name it: `K3`.
fn tile(tile: &Tile) -> String {
    format!("{}{}", tile.tensor.to_uppercase(), tile.number)
}
