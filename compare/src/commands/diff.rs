//! `compare diff`: two tables side by side.

mod source;

use crate::answer::{Answer, NoData};
use anyhow::Context;
use clap::Args;
use document::markdown::markdown;
use pages::diff as layout;
use pages::diff::Comparison;
use pages::json;
use results::judge::View;
use results::judge::diff::{self, Difference};
use results::judge::terms::{Terms, concessions};
use results::judge::verdict::{Exit, Overall, of_differences};
use results::table::files::write_atomically;
use results::table::results::BUILD;
use results::table::{StageMeta, Table};
use results::workspace;
use source::Side;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const EXAMPLES: &str = "\
Prints the verdict, which kernels have changed, and everything of them that moved, before -> \
after: gates, latencies, registers, shared
memory, blocks per SM, instructions of the main loop by class, counters, errors. What has not \
moved is left out.

BASE and NEW each name the folder of a run, a folder of runs (the newest), a folder of tables, or \
a git revision (its committed
results/). Tables of the same GPU model are compared. What is not comparable (another driver, \
compiler, state of the cache) is missing,
with a reason. Kernels that have not changed are the control: they show how much latencies vary \
between sessions.

Examples:
  compare diff main HEAD                        what this branch's tables say against those of main
  compare diff results target/compare           the newest run here against the committed tables
  compare diff main HEAD --out diff.md          also a comment for a pull request
  compare diff RUN RUN2 --tables main HEAD      two runs and two tables, with one verdict on both

Exit codes:
  0  nothing relevant, or improvements only
  1  regressions, with or without improvements
  2  wrong usage, or a table that cannot be read
  3  nothing can be compared; or, without a regression, something is undecided, or data that \
the base has is missing";

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
    /// Compare the tables of these two revisions, too, with one verdict on both comparisons; a side
    /// without tables is noted
    #[arg(long, num_args = 2, value_names = ["BASE", "NEW"])]
    pub tables: Vec<String>,
    /// Name what these two files of `compare terms` ease: claims, refutations, waivers and caps
    #[arg(long, num_args = 2, value_names = ["BASE", "NEW"])]
    pub terms: Vec<PathBuf>,
    /// Print JSON, whose fields docs/rows.md names
    #[arg(long)]
    pub json: bool,
}

/// Compares two sides: runs, tables or revisions.
pub fn diff(args: &DiffArgs) -> anyhow::Result<Answer> {
    let mut comparison = compare_sides(args)?;
    if let [base, new] = &args.terms[..] {
        comparison.concessions = concessions(&read_terms(base)?, &read_terms(new)?);
    }
    if let Some(path) = &args.out {
        let comment = markdown(&layout::document(&comparison, false));
        write_atomically(path, comment.as_bytes())?;
    }
    if args.json {
        let object = json::Diff::from(&comparison);
        return Answer::json(comparison.overall.exit, &object);
    }
    let page = layout::document(&comparison, true);
    Ok(Answer::page(comparison.overall.exit, &page))
}

fn read_terms(path: &Path) -> anyhow::Result<Terms> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    serde_json::from_str(&text)
        .with_context(|| format!("{} is no output of `compare terms`", path.display()))
}

/// Compares what is asked for; with `--tables`, two revisions, too.
fn compare_sides(args: &DiffArgs) -> anyhow::Result<Comparison> {
    let root = workspace::find();
    let stages = stages::builds()?;
    let resolve = |name: &str| source::resolve(name, root.as_deref(), &stages);
    let base = resolve(&args.base)?;
    let new = resolve(&args.new)?;
    let comparison = compare(&base, &new, &stages);
    let [base_revision, new_revision] = &args.tables[..] else {
        return Ok(comparison);
    };
    let tables = resolve(base_revision).and_then(|base_tables| {
        let new_tables = resolve(new_revision)?;
        Ok(compare(&base_tables, &new_tables, &stages))
    });
    match tables {
        Ok(of_tables) => Ok(join(comparison, of_tables)),
        Err(error) => note_missing_tables(comparison, error),
    }
}

/// Joins a comparison of runs and one of tables under one verdict.
fn join(runs: Comparison, tables: Comparison) -> Comparison {
    let overall = fold_verdicts(&runs, &tables);
    let mut pairs = Vec::new();
    for (name, pair) in runs.pairs {
        pairs.push((format!("Runs, {name}"), pair));
    }
    for (name, pair) in tables.pairs {
        pairs.push((format!("Committed tables, {name}"), pair));
    }
    let mut notes = runs.notes;
    notes.push(format!(
        "Committed tables: `{}` against `{}` (base).",
        tables.new, tables.base
    ));
    notes.extend(tables.notes);
    Comparison {
        base: runs.base,
        new: runs.new,
        concessions: vec![],
        pairs,
        notes,
        overall,
    }
}

