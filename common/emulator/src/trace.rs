//! Tracing: a launch of the traced build, with every access judged by happens-before and counted.
//!
//! The order in which the emulator happens to run threads decides nothing: two accesses are ordered
//! only by synchronisation. What that is, is said in one place per primitive, in the FFI module and
//! in what it calls: `__syncthreads`, `__syncwarp` of the lanes in its mask, named barriers, an
//! arrival at an mbarrier with who observes the end of that phase, a cp.async with the wait of its
//! own thread, and what TMA and wgmma do with what completes it. Shuffles, votes and matrix
//! operations order nothing. `GLOSSARY.md` defines the words and the counters.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;

use crate::extent::BlockIndex;
use crate::fault::{Fault, Place};
use crate::grid::{Entry, Launch};
use crate::judge::between::{Between, ClusterRun};
use crate::judge::deeds::{RawDeed, RawTile};
use crate::judge::describe::describe_all;
use crate::judge::hint::Hint;
use crate::judge::observed::{KeyCount, Mark, Sighting};
use crate::judge::operation::Bytes;
use crate::judge::order::Actor;
use crate::judge::page::Run;
use crate::judge::raw::{Hazards, Raw};
use crate::judge::side::Side;
use crate::judge::{Outcome, Sync};
use crate::launch::Shared;
use crate::layout::Layouts;
use crate::site::Places;
use crate::source;
use crate::worker::{self, Tracing};

pub use crate::judge::clocks::FenceRule;
pub use crate::judge::counters::{Counted, Counters, GlobalTraffic, SharedTraffic};
pub use crate::judge::hazard::{Hazard, HazardAccess, HazardKind};
pub use crate::judge::memory::{Access, Allocation, Memory};
pub use crate::judge::observed::{
    Does, Observations, Observed, Passed, Seen, Step, TensorRead, Watch,
};
pub use crate::judge::operand_rule::OperandRule;
pub use crate::judge::order::How;

/// The most hazards that are described; the rest is counted.
pub const MAX_HAZARDS: usize = 50;

/// The part of a launch that is traced: by default all of it, with all synchronisation.
#[derive(Clone, Debug, Default)]
pub struct Selection<'a> {
    /// The blocks to trace; `None` for all.
    pub blocks: Option<&'a [BlockIndex]>,
    /// The synchronisation that is left out.
    pub suppress: Option<&'a Place>,
    pub watch: Option<Watch>,
    pub fence_rule: FenceRule,
    pub operand_rule: OperandRule,
    /// The operations of which the order is noted, by the names of their functions.
    pub deeds: &'a [&'static str],
    /// The bytes of host memory for what is remembered of the accesses of a cluster; a trace that
    /// takes more ends. `None` for no limit.
    pub history: Option<usize>,
    /// Whether each cluster ends after the access at which its first hazard is seen, for those who
    /// ask only whether there is one. A report has fewer hazards then, and counts less.
    pub ends_at_hazard: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncSite {
    pub operation: String,
    pub place: Place,
}

/// The report of a traced launch: the same for every run with the same schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceReport {
    /// The hazards, each pair of places once, by kind and place; at most [`MAX_HAZARDS`].
    pub hazards: Vec<Hazard>,
    /// The number of hazards beyond [`MAX_HAZARDS`].
    pub more_hazards: usize,
    /// Whether a block was stopped because [`Selection::history`] did not hold all of it: there may
    /// be more hazards. A launch in which none was found until then is [`Fault::Outgrown`].
    pub is_cut_short: bool,
    /// The counts; a stopped block counts up to where it was stopped.
    pub counted: Counted,
    pub sync_sites: Vec<SyncSite>,
    pub observations: Observations,
    /// The deeds of [`Selection::deeds`]; those of one warp in order.
    pub deeds: Vec<Deed>,
}

/// An operation of a warp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deed {
    pub block: BlockIndex,
    /// Of the block.
    pub warp: u32,
    /// The name of its function.
    pub operation: &'static str,
    /// The source line and those that called it, innermost first.
    pub places: Vec<Place>,
    /// The barrier's offset in shared memory or its number, or how many groups may be in flight.
    pub object: u32,
    /// The number of steps before it, on the longest way there: the warp's own, and those of others
    /// that it has been told of.
    pub begin: u64,
    /// As many as `begin` for what takes no step; more by others' for a wait.
    pub end: u64,
    /// The tile that TMA copies, or that a product of a warpgroup reads as its B.
    pub tile: Option<Tile>,
}

