use super::*;
use crate::document::markdown::markdown;
use crate::testing::git::{self, run as git};
use crate::testing::scenario::{self, each};
use crate::testing::{US, ladder, timed};
use std::path::Path;
use tempfile::TempDir;

/// A side in a folder of its own: a run, as `tables` if that is said.
fn side(folder: &TempDir, words: &str) -> Side {
    let path = folder.path().join("run");
    let (words, is_run) = match words.strip_prefix("tables of ") {
        Some(words) => (words, false),
        None => (words, true),
    };
    scenario::run(words).write(&path).unwrap();
    let side = resolve(&path);
    if is_run {
        return side;
    }
    side.results.write(&folder.path().join("tables")).unwrap();
    resolve(&folder.path().join("tables"))
}

fn resolve(path: &Path) -> Side {
    source::resolve(path.to_str().unwrap(), None, &ladder()).unwrap()
}

fn compared(line: &str) -> Comparison {
    let (base, new) = line.split_once(" => ").unwrap();
    let [base, new] = [base, new].map(|words| side(&tempfile::tempdir().unwrap(), words));
    compare(&base, &new, &ladder())
}

/// Of two that differ where nothing is judged there is no data. Where the kernels are the same the machine moved; a part of what tables have
/// is what a run was asked for; a session has one time of a kernel; and a whole table may be gone.
#[test]
fn the_exit_code_says_what_moved() {
    let before = "timed; identity 0 a; identity 1 b; named 1";
    let found = each(
        &format!(
            "{before} => timed
            {before} => timed 32 20 16.5
            {before} => timed 32 20 13
            tables of {before} => timed 32 20 16.5
            tables of {before} => tables of timed 32 20 16.5
            timed => timed 32 20 16.5
            {before} => timed; - scalar all
            tables of {before} => timed; - scalar all
            {before} => emulated
            tables of {before} => tables of {before}
            timed; peers mission 10 torch-flash 20; - !peers => timed; peers mission 10 torch-flash 20; - !peers
            timed; peers mission 10 torch-flash 20; - !peers => timed; peers mission 10 torch-flash 21; - !peers
            tables of timed; + scalar | 1x1x17x64 f16 full | draw | p50 9 => tables of timed; + scalar | 1x1x17x64 f16 full | draw | p50 8
            tables of {before} => tables of emulated
            {before} => {before}
            timed => timed; machine nvidia-l4; card NVIDIA L4
            emulated; + x | : out | input | C2 pass => emulated; + x | : out | input | C2 fail"
        ),
        |line| {
            let found = compared(line);
            let page = markdown(&layout::document(&found, true));
            assert!(found.notes.iter().all(|line| page.contains(line)), "{page}");
            let is_outdated = page.contains("stage1-cpasync: variant: the kernel has changed since");
            let code = found.overall.exit.code();
            format!("{code} {} {:?} {is_outdated}", found.overall.word, found.notes)
        },
    );
    insta::assert_snapshot!(found, @r#"
    timed; identity 0 a; identity 1 b; named 1 => timed
        0 SAME [] false
    timed; identity 0 a; identity 1 b; named 1 => timed 32 20 16.5
        1 REGRESSION [] false
    timed; identity 0 a; identity 1 b; named 1 => timed 32 20 13
        0 IMPROVED [] false
    tables of timed; identity 0 a; identity 1 b; named 1 => timed 32 20 16.5
        1 REGRESSION [] false
    tables of timed; identity 0 a; identity 1 b; named 1 => tables of timed 32 20 16.5
        1 REGRESSION [] false
    timed => timed 32 20 16.5
        3 AMBIGUOUS [] false
    timed; identity 0 a; identity 1 b; named 1 => timed; - scalar all
        3 INCOMPLETE [] false
    tables of timed; identity 0 a; identity 1 b; named 1 => timed; - scalar all
        0 SAME [] false
    timed; identity 0 a; identity 1 b; named 1 => emulated
        0 SAME ["nvidia-h200: only the base has figures of this GPU model"] false
    tables of timed; identity 0 a; identity 1 b; named 1 => tables of timed; identity 0 a; identity 1 b; named 1
        0 SAME [] false
    timed; peers mission 10 torch-flash 20; - !peers => timed; peers mission 10 torch-flash 20; - !peers
        0 SAME [] false
    timed; peers mission 10 torch-flash 20; - !peers => timed; peers mission 10 torch-flash 21; - !peers
        3 NO DATA [] false
    tables of timed; + scalar | 1x1x17x64 f16 full | draw | p50 9 => tables of timed; + scalar | 1x1x17x64 f16 full | draw | p50 8
        0 SAME [] false
    tables of timed; identity 0 a; identity 1 b; named 1 => tables of emulated
        3 INCOMPLETE ["nvidia-h200: only the base has figures of this GPU model"] false
    timed; identity 0 a; identity 1 b; named 1 => timed; identity 0 a; identity 1 b; named 1
        3 INCOMPLETE [] true
    timed => timed; machine nvidia-l4; card NVIDIA L4
        3 NO DATA ["nvidia-h200: only the base has figures of this GPU model", "nvidia-l4: only the new side has figures of this GPU model"] false
    emulated; + x | : out | input | C2 pass => emulated; + x | : out | input | C2 fail
        1 REGRESSION [] false
    "#);
    // Of two GPU models what the build says is said once; a table that is gone is no more than that.
    let two = |words| {
        let mut side = side(&tempfile::tempdir().unwrap(), words);
        let gpus = &mut side.results.gpus;
        gpus.insert("nvidia-l4".into(), gpus["nvidia-h200"].clone());
        side
    };
    let base = two("tables of timed");
    let found = compare(
        &base,
        &two("tables of timed; counted scalar 2097152 0"),
        &ladder(),
    );
    assert!(found.overall.line.starts_with("1 worse, "));
    let one = side(&tempfile::tempdir().unwrap(), "tables of timed");
    let pairs = compare(&base, &one, &ladder()).pairs.into_iter();
    let differences = pairs.map(|(_, pair)| pair.differences.len());
    assert_eq!(differences.sum::<usize>(), 1);
}

fn commit(root: &Path, tag: &str) {
    git::commit(root, tag);
    git(root, &["tag", tag]);
}

/// Of runs and of tables, each in a line of its own.
#[test]
fn a_review_has_one_verdict_on_runs_and_tables() {
    let before = "timed; identity 0 a; identity 1 b; named 1";
    let same = "emulated => emulated".to_string();
    let slower = format!("{before} => timed 32 20 16.5");
    let tables_slower = format!("tables of {before} => tables of timed 32 20 16.5");
    let tables_faster = format!("tables of {before} => tables of timed 32 20 13");
    let tables_same = format!("tables of {before} => tables of {before}");
    let nothing = "timed => timed; machine nvidia-l4; card NVIDIA L4".to_string();
    for (runs, tables, word, code) in [
        (&same, &tables_same, "SAME", 0),
        (&same, &tables_slower, "REGRESSION", 1),
        (&slower, &tables_same, "REGRESSION", 1),
        (&slower, &tables_faster, "MIXED", 1),
        (&same, &tables_faster, "IMPROVED", 0),
        (&nothing, &tables_faster, "NO DATA", 3),
    ] {
        let both = join(compared(runs), compared(tables));
        let found = (both.overall.word, both.overall.exit.code());
        assert_eq!(found, (word, code), "{runs} & {tables}");
        let page = markdown(&layout::document(&both, true));
        assert!(page.starts_with(&format!("**{word}: ")), "{page}");
        assert!(page.contains("Committed tables: "), "{page}");
        let says = page.matches("No action needed").count();
        assert!(says <= usize::from(code == 0), "{page}");
    }
}

#[test]
fn a_base_without_tables_is_noted_and_a_broken_one_is_an_error() {
    let runs = || compared("emulated => emulated");
    let none = NoData("main has neither runs nor tables".into());
    let noted = note_missing_tables(runs(), none.into()).unwrap();
    let says = "Committed tables: NO DATA: main has neither runs nor tables";
    assert_eq!(noted.notes, [says]);
    assert_eq!(noted.overall.word, "SAME");
    let broken = note_missing_tables(runs(), anyhow::anyhow!("line 9 is malformed"));
    assert!(broken.is_err());
}

#[test]
fn a_side_is_a_run_a_folder_of_them_tables_or_a_revision() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let at = |name: &str| root.join(name);
    for name in ["1", "2"] {
        timed(US).write(&at("runs").join(name)).unwrap();
    }
    git(root, &["init", "--quiet", "--initial-branch", "main"]);
    git(root, &["commit", "--quiet", "--allow-empty", "-m", "empty"]);
    git(root, &["tag", "empty"]);
    resolve(&at("runs/1"))
        .results
        .write(&at("results"))
        .unwrap();
    commit(root, "tables");
    let rows = at("results/nvidia-h200/rows.jsonl");
    let fast = r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"peers","session":"20261120T183000Z-linux","p50":1e-9}"#;
    let before = std::fs::read_to_string(&rows).unwrap();
    std::fs::write(&rows, before + fast).unwrap();
    commit(root, "fast");
    std::fs::remove_file(rows).unwrap();
    std::fs::create_dir(at("nothing")).unwrap();
    std::fs::create_dir_all(at("broken")).unwrap();
    timed(US).write(&at("broken")).unwrap();
    std::fs::write(at("broken/rows.jsonl"), "{").unwrap();
    let before = git(root, &["status", "--porcelain"]);

    // Of runs the newest that finished; what was removed from the work tree is gone there alone; a flag is not passed on to git.
    let found = each(
        "ROOT/runs/1
        ROOT/runs
        tables
        fast
        ROOT/results
        ROOT/nothing
        ROOT/broken
        empty
        nowhere
        --all",
        |name| {
            let root_name = root.display().to_string();
            let name = name.replace("ROOT", &root_name);
            let words = match source::resolve(&name, Some(root), &ladder()) {
                Ok(side) => {
                    let table = side.results.of_gpu("nvidia-h200");
                    let (rows, sessions) = (table.rows().count(), table.sessions.len());
                    let is_run = side.run.is_some();
                    format!(
                        "{}: {rows} rows of {sessions} sessions, run {is_run}",
                        side.name
                    )
                }
                Err(error) => {
                    let none = error.downcast_ref::<crate::answer::NoData>().is_some();
                    format!("no data {none}: {error:#}")
                }
            };
            words.replace(&root_name, "ROOT")
        },
    );
    insta::assert_snapshot!(found, @"
    ROOT/runs/1
        1: 15 rows of 1 sessions, run true
    ROOT/runs
        2: 15 rows of 1 sessions, run true
    tables
        tables: 15 rows of 1 sessions, run false
    fast
        no data false: fast:results/nvidia-h200/rows.jsonl: line 9 is malformed: s/v on mission f16 full by peers: 0.000000001 µs, and nothing can take less than 0.543 µs on NVIDIA H200; find out what was timed
    ROOT/results
        no data false: ROOT/results cannot be compared: ROOT/results/nvidia-h200/rows.jsonl: line 1 was taken out after `compare accept` wrote it (session '20261120T183000Z-linux'); a figure is measured, never edited: take the committed file back with `git checkout`, or measure again and accept the run
    ROOT/nothing
        no data true: NO DATA: ROOT/nothing has neither runs nor tables; name the folder of a run, results/, or a git revision with tables (`compare accept`)
    ROOT/broken
        no data false: ROOT/broken cannot be compared: ROOT/broken/rows.jsonl: line 1 is malformed: EOF while parsing an object at line 1 column 1
    empty
        no data true: NO DATA: empty has neither runs nor tables; name the folder of a run, results/, or a git revision with tables (`compare accept`)
    nowhere
        no data false: 'nowhere' is neither a folder nor a git revision; give the folder of a run, a folder of tables, or a revision
    --all
        no data false: '--all' is neither a folder nor a git revision; give the folder of a run, a folder of tables, or a revision
    ");
    let after = git(root, &["status", "--porcelain"]);
    assert_eq!(after, before, "the work tree is not touched");
    // What keeps git from looking is said.
    let error = source::resolve("main", Some(&at("gone")), &ladder()).unwrap_err();
    let says = "'main' is neither a folder nor a git revision (fatal: cannot change to";
    assert!(error.to_string().starts_with(says), "{error}");
    let error = source::resolve("main", None, &ladder()).unwrap_err();
    let says =
        "'main' is not a folder, and there are no revisions outside of the workspace; go there";
    assert_eq!(error.to_string(), says);
}

