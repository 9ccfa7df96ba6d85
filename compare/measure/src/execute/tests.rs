use super::cases::{SMALL_SCORES, emulated, keep, until_lost};
use super::*;
use crate::plan::{Mode, Request, plan};
use crate::testing::request;
use crate::timer::Kernel;
use common::check::{NoOutput, Source, StagedInputs, Target, both_backends, check};
use common::device::cuda::{
    DeviceInfo, InputPool, Ranked, RankedArm, RotatedOutput, Timed, TimedPair,
};
use common::device::{BackendKind, Staged, emulated as emulator};
use common::inputs::{Family, Inputs};
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem};
use common::reference::agree::agree;
use common::reference::{Reference, reference};
use common::stage::{LoadedStage, Prepared};
use common::telemetry::Reading;
use common::tier0;
use common::timing::stats::Summary;
use common::timing::sustained::{CHUNK, Chunk, Stand, Sustained, sustain_at_limit};
use common::timing::{CacheState, Comparison, Measurement};
use common::verdict::{GateId, Verdict};
use results::builds::builds;
use results::judge::state::NEEDED;
use results::table::Place;
use results::table::Run;
use results::testing;
use results::testing::{SCALAR, WMMA, samples};
use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

/// A sink that keeps what it is told.
#[derive(Default)]
struct Log {
    /// The kind of each step.
    kinds: Vec<&'static str>,
    started: Vec<String>,
    /// The number of cases that the run had at each result.
    recorded: Vec<usize>,
    /// Whether it stops the run at the first result.
    is_stopping: bool,
}

impl Log {
    /// Makes a sink that stops the run at the first result.
    fn stopping() -> Self {
        Self {
            is_stopping: true,
            ..Self::default()
        }
    }
}

impl Sink for Log {
    fn on_start(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.kinds.push(kind);
        self.started.push(format!("{done} of {total}: {label}"));
    }

    fn on_rows_added(&mut self, run: &mut Run) -> Result<(), ExecuteError> {
        self.recorded.push(run.cases().count());
        if self.is_stopping {
            return Err(ExecuteError::Interrupted);
        }
        Ok(())
    }
}

/// The ladder, and what a request plans for it.
struct Planned {
    stages: Vec<LoadedStage>,
    plan: Plan,
}

impl Planned {
    fn new(request: &Request, backend: BackendKind) -> Self {
        let stages = stages::load().unwrap();
        let plan = plan(&builds(&stages), request, backend).unwrap();
        Self { stages, plan }
    }

    fn executor(&self) -> Executor<'_> {
        Executor::new(&self.plan, &self.stages)
    }

    /// Makes a run of the emulator without rows.
    fn blank_run(&self) -> Run {
        testing::emulated()
            .without(|_| true)
            .changed(|session| session.stages = builds(&self.stages))
    }

    /// Times what is planned with this timer, which is the first of a run.
    fn time(&self, timer: &GpuDouble, run: &mut Run) -> Log {
        self.time_all(timer, &self.plan.timings, run)
    }

    fn time_all(&self, timer: &GpuDouble, timings: &[(Problem, Subject)], run: &mut Run) -> Log {
        let mut log = Log::default();
        let mut benches = Benches::new(timer, ZERO_US, true);
        self.executor()
            .time(&mut benches, timings, run, &mut log)
            .unwrap();
        log
    }
}

/// Returns the request of stage 0 on one shape, in f16 with the full mask.
fn stage0_on(shape: &str) -> Request {
    request()
        .stages(["0"])
        .shapes([shape])
        .dtypes([Dtype::F16])
        .masks([Mask::Full])
}

fn problem(shape: &str, dtype: Dtype) -> Problem {
    let extents = common::problem::parse_shape(shape).unwrap();
    Problem::new(extents, dtype, Mask::Full).unwrap()
}

/// Makes a run on a GPU with the gates of the cases of stage 0, of which this one fails of the
/// second variant.
fn judged(red: Option<GateId>) -> Run {
    let mut run = testing::timed(testing::US).without(|_| true);
    for subject in [SCALAR, WMMA] {
        let mut row = Row::new(subject, Kind::Checked(BackendKind::Cuda));
        for gate in NEEDED {
            let is_red = subject == WMMA && red == Some(gate);
            row = row.verdict(&GateResult::judge(gate, !is_red, "of the cases"));
        }
        run.append(row);
    }
    run
}

/// A run, and what its sink was told.
struct Executed {
    run: Run,
    log: Log,
}

/// Executes a plan in the emulator, with so many cases at a time.
fn executed(planned: &Planned, in_flight: usize) -> Executed {
    let mut run = planned.blank_run();
    let mut log = Log::default();
    let executor = Executor {
        in_flight,
        ..planned.executor()
    };
    executor.run(&mut run, &mut log).unwrap();
    Executed { run, log }
}

/// Plans cases of two stages on two shapes as on a GPU, whose place the emulator takes.
fn planned_on_both_backends() -> Planned {
    let two_stages = request()
        .stages(["0", "3"])
        .shapes(["1x1x17x64", "1x2:1x9x64"])
        .families([Family::Normal, Family::Large]);
    let mut planned = Planned::new(&two_stages, BackendKind::Emulated);
    for case in &mut planned.plan.cases {
        case.mode = Mode::Both;
    }
    planned
}

#[test]
fn cases_that_are_judged_together_say_what_they_say_one_by_one() {
    let planned = planned_on_both_backends();
    let alone = executed(&planned, 1);
    let together = executed(&planned, 5);
    assert_eq!(alone.run, together.run);
    assert_eq!(alone.log.started, together.log.started);
    assert_eq!(alone.log.recorded, together.log.recorded);
    let one_by_one: Vec<usize> = (1..=planned.plan.cases.len()).collect();
    assert_eq!(alone.log.recorded, one_by_one);
}

