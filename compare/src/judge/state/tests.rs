use super::*;
use crate::judge::verdict;
use crate::judge::verdict::Exit;
use crate::record::StageMeta;
use crate::record::meta::Gpu;
use crate::testing::{
    CPASYNC, SCALAR, US, VARIANTS, WMMA, emulated, ladder, mission, suppressed, timed,
};
use common::problem::Dtype;
use common::verdict::GateResult;

fn states(stages: &[StageMeta], record: &Record) -> Vec<State> {
    let known = Known {
        stages,
        run: Some(("run", record)),
        committed: &[],
    };
    stages
        .iter()
        .flat_map(|stage| {
            stage
                .subjects()
                .map(|subject| state(&known, stage, &subject))
                .collect::<Vec<_>>()
        })
        .collect()
}

fn exit(record: &Record) -> (Exit, &'static str) {
    let known = Known {
        stages: &record.meta.stages,
        run: Some(("run", record)),
        committed: &[],
    };
    let overall = verdict::report(known).overall;
    (overall.exit, overall.word)
}

#[test]
fn what_was_timed_against_peers_fails_no_variant() {
    let judge = |gate| GateResult::judge(gate, false, "as timed");
    let row = Row::new(WMMA, mission(), Source::Peers)
        .verdict(&judge(GateId::C2))
        .verdict(&judge(GateId::L1));
    let ladders = timed(US).with(row);
    let failing = |record: &Record| -> Vec<GateId> {
        let failed = failures(record).into_iter();
        failed.map(|failure| failure.gate).collect()
    };
    assert_eq!(failing(&ladders), []);
    assert!(needs_sanitizer(&ladders));
}

#[test]
fn a_stage_of_e4m3_alone_has_no_c4_in_the_quick_tier_and_needs_it_in_every_other() {
    let of = |tier, dtypes: &[Dtype]| {
        let mut record = emulated().changed(|meta| {
            meta.tier = tier;
            meta.stages[1].variants[0].takes_claims = dtypes.into();
        });
        record.summary_mut(CPASYNC).verdicts.remove(&GateId::C4);
        states(&record.meta.stages, &record).pop().unwrap()
    };
    let lacking = State::NoData(vec![GateId::C4]);
    assert_eq!(of(Tier::T0, &[Dtype::E4m3]), State::Green);
    assert_eq!(of(Tier::T1, &[Dtype::E4m3]), lacking);
    assert_eq!(of(Tier::T0, &[Dtype::F16, Dtype::E4m3]), lacking);
}

#[test]
fn only_what_passes_every_gate_of_c1_to_c6_is_green() {
    use Verdict::{Ambiguous, Fail, NoData, Pass};
    let subject = Subject::from(WMMA);
    for gate in [
        GateId::C1,
        GateId::C2,
        GateId::C3,
        GateId::C4,
        GateId::C5,
        GateId::C6,
        GateId::C8,
        GateId::B1,
    ] {
        for (verdict, is_green_then) in [
            (Pass, true),
            (Fail, false),
            (Ambiguous, false),
            (NoData, matches!(gate, GateId::C4 | GateId::C8 | GateId::B1)),
        ] {
            assert_eq!(
                is_green(&emulated().says(WMMA, gate, verdict), &subject),
                is_green_then,
                "{gate} {verdict}"
            );
        }
        let mut without = emulated();
        without.summary_mut(WMMA).verdicts.remove(&gate);
        assert_eq!(
            is_green(&without, &subject),
            matches!(gate, GateId::C4 | GateId::C8 | GateId::B1),
            "without {gate}"
        );
    }
    let mut lost = emulated();
    lost.summary_mut(WMMA)
        .figures
        .insert(Metric::CasesFailed, 1_u32.into());
    assert!(!is_green(&lost, &subject));
    assert!(!is_green(
        &emulated().without(|row| row.on == On::All),
        &subject
    ));
    // Only where there is a hazard does H1 take anything away.
    for verdict in [Pass, NoData] {
        let traced = emulated().says(WMMA, GateId::H1, verdict);
        assert!(is_green(&traced, &subject), "H1 {verdict}");
    }
    // A hazard that another row has is one.
    let hazard = GateResult::judge(GateId::H1, false, "race");
    let hazardous = emulated().with(Row::new(WMMA, mission(), Source::Emulator).verdict(&hazard));
    assert!(!is_green(&hazardous, &subject) && is_green(&hazardous, &SCALAR.into()));
    assert_eq!(
        states(&ladder(), &hazardous)[1],
        State::Failed(vec![GateId::H1])
    );
}

