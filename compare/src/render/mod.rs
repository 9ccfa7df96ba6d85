//! From a [`Report`](crate::comparison::Report) to text: Markdown, JSON, a table for the terminal, plots.

pub mod diff;
pub mod document;
pub mod json;
pub mod markdown;
pub mod plots;

use common::record::store::{StoreError, write_atomically};
use std::path::{Path, PathBuf};

/// Where the ladder table stands in the README.
const LADDER: [&str; 2] = ["<!-- ladder:begin -->", "<!-- ladder:end -->"];

/// A file that rendering produces.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    /// Where it goes.
    pub path: PathBuf,
    /// What goes in it.
    pub text: String,
}

/// COMPARE.md at `path` and its plots beside it, in a folder named after it.
pub fn files(report: &crate::comparison::Report, path: &Path) -> Vec<Rendered> {
    let stem = path.file_stem().map_or_else(|| "COMPARE".into(), |stem| stem.to_string_lossy().to_lowercase());
    let folder = format!("{stem}-plots");
    let plots = plots::plots(report);
    let names: Vec<String> = plots.iter().map(|(name, _)| format!("{folder}/{name}")).collect();
    let beside = path.parent().unwrap_or(Path::new(""));
    let mut files = vec![Rendered { path: path.to_path_buf(), text: markdown::report(report, &names) }];
    files.extend(plots.into_iter().zip(names).map(|((_, text), name)| Rendered { path: beside.join(name), text }));
    files
}

/// `readme` with the ladder table between its markers; `None` if it has no markers.
pub fn readme(readme: &str, report: &crate::comparison::Report) -> Option<String> {
    let begin = readme.find(LADDER[0])? + LADDER[0].len();
    let end = begin + readme[begin..].find(LADDER[1])?;
    Some(format!("{}\n{}{}", &readme[..begin], markdown::ladder(report), &readme[end..]))
}

/// Writes each file at once; plots first, so that COMPARE.md never points at one that is not there.
pub fn write(files: &[Rendered]) -> Result<(), StoreError> {
    files.iter().rev().try_for_each(|file| write_atomically(&file.path, file.text.as_bytes()))
}

#[cfg(test)]
mod tests;
