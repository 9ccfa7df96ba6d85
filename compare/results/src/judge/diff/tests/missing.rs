//! Rows, verdicts and figures that one side lacks.

use super::*;

#[test]
fn a_variant_that_is_no_longer_declared_was_removed_with_its_claims() {
    let base = emulated();
    let new = base.clone().without_variant(SCALAR).with_first_claims(0, 0);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    changed (informational) stage0-scalar/scalar-32x64 variant
    changed (informational) stage0-scalar/wmma-qk claim wmma-qk global bytes read against stage0-scalar scalar on mission f16 full
    changed (informational) stage0-scalar/wmma-qk claim wmma-qk p50 over stage0-scalar scalar on mission f16 full
    ");
}

#[test]
fn a_variant_that_is_declared_now_is_new() {
    let base = emulated().without_variant(SCALAR).with_first_claims(0, 0);
    let new = emulated();
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    changed (informational) stage0-scalar/scalar-32x64 variant
    ");
}

#[test]
fn a_variant_that_the_base_did_not_check_is_the_same() {
    let base = emulated().without_row(SCALAR, IN_EMULATOR);
    let new = emulated();
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn an_error_that_is_absent_is_the_same() {
    let base = emulated();
    let new = base
        .clone()
        .without_figure(SCALAR, IN_EMULATOR, Metric::RowErrorOfBound);
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn a_variant_that_was_not_checked_is_required() {
    let base = emulated();
    let new = base.clone().without_row(SCALAR, IN_EMULATOR);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 variant (required)
    ");
}

#[test]
fn a_variant_that_a_smaller_tier_did_not_check_is_no_difference() {
    let base = emulated();
    let new = base
        .clone()
        .without_row(SCALAR, IN_EMULATOR)
        .of_tier(Tier::T0);
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn a_gate_without_a_verdict_is_required() {
    let base = emulated();
    let new = base.clone().without_gate(SCALAR, IN_EMULATOR, GateId::C5);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 gate C5 (required)
    ");
}

#[test]
fn a_gate_without_a_verdict_in_a_smaller_tier_is_not_required() {
    let base = emulated();
    let new = base
        .clone()
        .without_gate(SCALAR, IN_EMULATOR, GateId::C5)
        .of_tier(Tier::T0);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    not comparable stage0-scalar/scalar-32x64 gate C5
    ");
}

#[test]
fn counters_that_are_gone_are_required_with_their_claim() {
    let base = emulated();
    let new = base.clone().without_row(CPASYNC, counters());
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full (required)
    not comparable stage1-cpasync/cpasync-32x64 counters on mission f16 full (required)
    ");
}

#[test]
fn counters_that_could_not_be_counted_are_required_one_by_one() {
    let base = emulated();
    let new = base.clone().without_row(SCALAR, counters()).with_row(row(
        "scalar | mission f16 full | emulator | note not traced",
    ));
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk claim wmma-qk global bytes read against stage0-scalar scalar on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 global bytes read on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 global sectors read on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 shared-load wavefronts on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 shared-load bank conflicts on mission f16 full (required)
    ");
}

#[test]
fn a_time_that_is_gone_is_required_with_its_claim() {
    let base = timed(US);
    let new = base
        .clone()
        .without_row(CPASYNC, latency())
        .without_pair(CPASYNC);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full (required)
    not comparable stage1-cpasync/cpasync-32x64 p50 on mission f16 full (required)
    ");
}

#[test]
fn resources_that_nvcc_did_not_say_are_required() {
    let base = timed(US)
        .built_throughout(96, 0)
        .with_row(row("wmma | f16 d64 | kernel | threads 128"));
    let new = base.clone().without_row(WMMA, instance());
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a (required)
    ");
}

#[test]
fn resources_that_a_kernel_does_not_declare_are_required() {
    let base = timed(US)
        .built_throughout(96, 0)
        .with_row(row("wmma | f16 d64 | kernel | threads 128"));
    let new = base.clone().without_row(WMMA, declared());
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 (required)
    ");
}

#[test]
fn resources_of_an_architecture_that_was_not_compiled_are_not_required() {
    let base = timed(US).built_throughout(96, 0);
    let new = base
        .clone()
        .without_row(WMMA, instance())
        .with_archs(&["sm_89"]);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a
    ");
}

#[test]
fn resources_that_a_kernel_does_not_declare_are_required_whatever_was_compiled() {
    let base = timed(US)
        .built_throughout(96, 0)
        .with_row(row("wmma | f16 d64 | kernel | threads 128"));
    let new = base
        .clone()
        .without_row(WMMA, declared())
        .with_archs(&["sm_89"]);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 (required)
    ");
}

#[test]
fn a_gate_of_resources_without_a_verdict_is_not_required() {
    let base = timed(US).built_throughout(96, 0);
    let new = base.clone().without_gate(WMMA, instance(), GateId::R1);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    not comparable stage0-scalar/wmma-qk-32x64 gate R1 on f16 d64 sm_90a
    ");
}

#[test]
fn a_gate_without_data_on_either_side_is_the_same() {
    let base = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C5, Verdict::NoData);
    let new = base.clone().without_gate(WMMA, IN_EMULATOR, GateId::C5);
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn a_gate_of_timed_buffers_without_a_verdict_is_the_same() {
    let base = timed(US).with_gate(WMMA, latency(), GateId::C5, Verdict::Pass);
    let new = base.clone().without_gate(WMMA, latency(), GateId::C5);
    insta::assert_snapshot!(moved(&base, &new), @"0 SAME");
}

#[test]
fn registers_that_are_gone_are_required() {
    let base = timed(US).built_throughout(96, 0);
    let new = base
        .clone()
        .without_figure(SCALAR, instance(), Metric::Registers);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a (required)
    ");
}

#[test]
fn fewer_cases_are_required() {
    let base = emulated().with_figure(WMMA, IN_EMULATOR, Metric::Cases, 9.0);
    let new = emulated().with_figure(WMMA, IN_EMULATOR, Metric::Cases, 8.0);
    insta::assert_snapshot!(moved(&base, &new), @"
    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 cases (required)
    ");
}

#[test]
fn more_cases_are_a_change_alone() {
    let base = emulated().with_figure(WMMA, IN_EMULATOR, Metric::Cases, 8.0);
    let new = emulated().with_figure(WMMA, IN_EMULATOR, Metric::Cases, 9.0);
    insta::assert_snapshot!(moved(&base, &new), @"
    0 SAME
    changed (informational) stage0-scalar/wmma-qk-32x64 cases
    ");
}
