//! Runs blocks on the calling OS thread: coroutines, their stacks and the blocks' shared memory.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::ops::Range;
use std::sync::{Arc, Mutex};

use corosensei::{Coroutine, CoroutineResult};

use crate::async_copy::{AsyncCopies, POISON};
use crate::block::Block;
use crate::cluster::{Cluster, GUARD_BYTES, MAX_SHARED_BYTES, STRIDE};
use crate::crash::Watchdog;
use crate::extent::BlockIndex;
use crate::fault::{Fault, Place};
use crate::grid::Launch;
use crate::judge::between::Between;
use crate::judge::clocks::FenceRule;
use crate::judge::memory::Memory;
use crate::judge::observed::Watch;
use crate::judge::operand_rule::OperandRule;
use crate::judge::{Judge, Outcome, Setup};
use crate::layout::Layouts;
use crate::run::{
    Pause, Run, Spin, ThreadContext, emulator_current_slot, emulator_shared_memory,
    emulator_trace_slot, set_tracing,
};
use crate::source;
use crate::stack::LaneStack;

type Lane = Coroutine<(), Pause, (), LaneStack>;

thread_local! {
    static WORKER: RefCell<Worker> = RefCell::new(Worker::default());
}

#[derive(Default)]
struct Worker {
    stacks: Vec<LaneStack>,
    copies: Vec<AsyncCopies>,
    judge: Option<Box<Judge>>,
    used_shared_bytes: Option<usize>,
    cluster_memory: Vec<SharedMemory>,
    watchdog: Watchdog,
}

/// The shared memory of a block, aligned as abi.h declares it.
#[repr(C, align(1024))]
#[derive(Clone)]
struct SharedMemory([u8; STRIDE]);

struct Lanes<'a> {
    lanes: Vec<Lane>,
    stacks: &'a mut Vec<LaneStack>,
}

impl Drop for Lanes<'_> {
    fn drop(&mut self) {
        // In the same order, since a stack's offset in its page belongs to its index.
        let freed = self.lanes.drain(..).map(|mut lane| {
            // SAFETY: a suspended thread stands in a callback of the FFI module, which holds
            // nothing that needs dropping there, called from device code, which owns nothing
            // either: CUDA kernels can't. One that a signal has stopped may have borrowed something
            // of its run, which nobody will borrow again.
            unsafe { lane.force_reset() };
            lane.into_stack()
        });
        self.stacks.splice(0..0, freed);
    }
}

pub(crate) struct Tracing<'a> {
    pub(crate) memory: &'a Arc<Memory>,
    pub(crate) watch: Option<&'a Arc<Watch>>,
    pub(crate) fence_rule: FenceRule,
    pub(crate) operand_rule: OperandRule,
    pub(crate) deeds: &'a [&'static str],
    pub(crate) asked_byte: Option<u32>,
    pub(crate) between: &'a Arc<Mutex<Between>>,
    /// The cluster's number in the launch.
    pub(crate) number: u32,
    pub(crate) history: Option<usize>,
    pub(crate) ends_at_hazard: bool,
    pub(crate) outcome: &'a mut Outcome,
}

impl Tracing<'_> {
    fn setup(
        &self,
        block: BlockIndex,
        cluster: Cluster,
        contexts: &[ThreadContext],
        layouts: &Layouts,
    ) -> Setup {
        let threads = contexts.as_ptr_range();
        let table = std::ptr::from_ref(layouts) as usize;
        Setup {
            memory: Arc::clone(self.memory),
            block,
            cluster,
            harmless: [
                threads.start as usize..threads.end as usize,
                table..table + size_of::<Layouts>(),
            ],
            program: source::image(),
            watch: self.watch.cloned(),
            fence_rule: self.fence_rule,
            operand_rule: self.operand_rule,
            deeds: self.deeds.to_vec(),
            asked_byte: self.asked_byte,
            between: Arc::clone(self.between),
            cluster_number: self.number,
            history: self.history,
            ends_at_hazard: self.ends_at_hazard,
        }
    }
}