/// The reference of the second problem ends the run, when the last cases of the first were launched
/// and not judged.
#[test]
fn what_was_launched_is_judged_where_the_next_cases_end_the_run() {
    let planned = planned_on_both_backends();
    let cases = &planned.plan.cases;
    let first = cases[0].problem;
    let second = cases.iter().find(|case| case.problem != first).unwrap();
    let gpu = GpuDouble {
        disagrees_on: Some(second.problem),
        ..GpuDouble::new(20.0)
    };
    let executor = Executor {
        timer: Some(&gpu),
        ..planned.executor()
    };
    let mut run = planned.blank_run();
    let error = executor.run(&mut run, &mut Log::default()).unwrap_err();
    assert!(matches!(error, ExecuteError::Reference { .. }), "{error}");
    let launched = cases.iter().filter(|case| case.problem == first).count();
    assert_eq!(run.cases().count(), launched);
}

/// Green cases are context; a row per variant sums them up, and the shapes' names are explained.
#[test]
fn every_green_case_is_a_row_and_is_summed_up() {
    let planned = planned_on_both_backends();
    let run = executed(&planned, 5).run;
    assert_eq!(run.cases().count(), planned.plan.cases.len());
    for case in run.cases() {
        assert_eq!(case.failed().count(), 0, "{case:?}");
        let both_backends = &case.verdicts[&GateId::B1];
        assert_eq!(both_backends.verdict, Verdict::Pass, "{case:?}");
    }
    assert_eq!(summed_cases(&run), planned.plan.cases.len() as f64);
}

/// Returns the number of cases that the summaries of all variants count.
fn summed_cases(run: &Run) -> f64 {
    let summaries = run.table.rows().filter(|row| row.place() == Place::All);
    summaries.filter_map(|row| row.value(Metric::Cases)).sum()
}

/// Each case is judged on its own inputs, by the reference for its own type of P.
#[test]
fn a_case_of_a_run_has_the_figures_that_it_has_alone() {
    let planned = planned_on_both_backends();
    let run = executed(&planned, 5).run;
    for case in &planned.plan.cases {
        let Source::Seeded { family, .. } = case.source else {
            panic!("no file is given")
        };
        let outcome = check(
            loaded(&planned.stages, case.subject.stage()),
            case.subject.name(),
            &case.problem,
            family,
            emulated(Mode::Both),
        );
        let row = Row::new(&case.subject, Kind::Case(run.session.backend, case.place()));
        let expected = row.outcome(&outcome).rounded();
        let key = expected.key();
        assert_eq!(
            run.table.get(&key).unwrap().figures,
            expected.figures,
            "{key}"
        );
    }
}

#[test]
fn a_case_without_memory_ends_the_run_and_is_no_row() {
    let plan = Planned::new(&request().quick(), BackendKind::Emulated).plan;
    let mut run = testing::emulated().without(|_| true);
    let mut log = Log::default();
    let outcome = Err(NoOutput::NoMemory("rows far apart: 280 GiB".into()));
    let error = keep(vec![(&plan.cases[0], outcome)], &mut run, &mut log).unwrap_err();
    assert!(matches!(error, ExecuteError::NoMemory { .. }), "{error}");
    let message = error.to_string();
    assert!(message.contains("rows far apart: 280 GiB; "), "{message}");
    assert_eq!(run.cases().count(), 0);
    assert_eq!(log.recorded, [0; 0]);
}

#[test]
fn what_finished_behind_a_case_without_memory_is_kept() {
    let plan = Planned::new(&request().quick(), BackendKind::Emulated).plan;
    let mut run = testing::emulated().without(|_| true);
    let mut log = Log::default();
    let no_memory = |words: &str| Err(NoOutput::NoMemory(words.into()));
    let failed = || {
        Err(NoOutput::Failed {
            reason: "a launch that ended".into(),
            fatal: false,
        })
    };
    let outcomes = [
        failed(),
        no_memory("first"),
        failed(),
        no_memory("second"),
        failed(),
    ];
    let judged = plan.cases.iter().zip(outcomes).collect();
    let error = keep(judged, &mut run, &mut log).unwrap_err();
    assert!(error.to_string().contains("first; "), "{error}");
    assert_eq!(run.cases().count(), 3);
    assert_eq!(log.recorded, [1, 2, 3]);
}

#[test]
fn what_had_ended_is_summed_up_where_the_run_stops() {
    let planned = Planned::new(&stage0_on("1x1x17x64"), BackendKind::Emulated);
    let mut run = planned.blank_run();
    let executor = Executor {
        in_flight: 2,
        ..planned.executor()
    };
    assert!(executor.run(&mut run, &mut Log::stopping()).is_err());
    assert_eq!(run.cases().count(), 2);
    let summaries = run.table.rows().filter(|row| row.place() == Place::All);
    assert_eq!(summaries.count(), 2);
}

#[test]
fn a_traced_case_runs_plain_under_every_schedule() {
    assert_eq!(
        schedules(Mode::Traced),
        Schedules {
            plain: 3,
            traced: 3
        }
    );
    assert_eq!(
        schedules(Mode::TracedOnce),
        Schedules {
            plain: 3,
            traced: 1
        }
    );
}

#[test]
fn a_case_that_is_not_traced_runs_under_one_schedule() {
    let once = Schedules {
        plain: 1,
        traced: 0,
    };
    assert_eq!(schedules(Mode::Plain), once);
    assert_eq!(schedules(Mode::Both), once);
}

/// The numbers of schedules under which a case runs in the emulator's two builds.
#[derive(Debug, PartialEq)]
struct Schedules {
    plain: usize,
    traced: usize,
}

fn schedules(mode: Mode) -> Schedules {
    match emulated(mode) {
        Target::Emulated {
            schedules, traced, ..
        } => Schedules {
            plain: schedules.len(),
            traced: traced.len(),
        },
        Target::Cuda { .. } => panic!("{mode:?}"),
    }
}

#[test]
fn nothing_is_launched_on_a_gpu_that_is_lost() {
    use Launch::{Fails, LosesGpu, Succeeds};
    assert_eq!(
        succeeded(&[Succeeds, Fails, Succeeds, LosesGpu, Succeeds, LosesGpu]),
        [true, false, true, false],
        "the failure that loses it is the last result"
    );
    assert_eq!(succeeded(&[Succeeds, Fails]), [true, false]);
}

