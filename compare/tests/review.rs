//! The scripts that review a change, with programs in place of cargo, compare and gh that note how they are called.
#![forbid(unsafe_code)]

#[path = "../src/git.rs"]
mod git;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Notes its call, with the commit and the toolkit that it finds, and builds what notes its own where a build for a named target
/// would.
const CARGO: &str = r#"#!/bin/sh
if [ "$1" = metadata ]; then
    echo '{"packages":[],"workspace_root":"x","target_directory":"'"$HERE"'/built here","version":1}'
    exit
fi
echo "cargo $* in ${PWD#"$HERE"/}: $(git log -1 --format=%s) $(ls -d .cuda)" >> "$HERE/calls"
[ -z "$BROKEN" ] || exit 101
program="$CARGO_TARGET_DIR/some-target/debug/compare"
mkdir -p "$(dirname "$program")"
cp "$HERE/bin/compare" "$program"
echo '{"reason":"compiler-artifact","target":{"name":"common"},"executable":null,"fresh":true}'
echo '{"reason":"compiler-artifact","target":{"name":"compare"},"executable":"'"$program"'","fresh":true}'
echo '{"reason":"build-finished","success":true}'
"#;

/// What an earlier build left where cargo builds by itself.
const STALE: &str = r#"#!/bin/sh
echo "stale $*" >> "$HERE/calls"
"#;

/// Says what its side's runs depend on as told; a base does not know `sources` by itself. Exits as told, `diff` with a file of two lines; without
/// one where it is told that the base has no tables and compares them alone.
const COMPARE: &str = r#"#!/bin/sh
if [ "$1" = sources ]; then
    case "$(basename "$0")" in
        compare-base) printf %b "$BASE_SOURCES" ;;
        compare-head) printf %b "$HEAD_SOURCES" ;;
    esac
    [ -n "$BASE_SOURCES" ]
    exit
fi
echo "$(basename "$0") $*" | sed "s|$HERE/||g" >> "$HERE/calls"
[ "$1" = diff ] || exit "${RUN_CODE:-0}"
if [ "$3" = HEAD ] && [ -n "$OLD" ]; then
    echo "NO DATA: $2 has neither runs nor tables"
    exit 3
fi
while [ $# -gt 0 ]; do
    if [ "$1" = --out ]; then printf '**verdict** by @someone\nrest\n' > "$2"; fi
    shift
done
exit "${DIFF_CODE:-0}"
"#;

/// Answers for two pull requests, and for comments of which one is of a review. Shows the body that it is sent.
const GH: &str = r#"#!/bin/sh
case "$*" in
    *pulls\?*) printf 'def\t6\n%s\t7\n' "${AT:-abc}" ;;
    *runs/9/jobs*) printf %b "$JOBS" ;;
    *--paginate*) [ -n "$NEW" ] || printf '41\tlooks good\n42\t<!-- attention-ladder: review -->\n' ;;
    *) echo "gh $*" | sed 's/=@.*//'; cat "${7#body=@}" ;;
esac
"#;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("compare/ lies in the root")
        .to_path_buf()
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A checkout of two commits with the scripts in it.
struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("of review ").tempdir();
        let checkout = Self(folder.unwrap());
        let program = |path: &str, text: &str| {
            let path = checkout.path(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, text).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        };
        for script in [
            "scripts/program",
            "scripts/review",
            ".ci/review",
            ".ci/comment",
        ] {
            program(&format!("checkout/{script}"), &read(root().join(script)));
        }
        program("checkout/scripts/cuda-toolkit", "#!/bin/sh\n");
        program("checkout/.gitignore", "target\n.cuda\n");
        program("checkout/.cuda/nvcc", "");
        program("checkout/target/debug/compare", STALE);
        for (name, text) in [("cargo", CARGO), ("compare", COMPARE), ("gh", GH)] {
            program(&format!("bin/{name}"), text);
        }
        checkout.git("init --quiet --initial-branch main");
        checkout.git("add .");
        checkout.git("commit --quiet -m base");
        checkout.git("commit --quiet --allow-empty -m head");
        checkout
    }

    fn path(&self, path: &str) -> PathBuf {
        // A temporary folder may be reached through a link, which the scripts resolve.
        self.0.path().canonicalize().unwrap().join(path)
    }

    fn git(&self, arguments: &str) -> String {
        let identity = "-c user.name=t -c user.email=t@example.invalid -c commit.gpgsign=false";
        let output = git::git(&self.path("checkout"))
            .args(identity.split(' ').chain(arguments.split(' ')))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "git {arguments}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8_lossy(&output.stdout).trim().to_string()
    }

    /// Runs a script. Returns its exit code, what it printed, and the calls that it made.
    fn run(&self, script: &str, variables: &[(&str, &str)]) -> (i32, String, String) {
        let _ = std::fs::remove_file(self.path("calls"));
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        // Without the slash at its end, which joining an empty path leaves.
        let here = self.path("x").parent().unwrap().to_path_buf();
        let Output {
            status,
            stdout,
            stderr,
        } = Command::new("bash")
            .current_dir(self.path("checkout"))
            .args(script.split(' '))
            .env("PATH", path)
            .env("HERE", here)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("GITHUB_STEP_SUMMARY")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let printed =
            String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr);
        let calls = std::fs::read_to_string(self.path("calls")).unwrap_or_default();
        (status.code().unwrap(), printed, calls)
    }
}

