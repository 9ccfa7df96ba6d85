//! What the threads of a running block share, how one of them stops, and what a complete warp-wide
//! operation does. Nothing here chooses who runs; a thread suspends, and the worker resumes another
//! one.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::ops::Range;
use std::time::Duration;

use corosensei::Yielder;

use crate::async_copy::AsyncCopies;
use crate::block::{Block, NamedArrival, Progress};
use crate::cluster::{Cluster, STRIDE};
use crate::fault::{Fault, Place};
use crate::judge::clocks::Signal;
use crate::judge::deeds::Doing;
use crate::judge::{Judge, Sync};
use crate::layout::Layouts;
use crate::site::Site;
use crate::tma::{Incoming, Stores};
use crate::warp::{Execute, Group, Kind};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    Waiting,
    /// The run's `fault` is set; never resume the thread.
    Faulted,
}

/// `EmulatorThread` of abi.h, followed by the scheduler's own fields.
#[repr(C)]
pub(crate) struct ThreadContext {
    pub(crate) thread_idx: [u32; 3],
    pub(crate) block_idx: [u32; 3],
    pub(crate) block_dim: [u32; 3],
    pub(crate) grid_dim: [u32; 3],
    pub(crate) thread: u32,
    pub(crate) lane: u32,
    pub(crate) cluster_rank: u32,
    pub(crate) cluster_size: u32,
    pub(crate) shared: *mut u8,
    pub(crate) layouts: *const Layouts,
    pub(crate) run: *const Run,
    pub(crate) yielder: Cell<*const Yielder<(), Pause>>,
    pub(crate) stack: Range<usize>,
}

/// `EmulatorTrace` of abi.h.
#[repr(C)]
pub(crate) struct TraceState {
    pub(crate) active: u64,
    pub(crate) stack_start: u64,
    pub(crate) stack_bytes: u64,
    pub(crate) exps: u64,
    pub(crate) held_start: u64,
    pub(crate) held_bytes: u64,
}

/// The variables that a thread reads again and again while it does nothing else. It waits for
/// another thread, which would never run.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    variables: [Cell<usize>; 4],
    known: Cell<usize>,
    reads: Cell<u32>,
}

/// The consecutive reads of the same variables before they are taken for spinning.
const SPIN_READS: u32 = 4096;

impl Spin {
    #[inline]
    pub(crate) fn takes(&self, address: usize, is_write: bool) -> bool {
        let count = self.known.get();
        let mut known = self.variables[..count].iter();
        if is_write {
            self.reset();
        } else if known.any(|variable| variable.get() == address) {
            self.reads.set(self.reads.get() + 1);
        } else if count < self.variables.len() {
            self.variables[count].set(address);
            self.known.set(count + 1);
        } else {
            self.reset();
        }
        self.reads.get() == SPIN_READS
    }

    #[inline]
    pub(crate) fn reset(&self) {
        self.known.set(0);
        self.reads.set(0);
    }
}

/// The complete operation of a warp that was executed last.
#[derive(Clone, Copy)]
pub(crate) struct Executing {
    pub(crate) warp: u32,
    pub(crate) lanes: u32,
    pub(crate) site: Site,
}

pub(crate) struct Run {
    pub(crate) block: RefCell<Block>,
    pub(crate) copies: RefCell<Vec<AsyncCopies>>,
    /// The TMA stores of each thread, as far as needed.
    pub(crate) stores: RefCell<Vec<Stores>>,
    pub(crate) acts_at_issue: bool,
    pub(crate) fault: RefCell<Option<Fault>>,
    pub(crate) cluster: Cluster,
    pub(crate) judge: Option<RefCell<Box<Judge>>>,
    pub(crate) suppress: Option<Place>,
    pub(crate) executing: Cell<Option<Executing>>,
    /// The variables that the running thread of a traced launch spins on.
    pub(crate) spin: Spin,
    pub(crate) switches: Cell<u64>,
    /// `switches` at the watchdog's last tick, and the ticks since without another.
    pub(crate) watched: Cell<(u64, u32)>,
    pub(crate) patience: Duration,
    pub(crate) touching: Cell<Option<Site>>,
}

