//! The scripts that review a change, with programs in place of cargo, compare and gh that note how
//! they are called.
#![forbid(unsafe_code)]

#[path = "../src/git.rs"]
mod git;

use kernel_build::testing::write_program;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program in place of cargo. It notes its call, with the commit and the toolkit that it finds,
/// and builds what notes its own where a build for a named target would.
const CARGO: &str = r#"#!/bin/sh
target="${CARGO_TARGET_DIR:-$PWD/target}"
echo "cargo $* in ${PWD#"$HERE"/}: $(git log -1 --format=%s) $(ls -d .cuda) to ${target#"$HERE"/}" >> "$HERE/calls"
[ -z "$BROKEN" ] || exit 101
program="$target/some-target/debug/compare"
mkdir -p "$(dirname "$program")"
cp "$HERE/bin/compare" "$program"
reason='"reason":"compiler-artifact"'
echo "{$reason"',"target":{"name":"common"},"executable":null,"fresh":true}'
echo "{$reason"',"target":{"name":"compare"},"executable":"'"$program"'","fresh":true}'
echo '{"reason":"build-finished","success":true}'
"#;

/// A program that an earlier build left where cargo builds by itself.
const STALE: &str = r#"#!/bin/sh
echo "stale $*" >> "$HERE/calls"
"#;

/// A program in place of compare. It prints its side's terms, unless the test says that it is too old,
/// and what its side's runs depend on as the test says; a base does not know `sources` by itself. It exits as the test says, `diff` with a file of two lines;
/// without one where the test says that the base has no tables and compares them alone.
const COMPARE: &str = r#"#!/bin/sh
if [ "$1" = sources ]; then
    case "$(basename "$0")" in
        compare-base) printf %b "$BASE_SOURCES" ;;
        compare-head) printf %b "$HEAD_SOURCES" ;;
    esac
    [ -n "$BASE_SOURCES" ]
    exit
fi
if [ "$1" = terms ]; then
    [ -z "$NO_TERMS" ] || exit 2
    echo '{}'
    exit
fi
echo "$(basename "$0") $*" | sed "s|$HERE/||g" >> "$HERE/calls"
[ "$1" = diff ] || exit "${RUN_CODE:-0}"
if [ "$3" = HEAD ] && [ -n "$OLD" ]; then
    echo "not measured: $2 has neither runs nor tables"
    exit 3
fi
while [ $# -gt 0 ]; do
    if [ "$1" = --out ]; then printf '**verdict** by @someone\nrest\n' > "$2"; fi
    shift
done
exit "${DIFF_CODE:-0}"
"#;

/// A program in place of gh. It answers for two pull requests, and for comments of which one is of
/// a review, and shows the body that it is sent.
const GH: &str = r#"#!/bin/sh
case "$*" in
    *pulls\?*) printf 'def\t6\n%s\t7\n' "${AT:-abc}" ;;
    *runs/9/jobs*) printf %b "$JOBS" ;;
    *--paginate*)
        [ -n "$NEW" ] ||
            printf '%s\t%s\n' 41 'looks good' 42 '<!-- attention-ladder: review -->' ;;
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
        for script in [
            "scripts/program",
            "scripts/review",
            ".ci/review",
            ".ci/comment",
        ] {
            checkout.add_program(&format!("checkout/{script}"), &read(root().join(script)));
        }
        checkout.add_program("checkout/scripts/cuda-toolkit", "#!/bin/sh\n");
        checkout.add_program("checkout/.gitignore", "target\n.cuda\n");
        checkout.add_program("checkout/.cuda/nvcc", "");
        checkout.add_program("checkout/target/debug/compare", STALE);
        for (name, text) in [("cargo", CARGO), ("compare", COMPARE), ("gh", GH)] {
            checkout.add_program(&format!("bin/{name}"), text);
        }
        checkout.git(&["init", "--quiet", "--initial-branch", "main"]);
        checkout.git(&["add", "."]);
        checkout.git(&["commit", "--quiet", "-m", "base"]);
        checkout.git(&["commit", "--quiet", "--allow-empty", "-m", "head"]);
        checkout
    }

    fn add_program(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        write_program(&path, text).unwrap();
    }

    fn path(&self, path: &str) -> PathBuf {
        // A temporary folder may be reached through a link, which the scripts resolve.
        self.0.path().canonicalize().unwrap().join(path)
    }

    /// Runs git in the checkout and returns what it prints.
    fn git(&self, arguments: &[&str]) -> String {
        let output = git::git(&self.path("checkout"))
            .args(["-c", "user.name=t", "-c", "user.email=t@example.invalid"])
            .args(["-c", "commit.gpgsign=false"])
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

    fn run(&self, script: &[&str], variables: &[(&str, &str)]) -> ScriptRun {
        let _ = std::fs::remove_file(self.path("calls"));
        let path = format!(
            "{}:{}",
            self.path("bin").display(),
            std::env::var("PATH").unwrap()
        );
        // Without the slash at its end, which joining an empty path leaves.
        let here = self.path("x").parent().unwrap().to_path_buf();
        let output = Command::new("bash")
            .current_dir(self.path("checkout"))
            .args(script)
            .env("PATH", path)
            .env("HERE", here)
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("GITHUB_STEP_SUMMARY")
            .envs(variables.iter().copied())
            .output()
            .unwrap();
        let printed = [output.stdout, output.stderr].concat();
        ScriptRun {
            code: output.status.code().unwrap(),
            printed: String::from_utf8_lossy(&printed).into_owned(),
            calls: std::fs::read_to_string(self.path("calls")).unwrap_or_default(),
        }
    }

    /// Reviews the head against `base`, with these flags.
    fn review(&self, base: &str, flags: &[&str], variables: &[(&str, &str)]) -> ScriptRun {
        self.run(&[&["scripts/review", base], flags].concat(), variables)
    }

    /// Returns the comparison that a review has written.
    fn page(&self) -> String {
        read(self.path("checkout/target/review/diff.md"))
    }
}

