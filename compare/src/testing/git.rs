//! Repositories of tests.

use crate::git::git;
use std::path::Path;

/// Returns what git prints in `folder`, trimmed.
#[track_caller]
pub fn run(folder: &Path, arguments: &[&str]) -> String {
    let identity = [
        "user.name=t",
        "user.email=t@example.invalid",
        "commit.gpgsign=false",
    ];
    let output = git(folder)
        .args(identity.iter().flat_map(|setting| ["-c", setting]))
        .args(arguments)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "git {arguments:?}: {error}");
    String::from_utf8_lossy(&output.stdout).trim().to_string()
}

/// Commits all that `folder` holds.
#[track_caller]
pub fn commit(folder: &Path, message: &str) {
    run(folder, &["add", "--all", "."]);
    run(
        folder,
        &["commit", "--quiet", "--allow-empty", "-m", message],
    );
}
