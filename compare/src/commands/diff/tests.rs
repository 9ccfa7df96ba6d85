use super::*;
use crate::testing::git::{self, run as git};
use document::markdown::markdown;
use results::table::{Run, Source};
use results::testing::{ON_GPU, PeerArm, SCALAR, US, emulated, ladder, row, timed};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Returns the literal run on other kernels.
fn before() -> Run {
    timed(US)
        .with_identity(0, "a")
        .with_identity(1, "b")
        .named("1")
}

/// Returns the literal run with a kernel that is slower.
fn slower() -> Run {
    timed([32.0, 20.0, 16.5])
}

/// Returns the literal run with a kernel that is faster.
fn faster() -> Run {
    timed([32.0, 20.0, 13.0])
}

/// Returns a side that is a run in a folder of its own.
fn run_side(run: &Run) -> Side {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run");
    run.write(&path).unwrap();
    resolve(&path)
}

/// Returns a side that is the tables of a run.
fn tables_side(run: &Run) -> Side {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tables");
    run_side(run).results.write(&path).unwrap();
    resolve(&path)
}

fn resolve(path: &Path) -> Side {
    source::resolve(path.to_str().unwrap(), None, &ladder()).unwrap()
}

fn compared_runs(base: &Run, new: &Run) -> Comparison {
    compare(&run_side(base), &run_side(new), &ladder())
}

fn compared_tables(base: &Run, new: &Run) -> Comparison {
    compare(&tables_side(base), &tables_side(new), &ladder())
}

fn compared_table_with_run(base: &Run, new: &Run) -> Comparison {
    compare(&tables_side(base), &run_side(new), &ladder())
}

/// Checks the verdict, and that the page has all notes and no outdated kernel.
#[track_caller]
fn assert_verdict(comparison: &Comparison, word: &str, code: u8) {
    assert_eq!(comparison.overall.word, word);
    assert_eq!(comparison.overall.exit.code(), code);
    let page = markdown(&layout::document(comparison, true));
    for note in &comparison.notes {
        assert!(page.contains(note), "{page}");
    }
    assert!(!page.contains(OUTDATED), "{page}");
}

const OUTDATED: &str = "stage1-cpasync: variant: the kernel has changed since";

const ONLY_BASE_HAS_H200: &str = "nvidia-h200: only the base has figures of this GPU model";

#[test]
fn equal_times_are_the_same() {
    let comparison = compared_runs(&before(), &timed(US));
    assert_verdict(&comparison, "SAME", 0);
    assert!(comparison.notes.is_empty());
}

#[test]
fn a_slower_kernel_is_a_regression() {
    assert_verdict(&compared_runs(&before(), &slower()), "REGRESSION", 1);
    assert_verdict(
        &compared_table_with_run(&before(), &slower()),
        "REGRESSION",
        1,
    );
    assert_verdict(&compared_tables(&before(), &slower()), "REGRESSION", 1);
}

#[test]
fn a_faster_kernel_is_an_improvement() {
    assert_verdict(&compared_runs(&before(), &faster()), "IMPROVED", 0);
}

/// The machine moved.
#[test]
fn another_time_of_the_same_kernel_is_ambiguous() {
    assert_verdict(&compared_runs(&timed(US), &slower()), "UNDECIDED", 3);
}

#[test]
fn a_run_that_lacks_what_the_base_run_has_is_incomplete() {
    let comparison = compared_runs(&before(), &timed(US).without_row(SCALAR, ON_GPU));
    assert_verdict(&comparison, "INCOMPLETE", 3);
}

/// A part of what tables have is what a run was asked for.
#[test]
fn a_run_that_lacks_what_a_table_has_is_the_same() {
    let unchecked = timed(US).without_row(SCALAR, ON_GPU);
    let comparison = compared_table_with_run(&before(), &unchecked);
    assert_verdict(&comparison, "SAME", 0);
}

