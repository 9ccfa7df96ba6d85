//! Executes a plan on the real stages. In rounds, each a stage's cases and then its times, or a
//! given problem's; then come the cases that no time waits for, counters, and the pairs that claims
//! compare.

mod cases;

use super::estimate::Work;
use super::plan::{Plan, PlannedCase, Round, is_timed_at_once};
use super::sink::{ExecuteError, LARGE_TIMING, PAIR, RANDOM_PROBLEM, Sink, TIMING};
use super::summary::summarise;
use super::timed_problem::{TimedOutputs, TimedProblem};
use super::timer::{Kernel, Timer};
use crate::input::FileInput;
use crate::machine;
use common::device::BackendKind;
use common::device::cuda::{CudaDevice, CudaError, RotatedOutput};
use common::metric::Metric;
use common::problem::Problem;
use common::reference::{Probability, ReferenceError};
use common::stage::{LoadedStage, Prepared};
use common::timing::{Measurement, Plan as TimingPlan};
use common::verdict::GateResult;
use results::builds::loaded;
use results::judge::View;
use results::judge::best::best;
use results::judge::claims::arms;
use results::judge::list::{Grouped, distinct, grouped};
use results::judge::state::is_green;
use results::table::session::claims;
use results::table::{Kind, ProblemPlace, Relation, Row, Run, Subject, measured};
use std::collections::BTreeMap;
use std::time::Duration;

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

/// The warm-up of an arm that is timed right after another.
const WARM_UP_AFTER_ANOTHER: Duration = Duration::from_millis(50);

/// The warm-up of a pair that is timed right after another: claims are judged on pairs.
const WARM_UP_OF_A_PAIR: Duration = Duration::from_millis(150);

/// The settling of such an arm: its clocks are up but for what the judging of the other one let
/// them sink. It sizes the graph alone; the warm-up follows before any sample.
const SETTLING_AFTER_ANOTHER: Duration = Duration::from_millis(5);

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
            let mut rivals = Rivals::default();
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
                let family = &prepared.kernel.family;
                arm_plan.rival_us = rivals.of(family);
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
                if measured::failed(&after).next().is_none() {
                    rivals.add(family, measurement);
                }
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
            let row = self.pair(timer, zero_us, bench, [&base, &new], &self.pair_plan(done))?;
            run.extend(row);
            sink.on_rows_added(run)?;
        }
        Ok(())
    }

    /// Returns the plan of the pair with this number: its arms settle as one after another does. The
    /// first has the whole warm-up; the late cases before it leave a GPU nearly idle.
    fn pair_plan(&self, number: usize) -> TimingPlan {
        let mut plan = self.timing.clone();
        plan.settling = plan.settling.min(SETTLING_AFTER_ANOTHER);
        if number > 0 {
            plan.warm_up = plan.warm_up.min(WARM_UP_OF_A_PAIR);
        }
        plan
    }

    /// Times two arms interleaved (A B B A) on one problem. Its row has the gates that fail on the
    /// timed buffers of either; there is none if one of them does not support the problem.
    fn pair(
        &self,
        device: &dyn Timer,
        zero_us: f64,
        bench: &mut TimedProblem,
        [base, new]: [&Subject; 2],
        plan: &TimingPlan,
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
            plan,
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

/// The fastest sustained time of each family of one stage on a problem, in microseconds, of kernels
/// whose timed outputs are right. Claims and pages ask for the fastest of a family: whoever is slower
/// in a burst needs no seconds at the power limit.
#[derive(Default)]
struct Rivals(BTreeMap<String, f64>);

impl Rivals {
    fn of(&self, family: &str) -> Option<f64> {
        self.0.get(family).copied()
    }

    fn add(&mut self, family: &str, measurement: &Measurement) {
        if measurement.sustained.is_none() {
            return;
        }
        let us = measurement.device.p50;
        self.0
            .entry(family.to_string())
            .and_modify(|fastest| *fastest = fastest.min(us))
            .or_insert(us);
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

/// Makes the error of a case, or of a problem that is timed.
fn no_reference(case: impl ToString, source: ReferenceError) -> ExecuteError {
    ExecuteError::Reference {
        case: case.to_string(),
        source,
    }
}

#[cfg(test)]
mod tests;
