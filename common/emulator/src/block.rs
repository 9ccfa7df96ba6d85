//! The threads of one block, or of a cluster's: who is ready, who waits for whom, and the diagnosis of a deadlock.

use crate::cluster::Cluster;
use crate::fault::{Fault, Place, Waiting, Waits};
use crate::judge::clocks::Signal;
use crate::mbarrier::Mbarriers;
use crate::registers::Registers;
use crate::schedule::{Ready, Schedule};
use crate::site::{Places, Site};
use crate::warp::{Collective, Group, Kind, Mismatch, Warp, party};
use crate::wgmma::Products;

const NAMED_BARRIERS: usize = 16;

/// Consecutive polling rounds without progress before a livelock is reported. A thread that gives up after fewer tries is
/// not disturbed.
const FRUITLESS_ROUNDS: u32 = 1 << 12;

/// Polling rounds that one round of spinning on a variable stands for: it was a long one.
const SPIN_ROUNDS: u32 = 1 << 8;

#[derive(Clone, Copy, Debug)]
enum Thread {
    /// Running, ready, or in a group of its warp.
    Active,
    Barrier {
        site: Site,
    },
    Named {
        barrier: usize,
        site: Site,
    },
    /// `offset`: in shared memory.
    Mbarrier {
        offset: usize,
        operation: &'static str,
        site: Site,
    },
    /// Has tested a phase that had not ended; resumes once all others wait.
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
    /// At a site of the trace; resumes once all others wait.
    PollsMemory {
        site: u32,
    },
    Exited,
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

#[derive(Debug, Default)]
struct ClusterBarrier {
    phase: u64,
    arrived: u32,
    /// Per warp: arrivals, waits, and the last call.
    warps: Vec<(u64, u64, Option<Collective>)>,
    /// What the arrivals of the current phase publish, and of the one before.
    arriving: Signal,
    ended: Signal,
}

#[derive(Debug)]
pub(crate) struct Block {
    index: [u32; 3],
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
    /// All threads start ready; `index` is the first block's.
    pub(crate) fn new(
        index: [u32; 3],
        linear_index: u64,
        cluster: Cluster,
        schedule: Schedule,
    ) -> Self {
        let threads = cluster.all_threads();
        let mut ready = Ready::new(
            schedule,
            linear_index,
            cluster.blocks,
            cluster.threads.div_ceil(32),
        );
        let mut warps = Vec::new();
        for warp in 0..threads.div_ceil(32) {
            warps.push(Warp::new((threads - warp * 32).min(32)));
            ready.insert(warp, warps[warp as usize].live);
        }
        let products = Products::new(index, linear_index, cluster, schedule);
        let registers = (0..cluster.blocks)
            .map(|_| Registers::new(index, cluster.threads))
            .collect();
        let cluster_barrier = ClusterBarrier {
            warps: vec![(0, 0, None); warps.len()],
            ..ClusterBarrier::default()
        };
        let threads = vec![Thread::Active; threads as usize];
        let (mbarriers, barriers) = Default::default();
        let named = (0..NAMED_BARRIERS * cluster.blocks as usize)
            .map(|_| NamedBarrier::default())
            .collect();
        Self {
            index,
            threads,
            warps,
            ready,
            cluster,
            at_barrier: vec![0; cluster.blocks as usize],
            named,
            cluster_barrier,
            mbarriers,
            products,
            registers,
            exited: 0,
            polling: 0,
            fruitless: 0,
            tries: 0,
            barriers,
        }
    }

    pub(crate) fn index(&self) -> [u32; 3] {
        self.index
    }

    /// `__syncthreads` that all threads of a block have come to.
    pub(crate) fn barriers(&self) -> u64 {
        self.barriers
    }

    #[inline]
    pub(crate) fn take_ready(&mut self) -> Option<u32> {
        self.ready.take()
    }

