//! `compare candidate` on the CPU: right callables pass, wrong ones fail, and those that cheat are refused by name.
#![forbid(unsafe_code)]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

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

struct Ran {
    code: Option<i32>,
    text: String,
    folder: tempfile::TempDir,
}

/// `compare candidate` of a function in a file beside the others or elsewhere. Without a GPU wherever it runs; with temporary
/// files of its own in `folder`, which a candidate may look through.
fn command(candidate: &str, arguments: &[&str], folder: &Path) -> Option<Command> {
    let python = python()?;
    let (file, function) = candidate.split_once(':').unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/candidates")
        .join(file);
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command
        .arg("candidate")
        .arg(format!("{}:{function}", file.display()))
        .arg("--python")
        .arg(python)
        .args(arguments)
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("TMPDIR", folder)
        .stdin(Stdio::null());
    Some(command)
}

fn run(candidate: &str, arguments: &[&str]) -> Option<Ran> {
    let folder = tempfile::tempdir().unwrap();
    let output: Output = command(candidate, arguments, folder.path())?
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
fn a_right_callable_passes_and_says_so_in_json() {
    let Some(ran) = run("right.py:attention", &["--quick"]) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.text);
    let passes = "PASS: right.py:attention passes every gate in ";
    assert!(ran.text.contains(passes), "{}", ran.text);
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["--quick", "--quiet", "--json", "-"];
    let mut command = command("right.py:attention", &arguments, folder.path()).unwrap();
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let judged: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(judged["name"], "right.py:attention");
    assert_eq!(
        (&judged["device"], &judged["verdict"]),
        (&"the processor".into(), &"pass".into())
    );
    for gate in ["C1", "C2", "C3", "C5", "C6"] {
        let passed = &judged["gates"][gate];
        assert_eq!(
            (&passed["verdict"], &passed["of"]),
            (&"pass".into(), &judged["cases"])
        );
    }
    assert_eq!(judged["timings"], serde_json::json!([]));
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
        "1x2x33x64 e4m3 full: it has no argument scales, which E4M3 needs",
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
            let is_of_gate = line.contains(&format!("FAIL {gate} of {candidate}"));
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
        ("wrong.py:exits", "C1", "SystemExit: no licence"),
    ]);
}

#[test]
fn cheats_are_refused_by_name() {
    refused(&[
        (
            "cheats.py:kept_by_address",
            "C5",
            "differ between call 1 and call 2, V negated",
        ),
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
        (
            "cheats.py:second_zeros",
            "C5",
            "differ between call 1 and call 2, V negated",
        ),
        (
            "cheats.py:second_nan",
            "C5",
            "differ between call 1 and call 2, V negated",
        ),
        ("cheats.py:second_writes_input", "C6", "k: input changed"),
        (
            "cheats.py:always_late",
            "C1",
            "returned Late, expected a torch.Tensor",
        ),
        (
            "cheats.py:slow_clock",
            "C1",
            "it has replaced torch.cuda.Event.elapsed_time",
        ),
    ]);
}