/// The fate of a launch.
#[derive(Clone, Copy, PartialEq)]
enum Launch {
    Succeeds,
    Fails,
    LosesGpu,
}

/// Returns which of these launches succeed, of those that take place.
fn succeeded(launches: &[Launch]) -> Vec<bool> {
    let results = until_lost(launches, |_, launch| {
        if *launch == Launch::Succeeds {
            return Ok(());
        }
        Err(NoOutput::Failed {
            reason: "illegal address".into(),
            fatal: *launch == Launch::LosesGpu,
        })
    });
    results.iter().map(Result::is_ok).collect()
}

/// The output of a stage's default variant, in which row 16 of head 1 can be made wrong. The
/// zero-head family has its zeros in V's head 0.
struct JudgedOutput<'a> {
    stage: &'a LoadedStage,
    staged: Arc<StagedInputs>,
    output: Vec<f32>,
}

/// The elements of row 16 of head 1 of an output of two heads of 18 rows.
const ROW: Range<usize> = 34 * 64..35 * 64;

impl<'a> JudgedOutput<'a> {
    fn new(stage: &'a LoadedStage, problem: &Problem, family: Family) -> Self {
        let inputs = Inputs::generate(problem, family, 0);
        let target = Target::Emulated {
            schedules: &tier0::SCHEDULES[1..2],
            traced: &[],
            suppress: None,
        };
        let variant = stage.info().default_variant;
        let checked = check(stage, variant, problem, family, target).unwrap();
        Self {
            stage,
            staged: Arc::new(StagedInputs::new(&inputs, Some(family))),
            output: checked.output,
        }
    }

    /// Judges gate B1 with the row changed by `spoil`.
    fn judge(&self, spoil: impl Fn(f32) -> f32) -> GateResult {
        let mut spoilt = self.output.clone();
        for element in &mut spoilt[ROW] {
            *element = spoil(*element);
        }
        let variant = self.stage.info().default_variant;
        both_backends(self.stage, variant, &self.staged, &spoilt).unwrap()
    }
}

/// Refuses a result that does not fail for the row that was made wrong.
fn assert_row_fails(result: &GateResult, case: &str) {
    let reason = &result.reason;
    assert_eq!(result.verdict, Verdict::Fail, "{case}: {reason}");
    assert!(reason.starts_with("row [0, 1, 16] differs"), "{reason}");
}

#[test]
fn a_row_that_one_backend_alone_gets_wrong_fails_b1_in_every_family() {
    let stages = stages::load().unwrap();
    for dtype in Dtype::ALL {
        let problem = problem("1x2x18:5x64", dtype);
        let stage = stages
            .iter()
            .find(|stage| {
                stage
                    .prepare(stage.info().default_variant, &problem)
                    .is_ok()
            })
            .unwrap();
        for family in Family::for_dtype(dtype) {
            let judged = JudgedOutput::new(stage, &problem, family);
            let case = format!("{dtype} {family}");
            let is_zero = judged.output[ROW].iter().all(|element| *element == 0.0);
            assert!(!is_zero, "{case}: a fault would change nothing");
            let right = judged.judge(|element| element);
            assert_eq!(right.verdict, Verdict::Pass, "{case}");
            // P of huge in bf16 is rounded by 0.4 % here and there.
            let part = match (dtype, family) {
                (Dtype::Bf16, Family::Huge) => 0.015,
                _ => 0.01,
            };
            assert_row_fails(&judged.judge(|element| (1.0 + part) * element), &case);
            assert_row_fails(&judged.judge(|element| (1.0 - part) * element), &case);
            assert_row_fails(&judged.judge(|_| 0.0), &case);
            assert_row_fails(&judged.judge(|_| f32::NAN), &case);
        }
    }
}

/// Where it was built without nvcc, there is no PTX, and the verdict says so.
#[test]
fn a_case_for_the_interpreter_is_judged_by_b2_and_another_is_not() {
    let mut planned = Planned::new(&stage0_on("1x1x17x64"), BackendKind::Emulated);
    for (index, case) in planned.plan.cases.iter_mut().enumerate() {
        case.runs_ptx = index == 0;
    }
    let run = executed(&planned, 1).run;
    assert_eq!(run.cases().count(), planned.plan.cases.len());
    let verdicts = Vec::from_iter(run.cases().filter_map(|row| row.says(GateId::B2)));
    let expected = match planned.stages[0].ptx() {
        Ok(_) => Verdict::Pass,
        Err(_) => Verdict::NoData,
    };
    assert_eq!(verdicts, [expected]);
}

#[test]
fn an_output_that_is_missing_on_one_backend_is_no_data_for_b1() {
    let stages = stages::load().unwrap();
    let inputs = Inputs::generate(&problem("1x1x5x64", Dtype::F16), Family::Normal, 0);
    let staged = Arc::new(StagedInputs::new(&inputs, None));
    let variant = stages[0].info().default_variant;
    let result = both_backends(&stages[0], variant, &staged, &[]).unwrap();
    assert_eq!(result.verdict, Verdict::NoData);
}

/// A change to the outputs that timing leaves.
type Fault = fn(&mut Vec<RotatedOutput>);

/// A stand-in for a GPU: kernels run on the emulator, and what one of them leaves is then spoilt.
struct GpuDouble {
    info: DeviceInfo,
    /// The time of every kernel.
    us: f64,
    /// The variant whose outputs are spoilt.
    spoilt: Option<&'static str>,
    fault: Fault,
    timed: RefCell<Vec<String>>,
    /// The warm-up of each arm that was timed alone.
    warm_ups: RefCell<Vec<Duration>>,
    /// The settling of each arm that was timed alone.
    settlings: RefCell<Vec<Duration>>,
    /// The rival of each arm that was timed alone.
    rivals: RefCell<Vec<Option<f64>>>,
    /// The plan of each pair.
    pair_plans: RefCell<Vec<TimingPlan>>,
    /// The variant that was chosen in each ranking.
    chosen: RefCell<Vec<Option<String>>>,
    /// The problem on which its references are not the host's.
    disagrees_on: Option<Problem>,
    /// The power that it draws while a kernel runs.
    power_w: Option<f64>,
}

