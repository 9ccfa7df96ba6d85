use super::*;
use crate::judge::verdict::of_differences;
use crate::table::Place;
use crate::table::session::{Selection, Tier};
use crate::testing::{
    CPASYNC, SCALAR, US, VARIANTS, WMMA, emulated, instance, ladder, mission, table, timed,
};
use common::problem::{Dtype, Mask};
use common::verdict::GateResult;
use std::path::Path;

/// One run as a table, with what it says of its claims.
fn of_run(run: &Run, name: &str) -> Table {
    let mut table = table(&[run.clone().named(name)]);
    claims::restate(&mut table, &run.session.stages);
    table
}

fn differences(base: &Run, new: &Run) -> Vec<Difference> {
    let (old, now) = (of_run(base, "1"), of_run(new, "2"));
    let tables = Tables {
        base: &old,
        new: &now,
        covers: covers(&base.session, &new.session),
        threshold: LATENCY_CHANGE,
    };
    compare(&tables, &new.session.stages).differences
}

fn line(d: &Difference) -> String {
    format!("{} {} {}", d.change.word(), d.subject, d.title())
}

/// Exit code and word, and all that changed.
fn moved(base: &Run, new: &Run) -> String {
    let found = differences(base, new);
    let overall = of_differences(&found);
    let mut lines = vec![format!("{} {}", overall.exit.code(), overall.word)];
    let changed = found.iter().filter(|d| d.change != Change::Unchanged);
    lines.extend(
        changed.map(|d| format!("{}{}", line(d), if d.required { " (required)" } else { "" })),
    );
    lines.join("\n")
}

fn word(base: &Run, new: &Run) -> &'static str {
    of_differences(&differences(base, new)).word
}

/// The same kernels changed, if that was measured so from the start.
fn rebuilt(run: Run) -> Run {
    run.changed(|session| {
        for stage in &mut session.stages {
            stage.identity.insert_str(0, "new-");
        }
    })
}

fn is_of(subject: &'static str) -> impl Fn(&Row) -> bool {
    move |row| row.subject.as_str() == subject
}

/// A latency of `us` with an interval of 0.2 %.
fn latency(subject: &str, identity: &str, us: f64) -> Row {
    let row = Row::new(subject, mission(), Source::Gpu)
        .under("warm L2")
        .figure(Metric::P50, (us, 0.999 * us, 1.001 * us))
        .figure(Metric::P90, 1.002 * us)
        .figure(Metric::SmMhz, 1980_u32);
    Row {
        identity: Some(identity.into()),
        ..row
    }
}

/// What becomes of a kernel that changed, in a session whose 100 unchanged kernels took `shift` times as long, give or take
/// `spread`.
fn in_session(old: Row, new: Row, controls: u32, shift: f64, spread: f64) -> Comparison {
    let session = |name: &str, rows: Vec<Row>| {
        let mut table = Table::default();
        table.extend(rows.into_iter().map(|row| Row {
            session: name.into(),
            ..row
        }));
        table
    };
    let controls = |us: &dyn Fn(f64) -> f64| {
        let controls = (0..controls)
            .map(|i| latency(&format!("s/{i}"), "same", us(f64::from(i) / 50.0 - 1.0)));
        controls.collect::<Vec<_>>()
    };
    let was = [controls(&|_| 10.0), vec![old]].concat();
    let is = [
        controls(&|at| 10.0 * shift * (1.0 + 1.05 * spread * at)),
        vec![new],
    ]
    .concat();
    let tables = Tables {
        base: &session("1", was),
        new: &session("2", is),
        covers: true,
        threshold: LATENCY_CHANGE,
    };
    compare(&tables, &[])
}

/// What is said of the kernel that changed.
fn changed(found: &Comparison) -> (Change, String) {
    let mut found = found.differences.iter();
    let of_changed = found.find(|d| d.subject.as_str() == "s/v").unwrap();
    (of_changed.change, of_changed.why.clone())
}

