//! Turns measurements into rows.

use crate::judge::list::joined;
use crate::table::ncu::{self, Chips};
use crate::table::session::{BuiltKernel, StageMeta};
use crate::table::{CORRECT_MODEL, Judged, Place, ProblemPlace, Row, Source, Subject};
use common::check::{NoOutput, Outcome};
use common::device::cuda::TimerCheck;
use common::evidence::{CountedLaunch, NotCounted};
use common::faults::{Caught, Fault};
use common::gate::Errors;
use common::metric::Metric;
use common::problem::Dtype;
use common::resources;
use common::suppression::{Broken, Finding, SiteResult, Suppressed};
use common::telemetry::Reading;
use common::timing::stats::Summary;
use common::timing::sustained::Load;
use common::timing::{Comparison, Measurement, SpeedOfLight};
use common::verdict::{GateId, GateResult, Verdict};
use std::collections::BTreeMap;

/// What kernel.cu declares of a stage's instances, and what ptxas reports of each for each architecture (gate R1).
pub fn built(stage: &StageMeta) -> Vec<Row> {
    let mut rows = Vec::new();
    for variant in &stage.variants {
        let subject = || stage.subject(&variant.name);
        for kernel in &variant.kernels {
            let facts = &kernel.facts;
            let place = |arch: Option<&str>| Place::Instance {
                dtype: facts.dtype,
                head_dim: facts.head_dim,
                arch: arch.map(String::from),
            };
            let mut declared = Row::new(subject(), place(None), Source::Kernel)
                .figure(Metric::TileM, facts.block_m)
                .figure(Metric::TileN, facts.block_n)
                .figure(Metric::Threads, facts.threads)
                .figure(Metric::MinBlocks, facts.min_blocks)
                .figure(Metric::DynamicSharedBytes, facts.dynamic_shared_bytes);
            if let Some(caps) = &facts.caps {
                declared = declared
                    .figure(Metric::RegisterCap, caps.register_cap)
                    .figure(Metric::SharedCapBytes, caps.shared_cap_bytes);
            }
            rows.push(declared);
            for BuiltKernel { ptxas, code } in &kernel.built {
                let found = &ptxas.resources;
                let spilled = found.spill_store_bytes + found.spill_load_bytes;
                let mut row = Row::new(subject(), place(Some(&ptxas.arch)), Source::Ptxas)
                    .figure(Metric::Registers, found.registers)
                    .figure(Metric::SpillBytes, spilled)
                    .figure(Metric::StackBytes, found.stack_frame_bytes)
                    .figure(Metric::StaticSharedBytes, found.static_shared_bytes)
                    .with_figures(code.iter().copied())
                    .verdict(&resources::judge(facts, ptxas));
                row.code = Some(ptxas.sass_sha256.chars().take(16).collect());
                if let Some(occupancy) = resources::occupancy_of(facts, ptxas) {
                    row = row.figure(Metric::Occupancy, occupancy);
                }
                rows.push(row);
            }
        }
    }
    share_code(&mut rows);
    rows
}

/// The beginning of R1's reason where two variants compile to the same code.
pub const SAME_CODE: &str = "the same machine code as";

/// Two variants that compile to the same code are one (gate R1): both fail, each naming the other.
fn share_code(rows: &mut [Row]) {
    let alike = |row: &Row| {
        let is_alike = |other: &&Row| {
            other.code.is_some()
                && (&other.code, &other.place) == (&row.code, &row.place)
                && other.subject != row.subject
        };
        let others = rows.iter().filter(is_alike);
        joined(others.map(|other| other.subject.name()), ", ")
    };
    let alike: Vec<String> = rows.iter().map(alike).collect();
    for (row, alike) in rows.iter_mut().zip(alike) {
        if !alike.is_empty() {
            let reason = format!("{SAME_CODE} {alike}: what tells them apart does nothing");
            let result = GateResult::fail(GateId::R1, reason);
            row.judge(GateId::R1, Judged::from(&result));
        }
    }
}

