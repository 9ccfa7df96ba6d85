use super::*;
use crate::comparison::{Exit, resource_gate};
use crate::testing::{built, case, counted, emulated, ladder, rejudge, resummarise, timed};
use common::check::Outcome;
use common::device::BackendKind;
use common::record::store::read_all;
use common::record::{Gpu, Performance, Progress, SCHEMA, Samples, Scope, Tier};
use common::timing::stats::Summary;
use common::verdict::Verdict;

const US: [f64; 3] = [32.0, 20.0, 15.0];

fn difference(base: &Record, new: &Record, threshold: f64) -> Difference {
    Difference {
        base: "a".into(),
        new: "b".into(),
        threshold,
        pairs: vec![Pair::of(("a", base), ("b", new), threshold)],
        unpaired: vec![],
        harness: Harness::Same,
    }
}

/// Class, place, figure and reason of all that is not SAME.
fn moved(base: &Record, new: &Record) -> Vec<String> {
    let rows = rows(base, new, LATENCY_CHANGE);
    let differing = rows.iter().filter(|row| row.class != Class::Same);
    differing.map(|row| format!("{} {} {} {}", row.class, row.place(), row.metric, row.reason)).collect()
}

fn verdict(base: &Record, new: &Record) -> (Exit, &'static str) {
    let overall = overall(&difference(base, new, LATENCY_CHANGE));
    (overall.exit, overall.word)
}

/// The newest committed record that timed something: what the rules have to work on.
fn committed() -> Record {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../results");
    let mut records = read_all(std::path::Path::new(results)).unwrap();
    records.retain(|(_, record)| record.performance.is_some());
    records.pop().expect("a committed record with latencies").1
}

fn scale(summary: &mut Summary, factor: f64) {
    let Summary { min, p50, p90, mean, std, p50_interval, .. } = summary;
    for value in [min, p50, p90, mean, std, &mut p50_interval.low, &mut p50_interval.high] {
        *value *= factor;
    }
}

fn slowed(record: &Record, factor: f64) -> Record {
    let mut slowed = record.clone();
    for timing in &mut slowed.performance.as_mut().unwrap().timings {
        scale(&mut timing.measurement.device, factor);
        timing.measurement.device_us.iter_mut().for_each(|us| *us *= factor);
        timing.identity.push_str("-slowed");
    }
    slowed
}

#[test]
fn a_record_against_itself_is_the_same_everywhere() {
    for record in [committed(), timed(US), emulated()] {
        assert_eq!(moved(&record, &record), [""; 0]);
        assert_eq!(verdict(&record, &record), (Exit::Pass, "NOTHING RELEVANT"));
    }
}

/// Injected slow-downs and speed-ups, classified at three thresholds: raw samples, made up and recorded, and
/// the summaries of a committed record.
#[test]
fn injected_changes_of_speed_are_classified() {
    // Factor on the time, threshold, class.
    let table = [
        (1.01, 0.02, Class::Same),
        (1.03, 0.02, Class::Slower),
        (1.05, 0.02, Class::Slower),
        (1.01, 0.005, Class::Slower),
        (1.02, 0.005, Class::Slower),
        (1.05, 0.005, Class::Slower),
        (0.99, 0.02, Class::Same),
        (0.95, 0.02, Class::Faster),
        (0.99, 0.005, Class::Faster),
        (1.0, 0.005, Class::Same),
    ];
    let (literal, mut sampled) = (timed(US), committed());
    sampled.performance.as_mut().unwrap().timings.retain(|timing| timing.shape_name == "mission");
    assert!(sampled.performance.iter().flat_map(|p| &p.timings).all(|timing| timing.samples == Samples::Raw));
    let mut summarised = committed();
    for timing in &mut summarised.performance.as_mut().unwrap().timings {
        timing.samples = Samples::Omitted;
        timing.measurement.device_us.clear();
    }
    for (factor, threshold, expected) in table {
        for base in [&literal, &sampled, &summarised] {
            let timings = &base.performance.as_ref().unwrap().timings;
            let quiet = |row: &&Row| {
                let timing = timings.iter().find(|timing| {
                    let problem = matches!(&row.metric, Metric::Latency(Some(problem)) if (&problem.shape, problem.dtype, problem.mask) == (&timing.shape_name, timing.dtype, timing.mask));
                    problem && row.variant.as_deref() == Some(&timing.variant)
                });
                let device = &timing.unwrap().measurement.device;
                device.noise() < 0.003 && (device.p50_interval.high - device.p50_interval.low) / device.p50 < 0.001
            };
            let rows = latencies(base, &slowed(base, factor), threshold);
            assert_eq!(rows.len(), timings.len());
            let judged: Vec<&Row> = rows.iter().filter(quiet).collect();
            assert!(2 * judged.len() > rows.len(), "most arms are quiet: {} of {}", judged.len(), rows.len());
            for row in judged {
                assert_eq!(row.class, expected, "{factor} at {threshold}: {row:?}");
            }
            // A noisy arm may stay undecided; it is never called the opposite.
            let opposite = if factor > 1.0 { Class::Faster } else { Class::Slower };
            assert!(rows.iter().all(|row| row.class != opposite));
        }
    }
    assert_eq!(verdict(&literal, &slowed(&literal, 1.05)), (Exit::Fail, "REGRESSION"));
    assert_eq!(verdict(&literal, &slowed(&literal, 0.95)), (Exit::Pass, "IMPROVED"));
    assert_eq!(verdict(&literal, &slowed(&literal, 1.02)), (Exit::Undecided, "AMBIGUOUS"));
    assert_eq!(verdict(&literal, &timed([30.0, 21.0, 15.0])), (Exit::Fail, "MIXED"));
}

