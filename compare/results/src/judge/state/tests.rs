use super::*;
use crate::judge::verdict;
use crate::table::Run;
use crate::testing::scenario::{self, each, run};
use crate::testing::{CPASYNC, US, WMMA, emulated, instances, table, timed};
use common::faults::{Caught, Fault};

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
            ("pass", true),
            ("fail", false),
            ("ambiguous", false),
            ("no_data", may_lack),
            ("none", may_lack),
        ] {
            let run = run(&format!("emulated; wmma all: {gate} {verdict}"));
            assert_eq!(green(&run, WMMA), expected, "{gate} {verdict}");
        }
    }
    // Only where there is a hazard does H1 take anything away, whichever row has it.
    let answers = each(
        "wmma all: cases_failed 1
        - all
        wmma all: H1 pass
        wmma all: H1 no_data
        wmma mission emulator: H1 fail race",
        |line| {
            let run = run(&format!("emulated; {line}"));
            format!("{} {}", green(&run, WMMA), green(&run, CPASYNC))
        },
    );
    insta::assert_snapshot!(answers, @"
    wmma all: cases_failed 1
        false true
    - all
        false false
    wmma all: H1 pass
        true true
    wmma all: H1 no_data
        true true
    wmma mission emulator: H1 fail race
        false true
    ");
}