/// A case without verdicts is unsupported.
pub fn of_outcome(row: Row, outcome: &Outcome) -> Row {
    match outcome {
        Ok(checked) => judged(row, &checked.errors, &checked.gates),
        Err(why @ (NoOutput::Unsupported(_) | NoOutput::NoMemory(_))) => row.note(why.to_string()),
        Err(NoOutput::Failed { reason, .. }) => row.verdict(&not_launched(reason)),
    }
}

/// A case that was judged: the largest errors, also as shares of the bounds of C2 and C3, and the verdicts.
pub fn judged(row: Row, errors: &Errors, gates: &[GateResult]) -> Row {
    row.figure(Metric::MaxError, errors.max_abs)
        .figure(Metric::MaxRowError, errors.max_row_rel)
        .figure(Metric::ErrorOfBound, errors.max_abs / errors.c2_bound())
        .figure(
            Metric::RowErrorOfBound,
            errors.max_row_rel / errors.c3_bound(),
        )
        .with_verdicts(gates)
}

/// The verdict of C1 on a launch that failed or never ended.
pub fn not_launched(reason: &str) -> GateResult {
    GateResult::fail(GateId::C1, format!("the launch failed: {reason}"))
}

/// Adds device times, and the gates that fail on the timed buffers (`after`).
pub fn arm(row: Row, device: &Summary, after: &[GateResult]) -> Row {
    row.figure(Metric::P50, device)
        .figure(Metric::P90, device.p90)
        .figure(Metric::Mean, device.mean)
        .figure(Metric::Std, device.std)
        .figure(Metric::Samples, device.samples)
        .with_verdicts(failed(after))
}

/// A timed arm of a run.
pub fn timing(
    subject: Subject,
    place: ProblemPlace,
    measurement: &Measurement,
    after: &[GateResult],
) -> Row {
    let row = Row::new(subject, Place::Problem(place), Source::Gpu);
    let row = arm(row, &measurement.device, after)
        .conditions(measurement.rotation.state.name())
        .figure(Metric::SingleP50, measurement.single.p50);
    if let Some(counted) = &measurement.sustained {
        return sustained(row, &counted.load);
    }
    let [before, after] = &measurement.conditions;
    let mhz = |reading: &Reading| reading.sm_mhz.filter(|&mhz| mhz > 0).map(f64::from);
    let clock = mhz(before).zip(mhz(after));
    let read = [
        (
            Metric::SmMhz,
            clock.map(|(before, after)| (before + after) / 2.0),
        ),
        (Metric::PowerW, after.power_w),
        (Metric::PowerLimitW, after.power_limit_w),
        (Metric::Celsius, after.celsius.map(f64::from)),
    ];
    row.with_figures(
        read.into_iter()
            .filter_map(|(metric, value)| Some((metric, value?))),
    )
}

/// Adds the sustained regime to a row whose times are of it, and what was read meanwhile.
pub fn sustained(row: Row, load: &Load) -> Row {
    let read = [
        (Metric::SmMhz, load.sm_mhz),
        (Metric::PowerW, load.power_w),
        (Metric::PowerLimitW, load.power_limit_w),
        (Metric::EnergyMj, load.energy_mj),
        (Metric::Celsius, load.celsius.map(f64::from)),
    ];
    let read = read.into_iter();
    row.sustained()
        .with_figures(read.filter_map(|(metric, value)| Some((metric, value?))))
}

pub fn failed(results: &[GateResult]) -> impl Iterator<Item = &GateResult> {
    results
        .iter()
        .filter(|result| result.verdict == Verdict::Fail)
}