#[test]
fn changed_kernels_are_judged_by_how_far_unchanged_ones_moved() {
    use Change::{Better, Inconclusive, Unchanged, Worse};
    for (factor, controls, shift, spread, expected, margin) in [
        (1.03, 100, 1.01, 0.015, Worse, "beyond 2.0 %"),
        (1.03, 100, 0.99, 0.015, Worse, "beyond 2.0 %"),
        (1.05, 100, 1.01, 0.015, Worse, "beyond 2.0 %"),
        (
            1.02,
            100,
            1.01,
            0.015,
            Inconclusive,
            "the interval crosses 2.0 %",
        ),
        (1.01, 100, 1.01, 0.015, Unchanged, "within 2.0 %"),
        (1.00, 100, 1.04, 0.015, Unchanged, "within 2.0 %"),
        (0.97, 100, 1.01, 0.015, Better, "beyond 2.0 %"),
        (
            1.03,
            100,
            1.01,
            0.039,
            Unchanged,
            "within 4.0 %, as far as 95 of 100 of 100 unchanged kernels moved",
        ),
        // Too few to tell.
        (
            1.05,
            3,
            1.0,
            0.001,
            Worse,
            "beyond 3.0 %, as far as kernels move between sessions",
        ),
        (
            1.02,
            3,
            1.0,
            0.001,
            Unchanged,
            "within 3.0 %, as far as kernels move between sessions",
        ),
    ] {
        let (old, new) = (
            latency("s/v", "old", 20.0),
            latency("s/v", "new", 20.0 * factor * shift),
        );
        let found = in_session(old, new, controls, shift, spread);
        let of_controls = found
            .differences
            .iter()
            .filter(|d| d.subject.as_str() != "s/v");
        let unchanged = of_controls.filter(|d| d.change == Unchanged);
        assert_eq!(unchanged.count(), controls as usize);
        let expected = (expected, margin.to_string());
        assert_eq!(changed(&found), expected, "{factor} in {shift} ± {spread}");
    }
}

#[test]
fn a_kernel_that_has_not_changed_is_neither_worse_nor_better() {
    for moved in [0.5, 0.9, 1.1, 2.0] {
        let of = |old: [Option<&str>; 2], new: [Option<&str>; 2]| {
            let row = |us, [identity, code]: [Option<&str>; 2]| Row {
                identity: identity.map(String::from),
                code: code.map(String::from),
                ..latency("s/v", "", us)
            };
            let found = in_session(row(20.0, old), row(20.0 * moved, new), 100, 1.0, 0.01);
            changed(&found).0
        };
        let by_far = if moved < 1.0 {
            Change::Better
        } else {
            Change::Worse
        };
        // By source, or by machine code: a comment changes the identity alone.
        assert_eq!(of([Some("a"), None], [Some("a"), None]), Change::Unchanged);
        assert_eq!(
            of([Some("a"), Some("x")], [Some("b"), Some("x")]),
            Change::Unchanged
        );
        assert_eq!(of([Some("a"), Some("x")], [Some("b"), Some("y")]), by_far);
        assert_eq!(
            of([None, None], [None, None]),
            by_far,
            "nothing says that it is one kernel"
        );
    }
}

#[test]
fn noise_and_clocks_keep_a_latency_inconclusive() {
    let slower = |metric, value: f64| {
        let new = latency("s/v", "new", 21.0).figure(metric, value);
        let found = in_session(latency("s/v", "old", 20.0), new, 100, 1.0, 0.01);
        changed(&found)
    };
    let why = "beyond 2.0 %, but not beyond the samples' noise of 8.0 %";
    assert_eq!(
        slower(Metric::P90, 1.08 * 21.0),
        (Change::Inconclusive, why.into())
    );
    let why = "beyond 2.0 % in time, but not in cycles: 1980 MHz against 1886 MHz";
    assert_eq!(
        slower(Metric::SmMhz, 1886.0),
        (Change::Inconclusive, why.into())
    );
    assert_eq!(slower(Metric::SmMhz, 1980.0).0, Change::Worse);
    let noisy = latency("s/v", "old", 20.0).figure(Metric::P90, 1.08 * 20.0);
    let found = in_session(noisy, latency("s/v", "new", 21.0), 100, 1.0, 0.01);
    assert_eq!(changed(&found).0, Change::Inconclusive);
    // A wrong kernel's time says nothing, on either side.
    let wrong = |row: Row| row.verdict(&GateResult::fail(GateId::C2, "too large"));
    let [old, new] = [("old", 20.0), ("new", 21.0)].map(|(of, us)| latency("s/v", of, us));
    for (old, new) in [(wrong(old.clone()), new.clone()), (old, wrong(new))] {
        let found = in_session(old, new, 100, 1.0, 0.01);
        let mut found = found.differences.iter();
        let of_p50 = found.find(|d| d.what == What::Metric(Metric::P50)).unwrap();
        let says = (of_p50.change, &*of_p50.why);
        assert_eq!(says, (Change::Missing, "s/v fails C2"));
    }
    // Two speeds in one kernel: its median is anywhere between them.
    let two_speeds: Vec<f64> = (0..40)
        .map(|i| if i % 2 == 0 { 20.0 } else { 24.0 })
        .collect();
    let wide = || timed(US).sampled(SCALAR, mission(), &two_speeds);
    let found = differences(&wide(), &rebuilt(wide()));
    let of_scalar = found.iter().find(|d| d.ratio.is_some()).unwrap();
    assert_eq!(
        (of_scalar.subject.as_str(), of_scalar.change),
        (SCALAR, Change::Inconclusive)
    );
}

