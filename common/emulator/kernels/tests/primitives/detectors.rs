//! All detectors: what each catches, and a near miss that it must not flag. `DETECTORS.md` is this table in words.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use emulator::Entry;
use emulator::trace::HazardKind::{self, *};
use emulator_kernels::{entry, traced};

use crate::support::{Run, SCHEDULES};
use crate::{cluster, tma, wgmma};

/// Enough for what ends, and over soon for what does not.
const SHORT: Duration = Duration::from_millis(50);

/// A launch of a kernel of `cu/`, in both builds.
struct Program {
    name: &'static str,
    /// What is special about it.
    words: &'static str,
    plain: Run,
    traced: Run,
}

macro_rules! program {
    ($kernel:ident[$threads:expr, $shared:expr]($($number:expr),*), $words:expr) => {{
        let run = |entry: Entry| {
            let input: Vec<f32> = (0..4096).map(|i| i as f32).collect();
            let numbers: &[i32] = &[$($number),*];
            let run = Run::new(entry, $threads).shared($shared).input(0, &input);
            (0..).zip(numbers).fold(run, |run, (index, &number)| run.number(index, number))
        };
        Program { name: stringify!($kernel), words: $words, plain: run(entry::$kernel), traced: run(traced::$kernel) }
    }};
}

/// The same of a launch that a function makes, tensor maps and all.
macro_rules! launch {
    ($make:path, $kernel:ident($($argument:expr),*), $words:expr) => {{
        let run = |entry: Entry| {
            let input: Vec<f32> = (0..4096).map(|i| i as f32).collect();
            $make(entry, $($argument),*).input(0, &input)
        };
        Program { name: stringify!($kernel), words: $words, plain: run(entry::$kernel), traced: run(traced::$kernel) }
    }};
}

/// A detector.
struct Detector {
    name: &'static str,
    /// What the traced build reports under some schedule at least; it reports something under each.
    kind: HazardKind,
    /// What stops the plain build under some schedule, where that sees it, too.
    fault: Option<&'static str>,
    catches: Program,
    spares: Program,
}

fn detector(
    name: &'static str,
    kind: HazardKind,
    fault: impl Into<Option<&'static str>>,
    catches: Program,
    spares: Program,
) -> Detector {
    Detector {
        name,
        kind,
        fault: fault.into(),
        catches,
        spares,
    }
}

fn races() -> Vec<Detector> {
    vec![
        detector(
            "no order between two warps",
            Race,
            None,
            program!(barrier_in_one_branch[64, 256](0), "the path without the barrier"),
            program!(barrier_in_one_branch[64, 256](1), "the path with it"),
        ),
        detector(
            "no order between two lanes of a warp",
            Race,
            None,
            program!(warp_ping_pong[64, 256](1), "a shuffle in place of `__syncwarp`"),
            program!(warp_ping_pong[64, 256](0), "half warps that meet under their own masks"),
        ),
        detector(
            "a matrix (WMMA) and a lane, its own included",
            Race,
            None,
            program!(matrix_then_lanes[32, 1024](0), "read without `__syncwarp`"),
            program!(matrix_in_place[32, 1024](), "each lane stores the elements that it has loaded"),
        ),
        detector(
            "ldmatrix and a lane, its own included",
            Race,
            None,
            program!(lanes_then_ldmatrix[32, 2048](0, 16), "each lane passes the row that it wrote"),
            program!(lanes_then_ldmatrix[32, 2048](1, 16), "after a `__syncwarp`"),
        ),
        detector(
            "a buffer that is filled again while it is read",
            Race,
            None,
            program!(ring_without_free_slots[64, 256](4, 0, 0), "one slot, and nobody says that it is free"),
            program!(ring_without_free_slots[64, 256](4, 0, 1), "two slots: the next tile's barrier frees this one's"),
        ),
        detector(
            "a copy's source that changes in flight",
            Race,
            None,
            program!(copy_source_overwritten[32, 512](0), "overwritten before the wait"),
            program!(copy_source_overwritten[32, 512](1), "after the wait"),
        ),
        detector(
            "global memory within a block",
            Race,
            None,
            program!(global_within_block[64, 0](0), "a flag without a barrier"),
            program!(global_within_block[64, 0](1), "after a barrier"),
        ),
        detector(
            "global memory between blocks",
            Race,
            None,
            program!(blocks_overlap[32, 0](0), "two blocks write one word").blocks(3),
            program!(blocks_overlap[32, 0](1), "each its own word").blocks(3),
        ),
        detector(
            "a block that reads what another one writes",
            Race,
            None,
            program!(blocks_hand_over[32, 0](0), "the word of block 0").blocks(3),
            program!(blocks_hand_over[32, 0](1), "each its own word").blocks(3),
        ),
        detector(
            "a named barrier that is not waited for",
            Race,
            None,
            program!(row_by_named_barrier[64, 128](4), "the reader only arrives"),
            program!(row_by_named_barrier[64, 128](0), "the writer arrives, the reader waits"),
        ),
        detector(
            "a store between a copy and its arrival",
            Race,
            None,
            program!(store_before_copies_arrive[64, 272](0), "only the thread's copies arrive"),
            program!(store_before_copies_arrive[64, 272](1), "the thread itself arrives, too"),
        ),
    ]
}

