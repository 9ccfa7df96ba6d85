//! A thread stores to another block's shared memory and adds the bytes to an mbarrier there. As with a TMA box, the store is
//! complete for whoever observes the end of that phase.

use crate::cluster::STRIDE;
use crate::fault::Fault;
use crate::judge::{Fork, Sync};
use crate::mbarrier::Misuse;
use crate::run::ThreadContext;
use crate::site::Site;
use crate::tma::Incoming;

use super::mbarrier::{Call, OF_CLUSTER};

const BYTES: usize = 16;

/// # Safety
/// As [`super::emulator_collective`]; `value` is readable.
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_store_async(
    thread: *const ThreadContext,
    rank: u32,
    smem: *mut u8,
    value: *const [u8; BYTES],
    object: *mut u64,
    site: Site,
) {
    // SAFETY: see above.
    let (context, value) = unsafe { (&*thread, *value) };
    let (run, operation) = (context.run(), "store_async");
    let refuse = |reason: String| -> ! {
        let (block, thread, operation) = (
            context.block_idx,
            Some(context.thread),
            operation.to_owned(),
        );
        context.fail(Fault::Tma {
            block,
            thread,
            operation,
            reason,
            place: site.place(),
        })
    };
    let cluster = run.cluster;
    if rank >= cluster.blocks {
        refuse(format!("block {rank} of a cluster of {}", cluster.blocks));
    }
    let operand = || format!("the destination of {operation}");
    context.demand_alignment(operand, smem as u64, BYTES as u64, site);
    // The same place in the other block.
    let there = |at: usize| {
        at.wrapping_sub(context.shared as usize)
            .wrapping_add(cluster.start + rank as usize * STRIDE)
    };
    let to = there(smem as usize);
    let Some(offset) = cluster.locate(to, BYTES) else {
        refuse(format!(
            "its destination is not in shared memory, of which the launch declared {}",
            cluster.declared
        ))
    };
    let call = Call {
        context,
        operation,
        object: there(object as usize) as *mut u64,
        site,
    };
    let barrier = call.used();
    let store = Incoming::Store {
        to: to as *mut [u8; BYTES],
        value,
        is_remote: rank != context.cluster_rank,
        site,
    };
    let issue = || -> Result<(), Misuse> {
        let mut block = run.block.borrow_mut();
        let object = block.mbarriers().get(barrier)?;
        object.issue(store)?;
        run.judge(|judge| {
            let origin = store.origin();
            let agent = *object.agents[origin as usize].get_or_insert_with(|| judge.agent());
            let (clock, first, count, site) = (
                object.issued(origin),
                context.thread,
                1,
                site.access_number(),
            );
            judge.store_async(
                &Fork {
                    agent,
                    clock,
                    first,
                    count,
                    site,
                },
                offset..offset + BYTES,
            );
        });
        let is_end = if run.acts_at_issue {
            // SAFETY: `locate` has found it in the shared memory of a block of the cluster, which lives as long as this run.
            object.land(true, |it| unsafe { it.land() })?
        } else {
            // SAFETY: likewise.
            unsafe { store.poison() };
            object.can_end()
        };
        block.mbarrier_arrived(barrier, is_end);
        Ok(())
    };
    issue().unwrap_or_else(|misuse| call.fail(misuse));
}

#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn emulator_mbarrier_wait_cluster(
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