/// What is said of wmma-qk-32x64 where the others are green, and how the run ends: whole, and where flags selected it.
#[test]
fn each_state_has_its_cause_and_its_end() {
    let of = |change: fn(&mut Row)| {
        let mut record = emulated();
        change(record.summary_mut(WMMA));
        record
    };
    let no_case = |unsupported: u32| {
        let mut record = emulated();
        let figures = &mut record.summary_mut(WMMA).figures;
        figures.insert(Metric::Cases, 0_u32.into());
        figures.insert(Metric::CasesUnsupported, unsupported.into());
        record.summary_mut(WMMA).verdicts.clear();
        record
    };
    let built = |spills| {
        timed(US).built(96, spills).changed(|meta| {
            meta.gates
                .iter_mut()
                .filter(|scope| scope.gate == GateId::R1)
                .for_each(|scope| scope.measurable = Measurable::Yes)
        })
    };
    let with_b1 = || {
        let mut record = emulated();
        record.scope(GateId::B1, Measurable::Yes);
        VARIANTS
            .into_iter()
            .filter(|subject| *subject != WMMA)
            .fold(record, |record, subject| {
                record.says(subject, GateId::B1, Verdict::Pass)
            })
    };
    let pass = (Exit::Pass, "PASS");
    let incomplete = (Exit::Inconclusive, "INCOMPLETE");
    for (record, expected, whole, selected) in [
        (emulated(), State::Green, pass, pass),
        (built(0), State::Green, pass, pass),
        (
            emulated().failing(WMMA, GateId::C3),
            State::Failed(vec![GateId::C3]),
            (Exit::Fail, "FAIL"),
            (Exit::Fail, "FAIL"),
        ),
        (
            built(8),
            State::Failed(vec![GateId::R1]),
            (Exit::Fail, "FAIL"),
            (Exit::Fail, "FAIL"),
        ),
        (with_b1(), State::NoData(vec![GateId::B1]), incomplete, pass),
        (
            of(|row| drop(row.verdicts.remove(&GateId::C5))),
            State::NoData(vec![GateId::C5]),
            incomplete,
            pass,
        ),
        (
            of(|row| drop(row.verdicts.remove(&GateId::C4))),
            State::NoData(vec![GateId::C4]),
            incomplete,
            pass,
        ),
        (
            emulated().says(WMMA, GateId::C5, Verdict::Ambiguous),
            State::Ambiguous(vec![GateId::C5]),
            (Exit::Inconclusive, "AMBIGUOUS"),
            (Exit::Inconclusive, "AMBIGUOUS"),
        ),
        (
            no_case(2),
            State::NotRun("it supports none of these problems".into()),
            pass,
            pass,
        ),
    ] {
        assert_eq!(states(&ladder(), &record)[1], expected);
        assert_eq!(exit(&record), whole, "{expected:?}");
        let record = record.changed(|meta| {
            meta.scope = Scope::Selected {
                flags: vec!["--seeds 0".into()],
            }
        });
        assert_eq!(exit(&record), selected, "{expected:?} selected");
    }
    // A variant whose other cases are refused may lack C4, and no other gate.
    let refused = |gate: GateId| {
        let mut record = emulated();
        let row = record.summary_mut(WMMA);
        row.verdicts.remove(&gate);
        row.figures.insert(Metric::CasesUnsupported, 1_u32.into());
        states(&ladder(), &record)[1].clone()
    };
    assert_eq!(
        (refused(GateId::C4), refused(GateId::C5)),
        (State::Green, State::NoData(vec![GateId::C5]))
    );
    let mut changed = ladder();
    changed[0].identity = "another".into();
    assert_eq!(
        states(&changed, &emulated()),
        [State::Stale, State::Stale, State::Green]
    );
    let absent = emulated().without(|row| row.on == On::All && row.subject.as_str() == WMMA);
    assert_eq!(states(&ladder(), &absent)[1], State::NoData(vec![]));
    assert_eq!(
        exit(&absent),
        incomplete,
        "rows were lost, or never written"
    );
    let quick = absent.clone().changed(|meta| meta.tier = Tier::T0);
    assert_eq!(
        states(&ladder(), &quick)[1],
        State::NotRun("not in tier T0".into())
    );
    let undeclared = absent.changed(|meta| {
        let variants = &mut meta.stages[0].variants;
        variants.retain(|variant| !WMMA.ends_with(&variant.name));
    });
    assert_eq!(
        states(&ladder(), &undeclared)[1],
        State::NotRun("the record does not declare it".into())
    );
    let empty = quick.without(|row| row.on == On::All);
    assert_eq!(exit(&empty), (Exit::Inconclusive, "NO DATA"));
}