fn contents() -> Vec<Detector> {
    vec![
        detector(
            "a wait that leaves the last tile in flight",
            ReadInFlight,
            None,
            program!(copied_one_ahead[64, 2048](3, 0, 0), "`wait_group<1>` on the last tile"),
            program!(copied_one_ahead[64, 2048](3, 0, 1), "the same, with an empty group on the last tile"),
        ),
        detector(
            "a wait for copies that another thread issued",
            ReadInFlight,
            None,
            program!(copied_by_a_producer[96, 512](0, 1), "the consumers wait for the producer's groups"),
            program!(copied_by_a_producer[96, 512](1, 1), "the producer waits, and a barrier follows"),
        ),
        detector(
            "a copy that is in no group",
            ReadInFlight,
            None,
            program!(copy_without[32, 512](0, 1), "never committed"),
            program!(groups_of_ones_own[32, 2048](), "several groups in flight, waited for one after the other"),
        ),
        detector(
            "an arrival that does not wait for its copies",
            ReadInFlight,
            None,
            program!(ring[96, 288](5, 512), "`mbarrier_arrive` where copies are in flight"),
            program!(mbarrier_ring[96, 1056](7), "full and empty mbarriers, the copies arrive by themselves"),
        ),
        detector(
            "shared memory that nobody wrote",
            UninitialisedShared,
            None,
            program!(rows_one_too_many[32, 1024](7, 8), "a row more is read than written"),
            program!(rows_one_too_many[32, 1024](8, 8), "all rows"),
        ),
        detector(
            "a tile of which a part is copied",
            UninitialisedShared,
            None,
            program!(tile_copied_by_one_warp[128, 2048](0), "one warp steps by the threads of the block"),
            program!(tile_copied_by_one_warp[128, 2048](1), "by its own"),
        ),
        detector(
            "accesses behind shared memory",
            OutOfBounds,
            None,
            program!(rows_one_too_many[32, 1024](8, 9), "one row too many"),
            program!(rows_one_too_many[32, 1024](8, 8), "the last row"),
        ),
        detector(
            "writes behind shared memory",
            OutOfBounds,
            "SharedOverflow",
            program!(write_shared_at[32, 256](256), "the first byte behind"),
            program!(write_shared_at[32, 256](252), "the last word"),
        ),
        detector(
            "accesses beside a tensor's elements",
            OutOfBounds,
            None,
            program!(row_of_input[32, 0](4), "the row behind the last one").elements(512..2048),
            program!(row_of_input[32, 0](3), "the last row").elements(512..2048),
        ),
        detector(
            "writes to variables of the program",
            OutOfBounds,
            None,
            program!(variables_of_the_program[32, 0](1), "a counter that outlives the launch"),
            program!(variables_of_the_program[32, 0](0), "a table is read"),
        ),
        detector(
            "accesses that lie half beside a tensor's elements",
            OutOfBounds,
            None,
            program!(row_of_input[32, 0](3), "16 bytes, of which 8 are behind the last element")
                .elements(512..2040),
            program!(row_of_input[32, 0](3), "up to the last element").elements(1536..2048),
        ),
        detector(
            "accesses where no memory is",
            OutOfBounds,
            "OutOfBounds",
            program!(far_from_any_memory[32, 0](1), "a TiB in front of a tensor"),
            program!(far_from_any_memory[32, 0](0), "its first element"),
        ),
        detector(
            "copies from where no memory is",
            OutOfBounds,
            "OutOfBounds",
            program!(copy_from_far[1, 16](1), "cp.async from a TiB in front of a tensor"),
            program!(copy_from_far[1, 16](0), "from its first element"),
        ),
        detector(
            "an element that an array of registers does not have",
            OutOfBounds,
            None,
            program!(sum_of_registers[32, 0](9), "the ninth of eight"),
            program!(sum_of_registers[32, 0](8), "the eighth"),
        ),
        detector(
            "a vector at an odd address",
            Misaligned,
            None,
            program!(vector_at[32, 2048](8), "16 bytes at a multiple of 8"),
            program!(vector_at[32, 2048](16), "at a multiple of 16"),
        ),
        detector(
            "a matrix row at an odd address",
            Misaligned,
            "Misaligned",
            program!(ldmatrix_misused[32, 1024](8, 32), "ldmatrix of a row at a multiple of 8"),
            program!(ldmatrix_misused[32, 1024](160, 32), "at a multiple of 16"),
        ),
        detector(
            "matrix rows outside of shared memory",
            Stopped,
            "InvalidCollective",
            program!(ldmatrix_misused[32, 1024](-1, 32), "ldmatrix of a row in global memory"),
            program!(ldmatrix_misused[32, 1024](160, 32), "two lanes pass the same row"),
        ),
        detector(
            "copies to a place that is not the block's",
            Stopped,
            "AsyncCopy",
            program!(cp_async_misused[1, 64](64, 0, 16), "cp.async to the byte behind shared memory"),
            program!(cp_async_misused[1, 64](48, 0, 16), "to the last 16 bytes"),
        ),
        detector(
            "barrier objects as data",
            BarrierObject,
            None,
            program!(ring[96, 288](5, 2048), "a thread reads an mbarrier"),
            program!(ring[96, 288](5, 0), "mbarriers and tiles side by side"),
        ),
    ]
}