#[test]
fn a_run_in_the_emulator_is_compared_by_its_build() {
    let comparison = compared_runs(&before(), &emulated());
    assert_verdict(&comparison, "SAME", 0);
    assert_eq!(comparison.notes, [ONLY_BASE_HAS_H200]);
}

#[test]
fn equal_tables_are_the_same() {
    assert_verdict(&compared_tables(&before(), &before()), "SAME", 0);
}

/// Nothing is judged: equal rows are the same, and rows that differ are no data.
#[test]
fn times_of_peers_are_not_judged() {
    let peers = |us: f64| {
        timed(US)
            .peers("mission", 10.0, &[PeerArm::right("torch-flash", us)])
            .of_source(Source::Peers)
    };
    assert_verdict(&compared_runs(&peers(20.0), &peers(20.0)), "SAME", 0);
    assert_verdict(
        &compared_runs(&peers(20.0), &peers(21.0)),
        "NOT MEASURED",
        3,
    );
}

#[test]
fn times_at_random_problems_are_not_judged() {
    let base = timed(US).with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 9"));
    let new = timed(US).with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 8"));
    assert_verdict(&compared_tables(&base, &new), "SAME", 0);
}

#[test]
fn a_table_that_is_gone_is_incomplete() {
    let comparison = compared_tables(&before(), &emulated());
    assert_verdict(&comparison, "INCOMPLETE", 3);
    assert_eq!(comparison.notes, [ONLY_BASE_HAS_H200]);
}

/// A session has one time of a kernel.
#[test]
fn a_run_on_kernels_that_have_changed_since_is_incomplete() {
    let comparison = compared_runs(&before(), &before());
    assert_eq!(comparison.overall.word, "INCOMPLETE");
    assert_eq!(comparison.overall.exit.code(), 3);
    assert!(comparison.notes.is_empty());
    let page = markdown(&layout::document(&comparison, true));
    assert!(page.contains(OUTDATED), "{page}");
}

/// Two runs on different GPU models.
fn without_a_common_gpu() -> Comparison {
    let l4 = timed(US)
        .changed(|session| session.machine.name = "nvidia-l4".into())
        .on_card("NVIDIA L4");
    compared_runs(&timed(US), &l4)
}

#[test]
fn different_gpu_models_have_no_data() {
    let comparison = without_a_common_gpu();
    assert_verdict(&comparison, "NOT MEASURED", 3);
    assert_eq!(
        comparison.notes,
        [
            ONLY_BASE_HAS_H200,
            "nvidia-l4: only the new side has figures of this GPU model",
        ]
    );
}

#[test]
fn a_given_output_that_fails_is_a_failure() {
    let base = emulated().with_row(row("x | : out | input | C2 pass"));
    let new = emulated().with_row(row("x | : out | input | C2 fail"));
    let comparison = compared_runs(&base, &new);
    assert_verdict(&comparison, "FAIL", 1);
}

/// Returns the tables of a run, for two GPU models.
fn tables_of_two_gpus(run: &Run) -> Side {
    let mut side = tables_side(run);
    let gpus = &mut side.results.gpus;
    gpus.insert("nvidia-l4".into(), gpus["nvidia-h200"].clone());
    side
}

#[test]
fn of_two_gpu_models_what_the_build_says_is_said_once() {
    let comparison = compare(
        &tables_of_two_gpus(&timed(US)),
        &tables_of_two_gpus(&timed(US).counted(SCALAR, 2_097_152, 0)),
        &ladder(),
    );
    let line = &comparison.overall.line;
    assert!(line.starts_with("1 worse, "), "{line}");
}

#[test]
fn a_table_that_is_gone_is_one_difference() {
    let base = tables_of_two_gpus(&timed(US));
    let comparison = compare(&base, &tables_side(&timed(US)), &ladder());
    assert_eq!(all_differences(&comparison.pairs).len(), 1);
}

