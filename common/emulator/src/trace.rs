//! Tracing: a launch of the traced build, with every access judged by happens-before and counted.
//!
//! The order in which the emulator happens to run threads decides nothing: two accesses are ordered only by synchronisation.
//! What that is, is said in one place per primitive, in the FFI module and in what it calls: `__syncthreads`, `__syncwarp`
//! of the lanes in its mask, named barriers, an arrival at an mbarrier with who observes the end of that phase, a cp.async
//! with the wait of its own thread, and what TMA and wgmma do with what completes it. Shuffles, votes and matrix operations
//! order nothing. `GLOSSARY.md` defines the words and the counters.

use std::collections::BTreeSet;
use std::sync::Arc;

use rayon::prelude::*;

use crate::fault::{Fault, Place};
use crate::grid::{Entry, Launch};
use crate::judge::Outcome;
use crate::judge::global::Run;
use crate::judge::order::Actor;
use crate::judge::raw::{Found, Hint, Raw, Side};
use crate::judge::requests::Space;
use crate::launch::Shared;
use crate::layout::Layouts;
use crate::site::Places;
use crate::source;
use crate::worker::{self, Tracing};

pub use crate::judge::counters::{Counted, Counters, GlobalTraffic, SharedTraffic};
pub use crate::judge::hazard::{Hazard, HazardAccess, HazardKind};
pub use crate::judge::memory::{Access, Allocation, Memory};
pub use crate::judge::observed::{Does, Observations, Observed, Passed, Seen, Step, Watch};
pub use crate::judge::order::How;

/// Described hazards; the rest is counted.
pub const MAX_HAZARDS: usize = 50;

/// What of a launch is traced: by default all of it, with all synchronisation.
#[derive(Clone, Debug, Default)]
pub struct Selection<'a> {
    /// `None`: all.
    pub blocks: Option<&'a [[u32; 3]]>,
    /// Synchronisation that is left out.
    pub suppress: Option<&'a Place>,
    pub watch: Option<Watch>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SyncSite {
    pub operation: String,
    pub place: Place,
}

/// The same for every run with the same schedule.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceReport {
    /// Each pair of places once, by kind and place; at most [`MAX_HAZARDS`].
    pub hazards: Vec<Hazard>,
    /// Beyond [`MAX_HAZARDS`].
    pub more_hazards: usize,
    /// Stopped blocks count up to there.
    pub counted: Counted,
    pub sync_sites: Vec<SyncSite>,
    pub observations: Observations,
}

/// Runs the traced build of a kernel. Hazards, also those that stop a block, are in the report.
///
/// # Errors
///
/// A launch that is refused as a whole.
///
/// # Safety
///
/// As [`crate::launch()`]; `memory` must hold every buffer that the kernel reaches through its params, and these.
pub unsafe fn trace(
    launch: &Launch,
    memory: Memory,
    selection: &Selection<'_>,
) -> Result<TraceReport, Fault> {
    let all = launch.check()?;
    let clusters: Vec<[u32; 3]> = match selection.blocks {
        Some(blocks) => launch.check_blocks(blocks)?,
        None => (0..all as u64 / u64::from(launch.cluster))
            .map(|number| launch.cluster_index(number))
            .collect(),
    };
    let layouts = Layouts::new(launch.schedule);
    let watch = selection.watch.clone().map(Arc::new);
    let memory = Arc::new(memory);
    let shared = Shared(launch);
    let ends: Vec<(Result<(), Fault>, Outcome)> = clusters
        .par_iter()
        .map(|&first| {
            let mut outcome = Outcome::default();
            let tracing = Tracing {
                memory: &memory,
                watch: watch.as_ref(),
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
            (result, outcome)
        })
        .collect();
    let end = End {
        all: all as u64,
        memory: &memory,
        watch: watch.as_deref(),
    };
    Ok(summarise(launch, &clusters, ends, &end))
}

struct End<'a> {
    all: u64,
    memory: &'a Memory,
    watch: Option<&'a Watch>,
}

