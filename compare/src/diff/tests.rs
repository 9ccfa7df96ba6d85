use super::*;
use crate::cli::{Cli, Command as Subcommand};
use crate::document::markdown::markdown;
use crate::judge::diff::Change;
use crate::judge::verdict::Exit;
use crate::table::{On, Run, Source};
use crate::testing::{SCALAR, US, emulated, ladder, timed};
use clap::Parser;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

fn of_other_kernels(us: [f64; 3]) -> Run {
    let run = timed(us).named("20261119T183000Z-nvidia-h200");
    run.changed(|session| {
        for stage in &mut session.stages {
            stage.identity = format!("{} before", stage.id);
        }
    })
}

fn side(path: &Path) -> Side {
    source::resolve(path.to_str().unwrap(), None, &ladder()).unwrap()
}

/// The runs as folders or, if their name says so, as tables.
fn written(sides: &[(&str, &Run)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, run) in sides {
        match name.strip_prefix("tables/") {
            None => run.write(&folder.path().join(name)).unwrap(),
            Some(_) => tables(run, &folder.path().join(name)),
        }
    }
    folder
}

fn tables(run: &Run, folder: &Path) {
    let path = folder.with_extension("run");
    run.write(&path).unwrap();
    side(&path).results.write(folder).unwrap();
    std::fs::remove_dir_all(path).unwrap();
}

fn compared(base: &Side, new: &Side) -> Comparison {
    compare(base, new, &ladder(), LATENCY_CHANGE)
}

#[test]
fn the_exit_code_says_what_moved() {
    let (before, same, slow) = (of_other_kernels(US), timed(US), timed([32.0, 20.0, 16.5]));
    let fast = timed([32.0, 20.0, 13.0]);
    let fewer = timed(US).without(|row| row.on == On::All && row.subject == SCALAR.into());
    // Two that differ where nothing is judged.
    let of_peer = |us| {
        let run = timed(US).peers("mission", 10.0, &[("torch-flash", us, true)]);
        run.without(|row| row.by != Source::Peers)
    };
    let folder = written(&[
        ("peer", &of_peer(20.0)),
        ("other peer", &of_peer(21.0)),
        ("before", &before),
        ("same", &same),
        ("slow", &slow),
        ("fast", &fast),
        ("fewer", &fewer),
        ("emulated", &emulated()),
        ("tables/before", &before),
        ("tables/slow", &slow),
        ("tables/emulated", &emulated()),
    ]);
    let of = |name: &str| side(&folder.path().join(name));
    for (base, new, word, exit) in [
        ("before", "same", "SAME", Exit::Pass),
        ("before", "slow", "REGRESSION", Exit::Fail),
        ("before", "fast", "IMPROVED", Exit::Pass),
        ("tables/before", "slow", "REGRESSION", Exit::Fail),
        ("tables/before", "tables/slow", "REGRESSION", Exit::Fail),
        // The kernels are the same: the machine moved.
        ("same", "slow", "SAME", Exit::Pass),
        ("before", "fewer", "INCOMPLETE", Exit::Inconclusive),
        // A part of what the base has is what a run was asked for, against tables.
        ("tables/before", "fewer", "SAME", Exit::Pass),
        ("before", "emulated", "SAME", Exit::Pass),
        ("tables/before", "tables/before", "SAME", Exit::Pass),
        ("peer", "peer", "SAME", Exit::Pass),
        ("peer", "other peer", "NO DATA", Exit::Inconclusive),
        // A whole table is gone.
        (
            "tables/before",
            "tables/emulated",
            "INCOMPLETE",
            Exit::Inconclusive,
        ),
    ] {
        let overall = compared(&of(base), &of(new)).overall;
        assert_eq!(
            (overall.word, overall.exit),
            (word, exit),
            "{base} {new}: {overall}"
        );
    }
    let page = compared(&of("before"), &of("emulated"));
    let only = "nvidia-h200: only the base has figures of this GPU model";
    assert_eq!(page.unpaired, [only]);
    assert!(markdown(&layout::document(&page)).contains(only));
    let counters = &page.pairs[0].comparison.differences;
    assert!(counters.iter().any(|d| d.change == Change::Unchanged));
}

#[test]
fn a_run_of_kernels_that_have_changed_since_is_incomplete() {
    let folder = written(&[
        ("before", &of_other_kernels(US)),
        ("again", &of_other_kernels(US)),
    ]);
    let of = |name: &str| side(&folder.path().join(name));
    let found = compared(&of("before"), &of("again"));
    let page = markdown(&layout::document(&found));
    assert_eq!(found.overall.exit, Exit::Inconclusive, "{page}");
    assert!(
        page.contains("stage1-cpasync: variant: the kernel has changed since"),
        "{page}"
    );
}

