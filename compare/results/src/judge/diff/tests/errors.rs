//! Errors, as shares of their bounds.

use super::*;

/// Returns how an error of [`SCALAR`] changed, with the cases that it is of.
fn changes_of(metric: Metric, base: &Run, new: &Run) -> Vec<String> {
    let mut compared = differences(base, new);
    compared.retain(|d| d.subject.as_str() == SCALAR && d.what == What::Metric(metric));
    compared
        .iter()
        .map(|d| format!("{} on {}", d.change.word(), d.place()))
        .collect()
}

/// Asserts the change of the largest and of the row error, which go from one share of their bounds
/// to another.
#[track_caller]
fn assert_change_of_errors(was: f64, is: f64, expected: &str) {
    for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
        let base = emulated().with_figure(SCALAR, IN_EMULATOR, metric, was);
        let new = emulated().with_figure(SCALAR, IN_EMULATOR, metric, is);
        let changes = changes_of(metric, &base, &new);
        assert_eq!(changes, [format!("{expected} on all")], "{metric}");
    }
}

#[test]
fn an_error_that_grows_by_less_than_a_tenth_of_its_bound_is_unchanged() {
    assert_change_of_errors(0.17, 0.26, "unchanged");
}

#[test]
fn an_error_that_appears_far_below_its_bound_is_unchanged() {
    assert_change_of_errors(0.0, 0.1, "unchanged");
}

#[test]
fn an_error_that_grows_by_more_than_a_tenth_of_its_bound_is_worse() {
    assert_change_of_errors(0.17, 0.29, "worse");
}

#[test]
fn an_error_that_shrinks_by_more_than_a_tenth_of_its_bound_is_better() {
    assert_change_of_errors(0.29, 0.17, "improved");
}

#[test]
fn an_error_that_passes_its_bound_is_worse_however_little_it_grows() {
    assert_change_of_errors(0.98, 1.02, "worse");
}

#[test]
fn an_error_that_passes_its_bound_from_the_bound_itself_is_worse() {
    assert_change_of_errors(1.0, 1.02, "worse");
}

#[test]
fn an_error_that_stays_beyond_its_bound_is_unchanged() {
    assert_change_of_errors(1.02, 1.03, "unchanged");
}

#[test]
fn an_error_that_is_no_number_now_is_worse() {
    assert_change_of_errors(0.17, f64::NAN, "worse");
}

#[test]
fn an_error_that_is_no_number_still_is_worse() {
    assert_change_of_errors(f64::NAN, f64::NAN, "worse");
}

#[test]
fn an_error_that_is_a_number_again_is_better() {
    assert_change_of_errors(f64::NAN, 0.17, "improved");
}

/// Returns a run with a case of mission and one of long, which have these shares of their bound.
fn with_cases(mission: f64, long: f64) -> Run {
    let case = |shape: &str, share: f64| {
        row(&format!("scalar | {shape} f16 full normal:0 | emulator"))
            .figure(Metric::ErrorOfBound, share)
    };
    emulated()
        .with_row(case("mission", mission))
        .with_row(case("long", long))
}

#[test]
fn a_case_that_is_a_number_again_hides_no_other_that_got_worse() {
    let base = with_cases(f64::NAN, 0.17);
    let new = with_cases(0.17, 0.29);
    assert_eq!(
        changes_of(Metric::ErrorOfBound, &base, &new),
        [
            "worse on long f16 full normal:0",
            "improved on mission f16 full normal:0",
            "unchanged on all",
        ]
    );
}

#[test]
fn a_case_that_got_better_is_named_alone() {
    let base = with_cases(0.17, 0.29);
    let new = with_cases(0.17, 0.1);
    assert_eq!(
        changes_of(Metric::ErrorOfBound, &base, &new),
        ["improved on long f16 full normal:0", "unchanged on all"]
    );
}

#[test]
fn a_case_that_is_no_number_now_is_worse() {
    let base = with_cases(0.17, 0.17);
    let new = with_cases(f64::NAN, 0.17);
    assert_eq!(
        changes_of(Metric::ErrorOfBound, &base, &new),
        ["worse on mission f16 full normal:0", "unchanged on all"]
    );
}

#[test]
fn an_error_of_another_backend_is_another_figure() {
    let new = timed(US).with_figure(SCALAR, ON_GPU, Metric::ErrorOfBound, 0.9);
    let changes = changes_of(Metric::ErrorOfBound, &emulated(), &new);
    assert!(changes.is_empty(), "{changes:?}");
}
