//! The stage under the emulator's judge: which of its barriers it needs, and what it counts. (That it has no hazard is
//! part of tier T0.)

use common::device::Staged;
use common::device::emulated::{Selection, trace};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::LoadedStage;
use common::tier0::SCHEDULES;
use emulator::{Schedule, Suppress, TraceReport};
use stage0_scalar::Scalar;
use std::fmt::Write;
use std::time::Instant;

const VARIANTS: [&str; 2] = ["scalar-32x64", "wmma-qk-32x64"];

/// Counters are exact for one host compiler; the snapshot is of this version of GCC.
const PINNED_GCC: u32 = 12;

fn traced(variant: &str, shape: Shape, schedule: Schedule, selection: &Selection<'_>) -> TraceReport {
    let stage = LoadedStage::load(&Scalar).unwrap();
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    let prepared = stage.prepare(variant, &problem).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let staged = Staged::new(&inputs, Layout::Packed);
    trace(&prepared, &staged, schedule, selection).unwrap().expect("GCC builds the traced kernel")
}

#[test]
fn without_a_barrier_there_is_a_hazard() {
    let shape = Shape { batch: 1, heads_q: 1, heads_kv: 1, seq_q: 33, seq_kv: 129, head_dim: 64 };
    for variant in VARIANTS {
        let run = |suppress| {
            let selection = Selection { suppress, ..Selection::default() };
            traced(variant, shape, Schedule::InOrder, &selection)
        };
        let whole = run(None);
        assert_eq!(whole.hazards, [], "{variant}");
        let is_redundant = |place| run(Some(Suppress { site: place })).hazards.is_empty();
        let redundant: Vec<_> = whole.sync_sites.iter().filter(|site| is_redundant(site.place.clone())).collect();
        // Q's own barrier: the scalar family reads Q in the loop only, behind the barriers of the first tile.
        assert_eq!(redundant.len(), usize::from(variant == "scalar-32x64"), "{variant}: {redundant:?}");
    }
}

#[test]
fn counters_are_as_recorded() {
    let mut text = String::new();
    let corners: &[[u32; 3]] = &[[0, 0, 0], [15, 7, 0]];
    let cases = [("small", Shape::bhsd(1, 1, 32, 64), None), ("mission", Shape::bhsd(1, 8, 512, 64), Some(corners))];
    for (name, shape, blocks) in cases {
        for variant in VARIANTS {
            let run = |schedule| {
                let selection = Selection { blocks, ..Selection::default() };
                traced(variant, shape, schedule, &selection).counted
            };
            let counted = run(SCHEDULES[0]);
            for schedule in SCHEDULES {
                assert_eq!(run(schedule), counted, "{name}, {variant}, {schedule:?}");
            }
            let launch = counted.launch().expect("full tiles make all blocks alike");
            let blocks = counted.launch_blocks;
            let bytes = counted.shared_bytes_touched;
            writeln!(text, "{name}, {variant}: {blocks} blocks, each in {bytes} bytes of shared memory").unwrap();
            writeln!(text, "{launch}\n").unwrap();
        }
    }
    let stage = LoadedStage::load(&Scalar).unwrap();
    let compiler = &stage.report.emulated.compiler;
    if (compiler.family.as_str(), compiler.major) == ("gnu", Some(PINNED_GCC)) {
        insta::assert_snapshot!(text.trim_end());
    } else {
        println!("snapshot not compared: it holds for GCC {PINNED_GCC}, this is {}", compiler.description);
    }
}

#[test]
#[ignore = "a measurement"]
fn cost_of_the_mission_shape() {
    for variant in VARIANTS {
        let start = Instant::now();
        let report = traced(variant, Shape::bhsd(1, 8, 512, 64), Schedule::InOrder, &Selection::default());
        println!("{variant}: {:.2} s, {} hazards", start.elapsed().as_secs_f64(), report.hazards.len());
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    println!("{}", status.lines().find(|line| line.starts_with("VmHWM")).unwrap());
}