#[test]
fn samples_decide_where_both_sides_have_them_and_the_row_says_which() {
    let note = |base: &Record, new: &Record| latencies(base, new, LATENCY_CHANGE)[0].note.clone();
    assert_eq!(note(&timed(US), &timed(US)), "within 2.0 %, interval by resampling");
    let mut committed = timed(US);
    for timing in &mut committed.performance.as_mut().unwrap().timings {
        timing.samples = Samples::Omitted;
        timing.measurement.device_us.clear();
    }
    assert_eq!(note(&committed, &timed(US)), "within 2.0 %, interval from the medians' intervals");
}

#[test]
fn a_wide_interval_does_not_decide_unless_the_kernel_is_the_same() {
    // Two speeds in one arm: its median is anywhere between them.
    let mut record = timed(US);
    let timing = &mut record.performance.as_mut().unwrap().timings[0];
    for (index, us) in timing.measurement.device_us.iter_mut().enumerate() {
        *us = if index % 2 == 0 { 20.0 } else { 24.0 };
    }
    let mut changed = record.clone();
    changed.performance.as_mut().unwrap().timings[0].identity = "changed".into();
    let first = |new: &Record| {
        let row = &latencies(&record, new, LATENCY_CHANGE)[0];
        (row.class, row.reason)
    };
    assert_eq!(first(&record), (Class::Same, Reason::SameKernel));
    assert_eq!(first(&changed), (Class::Ambiguous, Reason::CrossesThreshold));
}

#[test]
fn noise_and_clocks_keep_a_latency_undecided() {
    let first = |base: &Record, new: &Record| {
        let row = latencies(base, new, LATENCY_CHANGE).remove(0);
        (row.class, row.reason)
    };
    let mut noisy = slowed(&timed(US), 1.05);
    for timing in &mut noisy.performance.as_mut().unwrap().timings {
        timing.measurement.device.p90 = 1.08 * timing.measurement.device.p50;
    }
    assert_eq!(first(&timed(US), &noisy), (Class::Ambiguous, Reason::WithinNoise));
    let mut throttled = slowed(&timed(US), 1.05);
    for timing in &mut throttled.performance.as_mut().unwrap().timings {
        for conditions in &mut timing.measurement.conditions {
            let common::telemetry::Conditions::Read(reading) = conditions else { panic!("literal") };
            reading.sm_mhz = Some(1886);
        }
    }
    assert_eq!(first(&timed(US), &throttled), (Class::Ambiguous, Reason::ClockMoved));
}

fn on_gpu(mut record: Record, change: impl Fn(&mut String, &mut String)) -> Record {
    let Gpu::Present { name, driver, .. } = &mut record.meta.machine.gpu else { panic!("literal") };
    change(name, driver);
    record
}

