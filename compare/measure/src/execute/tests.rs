use super::*;
use crate::plan::plan;
use crate::timer::Kernel;
use common::check::{both_backends, check};
use common::device::cuda::{DeviceInfo, InputPool, Ranked, RotatedOutput, Timed, TimedPair};
use common::device::{BackendKind, Staged, emulated as emulator};
use common::inputs::Family;
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem};
use common::reference::agree::agree;
use common::stage::{LoadedStage, Prepared};
use common::telemetry::Reading;
use common::timing::stats::Summary;
use common::timing::sustained::{CHUNK, Chunk, Stand, Sustained, sustain_at_limit};
use common::timing::{CacheState, Comparison, Measurement};
use common::verdict::{GateId, Verdict};
use results::builds::builds;
use results::judge::list::joined;
use results::judge::state::NEEDED;
use results::table::Place;
use results::table::Run;
use results::testing;
use results::testing::{SCALAR, WMMA, samples};
use std::cell::RefCell;
use std::rc::Rc;

#[derive(Default)]
struct Told {
    /// The kind of each step.
    kinds: Vec<&'static str>,
    started: Vec<String>,
    recorded: Vec<usize>,
    /// At the first result.
    stops: bool,
}

impl Sink for Told {
    fn on_start(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.kinds.push(kind);
        self.started.push(format!("{done} of {total}: {label}"));
    }

    fn on_rows_added(&mut self, run: &mut Run) -> Result<(), ExecuteError> {
        self.recorded.push(run.cases().count());
        if self.stops {
            return Err(ExecuteError::Interrupted);
        }
        Ok(())
    }
}

fn stops() -> Told {
    Told {
        stops: true,
        ..Told::default()
    }
}

/// The ladder, and what these flags plan for it.
fn planned(flags: &str, backend: BackendKind) -> (Vec<LoadedStage>, Plan) {
    let stages = stages::load().unwrap();
    let request = crate::testing::request(flags.split_whitespace());
    let plan = plan(&builds(&stages), &request, backend).unwrap();
    (stages, plan)
}

fn problem(shape: &str, dtype: Dtype) -> Problem {
    let shape = common::problem::parse_shape(shape).unwrap();
    Problem::new(shape, dtype, Mask::Full).unwrap()
}

/// On a GPU: what the gates said of the cases of stage 0, of which this one fails of the second
/// variant.
fn judged(red: Option<GateId>) -> Run {
    let mut run = testing::timed(testing::US).without(|_| true);
    for subject in [SCALAR, WMMA] {
        let row = Row::new(subject, Kind::Checked(BackendKind::Cuda));
        let is_red = |gate| subject == WMMA && red == Some(gate);
        run.append(NEEDED.into_iter().fold(row, |row, gate| {
            row.verdict(&GateResult::judge(gate, !is_red(gate), "of the cases"))
        }));
    }
    run
}

