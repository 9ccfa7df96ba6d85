use super::*;
use crate::judge::verdict::{Exit, of_differences};
use crate::record::meta::{Refusal, Tier, TimingScope};
use crate::record::{Claim, Relation, VariantMeta};
use crate::testing::{
    CPASYNC, SCALAR, US, VARIANTS, WMMA, committed, emulated, instance, ladder, mission,
    newest_whole, timed,
};
use Change::{Ambiguous, Better, Missing, Same, Worse};
use common::metric::LATENCY_CHANGE;
use common::verdict::GateResult;

/// All that is not SAME: what became of it, whose it is, what it is and where.
fn moved(base: &Record, new: &Record) -> Vec<String> {
    let found = differences(base, new, LATENCY_CHANGE);
    let line = |d: &Difference| {
        let on =
            d.on.as_ref()
                .map(|on| format!(" on {on}"))
                .unwrap_or_default();
        format!(
            "{} {} {}{on}",
            format!("{:?}", d.change).to_uppercase(),
            d.subject,
            d.what
        )
    };
    found
        .iter()
        .filter(|d| d.change != Same)
        .map(line)
        .collect()
}

fn verdict(base: &Record, new: &Record) -> (Exit, &'static str) {
    let overall = of_differences(&differences(base, new, LATENCY_CHANGE));
    (overall.exit, overall.word)
}

fn latencies(base: &Record, new: &Record, threshold: f64) -> Vec<Difference> {
    let mut found = differences(base, new, threshold);
    found.retain(|d| d.group == Group::Latency);
    found
}

fn first(base: &Record, new: &Record) -> (Change, String) {
    let first = latencies(base, new, LATENCY_CHANGE).remove(0);
    (first.change, first.why)
}

/// The same kernels of other identities, all slower by a factor.
fn slowed(record: &Record, factor: f64) -> Record {
    let mut slowed = record.clone();
    slowed
        .meta
        .stages
        .iter_mut()
        .for_each(|stage| stage.identity.push_str("-slowed"));
    for row in slowed
        .rows
        .iter_mut()
        .filter(|row| row.by == Source::Gpu && row.against.is_none())
    {
        for metric in [Metric::P50, Metric::P90] {
            let Some(figure) = row.figures.get_mut(&metric) else {
                continue;
            };
            figure.value *= factor;
            figure.interval = figure
                .interval
                .map(|(low, high)| (factor * low, factor * high));
        }
    }
    slowed
        .samples
        .iter_mut()
        .flat_map(|samples| &mut samples.device_ns)
        .for_each(|ns| *ns *= factor);
    slowed
}

/// As a committed record: without raw samples.
fn summarised(mut record: Record) -> Record {
    record.samples.clear();
    record
}

#[test]
fn a_record_against_itself_is_the_same_everywhere() {
    let newest = committed().pop().unwrap().1;
    for record in [
        newest,
        timed(US).built(96, 0).clean(),
        emulated(),
        timed(US).peers("mission", 10.0, &[("torch-flash", 16.0, true)]),
    ] {
        assert_eq!(moved(&record, &record), [""; 0]);
        assert_eq!(verdict(&record, &record), (Exit::Pass, "SAME"));
    }
}

#[test]
fn injected_changes_of_speed_are_classified() {
    // Factor on the time, threshold, what it is.
    let table = [
        (1.01, 0.02, Same),
        (1.03, 0.02, Worse),
        (1.05, 0.02, Worse),
        (1.01, 0.005, Worse),
        (1.02, 0.005, Worse),
        (1.05, 0.005, Worse),
        (0.99, 0.02, Same),
        (0.95, 0.02, Better),
        (0.99, 0.005, Better),
        (1.0, 0.005, Same),
    ];
    let literal = timed(US);
    for base in [&literal, &summarised(timed(US)), &newest_whole().1] {
        let candidates: Vec<&Row> = best::timed(base).collect();
        let is_quiet = |d: &&Difference| {
            let row = candidates
                .iter()
                .find(|row| row.subject == d.subject && Some(&row.on) == d.on.as_ref())
                .unwrap();
            let p50 = row.figures[&Metric::P50];
            let (low, high) = p50.interval.unwrap();
            row.value(Metric::P90).unwrap() / p50.value < 1.003 && (high - low) / p50.value < 0.001
        };
        for (factor, threshold, expected) in table {
            let found = latencies(base, &slowed(base, factor), threshold);
            assert_eq!(found.len(), candidates.len());
            let quiet: Vec<&Difference> = found.iter().filter(is_quiet).collect();
            assert!(
                3 * quiet.len() > found.len(),
                "many candidates are quiet: {} of {}",
                quiet.len(),
                found.len()
            );
            quiet
                .iter()
                .for_each(|d| assert_eq!(d.change, expected, "{factor} at {threshold}: {d:?}"));
            // A noisy candidate may stay undecided; it is never called the opposite.
            let opposite = if factor > 1.0 { Better } else { Worse };
            assert!(found.iter().all(|d| d.change != opposite));
        }
    }
    assert_eq!(
        verdict(&literal, &slowed(&literal, 1.05)),
        (Exit::Fail, "REGRESSION")
    );
    assert_eq!(
        verdict(&literal, &slowed(&literal, 0.95)),
        (Exit::Pass, "IMPROVED")
    );
    assert_eq!(
        verdict(&literal, &slowed(&literal, 1.02)),
        (Exit::Inconclusive, "AMBIGUOUS")
    );
    assert_eq!(
        verdict(&literal, &timed([30.0, 21.0, 15.0])),
        (Exit::Fail, "MIXED")
    );
}

