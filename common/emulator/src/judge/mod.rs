//! The judge of the blocks of a cluster: takes accesses and synchronisation as they happen, finds hazards and counts.

mod agents;
pub(crate) mod clocks;
mod copies;
pub(crate) mod counters;
mod cp_async;
pub(crate) mod global;
pub(crate) mod hazard;
pub(crate) mod held;
pub(crate) mod memory;
pub(crate) mod observed;
pub(crate) mod operation;
pub(crate) mod order;
pub(crate) mod raw;
pub(crate) mod requests;
mod tma;
mod wgmma;

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use crate::cluster::{Cluster, STRIDE};

use clocks::{Agent, Signal};
use copies::Copies;
use counters::Counters;
use global::{Global, Run};
use hazard::HazardKind;
use memory::{Access, Memory};
use observed::{Shown, Step, Trail, Watch};
use operation::{Fetch, Made, UnderWay, Written};
pub(crate) use operation::{Fork, TmaBox};
use order::{Actor, Cell, How, Order, note};
use raw::{Found, Hint, Raw, Side};
use requests::{Direction, MatrixCount, Requests, Space, matrix_global, matrix_shared};

/// The access would be to unmapped memory, or one that the hardware refuses. The reason is among the hazards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stop;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sync {
    Barrier,
    WarpBarrier,
    NamedBarrier,
    NamedArrive,
    Commit,
    Wait,
    Arrive,
    ArriveAfterCopies,
    PhaseTest,
    PhaseWait,
    ArriveExpect,
    PhaseTry,
    PhaseWaitBytes,
    FenceInit,
    FenceProxy,
    StoreCommit,
    StoreWaitRead,
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait,
    ClusterArrive,
    ClusterArriveRelaxed,
    ClusterWait,
    PhaseWaitCluster,
}

impl Sync {
    pub(crate) fn operation(self) -> &'static str {
        match self {
            Self::Barrier => "__syncthreads",
            Self::WarpBarrier => "__syncwarp",
            Self::NamedBarrier => "named_barrier_sync",
            Self::NamedArrive => "named_barrier_arrive",
            Self::Commit => "cp_async_commit",
            Self::Wait => "cp_async_wait_group",
            Self::Arrive => "mbarrier_arrive",
            Self::ArriveAfterCopies => "mbarrier_arrive_after_cp_async",
            Self::PhaseTest => "mbarrier_test_wait",
            Self::PhaseWait => "mbarrier_wait",
            Self::ArriveExpect => "mbarrier_arrive_expect_tx",
            Self::PhaseTry => "mbarrier_try_wait",
            Self::PhaseWaitBytes => "mbarrier_wait_tx",
            Self::FenceInit => "fence_mbarrier_init",
            Self::FenceProxy => "fence_proxy_async",
            Self::StoreCommit => "tma_store_commit",
            Self::StoreWaitRead => "tma_store_wait_read",
            Self::WgmmaFence => "wgmma_fence",
            Self::WgmmaCommit => "wgmma_commit",
            Self::WgmmaWait => "wgmma_wait",
            Self::ClusterArrive => "cluster_arrive",
            Self::ClusterArriveRelaxed => "cluster_arrive_relaxed",
            Self::ClusterWait => "cluster_wait",
            Self::PhaseWaitCluster => "mbarrier_wait_cluster",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Uninitialised,
    Value,
    Copied,
    Fetched,
    Barrier,
}

#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) memory: Arc<Memory>,
    pub(crate) block: [u32; 3],
    pub(crate) cluster: Cluster,
    /// Memory that is neither shared nor global and not the kernel's business.
    pub(crate) harmless: [Range<usize>; 2],
    /// The program's code, constants and static variables: kernels may read them.
    pub(crate) program: Range<usize>,
    pub(crate) watch: Option<Arc<Watch>>,
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) found: Found,
    pub(crate) counters: Counters,
    pub(crate) touched: usize,
    pub(crate) runs: Vec<Run>,
    pub(crate) syncs: BTreeSet<(Sync, u32)>,
    /// What was shown of the watched row: by which thread, where, and on which way of the trail.
    pub(crate) shown: Vec<(Shown, u32, u32, u32)>,
    pub(crate) trail: Trail,
}

/// Kept from block to block for its memory.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    setup: Option<Setup>,
    order: Order,
    shared: Vec<Cell>,
    content: Vec<Content>,
    /// Who wrote each byte that holds a value or a copy.
    written: Vec<Written>,
    has_barriers: bool,
    /// Accesses of agents that nobody knows to be complete, and some others.
    under_way: Vec<UnderWay>,
    warpgroups: Vec<Option<Agent>>,
    copies: Copies,
    fetches: Vec<Fetch>,
    global: Global,
    requests: Vec<Requests>,
    races: Vec<(usize, usize, u32)>,
    outcome: Outcome,
}

