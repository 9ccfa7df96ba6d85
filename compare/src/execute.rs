//! Runs a plan on the real stages: cases first, then counters, then timings of what is green, then claims.

mod batch;

use crate::comparison::{is_green, is_mission, summarise, summary_of};
use crate::input::FileInput;
use crate::plan::{Mode, Plan, PlannedCase, PlannedTiming};
use crate::timed_problem::TimedProblem;
use batch::{Batch, References, keep, label, no_reference};
use common::check::{self, CaseResult, Launched, NoOutput, Source, StagedInputs, Target};
use common::device::cuda::{CudaDevice, CudaError};
use common::gate;
use common::inputs::Inputs;
use common::problem::{Dtype, claims_problem};
use common::record::{ClaimResult, ClaimTerms, Performance, Record, SCHEMA, SamePreset, Samples, StageBuild, Timing};
use common::reference::ReferenceError;
use common::stage::LoadedStage;
use common::tier0;
use common::timing::{PairMeasurement, Plan as TimingPlan, claim};
use common::verdict::{GateId, GateResult};
use half::f16;
use rayon::prelude::*;
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

/// Launches that gate C5 compares on a GPU.
const GPU_LAUNCHES: usize = 3;

/// Bytes that launches on a GPU may leave on the host before they are judged, unless one case alone leaves more.
const IN_FLIGHT_BYTES: usize = 1 << 30;

/// Problems of at most this many scores are run several at once in the emulator; larger ones have blocks for all
/// processors.
const SMALL_SCORES: u64 = 50_000;

/// How the figures are taken, in words, for the record.
pub const METHOD: &str = "device time: a CUDA graph of N launches that rotate over the input sets, between two events, \
divided by N; single launch: one launch between two events; claims: both arms alternated A B B A on graphs built \
beforehand, ratio from pairs, bootstrap 95 % interval; outputs gated again on the buffers that were timed";

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// There is nothing to compare with.
    #[error("{case}: no reference")]
    Reference {
        /// The case.
        case: String,
        /// Why.
        #[source]
        source: ReferenceError,
    },
    /// The GPU is lost: nothing can run on it in this process.
    #[error("{case}: {reason}; the GPU is lost to this process, what was finished is in the record")]
    Lost {
        /// The case.
        case: String,
        /// What happened.
        reason: String,
    },
    /// Timing failed as a whole.
    #[error("timing failed")]
    Timing(#[from] CudaError),
    /// The sink of results failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Whoever takes the results could not: the record or an output cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("{what}")]
pub struct SinkError {
    /// What could not be written.
    pub what: String,
    /// Why.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// Takes what happens, as it happens.
pub trait Sink {
    /// `label` starts; `done` of `total` steps of this kind are finished.
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize);
    /// A case ended with this output, where it has one.
    fn output(&mut self, result: &CaseResult, output: &[f16]) -> Result<(), SinkError>;
    /// The record has grown; the sink may bring its summaries up to date.
    fn grown(&mut self, record: &mut Record) -> Result<(), SinkError>;
}

/// What a plan runs on.
pub struct Executor<'a> {
    /// The ladder.
    pub stages: &'a [LoadedStage],
    /// What the record says of it.
    pub builds: &'a [StageBuild],
    /// The GPU, for a plan on one.
    pub device: Option<&'a CudaDevice>,
    /// The tensors of `--input`.
    pub file: Option<&'a FileInput>,
    /// How arms are timed.
    pub timing: TimingPlan,
    /// Samples per arm on problems without claims.
    pub samples_elsewhere: usize,
    /// Cases that are launched before they are judged together, at most; at least 1.
    pub in_flight: usize,
}

/// Warm-up of an arm that is timed right after another; claims, which are judged on pairs, have all of it.
const WARM_UP_AFTER_ANOTHER: Duration = Duration::from_millis(50);

