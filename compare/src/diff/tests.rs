use super::*;
use crate::judge::diff::Change;
use crate::judge::verdict::Exit;
use crate::page;
use crate::record::Record;
use crate::testing::{CPASYNC, SCALAR, US, WMMA, emulated, ladder, mission, timed};
use common::metric::Metric;
use common::verdict::{GateId, GateResult};
use std::path::Path;
use std::process::Command;

fn named(names: &[(&str, Record)]) -> Vec<Named> {
    names
        .iter()
        .map(|(name, record)| (name.to_string(), record.clone()))
        .collect()
}

#[test]
fn records_of_one_gpu_and_backend_stand_beside_each_other() {
    let base = named(&[("emulated", emulated()), ("gpu", timed(US))]);
    let names = |base: &[Named], new: &[Named]| {
        let (pairs, unpaired) = pair_up(base, new);
        (
            pairs
                .iter()
                .map(|(a, b)| format!("{} {}", a.0, b.0))
                .collect::<Vec<_>>(),
            unpaired.concat(),
        )
    };
    let both = named(&[("new-gpu", timed(US)), ("new-emulated", emulated())]);
    assert_eq!(
        names(&base, &both),
        (
            vec!["gpu new-gpu".into(), "emulated new-emulated".into()],
            vec![]
        )
    );
    let (pairs, unpaired) = names(&base, &both[1..]);
    assert_eq!(pairs, ["emulated new-emulated"]);
    assert_eq!(
        unpaired,
        ["gpu: only the base has a record of this GPU and backend"]
    );
    // Without a counterpart the newest are compared as far as they can be.
    assert_eq!(names(&base[..1], &both[..1]).0, ["emulated new-gpu"]);
    let found = differences(&base[0].1, &both[0].1, LATENCY_CHANGE);
    assert!(
        found
            .iter()
            .any(|d| d.change == Change::Same && d.what == "counters")
    );
}

#[test]
fn a_kernel_that_changes_with_its_harness_is_said() {
    let old = named(&[("old", timed(US))]);
    let new = named(&[(
        "new",
        timed(US).changed(|meta| meta.stages[1].identity = "changed".into()),
    )]);
    fn pair<'a>(base: &'a [Named], new: &'a [Named]) -> Pair<'a> {
        Pair {
            base: (&base[0].0, &base[0].1),
            new: (&new[0].0, &new[0].1),
            differences: vec![],
        }
    }
    let kernels = kernels_changed(&[pair(&old, &new), pair(&old, &new)]);
    assert_eq!(kernels, ["stage1-cpasync"]);
    assert_eq!(kernels_changed(&[pair(&old, &old)]), [""; 0]);
    let files = Ok(["a", "b", "c", "d"]
        .map(|name| format!("common/src/{name}.rs"))
        .into());
    let said = "Kernel and harness changed together (stage1-cpasync; common/src/a.rs, common/src/b.rs, common/src/c.rs and 1 more): \
                review the harness first, since it judges the kernel.";
    assert_eq!(note(&files, &kernels).as_deref(), Some(said));
    assert_eq!(
        (note(&files, &[]), note(&Ok(vec![]), &kernels)),
        (None, None)
    );
    let unknown = note(
        &Err("this checkout does not have both commits".into()),
        &kernels,
    );
    assert!(
        unknown
            .unwrap()
            .ends_with("is not known: this checkout does not have both commits.")
    );
    let newer = named(&[(
        "newer",
        timed(US).changed(|meta| meta.tool_version = "0.2.0".into()),
    )]);
    assert_eq!(
        harness(&[pair(&old, &newer)]),
        Ok(vec!["compare 0.1.0 against 0.2.0".into()])
    );
}

#[test]
fn a_threshold_is_a_percentage() {
    let good = |text: &&str| percent(text).is_ok();
    assert!(
        ["2", "0.5", "100"].iter().all(good)
            && !["0", "-1", "101", "x", "NaN", ""].iter().any(good)
    );
}

