//! cp.async: only the thread that issued a copy can wait for it, unless it makes the copy arrive at
//! an mbarrier.

use std::ffi::c_void;

use crate::fault::Fault;
use crate::judge::{Stop, Sync};
use crate::run::ThreadContext;
use crate::site::Site;

/// # Safety
/// As [`super::emulator_collective`]; `src` is readable for `src_bytes` until the copy's wait.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_cp_async(
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
    let (to, from) = (dst as usize, src as usize);
    if let Some(fault) = check_async_copy(context, to, from, bytes, src_bytes, site) {
        context.fail(fault);
    }
    let (bytes_to, bytes_from) = (bytes as usize, src_bytes as usize);
    let doing = context.doing("cp_async", site, 0);
    run.judge(|judge| judge.deeds().does(doing));
    let judgement = run.judge(|judge| {
        let number = site.access_number();
        judge.issue(context.thread, to, from, bytes_to, bytes_from, number)
    });
    let tag = match judgement {
        Some(Ok(tag)) => tag,
        Some(Err(Stop)) => context.fail(Fault::Hazard {
            block: context.block_idx,
        }),
        None => 0,
    };
    // SAFETY: the kernel vouches for src as it does on a GPU, or is stopped.
    unsafe { run.touch(src.cast(), bytes_from, site) };
    let copies = &mut run.copies.borrow_mut()[context.thread as usize];
    // SAFETY: dst was just found to lie in the block's shared memory, which lives as long as the OS
    // thread; the kernel vouches for src as it does on a GPU.
    unsafe { copies.issue(dst.cast(), src.cast(), bytes_to, bytes_from, tag) };
}

fn check_async_copy(
    context: &ThreadContext,
    dst: usize,
    src: usize,
    bytes: u32,
    src_bytes: u32,
    site: Site,
) -> Option<Fault> {
    for (operand, address) in [
        ("the destination of cp.async", dst),
        ("the source of cp.async", src),
    ] {
        let fault = context.misaligned(
            || operand.to_owned(),
            address as u64,
            u64::from(bytes),
            site,
        );
        if fault.is_some() {
            return fault;
        }
    }
    let cluster = &context.run().cluster;
    let reason = if src_bytes > bytes {
        format!("reads {src_bytes} bytes to write {bytes}")
    } else if cluster.locate(dst, bytes as usize).is_none() {
        match dst.checked_sub(context.shared as usize) {
            Some(offset) if offset < 1 << 20 => format!(
                "its destination is byte {offset} of shared memory, of which the launch declared \
                 {}",
                cluster.declared
            ),
            _ => "its destination is not in shared memory".to_owned(),
        }
    } else {
        return None;
    };
    Some(Fault::AsyncCopy {
        block: context.block_idx,
        thread: context.thread,
        reason,
        place: site.place(),
    })
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_cp_async_commit(
    thread: *const ThreadContext,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if run.reaches(Sync::Commit, site) {
        run.copies.borrow_mut()[context.thread as usize].commit();
        run.judge(|judge| judge.commit(context.thread));
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_cp_async_wait(
    thread: *const ThreadContext,
    newest_groups: u32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if !run.reaches(Sync::Wait, site) {
        return;
    }
    let doing = context.doing(Sync::Wait.operation(), site, newest_groups);
    run.judge(|judge| judge.deeds().begins(doing));
    let copies = &mut run.copies.borrow_mut()[context.thread as usize];
    let covered = copies.wait(newest_groups as usize, |tag| {
        run.judge(|judge| judge.landed(tag));
    });
    run.judge(|judge| judge.waited(context.thread, newest_groups, covered, site.number()));
    run.judge(|judge| judge.deeds().ends(context.thread));
}
