//! Atomic writes, files of a JSON value a line, and the folders of runs.

use super::error::{Result, StoreError};
use serde::Serialize;
use serde::de::{DeserializeOwned, Error};
use std::convert::Infallible;
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of a run's session.
pub const SESSION: &str = "session.json";

/// A file of a table.
#[derive(Debug, PartialEq, Eq)]
pub struct TableFile {
    /// The path below the table's folder, or below `results/` if it is one of all tables.
    pub path: String,
    pub bytes: Vec<u8>,
}

impl TableFile {
    pub(super) fn new(path: impl Into<String>, bytes: Vec<u8>) -> Self {
        Self {
            path: path.into(),
            bytes,
        }
    }
}

/// Returns whether a folder is that of a run.
pub fn is_run(folder: &Path) -> bool {
    folder.join(SESSION).is_file()
}

/// Returns the name of a file or folder, whatever link or `..` leads to it.
pub fn name_of(path: &Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    resolved
        .file_name()
        .map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// Returns whether `path` leads to a device, pipe or socket, which is written to and never
/// replaced.
pub fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Replaces the file at `path` with `bytes` atomically: a reader sees the old file or the new one,
/// never a part. A link to a file stays a link, and a device or pipe is written to directly.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<()> {
    let fail = StoreError::write(path);
    if is_stream(path) {
        let mut stream = fs::OpenOptions::new()
            .write(true)
            .open(path)
            .map_err(&fail)?;
        return stream.write_all(bytes).map_err(fail);
    }
    let target = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let Some(name) = target.file_name() else {
        return Err(fail(io::ErrorKind::InvalidFilename.into()));
    };
    let folder = match target.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    fs::create_dir_all(folder).map_err(&fail)?;
    let (temporary, mut file) = create_beside(folder, name).map_err(&fail)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &target));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        fail(source)
    })
}

/// Creates a file in `folder` that no other writer of `name` has, whatever its process number.
/// Whatever lists runs skips its name, for the leading dot.
fn create_beside(folder: &Path, name: &OsStr) -> io::Result<(PathBuf, fs::File)> {
    let mut number = 1;
    loop {
        let path = folder.join(format!(".{}.{number}.tmp", name.to_string_lossy()));
        match fs::File::create_new(&path) {
            Ok(file) => return Ok((path, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    }
}

/// Returns what lies in a folder, in no order; nothing if there is none.
pub fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = StoreError::read(folder);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(&fail)?,
    };
    let mut paths = Vec::new();
    for entry in entries {
        paths.push(entry.map_err(&fail)?.path());
    }
    Ok(paths)
}

/// Returns the bytes of a file; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StoreError::read(path)(error)),
    }
}

/// Creates a folder `name`, or `name-2` and so on if that is taken.
pub fn create_folder(dir: &Path, name: &str) -> Result<PathBuf> {
    fs::create_dir_all(dir).map_err(StoreError::write(dir))?;
    let mut number = 1;
    loop {
        let folder = match number {
            1 => dir.join(name),
            _ => dir.join(format!("{name}-{number}")),
        };
        match fs::create_dir(&folder) {
            Ok(()) => return Ok(folder),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(StoreError::write(&folder)(error)),
        }
    }
}

/// Returns the lines of a file; `path` is for messages.
pub(super) fn lines<T: DeserializeOwned>(text: &[u8], path: &Path) -> Result<Vec<T>> {
    checked_lines(text, path, |_| None::<Infallible>)
}

/// Returns the lines of a file, unless `refuse` has a reason against one; `path` is for messages.
pub(super) fn checked_lines<T: DeserializeOwned, E: Display>(
    text: &[u8],
    path: &Path,
    refuse: impl Fn(&T) -> Option<E>,
) -> Result<Vec<T>> {
    let mut values = Vec::new();
    for (line, number) in text.split(|byte| *byte == b'\n').zip(1..) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let malformed = |source| StoreError::Malformed {
            path: path.to_path_buf(),
            line: number,
            source,
        };
        let value = serde_json::from_slice(line).map_err(malformed)?;
        if let Some(reason) = refuse(&value) {
            return Err(malformed(serde_json::Error::custom(reason)));
        }
        values.push(value);
    }
    Ok(values)
}

pub(super) fn to_lines<T: Serialize>(items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        serde_json::to_writer(&mut bytes, &item).expect("rows have no map keys but strings");
        bytes.push(b'\n');
    }
    bytes
}

#[cfg(test)]
mod tests;
