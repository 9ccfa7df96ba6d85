//! The repository that git works in.

use crate::git::is_callers;
use crate::testing::git::{commit, run};
use std::ffi::OsStr;
use std::path::Path;
use std::process::Command;

#[test]
fn every_variable_by_which_git_finds_a_repository_is_the_callers() {
    let listed = run(Path::new("."), &["rev-parse", "--local-env-vars"]);
    assert!(listed.contains("GIT_INDEX_FILE"), "{listed}");
    let more = ["GIT_NAMESPACE", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_KEY_0"];
    for name in listed.lines().chain(more) {
        assert!(is_callers(OsStr::new(name)), "{name}");
    }
    assert!(!is_callers(OsStr::new("GIT_EXEC_PATH")));
    assert!(!is_callers(OsStr::new("PATH")));
}

#[test]
fn a_commit_is_made_in_the_folder_that_is_named() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["init", "--quiet"]);
    std::fs::write(folder.path().join("ours"), "").unwrap();
    commit(folder.path(), "ours");
    let kept = run(folder.path(), &["ls-tree", "--name-only", "HEAD"]);
    assert_eq!(kept, "ours");
}

/// A hook in a linked worktree runs the tests so.
#[test]
fn a_repository_in_the_callers_environment_is_left_alone() {
    let theirs = tempfile::tempdir().unwrap();
    let at = |name: &str| theirs.path().join(name);
    run(theirs.path(), &["init", "--quiet"]);
    std::fs::write(at("theirs"), "kept").unwrap();
    commit(theirs.path(), "theirs");
    run(
        theirs.path(),
        &["worktree", "add", "--quiet", "-b", "side", "linked"],
    );
    let before = run(theirs.path(), &["rev-parse", "side", "HEAD"]);
    let inner = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "git_tests::a_commit_is_made_in_the_folder_that_is_named",
        ])
        .env("GIT_DIR", at(".git/worktrees/linked"))
        .env("GIT_WORK_TREE", at("linked"))
        .env("GIT_INDEX_FILE", at(".git/worktrees/linked/index"))
        .env("GIT_PREFIX", "")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success(), "{text}");
    assert!(text.contains("1 passed"), "{text}");
    assert_eq!(run(theirs.path(), &["rev-parse", "side", "HEAD"]), before);
    assert_eq!(run(&at("linked"), &["status", "--porcelain"]), "");
    assert_eq!(std::fs::read(at("linked/theirs")).unwrap(), b"kept");
}