fn waits() -> Vec<Detector> {
    vec![
        detector(
            "`__syncthreads` that a thread does not reach",
            DivergentBarrier,
            "DivergentBarrier",
            program!(barrier_missed_by_one[64, 0](5), "one thread has left"),
            program!(barrier_missed_by_one[64, 0](-1), "none has"),
        ),
        detector(
            "roles with unequal numbers of barriers",
            DivergentBarrier,
            "DivergentBarrier",
            program!(roles_with_unequal_barriers[128, 2048](0), "the producer lacks one"),
            program!(roles_with_unequal_barriers[128, 2048](1), "both roles have both"),
        ),
        detector(
            "threads that wait for each other",
            Deadlock,
            "Deadlock",
            program!(warp_waits_for_a_lane_at_the_barrier[32, 0](), "a lane at `__syncthreads`, its warp at `__syncwarp`"),
            program!(exit_completes_sync_warp[32, 0](3), "a lane that leaves is not waited for"),
        ),
        detector(
            "a named barrier's count that is not reached",
            Deadlock,
            "Deadlock",
            program!(row_by_named_barrier[64, 128](1), "the writer does not arrive"),
            program!(named_barriers_of_pairs[128, 512](3), "pairs of warps, then all four"),
        ),
        detector(
            "two counts at one named barrier",
            Stopped,
            "CollectiveMismatch",
            program!(named_barrier_of_two_counts[96, 0](), "64 threads and 96"),
            program!(named_barriers_of_pairs[128, 512](2), "each barrier with its own count, used again and again"),
        ),
        detector(
            "a signal given again before it is answered",
            Stopped,
            "CollectiveMismatch",
            program!(named_barrier_twice[64, 0](1), "two arrivals of a warp in a row"),
            program!(named_barriers_hand_over[64, 128](4), "two warps hand a row to and fro"),
        ),
        detector(
            "an arrival that never comes",
            Deadlock,
            "WaitNeverObserved",
            program!(ring[96, 288](5, 8), "`mbarrier_init` expects one more"),
            program!(ring[96, 288](5, 0), "exactly as many; the last slots are never freed"),
        ),
        detector(
            "asking for a phase again and again",
            Deadlock,
            "WaitNeverObserved",
            program!(ring_by_stores[64, 288](9, 0, 2), "`mbarrier_test_wait` in a loop that never succeeds"),
            program!(ring_by_stores[64, 288](9, 1000, 0), "answered before the watchdog barks"),
        ),
        detector(
            "watching a flag that nobody raises",
            Deadlock,
            None,
            program!(roles_with_flags[64, 2048](1), "a volatile flag (the plain build would loop for ever)"),
            program!(words_read_again_and_again[64, 64](20_000), "the same words, read for their values"),
        ),
        detector(
            "an mbarrier without initialisation",
            Stopped,
            "Mbarrier",
            program!(ring[96, 288](5, 128), "one of two"),
            program!(mbarrier_phases[32, 8](), "an object through three phases"),
        ),
        detector(
            "more arrivals than a phase expects",
            Stopped,
            "Mbarrier",
            program!(mbarrier_misused[32, 64](0, 1, 0, 3), "all lanes arrive where one is expected"),
            program!(mbarrier_misused[32, 64](0, 1, 0, 0), "one does"),
        ),
        detector(
            "a phase that a waiter misses",
            Stopped,
            "Mbarrier",
            program!(phase_that_a_waiter_misses[96, 16](0), "the next phase ends without waiting for it"),
            program!(phase_that_a_waiter_misses[96, 16](1), "it is waited for"),
        ),
        detector(
            "a shuffle from a lane that is not there",
            Stopped,
            "InvalidCollective",
            program!(shuffle_outside_its_mask[32, 0](), "the source is not in the mask"),
            program!(warp_sum[32, 0](), "a butterfly over the whole warp"),
        ),
        detector(
            "lanes that call different operations",
            Stopped,
            "CollectiveMismatch",
            program!(shuffle_meets_sync_warp[32, 0](), "a shuffle and a `__syncwarp`"),
            program!(partial_sync_warp[32, 128](9), "a mask of some lanes, from two places"),
        ),
        detector(
            "a loop without end",
            Stopped,
            "Trap",
            program!(loops_for_ever[32, 0](1), "while a number is not 0").patience(SHORT),
            program!(loops_for_ever[32, 0](0), "the number is 0").patience(SHORT),
        ),
        detector(
            "a division by zero",
            Stopped,
            "Trap",
            program!(divides[32, 0](0), "100 / 0"),
            program!(divides[32, 0](1), "100 / 1"),
        ),
        detector(
            "a failed assert, a trap",
            Stopped,
            "Trap",
            program!(failing_assert[32, 0](), "in one thread"),
            program!(failing_assert[2, 0](), "in none"),
        ),
    ]
}