/// A script that has ended.
struct ScriptRun {
    code: i32,
    printed: String,
    /// The calls that it made, one a line.
    calls: String,
}

impl ScriptRun {
    /// Fails unless the script ended with this code after these calls.
    #[track_caller]
    fn expect(&self, code: i32, calls: &str) {
        assert_eq!(self.code, code, "{}", self.printed);
        assert_eq!(self.calls, calls, "{}", self.printed);
    }
}

const BUILD: &str = "cargo build --message-format=json-render-diagnostics --quiet --locked \
                     --workspace --bin compare in checkout";

/// Returns the calls that build both sides, each in a folder of its own: what cargo builds of one
/// checkout would replace what it has built of the other.
fn builds() -> String {
    let base = format!("{BUILD}/target/review/base: base .cuda to checkout/target/review/build\n");
    let head = format!("{BUILD}: head .cuda to checkout/target\n");
    base + &head
}

/// Returns the call that runs a side.
fn run_call(side: &str, record: &str, flags: &str) -> String {
    format!("compare-{side} {flags} --out checkout/target/review/{record}\n")
}

/// Returns the call that compares.
fn diff_call(sides: &str) -> String {
    format!("compare-head diff {sides}{TERMS} --out checkout/target/review/diff.md\n")
}

/// The flags that compare what both sides promise and are let off.
const TERMS: &str = " --terms target/review/base.terms target/review/head.terms";

const RUNS: &str = "target/review/base-record target/review/head";

/// Returns the revisions whose tables are compared.
fn tables(checkout: &Checkout) -> String {
    let base = checkout.git(&["rev-parse", "HEAD^1"]);
    format!("{base:.12} HEAD")
}

/// Returns the call that compares runs and tables at once.
fn full_diff_call(checkout: &Checkout) -> String {
    diff_call(&format!("{RUNS} --tables {}", tables(checkout)))
}

const BASE_IS_OLD: &str = "Every stage is run on both sides: \
                           the base's program does not say what its runs depend on.\n";

