use super::*;
use crate::testing::{case, counted, emulated, ladder, rejudge, resummarise, sanitized, timed};
use common::check::{CaseResult, Outcome, Source};
use common::device::BackendKind;
use common::evidence::Counting;
use common::inputs::Family;
use common::problem::Mask;
use common::record::{GateScope, Gpu, Negative, Progress, Refusal, SCHEMA};
use common::suppression::Broken;

/// `record` after `compare sanitize`, which found nothing.
fn clean(mut record: Record) -> Record {
    let of = |case: &CaseResult| sanitized(&case.key.stage, &case.key.variant, [Verdict::Pass; 2]);
    let each: Vec<Sanitizer> = record.correctness.cases.iter().map(of).collect();
    let checks = each.iter().flat_map(|one| one.checks.clone()).collect();
    record.sanitizer = Some(Sanitizer { checks, ..each[0].clone() });
    record
}

/// Both claims of the literal ladder hold.
const GOOD: [f64; 3] = [32.0, 20.0, 15.0];

fn exit(report: &Report) -> (Exit, &'static str) {
    (report.overall.exit, report.overall.word)
}

fn of_run(record: &Record, committed: &[Committed]) -> Report {
    report(&ladder(), Some(("run", record)), committed)
}

fn committed(name: &str, record: Record) -> Committed {
    (name.to_string(), record)
}

#[test]
fn a_green_run_passes_with_nothing_to_do() {
    let report = of_run(&emulated(), &[]);
    assert_eq!(exit(&report), (Exit::Pass, "PASS"));
    assert!(report.rows.iter().all(|row| row.state == RowState::Green));
    assert_eq!(report.overall.actions, ["No action needed."]);
    assert_eq!(exit(&of_run(&timed(GOOD), &[])), (Exit::Pass, "PASS"));
}

#[test]
fn a_failed_gate_fails_the_run_and_hides_the_latency() {
    let mut record = timed(GOOD);
    record.correctness.cases.push(case("stage0-scalar", "wmma-qk-32x64", BackendKind::Cuda, Some(GateId::C3)));
    resummarise(&mut record);
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Fail, "FAIL"));
    assert_eq!(report.rows[1].state, RowState::Failed(vec![GateId::C3]));
    assert!(matches!(report.rows[1].latency, Latency::Withheld { .. }), "no number without a green gate");
    assert_eq!(report.failures[0].place, "stage0-scalar/wmma-qk-32x64");

    let mut record = timed(GOOD);
    let Outcome::Checked { gates, .. } = &mut record.correctness.cases[1].outcome else { panic!("literal") };
    gates.push(GateResult::judge(GateId::B1, false, "row [0, 0, 16] differs from the emulator's by 1.000e0"));
    resummarise(&mut record);
    let report = of_run(&record, &[]);
    assert_eq!(report.rows[1].state, RowState::Failed(vec![GateId::B1]));
    assert!(matches!(report.rows[1].latency, Latency::Withheld { .. }));
}

#[test]
fn a_launch_that_failed_is_a_failed_gate() {
    let mut record = emulated();
    record.correctness.cases[0].outcome = Outcome::Failed { reason: "deadlock at kernel.cu:88".into() };
    resummarise(&mut record);
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Fail, "FAIL"));
    assert!(report.failures[0].result.reason.contains("deadlock at kernel.cu:88"));
}

#[test]
fn a_gate_that_misses_a_planted_fault_fails_the_run() {
    let mut record = emulated();
    let Planted::Tried { subjects } = &mut record.correctness.planted else { panic!("literal") };
    subjects[1].cases_failed = 0;
    subjects[1].gates_that_failed.clear();
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Fail, "FAIL"));
}

#[test]
fn synchronisation_that_no_gate_misses_fails_the_run_unless_it_is_listed() {
    let mut record = emulated();
    let Synchronisation::Tried { suppressed, .. } = &mut record.correctness.synchronisation else { panic!("literal") };
    assert_eq!(suppressed.sites[0].listed.take().as_deref().map(|reason| reason.starts_with("scalar")), Some(true));
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Fail, "FAIL"));
    let line = "1 synchronisation site is not as listed, first __syncthreads of scalar at stage0-scalar/kernel.cu:159";
    assert!(report.overall.line.starts_with(line), "{}", report.overall.line);
}

