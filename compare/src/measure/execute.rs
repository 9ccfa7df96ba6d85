//! Runs a plan on the real stages: cases first, then counters, then timings of what is green, then claims.

mod batch;

use super::measured::{ExecuteError, Measured, Sink};
use super::plan::{Mode, Plan, PlannedCase, PlannedTiming};
use super::rows;
use super::timed_problem::TimedProblem;
use crate::judge::best::time;
use crate::judge::claims::arms;
use crate::judge::list::grouped;
use crate::judge::state::is_green;
use crate::measure::builds::{StageBuild, loaded};
use crate::measure::input::FileInput;
use crate::measure::machine;
use crate::record::meta::claims;
use crate::record::store::Samples;
use crate::record::{Claim, On, Relation, Source as By, StageMeta, Subject};
use batch::{Batch, References, keep, label, no_reference};
use common::check::{self, Launched, NoOutput, Source, StagedInputs, Target};
use common::device::cuda::{CudaDevice, CudaError};
use common::inputs::Inputs;

use common::reference::ReferenceError;
use common::stage::LoadedStage;
use common::tier0;
use common::timing::{Comparison, Plan as TimingPlan};
use common::verdict::GateResult;
use rayon::prelude::*;
use std::collections::HashMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex, PoisonError};
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
divided by N; single launch: one launch between two events; claims: both arms interleaved (A B B A) on graphs built \
beforehand, ratio from pairs, bootstrap 95 % interval; outputs gated again on the buffers that were timed";

/// Cases that are judged together, per processor: with more than one, no processor waits long for the slowest case.
const IN_FLIGHT_PER_PROCESSOR: usize = 2;

/// Cases that may wait to be judged together.
pub fn in_flight() -> usize {
    IN_FLIGHT_PER_PROCESSOR * machine::processors()
}

/// Launches a program that is no stage on inputs.
pub type Callable<'a> = dyn Fn(&Arc<StagedInputs>) -> Result<Launched, NoOutput> + 'a;

