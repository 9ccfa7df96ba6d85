//! `compare show`: what a record says, part by part.

use crate::answer::Answer;
use crate::judge::Known;
use crate::judge::verdict::report;
use crate::measure::machine;
use crate::measure::select;
use crate::page::{self, terminal::WIDTH};
use crate::pages::show::{self as layout, Section};
use crate::record::store::read_all;
use crate::record::{Record, StageMeta};
use crate::registry;
use clap::Args;
use std::path::PathBuf;

pub const EXAMPLES: &str = "\
Examples:
  compare show changes                          what differs from the record before
  compare show --stages 5 counters profile      stage 5 in the emulator and under ncu
  compare show gates --record target/compare/20261120T183000Z-nvidia-h200
  compare show --metrics                        the format of rows.jsonl, and every metric

Exit codes:
  0  shown
  2  wrong usage, or a record that cannot be read
  3  NO DATA: there is no record";

#[derive(Clone, Debug, Args)]
pub struct ShowArgs {
    /// What of it [default: all]
    #[arg(value_name = "PART")]
    pub parts: Vec<Section>,
    /// A record's folder, or its name in results/ [default: what the committed records say together]
    #[arg(long, value_name = "DIR")]
    pub record: Option<PathBuf>,
    /// Only these stages, by id or number, in full
    #[arg(long, alias = "stage", value_name = "STAGE", value_delimiter = ',')]
    pub stages: Vec<String>,
    /// The format of rows.jsonl, every metric and every gate, as in docs/rows.md
    #[arg(long)]
    pub metrics: bool,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: crate::diff::Format,
}

pub fn show(args: &ShowArgs) -> anyhow::Result<Answer> {
    if args.metrics {
        return Ok(Answer::pass(crate::pages::metrics::page()));
    }
    let built = registry::builds()?;
    let named = select::stages(&args.stages, &built)?.into_iter().filter(|_| !args.stages.is_empty());
    let ids: Vec<String> = named.map(|stage| stage.id.clone()).collect();
    let results = machine::results();
    let mut committed = read_all(&results)?;
    let named = match &args.record {
        None => None,
        Some(path) => {
            let folder = if path.is_dir() { path.clone() } else { results.join(path) };
            let canonical = folder.canonicalize().unwrap_or_else(|_| folder.clone());
            let name = canonical.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
            // Of a committed record what came later is not known.
            committed.retain(|(other, _)| *other < name);
            Some((name, Record::read(&folder)?))
        }
    };
    if named.is_none() && committed.is_empty() {
        return Ok(Answer::no_data(format!(
            "there is no record in {}; commit one with `compare accept`",
            results.display()
        )));
    }
    let stages: Vec<StageMeta> = match &named {
        Some((_, record)) => record.meta.stages.clone(),
        None => built.iter().map(|build| build.meta.clone()).collect(),
    };
    let run = named.as_ref().map(|(name, record)| (name.as_str(), record));
    let report = report(Known { stages: &stages, run, committed: &committed });
    let document = layout::document(&report, &args.parts, &ids);
    Ok(Answer::pass(match args.format {
        crate::diff::Format::Terminal => page::terminal::terminal(&document, WIDTH, "--format markdown"),
        crate::diff::Format::Markdown => page::markdown::markdown(&document),
        crate::diff::Format::Json => serde_json::to_string_pretty(&page::json::value(&document))? + "\n",
    }))
}