#[test]
fn samples_decide_where_both_sides_have_them_and_the_row_says_which() {
    let resampled = |base: &Record, new: &Record| latencies(base, new, LATENCY_CHANGE)[0].resampled;
    assert_eq!(resampled(&timed(US), &timed(US)), Some(true));
    assert_eq!(resampled(&summarised(timed(US)), &timed(US)), Some(false));
}

#[test]
fn width_noise_and_clocks_keep_a_latency_undecided() {
    // Two speeds in one candidate: its median is anywhere between them.
    let two_speeds: Vec<f64> = (0..40)
        .map(|i| if i % 2 == 0 { 20.0 } else { 24.0 })
        .collect();
    let wide = || timed(US).sampled(SCALAR, mission(), &two_speeds);
    let changed = wide().changed(|meta| meta.stages[0].identity = "changed".into());
    let of = |record: &Record| {
        let found = latencies(&wide(), record, LATENCY_CHANGE);
        found
            .iter()
            .find(|d| d.subject.as_str() == SCALAR)
            .map(|d| (d.change, d.why.clone()))
            .unwrap()
    };
    assert!(matches!(of(&wide()), (Same, why) if why.ends_with("and the kernel has not changed")));
    assert_eq!(
        of(&changed),
        (Ambiguous, "the interval crosses 2.0 %".into())
    );
    // A source that changed and compiles to the same machine code is the same kernel; one instance of another is not.
    let of_code = |registers: u32, code: &str| {
        let mut new = changed.clone().built(registers, 0);
        let at = new
            .rows
            .iter()
            .position(|row| row.by == Source::Ptxas && row.subject.as_str() == SCALAR);
        new.rows[at.unwrap()].sass = Some(code.into());
        let found = latencies(&wide().built(96, 0), &new, LATENCY_CHANGE);
        let of_scalar = found.iter().find(|d| d.subject.as_str() == SCALAR);
        of_scalar.map(|d| d.change).unwrap()
    };
    let same = format!("sass of {SCALAR}");
    assert_eq!(
        (of_code(96, &same), of_code(96, "another")),
        (Same, Ambiguous)
    );

    let slower = |metric, value: &dyn Fn(&Row) -> f64| {
        let mut slower = slowed(&timed(US), 1.05);
        for row in slower.rows.iter_mut().filter(|row| row.under.is_some()) {
            let value = value(row);
            row.figures.insert(metric, value.into());
        }
        first(&timed(US), &slower)
    };
    let (change, why) = slower(Metric::P90, &|row| 1.08 * best::p50(row));
    assert_eq!(
        (change, &*why),
        (
            Ambiguous,
            "beyond 2.0 %, but not beyond the samples' noise of 8.0 %"
        )
    );
    let (change, why) = slower(Metric::SmMhz, &|_| 1886.0);
    assert_eq!(
        (change, &*why),
        (
            Ambiguous,
            "beyond 2.0 % in time, but not in cycles: 1980 MHz against 1886 MHz"
        )
    );
    // Faster or slower without a change of the kernel is the machine's doing.
    let (change, why) = first(&timed(US), &timed([36.0, 22.0, 17.0]));
    assert!(
        change == Worse && why.ends_with("look at the machine and the harness"),
        "{why}"
    );
}

