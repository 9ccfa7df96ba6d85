//! Claims that fail now, hold again or are taken back.

use super::*;

#[test]
fn a_claim_about_counters_that_fails_now_is_worse() {
    let base = emulated();
    let new = base.clone().counted(CPASYNC, 1_048_577, 0);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 REGRESSION
    worse stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
    changed (informational) stage1-cpasync/cpasync-32x64 global bytes read on mission f16 full
    ");
}

#[test]
fn a_claim_that_fails_now_and_is_recorded_as_refuted_is_a_change_alone() {
    let base = emulated();
    let new = base
        .clone()
        .counted(CPASYNC, 1_048_577, 0)
        .with_refuted_claim(1, 1);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    changed (informational) stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
    changed (informational) stage1-cpasync/cpasync-32x64 global bytes read on mission f16 full
    ");
}

#[test]
fn a_record_of_a_claim_that_failed_before_is_the_same() {
    let base = emulated().counted(CPASYNC, 1_048_577, 0);
    let new = base.clone().with_refuted_claim(1, 1);
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn a_claim_that_is_taken_back_is_a_change_alone() {
    let base = emulated();
    let new = base.clone().with_first_claims(1, 1);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    changed (informational) stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
    ");
}

#[test]
fn a_claim_of_speed_that_fails_now_is_worse() {
    let base = timed(US);
    let new = timed([32.0, 20.0, 19.0]);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 REGRESSION
    worse stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full
    ");
}

#[test]
fn a_claim_of_speed_that_holds_now_is_better() {
    let base = timed([32.0, 20.0, 19.0]);
    let new = timed(US);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 IMPROVED
    improved stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full
    ");
}

#[test]
fn a_claim_over_peers_that_fails_now_is_worse() {
    let base = timed(US).peers("mission", 10.0, &[PeerArm::right("torch-flash", 16.0)]);
    let new = timed(US).peers("mission", 10.0, &[PeerArm::right("torch-flash", 14.0)]);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 REGRESSION
    worse stage1-cpasync/cpasync claim cpasync p50 over the fastest of PyTorch on mission f16 full
    ");
}

#[test]
fn claims_over_peers_that_were_not_timed_are_required() {
    let base = timed(US).peers("mission", 10.0, &[PeerArm::right("torch-flash", 16.0)]);
    let new = base.clone().without_source(Source::Peers);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage1-cpasync/cpasync claim cpasync p50 over PyTorch's flash on mission f16 full (required)
    not comparable stage1-cpasync/cpasync claim cpasync p50 over the fastest of PyTorch on mission f16 full (required)
    ");
}
