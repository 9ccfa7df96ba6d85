//! `compare fuzz`: random problems, layouts and inputs through the gates; what fails is shrunk,
//! with the command that shows it.

mod page;
mod search;
#[cfg(test)]
mod tests;

use crate::answer::Answer;
use crate::progress::say;
use anyhow::Context;
use clap::Args;
use common::check::NoOutput;
use common::device::cuda::CudaDevice;
use common::fuzz::{self, Case, RunError};
use common::limits::DeviceLimits;
use common::problem::Dtype;
use common::stage::LoadedStage;
use measure::interrupt::interrupted;
use measure::limits;
use measure::machine;
use measure::select::{Chosen, Picked, SelectError, at_least_one, dtype, or_all};
use measure::sink::ExecuteError;
use rayon::prelude::*;
use results::builds::loaded;
use results::table::{StageMeta, Subject};
use search::{Clock, Contender, Instruments, Judge, Reporter, Search, Trial, Tried};
use stages::{Backend, Ladder};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const EXAMPLES: &str = "\
Draws a problem (extents, heads, type, mask, softmax scale), where each tensor lies (order of batch,
head and row, gaps, offset), inputs, and whether log-sum-exps are asked for, for one variant after
the other. In the emulator each case goes through gates C1 to C6 and C8, under three schedules, and
a small one through H1; on a GPU through C1 to C6 and C8 in three launches, and a small one through
B1. A seed and the variants that are named draw the same cases on every machine. A variant that
failed is not tried again. What fails is shrunk to the smallest case that fails the same gate, and
printed with the command that runs it.

Examples:
  compare fuzz                                  a minute over all variants; the seed is the day's
  compare fuzz --stages 5,6 --seconds 600 --seed 7
                                                ten minutes of two stages, of another seed
  compare fuzz --backend cuda --cases 20000     on a GPU, however long it takes
  compare fuzz --backend emulated --case 'stage5-swizzle/swizzle-64x128-k2 2x6:2x17:203x64 f16 \
causal normal:7 lse q=bshd/s256@16'
                                                one case, as a failing `compare fuzz` prints it

Exit codes:
  0  nothing was found
  1  a gate failed; the smallest case is printed
  2  wrong usage, or an environment that cannot run what was asked
  3  not measured: some variant got no case, because it supports none that was drawn or the time was up
  130  interrupted; what was found until then is printed";

/// Seconds without --seconds and --cases.
const SECONDS: u64 = 60;

/// Cases that run at once in the emulator, per processor: more than one, so that none waits long
/// for the slowest.
const IN_FLIGHT_PER_PROCESSOR: usize = 2;

#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct FuzzArgs {
    #[command(flatten)]
    pub chosen: Chosen,
    /// Element types to draw: f16, e4m3, bf16 [default: all]
    #[arg(long, value_delimiter = ',', value_name = "DTYPE,..", value_parser = dtype)]
    pub dtypes: Vec<Dtype>,
    /// Draw the cases of this seed [default: the day, as YYYYMMDD in UTC]
    #[arg(long, value_name = "SEED", allow_negative_numbers = true)]
    pub seed: Option<u64>,
    /// End after so many seconds, once what is running has ended [default: 60, with --cases no
    /// limit]
    #[arg(
        long,
        value_name = "SECONDS",
        allow_negative_numbers = true,
        value_parser = at_least_one::<u64>
    )]
    pub seconds: Option<u64>,
    /// End after so many cases [default: no limit]
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = at_least_one::<u64>
    )]
    pub cases: Option<u64>,
    /// Run this case alone: STAGE/VARIANT SHAPE DTYPE MASK FAMILY:SEED and options, as a failing
    /// run prints it
    #[arg(long, value_name = "CASE", value_parser = trial,
          conflicts_with_all = ["stages", "variants", "dtypes", "seed", "seconds", "cases"])]
    pub case: Option<Trial>,
    /// The backend that kernels run on
    #[arg(long, value_enum, default_value_t)]
    pub backend: Backend,
}

/// Reads `stage5-swizzle/swizzle-64x128-k2 1x1x17x64 f16 full normal:0`.
fn trial(text: &str) -> Result<Trial, SelectError> {
    let (subject, words) = text.trim().split_once(' ').unwrap_or((text, ""));
    if !subject.contains('/') {
        let says = format!("'{subject}' is no variant: give STAGE/VARIANT before the case");
        return Err(SelectError(says));
    }
    let case: Case = words
        .parse()
        .map_err(|error: <Case as std::str::FromStr>::Err| SelectError(error.to_string()))?;
    Ok(Trial {
        subject: Subject::from(subject),
        case,
    })
}

/// Searches for a random case that fails a gate, or judges the one of `--case`.
pub fn fuzz(args: &FuzzArgs) -> anyhow::Result<Answer> {
    let mut ladder = args.backend.open()?;
    ladder.limit(DeviceLimits::asked(None)?)?;
    limits::check_runs()?;
    let builds = ladder.builds()?;
    let gates = Gates { ladder: &ladder };
    match &args.case {
        Some(trial) => run_one(trial, &builds, &gates),
        None => search(args, &builds, &gates),
    }
}