impl Executor<'_> {
    /// Runs `plan` into `record`.
    pub fn run(&self, plan: &Plan, record: &mut Record, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        self.check(plan, record, sink)?;
        self.evidence(plan, record, sink)?;
        if let (Some(device), false) = (self.device, plan.timings.is_empty()) {
            let zero_us = self.time(device, plan, record, sink)?;
            self.claims(device, zero_us, record, sink)?;
        }
        Ok(())
    }

    /// Runs the cases of `plan` into `record` and sums them up, also where one of them ended the run.
    pub fn check(&self, plan: &Plan, record: &mut Record, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let outcome = self.cases(plan, record, sink);
        record.correctness.variants = summarise(self.builds, &record.correctness);
        outcome
    }

    /// The stage of a planned case. Plans are made from the same ladder.
    pub fn stage(&self, id: &str) -> &LoadedStage {
        stage_of(self.stages, id)
    }

    /// Cases, problem by problem: inputs and references are made once for all variants. While one batch is judged, the
    /// next is launched.
    fn cases(&self, plan: &Plan, record: &mut Record, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let mut references = References::default();
        let mut waiting: Option<Batch<'_>> = None;
        let mut done = 0;
        'problems: for group in by_problem(&plan.cases) {
            let inputs = Arc::new(self.inputs(group[0])?);
            let staged = Arc::new(StagedInputs::new(&inputs, &group[0].key.source));
            for cases in group.chunks(self.in_flight(group[0], &staged)) {
                let (launched, judged) = std::thread::scope(|scope| {
                    let judging = waiting.take().map(|batch| scope.spawn(|| batch.judge(self.stages, &mut references)));
                    let launched = self.launch(cases, &staged, |index| {
                        sink.starts("case", &label(cases[index]), done + index, plan.cases.len());
                    });
                    let judged = judging.map(|judging| judging.join().unwrap_or_else(|panic| resume_unwind(panic)));
                    (launched, judged)
                });
                done += cases.len();
                if let Some(judged) = judged {
                    keep(judged?, record, sink)?;
                }
                let lost =
                    launched.iter().any(|launched| matches!(launched, Err(NoOutput::Failed { fatal: true, .. })));
                let (inputs, staged) = (Arc::clone(&inputs), Arc::clone(&staged));
                waiting = Some(Batch { cases: cases.to_vec(), inputs, staged, launched });
                if lost {
                    break 'problems;
                }
            }
        }
        match waiting {
            Some(batch) => keep(batch.judge(self.stages, &mut references)?, record, sink),
            None => Ok(()),
        }
    }

    /// The tensors of a planned case.
    fn inputs(&self, case: &PlannedCase) -> Result<Inputs, ExecuteError> {
        match (&case.key.source, self.file) {
            (Source::Seeded { family, seed }, _) => Ok(Inputs::generate(&case.problem, *family, *seed)),
            (Source::File { .. }, Some(file)) => {
                file.inputs(&case.problem).map_err(|error| no_reference(case, ReferenceError::Input(error)))
            }
            (Source::File { .. }, None) => unreachable!("a plan has file cases only where there is a file"),
        }
    }

    /// How many cases like `case` are launched before they are judged together. A large problem keeps all processors
    /// busy by itself in the emulator, and fills memory with what its launches leave.
    fn in_flight(&self, case: &PlannedCase, staged: &StagedInputs) -> usize {
        match case.mode {
            Mode::Plain | Mode::Traced | Mode::TracedOnce if case.problem.scores() > SMALL_SCORES => 1,
            Mode::Plain | Mode::Traced | Mode::TracedOnce => self.in_flight,
            Mode::Device | Mode::Both => {
                (IN_FLIGHT_BYTES / (GPU_LAUNCHES * staged.launch_bytes())).clamp(1, self.in_flight)
            }
        }
    }

    /// Launches `cases`, which are of one problem: on a GPU one after the other, in the emulator in parallel.
    /// `starts` is called with the index of each. On a GPU that is lost there are fewer results than cases.
    fn launch(
        &self,
        cases: &[&PlannedCase],
        staged: &Arc<StagedInputs>,
        mut starts: impl FnMut(usize),
    ) -> Vec<Result<Launched, NoOutput>> {
        let stages = self.stages;
        let launch = |case: &PlannedCase, target: Target<'_>| {
            check::launch(stage_of(stages, &case.key.stage), &case.key.variant, staged, target)
        };
        match self.device {
            Some(device) if matches!(cases[0].mode, Mode::Device | Mode::Both) => until_lost(cases, |index, case| {
                starts(index);
                launch(case, Target::Cuda { device, launches: GPU_LAUNCHES })
            }),
            _ => {
                (0..cases.len()).for_each(starts);
                cases.par_iter().map(|case| launch(case, emulated(case.mode))).collect()
            }
        }
    }

    /// Times what `plan` wants timed and `record` says is green. Returns what an empty kernel takes, in microseconds.
    pub fn time(
        &self,
        device: &CudaDevice,
        plan: &Plan,
        record: &mut Record,
        sink: &mut dyn Sink,
    ) -> Result<f64, ExecuteError> {
        let zero_us = device.zero_line(&self.timing)?.device.p50;
        let (method, scopes) = (METHOD.to_string(), plan.timing_scopes.clone());
        let performance = || Performance { schema: SCHEMA, method, timings: vec![], claims: vec![], scopes };
        record.performance.get_or_insert_with(performance);
        let mut bench: Option<TimedProblem> = None;
        let mut timings: Vec<&PlannedTiming> = plan.timings.iter().collect();
        // Problem by problem, so that all variants read the same buffers.
        timings.sort_by_key(|timing| first_index(&plan.timings, timing));
        // The first arm brings the GPU to its clocks, and each keeps it there for the next.
        let mut arm_plan = self.timing.clone();
        for (done, timing) in timings.iter().enumerate() {
            let label = format!("{}/{} {}", timing.stage, timing.variant, timing.shape_name);
            sink.starts("timing", &label, done, timings.len());
            let green = summary_of(record, &timing.stage, &timing.variant).is_some_and(is_green);
            let stage = self.stage(&timing.stage);
            let Ok(prepared) = stage.prepare(&timing.variant, &timing.problem) else { continue };
            if !green {
                continue; // no number without a green gate
            }
            if bench.as_ref().is_none_or(|bench| bench.problem != timing.problem) {
                bench = Some(TimedProblem::new(device, &timing.problem)?);
            }
            let Some(bench) = &mut bench else { continue };
            arm_plan.samples = if timing.problem.has_claims() { self.timing.samples } else { self.samples_elsewhere };
            let timed = device.measure(&mut device.arm(stage, &prepared, &bench.pool)?, &arm_plan)?;
            arm_plan.warm_up = arm_plan.warm_up.min(WARM_UP_AFTER_ANOTHER);
            let mut after = bench.judge(&timed.outputs, prepared.kernel.probability).gates;
            let floor = bench.floor(device, zero_us);
            if let Some(bound) = floor.broken_by(timed.measurement.device.min) {
                let reason = format!("impossible: below {:.3} us ({})", bound.us, bound.why);
                after.push(GateResult::judge(GateId::L1, false, reason));
            }
            let entry = Timing {
                stage: timing.stage.clone(),
                variant: timing.variant.clone(),
                identity: stage.report.identity.clone(),
                dtype: timing.problem.dtype,
                mask: timing.problem.mask,
                shape_name: timing.shape_name.clone(),
                shape: timing.problem.shape,
                measurement: timed.measurement,
                samples: Samples::Raw,
                after,
            };
            if let Some(performance) = &mut record.performance {
                performance.timings.push(entry);
            }
            sink.grown(record)?;
        }
        Ok(zero_us)
    }

    /// Judges every claim whose two sides were timed on mission in this run.
    fn claims(
        &self,
        device: &CudaDevice,
        zero_us: f64,
        record: &mut Record,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let claims: Vec<(&StageBuild, &ClaimTerms)> =
            self.builds.iter().flat_map(|stage| stage.claims.iter().map(move |claim| (stage, claim))).collect();
        for (done, (stage, terms)) in claims.iter().enumerate() {
            let base_stage = self.builds.iter().find(|build| build.id == terms.base_stage);
            let new = fastest(record, stage, &terms.family, terms.dtype);
            let base = base_stage.and_then(|base| fastest(record, base, &terms.base_family, terms.dtype));
            let (Some(new), Some(base)) = (new, base) else { continue };
            let label = format!("{}/{new} against {}/{base} {}", stage.id, terms.base_stage, terms.dtype);
            sink.starts("claim", &label, done, claims.len());
            let problem = claims_problem(terms.dtype);
            let bench = TimedProblem::new(device, &problem)?;
            let pair = |base: &str, new: &str| -> Result<Option<PairMeasurement>, CudaError> {
                let (base_stage, new_stage) = (self.stage(&terms.base_stage), self.stage(&stage.id));
                let prepared = (base_stage.prepare(base, &problem), new_stage.prepare(new, &problem));
                let (Ok(base), Ok(new)) = prepared else { return Ok(None) };
                let mut base = device.arm(base_stage, &base, &bench.pool)?;
                let mut new = device.arm(new_stage, &new, &bench.pool)?;
                Ok(Some(device.measure_pair(&mut base, &mut new, &self.timing)?.pair))
            };
            let Some(best) = pair(&base, &new)? else { continue };
            let preset = stage.variant(&new).map_or("", |variant| variant.preset()).to_string();
            let same_preset = match base_stage.and_then(|stage| stage.twin(&terms.base_family, &preset)) {
                None => None,
                Some(twin) if twin.name == base => Some(best.comparison),
                Some(twin) => pair(&twin.name, &new)?.map(|pair| pair.comparison),
            };
            let result = claim::judge(&best.comparison, terms.at_least, &bench.floor(device, zero_us));
            let claim = ClaimResult {
                stage: stage.id.clone(),
                terms: (*terms).clone(),
                variant: new,
                base_variant: base,
                identity: stage.identity.clone(),
                comparison: best.comparison,
                same_preset: same_preset.map(|comparison| SamePreset { preset, comparison }),
                result,
            };
            if let Some(performance) = &mut record.performance {
                performance.claims.push(claim);
            }
            sink.grown(record)?;
        }
        Ok(())
    }
}