#[test]
fn a_review_compares_runs_and_tables_of_base_and_head_and_keeps_the_bases_run() {
    let checkout = Checkout::new();
    let flags = "--backend emulated --quick";
    let base = run_call("base", "base-record", flags);
    let head = run_call("head", "head", flags) + &full_diff_call(&checkout);
    let first = checkout.review("HEAD^1", &[], &[]);
    first.expect(0, &(builds() + &base + &head));
    let expected = format!("**verdict** by @someone\nrest\n\n{BASE_IS_OLD}");
    assert_eq!(checkout.page(), expected);
    assert_eq!(checkout.git(&["status", "--short"]), "");

    // A gate that fails on the head is for the comparison to say, whose verdict on runs and tables
    // is the only one.
    for code in 0..4 {
        let diff_code = code.to_string();
        let variables = [("RUN_CODE", "1"), ("DIFF_CODE", &*diff_code)];
        let later = checkout.review("HEAD^1", &["--quick"], &variables);
        later.expect(code, &(builds() + &head));
        let page = checkout.page();
        assert_eq!(page.matches("**verdict**").count(), 1, "{page}");
    }

    let full = checkout.review("HEAD^1", &["--full"], &[]);
    let full_base = run_call("base", "base-record", "--backend emulated");
    assert!(
        full.calls.contains(&full_base),
        "a run of another tier is not used again: {}",
        full.calls
    );
}

/// The answer of a side to `sources`: the program and three stages.
const SOURCES: &str = "program p\nstage0-a 0\nstage1-b 1\nstage2-c 2\n";

/// Returns the variables by which both sides answer to `sources`.
fn sources<'a>(base: &'a str, head: &'a str) -> [(&'static str, &'a str); 2] {
    [("BASE_SOURCES", base), ("HEAD_SOURCES", head)]
}

#[test]
fn a_base_that_does_not_print_its_terms_is_said_to_be_compared_without_them() {
    let checkout = Checkout::new();
    let review = checkout.review("HEAD^1", &[], &[("NO_TERMS", "1")]);
    let without_terms = full_diff_call(&checkout).replace(TERMS, "");
    assert!(review.calls.ends_with(&without_terms), "{}", review.calls);
    let page = checkout.page();
    let sentence = "Claims, negatives, waivers and caps are not compared";
    assert!(page.contains(sentence), "{page}");
}

#[test]
fn only_the_stages_that_differ_are_run_and_the_others_are_named() {
    let checkout = Checkout::new();
    let head_sources = SOURCES.replace("b 1", "b 9");
    let variables = sources(SOURCES, &head_sources);
    let first = checkout.review("HEAD^1", &["--full"], &variables);
    let flags = "--backend emulated --stages stage1-b";
    let base = run_call("base", "base-record", flags);
    let rest = run_call("head", "head", flags) + &full_diff_call(&checkout);
    first.expect(0, &(builds() + &base + &rest));
    let expected = "Run on both sides: stage1-b. Left out, since neither kernel, headers, flags \
                    nor claims differ, nor the kernels that they claim to beat: stage0-a, \
                    stage2-c.\n";
    assert!(first.printed.contains(expected), "{}", first.printed);
    let page = checkout.page();
    assert!(page.contains(expected), "{page}");

    // The base's run stays while the same stages differ.
    let second = checkout.review("HEAD^1", &["--full"], &variables);
    assert_eq!(second.calls, builds() + &rest);
    let other_sources = SOURCES.replace("a 0", "a 9").replace("c 2", "c 9");
    let other_variables = sources(SOURCES, &other_sources);
    let third = checkout.review("HEAD^1", &["--full"], &other_variables);
    let other_flags = "--backend emulated --stages stage0-a,stage2-c";
    let other_base = run_call("base", "base-record", other_flags);
    assert!(third.calls.contains(&other_base), "{}", third.calls);
}

#[test]
fn where_no_stage_differs_nothing_is_run_and_the_tables_are_compared() {
    let checkout = Checkout::new();
    let [base, head] = sources(SOURCES, SOURCES);
    let review = checkout.review("HEAD^1", &[], &[base, head]);
    review.expect(0, &(builds() + &diff_call(&tables(&checkout))));
    let expected = "\nNo stage is run: kernels, headers, flags, claims and the program are those \
                    of the base.\n";
    let page = checkout.page();
    assert!(page.ends_with(expected), "{page}");

    // A base without tables is no failure of the change.
    let first_review = checkout.review("HEAD^1", &[], &[base, head, ("OLD", "1")]);
    assert_eq!(first_review.code, 0, "{}", first_review.printed);
    let first_page = checkout.page();
    assert!(
        first_page.starts_with("Committed tables: not measured: "),
        "{first_page}"
    );
    assert!(first_page.ends_with(expected), "{first_page}");
}

