use super::*;
use crate::judge::verdict::{self, Exit};
use crate::measure::rows;
use crate::table::Run;
use crate::testing::{
    CPASYNC, SCALAR, US, WMMA, emulated, instances, ladder, mission, suppressed, table, timed,
};
use common::faults::{Caught, Fault};
use common::verdict::GateResult;

fn states_of(known: &Known<'_>) -> Vec<State> {
    let subjects = |stage: &StageMeta| {
        let states = stage
            .subjects()
            .map(|subject| state(known, stage, &subject));
        states.collect::<Vec<_>>()
    };
    known.stages.iter().flat_map(subjects).collect()
}

fn states(run: &Run) -> Vec<State> {
    states_of(&Known::alone(run))
}

fn exit(run: &Run) -> (Exit, &'static str) {
    let overall = verdict::report(Known::alone(run)).overall;
    (overall.exit, overall.word)
}

const PASS: (Exit, &str) = (Exit::Pass, "PASS");
const FAIL: (Exit, &str) = (Exit::Fail, "FAIL");
const INCOMPLETE: (Exit, &str) = (Exit::Inconclusive, "INCOMPLETE");

fn selected(session: &mut Session) {
    session.scope.seeds = vec![0];
}

#[test]
fn only_what_passes_every_gate_of_c1_to_c6_is_green() {
    use Verdict::{Ambiguous, Fail, NoData, Pass};
    let green =
        |run: &Run, subject: &str| is_green(&Known::alone(run), &subject.into(), Source::Emulator);
    use GateId::{B1, C1, C2, C3, C4, C5, C6, C8};
    for gate in [C1, C2, C3, C4, C5, C6, C8, B1] {
        let may_lack = matches!(gate, C4 | C8 | B1);
        for (verdict, expected) in [
            (Pass, true),
            (Fail, false),
            (Ambiguous, false),
            (NoData, may_lack),
        ] {
            let run = emulated().says(WMMA, gate, verdict);
            assert_eq!(green(&run, WMMA), expected, "{gate} {verdict}");
        }
        let mut without = emulated();
        without.summary_mut(WMMA).verdicts.remove(&gate);
        assert_eq!(green(&without, WMMA), may_lack, "without {gate}");
    }
    let mut lost = emulated();
    let figures = &mut lost.summary_mut(WMMA).figures;
    figures.insert(Metric::CasesFailed, 1_u32.into());
    assert!(!green(&lost, WMMA));
    assert!(!green(&emulated().without(|row| row.on == On::All), WMMA));
    // Only where there is a hazard does H1 take anything away, whichever row has it.
    for verdict in [Pass, NoData] {
        assert!(green(&emulated().says(WMMA, GateId::H1, verdict), WMMA));
    }
    let hazard = GateResult::judge(GateId::H1, false, "race");
    let row = Row::new(WMMA, mission(), Source::Emulator).verdict(&hazard);
    let hazardous = emulated().with(row);
    assert!(!green(&hazardous, WMMA) && green(&hazardous, SCALAR));
    assert_eq!(states(&hazardous)[1], State::Failed(vec![GateId::H1]));
}