const BUILD: &str = "cargo build --message-format=json-render-diagnostics --quiet --locked --workspace --bin compare in checkout";

/// The builds of both sides.
fn builds() -> String {
    format!("{BUILD}/target/review/base: base .cuda\n{BUILD}: head .cuda\n")
}

fn run_of(side: &str, record: &str, flags: &str) -> String {
    let place = format!("checkout/target/review/{record}");
    format!("compare-{side} {flags} --out {place}\n")
}

fn diffs(sides: &str) -> String {
    format!("compare-head diff {sides} --out checkout/target/review/diff.md\n")
}

const RUNS: &str = "target/review/base-record target/review/head";

/// The tables that are committed at both ends.
fn tables(checkout: &Checkout) -> String {
    let base = checkout.git("rev-parse HEAD^1");
    format!("{base:.12} HEAD")
}

/// Of runs and tables in one comparison.
fn diffs_of_both(checkout: &Checkout) -> String {
    diffs(&format!("{RUNS} --tables {}", tables(checkout)))
}

#[test]
fn a_review_compares_runs_and_tables_of_base_and_head_and_keeps_the_bases_run() {
    let checkout = Checkout::new();
    let flags = "--backend emulated --quick";
    let base = run_of("base", "base-record", flags);
    let head = run_of("head", "head", flags) + &diffs_of_both(&checkout);
    let (code, printed, calls) = checkout.run("scripts/review HEAD^1", &[]);
    assert_eq!((code, calls), (0, builds() + &base + &head), "{printed}");
    let page = || read(checkout.path("checkout/target/review/diff.md"));
    let one = "**verdict** by @someone\nrest\n";
    let said = "Every stage is run on both sides: the base's program does not say what its runs depend on.\n";
    assert_eq!(page(), format!("{one}\n{said}"));
    assert_eq!(checkout.git("status --short"), "");

    // A gate that fails on the head is for the comparison to say, whose verdict on runs and tables is the only one.
    for (found, expected) in [("0", 0), ("1", 1), ("2", 2), ("3", 3)] {
        let variables = [("RUN_CODE", "1"), ("DIFF_CODE", found)];
        let (code, printed, calls) = checkout.run("scripts/review HEAD^1 --quick", &variables);
        assert_eq!((code, calls), (expected, builds() + &head), "{printed}");
        assert_eq!(page().matches("**verdict**").count(), 1, "{}", page());
    }

    let (_, _, calls) = checkout.run("scripts/review HEAD^1 --full", &[]);
    let base = run_of("base", "base-record", "--backend emulated");
    assert!(
        calls.contains(&base),
        "a run of another tier is not used again: {calls}"
    );
}

/// What a side says of itself: the program and three stages.
const SOURCES: &str = "program p\nstage0-a 0\nstage1-b 1\nstage2-c 2\n";