/// Checks the one verdict on runs and on tables.
#[track_caller]
fn assert_joint_verdict(runs: Comparison, tables: Comparison, word: &str, code: u8) {
    let joint = join(runs, tables);
    assert_eq!(joint.overall.word, word);
    assert_eq!(joint.overall.exit.code(), code);
    let page = markdown(&layout::document(&joint, true));
    assert!(page.starts_with(&format!("**{word}: ")), "{page}");
    assert!(page.contains("Committed tables: "), "{page}");
    let remarks = page.matches("No action needed").count();
    assert!(remarks <= usize::from(code == 0), "{page}");
}

fn same_runs() -> Comparison {
    compared_runs(&emulated(), &emulated())
}

#[test]
fn runs_and_tables_that_are_the_same_are_the_same() {
    let tables = compared_tables(&before(), &before());
    assert_joint_verdict(same_runs(), tables, "SAME", 0);
}

#[test]
fn a_regression_of_tables_is_one_of_the_review() {
    let tables = compared_tables(&before(), &slower());
    assert_joint_verdict(same_runs(), tables, "REGRESSION", 1);
}

#[test]
fn a_regression_of_runs_is_one_of_the_review() {
    let tables = compared_tables(&before(), &before());
    assert_joint_verdict(compared_runs(&before(), &slower()), tables, "REGRESSION", 1);
}

#[test]
fn a_regression_of_runs_and_an_improvement_of_tables_are_mixed() {
    let tables = compared_tables(&before(), &faster());
    assert_joint_verdict(compared_runs(&before(), &slower()), tables, "MIXED", 1);
}

#[test]
fn an_improvement_of_tables_is_one_of_the_review() {
    let tables = compared_tables(&before(), &faster());
    assert_joint_verdict(same_runs(), tables, "IMPROVED", 0);
}

#[test]
fn runs_without_data_decide_where_tables_are_not_worse() {
    let tables = compared_tables(&before(), &faster());
    assert_joint_verdict(without_a_common_gpu(), tables, "NOT MEASURED", 3);
}

#[test]
fn a_base_without_tables_is_noted() {
    let no_data = NoData("main has neither runs nor tables".into());
    let comparison = note_missing_tables(same_runs(), no_data.into()).unwrap();
    assert_eq!(
        comparison.notes,
        ["Committed tables: not measured: main has neither runs nor tables"]
    );
    assert_eq!(comparison.overall.word, "SAME");
}

#[test]
fn a_base_with_a_broken_table_is_an_error() {
    let broken = anyhow::anyhow!("line 9 is malformed");
    assert!(note_missing_tables(same_runs(), broken).is_err());
}

fn commit(root: &Path, tag: &str) {
    git::commit(root, tag);
    git(root, &["tag", tag]);
}

/// A repository with runs, tables, and revisions of its tables.
struct Checkout(TempDir);