    pub(crate) fn next(&mut self) -> Result<Option<u32>, Fault> {
        match self.ready.take() {
            Some(thread) => Ok(Some(thread)),
            None if self.exited as usize == self.threads.len() => self
                .registers
                .iter()
                .try_for_each(Registers::finish)
                .map(|()| None),
            None if self.polling > 0 && self.fruitless < FRUITLESS_ROUNDS => Ok(self.poll_again()),
            None => Err(self.diagnose()),
        }
    }

    fn poll_again(&mut self) -> Option<u32> {
        let mut rounds = 1;
        for thread in 0..self.threads.len() {
            if let Thread::PollsMbarrier { .. } | Thread::PollsMemory { .. } = self.threads[thread]
            {
                if let Thread::PollsMemory { .. } = self.threads[thread] {
                    rounds = SPIN_ROUNDS;
                }
                self.wake(thread);
            }
        }
        self.polling = 0;
        self.fruitless += rounds;
        self.ready.take()
    }

    fn wake(&mut self, thread: usize) {
        self.threads[thread] = Thread::Active;
        self.ready.insert(thread as u32 / 32, 1 << (thread % 32));
    }

    /// Whether the thread has joined a group that is still incomplete: [`Warp::join`].
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

    pub(crate) fn operands(&self, thread: u32) -> &[*mut std::ffi::c_void; 32] {
        self.warps[thread as usize / 32].operands()
    }

    pub(crate) fn live(&self, warp: u32) -> u32 {
        self.warps[warp as usize].live
    }

    /// Resumes the lanes of an executed group. `completer` is the running thread if it was one of them.
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

    /// A warp arrives as a whole. Returns the barrier's signal and, if the barrier is complete, the warps that waited for
    /// it, perhaps this one included.
    pub(crate) fn arrive_at_named(
        &mut self,
        warp: u32,
        collective: &Collective,
    ) -> Result<(&mut Signal, Option<Vec<u32>>), Fault> {
        let [barrier, threads] = collective.agree;
        let number = self.named_barrier(warp, barrier);
        let (index, known) = (self.index, &mut self.named[number]);
        let mismatch = |first: &(u32, Collective), rule: String| Fault::CollectiveMismatch {
            block: index,
            first: party(first.0 * 32, &first.1),
            second: Some(party(warp * 32, collective)),
            rule,
        };
        if let Some(first) = known
            .arrived
            .iter()
            .find(|(_, first)| first.agree[1] != threads)
        {
            let rule = format!(
                "barrier {barrier} can't wait for {} threads and for {threads} at once: all that take part name the same \
                 number",
                first.1.agree[1]
            );
            return Err(mismatch(first, rule));
        }
        if let Some(first) = known.arrived.iter().find(|(other, _)| *other == warp) {
            let rule = format!(
                "a second arrival of warp {warp} at barrier {barrier} before its first has been answered ({} of {threads} \
                 threads have arrived) counts in place of another warp's: it must wait in between for those that it \
                 arrives for",
                known.threads()
            );
            return Err(mismatch(first, rule));
        }
        if threads > u64::from(self.cluster.threads) {
            let rule = format!(
                "it waits for {threads} threads, but the block has only {}",
                self.cluster.threads
            );
            let first = party(warp * 32, collective);
            return Err(Fault::CollectiveMismatch {
                block: index,
                first,
                second: None,
                rule,
            });
        }
        known.arrived.push((warp, *collective));
        let waiting = (known.threads() == threads).then(|| {
            let arrived = std::mem::take(&mut known.arrived).into_iter();
            arrived
                .filter(|(_, call)| call.kind() == Kind::NamedSync)
                .map(|(warp, _)| warp)
                .collect()
        });
        if waiting.is_some() {
            self.fruitless = 0;
        }
        Ok((&mut known.signal, waiting))
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
        let known = &mut self.cluster_barrier;
        let (arrivals, waits, last) = &mut known.warps[warp as usize];
        if let Some(first) = last.filter(|_| arrivals > waits) {
            let rule =
                "a warp arrives once in each phase of the cluster's barrier: cluster_wait() is missing between".into();
            let (first, second) = (party(warp * 32, &first), Some(party(warp * 32, call)));
            return Err(Fault::CollectiveMismatch {
                block: self.index,
                first,
                second,
                rule,
            });
        }
        *arrivals += 1;
        *last = Some(*call);
        known.arrived += 1;
        Ok(&mut known.arriving)
    }