#[test]
fn another_gpu_driver_shape_or_cache_is_no_data() {
    let base = timed(US);
    let reasons = |new: &Record| -> Vec<(Class, Reason)> {
        latencies(&base, new, LATENCY_CHANGE).iter().map(|row| (row.class, row.reason)).collect()
    };
    let other_gpu = on_gpu(slowed(&base, 2.0), |name, _| *name = "NVIDIA L4".into());
    assert_eq!(reasons(&other_gpu), [(Class::NoData, Reason::OtherGpu); 2], "a row per stage");
    let other_driver = on_gpu(slowed(&base, 2.0), |_, driver| *driver = "600.1".into());
    assert_eq!(reasons(&other_driver), [(Class::NoData, Reason::OtherDriver); 2]);
    let mut other_shape = slowed(&base, 2.0);
    for timing in &mut other_shape.performance.as_mut().unwrap().timings {
        timing.shape.seq_kv = 1024;
    }
    assert_eq!(reasons(&other_shape), [(Class::NoData, Reason::OtherShape); 3]);
    let mut other_cache = slowed(&base, 2.0);
    for timing in &mut other_cache.performance.as_mut().unwrap().timings {
        timing.measurement.rotation.state = common::timing::CacheState::Cold;
    }
    assert_eq!(reasons(&other_cache), [(Class::NoData, Reason::OtherCache); 3]);
    // Gates and counters still are the same thing; that no latency of the base could be compared is not passed over.
    for new in [other_gpu, other_driver] {
        assert_eq!(verdict(&base, &new), (Exit::Undecided, "INCOMPLETE"));
    }
}

#[test]
fn where_nothing_can_be_compared_there_is_no_verdict() {
    let base = timed(US);
    let mut new = on_gpu(timed(US), |name, _| *name = "NVIDIA L4".into());
    new.evidence.counters.clear();
    new.meta.scope = Scope::Selected { flags: vec!["--iters 0".into()] };
    new.correctness.variants.clear();
    new.correctness.planted = common::record::Planted::NotTried { reason: "none".into() };
    new.evidence.claims.clear();
    let rows = rows(&base, &new, LATENCY_CHANGE);
    let comparable: Vec<&Row> =
        rows.iter().filter(|row| row.class != Class::NoData && row.metric != Metric::GatesOnGates).collect();
    assert_eq!(comparable, [&rows[0]; 0]);
    assert_eq!(overall(&Difference { pairs: vec![], ..difference(&base, &new, 0.02) }).exit, Exit::Undecided);
}

#[test]
fn a_record_of_an_interrupted_run_is_incomplete_data() {
    let interrupted = |mut record: Record| {
        record.meta.progress = Progress::Partial { finished: 1, planned: 3 };
        record
    };
    for (base, new) in [(emulated(), interrupted(emulated())), (interrupted(emulated()), emulated())] {
        assert_eq!(moved(&base, &new), ["NO DATA the record whole run unfinished"]);
        assert_eq!(verdict(&base, &new), (Exit::Undecided, "INCOMPLETE"));
    }
    let note = rows(&emulated(), &interrupted(emulated()), LATENCY_CHANGE).remove(0).note;
    assert_eq!(note, "the new record is of a run that ended after 1 of 3 cases");
}

#[test]
fn a_gpu_against_the_emulator_is_incomplete_in_both_directions() {
    for (base, new) in [(timed(US), emulated()), (emulated(), timed(US))] {
        assert!(moved(&base, &new).contains(&"NO DATA the record whole run other-backend".to_string()));
        assert_eq!(verdict(&base, &new), (Exit::Undecided, "INCOMPLETE"));
    }
}

#[test]
fn gates_on_the_gates_alone_are_no_comparison() {
    let mut nothing = emulated();
    nothing.meta.stages.clear();
    nothing.correctness.variants.clear();
    nothing.evidence.counters.clear();
    nothing.evidence.claims.clear();
    assert!(rows(&nothing, &nothing, LATENCY_CHANGE).iter().all(|row| row.metric == Metric::GatesOnGates));
    assert_eq!(verdict(&nothing, &nothing), (Exit::Undecided, "NO DATA"));
}

#[test]
fn a_record_of_other_kernels_than_those_built_now_is_incomplete() {
    let mut now = ladder();
    assert_eq!(outdated(&emulated(), &now), []);
    now[1].identity = "changed since".into();
    let rows = outdated(&emulated(), &now);
    let words: Vec<String> = rows.iter().map(|row| format!("{} {} {}", row.place(), row.metric, row.reason)).collect();
    assert_eq!(words, ["stage1-cpasync whole run other-kernel"]);
    let mut difference = difference(&emulated(), &emulated(), LATENCY_CHANGE);
    difference.pairs[0].rows.extend(rows);
    assert_eq!((overall(&difference).exit, overall(&difference).word), (Exit::Undecided, "INCOMPLETE"));
}

