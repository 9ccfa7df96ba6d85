//! `scripts/python`, `scripts/cuda-toolkit` and `scripts/wheel` with a program in place of Python
//! or maturin that notes how it is called.
#![forbid(unsafe_code)]

use kernel_build::testing::write_program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in place of Python and maturin. `-m venv` puts this very program into the environment,
/// and `-m pip` an nvcc into its target; pip fails, and a wheel is as large, has the tag and holds
/// the module, as the test says.
const PROGRAM: &str = r#"#!/bin/sh
echo "$ATTENTION_CUDA$*" >> "$HERE/calls"
for last; do :; done
case "$*" in
    "-m venv "*) mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
    "-m pip --python "*) exit "${TOLD:-0}" ;;
    "-m pip install "*)
        mkdir -p "$last/nvidia/cu13/bin" && cd "$last/nvidia/cu13/bin" &&
            echo 'echo "release 13.0, V13.0.88"' > nvcc && chmod +x nvcc
        exit "${TOLD:-0}" ;;
    *"version_info < (3, 11)"* | *"version_info < (3, 9)"*) [ "$TOLD" != old ] ;;
    "build "*)
        wheels="$HERE/target/wheels" &&
        wheel="$wheels/attention_ladder-0-cp310-abi3-$(cat "$HERE/tag").whl" &&
        mkdir -p "$wheels" &&
        truncate -s "$((TOLD - $(stat -c %s "$HERE/module.zip")))" "$wheel" &&
        cat "$HERE/module.zip" >> "$wheel" ;;
    "-m zipfile "*) exec python3 "$@" ;;
    *print*) echo "PyTorch 1.0" ;;
esac
"#;

struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new(scripts: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("of python ").tempdir();
        let checkout = Self(folder.unwrap());
        std::fs::create_dir(checkout.path("scripts")).unwrap();
        let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        for name in scripts {
            let target = checkout.path("scripts").join(name);
            std::fs::copy(sources.join(name), target).unwrap();
        }
        checkout.add_program("stub");
        checkout
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn add_program(&self, name: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, PROGRAM).unwrap();
    }

    /// Runs a script while the program does as `behaviour` says; returns the exit code and what is
    /// printed.
    fn run(&self, script: &str, flags: &[&str], behaviour: &str) -> (i32, String) {
        let output = Command::new(self.path("scripts").join(script))
            .args(flags)
            .env("HERE", self.0.path())
            .env("PYTHON", self.path("stub"))
            .env("TOLD", behaviour)
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

    /// Runs a command in the checkout, which succeeds.
    fn command(&self, program: &str, arguments: &[&str]) {
        let status = Command::new(program)
            .args(arguments)
            .current_dir(self.0.path())
            .status();
        assert!(status.unwrap().success());
    }

    /// Makes the next wheel the only one, with this tag.
    fn tag(&self, tag: &str) {
        std::fs::write(self.path("tag"), tag).unwrap();
        _ = std::fs::remove_dir_all(self.path("target/wheels"));
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.path("calls")).unwrap_or_default()
    }

    /// Fails unless a script exits with this code and prints these words.
    #[track_caller]
    fn expect(&self, script: &str, behaviour: &str, code: i32, words: &str) {
        let (exit, text) = self.run(script, &[], behaviour);
        assert_eq!(exit, code, "{text}");
        assert!(text.contains(words), "{text}");
    }

    /// Fails unless a script lists these words.
    #[track_caller]
    fn expect_listed(&self, script: &str, words: &str) {
        let (exit, text) = self.run(script, &["--list"], "0");
        assert_eq!(exit, 0, "{text}");
        assert!(text.contains(words), "{text}");
    }

    fn check(&self, script: &str) -> i32 {
        self.run(script, &["--check"], "0").0
    }

    /// Judges a script before anything is installed, and where that fails.
    #[track_caller]
    fn expect_missing(&self, script: &str, listed: &str, version: &str) {
        self.expect_listed(script, listed);
        assert_eq!(self.check(script), 1);
        self.expect(script, "old", 1, version);
        self.expect(script, "1", 1, "pip failed");
        assert_eq!(self.check(script), 1);
    }

    /// Judges a script once it has installed, until `file` of it goes or another `package` is
    /// pinned.
    #[track_caller]
    fn expect_kept(&self, script: &str, words: &str, file: &str, package: &str) {
        let installed = self.calls();
        self.expect(script, "0", 0, "up to date");
        assert_eq!((self.calls(), self.check(script)), (installed, 0));
        std::fs::remove_file(self.path(file)).unwrap();
        assert_eq!(self.check(script), 1);
        self.expect(script, "0", 0, words);
        let pinned = self.path(&format!("scripts/{script}.txt"));
        std::fs::write(pinned, format!("{package}==9\n")).unwrap();
        assert_eq!(self.check(script), 1);
        assert_eq!(self.run(script, &["--no-such-flag"], "0").0, 2);
    }
}

