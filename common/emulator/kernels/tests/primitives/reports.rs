//! Launches beside those of `DETECTORS.md`: what is reported of each, and such that must pass.

use crate::launch::{assert_clean, faults, faults_of, hazards_of};

const FLAGGED: [&str; 35] = [
    "called_from_two_lines<<<1, 64, 256>>>(0)",
    "copied_one_ahead<<<1, 64, 2048>>>(1, 0, 0)",
    "copied_one_ahead<<<1, 64, 2048>>>(2, 0, 0)",
    "copied_by_a_producer<<<1, 64, 512>>>(1, 0)",
    "tiles_by_helpers<<<1, 64, 2048>>>(1, 1)",
    "tiles_by_helpers<<<1, 64, 2048>>>(0, 0)",
    "row_of_input<<<1, 32, 0>>>(0), elements 512..2048",
    "row_of_input<<<1, 32, 0>>>(1048576), elements 512..2048",
    "vector_at<<<1, 32, 2048>>>(4)",
    "vector_at<<<1, 32, 2048>>>(17)",
    "lanes_then_matrix<<<1, 32, 512>>>(0)",
    "copy_without<<<1, 32, 512>>>(1, 0)",
    "shuffle_from_exited_lane<<<1, 32, 0>>>()",
    "row_by_named_barrier<<<1, 64, 128>>>(2)",
    "row_by_named_barrier<<<1, 64, 128>>>(3)",
    "roles_with_flags<<<1, 64, 2048>>>(0)",
    "ring<<<1, 96, 288>>>(5, 1)",
    "ring<<<1, 96, 288>>>(5, 2)",
    "ring<<<1, 96, 288>>>(5, 4)",
    "ring<<<1, 96, 288>>>(5, 16)",
    "ring<<<1, 96, 288>>>(5, 32)",
    "ring<<<1, 96, 288>>>(5, 64)",
    "ring<<<1, 96, 288>>>(5, 256)",
    "ring<<<1, 96, 288>>>(5, 1024)",
    "ring<<<1, 96, 288>>>(5, 4096)",
    "ring_by_stores<<<1, 64, 288>>>(9, 50, 2)",
    "tma_ring<<<1, 96, 5120>>>(5, 2)",
    "tma_ring<<<1, 96, 5120>>>(5, 4)",
    "tma_ring<<<1, 96, 5120>>>(5, 64)",
    "tma_ring<<<1, 96, 5120>>>(5, 131072)",
    "tma_refill<<<1, 32, 2048>>>(2, 2)",
    "tma_refill<<<1, 32, 2048>>>(3, 64+256)",
    "tma_store_tiles<<<2, 64, 4096>>>(2, 8)",
    "tma_store_tiles<<<2, 64, 4096>>>(2, 64)",
    "wgmma_attention<<<1, 128, 24576>>>(8, 4)",
];

