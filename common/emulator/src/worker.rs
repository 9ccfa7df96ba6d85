//! Runs blocks on the calling OS thread: coroutines, their stacks and the blocks' shared memory.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::sync::Arc;

use corosensei::{Coroutine, CoroutineResult};

use crate::async_copy::{AsyncCopies, POISON};
use crate::block::Block;
use crate::cluster::{Cluster, GUARD_BYTES, MAX_SHARED_BYTES, STRIDE};
use crate::crash::Watchdog;
use crate::fault::{Fault, Place};
use crate::grid::Launch;
use crate::judge::memory::Memory;
use crate::judge::observed::Watch;
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

/// As abi.h declares that of a block.
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
        let stacks = self.lanes.drain(..).map(|mut lane| {
            // SAFETY: a suspended thread stands in a callback of the FFI module, which holds nothing that needs
            // dropping there, called from device code, which owns nothing either: CUDA kernels can't. One that a signal has
            // stopped may have borrowed something of its run, which nobody will borrow again.
            unsafe { lane.force_reset() };
            lane.into_stack()
        });
        self.stacks.splice(0..0, stacks);
    }
}

pub(crate) struct Tracing<'a> {
    pub(crate) memory: &'a Arc<Memory>,
    pub(crate) watch: Option<&'a Arc<Watch>>,
    pub(crate) outcome: &'a mut Outcome,
}