#[test]
fn what_is_not_the_same_thing_is_missing_with_the_reason() {
    let (base, slow) = (timed(US), slowed(&timed(US), 2.0));
    let other_gpu = slow.clone().on_gpu("NVIDIA L4");
    let other_driver = slow.clone().changed(|meta| match &mut meta.machine.gpu {
        Gpu::Present { driver, .. } => *driver = "600.1".into(),
        Gpu::Absent { .. } => unreachable!(),
    });
    let other_shape = slow
        .clone()
        .changed(|meta| meta.shapes.get_mut("mission").unwrap().seq_kv = 1024);
    let mut other_cache = slow.clone();
    other_cache
        .rows
        .iter_mut()
        .filter(|row| row.under.is_some())
        .for_each(|row| row.under = Some("cold L2".into()));
    let red = VARIANTS
        .into_iter()
        .fold(slow, |record, subject| record.failing(subject, GateId::C2));
    let gpu = "NVIDIA H200 (sm_90, 132 SMs) against NVIDIA L4 (sm_90, 132 SMs)";
    for (new, rows, why) in [
        (&other_gpu, 2, gpu),
        (&other_driver, 2, "driver 580.159.04 against 600.1"),
        (&other_shape, 3, "mission is another shape in the base"),
        (&other_cache, 3, "warm L2 against cold L2"),
        (
            &red,
            3,
            "stage0-scalar/scalar-32x64 is not green on C1-C6 and B1 in the run that timed it",
        ),
    ] {
        let found = latencies(&base, new, LATENCY_CHANGE);
        assert_eq!(
            (found.len(), found[0].change, &*found[0].why),
            (rows, Missing, why)
        );
        assert!(found.iter().all(|d| d.change == Missing));
    }
    // Gates and counters still are the same thing; that no latency of the base could be compared is not passed over.
    for new in [&other_gpu, &other_driver] {
        assert_eq!(verdict(&base, new), (Exit::Inconclusive, "INCOMPLETE"));
    }
    // A run narrowed by flags, on another GPU, without what could be compared.
    let nothing = other_gpu
        .without(|row| matches!(row.by, Source::Emulator | Source::SelfTest) || row.on == On::All)
        .changed(|meta| {
            meta.scope = Scope::Selected {
                flags: vec!["--iters 0".into()],
            }
        });
    assert_eq!(verdict(&base, &nothing).0, Exit::Inconclusive);
    let only_the_self_test = emulated()
        .without(|row| row.by != Source::SelfTest)
        .changed(|meta| meta.stages.clear());
    assert_eq!(
        verdict(&only_the_self_test, &only_the_self_test),
        (Exit::Inconclusive, "NO DATA")
    );
}

#[test]
fn an_interrupted_run_another_backend_and_other_kernels_are_incomplete() {
    let whole = "MISSING the record whole run".to_string();
    let interrupted = || {
        emulated().changed(|meta| {
            meta.progress = Progress::Partial {
                finished: 1,
                planned: 3,
            }
        })
    };
    for (base, new) in [(emulated(), interrupted()), (interrupted(), emulated())] {
        assert_eq!(moved(&base, &new), std::slice::from_ref(&whole));
        assert_eq!(verdict(&base, &new), (Exit::Inconclusive, "INCOMPLETE"));
    }
    let why = differences(&emulated(), &interrupted(), LATENCY_CHANGE)
        .remove(0)
        .why;
    assert_eq!(
        why,
        "the new record is of a run that ended after 1 of 3 cases"
    );
    for (base, new) in [(timed(US), emulated()), (emulated(), timed(US))] {
        assert!(moved(&base, &new).contains(&whole));
        assert_eq!(verdict(&base, &new), (Exit::Inconclusive, "INCOMPLETE"));
    }
    let mut now = ladder();
    assert_eq!(outdated(&emulated(), &now), []);
    now[1].identity = "changed since".into();
    let found = outdated(&emulated(), &now);
    assert_eq!(
        (found.len(), found[0].subject.as_str(), &*found[0].what),
        (1, "stage1-cpasync", "whole run")
    );
    let all = [differences(&emulated(), &emulated(), LATENCY_CHANGE), found].concat();
    assert_eq!(
        (of_differences(&all).exit, of_differences(&all).word),
        (Exit::Inconclusive, "INCOMPLETE")
    );
}

#[test]
fn a_gate_that_fails_now_is_worse_on_any_backend() {
    let fails = || emulated().failing(WMMA, GateId::C3);
    let expected = format!("WORSE {WMMA} gate C3");
    assert_eq!(
        moved(&emulated(), &fails()),
        std::slice::from_ref(&expected)
    );
    assert!(moved(&timed(US), &fails()).contains(&expected));
    assert_eq!(verdict(&emulated(), &fails()), (Exit::Fail, "REGRESSION"));
    // Fixed again, on the same backend; and what failed before and still fails is no news.
    assert_eq!(
        moved(&fails(), &emulated()),
        [format!("BETTER {WMMA} gate C3")]
    );
    assert_eq!(moved(&fails(), &fails()), [""; 0]);
    let undecided = emulated().says(WMMA, GateId::C5, Verdict::Ambiguous);
    assert_eq!(
        moved(&emulated(), &undecided),
        [format!("AMBIGUOUS {WMMA} gate C5")]
    );
}