#[test]
fn a_verdict_that_turns_says_how() {
    use Change::{Better, Inconclusive, Missing, Unchanged, Worse};
    use Verdict::{Ambiguous, Fail, NoData, Pass};
    for (was, is, expected) in [
        (None, Fail, Some(Worse)),
        (Some(Pass), Fail, Some(Worse)),
        (Some(NoData), Fail, Some(Worse)),
        (Some(Fail), Fail, Some(Unchanged)),
        (Some(Fail), Pass, Some(Better)),
        (Some(Pass), Ambiguous, Some(Inconclusive)),
        (Some(Pass), NoData, Some(Missing)),
        (Some(Fail), NoData, Some(Missing)),
        (Some(NoData), Pass, None),
        (None, Pass, None),
    ] {
        assert_eq!(turned(was, is), expected, "{was:?} {is:?}");
    }
}

#[test]
fn latencies_that_disagree_say_nothing_of_their_kernel() {
    let row = Row::new("s/v", mission(), Source::Gpu);
    let on = |shape: &str| On::Problem(Place::new(shape, Dtype::F16, Mask::Full));
    let compiled = Row::new("s/v", crate::testing::instance(), Source::Ptxas);
    let mut latencies = Latencies::default();
    let mut verdict = |on: On, change| {
        let what = What::Metric(Metric::P50);
        let of = Difference::new(&row, what, Group::Latency, change, "");
        latencies.note(&Difference { on, ..of });
        latencies.verdict(&compiled)
    };
    assert_eq!(verdict(on("small"), Change::Unchanged), None);
    assert_eq!(verdict(mission(), Change::Better), Some(Change::Better));
    assert_eq!(verdict(on("long"), Change::Worse), None);
}

/// Two sessions of one H200 model, a day apart, on other cards: no kernel had changed.
#[test]
fn between_real_sessions_nothing_is_worse_and_a_slower_stage_is_found() {
    let read = |name: &str| {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
        Table::read(&data.join(name)).unwrap()
    };
    let (older, newer) = (read("older"), read("newer"));
    let changes = |base: &Table, new: &Table| {
        let tables = Tables {
            base,
            new,
            covers: true,
            threshold: LATENCY_CHANGE,
        };
        let found = compare(&tables, &[]);
        let mut counts: BTreeMap<(&str, Change), usize> = BTreeMap::new();
        for d in &found.differences {
            *counts
                .entry((
                    if d.subject.stage() == "stage5-swizzle" {
                        "5"
                    } else {
                        "others"
                    },
                    d.change,
                ))
                .or_default() += 1;
        }
        (counts, found.drift)
    };
    for (base, new) in [(&older, &newer), (&newer, &older)] {
        let (counts, drift) = changes(base, new);
        let all = [
            (("5", Change::Unchanged), 118),
            (("others", Change::Unchanged), 138),
        ];
        assert_eq!(counts, all.into());
        assert_eq!(drift.kernels, 256);
        assert!(
            (0.98..1.02).contains(&drift.shift) && drift.spread < 0.03,
            "{drift:?}"
        );
        let mut slower = new.clone();
        for row in new
            .rows()
            .filter(|row| row.subject.stage() == "stage5-swizzle")
        {
            let mut row = Row {
                identity: Some("another".into()),
                ..row.clone()
            };
            for metric in [Metric::P50, Metric::P90] {
                let Figure { value, interval } = row.figures[&metric];
                let slow = |us: f64| 1.03 * us;
                let interval = interval.map(|(low, high)| (slow(low), slow(high)));
                row.figures.insert(
                    metric,
                    Figure {
                        value: slow(value),
                        interval,
                    },
                );
            }
            slower.append(row);
        }
        let (counts, _) = changes(base, &slower);
        let of = |change| counts.get(&("5", change)).copied().unwrap_or_default();
        assert!(
            of(Change::Worse) > 0 && of(Change::Better) == 0,
            "{counts:?}"
        );
        assert_eq!(counts[&("others", Change::Unchanged)], 138);
    }
}

