//! The criterion benchmark that every stage runs: `cargo bench -p stage0-scalar`.
//!
//! On a GPU it reads device time (a CUDA graph of launches, divided by their number) of every
//! variant at the mission shape, in each dtype and mask. Without a GPU it reads the emulator's wall
//! time at the small shape, which says nothing about a GPU and is labelled so. Either way a variant
//! is gated on the very inputs first, and one that is not green ends the run with exit code 1.
//! Cases that the GPU cannot run, or the smaller device that `ATTENTION_DEVICE=sm_89` asks for, are
//! skipped, each with a line that says so. Criterion's own options work: a filter,
//! `--save-baseline`, `--baseline`.
//!
//! ```text
//! fn main() -> std::process::ExitCode {
//!     attention_bench::main(&stage0_scalar::Scalar)
//! }
//! ```

#![forbid(unsafe_code)]

use common::check::{Target, check};
use common::device::cuda::{Arm, CudaDevice, CudaError, RotatedOutput};
use common::device::{Staged, emulated};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::limits::DeviceLimits;
use common::problem::{Dtype, Mask, Problem, ProblemError, parse_shape};
use common::stage::{Attention, LoadedStage};
use common::tier0;
use common::timing::Plan;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use std::error::Error;
use std::fmt::Display;
use std::process::ExitCode;
use std::time::Duration;

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

/// The number of launches that gate C5 compares on a GPU.
const GATE_LAUNCHES: usize = 3;

/// Runs every variant of `stage`; for `main` of `benches/attention.rs`.
pub fn main(stage: &'static dyn Attention) -> ExitCode {
    match run(stage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(attention: &'static dyn Attention) -> Result<()> {
    let mut stage = LoadedStage::load(attention)?;
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let gpu = open_gpu(&stage);
    let asked = DeviceLimits::asked(None)?;
    let gpu_limits = gpu.as_ref().ok().map(|device| device.info().limits());
    stage.device = DeviceLimits::of_launches(asked, gpu_limits)?;
    if let Some(device) = asked {
        eprintln!("{}: limited to what {device} offers", stage.info().id);
    }
    match gpu {
        Ok(device) => bench_gpu(&mut criterion, &device, &stage)?,
        Err(reason) => {
            eprintln!("{}: emulated, because {reason}", stage.info().id);
            bench_emulator(&mut criterion, &stage)?;
        }
    }
    criterion.final_summary();
    Ok(())
}

fn bench_gpu(criterion: &mut Criterion, device: &CudaDevice, stage: &LoadedStage) -> Result<()> {
    let id = stage.info().id;
    eprintln!("{id}: device time on {}, warm L2", device.info().name);
    let mut group = criterion.benchmark_group(id);
    for case in cases(stage, "mission")? {
        time_on_gpu(&mut group, device, &case);
    }
    group.finish();
    Ok(())
}

fn bench_emulator(criterion: &mut Criterion, stage: &LoadedStage) -> Result<()> {
    let title = format!("{} (emulated, not a latency)", stage.info().id);
    let mut group = criterion.benchmark_group(title);
    group.sample_size(10);
    for case in cases(stage, "small")? {
        time_on_emulator(&mut group, &case);
    }
    group.finish();
    Ok(())
}

/// Opens the first GPU, if it can run this stage; else returns why not.
fn open_gpu(stage: &LoadedStage) -> Result<CudaDevice, CudaError> {
    if stage.attention.artifacts().fatbin.is_none() {
        return Err(CudaError::NotBuilt {
            stage: stage.info().id.to_string(),
        });
    }
    CudaDevice::open(0)
}

/// A variant and the problem that it is timed on.
struct Case<'a> {
    stage: &'a LoadedStage,
    variant: &'a str,
    problem: Problem,
    id: BenchmarkId,
}

/// Returns the cases of a shape, with every dtype and mask. A case that cannot run is skipped, with
/// a line that says so.
fn cases<'a>(stage: &'a LoadedStage, shape_name: &str) -> Result<Vec<Case<'a>>> {
    let shape = parse_shape(shape_name)?;
    let mut cases = Vec::new();
    for dtype in Dtype::ALL {
        for mask in Mask::ALL {
            let problem = match Problem::new(shape, dtype, mask) {
                Ok(problem) => problem,
                Err(refusal @ ProblemError::CacheDtype { .. }) => {
                    eprintln!("skipped: {refusal}");
                    continue;
                }
                Err(refusal) => return Err(refusal.into()),
            };
            for variant in stage.variants() {
                if let Err(unsupported) = stage.prepare(variant, &problem) {
                    eprintln!("skipped: {unsupported}");
                    continue;
                }
                cases.push(Case {
                    stage,
                    variant,
                    problem,
                    id: BenchmarkId::new(variant, format!("{shape_name}-{dtype}-{mask}")),
                });
            }
        }
    }
    Ok(cases)
}