fn git(folder: &Path, arguments: &[&str]) {
    let identity = [
        "-c",
        "user.name=t",
        "-c",
        "user.email=t@example.invalid",
        "-c",
        "commit.gpgsign=false",
    ];
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(identity)
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// A checkout of one commit, `before`, without records.
fn checkout() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    git(
        folder.path(),
        &["init", "--quiet", "--initial-branch", "main"],
    );
    git(
        folder.path(),
        &["commit", "--quiet", "--allow-empty", "-m", "empty"],
    );
    git(folder.path(), &["tag", "before"]);
    folder
}

/// Commits what lies in results/.
fn commit(root: &Path, tag: &str) {
    git(root, &["add", "--all", "results"]);
    git(root, &["commit", "--quiet", "-m", tag]);
    git(root, &["tag", tag]);
}

#[test]
fn a_side_is_a_folder_a_committed_record_or_a_revision() {
    let folder = checkout();
    let root = folder.path();
    timed(US).write(&root.join("results/1-gpu")).unwrap();
    emulated().write(&root.join("results/2-emulated")).unwrap();
    timed(US.map(|us| 2.0 * us))
        .write(&root.join("results/3-gpu"))
        .unwrap();
    commit(root, "records");
    std::fs::remove_dir_all(root.join("results/3-gpu")).unwrap();

    let names = |name: &str| -> anyhow::Result<(Vec<String>, bool)> {
        let side = source::resolve(name, Some(root), false)?;
        Ok((
            side.records.into_iter().map(|(name, _)| name).collect(),
            side.is_folder,
        ))
    };
    let path = |name: &str| root.join(name).display().to_string();
    for (name, expected, is_folder) in [
        (path("results"), &["1-gpu", "2-emulated"][..], true),
        (path("results/1-gpu"), &["1-gpu"], true),
        ("2-emulated".to_string(), &["2-emulated"], false),
        // The newest of each kind, as committed.
        ("main".to_string(), &["2-emulated", "3-gpu"], false),
    ] {
        let (found, of_folder) = names(&name).unwrap();
        assert_eq!(
            (found, of_folder),
            (
                expected.iter().map(|name| name.to_string()).collect(),
                is_folder
            ),
            "{name}"
        );
    }
    assert!(
        !root.join("results/3-gpu").exists(),
        "the work tree is not touched"
    );
    let status = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(["status", "--porcelain"])
        .output()
        .unwrap();
    assert!(
        String::from_utf8_lossy(&status.stdout)
            .lines()
            .all(|line| line.starts_with(" D results/3-gpu"))
    );

    let before = source::resolve("before", Some(root), false).unwrap();
    assert_eq!(
        before.none().as_deref(),
        Some("before has no records of the ladder in its results/")
    );
    let refused = |name: &str, root: Option<&Path>| {
        let error = source::resolve(name, root, false).err().unwrap();
        format!("{error:#}")
    };
    for (name, root) in [
        ("nowhere", Some(root)),
        ("--all", Some(root)), // a flag is not passed on to git
        ("main", None),
    ] {
        let error = refused(name, root);
        let expected = format!("{name} is not a folder, a record in results/ or a git revision");
        assert!(error.starts_with(&expected), "{error}");
    }
    std::fs::write(root.join("results/1-gpu/rows.jsonl"), "{").unwrap();
    assert!(refused("1-gpu", Some(root)).starts_with("1-gpu cannot be compared"));
}