unsafe extern "C" {
    /// Start of the calling OS thread's shared memory.
    pub(crate) safe fn emulator_shared_memory() -> *mut u8;
    /// The calling OS thread's `emulator_current`, which points to a [`ThreadContext`].
    pub(crate) safe fn emulator_current_slot() -> *mut *const c_void;
    /// The calling OS thread's `emulator_trace_state`.
    pub(crate) safe fn emulator_trace_slot() -> *mut TraceState;
}

pub(crate) fn set_tracing(on: bool) {
    // SAFETY: the slot is this OS thread's, and nothing else refers to it now.
    unsafe { (*emulator_trace_slot()).active = on.into() };
}

impl ThreadContext {
    #[inline]
    pub(crate) fn run(&self) -> &Run {
        // SAFETY: the worker keeps the run alive for as long as it resumes this thread.
        unsafe { &*self.run }
    }

    /// Returns what the thread does at a site, for the order of deeds. `object` tells apart what an
    /// operation is done to.
    pub(crate) fn doing(&self, operation: &'static str, site: Site, object: u32) -> Doing {
        Doing {
            thread: self.thread,
            operation,
            site: site.number(),
            object,
        }
    }

    #[inline]
    pub(crate) fn suspend(&self, pause: Pause) {
        // SAFETY: the coroutine's first act was to store its own yielder, which lives as long as
        // its stack.
        unsafe { &*self.yielder.get() }.suspend(pause);
    }

    pub(crate) fn misaligned(
        &self,
        operand: impl FnOnce() -> String,
        value: u64,
        required: u64,
        site: Site,
    ) -> Option<Fault> {
        if value.is_multiple_of(required) {
            return None;
        }
        Some(Fault::Misaligned {
            block: self.block_idx,
            thread: self.thread,
            operand: operand(),
            value,
            required,
            place: site.place(),
        })
    }

    pub(crate) fn demand_alignment(
        &self,
        operand: impl FnOnce() -> String,
        value: u64,
        required: u64,
        site: Site,
    ) {
        if let Some(fault) = self.misaligned(operand, value, required, site) {
            self.fail(fault);
        }
    }

    /// Records the fault and never returns: the worker abandons the block.
    pub(crate) fn fail(&self, fault: Fault) -> ! {
        *self.run().fault.borrow_mut() = Some(fault);
        loop {
            self.suspend(Pause::Faulted);
        }
    }
}

impl Run {
    pub(crate) fn watch_held(&self, held: Range<usize>) {
        // SAFETY: the slot is this OS thread's, and nothing else refers to it now.
        let trace = unsafe { &mut *emulator_trace_slot() };
        (trace.held_start, trace.held_bytes) = (held.start as u64, held.len() as u64);
    }

    pub(crate) fn judge<T>(&self, tell: impl FnOnce(&mut Judge) -> T) -> Option<T> {
        let judge = self.judge.as_ref()?;
        Some(tell(&mut judge.borrow_mut()))
    }

    /// Reads the first and the last of `bytes` to be copied, so that unmapped memory is found at
    /// the copy's line and not when it lands.
    ///
    /// # Safety
    ///
    /// The kernel vouches for them, and where it is wrong it is stopped ([`crate::crash`]).
    pub(crate) unsafe fn touch(&self, start: *const u8, bytes: usize, site: Site) {
        self.touching.set(Some(site));
        for offset in [0, bytes.saturating_sub(1)].into_iter().take(bytes) {
            // SAFETY: see above.
            unsafe { start.wrapping_add(offset).read_volatile() };
        }
        self.touching.set(None);
    }

    #[inline]
    pub(crate) fn suppresses(&self, site: Site) -> bool {
        self.suppress
            .as_ref()
            .is_some_and(|suppressed| site.is(suppressed))
    }

    /// Notes a synchronisation site. Returns whether it takes effect: one that is suppressed does
    /// not.
    pub(crate) fn reaches(&self, sync: Sync, site: Site) -> bool {
        self.judge(|judge| judge.reaches(sync, site.number()));
        !self.suppresses(site)
    }

