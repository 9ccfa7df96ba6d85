//! Executes a plan on the real stages. In rounds, each a stage's cases and then its times, or a given problem's; then the cases that no
//! time waits for, counters, and what claims compare.

use super::plan::{Mode, Plan, PlannedCase, Round};
use super::sink::{ExecuteError, Sink};
use super::summary::summarise;
use super::timed_problem::TimedProblem;
use super::timer::{Kernel, Timer};
use crate::judge::View;
use crate::judge::best::best;
use crate::judge::claims::arms;
use crate::judge::list::{distinct, grouped};
use crate::judge::state::is_green;
use crate::measure::builds::loaded;
use crate::measure::input::FileInput;
use crate::measure::machine;
use crate::table::session::claims;
use crate::table::{Kind, ProblemPlace, Relation, Row, Run, StageMeta, Subject, measured};
use common::check::{self, Launched, NoOutput, Outcome, Source, StagedInputs, Target};
use common::device::BackendKind;
use common::device::cuda::{CudaDevice, CudaError};
use common::inputs::Inputs;
use common::metric::Metric;
use common::problem::Problem;
use common::reference::{Probability, Reference, ReferenceError, reference};
use common::stage::{LoadedStage, Prepared};
use common::tier0;
use common::timing::Plan as TimingPlan;
use common::verdict::GateResult;
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

/// How many launches gate C5 compares on a GPU.
const GPU_LAUNCHES: usize = 3;

/// How many bytes of output may wait on the host to be judged, unless a single case leaves more.
const IN_FLIGHT_BYTES: usize = 1 << 30;

/// The emulator runs several problems of at most this many scores at once; larger ones have enough blocks for all
/// processors.
const SMALL_SCORES: u64 = 50_000;

/// Cases that are judged together, per processor: more than one, so that no processor waits long for the slowest case.
const IN_FLIGHT_PER_PROCESSOR: usize = 2;

/// Without `--iters`, [`Executor::samples_elsewhere`].
const SAMPLES_ELSEWHERE: usize = 100;

pub struct Executor<'a> {
    pub plan: &'a Plan,
    pub stages: &'a [LoadedStage],
    pub device: Option<&'a CudaDevice>,
    /// What kernels are timed on, and large references computed: the device.
    pub timer: Option<&'a dyn Timer>,
    /// The tensors of `--input`.
    pub file: Option<&'a FileInput>,
    pub timing: TimingPlan,
    /// Samples per arm on problems without claims, whose figures are shown but not judged.
    pub samples_elsewhere: usize,
    /// The largest number of cases that are launched before they are judged; at least 1.
    pub in_flight: usize,
}

/// Warm-up of an arm that is timed right after another. Claims, which are judged on pairs, use the full warm-up.
const WARM_UP_AFTER_ANOTHER: Duration = Duration::from_millis(50);

impl<'a> Executor<'a> {
    /// In the emulator only.
    pub fn new(plan: &'a Plan, stages: &'a [LoadedStage]) -> Self {
        Self {
            plan,
            stages,
            device: None,
            timer: None,
            file: None,
            timing: TimingPlan::default(),
            samples_elsewhere: SAMPLES_ELSEWHERE,
            in_flight: IN_FLIGHT_PER_PROCESSOR * machine::processors(),
        }
    }

    pub fn run(&self, run: &mut Run, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let timer = self.timer.filter(|_| !self.plan.timings.is_empty());
        let zero_us = timer.map(|timer| timer.zero_us(&self.timing)).transpose()?;
        let mut benches = timer.map(|timer| Benches::new(timer, !self.plan.is_selection));
        let checked = self.rounds(benches.as_mut(), zero_us, run, sink);
        summarise(run, &self.plan.cases);
        checked?;
        self.evidence(run, sink)?;
        if let (Some(benches), Some(zero_us)) = (&mut benches, zero_us) {
            self.pairs(benches, zero_us, run, sink)?;
        }
        if let (Some(timer), false) = (self.timer, self.plan.draws.is_empty()) {
            self.draws(timer, run, sink)?;
        }
        Ok(())
    }