/// A clone whose tables had no digests first, then had them, and were edited by hand.
#[test]
fn a_revision_is_refused_if_it_was_edited_and_noted_if_that_cannot_be_known() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    let results = root.join("results");
    let of_gpu = |file: &str| results.join("nvidia-h200").join(file);
    let edit = |file: &str, from: &str, to: &str| {
        let text = std::fs::read_to_string(of_gpu(file)).unwrap();
        assert!(text.contains(from), "{file}: {text}");
        std::fs::write(of_gpu(file), text.replace(from, to)).unwrap();
    };
    let digests = |table: &str| results.join(table).join("digests.jsonl");
    git(root, &["init", "--quiet", "--initial-branch", "main"]);
    timed(US).write(&root.join("run")).unwrap();
    let tables = resolve(&root.join("run")).results;
    tables.write(&results).unwrap();
    for table in ["build", "nvidia-h200"] {
        std::fs::remove_file(digests(table)).unwrap();
    }
    commit(root, "before");
    tables.write(&results).unwrap();
    commit(root, "accepted");
    let times = |us: [&str; 3]| {
        format!(
            "\"p50\":{},\"p50_low\":{},\"p50_high\":{}",
            us[0], us[1], us[2]
        )
    };
    let (from, to) = (["32.03", "32.01", "32.04"], ["16.01", "16", "16.02"]);
    edit("rows.jsonl", &times(from), &times(to));
    commit(root, "halved");
    std::fs::remove_file(digests("nvidia-h200")).unwrap();
    commit(root, "half-digested");
    std::fs::remove_file(digests("build")).unwrap();
    commit(root, "undigested");
    tables.write(&results).unwrap();
    edit("sessions.jsonl", "NVIDIA H200", "NVIDIA H100");
    commit(root, "another-gpu");

    let found = each(
        "before\naccepted\nhalved\nhalf-digested\nundigested\nanother-gpu",
        |name| match source::resolve(name, Some(root), &ladder()) {
            Ok(side) => side.note.unwrap_or_default(),
            Err(error) => format!("error: {error:#}"),
        },
    );
    insta::assert_snapshot!(found, @"
    before
        before is from before a table had digests: whether its figures were edited is not known
    accepted
        -
    halved
        error: halved:results/nvidia-h200/rows.jsonl: line 2 was changed or added after `compare accept` wrote it (session '20261120T183000Z-linux'); a figure is measured, never edited: take the committed file back with `git checkout`, or measure again and accept the run
    half-digested
        error: half-digested:results/nvidia-h200 has no digests.jsonl, which tells edited figures from measured ones; take it back with `git checkout`; tables from before it existed are compared as revisions (`compare diff REVISION HEAD`)
    undigested
        error: undigested:results/build has no digests.jsonl, which tells edited figures from measured ones; take it back with `git checkout`; tables from before it existed are compared as revisions (`compare diff REVISION HEAD`)
    another-gpu
        error: another-gpu:results/nvidia-h200/sessions.jsonl: line 1 was changed or added after `compare accept` wrote it (session '20261120T183000Z-linux'); a figure is measured, never edited: take the committed file back with `git checkout`, or measure again and accept the run
    ");
    let side = |name: &str| source::resolve(name, Some(root), &ladder()).unwrap();
    let found = compare(&side("before"), &side("accepted"), &ladder());
    assert_eq!((found.overall.word, found.notes.len()), ("SAME", 1));
    let page = markdown(&layout::document(&found, false));
    assert!(
        page.contains("before is from before a table had digests"),
        "{page}"
    );
}