#[test]
fn a_gate_that_fails_now_is_worse_on_any_backend() {
    let fails = |backend: BackendKind| {
        let mut record = if backend == BackendKind::Cuda { timed(US) } else { emulated() };
        record.correctness.cases.push(case("stage0-scalar", "wmma-qk-32x64", backend, Some(GateId::C3)));
        resummarise(&mut record);
        record
    };
    let expected = "WORSE stage0-scalar/wmma-qk-32x64 gate C3 newly-failing";
    assert!(moved(&emulated(), &fails(BackendKind::Emulated)).contains(&expected.to_string()));
    assert!(moved(&timed(US), &fails(BackendKind::Emulated)).contains(&expected.to_string()));
    assert_eq!(verdict(&emulated(), &fails(BackendKind::Emulated)), (Exit::Fail, "REGRESSION"));
    // Mended again, on the same backend; and what failed before and still fails is no news.
    assert_eq!(
        moved(&fails(BackendKind::Emulated), &emulated()),
        ["BETTER stage0-scalar/wmma-qk-32x64 gate C3 newly-passing"]
    );
    assert_eq!(moved(&fails(BackendKind::Emulated), &fails(BackendKind::Emulated)), [""; 0]);
}

#[test]
fn a_missing_variant_gate_or_counter_is_missing_data() {
    let base = emulated();
    let mut gone = emulated();
    gone.meta.stages[0].variants.remove(0);
    gone.correctness.variants.remove(0);
    gone.evidence.counters.remove(0);
    assert_eq!(moved(&base, &gone), ["CHANGED stage0-scalar/scalar-32x64 variant removed"]);
    assert_eq!(verdict(&base, &gone), (Exit::Pass, "NOTHING RELEVANT"), "what is no longer declared was removed");
    assert_eq!(moved(&gone, &base)[0], "CHANGED stage0-scalar/scalar-32x64 variant one-side-only");

    let mut unchecked = emulated();
    unchecked.correctness.variants.remove(0);
    assert_eq!(moved(&base, &unchecked), ["NO DATA stage0-scalar/scalar-32x64 variant newly-missing"]);
    // Flags or a smaller tier explain it; the data is missing all the same.
    unchecked.meta.scope = Scope::Selected { flags: vec!["--variants wmma-qk-32x64".into()] };
    assert_eq!(verdict(&base, &unchecked), (Exit::Undecided, "INCOMPLETE"));
    unchecked.meta.scope = Scope::Whole;
    unchecked.meta.tier = Tier::T0;
    assert_eq!(verdict(&base, &unchecked), (Exit::Undecided, "INCOMPLETE"));

    let mut ungated = emulated();
    ungated.correctness.variants[0].gates.retain(|gate| gate.result.gate != GateId::C5);
    assert_eq!(moved(&base, &ungated), ["NO DATA stage0-scalar/scalar-32x64 gate C5 newly-missing"]);
    let mut uncounted = emulated();
    uncounted.evidence.counters.remove(1);
    assert_eq!(moved(&base, &uncounted), ["NO DATA stage0-scalar/wmma-qk-32x64 counters newly-missing"]);
}

#[test]
fn an_arm_that_is_no_longer_timed_is_missing_unless_the_run_says_so() {
    let base = timed(US);
    let mut new = timed(US);
    let Performance { timings, scopes, .. } = new.performance.as_mut().unwrap();
    timings.pop();
    assert!(scopes.is_empty());
    assert_eq!(moved(&base, &new), ["NO DATA stage1-cpasync latency newly-missing"]);
    new.performance.as_mut().unwrap().scopes.push(common::record::TimingScope {
        stage: "stage1-cpasync".into(),
        left_out: 1,
        of: 1,
        why: "only the best".into(),
    });
    assert_eq!(moved(&base, &new), ["NO DATA stage1-cpasync latency one-side-only"]);
}

