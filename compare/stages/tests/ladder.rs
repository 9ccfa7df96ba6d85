//! Tests of what consecutive stages have in common, across crates: only this crate sees two stages
//! at once.

use common::device::Staged;
use common::device::emulated;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::serving::Serving;
use common::stage::LoadedStage;
use common::tier0::SCHEDULES;
use half::f16;

fn output(stage: &LoadedStage, variant: &str, problem: &Problem) -> Vec<f32> {
    let prepared = stage.prepare(variant, problem).unwrap();
    let inputs = Inputs::generate(problem, Family::Normal, 0);
    let staged = Staged::new(&inputs, Layout::Packed);
    let execution = emulated::execute(&prepared, &staged, SCHEDULES[0], None).unwrap();
    staged.values(&execution.output)
}

/// Returns the distance in units of the last place; both are finite.
fn ulps(a: f32, b: f32) -> u32 {
    ordinal(a).abs_diff(ordinal(b))
}

/// Returns the number of a half among all halves in order.
fn ordinal(value: f32) -> i32 {
    let bits = i32::from(f16::from_f32(value).to_bits());
    if bits & 0x8000 == 0 {
        bits
    } else {
        0x8000 - bits
    }
}

/// Stage 2 changes how P·V is dealt to lanes, not what is summed nor in which order (DESIGN: at
/// least 99 % of the outputs equal in every bit at the same preset, the rest within 1 ulp).
#[test]
fn stage_2_computes_what_stage_1_does() {
    let stage1 = LoadedStage::load(&stage1_cpasync::CpAsync).unwrap();
    let stage2 = LoadedStage::load(&stage2_simd_pv::SimdPv).unwrap();
    let mut compared = 0;
    for variant in stage2.variants() {
        let baseline = variant.replace("simd-pv", "cpasync");
        if !stage1.variants().contains(&baseline.as_str()) {
            continue;
        }
        for (head_dim, dtype, mask) in [
            (64, Dtype::F16, Mask::Full),
            (64, Dtype::E4m3, Mask::Causal),
            (128, Dtype::F16, Mask::Causal),
        ] {
            let shape = Shape {
                batch: 1,
                heads_q: 2,
                heads_kv: 1,
                seq_q: 113,
                seq_kv: 203,
                head_dim,
                serving: Serving::DENSE,
            };
            let problem = Problem::new(shape, dtype, mask).unwrap();
            let expected = output(&stage1, &baseline, &problem);
            let actual = output(&stage2, variant, &problem);
            let mut distances = Vec::new();
            for (a, b) in expected.iter().zip(&actual) {
                distances.push(ulps(*a, *b));
            }
            let equal = distances.iter().filter(|&&distance| distance == 0).count();
            let largest = distances.iter().max();
            assert!(
                equal * 100 >= distances.len() * 99,
                "{variant}: {equal} of {} are equal",
                distances.len()
            );
            assert!(
                largest <= Some(&1),
                "{variant}: up to {largest:?} ulps apart"
            );
            compared += 1;
        }
    }
    assert!(
        compared >= 2 * 3,
        "the stages share {} presets: too few to say anything",
        compared / 3
    );
}