/// The power limit of [`GpuDouble`], in watts.
const LIMIT_W: f64 = 700.0;

/// The time of an empty kernel, in microseconds.
const ZERO_US: f64 = 0.6;

/// Arms that take as long as in their bursts, and a tenth longer once they are hot, on a clock of
/// their own.
struct SustainedArms<'a> {
    gpu: &'a GpuDouble,
    us: &'a [f64],
    now: Duration,
}

impl Stand for SustainedArms<'_> {
    type Error = CudaError;

    fn elapsed(&self) -> Duration {
        self.now
    }

    fn chunk(&mut self, arm: usize) -> Result<Chunk, CudaError> {
        let is_hot = self.now >= Duration::from_millis(1000);
        let launch_us = if is_hot { 1.1 } else { 1.0 } * self.us[arm];
        let launches = (CHUNK.as_secs_f64() * 1e6 / launch_us).round();
        self.now += CHUNK;
        Ok(Chunk {
            us: launches * launch_us,
            launches: launches as usize,
            reading: self.gpu.reading(),
        })
    }
}

/// Faults of timed outputs, each with the gate that finds it.
const FAULTS: [(GateId, Fault); 6] = [
    (GateId::C1, |outputs| outputs[1].execution.output.fill(0xff)),
    (GateId::C2, |outputs| {
        outputs[1].execution.output = outputs[0].execution.output.clone()
    }),
    (GateId::C5, flip_in_a_copy),
    (GateId::C6, |outputs| outputs[0].execution.output[0] ^= 1),
    (GateId::C6, |outputs| outputs[1].execution.output[0] ^= 1),
    // V has become O.
    (GateId::C6, |outputs| {
        let left = &mut outputs[1].execution;
        left.changed_inputs[2] = Some(left.output.clone());
    }),
];

/// Adds an output of the same inputs that differs in one element.
fn flip_in_a_copy(outputs: &mut Vec<RotatedOutput>) {
    let mut other = outputs[1].clone();
    let elements = other.execution.output.len() / 2;
    other.execution.output[elements] ^= 1;
    outputs.push(other);
}

impl GpuDouble {
    /// Makes one on which every kernel takes `us` microseconds and is right.
    fn new(us: f64) -> Self {
        let info = DeviceInfo {
            name: testing::GPU.into(),
            uuid: String::new(),
            compute_capability: (9, 0),
            sms: 132,
            l2_bytes: 50 << 20,
            shared_optin_bytes: 232_448,
            cuda_version: (13, 0),
            driver_version: None,
        };
        Self {
            info,
            us,
            spoilt: None,
            fault: |_| (),
            timed: RefCell::default(),
            warm_ups: RefCell::default(),
            settlings: RefCell::default(),
            rivals: RefCell::default(),
            pair_plans: RefCell::default(),
            chosen: RefCell::default(),
            disagrees_on: None,
            power_w: Some(300.0),
        }
    }

    fn drawing(self, power_w: Option<f64>) -> Self {
        Self { power_w, ..self }
    }

    /// Spoils the outputs of a variant.
    fn with_fault(self, variant: &'static str, fault: Fault) -> Self {
        Self {
            spoilt: Some(variant),
            fault,
            ..self
        }
    }

    fn reading(&self) -> Reading {
        Reading {
            power_w: self.power_w,
            power_limit_w: Some(LIMIT_W),
            ..Reading::default()
        }
    }

    fn sustained(&self, us: &[f64]) -> Option<Vec<Sustained>> {
        let mut arms = SustainedArms {
            gpu: self,
            us,
            now: Duration::ZERO,
        };
        sustain_at_limit([&self.reading()], &mut arms, us.len()).unwrap()
    }

    fn outputs(&self, prepared: &Prepared<'_>, pool: &InputPool) -> Vec<RotatedOutput> {
        let name = &prepared.kernel.variant;
        self.timed.borrow_mut().push(name.clone());
        let mut outputs = Vec::new();
        for (input, staged) in pool.contents().iter().enumerate() {
            // What would take the emulator long leaves nothing.
            if staged.problem.scores() > SMALL_SCORES {
                continue;
            }
            let schedule = tier0::SCHEDULES[0];
            outputs.push(RotatedOutput {
                input,
                buffers: 2,
                execution: emulator::execute(prepared, staged, schedule, None).unwrap(),
            });
        }
        if self.spoilt == Some(name.as_str()) {
            (self.fault)(&mut outputs);
        }
        outputs
    }
}

impl Timer for GpuDouble {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn pool(&self, contents: Vec<Staged>, is_cold: bool) -> Result<Rc<InputPool>, CudaError> {
        InputPool::on_host(contents, is_cold, self.info.l2_bytes).map(Rc::new)
    }

    fn makes_reference(&self, _: &Problem) -> bool {
        true
    }

    fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        let host = reference(inputs, p)?;
        let mut own = host.clone();
        if self.disagrees_on == Some(inputs.problem) {
            own.output[0] += 1e-6;
        }
        agree(&inputs.problem, &host, &own)?;
        Ok(own)
    }

    fn zero_us(&self, _: &TimingPlan) -> Result<f64, CudaError> {
        Ok(ZERO_US)
    }

    fn time(
        &self,
        kernel: Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &TimingPlan,
    ) -> Result<Timed, CudaError> {
        let has_claims = pool.contents()[0].problem.has_claims();
        assert_eq!(plan.samples, if has_claims { 500 } else { 100 });
        self.warm_ups.borrow_mut().push(plan.warm_up);
        self.settlings.borrow_mut().push(plan.settling);
        self.rivals.borrow_mut().push(plan.rival_us);
        let us = samples(self.us);
        let sustained = self.sustained(&[self.us]).map(|mut arms| arms.remove(0));
        let device = sustained.as_ref().map_or(&us, |arm| &arm.us);
        Ok(Timed {
            measurement: Measurement {
                rotation: *pool.rotation(),
                device: Summary::new(device).unwrap(),
                single: Summary::new(&us).unwrap(),
                conditions: [self.reading(); 2],
                sustained,
            },
            outputs: self.outputs(kernel.prepared, pool),
        })
    }

    fn time_pair(
        &self,
        base: Kernel<'_>,
        new: Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &TimingPlan,
    ) -> Result<TimedPair, CudaError> {
        self.pair_plans.borrow_mut().push(plan.clone());
        let (comparison, sustained) = match self.sustained(&[3.0 * self.us, self.us]) {
            None => {
                let (base_us, new_us) = (samples(2.0 * self.us), samples(self.us));
                (Comparison::new(&base_us, &new_us), None)
            }
            Some(arms) => {
                let comparison = Comparison::new(&arms[0].us, &arms[1].us);
                (comparison, Some(arms[1].load))
            }
        };
        Ok(TimedPair {
            comparison: comparison.unwrap(),
            sustained,
            base_outputs: self.outputs(base.prepared, pool),
            new_outputs: self.outputs(new.prepared, pool),
        })
    }

    fn rank(
        &self,
        kernels: &[Kernel<'_>],
        chosen: Option<usize>,
        pool: &Rc<InputPool>,
        plan: &TimingPlan,
    ) -> Result<Vec<RankedArm>, CudaError> {
        assert!(plan.settling < TimingPlan::default().settling);
        let chosen_variant = chosen.map(|index| kernels[index].prepared.kernel.variant.clone());
        self.chosen.borrow_mut().push(chosen_variant);
        let mut ranked = Vec::new();
        for kernel in kernels {
            let outputs = self.outputs(kernel.prepared, pool);
            ranked.push(if outputs.is_empty() {
                Err(CudaError::NotBuilt {
                    stage: kernel.stage.info().id.to_string(),
                })
            } else {
                Ok(Ranked {
                    us: self.us,
                    outputs,
                })
            });
        }
        Ok(ranked)
    }
}

/// The end of a run on random problems.
struct DrawnRun {
    is_complete: bool,
    /// A line for each time that it kept, with the gates that the outputs fail.
    times: String,
}

/// Times stage 0 on two random problems.
fn drawn(gpu: &GpuDouble, log: &mut Log) -> DrawnRun {
    let two_problems = request()
        .stages(["0"])
        .random_problems(2)
        .dtypes([Dtype::F16]);
    let mut planned = Planned::new(&two_problems, BackendKind::Cuda);
    assert_eq!(planned.plan.draws.len(), 2);
    assert_eq!(planned.plan.timings, []);
    // The emulator computes these at once.
    let small = ["1x1x17x64", "1x2:1x9x64"].map(|shape| problem(shape, Dtype::F16));
    planned.plan.draws = small.to_vec();
    let mut run = judged(None);
    let executor = Executor {
        chosen: [
            (ProblemPlace::of(&small[0]), WMMA.into()),
            // The library may choose what this run does not time.
            (ProblemPlace::of(&small[1]), testing::CPASYNC.into()),
        ]
        .into(),
        ..planned.executor()
    };
    let outcome = executor.draws(gpu, &mut run, log);
    let mut times = Vec::new();
    for row in run.table.random_times() {
        let us = row.value(Metric::P50);
        let gates = distinct(row.failed().map(|(gate, _)| gate));
        let number = row.value(Metric::Draw).unwrap();
        let (subject, place) = (&row.subject, row.place());
        times.push(format!("{subject} {place} {number} {us:?} {gates:?}"));
    }
    DrawnRun {
        is_complete: outcome.is_ok(),
        times: times.join("\n"),
    }
}