    /// Runs all cases, and after those of each round times what is green in it.
    fn rounds(
        &self,
        mut benches: Option<&mut Benches<'_>>,
        zero_us: Option<f64>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut asked: Vec<PlannedCase> = Vec::new();
        let (mut made, mut timed) = (None, 0);
        for Round { cases, timings } in self.plan.rounds() {
            self.cases(&cases, &mut made, run, sink)?;
            let (Some(benches), Some(zero_us)) = (benches.as_mut(), zero_us) else {
                continue;
            };
            asked.extend(cases.into_iter().cloned());
            // Of what was asked so far; the run itself sums up whole variants alone.
            let mut judged = run.clone();
            summarise(&mut judged, &asked);
            let timings = green(&View::alone(&judged), timings);
            self.time(benches, zero_us, &timings, timed, run, sink)?;
            timed += timings.len();
        }
        Ok(())
    }

    /// Plans are made from the same ladder.
    pub fn stage(&self, id: &str) -> &LoadedStage {
        loaded(self.stages, id)
    }

    /// Runs cases, problem by problem, so that inputs and references are made once for all variants among them.
    fn cases(
        &self,
        cases: &[&PlannedCase],
        made: &mut Option<MadeInputs>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let (stages, total) = (self.stages, self.plan.cases.len());
        let mut done = run.cases().count();
        let by_inputs = cases
            .iter()
            .map(|&case| ((case.problem, &case.source), case));
        for (_, group) in grouped(by_inputs) {
            let before = made.take().filter(|made| made.is_of(group[0]));
            let MadeInputs {
                inputs,
                staged,
                references,
                ..
            } = made.insert(match before {
                Some(before) => before,
                None => self.make(group[0])?,
            });
            for cases in group.chunks(self.in_flight(group[0], staged)) {
                let launched = self.launch(cases, staged, |index| {
                    sink.starts("case", &label(cases[index]), done + index, total);
                });
                done += cases.len();
                for probability in launched
                    .iter()
                    .flatten()
                    .map(|launched| launched.probability)
                {
                    if let Entry::Vacant(place) = references.entry(probability) {
                        let reference = self.reference(inputs, probability);
                        place.insert(
                            reference.map_err(|source| no_reference(group[0].place(), source))?,
                        );
                    }
                }
                let (staged, references) = (&*staged, &*references);
                let judge = |case: &PlannedCase, launched: Result<Launched, NoOutput>| {
                    launched.and_then(|launched| {
                        let reference = &references[&launched.probability];
                        let mut checked = launched.judge(reference);
                        if case.mode == Mode::Both {
                            let (id, variant) = (case.subject.stage(), case.subject.name());
                            let (stage, output) = (loaded(stages, id), &checked.output);
                            let agree = check::both_backends(stage, variant, staged, output)?;
                            checked.gates.push(agree);
                        }
                        Ok(checked)
                    })
                };
                let judged = cases
                    .par_iter()
                    .zip(launched)
                    .map(|(case, launched)| (*case, judge(case, launched)));
                keep(judged.collect(), run, sink)?;
            }
        }
        Ok(())
    }

    fn make(&self, case: &PlannedCase) -> Result<MadeInputs, ExecuteError> {
        let inputs = self.inputs(case)?;
        let staged = StagedInputs::new(&inputs, case.source.family());
        Ok(MadeInputs {
            problem: case.problem,
            source: case.source.clone(),
            inputs,
            staged: Arc::new(staged),
            references: HashMap::new(),
        })
    }

    fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        match self.timer {
            Some(timer) => timer.reference(inputs, p),
            None => reference(inputs, p),
        }
    }

    fn inputs(&self, case: &PlannedCase) -> Result<Inputs, ExecuteError> {
        match &case.source {
            Source::Seeded { family, seed } => Ok(Inputs::generate(&case.problem, *family, *seed)),
            Source::File { .. } => {
                let file = self
                    .file
                    .expect("a plan has file cases only where there is a file");
                let inputs = file.inputs(&case.problem);
                inputs.map_err(|error| no_reference(case.place(), ReferenceError::Input(error)))
            }
        }
    }

    /// How many cases like `case` are launched before they are judged. In the emulator a large problem keeps all processors busy
    /// by itself; on a GPU its outputs fill the host's memory.
    fn in_flight(&self, case: &PlannedCase, staged: &StagedInputs) -> usize {
        match case.mode {
            Mode::Device | Mode::Both => {
                (IN_FLIGHT_BYTES / (GPU_LAUNCHES * staged.launch_bytes())).clamp(1, self.in_flight)
            }
            _ if case.problem.scores() > SMALL_SCORES => 1,
            _ => self.in_flight,
        }
    }

    /// Launches `cases`, which are of one problem: one after the other on a GPU, in parallel in the emulator. `starts` is
    /// called with the index of each case. After a sticky CUDA error there are fewer results than
    /// cases.
    fn launch(
        &self,
        cases: &[&PlannedCase],
        staged: &Arc<StagedInputs>,
        mut starts: impl FnMut(usize),
    ) -> Vec<Result<Launched, NoOutput>> {
        let launch = |case: &PlannedCase, target: Target<'_>| {
            let (id, variant) = (case.subject.stage(), case.subject.name());
            check::launch(loaded(self.stages, id), variant, staged, target)
        };
        match self.device {
            Some(device) if matches!(cases[0].mode, Mode::Device | Mode::Both) => {
                let launches = GPU_LAUNCHES;
                until_lost(cases, |index, case| {
                    starts(index);
                    launch(case, Target::Cuda { device, launches })
                })
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

    /// Times each of `timings`; `timed` others were before.
    fn time(
        &self,
        benches: &mut Benches<'_>,
        zero_us: f64,
        timings: &[(Problem, Subject)],
        timed: usize,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut done = timed;
        // The first arm brings the GPU up to its clocks; each one keeps it there for the next.
        let mut arm_plan = self.timing.clone();
        // Problem by problem, so that all variants read the same buffers.
        for (problem, subjects) in grouped(timings.iter().map(|(problem, of)| (*problem, of))) {
            let timer = benches.timer;
            let bench = benches.of(&problem)?;
            arm_plan.samples = match problem.has_claims() {
                true => self.timing.samples,
                false => self.samples_elsewhere,
            };
            for subject in subjects {
                let label = format!("{subject} {}", problem.shape.name());
                sink.starts("timing", &label, done, self.plan.timings.len());
                done += 1;
                let stage = self.stage(subject.stage());
                let Ok(prepared) = stage.prepare(subject.name(), &problem) else {
                    continue;
                };
                let timed = timer.time((stage, &prepared), &bench.pool, &arm_plan)?;
                let measurement = &timed.measurement;
                arm_plan.warm_up = arm_plan.warm_up.min(WARM_UP_AFTER_ANOTHER);
                let judged = bench
                    .judge(timer, &timed.outputs, prepared.kernel.probability)
                    .map_err(|source| no_reference(ProblemPlace::of(&problem), source))?;
                let mut after = judged.gates;
                let speed_of_light = bench.speed_of_light(timer, zero_us);
                after.extend(speed_of_light.impossible(measurement.device.min));
                let place = ProblemPlace::of(&problem);
                run.append(Row::latency(subject.clone(), place, measurement, &after));
                sink.grown(run)?;
            }
        }
        Ok(())
    }

    /// Times all green variants of the plan's cases on each of its random problems, and judges their outputs.
    pub fn draws(
        &self,
        device: &dyn Timer,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let plan = TimingPlan {
            settling: Duration::from_millis(1),
            ..self.timing.clone()
        };
        let subjects = distinct(self.plan.cases.iter().map(|case| &case.subject));
        let subjects: Vec<&Subject> = {
            let view = View::alone(run);
            let green = |subject: &&Subject| is_green(&view, subject, BackendKind::Cuda);
            subjects.into_iter().filter(green).collect()
        };
        let total = self.plan.draws.len();
        for (number, problem) in self.plan.draws.iter().enumerate() {
            let place = ProblemPlace::of(problem);
            sink.starts("random problem", &place.to_string(), number, total);
            let prepared = |subject: &&Subject| -> Option<(Subject, &LoadedStage, Prepared<'_>)> {
                let stage = self.stage(subject.stage());
                let prepared = stage.prepare(subject.name(), problem).ok()?;
                Some(((*subject).clone(), stage, prepared))
            };
            let kernels: Vec<_> = subjects.iter().filter_map(prepared).collect();
            let arms: Vec<Kernel<'_>> = kernels.iter().map(|(_, stage, of)| (*stage, of)).collect();
            let mut timed = TimedProblem::new(device, problem)?;
            let ranked = device.rank(&arms, &timed.pool, &plan)?;
            for ((subject, _, prepared), ranked) in kernels.iter().zip(ranked) {
                let row =
                    Row::new(subject, Kind::RandomTime(place.clone())).figure(Metric::Draw, number);
                run.append(match ranked {
                    Ok(ranked) => {
                        let judged = timed
                            .judge(device, &ranked.outputs, prepared.kernel.probability)
                            .map_err(|source| no_reference(ProblemPlace::of(problem), source))?;
                        row.figure(Metric::P50, ranked.us)
                            .with_verdicts(measured::failed(&judged.gates))
                    }
                    Err(error) => row.verdict(&measured::not_launched(&error.to_string())),
                });
            }
            sink.grown(run)?;
        }
        Ok(())
    }

    /// Times every two variants of [`interleaved`] against each other.
    fn pairs(
        &self,
        benches: &mut Benches<'_>,
        zero_us: f64,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let pairs = interleaved(&View::alone(run));
        let (total, mut done) = (pairs.len(), 0);
        let by_place = pairs
            .into_iter()
            .map(|(place, new, base)| (place, (new, base)));
        for (place, pairs) in grouped(by_place) {
            let Some(problem) = place.problem() else {
                continue;
            };
            let timer = benches.timer;
            let bench = benches.of(&problem)?;
            for (new, base) in pairs {
                let label = format!("{new} against {base} {place}");
                sink.starts("pair", &label, done, total);
                done += 1;
                let row = self.pair(timer, zero_us, bench, &base, &new)?;
                run.extend(row);
                sink.grown(run)?;
            }
        }
        Ok(())
    }

    /// Times two arms interleaved (A B B A) on one problem. Its row has the gates that fail on the timed buffers of either; `None`
    /// if one of them does not support the problem.
    fn pair(
        &self,
        device: &dyn Timer,
        zero_us: f64,
        bench: &mut TimedProblem,
        base: &Subject,
        new: &Subject,
    ) -> Result<Option<Row>, ExecuteError> {
        let [base_stage, new_stage] = [base, new].map(|subject| self.stage(subject.stage()));
        let prepared = (
            base_stage.prepare(base.name(), &bench.problem),
            new_stage.prepare(new.name(), &bench.problem),
        );
        let (Ok(of_base), Ok(of_new)) = prepared else {
            return Ok(None);
        };
        let timed = device.time_pair(
            (base_stage, &of_base),
            (new_stage, &of_new),
            &bench.pool,
            &self.timing,
        )?;
        let sides = [
            (base, &of_base, timed.base_outputs),
            (new, &of_new, timed.new_outputs),
        ];
        let mut wrong = Vec::new();
        for (subject, of, outputs) in sides {
            let gates = bench
                .judge(device, &outputs, of.kernel.probability)
                .map_err(|source| no_reference(ProblemPlace::of(&bench.problem), source))?
                .gates;
            wrong.extend(measured::failed(&gates).map(|result| GateResult {
                reason: format!("{subject} as interleaved: {}", result.reason),
                ..result.clone()
            }));
        }
        let row = Row::pair(
            new.clone(),
            base.clone(),
            ProblemPlace::of(&bench.problem),
            &timed.comparison,
            &bench.speed_of_light(device, zero_us),
        );
        let row = match &timed.sustained {
            None => row,
            Some(load) => {
                let state = bench.pool.rotation().state.name();
                row.conditions(state).sustained_by(load)
            }
        };
        Ok(Some(row.with_verdicts(&wrong)))
    }
}

/// What is made once for all cases on the same inputs, and kept until others are.
struct MadeInputs {
    problem: Problem,
    source: Source,
    inputs: Inputs,
    staged: Arc<StagedInputs>,
    references: HashMap<Probability, Reference>,
}

impl MadeInputs {
    fn is_of(&self, case: &PlannedCase) -> bool {
        (self.problem, &self.source) == (case.problem, &case.source)
    }
}

/// Of what is to be timed, what `known` has as green: no number without a green gate.
fn green(view: &View<'_>, timings: Vec<(Problem, Subject)>) -> Vec<(Problem, Subject)> {
    let is_green = |(_, subject): &(Problem, Subject)| is_green(view, subject, BackendKind::Cuda);
    timings.into_iter().filter(is_green).collect()
}

/// The problems that are timed, with their inputs on the device and the references for their outputs, which are made once.
struct Benches<'a> {
    timer: &'a dyn Timer,
    open: Vec<TimedProblem>,
    /// Else the last one alone: given problems may be large.
    keeps_all: bool,
}