    /// Refuses the end of a block in which bytes have come that no thread has observed.
    pub(crate) fn check_end(&self) -> Result<(), Fault> {
        let mut block = self.block.borrow_mut();
        if let Some(arrival) = self.judge(|judge| judge.late_arrival()).flatten() {
            return Err(Fault::Mbarrier {
                block: block.index(),
                thread: arrival.thread,
                operation: "mbarrier_arrive".to_owned(),
                offset: arrival.offset,
                reason: format!(
                    "block {} of the cluster may have ended before it, and its shared memory be \
                     another block's: a thread of that block must wait for the phase, or for all \
                     at the cluster's barrier, before it exits",
                    arrival.rank
                ),
                place: arrival.site.place(),
            });
        }
        let Some((offset, incoming)) = block.mbarriers().unobserved() else {
            return Ok(());
        };
        let transfer = match incoming {
            Incoming::Box(_) => "the box comes",
            Incoming::Store { .. } => "the bytes come",
        };
        let reason = format!(
            "the block has ended, and no thread has observed the end of the phase in which \
             {transfer}: its shared memory may be another block's by then"
        );
        let [x, y, z] = block.index();
        Err(Fault::Tma {
            block: [x + (offset / STRIDE) as u32, y, z],
            thread: None,
            operation: incoming.operation().to_owned(),
            reason,
            place: incoming.site().place(),
        })
    }

    pub(crate) fn exit(&self, thread: u32) -> Result<(), Fault> {
        self.check_exit(thread)?;
        self.judge(|judge| judge.exits(thread));
        let mut block = self.block.borrow_mut();
        block.exit(thread)?;
        self.pass_cluster(&mut block);
        Ok(())
    }

    /// Refuses the exit of a thread whose TMA stores may not have read shared memory yet.
    fn check_exit(&self, thread: u32) -> Result<(), Fault> {
        let stores = self.stores.borrow();
        let Some(unread) = stores.get(thread as usize).and_then(Stores::unread) else {
            return Ok(());
        };
        let reason = if unread.is_committed {
            "the thread has exited without a tma_store_wait_read that covers it: shared memory \
             may be another block's before the box is read"
        } else {
            "the thread has exited, and the store is in no group: tma_store_commit is missing, \
             and tma_store_wait_read after it"
        };
        Err(Fault::Tma {
            block: self.block.borrow_mut().index(),
            thread: Some(thread),
            operation: "tma_store".to_owned(),
            reason: reason.to_owned(),
            place: unread.store.site.place(),
        })
    }

    /// Tells the judge of a warp-wide operation. Of all, only `__syncwarp` and the named barriers
    /// order memory.
    fn judge_collective(&self, warp: u32, group: &Group, live: u32) {
        self.judge(|judge| {
            match group.collective.kind() {
                Kind::SyncWarp => judge.warp_barrier(warp, group.arrived),
                Kind::Shuffle => judge.counters().shuffles += 1,
                Kind::Vote => judge.counters().votes += 1,
                Kind::MatrixCopy => {} // its execution has declared its accesses
                Kind::NamedSync | Kind::NamedArrive => {} // see pass_named
                // See pass_cluster.
                Kind::ClusterArrive | Kind::ClusterArriveRelaxed | Kind::ClusterWait => {}
                // See pass_wgmma.
                Kind::Wgmma | Kind::WgmmaFence | Kind::WgmmaCommit | Kind::WgmmaWait => {}
                Kind::GiveRegisters | Kind::TakeRegisters => {}
                Kind::Mma => {
                    judge.counters().tensor_ops += 1;
                    judge.counters().tensor_macs += group.collective.work;
                }
            }
            if group.arrived == live {
                judge.warp_met(warp);
            }
        });
    }

    pub(crate) fn complete(
        &self,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        let mut block = self.block.borrow_mut();
        if let Some(execute) = group.collective.execute {
            self.execute(&block, warp, group, execute)?;
        }
        self.judge_collective(warp, group, block.live(warp));
        match group.collective.kind() {
            Kind::NamedSync | Kind::NamedArrive => {
                self.pass_named(&mut block, warp, group, completer)
            }
            Kind::Wgmma | Kind::WgmmaFence | Kind::WgmmaCommit | Kind::WgmmaWait => {
                self.pass_wgmma(&mut block, warp, group, completer)
            }
            Kind::ClusterArrive | Kind::ClusterArriveRelaxed => {
                self.arrive_at_cluster(&mut block, warp, group, completer)
            }
            Kind::ClusterWait => self.wait_for_cluster(&mut block, warp, group, completer),
            Kind::GiveRegisters | Kind::TakeRegisters => {
                block.change_registers(warp, group, completer)
            }
            _ => Ok(block.release(warp, group, completer)),
        }
    }

