//! A CUDA thread as a front end in Rust sees it: the same entry points that the shim calls, for
//! threads whose body is not compiled C++.
//!
//! A body may suspend in every method that is not a getter. Suspended stacks are abandoned when a
//! block fails, so a caller owns nothing that needs dropping while it calls one.

use std::ffi::{CStr, c_char, c_void};
use std::ops::Range;

use crate::cluster::STRIDE;
use crate::fault::{Fault, Place};
use crate::ffi::access::{self, MatrixAccess};
use crate::ffi::{self, cluster, cp_async, mbarrier, tma};
pub use crate::judge::StrongOrder;
use crate::judge::order::How;
use crate::run::{ThreadContext, emulator_current_slot, emulator_trace_slot};
use crate::site::{self, Literal};
use crate::tensor_map::MAX_DIMENSIONS;
use crate::warp::{Collective, EXITED_LANES_DROP, Execute, PLACES_MAY_DIFFER};
use crate::wgmma::{NAMED, Named, Operands};

/// A place of a program that is not compiled into this one.
#[derive(Clone, Copy, Debug)]
pub struct Site {
    site: site::Site,
    /// The number by which the judge knows an access here.
    number: u32,
}

impl Site {
    /// Registers a place. `frames` are its lines, innermost first; `call` is the line by which its
    /// synchronisation is named and suppressed.
    pub fn new(call: &Place, frames: Vec<Place>) -> Self {
        let place = site::Site::foreign(Literal::interned(&call.file), call.line, frames);
        Self {
            site: place,
            number: place.access_number(),
        }
    }

    pub fn place(self) -> Place {
        self.site.place()
    }
}

/// The use that an access makes of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    Read,
    Write,
    /// A read-modify-write.
    Update,
}

/// The kind of an operation in which a warp's lanes exchange operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchange {
    Shuffle,
    Vote,
    /// Its execution declares what it accesses by [`declare_matrix`].
    MatrixCopy,
    /// The number of multiply-adds.
    Mma(u64),
}

/// A warp-wide operation as one lane calls it.
#[derive(Clone, Copy, Debug)]
pub struct WarpCall {
    pub name: &'static CStr,
    pub execute: ExecuteLanes,
    pub kind: Exchange,
    /// The arguments that are equal in all lanes.
    pub agree: [u64; 2],
    pub mask: u32,
    /// Whether lanes of the mask that have exited are left out.
    pub drops_exited: bool,
}

/// Executes an operation: the first argument holds each lane's operand, the second names the lanes
/// that take part. Returns null, or the reason of a failure and through the third the lane.
pub type ExecuteLanes = unsafe extern "C" fn(*const *mut c_void, u32, *mut u32) -> *const c_char;

/// The element type of a product's operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    F16 = 0,
    E4m3 = 1,
    Bf16 = 2,
}

/// A product of a warpgroup, as one of its threads passes it.
#[derive(Clone, Copy, Debug)]
pub struct Product {
    /// The thread's accumulators, half as many as `columns`, which live until the block ends.
    pub accumulators: *mut f32,
    /// The thread's four registers of A; null if A is in shared memory.
    pub fragment: *const [u32; 4],
    pub a_descriptor: u64,
    pub b_descriptor: u64,
    pub columns: u32,
    pub element: Element,
    pub is_transposed_b: bool,
    pub accumulates: bool,
}

/// The running CUDA thread.
#[derive(Clone, Copy)]
pub struct Thread<'a>(&'a ThreadContext);