impl Judge {
    pub(crate) fn start(&mut self, setup: Setup) {
        let generation = self.order.generation() + 1;
        let (threads, bytes) = (setup.cluster.all_threads(), setup.cluster.span());
        self.order.start(threads, generation);
        self.shared
            .resize(bytes.max(self.shared.len()), Cell::default());
        self.content.clear();
        self.content.resize(bytes, Content::Uninitialised);
        self.written
            .resize(bytes.max(self.written.len()), Written::NOBODY);
        self.has_barriers = false;
        self.under_way.clear();
        self.warpgroups.clear();
        self.fetches.clear();
        self.copies.start(threads, bytes);
        self.global.start(setup.memory.bytes);
        self.requests
            .resize_with(threads.div_ceil(32) as usize, Requests::default);
        self.outcome = Outcome::default();
        if setup.watch.is_some() {
            self.outcome.trail.start(threads);
        }
        self.setup = Some(setup);
    }

    fn setup(&self) -> &Setup {
        self.setup.as_ref().expect("a block has started")
    }

    pub(crate) fn finish(&mut self, exps: u64) -> Outcome {
        self.flush_all();
        self.outcome.counters.exps = exps;
        self.outcome.runs = self.global.finish();
        self.outcome.found.drop_consequences();
        std::mem::take(&mut self.outcome)
    }

    pub(crate) fn is_watching(&self) -> bool {
        self.setup().watch.is_some()
    }

    pub(crate) fn shows(&mut self, shown: Shown, thread: u32, site: u32) {
        let is_watched = |watch: &Arc<Watch>| watch.row == shown.row;
        let way = self.outcome.trail.way(thread, shown.element);
        if self.setup().watch.as_ref().is_some_and(is_watched) {
            self.outcome.shown.push((shown, thread, site, way));
        }
    }

    pub(crate) fn steps(&mut self, thread: u32, step: Step, value: i32, site: u32) {
        if self.is_watching() {
            self.outcome.trail.steps(thread, step, value, site);
        }
    }

    fn flush_all(&mut self) {
        self.requests
            .iter_mut()
            .for_each(|requests| requests.flush(&mut self.outcome.counters));
    }

    fn report(
        &mut self,
        kind: HazardKind,
        first: Side,
        space: Space,
        range: Range<usize>,
        hint: Hint,
    ) {
        let (offset, bytes) = (range.start as u32, range.len() as u32);
        self.found(kind, (first, None), space, offset, bytes, hint);
    }

    /// What there is to say of a copy is looked up for the first hazard of its kind only.
    fn found(
        &mut self,
        kind: HazardKind,
        (first, second): (Side, Option<Side>),
        space: Space,
        offset: u32,
        bytes: u32,
        hint: Hint,
    ) {
        let (other_block, source, times) = (None, None, 1);
        let mut raw = Raw {
            kind,
            first,
            second,
            other_block,
            space,
            offset,
            bytes,
            source,
            hint,
            times,
        };
        let found = &mut self.outcome.found;
        let at = offset as usize;
        if space == Space::Shared
            && found.lacks(&raw)
            && let Some(content) = self.content.get(at)
            && (*content == Content::Copied || self.copies.under_way(at..at + 1).is_some())
            && let Some(copy) = self.copies.latest(at)
        {
            raw.source = copy.source();
            if let Hint::BarrierAfterWait { early, .. } = &mut raw.hint {
                *early = copy.waited;
            }
        }
        if space == Space::Shared
            && found.lacks(&raw)
            && self.content.get(at) == Some(&Content::Fetched)
        {
            let fetch = self
                .fetches
                .iter()
                .rev()
                .find(|fetch| fetch.range.contains(&at));
            raw.source = fetch.and_then(|fetch| fetch.first_row);
        }
        let Setup { block, cluster, .. } = self.setup.as_ref().expect("a block has started");
        let block = if cluster.blocks > 1 {
            raw.of_blocks(cluster, *block)
        } else {
            *block
        };
        found.add(block, raw);
    }