#[test]
fn every_green_variant_is_timed_on_random_problems() {
    let drawn = drawn(&GpuDouble::new(20.0), &mut Log::default());
    assert!(drawn.is_complete);
    insta::assert_snapshot!(drawn.times, @"
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/scalar-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    ");
}

#[test]
fn what_the_library_chooses_is_timed_in_full_on_random_problems() {
    let gpu = GpuDouble::new(20.0);
    drawn(&gpu, &mut Log::default());
    let chosen = gpu.chosen.borrow();
    assert_eq!(*chosen, [Some("wmma-qk-32x64".to_string()), None]);
}

#[test]
fn outputs_on_random_problems_are_judged() {
    let gpu = GpuDouble::new(20.0).with_fault("wmma-qk-32x64", |outputs| {
        outputs[0].execution.output[0] ^= 1
    });
    let drawn = drawn(&gpu, &mut Log::default());
    assert!(drawn.is_complete);
    insta::assert_snapshot!(drawn.times, @"
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/scalar-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 Some(20.0) [C6]
    stage0-scalar/wmma-qk-32x64 1x2:1x9x64 f16 full 1 Some(20.0) [C6]
    ");
}

#[test]
fn a_variant_that_is_not_launched_on_random_problems_has_no_time_and_the_others_have() {
    let gpu = GpuDouble::new(20.0).with_fault("wmma-qk-32x64", Vec::clear);
    let drawn = drawn(&gpu, &mut Log::default());
    assert!(drawn.is_complete);
    insta::assert_snapshot!(drawn.times, @"
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/scalar-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 None [C1]
    stage0-scalar/wmma-qk-32x64 1x2:1x9x64 f16 full 1 None [C1]
    ");
}

#[test]
fn a_run_that_stops_keeps_the_random_problems_that_had_ended() {
    let drawn = drawn(&GpuDouble::new(20.0), &mut Log::stopping());
    assert!(!drawn.is_complete);
    insta::assert_snapshot!(drawn.times, @"
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    ");
}

/// Returns a problem as it is timed, from device memory if `is_cold`.
fn timed_problem(shape: &str, is_cold: bool) -> TimedProblem {
    let device = GpuDouble::new(10.0);
    let problem = problem(shape, Dtype::F16);
    TimedProblem::with_inputs(&device, &problem, is_cold, |inputs| inputs).unwrap()
}

#[test]
fn mission_is_timed_from_the_cache() {
    let timed = timed_problem("mission", false);
    assert_eq!(timed.pool.rotation().sets, 4);
    assert_eq!(timed.pool.rotation().state, CacheState::Warm);
    assert_eq!(timed.inputs.len(), 2);
}

/// There are more sets than the cache holds, at addresses of their own.
#[test]
fn what_is_asked_for_cold_is_timed_from_device_memory() {
    let timed = timed_problem("mission", true);
    assert_eq!(timed.pool.rotation().sets, 128);
    assert_eq!(timed.pool.rotation().state, CacheState::Cold);
    assert_eq!(timed.inputs.len(), 2);
}

#[test]
fn decode_is_timed_from_device_memory() {
    let timed = timed_problem("decode_1k", false);
    assert_eq!(timed.pool.rotation().sets, 6);
    assert_eq!(timed.pool.rotation().state, CacheState::Cold);
    assert_eq!(timed.inputs.len(), 1);
}

/// Returns the gates that a row fails.
fn failed(row: &Row) -> Vec<GateId> {
    row.failed().map(|(gate, _)| gate).collect()
}

/// A claim has both sides timed, ours and the base of the same preset, and each stage's best with
/// that of the one before.
#[test]
fn a_run_interleaves_what_claims_compare_and_neighbouring_stages() {
    let fast = "stage0-scalar/scalar-16x64";
    let run = testing::timed([32.0, 20.0, 25.0])
        .with_first_claims(1, 0)
        .with_variant(SCALAR, "scalar-16x64")
        .with_figure(fast, testing::latency(), Metric::P50, 28.0);
    let pairs = interleaved(&View::alone(&run));
    let subjects: Vec<_> = pairs
        .iter()
        .map(|pair| (pair.new.as_str(), pair.base.as_str()))
        .collect();
    assert_eq!(
        subjects,
        [(WMMA, fast), (WMMA, SCALAR), (testing::CPASYNC, WMMA)]
    );
}

#[test]
fn the_two_pairs_of_a_claim_with_one_preset_are_the_same() {
    let run = testing::timed(testing::US);
    assert_eq!(interleaved(&View::alone(&run)).len(), 2);
}

/// Times what is green of stage 0, where the second variant fails the gate `red`. Returns the run
/// without its summaries.
fn timed_if_green(gpu: &GpuDouble, red: Option<GateId>) -> Run {
    let planned = Planned::new(&stage0_on("1x1x17x64"), BackendKind::Cuda);
    let mut run = judged(red);
    let timings = green(&View::alone(&run), planned.plan.timings.clone());
    planned.time_all(gpu, &timings, &mut run);
    run.table.retain(|row| row.place() != Place::All);
    run
}

#[test]
fn what_is_green_is_timed() {
    let gpu = GpuDouble::new(20.0);
    let run = timed_if_green(&gpu, None);
    for row in run.table.rows() {
        assert_eq!(failed(row), [], "{row:?}");
        assert_eq!(row.value(Metric::P50), Some(20.02), "{row:?}");
    }
    assert!(gpu.timed.borrow().contains(&"wmma-qk-32x64".to_string()));
}

#[test]
fn what_fails_any_gate_is_not_timed() {
    for red in NEEDED {
        let gpu = GpuDouble::new(20.0);
        timed_if_green(&gpu, Some(red));
        assert_eq!(
            *gpu.timed.borrow(),
            ["scalar-32x64"],
            "the other fails {red}"
        );
    }
}

#[test]
fn timed_outputs_are_judged_again_in_their_buffers() {
    for (gate, fault) in FAULTS {
        let gpu = GpuDouble::new(20.0).with_fault("wmma-qk-32x64", fault);
        let run = timed_if_green(&gpu, None);
        for row in run.table.rows() {
            let is_spoilt = row.subject.as_str() == WMMA;
            assert_eq!(failed(row).contains(&gate), is_spoilt, "{gate}: {row:?}");
            assert_eq!(row.says(GateId::C4), None);
        }
    }
}

#[test]
fn a_time_that_is_impossible_fails_l1() {
    let run = timed_if_green(&GpuDouble::new(ZERO_US), None);
    for row in run.table.rows() {
        assert_eq!(failed(row)[0], GateId::L1, "{row:?}");
    }
}

/// Returns the row of a variant that was timed on a GPU with this power.
fn timed_at(power_w: Option<f64>) -> Row {
    let scalar = stage0_on("mission").variants(["scalar-32x64"]);
    let gpu = GpuDouble::new(20.0).drawing(power_w);
    let mut run = judged(None);
    run.table.retain(|_| false);
    Planned::new(&scalar, BackendKind::Cuda).time(&gpu, &mut run);
    run.table.rows().next().unwrap().clone()
}

#[test]
fn a_kernel_below_the_power_limit_is_timed_in_bursts() {
    let row = timed_at(Some(629.0));
    assert_eq!(row.conditions.as_deref(), Some("warm L2"));
    assert_eq!(row.value(Metric::P50), Some(20.02));
    assert_eq!(row.value(Metric::EnergyMj), None);
    assert_eq!(row.value(Metric::PowerW), Some(629.0));
}

#[test]
fn a_kernel_at_the_power_limit_has_its_sustained_time_and_energy() {
    let row = timed_at(Some(630.0));
    assert_eq!(row.conditions.as_deref(), Some("warm L2, sustained"));
    assert_eq!(row.value(Metric::P50), Some(22.0));
    assert_eq!(row.value(Metric::Samples), Some(10.0));
    assert_eq!(row.value(Metric::PowerW), Some(630.0));
    // 630 W for 22 µs.
    let energy_mj = row.value(Metric::EnergyMj).unwrap();
    assert!((energy_mj - 13.86).abs() < 0.01, "{energy_mj}");
}

#[test]
fn a_kernel_of_unknown_power_is_timed_in_bursts() {
    let row = timed_at(None);
    assert_eq!(row.conditions.as_deref(), Some("warm L2"));
    assert_eq!(row.value(Metric::P50), Some(20.02));
}

/// A kernel that was timed, and its rival.
struct Beside {
    variant: String,
    rival_us: Option<f64>,
}

/// Times stage 0's kernels on mission, in the order of its variants.
fn beside_rivals(power_w: f64) -> Vec<Beside> {
    let gpu = GpuDouble::new(20.0).drawing(Some(power_w));
    Planned::new(&stage0_on("mission"), BackendKind::Cuda).time(&gpu, &mut judged(None));
    let rivals = gpu.rivals.take();
    let variants = gpu.timed.take();
    variants
        .into_iter()
        .zip(rivals)
        .map(|(variant, rival_us)| Beside { variant, rival_us })
        .collect()
}

#[test]
fn a_kernel_at_the_power_limit_has_the_fastest_of_its_family_so_far_as_its_rival() {
    let timed = beside_rivals(630.0);
    for family in ["scalar", "wmma-qk"] {
        let of_family = timed.iter().filter(|one| one.variant.starts_with(family));
        let rivals: Vec<_> = of_family.map(|one| one.rival_us).collect();
        assert!(rivals.len() > 1, "{family} has several variants");
        assert_eq!(rivals[0], None, "nothing of {family} was timed before");
        assert_eq!(rivals[1..], vec![Some(22.0); rivals.len() - 1]);
    }
}

/// What a wrong kernel takes says nothing of a right one.
#[test]
fn a_kernel_whose_timed_outputs_are_wrong_is_no_rival() {
    let gpu = GpuDouble::new(20.0)
        .drawing(Some(630.0))
        .with_fault("scalar-32x64", |outputs| {
            outputs[0].execution.output[0] ^= 1
        });
    let scalars = stage0_on("1x1x17x64").variants(["scalar-32x64", "scalar-32x128-k2"]);
    let planned = Planned::new(&scalars, BackendKind::Cuda);
    planned.time(&gpu, &mut judged(None));
    assert_eq!(gpu.timed.take(), ["scalar-32x64", "scalar-32x128-k2"]);
    assert_eq!(gpu.rivals.take(), [None, None]);
}

#[test]
fn a_kernel_below_the_power_limit_is_no_rival() {
    for Beside { variant, rival_us } in beside_rivals(300.0) {
        assert_eq!(rival_us, None, "{variant}");
    }
}

/// [`GpuDouble`] counts samples.
#[test]
fn the_problem_of_the_claims_is_timed_with_all_samples() {
    let planned = Planned::new(&stage0_on("mission"), BackendKind::Cuda);
    let log = planned.time(&GpuDouble::new(20.0), &mut judged(None));
    let timings = planned.plan.timings.len();
    assert_ne!(timings, 0);
    assert_eq!(log.kinds, vec!["timing"; timings]);
}

#[test]
fn only_the_first_of_several_arms_has_the_whole_warm_up() {
    let planned = Planned::new(&stage0_on("1x1x17x64"), BackendKind::Cuda);
    let gpu = GpuDouble::new(20.0);
    planned.time(&gpu, &mut judged(None));
    let warm_ups = gpu.warm_ups.borrow();
    let (first, others) = warm_ups.split_first().unwrap();
    assert_eq!(*first, TimingPlan::default().warm_up);
    assert!(!others.is_empty());
    for warm_up in others {
        assert_eq!(*warm_up, WARM_UP_AFTER_ANOTHER);
    }
}

#[test]
fn only_the_first_of_several_arms_settles_for_long() {
    let planned = Planned::new(&stage0_on("1x1x17x64"), BackendKind::Cuda);
    let gpu = GpuDouble::new(20.0);
    planned.time(&gpu, &mut judged(None));
    let settlings = gpu.settlings.borrow();
    let (first, others) = settlings.split_first().unwrap();
    assert_eq!(*first, TimingPlan::default().settling);
    assert!(!others.is_empty());
    for settling in others {
        assert_eq!(*settling, SETTLING_AFTER_ANOTHER);
    }
}

/// A run as on a GPU, the emulator in its place.
struct TimedRun {
    /// The kind of each step, once for those in a row, with the stage.
    steps: Vec<String>,
    run: Run,
}

impl TimedRun {
    fn new(planned: &Planned) -> Self {
        let gpu = GpuDouble::new(20.0);
        let mut log = Log::default();
        let mut run = testing::timed(testing::US)
            .without(|_| true)
            .changed(|session| session.stages = builds(&planned.stages));
        let executor = Executor {
            timer: Some(&gpu),
            ..planned.executor()
        };
        executor.run(&mut run, &mut log).unwrap();
        let mut steps = Vec::new();
        for (kind, label) in log.kinds.iter().zip(&log.started) {
            let stage = label.split([' ', '/']).nth(3).unwrap();
            steps.push(format!("{kind} {stage}"));
        }
        steps.dedup();
        Self { steps, run }
    }
}

/// The variant of each of two stages.
const TWO_SUBJECTS: [&str; 2] = [
    "stage0-scalar/wmma-qk-32x64",
    "stage1-cpasync/cpasync-32x64",
];

/// Returns the request of [`TWO_SUBJECTS`].
fn two_variants() -> Request {
    request()
        .variants(["wmma-qk-32x64", "cpasync-32x64"])
        .dtypes([Dtype::F16])
}

/// Returns a plan with early and late cases, and times of both variants. The emulator computes its
/// problems at once.
fn planned_with_late_cases() -> Planned {
    let mut planned = Planned::new(&two_variants().full(), BackendKind::Cuda);
    let plan = &mut planned.plan;
    assert!(plan.cases.iter().any(|case| case.is_late));
    let early_shape = problem("1x1x17x128", Dtype::F16).shape;
    let late_problem = problem("1x1x65:5x64", Dtype::F16);
    plan.cases.retain(|case| {
        let is_chosen = case.problem.shape == early_shape || case.problem == late_problem;
        is_chosen && case.problem.scores() <= 500
    });
    plan.counted.clear();
    let timed_problem = problem("1x1x17x64", Dtype::F16);
    plan.timings = TWO_SUBJECTS
        .map(|subject| (timed_problem, subject.into()))
        .to_vec();
    for case in &mut plan.cases {
        // Under several schedules, as on a GPU in several launches: else C5 has no data.
        case.mode = Mode::Traced;
        case.is_late = case.problem.shape != early_shape;
    }
    let example = plan.cases[0].clone();
    for subject in TWO_SUBJECTS {
        plan.cases.push(PlannedCase {
            subject: subject.into(),
            problem: problem("1x1x5x64", Dtype::F16),
            is_late: true,
            ..example.clone()
        });
    }
    planned
}

#[test]
fn a_stage_is_timed_right_after_its_own_gates_and_late_cases_come_after_all_times() {
    let timed = TimedRun::new(&planned_with_late_cases());
    let expected = [
        "case stage0-scalar",
        "timing stage0-scalar",
        "case stage1-cpasync",
        "timing stage1-cpasync",
        "case stage0-scalar",
        "case stage1-cpasync",
    ];
    assert_eq!(timed.steps, expected);
}

#[test]
fn a_summary_is_of_all_cases_the_late_ones_too() {
    let planned = planned_with_late_cases();
    let run = TimedRun::new(&planned).run;
    assert_eq!(run.cases().count(), planned.plan.cases.len());
    assert_eq!(summed_cases(&run), planned.plan.cases.len() as f64);
}

#[test]
fn of_given_problems_the_first_is_timed_before_the_second_is_made() {
    let two_problems = two_variants()
        .shapes(["1x1x17x64", "1x1x9x64"])
        .masks([Mask::Full]);
    let mut planned = Planned::new(&two_problems, BackendKind::Cuda);
    for case in &mut planned.plan.cases {
        case.mode = Mode::Traced;
    }
    let expected = [
        "case stage0-scalar",
        "timing stage0-scalar",
        "case stage1-cpasync",
        "timing stage1-cpasync",
    ];
    assert_eq!(TimedRun::new(&planned).steps, [expected, expected].concat());
}

/// A GPU whose references are not the host's judges nothing: the run ends with what differs, and
/// keeps what finished before.
#[test]
fn a_reference_that_is_not_the_hosts_ends_a_run() {
    let planned = Planned::new(&stage0_on("1x1x17x64"), BackendKind::Emulated);
    let gpu = GpuDouble {
        disagrees_on: Some(planned.plan.cases[0].problem),
        ..GpuDouble::new(20.0)
    };
    let executor = Executor {
        timer: Some(&gpu),
        ..planned.executor()
    };
    let mut run = judged(None);
    let rows_before = run.table.rows().count();
    let error = executor.run(&mut run, &mut Log::default()).unwrap_err();
    let ExecuteError::Reference { case, source } = error else {
        panic!("{error}")
    };
    assert_eq!(case, "1x1x17x64 f16 full normal:0");
    assert!(
        matches!(source, ReferenceError::Disagreement(_)),
        "{source}"
    );
    assert_eq!(run.table.rows().count(), rows_before);
}

/// Times the two variants of stage 0 against each other on a small problem.
fn paired(gpu: &GpuDouble) -> Row {
    let planned = Planned::new(&request(), BackendKind::Emulated);
    let problem = problem("1x1x17x64", Dtype::F16);
    let mut bench = TimedProblem::new(gpu, &problem).unwrap();
    let (base, new): (Subject, Subject) = (SCALAR.into(), WMMA.into());
    let row = planned
        .executor()
        .pair(
            gpu,
            ZERO_US,
            &mut bench,
            [&base, &new],
            &TimingPlan::default(),
        )
        .unwrap();
    row.expect("both support it")
}

#[test]
fn the_row_of_a_pair_is_of_the_new_one_and_has_its_speed_over_the_base() {
    let gpu = GpuDouble::new(20.0);
    let row = paired(&gpu);
    assert_eq!(*gpu.timed.borrow(), ["scalar-32x64", "wmma-qk-32x64"]);
    assert_eq!(row.subject.as_str(), WMMA);
    assert_eq!(row.base(), Some(&SCALAR.into()));
    assert_eq!(failed(&row), []);
    assert_eq!(row.value(Metric::SpeedupP50), Some(2.0));
}

#[test]
fn only_the_first_of_several_pairs_has_the_whole_warm_up() {
    let planned = Planned::new(&request(), BackendKind::Emulated);
    let executor = planned.executor();
    let [first, second] = [0, 1].map(|number| executor.pair_plan(number));
    assert_eq!(first.warm_up, TimingPlan::default().warm_up);
    assert_eq!(second.warm_up, WARM_UP_OF_A_PAIR);
    assert_eq!(
        [first.settling, second.settling],
        [SETTLING_AFTER_ANOTHER; 2]
    );
}

#[test]
fn a_pair_is_timed_by_its_plan() {
    let gpu = GpuDouble::new(20.0);
    paired(&gpu);
    assert_eq!(*gpu.pair_plans.borrow(), [TimingPlan::default()]);
}

#[test]
fn both_arms_of_a_pair_are_judged_in_the_timed_buffers() {
    for (side, variant) in [(SCALAR, "scalar-32x64"), (WMMA, "wmma-qk-32x64")] {
        for (gate, fault) in FAULTS {
            let row = paired(&GpuDouble::new(20.0).with_fault(variant, fault));
            let start = format!("{side} as interleaved: ");
            let is_found = row
                .failed()
                .any(|(failed, judged)| failed == gate && judged.reason.starts_with(&start));
            assert!(is_found, "{gate} of {side}: {row:?}");
        }
    }
}

#[test]
fn a_pair_with_a_time_that_is_impossible_fails_l1() {
    assert_eq!(failed(&paired(&GpuDouble::new(ZERO_US)))[0], GateId::L1);
}

/// The base takes twice as long in its bursts.
#[test]
fn a_pair_below_the_power_limit_or_of_unknown_power_is_timed_in_bursts() {
    for power_w in [Some(600.0), None] {
        let row = paired(&GpuDouble::new(20.0).drawing(power_w)).rounded();
        assert_eq!(row.conditions, None, "{power_w:?}");
        assert_eq!(row.value(Metric::SpeedupP50), Some(2.0), "{power_w:?}");
        assert_eq!(row.value(Metric::EnergyMj), None, "{power_w:?}");
    }
}

/// The base takes thrice as long in turns of a second.
#[test]
fn a_pair_at_the_power_limit_is_timed_sustained() {
    let row = paired(&GpuDouble::new(20.0).drawing(Some(700.0))).rounded();
    assert_eq!(row.conditions.as_deref(), Some("warm L2, sustained"));
    assert_eq!(row.value(Metric::SpeedupP50), Some(3.0));
    assert_eq!(row.value(Metric::EnergyMj), Some(15.4));
}