/// Whole, and where flags selected cases. Rows that were lost or never written leave NO DATA; a
/// variant whose other cases are refused may lack C4 and no other gate; what could not be launched
/// is no problem that it does not support.
#[test]
fn each_state_has_its_cause_and_its_end() {
    let answers = each(
        "emulated
        timed; built 96 0; measurable R1
        emulated; wmma all: C3 fail
        timed; built 96 8; measurable R1
        emulated; measurable B1; scalar all: B1 pass; cpasync all: B1 pass
        emulated; wmma all: C5 none
        emulated; wmma all: C4 none
        emulated; wmma all: C4 none | cases 1 | cases_unsupported 1
        emulated; wmma all: C5 none | cases 1 | cases_unsupported 1
        emulated; wmma all: cases 0 | cases_unsupported 2
        emulated; wmma all: cases 0 | cases_unsupported 2 | cases_failed 1 | C1 fail
        emulated; - wmma all
        emulated; - wmma all; tier 0
        emulated; - all; tier 0
        emulated; wmma all: cases 0",
        |line| {
            let selected = run(&format!("{line}; stages 0 1"));
            format!("{}\nselected {}", ends(&run(line)), ends(&selected))
        },
    );
    insta::assert_snapshot!(answers, @r#"
    emulated
        0 PASS: Green, Green, Green
        selected 0 PASS: Green, Green, Green
    timed; built 96 0; measurable R1
        0 PASS: Green, Green, Green
        selected 0 PASS: Green, Green, Green
    emulated; wmma all: C3 fail
        1 FAIL: Green, Failed([C3]), Green
        selected 1 FAIL: Green, Failed([C3]), Green
    timed; built 96 8; measurable R1
        1 FAIL: Failed([R1]), Failed([R1]), Failed([R1])
        selected 1 FAIL: Failed([R1]), Failed([R1]), Failed([R1])
    emulated; measurable B1; scalar all: B1 pass; cpasync all: B1 pass
        3 NOT MEASURED: Green, NoData([B1]), Green
        selected 0 PASS: Green, Green, Green
    emulated; wmma all: C5 none
        3 NOT MEASURED: Green, NoData([C5]), Green
        selected 0 PASS: Green, Green, Green
    emulated; wmma all: C4 none
        3 NOT MEASURED: Green, NoData([C4]), Green
        selected 0 PASS: Green, Green, Green
    emulated; wmma all: C4 none | cases 1 | cases_unsupported 1
        0 PASS: Green, Green, Green
        selected 0 PASS: Green, Green, Green
    emulated; wmma all: C5 none | cases 1 | cases_unsupported 1
        3 NOT MEASURED: Green, NoData([C5]), Green
        selected 0 PASS: Green, Green, Green
    emulated; wmma all: cases 0 | cases_unsupported 2
        0 PASS: Green, NotRun("it supports none of these problems"), Green
        selected 0 PASS: Green, NotRun("it supports none of these problems"), Green
    emulated; wmma all: cases 0 | cases_unsupported 2 | cases_failed 1 | C1 fail
        1 FAIL: Green, Failed([C1]), Green
        selected 1 FAIL: Green, Failed([C1]), Green
    emulated; - wmma all
        3 NOT MEASURED: Green, NoData([]), Green
        selected 0 PASS: Green, NotRun("not selected"), Green
    emulated; - wmma all; tier 0
        0 PASS: Green, NotRun("not in tier T0"), Green
        selected 0 PASS: Green, NotRun("not selected"), Green
    emulated; - all; tier 0
        3 NOT MEASURED: NotRun("not in tier T0"), NotRun("not in tier T0"), NotRun("not in tier T0")
        selected 3 NOT MEASURED: NotRun("not selected"), NotRun("not selected"), NotRun("not selected")
    emulated; wmma all: cases 0
        3 NOT MEASURED: Green, NoData([]), Green
        selected 3 NOT MEASURED: Green, NoData([]), Green
    "#);
    // A run is judged by itself, a table by what it has.
    let selected = emulated()
        .without_rows("wmma all")
        .of_stages(&["0"])
        .named("2");
    let emulated_table = table(&[emulated().named("1")]);
    let on_table = states(&View::of_run(&selected, &emulated_table));
    let of_tables = each(
        "none
        timed
        timed @ emulated; identity 0 another",
        |line| {
            let (stages, table) = scenario::view(line);
            states(&View::committed(&stages, &table))
        },
    );
    insta::assert_snapshot!(of_tables + &on_table, @r#"
    none
        NoData([]), NoData([]), NoData([])
    timed
        NoData([B1, R1, C7]), NoData([B1, R1, C7]), NoData([B1, R1, C7])
    timed @ emulated; identity 0 another
        Stale, Stale, NoData([B1, R1, C7])
    Green, NotRun("not selected"), Green
    "#);
}

#[test]
fn a_stage_of_e4m3_alone_has_no_c4_in_the_quick_tier_and_needs_it_in_every_other() {
    let state_in = |tier: Tier, dtypes: &[Dtype]| {
        let mut run = emulated()
            .changed(|session| session.tier = tier)
            .with_columns("cpasync all", "C4 none");
        run.session.stages[1].variants[0].kernels = instances("cpasync-32x64", dtypes);
        let view = View::alone(&run);
        state(&view, &view.stages[1], &CPASYNC.into())
    };
    let lacking = State::NoData(vec![GateId::C4]);
    assert_eq!(state_in(Tier::T0, &[Dtype::E4m3]), State::Green);
    assert_eq!(state_in(Tier::T1, &[Dtype::E4m3]), lacking);
    assert_eq!(state_in(Tier::T0, &[Dtype::F16, Dtype::E4m3]), lacking);
}

#[test]
fn what_the_sanitizer_finds_fails_the_variant() {
    use Verdict::{Fail, NoData, Pass};
    let ended = [[Pass, Pass], [NoData, Fail], [Pass, NoData]].map(|verdicts| {
        let run = timed(US).clean().sanitized(CPASYNC, verdicts);
        let mut gates = gates(&View::alone(&run), &CPASYNC.into());
        let c7 = gates.remove(&GateId::C7).unwrap();
        let (passed, cases) = (c7.passed, c7.of);
        format!(
            "{}\n    {} {passed:?} {cases:?} {}\n",
            ends(&run),
            c7.verdict,
            c7.reason
        )
    });
    insta::assert_snapshot!(ended.concat(), @"
    0 PASS: Green, Green, Green
        PASS Some(2) Some(2) 
    1 FAIL: Green, Green, Failed([C7])
        FAIL Some(0) Some(2) racecheck: planted
    3 NOT MEASURED: Green, Green, NoData([C7])
        NO DATA Some(1) Some(2) racecheck: planted
    ");
}

/// A whole run and a selection of stages are asked, which may lack a case of another gate and not
/// C7. A run ends before the command that completes it can begin; what a device refuses has nothing
/// to be sanitized; what was found in the kernel before says nothing.
#[test]
fn a_full_run_on_a_gpu_needs_the_sanitizer_on_every_variant_once_it_can_have_had_it() {
    let answers = each(
        "timed
        timed; stages 0 1
        timed; clean
        timed; clean; - cpasync compute-sanitizer
        timed; clean; stages 0 1; - cpasync compute-sanitizer
        timed; clean; - cpasync compute-sanitizer; cpasync gpu all: cases 0
        timed; tier 0
        timed; clean; tier 1; - cpasync compute-sanitizer
        emulated; tier 2
        timed; clean; - cpasync on timed
        timed; identity 1 new on timed; clean",
        |line| {
            let (words, sessions) = line.split_once(" on ").unwrap_or((line, "none"));
            let run = run(words).named("9");
            let (_, table) = scenario::view(sessions);
            let lacking = unsanitized(&View::of_run(&run, &table));
            let names: Vec<&str> = lacking.iter().map(Subject::name).collect();
            format!("{}\nlacking: {}", ends(&run), names.join(" "))
        },
    );
    insta::assert_snapshot!(answers, @"
    timed
        0 PASS: Green, Green, Green
        lacking: scalar-32x64 wmma-qk-32x64 cpasync-32x64
    timed; stages 0 1
        0 PASS: Green, Green, Green
        lacking: scalar-32x64 wmma-qk-32x64 cpasync-32x64
    timed; clean
        0 PASS: Green, Green, Green
        lacking:
    timed; clean; - cpasync compute-sanitizer
        3 NOT MEASURED: Green, Green, NoData([C7])
        lacking: cpasync-32x64
    timed; clean; stages 0 1; - cpasync compute-sanitizer
        3 NOT MEASURED: Green, Green, NoData([C7])
        lacking: cpasync-32x64
    timed; clean; - cpasync compute-sanitizer; cpasync gpu all: cases 0
        3 NOT MEASURED: Green, Green, NoData([C7])
        lacking:
    timed; tier 0
        0 PASS: Green, Green, Green
        lacking:
    timed; clean; tier 1; - cpasync compute-sanitizer
        0 PASS: Green, Green, Green
        lacking:
    emulated; tier 2
        0 PASS: Green, Green, Green
        lacking:
    timed; clean; - cpasync on timed
        3 NOT MEASURED: Green, Green, NoData([])
        lacking:
    timed; identity 1 new on timed; clean
        0 PASS: Green, Green, Green
        lacking: cpasync-32x64
    ");
}

/// It has all its reasons: also of buffers that are wrong as timed alone, as under a race that only
/// a graph's launches show. What passes there is no evidence on all cases. What was timed against
/// peers, and what failed in the kernel before, fails no variant.
#[test]
fn a_failure_is_said_once() {
    let answers = each(
        "emulated; wmma mission: H1 fail race at 88; wmma all: H1 fail race at 88
        emulated; wmma mission: H1 fail race at 88; wmma all: H1 fail race at 99
        timed; wmma gpu mission !pair: C5 fail x
        timed; wmma gpu all: C5 none; wmma gpu mission !pair: C5 pass
        timed; + wmma | mission f16 full | peers | C2 fail x
        timed; + wmma | mission f16 full | gpu scalar | C5 fail x
        emulated; wmma all: C2 fail
        emulated; wmma all: C2 fail @ emulated; identity 0 new",
        |line| {
            let (stages, table) = scenario::view(line);
            let view = View::committed(&stages, &table);
            let failures = failures(&view).into_iter();
            let mut lines: Vec<String> = failures
                .map(|of| format!("{} {}: {}", of.subject, of.gate, of.reason))
                .collect();
            let c5 = gates(&view, &WMMA.into()).remove(&GateId::C5);
            lines.push(format!("C5 {:?}", c5.map(|judged| judged.verdict)));
            lines.join("\n")
        },
    );
    insta::assert_snapshot!(answers, @"
    emulated; wmma mission: H1 fail race at 88; wmma all: H1 fail race at 88
        stage0-scalar/wmma-qk-32x64 H1: race at 88
        C5 Some(Pass)
    emulated; wmma mission: H1 fail race at 88; wmma all: H1 fail race at 99
        stage0-scalar/wmma-qk-32x64 H1: race at 99; race at 88
        C5 Some(Pass)
    timed; wmma gpu mission !pair: C5 fail x
        stage0-scalar/wmma-qk-32x64 C5: mission f16 full as timed: x
        C5 Some(Fail)
    timed; wmma gpu all: C5 none; wmma gpu mission !pair: C5 pass
        C5 None
    timed; + wmma | mission f16 full | peers | C2 fail x
        C5 Some(Pass)
    timed; + wmma | mission f16 full | gpu scalar | C5 fail x
        C5 Some(Pass)
    emulated; wmma all: C2 fail
        stage0-scalar/wmma-qk-32x64 C2: too large
        C5 Some(Pass)
    emulated; wmma all: C2 fail @ emulated; identity 0 new
        C5 None
    ");
    assert_eq!(
        exit(&timed(US).with_columns("wmma gpu mission !pair", "C5 fail x")),
        "1 FAIL"
    );
}

#[test]
fn what_the_self_test_finds_wrong_fails_the_run() {
    let caught = |fault, cases_failed, survived: &[Dtype]| Caught {
        fault,
        cases: 4,
        cases_failed,
        gates_that_failed: vec![GateId::C2; usize::from(cases_failed > 0)],
        survived: survived.to_vec(),
    };
    let zeros = Some(Fault::ALL[0]);
    let wrong_list = common::suppression::Suppressed {
        errors: vec!["an entry names nothing".into()],
        ..Default::default()
    };
    let added = [
        ("nothing", None),
        (
            "a fault that survives",
            Some(Row::fault(&caught(zeros, 0, &[]))),
        ),
        (
            "one that survives in part",
            Some(Row::fault(&caught(zeros, 2, &[Dtype::E4m3]))),
        ),
        (
            "a correct model that fails",
            Some(Row::fault(&caught(None, 1, &[]))),
        ),
        (
            "a wrong list",
            Some(Row::self_test(&[], &wrong_list).remove(0)),
        ),
        (
            "what was not tested",
            Some(Row::untested_timer("no driver")),
        ),
    ];
    let mut runs = Vec::new();
    for (what, row) in added {
        let mut with_row = emulated();
        with_row.extend(row);
        runs.push((what, with_row));
    }
    let survived = emulated().with_columns("scalar self-test", "S1 fail");
    runs.push(("a mutant that survives", survived));
    let mut lines = String::new();
    for (what, tested) in runs {
        // Figures and verdicts are counted, whatever the words.
        let mut rows = Vec::new();
        for row in tested.table.self_tests() {
            rows.push(row.clone().note("killed"));
        }
        lines += &format!(
            "{what}: {}, {} wrong\n    {:?}\n",
            exit(&tested),
            self_test(&tested.table).count(),
            tally(&rows)
        );
    }
    insta::assert_snapshot!(lines, @"
    nothing: 0 PASS, 0 wrong
        Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    a fault that survives: 1 FAIL, 1 wrong
        Tally { faults: 1, faults_killed: 0, sites: 2, sites_killed: 1, redundant: 1 }
    one that survives in part: 1 FAIL, 1 wrong
        Tally { faults: 1, faults_killed: 0, sites: 2, sites_killed: 1, redundant: 1 }
    a correct model that fails: 1 FAIL, 1 wrong
        Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    a wrong list: 1 FAIL, 1 wrong
        Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    what was not tested: 0 PASS, 0 wrong
        Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 1 }
    a mutant that survives: 1 FAIL, 1 wrong
        Tally { faults: 1, faults_killed: 1, sites: 2, sites_killed: 1, redundant: 0 }
    ");
}

#[test]
fn the_row_over_all_cases_speaks_for_each_of_them() {
    let case = "+ wmma | mission f16 full normal:0 | emulator | C3 fail of this case";
    let run = run(&format!("emulated; wmma all: C3 fail of all; {case}"));
    let gates = gates(&View::alone(&run), &WMMA.into());
    assert_eq!(gates[&GateId::C3].reason, "of all");
}