impl Checkout {
    fn new() -> Self {
        let checkout = Self(tempfile::tempdir().unwrap());
        let root = checkout.root();
        git(root, &["init", "--quiet", "--initial-branch", "main"]);
        checkout
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// Returns the name of a folder, as a command line has it.
    fn name(&self, folder: &str) -> String {
        self.path(folder).display().to_string()
    }

    /// Writes the tables of the literal run.
    fn write_tables(&self) {
        timed(US).write(&self.path("run")).unwrap();
        let side = resolve(&self.path("run"));
        side.results.write(&self.path("results")).unwrap();
    }

    fn resolve(&self, name: &str) -> anyhow::Result<Side> {
        source::resolve(name, Some(self.root()), &ladder())
    }

    /// Returns the error, with the path of the checkout replaced by ROOT.
    #[track_caller]
    fn error(&self, name: &str) -> String {
        let error = format!("{:#}", self.resolve(name).unwrap_err());
        error.replace(&self.root().display().to_string(), "ROOT")
    }

    /// Whether the name has neither runs nor tables.
    #[track_caller]
    fn is_no_data(&self, name: &str) -> bool {
        self.resolve(name).unwrap_err().is::<NoData>()
    }
}

#[track_caller]
fn assert_literal_table(side: &Side) {
    let table = side.results.of_gpu("nvidia-h200");
    assert_eq!(table.rows().count(), 15);
    assert_eq!(table.sessions.len(), 1);
}

#[test]
fn a_side_is_the_folder_of_a_run() {
    let checkout = Checkout::new();
    timed(US).write(&checkout.path("1")).unwrap();
    let side = checkout.resolve(&checkout.name("1")).unwrap();
    assert_eq!(side.name, "1");
    assert!(side.run.is_some());
    assert_literal_table(&side);
}

#[test]
fn a_side_is_the_newest_run_of_a_folder() {
    let checkout = Checkout::new();
    for name in ["runs/1", "runs/2"] {
        timed(US).write(&checkout.path(name)).unwrap();
    }
    let side = checkout.resolve(&checkout.name("runs")).unwrap();
    assert_eq!(side.name, "2");
    assert!(side.run.is_some());
    assert_literal_table(&side);
}

/// A file that was removed from the work tree is gone there alone, and the work tree is not
/// touched.
#[test]
fn a_side_is_a_revision_with_tables() {
    let checkout = Checkout::new();
    checkout.write_tables();
    commit(checkout.root(), "tables");
    std::fs::remove_file(checkout.path("results/nvidia-h200/rows.jsonl")).unwrap();
    let status = || git(checkout.root(), &["status", "--porcelain"]);
    let before = status();
    let side = checkout.resolve("tables").unwrap();
    assert_eq!(side.name, "tables");
    assert!(side.run.is_none());
    assert_literal_table(&side);
    assert_eq!(status(), before);
}

#[test]
fn a_revision_with_an_impossible_time_is_refused() {
    let checkout = Checkout::new();
    checkout.write_tables();
    let rows = checkout.path("results/nvidia-h200/rows.jsonl");
    let impossible = r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"peers","session":"20261120T183000Z-linux","p50":1e-9}"#;
    let text = std::fs::read_to_string(&rows).unwrap();
    std::fs::write(&rows, text + impossible).unwrap();
    commit(checkout.root(), "fast");
    assert_eq!(
        checkout.error("fast"),
        "fast:results/nvidia-h200/rows.jsonl: line 9 is malformed: \
         s/v on mission f16 full by peers: 0.000000001 µs, and nothing can take less than \
         0.543 µs on NVIDIA H200; find out what was timed"
    );
    assert!(!checkout.is_no_data("fast"));
}

#[test]
fn tables_whose_rows_were_removed_are_refused() {
    let checkout = Checkout::new();
    checkout.write_tables();
    std::fs::remove_file(checkout.path("results/nvidia-h200/rows.jsonl")).unwrap();
    let name = checkout.name("results");
    assert_eq!(
        checkout.error(&name),
        "ROOT/results cannot be compared: ROOT/results/nvidia-h200/rows.jsonl: line 1 was taken \
         out after `compare accept` wrote it (session '20261120T183000Z-linux'); a figure is \
         measured, never edited: take the committed file back with `git checkout`, or measure \
         again and accept the run"
    );
    assert!(!checkout.is_no_data(&name));
}

#[test]
fn a_folder_without_runs_and_tables_has_no_data() {
    let checkout = Checkout::new();
    std::fs::create_dir(checkout.path("nothing")).unwrap();
    let name = checkout.name("nothing");
    assert_eq!(
        checkout.error(&name),
        "not measured: ROOT/nothing has neither runs nor tables; name the folder of a run, results/, \
         or a git revision with tables (`compare accept`)"
    );
    assert!(checkout.is_no_data(&name));
}

#[test]
fn a_run_that_cannot_be_read_is_refused() {
    let checkout = Checkout::new();
    timed(US).write(&checkout.path("broken")).unwrap();
    std::fs::write(checkout.path("broken/rows.jsonl"), "{").unwrap();
    let name = checkout.name("broken");
    assert_eq!(
        checkout.error(&name),
        "ROOT/broken cannot be compared: ROOT/broken/rows.jsonl: line 1 is malformed: \
         EOF while parsing an object at line 1 column 1"
    );
    assert!(!checkout.is_no_data(&name));
}

