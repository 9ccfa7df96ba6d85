//! Boxes move independently of their thread. A load is complete for whoever observes the phase that
//! counts its bytes; a store's source may be reused by the thread that has waited for it, and is
//! visible to it by a proxy fence of the writing thread.

use crate::fault::Fault;
use crate::judge::{Stop, Sync, TmaBox};
use crate::mbarrier::Misuse;
use crate::run::{Run, ThreadContext};
use crate::site::Site;
use crate::tensor_map::{MAX_DIMENSIONS, TiledMap};
use crate::tma::{Incoming, Origin, Stores, Transfer};

use super::mbarrier::Call;

impl ThreadContext {
    pub(super) fn refuse(&self, operation: &str, reason: String, site: Site) -> ! {
        self.fail(Fault::Tma {
            block: self.block_idx,
            thread: Some(self.thread),
            operation: operation.to_owned(),
            reason,
            place: site.place(),
        })
    }

    fn demand_aligned(
        &self,
        operand: &str,
        operation: &str,
        address: usize,
        required: usize,
        site: Site,
    ) {
        self.demand_alignment(
            || format!("the {operand} of {operation}"),
            address as u64,
            required as u64,
            site,
        );
    }

    /// # Safety
    /// `encoded` is null or readable.
    unsafe fn map(&self, encoded: *const [u64; 16], operation: &str, site: Site) -> TiledMap {
        self.demand_aligned("tensor map", operation, encoded as usize, 64, site);
        // SAFETY: the caller's.
        match unsafe { encoded.as_ref() }.map(TiledMap::decode) {
            Some(Ok(map)) => map,
            Some(Err(error)) => self.refuse(operation, error.to_string(), site),
            None => self.refuse(operation, "its tensor map is null".to_owned(), site),
        }
    }

    /// # Safety
    /// `encoded` is null or readable.
    unsafe fn transfer(
        &self,
        encoded: *const [u64; 16],
        smem: *mut u8,
        at: [i32; MAX_DIMENSIONS],
        operation: &str,
        site: Site,
    ) -> Transfer {
        // SAFETY: the caller's.
        let map = unsafe { self.map(encoded, operation, site) };
        let (start, cluster) = (smem as usize, &self.run().cluster);
        if cluster.locate(start, map.box_bytes()).is_none() {
            let (declared, bytes) = (cluster.declared, map.box_bytes());
            let place = match start.checked_sub(self.shared as usize) {
                Some(offset) if offset < 1 << 20 => format!("byte {offset}"),
                _ => "an address elsewhere".to_owned(),
            };
            let reason = format!(
                "its box of {bytes} bytes at {place} is not in shared memory, of which the launch \
                 declared {declared}"
            );
            self.refuse(operation, reason, site);
        }
        self.demand_aligned("box", operation, start, 8 * map.swizzle as usize, site);
        // An H200 stops with "illegal instruction".
        let first = i64::from(at[0]) * i64::from(map.element_bytes);
        if first % 16 != 0 {
            let reason =
                format!("it starts at byte {first} of a row, and a box does at a multiple of 16");
            self.refuse(operation, reason, site);
        }
        Transfer {
            map,
            at,
            smem,
            site,
        }
    }

    fn offset(&self, transfer: &Transfer) -> usize {
        transfer.smem as usize - self.run().cluster.start
    }

    /// Stops the thread if the judge has stopped its block.
    pub(super) fn obey(&self, judgement: Judgement) {
        if judgement == Some(Err(Stop)) {
            self.fail(Fault::Hazard {
                block: self.block_idx,
            });
        }
    }
}

/// The answer of the judge; none in the plain build.
type Judgement = Option<Result<(), Stop>>;

fn judged_box(transfer: &Transfer, offset: usize) -> TmaBox<impl Iterator<Item = (usize, usize)>> {
    let rows = transfer.pieces().map(|piece| (piece.address, piece.bytes));
    TmaBox {
        offset,
        bytes: transfer.bytes(),
        rows,
        number: transfer.at[1].max(0) as u32 / transfer.map.box_extents[1],
    }
}