/// What is said of wmma-qk-32x64 where the others are green, and how the run ends: whole, and where flags selected cases.
#[test]
fn each_state_has_its_cause_and_its_end() {
    let without = |gate| {
        let mut run = emulated();
        run.summary_mut(WMMA).verdicts.remove(&gate);
        run
    };
    let cases = |mut run: Run, of: [(Metric, u32); 2]| {
        let figures = &mut run.summary_mut(WMMA).figures;
        figures.extend(of.map(|(metric, n)| (metric, n.into())));
        run
    };
    let no_case = {
        let mut run = cases(
            emulated(),
            [(Metric::Cases, 0), (Metric::CasesUnsupported, 2)],
        );
        run.summary_mut(WMMA).verdicts.clear();
        run
    };
    let built = |spills| {
        let mut run = timed(US).built(96, spills);
        run.scope(GateId::R1, Measurable::Yes);
        run
    };
    let with_b1 = {
        let mut run = emulated();
        run.scope(GateId::B1, Measurable::Yes);
        [SCALAR, CPASYNC].into_iter().fold(run, |run, subject| {
            run.says(subject, GateId::B1, Verdict::Pass)
        })
    };
    // A variant whose other cases are refused may lack C4, and no other gate.
    let refused = |gate| {
        cases(
            without(gate),
            [(Metric::Cases, 1), (Metric::CasesUnsupported, 1)],
        )
    };
    let absent = || emulated().without(|row| row.on == On::All && row.subject.as_str() == WMMA);
    let ambiguous = (Exit::Inconclusive, "AMBIGUOUS");
    let lacks = |gate| State::NoData(vec![gate]);
    let not_run = |why: &str| State::NotRun(why.into());
    for (run, expected, whole, when_selected) in [
        (emulated(), State::Green, PASS, PASS),
        (built(0), State::Green, PASS, PASS),
        (
            emulated().failing(WMMA, GateId::C3),
            State::Failed(vec![GateId::C3]),
            FAIL,
            FAIL,
        ),
        (built(8), State::Failed(vec![GateId::R1]), FAIL, FAIL),
        (with_b1, lacks(GateId::B1), INCOMPLETE, PASS),
        (without(GateId::C5), lacks(GateId::C5), INCOMPLETE, PASS),
        (without(GateId::C4), lacks(GateId::C4), INCOMPLETE, PASS),
        (refused(GateId::C4), State::Green, PASS, PASS),
        (refused(GateId::C5), lacks(GateId::C5), INCOMPLETE, PASS),
        (
            emulated().says(WMMA, GateId::C5, Verdict::Ambiguous),
            State::Ambiguous(vec![GateId::C5]),
            ambiguous,
            ambiguous,
        ),
        (
            no_case,
            not_run("it supports none of these problems"),
            PASS,
            PASS,
        ),
        // Rows were lost, or never written.
        (absent(), State::NoData(vec![]), INCOMPLETE, PASS),
        (
            absent().changed(|session| session.tier = Tier::T0),
            not_run("not in tier T0"),
            PASS,
            PASS,
        ),
    ] {
        assert_eq!(states(&run)[1], expected);
        assert_eq!(exit(&run), whole, "{expected:?}");
        let run = run.changed(selected);
        assert_eq!(exit(&run), when_selected, "{expected:?} selected");
    }
    // What could not be launched is no problem that it does not support.
    let failed = [(Metric::Cases, 0), (Metric::CasesUnsupported, 2)];
    let mut failed = cases(emulated().failing(WMMA, GateId::C1), failed);
    let figures = &mut failed.summary_mut(WMMA).figures;
    figures.insert(Metric::CasesFailed, 1_u32.into());
    assert_eq!(states(&failed)[1], State::Failed(vec![GateId::C1]));
    let empty = emulated().without(|row| row.on == On::All);
    let empty = empty.changed(|session| session.tier = Tier::T0);
    assert_eq!(exit(&empty), (Exit::Inconclusive, "NO DATA"));
    assert_eq!(
        states(&absent().changed(selected))[1],
        not_run("not selected")
    );
    // A run is judged by itself, a table by what it has.
    let run = absent().changed(selected).named("2");
    let known = Known::of_run(&run, &table(&[emulated().named("1")]));
    assert_eq!(states_of(&known)[1], not_run("not selected"));
    let sessions = table(&[timed(US).named("1")]);
    let stages = ladder();
    let mut changed = ladder();
    changed[0].identity = "another".into();
    let committed = |stages| states_of(&Known::committed(stages, &sessions));
    assert_eq!(committed(&changed)[..2], [State::Stale, State::Stale]);
    assert!(
        matches!(committed(&stages)[1], State::NoData(_)),
        "no B1, R1 and C7"
    );
    let nothing = Table::default();
    assert_eq!(
        states_of(&Known::committed(&stages, &nothing))[1],
        State::NoData(vec![])
    );
}

