//! What two sides must have in common to be compared, and when a side must have all that the other
//! has.

use super::*;

/// Asserts that no median of a run of other kernels is compared with that of [`timed`], and why.
#[track_caller]
fn assert_no_median_is_compared(new: &Run, expected: &str) {
    let mut compared = differences(&timed(US), new);
    compared.retain(|d| d.what == What::Metric(Metric::P50));
    assert_eq!(compared.len(), 3);
    for d in &compared {
        assert!(d.change == Change::Missing && d.required, "{}", d.subject);
    }
    assert_eq!(compared[0].why, expected);
}

/// Returns a run of kernels that take twice as long as those of [`timed`].
fn slower() -> Run {
    timed(US.map(|us| 2.0 * us)).rebuilt()
}

#[test]
fn times_of_another_gpu_model_are_missing() {
    assert_no_median_is_compared(
        &slower().on_card("NVIDIA L4"),
        "NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04) against \
         NVIDIA L4 (sm_90, 132 SMs, driver 580.159.04)",
    );
}

#[test]
fn times_under_another_driver_are_missing() {
    assert_no_median_is_compared(
        &slower().with_driver("600.1"),
        "NVIDIA H200 (sm_90, 132 SMs, driver 580.159.04) against \
         NVIDIA H200 (sm_90, 132 SMs, driver 600.1)",
    );
}

#[test]
fn times_under_other_conditions_are_missing() {
    let cold = slower()
        .for_each_variant(|run, subject| run.with_conditions(subject, latency(), "cold L2"));
    assert_no_median_is_compared(&cold, "warm L2 against cold L2");
}

#[test]
fn times_of_variants_that_fail_a_gate_are_missing() {
    let red = slower()
        .for_each_variant(|run, subject| run.with_gate(subject, ON_GPU, GateId::C2, Verdict::Fail));
    assert_no_median_is_compared(&red, "stage0-scalar/scalar-32x64 fails C2");
}

#[test]
fn times_whose_buffers_fail_a_gate_are_missing() {
    let red = slower().for_each_variant(|run, subject| {
        run.with_gate(subject, latency(), GateId::C5, Verdict::Fail)
    });
    assert_no_median_is_compared(&red, "stage0-scalar/scalar-32x64 fails C5");
}

#[test]
fn what_failed_in_the_kernel_before_is_not_this_ones() {
    let red = timed(US).with_gate(WMMA, ON_GPU, GateId::C2, Verdict::Fail);
    let unchecked = timed(US).rebuilt().without_checks();
    let table = table_of_sessions(&[red, unchecked]);
    let row = table.latency(&WMMA.into(), &mission()).unwrap();
    assert_eq!(failing(&table, row), None);
}

#[test]
fn runs_of_two_backends_have_nothing_in_common_but_the_build() {
    let differences = differences(&timed(US), &emulated());
    assert!(!differences.is_empty());
    for d in &differences {
        assert!(d.source() != Source::Gpu && d.group != Group::Latency);
    }
}

#[test]
fn an_outdated_kernel_leaves_a_comparison_incomplete() {
    let outdated = Difference::outdated("stage1-cpasync");
    assert_eq!(of_differences(&[outdated]).word, "INCOMPLETE");
}

/// Returns whether the new run was asked all that the base was.
fn is_covered(base: &Run, new: &Run) -> bool {
    covers(&base.session, &new.session)
}

#[test]
fn a_run_is_covered_by_another_of_the_same_question() {
    assert!(is_covered(&timed(US), &timed(US)));
}

#[test]
fn a_run_of_a_smaller_tier_is_covered_by_a_larger_one() {
    let quick = timed(US).of_tier(Tier::T0);
    assert!(is_covered(&quick, &timed(US)));
    assert!(!is_covered(&timed(US), &quick));
}

#[test]
fn a_run_of_one_stage_is_covered_by_one_of_all() {
    let stage1 = timed(US).of_stages(&["1"]);
    assert!(is_covered(&stage1, &timed(US)));
    assert!(!is_covered(&timed(US), &stage1));
}

#[test]
fn a_run_of_one_stage_is_covered_by_another_of_the_same_stage_alone() {
    let stage1 = timed(US).of_stages(&["1"]);
    assert!(is_covered(&stage1, &stage1));
    assert!(!is_covered(&stage1, &timed(US).of_stages(&["2"])));
}

#[test]
fn a_run_is_not_covered_by_one_of_another_device() {
    assert!(!is_covered(&timed(US), &timed(US).limited_to("sm_89")));
}

#[test]
fn a_run_is_not_covered_by_one_on_another_backend() {
    assert!(!is_covered(&emulated(), &timed(US)));
}