#[test]
fn a_run_against_itself_is_the_same_everywhere() {
    for run in [
        timed(US).built(96, 0).clean(),
        emulated(),
        timed(US).peers("mission", 10.0, &[("torch-flash", 16.0, true)]),
    ] {
        assert_eq!(moved(&run, &run), "0 SAME");
    }
    let committed = crate::testing::results().of_gpu("nvidia-h200");
    let tables = Tables {
        base: &committed,
        new: &committed,
        covers: true,
        threshold: LATENCY_CHANGE,
    };
    assert!(
        compare(&tables, &[]).differences.is_empty(),
        "rows of one session say nothing"
    );
}

#[test]
fn what_is_not_the_same_thing_is_missing_with_the_reason() {
    let slow = || rebuilt(timed(US.map(|us| 2.0 * us)));
    let other_driver = slow().changed(|session| match &mut session.machine.gpu {
        Gpu::Present { driver, .. } => *driver = "600.1".into(),
        Gpu::Absent { .. } => unreachable!(),
    });
    let mut other_cache = slow();
    for subject in VARIANTS {
        other_cache.row_mut(subject, &mission(), Source::Gpu).under = Some("cold L2".into());
    }
    let wrong = VARIANTS
        .into_iter()
        .fold(slow(), |run, subject| run.failing(subject, GateId::C2));
    let mut wrong_as_timed = slow();
    for subject in VARIANTS {
        let row = wrong_as_timed.row_mut(subject, &mission(), Source::Gpu);
        *row = (row.clone()).verdict(&GateResult::judge(GateId::C5, false, "they differ"));
    }
    for (new, why) in [
        (
            &slow().on_gpu("NVIDIA L4"),
            "NVIDIA H200 (sm_90, 132 SMs), driver 580.159.04 against NVIDIA L4 (sm_90, 132 SMs), driver 580.159.04",
        ),
        (
            &other_driver,
            "NVIDIA H200 (sm_90, 132 SMs), driver 580.159.04 against NVIDIA H200 (sm_90, 132 SMs), driver 600.1",
        ),
        (&other_cache, "warm L2 against cold L2"),
        (&wrong, "stage0-scalar/scalar-32x64 fails C2"),
        (&wrong_as_timed, "stage0-scalar/scalar-32x64 fails C5"),
    ] {
        let mut found = differences(&timed(US), new);
        found.retain(|d| d.what == What::Metric(Metric::P50));
        assert_eq!(
            (found.len(), found[0].change, &*found[0].why),
            (3, Change::Missing, why)
        );
        assert!(
            found
                .iter()
                .all(|d| d.change == Change::Missing && d.required)
        );
    }
    // Of another backend there is nothing but what the build says.
    let found = differences(&timed(US), &emulated());
    let is_of_gpu = |d: &&Difference| d.by == Source::Gpu || d.group == Group::Latency;
    assert_eq!(found.iter().filter(is_of_gpu).count(), 0);
    let self_test_alone = emulated()
        .without(|row| row.by != Source::SelfTest)
        .changed(|session| session.stages.clear());
    assert_eq!(word(&self_test_alone, &self_test_alone), "NO DATA");
    let outdated = Difference::outdated("stage1-cpasync");
    assert_eq!(of_differences(&[outdated]).word, "INCOMPLETE");
}

#[test]
fn the_same_question_to_a_smaller_run_requires_nothing() {
    let stages = |stage: &str| Selection {
        stages: vec![stage.into()],
        ..Selection::default()
    };
    let with = |change: &dyn Fn(&mut Session)| timed(US).changed(change).session;
    let whole = with(&|_| ());
    let quick = with(&|session| session.tier = Tier::T0);
    let one = with(&|session| session.scope = stages("1"));
    let other = with(&|session| session.scope = stages("2"));
    let limited = with(&|session| session.device = "sm_89".parse().ok());
    for (base, new, expected) in [
        (&whole, &whole, true),
        (&quick, &whole, true),
        (&one, &whole, true),
        (&one, &one, true),
        (&whole, &quick, false),
        (&whole, &one, false),
        (&one, &other, false),
        (&whole, &limited, false),
        (&emulated().session, &whole, false),
    ] {
        assert_eq!(covers(base, new), expected);
    }
}

