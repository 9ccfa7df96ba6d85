//! Executes a plan on the real stages. In rounds, each a stage's cases and then its times, or a
//! given problem's; then come the cases that no time waits for, counters, and the pairs that claims
//! compare.

use super::estimate::Work;
use super::plan::{Mode, Plan, PlannedCase, Round, is_timed_at_once};
use super::sink::{ExecuteError, LARGE_TIMING, PAIR, RANDOM_PROBLEM, Sink, TIMING};
use super::summary::summarise;
use super::timed_problem::{TimedOutputs, TimedProblem};
use super::timer::{Kernel, Timer};
use crate::input::FileInput;
use crate::machine;
use common::check::{self, Launched, NoOutput, Outcome, Source, StagedInputs, Target};
use common::device::BackendKind;
use common::device::cuda::{CudaDevice, CudaError, RotatedOutput};
use common::inputs::Inputs;
use common::metric::Metric;
use common::problem::Problem;
use common::reference::{Probability, Reference, ReferenceError, reference};
use common::stage::{LoadedStage, Prepared};
use common::tier0;
use common::timing::Plan as TimingPlan;
use common::verdict::GateResult;
use rayon::prelude::*;
use results::builds::loaded;
use results::judge::View;
use results::judge::best::best;
use results::judge::claims::arms;
use results::judge::list::{Grouped, distinct, grouped};
use results::judge::state::is_green;
use results::table::session::claims;
use results::table::{Kind, ProblemPlace, Relation, Row, Run, Subject, measured};
use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

/// The number of launches that gate C5 compares on a GPU.
const GPU_LAUNCHES: usize = 3;

/// The most bytes of output that a batch of cases leaves on the host, unless a single case leaves
/// more. There are two: one is judged while the next is launched.
const IN_FLIGHT_BYTES: usize = 1 << 30;

/// The most scores of a problem that the emulator runs beside others; larger ones have enough
/// blocks for all processors.
const SMALL_SCORES: u64 = 50_000;

/// The largest Q, K and V that are made before they are needed.
const MADE_AHEAD_BYTES: u64 = 256 << 20;

/// The cases that are judged together, per processor: more than one, so that no processor waits
/// long for the slowest case.
const IN_FLIGHT_PER_PROCESSOR: usize = 2;

/// The default of [`Executor::samples_elsewhere`], without `--iters`.
const SAMPLES_ELSEWHERE: usize = 100;

/// The plan of a run with all that executes it: stages, devices and how they are timed.
pub struct Executor<'a> {
    pub plan: &'a Plan,
    pub stages: &'a [LoadedStage],
    pub device: Option<&'a CudaDevice>,
    /// The device as it times kernels and computes large references.
    pub timer: Option<&'a dyn Timer>,
    /// The tensors of `--input`.
    pub file: Option<&'a FileInput>,
    pub timing: TimingPlan,
    /// Samples per arm on problems without claims, whose figures are shown but not judged.
    pub samples_elsewhere: usize,
    /// The largest number of cases that are launched before they are judged; at least 1.
    pub in_flight: usize,
    /// The library's choices on the plan's random problems, which are timed in full there.
    pub chosen: BTreeMap<ProblemPlace, Subject>,
}

/// The warm-up of an arm that is timed right after another. Claims, which are judged on pairs, use
/// the full warm-up.
const WARM_UP_AFTER_ANOTHER: Duration = Duration::from_millis(50);

/// The settling of such an arm: its clocks are up but for what the judging of the other one let
/// them sink. It sizes the graph alone; the warm-up follows before any sample.
const SETTLING_AFTER_ANOTHER: Duration = Duration::from_millis(20);

