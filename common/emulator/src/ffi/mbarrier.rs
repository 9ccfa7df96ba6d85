//! An arrival orders what its thread did so far before what the observers of the phase's end do
//! next. A cp.async arrival does so for the thread's copies, which land when the first observer
//! looks; TMA's boxes for their own bytes alone.

use crate::cluster::{Cluster, STRIDE};
use crate::fault::Fault;
use crate::judge::deeds::Doing;
use crate::judge::{Fork, Judge, Sync};
use crate::mbarrier::{Arrivals, Mbarrier, Misuse, Seen};
use crate::run::{Pause, Run, ThreadContext};
use crate::site::Site;
use crate::tma::Origin;

/// The content of a live object's 8 bytes, to recognise an overwritten one: no float that a kernel
/// would compute.
const MARK: u64 = 0xFFF7_6D62_6172_7269;

/// The origins that a wait at the scope of the block acquires from: it says nothing of what other
/// blocks store.
const OF_BLOCK: &[Origin] = &[Origin::Block];

pub(super) const OF_CLUSTER: &[Origin] = &[Origin::Block, Origin::OtherBlock];

#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) context: &'a ThreadContext,
    pub(super) operation: &'static str,
    pub(super) object: *mut u64,
    pub(super) site: Site,
}

impl<'a> Call<'a> {
    /// Notes a synchronisation site. Returns no call if it is suppressed.
    pub(super) fn at(
        context: &'a ThreadContext,
        sync: Sync,
        object: *mut u64,
        site: Site,
    ) -> Option<Self> {
        if !context.run().reaches(sync, site) {
            return None;
        }
        Some(Self {
            context,
            operation: sync.operation(),
            object,
            site,
        })
    }

    fn run(&self) -> &Run {
        self.context.run()
    }

    fn fault(&self, Misuse(reason): Misuse) -> Fault {
        Fault::Mbarrier {
            block: self.context.block_idx,
            thread: self.context.thread,
            operation: self.operation.to_owned(),
            offset: (self.object as usize).wrapping_sub(self.run().cluster.start),
            reason,
            place: self.site.place(),
        }
    }

    pub(super) fn fail(&self, misuse: Misuse) -> ! {
        self.context.fail(self.fault(misuse))
    }

    fn offset(&self) -> usize {
        let (at, cluster) = (self.object as usize, &self.run().cluster);
        let Some(place) = cluster.locate(at, 8) else {
            self.fail(Misuse(format!(
                "its 8 bytes are not in shared memory, of which the launch declared {}",
                cluster.declared
            )));
        };
        self.context.demand_alignment(
            || format!("the object of {}", self.operation),
            at as u64,
            8,
            self.site,
        );
        place
    }

    /// Returns the object's offset. It must exist, whole, and be known to the thread, perhaps
    /// through the cluster's barrier.
    pub(super) fn used(&self) -> usize {
        let (place, thread) = (self.existing(), self.context.thread);
        if !self.run().block.borrow_mut().knows_mbarrier(thread, place) {
            self.run()
                .judge(|judge| judge.use_barrier(thread, place, self.site.access_number()));
        }
        place
    }

    fn existing(&self) -> usize {
        let place = self.offset();
        let exists = {
            let mut block = self.run().block.borrow_mut();
            block.mbarriers().get(place).map(|_| ())
        };
        exists.unwrap_or_else(|misuse| self.fail(misuse));
        // SAFETY: `offset` has found it to be 8 aligned bytes of the block's shared memory.
        if unsafe { self.object.read() } != MARK {
            self.fail(Misuse(
                "its bytes were overwritten since mbarrier_init: a tile overlaps the object".into(),
            ));
        }
        place
    }

    /// Forks the operation that the call starts from the thread. `object` has been told of it.
    pub(super) fn fork(&self, object: &mut Mbarrier, origin: Origin, judge: &mut Judge) -> Fork {
        let agent = &mut object.agents[origin as usize];
        Fork {
            agent: *agent.get_or_insert_with(|| judge.agent()),
            clock: object.issued(origin),
            first: self.context.thread,
            count: 1,
            site: self.site.access_number(),
        }
    }