/// What a plan runs on.
pub struct Executor<'a> {
    pub stages: &'a [LoadedStage],
    /// What the record says of it.
    pub builds: &'a [StageBuild],
    /// The GPU, for a plan on one: it alone is timed.
    pub device: Option<&'a CudaDevice>,
    /// More of its kind, which share the cases with it.
    pub others: &'a [Mutex<CudaDevice>],
    /// The tensors of `--input`.
    pub file: Option<&'a FileInput>,
    /// What is launched in place of the stages, in a plan of a candidate.
    pub callable: Option<&'a Callable<'a>>,
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
    pub fn run(
        &self,
        plan: &Plan,
        measured: &mut Measured,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        self.check(plan, measured, sink)?;
        self.evidence(plan, measured, sink)?;
        if let (Some(device), false) = (self.device, plan.timings.is_empty()) {
            let zero_us = self.time(device, plan, measured, sink)?;
            self.claims(device, zero_us, measured, sink)?;
        }
        Ok(())
    }

    /// Runs the cases of `plan` into `record` and sums them up, also where one of them ended the run.
    pub fn check(
        &self,
        plan: &Plan,
        measured: &mut Measured,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let outcome = self.cases(plan, measured, sink);
        measured.summarise(self.builds);
        outcome
    }

    /// The stage of a planned case. Plans are made from the same ladder.
    pub fn stage(&self, id: &str) -> &LoadedStage {
        loaded(self.stages, id)
    }

    /// Cases, problem by problem: inputs and references are made once for all variants. While one batch is judged, the
    /// next is launched.
    fn cases(
        &self,
        plan: &Plan,
        measured: &mut Measured,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut references = References::default();
        let mut waiting: Option<Batch<'_>> = None;
        let missing = measured.missing(&plan.cases);
        let mut done = plan.cases.len() - missing.len();
        'problems: for group in by_problem(missing) {
            let inputs = Arc::new(self.inputs(group[0])?);
            let staged = Arc::new(StagedInputs::new(&inputs, group[0].source.family()));
            for cases in group.chunks(self.in_flight(group[0], &staged)) {
                let (launched, judged) = std::thread::scope(|scope| {
                    let judging = waiting
                        .take()
                        .map(|batch| scope.spawn(|| batch.judge(self.stages, &mut references)));
                    let launched = self.launch(cases, &staged, |index| {
                        sink.starts("case", &label(cases[index]), done + index, plan.cases.len());
                    });
                    let judged = judging
                        .map(|judging| judging.join().unwrap_or_else(|panic| resume_unwind(panic)));
                    (launched, judged)
                });
                done += cases.len();
                if let Some(judged) = judged {
                    keep(judged?, measured, sink)?;
                }
                let lost = launched
                    .iter()
                    .any(|launched| matches!(launched, Err(NoOutput::Failed { fatal: true, .. })));
                let (inputs, staged) = (Arc::clone(&inputs), Arc::clone(&staged));
                waiting = Some(Batch {
                    cases: cases.to_vec(),
                    inputs,
                    staged,
                    launched,
                });
                if lost {
                    break 'problems;
                }
            }
        }
        match waiting {
            Some(batch) => keep(batch.judge(self.stages, &mut references)?, measured, sink),
            None => Ok(()),
        }
    }

    /// The tensors of a planned case.
    fn inputs(&self, case: &PlannedCase) -> Result<Inputs, ExecuteError> {
        match (&case.source, self.file) {
            (Source::Seeded { family, seed }, _) => {
                Ok(Inputs::generate(&case.problem, *family, *seed))
            }
            (Source::File { .. }, Some(file)) => file
                .inputs(&case.problem)
                .map_err(|error| no_reference(case, ReferenceError::Input(error))),
            (Source::File { .. }, None) => {
                unreachable!("a plan has file cases only where there is a file")
            }
        }
    }

    /// How many cases like `case` are launched before they are judged together. A large problem keeps all processors
    /// busy by itself in the emulator, and fills memory with what its launches leave.
    fn in_flight(&self, case: &PlannedCase, staged: &StagedInputs) -> usize {
        match case.mode {
            Mode::Plain | Mode::Traced | Mode::TracedOnce
                if case.problem.scores() > SMALL_SCORES =>
            {
                1
            }
            Mode::Plain | Mode::Traced | Mode::TracedOnce => self.in_flight,
            Mode::Device | Mode::Both => {
                (IN_FLIGHT_BYTES / (GPU_LAUNCHES * staged.launch_bytes())).clamp(1, self.in_flight)
            }
        }
    }

    /// Launches `cases`, which are of one problem: on each GPU one after the other, in the emulator in parallel.
    /// `starts` is called with the index of each that this thread launches. Where a GPU is lost there are fewer results than
    /// cases.
    fn launch(
        &self,
        cases: &[&PlannedCase],
        staged: &Arc<StagedInputs>,
        mut starts: impl FnMut(usize),
    ) -> Vec<Result<Launched, NoOutput>> {
        if let Some(callable) = self.callable {
            let started = cases.iter().enumerate();
            return started
                .map(|(index, _)| {
                    starts(index);
                    callable(staged)
                })
                .collect();
        }
        let stages = self.stages;
        let launch = |case: &PlannedCase, target: Target<'_>| {
            check::launch(
                loaded(stages, case.subject.stage()),
                case.subject.name(),
                staged,
                target,
            )
        };
        match self.device {
            Some(device) if matches!(cases[0].mode, Mode::Device | Mode::Both) => {
                let on = |device: &CudaDevice, case: &PlannedCase| {
                    let launches = GPU_LAUNCHES;
                    launch(case, Target::Cuda { device, launches })
                };
                spread(
                    cases,
                    self.others,
                    |index, case| {
                        starts(index);
                        on(device, case)
                    },
                    |other, case| on(&other.lock().unwrap_or_else(PoisonError::into_inner), case),
                )
            }
            _ => {
                (0..cases.len()).for_each(starts);
                cases
                    .par_iter()
                    .map(|case| launch(case, emulated(case.mode)))
                    .collect()
            }
        }
    }

    /// Times what `plan` wants timed and `record` says is green. Returns what an empty kernel takes, in microseconds.
    pub fn time(
        &self,
        device: &CudaDevice,
        plan: &Plan,
        measured: &mut Measured,
        sink: &mut dyn Sink,
    ) -> Result<f64, ExecuteError> {
        let zero_us = device.zero_line(&self.timing)?.device.p50;
        let meta = &mut measured.record.meta;
        meta.methods.insert(By::Gpu, METHOD.to_string());
        meta.left_out.retain(|scope| {
            plan.timings
                .iter()
                .all(|timing| timing.subject.stage() != scope.stage)
        });
        meta.left_out.extend(plan.timing_scopes.iter().cloned());
        let mut bench: Option<TimedProblem> = None;
        // Problem by problem, so that all variants read the same buffers.
        let by_problem = grouped(plan.timings.iter().map(|timing| (timing.problem, timing)));
        let timings: Vec<&PlannedTiming> = by_problem.into_iter().flat_map(|(_, of)| of).collect();
        // The first arm brings the GPU to its clocks, and each keeps it there for the next.
        let mut arm_plan = self.timing.clone();
        for (done, timing) in timings.iter().enumerate() {
            let PlannedTiming { subject, place, .. } = timing;
            sink.starts(
                "timing",
                &format!("{subject} {}", place.shape),
                done,
                timings.len(),
            );
            let stage = self.stage(subject.stage());
            let Ok(prepared) = stage.prepare(subject.name(), &timing.problem) else {
                continue;
            };
            let on = On::Problem(place.clone());
            if time(&measured.record, subject, place).is_some() {
                continue; // an earlier run has it
            }
            if !is_green(&measured.record, subject) {
                continue; // no number without a green gate
            }
            let bench = TimedProblem::renewed(&mut bench, device, &timing.problem)?;
            arm_plan.samples = if timing.problem.has_claims() {
                self.timing.samples
            } else {
                self.samples_elsewhere
            };
            let timed =
                device.measure(&mut device.arm(stage, &prepared, &bench.pool)?, &arm_plan)?;
            arm_plan.warm_up = arm_plan.warm_up.min(WARM_UP_AFTER_ANOTHER);
            let mut after = bench
                .judge(&timed.outputs, prepared.kernel.probability)
                .gates;
            after.extend(
                bench
                    .speed_of_light(device, zero_us)
                    .impossible(timed.measurement.device.min),
            );
            let device_us = timed.measurement.device_us.iter();
            let device_ns = device_us.map(|us| (us * 1e3).round()).collect();
            let record = &mut measured.record;
            record.names(&place.shape, timing.problem.shape);
            record.keep(Samples {
                subject: subject.clone(),
                on,
                by: By::Gpu,
                device_ns,
            });
            record.append(rows::timing(
                subject.clone(),
                place.clone(),
                &timed.measurement,
                &after,
            ));
            sink.grown(measured)?;
        }
        Ok(zero_us)
    }

    /// Times the two sides of every claim of speed against each other, where both were timed in this run.
    fn claims(
        &self,
        device: &CudaDevice,
        zero_us: f64,
        measured: &mut Measured,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let stages = measured.record.meta.stages.clone();
        let of_speed =
            |(_, claim): &(&StageMeta, &Claim)| matches!(claim.relation, Relation::Faster { .. });
        let mut claims: Vec<(&StageMeta, &Claim)> = claims(&stages).filter(of_speed).collect();
        // Problem by problem, so that one upload serves all claims about it.
        claims.sort_by(|(_, a), (_, b)| a.on.cmp(&b.on));
        let mut bench: Option<TimedProblem> = None;
        for (done, (stage, claim)) in claims.iter().enumerate() {
            let Some((new, base, same_preset)) = arms(&measured.record, stage, claim) else {
                continue;
            };
            if measured
                .record
                .pair(&new, &base, &On::Problem(claim.on.clone()), By::Gpu)
                .is_some()
            {
                continue; // an earlier run has it
            }
            sink.starts(
                "claim",
                &format!("{new} against {base} {}", claim.on),
                done,
                claims.len(),
            );
            let Some(problem) = claim.on.problem() else {
                continue;
            };
            let bench = TimedProblem::renewed(&mut bench, device, &problem)?;
            let speed_of_light = bench.speed_of_light(device, zero_us);
            let same_preset = same_preset.filter(|same| *same != base);
            for base in [Some(base), same_preset].into_iter().flatten() {
                let Some((pair, wrong)) = self.pair(device, bench, &base, &new)? else {
                    continue;
                };
                let (new, place) = (new.clone(), claim.on.clone());
                let row = rows::pair(new, base, place, By::Gpu, &pair, &speed_of_light);
                measured.record.append(row.with_verdicts(&wrong));
            }
            sink.grown(measured)?;
        }
        Ok(())
    }

    /// Two arms on one problem, interleaved (A B B A), and the gates that fail on what either left in the timed buffers; `None`
    /// where one of them does not take it.
    fn pair(
        &self,
        device: &CudaDevice,
        bench: &mut TimedProblem,
        base: &Subject,
        new: &Subject,
    ) -> Result<Option<(Comparison, Vec<GateResult>)>, CudaError> {
        let [base_stage, new_stage] = [base, new].map(|subject| self.stage(subject.stage()));
        let prepared = (
            base_stage.prepare(base.name(), &bench.problem),
            new_stage.prepare(new.name(), &bench.problem),
        );
        let (Ok(of_base), Ok(of_new)) = prepared else {
            return Ok(None);
        };
        let mut base_arm = device.arm(base_stage, &of_base, &bench.pool)?;
        let mut new_arm = device.arm(new_stage, &of_new, &bench.pool)?;
        let timed = device.measure_pair(&mut base_arm, &mut new_arm, &self.timing)?;
        let sides = [
            (base, timed.base_outputs, of_base.kernel.probability),
            (new, timed.new_outputs, of_new.kernel.probability),
        ];
        let mut wrong = Vec::new();
        for (subject, outputs, probability) in sides {
            let gates = bench.judge(&outputs, probability).gates;
            wrong.extend(rows::failed(&gates).map(|result| GateResult {
                reason: format!("{subject} as interleaved: {}", result.reason),
                ..result.clone()
            }));
        }
        Ok(Some((timed.comparison, wrong)))
    }
}

