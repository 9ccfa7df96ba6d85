//! Puts one case through the correctness gates: lays inputs out, launches, compares, judges.

use crate::device::cuda::{CudaDevice, CudaError};
use crate::device::emulated::{self, Selection, TracedExecution};
use crate::device::{Execution, Staged};
use crate::gate::{self, Buffer, Errors, Evidence, Repeat, Role, Traced};
use crate::image::Layout;
use crate::inputs::{Family, Inputs};
use crate::placement::Placement;
use crate::problem::Problem;
use crate::reference::{Probability, Reference, reference};
use crate::stage::{LoadedStage, NoPtx, Prepared, Unsupported};
use crate::verdict::{GateId, GateResult};
use emulator::{Fault, Place, Schedule};
use std::fmt;
use std::sync::Arc;

/// The origin of inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Source {
    Seeded { family: Family, seed: u64 },
    File { name: String },
}

impl Source {
    /// Returns the family of drawn inputs; `None` for real tensors.
    pub fn family(&self) -> Option<Family> {
        match self {
            Source::Seeded { family, .. } => Some(*family),
            Source::File { .. } => None,
        }
    }
}

impl fmt::Display for Source {
    /// Writes `normal:0`, or the file's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Seeded { family, seed } => write!(f, "{family}:{seed}"),
            Source::File { name } => f.write_str(name),
        }
    }
}

/// The backend of a case and the number of its launches, whose outputs must be bitwise equal (gate
/// C5).
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    Emulated {
        /// The schedules of the plain build, at least one; with one alone, C5 has no data.
        schedules: &'a [Schedule],
        /// The schedules of the traced build, for gate H1. If there are any, the plain one also
        /// runs on rows beyond 32-bit offsets.
        traced: &'a [Schedule],
        /// Synchronisation that the plain build goes without.
        suppress: Option<&'a Place>,
    },
    Cuda {
        device: &'a CudaDevice,
        /// The number of launches; at least one.
        launches: usize,
    },
}

/// The verdicts on a case that has an output.
#[derive(Clone, Debug)]
pub struct Checked {
    pub errors: Errors,
    pub gates: Vec<GateResult>,
    /// The output of the first launch, `[batch, heads_q, seq_q, head_dim]`, dense.
    pub output: Vec<f32>,
}

pub type Outcome = Result<Checked, NoOutput>;

/// Returns the gates that fail. A case that has no output fails C1.
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

/// The inputs of a case in the layouts of its launches.
#[derive(Clone, Debug)]
pub struct StagedInputs {
    family: Option<Family>,
    /// The inputs strided, or as they were placed, and packed: launches alternate.
    layouts: [Arc<Staged>; 2],
    /// Whether the first of every two launches asks for log-sum-exps, where the kernel writes them.
    lse: bool,
}

impl StagedInputs {
    pub fn new(inputs: &Inputs, family: Option<Family>) -> Self {
        Self {
            family,
            layouts: [Layout::Strided, Layout::Packed]
                .map(|layout| Arc::new(Staged::new(inputs, layout))),
            lse: true,
        }
    }

    /// Places Q, K, V and the output where a case of [`crate::fuzz`] has them, instead of strided.
    pub fn placed(inputs: &Inputs, family: Family, places: &[Placement; 4], lse: bool) -> Self {
        Self {
            family: Some(family),
            layouts: [
                Arc::new(Staged::placed(inputs, places)),
                Arc::new(Staged::new(inputs, Layout::Packed)),
            ],
            lse,
        }
    }

    /// Returns the layout of a launch.
    pub fn of_launch(&self, index: usize) -> &Arc<Staged> {
        &self.layouts[index % 2]
    }
}

/// The reason why a case has no output to judge.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoOutput {
    /// A refusal, which is no failure of the variant.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// A failure of the variant: the launch failed or never ended.
    #[error("{reason}")]
    Failed {
        reason: String,
        /// Whether the GPU is lost.
        fatal: bool,
    },
    /// A limit of the machine, which is no failure of the variant: the emulator gets no more memory
    /// or address space.
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
    /// The launches, at least one.
    pub runs: Vec<Run>,
    /// The verdicts that take precedence over the gates.
    pub findings: Vec<GateResult>,
}

