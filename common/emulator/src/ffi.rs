//! The door between the shim and the scheduler: the twin of `include/emulator/abi.h`.
//!
//! A callback runs on the stack of the CUDA thread that called it. It never suspends while it borrows the run's state
//! or owns a value that needs dropping: on a fault, suspended stacks are abandoned, not unwound.

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_void};
use std::ops::Range;

use corosensei::Yielder;

use crate::async_copy::AsyncCopies;
use crate::block::{Block, Progress};
use crate::fault::{Fault, Literal, Site};
use crate::layout::Layouts;
use crate::trace::{self, Judge, Matrix, MatrixCount, Stop, Suppress, Sync};
use crate::warp::{Collective, Group, Kind};

/// Why a CUDA thread gave up the processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pause {
    /// The block's state says what it waits for.
    Waiting,
    /// The run's `fault` is set; the thread must not be resumed.
    Faulted,
}

/// `EmulatorThread` of abi.h, and behind it what only the scheduler knows.
#[repr(C)]
pub(crate) struct ThreadContext {
    pub(crate) thread_idx: [u32; 3],
    pub(crate) block_idx: [u32; 3],
    pub(crate) block_dim: [u32; 3],
    pub(crate) grid_dim: [u32; 3],
    pub(crate) thread: u32,
    pub(crate) lane: u32,
    pub(crate) layouts: *const Layouts,
    pub(crate) run: *const Run,
    pub(crate) yielder: Cell<*const Yielder<(), Pause>>,
    /// Addresses of the thread's own stack.
    pub(crate) stack: Range<usize>,
}

/// `EmulatorTrace` of abi.h.
#[repr(C)]
pub(crate) struct TraceState {
    pub(crate) active: u64,
    pub(crate) stack_start: u64,
    pub(crate) stack_bytes: u64,
    pub(crate) exps: u64,
}

/// What the threads of one running block share.
pub(crate) struct Run {
    pub(crate) block: RefCell<Block>,
    pub(crate) copies: RefCell<Vec<AsyncCopies>>,
    pub(crate) fault: RefCell<Option<Fault>>,
    /// Addresses of the declared dynamic shared memory.
    pub(crate) shared: Range<usize>,
    /// Judges the accesses of a traced launch.
    pub(crate) judge: Option<RefCell<Box<Judge>>>,
    /// A synchronisation site that does nothing.
    pub(crate) suppress: Option<Suppress>,
    /// The warp-wide operation that is being executed: warp, lanes and site.
    pub(crate) executing: Cell<(u32, u32, Option<Site>)>,
}

unsafe extern "C" {
    /// Start of the calling OS thread's shared memory.
    pub(crate) safe fn emulator_shared_memory() -> *mut u8;
    /// The calling OS thread's `emulator_current`, which points to a [`ThreadContext`].
    pub(crate) safe fn emulator_current_slot() -> *mut *const c_void;
    /// The calling OS thread's `emulator_trace_state`.
    pub(crate) safe fn emulator_trace_slot() -> *mut TraceState;
    safe fn emulator_image_start() -> *const u8;
    safe fn emulator_image_end() -> *const u8;
}

/// Addresses of the program's own code, constants and static variables.
pub(crate) fn image() -> Range<usize> {
    emulator_image_start() as usize..emulator_image_end() as usize
}

/// Switches the reports of accesses on or off for the calling OS thread.
pub(crate) fn set_tracing(on: bool) {
    // SAFETY: the slot is this OS thread's, and nothing else refers to it now.
    unsafe { (*emulator_trace_slot()).active = on.into() };
}

impl ThreadContext {
    fn run(&self) -> &Run {
        // SAFETY: the worker keeps the run alive for as long as it resumes this thread.
        unsafe { &*self.run }
    }

    fn suspend(&self, pause: Pause) {
        // SAFETY: the coroutine's first act was to store its own yielder, which lives as long as its stack.
        unsafe { &*self.yielder.get() }.suspend(pause);
    }

    /// Records the fault and never returns: the worker abandons the block.
    fn fail(&self, fault: Fault) -> ! {
        *self.run().fault.borrow_mut() = Some(fault);
        loop {
            self.suspend(Pause::Faulted);
        }
    }
}

impl Run {
    /// Tells the judge something, if there is one.
    fn judge<T>(&self, tell: impl FnOnce(&mut Judge) -> T) -> Option<T> {
        self.judge.as_ref().map(|judge| tell(&mut judge.borrow_mut()))
    }

    fn suppresses(&self, site: Site) -> bool {
        self.suppress.as_ref().is_some_and(|suppress| site.is(&suppress.site))
    }