/// Fails unless a review runs every stage, and names this reason.
#[track_caller]
fn expect_every_stage(head_sources: &str, flags: &[&str], reason: &str) {
    let checkout = Checkout::new();
    let review = checkout.review("HEAD^1", flags, &sources(SOURCES, head_sources));
    let line = format!("==> Every stage is run on both sides: {reason}.\n");
    assert!(review.printed.contains(&line), "{}", review.printed);
    let head = run_call("head", "head", "--backend emulated");
    assert!(review.calls.contains(&head), "{}", review.calls);
}

#[test]
fn every_stage_is_run_where_the_program_differs() {
    let other_program = SOURCES.replace("program p", "program q");
    expect_every_stage(
        &other_program,
        &["--full"],
        "common, the emulator or compare differs",
    );
}

#[test]
fn every_stage_is_run_where_the_ladder_has_another() {
    let longer = format!("{SOURCES}stage3-d 3\n");
    expect_every_stage(&longer, &["--full"], "the ladder has other stages");
}

#[test]
fn every_stage_is_run_where_that_is_asked_for() {
    expect_every_stage(SOURCES, &["--full", "--all"], "--all");
}

/// Files that are the same keep their times, so that cargo builds nothing for them again.
#[test]
fn the_bases_checkout_stays_and_takes_only_what_another_base_changes() {
    let checkout = Checkout::new();
    let base = checkout.path("checkout/target/review/base");
    checkout.review("HEAD^1", &[], &[]);
    let script = base.join("scripts/review");
    let before = std::fs::metadata(&script).unwrap().modified().unwrap();
    std::fs::write(checkout.path("checkout/kernel.cu"), "new").unwrap();
    checkout.git(&["add", "kernel.cu"]);
    checkout.git(&["commit", "--quiet", "-m", "third"]);
    std::fs::write(base.join("left-over"), "").unwrap();
    checkout.git(&["branch", "side"]);
    let review = checkout.review("HEAD", &[], &[]);
    assert!(
        review
            .calls
            .starts_with(&format!("{BUILD}/target/review/base: third .cuda to ")),
        "{}",
        review.printed
    );
    assert_eq!(read(base.join("kernel.cu")), "new");
    assert!(!base.join("left-over").exists());
    let after = std::fs::metadata(&script).unwrap().modified().unwrap();
    assert_eq!(after, before);
    // A branch that somebody checked out there does not move.
    let side = checkout.git(&["rev-parse", "side"]);
    let switched = git::git(&base).args(["switch", "--quiet", "side"]).status();
    assert!(switched.unwrap().success());
    checkout.review("HEAD^1", &[], &[]);
    assert_eq!(checkout.git(&["rev-parse", "side"]), side);
}

#[test]
fn a_folder_where_the_bases_checkout_should_be_is_replaced() {
    let checkout = Checkout::new();
    let inside = checkout.path("checkout/target/review/base/scripts");
    std::fs::create_dir_all(inside).unwrap();
    let head = checkout.git(&["rev-parse", "HEAD"]);
    let review = checkout.review("HEAD^1", &[], &[]);
    assert_eq!(review.code, 0, "{}", review.printed);
    assert_eq!(checkout.git(&["rev-parse", "HEAD"]), head);
    assert_eq!(checkout.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "main");
}

#[test]
fn latencies_are_never_taken_from_another_session() {
    let checkout = Checkout::new();
    let flags = "--backend cuda --shapes mission --dtypes f16";
    let base = run_call("base", "base-record", flags);
    let head = run_call("head", "head", flags);
    let expected = builds() + &base + &head + &diff_call(RUNS);
    // All stages, although none differs: they are the control.
    let variables = sources(SOURCES, SOURCES);
    for _ in 0..2 {
        let review = checkout.review("main^1", &["--latency"], &variables);
        review.expect(0, &expected);
    }
}

