//! Tables: what is merged, dropped and restamped, and what is read back from their files and from
//! those of a run.

mod merged;
mod unreadable;

use super::files::is_run;
use super::names::{DRAWS, ROWS, SESSIONS};
use super::results::BUILD;
use super::run::{Rebased, newest_run};
use super::*;
use crate::testing::{
    CPASYNC, ON_GPU, PeerArm, SCALAR, US, VARIANTS, WMMA, emulated, instance, ladder, latency,
    mission, results, row, table, table_of_sessions, timed,
};
use common::metric::Metric;
use common::problem::Dtype;
use common::verdict::{GateId, Verdict};
use std::error::Error;
use std::fs;
use std::path::Path;

#[test]
fn tables_are_written_as_one_of_the_build_and_one_for_each_gpu_model() {
    let folder = tempfile::tempdir().unwrap();
    let beside_flash = timed(US).built_throughout(96, 0).clean().peers(
        "mission",
        10.0,
        &[PeerArm::right("torch-flash", 16.0)],
    );
    let whole = table_of_sessions(&[beside_flash, emulated()]);
    let mut results = Results::default();
    assert!(results.is_empty());
    results.put(Some("nvidia-h200"), &whole);
    let on_gpu_alone = timed(US).of_source(Source::Gpu).named("1");
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

/// Returns a later session on another GPU model, without a variant.
fn on_h100_without(subject: &str) -> Run {
    timed(US).without_subject(subject).on_card("NVIDIA H100")
}

/// Asserts that tables are refused for a row that was timed on `gpu`.
#[track_caller]
fn assert_refused(results: &Results, gpu: &str) {
    let folder = tempfile::tempdir().unwrap();
    results.write(folder.path()).unwrap();
    let error = Results::read(folder.path()).unwrap_err().to_string();
    let says = format!("was timed on {gpu}, and the table is of NVIDIA H100; take it out");
    assert!(error.contains("nvidia-h100: stage0-scalar/"), "{error}");
    assert!(error.ends_with(&says), "{error}");
}

fn results_of_h100(sessions: &[Run]) -> Results {
    let mut results = Results::default();
    results.put(Some("nvidia-h100"), &table_of_sessions(sessions));
    results
}

#[test]
fn a_table_of_two_gpu_models_is_refused() {
    for subject in [SCALAR, WMMA] {
        let results = results_of_h100(&[timed(US), on_h100_without(subject)]);
        assert_refused(&results, "NVIDIA H200");
    }
}

#[test]
fn a_table_with_rows_of_an_unknown_session_is_refused() {
    let mut results = results_of_h100(&[timed(US), on_h100_without(SCALAR)]);
    let table = results.gpus.get_mut("nvidia-h100").unwrap();
    table.sessions.remove("1");
    assert_refused(&results, "an unknown GPU");
}

#[test]
fn a_table_of_random_times_on_another_gpu_model_is_refused() {
    let random = row("scalar | 1x1x17x64 f16 full | draw | draw 0 | p50 9");
    let drawn = timed(US).without(|_| true).with_row(random);
    let results = results_of_h100(&[drawn, on_h100_without(SCALAR)]);
    assert_refused(&results, "NVIDIA H200");
}

#[test]
fn a_run_whose_names_lead_out_of_its_folder_is_refused() {
    for name in ["../evil", "/evil", "..", ".hidden", ""] {
        let folder = tempfile::tempdir().unwrap();
        emulated().named(name).write(folder.path()).unwrap();
        let error = Run::read(folder.path(), &[]).unwrap_err();
        assert!(
            matches!(
                error,
                StoreError::Name {
                    what: "session",
                    ..
                }
            ),
            "{error}"
        );
    }
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
