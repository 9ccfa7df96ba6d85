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
use crate::warp::{Collective, Group};

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
}

/// What the threads of one running block share.
pub(crate) struct Run {
    pub(crate) block: RefCell<Block>,
    pub(crate) copies: RefCell<Vec<AsyncCopies>>,
    pub(crate) fault: RefCell<Option<Fault>>,
    /// Addresses of the declared dynamic shared memory.
    pub(crate) shared: Range<usize>,
}

unsafe extern "C" {
    /// Start of the calling OS thread's shared memory.
    pub(crate) safe fn emulator_shared_memory() -> *mut u8;
    /// The calling OS thread's `emulator_current`, which points to a [`ThreadContext`].
    pub(crate) safe fn emulator_current_slot() -> *mut *const c_void;
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
    /// Carries out a complete group and lets its lanes go on.
    pub(crate) fn complete(&self, warp: u32, group: &Group, completer: Option<u32>) -> Result<Progress, Fault> {
        let mut block = self.block.borrow_mut();
        if let Some(execute) = group.collective.execute {
            let mut lane = 0;
            // SAFETY: the operands of the lanes in `arrived` were handed over by these lanes, which are suspended in
            // (or running) the call that did so; `execute` came with them and does not call back.
            let reason = unsafe { execute(block.operands(warp * 32).as_ptr(), group.arrived, &mut lane) };
            if !reason.is_null() {
                // SAFETY: a reason is a string literal.
                let reason = unsafe { CStr::from_ptr(reason) }.to_string_lossy().into_owned();
                return Err(block.invalid(warp, lane, group, reason));
            }
        }
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
    let progress = context.run().block.borrow_mut().arrive_at_barrier(context.thread, site);
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
    let copies = &mut run.copies.borrow_mut()[context.thread as usize];
    // SAFETY: dst was just found to lie in the block's shared memory, which lives as long as the OS thread; the kernel
    // vouches for src as it does on a GPU.
    unsafe { copies.issue(dst.cast(), src.cast(), bytes as usize, src_bytes as usize) };
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
unsafe extern "C-unwind" fn emulator_cp_async_commit(thread: *const ThreadContext) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    context.run().copies.borrow_mut()[context.thread as usize].commit();
}

/// # Safety
/// As [`emulator_collective`].
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_cp_async_wait(thread: *const ThreadContext, newest_groups: u32) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    context.run().copies.borrow_mut()[context.thread as usize].wait(newest_groups as usize);
}