#[test]
fn what_the_sanitizer_finds_fails_the_variant() {
    use Verdict::{Fail, NoData, Pass};
    let with = |verdicts: [Verdict; 2]| timed(US).clean().sanitized(CPASYNC, verdicts);
    let c7 = |record: &Record| gates(record, &CPASYNC.into()).get(&GateId::C7).cloned();
    let clean = c7(&with([Pass, Pass])).unwrap();
    assert_eq!(
        (clean.verdict, clean.passed, clean.of),
        (Pass, Some(2), Some(2))
    );
    assert_eq!(
        states(&ladder(), &with([NoData, Fail]))[2],
        State::Failed(vec![GateId::C7])
    );
    assert_eq!(exit(&with([NoData, Fail])), (Exit::Fail, "FAIL"));
    assert_eq!(
        failures(&with([NoData, Fail]))[0].reason,
        "racecheck: planted"
    );
    assert_eq!(
        states(&ladder(), &with([Pass, NoData]))[2],
        State::NoData(vec![GateId::C7])
    );
    assert_eq!(exit(&with([Pass, NoData])), (Exit::Inconclusive, "INCOMPLETE"));
}

#[test]
fn a_full_run_on_a_gpu_needs_the_sanitizer_on_every_variant_once_it_can_have_had_it() {
    needs_the_sanitizer(timed(US));
}

/// A committed selection stands for its stages, so it may lack a case of another gate and not C7.
#[test]
fn a_selection_of_stages_needs_the_sanitizer_too() {
    needs_the_sanitizer(timed(US).changed(|meta| {
        meta.scope = Scope::Selected {
            flags: vec!["--stages 2".into()],
        }
    }));
}

fn needs_the_sanitizer(record: Record) {
    // A run ends before the command that completes it can begin.
    assert_eq!(
        (states(&ladder(), &record), exit(&record)),
        (vec![State::Green; 3], (Exit::Pass, "PASS"))
    );
    assert_eq!(unsanitized(&record).len(), 3);
    let committed = [("a".to_string(), record.clone())];
    let stages = ladder();
    let overall = verdict::report(Known {
        stages: &stages,
        run: None,
        committed: &committed,
    })
    .overall;
    assert_eq!(
        (overall.exit, overall.word),
        (Exit::Inconclusive, "INCOMPLETE")
    );

    assert_eq!(exit(&record.clone().clean()), (Exit::Pass, "PASS"));
    let mut some = record
        .clean()
        .without(|row| row.by == Source::ComputeSanitizer && row.subject.as_str() == CPASYNC);
    assert_eq!(
        states(&ladder(), &some),
        [State::Green, State::Green, State::NoData(vec![GateId::C7])]
    );
    assert_eq!(exit(&some), (Exit::Inconclusive, "INCOMPLETE"));
    assert_eq!(unsanitized(&some), [CPASYNC.into()]);
    // What a device refuses has no case, and nothing to be sanitized.
    some.summary_mut(CPASYNC)
        .figures
        .insert(Metric::Cases, 0_u32.into());
    assert_eq!(unsanitized(&some), []);
    for narrowed in [timed(US).changed(|meta| meta.tier = Tier::T0), emulated()] {
        assert_eq!(unsanitized(&narrowed), []);
    }
}

#[test]
fn a_reason_is_said_once_and_several_are_said_together() {
    let fail = |reason: &str| GateResult::judge(GateId::H1, false, reason);
    let mut record =
        emulated().with(Row::new(WMMA, mission(), Source::Emulator).verdict(&fail("race at 88")));
    let all = record.summary_mut(WMMA);
    all.judge(GateId::H1, Judged::from(&fail("race at 88")));
    assert_eq!(
        failures(&record)
            .iter()
            .map(|f| &*f.reason)
            .collect::<Vec<_>>(),
        ["race at 88"]
    );
    record
        .summary_mut(WMMA)
        .verdicts
        .get_mut(&GateId::H1)
        .unwrap()
        .reason = "race at 99".into();
    let found = failures(&record);
    assert_eq!(found.len(), 1);
    assert!(
        found[0].reason.contains("race at 88") && found[0].reason.contains("race at 99"),
        "{}",
        found[0].reason
    );
    // Wrong on the timed buffers alone, as under a race that only a graph's launches show.
    let mut timed = timed(US);
    timed.row_mut(WMMA, &mission(), Source::Gpu).judge(
        GateId::C5,
        Judged::from(&GateResult::judge(GateId::C5, false, "x")),
    );
    let found = failures(&timed);
    assert_eq!(
        (found.len(), found[0].gate, &*found[0].reason),
        (1, GateId::C5, "mission f16 full as timed: x")
    );
    assert_eq!(exit(&timed), (Exit::Fail, "FAIL"));
    // What passes there is no evidence on all cases.
    let mut passing = emulated();
    passing.summary_mut(WMMA).verdicts.remove(&GateId::C5);
    let row = Row::new(WMMA, mission(), Source::Gpu);
    let passing = passing.with(row.verdict(&GateResult::judge(GateId::C5, true, "x")));
    assert!(!gates(&passing, &WMMA.into()).contains_key(&GateId::C5));
}