/// A program that an earlier build left is not reviewed.
#[test]
fn a_build_that_fails_is_no_review() {
    let checkout = Checkout::new();
    let review = checkout.review("HEAD^1", &[], &[("BROKEN", "1")]);
    assert_eq!(review.code, 2, "{}", review.printed);
    assert!(
        review.printed.contains("the build in "),
        "{}",
        review.printed
    );
    assert!(!review.calls.contains("compare-"), "{}", review.calls);
    assert!(!review.calls.contains("stale"), "{}", review.calls);
}

/// Fails unless a review is refused with these words.
#[track_caller]
fn expect_refused(review: &ScriptRun, words: &str) {
    assert_eq!(review.code, 2, "{}", review.printed);
    assert!(review.printed.contains(words), "{}", review.printed);
}

#[test]
fn what_cannot_be_reviewed_is_wrong_usage() {
    let checkout = Checkout::new();
    let without_base = checkout.run(&["scripts/review"], &[("RUN_CODE", "0")]);
    expect_refused(&without_base, "usage:");
    let unknown_flag = checkout.review("HEAD", &["--slow"], &[("RUN_CODE", "0")]);
    expect_refused(&unknown_flag, "usage:");
    let two_bases = checkout.review("HEAD", &["HEAD^1"], &[("RUN_CODE", "0")]);
    expect_refused(&two_bases, "one BASE, not two");
    let unknown_base = checkout.review("nowhere", &[], &[("RUN_CODE", "0")]);
    expect_refused(&unknown_base, "git fetch it");
}

/// Wrong usage, a panic, and what the system kills for want of memory.
#[test]
fn a_base_that_cannot_run_is_named_and_not_kept() {
    for code in ["2", "101", "137"] {
        let checkout = Checkout::new();
        let review = checkout.review("HEAD^1", &[], &[("RUN_CODE", code)]);
        let words = format!("cannot run on the base-record: it ended with exit code {code}");
        expect_refused(&review, &words);
        let again = checkout.review("HEAD^1", &[], &[("RUN_CODE", code)]);
        expect_refused(&again, &words);
    }
}

/// Runs the hosted check on a comparison that exits with `diff_code`; its summary has the
/// comparison.
#[track_caller]
fn hosted_check(diff_code: &str) -> ScriptRun {
    let script = [".ci/review", "HEAD^1", "--quick"];
    let run = Checkout::new().run(&script, &[("DIFF_CODE", diff_code)]);
    assert!(run.printed.contains("**verdict**"), "{}", run.printed);
    run
}

#[test]
fn the_hosted_check_has_the_code_of_the_comparison() {
    for (diff_code, expected_code) in [("0", 0), ("1", 1)] {
        let check = hosted_check(diff_code);
        assert_eq!(check.code, expected_code, "{}", check.printed);
        assert!(!check.printed.contains("::warning::"), "{}", check.printed);
    }
}

#[test]
fn the_hosted_check_passes_what_is_inconclusive_with_a_warning() {
    let check = hosted_check("3");
    assert_eq!(check.code, 0, "{}", check.printed);
    assert!(check.printed.contains("::warning::"), "{}", check.printed);
}

#[test]
fn the_hosted_check_compares_with_where_the_commit_left_its_base() {
    let checkout = Checkout::new();
    // A branch that went on since.
    let base = checkout.git(&["rev-parse", "HEAD^1"]);
    checkout.git(&["checkout", "--quiet", "-b", "other", "HEAD^1"]);
    checkout.git(&["commit", "--quiet", "--allow-empty", "-m", "later"]);
    checkout.git(&["checkout", "--quiet", "main"]);
    checkout.run(&[".ci/review", "other", "--full"], &[]);
    let recorded = read(checkout.path("checkout/target/review/base.of"));
    assert_eq!(recorded, format!("{base} --backend emulated\n"));
}

/// A run of the hosted check that ended, and on which the script comments.
struct Commented {
    /// `review` or `latency`.
    kind: &'static str,
    /// The comparison that the run left.
    diff: Option<String>,
    /// The step that failed, as the run left it.
    failed_step: Option<&'static str>,
    /// The answers of `gh`, as variables of its program.
    answers: Vec<(&'static str, &'static str)>,
}

impl Commented {
    /// Returns a run that left the comparison [`DIFF`].
    fn new(kind: &'static str) -> Self {
        Self {
            kind,
            diff: Some(DIFF.to_string()),
            failed_step: None,
            answers: vec![],
        }
    }