#[test]
fn only_the_stages_that_differ_are_run_and_the_others_are_named() {
    let checkout = Checkout::new();
    let head = SOURCES.replace("b 1", "b 9");
    let variables = [("BASE_SOURCES", SOURCES), ("HEAD_SOURCES", &head)];
    let (code, printed, calls) = checkout.run("scripts/review HEAD^1 --full", &variables);
    let flags = "--backend emulated --stages stage1-b";
    let base = run_of("base", "base-record", flags);
    let rest = run_of("head", "head", flags) + &diffs_of_both(&checkout);
    assert_eq!((code, calls), (0, builds() + &base + &rest), "{printed}");
    let says = "Run on both sides: stage1-b. Left out, since neither kernel, headers, flags nor claims differ, nor the kernels that \
                they claim to beat: stage0-a, stage2-c.\n";
    assert!(printed.contains(says), "{printed}");
    let page = read(checkout.path("checkout/target/review/diff.md"));
    assert!(page.contains(says), "{page}");

    // The base's run stays while the same stages differ.
    let (_, _, calls) = checkout.run("scripts/review HEAD^1 --full", &variables);
    assert_eq!(calls, builds() + &rest);
    let head = SOURCES.replace("a 0", "a 9").replace("c 2", "c 9");
    let variables = [("BASE_SOURCES", SOURCES), ("HEAD_SOURCES", &head)];
    let (_, _, calls) = checkout.run("scripts/review HEAD^1 --full", &variables);
    let flags = "--backend emulated --stages stage0-a,stage2-c";
    let base = run_of("base", "base-record", flags);
    assert!(calls.contains(&base), "{calls}");
}

#[test]
fn where_no_stage_differs_nothing_is_run_and_the_tables_are_compared() {
    let checkout = Checkout::new();
    let variables = [("BASE_SOURCES", SOURCES), ("HEAD_SOURCES", SOURCES)];
    let (code, printed, calls) = checkout.run("scripts/review HEAD^1", &variables);
    let expected = builds() + &diffs(&tables(&checkout));
    assert_eq!((code, calls), (0, expected), "{printed}");
    let page = read(checkout.path("checkout/target/review/diff.md"));
    let says = "\nNo stage is run: kernels, headers, flags, claims and the program are those of the base.\n";
    assert!(page.ends_with(says), "{page}");

    // A base without tables is no failure of the change.
    let variables = [variables[0], variables[1], ("OLD", "1")];
    let (code, printed, _) = checkout.run("scripts/review HEAD^1", &variables);
    assert_eq!(code, 0, "{printed}");
    let page = read(checkout.path("checkout/target/review/diff.md"));
    assert!(page.starts_with("Committed tables: NO DATA: "), "{page}");
    assert!(page.ends_with(says), "{page}");
}

#[test]
fn every_stage_is_run_where_what_runs_them_differs_or_one_asks() {
    let checkout = Checkout::new();
    let program = SOURCES.replace("program p", "program q");
    let longer = format!("{SOURCES}stage3-d 3\n");
    for (head, flag, why) in [
        (&*program, "", "common, the emulator or compare differs"),
        (&longer, "", "the ladder has other stages"),
        (SOURCES, " --all", "--all"),
    ] {
        let variables = [("BASE_SOURCES", SOURCES), ("HEAD_SOURCES", head)];
        let script = format!("scripts/review HEAD^1 --full{flag}");
        let (_, printed, calls) = checkout.run(&script, &variables);
        let says = format!("==> Every stage is run on both sides: {why}.\n");
        assert!(printed.contains(&says), "{printed}");
        let head = run_of("head", "head", "--backend emulated");
        assert!(calls.contains(&head), "{calls}");
    }
}

/// Files that are the same keep their times, so that cargo builds nothing for them again.
#[test]
fn the_bases_checkout_stays_and_takes_only_what_another_base_changes() {
    let checkout = Checkout::new();
    let at = |name: &str| checkout.path(&format!("checkout/target/review/base/{name}"));
    checkout.run("scripts/review HEAD^1", &[]);
    let written = |name: &str| std::fs::metadata(at(name)).unwrap().modified().unwrap();
    let before = written("scripts/review");
    std::fs::write(checkout.path("checkout/kernel.cu"), "new").unwrap();
    checkout.git("add kernel.cu");
    checkout.git("commit --quiet -m third");
    std::fs::write(at("left-over"), "").unwrap();
    checkout.git("branch side");
    let (_, printed, calls) = checkout.run("scripts/review HEAD", &[]);
    assert!(
        calls.starts_with(&format!("{BUILD}/target/review/base: third .cuda\n")),
        "{printed}"
    );
    assert_eq!(read(at("kernel.cu")), "new");
    assert!(!at("left-over").exists());
    assert_eq!(written("scripts/review"), before);
    // A branch that somebody checked out there does not move.
    let base = at("").to_str().unwrap().to_string();
    let side = checkout.git("rev-parse side");
    let switched = git::git(Path::new(&base))
        .args(["switch", "--quiet", "side"])
        .status();
    assert!(switched.unwrap().success());
    checkout.run("scripts/review HEAD^1", &[]);
    assert_eq!(checkout.git("rev-parse side"), side);
}

