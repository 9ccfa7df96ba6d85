//! Files that say what a report says: COMPARE.md, a page, and the ladder in the README.

use crate::judge::verdict::Report;
use crate::page;
use crate::pages;
use crate::record::StoreError;
use crate::record::files::{is_stream, write_atomically};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Where the ladder table stands in the README.
const LADDER: [&str; 2] = ["<!-- ladder:begin -->", "<!-- ladder:end -->"];

/// A file that rendering produces.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub path: PathBuf,
    pub text: String,
}

pub fn compare_md(report: &Report<'_>, path: &Path) -> Rendered {
    Rendered { path: path.to_path_buf(), text: page::markdown::markdown(&pages::report::document(report)) }
}

/// The report at `path`, and in the record's own folder the same as a page beside it.
pub fn of_run(report: &Report<'_>, folder: &Path, path: &Path) -> Vec<Rendered> {
    let beside = compare_md(report, &folder.join("COMPARE.md"));
    let page = Rendered { path: folder.join("report.html"), text: page::html::page(&pages::report::document(report)) };
    let asked = Rendered { path: path.to_path_buf(), text: beside.text.clone() };
    if is_stream(path) { vec![asked] } else { vec![beside, page, asked] }
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
fn place_of_ladder(readme: &str) -> Result<Range<usize>, NoLadder> {
    let [begins, ends] = LADDER.map(|marker| readme.matches(marker).count());
    let wrong = NoLadder { begins, ends };
    let place = LADDER.map(|marker| readme.find(marker));
    match (begins, ends, place) {
        (1, 1, [Some(begin), Some(end)]) if begin < end => Ok(begin + LADDER[0].len()..end),
        _ => Err(wrong),
    }
}

/// `readme` with the ladder between its markers.
pub fn readme(readme: &str, report: &Report<'_>) -> Result<String, NoLadder> {
    let place = place_of_ladder(readme)?;
    let ladder = page::markdown::blocks(&pages::ladder::readme(report));
    Ok(format!("{}\n{}\n{}", &readme[..place.start], ladder.trim_end(), &readme[place.end..]))
}

/// Writes each file at once.
pub fn write(files: &[Rendered]) -> Result<(), StoreError> {
    files.iter().try_for_each(|file| write_atomically(&file.path, file.text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_that_are_missing_doubled_or_reversed_are_errors() {
        let [begin, end] = LADDER;
        assert!(place_of_ladder(&format!("a {begin} old {end} b")).is_ok());
        for wrong in [
            begin.to_string(),
            end.to_string(),
            String::new(),
            format!("{end} {begin}"),
            format!("{begin}{begin}{end}"),
        ] {
            assert!(place_of_ladder(&wrong).is_err(), "{wrong}");
        }
    }
}
