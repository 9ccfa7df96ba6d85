//! One case through the correctness gates: lay inputs out, launch, compare, judge.

use crate::device::cuda::{CudaDevice, CudaError};
use crate::device::emulated::{self, Selection};
use crate::device::{Execution, Staged};
use crate::gate::{self, Buffer, Errors, Evidence, Repeat, Role, Traced};
use crate::image::Layout;
use crate::inputs::{Family, Inputs};
use crate::placement::Placement;
use crate::problem::Problem;
use crate::reference::{Probability, Reference, reference};
use crate::stage::{LoadedStage, Prepared, Unsupported};
use crate::verdict::{GateId, GateResult};
use emulator::{Fault, Place, Schedule};
use std::fmt;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Seeded { family: Family, seed: u64 },
    File { name: String },
}

impl Source {
    /// `None` for real tensors.
    pub fn family(&self) -> Option<Family> {
        match self {
            Source::Seeded { family, .. } => Some(*family),
            Source::File { .. } => None,
        }
    }
}

impl fmt::Display for Source {
    /// `normal:0`, or the file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Seeded { family, seed } => write!(f, "{family}:{seed}"),
            Source::File { name } => f.write_str(name),
        }
    }
}

/// Where a case runs, and how often: outputs of all its launches must be bitwise equal (gate C5).
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    Emulated {
        /// At least one; with one alone, C5 has no data.
        schedules: &'a [Schedule],
        /// Of the traced build, for gate H1. If there are any, the plain one also runs on rows beyond 32-bit offsets.
        traced: &'a [Schedule],
        /// Synchronisation that the plain build goes without.
        suppress: Option<&'a Place>,
    },
    Cuda {
        device: &'a CudaDevice,
        /// Launches; at least one.
        launches: usize,
    },
}

#[derive(Clone, Debug)]
pub struct Checked {
    pub errors: Errors,
    pub gates: Vec<GateResult>,
    /// `[batch, heads_q, seq_q, head_dim]`, dense, of the first launch.
    pub output: Vec<f32>,
}

pub type Outcome = Result<Checked, NoOutput>;

/// The gates that fail. A case that has no output fails C1.
pub fn failures(outcome: Outcome) -> Vec<GateResult> {
    match outcome {
        Ok(checked) => checked
            .gates
            .into_iter()
            .filter(GateResult::is_fail)
            .collect(),
        Err(error) => vec![GateResult::fail(GateId::C1, error.to_string())],
    }
}

#[derive(Clone, Debug)]
pub struct StagedInputs {
    family: Option<Family>,
    /// Strided, or as it was placed, and packed: launches alternate.
    layouts: [Staged; 2],
    /// Whether the first of every two launches asks for log-sum-exps, where the kernel writes them.
    lse: bool,
}

impl StagedInputs {
    pub fn new(inputs: &Inputs, family: Option<Family>) -> Self {
        Self {
            family,
            layouts: [Layout::Strided, Layout::Packed].map(|layout| Staged::new(inputs, layout)),
            lse: true,
        }
    }

    /// Q, K, V and the output where a case of [`crate::fuzz`] has them, instead of strided.
    pub fn placed(inputs: &Inputs, family: Family, places: &[Placement; 4], lse: bool) -> Self {
        Self {
            family: Some(family),
            layouts: [
                Staged::placed(inputs, places),
                Staged::new(inputs, Layout::Packed),
            ],
            lse,
        }
    }

    /// The most bytes that one launch leaves on the host until it is judged.
    pub fn launch_bytes(&self) -> usize {
        let bytes = |staged: &Staged| {
            staged.output.bytes.len()
                + staged
                    .inputs
                    .iter()
                    .map(|operand| operand.image.bytes.len())
                    .sum::<usize>()
        };
        self.layouts.iter().map(bytes).max().unwrap_or_default()
    }

    pub fn of_launch(&self, index: usize) -> &Staged {
        &self.layouts[index % 2]
    }
}

/// Why a case has no output to judge.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoOutput {
    /// Not a failure of the variant.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A failure: the launch failed or never ended.
    #[error("{reason}")]
    Failed {
        reason: String,
        /// Whether the GPU is lost.
        fatal: bool,
    },
    /// Not a failure of the variant: the system gives the emulator no more memory or address space.
    #[error("{0}")]
    NoMemory(String),
}

impl NoOutput {
    fn of_fault(what: impl fmt::Display, fault: &Fault) -> Self {
        let reason = format!("{what}: {fault}");
        match fault {
            Fault::NoMemory { .. } => NoOutput::NoMemory(reason),
            _ => NoOutput::Failed {
                reason,
                fatal: false,
            },
        }
    }
}

