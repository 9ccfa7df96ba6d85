use super::*;
use crate::comparison::diff::Class;
use crate::testing::{counted, emulated, timed};
use std::path::Path;
use std::process::Command;

const US: [f64; 3] = [32.0, 20.0, 15.0];

fn side(name: &str, records: Vec<(&str, common::record::Record)>) -> Side {
    let records = records.into_iter().map(|(name, record)| (name.to_string(), record)).collect();
    Side { name: name.into(), records, is_folder: false }
}

/// The same ladder with something of each kind: slower and faster, a cost that doubles, a missing variant.
fn changed() -> common::record::Record {
    let mut record = timed([33.0, 21.0, 14.0]);
    record.evidence.counters[2] = counted("stage1-cpasync", "cpasync-32x64", 2_097_152, 0);
    record.meta.stages[0].variants.remove(0);
    record.correctness.variants.remove(0);
    record.evidence.counters.remove(0);
    record
}

#[test]
fn the_document_says_first_what_matters() {
    let difference = difference(&side("main", vec![("old", timed(US))]), &side("here", vec![("new", changed())]), 0.02);
    insta::assert_snapshot!("markdown", document::markdown(&layout::blocks(&difference)));
    insta::assert_snapshot!("terminal", document::terminal(&layout::blocks(&difference)));
}

#[test]
fn json_has_every_row_with_its_reason() {
    let difference = difference(&side("a", vec![("old", timed(US))]), &side("b", vec![("new", changed())]), 0.02);
    let document = layout::json(&difference);
    assert_eq!(document["verdict"]["exit_code"], 1);
    let rows = document["difference"]["pairs"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), difference.pairs[0].rows.len());
    let slower = rows.iter().find(|row| row["class"] == "slower").unwrap();
    assert_eq!(
        (slower["reason"].as_str(), slower["metric"].as_str()),
        (Some("beyond-threshold"), Some("p50 on mission f16 full"))
    );
    assert!(slower["ratio"]["value"].as_f64().unwrap() < 1.0);
}

#[test]
fn records_of_one_gpu_and_backend_stand_beside_each_other() {
    let base = side("a", vec![("emulated", emulated()), ("gpu", timed(US))]);
    let names = |new: &Side| -> (Vec<(String, String)>, usize) {
        let (pairs, unpaired) = pair_up(&base.records, &new.records);
        (pairs.into_iter().map(|(a, b)| (a.0.clone(), b.0.clone())).collect(), unpaired.len())
    };
    let pair = |a: &str, b: &str| (a.to_string(), b.to_string());
    let both = side("b", vec![("new-gpu", timed(US)), ("new-emulated", emulated())]);
    assert_eq!(names(&both), (vec![pair("gpu", "new-gpu"), pair("emulated", "new-emulated")], 0));
    assert_eq!(names(&side("b", vec![("new", emulated())])), (vec![pair("emulated", "new")], 1));
    // Without a counterpart the newest are compared as far as they can be.
    let only_emulated = side("a", vec![("old", emulated())]);
    let difference = difference(&only_emulated, &side("b", vec![("new", timed(US))]), 0.02);
    assert_eq!(difference.pairs.len(), 1);
    assert!(difference.rows().any(|row| row.class == Class::Same && row.metric.to_string() == "counters"));
}

#[test]
fn a_threshold_is_a_percentage() {
    for (text, ok) in [
        ("2", true),
        ("0.5", true),
        ("100", true),
        ("0", false),
        ("-1", false),
        ("101", false),
        ("x", false),
        ("NaN", false),
    ] {
        assert_eq!(percent(text).is_ok(), ok, "{text}");
    }
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = ["-c", "user.name=t", "-c", "user.email=t@example.invalid", "-c", "commit.gpgsign=false"];
    let output = Command::new("git").arg("-C").arg(folder).args(identity).args(arguments).output().unwrap();
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_side_is_a_folder_a_committed_record_or_a_revision() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    git(root, &["init", "--quiet", "--initial-branch", "main"]);
    git(root, &["commit", "--quiet", "--allow-empty", "-m", "empty"]);
    git(root, &["tag", "before"]);
    timed(US).write(&root.join("results/1-gpu")).unwrap();
    emulated().write(&root.join("results/2-emulated")).unwrap();
    timed(US.map(|us| 2.0 * us)).write(&root.join("results/3-gpu")).unwrap();
    git(root, &["add", "results"]);
    git(root, &["commit", "--quiet", "-m", "records"]);
    std::fs::remove_dir_all(root.join("results/3-gpu")).unwrap();

    let names = |name: &str| -> Result<Vec<String>, SourceError> {
        Ok(source::resolve(name, Some(root), false)?.records.into_iter().map(|(name, _)| name).collect())
    };
    let path = |name: &str| root.join(name).display().to_string();
    assert_eq!(names(&path("results")).unwrap(), ["1-gpu", "2-emulated"]);
    assert_eq!(names(&path("results/1-gpu")).unwrap(), ["1-gpu"]);
    assert_eq!(names("2-emulated").unwrap(), ["2-emulated"]);
    assert_eq!(names("main").unwrap(), ["2-emulated", "3-gpu"], "the newest of each kind, as committed");
    assert!(!root.join("results/3-gpu").exists(), "the work tree is not touched");
    let status = Command::new("git").arg("-C").arg(root).args(["status", "--porcelain"]).output().unwrap();
    assert!(String::from_utf8_lossy(&status.stdout).lines().all(|line| line.starts_with(" D results/3-gpu")));

    assert!(matches!(names("before"), Err(SourceError::NoRecords { .. })));
    assert!(matches!(names("nowhere"), Err(SourceError::Unknown { .. })));
    assert!(matches!(names("--all"), Err(SourceError::Unknown { .. })), "a flag is not passed on to git");
    assert!(matches!(source::resolve("main", None, false), Err(SourceError::Unknown { .. })));
    std::fs::write(root.join("results/1-gpu/evidence.json"), "{").unwrap();
    assert!(matches!(names("1-gpu"), Err(SourceError::Store { .. })));
}

#[test]
fn sessions_of_one_build_can_be_pooled() {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(&folder.path().join("1")).unwrap();
    timed(US.map(|us| 1.1 * us)).write(&folder.path().join("2")).unwrap();
    let name = folder.path().display().to_string();
    let first = |pool: bool| {
        let mut records = source::resolve(&name, None, pool).unwrap().records;
        assert_eq!(records.len(), 1);
        records.remove(0).1.performance.unwrap().timings.remove(0).measurement
    };
    assert_eq!(first(false).device.samples, 40);
    let pooled = first(true);
    assert_eq!((pooled.device.samples, pooled.device_us.len()), (80, 80));
    assert!(pooled.device.p50_interval.low < 33.0 && pooled.device.p50_interval.high > 35.0, "{:?}", pooled.device);
}
