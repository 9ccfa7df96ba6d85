//! Which heads of E4M3 get their scores from codes.

use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, Shape};
use std::f32::consts::LOG2_E;

/// Half as many products make a score from codes; of as many as P·V takes, that is a quarter of
/// all.
#[test]
fn a_head_gets_scores_from_codes_up_to_the_largest_scale_of_its_size() {
    let stage = stage_tests::load(&stage5_swizzle::Swizzle);
    for (head_dim, largest) in [(64, 0.0625f32 / 528.0), (128, 0.0625 / 1056.0)] {
        let products = |variant: &str, fraction: f32| {
            let shape = Shape::bhsd(1, 1, 80, head_dim);
            let with_scale =
                |scale| Problem::with_scale(shape, Dtype::E4m3, Mask::Full, scale).unwrap();
            let Inputs { q, k, v, .. } = Inputs::generate(&with_scale(1.0), Family::Saturated, 0);
            let code_scale = q.scale(0, 0) * k.scale(0, 0);
            let problem = with_scale(largest * fraction / LOG2_E / code_scale);
            let inputs = Inputs::from_parts(&problem, q, k, v).unwrap();
            let prepared = stage.prepare(variant, &problem).unwrap();
            let counted = count(&prepared, &Staged::new(&inputs, Layout::Packed));
            counted.unwrap().counters.tensor_ops
        };
        let exact = products("swizzle-80x64-k2", 1.001);
        assert_eq!(products("swizzle-80x64-k2", 0.999) * 4, exact * 3);
        assert_eq!(
            products("swizzle-32x128-k4", 0.999),
            products("swizzle-32x128-k4", 1.001)
        );
    }
}