#[test]
fn a_folder_where_the_bases_checkout_should_be_is_replaced() {
    let checkout = Checkout::new();
    let inside = checkout.path("checkout/target/review/base/scripts");
    std::fs::create_dir_all(inside).unwrap();
    let head = checkout.git("rev-parse HEAD");
    let (code, printed, _) = checkout.run("scripts/review HEAD^1", &[]);
    assert_eq!(code, 0, "{printed}");
    assert_eq!(checkout.git("rev-parse HEAD"), head);
    assert_eq!(checkout.git("rev-parse --abbrev-ref HEAD"), "main");
}

#[test]
fn latencies_are_never_taken_from_another_session() {
    let checkout = Checkout::new();
    let flags = "--backend cuda --shapes mission --dtypes f16";
    let [base, head] = [
        run_of("base", "base-record", flags),
        run_of("head", "head", flags),
    ];
    let expected = format!("{}{base}{head}{}", builds(), diffs(RUNS));
    // All stages, although none differs: they are the control.
    let variables = [("BASE_SOURCES", SOURCES), ("HEAD_SOURCES", SOURCES)];
    for _ in 0..2 {
        let (code, printed, calls) = checkout.run("scripts/review main^1 --latency", &variables);
        assert_eq!((code, calls), (0, expected.clone()), "{printed}");
    }
}

/// What an earlier build left is not what is reviewed.
#[test]
fn a_build_that_fails_is_no_review() {
    let checkout = Checkout::new();
    let (code, printed, calls) = checkout.run("scripts/review HEAD^1", &[("BROKEN", "1")]);
    assert_eq!(code, 2, "{printed}");
    assert!(printed.contains("the build in "), "{printed}");
    assert!(
        !calls.contains("compare-") && !calls.contains("stale"),
        "{calls}"
    );
}

#[test]
fn what_cannot_be_reviewed_is_wrong_usage() {
    let checkout = Checkout::new();
    for (arguments, code_of_run, says) in [
        ("", "0", "usage:"),
        (" HEAD --slow", "0", "usage:"),
        (" HEAD HEAD^1", "0", "one BASE, not two"),
        (" nowhere", "0", "git fetch it"),
        (" HEAD^1", "2", "compare cannot run on the base-record"),
    ] {
        let script = format!("scripts/review{arguments}");
        let (code, printed, _) = checkout.run(&script, &[("RUN_CODE", code_of_run)]);
        assert_eq!(code, 2, "{arguments}: {printed}");
        assert!(printed.contains(says), "{arguments}: {printed}");
    }
}

#[test]
fn the_hosted_check_passes_what_is_inconclusive_and_compares_with_where_the_commit_left_its_base() {
    let checkout = Checkout::new();
    for (code, exit) in [("0", 0), ("1", 1), ("3", 0)] {
        let variables = [("DIFF_CODE", code)];
        let (found, printed, _) = checkout.run(".ci/review HEAD^1 --quick", &variables);
        assert_eq!(found, exit, "{printed}");
        assert_eq!(printed.contains("::warning::"), code == "3", "{printed}");
        assert!(
            printed.contains("**verdict**"),
            "the summary has the comparison: {printed}"
        );
    }
    // A branch that went on since.
    let base = checkout.git("rev-parse HEAD^1");
    checkout.git("checkout --quiet -b other HEAD^1");
    checkout.git("commit --quiet --allow-empty -m later");
    checkout.git("checkout --quiet main");
    checkout.run(".ci/review other --full", &[]);
    let of = read(checkout.path("checkout/target/review/base.of"));
    assert_eq!(of, format!("{base} --backend emulated\n"));
}

/// The comment of a run of `kind` that left these files, `(name, text)`: exit code, and what is printed.
fn commented(kind: &str, left: &[(&str, &str)], more: &[(&str, &str)]) -> (i32, String) {
    let checkout = Checkout::new();
    let folder = checkout.path("left");
    std::fs::create_dir_all(&folder).unwrap();
    for (name, text) in left {
        std::fs::write(folder.join(name), text).unwrap();
    }
    let given = [
        ("REPOSITORY", "o/r"),
        ("HEAD_SHA", "abc"),
        ("RUN_ID", "9"),
        ("GITHUB_SERVER_URL", "https://example.invalid"),
        ("LEFT", folder.to_str().unwrap()),
    ];
    let (code, printed, _) = checkout.run(&format!(".ci/comment {kind}"), &[&given, more].concat());
    (code, printed)
}

const DIFF: &str = "**verdict** by @someone\n";

