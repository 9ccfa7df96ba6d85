//! Whether two accesses are ordered. A byte's cell holds its last write and the reads and strong
//! operations since then that are not ordered with each other, against which a new access is
//! checked: at least the first race of a byte is found, whatever the schedule.

use crate::intern::{IntegerMap, Interner};

use super::clocks::{Agent, Clocks, FenceRule, Signal};
use crate::heap::{of_list, of_table};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum How {
    Read,
    Write,
    CopyRead,
    /// cp.async writes its destination, at a time that its thread's wait bounds.
    CopyWrite,
    MatrixRead,
    MatrixWrite,
    BarrierInit,
    BarrierUse,
    TmaRead,
    TmaWrite,
    StoreRead,
    StoreWrite,
    /// A thread of the cluster writes, at a time that the phase of an mbarrier bounds.
    StoreAsync,
    WgmmaRead,
    WgmmaRegisters,
    /// A strong operation: no other strong one makes a race with it.
    StrongRead,
    StrongWrite,
    /// A read-modify-write.
    Atomic,
}

impl How {
    pub fn is_write(self) -> bool {
        matches!(
            self,
            Self::Write
                | Self::CopyWrite
                | Self::MatrixWrite
                | Self::BarrierInit
                | Self::TmaWrite
                | Self::StoreWrite
                | Self::StoreAsync
                | Self::StrongWrite
                | Self::Atomic
        )
    }

    pub(crate) fn is_strong(self) -> bool {
        matches!(self, Self::StrongRead | Self::StrongWrite | Self::Atomic)
    }

    /// Returns whether it makes a race with what cells hold beside their last write: weak reads and
    /// strong operations.
    fn conflicts_with_read(self, other: Self) -> bool {
        let is_alike = self.is_strong() == other.is_strong();
        !is_alike && (self.is_write() || other.is_write())
    }

