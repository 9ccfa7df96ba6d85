//! `compare history`: how the ladder went over the committed records.

use crate::comparison::Exit;
use crate::comparison::history::history as follow;
use crate::diff::Format;
use crate::output::{self, Output};
use crate::render::{document, history as layout};
use crate::{builds, machine, registry, select};
use clap::Args;
use common::record::store::{read_all, write_atomically};
use std::path::PathBuf;

/// The end of `compare history --help`.
pub const EXAMPLES: &str = "\
A stage is followed by its fastest green variant on mission (f16, full mask) of each record; with --stage, each of its
variants is. Two GPUs are two lines. Registers and bank conflicts are of the same variant.

Examples:
  compare history                               the whole ladder
  compare history --stage 5 --svg history.svg   every variant of stage 5, also drawn
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
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Draw it too
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
}

/// Prints the history, and draws it where asked.
pub fn history(args: &HistoryArgs) -> anyhow::Result<Exit> {
    output::check(&Output::text("--svg", args.svg.as_ref()), &[])?;
    let builds = builds::builds(&registry::load()?);
    let stage = args.stage.as_deref().map(|word| select::stage(word, &builds)).transpose()?;
    let results = args.results.clone().unwrap_or_else(|| machine::workspace().unwrap_or_default().join("results"));
    let committed = read_all(&results)?;
    if committed.is_empty() {
        println!("NO DATA: there is no record in {}; commit one with `compare accept`", results.display());
        return Ok(Exit::Undecided);
    }
    let series = follow(&committed, stage.map(|stage| stage.id.as_str()));
    if let Some(path) = &args.svg {
        write_atomically(path, layout::svg(&series).as_bytes())?;
    }
    document::print(&match args.format {
        Format::Terminal => document::terminal(&layout::blocks(&series)),
        Format::Markdown => document::markdown(&layout::blocks(&series)),
        Format::Json => serde_json::to_string_pretty(&series)? + "\n",
    })?;
    Ok(Exit::Pass)
}
