//! The threads of one block, or of a cluster's: who is ready, who waits for whom, and the diagnosis
//! of a deadlock.

use crate::cluster::Cluster;
use crate::extent::BlockIndex;
use crate::fault::{Fault, Party, Waiting, Waits};
use crate::judge::clocks::Signal;
use crate::mbarrier::Mbarriers;
use crate::registers::Registers;
use crate::schedule::{Ready, Schedule};
use crate::site::{Places, Site};
use crate::warp::{Collective, Group, Kind, LaneOperands, Mismatch, Warp, party};
use crate::wgmma::Products;

const NAMED_BARRIERS: usize = 16;

/// Consecutive polling rounds without progress before a livelock is reported. A thread that gives
/// up after fewer tries is not disturbed.
const FRUITLESS_ROUNDS: u32 = 1 << 12;

/// Polling rounds that one round of spinning on a variable stands for: it was a long one.
const SPIN_ROUNDS: u32 = 1 << 8;

#[derive(Clone, Copy, Debug)]
enum Thread {
    /// The thread is running, ready, or in a group of its warp.
    Active,
    Barrier {
        site: Site,
    },
    Named {
        barrier: usize,
        site: Site,
    },
    Mbarrier {
        /// The object's place in shared memory.
        offset: usize,
        operation: &'static str,
        site: Site,
    },
    /// The thread has tested a phase that had not ended; it resumes once all others wait.
    PollsMbarrier {
        offset: usize,
        operation: &'static str,
        site: Site,
    },
    Products {
        site: Site,
    },
    Cluster {
        site: Site,
    },
    Registers {
        site: Site,
    },
    /// The thread reads the same variables, at a site of the trace; it resumes once all others
    /// wait.
    PollsMemory {
        site: u32,
    },
    Exited,
}

impl Thread {
    fn waits_for_phase(&self) -> bool {
        matches!(self, Self::Mbarrier { .. } | Self::PollsMbarrier { .. })
    }
}

#[derive(Debug)]
pub(crate) enum Progress {
    Wait,
    Complete(Group),
    GoOn,
}

#[derive(Debug, Default)]
struct NamedBarrier {
    arrived: Vec<(u32, Collective)>,
    signal: Signal,
}

impl NamedBarrier {
    fn threads(&self) -> u64 {
        32 * self.arrived.len() as u64
    }
}

/// An arrival at a named barrier.
pub(crate) struct NamedArrival<'a> {
    pub(crate) signal: &'a mut Signal,
    /// The warps that waited for the barrier, if it is complete; perhaps with the one that arrives.
    pub(crate) released: Option<Vec<u32>>,
}

/// A warp's calls at the cluster's barrier.
#[derive(Clone, Copy, Debug, Default)]
struct ClusterCalls {
    arrivals: u64,
    waits: u64,
    last_arrival: Option<Collective>,
}

#[derive(Debug, Default)]
struct ClusterBarrier {
    phase: u64,
    arrived: u32,
    warps: Vec<ClusterCalls>,
    /// The signal of the arrivals in the current phase.
    arriving: Signal,
    /// The signal of the arrivals in the phase before.
    ended: Signal,
}

#[derive(Debug)]
pub(crate) struct Block {
    index: BlockIndex,
    threads: Vec<Thread>,
    warps: Vec<Warp>,
    ready: Ready,
    cluster: Cluster,
    at_barrier: Vec<u32>,
    named: Vec<NamedBarrier>,
    cluster_barrier: ClusterBarrier,
    mbarriers: Mbarriers,
    products: Products,
    registers: Vec<Registers>,
    exited: u32,
    polling: u32,
    fruitless: u32,
    tries: u32,
    barriers: u64,
}

