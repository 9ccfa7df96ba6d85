//! What goes wrong with files of records.

use std::io;
use std::path::PathBuf;

/// Why a record cannot be read or written.
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
    #[error("{}: line {line} is not what a record has there", path.display())]
    Malformed {
        path: PathBuf,
        line: usize,
        #[source]
        source: serde_json::Error,
    },
    #[error("{}: two rows of {row}", path.display())]
    Twice { path: PathBuf, row: String },
    #[error("{} has {found} of the {written} rows that were written; copy the record again", path.display())]
    Lost {
        path: PathBuf,
        found: usize,
        written: usize,
    },
    #[error("{} has {}, and this program reads {reads}: use the version of compare that wrote it", path.display(), schema(*found))]
    Schema {
        path: PathBuf,
        found: Option<u64>,
        reads: u32,
    },
    #[error("{} is no record: it has no meta.json", path.display())]
    NoRecord { path: PathBuf },
}

fn schema(found: Option<u64>) -> String {
    found.map_or("no schema".to_string(), |found| format!("schema {found}"))
}
