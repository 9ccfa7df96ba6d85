//! `compare launch`, hidden: one plain launch per variant and problem, checked and not timed. It is what runs under a
//! profiler or a sanitizer, so it makes no other launch, and it says what it did in a file, since those tools write to
//! both standard streams.

use super::process::{self, Ended};
use crate::answer::Answer;
use crate::judge::list::joined;
use crate::judge::verdict::Exit;
use crate::measure::builds::loaded;
use crate::stages::Ladder;
use crate::table::{CasePlace, Kind, ProblemPlace, Row, Subject};
use anyhow::Context;
use clap::Args;
use common::check::{self, Launched, NoOutput, Outcome, StagedInputs};
use common::device::BackendKind;
use common::device::cuda::CudaDevice;
use common::inputs::{Family, Inputs};
use common::limits::DeviceLimits;
use common::problem::Problem;
use common::reference::{Probability, Reference, reference};
use common::stage::{LoadedStage, Prepared};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
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

/// What a process of this program is to launch: every variant on every problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Launches {
    pub variants: Vec<Subject>,
    pub problems: Vec<Problem>,
    pub device: Option<DeviceLimits>,
    /// How long a launch may take, in seconds; tools slow kernels down.
    pub watchdog: u64,
}

pub struct Made {
    pub ended: Ended,
    /// What the process and its tool printed, and where that is.
    pub printed: String,
    pub log: PathBuf,
    pub rows: Vec<Row>,
}

impl Launches {
    /// Makes them in a process under `tool`. Files are called `label` in `work`; `look` is told how many launches
    /// have ended.
    pub fn make(
        &self,
        mut tool: Command,
        (work, label): (&Path, &str),
        limit: Duration,
        mut look: impl FnMut(usize),
    ) -> anyhow::Result<Made> {
        let [job, log, done] =
            ["job", "log", "launches"].map(|kind| work.join(format!("{label}.{kind}")));
        std::fs::write(&job, serde_json::to_vec(self)?)?;
        // Launches are appended: those of an earlier try are not of this one.
        let _ = std::fs::remove_file(&done);
        let program = std::env::current_exe()?;
        tool.arg(program).arg("launch").args([&job, &done]);
        let ended = process::run(tool, &log, limit, || look(results(&done).len()))?;
        Ok(Made {
            ended,
            printed: String::from_utf8_lossy(&std::fs::read(&log)?).into_owned(),
            log,
            rows: results(&done),
        })
    }
}

impl Made {
    /// The first launch that failed or whose output is wrong.
    pub fn red(&self) -> Option<String> {
        self.rows.iter().find_map(failure)
    }
}

/// Problem by problem and variant by variant. Fails unless every launch that the stages take ended and passed its gates.
pub fn launch(args: &LaunchArgs) -> anyhow::Result<Answer> {
    let job = std::fs::read(&args.job);
    let job = job.with_context(|| format!("cannot read {}", args.job.display()))?;
    let job: Launches = serde_json::from_slice(&job)?;
    let mut ladder = Ladder::open()?;
    ladder.limit(job.device)?;
    let mut device = ladder.gpu.map_err(anyhow::Error::msg)?;
    device.set_watchdog(Duration::from_secs(job.watchdog));
    let mut exit = Exit::Pass;
    for problem in &job.problems {
        let inputs = Inputs::generate(problem, Family::Normal, 0);
        let staged = Arc::new(StagedInputs::new(&inputs, Some(Family::Normal)));
        let mut references: HashMap<Probability, Reference> = HashMap::new();
        for subject in &job.variants {
            let stage = loaded(&ladder.stages, subject.stage());
            let outcome = match stage.prepare(subject.name(), problem) {
                Err(unsupported) => Err(unsupported.into()),
                Ok(prepared) => {
                    let probability = prepared.kernel.probability;
                    let reference = references.entry(probability).or_insert_with(|| {
                        reference(&inputs, probability).expect("generated inputs are finite")
                    });
                    once(&device, stage, &prepared, &staged, reference)
                }
            };
            let case = CasePlace {
                problem: ProblemPlace::of(problem),
                input: format!("{}:0", Family::Normal),
            };
            let row = Row::new(subject, Kind::Case(BackendKind::Cuda, case)).outcome(&outcome);
            append(&args.results, &row)?;
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

/// One launch with packed tensors, as it is timed and counted, and the gates on what it leaves.
fn once(
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

fn append(path: &Path, row: &Row) -> anyhow::Result<()> {
    let line = serde_json::to_string(row)? + "\n";
    let file = OpenOptions::new().create(true).append(true).open(path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// What a launch process wrote so far; nothing where it wrote nothing. A line that was cut off ends the list.
fn results(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map_while(|line| serde_json::from_str(line).ok())
        .collect()
}

pub fn is_supported(row: &&Row) -> bool {
    !row.verdicts.is_empty()
}

/// What is wrong with a launch, if anything is: `stage0-scalar/scalar-32x64 mission f16 full normal:0: C2: …`.
fn failure(row: &Row) -> Option<String> {
    row.failure()?;
    Some(format!(
        "{} {}: {}",
        row.subject,
        row.place(),
        joined(row.failures(), "; ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{SCALAR, case};
    use common::problem::{Dtype, Mask};
    use common::verdict::GateId;

    #[test]
    fn a_job_is_read_back_as_it_was_written() {
        let place = ProblemPlace::new("1x2:1x33:65x64", Dtype::E4m3, Mask::Causal);
        let problem = place.problem().unwrap();
        let job = Launches {
            variants: vec![SCALAR.into()],
            problems: vec![problem],
            device: Some("sm_89".parse().unwrap()),
            watchdog: 60,
        };
        let text = serde_json::to_string(&job).unwrap();
        assert_eq!(serde_json::from_str::<Launches>(&text).unwrap(), job);
    }

    #[test]
    fn results_are_read_back_up_to_the_line_that_was_cut_off() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        assert!(results(&path).is_empty());
        let result = case(SCALAR, BackendKind::Cuda, None);
        append(&path, &result).unwrap();
        append(&path, &result).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() - 9]).unwrap();
        assert_eq!(results(&path), [result]);
    }

    #[test]
    fn what_follows_a_line_that_was_cut_off_is_not_read() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("results");
        std::fs::write(&path, "{\"subject\":\n").unwrap();
        append(&path, &case(SCALAR, BackendKind::Cuda, None)).unwrap();
        assert!(results(&path).is_empty());
    }

    #[test]
    fn a_launch_that_is_not_green_is_named_with_its_gate() {
        let red = case(SCALAR, BackendKind::Cuda, Some(GateId::C2));
        assert_eq!(
            failure(&red).as_deref(),
            Some("stage0-scalar/scalar-32x64 mission f16 full normal:0: C2: too large")
        );
        assert_eq!(failure(&case(SCALAR, BackendKind::Cuda, None)), None);
    }
}