impl<'a> Executor<'a> {
    /// Makes an executor that runs in the emulator only.
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
            chosen: BTreeMap::new(),
        }
    }

    /// Runs the plan, and adds what it finds to `run`; what had ended is there if it stops early.
    pub fn run(&self, run: &mut Run, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let mut benches = self.benches()?;
        let checked = self.rounds(benches.as_mut(), run, sink);
        summarise(run, &self.plan.cases);
        checked?;
        self.evidence(run, sink)?;
        if let Some(used_benches) = &mut benches {
            self.pairs(used_benches, run, sink)?;
        }
        if let Some(timer) = self.timer
            && !self.plan.draws.is_empty()
        {
            self.draws(timer, run, sink)?;
        }
        Ok(())
    }

    /// Makes the benches of the run; there are none where nothing is timed.
    fn benches(&self) -> Result<Option<Benches<'a>>, CudaError> {
        let Some(timer) = self.timer else {
            return Ok(None);
        };
        if self.plan.timings.is_empty() {
            return Ok(None);
        }
        let zero_us = timer.zero_us(&self.timing)?;
        let keeps_all = !self.plan.is_selection;
        Ok(Some(Benches::new(timer, zero_us, keeps_all)))
    }

    /// Runs all cases, and after those of each round times what is green in it.
    fn rounds(
        &self,
        mut benches: Option<&mut Benches<'_>>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut asked: Vec<PlannedCase> = Vec::new();
        let mut inputs = None;
        for Round { cases, timings } in self.plan.rounds() {
            self.cases(&cases, &mut inputs, run, sink)?;
            let Some(used_benches) = benches.as_deref_mut() else {
                continue;
            };
            asked.extend(cases.into_iter().cloned());
            // A variant is judged by its cases so far; the run itself sums up whole variants alone.
            let mut judged = run.clone();
            summarise(&mut judged, &asked);
            let green = green(&View::alone(&judged), timings);
            self.time(used_benches, &green, run, sink)?;
        }
        Ok(())
    }

    /// Returns a stage; plans are made from the same ladder.
    pub fn stage(&self, id: &str) -> &LoadedStage {
        loaded(self.stages, id)
    }

    /// Runs cases, problem by problem, so that inputs and references are made once for all variants
    /// among them. A batch of cases is judged while the next one is launched: launching keeps a GPU
    /// and one thread busy, judging all others.
    fn cases(
        &self,
        cases: &[&PlannedCase],
        made: &mut Option<MadeInputs>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut begun = run.cases().count();
        let mut waiting: Option<Batch<'_>> = None;
        let by_inputs = cases
            .iter()
            .map(|&case| ((case.problem, &case.source), case));
        let mut groups = grouped(by_inputs).into_iter().peekable();
        // The inputs of the next cases, which are made while a GPU has these.
        let mut made_ahead = None;
        while let Some(Grouped { values: group, .. }) = groups.next() {
            let group_inputs = match made.take() {
                Some(inputs) if inputs.is_of(group[0]) => Ok(inputs),
                _ => made_ahead
                    .take()
                    .unwrap_or_else(|| make(self.file, group[0])),
            };
            if group_inputs.is_err() {
                self.finish(waiting.take(), run, sink)?;
            }
            let inputs = made.insert(group_inputs?);
            let batch_size = self.in_flight(group[0], &inputs.staged);
            let mut next_case = groups.peek().map(|next| next.values[0]);
            next_case.take_if(|case| !self.is_made_ahead(case));
            for batch in group.chunks(batch_size) {
                let before = waiting.take();
                let file = self.file;
                let (launched, (judged, ahead)) = meanwhile(
                    || self.launch_batch(batch, inputs, begun, sink),
                    || {
                        rayon::join(
                            || before.map(|batch_before| batch_before.judge(self.stages)),
                            || next_case.take().map(|case| make(file, case)),
                        )
                    },
                );
                made_ahead = made_ahead.or(ahead);
                begun += batch.len();
                keep(judged.unwrap_or_default(), run, sink)?;
                waiting = Some(launched?);
            }
        }
        self.finish(waiting, run, sink)
    }

    /// Judges the last batch.
    fn finish(
        &self,
        waiting: Option<Batch<'_>>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        match waiting {
            Some(last) => keep(last.judge(self.stages), run, sink),
            None => Ok(()),
        }
    }

    /// Launches cases on these inputs, and computes the references that judge them; `begun` others
    /// were before.
    fn launch_batch<'c>(
        &self,
        cases: &[&'c PlannedCase],
        made: &mut MadeInputs,
        begun: usize,
        sink: &mut dyn Sink,
    ) -> Result<Batch<'c>, ExecuteError> {
        let total = self.plan.cases.len();
        let results = self.launch(cases, &made.staged, |index| {
            let case = label(cases[index]);
            sink.on_start("case", &case, begun + index, total);
        });
        for launched in results.iter().flatten() {
            self.add_reference(made, launched.probability)
                .map_err(|source| no_reference(cases[0].place(), source))?;
        }
        Ok(Batch {
            cases: cases.to_vec(),
            results,
            references: made.references.clone(),
        })
    }

    /// Computes the reference for programs that hold P in `probability`, unless it is there.
    fn add_reference(
        &self,
        made: &mut MadeInputs,
        probability: Probability,
    ) -> Result<(), ReferenceError> {
        if let Entry::Vacant(place) = made.references.entry(probability) {
            place.insert(Arc::new(self.reference(&made.inputs, probability)?));
        }
        Ok(())
    }

    fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        match self.timer {
            Some(timer) => timer.reference(inputs, p),
            None => reference(inputs, p),
        }
    }

    /// Returns whether the inputs of a case are made while others are launched: on a GPU, whose
    /// launches leave processors idle, if two sets of them take little memory.
    fn is_made_ahead(&self, case: &PlannedCase) -> bool {
        matches!(case.mode, Mode::Device | Mode::Both)
            && case.problem.input_bytes() <= MADE_AHEAD_BYTES
    }

    /// Returns how many cases like `case` are launched before they are judged. In the emulator a
    /// large problem keeps all processors busy by itself; on a GPU its outputs fill the host's
    /// memory.
    fn in_flight(&self, case: &PlannedCase, staged: &StagedInputs) -> usize {
        match case.mode {
            Mode::Device | Mode::Both => {
                (IN_FLIGHT_BYTES / (GPU_LAUNCHES * staged.launch_bytes())).clamp(1, self.in_flight)
            }
            _ if case.problem.scores() > SMALL_SCORES => 1,
            _ => self.in_flight,
        }
    }

    /// Launches `cases`, which are of one problem: one after the other on a GPU, in parallel in the
    /// emulator. Calls `starts` with the index of each case. After a sticky CUDA error there are
    /// fewer results than cases.
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

    /// Times each of `timings`.
    fn time(
        &self,
        benches: &mut Benches<'_>,
        timings: &[(Problem, Subject)],
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let zero_us = benches.zero_us;
        // The first arm brings the GPU up to its clocks; each one keeps it there for the next.
        let mut arm_plan = self.timing.clone();
        // Problem by problem, so that all variants read the same buffers.
        let by_problem = timings.iter().map(|(problem, subject)| (*problem, subject));
        for Grouped {
            key: problem,
            values: subjects,
        } in grouped(by_problem)
        {
            let timer = benches.timer;
            arm_plan.samples = if problem.has_claims() {
                self.timing.samples
            } else {
                self.samples_elsewhere
            };
            for subject in subjects {
                self.begin_timing(benches, subject, &problem, sink);
                let bench = benches.open(&problem)?;
                let stage = self.stage(subject.stage());
                let Ok(prepared) = stage.prepare(subject.name(), &problem) else {
                    continue;
                };
                let kernel = Kernel {
                    stage,
                    prepared: &prepared,
                };
                let kernel_timed = timer.time(kernel, &bench.pool, &arm_plan)?;
                let measurement = &kernel_timed.measurement;
                arm_plan.warm_up = arm_plan.warm_up.min(WARM_UP_AFTER_ANOTHER);
                arm_plan.settling = arm_plan.settling.min(SETTLING_AFTER_ANOTHER);
                let judged = bench
                    .judge(timer, &kernel_timed.outputs, prepared.kernel.probability)
                    .map_err(|source| no_reference(ProblemPlace::of(&problem), source))?;
                let mut after = judged.gates;
                let speed_of_light = bench.speed_of_light(timer, zero_us);
                after.extend(speed_of_light.impossible(measurement.device.min));
                let place = ProblemPlace::of(&problem);
                run.append(Row::latency(subject.clone(), place, measurement, &after));
                sink.on_rows_added(run)?;
            }
        }
        Ok(())
    }

    /// Takes note that a kernel is timed next.
    fn begin_timing(
        &self,
        benches: &mut Benches<'_>,
        subject: &Subject,
        problem: &Problem,
        sink: &mut dyn Sink,
    ) {
        let planned = self.plan.work();
        let label = format!("{subject} {}", problem.shape.name());
        if is_timed_at_once(problem) {
            sink.on_start(TIMING, &label, benches.begun.small, planned.small);
            benches.begun.small += 1;
        } else {
            sink.on_start(LARGE_TIMING, &label, benches.begun.large, planned.large);
            benches.begun.large += 1;
        }
    }

    /// Times all green variants of the plan's cases on each of its random problems, and judges
    /// their outputs.
    pub fn draws(
        &self,
        device: &dyn Timer,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut subjects = distinct(self.plan.cases.iter().map(|case| &case.subject));
        let view = View::alone(run);
        subjects.retain(|subject| is_green(&view, subject, BackendKind::Cuda));
        let total = self.plan.draws.len();
        for (number, problem) in self.plan.draws.iter().enumerate() {
            let place = ProblemPlace::of(problem).to_string();
            sink.on_start(RANDOM_PROBLEM, &place, number, total);
            self.draw(device, &subjects, number, run)?;
            sink.on_rows_added(run)?;
        }
        Ok(())
    }

    /// Times variants on the random problem of this number.
    fn draw(
        &self,
        device: &dyn Timer,
        subjects: &[&Subject],
        number: usize,
        run: &mut Run,
    ) -> Result<(), ExecuteError> {
        let problem = &self.plan.draws[number];
        let place = ProblemPlace::of(problem);
        let plan = TimingPlan {
            settling: Duration::from_millis(1),
            ..self.timing.clone()
        };
        let contestants = self.contestants(subjects, problem);
        let choice = self.chosen.get(&place);
        let chosen = contestants
            .iter()
            .position(|contestant| Some(contestant.subject) == choice);
        let kernels: Vec<Kernel<'_>> = contestants.iter().map(Contestant::kernel).collect();
        let mut timed = TimedProblem::new(device, problem)?;
        let ranked = device.rank(&kernels, chosen, &timed.pool, &plan)?;
        let mut finishers = Vec::new();
        for (contestant, result) in contestants.iter().zip(ranked) {
            let kind = Kind::RandomTime(place.clone());
            let row = Row::new(contestant.subject, kind).figure(Metric::Draw, number);
            match result {
                Ok(turn) => finishers.push(Finisher {
                    row: row.figure(Metric::P50, turn.us),
                    outputs: turn.outputs,
                    probability: contestant.prepared.kernel.probability,
                }),
                Err(error) => run.append(row.verdict(&measured::not_launched(&error.to_string()))),
            }
        }
        let outputs: Vec<_> = finishers.iter().map(Finisher::timed_outputs).collect();
        let judged = timed
            .judge_all(device, &outputs)
            .map_err(|source| no_reference(place, source))?;
        for (finisher, outcome) in finishers.into_iter().zip(judged) {
            run.append(finisher.row.with_verdicts(measured::failed(&outcome.gates)));
        }
        Ok(())
    }

    /// Returns the variants that can run a problem, in the order of `subjects`.
    fn contestants<'s>(
        &'s self,
        subjects: &[&'s Subject],
        problem: &Problem,
    ) -> Vec<Contestant<'s>> {
        let mut contestants = Vec::new();
        for &subject in subjects {
            let stage = self.stage(subject.stage());
            if let Ok(prepared) = stage.prepare(subject.name(), problem) {
                contestants.push(Contestant {
                    subject,
                    stage,
                    prepared,
                });
            }
        }
        contestants
    }

    /// Times every two variants of [`interleaved`] against each other.
    fn pairs(
        &self,
        benches: &mut Benches<'_>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let pairs = interleaved(&View::alone(run));
        let total = pairs.len();
        let (timer, zero_us) = (benches.timer, benches.zero_us);
        for (done, Pair { place, new, base }) in pairs.into_iter().enumerate() {
            let Some(problem) = place.problem() else {
                continue;
            };
            let bench = benches.open(&problem)?;
            let label = format!("{new} against {base} {place}");
            sink.on_start(PAIR, &label, done, total);
            let row = self.pair(timer, zero_us, bench, &base, &new)?;
            run.extend(row);
            sink.on_rows_added(run)?;
        }
        Ok(())
    }

    /// Times two arms interleaved (A B B A) on one problem. Its row has the gates that fail on the
    /// timed buffers of either; there is none if one of them does not support the problem.
    fn pair(
        &self,
        device: &dyn Timer,
        zero_us: f64,
        bench: &mut TimedProblem,
        base: &Subject,
        new: &Subject,
    ) -> Result<Option<Row>, ExecuteError> {
        let (base_stage, new_stage) = (self.stage(base.stage()), self.stage(new.stage()));
        let Ok(base_kernel) = base_stage.prepare(base.name(), &bench.problem) else {
            return Ok(None);
        };
        let Ok(new_kernel) = new_stage.prepare(new.name(), &bench.problem) else {
            return Ok(None);
        };
        let timed = device.time_pair(
            Kernel {
                stage: base_stage,
                prepared: &base_kernel,
            },
            Kernel {
                stage: new_stage,
                prepared: &new_kernel,
            },
            &bench.pool,
            &self.timing,
        )?;
        let sides = [
            (base, &base_kernel, timed.base_outputs),
            (new, &new_kernel, timed.new_outputs),
        ];
        let mut failed = Vec::new();
        for (subject, prepared, outputs) in sides {
            let judged = bench
                .judge(device, &outputs, prepared.kernel.probability)
                .map_err(|source| no_reference(ProblemPlace::of(&bench.problem), source))?;
            for result in measured::failed(&judged.gates) {
                failed.push(GateResult {
                    reason: format!("{subject} as interleaved: {}", result.reason),
                    ..result.clone()
                });
            }
        }
        let row = Row::pair(
            new.clone(),
            base.clone(),
            ProblemPlace::of(&bench.problem),
            &timed.comparison,
            &bench.speed_of_light(device, zero_us),
        );
        let state = bench.pool.rotation().state.name();
        let in_regime = match &timed.sustained {
            Some(load) => row.conditions(state).sustained_by(load),
            None => row,
        };
        Ok(Some(in_regime.with_verdicts(&failed)))
    }
}