fn tma_races() -> Vec<Detector> {
    vec![
        detector(
            "a slot that TMA fills while it is read",
            Race,
            None,
            launch!(
                tma::refill,
                tma_refill(3, 17),
                "thread 0 fills it again when it has read itself"
            ),
            launch!(
                tma::refill,
                tma_refill(3, 0),
                "when it has met all that read"
            ),
        ),
        detector(
            "a slot that one lane frees for others",
            Race,
            None,
            launch!(
                tma::ring,
                tma_ring(5, 32768),
                "lane 0 of each warp, when it has read itself"
            ),
            launch!(
                tma::ring,
                tma_ring(5, 32768 | 65536),
                "after a `__syncwarp`"
            ),
        ),
        detector(
            "two loads into one place",
            Race,
            None,
            launch!(
                tma::ring,
                tma_ring(5, 2048),
                "each box is loaded twice in its phase"
            ),
            launch!(
                tma::ring,
                tma_ring(5, 16384),
                "two boxes side by side in a phase"
            ),
        ),
        detector(
            "a store to where TMA brings a box",
            Race,
            None,
            launch!(
                tma::refill,
                tma_refill(2, 4),
                "by the thread that has started the load"
            ),
            launch!(tma::refill, tma_refill(7, 0), "none"),
        ),
        detector(
            "a TMA store's source that is written again",
            Race,
            None,
            launch!(
                tma::store_tiles,
                tma_store_tiles(16),
                "while the storing thread waits"
            ),
            launch!(
                tma::store_tiles,
                tma_store_tiles(0),
                "after its wait and a barrier"
            ),
        ),
        detector(
            "what a TMA store writes, within a block",
            Race,
            None,
            launch!(
                tma::store_tiles,
                tma_store_tiles(2048),
                "read after the wait for its source and a barrier"
            ),
            launch!(
                tma::store_tiles,
                tma_store_tiles(1024),
                "TMA has brought what is stored, from elsewhere"
            ),
        ),
        detector(
            "what TMA stores write, between blocks",
            Race,
            None,
            launch!(
                tma::store_tiles,
                tma_store_tiles(512),
                "all blocks store the same tile"
            ),
            launch!(tma::store_tiles, tma_store_tiles(0), "each its own"),
        ),
    ]
}

fn tma_contents() -> Vec<Detector> {
    vec![
        detector(
            "a box that is read before its phase has ended",
            ReadInFlight,
            None,
            launch!(tma::ring, tma_ring(5, 1), "nobody waits"),
            launch!(
                tma::ring,
                tma_ring(5, 8192),
                "everybody asks again and again, also where a try fails for no reason"
            ),
        ),
        detector(
            "a box for which another thread has waited",
            ReadInFlight,
            None,
            launch!(tma::ring, tma_ring(5, 256), "one lane of each warp"),
            launch!(
                tma::ring,
                tma_ring(5, 256 | 512),
                "one lane, and a `__syncwarp` after it"
            ),
        ),
        detector(
            "a barrier in place of a wait for a box",
            ReadInFlight,
            None,
            launch!(tma::refill, tma_refill(2, 32), "`__syncthreads` alone"),
            launch!(
                tma::refill,
                tma_refill(2, 16),
                "after one thread has waited"
            ),
        ),
        detector(
            "a box whose bytes are not expected",
            ReadInFlight,
            None,
            launch!(
                tma::ring,
                tma_ring(5, 32),
                "the producer arrives without expecting"
            ),
            launch!(
                tma::ring,
                tma_ring(5, 4096),
                "it expects them when it has asked for them"
            ),
        ),
        detector(
            "a phase that ends before its last box",
            ReadInFlight,
            None,
            launch!(
                tma::ring,
                tma_ring(5, 8 | 16384),
                "the bytes of one of two are expected"
            ),
            launch!(tma::ring, tma_ring(5, 16384), "of both"),
        ),
        detector(
            "stores that the async proxy does not see",
            MissingProxyFence,
            None,
            launch!(
                tma::store_tiles,
                tma_store_tiles(1),
                "`tma_store` without a fence"
            ),
            launch!(
                tma::store_tiles,
                tma_store_tiles(1024),
                "without a fence, of what TMA has brought"
            ),
        ),
        detector(
            "a proxy fence of another thread",
            MissingProxyFence,
            None,
            launch!(
                tma::store_tiles,
                tma_store_tiles(2),
                "who starts the store fences for all"
            ),
            launch!(tma::store_tiles, tma_store_tiles(0), "each for itself"),
        ),
        detector(
            "a proxy fence behind the barrier",
            MissingProxyFence,
            None,
            launch!(
                tma::store_tiles,
                tma_store_tiles(4),
                "each fences when it has met who starts the store"
            ),
            launch!(tma::store_tiles, tma_store_tiles(0), "before"),
        ),
        detector(
            "stores on top of which TMA brings a box",
            MissingProxyFence,
            None,
            launch!(
                tma::refill,
                tma_refill(3, 64),
                "all lanes clear the slot and meet before the load"
            ),
            launch!(
                tma::refill,
                tma_refill(3, 64 | 128),
                "each fences what it has cleared before they meet"
            ),
        ),
        detector(
            "boxes beside a tensor's elements",
            OutOfBounds,
            None,
            launch!(
                tma::rows_of_elements,
                tma_ring(8),
                "the map has 8 rows, and 4 are elements"
            ),
            launch!(
                tma::rows_of_elements,
                tma_ring(4),
                "it has 4, of boxes of 8"
            ),
        ),
        detector(
            "a box at an odd address",
            Misaligned,
            "Misaligned",
            launch!(
                tma::misused,
                tma_misused(1536, 0, 0, false),
                "of 128-byte rows at a multiple of 512"
            ),
            launch!(tma::misused, tma_misused(3072, 0, 0, false), "of 1,024"),
        ),
        detector(
            "a box that starts between 16 bytes of a row",
            Stopped,
            "Tma",
            launch!(tma::at_column, tma_misused(2), "at column 2, of 4 bytes"),
            launch!(tma::at_column, tma_misused(-4), "at column -4"),
        ),
        detector(
            "a box that is not the block's",
            Stopped,
            "Tma",
            launch!(
                tma::misused,
                tma_misused(4096, 0, 0, false),
                "behind shared memory"
            ),
            launch!(
                tma::misused,
                tma_misused(3072, 0, 120, false),
                "the last kilobyte of it"
            ),
        ),
        detector(
            "a tensor map that is none",
            Stopped,
            "Tma",
            launch!(tma::misused, tma_misused(1024, -1, 0, false), "null"),
            launch!(
                tma::misused,
                tma_misused(1024, 1, 8, true),
                "the second of two"
            ),
        ),
        detector(
            "a TMA store before the tensor",
            Stopped,
            "Tma",
            launch!(
                tma::misused,
                tma_misused(1024, 1, -1, true),
                "it starts at row -1"
            ),
            launch!(
                tma::misused,
                tma_misused(1024, 0, -1, false),
                "a load does, and the row is zero"
            ),
        ),
    ]
}

