//! `check.py` with the module that cargo has just built, as Python sees it on this machine.
#![forbid(unsafe_code)]

use std::path::Path;
use std::process::Command;

/// Built with the tests of the workspace, the module holds the emulator, whose variables of a thread have to be there when a program
/// starts. What Python starts is without it.
const RUN: &str = "import os, runpy, sys; del os.environ['LD_PRELOAD']; runpy.run_path(sys.argv[1], run_name='__main__')";

#[test]
fn python_imports_the_module_and_is_told_what_is_missing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let python = folder.join("../../.python/bin/python");
    if !python.is_file() {
        let why = "there is no .python/; run scripts/python";
        assert!(std::env::var_os("CI").is_none(), "{why}");
        println!("not checked: {why}");
        return;
    }
    let site = tempfile::tempdir().unwrap();
    let package = site.path().join("attention_ladder");
    std::fs::create_dir(&package).unwrap();
    // Cargo builds the library beside the tests.
    let built = std::env::current_exe().unwrap();
    let built = built.with_file_name("libattention_ladder_native.so");
    let native = package.join("_native.abi3.so");
    std::fs::copy(built, &native).unwrap();
    let module = folder.join("package/attention_ladder/__init__.py");
    std::fs::copy(module, package.join("__init__.py")).unwrap();
    let checked = Command::new(python)
        .args(["-c", RUN])
        .arg(folder.join("tests/check.py"))
        .env("PYTHONPATH", site.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("LD_PRELOAD", native)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(checked.status.success(), "{text}");
    assert!(
        text.contains("no GPU: ") || text.contains("with a GPU: all right"),
        "{text}"
    );
}