#[test]
fn a_kernel_that_is_wrong_with_all_its_synchronisation_fails_its_gate() {
    let hazard = "scalar-32x64 1x1x33:321x64 f16 full with all its synchronisation: race in block [0, 0, 0]";
    let mut record = emulated();
    let Synchronisation::Tried { suppressed, .. } = &mut record.correctness.synchronisation else { panic!("literal") };
    suppressed.sites.clear();
    suppressed.broken.push(Broken {
        stage: "stage0-scalar".into(),
        variant: "scalar-32x64".into(),
        result: GateResult::judge(GateId::H1, false, hazard),
    });
    resummarise(&mut record);
    let fails = |record: &Record| {
        let report = of_run(record, &[]);
        assert_eq!(exit(&report), (Exit::Fail, "FAIL"));
        assert_eq!(report.rows[0].state, RowState::Failed(vec![GateId::H1]));
        assert_eq!((report.failures.len(), report.failures[0].result.reason.as_str()), (1, hazard));
        let line = format!("1 gate fails, first H1 of stage0-scalar/scalar-32x64: {hazard}");
        assert_eq!((report.overall.line, report.overall.actions.len()), (line, 1), "and no advice to remove a site");
    };
    fails(&record);
    assert!(!is_green(&record.correctness.variants[0]));
    // A hazard under a schedule that passed elsewhere, and in a variant that has no case of its own.
    record.correctness.cases.retain(|case| case.key.variant != "scalar-32x64");
    resummarise(&mut record);
    fails(&record);
}

#[test]
fn a_gate_that_fails_in_some_cases_says_what_they_share() {
    let mut record = emulated();
    let fails = |mask, failed| {
        let mut case = case("stage0-scalar", "scalar-32x64", BackendKind::Emulated, failed);
        case.key.mask = mask;
        case
    };
    record.correctness.cases.extend([fails(Mask::Causal, Some(GateId::C2)), fails(Mask::Full, None)]);
    resummarise(&mut record);
    let reason = &of_run(&record, &[]).failures[0].result.reason;
    assert!(
        reason.starts_with("fails in 1 of 3 cases: exactly those with causal mask; first mission f16 causal"),
        "{reason}"
    );
}

#[test]
fn a_claim_that_fails_needs_a_negative_record() {
    let slow = timed([24.0, 20.0, 15.0]);
    let report = of_run(&slow, &[]);
    assert_eq!(exit(&report), (Exit::Fail, "FAIL"));
    assert!(report.overall.line.contains("wmma-qk >= 1.50x"), "{}", report.overall.line);

    let mut negative = slow.clone();
    negative.negative = Some(Negative {
        schema: SCHEMA,
        reason: "P·V dominates".into(),
        gpu: Some("NVIDIA H200".into()),
        claims: failed_claims(&slow),
    });
    let report = of_run(&slow, &[committed("a", negative.clone())]);
    assert_eq!(exit(&report), (Exit::Pass, "PASS"));
    assert!(matches!(report.claims[0].state, ClaimState::Negative { .. }));

    // The record speaks of one version of the kernel on one GPU.
    let mut changed = negative.clone();
    changed.negative.as_mut().unwrap().claims[0].identity = "another".into();
    assert_eq!(exit(&of_run(&slow, &[committed("a", changed)])).0, Exit::Fail);
    let mut elsewhere = negative.clone();
    elsewhere.negative.as_mut().unwrap().gpu = Some("NVIDIA L4".into());
    assert_eq!(exit(&of_run(&slow, &[committed("a", elsewhere)])).0, Exit::Fail);

    // An unexpected pass is announced.
    let report = of_run(&timed(GOOD), &[committed("a", negative)]);
    assert!(matches!(report.claims[0].state, ClaimState::UnexpectedPass { .. }));
    assert!(report.overall.actions.iter().any(|action| action.contains("passes now")));
}

/// The literal run where stage 1 reads one byte more than stage 0, against what it predicts.
fn with_false_evidence() -> Record {
    let mut record = emulated();
    record.evidence.counters[2] = counted("stage1-cpasync", "cpasync-32x64", 1_048_577, 0);
    rejudge(&mut record);
    record
}