#[test]
fn a_new_finding_of_the_sanitizer_is_worse_and_a_lost_one_missing() {
    let clean = || timed(US).clean();
    let found = clean().sanitized(CPASYNC, [Verdict::Pass, Verdict::Fail]);
    assert_eq!(
        moved(&clean(), &found),
        [format!("WORSE {CPASYNC} gate C7")]
    );
    assert_eq!(
        moved(&timed(US), &found),
        [format!("WORSE {CPASYNC} gate C7")]
    );
    assert_eq!(verdict(&clean(), &found), (Exit::Fail, "REGRESSION"));
    assert_eq!(
        moved(&found, &clean()),
        [format!("BETTER {CPASYNC} gate C7")]
    );
    assert_eq!(
        moved(&clean(), &timed(US)),
        VARIANTS.map(|subject| format!("MISSING {subject} gate C7"))
    );
    assert_eq!(
        verdict(&clean(), &timed(US)),
        (Exit::Inconclusive, "INCOMPLETE")
    );
}

#[test]
fn a_failure_is_attributed_to_the_variant_of_that_very_name() {
    let k2 = "stage0-scalar/wmma-qk-32x64-k2";
    let with_k2 = |is_good: bool| {
        let mut record = timed(US).built(96, 0);
        let name = k2.split_once('/').unwrap().1.to_string();
        let variant = VariantMeta {
            name,
            ..record.meta.stages[0].variants[1].clone()
        };
        record.meta.stages[0].variants.push(variant);
        let copies: Vec<Row> = record
            .rows
            .iter()
            .filter(|row| row.subject.as_str() == WMMA)
            .cloned()
            .collect();
        record.rows.extend(copies.into_iter().map(|row| Row {
            subject: k2.into(),
            ..row
        }));
        let judged = &mut record
            .row_mut(k2, &instance(), Source::Ptxas)
            .verdicts
            .get_mut(&GateId::R1)
            .unwrap();
        judged.verdict = if is_good {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        record
    };
    assert_eq!(
        moved(&with_k2(true), &with_k2(false)),
        [format!("WORSE {k2} gate R1")]
    );
}

#[test]
fn what_the_new_record_lacks_is_missing_and_what_it_does_not_declare_was_removed() {
    let base = emulated();
    let is_scalar = |row: &Row| row.subject.as_str() == SCALAR;
    let gone = emulated().without(is_scalar).changed(|meta| {
        meta.stages[0].variants.remove(0);
        meta.stages[0].claims.clear();
    });
    let title = "stage0-scalar claim wmma-qk: global bytes read as in stage0-scalar scalar";
    assert_eq!(
        moved(&base, &gone),
        [
            format!("DIFFERS {SCALAR} variant"),
            format!("DIFFERS {title}")
        ]
    );
    assert_eq!(
        verdict(&base, &gone),
        (Exit::Pass, "SAME"),
        "what is no longer declared was removed"
    );
    assert_eq!(moved(&gone, &base), [format!("DIFFERS {SCALAR} variant")]);
    let on_smaller = gone.changed(|meta| {
        meta.stages[0].refused.push(Refusal {
            variant: "scalar-32x64".into(),
            reason: "too large".into(),
        });
    });
    assert_eq!(
        moved(&base, &on_smaller)[0],
        format!("MISSING {SCALAR} variant")
    );

    let unchecked = || emulated().without(|row| is_scalar(row) && row.on == On::All);
    assert_eq!(
        moved(&base, &unchecked()),
        [format!("MISSING {SCALAR} variant")]
    );
    // Flags or a smaller tier explain it; the data is missing all the same.
    let selected = unchecked().changed(|meta| {
        meta.scope = Scope::Selected {
            flags: vec!["--variants x".into()],
        }
    });
    let quick = unchecked().changed(|meta| meta.tier = Tier::T0);
    for new in [selected, quick] {
        assert_eq!(verdict(&base, &new), (Exit::Inconclusive, "INCOMPLETE"));
    }
    let mut ungated = emulated();
    ungated.summary_mut(SCALAR).verdicts.remove(&GateId::C5);
    assert_eq!(
        moved(&base, &ungated),
        [format!("MISSING {SCALAR} gate C5")]
    );
    assert_eq!(verdict(&base, &ungated), (Exit::Inconclusive, "INCOMPLETE"));
    let uncounted =
        emulated().without(|row| row.subject.as_str() == CPASYNC && row.on == mission());
    assert_eq!(
        moved(&base, &uncounted),
        [
            "MISSING stage1-cpasync claim cpasync: global bytes read as in stage0-scalar wmma-qk"
                .to_string(),
            format!("MISSING {CPASYNC} counters on mission f16 full"),
        ]
    );
    let mut hazardous = emulated();
    *hazardous.row_mut(SCALAR, &mission(), Source::Emulator) =
        Row::new(SCALAR, mission(), Source::Emulator).note("not traced");
    assert!(
        moved(&base, &hazardous)
            .contains(&format!("MISSING {SCALAR} counters on mission f16 full"))
    );
}

#[test]
fn what_the_sources_no_longer_measure_was_removed() {
    // A metric and a claim that the registry no longer has, as they are read.
    let mut base = emulated().changed(|meta| {
        let claim = meta.stages[0].claims.remove(1);
        meta.stages[0]
            .retired
            .push(serde_json::json!({ "family": claim.family, "metric": "global_read_lines" }));
    });
    base.row_mut(SCALAR, &mission(), Source::Emulator)
        .retired
        .insert("global_read_lines".into(), 7.0.into());
    let new = emulated().changed(|meta| drop(meta.stages[0].claims.remove(1)));
    assert_eq!(
        moved(&base, &new),
        [
            "DIFFERS the record metric global_read_lines",
            "DIFFERS stage0-scalar claim wmma-qk: global_read_lines"
        ]
    );
    assert_eq!(verdict(&base, &new), (Exit::Pass, "SAME"));
    // One that ncu still has, and the emulator does not count any more.
    let mut base = emulated();
    base.row_mut(SCALAR, &mission(), Source::Emulator)
        .figures
        .insert(Metric::Occupancy, 0.5.into());
    assert_eq!(
        moved(&base, &emulated()),
        [format!("DIFFERS {SCALAR} occupancy on mission f16 full")]
    );
    assert_eq!(verdict(&base, &emulated()), (Exit::Pass, "SAME"));
    // What nvcc still says is missing where it is gone.
    let built = || timed(US).built(96, 0);
    let mut without = built();
    let row = without.row_mut(SCALAR, &instance(), Source::Ptxas);
    row.figures.remove(&Metric::Registers);
    let lost = moved(&built(), &without);
    assert!(
        lost.contains(&format!("MISSING {SCALAR} resources on f16 d64 sm_90a")),
        "{lost:?}"
    );
}

#[test]
fn an_arm_that_is_no_longer_timed_is_missing_unless_the_run_says_so() {
    let untimed = || {
        timed(US).without(|row| {
            row.subject.as_str() == CPASYNC && row.by == Source::Gpu && row.on != On::All
        })
    };
    let lost = |new: &Record| {
        let found = latencies(&timed(US), new, LATENCY_CHANGE);
        let found: Vec<_> = found.iter().filter(|d| d.change == Missing).collect();
        assert_eq!(
            (found.len(), found[0].subject.as_str(), &*found[0].why),
            (1, "stage1-cpasync", "1 timed in the base only")
        );
        found[0].required
    };
    assert!(lost(&untimed()));
    let scope = TimingScope {
        stage: "stage1-cpasync".into(),
        left_out: 1,
        of: 1,
        why: "only the best".into(),
    };
    assert!(!lost(&untimed().changed(|meta| meta.left_out.push(scope))));
}

#[test]
fn a_counter_that_doubles_is_worse_where_it_is_a_cost() {
    let doubled = |record: Record| {
        record
            .counted(SCALAR, 2_097_152, 0)
            .changed(|meta| drop(meta.stages[0].claims.pop()))
    };
    let base = |record: Record| record.changed(|meta| drop(meta.stages[0].claims.pop()));
    let of = |what: &str| format!("{what} on mission f16 full");
    assert_eq!(
        moved(&base(emulated()), &doubled(emulated())),
        [
            of(&format!("WORSE {SCALAR} global sectors read")),
            of(&format!("DIFFERS {SCALAR} global bytes read"))
        ]
    );
    assert_eq!(
        verdict(&base(emulated()), &doubled(emulated())),
        (Exit::Fail, "REGRESSION")
    );
    let fewer = moved(
        &base(emulated().counted(WMMA, 1_048_576, 12_288)),
        &base(emulated()),
    );
    assert_eq!(
        fewer[0],
        of(&format!("BETTER {WMMA} shared-load bank conflicts"))
    );
    // A faster kernel may read more.
    let faster = moved(&base(timed(US)), &doubled(timed([30.0, 20.0, 15.0])));
    assert!(
        faster.contains(&of(&format!("DIFFERS {SCALAR} global sectors read"))),
        "{faster:?}"
    );
    // Counters hold for one host compiler.
    let other = doubled(emulated()).changed(|meta| {
        meta.stages
            .iter_mut()
            .for_each(|s| s.host_compiler = "g++ 13".into())
    });
    assert_eq!(
        moved(&base(emulated()), &other),
        ["stage0-scalar", "stage1-cpasync"].map(|id| format!("MISSING {id} counters"))
    );
}

#[test]
fn registers_are_worse_only_where_they_cost_something() {
    let build = |registers: u32, spills: u32| timed(US).built(registers, spills);
    let said = |change: &str, what: &str| format!("{change} {SCALAR} {what} on f16 d64 sm_90a");
    assert_eq!(moved(&build(96, 0), &build(96, 0)), [""; 0]);
    // 512 / 88 and 512 / 96 are five blocks.
    assert_eq!(
        moved(&build(88, 0), &build(96, 0))[0],
        said("DIFFERS", "registers")
    );
    assert_eq!(verdict(&build(88, 0), &build(96, 0)), (Exit::Pass, "SAME"));
    let fewer_blocks = moved(&build(96, 0), &build(104, 0));
    assert_eq!(
        fewer_blocks[0],
        said("WORSE", "occupancy"),
        "{fewer_blocks:?}"
    );
    assert_eq!(
        verdict(&build(96, 0), &build(104, 0)),
        (Exit::Fail, "REGRESSION")
    );
    let spills = moved(&build(96, 0), &build(96, 8));
    assert_eq!(
        spills[..2],
        [
            format!("WORSE {SCALAR} gate R1"),
            format!("WORSE {WMMA} gate R1")
        ]
    );
    assert!(
        spills.contains(&said("WORSE", "spilled bytes")),
        "{spills:?}"
    );
    // The latency of that instance has the last word on occupancy, and none on spills.
    let faster = timed(US.map(|us| 0.9 * us)).built(104, 8);
    let decided = moved(&build(96, 0), &faster);
    assert!(
        decided.contains(&said("DIFFERS", "occupancy"))
            && decided.contains(&said("WORSE", "spilled bytes"))
    );
    let faster = timed(US.map(|us| 0.9 * us)).built(104, 0);
    assert_eq!(verdict(&build(96, 0), &faster), (Exit::Pass, "IMPROVED"));
    let with_e4m3 = |record: Record| {
        let of_f16 = record.row(&SCALAR.into(), &instance(), Source::Ptxas);
        let on = On::Instance {
            dtype: common::problem::Dtype::E4m3,
            head_dim: 64,
            arch: Some("sm_90a".into()),
        };
        let row = Row {
            on,
            ..of_f16.unwrap().clone()
        };
        record.with(row)
    };
    let decided = moved(&with_e4m3(build(96, 0)), &with_e4m3(faster));
    assert!(
        decided.contains(&format!("WORSE {SCALAR} occupancy on e4m3 d64 sm_90a")),
        "the latency of f16 says nothing of another type: {decided:?}"
    );
    // Another nvcc.
    let other = build(104, 8).changed(|meta| {
        for stage in &mut meta.stages {
            stage.device_compiler = DeviceCompiler::Built {
                nvcc: "13.1".into(),
                flags: vec![],
                archs: vec![],
            };
        }
    });
    assert!(moved(&build(96, 0), &other).contains(&"MISSING stage1-cpasync resources".to_string()));
}

#[test]
fn errors_are_judged_by_their_bounds() {
    let errors = |base: &Record, new: &Record| -> Vec<(Option<Metric>, Change)> {
        let found = differences(base, new, LATENCY_CHANGE);
        found
            .iter()
            .filter(|d| d.group == Group::Errors && d.subject.as_str() == SCALAR)
            .map(|d| (d.metric, d.change))
            .collect()
    };
    let with = |metric: Metric, share: f64| {
        let mut record = emulated();
        record
            .summary_mut(SCALAR)
            .figures
            .insert(metric, share.into());
        record
    };
    for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
        for (was, is, expected) in [
            (0.17, 0.26, Same),
            (0.17, 0.29, Worse),
            (0.29, 0.17, Better),
            (0.98, 1.02, Worse),
            (1.0, 1.02, Worse),
            (0.17, f64::NAN, Worse),
            (f64::NAN, f64::NAN, Worse),
            (f64::NAN, 0.17, Better),
        ] {
            let found = errors(&with(metric, was), &with(metric, is));
            assert!(
                found.contains(&(Some(metric), expected)),
                "{metric} {was} {is}: {found:?}"
            );
        }
    }
    // A case that was no number and is one hides no other that got worse; with cases of both, the largest has no say.
    let cases = |shares: [f64; 2]| {
        let mut record = with(Metric::ErrorOfBound, 0.9);
        let place = |shape: &str| {
            crate::record::Place::new(
                shape,
                common::problem::Dtype::F16,
                common::problem::Mask::Full,
            )
        };
        record.cases = ["mission", "long"]
            .into_iter()
            .zip(shares)
            .map(|(shape, share)| {
                let on = On::Case(place(shape), "normal:0".into());
                Row::new(SCALAR, on, Source::Emulator).figure(Metric::ErrorOfBound, share)
            })
            .collect();
        record
    };
    assert_eq!(
        errors(&cases([f64::NAN, 0.17]), &cases([0.17, 0.29]))[0].1,
        Worse
    );
    assert_eq!(
        errors(&cases([0.17, 0.29]), &cases([0.17, 0.1]))[0].1,
        Better
    );
    assert_eq!(
        errors(&cases([0.17, 0.17]), &cases([f64::NAN, 0.17]))[0].1,
        Worse,
        "no number is the worst, also beside a case that stays as it was"
    );
    // What another backend is off by is another figure.
    let mut on_gpu = timed(US);
    on_gpu.cases = cases([0.9, 0.9]).cases;
    assert_eq!(errors(&cases([0.17, 0.17]), &on_gpu), []);
}