#[test]
fn a_counter_that_doubles_is_worse_where_it_is_a_cost() {
    let doubled = |mut record: Record| {
        record.evidence.counters[0] = counted("stage0-scalar", "scalar-32x64", 2_097_152, 0);
        record
    };
    let place = "stage0-scalar/scalar-32x64";
    assert_eq!(
        moved(&emulated(), &doubled(emulated())),
        [
            format!("WORSE {place} global sectors read cost-moved"),
            format!("CHANGED {place} global bytes read no-good-side"),
            format!("CHANGED {place} global bytes read through registers no-good-side"),
        ]
    );
    assert_eq!(verdict(&emulated(), &doubled(emulated())), (Exit::Fail, "REGRESSION"));
    // A faster kernel may read more.
    let faster = moved(&timed(US), &doubled(timed([30.0, 20.0, 15.0])));
    assert!(faster.contains(&format!("CHANGED {place} global sectors read latency-decides")), "{faster:?}");
    let mut recompiled = doubled(emulated());
    recompiled.meta.stages.iter_mut().for_each(|stage| stage.host_compiler = "g++ 13".into());
    assert_eq!(moved(&emulated(), &recompiled)[0], format!("NO DATA {place} counters other-compiler"));
}

#[test]
fn registers_are_worse_only_where_they_cost_something() {
    let place = "stage0-scalar/scalar-32x64";
    // Registers and spilled bytes of all f16 instances; 128 threads: 96 and 104 registers fit 5 and 4 blocks.
    let build = |registers: u32, spills: u32| built(timed(US), registers, spills);
    let none: [&str; 0] = [];
    assert_eq!(moved(&build(96, 0), &build(96, 0)), none);
    let more = moved(&build(88, 0), &build(96, 0));
    assert_eq!(more[0], format!("CHANGED {place} registers (f16 d64 sm_90a) no-good-side"), "{more:?}");
    assert_eq!(verdict(&build(88, 0), &build(96, 0)), (Exit::Pass, "NOTHING RELEVANT"));
    let fewer_blocks = moved(&build(96, 0), &build(104, 0));
    assert_eq!(fewer_blocks[0], format!("WORSE {place} occupancy (f16 d64 sm_90a) cost-moved"), "{fewer_blocks:?}");
    assert_eq!(verdict(&build(96, 0), &build(104, 0)), (Exit::Fail, "REGRESSION"));
    let spills = moved(&build(96, 0), &build(96, 8));
    assert!(spills.contains(&format!("WORSE {place} spilled bytes (f16 d64 sm_90a) spills")), "{spills:?}");
    assert!(spills.contains(&format!("WORSE {place} gate R1 newly-failing")), "{spills:?}");
    // The latency of that instance has the last word.
    let faster = built(timed(US.map(|us| 0.9 * us)), 104, 0);
    let decided = moved(&build(96, 0), &faster);
    assert!(decided.contains(&format!("CHANGED {place} occupancy (f16 d64 sm_90a) latency-decides")), "{decided:?}");
    assert_eq!(verdict(&build(96, 0), &faster), (Exit::Pass, "IMPROVED"));
    let gate = resource_gate(&build(96, 8).meta.stages[0], &build(96, 8).meta.stages[0].variants[0]);
    assert_eq!(gate.unwrap().result.verdict, Verdict::Fail, "the planted spill is one");
}

#[test]
fn errors_are_judged_by_their_bounds() {
    let with_error = |max_abs: f64| {
        let mut record = emulated();
        let Outcome::Checked { errors, .. } = &mut record.correctness.cases[0].outcome else { panic!("literal") };
        errors.max_abs = max_abs;
        resummarise(&mut record);
        record
    };
    // The bound is 2 x 1e-4 + 2 ulps at 0.4 = 6.9e-4, a tenth of it 6.9e-5.
    let table = [
        (1.2e-4, 1.8e-4, Class::Same),
        (1.2e-4, 2.0e-4, Class::Worse),
        (2.0e-4, 1.2e-4, Class::Better),
        (6.8e-4, 7.0e-4, Class::Worse),
        (1.2e-4, f64::NAN, Class::Worse),
        (f64::NAN, f64::NAN, Class::Worse),
        (f64::NAN, 1.2e-4, Class::Better),
    ];
    for (was, is, expected) in table {
        let rows = errors(&with_error(was), &with_error(is));
        assert_eq!((&rows[0].metric, rows[0].class), (&Metric::Error(GateId::C2), expected), "{was} {is}");
    }
    // A case that was no number and is one hides no other that got worse.
    let [mut base, mut new] = [with_error(f64::NAN), with_error(1.2e-4)];
    for (record, max_abs) in [(&mut base, 1.2e-4), (&mut new, 2.0e-4)] {
        let mut other = record.correctness.cases[0].clone();
        other.key.shape_name = "long".into();
        let Outcome::Checked { errors, .. } = &mut other.outcome else { panic!("literal") };
        errors.max_abs = max_abs;
        record.correctness.cases.push(other);
        resummarise(record);
    }
    assert_eq!(errors(&base, &new)[0].class, Class::Worse);
    // Without the cases, the row error at the largest error is judged by C3's bound, 2e-3.
    let omitted = |max_row: f64| {
        let mut record = emulated();
        record.correctness.omitted_cases = std::mem::take(&mut record.correctness.cases).len();
        record.correctness.variants[0].worst.as_mut().unwrap().max_row = max_row;
        record
    };
    for (was, is, expected) in [(3e-4, 4.9e-4, Class::Same), (3e-4, 5.1e-4, Class::Worse), (9e-4, 3e-4, Class::Better)]
    {
        let rows = errors(&omitted(was), &omitted(is));
        assert_eq!((&rows[0].metric, rows[0].class), (&Metric::Error(GateId::C3), expected), "{was} {is}");
    }
    assert_eq!(errors(&emulated(), &timed(US))[0].reason, Reason::OtherBackend);
}