#[test]
fn a_base_of_another_format_is_incomplete_and_any_other_reader_refuses_it() {
    let folder = checkout();
    let root = folder.path();
    let path = |name: &str| root.join(name).display().to_string();
    for name in ["1-old", "2-unnamed"] {
        std::fs::create_dir_all(root.join("results").join(name)).unwrap();
    }
    std::fs::write(root.join("results/1-old/build_meta.json"), "{}").unwrap();
    commit(root, "old");
    std::fs::write(root.join("results/2-unnamed/meta.json"), "{}").unwrap();
    timed(US).write(&root.join("new")).unwrap();
    let resolve = |name: &str| source::resolve(name, Some(root), false);
    for (base, why) in [
        (
            path("results/1-old"),
            "1-old has schema 1, and this program reads 2",
        ),
        (
            "1-old".into(),
            "1-old has schema 1, and this program reads 2",
        ),
        (
            "2-unnamed".into(),
            "2-unnamed has no schema, and this program reads 2",
        ),
        ("old".into(), "1-old has schema 1, and this program reads 2"),
    ] {
        let sides = [(resolve(&base).unwrap(), resolve(&path("new")).unwrap())];
        let found = compare(&sides, &[], LATENCY_CHANGE, vec![]);
        assert_eq!(
            (found.overall.exit, found.overall.word),
            (Exit::Inconclusive, "INCOMPLETE")
        );
        let page = page::markdown::markdown(&layout::document(&found));
        assert!(
            page.contains(&format!(
                "**INCOMPLETE: nothing can be compared: {why}: use the version"
            )),
            "{page}"
        );
        assert!(
            page.contains(&format!("- the record: whole run: {why}")),
            "{page}"
        );
        assert_eq!(layout::json(&found)["missing"][0]["required"], true);
        assert!(
            resolve(&base).unwrap().in_this_format().is_err(),
            "as new side"
        );
    }
    // Beside others it is not passed over.
    timed(US).write(&root.join("results/3-gpu")).unwrap();
    let sides = [(
        resolve(&path("results")).unwrap(),
        resolve(&path("new")).unwrap(),
    )];
    let found = compare(&sides, &[], LATENCY_CHANGE, vec![]);
    assert_eq!(
        (found.pairs.len(), found.missing.len(), found.overall.word),
        (1, 2, "INCOMPLETE")
    );
    assert!(matches!(
        crate::record::store::read_all(&root.join("results")),
        Err(crate::record::StoreError::Schema { .. })
    ));
}

#[test]
fn committed_records_are_compared_beside_runs_where_they_differ() {
    let folder = checkout();
    let root = folder.path();
    timed(US).write(&root.join("results/1-gpu")).unwrap();
    commit(root, "base");
    git(root, &["commit", "--quiet", "--allow-empty", "-m", "other"]);
    git(root, &["tag", "other"]);
    timed(US.map(|us| 1.1 * us))
        .write(&root.join("results/2-gpu"))
        .unwrap();
    commit(root, "head");
    for name in ["old", "new"] {
        emulated().write(&root.join("runs").join(name)).unwrap();
    }
    let resolve = |name: &str| source::resolve(name, Some(root), false).unwrap();
    let run = |name: &str| resolve(&root.join("runs").join(name).display().to_string());
    let with = |base: &str, new: &str| [(run("old"), run("new")), (resolve(base), resolve(new))];
    let sides = with("base", "head");
    let found = compare(&sides, &ladder(), LATENCY_CHANGE, vec![]);
    let names: Vec<_> = found
        .pairs
        .iter()
        .map(|pair| (pair.base.0, pair.new.0))
        .collect();
    assert_eq!(names, [("old", "new"), ("1-gpu", "2-gpu")]);
    assert_eq!(
        (found.overall.exit, found.overall.word),
        (Exit::Fail, "REGRESSION")
    );
    assert!(found.base.ends_with("runs/old and base") && found.new.ends_with("runs/new and head"));
    let sides = with("base", "other");
    let found = compare(&sides, &ladder(), LATENCY_CHANGE, vec![]);
    assert_eq!((found.pairs.len(), found.overall.word), (1, "SAME"));
    assert_eq!(found.notes, ["other has the records of base."]);
}