/// Makes the inputs of a case.
fn make(file: Option<&FileInput>, case: &PlannedCase) -> Result<MadeInputs, ExecuteError> {
    let inputs = match &case.source {
        Source::Seeded { family, seed } => Inputs::generate(&case.problem, *family, *seed),
        Source::File { .. } => {
            let tensors = file.expect("a plan has file cases only where there is a file");
            let inputs = tensors.inputs(&case.problem);
            inputs.map_err(|error| no_reference(case.place(), ReferenceError::Input(error)))?
        }
    };
    let staged = StagedInputs::new(&inputs, case.source.family());
    Ok(MadeInputs {
        problem: case.problem,
        source: case.source.clone(),
        inputs,
        staged: Arc::new(staged),
        references: HashMap::new(),
    })
}

/// Inputs and their references, which are made once for all cases on them, and kept until others
/// are.
struct MadeInputs {
    problem: Problem,
    source: Source,
    inputs: Inputs,
    staged: Arc<StagedInputs>,
    references: References,
}

/// The references of one set of inputs, by the type of P.
type References = HashMap<Probability, Arc<Reference>>;

/// Cases on the same inputs that were launched and are still to be judged.
struct Batch<'c> {
    cases: Vec<&'c PlannedCase>,
    /// The launches of the first cases, or of all.
    results: Vec<Result<Launched, NoOutput>>,
    references: References,
}

