//! `scripts/python`, `scripts/cuda-toolkit` and `scripts/wheel` with a program in place of Python or maturin that notes how it is
//! called.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// `-m venv` puts this very program into the environment, and `-m pip` an nvcc into its target; pip
/// fails, and a wheel is as large, has the tag and holds the module, as the test says.
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
    "build "*)
        wheel="$HERE/target/wheels/attention_ladder-0-cp310-abi3-$(cat "$HERE/tag").whl" && mkdir -p "$HERE/target/wheels" &&
        truncate -s "$((TOLD - $(stat -c %s "$HERE/module.zip")))" "$wheel" && cat "$HERE/module.zip" >> "$wheel" ;;
    "-m zipfile "*) exec python3 "$@" ;;
    *print*) echo "PyTorch 1.0" ;;
esac
"#;

struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new(scripts: &[&str]) -> Self {
        let folder = tempfile::Builder::new().prefix("of python ").tempdir();
        let checkout = Self(folder.unwrap());
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

    fn run(&self, words: &str, told: &str) -> (i32, String) {
        let mut words = words.split(' ');
        let output = Command::new(self.at("scripts").join(words.next().unwrap()))
            .args(words)
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

    /// Runs a command in the checkout, which succeeds.
    fn does(&self, words: &str) {
        let mut words = words.split(' ');
        let status = Command::new(words.next().unwrap())
            .args(words)
            .current_dir(self.at(""))
            .status();
        assert!(status.unwrap().success());
    }

    /// The next wheel is the only one, and has this tag.
    fn tag(&self, tag: &str) {
        std::fs::write(self.at("tag"), tag).unwrap();
        _ = std::fs::remove_dir_all(self.at("target/wheels"));
    }

    fn calls(&self) -> String {
        std::fs::read_to_string(self.at("calls")).unwrap_or_default()
    }

    /// The script of `words` exits so, and says so.
    fn says(&self, words: &str, told: &str, code: i32, says: &str) {
        let (exit, text) = self.run(words, told);
        assert!(exit == code && text.contains(says), "{exit}: {text}");
    }

    fn check(&self, name: &str) -> i32 {
        self.run(&format!("{name} --check"), "0").0
    }

    /// Before anything is installed, and where that fails.
    fn is_missing(&self, name: &str, listed: &str, version: &str) {
        self.says(&format!("{name} --list"), "0", 0, listed);
        assert_eq!(self.check(name), 1);
        self.says(name, "old", 1, version);
        self.says(name, "1", 1, "pip failed");
        assert_eq!(self.check(name), 1);
    }

    /// Once it is installed, until `file` of it goes or another `package` is pinned.
    fn is_kept(&self, name: &str, says: &str, file: &str, package: &str) {
        let installed = self.calls();
        self.says(name, "0", 0, "up to date");
        assert_eq!((self.calls(), self.check(name)), (installed, 0));
        std::fs::remove_file(self.at(file)).unwrap();
        assert_eq!(self.check(name), 1);
        self.says(name, "0", 0, says);
        let pinned = self.at(&format!("scripts/{name}.txt"));
        std::fs::write(pinned, format!("{package}==9\n")).unwrap();
        assert_eq!(self.check(name), 1);
        assert_eq!(self.run(&format!("{name} --no-such-flag"), "0").0, 2);
    }
}

#[test]
fn the_toolkit_is_installed_once_and_an_interrupted_run_leaves_nothing() {
    let checkout = Checkout::new(&["cuda-toolkit", "cuda-toolkit.txt"]);
    let (name, pinned) = ("cuda-toolkit", checkout.at("scripts/cuda-toolkit.txt"));
    checkout.is_missing(name, "nvidia-cuda-nvcc", "needs Python 3.9");
    let mut files = std::fs::read_dir(checkout.at("")).unwrap();
    assert!(files.all(|file| !file.unwrap().path().to_string_lossy().contains(".cuda")));
    let old = std::time::SystemTime::UNIX_EPOCH;
    std::fs::File::options()
        .write(true)
        .open(&pinned)
        .unwrap()
        .set_modified(old)
        .unwrap();
    let says = "nvcc 13.0.88 is in .cuda/";
    checkout.says(name, "0", 0, says);
    let watched = std::fs::metadata(&pinned).unwrap().modified().unwrap();
    assert_ne!(watched, old, "build scripts run again");
    let installed = checkout.calls();
    assert!(installed.contains("--require-hashes"), "{installed}");
    let nvcc = ".cuda/nvidia/cu13/bin/nvcc";
    checkout.is_kept(name, says, nvcc, "nvidia-cuda-nvcc");
}

/// With a module that needs glibc, as every module does, and with maturin.
fn wheel_checkout() -> Checkout {
    let checkout = Checkout::new(&["wheel"]);
    std::fs::write(
        checkout.at("module.c"),
        "#include <stdio.h>\nint f(void) { return puts(\"\"); }\n",
    )
    .unwrap();
    checkout.does("cc -shared -fPIC -o _native.abi3.so module.c");
    checkout.does("python3 -m zipfile -c module.zip _native.abi3.so");
    checkout.program(".python/bin/maturin");
    checkout.tag("manylinux_2_99_x86_64");
    checkout
}

#[test]
fn a_wheel_has_gpu_code_and_at_most_20_mib() {
    let checkout = wheel_checkout();
    checkout.says("wheel", "20971520", 0, "x86_64.whl: 20971 kB");
    assert!(
        checkout
            .calls()
            .starts_with("requirebuild --release --locked ")
    );
    checkout.tag("manylinux_2_99_x86_64");
    checkout.says("wheel", "20971521", 1, "that is more than 20971520 bytes");
    assert_eq!(checkout.run("wheel --no-such-flag", "0").0, 2);
    std::fs::remove_file(checkout.at(".python/bin/maturin")).unwrap();
    checkout.says("wheel", "0", 1, "run scripts/python");
}

#[test]
fn a_wheel_needs_no_newer_glibc_than_its_tag_says() {
    let checkout = wheel_checkout();
    let size = "100000";
    checkout.says("wheel", size, 0, "100 kB");
    // Older than any glibc that a compiler links with.
    checkout.tag("manylinux_2_1_x86_64");
    checkout.says("wheel", size, 1, "and its tag says GLIBC_2.1");
    checkout.tag("manylinux_2_1_x86_64.manylinux_2_99_x86_64");
    checkout.says("wheel", size, 1, "and its tag says GLIBC_2.1");
    checkout.tag("linux_x86_64");
    checkout.says("wheel", size, 1, "has no manylinux tag");
    assert!(checkout.calls().contains("--auditwheel check"));
}

#[test]
fn what_is_pinned_is_installed_once_and_an_interrupted_run_leaves_nothing_that_counts() {
    let checkout = Checkout::new(&["python", "python.txt"]);
    let (name, says) = ("python", "is in .python/");
    checkout.is_missing(name, "torch ", "needs Python 3.11");
    checkout.says("python --list", "0", 0, "maturin ");
    let half = checkout.at(".python/half");
    std::fs::write(&half, "").unwrap();
    checkout.says(name, "0", 0, says);
    assert!(!half.exists(), "what an interrupted run left is in it");
    let installed = checkout.calls();
    assert!(installed.contains("--requirement") && installed.contains("python.txt"));
    checkout.is_kept(name, says, ".python/bin/python", "torch");
}