/// A tile of a tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tile {
    /// The name of the tensor's buffer.
    pub tensor: String,
    /// Tiles of its height before it in its head.
    pub number: u32,
}

/// Runs the traced build of a kernel. Hazards, also those that stop a block, are in the report.
///
/// # Errors
///
/// A launch that is refused as a whole.
///
/// # Safety
///
/// As [`crate::launch()`]; `memory` must hold every buffer that the kernel reaches through its
/// params, and these.
pub unsafe fn trace(
    launch: &Launch,
    memory: Memory,
    selection: &Selection<'_>,
) -> Result<TraceReport, Fault> {
    let clusters = clusters(launch, selection)?;
    let watch = selection.watch.clone().map(Arc::new);
    let shared_memory = Arc::new(memory);
    let subject = Subject {
        launch,
        memory: &shared_memory,
        watch: watch.as_ref(),
        asked_byte: None,
    };
    // SAFETY: passed on.
    let traced = unsafe { run_clusters(&subject, selection, &clusters) }?;
    let summary = Summary {
        launch,
        all: launch.check()? as u64,
        memory: &shared_memory,
        is_watched: watch.is_some(),
    };
    Ok(summary.report(&clusters, traced))
}

/// Runs the traced build of a kernel, and returns the place that stored byte `offset` of the buffer
/// `name` last, with the lines that called it, innermost first. Of several blocks it is the last one
/// in the order of the grid. Returns nothing if no thread has stored it.
///
/// # Errors
///
/// As [`trace`].
///
/// # Safety
///
/// As [`trace`].
pub unsafe fn last_store(
    launch: &Launch,
    memory: Memory,
    selection: &Selection<'_>,
    name: &str,
    offset: usize,
) -> Result<Vec<Place>, Fault> {
    let clusters = clusters(launch, selection)?;
    let shared_memory = Arc::new(memory);
    let subject = Subject {
        launch,
        memory: &shared_memory,
        watch: None,
        asked_byte: shared_memory.place_of(name, offset),
    };
    // SAFETY: passed on.
    let traced = unsafe { run_clusters(&subject, selection, &clusters) }?;
    let mut stores = traced.ends.iter().rev();
    let last = stores.find_map(|end| end.outcome.last_store);
    Ok(last.map_or_else(Vec::new, |site| Places::default().get(site)))
}

/// Returns the first block of each cluster that is traced.
fn clusters(launch: &Launch, selection: &Selection<'_>) -> Result<Vec<BlockIndex>, Fault> {
    let all = launch.check()? as u64;
    match selection.blocks {
        Some(blocks) => launch.check_blocks(blocks),
        None => Ok(launch.clusters(all)),
    }
}

/// The launch that is traced.
struct Subject<'a> {
    launch: &'a Launch,
    memory: &'a Arc<Memory>,
    watch: Option<&'a Arc<Watch>>,
    /// The place of the byte whose last store is asked for.
    asked_byte: Option<u32>,
}

