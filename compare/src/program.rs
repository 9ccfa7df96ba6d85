//! The hash of what turns kernels into rows: this program without its pages and tests, `common`,
//! the emulator, and how kernels are built for it. The build script takes it. Kernels and device
//! headers have identities of their own.

use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};

/// The hashed files and folders of the root.
const PARTS: [&str; 14] = [
    "Cargo.lock",
    "Cargo.toml",
    "attention-ladder/choice/src",
    "common/Cargo.toml",
    "common/emulator/build.rs",
    "common/emulator/cpp",
    "common/emulator/include",
    "common/emulator/src",
    "common/kernel-build/src",
    "common/src",
    "compare/measure/src",
    "compare/results/src",
    "compare/src",
    "compare/stages/src",
];

/// The files and folders in these that are left out: only tests need them.
const LEFT_OUT: [&str; 5] = ["snapshots", "testing", "testing.rs", "tests", "tests.rs"];

/// The begin of the tests of a file.
const TESTS: &str = "#[cfg(test)]\nmod tests {";

/// Returns the hash of the sources at `root`, by name and text.
pub fn hash(root: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    for part in PARTS {
        collect(&root.join(part), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for path in files {
        let name = path.strip_prefix(root).unwrap_or(&path);
        let bytes = std::fs::read(&path)?;
        let text = String::from_utf8_lossy(&bytes);
        let program = match text.split_once(TESTS) {
            Some((program, _)) => program,
            None => &text,
        };
        for part in [name.as_os_str().as_encoded_bytes(), program.as_bytes()] {
            // Every part goes with its length, or "ab" and "c" would hash like "a" and "bc".
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
    }
    let digest = hash.finalize();
    Ok(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Adds the files at or below `path`; none if it does not exist.
fn collect(path: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    let is_left_out = LEFT_OUT.iter().any(|name| path.ends_with(name));
    if is_left_out || !path.exists() {
        return Ok(());
    }
    if !path.is_dir() {
        files.push(path.to_path_buf());
        return Ok(());
    }
    for entry in std::fs::read_dir(path)? {
        collect(&entry?.path(), files)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Whether the hash of these sources changes when a file is written.
    fn changes_hash(name: &str, text: &str) -> bool {
        let root = tempfile::tempdir().unwrap();
        write(root.path(), "common/src/gate.rs", "fn judge() {}\n");
        let before = hash(root.path()).unwrap();
        write(root.path(), name, text);
        before != hash(root.path()).unwrap()
    }

    #[test]
    fn what_makes_rows_is_in_the_hash() {
        for name in [
            "common/src/gate.rs",
            "common/src/gate/new.rs",
            "common/emulator/include/emulator/prelude.h",
            "common/emulator/src/block.rs",
            "common/kernel-build/src/emulated.rs",
            "compare/results/src/table/row.rs",
            "compare/measure/src/plan.rs",
            "compare/src/recorder.rs",
            "Cargo.lock",
        ] {
            assert!(changes_hash(name, "new"), "{name}");
        }
    }

    #[test]
    fn kernels_pages_and_tests_are_not() {
        for (name, text) in [
            (
                "common/src/gate.rs",
                "fn judge() {}\n#[cfg(test)]\nmod tests {}\n",
            ),
            ("common/src/gate/tests.rs", ""),
            ("common/cuda/attn/softmax.cuh", ""),
            ("compare/results/src/testing/changes.rs", ""),
            ("compare/pages/src/report.rs", ""),
            ("compare/tests/cli.rs", ""),
            ("stage3-wmma-pv/kernel.cu", ""),
            ("docs/recipes.md", ""),
        ] {
            assert!(!changes_hash(name, text), "{name}");
        }
    }

    #[test]
    fn every_part_is_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let missing = PARTS.iter().find(|part| !root.join(part).exists());
        assert_eq!(missing, None);
    }
}
