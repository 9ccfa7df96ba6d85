use super::*;
use crate::measure::builds::builds;
use crate::measure::plan::plan;
use crate::table::On;
use crate::table::Run;
use crate::{stages, testing};
use clap::Parser;
use common::check::{both_backends, check};
use common::device::BackendKind;
use common::inputs::Family;
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::LoadedStage;
use common::verdict::{GateId, Verdict};

/// What an executor tells, in its order.
#[derive(Default)]
struct Told {
    started: Vec<String>,
    outputs: Vec<(PlannedCase, Vec<f32>)>,
    recorded: Vec<usize>,
}

impl Sink for Told {
    fn starts(&mut self, _: &'static str, label: &str, done: usize, total: usize) {
        self.started.push(format!("{done} of {total}: {label}"));
    }

    fn output(&mut self, case: &PlannedCase, output: &[f32]) -> Result<(), ExecuteError> {
        self.outputs.push((case.clone(), output.to_vec()));
        Ok(())
    }

    fn grown(&mut self, run: &mut Run) -> Result<(), ExecuteError> {
        self.recorded.push(run.cases().count());
        Ok(())
    }
}

#[test]
fn cases_that_are_judged_together_say_what_they_say_one_by_one() {
    let stages = stages::load().unwrap();
    let builds = builds(&stages);
    let arguments = [
        "compare",
        "--stages",
        "stage0-scalar",
        "--shapes",
        "1x1x17x64,1x2:1x9x64",
        "--families",
        "normal,large",
    ];
    let request = crate::cli::Cli::parse_from(arguments).run.request;
    let mut plan = plan(&builds, &request, BackendKind::Emulated).unwrap();
    // As on a GPU, whose place the emulator takes.
    plan.cases
        .iter_mut()
        .for_each(|case| case.mode = Mode::Both);
    let blank = || {
        testing::emulated()
            .without(|_| true)
            .changed(|session| session.stages = builds.clone())
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
    assert_eq!(
        run.table
            .rows()
            .filter(|row| row.on == On::All)
            .map(|row| row.value(Metric::Cases).unwrap())
            .sum::<f64>(),
        plan.cases.len() as f64
    );
    assert_eq!(told_alone.started, told_together.started);
    assert_eq!(told_alone.outputs, told_together.outputs);
    assert_eq!(
        told_alone.recorded,
        (1..=plan.cases.len()).collect::<Vec<_>>()
    );
    assert_eq!(told_alone.recorded, told_together.recorded);
}

#[test]
fn a_case_without_memory_ends_the_run_and_is_no_row() {
    let request = crate::cli::Cli::parse_from(["compare", "--quick"])
        .run
        .request;
    let plan = plan(&testing::ladder(), &request, BackendKind::Emulated).unwrap();
    let (mut run, mut told) = (testing::emulated().without(|_| true), Told::default());
    let outcome = Err(NoOutput::NoMemory("rows far apart: 280 GiB".into()));
    let error = keep(vec![(&plan.cases[0], outcome)], &mut run, &mut told).unwrap_err();
    assert!(matches!(error, ExecuteError::NoMemory { .. }), "{error}");
    let says = error.to_string();
    assert!(says.contains("rows far apart: 280 GiB; "), "{says}");
    assert_eq!((run.cases().count(), told.recorded), (0, vec![]));
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
        let shape = Shape {
            batch: 1,
            heads_q: 2,
            heads_kv: 2,
            seq_q: 18,
            seq_kv: 5,
            head_dim: 64,
        };
        let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
        let variant_of = |stage: &LoadedStage| stage.info().default_variant;
        let takes = |stage: &&LoadedStage| stage.prepare(variant_of(stage), &problem).is_ok();
        let stage = stages.iter().find(takes).unwrap();
        let variant = variant_of(stage);
        for family in Family::for_dtype(dtype) {
            let inputs = Inputs::generate(&problem, family, 0);
            let target = Target::Emulated {
                schedules: &tier0::SCHEDULES[1..2],
                traced: &[],
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
    let shape = Shape::bhsd(1, 1, 5, 64);
    let inputs = Inputs::generate(
        &Problem::new(shape, Dtype::F16, Mask::Full).unwrap(),
        Family::Normal,
        0,
    );
    let staged = Arc::new(StagedInputs::new(&inputs, None));
    let stage = &stages[0];
    let found = both_backends(stage, stage.info().default_variant, &staged, &[]).unwrap();
    assert_eq!(found.verdict, Verdict::NoData);
}