impl<'a> Benches<'a> {
    fn new(timer: &'a dyn Timer, keeps_all: bool) -> Self {
        Self {
            timer,
            open: vec![],
            keeps_all,
        }
    }

    fn of(&mut self, problem: &Problem) -> Result<&mut TimedProblem, CudaError> {
        let place = self.open.iter().position(|of| of.problem == *problem);
        let place = match place {
            Some(place) => place,
            None => {
                if !self.keeps_all {
                    self.open.clear();
                }
                self.open.push(TimedProblem::new(self.timer, problem)?);
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[place])
    }
}

/// What is timed against each other, if both were timed alone: the two sides of every speed claim, with the same preset too, and the
/// best variant of each stage with that of its predecessor. Problem by problem, so that one upload serves all pairs on it.
fn interleaved(view: &View<'_>) -> Vec<(ProblemPlace, Subject, Subject)> {
    let mut pairs = Vec::new();
    for (stage, claim) in claims(view.stages) {
        if let Relation::Faster { .. } = claim.relation
            && let Some(arms) = arms(view, stage, claim)
        {
            pairs.push((claim.place.clone(), arms.new.clone(), arms.base));
            if let Some(same_preset) = arms.same_preset {
                pairs.push((claim.place.clone(), arms.new, same_preset));
            }
        }
    }
    for stage in view.stages {
        let place = stage.first_place();
        let best = |stage: &StageMeta| Some(best(view, stage, &place, |_| true)?.subject.clone());
        let previous = stage.predecessor.as_deref().and_then(|id| view.stage(id));
        if let (Some(new), Some(base)) = (best(stage), previous.and_then(best)) {
            pairs.push((place, new, base));
        }
    }
    pairs.sort();
    pairs.dedup();
    pairs
}

fn emulated(mode: Mode) -> Target<'static> {
    let all = &tier0::SCHEDULES[..];
    let (schedules, traced) = match mode {
        Mode::Traced => (all, all),
        Mode::TracedOnce => (all, &all[..1]),
        Mode::Plain | Mode::Device | Mode::Both => (&all[..1], &all[..0]),
    };
    Target::Emulated {
        schedules,
        traced,
        suppress: None,
    }
}

