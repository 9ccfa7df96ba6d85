//! The folder of a record: read whole, written file by file, each file replaced at once or not at all.

use super::{BuildMeta, Correctness, Evidence, Negative, Performance, Record, SCHEMA};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of [`BuildMeta`].
pub const BUILD_META: &str = "build_meta.json";
/// The file of [`Correctness`].
pub const CORRECTNESS: &str = "correctness_summary.json";
/// The file of [`Performance`].
pub const PERFORMANCE: &str = "perf_baseline.json";
/// The file of [`Evidence`].
pub const EVIDENCE: &str = "evidence.json";
/// The file of [`Negative`].
pub const NEGATIVE: &str = "negative.json";

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is not a record file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The record was written by another version.
    #[error("{} has schema {found}; this program reads schema {SCHEMA}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// Replaces the file at `path` with `bytes`, at once: a reader sees the old file or the new one, never a part.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let fail = |source| StoreError::Write { path: path.to_path_buf(), source };
    let name = path.file_name().ok_or_else(|| fail(io::Error::new(io::ErrorKind::InvalidInput, "not a file name")))?;
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(parent).map_err(fail)?;
    if path.is_dir() {
        return Err(fail(io::Error::new(io::ErrorKind::IsADirectory, "is a folder")));
    }
    // The process id keeps two runs apart; a name with a leading dot is skipped by everything that lists records.
    let temporary = parent.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        fail(source)
    })
}

/// Writes `value` as JSON, one level of the top arrays per line, so that a diff shows the rows that changed.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    write_atomically(path, &to_json(value))
}

/// The bytes that [`write_json`] writes.
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let value = serde_json::to_value(value).expect("records hold no maps with keys that are not strings");
    let mut text = String::new();
    write_value(&mut text, &value, 0);
    text.push('\n');
    text.into_bytes()
}

/// Objects are split over lines to this depth, arrays of objects always; deeper values are compact.
const SPLIT_DEPTH: usize = 1;

fn write_value(out: &mut String, value: &serde_json::Value, depth: usize) {
    use serde_json::Value;
    match value {
        Value::Object(fields) if depth < SPLIT_DEPTH && !fields.is_empty() => {
            out.push_str("{\n");
            for (i, (name, field)) in fields.iter().enumerate() {
                out.push_str(if i == 0 { " " } else { ",\n " });
                out.push_str(&Value::String(name.clone()).to_string());
                out.push_str(": ");
                write_value(out, field, depth + 1);
            }
            out.push_str("\n}");
        }
        Value::Array(items) if depth <= SPLIT_DEPTH && items.iter().any(Value::is_object) => {
            out.push_str("[\n");
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "  " } else { ",\n  " });
                out.push_str(&item.to_string());
            }
            out.push_str("\n ]");
        }
        other => out.push_str(&other.to_string()),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let bytes = fs::read(path).map_err(|source| StoreError::Read { path: path.to_path_buf(), source })?;
    let malformed = |source| StoreError::Malformed { path: path.to_path_buf(), source };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(malformed)?;
    if let Some(found) = value.get("schema").and_then(serde_json::Value::as_u64).filter(|&v| v != u64::from(SCHEMA)) {
        return Err(StoreError::Schema { path: path.to_path_buf(), found });
    }
    serde_json::from_value(value).map_err(malformed)
}

fn read_optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    if path.exists() { read_json(path).map(Some) } else { Ok(None) }
}

impl Record {
    /// Reads the record in `dir`.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            meta: read_json::<BuildMeta>(&dir.join(BUILD_META))?,
            correctness: read_json::<Correctness>(&dir.join(CORRECTNESS))?,
            performance: read_optional::<Performance>(&dir.join(PERFORMANCE))?,
            evidence: read_json::<Evidence>(&dir.join(EVIDENCE))?,
            negative: read_optional::<Negative>(&dir.join(NEGATIVE))?,
        })
    }

    /// The record's files: name and bytes.
    pub fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut files = vec![
            (BUILD_META, to_json(&self.meta)),
            (CORRECTNESS, to_json(&self.correctness)),
            (EVIDENCE, to_json(&self.evidence)),
        ];
        files.extend(self.performance.as_ref().map(|performance| (PERFORMANCE, to_json(performance))));
        files.extend(self.negative.as_ref().map(|negative| (NEGATIVE, to_json(negative))));
        files
    }

    /// Writes every file of the record into `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), StoreError> {
        self.files().iter().try_for_each(|(name, bytes)| write_atomically(&dir.join(name), bytes))
    }
}

/// The records in `dir`, oldest first, by folder name; none if there is no such folder.
pub fn read_all(dir: &Path) -> Result<Vec<(String, Record)>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StoreError::Read { path: dir.to_path_buf(), source }),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().join(BUILD_META).is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .filter(|name| !name.starts_with('.'))
        .collect();
    names.sort();
    names.into_iter().map(|name| Record::read(&dir.join(&name)).map(|record| (name, record))).collect()
}