    /// Whether the phase in which the warp has arrived has ended; if not, it waits.
    pub(crate) fn wait_for_cluster(&mut self, warp: u32, call: &Collective) -> Result<bool, Fault> {
        let known = &mut self.cluster_barrier;
        let (arrivals, waits, _) = &mut known.warps[warp as usize];
        if arrivals == waits {
            let reason = "the warp has not arrived: cluster_arrive() is missing before it".into();
            return Err(Fault::InvalidCollective {
                block: self.index,
                party: party(warp * 32, call),
                reason,
            });
        }
        let is_over = known.phase >= *arrivals;
        if is_over {
            *waits += 1;
        } else {
            self.hold(warp, Thread::Cluster { site: call.site });
        }
        Ok(is_over)
    }

    /// Ends the phase of the cluster's barrier if it is complete. Returns the warps that waited.
    pub(crate) fn pass_cluster(&mut self) -> Vec<u32> {
        let known = &mut self.cluster_barrier;
        let is_missing = |(warp, (arrivals, ..)): (&Warp, &(u64, u64, _))| {
            warp.live != 0 && *arrivals == known.phase
        };
        if known.arrived == 0 || self.warps.iter().zip(&known.warps).any(is_missing) {
            return Vec::new();
        }
        known.phase += 1;
        known.arrived = 0;
        known.ended = std::mem::take(&mut known.arriving);
        let is_waiting =
            |warp: &u32| matches!(self.threads[*warp as usize * 32], Thread::Cluster { .. });
        let waiting: Vec<u32> = (0..self.warps.len() as u32).filter(is_waiting).collect();
        waiting
            .iter()
            .for_each(|&warp| known.warps[warp as usize].1 += 1);
        waiting
    }

    /// To TMA, and through the cluster's barrier to other blocks.
    pub(crate) fn fence_mbarriers(&mut self, thread: u32) {
        let (arrivals, ..) = self.cluster_barrier.warps[thread as usize / 32];
        self.mbarriers.fence(thread, arrivals);
    }

    /// Whether the cluster's barrier has told `thread` of the mbarrier at `offset`.
    pub(crate) fn knows_mbarrier(&mut self, thread: u32, offset: usize) -> bool {
        let (_, waits, _) = self.cluster_barrier.warps[thread as usize / 32];
        self.mbarriers
            .get(offset)
            .is_ok_and(|object| object.is_known_after(waits))
    }

    /// What arrivals published in the last completed phase of the cluster's barrier.
    pub(crate) fn cluster_signal(&self) -> &Signal {
        &self.cluster_barrier.ended
    }

    /// `complete`: the warps that resume, if the barrier is complete.
    pub(crate) fn pass_named(
        &mut self,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
        complete: Option<Vec<u32>>,
    ) -> Progress {
        let (waits, is_complete) = (
            group.collective.kind() == Kind::NamedSync,
            complete.is_some(),
        );
        for other in complete
            .into_iter()
            .flatten()
            .filter(|&other| other != warp)
        {
            (other * 32..other * 32 + 32).for_each(|thread| self.wake(thread as usize));
        }
        if !waits || is_complete {
            return self.release(warp, group, completer);
        }
        let (barrier, site) = (
            self.named_barrier(warp, group.collective.agree[0]),
            group.collective.site,
        );
        self.threads[warp as usize * 32..][..32].fill(Thread::Named { barrier, site });
        Progress::Wait
    }

