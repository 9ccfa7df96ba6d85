use super::*;
use crate::judge::verdict;
use crate::table::{Kind, Run, Table};
use crate::testing::{
    CPASYNC, IN_EMULATOR, ON_GPU, SCALAR, US, WMMA, counters, emulated, instances, ladder, latency,
    row, site, table_of_sessions, timed,
};
use common::faults::{Caught, Fault};
use common::suppression::Suppressed;

fn states(view: &View<'_>) -> String {
    let mut states = Vec::new();
    for stage in view.stages {
        for subject in stage.subjects() {
            states.push(format!("{:?}", state(view, stage, &subject)));
        }
    }
    states.join(", ")
}

fn exit(run: &Run) -> String {
    let overall = verdict::report(View::alone(run)).overall();
    format!("{} {}", overall.exit.code(), overall.word)
}

/// Returns how the run ends, and the states of the three variants.
fn ends(run: &Run) -> String {
    format!("{}: {}", exit(run), states(&View::alone(run)))
}

fn green(run: &Run, subject: &str) -> bool {
    is_green(&View::alone(run), &subject.into(), BackendKind::Emulated)
}

#[test]
fn only_what_passes_every_gate_of_c1_to_c6_is_green() {
    use GateId::{B1, C1, C2, C3, C4, C5, C6, C8};
    for gate in [C1, C2, C3, C4, C5, C6, C8, B1] {
        let may_lack = matches!(gate, C4 | C8 | B1);
        for (verdict, expected) in [
            (Verdict::Pass, true),
            (Verdict::Fail, false),
            (Verdict::Ambiguous, false),
            (Verdict::NoData, may_lack),
        ] {
            let run = emulated().with_gate(WMMA, IN_EMULATOR, gate, verdict);
            assert_eq!(green(&run, WMMA), expected, "{gate} {verdict}");
        }
        let judged = emulated().with_gate(WMMA, IN_EMULATOR, gate, Verdict::Pass);
        let unjudged = judged.without_gate(WMMA, IN_EMULATOR, gate);
        assert_eq!(green(&unjudged, WMMA), may_lack, "{gate}");
    }
}

#[test]
fn a_variant_with_a_case_that_failed_is_not_green() {
    let run = emulated().with_figure(WMMA, IN_EMULATOR, Metric::CasesFailed, 1.0);
    assert!(!green(&run, WMMA));
    assert!(green(&run, CPASYNC));
}

#[test]
fn a_variant_that_was_not_checked_is_not_green() {
    let run = emulated().without_checks();
    assert!(!green(&run, WMMA));
    assert!(!green(&run, CPASYNC));
}

#[test]
fn a_variant_without_a_hazard_is_green() {
    for verdict in [Verdict::Pass, Verdict::NoData] {
        let run = emulated().with_gate(WMMA, IN_EMULATOR, GateId::H1, verdict);
        assert!(green(&run, WMMA) && green(&run, CPASYNC), "{verdict}");
    }
}

#[test]
fn a_variant_with_a_hazard_in_any_row_is_not_green() {
    let run = emulated().with_failure(WMMA, counters(), GateId::H1, "race");
    assert!(!green(&run, WMMA));
    assert!(green(&run, CPASYNC));
}

/// Returns how a run ends: whole, and where flags selected its stages.
fn whole_and_selected(run: &Run) -> String {
    let selected = run.clone().of_stages(&["0", "1"]);
    format!("{}\nselected {}", ends(run), ends(&selected))
}