    /// Returns the words for the access, as in "thread 3 reads by cp.async".
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Read => "reads",
            Self::Write => "writes",
            Self::CopyRead => "reads by cp.async",
            Self::CopyWrite => "writes by cp.async",
            Self::MatrixRead => "reads a matrix",
            Self::MatrixWrite => "writes a matrix",
            Self::BarrierInit => "initialises an mbarrier",
            Self::BarrierUse => "uses an mbarrier",
            Self::TmaRead => "reads by tma_load",
            Self::TmaWrite => "writes by tma_load",
            Self::StoreRead => "reads by tma_store",
            Self::StoreWrite => "writes by tma_store",
            Self::StoreAsync => "writes by store_async",
            Self::WgmmaRead => "reads an operand of wgmma",
            Self::WgmmaRegisters => "has given registers to wgmma",
            Self::StrongRead => "reads by a strong operation",
            Self::StrongWrite => "writes by a strong operation",
            Self::Atomic => "reads and writes atomically",
        }
    }

    pub(crate) fn is_fetch(self) -> bool {
        matches!(self, Self::TmaWrite | Self::StoreAsync)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Actor {
    Thread(u32),
    /// Any of the warp's lanes may be the one that touches a byte.
    Warp(u32),
    /// The copies of a thread that arrive at an mbarrier, when they land.
    Copies(u32),
    /// An asynchronous operation of a thread or of a warpgroup's threads from `first` on. It comes
    /// after what all of them knew when they issued it.
    Agent {
        agent: Agent,
        first: u16,
        count: u16,
    },
}

impl Actor {
    pub(crate) fn thread(self) -> u32 {
        match self {
            Self::Thread(thread) | Self::Copies(thread) => thread,
            Self::Warp(warp) => warp * 32,
            Self::Agent { first, .. } => first.into(),
        }
    }

    pub(crate) fn warp(self) -> u32 {
        self.thread() / 32
    }

    pub(crate) fn is_warp(self) -> bool {
        matches!(self, Self::Warp(_))
    }

    /// Numbers a cluster's actor within its own block, of `threads` threads.
    pub(crate) fn localise(self, threads: u32) -> Self {
        match self {
            Self::Thread(thread) => Self::Thread(thread % threads),
            Self::Warp(warp) => Self::Warp(warp % (threads / 32)),
            Self::Copies(thread) => Self::Copies(thread % threads),
            Self::Agent {
                agent,
                first,
                count,
            } => Self::Agent {
                agent,
                first: first % threads as u16,
                count,
            },
        }
    }

    pub(crate) fn threads(self) -> std::ops::Range<u32> {
        match self {
            Self::Thread(thread) | Self::Copies(thread) => thread..thread + 1,
            Self::Warp(warp) => warp * 32..warp * 32 + 32,
            Self::Agent { first, count, .. } => {
                let start = u32::from(first);
                start..start + u32::from(count)
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Event {
    pub(crate) actor: Actor,
    /// The clock of the thread or agent, number of the copy, or index of the warp's clocks in
    /// `lanes`.
    clock: u32,
    pub(crate) site: u32,
    pub(crate) how: How,
    /// See `EmulatorMatrixAccess`.
    distribution: u64,
}

/// Accesses to one byte since the last barrier of the whole block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cell {
    generation: u32,
    /// Event; 0: none.
    write: u32,
    /// Set of events; 0: empty.
    reads: u32,
}

impl Cell {
    /// Forgets accesses before the barrier that began `generation`.
    fn enter(&mut self, generation: u32) {
        if self.generation != generation {
            *self = Self {
                generation,
                ..Self::default()
            };
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Lanes {
    mask: u32,
    clocks: [u32; 32],
}

/// An event that is added to a set of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Addition {
    set: u32,
    event: u32,
}

/// The number of a set's newest events that are looked at whenever one is added.
const NEWEST: u32 = 8;

/// What is left of a set.
struct Uncovered {
    /// Events, the newest first.
    newest: Vec<u32>,
    /// A set of older ones.
    older: u32,
}

/// The size of a set.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    events: u32,
    /// The events that were left when all were last looked at.
    at_last_look: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Order {
    clocks: Clocks,
    events: Interner<Event>,
    /// A set of reads: one event and the set of the others.
    sets: Interner<(u32, u32)>,
    /// Of each set but the empty one.
    sizes: Vec<Size>,
    /// (Set, event) to the set with that event.
    added: IntegerMap<Addition, u32>,
    lanes: Vec<Lanes>,
    /// The index in `lanes` of each warp's present clocks.
    present: Vec<Option<u32>>,
    /// Whether there has been a strong operation.
    has_strong: bool,
}

impl Order {
    pub(crate) fn start(&mut self, threads: u32, generation: u32, rule: FenceRule) {
        self.clocks.start(threads as usize, generation, rule);
        self.has_strong = false;
        self.present.clear();
        self.present.resize(threads.div_ceil(32) as usize, None);
        self.forget();
    }

    /// Returns the bytes of events and clocks.
    pub(super) fn history_bytes(&self) -> usize {
        self.clocks.history_bytes()
            + self.events.bytes()
            + self.sets.bytes()
            + of_list(&self.sizes)
            + of_table(&self.added)
            + of_list(&self.lanes)
    }

    fn forget(&mut self) {
        self.events.clear();
        self.sets.clear();
        self.sizes.clear();
        self.added.clear();
        self.lanes.clear();
        self.present.fill(None);
    }

    pub(crate) fn generation(&self) -> u32 {
        self.clocks.generation()
    }

    pub(crate) fn meet_all(&mut self) {
        self.clocks.meet_all();
        self.forget();
    }

    pub(crate) fn meet_lanes(&mut self, warp: u32, mask: u32) {
        let lanes = (0..32).filter(move |lane| mask >> lane & 1 == 1);
        self.meet(lanes.map(move |lane| warp * 32 + lane));
    }

    pub(crate) fn meet(&mut self, threads: impl Iterator<Item = u32> + Clone) {
        for thread in threads.clone() {
            self.present[thread as usize / 32] = None;
        }
        self.clocks.meet(threads);
    }

    pub(crate) fn release(&mut self, thread: u32, signal: &mut Signal) {
        self.clocks.release(thread, signal);
        self.present[thread as usize / 32] = None;
    }

    pub(crate) fn acquire(&mut self, thread: u32, signal: &Signal) {
        self.clocks.acquire(thread, signal);
        self.present[thread as usize / 32] = None;
    }

    pub(crate) fn issue_copy(&mut self, thread: u32) {
        self.clocks.issue_copy(thread);
        self.present[thread as usize / 32] = None;
    }

    pub(crate) fn release_before_copies(&mut self, thread: u32, signal: &mut Signal) {
        self.clocks.release_before_copies(thread, signal);
    }

    pub(crate) fn release_copies(&mut self, thread: u32, copy: u32, signal: &mut Signal) {
        self.clocks.release_copies(thread, copy, signal);
    }

    pub(crate) fn wait_for_copies(&mut self, thread: u32, copy: u32) {
        self.clocks.wait_for_copies(thread, copy);
        self.present[thread as usize / 32] = None;
    }

    pub(crate) fn landing(&mut self, thread: u32, copy: u32, site: u32) -> u32 {
        self.events.number(Event {
            actor: Actor::Copies(thread),
            clock: copy,
            site,
            how: How::CopyWrite,
            distribution: 0,
        })
    }

    #[inline]
    pub(crate) fn event(&mut self, thread: u32, site: u32, how: How) -> u32 {
        let clock = self.clocks.clock(thread);
        self.events.number(Event {
            actor: Actor::Thread(thread),
            clock,
            site,
            how,
            distribution: 0,
        })
    }

    pub(crate) fn clock(&self, thread: u32) -> u32 {
        self.clocks.clock(thread)
    }

    /// Returns whether a thread knows what another one did up to a clock.
    pub(crate) fn has_learned(&self, thread: u32, other: u32, clock: u32) -> bool {
        self.clocks.knows(thread, other, clock)
    }

    pub(crate) fn agent(&mut self) -> Agent {
        self.clocks.agent()
    }

    pub(crate) fn complete(&mut self, thread: u32, agent: Agent, clock: u32) {
        self.clocks.complete(thread, agent, clock);
    }

    pub(crate) fn is_complete(&self, agent: Agent, clock: u32) -> bool {
        self.clocks.is_complete(agent, clock)
    }

    pub(crate) fn agent_event(&mut self, actor: Actor, clock: u32, site: u32, how: How) -> u32 {
        self.events.number(Event {
            actor,
            clock,
            site,
            how,
            distribution: 0,
        })
    }

    pub(crate) fn fence(&mut self, thread: u32) {
        self.clocks.fence(thread);
    }

    #[inline]
    pub(crate) fn fences(&self) -> u32 {
        self.clocks.fences()
    }

    /// Returns whether an operation that `reader` issues now sees through the async proxy what
    /// `writer` wrote. `number` is what the write kept: the copy's own number, or that of
    /// [`Order::fences`] when it took place.
    pub(crate) fn is_fenced(&self, writer: Actor, number: u32, reader: Actor) -> bool {
        let is_known = |reading: u32, writing: u32| match writer {
            Actor::Copies(copier) => self.clocks.knows_fenced_copy(reading, copier, number),
            _ => self.clocks.knows_fence(reading, writing, number),
        };
        writer
            .threads()
            .all(|writing| reader.threads().all(|reading| is_known(reading, writing)))
    }

    pub(crate) fn warp_event(
        &mut self,
        warp: u32,
        mask: u32,
        site: u32,
        how: How,
        distribution: u64,
    ) -> u32 {
        let clock = match self.present[warp as usize] {
            Some(number) if self.lanes[number as usize].mask == mask => number,
            _ => self.add_lanes(warp, mask),
        };
        self.present[warp as usize] = Some(clock);
        self.events.number(Event {
            actor: Actor::Warp(warp),
            clock,
            site,
            how,
            distribution,
        })
    }

    /// Keeps the present clocks of a warp's lanes. Returns their index in `lanes`.
    fn add_lanes(&mut self, warp: u32, mask: u32) -> u32 {
        let mut clocks = [0; 32];
        for lane in lanes_of(mask) {
            clocks[lane as usize] = self.clocks.clock(warp * 32 + lane);
        }
        self.lanes.push(Lanes { mask, clocks });
        self.lanes.len() as u32 - 1
    }

    pub(crate) fn describe(&self, event: u32) -> Event {
        self.events.value(event)
    }

    /// Returns whether `earlier` was over before any of those who make `now` can start.
    fn ordered(&self, earlier: u32, now: u32) -> bool {
        let (then, present) = (self.events.value(earlier), self.events.value(now));
        let same_lanes = then.distribution != 0 && then.distribution == present.distribution;
        if same_lanes && then.actor == present.actor {
            return true;
        }
        match present.actor {
            Actor::Thread(thread) | Actor::Copies(thread) => self.knows(thread, &then),
            Actor::Agent { .. } => present
                .actor
                .threads()
                .all(|thread| self.knows(thread, &then)),
            Actor::Warp(warp) => lanes_of(self.lanes[present.clock as usize].mask)
                .all(|lane| self.knows(warp * 32 + lane, &then)),
        }
    }

    /// Returns whether a thread knows that an event is over.
    #[inline]
    fn knows(&self, reader: u32, event: &Event) -> bool {
        match event.actor {
            Actor::Thread(thread) => self.clocks.knows(reader, thread, event.clock),
            Actor::Copies(thread) => self.clocks.knows_copy(reader, thread, event.clock),
            Actor::Agent { agent, .. } => self.clocks.knows_agent(reader, agent, event.clock),
            Actor::Warp(warp) => {
                let known = &self.lanes[event.clock as usize];
                lanes_of(known.mask).all(|lane| {
                    let clock = known.clocks[lane as usize];
                    self.clocks.knows(reader, warp * 32 + lane, clock)
                })
            }
        }
    }

    /// Returns an event of a set that is not ordered before `now`, of those that `conflicts`.
    fn unordered(&self, mut set: u32, now: u32, conflicts: impl Fn(How) -> bool) -> Option<u32> {
        while set != 0 {
            let (others, event) = self.sets.value(set);
            if conflicts(self.events.value(event).how) && !self.ordered(event, now) {
                return Some(event);
            }
            set = others;
        }
        None
    }

    /// Returns the set with a read, without those that are ordered before it. But who knows that an
    /// agent's operation is complete knows only of that agent's earlier ones.
    ///
    /// All events of a set are looked at when it has twice as many as after the last such look, and
    /// the newest few each time: of 512 threads that read a byte again and again each look at all
    /// would take a cache miss for every event. One that stays has a newer one before it that
    /// covers it, so that the same race is found first.
    fn add(&mut self, set: u32, event: u32) -> u32 {
        let addition = Addition { set, event };
        if let Some(&known) = self.added.get(&addition) {
            return known;
        }
        let size = self.size(set);
        let is_due = size.events > 2 * size.at_last_look + NEWEST;
        let Uncovered { newest, mut older } = if is_due {
            self.uncovered_by_any(set, event)
        } else {
            self.uncovered_of_newest(set, event)
        };
        for other in newest.into_iter().rev().chain([event]) {
            older = self.with_newest(older, other);
        }
        if is_due {
            let left = &mut self.sizes[older as usize - 1];
            left.at_last_look = left.events;
        }
        self.added.insert(addition, older);
        older
    }

    /// Returns a set without those of its newest events that a read covers.
    fn uncovered_of_newest(&self, set: u32, read: u32) -> Uncovered {
        self.uncovered(set, NEWEST, |other| self.covers(read, other))
    }

    /// Returns a set without the events that a read covers, or a newer one of the same actor.
    fn uncovered_by_any(&self, set: u32, read: u32) -> Uncovered {
        let mut last_of = IntegerMap::default();
        last_of.insert(self.events.value(read).actor, read);
        self.uncovered(set, u32::MAX, |other| {
            let last = *last_of
                .entry(self.events.value(other).actor)
                .or_insert(other);
            last != other && self.covers(last, other) || self.covers(read, other)
        })
    }

    /// Returns a set without those of so many newest events that are covered.
    fn uncovered(
        &self,
        set: u32,
        looked_at: u32,
        mut is_covered: impl FnMut(u32) -> bool,
    ) -> Uncovered {
        // Sets share their tails: behind the last event that goes, a set is there already.
        let (mut newest, mut changed, mut older) = (Vec::new(), 0, set);
        let mut rest = set;
        for _ in 0..looked_at {
            if rest == 0 {
                break;
            }
            let (others, other) = self.sets.value(rest);
            if is_covered(other) {
                (changed, older) = (newest.len(), others);
            } else {
                newest.push(other);
            }
            rest = others;
        }
        newest.truncate(changed);
        Uncovered { newest, older }
    }

    /// Returns the set of an event and those of another set.
    fn with_newest(&mut self, others: u32, event: u32) -> u32 {
        let set = self.sets.number((others, event));
        if set as usize > self.sizes.len() {
            let mut size = self.size(others);
            size.events += 1;
            self.sizes.push(size);
        }
        set
    }

    fn size(&self, set: u32) -> Size {
        match set {
            0 => Size::default(),
            _ => self.sizes[set as usize - 1],
        }
    }

    /// Returns whether whoever comes after a read comes after an older one, too, and whatever
    /// conflicts with the older one conflicts with it.
    fn covers(&self, read: u32, older: u32) -> bool {
        let (now, then) = (self.events.value(read), self.events.value(older));
        let is_alike = now.how.is_strong() == then.how.is_strong();
        if !is_alike || then.how.is_write() && !now.how.is_write() {
            return false;
        }
        let is_same_stretch = then.actor == now.actor && then.clock == now.clock;
        if is_same_stretch && then.distribution == now.distribution {
            return true;
        }
        match (then.actor, now.actor) {
            (Actor::Agent { agent, .. }, Actor::Agent { agent: latest, .. }) => {
                agent == latest && then.clock <= now.clock
            }
            (_, Actor::Agent { .. }) => false,
            _ => self.ordered(older, read),
        }
    }

    /// Enters a read or a strong operation into `cells`, and calls `race(index, event)` for each
    /// unordered access that conflicts with it.
    #[inline]
    pub(crate) fn read<'a>(
        &mut self,
        cells: impl Iterator<Item = &'a mut Cell>,
        event: u32,
        mut race: impl FnMut(usize, u32),
    ) {
        let generation = self.generation();
        // Neighbouring bytes mostly have the same history.
        let (mut write, mut write_races) = (0, false);
        let (mut reads, mut with_event) = (0, self.add(0, event));
        let how = self.events.value(event).how;
        self.has_strong |= how.is_strong();
        let mut read_races = None;
        for (index, cell) in cells.enumerate() {
            cell.enter(generation);
            if cell.write != write {
                (write, write_races) = (
                    cell.write,
                    cell.write != 0 && !self.ordered(cell.write, event),
                );
            }
            if write_races {
                race(index, write);
            }
            if cell.reads != reads {
                (reads, with_event) = (cell.reads, self.add(cell.reads, event));
                read_races = if self.has_strong {
                    self.unordered(reads, event, |other| how.conflicts_with_read(other))
                } else {
                    None
                };
            }
            if let Some(other) = read_races {
                race(index, other);
            }
            cell.reads = with_event;
        }
    }

    /// Enters a write into `cells`, and calls `race(index, event)` for each unordered access.
    #[inline]
    pub(crate) fn write<'a>(
        &mut self,
        cells: impl Iterator<Item = &'a mut Cell>,
        event: u32,
        mut race: impl FnMut(usize, u32),
    ) {
        let generation = self.generation();
        let (mut write, mut write_races) = (0, false);
        let (mut reads, mut read_races) = (0, None);
        for (index, cell) in cells.enumerate() {
            cell.enter(generation);
            if cell.write != write {
                (write, write_races) = (
                    cell.write,
                    cell.write != 0 && !self.ordered(cell.write, event),
                );
            }
            if cell.reads != reads {
                (reads, read_races) = (cell.reads, self.unordered(cell.reads, event, |_| true));
            }
            if write_races {
                race(index, write);
            }
            if let Some(other) = read_races {
                race(index, other);
            }
            *cell = Cell {
                generation,
                write: event,
                reads: 0,
            };
        }
    }

    /// Checks an access that must come after the last write of `cells`, but that later ones need no
    /// order with.
    pub(crate) fn follow<'a>(
        &mut self,
        cells: impl Iterator<Item = &'a mut Cell>,
        event: u32,
        mut race: impl FnMut(usize, u32),
    ) {
        let generation = self.generation();
        for (index, cell) in cells.enumerate() {
            if cell.generation != generation || cell.write == 0 {
                continue;
            }
            if !self.ordered(cell.write, event) {
                race(index, cell.write);
            }
        }
    }

    /// Enters an agent's incomplete access into a new generation, without a check.
    pub(crate) fn survive<'a>(&mut self, cells: impl Iterator<Item = &'a mut Cell>, event: u32) {
        if !self.events.value(event).how.is_write() {
            self.read(cells, event, |_, _| ());
            return;
        }
        for cell in cells {
            self.land(cell, event);
        }
    }

    /// Enters a write that was checked when it was issued.
    pub(crate) fn land(&mut self, cell: &mut Cell, event: u32) {
        *cell = Cell {
            generation: self.generation(),
            write: event,
            reads: 0,
        };
    }
}

/// A range of an access's bytes for which it is not ordered with `event`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Race {
    pub(crate) first: usize,
    pub(crate) last: usize,
    pub(crate) event: u32,
}

/// Adds byte `index` of an access to its race with `event`.
pub(crate) fn note(races: &mut Vec<Race>, index: usize, event: u32) {
    for race in &mut *races {
        if race.event == event {
            race.last = index;
            return;
        }
    }
    races.push(Race {
        first: index,
        last: index,
        event,
    });
}

fn lanes_of(mask: u32) -> impl Iterator<Item = u32> {
    let mut rest = mask;
    std::iter::from_fn(move || {
        let lane = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (lane < 32).then_some(lane)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_that_many_threads_read_again_and_again_keeps_twice_their_number() {
        const THREADS: u32 = 64;
        const ROUNDS: u32 = 50;
        let mut order = Order::default();
        order.start(THREADS, 1, FenceRule::default());
        let mut cells = [Cell::default()];
        for round in 0..ROUNDS {
            for thread in 0..THREADS {
                let read = order.event(thread, round, How::Read);
                order.read(cells.iter_mut(), read, |_, _| panic!("nobody writes"));
            }
        }
        let size = order.size(cells[0].reads);
        assert!(size.events <= 2 * THREADS + NEWEST + 1, "{size:?}");

        let write = order.event(0, ROUNDS, How::Write);
        let mut found = Vec::new();
        order.write(cells.iter_mut(), write, |_, event| found.push(event));
        let newest = order.describe(found[0]);
        assert_eq!(newest.actor, Actor::Thread(THREADS - 1));
        assert_eq!(newest.site, ROUNDS - 1, "not an older read that it covers");
    }
}
