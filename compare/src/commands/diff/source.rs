//! The sides of a comparison: BASE and NEW name the folder of a run, a folder of tables, or a git
//! revision.

use crate::answer::NoData;
use anyhow::{Context, anyhow, bail};
use common::device::BackendKind;
use results::table::digest::Texts;
use results::table::files::is_run;
use results::table::files::name_of;
use results::table::names;
use results::table::run::newest_run;
use results::table::{Results, Run, Session, StageMeta};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// A side of a comparison: a run, or the tables of a folder or revision.
#[derive(Debug)]
pub struct Side {
    pub name: String,
    /// A remark on what is not known about its tables.
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
        let mut results = Results::default();
        match session.backend {
            BackendKind::Cuda => results.put(Some(&*session.machine.name), &run.table),
            BackendKind::Emulated => {
                results.put(None, &run.table);
                // A given output is not about the build, but there is no other table for its row.
                results.build = run.table;
            }
        }
        Ok(Self {
            name: name_of(folder),
            note: None,
            results,
            run: Some(session),
        })
    }
}

/// Returns what `name` stands for: a folder first, then a revision of the workspace at `root`.
pub fn resolve(name: &str, root: Option<&Path>, stages: &[StageMeta]) -> anyhow::Result<Side> {
    let cannot = || format!("{name} cannot be compared");
    let path = Path::new(name);
    if is_run(path) {
        return Side::of_run(path, stages).with_context(cannot);
    }
    if path.is_dir()
        && let Some(newest) = newest_run(path).with_context(cannot)?
    {
        return Side::of_run(&newest, stages).with_context(cannot);
    }
    let side = if path.is_dir() {
        Side {
            name: name.to_string(),
            note: None,
            results: Results::read(path).with_context(cannot)?,
            run: None,
        }
    } else {
        revision(name, root)?
    };
    if side.results.is_empty() {
        bail!(NoData(format!(
            "{name} has neither runs nor tables; name the folder of a run, results/, \
             or a git revision with tables (`compare accept`)"
        )));
    }
    Ok(side)
}

/// Returns the tables that are committed at a revision. Neither the index nor the work tree of the
/// checkout is touched.
fn revision(name: &str, root: Option<&Path>) -> anyhow::Result<Side> {
    let workspace = root.with_context(|| {
        format!(
            "'{name}' is not a folder, and there are no revisions outside of the workspace; \
             go there"
        )
    })?;
    let sha = commit(name, workspace)?;
    let folders = committed_folders(name, &sha, workspace)?;
    let has_digests = folders.values().any(Texts::has_digests) || had_digests(workspace, &sha)?;
    let mut results = Results::default();
    for (folder, texts) in &folders {
        results.add(folder, texts)?;
        if has_digests {
            results.verify(folder, texts)?;
        }
    }
    let note = (!has_digests).then(|| {
        format!(
            "{name} is from before a table had digests: \
             whether its figures were edited is not known"
        )
    });
    Ok(Side {
        name: name.to_string(),
        note,
        results,
        run: None,
    })
}

/// Returns the files of tables at a commit, by the folder of results/.
fn committed_folders(
    name: &str,
    sha: &str,
    root: &Path,
) -> anyhow::Result<BTreeMap<String, Texts>> {
    let cannot = |error: GitError| anyhow!("git cannot read results/ of {name}: {error}");
    let arguments = ["ls-tree", "-r", "--name-only", "-z", sha, "--", "results"];
    let listed = git(root, &arguments).map_err(cannot)?;
    let mut folders = BTreeMap::new();
    for path in String::from_utf8_lossy(&listed).split('\0') {
        let [results, folder, file] = path.split('/').collect::<Vec<_>>()[..] else {
            continue;
        };
        if file == FILE_BEFORE_TABLES {
            bail!(advice_before_tables(name, root));
        }
        if names::ALL.contains(&file) {
            let text = git(root, &["show", &format!("{sha}:{path}")]).map_err(cannot)?;
            let place = PathBuf::from(format!("{name}:{results}/{folder}"));
            let texts: &mut Texts = folders
                .entry(folder.to_string())
                .or_insert_with(|| Texts::at(&place));
            texts.files.insert(file.to_string(), text);
        }
    }
    Ok(folders)
}

/// Returns the commit that a revision names.
fn commit(name: &str, root: &Path) -> anyhow::Result<String> {
    let commit = format!("{name}^{{commit}}");
    let arguments = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &commit,
    ];
    let error = match git(root, &arguments) {
        Ok(sha) => return Ok(String::from_utf8_lossy(&sha).trim().to_string()),
        Err(error) => error.to_string(),
    };
    let shallow = git(root, &["rev-parse", "--is-shallow-repository"]);
    if shallow.is_ok_and(|answer| answer.starts_with(b"true")) {
        bail!(
            "'{name}' is neither a folder nor a revision of this clone, \
             which is shallow and lacks older ones; run `git fetch --unshallow`"
        );
    }
    let reason = if error.is_empty() {
        String::new()
    } else {
        format!(" ({error})")
    };
    bail!(
        "'{name}' is neither a folder nor a git revision{reason}; \
         give the folder of a run, a folder of tables, or a revision"
    )
}

/// Whether the tables of the commit's history ever had digests, so that one without them has lost
/// them.
fn had_digests(root: &Path, sha: &str) -> anyhow::Result<bool> {
    let arguments = [
        "log",
        "-1",
        "--format=%h",
        sha,
        "--",
        "results/*/digests.jsonl",
    ];
    let commits =
        git(root, &arguments).map_err(|error| anyhow!("git cannot read the history: {error}"))?;
    Ok(!commits.is_empty())
}

/// The file that a session's folder in `results/` had beside its rows before there were tables.
const FILE_BEFORE_TABLES: &str = "meta.json";

/// Returns what can be compared instead of a revision whose results are folders of sessions.
fn advice_before_tables(name: &str, root: &Path) -> String {
    let arguments = [
        "log",
        "--reverse",
        "--diff-filter=A",
        "--format=%h of %as",
        "--",
        "results/build/sessions.jsonl",
    ];
    let log = git(root, &arguments).unwrap_or_default();
    let first = match String::from_utf8_lossy(&log).lines().next() {
        Some(first) => format!("{first} or later"),
        None => "a revision with results/build/sessions.jsonl".to_string(),
    };
    format!(
        "the results of {name} are folders of sessions, from before there was one table per GPU \
         model, and cannot be compared; name {first}, or check {name} out and read them with its \
         own `compare`"
    )
}

/// The reason why git returned nothing.
#[derive(Debug, thiserror::Error)]
enum GitError {
    #[error("git cannot be started: {0}")]
    Start(#[from] std::io::Error),
    /// Git's own message.
    #[error("{0}")]
    Failed(String),
}

/// Returns what git prints.
fn git(root: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, GitError> {
    let output = crate::git::git(root).args(arguments).output()?;
    if !output.status.success() {
        let message = String::from_utf8_lossy(&output.stderr);
        return Err(GitError::Failed(message.trim().to_string()));
    }
    Ok(output.stdout)
}
