//! Data that a report should have and has not: what a whole tier requires, and what is optional.

use super::*;
use crate::table::Relation;

/// Returns what a run on top of these sessions requires, but gate R1, which every variant lacks
/// where it can be measured.
#[track_caller]
fn required(run: Run, sessions: &[Run]) -> String {
    let named = run.named("9");
    let table = table_of_sessions(sessions);
    let report = report_of_run(&named, &table);
    let required: Vec<String> = report.required().map(ToString::to_string).collect();
    let is_incomplete = report.overall().word == "NOT MEASURED";
    assert_eq!(is_incomplete, !required.is_empty(), "{}", report.overall());
    lines(required.iter().filter(|row| !row.contains(": R1: ")))
}

/// Returns a run whose second stage has no counters, which it claims something of.
fn uncounted() -> Run {
    emulated().without_row(CPASYNC, counters())
}

/// Returns an emulated run whose second stage claims at most 96 of a metric.
fn claiming_96(metric: Metric) -> Run {
    emulated().with_bound(1, 1, metric, Relation::AtMost { bound: 96.0 })
}

/// Returns a run with a case of each variant, which these do not support.
fn with_unsupported(variants: &[&str]) -> Run {
    emulated().for_each_variant(|run, subject| {
        let case = Row::new(
            subject,
            Kind::Case(BackendKind::Emulated, mission_case("normal:0")),
        );
        if variants.contains(&subject) {
            run.with_row(case.note("too large"))
                .with_figure(subject, IN_EMULATOR, Metric::Cases, 0.0)
                .with_figure(subject, IN_EMULATOR, Metric::CasesUnsupported, 1.0)
        } else {
            run.with_row(case.verdict(&GateResult::judge(GateId::C1, true, "")))
        }
    })
}

#[test]
fn a_whole_run_requires_nothing() {
    let run = emulated();
    assert_eq!(required(run, &[]), "");
}

#[test]
fn a_gate_without_evidence_is_required() {
    let run = emulated().without_gate(WMMA, IN_EMULATOR, GateId::C5);
    insta::assert_snapshot!(required(run, &[]), @"stage0-scalar/wmma-qk-32x64: C5: none of its cases had this evidence");
}

#[test]
fn cases_of_an_interrupted_run_are_required() {
    let run = emulated().partial(8, 9);
    insta::assert_snapshot!(required(run, &[]), @"1 of 9 cases: the run was interrupted");
}

