//! `scripts/remote` with a shell in place of ssh, and a program in place of compare that notes how
//! it is called.
#![forbid(unsafe_code)]

use kernel_build::testing::write_program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A shell in place of ssh, which is called with the host and one command line.
const SHELL: &str = r#"#!/bin/sh
[ "$1" = gpu1 ] || { echo "no such host: $1" >&2; exit 255; }
[ -z "$GREETING" ] || echo "$GREETING"
shift
exec sh -c "$*"
"#;

/// A program in place of compare, and of cargo, which builds itself where a build for a named
/// target would. `run` leaves a record; every step exits as the test says.
const COMPARE: &str = r#"#!/bin/sh
(IFS='|'; echo "$ATTENTION_CUDA$*" >> "$HERE/calls")
step="$1"
if [ "$step" = build ]; then
    mkdir -p "$HERE/some-target" && cp "$0" "$HERE/some-target/compare"
    echo '{"reason":"compiler-artifact","executable":"'"$HERE"'/some-target/compare"}'
fi
if [ "$step" = run ] && [ -z "$NO_RECORD" ]; then
    mkdir -p rec/20260101T000000Z-gpu
    echo kept > rec/20260101T000000Z-gpu/session.json
fi
eval "exit \${${step}_code:-0}"
"#;

/// A program that an earlier build left where cargo builds by itself.
const STALE: &str = "#!/bin/sh\necho stale >> \"$HERE/calls\"\n";

/// A checkout, the host that its script reaches, and a program that was built before.
struct Workplace {
    folder: tempfile::TempDir,
}

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
    /// The calls of compare and cargo, words apart by `|`.
    calls: Vec<String>,
    record: Option<String>,
    /// The number of files that the host keeps.
    kept_files: usize,
}

impl Workplace {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("of remote ").tempdir();
        let workplace = Self {
            folder: folder.unwrap(),
        };
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts");
        for name in ["remote", "program"] {
            let script = std::fs::read_to_string(scripts.join(name)).unwrap();
            workplace.add_program(&format!("checkout/scripts/{name}"), &script);
        }
        // REMOTE_SHELL is a command with its flags, apart by spaces.
        workplace.add_program("bin/shell", SHELL);
        workplace.add_program("bin/cargo", COMPARE);
        workplace.add_program("checkout/target/debug/compare", STALE);
        workplace.add_program("built before/compare", COMPARE);
        std::fs::create_dir(workplace.path("there")).unwrap();
        workplace
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the path of the program that was built before.
    fn program(&self) -> String {
        let path = self.path("built before/compare");
        path.to_str().unwrap().to_string()
    }

    fn add_program(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, text).unwrap();
    }

    fn read(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.path(name)).ok()
    }

    /// Runs the script with these variables.
    fn remote(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Answer {
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let output = Command::new("bash")
            .arg(self.path("checkout/scripts/remote"))
            .args(arguments)
            .env("HERE", self.folder.path())
            .env("TMPDIR", self.path("there"))
            .env("PATH", path)
            .env_remove("ATTENTION_CUDA")
            .env("REMOTE_SHELL", "shell")
            .env_remove("CARGO_TARGET_DIR")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let calls = self.read("calls").unwrap_or_default();
        Answer {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            calls: calls.lines().map(String::from).collect(),
            record: self.read("checkout/target/compare/20260101T000000Z-gpu/session.json"),
            kept_files: std::fs::read_dir(self.path("there")).unwrap().count(),
        }
    }
}

#[test]
fn the_tier_c7_counters_and_peers_are_measured_and_the_record_comes_back() {
    let workplace = Workplace::new();
    let program = workplace.program();
    let arguments = ["gpu1", "--program", &program, "--python", "my python"];
    let answer = workplace.remote(&arguments, &[]);
    assert_eq!(answer.code, Some(0), "{}", answer.err);
    let record = "rec/20260101T000000Z-gpu";
    let expected = format!(
        "doctor|--python|my python
run|--full|--out|rec
sanitize|--run|{record}
profile|--run|{record}
peers|--run|{record}|--python|my python"
    );
    assert_eq!(answer.calls.join("\n"), expected);
    assert_eq!(answer.out, "target/compare/20260101T000000Z-gpu\n");
    assert_eq!(answer.record.as_deref(), Some("kept\n"));
}

