//! Every synchronisation site of every correct kernel is suppressed: the judge finds a hazard, or
//! the reason why not stands here.

use std::collections::{BTreeMap, BTreeSet};

use emulator::Place;

use crate::launch::{SCHEDULES, assert_clean, launch, place};

/// Returns the sites that their kernels do without.
fn redundant_sites() -> [Place; 7] {
    [
        // The kernel reads after the last wait, which covers all groups.
        place("cp_async.cu", "cp_async_wait_group<2>"),
        place("cp_async.cu", "cp_async_wait_group<1>"),
        // Each thread reads the column that it has written.
        place("hazards.cu", "// all rows are there"),
        // Each thread reads the words that it has written.
        place("hazards.cu", "// the words are there"),
        // Nobody reads what was copied.
        place("hazards.cu", "// at the end"),
        // Nothing comes after it.
        place("mbarrier.cu", "// the second"),
        // Each lane stores the elements that it has loaded.
        place("wmma.cu", "// the old elements have been read"),
    ]
}

/// Correct launches that together need each of their sites.
const CORRECT: [&str; 51] = [
    "barrier_in_one_branch<<<1, 64, 256>>>(1)",
    "copied_one_ahead<<<1, 64, 2048>>>(4, 1)",
    "copied_one_ahead<<<1, 64, 2048>>>(4, 0, 1)",
    "copied_by_a_producer<<<1, 96, 512>>>(1, 1)",
    "tiles_by_helpers<<<1, 64, 2048>>>(0, 1)",
    "ring_without_free_slots<<<1, 64, 256>>>(4, 1)",
    "ring_without_free_slots<<<1, 64, 256>>>(4, 0, 1)",
    "rows_one_too_many<<<1, 32, 1024>>>(8, 8)",
    "vector_at<<<1, 32, 2048>>>(16)",
    "matrix_then_lanes<<<1, 32, 1024>>>(1)",
    "lanes_then_matrix<<<1, 32, 512>>>(1)",
    "lanes_then_ldmatrix<<<1, 32, 2048>>>(1, 16)",
    "matrix_in_place<<<1, 32, 1024>>>()",
    "warp_ping_pong<<<1, 64, 256>>>()",
    "groups_of_ones_own<<<1, 32, 2048>>>()",
    "copy_without<<<1, 32, 512>>>(1, 1)",
    "copy_source_overwritten<<<1, 32, 512>>>(1)",
    "global_within_block<<<1, 64, 0>>>(1)",
    "reverse<<<1, 64, 256>>>(2)",
    "partial_sync_warp<<<1, 32, 128>>>(5)",
    "cp_async_groups<<<1, 32, 1536>>>(3)",
    "cp_async_of_each_size<<<1, 32, 64>>>()",
    "ldmatrix_and_mma<<<1, 32, 2048>>>()",
    "named_barriers_hand_over<<<1, 64, 128>>>(4)",
    "named_barriers_of_pairs<<<1, 128, 512>>>(3)",
    "row_by_named_barrier<<<1, 64, 128>>>()",
    "ring<<<1, 96, 288>>>(6)",
    "ring_by_stores<<<1, 64, 288>>>(6)",
    "store_before_copies_arrive<<<1, 64, 272>>>(1)",
    "phase_that_a_waiter_misses<<<1, 96, 16>>>(1)",
    "tile_copied_by_one_warp<<<1, 96, 1536>>>(1)",
    "roles_with_unequal_barriers<<<1, 64, 128>>>(1)",
    "wmma_row_row<<<1, 32, 16384>>>()",
    "tma_ring<<<1, 96, 5120>>>(6, 0)",
    "tma_ring<<<1, 96, 5120>>>(6, 4096+8192)",
    "tma_ring<<<1, 96, 5120>>>(6, 256+512+32768+65536)",
    "tma_refill<<<1, 32, 2048>>>(4, 0)",
    "tma_refill<<<1, 32, 2048>>>(4, 16)",
    "tma_store_tiles<<<2, 64, 4096>>>(2, 0)",
    "tma_store_tiles<<<2, 64, 4096>>>(2, 1024)",
    "tma_misused<<<1, 32, 4096>>>(1024, 0, 0, 0)",
    "tma_misused<<<1, 32, 4096>>>(1024, 1, 0, 1)",
    "wgmma_of_boxes<<<1, 128, 16416>>>(5, 8)",
    "wgmma_of_boxes<<<1, 256, 16416>>>(5, 0)",
    "wgmma_attention<<<1, 128, 24576>>>(0, 4)",
    "wgmma_ring<<<1, 160, 24608>>>(0, 5)",
    "wgmma_misused<<<1, 128, 24576>>>()",
    "stmatrix_then_lanes<<<1, 32, 1024>>>(1, 16)",
    "cluster_exchange<<<2, 128, 2056>>>(0, 2)",
    "cluster_exchange<<<2, 128, 2056>>>(4+8, 2)",
    "cluster_exchange<<<2, 128, 2056>>>(4096+8192, 1)",
];

/// The operations of the correct launches.
const OPERATIONS: [&str; 24] = [
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

#[test]
fn every_site_of_a_correct_kernel_is_needed_or_redundant_for_a_reason() {
    let (mut needed, mut operations) = (BTreeMap::<Place, bool>::new(), BTreeSet::new());
    for text in CORRECT {
        let run = launch(text);
        assert_clean([text]);
        let whole = run.trace([8192, 8192]);
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
    let redundant: Vec<Place> = needed
        .into_iter()
        .filter(|(_, is_needed)| !is_needed)
        .map(|(place, _)| place)
        .collect();
    assert_eq!(redundant, redundant_sites());
    assert_eq!(
        operations.iter().map(String::as_str).collect::<Vec<_>>(),
        OPERATIONS
    );
}
