//! One case through the correctness gates: lay inputs out, launch, compare, judge. Launching and judging can be had apart,
//! so that a GPU runs one case while processors judge others.

use crate::device::cuda::{CudaDevice, CudaError};
use crate::device::emulated::{self, Selection, TraceError};
use crate::device::{Execution, Staged};
use crate::gate::{self, Buffer, Errors, Evidence, Repeat, Role, Traced};
use crate::image::Layout;
use crate::inputs::{Family, Inputs};
use crate::problem::Problem;
use crate::reference::{Probability, Reference, reference};
use crate::stage::{LoadedStage, Prepared, Unsupported};
use crate::verdict::{GateId, GateResult};
use emulator::{Fault, Schedule, Suppress};
use std::fmt;
use std::sync::Arc;

/// Where the inputs of a case came from.
#[derive(Clone, Debug, PartialEq)]
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

impl Source {
    /// How the inputs were drawn; `None` for real tensors.
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
    /// On the emulator, once per schedule.
    Emulated {
        /// At least one; with one alone, C5 has no data.
        schedules: &'a [Schedule],
        /// Schedules of the traced build, which gate H1 judges, and whose outputs gate C5 compares with those of the plain one;
        /// if there are any, the plain one runs on rows too that are so far apart that offsets take more than 32 bits.
        traced: &'a [Schedule],
    },
    /// On a GPU.
    Cuda {
        /// The GPU.
        device: &'a CudaDevice,
        /// Launches; at least one.
        launches: usize,
    },
}

/// What the gates said of a case, and the output they said it of.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Measured errors.
    pub errors: Errors,
    /// One result per gate.
    pub gates: Vec<GateResult>,
    /// `[batch, heads_q, seq_q, head_dim]`, dense, of the first launch.
    pub output: Vec<f32>,
}

/// The outcome of a case: it ran and the gates judged it, or there is nothing to judge.
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

/// The inputs of a problem as they are uploaded, laid out once for all variants that run on them.
#[derive(Clone, Debug)]
pub struct StagedInputs {
    /// How the inputs were drawn; `None` for real tensors.
    family: Option<Family>,
    /// Strided and packed: launches alternate.
    layouts: [Staged; 2],
}

impl StagedInputs {
    /// Lays `inputs` out. `family`: how they were drawn; `None` for real tensors.
    pub fn new(inputs: &Inputs, family: Option<Family>) -> Self {
        Self {
            family,
            layouts: [Layout::Strided, Layout::Packed].map(|layout| Staged::new(inputs, layout)),
        }
    }

    /// Bytes that one launch leaves on the host until it is judged, at most.
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

    /// What launch `index` runs on.
    pub fn of_launch(&self, index: usize) -> &Staged {
        &self.layouts[index % 2]
    }
}

/// Why a case has no output to judge.
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoOutput {
    /// The stage has no such launch. Not a failure of the variant.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The launch failed or never ended. A failure.
    #[error("{reason}")]
    Failed {
        /// The error, with its place.
        reason: String,
        /// Whether the GPU cannot be used any more.
        fatal: bool,
    },
}

