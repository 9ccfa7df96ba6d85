//! The host memory that a traced launch takes at most, said before it runs.
//!
//! What grows with the launch has a bound: stacks and clocks of the threads of the clusters that run
//! at once, shadow memory of shared memory and of outputs. What grows with the accesses of a cluster
//! has none; a trace ends where it would exceed [`Selection::history`](crate::trace::Selection).

use crate::cluster::{MAX_SHARED_BYTES, MAX_TOGETHER, STRIDE};
use crate::grid::{Launch, MAX_CLUSTER, volume};
use crate::judge::between::Between;
use crate::judge::memory::PAGE_BYTES;
use crate::judge::{Judge, Outcome, page, requests};
use crate::run::ThreadContext;
use crate::stack;

/// The bytes of a thread beside its stack: who it waits for, what it has in flight.
const THREAD_BYTES: u64 = 1024;

/// The bytes of an OS thread beside what it runs.
const WORKER_BYTES: u64 = 512 * 1024;

/// The bytes of the end of a cluster beside its counters: where it synchronises, what has stopped
/// it.
const END_BYTES: u64 = 1024;

/// The factor by which a collection may grow before the next look at it.
const HISTORY_FACTOR: u64 = 2;

/// The quantities on which the memory of a traced launch depends, beside the launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traced {
    /// The bytes of all buffers.
    pub allocated: u64,
    /// The bytes of those that the kernel may write.
    pub outputs: u64,
    /// The number of buffers.
    pub allocations: u64,
    /// The number of the program's places.
    pub places: u64,
    /// The bytes of a thread in the program: registers and local memory.
    pub thread_bytes: u64,
    /// The limit on what is remembered of a cluster's accesses.
    pub history: u64,
    /// The number of OS threads.
    pub workers: u64,
}

/// The bytes of host memory that a traced launch takes at most, buffers apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// The number of clusters that run at once.
    pub at_once: u64,
    /// The stacks, registers and clocks of the threads that run at once.
    pub threads: u64,
    /// The shared memory of the blocks that run at once, and its shadow.
    pub shared: u64,
    /// The shadow of outputs, for each cluster that runs at once and between all.
    pub outputs: u64,
    /// The bytes that are remembered of accesses.
    pub history: u64,
    /// The bytes that are kept of each cluster, and of each OS thread.
    pub rest: u64,
}

