//! The files of a report: COMPARE.md, report.html, and the ladder in the README.

use crate::answer::Answer;
use crate::judge::Known;
use crate::judge::verdict::{self, Exit, Report};
use crate::measure::machine;
use crate::output;
use crate::page;
use crate::pages;
use crate::pages::files::{self, Rendered};
use crate::record::store::read_all;
use crate::registry;
use anyhow::{Context, bail};
use clap::Args;
use common::limits::Limited;
use std::ops::Range;
use std::path::PathBuf;

/// The flags of `render`.
#[derive(Clone, Debug, Args)]
pub struct RenderArgs {
    /// Write nothing; exit with 1 if COMPARE.md or the README's ladder is out of date
    #[arg(long)]
    pub check: bool,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Where the report goes [default: COMPARE.md of the workspace]
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
}

/// Markers around the ladder in the README.
const LADDER: [&str; 2] = ["<!-- ladder:begin -->", "<!-- ladder:end -->"];

/// Renders COMPARE.md and the README's ladder from the committed records; with `--check` only compares.
pub fn render(args: &RenderArgs) -> anyhow::Result<Answer> {
    let results = match &args.results {
        Some(results) => results.clone(),
        None => machine::root("--results DIR and --report FILE")?.join("results"),
    };
    let report_path = output::report_path(args.report.as_deref())?;
    let committed = read_all(&results)?;
    if committed.is_empty() {
        bail!(
            "there is no record in {}; name the folder with --results, or commit a record with `compare accept`",
            results.display()
        );
    }
    committed
        .iter()
        .try_for_each(|(name, record)| Limited::refuse(name, record.meta.device))?;
    let stages = registry::metas()?;
    let report = verdict::report(Known {
        stages: &stages,
        run: None,
        committed: &committed,
    });
    let mut files = vec![Rendered {
        text: page::markdown::markdown(&pages::report::document(&report)),
        path: report_path,
    }];
    if args.report.is_none() {
        let path = machine::root("--report FILE")?.join("README.md");
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        files.push(Rendered {
            text: readme(&text, &report)?,
            path,
        });
    }
    if !args.check {
        files::write(&files)?;
        return Ok(Answer::pass(""));
    }
    let is_stale =
        |file: &&Rendered| std::fs::read_to_string(&file.path).ok().as_deref() != Some(&file.text);
    let stale: Vec<String> = files
        .iter()
        .filter(is_stale)
        .map(|file| file.path.display().to_string())
        .collect();
    Ok(match stale.is_empty() {
        true => Answer::pass(format!(
            "up to date with {} committed records",
            committed.len()
        )),
        false => Answer::new(
            Exit::Fail,
            format!(
                "out of date with the committed records: {}; run `compare render`",
                stale.join(", ")
            ),
        ),
    })
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
    Ok(format!(
        "{}\n{}\n{}",
        &readme[..place.start],
        ladder.trim_end(),
        &readme[place.end..]
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{US, timed};

    #[test]
    fn the_page_is_of_the_committed_records() {
        let folder = tempfile::tempdir().unwrap();
        let results = folder.path().join("results");
        let path = folder.path().join("COMPARE.md");
        let page = || {
            let args = RenderArgs {
                check: false,
                results: Some(results.clone()),
                report: Some(path.clone()),
            };
            render(&args).map(|_| std::fs::read_to_string(&path).unwrap())
        };
        let error = page().unwrap_err().to_string();
        assert!(error.contains("there is no record in"), "{error}");
        timed(US).write(&results.join("1-ladder")).unwrap();
        let page = page().unwrap();
        assert!(page.contains("Committed record `1-ladder`"), "{page}");
    }

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
