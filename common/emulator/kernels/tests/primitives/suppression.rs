//! Every synchronisation site of every correct kernel, left out: the judge finds a hazard, or it is said here why not.

use std::collections::{BTreeMap, BTreeSet};

use emulator::Place;
use emulator_kernels::{entry, traced};

use crate::support::{Run, SCHEDULES, line};
use crate::{cluster, tma, wgmma};

/// Sites that their kernels do without: the file, words of the line, and the reason.
const REDUNDANT: [(&str, &str, &str); 7] = [
    (
        "cp_async.cu",
        "cp_async_wait_group<2>",
        "the kernel reads after the last wait, which covers all groups",
    ),
    ("cp_async.cu", "cp_async_wait_group<1>", "the same"),
    (
        "hazards.cu",
        "// all rows are there",
        "each thread reads the column that it has written",
    ),
    (
        "hazards.cu",
        "// the words are there",
        "each thread reads the words that it has written",
    ),
    (
        "hazards.cu",
        "// at the end",
        "nobody reads what was copied",
    ),
    ("mbarrier.cu", "// the second", "nothing comes after it"),
    (
        "wmma.cu",
        "// the old elements have been read",
        "each lane stores the elements that it has loaded",
    ),
];

/// Kernels that are right, in launches that together need each of their sites.
fn correct() -> Vec<Run> {
    let floats: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let run = |entry, threads, shared| {
        Run::new(entry, threads)
            .shared(shared)
            .input(0, &floats)
            .input(1, &floats)
            .input(2, &floats)
    };
    vec![
        run(traced::barrier_in_one_branch, 64, 256).number(0, 1),
        run(traced::copied_one_ahead, 64, 2048)
            .number(0, 4)
            .number(1, 1),
        run(traced::copied_one_ahead, 64, 2048)
            .number(0, 4)
            .number(2, 1),
        run(traced::copied_by_a_producer, 96, 512)
            .number(0, 1)
            .number(1, 1),
        run(traced::tiles_by_helpers, 64, 2048).number(1, 1),
        run(traced::ring_without_free_slots, 64, 256)
            .number(0, 4)
            .number(1, 1),
        run(traced::ring_without_free_slots, 64, 256)
            .number(0, 4)
            .number(2, 1),
        run(traced::rows_one_too_many, 32, 1024)
            .number(0, 8)
            .number(1, 8),
        run(traced::vector_at, 32, 2048).number(0, 16),
        run(traced::matrix_then_lanes, 32, 1024).number(0, 1),
        run(traced::lanes_then_matrix, 32, 512).number(0, 1),
        run(traced::lanes_then_ldmatrix, 32, 2048)
            .number(0, 1)
            .number(1, 16),
        run(traced::matrix_in_place, 32, 1024),
        run(traced::warp_ping_pong, 64, 256),
        run(traced::groups_of_ones_own, 32, 2048),
        run(traced::copy_without, 32, 512).number(0, 1).number(1, 1),
        run(traced::copy_source_overwritten, 32, 512).number(0, 1),
        run(traced::global_within_block, 64, 0).number(0, 1),
        run(traced::reverse, 64, 256).number(0, 2),
        run(traced::partial_sync_warp, 32, 128).number(0, 5),
        run(traced::cp_async_groups, 32, 48 * 32).number(0, 3),
        run(traced::cp_async_of_each_size, 32, 64),
        run(traced::ldmatrix_and_mma, 32, 2048),
        run(traced::named_barriers_hand_over, 64, 128).number(0, 4),
        run(traced::named_barriers_of_pairs, 128, 512).number(0, 3),
        run(traced::row_by_named_barrier, 64, 128),
        run(traced::mbarrier_ring, 96, 1056).number(0, 6),
        run(traced::ring, 96, 288).number(0, 6),
        run(traced::ring_by_stores, 64, 288).number(0, 6),
        run(traced::store_before_copies_arrive, 64, 272).number(0, 1),
        run(traced::phase_that_a_waiter_misses, 96, 16).number(0, 1),
        run(traced::tile_copied_by_one_warp, 96, 96 * 16).number(0, 1),
        run(traced::roles_with_unequal_barriers, 64, 128).number(0, 1),
        run(traced::wmma_row_row, 32, 16384),
        tma::ring(traced::tma_ring, 6, 0).input(0, &floats),
        tma::ring(traced::tma_ring, 6, 4096 | 8192).input(0, &floats),
        tma::ring(traced::tma_ring, 6, 256 | 512 | 32768 | 65536).input(0, &floats),
        tma::refill(traced::tma_refill, 4, 0).input(0, &floats),
        tma::refill(traced::tma_refill, 4, 16).input(0, &floats),
        tma::store_tiles(traced::tma_store_tiles, 0).input(0, &floats),
        tma::store_tiles(traced::tma_store_tiles, 1024).input(0, &floats),
        tma::misused(traced::tma_misused, 1024, 0, 0, false).input(0, &floats),
        tma::misused(traced::tma_misused, 1024, 1, 0, true).input(0, &floats),
        wgmma::of_boxes(traced::wgmma_of_boxes, 1, 5, 8).input(0, &floats),
        wgmma::of_boxes(traced::wgmma_of_boxes, 2, 5, 0).input(0, &floats),
        run(traced::wgmma_attention, 128, 24576).number(1, 4),
        run(traced::wgmma_ring, 160, 24608).number(1, 5),
        run(traced::wgmma_misused, 128, 24576),
        run(traced::stmatrix_then_lanes, 32, 1024)
            .number(0, 1)
            .number(1, 16),
        cluster::exchange(traced::cluster_exchange, 0, 2).input(0, &floats),
        cluster::exchange(traced::cluster_exchange, 4 | 8, 2).input(0, &floats),
        cluster::exchange(traced::cluster_exchange, 4096 | 8192, 1).input(0, &floats),
    ]
}