/// The bytes that one launch left.
#[derive(Debug)]
pub struct Run {
    pub label: String,
    /// The index of the staged inputs that it ran on.
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
    let prepared = stage.prepare(variant, problem)?;
    let probability = prepared.kernel.probability;
    let inputs = Inputs::generate(problem, family, 0);
    let exact = reference(&inputs, probability).expect("generated inputs are finite");
    let staged = Arc::new(StagedInputs::new(&inputs, Some(family)));
    let launched = launch(stage, variant, &staged, target)?;
    Ok(launched.judge(&exact))
}

/// Launches a case.
///
/// The first launch has strided tensors between NaN (C6), and the numeric gates judge its output;
/// later ones alternate between packed and strided, with and without log-sum-exps, so that C5
/// judges both. A case in dense tensors that is traced and clean runs once more on rows far apart.
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
        let first = prepare_launch(&prepared, staged, 0);
        let hazards = judge_hazards(&first, staged.of_launch(0), traced)
            .map_err(|fault| NoOutput::of_fault("traced", &fault))?;
        // An access outside of the tensors would find no memory far apart.
        if !hazards.h1.is_fail() {
            runs.extend(hazards.runs);
            if staged.of_launch(1).problem.is_dense() {
                runs.push(launch_far_apart(&prepared, staged, schedules[0])?);
            }
        }
        findings.push(hazards.h1);
    }
    Ok(Launched {
        staged: Arc::clone(staged),
        probability: prepared.kernel.probability,
        runs,
        findings,
    })
}

/// Launches a case on rows far apart.
fn launch_far_apart(
    prepared: &Prepared<'_>,
    staged: &StagedInputs,
    schedule: Schedule,
) -> Result<Run, NoOutput> {
    let execution = emulated::execute_far_apart(prepared, staged.of_launch(1), schedule)
        .map_err(|fault| NoOutput::of_fault("rows far apart", &fault))?;
    Ok(Run {
        label: format!("{schedule:?}, rows far apart"),
        index: 1,
        execution,
    })
}

impl Launched {
    /// Judges the gates of [`check`] on what the launches left.
    pub fn judge(self, reference: &Reference) -> Checked {
        let staged = |run: &Run| self.staged.of_launch(run.index);
        let mut outputs: Vec<Vec<f32>> = Vec::new();
        let mut lses: Vec<Option<Vec<f32>>> = Vec::new();
        let mut buffers_of_runs: Vec<Buffer<'_>> = Vec::new();
        for run in &self.runs {
            let Execution { output, lse, .. } = &run.execution;
            outputs.push(staged(run).values(output));
            lses.push(lse.as_ref().map(|bytes| staged(run).lse.floats(bytes)));
            buffers_of_runs.extend(buffers(staged(run), &run.execution));
        }
        let problem = self.staged.of_launch(0).problem;
        let evidence = Evidence {
            problem: &problem,
            family: self.staged.family,
            reference,
            output: &outputs[0],
        };
        let (errors, numeric) = gate::numeric_gates(&evidence);
        let mut repeats = Vec::new();
        for (index, run) in self.runs.iter().enumerate() {
            repeats.push(Repeat {
                label: &run.label,
                output: &outputs[index],
                lse: lses[index].as_deref(),
            });
        }
        let mut gates = numeric.to_vec();
        gates.push(gate::c5(&problem, &repeats));
        gates.push(gate::c6(&buffers_of_runs));
        if let Some(lse) = lses.iter().flatten().next() {
            gates.push(gate::c8(&problem, reference, lse));
        }
        gates.retain(|gate| {
            self.findings
                .iter()
                .all(|finding| finding.gate != gate.gate)
        });
        gates.extend(self.findings);
        Checked {
            errors,
            gates,
            output: outputs.swap_remove(0),
        }
    }
}

