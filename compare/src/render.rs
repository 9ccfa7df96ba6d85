//! `compare render`: COMPARE.md and the generated parts of other pages, from the committed tables and the sources.

use crate::answer::Answer;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::{builds, machine};
use crate::pages::files::{self, Rendered};
use crate::stages;
use crate::table::Results;
use anyhow::bail;
use clap::Args;

const EXAMPLES: &str = "\
Example:
  compare render --check

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
    results.verify_choices(&root.join(stages::CHOICE))?;
    let stages = stages::builds()?;
    results.restamp(&stages, &builds::table(&stages));
    let mut files = files::committed(&results, &stages, &root)?;
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