/// Runs a cluster. Returns the number of its choice points ([`crate::Delays`]).
///
/// # Safety
///
/// As [`crate::launch()`].
pub(crate) unsafe fn run_cluster(
    launch: &Launch,
    index: BlockIndex,
    layouts: &Layouts,
    suppress: Option<&Place>,
    tracing: Option<Tracing<'_>>,
) -> Result<u32, Fault> {
    WORKER.with_borrow_mut(|worker| {
        // SAFETY: passed on.
        unsafe { worker.run_cluster(launch, index, layouts, suppress, tracing) }
    })
}

struct TracingOn;

impl TracingOn {
    fn new() -> Self {
        // SAFETY: the slot is this OS thread's.
        unsafe { (*emulator_trace_slot()).exps = 0 };
        set_tracing(true);
        Self
    }
}

impl Drop for TracingOn {
    fn drop(&mut self) {
        set_tracing(false);
    }
}

impl Worker {
    unsafe fn run_cluster(
        &mut self,
        launch: &Launch,
        index: BlockIndex,
        layouts: &Layouts,
        suppress: Option<&Place>,
        tracing: Option<Tracing<'_>>,
    ) -> Result<u32, Fault> {
        let block_threads = launch.block.iter().product::<u32>();
        let (blocks, declared) = (launch.cluster, launch.dynamic_shared_bytes);
        self.watchdog.watch(launch.patience);
        self.reserve((blocks * block_threads) as usize)?;
        let shared = match blocks {
            1 => self.poisoned_block_memory(declared),
            _ => self.poisoned_cluster_memory(blocks as usize),
        };
        let cluster = Cluster {
            blocks,
            threads: block_threads,
            start: shared as usize,
            declared,
        };
        let run = self.start_run(launch, index, cluster, suppress, tracing.is_some());
        let contexts = self.contexts(launch, index, layouts, shared, &run);
        if let (Some(judge), Some(trace)) = (&run.judge, &tracing) {
            let setup = trace.setup(index, cluster, &contexts, layouts);
            judge.borrow_mut().start(setup);
        }
        let result = self.run_lanes(launch, &run, &contexts);
        let choice_points = run.block.borrow().choice_points();
        self.take_back(run, tracing);
        if let Err(fault) = result {
            self.used_shared_bytes = None;
            return Err(match blocks {
                1 => fault,
                _ => fault.localise(block_threads, index),
            });
        }
        for rank in 0..blocks {
            let block = [index[0] + rank, index[1], index[2]];
            self.check_guard(shared.wrapping_add(rank as usize * STRIDE), declared, block)?;
        }
        Ok(choice_points)
    }

    fn start_run(
        &mut self,
        launch: &Launch,
        index: BlockIndex,
        cluster: Cluster,
        suppress: Option<&Place>,
        is_traced: bool,
    ) -> Run {
        let linear_index = launch.linear_index(index);
        let block = Block::new(index, linear_index, cluster, launch.schedule);
        let mut judge = None;
        if is_traced {
            judge = Some(RefCell::new(self.judge.take().unwrap_or_default()));
        }
        Run {
            block: RefCell::new(block),
            copies: RefCell::new(std::mem::take(&mut self.copies)),
            stores: RefCell::default(),
            acts_at_issue: launch.schedule.acts_at_issue(),
            fault: RefCell::new(None),
            cluster,
            judge,
            suppress: suppress.cloned(),
            executing: Cell::new(None),
            spin: Spin::default(),
            switches: Cell::new(0),
            watched: Cell::new((0, 0)),
            patience: launch.patience,
            touching: Cell::new(None),
        }
    }