impl Thread<'_> {
    /// Returns the thread that runs on the calling stack.
    ///
    /// # Safety
    /// The caller was called, perhaps through others, as a launch's entry; the value does not
    /// outlive that call.
    pub unsafe fn running() -> Self {
        // SAFETY: the worker has set the slot to the context of the thread that it resumed, which
        // lives longer than the thread's stack.
        Self(unsafe { &*(*emulator_current_slot()).cast::<ThreadContext>() })
    }

    pub fn thread_idx(self) -> [u32; 3] {
        self.0.thread_idx
    }

    pub fn block_idx(self) -> [u32; 3] {
        self.0.block_idx
    }

    pub fn block_dim(self) -> [u32; 3] {
        self.0.block_dim
    }

    pub fn grid_dim(self) -> [u32; 3] {
        self.0.grid_dim
    }

    /// Returns the number of the thread in its cluster.
    pub fn number(self) -> u32 {
        self.0.thread
    }

    pub fn lane(self) -> u32 {
        self.0.lane
    }

    pub fn cluster_rank(self) -> u32 {
        self.0.cluster_rank
    }

    pub fn cluster_size(self) -> u32 {
        self.0.cluster_size
    }

    /// Returns the lane that `elect.sync` elects under this launch's schedule.
    pub fn leader(self) -> u32 {
        // SAFETY: the layouts live as long as the launch.
        unsafe { &*self.0.layouts }.leader()
    }

    /// Returns the permutation of the elements of a fragment of `wmma` under this launch's schedule.
    /// `operand` is 0 for A, 1 for B, 2 for accumulators; fragments have 128, 256 or 512 elements.
    pub fn fragment_layout(&self, operand: usize, elements: usize) -> &[u16] {
        // SAFETY: the layouts live as long as the launch.
        unsafe { &*self.0.layouts }.fragment(operand, elements)
    }

    /// Returns the start of the block's shared memory, on a boundary of 1,024 bytes.
    pub fn shared(self) -> *mut u8 {
        self.0.shared
    }

    /// Returns the start of the shared memory of another block of the cluster.
    pub fn shared_of(self, rank: u32) -> Option<*mut u8> {
        let cluster = &self.0.run().cluster;
        let start = cluster.start + rank as usize * STRIDE;
        (rank < cluster.blocks).then_some(start as *mut u8)
    }

    /// Returns the bytes of shared memory that the launch declared.
    pub fn declared(self) -> usize {
        self.0.run().cluster.declared
    }

    pub fn is_traced(self) -> bool {
        self.0.run().judge.is_some()
    }

    pub fn suppresses(self, site: Site) -> bool {
        self.0.run().suppresses(site.site)
    }

    /// Counts the times that this OS thread has switched between threads of the block.
    pub fn switches(self) -> u64 {
        self.0.run().switches.get()
    }

    /// Names the place of the accesses that follow, should one find no memory.
    #[inline]
    pub fn touches(self, site: Site) {
        self.0.run().touching.set(Some(site.site));
    }

    /// Tells the judge of an access to shared or global memory.
    #[inline]
    pub fn access(self, address: usize, bytes: usize, is_write: bool, site: Site) {
        access::judge_access(self.0, address, bytes, is_write.into(), site.number);
    }

    /// Tells the judge of a store of these bytes to shared or global memory.
    pub fn stores(self, address: usize, value: &[u8], site: Site) {
        access::judge_store(self.0, address, value, site.number);
    }

    /// Tells the judge of a strong operation. One that `polls`, and so reads the same again and
    /// again, waits for another thread.
    pub fn strong(
        self,
        bytes: Range<usize>,
        kind: AccessKind,
        order: StrongOrder,
        polls: bool,
        site: Site,
    ) {
        let how = match kind {
            AccessKind::Read => How::StrongRead,
            AccessKind::Write => How::StrongWrite,
            AccessKind::Update => How::Atomic,
        };
        access::judge_strong(self.0, bytes, how, order, polls, site.number);
    }

    /// Tells that a thread which polled has found what it waited for.
    pub fn progresses(self) {
        self.0.run().spin.reset();
    }

    /// Tells of an access to registers whose place in flight is `address`. Does not return if a
    /// product holds them.
    pub fn holds(self, address: usize, bytes: usize, is_write: bool, site: Site) {
        access::judge_held(self.0, address, bytes, is_write.into(), site.number);
    }

    pub fn count_exponential(self) {
        if self.is_traced() {
            // SAFETY: the slot is this OS thread's, and nothing else refers to it now.
            unsafe { (*emulator_trace_slot()).exps += 1 };
        }
    }

    /// Stops the thread, and with it the block.
    pub fn trap(self, message: String, site: Site) -> ! {
        self.0.fail(Fault::Trap {
            block: self.0.block_idx,
            thread: self.0.thread,
            message,
            place: site.place(),
        })
    }

    /// Stops the thread because an access leaves its memory.
    pub fn out_of_bounds(self, access: String, site: Site) -> ! {
        self.0.fail(Fault::OutOfBounds {
            block: self.0.block_idx,
            thread: self.0.thread,
            access,
            place: site.place(),
        })
    }

    /// Stops the thread if `value` is no multiple of `required`.
    #[inline]
    pub fn demand_alignment(self, operand: &str, value: u64, required: u64, site: Site) {
        if !value.is_multiple_of(required) {
            self.0
                .demand_alignment(|| operand.to_owned(), value, required, site.site);
        }
    }

    fn collective(self, call: &Collective) {
        // SAFETY: the context is the running thread's, and the call lives here.
        unsafe { ffi::emulator_collective(self.0, call) };
    }

    fn rendezvous(self, name: &'static CStr, kind: u32, agree: [u64; 2], site: Site) {
        self.collective(&Collective {
            name: Literal::from_text(name),
            execute: None,
            operand: std::ptr::null_mut(),
            agree,
            work: 0,
            mask: u32::MAX,
            rules: 0,
            kind,
            site: site.site,
        });
    }

    /// Makes the lanes of a warp exchange operands.
    ///
    /// # Safety
    /// `operand` is what the call's `execute` takes, and lives until this returns.
    pub unsafe fn exchange(self, call: &WarpCall, operand: *mut c_void, site: Site) {
        let (kind, work) = match call.kind {
            Exchange::Shuffle => (1, 0),
            Exchange::Vote => (2, 0),
            Exchange::MatrixCopy => (3, 0),
            Exchange::Mma(macs) => (4, macs),
        };
        let execute: Execute = call.execute;
        self.collective(&Collective {
            name: Literal::from_text(call.name),
            execute: Some(execute),
            operand,
            agree: call.agree,
            work,
            mask: call.mask,
            rules: if call.drops_exited {
                EXITED_LANES_DROP
            } else {
                0
            },
            kind,
            site: site.site,
        });
    }

    pub fn sync_warp(self, mask: u32, site: Site) {
        self.collective(&Collective {
            name: Literal::from_text(c"bar.warp.sync"),
            execute: None,
            operand: std::ptr::null_mut(),
            agree: [0; 2],
            work: 0,
            mask,
            rules: EXITED_LANES_DROP | PLACES_MAY_DIFFER,
            kind: 0,
            site: site.site,
        });
    }

    /// Waits at the barrier of all threads of the block.
    pub fn barrier(self, site: Site) {
        // SAFETY: the context is the running thread's; so for all calls below.
        unsafe { ffi::emulator_barrier(self.0, site.site) }
    }

    pub fn named_barrier(self, id: u32, threads: u32, waits: bool, site: Site) {
        let agree = [id.into(), threads.into()];
        if waits {
            self.rendezvous(c"bar.sync", 5, agree, site);
        } else {
            self.rendezvous(c"bar.arrive", 6, agree, site);
        }
    }

    /// Issues a product.
    ///
    /// # Safety
    /// Accumulators and fragment are memory of this thread that lives until the block ends.
    pub unsafe fn wgmma(self, product: &Product, site: Site) {
        let mut operands = Operands {
            d: product.accumulators,
            a: product.fragment,
            a_descriptor: product.a_descriptor,
            b_descriptor: product.b_descriptor,
            columns: product.columns,
            element: product.element as u32,
            transposed_b: product.is_transposed_b.into(),
            accumulate: product.accumulates.into(),
        };
        self.collective(&Collective {
            name: Literal::from_text(c"wgmma.mma_async"),
            execute: None,
            operand: (&raw mut operands).cast(),
            agree: [0; 2],
            work: 0,
            mask: u32::MAX,
            rules: 0,
            kind: 16,
            site: site.site,
        });
    }

    pub fn wgmma_fence(self, site: Site) {
        self.rendezvous(c"wgmma.fence", 17, [0; 2], site);
    }

    pub fn wgmma_commit(self, site: Site) {
        self.rendezvous(c"wgmma.commit_group", 18, [0; 2], site);
    }

    /// Waits until at most `newest` groups are in flight, and takes back what is complete of the
    /// accumulators between `start` and `start + bytes`.
    pub fn wgmma_wait(self, newest: u32, start: usize, bytes: usize, site: Site) {
        let mut named = Named {
            address: [0; NAMED],
            bytes: [0; NAMED],
        };
        (named.address[0], named.bytes[0]) = (start, bytes);
        self.collective(&Collective {
            name: Literal::from_text(c"wgmma.wait_group"),
            execute: None,
            operand: (&raw mut named).cast(),
            agree: [newest.into(), 0],
            work: 0,
            mask: u32::MAX,
            rules: 0,
            kind: 19,
            site: site.site,
        });
    }

    pub fn set_registers(self, registers: u32, takes: bool, site: Site) {
        let (name, kind) = if takes {
            (c"setmaxnreg.inc", 21)
        } else {
            (c"setmaxnreg.dec", 20)
        };
        self.rendezvous(name, kind, [registers.into(), 0], site);
    }

    pub fn cluster_arrive(self, is_relaxed: bool, site: Site) {
        if is_relaxed {
            self.rendezvous(c"barrier.cluster.arrive.relaxed", 24, [0; 2], site);
        } else {
            self.rendezvous(c"barrier.cluster.arrive", 22, [0; 2], site);
        }
    }

    pub fn cluster_wait(self, site: Site) {
        self.rendezvous(c"barrier.cluster.wait", 23, [0; 2], site);
    }

    pub fn cp_async(self, to: usize, from: usize, bytes: u32, read: u32, site: Site) {
        let (dst, src) = (to as *mut c_void, from as *const c_void);
        // SAFETY: see barrier; the source is checked by the judge, or stops the thread.
        unsafe { cp_async::emulator_cp_async(self.0, dst, src, bytes, read, site.site) }
    }

    pub fn cp_async_commit(self, site: Site) {
        // SAFETY: see barrier.
        unsafe { cp_async::emulator_cp_async_commit(self.0, site.site) }
    }

    pub fn cp_async_wait(self, newest: u32, site: Site) {
        // SAFETY: see barrier.
        unsafe { cp_async::emulator_cp_async_wait(self.0, newest, site.site) }
    }

    pub fn mbarrier_init(self, object: usize, arrivals: i32, site: Site) {
        // SAFETY: see barrier; the object's address is checked there.
        unsafe { mbarrier::emulator_mbarrier_init(self.0, object as *mut u64, arrivals, site.site) }
    }

    pub fn mbarrier_arrive(self, object: usize, site: Site) {
        // SAFETY: see mbarrier_init.
        unsafe { mbarrier::emulator_mbarrier_arrive(self.0, object as *mut u64, site.site) }
    }

    pub fn mbarrier_arrive_after_cp_async(self, object: usize, site: Site) {
        let at = object as *mut u64;
        // SAFETY: see mbarrier_init.
        unsafe { mbarrier::emulator_mbarrier_arrive_after_cp_async(self.0, at, site.site) }
    }

    pub fn mbarrier_arrive_expect_tx(self, object: usize, bytes: i32, site: Site) {
        let at = object as *mut u64;
        // SAFETY: see mbarrier_init.
        unsafe { mbarrier::emulator_mbarrier_arrive_expect_tx(self.0, at, bytes, site.site) }
    }

    pub fn mbarrier_test_wait(self, object: usize, parity: i32, site: Site) -> bool {
        let at = object as *mut u64;
        // SAFETY: see mbarrier_init.
        unsafe { mbarrier::emulator_mbarrier_test_wait(self.0, at, parity, site.site) }
    }

    pub fn mbarrier_try_wait(self, object: usize, parity: i32, site: Site) -> bool {
        let at = object as *mut u64;
        // SAFETY: see mbarrier_init.
        unsafe { mbarrier::emulator_mbarrier_try_wait(self.0, at, parity, site.site) }
    }

    /// Tries at the scope of the cluster: its success acquires what other blocks have stored.
    pub fn mbarrier_try_wait_cluster(self, object: usize, parity: i32, site: Site) -> bool {
        mbarrier::try_wait_cluster(self.0, object as *mut u64, parity, site.site)
    }

    pub fn fence_mbarrier_init(self, site: Site) {
        // SAFETY: see barrier.
        unsafe { mbarrier::emulator_fence_mbarrier_init(self.0, site.site) }
    }

    /// Fences what the thread has stored, the mbarriers that it has initialised among it.
    pub fn fence_proxy_async(self, site: Site) {
        tma::fence_proxy_and_mbarriers(self.0, site.site);
    }

    /// # Safety
    /// `map` is null or 128 readable bytes.
    pub unsafe fn prefetch_map(self, map: *const [u64; 16], site: Site) {
        // SAFETY: the caller's.
        unsafe { tma::emulator_tma_prefetch_map(self.0, map, site.site) }
    }

    /// # Safety
    /// `load.map` is null or 128 readable bytes.
    pub unsafe fn tma_load(self, load: &BoxCopy, object: usize, site: Site) {
        let (to, barrier) = (load.shared as *mut u8, object as *mut u64);
        // SAFETY: the caller's.
        unsafe { tma::load(self.0, to, load.map, barrier, load.at, site.site) }
    }

    /// # Safety
    /// As [`Thread::tma_load`].
    pub unsafe fn tma_store(self, store: &BoxCopy, site: Site) {
        let from = store.shared as *mut u8;
        // SAFETY: the caller's.
        unsafe { tma::store(self.0, store.map, from, store.at, site.site) }
    }

    pub fn tma_store_commit(self, site: Site) {
        // SAFETY: see barrier.
        unsafe { tma::emulator_tma_store_commit(self.0, site.site) }
    }

    pub fn tma_store_wait_read(self, newest: u32, site: Site) {
        // SAFETY: see barrier.
        unsafe { tma::emulator_tma_store_wait_read(self.0, newest, site.site) }
    }

    /// Waits until all but the `newest` groups of stores have written global memory.
    pub fn tma_store_wait(self, newest: u32, site: Site) {
        tma::wait_written(self.0, newest, site.site);
    }

    /// Stores 16 bytes to block `rank`. `shared` and `object` are addresses in this block's shared
    /// memory, which stand for the same places there.
    pub fn store_async(
        self,
        rank: u32,
        shared: usize,
        value: &[u8; 16],
        object: usize,
        site: Site,
    ) {
        let (to, at) = (shared as *mut u8, object as *mut u64);
        // SAFETY: see mbarrier_init.
        unsafe { cluster::emulator_store_async(self.0, rank, to, value, at, site.site) }
    }
}

