//! The files of a report on a run, and the pages of the workspace.

use super::{generated, pictures, report};
use anyhow::Context;
use choice::Library;
use results::judge::View;
use results::judge::main_gpu::main_gpu;
use results::judge::verdict::{self, Report};
use results::table::files::write_atomically;
use results::table::{Results, StageMeta, StoreError, Table};
use std::io;
use std::path::{Path, PathBuf};

/// A file and the text that it should have.
pub struct Rendered {
    pub path: PathBuf,
    pub text: String,
}

const REPORT: &str = "COMPARE.md";

/// The pages with generated parts, beside those of the stages.
const PAGES: [&str; 3] = ["README.md", "docs/ladder.md", "docs/rows.md"];

/// Writes the report into the run's folder and, of a run of all stages on a GPU, as COMPARE.md of
/// the workspace at `root`: the committed one knows more than any other run does. Returns a
/// description of where the report is.
pub fn write_report(
    report: &Report<'_>,
    folder: &Path,
    root: Option<&Path>,
) -> Result<String, StoreError> {
    let text = document::markdown::markdown(&report::document(report, &[]));
    let path = folder.join(REPORT);
    write_atomically(&path, text.as_bytes())?;
    let mut places = format!("run: {}\nreport: {}", folder.display(), path.display());
    let is_on_gpu = report.view.run.is_some_and(|run| run.gpu().is_some());
    let is_whole = report.view.is_whole() && !report.view.is_quick();
    match root {
        Some(workspace) if is_on_gpu && is_whole => {
            let main_path = workspace.join(REPORT);
            write_atomically(&main_path, text.as_bytes())?;
            places += &format!("\nand in {}", main_path.display());
        }
        _ => {}
    }
    Ok(places)
}

/// Returns the report on the table in the folder `gpu` of results/.
pub fn report_on(
    results: &Results,
    stages: &[StageMeta],
    gpu: &str,
    library: Library<'_>,
) -> String {
    let tables = [results.of_gpu(gpu)];
    page(&reports(&tables, stages, library))
}

fn page(reports: &[Report<'_>]) -> String {
    document::markdown::markdown(&report::document(&reports[0], &reports[1..]))
}

/// Returns the tables of all GPUs, that of `main` first.
fn tables(results: &Results, main: &str) -> Vec<Table> {
    let mut tables = vec![results.of_gpu(main)];
    for gpu in results.gpus.keys() {
        if gpu != main {
            tables.push(results.of_gpu(gpu));
        }
    }
    tables
}

/// Returns the reports of the tables, with what the library chooses.
fn reports<'a>(
    tables: &'a [Table],
    stages: &'a [StageMeta],
    library: Library<'_>,
) -> Vec<Report<'a>> {
    let mut reports = Vec::new();
    for table in tables {
        reports.push(verdict::report(View::committed(stages, table)));
    }
    for report in &mut reports {
        report.chosen = choice::choices(&report.view, library);
    }
    reports
}

/// Returns COMPARE.md from the table of [`main_gpu`], a report on each other GPU model that has
/// figures of today's kernels, and the pages of the workspace at `root` that have generated parts.
pub fn committed(
    results: &Results,
    stages: &[StageMeta],
    root: &Path,
    library: Library<'_>,
) -> anyhow::Result<Vec<Rendered>> {
    let tables = tables(results, main_gpu(results, stages).unwrap_or_default());
    let reports = reports(&tables, stages, library);
    let mut files = report_files(&reports, root);
    for picture in pictures::pictures(&reports[0]).context("a picture cannot be drawn")? {
        files.push(Rendered {
            path: root.join(picture.path),
            text: picture.svg,
        });
    }
    for path in page_paths(stages, root) {
        files.push(with_generated_parts(path, root, &reports)?);
    }
    Ok(files)
}

/// Returns the pages with generated parts. A checkout with a stage has all of them, and one that is
/// lost is named where it is read; any other folder has those that are there.
fn page_paths(stages: &[StageMeta], root: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = PAGES.iter().map(|page| root.join(page)).collect();
    let mut is_checkout = false;
    for stage in stages {
        let folder = root.join(&stage.id);
        is_checkout |= folder.is_dir();
        paths.push(folder.join("README.md"));
    }
    if !is_checkout {
        paths.retain(|path| path.is_file());
    }
    paths
}