/// Judges gate B1: a GPU's `output` beside that of the same variant in the emulator's plain build.
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

/// Judges gate B2: what the first launch in the emulator left beside what nvcc's PTX of the same
/// variant leaves, in the interpreter.
pub fn both_front_ends(
    stage: &LoadedStage,
    variant: &str,
    launched: &Launched,
) -> Result<GateResult, NoOutput> {
    let module = match stage.ptx() {
        Ok(module) => module,
        Err(why @ NoPtx::Unreadable(_)) => {
            return Ok(GateResult::fail(GateId::B2, why.to_string()));
        }
        Err(why) => return Ok(GateResult::no_data(GateId::B2, why.to_string())),
    };
    let staged = launched.staged.of_launch(0);
    let prepared = stage.prepare(variant, &staged.problem)?;
    let first = prepare_launch(&prepared, &launched.staged, 0);
    let program = match module.entry(&first.kernel.symbol) {
        Ok(program) => program,
        Err(refusal) => return Ok(GateResult::fail(GateId::B2, refusal.to_string())),
    };
    match emulated::execute_ptx(&first, staged, Schedule::InOrder, &program) {
        Ok(interpreted) => Ok(gate::b2(&launched.runs[0].execution, &interpreted)),
        Err(fault @ Fault::NoMemory { .. }) => Err(NoOutput::of_fault("PTX", &fault)),
        Err(fault) => Ok(GateResult::fail(GateId::B2, format!("its PTX: {fault}"))),
    }
}

/// Returns every buffer before and after a launch, for gate C6.
pub fn buffers<'a>(
    staged: &'a Staged,
    execution: &'a Execution,
) -> impl Iterator<Item = Buffer<'a>> {
    let inputs = staged
        .inputs
        .iter()
        .zip(&execution.changed_inputs)
        .map(|(operand, after)| Buffer {
            name: operand.name,
            image: &operand.image,
            after: after.as_ref().unwrap_or(&operand.image.bytes),
            role: Role::Input,
        });
    let output = |name, image, after| Buffer {
        name,
        image,
        after,
        role: Role::Output,
    };
    let log_sum_exps = execution.lse.as_ref();
    inputs
        .chain([output("o", &staged.output, &execution.output)])
        .chain(log_sum_exps.map(|after| output("lse", &staged.lse, after)))
}

/// Prepares one of several launches: every second one is with log-sum-exps, where there are any and
/// they are asked for.
fn prepare_launch<'a>(
    prepared: &Prepared<'a>,
    staged: &StagedInputs,
    index: usize,
) -> Prepared<'a> {
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
                    &prepare_launch(prepared, staged, index),
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
                let execution = device.execute(
                    stage,
                    &prepare_launch(prepared, staged, index),
                    staged.of_launch(index),
                )?;
                runs.push(run(index, format!("launch {}", index + 1), execution));
            }
        }
    }
    Ok(runs)
}

/// The verdict on the hazards of traced launches.
struct JudgedHazards {
    h1: GateResult,
    /// The outputs of the launches, for C5: the builds differ in where registers lie.
    runs: Vec<Run>,
}

/// Judges H1 on strided tensors.
fn judge_hazards(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedules: &[Schedule],
) -> Result<JudgedHazards, Fault> {
    let (mut reports, mut runs) = (Vec::new(), Vec::new());
    for &schedule in schedules {
        let TracedExecution { report, execution } =
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
    let elements = staged.problem.query_rows() * staged.problem.shape.head_dim;
    Ok(JudgedHazards {
        h1: gate::h1(&traced, 2 * elements as u64),
        runs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_launch_without_memory_fails_no_gate() {
        let fault = Fault::NoMemory {
            what: "a stack".to_string(),
            error: "refused".to_string(),
        };
        let output = NoOutput::of_fault("traced", &fault);
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