#[test]
fn a_revision_without_tables_has_no_data() {
    let checkout = Checkout::new();
    let root = checkout.root();
    git(root, &["commit", "--quiet", "--allow-empty", "-m", "empty"]);
    git(root, &["tag", "empty"]);
    assert_eq!(
        checkout.error("empty"),
        "not measured: empty has neither runs nor tables; name the folder of a run, results/, \
         or a git revision with tables (`compare accept`)"
    );
    assert!(checkout.is_no_data("empty"));
}

/// A flag is not passed on to git.
#[test]
fn a_name_that_is_neither_a_folder_nor_a_revision_is_refused() {
    let checkout = Checkout::new();
    checkout.write_tables();
    commit(checkout.root(), "tables");
    for name in ["nowhere", "--all"] {
        let expected = format!(
            "'{name}' is neither a folder nor a git revision; \
             give the folder of a run, a folder of tables, or a revision"
        );
        assert_eq!(checkout.error(name), expected);
        assert!(!checkout.is_no_data(name));
    }
}

#[test]
fn what_keeps_git_from_looking_is_in_the_error() {
    let gone = Path::new("/gone");
    let error = source::resolve("main", Some(gone), &ladder()).unwrap_err();
    let start = "'main' is neither a folder nor a git revision (fatal: cannot change to";
    assert!(error.to_string().starts_with(start), "{error}");
}

#[test]
fn outside_of_the_workspace_there_are_no_revisions() {
    let error = source::resolve("main", None, &ladder()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "'main' is not a folder, and there are no revisions outside of the workspace; go there"
    );
}

impl Checkout {
    fn gpu_file(&self, file: &str) -> PathBuf {
        self.path("results/nvidia-h200").join(file)
    }

    fn edit(&self, file: &str, from: &str, to: &str) {
        let text = std::fs::read_to_string(self.gpu_file(file)).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        std::fs::write(self.gpu_file(file), text.replace(from, to)).unwrap();
    }

    fn remove_digests(&self, table: &str) {
        let digests = self.path("results").join(table).join("digests.jsonl");
        std::fs::remove_file(digests).unwrap();
    }

    /// Commits tables without digests as `before`, and with them as `accepted`.
    fn with_digests() -> Self {
        let checkout = Self::new();
        checkout.write_tables();
        checkout.remove_digests("build");
        checkout.remove_digests("nvidia-h200");
        commit(checkout.root(), "before");
        checkout.write_tables();
        commit(checkout.root(), "accepted");
        checkout
    }

    /// Halves a time by hand.
    fn halve_a_time(&self) {
        self.edit(
            "rows.jsonl",
            r#""p50":32.03,"p50_low":32.01,"p50_high":32.04"#,
            r#""p50":16.01,"p50_low":16,"p50_high":16.02"#,
        );
    }
}

#[test]
fn a_revision_from_before_digests_is_noted() {
    let checkout = Checkout::with_digests();
    let before = checkout.resolve("before").unwrap();
    let note = "before is from before a table had digests: \
                whether its figures were edited is not known";
    assert_eq!(before.note.as_deref(), Some(note));
    let accepted = checkout.resolve("accepted").unwrap();
    assert_eq!(accepted.note, None);
    let comparison = compare(&before, &accepted, &ladder());
    assert_eq!(comparison.overall.word, "SAME");
    assert_eq!(comparison.notes, [note]);
    let page = markdown(&layout::document(&comparison, false));
    assert!(page.contains(note), "{page}");
}

#[test]
fn a_revision_whose_rows_were_edited_is_refused() {
    let checkout = Checkout::with_digests();
    checkout.halve_a_time();
    commit(checkout.root(), "halved");
    assert_eq!(
        checkout.error("halved"),
        "halved:results/nvidia-h200/rows.jsonl: line 2 was changed or added after \
         `compare accept` wrote it (session '20261120T183000Z-linux'); a figure is measured, \
         never edited: take the committed file back with `git checkout`, or measure again and \
         accept the run"
    );
}