/// # Safety
/// As [`super::emulator_collective`]; `map` is null or points to 16 words, `at` to 4. So for all
/// callbacks here.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_tma_prefetch_map(
    thread: *const ThreadContext,
    map: *const [u64; 16],
    site: Site,
) {
    // SAFETY: see above.
    unsafe { (*thread).map(map, "tma_prefetch_map", site) };
}

/// # Safety
/// See [`emulator_tma_prefetch_map`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_tma_load(
    thread: *const ThreadContext,
    smem_box: *mut u8,
    map: *const [u64; 16],
    object: *mut u64,
    at: *const [i32; 4],
    site: Site,
) {
    // SAFETY: see emulator_tma_prefetch_map.
    unsafe { load(&*thread, smem_box, map, object, in_five(*at), site) }
}

/// Returns the coordinates of a kernel whose tensors have four dimensions.
fn in_five([column, row, head, batch]: [i32; 4]) -> [i32; MAX_DIMENSIONS] {
    [column, row, head, batch, 0]
}

/// # Safety
/// See [`emulator_tma_prefetch_map`].
pub(crate) unsafe fn load(
    context: &ThreadContext,
    smem_box: *mut u8,
    map: *const [u64; 16],
    object: *mut u64,
    at: [i32; MAX_DIMENSIONS],
    site: Site,
) {
    let run = context.run();
    // SAFETY: the caller's.
    let transfer = unsafe { context.transfer(map, smem_box, at, "tma_load", site) };
    let call = Call {
        context,
        operation: "tma_load",
        object,
        site,
    };
    let barrier = call.used();
    run.judge(|judge| judge.deeds().does(call.doing(barrier)));
    let judgement = issue_load(&call, barrier, &transfer);
    context.obey(judgement.unwrap_or_else(|misuse| call.fail(misuse)));
    start_load(run, barrier, &transfer).unwrap_or_else(|misuse| call.fail(misuse));
}

/// Announces a load to its mbarrier and to the judge.
fn issue_load(call: &Call<'_>, barrier: usize, transfer: &Transfer) -> Result<Judgement, Misuse> {
    let (context, run) = (call.context, call.context.run());
    let mut block = run.block.borrow_mut();
    let object = block.mbarriers().get_for_tma(barrier)?;
    object.issue(Incoming::Box(*transfer))?;
    Ok(run.judge(|judge| {
        let fork = call.fork(object, Origin::Block, judge);
        judge.tma_load(&fork, judged_box(transfer, context.offset(transfer)))
    }))
}

/// Lands a load at once, or makes its box poison, as the schedule asks.
fn start_load(run: &Run, barrier: usize, transfer: &Transfer) -> Result<(), Misuse> {
    let mut block = run.block.borrow_mut();
    let object = block.mbarriers().get(barrier)?;
    let is_end = if run.acts_at_issue {
        // SAFETY: the box was just found to lie in the block's shared memory, which lives as long
        // as the OS thread; the launch's caller vouches for the map's tensor.
        object.land(true, |load| unsafe { load.land() })?
    } else {
        // SAFETY: likewise.
        unsafe { transfer.poison() };
        object.can_end()
    };
    block.mbarrier_arrived(barrier, is_end);
    Ok(())
}

/// # Safety
/// See [`emulator_tma_prefetch_map`].
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_tma_store(
    thread: *const ThreadContext,
    map: *const [u64; 16],
    smem_box: *mut u8,
    at: *const [i32; 4],
    site: Site,
) {
    // SAFETY: see emulator_tma_prefetch_map.
    unsafe { store(&*thread, map, smem_box, in_five(*at), site) }
}

