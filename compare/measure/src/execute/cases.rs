//! Cases: launched on a GPU or in the emulator, and judged. A batch is launched while the one before
//! is judged and the inputs of the next are made: on a GPU launching keeps one thread busy, and all
//! else the others.

use super::{Executor, no_reference};
use crate::input::FileInput;
use crate::plan::{Mode, PlannedCase};
use crate::sink::{ExecuteError, INPUTS, Sink};
use common::check::{self, Launched, NoOutput, Outcome, Source, StagedInputs, Target};
use common::inputs::Inputs;
use common::problem::Problem;
use common::reference::{Probability, Reference, ReferenceError, reference};
use common::stage::LoadedStage;
use common::tier0;
use rayon::prelude::*;
use results::builds::loaded;
use results::judge::list::{Grouped, distinct, grouped};
use results::table::{Kind, Row, Run};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of launches that gate C5 compares on a GPU.
const GPU_LAUNCHES: usize = 3;

/// The most bytes of output that a batch of cases leaves on the host, unless a single case leaves
/// more. There are two: one is judged while the next is launched.
const IN_FLIGHT_BYTES: u64 = 1 << 30;

/// How many times as many cases are judged together where a GPU launches them: fewer batches wait for
/// their slowest case.
const ON_GPU: usize = 3;

/// The most scores of a problem that the emulator runs beside others; larger ones have enough
/// blocks for all processors.
pub(super) const SMALL_SCORES: u64 = 50_000;

/// The most bytes of Q, K and V of a batch, unless those of a single problem are more. Those of the
/// next batch are made meanwhile if they are not.
const MADE_BYTES: u64 = 256 << 20;

/// The bytes of Q, K and V from which on making them takes seconds, or a minute where sequences are in
/// pages.
const ANNOUNCED_BYTES: u64 = 64 << 20;

/// Cases on the same inputs, which are launched together.
pub(super) struct Part<'c> {
    cases: Vec<&'c PlannedCase>,
    /// The types of P for which the host computes a reference.
    on_host: Vec<Probability>,
    /// The part of a batch that they fill.
    share: f64,
}

/// The parts that are launched before any of them is judged.
type PlannedBatch<'c> = Vec<Part<'c>>;

/// Inputs, which are made once for all cases on them, and the references that judge these.
pub(super) struct MadeInputs {
    problem: Problem,
    source: Source,
    inputs: Inputs,
    staged: Arc<StagedInputs>,
    references: Mutex<References>,
}

/// The references of one set of inputs, by the type of P.
type References = HashMap<Probability, Arc<Reference>>;

/// Made inputs, or why there are none.
type Made = Result<Arc<MadeInputs>, ExecuteError>;

/// Cases whose inputs are made.
struct ReadyPart<'b, 'c> {
    part: &'b Part<'c>,
    inputs: Arc<MadeInputs>,
}

/// A case whose inputs are made.
struct ReadyCase<'a> {
    case: &'a PlannedCase,
    staged: &'a Arc<StagedInputs>,
}

impl ReadyCase<'_> {
    fn launch(&self, stages: &[LoadedStage], target: Target<'_>) -> Result<Launched, NoOutput> {
        let subject = &self.case.subject;
        let stage = loaded(stages, subject.stage());
        check::launch(stage, subject.name(), self.staged, target)
    }
}

/// The launches of cases, in their order: of the first, or of all.
type Launches = Vec<Result<Launched, NoOutput>>;

/// Cases on the same inputs that were launched.
struct LaunchedPart<'c> {
    cases: Vec<&'c PlannedCase>,
    results: Launches,
    references: References,
}

/// What was launched of a batch.
struct Batch<'c> {
    parts: Vec<LaunchedPart<'c>>,
    /// The reason why it is not all.
    end: Option<ExecuteError>,
}

/// A case and what became of it.
type Judged<'c> = (&'c PlannedCase, Outcome);