    pub(crate) fn mbarriers(&mut self) -> &mut Mbarriers {
        &mut self.mbarriers
    }

    /// A thread has arrived, or TMA adds bytes. `is_end`: the phase ends, or may, so its waiters look again.
    pub(crate) fn mbarrier_arrived(&mut self, offset: usize, is_end: bool) {
        self.fruitless = 0;
        for thread in 0..if is_end { self.threads.len() } else { 0 } {
            if matches!(self.threads[thread], Thread::Mbarrier { offset: other, .. } if other == offset)
            {
                self.wake(thread);
            }
        }
    }

    /// Whether a try that could succeed fails, as PTX allows: the first, and every fourth.
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

    pub(crate) fn products_of(
        &mut self,
        warp: u32,
    ) -> (&mut Products, &[*mut std::ffi::c_void; 32]) {
        (&mut self.products, self.warps[warp as usize].operands())
    }

    /// Waits until other warps of the warpgroup have issued what the wait covers.
    pub(crate) fn wait_for_products(&mut self, warp: u32, site: Site) -> Progress {
        self.hold(warp, Thread::Products { site })
    }

    /// May wake warps that wait for registers.
    pub(crate) fn change_registers(
        &mut self,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        let (warps, rank) = (self.cluster.threads / 32, self.cluster.rank(warp * 32));
        let registers = &mut self.registers[rank as usize];
        if !registers.change(warp - rank * warps, warps, &group.collective)? {
            return Ok(self.hold(
                warp,
                Thread::Registers {
                    site: group.collective.site,
                },
            ));
        }
        let served = registers.serve_all();
        served
            .into_iter()
            .for_each(|warp| self.wake_warp(rank * warps + warp));
        Ok(self.release(warp, group, completer))
    }

    fn hold(&mut self, warp: u32, state: Thread) -> Progress {
        self.threads[warp as usize * 32..][..32].fill(state);
        Progress::Wait
    }

    pub(crate) fn wake_warp(&mut self, warp: u32) {
        self.fruitless = 0;
        (warp * 32..warp * 32 + 32).for_each(|thread| self.wake(thread as usize));
    }

    pub(crate) fn arrive_at_barrier(&mut self, thread: u32, site: Site) -> Result<Progress, Fault> {
        self.threads[thread as usize] = Thread::Barrier { site };
        let rank = self.cluster.rank(thread);
        let members = self.cluster.members(rank);
        let (at_barrier, threads) = (
            &mut self.at_barrier[rank as usize],
            members.start as usize..members.end as usize,
        );
        *at_barrier += 1;
        if *at_barrier != self.cluster.threads {
            return Ok(Progress::Wait);
        }
        let same =
            |thread: &Thread| matches!(thread, Thread::Barrier { site: other } if other.same(site));
        if !self.threads[threads.clone()].iter().all(same) {
            return Err(Fault::DivergentBarrier {
                block: self.index,
                waits: self.waits(),
            });
        }
        self.at_barrier[rank as usize] = 0;
        self.fruitless = 0;
        self.barriers += 1;
        self.threads[threads].fill(Thread::Active);
        let goes_on = self.ready.completer_goes_on();
        for index in members.start / 32..members.end.div_ceil(32) {
            let warp = &self.warps[index as usize];
            let runs_on = goes_on && thread / 32 == index;
            self.ready.insert(
                index,
                if runs_on {
                    warp.live & !(1 << (thread % 32))
                } else {
                    warp.live
                },
            );
        }
        Ok(if goes_on {
            Progress::GoOn
        } else {
            Progress::Wait
        })
    }

