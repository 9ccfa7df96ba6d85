//! Reports of tables and of runs on top of them; and what the committed table of the H200 says.

use super::best::{Latency, best_of, latency, subject};
use super::diff::{About, Change, Difference, Group, What};
use super::peers::{self, outcome, problems};
use super::verdict::{Report, Since, of_differences, report, report_of_checks, report_of_run};
use super::*;
use crate::table::{Figure, Kind, ProblemPlace, Table};
use crate::testing::scenario::{self, each, each_case, row, run, sides};
use crate::testing::{CPASYNC, GPU, PeerArm, US, WMMA, emulated, ladder, table, timed};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::timing::Regime;
use common::verdict::GateId;

fn show(row: &Row) -> String {
    let shown = Metric::P50.show(row.value(Metric::P50).unwrap());
    shown.trim_end_matches(" µs").to_string()
}

fn place() -> ProblemPlace {
    ProblemPlace::claims(Dtype::F16)
}

/// Asks about the table of [`scenario::view`].
fn ask_table<T>(line: &str, ask: impl Fn(&View<'_>) -> T) -> T {
    let (stages, table) = scenario::view(line);
    ask(&View::committed(&stages, &table))
}

/// Asks about the report of `RUN` or `RUN on SESSIONS`.
fn reported<T>(line: &str, ask: impl Fn(&Report<'_>) -> T) -> T {
    let (words, sessions) = line.split_once(" on ").unwrap_or((line, "none"));
    ask(&report_of_run(
        &run(words).named("9"),
        &scenario::view(sessions).1,
    ))
}

fn lines(of: impl IntoIterator<Item = impl ToString>) -> String {
    list::joined(of.into_iter().map(|line| line.to_string()), "\n")
}

#[test]
fn each_kind_of_failure_is_named_and_has_its_advice() {
    let complete = timed(US).clean();
    let slow = timed([24.0, 20.0, 15.0]).clean();
    let red = emulated().with_columns("wmma all", "C3 fail");
    let case = |input: &str| format!("wmma | mission f16 full {input} | emulator");
    let (first, second) = (case("normal:0"), case("normal:1"));
    let file = row(&format!("{} | C3 fail", case("x.safetensors")));
    let on_file = red.clone().with_row(file);
    let on_quoted_file = on_file.clone().changed(|session| {
        session.input = Some("/else where/it's x.safetensors".into());
    });
    let two_gates = emulated()
        .with_columns("wmma all", "C3 fail | H1 fail")
        .with_row(row(&format!("{first} | H1 fail")))
        .with_row(row(&format!("{second} | C3 fail")));
    let noisy_pair = "wmma | mission f16 full | gpu scalar | speedup_p50 1.6 1.59 1.61 | noise 0.5";
    let regret = |mean: &str, worst: &str, drawn: usize| {
        row(&format!(
            "attention-ladder | : regret | draw | regret_mean {mean} | regret_worst {worst} \
             | cases 240 | draw {drawn} | note there"
        ))
    };
    let committed = complete.clone().with_row(regret("1.03", "1.275", 240));
    let cases = [
        ("an emulated run", (emulated(), vec![])),
        ("a timed run", (timed(US), vec![])),
        ("a complete run", (complete.clone(), vec![])),
        ("a gate fails", (red.clone(), vec![])),
        (
            "a gate fails on one of two cases",
            (
                red.clone()
                    .with_row(row(&second))
                    .with_row(row(&format!("{first} | C3 fail"))),
                vec![],
            ),
        ),
        ("a gate fails on given input", (on_file.clone(), vec![])),
        (
            "a gate fails on given input, whose path has spaces",
            (on_quoted_file, vec![]),
        ),
        (
            "a race",
            (
                emulated().with_columns("scalar all", "H1 fail race in block [0, 0, 0]"),
                vec![],
            ),
        ),
        (
            "a gate fails on a GPU",
            (timed(US).with_columns("wmma all", "C3 fail"), vec![]),
        ),
        ("two gates fail, each on a case", (two_gates, vec![])),
        (
            "a mutant survives",
            (
                emulated().with_columns("scalar self-test", "S1 fail its mutant survives"),
                vec![],
            ),
        ),
        (
            "a kernel is wrong with all its sites",
            (
                emulated().with_row(row("scalar | : as it is | self-test | H1 fail race")),
                vec![],
            ),
        ),
        ("a claim fails", (slow.clone(), vec![])),
        (
            "a claim fails and is recorded as refuted",
            (slow.with_refuted_claim(0, 0), vec![]),
        ),
        (
            "a claim passes and is recorded as refuted",
            (complete.clone().with_refuted_claim(0, 0), vec![]),
        ),
        (
            "a claim about counters fails",
            (emulated().counted(CPASYNC, 1_048_577, 0), vec![]),
        ),
        (
            "a claim is undecided for noise",
            (complete.clone().with_row(row(noisy_pair)), vec![]),
        ),
        (
            "the choice misses its goals",
            (
                complete.clone().with_row(regret("1.03", "1.275", 254)),
                vec![],
            ),
        ),
        (
            "the choice meets its goals",
            (
                complete.clone().with_row(regret("1.02", "1.1", 240)),
                vec![],
            ),
        ),
        (
            "the choice missed its goals in a committed session",
            (complete, vec![committed]),
        ),
    ];
    let answers = each_case(cases, |(run, sessions)| {
        let reported_run = run.clone().named("9");
        let report = report_of_run(&reported_run, &scenario::table_of_sessions(sessions));
        let overall = report.overall();
        format!(
            "{} {overall}\n{}",
            overall.exit.code(),
            lines(&overall.actions)
        )
    });
    insta::assert_snapshot!(answers, @r#"
    an emulated run
        0 PASS: 3 variants pass every gate
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a timed run
        0 PASS: 3 variants pass every gate
        Complete this run with gate C7 before it is accepted: `compare sanitize`.
        6 things were not measured here: `compare show missing --run DIR` says what each takes.
    a complete run
        0 PASS: 3 variants pass every gate
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    a gate fails
        1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
        Fix the gates that fail; do not merge.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a gate fails on one of two cases
        1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
        Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --problem 'mission f16 full normal:0'`.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a gate fails on given input
        1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
        Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --input x.safetensors --mask full`.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a gate fails on given input, whose path has spaces
        1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
        Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --input '/else where/it'\''s x.safetensors' --mask full`.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a race
        1 FAIL: 1 gate fails, first H1 of stage0-scalar/scalar-32x64: race in block [0, 0, 0]
        Fix the gates that fail; do not merge.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a gate fails on a GPU
        1 FAIL: 1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64
        Fix the gates that fail; do not merge.
        Measure what is missing: `compare --stages stage0-scalar,stage1-cpasync`. `compare show missing --run DIR` lists it with the reasons.
        6 things were not measured here: `compare show missing --run DIR` says what each takes.
    two gates fail, each on a case
        1 FAIL: 2 gates fail, first C3 of stage0-scalar/wmma-qk-32x64
        Fix the gates that fail; do not merge. See where it first goes wrong: `compare explain --stage stage0-scalar --variant wmma-qk-32x64 --problem 'mission f16 full normal:1'`.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a mutant survives
        1 FAIL: 1 self-test fails (S1), first stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: its mutant survives
        Trust no PASS until every self-test passes; each that fails says why.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a kernel is wrong with all its sites
        1 FAIL: 1 self-test fails (S1), first stage0-scalar/scalar-32x64: as it is: race
        Trust no PASS until every self-test passes; each that fails says why.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a claim fails
        1 FAIL: 1 claim fails and is not recorded as refuted, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar
        Improve the stage, or record in its negatives.json why the claim fails: `compare accept` prints the entry.
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    a claim fails and is recorded as refuted
        0 PASS: 3 variants pass every gate
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    a claim passes and is recorded as refuted
        0 PASS: 3 variants pass every gate
        stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar passes now although it is recorded as refuted: take it out of stage0-scalar/negatives.json.
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    a claim about counters fails
        1 FAIL: 1 claim fails and is not recorded as refuted, first stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk
        Improve the stage, or record in its negatives.json why the claim fails: `compare accept` prints the entry.
        7 things were not measured here: `compare show missing --run DIR` says what each takes.
    a claim is undecided for noise
        3 UNDECIDED: 1 claim is undecided, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar
        Run again on a quiet machine, or with more samples (`--iters`).
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    the choice misses its goals
        1 FAIL: 3 goals of the library's choice are missed, first 1.030x the fastest variant's time on average (goal 1.02)
        Give the library a better choice: on a GPU `compare --random-problems 160 --backend cuda` judges it, and `compare accept` fits it to that run.
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    the choice meets its goals
        0 PASS: 3 variants pass every gate
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    the choice missed its goals in a committed session
        0 PASS: 3 variants pass every gate
        5 things were not measured here: `compare show missing --run DIR` says what each takes.
    "#);
    let rest = [verdict::Exit::Usage, verdict::Exit::Interrupted];
    assert_eq!(rest.map(verdict::Exit::code), [2, 130]);
}

#[test]
fn a_report_of_a_run_says_what_it_changes_in_the_table() {
    let answers = each(
        "timed; clean => same
        timed; clean => timed 48 30 22.5; clean
        timed; clean => timed 32 21 15; clean; rebuilt
        timed; clean => timed 30 19 14; clean; rebuilt
        timed; clean => timed 30 21 15; clean; rebuilt
        timed; clean => same; wmma compute-sanitizer: C7 fail
        timed; clean; built 96 0 => timed; clean; built 96 8
        timed; clean => same; counted wmma 1048576 32
        timed; clean => timed 32 20 19; clean
        timed; clean => timed 32 20 19; clean; refuted 1 0
        timed; clean => same; wmma gpu all: cases 0.5",
        |line| {
            let (old, new) = sides(line);
            let committed = diff::accepted(&old.named("1"), &Table::default());
            let reported_run = new.named("2");
            let report = report_of_run(&reported_run, &committed);
            let mut actions = report.overall().actions.into_iter();
            let looks = actions.find(|action| action.starts_with("Look at the "));
            let Since { session, changes } = report.since.as_ref().unwrap();
            let word = of_differences(changes).word;
            format!("{word} since {session}\n{}", lines(looks))
        },
    );
    insta::assert_snapshot!(answers, @"
    timed; clean => same
        SAME since 1
    timed; clean => timed 48 30 22.5; clean
        SAME since 1
    timed; clean => timed 32 21 15; clean; rebuilt
        REGRESSION since 1
        Look at the 1 regression since 1: `compare diff results DIR`.
    timed; clean => timed 30 19 14; clean; rebuilt
        IMPROVED since 1
    timed; clean => timed 30 21 15; clean; rebuilt
        MIXED since 1
        Look at the 2 regressions since 1: `compare diff results DIR`.
    timed; clean => same; wmma compute-sanitizer: C7 fail
        FAIL since 1
        Look at the 1 regression since 1: `compare diff results DIR`.
    timed; clean; built 96 0 => timed; clean; built 96 8
        FAIL since 1
        Look at the 6 regressions since 1: `compare diff results DIR`.
    timed; clean => same; counted wmma 1048576 32
        REGRESSION since 1
        Look at the 1 regression since 1: `compare diff results DIR`.
    timed; clean => timed 32 20 19; clean
        REGRESSION since 1
        Look at the 1 regression since 1: `compare diff results DIR`.
    timed; clean => timed 32 20 19; clean; refuted 1 0
        SAME since 1
    timed; clean => same; wmma gpu all: cases 0.5
        SAME since 1
    ");
}

/// A required difference has a `!`.
#[test]
fn the_verdict_on_differences_is_the_worst_of_them() {
    let difference = |word: &str, kind| Difference {
        subject: WMMA.into(),
        about: About::Row(kind),
        what: What::Gate(GateId::C3),
        group: Group::Gates,
        change: (Change::ALL.into_iter())
            .find(|of| format!("{of:?}").to_lowercase() == word.trim_end_matches('!'))
            .unwrap(),
        base: None,
        new: None,
        figures: None,
        ratio: None,
        why: "too large".into(),
        required: word.ends_with('!'),
    };
    let answers = each(
        "nothing
        missing
        missing!
        missing! worse
        missing! better
        missing better
        undecided better
        worse better unchanged
        informational unchanged unchanged",
        |line| {
            let words = line.split(' ').filter(|word| *word != "nothing");
            let differences: Vec<_> = words
                .map(|word| difference(word, Kind::Checked(BackendKind::Emulated)))
                .collect();
            let overall = of_differences(&differences);
            format!(
                "{} {overall}\n{}",
                overall.exit.code(),
                lines(&overall.actions)
            )
        },
    );
    insta::assert_snapshot!(answers, @"
    nothing
        3 NOT MEASURED: nothing can be compared
        Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.
    missing
        3 NOT MEASURED: nothing can be compared
        Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.
    missing!
        3 INCOMPLETE: nothing can be compared: too large
        Measure what the base has and this lacks (`compare --full`, then `compare accept`), or state in the change that it is intended.
        Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.
    missing! worse
        1 FAIL: 1 worse, 1 not comparable
        Fix what newly fails; do not merge.
    missing! better
        3 INCOMPLETE: 1 not comparable, 1 improved
        Measure what the base has and this lacks (`compare --full`, then `compare accept`), or state in the change that it is intended.
    missing better
        0 IMPROVED: 1 not comparable, 1 improved
        No action needed.
    undecided better
        3 UNDECIDED: 1 undecided, 1 improved
        Time the undecided latencies again on a quiet GPU, both sides interleaved in one session (A B B A).
    worse better unchanged
        1 FAIL: 1 worse, 1 improved, 1 unchanged
        Fix what newly fails; do not merge.
    informational unchanged unchanged
        0 SAME: 1 changed (informational), 2 unchanged
        No action needed.
    ");
    // The self-test says nothing about the kernels.
    for (change, line) in [
        ("unchanged", "nothing can be compared"),
        ("worse", "1 worse"),
    ] {
        let overall = of_differences(&[difference(change, Kind::Fault("zeros".into()))]);
        assert_eq!(overall.line, line);
    }
}

/// The report should have it, and has not: of every stage, one variant must support
/// each problem; a quick run reads no machine code, but has what nvcc says; what the table has of
/// the same kernel stands in.
#[test]
fn data_that_a_whole_tier_should_have_is_required() {
    let answers = each(
        "emulated
        emulated; wmma all: C5 none
        emulated; partial 8 9
        emulated; partial 9 9
        emulated; - cpasync mission; measurable E1
        emulated; - cpasync mission; measurable E1 on emulated
        emulated; - cpasync mission; unmeasurable E1 no traced build
        emulated; - cpasync mission; measurable E1; refuted 1 1
        emulated; - cpasync mission; measurable E1; stages 1
        timed; clean; - pair
        timed; clean; - pair; stages 1
        emulated; unsupported scalar
        emulated; unsupported cpasync
        emulated; unsupported cpasync; variants x
        emulated; unsupported scalar wmma cpasync; variants x
        emulated; emulator all: cases 0 | cases_failed 1
        emulated; at-most 1 1 registers 96; measurable R1
        emulated; at-most 1 1 registers 96; measurable R1; tier 0
        emulated; at-most 1 1 loop_shuffles 96; measurable R1
        emulated; at-most 1 1 loop_shuffles 96; measurable R1; tier 0
        emulated; at-most 1 1 registers 96; unmeasurable R1 no nvcc
        emulated; at-most 1 1 barrier_stall_share 0.1",
        |line| {
            reported(line, |report| {
                let required: Vec<String> = report.required().map(ToString::to_string).collect();
                let is_incomplete = report.overall().word == "NOT MEASURED";
                assert_eq!(is_incomplete, !required.is_empty(), "{}", report.overall());
                // Every variant lacks R1 where it can be measured.
                lines(required.iter().filter(|row| !row.contains(": R1: ")))
            })
        },
    );
    insta::assert_snapshot!(answers, @"
    emulated
        -
    emulated; wmma all: C5 none
        stage0-scalar/wmma-qk-32x64: C5: none of its cases had this evidence
    emulated; partial 8 9
        1 of 9 cases: the run was interrupted
    emulated; partial 9 9
        -
    emulated; - cpasync mission; measurable E1
        stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured
    emulated; - cpasync mission; measurable E1 on emulated
        -
    emulated; - cpasync mission; unmeasurable E1 no traced build
        -
    emulated; - cpasync mission; measurable E1; refuted 1 1
        -
    emulated; - cpasync mission; measurable E1; stages 1
        -
    timed; clean; - pair
        stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
        stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
    timed; clean; - pair; stages 1
        -
    emulated; unsupported scalar
        -
    emulated; unsupported cpasync
        stage1-cpasync: mission f16 full: no variant supports it; every stage must
    emulated; unsupported cpasync; variants x
        -
    emulated; unsupported scalar wmma cpasync; variants x
        every case: no variant of this run supports any of its problems
    emulated; emulator all: cases 0 | cases_failed 1
        stage0-scalar/scalar-32x64: every gate: none of its cases ran
        stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran
        stage1-cpasync/cpasync-32x64: every gate: none of its cases ran
    emulated; at-most 1 1 registers 96; measurable R1
        stage1-cpasync: cpasync: registers <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    emulated; at-most 1 1 registers 96; measurable R1; tier 0
        stage1-cpasync: cpasync: registers <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    emulated; at-most 1 1 loop_shuffles 96; measurable R1
        stage1-cpasync: cpasync: SHFL in the main loop <= 96: stage1-cpasync/cpasync-32x64: no GPU code was built, or its machine code could not be read
    emulated; at-most 1 1 loop_shuffles 96; measurable R1; tier 0
        -
    emulated; at-most 1 1 registers 96; unmeasurable R1 no nvcc
        -
    emulated; at-most 1 1 barrier_stall_share 0.1
        -
    ");
    let of_tables = each(
        "none
        timed; + self-test | : planted faults | self-test | S1 no_data no reference
        emulated; measurable R1",
        |line| {
            ask_table(line, |view| {
                let report = report(view.clone());
                format!("{}\n{}", report.overall().word, lines(report.required()))
            })
        },
    );
    insta::assert_snapshot!(of_tables, @"
    none
        NOT MEASURED
        every row: there is no run and no committed table
    timed; + self-test | : planted faults | self-test | S1 no_data no reference
        NOT MEASURED
        stage0-scalar/scalar-32x64: B1, R1, C7: none of its cases had this evidence
        stage0-scalar/wmma-qk-32x64: B1, R1, C7: none of its cases had this evidence
        stage1-cpasync/cpasync-32x64: B1, R1, C7: none of its cases had this evidence
        : planted faults of the self-test: no reference
    emulated; measurable R1
        NOT MEASURED
        stage0-scalar/scalar-32x64: every gate: none of its cases ran
        stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran
        stage1-cpasync/cpasync-32x64: every gate: none of its cases ran
        stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
        stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
    ");
    // Where nothing can be counted, one line says so for all claims.
    let optional = each(
        "emulated; - cpasync mission; unmeasurable E1 no traced build
        timed; unmeasurable C7 not run
        timed; clean; unmeasurable C7 not run
        timed; partial 9 9
        timed; unmeasurable C7 not run on timed; clean
        timed; stripped; zeros: S1 fail",
        |line| {
            reported(line, |report| {
                let optional = report.missing.iter().filter(|missing| !missing.required);
                list::joined(optional.map(|missing| &missing.what), ", ")
            })
        },
    );
    insta::assert_snapshot!(optional, @"
    emulated; - cpasync mission; unmeasurable E1 no traced build
        gate C7, gate C8, gate B1, gate B2, gate H1, gate R1, gate L1, gate E1
    timed; unmeasurable C7 not run
        gate C7, gate C8, gate B1, gate B2, gate H1, gate R1
    timed; clean; unmeasurable C7 not run
        gate C8, gate B1, gate B2, gate H1, gate R1
    timed; partial 9 9
        some timings, gate C7, gate C8, gate B1, gate B2, gate H1, gate R1
    timed; unmeasurable C7 not run on timed; clean
        gate C7, gate C8, gate B1, gate B2, gate H1, gate R1
    timed; stripped; zeros: S1 fail
        gate C7, gate C8, gate B1, gate B2, gate H1, gate R1, source lines
    ");
}

/// The fastest that is right: of the kernels as they are, if any of those was timed; without a
/// time, the default.
#[test]
fn the_fastest_green_variant_is_the_best_of_its_stage() {
    let answers = each(
        "none
        timed 19 20 15
        timed & timed 19 20 15
        timed 19 20 15 & emulated
        timed 19 20 15; scalar all: C3 fail
        timed 19 20 15 @ emulated; rebuilt
        timed 19 20 15 & timed; rebuilt; - scalar @ emulated; rebuilt
        timed 19 20 15 @ emulated; refused scalar
        timed 20 20 15",
        |line| {
            ask_table(line, |view| {
                subject(view, &view.stages[0]).name().to_string()
            })
        },
    );
    insta::assert_snapshot!(answers, @"
    none
        wmma-qk-32x64
    timed 19 20 15
        scalar-32x64
    timed & timed 19 20 15
        scalar-32x64
    timed 19 20 15 & emulated
        scalar-32x64
    timed 19 20 15; scalar all: C3 fail
        wmma-qk-32x64
    timed 19 20 15 @ emulated; rebuilt
        scalar-32x64
    timed 19 20 15 & timed; rebuilt; - scalar @ emulated; rebuilt
        wmma-qk-32x64
    timed 19 20 15 @ emulated; refused scalar
        wmma-qk-32x64
    timed 20 20 15
        scalar-32x64
    ");
    ask_table("timed 19 20 15", |view| {
        let stage = &view.stages[0];
        let of_wmma = best_of(view, stage, "wmma-qk", &place()).unwrap();
        assert_eq!(of_wmma.subject.as_str(), WMMA);
        let causal = ProblemPlace::new("mission", Dtype::F16, Mask::Causal);
        assert!(best_of(view, stage, "scalar", &causal).is_none());
    });
    // Without a median it is no latency.
    let untimed = timed(US).with_columns("wmma gpu mission", "p50 none");
    assert_eq!(untimed.table.latency(&WMMA.into(), &place()), None);
}

#[test]
fn a_latency_is_shown_if_its_kernel_was_green_and_marked_if_it_has_changed() {
    let shown = |view: &View<'_>| match latency(view, &WMMA.into(), &place()) {
        Some(Latency::Shown(row)) => {
            let stale = if view.is_stale(row) { " STALE" } else { "" };
            format!("{}{stale}", row.value(Metric::P50).unwrap())
        }
        Some(Latency::Withheld(why)) => why.to_string(),
        None => "none".into(),
    };
    let answers = each(
        "none
        timed & timed 32 22 15
        timed & emulated
        timed; wmma all: B1 fail
        timed; wmma gpu mission: C5 fail they differ
        timed @ emulated; rebuilt
        timed & timed; rebuilt; - gpu !all @ emulated; rebuilt
        timed & timed; rebuilt; - gpu all @ emulated; rebuilt",
        |line| ask_table(line, shown),
    );
    insta::assert_snapshot!(answers, @"
    none
        none
    timed & timed 32 22 15
        22.02
    timed & emulated
        20.02
    timed; wmma all: B1 fail
        stage0-scalar/wmma-qk-32x64 does not pass C1-C6 and B1
    timed; wmma gpu mission: C5 fail they differ
        stage0-scalar/wmma-qk-32x64: C5 failed on the timed buffers: they differ
    timed @ emulated; rebuilt
        20.02 STALE
    timed & timed; rebuilt; - gpu !all @ emulated; rebuilt
        20.02 STALE
    timed & timed; rebuilt; - gpu all @ emulated; rebuilt
        stage0-scalar/wmma-qk-32x64 was not checked on this kernel
    ");
    // Of a run on top of the table: its own, else what was committed; nothing that another device
    // measured.
    let of_runs_on_tables = each(
        "timed 32 21 15 on timed
        emulated on timed
        emulated; rebuilt on timed
        emulated; device sm_89 on timed",
        |line| reported(line, |report| shown(&report.view)),
    );
    insta::assert_snapshot!(of_runs_on_tables, @"
    timed 32 21 15 on timed
        21.02
    emulated on timed
        20.02
    emulated; rebuilt on timed
        20.02 STALE
    emulated; device sm_89 on timed
        none
    ");
}

#[test]
fn figures_are_of_the_tables_gpu_wherever_the_emulator_ran() {
    let emulated_beside_h100 = emulated().on_card("NVIDIA H100").named("2");
    let table = table(&[timed(US)]);
    let view_of_run = View::of_run(&emulated_beside_h100, &table);
    assert_eq!(view_of_run.gpu(), Some(GPU));
    ask_table("emulated; card NVIDIA H100", |view| {
        assert_eq!(view.gpu(), None)
    });
}

#[test]
fn a_limited_ladder_has_no_figure_of_another_device() {
    let answers = each(
        "emulated; refused scalar; claims 0 0 on timed 12 20 15
        emulated; refused scalar; claims 0 0; device sm_89 on timed 12 20 15",
        |line| {
            reported(line, |report| {
                let view = &report.view;
                let subject = subject(view, &view.stages[0]);
                let best = subject.name();
                let figures = best::shown(view).count();
                assert_eq!(report.since.is_some(), figures > 0);
                format!("{}\n{best}, {figures} latencies", report.overall())
            })
        },
    );
    insta::assert_snapshot!(answers, @"
    emulated; refused scalar; claims 0 0 on timed 12 20 15
        PASS: 2 variants pass every gate
        wmma-qk-32x64, 3 latencies
    emulated; refused scalar; claims 0 0; device sm_89 on timed 12 20 15
        PASS: 2 variants pass every gate (limited to what sm_89 offers)
        wmma-qk-32x64, 0 latencies
    ");
}

/// Its rows judge it; STALE where kernels have changed. Of a newer session on another GPU this
/// table has only what the compiler says.
#[test]
fn a_committed_table_is_judged_by_its_rows() {
    let answers = each(
        "timed; clean; built 96 0; gpu all: B1 pass & emulated
        timed; clean; built 96 0; gpu all: B1 pass & emulated; built 96 0
        timed; built 96 0; gpu all: B1 pass
        timed; clean; built 96 0; gpu all: B1 pass & emulated @ emulated; rebuilt",
        |line| {
            ask_table(line, |view| {
                let overall = report(view.clone()).overall();
                let session = &view.session().unwrap().name;
                let [code, actions] = [overall.exit.code().to_string(), lines(&overall.actions)];
                format!(
                    "{code} {overall}\nof {session} on {}\n{actions}",
                    view.gpu().unwrap()
                )
            })
        },
    );
    insta::assert_snapshot!(answers, @"
    timed; clean; built 96 0; gpu all: B1 pass & emulated
        0 PASS: 3 variants pass every gate
        of 1 on NVIDIA H200
        No action needed.
    timed; clean; built 96 0; gpu all: B1 pass & emulated; built 96 0
        0 PASS: 3 variants pass every gate
        of 1 on NVIDIA H200
        No action needed.
    timed; built 96 0; gpu all: B1 pass
        3 NOT MEASURED: 3 required rows are missing, first stage0-scalar/scalar-32x64: C7
        of 1 on NVIDIA H200
        Measure what is missing: `compare --full --stages stage0-scalar,stage1-cpasync`. `compare show missing` lists it with the reasons.
    timed; clean; built 96 0; gpu all: B1 pass & emulated @ emulated; rebuilt
        0 STALE: 3 variants were measured on other versions of their kernels, first stage0-scalar/scalar-32x64
        of 1 on NVIDIA H200
        Kernels have changed since they were measured: run `compare` again.
        Measure the 5 figures that are stale again: `compare --full --stages 0,1 --shapes mission`, then `compare accept`.
    ");
}

/// Problems come by size, each with the fastest peer that is right, of the newest session that
/// timed it; where that found ours wrong there is nothing to show, and a stage that it did not time
/// has a faster figure of another day.
#[test]
fn problems_are_won_or_lost_against_the_fastest_peer_of_the_newest_session() {
    let default = |us| PeerArm::right("torch-default", us);
    let math = PeerArm::right("torch-math", 99.0);
    let older =
        timed(US)
            .peers("mission", 10.0, &[default(30.0)])
            .peers("big", 10.0, &[default(5.0)]);
    let newer = timed(US).peers("mission", 10.0, &[default(20.0)]);
    let on_four_problems = timed(US)
        .peers("mission", 10.0, &[default(25.0), math])
        .peers("long", 10.0, &[default(16.0), math])
        .peers("wide", 10.0, &[default(9.0), math])
        .peers("big", 10.0, &[PeerArm::wrong("torch-default", 50.0), math]);
    let newer_and_wrong_on_big = newer
        .clone()
        .peers("big", 10.0, &[default(5.0)])
        .with_columns("cpasync peers big !pair", "C2 fail");
    let place = ProblemPlace::new("mission", Dtype::F16, Mask::Full);
    let older_and_faster = older.clone().beside(WMMA, &place, 2.0, &[default(30.0)]);
    let cases = [
        ("four problems, a wrong peer on one", vec![on_four_problems]),
        (
            "a newer session on one of two problems",
            vec![older.clone(), newer.clone()],
        ),
        (
            "a newer session in which ours is wrong on one problem",
            vec![older, newer_and_wrong_on_big],
        ),
        (
            "an older session with a faster one of ours",
            vec![older_and_faster, newer],
        ),
    ];
    let answers = each_case(cases, |sessions| {
        let table = scenario::table_of_sessions(sessions);
        let stages = ladder();
        let view = View::committed(&stages, &table);
        let mut outcomes = Vec::new();
        for problem in problems(&view) {
            let rival = problem.fastest.unwrap();
            let outcome = outcome(rival.over.estimate(Metric::SpeedupP50));
            let (shape, ours) = (&problem.place.shape, problem.ours);
            let [us, theirs] = [ours, rival.time].map(show);
            outcomes.push(format!(
                "{shape}: {} {us}, {} {theirs}, {outcome:?} in {}",
                ours.subject, rival.time.subject, ours.session
            ));
        }
        lines(outcomes)
    });
    insta::assert_snapshot!(answers, @"
    four problems, a wrong peer on one
        mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 25.02, Faster in 1
        wide: stage1-cpasync/cpasync-32x64 10.01, torch-default 9.009, Slower in 1
        long: stage1-cpasync/cpasync-32x64 10.01, torch-default 16.02, Faster in 1
        big: stage1-cpasync/cpasync-32x64 10.01, torch-math 99.10, Faster in 1
    a newer session on one of two problems
        mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 20.02, Faster in 2
        big: stage1-cpasync/cpasync-32x64 10.01, torch-default 5.005, Slower in 1
    a newer session in which ours is wrong on one problem
        mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 20.02, Faster in 2
    an older session with a faster one of ours
        mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 20.02, Faster in 2
        big: stage1-cpasync/cpasync-32x64 10.01, torch-default 5.005, Slower in 1
    ");
    use common::timing::Change::{Ambiguous, Faster, Slower};
    for (ratio, expected) in [
        ((1.2, 1.1, 1.3), Faster),
        ((1.002, 1.001, 1.003), Faster),
        ((1.2, 1.0, 1.3), Ambiguous),
        ((0.9, 0.8, 1.0), Ambiguous),
        ((0.9, 0.8, 0.99), Slower),
    ] {
        assert_eq!(outcome(Figure::from(ratio)), expected, "{ratio:?}");
    }
}

/// The fastest of ours and of the peers in bursts were timed sustained too; a slower one of ours and a
/// slower peer, which were not, look faster than they.
#[test]
fn a_problem_at_the_power_limit_is_won_or_lost_in_the_sustained_regime() {
    let sustained = "under warm L2, sustained | p50";
    let line = format!(
        "timed; peers mission 10 flash-attn-3 12 torch-cudnn 13; \
         beside wmma mission 11 flash-attn-3 12 torch-cudnn 13; \
         cpasync peers mission !pair: {sustained} 15; flash-attn-3 peers mission: {sustained} 18; \
         + cpasync | mission f16 full | peers flash-attn-3 | {sustained} 15 | speedup_p50 1.2 1.19 1.21"
    );
    ask_table(&line, |view| {
        let problems = problems(view);
        let [problem] = &problems[..] else {
            panic!("one problem")
        };
        let rival = problem.fastest.unwrap();
        assert_eq!(problem.ours.subject.as_str(), CPASYNC);
        assert_eq!(rival.time.subject.as_str(), "flash-attn-3");
        assert_eq!(rival.over.value(Metric::SpeedupP50), Some(1.2));
        let beside = |name: &str| {
            peers::beside(&view.table, problem.ours, |row| {
                row.subject.as_str() == name
            })
            .is_some()
        };
        assert!(beside("flash-attn-3") && !beside("torch-cudnn"));
        // A family that was timed in bursts alone is compared with the bursts of all peers.
        let place = problem.place;
        let wmma = peers::ours(view, place, |row| row.subject.as_str() == WMMA).unwrap();
        let rival_in_bursts = peers::fastest(&view.table, wmma, |_| true).unwrap();
        assert_eq!(rival_in_bursts.time.subject.as_str(), "flash-attn-3");
        assert_eq!(rival_in_bursts.over.regime(), Regime::Burst);
    });
}

/// Returns whether the one problem counts, and our variants that are faster alone.
fn counted_and_missed(line: &str) -> (usize, Vec<String>) {
    ask_table(line, |view| {
        let missed = peers::missed(view);
        let names = missed.iter().map(|row| row.subject.to_string());
        (problems(view).len(), names.collect())
    })
}

#[test]
fn a_problem_on_which_another_variant_was_timed_beside_peers_is_neither_won_nor_lost() {
    let answer = counted_and_missed("timed 32 20 15; beside wmma mission 20 flash-attn-3 12");
    assert_eq!(answer, (0, vec![CPASYNC.to_string()]));
}

#[test]
fn a_variant_that_is_hardly_faster_alone_leaves_a_problem_as_it_was_timed() {
    let answer = counted_and_missed("timed 32 20 19; beside wmma mission 20 flash-attn-3 12");
    assert_eq!(answer, (1, vec![]));
}

#[test]
fn a_variant_that_is_faster_alone_and_not_green_counts_for_nothing() {
    let answer = counted_and_missed(
        "timed 32 20 15; cpasync gpu all: C3 fail; beside wmma mission 20 flash-attn-3 12",
    );
    assert_eq!(answer, (1, vec![]));
}

/// It has a time, too: that of its new side while it was interleaved.
#[test]
fn a_pair_is_no_latency() {
    let run = timed(US);
    let pair = run
        .table
        .rows()
        .find(|row| matches!(row.kind, Kind::Pair { .. }) && row.has(Metric::P50))
        .expect("timed has pairs");
    assert!(!pair.is_latency());
}

#[test]
fn checks_answer_for_no_claim_of_a_stage_whose_gates_did_not_run() {
    let claimed = |words: &str| {
        let run = run(words);
        let report = report_of_checks(&run, &Table::default());
        let mut claims = report.claims.iter();
        claims.any(|claimed| claimed.stage == "stage1-cpasync")
    };
    assert!(claimed("emulated"));
    assert!(!claimed("emulated; - cpasync all"));
}