#[test]
fn gates_that_fail_now_are_worse() {
    let fails = || emulated().failing(WMMA, GateId::C3);
    let clean = || timed(US).clean();
    let found = || clean().sanitized(CPASYNC, [Verdict::Pass, Verdict::Fail]);
    // A variant whose name begins with another's.
    let with_k2 = |is_good: bool| {
        let mut run = timed(US).built(96, 0);
        let mut variant = run.session.stages[0].variants[1].clone();
        variant.name += "-k2";
        run.session.stages[0].variants.push(variant);
        let rows: Vec<Row> = run.table.about(&WMMA.into()).cloned().collect();
        let k2 = "stage0-scalar/wmma-qk-32x64-k2";
        for row in rows.into_iter().filter(|row| row.against.is_none()) {
            run.append(Row {
                subject: k2.into(),
                ..row
            });
        }
        let row = run.row_mut(k2, &instance(), Source::Ptxas);
        *row = row.clone().verdict(&GateResult::judge(
            GateId::R1,
            is_good,
            "spilled bytes 8 > 0",
        ));
        run
    };
    let mut blind = emulated();
    let is_fault =
        |row: &Row| row.by == Source::SelfTest && row.value(Metric::CasesFailed) == Some(4.0);
    let fault = blind
        .table
        .rows()
        .find(|row| is_fault(row))
        .unwrap()
        .clone();
    blind.append(fault.verdict(&GateResult::judge(GateId::S1, false, "no gate fails")));
    let survives = |what: &str| {
        let row = Row::new("self-test", On::Named(what.into()), Source::SelfTest);
        emulated().with(row.verdict(&GateResult::judge(GateId::S1, false, "no gate fails")))
    };
    let lines = [
        (emulated(), fails()),
        (fails(), emulated()),
        (fails(), fails()),
        (timed(US), timed(US).failing(WMMA, GateId::C3)),
        (
            emulated(),
            emulated().says(WMMA, GateId::C5, Verdict::Ambiguous),
        ),
        (clean(), found()),
        (timed(US), found()),
        (found(), clean()),
        (clean(), timed(US)),
        (with_k2(true), with_k2(false)),
        // Of the self-test: a fault survives, is killed again, is planted no more; nothing was planted; one for another.
        (emulated(), blind.clone()),
        (blind, emulated()),
        (emulated(), emulated().without(is_fault)),
        (
            emulated(),
            emulated().without(|row| row.by == Source::SelfTest),
        ),
        (survives("stale tile"), survives("zeros")),
    ]
    .map(|(base, new)| moved(&base, &new) + "\n\n");
    insta::assert_snapshot!(lines.concat(), @"
    1 REGRESSION
    worse stage0-scalar/wmma-qk-32x64 gate C3

    0 IMPROVED
    improved stage0-scalar/wmma-qk-32x64 gate C3

    0 SAME

    1 REGRESSION
    worse stage0-scalar/wmma-qk-32x64 gate C3
    not comparable stage0-scalar/wmma-qk claim wmma-qk p50 over stage0-scalar scalar on mission f16 full (required)
    not comparable stage0-scalar/wmma-qk-32x64 p50 on mission f16 full (required)
    not comparable stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full (required)

    3 AMBIGUOUS
    inconclusive stage0-scalar/wmma-qk-32x64 gate C5

    1 REGRESSION
    worse stage1-cpasync/cpasync-32x64 gate C7

    1 REGRESSION
    worse stage1-cpasync/cpasync-32x64 gate C7

    0 IMPROVED
    improved stage1-cpasync/cpasync-32x64 gate C7

    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 gate C7 (required)
    not comparable stage0-scalar/wmma-qk-32x64 gate C7 (required)
    not comparable stage1-cpasync/cpasync-32x64 gate C7 (required)

    1 REGRESSION
    worse stage0-scalar/wmma-qk-32x64-k2 gate R1 on f16 d64 sm_90a

    1 REGRESSION
    worse self-test gate S1 on : zeros

    0 IMPROVED
    improved self-test gate S1 on : zeros

    3 INCOMPLETE
    not comparable self-test gate S1 on : zeros (required)

    3 INCOMPLETE
    not comparable self-test gate S1 on : correct model (required)
    not comparable self-test gate S1 on : zeros (required)

    1 REGRESSION
    worse self-test gate S1 on : zeros
    not comparable self-test gate S1 on : stale tile (required)
    ");
}

#[test]
fn what_the_new_side_lacks_is_missing_and_what_it_does_not_declare_was_removed() {
    let gone = || {
        emulated().without(is_of(SCALAR)).changed(|session| {
            session.stages[0].variants.remove(0);
            session.stages[0].claims.clear();
        })
    };
    let unchecked = || emulated().without(|row| is_of(SCALAR)(row) && row.on == On::All);
    let mut ungated = emulated();
    ungated.summary_mut(SCALAR).verdicts.remove(&GateId::C5);
    let uncounted = emulated().without(|row| is_of(CPASYNC)(row) && row.on == mission());
    let not_traced = emulated()
        .without(|row| is_of(SCALAR)(row) && row.on == mission())
        .with(Row::new(SCALAR, mission(), Source::Emulator).note("not traced"));
    let untimed = || {
        timed(US).without(|row| is_of(CPASYNC)(row) && row.by == Source::Gpu && row.on != On::All)
    };
    let declared = Row::new(WMMA, instance(), Source::Kernel).figure(Metric::Threads, 128_u32);
    let built = || timed(US).built(96, 0).with(declared.clone());
    let not_built = |by: Source| built().without(move |row| is_of(WMMA)(row) && row.by == by);
    let on_purpose = not_built(Source::Ptxas).changed(|session| {
        let toggle = ("ATTENTION_CUDA_ARCHS".into(), "sm_89".into());
        session.toggles.extend([toggle]);
    });
    let mut unread = built();
    let row = unread.row_mut(SCALAR, &instance(), Source::Ptxas);
    row.figures.remove(&Metric::Registers);
    let of_cases = |cases: u32| {
        let mut run = emulated();
        let figures = &mut run.summary_mut(WMMA).figures;
        figures.insert(Metric::Cases, cases.into());
        run
    };
    let lines = [
        (emulated(), gone()),
        (gone(), emulated()),
        (emulated(), unchecked()),
        (
            emulated(),
            unchecked().changed(|session| session.tier = Tier::T0),
        ),
        (emulated(), ungated),
        (emulated(), uncounted),
        (emulated(), not_traced),
        (timed(US), untimed()),
        (built(), not_built(Source::Ptxas)),
        (built(), not_built(Source::Kernel)),
        (built(), on_purpose),
        (built(), unread),
        (of_cases(9), of_cases(8)),
        (of_cases(8), of_cases(9)),
    ]
    .map(|(base, new)| moved(&base, &new) + "\n\n");
    insta::assert_snapshot!(lines.concat(), @"
    0 SAME
    changed (informational) stage0-scalar/scalar-32x64 variant
    changed (informational) stage0-scalar/wmma-qk claim wmma-qk global bytes read against stage0-scalar scalar on mission f16 full
    changed (informational) stage0-scalar/wmma-qk claim wmma-qk p50 over stage0-scalar scalar on mission f16 full

    0 SAME
    changed (informational) stage0-scalar/scalar-32x64 variant

    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 variant (required)

    0 SAME

    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 gate C5 (required)

    3 INCOMPLETE
    not comparable stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full (required)
    not comparable stage1-cpasync/cpasync-32x64 counters on mission f16 full (required)

    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk claim wmma-qk global bytes read against stage0-scalar scalar on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 global bytes read on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 global sectors read on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 shared-load wavefronts on mission f16 full (required)
    not comparable stage0-scalar/scalar-32x64 shared-load bank conflicts on mission f16 full (required)

    3 INCOMPLETE
    not comparable stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full (required)
    not comparable stage1-cpasync/cpasync-32x64 p50 on mission f16 full (required)

    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a (required)

    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a (required)

    0 SAME
    not comparable stage0-scalar/wmma-qk-32x64 resources on f16 d64 sm_90a

    3 INCOMPLETE
    not comparable stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a (required)

    3 INCOMPLETE
    not comparable stage0-scalar/wmma-qk-32x64 cases (required)

    0 SAME
    changed (informational) stage0-scalar/wmma-qk-32x64 cases
    ");
}

#[test]
fn counters_and_resources_are_worse_where_they_cost_something() {
    let unclaimed = |run: Run| run.changed(|session| drop(session.stages[0].claims.pop()));
    let read = |run: Run, bytes| unclaimed(run.counted(SCALAR, bytes, 0));
    let base = || read(emulated(), 1_048_576);
    let other_compiler =
        read(emulated(), 2_097_152).changed(|session| session.host_compiler = "g++ 13".into());
    let build = |registers, spills| timed(US).built(registers, spills);
    let fast_build = |registers, spills| {
        let run = rebuilt(timed(US.map(|us| 0.9 * us)).built(registers, spills));
        // Other machine code.
        let rows: Vec<Row> = run.table.by(Source::Ptxas).cloned().collect();
        let rows = rows.into_iter().map(|row| Row {
            code: row.code.clone().map(|code| format!("new {code}")),
            ..row
        });
        rows.fold(run, Run::with).changed(|_| ())
    };
    let with_e4m3 = |mut run: Run| {
        let row = run.row_mut(SCALAR, &instance(), Source::Ptxas).clone();
        let on = On::Instance {
            dtype: Dtype::E4m3,
            head_dim: 64,
            arch: Some("sm_90a".into()),
        };
        run.with(Row { on, ..row })
    };
    let other_nvcc = build(104, 8).changed(|session| {
        session.device_compiler = DeviceCompiler::Built {
            nvcc: "13.1".into(),
            flags: vec![],
            archs: vec!["sm_90a".into()],
        };
    });
    let of_scalar = |(base, new): (Run, Run)| {
        let found = moved(&base, &new);
        let is_shown = |line: &&str| !line.contains(WMMA) && !line.contains(CPASYNC);
        found
            .lines()
            .filter(is_shown)
            .collect::<Vec<_>>()
            .join("\n")
            + "\n\n"
    };
    let lines = [
        (base(), read(emulated(), 2_097_152)),
        (
            unclaimed(emulated().counted(SCALAR, 1_048_576, 12_288)),
            base(),
        ),
        // A faster kernel may read more.
        (
            read(timed(US), 1_048_576),
            rebuilt(read(timed([28.0, 18.0, 13.0]), 2_097_152)),
        ),
        (base(), other_compiler),
        // 512 / 88 and 512 / 96 are five blocks, 512 / 104 four.
        (build(88, 0), build(96, 0)),
        (build(96, 0), build(104, 0)),
        (build(96, 0), build(96, 8)),
        // The latency of that instance has the last word on occupancy, and none on spills; that of f16 says nothing of e4m3.
        (build(96, 0), fast_build(104, 0)),
        (build(96, 0), fast_build(104, 8)),
        (with_e4m3(build(96, 0)), with_e4m3(fast_build(104, 0))),
        (build(96, 0), other_nvcc),
    ]
    .map(of_scalar);
    insta::assert_snapshot!(lines.concat(), @"
    1 REGRESSION
    worse stage0-scalar/scalar-32x64 global sectors read on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full

    0 IMPROVED
    improved stage0-scalar/scalar-32x64 shared-load bank conflicts on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 shared-load wavefronts on mission f16 full

    0 IMPROVED
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global bytes read on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 global sectors read on mission f16 full

    0 SAME
    not comparable stage0-scalar/scalar-32x64 errors
    not comparable stage0-scalar/scalar-32x64 counters on mission f16 full

    0 SAME
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a

    1 REGRESSION
    worse stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a

    1 REGRESSION
    worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
    worse stage0-scalar/scalar-32x64 spilled bytes on f16 d64 sm_90a

    0 IMPROVED
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a

    1 MIXED
    worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    worse stage0-scalar/scalar-32x64 spilled bytes on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a

    1 MIXED
    improved stage0-scalar/scalar-32x64 p50 on mission f16 full
    worse stage0-scalar/scalar-32x64 occupancy on e4m3 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 occupancy on f16 d64 sm_90a
    changed (informational) stage0-scalar/scalar-32x64 registers on e4m3 d64 sm_90a

    1 REGRESSION
    worse stage0-scalar/scalar-32x64 gate R1 on f16 d64 sm_90a
    not comparable stage0-scalar/scalar-32x64 resources on f16 d64 sm_90a
    ");
}

#[test]
fn errors_are_judged_by_their_bounds() {
    use Change::{Better, Unchanged, Worse};
    let with = |metric: Metric, share: f64| {
        let mut run = emulated();
        let figures = &mut run.summary_mut(SCALAR).figures;
        figures.insert(metric, share.into());
        run
    };
    let errors = |base: &Run, new: &Run, metric: Metric| {
        let mut found = differences(base, new);
        found.retain(|d| d.subject.as_str() == SCALAR && d.what == What::Metric(metric));
        found.iter().map(|d| d.change).collect::<Vec<_>>()
    };
    for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
        for (was, is, expected) in [
            (0.17, 0.26, Unchanged),
            (0.0, 0.1, Unchanged),
            (0.17, 0.29, Worse),
            (0.29, 0.17, Better),
            (0.98, 1.02, Worse),
            (1.0, 1.02, Worse),
            (0.17, f64::NAN, Worse),
            (f64::NAN, f64::NAN, Worse),
            (f64::NAN, 0.17, Better),
        ] {
            let found = errors(&with(metric, was), &with(metric, is), metric);
            assert_eq!(found, [expected], "{metric} {was} {is}");
        }
    }
    // A case that was no number and is one hides no other that got worse.
    let cases = |shares: [f64; 2]| {
        let mut run = with(Metric::ErrorOfBound, 0.9);
        let row = |(shape, share)| {
            let place = Place::new(shape, Dtype::F16, Mask::Full);
            let on = On::Case(place, "normal:0".into());
            Row::new(SCALAR, on, Source::Emulator).figure(Metric::ErrorOfBound, share)
        };
        run.extend(["mission", "long"].into_iter().zip(shares).map(row));
        run
    };
    for (was, is, expected) in [
        (
            [f64::NAN, 0.17],
            [0.17, 0.29],
            vec![Unchanged, Worse, Better],
        ),
        ([0.17, 0.29], [0.17, 0.1], vec![Unchanged, Better]),
        ([0.17, 0.17], [f64::NAN, 0.17], vec![Unchanged, Worse]),
    ] {
        let mut found = errors(&cases(was), &cases(is), Metric::ErrorOfBound);
        found.sort_by_key(|change| (*change != Unchanged, *change));
        assert_eq!(found, expected);
    }
    // What another backend is off by is another figure.
    let mut on_gpu = timed(US);
    let row = on_gpu.summary_mut(SCALAR);
    row.figures.insert(Metric::ErrorOfBound, 0.9.into());
    assert_eq!(
        errors(
            &with(Metric::ErrorOfBound, 0.17),
            &on_gpu,
            Metric::ErrorOfBound
        ),
        []
    );
}

#[test]
fn claims_that_fail_now_or_are_taken_back_are_said() {
    let wrong = || emulated().counted(CPASYNC, 1_048_577, 0);
    let slow = || timed([32.0, 20.0, 19.0]);
    let beside = |us| timed(US).peers("mission", 10.0, &[("torch-flash", us, true)]);
    let silent = emulated().changed(|session| drop(session.stages[1].claims.pop()));
    let lines = [
        (emulated(), wrong()),
        (emulated(), wrong().refuting("it reads ahead")),
        (wrong(), wrong().refuting("it reads ahead")),
        (emulated(), silent),
        (timed(US), slow()),
        (slow(), timed(US)),
        (beside(16.0), beside(14.0)),
        (
            beside(16.0),
            beside(16.0).without(|row| row.by == Source::Peers),
        ),
    ]
    .map(|(base, new)| moved(&base, &new) + "\n\n");
    insta::assert_snapshot!(lines.concat(), @"
    1 REGRESSION
    worse stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
    changed (informational) stage1-cpasync/cpasync-32x64 global bytes read on mission f16 full

    0 SAME
    changed (informational) stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full
    changed (informational) stage1-cpasync/cpasync-32x64 global bytes read on mission f16 full

    0 SAME

    0 SAME
    changed (informational) stage1-cpasync/cpasync claim cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full

    1 REGRESSION
    worse stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full

    0 IMPROVED
    improved stage1-cpasync/cpasync claim cpasync p50 over stage0-scalar wmma-qk on mission f16 full

    1 REGRESSION
    worse stage1-cpasync/cpasync claim cpasync p50 over the fastest of PyTorch on mission f16 full

    3 INCOMPLETE
    not comparable stage1-cpasync/cpasync claim cpasync p50 over PyTorch's flash on mission f16 full (required)
    not comparable stage1-cpasync/cpasync claim cpasync p50 over the fastest of PyTorch on mission f16 full (required)
    ");
}

#[test]
fn a_session_keeps_what_it_changed() {
    let old = of_run(&timed(US), "1");
    let new = of_run(
        &rebuilt(timed([32.0, 21.0, 14.0]).failing(SCALAR, GateId::C3)),
        "2",
    );
    let changes = of_accepting(&old, &new, &ladder()).changes("1");
    let worse: Vec<String> = (changes.worse.iter())
        .map(|of| {
            format!(
                "{} {}: {} -> {}, {}",
                of.subject, of.metric, of.base, of.new, of.why
            )
        })
        .collect();
    insta::assert_snapshot!(format!("{}: {:?}\n{}", changes.since, changes.counts, worse.join("\n")), @r#"
    1: {"improved": 1, "not comparable": 2, "unchanged": 33, "worse": 2}
    stage0-scalar/scalar-32x64 gate C3: PASS -> FAIL, too large
    stage0-scalar/wmma-qk-32x64 p50 on mission f16 full: 20.02 µs -> 21.02 µs, 0.95x; beyond 3.0 %, as far as kernels move between sessions
    "#);
}
