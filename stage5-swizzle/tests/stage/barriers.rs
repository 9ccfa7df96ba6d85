//! racecheck seems to go by how many barriers a thread has passed: between groups that passed
//! unequal numbers it misses what `__syncthreads` orders.

use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, Mask, Problem, parse_shape};

/// Gate C7's problem, in which the second key group sees keys of the first of two tiles alone.
#[test]
fn key_groups_for_an_l4_pass_as_many_barriers_each() {
    let shape = parse_shape("1x2:1x33:65x64").unwrap();
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let stage = stage_tests::load(&stage5_swizzle::Swizzle);
    let prepared = stage.prepare("swizzle-80x64-k2", &problem).unwrap();
    let counted = count(&prepared, &Staged::new(&inputs, Layout::Packed)).unwrap();
    let (heads, tiles, warps) = (2, 2, 10);
    assert_eq!(counted.counters.named_barriers, heads * tiles * warps);
}