/// The comment's head, and what follows it.
fn body(kind: &str, rest: &str) -> String {
    format!(
        "<!-- attention-ladder: {kind} -->\n_Of abc. Written by the code of this pull request in [this \
         run](https://example.invalid/o/r/actions/runs/9)._\n\n{rest}"
    )
}

#[test]
fn a_comment_names_its_commit_and_replaces_the_one_of_its_kind() {
    let patch = "gh api --silent --method PATCH repos/o/r/issues/comments/42 --field body\n";
    let post = "gh api --silent --method POST repos/o/r/issues/7/comments --field body\n";
    let verdict = "\n**verdict** by @&#8203;someone\n";
    let left = [("diff.md", DIFF)];
    for (kind, more, call) in [
        ("review", [("NEW", "")], patch),
        ("review", [("NEW", "1")], post),
        ("latency", [("NEW", "")], post),
    ] {
        let expected = call.to_string() + &body(kind, verdict);
        assert_eq!(commented(kind, &left, &more), (0, expected));
    }
    let (code, printed) = commented("review", &left, &[("AT", "123")]);
    let says = "no comment: no open pull request is at abc\n";
    assert_eq!((code, printed.as_str()), (0, says));
    let long = DIFF.to_string() + &"line µ\n".repeat(20_000);
    let (code, printed) = commented("review", &[("diff.md", &long)], &[]);
    assert!(
        code == 0
            && printed.len() < 65_536
            && printed.ends_with("The rest is in the summary of the run.\n")
    );
}

#[test]
fn a_comment_says_what_failed_and_that_a_later_commit_has_no_comparison() {
    let call = "gh api --silent --method PATCH repos/o/r/issues/comments/42 --field body\n";
    let failed = [("JOBS", "- **Failed:** gates\n")];
    let step = "- **The step of .ci/run that failed:** cargo test @&#8203;all\n";
    let left = [("failed", "cargo test @all\nmore\n")];
    let none = "No comparison: the run ended before there was one.\n";
    let expected = format!(
        "{call}{}",
        body("review", &format!("{}{step}\n{none}", failed[0].1))
    );
    assert_eq!(commented("review", &left, &failed), (0, expected));
    let left = [left[0], ("diff.md", DIFF)];
    let (_, printed) = commented("review", &left, &failed);
    assert!(
        printed.contains(step) && printed.contains("**verdict**"),
        "{printed}"
    );
}

#[test]
fn the_step_that_fails_is_left_for_the_comment() {
    let checkout = Checkout::new();
    let script = read(root().join(".ci/run"));
    let (functions, _) = script.split_once("\nstep \"tools\"").unwrap();
    let folder = checkout.path("checkout");
    std::fs::write(
        folder.join(".ci/run"),
        format!("{functions}\nstep 'a b' false\n"),
    )
    .unwrap();
    let (code, printed, _) = checkout.run(".ci/run", &[]);
    assert_eq!(code, 1, "{printed}");
    let left = read(folder.join("target/review/failed"));
    assert_eq!(left, "a b\n");
}

/// The values of a workflow with their paths, `jobs.gates.steps.-.run`, as far as these files use YAML.
fn flat(name: &str) -> Vec<(String, String)> {
    let text = read(root().join(".github/workflows").join(name));
    let (mut open, mut found): (Vec<(usize, &str)>, _) = (vec![], vec![]);
    for line in text.lines().map(|line| line.split(" #").next().unwrap()) {
        let words = line.trim_start_matches([' ', '-']);
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let (indent, dash) = (line.len() - words.len(), line.find("- "));
        let is_item = dash.is_some_and(|dash| dash < indent);
        open.retain(|(other, _)| *other < if is_item { indent - 2 } else { indent });
        if is_item {
            open.push((indent - 2, "-"));
        }
        let (key, value) = words.split_once(':').unwrap_or(("", words));
        open.push((indent, key));
        let path: Vec<&str> = open.iter().map(|(_, key)| *key).collect();
        found.push((path.join("."), value.trim().to_string()));
    }
    found
}

const WORKFLOWS: [&str; 4] = [
    "review.yml",
    "review-comment.yml",
    "latency.yml",
    "advisories.yml",
];

/// All values at `path` of a workflow.
fn values(workflow: &str, path: &str) -> Vec<String> {
    let all = flat(workflow).into_iter();
    all.filter(|(at, _)| at == path)
        .map(|(_, value)| value)
        .collect()
}

