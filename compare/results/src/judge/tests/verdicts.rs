//! Verdicts on runs and on differences, with what is to be done.

use super::*;
use crate::table::Subject;

/// Returns the exit code and the verdict of a run on top of these sessions, and what is to be done.
fn verdict_of(run: Run, sessions: &[Run]) -> String {
    let named = run.named("9");
    let table = table_of_sessions(sessions);
    with_actions(&report_of_run(&named, &table).overall())
}

fn with_actions(overall: &Overall) -> String {
    let code = overall.exit.code();
    format!("{code} {overall}\n{}", lines(&overall.actions))
}

/// Returns a timed run that was sanitized.
fn complete() -> Run {
    timed(US).clean()
}

/// Returns a run that refutes the first claim.
fn slow() -> Run {
    timed([24.0, 20.0, 15.0]).clean()
}

/// Returns a run in which a variant fails C3.
fn red() -> Run {
    emulated().with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail)
}

/// Returns a case of the variant that fails, on an input and with these columns.
fn case(input: &str, columns: &str) -> Row {
    row(&format!(
        "wmma | mission f16 full {input} | emulator {columns}"
    ))
}

/// Returns what the library's choice costs on average and at worst, on 240 of the drawn problems.
fn regret(mean: f64, worst: f64, drawn: u32) -> Row {
    Row::new("attention-ladder", Kind::Regret)
        .figure(Metric::RegretMean, mean)
        .figure(Metric::RegretWorst, worst)
        .figure(Metric::Cases, 240_u32)
        .figure(Metric::Draw, drawn)
        .note("there")
}