#[test]
fn evidence_that_is_not_as_predicted_fails_the_run_until_a_negative_record_says_so() {
    let wrong = with_false_evidence();
    let report = of_run(&wrong, &[]);
    assert_eq!(exit(&report), (Exit::Fail, "FAIL"));
    let title = "stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk";
    assert!(report.overall.line.contains(title), "{}", report.overall.line);
    let ClaimState::Judged(judged) = &report.evidence_claims[1].state else { panic!("judged here") };
    assert!(judged.result.reason.contains("1,048,577 / wmma-qk-32x64 1,048,576"), "{}", judged.result.reason);

    let mut negative = wrong.clone();
    let claims = failed_claims(&wrong);
    assert_eq!((claims.len(), claims[0].gate), (1, GateId::E1));
    negative.negative = Some(Negative { schema: SCHEMA, reason: "the ring reads ahead".into(), gpu: None, claims });
    // Evidence of the emulator is the same on every machine.
    let mut on_gpu = timed(GOOD);
    on_gpu.evidence = wrong.evidence.clone();
    for run in [&wrong, &on_gpu] {
        let report = of_run(run, &[committed("a", negative.clone())]);
        assert_eq!(exit(&report), (Exit::Pass, "PASS"));
        assert!(matches!(report.evidence_claims[1].state, ClaimState::Negative { .. }));
    }
    // It refutes this claim, and no other of the family.
    let mut other = negative.clone();
    other.negative.as_mut().unwrap().claims[0].what = "cpasync: exponentials as in stage0-scalar wmma-qk".into();
    assert_eq!(exit(&of_run(&wrong, &[committed("a", other)])).0, Exit::Fail);
    let report = of_run(&emulated(), &[committed("a", negative)]);
    assert!(matches!(report.evidence_claims[1].state, ClaimState::UnexpectedPass { .. }));
}

#[test]
fn evidence_that_a_whole_run_should_have_is_required() {
    let mut record = emulated();
    record.evidence.counters.remove(2);
    rejudge(&mut record);
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Undecided, "INCOMPLETE"));
    // A committed record of the same kernel stands in for it.
    let report = of_run(&record, &[committed("a", emulated())]);
    assert!(matches!(report.evidence_claims[1].state, ClaimState::Committed { .. }));
    assert_eq!(exit(&report), (Exit::Pass, "PASS"));

    // Where nothing can be counted, one line says so for all claims.
    for scope in record.meta.gates.iter_mut().filter(|scope| scope.gate == GateId::E1) {
        scope.measurable = Measurable::No { reason: "no traced build".into() };
    }
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Pass, "PASS"));
    let lines: Vec<_> = report.missing.iter().filter(|missing| missing.what.contains("E1")).collect();
    assert_eq!((lines.len(), lines[0].why.as_str()), (1, "no traced build"));
    assert!(!report.missing.iter().any(|missing| missing.what.contains("global bytes read")));
}

#[test]
fn a_hazard_that_is_met_while_counting_is_a_failed_gate() {
    let mut record = emulated();
    record.evidence.counters[0].counting = Counting::Hazardous { reason: "race at kernel.cu:88".into() };
    rejudge(&mut record);
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report).0, Exit::Fail);
    assert_eq!(
        (report.failures[0].result.gate, report.failures[0].place.as_str()),
        (GateId::H1, "stage0-scalar/scalar-32x64")
    );
}

#[test]
fn counters_that_differ_from_the_last_record_are_changes() {
    let (old, mut run) = (emulated(), emulated());
    let unchanged = of_run(&run, &[committed("old", old.clone())]);
    assert_eq!(unchanged.changes, []);
    run.evidence.counters[1] = counted("stage0-scalar", "wmma-qk-32x64", 1_048_576, 0);
    run.evidence.counters[2] = counted("stage1-cpasync", "cpasync-32x64", 1_048_608, 12_288);
    let changes = of_run(&run, &[committed("old", old.clone())]).changes;
    let lines: Vec<String> =
        changes.iter().map(|c| format!("{} {}: {}: {} -> {}", c.direction, c.place, c.what, c.from, c.to)).collect();
    assert_eq!(
        lines,
        [
            "worse stage1-cpasync/cpasync-32x64: global sectors read; shared-load bank conflicts: 32,768; 0 -> 32,769; 12,288",
            "better stage0-scalar/wmma-qk-32x64: shared-load bank conflicts: 12,288 -> 0",
            "differs stage0-scalar/wmma-qk-32x64: shared-load wavefronts: 12,384 -> 96",
            "differs stage1-cpasync/cpasync-32x64: global bytes read; global bytes read through registers; shared-load \
             wavefronts: 1,048,576; 1,048,576; 96 -> 1,048,608; 1,048,608; 12,384",
        ]
    );
    // Counters hold for one host compiler.
    for stage in &mut run.meta.stages {
        stage.host_compiler = "g++ (GCC) 13.1.0".into();
    }
    assert_eq!(of_run(&run, &[committed("old", old)]).changes, []);
}

