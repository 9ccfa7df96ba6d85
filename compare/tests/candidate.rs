//! `compare candidate` on the CPU: right callables pass, wrong ones fail, and those that cheat are
//! refused by name.
#![forbid(unsafe_code)]

use kernel_build::testing::write_program;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

/// Returns the Python that has torch, which is looked for once. CI has one.
fn python() -> Option<PathBuf> {
    static PYTHON: LazyLock<Option<PathBuf>> = LazyLock::new(find_python);
    PYTHON.clone()
}

fn find_python() -> Option<PathBuf> {
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

/// Returns `compare candidate` of a function in a file beside the others or elsewhere. It has no
/// GPU wherever it runs, and temporary files of its own in `folder`, which a candidate may look
/// through. `None` without a Python.
fn command(candidate: &str, flags: &[&str], folder: &Path) -> Option<Command> {
    let python = python()?;
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/candidates");
    let mut command = Command::new(env!("CARGO_BIN_EXE_compare"));
    command
        .arg("candidate")
        .arg(beside.join(candidate))
        .args(flags)
        .env("PYTHON", python)
        .env("CUDA_VISIBLE_DEVICES", "")
        .env("TMPDIR", folder)
        .stdin(Stdio::null());
    Some(command)
}

/// Runs the command, which must exit with this code, and returns what it prints, words apart by one
/// space; `None` without a Python.
#[track_caller]
fn printed(candidate: &str, flags: &[&str], code: i32, folder: &Path) -> Option<String> {
    let output = command(candidate, flags, folder)?.output().unwrap();
    let bytes = [output.stdout, output.stderr].concat();
    let text = String::from_utf8(bytes).unwrap();
    assert_eq!(
        output.status.code(),
        Some(code),
        "{candidate} {flags:?}: {text}"
    );
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

const ONE_CASE: [&str; 6] = [
    "--shapes",
    "1x4:2x33:47x64",
    "--dtypes",
    "f16",
    "--masks",
    "causal",
];

/// Flags for two cases, of which the second has other values than the first at the same addresses.
const TWO_CASES: [&str; 8] = [
    "--shapes",
    "1x4:2x33:47x64",
    "--dtypes",
    "f16",
    "--masks",
    "causal",
    "--seeds",
    "0,1",
];

/// Judges a candidate, which must end with this code and these words; without PyTorch it does not.
#[track_caller]
fn expect_answer(candidate: &str, flags: &[&str], code: i32, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let Some(text) = printed(candidate, flags, code, folder.path()) else {
        return;
    };
    for expected in words {
        assert!(text.contains(expected), "{candidate}: {text}");
    }
}

/// The flags for a shape in a type of 16 bits and in E4M3.
const TWO_DTYPES: [&str; 4] = ["--shapes", "1x2x33x64", "--dtypes", "f16,e4m3"];

#[test]
fn a_callable_that_is_right_passes() {
    let passes = "PASS: right.py:attention passes every gate in ";
    expect_answer("right.py:attention", &["--quick"], 0, &[passes]);
}

#[test]
fn what_a_callable_does_not_support_is_named() {
    let causal = "1x2x33x64 f16 causal: NotImplementedError: no causal mask";
    let codes = "1x2x33x64 e4m3 full: it has no argument scales, which E4M3 needs";
    expect_answer("right.py:full_mask_only", &TWO_DTYPES, 0, &[causal, codes]);
}

#[test]
fn a_callable_that_supports_nothing_is_no_data() {
    expect_answer("right.py:takes_nothing", &TWO_DTYPES, 3, &[]);
}

#[test]
fn a_callable_has_no_standard_input_to_take_commands_from() {
    expect_answer("right.py:reads_input", &ONE_CASE, 0, &[]);
}

#[test]
fn a_callable_that_is_not_there_cannot_be_loaded() {
    let reason = "cannot be loaded: AttributeError";
    expect_answer("right.py:no_such", &[], 2, &[reason]);
    expect_answer("no_such.py:attention", &[], 2, &["cannot read"]);
}

#[test]
fn a_candidate_is_named_by_file_and_function() {
    let usage = "expected FILE.py:FUNCTION";
    let example = ", such as mine.py:attention, not '";
    expect_answer("right.py:", &[], 2, &[usage, example]);
    expect_answer("README.md:attention", &[], 2, &[usage]);
}

/// A callable that is refused, the gate that fails and its words.
struct Refusal(&'static str, &'static str, &'static str);

fn expect_refusals(refusals: &[Refusal]) {
    let flags = [&TWO_CASES[..], &["--timeout", "20"]].concat();
    for Refusal(candidate, gate, words) in refusals {
        let folder = tempfile::tempdir().unwrap();
        let Some(text) = printed(candidate, &flags, 1, folder.path()) else {
            return;
        };
        let failure = format!("FAIL {gate} of {candidate}");
        let mut lines = text.split("- ");
        assert!(
            lines.any(|line| line.contains(&failure) && line.contains(words)),
            "{candidate} {gate} {words}: {text}"
        );
    }
}

#[test]
fn wrong_callables_are_refused_by_name() {
    expect_refusals(&[
        Refusal("wrong.py:top_left", "C2", ""),
        Refusal("wrong.py:no_scale", "C2", ""),
        Refusal("wrong.py:zeros", "C2", ""),
        Refusal("wrong.py:writes_input", "C6", "k: input changed"),
        Refusal("wrong.py:other_type", "C1", "returned torch.float32"),
        Refusal("wrong.py:raises", "C1", "RuntimeError: out of luck"),
        Refusal("wrong.py:exits", "C1", "SystemExit: no licence"),
    ]);
}

/// One that launches nothing fails C1 on a GPU, by what its memory held; here that may be anything.
#[test]
fn cheats_are_refused_by_name() {
    expect_refusals(&[
        Refusal(
            "cheats.py:kept_by_address",
            "C5",
            "differ between call 1 and call 2, V negated",
        ),
        Refusal(
            "cheats.py:one_buffer",
            "C6",
            "shares memory with that of call 1",
        ),
        Refusal("cheats.py:in_place_of_q", "C6", "shares memory with q"),
        Refusal("cheats.py:launches_nothing", "C2", ""),
        Refusal(
            "cheats.py:by_address",
            "C5",
            "differ between call 1 and call 3, other addresses",
        ),
        Refusal("cheats.py:looks_for_reference", "C2", ""),
        Refusal(
            "cheats.py:second_zeros",
            "C5",
            "differ between call 1 and call 2, V negated",
        ),
        Refusal(
            "cheats.py:second_nan",
            "C5",
            "differ between call 1 and call 2, V negated",
        ),
        Refusal("cheats.py:second_writes_input", "C6", "k: input changed"),
        Refusal(
            "cheats.py:always_late",
            "C1",
            "returned Late, expected a torch.Tensor",
        ),
        Refusal(
            "cheats.py:slow_clock",
            "C1",
            "it has replaced torch.cuda.Event.elapsed_time",
        ),
    ]);
}

const UNCAPTURED: &str =
    "refused: its calls cannot be captured in a graph: RuntimeError: it waits for the GPU";

/// The graph of a callable: its input sets, the values that each takes in turn, and its launches.
#[derive(Clone, Copy)]
struct Rotation {
    sets: usize,
    contents: usize,
    launches: usize,
}

const FOUR_SETS: Rotation = Rotation {
    sets: 4,
    contents: 2,
    launches: 8,
};
const THREE_SETS: Rotation = Rotation {
    sets: 3,
    contents: 2,
    launches: 3,
};
const ONE_SET: Rotation = Rotation {
    sets: 1,
    contents: 1,
    launches: 2,
};
/// A graph that leaves out some sets.
const TOO_SHORT: Rotation = Rotation {
    sets: 4,
    contents: 2,
    launches: 1,
};

/// A callable that is timed, and the first words of the answer.
struct Timed {
    candidate: &'static str,
    rotation: Rotation,
    answer: &'static str,
}

impl Timed {
    const fn new(candidate: &'static str, rotation: Rotation, answer: &'static str) -> Self {
        Self {
            candidate,
            rotation,
            answer,
        }
    }

    /// Returns a callable that is judged alike in each rotation.
    const fn in_each(candidate: &'static str, answer: &'static str) -> [Self; 3] {
        [
            Self::new(candidate, FOUR_SETS, answer),
            Self::new(candidate, THREE_SETS, answer),
            Self::new(candidate, ONE_SET, answer),
        ]
    }

    /// Returns the argument of timed.py.
    fn argument(&self) -> String {
        let Rotation {
            sets,
            contents,
            launches,
        } = self.rotation;
        format!("{}:{sets}:{contents}:{launches}", self.candidate)
    }
}

/// The callables that are judged alike in each rotation.
const IN_EACH_ROTATION: [[Timed; 3]; 9] = [
    Timed::in_each("right.py:attention", "right"),
    Timed::in_each("right.py:without_graph", UNCAPTURED),
    Timed::in_each("cheats.py:kept_when_dense", "wrong: off by"),
    Timed::in_each("cheats.py:kept_without_graph", UNCAPTURED),
    Timed::in_each("cheats.py:kept_when_captured", "wrong: off by"),
    Timed::in_each("cheats.py:keys_kept", "wrong: off by"),
    Timed::in_each("cheats.py:scores_kept", "wrong: off by"),
    Timed::in_each(
        "cheats.py:late_when_dense",
        "refused: returned Late, expected a torch.Tensor",
    ),
    Timed::in_each(
        "cheats.py:codes_when_dense",
        "refused: returned torch.float8_e4m3fn",
    ),
];

/// The callables that are judged in one rotation. The last two stay replaced.
const IN_ONE_ROTATION: &[Timed] = &[
    Timed::new(
        "cheats.py:third_set_kept",
        FOUR_SETS,
        "refused: call 3 of 8 in the timed graph launches 1 kernels, expected",
    ),
    Timed::new(
        "cheats.py:last_on_each_set",
        FOUR_SETS,
        "wrong: off by [nan, nan,",
    ),
    Timed::new("cheats.py:half_written", FOUR_SETS, "wrong: off by"),
    Timed::new("cheats.py:right_in_reverse", FOUR_SETS, "wrong: off by"),
    Timed::new("cheats.py:right_in_reverse", ONE_SET, "wrong: off by"),
    Timed::new(
        "cheats.py:lazily_negated",
        FOUR_SETS,
        "refused: returned a torch.strided tensor, lazily negated: True; expected",
    ),
    Timed::new("cheats.py:of_replay_before", FOUR_SETS, "wrong: off by"),
    Timed::new("cheats.py:kept_by_version", FOUR_SETS, UNCAPTURED),
    Timed::new("cheats.py:when_judged", FOUR_SETS, UNCAPTURED),
    Timed::new(
        "cheats.py:where_unwritten",
        FOUR_SETS,
        "refused: a call takes 2.00 µs where inputs have changed and outputs are unwritten, \
         expected at most 1.2 times the 0.00",
    ),
    Timed::new(
        "cheats.py:one_in_two_new",
        FOUR_SETS,
        "refused: call 1 of 8 in the timed graph launches 0 kernels, expected",
    ),
    Timed::new(
        "cheats.py:copied",
        FOUR_SETS,
        "refused: call 5 of 8 in the timed graph, where no other runs, does not write",
    ),
    Timed::new(
        "cheats.py:one_in_two",
        FOUR_SETS,
        "refused: what is timed returned a tensor that shares memory with another output",
    ),
    Timed::new(
        "cheats.py:one_in_four",
        FOUR_SETS,
        "refused: what is timed returned a tensor that shares memory with another output",
    ),
    Timed::new(
        "cheats.py:one_buffer_when_dense",
        FOUR_SETS,
        "refused: what is timed returned a tensor that shares memory with another output",
    ),
    Timed::new(
        "cheats.py:only_when_checked",
        FOUR_SETS,
        "refused: what is timed returned a tensor that shares memory with another output",
    ),
    Timed::new(
        "cheats.py:in_place_of_q",
        FOUR_SETS,
        "refused: what is timed returned a tensor that shares memory with an input",
    ),
    Timed::new(
        "right.py:attention",
        TOO_SHORT,
        "refused: a graph of 1 launches leaves out some of 4 sets",
    ),
    Timed::new(
        "cheats.py:records_nothing",
        ONE_SET,
        "refused: it has replaced torch.cuda.Event.record",
    ),
    Timed::new(
        "cheats.py:replays_nothing",
        ONE_SET,
        "refused: it has replaced torch.cuda.CUDAGraph.replay",
    ),
    Timed::new(
        "cheats.py:waits_for_nothing",
        ONE_SET,
        "refused: it has replaced torch.cuda.synchronize",
    ),
    Timed::new(
        "cheats.py:tells_the_time",
        ONE_SET,
        "refused: it has replaced Driver.us",
    ),
    Timed::new(
        "cheats.py:is_generous",
        ONE_SET,
        "refused: it has replaced RENEWED",
    ),
    Timed::new(
        "cheats.py:judges_itself",
        ONE_SET,
        "refused: it has replaced Worker.check_timed",
    ),
];

/// The timed callable is judged on other values than it was captured on, in every call and on its
/// own, takes no longer for that, and returns what it returned to the gates. A callable that would
/// be called in each replay is not timed.
#[test]
fn what_is_timed_cannot_be_kept_nor_of_another_type() {
    let Some(python) = python() else {
        return;
    };
    let mut cases = Vec::new();
    for rotations in &IN_EACH_ROTATION {
        cases.extend(rotations);
    }
    cases.extend(IN_ONE_ROTATION);
    let output = Command::new(&python)
        .args(["tests/candidates/timed.py", "measure/src/python/peers.py"])
        .args(cases.iter().map(|case| case.argument()))
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let answers = String::from_utf8(output.stdout).unwrap();
    assert_eq!(answers.lines().count(), cases.len(), "{answers}");
    for (case, answer) in cases.iter().zip(answers.lines()) {
        assert!(
            answer.starts_with(case.answer),
            "{}: {answer}",
            case.argument()
        );
    }
}

/// Returns the processes that `wrong.py:hangs_in_a_child` named in `folder`, once it has.
fn processes(folder: &Path) -> Option<Vec<String>> {
    let numbers = std::fs::read_to_string(folder.join("processes")).ok()?;
    Some(numbers.split(' ').map(String::from).collect())
}

/// Looks until there is something, or fails after a minute.
fn within_a_minute<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    for _ in 0..600 {
        if let Some(value) = look() {
            return value;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not within a minute: {what}");
}

/// Waits until the processes have ended.
fn expect_end(processes: &[String]) {
    for process in processes {
        within_a_minute(&format!("{process} ends"), || {
            let path = format!("/proc/{process}/stat");
            let state = std::fs::read_to_string(path).unwrap_or_default();
            (state.is_empty() || state.contains(") Z ")).then_some(())
        });
    }
}

#[test]
fn what_a_callable_started_ends_with_it() {
    expect_nothing_left(
        "wrong.py:hangs_in_a_child",
        "did not answer call wrong.py:hangs_in_a_child within 5 s and was killed",
    );
    expect_nothing_left("wrong.py:crashes", "it was ended by SIGSEGV");
}

/// Judges a callable that ends with these words, and fails unless what it started has ended.
#[track_caller]
fn expect_nothing_left(candidate: &str, words: &str) {
    let folder = tempfile::tempdir().unwrap();
    let flags = [&ONE_CASE[..], &["--timeout", "5"]].concat();
    let Some(text) = printed(candidate, &flags, 1, folder.path()) else {
        return;
    };
    assert!(text.contains(words), "{text}");
    expect_end(&processes(folder.path()).unwrap());
}

#[test]
fn what_a_callable_started_ends_with_a_program_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(mut hanging) = command("wrong.py:hangs_in_a_child", &ONE_CASE, folder.path()) else {
        return;
    };
    let mut compare = hanging
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let started = within_a_minute("it hangs", || processes(folder.path()));
    // As a second Ctrl-C does, it leaves nothing done.
    compare.kill().unwrap();
    compare.wait().unwrap();
    expect_end(&started);
}

/// Neither a call that hangs nor a file that does not end its import is waited for, however long
/// the timeout.
#[test]
fn a_signal_ends_what_hangs_at_once_and_leaves_nothing() {
    if python().is_none() {
        return;
    }
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("it.py");
    std::fs::write(
        &file,
        "import pathlib, tempfile, time\n\
         (pathlib.Path(tempfile.gettempdir()) / 'hangs').touch()\n\
         time.sleep(6000)\n",
    )
    .unwrap();
    let hangs_on_import = format!("{}:f", file.display());
    for (candidate, begun) in [
        ("wrong.py:hangs_in_a_child", "processes"),
        (&*hangs_on_import, "hangs"),
    ] {
        for signal in ["-TERM", "-INT"] {
            let folder = tempfile::tempdir().unwrap();
            let flags = [&ONE_CASE[..], &["--timeout", "6000"]].concat();
            let mut compare = command(candidate, &flags, folder.path())
                .unwrap()
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            within_a_minute("it hangs", || {
                folder.path().join(begun).is_file().then_some(())
            });
            let id = compare.id().to_string();
            let sent = Command::new("kill").args([signal, &id]).status();
            assert!(sent.unwrap().success());
            let status = within_a_minute("it ends", || compare.try_wait().unwrap());
            assert_eq!(status.code(), Some(130), "{candidate} {signal}");
            expect_end(&processes(folder.path()).unwrap_or_default());
            for entry in std::fs::read_dir(folder.path()).unwrap() {
                assert_eq!(entry.unwrap().file_name(), begun);
            }
        }
    }
}

/// Fails unless a file with this text is refused, for this reason, when it is loaded.
#[track_caller]
fn expect_not_loaded(text: &str, reason: &str) {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("it.py");
    std::fs::write(&file, text).unwrap();
    let candidate = format!("{}:f", file.display());
    let words = format!("cannot be loaded: {reason}");
    expect_answer(&candidate, &["--timeout", "1"], 2, &[&words]);
}

#[test]
fn a_file_that_ends_python_is_wrong_usage() {
    expect_not_loaded(
        "import sys; sys.exit('no licence')",
        "SystemExit: no licence",
    );
    expect_not_loaded("import os; os._exit(7)", "Python ended during `load");
}

#[test]
fn a_file_that_hangs_is_wrong_usage() {
    expect_not_loaded(
        "import time; time.sleep(600)",
        "Python did not answer `load it.py:f` within 1 s",
    );
}

#[test]
fn a_file_that_is_no_python_is_wrong_usage() {
    expect_not_loaded("def f(:", "SyntaxError");
}

#[test]
fn a_python_without_torch_is_no_data() {
    let Some(python) = python() else {
        return;
    };
    let here = tempfile::tempdir().unwrap();
    let stub = here.path().join("python");
    let without = "import sys; sys.modules['torch'] = None; exec(sys.argv[3])";
    let script = format!(
        "#!/bin/sh\nexec '{}' -c \"{without}\" \"$@\"\n",
        python.display()
    );
    write_program(&stub, &script).unwrap();
    let flags = ["--python", stub.to_str().unwrap()];
    let answer = printed("right.py:attention", &flags, 3, here.path()).unwrap();
    assert!(answer.contains("run scripts/python"), "{answer}");
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
            .args(TWO_CASES)
            .current_dir(&folder)
            .env("CUDA_VISIBLE_DEVICES", "")
            .env("TMPDIR", temporary)
            .output()
            .unwrap();
        let message = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("is not valid UTF-8; "), "{message}");
    }
}
