//! `compare tune`: every preset of a stage on the given problems, gated, timed and ranked; the best are kept in a file
//! that `compare run` reads to decide what to time.

mod ranking;
mod table;
#[cfg(test)]
mod tests;

pub use ranking::keep_best;

use crate::answer::{Answer, NoData};
use crate::judge::verdict::Exit;
use crate::measure::execute::Executor;
use crate::measure::machine::{self, Timestamp};
use crate::measure::meta::begin;
use crate::measure::plan;
use crate::measure::rows;
use crate::measure::select::{Chosen, Problems, at_least_one};
use crate::page::terminal::{WIDTH, terminal};
use crate::progress::Progress as Bars;
use crate::record::meta::Machine;
use crate::record::{Record, Row, Source, TuningCache, tuning_cache};
use crate::registry::Ladder;
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::limits::{DeviceLimits, Limited};
use common::timing::Plan as TimingPlan;
use common::verdict::GateId;
use ranking::{Ranking, rank};
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub const EXAMPLES: &str = "\
Every preset is put through the quick gates and timed on the chosen problems; one that is not green has no time. The best three of
each stage and problem go to tune/<gpu>.json, beside the entries of other problems; commit it. `compare run` then
times all presets on mission with the full mask, which claims are about, and only these three elsewhere. An entry is STALE once its
kernel has changed: `run` times all presets again until you tune again.

Examples:
  compare tune                                  all stages on every problem that tier T2 times
  compare tune --stages stage3-wmma-pv --shapes long,4x16x4096x64 --dtypes f16
                                                one stage on two shapes, both masks
  compare tune --record results/<run>           what a run has timed, where it timed all presets of a problem

Exit codes:
  0  ranked and written
  1  two presets compile to the same machine code (nothing is timed), or a gate failed (green presets are written)
  2  wrong usage, or a file that cannot be read or written
  3  NO DATA: there is no GPU to time on";

/// The flags of `tune`.
#[derive(Clone, Debug, Args)]
pub struct TuneArgs {
    #[command(flatten)]
    pub chosen: Chosen,
    #[command(flatten)]
    pub problems: Problems,
    /// Timed samples per preset and problem [default: 100]
    #[arg(long, value_name = "N", allow_negative_numbers = true, value_parser = at_least_one)]
    pub iters: Option<usize>,
    /// Rank what a record of `compare run` timed, without a GPU, instead of measuring
    #[arg(long, value_name = "DIR", conflicts_with_all = ["stages", "shapes", "dtypes", "masks", "iters"])]
    pub record: Option<PathBuf>,
    /// The file to merge the best into [default: tune/<gpu>.json of the workspace]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// No table and no progress; errors only
    #[arg(long, short)]
    pub quiet: bool,
}

/// Timed samples per arm, unless `--iters` says otherwise: a ranking needs fewer than a claim, and a claim is judged by
/// `compare run`, on more.
const SAMPLES: usize = 100;

/// Warm-up per arm. The arm before has just kept the GPU at its clocks.
const WARM_UP: Duration = Duration::from_millis(100);

/// The tuning cache of a machine: `tune/nvidia-h200.json` of the workspace.
pub fn path_of(machine: &str) -> PathBuf {
    machine::workspace()
        .unwrap_or_default()
        .join("tune")
        .join(format!("{machine}.json"))
}

/// Gates, times and ranks what `args` select, or ranks what a record timed, and merges the best into the file. Fails
/// if a variant is wrong, or if two presets are one.
pub fn tune(args: &TuneArgs) -> anyhow::Result<Answer> {
    match &args.record {
        Some(folder) => from_record(args, folder),
        None => measure(args),
    }
}

fn no_data(reason: impl Display) -> NoData {
    NoData(format!(
        "presets are ranked by their times on a GPU: {reason}"
    ))
}

/// The answer where variants compile to the same machine code as another one.
fn same_code<'a>(built: impl IntoIterator<Item = &'a Row>) -> Option<Answer> {
    let reasons = shared_code(built).join("\n  ");
    (!reasons.is_empty()).then(|| Answer::new(
        Exit::Fail,
        format!(
            "FAIL: presets compile to the same machine code, so the parameter that differs has no effect; remove one, or make\nit a \
             constant that the kernel uses. Nothing was ranked.\n  {reasons}"
        ),
    ))
}

