//! The files of a report on a run, and what the run prints.

use super::{report, summary};
use crate::judge::verdict::Report;
use crate::page::terminal::{WIDTH, terminal};
use crate::page::{self, Document};
use crate::record::StoreError;
use crate::record::files::{is_stream, write_atomically};
use std::path::{Path, PathBuf};

/// A file of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub path: PathBuf,
    pub text: String,
}

/// The report at `path`, and in the record's folder as Markdown and HTML.
pub fn report(about: &Report<'_>, folder: &Path, path: &Path) -> Vec<Rendered> {
    let document = report::document(about);
    let beside = Rendered {
        path: folder.join("COMPARE.md"),
        text: page::markdown::markdown(&document),
    };
    let page = Rendered {
        path: folder.join("report.html"),
        text: page::html::page(&document),
    };
    let asked = Rendered {
        path: path.to_path_buf(),
        text: beside.text.clone(),
    };
    if is_stream(path) {
        vec![asked]
    } else {
        vec![beside, page, asked]
    }
}

/// What a run prints, and what goes to standard error with `--quiet`.
pub fn summary(report: &Report<'_>, is_quiet: bool) -> (String, Vec<String>) {
    let shown = |document: &Document| terminal(document, WIDTH).trim_end().to_string();
    let reproach = summary::reproach(report).filter(|_| is_quiet);
    (
        shown(&summary::document(report)),
        reproach.iter().map(shown).collect(),
    )
}

/// Writes each file at once.
pub fn write(files: &[Rendered]) -> Result<(), StoreError> {
    files
        .iter()
        .try_for_each(|file| write_atomically(&file.path, file.text.as_bytes()))
}