    /// Returns what the thread does at the object, for the order of deeds.
    pub(super) fn doing(&self, place: usize) -> Doing {
        self.context.doing(
            self.operation,
            self.site,
            Cluster::within_block(place) as u32,
        )
    }

    fn arrive(&self, with_copies: bool, expects: Option<i32>) {
        let place = self.used();
        self.run()
            .judge(|judge| judge.deeds().marks(self.doing(place)));
        self.try_arrive(place, with_copies, expects)
            .unwrap_or_else(|misuse| self.fail(misuse));
    }

    fn try_arrive(
        &self,
        offset: usize,
        with_copies: bool,
        expects: Option<i32>,
    ) -> Result<(), Misuse> {
        let (run, thread) = (self.run(), self.context.thread);
        let mut block = run.block.borrow_mut();
        let object = block.mbarriers().get(offset)?;
        let Arrivals { signal, copies } = object.arriving();
        if with_copies {
            copies.push((thread, run.copies.borrow()[thread as usize].issued()));
            let site = self.site.number();
            run.judge(|judge| judge.arrive_after_copies(thread, site, signal));
        } else {
            run.judge(|judge| {
                let rank = (offset / STRIDE) as u32;
                if rank != self.context.cluster_rank {
                    judge.arrives_in(rank, thread, offset, self.site);
                }
                judge.arrive(thread, signal);
            });
        }
        if let Some(bytes) = expects {
            object.expect(bytes)?;
        }
        let is_end = object.arrive()? || object.can_end();
        block.mbarrier_arrived(offset, is_end);
        Ok(())
    }

    /// Looks whether the phase has ended. If so, the thread learns what its arrivals did. `since`:
    /// the phase that it waits for. `origins`: whose bytes the observation covers.
    fn look(&self, offset: usize, parity: i32, since: Option<u64>, origins: &[Origin]) -> Seen {
        self.try_look(offset, parity, since, origins)
            .unwrap_or_else(|misuse| self.fail(misuse))
    }

    fn try_look(
        &self,
        offset: usize,
        parity: i32,
        since: Option<u64>,
        origins: &[Origin],
    ) -> Result<Seen, Misuse> {
        let mut block = self.run().block.borrow_mut();
        let object = block.mbarriers().get(offset)?;
        let mut seen = object.look(parity, since)?;
        if let Seen::Present(_) = seen
            && object.can_end()
        {
            // SAFETY: whoever issued a load has found its box to lie in the block's shared memory,
            // which lives as long as the OS thread; the launch's caller vouches for the map's
            // tensor.
            object.land(false, |load| unsafe { load.land() })?;
            seen = object.look(parity, since)?;
        }
        if seen == Seen::Ended {
            self.observe_end(object, origins);
        }
        Ok(seen)
    }

    /// Tells the thread what the arrivals of an mbarrier's last phase did, and lands their copies.
    fn observe_end(&self, object: &mut Mbarrier, origins: &[Origin]) {
        let (run, thread) = (self.run(), self.context.thread);
        let landed = object.observe_bytes();
        for &origin in origins {
            if let Some(agent) = object.agents[origin as usize] {
                run.judge(|judge| judge.complete(thread, agent, landed[origin as usize]));
            }
        }
        let Arrivals { signal, copies } = object.ended();
        for (copier, issued) in copies.drain(..) {
            run.copies.borrow_mut()[copier as usize].land(issued, |tag| {
                run.judge(|judge| judge.landed(tag));
            });
            run.judge(|judge| judge.release_copies(copier, issued, signal));
        }
        run.judge(|judge| judge.observe(thread, signal));
    }

