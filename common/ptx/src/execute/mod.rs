//! Runs an entry as the body of a thread.
//!
//! A thread's registers, local memory and accumulators in flight are a slab that its OS thread
//! owns: a suspended frame is abandoned when its block fails, and nothing here is dropped then.

mod atomics;
mod control;
mod copies;
mod exchange;
mod flight;
mod frame;
mod matrix;
mod memory;
mod slab;
mod wmma;

use std::ffi::c_void;

use emulator::Launch;
use emulator::guest::{Site, Thread};

use crate::step::{Op, Step};
use flight::Flight;
use frame::Frame;
pub use frame::{Election, Invocation};
pub(crate) use slab::bytes_of_thread;

/// The body of each emulated thread: `Launch::entry`.
///
/// # Safety
/// `params` is an [`Invocation`] that outlives the launch, and the emulator calls this.
unsafe extern "C-unwind" fn thread(params: *const c_void) {
    // SAFETY: the caller's.
    let (invocation, running) = unsafe { (&*params.cast::<Invocation<'_>>(), Thread::running()) };
    Frame::start(running, invocation).run();
}

impl Invocation<'_> {
    /// Makes `launch` one of this program. Its dynamic shared memory becomes all that a block has.
    pub fn launch(&self, launch: &Launch) -> Launch {
        let statics = self.program.static_shared_bytes as usize;
        Launch {
            entry: thread,
            params: std::ptr::from_ref(self).cast(),
            dynamic_shared_bytes: statics + launch.dynamic_shared_bytes,
            ..*launch
        }
    }
}

impl Frame<'_> {
    fn flight(&self) -> Flight<'_> {
        Flight::new(self)
    }

    fn run(&self) {
        let steps = self.program.steps.as_slice();
        let (mut at, mut patience) = (0usize, control::Patience::new(self.thread));
        loop {
            let step = &steps[at];
            at += 1;
            if let Some(guard) = step.guard
                && self.is_set(guard.predicate) == guard.is_negated
            {
                continue;
            }
            if step.touches_product {
                self.flight().check(&step.op, step.site);
            }
            match &step.op {
                Op::One(apply, to, a) => self.set(*to, apply(self.get(*a))),
                Op::Two(apply, to, [a, b]) => self.set(*to, apply(self.get(*a), self.get(*b))),
                Op::Three(apply, to, [a, b, c]) => {
                    self.set(*to, apply(self.get(*a), self.get(*b), self.get(*c)));
                }
                Op::Branch(target) => {
                    let target_step = *target as usize;
                    if target_step < at {
                        patience.spend(self.thread, step.site);
                    }
                    at = target_step;
                }
                Op::Load(access) => self.load(access, step.site),
                Op::Store(access) => self.store(access, step.site),
                Op::Exit => return,
                _ => self.other(step),
            }
        }
    }

    /// Executes what is less frequent.
    #[inline(never)]
    fn other(&self, step: &Step) {
        let site = step.site;
        match &step.op {
            Op::Four(apply, to, [a, b, c, d]) => {
                let result = apply(self.get(*a), self.get(*b), self.get(*c), self.get(*d));
                self.set(*to, result);
            }
            Op::Exponential(apply, to, a) => {
                self.thread.count_exponential();
                self.set(*to, apply(self.get(*a)));
            }
            Op::Compare(compare) => self.compare(compare),
            Op::Atomic(atomic) => self.atomic(atomic, site),
            Op::Pack { to, parts, bits } => self.pack(*to, parts, *bits),
            Op::Unpack { from, parts, bits } => self.unpack(*from, parts, *bits),
            Op::Trap(reason) => self.thread.trap((*reason).to_owned(), site),
            Op::ToShared { .. }
            | Op::FromShared { .. }
            | Op::IsShared { .. }
            | Op::MapToRank { .. } => self.convert(&step.op, site),
            Op::Shuffle(shuffle) => self.shuffle(shuffle, site),
            Op::Vote(vote) => self.vote(vote, site),
            Op::Elect { leader, to, mask } => self.elect([*leader, *to], *mask, site),
            Op::Redux {
                reduction,
                to,
                value,
                mask,
            } => self.redux(*reduction, *to, [*value, *mask], site),
            Op::LoadMatrix(copy) => self.load_matrix(copy, site),
            Op::StoreMatrix(copy) => self.store_matrix(copy, site),
            Op::Mma(mma) => self.mma(mma, site),
            Op::LoadFragment(copy) => self.load_fragment(copy, site),
            Op::StoreFragment(copy) => self.store_fragment(copy, site),
            Op::Wmma(wmma) => self.wmma(wmma, site),
            Op::Wgmma(wgmma) => self.flight().issue(wgmma, site),
            Op::WgmmaFence => self.thread.wgmma_fence(site),
            Op::WgmmaCommit => self.flight().commit(site),
            Op::WgmmaWait(newest) => self.flight().wait(*newest, site),
            _ => self.synchronise(&step.op, site),
        }
    }

    fn synchronise(&self, op: &Op, site: Site) {
        let thread = self.thread;
        match op {
            Op::Barrier => thread.barrier(site),
            Op::NamedBarrier { id, threads, waits } => {
                self.named_barrier([*id, *threads], *waits, site);
            }
            Op::SyncWarp(mask) => thread.sync_warp(self.get_u32(*mask), site),
            Op::FenceMbarrierInit => thread.fence_mbarrier_init(site),
            Op::FenceProxyAsync => thread.fence_proxy_async(site),
            Op::SetRegisters { count, takes } => thread.set_registers(*count, *takes, site),
            Op::ClusterArrive { is_relaxed } => thread.cluster_arrive(*is_relaxed, site),
            Op::ClusterWait => thread.cluster_wait(site),
            _ => self.copy(op, site),
        }
    }
}