#[test]
fn results_from_before_tables_are_refused_with_what_can_be_compared() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    git(root, &["init", "--quiet", "--initial-branch", "main"]);
    let session = root.join("results/20261121T053618Z-nvidia-h200");
    std::fs::create_dir_all(&session).unwrap();
    for file in ["meta.json", "rows.jsonl"] {
        std::fs::write(session.join(file), "{}").unwrap();
    }
    commit(root, "sessions");
    let refused = || {
        let error = source::resolve("sessions", Some(root), &ladder()).unwrap_err();
        error.to_string()
    };
    let alone = refused();
    assert!(
        alone.contains("name a revision with results/build/sessions.jsonl, or"),
        "{alone}"
    );
    std::fs::remove_dir_all(&session).unwrap();
    timed(US).write(&root.join("run")).unwrap();
    let tables = resolve(&root.join("run")).results;
    tables.write(&root.join("results")).unwrap();
    commit(root, "tables");
    let first = git(root, &["log", "-1", "--format=%h"]);
    let error = refused();
    for says in [
        "the results of sessions are folders of sessions, from before there was one table per GPU model",
        &format!("name {} of 20", first.trim()),
        "or check sessions out and read them with its own `compare`",
    ] {
        assert!(error.contains(says), "{error}");
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
    let refused = |clone: &str| {
        let root = folder.path().join(clone);
        let error = source::resolve("HEAD~5", Some(&root), &ladder()).unwrap_err();
        error.to_string()
    };
    let shallow = refused("shallow");
    assert!(
        shallow.ends_with("run `git fetch --unshallow`"),
        "{shallow}"
    );
    assert!(refused("whole").contains("is neither a folder nor a git revision; give"));
}
