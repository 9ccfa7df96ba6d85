//! `scripts/remote` with a shell in place of ssh, and a program in place of compare that notes how it is called.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// What reaches the host: it is called with the host and one command line.
const SHELL: &str = r#"#!/bin/sh
[ "$1" = gpu1 ] || { echo "no such host: $1" >&2; exit 255; }
[ -z "$GREETING" ] || echo "$GREETING"
shift
exec sh -c "$*"
"#;

/// Also cargo, which builds itself where a build for a named target would. `run` leaves a record; every step exits as told.
const COMPARE: &str = r#"#!/bin/sh
(IFS='|'; echo "$ATTENTION_CUDA$*" >> "$HERE/calls")
step="$1"
if [ "$step" = build ]; then
    mkdir -p "$HERE/some-target" && cp "$0" "$HERE/some-target/compare"
    echo '{"reason":"compiler-artifact","executable":"'"$HERE"'/some-target/compare"}'
fi
if [ "$step" = run ] && [ -z "$NO_RECORD" ]; then mkdir -p rec/20260101T000000Z-gpu; echo kept > rec/20260101T000000Z-gpu/session.json; fi
eval "exit \${${step}_code:-0}"
"#;

/// What an earlier build left where cargo builds by itself.
const STALE: &str = "#!/bin/sh\necho stale >> \"$HERE/calls\"\n";

struct Answer {
    code: Option<i32>,
    out: String,
    err: String,
    calls: Vec<String>,
    record: Option<String>,
    /// Files that the host keeps.
    left: usize,
}

/// `words` are apart by `|`, as in what is called; PROGRAM is one that was built before.
fn remote(words: &str, set: &[(&str, &str)]) -> Answer {
    let here = tempfile::Builder::new().prefix("of remote ").tempdir();
    let here = here.unwrap();
    let program = |name: &str, text: &str| {
        let path = here.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    };
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let script = std::fs::read_to_string(root.join("scripts/remote")).unwrap();
    let script = program("checkout/scripts/remote", &script);
    // REMOTE_SHELL is a command with its flags, apart by spaces.
    program("bin/shell", SHELL);
    program("checkout/target/debug/compare", STALE);
    let built_by_cargo = std::fs::read_to_string(root.join("scripts/program")).unwrap();
    program("checkout/scripts/program", &built_by_cargo);
    let built = program("built before/compare", COMPARE);
    let built = built.to_str().unwrap();
    let cargo = program("bin/cargo", COMPARE);
    let there = here.path().join("there");
    std::fs::create_dir(&there).unwrap();
    let words = words.replace("PROGRAM", built);
    let path = format!(
        "{}:{}",
        cargo.parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let output = Command::new("bash")
        .arg(script)
        .args(words.split('|').filter(|word| !word.is_empty()))
        .env("HERE", here.path())
        .env("TMPDIR", &there)
        .env("PATH", path)
        .env_remove("ATTENTION_CUDA")
        .env("REMOTE_SHELL", "shell")
        .env_remove("CARGO_TARGET_DIR")
        .envs(set.iter().copied())
        .output()
        .unwrap();
    let read = |name: &str| std::fs::read_to_string(here.path().join(name)).ok();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Answer {
        code: output.status.code(),
        out: text(&output.stdout),
        err: text(&output.stderr),
        calls: read("calls")
            .unwrap_or_default()
            .lines()
            .map(String::from)
            .collect(),
        record: read("checkout/target/compare/20260101T000000Z-gpu/session.json"),
        left: std::fs::read_dir(there).unwrap().count(),
    }
}

#[test]
fn the_tier_c7_counters_and_peers_are_measured_and_the_record_comes_back() {
    let answer = remote("gpu1|--program|PROGRAM|--python|my python", &[]);
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
    let built = remote("gpu1|--|--stages|5, 8", &[]);
    let build = "requirebuild|--message-format=json-render-diagnostics|--quiet|--locked|-p|compare";
    assert_eq!(built.calls[0], build);
    assert_eq!(built.calls[2], "run|--stages|5, 8|--out|rec");
}

#[test]
fn the_worst_step_is_the_answer_and_the_record_comes_back_all_the_same() {
    for (set, code) in [
        ([("run_code", "1"), ("peers_code", "3")], 1),
        ([("run_code", "0"), ("sanitize_code", "3")], 3),
        ([("run_code", "130"), ("peers_code", "0")], 130),
        ([("run_code", "3"), ("peers_code", "1")], 1),
        ([("run_code", "1"), ("peers_code", "2")], 1),
        ([("run_code", "2"), ("profile_code", "3")], 2),
        ([("run_code", "1"), ("profile_code", "130")], 130),
        ([("profile_code", "3"), ("doctor_code", "1")], 3),
    ] {
        let answer = remote("gpu1|--program|PROGRAM", &set);
        assert_eq!(answer.code, Some(code), "{set:?}: {}", answer.err);
        assert_eq!(answer.record.as_deref(), Some("kept\n"), "{set:?}");
        assert_eq!(answer.left, 0, "{set:?}");
    }
    let set = [("NO_RECORD", "1"), ("run_code", "3")];
    let none = remote("gpu1|--program|PROGRAM", &set);
    assert_eq!((none.code, none.record), (Some(2), None));
    assert!(none.err.contains("no run came back"), "{}", none.err);
}

#[test]
fn wrong_usage_exits_2_and_says_what_is_wrong() {
    for (words, says) in [
        ("", "usage:"),
        ("gpu1|gpu2|--program|PROGRAM", "one HOST, not two"),
        ("gpu1|--slow", "usage:"),
        ("gpu1|--python", "--python needs a value"),
        ("gpu1|--program", "--program needs a value"),
        ("gpu9|--program|PROGRAM", "gpu9 cannot be reached"),
    ] {
        let answer = remote(words, &[]);
        assert_eq!(answer.code, Some(2), "{words:?}: {}", answer.err);
        assert!(answer.err.contains(says), "{words:?}: {}", answer.err);
        assert_eq!(answer.calls, [] as [String; 0], "{words:?}");
    }
    for (program, says) in [
        ("PROGRAM/elsewhere", "elsewhere is no program"),
        ("PROGRAM", "answers 'elsewhere"),
    ] {
        let words = format!("gpu1|--program|{program}");
        let answer = remote(&words, &[("GREETING", "elsewhere")]);
        assert_eq!(answer.code, Some(2), "{program}: {}", answer.err);
        assert!(answer.err.contains(says), "{program}: {}", answer.err);
    }
}
