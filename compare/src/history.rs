//! `compare history`: the ladder over the committed records.

use crate::answer::{Answer, Format};
use crate::judge::history::history as follow;
use crate::measure::machine;
use crate::measure::select;
use crate::pages::history as layout;
use crate::{registry, show};
use clap::Args;
use std::path::PathBuf;

/// The end of `compare history --help`.
pub const EXAMPLES: &str = "\
A stage is represented by its fastest green variant on mission (full mask, the first type that it takes) in each record that ran it;
with --stage each of its variants has rows of its own. GPUs are kept apart. Registers and bank conflicts are those of the same
variant.

Examples:
  compare history                               the whole ladder
  compare history --stage 5                     every variant of stage 5
  compare history --format json | jq '.[].points'

Exit codes:
  0  printed
  2  wrong usage, or a record that cannot be read
  3  NO DATA: there is no committed record";

/// The flags of `history`.
#[derive(Clone, Debug, Args)]
pub struct HistoryArgs {
    /// Every variant of one stage, by id or number [default: the best of all stages]
    #[arg(long, value_name = "STAGE")]
    pub stage: Option<String>,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Output format
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}

/// Prints the history.
pub fn history(args: &HistoryArgs) -> anyhow::Result<Answer> {
    let builds = registry::builds()?;
    let stage = args
        .stage
        .as_deref()
        .map(|word| select::stage(word, &builds))
        .transpose()?;
    let committed = show::committed(&args.results.clone().unwrap_or_else(machine::results))?;
    let series = follow(&committed, stage.map(|stage| stage.id.as_str()));
    Ok(Answer::pass(
        args.format.print(&layout::document(&series), &series),
    ))
}