/// # Safety
/// See [`emulator_tma_prefetch_map`].
pub(crate) unsafe fn store(
    context: &ThreadContext,
    map: *const [u64; 16],
    smem_box: *mut u8,
    at: [i32; MAX_DIMENSIONS],
    site: Site,
) {
    let run = context.run();
    // SAFETY: the caller's.
    let transfer = unsafe { context.transfer(map, smem_box, at, "tma_store", site) };
    if transfer.at.iter().any(|&coordinate| coordinate < 0) {
        let reason = format!(
            "it starts at {:?} (innermost first), and a store may not before 0",
            transfer.at
        );
        context.refuse("tma_store", reason, site);
    }
    let doing = context.doing("tma_store", site, 0);
    run.judge(|judge| judge.deeds().does(doing));
    let judgement = run.judge(|judge| {
        let mut all_stores = run.stores.borrow_mut();
        let stores = stores_of(&mut all_stores, context.thread);
        let agents = *stores
            .agents
            .get_or_insert_with(|| [judge.agent(), judge.agent()]);
        judge.tma_store(
            context.thread,
            agents,
            stores.next(),
            site.access_number(),
            judged_box(&transfer, context.offset(&transfer)),
            &transfer.inside(),
        )
    });
    context.obey(judgement);
    if run.acts_at_issue {
        // SAFETY: the box was just found to lie in the block's shared memory; the launch's caller
        // vouches for the map's tensor.
        unsafe { transfer.store() };
    }
    stores_of(&mut run.stores.borrow_mut(), context.thread).issue(transfer);
}

fn stores_of(stores: &mut Vec<Stores>, thread: u32) -> &mut Stores {
    let index = thread as usize;
    if stores.len() <= index {
        stores.resize_with(index + 1, Stores::default);
    }
    &mut stores[index]
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_tma_store_commit(
    thread: *const ThreadContext,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if run.reaches(Sync::StoreCommit, site) {
        stores_of(&mut run.stores.borrow_mut(), context.thread).commit();
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_tma_store_wait_read(
    thread: *const ThreadContext,
    newest_groups: u32,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    let context = unsafe { &*thread };
    let run = context.run();
    if !run.reaches(Sync::StoreWaitRead, site) {
        return;
    }
    let doing = context.doing(Sync::StoreWaitRead.operation(), site, newest_groups);
    run.judge(|judge| judge.deeds().begins(doing));
    wait_read(context, newest_groups as usize);
    run.judge(|judge| judge.deeds().ends(context.thread));
}

/// Waits until all groups but the newest ones have written global memory, too.
pub(crate) fn wait_written(context: &ThreadContext, newest_groups: u32, site: Site) {
    let (run, newest) = (context.run(), newest_groups as usize);
    if !run.reaches(Sync::StoreWait, site) {
        return;
    }
    wait_read(context, newest);
    let mut all_stores = run.stores.borrow_mut();
    let stores = stores_of(&mut all_stores, context.thread);
    let last = stores.wait_written(newest);
    if let (Some(number), Some([_, writes])) = (last, stores.agents) {
        run.judge(|judge| judge.complete(context.thread, writes, number));
    }
}

fn wait_read(context: &ThreadContext, newest: usize) {
    let run = context.run();
    let mut all_stores = run.stores.borrow_mut();
    let stores = stores_of(&mut all_stores, context.thread);
    let last = stores.wait_read(newest, |store| {
        if !run.acts_at_issue {
            // SAFETY: when it was issued, its box was found to lie in the block's shared memory;
            // the launch's caller vouches for the map's tensor.
            unsafe { store.store() };
        }
    });
    if let (Some(number), Some([reads, _])) = (last, stores.agents) {
        run.judge(|judge| judge.complete(context.thread, reads, number));
    }
}

#[unsafe(no_mangle)]
pub(crate) unsafe extern "C-unwind" fn emulator_fence_proxy_async(
    thread: *const ThreadContext,
    site: Site,
) {
    // SAFETY: see emulator_collective.
    fence_proxy(unsafe { &*thread }, site);
}

/// Fences what the thread has stored. Returns whether it does: a fence that is suppressed does not.
fn fence_proxy(context: &ThreadContext, site: Site) -> bool {
    let run = context.run();
    let is_reached = run.reaches(Sync::FenceProxy, site);
    if is_reached {
        run.judge(|judge| judge.fence_proxy(context.thread));
    }
    is_reached
}

/// Fences what the thread has stored, the mbarriers that it has initialised among it. CUDA's own
/// examples publish them so.
pub(crate) fn fence_proxy_and_mbarriers(context: &ThreadContext, site: Site) {
    if fence_proxy(context, site) {
        let mut block = context.run().block.borrow_mut();
        block.fence_mbarriers(context.thread);
    }
}