#[test]
fn sessions_of_one_build_can_be_pooled() {
    let pooled = |second: Record| {
        let folder = tempfile::tempdir().unwrap();
        timed(US).write(&folder.path().join("1")).unwrap();
        second.write(&folder.path().join("2")).unwrap();
        let name = folder.path().display().to_string();
        [false, true].map(|pool| {
            let mut records = source::resolve(&name, None, pool).unwrap().records;
            assert_eq!((records.len(), records[0].0.as_str()), (1, "2"));
            let record = records.remove(0).1;
            let of = |subject: &str| {
                let samples = record
                    .samples
                    .iter()
                    .find(|samples| samples.subject.as_str() == subject)
                    .unwrap();
                assert_eq!(
                    (&samples.on, samples.by),
                    (&mission(), crate::record::Source::Gpu)
                );
                let row = record.row(&subject.into(), &mission(), samples.by).unwrap();
                (
                    samples.device_ns.len(),
                    row.figures[&Metric::P50].interval.unwrap(),
                )
            };
            (of(SCALAR), of(CPASYNC))
        })
    };
    let [((alone, _), _), ((both, (low, high)), (of_other, _))] =
        pooled(timed(US.map(|us| 1.1 * us)));
    assert_eq!((alone, both, of_other), (40, 80, 80));
    assert!(low < 33.0 && high > 35.0, "{low} {high}");
    // Of another kernel, or another state of the cache, they are not of one build.
    let [_, ((changed, _), (same, _))] =
        pooled(timed(US).changed(|meta| meta.stages[0].identity = "changed".into()));
    assert_eq!((changed, same), (40, 80));
    let mut cold = timed(US);
    cold.row_mut(SCALAR, &mission(), crate::record::Source::Gpu)
        .under = Some("cold L2".into());
    let [_, ((cold, _), (warm, _))] = pooled(cold);
    assert_eq!((cold, warm), (40, 80));
}

#[test]
fn a_kind_of_record_that_a_whole_place_no_longer_has_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    for (name, record) in [
        ("base/1", timed(US)),
        ("base/2", emulated()),
        ("new/1", emulated()),
    ] {
        record.write(&folder.path().join(name)).unwrap();
    }
    let word = |name: &str| {
        let side = |name: &str| {
            let path = folder.path().join(name).display().to_string();
            source::resolve(&path, None, false).unwrap()
        };
        let sides = [(side("base"), side(name))];
        compare(&sides, &ladder(), 0.02, vec![]).overall.word
    };
    assert_eq!(word("new"), "INCOMPLETE");
    assert_eq!(word("new/1"), "SAME", "it alone was asked for");
}

#[test]
fn what_failed_in_one_session_is_not_healed_by_another() {
    let wrong = GateResult::judge(GateId::C5, false, "they differ");
    let summary = timed(US).failing(WMMA, GateId::C3);
    let mut as_timed = timed(US);
    let row = as_timed.row_mut(SCALAR, &mission(), crate::record::Source::Gpu);
    *row = row.clone().verdict(&wrong);
    for (first, failing) in [(summary, WMMA), (as_timed, SCALAR)] {
        let folder = tempfile::tempdir().unwrap();
        first.write(&folder.path().join("1")).unwrap();
        timed(US).write(&folder.path().join("2")).unwrap();
        let name = folder.path().display().to_string();
        let record = source::resolve(&name, None, true)
            .unwrap()
            .records
            .remove(0)
            .1;
        let failures = crate::judge::state::failures(&record);
        assert_eq!(failures.len(), 1, "{failures:?}");
        assert_eq!(failures[0].subject.as_str(), failing);
        // Nor are its samples of use.
        let of_row = |samples: &&crate::record::store::Samples| samples.subject.as_str() == SCALAR;
        let samples = record.samples.iter().find(of_row).unwrap();
        assert_eq!(
            samples.device_ns.len(),
            if failing == SCALAR { 40 } else { 80 }
        );
    }
}