    /// `whole`: one instruction, which needs an aligned address.
    pub(crate) fn access(
        &mut self,
        thread: u32,
        address: usize,
        bytes: usize,
        write: bool,
        whole: bool,
        site: u32,
    ) -> Result<(), Stop> {
        let how = if write { How::Write } else { How::Read };
        let made = Made::by(Actor::Thread(thread), how, site);
        let Some((space, place)) = self.place(address, bytes, made)? else {
            return Ok(());
        };
        if whole && !address.is_multiple_of(bytes) {
            let hint = Hint::Alignment { address };
            self.report(
                HazardKind::Misaligned,
                made.side(),
                space,
                place as usize..place as usize + bytes,
                hint,
            );
            return Err(Stop);
        }
        if self.touch(space, place, bytes, made) {
            let direction = if write {
                Direction::Write
            } else {
                Direction::Read
            };
            self.requests[thread as usize / 32].add(
                thread % 32,
                site,
                space,
                direction,
                place,
                bytes as u32,
            );
        }
        Ok(())
    }

    #[inline]
    fn place(
        &mut self,
        address: usize,
        bytes: usize,
        made: Made,
    ) -> Result<Option<(Space, u32)>, Stop> {
        let setup = self.setup.as_ref().expect("a block has started");
        let offset = address.wrapping_sub(setup.cluster.start);
        if offset < setup.cluster.blocks as usize * STRIDE {
            return Ok(Some((Space::Shared, offset as u32)));
        }
        if let Some(index) = setup.memory.find(address) {
            let allocation = &setup.memory.allocations[index];
            return Ok(Some((
                Space::Global,
                allocation.base + (address - allocation.start) as u32,
            )));
        }
        if setup.harmless.iter().any(|range| range.contains(&address)) {
            return Ok(None);
        }
        if setup.program.contains(&address) {
            if made.how.is_write() {
                let (kind, hint) = (HazardKind::OutOfBounds, Hint::ProgramWritten);
                self.report(kind, made.side(), Space::Global, 0..bytes, hint);
            }
            return Ok(None);
        }
        let hint = Hint::Nowhere { address };
        self.report(
            HazardKind::OutOfBounds,
            made.side(),
            Space::Global,
            0..bytes,
            hint,
        );
        Err(Stop)
    }

    fn touch(&mut self, space: Space, place: u32, bytes: usize, made: Made) -> bool {
        if self.setup().watch.is_some() {
            let trail = &mut self.outcome.trail;
            trail.passes(made.actor.threads(), made.site, made.how);
            if space == Space::Global {
                trail.reads.insert(made.site, place);
            }
        }
        match space {
            Space::Shared => self.touch_shared(place as usize, bytes, made),
            Space::Global => self.touch_global(place, bytes, made),
        }
    }

    fn touch_shared(&mut self, offset: usize, bytes: usize, made: Made) -> bool {
        let cluster = self.setup().cluster;
        let range = offset..offset + bytes;
        if !cluster.declares(offset, bytes) {
            let hint = Hint::BehindShared {
                declared: cluster.declared as u32,
            };
            self.report(
                HazardKind::OutOfBounds,
                made.side(),
                Space::Shared,
                range,
                hint,
            );
            return false;
        }
        self.outcome.touched = self
            .outcome
            .touched
            .max(Cluster::within_block(range.start) + bytes);
        if let Some((at, copy)) = self.copies.under_way(range.clone()) {
            self.report_copy(at..range.end, copy, made);
            return true;
        }
        if self.has_barriers && self.content[range.clone()].contains(&Content::Barrier) {
            self.report(
                HazardKind::BarrierObject,
                made.side(),
                Space::Shared,
                range,
                Hint::BarrierObject,
            );
            return true;
        }
        let event = self.event(made);
        let cells = self.shared[range.clone()].iter_mut();
        if made.how.is_write() {
            let races = &mut self.races;
            self.order
                .write(cells, event, |index, other| note(races, index, other));
            let is_race = self.report_races(Space::Shared, range.start, made);
            // A store_async belongs to the generic proxy.
            if made.how == How::TmaWrite && !is_race {
                self.check_fences(range.clone(), made);
            }
            if made.how.is_fetch() {
                self.content[range].fill(Content::Fetched);
            } else {
                self.content[range.clone()].fill(Content::Value);
                self.written[range].fill(Written::new(
                    made.actor,
                    made.how,
                    self.order.fences(),
                    made.site,
                ));
            }
        } else {
            let races = &mut self.races;
            self.order
                .read(cells, event, |index, other| note(races, index, other));
            let is_race = self.report_races(Space::Shared, range.start, made);
            if let (Actor::Agent { .. }, false) = (made.actor, is_race) {
                self.check_fences(range.clone(), made);
            }
            if let Some(first) = self.content[range.clone()]
                .iter()
                .position(|&content| content == Content::Uninitialised)
            {
                let bytes = range.start + first..range.end;
                self.report(
                    HazardKind::UninitialisedShared,
                    made.side(),
                    Space::Shared,
                    bytes,
                    Hint::Uninitialised,
                );
            }
        }
        true
    }

