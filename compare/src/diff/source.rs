//! What BASE and NEW name: folders, committed records, git revisions.

use crate::judge::Named;
use crate::measure::machine;
use crate::record::store::{Found, is_record, read_each};
use crate::record::{Of, Record, Row, StoreError};
use common::device::BackendKind;
use common::metric::Metric;
use common::timing::stats::Summary;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One side of a comparison.
pub struct Side {
    pub name: String,
    /// The newest record of each GPU and backend, oldest first.
    pub records: Vec<Named>,
    /// Records of another format, each with its name as path: they were made, and nothing of them can be compared.
    pub other_format: Vec<StoreError>,
    /// Whether a path led to it. A name in results/ or a revision may be of kernels that were.
    pub is_folder: bool,
    /// Whether all records of a place were asked for, and not one by its name.
    pub is_list: bool,
}

impl Side {
    /// Refuses a side with a record of another format, as every other reader does.
    pub fn in_this_format(mut self) -> Result<Self, SourceError> {
        match self.other_format.pop() {
            Some(source) => Err(SourceError::Store {
                name: self.name,
                source,
            }),
            None => Ok(self),
        }
    }
}

/// Why a name is no side of a comparison.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A record cannot be read.
    #[error("{name} cannot be compared")]
    Store {
        name: String,
        #[source]
        source: StoreError,
    },
    /// A place of records is empty.
    #[error("{name} has no records of the ladder in {place}")]
    NoRecords {
        name: String,
        /// Where they would be.
        place: String,
    },
    /// It is nothing that is known here.
    #[error(
        "{name} is no folder, no record in results/ and no git revision here{why}; give a record's folder, a folder of \
         records, a record's name or a revision"
    )]
    Unknown { name: String, why: String },
    /// Git found the revision and cannot read it.
    #[error("git cannot read results/ of {name}: {why}")]
    Git { name: String, why: String },
    /// No place for a revision's records.
    #[error("cannot write to a temporary folder")]
    Temporary(#[source] std::io::Error),
}

/// The GPU and backend of a record: what may stand beside each other.
pub fn kind((_, record): &Named) -> (BackendKind, Option<&str>) {
    (record.meta.backend, record.meta.gpu())
}