fn tma_waits() -> Vec<Detector> {
    vec![
        detector(
            "bytes that never come",
            Deadlock,
            "WaitNeverObserved",
            launch!(tma::ring, tma_ring(5, 16), "twice as many are expected"),
            launch!(tma::ring, tma_ring(5, 0), "exactly those of a box"),
        ),
        detector(
            "bytes beyond those expected",
            Deadlock,
            "WaitNeverObserved",
            launch!(tma::ring, tma_ring(5, 8), "half of a box is expected"),
            launch!(
                tma::rows_of_elements,
                tma_ring(4),
                "a whole box, half of which lies outside of the tensor"
            ),
        ),
        detector(
            "free slots that are waited for in the first lap",
            Deadlock,
            "WaitNeverObserved",
            launch!(
                tma::ring,
                tma_ring(5, 1024),
                "by the parity of a phase that has to come"
            ),
            launch!(
                tma::ring,
                tma_ring(2, 0),
                "by that of the phase before the first"
            ),
        ),
        detector(
            "an mbarrier that TMA does not know",
            Stopped,
            "Mbarrier",
            launch!(tma::ring, tma_ring(5, 128), "no `fence_mbarrier_init`"),
            program!(mbarrier_ring[96, 1056](7), "none, where cp.async arrives"),
        ),
        detector(
            "more bytes than an mbarrier counts",
            Stopped,
            "Mbarrier",
            program!(tma_expects[32, 8](262_144, 4), "1 MiB in a phase"),
            program!(tma_expects[32, 8](262_144, 3), "768 KiB"),
        ),
        detector(
            "a box that is under way when the block ends",
            Stopped,
            "Tma",
            launch!(
                tma::refill,
                tma_refill(2, 8),
                "nobody waits for the last one"
            ),
            launch!(tma::refill, tma_refill(2, 0), "all are waited for"),
        ),
        detector(
            "a TMA store that shared memory does not outlive",
            Stopped,
            "Tma",
            launch!(
                tma::store_tiles,
                tma_store_tiles(256),
                "the wait leaves the last group"
            ),
            launch!(
                tma::store_tiles,
                tma_store_tiles(0),
                "its source is waited for, and not that it is written"
            ),
        ),
        detector(
            "a wait for another thread's TMA stores",
            Stopped,
            "Tma",
            launch!(
                tma::store_tiles,
                tma_store_tiles(128),
                "thread 32 waits for what thread 0 has stored"
            ),
            launch!(tma::store_tiles, tma_store_tiles(0), "thread 0 does"),
        ),
        detector(
            "a TMA store in no group",
            Stopped,
            "Tma",
            launch!(tma::store_tiles, tma_store_tiles(32), "never committed"),
            launch!(tma::store_tiles, tma_store_tiles(0), "committed alone"),
        ),
        detector(
            "an election without all lanes",
            Stopped,
            "CollectiveMismatch",
            program!(elect_one[32, 0](31), "the last lane does not take part"),
            program!(elect_one[64, 0](32), "the leader is another lane under each schedule"),
        ),
    ]
}