/// A case that passed its gates.
struct Gated {
    staged: Staged,
    /// The output that was judged, dense.
    output: Vec<f32>,
}

impl Gated {
    fn is_output(&self, output: &RotatedOutput) -> bool {
        let values = self.staged.values(&output.execution.output);
        let bits = |value: &f32| value.to_bits();
        values.iter().map(bits).eq(self.output.iter().map(bits))
    }
}

/// Judges a case by every correctness gate, on the inputs that will be timed.
fn gate(case: &Case<'_>, target: Target<'_>) -> Result<Gated> {
    let Case {
        variant, problem, ..
    } = case;
    let family = Family::Normal;
    let checked = check(case.stage, variant, problem, family, target)?;
    if let Some(failed) = checked.gates.iter().find(|result| result.is_fail()) {
        let Problem {
            shape, dtype, mask, ..
        } = problem;
        return Err(format!(
            "{variant} is not green on {shape} {dtype} {mask}: {} {}",
            failed.gate, failed.reason
        )
        .into());
    }
    let inputs = Inputs::generate(problem, family, 0);
    Ok(Gated {
        staged: Staged::new(&inputs, Layout::Packed),
        output: checked.output,
    })
}

/// Returns the value, or ends the process: criterion cannot stop from inside, and after a hang
/// nothing may wait for the GPU.
fn or_stop<T, E: Display>(result: Result<T, E>) -> T {
    result.unwrap_or_else(|error| stop(&error))
}

fn stop(error: &dyn Display) -> ! {
    eprintln!("no benchmark: {error}");
    std::process::exit(1)
}

fn time_on_gpu(group: &mut BenchmarkGroup<'_, WallTime>, device: &CudaDevice, case: &Case<'_>) {
    let plan = Plan::default();
    // Criterion calls the closure only if its filter takes the id, and once per sample.
    let mut green: Option<(Gated, Arm<'_>)> = None;
    group.bench_function(case.id.clone(), |bencher| {
        let (_, arm) = green.get_or_insert_with(|| {
            let target = Target::Cuda {
                device,
                launches: GATE_LAUNCHES,
            };
            let gated = or_stop(gate(case, target));
            let arm = or_stop(open_arm(device, case, &gated.staged));
            (gated, arm)
        });
        bencher.iter_custom(|launches| or_stop(arm.device_time(launches, &plan)));
    });
    if let Some((gated, arm)) = green {
        let outputs = or_stop(arm.outputs());
        if !outputs.iter().all(|output| gated.is_output(output)) {
            stop(&format!(
                "{}: the timed buffers do not hold the output that the gates judged",
                case.variant
            ));
        }
    }
}

fn open_arm<'d>(device: &'d CudaDevice, case: &Case<'_>, staged: &Staged) -> Result<Arm<'d>> {
    let pool = device.pool(vec![staged.clone()], false)?;
    let prepared = case.stage.prepare(case.variant, &staged.problem)?;
    Ok(device.arm(case.stage, &prepared, &pool)?)
}

fn time_on_emulator(group: &mut BenchmarkGroup<'_, WallTime>, case: &Case<'_>) {
    let mut green: Option<Gated> = None;
    group.bench_function(case.id.clone(), |bencher| {
        let gated = green.get_or_insert_with(|| {
            let target = Target::Emulated {
                schedules: &tier0::SCHEDULES,
                traced: &[],
                suppress: None,
            };
            or_stop(gate(case, target))
        });
        let prepared = or_stop(case.stage.prepare(case.variant, &case.problem));
        bencher.iter(|| {
            let schedule = tier0::SCHEDULES[0];
            or_stop(emulated::execute(&prepared, &gated.staged, schedule, None))
        });
    });
}