#[test]
fn claims_that_fail_now_or_are_taken_back_are_said() {
    let title = "stage1-cpasync claim cpasync: global bytes read as in stage0-scalar wmma-qk";
    let wrong = || emulated().counted(CPASYNC, 1_048_577, 0);
    assert_eq!(moved(&emulated(), &wrong())[0], format!("WORSE {title}"));
    let refuted = moved(&emulated(), &wrong().refuting("it reads ahead"));
    assert!(
        refuted.contains(&format!("DIFFERS {title}"))
            && !refuted.contains(&format!("WORSE {title}"))
    );
    let silent = emulated().changed(|meta| drop(meta.stages[1].claims.pop()));
    assert_eq!(moved(&emulated(), &silent), [format!("DIFFERS {title}")]);

    // Of speed, and against peers: newly failing, fixed, lost, and on another GPU nobody's business.
    let speed = "stage1-cpasync claim cpasync >= 1.10x over stage0-scalar wmma-qk".to_string();
    assert!(moved(&timed(US), &timed([32.0, 20.0, 19.0])).contains(&format!("WORSE {speed}")));
    assert!(moved(&timed([32.0, 20.0, 19.0]), &timed(US)).contains(&format!("BETTER {speed}")));
    let beside = |us| timed(US).peers("mission", 10.0, &[("torch-flash", us, true)]);
    let over =
        "stage1-cpasync claim cpasync >= 1.50x over the fastest of PyTorch on mission f16 full"
            .to_string();
    assert_eq!(
        moved(&beside(16.0), &beside(14.0)),
        [format!("WORSE {over}")]
    );
    assert_eq!(
        verdict(&beside(16.0), &beside(14.0)),
        (Exit::Fail, "REGRESSION")
    );
    let lost = beside(16.0).without(|row| row.by == Source::Peers);
    assert_eq!(
        moved(&beside(16.0), &lost),
        [
            "MISSING stage1-cpasync claim cpasync >= 1.00x over PyTorch's flash on mission f16 full".to_string(),
            format!("MISSING {over}"),
        ]
    );
    assert_eq!(
        verdict(&beside(16.0), &lost),
        (Exit::Inconclusive, "INCOMPLETE")
    );
    let elsewhere = moved(&beside(16.0), &beside(14.0).on_gpu("NVIDIA L4"));
    assert!(
        elsewhere.iter().all(|line| !line.contains("claim")),
        "{elsewhere:?}"
    );
    // Words decide, not places.
    let Relation::Faster { at_least, .. } = &ladder()[0].claims[0].relation else {
        unreachable!()
    };
    let louder = timed(US).changed(|meta| {
        let Claim {
            relation: Relation::Faster { at_least, .. },
            ..
        } = &mut meta.stages[0].claims[0]
        else {
            unreachable!()
        };
        *at_least = 1.55;
    });
    assert!(
        *at_least < 1.55
            && moved(&timed(US), &louder).contains(
                &"DIFFERS stage0-scalar claim wmma-qk >= 1.50x over stage0-scalar scalar"
                    .to_string()
            )
    );
}

