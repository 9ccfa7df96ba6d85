use std::ops::Range;

use crate::calls::Frame;
use crate::fault::Fault;
use crate::judge::observed::{Shown, Step};
use crate::judge::order::How;
use crate::judge::requests::MatrixCount;
use crate::judge::{Matrix, Stop, StrongOrder};
use crate::run::{Executing, Pause, ThreadContext, emulator_current_slot};
use crate::site::{Literal, Site, number_of_caller};

const IN_PIECES: u32 = 2;

/// # Safety
/// As [`number_of_caller`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn emulator_calls(frame: *const Frame) -> u32 {
    // SAFETY: passed on.
    unsafe { number_of_caller(frame) }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_access(
    thread: *const ThreadContext,
    address: usize,
    bytes: u64,
    write: u32,
    frame: *const Frame,
) {
    // SAFETY: see emulator_collective.
    let (context, site) = unsafe { (&*thread, number_of_caller(frame)) };
    judge_access(context, address, bytes as usize, write, site);
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_access_at(
    thread: *const ThreadContext,
    address: usize,
    bytes: u64,
    write: u32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let (count, number) = (bytes as usize, site.access_number());
    if context.stack.contains(&address) {
        judge_held(context, address, count, write, number);
    } else {
        judge_access(context, address, count, write | IN_PIECES, number);
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_held_access(
    thread: *const ThreadContext,
    address: usize,
    bytes: u64,
    write: u32,
    frame: *const Frame,
) {
    // SAFETY: see emulator_collective.
    let (context, site) = unsafe { (&*thread, number_of_caller(frame)) };
    judge_held(context, address, bytes as usize, write, site);
}

/// # Safety
/// As [`super::emulator_collective`]; `array` is a string of the kernel's build.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_no_element(
    thread: *const ThreadContext,
    array: Literal,
    index: i64,
    site: Site,
) -> ! {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let access = format!("element {index} of {}", array.text().replace('\'', ""));
    context.fail(Fault::OutOfBounds {
        block: context.block_idx,
        thread: context.thread,
        access,
        place: site.place(),
    })
}

pub(crate) fn judge_held(
    context: &ThreadContext,
    address: usize,
    bytes: usize,
    write: u32,
    site: u32,
) {
    let run = context.run();
    let is_write = write & 1 == 1;
    let bytes_touched = address..address + bytes;
    let touched = {
        let mut block = run.block.borrow_mut();
        block
            .products()
            .touched(context.thread, bytes_touched, is_write)
    };
    if let Some(held) = touched {
        run.judge(|judge| judge.held_registers(context.thread, is_write, site, held));
        context.fail(Fault::Hazard {
            block: context.block_idx,
        });
    }
}

/// Judges a store of these bytes.
pub(crate) fn judge_store(context: &ThreadContext, address: usize, value: &[u8], site: u32) {
    let (run, thread) = (context.run(), context.thread);
    let judgement = run.judge(|judge| judge.store(thread, address, value, site));
    context.obey(judgement);
    run.spin.reset();
}

/// Judges a strong operation. One that `polls` again and again waits for another thread.
pub(crate) fn judge_strong(
    context: &ThreadContext,
    bytes_touched: Range<usize>,
    how: How,
    order: StrongOrder,
    polls: bool,
    site: u32,
) {
    let (run, thread) = (context.run(), context.thread);
    let (address, bytes) = (bytes_touched.start, bytes_touched.len());
    // What it acquires is what has been released when it runs: it does not suspend after that.
    if run.spin.takes(address, !polls) {
        run.block.borrow_mut().poll_memory(thread, site);
        context.suspend(Pause::Waiting);
    }
    let judgement = run.judge(|judge| judge.strong(thread, address, bytes, how, order, site));
    context.obey(judgement);
}

#[inline]
pub(crate) fn judge_access(
    context: &ThreadContext,
    address: usize,
    bytes: usize,
    write: u32,
    site: u32,
) {
    let (is_write, is_whole) = (write & 1 == 1, write & IN_PIECES == 0);
    let (run, thread) = (context.run(), context.thread);
    let judgement =
        run.judge(|judge| judge.access(thread, address, bytes, is_write, is_whole, site));
    context.obey(judgement);
    if run.spin.takes(address, is_write) {
        run.block.borrow_mut().poll_memory(thread, site);
        context.suspend(Pause::Waiting);
    }
}

/// `EmulatorMatrixAccess` of abi.h.
#[repr(C)]
pub(crate) struct MatrixAccess {
    pub(crate) rows: *const usize,
    pub(crate) row_count: u32,
    pub(crate) row_bytes: u32,
    pub(crate) element_bytes: u32,
    pub(crate) write: u32,
    pub(crate) count: u32,
    pub(crate) distribution: u64,
}

/// # Safety
/// `matrix` is a live struct of the shim whose `rows` point to `row_count` addresses. Called from
/// an execution only.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_matrix_access(matrix: *const MatrixAccess) -> bool {
    // SAFETY: see above.
    let access = unsafe { &*matrix };
    // SAFETY: see above.
    let rows = unsafe { std::slice::from_raw_parts(access.rows, access.row_count as usize) };
    // SAFETY: an execution runs while a block runs on this OS thread, and then the slot holds one
    // of its contexts.
    let context = unsafe { &*(*emulator_current_slot()).cast::<ThreadContext>() };
    let run = context.run();
    let Some(Executing { warp, lanes, site }) = run.executing.get() else {
        return true;
    };
    let judged = Matrix {
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
        site: site.access_number(),
    };
    run.judge(|judge| judge.matrix(&judged)) != Some(Err(Stop))
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_observes(thread: *const ThreadContext) -> bool {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    context.run().judge(|judge| judge.is_watching()) == Some(true)
}

/// # Safety
/// As [`super::emulator_collective`]; `shown` is a live struct of the shim.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_observe(
    thread: *const ThreadContext,
    shown: *const Shown,
    site: Site,
) {
    // SAFETY: see above.
    let (context, value) = unsafe { (&*thread, *shown) };
    context
        .run()
        .judge(|judge| judge.shows(value, context.thread, site.access_number()));
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_step(
    thread: *const ThreadContext,
    what: u32,
    value: i32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    if let Some(step) = Step::from_number(what) {
        context
            .run()
            .judge(|judge| judge.steps(context.thread, step, value, site.access_number()));
    }
}