fn summarise(
    launch: &Launch,
    clusters: &[[u32; 3]],
    ends: Vec<(Result<(), Fault>, Outcome)>,
    &End { all, memory, watch }: &End<'_>,
) -> TraceReport {
    let mut observer = Observer::default();
    let mut found = Found::default();
    let mut stopped = Vec::new();
    let traced_blocks = ends.len() as u64 * u64::from(launch.cluster);
    let mut counted = Counted {
        launch_blocks: all,
        traced_blocks,
        cluster: launch.cluster.into(),
        ..Counted::default()
    };
    let mut alike = true;
    let (mut syncs, mut runs) = (BTreeSet::new(), Vec::new());
    let mut places = Places::default();
    for (index, (result, outcome)) in ends.into_iter().enumerate() {
        match result {
            Ok(()) | Err(Fault::Hazard { .. }) => {}
            // The trace has seen the access itself.
            Err(Fault::SharedOverflow { .. }) if outcome.found.is_out_of_bounds() => {}
            Err(fault) => stopped.push((fault.block().unwrap_or(clusters[index]), fault)),
        }
        counted.sum += outcome.counters;
        counted.shared_bytes_touched = counted.shared_bytes_touched.max(outcome.touched as u64);
        alike &= *counted.each.get_or_insert(outcome.counters) == outcome.counters;
        if let Some(watch) = watch {
            observer.add(launch, clusters[index], watch, memory, &outcome);
        }
        found.merge(outcome.found);
        syncs.extend(outcome.syncs);
        runs.extend(outcome.runs.into_iter().map(|run| (index, run)));
    }
    counted.each = counted.each.filter(|_| alike);
    compare_blocks(launch, clusters, runs, &mut found);

    let mut hazards = found.describe(memory, &mut places);
    hazards.extend(describe_stops(stopped));
    let more_hazards = hazards.len().saturating_sub(MAX_HAZARDS);
    hazards.truncate(MAX_HAZARDS);
    let mut sync_sites: Vec<SyncSite> = syncs
        .into_iter()
        .map(|(sync, site)| SyncSite {
            operation: sync.operation().to_owned(),
            place: places.get(site).swap_remove(0),
        })
        .collect();
    sync_sites.sort_by(|a, b| (&a.place, &a.operation).cmp(&(&b.place, &b.operation)));
    sync_sites.dedup();
    TraceReport {
        observations: observer.describe(&mut places),
        hazards,
        more_hazards,
        counted,
        sync_sites,
    }
}

#[derive(Default)]
struct Observer {
    values: Vec<Observed>,
    sites: Vec<u32>,
    ways: Vec<Vec<(u32, Does)>>,
    reads: BTreeSet<(String, u32)>,
    stores: BTreeSet<u32>,
    ends: BTreeSet<(u32, Step)>,
    visible: Vec<(i32, u32)>,
}

