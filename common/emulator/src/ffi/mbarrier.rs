//! An arrival orders what its thread did so far before what the observers of the phase's end do next. A cp.async arrival does so
//! for the thread's copies, which land when the first observer looks; TMA's boxes for their own bytes alone.

use crate::fault::Fault;
use crate::judge::Sync;
use crate::mbarrier::{Misuse, Seen};
use crate::run::{Pause, Run, ThreadContext};
use crate::site::Site;
use crate::tma::Origin;

/// Content of a live object's 8 bytes, to recognise an overwritten one: no float that a kernel would compute.
const MARK: u64 = 0xFFF7_6D62_6172_7269;

/// Acquires at the scope of the block: says nothing of what other blocks store.
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
    /// Notes a synchronisation site; none if it is suppressed.
    pub(super) fn at(
        context: &'a ThreadContext,
        sync: Sync,
        object: *mut u64,
        site: Site,
    ) -> Option<Self> {
        let run = context.run();
        run.judge(|judge| judge.reaches(sync, site.number()));
        (!run.suppresses(site)).then(|| Self {
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
        let ThreadContext {
            block_idx, thread, ..
        } = *self.context;
        let offset = (self.object as usize).wrapping_sub(self.run().cluster.start);
        let operation = self.operation.to_owned();
        Fault::Mbarrier {
            block: block_idx,
            thread,
            operation,
            offset,
            reason,
            place: self.site.place(),
        }
    }

    pub(super) fn fail(&self, misuse: Misuse) -> ! {
        self.context.fail(self.fault(misuse))
    }

    fn offset(&self) -> usize {
        let (at, cluster) = (self.object as usize, &self.run().cluster);
        let Some(offset) = cluster.locate(at, 8) else {
            let declared = cluster.declared;
            self.fail(Misuse(format!(
                "its 8 bytes are not in shared memory, of which the launch declared {declared}"
            )));
        };
        let operand = || format!("the object of {}", self.operation);
        self.context
            .demand_alignment(operand, at as u64, 8, self.site);
        offset
    }

    /// It must exist, whole, and be known to the thread, perhaps through the cluster's barrier.
    pub(super) fn used(&self) -> usize {
        let (offset, thread) = (self.existing(), self.context.thread);
        if !self.run().block.borrow_mut().knows_mbarrier(thread, offset) {
            self.run()
                .judge(|judge| judge.use_barrier(thread, offset, self.site.access_number()));
        }
        offset
    }

    fn existing(&self) -> usize {
        let offset = self.offset();
        let known = self
            .run()
            .block
            .borrow_mut()
            .mbarriers()
            .get(offset)
            .map(|_| ());
        if let Err(misuse) = known {
            self.fail(misuse);
        }
        // SAFETY: `offset` has found it to be 8 aligned bytes of the block's shared memory.
        if unsafe { self.object.read() } != MARK {
            self.fail(Misuse(
                "its bytes were overwritten since mbarrier_init: a tile overlaps the object".into(),
            ));
        }
        offset
    }

    fn arrive(&self, with_copies: bool, expects: Option<i32>) {
        let (thread, offset) = (self.context.thread, self.used());
        let issued = self.run().copies.borrow()[thread as usize].issued();
        let arrive = || {
            let mut block = self.run().block.borrow_mut();
            let object = block.mbarriers().get(offset)?;
            let arriving = object.arriving();
            if with_copies {
                arriving.copies.push((thread, issued));
                let site = self.site.number();
                self.run()
                    .judge(|judge| judge.arrive_after_copies(thread, site, &mut arriving.signal));
            } else {
                self.run()
                    .judge(|judge| judge.arrive(thread, &mut arriving.signal));
            }
            if let Some(bytes) = expects {
                object.expect(bytes)?;
            }
            let is_end = object.arrive()? || object.can_end();
            block.mbarrier_arrived(offset, is_end);
            Ok(())
        };
        if let Err(misuse) = arrive() {
            self.fail(misuse);
        }
    }

    /// If the phase has ended, the thread learns what its arrivals did. `since`: the phase that it waits for. `origins`: whose bytes the
    /// observation covers.
    fn look(&self, offset: usize, parity: i32, since: Option<u64>, origins: &[Origin]) -> Seen {
        let look = || {
            let mut block = self.run().block.borrow_mut();
            let object = block.mbarriers().get(offset)?;
            let mut seen = object.look(parity, since)?;
            if let Seen::Present(_) = seen
                && object.can_end()
            {
                // SAFETY: whoever issued a load has found its box to lie in the block's shared memory, which lives as long as
                // the OS thread; the launch's caller vouches for the map's tensor.
                object.land(false, |load| unsafe { load.land() })?;
                seen = object.look(parity, since)?;
            }
            if seen == Seen::Ended {
                let landed = object.observe_bytes();
                for origin in origins {
                    let (agent, landed) =
                        (object.agents[*origin as usize], landed[*origin as usize]);
                    if let Some(agent) = agent {
                        self.run()
                            .judge(|judge| judge.complete(self.context.thread, agent, landed));
                    }
                }
                let ended = object.ended();
                for (copier, issued) in ended.copies.drain(..) {
                    let landed = |tag| {
                        self.run().judge(|judge| judge.landed(tag));
                    };
                    self.run().copies.borrow_mut()[copier as usize].land(issued, landed);
                    self.run()
                        .judge(|judge| judge.release_copies(copier, issued, &mut ended.signal));
                }
                self.run()
                    .judge(|judge| judge.observe(self.context.thread, &ended.signal));
            }
            Ok(seen)
        };
        look().unwrap_or_else(|misuse| self.fail(misuse))
    }

    /// If the phase has not ended, others run first. A try may fail spuriously.
    fn poll(&self, parity: i32, is_try: bool) -> bool {
        let Call {
            context,
            operation,
            site,
            ..
        } = *self;
        let offset = self.used();
        let is_spurious = is_try && context.run().block.borrow_mut().fails_spuriously();
        let is_ended = !is_spurious && self.look(offset, parity, None, OF_BLOCK) == Seen::Ended;
        if !is_ended {
            context
                .run()
                .block
                .borrow_mut()
                .poll_mbarrier(context.thread, offset, operation, site);
            context.suspend(Pause::Waiting);
        }
        is_ended
    }

    pub(super) fn wait(&self, parity: i32, origins: &[Origin]) {
        let offset = self.used();
        let mut since = None;
        while let Seen::Present(phase) = self.look(offset, parity, since, origins) {
            since = Some(phase);
            let mut block = self.run().block.borrow_mut();
            block.wait_at_mbarrier(self.context.thread, offset, self.operation, self.site);
            drop(block);
            self.context.suspend(Pause::Waiting);
        }
    }
}

/// # Safety
/// As [`super::emulator_collective`]; so for all callbacks here.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_mbarrier_init(
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
    let offset = call.offset();
    let made =
        context
            .run()
            .block
            .borrow_mut()
            .mbarriers()
            .init(offset, arrivals, context.thread, site);
    if let Err(misuse) = made {
        call.fail(misuse);
    }
    // SAFETY: `offset` has found it to be 8 aligned bytes of the block's shared memory.
    unsafe { object.write(MARK) };
    context
        .run()
        .judge(|judge| judge.init_barrier(context.thread, offset, site.access_number()));
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_mbarrier_arrive(
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
unsafe extern "C-unwind" fn emulator_mbarrier_arrive_after_cp_async(
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
unsafe extern "C-unwind" fn emulator_mbarrier_test_wait(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) -> bool {
    // SAFETY: see emulator_collective.
    let call = Call::at(unsafe { &*thread }, Sync::PhaseTest, object, site);
    call.is_none_or(|call| call.poll(parity, false)) // as if the kernel had not asked
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_mbarrier_wait(
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
unsafe extern "C-unwind" fn emulator_mbarrier_wait_tx(
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
unsafe extern "C-unwind" fn emulator_mbarrier_try_wait(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) -> bool {
    // SAFETY: see emulator_collective.
    let call = Call::at(unsafe { &*thread }, Sync::PhaseTry, object, site);
    call.is_none_or(|call| call.poll(parity, true)) // as if the kernel had not asked
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_mbarrier_arrive_expect_tx(
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
unsafe extern "C-unwind" fn emulator_fence_mbarrier_init(thread: *const ThreadContext, site: Site) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    run.judge(|judge| judge.reaches(Sync::FenceInit, site.number()));
    if !run.suppresses(site) {
        run.block.borrow_mut().fence_mbarriers(context.thread);
    }
}