#[test]
fn a_run_interrupted_behind_its_cases_requires_nothing() {
    let run = emulated().partial(9, 9);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn counters_of_a_claim_are_required_where_they_can_be_counted() {
    let run = uncounted().with_measurable(GateId::E1);
    insta::assert_snapshot!(required(run, &[]), @"stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured");
}

#[test]
fn counters_of_a_claim_that_a_session_has_are_not_required() {
    let run = uncounted().with_measurable(GateId::E1);
    assert_eq!(required(run, &[emulated()]), "");
}

#[test]
fn counters_of_a_claim_that_cannot_be_counted_are_not_required() {
    let run = uncounted().with_unmeasurable(GateId::E1, "no traced build");
    assert_eq!(required(run, &[]), "");
}

#[test]
fn counters_of_a_refuted_claim_are_not_required() {
    let run = uncounted()
        .with_measurable(GateId::E1)
        .with_refuted_claim(1, 1);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn counters_of_a_claim_are_not_required_of_a_selection() {
    let run = uncounted().with_measurable(GateId::E1).of_stages(&["1"]);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn pairs_of_claims_are_required() {
    let run = timed(US).clean().without_pairs();
    insta::assert_snapshot!(required(run, &[]), @"
    stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
    stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
    ");
}

#[test]
fn pairs_of_claims_are_not_required_of_a_selection() {
    let run = timed(US).clean().without_pairs().of_stages(&["1"]);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn a_problem_that_another_variant_supports_requires_nothing() {
    let run = with_unsupported(&[SCALAR]);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn a_problem_that_no_variant_of_a_stage_supports_is_required() {
    let run = with_unsupported(&[CPASYNC]);
    insta::assert_snapshot!(required(run, &[]), @"stage1-cpasync: mission f16 full: no variant supports it; every stage must");
}

#[test]
fn a_problem_is_not_required_of_selected_variants() {
    let run = with_unsupported(&[CPASYNC]).of_variants(&["x"]);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn a_run_that_supports_none_of_its_problems_requires_every_case() {
    let run = with_unsupported(&VARIANTS).of_variants(&["x"]);
    insta::assert_snapshot!(required(run, &[]), @"every case: no variant of this run supports any of its problems");
}

#[test]
fn variants_whose_cases_did_not_run_are_required() {
    let run = emulated().for_each_variant(|run, subject| {
        run.with_figure(subject, IN_EMULATOR, Metric::Cases, 0.0)
            .with_figure(subject, IN_EMULATOR, Metric::CasesFailed, 1.0)
    });
    insta::assert_snapshot!(required(run, &[]), @"
    stage0-scalar/scalar-32x64: every gate: none of its cases ran
    stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran
    stage1-cpasync/cpasync-32x64: every gate: none of its cases ran
    ");
}

#[test]
fn registers_of_a_claim_are_required_where_nvcc_is_there() {
    let run = claiming_96(Metric::Registers).with_measurable(GateId::R1);
    insta::assert_snapshot!(required(run, &[]), @"
    stage1-cpasync: cpasync: registers <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    ");
}

#[test]
fn registers_of_a_claim_are_required_of_a_quick_run() {
    let run = claiming_96(Metric::Registers)
        .with_measurable(GateId::R1)
        .of_tier(Tier::T0);
    insta::assert_snapshot!(required(run, &[]), @"
    stage1-cpasync: cpasync: registers <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    ");
}

#[test]
fn instructions_of_a_claim_are_required_where_nvcc_is_there() {
    let run = claiming_96(Metric::LoopShuffles).with_measurable(GateId::R1);
    insta::assert_snapshot!(required(run, &[]), @"
    stage1-cpasync: cpasync: SHFL in the main loop <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    ");
}

#[test]
fn instructions_of_a_claim_are_not_required_of_a_quick_run() {
    let run = claiming_96(Metric::LoopShuffles)
        .with_measurable(GateId::R1)
        .of_tier(Tier::T0);
    assert_eq!(required(run, &[]), "");
}

#[test]
fn registers_of_a_claim_are_not_required_without_nvcc() {
    let run = claiming_96(Metric::Registers).with_unmeasurable(GateId::R1, "no nvcc");
    assert_eq!(required(run, &[]), "");
}

#[test]
fn figures_of_ncu_are_not_required() {
    let run = emulated().with_bound(
        1,
        1,
        Metric::BarrierStallShare,
        Relation::AtMost { bound: 0.1 },
    );
    assert_eq!(required(run, &[]), "");
}

/// Returns the verdict on a committed table and what it requires.
fn required_of_table(sessions: &[Run]) -> String {
    let (stages, table) = (ladder(), table_of_sessions(sessions));
    let report = report(View::committed(&stages, &table));
    format!("{}\n{}", report.overall().word, lines(report.required()))
}

#[test]
fn an_empty_table_requires_every_row() {
    let sessions = [];
    insta::assert_snapshot!(required_of_table(&sessions), @"
    NOT MEASURED
    every row: there is no run and no committed table
    ");
}

#[test]
fn a_table_requires_gates_and_a_self_test() {
    let sessions = [timed(US).with_row(row(
        "self-test | : planted faults | self-test | S1 no_data no reference",
    ))];
    insta::assert_snapshot!(required_of_table(&sessions), @"
    NOT MEASURED
    stage0-scalar/scalar-32x64: B1, R1, C7: none of its cases had this evidence
    stage0-scalar/wmma-qk-32x64: B1, R1, C7: none of its cases had this evidence
    stage1-cpasync/cpasync-32x64: B1, R1, C7: none of its cases had this evidence
    : planted faults of the self-test: no reference
    ");
}

#[test]
fn a_table_of_the_emulator_requires_cases_and_times() {
    let sessions = [emulated().with_measurable(GateId::R1)];
    insta::assert_snapshot!(required_of_table(&sessions), @"
    NOT MEASURED
    stage0-scalar/scalar-32x64: every gate: none of its cases ran
    stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran
    stage1-cpasync/cpasync-32x64: every gate: none of its cases ran
    stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
    stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
    ");
}

/// Returns what a run on top of these sessions lacks and does not require.
fn optional(run: Run, sessions: &[Run]) -> String {
    let named = run.named("9");
    let table = table_of_sessions(sessions);
    let report = report_of_run(&named, &table);
    let optional = report.missing.iter().filter(|missing| !missing.required);
    list::joined(optional.map(|missing| &missing.what), ", ")
}

#[test]
fn what_cannot_be_counted_is_one_line_for_all_claims() {
    let run = uncounted().with_unmeasurable(GateId::E1, "no traced build");
    assert_eq!(
        optional(run, &[]),
        "gate C7, gate C8, gate B1, gate B2, gate H1, gate R1, gate L1, gate E1"
    );
}

#[test]
fn a_sanitizer_that_was_not_run_is_optional() {
    let run = timed(US).with_unmeasurable(GateId::C7, "not run");
    assert_eq!(
        optional(run, &[]),
        "gate C7, gate C8, gate B1, gate B2, gate H1, gate R1"
    );
}

#[test]
fn a_sanitizer_that_was_run_is_not_missing() {
    let run = timed(US).clean().with_unmeasurable(GateId::C7, "not run");
    assert_eq!(
        optional(run, &[]),
        "gate C8, gate B1, gate B2, gate H1, gate R1"
    );
}

#[test]
fn times_of_an_interrupted_run_are_optional() {
    let run = timed(US).partial(9, 9);
    assert_eq!(
        optional(run, &[]),
        "some timings, gate C7, gate C8, gate B1, gate B2, gate H1, gate R1"
    );
}

#[test]
fn a_sanitizer_that_a_session_ran_on_the_same_kernels_is_still_optional() {
    let run = timed(US).with_unmeasurable(GateId::C7, "not run");
    assert_eq!(
        optional(run, &[timed(US).clean()]),
        "gate C7, gate C8, gate B1, gate B2, gate H1, gate R1"
    );
}

#[test]
fn source_lines_of_a_stripped_program_are_optional() {
    let run = timed(US).stripped().with_gate(
        "self-test",
        Kind::Fault("zeros".into()),
        GateId::S1,
        Verdict::Fail,
    );
    assert_eq!(
        optional(run, &[]),
        "gate C7, gate C8, gate B1, gate B2, gate H1, gate R1, source lines"
    );
}
