//! The module that cargo has just built, as Python and mypy see it on this machine.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A program that runs the script it is passed. Built with the tests of the workspace, the module
/// holds the emulator, whose variables of a thread have to be there when a program starts.
/// Processes that Python starts are without it.
const RUN: &str = "\
import os, runpy, sys
del os.environ['LD_PRELOAD']
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name='__main__')
";

const MYPY: &str = "\
import os, sys
del os.environ['LD_PRELOAD']
import mypy.__main__
mypy.__main__.console_entry()
";

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The package in a folder of its own, and the Python of `scripts/python`.
struct Installed {
    site: tempfile::TempDir,
    python: PathBuf,
}

impl Installed {
    /// Installs the package. Returns `None` where there is no Python, and fails in CI.
    fn new() -> Option<Self> {
        let python = folder().join("../../.python/bin/python");
        if !python.is_file() {
            let reason = "there is no .python/; run scripts/python";
            assert!(std::env::var_os("CI").is_none(), "{reason}");
            println!("not checked: {reason}");
            return None;
        }
        let site = tempfile::tempdir().unwrap();
        let package = site.path().join("attention_ladder");
        std::fs::create_dir(&package).unwrap();
        for entry in std::fs::read_dir(folder().join("package/attention_ladder")).unwrap() {
            let file = entry.unwrap();
            if file.file_type().unwrap().is_file() {
                std::fs::copy(file.path(), package.join(file.file_name())).unwrap();
            }
        }
        // Cargo builds the library beside the tests.
        let test = std::env::current_exe().unwrap();
        let library = test.with_file_name("libattention_ladder_native.so");
        std::fs::copy(library, package.join("_native.abi3.so")).unwrap();
        Some(Self { site, python })
    }

    fn run(&self, code: &str, arguments: &[&str]) -> Output {
        let package = self.site.path().join("attention_ladder");
        Command::new(&self.python)
            .args(["-c", code])
            .args(arguments)
            .current_dir(folder())
            .env("PYTHONPATH", self.site.path())
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("LD_PRELOAD", package.join("_native.abi3.so"))
            .output()
            .unwrap()
    }
}

/// Returns what a program prints, which must succeed.
fn succeeded(output: Output) -> String {
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{text}");
    text
}

#[test]
fn python_imports_the_module_and_is_told_what_is_missing() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let text = succeeded(installed.run(RUN, &["tests/check.py"]));
    assert!(
        text.contains("no GPU: ") || text.contains("with a GPU: all right"),
        "{text}"
    );
}

#[test]
fn a_serving_loop_stays_right_and_leaks_nothing() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let text = succeeded(installed.run(RUN, &["tests/serving.py"]));
    assert!(text.contains("all pages free"), "{text}");
}

/// PyTorch's annotations, which both need, are read once.
#[test]
fn a_users_program_and_the_package_pass_mypy_in_strict_mode() {
    let Some(installed) = Installed::new() else {
        return;
    };
    let cache = format!("--cache-dir={}", env!("CARGO_TARGET_TMPDIR"));
    let strict = ["--strict", &cache];
    succeeded(installed.run(MYPY, &[&strict[..], &["tests/typed.py"]].concat()));
    let package = [&strict[..], &["-p", "attention_ladder"]].concat();
    succeeded(installed.run(MYPY, &package));
}
