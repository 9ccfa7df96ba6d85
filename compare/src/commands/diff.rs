//! `compare diff`: two tables side by side.

mod source;

use crate::answer::{Answer, NoData};
use crate::document::markdown::markdown;
use crate::judge::View;
use crate::judge::diff::{self, Difference};
use crate::judge::verdict::{Exit, Overall, of_differences};
use crate::measure::machine;
use crate::pages::diff as layout;
use crate::pages::diff::Comparison;
use crate::pages::json;
use crate::stages;
use crate::table::StageMeta;
use crate::table::files::write_atomically;
use crate::table::results::BUILD;
use clap::Args;
use source::Side;
use std::collections::BTreeSet;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Prints the verdict, which kernels have changed, and everything of them that moved, before -> after: gates, latencies, registers, shared
memory, blocks per SM, instructions of the main loop by class, counters, errors. What has not moved is left out.

BASE and NEW each name the folder of a run, a folder of runs (the newest), a folder of tables, or a git revision (its committed
results/). Tables of the same GPU model are compared. What is not comparable (another driver, compiler, state of the cache) is missing,
with a reason. Kernels that have not changed are the control: they show how much latencies vary between sessions.

Examples:
  compare diff main HEAD                        what this branch's tables say against those of main
  compare diff results target/compare           the newest run here against the committed tables
  compare diff main HEAD --out diff.md          also a comment for a pull request
  compare diff RUN RUN2 --tables main HEAD      two runs and two tables, with one verdict on both

Exit codes:
  0  nothing relevant, or improvements only
  1  regressions, with or without improvements
  2  wrong usage, or a table that cannot be read
  3  nothing can be compared; or, without a regression, something is inconclusive, or data that the base has is missing";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DiffArgs {
    /// What to compare with
    #[arg(value_name = "BASE")]
    pub base: String,
    /// What to compare
    #[arg(value_name = "NEW")]
    pub new: String,
    /// Write a comment for a pull request: the first of each kind, as Markdown
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Compare the tables of these two revisions, too, with one verdict on both comparisons; a side without tables is noted
    #[arg(long, num_args = 2, value_names = ["BASE", "NEW"])]
    pub tables: Vec<String>,
    /// Print JSON, whose fields docs/rows.md names
    #[arg(long)]
    pub json: bool,
}

pub fn diff(args: &DiffArgs) -> anyhow::Result<Answer> {
    let root = machine::workspace();
    let stages = stages::builds()?;
    let side = |name: &str| source::resolve(name, root.as_deref(), &stages);
    let (base, new) = (side(&args.base)?, side(&args.new)?);
    let mut comparison = compare(&base, &new, &stages);
    if let [old, now] = &args.tables[..] {
        comparison = match side(old).and_then(|old| Ok((old, side(now)?))) {
            Ok((old, now)) => join(comparison, compare(&old, &now, &stages)),
            Err(error) => note_missing_tables(comparison, error)?,
        };
    }
    if let Some(path) = &args.out {
        let comment = markdown(&layout::document(&comparison, false));
        write_atomically(path, comment.as_bytes())?;
    }
    if args.json {
        let found = json::Diff::from(&comparison);
        return Answer::json(comparison.overall.exit, &found);
    }
    let page = layout::document(&comparison, true);
    Ok(Answer::page(comparison.overall.exit, &page))
}

/// Joins a comparison of runs and one of tables under one verdict.
fn join(runs: Comparison, tables: Comparison) -> Comparison {
    let overall = fold_verdicts(&runs, &tables);
    let said = format!(
        "Committed tables: `{}` against `{}` (base).",
        tables.new, tables.base
    );
    let named = |kind: &'static str, pairs: Vec<(String, diff::Comparison)>| {
        let pairs = pairs.into_iter();
        pairs.map(move |(name, pair)| (format!("{kind}, {name}"), pair))
    };
    let pairs = named("Runs", runs.pairs).chain(named("Committed tables", tables.pairs));
    Comparison {
        pairs: pairs.collect(),
        notes: [runs.notes, vec![said], tables.notes].concat(),
        overall,
        ..runs
    }
}

/// The verdict on all differences; of two comparisons that are not worse, the one that could not be made decides.
fn fold_verdicts(runs: &Comparison, tables: &Comparison) -> Overall {
    let differences = |of: &Comparison| {
        let pairs = of.pairs.iter();
        Vec::from_iter(pairs.flat_map(|(_, pair)| pair.differences.clone()))
    };
    let all = [differences(runs), differences(tables)].concat();
    if all.is_empty() {
        return runs.overall.clone();
    }
    let whole = of_differences(&all);
    let parts = [&runs.overall, &tables.overall];
    let undecided = parts.into_iter().find(|part| part.exit != Exit::Pass);
    match undecided.filter(|_| whole.exit == Exit::Pass) {
        Some(part) => Overall {
            line: format!("{}; {}", part.line, whole.line),
            ..part.clone()
        },
        None => whole,
    }
}

/// Notes that a revision has no tables, which is no failure; any other error is one.
fn note_missing_tables(runs: Comparison, error: anyhow::Error) -> anyhow::Result<Comparison> {
    let none = error.downcast::<NoData>()?;
    let note = format!("Committed tables: {none}");
    Ok(Comparison {
        notes: [runs.notes, vec![note]].concat(),
        ..runs
    })
}

fn compare(base: &Side, new: &Side, stages: &[StageMeta]) -> Comparison {
    // Of two tables the newer has what the older has; a run has what it was asked for.
    let covers = match (&base.run, &new.run) {
        (Some(base), Some(new)) => diff::covers(base, new),
        (None, None) => true,
        _ => false,
    };
    let gpus = |side: &Side| BTreeSet::from_iter(side.results.gpus.keys().cloned());
    let (of_base, of_new) = (gpus(base), gpus(new));
    let mut names: Vec<&str> = (of_base.intersection(&of_new))
        .map(|name| &**name)
        .collect();
    if names.is_empty() {
        // Resources and counters may still be compared.
        names.push(BUILD);
    }
    let mut pairs: Vec<(String, diff::Comparison)> = Vec::new();
    for name in names {
        let [old, now] = [base, new].map(|side| {
            let mut table = side.results.of_gpu(name);
            // The build stands with the first GPU.
            table.retain(|row| pairs.is_empty() || !row.kind.is_of_build());
            table
        });
        let mut comparison = diff::compare(&old, &now, covers, stages);
        if new.run.is_some() {
            let view = View::committed(stages, &now);
            let outdated = view.stale_stages().into_iter().map(Difference::outdated);
            comparison.differences.extend(outdated);
        }
        pairs.push((name.to_string(), comparison));
    }
    if covers && new.run.is_none() {
        let gone = of_base
            .difference(&of_new)
            .map(|name| Difference::gone(name));
        pairs[0].1.differences.extend(gone);
    }
    let differences = pairs.iter().flat_map(|(_, pair)| &pair.differences);
    let all = Vec::from_iter(differences.cloned());
    let overall = match all.is_empty() && base.results.has_rows_of(&new.results) {
        true => Overall::same_table(),
        false => of_differences(&all),
    };
    let one_sided = of_base.symmetric_difference(&of_new).map(|name| {
        let side = if of_base.contains(name) {
            "the base"
        } else {
            "the new side"
        };
        format!("{name}: only {side} has figures of this GPU model")
    });
    let notes = [base, new].into_iter().filter_map(|side| side.note.clone());
    Comparison {
        base: base.name.clone(),
        new: new.name.clone(),
        pairs,
        notes: one_sided.chain(notes).collect(),
        overall,
    }
}

#[cfg(test)]
mod tests;