#[test]
fn the_toolkit_is_installed_once_and_an_interrupted_run_leaves_nothing() {
    let checkout = Checkout::new(&["cuda-toolkit", "cuda-toolkit.txt"]);
    let script = "cuda-toolkit";
    let pinned = checkout.path("scripts/cuda-toolkit.txt");
    checkout.expect_missing(script, "nvidia-cuda-nvcc", "needs Python 3.9");
    let mut files = std::fs::read_dir(checkout.path("")).unwrap();
    assert!(files.all(|file| !file.unwrap().path().to_string_lossy().contains(".cuda")));
    let old = std::time::SystemTime::UNIX_EPOCH;
    std::fs::File::options()
        .write(true)
        .open(&pinned)
        .unwrap()
        .set_modified(old)
        .unwrap();
    let answer = "nvcc 13.0.88 is in .cuda/";
    checkout.expect(script, "0", 0, answer);
    let watched = std::fs::metadata(&pinned).unwrap().modified().unwrap();
    assert_ne!(watched, old, "build scripts run again");
    let installed = checkout.calls();
    assert!(installed.contains("--require-hashes"), "{installed}");
    let nvcc = ".cuda/nvidia/cu13/bin/nvcc";
    checkout.expect_kept(script, answer, nvcc, "nvidia-cuda-nvcc");
}

/// Makes a checkout with a module that needs glibc, as every module does, and with maturin.
fn wheel_checkout() -> Checkout {
    let checkout = Checkout::new(&["wheel"]);
    std::fs::write(
        checkout.path("module.c"),
        "#include <stdio.h>\nint f(void) { return puts(\"\"); }\n",
    )
    .unwrap();
    let module = "_native.abi3.so";
    checkout.command("cc", &["-shared", "-fPIC", "-o", module, "module.c"]);
    checkout.command("python3", &["-m", "zipfile", "-c", "module.zip", module]);
    checkout.add_program(".python/bin/maturin");
    checkout.tag("manylinux_2_99_x86_64");
    checkout
}

#[test]
fn a_wheel_has_gpu_code_and_at_most_20_mib() {
    let checkout = wheel_checkout();
    checkout.expect("wheel", "20971520", 0, "x86_64.whl: 20971 kB");
    assert!(
        checkout
            .calls()
            .starts_with("requirebuild --release --locked ")
    );
    checkout.tag("manylinux_2_99_x86_64");
    checkout.expect("wheel", "20971521", 1, "that is more than 20971520 bytes");
    assert_eq!(checkout.run("wheel", &["--no-such-flag"], "0").0, 2);
    std::fs::remove_file(checkout.path(".python/bin/maturin")).unwrap();
    checkout.expect("wheel", "0", 1, "run scripts/python");
}

#[test]
fn a_wheel_needs_no_newer_glibc_than_its_tag_says() {
    let checkout = wheel_checkout();
    let size = "100000";
    checkout.expect("wheel", size, 0, "100 kB");
    // Older than any glibc that a compiler links with.
    checkout.tag("manylinux_2_1_x86_64");
    checkout.expect("wheel", size, 1, "and its tag says GLIBC_2.1");
    checkout.tag("manylinux_2_1_x86_64.manylinux_2_99_x86_64");
    checkout.expect("wheel", size, 1, "and its tag says GLIBC_2.1");
    checkout.tag("linux_x86_64");
    checkout.expect("wheel", size, 1, "has no manylinux tag");
    assert!(checkout.calls().contains("--auditwheel check"));
}

#[test]
fn what_is_pinned_is_installed_once_and_an_interrupted_run_leaves_nothing_that_counts() {
    let checkout = Checkout::new(&["python", "python.txt"]);
    let script = "python";
    let answer = "is in .python/";
    checkout.expect_missing(script, "torch ", "needs Python 3.11");
    checkout.expect_listed(script, "maturin ");
    let half = checkout.path(".python/half");
    std::fs::write(&half, "").unwrap();
    checkout.expect(script, "0", 0, answer);
    assert!(!half.exists(), "what an interrupted run left is in it");
    let installed = checkout.calls();
    assert!(installed.contains("--requirement"), "{installed}");
    assert!(installed.contains("python.txt"), "{installed}");
    checkout.expect_kept(script, answer, ".python/bin/python", "torch");
}
