//! Gate B2: what nvcc emits for a kernel computes, in the interpreter, the bits that the g++ build
//! computes. Where nvcc is missing a test says so.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use common::device::emulated::{self, Selection};
use common::device::{Execution, Staged};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, Kernel, LoadedStage, Prepared};
use common::tier0::SCHEDULES;
use emulator::Schedule;
use ptx::{Module, Program};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .unwrap()
        .to_path_buf()
}

/// Returns an nvcc of this machine, as the build scripts search it.
fn nvcc() -> Option<PathBuf> {
    let named = std::env::var_os("NVCC").map(PathBuf::from);
    let home = std::env::var_os("CUDA_HOME").map(|home| Path::new(&home).join("bin/nvcc"));
    let own = root().join(".cuda/nvidia/cu13/bin/nvcc");
    let on_path = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|folder| folder.join("nvcc"))
        .find(|path| path.is_file());
    [named, home, on_path, Some(own)]
        .into_iter()
        .flatten()
        .find(|path| path.is_file())
}

/// Compiles a stage's source to PTX, unless that has been done since the source changed.
fn compiled(stage: &str) -> Option<String> {
    let Some(compiler) = nvcc() else {
        println!("not checked: nvcc is not here; run scripts/cuda-toolkit, or set NVCC");
        return None;
    };
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{stage}.ptx"));
    let mut command = Command::new(compiler);
    command
        .current_dir(root())
        .args(["-ptx", "-lineinfo", "-arch=sm_90a", "-std=c++17", "-O3"])
        .args(["-Icommon/cuda", "-diag-suppress", "177"])
        .arg(format!("-DATTN_STAGE={}", stage.replace('-', "_")))
        .arg(format!("{stage}/kernel.cu"))
        .arg("-o")
        .arg(&target);
    let output = command.output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Some(std::fs::read_to_string(target).unwrap())
}

/// Returns a problem with ragged tiles, some of which are masked.
fn problem(kernel: &Kernel) -> Problem {
    let head_dim = kernel.head_dim;
    let extents = format!("1x2:1x113:203x{head_dim}");
    let shape = parse_shape(&extents).unwrap();
    Problem::new(shape, kernel.dtype, Mask::Causal).unwrap()
}

fn outputs_differ(ours: &Execution, theirs: &Execution) -> Option<String> {
    if ours.output == theirs.output && ours.lse == theirs.lse {
        return None;
    }
    let pairs = ours.output.iter().zip(&theirs.output);
    let differing = pairs.filter(|(a, b)| a != b).count();
    Some(format!("{differing} of {} bytes differ", ours.output.len()))
}

/// A kernel's problem in memory.
struct Launch<'a> {
    prepared: Prepared<'a>,
    staged: Staged,
}

impl<'a> Launch<'a> {
    fn new(stage: &'a LoadedStage, kernel: &Kernel) -> Self {
        let problem = problem(kernel);
        let plain = stage.prepare(&kernel.variant, &problem).unwrap();
        let prepared = if kernel.lse {
            plain.with_lse().unwrap()
        } else {
            plain
        };
        let family = match kernel.dtype {
            Dtype::E4m3 => Family::RandomScales,
            _ => Family::Normal,
        };
        let inputs = Inputs::generate(&problem, family, 1);
        Self {
            prepared,
            staged: Staged::new(&inputs, Layout::Packed),
        }
    }

    /// Runs the g++ build and the PTX under a schedule. Returns what differs.
    fn difference(&self, program: &Program, schedule: Schedule) -> Option<String> {
        let (prepared, staged) = (&self.prepared, &self.staged);
        let built = emulated::execute(prepared, staged, schedule, None).unwrap();
        match emulated::execute_ptx(prepared, staged, schedule, program) {
            Err(fault) => Some(fault.to_string()),
            Ok(run) => outputs_differ(&run, &built),
        }
    }

    /// Traces the PTX. Returns the hazards.
    fn hazards(&self, program: &Program) -> Vec<String> {
        let all = Selection::default();
        let traced =
            emulated::trace_ptx(&self.prepared, &self.staged, SCHEDULES[0], program, &all).unwrap();
        let hazards = traced.report.hazards.iter();
        hazards.map(ToString::to_string).collect()
    }
}

