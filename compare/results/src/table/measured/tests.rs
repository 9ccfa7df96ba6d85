use super::*;
use crate::testing::{
    CPASYNC, SCALAR, US, WMMA, case, ladder, mission, mission_case, row, samples, suppressed, timed,
};
use common::device::BackendKind;
use common::evidence::Counters;
use common::resources::PtxasEntry;
use common::stage::Unsupported;
use common::timing::sustained::Sustained;
use common::timing::{Regime, Rotation};
use kernel_build::report::Resources;

fn case_with(outcome: Outcome) -> Row {
    let kind = Kind::Case(BackendKind::Cuda, mission_case("normal:0"));
    Row::new(WMMA, kind).outcome(&outcome)
}

fn line(row: &Row) -> String {
    let mut rounded = row.clone();
    for (metric, figure) in &mut rounded.figures {
        *figure = figure.rounded(*metric);
    }
    serde_json::to_string(&rounded).unwrap()
}

#[test]
fn a_case_says_its_errors_what_it_does_not_take_or_that_its_launch_failed() {
    insta::assert_snapshot!(line(&case(WMMA, BackendKind::Emulated, Some(GateId::C2))), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","input":"normal:0","by":"emulator","max_error":0.00012,"max_row_error":0.0003,"error_of_bound":0.1743,"row_error_of_bound":0.15,"C1":"pass","C2":"fail","C2_reason":"too large","C3":"pass","C4":"pass","C5":"pass","C6":"pass"}"#);
    insta::assert_snapshot!(line(&case_with(Err(Unsupported::ByItself { reason: "too long".into() }.into()))), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","input":"normal:0","by":"gpu","note":"too long"}"#);
    insta::assert_snapshot!(line(&case_with(Err(NoOutput::Failed { reason: "illegal address".into(), fatal: false }))), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","input":"normal:0","by":"gpu","C1":"fail","C1_reason":"the launch failed: illegal address"}"#);
}

#[test]
fn a_timing_says_under_what_it_was_taken_and_which_gate_its_buffers_failed() {
    let reading = |sm_mhz| Reading {
        sm_mhz,
        power_w: Some(688.4),
        celsius: Some(61),
        ..Reading::default()
    };
    let mut measurement = Measurement {
        rotation: Rotation::new(4, 1_572_864, 524_288, 62_914_560),
        device: Summary::new(&samples(20.0)).unwrap(),
        single: Summary::new(&samples(24.0)).unwrap(),
        conditions: [reading(Some(1980)), reading(Some(1970))],
        sustained: None,
    };
    let after = [
        GateResult::judge(GateId::C1, true, "complete"),
        GateResult::judge(GateId::C5, false, "they differ"),
    ];
    insta::assert_snapshot!(line(&Row::latency(WMMA.into(), mission(), &measurement, &after)), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","by":"gpu","under":"warm L2","p50":20.02,"p50_low":20,"p50_high":20.02,"p90":20.04,"mean":20.02,"std":0.01663,"samples":40,"single_p50":24.02,"sm_mhz":1975,"power_w":688.4,"celsius":61,"C5":"fail","C5_reason":"they differ"}"#);
    for unknown in [reading(Some(0)), Reading::default()] {
        measurement.conditions[1] = unknown;
        assert_eq!(
            Row::latency(WMMA.into(), mission(), &measurement, &[]).value(Metric::SmMhz),
            None
        );
    }
}

#[test]
fn a_sustained_timing_says_its_regime_and_what_was_read_in_its_counted_time() {
    let reading = Reading {
        sm_mhz: Some(1980),
        power_w: Some(640.0),
        celsius: Some(50),
        ..Reading::default()
    };
    let us = samples(20.0);
    let load = Load {
        energy_mj: Some(13.94),
        power_w: Some(697.2),
        power_limit_w: Some(700.0),
        sm_mhz: Some(1560.0),
        celsius: Some(66),
    };
    let mut measurement = Measurement {
        rotation: Rotation::new(4, 1_572_864, 524_288, 62_914_560),
        device: Summary::new(&us).unwrap(),
        single: Summary::new(&samples(24.0)).unwrap(),
        conditions: [reading; 2],
        sustained: Some(Sustained { us, load }),
    };
    let row = Row::latency(WMMA.into(), mission(), &measurement, &[]);
    assert_eq!(row.conditions.as_deref(), Some("warm L2, sustained"));
    assert_eq!(row.regime(), Regime::Sustained);
    let read = [
        Metric::EnergyMj,
        Metric::PowerW,
        Metric::PowerLimitW,
        Metric::SmMhz,
        Metric::Celsius,
    ];
    let expected = [13.94, 697.2, 700.0, 1560.0, 66.0].map(Some);
    assert_eq!(read.map(|metric| row.value(metric)), expected);
    // What a GPU does not report is absent; no reading of the burst stands in for it.
    measurement.sustained = Some(Sustained {
        us: samples(20.0),
        load: Load::default(),
    });
    let unread = Row::latency(WMMA.into(), mission(), &measurement, &[]);
    assert_eq!(read.map(|metric| unread.value(metric)), [None; 5]);
}

#[test]
fn a_pair_says_ratios_noise_and_what_no_kernel_can_beat() {
    let comparison = Comparison::new(&samples(20.0), &samples(15.0)).unwrap();
    let speed_of_light = SpeedOfLight::default().with_zero_line(2.0);
    insta::assert_snapshot!(line(&Row::pair(CPASYNC.into(), WMMA.into(), mission(), &comparison, &speed_of_light)), @r#"{"subject":"stage1-cpasync/cpasync-32x64","shape":"mission","dtype":"f16","mask":"full","by":"gpu","against":"stage0-scalar/wmma-qk-32x64","p50":15.01,"min":15,"speedup_p50":1.333,"speedup_p50_low":1.333,"speedup_p50_high":1.334,"speedup_p90":1.333,"speedup_p90_low":1.333,"speedup_p90_high":1.334,"speedup_mean":1.333,"speedup_mean_low":1.333,"speedup_mean_high":1.334,"noise":0.000999,"floor_us":2.2}"#);
}

#[test]
fn a_time_that_cannot_be_fails_a_pair_on_either_arm() {
    for (base, new, fails) in [(20.0, 15.0, false), (20.0, 2.0, true), (2.0, 20.0, true)] {
        let mut tail = samples(base);
        tail[..8].iter_mut().for_each(|us| *us *= 1.5);
        let arms = Comparison::new(&tail, &samples(new)).unwrap();
        let floor = SpeedOfLight::default().with_zero_line(2.0);
        let row = Row::pair(CPASYNC.into(), WMMA.into(), mission(), &arms, &floor);
        assert_eq!(row.says(GateId::L1).is_some(), fails, "{base} and {new}");
        assert_eq!(row.value(Metric::Min), Some(base.min(new)));
        assert_eq!(row.value(Metric::Noise), Some(arms.noise()));
    }
}

#[test]
fn counters_are_counts_and_a_kernel_that_was_not_counted_has_none() {
    let counted = |counted| Row::counters(SCALAR.into(), Dtype::E4m3, &counted);
    let mut launch = Counters::default();
    (
        launch.shared_read.wavefronts,
        launch.shared_read.ideal_wavefronts,
    ) = (128, 96);
    let row = counted(Ok(CountedLaunch {
        counters: launch,
        traced_blocks: 2,
        launch_blocks: 128,
        tiles: 1024,
    }));
    assert_eq!(row.place().to_string(), "mission e4m3 full");
    assert!(
        row.figures.keys().all(|metric| !metric.is_share()),
        "shares are drawn from their parts"
    );
    let conflicts = [Metric::SharedReadConflicts, Metric::SharedReadConflictShare];
    assert_eq!(
        conflicts.map(|metric| row.value(metric)),
        [32.0, 0.25].map(Some)
    );
    // Of nothing.
    assert_eq!(row.value(Metric::SharedWriteConflictShare), Some(0.0));
    let [hazardous, absent] = [
        NotCounted::Hazard("race at kernel.cu:88".into()),
        emulator::Fault::BadLaunch {
            reason: "too large".into(),
        }
        .into(),
    ]
    .map(|why| line(&counted(Err(why))));
    insta::assert_snapshot!([hazardous, absent].join("\n"), @r#"
        {"subject":"stage0-scalar/scalar-32x64","shape":"mission","dtype":"e4m3","mask":"full","by":"emulator","H1":"fail","H1_reason":"race at kernel.cu:88"}
        {"subject":"stage0-scalar/scalar-32x64","shape":"mission","dtype":"e4m3","mask":"full","by":"emulator","note":"the traced build does not start: launch refused: too large"}
        "#);
}

/// Returns `self-test: zeros: PASS ; failed by C2`.
fn verdicts_and_note(row: &Row) -> String {
    let mut words = Vec::new();
    for judged in row.verdicts.values() {
        words.push(format!("{} {}", judged.verdict, judged.reason));
    }
    words.extend(row.note.clone());
    format!("{}{}: {}", row.subject, row.place(), words.join("; "))
}

#[test]
fn the_self_test_fails_where_a_gate_is_blind_or_a_list_is_wrong() {
    let caught = |fault, cases_failed| Caught {
        fault,
        cases: 4,
        cases_failed,
        gates_that_failed: [GateId::C2].repeat(cases_failed.min(1)),
        survived: vec![],
    };
    let fault = Some(Fault::Zeros);
    let faults = [
        caught(fault, 4),
        caught(fault, 0),
        caught(None, 0),
        caught(None, 1),
    ];
    let listed = |site: &SiteResult, listed: Option<&str>| SiteResult {
        listed: listed.map(String::from),
        ..site.clone()
    };
    let mut suppressed = suppressed();
    let wrong = [
        listed(&suppressed.sites[0], None),
        listed(&suppressed.sites[1], Some("it is not")),
    ];
    suppressed.sites.extend(wrong);
    suppressed.errors.push("an entry names nothing".into());
    suppressed.broken.push(Broken {
        stage: "stage0-scalar".into(),
        variant: "scalar-32x64".into(),
        result: GateResult::fail(GateId::H1, "race"),
    });
    let rows = Row::self_test(&faults, &suppressed);
    let untested = [Row::untested_timer("no driver")];
    let checks = [true, false]
        .map(|is_right| Row::timer_check("injected delay", is_right, "slower").note("same"));
    let lines: Vec<String> = rows
        .iter()
        .chain(&untested)
        .chain(&checks)
        .map(verdicts_and_note)
        .collect();
    insta::assert_snapshot!(lines.join("\n"), @r"
        self-test: zeros: PASS ; failed by C2
        self-test: zeros: FAIL no gate fails; no gate fails
        self-test: correct model: PASS ; no gate fails
        self-test: correct model: FAIL failed by C2; failed by C2
        stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: PASS ; survives 4 cases; listed as redundant: scalar reads Q behind the barriers around the first K and V
        stage0-scalar/wmma-qk: __syncthreads stage0-scalar/kernel.cu:159: PASS ; killed by H1: race: writes at stage0-scalar/kernel.cu:157, reads a matrix at stage0-scalar/kernel.cu:101 (wmma-qk-32x64 1x1x33:321x64 f16 full)
        stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: FAIL its mutant survives: remove it, or list it with the reason in `redundant` of the stage's StageInfo; survives 4 cases
        stage0-scalar/wmma-qk: __syncthreads stage0-scalar/kernel.cu:159: FAIL it is needed: remove its entry from `redundant` of the stage's StageInfo; killed by H1: race: writes at stage0-scalar/kernel.cu:157, reads a matrix at stage0-scalar/kernel.cu:101 (wmma-qk-32x64 1x1x33:321x64 f16 full)
        stage0-scalar/scalar-32x64: as it is: FAIL race; fails H1 with all synchronisation in place
        self-test: an entry names nothing: FAIL an entry names nothing
        self-test: timer: NO DATA no driver
        self-test: timer: injected delay: PASS ; same
        self-test: timer: injected delay: FAIL expected slower; same
        ");
}

/// Returns what fails once these instances are compared.
fn failures_of(texts: [&str; 2]) -> Vec<String> {
    let mut rows = texts.map(row);
    fail_shared_code(&mut rows);
    rows.iter().flat_map(Row::failures).collect()
}

#[test]
fn instances_that_compile_to_one_code_fail() {
    assert_eq!(
        failures_of([
            "scalar | f16 d64 sm_90a | ptxas | code a",
            "wmma | f16 d64 sm_90a | ptxas | code a",
        ]),
        [
            "R1: the same machine code as wmma-qk-32x64: what tells them apart does nothing",
            "R1: the same machine code as scalar-32x64: what tells them apart does nothing",
        ]
    );
}

#[test]
fn instances_that_compile_to_two_codes_pass() {
    let failures = failures_of([
        "scalar | f16 d64 sm_90a | ptxas | code a",
        "wmma | f16 d64 sm_90a | ptxas | code b",
    ]);
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn instances_of_two_element_types_may_have_one_code() {
    let failures = failures_of([
        "scalar | f16 d64 sm_90a | ptxas | code a",
        "wmma | e4m3 d64 sm_90a | ptxas | code a",
    ]);
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn instances_of_two_architectures_may_have_one_code() {
    let failures = failures_of([
        "scalar | f16 d64 sm_90a | ptxas | code a",
        "wmma | f16 d64 sm_89 | ptxas | code a",
    ]);
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn instances_that_were_not_compiled_have_no_code() {
    let failures = failures_of(["scalar | f16 d64 | kernel", "wmma | f16 d64 | kernel"]);
    assert!(failures.is_empty(), "{failures:?}");
}

#[test]
fn variants_of_one_code_fail_with_all_their_spilled_bytes() {
    let mut stage = ladder().remove(0);
    for variant in &mut stage.variants {
        let ptxas = PtxasEntry {
            arch: "sm_90a".into(),
            sass_sha256: "0123456789abcdef0".into(),
            resources: Resources {
                spill_store_bytes: 4,
                spill_load_bytes: 8,
                ..Resources::default()
            },
            warnings: vec![],
        };
        let code = vec![];
        variant.kernels[0].built.push(BuiltKernel { ptxas, code });
    }
    let mut rows = Row::built(&stage);
    // What both variants declare of two element types.
    assert_eq!(
        rows.extract_if(.., |row| matches!(row.kind, Kind::Declared(_)))
            .count(),
        4
    );
    for row in rows {
        let code = row.code.as_deref();
        assert_eq!(row.value(Metric::SpillBytes), Some(12.0));
        assert_eq!(
            (code, row.says(GateId::R1)),
            (Some("0123456789abcdef"), Some(Verdict::Fail))
        );
    }
}

#[test]
fn a_sanitized_variant_says_the_worst_of_its_tools() {
    use Verdict::{Fail, NoData, Pass};
    let lines = [[Pass, Pass], [NoData, Pass], [NoData, Fail], [Fail, Fail]].map(|verdicts| {
        let run = timed(US).sanitized(WMMA, verdicts);
        let row = run.table.row(&WMMA.into(), Kind::Sanitized);
        line(row.unwrap())
    });
    insta::assert_snapshot!(lines.join("\n"), @r#"
        {"subject":"stage0-scalar/wmma-qk-32x64","by":"compute-sanitizer","session":"20261120T183000Z-linux","identity":"stage0-scalar-id","cases":4,"C7":"pass","C7_passed":2,"C7_cases":2}
        {"subject":"stage0-scalar/wmma-qk-32x64","by":"compute-sanitizer","session":"20261120T183000Z-linux","identity":"stage0-scalar-id","cases":4,"C7":"no_data","C7_passed":1,"C7_cases":2,"C7_reason":"memcheck: planted"}
        {"subject":"stage0-scalar/wmma-qk-32x64","by":"compute-sanitizer","session":"20261120T183000Z-linux","identity":"stage0-scalar-id","cases":4,"C7":"fail","C7_passed":0,"C7_cases":2,"C7_reason":"racecheck: planted"}
        {"subject":"stage0-scalar/wmma-qk-32x64","by":"compute-sanitizer","session":"20261120T183000Z-linux","identity":"stage0-scalar-id","cases":4,"C7":"fail","C7_passed":0,"C7_cases":2,"C7_reason":"memcheck: planted"}
        "#);
}

#[test]
fn figures_of_ncu_are_read_by_their_formulas() {
    let metrics = [
        ("gpu__time_duration.sum", 9000.0),
        ("smsp__sass_data_bytes_mem_global_op_ld.sum", 64.0),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into();
    let row = Row::profile(CPASYNC.into(), mission(), Chips::Ada, &metrics);
    assert_eq!(
        (
            row.value(Metric::ProfiledNs),
            row.value(Metric::PlainReadBytes)
        ),
        (Some(9000.0), Some(64.0))
    );
    assert_eq!(
        row.value(Metric::GlobalReadBytes),
        None,
        "one of its parts is missing"
    );
}