#[test]
fn cases_that_are_judged_together_say_what_they_say_one_by_one() {
    let flags = "--stages 0,3 --shapes 1x1x17x64,1x2:1x9x64 --families normal,large";
    let (stages, mut plan) = planned(flags, BackendKind::Emulated);
    // As on a GPU, whose place the emulator takes.
    plan.cases
        .iter_mut()
        .for_each(|case| case.mode = Mode::Both);
    let blank = || {
        testing::emulated()
            .without(|_| true)
            .changed(|session| session.stages = builds(&stages))
    };
    let run = |in_flight, mut run: Run| {
        let mut told = Told::default();
        let executor = Executor {
            in_flight,
            ..Executor::new(&plan, &stages)
        };
        executor.run(&mut run, &mut told).unwrap();
        (run, told)
    };
    let ((alone, told_alone), (together, told_together)) = (run(1, blank()), run(5, blank()));
    assert_eq!(alone, together);
    // Green cases are context; a row per variant sums them up, and the shapes' names are explained.
    let run = &alone;
    assert_eq!(run.cases().count(), plan.cases.len());
    for case in run.cases() {
        assert!(
            case.failed().next().is_none() && case.verdicts[&GateId::B1].verdict == Verdict::Pass,
            "{case:?}"
        );
    }
    // Each on its own inputs, by the reference for its own type of P.
    for case in &plan.cases {
        let Source::Seeded { family, .. } = case.source else {
            panic!("no file is given")
        };
        let (id, variant) = (case.subject.stage(), case.subject.name());
        let outcome = check(
            loaded(&stages, id),
            variant,
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
    assert_eq!(
        run.table
            .rows()
            .filter(|row| row.place() == Place::All)
            .map(|row| row.value(Metric::Cases).unwrap())
            .sum::<f64>(),
        plan.cases.len() as f64
    );
    assert_eq!(told_alone.started, told_together.started);
    assert_eq!(
        told_alone.recorded,
        (1..=plan.cases.len()).collect::<Vec<_>>()
    );
    assert_eq!(told_alone.recorded, told_together.recorded);
}

#[test]
fn a_case_without_memory_ends_the_run_and_is_no_row() {
    let (_, plan) = planned("--quick", BackendKind::Emulated);
    let (mut run, mut told) = (testing::emulated().without(|_| true), Told::default());
    let outcome = Err(NoOutput::NoMemory("rows far apart: 280 GiB".into()));
    let error = keep(vec![(&plan.cases[0], outcome)], &mut run, &mut told).unwrap_err();
    assert!(matches!(error, ExecuteError::NoMemory { .. }), "{error}");
    let says = error.to_string();
    assert!(says.contains("rows far apart: 280 GiB; "), "{says}");
    assert_eq!((run.cases().count(), told.recorded), (0, vec![]));
}

#[test]
fn what_finished_behind_a_case_without_memory_is_kept() {
    let (_, plan) = planned("--quick", BackendKind::Emulated);
    let (mut run, mut told) = (testing::emulated().without(|_| true), Told::default());
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
    let error = keep(judged, &mut run, &mut told).unwrap_err();
    assert!(error.to_string().contains("first; "), "{error}");
    assert_eq!((run.cases().count(), told.recorded), (3, vec![1, 2, 3]));
}

#[test]
fn what_had_ended_is_summed_up_where_the_run_stops() {
    let flags = "--stages 0 --shapes 1x1x17x64 --dtypes f16 --masks full";
    let (stages, plan) = planned(flags, BackendKind::Emulated);
    let mut run = testing::emulated()
        .without(|_| true)
        .changed(|session| session.stages = builds(&stages));
    let executor = Executor {
        in_flight: 2,
        ..Executor::new(&plan, &stages)
    };
    assert!(executor.run(&mut run, &mut stops()).is_err());
    assert_eq!(run.cases().count(), 2);
    assert_eq!(
        run.table
            .rows()
            .filter(|row| row.place() == Place::All)
            .count(),
        2
    );
}

#[test]
fn a_traced_case_runs_plain_under_every_schedule() {
    for (mode, plain, traced) in [
        (Mode::Traced, 3, 3),
        (Mode::TracedOnce, 3, 1),
        (Mode::Plain, 1, 0),
        (Mode::Both, 1, 0),
    ] {
        let Target::Emulated {
            schedules,
            traced: of,
            ..
        } = emulated(mode)
        else {
            panic!("{mode:?}")
        };
        assert_eq!((schedules.len(), of.len()), (plain, traced), "{mode:?}");
    }
}

#[test]
fn nothing_is_launched_on_a_gpu_that_is_lost() {
    let failed = |fatal| NoOutput::Failed {
        reason: "illegal address".into(),
        fatal,
    };
    let launch = |_: usize, case: &i32| match case {
        0 => Ok(*case),
        1 => Err(failed(false)),
        _ => Err(failed(true)),
    };
    let shown = |cases: &[i32]| {
        until_lost(cases, launch)
            .iter()
            .map(Result::is_ok)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        shown(&[0, 1, 0, 2, 0, 2]),
        [true, false, true, false],
        "the failure that loses it is the last result"
    );
    assert_eq!(shown(&[0, 1]), [true, false]);
}

#[test]
fn a_row_that_one_backend_alone_gets_wrong_fails_b1_in_every_family() {
    let stages = stages::load().unwrap();
    for dtype in Dtype::ALL {
        let problem = problem("1x2x18:5x64", dtype);
        let variant_of = |stage: &LoadedStage| stage.info().default_variant;
        let takes = |stage: &&LoadedStage| stage.prepare(variant_of(stage), &problem).is_ok();
        let stage = stages.iter().find(takes).unwrap();
        let variant = variant_of(stage);
        for family in Family::for_dtype(dtype) {
            let inputs = Inputs::generate(&problem, family, 0);
            let target = Target::Emulated {
                schedules: &tier0::SCHEDULES[1..2],
                traced: &[],
                suppress: None,
            };
            let output = check(stage, variant, &problem, family, target)
                .unwrap()
                .output;
            let staged = Arc::new(StagedInputs::new(&inputs, Some(family)));
            let judge = |wrong: &dyn Fn(f32) -> f32| {
                let mut output = output.clone();
                // Row 16 of head 1; the zero-head family has its zeros in V's head 0.
                output[34 * 64..35 * 64]
                    .iter_mut()
                    .for_each(|element| *element = wrong(*element));
                both_backends(stage, variant, &staged, &output).unwrap()
            };
            let is_zero = output[34 * 64..35 * 64]
                .iter()
                .all(|element| *element == 0.0);
            assert!(!is_zero, "{dtype} {family}: a fault would change nothing");
            assert_eq!(
                judge(&|element| element).verdict,
                Verdict::Pass,
                "{dtype} {family}"
            );
            // P of huge in bf16 is rounded by 0.4 % here and there.
            let part = match (dtype, family) {
                (Dtype::Bf16, Family::Huge) => 0.015,
                _ => 0.01,
            };
            let wrong: [&dyn Fn(f32) -> f32; 4] = [
                &|x| (1.0 + part) * x,
                &|x| (1.0 - part) * x,
                &|_| 0.0,
                &|_| f32::NAN,
            ];
            for fault in wrong {
                let result = judge(fault);
                assert_eq!(
                    result.verdict,
                    Verdict::Fail,
                    "{dtype} {family}: {}",
                    result.reason
                );
                assert!(
                    result.reason.starts_with("row [0, 1, 16] differs"),
                    "{}",
                    result.reason
                );
            }
        }
    }
    let inputs = Inputs::generate(&problem("1x1x5x64", Dtype::F16), Family::Normal, 0);
    let staged = Arc::new(StagedInputs::new(&inputs, None));
    let stage = &stages[0];
    let found = both_backends(stage, stage.info().default_variant, &staged, &[]).unwrap();
    assert_eq!(found.verdict, Verdict::NoData);
}

/// What is done to the outputs that timing leaves.
type Spoils = fn(&mut Vec<RotatedOutput>);

/// A GPU that is made up: kernels run on the emulator, and what they leave is then spoilt.
struct Made {
    info: DeviceInfo,
    us: f64,
    /// Of the variant of this name.
    spoils: (&'static str, Spoils),
    timed: RefCell<Vec<String>>,
    /// Of each arm that was timed alone.
    warm_ups: RefCell<Vec<Duration>>,
    /// Whether its references are not the host's.
    disagrees: bool,
    /// What it draws while a kernel runs.
    power_w: Option<f64>,
}

/// The power limit of [`Made`], in watts.
const LIMIT_W: f64 = 700.0;

/// Arms that take as long as in their bursts, and a tenth longer once they are hot; on a clock that
/// is made up.
struct MadeUp<'a> {
    made: &'a Made,
    us: &'a [f64],
    now: Duration,
}

impl Stand for MadeUp<'_> {
    type Error = CudaError;

    fn elapsed(&self) -> Duration {
        self.now
    }

    fn chunk(&mut self, arm: usize) -> Result<Chunk, CudaError> {
        let is_hot = self.now.subsec_millis() >= 500;
        let launch_us = if is_hot { 1.1 } else { 1.0 } * self.us[arm];
        let launches = (CHUNK.as_secs_f64() * 1e6 / launch_us).round();
        self.now += CHUNK;
        Ok(Chunk {
            us: launches * launch_us,
            launches: launches as usize,
            reading: self.made.reading(),
        })
    }

    fn energy_mj(&self) -> Option<f64> {
        Some(1e3 * self.made.power_w? * self.now.as_secs_f64())
    }
}

const HONEST: (&str, Spoils) = ("none", |_| ());

/// And the gate that says so.
const SPOILT: [(GateId, Spoils); 6] = [
    (GateId::C1, |of| all(&mut of[1].execution.output, 0xff)),
    (GateId::C2, |of| {
        of[1].execution.output = of[0].execution.output.clone()
    }),
    (GateId::C5, |of| {
        let mut other = of[1].clone();
        let elements = other.execution.output.len() / 2;
        other.execution.output[elements] ^= 1;
        of.push(other);
    }),
    (GateId::C6, |of| of[0].execution.output[0] ^= 1),
    (GateId::C6, |of| of[1].execution.output[0] ^= 1),
    (GateId::C6, |of| of[1].execution.inputs[2][0] ^= 1),
];

const NOT_LAUNCHED: Spoils = |of| of.clear();

fn all(bytes: &mut [u8], byte: u8) {
    bytes.iter_mut().for_each(|of| *of = byte);
}

impl Made {
    fn new(us: f64, spoils: (&'static str, Spoils)) -> Self {
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
            spoils,
            timed: RefCell::default(),
            warm_ups: RefCell::default(),
            disagrees: false,
            power_w: Some(300.0),
        }
    }

    fn drawing(self, power_w: Option<f64>) -> Self {
        Self { power_w, ..self }
    }

    fn reading(&self) -> Reading {
        Reading {
            power_w: self.power_w,
            power_limit_w: Some(LIMIT_W),
            ..Reading::default()
        }
    }

    fn sustained(&self, us: &[f64]) -> Option<Vec<Sustained>> {
        let mut arms = MadeUp {
            made: self,
            us,
            now: Duration::ZERO,
        };
        sustain_at_limit([&self.reading()], &mut arms, us.len()).unwrap()
    }

    fn outputs(&self, prepared: &Prepared<'_>, pool: &InputPool) -> Vec<RotatedOutput> {
        let of_input = |(input, staged): (usize, &Staged)| RotatedOutput {
            input,
            buffers: 2,
            execution: emulator::execute(prepared, staged, tier0::SCHEDULES[0], None).unwrap(),
        };
        let name = &prepared.kernel.variant;
        self.timed.borrow_mut().push(name.clone());
        let contents = pool.contents().iter().enumerate();
        // What would take the emulator long leaves nothing.
        let small = contents.filter(|(_, of)| of.problem.scores() <= SMALL_SCORES);
        let mut outputs = small.map(of_input).collect();
        if name == self.spoils.0 {
            (self.spoils.1)(&mut outputs);
        }
        outputs
    }
}

impl Timer for Made {
    fn info(&self) -> &DeviceInfo {
        &self.info
    }

    fn pool(&self, contents: Vec<Staged>, is_cold: bool) -> Result<Rc<InputPool>, CudaError> {
        InputPool::on_host(contents, is_cold, self.info.l2_bytes).map(Rc::new)
    }

    fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        let host = reference(inputs, p)?;
        let mut found = host.clone();
        if self.disagrees {
            found.output[0] += 1e-6;
        }
        agree(&inputs.problem, &host, &found)?;
        Ok(found)
    }

    fn zero_us(&self, _: &TimingPlan) -> Result<f64, CudaError> {
        Ok(0.6)
    }

    fn time(
        &self,
        (_, prepared): Kernel<'_>,
        pool: &Rc<InputPool>,
        plan: &TimingPlan,
    ) -> Result<Timed, CudaError> {
        let has_claims = pool.contents()[0].problem.has_claims();
        assert_eq!(plan.samples, if has_claims { 500 } else { 100 });
        self.warm_ups.borrow_mut().push(plan.warm_up);
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
            outputs: self.outputs(prepared, pool),
        })
    }

    fn time_pair(
        &self,
        base: Kernel<'_>,
        new: Kernel<'_>,
        pool: &Rc<InputPool>,
        _: &TimingPlan,
    ) -> Result<TimedPair, CudaError> {
        let of = |base: &[f64], new: &[f64]| Comparison::new(base, new).unwrap();
        let (comparison, sustained) = match self.sustained(&[3.0 * self.us, self.us]) {
            None => (of(&samples(2.0 * self.us), &samples(self.us)), None),
            Some(arms) => (of(&arms[0].us, &arms[1].us), Some(arms[1].load)),
        };
        Ok(TimedPair {
            comparison,
            sustained,
            base_outputs: self.outputs(base.1, pool),
            new_outputs: self.outputs(new.1, pool),
        })
    }

    fn rank(
        &self,
        kernels: &[Kernel<'_>],
        pool: &Rc<InputPool>,
        plan: &TimingPlan,
    ) -> Result<Vec<Result<Ranked, CudaError>>, CudaError> {
        assert!(plan.settling < TimingPlan::default().settling);
        let ranked = kernels.iter().map(|(stage, prepared)| {
            let outputs = self.outputs(prepared, pool);
            if outputs.is_empty() {
                let stage = stage.info().id.to_string();
                return Err(CudaError::NotBuilt { stage });
            }
            let us = self.us;
            Ok(Ranked { us, outputs })
        });
        Ok(ranked.collect())
    }
}

