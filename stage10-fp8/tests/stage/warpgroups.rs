//! The tests of stages with a warpgroup that loads; see `stage-tests`.

use common::problem::Dtype;
use stage10_fp8::Fp8;

#[test]
fn blocks_that_share_registers_are_launched_with_all_that_they_share() {
    stage_tests::shared_registers(&Fp8);
}

#[test]
fn heads_that_do_not_fill_their_group_are_computed_too() {
    stage_tests::groups_of_heads(&Fp8, "fp8-scores-64x128", Dtype::E4m3);
}

#[test]
fn rows_that_do_not_fill_their_blocks_are_computed_once() {
    stage_tests::rows_of_blocks(&Fp8, "fp8-scores-256x64", Dtype::E4m3);
}