    /// Executes a complete operation: it moves operands between registers, and declares what it
    /// does to memory.
    fn execute(
        &self,
        block: &Block,
        warp: u32,
        group: &Group,
        execute: Execute,
    ) -> Result<(), Fault> {
        let mut lane = 0;
        self.executing.set(Some(Executing {
            warp,
            lanes: group.arrived,
            site: group.collective.site,
        }));
        if self.judge.is_some() {
            set_tracing(false);
        }
        // SAFETY: the operands of the lanes in `arrived` were handed over by these lanes, which are
        // suspended in (or running) the call that did so; `execute` came with them and does not
        // call back.
        let reason =
            unsafe { execute(block.operands(warp * 32).as_ptr(), group.arrived, &mut lane) };
        if self.judge.is_some() {
            set_tracing(true);
        }
        if reason.is_null() {
            return Ok(());
        }
        // SAFETY: a reason is a string literal.
        let text = unsafe { CStr::from_ptr(reason) }.to_string_lossy();
        Err(block.invalid(warp, lane, group, text.into_owned()))
    }

    /// Makes a warp arrive at a named barrier. What it did before is known to the waiters once all
    /// have arrived.
    fn pass_named(
        &self,
        block: &mut Block,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        let NamedArrival { signal, released } = block.arrive_at_named(warp, &group.collective)?;
        self.judge(|judge| judge.arrive_at_named(warp, signal));
        if let Some(waiters) = &released {
            self.judge(|judge| {
                for &waiter in waiters {
                    judge.leave_named(waiter, signal);
                }
            });
            *signal = Signal::default();
        }
        Ok(block.pass_named(warp, group, completer, released))
    }

    /// Makes a warp arrive at the cluster's barrier, as `pass_named` does. A relaxed arrival
    /// publishes only the mbarriers that the warp has initialised and fenced.
    fn arrive_at_cluster(
        &self,
        block: &mut Block,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        let signal = block.arrive_at_cluster(warp, &group.collective)?;
        if group.collective.kind() == Kind::ClusterArrive {
            self.judge(|judge| judge.arrive_at_named(warp, signal));
        }
        self.pass_cluster(block);
        Ok(block.release(warp, group, completer))
    }

    fn wait_for_cluster(
        &self,
        block: &mut Block,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        if !block.wait_for_cluster(warp, &group.collective)? {
            return Ok(Progress::Wait);
        }
        self.judge(|judge| judge.leave_named(warp, block.cluster_signal()));
        Ok(block.release(warp, group, completer))
    }

    fn pass_cluster(&self, block: &mut Block) {
        for released in block.pass_cluster() {
            self.judge(|judge| judge.leave_named(released, block.cluster_signal()));
            block.wake_warp(released);
        }
    }

    fn pass_wgmma(
        &self,
        block: &mut Block,
        warp: u32,
        group: &Group,
        completer: Option<u32>,
    ) -> Result<Progress, Fault> {
        let call = &group.collective;
        let (products, operands) = block.products_of(warp);
        let mut waited = None;
        match call.kind() {
            Kind::WgmmaFence => products.fence(warp, call)?,
            Kind::WgmmaCommit => products.commit(warp, call)?,
            Kind::WgmmaWait => {
                // SAFETY: the operands were handed over by the lanes, which stand in the call that
                // did so.
                waited = unsafe { products.wait(warp, group, operands) }?;
                if waited.is_none() {
                    return Ok(block.wait_for_products(warp, call.site));
                }
            }
            _ => {
                // SAFETY: the same; and accumulators and registers of A live until their wait, as
                // the kernel promises.
                let issued = unsafe { products.issue(warp, group, operands) }?;
                let site = call.site.access_number();
                self.judge(|judge| {
                    let read = issued.operands(warp, judge.operand_rule());
                    judge.issue_product(warp, site, issued.number, issued.macs, read);
                    judge.names_tile(warp, issued.part_of_b());
                });
                for woken in &issued.woken {
                    self.judge(|judge| judge.products_complete(woken.warp, woken.covered));
                    block.wake_warp(woken.warp);
                }
            }
        }
        if let Some(covered) = waited {
            self.judge(|judge| judge.products_complete(warp, covered));
        }
        if let (Some(thread), Some(_)) = (completer, &self.judge) {
            self.watch_held(block.products().held(thread));
        }
        Ok(block.release(warp, group, completer))
    }
}