/// Two interleaved arms (A B B A), and the speed of light of the problem: a time below it fails gate L1.
pub fn pair(
    new: Subject,
    base: Subject,
    place: ProblemPlace,
    source: Source,
    pair: &Comparison,
    speed_of_light: &SpeedOfLight,
) -> Row {
    let least = pair.new.min.min(pair.base.min);
    Row::new(new, Place::Problem(place), source)
        .paired_with(base)
        .with_figures([
            (Metric::SpeedupP50, pair.ratios.p50),
            (Metric::SpeedupP90, pair.ratios.p90),
            (Metric::SpeedupMean, pair.ratios.mean),
        ])
        .figure(Metric::P50, pair.new.p50)
        .figure(Metric::Min, least)
        .figure(Metric::Noise, pair.noise())
        .figure(Metric::FloorUs, speed_of_light.us())
        .with_verdicts(&speed_of_light.impossible(least))
}

/// On the claims' problem.
pub fn counters(
    subject: Subject,
    dtype: Dtype,
    counted: &Result<CountedLaunch, NotCounted>,
) -> Row {
    let row = Row::new(subject, Place::claims(dtype), Source::Emulator);
    match counted {
        Ok(launch) => {
            let metrics = Metric::all_counted().filter(|metric| !metric.is_share());
            let value = |metric: Metric| metric.counted(&launch.counters).unwrap_or(f64::NAN);
            row.with_figures(metrics.map(|metric| (metric, value(metric))))
                .figure(Metric::TracedBlocks, launch.traced_blocks)
                .figure(Metric::LaunchBlocks, launch.launch_blocks)
                .figure(Metric::Tiles, launch.tiles)
        }
        Err(NotCounted::Hazard(reason)) => row.verdict(&GateResult::fail(GateId::H1, reason)),
        Err(reason) => row.note(reason.to_string()),
    }
}

pub fn profiled(
    subject: Subject,
    place: ProblemPlace,
    chips: Chips,
    metrics: &BTreeMap<String, f64>,
) -> Row {
    let row = Row::new(subject, Place::Problem(place), Source::Ncu).conditions("cold caches");
    let read =
        ncu::formulas(chips).filter_map(|formula| Some((formula.metric, formula.value(metrics)?)));
    row.with_figures(read)
}

/// What one of compute-sanitizer's tools says of a variant, and how many launches ended.
pub struct Check {
    pub tool: &'static str,
    pub launched: usize,
    pub result: GateResult,
}

/// What compute-sanitizer found on a variant: the worst of its tools.
pub fn sanitized(subject: impl Into<Subject>, checks: &[Check]) -> Row {
    let launches: usize = checks.iter().map(|check| check.launched).sum();
    let mut row =
        Row::new(subject, Place::All, Source::ComputeSanitizer).figure(Metric::Cases, launches);
    let with = |verdict| (checks.iter()).filter(move |check| check.result.verdict == verdict);
    let mut worst_first = [Verdict::Fail, Verdict::NoData, Verdict::Pass]
        .into_iter()
        .flat_map(with);
    if let Some(Check { tool, result, .. }) = worst_first.next() {
        let mut judged = Judged {
            passed: Some(with(Verdict::Pass).count()),
            of: Some(checks.len()),
            ..Judged::from(result)
        };
        if !judged.reason.is_empty() {
            judged.reason = format!("{tool}: {}", judged.reason);
        }
        row.judge(GateId::C7, judged);
    }
    row
}

/// Gate S1: planted faults, sites, kernels that are wrong with all sites in place, and wrong entries of the lists of redundant sites.
pub fn self_test(
    faults: &[Caught],
    Suppressed {
        sites,
        errors,
        broken,
    }: &Suppressed,
) -> Vec<Row> {
    let wrong = |error: &String| tested(HARNESS, error, false, error);
    let rows = faults.iter().map(planted).chain(sites.iter().map(site));
    let rows = rows.chain(broken.iter().map(self::broken));
    rows.chain(errors.iter().map(wrong)).collect()
}

/// The subject of self-test rows that are about no kernel.
const HARNESS: &str = "self-test";

fn tested(
    subject: impl Into<Subject>,
    what: &str,
    is_right: bool,
    reason: impl Into<String>,
) -> Row {
    let row = Row::new(subject, Place::Named(what.to_string()), Source::SelfTest);
    row.verdict(&GateResult::judge(GateId::S1, is_right, reason))
}