/// What is timed is judged on other values than it was captured on, in every call and on its own, takes no longer for that, and returns
/// what it returned to the gates.
#[test]
fn what_is_timed_cannot_be_kept_nor_of_another_type() {
    let Some(python) = python() else {
        return;
    };
    // Sets, contents of them, launches of a graph.
    let rotations = ["4:2:8", "3:2:3", "1:1:2"];
    let mut cases: Vec<(String, &str)> = Vec::new();
    for (candidate, words) in [
        ("right.py:attention", "right"),
        ("right.py:without_graph", "right"),
        ("cheats.py:kept_when_dense", "wrong: "),
        ("cheats.py:kept_without_graph", "wrong: "),
        ("cheats.py:kept_when_captured", "wrong: "),
        ("cheats.py:keys_kept", "wrong: "),
        ("cheats.py:scores_kept", "wrong: "),
        (
            "cheats.py:late_when_dense",
            "refused: returned Late, expected a torch.Tensor",
        ),
        (
            "cheats.py:codes_when_dense",
            "refused: returned torch.float8_e4m3fn",
        ),
    ] {
        cases.extend(rotations.map(|rotation| (format!("{candidate}:{rotation}"), words)));
    }
    for (case, words) in [
        (
            "cheats.py:third_set_kept:4:2:8",
            "refused: call 3 of 8 in the timed graph launches 1 kernels, expected ",
        ),
        (
            "cheats.py:last_on_each_set:4:2:8",
            "wrong: off by [nan, nan, ",
        ),
        ("cheats.py:half_written:4:2:8", "wrong: "),
        ("cheats.py:of_replay_before:4:2:8", "wrong: "),
        (
            "cheats.py:kept_by_version:4:2:8",
            "refused: a call takes 2.00 µs where inputs have changed and outputs are unwritten, expected at most 1.5 times the 0.00",
        ),
        (
            "cheats.py:when_judged:4:2:8",
            "refused: a call takes 2.00 µs where inputs have changed",
        ),
        (
            "cheats.py:where_unwritten:4:2:8",
            "refused: a call takes 2.00 µs where inputs have changed",
        ),
        (
            "cheats.py:one_in_two_new:4:2:8",
            "refused: call 1 of 8 in the timed graph launches 0 kernels, expected ",
        ),
        (
            "cheats.py:copied:4:2:8",
            "refused: call 5 of 8 in the timed graph, where no other runs, does not write",
        ),
        (
            "cheats.py:one_in_two:4:2:8",
            "refused: what is timed returned a tensor that shares memory with another output",
        ),
        (
            "cheats.py:one_in_four:4:2:8",
            "refused: what is timed returned a tensor that shares memory with another output",
        ),
        (
            "cheats.py:one_buffer_when_dense:4:2:8",
            "refused: what is timed returned a tensor that shares memory with another output",
        ),
        (
            "right.py:attention:4:2:1",
            "refused: a graph of 1 launches leaves out some of 4 sets",
        ),
        (
            "cheats.py:records_nothing:1:1:2",
            "refused: it has replaced torch.cuda.Event.record",
        ),
        (
            "cheats.py:replays_nothing:1:1:2",
            "refused: it has replaced torch.cuda.CUDAGraph.replay",
        ),
        (
            "cheats.py:waits_for_nothing:1:1:2",
            "refused: it has replaced torch.cuda.synchronize",
        ),
        // The last: it stays replaced.
        (
            "cheats.py:judges_itself:1:1:2",
            "refused: it has replaced Worker.check_timed",
        ),
    ] {
        cases.push((case.to_string(), words));
    }
    let output = Command::new(&python)
        .args(["tests/candidates/timed.py", "src/python/peers.py"])
        .args(cases.iter().map(|(case, _)| case))
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().count(), cases.len(), "{said}");
    for ((case, words), said) in cases.iter().zip(said.lines()) {
        assert!(said.starts_with(words), "{case}: {said}");
    }
}

/// Processes that `wrong.py:hangs_in_a_child` named in `folder`, once it has.
fn processes(folder: &Path) -> Option<Vec<String>> {
    let named = std::fs::read_to_string(folder.join("processes")).ok()?;
    Some(named.split(' ').map(String::from).collect())
}

/// Waits for what is true within a minute, or fails.
fn within_a_minute<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(found) = look() {
            return found;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not within a minute: {what}");
}

fn end(processes: &[String]) {
    for process in processes {
        let state = || std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
        within_a_minute(&format!("{process} ends"), || {
            (state().is_empty() || state().contains(") Z ")).then_some(())
        });
    }
}

#[test]
fn what_a_callable_started_ends_with_it_and_with_who_called_it() {
    let one = [&TWO[..6], &["--seeds", "0"]].concat();
    let arguments = [&one[..], &["--patience", "5"]].concat();
    let Some(ran) = run("wrong.py:hangs_in_a_child", &arguments) else {
        return;
    };
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    let text = ran.text.split_whitespace().collect::<Vec<_>>().join(" ");
    let says = "did not answer call wrong.py:hangs_in_a_child within 5 s and was killed";
    assert!(text.contains(says), "{text}");
    end(&processes(ran.folder.path()).unwrap());
    let ran = run("wrong.py:crashes", &one).unwrap();
    assert_eq!(ran.code, Some(1), "{}", ran.text);
    assert!(ran.text.contains("it was ended by SIGSEGV"), "{}", ran.text);
    end(&processes(ran.folder.path()).unwrap());
    let folder = tempfile::tempdir().unwrap();
    let mut command = command("wrong.py:hangs_in_a_child", &one, folder.path()).unwrap();
    let mut compare = command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = within_a_minute("it hangs", || processes(folder.path()));
    // As a second Ctrl-C does, it leaves nothing done.
    compare.kill().unwrap();
    compare.wait().unwrap();
    end(&started);
}