impl Block {
    /// Starts a block, or a cluster whose first block is `index`, with all threads ready.
    pub(crate) fn new(
        index: BlockIndex,
        linear_index: u64,
        cluster: Cluster,
        schedule: Schedule,
    ) -> Self {
        let thread_count = cluster.all_threads();
        let blocks = cluster.blocks as usize;
        let mut ready = Ready::new(
            schedule,
            linear_index,
            cluster.blocks,
            cluster.threads.div_ceil(32),
        );
        let mut warps = Vec::new();
        for warp in 0..thread_count.div_ceil(32) {
            warps.push(Warp::new((thread_count - warp * 32).min(32)));
            ready.insert(warp, warps[warp as usize].live);
        }
        let mut named = Vec::new();
        named.resize_with(NAMED_BARRIERS * blocks, NamedBarrier::default);
        let mut registers = Vec::new();
        registers.resize_with(blocks, || Registers::new(index, cluster.threads));
        let cluster_barrier = ClusterBarrier {
            warps: vec![ClusterCalls::default(); warps.len()],
            ..ClusterBarrier::default()
        };
        Self {
            index,
            threads: vec![Thread::Active; thread_count as usize],
            warps,
            ready,
            cluster,
            at_barrier: vec![0; blocks],
            named,
            cluster_barrier,
            mbarriers: Mbarriers::default(),
            products: Products::new(index, linear_index, cluster, schedule),
            registers,
            exited: 0,
            polling: 0,
            fruitless: 0,
            tries: 0,
            barriers: 0,
        }
    }

    pub(crate) fn index(&self) -> BlockIndex {
        self.index
    }

    /// Returns how often all threads of a block have come to a `__syncthreads`.
    pub(crate) fn barriers(&self) -> u64 {
        self.barriers
    }

    /// Returns the number of choice points so far ([`crate::Delays`]).
    pub(crate) fn choice_points(&self) -> u32 {
        self.ready.choice_points()
    }

