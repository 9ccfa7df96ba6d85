//! What BASE and NEW name: the folder of a run, a folder of tables, or a git revision.

use crate::answer::NoData;
use crate::table::files::is_run;
use crate::table::files::name_of;
use crate::table::merge::FILES;
use crate::table::run::newest_run;
use crate::table::{Results, Run, Session, StageMeta};
use anyhow::{Context, anyhow, bail};
use common::device::BackendKind;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

#[derive(Debug)]
pub struct Side {
    pub name: String,
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
    let results = match path.is_dir() {
        true => Results::read(path).with_context(cannot)?,
        false => revision(name, root)?,
    };
    if results.is_empty() {
        bail!(NoData(format!(
            "{name} has neither runs nor tables; name the folder of a run, results/, or a git revision with tables (`compare accept`)"
        )));
    }
    Ok(Side {
        name: name.to_string(),
        results,
        run: None,
    })
}

/// The tables that are committed at a revision. Neither the index nor the work tree of the checkout is touched.
fn revision(name: &str, root: Option<&Path>) -> anyhow::Result<Results> {
    let root = root.with_context(|| {
        format!("'{name}' is not a folder, and there are no revisions outside of the workspace; go there")
    })?;
    let commit = format!("{name}^{{commit}}");
    let parse = [
        "rev-parse",
        "--verify",
        "--quiet",
        "--end-of-options",
        &commit,
    ];
    let sha = git(root, &parse).map_err(|why| {
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        anyhow!("'{name}' is neither a folder nor a git revision{why}; give the folder of a run, a folder of tables, or a revision")
    })?;
    let sha = String::from_utf8_lossy(&sha).trim().to_string();
    let list = ["ls-tree", "-r", "--name-only", "-z", &sha, "--", "results"];
    let cannot = |why: String| anyhow!("git cannot read results/ of {name}: {why}");
    let list = git(root, &list).map_err(cannot)?;
    let mut results = Results::default();
    let list = String::from_utf8_lossy(&list);
    let mut paths: Vec<&str> = list.split('\0').collect();
    paths.sort_by_key(|path| FILES.iter().position(|file| path.ends_with(file)));
    for path in paths {
        let [_, folder, file] = path.split('/').collect::<Vec<_>>()[..] else {
            continue;
        };
        if FILES.contains(&file) {
            let text = git(root, &["show", &format!("{sha}:{path}")]).map_err(cannot)?;
            let origin = PathBuf::from(format!("{name}:{path}"));
            results.table_mut(folder).parse(file, &text, &origin)?;
        }
    }
    Ok(results)
}

/// What git prints; the error is its message.
fn git(root: &Path, arguments: &[impl AsRef<OsStr>]) -> Result<Vec<u8>, String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .output()
        .map_err(|error| format!("git cannot be started: {error}"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(String::from_utf8_lossy(&output.stderr).trim().to_string()),
    }
}