#[test]
fn an_undecided_claim_is_ambiguous() {
    // 1.5003 on average: the interval holds the claim.
    let mut record = timed([30.0, 20.0, 15.0]);
    let claims = &mut record.performance.as_mut().unwrap().claims;
    claims[0].result.verdict = Verdict::Ambiguous;
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Undecided, "AMBIGUOUS"));
}

#[test]
fn data_that_a_whole_tier_should_have_is_required() {
    let mut record = emulated();
    record.correctness.cases.pop();
    resummarise(&mut record);
    let report = of_run(&record, &[]);
    assert!(matches!(report.rows[2].state, RowState::NotRun { .. }));

    let mut record = emulated();
    for case in &mut record.correctness.cases {
        let Outcome::Checked { gates, .. } = &mut case.outcome else { panic!("literal") };
        gates.retain(|gate| gate.gate != GateId::C5);
    }
    resummarise(&mut record);
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Undecided, "INCOMPLETE"));
    assert_eq!(report.rows[0].state, RowState::NoData(vec![GateId::C5]));

    let mut record = emulated();
    record.meta.gates.push(GateScope { gate: GateId::B1, measurable: Measurable::Yes });
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Undecided, "INCOMPLETE"));
    assert_eq!(report.rows[0].state, RowState::NoData(vec![GateId::B1]));

    let mut record = emulated();
    record.meta.progress = Progress::Partial { finished: 3, planned: 9 };
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Undecided, "INCOMPLETE"));
}

#[test]
fn a_problem_that_no_variant_of_a_stage_takes_is_missing() {
    let mut record = emulated();
    record.correctness.cases[2].outcome = Outcome::Unsupported { reason: "too long".into() };
    resummarise(&mut record);
    let report = of_run(&record, &[]);
    assert!(report.missing.iter().any(|missing| missing.required && missing.why.contains("every stage must")));
}

#[test]
fn what_a_device_refuses_is_no_missing_data_as_long_as_each_stage_takes_each_problem() {
    let refuse = |record: &mut Record, indices: std::ops::Range<usize>| {
        for case in &mut record.correctness.cases[indices] {
            case.outcome = Outcome::Unsupported { reason: "too large".into() };
        }
        resummarise(record);
    };
    let mut record = emulated();
    record.meta.device = "sm_89".parse().ok();
    refuse(&mut record, 0..1);
    let report = of_run(&record, &[]);
    assert_eq!(exit(&report), (Exit::Pass, "PASS"), "{:?}", report.missing);
    assert!(matches!(report.rows[0].state, RowState::NotRun { .. }));
    assert_eq!(report.overall.line, "2 variants are green (limited to what sm_89 offers)");
    // Of one stage, all: another one has no say.
    refuse(&mut record, 2..3);
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Undecided, "INCOMPLETE"));
    // Nothing ran at all, also where flags chose the variants.
    record.meta.scope = Scope::Selected { flags: vec!["--variants scalar-32x64".into()] };
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Pass, "PASS"));
    refuse(&mut record, 0..3);
    assert_eq!(exit(&of_run(&record, &[])), (Exit::Undecided, "INCOMPLETE"));
}

#[test]
fn a_limited_ladder_has_a_row_per_stage_and_no_figure_of_another_device() {
    let fastest = |report: &Report| {
        let of_stage = |row: &&Row| row.stage == "stage0-scalar" && row.is_headline;
        report.rows.iter().filter(of_stage).map(|row| row.variant.clone()).collect::<Vec<_>>()
    };
    // In the committed record scalar is the fastest of stage 0; the device refuses it.
    let earlier = [committed("20261120-h200", timed([12.0, 20.0, 15.0]))];
    let mut record = emulated();
    let stage = &mut record.meta.stages[0];
    stage.variants.remove(0);
    stage.refused.push(Refusal { variant: "scalar-32x64".into(), reason: "too large".into() });
    record.correctness.cases.remove(0);
    resummarise(&mut record);
    let refusing = of_run(&record, &earlier);
    assert_eq!(fastest(&refusing), ["wmma-qk-32x64"]);
    assert_eq!(refusing.refused().collect::<Vec<_>>(), ["stage0-scalar/scalar-32x64: too large"]);
    assert!(matches!(refusing.rows[0].latency, Latency::Measured { .. }), "a GPU's own, marked with its record");
    record.meta.device = "sm_89".parse().ok();
    let limited = of_run(&record, &earlier);
    assert_eq!(fastest(&limited), ["wmma-qk-32x64"]);
    assert!(limited.rows.iter().all(|row| matches!(row.latency, Latency::NoData { .. })));
    assert!((limited.changes.is_empty(), limited.by_shape.is_empty()) == (true, true));
}

