//! The judge of the blocks of a cluster: takes accesses and synchronisation as they happen, finds
//! hazards and counts.

mod agents;
pub(crate) mod arrival;
pub(crate) mod between;
pub(crate) mod clocks;
mod copies;
pub(crate) mod counters;
mod cp_async;
pub(crate) mod deeds;
pub(crate) mod describe;
mod fences;
pub(crate) mod global;
pub(crate) mod hazard;
pub(crate) mod held;
pub(crate) mod hint;
pub(crate) mod memory;
mod memory_use;
mod missing;
pub(crate) mod observed;
pub(crate) mod operand_rule;
pub(crate) mod operation;
pub(crate) mod order;
pub(crate) mod page;
pub(crate) mod raw;
mod remote;
pub(crate) mod requests;
pub(crate) mod side;
mod tma;
pub(crate) mod wgmma;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{Cluster, STRIDE};
use crate::extent::BlockIndex;

use arrival::RemoteArrival;
use between::Between;
use clocks::{Agent, FenceRule, Signal};
use copies::Copies;
use counters::Counters;
use deeds::{Deeds, Doing, RawDeed};
use global::Global;
use hazard::HazardKind;
use hint::{AsyncHint, BoundsHint, CopyHint, Hint};
use memory::{Access, Memory};
use observed::{Shown, Sighting, Step, Trail, Watch};
use operand_rule::OperandRule;
use operation::{Bytes, Fetch, Operation, UnderWay, Written};
pub(crate) use operation::{Fork, TmaBox};
use order::{Actor, Cell, How, Order, Race, note};
use raw::{Hazards, Raw};
use requests::{Direction, MatrixCount, Requests, Space, matrix_global, matrix_shared};
use side::Side;

/// The end of a block: its access would be to unmapped memory, or one that the hardware refuses.
/// The reason is among the hazards.
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
    StoreWait,
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
            Self::StoreWait => "tma_store_wait",
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
    pub(crate) block: BlockIndex,
    pub(crate) cluster: Cluster,
    /// Memory that is neither shared nor global and not the kernel's business.
    pub(crate) harmless: [Range<usize>; 2],
    /// The program's code, constants and static variables: kernels may read them.
    pub(crate) program: Range<usize>,
    pub(crate) watch: Option<Arc<Watch>>,
    pub(crate) fence_rule: FenceRule,
    pub(crate) operand_rule: OperandRule,
    /// The operations of which the order is noted.
    pub(crate) deeds: Vec<&'static str>,
    /// The place of a byte of global memory whose last store is asked for.
    pub(crate) asked_byte: Option<u32>,
    /// The bytes that the clusters of the launch have touched.
    pub(crate) between: Arc<Mutex<Between>>,
    /// The cluster's number in the launch.
    pub(crate) cluster_number: u32,
    /// The bytes of host memory that the judge may take for what it remembers; `None` for all.
    pub(crate) history: Option<usize>,
    /// Whether the cluster ends once a hazard is seen.
    pub(crate) ends_at_hazard: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) hazards: Hazards,
    pub(crate) counters: Counters,
    pub(crate) touched: usize,
    /// The sites that have written some of the output that is watched.
    pub(crate) writers: BTreeSet<u32>,
    pub(crate) syncs: BTreeSet<(Sync, u32)>,
    /// Values of the watched row, as threads have shown them.
    pub(crate) sightings: Vec<Sighting>,
    pub(crate) trail: Trail,
    pub(crate) deeds: Vec<RawDeed>,
    /// The site of the last store to the byte that is asked for.
    pub(crate) last_store: Option<u32>,
    /// Whether the judge has stopped the cluster because it remembers too much.
    pub(crate) has_outgrown: bool,
}

/// The order that a strong operation makes with those of other threads at the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrongOrder {
    pub acquires: bool,
    pub releases: bool,
}

impl StrongOrder {
    pub const RELAXED: Self = Self {
        acquires: false,
        releases: false,
    };
}

