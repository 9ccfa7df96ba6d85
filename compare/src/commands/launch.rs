//! `compare launch`, hidden: one plain launch per variant and problem, checked and not timed. It is
//! what runs under a profiler or a sanitizer, so it makes no other launch.

use crate::answer::Answer;
use anyhow::Context;
use clap::Args;
use common::check::{self, Launched, NoOutput, Outcome, StagedInputs};
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::inputs::{Family, Inputs};
use common::problem::Problem;
use common::reference::{Probability, Reference, reference};
use common::stage::{LoadedStage, Prepared};
use measure::instrument::child::{Launches, append_result};
use results::builds::loaded;
use results::judge::verdict::Exit;
use results::table::{CasePlace, Kind, ProblemPlace, Row, Subject};
use stages::Ladder;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The arguments of `launch`, which other commands run under a tool.
#[derive(Clone, Debug, Args)]
pub struct LaunchArgs {
    /// What to launch, as JSON
    pub job: PathBuf,
    /// The file that each launch's result is appended to, as a line of JSON
    pub results: PathBuf,
}

/// Launches problem by problem and variant by variant. Fails unless every launch that the stages
/// take ended and passed its gates.
pub fn launch(args: &LaunchArgs) -> anyhow::Result<Answer> {
    let text =
        std::fs::read(&args.job).with_context(|| format!("cannot read {}", args.job.display()))?;
    let job: Launches = serde_json::from_slice(&text)?;
    let mut ladder = Ladder::open()?;
    ladder.limit(job.device)?;
    let mut device = ladder.gpu.map_err(anyhow::Error::msg)?;
    device.set_watchdog(Duration::from_secs(job.watchdog));
    let mut exit = Exit::Pass;
    for problem in &job.problems {
        let mut inputs = ProblemInputs::new(problem);
        for subject in &job.variants {
            let stage = loaded(&ladder.stages, subject.stage());
            let outcome = inputs.launch(&device, stage, subject);
            let case = CasePlace {
                problem: ProblemPlace::of(problem),
                input: format!("{}:0", Family::Normal),
            };
            let row = Row::new(subject, Kind::Case(BackendKind::Cuda, case)).outcome(&outcome);
            append_result(&args.results, &row)?;
            if row.failure().is_some() {
                exit = Exit::Fail;
            }
            if matches!(outcome, Err(NoOutput::Failed { .. })) {
                return Ok(Answer::new(exit, ""));
            }
        }
    }
    Ok(Answer::new(exit, ""))
}

/// The inputs of one problem, and the references for what is computed of them.
struct ProblemInputs {
    problem: Problem,
    inputs: Inputs,
    staged: Arc<StagedInputs>,
    references: HashMap<Probability, Reference>,
}

impl ProblemInputs {
    fn new(problem: &Problem) -> Self {
        let inputs = Inputs::generate(problem, Family::Normal, 0);
        let staged = StagedInputs::new(&inputs, Some(Family::Normal));
        Self {
            problem: *problem,
            inputs,
            staged: Arc::new(staged),
            references: HashMap::new(),
        }
    }

    fn launch(&mut self, device: &CudaDevice, stage: &LoadedStage, subject: &Subject) -> Outcome {
        let prepared = stage.prepare(subject.name(), &self.problem)?;
        let reference = self
            .references
            .entry(prepared.kernel.probability)
            .or_insert_with_key(|probability| {
                reference(&self.inputs, *probability).expect("generated inputs are finite")
            });
        launch_and_judge(device, stage, &prepared, &self.staged, reference)
    }
}

/// Launches once with packed tensors, as is timed and counted, and judges the output.
fn launch_and_judge(
    device: &CudaDevice,
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    staged: &Arc<StagedInputs>,
    reference: &Reference,
) -> Outcome {
    let execution = device.execute(stage, prepared, staged.of_launch(1))?;
    let run = check::Run {
        label: "launch".into(),
        index: 1,
        execution,
    };
    let launched = Launched {
        staged: Arc::clone(staged),
        probability: prepared.kernel.probability,
        runs: vec![run],
        findings: vec![],
    };
    Ok(launched.judge(reference))
}