    fn touch_global(&mut self, place: u32, bytes: usize, made: Made) -> bool {
        let memory = Arc::clone(&self.setup().memory);
        let Some((allocation, offset)) = memory.locate(place) else {
            return false;
        };
        if !allocation.holds(offset, bytes) {
            let first = allocation.first_outside(offset, bytes).unwrap_or(offset);
            let outside = (place as usize + first - offset)..place as usize + bytes;
            self.report(
                HazardKind::OutOfBounds,
                made.side(),
                Space::Global,
                outside,
                Hint::GuardBand,
            );
            return false;
        }
        let write = made.how.is_write();
        match allocation.access {
            Access::Output => {
                let event = self.event(made);
                if write && let Some(copy) = self.copies.reads(place, bytes) {
                    self.report_copy_source(place, copy, made);
                }
                let races = &mut self.races;
                self.global.touch(
                    &mut self.order,
                    place,
                    bytes,
                    event,
                    write,
                    made.actor.thread(),
                    made.site,
                    races,
                );
                self.report_races(Space::Global, place as usize, made);
            }
            _ if write => {
                let range = place as usize..place as usize + bytes;
                self.report(
                    HazardKind::OutOfBounds,
                    made.side(),
                    Space::Global,
                    range,
                    Hint::InputWritten,
                );
            }
            _ => {}
        }
        allocation.access != Access::Constant
    }

    fn event(&mut self, made: Made) -> u32 {
        match made.actor {
            Actor::Thread(thread) | Actor::Copies(thread) => {
                self.order.event(thread, made.site, made.how)
            }
            Actor::Agent { .. } => self
                .order
                .agent_event(made.actor, made.clock, made.site, made.how),
            Actor::Warp(warp) => {
                self.order
                    .warp_event(warp, made.lanes, made.site, made.how, made.distribution)
            }
        }
    }

    /// `races`: per event, the first and last byte. Returns whether there is any.
    fn report_races(&mut self, space: Space, start: usize, made: Made) -> bool {
        if self.races.is_empty() {
            return false;
        }
        let races = std::mem::take(&mut self.races);
        for &(first, last, event) in &races {
            let other = Side::from(self.order.describe(event));
            let same_warp = other.actor.warp() == made.actor.warp();
            let matrix = |actor| matches!(actor, Actor::Warp(_));
            let uninitialised = space == Space::Shared
                && made.how.is_write()
                && self.content[start + first] == Content::Uninitialised;
            let is_fetched = other.how.is_fetch() && !made.how.is_write();
            let kind = if is_fetched {
                HazardKind::ReadInFlight
            } else {
                HazardKind::Race
            };
            let hint = if other.how == How::BarrierInit {
                Hint::BarrierNotSeen
            } else if is_fetched {
                Hint::FetchNotObserved
            } else if made.how.is_fetch() {
                Hint::SlotInUse {
                    loads: other.how.is_fetch(),
                }
            } else if other.how.is_fetch() {
                Hint::FetchUnderWay
            } else if other.how == How::StoreRead {
                Hint::StoreNotRead
            } else if other.how == How::WgmmaRead && !uninitialised {
                Hint::OperandInUse
            } else if made.how == How::WgmmaRead
                && matches!(other.how, How::Write | How::MatrixWrite)
            {
                Hint::Barrier
            } else if matches!(other.actor, Actor::Copies(_)) && !made.how.is_write() {
                Hint::PhaseObservedByOthers
            } else if other.how == How::CopyWrite && !made.how.is_write() {
                Hint::BarrierAfterWait {
                    same_warp,
                    early: None,
                }
            } else if same_warp && (matrix(other.actor) || matrix(made.actor)) {
                Hint::MatrixSync
            } else if uninitialised && !other.how.is_write() {
                Hint::BarrierAfterWrite { same_warp }
            } else if same_warp {
                Hint::SyncWarp
            } else {
                Hint::Barrier
            };
            let (offset, bytes) = ((start + first) as u32, (last - first + 1) as u32);
            self.found(kind, (other, Some(made.side())), space, offset, bytes, hint);
        }
        self.races = races;
        self.races.clear();
        true
    }