    /// What a warp-wide operation means to the judge: of them all, only `__syncwarp` orders memory.
    fn judge_collective(&self, warp: u32, group: &Group, live: u32) {
        self.judge(|judge| {
            match group.collective.kind() {
                Kind::SyncWarp => judge.warp_barrier(warp, group.arrived),
                Kind::Shuffle => judge.counters().shuffles += 1,
                Kind::Vote => judge.counters().votes += 1,
                Kind::MatrixCopy => {} // its execution has declared its accesses
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

    /// Carries out a complete group and lets its lanes go on.
    pub(crate) fn complete(&self, warp: u32, group: &Group, completer: Option<u32>) -> Result<Progress, Fault> {
        let mut block = self.block.borrow_mut();
        if let Some(execute) = group.collective.execute {
            let mut lane = 0;
            // The execution moves operands between the lanes' registers; what it does to memory it declares.
            self.executing.set((warp, group.arrived, Some(group.collective.site)));
            if self.judge.is_some() {
                set_tracing(false);
            }
            // SAFETY: the operands of the lanes in `arrived` were handed over by these lanes, which are suspended in
            // (or running) the call that did so; `execute` came with them and does not call back.
            let reason = unsafe { execute(block.operands(warp * 32).as_ptr(), group.arrived, &mut lane) };
            if self.judge.is_some() {
                set_tracing(true);
            }
            if !reason.is_null() {
                // SAFETY: a reason is a string literal.
                let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
                return Err(block.invalid(warp, lane, group, reason));
            }
        }
        self.judge_collective(warp, group, block.live(warp));
        Ok(block.release(warp, group, completer))
    }
}

/// # Safety
/// `thread` is the running thread's context and `collective` a live struct of the shim; so for all callbacks.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_collective(thread: *const ThreadContext, collective: *const Collective) {
    // SAFETY: see above.
    let (context, collective) = unsafe { (&*thread, &*collective) };
    let run = context.run();
    if collective.kind() == Kind::SyncWarp {
        run.judge(|judge| judge.reaches(Sync::WarpBarrier, trace::number(collective.site.key())));
        if run.suppresses(collective.site) {
            return;
        }
    }
    let arrival = run.block.borrow_mut().arrive(context.thread, collective);
    let progress = match arrival {
        Ok(Progress::Complete(group)) => run.complete(context.thread / 32, &group, Some(context.thread)),
        other => other,
    };
    match progress {
        Ok(Progress::Wait) => context.suspend(Pause::Waiting),
        Ok(_) => {}
        Err(fault) => context.fail(fault),
    }
}

/// # Safety
/// As [`emulator_collective`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_barrier(thread: *const ThreadContext, site: Site) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if run.suppresses(site) {
        run.judge(|judge| judge.reaches(Sync::Barrier, trace::number(site.key())));
        return;
    }
    let (progress, is_complete) = {
        let mut block = run.block.borrow_mut();
        let before = block.counts().barriers;
        let progress = block.arrive_at_barrier(context.thread, site);
        (progress, block.counts().barriers > before)
    };
    if is_complete {
        run.judge(|judge| judge.barrier(trace::number(site.key())));
    }
    match progress {
        Ok(Progress::Wait) => context.suspend(Pause::Waiting),
        Ok(_) => {}
        Err(fault) => context.fail(fault),
    }
}

/// `EmulatorTrap` of abi.h.
const MISALIGNED: u32 = 1;

/// # Safety
/// As [`emulator_collective`]; `message` is a string literal.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_trap(
    thread: *const ThreadContext,
    kind: u32,
    message: Literal,
    value: u64,
    required: u64,
    site: Site,
) -> ! {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let (block, thread, place) = (context.block_idx, context.thread, site.place());
    context.fail(match kind {
        MISALIGNED => Fault::Misaligned { block, thread, operand: message.text(), value, required, place },
        _ => Fault::Trap { block, thread, message: message.text(), place },
    })
}

/// # Safety
/// As [`emulator_collective`]; `src` is readable for `src_bytes` until the copy's wait.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_cp_async(
    thread: *const ThreadContext,
    dst: *mut c_void,
    src: *const c_void,
    bytes: u32,
    src_bytes: u32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if let Some(fault) = check_async_copy(context, dst as usize, src as usize, bytes, src_bytes, site) {
        context.fail(fault);
    }
    let (to, from) = (dst as usize, src as usize);
    let site = || trace::number(site.key());
    let judged = run.judge(|judge| judge.issue(context.thread, to, from, bytes as usize, src_bytes as usize, site()));
    let tag = match judged {
        Some(Ok(tag)) => tag,
        Some(Err(Stop)) => context.fail(Fault::Hazard { block: context.block_idx }),
        None => 0,
    };
    let copies = &mut run.copies.borrow_mut()[context.thread as usize];
    // SAFETY: dst was just found to lie in the block's shared memory, which lives as long as the OS thread; the kernel
    // vouches for src as it does on a GPU.
    unsafe { copies.issue(dst.cast(), src.cast(), bytes as usize, src_bytes as usize, tag) };
}