impl NoOutput {
    fn of_fault(what: impl fmt::Display, fault: &Fault) -> Self {
        NoOutput::Failed {
            reason: format!("{what}: {fault}"),
            fatal: false,
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

/// A case that ran and is not judged yet. Judging needs the processor alone, so that it can go on beside other cases.
#[derive(Debug)]
pub struct Launched {
    staged: Arc<StagedInputs>,
    probability: Probability,
    runs: Vec<Run>,
    /// Found beside the outputs: by H1, where the case was traced; by the caller, for a candidate.
    findings: Vec<GateResult>,
}

/// One launch of several: what distinguished it, and what it left.
#[derive(Debug)]
pub struct Run {
    /// What distinguished it.
    pub label: String,
    /// Which of the staged inputs it ran on.
    pub index: usize,
    /// What it left.
    pub execution: Execution,
}

/// Runs `variant` of `stage` on inputs of `family`, seed 0, and judges it by gates C1 to C6 and C8, and by H1 where it is traced.
pub fn check(
    stage: &LoadedStage,
    variant: &str,
    problem: &Problem,
    family: Family,
    target: Target<'_>,
) -> Outcome {
    check_suppressed(stage, variant, problem, family, target, None)
}

/// As [`check`], but in the emulator's plain build one synchronisation site does nothing.
pub(crate) fn check_suppressed(
    stage: &LoadedStage,
    variant: &str,
    problem: &Problem,
    family: Family,
    target: Target<'_>,
    suppress: Option<&Suppress>,
) -> Outcome {
    let probability = stage.prepare(variant, problem)?.kernel.probability;
    let inputs = Inputs::generate(problem, family, 0);
    let reference = reference(&inputs, probability).expect("generated inputs are finite");
    let staged = Arc::new(StagedInputs::new(&inputs, Some(family)));
    let launched = launch_suppressed(stage, variant, &staged, target, suppress)?;
    Ok(launched.judge(&reference))
}

/// The first half of [`check`]: all launches that `target` asks for, the traced ones included.
///
/// The first launch has strided tensors between NaN (gate C6), and the numeric gates judge its output. Later launches alternate
/// between packed and strided tensors, so that C5 also says that the layout does not matter. A kernel that writes log-sum-exps is
/// asked for them in every second launch (gate C8) and where it is traced, so that C5 also says that they do not touch the output.
/// C5 compares what the traced launches leave with all that, too. What is traced and has no hazard is launched once more on rows
/// that lie far apart: their offsets need 64 bits.
pub fn launch(
    stage: &LoadedStage,
    variant: &str,
    staged: &Arc<StagedInputs>,
    target: Target<'_>,
) -> Result<Launched, NoOutput> {
    launch_suppressed(stage, variant, staged, target, None)
}

fn launch_suppressed(
    stage: &LoadedStage,
    variant: &str,
    staged: &Arc<StagedInputs>,
    target: Target<'_>,
    suppress: Option<&Suppress>,
) -> Result<Launched, NoOutput> {
    let prepared = stage.prepare(variant, &staged.of_launch(0).problem)?;
    let mut runs = launch_all(stage, &prepared, staged, target, suppress)?;
    let mut findings = vec![];
    if let Target::Emulated { schedules, traced } = target
        && !traced.is_empty()
    {
        let (judged, executions) =
            judge_hazards(&of_launch(&prepared, 0), staged.of_launch(0), traced)
                .map_err(|fault| NoOutput::of_fault("traced", &fault))?;
        // A hazard may have stopped a block. An access outside of the tensors is one, and would find no memory far apart.
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
    /// The launches of a candidate, at least one, and other findings, which take precedence over what the gates say. It
    /// holds P in `probability`.
    pub fn by_another(
        staged: Arc<StagedInputs>,
        probability: Probability,
        runs: Vec<Run>,
        findings: Vec<GateResult>,
    ) -> Self {
        Self {
            staged,
            probability,
            runs,
            findings,
        }
    }

    /// The type of P of the kernel that ran: what its reference must round P to.
    pub fn probability(&self) -> Probability {
        self.probability
    }

    /// The second half of [`check`]: the gates, on what the launches left.
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

/// Gate B1: `output`, which a GPU computed from `staged`, beside that of the same variant in the emulator's plain build.
pub fn both_backends(
    stage: &LoadedStage,
    variant: &str,
    staged: &Arc<StagedInputs>,
    output: &[f32],
) -> GateResult {
    let Some(family) = staged.family else {
        return GateResult::no_data(GateId::B1, "real tensors: no bound was measured for them");
    };
    let first = staged.of_launch(0);
    let target = Target::Emulated {
        schedules: &[Schedule::InOrder],
        traced: &[],
    };
    match launch(stage, variant, staged, target) {
        Ok(launched) => {
            let emulated = first.values(&launched.runs[0].execution.output);
            gate::b1(&first.problem, family, output, &emulated)
        }
        Err(end) => GateResult::fail(GateId::B1, format!("the emulator gives no output: {end}")),
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

/// `prepared` as launch number `index` of a case takes it: every second one with log-sum-exps, where there are any, so that
/// they can be compared with each other, and the output with that of a launch without.
fn of_launch<'a>(prepared: &Prepared<'a>, index: usize) -> Prepared<'a> {
    Prepared {
        lse: index.is_multiple_of(2) && prepared.kernel.lse,
        ..prepared.clone()
    }
}

/// The launches that `target` asks for.
fn launch_all(
    stage: &LoadedStage,
    prepared: &Prepared<'_>,
    staged: &StagedInputs,
    target: Target<'_>,
    suppress: Option<&Suppress>,
) -> Result<Vec<Run>, NoOutput> {
    let run = |index: usize, name: String, execution: Execution| Run {
        label: format!("{name}, {}", staged.of_launch(index).output.layout.name()),
        index,
        execution,
    };
    let mut runs = Vec::new();
    match target {
        Target::Emulated { schedules, .. } => {
            for (index, &schedule) in schedules.iter().enumerate() {
                let execution = emulated::execute_suppressed(
                    &of_launch(prepared, index),
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
                let (prepared, staged) = (of_launch(prepared, index), staged.of_launch(index));
                let execution = device.execute(stage, &prepared, staged)?;
                runs.push(run(index, format!("launch {}", index + 1), execution));
            }
        }
    }
    Ok(runs)
}

/// H1: the traced build under each schedule, with strided tensors, so that what lies between rows is out of bounds. And what
/// those launches left, for C5: the builds differ in where registers lie, so that what depends on it differs.
fn judge_hazards(
    prepared: &Prepared<'_>,
    staged: &Staged,
    schedules: &[Schedule],
) -> Result<(GateResult, Vec<Run>), Fault> {
    let (mut reports, mut runs) = (Vec::new(), Vec::new());
    for &schedule in schedules {
        match emulated::execute_traced(prepared, staged, schedule, &Selection::default()) {
            Ok((report, execution)) => {
                reports.push((format!("{schedule:?}"), report));
                runs.push(Run {
                    label: format!("{schedule:?}, traced"),
                    index: 0,
                    execution,
                });
            }
            Err(TraceError::NoTracedBuild) => {} // H1 has no data
            Err(TraceError::Refused(fault)) => return Err(fault),
        }
    }
    let traced: Vec<Traced<'_>> = reports
        .iter()
        .map(|(label, report)| Traced { label, report })
        .collect();
    let elements: usize = staged.problem.shape.q_extents().iter().product();
    Ok((gate::h1(&traced, 2 * elements as u64), runs))
}