/// The judge of one block after the other, kept for its memory.
#[derive(Debug, Default)]
pub(crate) struct Judge {
    setup: Option<Setup>,
    order: Order,
    shared: Vec<Cell>,
    content: Vec<Content>,
    /// The writer of each byte that holds a value or a copy.
    written: Vec<Written>,
    has_barriers: bool,
    /// Accesses of agents that nobody knows to be complete, and some others.
    under_way: Vec<UnderWay>,
    warpgroups: Vec<Option<Agent>>,
    /// The arrivals in other blocks that no thread there knew of when it exited.
    remote_arrivals: Vec<RemoteArrival>,
    copies: Copies,
    fetches: Vec<Fetch>,
    global: Global,
    requests: Vec<Requests>,
    races: Vec<Race>,
    /// The signals that strong writes have published, by the address.
    published: BTreeMap<usize, Signal>,
    /// The bytes that the present access stores, if they are known.
    stored: Vec<u8>,
    /// The accesses until the next look at the memory that the judge takes.
    accesses_to_look: usize,
    outcome: Outcome,
    deeds: Deeds,
}

impl Judge {
    /// The bytes of host memory for each byte of shared memory: its accesses, content and writer,
    /// and the copy that will write it.
    pub(crate) const BYTES_PER_SHARED_BYTE: usize =
        size_of::<Cell>() + size_of::<Content>() + size_of::<Written>() + size_of::<u32>();

    pub(crate) fn start(&mut self, setup: Setup) {
        let generation = self.order.generation() + 1;
        let (threads, bytes) = (setup.cluster.all_threads(), setup.cluster.span());
        self.order.start(threads, generation, setup.fence_rule);
        self.shared
            .resize(bytes.max(self.shared.len()), Cell::default());
        self.content.clear();
        self.content.resize(bytes, Content::Uninitialised);
        self.written
            .resize(bytes.max(self.written.len()), Written::NOBODY);
        self.has_barriers = false;
        self.under_way.clear();
        self.warpgroups.clear();
        self.remote_arrivals.clear();
        self.fetches.clear();
        self.published.clear();
        self.copies.start(threads, bytes);
        self.global.start(setup.memory.bytes);
        self.requests
            .resize_with(threads.div_ceil(32) as usize, Requests::default);
        self.outcome = Outcome::default();
        self.deeds.start(setup.deeds.clone(), threads);
        if setup.watch.is_some() {
            self.outcome.trail.start(threads);
        }
        self.setup = Some(setup);
    }

    fn has_seen_enough(&self) -> bool {
        self.setup().ends_at_hazard && !self.outcome.hazards.is_empty()
    }

    fn setup(&self) -> &Setup {
        self.setup.as_ref().expect("a block has started")
    }

    pub(crate) fn finish(&mut self, exps: u64) -> Outcome {
        self.flush_all();
        self.outcome.counters.exps = exps;
        self.outcome.writers = self.watched_writers();
        self.tell_of_outputs();
        self.outcome.deeds = self.deeds.finish();
        self.outcome.hazards.drop_consequences();
        std::mem::take(&mut self.outcome)
    }

    /// Returns the sites that have written some of the output that is watched.
    fn watched_writers(&self) -> BTreeSet<u32> {
        let Setup { memory, watch, .. } = self.setup();
        let Some(Watch { output, .. }) = watch.as_deref() else {
            return BTreeSet::new();
        };
        let Some(place) = memory.place_of("o", output.start) else {
            return BTreeSet::new();
        };
        let start = place as usize;
        self.global.writers(start..start + output.len())
    }

    /// Tells the judge of the launch what this cluster has touched.
    fn tell_of_outputs(&self) {
        let Setup {
            between,
            cluster_number,
            ..
        } = self.setup();
        let mut told = between.lock().unwrap_or_else(PoisonError::into_inner);
        self.global.tell(*cluster_number, &mut told);
    }

    pub(crate) fn operand_rule(&self) -> OperandRule {
        self.setup().operand_rule
    }

    /// Returns whether somebody asks for what threads show.
    pub(crate) fn is_watching(&self) -> bool {
        self.setup().watch.is_some() || self.deeds.is_on()
    }

    pub(crate) fn deeds(&mut self) -> &mut Deeds {
        &mut self.deeds
    }

    pub(crate) fn shows(&mut self, shown: Shown, thread: u32, site: u32) {
        if self.setup().watch.is_none() {
            return;
        }
        let way = self.outcome.trail.way(thread, shown.element);
        if let Some(watch) = &self.setup().watch
            && watch.row == shown.row
        {
            self.outcome.sightings.push(Sighting {
                shown,
                thread,
                site,
                way,
            });
        }
    }