#[test]
fn a_gate_that_goes_blind_is_a_regression() {
    let mut blind = emulated();
    let fault = blind
        .rows
        .iter_mut()
        .find(|row| row.by == Source::SelfTest && row.value(Metric::CasesFailed) == Some(4.0));
    fault
        .unwrap()
        .verdicts
        .get_mut(&GateId::S1)
        .unwrap()
        .verdict = Verdict::Fail;
    assert_eq!(
        moved(&emulated(), &blind),
        ["WORSE the record self-test (S1)"]
    );
    assert_eq!(
        moved(&blind, &emulated()),
        ["BETTER the record self-test (S1)"]
    );
}

#[test]
fn a_self_test_that_is_gone_and_faults_that_are_planted_no_more_are_missed() {
    let is_fault =
        |row: &Row| row.by == Source::SelfTest && row.value(Metric::CasesFailed) == Some(4.0);
    for fewer in [
        emulated().without(|row| row.by == Source::SelfTest),
        emulated().without(is_fault),
    ] {
        let missing = "MISSING the record self-test (S1)".to_string();
        assert!(moved(&emulated(), &fewer).contains(&missing));
        assert_eq!(verdict(&emulated(), &fewer).1, "INCOMPLETE");
    }
    // One fault survives now, and another one is killed: as many as before.
    let survives = |what: &str| {
        let row = Row::new("self-test", On::Named(what.into()), Source::SelfTest);
        emulated().with(row.verdict(&GateResult::judge(GateId::S1, false, "no gate fails")))
    };
    let swapped = moved(&survives("stale tile"), &survives("zeros"));
    assert_eq!(swapped[0], "WORSE the record self-test (S1)");
}

