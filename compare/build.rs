//! Tells `compare` which source it was built from, since the binary may run without its checkout.

#[path = "src/git.rs"]
mod git;
#[path = "src/program.rs"]
mod program;
#[path = "src/provenance.rs"]
mod provenance;

use std::path::PathBuf;

/// The files of the root that cargo builds with.
const MANIFESTS: [&str; 3] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml"];

fn main() {
    let root =
        PathBuf::from(std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let folders = std::fs::read_dir(&root)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.join("Cargo.toml").exists());
    let manifests = MANIFESTS.map(|name| root.join(name));
    // A path that does not exist would make cargo rerun this script on every build.
    for path in folders
        .chain(manifests.into_iter().filter(|path| path.exists()))
        .chain(provenance::watched(&root))
    {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    kernel_build::warn_without_gpu_code(&root);
    match provenance::commit(&root) {
        Ok(commit) => {
            println!("cargo:rustc-env=COMPARE_GIT_SHA={}", commit.sha);
            println!("cargo:rustc-env=COMPARE_GIT_DIRTY={}", commit.is_dirty);
        }
        Err(reason) => println!("cargo:rustc-env=COMPARE_GIT_UNKNOWN={reason}"),
    }
    let program = program::hash(&root).expect("the sources that cargo compiles can be read");
    println!("cargo:rustc-env=COMPARE_PROGRAM={program}");
}
