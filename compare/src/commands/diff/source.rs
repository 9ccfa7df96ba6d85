//! What BASE and NEW name: the folder of a run, a folder of tables, or a git revision.

use crate::answer::NoData;
use crate::table::digest::Texts;
use crate::table::files::is_run;
use crate::table::files::name_of;
use crate::table::names;
use crate::table::run::newest_run;
use crate::table::{Results, Run, Session, StageMeta};
use anyhow::{Context, anyhow, bail};
use common::device::BackendKind;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

#[derive(Debug)]
pub struct Side {
    pub name: String,
    /// What is not known of its tables.
    pub note: Option<String>,
    pub results: Results,
    pub run: Option<Session>,
}

impl Side {
    fn of_run(folder: &Path, stages: &[StageMeta]) -> anyhow::Result<Self> {
        let mut run = Run::read(folder, stages)?;
        let session = run.session.clone();
        run.table
            .sessions
            .insert(session.name.clone(), session.clone());
        let gpu = Some(&*session.machine.name).filter(|_| session.backend == BackendKind::Cuda);
        let mut results = Results::default();
        results.put(gpu, &run.table);
        if gpu.is_none() {
            // What is said of a given output is not of the build, but there is no other table for it.
            results.build = run.table;
        }
        Ok(Self {
            name: name_of(folder),
            note: None,
            results,
            run: Some(session),
        })
    }
}

/// Finds what `name` stands for: a folder first, then a revision of the workspace at `root`.
pub fn resolve(name: &str, root: Option<&Path>, stages: &[StageMeta]) -> anyhow::Result<Side> {
    let cannot = || format!("{name} cannot be compared");
    let path = Path::new(name);
    let run = match path {
        run if is_run(run) => Some(run.to_path_buf()),
        folder if folder.is_dir() => newest_run(folder).with_context(cannot)?,
        _ => None,
    };
    if let Some(run) = run {
        return Side::of_run(&run, stages).with_context(cannot);
    }
    let side = match path.is_dir() {
        true => Side {
            name: name.to_string(),
            note: None,
            results: Results::read(path).with_context(cannot)?,
            run: None,
        },
        false => revision(name, root)?,
    };
    if side.results.is_empty() {
        bail!(NoData(format!(
            "{name} has neither runs nor tables; name the folder of a run, results/, or a git revision with tables (`compare accept`)"
        )));
    }
    Ok(side)
}

/// The tables that are committed at a revision. Neither the index nor the work tree of the checkout is touched.
fn revision(name: &str, root: Option<&Path>) -> anyhow::Result<Side> {
    let root = root.with_context(|| {
        format!("'{name}' is not a folder, and there are no revisions outside of the workspace; go there")
    })?;
    let sha = commit(name, root)?;
    let cannot = |why: String| anyhow!("git cannot read results/ of {name}: {why}");
    let list = ["ls-tree", "-r", "--name-only", "-z", &sha, "--", "results"];
    let list = git(root, &list).map_err(cannot)?;
    let list = String::from_utf8_lossy(&list);
    let mut folders: BTreeMap<&str, Texts> = BTreeMap::new();
    for path in list.split('\0') {
        let [results, folder, file] = path.split('/').collect::<Vec<_>>()[..] else {
            continue;
        };
        if file == BEFORE_TABLES {
            bail!(before_tables(name, root));
        }
        if names::ALL.contains(&file) {
            let text = git(root, &["show", &format!("{sha}:{path}")]).map_err(cannot)?;
            let folder = folders
                .entry(folder)
                .or_insert_with(|| Texts::at(&PathBuf::from(format!("{name}:{results}/{folder}"))));
            folder.files.insert(file.to_string(), text);
        }
    }
    let has_digests = folders.values().any(Texts::has_digests) || had_digests(root, &sha)?;
    let mut results = Results::default();
    for (folder, texts) in &folders {
        results.add(folder, texts)?;
        if has_digests {
            results.verify(folder, texts)?;
        }
    }
    let note = format!(
        "{name} is from before a table had digests: whether its figures were edited is not known"
    );
    Ok(Side {
        name: name.to_string(),
        note: Some(note).filter(|_| !has_digests),
        results,
        run: None,
    })
}

/// The commit that a revision names.
fn commit(name: &str, root: &Path) -> anyhow::Result<String> {
    let commit = format!("{name}^{{commit}}");
    let parse = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &commit,
    ];
    let why = match git(root, &parse) {
        Ok(sha) => return Ok(String::from_utf8_lossy(&sha).trim().to_string()),
        Err(why) => why,
    };
    let shallow = git(root, &["rev-parse", "--is-shallow-repository"]);
    if shallow.is_ok_and(|answer| answer.starts_with(b"true")) {
        bail!(
            "'{name}' is neither a folder nor a revision of this clone, which is shallow and lacks older ones; run `git fetch --unshallow`"
        );
    }
    let why = if why.is_empty() {
        why
    } else {
        format!(" ({why})")
    };
    bail!(
        "'{name}' is neither a folder nor a git revision{why}; give the folder of a run, a folder of tables, or a revision"
    )
}

/// Whether the tables of the commit's history ever had digests, so that one without them has lost them.
fn had_digests(root: &Path, sha: &str) -> anyhow::Result<bool> {
    let log = [
        "log",
        "-1",
        "--format=%h",
        sha,
        "--",
        "results/*/digests.jsonl",
    ];
    let found = git(root, &log).map_err(|why| anyhow!("git cannot read the history: {why}"))?;
    Ok(!found.is_empty())
}

/// What a session's folder in `results/` had beside its rows before there were tables.
const BEFORE_TABLES: &str = "meta.json";

/// Says what can be compared instead of a revision whose results are folders of sessions.
fn before_tables(name: &str, root: &Path) -> String {
    let log = [
        "log",
        "--reverse",
        "--diff-filter=A",
        "--format=%h of %as",
        "--",
        "results/build/sessions.jsonl",
    ];
    let log = git(root, &log).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let first = log.lines().next().map_or_else(
        || "a revision with results/build/sessions.jsonl".to_string(),
        |first| format!("{first} or later"),
    );
    format!(
        "the results of {name} are folders of sessions, from before there was one table per GPU model, and cannot be compared; name \
         {first}, or check {name} out and read them with its own `compare`"
    )
}

/// What git prints; the error is its message.
fn git(root: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, String> {
    let output = crate::git::git(root)
        .args(arguments)
        .output()
        .map_err(|error| format!("git cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}
