//! The files of a report on a run, and what the run prints.

use super::{choice, ladder, report, summary};
use crate::document::terminal::{WIDTH, terminal};
use crate::document::{self, Document};
use crate::judge::Known;
use crate::judge::verdict::{self, Report};
use crate::table::files::{is_stream, write_atomically};
use crate::table::{Results, StageMeta, StoreError};
use anyhow::Context;
use std::path::{Path, PathBuf};

/// A file of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Rendered {
    pub path: PathBuf,
    pub text: String,
}

/// The report in the record's folder as Markdown and HTML, and at `path` if it goes anywhere else.
pub fn report(about: &Report<'_>, folder: &Path, path: Option<&Path>) -> Vec<Rendered> {
    let document = report::document(about);
    let beside = Rendered {
        path: folder.join("COMPARE.md"),
        text: document::markdown::markdown(&document),
    };
    let page = Rendered {
        path: folder.join("report.html"),
        text: document::html::page(&document),
    };
    let asked = path.map(|path| Rendered {
        path: path.to_path_buf(),
        text: beside.text.clone(),
    });
    match asked {
        Some(asked) if is_stream(&asked.path) => vec![asked],
        asked => [beside, page].into_iter().chain(asked).collect(),
    }
}

/// Markers around the ladder in the README.
const LADDER: [&str; 2] = ["<!-- ladder:begin -->", "<!-- ladder:end -->"];

/// COMPARE.md and the README of the workspace at `root`, from the table of the GPU model that most is known of, and the files by which
/// the library chooses.
pub fn committed(
    results: &Results,
    stages: &[StageMeta],
    root: &Path,
) -> anyhow::Result<Vec<Rendered>> {
    let table = results.of_gpu(results.main().unwrap_or_default());
    let about = verdict::report(Known::committed(stages, &table));
    let path = root.join("README.md");
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read {}", path.display()))?;
    let readme = Rendered {
        text: readme(&text, &about)?,
        path,
    };
    let compare = Rendered {
        text: document::markdown::markdown(&report::document(&about)),
        path: root.join("COMPARE.md"),
    };
    let choices = results.gpus.keys().filter_map(|gpu| {
        let path = root.join(format!("attention-ladder/choice/{gpu}.json"));
        // The library has a list of those that it reads.
        path.is_file().then(|| Rendered {
            text: choice::file(&Known::committed(stages, &results.of_gpu(gpu))),
            path,
        })
    });
    Ok([compare, readme].into_iter().chain(choices).collect())
}

/// The README has no place for the ladder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("README.md must have one line '{}' and below it one '{}'", LADDER[0], LADDER[1])]
pub struct NoLadder;

/// `readme` with the ladder between its markers.
fn readme(readme: &str, report: &Report<'_>) -> Result<String, NoLadder> {
    let [begin, end] = LADDER;
    let (head, rest) = readme.split_once(begin).ok_or(NoLadder)?;
    let (_, tail) = rest.split_once(end).ok_or(NoLadder)?;
    if LADDER
        .iter()
        .any(|marker| readme.matches(marker).count() > 1)
    {
        return Err(NoLadder);
    }
    let ladder = document::markdown::blocks(&ladder::readme(report));
    let ladder = ladder.trim_end();
    Ok(format!("{head}{begin}\n{ladder}\n{end}{tail}"))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::Exit;
    use crate::pages::testing::{OTHER, row, run};
    use crate::table::{Judged, On, Source};
    use common::verdict::{GateId, GateResult};

    #[test]
    fn the_ladder_stands_between_its_markers_and_nothing_else_of_the_readme_changes() {
        let [begin, end] = LADDER;
        let run = run();
        let report = verdict::report(Known::alone(&run));
        let text = readme(&format!("a\n{begin}\nold\n{end}\nb"), &report).unwrap();
        assert!(
            text.starts_with(&format!("a\n{begin}\n| stage |")),
            "{text}"
        );
        assert!(
            text.ends_with(&format!("\n{end}\nb")) && !text.contains("old"),
            "{text}"
        );
        assert_eq!(readme(&text, &report).unwrap(), text);
        for wrong in [
            begin.to_string(),
            end.to_string(),
            String::new(),
            format!("{end} {begin}"),
            format!("{begin}{begin}{end}"),
        ] {
            let error = readme(&wrong, &report).unwrap_err().to_string();
            assert!(error.starts_with("README.md must have one line"), "{error}");
        }
    }

    #[test]
    fn a_quiet_run_says_what_is_wrong_and_nothing_else() {
        let mut run = run();
        let report = verdict::report(Known::alone(&run));
        let (text, notes) = summary(&report, true);
        assert!(
            text.ends_with("PASS: 3 variants are green") && notes.is_empty(),
            "{text}"
        );
        let wrong = Judged::from(&GateResult::judge(GateId::C2, false, "3e-1 > 4e-4"));
        row(&mut run, OTHER, &On::All, Source::Gpu).judge(GateId::C2, wrong);
        let report = verdict::report(Known::alone(&run));
        assert_eq!(report.overall.exit, Exit::Fail);
        let (_, notes) = summary(&report, true);
        assert!(
            notes[0].starts_with("FAIL: 1 gate fails") && notes[0].contains("3e-1 > 4e-4"),
            "{notes:?}"
        );
        assert!(summary(&report, false).1.is_empty());
        let page = |path: &str| super::report(&report, Path::new("run"), Some(Path::new(path)));
        let names: Vec<_> = page("REPORT.md")
            .iter()
            .map(|file| file.path.display().to_string())
            .collect();
        assert_eq!(names, ["run/COMPARE.md", "run/report.html", "REPORT.md"]);
        assert_eq!(page("/dev/null").len(), 1, "a device gets the report alone");
    }
}
