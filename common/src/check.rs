//! One case through the correctness gates: generate inputs, launch, compare, judge.

use crate::device::cuda::CudaDevice;
use crate::device::emulated::{self, Selection};
use crate::device::{BackendKind, Execution, Staged};
use crate::gate::{self, Buffer, Errors, Evidence, Repeat, Role, Traced};
use crate::image::Layout;
use crate::inputs::{Family, Inputs};
use crate::problem::{Dtype, Mask, Shape};
use crate::reference::Reference;
use crate::stage::{LoadedStage, Prepared};
use crate::verdict::{GateResult, Verdict};
use emulator::{Fault, Schedule, Suppress};
use half::f16;
use serde::{Deserialize, Serialize};

/// Which case.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseKey {
    /// The stage's id.
    pub stage: String,
    /// The variant.
    pub variant: String,
    /// Where it ran.
    pub backend: BackendKind,
    /// The shape's name, or its extents where it has none.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type of Q, K and V.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// Where the inputs came from.
    pub source: Source,
}

/// Where the inputs of a case came from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Source {
    /// Generated.
    Seeded {
        /// The distribution.
        family: Family,
        /// The seed.
        seed: u64,
    },
    /// Read from a file.
    File {
        /// Its name, without folders.
        name: String,
    },
}

/// What came of a case. The fields that exist depend on the status, so that 0 never stands for "not measured".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "nearly every outcome is the large one")]
pub enum Outcome {
    /// It ran; the gates judged it.
    Checked {
        /// Measured errors.
        errors: Errors,
        /// One result per gate.
        gates: Vec<GateResult>,
    },
    /// The stage has no such launch. Not a failure of this variant.
    Unsupported {
        /// Why.
        reason: String,
    },
    /// The launch failed or never ended. A failure.
    Failed {
        /// The error, with its place.
        reason: String,
    },
}

/// One case and what came of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CaseResult {
    /// Which case.
    #[serde(flatten)]
    pub key: CaseKey,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl CaseResult {
    /// Whether the case ran and no gate failed.
    pub fn is_green(&self) -> bool {
        matches!(&self.outcome, Outcome::Checked { gates, .. } if gates.iter().all(|gate| gate.verdict != Verdict::Fail))
    }
}

/// Where a case runs, and how often: outputs of all its launches must be bitwise equal (gate C5).
#[derive(Clone, Copy, Debug)]
pub enum Target<'a> {
    /// On the emulator, once per schedule.
    Emulated {
        /// At least one; with one alone, C5 has no data.
        schedules: &'a [Schedule],
        /// Whether the traced build runs too, under every schedule, and gate H1 judges it.
        traced: bool,
    },
    /// On a GPU.
    Cuda {
        /// The GPU.
        device: &'a CudaDevice,
        /// Launches; at least one.
        launches: usize,
    },
}

impl Target<'_> {
    /// Which backend this is.
    pub fn kind(&self) -> BackendKind {
        match self {
            Target::Emulated { .. } => BackendKind::Emulated,
            Target::Cuda { .. } => BackendKind::Cuda,
        }
    }
}

/// What the gates said, and the output they said it of.
#[derive(Clone, Debug)]
pub struct Checked {
    /// For the record.
    pub outcome: Outcome,
    /// `[batch, heads_q, seq_q, head_dim]`, dense, of the first launch; `None` unless it was checked.
    pub output: Option<Vec<f16>>,
    /// Why the GPU cannot be used any more, if that came of it.
    pub fatal: bool,
}

/// One launch of several: what distinguished it, and what it left.
struct Run {
    label: String,
    staged: Staged,
    execution: Execution,
}

/// Runs `variant` of `stage` on `inputs` and judges it by gates C1 to C6 against `reference`, and by H1 where it is traced.
///
/// The first launch has strided tensors between NaN (gate C6), and what the numeric gates judge is its output. Launches
/// after it alternate between packed and strided tensors, so that C5 also says that the layout does not matter.
pub fn check(
    stage: &LoadedStage,
    variant: &str,
    inputs: &Inputs,
    source: &Source,
    reference: &Reference,
    target: Target<'_>,
) -> Checked {
    check_suppressed(stage, variant, inputs, source, reference, target, None)
}

