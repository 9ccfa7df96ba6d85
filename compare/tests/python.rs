//! `scripts/python`, `scripts/cuda-toolkit` and `scripts/wheel` with a program in place of Python or maturin that notes how it is
//! called.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `-m venv` puts this very program into the environment, and `-m pip` an nvcc into its target; pip fails, and a build is as large,
/// as the test says.
const PROGRAM: &str = r#"#!/bin/sh
echo "$ATTENTION_CUDA$*" >> "$HERE/calls"
for last; do :; done
case "$*" in
    "-m venv "*) mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
    "-m pip --python "*) exit "${TOLD:-0}" ;;
    "-m pip install "*)
        mkdir -p "$last/nvidia/cu13/bin" && cd "$last/nvidia/cu13/bin" && echo 'echo "release 13.0, V13.0.88"' > nvcc && chmod +x nvcc
        exit "${TOLD:-0}" ;;
    *"version_info < (3, 11)"* | *"version_info < (3, 9)"*) [ "$TOLD" != old ] ;;
    "build "*) mkdir -p "$HERE/target/wheels" && truncate -s "$TOLD" "$HERE/target/wheels/attention_ladder-0.whl" ;;
    *print*) echo "PyTorch 1.0" ;;
esac
"#;

struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new(scripts: &[&str]) -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        std::fs::create_dir(checkout.at("scripts")).unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        for name in scripts {
            std::fs::copy(folder.join(name), checkout.at("scripts").join(name)).unwrap();
        }
        checkout.program("stub");
        checkout
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn program(&self, name: &str) {
        let path = self.at(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, PROGRAM).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn run(&self, words: &[&str], told: &str) -> (i32, String) {
        let output = Command::new(self.at("scripts").join(words[0]))
            .args(&words[1..])
            .env("HERE", self.0.path())
            .env("PYTHON", self.at("stub"))
            .env("TOLD", told)
            .env_remove("ATTENTION_CUDA")
            .env_remove("CARGO_TARGET_DIR")
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.at("calls")).unwrap_or_default()
    }

    /// The script `name` exits so, and says so.
    fn says(&self, name: &str, told: &str, code: i32, words: &str) {
        let (exit, text) = self.run(&[name], told);
        assert!(exit == code && text.contains(words), "{exit}: {text}");
    }

    fn check(&self, name: &str) -> i32 {
        self.run(&[name, "--check"], "0").0
    }
}

#[test]
fn the_toolkit_is_installed_once_and_an_interrupted_run_leaves_nothing() {
    let checkout = Checkout::new(&["cuda-toolkit", "cuda-toolkit.txt"]);
    let (name, pinned) = ("cuda-toolkit", checkout.at("scripts/cuda-toolkit.txt"));
    let (code, listed) = checkout.run(&[name, "--list"], "0");
    assert!(code == 0 && listed.contains("nvidia-cuda-nvcc"), "{listed}");
    checkout.says(name, "old", 1, "needs Python 3.9");
    checkout.says(name, "1", 1, "pip failed");
    let files = std::fs::read_dir(checkout.at("")).unwrap();
    let hidden = files.filter(|file| {
        file.as_ref()
            .unwrap()
            .path()
            .to_string_lossy()
            .contains(".cuda")
    });
    assert_eq!((hidden.count(), checkout.check(name)), (0, 1));
    let old = std::time::SystemTime::UNIX_EPOCH;
    std::fs::File::options()
        .write(true)
        .open(&pinned)
        .unwrap()
        .set_modified(old)
        .unwrap();
    checkout.says(name, "0", 0, "nvcc 13.0.88 is in .cuda/");
    let watched = std::fs::metadata(&pinned).unwrap().modified().unwrap();
    assert_ne!(watched, old, "build scripts run again");
    let installed = checkout.calls();
    assert!(installed.contains("--require-hashes"), "{installed}");
    checkout.says(name, "0", 0, "up to date");
    assert_eq!((checkout.calls(), checkout.check(name)), (installed, 0));
    std::fs::remove_file(checkout.at(".cuda/nvidia/cu13/bin/nvcc")).unwrap();
    assert_eq!(checkout.check(name), 1);
    checkout.says(name, "0", 0, "nvcc 13.0.88 is in .cuda/");
    std::fs::write(pinned, "nvidia-cuda-nvcc==9\n").unwrap();
    assert_eq!(checkout.check(name), 1);
    assert_eq!(checkout.run(&[name, "--no-such-flag"], "0").0, 2);
}

#[test]
fn a_wheel_has_gpu_code_and_at_most_20_mib() {
    let checkout = Checkout::new(&["wheel"]);
    checkout.says("wheel", "0", 1, "run scripts/python");
    checkout.program(".python/bin/maturin");
    checkout.says("wheel", "20971520", 0, "attention_ladder-0.whl: 20971 kB");
    assert!(
        checkout
            .calls()
            .starts_with("requirebuild --release --locked ")
    );
    checkout.says("wheel", "20971521", 1, "that is more than 20971520 bytes");
    assert_eq!(checkout.run(&["wheel", "--no-such-flag"], "0").0, 2);
}

#[test]
fn what_is_pinned_is_installed_once_and_an_interrupted_run_leaves_nothing_that_counts() {
    let checkout = Checkout::new(&["python", "python.txt"]);
    let name = "python";
    let (code, listed) = checkout.run(&[name, "--list"], "0");
    assert!(code == 0 && listed.contains("torch ") && listed.contains("maturin "));
    assert_eq!(checkout.check(name), 1);
    checkout.says(name, "old", 1, "needs Python 3.11");
    checkout.says(name, "1", 1, "pip failed");
    assert_eq!(checkout.check(name), 1);
    let half = checkout.at(".python/half");
    std::fs::write(&half, "").unwrap();
    checkout.says(name, "0", 0, "is in .python/");
    assert!(!half.exists(), "what an interrupted run left is in it");
    let installed = checkout.calls();
    assert!(installed.contains("--requirement") && installed.contains("python.txt"));
    checkout.says(name, "0", 0, "up to date");
    assert_eq!((checkout.calls(), checkout.check(name)), (installed, 0));
    std::fs::remove_file(checkout.at(".python/bin/python")).unwrap();
    assert_eq!(checkout.check(name), 1);
    checkout.says(name, "0", 0, "is in .python/");
    std::fs::write(checkout.at("scripts/python.txt"), "torch==9\n").unwrap();
    assert_eq!(checkout.check(name), 1);
    assert_eq!(checkout.run(&[name, "--no-such-flag"], "0").0, 2);
}
