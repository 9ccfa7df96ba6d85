//! The callbacks of `include/emulator/abi.h`.
//!
//! A callback runs on the stack of the CUDA thread that called it. It never suspends while it
//! borrows the run's state or owns a value that needs dropping: on a fault, suspended stacks are
//! abandoned, not unwound.
//!
//! What a primitive means to the judge of a traced launch is said once, where it is carried out:
//! `emulator_barrier`, `judge_collective` and `pass_named` of [`crate::run`] for warp-wide
//! operations, `cp_async`, `mbarrier`, `tma` and `cluster`.

pub(crate) mod access;
pub(crate) mod cluster;
pub(crate) mod cp_async;
pub(crate) mod mbarrier;
pub(crate) mod tma;

use crate::block::Progress;
use crate::fault::Fault;
use crate::judge::Sync;
use crate::judge::deeds::Doing;
use crate::run::{Pause, ThreadContext};
use crate::site::{Literal, Site};
use crate::warp::{Collective, Kind};

/// # Safety
/// `thread` is the running thread's context and `collective` a live struct of the shim; so for all
/// callbacks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_collective(
    thread: *const ThreadContext,
    collective: *const Collective,
) {
    // SAFETY: see above.
    let (context, call) = unsafe { (&*thread, &*collective) };
    let run = context.run();
    note_collective(context, call);
    // Only operations that synchronise are told to the judge on arrival and can be suppressed.
    let is_plain = call.execute.is_some() || run.judge.is_none() && run.suppress.is_none();
    if is_plain && run.block.borrow_mut().join(context.thread, call) {
        return context.suspend(Pause::Waiting);
    }
    arrive(context, call);
}

#[inline(never)]
fn arrive(context: &ThreadContext, collective: &Collective) {
    let run = context.run();
    if let Some(sync) = collective.kind().sync() {
        run.judge(|judge| judge.reaches(sync, collective.site.number()));
        if run.suppresses(collective.site) {
            return;
        }
    }
    let arrival = run.block.borrow_mut().arrive(context.thread, collective);
    let progress = match arrival {
        Ok(Progress::Complete(group)) => {
            run.complete(context.thread / 32, &group, Some(context.thread))
        }
        other => other,
    };
    match progress {
        Ok(Progress::Wait) => context.suspend(Pause::Waiting),
        Ok(_) => {}
        Err(fault) => context.fail(fault),
    }
    run.judge(|judge| judge.deeds().ends(context.thread));
}

/// Notes what a warp does, or that a wait of it begins.
fn note_collective(context: &ThreadContext, call: &Collective) {
    let kind = call.kind();
    context.run().judge(|judge| {
        let deeds = judge.deeds();
        if !deeds.is_on() {
            return;
        }
        let name = call.name.get().to_str().unwrap_or_default();
        let doing = context.doing(name, call.site, call.agree[0] as u32);
        match kind {
            Kind::NamedSync | Kind::ClusterWait | Kind::WgmmaWait | Kind::TakeRegisters => {
                deeds.begins(doing);
            }
            Kind::NamedArrive
            | Kind::ClusterArrive
            | Kind::ClusterArriveRelaxed
            | Kind::WgmmaCommit => deeds.marks(doing),
            _ => deeds.does(Doing { object: 0, ..doing }),
        }
    });
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_barrier(thread: *const ThreadContext, site: Site) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if run.suppresses(site) {
        run.judge(|judge| judge.reaches(Sync::Barrier, site.number()));
        return;
    }
    let doing = context.doing(Sync::Barrier.operation(), site, 0);
    run.judge(|judge| judge.deeds().begins(doing));
    let (progress, is_complete) = {
        let mut block = run.block.borrow_mut();
        let before = block.barriers();
        let progress = block.arrive_at_barrier(context.thread, site);
        (progress, block.barriers() > before)
    };
    if is_complete {
        run.judge(|judge| judge.barrier(context.thread, site.number()));
    }
    match progress {
        Ok(Progress::Wait) => context.suspend(Pause::Waiting),
        Ok(_) => {}
        Err(fault) => context.fail(fault),
    }
    run.judge(|judge| judge.deeds().ends(context.thread));
}

/// `EmulatorTrap` of abi.h.
const MISALIGNED: u32 = 1;

/// # Safety
/// As [`emulator_collective`]; `message` is a string literal.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_trap(
    thread: *const ThreadContext,
    kind: u32,
    message: Literal,
    value: u64,
    required: u64,
    site: Site,
) -> ! {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let (block, text, place) = (context.block_idx, message.text(), site.place());
    context.fail(match kind {
        MISALIGNED => Fault::Misaligned {
            block,
            thread: context.thread,
            operand: text,
            value,
            required,
            place,
        },
        _ => Fault::Trap {
            block,
            thread: context.thread,
            message: text,
            place,
        },
    })
}