#[test]
fn every_site_of_a_correct_kernel_is_needed_or_redundant_for_a_reason() {
    let (mut needed, mut operations) = (BTreeMap::<Place, bool>::new(), BTreeSet::new());
    for run in correct() {
        let whole = run.trace([8192, 8192]);
        assert_eq!(whole.hazards, []);
        for site in &whole.sync_sites {
            let is_killed = SCHEDULES.map(|schedule| {
                let broken = run
                    .clone()
                    .schedule(schedule)
                    .suppress(site.place.clone())
                    .trace([8192, 8192]);
                assert!(
                    broken.sync_sites.contains(site),
                    "a suppressed site is still a site"
                );
                !broken.hazards.is_empty()
            });
            assert!(
                is_killed.iter().all(|killed| *killed == is_killed[0]),
                "{site:?} by schedule: {is_killed:?}"
            );
            *needed.entry(site.place.clone()).or_default() |= is_killed[0];
            operations.insert(site.operation.clone());
        }
    }
    let redundant: Vec<String> = needed
        .iter()
        .filter(|(_, needed)| !**needed)
        .map(|(place, _)| place.to_string())
        .collect();
    let listed = REDUNDANT.map(|(file, words, _reason)| format!("cu/{file}:{}", line(file, words)));
    assert_eq!(redundant, listed);
    let expected = [
        "__syncthreads",
        "__syncwarp",
        "cluster_arrive",
        "cluster_arrive_relaxed",
        "cluster_wait",
        "cp_async_commit",
        "cp_async_wait_group",
        "fence_mbarrier_init",
        "fence_proxy_async",
        "mbarrier_arrive",
        "mbarrier_arrive_after_cp_async",
        "mbarrier_arrive_expect_tx",
        "mbarrier_test_wait",
        "mbarrier_try_wait",
        "mbarrier_wait",
        "mbarrier_wait_cluster",
        "mbarrier_wait_tx",
        "named_barrier_arrive",
        "named_barrier_sync",
        "tma_store_commit",
        "tma_store_wait_read",
        "wgmma_commit",
        "wgmma_fence",
        "wgmma_wait",
    ];
    assert_eq!(
        operations.iter().map(String::as_str).collect::<Vec<_>>(),
        expected
    );
}

#[test]
fn the_plain_build_can_leave_a_site_out_too() {
    let input: Vec<i32> = (0..64).collect();
    let run = Run::new(entry::reverse, 64)
        .shared(256)
        .input(0, &input)
        .number(0, 1);
    let expected: Vec<i32> = input.iter().rev().copied().collect();
    assert_eq!(run.output::<i32>(64).unwrap(), expected);
    let site = |text| Place {
        file: "cu/barrier.cu".into(),
        line: line("barrier.cu", text),
    };
    let without = |text| run.clone().suppress(site(text)).output::<i32>(64).unwrap();
    assert_ne!(without("// all have written"), expected);
    assert_eq!(
        without("// all have read"),
        expected,
        "one round only: nothing comes after it"
    );
}