fn warpgroups() -> Vec<Detector> {
    vec![
        detector(
            "accumulators that are read in flight",
            HeldRegisters,
            None,
            program!(wgmma_attention[128, 24576](16, 4), "O beside P V"),
            program!(wgmma_attention[128, 24576](0, 4), "the scores beside P V, after `wgmma_wait<1>`"),
        ),
        detector(
            "accumulators that are written in flight",
            HeldRegisters,
            "InvalidCollective",
            program!(wgmma_attention[128, 24576](32, 4), "O beside P V"),
            program!(wgmma_attention[128, 24576](0, 4), "O is scaled after its wait, and a fence follows"),
        ),
        detector(
            "registers of A that are written in flight",
            HeldRegisters,
            "InvalidCollective",
            program!(wgmma_attention[128, 24576](64, 4), "P before the wait for P V"),
            program!(wgmma_attention[128, 24576](0, 4), "after it"),
        ),
        detector(
            "a wait that leaves the last product in flight",
            HeldRegisters,
            None,
            program!(wgmma_attention[128, 24576](4, 4), "`wgmma_wait<1>` for the newest group"),
            program!(wgmma_attention[128, 24576](0, 4), "for the one before it"),
        ),
        detector(
            "accumulators that no wait names",
            HeldRegisters,
            None,
            program!(wgmma_attention[128, 24576](4096, 4), "`wgmma_wait<0>()` before they are read"),
            program!(wgmma_misused[128, 24576](15), "before the next product adds to them"),
        ),
        detector(
            "wgmma without a fence",
            Stopped,
            "InvalidCollective",
            program!(wgmma_attention[128, 24576](1, 4), "new accumulators, P in registers"),
            program!(wgmma_attention[128, 24576](0, 4), "steps along K are chained without one"),
        ),
        detector(
            "a product in no group",
            Stopped,
            "InvalidCollective",
            program!(wgmma_misused[128, 24576](11), "no `wgmma_commit`"),
            program!(wgmma_misused[128, 24576](0), "two steps in one group"),
        ),
        detector(
            "a product that nobody waits for",
            Stopped,
            "InvalidCollective",
            program!(wgmma_misused[128, 24576](12), "no `wgmma_wait`"),
            program!(wgmma_misused[128, 24576](0), "the last one is waited for"),
        ),
        detector(
            "an operand of wgmma that is overwritten",
            Race,
            None,
            program!(wgmma_attention[128, 24576](128, 4), "before the wait"),
            program!(wgmma_attention[128, 24576](0, 4), "each thread overwrites its part after its own wait, without a barrier"),
        ),
        detector(
            "a slot that is freed while wgmma reads it",
            Race,
            None,
            program!(wgmma_ring[160, 24608](1, 5), "one thread says so before its wait"),
            program!(wgmma_ring[160, 24608](0, 5), "after its wait, for all four warps"),
        ),
        detector(
            "an operand of which a part is written",
            UninitialisedShared,
            None,
            program!(wgmma_attention[128, 24576](1024, 4), "a row less"),
            program!(wgmma_attention[128, 24576](0, 4), "all rows"),
        ),
        detector(
            "an operand without a barrier",
            Race,
            None,
            program!(wgmma_attention[128, 24576](2048, 4), "none after it is written"),
            program!(wgmma_attention[128, 24576](0, 4), "`__syncthreads`"),
        ),
        detector(
            "stores that wgmma does not see",
            MissingProxyFence,
            None,
            program!(wgmma_attention[128, 24576](256, 4), "no `fence_proxy_async`"),
            program!(wgmma_attention[128, 24576](0, 4), "one in each thread that stores"),
        ),
        detector(
            "a proxy fence that comes too late",
            MissingProxyFence,
            None,
            program!(wgmma_attention[128, 24576](512, 4), "after the barrier"),
            program!(wgmma_attention[128, 24576](0, 4), "before it"),
        ),
        detector(
            "a proxy fence of one thread for all",
            MissingProxyFence,
            None,
            program!(wgmma_attention[128, 24576](8192, 4), "thread 0 fences for all"),
            program!(wgmma_ring[160, 24608](0, 5), "the producer warp, before it arrives"),
        ),
        detector(
            "a descriptor that leaves shared memory",
            Stopped,
            "InvalidCollective",
            program!(wgmma_misused[128, 24576](3), "eight rows too far"),
            program!(wgmma_misused[128, 24576](0), "the last tile"),
        ),
        detector(
            "a tile off its swizzle's boundary",
            Stopped,
            "InvalidCollective",
            program!(wgmma_misused[128, 24576](4), "128 bytes behind a multiple of 1024"),
            program!(wgmma_misused[128, 24576](0), "a step of 32 bytes along K"),
        ),
        detector(
            "warps that issue different products",
            Stopped,
            "CollectiveMismatch",
            program!(wgmma_misused[128, 24576](6), "another descriptor in one of them"),
            program!(wgmma_misused[128, 24576](0), "the same in all"),
        ),
        detector(
            "a product that one warp does not issue",
            Deadlock,
            "WaitNeverObserved",
            program!(wgmma_misused[128, 24576](2), "three of four"),
            program!(wgmma_misused[128, 24576](0), "all four, in any order"),
        ),
        detector(
            "a warpgroup that is none",
            Stopped,
            "InvalidCollective",
            program!(wgmma_misused[160, 24576](0, 1), "warps 1 to 4"),
            program!(wgmma_misused[256, 24576](0, 4), "warps 4 to 7"),
        ),
        detector(
            "wgmma without one of the lanes",
            Stopped,
            "CollectiveMismatch",
            program!(wgmma_misused[128, 24576](1), "lane 5 has left"),
            program!(wgmma_misused[128, 24576](0), "none has"),
        ),
        detector(
            "stmatrix and a lane, its own included",
            Race,
            None,
            program!(stmatrix_then_lanes[32, 1024](0, 16), "read without `__syncwarp`"),
            program!(stmatrix_then_lanes[32, 1024](1, 16), "after one"),
        ),
        detector(
            "stmatrix to a row at an odd address",
            Misaligned,
            "Misaligned",
            program!(stmatrix_then_lanes[32, 1024](1, 16, 8), "a multiple of 8"),
            program!(stmatrix_then_lanes[32, 1024](1, 16, 16), "of 16"),
        ),
        detector(
            "registers that never come",
            Deadlock,
            "WaitNeverObserved",
            program!(registers_misused[384, 0](1), "more than the other warpgroup gives back"),
            program!(registers_misused[384, 0](0), "exactly as many, given back later"),
        ),
        detector(
            "registers in the wrong direction",
            Stopped,
            "InvalidCollective",
            program!(registers_misused[384, 0](2), "`take_registers` of fewer"),
            program!(registers_misused[384, 0](0), "of more"),
        ),
        detector(
            "a warp that keeps its registers",
            Stopped,
            "InvalidCollective",
            program!(registers_misused[384, 0](5), "three of four give them back"),
            program!(registers_misused[384, 0](0), "all four"),
        ),
        detector(
            "products of a box that nobody waits for",
            ReadInFlight,
            None,
            launch!(
                wgmma::of_boxes,
                wgmma_of_boxes(1, 5, 1),
                "no `mbarrier_wait_tx`"
            ),
            launch!(
                wgmma::of_boxes,
                wgmma_of_boxes(1, 5, 0),
                "waited for, and no proxy fence"
            ),
        ),
        detector(
            "products of a box for which one thread waits",
            ReadInFlight,
            None,
            launch!(
                wgmma::of_boxes,
                wgmma_of_boxes(2, 5, 2),
                "the first of each warpgroup"
            ),
            launch!(wgmma::of_boxes, wgmma_of_boxes(2, 5, 0), "all threads"),
        ),
        detector(
            "a box over an operand of wgmma",
            Race,
            None,
            launch!(wgmma::of_boxes, wgmma_of_boxes(1, 5, 4), "before the wait"),
            launch!(
                wgmma::of_boxes,
                wgmma_of_boxes(1, 5, 8),
                "by a thread that has waited, without a barrier"
            ),
        ),
        detector(
            "a box over an operand of another warpgroup",
            Race,
            None,
            launch!(
                wgmma::of_boxes,
                wgmma_of_boxes(2, 5, 8),
                "by a thread that has waited for its own"
            ),
            launch!(
                wgmma::of_boxes,
                wgmma_of_boxes(2, 5, 0),
                "after one thread of each has said so"
            ),
        ),
    ]
}