impl<'c> Batch<'c> {
    /// Judges the launches in parallel, each by the reference for its own type of P.
    fn judge(self, stages: &[LoadedStage]) -> Vec<(&'c PlannedCase, Outcome)> {
        let references = &self.references;
        self.cases
            .par_iter()
            .zip(self.results)
            .map(|(&case, result)| {
                let outcome = result.and_then(|launched| {
                    let reference = &references[&launched.probability];
                    judge_case(case, launched, reference, stages)
                });
                (case, outcome)
            })
            .collect()
    }
}

/// Judges a launch by its reference, and beside the other builds that its case names.
fn judge_case(
    case: &PlannedCase,
    launched: Launched,
    reference: &Reference,
    stages: &[LoadedStage],
) -> Outcome {
    let variant = case.subject.name();
    let mut agreements = Vec::new();
    if case.runs_ptx {
        let stage = loaded(stages, case.subject.stage());
        agreements.push(check::both_front_ends(stage, variant, &launched)?);
    }
    let staged = Arc::clone(&launched.staged);
    let mut checked = launched.judge(reference);
    if case.mode == Mode::Both {
        let stage = loaded(stages, case.subject.stage());
        agreements.push(check::both_backends(
            stage,
            variant,
            &staged,
            &checked.output,
        )?);
    }
    checked.gates.extend(agreements);
    Ok(checked)
}

