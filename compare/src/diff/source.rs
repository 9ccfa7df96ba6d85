//! What BASE and NEW name: folders, committed records, git revisions.

use crate::instrument::process::Scratch;
use crate::judge::Named;
use crate::measure::machine;
use crate::record::files::name_of;
use crate::record::store::{Found, is_record, read_each};
use crate::record::{Record, StoreError};
use anyhow::{Context, anyhow};
use common::device::BackendKind;
use common::metric::Metric;
use common::timing::stats::Summary;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One side of a comparison.
pub struct Side {
    pub name: String,
    /// The newest record of each GPU and backend, oldest first.
    pub records: Vec<Named>,
    /// Records of another format, each with its name as path: they exist, and nothing of them can be compared.
    pub other_format: Vec<StoreError>,
    /// Whether its name is a path. A name in results/ or a revision may be of earlier kernels.
    pub is_folder: bool,
    /// Whether it is all records of a place, and not one by its name.
    pub is_list: bool,
}

impl Side {
    /// Refuses a side with a record of another format, as every other reader does.
    pub fn in_this_format(mut self) -> anyhow::Result<Self> {
        match self.other_format.pop() {
            Some(error) => Err(error).with_context(|| format!("{} cannot be compared", self.name)),
            None => Ok(self),
        }
    }

    /// That there are no records, if so.
    pub fn none(&self) -> Option<String> {
        let place = if self.is_folder {
            ""
        } else {
            " in its results/"
        };
        let is_empty = self.records.is_empty() && self.other_format.is_empty();
        is_empty.then(|| format!("{} has no records of the ladder{place}", self.name))
    }
}

/// The GPU and backend of a record: only records of the same are compared.
pub fn kind((_, record): &Named) -> (BackendKind, Option<&str>) {
    (record.meta.backend, record.meta.gpu())
}

/// Finds what `name` stands for: a folder first, then a record in `results/` of the workspace at `root`, then a revision.
/// With `pool`, records of one kind are sessions of one build, and the newest gets the samples of all.
pub fn resolve(name: &str, root: Option<&Path>, pool: bool) -> anyhow::Result<Side> {
    let cannot = || format!("{name} cannot be compared");
    let is_folder = Path::new(name).is_dir();
    let path = match root {
        Some(root) if !is_folder => root.join("results").join(name),
        _ => PathBuf::from(name),
    };
    let is_list = !is_record(&path);
    let found: Vec<Found> = if !is_list {
        vec![(name_of(&path), Record::read(&path))]
    } else if is_folder {
        read_each(&path).with_context(cannot)?
    } else {
        let committed = revision(name, root)?;
        read_each(&committed.path("")).with_context(cannot)?
    };
    let (mut records, mut other_format) = (Vec::new(), Vec::new());
    for (name, record) in found {
        match record {
            Err(StoreError::Schema { found, reads, .. }) => {
                other_format.push(StoreError::Schema {
                    path: name.into(),
                    found,
                    reads,
                });
            }
            record => records.push((name, record.with_context(cannot)?)),
        }
    }
    Ok(Side {
        name: name.to_string(),
        records: newest_of_each_kind(records, pool),
        other_format,
        is_folder,
        is_list,
    })
}

/// The last of each kind, in order; one of some stages with what those before it say of the others.
fn newest_of_each_kind(records: Vec<Named>, pool: bool) -> Vec<Named> {
    let mut newest: Vec<Named> = Vec::new();
    for mut record in records {
        if let Some(at) = newest.iter().position(|other| kind(other) == kind(&record)) {
            let (_, older) = newest.remove(at);
            if record.1.is_of_stages() {
                record.1 = record.1.on_top_of(&older);
            }
            if pool {
                add_failures(&mut record.1, &older);
                add_samples(&mut record.1, &older);
            }
        }
        newest.push(record);
    }
    newest
}

/// Adds what failed in `older` of the same kernels: a green session does not make up for one that is not.
fn add_failures(record: &mut Record, older: &Record) {
    for row in &older.rows {
        if row.failure().is_none() || !record.has_source_of(older, &row.subject) {
            continue;
        }
        match record.rows.iter_mut().find(|own| own.key() == row.key()) {
            Some(own) => {
                let failed = row.failed();
                failed.for_each(|(gate, judged)| own.judge(gate, judged.clone()));
            }
            None => record.rows.push(row.clone()),
        }
    }
}

