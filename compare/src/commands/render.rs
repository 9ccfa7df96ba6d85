//! `compare render`: COMPARE.md and the generated parts of other pages, from the committed tables and the sources.

use crate::answer::Answer;
use crate::judge::choice::Library;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::{builds, machine};
use crate::pages::files::{self, Rendered};
use crate::stages;
use crate::table::Results;
use crate::table::files::write_atomically;
use anyhow::bail;
use clap::Args;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  compare render --check
  compare render --gpu nvidia-h200              print COMPARE.md about another GPU; the committed one stays as it is
  compare render --gpu h200 --out h200.md       write it to a file

Exit codes:
  0  written, or up to date
  1  out of date (--check)
  2  wrong usage, no table, or a page or table that cannot be read or written";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct RenderArgs {
    /// Write nothing; exit with 1 if COMPARE.md, a generated part of another page or a table is out of date
    #[arg(long)]
    pub check: bool,
    /// Print COMPARE.md about this GPU, a folder of results/, and leave the committed pages alone; a part of the name will do
    #[arg(long, value_name = "NAME", conflicts_with = "check")]
    pub gpu: Option<String>,
    /// Write it to this file
    #[arg(long, value_name = "FILE", requires = "gpu")]
    pub out: Option<PathBuf>,
}

/// Gives rows of unchanged machine code the identity of the sources as they are now, and renders; with `--check` only compares.
pub fn render(args: &RenderArgs) -> anyhow::Result<Answer> {
    let root = machine::root("clone it")?;
    let folder = root.join("results");
    let mut results = Results::read(&folder)?;
    if results.gpus.is_empty() {
        bail!(
            "there is no table of a GPU in {}; commit one with `compare accept`",
            folder.display()
        );
    }
    let choices = root.join(stages::CHOICE);
    results.verify_choices(&choices)?;
    let models = match choices.is_dir() {
        true => stages::models(&choices)?,
        false => vec![],
    };
    let library = Library {
        stages: &stages::library()?,
        models: &models,
    };
    let stages = stages::builds()?;
    results.restamp(&stages, &builds::table(&stages));
    if let Some(name) = &args.gpu {
        let text = files::report_on(&results, &stages, chosen(&results, name)?, library);
        return match &args.out {
            None => Ok(Answer::pass(text)),
            Some(path) => {
                write_atomically(path, text.as_bytes())?;
                Ok(Answer::pass(format!("written: {}", path.display())))
            }
        };
    }
    let mut files = files::committed(&results, &stages, &root, library)?;
    let tables = results.files().into_iter();
    files.extend(tables.map(|(path, bytes)| Rendered {
        path: folder.join(path),
        text: String::from_utf8_lossy(&bytes).into_owned(),
    }));
    let is_stale =
        |file: &&Rendered| std::fs::read_to_string(&file.path).ok().as_deref() != Some(&file.text);
    let stale = files.iter().filter(is_stale);
    let stale = joined(stale.map(|file| file.path.display()), ", ");
    Ok(match (stale.is_empty(), args.check) {
        (true, _) => Answer::pass("up to date with results/"),
        (false, false) => {
            files::write(&files)?;
            Answer::pass(format!("written: {stale}"))
        }
        (false, true) => Answer::new(
            Exit::Fail,
            format!("out of date with results/: {stale}; run `compare render`"),
        ),
    })
}

/// Returns the folder of the GPU that `name` is, or the only one that it is a part of.
fn chosen<'a>(results: &'a Results, name: &str) -> anyhow::Result<&'a str> {
    // The name that the driver gives is one, too: NVIDIA H200.
    let wanted = name.replace(' ', "-").to_lowercase();
    let all = || results.gpus.keys().map(String::as_str);
    if let Some(folder) = all().find(|folder| *folder == wanted) {
        return Ok(folder);
    }
    let found = Vec::from_iter(all().filter(|folder| folder.contains(&wanted)));
    match found[..] {
        [folder] => Ok(folder),
        [] => bail!(
            "results/ has no table of a GPU '{name}'; there are {}",
            joined(all(), ", ")
        ),
        _ => bail!("'{name}' is a part of {}; give one", joined(found, " and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Table;

    fn results() -> Results {
        let mut results = Results::default();
        for gpu in ["nvidia-h100-80gb-hbm3", "nvidia-h200", "nvidia-l4"] {
            results.gpus.insert(gpu.into(), Table::default());
        }
        results
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
        for (name, says) in [
            (
                "b200",
                "results/ has no table of a GPU 'b200'; there are nvidia-h100-80gb-hbm3, nvidia-h200, nvidia-l4",
            ),
            (
                "h",
                "'h' is a part of nvidia-h100-80gb-hbm3 and nvidia-h200; give one",
            ),
        ] {
            assert_eq!(chosen(&results, name).unwrap_err().to_string(), says);
        }
    }
}