impl Executor<'_> {
    /// Runs cases, problem by problem. `last` are the inputs of the last ones before, and then those
    /// of these.
    pub(super) fn cases(
        &self,
        cases: &[&PlannedCase],
        last: &mut Option<Arc<MadeInputs>>,
        run: &mut Run,
        sink: &mut dyn Sink,
    ) -> Result<(), ExecuteError> {
        let mut begun = run.cases().count();
        let mut waiting: Option<Batch<'_>> = None;
        let mut batches = batches(self.parts(cases)).into_iter().peekable();
        let mut made_ahead: Option<Vec<Made>> = None;
        let (file, stages) = (self.file, self.stages);
        while let Some(batch) = batches.next() {
            let made = match made_ahead.take() {
                Some(inputs) => inputs,
                None => {
                    if is_long_made(&batch, last.as_ref()) {
                        let place = batch[0].cases[0].place().to_string();
                        sink.on_start(INPUTS, &place, begun, self.plan.cases.len());
                    }
                    make_all(file, &batch, last.as_ref())
                }
            };
            let latest = made.last().and_then(|inputs| inputs.as_ref().ok());
            *last = latest.map(Arc::clone);
            let before = waiting.take();
            let next = batches.peek().filter(|parts| is_made_ahead(parts));
            let (launched, (judged, ahead)) = meanwhile(
                || self.launch_batch(&batch, made, begun, sink),
                || {
                    rayon::join(
                        || before.map(|batch_before| batch_before.judge(stages)),
                        || next.map(|parts| make_all(file, parts, last.as_ref())),
                    )
                },
            );
            made_ahead = ahead;
            begun += batch.iter().map(|part| part.cases.len()).sum::<usize>();
            keep(judged.unwrap_or_default(), run, sink)?;
            if launched.end.is_some() {
                return self.finish(Some(launched), run, sink);
            }
            waiting = Some(launched);
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
        let Some(mut batch) = waiting else {
            return Ok(());
        };
        let end = batch.end.take();
        keep(batch.judge(self.stages), run, sink)?;
        end.map_or(Ok(()), Err)
    }

    /// Splits cases into parts that may each be a batch.
    fn parts<'p>(&self, cases: &[&'p PlannedCase]) -> Vec<Part<'p>> {
        let by_inputs = cases
            .iter()
            .map(|&case| ((case.problem, &case.source, case.mode.is_on_gpu()), case));
        let mut parts = Vec::new();
        for Grouped { values, .. } in grouped(by_inputs) {
            let in_flight = self.in_flight(values[0]);
            for together in values.chunks(in_flight) {
                parts.push(Part {
                    cases: together.to_vec(),
                    on_host: self.on_host(together),
                    share: together.len() as f64 / in_flight as f64,
                });
            }
        }
        parts
    }

    /// Returns how many cases like `case` are launched before they are judged. In the emulator a
    /// large problem keeps all processors busy by itself; on a GPU its outputs fill the host's
    /// memory.
    fn in_flight(&self, case: &PlannedCase) -> usize {
        let problem = &case.problem;
        if case.mode.is_on_gpu() {
            let case_bytes = GPU_LAUNCHES as u64 * (problem.min_bytes() - problem.input_bytes());
            let cases = IN_FLIGHT_BYTES / case_bytes.max(1);
            (cases as usize).clamp(1, ON_GPU * self.in_flight)
        } else if problem.scores() > SMALL_SCORES {
            1
        } else {
            self.in_flight
        }
    }

    /// Returns the types of P for which the host computes a reference of these cases' inputs, unless
    /// the GPU does.
    fn on_host(&self, cases: &[&PlannedCase]) -> Vec<Probability> {
        let problem = &cases[0].problem;
        if self
            .timer
            .is_some_and(|timer| timer.makes_reference(problem))
        {
            return Vec::new();
        }
        let kernels = cases.iter().filter_map(|case| {
            let stage = self.stage(case.subject.stage());
            stage.prepare(case.subject.name(), problem).ok()
        });
        distinct(kernels.map(|prepared| prepared.kernel.probability))
    }

    /// Launches cases, and computes those references that a GPU computes; `begun` others were
    /// before.
    fn launch_batch<'p>(
        &self,
        batch: &[Part<'p>],
        made: Vec<Made>,
        begun: usize,
        sink: &mut dyn Sink,
    ) -> Batch<'p> {
        let mut ready = Vec::new();
        let mut end = None;
        for (part, result) in batch.iter().zip(made) {
            match result {
                Ok(inputs) => ready.push(ReadyPart { part, inputs }),
                Err(error) => {
                    end = Some(error);
                    break;
                }
            }
        }
        let mut launches = self.launch(&ready, begun, sink).into_iter();
        let mut parts = Vec::new();
        for ReadyPart { part, inputs } in ready {
            let results: Launches = launches.by_ref().take(part.cases.len()).collect();
            if let Err(source) = self.add_references(&inputs, &results) {
                end = Some(no_reference(part.cases[0].place(), source));
                break;
            }
            parts.push(LaunchedPart {
                cases: part.cases.clone(),
                results,
                references: inputs.references().clone(),
            });
        }
        Batch { parts, end }
    }

    /// Launches the cases of parts: one after the other on a GPU, in parallel in the emulator. After a
    /// sticky CUDA error there are fewer results than cases.
    fn launch(&self, parts: &[ReadyPart<'_, '_>], begun: usize, sink: &mut dyn Sink) -> Launches {
        let total = self.plan.cases.len();
        let mut cases = Vec::new();
        for ReadyPart { part, inputs } in parts {
            let staged = &inputs.staged;
            cases.extend(part.cases.iter().map(|&case| ReadyCase { case, staged }));
        }
        let mut starts = |index: usize| {
            let name = label(cases[index].case);
            sink.on_start("case", &name, begun + index, total);
        };
        let is_on_gpu = parts.first().is_some_and(|ready| ready.part.is_on_gpu());
        let stages = self.stages;
        match self.device {
            Some(device) if is_on_gpu => until_lost(&cases, |index, ready| {
                starts(index);
                let launches = GPU_LAUNCHES;
                ready.launch(stages, Target::Cuda { device, launches })
            }),
            _ => {
                (0..cases.len()).for_each(starts);
                cases
                    .par_iter()
                    .map(|ready| ready.launch(stages, emulated(ready.case.mode)))
                    .collect()
            }
        }
    }

    /// Computes the references for the programs that were launched, unless they are there.
    fn add_references(
        &self,
        made: &MadeInputs,
        results: &[Result<Launched, NoOutput>],
    ) -> Result<(), ReferenceError> {
        for launched in results.iter().flatten() {
            let p = launched.probability;
            made.add_reference(p, |inputs| match self.timer {
                Some(timer) => timer.reference(inputs, p),
                None => reference(inputs, p),
            })?;
        }
        Ok(())
    }
}