#[test]
fn a_program_is_built_where_none_is_named() {
    let answer = Workplace::new().remote(&["gpu1", "--", "--stages", "5, 8"], &[]);
    let build = "requirebuild|--message-format=json-render-diagnostics|--quiet|--locked|-p|compare";
    assert_eq!(answer.calls[0], build);
    assert_eq!(answer.calls[2], "run|--stages|5, 8|--out|rec");
}

/// Fails unless steps that end with these codes make this one, and the record comes back.
#[track_caller]
fn expect_code(step_codes: &[(&str, &str)], code: i32) {
    let workplace = Workplace::new();
    let arguments = ["gpu1", "--program", &workplace.program()];
    let answer = workplace.remote(&arguments, step_codes);
    assert_eq!(answer.code, Some(code), "{}", answer.err);
    assert_eq!(answer.record.as_deref(), Some("kept\n"));
    assert_eq!(answer.kept_files, 0);
}

#[test]
fn a_step_that_fails_is_the_answer_before_one_that_is_undecided() {
    expect_code(&[("run_code", "1"), ("peers_code", "3")], 1);
    expect_code(&[("run_code", "3"), ("peers_code", "1")], 1);
    expect_code(&[("run_code", "0"), ("sanitize_code", "3")], 3);
    expect_code(&[("profile_code", "3"), ("doctor_code", "1")], 3);
}

#[test]
fn a_step_that_could_not_run_is_the_answer_before_one_that_is_undecided() {
    expect_code(&[("run_code", "2"), ("profile_code", "3")], 2);
    expect_code(&[("run_code", "1"), ("peers_code", "2")], 1);
}

#[test]
fn an_interrupted_step_is_the_answer() {
    expect_code(&[("run_code", "130"), ("peers_code", "0")], 130);
    expect_code(&[("run_code", "1"), ("profile_code", "130")], 130);
}

#[test]
fn a_run_that_leaves_no_record_is_an_error() {
    let workplace = Workplace::new();
    let arguments = ["gpu1", "--program", &workplace.program()];
    let answer = workplace.remote(&arguments, &[("NO_RECORD", "1"), ("run_code", "3")]);
    assert_eq!((answer.code, answer.record), (Some(2), None));
    assert!(answer.err.contains("no run came back"), "{}", answer.err);
}

/// Fails unless a command line is refused with these words, and nothing is called.
#[track_caller]
fn expect_usage_error(workplace: &Workplace, arguments: &[&str], words: &str) {
    let answer = workplace.remote(arguments, &[]);
    assert_eq!(answer.code, Some(2), "{}", answer.err);
    assert!(answer.err.contains(words), "{}", answer.err);
    assert_eq!(answer.calls, [] as [String; 0]);
}

#[test]
fn a_call_without_a_host_or_with_an_unknown_flag_is_answered_with_the_usage() {
    let workplace = Workplace::new();
    expect_usage_error(&workplace, &[], "usage:");
    expect_usage_error(&workplace, &["gpu1", "--slow"], "usage:");
}

#[test]
fn two_hosts_are_refused() {
    let workplace = Workplace::new();
    let arguments = ["gpu1", "gpu2", "--program", &workplace.program()];
    expect_usage_error(&workplace, &arguments, "one HOST, not two");
}

#[test]
fn a_flag_without_its_value_is_refused() {
    let workplace = Workplace::new();
    let python = ["gpu1", "--python"];
    expect_usage_error(&workplace, &python, "--python needs a value");
    let program = ["gpu1", "--program"];
    expect_usage_error(&workplace, &program, "--program needs a value");
}

#[test]
fn a_host_that_cannot_be_reached_is_named() {
    let workplace = Workplace::new();
    let arguments = ["gpu9", "--program", &workplace.program()];
    expect_usage_error(&workplace, &arguments, "gpu9 cannot be reached");
}

/// Fails unless a program that answers `elsewhere` is refused with these words.
#[track_caller]
fn expect_no_program(workplace: &Workplace, path: &str, words: &str) {
    let arguments = ["gpu1", "--program", path];
    let answer = workplace.remote(&arguments, &[("GREETING", "elsewhere")]);
    assert_eq!(answer.code, Some(2), "{path}: {}", answer.err);
    assert!(answer.err.contains(words), "{path}: {}", answer.err);
}

#[test]
fn a_program_that_is_none_exits_2() {
    let workplace = Workplace::new();
    let program = workplace.program();
    let elsewhere = format!("{program}/elsewhere");
    expect_no_program(&workplace, &elsewhere, "elsewhere is no program");
    expect_no_program(&workplace, &program, "answers 'elsewhere");
}