#[test]
fn a_threshold_is_a_percentage() {
    let is_good = |text: &&str| percent(text).is_ok();
    assert_eq!(["2", "0.5", "100"].map(percent), [0.02, 0.005, 1.0].map(Ok));
    let cli = Cli::parse_from(["compare", "diff", "BASE", "NEW"]);
    let Some(Subcommand::Diff(args)) = cli.command else {
        panic!("another command")
    };
    assert_eq!(args.threshold, LATENCY_CHANGE);
    assert!(!["0", "-1", "101", "x", "NaN", ""].iter().any(is_good));
}

fn git(folder: &Path, arguments: &[&str]) -> String {
    let identity = [
        "user.name=t",
        "user.email=t@example.invalid",
        "commit.gpgsign=false",
    ];
    let output = Command::new("git")
        .arg("-C")
        .arg(folder)
        .args(identity.iter().flat_map(|setting| ["-c", setting]))
        .args(arguments)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn commit(root: &Path, tag: &str) {
    git(root, &["add", "--all", "."]);
    git(root, &["commit", "--quiet", "--allow-empty", "-m", tag]);
    git(root, &["tag", tag]);
}

#[test]
fn a_side_is_a_run_a_folder_of_them_tables_or_a_revision() {
    let folder = written(&[("runs/1", &of_other_kernels(US)), ("runs/2", &timed(US))]);
    let root = folder.path();
    git(root, &["init", "--quiet", "--initial-branch", "main"]);
    git(root, &["commit", "--quiet", "--allow-empty", "-m", "empty"]);
    git(root, &["tag", "empty"]);
    // As an older version wrote it.
    let log = root.join("results/20261101T183000Z-nvidia-h200");
    std::fs::create_dir_all(&log).unwrap();
    std::fs::write(log.join("meta.json"), "{}").unwrap();
    std::fs::write(log.join("rows.jsonl"), "{}").unwrap();
    commit(root, "log");
    std::fs::remove_dir_all(log).unwrap();
    tables(&timed(US), &root.join("results"));
    commit(root, "tables");
    std::fs::remove_file(root.join("results/nvidia-h200/rows.jsonl")).unwrap();
    let before = git(root, &["status", "--porcelain"]);

    let resolve = |name: &str, root: Option<&Path>| source::resolve(name, root, &ladder());
    let path = |name: &str| root.join(name).display().to_string();
    for (name, expected, is_run) in [
        (path("runs/1"), "1", true),
        // The newest that finished.
        (path("runs"), "2", true),
        ("tables".to_string(), "tables", false),
        ("main".to_string(), "main", false),
    ] {
        let side = resolve(&name, Some(root)).unwrap();
        assert_eq!(
            (&*side.name, side.run.is_some()),
            (expected, is_run),
            "{name}"
        );
        let table = side.results.of_gpu("nvidia-h200");
        let rows = timed(US).table.rows().count();
        assert_eq!(
            (table.rows().count(), table.sessions.len()),
            (rows, 1),
            "{name}"
        );
    }
    let folder_of_tables = resolve(&path("results"), Some(root)).unwrap();
    assert!(folder_of_tables.results.gpus.is_empty() && !folder_of_tables.results.build.is_empty());
    assert_eq!(
        git(root, &["status", "--porcelain"]),
        before,
        "the work tree is not touched"
    );

    std::fs::create_dir(root.join("nothing")).unwrap();
    for (name, says) in [
        (
            path("nothing"),
            "has neither runs nor tables; name the folder of a run",
        ),
        (
            "empty".into(),
            "empty has no tables in its results/; commit one with `compare accept`",
        ),
        (
            "log".into(),
            "results/ of log is a log of records, which an older version of compare wrote",
        ),
    ] {
        let error = resolve(&name, Some(root)).unwrap_err();
        let none = error
            .downcast::<crate::answer::NoData>()
            .expect("it is NO DATA");
        assert!(none.to_string().contains(says), "{none}");
    }
    for (name, root, says) in [
        (
            "nowhere",
            Some(root),
            "nowhere is not a folder or a git revision here",
        ),
        // A flag is not passed on to git.
        (
            "--all",
            Some(root),
            "--all is not a folder or a git revision here",
        ),
        (
            "main",
            None,
            "the current folder is not inside the workspace",
        ),
    ] {
        let error = format!("{:#}", resolve(name, root).unwrap_err());
        assert!(error.contains(says), "{error}");
    }
    std::fs::write(root.join("runs/1/rows.jsonl"), "{").unwrap();
    let error = format!("{:#}", resolve(&path("runs/1"), None).unwrap_err());
    assert!(
        error.contains("runs/1 cannot be compared") && error.contains("line 1 is not a row"),
        "{error}"
    );
}
