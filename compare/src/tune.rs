//! `compare tune`: every preset of a stage on the given problems, gated, timed and ranked; the best are kept in a file
//! that `compare run` reads to decide what to time.

mod elites;
mod table;
#[cfg(test)]
mod tests;

pub use elites::{Elites, keep_elites};

use crate::cli::{RunArgs, TuneArgs};
use crate::machine::{self, Timestamp};
use crate::measure::builds::builds;
use crate::measure::execute::{ExecuteError, Executor, Measured, Sink, SinkError};
use crate::measure::{plan, rows};
use crate::progress::Progress as Bars;
use crate::record::files::write_json;
use crate::record::meta::Gpu;
use crate::record::{Record, Row, Source, StoreError};
use crate::run::{in_flight, new_record};
use crate::select::{self, SelectError};
use crate::{list, registry};
use common::check::CaseResult;
use common::limits::{DeviceError, DeviceLimits, Limited};
use common::stage::LoadError;
use common::timing::Plan as TimingPlan;
use common::verdict::GateId;
use elites::{Ranking, rank};
use half::f16;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Timed samples per arm, unless `--iters` says otherwise: a ranking needs fewer than a claim, and a claim is judged by
/// `compare run`, on more.
const SAMPLES: usize = 100;

/// Warm-up per arm. The arm before has just kept the GPU at its clocks.
const WARM_UP: Duration = Duration::from_millis(100);