#[test]
fn a_variant_whose_other_cases_are_refused_may_lack_c4_and_no_other_gate() {
    let without = |gate: GateId, refused: bool| {
        let mut record = emulated();
        let mut cases = vec![record.correctness.cases[1].clone(); 2];
        for case in &mut cases {
            let Outcome::Checked { gates, .. } = &mut case.outcome else { panic!("literal") };
            gates.retain(|result| result.gate != gate);
        }
        cases[0].key.shape_name = "other".into();
        if refused {
            cases[1].outcome = Outcome::Unsupported { reason: "too large".into() };
        }
        record.correctness.cases.splice(1..2, cases);
        resummarise(&mut record);
        of_run(&record, &[]).rows[1].state.clone()
    };
    assert_eq!(without(GateId::C4, true), RowState::Green);
    assert_eq!(without(GateId::C4, false), RowState::NoData(vec![GateId::C4]));
    assert_eq!(without(GateId::C5, true), RowState::NoData(vec![GateId::C5]));
}

#[test]
fn committed_latencies_stand_in_and_go_stale_with_the_kernel() {
    let committed_record = [committed("20261120-h200", timed(GOOD))];
    let report = of_run(&emulated(), &committed_record);
    let Latency::Measured { origin, .. } = &report.rows[0].latency else { panic!("{:?}", report.rows[0].latency) };
    assert!(matches!(origin, Origin::Committed { .. }));
    assert!(matches!(report.claims[0].state, ClaimState::Committed { .. }));

    let mut changed = ladder();
    changed[0].identity = "changed".into();
    let mut run = emulated();
    run.meta.stages = changed.clone();
    resummarise(&mut run);
    let report = super::report(&changed, Some(("run", &run)), &committed_record);
    let Latency::Measured { origin, .. } = &report.rows[0].latency else { panic!("{:?}", report.rows[0].latency) };
    assert!(matches!(origin, Origin::Stale { .. }));
    assert!(matches!(report.claims[0].state, ClaimState::Stale { .. }));
}

#[test]
fn the_fastest_green_variant_speaks_for_its_stage() {
    let headlines = |report: &Report| -> Vec<String> {
        report.rows.iter().filter(|row| row.is_headline).map(|row| row.variant.clone()).collect()
    };
    let [scalar, wmma, cpasync] = ["scalar-32x64", "wmma-qk-32x64", "cpasync-32x64"];
    assert_eq!(headlines(&of_run(&emulated(), &[])), [wmma, cpasync], "without a time, the defaults");
    let fast_scalar = [committed("a", timed([19.0, 20.0, 15.0]))];
    assert_eq!(headlines(&of_run(&timed(GOOD), &fast_scalar)), [wmma, cpasync], "this run's times");
    assert_eq!(headlines(&of_run(&emulated(), &fast_scalar)), [scalar, cpasync], "else the committed ones");
    let mut wrong = timed([19.0, 20.0, 15.0]);
    wrong.correctness.cases.push(case("stage0-scalar", scalar, BackendKind::Cuda, Some(GateId::C3)));
    resummarise(&mut wrong);
    assert_eq!(headlines(&of_run(&wrong, &[])), [wmma, cpasync], "what is wrong is not fast");
    let mut changed = ladder();
    changed[0].identity = "changed".into();
    assert_eq!(headlines(&super::report(&changed, Some(("run", &emulated())), &fast_scalar)), [wmma, cpasync], "stale");
}

#[test]
fn numbers_of_another_gpu_never_meet_in_a_ratio() {
    let mut here = timed(GOOD);
    here.meta.machine.gpu = match here.meta.machine.gpu {
        Gpu::Present { arch, driver, multiprocessors, shared_opt_in_bytes, .. } => {
            Gpu::Present { name: "NVIDIA L4".into(), arch, driver, multiprocessors, shared_opt_in_bytes }
        }
        absent => absent,
    };
    let slower_elsewhere = committed("old", timed([64.0, 40.0, 30.0]));
    let report = of_run(&here, &[slower_elsewhere]);
    assert!(report.changes.iter().all(|change| !change.what.contains("p50")), "{:?}", report.changes);
}