impl From<CudaError> for NoOutput {
    fn from(error: CudaError) -> Self {
        NoOutput::Failed {
            reason: error.to_string(),
            fatal: error.is_fatal(),
        }
    }
}

/// A case that ran and is not judged yet.
#[derive(Debug)]
pub struct Launched {
    pub staged: Arc<StagedInputs>,
    pub probability: Probability,
    /// At least one.
    pub runs: Vec<Run>,
    /// They take precedence over the gates.
    pub findings: Vec<GateResult>,
}

#[derive(Debug)]
pub struct Run {
    pub label: String,
    /// Which of the staged inputs it ran on.
    pub index: usize,
    pub execution: Execution,
}

/// Judges `variant` on inputs of `family`, seed 0: C1 to C6 and C8, and H1 where it is traced.
pub fn check(
    stage: &LoadedStage,
    variant: &str,
    problem: &Problem,
    family: Family,
    target: Target<'_>,
) -> Outcome {
    let probability = stage.prepare(variant, problem)?.kernel.probability;
    let inputs = Inputs::generate(problem, family, 0);
    let reference = reference(&inputs, probability).expect("generated inputs are finite");
    let staged = Arc::new(StagedInputs::new(&inputs, Some(family)));
    let launched = launch(stage, variant, &staged, target)?;
    Ok(launched.judge(&reference))
}

/// The first launch has strided tensors between NaN (C6), and the numeric gates judge its output; later ones alternate between
/// packed and strided, with and without log-sum-exps, so that C5 judges both. What is traced and clean runs once more on rows
/// far apart.
pub fn launch(
    stage: &LoadedStage,
    variant: &str,
    staged: &Arc<StagedInputs>,
    target: Target<'_>,
) -> Result<Launched, NoOutput> {
    let prepared = stage.prepare(variant, &staged.of_launch(0).problem)?;
    let mut runs = launch_all(stage, &prepared, staged, target)?;
    let mut findings = vec![];
    if let Target::Emulated {
        schedules, traced, ..
    } = target
        && !traced.is_empty()
    {
        let (judged, executions) = judge_hazards(
            &of_launch(&prepared, staged, 0),
            staged.of_launch(0),
            traced,
        )
        .map_err(|fault| NoOutput::of_fault("traced", &fault))?;
        // An access outside of the tensors would find no memory far apart.
        if !judged.is_fail() {
            runs.extend(executions);
            let execution =
                emulated::execute_far_apart(&prepared, staged.of_launch(1), schedules[0])
                    .map_err(|fault| NoOutput::of_fault("rows far apart", &fault))?;
            runs.push(Run {
                label: format!("{:?}, rows far apart", schedules[0]),
                index: 1,
                execution,
            });
        }
        findings.push(judged);
    }
    Ok(Launched {
        staged: Arc::clone(staged),
        probability: prepared.kernel.probability,
        runs,
        findings,
    })
}

impl Launched {
    /// The gates of [`check`] on what the launches left.
    pub fn judge(self, reference: &Reference) -> Checked {
        let problem = &self.staged.of_launch(0).problem;
        let staged = |run: &Run| self.staged.of_launch(run.index);
        let runs = || self.runs.iter();
        let outputs: Vec<Vec<f32>> = runs()
            .map(|run| staged(run).values(&run.execution.output))
            .collect();
        let evidence = Evidence {
            problem,
            family: self.staged.family,
            reference,
            output: &outputs[0],
        };
        let (errors, numeric) = gate::numeric_gates(&evidence);
        let mut gates = numeric.to_vec();
        let lses: Vec<Option<Vec<f32>>> = runs()
            .map(|run| Some(staged(run).lse.floats(run.execution.lse.as_ref()?)))
            .collect();
        let repeats: Vec<Repeat<'_>> = runs()
            .zip(outputs.iter().zip(&lses))
            .map(|(run, (output, lse))| Repeat {
                label: &run.label,
                output,
                lse: lse.as_deref(),
            })
            .collect();
        gates.push(gate::c5(problem, &repeats));
        let buffers: Vec<Buffer<'_>> = runs()
            .flat_map(|run| buffers(staged(run), &run.execution))
            .collect();
        gates.push(gate::c6(&buffers));
        let lse = lses.iter().flatten().next();
        gates.extend(lse.map(|lse| gate::c8(problem, reference, lse)));
        gates.retain(|gate| self.findings.iter().all(|found| found.gate != gate.gate));
        gates.extend(self.findings);
        Checked {
            errors,
            gates,
            output: outputs.into_iter().next().unwrap_or_default(),
        }
    }
}