    /// Returns the contexts of a cluster's threads, whose memory is at `shared`.
    fn contexts(
        &self,
        launch: &Launch,
        index: BlockIndex,
        layouts: &Layouts,
        shared: *mut u8,
        run: &Run,
    ) -> Vec<ThreadContext> {
        let cluster = run.cluster;
        let [dim_x, dim_y, _] = launch.block;
        let mut contexts = Vec::with_capacity(cluster.all_threads() as usize);
        for thread in 0..cluster.all_threads() {
            let in_block = thread % cluster.threads;
            let rank = cluster.rank(thread);
            contexts.push(ThreadContext {
                thread_idx: [
                    in_block % dim_x,
                    in_block / dim_x % dim_y,
                    in_block / (dim_x * dim_y),
                ],
                block_idx: [index[0] + rank, index[1], index[2]],
                block_dim: launch.block,
                grid_dim: launch.grid,
                thread,
                lane: thread % 32,
                cluster_rank: rank,
                cluster_size: cluster.blocks,
                shared: shared.wrapping_add(cluster.base(thread)),
                layouts,
                run,
                yielder: Cell::new(std::ptr::null()),
                stack: self.stacks[thread as usize].addresses(),
            });
        }
        contexts
    }

    /// Runs the threads of a cluster, each on a stack of its own, until all have ended or one has
    /// failed.
    fn run_lanes(
        &mut self,
        launch: &Launch,
        run: &Run,
        contexts: &[ThreadContext],
    ) -> Result<(), Fault> {
        let is_traced = run.judge.is_some();
        let mut started = Vec::with_capacity(contexts.len());
        for (mut stack, context) in self.stacks.drain(..contexts.len()).zip(contexts) {
            stack.poison(is_traced);
            started.push(start_lane(launch, stack, context));
        }
        let mut lanes = Lanes {
            lanes: started,
            stacks: &mut self.stacks,
        };
        // Switched off before the lanes are dropped.
        let _tracing = is_traced.then(TracingOn::new);
        run_to_end(run, contexts, &mut lanes.lanes)
    }

    /// Takes back what a run has used, and the judge's outcome.
    fn take_back(&mut self, run: Run, tracing: Option<Tracing<'_>>) {
        if let (Some(cell), Some(trace)) = (run.judge, tracing) {
            let mut judge = cell.into_inner();
            // SAFETY: the slot is this OS thread's.
            *trace.outcome = judge.finish(unsafe { (*emulator_trace_slot()).exps });
            self.judge = Some(judge);
        }
        self.copies = run.copies.into_inner();
        for copies in &mut self.copies {
            copies.discard();
        }
    }

    fn reserve(&mut self, threads: usize) -> Result<(), Fault> {
        while self.stacks.len() < threads {
            let stack = LaneStack::new(self.stacks.len()).map_err(|error| Fault::NoMemory {
                what: format!("the stack of thread {} of a block", self.stacks.len()),
                error: error.to_string(),
            })?;
            self.stacks.push(stack);
        }
        if self.copies.len() < threads {
            self.copies.resize_with(threads, AsyncCopies::default);
        }
        Ok(())
    }

    /// Returns this OS thread's shared memory for one block.
    fn poisoned_block_memory(&mut self, declared: usize) -> *mut u8 {
        let shared = emulator_shared_memory();
        let used = self
            .used_shared_bytes
            .unwrap_or(MAX_SHARED_BYTES + GUARD_BYTES)
            .max(declared);
        // SAFETY: `shared` is this OS thread's, of MAX_SHARED_BYTES + GUARD_BYTES bytes; no kernel
        // is running on it.
        unsafe { shared.write_bytes(POISON, used) };
        self.used_shared_bytes = Some(declared);
        shared
    }

    /// Returns memory for a cluster, which starts on a boundary as demanding as that of one block.
    fn poisoned_cluster_memory(&mut self, blocks: usize) -> *mut u8 {
        self.cluster_memory.clear();
        self.cluster_memory
            .resize(blocks, SharedMemory([POISON; STRIDE]));
        self.cluster_memory.as_mut_ptr().cast()
    }