impl Footprint {
    /// Returns the sum of all parts.
    pub fn bytes(&self) -> u64 {
        let parts = [
            self.threads,
            self.shared,
            self.outputs,
            self.history,
            self.rest,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the bytes that a traced launch takes at most. One with larger blocks or clusters than
    /// there are is refused, and counts as the largest.
    pub fn of(launch: &Launch, traced: &Traced) -> Self {
        let blocks = u64::from(launch.cluster.clamp(1, MAX_CLUSTER));
        let clusters = volume(launch.grid) / blocks;
        let at_once = clusters.min(traced.workers);
        let threads = volume(launch.block)
            .saturating_mul(blocks)
            .min(MAX_TOGETHER.into());
        let judged = of_threads(threads, traced).saturating_mul(at_once);
        let declared = launch.dynamic_shared_bytes.min(MAX_SHARED_BYTES) as u64;
        let shared = of_shared(blocks, declared).saturating_mul(at_once);
        let history = traced
            .history
            .saturating_mul(HISTORY_FACTOR * (at_once + 1));
        let ends = clusters.saturating_mul(END_BYTES + size_of::<Outcome>() as u64);
        let workers = traced.workers * WORKER_BYTES;
        Self {
            at_once,
            threads: judged,
            shared,
            outputs: of_outputs(at_once, traced),
            history,
            rest: ends.saturating_add(workers),
        }
    }
}

/// Returns the number of blocks of a launch, possible or not.
pub fn blocks(launch: &Launch) -> u64 {
    volume(launch.grid)
}

/// Returns the bytes of the threads of a cluster.
fn of_threads(threads: u64, traced: &Traced) -> u64 {
    let own = stack::USED_BYTES as u64
        + size_of::<ThreadContext>() as u64
        + THREAD_BYTES
        + traced.thread_bytes;
    // What a thread knows of each other one: a clock, and two moments of its stores.
    let known = threads * 3 * size_of::<u32>() as u64;
    let warps = threads.div_ceil(32);
    // A list of as many numbers as there are places, which has grown by doubling.
    let requests = 2 * traced.places * requests::KINDS as u64 * size_of::<u32>() as u64;
    threads
        .saturating_mul(own + known)
        .saturating_add(warps * requests)
}

/// Returns the bytes of a cluster's shared memory and its shadow.
fn of_shared(blocks: u64, declared: u64) -> u64 {
    let stride = STRIDE as u64;
    let span = (blocks - 1) * stride + declared;
    let of_cluster = if blocks > 1 { blocks * stride } else { 0 };
    stride + of_cluster + span * Judge::BYTES_PER_SHARED_BYTE as u64
}

/// Returns the bytes of the shadow of outputs.
fn of_outputs(at_once: u64, traced: &Traced) -> u64 {
    // Each allocation begins and ends within a page.
    let ends = 2 * PAGE_BYTES as u64 * traced.allocations;
    let pages = traced.allocated.saturating_add(ends) / PAGE_BYTES as u64;
    let index = pages * size_of::<u32>() as u64;
    let outputs = traced.outputs.saturating_add(ends);
    let shadow = outputs.saturating_mul(page::BYTES_PER_BYTE as u64);
    let between = outputs.saturating_mul(Between::BYTES_PER_BYTE as u64);
    // Bits that say which bytes are elements.
    let elements = traced.allocated / 8 + 8 * traced.allocations;
    let each = shadow.saturating_add(index).saturating_mul(at_once);
    each.saturating_add(between).saturating_add(elements)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::Schedule;
    use std::ffi::c_void;

    const MIB: u64 = 1 << 20;

    unsafe extern "C-unwind" fn nothing(_: *const c_void) {}

    const LAUNCH: Launch = Launch {
        entry: nothing,
        params: std::ptr::null(),
        grid: [8, 1, 1],
        block: [128, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 1024,
        schedule: Schedule::InOrder,
        patience: Launch::PATIENCE,
    };

    const TRACED: Traced = Traced {
        allocated: 2 * MIB,
        outputs: MIB,
        allocations: 2,
        places: 100,
        thread_bytes: 800,
        history: MIB,
        workers: 2,
    };

    #[test]
    fn blocks_that_wait_for_an_os_thread_take_no_more_than_their_end() {
        let few = Footprint::of(&LAUNCH, &TRACED);
        let many = Footprint::of(
            &Launch {
                grid: [800, 1, 1],
                ..LAUNCH
            },
            &TRACED,
        );
        assert_eq!((few.at_once, many.at_once), (2, 2));
        let end = END_BYTES + size_of::<Outcome>() as u64;
        let rest = many.rest - 792 * end;
        assert_eq!(Footprint { rest, ..many }, few);
    }

    #[test]
    fn one_block_runs_on_one_os_thread() {
        let one = Footprint::of(
            &Launch {
                grid: [1; 3],
                ..LAUNCH
            },
            &TRACED,
        );
        let two = Footprint::of(&LAUNCH, &TRACED);
        assert_eq!(one.at_once, 1);
        assert_eq!([one.threads * 2, one.shared * 2], [two.threads, two.shared]);
    }

    /// 12 bytes of a cell and 3 touches of 8 for each of 2 OS threads, 3 kinds of 2 touches of 12
    /// between blocks, a bit that says that it is an element, 4 bytes a page for each OS thread.
    #[test]
    fn a_byte_of_an_output_takes_144_bytes_on_two_os_threads() {
        let larger = Traced {
            allocated: 3 * MIB,
            outputs: 2 * MIB,
            ..TRACED
        };
        let few = Footprint::of(&LAUNCH, &TRACED);
        let more = Footprint::of(&LAUNCH, &larger);
        let shadow = (2 * 36 + 72) * MIB + MIB / 8 + 2 * 4 * MIB / 4096;
        assert_eq!(more.outputs - few.outputs, shadow);
        let outputs = few.outputs;
        assert_eq!(Footprint { outputs, ..more }, few);
    }

    #[test]
    fn a_byte_of_an_input_takes_a_bit_and_the_number_of_its_page() {
        let larger = Traced {
            allocated: 3 * MIB,
            ..TRACED
        };
        let few = Footprint::of(&LAUNCH, &TRACED);
        let more = Footprint::of(&LAUNCH, &larger);
        assert_eq!(more.outputs - few.outputs, MIB / 8 + 2 * 4 * MIB / 4096);
    }

    /// A byte of shared memory has a cell of 12 bytes, its content, a writer of 16 bytes, and the
    /// number of a copy.
    #[test]
    fn a_byte_of_shared_memory_takes_33_bytes_of_shadow() {
        let larger = Launch {
            dynamic_shared_bytes: 1024 + 1000,
            ..LAUNCH
        };
        let few = Footprint::of(&LAUNCH, &TRACED);
        let more = Footprint::of(&larger, &TRACED);
        assert_eq!(more.shared - few.shared, 2 * 33 * 1000);
    }

    #[test]
    fn a_cluster_has_the_memory_of_all_its_blocks_and_runs_as_one() {
        let pairs = Launch {
            cluster: 2,
            grid: [2, 1, 1],
            ..LAUNCH
        };
        let one = Footprint::of(&pairs, &TRACED);
        assert_eq!(one.at_once, 1);
        let stride = STRIDE as u64;
        assert_eq!(one.shared, 3 * stride + 33 * (stride + 1024));
    }

    #[test]
    fn what_is_remembered_may_double_on_each_os_thread_and_in_the_report() {
        let more = Traced {
            history: 3 * MIB,
            ..TRACED
        };
        let few = Footprint::of(&LAUNCH, &TRACED);
        let grown = Footprint::of(&LAUNCH, &more);
        assert_eq!(grown.history - few.history, 2 * 2 * 3 * MIB);
    }

    #[test]
    fn an_impossible_launch_has_the_largest_footprint() {
        let huge = Traced {
            outputs: u64::MAX,
            history: u64::MAX,
            ..TRACED
        };
        let grid = [u32::MAX; 3];
        let impossible = Footprint::of(&Launch { grid, ..LAUNCH }, &huge);
        assert_eq!(impossible.bytes(), u64::MAX);
    }
}