fn clusters() -> Vec<Detector> {
    vec![
        detector(
            "a store to a block that may not have started",
            Stopped,
            "Mbarrier",
            launch!(
                cluster::exchange,
                cluster_exchange(1, 1),
                "before the wait for the cluster"
            ),
            launch!(cluster::exchange, cluster_exchange(0, 1), "after it"),
        ),
        detector(
            "an mbarrier of which no fence tells the other block",
            Race,
            None,
            launch!(
                cluster::exchange,
                cluster_exchange(4096, 1),
                "a relaxed arrival"
            ),
            launch!(
                cluster::exchange,
                cluster_exchange(12288, 1),
                "the same after `fence_mbarrier_init`"
            ),
        ),
        detector(
            "a store whose phase nobody has waited for",
            ReadInFlight,
            None,
            launch!(cluster::exchange, cluster_exchange(2, 1), "read at once"),
            launch!(cluster::exchange, cluster_exchange(0, 1), "waited for"),
        ),
        detector(
            "a store of another block that a wait of the block does not acquire",
            ReadInFlight,
            None,
            launch!(
                cluster::exchange,
                cluster_exchange(16384, 1),
                "`mbarrier_wait_tx`"
            ),
            launch!(
                cluster::exchange,
                cluster_exchange(16384 | 32768, 1),
                "the same, of what the block stores to itself"
            ),
        ),
        detector(
            "a store for which another thread has waited",
            ReadInFlight,
            None,
            launch!(cluster::exchange, cluster_exchange(4, 1), "thread 0 waits"),
            launch!(
                cluster::exchange,
                cluster_exchange(12, 1),
                "thread 0 waits, and `__syncthreads` follows"
            ),
        ),
        detector(
            "a place that another block fills again",
            Race,
            None,
            launch!(
                cluster::exchange,
                cluster_exchange(256, 2),
                "while it is read"
            ),
            launch!(
                cluster::exchange,
                cluster_exchange(0, 2),
                "after the cluster has met"
            ),
        ),
        detector(
            "a block that ends before what is stored there has come",
            Stopped,
            "Tma",
            launch!(
                cluster::exchange,
                cluster_exchange(128, 1),
                "block 1 does not wait"
            ),
            launch!(cluster::exchange, cluster_exchange(0, 1), "both wait"),
        ),
        detector(
            "a cluster's barrier at which a warp arrives twice",
            Stopped,
            "CollectiveMismatch",
            launch!(
                cluster::exchange,
                cluster_exchange(16, 1),
                "without a wait between"
            ),
            launch!(
                cluster::exchange,
                cluster_exchange(0, 2),
                "it waits in between"
            ),
        ),
        detector(
            "a cluster's barrier at which a warp only waits",
            Stopped,
            "InvalidCollective",
            launch!(
                cluster::exchange,
                cluster_exchange(32, 1),
                "it has not arrived"
            ),
            launch!(cluster::exchange, cluster_exchange(0, 1), "it has"),
        ),
        detector(
            "a cluster's barrier that a warp does not reach",
            Deadlock,
            "Deadlock",
            launch!(
                cluster::missed,
                cluster_barrier_missed(1),
                "one that waits elsewhere"
            ),
            launch!(
                cluster::missed,
                cluster_barrier_missed(0),
                "one that has left"
            ),
        ),
        detector(
            "bytes that no block stores",
            Deadlock,
            "WaitNeverObserved",
            launch!(
                cluster::exchange,
                cluster_exchange(64, 1),
                "one store more is expected"
            ),
            launch!(
                cluster::exchange,
                cluster_exchange(0, 1),
                "exactly those of 128"
            ),
        ),
        detector(
            "a store behind the other block's shared memory",
            Stopped,
            "Tma",
            launch!(
                cluster::exchange,
                cluster_exchange(512, 1),
                "128 bytes behind it"
            ),
            launch!(
                cluster::exchange,
                cluster_exchange(0, 1),
                "up to the last place"
            ),
        ),
        detector(
            "a store to a block that is not there",
            Stopped,
            "Tma",
            launch!(
                cluster::exchange,
                cluster_exchange(2048, 1),
                "the third of two"
            ),
            launch!(cluster::exchange, cluster_exchange(0, 1), "the second"),
        ),
        detector(
            "a store to an odd address",
            Misaligned,
            "Misaligned",
            launch!(
                cluster::exchange,
                cluster_exchange(1024, 1),
                "a multiple of 8"
            ),
            launch!(cluster::exchange, cluster_exchange(0, 1), "of 16"),
        ),
    ]
}

