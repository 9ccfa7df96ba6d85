//! Gate B2: what nvcc emits for a kernel computes, in the interpreter, the bits that the g++ build
//! computes. Where nvcc is missing a test says so. One variant of each family, element type and
//! head_dim runs.

#[path = "ptx/planted.rs"]
mod planted;

use std::collections::{BTreeMap, BTreeSet};

use common::device::Staged;
use common::device::emulated::{self, Selection};
use common::gate::b2;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::stage::{Attention, Kernel, LoadedStage, Prepared};
use common::tier0::SCHEDULES;
use emulator::Schedule;
use ptx::{Module, Program};

/// Returns the PTX that a stage's machine code was assembled from.
fn compiled(stage: &LoadedStage) -> Option<String> {
    let Some(path) = stage.attention.artifacts().ptx else {
        let name = stage.info().id;
        assert!(std::env::var_os("CI").is_none(), "{name} has no PTX");
        println!("not checked: {name} was built without nvcc (`scripts/cuda-toolkit` installs it)");
        return None;
    };
    Some(std::fs::read_to_string(path).unwrap())
}

/// Returns a problem with ragged tiles, some of which are masked.
fn problem(stage: &LoadedStage, kernel: &Kernel) -> Problem {
    let head_dim = kernel.head_dim;
    let extents = format!("1x2:1x113:203x{head_dim}");
    let shape = parse_shape(&extents).unwrap();
    let plain = Problem::new(shape, kernel.dtype, Mask::Causal).unwrap();
    plain.in_cache(stage.attention.cache(kernel)).unwrap()
}

/// A kernel's problem in memory.
struct Launch<'a> {
    prepared: Prepared<'a>,
    staged: Staged,
}

impl<'a> Launch<'a> {
    fn new(stage: &'a LoadedStage, kernel: &Kernel, problem: &Problem) -> Self {
        let plain = stage.prepare(&kernel.variant, problem).unwrap();
        let prepared = if kernel.lse {
            plain.with_lse().unwrap()
        } else {
            plain
        };
        let family = match kernel.dtype {
            Dtype::E4m3 => Family::RandomScales,
            _ => Family::Normal,
        };
        let inputs = Inputs::generate(problem, family, 1);
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
            Ok(interpreted) => {
                let judged = b2(&built, &interpreted);
                judged.is_fail().then_some(judged.reason)
            }
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

/// Returns the kernels that are compared: of each family, element type and head_dim one variant, the
/// next one of the family each time.
fn chosen(kernels: &[Kernel]) -> Vec<&Kernel> {
    let mut groups: BTreeMap<_, Vec<&Kernel>> = BTreeMap::new();
    for kernel in kernels {
        let key = (&kernel.family, kernel.head_dim, kernel.dtype);
        groups.entry(key).or_default().push(kernel);
    }
    let turns = groups.values().enumerate();
    turns
        .map(|(turn, group)| group[turn % group.len()])
        .collect()
}

/// Returns kernels of a stage with a problem each: those that are chosen, and the first that takes
/// each of the served shapes.
fn launches<'a>(stage: &'a LoadedStage, served: &[&str]) -> Vec<(&'a Kernel, Problem)> {
    let mut launches = Vec::new();
    for kernel in chosen(&stage.kernels) {
        launches.push((kernel, problem(stage, kernel)));
    }
    for shape in served {
        let problem = Problem::new(parse_shape(shape).unwrap(), Dtype::Bf16, Mask::Causal).unwrap();
        let mut kernels = stage.kernels.iter();
        let kernel = kernels.find(|kernel| {
            (kernel.dtype, kernel.head_dim) == (Dtype::Bf16, problem.shape.compiled_head_dim())
                && stage.attention.cache(kernel) == problem.shape.serving.cache
        });
        launches.push((kernel.unwrap(), problem));
    }
    launches
}

/// Compares kernels of a stage under one of the schedules each, and traces the first of each family
/// and every served shape.
fn assert_same_bits(attention: &'static dyn Attention, served: &[&str]) {
    let stage = LoadedStage::load(attention).unwrap();
    let name = stage.info().id;
    let Some(text) = compiled(&stage) else {
        return;
    };
    let launches = launches(&stage, served);
    let module = Module::parse(&format!("{name}.ptx"), &text).unwrap();
    let (mut wrong, mut traced) = (Vec::new(), BTreeSet::new());
    for (index, (kernel, problem)) in launches.iter().enumerate() {
        let program = module.entry(&kernel.symbol).unwrap();
        let launch = Launch::new(&stage, kernel, problem);
        let schedule = SCHEDULES[index % SCHEDULES.len()];
        if let Some(difference) = launch.difference(&program, schedule) {
            wrong.push(format!("{} {schedule:?}: {difference}", kernel.symbol));
        }
        if traced.insert(kernel.family.clone()) || !problem.shape.serving.is_dense() {
            for hazard in launch.hazards(&program) {
                wrong.push(format!("{} traced: {hazard}", kernel.symbol));
            }
        }
    }
    println!(
        "{name}: {} launches, {} kernels, {} families traced",
        launches.len(),
        stage.kernels.len(),
        traced.len()
    );
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// An edit of the text that computes something else must show: the gate can fail.
#[test]
fn an_instruction_that_is_another_one_differs() {
    let stage = LoadedStage::load(&stage7_wgmma::Wgmma).unwrap();
    let Some(text) = compiled(&stage) else {
        return;
    };
    let edited = text.replacen("max.f32", "min.f32", usize::MAX);
    let module = Module::parse("edited.ptx", &edited).unwrap();
    let kernel = &stage.kernels[0];
    let program = module.entry(&kernel.symbol).unwrap();
    let difference =
        Launch::new(&stage, kernel, &problem(&stage, kernel)).difference(&program, SCHEDULES[0]);
    assert!(difference.is_some());
}

#[test]
fn a_traced_launch_over_512_keys_has_no_hazard() {
    let stage = LoadedStage::load(&stage7_wgmma::Wgmma).unwrap();
    let Some(text) = compiled(&stage) else {
        return;
    };
    let module = Module::parse("kernel.ptx", &text).unwrap();
    let kernel = &stage.kernels[0];
    let program = module.entry(&kernel.symbol).unwrap();
    let shape = parse_shape(&format!("1x1x512x{}", kernel.head_dim)).unwrap();
    let problem = Problem::new(shape, kernel.dtype, Mask::Full).unwrap();
    let launch = Launch::new(&stage, kernel, &problem);
    assert!(launch.hazards(&program).is_empty());
}

macro_rules! stages {
    ($($name:ident $stage:path $(, $served:literal)*;)*) => {
        $(#[test]
        fn $name() {
            assert_same_bits(&$stage, &[$($served),*]);
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
    served stage14_served::Served, "3x4:2x40:300x72+packed=even:1:2+window=60:0+sinks",
        "3x4:2x3:300x80+packed=even:1:2+page=16+sinks+cache=e4m3";
}
