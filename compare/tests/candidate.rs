//! `compare candidate` on the CPU: right callables pass, wrong ones fail, and those that cheat are refused by name.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The Python that has torch. CI has.
fn python() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let named = std::env::var_os("PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| root.join(".python/bin/python"));
    let has_torch = Command::new(&python)
        .args(["-c", "import torch"])
        .output()
        .is_ok_and(|output| output.status.success());
    assert!(
        has_torch || std::env::var_os("CI").is_none(),
        "CI tests with PyTorch: scripts/python"
    );
    if !has_torch {
        eprintln!(
            "not tested: {} has no torch; run scripts/python",
            python.display()
        );
    }
    has_torch.then_some(python)
}

/// A run, and what it printed.
struct Ran {
    code: Option<i32>,
    text: String,
    folder: tempfile::TempDir,
}

impl Ran {
    /// The only record's file of this name.
    fn of_record(&self, name: &str) -> String {
        let mut records = std::fs::read_dir(self.folder.path().join("out")).unwrap();
        let record = records.next().unwrap().unwrap().path();
        assert!(records.next().is_none());
        std::fs::read_to_string(record.join(name)).unwrap()
    }
}

fn run(candidate: &str, arguments: &[&str]) -> Option<Ran> {
    let python = python()?;
    let folder = tempfile::tempdir().unwrap();
    let (file, function) = candidate.split_once(':').unwrap();
    let file = Path::new("tests/candidates").join(file);
    let output: Output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .arg("candidate")
        .arg(format!("{}:{function}", file.display()))
        .arg("--python")
        .arg(python)
        .arg("--out")
        .arg(folder.path().join("out"))
        .args(arguments)
        // Without a GPU wherever it runs; with temporary files of its own, which a candidate may look through.
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    Some(Ran {
        code: output.status.code(),
        text: String::from_utf8(text).unwrap(),
        folder,
    })
}

/// Two cases, of which the second has other values than the first at the same addresses.
const TWO: [&str; 8] = [
    "--shapes",
    "1x4:2x33:47x64",
    "--dtypes",
    "f16",
    "--masks",
    "causal",
    "--seeds",
    "0,1",
];

#[test]
fn a_right_callable_passes_and_its_record_is_of_no_stage() {
    let Some(ran) = run("right.py:attention", &["--quick"]) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    assert!(
        ran.text.contains("PASS: 1 variant is green"),
        "{}",
        ran.text
    );
    let meta: serde_json::Value = serde_json::from_str(&ran.of_record("meta.json")).unwrap();
    assert_eq!(meta["backend"], "cpu");
    let stages = meta["stages"].as_array().unwrap();
    assert_eq!((stages.len(), &stages[0]["id"]), (1, &"candidate".into()));
    assert_eq!(stages[0]["identity"].as_str().unwrap().len(), 64);
    let rows = ran.of_record("rows.jsonl");
    assert!(
        rows.lines()
            .all(|row| row.contains(r#""subject":"candidate/right.py:attention""#))
    );
    assert!(ran.of_record("COMPARE.md").contains("candidate"));
    let record = std::fs::read_dir(ran.folder.path().join("out"))
        .unwrap()
        .next();
    let record = record.unwrap().unwrap().path();
    let compare = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
        command.args(arguments).output().unwrap()
    };
    let shown = compare(&["show", "gates", "--record", record.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&shown.stdout).contains("candidate/right.py:attention"));
    let into = ran.folder.path().join("committed");
    let arguments = ["accept", record.to_str().unwrap(), "--into"];
    let accepted = compare(&[&arguments[..], &[into.to_str().unwrap()]].concat());
    let said = String::from_utf8_lossy(&accepted.stderr);
    assert_eq!(accepted.status.code(), Some(0), "{said}");
    assert!(
        into.join(record.file_name().unwrap())
            .join("rows.jsonl")
            .is_file()
    );
}

#[test]
fn what_it_does_not_take_is_listed_and_no_failure() {
    let arguments = ["--shapes", "1x2x33x64", "--dtypes", "f16,e4m3"];
    let Some(ran) = run("right.py:full_mask_only", &arguments) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    for line in [
        "1x2x33x64 f16 causal: NotImplementedError: no causal mask",
        "1x2x33x64 e4m3 full: it has no argument `scales`, which E4M3 needs",
    ] {
        assert!(ran.text.contains(line), "{}", ran.text);
    }
    let ran = run("right.py:takes_nothing", &arguments).unwrap();
    assert_eq!(ran.code, Some(3), "{}", ran.text);
}

/// Candidates that are refused, each with the gate that says so and its words.
fn refused(table: &[(&str, &str, &str)]) {
    for (candidate, gate, words) in table {
        let arguments = [&TWO[..], &["--patience", "20", "--quiet"]].concat();
        let Some(ran) = run(candidate, &arguments) else {
            return;
        };
        assert_eq!(ran.code, Some(1), "{candidate}: {}", ran.text);
        let is_line = |line: &str| {
            let is_of_gate = line.contains(&format!("FAIL {gate} of candidate/{candidate}"));
            is_of_gate && line.contains(words)
        };
        assert!(
            ran.text
                .split("- ")
                .any(|item| is_line(&item.split_whitespace().collect::<Vec<_>>().join(" "))),
            "{candidate}: {}",
            ran.text
        );
    }
}

#[test]
fn wrong_callables_fail_the_gate_that_is_for_it() {
    refused(&[
        ("wrong.py:top_left", "C2", ""),
        ("wrong.py:no_scale", "C2", ""),
        ("wrong.py:zeros", "C2", ""),
        ("wrong.py:writes_input", "C6", "k: input changed"),
        ("wrong.py:other_type", "C1", "returned torch.float32"),
        ("wrong.py:raises", "C1", "RuntimeError: out of luck"),
    ]);
}

#[test]
fn cheats_are_refused_by_name() {
    refused(&[
        ("cheats.py:kept_by_address", "C5", "a kept result"),
        (
            "cheats.py:one_buffer",
            "C6",
            "shares memory with that of call 1",
        ),
        ("cheats.py:in_place_of_q", "C6", "shares memory with q"),
        // On a GPU it is C1, by what its memory held; here that may be anything.
        ("cheats.py:launches_nothing", "C2", ""),
        (
            "cheats.py:by_address",
            "C5",
            "differ between call 1 and call 3, other addresses",
        ),
        ("cheats.py:looks_for_reference", "C2", ""),
    ]);
}

#[test]
fn a_callable_that_hangs_is_ended_and_named() {
    let arguments = [&TWO[..6], &["--seeds", "0", "--patience", "15"]].concat();
    let Some(ran) = run("wrong.py:hangs", &arguments) else {
        return;
    };
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    let text = ran.text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("did not answer within 15 s when it was asked to call candidate/wrong.py:hangs, and was ended"), "{text}");
}

#[test]
fn what_cannot_be_loaded_is_wrong_usage() {
    for (candidate, words) in [
        ("right.py:no_such", "cannot be loaded: AttributeError"),
        ("no_such.py:attention", "cannot read"),
    ] {
        let Some(ran) = run(candidate, &[]) else {
            return;
        };
        assert_eq!(ran.code, Some(2), "{}", ran.text);
        assert!(ran.text.contains(words), "{}", ran.text);
    }
}