/// Traces clusters, each named by its first block.
///
/// # Errors
///
/// What is remembered of a cluster, or its stacks, takes more memory than there may be.
///
/// # Safety
///
/// As [`trace`].
unsafe fn run_clusters(
    subject: &Subject<'_>,
    selection: &Selection<'_>,
    clusters: &[BlockIndex],
) -> Result<Traced, Fault> {
    let layouts = Layouts::new(subject.launch.schedule);
    let shared = Shared(subject.launch);
    let (memory, watch, asked_byte) = (subject.memory, subject.watch, subject.asked_byte);
    let between = Arc::new(Mutex::new(Between::default()));
    let found = Mutex::new(Hazards::default());
    let numbered = clusters.par_iter().enumerate();
    let ends = numbered
        .map(|(number, &first)| {
            let mut outcome = Outcome::default();
            let tracing = Tracing {
                memory,
                watch,
                fence_rule: selection.fence_rule,
                operand_rule: selection.operand_rule,
                deeds: selection.deeds,
                asked_byte,
                between: &between,
                number: number as u32,
                history: selection.history,
                ends_at_hazard: selection.ends_at_hazard,
                outcome: &mut outcome,
            };
            // SAFETY: passed on.
            let result = unsafe {
                worker::run_cluster(
                    shared.get(),
                    first,
                    &layouts,
                    selection.suppress,
                    Some(tracing),
                )
            };
            let hazards = std::mem::take(&mut outcome.hazards);
            let is_out_of_bounds = hazards.is_out_of_bounds();
            locked(&found).merge(hazards, number as u32);
            match result {
                Err(fault @ Fault::NoMemory { .. }) => Err(fault),
                _ => Ok(End {
                    first,
                    result: result.map(|_| ()),
                    is_out_of_bounds,
                    outcome,
                }),
            }
        })
        .collect::<Result<Vec<End>, Fault>>()?;
    let traced = Traced {
        is_cut_short: ends.iter().any(|end| end.outcome.has_outgrown),
        ends,
        touched: std::mem::take(&mut *locked(&between)),
        hazards: found.into_inner().unwrap_or_else(PoisonError::into_inner),
    };
    traced.checked(selection.history)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The remains of a traced launch.
struct Traced {
    /// The end of each cluster, in order.
    ends: Vec<End>,
    /// The bytes that the clusters have touched.
    touched: Between,
    /// The hazards within clusters.
    hazards: Hazards,
    is_cut_short: bool,
}

impl Traced {
    /// Refuses a launch that was cut short before anything was found.
    fn checked(self, history: Option<usize>) -> Result<Self, Fault> {
        if self.is_cut_short && self.hazards.is_empty() {
            let limit = history.unwrap_or_default();
            return Err(Fault::Outgrown { limit });
        }
        Ok(self)
    }
}

/// The end of a cluster, whose first block is `first`.
struct End {
    first: BlockIndex,
    result: Result<(), Fault>,
    /// Whether an access outside of memory was found.
    is_out_of_bounds: bool,
    outcome: Outcome,
}

/// The launch whose traced clusters are put together in one report.
struct Summary<'a> {
    launch: &'a Launch,
    /// The number of its blocks.
    all: u64,
    memory: &'a Memory,
    is_watched: bool,
}

impl Summary<'_> {
    fn report(&self, clusters: &[BlockIndex], traced: Traced) -> TraceReport {
        let Traced {
            ends,
            mut touched,
            mut hazards,
            is_cut_short,
        } = traced;
        let mut observer = Observer::default();
        let mut stopped = Vec::new();
        let counted = self.count(&ends);
        let (mut syncs, mut deeds) = (BTreeSet::new(), Vec::new());
        for end in ends {
            let End {
                first,
                result,
                is_out_of_bounds,
                outcome,
            } = end;
            match result {
                Ok(()) | Err(Fault::Hazard { .. }) => {}
                // The trace has seen the access itself.
                Err(Fault::SharedOverflow { .. }) if is_out_of_bounds => {}
                Err(fault) => stopped.push((fault.block().unwrap_or(first), fault)),
            }
            if self.is_watched {
                observer.add(self.launch, first, self.memory, &outcome);
            }
            deeds.extend(outcome.deeds.into_iter().map(|deed| (first, deed)));
            syncs.extend(outcome.syncs);
        }
        for runs in touched.take_pages() {
            compare_blocks(self.launch, clusters, &runs, &mut hazards);
        }

        let mut places = Places::default();
        let mut described = describe_all(&hazards, self.memory, &mut places);
        described.extend(describe_stops(stopped));
        let more_hazards = described.len().saturating_sub(MAX_HAZARDS);
        described.truncate(MAX_HAZARDS);
        TraceReport {
            observations: observer.describe(&mut places),
            hazards: described,
            more_hazards,
            is_cut_short,
            counted,
            sync_sites: describe_syncs(syncs, &mut places),
            deeds: self.describe_deeds(deeds, &mut places),
        }
    }

    /// Describes deeds, each with the first block of its cluster.
    fn describe_deeds(&self, deeds: Vec<(BlockIndex, RawDeed)>, places: &mut Places) -> Vec<Deed> {
        let mut described = Vec::new();
        for (cluster, deed) in deeds {
            let (block, thread) = self.launch.in_cluster(cluster, deed.warp * 32);
            described.push(Deed {
                block,
                warp: thread / 32,
                operation: deed.operation,
                places: places.get(deed.site),
                object: deed.object,
                begin: deed.begin,
                end: deed.end,
                tile: deed.tile.and_then(|tile| self.describe_tile(tile)),
            });
        }
        described
    }

    fn describe_tile(&self, tile: RawTile) -> Option<Tile> {
        let (allocation, _) = self.memory.locate(tile.place)?;
        Some(Tile {
            tensor: allocation.name.clone(),
            number: tile.number,
        })
    }

    fn count(&self, ends: &[End]) -> Counted {
        let cluster = u64::from(self.launch.cluster);
        let mut counted = Counted {
            launch_blocks: self.all,
            traced_blocks: ends.len() as u64 * cluster,
            cluster,
            per_cluster: ends.first().map(|end| end.outcome.counters),
            ..Counted::default()
        };
        for End { outcome, .. } in ends {
            counted.sum += outcome.counters;
            let touched = outcome.touched as u64;
            counted.shared_bytes_touched = counted.shared_bytes_touched.max(touched);
            if counted.per_cluster != Some(outcome.counters) {
                counted.per_cluster = None;
            }
        }
        counted
    }
}

