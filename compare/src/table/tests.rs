//! Tables: what is merged, dropped and restamped, and what is read back from their files and from those of a run.

use super::files::{SESSION, is_run};
use super::merge::{BUILD, ROWS, SESSIONS};
use super::run::newest_run;
use super::*;
use crate::testing::{
    CPASYNC, SCALAR, US, VARIANTS, WMMA, emulated, instance, mission, table, timed,
};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use std::error::Error;
use std::fs;
use std::path::Path;

/// The figure of a row, and the session that it is of.
fn of(table: &Table, subject: &str, on: &On, by: Source, metric: Metric) -> Option<(f64, String)> {
    let row = table.row(&subject.into(), on, by)?;
    Some((row.value(metric)?, row.session.clone()))
}

fn with_identity(run: Run, stage: usize, identity: &str) -> Run {
    run.changed(|session| session.stages[stage].identity = identity.into())
}

/// As built, with the code in every row that is about it.
fn built() -> Run {
    timed(US).built(96, 0).changed(|_| ())
}

#[test]
fn a_session_replaces_rows_of_its_keys_and_no_others() {
    let newer = timed([31.0, 19.0, 14.0])
        .without(|row| row.subject.as_str() == SCALAR && row.against.is_none());
    let merged = table(&[timed(US).named("1"), newer.named("2")]);
    let p50 = |subject| of(&merged, subject, &mission(), Source::Gpu, Metric::P50);
    assert_eq!(p50(SCALAR), Some((32.03, "1".into())));
    assert_eq!(p50(CPASYNC), Some((14.01, "2".into())));
    let pair = merged.pair(&WMMA.into(), &SCALAR.into(), &mission(), Source::Gpu);
    assert_eq!(pair.unwrap().session, "2");
    assert!(merged.sessions.keys().eq(["1", "2"]));
    assert_eq!(merged.newest_on_gpu().unwrap().name, "2");
    // Another arm, problem or source is another row.
    let about = merged.about(&WMMA.into()).count();
    assert_eq!(about, timed(US).table.about(&WMMA.into()).count());
    assert_eq!(merged.row(&CPASYNC.into(), &mission(), Source::Peers), None);
}