/// Compares every kernel of a stage under one of the schedules, and traces the first kernel of each
/// family.
fn assert_same_bits(attention: &'static dyn Attention) {
    let stage = LoadedStage::load(attention).unwrap();
    let name = stage.info().id;
    let Some(text) = compiled(name) else {
        return;
    };
    let module = Module::parse(&format!("{name}.ptx"), &text).unwrap();
    let (mut wrong, mut traced) = (Vec::new(), BTreeSet::new());
    for (index, kernel) in stage.kernels.iter().enumerate() {
        let program = module.entry(&kernel.symbol).unwrap();
        let launch = Launch::new(&stage, kernel);
        let schedule = SCHEDULES[index % SCHEDULES.len()];
        if let Some(difference) = launch.difference(&program, schedule) {
            wrong.push(format!("{} {schedule:?}: {difference}", kernel.symbol));
        }
        if traced.insert(kernel.family.clone()) {
            for hazard in launch.hazards(&program) {
                wrong.push(format!("{} traced: {hazard}", kernel.symbol));
            }
        }
    }
    println!(
        "{name}: {} kernels, {} traced",
        stage.kernels.len(),
        traced.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An edit of the text that computes something else must show: the gate can fail.
#[test]
fn an_instruction_that_is_another_one_differs() {
    let stage = LoadedStage::load(&stage7_wgmma::Wgmma).unwrap();
    let Some(text) = compiled(stage.info().id) else {
        return;
    };
    let edited = text.replacen("max.f32", "min.f32", usize::MAX);
    let module = Module::parse("edited.ptx", &edited).unwrap();
    let kernel = &stage.kernels[0];
    let program = module.entry(&kernel.symbol).unwrap();
    let difference = Launch::new(&stage, kernel).difference(&program, SCHEDULES[0]);
    assert!(difference.is_some());
}

/// Prints the time of a traced launch over 512 keys, beside that of the g++ build.
#[test]
#[ignore = "a measurement"]
fn time_of_a_traced_launch() {
    for attention in [
        &stage5_swizzle::Swizzle as &'static dyn Attention,
        &stage7_wgmma::Wgmma,
    ] {
        let stage = LoadedStage::load(attention).unwrap();
        let Some(text) = compiled(stage.info().id) else {
            return;
        };
        let module = Module::parse("kernel.ptx", &text).unwrap();
        let kernel = &stage.kernels[0];
        let program = module.entry(&kernel.symbol).unwrap();
        let shape = parse_shape(&format!("1x1x512x{}", kernel.head_dim)).unwrap();
        let problem = Problem::new(shape, kernel.dtype, Mask::Full).unwrap();
        let prepared = stage.prepare(&kernel.variant, &problem).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 1);
        let staged = Staged::new(&inputs, Layout::Packed);
        let (schedule, all) = (SCHEDULES[0], Selection::default());
        let times = [
            time(|| {
                drop(emulated::execute_ptx(
                    &prepared, &staged, schedule, &program,
                ))
            }),
            time(|| {
                drop(emulated::trace_ptx(
                    &prepared, &staged, schedule, &program, &all,
                ))
            }),
            time(|| drop(emulated::execute(&prepared, &staged, schedule, None))),
            time(|| drop(emulated::execute_traced(&prepared, &staged, schedule, &all))),
        ];
        println!(
            "{}: PTX plain, traced; g++ plain, traced: {times:?}",
            kernel.symbol
        );
    }
}

fn time(run: impl FnOnce()) -> Duration {
    let start = Instant::now();
    run();
    start.elapsed()
}

macro_rules! stages {
    ($($name:ident $stage:expr;)*) => {
        $(#[test]
        fn $name() {
            assert_same_bits(&$stage);
        })*
    };
}

stages! {
    scalar stage0_scalar::Scalar;
    cp_async stage1_cpasync::CpAsync;
    simd_pv stage2_simd_pv::SimdPv;
    wmma_pv stage3_wmma_pv::WmmaPv;
    warp_specialised stage4_warpspec::WarpSpec;
    swizzled stage5_swizzle::Swizzle;
    tma stage6_tma::Tma;
    wgmma stage7_wgmma::Wgmma;
    overlapped stage8_overlap::Overlap;
    cluster stage9_cluster::Cluster;
    fp8 stage10_fp8::Fp8;
    spread stage11_spread::Spread;
    decode stage12_decode::Decode;
    persistent stage13_persistent::Persistent;
    served stage14_served::Served;
}