    /// Asks whether the phase has ended. If it has not, others run first. A try may fail
    /// spuriously.
    fn poll(&self, parity: i32, is_try: bool, origins: &[Origin]) -> bool {
        let place = self.used();
        let is_spurious = is_try && self.run().block.borrow_mut().fails_spuriously();
        if !is_spurious && self.look(place, parity, None, origins) == Seen::Ended {
            return true;
        }
        let mut block = self.run().block.borrow_mut();
        block.poll_mbarrier(self.context.thread, place, self.operation, self.site);
        drop(block);
        self.context.suspend(Pause::Waiting);
        false
    }

    pub(super) fn wait(&self, parity: i32, origins: &[Origin]) {
        let place = self.used();
        self.run()
            .judge(|judge| judge.deeds().begins(self.doing(place)));
        let mut since = None;
        while let Seen::Present(phase) = self.look(place, parity, since, origins) {
            since = Some(phase);
            let mut block = self.run().block.borrow_mut();
            block.wait_at_mbarrier(self.context.thread, place, self.operation, self.site);
            drop(block);
            self.context.suspend(Pause::Waiting);
        }
        self.run()
            .judge(|judge| judge.deeds().ends(self.context.thread));
    }
}

/// # Safety
/// As [`super::emulator_collective`]; so for all callbacks here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_init(
    thread: *const ThreadContext,
    object: *mut u64,
    arrivals: i32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let call = Call {
        context,
        operation: "mbarrier_init",
        object,
        site,
    };
    let place = call.offset();
    let initialised = {
        let mut block = context.run().block.borrow_mut();
        let objects = block.mbarriers();
        objects.init(place, arrivals, context.thread, site)
    };
    initialised.unwrap_or_else(|misuse| call.fail(misuse));
    // SAFETY: `offset` has found it to be 8 aligned bytes of the block's shared memory.
    unsafe { object.write(MARK) };
    context
        .run()
        .judge(|judge| judge.init_barrier(context.thread, place, site.access_number()));
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_arrive(
    thread: *const ThreadContext,
    object: *mut u64,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    if let Some(call) = Call::at(unsafe { &*thread }, Sync::Arrive, object, site) {
        call.arrive(false, None);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_arrive_after_cp_async(
    thread: *const ThreadContext,
    object: *mut u64,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    if let Some(call) = Call::at(unsafe { &*thread }, Sync::ArriveAfterCopies, object, site) {
        call.arrive(true, None);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_test_wait(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) -> bool {
    // SAFETY: see emulator_collective.
    let call = Call::at(unsafe { &*thread }, Sync::PhaseTest, object, site);
    // Without a call it is as if the kernel had not asked.
    call.is_none_or(|test| test.poll(parity, false, OF_BLOCK))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_wait(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    if let Some(call) = Call::at(unsafe { &*thread }, Sync::PhaseWait, object, site) {
        call.wait(parity, OF_BLOCK);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_wait_tx(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    if let Some(call) = Call::at(unsafe { &*thread }, Sync::PhaseWaitBytes, object, site) {
        call.wait(parity, OF_BLOCK);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_try_wait(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) -> bool {
    // SAFETY: see emulator_collective.
    let call = Call::at(unsafe { &*thread }, Sync::PhaseTry, object, site);
    // Without a call it is as if the kernel had not asked.
    call.is_none_or(|attempt| attempt.poll(parity, true, OF_BLOCK))
}

/// Tries at the scope of the cluster, which acquires from its other blocks, too.
pub(crate) fn try_wait_cluster(
    context: &ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) -> bool {
    let call = Call::at(context, Sync::PhaseWaitCluster, object, site);
    call.is_none_or(|attempt| attempt.poll(parity, true, OF_CLUSTER))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_arrive_expect_tx(
    thread: *const ThreadContext,
    object: *mut u64,
    bytes: i32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    if let Some(call) = Call::at(unsafe { &*thread }, Sync::ArriveExpect, object, site) {
        call.arrive(false, Some(bytes));
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_fence_mbarrier_init(
    thread: *const ThreadContext,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if run.reaches(Sync::FenceInit, site) {
        run.block.borrow_mut().fence_mbarriers(context.thread);
    }
}