#[test]
fn a_stage_of_e4m3_alone_has_no_c4_in_the_quick_tier_and_needs_it_in_every_other() {
    let of = |tier, dtypes: &[Dtype]| {
        let mut run = emulated().changed(|session| {
            session.tier = tier;
            session.stages[1].variants[0].kernels = instances("cpasync-32x64", dtypes);
        });
        run.summary_mut(CPASYNC).verdicts.remove(&GateId::C4);
        states(&run).pop().unwrap()
    };
    let lacking = State::NoData(vec![GateId::C4]);
    assert_eq!(of(Tier::T0, &[Dtype::E4m3]), State::Green);
    assert_eq!(of(Tier::T1, &[Dtype::E4m3]), lacking);
    assert_eq!(of(Tier::T0, &[Dtype::F16, Dtype::E4m3]), lacking);
}

#[test]
fn what_the_sanitizer_finds_fails_the_variant() {
    use Verdict::{Fail, NoData, Pass};
    let with = |verdicts: [Verdict; 2]| timed(US).clean().sanitized(CPASYNC, verdicts);
    let clean = with([Pass, Pass]);
    let c7 = gates(&Known::alone(&clean), &CPASYNC.into())[&GateId::C7].clone();
    assert_eq!((c7.verdict, c7.passed, c7.of), (Pass, Some(2), Some(2)));
    let found = with([NoData, Fail]);
    assert_eq!(states(&found)[2], State::Failed(vec![GateId::C7]));
    assert_eq!(exit(&found), FAIL);
    assert_eq!(
        failures(&Known::alone(&found))[0].reason,
        "racecheck: planted"
    );
    let half = with([Pass, NoData]);
    assert_eq!(states(&half)[2], State::NoData(vec![GateId::C7]));
    assert_eq!(exit(&half), INCOMPLETE);
}

/// Of a whole run and of a selection of stages, which may lack a case of another gate and not C7.
#[test]
fn a_full_run_on_a_gpu_needs_the_sanitizer_on_every_variant_once_it_can_have_had_it() {
    for run in [timed(US), timed(US).changed(selected)] {
        // A run ends before the command that completes it can begin.
        assert_eq!((states(&run), exit(&run)), (vec![State::Green; 3], PASS));
        assert_eq!(unsanitized(&Known::alone(&run)).len(), 3);
        assert_eq!(exit(&run.clone().clean()), PASS);
        let mut some = run
            .clean()
            .without(|row| row.by == Source::ComputeSanitizer && row.subject.as_str() == CPASYNC);
        assert_eq!(
            states(&some)[1..],
            [State::Green, State::NoData(vec![GateId::C7])]
        );
        assert_eq!(exit(&some), INCOMPLETE);
        assert_eq!(unsanitized(&Known::alone(&some)), [CPASYNC.into()]);
        // What a device refuses has no case, and nothing to be sanitized.
        let figures = &mut some.summary_mut(CPASYNC).figures;
        figures.insert(Metric::Cases, 0_u32.into());
        assert_eq!(unsanitized(&Known::alone(&some)), []);
    }
    for narrowed in [
        timed(US).changed(|session| session.tier = Tier::T0),
        emulated(),
    ] {
        assert_eq!(unsanitized(&Known::alone(&narrowed)), []);
    }
    // What was found in the kernel before says nothing of this one.
    let before = [timed(US).clean().named("1")];
    let run = timed(US)
        .named("2")
        .changed(|session| session.stages[1].identity = "new".into());
    let known = Known::of_run(&run, &table(&before));
    assert_eq!(unsanitized(&known), [CPASYNC.into()]);
}