/// Does `work` here, and `other` on a thread of its own. Returns the results of both.
fn meanwhile<W, O: Send>(work: impl FnOnce() -> W, other: impl FnOnce() -> O + Send) -> (W, O) {
    std::thread::scope(|scope| {
        let thread = scope.spawn(other);
        let result = work();
        let other_result = thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        (result, other_result)
    })
}

impl MadeInputs {
    fn is_of(&self, case: &PlannedCase) -> bool {
        (self.problem, &self.source) == (case.problem, &case.source)
    }
}

/// Returns the timings whose kernels are green: no number without a green gate.
fn green(view: &View<'_>, mut timings: Vec<(Problem, Subject)>) -> Vec<(Problem, Subject)> {
    timings.retain(|(_, subject)| is_green(view, subject, BackendKind::Cuda));
    timings
}

/// The problems that are timed, with their inputs on the device and the references for their
/// outputs, which are made once.
struct Benches<'a> {
    timer: &'a dyn Timer,
    /// The time of an empty kernel, in microseconds.
    zero_us: f64,
    open: Vec<TimedProblem>,
    /// Whether all problems are kept, not the last one alone: given problems may be large.
    keeps_all: bool,
    /// The timings so far.
    begun: Work,
}

impl<'a> Benches<'a> {
    fn new(timer: &'a dyn Timer, zero_us: f64, keeps_all: bool) -> Self {
        Self {
            timer,
            zero_us,
            open: vec![],
            keeps_all,
            begun: Work::default(),
        }
    }