#[test]
fn what_the_self_test_finds_wrong_fails_the_run() {
    assert_eq!(self_test(&emulated()).count(), 0);
    let mut survived = suppressed().sites[0].clone();
    survived.listed = None;
    let unlisted = emulated().with(crate::measure::rows::site(&survived));
    assert_eq!(
        (self_test(&unlisted).count(), exit(&unlisted)),
        (1, (Exit::Fail, "FAIL"))
    );
    let fault = common::faults::Fault::ALL[0];
    let escaped = common::faults::Caught {
        fault: Some(fault),
        cases: 4,
        cases_failed: 0,
        gates_that_failed: vec![],
        survived: vec![],
    };
    let blind = emulated().with(crate::measure::rows::planted(&escaped));
    let in_part = common::faults::Caught {
        cases_failed: 2,
        gates_that_failed: vec![GateId::C2],
        survived: vec![Dtype::E4m3],
        ..escaped.clone()
    };
    let in_part = emulated().with(crate::measure::rows::planted(&in_part));
    let wrong_model = common::faults::Caught {
        fault: None,
        cases_failed: 1,
        gates_that_failed: vec![GateId::C2],
        ..escaped
    };
    let wrong_model = emulated().with(crate::measure::rows::planted(&wrong_model));

    assert_eq!(
        (self_test(&blind).count(), exit(&blind)),
        (1, (Exit::Fail, "FAIL"))
    );
    // Figures and verdicts are counted, whatever the words.
    let counts = |mut record: Record| {
        record
            .rows
            .iter_mut()
            .filter(|row| row.by == Source::SelfTest)
            .for_each(|row| row.note = Some("killed".into()));
        let Tally {
            faults,
            faults_killed,
            sites,
            sites_killed,
            redundant,
        } = tally(record.by(Source::SelfTest));
        [faults_killed, faults, sites_killed, redundant, sites]
    };
    let not_tried = || {
        emulated().with(crate::measure::rows::not_tested(
            "synchronisation",
            "no traced build",
        ))
    };
    for (record, expected) in [
        (emulated(), [1, 1, 1, 1, 2]),
        (blind, [0, 1, 1, 1, 2]),
        (in_part, [0, 1, 1, 1, 2]),
        (wrong_model, [1, 1, 1, 1, 2]),
        (unlisted, [1, 1, 1, 0, 2]),
        (not_tried(), [1, 1, 1, 1, 2]),
    ] {
        assert_eq!(counts(record), expected);
    }
    let wrong = common::suppression::Suppressed {
        errors: vec!["an entry names nothing".into()],
        ..Default::default()
    };
    let listed = emulated().with(crate::measure::rows::self_test(Ok(vec![]), &Ok(wrong)).remove(0));
    assert_eq!(exit(&listed), (Exit::Fail, "FAIL"));
    assert_eq!(exit(&not_tried()), (Exit::Pass, "PASS"));
}

/// A stage that is added is measured alone: what the record before said of the others holds.
#[test]
fn a_committed_selection_stands_beside_the_whole_record_before_it() {
    let whole = ("1".to_string(), timed(US).clean());
    let of_one = timed(US).without(|row| row.subject.as_str() == WMMA);
    let of_one = of_one.changed(|meta| {
        meta.scope = Scope::Selected {
            flags: vec!["--stages 1".into()],
        }
    });
    let state_of =
        |stages: &[StageMeta], run: Option<(&str, &Record)>, committed: &[(String, Record)]| {
            verdict::report(Known {
                stages,
                run,
                committed,
            })
            .states[1]
                .1
                .clone()
        };
    let committed = [whole.clone(), ("2".to_string(), of_one.clone())];
    assert_eq!(state_of(&ladder(), None, &committed), State::Green);
    let mut changed = ladder();
    changed[0].identity = "another".into();
    assert_eq!(state_of(&changed, None, &committed), State::Stale);
    assert_eq!(
        state_of(&ladder(), Some(("now", &of_one)), &[whole]),
        State::NotRun("not selected".into()),
        "a run is judged by itself"
    );
    let elsewhere = timed(US).changed(|meta| match &mut meta.machine.gpu {
        Gpu::Present { name, .. } => *name = "NVIDIA L4".into(),
        Gpu::Absent { .. } => unreachable!(),
    });
    let committed = [("1".to_string(), elsewhere), ("2".to_string(), of_one)];
    assert_eq!(
        state_of(&ladder(), None, &committed),
        State::NotRun("not selected".into())
    );
}