const STOPPED: [&str; 59] = [
    "trap_in_one_thread<<<50, 64, 0>>>(3)",
    "failing_assert<<<1, 1024, 0>>>()",
    "barrier_missed_by_one<<<1, 128, 0>>>(37)",
    "barrier_at_two_lines<<<1, 64, 0>>>()",
    "shuffle_waits_for_a_lane_at_the_barrier<<<1, 32, 0>>>()",
    "shuffle_from_exited_lane<<<1, 32, 0>>>()",
    "mask_without_the_caller<<<1, 32, 0>>>()",
    "masks_that_overlap<<<1, 32, 0>>>()",
    "shuffle_of_odd_width<<<1, 32, 0>>>()",
    "warp_sum<<<2, 80, 0>>>()",
    "named_barrier_of_too_many<<<1, 64, 0>>>()",
    "named_barrier_that_is_not_there<<<1, 32, 0>>>(0)",
    "named_barrier_that_is_not_there<<<1, 32, 0>>>(16)",
    "named_barrier_that_is_not_there<<<1, 32, 0>>>(-1)",
    "named_barriers_differ<<<1, 32, 0>>>()",
    "named_barrier_by_half_a_warp<<<1, 64, 0>>>()",
    "cp_async_misused<<<1, 1, 64>>>(8, 0, 16)",
    "cp_async_misused<<<1, 1, 64>>>(0, 4, 16)",
    "cp_async_misused<<<1, 1, 64>>>(0, 0, 17)",
    "cp_async_to_global<<<1, 1, 0>>>()",
    "ldmatrix_misused<<<1, 32, 1024>>>(240000, 32)",
    "ldmatrix_misused<<<1, 32, 1024>>>(0, 31)",
    "wmma_misaligned<<<1, 32, 4096>>>(16, 16)",
    "wmma_misaligned<<<1, 32, 4096>>>(0, 20)",
    "wmma_pointers_differ<<<1, 32, 4096>>>()",
    "wmma_pointers_differ<<<1, 16, 4096>>>()",
    "wmma_after_exit<<<1, 32, 4096>>>()",
    "mbarrier_misused<<<1, 32, 1024>>>(0, 0)",
    "mbarrier_misused<<<1, 32, 1024>>>(0, 1048576)",
    "mbarrier_misused<<<1, 32, 1024>>>(1024, 1)",
    "mbarrier_misused<<<1, 32, 1024>>>(4, 1)",
    "mbarrier_misused<<<1, 32, 1024>>>(0, 2)",
    "mbarrier_misused<<<1, 32, 1024>>>(0, 1, 2)",
    "mbarrier_misused<<<1, 32, 1024>>>(0, 1, 0, 1)",
    "mbarrier_misused<<<1, 32, 1024>>>(64, 1, 0, 2)",
    "tma_store_tiles<<<2, 64, 4096>>>(2, 64)",
    "tma_misused<<<1, 32, 4096>>>(3584, 0, 0, 0)",
    "tma_misused<<<1, 32, 4096>>>(3584, 0, 0, 1)",
    "tma_misused<<<1, 32, 4096>>>(16777216, 0, 0, 0)",
    "tma_misused<<<1, 32, 4096>>>(16777216, 0, 0, 1)",
    "tma_misused<<<1, 32, 4096>>>(1536, 0, 0, 1)",
    "tma_misused<<<1, 32, 4096>>>(1024, -1, 0, 1)",
    "tma_misused<<<1, 32, 4096>>>(1024, 0, 0, -6)",
    "tma_misused<<<1, 32, 4096>>>(1024, 0, 0, 74)",
    "tma_misused<<<1, 32, 4096>>>(1024, 0, 0, -15)",
    "tma_expects<<<1, 32, 8>>>(-16, 1)",
    "cluster_exchange<<<2, 128, 2056>>>(32, 1)",
    "cluster_exchange<<<2, 128, 2056>>>(128, 1)",
    "elect_one<<<1, 32, 0>>>(31)",
    "wgmma_misused<<<1, 128, 24576>>>(5)",
    "wgmma_misused<<<1, 128, 24576>>>(7)",
    "wgmma_misused<<<1, 128, 24576>>>(8)",
    "wgmma_misused<<<1, 128, 24576>>>(9)",
    "wgmma_misused<<<1, 128, 24576>>>(10)",
    "wgmma_misused<<<1, 128, 24576>>>(13)",
    "wgmma_misused<<<1, 128, 24576>>>(14)",
    "wgmma_misused<<<1, 96, 24576>>>(0)",
    "registers_misused<<<1, 384, 0>>>(3)",
    "registers_misused<<<1, 384, 0>>>(4)",
];

#[test]
fn hazards_name_both_places_and_what_is_missing() {
    insta::assert_snapshot!(hazards_of(FLAGGED));
}

#[test]
fn faults_name_the_thread_the_place_and_the_rule() {
    insta::assert_snapshot!(faults_of(STOPPED));
}

#[test]
fn what_is_odd_but_right_is_clean() {
    for tiles in [1, 2, 3, 8] {
        let launches = [
            format!("copied_one_ahead<<<1, 64, 2048>>>({tiles}, 1, 0)"),
            format!("copied_one_ahead<<<1, 64, 2048>>>({tiles}, 0, 1)"),
            format!("ring<<<1, 96, 288>>>({tiles}, 0)"),
            format!("ring_by_stores<<<1, 64, 288>>>({tiles})"),
            format!("ring_by_stores<<<1, 64, 288>>>({tiles}, 1000)"),
        ];
        assert_clean(launches.each_ref().map(String::as_str));
    }
    assert_clean(["row_of_input<<<1, 32, 0>>>(1), elements 512..2048"]);
    assert_clean(["called_from_two_lines<<<1, 64, 256>>>(1)"]);
    for launch in [
        "trap_in_one_thread<<<50, 64, 0>>>(50)",
        "barrier_at_two_lines<<<1, 32, 0>>>()",
        "wmma_misaligned<<<1, 32, 4096>>>(32, 24)",
        "cp_async_misused<<<1, 1, 64>>>(0, 268435456, 0)",
        "tma_misused<<<1, 32, 4096>>>(3072, 0, 3, 0)",
        "tma_misused<<<1, 32, 4096>>>(3072, 1, 3, 1)",
        "tma_misused<<<1, 32, 4096>>>(1024, 0, -9, 0)",
        "tma_misused<<<1, 32, 4096>>>(1024, 0, 0, 8)",
        "tma_misused<<<1, 32, 4096>>>(1024, 0, 0, 128)",
        "tma_expects<<<1, 32, 8>>>(1048575, 1)",
        "wgmma_misused<<<1, 128, 24576>>>(15)",
    ] {
        assert_eq!(faults(launch), [const { None }; 5], "{launch}");
    }
}