/// Puts parts together as long as they are no more than a batch.
fn batches(parts: Vec<Part<'_>>) -> Vec<PlannedBatch<'_>> {
    let mut batches: Vec<PlannedBatch<'_>> = Vec::new();
    for part in parts {
        match batches.last_mut().filter(|batch| has_room(batch, &part)) {
            Some(batch) => batch.push(part),
            None => batches.push(vec![part]),
        }
    }
    batches
}

fn has_room(batch: &[Part<'_>], part: &Part<'_>) -> bool {
    let share: f64 = batch.iter().map(|other| other.share).sum();
    let bytes = input_bytes(batch) + input_bytes(std::slice::from_ref(part));
    let is_alike = batch[0].is_on_gpu() == part.is_on_gpu();
    is_alike && share + part.share <= 1.0 && bytes <= MADE_BYTES
}

fn input_bytes(parts: &[Part<'_>]) -> u64 {
    let problems = parts.iter().map(|part| part.cases[0].problem);
    problems.map(|problem| problem.input_bytes()).sum()
}

/// Returns whether the inputs of a batch are made while others are launched: on a GPU, whose
/// launches leave processors idle, if two batches of them take little memory.
fn is_made_ahead(batch: &[Part<'_>]) -> bool {
    batch[0].is_on_gpu() && input_bytes(batch) <= MADE_BYTES
}

/// Returns whether making the inputs of a batch takes so long that it is said.
fn is_long_made(batch: &[Part<'_>], last: Option<&Arc<MadeInputs>>) -> bool {
    let is_made = |part: &Part<'_>| last.is_some_and(|inputs| inputs.is_of(part.cases[0]));
    input_bytes(batch) >= ANNOUNCED_BYTES && !batch.iter().all(is_made)
}

impl Part<'_> {
    fn is_on_gpu(&self) -> bool {
        self.cases[0].mode.is_on_gpu()
    }
}

/// Makes the inputs of each part, and the references that the host computes.
fn make_all(
    file: Option<&FileInput>,
    parts: &[Part<'_>],
    last: Option<&Arc<MadeInputs>>,
) -> Vec<Made> {
    parts
        .par_iter()
        .map(|part| make(file, part, last))
        .collect()
}

fn make(file: Option<&FileInput>, part: &Part<'_>, last: Option<&Arc<MadeInputs>>) -> Made {
    let case = part.cases[0];
    let made = match last {
        Some(inputs) if inputs.is_of(case) => Arc::clone(inputs),
        _ => Arc::new(MadeInputs::new(file, case)?),
    };
    for &p in &part.on_host {
        made.add_reference(p, |inputs| reference(inputs, p))
            .map_err(|source| no_reference(case.place(), source))?;
    }
    Ok(made)
}

impl MadeInputs {
    fn new(file: Option<&FileInput>, case: &PlannedCase) -> Result<Self, ExecuteError> {
        let inputs = match &case.source {
            Source::Seeded { family, seed } => Inputs::generate(&case.problem, *family, *seed),
            Source::File { .. } => {
                let tensors = file.expect("a plan has file cases only where there is a file");
                let inputs = tensors.inputs(&case.problem);
                inputs.map_err(|error| no_reference(case.place(), ReferenceError::Input(error)))?
            }
        };
        let staged = StagedInputs::new(&inputs, case.source.family());
        Ok(Self {
            problem: case.problem,
            source: case.source.clone(),
            inputs,
            staged: Arc::new(staged),
            references: Mutex::default(),
        })
    }

    fn is_of(&self, case: &PlannedCase) -> bool {
        (self.problem, &self.source) == (case.problem, &case.source)
    }

    fn references(&self) -> MutexGuard<'_, References> {
        let references = self.references.lock();
        references.unwrap_or_else(PoisonError::into_inner)
    }

    /// Computes the reference for programs that hold P in `p`, unless it is there.
    fn add_reference(
        &self,
        p: Probability,
        compute: impl FnOnce(&Inputs) -> Result<Reference, ReferenceError>,
    ) -> Result<(), ReferenceError> {
        if self.references().contains_key(&p) {
            return Ok(());
        }
        let computed = Arc::new(compute(&self.inputs)?);
        self.references().insert(p, computed);
        Ok(())
    }
}

impl<'c> Batch<'c> {
    /// Judges the launches in parallel, each by the reference for its own type of P.
    fn judge(self, stages: &[LoadedStage]) -> Vec<Judged<'c>> {
        let mut launches = Vec::new();
        for part in self.parts {
            let references = Arc::new(part.references);
            for (case, result) in part.cases.into_iter().zip(part.results) {
                launches.push((case, result, Arc::clone(&references)));
            }
        }
        launches
            .into_par_iter()
            .map(|(case, result, references)| {
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

pub(super) fn emulated(mode: Mode) -> Target<'static> {
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
pub(super) fn until_lost<C, L>(
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
pub(super) fn keep(
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

#[cfg(test)]
mod tests;