#[test]
fn a_callable_has_no_standard_input_to_take_commands_from() {
    let Some(ran) = run("right.py:reads_input", &TWO) else {
        return;
    };
    assert_eq!(ran.code, Some(0), "{}", ran.text);
}

#[test]
fn what_cannot_be_loaded_is_wrong_usage() {
    for (candidate, words) in [
        ("right.py:no_such", "cannot be loaded: AttributeError"),
        ("no_such.py:attention", "cannot read"),
        (
            "right.py:",
            "expected FILE.py:FUNCTION, such as mine.py:attention, not '",
        ),
        ("README.md:attention", "expected FILE.py:FUNCTION"),
    ] {
        let Some(ran) = run(candidate, &[]) else {
            return;
        };
        assert_eq!(ran.code, Some(2), "{}", ran.text);
        assert!(ran.text.contains(words), "{}", ran.text);
    }
    let arguments = [&TWO[..], &["--run", "/no/such/record"]].concat();
    let ran = run("right.py:attention", &arguments).unwrap();
    assert_eq!(ran.code, Some(2), "{}", ran.text);
    assert!(ran.text.contains("/no/such/record"), "{}", ran.text);
}

#[test]
fn a_file_that_ends_python_or_hangs_is_wrong_usage_and_a_python_without_torch_is_no_data() {
    let here = tempfile::tempdir().unwrap();
    for (text, words) in [
        (
            "import sys; sys.exit('no licence')",
            "cannot be loaded: SystemExit: no licence",
        ),
        (
            "import os; os._exit(7)",
            "cannot be loaded: Python ended during `load",
        ),
        (
            "import time; time.sleep(600)",
            "cannot be loaded: Python did not answer `load it.py:f` within 1 s",
        ),
        ("def f(:", "cannot be loaded: SyntaxError"),
    ] {
        let file = here.path().join("it.py");
        std::fs::write(&file, text).unwrap();
        let candidate = format!("{}:f", file.display());
        let Some(ran) = run(&candidate, &["--patience", "1"]) else {
            return;
        };
        assert_eq!(ran.code, Some(2), "{text}: {}", ran.text);
        assert!(ran.text.contains(words), "{text}: {}", ran.text);
    }
    let stub = here.path().join("python");
    let without = "import sys; sys.modules['torch'] = None; exec(sys.argv[3])";
    let python = python().unwrap();
    let script = format!(
        "#!/bin/sh\nexec {} -c \"{without}\" \"$@\"\n",
        python.display()
    );
    std::fs::write(&stub, script).unwrap();
    std::fs::set_permissions(&stub, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_compare"))
        .args([
            "candidate",
            "tests/candidates/right.py:attention",
            "--python",
        ])
        .arg(&stub)
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("run scripts/python"), "{said}");
}

/// Python is told of files in JSON.
#[test]
fn a_folder_whose_name_is_no_text_is_wrong_usage_and_leaves_nothing() {
    let here = tempfile::tempdir().unwrap();
    let folder = here.path().join(OsStr::from_bytes(b"\xff"));
    std::fs::create_dir(&folder).unwrap();
    let right = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/candidates/right.py");
    std::fs::copy(&right, folder.join("right.py")).unwrap();
    let Some(python) = python() else {
        return;
    };
    for (file, temporary) in [(Path::new("right.py"), here.path()), (&right, &folder)] {
        let output = Command::new(env!("CARGO_BIN_EXE_compare"))
            .arg("candidate")
            .arg(format!("{}:attention", file.display()))
            .arg("--python")
            .arg(&python)
            .args(TWO)
            .current_dir(&folder)
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("TMPDIR", temporary)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("is not valid UTF-8; "), "{said}");
    }
}
