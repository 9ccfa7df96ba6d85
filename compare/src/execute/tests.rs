use super::*;
use crate::builds::builds;
use crate::plan::plan;
use crate::registry;
use crate::testing;
use clap::Parser;
use common::device::BackendKind;

/// What an executor tells, in its order.
#[derive(Default)]
struct Told {
    started: Vec<String>,
    outputs: Vec<(CaseResult, Vec<f16>)>,
    recorded: Vec<usize>,
}

impl Sink for Told {
    fn starts(&mut self, _: &'static str, label: &str, done: usize, total: usize) {
        self.started.push(format!("{done} of {total}: {label}"));
    }

    fn output(&mut self, result: &CaseResult, output: &[f16]) -> Result<(), SinkError> {
        self.outputs.push((result.clone(), output.to_vec()));
        Ok(())
    }

    fn grown(&mut self, record: &mut Record) -> Result<(), SinkError> {
        self.recorded.push(record.correctness.cases.len());
        Ok(())
    }
}

#[test]
fn cases_that_are_judged_together_say_what_they_say_one_by_one() {
    let stages = registry::load().unwrap();
    let builds = builds(&stages, None);
    let arguments =
        ["compare", "--stages", "stage0-scalar", "--shapes", "1x1x17x64,1x2:1x9x64", "--families", "normal,large"];
    let arguments = crate::cli::Cli::parse_from(arguments).run;
    let plan = plan(&builds, &arguments, BackendKind::Emulated, None).unwrap();
    let run = |in_flight| {
        let (mut record, mut told) = (testing::emulated(), Told::default());
        record.correctness.cases.clear();
        let timing = TimingPlan::default();
        let executor = Executor {
            stages: &stages,
            builds: &builds,
            device: None,
            file: None,
            timing,
            samples_elsewhere: 0,
            in_flight,
        };
        executor.run(&plan, &mut record, &mut told).unwrap();
        (record, told)
    };
    let ((alone, told_alone), (together, told_together)) = (run(1), run(5));
    assert_eq!(alone.correctness.cases.len(), plan.cases.len());
    assert!(alone.correctness.cases.iter().all(CaseResult::is_green));
    assert_eq!(alone.correctness, together.correctness);
    assert_eq!(told_alone.started, told_together.started);
    assert_eq!(told_alone.outputs, told_together.outputs);
    assert_eq!(told_alone.recorded, (1..=plan.cases.len()).collect::<Vec<_>>());
    assert_eq!(told_alone.recorded, told_together.recorded);
}

#[test]
fn nothing_is_launched_on_a_gpu_that_is_lost() {
    let failed = |fatal| NoOutput::Failed { reason: "illegal address".into(), fatal };
    let launch = |_: usize, case: &i32| match case {
        0 => Ok(*case),
        1 => Err(failed(false)),
        _ => Err(failed(true)),
    };
    let shown = |cases: &[i32]| until_lost(cases, launch).iter().map(Result::is_ok).collect::<Vec<_>>();
    assert_eq!(shown(&[0, 1, 0, 2, 0, 2]), [true, false, true, false], "the failure that loses it is the last result");
    assert_eq!(shown(&[0, 1]), [true, false]);
}
