//! The criterion benchmark that every stage runs: `cargo bench -p stage0-scalar`.
//!
//! On a GPU it reads device time (a CUDA graph of launches, divided by their number) of every variant at the mission
//! shape, in each dtype and mask. Without a GPU it reads the emulator's wall time at the small shape,
//! which says nothing about a GPU and is labelled so. Either way a variant is gated on the very inputs first, and a variant that is
//! not green ends the run with exit code 1. What the GPU cannot run, or the smaller device that `ATTENTION_DEVICE=sm_89` asks
//! for, is skipped and said. Criterion's own options work: a filter, `--save-baseline`, `--baseline`.
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
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, LoadedStage};
use common::tier0;
use common::timing::Plan;
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion};
use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;

/// Compared by gate C5 on a GPU.
const GATE_LAUNCHES: usize = 3;

/// Every variant of `stage`; for `main` of `benches/attention.rs`.
pub fn main(stage: &'static dyn Attention) -> ExitCode {
    match run(stage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(attention: &'static dyn Attention) -> Result<(), Box<dyn Error>> {
    let mut stage = LoadedStage::load(attention)?;
    let mut criterion = Criterion::default()
        .without_plots()
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(2))
        .configure_from_args();
    let gpu = open_gpu(&stage);
    let asked = DeviceLimits::asked(None)?;
    stage.device =
        DeviceLimits::of_launches(asked, gpu.as_ref().ok().map(|gpu| gpu.info().limits()))?;
    if let Some(device) = asked {
        eprintln!("{}: limited to what {device} offers", stage.info().id);
    }
    match gpu {
        Ok(device) => {
            eprintln!(
                "{}: device time on {}, warm L2",
                stage.info().id,
                device.info().name
            );
            let mut group = criterion.benchmark_group(stage.info().id);
            each_case(&stage, "mission", |variant, problem, id| {
                on_gpu(&mut group, &device, &stage, variant, &problem, id);
            })?;
            group.finish();
        }
        Err(reason) => {
            eprintln!("{}: emulated, because {reason}", stage.info().id);
            let mut group =
                criterion.benchmark_group(format!("{} (emulated, not a latency)", stage.info().id));
            group.sample_size(10);
            each_case(&stage, "small", |variant, problem, id| {
                on_emulator(&mut group, &stage, variant, &problem, id)
            })?;
            group.finish();
        }
    }
    criterion.final_summary();
    Ok(())
}

/// The first, if it can run this stage; or why not.
fn open_gpu(stage: &LoadedStage) -> Result<CudaDevice, String> {
    if stage.attention.artifacts().fatbin.is_none() {
        return Err(CudaError::NotBuilt {
            stage: stage.info().id.to_string(),
        }
        .to_string());
    }
    CudaDevice::open(0).map_err(|error| error.to_string())
}

/// With every dtype and mask.
fn each_case(
    stage: &LoadedStage,
    shape_name: &str,
    mut body: impl FnMut(&str, Problem, BenchmarkId),
) -> Result<(), Box<dyn Error>> {
    let shape = parse_shape(shape_name)?;
    for dtype in Dtype::ALL {
        for mask in Mask::ALL {
            let problem = Problem::new(shape, dtype, mask)?;
            for variant in stage.variants() {
                if let Err(unsupported) = stage.prepare(variant, &problem) {
                    eprintln!("skipped: {unsupported}");
                    continue;
                }
                body(
                    variant,
                    problem,
                    BenchmarkId::new(variant, format!("{shape_name}-{dtype}-{mask}")),
                );
            }
        }
    }
    Ok(())
}

struct Gated {
    staged: Staged,
    /// Dense, as judged.
    output: Vec<f32>,
}

/// By every correctness gate, on the inputs that will be timed.
fn gate(
    stage: &LoadedStage,
    variant: &str,
    problem: &Problem,
    target: Target<'_>,
) -> Result<Gated, Box<dyn Error>> {
    let family = Family::Normal;
    let checked = check(stage, variant, problem, family, target)?;
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

/// Ends the process: criterion cannot stop from inside, and after a hang nothing may wait for the GPU.
fn stop(error: &dyn std::fmt::Display) -> ! {
    eprintln!("no benchmark: {error}");
    std::process::exit(1)
}

fn on_gpu(
    group: &mut BenchmarkGroup<'_, WallTime>,
    device: &CudaDevice,
    stage: &LoadedStage,
    variant: &str,
    problem: &Problem,
    id: BenchmarkId,
) {
    let plan = Plan::default();
    // Criterion calls the closure only if its filter takes the id, and once per sample.
    let mut green: Option<(Gated, Arm<'_>)> = None;
    group.bench_function(id, |bencher| {
        let (_, arm) = green.get_or_insert_with(|| {
            let target = Target::Cuda {
                device,
                launches: GATE_LAUNCHES,
            };
            let gated = gate(stage, variant, problem, target).unwrap_or_else(|error| stop(&error));
            let arm =
                arm(device, stage, variant, &gated.staged).unwrap_or_else(|error| stop(&error));
            (gated, arm)
        });
        bencher.iter_custom(|launches| {
            arm.device_time(launches, &plan)
                .unwrap_or_else(|error| stop(&error))
        });
    });
    if let Some((gated, arm)) = green {
        let outputs = arm.outputs().unwrap_or_else(|error| stop(&error));
        let bits =
            |values: &[f32]| -> Vec<u32> { values.iter().map(|value| value.to_bits()).collect() };
        let gated_bits = bits(&gated.output);
        let is_gated = |output: &RotatedOutput| {
            bits(&gated.staged.values(&output.execution.output)) == gated_bits
        };
        if !outputs.iter().all(is_gated) {
            stop(&format!(
                "{variant}: the timed buffers do not hold the output that the gates judged"
            ));
        }
    }
}

fn arm<'d>(
    device: &'d CudaDevice,
    stage: &LoadedStage,
    variant: &str,
    staged: &Staged,
) -> Result<Arm<'d>, Box<dyn Error>> {
    let pool = device.pool(vec![staged.clone()], false)?;
    Ok(device.arm(stage, &stage.prepare(variant, &staged.problem)?, &pool)?)
}

fn on_emulator(
    group: &mut BenchmarkGroup<'_, WallTime>,
    stage: &LoadedStage,
    variant: &str,
    problem: &Problem,
    id: BenchmarkId,
) {
    let mut green: Option<Gated> = None;
    group.bench_function(id, |bencher| {
        let gated = green.get_or_insert_with(|| {
            let target = Target::Emulated {
                schedules: &tier0::SCHEDULES,
                traced: &[],
                suppress: None,
            };
            gate(stage, variant, problem, target).unwrap_or_else(|error| stop(&error))
        });
        let prepared = stage
            .prepare(variant, problem)
            .unwrap_or_else(|error| stop(&error));
        bencher.iter(|| {
            emulated::execute(&prepared, &gated.staged, tier0::SCHEDULES[0], None)
                .unwrap_or_else(|fault| stop(&fault))
        });
    });
}