impl Observer {
    fn add(
        &mut self,
        launch: &Launch,
        cluster: [u32; 3],
        watch: &Watch,
        memory: &Memory,
        outcome: &Outcome,
    ) {
        for &(shown, thread, site, way) in &outcome.shown {
            let Some(what) = Seen::from_number(shown.what) else {
                continue;
            };
            let place = self.sites.iter().position(|&known| known == site);
            let place = place.unwrap_or_else(|| {
                self.sites.push(site);
                self.sites.len() - 1
            });
            let (block, thread) = launch.in_cluster(cluster, thread);
            self.values.push(Observed {
                what,
                tile: shown.tile,
                index: shown.index,
                element: shown.element,
                value: shown.value,
                block,
                thread,
                place,
                way: self.ways.len() + way as usize,
            });
        }
        if !outcome.shown.is_empty() {
            self.ways.extend(outcome.trail.ways.iter().cloned());
            let name = |place| memory.locate(place).map(|(found, _)| found.name.clone());
            let reads = outcome.trail.reads.iter();
            self.reads
                .extend(reads.filter_map(|(&site, &place)| Some((name(place)?, site))));
            self.ends.extend(&outcome.trail.ends);
            for &(thread, site, keys) in &outcome.trail.visible {
                let is_of_row = outcome.shown.iter().any(|&(_, of, ..)| of == thread);
                if is_of_row && !self.visible.contains(&(keys, site)) {
                    self.visible.push((keys, site));
                }
            }
        }
        let is_of_row = |run: &&Run| {
            let (start, end) = (run.start as usize, (run.start + run.bytes) as usize);
            memory
                .locate(run.start)
                .is_some_and(|(allocation, offset)| {
                    run.write
                        && allocation.name == "o"
                        && offset < watch.output.end
                        && offset + (end - start) > watch.output.start
                })
        };
        let stores = outcome.runs.iter().filter(is_of_row);
        self.stores.extend(stores.map(|run| run.site));
    }

    fn describe(self, places: &mut Places) -> Observations {
        let mut passed = |site: u32, does: Does| Passed {
            does,
            places: places.get(site),
        };
        Observations {
            values: self.values,
            ways: self
                .ways
                .into_iter()
                .map(|way| {
                    way.into_iter()
                        .map(|(site, does)| passed(site, does))
                        .collect()
                })
                .collect(),
            ends: self
                .ends
                .into_iter()
                .map(|(site, step)| passed(site, Does::Step(step)))
                .collect(),
            visible: self
                .visible
                .into_iter()
                .map(|(keys, site)| (keys, passed(site, Does::Step(Step::Visible))))
                .collect(),
            places: self
                .sites
                .into_iter()
                .map(|site| places.get(site))
                .collect(),
            reads: self
                .reads
                .into_iter()
                .map(|(name, site)| (name, places.get(site)))
                .collect(),
            stores: self
                .stores
                .into_iter()
                .map(|site| places.get(site))
                .collect(),
        }
    }
}

fn describe_stops(stopped: Vec<([u32; 3], Fault)>) -> Vec<Hazard> {
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

/// Clusters are always concurrent. `blocks`: the first of each.
fn compare_blocks(
    launch: &Launch,
    blocks: &[[u32; 3]],
    mut runs: Vec<(usize, Run)>,
    found: &mut Found,
) {
    runs.sort_by_key(|(block, run)| (run.start, *block, run.write));
    let end = |run: &Run| run.start + run.bytes;
    let mut open: Vec<(usize, Run)> = Vec::new();
    for (block, run) in runs {
        open.retain(|(_, other)| end(other) > run.start);
        for (other_block, other) in &open {
            if *other_block == block || !(run.write || other.write) {
                continue;
            }
            let side = |run: &Run| Side {
                actor: Actor::Thread(launch.in_cluster(blocks[0], run.thread).1),
                how: if run.write { How::Write } else { How::Read },
                site: run.site,
            };
            let (first, second) = ((*other_block, other), (block, &run));
            let (first, second) = if first.0 <= second.0 {
                (first, second)
            } else {
                (second, first)
            };
            let raw = Raw {
                kind: HazardKind::Race,
                first: side(first.1),
                second: Some(side(second.1)),
                other_block: Some(launch.in_cluster(blocks[second.0], second.1.thread).0),
                space: Space::Global,
                offset: run.start,
                bytes: end(&run).min(end(other)) - run.start,
                source: None,
                hint: Hint::Blocks,
                times: 1,
            };
            found.add(launch.in_cluster(blocks[first.0], first.1.thread).0, raw);
        }
        open.push((block, run));
    }
}

/// Whether the first instruction of `entry` has a source line.
pub fn has_source_line(entry: Entry) -> bool {
    source::frames(entry as usize + 1)[0].line > 0
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
