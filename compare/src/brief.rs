//! `compare brief`: what to know before optimising a stage.

use crate::answer::Answer;
use crate::judge::Known;
use crate::judge::verdict::{Exit, report};
use crate::measure::builds::metas;
use crate::measure::machine;
use crate::measure::select;
use crate::page::markdown::markdown;
use crate::pages::brief as layout;
use crate::record::files::write_atomically;
use crate::record::store::read_all;
use crate::record::{Of, StoreError, TuningCache, tuning_cache};
use crate::registry;
use clap::Args;
use std::path::{Path, PathBuf};

/// The end of `compare brief --help`.
pub const EXAMPLES: &str = "\
Conclusions by stated rules, targets, negative results, latencies, tuned presets, resources, counters, profile, the limits of
an SM, and the task: from the committed records and tune/. Nothing is run.

Examples:
  compare brief --stage 5                       stage 5, on standard output
  compare brief --stage stage3-wmma-pv --out brief.md

Exit codes:
  0  written
  2  wrong usage, or a record that cannot be read
  3  NO DATA: there is no committed record; the rest is written";

/// The flags of `brief`.
#[derive(Clone, Debug, Args)]
pub struct BriefArgs {
    /// The stage, by id or number
    #[arg(long, value_name = "STAGE")]
    pub stage: String,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub results: Option<PathBuf>,
    /// Write to a file
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// Writes the brief of a stage.
pub fn brief(args: &BriefArgs) -> anyhow::Result<Answer> {
    let builds = registry::builds()?;
    let id = select::stage(&args.stage, &builds)?.id.clone();
    let root = machine::workspace().unwrap_or_default();
    let results = args.results.clone().unwrap_or_else(|| root.join("results"));
    let committed = read_all(&results, Of::Ladder)?;
    let caches = caches(&root.join("tune"))?;
    let stages = metas(&builds);
    let report = report(Known {
        stages: &stages,
        run: None,
        committed: &committed,
    });
    let text = markdown(&layout::document(&report, &id, &caches).unwrap_or_default());
    let exit = Exit::of(false, committed.is_empty());
    let Some(path) = &args.out else {
        return Ok(Answer::new(exit, text));
    };
    write_atomically(path, text.as_bytes())?;
    Ok(Answer::new(exit, ""))
}

fn caches(folder: &Path) -> Result<Vec<TuningCache>, StoreError> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    let mut paths: Vec<PathBuf> = paths.collect();
    paths.retain(|path| path.extension().is_some_and(|of| of == "json"));
    paths.sort();
    let caches = paths.iter().map(|path| tuning_cache::read(path));
    caches.filter_map(Result::transpose).collect()
}