    /// A thread returns from the kernel; [`Block::completed`] then gives the groups that this completes.
    pub(crate) fn exit(&mut self, thread: u32) -> Result<(), Fault> {
        self.products.exit(thread)?;
        self.threads[thread as usize] = Thread::Exited;
        self.exited += 1;
        self.fruitless = 0;
        let (warp, known) = (thread as usize / 32, &mut self.cluster_barrier);
        if self.warps[warp].live == 1 << (thread % 32) && known.warps[warp].0 > known.phase {
            known.arrived -= 1; // the last lane leaves
        }
        self.warps[warp].exit(thread % 32).map_err(|(group, _)| {
            let first = party(thread / 32 * 32 + group.first_lane, &group.collective);
            let rule = format!("it needs all lanes of its mask, but thread {thread} has exited");
            Fault::CollectiveMismatch {
                block: self.index,
                first,
                second: None,
                rule,
            }
        })
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
        let warp = &self.warps[thread as usize / 32];
        let second = party(thread, collective);
        let with_first = |first_lane: u32, rule: &str| {
            let group = warp
                .groups()
                .iter()
                .find(|group| group.first_lane == first_lane);
            let first = group.map(|group| party(thread / 32 * 32 + first_lane, &group.collective));
            match first {
                Some(first) => (first, Some(second.clone()), rule.to_owned()),
                None => (second.clone(), None, rule.to_owned()),
            }
        };
        let (first, second, rule) = match mismatch {
            Mismatch::NotInMask => {
                let rule = format!(
                    "its mask {:#010x} does not name it (lane {})",
                    collective.mask,
                    thread % 32
                );
                (second, None, rule)
            }
            Mismatch::Exited { lane } => {
                let gone = thread / 32 * 32 + lane;
                let gone = if (gone as usize) < self.threads.len() {
                    format!("thread {gone} has exited")
                } else {
                    format!("the block has only {} threads", self.cluster.threads)
                };
                (
                    second,
                    None,
                    format!("it needs all lanes of its mask, but {gone}"),
                )
            }
            Mismatch::Operation { first_lane } => with_first(
                first_lane,
                &format!(
                    "all lanes of mask {:#010x} must call the same operation",
                    collective.mask
                ),
            ),
            Mismatch::Arguments { first_lane } => {
                let arguments = "pointer, stride, layout, width, barrier, number of threads";
                with_first(
                    first_lane,
                    &format!("its arguments ({arguments}) must be the same in all lanes"),
                )
            }
            Mismatch::Place { first_lane } => with_first(
                first_lane,
                "the lanes of a warp must reach this operation at the same place",
            ),
        };
        Fault::CollectiveMismatch {
            block: self.index,
            first,
            second,
            rule,
        }
    }

    fn diagnose(&self) -> Fault {
        let only_barriers = self
            .threads
            .iter()
            .all(|t| matches!(t, Thread::Barrier { .. } | Thread::Exited));
        if only_barriers {
            return Fault::DivergentBarrier {
                block: self.index,
                waits: self.waits(),
            };
        }
        let (block, waits) = (self.index, self.waits());
        let is_phase = |thread: &Thread| {
            matches!(
                thread,
                Thread::Mbarrier { .. } | Thread::PollsMbarrier { .. }
            )
        };
        let rule = if self.threads.iter().any(is_phase) && self.mbarriers.count_bytes() {
            Some(
                "Each phase of an mbarrier needs exactly as many arrivals as mbarrier_init names, exactly the bytes that \
                 mbarrier_arrive_expect_tx expects (a box counts whole, whatever lies outside of the tensor), and a wait \
                 the parity of the phase whose end it waits for (0 for the first)",
            )
        } else if self.threads.iter().any(is_phase) {
            Some(
                "Each phase of an mbarrier needs exactly as many arrivals as mbarrier_init names, and a wait the parity of \
                 the phase whose end it waits for (0 for the first)",
            )
        } else if self
            .threads
            .iter()
            .any(|thread| matches!(thread, Thread::Products { .. }))
        {
            Some("All four warps of a warpgroup issue the same products, in the same order")
        } else if self
            .threads
            .iter()
            .any(|thread| matches!(thread, Thread::Registers { .. }))
        {
            Some(
                "Registers come to the pool by give_registers_back alone, and all warpgroups together can't have more than \
                 the block started with",
            )
        } else if self
            .threads
            .iter()
            .any(|thread| matches!(thread, Thread::PollsMemory { .. }))
        {
            Some(
                "No thread is left that would change what is read there. And a flag in memory orders nothing: signal by an \
                 mbarrier or a named barrier",
            )
        } else {
            None
        };
        if let Some(rule) = rule {
            return Fault::WaitNeverObserved {
                block,
                waits,
                rule: rule.to_owned(),
            };
        }
        self.overlap().unwrap_or(Fault::Deadlock { block, waits })
    }

