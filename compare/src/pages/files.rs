//! The files of a report on a run, and what the run prints.

use super::{figure, generated, report};
use crate::document;
use crate::judge::View;
use crate::judge::choice::{self, Library};
use crate::judge::verdict::{self, Report};
use crate::table::files::write_atomically;
use crate::table::{Results, StageMeta, StoreError, Table};
use anyhow::Context;
use std::path::{Path, PathBuf};

pub struct Rendered {
    pub path: PathBuf,
    pub text: String,
}

const REPORT: &str = "COMPARE.md";

/// Writes the report into the run's folder and, of a run of all stages on a GPU, as COMPARE.md of the workspace at `root`: the committed
/// one knows more than any other run does.
pub fn write_report(
    about: &Report<'_>,
    folder: &Path,
    root: Option<&Path>,
) -> Result<String, StoreError> {
    let text = document::markdown::markdown(&report::document(about, &[]));
    let path = folder.join(REPORT);
    write_atomically(&path, text.as_bytes())?;
    let (run, place) = (folder.display(), path.display());
    let mut places = format!("run: {run}\nreport: {place}");
    let is_on_gpu = about.view.run.is_some_and(|run| run.gpu().is_some());
    let is_whole = about.view.is_whole() && !about.view.is_quick();
    if let Some(root) = root.filter(|_| is_on_gpu && is_whole) {
        let path = root.join(REPORT);
        places += &format!("\nand in {}", path.display());
        write_atomically(&path, text.as_bytes())?;
    }
    Ok(places)
}

/// COMPARE.md about the table in the folder `gpu` of results/, with a line for each other one.
pub fn report_on(
    results: &Results,
    stages: &[StageMeta],
    gpu: &str,
    library: Library<'_>,
) -> String {
    let tables = tables(results, gpu);
    let reports = reports(&tables, stages, library);
    page(&reports)
}

fn page(reports: &[Report<'_>]) -> String {
    document::markdown::markdown(&report::document(&reports[0], &reports[1..]))
}

/// Returns the tables of all GPUs, that of `main` first.
fn tables(results: &Results, main: &str) -> Vec<Table> {
    let others = results.gpus.keys().filter(|gpu| *gpu != main);
    let gpus = [main].into_iter().chain(others.map(String::as_str));
    gpus.map(|gpu| results.of_gpu(gpu)).collect()
}

/// The reports of the tables, the first with what the library chooses.
fn reports<'a>(
    tables: &'a [Table],
    stages: &'a [StageMeta],
    library: Library<'_>,
) -> Vec<Report<'a>> {
    let view = tables.iter().map(|table| View::committed(stages, table));
    let mut reports: Vec<Report<'a>> = view.map(verdict::report).collect();
    if let Some(first) = reports.first_mut() {
        first.chosen = choice::choices(&first.view, library);
    }
    reports
}

/// COMPARE.md from the table of [`Results::main`], and the pages of the workspace at `root` that have generated parts.
pub fn committed(
    results: &Results,
    stages: &[StageMeta],
    root: &Path,
    library: Library<'_>,
) -> anyhow::Result<Vec<Rendered>> {
    let tables = tables(results, results.main(stages).unwrap_or_default());
    let reports = reports(&tables, stages, library);
    let compare = Rendered {
        text: page(&reports),
        path: root.join(REPORT),
    };
    let of_stages = stages.iter().map(|stage| format!("{}/README.md", stage.id));
    let pages = ["README.md", "docs/ladder.md", "docs/rows.md"].map(String::from);
    let pages = pages
        .into_iter()
        .chain(of_stages)
        .map(|page| root.join(page));
    let pages = pages.filter(|path| path.is_file()).map(|path| {
        let text = std::fs::read_to_string(&path)?;
        let text = generated::fill(&text, |what| generated::part(what, root, &reports));
        let text = text.with_context(|| path.display().to_string())?;
        Ok(Rendered { text, path })
    });
    let figures = [
        ("docs/ladder.svg", figure::ladder(&reports[0])),
        ("docs/peers.svg", figure::against_peers(&reports[0])),
    ];
    let figures = figures.map(|(path, text)| Rendered {
        path: root.join(path),
        text,
    });
    let pages = pages.collect::<anyhow::Result<Vec<_>>>()?;
    Ok([compare].into_iter().chain(figures).chain(pages).collect())
}

pub fn write(files: &[Rendered]) -> Result<(), StoreError> {
    files
        .iter()
        .try_for_each(|file| write_atomically(&file.path, file.text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{US, emulated, scenario, timed};

    #[test]
    fn the_workspace_has_the_report_of_a_whole_run_on_a_gpu_alone() {
        for (run, is_on_gpu) in [
            (timed(US), true),
            (emulated(), false),
            (scenario::run("timed; tier 0"), false),
            (scenario::run("timed; stages stage1-cpasync"), false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("run");
            let about = verdict::report(View::alone(&run));
            let places = write_report(&about, &folder, Some(root.path())).unwrap();
            let read = |folder: &Path| std::fs::read_to_string(folder.join(REPORT)).ok();
            let written = read(&folder).unwrap();
            assert!(written.starts_with("# COMPARE"), "{written}");
            assert_eq!(read(root.path()), is_on_gpu.then_some(written));
            assert_eq!(places.contains("\nand in "), is_on_gpu, "{places}");
        }
    }
}