#[test]
fn a_slower_run_is_a_regression_and_a_faster_one_is_not() {
    let old = [committed("old", timed(GOOD))];
    let slower = of_run(&timed([32.0, 21.0, 15.0]), &old);
    let worse: Vec<&Change> = slower.changes.iter().filter(|change| change.direction == Direction::Worse).collect();
    assert_eq!(worse.len(), 1, "{:?}", slower.changes);
    assert_eq!(worse[0].place, "stage0-scalar/wmma-qk-32x64");
    assert!(of_run(&timed([32.0, 20.1, 15.0]), &old).changes.is_empty(), "half a percent is no change");
    let faster = of_run(&timed([32.0, 19.0, 14.0]), &old);
    assert!(faster.changes.iter().all(|change| change.direction == Direction::Better));
}

#[test]
fn without_a_run_the_newest_committed_record_is_the_subject() {
    let records = [committed("a", clean(timed(GOOD))), committed("b", emulated())];
    let report = super::report(&ladder(), None, &records);
    assert_eq!(report.subject.as_ref().unwrap().name, "a", "one that timed something is preferred");
    assert_eq!(exit(&report), (Exit::Pass, "PASS"));
    let nothing = super::report(&ladder(), None, &[]);
    assert_eq!(nothing.overall.exit, Exit::Undecided);
}

#[test]
fn what_the_sanitizer_finds_fails_the_variant_and_a_clean_record_misses_no_gate() {
    let scope = GateScope { gate: GateId::C7, measurable: Measurable::No { reason: "not run".into() } };
    let with = |verdicts: [Verdict; 2]| {
        let mut record = clean(timed([32.0, 20.0, 15.0]));
        record.meta.gates.push(scope.clone());
        let checks = &mut record.sanitizer.as_mut().unwrap().checks;
        checks.truncate(4);
        checks.extend(sanitized("stage1-cpasync", "cpasync-32x64", verdicts).checks);
        report(&ladder(), Some(("now", &record)), &[])
    };
    let c7 = |report: &Report| report.rows[2].gates.iter().find(|gate| gate.result.gate == GateId::C7).cloned();
    let clean = with([Verdict::Pass, Verdict::Pass]);
    assert_eq!(c7(&clean).map(|gate| (gate.passed, gate.of)), Some((2, 2)));
    assert!(clean.missing.iter().all(|missing| missing.what != "gate C7"), "{:?}", clean.missing);
    let found = with([Verdict::NoData, Verdict::Fail]);
    assert_eq!(found.rows[2].state, RowState::Failed(vec![GateId::C7]));
    assert_eq!(found.overall.exit, Exit::Fail);
    assert_eq!(found.failures[0].result.reason, "racecheck: planted");
    let undecided = with([Verdict::Pass, Verdict::NoData]);
    assert_eq!(undecided.rows[2].state, RowState::NoData(vec![GateId::C7]));
    assert_eq!(undecided.overall.exit, Exit::Undecided);
    let mut record = timed([32.0, 20.0, 15.0]);
    record.meta.gates.push(scope);
    let without = report(&ladder(), Some(("now", &record)), &[]);
    assert!(without.missing.iter().any(|missing| missing.what == "gate C7"), "{:?}", without.missing);
    let mut changed = ladder();
    changed[1].identity = "changed".into();
    record.sanitizer = Some(sanitized("stage1-cpasync", "cpasync-32x64", [Verdict::Pass; 2]));
    assert_eq!(c7(&report(&changed, Some(("now", &record)), &[])), None, "of another version of the kernel");
}

#[test]
fn a_whole_run_on_a_gpu_needs_the_sanitizer_on_every_variant_once_it_can_have_had_it() {
    let c7 = vec![RowState::Green, RowState::Green, RowState::NoData(vec![GateId::C7])];
    let states = |report: &Report| report.rows.iter().map(|row| row.state.clone()).collect::<Vec<_>>();
    // A run is not over before the command that completes it can start: it says what to do, and passes.
    let record = timed(GOOD);
    let fresh = of_run(&record, &[]);
    assert_eq!(exit(&fresh), (Exit::Pass, "PASS"));
    assert_eq!(fresh.overall.actions, ["Complete this record with gate C7 before it is accepted: `compare sanitize`."]);
    assert_eq!(unsanitized(&record).len(), 3);
    let committed_without = [committed("a", record.clone())];
    assert_eq!(exit(&super::report(&ladder(), None, &committed_without)), (Exit::Undecided, "INCOMPLETE"));

    let mut narrowed = clean(record);
    assert_eq!(exit(&of_run(&narrowed, &[])), (Exit::Pass, "PASS"));
    narrowed.sanitizer.as_mut().unwrap().checks.truncate(4);
    let report = of_run(&narrowed, &[]);
    assert_eq!((states(&report), exit(&report)), (c7, (Exit::Undecided, "INCOMPLETE")));
    assert!(report.missing.iter().any(|missing| missing.required && missing.why.contains("compare sanitize")));
    assert_eq!(unsanitized(&narrowed), ["stage1-cpasync/cpasync-32x64"]);
    // What a device refuses has no case, and nothing to be sanitized.
    narrowed.correctness.cases[2].outcome = Outcome::Unsupported { reason: "needs 160,000 B of shared memory".into() };
    resummarise(&mut narrowed);
    assert_eq!(unsanitized(&narrowed), [""; 0]);
    for selected in [
        |meta: &mut BuildMeta| meta.scope = Scope::Selected { flags: vec![] },
        |meta: &mut BuildMeta| meta.tier = Tier::T0,
        |meta: &mut BuildMeta| meta.backend = BackendKind::Emulated,
    ] {
        let mut record = timed(GOOD);
        selected(&mut record.meta);
        assert_eq!(unsanitized(&record), [""; 0]);
    }
}

