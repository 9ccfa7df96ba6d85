//! Accesses to memory that the traced build reports, and those that warp-wide operations declare.

use std::cell::Cell;

use crate::fault::{Fault, Site};
use crate::trace::{self, Matrix, MatrixCount, Stop};

use super::{Pause, ThreadContext, emulator_current_slot};

/// `write` of `emulator_access`: the access may be made in pieces, so any address will do.
const IN_PIECES: u32 = 2;

/// # Safety
/// As [`super::emulator_collective`].
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
/// As [`super::emulator_collective`].
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
        judge_access(context, address, bytes as usize, write | IN_PIECES, site.access_key());
    }
}

/// What a thread has read since it did anything else: few variables, again and again, if it waits for another thread to
/// change them. Without a pause that would never come, since nothing else runs meanwhile.
#[derive(Debug, Default)]
pub(crate) struct Spin {
    variables: [Cell<usize>; 4],
    known: Cell<usize>,
    reads: Cell<u32>,
}

/// So many reads of the same variables in a row are taken for a wait.
const SPIN_READS: u32 = 4096;

impl Spin {
    /// Takes an access; true if the thread should let others run.
    #[inline]
    fn takes(&self, address: usize, is_write: bool) -> bool {
        let known = self.known.get();
        if is_write {
            self.reset();
        } else if self.variables[..known].iter().any(|variable| variable.get() == address) {
            self.reads.set(self.reads.get() + 1);
        } else if known < self.variables.len() {
            self.variables[known].set(address);
            self.known.set(known + 1);
        } else {
            self.reset();
        }
        self.reads.get() == SPIN_READS
    }

    /// The thread does something else.
    #[inline]
    pub(crate) fn reset(&self) {
        self.known.set(0);
        self.reads.set(0);
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
    if context.run().spin.takes(address, is_write) {
        context.run().block.borrow_mut().poll_memory(context.thread, site);
        context.suspend(Pause::Waiting);
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
        site: trace::number(site.access_key()),
    };
    run.judge(|judge| judge.matrix(&matrix)) != Some(Err(Stop))
}
