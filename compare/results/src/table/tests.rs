//! Tables: what is merged, dropped and restamped, and what is read back from their files and from
//! those of a run.

use super::files::is_run;
use super::names::{DRAWS, ROWS, SESSIONS};
use super::results::BUILD;
use super::run::{Rebased, newest_run};
use super::*;
use crate::testing::scenario::{each, each_case, row, run, table_of_sessions, view};
use crate::testing::{
    CPASYNC, PeerArm, US, VARIANTS, WMMA, emulated, instance, mission, results, table, timed,
};
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::Dtype;
use common::verdict::Verdict;
use std::error::Error;
use std::fs;
use std::path::Path;

fn lines(of: impl IntoIterator<Item = String>) -> String {
    Vec::from_iter(of).join("\n")
}

/// The rule is that of [`Table::merge`]; another arm, problem or source is another row.
#[test]
fn a_session_replaces_rows_of_its_keys() {
    let flash = |us| PeerArm::right("torch-flash", us);
    let of_peers = timed(US)
        .peers(
            "mission",
            10.0,
            &[flash(20.0), PeerArm::right("torch-math", 90.0)],
        )
        .peers("long", 10.0, &[flash(20.0)])
        .beside(WMMA, &mission(), 30.0, &[flash(20.0)]);
    let newer_of_peers = timed(US).peers("mission", 11.0, &[flash(21.0)]);
    let of_random_problems = timed(US)
        .with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 9"))
        .with_row(row("wmma | 1x1x17x64 f16 full | draw | p50 8"))
        .with_row(row("wmma | 1x1x18x64 f16 full | draw | p50 8"));
    let newer_of_one_problem =
        timed(US).with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 7"));
    let built = |registers| timed(US).built_throughout(registers, 0);
    let read = built(96).with_columns("wmma ptxas", "code a | loop_instructions 64");
    let read_without_code = read.clone().with_columns("wmma ptxas", "code none");
    let cases = [
        (
            "a session without one variant",
            (
                Source::Gpu,
                [
                    timed(US),
                    timed([31.0, 19.0, 14.0]).without_rows("scalar !pair"),
                ],
            ),
        ),
        (
            "a session with peers on one problem",
            (Source::Peers, [of_peers, newer_of_peers]),
        ),
        (
            "a session on one random problem",
            (Source::Draw, [of_random_problems, newer_of_one_problem]),
        ),
        (
            "a session without the self-test",
            (
                Source::SelfTest,
                [emulated(), emulated().without_rows("self-test")],
            ),
        ),
        (
            "a self-test of fewer faults",
            (
                Source::SelfTest,
                [emulated(), emulated().without_rows("zeros")],
            ),
        ),
        (
            "a self-test of items alone",
            (
                Source::SelfTest,
                [emulated(), emulated().without_rows("self-test !:")],
            ),
        ),
        (
            "the same code, read again",
            (Source::Ptxas, [read.clone(), read.clone()]),
        ),
        (
            "the same code, of which less is read",
            (
                Source::Ptxas,
                [read.clone(), built(88).with_columns("wmma ptxas", "code a")],
            ),
        ),
        (
            "other code",
            (
                Source::Ptxas,
                [read, built(88).with_columns("wmma ptxas", "code b")],
            ),
        ),
        (
            "no known code",
            (
                Source::Ptxas,
                [
                    read_without_code,
                    built(88).with_columns("wmma ptxas", "code none"),
                ],
            ),
        ),
    ];
    let answers = each_case(cases, |(source, sessions)| {
        let table = table_of_sessions(sessions);
        let mut shown = Vec::new();
        for row in table.rows_by(*source) {
            if *source == Source::Ptxas && row.subject.as_str() != WMMA {
                continue;
            }
            let mut line = format!("{} of {}", row.key(), row.session);
            for metric in [Metric::P50, Metric::Registers, Metric::LoopInstructions] {
                if let Some(value) = row.value(metric) {
                    line += &format!(" {value}");
                }
            }
            shown.push(line);
        }
        let newest = table.newest_on_gpu().map(|session| &*session.name);
        let count = table.sessions.len();
        format!("{}\nnewest {newest:?} of {count}", lines(shown))
    });
    insta::assert_snapshot!(answers, @r#"
    a session without one variant
        stage0-scalar/scalar-32x64 on all by gpu of 1
        stage0-scalar/scalar-32x64 on mission f16 full by gpu of 1 32.03
        stage0-scalar/wmma-qk-32x64 on all by gpu of 2
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu of 2 19.02
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64 of 2 19.02
        stage1-cpasync/cpasync-32x64 on all by gpu of 2
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu of 2 14.01
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64 of 2 14.01
        newest Some("2") of 2
    a session with peers on one problem
        stage0-scalar/wmma-qk-32x64 on mission f16 full by peers of 1 30.03
        stage0-scalar/wmma-qk-32x64 on mission f16 full by peers against torch-flash of 1 30.03
        stage1-cpasync/cpasync-32x64 on long f16 full by peers of 1 10.01
        stage1-cpasync/cpasync-32x64 on long f16 full by peers against torch-flash of 1 10.01
        stage1-cpasync/cpasync-32x64 on mission f16 full by peers of 2 11.01
        stage1-cpasync/cpasync-32x64 on mission f16 full by peers against torch-flash of 2 11.01
        torch-flash on long f16 full by peers of 1 20.02
        torch-flash on mission f16 full by peers of 2 21.02
        newest Some("2") of 2
    a session on one random problem
        stage0-scalar/scalar-32x64 on 1x1x17x64 f16 full by draw of 2 7
        stage0-scalar/wmma-qk-32x64 on 1x1x18x64 f16 full by draw of 1 8
        newest Some("2") of 2
    a session without the self-test
        self-test on : correct model by self-test of 1
        self-test on : zeros by self-test of 1
        stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 1
        stage0-scalar/wmma-qk on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 1
        newest None of 2
    a self-test of fewer faults
        self-test on : correct model by self-test of 2
        stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
        stage0-scalar/wmma-qk on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
        newest None of 2
    a self-test of items alone
        self-test on : correct model by self-test of 2
        self-test on : zeros by self-test of 2
        stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
        stage0-scalar/wmma-qk on : __syncthreads stage0-scalar/kernel.cu:159 by self-test of 2
        newest None of 2
    the same code, read again
        stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 1 96 64
        newest Some("2") of 2
    the same code, of which less is read
        stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 2 88 64
        newest Some("2") of 2
    other code
        stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 2 88
        newest Some("2") of 2
    no known code
        stage0-scalar/wmma-qk-32x64 on f16 d64 sm_90a by ptxas of 2 88
        newest Some("2") of 2
    "#);
}

#[test]
fn a_time_of_the_same_key_is_that_of_the_later_session() {
    let first = timed(US).named("1");
    let second = timed([31.0, 19.0, 14.0]).named("2");
    let table = table(&[first, second]);
    let row = table
        .latency(&WMMA.into(), &mission())
        .expect("both sessions timed it");
    assert_eq!(row.session, "2");
    assert_eq!(row.value(Metric::P50), Some(19.02));
}

#[test]
fn a_time_that_a_later_session_did_not_take_stays() {
    let first = timed(US).named("1");
    let second = timed([31.0, 19.0, 14.0]).without_rows("wmma").named("2");
    let table = table(&[first, second]);
    let row = table
        .latency(&WMMA.into(), &mission())
        .expect("the first session timed it");
    assert_eq!(row.session, "1");
}

#[test]
fn a_pair_is_stale_where_its_base_alone_has_changed() {
    let stages = timed(US).with_identity(0, "new").session.stages;
    let table = table(&[timed(US)]);
    let (new, base) = (CPASYNC.into(), WMMA.into());
    let pair = table.pair(&new, &base, &mission()).unwrap();
    assert!(kernels::is_stale(&stages, pair));
    let alone = table.latency(&new, &mission()).unwrap();
    assert!(!kernels::is_stale(&stages, alone));
}

#[test]
fn a_pair_is_stale_where_its_subject_alone_has_changed() {
    let stages = timed(US).with_identity(1, "new").session.stages;
    let table = table(&[timed(US)]);
    let (new, base) = (CPASYNC.into(), WMMA.into());
    let pair = table.pair(&new, &base, &mission()).unwrap();
    assert!(kernels::is_stale(&stages, pair));
    let of_base = table.latency(&base, &mission()).unwrap();
    assert!(!kernels::is_stale(&stages, of_base));
}

#[test]
fn verdicts_over_more_cases_of_the_same_kernel_cover_a_passing_row() {
    let measured = timed(US).with_columns("wmma gpu all", "cases 9");
    let whole = table(&[measured.named("1")]);
    let answers = each(
        "wmma gpu all: cases 2
        wmma gpu all: cases 9
        wmma gpu all: cases 10
        wmma gpu all: cases 2 | C2 fail
        identity 0 new; wmma gpu all: cases 2",
        |line| {
            let quick = run(&format!("timed; {line}"));
            let covers = |kind| whole.covers(quick.table.row(&WMMA.into(), kind).unwrap());
            assert!(
                !covers(Kind::Latency(mission())),
                "a latency is of no cases"
            );
            covers(Kind::Checked(BackendKind::Cuda)).to_string()
        },
    );
    insta::assert_snapshot!(answers, @"
    wmma gpu all: cases 2
        true
    wmma gpu all: cases 9
        false
    wmma gpu all: cases 10
        false
    wmma gpu all: cases 2 | C2 fail
        false
    identity 0 new; wmma gpu all: cases 2
        false
    ");
}

/// A variant with the family that it was alone in and the pairs with it, a stage, all.
#[test]
fn what_the_sources_no_longer_declare_goes() {
    let sessions = "emulated; - !stage1-cpasync & timed; peers mission 10 torch-flash 20; + stage1-cpasync/cpasync | mission f16 full | gpu | p50 9";
    let answers = each(
        "emulated
        emulated; refused scalar
        emulated; without-stage 1
        emulated; without-stage 1; without-stage 0",
        |sources| {
            let (stages, mut table) = view(&format!("{sessions} @ {sources}"));
            table.prune(&stages);
            let mut subjects: Vec<&str> = table.rows().map(|row| row.subject.as_str()).collect();
            subjects.dedup();
            let pairs = table.rows().filter(|row| row.base().is_some()).count();
            format!(
                "{}; {pairs} pairs; {} sessions",
                subjects.join(" "),
                table.sessions.len()
            )
        },
    );
    insta::assert_snapshot!(answers, @"
    emulated
        self-test stage0-scalar/scalar stage0-scalar/scalar-32x64 stage0-scalar/wmma-qk stage0-scalar/wmma-qk-32x64 stage1-cpasync/cpasync-32x64 torch-flash; 3 pairs; 2 sessions
    emulated; refused scalar
        self-test stage0-scalar/wmma-qk stage0-scalar/wmma-qk-32x64 stage1-cpasync/cpasync-32x64 torch-flash; 2 pairs; 2 sessions
    emulated; without-stage 1
        self-test stage0-scalar/scalar stage0-scalar/scalar-32x64 stage0-scalar/wmma-qk stage0-scalar/wmma-qk-32x64 torch-flash; 1 pairs; 1 sessions
    emulated; without-stage 1; without-stage 0
        self-test torch-flash; 0 pairs; 1 sessions
    ");
}

#[test]
fn rows_of_an_element_type_that_a_variant_no_longer_has_go() {
    let (mut stages, mut table) = view("timed; + scalar | mission e4m3 full | gpu | p50 9");
    let rows_of = |merged: &Table, dtype| {
        let rows = merged.rows();
        rows.filter(|row| row.kind.dtype() == Some(dtype)).count()
    };
    table.prune(&stages);
    assert_eq!(rows_of(&table, Dtype::E4m3), 1);
    let rows_of_f16 = rows_of(&table, Dtype::F16);

    for variant in stages.iter_mut().flat_map(|stage| &mut stage.variants) {
        variant
            .kernels
            .retain(|kernel| kernel.facts.dtype != Dtype::E4m3);
    }
    table.prune(&stages);
    assert_eq!(rows_of(&table, Dtype::E4m3), 0);
    assert_eq!(rows_of(&table, Dtype::F16), rows_of_f16);
}

/// A change of a comment and its revert; a change of the machine code, after which that variant's
/// rows stay as they were: STALE.
#[test]
fn rows_of_the_same_machine_code_are_of_the_sources_as_they_are() {
    let measured = table(&[timed(US).built_throughout(96, 0).named("1")]);
    let restamped = std::cell::RefCell::new(measured);
    let answers = each(
        "timed; built 96 0; identity 0 commented
        timed; built 96 0
        timed; built 96 0; identity 0 commented; wmma ptxas: code other",
        |line| {
            let built = run(line);
            let mut table = restamped.borrow_mut();
            table.restamp(&built.session.stages, &built.table);
            let rows = table
                .rows()
                .filter(|row| matches!(row.kind, Kind::Latency(_) | Kind::Pair { .. }));
            lines(rows.map(|row| {
                let [identity, code] =
                    [&row.identity, &row.code].map(|hash| hash.as_deref().unwrap_or("none"));
                format!("{}: {identity}, {code}", row.key())
            }))
        },
    );
    insta::assert_snapshot!(answers, @"
    timed; built 96 0; identity 0 commented
        stage0-scalar/scalar-32x64 on mission f16 full by gpu: commented, code of stage0-scalar/scalar-32x64
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu: commented, code of stage0-scalar/wmma-qk-32x64
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64: commented+commented, code of stage0-scalar/wmma-qk-32x64+code of stage0-scalar/scalar-32x64
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu: stage1-cpasync-i, code of stage1-cpasync/cpasync-32x64
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64: stage1-cpasync-i+commented, code of stage1-cpasync/cpasync-32x64+code of stage0-scalar/wmma-qk-32x64
    timed; built 96 0
        stage0-scalar/scalar-32x64 on mission f16 full by gpu: stage0-scalar-id, code of stage0-scalar/scalar-32x64
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu: stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64: stage0-scalar-id+stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64+code of stage0-scalar/scalar-32x64
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu: stage1-cpasync-i, code of stage1-cpasync/cpasync-32x64
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64: stage1-cpasync-i+stage0-scalar-id, code of stage1-cpasync/cpasync-32x64+code of stage0-scalar/wmma-qk-32x64
    timed; built 96 0; identity 0 commented; wmma ptxas: code other
        stage0-scalar/scalar-32x64 on mission f16 full by gpu: commented, code of stage0-scalar/scalar-32x64
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu: stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64
        stage0-scalar/wmma-qk-32x64 on mission f16 full by gpu against stage0-scalar/scalar-32x64: stage0-scalar-id+stage0-scalar-id, code of stage0-scalar/wmma-qk-32x64+code of stage0-scalar/scalar-32x64
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu: stage1-cpasync-i, code of stage1-cpasync/cpasync-32x64
        stage1-cpasync/cpasync-32x64 on mission f16 full by gpu against stage0-scalar/wmma-qk-32x64: stage1-cpasync-i+stage0-scalar-id, code of stage1-cpasync/cpasync-32x64+code of stage0-scalar/wmma-qk-32x64
    ");
}

/// It is that of the instance on a problem; on all cases one over all instances for the GPU's
/// architecture, whatever others there are.
#[test]
fn the_machine_code_of_a_row_is_that_of_its_instance_on_its_gpu() {
    let built = "timed; built 96 0";
    let code_of = |words: &str, text: &str| {
        let run = run(words);
        kernels::code(&run.table, Some("sm_90a"), &row(text))
    };
    let answers = each(
        "wmma | mission f16 full | gpu
        wmma | 1x2:1x113:203x64 f16 full | gpu
        wmma | mission e4m3 full | gpu
        wmma | wide f16 full | gpu
        wmma | : x | self-test
        torch-flash | mission f16 full | peers",
        |line| code_of(built, line).unwrap_or_default(),
    );
    insta::assert_snapshot!(answers, @"
    wmma | mission f16 full | gpu
        code of stage0-scalar/wmma-qk-32x64
    wmma | 1x2:1x113:203x64 f16 full | gpu
        code of stage0-scalar/wmma-qk-32x64
    wmma | mission e4m3 full | gpu
        -
    wmma | wide f16 full | gpu
        -
    wmma | : x | self-test
        -
    torch-flash | mission f16 full | peers
        -
    ");
    let (_, table) = view(
        "timed; built 96 0; archs sm_80 sm_90a & emulated; built 96 0; card NVIDIA H200; archs sm_90",
    );
    assert_eq!(table.compiled_arch(), Some("sm_90a"));
    let older = format!("{built}; + wmma | f16 d64 sm_80 | ptxas | code x");
    let place = "wmma | mission f16 full | gpu";
    assert_eq!(code_of(&older, place), code_of(built, place));
    let all = |changes: &str| code_of(&format!("{built}{changes}"), "wmma | all | gpu");
    assert_eq!(all("").unwrap().len(), 16);
    assert_eq!(all("; + wmma | f16 d64 sm_89 | ptxas | code x"), all(""));
    assert_ne!(all("; wmma ptxas: code other"), all(""));
}

#[test]
fn a_run_of_other_sources_keeps_what_is_of_the_same_machine_code() {
    let built = timed(US).built_throughout(96, 0).table;
    let rebased = |words: &str| {
        let run = run(&format!("timed; built 104 0; {words}"));
        run.on_current_sources(&built)
    };
    let registers = |words: &str| {
        let Rebased { run, .. } = rebased(words);
        let row = run.table.row(&WMMA.into(), instance());
        row.unwrap().value(Metric::Registers)
    };
    // What the sources' build says of the same code is theirs.
    assert_eq!(registers("sources 0 new"), Some(96.0));
    assert_eq!(registers("wmma ptxas: code other"), Some(104.0));
    let mut changed = timed(US)
        .built_throughout(96, 0)
        .with_row(row("wmma | mission f16 full normal:0 | gpu"));
    changed.session.stages[0].identity = "new".into();
    assert!(changed.on_current_sources(&built).left_out.is_empty());
    changed.row_mut(WMMA, Kind::Latency(mission())).code = Some("other".into());
    let Rebased { left_out, .. } = changed.on_current_sources(&built);
    assert!(
        left_out.iter().eq([&WMMA.into()]),
        "though other rows of it stay"
    );
    let built_alone = timed(US).built_throughout(96, 0).without_rows("!ptxas");
    assert!(!built_alone.has_evidence());
}

#[test]
fn tables_are_written_as_one_of_the_build_and_one_for_each_gpu_model() {
    let folder = tempfile::tempdir().unwrap();
    let (_, whole) = view("timed; built 96 0; clean; peers mission 10 torch-flash 16 & emulated");
    let mut results = Results::default();
    assert!(results.is_empty());
    results.put(Some("nvidia-h200"), &whole);
    let on_gpu_alone = timed(US).without_rows("!gpu").named("1");
    results
        .gpus
        .insert("nvidia-l4".into(), table(&[on_gpu_alone]));
    results.write(folder.path()).unwrap();
    fs::create_dir(folder.path().join("notes")).unwrap();
    // A run is no table, nor is what is hidden.
    for (name, file) in [(".hidden", ROWS), ("run", ROWS), ("run", files::SESSION)] {
        fs::create_dir_all(folder.path().join(name)).unwrap();
        fs::write(folder.path().join(name).join(file), "").unwrap();
    }
    fs::write(folder.path().join("README.md"), "").unwrap();
    let mut read = Results::read(folder.path()).unwrap();
    assert_eq!(read.files(), results.files());
    assert!(read.gpus.keys().eq(["nvidia-h200", "nvidia-l4"]));
    // Both parts are the whole; the sessions are those that their rows name.
    let of_build = |table: &Table| Vec::from_iter(table.rows().map(|row| row.kind.is_of_build()));
    assert!(read.of_gpu("nvidia-h200").rows().eq(whole.rows()));
    assert!(!read.build.is_empty() && !of_build(&read.build).contains(&false));
    assert!(!of_build(&read.gpus["nvidia-h200"]).contains(&true));
    assert!(read.gpus["nvidia-h200"].sessions.keys().eq(["1"]));
    assert!(read.build.sessions.keys().eq(["1", "2"]));
    // A run without a GPU leaves those tables alone.
    read.put(None, &emulated().table);
    assert_eq!(read.gpus.len(), 2);
    let nowhere = Results::read(&folder.path().join("nowhere")).unwrap();
    assert_eq!(nowhere, Results::default());
    let is_file = Results::read(&folder.path().join("README.md"));
    assert!(matches!(is_file, Err(StoreError::Read { .. })));
    // Of a session the table keeps nothing that is a run's alone.
    let text = fs::read_to_string(folder.path().join(BUILD).join(SESSIONS)).unwrap();
    assert!(
        !text.contains("\"gates\"") && !text.contains("\"stages\""),
        "{text}"
    );
}

#[test]
fn a_run_is_read_back_and_its_bytes_are_the_same_for_the_same_rows() {
    let whole = timed(US)
        .built_throughout(96, 0)
        .clean()
        .with_row(row("wmma | mission f16 full normal:0 | gpu"));
    let folder = tempfile::tempdir().unwrap();
    // The session comes last: where writing stops there is no run.
    fs::create_dir(folder.path().join(ROWS)).unwrap();
    assert!(whole.write(folder.path()).is_err() && !is_run(folder.path()));
    fs::remove_dir(folder.path().join(ROWS)).unwrap();
    whole.write(folder.path()).unwrap();
    let read = Run::read(folder.path(), &whole.session.stages).unwrap();
    assert_eq!(read.table, whole.table);
    assert_eq!(read.session.rows, whole.table.rows().count());
    // Where a run was killed before its session was written, there are more rows than that counts.
    let path = folder.path().join(files::SESSION);
    let session = fs::read_to_string(&path).unwrap();
    let count = |rows| format!("\"rows\": {rows}");
    let rows = read.session.rows;
    fs::write(&path, session.replace(&count(rows), &count(rows - 1))).unwrap();
    assert!(Run::read(folder.path(), &whole.session.stages).is_ok());
    let bytes = || fs::read(folder.path().join(ROWS)).unwrap();
    let first = bytes();
    assert!(first.ends_with(b"}\n"));
    // Whatever the order in which they were appended, and read and written again.
    let mut shuffled = Run::new(whole.session.clone());
    let in_order: Vec<Row> = read.table.rows().cloned().collect();
    shuffled.table.extend(in_order.into_iter().rev());
    shuffled.write(folder.path()).unwrap();
    assert_eq!(bytes(), first);
    assert!(read.variants().eq(VARIANTS.map(Subject::from)));
}

#[test]
fn a_time_below_the_floor_of_its_gpu_is_refused_where_a_table_is_read() {
    let mut results = Results::default();
    results.put(Some("nvidia-h200"), &table(&[timed(US).named("1")]));
    for (file, line) in [
        (
            ROWS,
            r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"peers","session":"1","p50":1e-9}"#,
        ),
        (
            DRAWS,
            r#"{"session":"1","dtype":"f16","shape":["1x8x9x64","1x8x512x64"],"mask":["full","full"],"draw":[6,7],"kernels":[{"subject":"s/v","p50":[9,1e-9]}]}"#,
        ),
    ] {
        let folder = tempfile::tempdir().unwrap();
        results.write(folder.path()).unwrap();
        let path = folder.path().join("nvidia-h200").join(file);
        let before = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{before}{line}\n")).unwrap();
        let error = Results::read(folder.path()).unwrap_err();
        let words = format!("{error}: {}", error.source().unwrap());
        let number = before.lines().count() + 1;
        for says in [
            &format!("{file}: line {number} is malformed: s/v on "),
            "0.000000001 µs, and nothing can take less than 0.543 µs on NVIDIA H200",
        ] {
            assert!(words.contains(says), "{words}");
        }
    }
}

#[test]
fn a_table_of_two_gpu_models_or_of_a_session_that_is_not_there_is_refused() {
    let named = "timed & timed; - scalar; card NVIDIA H100";
    let drawn = "timed; - !nothing; + scalar | 1x1x17x64 f16 full | draw | draw 0 | p50 9 & timed; - scalar; card NVIDIA H100";
    for (words, is_there, gpu) in [
        (named, true, "NVIDIA H200"),
        (
            "timed & timed; - wmma; card NVIDIA H100",
            true,
            "NVIDIA H200",
        ),
        (named, false, "an unknown GPU"),
        (drawn, true, "NVIDIA H200"),
    ] {
        let (_, table) = view(words);
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::default();
        results.put(Some("nvidia-h100"), &table);
        let gpus = results.gpus.get_mut("nvidia-h100").unwrap();
        gpus.sessions.retain(|name, _| is_there || name != "1");
        results.write(folder.path()).unwrap();
        let error = Results::read(folder.path()).unwrap_err().to_string();
        let says = format!("was timed on {gpu}, and the table is of NVIDIA H100; take it out");
        assert!(error.contains("nvidia-h100: stage0-scalar/"), "{error}");
        assert!(error.ends_with(&says), "{error}");
    }
}

/// A file has what stands behind it, `FIRST` for its first line and `ALL` for all; `none` is no
/// file and `folder` one in its place.
#[test]
fn what_cannot_be_read_says_where_and_why() {
    let answers = each(
        r#"rows.jsonl ALL{"subject": 1}
        rows.jsonl \r\nFIRST\r\n{
        rows.jsonl FIRST\nFIRST
        rows.jsonl FIRST
        rows.jsonl none
        rows.jsonl folder
        session.json {
        session.json none"#,
        |line| {
            let folder = tempfile::tempdir().unwrap();
            timed(US).write(folder.path()).unwrap();
            let (name, text) = line.split_once(' ').unwrap();
            let path = folder.path().join(name);
            let all = fs::read_to_string(&path).unwrap();
            let first = all.lines().next().unwrap();
            fs::remove_file(&path).unwrap();
            match text {
                "none" => {}
                "folder" => fs::create_dir(&path).unwrap(),
                _ => {
                    let written = text
                        .replace("\\n", "\n")
                        .replace("\\r", "\r")
                        .replace("ALL", &all)
                        .replace("FIRST", first);
                    fs::write(&path, written).unwrap();
                }
            }
            let error = Run::read(folder.path(), &timed(US).session.stages).unwrap_err();
            let source = error.source().map(|source| format!(": {source}"));
            let words = format!("{error}{}", source.unwrap_or_default());
            words.replace(&folder.path().display().to_string(), "RUN")
        },
    );
    insta::assert_snapshot!(answers, @r#"
    rows.jsonl ALL{"subject": 1}
        RUN/rows.jsonl: line 16 is malformed: column `subject`: invalid type: integer `1`, expected a string
    rows.jsonl \r\nFIRST\r\n{
        RUN/rows.jsonl: line 3 is malformed: EOF while parsing an object at line 1 column 1
    rows.jsonl FIRST\nFIRST
        RUN/rows.jsonl: duplicate row of self-test on : correct model by self-test
    rows.jsonl FIRST
        RUN/rows.jsonl has 1 of the 15 rows that were written; copy the run again
    rows.jsonl none
        RUN/rows.jsonl has 0 of the 15 rows that were written; copy the run again
    rows.jsonl folder
        cannot read RUN/rows.jsonl: Is a directory (os error 21)
    session.json {
        RUN/session.json: line 1 is malformed: EOF while parsing an object at line 1 column 1
    session.json none
        RUN is not a run: it has no session.json; name a folder that `compare run` of this version wrote
    "#);
    let mut sessions = Table::default();
    let error = sessions
        .parse(SESSIONS, b"\n{}\n", Path::new(SESSIONS))
        .unwrap_err();
    assert!(
        error.to_string().contains("sessions.jsonl: line 2"),
        "{error}"
    );
    // A column of another version is left out.
    let mut read = Table::default();
    let text = serde_json::to_string(&emulated().table.rows().next()).unwrap();
    read.parse(
        ROWS,
        text.replace("\"by\"", "\"other\":1,\"by\"").as_bytes(),
        Path::new(ROWS),
    )
    .unwrap();
    assert_eq!(read.rows().next(), emulated().table.rows().next());
}

#[test]
fn a_run_that_lost_one_row_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(folder.path()).unwrap();
    let path = folder.path().join(ROWS);
    let rows = fs::read_to_string(&path).unwrap();
    let all_but_one: Vec<&str> = rows.lines().skip(1).collect();
    fs::write(&path, all_but_one.join("\n")).unwrap();
    let error = Run::read(folder.path(), &timed(US).session.stages).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("has 14 of the 15 rows that were written; copy the run again"),
        "{error}"
    );
}

#[test]
fn the_newest_finished_run_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let newest = |folder_of_runs: &Path| match newest_run(folder_of_runs) {
        Ok(run) => Ok(run.as_deref().map(files::name_of)),
        Err(error) => Err(error),
    };
    assert_eq!(newest(folder.path()).unwrap(), None);
    let interrupted = emulated().partial(1, 2);
    for (name, run) in [
        ("2-b", emulated()),
        ("1-a", emulated()),
        ("3-c", interrupted),
    ] {
        run.write(&folder.path().join(name)).unwrap();
    }
    fs::create_dir(folder.path().join("notes")).unwrap();
    fs::write(folder.path().join("README.md"), "").unwrap();
    assert_eq!(newest(folder.path()).unwrap().as_deref(), Some("2-b"));
    assert_eq!(newest(&folder.path().join("nowhere")).unwrap(), None);
    let file = newest(&folder.path().join("README.md"));
    assert!(matches!(file, Err(StoreError::Read { .. })));
}

/// Reading a row that has no kind fails, so that every committed row has exactly one.
#[test]
fn every_committed_row_has_a_kind_and_every_table_keeps_its_bytes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    let results = results();
    let files = results.files();
    assert_eq!(files.len(), 5 * 3, "five files of each table");
    for file in files {
        let committed = fs::read(folder.join(&file.path)).unwrap();
        assert!(committed == file.bytes, "{}", file.path);
    }
    for table in results.gpus.values().chain([&results.build]) {
        for row in table.rows() {
            assert!(!row.kind.is_case(), "{}", row.key());
            // Of a claim that says NO DATA, no session has measured anything.
            let mut verdicts = row.verdicts.values();
            let is_unmeasured = matches!(row.kind, Kind::Claim(_))
                && verdicts.all(|judged| judged.verdict == Verdict::NoData);
            assert!(
                table.session(row).is_some() || is_unmeasured,
                "{}",
                row.key()
            );
        }
    }
}