pub fn not_tested(what: &str, why: &str) -> Row {
    Row::new(HARNESS, Place::Named(what.to_string()), Source::SelfTest)
        .verdict(&GateResult::no_data(GateId::S1, why))
}

/// A planted fault must fail a gate; the correct model beside the faults must fail none.
pub fn planted(found: &Caught) -> Row {
    let gates = joined(&found.gates_that_failed, " ");
    let survived = joined(found.survived.iter().map(ToString::to_string), ", ");
    let source = match (gates.is_empty(), survived.is_empty()) {
        (true, _) => "no gate fails".to_string(),
        (false, true) => format!("failed by {gates}"),
        (false, false) => format!("failed by {gates}, but not with {survived}"),
    };
    tested(
        HARNESS,
        found.fault.map_or(CORRECT_MODEL, Fault::name),
        found.is_as_expected(),
        source.clone(),
    )
    .figure(Metric::Cases, found.cases)
    .figure(Metric::CasesFailed, found.cases_failed)
    .note(source)
}

/// Without one synchronisation site of a family, a gate must fail, or the stage must list the site as redundant.
pub fn site(site: &SiteResult) -> Row {
    let (subject, remedy) = (Subject::variant(&site.stage, &site.family), site.remedy());
    let what = format!("{} {}", site.operation, site.place);
    let row = tested(subject, &what, remedy.is_none(), remedy.unwrap_or_default());
    match &site.finding {
        // One failing case is enough and ends the search.
        Finding::Killed { gate, what, at } => row
            .figure(Metric::CasesFailed, 1_usize)
            .note(format!("killed by {gate}: {what} ({at})")),
        Finding::Survived { cases } => {
            let listed = site
                .listed
                .iter()
                .map(|reason| format!("; listed as redundant: {reason}"));
            let note = format!("survives {cases} cases{}", listed.collect::<String>());
            row.figure(Metric::Cases, *cases)
                .figure(Metric::CasesFailed, 0_usize)
                .note(note)
        }
    }
}

/// A kernel that fails a gate with all its synchronisation in place.
pub fn broken(
    Broken {
        stage,
        variant,
        result,
    }: &Broken,
) -> Row {
    let place = Place::Named("as it is".to_string());
    Row::new(Subject::variant(stage, variant), place, Source::SelfTest)
        .verdict(result)
        .note(format!(
            "fails {} with all synchronisation in place",
            result.gate
        ))
}

