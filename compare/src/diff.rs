//! `compare diff`: two tables side by side.

mod source;

use crate::answer::{Answer, Format};
use crate::judge::Known;
use crate::judge::diff::{self, Difference, Tables};
use crate::judge::verdict::{Overall, of_differences};
use crate::measure::machine;
use crate::pages::diff as layout;
use crate::pages::diff::{Comparison, Pair};
use crate::stages;
use crate::table::StageMeta;
use crate::table::files::write_atomically;
use clap::Args;
use common::metric::LATENCY_CHANGE;
use source::Side;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The end of `compare diff --help`.
pub const EXAMPLES: &str = "\
BASE and NEW each name the folder of a run, a folder of runs (the newest), a folder of tables, or a git revision (its committed
results/). Tables of the same GPU model are compared. What is not comparable (another driver, compiler, state of the cache) is missing,
with a reason. Kernels that have not changed are the control: they say how far latencies move between sessions.

Examples:
  compare diff main HEAD                        what this branch's tables say against those of main
  compare diff results target/compare           the newest run here against the committed tables
  compare diff main HEAD --format markdown --out diff.md
                                                a comment for a pull request

Exit codes:
  0  nothing relevant, or improvements only
  1  regressions, with or without improvements
  2  wrong usage, or a table that cannot be read
  3  nothing can be compared; or, without a regression, something is inconclusive, or data that the base has is missing";

#[derive(Clone, Debug, Args)]
pub struct DiffArgs {
    /// What to compare with
    #[arg(value_name = "BASE")]
    pub base: String,
    /// What to compare
    #[arg(value_name = "NEW")]
    pub new: String,
    /// How it is printed
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
    /// Write it to a file; standard output gets the verdict
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Latencies within this many percent of each other are the same
    #[arg(long, value_name = "PCT", default_value_t = 100.0 * LATENCY_CHANGE, value_parser = percent)]
    pub threshold: f64,
}

/// As a share.
fn percent(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(percent) if percent > 0.0 && percent <= 100.0 => Ok(percent / 100.0),
        _ => Err("give a percentage above 0 and at most 100, such as 2".to_string()),
    }
}

pub fn diff(args: &DiffArgs) -> anyhow::Result<Answer> {
    let root = machine::workspace();
    let stages = stages::builds()?;
    let side = |name: &str| source::resolve(name, root.as_deref(), &stages);
    let (base, new) = (side(&args.base)?, side(&args.new)?);
    let comparison = compare(&base, &new, &stages, args.threshold);
    let text = args
        .format
        .print(&layout::document(&comparison), &layout::json(&comparison));
    let exit = comparison.overall.exit;
    let Some(path) = &args.out else {
        return Ok(Answer::new(exit, text));
    };
    write_atomically(path, text.as_bytes())?;
    Ok(Answer::new(exit, comparison.overall.to_string()))
}

fn compare(base: &Side, new: &Side, stages: &[StageMeta], threshold: f64) -> Comparison {
    // Of two tables the newer has what the older has; a run has what it was asked for.
    let covers = match (&base.run, &new.run) {
        (Some(base), Some(new)) => diff::covers(base, new),
        (None, None) => true,
        _ => false,
    };
    let gpus = |side: &Side| {
        side.results
            .gpus
            .keys()
            .cloned()
            .collect::<BTreeSet<String>>()
    };
    let (of_base, of_new) = (gpus(base), gpus(new));
    let shared: Vec<&String> = of_base.intersection(&of_new).collect();
    let names = match shared.is_empty() {
        // Resources and counters may still be compared.
        true => vec!["build"],
        false => shared.iter().map(|name| name.as_str()).collect(),
    };
    let mut pairs: Vec<Pair> = Vec::new();
    let mut is_same = true;
    for name in names {
        let (mut base_table, mut new_table) = (base.results.of_gpu(name), new.results.of_gpu(name));
        if !pairs.is_empty() {
            // The build stands with the first GPU.
            base_table.retain(|row| !row.by.is_of_build());
            new_table.retain(|row| !row.by.is_of_build());
        }
        is_same &= base_table.rows().eq(new_table.rows());
        let tables = Tables {
            base: &base_table,
            new: &new_table,
            covers,
            threshold,
        };
        let mut comparison = diff::compare(&tables, stages);
        if new.run.is_some() {
            let known = Known::committed(stages, &new_table);
            let stages = known.stale_stages().into_iter();
            comparison
                .differences
                .extend(stages.map(Difference::outdated));
        }
        pairs.push(Pair {
            name: name.to_string(),
            comparison,
            new: new_table,
        });
    }
    if covers && new.run.is_none() {
        let gone = of_base
            .difference(&of_new)
            .map(|name| Difference::gone(name));
        pairs[0].comparison.differences.extend(gone);
    }
    let all = pairs.iter().flat_map(|pair| &pair.comparison.differences);
    let all: Vec<Difference> = all.cloned().collect();
    let overall = match is_same && all.is_empty() {
        true => Overall::same_table(),
        false => of_differences(&all),
    };
    let alone = |gpus: &BTreeSet<String>, others: &BTreeSet<String>, side: &str| {
        let alone = gpus.difference(others).cloned();
        alone
            .map(|name| format!("{name}: only {side} has figures of this GPU model"))
            .collect::<Vec<_>>()
    };
    Comparison {
        base: base.name.clone(),
        new: new.name.clone(),
        pairs,
        unpaired: [
            alone(&of_base, &of_new, "the base"),
            alone(&of_new, &of_base, "the new side"),
        ]
        .concat(),
        run: new.run.clone(),
        stages: stages.to_vec(),
        overall,
    }
}

#[cfg(test)]
mod tests;