#[test]
fn claims_that_fail_now_or_are_taken_back_are_said() {
    let base = emulated();
    let mut wrong = emulated();
    wrong.evidence.counters[2] = counted("stage1-cpasync", "cpasync-32x64", 1_048_577, 0);
    rejudge(&mut wrong);
    let title = "claim cpasync: global bytes read as in stage0-scalar wmma-qk";
    assert_eq!(moved(&base, &wrong)[0], format!("WORSE stage1-cpasync {title} newly-failing"));
    let claims = crate::comparison::failed_claims(&wrong);
    wrong.negative =
        Some(common::record::Negative { schema: SCHEMA, reason: "it reads ahead".into(), gpu: None, claims });
    assert!(moved(&base, &wrong).contains(&format!("CHANGED stage1-cpasync {title} refuted-and-recorded")));
    let mut silent = emulated();
    silent.meta.stages[1].evidence.clear();
    rejudge(&mut silent);
    assert_eq!(moved(&base, &silent), [format!("CHANGED stage1-cpasync {title} one-side-only")]);
}

#[test]
fn a_gate_that_goes_blind_is_a_regression() {
    let mut blind = emulated();
    let common::record::Planted::Tried { subjects } = &mut blind.correctness.planted else { panic!("literal") };
    subjects[1].cases_failed = 0;
    subjects[1].gates_that_failed.clear();
    assert_eq!(moved(&emulated(), &blind), ["WORSE the record gates on the gates newly-failing"]);
}

#[test]
fn a_kernel_that_changes_with_its_harness_is_said() {
    let mut new = timed(US);
    new.meta.stages[1].identity = "changed".into();
    let said = |harness: Harness| overall(&Difference { harness, ..difference(&timed(US), &new, 0.02) }).actions;
    let change = HarnessChange { what: ["a", "b", "c", "d"].map(|name| format!("common/src/{name}.rs")).into() };
    assert_eq!(
        said(Harness::Changed(change.clone())),
        [
            "Kernel and harness changed together (stage1-cpasync; common/src/a.rs, common/src/b.rs, common/src/c.rs and 1 more): \
          read the harness's change first, since it judges the kernel's."
        ]
    );
    assert_eq!(said(Harness::Same), ["No action needed."]);
    let alone = Difference { harness: Harness::Changed(change), ..difference(&timed(US), &timed(US), 0.02) };
    assert_eq!(overall(&alone).actions, ["No action needed."]);
}

#[test]
fn resources_and_counters_of_one_variant_share_a_line() {
    let mut new = emulated();
    new.evidence.counters[0] = counted("stage0-scalar", "scalar-32x64", 2_097_152, 0);
    let rows = rows(&emulated(), &new, LATENCY_CHANGE);
    let lines = lines(rows.iter().filter(|row| row.class == Class::Changed));
    let words: Vec<_> = lines.iter().map(|line| (&*line.what, &*line.base, &*line.new)).collect();
    assert_eq!(
        words,
        [("global bytes read; global bytes read through registers", "1,048,576; 1,048,576", "2,097,152; 2,097,152")]
    );
}