    pub(crate) fn steps(&mut self, thread: u32, step: Step, value: i32, site: u32) {
        if self.setup().watch.is_some() {
            self.outcome.trail.steps(thread, step, value, site);
        }
        if step == Step::Exponential {
            self.deeds.does(Doing {
                thread,
                operation: "exp2_approx",
                site,
                object: 0,
            });
        }
    }

    fn flush_all(&mut self) {
        for requests in &mut self.requests {
            requests.flush(&mut self.outcome.counters);
        }
    }

    /// Reports a hazard of one access.
    fn report(&mut self, kind: HazardKind, operation: Operation, bytes: Bytes, hint: Hint) {
        self.add_hazard(Raw::new(kind, operation.side(), None, bytes, hint));
    }

    /// Reports a hazard between two accesses.
    fn report_pair(
        &mut self,
        kind: HazardKind,
        first: Side,
        second: Side,
        bytes: Bytes,
        hint: Hint,
    ) {
        self.add_hazard(Raw::new(kind, first, Some(second), bytes, hint));
    }

    /// Adds a hazard. The source of a copy is looked up for the first hazard of its kind only.
    fn add_hazard(&mut self, mut raw: Raw) {
        if raw.space == Space::Shared && self.outcome.hazards.lacks(&raw) {
            self.describe_copy(&mut raw);
        }
        let Setup { block, cluster, .. } = self.setup.as_ref().expect("a block has started");
        let first_block = if cluster.blocks > 1 {
            raw.localise(cluster, *block)
        } else {
            *block
        };
        self.outcome.hazards.add(first_block, raw);
    }

    /// Adds to a hazard from where its bytes of shared memory are, or are to be, copied.
    fn describe_copy(&self, raw: &mut Raw) {
        let at = raw.offset as usize;
        let Some(&content) = self.content.get(at) else {
            return;
        };
        let is_under_way = self.copies.under_way(at..at + 1).is_some();
        if (is_under_way || content == Content::Copied)
            && let Some(copy) = self.copies.latest(at)
        {
            raw.source = copy.source();
            if let Hint::Copy(CopyHint::BarrierAfterWait { early, .. }) = &mut raw.hint {
                *early = copy.waited;
            }
        }
        if content == Content::Fetched {
            raw.source = self.fetched(at).and_then(|latest| latest.first_row);
        }
    }

    /// Returns the last transfer to a byte of shared memory.
    fn fetched(&self, at: usize) -> Option<&Fetch> {
        let mut fetches = self.fetches.iter().rev();
        fetches.find(|fetch| fetch.range.contains(&at))
    }