    /// Comments on the run.
    fn comment(&self) -> ScriptRun {
        let checkout = Checkout::new();
        let folder = checkout.path("left");
        std::fs::create_dir_all(&folder).unwrap();
        if let Some(diff) = &self.diff {
            std::fs::write(folder.join("diff.md"), diff).unwrap();
        }
        if let Some(step) = self.failed_step {
            std::fs::write(folder.join("failed"), step).unwrap();
        }
        let mut variables = vec![
            ("REPOSITORY", "o/r"),
            ("HEAD_SHA", "abc"),
            ("RUN_ID", "9"),
            ("GITHUB_SERVER_URL", "https://example.invalid"),
            ("LEFT", folder.to_str().unwrap()),
        ];
        variables.extend(&self.answers);
        checkout.run(&[".ci/comment", self.kind], &variables)
    }

    /// Fails unless the script ends well and prints this.
    #[track_caller]
    fn expect(&self, printed: &str) {
        let run = self.comment();
        assert_eq!(run.code, 0, "{}", run.printed);
        assert_eq!(run.printed, printed);
    }
}

const DIFF: &str = "**verdict** by @someone\n";

/// Returns the comment's head, and `rest` behind it.
fn body(kind: &str, rest: &str) -> String {
    format!(
        "<!-- attention-ladder: {kind} -->\n_Of abc. Written by the code of this pull request in \
         [this run](https://example.invalid/o/r/actions/runs/9)._\n\n{rest}"
    )
}

/// The call that replaces the comment of a review.
const PATCH: &str = "gh api --silent --method PATCH repos/o/r/issues/comments/42 --field body\n";

/// The call that adds a comment.
const POST: &str = "gh api --silent --method POST repos/o/r/issues/7/comments --field body\n";

/// The end of a comment that has the comparison [`DIFF`]: nobody is notified.
const VERDICT: &str = "\n**verdict** by @&#8203;someone\n";

#[test]
fn a_comment_names_its_commit_and_replaces_the_one_of_its_kind() {
    let expected = PATCH.to_string() + &body("review", VERDICT);
    Commented::new("review").expect(&expected);
}

#[test]
fn a_comment_is_added_where_there_is_none_of_its_kind() {
    let first = Commented {
        answers: vec![("NEW", "1")],
        ..Commented::new("review")
    };
    first.expect(&(POST.to_string() + &body("review", VERDICT)));
    let other_kind = Commented::new("latency");
    other_kind.expect(&(POST.to_string() + &body("latency", VERDICT)));
}

#[test]
fn a_commit_that_no_pull_request_is_at_gets_no_comment() {
    let elsewhere = Commented {
        answers: vec![("AT", "123")],
        ..Commented::new("review")
    };
    elsewhere.expect("no comment: no open pull request is at abc\n");
}

#[test]
fn a_long_comment_is_cut_to_what_a_comment_may_have() {
    let long = Commented {
        diff: Some(DIFF.to_string() + &"line µ\n".repeat(20_000)),
        ..Commented::new("review")
    };
    let run = long.comment();
    assert_eq!(run.code, 0);
    assert!(run.printed.len() < 65_536);
    assert!(
        run.printed
            .ends_with("The rest is in the summary of the run.\n")
    );
}

/// Returns a run whose tests failed.
fn failed_tests() -> Commented {
    Commented {
        failed_step: Some("cargo test @all\nmore\n"),
        answers: vec![("JOBS", "- **Failed:** gates\n")],
        ..Commented::new("review")
    }
}

/// The line of a comment on [`failed_tests`] that names the step.
const STEP: &str = "- **The step of .ci/run that failed:** cargo test @&#8203;all\n";

#[test]
fn a_comment_says_what_failed_and_that_there_is_no_comparison() {
    let without_comparison = Commented {
        diff: None,
        ..failed_tests()
    };
    let no_comparison = "No comparison: the run ended before there was one.\n";
    let rest = format!("- **Failed:** gates\n{STEP}\n{no_comparison}");
    without_comparison.expect(&(PATCH.to_string() + &body("review", &rest)));
}