#[test]
fn fast_p_counts_problems_on_which_ours_is_right_and_faster_than_the_default() {
    use crate::testing::peers::{completed, problem};
    use common::problem::Mask;
    let on = |shape, us, is_right| {
        problem(shape, Mask::Full, 10.0, &[("torch-default", us, is_right), ("torch-math", 99.0, true)])
    };
    let problems = vec![
        on("mission", 25.0, true),
        on("long", 16.0, true),
        on("stretch", 14.9, true), // not more than 1.5
        on("wide", 9.0, true),
        on("big", 50.0, false), // a default that is wrong is no rival
    ];
    let mut record = completed(timed(GOOD), problems);
    let fast = |record: &Record| of_run(record, &[]).peers.unwrap().fast.unwrap();
    assert_eq!((fast(&record).stage.as_str(), fast(&record).of), ("stage1-cpasync", 4));
    assert_eq!(fast(&record).faster, [(1.0, 0), (1.5, 0), (2.0, 0)], "one case is fewer than five inputs");
    for _ in 0..4 {
        record.correctness.cases.push(case("stage1-cpasync", "cpasync-32x64", BackendKind::Cuda, None));
    }
    resummarise(&mut record);
    assert_eq!(fast(&record).faster, [(1.0, 3), (1.5, 2), (2.0, 1)]);
    record.correctness.cases.push(case("stage1-cpasync", "cpasync-32x64", BackendKind::Cuda, Some(GateId::C5)));
    resummarise(&mut record);
    assert_eq!(fast(&record).faster, [(1.0, 0), (1.5, 0), (2.0, 0)], "a wrong kernel is not fast");
}

#[test]
fn claims_against_peers_stand_like_other_claims() {
    use crate::testing::peers::{claiming, completed, problem};
    use common::problem::Mask;
    let of = |us| completed(timed(GOOD), vec![problem("mission", Mask::Full, 10.0, &[("torch-flash", us, true)])]);
    let report_of = |run: &Record, committed: &[Committed]| report(&claiming(), Some(("run", run)), committed);
    assert_eq!(exit(&report_of(&of(16.0), &[])), (Exit::Pass, "PASS"));
    let slow = report_of(&of(14.0), &[]);
    assert_eq!(exit(&slow), (Exit::Fail, "FAIL"));
    assert!(
        slow.overall.line.ends_with("cpasync >= 1.50x over the fastest of PyTorch on mission f16 full"),
        "{}",
        slow.overall.line
    );
    // A committed refutation settles it; a run that never asked peers is complete and shows the committed figures.
    let mut negative = of(14.0);
    let claims = failed_claims(&negative);
    assert_eq!(claims.len(), 1);
    let gpu = Some("NVIDIA H200".to_string());
    negative.negative = Some(Negative { schema: SCHEMA, reason: "no wgmma".into(), gpu, claims });
    let committed = [committed("20261119T120000Z-nvidia-h200", negative)];
    assert_eq!(exit(&report_of(&of(14.0), &committed)), (Exit::Pass, "PASS"));
    let without = report_of(&timed(GOOD), &committed);
    assert_eq!(exit(&without), (Exit::Pass, "PASS"));
    assert_eq!(without.peers.as_ref().unwrap().record.as_deref(), Some("20261119T120000Z-nvidia-h200"));
    assert_eq!(without.peers.unwrap().stale, [""; 0]);
    let open = self::committed("20261119T120000Z-nvidia-h200", clean(of(15.0)));
    let line = report_of(&timed(GOOD), std::slice::from_ref(&open)).overall.line;
    assert!(line.ends_with("; the committed record leaves 1 claim AMBIGUOUS"), "the interval holds the claim: {line}");
    let line = report(&claiming(), None, &[open]).overall.line;
    assert!(line.ends_with(" in the committed record, which leaves 1 claim AMBIGUOUS"), "{line}");
    let states: Vec<_> = report_of(&timed(GOOD), &[]).peer_claims.into_iter().map(|claim| claim.state).collect();
    assert!(states.iter().all(|state| matches!(state, ClaimState::NoData { .. })) && states.len() == 2);
}