/// Returns the verdict on all differences; of two comparisons that are not worse, the one that
/// could not be made decides.
fn fold_verdicts(runs: &Comparison, tables: &Comparison) -> Overall {
    let mut differences = all_differences(&runs.pairs);
    differences.extend(all_differences(&tables.pairs));
    if differences.is_empty() {
        return runs.overall.clone();
    }
    let whole = of_differences(&differences);
    if whole.exit != Exit::Pass {
        return whole;
    }
    let parts = [&runs.overall, &tables.overall];
    match parts.into_iter().find(|part| part.exit != Exit::Pass) {
        Some(undecided) => Overall {
            line: format!("{}; {}", undecided.line, whole.line),
            ..undecided.clone()
        },
        None => whole,
    }
}

fn all_differences(pairs: &[(String, diff::Comparison)]) -> Vec<Difference> {
    let mut differences = Vec::new();
    for (_, pair) in pairs {
        differences.extend(pair.differences.iter().cloned());
    }
    differences
}

/// Notes that a revision has no tables, which is no failure; any other error is one.
fn note_missing_tables(mut runs: Comparison, error: anyhow::Error) -> anyhow::Result<Comparison> {
    let no_data = error.downcast::<NoData>()?;
    runs.notes.push(format!("Committed tables: {no_data}"));
    Ok(runs)
}

fn compare(base: &Side, new: &Side, stages: &[StageMeta]) -> Comparison {
    let is_covered = covers(base, new);
    let mut pairs = compare_tables(base, new, stages, is_covered);
    if is_covered && new.run.is_none() {
        let (_, first_pair) = &mut pairs[0];
        for name in base.results.gpus.keys() {
            if !new.results.gpus.contains_key(name) {
                first_pair.differences.push(Difference::gone(name));
            }
        }
    }
    let differences = all_differences(&pairs);
    let overall = if differences.is_empty() && base.results.has_rows_of(&new.results) {
        Overall::same_table()
    } else {
        of_differences(&differences)
    };
    Comparison {
        base: base.name.clone(),
        new: new.name.clone(),
        concessions: vec![],
        pairs,
        notes: notes(base, new),
        overall,
    }
}

/// Whether the new side should have all that the base has: of two tables the newer does; a run has
/// what it was asked for.
fn covers(base: &Side, new: &Side) -> bool {
    match (&base.run, &new.run) {
        (Some(base_run), Some(new_run)) => diff::covers(base_run, new_run),
        (None, None) => true,
        _ => false,
    }
}

/// Compares the tables of each GPU model that both sides have. The first pair has the build's rows,
/// too, which are the same for every GPU.
fn compare_tables(
    base: &Side,
    new: &Side,
    stages: &[StageMeta],
    is_covered: bool,
) -> Vec<(String, diff::Comparison)> {
    let mut names: Vec<&str> = Vec::new();
    for name in base.results.gpus.keys() {
        if new.results.gpus.contains_key(name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        // Resources and counters may still be compared.
        names.push(BUILD);
    }
    let mut pairs = Vec::new();
    for name in names {
        let has_build = pairs.is_empty();
        let base_table = table_of(base, name, has_build);
        let new_table = table_of(new, name, has_build);
        let mut comparison = diff::compare(&base_table, &new_table, is_covered, stages);
        if new.run.is_some() {
            let view = View::committed(stages, &new_table);
            for stage in view.stale_stages() {
                comparison.differences.push(Difference::outdated(stage));
            }
        }
        pairs.push((name.to_string(), comparison));
    }
    pairs
}

fn table_of(side: &Side, name: &str, has_build: bool) -> Table {
    let mut table = side.results.of_gpu(name);
    table.retain(|row| has_build || !row.kind.is_of_build());
    table
}

/// Returns the GPU models that only one side has figures of, and what is not known about a side.
fn notes(base: &Side, new: &Side) -> Vec<String> {
    let base_gpus: BTreeSet<&String> = base.results.gpus.keys().collect();
    let new_gpus: BTreeSet<&String> = new.results.gpus.keys().collect();
    let mut notes = Vec::new();
    for name in base_gpus.symmetric_difference(&new_gpus) {
        let side = if base_gpus.contains(name) {
            "the base"
        } else {
            "the new side"
        };
        notes.push(format!("{name}: only {side} has figures of this GPU model"));
    }
    notes.extend(base.note.clone());
    notes.extend(new.note.clone());
    notes
}

#[cfg(test)]
mod tests;
