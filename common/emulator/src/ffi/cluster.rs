//! A thread stores to another block's shared memory and adds the bytes to an mbarrier there. As
//! with a TMA box, the store is complete for whoever observes the end of that phase.

use std::ops::Range;

use crate::cluster::STRIDE;
use crate::judge::Sync;
use crate::mbarrier::Misuse;
use crate::run::ThreadContext;
use crate::site::Site;
use crate::tma::Incoming;

use super::mbarrier::{Call, OF_CLUSTER};

const BYTES: usize = 16;

/// # Safety
/// As [`super::emulator_collective`]; `bytes` are readable.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_store_async(
    thread: *const ThreadContext,
    rank: u32,
    smem: *mut u8,
    bytes: *const [u8; BYTES],
    object: *mut u64,
    site: Site,
) {
    // SAFETY: see above.
    let (context, value) = unsafe { (&*thread, *bytes) };
    let operation = "store_async";
    let cluster = context.run().cluster;
    if rank >= cluster.blocks {
        let reason = format!("block {rank} of a cluster of {}", cluster.blocks);
        context.refuse(operation, reason, site);
    }
    context.demand_alignment(
        || format!("the destination of {operation}"),
        smem as u64,
        BYTES as u64,
        site,
    );
    // The same place in the other block.
    let there = |at: usize| {
        at.wrapping_sub(context.shared as usize)
            .wrapping_add(cluster.start + rank as usize * STRIDE)
    };
    let to = there(smem as usize);
    let Some(offset) = cluster.locate(to, BYTES) else {
        let reason = format!(
            "its destination is not in shared memory, of which the launch declared {}",
            cluster.declared
        );
        context.refuse(operation, reason, site)
    };
    let call = Call {
        context,
        operation,
        object: there(object as usize) as *mut u64,
        site,
    };
    let barrier = call.used();
    context
        .run()
        .judge(|judge| judge.deeds().does(call.doing(barrier)));
    let store = Incoming::Store {
        to: to as *mut [u8; BYTES],
        value,
        is_remote: rank != context.cluster_rank,
        site,
    };
    start_store(&call, barrier, &store, offset..offset + BYTES)
        .unwrap_or_else(|misuse| call.fail(misuse));
}

/// Announces a store to its mbarrier and to the judge, and lands it or makes its destination
/// poison, as the schedule asks.
fn start_store(
    call: &Call<'_>,
    barrier: usize,
    store: &Incoming,
    range: Range<usize>,
) -> Result<(), Misuse> {
    let run = call.context.run();
    let mut block = run.block.borrow_mut();
    let object = block.mbarriers().get(barrier)?;
    object.issue(*store)?;
    run.judge(|judge| {
        let fork = call.fork(object, store.origin(), judge);
        judge.store_async(&fork, range);
    });
    let is_end = if run.acts_at_issue {
        // SAFETY: `locate` has found it in the shared memory of a block of the cluster, which lives
        // as long as this run.
        object.land(true, |it| unsafe { it.land() })?
    } else {
        // SAFETY: likewise.
        unsafe { store.poison() };
        object.can_end()
    };
    block.mbarrier_arrived(barrier, is_end);
    Ok(())
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_mbarrier_wait_cluster(
    thread: *const ThreadContext,
    object: *mut u64,
    parity: i32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    if let Some(call) = Call::at(unsafe { &*thread }, Sync::PhaseWaitCluster, object, site) {
        call.wait(parity, OF_CLUSTER);
    }
}
