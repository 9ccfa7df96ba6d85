//! Reports of tables and of runs on top of them; and what the committed table of the H200 says.

use super::best::{Latency, best_of, latency, over_previous, time, variant};
use super::diff::{Change, Difference, Group, What};
use super::peers::{Outcome, outcome, problems};
use super::state::compiled;
use super::verdict::{Exit, Report, of_differences, report, report_of_run};
use super::*;
use crate::measure::rows;
use crate::table::session::{Measurable, Progress, Refusal, Selection, Tier};
use crate::table::{Figure, On, Place, Relation};
use crate::testing::{
    CPASYNC, SCALAR, US, VARIANTS, WMMA, emulated, ladder, mission, results, suppressed, table,
    timed,
};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, GateResult, Verdict};
use std::path::Path;

fn show(row: &Row) -> String {
    let shown = Metric::P50.show(row.value(Metric::P50).unwrap());
    shown.trim_end_matches(" µs").to_string()
}

fn place() -> Place {
    Place::claims(Dtype::F16)
}

/// What `ask` says of the report of a run on top of the committed sessions.
fn of<T>(run: &Run, committed: &[Run], ask: impl Fn(&Report<'_>) -> T) -> T {
    ask(&report_of_run(run, &table(committed)))
}

fn exit(report: &Report<'_>) -> (Exit, &'static str) {
    (report.overall.exit, report.overall.word)
}

fn committed(stages: &[StageMeta], sessions: &[Run]) -> (Exit, &'static str, String) {
    let table = table(sessions);
    let overall = report(Known::committed(stages, &table)).overall;
    (overall.exit, overall.word, overall.line)
}

/// The same kernels changed, if that was measured so from the start.
fn rebuilt(run: Run) -> Run {
    run.changed(|session| {
        for stage in &mut session.stages {
            stage.identity.insert_str(0, "new-");
        }
    })
}

fn judged(gate: GateId, passes: bool) -> GateResult {
    GateResult::judge(gate, passes, "they differ")
}

fn stages() -> Selection {
    Selection {
        stages: vec!["1".into()],
        ..Selection::default()
    }
}

fn selected(selection: Selection) -> impl Fn(&mut Session) {
    move |session| session.scope = selection.clone()
}

#[test]
fn each_kind_of_failure_is_named_and_has_its_advice() {
    let hazard = GateResult::judge(GateId::H1, false, "race in block [0, 0, 0]");
    let mut hazardous = emulated();
    *hazardous.summary_mut(SCALAR) = hazardous.summary_mut(SCALAR).clone().verdict(&hazard);
    let mut unlisted = suppressed().sites[0].clone();
    unlisted.listed = None;
    let fails = || emulated().failing(WMMA, GateId::C3);
    let with_case = |input: &str| {
        let case = |input: &str| Row::new(WMMA, On::Case(place(), input.into()), Source::Emulator);
        let failing = case(input).verdict(&judged(GateId::C3, false));
        fails().with(case("normal:1")).with(failing)
    };
    let slow = || timed([24.0, 20.0, 15.0]).clean();
    let refuted = slow().refuting("P.V dominates").session.stages;
    let refuting = |run: Run| run.changed(|session| session.stages = refuted.clone());
    let noisy = Row::new(WMMA, mission(), Source::Gpu)
        .against(SCALAR)
        .figure(Metric::SpeedupP50, (1.6, 1.59, 1.61))
        .figure(Metric::Noise, 0.5);
    let runs = [
        emulated(),
        timed(US),
        timed(US).clean(),
        fails(),
        with_case("normal:0"),
        with_case("x.safetensors"),
        with_case("x.safetensors")
            .changed(|session| session.input = Some("/else where/it's x.safetensors".into())),
        hazardous,
        emulated().with(rows::site(&unlisted)),
        slow(),
        refuting(slow()),
        refuting(timed(US).clean()),
        emulated().counted(CPASYNC, 1_048_577, 0),
        timed(US).clean().with(noisy),
    ];
    let lines = runs.map(|run| {
        of(&run, &[], |report| {
            let overall = &report.overall;
            let actions = overall.actions.join("\n  ");
            format!("{} {overall}\n  {actions}\n", overall.exit.code())
        })
    });
    insta::assert_snapshot!(lines.concat(), @"
    0 PASS: 3 variants are green
      No action needed.
    0 PASS: 3 variants are green
      Complete this run with gate C7 before it is accepted: `compare sanitize`.
    0 PASS: 3 variants are green
      No action needed.
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
      Fix the gates that fail; do not merge.
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
      Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --problem 'mission f16 full normal:0'`.
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
      Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --input x.safetensors --mask full`.
    1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
      Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --input '/else where/it'\\''s x.safetensors' --mask full`.
    1 FAIL: 1 gate fails, first H1 of stage0-scalar/scalar-32x64: race in block [0, 0, 0]
      Fix the gates that fail; do not merge.
    1 FAIL: 1 self-test fails (S1), first stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: its mutant survives: remove it, or list it with the reason in `redundant` of the stage's StageInfo
      Trust no PASS until the gates kill every planted fault. Remove synchronisation whose mutant survives, or list it in `redundant` with its reason.
    1 FAIL: 1 claim fails and is not recorded as refuted, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar
      Improve the stage, or record the claim as refuted: `compare accept DIR --negative REASON`.
    0 PASS: 3 variants are green
      No action needed.
    0 PASS: 3 variants are green
      stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar passes now although it is recorded as refuted: `compare accept` this run, which takes the refutation back.
    1 FAIL: 1 claim fails and is not recorded as refuted, first stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk
      Improve the stage, or record the claim as refuted: `compare accept DIR --negative REASON`.
    3 AMBIGUOUS: 1 is inconclusive, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar
      Run again on a quiet machine, or with more samples (`--iters`).
    ");
    let rest = [Exit::Usage, Exit::Interrupted].map(Exit::code);
    assert_eq!(rest, [2, 130]);
}

/// One run, one verdict: whether the report, `compare accept` or `compare diff` asks.
#[test]
fn a_report_and_accept_agree_on_what_changed() {
    let base = || timed(US).clean().named("1");
    let built = |spills| timed(US).clean().built(96, spills);
    let rebuilt_as = |us| rebuilt(timed(us).clean());
    let refuted = |run: Run| run.refuting("they wait");
    let failing = || timed([32.0, 20.0, 19.0]).clean();
    let one_case_fewer = {
        let mut quick = timed(US).clean();
        quick
            .summary_mut(WMMA)
            .figures
            .insert(Metric::Cases, 0.5.into());
        quick
    };
    for (old, new, word) in [
        (base(), timed(US).clean(), "SAME"),
        (base(), timed([48.0, 30.0, 22.5]).clean(), "SAME"),
        (base(), rebuilt_as([32.0, 21.0, 15.0]), "REGRESSION"),
        (base(), rebuilt_as([30.0, 19.0, 14.0]), "IMPROVED"),
        (base(), rebuilt_as([30.0, 21.0, 15.0]), "MIXED"),
        (
            base(),
            timed(US)
                .clean()
                .sanitized(WMMA, [Verdict::Pass, Verdict::Fail]),
            "REGRESSION",
        ),
        (built(0), built(8), "REGRESSION"),
        (
            base(),
            timed(US).clean().counted(WMMA, 1_048_576, 32),
            "REGRESSION",
        ),
        // A claim that fails now.
        (base(), failing(), "REGRESSION"),
        (base(), refuted(failing()), "SAME"),
        // Of fewer cases: what was known stands.
        (base(), one_case_fewer, "SAME"),
    ] {
        let stages = &new.session.stages;
        let committed = diff::accepted(&old.named("1"), &Table::default());
        let new = new.clone().named("2");
        let accepted = diff::accepted(&new, &committed);
        let comparison = diff::of_accepting(&committed, &accepted, stages);
        assert_eq!(of_differences(&comparison.differences).word, word);
        let report = report_of_run(&new, &committed);
        assert_eq!(report.since, Some(comparison.changes("1")), "{word}");
        let looks =
            (report.overall.actions.iter()).any(|action| action.starts_with("Look at the "));
        assert_eq!(looks, report.worse() > 0, "{:?}", report.overall.actions);
        // Once it is accepted, the session says the same.
        let mut table = accepted;
        table.sessions.get_mut("2").unwrap().changes = report.since.clone();
        let later = verdict::report(Known::committed(stages, &table));
        assert_eq!(later.since, report.since);
    }
}

#[test]
fn the_verdict_on_differences_is_the_worst_of_them() {
    use Change::{Better, Inconclusive, Informational, Missing, Unchanged, Worse};
    let one = |(change, required): &(Change, bool)| Difference {
        subject: WMMA.into(),
        on: On::All,
        by: Source::Emulator,
        what: What::Gate(GateId::C3),
        group: Group::Gates,
        change: *change,
        base: None,
        new: None,
        ratio: None,
        why: "too large".into(),
        required: *required,
    };
    let lines = [
        &[][..],
        &[(Missing, false)],
        &[(Missing, true)],
        &[(Missing, true), (Worse, false)],
        &[(Missing, true), (Better, false)],
        &[(Missing, false), (Better, false)],
        &[(Inconclusive, false), (Better, false)],
        &[(Worse, false), (Better, false), (Unchanged, false)],
        &[
            (Informational, false),
            (Unchanged, false),
            (Unchanged, false),
        ],
    ]
    .map(|changes| {
        let differences: Vec<Difference> = changes.iter().map(one).collect();
        let overall = of_differences(&differences);
        let has_nothing_to_do = overall.actions == ["No action needed."];
        assert_eq!(has_nothing_to_do, overall.exit == Exit::Pass);
        format!("{} {overall}\n", overall.exit.code())
    });
    insta::assert_snapshot!(lines.concat(), @"
    3 NO DATA: nothing can be compared
    3 NO DATA: nothing can be compared
    3 INCOMPLETE: nothing can be compared: too large
    1 REGRESSION: 1 worse, 1 not comparable
    3 INCOMPLETE: 1 not comparable, 1 improved
    0 IMPROVED: 1 not comparable, 1 improved
    3 AMBIGUOUS: 1 inconclusive, 1 improved
    1 MIXED: 1 worse, 1 improved, 1 unchanged
    0 SAME: 1 changed (informational), 2 unchanged
    ");
    // The self-test says nothing about the kernels.
    let self_test = Difference {
        by: Source::SelfTest,
        ..one(&(Unchanged, false))
    };
    assert_eq!(of_differences(&[self_test]).word, "NO DATA");
}

/// What is missing although the report should have it.
#[test]
fn data_that_a_whole_tier_should_have_is_required() {
    let lacking = |run: &Run, committed: &[Run]| {
        of(run, committed, |report| {
            let required: Vec<String> = report.required().map(ToString::to_string).collect();
            let is_complete = required.is_empty();
            assert_eq!(
                exit(report).1 == "INCOMPLETE",
                !is_complete,
                "{}",
                report.overall
            );
            required.join("\n")
        })
    };
    let without = |gate| {
        let mut run = emulated();
        run.summary_mut(WMMA).verdicts.remove(&gate);
        run
    };
    let unsupported = |subjects: &[&str]| {
        let mut run = emulated();
        for subject in VARIANTS {
            let on = On::Case(place(), "normal:0".into());
            let case = Row::new(subject, on, Source::Emulator);
            if !subjects.contains(&subject) {
                run.append(case.verdict(&judged(GateId::C1, true)));
                continue;
            }
            run.append(case.note("too large"));
            let row = run.summary_mut(subject);
            row.verdicts.clear();
            row.figures.insert(Metric::Cases, 0_u32.into());
            row.figures.insert(Metric::CasesUnsupported, 1_u32.into());
        }
        run
    };
    let uncounted = |measurable| {
        let mut run =
            emulated().without(|row| row.subject.as_str() == CPASYNC && row.on == mission());
        run.scope(GateId::E1, measurable);
        run
    };
    let no = |reason: &str| Measurable::No {
        reason: reason.into(),
    };
    let of_build = |metric, measurable| {
        let mut run = emulated().changed(|session| {
            let claim = &mut session.stages[1].claims[1];
            claim.metric = metric;
            claim.relation = Relation::AtMost { bound: 96.0 };
        });
        run.scope(GateId::R1, measurable);
        run
    };
    let quick = |run: Run| run.changed(|session| session.tier = Tier::T0);
    let interrupted = |finished| {
        let progress = Progress::Partial {
            finished,
            planned: 9,
        };
        emulated().changed(move |session| session.progress = progress)
    };
    let variants = selected(Selection {
        variants: vec!["x".into()],
        ..Selection::default()
    });
    let lines = [
        emulated(),
        without(GateId::C5),
        interrupted(8),
        interrupted(9),
        uncounted(Measurable::Yes),
        uncounted(no("no traced build")),
        uncounted(Measurable::Yes).changed(selected(stages())),
        timed(US).clean().without(|row| row.against.is_some()),
        // Of each stage, one variant must support each problem.
        unsupported(&[SCALAR]),
        unsupported(&[CPASYNC]),
        unsupported(&[CPASYNC]).changed(&variants),
        unsupported(&VARIANTS).changed(&variants),
        of_build(Metric::Registers, Measurable::Yes),
        // A quick run does not read machine code, but has what nvcc says.
        quick(of_build(Metric::Registers, Measurable::Yes)),
        of_build(Metric::LoopShuffles, Measurable::Yes),
        quick(of_build(Metric::LoopShuffles, Measurable::Yes)),
        of_build(Metric::Registers, no("no nvcc")),
    ]
    .map(|run| format!("- {}\n", lacking(&run, &[])));
    insta::assert_snapshot!(lines.concat(), @"
    - 
    - stage0-scalar/wmma-qk-32x64: C5: none of its cases had this evidence
    - 1 of 9 cases: the run was interrupted
    - 
    - stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured
    - 
    - 
    - stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
    stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
    - 
    - stage1-cpasync: mission f16 full: no variant supports it; every stage must
    - 
    - every case: no variant of this run supports any of its problems
    - stage0-scalar/scalar-32x64: R1: none of its cases had this evidence
    stage0-scalar/wmma-qk-32x64: R1: none of its cases had this evidence
    stage1-cpasync/cpasync-32x64: R1: none of its cases had this evidence
    stage1-cpasync: cpasync: registers <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    - stage0-scalar/scalar-32x64: R1: none of its cases had this evidence
    stage0-scalar/wmma-qk-32x64: R1: none of its cases had this evidence
    stage1-cpasync/cpasync-32x64: R1: none of its cases had this evidence
    stage1-cpasync: cpasync: registers <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    - stage0-scalar/scalar-32x64: R1: none of its cases had this evidence
    stage0-scalar/wmma-qk-32x64: R1: none of its cases had this evidence
    stage1-cpasync/cpasync-32x64: R1: none of its cases had this evidence
    stage1-cpasync: cpasync: SHFL in the main loop <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    - stage0-scalar/scalar-32x64: R1: none of its cases had this evidence
    stage0-scalar/wmma-qk-32x64: R1: none of its cases had this evidence
    stage1-cpasync/cpasync-32x64: R1: none of its cases had this evidence
    -
    ");
    // What the table has of the same kernel stands in.
    assert_eq!(
        lacking(&uncounted(Measurable::Yes), &[emulated().named("1")]),
        ""
    );
    let (code, word, line) = committed(&ladder(), &[]);
    assert_eq!((code, word), (Exit::Inconclusive, "INCOMPLETE"));
    assert_eq!(line, "1 required row is missing, first every row");

    let untested = rows::not_tested("planted faults", "no reference");
    let untested = table(&[timed(US).with(untested)]);
    let stages = ladder();
    let lacking = report(Known::committed(&stages, &untested));
    let mut lacking = lacking.required().map(ToString::to_string);
    assert!(lacking.any(|what| what.ends_with("planted faults of the self-test: no reference")));

    let optional = |run: &Run| {
        of(run, &[], |report| {
            let missing = report.missing.iter().filter(|missing| !missing.required);
            missing
                .map(|missing| missing.what.clone())
                .collect::<Vec<_>>()
        })
    };
    // Where nothing can be counted, one line says so for all claims.
    let none = optional(&uncounted(no("no traced build")));
    assert!(none.contains(&"gate E1".to_string()), "{none:?}");
    assert!(!none.iter().any(|what| what.contains("global bytes read")));
    let says_c7 = |run: Run| {
        let run = run.changed(|session| drop(session.gates.insert(GateId::C7, no("not run"))));
        optional(&run).contains(&"gate C7".to_string())
    };
    assert_eq!([timed(US), timed(US).clean()].map(says_c7), [true, false]);
}

#[test]
fn the_fastest_green_variant_is_the_best_of_its_stage() {
    let fast = || timed([19.0, 20.0, 15.0]).named("1");
    let (scalar, wmma) = ("scalar-32x64", "wmma-qk-32x64");
    let changed = rebuilt(timed(US)).session.stages;
    let mut refusing = ladder();
    refusing[0].variants.remove(0);
    let new_wmma = rebuilt(timed(US)).without(|row| row.subject.as_str() == SCALAR);
    for (stages, sessions, expected, why) in [
        (&ladder(), vec![], wmma, "without a time, the default"),
        (&ladder(), vec![fast()], scalar, "the fastest"),
        (
            &ladder(),
            vec![timed(US).named("1"), fast().named("2")],
            scalar,
            "of the newest session",
        ),
        (
            &ladder(),
            vec![fast(), emulated().named("2")],
            scalar,
            "the emulator is no timer",
        ),
        (
            &ladder(),
            vec![fast().failing(SCALAR, GateId::C3)],
            wmma,
            "what is wrong is not fast",
        ),
        (
            &changed,
            vec![fast()],
            scalar,
            "that of the kernel before is the best guess",
        ),
        (
            &changed,
            vec![fast(), new_wmma.named("2")],
            wmma,
            "one of the kernel as it is is a better one",
        ),
        (&refusing, vec![fast()], wmma, "the device refuses it"),
        (
            &ladder(),
            vec![timed([20.0, 20.0, 15.0])],
            scalar,
            "the first of two that are equal",
        ),
    ] {
        let table = table(&sessions);
        assert_eq!(
            variant(&Known::committed(stages, &table), &stages[0]),
            expected,
            "{why}"
        );
    }
    let (stages, table) = (ladder(), table(&[fast()]));
    let known = Known::committed(&stages, &table);
    let of_wmma = best_of(&known, &stages[0], "wmma-qk", &place()).unwrap();
    assert_eq!(of_wmma.subject.as_str(), WMMA);
    let causal = Place::new("mission", Dtype::F16, Mask::Causal);
    assert!(best_of(&known, &stages[0], "scalar", &causal).is_none());
    let leading = best::leading(&known, &stages[0], 1);
    assert_eq!(leading[0].1[0].subject.as_str(), SCALAR);
    // Without a median it is no latency.
    let mut run = timed(US);
    let row = run.row_mut(WMMA, &mission(), Source::Gpu);
    row.figures.remove(&Metric::P50);
    assert_eq!(time(&run.table, &WMMA.into(), &place()), None);
}

#[test]
fn a_latency_is_shown_if_its_kernel_was_green_and_marked_if_it_has_changed() {
    let shown = |known: &Known<'_>| match latency(known, &WMMA.into(), &place()) {
        Latency::Measured(row) => {
            let stale = if known.is_stale(row) { " STALE" } else { "" };
            format!("{}{stale}", row.value(Metric::P50).unwrap())
        }
        Latency::Withheld(why) => why,
        Latency::NoData => "none".into(),
    };
    let changed = rebuilt(timed(US)).session.stages;
    let old = || timed(US).named("1");
    let on_all = |row: &Row| row.on == On::All && row.by == Source::Gpu;
    let mut wrong_as_timed = timed(US);
    let row = wrong_as_timed.row_mut(WMMA, &mission(), Source::Gpu);
    *row = row.clone().verdict(&judged(GateId::C5, false));
    let (unchecked, untimed) = (
        rebuilt(timed(US)).without(on_all),
        rebuilt(timed(US)).without(|row| !on_all(row)),
    );
    let lines = [
        (&ladder(), vec![]),
        (&ladder(), vec![old(), timed([32.0, 22.0, 15.0]).named("2")]),
        (&ladder(), vec![old(), emulated().named("2")]),
        (&ladder(), vec![timed(US).failing(WMMA, GateId::B1)]),
        (&ladder(), vec![wrong_as_timed]),
        (&changed, vec![old()]),
        (&changed, vec![old(), untimed.named("2")]),
        (&changed, vec![old(), unchecked.named("2")]),
    ]
    .map(|(stages, sessions)| shown(&Known::committed(stages, &table(&sessions))) + "\n");
    insta::assert_snapshot!(lines.concat(), @"
    none
    22.02
    20.02
    stage0-scalar/wmma-qk-32x64 is not green on C1-C6 and B1
    stage0-scalar/wmma-qk-32x64: C5 failed on the timed buffers: they differ
    20.02 STALE
    20.02 STALE
    stage0-scalar/wmma-qk-32x64 was not checked on this kernel
    ");
    // Of a run on top of the table: its own, else what was committed; nothing that another device measured.
    let sm_89 = |run: Run| run.changed(|session| session.device = "sm_89".parse().ok());
    for (run, expected) in [
        (timed([32.0, 21.0, 15.0]), "21.02"),
        (emulated(), "20.02"),
        (rebuilt(emulated()), "20.02 STALE"),
        (sm_89(emulated()), "none"),
    ] {
        let run = run.named("2");
        assert_eq!(shown(&Known::of_run(&run, &table(&[old()]))), expected);
    }
}

/// Speedups over the stage before are those of the interleaved pair, never quotients of medians taken apart in time.
#[test]
fn the_speedup_over_the_previous_stage_is_interleaved() {
    let pair = |base: &str, speedup: f64| {
        let row = Row::new(CPASYNC, mission(), Source::Gpu).against(base);
        row.figure(Metric::SpeedupP50, speedup)
    };
    let of = |run: &Run| {
        let known = Known::alone(run);
        let row = over_previous(&known, &CPASYNC.into(), &place())?;
        Some((row.against.clone().unwrap(), row.value(Metric::SpeedupP50)?))
    };
    let with = |row: Row| timed(US).with(row);
    // The medians say 1.333x.
    assert_eq!(of(&with(pair(WMMA, 1.25))), Some((WMMA.into(), 1.25)));
    let apart = timed(US).without(|row| row.against.is_some());
    assert_eq!(of(&apart), None);
    let impossible = pair(WMMA, 1.25).verdict(&judged(GateId::L1, false));
    assert_eq!(of(&with(impossible)), None);
    // Over the fastest of those that it was timed against.
    let both = with(pair(SCALAR, 2.0)).with(pair(WMMA, 1.25));
    assert_eq!(of(&both), Some((WMMA.into(), 1.25)));
    assert_eq!(
        of(&apart.with(pair(SCALAR, 2.0))),
        Some((SCALAR.into(), 2.0))
    );
    let first = timed(US);
    assert_eq!(
        over_previous(&Known::alone(&first), &WMMA.into(), &place()),
        None
    );
}

#[test]
fn a_limited_ladder_has_no_figure_of_another_device() {
    let earlier = [timed([12.0, 20.0, 15.0]).named("1")];
    let refusing = emulated()
        .without(|row| row.subject.as_str() == SCALAR)
        .changed(|session| {
            session.stages[0].variants.remove(0);
            session.stages[0].claims.clear();
            session.stages[0].refused.push(Refusal {
                variant: "scalar-32x64".into(),
                reason: "too large".into(),
            });
        });
    let limited = refusing
        .clone()
        .changed(|session| session.device = "sm_89".parse().ok());
    for (run, has_figures, line) in [
        (refusing, true, "PASS: 2 variants are green"),
        (
            limited,
            false,
            "PASS: 2 variants are green (limited to what sm_89 offers)",
        ),
    ] {
        of(&run, &earlier, |report| {
            let known = &report.known;
            assert_eq!(report.overall.to_string(), line);
            assert_eq!(variant(known, &known.stages[0]), "wmma-qk-32x64");
            assert_eq!(best::shown(known).next().is_some(), has_figures);
            assert_eq!(report.since.is_some(), has_figures);
        });
    }
}

#[test]
fn a_committed_table_is_judged_by_its_rows_and_stale_where_kernels_have_changed() {
    let whole = VARIANTS
        .into_iter()
        .fold(timed(US).clean().built(96, 0), |run, subject| {
            run.says(subject, GateId::B1, Verdict::Pass)
        });
    let sessions = [whole.named("1"), emulated().named("2")];
    let (code, word, line) = committed(&ladder(), &sessions);
    assert_eq!(
        (code, word, &*line),
        (Exit::Pass, "PASS", "3 variants are green")
    );
    let table = table(&sessions);
    let known = Known::committed(&sessions[0].session.stages, &table);
    assert_eq!(known.session().unwrap().name, "1");
    assert_eq!(known.gpu(), Some(crate::testing::GPU));
    // A newer session on another GPU, of which this table has only what the compiler says.
    let other = (timed(US).named("3"))
        .changed(|session| {
            session.machine.gpu = Gpu::Absent {
                reason: "another".into(),
            }
        })
        .without(|row| row.by == Source::Gpu);
    let with_other = self::table(&[sessions[0].clone(), other]);
    let known = Known::committed(&sessions[0].session.stages, &with_other);
    assert_eq!(known.session().unwrap().name, "1");
    assert_eq!(known.gpu(), Some(crate::testing::GPU));
    let (code, word, line) = committed(&rebuilt(emulated()).session.stages, &sessions);
    assert_eq!((code, word), (Exit::Pass, "STALE"));
    let first = "3 variants were measured on other versions of their kernels, first stage0-scalar/scalar-32x64";
    assert_eq!(line, first);
}

#[test]
fn problems_are_by_size_with_the_fastest_peer_that_is_right() {
    let on = |run: Run, shape: &str, us: f64, is_right| {
        let peers = [("torch-default", us, is_right), ("torch-math", 99.0, true)];
        run.peers(shape, 10.0, &peers)
    };
    let times = [
        ("mission", 25.0, true),
        ("long", 16.0, true),
        ("wide", 9.0, true),
        ("big", 50.0, false),
    ];
    let run = times
        .into_iter()
        .fold(timed(US), |run, (shape, us, is_right)| {
            on(run, shape, us, is_right)
        });
    let known = Known::alone(&run);
    let words = |problem: &peers::Problem<'_>| {
        let (peer, over) = problem.fastest.unwrap();
        let outcome = outcome(over.estimate(Metric::SpeedupP50));
        format!("{} {} {outcome:?}", problem.place.shape, peer.subject)
    };
    let by_size = [
        "mission torch-default Won",
        "wide torch-default Lost",
        "long torch-default Won",
        "big torch-math Won",
    ];
    assert_eq!(
        problems(&known).iter().map(words).collect::<Vec<_>>(),
        by_size
    );
}

#[test]
fn a_problem_is_won_or_lost_by_the_whole_interval() {
    for (ratio, expected) in [
        ((1.2, 1.1, 1.3), Outcome::Won),
        ((1.2, 1.0, 1.3), Outcome::Inconclusive),
        ((0.9, 0.8, 1.0), Outcome::Inconclusive),
        ((0.9, 0.8, 0.99), Outcome::Lost),
    ] {
        assert_eq!(outcome(Figure::from(ratio)), expected, "{ratio:?}");
    }
}

#[test]
fn peers_on_a_problem_are_of_the_newest_session_that_timed_it() {
    let beside = |run: Run, shape: &str, theirs: f64| {
        run.peers(shape, 10.0, &[("torch-default", theirs, true)])
    };
    let older = || beside(beside(timed(US), "mission", 30.0), "big", 5.0).named("1");
    let newer = || beside(timed(US), "mission", 20.0).named("2");
    let ask = |sessions: &[Run]| {
        let table = table(sessions);
        let known = Known::committed(&sessions[0].session.stages, &table);
        let words = |problem: &peers::Problem<'_>| {
            let theirs = problem.fastest.map(|(peer, _)| best::p50(peer).round());
            let (shape, ours) = (&problem.place.shape, problem.ours);
            format!("{shape} {} {theirs:?} of {}", ours.subject, ours.session)
        };
        problems(&known).iter().map(words).collect::<Vec<_>>()
    };
    let (mission, big) = (
        format!("mission {CPASYNC} Some(20.0) of 2"),
        format!("big {CPASYNC} Some(5.0) of 1"),
    );
    assert_eq!(ask(&[older(), newer()]), [mission.clone(), big]);
    // Where the newest found ours wrong there is nothing to show.
    let on_big = On::Problem(Place::new("big", Dtype::F16, Mask::Full));
    let mut wrong = beside(newer(), "big", 5.0);
    let row = wrong.row_mut(CPASYNC, &on_big, Source::Peers);
    *row = row.clone().verdict(&judged(GateId::C2, false));
    assert_eq!(ask(&[older(), wrong]), std::slice::from_ref(&mission));
    // A stage that the newest did not time has a faster figure of another day.
    let with_wmma = older().beside(WMMA, "mission", 2.0, &[("torch-default", 30.0, true)]);
    assert_eq!(ask(&[with_wmma, newer()])[0], mission);
}

#[test]
fn registers_are_those_of_what_runs_on_the_gpu() {
    let instance = |arch: &str, registers: u32| {
        let on = On::Instance {
            dtype: Dtype::F16,
            head_dim: 64,
            arch: Some(arch.into()),
        };
        Row::new(WMMA, on, Source::Ptxas).figure(Metric::Registers, registers)
    };
    let others = instance("sm_80", 40);
    let built = timed(US)
        .built(96, 0)
        .with(others)
        .with(instance("sm_99", 50));
    let registers = |run: Run, of: &Table| {
        let known = Known::of_run(&run, of);
        compiled(&known, &WMMA.into(), Metric::Registers)
    };
    assert_eq!(registers(built.clone(), &Table::default()), Some(96.0));
    let elsewhere = built.without(|row| row.on == crate::testing::instance());
    assert_eq!(registers(elsewhere, &Table::default()), Some(50.0));
}

/// The figures of the committed table: they change where a session of this GPU model is accepted.
#[test]
fn the_committed_table_of_the_h200_says_what_was_measured() {
    let (results, stages) = (results(), crate::stages::builds().unwrap());
    let table = results.of_gpu("nvidia-h200");
    let known = Known::committed(&stages, &table);
    let mut lines: Vec<String> = Vec::new();
    for stage in &stages {
        let best = best::subject(&known, stage);
        let place = crate::table::session::first_place(Some(stage));
        if let Some(row) = time(&table, &best, &place) {
            lines.push(format!("{} {} {}", stage.id, best.name(), show(row)));
        }
    }
    lines.push(String::new());
    for problem in problems(&known) {
        let (ours, (peer, over)) = (problem.ours, problem.fastest.unwrap());
        let speedup = over.estimate(Metric::SpeedupP50);
        let [ours, theirs] = [ours, peer].map(|row| format!("{} {}", row.subject, show(row)));
        let outcome = format!("{:?}", outcome(speedup)).to_lowercase();
        let place = problem.place;
        lines.push(format!(
            "{place}: {ours}, {theirs}, {:.2}x {outcome}",
            speedup.value
        ));
    }
    insta::assert_snapshot!(lines.join("\n"), @r"
    stage0-scalar wmma-qk-32x128-k2 17.02
    stage1-cpasync cpasync-32x256-k2 16.02
    stage2-simd-pv simd-pv-32x256-k2 15.27
    stage3-wmma-pv wmma-pv-32x128-k2 9.637
    stage4-warpspec warpspec-32x128-k2 9.549
    stage5-swizzle swizzle-32x256-k4 5.213
    stage6-tma tma-32x256-k4 4.993
    stage7-wgmma wgmma-64x128 6.187
    stage8-overlap overlap-lazy-64x128 5.555
    stage9-cluster cluster-64x256 4.294
    stage10-fp8 fp8-scores-64x128 5.997
    stage11-spread spread-64x128-k2 5.530
    
    mission f16 full: stage9-cluster/cluster-64x256 4.228, flash-attn-4 8.885, 2.10x won
    mission f16 causal: stage9-cluster/cluster-64x256 4.308, flash-attn-4 9.141, 2.12x won
    mission_b2 f16 full: stage11-spread/spread-64x128-k2 5.595, flash-attn-4 9.060, 1.62x won
    wide f16 full: stage9-cluster/cluster-64x256 5.396, flash-attn-4 9.321, 1.73x won
    mission_b2 f16 causal: stage9-cluster/cluster-64x256 5.870, flash-attn-4 9.321, 1.59x won
    wide f16 causal: stage9-cluster/cluster-64x256 5.458, flash-attn-4 9.399, 1.72x won
    stretch f16 full: stage11-spread/spread-256x64 10.78, torch-default 15.09, 1.40x won
    stretch f16 causal: stage11-spread/spread-256x64 9.860, torch-default 15.29, 1.55x won
    long f16 full: stage11-spread/spread-128x64-k2 17.82, torch-default 22.68, 1.27x won
    long f16 causal: stage11-spread/spread-64x128-k2 15.53, torch-default 22.91, 1.48x won
    big f16 full: stage11-spread/spread-256x64 487.0, flash-attn-4 545.5, 1.12x won
    big f16 causal: stage8-overlap/overlap-lazy-256x64 260.1, flash-attn-4 313.8, 1.21x won
    big_wide f16 full: stage11-spread/spread-256x64 870.3, flash-attn-4 888.9, 1.02x won
    big_wide f16 causal: stage11-spread/spread-256x64 423.7, flash-attn-4 487.8, 1.15x won
    long_16k f16 full: stage11-spread/spread-256x64 1989, flash-attn-4 2213, 1.11x won
    long_16k f16 causal: stage11-spread/spread-256x64 968.5, flash-attn-4 1080, 1.11x won
    long_16k_wide f16 full: stage11-spread/spread-256x64 3276, flash-attn-4 3598, 1.10x won
    long_16k_wide f16 causal: stage11-spread/spread-256x64 1706, flash-attn-4 1841, 1.08x won
    mission e4m3 full: stage10-fp8/fp8-scores-64x128 5.750, cudnn-fp8 10.80, 1.88x won
    mission e4m3 causal: stage10-fp8/fp8-scores-64x128 6.149, cudnn-fp8 11.31, 1.84x won
    mission_b2 e4m3 full: stage10-fp8/fp8-scores-64x128 5.967, cudnn-fp8 10.97, 1.84x won
    wide e4m3 full: stage10-fp8/fp8-scores-64x128 7.646, cudnn-fp8 11.59, 1.51x won
    mission_b2 e4m3 causal: stage10-fp8/fp8-scores-64x128 6.349, cudnn-fp8 11.40, 1.80x won
    wide e4m3 causal: stage10-fp8/fp8-scores-64x128 7.807, cudnn-fp8 11.99, 1.54x won
    stretch e4m3 full: stage10-fp8/fp8-scores-256x64 10.76, cudnn-fp8 17.20, 1.60x won
    stretch e4m3 causal: stage10-fp8/fp8-scores-256x64 10.13, cudnn-fp8 16.39, 1.62x won
    long e4m3 full: stage10-fp8/fp8-scores-128x128 20.02, cudnn-fp8 24.53, 1.23x won
    long e4m3 causal: stage10-fp8/fp8-scores-64x128 17.65, cudnn-fp8 24.22, 1.37x won
    big e4m3 full: stage10-fp8/fp8-scores-256x64 446.8, cudnn-fp8 514.0, 1.15x won
    big e4m3 causal: stage10-fp8/fp8-scores-256x64 238.6, cudnn-fp8 285.3, 1.20x won
    big_wide e4m3 full: stage10-fp8/fp8-scores-256x64 636.5, cudnn-fp8 603.2, 0.95x lost
    big_wide e4m3 causal: stage10-fp8/fp8-scores-256x64 334.7, cudnn-fp8 339.7, 1.01x won
    mission bf16 full: stage9-cluster/cluster-64x256 4.217, torch-cudnn 8.889, 2.11x won
    mission bf16 causal: stage9-cluster/cluster-64x256 4.304, flash-attn-4 9.151, 2.13x won
    long bf16 full: stage11-spread/spread-128x64-k2 17.65, torch-default 22.65, 1.28x won
    long bf16 causal: stage11-spread/spread-64x128-k2 15.54, torch-cudnn 23.17, 1.49x won
    big bf16 full: stage11-spread/spread-256x64 487.0, flash-attn-4 532.7, 1.09x won
    big bf16 causal: stage11-spread/spread-256x64 254.7, flash-attn-4 305.8, 1.20x won
    big_wide bf16 full: stage11-spread/spread-256x64 804.7, flash-attn-4 826.6, 1.03x won
    big_wide bf16 causal: stage11-spread/spread-256x64 406.5, flash-attn-4 448.1, 1.10x won
    ");
}

/// The file is what the table is written as, and read without loss.
#[test]
fn the_committed_tables_are_written_as_they_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results");
    let results = results();
    assert_eq!(results.main(), Some("nvidia-h200"));
    for (path, bytes) in results.files() {
        assert!(
            std::fs::read(folder.join(&path)).unwrap() == bytes,
            "{path}"
        );
    }
    for table in results.gpus.values().chain([&results.build]) {
        // Of a claim that says NO DATA, no session has measured anything.
        let is_unmeasured = |row: &Row| {
            let mut verdicts = row.verdicts.values();
            row.by == Source::Claim && verdicts.all(|judged| judged.verdict == Verdict::NoData)
        };
        assert!(table.rows().all(|row| {
            !matches!(row.on, On::Case(..)) && (table.session(row).is_some() || is_unmeasured(row))
        }));
    }
}
