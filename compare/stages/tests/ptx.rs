//! Gate B2: what nvcc emits for a kernel computes, in the interpreter, the bits that the g++ build
//! computes. Where nvcc is missing a test says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use common::device::emulated::{self, Selection};
use common::device::{Execution, Staged};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, Kernel, LoadedStage};
use common::tier0::SCHEDULES;
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
    Some(format!(
        "{differing} of {} bytes differ",
        ours.output.len()
    ))
}

/// Compares a kernel's PTX with its g++ build. Returns what differs.
fn differences(stage: &LoadedStage, kernel: &Kernel, program: &Program) -> Vec<String> {
    let problem = problem(kernel);
    let Ok(prepared) = stage.prepare(&kernel.variant, &problem) else {
        return Vec::new();
    };
    let family = match kernel.dtype {
        Dtype::E4m3 => Family::RandomScales,
        _ => Family::Normal,
    };
    let inputs = Inputs::generate(&problem, family, 1);
    let staged = Staged::new(&inputs, Layout::Packed);
    let mut found = Vec::new();
    let built = emulated::execute(&prepared, &staged, SCHEDULES[0], None).unwrap();
    for schedule in SCHEDULES {
        match emulated::execute_ptx(&prepared, &staged, schedule, program) {
            Err(fault) => found.push(format!("{} {schedule:?}: {fault}", kernel.symbol)),
            Ok(run) => {
                if let Some(difference) = outputs_differ(&run, &built) {
                    found.push(format!("{} {schedule:?}: {difference}", kernel.symbol));
                }
            }
        }
    }
    match emulated::trace_ptx(&prepared, &staged, SCHEDULES[0], program, &Selection::default()) {
        Err(fault) => found.push(format!("{} traced: {fault}", kernel.symbol)),
        Ok(traced) => {
            for hazard in traced.report.hazards {
                found.push(format!("{} traced: {hazard}", kernel.symbol));
            }
        }
    }
    found
}

fn assert_same_bits(attention: &'static dyn Attention) {
    let stage = LoadedStage::load(attention).unwrap();
    let name = stage.info().id;
    let Some(text) = compiled(name) else {
        return;
    };
    let module = Module::parse(&format!("{name}.ptx"), &text).unwrap();
    let mut found = Vec::new();
    for kernel in &stage.kernels {
        let program = module.entry(&kernel.symbol).unwrap();
        let start = std::time::Instant::now();
        let differing = differences(&stage, kernel, &program);
        println!(
            "{}: {} instructions, {} differences, {:?}",
            kernel.symbol,
            program.instructions(),
            differing.len(),
            start.elapsed()
        );
        found.extend(differing);
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
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