#[test]
fn a_comment_says_what_failed_beside_the_comparison() {
    let run = failed_tests().comment();
    assert!(run.printed.contains(STEP), "{}", run.printed);
    assert!(run.printed.contains("**verdict**"), "{}", run.printed);
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
    let run = checkout.run(&[".ci/run"], &[]);
    assert_eq!(run.code, 1, "{}", run.printed);
    let left = read(folder.join("target/review/failed"));
    assert_eq!(left, "a b\n");
}

/// A value of a workflow.
struct Setting {
    /// The path of its keys: `jobs.gates.steps.-.run`.
    path: String,
    value: String,
}

/// Reads the values of a workflow, as far as these files use YAML.
fn settings(name: &str) -> Vec<Setting> {
    let text = read(root().join(".github/workflows").join(name));
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut settings = Vec::new();
    for line in text.lines().map(|line| line.split(" #").next().unwrap()) {
        let words = line.trim_start_matches([' ', '-']);
        if words.is_empty() || words.starts_with('#') {
            continue;
        }
        let indent = line.len() - words.len();
        let is_item = line.find("- ").is_some_and(|dash| dash < indent);
        let outer_indent = if is_item { indent - 2 } else { indent };
        open.retain(|(other, _)| *other < outer_indent);
        if is_item {
            open.push((outer_indent, "-"));
        }
        let (key, value) = words.split_once(':').unwrap_or(("", words));
        open.push((indent, key));
        let path: Vec<&str> = open.iter().map(|(_, word)| *word).collect();
        settings.push(Setting {
            path: path.join("."),
            value: value.trim().to_string(),
        });
    }
    settings
}

const WORKFLOWS: [&str; 4] = [
    "review.yml",
    "review-comment.yml",
    "latency.yml",
    "advisories.yml",
];

/// Returns all values at `path` of a workflow.
fn values(workflow: &str, path: &str) -> Vec<String> {
    let mut values = Vec::new();
    for setting in settings(workflow) {
        if setting.path == path {
            values.push(setting.value);
        }
    }
    values
}

#[test]
fn the_workflows_run_the_repositorys_own_scripts_and_nothing_else() {
    let mut commands = Vec::new();
    for name in WORKFLOWS {
        let settings = settings(name);
        let mut paths = settings.iter().map(|setting| &setting.path);
        assert!(paths.any(|path| path == "permissions"), "{name}");
        for Setting { path, value } in &settings {
            if path.ends_with(".run") {
                commands.push(value.clone());
            }
            // A commit: tags move.
            if path.ends_with(".uses") {
                let (_, commit) = value.split_once('@').unwrap_or_default();
                let is_hex = commit.chars().all(|c| c.is_ascii_hexdigit());
                assert!(commit.len() == 40 && is_hex, "{name}: {value}");
            }
            // A fork's code with a token that may write; a label, which clears a red check of the
            // same name.
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

/// A request's jobs are skipped on no event of a request, since a skipped check counts as passed. A
/// hosted runner promises 14 GB: PyTorch without CUDA, and the base's build on another disk than
/// the tests'.
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
    for name in WORKFLOWS {
        let mut values = settings(name).into_iter().map(|setting| setting.value);
        let is_on_gpu = values.any(|value| value.contains("self-hosted"));
        assert_eq!(is_on_gpu, name == "latency.yml", "{name}");
    }
    let mut events = Vec::new();
    for Setting { path, .. } in settings("latency.yml") {
        if path.starts_with("on.") && path.matches('.').count() == 1 {
            events.push(path);
        }
    }
    assert_eq!(events, ["on.workflow_dispatch"]);
    let condition = values("latency.yml", "jobs.latency.if");
    assert!(condition[0].contains("default_branch"), "{condition:?}");
    let checkout = values("latency.yml", "jobs.latency.steps.-.with.ref");
    assert_eq!(checkout, ["${{ inputs.commit }}"]);
    // A third commit cancels no second one that waits.
    let group = values("latency.yml", "concurrency.group");
    assert_eq!(group, ["latency-${{ inputs.commit }}"]);
}

#[test]
fn one_toolchain_checks_the_workspace() {
    let pinned = read(root().join("rust-toolchain.toml"));
    assert!(pinned.contains("channel = \"1."), "{pinned}");
    assert!(pinned.contains("[\"rustfmt\", \"clippy\"]"), "{pinned}");
}