/// Whatever fails on the way; what had ended is kept.
#[test]
fn every_green_variant_is_timed_on_random_problems_and_its_outputs_judged() {
    let (stages, mut plan) = planned(
        "--stages 0 --random-problems 2 --dtypes f16",
        BackendKind::Cuda,
    );
    assert_eq!((plan.draws.len(), plan.timings.len()), (2, 0));
    // The emulator computes these at once.
    plan.draws = ["1x1x17x64", "1x2:1x9x64"]
        .map(|shape| problem(shape, Dtype::F16))
        .into();
    let times = |spoils, mut told: Told| {
        let mut run = judged(None);
        let device = Made::new(20.0, ("wmma-qk-32x64", spoils));
        let ended = Executor::new(&plan, &stages).draws(&device, &mut run, &mut told);
        let rows = run.table.random_times().map(|row| {
            let us = row.value(Metric::P50);
            let gates = distinct(row.failed().map(|(gate, _)| gate));
            let number = row.value(Metric::Draw).unwrap();
            format!("{} {} {number} {us:?} {gates:?}", row.subject, row.place())
        });
        format!("{}\n{}\n", ended.is_ok(), joined(rows, "\n"))
    };
    let found = [HONEST.1, SPOILT[3].1, NOT_LAUNCHED].map(|spoils| times(spoils, Told::default()));
    // One that is not launched has no time, and the others have.
    insta::assert_snapshot!(found.concat() + &times(HONEST.1, stops()), @"
    true
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/scalar-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    true
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/scalar-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 Some(20.0) [C6]
    stage0-scalar/wmma-qk-32x64 1x2:1x9x64 f16 full 1 Some(20.0) [C6]
    true
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/scalar-32x64 1x2:1x9x64 f16 full 1 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 None [C1]
    stage0-scalar/wmma-qk-32x64 1x2:1x9x64 f16 full 1 None [C1]
    false
    stage0-scalar/scalar-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    stage0-scalar/wmma-qk-32x64 1x1x17x64 f16 full 0 Some(20.0) []
    ");
}

/// Decode's keys, and what is asked for, come from device memory: more of them than the cache
/// holds, at addresses of their own.
#[test]
fn what_is_decode_or_cold_is_timed_from_device_memory() {
    let device = Made::new(10.0, HONEST);
    let of = |shape: &str, is_cold| {
        let problem = problem(shape, Dtype::F16);
        let timed = TimedProblem::with_inputs(&device, &problem, is_cold, |inputs| inputs).unwrap();
        let rotation = timed.pool.rotation();
        (rotation.sets, rotation.state, timed.inputs.len())
    };
    assert_eq!(of("mission", false), (4, CacheState::Warm, 2));
    assert_eq!(of("mission", true), (128, CacheState::Cold, 2));
    assert_eq!(of("decode_1k", false), (6, CacheState::Cold, 1));
}

/// The gates that a row fails, with their reasons.
fn failed(row: &Row) -> Vec<(GateId, &str)> {
    let failed = row.failed();
    failed
        .map(|(gate, judged)| (gate, &*judged.reason))
        .collect()
}

/// Both sides of a claim, ours and the base of the same preset, and each stage's best with that of
/// the one before.
#[test]
fn a_run_interleaves_what_claims_compare_and_neighbouring_stages() {
    let fast = "stage0-scalar/scalar-16x64";
    let run = testing::scenario::run(
        "timed 32 20 25; claims 1 0; variant scalar scalar-16x64; scalar-16x64 mission gpu: p50 28",
    );
    let pairs = interleaved(&View::alone(&run));
    let subjects = pairs
        .iter()
        .map(|pair| (pair.new.as_str(), pair.base.as_str()));
    let expected = [(WMMA, fast), (WMMA, SCALAR), (testing::CPASYNC, WMMA)];
    assert_eq!(subjects.collect::<Vec<_>>(), expected);
    // With one preset a claim's two pairs are the same.
    let once = testing::timed(testing::US);
    assert_eq!(interleaved(&View::alone(&once)).len(), 2);
}

#[test]
fn what_is_green_alone_is_timed_and_judged_again_in_the_timed_buffers() {
    let flags = "--stages 0 --shapes 1x1x17x64 --dtypes f16 --masks full";
    let (stages, plan) = planned(flags, BackendKind::Cuda);
    let executor = Executor::new(&plan, &stages);
    let timed = |device: &Made, red: Option<GateId>| {
        let mut run = judged(red);
        let timings = green(&View::alone(&run), plan.timings.clone());
        let (mut benches, mut told) = (Benches::new(device, true), Told::default());
        executor
            .time(&mut benches, 0.6, &timings, 0, &mut run, &mut told)
            .unwrap();
        run.table.retain(|row| row.place() != Place::All);
        run
    };
    let honest = Made::new(20.0, HONEST);
    let run = timed(&honest, None);
    let mut times = run
        .table
        .rows()
        .map(|row| (failed(row), row.value(Metric::P50)));
    assert!(
        times.all(|found| found == (vec![], Some(20.02))),
        "{:?}",
        run.table
    );
    assert!(honest.timed.borrow().contains(&"wmma-qk-32x64".to_string()));
    for red in NEEDED {
        let device = Made::new(20.0, HONEST);
        timed(&device, Some(red));
        let timed = device.timed.borrow();
        assert_eq!(*timed, ["scalar-32x64"], "the other fails {red}");
    }
    for (gate, spoils) in SPOILT {
        let run = timed(&Made::new(20.0, ("wmma-qk-32x64", spoils)), None);
        for row in run.table.rows() {
            let is_spoilt = row.subject.as_str() == WMMA;
            let has_failed = failed(row).iter().any(|(of, _)| *of == gate);
            assert_eq!(has_failed, is_spoilt, "{gate}: {row:?}");
            assert_eq!(row.says(GateId::C4), None);
        }
    }
    let impossible = timed(&Made::new(0.6, HONEST), None);
    let fails_l1 = |row: &Row| failed(row)[0].0 == GateId::L1;
    assert!(impossible.table.rows().all(fails_l1), "{impossible:?}");
}

/// The row of a variant that was timed on a GPU with this power.
fn timed_at(power_w: Option<f64>) -> Row {
    let flags = "--stages 0 --variants scalar-32x64 --shapes mission --dtypes f16 --masks full";
    let (stages, plan) = planned(flags, BackendKind::Cuda);
    let device = Made::new(20.0, HONEST).drawing(power_w);
    let (mut benches, mut told) = (Benches::new(&device, true), Told::default());
    let mut run = judged(None);
    run.table.retain(|_| false);
    Executor::new(&plan, &stages)
        .time(&mut benches, 0.6, &plan.timings, 0, &mut run, &mut told)
        .unwrap();
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

/// [`Made`] counts samples.
#[test]
fn the_problem_of_the_claims_is_timed_with_all_samples() {
    let flags = "--stages 0 --shapes mission --dtypes f16 --masks full";
    let (stages, plan) = planned(flags, BackendKind::Cuda);
    let device = Made::new(20.0, HONEST);
    let (mut benches, mut told) = (Benches::new(&device, true), Told::default());
    Executor::new(&plan, &stages)
        .time(
            &mut benches,
            0.6,
            &plan.timings,
            0,
            &mut judged(None),
            &mut told,
        )
        .unwrap();
    assert!(!plan.timings.is_empty());
    assert_eq!(told.kinds, vec!["timing"; plan.timings.len()]);
}

#[test]
fn only_the_first_of_several_arms_has_the_whole_warm_up() {
    let flags = "--stages 0 --shapes 1x1x17x64 --dtypes f16 --masks full";
    let (stages, plan) = planned(flags, BackendKind::Cuda);
    let device = Made::new(20.0, HONEST);
    let (mut benches, mut told) = (Benches::new(&device, true), Told::default());
    let (executor, mut run) = (Executor::new(&plan, &stages), judged(None));
    executor
        .time(&mut benches, 0.6, &plan.timings, 0, &mut run, &mut told)
        .unwrap();
    let warm_ups = device.warm_ups.borrow();
    let (first, others) = warm_ups.split_first().unwrap();
    assert_eq!(*first, TimingPlan::default().warm_up);
    assert!(!others.is_empty());
    assert!(others.iter().all(|of| *of == WARM_UP_AFTER_ANOTHER));
}

/// What a run on a GPU does, the emulator in its place: each kind of step once for those in a row,
/// with the stage.
fn order(plan: &Plan, stages: &[LoadedStage], device: &Made) -> (Vec<String>, Run) {
    let mut told = Told::default();
    let mut run = testing::timed(testing::US)
        .without(|_| true)
        .changed(|session| session.stages = builds(stages));
    let executor = Executor {
        timer: Some(device),
        ..Executor::new(plan, stages)
    };
    executor.run(&mut run, &mut told).unwrap();
    let steps = told.kinds.iter().zip(&told.started).map(|(kind, label)| {
        let stage = label.split([' ', '/']).nth(3).unwrap();
        format!("{kind} {stage}")
    });
    let mut steps: Vec<String> = steps.collect();
    steps.dedup();
    (steps, run)
}

#[test]
fn a_stage_is_timed_right_after_its_own_gates_and_late_cases_come_after_all_times() {
    let flags = "--full --variants wmma-qk-32x64,cpasync-32x64 --dtypes f16";
    let (stages, mut plan) = planned(flags, BackendKind::Cuda);
    let is_last = |case: &PlannedCase| case.problem == problem("1x1x65:5x64", Dtype::F16);
    assert!(plan.cases.iter().any(|case| case.is_late));
    // What the emulator computes at once.
    plan.cases.retain(|case| {
        let is_first = case.problem.shape == problem("1x1x17x128", Dtype::F16).shape;
        case.problem.scores() <= 500 && (is_first || is_last(case))
    });
    plan.counted.clear();
    plan.timings = [
        "stage0-scalar/wmma-qk-32x64",
        "stage1-cpasync/cpasync-32x64",
    ]
    .map(|subject| (problem("1x1x17x64", Dtype::F16), subject.into()))
    .into();
    for case in &mut plan.cases {
        // Under several schedules, as on a GPU in several launches: else C5 has no data.
        case.mode = Mode::Traced;
        case.is_late = case.problem.shape != problem("1x1x17x128", Dtype::F16).shape;
    }
    let late = plan.cases[0].clone();
    plan.cases.extend(
        [
            "stage0-scalar/wmma-qk-32x64",
            "stage1-cpasync/cpasync-32x64",
        ]
        .map(|subject| PlannedCase {
            subject: subject.into(),
            problem: problem("1x1x5x64", Dtype::F16),
            is_late: true,
            ..late.clone()
        }),
    );
    let device = Made::new(20.0, HONEST);
    let (steps, run) = order(&plan, &stages, &device);
    let each = ["stage0-scalar", "stage1-cpasync"]
        .map(|stage| [format!("case {stage}"), format!("timing {stage}")]);
    let late = ["case stage0-scalar", "case stage1-cpasync"].map(String::from);
    assert_eq!(steps, [each.concat(), late.to_vec()].concat());
    assert_eq!(run.cases().count(), plan.cases.len());
    // A summary is of all cases, the late ones too.
    let whole = run.table.rows().filter(|row| row.place() == Place::All);
    assert_eq!(
        whole
            .filter_map(|row| row.value(Metric::Cases))
            .sum::<f64>(),
        plan.cases.len() as f64
    );
}

#[test]
fn of_given_problems_the_first_is_timed_before_the_second_is_made() {
    let flags = "--variants wmma-qk-32x64,cpasync-32x64 --shapes 1x1x17x64,1x1x9x64 --dtypes f16 --masks full";
    let (stages, mut plan) = planned(flags, BackendKind::Cuda);
    plan.cases
        .iter_mut()
        .for_each(|case| case.mode = Mode::Traced);
    let device = Made::new(20.0, HONEST);
    let (steps, _) = order(&plan, &stages, &device);
    let of_each = ["stage0-scalar", "stage1-cpasync"]
        .map(|stage| [format!("case {stage}"), format!("timing {stage}")])
        .concat();
    assert_eq!(steps, [of_each.clone(), of_each].concat());
}

/// A GPU whose references are not the host's judges nothing: the run ends with what differs, and
/// keeps what finished before.
#[test]
fn a_reference_that_is_not_the_hosts_ends_a_run() {
    let flags = "--stages 0 --shapes 1x1x17x64 --dtypes f16 --masks full";
    let (stages, plan) = planned(flags, BackendKind::Emulated);
    let device = Made {
        disagrees: true,
        ..Made::new(20.0, HONEST)
    };
    let executor = Executor {
        timer: Some(&device),
        ..Executor::new(&plan, &stages)
    };
    let mut run = judged(None);
    let view = run.table.rows().count();
    let error = executor.run(&mut run, &mut Told::default()).unwrap_err();
    let ExecuteError::Reference { case, source } = error else {
        panic!("{error}")
    };
    assert_eq!(case, "1x1x17x64 f16 full normal:0");
    assert!(
        matches!(source, ReferenceError::Disagreement(_)),
        "{source}"
    );
    assert_eq!(run.table.rows().count(), view);
}

#[test]
fn both_arms_of_a_pair_are_judged_in_the_timed_buffers() {
    let (stages, plan) = planned("", BackendKind::Emulated);
    let executor = Executor::new(&plan, &stages);
    let problem = problem("1x1x17x64", Dtype::F16);
    let paired = |us, spoils| {
        let device = Made::new(us, spoils);
        let mut bench = TimedProblem::new(&device, &problem).unwrap();
        let row = executor.pair(&device, 0.6, &mut bench, &SCALAR.into(), &WMMA.into());
        (row.unwrap().expect("both support it"), device.timed.take())
    };
    let (row, timed) = paired(20.0, HONEST);
    assert_eq!(timed, ["scalar-32x64", "wmma-qk-32x64"]);
    assert_eq!(
        (row.subject.as_str(), row.base()),
        (WMMA, Some(&SCALAR.into()))
    );
    assert_eq!(
        (failed(&row), row.value(Metric::SpeedupP50)),
        (vec![], Some(2.0))
    );
    for (side, name) in [(SCALAR, "scalar-32x64"), (WMMA, "wmma-qk-32x64")] {
        for (gate, spoils) in SPOILT {
            let (row, _) = paired(20.0, (name, spoils));
            let says = format!("{side} as interleaved: ");
            let mut failed = failed(&row).into_iter();
            assert!(
                failed.any(|(of, reason)| of == gate && reason.starts_with(&says)),
                "{gate} of {side}: {row:?}"
            );
        }
    }
    assert_eq!(failed(&paired(0.6, HONEST).0)[0].0, GateId::L1);
}

/// The base takes twice as long in its bursts, and thrice in turns of a second.
#[test]
fn a_pair_is_of_the_regime_that_its_power_asks_for() {
    let (stages, plan) = planned("", BackendKind::Emulated);
    let executor = Executor::new(&plan, &stages);
    let problem = problem("1x1x17x64", Dtype::F16);
    for (power_w, conditions, speedup, energy_mj) in [
        (Some(600.0), None, 2.0, None),
        (None, None, 2.0, None),
        (Some(700.0), Some("warm L2, sustained"), 3.0, Some(15.4)),
    ] {
        let device = Made::new(20.0, HONEST).drawing(power_w);
        let mut bench = TimedProblem::new(&device, &problem).unwrap();
        let row = executor.pair(&device, 0.6, &mut bench, &SCALAR.into(), &WMMA.into());
        let row = row.unwrap().expect("both support it").rounded();
        assert_eq!(row.conditions.as_deref(), conditions);
        assert_eq!(row.value(Metric::SpeedupP50), Some(speedup), "{power_w:?}");
        assert_eq!(row.value(Metric::EnergyMj), energy_mj, "{power_w:?}");
    }
}
