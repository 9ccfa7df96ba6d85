//! Tells `compare` which source it was built from, since the binary may run without its checkout.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    let root =
        PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    // A commit writes the log of HEAD. A path that does not exist would make cargo rerun this script on every build.
    let log = root.join(".git/logs/HEAD");
    let sources = std::fs::read_dir(&root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path());
    for path in sources
        .filter(|path| path.join("Cargo.toml").exists())
        .chain([log].into_iter().filter(|p| p.exists()))
    {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    if let (Some(sha), Some(status)) = (
        git(&root, &["rev-parse", "HEAD"]),
        git(&root, &["status", "--porcelain"]),
    ) {
        println!("cargo:rustc-env=COMPARE_GIT_SHA={sha}");
        println!("cargo:rustc-env=COMPARE_GIT_DIRTY={}", !status.is_empty());
        if !status.is_empty()
            && let Some(changes) = changes(&root)
        {
            println!("cargo:rustc-env=COMPARE_GIT_CHANGES={changes:.12}");
        }
    }
}

/// A hash of the differences from the commit: changed files and untracked ones that are not ignored.
fn changes(root: &Path) -> Option<String> {
    let mut changes = git(root, &["diff", "--binary", "HEAD"])?;
    let new = git(root, &["ls-files", "--others", "--exclude-standard"])?;
    for file in new.lines() {
        changes += &format!("\n{file} {}", git(root, &["hash-object", "--", file])?);
    }
    let mut hash = Command::new("git")
        .args(["hash-object", "--stdin"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    hash.stdin.take()?.write_all(changes.as_bytes()).ok()?;
    let output = hash.wait_with_output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_string())
}

/// What git prints, trimmed; `None` without git or a checkout.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).trim().to_string())
}