    /// Judges an access of a thread. If it is one instruction (`whole`), it needs an aligned
    /// address.
    pub(crate) fn access(
        &mut self,
        thread: u32,
        address: usize,
        bytes: usize,
        write: bool,
        whole: bool,
        site: u32,
    ) -> Result<(), Stop> {
        let (how, direction) = if write {
            (How::Write, Direction::Write)
        } else {
            (How::Read, Direction::Read)
        };
        let operation = Operation::new(Actor::Thread(thread), how, site);
        let accessed = if whole {
            self.aligned_place(address, bytes, operation)?
        } else {
            self.place(address, bytes, operation)?
        };
        let Some(Bytes {
            space,
            start: place,
            ..
        }) = accessed
        else {
            return Ok(());
        };
        if self.touch(space, place, bytes, operation) {
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

    /// Judges a store of these bytes. Lanes of a warp may store the same to the same place by one
    /// instruction: one of them does it (CUDA C++ Programming Guide, SIMT architecture).
    pub(crate) fn store(
        &mut self,
        thread: u32,
        address: usize,
        value: &[u8],
        site: u32,
    ) -> Result<(), Stop> {
        self.stored.clear();
        self.stored.extend_from_slice(value);
        let judgement = self.access(thread, address, value.len(), true, true, site);
        self.stored.clear();
        judgement
    }

    /// Judges a strong operation of a thread. Between blocks it makes no order.
    pub(crate) fn strong(
        &mut self,
        thread: u32,
        address: usize,
        bytes: usize,
        how: How,
        order: StrongOrder,
        site: u32,
    ) -> Result<(), Stop> {
        let operation = Operation::new(Actor::Thread(thread), how, site);
        let Some(accessed) = self.aligned_place(address, bytes, operation)? else {
            return Ok(());
        };
        self.touch(accessed.space, accessed.start, bytes, operation);
        let mut signal = self.published.remove(&address).unwrap_or_default();
        if order.acquires {
            self.order.acquire(thread, &signal);
        }
        // A read-modify-write goes on with what others have released; a write does not.
        if how == How::StrongWrite {
            signal = Signal::default();
        }
        if order.releases {
            self.order.release(thread, &mut signal);
        }
        self.published.insert(address, signal);
        Ok(())
    }

    /// Returns the place of one instruction's bytes, whose address must be a multiple of them.
    #[inline]
    fn aligned_place(
        &mut self,
        address: usize,
        bytes: usize,
        operation: Operation,
    ) -> Result<Option<Bytes>, Stop> {
        let place = self.place(address, bytes, operation)?;
        if let Some(accessed) = place
            && !address.is_multiple_of(bytes)
        {
            let hint = Hint::Bounds(BoundsHint::Alignment { address });
            self.report(HazardKind::Misaligned, operation, accessed, hint);
            return Err(Stop);
        }
        Ok(place)
    }

    /// Returns the place of the bytes at an address; none if accesses there do not count.
    #[inline]
    fn place(
        &mut self,
        address: usize,
        bytes: usize,
        operation: Operation,
    ) -> Result<Option<Bytes>, Stop> {
        if self.outgrows() || self.has_seen_enough() {
            return Err(Stop);
        }
        let setup = self.setup.as_ref().expect("a block has started");
        let offset = address.wrapping_sub(setup.cluster.start);
        if offset < setup.cluster.blocks as usize * STRIDE {
            return Ok(Some(Bytes::shared(offset..offset + bytes)));
        }
        if let Some(index) = setup.memory.find(address) {
            let allocation = &setup.memory.allocations[index];
            let place = allocation.base + (address - allocation.start) as u32;
            return Ok(Some(Bytes::global(place, bytes)));
        }
        if setup.harmless.iter().any(|range| range.contains(&address)) {
            return Ok(None);
        }
        let outside = Bytes::global(0, bytes);
        if setup.program.contains(&address) {
            if operation.how.is_write() {
                let hint = Hint::Bounds(BoundsHint::ProgramWritten);
                self.report(HazardKind::OutOfBounds, operation, outside, hint);
            }
            return Ok(None);
        }
        let hint = Hint::Bounds(BoundsHint::Nowhere { address });
        self.report(HazardKind::OutOfBounds, operation, outside, hint);
        Err(Stop)
    }

    fn touch(&mut self, space: Space, place: u32, bytes: usize, operation: Operation) -> bool {
        if self.setup().watch.is_some() {
            let trail = &mut self.outcome.trail;
            trail.passes(operation.actor.threads(), operation.site, operation.how);
            if space == Space::Global {
                trail.reads.insert(operation.site, place);
            }
        }
        match space {
            Space::Shared => self.touch_shared(place as usize, bytes, operation),
            Space::Global => self.touch_global(place, bytes, operation),
        }
    }

    fn touch_shared(&mut self, offset: usize, bytes: usize, operation: Operation) -> bool {
        let cluster = self.setup().cluster;
        let range = offset..offset + bytes;
        if !cluster.declares(offset, bytes) {
            let declared = cluster.declared as u32;
            self.report(
                HazardKind::OutOfBounds,
                operation,
                Bytes::shared(range),
                Hint::Bounds(BoundsHint::BehindShared { declared }),
            );
            return false;
        }
        let end = Cluster::within_block(offset) + bytes;
        self.outcome.touched = self.outcome.touched.max(end);
        if let Some((at, copy)) = self.copies.under_way(range.clone()) {
            self.report_copy(at..range.end, copy, operation);
        } else if self.has_barriers && self.content[range.clone()].contains(&Content::Barrier) {
            self.report(
                HazardKind::BarrierObject,
                operation,
                Bytes::shared(range),
                Hint::BarrierObject,
            );
        } else if operation.how.is_write() && !operation.how.is_strong() {
            self.write_shared(range, operation);
        } else {
            self.read_shared(range, operation);
        }
        true
    }

    fn write_shared(&mut self, range: Range<usize>, operation: Operation) {
        let event = self.event(operation);
        let cells = self.shared[range.clone()].iter_mut();
        let races = &mut self.races;
        self.order
            .write(cells, event, |index, other| note(races, index, other));
        let is_race = self.report_races(Space::Shared, range.start, operation);
        // A store_async belongs to the generic proxy.
        if operation.how == How::TmaWrite && !is_race {
            self.check_fences(range.clone(), operation);
        }
        if operation.how.is_fetch() {
            self.content[range].fill(Content::Fetched);
            return;
        }
        self.fill_shared(range, operation);
    }

    /// Notes that a thread has written values.
    fn fill_shared(&mut self, range: Range<usize>, operation: Operation) {
        let fences = self.order.fences();
        let written = Written::new(operation.actor, operation.how, fences, operation.site);
        self.content[range.clone()].fill(Content::Value);
        self.written[range].fill(written);
    }

    fn read_shared(&mut self, range: Range<usize>, operation: Operation) {
        let event = self.event(operation);
        let cells = self.shared[range.clone()].iter_mut();
        let races = &mut self.races;
        self.order
            .read(cells, event, |index, other| note(races, index, other));
        let is_race = self.report_races(Space::Shared, range.start, operation);
        if matches!(operation.actor, Actor::Agent { .. }) && !is_race {
            self.check_fences(range.clone(), operation);
        }
        if operation.how == How::StrongWrite {
            self.fill_shared(range, operation);
            return;
        }
        let first_unwritten = self.content[range.clone()]
            .iter()
            .position(|&content| content == Content::Uninitialised);
        if let Some(first) = first_unwritten {
            self.report(
                HazardKind::UninitialisedShared,
                operation,
                Bytes::shared(range.start + first..range.end),
                Hint::Uninitialised,
            );
        }
        if operation.how == How::Atomic {
            self.fill_shared(range, operation);
        }
    }

    fn touch_global(&mut self, place: u32, bytes: usize, operation: Operation) -> bool {
        let memory = Arc::clone(&self.setup().memory);
        let Some((allocation, offset)) = memory.locate(place) else {
            return false;
        };
        if !allocation.holds(offset, bytes) {
            let first = allocation.first_outside(offset, bytes).unwrap_or(offset);
            let skipped = first - offset;
            let outside = Bytes::global(place + skipped as u32, bytes - skipped);
            self.report(
                HazardKind::OutOfBounds,
                operation,
                outside,
                Hint::Bounds(BoundsHint::GuardBand),
            );
            return false;
        }
        if allocation.access == Access::Output {
            self.touch_output(place, bytes, operation);
        } else if operation.how.is_write() {
            let written = Bytes::global(place, bytes);
            self.report(
                HazardKind::OutOfBounds,
                operation,
                written,
                Hint::Bounds(BoundsHint::InputWritten),
            );
        }
        allocation.access != Access::Constant
    }

    fn touch_output(&mut self, place: u32, bytes: usize, operation: Operation) {
        let event = self.event(operation);
        let is_write = operation.how.is_write();
        if is_write && let Some(copy) = self.copies.reads(place, bytes) {
            self.report_copy_source(place, copy, operation);
        }
        let asked_byte = self.setup().asked_byte;
        if is_write && asked_byte.is_some_and(|asked| asked.wrapping_sub(place) < bytes as u32) {
            self.outcome.last_store = Some(operation.site);
        }
        self.global.touch(
            &mut self.order,
            place,
            bytes,
            event,
            operation.how,
            operation.actor.thread(),
            operation.site,
            &mut self.races,
        );
        self.report_races(Space::Global, place as usize, operation);
    }

    fn event(&mut self, operation: Operation) -> u32 {
        let Operation {
            actor,
            lanes,
            distribution,
            clock,
            how,
            site,
        } = operation;
        match actor {
            Actor::Thread(thread) | Actor::Copies(thread) => self.order.event(thread, site, how),
            Actor::Agent { .. } => self.order.agent_event(actor, clock, site, how),
            Actor::Warp(warp) => self.order.warp_event(warp, lanes, site, how, distribution),
        }
    }

    /// Reports the races that an access has run into. Returns whether there is any.
    fn report_races(&mut self, space: Space, start: usize, operation: Operation) -> bool {
        if self.races.is_empty() {
            return false;
        }
        let mut races = std::mem::take(&mut self.races);
        let mut is_race = false;
        for race in races.drain(..) {
            let other = Side::from(self.order.describe(race.event));
            if space == Space::Shared && self.is_repeated(start, &race, other, operation) {
                continue;
            }
            is_race = true;
            let is_write = operation.how.is_write();
            let is_first_write = space == Space::Shared
                && is_write
                && self.content[start + race.first] == Content::Uninitialised;
            let kind = if other.how.is_fetch() && !is_write {
                HazardKind::ReadInFlight
            } else {
                HazardKind::Race
            };
            let bytes = Bytes {
                space,
                start: (start + race.first) as u32,
                count: (race.last - race.first + 1) as u32,
            };
            let hint = race_hint(other, operation.side(), is_first_write);
            self.report_pair(kind, other, operation.side(), bytes, hint);
        }
        self.races = races;
        is_race
    }

    /// Returns whether a store to shared memory, from `start` on, repeats in these bytes what another
    /// lane of its warp has stored by the same instruction.
    fn is_repeated(&self, start: usize, race: &Race, other: Side, operation: Operation) -> bool {
        let (Actor::Thread(before), Actor::Thread(now)) = (other.actor, operation.actor) else {
            return false;
        };
        let are_stores = other.how == How::Write && operation.how == How::Write;
        let is_one_instruction = before / 32 == now / 32 && other.site == operation.site;
        if !are_stores || !is_one_instruction || self.stored.is_empty() {
            return false;
        }
        let bytes = race.first..race.last + 1;
        let address = self.setup().cluster.start + start + bytes.start;
        // SAFETY: the bytes are declared shared memory of the running block, whose threads run one
        // after the other.
        let held = unsafe { std::slice::from_raw_parts(address as *const u8, bytes.len()) };
        held == &self.stored[bytes]
    }

    pub(crate) fn barrier(&mut self, thread: u32, site: u32) {
        self.outcome.syncs.insert((Sync::Barrier, site));
        self.outcome.counters.barriers += 1;
        let cluster = self.setup().cluster;
        let members = cluster.members(cluster.rank(thread));
        self.deeds.meet(members.clone());
        if cluster.blocks == 1 {
            self.order.meet_all();
            self.keep_under_way();
            self.flush_all();
            return;
        }
        let warps = members.start as usize / 32..members.end as usize / 32;
        self.order.meet(members);
        for requests in &mut self.requests[warps] {
            requests.flush(&mut self.outcome.counters);
        }
    }

    /// Notes a synchronisation site, suppressed or not. (`__syncthreads` is noted when it is
    /// complete.)
    pub(crate) fn reaches(&mut self, sync: Sync, site: u32) {
        self.outcome.syncs.insert((sync, site));
    }

    pub(crate) fn warp_barrier(&mut self, warp: u32, lanes: u32) {
        self.outcome.counters.warp_barriers += 1;
        let members = (0..32).filter(move |lane| lanes >> lane & 1 == 1);
        self.deeds.meet(members.map(|lane| warp * 32 + lane));
        self.order.meet_lanes(warp, lanes);
    }

    pub(crate) fn arrive_at_named(&mut self, warp: u32, signal: &mut Signal) {
        self.outcome.counters.named_barriers += 1;
        let lanes = warp * 32..warp * 32 + 32;
        signal.step = signal.step.max(self.deeds.latest(lanes.clone()));
        for thread in lanes {
            self.order.release(thread, signal);
        }
    }

    pub(crate) fn leave_named(&mut self, warp: u32, signal: &Signal) {
        for thread in warp * 32..warp * 32 + 32 {
            self.deeds.learn(thread, signal.step);
            self.order.acquire(thread, signal);
        }
    }

    /// Makes 8 bytes of shared memory an mbarrier.
    pub(crate) fn init_barrier(&mut self, thread: u32, offset: usize, site: u32) {
        let operation = Operation::new(Actor::Thread(thread), How::BarrierInit, site);
        self.touch_shared(offset, 8, operation);
        self.content[offset..offset + 8].fill(Content::Barrier);
        self.has_barriers = true;
    }

    /// Judges an operation of an mbarrier: it is atomic, but must come after the initialisation.
    pub(crate) fn use_barrier(&mut self, thread: u32, offset: usize, site: u32) {
        let operation = Operation::new(Actor::Thread(thread), How::BarrierUse, site);
        let event = self.event(operation);
        let cells = self.shared[offset..offset + 8].iter_mut();
        let races = &mut self.races;
        self.order
            .follow(cells, event, |index, other| note(races, index, other));
        self.report_races(Space::Shared, offset, operation);
    }

    pub(crate) fn arrive(&mut self, thread: u32, signal: &mut Signal) {
        self.outcome.counters.mbarrier_arrivals += 1;
        signal.step = signal.step.max(self.deeds.step(thread));
        self.order.release(thread, signal);
    }

    pub(crate) fn observe(&mut self, thread: u32, signal: &Signal) {
        self.outcome.counters.mbarrier_waits += 1;
        self.deeds.learn(thread, signal.step);
        self.order.acquire(thread, signal);
    }

    /// Notes that all live lanes of a warp have met: their accesses so far are whole requests.
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
        let operation = Operation {
            lanes: matrix.lanes,
            distribution: matrix.distribution,
            ..Operation::new(Actor::Warp(matrix.warp), how, matrix.site)
        };
        let row_bytes = matrix.row_bytes as usize;
        let (mut global, mut shared) = (Vec::new(), Vec::new());
        for &row in matrix.rows {
            let Some(accessed) = self.place(row, row_bytes, operation)? else {
                continue;
            };
            let (space, place) = (accessed.space, accessed.start);
            if self.touch(space, place, row_bytes, operation) {
                match space {
                    Space::Global => global.push(place),
                    Space::Shared => shared.push(place),
                }
            }
        }
        self.count_matrix(matrix, &global, &shared);
        Ok(())
    }

    /// Counts the rows of a matrix that lie in global and in shared memory.
    fn count_matrix(&mut self, matrix: &Matrix<'_>, global: &[u32], shared: &[u32]) {
        let counters = &mut self.outcome.counters;
        let (global_traffic, shared_traffic) = if matrix.write {
            (&mut counters.global_write, &mut counters.shared_write)
        } else {
            (&mut counters.global_read, &mut counters.shared_read)
        };
        if !global.is_empty() {
            *global_traffic += matrix_global(global, matrix.row_bytes);
        }
        if !shared.is_empty() {
            *shared_traffic +=
                matrix_shared(shared, matrix.row_bytes, matrix.element_bytes, matrix.count);
        }
    }
}

/// Returns what is missing between two accesses that race. `is_first_write`: nobody had written the
/// bytes before the later one.
fn race_hint(earlier: Side, later: Side, is_first_write: bool) -> Hint {
    let is_write = later.how.is_write();
    let same_warp = earlier.actor.warp() == later.actor.warp();
    if earlier.how == How::BarrierInit {
        return Hint::BarrierNotSeen;
    }
    if earlier.how.is_fetch() && !is_write {
        return Hint::Async(AsyncHint::FetchNotObserved);
    }
    if later.how.is_fetch() {
        let loads = earlier.how.is_fetch();
        return Hint::Async(AsyncHint::SlotInUse { loads });
    }
    if earlier.how.is_fetch() {
        return Hint::Async(AsyncHint::FetchUnderWay);
    }
    if earlier.how == How::StoreRead {
        return Hint::Async(AsyncHint::StoreNotRead);
    }
    if earlier.how == How::StoreWrite {
        return Hint::Async(AsyncHint::StoreNotWritten);
    }
    if earlier.how == How::WgmmaRead && !is_first_write {
        return Hint::Async(AsyncHint::OperandInUse);
    }
    let is_plain_write = matches!(earlier.how, How::Write | How::MatrixWrite);
    if later.how == How::WgmmaRead && is_plain_write {
        return Hint::Barrier;
    }
    if matches!(earlier.actor, Actor::Copies(_)) && !is_write {
        return Hint::Copy(CopyHint::PhaseObservedByOthers);
    }
    if earlier.how == How::CopyWrite && !is_write {
        let early = None;
        return Hint::Copy(CopyHint::BarrierAfterWait { same_warp, early });
    }
    if same_warp && (earlier.actor.is_warp() || later.actor.is_warp()) {
        return Hint::MatrixSync;
    }
    if is_first_write && !earlier.how.is_write() {
        return Hint::BarrierAfterWrite { same_warp };
    }
    if same_warp {
        return Hint::SyncWarp;
    }
    Hint::Barrier
}

/// A warp's access to a matrix.
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
