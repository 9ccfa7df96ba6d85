//! `scripts/remote` with a shell in place of ssh, and a program in place of compare that notes how
//! it is called.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
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
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
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

#[test]
fn the_worst_step_is_the_answer_and_the_record_comes_back_all_the_same() {
    for (variables, code) in [
        ([("run_code", "1"), ("peers_code", "3")], 1),
        ([("run_code", "0"), ("sanitize_code", "3")], 3),
        ([("run_code", "130"), ("peers_code", "0")], 130),
        ([("run_code", "3"), ("peers_code", "1")], 1),
        ([("run_code", "1"), ("peers_code", "2")], 1),
        ([("run_code", "2"), ("profile_code", "3")], 2),
        ([("run_code", "1"), ("profile_code", "130")], 130),
        ([("profile_code", "3"), ("doctor_code", "1")], 3),
    ] {
        let workplace = Workplace::new();
        let arguments = ["gpu1", "--program", &workplace.program()];
        let answer = workplace.remote(&arguments, &variables);
        assert_eq!(answer.code, Some(code), "{variables:?}: {}", answer.err);
        assert_eq!(answer.record.as_deref(), Some("kept\n"), "{variables:?}");
        assert_eq!(answer.kept_files, 0, "{variables:?}");
    }
}

#[test]
fn a_run_that_leaves_no_record_is_an_error() {
    let workplace = Workplace::new();
    let arguments = ["gpu1", "--program", &workplace.program()];
    let answer = workplace.remote(&arguments, &[("NO_RECORD", "1"), ("run_code", "3")]);
    assert_eq!((answer.code, answer.record), (Some(2), None));
    assert!(answer.err.contains("no run came back"), "{}", answer.err);
}

#[test]
fn wrong_usage_exits_2_and_says_what_is_wrong() {
    let workplace = Workplace::new();
    let program = workplace.program();
    for (arguments, words) in [
        (&[][..], "usage:"),
        (
            &["gpu1", "gpu2", "--program", &program],
            "one HOST, not two",
        ),
        (&["gpu1", "--slow"], "usage:"),
        (&["gpu1", "--python"], "--python needs a value"),
        (&["gpu1", "--program"], "--program needs a value"),
        (&["gpu9", "--program", &program], "gpu9 cannot be reached"),
    ] {
        let answer = workplace.remote(arguments, &[]);
        assert_eq!(answer.code, Some(2), "{arguments:?}: {}", answer.err);
        assert!(answer.err.contains(words), "{arguments:?}: {}", answer.err);
        assert_eq!(answer.calls, [] as [String; 0], "{arguments:?}");
    }
}

#[test]
fn a_program_that_is_none_exits_2() {
    let workplace = Workplace::new();
    let program = workplace.program();
    for (path, words) in [
        (format!("{program}/elsewhere"), "elsewhere is no program"),
        (program, "answers 'elsewhere"),
    ] {
        let arguments = ["gpu1", "--program", &path];
        let answer = workplace.remote(&arguments, &[("GREETING", "elsewhere")]);
        assert_eq!(answer.code, Some(2), "{path}: {}", answer.err);
        assert!(answer.err.contains(words), "{path}: {}", answer.err);
    }
}