    /// Refuses a block that wrote behind its shared memory. (A write of poison there is not seen.)
    fn check_guard(
        &mut self,
        shared: *mut u8,
        declared: usize,
        block: BlockIndex,
    ) -> Result<(), Fault> {
        // SAFETY: as above; the slice does not outlive this function.
        let memory = unsafe { std::slice::from_raw_parts(shared, MAX_SHARED_BYTES + GUARD_BYTES) };
        for (chunk, bytes) in memory[declared..].chunks(4096).enumerate() {
            // A fold over the whole chunk is vectorised; a search is not.
            if bytes.iter().fold(POISON, |all, byte| all & byte) != POISON {
                let first = bytes
                    .iter()
                    .position(|&byte| byte != POISON)
                    .expect("the fold has found one");
                self.used_shared_bytes = None;
                return Err(Fault::SharedOverflow {
                    block,
                    declared,
                    offset: declared + chunk * 4096 + first,
                });
            }
        }
        Ok(())
    }
}

fn start_lane(launch: &Launch, stack: LaneStack, context: *const ThreadContext) -> Lane {
    let (entry, params) = (launch.entry, launch.params);
    Coroutine::with_stack(stack, move |yielder, ()| {
        // SAFETY: the context outlives its coroutine, which `Lanes` drops first; the launch's
        // caller vouches for the entry and its params.
        unsafe {
            (*context).yielder.set(yielder);
            entry(params);
        }
    })
}

/// The running thread's context, for the shim and the watchdog; reset on drop.
struct Current(*mut *const c_void);

impl Current {
    fn of_this_thread() -> Self {
        Self(emulator_current_slot())
    }

    fn set(&self, context: *const ThreadContext) {
        // SAFETY: the slot is this OS thread's. The shim reads it only while the thread set here
        // runs.
        unsafe { *self.0 = context.cast() };
    }
}

impl Drop for Current {
    fn drop(&mut self) {
        self.set(std::ptr::null());
    }
}

fn run_to_end(run: &Run, contexts: &[ThreadContext], lanes: &mut [Lane]) -> Result<(), Fault> {
    let current = Current::of_this_thread();
    while let Some(thread) = next_thread(run)? {
        current.set(&raw const contexts[thread as usize]);
        run.switches.set(run.switches.get() + 1);
        if run.judge.is_some() {
            watch_thread(run, thread, &contexts[thread as usize].stack);
        }
        match lanes[thread as usize].resume(()) {
            CoroutineResult::Yield(Pause::Waiting) => {}
            CoroutineResult::Yield(Pause::Faulted) => {
                let fault = run.fault.take();
                return Err(fault.expect("a thread that pauses as faulted has said why"));
            }
            CoroutineResult::Return(()) => end_thread(run, thread)?,
        }
    }
    run.check_end()
}

#[inline]
fn next_thread(run: &Run) -> Result<Option<u32>, Fault> {
    let mut block = run.block.borrow_mut();
    match block.take_ready() {
        Some(thread) => Ok(Some(thread)),
        None => block.next(),
    }
}

/// Tells the hooks of the traced build which memory belongs to the thread that runs next.
#[inline]
fn watch_thread(run: &Run, thread: u32, stack: &Range<usize>) {
    // SAFETY: the slot is this OS thread's, and nothing else refers to it now.
    let trace = unsafe { &mut *emulator_trace_slot() };
    (trace.stack_start, trace.stack_bytes) = (stack.start as u64, stack.len() as u64);
    run.watch_held(run.block.borrow_mut().products().held(thread));
    run.spin.reset();
}

/// Ends a thread that has returned, and completes the operations that waited for it.
fn end_thread(run: &Run, thread: u32) -> Result<(), Fault> {
    let warp = thread / 32;
    run.exit(thread)?;
    loop {
        let completed = run.block.borrow_mut().completed(warp);
        let Some(group) = completed else {
            return Ok(());
        };
        run.complete(warp, &group, None)?;
    }
}
