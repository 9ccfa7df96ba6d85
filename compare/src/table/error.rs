//! Errors of reading and writing runs.

use std::io;
use std::path::{Path, PathBuf};

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
    #[error("{}: duplicate row of {row}", path.display())]
    Twice { path: PathBuf, row: String },
    #[error("{}: {row} was timed on {gpu}, and the table is of {newest}; take it out", path.display())]
    Unlike {
        path: PathBuf,
        row: String,
        gpu: String,
        newest: String,
    },
    #[error("{} has {found} of the {written} rows that were written; copy the run again", path.display())]
    Lost {
        path: PathBuf,
        found: usize,
        written: usize,
    },
    #[error("{} is not a run: it has no session.json; name a folder that `compare run` of this version wrote", path.display())]
    NoRun { path: PathBuf },
}

impl StoreError {
    pub fn read(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Read {
            path: path.to_path_buf(),
            source,
        }
    }

    pub fn write(path: &Path) -> impl Fn(io::Error) -> Self {
        move |source| Self::Write {
            path: path.to_path_buf(),
            source,
        }
    }

    /// For a file that is one JSON document.
    pub fn malformed(path: &Path) -> impl Fn(serde_json::Error) -> Self {
        move |source| Self::Malformed {
            path: path.to_path_buf(),
            line: source.line(),
            source,
        }
    }
}
