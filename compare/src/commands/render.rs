//! `compare render`: COMPARE.md and the generated parts of other pages, from the committed tables
//! and the sources.

use crate::answer::Answer;
use crate::order;
use anyhow::{Context, bail};
use choice::Library;
use clap::Args;
use pages::files::{self, Rendered};
use results::judge::verdict::Exit;
use results::table::Results;
use results::table::files::write_atomically;
use results::{builds, workspace};
use stages::Ladder;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Examples:
  compare render --check
  compare render --gpu nvidia-h200              print COMPARE.md about another GPU; the committed \
one stays as it is
  compare render --gpu h200 --out h200.md       write it to a file

Exit codes:
  0  written, or up to date
  1  out of date (--check)
  2  wrong usage, no table, or a page or table that cannot be read or written";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RenderArgs {
    /// Write nothing; exit with 1 if COMPARE.md, a generated part of another page or a table is out
    /// of date
    #[arg(long)]
    pub check: bool,
    /// Print COMPARE.md about this GPU, a folder of results/, and leave the committed pages alone;
    /// a part of the name will do
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    pub gpu: Option<String>,
    /// Write it to this file
    #[arg(long, value_name = "FILE", requires = "gpu")]
    pub out: Option<PathBuf>,
}

/// Restamps rows of unchanged machine code with the identity of the sources as they are now, and
/// renders; with `--check` only compares.
pub fn render(args: &RenderArgs) -> anyhow::Result<Answer> {
    let root = workspace::require("clone it")?;
    let folder = root.join("results");
    let mut results = Results::read(&folder)?;
    if results.gpus.is_empty() {
        bail!(
            "there is no table of a GPU in {}; commit one with `compare accept`",
            folder.display()
        );
    }
    let choices = root.join(workspace::CHOICE);
    results.verify_choices(&choices)?;
    let models = if choices.is_dir() {
        stages::models(&choices)?
    } else {
        vec![]
    };
    let library = Library {
        stages: &stages::library()?,
        models: &models,
    };
    let ladder = Ladder::without_gpu("not asked for")?;
    let stages = ladder.builds()?;
    results.restamp(&stages, &builds::table(&stages));
    if let Some(name) = &args.gpu {
        let text = files::report_on(&results, &stages, chosen(&results, name)?, library);
        return print_or_write(text, args.out.as_deref());
    }
    let mut files = files::committed(&results, &stages, &root, library)?;
    for file in results.files() {
        files.push(Rendered {
            path: folder.join(&file.path),
            text: String::from_utf8_lossy(&file.bytes).into_owned(),
        });
    }
    files.push(order::render(&ladder.stages, &root)?);
    let former = files::former_reports(&root, &files)?;
    update(&files, &former, args.check)
}

fn print_or_write(text: String, path: Option<&Path>) -> anyhow::Result<Answer> {
    let Some(file) = path else {
        return Ok(Answer::pass(text));
    };
    write_atomically(file, text.as_bytes())?;
    Ok(Answer::pass(format!("written: {}", file.display())))
}

/// Writes the files if one is out of date, and removes `former` ones, or only reports it.
fn update(files: &[Rendered], former: &[PathBuf], is_check: bool) -> anyhow::Result<Answer> {
    let mut stale = Vec::new();
    for file in files {
        let path = file.path.display();
        match std::fs::read(&file.path) {
            Ok(bytes) if bytes == file.text.as_bytes() => {}
            Ok(_) => stale.push(path.to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => stale.push(path.to_string()),
            Err(error) => return Err(error).with_context(|| format!("cannot read {path}")),
        }
    }
    for path in former {
        stale.push(format!("{} (no report any more)", path.display()));
    }
    let names = stale.join(", ");
    if stale.is_empty() {
        return Ok(Answer::pass("up to date with results/"));
    }
    if is_check {
        return Ok(Answer::new(
            Exit::Fail,
            format!("out of date with results/: {names}; run `compare render`"),
        ));
    }
    files::write(files)?;
    files::remove(former)?;
    Ok(Answer::pass(format!("written: {names}")))
}

/// Returns the folder of the GPU that `name` is, or the only one that it is a part of.
fn chosen<'a>(results: &'a Results, name: &str) -> anyhow::Result<&'a str> {
    // The driver's name is one, too: NVIDIA H200.
    let wanted = name.replace(' ', "-").to_lowercase();
    let folders: Vec<&str> = results.gpus.keys().map(String::as_str).collect();
    if let Some(folder) = folders.iter().find(|folder| **folder == wanted) {
        return Ok(folder);
    }
    let mut matching = folders.clone();
    matching.retain(|folder| folder.contains(&wanted));
    match matching[..] {
        [folder] => Ok(folder),
        [] => bail!(
            "results/ has no table of a GPU '{name}'; there are {}",
            folders.join(", ")
        ),
        _ => bail!("'{name}' is a part of {}; give one", matching.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::table::Table;

    fn results() -> Results {
        let mut results = Results::default();
        for gpu in ["nvidia-h100-80gb-hbm3", "nvidia-h200", "nvidia-l4"] {
            results.gpus.insert(gpu.into(), Table::default());
        }
        results
    }

    /// Checks whether the file at a path is the page of this text.
    fn checked(path: PathBuf) -> anyhow::Result<Exit> {
        let text = "page".to_string();
        Ok(update(&[Rendered { path, text }], &[], true)?.exit)
    }

    #[test]
    fn a_page_that_is_missing_or_stale_is_out_of_date_and_one_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let page = folder.path().join("page.md");
        assert_eq!(checked(page.clone()).unwrap(), Exit::Fail);
        std::fs::write(&page, [0xff]).unwrap();
        assert_eq!(checked(page.clone()).unwrap(), Exit::Fail);
        std::fs::write(&page, "page").unwrap();
        assert_eq!(checked(page).unwrap(), Exit::Pass);
        let error = checked(folder.path().to_path_buf()).unwrap_err();
        assert!(error.to_string().starts_with("cannot read"), "{error}");
    }

    #[test]
    fn a_former_report_is_out_of_date_and_goes() {
        let folder = tempfile::tempdir().unwrap();
        let former = [folder.path().join("COMPARE-nvidia-h200.md")];
        std::fs::write(&former[0], "page").unwrap();
        assert_eq!(update(&[], &former, true).unwrap().exit, Exit::Fail);
        assert!(former[0].exists());
        assert_eq!(update(&[], &former, false).unwrap().exit, Exit::Pass);
        assert!(!former[0].exists());
    }

    #[test]
    fn a_gpu_is_chosen_by_its_name_or_a_part_of_it() {
        let results = results();
        for (name, folder) in [
            ("nvidia-h200", "nvidia-h200"),
            ("h200", "nvidia-h200"),
            ("NVIDIA H200", "nvidia-h200"),
            ("NVIDIA H100 80GB HBM3", "nvidia-h100-80gb-hbm3"),
            ("l4", "nvidia-l4"),
        ] {
            assert_eq!(chosen(&results, name).unwrap(), folder, "{name}");
        }
    }

    #[test]
    fn a_gpu_without_a_table_is_answered_with_those_that_have_one() {
        let results = results();
        for (name, message) in [
            (
                "b200",
                "results/ has no table of a GPU 'b200'; \
                 there are nvidia-h100-80gb-hbm3, nvidia-h200, nvidia-l4",
            ),
            (
                "h",
                "'h' is a part of nvidia-h100-80gb-hbm3 and nvidia-h200; give one",
            ),
        ] {
            assert_eq!(chosen(&results, name).unwrap_err().to_string(), message);
        }
    }
}
