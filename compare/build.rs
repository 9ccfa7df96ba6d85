//! Tells `compare` which source it was built from, since the binary may run without its checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

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
    }
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