/// Up to the first case that loses the GPU.
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

/// Records results in the order of the cases: all that finished, even if the sink asks to stop after the first or one lacked memory.
fn keep(
    judged: Vec<(&PlannedCase, Outcome)>,
    run: &mut Run,
    sink: &mut dyn Sink,
) -> Result<(), ExecuteError> {
    let mut wanted = Ok(());
    let mut no_memory = None;
    for (case, outcome) in judged {
        if let Err(NoOutput::NoMemory(reason)) = outcome {
            let case = label(case);
            no_memory.get_or_insert(ExecuteError::NoMemory { case, reason });
            continue;
        }
        let kind = Kind::Case(run.session.backend, case.place());
        run.append(Row::new(&case.subject, kind).outcome(&outcome));
        wanted = wanted.and(sink.grown(run));
        if let Err(NoOutput::Failed {
            reason,
            fatal: true,
        }) = outcome
        {
            return Err(ExecuteError::Sticky {
                case: label(case),
                reason,
            });
        }
    }
    no_memory.map_or(wanted, Err)
}

/// `stage0-scalar/scalar-32x64 mission f16 full, normal, seed 0`.
fn label(case: &PlannedCase) -> String {
    format!("{} {}", case.subject, case.place())
}

/// `what`: the case, or the problem that is timed.
fn no_reference(what: impl ToString, source: ReferenceError) -> ExecuteError {
    ExecuteError::Reference {
        case: what.to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