#[test]
fn instances_and_cases_that_are_gone_are_missed() {
    let word = |base: &Record, new: &Record| verdict(base, new).1;
    let declared = Row::new(WMMA, instance(), Source::Kernel).figure(Metric::Threads, 128_u32);
    let built = || timed(US).built(96, 0).with(declared.clone());
    assert_eq!(word(&built(), &built()), "SAME");
    let is_of = |by: Source| move |row: &Row| row.by == by && row.subject.as_str() == WMMA;
    for by in [Source::Ptxas, Source::Kernel] {
        assert_eq!(
            word(&built(), &built().without(is_of(by))),
            "INCOMPLETE",
            "{by}"
        );
    }
    let other_build = |record: Record| {
        record.changed(|meta| {
            meta.toggles
                .insert("ATTENTION_CUDA_ARCHS".into(), "sm_89".into());
        })
    };
    let on_purpose = other_build(built().without(is_of(Source::Ptxas)));
    assert_eq!(word(&built(), &on_purpose), "SAME");
    let of_cases = |cases: u32| {
        let mut record = emulated();
        let figures = &mut record.summary_mut(WMMA).figures;
        figures.insert(Metric::Cases, cases.into());
        record
    };
    let (more, fewer) = (of_cases(9), of_cases(8));
    assert_eq!(word(&more, &fewer), "INCOMPLETE");
    assert_eq!(word(&fewer, &more), "SAME");
    // Of a selection on both sides, too; of one on one side there is less.
    let selected = |record: Record| {
        record.changed(|meta| {
            meta.scope = Scope::Selected {
                flags: vec!["--shapes mission".into()],
            }
        })
    };
    let fewer = selected(fewer);
    assert_eq!(word(&selected(more.clone()), &fewer), "INCOMPLETE");
    assert_eq!(word(&more, &fewer), "SAME");
}