#[test]
fn a_revision_whose_digests_were_removed_is_refused() {
    let checkout = Checkout::with_digests();
    checkout.halve_a_time();
    checkout.remove_digests("nvidia-h200");
    commit(checkout.root(), "half-digested");
    checkout.remove_digests("build");
    commit(checkout.root(), "undigested");
    for (name, table) in [("half-digested", "nvidia-h200"), ("undigested", "build")] {
        let expected = format!(
            "{name}:results/{table} has no digests.jsonl, which tells edited figures from \
             measured ones; take it back with `git checkout`; tables from before it existed are \
             compared as revisions (`compare diff REVISION HEAD`)"
        );
        assert_eq!(checkout.error(name), expected);
    }
}

#[test]
fn a_revision_whose_sessions_were_edited_is_refused() {
    let checkout = Checkout::with_digests();
    checkout.edit("sessions.jsonl", "NVIDIA H200", "NVIDIA H100");
    commit(checkout.root(), "another-gpu");
    assert_eq!(
        checkout.error("another-gpu"),
        "another-gpu:results/nvidia-h200/sessions.jsonl: line 1 was changed or added after \
         `compare accept` wrote it (session '20261120T183000Z-linux'); a figure is measured, \
         never edited: take the committed file back with `git checkout`, or measure again and \
         accept the run"
    );
}

#[test]
fn results_from_before_tables_are_refused_with_what_can_be_compared() {
    let checkout = Checkout::new();
    let session = checkout.path("results/20261121T053618Z-nvidia-h200");
    std::fs::create_dir_all(&session).unwrap();
    for file in ["meta.json", "rows.jsonl"] {
        std::fs::write(session.join(file), "{}").unwrap();
    }
    commit(checkout.root(), "sessions");
    let error = checkout.error("sessions");
    let advice = "name a revision with results/build/sessions.jsonl, or";
    assert!(error.contains(advice), "{error}");

    std::fs::remove_dir_all(&session).unwrap();
    checkout.write_tables();
    commit(checkout.root(), "tables");
    let first = git(checkout.root(), &["log", "-1", "--format=%h"]);
    let error_with_tables = checkout.error("sessions");
    for part in [
        "the results of sessions are folders of sessions, \
         from before there was one table per GPU model",
        &format!("name {} of 20", first.trim()),
        "or check sessions out and read them with its own `compare`",
    ] {
        assert!(error_with_tables.contains(part), "{error_with_tables}");
    }
}

#[test]
fn a_revision_that_a_shallow_clone_lacks_is_told_from_one_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let whole = folder.path().join("whole");
    std::fs::create_dir(&whole).unwrap();
    git(&whole, &["init", "--quiet", "--initial-branch", "main"]);
    commit(&whole, "first");
    commit(&whole, "second");
    let url = format!("file://{}", whole.display());
    git(
        folder.path(),
        &["clone", "--quiet", "--depth", "1", &url, "shallow"],
    );
    let error = |clone: &str| {
        let root = folder.path().join(clone);
        let error = source::resolve("HEAD~5", Some(&root), &ladder()).unwrap_err();
        error.to_string()
    };
    let of_shallow = error("shallow");
    let advice = "run `git fetch --unshallow`";
    assert!(of_shallow.ends_with(advice), "{of_shallow}");
    let of_whole = error("whole");
    let reason = "is neither a folder nor a git revision; give";
    assert!(of_whole.contains(reason), "{of_whole}");
}

#[test]
fn terms_are_those_that_compare_printed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("base.terms");
    std::fs::write(&path, r#"{"stages":[]}"#).unwrap();
    assert_eq!(read_terms(&path).unwrap(), Terms::default());
    std::fs::write(&path, "error: unrecognized subcommand").unwrap();
    let error = read_terms(&path).unwrap_err().to_string();
    assert!(
        error.ends_with("base.terms is no output of `compare terms`"),
        "{error}"
    );
}