fn describe_syncs(syncs: BTreeSet<(Sync, u32)>, places: &mut Places) -> Vec<SyncSite> {
    let mut sites = Vec::new();
    for (sync, site) in syncs {
        sites.push(SyncSite {
            operation: sync.operation().to_owned(),
            place: places.get(site).swap_remove(0),
        });
    }
    sites.sort_by(|a: &SyncSite, b| {
        let operations = a.operation.cmp(&b.operation);
        a.place.cmp(&b.place).then(operations)
    });
    sites.dedup();
    sites
}

#[derive(Default)]
struct Observer {
    values: Vec<Observed>,
    sites: Vec<u32>,
    ways: Vec<Vec<Mark>>,
    reads: BTreeSet<(String, u32)>,
    stores: BTreeSet<u32>,
    ends: BTreeSet<Mark>,
    visible: Vec<(i32, u32)>,
}

impl Observer {
    fn add(&mut self, launch: &Launch, cluster: BlockIndex, memory: &Memory, outcome: &Outcome) {
        let first_way = self.ways.len();
        for sighting in &outcome.sightings {
            self.add_value(launch, cluster, first_way, sighting);
        }
        if !outcome.sightings.is_empty() {
            self.add_trail(memory, outcome);
        }
        self.stores.extend(&outcome.writers);
    }

    fn add_value(
        &mut self,
        launch: &Launch,
        cluster: BlockIndex,
        first_way: usize,
        sighting: &Sighting,
    ) {
        let shown = &sighting.shown;
        let Some(what) = Seen::from_number(shown.what) else {
            return;
        };
        let mut sites = self.sites.iter();
        let known = sites.position(|&site| site == sighting.site);
        let place = known.unwrap_or(self.sites.len());
        if known.is_none() {
            self.sites.push(sighting.site);
        }
        let (block, thread) = launch.in_cluster(cluster, sighting.thread);
        self.values.push(Observed {
            what,
            tile: shown.tile,
            index: shown.index,
            element: shown.element,
            value: shown.value,
            block,
            thread,
            place,
            way: first_way + sighting.way as usize,
        });
    }

    /// Adds the ways of a cluster whose threads have shown something.
    fn add_trail(&mut self, memory: &Memory, outcome: &Outcome) {
        let trail = &outcome.trail;
        self.ways.extend(trail.ways.iter().cloned());
        for (&site, &place) in &trail.reads {
            if let Some((allocation, _)) = memory.locate(place) {
                self.reads.insert((allocation.name.clone(), site));
            }
        }
        self.ends.extend(&trail.ends);
        for &KeyCount { thread, site, keys } in &trail.visible {
            let mut sightings = outcome.sightings.iter();
            let is_of_row = sightings.any(|sighting| sighting.thread == thread);
            if is_of_row && !self.visible.contains(&(keys, site)) {
                self.visible.push((keys, site));
            }
        }
    }