impl Program {
    fn blocks(mut self, blocks: u32) -> Self {
        (self.plain, self.traced) = (self.plain.blocks(blocks), self.traced.blocks(blocks));
        self
    }

    fn patience(mut self, patience: Duration) -> Self {
        self.plain = self.plain.patience(patience);
        self.traced = self.traced.patience(patience);
        self
    }

    fn elements(mut self, bytes: std::ops::Range<usize>) -> Self {
        self.traced = self.traced.elements(bytes);
        self
    }
}

fn detectors() -> Vec<Detector> {
    let tma = tma_races()
        .into_iter()
        .chain(tma_contents())
        .chain(tma_waits());
    races()
        .into_iter()
        .chain(contents())
        .chain(waits())
        .chain(tma)
        .chain(warpgroups())
        .chain(clusters())
        .collect()
}

#[test]
fn each_detector_catches_its_program_and_spares_its_near_miss() {
    for Detector {
        name,
        kind,
        fault,
        catches,
        spares,
    } in detectors()
    {
        let mut kinds = BTreeSet::new();
        let mut faults = BTreeSet::new();
        for schedule in SCHEDULES {
            let found = catches
                .traced
                .clone()
                .schedule(schedule)
                .trace([8192, 0])
                .hazards;
            kinds.extend(found.iter().map(|hazard| hazard.kind));
            let clean = spares
                .traced
                .clone()
                .schedule(schedule)
                .trace([8192, 0])
                .hazards;
            assert!(
                clean.is_empty(),
                "{name}: {} is flagged under {schedule:?}: {}",
                spares.name,
                clean[0]
            );
            if fault.is_some() {
                let run =
                    |program: &Program| program.plain.clone().schedule(schedule).output::<u8>(8192);
                faults.extend(
                    run(&catches)
                        .err()
                        .map(|fault| format!("{fault:?}").split(' ').next().unwrap().to_owned()),
                );
                let spared = run(&spares);
                assert!(
                    spared.is_ok(),
                    "{name}: {} stops under {schedule:?}: {}",
                    spares.name,
                    spared.unwrap_err()
                );
            }
        }
        assert!(
            kinds.contains(&kind),
            "{name}: {} gives {kinds:?}",
            catches.name
        );
        assert!(
            fault.is_none_or(|fault| faults.contains(fault)),
            "{name}: {} gives {faults:?}",
            catches.name
        );
    }
}

/// Variants of an enum, by its source.
fn variants(source: &str, name: &str) -> BTreeSet<String> {
    let body = source
        .split_once(&format!("pub enum {name} {{\n"))
        .unwrap()
        .1
        .split_once("\n}")
        .unwrap()
        .0;
    let is_variant =
        |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_uppercase);
    let word = |line: &str| {
        line.trim()
            .split([' ', ',', '('])
            .next()
            .unwrap()
            .to_owned()
    };
    body.lines().filter(is_variant).map(word).collect()
}

#[test]
fn every_kind_of_hazard_and_every_fault_has_a_detector() {
    let read = |file: &str| {
        std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap()
    };
    let kinds: BTreeSet<String> = detectors()
        .iter()
        .map(|it| format!("{:?}", it.kind))
        .collect();
    assert_eq!(
        kinds,
        variants(&read("../src/judge/hazard.rs"), "HazardKind")
    );
    let mut faults: BTreeSet<String> = detectors()
        .iter()
        .filter_map(|it| it.fault.map(String::from))
        .collect();
    // Launches that are refused as a whole, and the mark that a traced block's hazards hold the reason.
    faults.extend(["BadLaunch", "SharedTooLarge", "Hazard"].map(String::from));
    assert_eq!(faults, variants(&read("../src/fault.rs"), "Fault"));
}

#[test]
fn the_page_of_detectors_says_what_runs() {
    let cell = |program: &Program| format!("`{}`: {}", program.name, program.words);
    let row = |it: &Detector| {
        let fault = it
            .fault
            .map(|fault| format!(", `Fault::{fault}`"))
            .unwrap_or_default();
        format!(
            "| {} | {}{fault} | {} | {} |",
            it.name,
            it.kind.label(),
            cell(&it.catches),
            cell(&it.spares)
        )
    };
    let expected: Vec<String> = detectors().iter().map(row).collect();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../DETECTORS.md");
    let text = std::fs::read_to_string(page).unwrap_or_default();
    let rows: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1)
        .collect();
    assert!(
        rows == expected,
        "common/emulator/DETECTORS.md should have these rows:\n{}",
        expected.join("\n")
    );
    let quoted: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("> "))
        .collect();
    let last_tile = detectors()
        .into_iter()
        .find(|it| it.catches.name == "copied_one_ahead")
        .unwrap();
    assert_eq!(
        quoted.join(" "),
        last_tile.catches.traced.trace([8192, 0]).hazards[0].to_string()
    );
}