/// Gate B1: a GPU's `output` against that of the same variant in the emulator's plain build.
pub fn both_backends(
    stage: &LoadedStage,
    variant: &str,
    staged: &Arc<StagedInputs>,
    output: &[f32],
) -> Result<GateResult, NoOutput> {
    let Some(family) = staged.family else {
        let why = "real tensors: no bound was measured for them";
        return Ok(GateResult::no_data(GateId::B1, why));
    };
    let first = staged.of_launch(0);
    let target = Target::Emulated {
        schedules: &[Schedule::InOrder],
        traced: &[],
        suppress: None,
    };
    match launch(stage, variant, staged, target) {
        Ok(launched) => {
            let emulated = first.values(&launched.runs[0].execution.output);
            Ok(gate::b1(&first.problem, family, output, &emulated))
        }
        Err(end @ NoOutput::NoMemory(_)) => Err(end),
        Err(end) => {
            let why = format!("the emulator gives no output: {end}");
            Ok(GateResult::fail(GateId::B1, why))
        }
    }
}

/// Every buffer before and after a launch, for gate C6.
pub fn buffers<'a>(
    staged: &'a Staged,
    execution: &'a Execution,
) -> impl Iterator<Item = Buffer<'a>> {
    let inputs = staged
        .inputs
        .iter()
        .zip(&execution.inputs)
        .map(|(operand, after)| Buffer {
            name: operand.name,
            image: &operand.image,
            after,
            role: Role::Input,
        });
    let output = |name, image, after| Buffer {
        name,
        image,
        after,
        role: Role::Output,
    };
    let lse = execution.lse.as_ref();
    inputs
        .chain([output("o", &staged.output, &execution.output)])
        .chain(lse.map(|after| output("lse", &staged.lse, after)))
}

/// Every second launch is with log-sum-exps, where there are any and they are asked for.
fn of_launch<'a>(prepared: &Prepared<'a>, staged: &StagedInputs, index: usize) -> Prepared<'a> {
    Prepared {
        lse: index.is_multiple_of(2) && staged.lse && prepared.kernel.lse,
        ..prepared.clone()
    }
}

fn launch_all(
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    staged: &StagedInputs,
    target: Target<'_>,
) -> Result<Vec<Run>, NoOutput> {
    let run = |index: usize, name: String, execution: Execution| Run {
        label: format!("{name}, {}", staged.of_launch(index).output.layout),
        index,
        execution,
    };
    let mut runs = Vec::new();
    match target {
        Target::Emulated {
            schedules,
            suppress,
            ..
        } => {
            for (index, &schedule) in schedules.iter().enumerate() {
                let execution = emulated::execute(
                    &of_launch(prepared, staged, index),
                    staged.of_launch(index),
                    schedule,
                    suppress,
                )
                .map_err(|fault| NoOutput::of_fault(format!("schedule {schedule:?}"), &fault))?;
                runs.push(run(index, format!("{schedule:?}"), execution));
            }
        }
        Target::Cuda { device, launches } => {
            for index in 0..launches {
                let (prepared, staged) =
                    (of_launch(prepared, staged, index), staged.of_launch(index));
                let execution = device.execute(stage, &prepared, staged)?;
                runs.push(run(index, format!("launch {}", index + 1), execution));
            }
        }
    }
    Ok(runs)
}

/// H1 on strided tensors, and what the traced launches left, for C5: the builds differ in where registers lie.
fn judge_hazards(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedules: &[Schedule],
) -> Result<(GateResult, Vec<Run>), Fault> {
    let (mut reports, mut runs) = (Vec::new(), Vec::new());
    for &schedule in schedules {
        let (report, execution) =
            emulated::execute_traced(prepared, staged, schedule, &Selection::default())?;
        reports.push((format!("{schedule:?}"), report));
        runs.push(Run {
            label: format!("{schedule:?}, traced"),
            index: 0,
            execution,
        });
    }
    let traced: Vec<Traced<'_>> = reports
        .iter()
        .map(|(label, report)| Traced { label, report })
        .collect();
    let elements: usize = staged.problem.shape.q_extents().iter().product();
    Ok((gate::h1(&traced, 2 * elements as u64), runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_without_memory_fails_no_gate() {
        let (what, error) = ("a stack".to_string(), "refused".to_string());
        let output = NoOutput::of_fault("traced", &Fault::NoMemory { what, error });
        assert!(matches!(&output, NoOutput::NoMemory(why) if why == "traced: a stack: refused"));
    }

    #[test]
    fn a_case_without_output_fails_c1() {
        let error = NoOutput::Failed {
            reason: "schedule InOrder: deadlock".into(),
            fatal: false,
        };
        let failed = failures(Err(error));
        assert_eq!(
            failed,
            [GateResult::fail(GateId::C1, "schedule InOrder: deadlock")]
        );
    }
}
