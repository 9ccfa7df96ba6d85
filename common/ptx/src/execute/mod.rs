//! Runs an entry as the body of a thread.
//!
//! A thread's registers, local memory and accumulators in flight are a slab that its OS thread
//! owns: a suspended frame is abandoned when its block fails, and nothing here is dropped then.

mod atomics;
mod control;
mod copies;
mod exchange;
mod flight;
mod matrix;
mod memory;
mod slab;
mod wmma;

use std::ffi::c_void;

use emulator::Launch;
use emulator::guest::{Site, Thread};
use emulator::trace::{Access, Allocation};

use crate::program::Program;
use crate::step::{Address, Op, Slot, Step};
use flight::Flight;
use slab::Slab;
pub(crate) use slab::bytes_of_thread;

/// A program and the arguments of one launch.
#[derive(Debug)]
pub struct Invocation<'a> {
    program: &'a Program,
    parameters: *const u8,
    globals: Vec<u8>,
    dynamic_shared_bytes: u32,
    election: Election,
}

/// The lane that `elect.sync` elects of those that it names. The PTX ISA leaves it open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Election {
    /// Lane 0 or 31, as the schedule says.
    #[default]
    AsScheduled,
    /// What kernels count on that ask for thread 0 elsewhere.
    Lowest,
    Highest,
}

impl<'a> Invocation<'a> {
    /// Binds a program to its parameters.
    ///
    /// # Safety
    /// `parameters` is aligned as the entry declares and holds as many bytes as it takes; they and
    /// all that they point to outlive the launch.
    pub unsafe fn new(
        program: &'a Program,
        parameters: *const c_void,
        dynamic_shared_bytes: usize,
    ) -> Self {
        Self {
            program,
            parameters: parameters.cast(),
            globals: program.globals.clone(),
            dynamic_shared_bytes: dynamic_shared_bytes as u32,
            election: Election::default(),
        }
    }

    #[must_use]
    pub fn electing(self, election: Election) -> Self {
        Self { election, ..self }
    }

    /// Returns the module's own variables, for the traced launch.
    pub fn variables(&self) -> Allocation {
        Allocation::whole(
            "the module's variables",
            self.globals.as_ptr(),
            self.globals.len(),
            Access::Output,
        )
    }

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

/// The body of each emulated thread: `Launch::entry`.
///
/// # Safety
/// `params` is an [`Invocation`] that outlives the launch, and the emulator calls this.
unsafe extern "C-unwind" fn thread(params: *const c_void) {
    // SAFETY: the caller's.
    let (invocation, running) = unsafe { (&*params.cast::<Invocation<'_>>(), Thread::running()) };
    Frame::start(running, invocation).run();
}

/// A running thread. It owns nothing.
#[derive(Clone, Copy)]
struct Frame<'a> {
    thread: Thread<'a>,
    program: &'a Program,
    invocation: &'a Invocation<'a>,
    slab: Slab,
    is_traced: bool,
}

impl<'a> Frame<'a> {
    fn start(thread: Thread<'a>, invocation: &'a Invocation<'a>) -> Self {
        let program = invocation.program;
        let slab = Slab::of_thread(program, thread.number());
        let frame = Self {
            thread,
            program,
            invocation,
            slab,
            is_traced: thread.is_traced(),
        };
        for (index, &constant) in program.constants.iter().enumerate() {
            frame.set(-1 - index as Slot, frame.value_of(constant));
        }
        frame
    }

    /// Returns the word of an operand.
    #[inline]
    fn get(&self, slot: Slot) -> u64 {
        // SAFETY: decoding has made each slot one of the slab's constants or registers, and this
        // thread alone uses them.
        unsafe { *self.slab.registers.offset(slot as isize) }
    }

    #[inline]
    fn set(&self, slot: Slot, value: u64) {
        // SAFETY: see get.
        unsafe { *self.slab.registers.offset(slot as isize) = value };
    }

    #[inline]
    fn get_u32(&self, slot: Slot) -> u32 {
        self.get(slot) as u32
    }

    #[inline]
    fn is_set(&self, slot: Slot) -> bool {
        self.get(slot) & 1 == 1
    }

    #[inline]
    fn address(&self, address: Address) -> u64 {
        self.get(address.base).wrapping_add(address.offset as u64)
    }

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