#[test]
fn a_variant_that_passes_all_gates_is_green() {
    let run = emulated();
    insta::assert_snapshot!(whole_and_selected(&run), @"
    0 PASS: Green, Green, Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_of_a_built_and_timed_run_is_green() {
    let run = timed(US)
        .built_throughout(96, 0)
        .with_measurable(GateId::R1);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    0 PASS: Green, Green, Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_that_fails_a_gate_has_failed() {
    let run = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    1 FAIL: Green, Failed([C3]), Green
    selected 1 FAIL: Green, Failed([C3]), Green
    ");
}

#[test]
fn variants_that_spill_have_failed() {
    let run = timed(US)
        .built_throughout(96, 8)
        .with_measurable(GateId::R1);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    1 FAIL: Failed([R1]), Failed([R1]), Failed([R1])
    selected 1 FAIL: Failed([R1]), Failed([R1]), Failed([R1])
    ");
}

#[test]
fn a_variant_without_a_gate_that_can_be_measured_has_no_data() {
    let run = emulated()
        .with_measurable(GateId::B1)
        .with_gate(SCALAR, IN_EMULATOR, GateId::B1, Verdict::Pass)
        .with_gate(CPASYNC, IN_EMULATOR, GateId::B1, Verdict::Pass);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    3 NOT MEASURED: Green, NoData([B1]), Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_without_c5_has_no_data() {
    let run = emulated().without_gate(WMMA, IN_EMULATOR, GateId::C5);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    3 NOT MEASURED: Green, NoData([C5]), Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_without_c4_has_no_data() {
    let run = emulated().without_gate(WMMA, IN_EMULATOR, GateId::C4);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    3 NOT MEASURED: Green, NoData([C4]), Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_whose_other_cases_are_refused_may_lack_c4() {
    let run = emulated()
        .without_gate(WMMA, IN_EMULATOR, GateId::C4)
        .with_figure(WMMA, IN_EMULATOR, Metric::Cases, 1.0)
        .with_figure(WMMA, IN_EMULATOR, Metric::CasesUnsupported, 1.0);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    0 PASS: Green, Green, Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_whose_other_cases_are_refused_may_not_lack_c5() {
    let run = emulated()
        .without_gate(WMMA, IN_EMULATOR, GateId::C5)
        .with_figure(WMMA, IN_EMULATOR, Metric::Cases, 1.0)
        .with_figure(WMMA, IN_EMULATOR, Metric::CasesUnsupported, 1.0);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    3 NOT MEASURED: Green, NoData([C5]), Green
    selected 0 PASS: Green, Green, Green
    ");
}

#[test]
fn a_variant_that_supports_no_problem_did_not_run() {
    let run = emulated()
        .with_figure(WMMA, IN_EMULATOR, Metric::Cases, 0.0)
        .with_figure(WMMA, IN_EMULATOR, Metric::CasesUnsupported, 2.0);
    insta::assert_snapshot!(whole_and_selected(&run), @r#"
    0 PASS: Green, NotRun("it supports none of these problems"), Green
    selected 0 PASS: Green, NotRun("it supports none of these problems"), Green
    "#);
}

#[test]
fn a_variant_that_could_not_be_launched_has_failed() {
    let run = emulated()
        .with_figure(WMMA, IN_EMULATOR, Metric::Cases, 0.0)
        .with_figure(WMMA, IN_EMULATOR, Metric::CasesUnsupported, 2.0)
        .with_figure(WMMA, IN_EMULATOR, Metric::CasesFailed, 1.0)
        .with_gate(WMMA, IN_EMULATOR, GateId::C1, Verdict::Fail);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    1 FAIL: Green, Failed([C1]), Green
    selected 1 FAIL: Green, Failed([C1]), Green
    ");
}

#[test]
fn a_variant_whose_row_was_lost_has_no_data() {
    let run = emulated().without_row(WMMA, IN_EMULATOR);
    insta::assert_snapshot!(whole_and_selected(&run), @r#"
    3 NOT MEASURED: Green, NoData([]), Green
    selected 0 PASS: Green, NotRun("not selected"), Green
    "#);
}

#[test]
fn a_variant_that_a_quick_tier_leaves_out_did_not_run() {
    let run = emulated().without_row(WMMA, IN_EMULATOR).of_tier(Tier::T0);
    insta::assert_snapshot!(whole_and_selected(&run), @r#"
    0 PASS: Green, NotRun("not in tier T0"), Green
    selected 0 PASS: Green, NotRun("not selected"), Green
    "#);
}

#[test]
fn a_run_of_a_quick_tier_without_a_variant_measured_nothing() {
    let run = emulated().without_checks().of_tier(Tier::T0);
    insta::assert_snapshot!(whole_and_selected(&run), @r#"
    3 NOT MEASURED: NotRun("not in tier T0"), NotRun("not in tier T0"), NotRun("not in tier T0")
    selected 3 NOT MEASURED: NotRun("not selected"), NotRun("not selected"), NotRun("not selected")
    "#);
}

#[test]
fn a_variant_without_cases_has_no_data() {
    let run = emulated().with_figure(WMMA, IN_EMULATOR, Metric::Cases, 0.0);
    insta::assert_snapshot!(whole_and_selected(&run), @"
    3 NOT MEASURED: Green, NoData([]), Green
    selected 3 NOT MEASURED: Green, NoData([]), Green
    ");
}

#[test]
fn a_run_is_judged_by_itself_and_not_by_the_table() {
    let selected = emulated()
        .without_row(WMMA, IN_EMULATOR)
        .of_stages(&["0"])
        .named("2");
    let table = table_of_sessions(&[emulated()]);
    insta::assert_snapshot!(
        states(&View::of_run(&selected, &table)),
        @r#"Green, NotRun("not selected"), Green"#
    );
}

#[test]
fn variants_of_an_empty_table_have_no_data() {
    let stages = ladder();
    insta::assert_snapshot!(
        states(&View::committed(&stages, &Table::default())),
        @"NoData([]), NoData([]), NoData([])"
    );
}

#[test]
fn variants_of_a_table_need_all_gates() {
    let (stages, table) = (ladder(), table_of_sessions(&[timed(US)]));
    insta::assert_snapshot!(
        states(&View::committed(&stages, &table)),
        @"NoData([B1, R1, C7]), NoData([B1, R1, C7]), NoData([B1, R1, C7])"
    );
}

#[test]
fn variants_of_a_table_are_stale_where_their_stage_has_changed() {
    let stages = emulated().with_identity(0, "another").session.stages;
    let table = table_of_sessions(&[timed(US)]);
    insta::assert_snapshot!(
        states(&View::committed(&stages, &table)),
        @"Stale, Stale, NoData([B1, R1, C7])"
    );
}

#[test]
fn a_stage_of_e4m3_alone_has_no_c4_in_the_quick_tier_and_needs_it_in_every_other() {
    let state_in = |tier: Tier, dtypes: &[Dtype]| {
        let mut run = emulated()
            .of_tier(tier)
            .without_gate(CPASYNC, IN_EMULATOR, GateId::C4);
        run.session.stages[1].variants[0].kernels = instances("cpasync-32x64", dtypes);
        let view = View::alone(&run);
        state(&view, &view.stages[1], &CPASYNC.into())
    };
    let lacking = State::NoData(vec![GateId::C4]);
    assert_eq!(state_in(Tier::T0, &[Dtype::E4m3]), State::Green);
    assert_eq!(state_in(Tier::T1, &[Dtype::E4m3]), lacking);
    assert_eq!(state_in(Tier::T0, &[Dtype::F16, Dtype::E4m3]), lacking);
}

/// Returns how a run ends in which the sanitizer's tools say this of [`CPASYNC`], with the cases of
/// gate C7 and its reason.
fn sanitized(memcheck: Verdict, racecheck: Verdict) -> String {
    let run = timed(US).clean().sanitized(CPASYNC, [memcheck, racecheck]);
    let mut gates = gates(&View::alone(&run), &CPASYNC.into());
    let c7 = gates.remove(&GateId::C7).unwrap();
    let (passed, cases) = (c7.passed.unwrap(), c7.of.unwrap());
    format!(
        "{}\n{} in {passed} of {cases}: {}",
        ends(&run),
        c7.verdict,
        c7.reason
    )
}

#[test]
fn a_variant_in_which_the_sanitizer_finds_nothing_is_green() {
    insta::assert_snapshot!(sanitized(Verdict::Pass, Verdict::Pass), @"
    0 PASS: Green, Green, Green
    PASS in 2 of 2:
    ");
}

#[test]
fn a_finding_of_one_tool_fails_the_variant() {
    insta::assert_snapshot!(sanitized(Verdict::NoData, Verdict::Fail), @"
    1 FAIL: Green, Green, Failed([C7])
    FAIL in 0 of 2: racecheck: planted
    ");
}

#[test]
fn a_tool_that_did_not_run_leaves_no_data() {
    insta::assert_snapshot!(sanitized(Verdict::Pass, Verdict::NoData), @"
    3 NOT MEASURED: Green, Green, NoData([C7])
    NO DATA in 1 of 2: racecheck: planted
    ");
}

/// Returns how a run on top of these sessions ends, and the variants that the sanitizer lacks.
fn lacking(run: Run, sessions: &[Run]) -> String {
    let table = table_of_sessions(sessions);
    let named = run.named("9");
    let lacking = unsanitized(&View::of_run(&named, &table));
    let names: Vec<&str> = lacking.iter().map(Subject::name).collect();
    format!("{}\nlacking: {}", ends(&named), names.join(" "))
}

#[test]
fn a_timed_run_may_be_sanitized_after_its_end() {
    let run = timed(US);
    insta::assert_snapshot!(lacking(run, &[]), @"
    0 PASS: Green, Green, Green
    lacking: scalar-32x64 wmma-qk-32x64 cpasync-32x64
    ");
}

#[test]
fn a_timed_selection_may_be_sanitized_after_its_end() {
    let run = timed(US).of_stages(&["0", "1"]);
    insta::assert_snapshot!(lacking(run, &[]), @"
    0 PASS: Green, Green, Green
    lacking: scalar-32x64 wmma-qk-32x64 cpasync-32x64
    ");
}

#[test]
fn a_sanitized_run_lacks_nothing() {
    let run = timed(US).clean();
    insta::assert_snapshot!(lacking(run, &[]), @"
    0 PASS: Green, Green, Green
    lacking:
    ");
}

#[test]
fn a_run_that_was_sanitized_needs_it_of_every_variant() {
    let run = timed(US).clean().without_row(CPASYNC, Kind::Sanitized);
    insta::assert_snapshot!(lacking(run, &[]), @"
    3 NOT MEASURED: Green, Green, NoData([C7])
    lacking: cpasync-32x64
    ");
}

#[test]
fn a_selection_that_was_sanitized_needs_it_of_every_variant() {
    let run = timed(US)
        .clean()
        .of_stages(&["0", "1"])
        .without_row(CPASYNC, Kind::Sanitized);
    insta::assert_snapshot!(lacking(run, &[]), @"
    3 NOT MEASURED: Green, Green, NoData([C7])
    lacking: cpasync-32x64
    ");
}

#[test]
fn a_variant_without_cases_has_nothing_to_be_sanitized() {
    let run = timed(US)
        .clean()
        .without_row(CPASYNC, Kind::Sanitized)
        .with_figure(CPASYNC, ON_GPU, Metric::Cases, 0.0);
    insta::assert_snapshot!(lacking(run, &[]), @"
    3 NOT MEASURED: Green, Green, NoData([C7])
    lacking:
    ");
}

#[test]
fn a_quick_run_needs_no_sanitizer() {
    let run = timed(US).of_tier(Tier::T0);
    insta::assert_snapshot!(lacking(run, &[]), @"
    0 PASS: Green, Green, Green
    lacking:
    ");
}

#[test]
fn a_run_of_a_tier_below_the_full_one_needs_no_sanitizer() {
    let run = timed(US)
        .clean()
        .of_tier(Tier::T1)
        .without_row(CPASYNC, Kind::Sanitized);
    insta::assert_snapshot!(lacking(run, &[]), @"
    0 PASS: Green, Green, Green
    lacking:
    ");
}

#[test]
fn an_emulated_run_needs_no_sanitizer() {
    let run = emulated().of_tier(Tier::T2);
    insta::assert_snapshot!(lacking(run, &[]), @"
    0 PASS: Green, Green, Green
    lacking:
    ");
}

#[test]
fn a_variant_that_was_not_checked_needs_no_sanitizer() {
    let run = timed(US).clean().without_subject(CPASYNC);
    insta::assert_snapshot!(lacking(run, &[timed(US)]), @"
    3 NOT MEASURED: Green, Green, NoData([])
    lacking:
    ");
}

#[test]
fn a_finding_in_the_kernel_before_says_nothing() {
    let run = timed(US).with_identity(1, "new");
    insta::assert_snapshot!(lacking(run, &[timed(US).clean()]), @"
    0 PASS: Green, Green, Green
    lacking: cpasync-32x64
    ");
}

/// Returns the failures in a committed table of one session, with the verdict of C5 on [`WMMA`].
fn failures_and_c5(sources: &Run, session: Run) -> String {
    let table = table_of_sessions(&[session]);
    let view = View::committed(&sources.session.stages, &table);
    let mut lines = Vec::new();
    for failure in failures(&view) {
        let (subject, gate) = (failure.subject, failure.gate);
        lines.push(format!("{subject} {gate}: {}", failure.reason));
    }
    let c5 = gates(&view, &WMMA.into()).remove(&GateId::C5);
    lines.push(format!("C5 {:?}", c5.map(|judged| judged.verdict)));
    lines.join("\n")
}

#[test]
fn a_hazard_is_said_once() {
    let session = emulated()
        .with_failure(WMMA, counters(), GateId::H1, "race at 88")
        .with_failure(WMMA, IN_EMULATOR, GateId::H1, "race at 88");
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"
    stage0-scalar/wmma-qk-32x64 H1: race at 88
    C5 Some(Pass)
    ");
}

#[test]
fn a_hazard_has_all_its_reasons() {
    let session = emulated()
        .with_failure(WMMA, counters(), GateId::H1, "race at 88")
        .with_failure(WMMA, IN_EMULATOR, GateId::H1, "race at 99");
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"
    stage0-scalar/wmma-qk-32x64 H1: race at 99; race at 88
    C5 Some(Pass)
    ");
}

#[test]
fn buffers_that_are_wrong_as_timed_fail_the_variant() {
    let session = timed(US).with_failure(WMMA, latency(), GateId::C5, "x");
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"
    stage0-scalar/wmma-qk-32x64 C5: mission f16 full as timed: x
    C5 Some(Fail)
    ");
}

#[test]
fn buffers_that_are_right_as_timed_are_no_evidence_on_all_cases() {
    let session = timed(US).without_gate(WMMA, ON_GPU, GateId::C5).with_gate(
        WMMA,
        latency(),
        GateId::C5,
        Verdict::Pass,
    );
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"C5 None");
}

#[test]
fn a_time_beside_peers_fails_no_variant() {
    let session = timed(US).with_row(row("wmma | mission f16 full | peers | C2 fail x"));
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"C5 Some(Pass)");
}

#[test]
fn a_pair_fails_no_variant() {
    let session = timed(US).with_row(row("wmma | mission f16 full | gpu scalar | C5 fail x"));
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"C5 Some(Pass)");
}

#[test]
fn a_gate_that_fails_on_all_cases_is_said() {
    let session = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C2, Verdict::Fail);
    insta::assert_snapshot!(failures_and_c5(&emulated(), session), @"
    stage0-scalar/wmma-qk-32x64 C2: too large
    C5 Some(Pass)
    ");
}

#[test]
fn a_gate_that_failed_in_the_kernel_before_is_not_said() {
    let session = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C2, Verdict::Fail);
    insta::assert_snapshot!(failures_and_c5(&emulated().with_identity(0, "new"), session), @"C5 None");
}

#[test]
fn a_run_whose_buffers_are_wrong_as_timed_fails() {
    let run = timed(US).with_failure(WMMA, latency(), GateId::C5, "x");
    assert_eq!(exit(&run), "1 FAIL");
}

/// Returns the row of a planted fault, or of the correct model.
fn planted(fault: Option<Fault>, cases_failed: usize, survived: &[Dtype]) -> Row {
    Row::fault(&Caught {
        fault,
        cases: 4,
        cases_failed,
        gates_that_failed: vec![GateId::C2; usize::from(cases_failed > 0)],
        survived: survived.to_vec(),
    })
}

const ZEROS: Option<Fault> = Some(Fault::ALL[0]);

/// Returns how a run ends, how many rows of its self-test are wrong, and what was killed in it.
fn self_tested(run: &Run) -> String {
    // Figures and verdicts are counted, whatever the words.
    let mut rows = Vec::new();
    for row in run.table.self_tests() {
        rows.push(row.clone().note("killed"));
    }
    let wrong = self_test(&run.table).count();
    format!("{}, {wrong} wrong\n{:?}", exit(run), tally(&rows))
}

#[test]
fn a_self_test_that_finds_nothing_leaves_a_run() {
    let run = emulated();
    insta::assert_snapshot!(self_tested(&run), @"
    0 PASS, 0 wrong
    Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    ");
}

#[test]
fn a_planted_fault_that_survives_fails_a_run() {
    let run = emulated().with_row(planted(ZEROS, 0, &[]));
    insta::assert_snapshot!(self_tested(&run), @"
    1 FAIL, 1 wrong
    Tally { faults: 1, faults_killed: 0, sites: 2, sites_killed: 1, redundant: 1 }
    ");
}

#[test]
fn a_planted_fault_that_survives_in_part_fails_a_run() {
    let run = emulated().with_row(planted(ZEROS, 2, &[Dtype::E4m3]));
    insta::assert_snapshot!(self_tested(&run), @"
    1 FAIL, 1 wrong
    Tally { faults: 1, faults_killed: 0, sites: 2, sites_killed: 1, redundant: 1 }
    ");
}

#[test]
fn a_correct_model_that_fails_a_gate_fails_a_run() {
    let run = emulated().with_row(planted(None, 1, &[]));
    insta::assert_snapshot!(self_tested(&run), @"
    1 FAIL, 1 wrong
    Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    ");
}

#[test]
fn a_list_that_is_wrong_fails_a_run() {
    let list = Suppressed {
        errors: vec!["an entry names nothing".into()],
        ..Suppressed::default()
    };
    let run = emulated().with_row(Row::self_test(&[], &list).remove(0));
    insta::assert_snapshot!(self_tested(&run), @"
    1 FAIL, 1 wrong
    Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    ");
}

#[test]
fn a_timer_that_was_not_tested_leaves_a_run() {
    let run = emulated().with_row(Row::untested_timer("no driver"));
    insta::assert_snapshot!(self_tested(&run), @"
    0 PASS, 0 wrong
    Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    ");
}

#[test]
fn a_mutant_that_survives_fails_a_run() {
    let run = emulated().with_failure(
        "stage0-scalar/scalar",
        site(),
        GateId::S1,
        "its mutant survives",
    );
    insta::assert_snapshot!(self_tested(&run), @"
    1 FAIL, 1 wrong
    Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 0 }
    ");
}

#[test]
fn the_row_over_all_cases_speaks_for_each_of_them() {
    let run = emulated()
        .with_failure(WMMA, IN_EMULATOR, GateId::C3, "of all")
        .with_row(row(
            "wmma | mission f16 full normal:0 | emulator | C3 fail of this case",
        ));
    let gates = gates(&View::alone(&run), &WMMA.into());
    assert_eq!(gates[&GateId::C3].reason, "of all");
}