/// Ranks what the record in `folder` timed. Where it left variants out, the ranking is a guess.
fn from_record(args: &TuneArgs, folder: &Path) -> anyhow::Result<Answer> {
    let record = Record::read(folder)?;
    Limited::refuse(&folder.display().to_string(), record.meta.device)?;
    let planned = ranking::of_record(&record);
    if planned.is_empty() {
        bail!(no_data(format!(
            "{} has no timings; run `compare` on a GPU",
            folder.display()
        )));
    }
    if let Some(answer) = same_code(record.by(Source::Ptxas)) {
        return Ok(answer);
    }
    let (path, cache) = open(args, &record.meta.machine)?;
    written(
        args,
        path,
        cache,
        rank(&planned, &record),
        &record.meta.started,
    )
}

fn measure(args: &TuneArgs) -> anyhow::Result<Answer> {
    let started = Timestamp::now();
    Limited::refuse("a ranking", DeviceLimits::asked(None)?)?;
    let mut ladder = Ladder::open()?;
    // Wrong words are refused before a missing GPU is.
    let plan = plan::tune(&ladder.builds(), &args.chosen, &args.problems)?;
    ladder.limit(None)?;
    let builds = ladder.builds();
    let device = ladder.gpu.as_ref().map_err(no_data)?;
    let built: Vec<Row> = args
        .chosen
        .of(&builds)?
        .iter()
        .flat_map(|picked| rows::built(picked.stage))
        .collect();
    if let Some(answer) = same_code(&built) {
        return Ok(answer);
    }
    let machine = machine::machine(Ok(device.info()));
    let (path, cache) = open(args, &machine)?;
    let mut record = begin(&started, &plan, &builds, machine, vec![], true);
    let samples = args.iters.unwrap_or(SAMPLES);
    let executor = Executor {
        device: Some(device),
        timing: TimingPlan {
            samples,
            warm_up: WARM_UP,
            ..TimingPlan::default()
        },
        samples_elsewhere: samples,
        ..Executor::new(&plan, &ladder.stages)
    };
    let mut bars = Bars::new(args.quiet);
    let checked = executor.check(&mut record, &mut bars);
    let timed = checked.and_then(|()| executor.time(device, &mut record, &mut bars));
    bars.finish();
    timed.context("the presets could not be timed")?;
    written(
        args,
        path,
        cache,
        rank(&plan.timings, &record),
        &started.iso(),
    )
}

/// Merges `rankings` into the file; what was ranked without some variants, as a guess.
fn written(
    args: &TuneArgs,
    path: PathBuf,
    mut cache: TuningCache,
    rankings: Vec<Ranking>,
    tuned: &str,
) -> anyhow::Result<Answer> {
    let (whole, partial): (Vec<Ranking>, Vec<Ranking>) =
        rankings.into_iter().partition(Ranking::is_whole);
    for ranking in whole.iter().chain(&partial) {
        cache.put(&ranking.entry, tuned);
    }
    tuning_cache::write(&path, &cache)?;
    let failed = table::failures(whole.iter().chain(&partial));
    let text = format!(
        "{}\nthe best are in {}; commit it",
        terminal(&table::document(&whole), WIDTH),
        path.display()
    );
    let exit = Exit::of(!failed.is_empty(), false);
    let mut notes: Vec<String> = partial
        .iter()
        .map(|ranking| format!("a guess: {}", table::missing(ranking)))
        .collect();
    notes.extend(failed.iter().map(|line| format!("FAIL {line}")));
    Ok(Answer::new(exit, text).quiet(args.quiet).noting(notes))
}

/// The variants that compile to the same machine code as another one, and which.
fn shared_code<'a>(built: impl IntoIterator<Item = &'a Row>) -> Vec<String> {
    let reason = |row: &Row| {
        let reason = &row.verdicts.get(&GateId::R1)?.reason;
        let is_shared = reason.contains(rows::SAME_CODE);
        is_shared.then(|| format!("{} ({}): {reason}", row.subject, row.on))
    };
    built.into_iter().filter_map(reason).collect()
}

/// The file that a machine's best go to, and its content, which is empty where there is no file.
fn open(args: &TuneArgs, machine: &Machine) -> anyhow::Result<(PathBuf, TuningCache)> {
    let path = args.out.clone().unwrap_or_else(|| path_of(&machine.name));
    let here = machine.gpu.name().unwrap_or_default();
    let cache = tuning_cache::read(&path)?.unwrap_or_else(|| TuningCache::none(here));
    ensure!(
        cache.gpu == here,
        "{} is the tuning cache of {}, and this is {here}; give another file with --out",
        path.display(),
        cache.gpu
    );
    Ok((path, cache))
}