#[test]
fn an_emulated_run_passes() {
    let run = emulated();
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    0 PASS: 3 variants pass every gate
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_timed_run_is_to_be_sanitized() {
    let run = timed(US);
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    0 PASS: 3 variants pass every gate
    Complete this run with gate C7 before it is accepted: `compare sanitize`.
    6 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_complete_run_passes() {
    let run = complete();
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    0 PASS: 3 variants pass every gate
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_gate_that_fails_is_to_be_fixed() {
    let run = red();
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
    Fix the gates that fail; do not merge.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_case_that_fails_is_to_be_explained() {
    let run = red()
        .with_row(case("normal:1", ""))
        .with_row(case("normal:0", "| C3 fail"));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
    Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --problem 'mission f16 full normal:0'`.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_given_input_that_fails_is_to_be_explained() {
    let run = red().with_row(case("x.safetensors", "| C3 fail"));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
    Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --input x.safetensors --mask full`.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_path_with_spaces_is_quoted() {
    let run = red()
        .with_row(case("x.safetensors", "| C3 fail"))
        .changed(|session| session.input = Some("/else where/it's x.safetensors".into()));
    insta::assert_snapshot!(verdict_of(run, &[]), @r#"
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
    Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --input '/else where/it'\''s x.safetensors' --mask full`.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    "#);
}

#[test]
fn a_race_is_named_with_its_place() {
    let run = emulated().with_failure(SCALAR, IN_EMULATOR, GateId::H1, "race in block [0, 0, 0]");
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 gate fails, first H1 of stage0-scalar/scalar-32x64: race in block [0, 0, 0]
    Fix the gates that fail; do not merge.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_gate_that_fails_on_a_gpu_leaves_times_to_be_taken() {
    let run = timed(US).with_gate(WMMA, ON_GPU, GateId::C3, Verdict::Fail);
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
    Fix the gates that fail; do not merge.
    Measure what is missing: `compare --stages 0,1`. `compare show missing --run DIR` lists it with the reasons.
    6 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn two_gates_that_fail_are_counted_and_the_first_is_to_be_explained() {
    let run = red()
        .with_gate(WMMA, IN_EMULATOR, GateId::H1, Verdict::Fail)
        .with_row(case("normal:0", "| H1 fail"))
        .with_row(case("normal:1", "| C3 fail"));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 2 gates fail, first C3 of stage0-scalar/wmma-qk-32x64
    Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --problem 'mission f16 full normal:1'`.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_mutant_that_survives_is_named() {
    let run = emulated().with_failure(
        "stage0-scalar/scalar",
        site(),
        GateId::S1,
        "its mutant survives",
    );
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 self-test fails (S1), first stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: its mutant survives
    Trust no PASS until every self-test passes; each that fails says why.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_kernel_that_is_wrong_with_all_its_sites_is_named() {
    let run = emulated().with_row(row("scalar | : as it is | self-test | H1 fail race"));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 self-test fails (S1), first stage0-scalar/scalar-32x64: as it is: race
    Trust no PASS until every self-test passes; each that fails says why.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_claim_that_fails_is_to_be_recorded() {
    let run = slow();
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 claim fails and is not recorded as refuted, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar
    Improve the stage, or record in its negatives.json why the claim fails: `compare accept` prints the entry.
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_claim_that_fails_and_is_recorded_leaves_a_run() {
    let run = slow().with_refuted_claim(0, 0);
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    0 PASS: 3 variants pass every gate
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_record_of_a_claim_that_holds_is_to_be_taken_out() {
    let run = complete().with_refuted_claim(0, 0);
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    0 PASS: 3 variants pass every gate
    stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar passes now although it is recorded as refuted: take it out of stage0-scalar/negatives.json.
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_claim_about_counters_that_fails_is_to_be_recorded() {
    let run = emulated().counted(CPASYNC, 1_048_577, 0);
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 1 claim fails and is not recorded as refuted, first stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk
    Improve the stage, or record in its negatives.json why the claim fails: `compare accept` prints the entry.
    7 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn a_claim_that_noise_hides_is_to_be_timed_again() {
    let run = complete().with_row(row(
        "wmma | mission f16 full | gpu scalar | speedup_p50 1.6 1.59 1.61 | noise 0.5",
    ));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    3 UNDECIDED: 1 claim is undecided, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar
    Run again on a quiet machine, or with more samples (`--iters`).
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn goals_of_the_choice_that_are_missed_fail_a_run() {
    let run = complete().with_row(regret(1.03, 1.275, 254));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    1 FAIL: 3 goals of the library's choice are missed, first 1.030x the fastest variant's time on average (goal 1.02)
    Give the library a better choice: on a GPU `compare --random-problems 160 --backend cuda` judges it, and `compare accept` fits it to that run.
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn goals_of_the_choice_that_are_met_leave_a_run() {
    let run = complete().with_row(regret(1.02, 1.1, 240));
    insta::assert_snapshot!(verdict_of(run, &[]), @"
    0 PASS: 3 variants pass every gate
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn goals_that_a_session_missed_leave_a_run() {
    let run = complete();
    insta::assert_snapshot!(verdict_of(run, &[complete().with_row(regret(1.03, 1.275, 240))]), @"
    0 PASS: 3 variants pass every gate
    5 things were not measured here: `compare show missing --run DIR` says what each takes.
    ");
}

#[test]
fn usage_and_interrupts_have_codes_of_their_own() {
    assert_eq!(Exit::Usage.code(), 2);
    assert_eq!(Exit::Interrupted.code(), 130);
}

/// Returns the verdict on what a run changes in the table of another, and whether it is to be looked
/// at.
fn since(base: Run, new: Run) -> String {
    let committed = diff::accepted(&base.named("1"), &Table::default());
    let named = new.named("2");
    let report = report_of_run(&named, &committed);
    let mut actions = report.overall().actions.into_iter();
    let look = actions.find(|action| action.starts_with("Look at the "));
    let Since { session, changes } = report.since.as_ref().unwrap();
    let word = of_differences(changes).word;
    format!("{word} since {session}\n{}", lines(look))
}

#[test]
fn a_run_of_the_same_times_is_the_same() {
    let new = complete();
    insta::assert_snapshot!(since(complete(), new), @"SAME since 1");
}

#[test]
fn a_run_of_slower_times_of_the_same_kernels_is_the_same() {
    let new = timed([48.0, 30.0, 22.5]).clean();
    insta::assert_snapshot!(since(complete(), new), @"SAME since 1");
}

#[test]
fn a_slower_kernel_is_a_regression() {
    let new = timed([32.0, 21.0, 15.0]).clean().rebuilt();
    insta::assert_snapshot!(since(complete(), new), @"
    REGRESSION since 1
    Look at the 1 regression since 1: `compare diff results DIR`.
    ");
}

#[test]
fn faster_kernels_are_an_improvement() {
    let new = timed([30.0, 19.0, 14.0]).clean().rebuilt();
    insta::assert_snapshot!(since(complete(), new), @"IMPROVED since 1");
}

#[test]
fn a_faster_and_a_slower_kernel_are_mixed() {
    let new = timed([30.0, 21.0, 15.0]).clean().rebuilt();
    insta::assert_snapshot!(since(complete(), new), @"
    MIXED since 1
    Look at the 2 regressions since 1: `compare diff results DIR`.
    ");
}

#[test]
fn a_finding_of_the_sanitizer_is_a_failure() {
    let new = complete().with_gate(WMMA, Kind::Sanitized, GateId::C7, Verdict::Fail);
    insta::assert_snapshot!(since(complete(), new), @"
    FAIL since 1
    Look at the 1 regression since 1: `compare diff results DIR`.
    ");
}

#[test]
fn spilled_bytes_are_a_failure() {
    let new = complete().built_throughout(96, 8);
    insta::assert_snapshot!(since(complete().built_throughout(96, 0), new), @"
    FAIL since 1
    Look at the 6 regressions since 1: `compare diff results DIR`.
    ");
}

#[test]
fn bank_conflicts_are_a_regression() {
    let new = complete().counted(WMMA, 1_048_576, 32);
    insta::assert_snapshot!(since(complete(), new), @"
    REGRESSION since 1
    Look at the 1 regression since 1: `compare diff results DIR`.
    ");
}

#[test]
fn a_claim_that_fails_now_is_a_regression() {
    let new = timed([32.0, 20.0, 19.0]).clean();
    insta::assert_snapshot!(since(complete(), new), @"
    REGRESSION since 1
    Look at the 1 regression since 1: `compare diff results DIR`.
    ");
}

#[test]
fn a_claim_that_fails_now_and_is_recorded_is_the_same() {
    let new = timed([32.0, 20.0, 19.0]).clean().with_refuted_claim(1, 0);
    insta::assert_snapshot!(since(complete(), new), @"SAME since 1");
}

#[test]
fn fewer_cases_of_the_same_kernel_are_the_same() {
    let new = complete().with_figure(WMMA, ON_GPU, Metric::Cases, 0.5);
    insta::assert_snapshot!(since(complete(), new), @"SAME since 1");
}

/// Returns a difference of a gate.
fn difference(change: Change, kind: Kind) -> Difference {
    Difference {
        subject: WMMA.into(),
        about: About::Row(kind),
        what: What::Gate(GateId::C3),
        group: Group::Gates,
        change,
        base: None,
        new: None,
        figures: None,
        ratio: None,
        why: "too large".into(),
        required: false,
    }
}

/// Returns a difference of a variant's gate.
fn row_of(change: Change) -> Difference {
    difference(change, IN_EMULATOR)
}

/// Returns a row that the new side lacks and must have.
fn required_row() -> Difference {
    Difference {
        required: true,
        ..row_of(Change::Missing)
    }
}

#[test]
fn nothing_compared_is_not_measured() {
    let overall = of_differences(&[]);
    insta::assert_snapshot!(with_actions(&overall), @"
    3 NOT MEASURED: nothing can be compared
    Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.
    ");
}

#[test]
fn a_missing_row_alone_is_not_measured() {
    let overall = of_differences(&[row_of(Change::Missing)]);
    insta::assert_snapshot!(with_actions(&overall), @"
    3 NOT MEASURED: nothing can be compared
    Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.
    ");
}

#[test]
fn a_required_row_that_is_missing_leaves_a_comparison_incomplete() {
    let overall = of_differences(&[required_row()]);
    insta::assert_snapshot!(with_actions(&overall), @"
    3 INCOMPLETE: nothing can be compared: too large
    Measure what the base has and this lacks (`compare --full`, then `compare accept`), or state in the change that it is intended.
    Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.
    ");
}

#[test]
fn what_a_failing_variant_lacks_is_not_asked_for() {
    let overall = of_differences(&[required_row(), row_of(Change::Worse)]);
    insta::assert_snapshot!(with_actions(&overall), @"
    1 FAIL: 1 worse, 1 not comparable
    Fix what newly fails; do not merge.
    ");
}

#[test]
fn what_another_variant_lacks_is_asked_for() {
    let lacking = Difference {
        subject: Subject::from(SCALAR),
        ..required_row()
    };
    let failing = Difference {
        subject: Subject::from(CPASYNC),
        ..row_of(Change::Worse)
    };
    let overall = of_differences(&[lacking, failing]);
    insta::assert_snapshot!(with_actions(&overall), @"
    1 FAIL: 1 worse, 1 not comparable
    Fix what newly fails; do not merge.
    Measure what the base has and this lacks (`compare --full`, then `compare accept`), or state in the change that it is intended.
    ");
}

/// Returns a difference of a variant's time.
fn time_of(change: Change) -> Difference {
    Difference {
        what: What::Metric(Metric::P50),
        group: Group::Latency,
        ..row_of(change)
    }
}

#[test]
fn an_improvement_stands_behind_a_required_row() {
    let overall = of_differences(&[required_row(), row_of(Change::Better)]);
    insta::assert_snapshot!(with_actions(&overall), @"
    3 INCOMPLETE: 1 not comparable, 1 improved
    Measure what the base has and this lacks (`compare --full`, then `compare accept`), or state in the change that it is intended.
    ");
}

#[test]
fn an_improvement_stands_before_a_row_that_may_be_missing() {
    let overall = of_differences(&[row_of(Change::Missing), row_of(Change::Better)]);
    insta::assert_snapshot!(with_actions(&overall), @"
    0 IMPROVED: 1 not comparable, 1 improved
    No action needed.
    ");
}

#[test]
fn an_improvement_stands_behind_what_is_undecided() {
    let overall = of_differences(&[row_of(Change::Undecided), row_of(Change::Better)]);
    insta::assert_snapshot!(with_actions(&overall), @"
    3 UNDECIDED: 1 undecided, 1 improved
    Time the undecided latencies again on a quiet GPU, both sides interleaved in one session (A B B A).
    ");
}

#[test]
fn a_slower_kernel_and_a_faster_one_are_mixed() {
    let overall = of_differences(&[
        time_of(Change::Worse),
        time_of(Change::Better),
        time_of(Change::Unchanged),
    ]);
    insta::assert_snapshot!(with_actions(&overall), @"
    1 MIXED: 1 worse, 1 improved, 1 unchanged
    Look at the regressions: undo them, or state in the change what they buy.
    ");
}

#[test]
fn a_gate_that_fails_is_a_failure_whatever_is_faster() {
    let overall = of_differences(&[row_of(Change::Worse), time_of(Change::Better)]);
    insta::assert_snapshot!(with_actions(&overall), @"
    1 FAIL: 1 worse, 1 improved
    Fix what newly fails; do not merge.
    ");
}

#[test]
fn changes_that_are_informational_are_the_same() {
    let overall = of_differences(&[
        row_of(Change::Informational),
        row_of(Change::Unchanged),
        row_of(Change::Unchanged),
    ]);
    insta::assert_snapshot!(with_actions(&overall), @"
    0 SAME: 1 changed (informational), 2 unchanged
    No action needed.
    ");
}

#[test]
fn a_self_test_that_is_the_same_compares_no_kernel() {
    let fault = Kind::Fault("zeros".into());
    let overall = of_differences(&[difference(Change::Unchanged, fault)]);
    assert_eq!(overall.line, "nothing can be compared");
}

#[test]
fn a_self_test_that_fails_now_is_worse() {
    let fault = Kind::Fault("zeros".into());
    let overall = of_differences(&[difference(Change::Worse, fault)]);
    assert_eq!(overall.line, "1 worse");
}