/// Runs the case of `--case`.
fn run_one(trial: &Trial, builds: &[StageMeta], gates: &Gates<'_>) -> anyhow::Result<Answer> {
    let chosen = Chosen {
        stages: vec![trial.subject.stage().to_string()],
        variants: vec![trial.subject.name().to_string()],
    };
    chosen.pick(builds)?;
    limits::check_problems([&trial.case.problem])?;
    let tried = gates
        .judge(std::slice::from_ref(trial))
        .pop()
        .context("a case has an outcome")??;
    Ok(page::of_trial(trial, &tried))
}

struct Terminal;

impl Reporter for Terminal {
    fn report(&self, line: &str) {
        say(line);
    }
}

/// Draws cases until time or number are reached.
fn search(args: &FuzzArgs, builds: &[StageMeta], gates: &Gates<'_>) -> anyhow::Result<Answer> {
    let picked = args.chosen.pick(builds)?;
    let dtypes = or_all(&args.dtypes, &Dtype::ALL);
    let contenders = picked
        .iter()
        .map(|variant| contender(variant, dtypes))
        .collect();
    let seed = args.seed.unwrap_or_else(today);
    let seconds = args.seconds.or(args.cases.is_none().then_some(SECONDS));
    let search = Search {
        seed,
        contenders,
        cases: args.cases,
        seconds,
        in_flight: gates.in_flight(),
    };
    let clock = Elapsed {
        began: Instant::now(),
        interrupted: interrupted()?,
    };
    say(&format!("fuzz: seed {seed}, {}", gates.device()));
    let result = search.run(Instruments {
        judge: gates,
        clock: &clock,
        reporter: &Terminal,
    })?;
    let backend = gates.backend();
    Ok(page::of_search(&search, &result, backend, &gates.device()))
}

/// A variant, and the types that it is compiled for and that were asked for; all that were, where
/// it has none of them.
fn contender((stage, variant): &Picked<'_>, dtypes: &[Dtype]) -> Contender {
    let taken: Vec<Dtype> = dtypes
        .iter()
        .copied()
        .filter(|dtype| variant.takes(*dtype))
        .collect();
    Contender {
        subject: stage.subject(&variant.name),
        dtypes: or_all(&taken, dtypes).to_vec(),
        serves: variant.serves,
        cache: variant.cache,
    }
}

/// Returns the day as a number: 20261128.
fn today() -> u64 {
    let compact = machine::compact(machine::now());
    let day = compact.split('T').next().unwrap_or_default();
    day.parse().unwrap_or_default()
}

/// The stages and gates of this build.
struct Gates<'a> {
    ladder: &'a Ladder,
}

impl Gates<'_> {
    fn gpu(&self) -> Option<&CudaDevice> {
        self.ladder.gpu.as_ref().ok()
    }

    /// Returns the word of `--backend` for where these run.
    fn backend(&self) -> &'static str {
        match self.gpu() {
            Some(_) => "cuda",
            None => "emulated",
        }
    }

    fn device(&self) -> String {
        match self.gpu() {
            Some(gpu) => format!("on {}", gpu.info().name),
            None => "in the emulator".to_string(),
        }
    }

    /// Returns how many cases run at once: one on a GPU.
    fn in_flight(&self) -> usize {
        match self.gpu() {
            Some(_) => 1,
            None => IN_FLIGHT_PER_PROCESSOR * machine::processors(),
        }
    }
}

impl Judge for Gates<'_> {
    fn judge(&self, trials: &[Trial]) -> Vec<Result<Tried, ExecuteError>> {
        let stages = &self.ladder.stages;
        let Some(gpu) = self.gpu() else {
            return trials
                .par_iter()
                .map(|trial| run(trial, stages, None))
                .collect();
        };
        // A GPU is not for several threads, and the ladder has it.
        let mut outcomes = Vec::new();
        for trial in trials {
            outcomes.push(run(trial, stages, Some(gpu)));
        }
        outcomes
    }
}

/// Runs a case. It is an error only if the machine lacks something, or there is no reference.
fn run(
    trial: &Trial,
    stages: &[LoadedStage],
    gpu: Option<&CudaDevice>,
) -> Result<Tried, ExecuteError> {
    let stage = loaded(stages, trial.subject.stage());
    let case = trial.to_string();
    let error = match fuzz::run(stage, trial.subject.name(), &trial.case, gpu) {
        Ok(checked) => return Ok(Tried::judged(checked.gates)),
        Err(RunError::Reference(source)) => return Err(ExecuteError::Reference { case, source }),
        Err(RunError::NoOutput(error)) => error,
    };
    match error {
        NoOutput::NoMemory(reason) => Err(ExecuteError::NoMemory { case, reason }),
        NoOutput::Unsupported(reason) => Ok(Tried::Unsupported(reason.to_string())),
        NoOutput::Failed { reason, fatal } => Ok(Tried::without_output(reason, fatal)),
    }
}

struct Elapsed {
    began: Instant,
    interrupted: Arc<AtomicBool>,
}

impl Clock for Elapsed {
    fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
