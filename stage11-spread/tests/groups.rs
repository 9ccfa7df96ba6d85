//! Causal blocks start by groups of heads whose K and V stay in L2 together. Three heads of so many keys are a group of two and
//! one of one: no named shape has a last group that is not whole.

use common::inputs::Family;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::tier0::{Case, SCHEDULES, failures_on};
use stage11_spread::Spread;

#[test]
fn heads_that_do_not_fill_their_group_are_computed_too() {
    // 65 rows: two tiles, one of a single row.
    let shape = Shape {
        heads_kv: 1,
        seq_kv: 1 << 16,
        ..Shape::bhsd(1, 3, 65, 64)
    };
    let case = Case {
        problem: Problem::new(shape, Dtype::F16, Mask::Causal).unwrap(),
        family: Family::Normal,
        schedules: &SCHEDULES[..1],
    };
    let stage = stage_tests::load(&Spread);
    assert_eq!(
        failures_on(&stage, "spread-64x128-k2", &case, &[]),
        Vec::<String>::new()
    );
}