pub(crate) unsafe fn run_cluster(
    launch: &Launch,
    index: [u32; 3],
    layouts: &Layouts,
    suppress: Option<&Place>,
    tracing: Option<Tracing<'_>>,
) -> Result<(), Fault> {
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
        index: [u32; 3],
        layouts: &Layouts,
        suppress: Option<&Place>,
        tracing: Option<Tracing<'_>>,
    ) -> Result<(), Fault> {
        let [dim_x, dim_y, dim_z] = launch.block;
        let of_block = dim_x * dim_y * dim_z;
        let threads = of_block * launch.cluster;
        self.watchdog.watch(launch.patience);
        self.reserve(threads as usize)?;
        let (blocks, declared) = (launch.cluster, launch.dynamic_shared_bytes);
        let shared = match blocks {
            1 => {
                let shared = emulator_shared_memory();
                self.poison_shared_memory(shared, declared);
                shared
            }
            _ => self.poisoned_cluster_memory(blocks as usize),
        };
        let cluster = Cluster {
            blocks,
            threads: of_block,
            start: shared as usize,
            declared,
        };
        let run = Run {
            block: RefCell::new(Block::new(
                index,
                launch.linear_index(index),
                cluster,
                launch.schedule,
            )),
            copies: RefCell::new(std::mem::take(&mut self.copies)),
            stores: RefCell::default(),
            acts_at_issue: launch.schedule.acts_at_issue(),
            fault: RefCell::new(None),
            cluster,
            judge: tracing
                .is_some()
                .then(|| RefCell::new(self.judge.take().unwrap_or_default())),
            suppress: suppress.cloned(),
            executing: Cell::new((0, 0, None)),
            spin: Spin::default(),
            switches: Cell::new(0),
            watched: Cell::new((0, 0)),
            patience: launch.patience,
            touching: Cell::new(None),
        };
        let contexts: Vec<ThreadContext> = (0..threads)
            .map(|thread| (thread, thread % of_block))
            .map(|(thread, in_block)| ThreadContext {
                thread_idx: [
                    in_block % dim_x,
                    in_block / dim_x % dim_y,
                    in_block / (dim_x * dim_y),
                ],
                block_idx: [index[0] + cluster.rank(thread), index[1], index[2]],
                block_dim: launch.block,
                grid_dim: launch.grid,
                thread,
                lane: thread % 32,
                cluster_rank: cluster.rank(thread),
                cluster_size: blocks,
                shared: shared.wrapping_add(cluster.base(thread)),
                layouts,
                run: &run,
                yielder: Cell::new(std::ptr::null()),
                stack: self.stacks[thread as usize].addresses(),
            })
            .collect();
        if let (Some(judge), Some(tracing)) = (&run.judge, &tracing) {
            let range = contexts.as_ptr_range();
            let layouts = std::ptr::from_ref(layouts) as usize;
            judge.borrow_mut().start(Setup {
                memory: Arc::clone(tracing.memory),
                block: index,
                cluster,
                harmless: [
                    range.start as usize..range.end as usize,
                    layouts..layouts + size_of::<Layouts>(),
                ],
                program: source::image(),
                watch: tracing.watch.cloned(),
            });
        }
        let lanes = self.stacks.drain(..threads as usize).zip(&contexts);
        let lanes = lanes
            .map(|(mut stack, context)| {
                stack.poison(tracing.is_some());
                start_lane(launch, stack, context)
            })
            .collect();
        let mut lanes = Lanes {
            lanes,
            stacks: &mut self.stacks,
        };
        let is_traced = tracing.is_some().then(TracingOn::new);
        let result = run_to_end(&run, &contexts, &mut lanes.lanes);
        drop(is_traced);
        drop(lanes);
        if let (Some(judge), Some(tracing)) = (run.judge, tracing) {
            let mut judge = judge.into_inner();
            // SAFETY: the slot is this OS thread's.
            *tracing.outcome = judge.finish(unsafe { (*emulator_trace_slot()).exps });
            self.judge = Some(judge);
        }

        self.copies = run.copies.into_inner();
        self.copies.iter_mut().for_each(AsyncCopies::discard);
        if let Err(fault) = result {
            self.used_shared_bytes = None;
            return Err(if blocks > 1 {
                fault.of_block(of_block, index)
            } else {
                fault
            });
        }
        for rank in 0..blocks {
            let block = [index[0] + rank, index[1], index[2]];
            self.check_guard(shared.wrapping_add(rank as usize * STRIDE), declared, block)?;
        }
        Ok(())
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

    fn poison_shared_memory(&mut self, shared: *mut u8, declared: usize) {
        let used = self
            .used_shared_bytes
            .unwrap_or(MAX_SHARED_BYTES + GUARD_BYTES)
            .max(declared);
        // SAFETY: `shared` is this OS thread's, of MAX_SHARED_BYTES + GUARD_BYTES bytes; no kernel is running on it.
        unsafe { shared.write_bytes(POISON, used) };
        self.used_shared_bytes = Some(declared);
    }

    /// Starts on a boundary as demanding as that of one block.
    fn poisoned_cluster_memory(&mut self, blocks: usize) -> *mut u8 {
        self.cluster_memory.clear();
        self.cluster_memory
            .resize(blocks, SharedMemory([POISON; STRIDE]));
        self.cluster_memory.as_mut_ptr().cast()
    }

    /// Whether the block wrote behind its shared memory. (A write of poison there is not seen.)
    fn check_guard(
        &mut self,
        shared: *mut u8,
        declared: usize,
        block: [u32; 3],
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
        // SAFETY: the context outlives its coroutine, which `Lanes` drops first; the launch's caller vouches for the
        // entry and its params.
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
        // SAFETY: the slot is this OS thread's. The shim reads it only while the thread set here runs.
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
    loop {
        let ready = run.block.borrow_mut().take_ready();
        let thread = match ready {
            Some(thread) => thread,
            None => {
                let next = run.block.borrow_mut().next()?;
                let Some(thread) = next else {
                    run.check_end()?;
                    return Ok(());
                };
                thread
            }
        };
        current.set(&raw const contexts[thread as usize]);
        run.switches.set(run.switches.get() + 1);
        if run.judge.is_some() {
            let stack = &contexts[thread as usize].stack;
            // SAFETY: as above.
            let trace = unsafe { &mut *emulator_trace_slot() };
            (trace.stack_start, trace.stack_bytes) = (stack.start as u64, stack.len() as u64);
            run.watch_held(run.block.borrow_mut().products().held(thread));
            run.spin.reset();
        }
        match lanes[thread as usize].resume(()) {
            CoroutineResult::Yield(Pause::Waiting) => {}
            CoroutineResult::Yield(Pause::Faulted) => {
                return Err(run
                    .fault
                    .take()
                    .expect("a thread that pauses as faulted has said why"));
            }
            CoroutineResult::Return(()) => {
                let warp = thread / 32;
                run.exit(thread)?;
                loop {
                    let group = run.block.borrow_mut().completed(warp);
                    let Some(group) = group else { break };
                    run.complete(warp, &group, None)?;
                }
            }
        }
    }
}