/// Finds what `name` stands for: a folder first, then a record in `results/` of the workspace at `root`, then a revision.
/// With `pool`, records of one kind are sessions of one build, and the newest gets the samples of all.
pub fn resolve(name: &str, root: Option<&Path>, pool: bool) -> Result<Side, SourceError> {
    let store = |source| SourceError::Store {
        name: name.to_string(),
        source,
    };
    let named = Path::new(name);
    let is_folder = named.is_dir();
    let side = |found: Vec<Found>, place: &str, is_list: bool| {
        let (mut records, mut other_format) = (Vec::new(), Vec::new());
        for (name, record) in found {
            match record {
                Ok(record) => records.push((name, record)),
                Err(StoreError::Schema { found, reads, .. }) => {
                    other_format.push(StoreError::Schema {
                        path: name.into(),
                        found,
                        reads,
                    });
                }
                Err(error) => return Err(store(error)),
            }
        }
        if records.is_empty() && other_format.is_empty() {
            return Err(SourceError::NoRecords {
                name: name.to_string(),
                place: place.to_string(),
            });
        }
        Ok(Side {
            name: name.to_string(),
            records: newest_of_each_kind(records, pool),
            other_format,
            is_folder,
            is_list,
        })
    };
    let committed = root
        .map(|root| root.join("results").join(name))
        .filter(|path| is_record(path));
    let folder = if is_folder {
        Some(named.to_path_buf())
    } else {
        committed
    };
    match folder {
        Some(folder) if is_record(&folder) => {
            let name = folder.file_name().map_or_else(
                || name.to_string(),
                |name| name.to_string_lossy().into_owned(),
            );
            side(vec![(name, Record::read(&folder))], "it", false)
        }
        Some(folder) => side(read_each(&folder, Of::Ladder).map_err(store)?, "it", true),
        None => {
            let folder = revision(name, root)?;
            side(
                read_each(&folder.0, Of::Ladder).map_err(store)?,
                "results/ of that revision",
                true,
            )
        }
    }
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

/// Adds what failed in `older` of the same kernels: a session that is green does not make up for one that is not.
fn add_failures(record: &mut Record, older: &Record) {
    for row in &older.rows {
        if row.failure().is_none() || !record.has_source_of(older, &row.subject) {
            continue;
        }
        let Some(at) = record
            .rows
            .iter()
            .position(|other| other.key() == row.key())
        else {
            record.rows.push(row.clone());
            continue;
        };
        for (gate, judged) in row.failed() {
            record.rows[at].judge(gate, judged.clone());
        }
    }
}

/// Adds the raw samples that `older` has of the arms of `record`, of the same kernels, where neither was wrong.
fn add_samples(record: &mut Record, older: &Record) {
    let mut pooled = std::mem::take(&mut record.samples);
    for of_row in &mut pooled {
        let key = (&of_row.subject, &of_row.on, of_row.by, None);
        let then = older.row(&of_row.subject, &of_row.on, of_row.by);
        let is_alike = record.has_source_of(older, &of_row.subject);
        let Some(row) = record.rows.iter_mut().find(|row| row.key() == key) else {
            continue;
        };
        let is_pooled = |then: &Row| then.under == row.under && then.failure().is_none();
        let found = older.samples(&of_row.subject, &of_row.on, of_row.by);
        let Some(found) = found.filter(|_| is_alike && then.is_some_and(is_pooled)) else {
            continue;
        };
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

/// A folder that is removed when it is no longer needed.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The committed results/ of a revision, unpacked through an index of its own: neither the index nor the work tree of the
/// checkout is touched. Empty where the revision has none.
fn revision(name: &str, root: Option<&Path>) -> Result<Temporary, SourceError> {
    let unknown = |why: String| SourceError::Unknown {
        name: name.to_string(),
        why,
    };
    let root =
        root.ok_or_else(|| unknown(" (the current folder is not inside the workspace)".into()))?;
    let commit = format!("{name}^{{commit}}");
    let sha = git(
        root,
        &[
            "rev-parse",
            "--verify",
            "--quiet",
            "--end-of-options",
            &commit,
        ],
        None,
    )
    .map_err(|why| {
        unknown(if why.is_empty() {
            why
        } else {
            format!(" ({why})")
        })
    })?;
    // Two runs at once, and two sides of one run, have folders of their own.
    let folder =
        Temporary(std::env::temp_dir().join(format!("compare-diff-{}-{sha}", std::process::id())));
    std::fs::create_dir_all(&folder.0).map_err(SourceError::Temporary)?;
    let results = format!("{sha}:results");
    if git(root, &["rev-parse", "--verify", "--quiet", &results], None).is_err() {
        return Ok(folder);
    }
    let index = folder.0.join(".index");
    let prefix = format!("--prefix={}/", folder.0.display());
    for arguments in [
        ["read-tree", &results].as_slice(),
        &["checkout-index", "--all", &prefix],
    ] {
        git(root, arguments, Some(&index)).map_err(|why| SourceError::Git {
            name: name.to_string(),
            why,
        })?;
    }
    Ok(folder)
}

/// What git prints, trimmed, or what it says went wrong. `index` stands in for the checkout's.
fn git(root: &Path, arguments: &[&str], index: Option<&Path>) -> Result<String, String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(arguments);
    if let Some(index) = index {
        command.env("GIT_INDEX_FILE", index);
    }
    let output = command
        .output()
        .map_err(|error| format!("git does not start: {error}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_string();
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(text(&output.stderr))
    }
}

/// Whether what checks and times kernels changed between two sources, as far as git can tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Harness {
    Same,
    /// Files below common/ (the kernels' headers left out) and compare/, or the version of `compare`.
    Changed(Vec<String>),
    Unknown(String),
}

impl Harness {
    /// What to do about it where kernels changed too.
    pub fn note(&self, kernels: &[&str]) -> Option<String> {
        const SHOWN: usize = 3;
        match self {
            _ if kernels.is_empty() => None,
            Harness::Same => None,
            Harness::Changed(what) => {
                let more = what.len().saturating_sub(SHOWN);
                let more = if more > 0 {
                    format!(" and {more} more")
                } else {
                    String::new()
                };
                let first = what[..what.len().min(SHOWN)].join(", ");
                Some(format!(
                    "Kernel and harness changed together ({}; {first}{more}): read the harness's change first, since it \
                     judges the kernel's.",
                    kernels.join(", ")
                ))
            }
            Harness::Unknown(why) => Some(format!(
                "Whether the harness changed with the kernel is not known: {why}."
            )),
        }
    }
}

/// Whether what checks and times kernels changed between two commits: common/ without the kernels' headers, and compare/.
/// Tests and texts are left out.
pub fn harness(base: &str, new: &str, dirty: bool) -> Harness {
    let unknown = |reason: &str| Harness::Unknown(reason.to_string());
    let Some(root) = machine::workspace() else {
        return unknown("the current folder is not inside the workspace");
    };
    let exclude = [
        "common/cuda/**",
        "**/tests/**",
        "**/tests.rs",
        "**/*.md",
        "**/*.snap",
    ];
    let exclude: Vec<String> = exclude
        .iter()
        .map(|path| format!(":(exclude,glob){path}"))
        .collect();
    let mut arguments = vec![
        "diff",
        "--name-only",
        "--end-of-options",
        base,
        new,
        "--",
        "common",
        "compare",
    ];
    arguments.extend(exclude.iter().map(String::as_str));
    match git(&root, &arguments, None) {
        Err(_) => unknown("this checkout does not have both commits"),
        Ok(files) if !files.is_empty() => {
            Harness::Changed(files.lines().map(String::from).collect())
        }
        Ok(_) if dirty => unknown("a record was built from uncommitted changes"),
        Ok(_) => Harness::Same,
    }
}