#[test]
fn the_workflows_run_the_repositorys_own_scripts_and_nothing_else() {
    let mut commands = Vec::new();
    for name in WORKFLOWS {
        let all = flat(name);
        assert!(all.iter().any(|(path, _)| path == "permissions"), "{name}");
        for (path, value) in &all {
            if path.ends_with(".run") {
                commands.push(value.clone());
            }
            // A commit: tags move.
            if path.ends_with(".uses") {
                let (_, commit) = value.split_once('@').unwrap_or_default();
                let is_hex = commit.chars().all(|c| c.is_ascii_hexdigit());
                assert!(commit.len() == 40 && is_hex, "{name}: {value}");
            }
            // A fork's code with a token that may write; a label, which clears a red check of the same name.
            let is_open = path == "on.pull_request_target"
                || path.contains("types") && value.contains("label");
            assert!(!is_open, "{name}: {path}");
        }
    }
    commands.sort();
    let expected = [
        "'[[ \"$COMMIT\" =~ ^[0-9a-f]{40}$ ]]'",
        ".ci/comment latency",
        ".ci/comment review",
        ".ci/review \"$BRANCH\" --latency",
        ".ci/review HEAD^1 --full",
        ".ci/run",
        ".ci/tool cargo deny --locked check --hide-inclusion-graph advisories",
    ];
    assert_eq!(commands, expected);
}

/// A request's jobs are skipped on no event of a request, since a skipped check counts as passed. A hosted runner promises 14 GB:
/// PyTorch without CUDA, and the base's build on another disk than the tests'.
#[test]
fn every_change_is_checked_and_main_too_and_jobs_fit_the_disk_and_download_once() {
    for name in ["review.yml", "advisories.yml"] {
        for event in ["on.pull_request", "on.push", "on.merge_group"] {
            assert_eq!(values(name, event), [""], "{name}: {event}");
        }
        assert_eq!(values(name, "on.push.branches"), ["[main]"]);
        assert!(values(name, "concurrency.group")[0].contains("pull_request.number"));
    }
    assert_eq!(values("advisories.yml", "on.schedule.-.cron").len(), 1);
    assert_eq!(values("review.yml", "jobs.gates.if"), [""; 0]);
    for (path, value) in [
        ("compare.if", "github.event_name == 'pull_request'"),
        (
            "gates.env.PIP_EXTRA_INDEX_URL",
            "https://download.pytorch.org/whl/cpu",
        ),
        ("gates.steps.-.run", ".ci/run"),
        ("compare.steps.-.run", ".ci/review HEAD^1 --full"),
    ] {
        assert_eq!(
            values("review.yml", &format!("jobs.{path}")),
            [value],
            "{path}"
        );
    }
    let keys = values("review.yml", "jobs.gates.steps.-.with.key").concat();
    for list in [
        "Cargo.lock",
        "scripts/cuda-toolkit.txt",
        "scripts/python.txt",
    ] {
        assert!(keys.contains(&format!("hashFiles('{list}')")), "{keys}");
        assert!(root().join(list).is_file(), "{list}");
    }
}

/// A pull request cannot change the workflow that a maintainer starts, and a label starts none.
#[test]
fn a_gpu_runs_what_a_maintainer_named_by_its_commit() {
    let is_on_gpu = |name: &&str| {
        let mut all = flat(name).into_iter();
        all.any(|(_, value)| value.contains("self-hosted"))
    };
    let gpus = Vec::from_iter(WORKFLOWS.into_iter().filter(is_on_gpu));
    assert_eq!(gpus, ["latency.yml"]);
    let mut paths = Vec::from_iter(flat("latency.yml").into_iter().map(|(path, _)| path));
    paths.retain(|path| path.starts_with("on.") && path.matches('.').count() == 1);
    assert_eq!(paths, ["on.workflow_dispatch"]);
    let only = values("latency.yml", "jobs.latency.if");
    assert!(only[0].contains("default_branch"), "{only:?}");
    let checkout = values("latency.yml", "jobs.latency.steps.-.with.ref");
    assert_eq!(checkout, ["${{ inputs.commit }}"]);
    // A third commit cancels no second one that waits.
    let group = values("latency.yml", "concurrency.group");
    assert_eq!(group, ["latency-${{ inputs.commit }}"]);
}

#[test]
fn one_toolchain_checks_the_workspace() {
    let pinned = read(root().join("rust-toolchain.toml"));
    assert!(pinned.contains("channel = \"1.") && pinned.contains("[\"rustfmt\", \"clippy\"]"));
}