/// A box that TMA moves.
#[derive(Clone, Copy, Debug)]
pub struct BoxCopy {
    pub map: *const [u64; 16],
    pub shared: usize,
    /// The element at which it begins in each dimension, innermost first; 0 in those that the
    /// tensor does not have.
    pub at: [i32; MAX_DIMENSIONS],
}

/// How a warp's access to a matrix is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatrixCount {
    /// By 8 rows of 16 bytes.
    Ldmatrix = 0,
    /// By 8x8 elements, of which each lane has two neighbours in a row of memory.
    Accumulator = 1,
    /// By 8x8 elements whose columns lie in rows of memory.
    Transposed = 2,
}

/// A warp's access to a matrix in memory.
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// The addresses of its contiguous pieces.
    pub rows: &'a [usize],
    pub row_bytes: u32,
    pub element_bytes: u32,
    pub is_write: bool,
    pub count: MatrixCount,
    /// If not 0: accesses with the same number give each lane the same bytes.
    pub distribution: u64,
}

/// Declares what a warp's matrix copy accesses. Returns false for memory that must not be touched.
///
/// # Safety
/// Called from an operation's execution only.
pub unsafe fn declare_matrix(matrix: &Matrix<'_>) -> bool {
    let access = MatrixAccess {
        rows: matrix.rows.as_ptr(),
        row_count: matrix.rows.len() as u32,
        row_bytes: matrix.row_bytes,
        element_bytes: matrix.element_bytes,
        write: matrix.is_write.into(),
        count: matrix.count as u32,
        distribution: matrix.distribution,
    };
    // SAFETY: the caller's, and the rows live here.
    unsafe { access::emulator_matrix_access(&access) }
}

/// The content of memory that nobody has written.
pub const POISON: u8 = crate::async_copy::POISON;
