//! The tests of stages with a warpgroup that loads; see `stage-tests`.

use common::problem::{Dtype, Mask, Problem, Shape};
use stage11_spread::Spread;

#[test]
fn blocks_that_share_registers_are_launched_with_all_that_they_share() {
    stage_tests::shared_registers(&Spread);
}

#[test]
fn heads_that_do_not_fill_their_group_are_computed_too() {
    stage_tests::groups_of_heads(&Spread, "spread-64x128-k2", Dtype::F16);
}

#[test]
fn rows_that_do_not_fill_their_blocks_are_computed_once() {
    stage_tests::rows_of_blocks(&Spread, "spread-256x64", Dtype::F16);
}

#[test]
fn rows_that_lie_apart_are_computed_once() {
    stage_tests::rows_of_blocks(&Spread, "zigzag-256x64", Dtype::F16);
}

#[test]
fn blocks_of_rows_that_lie_apart_have_the_same_work() {
    // In tiles of 64 rows and 64 keys, of which the groups of 64 rows have 1, 2, 3 and so on.
    let work = |variant, groups: usize| {
        let shape = Shape::bhsd(1, 1, groups * 64, 64);
        let blocks = stage_tests::work_of_blocks(&Spread, variant, shape);
        let units = blocks.iter().map(|macs| macs / (2 * 64 * 64 * 64));
        units.collect::<Vec<_>>()
    };
    assert_eq!(work("spread-256x64", 8), [26, 10]);
    // The block that lacks a group has the rows that see fewest keys.
    assert_eq!(work("spread-256x64", 7), [22, 6]);
    assert_eq!(work("zigzag-256x64", 8), [18, 18]);
    assert_eq!(work("zigzag-256x64", 7), [14, 14]);
    assert_eq!(work("zigzag-128x64-k2", 8), [9; 4]);
}

/// The library's model of times counts them so.
#[test]
fn of_rows_that_lie_apart_twice_as_many_blocks_see_keys() {
    let stage = stage_tests::load(&Spread);
    // 512 queries, of which the last 128 see keys.
    let shape = Shape {
        seq_kv: 128,
        ..Shape::bhsd(1, 1, 512, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    for (variant, seeing) in [("spread-256x64", 1), ("zigzag-256x64", 2)] {
        let prepared = stage.prepare(variant, &problem).unwrap();
        assert_eq!(prepared.deals_rows, seeing == 2, "{variant}");
        let blocks = stage_tests::work_of_blocks(&Spread, variant, shape);
        let with_work = blocks.iter().filter(|&&macs| macs > 0).count();
        assert_eq!(with_work, seeing, "{variant}");
    }
}
