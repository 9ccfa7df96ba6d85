//! The scripts that review a change, with programs in place of cargo, compare and gh that note how they are called.
#![forbid(unsafe_code)]

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Notes its call, and builds what notes its own.
const CARGO: &str = r#"#!/bin/sh
echo "cargo $* in ${PWD#"$HERE"/}" >> "$HERE/calls"
mkdir -p "$CARGO_TARGET_DIR/debug"
cp "$HERE/bin/compare" "$CARGO_TARGET_DIR/debug/compare"
"#;

/// Exits as told, `diff` with a file of three lines; of tables with the code in TABLES_CODE, or without any if there is none.
const COMPARE: &str = r#"#!/bin/sh
echo "$(basename "$0") $*" | sed "s|$HERE/||g" >> "$HERE/calls"
[ "$1" = diff ] || exit "${RUN_CODE:-0}"
if [ "$3" = HEAD ]; then
    [ -z "$OLD" ] || { echo "NO DATA: results/ of $2 is a log of records"; exit 3; }
    DIFF_CODE="${TABLES_CODE:-0}"
fi
while [ $# -gt 0 ]; do
    if [ "$1" = --out ]; then printf '<!-- attention-ladder: compare diff -->\n**verdict** by @someone\nrest\n' > "$2"; fi
    shift
done
exit "${DIFF_CODE:-0}"
"#;

/// Answers for a pull request with two comments, of which one is a comparison's. Shows the body that it is sent.
const GH: &str = r#"#!/bin/sh
case "$*" in
    *pulls/7*) echo "${AT:-abc}" ;;
    *--paginate*) [ -n "$NEW" ] || printf '41\tlooks good\n42\t<!-- attention-ladder: compare diff -->\n' ;;
    *) echo "gh $*" | sed 's/=@.*//'; cat "${7#body=@}" ;;
esac
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("compare/ lies in the root")
        .to_path_buf()
}

