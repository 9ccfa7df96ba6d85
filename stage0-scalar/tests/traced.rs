//! The stage under the emulator's judge: which of its barriers it needs.

use common::device::Staged;
use common::device::emulated::{Selection, trace};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::LoadedStage;
use emulator::{Schedule, Suppress, TraceReport};
use stage0_scalar::Scalar;

const VARIANTS: [&str; 2] = ["scalar-32x64", "wmma-qk-32x64"];

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