#[test]
fn peers_and_self_tests_are_of_one_session() {
    let flash = |us| ("torch-flash", us, true);
    let old = || {
        timed(US)
            .peers("mission", 10.0, &[flash(20.0), ("torch-math", 90.0, true)])
            .peers("long", 10.0, &[flash(20.0)])
            .beside(WMMA, "mission", 30.0, &[flash(20.0)])
    };
    let new = timed(US).peers("mission", 11.0, &[flash(21.0)]);
    let merged = table(&[old().named("1"), new.named("2")]);
    let rows: Vec<String> = merged
        .by(Source::Peers)
        .map(|row| {
            let against = row.against.as_ref().map_or("", Subject::as_str);
            format!("{} {} {against} of {}", row.subject, row.on, row.session)
        })
        .collect();
    insta::assert_snapshot!(rows.join("\n"), @"
    stage0-scalar/wmma-qk-32x64 mission f16 full  of 1
    stage0-scalar/wmma-qk-32x64 mission f16 full torch-flash of 1
    stage1-cpasync/cpasync-32x64 long f16 full  of 1
    stage1-cpasync/cpasync-32x64 long f16 full torch-flash of 1
    stage1-cpasync/cpasync-32x64 mission f16 full  of 2
    stage1-cpasync/cpasync-32x64 mission f16 full torch-flash of 2
    torch-flash long f16 full  of 1
    torch-flash mission f16 full  of 2
    ");
    // Faults that are planted no more are gone, with the stages that were tested; a session without a self-test says nothing.
    let is_test = |row: &Row| row.by == Source::SelfTest;
    let is_site = |row: &Row| is_test(row) && !row.subject.name().is_empty();
    let tests = |second: Run| {
        let merged = table(&[emulated().named("1"), second.named("2")]);
        merged.by(Source::SelfTest).count()
    };
    let all = emulated().table.by(Source::SelfTest).count();
    assert_eq!(tests(emulated().without(is_test)), all);
    assert_eq!(
        tests(
            emulated().without(|row| is_test(row) && row.value(Metric::CasesFailed) == Some(4.0))
        ),
        all - 1
    );
    assert_eq!(tests(emulated().without(is_site)), all);
}

#[test]
fn what_was_read_of_the_same_machine_code_stays() {
    let with = |code: Option<&str>| {
        let mut run = built();
        let row = run.row_mut(WMMA, &instance(), Source::Ptxas);
        row.code = code.map(String::from);
        run
    };
    let instructions = |code: Option<&str>, now: Option<&str>| {
        let mut old = with(code).named("1");
        let row = old.row_mut(WMMA, &instance(), Source::Ptxas);
        row.figures.insert(Metric::LoopInstructions, 64_u32.into());
        let merged = table(&[old, with(now).named("2")]);
        let read =
            |metric| of(&merged, WMMA, &instance(), Source::Ptxas, metric).map(|(value, _)| value);
        assert_eq!(read(Metric::Registers), Some(96.0));
        read(Metric::LoopInstructions)
    };
    assert_eq!(instructions(Some("a"), Some("a")), Some(64.0));
    assert_eq!(instructions(Some("a"), Some("b")), None);
    assert_eq!(instructions(None, None), None);
}

#[test]
fn verdicts_over_more_cases_of_the_same_kernel_cover_a_passing_row() {
    let of_cases = |cases: u32| {
        let mut run = timed(US);
        let figures = &mut run.summary_mut(WMMA).figures;
        figures.insert(Metric::Cases, cases.into());
        run
    };
    let (whole, quick) = (table(&[of_cases(9)]), of_cases(2));
    let covers = |mut run: Run| whole.covers(run.summary_mut(WMMA));
    assert!(covers(quick.clone()));
    assert!(!covers(of_cases(9)) && !covers(of_cases(10)));
    assert!(!covers(
        quick.clone().failing(WMMA, common::verdict::GateId::C2)
    ));
    assert!(!covers(with_identity(quick.clone(), 0, "new")));
    let latency = quick
        .table
        .row(&WMMA.into(), &mission(), Source::Gpu)
        .unwrap();
    assert!(!whole.covers(latency));
}

#[test]
fn what_the_sources_no_longer_declare_goes() {
    let whole = || {
        let table = table(&[
            emulated()
                .named("1")
                .without(|row| row.subject.stage() != "stage1-cpasync"),
            timed(US)
                .peers("mission", 10.0, &[("torch-flash", 20.0, true)])
                .named("2"),
        ]);
        (table, timed(US).session.stages)
    };
    let subjects = |change: fn(&mut Vec<StageMeta>)| {
        let (mut table, mut stages) = whole();
        change(&mut stages);
        table.prune(&stages);
        let mut subjects: Vec<String> = table.rows().map(|row| row.subject.to_string()).collect();
        subjects.dedup();
        let pairs = table.rows().filter(|row| row.against.is_some()).count();
        format!(
            "{}; {pairs} pairs; sessions {}",
            subjects.join(" "),
            table.sessions.len()
        )
    };
    let lines = [
        subjects(|_| ()),
        // A variant, with the family that it was alone in and the pairs with it.
        subjects(|stages| drop(stages[0].variants.remove(0))),
        subjects(|stages| drop(stages.remove(1))),
        subjects(Vec::clear),
    ];
    insta::assert_snapshot!(lines.join("\n"), @"
    self-test stage0-scalar/scalar stage0-scalar/scalar-32x64 stage0-scalar/wmma-qk stage0-scalar/wmma-qk-32x64 stage1-cpasync/cpasync-32x64 torch-flash; 3 pairs; sessions 2
    self-test stage0-scalar/wmma-qk stage0-scalar/wmma-qk-32x64 stage1-cpasync/cpasync-32x64 torch-flash; 2 pairs; sessions 2
    self-test stage0-scalar/scalar stage0-scalar/scalar-32x64 stage0-scalar/wmma-qk stage0-scalar/wmma-qk-32x64 torch-flash; 1 pairs; sessions 1
    self-test torch-flash; 0 pairs; sessions 1
    ");
}

/// A change of a comment and its revert; a change of the machine code.
#[test]
fn rows_of_the_same_machine_code_are_of_the_sources_as_they_are() {
    let before = built().named("1");
    let mut merged = table(std::slice::from_ref(&before));
    let coded = merged
        .rows()
        .filter(|row| row.code.is_some() && row.subject.stage() == "stage0-scalar")
        .count();
    let restamp = |merged: &mut Table, built: &Run| {
        merged.restamp(&Kernels {
            stages: &built.session.stages,
            built: &built.table,
            arch: Some("sm_90a"),
        })
    };
    let commented = with_identity(built(), 0, "commented");
    // The pair of stage 1 over stage 0 too.
    assert_eq!(restamp(&mut merged, &commented), coded + 1);
    let row =
        |table: &Table, subject: &str| table.row(&subject.into(), &mission(), Source::Gpu).cloned();
    assert_eq!(
        row(&merged, WMMA).unwrap().identity.as_deref(),
        Some("commented")
    );
    let pair = merged
        .pair(&CPASYNC.into(), &WMMA.into(), &mission(), Source::Gpu)
        .unwrap();
    assert_eq!(pair.identity.as_deref(), Some("stage1-cpasync-i+commented"));
    assert_eq!(pair.code, Some(format!("code of {CPASYNC}+code of {WMMA}")));
    assert_eq!(restamp(&mut merged, &commented), 0);
    assert_eq!(restamp(&mut merged, &before), coded + 1);
    assert_eq!(row(&merged, WMMA), row(&before.table, WMMA));
    // Other code: that variant's rows stay as they were, so that they are STALE.
    let mut other = commented;
    other.row_mut(WMMA, &instance(), Source::Ptxas).code = Some("other".into());
    restamp(&mut merged, &other);
    let identity = |subject| row(&merged, subject).unwrap().identity.unwrap();
    assert_eq!(
        [identity(WMMA), identity(SCALAR)],
        ["stage0-scalar-id", "commented"]
    );
}

#[test]
fn the_machine_code_of_a_row_is_that_of_its_instance_on_its_gpu() {
    let mut run = built();
    let code = |run: &Run, row: Row| {
        let kernels = Kernels {
            stages: &run.session.stages,
            built: &run.table,
            arch: Some("sm_90a"),
        };
        kernels.code(&row)
    };
    let on = |shape: &str, dtype| On::Problem(Place::new(shape, dtype, Mask::Full));
    let at = |on| Row::new(WMMA, on, Source::Gpu);
    let of_wmma = Some(format!("code of {WMMA}"));
    assert_eq!(code(&run, at(mission())), of_wmma);
    assert_eq!(code(&run, at(on("1x2:1x113:203x64", Dtype::F16))), of_wmma);
    assert_eq!(
        code(&run, at(on("mission", Dtype::E4m3))),
        None,
        "not built"
    );
    assert_eq!(
        code(&run, at(on("wide", Dtype::F16))),
        None,
        "of another head_dim"
    );
    assert_eq!(code(&run, at(On::Named("x".into()))), None);
    let all = code(&run, at(On::All)).unwrap();
    assert_eq!(all.len(), 16);
    // Of another architecture it is none of the GPU's.
    let other = On::Instance {
        dtype: Dtype::F16,
        head_dim: 64,
        arch: Some("sm_89".into()),
    };
    let mut row = Row::new(WMMA, other, Source::Ptxas);
    row.code = Some("for sm_89".into());
    run.append(row);
    assert_eq!(code(&run, at(On::All)), Some(all.clone()));
    run.row_mut(WMMA, &instance(), Source::Ptxas).code = Some("other".into());
    assert_ne!(code(&run, at(On::All)), Some(all));
    let peer = Row::new("torch-flash", mission(), Source::Peers);
    assert_eq!(code(&run, peer), None);
}

#[test]
fn tables_are_written_as_one_of_the_build_and_one_for_each_gpu_model() {
    let folder = tempfile::tempdir().unwrap();
    let whole = table(&[
        built()
            .clean()
            .peers("mission", 10.0, &[("torch-flash", 16.0, true)])
            .named("1"),
        emulated().named("2"),
    ]);
    let mut results = Results::default();
    assert!(results.is_empty() && results.main().is_none());
    results.put(Some("nvidia-h200"), &whole);
    let small = timed(US).without(|row| row.by != Source::Gpu).named("3");
    results.gpus.insert("nvidia-l4".into(), table(&[small]));
    results.write(folder.path()).unwrap();
    fs::create_dir(folder.path().join(".hidden")).unwrap();
    fs::create_dir(folder.path().join("notes")).unwrap();
    fs::write(folder.path().join("README.md"), "").unwrap();
    let mut read = Results::read(folder.path()).unwrap();
    assert_eq!(read.files(), results.files());
    assert!(read.gpus.keys().eq(["nvidia-h200", "nvidia-l4"]));
    assert_eq!(
        read.main(),
        Some("nvidia-h200"),
        "the one that most is known of"
    );
    // Both parts are the whole; the sessions are those that their rows name.
    assert!(read.of_gpu("nvidia-h200").rows().eq(whole.rows()));
    assert!(read.build.rows().all(|row| row.by.is_of_build()) && !read.build.is_empty());
    assert!(
        read.gpus["nvidia-h200"]
            .rows()
            .all(|row| !row.by.is_of_build())
    );
    assert!(read.gpus["nvidia-l4"].sessions.keys().eq(["3"]));
    assert!(read.gpus["nvidia-h200"].sessions.keys().eq(["1"]));
    assert_eq!(read.build.sessions.len(), 2);
    // A run without a GPU leaves those tables alone.
    read.put(None, &emulated().table);
    assert_eq!(read.gpus.len(), 2);
    assert_eq!(
        Results::read(&folder.path().join("nowhere")).unwrap(),
        Results::default()
    );
    let is_file = Results::read(&folder.path().join("README.md"));
    assert!(matches!(is_file, Err(StoreError::Read { .. })));
    // Of a session the table keeps nothing that is a run's alone.
    let text = fs::read_to_string(folder.path().join(BUILD).join(SESSIONS)).unwrap();
    assert!(
        !text.contains("\"gates\"") && !text.contains("\"stages\""),
        "{text}"
    );
}

fn read_after(change: impl Fn(&Path)) -> Result<Run, StoreError> {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(folder.path()).unwrap();
    change(folder.path());
    Run::read(folder.path(), &timed(US).session.stages)
}

#[test]
fn a_run_is_read_back_and_its_bytes_are_the_same_for_the_same_rows() {
    let mut whole = built().clean();
    let place = mission().problem().unwrap().clone();
    let case = Row::new(WMMA, On::Case(place, "normal:0".into()), Source::Gpu);
    whole.append(case);
    let folder = tempfile::tempdir().unwrap();
    // The session comes last: where writing stops there is no run.
    fs::create_dir(folder.path().join(ROWS)).unwrap();
    assert!(whole.write(folder.path()).is_err() && !is_run(folder.path()));
    fs::remove_dir(folder.path().join(ROWS)).unwrap();
    whole.write(folder.path()).unwrap();
    let read = Run::read(folder.path(), &whole.session.stages).unwrap();
    assert_eq!(read.table, whole.table);
    assert_eq!(read.session.rows, whole.table.rows().count());
    let bytes = || fs::read(folder.path().join(ROWS)).unwrap();
    let first = bytes();
    assert!(first.ends_with(b"}\n"));
    // Whatever the order in which they were appended, and read and written again.
    let mut shuffled = Run::new(whole.session.clone());
    let rows: Vec<Row> = read.table.rows().cloned().collect();
    shuffled.table.extend(rows.into_iter().rev());
    shuffled.write(folder.path()).unwrap();
    assert_eq!(bytes(), first);
    assert_eq!(
        VARIANTS.map(Subject::from),
        *read.variants().collect::<Vec<_>>()
    );
}

#[test]
fn what_cannot_be_read_says_where_and_why() {
    let rows = |folder: &Path| fs::read_to_string(folder.join(ROWS)).unwrap();
    let write =
        |folder: &Path, name: &str, text: String| fs::write(folder.join(name), text).unwrap();
    let first = |folder: &Path| rows(folder).lines().next().unwrap().to_string();
    let whole = timed(US).table.rows().count();
    let lost = format!("{} of the {whole} rows that were written", whole - 1);
    let none = format!("0 of the {whole} rows that were written");
    type Change<'a> = &'a dyn Fn(&Path);
    let cases: [(Change<'_>, &str); 8] = [
        (
            &|f| write(f, ROWS, rows(f) + "{\"subject\": 1}\n"),
            "is not a row",
        ),
        (
            &|f| write(f, ROWS, format!("\n{}\n{{", first(f))),
            "rows.jsonl: line 3 is not a row",
        ),
        (
            &|f| write(f, ROWS, first(f).replace("\"by\"", "\"bye\"")),
            "rows.jsonl: line 1 is not a row",
        ),
        (
            &|f| write(f, ROWS, format!("{0}\n{0}\n", first(f))),
            "rows.jsonl: duplicate row of ",
        ),
        (
            &|f| write(f, ROWS, rows(f).split_once('\n').unwrap().1.into()),
            &lost,
        ),
        (&|f| fs::remove_file(f.join(ROWS)).unwrap(), &none),
        (
            &|f| write(f, SESSION, "{".into()),
            "session.json: line 1 is malformed",
        ),
        (
            &|f| fs::remove_file(f.join(SESSION)).unwrap(),
            " is not a run: it has no session.json",
        ),
    ];
    for (change, expected) in cases {
        let error = read_after(change).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    // What is there and cannot be read is an error, not nothing.
    let unreadable = |folder: &Path| {
        fs::remove_file(folder.join(ROWS)).unwrap();
        fs::create_dir(folder.join(ROWS)).unwrap();
    };
    let error = read_after(unreadable).unwrap_err();
    assert!(matches!(&error, StoreError::Read { .. }) && error.source().is_some());
    let mut sessions = Table::default();
    let error = sessions
        .parse_sessions(b"\n{}\n", Path::new(SESSIONS))
        .unwrap_err();
    assert!(
        error.to_string().contains("sessions.jsonl: line 2"),
        "{error}"
    );
    // A column of another version is left out.
    let renamed = |f: &Path| {
        write(
            f,
            ROWS,
            rows(f).replace("\"global_read_sectors\"", "\"global_read_lines\""),
        )
    };
    let read = read_after(renamed).unwrap().table;
    let bytes = of(
        &read,
        SCALAR,
        &mission(),
        Source::Emulator,
        Metric::GlobalReadBytes,
    );
    assert_eq!(bytes.unwrap().0, 1_048_576.0);
}

#[test]
fn the_newest_finished_run_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let newest =
        |folder: &Path| newest_run(folder).map(|path| path.map(|path| files::name_of(&path)));
    assert_eq!(newest(folder.path()).unwrap(), None);
    let interrupted = emulated().changed(|session| {
        session.progress = session::Progress::Partial {
            finished: 1,
            planned: 2,
        };
    });
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
    assert!(matches!(
        newest(&folder.path().join("README.md")),
        Err(StoreError::Read { .. })
    ));
}