    #[inline]
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        self.ready.take()
    }

    pub(crate) fn next(&mut self) -> Result<Option<u32>, Fault> {
        if let Some(thread) = self.ready.take() {
            return Ok(Some(thread));
        }
        if self.exited as usize == self.threads.len() {
            for registers in &self.registers {
                registers.finish()?;
            }
            return Ok(None);
        }
        if self.polling > 0 && self.fruitless < FRUITLESS_ROUNDS {
            return Ok(self.poll_again());
        }
        Err(self.diagnose())
    }

    fn poll_again(&mut self) -> Option<u32> {
        let mut rounds = 1;
        for thread in 0..self.threads.len() {
            match self.threads[thread] {
                Thread::PollsMbarrier { .. } => {}
                Thread::PollsMemory { .. } => rounds = SPIN_ROUNDS,
                _ => continue,
            }
            self.wake(thread);
        }
        self.polling = 0;
        self.fruitless += rounds;
        self.ready.take()
    }

    fn wake(&mut self, thread: usize) {
        self.threads[thread] = Thread::Active;
        self.ready.insert(thread as u32 / 32, 1 << (thread % 32));
    }

    /// Returns whether the thread has joined a group that is still incomplete: [`Warp::join`].
    #[inline]
    pub(crate) fn join(&mut self, thread: u32, collective: &Collective) -> bool {
        self.warps[thread as usize / 32].join(thread % 32, collective)
    }

    pub(crate) fn arrive(
        &mut self,
        thread: u32,
        collective: &Collective,
    ) -> Result<Progress, Fault> {
        match self.warps[thread as usize / 32].arrive(thread % 32, collective) {
            Ok(Some(group)) => Ok(Progress::Complete(group)),
            Ok(None) => Ok(Progress::Wait),
            Err(mismatch) => Err(self.mismatch(thread, collective, mismatch)),
        }
    }

    pub(crate) fn operands(&self, thread: u32) -> &LaneOperands {
        self.warps[thread as usize / 32].operands()
    }

    pub(crate) fn live(&self, warp: u32) -> u32 {
        self.warps[warp as usize].live
    }

    /// Resumes the lanes of an executed group. `completer` is the running thread if it is among
    /// them.
    pub(crate) fn release(&mut self, warp: u32, group: &Group, completer: Option<u32>) -> Progress {
        match completer {
            Some(thread) if self.ready.completer_goes_on() => {
                self.ready
                    .insert(warp, group.arrived & !(1 << (thread % 32)));
                Progress::GoOn
            }
            _ => {
                self.ready.insert(warp, group.arrived);
                Progress::Wait
            }
        }
    }

    /// Records that a warp arrives as a whole.
    pub(crate) fn arrive_at_named(
        &mut self,
        warp: u32,
        call: &Collective,
    ) -> Result<NamedArrival<'_>, Fault> {
        let [barrier, threads] = call.agree;
        let number = self.named_barrier(warp, barrier);
        self.check_named(warp, call, &self.named[number])?;
        let named = &mut self.named[number];
        named.arrived.push((warp, *call));
        let mut released = None;
        if named.threads() == threads {
            self.fruitless = 0;
            let mut waiters = Vec::new();
            for (arrived_warp, arrival) in std::mem::take(&mut named.arrived) {
                if arrival.kind() == Kind::NamedSync {
                    waiters.push(arrived_warp);
                }
            }
            released = Some(waiters);
        }
        Ok(NamedArrival {
            signal: &mut named.signal,
            released,
        })
    }

    /// Refuses a warp's arrival that contradicts earlier ones, or can never be complete.
    fn check_named(&self, warp: u32, call: &Collective, named: &NamedBarrier) -> Result<(), Fault> {
        let [barrier, threads] = call.agree;
        for (first_warp, first) in &named.arrived {
            if first.agree[1] == threads {
                continue;
            }
            let rule = format!(
                "barrier {barrier} can't wait for {} threads and for {threads} at once: all that \
                 take part name the same number",
                first.agree[1]
            );
            let first_party = party(first_warp * 32, first);
            return Err(self.collective_mismatch(first_party, Some(party(warp * 32, call)), rule));
        }
        for (first_warp, first) in &named.arrived {
            // Who then waits has given the first signal itself.
            let waits_for_itself =
                first.kind() == Kind::NamedArrive && call.kind() == Kind::NamedSync;
            if *first_warp != warp || waits_for_itself {
                continue;
            }
            let rule = format!(
                "a second arrival of warp {warp} at barrier {barrier} before its first has been \
                 answered ({} of {threads} threads have arrived) counts in place of another \
                 warp's: it must wait in between for those that it arrives for",
                named.threads()
            );
            let first_party = party(first_warp * 32, first);
            return Err(self.collective_mismatch(first_party, Some(party(warp * 32, call)), rule));
        }
        if threads > u64::from(self.cluster.threads) {
            let rule = format!(
                "it waits for {threads} threads, but the block has only {}",
                self.cluster.threads
            );
            return Err(self.collective_mismatch(party(warp * 32, call), None, rule));
        }
        Ok(())
    }

    fn collective_mismatch(
        &self,
        first: Box<Party>,
        second: Option<Box<Party>>,
        rule: String,
    ) -> Fault {
        Fault::CollectiveMismatch {
            block: self.index,
            first,
            second,
            rule,
        }
    }

    fn named_barrier(&self, warp: u32, barrier: u64) -> usize {
        self.cluster.rank(warp * 32) as usize * NAMED_BARRIERS + barrier as usize % NAMED_BARRIERS
    }

    /// Returns the signal to which the warp publishes what its lanes did so far.
    pub(crate) fn arrive_at_cluster(
        &mut self,
        warp: u32,
        call: &Collective,
    ) -> Result<&mut Signal, Fault> {
        let earlier = &self.cluster_barrier.warps[warp as usize];
        if let Some(first) = &earlier.last_arrival
            && earlier.arrivals > earlier.waits
        {
            let rule = "a warp arrives once in each phase of the cluster's barrier: \
                        cluster_wait() is missing between";
            let second = party(warp * 32, call);
            return Err(self.collective_mismatch(
                party(warp * 32, first),
                Some(second),
                rule.to_owned(),
            ));
        }
        let barrier = &mut self.cluster_barrier;
        let calls = &mut barrier.warps[warp as usize];
        calls.arrivals += 1;
        calls.last_arrival = Some(*call);
        barrier.arrived += 1;
        Ok(&mut barrier.arriving)
    }

    /// Returns whether the phase in which the warp has arrived has ended. If not, the warp waits.
    pub(crate) fn wait_for_cluster(&mut self, warp: u32, call: &Collective) -> Result<bool, Fault> {
        let barrier = &mut self.cluster_barrier;
        let calls = &mut barrier.warps[warp as usize];
        if calls.arrivals == calls.waits {
            let reason = "the warp has not arrived: cluster_arrive() is missing before it".into();
            return Err(Fault::InvalidCollective {
                block: self.index,
                party: party(warp * 32, call),
                reason,
            });
        }
        let is_over = barrier.phase >= calls.arrivals;
        if is_over {
            calls.waits += 1;
        } else {
            self.hold(warp, Thread::Cluster { site: call.site });
        }
        Ok(is_over)
    }

    /// Ends the phase of the cluster's barrier if it is complete. Returns the warps that waited.
    pub(crate) fn pass_cluster(&mut self) -> Vec<u32> {
        let barrier = &mut self.cluster_barrier;
        if barrier.arrived == 0 {
            return Vec::new();
        }
        for (warp, calls) in self.warps.iter().zip(&barrier.warps) {
            if warp.live != 0 && calls.arrivals == barrier.phase {
                return Vec::new();
            }
        }
        barrier.phase += 1;
        barrier.arrived = 0;
        barrier.ended = std::mem::take(&mut barrier.arriving);
        let mut released = Vec::new();
        for (warp, calls) in (0..).zip(&mut barrier.warps) {
            if let Thread::Cluster { .. } = self.threads[warp as usize * 32] {
                calls.waits += 1;
                released.push(warp);
            }
        }
        released
    }

    /// Publishes the thread's mbarriers to TMA, and through the cluster's barrier to other blocks.
    pub(crate) fn fence_mbarriers(&mut self, thread: u32) {
        let calls = &self.cluster_barrier.warps[thread as usize / 32];
        self.mbarriers.fence(thread, calls.arrivals);
    }

    /// Returns whether the cluster's barrier has told `thread` of the mbarrier at `offset`.
    pub(crate) fn knows_mbarrier(&mut self, thread: u32, offset: usize) -> bool {
        let waits = self.cluster_barrier.warps[thread as usize / 32].waits;
        self.mbarriers
            .get(offset)
            .is_ok_and(|object| object.is_known_after(waits))
    }

    /// Returns the signal of the arrivals in the cluster's last complete phase.
    pub(crate) fn cluster_signal(&self) -> &Signal {
        &self.cluster_barrier.ended
    }

    /// Lets a warp that has arrived go on, or wait. `released` are the warps that resume, if the
    /// barrier is complete.
    pub(crate) fn pass_named(
        &mut self,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
        released: Option<Vec<u32>>,
    ) -> Progress {
        let is_complete = released.is_some();
        for other in released.into_iter().flatten() {
            if other != warp {
                self.wake_warp(other);
            }
        }
        let call = &group.collective;
        if is_complete || call.kind() != Kind::NamedSync {
            return self.release(warp, group, completer);
        }
        let barrier = self.named_barrier(warp, call.agree[0]);
        let site = call.site;
        self.hold(warp, Thread::Named { barrier, site })
    }

    pub(crate) fn mbarriers(&mut self) -> &mut Mbarriers {
        &mut self.mbarriers
    }

    /// Notes that a thread has arrived, or that TMA adds bytes. If the phase ends, or may
    /// (`is_end`), its waiters look again.
    pub(crate) fn mbarrier_arrived(&mut self, offset: usize, is_end: bool) {
        self.fruitless = 0;
        if !is_end {
            return;
        }
        for thread in 0..self.threads.len() {
            let Thread::Mbarrier {
                offset: awaited, ..
            } = self.threads[thread]
            else {
                continue;
            };
            if awaited == offset {
                self.wake(thread);
            }
        }
    }

    /// Returns whether a try that could succeed fails, as PTX allows: the first, and every fourth.
    pub(crate) fn fails_spuriously(&mut self) -> bool {
        self.tries += 1;
        self.tries % 4 == 1
    }

    pub(crate) fn wait_at_mbarrier(
        &mut self,
        thread: u32,
        offset: usize,
        operation: &'static str,
        site: Site,
    ) {
        self.threads[thread as usize] = Thread::Mbarrier {
            offset,
            operation,
            site,
        };
    }

    pub(crate) fn poll_mbarrier(
        &mut self,
        thread: u32,
        offset: usize,
        operation: &'static str,
        site: Site,
    ) {
        self.threads[thread as usize] = Thread::PollsMbarrier {
            offset,
            operation,
            site,
        };
        self.polling += 1;
    }

    pub(crate) fn poll_memory(&mut self, thread: u32, site: u32) {
        self.threads[thread as usize] = Thread::PollsMemory { site };
        self.polling += 1;
    }

    pub(crate) fn products(&mut self) -> &mut Products {
        &mut self.products
    }

    pub(crate) fn products_of(&mut self, warp: u32) -> (&mut Products, &LaneOperands) {
        (&mut self.products, self.warps[warp as usize].operands())
    }

    /// Makes a warp wait until the others of its warpgroup have issued what the wait covers.
    pub(crate) fn wait_for_products(&mut self, warp: u32, site: Site) -> Progress {
        self.hold(warp, Thread::Products { site })
    }

    /// Changes a warp's registers, which may wake warps that wait for some.
    pub(crate) fn change_registers(
        &mut self,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        let call = &group.collective;
        let warps = self.cluster.threads / 32;
        let rank = self.cluster.rank(warp * 32);
        let pool = &mut self.registers[rank as usize];
        if !pool.change(warp - rank * warps, warps, call)? {
            return Ok(self.hold(warp, Thread::Registers { site: call.site }));
        }
        for served in pool.serve_all() {
            self.wake_warp(rank * warps + served);
        }
        Ok(self.release(warp, group, completer))
    }

    fn hold(&mut self, warp: u32, state: Thread) -> Progress {
        self.threads[warp as usize * 32..][..32].fill(state);
        Progress::Wait
    }

    pub(crate) fn wake_warp(&mut self, warp: u32) {
        self.fruitless = 0;
        for thread in warp * 32..warp * 32 + 32 {
            self.wake(thread as usize);
        }
    }

    pub(crate) fn arrive_at_barrier(&mut self, thread: u32, site: Site) -> Result<Progress, Fault> {
        self.threads[thread as usize] = Thread::Barrier { site };
        let rank = self.cluster.rank(thread);
        let at_barrier = &mut self.at_barrier[rank as usize];
        *at_barrier += 1;
        if *at_barrier != self.cluster.threads {
            return Ok(Progress::Wait);
        }
        *at_barrier = 0;
        let members = self.cluster.members(rank);
        let states = &mut self.threads[members.start as usize..members.end as usize];
        for state in states.iter() {
            if !matches!(state, Thread::Barrier { site: other } if other.same(site)) {
                return Err(Fault::DivergentBarrier {
                    block: self.index,
                    waits: self.waits(),
                });
            }
        }
        states.fill(Thread::Active);
        self.fruitless = 0;
        self.barriers += 1;
        let goes_on = self.ready.completer_goes_on();
        for warp in members.start / 32..members.end.div_ceil(32) {
            let mut lanes = self.warps[warp as usize].live;
            if goes_on && warp == thread / 32 {
                lanes &= !(1 << (thread % 32));
            }
            self.ready.insert(warp, lanes);
        }
        if goes_on {
            Ok(Progress::GoOn)
        } else {
            Ok(Progress::Wait)
        }
    }

    /// Ends a thread that returns from the kernel. [`Block::completed`] then returns the groups
    /// that this completes.
    pub(crate) fn exit(&mut self, thread: u32) -> Result<(), Fault> {
        self.products.exit(thread)?;
        self.threads[thread as usize] = Thread::Exited;
        self.exited += 1;
        self.fruitless = 0;
        let (warp, lane) = (thread as usize / 32, thread % 32);
        let barrier = &mut self.cluster_barrier;
        let is_last_lane = self.warps[warp].live == 1 << lane;
        if is_last_lane && barrier.warps[warp].arrivals > barrier.phase {
            barrier.arrived -= 1;
        }
        let Err(group) = self.warps[warp].exit(lane) else {
            return Ok(());
        };
        let rule = format!("it needs all lanes of its mask, but thread {thread} has exited");
        Err(self.collective_mismatch(first_party(thread / 32, &group), None, rule))
    }

    pub(crate) fn completed(&mut self, warp: u32) -> Option<Group> {
        self.warps[warp as usize].completed()
    }

    pub(crate) fn invalid(&self, warp: u32, lane: u32, group: &Group, reason: String) -> Fault {
        Fault::InvalidCollective {
            block: self.index,
            party: party(warp * 32 + lane, &group.collective),
            reason,
        }
    }

    fn mismatch(&self, thread: u32, collective: &Collective, mismatch: Mismatch) -> Fault {
        let caller = party(thread, collective);
        let rule = self.mismatch_rule(thread, collective, &mismatch);
        let first_lane = match mismatch {
            Mismatch::NotInMask | Mismatch::Exited { .. } => None,
            Mismatch::Operation { first_lane }
            | Mismatch::Arguments { first_lane }
            | Mismatch::Place { first_lane } => Some(first_lane),
        };
        let groups = self.warps[thread as usize / 32].groups();
        let first_group = groups
            .iter()
            .find(|group| Some(group.first_lane) == first_lane);
        match first_group {
            Some(group) => {
                let first = first_party(thread / 32, group);
                self.collective_mismatch(first, Some(caller), rule)
            }
            None => self.collective_mismatch(caller, None, rule),
        }
    }

    /// Returns the rule that `thread` breaks by its call.
    fn mismatch_rule(&self, thread: u32, collective: &Collective, mismatch: &Mismatch) -> String {
        match mismatch {
            Mismatch::NotInMask => format!(
                "its mask {:#010x} does not name it (lane {})",
                collective.mask,
                thread % 32
            ),
            Mismatch::Exited { lane } => {
                let missing = thread / 32 * 32 + lane;
                let reason = if (missing as usize) < self.threads.len() {
                    format!("thread {missing} has exited")
                } else {
                    format!("the block has only {} threads", self.cluster.threads)
                };
                format!("it needs all lanes of its mask, but {reason}")
            }
            Mismatch::Operation { .. } => format!(
                "all lanes of mask {:#010x} must call the same operation",
                collective.mask
            ),
            Mismatch::Arguments { .. } => "its arguments (pointer, stride, layout, width, \
                                           barrier, number of threads) must be the same in all \
                                           lanes"
                .to_owned(),
            Mismatch::Place { .. } => {
                "the lanes of a warp must reach this operation at the same place".to_owned()
            }
        }
    }

    /// Returns the fault of a block in which no thread can go on.
    fn diagnose(&self) -> Fault {
        let (block, waits) = (self.index, self.waits());
        let only_barriers = self
            .threads
            .iter()
            .all(|state| matches!(state, Thread::Barrier { .. } | Thread::Exited));
        if only_barriers {
            return Fault::DivergentBarrier { block, waits };
        }
        if let Some(rule) = self.wait_rule() {
            return Fault::WaitNeverObserved {
                block,
                waits,
                rule: rule.to_owned(),
            };
        }
        self.overlap().unwrap_or(Fault::Deadlock { block, waits })
    }

    /// Returns the rule that the threads' waits depend on, if they wait for more than each other.
    fn wait_rule(&self) -> Option<&'static str> {
        let is_any = |predicate: fn(&Thread) -> bool| self.threads.iter().any(predicate);
        if is_any(Thread::waits_for_phase) {
            return Some(if self.mbarriers.count_bytes() {
                "Each phase of an mbarrier needs exactly as many arrivals as mbarrier_init names, \
                 exactly the bytes that mbarrier_arrive_expect_tx expects (a box counts whole, \
                 whatever lies outside of the tensor), and a wait the parity of the phase whose \
                 end it waits for (0 for the first)"
            } else {
                "Each phase of an mbarrier needs exactly as many arrivals as mbarrier_init names, \
                 and a wait the parity of the phase whose end it waits for (0 for the first)"
            });
        }
        if is_any(|state| matches!(state, Thread::Products { .. })) {
            return Some(
                "All four warps of a warpgroup issue the same products, in the same order",
            );
        }
        if is_any(|state| matches!(state, Thread::Registers { .. })) {
            return Some(
                "Registers come to the pool by give_registers_back alone, and all warpgroups \
                 together can't have more than the block started with",
            );
        }
        if is_any(|state| matches!(state, Thread::PollsMemory { .. })) {
            return Some(
                "No thread is left that would change what is read there. And a flag in memory \
                 orders nothing: signal by an mbarrier or a named barrier",
            );
        }
        None
    }

    /// Returns the fault of two groups of a warp that wait for each other's lanes because their
    /// masks differ.
    fn overlap(&self) -> Option<Fault> {
        for (index, warp) in (0..).zip(&self.warps) {
            for group in warp.groups() {
                let missing = group.collective.mask & warp.live & !group.arrived;
                let Some(other) = (0..32)
                    .filter(|lane| missing >> lane & 1 == 1)
                    .find_map(|lane| warp.group_of(lane))
                else {
                    continue;
                };
                let rule = format!(
                    "masks {:#010x} and {:#010x} overlap and wait for each other's lanes",
                    group.collective.mask, other.collective.mask
                );
                let second = first_party(index, other);
                return Some(self.collective_mismatch(
                    first_party(index, group),
                    Some(second),
                    rule,
                ));
            }
        }
        None
    }

    fn describe_named(&self, barrier: usize) -> String {
        let known = &self.named[barrier];
        let threads = known.arrived.first().map_or(0, |(_, call)| call.agree[1]);
        format!(
            "named_barrier_sync, barrier {}, {} of {threads} threads have arrived",
            barrier % NAMED_BARRIERS,
            known.threads()
        )
    }

    fn waits(&self) -> Waits {
        let mut waits = Waits {
            threads: self.cluster.threads,
            ..Waits::default()
        };
        for (thread, state) in (0..).zip(&self.threads) {
            if let Thread::Exited = state {
                waits.exited.push(thread);
            } else if let Some(waiting) = self.describe_wait(thread, state) {
                waits.add(waiting);
            }
        }
        waits
    }

    /// Describes what a thread waits for; none if it does not wait.
    fn describe_wait(&self, thread: u32, state: &Thread) -> Option<Waiting> {
        let warp = thread / 32;
        let (operation, place) = match state {
            Thread::Exited => return None,
            Thread::Active => {
                let group = self.warps[warp as usize].group_of(thread % 32)?;
                let call = &group.collective;
                (call.name.text(), call.site.place())
            }
            Thread::Barrier { site } => ("__syncthreads".to_owned(), site.place()),
            Thread::Named { barrier, site } => (self.describe_named(*barrier), site.place()),
            Thread::Mbarrier {
                offset,
                operation,
                site,
            } => {
                let object = self.mbarriers.describe(*offset);
                (format!("{operation}, {object}"), site.place())
            }
            Thread::PollsMbarrier {
                offset,
                operation,
                site,
            } => {
                let object = self.mbarriers.describe(*offset);
                let polling = format!("{operation}, again and again, {object}");
                (polling, site.place())
            }
            Thread::Products { site } => (self.products.describe(warp), site.place()),
            Thread::Cluster { site } => ("cluster_wait".to_owned(), site.place()),
            Thread::Registers { site } => {
                let rank = self.cluster.rank(thread);
                let first_warp = rank * (self.cluster.threads / 32);
                let pool = &self.registers[rank as usize];
                (pool.describe(warp - first_warp), site.place())
            }
            Thread::PollsMemory { site } => {
                let place = Places::default().get(*site).pop().expect("never empty");
                ("reads the same variables again and again".to_owned(), place)
            }
        };
        Some(Waiting {
            operation,
            place,
            threads: vec![thread],
        })
    }
}

/// Returns the first lane of a warp's group and its call.
fn first_party(warp: u32, group: &Group) -> Box<Party> {
    party(warp * 32 + group.first_lane, &group.collective)
}

#[cfg(test)]
mod tests;