/// Adds the raw samples that `older` has of the arms of `record`, of the same kernels, where neither was wrong.
fn add_samples(record: &mut Record, older: &Record) {
    let mut pooled = std::mem::take(&mut record.samples);
    for of_row in &mut pooled {
        let (subject, on, by) = (&of_row.subject, &of_row.on, of_row.by);
        let (then, found) = (older.row(subject, on, by), older.samples(subject, on, by));
        let is_alike = record.has_source_of(older, subject);
        let mut rows = record.rows.iter_mut();
        let row = rows.find(|row| row.key() == (subject, on, by, None));
        let (Some(row), Some(then), Some(found)) = (row, then, found) else {
            continue;
        };
        if !is_alike || then.under != row.under || then.failure().is_some() {
            continue;
        }
        of_row.device_ns.extend(&found.device_ns);
        let us: Vec<f64> = of_row.device_ns.iter().map(|ns| ns / 1e3).collect();
        if let Ok(summary) = Summary::of(&us) {
            let p50 = (&summary).into();
            let figures = [(Metric::P50, p50), (Metric::P90, summary.p90.into())];
            row.figures.extend(figures);
        }
    }
    record.samples = pooled;
}

/// The committed results/ of a revision, unpacked through an index of its own: neither the index nor the work tree of the
/// checkout is touched. Empty where the revision has none.
fn revision(name: &str, root: Option<&Path>) -> anyhow::Result<Scratch> {
    let parse =
        |of: &str| ["rev-parse", "--verify", "--quiet", "--end-of-options", of].map(String::from);
    let sha = match root {
        Some(root) => git(root, &parse(&format!("{name}^{{commit}}")), None),
        None => Err("the current folder is not inside the workspace".to_string()),
    };
    let sha = sha.map_err(|why| {
        let why = if why.is_empty() { why } else { format!(" ({why})") };
        anyhow!(
            "{name} is not a folder, a record in results/ or a git revision here{why}; give a record's folder, a folder of \
             records, a record's name or a revision"
        )
    })?;
    let root = root.expect("a revision was found in it");
    // Two runs at once, and two sides of one run, have folders of their own.
    let folder = Scratch::new(&format!("diff-{sha}"))?;
    let results = format!("{sha}:results");
    if git(root, &parse(&results), None).is_err() {
        return Ok(folder);
    }
    let index = folder.path(".index");
    let prefix = format!("--prefix={}", folder.path("").display());
    for arguments in [
        ["read-tree", &results].as_slice(),
        &["checkout-index", "--all", &prefix],
    ] {
        git(root, arguments, Some(&index))
            .map_err(|why| anyhow!("git cannot read results/ of {name}: {why}"))?;
    }
    Ok(folder)
}

/// What git prints, trimmed; the error is its message. `index` is used in place of the checkout's.
fn git(
    root: &Path,
    arguments: &[impl AsRef<OsStr>],
    index: Option<&Path>,
) -> Result<String, String> {
    let output = Command::new("git")
        .arg("-C")
        .arg(root)
        .args(arguments)
        .envs(index.map(|index| ("GIT_INDEX_FILE", index)))
        .output()
        .map_err(|error| format!("git cannot be started: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(text(&output.stderr)),
    }
}

/// What changed, between two commits, of what checks and times kernels: common/ without the kernels' headers, and compare/, without
/// tests and texts. The error is why that is not known.
pub fn harness(base: &str, new: &str, dirty: bool) -> Result<Vec<String>, String> {
    let root = machine::workspace().ok_or("the current folder is not inside the workspace")?;
    let arguments = [
        "diff",
        "--name-only",
        "--end-of-options",
        base,
        new,
        "--",
        "common",
        "compare",
        ":(exclude,glob)common/cuda/**",
        ":(exclude,glob)**/tests/**",
        ":(exclude,glob)**/tests.rs",
        ":(exclude,glob)**/*.md",
        ":(exclude,glob)**/*.snap",
    ];
    let files = git(&root, &arguments, None)
        .map_err(|_| "this checkout does not have both commits".to_string())?;
    if files.is_empty() && dirty {
        return Err("a record was built from uncommitted changes".to_string());
    }
    Ok(files.lines().map(String::from).collect())
}