    /// Two groups of a warp that wait for each other's lanes because their masks differ.
    fn overlap(&self) -> Option<Fault> {
        for (index, warp) in self.warps.iter().enumerate() {
            for group in warp.groups() {
                let missing = group.collective.mask & warp.live & !group.arrived;
                let waiting = (0..32)
                    .filter(|lane| missing >> lane & 1 == 1)
                    .find_map(|lane| warp.group_of(lane));
                if let Some(other) = waiting {
                    let of = |group: &Group| {
                        party(index as u32 * 32 + group.first_lane, &group.collective)
                    };
                    let rule = format!(
                        "masks {:#010x} and {:#010x} overlap and wait for each other's lanes",
                        group.collective.mask, other.collective.mask
                    );
                    let (first, second) = (of(group), Some(of(other)));
                    return Some(Fault::CollectiveMismatch {
                        block: self.index,
                        first,
                        second,
                        rule,
                    });
                }
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
        for (thread, state) in self.threads.iter().enumerate() {
            let thread = thread as u32;
            let (operation, place) = match state {
                Thread::Active => {
                    let group = self.warps[thread as usize / 32].group_of(thread % 32);
                    let Some(Group { collective, .. }) = group else {
                        continue;
                    };
                    (collective.name.text(), collective.site.place())
                }
                Thread::Exited => {
                    waits.exited.push(thread);
                    continue;
                }
                Thread::Barrier { site } => ("__syncthreads".to_owned(), site.place()),
                Thread::Named { barrier, site } => (self.describe_named(*barrier), site.place()),
                Thread::Mbarrier {
                    offset,
                    operation,
                    site,
                } => (
                    format!("{operation}, {}", self.mbarriers.describe(*offset)),
                    site.place(),
                ),
                Thread::PollsMbarrier {
                    offset,
                    operation,
                    site,
                } => {
                    let object = self.mbarriers.describe(*offset);
                    (
                        format!("{operation}, again and again, {object}"),
                        site.place(),
                    )
                }
                Thread::Products { site } => (self.products.describe(thread / 32), site.place()),
                Thread::Cluster { site } => ("cluster_wait".to_owned(), site.place()),
                Thread::Registers { site } => {
                    let (rank, warps) = (self.cluster.rank(thread), self.cluster.threads / 32);
                    (
                        self.registers[rank as usize].describe(thread / 32 - rank * warps),
                        site.place(),
                    )
                }
                Thread::PollsMemory { site } => {
                    let place: Option<Place> = Places::default().get(*site).pop();
                    (
                        "reads the same variables again and again".to_owned(),
                        place.expect("never empty"),
                    )
                }
            };
            match waits
                .waiting
                .iter_mut()
                .find(|w| w.place == place && w.operation == operation)
            {
                Some(waiting) => waiting.threads.push(thread),
                None => waits.waiting.push(Waiting {
                    operation,
                    place,
                    threads: vec![thread],
                }),
            }
        }
        waits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::warp::tests::whole_warp;

    fn block(threads: u32) -> Block {
        Block::new([1, 2, 0], 9, Cluster::one(threads, 0..0), Schedule::InOrder)
    }

    fn run_all(block: &mut Block) -> Vec<u32> {
        std::iter::from_fn(|| block.ready.take()).collect()
    }

    fn waits(progress: Result<Progress, Fault>) -> bool {
        match progress.unwrap() {
            Progress::Wait => true,
            Progress::GoOn => false,
            Progress::Complete(_) => panic!("of a warp alone"),
        }
    }

    fn line(line: u32) -> Site {
        Site::new(c"stage/kernel.cu", line)
    }

    #[test]
    fn a_barrier_releases_everyone_once_all_have_come() {
        let mut block = block(40);
        assert_eq!(run_all(&mut block).len(), 40);
        for thread in 0..39 {
            assert!(waits(block.arrive_at_barrier(thread, line(3))));
        }
        assert!(!waits(block.arrive_at_barrier(39, line(3))));
        let mut released = run_all(&mut block);
        assert_eq!(released[0], 32, "the running warp goes on first");
        released.sort_unstable();
        assert_eq!(released, (0..39).collect::<Vec<_>>());
        assert_eq!(block.barriers(), 1);
    }

    fn named(kind: u32, barrier: u64, threads: u64, line: u32) -> Group {
        whole_warp(kind, [barrier, threads], line)
    }
    const SYNC: u32 = 5;
    const ARRIVE: u32 = 6;

    fn pass(block: &mut Block, warp: u32, group: &Group) -> Result<Progress, Fault> {
        let complete = block.arrive_at_named(warp, &group.collective)?.1;
        Ok(block.pass_named(warp, group, Some(warp * 32), complete))
    }

    #[test]
    fn a_named_barrier_releases_those_that_wait_and_is_there_again() {
        let mut block = block(96);
        run_all(&mut block);
        for _ in 0..2 {
            assert!(!waits(pass(&mut block, 2, &named(ARRIVE, 1, 96, 3))));
            assert!(waits(pass(&mut block, 0, &named(SYNC, 1, 96, 4))));
            assert_eq!(
                run_all(&mut block),
                (65..96).collect::<Vec<_>>(),
                "who only arrives goes on"
            );
            assert!(!waits(pass(&mut block, 1, &named(SYNC, 1, 96, 5))));
            let mut released = run_all(&mut block);
            released.sort_unstable();
            assert_eq!(released, (0..32).chain(33..64).collect::<Vec<_>>());
        }
        pass(&mut block, 0, &named(SYNC, 1, 96, 4)).unwrap();
        assert!(
            pass(&mut block, 1, &named(SYNC, 1, 64, 5)).is_err(),
            "of other threads"
        );
        assert!(
            pass(&mut block, 0, &named(ARRIVE, 1, 96, 6)).is_err(),
            "a second time"
        );
    }

    #[test]
    fn who_asks_again_and_again_lets_others_run_and_gives_up_in_the_end() {
        let mut block = block(2);
        run_all(&mut block);
        block.mbarriers().init(0, 1, 0, line(2)).unwrap();
        block.poll_mbarrier(0, 0, "mbarrier_test_wait", line(3));
        block.ready.insert(0, 0b10);
        assert_eq!(block.next().unwrap(), Some(1), "the other one first");
        block.exit(1).unwrap();
        for _ in 0..FRUITLESS_ROUNDS {
            assert_eq!(block.next().unwrap(), Some(0));
            block.poll_mbarrier(0, 0, "mbarrier_test_wait", line(3));
        }
        assert_eq!(
            block.next().unwrap_err().to_string(),
            "block [1, 2, 0] can't go on: thread 0 waits at stage/kernel.cu:3 (mbarrier_test_wait, again and again, the \
             mbarrier at byte 0: phase 0, parity 0, has 0 of 1 arrivals), thread 1 has exited. Each phase of an mbarrier \
             needs exactly as many arrivals as mbarrier_init names, and a wait the parity of the phase whose end it waits \
             for (0 for the first)"
        );
    }
}