#[test]
fn a_failure_is_said_once_with_all_its_reasons() {
    let judge = |gate, passes, reason: &str| GateResult::judge(gate, passes, reason);
    let failing = |run: &Run| {
        let failures = failures(&Known::alone(run)).into_iter();
        let lines = failures.map(|failure| format!("{}: {}", failure.gate, failure.reason));
        lines.collect::<Vec<_>>()
    };
    for (of_all, expected) in [
        ("race at 88", "H1: race at 88"),
        ("race at 99", "H1: race at 99; race at 88"),
    ] {
        let row = Row::new(WMMA, mission(), Source::Emulator);
        let mut run = emulated().with(row.verdict(&judge(GateId::H1, false, "race at 88")));
        let all = run.summary_mut(WMMA);
        *all = all.clone().verdict(&judge(GateId::H1, false, of_all));
        assert_eq!(failing(&run), [expected]);
    }
    // Wrong on the timed buffers alone, as under a race that only a graph's launches show.
    let mut as_timed = timed(US);
    let row = as_timed.row_mut(WMMA, &mission(), Source::Gpu);
    *row = row.clone().verdict(&judge(GateId::C5, false, "x"));
    assert_eq!(failing(&as_timed), ["C5: mission f16 full as timed: x"]);
    assert_eq!(exit(&as_timed), FAIL);
    // What passes there is no evidence on all cases.
    let mut passing = timed(US);
    passing.summary_mut(WMMA).verdicts.remove(&GateId::C5);
    let row = passing.row_mut(WMMA, &mission(), Source::Gpu);
    *row = row.clone().verdict(&judge(GateId::C5, true, "x"));
    assert!(!gates(&Known::alone(&passing), &WMMA.into()).contains_key(&GateId::C5));
    // What was timed against peers, and what failed in the kernel before, fails no variant.
    let row = Row::new(WMMA, mission(), Source::Peers);
    let beside_peers = timed(US).with(row.verdict(&judge(GateId::C2, false, "x")));
    assert_eq!(failing(&beside_peers), [""; 0]);
    let before = table(&[emulated().failing(WMMA, GateId::C2)]);
    let mut stages = ladder();
    assert_eq!(
        super::failures(&Known::committed(&stages, &before)).len(),
        1
    );
    stages[0].identity = "new".into();
    assert_eq!(super::failures(&Known::committed(&stages, &before)), []);
}

#[test]
fn what_the_self_test_finds_wrong_fails_the_run() {
    let mut survived = suppressed().sites[0].clone();
    survived.listed = None;
    let escaped = Caught {
        fault: Some(Fault::ALL[0]),
        cases: 4,
        cases_failed: 0,
        gates_that_failed: vec![],
        survived: vec![],
    };
    let in_part = Caught {
        cases_failed: 2,
        gates_that_failed: vec![GateId::C2],
        survived: vec![Dtype::E4m3],
        ..escaped.clone()
    };
    let wrong_model = Caught {
        fault: None,
        cases_failed: 1,
        gates_that_failed: vec![GateId::C2],
        ..escaped.clone()
    };
    let wrong_list = common::suppression::Suppressed {
        errors: vec!["an entry names nothing".into()],
        ..Default::default()
    };
    let with = |row: Row| emulated().with(row);
    // Killed faults, faults, killed mutants, redundant ones, mutants.
    for (run, expected, verdict) in [
        (emulated(), [1, 1, 1, 1, 2], PASS),
        (with(rows::planted(&escaped)), [0, 1, 1, 1, 2], FAIL),
        (with(rows::planted(&in_part)), [0, 1, 1, 1, 2], FAIL),
        (with(rows::planted(&wrong_model)), [1, 1, 1, 1, 2], FAIL),
        (with(rows::site(&survived)), [1, 1, 1, 0, 2], FAIL),
        (
            with(rows::self_test(Ok(vec![]), &Ok(wrong_list)).remove(0)),
            [1, 1, 1, 1, 2],
            FAIL,
        ),
        (
            with(rows::not_tested("synchronisation", "no traced build")),
            [1, 1, 1, 1, 2],
            PASS,
        ),
    ] {
        assert_eq!(exit(&run), verdict);
        assert_eq!(self_test(&run.table).count(), usize::from(verdict == FAIL));
        // Figures and verdicts are counted, whatever the words.
        let rows = run.table.by(Source::SelfTest).cloned();
        let rows: Vec<Row> = rows.map(|row| row.note("killed")).collect();
        let Tally {
            faults,
            faults_killed,
            sites,
            sites_killed,
            redundant,
        } = tally(&rows);
        assert_eq!(
            [faults_killed, faults, sites_killed, redundant, sites],
            expected
        );
    }
}