fn check_async_copy(
    context: &ThreadContext,
    dst: usize,
    src: usize,
    bytes: u32,
    src_bytes: u32,
    site: Site,
) -> Option<Fault> {
    let (block, thread) = (context.block_idx, context.thread);
    let required = u64::from(bytes);
    for (operand, address) in [("the destination of cp.async", dst), ("the source of cp.async", src)] {
        let value = address as u64;
        if !value.is_multiple_of(required) {
            let (operand, place) = (operand.to_owned(), site.place());
            return Some(Fault::Misaligned { block, thread, operand, value, required, place });
        }
    }
    let shared = &context.run().shared;
    let reason = if src_bytes > bytes {
        format!("reads {src_bytes} bytes to write {bytes}")
    } else if dst < shared.start || dst + bytes as usize > shared.end {
        let size = shared.len();
        match dst.checked_sub(shared.start) {
            Some(offset) if offset < 1 << 20 => {
                format!("its destination is byte {offset} of shared memory, of which the launch declared {size}")
            }
            _ => "its destination is not in shared memory".to_owned(),
        }
    } else {
        return None;
    };
    Some(Fault::AsyncCopy { block, thread, reason, place: site.place() })
}

/// # Safety
/// As [`emulator_collective`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_cp_async_commit(thread: *const ThreadContext, site: Site) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    run.judge(|judge| judge.reaches(Sync::Commit, trace::number(site.key())));
    if !run.suppresses(site) {
        run.copies.borrow_mut()[context.thread as usize].commit();
        run.judge(|judge| judge.commit(context.thread));
    }
}

/// # Safety
/// As [`emulator_collective`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_cp_async_wait(thread: *const ThreadContext, newest_groups: u32, site: Site) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    run.judge(|judge| judge.reaches(Sync::Wait, trace::number(site.key())));
    if run.suppresses(site) {
        return;
    }
    let landed = |tag| {
        run.judge(|judge| judge.landed(tag));
    };
    run.copies.borrow_mut()[context.thread as usize].wait(newest_groups as usize, landed);
    run.judge(|judge| judge.waited(context.thread, newest_groups, trace::number(site.key())));
}

/// `write` of `emulator_access`: the access may be made in pieces, so any address will do.
const IN_PIECES: u32 = 2;

/// # Safety
/// As [`emulator_collective`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_access(
    thread: *const ThreadContext,
    address: usize,
    bytes: u64,
    write: u32,
    pc: usize,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    judge_access(context, address, bytes as usize, write, trace::Key::Code(pc));
}

/// # Safety
/// As [`emulator_collective`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_access_at(
    thread: *const ThreadContext,
    address: usize,
    bytes: u64,
    write: u32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    if !context.stack.contains(&address) {
        judge_access(context, address, bytes as usize, write | IN_PIECES, site.key());
    }
}

#[inline]
fn judge_access(context: &ThreadContext, address: usize, bytes: usize, write: u32, key: trace::Key) {
    let (is_write, whole) = (write & 1 == 1, write & IN_PIECES == 0);
    let site = trace::number(key);
    let judged = context.run().judge(|judge| judge.access(context.thread, address, bytes, is_write, whole, site));
    if judged == Some(Err(Stop)) {
        context.fail(Fault::Hazard { block: context.block_idx });
    }
}

/// `EmulatorMatrixAccess` of abi.h.
#[repr(C)]
struct MatrixAccess {
    rows: *const usize,
    row_count: u32,
    row_bytes: u32,
    element_bytes: u32,
    write: u32,
    count: u32,
    distribution: u64,
}

/// # Safety
/// `access` is a live struct of the shim whose `rows` point to `row_count` addresses. Called from an execution only.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_matrix_access(access: *const MatrixAccess) -> bool {
    // SAFETY: see above.
    let access = unsafe { &*access };
    // SAFETY: see above.
    let rows = unsafe { std::slice::from_raw_parts(access.rows, access.row_count as usize) };
    // SAFETY: an execution runs while a block runs on this OS thread, and then the slot holds one of its contexts.
    let context = unsafe { &*(*emulator_current_slot()).cast::<ThreadContext>() };
    let run = context.run();
    let (warp, lanes, site) = run.executing.get();
    let Some(site) = site else { return true };
    let matrix = Matrix {
        warp,
        lanes,
        rows,
        row_bytes: access.row_bytes,
        element_bytes: access.element_bytes,
        write: access.write != 0,
        count: match access.count {
            0 => MatrixCount::Ldmatrix,
            1 => MatrixCount::Accumulator,
            _ => MatrixCount::Transposed,
        },
        distribution: access.distribution,
        site: trace::number(site.key()),
    };
    run.judge(|judge| judge.matrix(&matrix)) != Some(Err(Stop))
}