/// A checkout of two commits with the scripts in it.
struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        let program = |path: &str, text: &str| {
            let path = checkout.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        for script in ["scripts/review", ".ci/review", ".ci/comment"] {
            program(
                &format!("checkout/{script}"),
                &std::fs::read_to_string(root().join(script)).unwrap(),
            );
        }
        program("checkout/scripts/cuda-toolkit", "#!/bin/sh\n");
        program("checkout/.gitignore", "target\n");
        for (name, text) in [("cargo", CARGO), ("compare", COMPARE), ("gh", GH)] {
            program(&format!("bin/{name}"), text);
        }
        checkout.git(&["init", "--quiet", "--initial-branch", "main"]);
        checkout.git(&["add", "."]);
        checkout.git(&["commit", "--quiet", "-m", "base"]);
        checkout.git(&["commit", "--quiet", "--allow-empty", "-m", "head"]);
        checkout
    }

    fn path(&self, path: &str) -> PathBuf {
        // A temporary folder may be reached through a link, which the scripts resolve.
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn git(&self, arguments: &[&str]) -> String {
        let identity = [
            "-c",
            "user.name=t",
            "-c",
            "user.email=t@example.invalid",
            "-c",
            "commit.gpgsign=false",
        ];
        let folder = self.path("checkout");
        let output = Command::new("git")
            .arg("-C")
            .arg(folder)
            .args(identity)
            .args(arguments)
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// Runs a script. Returns its exit code, what it printed, and the calls that it made.
    fn run(&self, arguments: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
        let _ = std::fs::remove_file(self.path("calls"));
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let mut command = Command::new("bash");
        // Without the slash at its end, which joining an empty path leaves.
        let here = self.path("x").parent().unwrap().to_path_buf();
        command
            .current_dir(self.path("checkout"))
            .args(arguments)
            .env("PATH", path)
            .env("HERE", here);
        command
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("GITHUB_STEP_SUMMARY");
        let Output {
            status,
            stdout,
            stderr,
        } = command.envs(variables.iter().copied()).output().unwrap();
        let printed =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        let calls = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        (status.code().unwrap(), printed, calls)
    }
}

const BUILD_BASE: &str =
    "cargo build --quiet --locked --workspace --bin compare in checkout/target/review/base\n";
const BUILD_HEAD: &str = "cargo build --quiet --locked --workspace --bin compare in checkout\n";

/// The call that runs a side.
fn run_of(side: &str, record: &str, flags: &str) -> String {
    let place = format!("checkout/target/review/{record}");
    format!("compare-{side} {flags} --out {place} --report {place}/COMPARE.md\n")
}

/// The three calls of `compare diff` of two sides.
fn diffs(sides: &str, name: &str) -> String {
    let call = format!("compare-head diff {sides}");
    let out = format!("--out checkout/target/review/{name}");
    format!("{call} --format markdown {out}.md\n{call} --format json {out}.json\n{call}\n")
}

fn diffs_of_runs() -> String {
    diffs("target/review/base-record target/review/head", "diff")
}

/// Of the tables that are committed at both ends.
fn diffs_of_tables(checkout: &Checkout) -> String {
    let base = checkout.git(&["rev-parse", "HEAD^1"]);
    diffs(&format!("{base:.12} HEAD"), "tables")
}

#[test]
fn a_review_compares_runs_and_tables_of_base_and_head_and_keeps_the_bases_run() {
    let checkout = Checkout::new();
    let head = BUILD_HEAD.to_string()
        + &run_of("head", "head", "--backend emulated --quick")
        + &diffs_of_runs()
        + &diffs_of_tables(&checkout);
    let base =
        BUILD_BASE.to_string() + &run_of("base", "base-record", "--backend emulated --quick");
    let (code, printed, calls) = checkout.run(&["scripts/review", "HEAD^1"], &[]);
    assert_eq!((code, calls), (0, base + &head), "{printed}");
    let page = || std::fs::read_to_string(checkout.path("checkout/target/review/diff.md")).unwrap();
    let marker = "<!-- attention-ladder: compare diff -->\n";
    let one = "**verdict** by @someone\nrest\n";
    assert_eq!(page(), format!("{marker}{one}\n## Committed tables\n{one}"));
    assert_eq!(
        checkout.git(&["worktree", "list"]).lines().count(),
        1,
        "the base's work tree is gone"
    );
    assert_eq!(checkout.git(&["status", "--short"]), "");

    // A gate that fails on the head is for the comparison to say. The worse of both comparisons counts, and tables that the base
    // does not have do not.
    for (runs, tables, old, expected) in [
        ("1", "0", "", 1),
        ("0", "1", "", 1),
        ("3", "1", "", 1),
        ("1", "3", "", 1),
        ("0", "3", "", 3),
        ("1", "2", "", 2),
        ("0", "0", "1", 0),
        ("3", "0", "1", 3),
    ] {
        let variables = [
            ("RUN_CODE", "1"),
            ("DIFF_CODE", runs),
            ("TABLES_CODE", tables),
            ("OLD", old),
        ];
        let (code, printed, calls) =
            checkout.run(&["scripts/review", "HEAD^1", "--quick"], &variables);
        assert_eq!((code, &calls), (expected, &head), "{printed}");
        let says = "\nCommitted tables: NO DATA: results/ of";
        assert_eq!(page().contains(says), !old.is_empty(), "{}", page());
    }

    let (_, _, calls) = checkout.run(&["scripts/review", "HEAD^1", "--full"], &[]);
    assert!(
        calls.starts_with(BUILD_BASE),
        "a run of another tier is not used again: {calls}"
    );
}

#[test]
fn latencies_are_never_taken_from_another_session() {
    let checkout = Checkout::new();
    let flags = "--backend cuda --shapes mission --dtypes f16";
    let [base, head] = [
        run_of("base", "base-record", flags),
        run_of("head", "head", flags),
    ];
    let expected = format!("{BUILD_BASE}{base}{BUILD_HEAD}{head}{}", diffs_of_runs());
    for _ in 0..2 {
        let (code, printed, calls) = checkout.run(&["scripts/review", "main^1", "--latency"], &[]);
        assert_eq!((code, calls), (0, expected.clone()), "{printed}");
    }
}

#[test]
fn what_cannot_be_reviewed_is_wrong_usage() {
    let checkout = Checkout::new();
    let nothing: &[(&str, &str)] = &[];
    for (arguments, variables, says) in [
        (vec!["scripts/review"], nothing, "usage:"),
        (vec!["scripts/review", "HEAD", "--slow"], nothing, "usage:"),
        (
            vec!["scripts/review", "HEAD", "HEAD^1"],
            nothing,
            "one BASE, not two",
        ),
        (vec!["scripts/review", "nowhere"], nothing, "git fetch it"),
        (
            vec!["scripts/review", "HEAD^1"],
            &[("RUN_CODE", "2")],
            "compare cannot run on the base-record",
        ),
    ] {
        let (code, printed, _) = checkout.run(&arguments, variables);
        assert_eq!(code, 2, "{arguments:?}: {printed}");
        assert!(printed.contains(says), "{arguments:?}: {printed}");
    }
}

#[test]
fn the_hosted_check_passes_what_is_inconclusive_and_marks_latencies() {
    let checkout = Checkout::new();
    let variables = |code: &'static str| [("BASE", "HEAD^1"), ("NUMBER", "7"), ("DIFF_CODE", code)];
    for (code, exit) in [("0", 0), ("1", 1), ("3", 0)] {
        let (found, printed, _) = checkout.run(&[".ci/review", "--quick"], &variables(code));
        assert_eq!(found, exit, "{printed}");
        assert_eq!(printed.contains("::warning::"), code == "3", "{printed}");
        assert!(
            printed.contains("**verdict**"),
            "the summary has the comparison: {printed}"
        );
    }
    let read = |name: &str| {
        std::fs::read_to_string(checkout.path("checkout/target/review").join(name)).unwrap()
    };
    assert_eq!(read("number"), "7\n");
    checkout.run(&[".ci/review", "--latency"], &variables("0"));
    assert!(read("diff.md").starts_with("<!-- attention-ladder: compare diff latency -->\n"));
}

#[test]
fn a_comment_is_replaced_and_only_where_the_pull_request_is_what_was_reviewed() {
    let checkout = Checkout::new();
    let folder = checkout.path("checkout/left");
    std::fs::create_dir_all(&folder).unwrap();
    let comment = |number: &str, text: &str, more: &[(&str, &str)]| {
        std::fs::write(folder.join("number"), number).unwrap();
        std::fs::write(folder.join("diff.md"), text).unwrap();
        let given = [
            ("REPOSITORY", "o/r"),
            ("HEAD_SHA", "abc"),
            ("RUN_URL", "https://example.invalid/1"),
        ];
        let (code, printed, _) = checkout.run(&[".ci/comment", "left"], &[&given, more].concat());
        (code, printed)
    };
    let text = "<!-- attention-ladder: compare diff -->\n**verdict** by @someone\n";
    let body = "<!-- attention-ladder: compare diff -->\n_Written by the code of this pull request in [this \
                run](https://example.invalid/1)._\n\n**verdict** by @&#8203;someone\n";
    let patch = "gh api --silent --method PATCH repos/o/r/issues/comments/42 --field body\n"
        .to_string()
        + body;
    assert_eq!(comment("7\n", text, &[]), (0, patch));
    let post = "gh api --silent --method POST repos/o/r/issues/7/comments --field body\n"
        .to_string()
        + body;
    assert_eq!(comment("7\n", text, &[("NEW", "1")]), (0, post));

    let long = text.to_string() + &"line µ\n".repeat(20_000);
    let (code, printed) = comment("7\n", &long, &[]);
    assert!(
        code == 0
            && printed.len() < 65_536
            && printed.ends_with("The rest is in the summary of the run.\n")
    );

    for (number, text, more, code, says) in [
        ("7", text, [("AT", "def")], 0, "no comment: #7 is at def"),
        ("7/../8", text, [("AT", "abc")], 1, "names no pull request"),
        ("0", text, [("AT", "abc")], 1, "names no pull request"),
        (
            "7",
            "hello\n",
            [("AT", "abc")],
            1,
            "diff.md is no comparison",
        ),
    ] {
        let (found, printed) = comment(number, text, &more);
        assert_eq!(found, code, "{printed}");
        assert!(
            printed.contains(says) && !printed.contains("gh api"),
            "{printed}"
        );
    }
    std::fs::remove_file(folder.join("diff.md")).unwrap();
    let (code, printed, _) = checkout.run(&[".ci/comment", "left"], &[]);
    assert!(
        code == 0 && printed.contains("no comment: the review left no comparison"),
        "{printed}"
    );
}

#[test]
fn the_workflows_run_the_repositorys_own_scripts_and_nothing_else() {
    let mut commands = 0;
    for name in ["review.yml", "review-comment.yml"] {
        let text = std::fs::read_to_string(root().join(".github/workflows").join(name)).unwrap();
        for line in text
            .lines()
            .map(|line| line.trim().trim_start_matches("- "))
        {
            if let Some(command) = line.strip_prefix("run:") {
                let program = command.split_whitespace().next().unwrap_or_default();
                assert!(
                    program.starts_with(".ci/") && root().join(program).is_file(),
                    "{name}: {line}"
                );
                commands += 1;
            }
            // A version's tag, or a commit; never a branch.
            if let Some(action) = line.strip_prefix("uses:") {
                let (_, version) = action.split_once('@').unwrap_or_default();
                assert!(
                    version.starts_with('v') || version.len() == 40,
                    "{name}: {line}"
                );
            }
        }
        assert!(
            text.contains("\npermissions:"),
            "{name} states its permissions"
        );
        assert!(
            !text.contains("pull_request_target"),
            "{name}: code of a fork with a token that may write"
        );
    }
    assert_eq!(commands, 5);
    let review = std::fs::read_to_string(root().join(".github/workflows/review.yml")).unwrap();
    for script in [
        ".ci/run\n",
        ".ci/review --full\n",
        ".ci/review --latency\n",
        ".ci/deny advisories\n",
    ] {
        assert!(review.contains(&format!("run: {script}")), "{script}");
    }
}
