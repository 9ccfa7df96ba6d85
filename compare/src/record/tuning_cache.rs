//! Reads and writes the file of [`common::tuning`].

use super::error::StoreError;
use super::files;
use common::tuning::SCHEMA;
pub use common::tuning::{Entry, KEPT, Known, Ranked, TuningCache};
use std::path::Path;

/// The file at `path`, if it exists.
pub fn read(path: &Path) -> Result<Option<TuningCache>, StoreError> {
    let Some(bytes) = files::read(path)? else {
        return Ok(None);
    };
    let cache: TuningCache = serde_json::from_slice(&bytes).map_err(StoreError::malformed(path))?;
    match cache.schema {
        SCHEMA => Ok(Some(cache)),
        found => Err(StoreError::Schema {
            path: path.to_path_buf(),
            found: Some(found.into()),
            reads: SCHEMA,
        }),
    }
}

/// Writes the file with one entry per line, so that diffs are readable.
pub fn write(path: &Path, cache: &TuningCache) -> Result<(), StoreError> {
    let TuningCache {
        schema,
        gpu,
        entries,
    } = cache;
    let entry = |entry: &Entry| format!("\n  {}", serde_json::json!(entry));
    let entries: Vec<String> = entries.iter().map(entry).collect();
    let gpu = serde_json::json!(gpu);
    let entries = entries.join(",");
    let text =
        format!("{{\n \"schema\": {schema},\n \"gpu\": {gpu},\n \"entries\": [{entries}\n ]\n}}\n");
    files::write_atomically(path, text.as_bytes())
}