    /// Returns the problem, which is uploaded if it is not there.
    fn open(&mut self, problem: &Problem) -> Result<&mut TimedProblem, CudaError> {
        let known = self.open.iter().position(|bench| bench.problem == *problem);
        let index = match known {
            Some(index) => index,
            None => {
                if !self.keeps_all {
                    self.open.clear();
                }
                self.open.push(TimedProblem::new(self.timer, problem)?);
                self.open.len() - 1
            }
        };
        Ok(&mut self.open[index])
    }
}

/// A variant that is ready to be timed on a random problem.
struct Contestant<'a> {
    subject: &'a Subject,
    stage: &'a LoadedStage,
    prepared: Prepared<'a>,
}

impl Contestant<'_> {
    fn kernel(&self) -> Kernel<'_> {
        Kernel {
            stage: self.stage,
            prepared: &self.prepared,
        }
    }
}

/// A variant that has a time on a random problem, and is still to be judged.
struct Finisher {
    /// The row without its verdicts.
    row: Row,
    outputs: Vec<RotatedOutput>,
    probability: Probability,
}

impl Finisher {
    fn timed_outputs(&self) -> TimedOutputs<'_> {
        TimedOutputs {
            outputs: &self.outputs,
            probability: self.probability,
        }
    }
}

/// Two variants that are timed against each other on a problem.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    place: ProblemPlace,
    new: Subject,
    base: Subject,
}

/// Returns the pairs that are timed, if both sides were timed alone: the two sides of every speed
/// claim, with the same preset too, and the best variant of each stage with that of its
/// predecessor. They go problem by problem, so that one upload serves all pairs on it.
fn interleaved(view: &View<'_>) -> Vec<Pair> {
    let mut pairs = Vec::new();
    for (stage, claim) in claims(view.stages) {
        if !matches!(claim.relation, Relation::Faster { .. }) {
            continue;
        }
        let Some(arms) = arms(view, stage, claim) else {
            continue;
        };
        for base in [Some(arms.base), arms.same_preset].into_iter().flatten() {
            pairs.push(Pair {
                place: claim.place.clone(),
                new: arms.new.clone(),
                base,
            });
        }
    }
    for stage in view.stages {
        let Some(previous) = stage.predecessor.as_deref().and_then(|id| view.stage(id)) else {
            continue;
        };
        let place = stage.first_place();
        let Some(new) = best(view, stage, &place, |_| true) else {
            continue;
        };
        let Some(base) = best(view, previous, &place, |_| true) else {
            continue;
        };
        pairs.push(Pair {
            new: new.subject.clone(),
            base: base.subject.clone(),
            place,
        });
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

/// Launches up to the first case that loses the GPU.
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

/// Records results in the order of the cases: all that finished, even if the sink asks to stop
/// after the first or one lacked memory.
fn keep(
    judged: Vec<(&PlannedCase, Outcome)>,
    run: &mut Run,
    sink: &mut dyn Sink,
) -> Result<(), ExecuteError> {
    let mut sunk = Ok(());
    let mut no_memory = None;
    for (case, outcome) in judged {
        if let Err(NoOutput::NoMemory(reason)) = outcome {
            no_memory.get_or_insert(ExecuteError::NoMemory {
                case: label(case),
                reason,
            });
            continue;
        }
        let kind = Kind::Case(run.session.backend, case.place());
        run.append(Row::new(&case.subject, kind).outcome(&outcome));
        sunk = sunk.and(sink.on_rows_added(run));
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
    no_memory.map_or(sunk, Err)
}

/// Names a case: `stage0-scalar/scalar-32x64 mission f16 full, normal, seed 0`.
fn label(case: &PlannedCase) -> String {
    format!("{} {}", case.subject, case.place())
}

/// Makes the error of a case, or of a problem that is timed.
fn no_reference(case: impl ToString, source: ReferenceError) -> ExecuteError {
    ExecuteError::Reference {
        case: case.to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
