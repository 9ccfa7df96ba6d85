//! From a [`Report`](crate::comparison::Report) to text: Markdown, a page, JSON, charts.

pub mod brief;
pub mod charts;
pub mod diff;
pub mod document;
pub mod history;
mod html;
pub mod json;
pub mod markdown;
pub mod terminal;

use common::record::store::{StoreError, is_stream, write_atomically};
use std::ops::Range;
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

/// The page that goes with the report at `path`: the workspace's own has the name that people look for, another report's is
/// named after it.
pub fn page_beside(path: &Path) -> PathBuf {
    let is_own = path.file_stem().is_none_or(|stem| stem == "COMPARE");
    if is_own { path.with_file_name("report.html") } else { path.with_extension("html") }
}

/// COMPARE.md at `path`; beside it the same as a page, and its charts in a folder named after it.
pub fn files(report: &crate::comparison::Report, path: &Path) -> Vec<Rendered> {
    // Nothing lies beside a pipe.
    if is_stream(path) {
        return vec![Rendered { path: path.to_path_buf(), text: markdown::report(report, &[]) }];
    }
    let stem = path.file_stem().map_or_else(|| "COMPARE".into(), |stem| stem.to_string_lossy().into_owned());
    let folder = format!("{}-plots", stem.to_lowercase());
    let pictures: Vec<Picture> = charts::all(report)
        .into_iter()
        .map(|chart| Picture { path: format!("{folder}/{}.svg", chart.name), chart })
        .collect();
    let text = markdown::report(report, &pictures);
    let page = page_beside(path);
    let beside = path.parent().unwrap_or(Path::new(""));
    let mut files =
        vec![Rendered { path: page, text: html::page(&text, &pictures) }, Rendered { path: path.to_path_buf(), text }];
    files.extend(
        pictures.iter().map(|picture| Rendered { path: beside.join(&picture.path), text: picture.chart.standalone() }),
    );
    files
}

/// A chart, and where its file lies, seen from COMPARE.md.
#[derive(Clone, Debug, PartialEq)]
pub struct Picture {
    /// `compare-plots/ladder.svg`
    pub path: String,
    /// What is in it.
    pub chart: charts::Chart,
}

/// Why the README has no place for the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "README.md must have one line '{}' and below it one '{}'; it has {begins} and {ends}{}",
    LADDER[0], LADDER[1], if *.begins == 1 && *.ends == 1 { ", in the wrong order" } else { "" }
)]
pub struct NoLadder {
    begins: usize,
    ends: usize,
}

/// Where in `readme` the ladder stands.
pub fn place_of_ladder(readme: &str) -> Result<Range<usize>, NoLadder> {
    let [begins, ends] = LADDER.map(|marker| readme.matches(marker).count());
    let wrong = NoLadder { begins, ends };
    let place = LADDER.map(|marker| readme.find(marker));
    match (begins, ends, place) {
        (1, 1, [Some(begin), Some(end)]) if begin < end => Ok(begin + LADDER[0].len()..end),
        _ => Err(wrong),
    }
}

/// `readme` with the ladder table between its markers.
pub fn readme(readme: &str, report: &crate::comparison::Report) -> Result<String, NoLadder> {
    let place = place_of_ladder(readme)?;
    Ok(format!("{}\n{}{}", &readme[..place.start], markdown::ladder(report), &readme[place.end..]))
}

/// Writes each file at once; charts first, so that COMPARE.md never points at one that is not there.
pub fn write(files: &[Rendered]) -> Result<(), StoreError> {
    files.iter().rev().try_for_each(|file| write_atomically(&file.path, file.text.as_bytes()))
}

#[cfg(test)]
mod tests;