#[test]
fn a_report_is_compared_with_the_newest_record_like_it() {
    let named = |name: &str, record: Record| (name.to_string(), record);
    let all = [
        named("1", timed(US)),
        named("2", timed(US)),
        named("3", timed(US).on_gpu("NVIDIA L4")),
        named("4", emulated()),
        named("5", timed(US).without(|row| row.on == On::All)),
    ];
    let since = |run: Option<&Record>, committed: &[(String, Record)]| {
        let stages = ladder();
        let known = Known {
            stages: &stages,
            run: run.map(|run| ("run", run)),
            committed,
        };
        super::since(&known).map(|(name, _, found)| {
            (
                name.to_string(),
                found.iter().filter(|d| d.change != Same).count(),
            )
        })
    };
    assert_eq!(since(Some(&timed(US)), &all), Some(("2".to_string(), 0)));
    assert_eq!(since(Some(&emulated()), &all), Some(("4".to_string(), 0)));
    assert_eq!(
        since(None, &all[..2]),
        Some(("1".to_string(), 0)),
        "a committed record is compared with those before it"
    );
    let limited = timed(US).changed(|meta| meta.device = "sm_89".parse().ok());
    assert_eq!(since(Some(&limited), &all), None);
    // A record of stage 1 alone, newer than a whole one, hides nothing of stage 0; nor does one that two runs of stages made.
    let of_stage_1 = |flags: &[&str]| {
        timed(US.map(|us| 0.5 * us))
            .without(|row| row.on == On::All && row.subject.stage() == "stage0-scalar")
            .changed(|meta| {
                meta.scope = Scope::Selected {
                    flags: flags.iter().map(|flag| flag.to_string()).collect(),
                }
            })
    };
    let [scalar, wmma, cpasync] = US;
    let as_committed = timed([scalar, wmma, 0.5 * cpasync]);
    let at_once = ["--stages 1"];
    for flags in [&at_once[..], &["--stages 1", Scope::AND, "--stages 1"]] {
        let both = [named("1", timed(US)), named("2", of_stage_1(flags))];
        let (name, moved) = since(Some(&as_committed), &both).unwrap();
        assert_eq!((name.as_str(), moved), ("2", 0));
    }
    let of_variants = ["--stages 1", "--variants cpasync-32x64"];
    assert!(!of_stage_1(&of_variants).is_of_stages());
    let left_out = |stage: &str| TimingScope {
        stage: stage.into(),
        left_out: 1,
        of: 2,
        why: "only the best".into(),
    };
    let older = timed(US).changed(|meta| {
        meta.left_out = ["stage0-scalar", "stage1-cpasync"].map(left_out).into();
    });
    let together = of_stage_1(&at_once).on_top_of(&older);
    assert_eq!(
        together.meta.left_out,
        [left_out("stage0-scalar")],
        "what the older one left out of other stages"
    );
    let slower = timed([scalar, 1.25 * wmma, 0.5 * cpasync]);
    assert_eq!(verdict(&together, &slower).1, "REGRESSION");
}