    pub(crate) fn barrier(&mut self, thread: u32, site: u32) {
        self.outcome.syncs.insert((Sync::Barrier, site));
        self.outcome.counters.barriers += 1;
        let cluster = self.setup().cluster;
        if cluster.blocks == 1 {
            self.order.meet_all();
            self.keep_under_way();
            return self.flush_all();
        }
        let members = cluster.members(cluster.rank(thread));
        self.order.meet(members.clone());
        let warps = members.start as usize / 32..members.end as usize / 32;
        self.requests[warps]
            .iter_mut()
            .for_each(|requests| requests.flush(&mut self.outcome.counters));
    }

    /// Notes a synchronisation site, suppressed or not. (`__syncthreads` is noted when it is complete.)
    pub(crate) fn reaches(&mut self, sync: Sync, site: u32) {
        self.outcome.syncs.insert((sync, site));
    }

    pub(crate) fn warp_barrier(&mut self, warp: u32, lanes: u32) {
        self.outcome.counters.warp_barriers += 1;
        self.order.meet_lanes(warp, lanes);
    }

    pub(crate) fn arrive_at_named(&mut self, warp: u32, signal: &mut Signal) {
        self.outcome.counters.named_barriers += 1;
        (warp * 32..warp * 32 + 32).for_each(|thread| self.order.release(thread, signal));
    }

    pub(crate) fn leave_named(&mut self, warp: u32, signal: &Signal) {
        (warp * 32..warp * 32 + 32).for_each(|thread| self.order.acquire(thread, signal));
    }

    /// An mbarrier is 8 bytes of shared memory.
    pub(crate) fn init_barrier(&mut self, thread: u32, offset: usize, site: u32) {
        let how = How::BarrierInit;
        self.touch_shared(offset, 8, Made::by(Actor::Thread(thread), how, site));
        self.content[offset..offset + 8].fill(Content::Barrier);
        self.has_barriers = true;
    }

    /// The operations of an mbarrier are atomic, but must come after its initialisation.
    pub(crate) fn use_barrier(&mut self, thread: u32, offset: usize, site: u32) {
        let how = How::BarrierUse;
        let made = Made::by(Actor::Thread(thread), how, site);
        let event = self.event(made);
        let (cells, races) = (self.shared[offset..offset + 8].iter_mut(), &mut self.races);
        self.order
            .follow(cells, event, |index, other| note(races, index, other));
        self.report_races(Space::Shared, offset, made);
    }

    pub(crate) fn arrive(&mut self, thread: u32, signal: &mut Signal) {
        self.outcome.counters.mbarrier_arrivals += 1;
        self.order.release(thread, signal);
    }

    pub(crate) fn observe(&mut self, thread: u32, signal: &Signal) {
        self.outcome.counters.mbarrier_waits += 1;
        self.order.acquire(thread, signal);
    }

    /// All live lanes of a warp have met: their accesses so far are whole requests.
    pub(crate) fn warp_met(&mut self, warp: u32) {
        self.requests[warp as usize].flush(&mut self.outcome.counters);
    }

    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.outcome.counters
    }

    pub(crate) fn matrix(&mut self, matrix: &Matrix<'_>) -> Result<(), Stop> {
        let how = if matrix.write {
            How::MatrixWrite
        } else {
            How::MatrixRead
        };
        let &Matrix {
            warp,
            lanes,
            distribution,
            site,
            ..
        } = matrix;
        let made = Made {
            lanes,
            distribution,
            ..Made::by(Actor::Warp(warp), how, site)
        };
        let mut places = [const { Vec::new() }; 2];
        for &row in matrix.rows {
            let Some((space, place)) = self.place(row, matrix.row_bytes as usize, made)? else {
                continue;
            };
            if self.touch(space, place, matrix.row_bytes as usize, made) {
                places[usize::from(space == Space::Shared)].push(place);
            }
        }
        let counters = &mut self.outcome.counters;
        let [global, shared] = &places;
        if !global.is_empty() {
            let traffic = if matrix.write {
                &mut counters.global_write
            } else {
                &mut counters.global_read
            };
            *traffic += matrix_global(global, matrix.row_bytes);
        }
        if !shared.is_empty() {
            let traffic = if matrix.write {
                &mut counters.shared_write
            } else {
                &mut counters.shared_read
            };
            *traffic += matrix_shared(shared, matrix.row_bytes, matrix.element_bytes, matrix.count);
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Matrix<'a> {
    pub(crate) warp: u32,
    pub(crate) lanes: u32,
    pub(crate) rows: &'a [usize],
    pub(crate) row_bytes: u32,
    pub(crate) element_bytes: u32,
    pub(crate) write: bool,
    pub(crate) count: MatrixCount,
    pub(crate) distribution: u64,
    pub(crate) site: u32,
}

#[cfg(test)]
mod tests;