fn stage_of<'a>(stages: &'a [LoadedStage], id: &str) -> &'a LoadedStage {
    stages.iter().find(|stage| stage.info().id == id).expect("the plan names stages of the ladder")
}

fn emulated(mode: Mode) -> Target<'static> {
    match mode {
        Mode::Traced => Target::Emulated { schedules: &tier0::SCHEDULES, traced: &tier0::SCHEDULES },
        Mode::TracedOnce => Target::Emulated { schedules: &tier0::SCHEDULES, traced: &tier0::SCHEDULES[..1] },
        Mode::Plain | Mode::Device | Mode::Both => Target::Emulated { schedules: &tier0::SCHEDULES[..1], traced: &[] },
    }
}

/// Launches one after the other, and none after one that lost the GPU.
fn until_lost<C, L>(cases: &[C], mut launch: impl FnMut(usize, &C) -> Result<L, NoOutput>) -> Vec<Result<L, NoOutput>> {
    let mut results = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        results.push(launch(index, case));
        if let Some(Err(NoOutput::Failed { fatal: true, .. })) = results.last() {
            break;
        }
    }
    results
}

/// The fastest variant of a family on mission with `dtype`, among those whose time may be shown.
fn fastest(record: &Record, stage: &StageBuild, family: &str, dtype: Dtype) -> Option<String> {
    let of_family = |timing: &&Timing| {
        timing.stage == stage.id
            && is_mission(timing, dtype)
            && stage.variant(&timing.variant).is_some_and(|variant| variant.family == family)
            && !gate::any_failed(&timing.after)
    };
    let timings = record.performance.iter().flat_map(|performance| &performance.timings).filter(of_family);
    let best = timings.min_by(|a, b| a.measurement.device.p50.total_cmp(&b.measurement.device.p50));
    best.map(|timing| timing.variant.clone())
}

/// Cases of the same problem and inputs together, in the order of their first.
fn by_problem(cases: &[PlannedCase]) -> Vec<Vec<&PlannedCase>> {
    let mut groups: Vec<Vec<&PlannedCase>> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for case in cases {
        let key = format!("{:?} {:?}", case.problem, case.key.source);
        let group = *index.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(case);
    }
    groups
}

fn first_index(timings: &[PlannedTiming], timing: &PlannedTiming) -> usize {
    timings.iter().position(|other| other.problem == timing.problem).unwrap_or(timings.len())
}

#[cfg(test)]
mod tests;
