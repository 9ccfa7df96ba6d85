//! `scripts/python` with a program in place of Python that notes how it is called.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// `-m venv` puts this very program into the environment; `-m pip` fails where the test says so.
const PYTHON: &str = r#"#!/bin/sh
echo "$*" >> "$HERE/calls"
case "$*" in
    "-m venv "*) for last; do :; done; mkdir -p "$last/bin" && cp "$0" "$last/bin/python" ;;
    "-m pip --python "*) exit "${pip_code:-0}" ;;
    *"version_info < (3, 11)"*) [ "$pip_code" != old ] ;;
    *print*) echo "PyTorch 1.0" ;;
esac
"#;

#[test]
fn what_is_pinned_is_installed_once_and_an_interrupted_run_leaves_nothing_that_counts() {
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    std::fs::create_dir(at("scripts")).unwrap();
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
    for name in ["python", "python.txt"] {
        std::fs::copy(scripts.join(name), at("scripts").join(name)).unwrap();
    }
    std::fs::write(at("stub"), PYTHON).unwrap();
    std::fs::set_permissions(at("stub"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let run = |words: &[&str], pip_code: &str| {
        let output = Command::new(at("scripts/python"))
            .args(words)
            .env("HERE", here.path())
            .env("PYTHON", at("stub"))
            .env("pip_code", pip_code)
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let calls = || std::fs::read_to_string(at("calls")).unwrap();

    let (code, listed) = run(&["--list"], "0");
    assert!(code == Some(0) && listed.contains("torch ") && listed.contains("maturin "));
    assert_eq!(run(&["--check"], "0").0, Some(1));
    let (code, text) = run(&[], "old");
    assert!(
        code == Some(1) && text.contains("needs Python 3.11"),
        "{text}"
    );
    let (code, text) = run(&[], "1");
    assert!(code == Some(1) && text.contains("pip failed"), "{text}");
    assert_eq!(run(&["--check"], "0").0, Some(1));
    let half = at(".python/half");
    std::fs::write(&half, "").unwrap();
    let (code, text) = run(&[], "0");
    assert!(code == Some(0) && text.contains("is in .python/"), "{text}");
    assert!(!half.exists(), "what an interrupted run left is in it");
    let installed = calls();
    assert!(installed.contains("--requirement") && installed.contains("python.txt"));
    let (code, text) = run(&[], "0");
    assert!(code == Some(0) && text.contains("up to date"), "{text}");
    assert_eq!(run(&["--check"], "0").0, Some(0));
    assert_eq!(calls(), installed);
    std::fs::remove_file(at(".python/bin/python")).unwrap();
    assert_eq!(run(&["--check"], "0").0, Some(1));
    assert_eq!(run(&[], "0").0, Some(0));
    std::fs::write(at("scripts/python.txt"), "torch==9\n").unwrap();
    assert_eq!(run(&["--check"], "0").0, Some(1));
    assert_eq!(run(&["--no-such-flag"], "0").0, Some(2));
}