/// As [`check`], but in the emulator's plain build one synchronisation site does nothing.
pub(crate) fn check_suppressed(
    stage: &LoadedStage,
    variant: &str,
    inputs: &Inputs,
    source: &Source,
    reference: &Reference,
    target: Target<'_>,
    suppress: Option<&Suppress>,
) -> Checked {
    let ended = |outcome, fatal| Checked { outcome, output: None, fatal };
    let prepared = match stage.prepare(variant, &inputs.problem) {
        Ok(prepared) => prepared,
        Err(unsupported) => return ended(Outcome::Unsupported { reason: unsupported.to_string() }, false),
    };
    let runs = match launch_all(stage, &prepared, inputs, target, suppress) {
        Ok(runs) => runs,
        Err((reason, fatal)) => return ended(Outcome::Failed { reason }, fatal),
    };
    let hazards = match target {
        Target::Emulated { schedules, traced: true } => match hazards(&prepared, inputs, schedules) {
            Ok(result) => Some(result),
            Err(fault) => return ended(Outcome::Failed { reason: format!("traced: {fault}") }, false),
        },
        _ => None,
    };
    let outputs: Vec<Vec<f16>> = runs.iter().map(|run| run.staged.output.elements(&run.execution.output)).collect();
    let family = match source {
        Source::Seeded { family, .. } => Some(*family),
        Source::File { .. } => None,
    };
    let evidence = Evidence { problem: &inputs.problem, family, reference, output: &outputs[0] };
    let (errors, numeric) = gate::numeric_gates(&evidence);
    let mut gates = numeric.to_vec();
    let repeats: Vec<Repeat<'_>> =
        runs.iter().zip(&outputs).map(|(run, output)| Repeat { label: &run.label, output }).collect();
    gates.push(gate::c5(&inputs.problem, &repeats));
    gates.push(gate::c6(&runs.iter().flat_map(Run::buffers).collect::<Vec<_>>()));
    gates.extend(hazards);
    Checked { outcome: Outcome::Checked { errors, gates }, output: outputs.into_iter().next(), fatal: false }
}

impl Run {
    fn buffers(&self) -> impl Iterator<Item = Buffer<'_>> {
        let inputs = self.staged.inputs.iter().zip(&self.execution.inputs).map(|(operand, after)| Buffer {
            name: operand.name,
            image: &operand.image,
            after,
            role: Role::Input,
        });
        let output =
            Buffer { name: "o", image: &self.staged.output, after: &self.execution.output, role: Role::Output };
        inputs.chain([output])
    }
}

/// The launches that `target` asks for; the error comes with whether the device is lost.
fn launch_all(
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    inputs: &Inputs,
    target: Target<'_>,
    suppress: Option<&Suppress>,
) -> Result<Vec<Run>, (String, bool)> {
    let layout_of = |index: usize| if index.is_multiple_of(2) { Layout::Strided } else { Layout::Packed };
    let staged: [Staged; 2] = [0, 1].map(|index| Staged::new(inputs, layout_of(index)));
    let run = |index: usize, name: String, execution: Execution| Run {
        label: format!("{name}, {}", layout_of(index).name()),
        staged: staged[index % 2].clone(),
        execution,
    };
    let mut runs = Vec::new();
    match target {
        Target::Emulated { schedules, .. } => {
            for (index, &schedule) in schedules.iter().enumerate() {
                let (execution, _) = emulated::execute_suppressed(prepared, &staged[index % 2], schedule, suppress)
                    .map_err(|fault| (format!("schedule {schedule:?}: {fault}"), false))?;
                runs.push(run(index, format!("{schedule:?}"), execution));
            }
        }
        Target::Cuda { device, launches } => {
            for index in 0..launches {
                let mut executions = device
                    .execute(stage, prepared, &staged[index % 2], 1)
                    .map_err(|error| (error.to_string(), error.is_fatal()))?;
                runs.push(run(index, format!("launch {}", index + 1), executions.remove(0)));
            }
        }
    }
    Ok(runs)
}

/// H1: the traced build under each schedule, with strided tensors, so that what lies between rows is out of bounds.
fn hazards(prepared: &Prepared<'_>, inputs: &Inputs, schedules: &[Schedule]) -> Result<GateResult, Fault> {
    let staged = Staged::new(inputs, Layout::Strided);
    let mut reports = Vec::new();
    for &schedule in schedules {
        let report = emulated::trace(prepared, &staged, schedule, &Selection::default())?;
        reports.extend(report.map(|report| (format!("{schedule:?}"), report)));
    }
    let traced: Vec<Traced<'_>> = reports.iter().map(|(label, report)| Traced { label, report }).collect();
    Ok(gate::h1(&traced))
}