fn emulated(mode: Mode) -> Target<'static> {
    match mode {
        Mode::Traced => Target::Emulated {
            schedules: &tier0::SCHEDULES,
            traced: &tier0::SCHEDULES,
        },
        Mode::TracedOnce => Target::Emulated {
            schedules: &tier0::SCHEDULES,
            traced: &tier0::SCHEDULES[..1],
        },
        Mode::Plain | Mode::Device | Mode::Both => Target::Emulated {
            schedules: &tier0::SCHEDULES[..1],
            traced: &[],
        },
    }
}

/// Each GPU launches its share of the cases, one after the other, this thread's the first; in the order of the cases, up to
/// one that lost its GPU.
fn spread<C: Sync, D: Sync, L: Send>(
    cases: &[C],
    others: &[D],
    here: impl FnMut(usize, &C) -> Result<L, NoOutput>,
    there: impl Fn(&D, &C) -> Result<L, NoOutput> + Sync,
) -> Vec<Result<L, NoOutput>> {
    let there = &there;
    let mut shares = cases.chunks(cases.len().div_ceil(1 + others.len()).max(1));
    let first = shares.next().unwrap_or_default();
    std::thread::scope(|scope| {
        let elsewhere: Vec<_> = shares
            .zip(others)
            .map(|(share, other)| {
                let launched = scope.spawn(move || until_lost(share, |_, case| there(other, case)));
                (share.len(), launched)
            })
            .collect();
        let mut results = until_lost(first, here);
        let mut planned = first.len();
        for (share, launched) in elsewhere {
            let launched = launched.join().unwrap_or_else(|panic| resume_unwind(panic));
            // After a lost GPU results would be taken for other cases'.
            if results.len() == planned {
                results.extend(launched);
            }
            planned += share;
        }
        results
    })
}

/// Launches one after the other, and none after one that lost the GPU.
fn until_lost<C, L>(
    cases: &[C],
    mut launch: impl FnMut(usize, &C) -> Result<L, NoOutput>,
) -> Vec<Result<L, NoOutput>> {
    let mut results = Vec::with_capacity(cases.len());
    for (index, case) in cases.iter().enumerate() {
        results.push(launch(index, case));
        if let Some(Err(NoOutput::Failed { fatal: true, .. })) = results.last() {
            break;
        }
    }
    results
}

/// Cases of the same problem and inputs together, in the order of their first.
fn by_problem(cases: Vec<&PlannedCase>) -> Vec<Vec<&PlannedCase>> {
    let mut groups: Vec<Vec<&PlannedCase>> = Vec::new();
    let mut index: HashMap<String, usize> = HashMap::new();
    for case in cases {
        let key = format!("{:?} {:?}", case.problem, case.source);
        let group = *index.entry(key).or_insert_with(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[group].push(case);
    }
    groups
}

#[cfg(test)]
mod tests;
