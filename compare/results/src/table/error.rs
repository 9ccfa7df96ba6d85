//! Errors of reading and writing runs.

use super::names::DIGESTS;
use std::io;
use std::path::{Path, PathBuf};

/// The result of reading or writing runs.
pub type Result<T> = std::result::Result<T, StoreError>;

/// A reason why a run or a table cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("cannot read {}", path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("cannot write {}", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}: line {line} is malformed", path.display())]
    Malformed {
        path: PathBuf,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error(
        "{}: {what} '{name}' is no name of a folder; copy the run again",
        path.display()
    )]
    Name {
        path: PathBuf,
        what: &'static str,
        name: String,
    },
    #[error("{}: duplicate row of {row}", path.display())]
    Twice { path: PathBuf, row: String },
    #[error(
        "{}: {row} was timed on {gpu}, and the table is of {newest}; take it out",
        path.display()
    )]
    Unlike {
        path: PathBuf,
        row: String,
        gpu: String,
        newest: String,
    },
    #[error(
        "{} has {found} of the {written} rows that were written; copy the run again",
        path.display()
    )]
    Lost {
        path: PathBuf,
        found: usize,
        written: usize,
    },
    #[error(
        "{}: line {line} {what} (session '{session}'{}); a figure is measured, never edited: take \
         the committed file back with `git checkout`, or measure again and accept the run",
        path.display(),
        others(*sessions)
    )]
    Edited {
        path: PathBuf,
        line: usize,
        session: String,
        what: &'static str,
        /// The number of sessions that are not as they were written.
        sessions: usize,
    },
    #[error(
        "{} has no {DIGESTS}, which tells edited figures from measured ones; take it back with \
         `git checkout`; tables from before it existed are compared as revisions (`compare diff \
         REVISION HEAD`)",
        path.display()
    )]
    NoDigests { path: PathBuf },
    #[error(
        "{} is not of the format that this version reads; use the version that wrote it",
        path.display()
    )]
    Format { path: PathBuf },
    #[error(
        "{} is not what `compare accept` fitted to the table; take the committed file back with \
         `git checkout`, or accept a run, which fits it again",
        path.display()
    )]
    Choice { path: PathBuf },
    #[error(
        "{} is not a run: it has no session.json; name a folder that `compare run` of this \
         version wrote",
        path.display()
    )]
    NoRun { path: PathBuf },
}

fn others(sessions: usize) -> String {
    match sessions - 1 {
        0 => String::new(),
        1 => ", and another".to_string(),
        more => format!(", and {more} others"),
    }
}

impl StoreError {
    /// Returns the error of a path that cannot be read, by its source.
    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read {
            path: path.to_path_buf(),
            source,
        }
    }

    /// Returns the error of a path that cannot be written, by its source.
    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_path_buf(),
            source,
        }
    }

    /// Returns the error of a file that is one JSON document.
    pub fn malformed(path: &Path) -> impl Fn(serde_json::Error) -> Self {
        move |source| Self::Malformed {
            path: path.to_path_buf(),
            line: source.line(),
            source,
        }
    }
}
