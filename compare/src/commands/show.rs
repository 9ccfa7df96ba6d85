//! `compare show`: the parts of a table.

use crate::answer::{Answer, NoData};
use crate::shared_memory;
use anyhow::bail;
use clap::Args;
use document::TableRow;
use measure::select;
use pages::names;
use pages::show::{self as layout, Section};
use results::judge::View;
use results::judge::list::joined;
use results::judge::main_gpu::main_gpu;
use results::judge::verdict::{Exit, Report, report, report_of_run};
use results::table::{Results, Run, StageMeta};
use results::workspace;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  compare show                                  the names of stages, variants, shapes, input \
families and parts
  compare show --stage 5                        its row of the ladder, gates, \
latencies and claims
  compare show resources --stages 3             registers, shared memory, blocks per SM and the \
main loop's instructions
  compare show shared --stage 5                 the buffers of its shared memory
  compare show targets --stages 5 --goal 5      what its claims come to in µs, and the base that \
5 µs needs
  compare show claims missing --run target/compare/20261120T183000Z-nvidia-h200

Exit codes:
  0  shown
  2  wrong usage, or a table that cannot be read
  3  not measured: nothing is committed";

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ShowArgs {
    /// Parts to show; without any: the summary, and without a run, stage or GPU model, what can be
    /// asked for
    #[arg(value_name = "PART")]
    pub parts: Vec<Section>,
    /// The folder of a run, shown on top of the committed table [default: the committed table]
    #[arg(long, value_name = "DIR")]
    pub run: Option<PathBuf>,
    /// The GPU model whose committed table is shown: a folder of results/ [default: the one that
    /// COMPARE.md is about]
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    pub gpu: Option<String>,
    /// Only these stages, by id or number, every variant in full [default parts: gates, latencies,
    /// claims]
    #[arg(long, alias = "stage", value_name = "STAGE", value_delimiter = ',')]
    pub stages: Vec<String>,
    /// The time that `targets` compares with [default: the fastest peer's]
    #[arg(long, value_name = "US", value_parser = microseconds)]
    pub goal: Option<f64>,
    /// Print every line, not the first 60
    #[arg(long)]
    pub all: bool,
}

/// The most lines without `--all`: a screen.
const SCREEN: usize = 60;

/// The advice on lines that a screen does not hold.
const MORE: &str = "`--all`, or name a part: `compare show --help`";

fn microseconds(text: &str) -> Result<f64, NotMicroseconds> {
    match text.parse::<f64>() {
        Ok(us) if us.is_finite() && us > 0.0 => Ok(us),
        _ => Err(NotMicroseconds),
    }
}

#[derive(Debug, thiserror::Error)]
#[error("give microseconds, above 0")]
struct NotMicroseconds;

/// Shows parts of a table or run.
pub fn show(args: &ShowArgs) -> anyhow::Result<Answer> {
    let stages = stages::builds()?;
    let names_parts = !args.parts.is_empty() || !args.stages.is_empty();
    if !names_parts && args.run.is_none() && args.gpu.is_none() {
        return Ok(Answer::page(Exit::Pass, &names::document(&stages)));
    }
    let ids = stage_ids(args, &stages)?;
    let results = Results::read(&workspace::results())?;
    let asked = layout::Asked {
        parts: &args.parts,
        stages: &ids,
        goal_us: args.goal,
        shared: shared_memory_rows(args, &stages, &ids)?,
    };
    if let Some(folder) = &args.run {
        let run = Run::read(folder, &stages)?;
        let table = results.of_gpu(&run.session.machine.name);
        return Ok(print(&report_of_run(&run, &table), &asked, args.all));
    }
    let table = results.of_gpu(gpu(args, &results, &stages)?);
    let report = report(View::committed(&stages, &table));
    Ok(print(&report, &asked, args.all))
}

/// Returns the ids of the stages asked for; none means all.
fn stage_ids(args: &ShowArgs, stages: &[StageMeta]) -> anyhow::Result<Vec<String>> {
    if args.stages.is_empty() {
        return Ok(vec![]);
    }
    let named = select::stages(&args.stages, stages)?;
    Ok(named.iter().map(|stage| stage.id.clone()).collect())
}

/// Returns the rows of the part that shows buffers, if it is asked for.
fn shared_memory_rows(
    args: &ShowArgs,
    stages: &[StageMeta],
    ids: &[String],
) -> anyhow::Result<Vec<TableRow>> {
    if !args.parts.contains(&Section::Shared) {
        return Ok(vec![]);
    }
    let root = workspace::require("leave out the part `shared`, which reads its sources")?;
    let mut rows = Vec::new();
    for stage in stages {
        if ids.is_empty() || ids.contains(&stage.id) {
            let layouts = shared_memory::layouts(&root, &stage.id)
                .map_err(|error| NoData(format!("{error:#}")))?;
            rows.extend(pages::shared::rows(stage, &layouts));
        }
    }
    Ok(rows)
}

/// Returns the GPU model whose table is shown.
fn gpu<'a>(
    args: &'a ShowArgs,
    results: &'a Results,
    stages: &[StageMeta],
) -> anyhow::Result<&'a str> {
    let Some(gpu) = args.gpu.as_deref().or(main_gpu(results, stages)) else {
        bail!(NoData(
            "there is no table in results/; commit one with `compare accept`".to_string()
        ))
    };
    if !results.gpus.contains_key(gpu) {
        let names = joined(results.gpus.keys(), ", ");
        bail!("there is no table of '{gpu}' in results/; it has {names}")
    }
    Ok(gpu)
}

fn print(report: &Report<'_>, asked: &layout::Asked<'_>, prints_all: bool) -> Answer {
    let page = layout::document(report, asked);
    if prints_all {
        Answer::page(Exit::Pass, &page)
    } else {
        Answer::first_lines(Exit::Pass, &page, SCREEN, MORE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_model_without_a_table_is_an_error_whatever_is_asked_of_it() {
        for parts in [vec![], vec![Section::Peers]] {
            let args = ShowArgs {
                parts,
                run: None,
                gpu: Some("none".into()),
                stages: vec![],
                goal: None,
                all: false,
            };
            let error = show(&args).unwrap_err().to_string();
            assert!(
                error.starts_with("there is no table of 'none' in results/; it has "),
                "{error}"
            );
        }
    }
}