/// The literal run with one case of `wmma-qk-32x64` per largest error, and its summary.
fn with_errors(errors_of_cases: &[f64]) -> VariantSummary {
    let mut record = emulated();
    let template = record.correctness.cases.remove(1);
    for (seed, &max_abs) in (0..).zip(errors_of_cases) {
        let mut case = template.clone();
        case.key.source = Source::Seeded { family: Family::Normal, seed };
        let Outcome::Checked { errors, .. } = &mut case.outcome else { panic!("literal") };
        errors.max_abs = max_abs;
        record.correctness.cases.push(case);
    }
    resummarise(&mut record);
    summary_of(&record, "stage0-scalar", "wmma-qk-32x64").unwrap().clone()
}

#[test]
fn the_worst_error_is_the_largest_and_no_number_is_larger_than_any() {
    const NAN: f64 = f64::NAN;
    for (errors, seed) in [
        (vec![1.0, 3.0, 2.0], 1),
        (vec![3.0, 1.0, 2.0], 0),
        (vec![1.0, NAN, 2.0], 1),
        (vec![NAN, 1.0, 2.0], 0),
        (vec![1.0, 2.0, NAN], 2),
        (vec![1.0, NAN, f64::INFINITY], 1),
    ] {
        let worst = with_errors(&errors).worst.unwrap();
        let expected = errors[seed];
        assert!(worst.max_abs == expected || worst.max_abs.is_nan() && expected.is_nan(), "{errors:?}: {worst:?}");
        assert_eq!(worst.at, format!("mission f16 full normal:{seed}"), "{errors:?}");
    }
}

#[test]
fn only_a_variant_that_passes_every_gate_of_c1_to_c6_is_green() {
    let green = with_errors(&[1e-4]);
    assert!(is_green(&green));
    for gate in [GateId::C1, GateId::C2, GateId::C3, GateId::C4, GateId::C5, GateId::C6] {
        let place = green.gates.iter().position(|summary| summary.result.gate == gate).unwrap();
        for verdict in [Verdict::Fail, Verdict::Ambiguous, Verdict::NoData] {
            let mut other = green.clone();
            other.gates[place].result.verdict = verdict;
            assert_eq!(is_green(&other), (gate, verdict) == (GateId::C4, Verdict::NoData), "{gate} {verdict}");
        }
        let mut without = green.clone();
        without.gates.remove(place);
        assert_eq!(is_green(&without), gate == GateId::C4, "without {gate}");
    }
    assert!(!is_green(&VariantSummary { failed: 1, ..green }));
}

#[test]
fn a_row_that_is_stale_ambiguous_or_without_a_case_is_not_green() {
    type Change = fn(&mut Record);
    let stale: Change = |record| record.correctness.variants[1].identity = "another".into();
    let ambiguous: Change = |record| {
        let Outcome::Checked { gates, .. } = &mut record.correctness.cases[1].outcome else { panic!("literal") };
        gates[4].verdict = Verdict::Ambiguous;
        resummarise(record);
    };
    let unsupported: Change = |record| {
        record.correctness.cases[1].outcome = Outcome::Unsupported { reason: "too long".into() };
        resummarise(record);
    };
    let absent: Change = |record| {
        record.correctness.cases.remove(1);
        resummarise(record);
    };
    for (change, word) in [(stale, "STALE"), (ambiguous, "AMBIGUOUS"), (unsupported, "not run"), (absent, "not run")] {
        for scope in [Scope::Whole, Scope::Selected { flags: vec!["--seeds 0".into()] }] {
            let mut record = emulated();
            record.meta.scope = scope;
            change(&mut record);
            let report = of_run(&record, &[]);
            let words: Vec<String> = report.rows.iter().map(|row| crate::render::markdown::state(&row.state)).collect();
            assert!(words[1].starts_with(word), "{word}: {words:?}");
            assert_eq!([&words[0], &words[2]], ["GREEN"; 2], "{word}");
            // What flags or the tier left out is not missing.
            assert!(word == "not run" || exit(&report) != (Exit::Pass, "PASS"), "{word}");
        }
    }
}