    fn describe(self, places: &mut Places) -> Observations {
        let mut observations = Observations {
            values: self.values,
            ..Observations::default()
        };
        for way in self.ways {
            let mut steps = Vec::new();
            for mark in way {
                steps.push(passed(places, mark));
            }
            observations.ways.push(steps);
        }
        for mark in self.ends {
            observations.ends.push(passed(places, mark));
        }
        for (keys, site) in self.visible {
            let does = Does::Step(Step::Visible);
            let count = passed(places, Mark { site, does });
            observations.visible.push((keys, count));
        }
        for site in self.sites {
            observations.places.push(places.get(site));
        }
        for (tensor, site) in self.reads {
            let places_of_read = places.get(site);
            observations.reads.push(TensorRead {
                tensor,
                places: places_of_read,
            });
        }
        for site in self.stores {
            observations.stores.push(places.get(site));
        }
        observations
    }
}

fn passed(places: &mut Places, mark: Mark) -> Passed {
    Passed {
        does: mark.does,
        places: places.get(mark.site),
    }
}

fn describe_stops(stopped: Vec<(BlockIndex, Fault)>) -> Vec<Hazard> {
    let mut hazards: Vec<Hazard> = Vec::new();
    for (block, fault) in stopped {
        let kind = match fault {
            Fault::DivergentBarrier { .. } => HazardKind::DivergentBarrier,
            Fault::Deadlock { .. } | Fault::WaitNeverObserved { .. } => HazardKind::Deadlock,
            Fault::Misaligned { .. } => HazardKind::Misaligned,
            Fault::SharedOverflow { .. } | Fault::OutOfBounds { .. } => HazardKind::OutOfBounds,
            _ => HazardKind::Stopped,
        };
        match hazards.iter_mut().find(|hazard| hazard.kind == kind) {
            Some(known) => known.times += 1,
            None => hazards.push(Hazard {
                kind,
                block,
                memory: String::new(),
                first: None,
                second: None,
                missing: fault.to_string(),
                times: 1,
            }),
        }
    }
    hazards
}

/// Reports races between clusters, which are always concurrent, from their runs by start. `blocks`:
/// the first of each cluster.
fn compare_blocks(
    launch: &Launch,
    blocks: &[BlockIndex],
    runs: &[ClusterRun],
    hazards: &mut Hazards,
) {
    let mut open: Vec<ClusterRun> = Vec::new();
    for &now in runs {
        let run = now.run;
        open.retain(|other| other.run.end() > run.start);
        for &other in &open {
            if other.cluster == now.cluster || !run.kind.conflicts(other.run.kind) {
                continue;
            }
            let (first, second) = if other.cluster <= now.cluster {
                (other, now)
            } else {
                (now, other)
            };
            let bytes = run.end().min(other.run.end()) - run.start;
            let (first_block, first_side) = side(launch, blocks[first.cluster], &first.run);
            let (second_block, second_side) = side(launch, blocks[second.cluster], &second.run);
            let raw = Raw {
                other_block: Some(second_block),
                ..Raw::new(
                    HazardKind::Race,
                    first_side,
                    Some(second_side),
                    Bytes::global(run.start, bytes as usize),
                    Hint::Blocks,
                )
            };
            hazards.add(first_block, raw);
        }
        open.push(now);
    }
}

/// Returns the block and the side of a run in the cluster that begins with block `cluster`.
fn side(launch: &Launch, cluster: BlockIndex, run: &Run) -> (BlockIndex, Side) {
    let (block, thread) = launch.in_cluster(cluster, run.thread);
    let side = Side {
        actor: Actor::Thread(thread),
        how: run.kind.how(),
        site: run.site,
    };
    (block, side)
}

/// Returns whether the first instruction of `entry` has a source line.
pub fn has_source_line(entry: Entry) -> bool {
    source::frames(&[entry as usize + 1])[0].line > 0
}

#[cfg(test)]
mod tests {
    use super::has_source_line;
    use std::ffi::c_void;

    unsafe extern "C-unwind" {
        fn perror(text: *const c_void);
    }

    unsafe extern "C-unwind" fn own(_: *const c_void) {}

    #[test]
    fn code_of_this_program_has_lines_and_the_systems_has_none() {
        assert!(has_source_line(own));
        assert!(!has_source_line(perror));
    }
}