/// Why presets could not be tuned.
#[derive(Debug, thiserror::Error)]
pub enum TuneError {
    /// A flag names nothing.
    #[error(transparent)]
    Select(#[from] SelectError),
    /// A stage is broken.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The environment names no device, or the GPU's limits are not known.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The best presets of a device are those that it has run.
    #[error(transparent)]
    Limited(#[from] Limited),
    /// A file cannot be written or read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The file to merge into is about another GPU.
    #[error("{} holds the elites of {found}, and this is {here}; give another file with --out", path.display())]
    OtherGpu {
        /// The file.
        path: PathBuf,
        /// Whose elites it holds.
        found: String,
        /// The GPU that is open.
        here: String,
    },
    /// The measurement itself failed.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
}

/// What came of it.
pub enum Tuned {
    /// Nothing can be timed here.
    NoData {
        /// Why, and what to do.
        reason: String,
    },
    /// Two presets are one: there is nothing to choose between.
    SharedCode {
        /// Which, a line per stage.
        reasons: Vec<String>,
    },
    /// Measured and written.
    Written {
        /// The ranking.
        text: String,
        /// The file.
        path: PathBuf,
        /// Rankings that are not of all variants, and what they lack; a line for each. The file keeps what it said.
        skipped: Vec<String>,
        /// Variants that are wrong, so that they have no place in a ranking, and why; a line for each.
        failed: Vec<String>,
    },
}

/// Where the elites of a machine are: `tune/nvidia-h200.json` of the workspace.
pub fn path_of(machine: &str) -> PathBuf {
    machine::workspace().unwrap_or_default().join("tune").join(format!("{machine}.json"))
}

/// Gates, times and ranks what `args` select, or ranks what a record timed, and merges the best into the file.
pub fn tune(args: &TuneArgs) -> Result<Tuned, TuneError> {
    match &args.record {
        Some(folder) => from_record(args, folder),
        None => measure(args),
    }
}

/// Ranks what `folder` says. Problems on which it left variants out are not ranked.
fn from_record(args: &TuneArgs, folder: &Path) -> Result<Tuned, TuneError> {
    let record = Record::read(folder)?;
    Limited::refuse(&folder.display().to_string(), record.meta.device)?;
    let planned = elites::of_record(&record);
    if planned.is_empty() {
        return Ok(Tuned::NoData { reason: format!("{} has no timings; run `compare` on a GPU", folder.display()) });
    }
    let reasons = shared_code(record.by(Source::Ptxas));
    if !reasons.is_empty() {
        return Ok(Tuned::SharedCode { reasons });
    }
    let path = args.out.clone().unwrap_or_else(|| path_of(&record.meta.machine.name));
    let elites = open(&path, &record.meta.machine.gpu)?;
    written(path, elites, rank(&planned, &record), &record.meta.started)
}

fn measure(args: &TuneArgs) -> Result<Tuned, TuneError> {
    let started = Timestamp::now();
    Limited::refuse("a ranking", DeviceLimits::asked(None)?)?;
    let mut stages = registry::load()?;
    let selection = RunArgs {
        stages: args.stages.clone(),
        shapes: args.shapes.clone(),
        dtypes: args.dtypes.clone(),
        masks: args.masks.clone(),
        ..RunArgs::default()
    };
    // Wrong words are refused before a missing GPU is.
    let plan = plan::tune(&builds(&stages), &selection)?;
    let device = match list::gpu(&stages) {
        Ok(device) => device,
        Err(reason) => return Ok(Tuned::NoData { reason }),
    };
    registry::limit(&mut stages, Some(&device), None)?;
    let builds = builds(&stages);
    let built: Vec<Row> = select::stages(&args.stages, &builds)?.into_iter().flat_map(rows::built).collect();
    let reasons = shared_code(&built);
    if !reasons.is_empty() {
        return Ok(Tuned::SharedCode { reasons });
    }
    let machine = machine::machine(Ok(device.info()));
    let path = args.out.clone().unwrap_or_else(|| path_of(&machine.name));
    let elites = open(&path, &machine.gpu)?;
    let mut measured = Measured::new(new_record(&started, &plan, &builds, machine, vec![], true));
    let samples = args.iters.unwrap_or(SAMPLES);
    let executor = Executor {
        stages: &stages,
        builds: &builds,
        device: Some(&device),
        file: None,
        timing: TimingPlan { samples, warm_up: WARM_UP, ..TimingPlan::default() },
        samples_elsewhere: samples,
        in_flight: in_flight(),
    };
    let mut bars = Tuning(Bars::new(args.quiet));
    let checked = executor.check(&plan, &mut measured, &mut bars);
    let timed = checked.and_then(|()| executor.time(&device, &plan, &mut measured, &mut bars));
    bars.0.finish();
    timed?;
    written(path, elites, rank(&plan.timings, &measured.record), &started.iso())
}

/// Merges `rankings` into the file.
fn written(path: PathBuf, mut elites: Elites, rankings: Vec<Ranking>, tuned: &str) -> Result<Tuned, TuneError> {
    let (whole, partial): (Vec<Ranking>, Vec<Ranking>) = rankings.into_iter().partition(Ranking::is_whole);
    elites.merge(&whole, tuned);
    write_json(&path, &elites)?;
    let failed = table::failures(&whole);
    Ok(Tuned::Written {
        text: table::text(&whole),
        path,
        skipped: partial.iter().map(table::missing).collect(),
        failed,
    })
}

/// The variants that compile to the same machine code as another one, and which.
fn shared_code<'a>(built: impl IntoIterator<Item = &'a Row>) -> Vec<String> {
    let shares =
        |row: &&Row| row.verdicts.get(&GateId::R1).is_some_and(|judged| judged.reason.contains(rows::SAME_CODE));
    let shared = built.into_iter().filter(shares);
    shared.map(|row| format!("{} ({}): {}", row.subject, row.on, row.verdicts[&GateId::R1].reason)).collect()
}

/// The file as it is, or an empty one for `gpu`.
fn open(path: &Path, gpu: &Gpu) -> Result<Elites, TuneError> {
    let here = gpu.name().unwrap_or_default();
    match Elites::read(path)? {
        Some(elites) if elites.gpu != here => {
            Err(TuneError::OtherGpu { path: path.to_path_buf(), found: elites.gpu, here: here.to_string() })
        }
        known => Ok(known.unwrap_or_else(|| Elites::none(here))),
    }
}

/// Shows progress; a ranking is written whole or not at all.
struct Tuning(Bars);

impl Sink for Tuning {
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.0.step(kind, label, done, total);
    }

    fn output(&mut self, _: &CaseResult, _: &[f16]) -> Result<(), SinkError> {
        Ok(())
    }

    fn grown(&mut self, _: &mut Measured) -> Result<(), SinkError> {
        Ok(())
    }
}