pub fn timer(check: &TimerCheck) -> Row {
    let reason = format!("expected {}", check.expected);
    tested(HARNESS, &format!("timer: {}", check.name), check.ok, reason).note(&check.found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::{each, row};
    use crate::testing::{CPASYNC, SCALAR, US, WMMA, case, ladder, samples, suppressed, timed};
    use common::evidence::Counters;
    use common::resources::PtxasEntry;
    use common::stage::Unsupported;
    use common::timing::sustained::Sustained;
    use common::timing::{Regime, Rotation};
    use common::verdict::Verdict;
    use kernel_build::report::Resources;

    fn place() -> ProblemPlace {
        ProblemPlace::claims(Dtype::F16)
    }

    fn line(row: &Row) -> String {
        let mut row = row.clone();
        row.figures
            .iter_mut()
            .for_each(|(metric, figure)| *figure = figure.rounded(*metric));
        serde_json::to_string(&row).unwrap()
    }

    #[test]
    fn a_case_says_its_errors_what_it_does_not_take_or_that_its_launch_failed() {
        let of = |outcome| {
            let place = Place::Case(place(), "normal:0".into());
            of_outcome(Row::new(WMMA, place, Source::Gpu), &outcome)
        };
        insta::assert_snapshot!(line(&case(WMMA, Source::Emulator, Some(GateId::C2))), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","input":"normal:0","by":"emulator","max_error":0.00012,"max_row_error":0.0003,"error_of_bound":0.1743,"row_error_of_bound":0.15,"C1":"pass","C2":"fail","C2_reason":"too large","C3":"pass","C4":"pass","C5":"pass","C6":"pass"}"#);
        insta::assert_snapshot!(line(&of(Err(Unsupported::ByItself { reason: "too long".into() }.into()))), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","input":"normal:0","by":"gpu","note":"too long"}"#);
        insta::assert_snapshot!(line(&of(Err(NoOutput::Failed { reason: "illegal address".into(), fatal: false }))), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","input":"normal:0","by":"gpu","C1":"fail","C1_reason":"the launch failed: illegal address"}"#);
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
            rotation: Rotation::of(4, 1_572_864, 524_288, 62_914_560),
            device: Summary::of(&samples(20.0)).unwrap(),
            single: Summary::of(&samples(24.0)).unwrap(),
            conditions: [reading(Some(1980)), reading(Some(1970))],
            sustained: None,
        };
        let after = [
            GateResult::judge(GateId::C1, true, "complete"),
            GateResult::judge(GateId::C5, false, "they differ"),
        ];
        insta::assert_snapshot!(line(&timing(WMMA.into(), place(), &measurement, &after)), @r#"{"subject":"stage0-scalar/wmma-qk-32x64","shape":"mission","dtype":"f16","mask":"full","by":"gpu","under":"warm L2","p50":20.02,"p50_low":20,"p50_high":20.02,"p90":20.04,"mean":20.02,"std":0.01663,"samples":40,"single_p50":24.02,"sm_mhz":1975,"power_w":688.4,"celsius":61,"C5":"fail","C5_reason":"they differ"}"#);
        for unknown in [reading(Some(0)), Reading::default()] {
            measurement.conditions[1] = unknown;
            assert_eq!(
                timing(WMMA.into(), place(), &measurement, &[]).value(Metric::SmMhz),
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
            rotation: Rotation::of(4, 1_572_864, 524_288, 62_914_560),
            device: Summary::of(&us).unwrap(),
            single: Summary::of(&samples(24.0)).unwrap(),
            conditions: [reading; 2],
            sustained: Some(Sustained { us, load }),
        };
        let row = timing(WMMA.into(), place(), &measurement, &[]);
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
        let row = timing(WMMA.into(), place(), &measurement, &[]);
        assert_eq!(read.map(|metric| row.value(metric)), [None; 5]);
    }

    #[test]
    fn a_pair_says_ratios_noise_and_what_no_kernel_can_beat() {
        let pair_of = Comparison::of(&samples(20.0), &samples(15.0)).unwrap();
        let speed_of_light = SpeedOfLight::default().with_zero_line(2.0);
        insta::assert_snapshot!(line(&pair(CPASYNC.into(), WMMA.into(), place(), Source::Gpu, &pair_of, &speed_of_light)), @r#"{"subject":"stage1-cpasync/cpasync-32x64","shape":"mission","dtype":"f16","mask":"full","by":"gpu","against":"stage0-scalar/wmma-qk-32x64","p50":15.01,"min":15,"speedup_p50":1.333,"speedup_p50_low":1.333,"speedup_p50_high":1.334,"speedup_p90":1.333,"speedup_p90_low":1.333,"speedup_p90_high":1.334,"speedup_mean":1.333,"speedup_mean_low":1.333,"speedup_mean_high":1.334,"noise":0.000999,"floor_us":2.2}"#);
    }

    #[test]
    fn a_time_that_cannot_be_fails_a_pair_on_either_arm() {
        for (base, new, fails) in [(20.0, 15.0, false), (20.0, 2.0, true), (2.0, 20.0, true)] {
            let mut tail = samples(base);
            tail[..8].iter_mut().for_each(|us| *us *= 1.5);
            let arms = Comparison::of(&tail, &samples(new)).unwrap();
            let floor = SpeedOfLight::default().with_zero_line(2.0);
            let row = pair(
                CPASYNC.into(),
                WMMA.into(),
                place(),
                Source::Gpu,
                &arms,
                &floor,
            );
            assert_eq!(row.says(GateId::L1).is_some(), fails, "{base} and {new}");
            assert_eq!(row.value(Metric::Min), Some(base.min(new)));
            assert_eq!(row.value(Metric::Noise), Some(arms.noise()));
        }
    }

    #[test]
    fn counters_are_counts_and_a_kernel_that_was_not_counted_has_none() {
        let counted = |counted| counters(SCALAR.into(), Dtype::E4m3, &counted);
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
        assert_eq!(row.place.to_string(), "mission e4m3 full");
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
        let mut found = suppressed();
        let wrong = [
            listed(&found.sites[0], None),
            listed(&found.sites[1], Some("it is not")),
        ];
        found.sites.extend(wrong);
        found.errors.push("an entry names nothing".into());
        found.broken.push(Broken {
            stage: "stage0-scalar".into(),
            variant: "scalar-32x64".into(),
            result: GateResult::fail(GateId::H1, "race"),
        });
        let rows = self_test(&faults, &found);
        let untested = [not_tested("timer", "no driver")];
        let checks = [true, false].map(|ok| {
            let [name, expected, found] = ["injected delay", "slower", "same"].map(String::from);
            timer(&TimerCheck {
                name,
                expected,
                found,
                ok,
            })
        });
        let lines = rows.iter().chain(&untested).chain(&checks).map(|row| {
            let judged = row
                .verdicts
                .values()
                .map(|of| format!("{} {}", of.verdict, of.reason));
            let words = joined(judged.chain(row.note.clone()), "; ");
            format!("{}{}: {words}", row.subject, row.place)
        });
        insta::assert_snapshot!(joined(lines, "\n"), @r"
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

    #[test]
    fn instances_that_compile_to_one_code_are_no_choice() {
        let found = each(
            "scalar | f16 d64 sm_90a | ptxas | code a; wmma | f16 d64 sm_90a | ptxas | code a
            scalar | f16 d64 sm_90a | ptxas | code a; wmma | f16 d64 sm_90a | ptxas | code b
            scalar | f16 d64 sm_90a | ptxas | code a; wmma | e4m3 d64 sm_90a | ptxas | code a
            scalar | f16 d64 sm_90a | ptxas | code a; wmma | f16 d64 sm_89 | ptxas | code a
            scalar | f16 d64 | kernel; wmma | f16 d64 | kernel",
            |line| {
                let mut rows: Vec<Row> = line.split("; ").map(row).collect();
                share_code(&mut rows);
                joined(rows.iter().flat_map(Row::failures), "\n")
            },
        );
        insta::assert_snapshot!(found, @r#"
        scalar | f16 d64 sm_90a | ptxas | code a; wmma | f16 d64 sm_90a | ptxas | code a
            R1: the same machine code as wmma-qk-32x64: what tells them apart does nothing
            R1: the same machine code as scalar-32x64: what tells them apart does nothing
        scalar | f16 d64 sm_90a | ptxas | code a; wmma | f16 d64 sm_90a | ptxas | code b
            -
        scalar | f16 d64 sm_90a | ptxas | code a; wmma | e4m3 d64 sm_90a | ptxas | code a
            -
        scalar | f16 d64 sm_90a | ptxas | code a; wmma | f16 d64 sm_89 | ptxas | code a
            -
        scalar | f16 d64 | kernel; wmma | f16 d64 | kernel
            -
        "#);
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
        let mut rows = built(&stage);
        // What both variants declare of two element types.
        assert_eq!(
            rows.extract_if(.., |row| row.source == Source::Kernel)
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
        let found = [[Pass, Pass], [NoData, Pass], [NoData, Fail], [Fail, Fail]].map(|verdicts| {
            let run = timed(US).sanitized(WMMA, verdicts);
            let row = run
                .table
                .row(&WMMA.into(), &Place::All, Source::ComputeSanitizer);
            line(row.unwrap())
        });
        insta::assert_snapshot!(found.join("\n"), @r#"
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
        ];
        let metrics = metrics
            .map(|(name, value)| (name.to_string(), value))
            .into();
        let row = profiled(CPASYNC.into(), place(), Chips::Ada, &metrics);
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
}
