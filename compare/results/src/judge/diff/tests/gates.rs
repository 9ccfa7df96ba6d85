//! Gates and planted faults that turn.

use super::*;

#[test]
fn a_gate_that_fails_now_is_worse() {
    let base = emulated();
    let new = base
        .clone()
        .with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse stage0-scalar/wmma-qk-32x64 gate C3
    ");
}

#[test]
fn a_gate_that_passes_now_is_better() {
    let base = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
    let new = emulated();
    insta::assert_snapshot!(moved(&base, &new), @"
    0 IMPROVED
    improved stage0-scalar/wmma-qk-32x64 gate C3
    ");
}

#[test]
fn a_gate_that_fails_still_is_the_same() {
    let base = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
    let new = base.clone();
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn a_gate_that_fails_on_a_gpu_takes_times_and_claims_with_it() {
    let base = timed(US);
    let new = base
        .clone()
        .with_gate(WMMA, ON_GPU, GateId::C3, Verdict::Fail);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse stage0-scalar/wmma-qk-32x64 gate C3
    not comparable stage0-scalar/wmma-qk claim wmma-qk p50 over stage0-scalar scalar on mission f16 full (required)
    not comparable stage0-scalar/wmma-qk-32x64 p50 on mission f16 full (required)
    not comparable stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full (required)
    ");
}

/// Returns what to do about a new run.
fn actions(base: &Run, new: &Run) -> Vec<String> {
    of_differences(&differences(base, new)).actions
}

const MEASURE: &str = "Measure what the base has";

#[test]
fn nothing_is_to_be_measured_that_a_failing_gate_withholds() {
    let new = timed(US).with_gate(WMMA, ON_GPU, GateId::C3, Verdict::Fail);
    let to_do = actions(&timed(US), &new);
    assert_eq!(to_do, ["Fix what newly fails; do not merge."]);
}

#[test]
fn errors_of_a_kernel_that_fails_a_gate_are_no_regressions_of_their_own() {
    let with_error =
        |share| emulated().with_figure(WMMA, IN_EMULATOR, Metric::RowErrorOfBound, share);
    let [base, new] = [with_error(0.1), with_error(0.9)];
    assert_eq!(actions(&base, &new).len(), 1);
    let failing = new.with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
    assert_eq!(
        actions(&base, &failing),
        ["Fix what newly fails; do not merge."]
    );
}

#[test]
fn what_the_sanitizer_does_not_withhold_is_to_be_measured() {
    let new = timed(US)
        .clean()
        .with_gate(WMMA, Kind::Sanitized, GateId::C7, Verdict::Fail)
        .without_row(WMMA, latency());
    let to_do = actions(&timed(US).clean(), &new);
    assert!(
        to_do.iter().any(|action| action.starts_with(MEASURE)),
        "{to_do:?}"
    );
}

#[test]
fn an_error_beyond_its_bound_is_worse_under_another_driver_too() {
    let base = timed(US);
    let new =
        base.clone()
            .with_driver("600.1")
            .with_figure(WMMA, ON_GPU, Metric::RowErrorOfBound, 1.5);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 REGRESSION
    not comparable stage0-scalar/scalar-32x64 p50 on mission f16 full (required)
    not comparable stage0-scalar/wmma-qk-32x64 p50 on mission f16 full (required)
    worse stage0-scalar/wmma-qk-32x64 row error of its bound
    not comparable stage1-cpasync/cpasync-32x64 p50 on mission f16 full (required)
    ");
}

#[test]
fn a_gate_that_is_ambiguous_now_is_undecided() {
    let base = emulated();
    let new = base
        .clone()
        .with_gate(WMMA, IN_EMULATOR, GateId::C5, Verdict::Ambiguous);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 UNDECIDED
    undecided stage0-scalar/wmma-qk-32x64 gate C5
    ");
}

#[test]
fn a_finding_of_the_sanitizer_is_worse() {
    let base = timed(US).clean();
    let new = base
        .clone()
        .with_gate(CPASYNC, Kind::Sanitized, GateId::C7, Verdict::Fail);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse stage1-cpasync/cpasync-32x64 gate C7
    ");
}

#[test]
fn a_finding_of_the_sanitizer_is_worse_where_the_base_was_not_sanitized() {
    let base = timed(US);
    let new = base
        .clone()
        .clean()
        .with_gate(CPASYNC, Kind::Sanitized, GateId::C7, Verdict::Fail);
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse stage1-cpasync/cpasync-32x64 gate C7
    ");
}

#[test]
fn a_finding_of_the_sanitizer_that_is_gone_is_better() {
    let base = timed(US)
        .clean()
        .with_gate(CPASYNC, Kind::Sanitized, GateId::C7, Verdict::Fail);
    let new = timed(US).clean();
    insta::assert_snapshot!(moved(&base, &new), @"
    0 IMPROVED
    improved stage1-cpasync/cpasync-32x64 gate C7
    ");
}

#[test]
fn a_gate_of_the_sanitizer_that_did_not_run_is_required() {
    let base = timed(US).clean();
    let new = timed(US);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 gate C7 (required)
    not comparable stage0-scalar/wmma-qk-32x64 gate C7 (required)
    not comparable stage1-cpasync/cpasync-32x64 gate C7 (required)
    ");
}

#[test]
fn a_gate_of_one_variants_resources_that_fails_now_is_worse() {
    let base = timed(US)
        .built_throughout(96, 0)
        .with_variant(WMMA, "wmma-qk-32x64-k2");
    let new = base.clone().with_gate(
        "stage0-scalar/wmma-qk-32x64-k2",
        instance(),
        GateId::R1,
        Verdict::Fail,
    );
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse stage0-scalar/wmma-qk-32x64-k2 gate R1 on f16 d64 sm_90a
    ");
}

#[test]
fn a_planted_fault_that_survives_now_is_worse() {
    let base = emulated();
    let new = base.clone().with_gate(
        "self-test",
        Kind::Fault("zeros".into()),
        GateId::S1,
        Verdict::Fail,
    );
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse self-test gate S1 on : zeros
    ");
}

#[test]
fn a_planted_fault_that_is_killed_now_is_better() {
    let base = emulated().with_gate(
        "self-test",
        Kind::Fault("zeros".into()),
        GateId::S1,
        Verdict::Fail,
    );
    let new = emulated();
    insta::assert_snapshot!(moved(&base, &new), @"
    0 IMPROVED
    improved self-test gate S1 on : zeros
    ");
}

#[test]
fn a_planted_fault_that_was_not_tried_is_required() {
    let base = emulated();
    let new = base
        .clone()
        .without_row("self-test", Kind::Fault("zeros".into()));
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable self-test gate S1 on : zeros (required)
    ");
}

#[test]
fn a_self_test_that_did_not_run_is_required() {
    let base = emulated();
    let new = base.clone().without_source(Source::SelfTest);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable self-test gate S1 on : correct model (required)
    not comparable self-test gate S1 on : zeros (required)
    ");
}

#[test]
fn a_planted_fault_that_survived_is_required_again() {
    let base = emulated().with_row(row("self-test | : stale tile | self-test | S1 fail"));
    let new = emulated().with_gate(
        "self-test",
        Kind::Fault("zeros".into()),
        GateId::S1,
        Verdict::Fail,
    );
    insta::assert_snapshot!(moved(&base, &new), @"
    1 FAIL
    worse self-test gate S1 on : zeros
    not comparable self-test gate S1 on : stale tile (required)
    ");
}

#[test]
fn a_self_test_alone_compares_no_kernel() {
    let base = emulated()
        .of_source(Source::SelfTest)
        .with_first_claims(0, 0)
        .with_first_claims(1, 0);
    let new = base.clone();
    insta::assert_snapshot!(moved(&base, &new), @"3 NOT MEASURED");
}