/// Returns COMPARE.md about the first report, and a page on each other one that it links to.
fn report_files(reports: &[Report<'_>], root: &Path) -> Vec<Rendered> {
    let mut files = vec![Rendered {
        path: root.join(REPORT),
        text: page(reports),
    }];
    for other in &reports[1..] {
        if let Some(name) = report::file_of_other(other) {
            files.push(Rendered {
                path: root.join(name),
                text: page(std::slice::from_ref(other)),
            });
        }
    }
    files
}

fn with_generated_parts(
    path: PathBuf,
    root: &Path,
    reports: &[Report<'_>],
) -> anyhow::Result<Rendered> {
    let page = std::fs::read_to_string(&path).with_context(|| {
        format!(
            "cannot read {}; take it back with `git checkout`",
            path.display()
        )
    })?;
    let text = generated::fill(&page, |what| generated::part(what, root, reports))
        .with_context(|| path.display().to_string())?;
    Ok(Rendered { path, text })
}

/// Writes all files, each atomically.
pub fn write(files: &[Rendered]) -> Result<(), StoreError> {
    for file in files {
        write_atomically(&file.path, file.text.as_bytes())?;
    }
    Ok(())
}

/// Removes files.
pub fn remove(paths: &[PathBuf]) -> anyhow::Result<()> {
    for path in paths {
        std::fs::remove_file(path).with_context(|| format!("cannot remove {}", path.display()))?;
    }
    Ok(())
}

/// Returns the reports at `root` on GPU models that have none any more: COMPARE.md is about them
/// now, or all of their figures are of former kernels.
pub fn former_reports(root: &Path, files: &[Rendered]) -> io::Result<Vec<PathBuf>> {
    let mut former = Vec::new();
    for entry in std::fs::read_dir(root)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let is_report = name.starts_with(report::OTHER) && name.ends_with(".md");
        if is_report && files.iter().all(|file| file.path != path) {
            former.push(path);
        }
    }
    former.sort();
    Ok(former)
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::table::session::Tier;
    use results::testing::ladder;
    use results::testing::{PeerArm, US, emulated, timed};

    fn report_in(folder: &Path) -> Option<String> {
        std::fs::read_to_string(folder.join(REPORT)).ok()
    }

    #[test]
    fn a_checkout_has_every_page_and_another_folder_those_that_are_there() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("README.md"), "").unwrap();
        let count = || page_paths(&ladder(), folder.path()).len();
        assert_eq!(count(), 1);
        std::fs::create_dir(folder.path().join("stage1-cpasync")).unwrap();
        assert_eq!(count(), PAGES.len() + ladder().len());
    }

    #[test]
    fn the_workspace_has_the_report_of_a_whole_run_on_a_gpu_alone() {
        for (run, is_on_gpu) in [
            (timed(US), true),
            (emulated(), false),
            (timed(US).of_tier(Tier::T0), false),
            (timed(US).of_stages(&["stage1-cpasync"]), false),
        ] {
            let root = tempfile::tempdir().unwrap();
            let folder = root.path().join("run");
            let about = verdict::report(View::alone(&run));
            let places = write_report(&about, &folder, Some(root.path())).unwrap();
            let written = report_in(&folder).unwrap();
            assert!(written.starts_with("# COMPARE"), "{written}");
            assert_eq!(report_in(root.path()), is_on_gpu.then_some(written));
            assert_eq!(places.contains("\nand in "), is_on_gpu, "{places}");
        }
    }

    #[test]
    fn a_report_that_is_not_written_any_more_is_a_former_one() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        for name in [
            "COMPARE.md",
            "COMPARE-nvidia-h200.md",
            "COMPARE-nvidia-l4.md",
        ] {
            std::fs::write(root.join(name), "").unwrap();
        }
        let written = ["COMPARE.md", "COMPARE-nvidia-l4.md"].map(|name| Rendered {
            path: root.join(name),
            text: String::new(),
        });
        assert_eq!(
            former_reports(root, &written).unwrap(),
            [root.join("COMPARE-nvidia-h200.md")]
        );
    }

    #[test]
    fn each_gpu_that_the_report_links_to_has_a_page() {
        let main = timed(US);
        let other = timed(US)
            .peers("mission", 10.0, &[PeerArm::right("torch-default", 15.0)])
            .without_flash();
        let reports = [&main, &other].map(|run| verdict::report(View::alone(run)));
        let files = report_files(&reports, Path::new("root"));
        let paths: Vec<_> = files.iter().map(|file| file.path.as_path()).collect();
        let expected = ["root/COMPARE.md", "root/COMPARE-nvidia-h200.md"].map(Path::new);
        assert_eq!(paths, expected);
        assert!(files[0].text.contains("(COMPARE-nvidia-h200.md)"));
        assert!(
            files[1].text.contains("1 of 1 problems"),
            "{}",
            files[1].text
        );
    }
}
