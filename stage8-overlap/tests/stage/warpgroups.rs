//! The tests of stages with a warpgroup that loads; see `stage-tests`.

use common::problem::Dtype;
use stage8_overlap::Overlap;

#[test]
fn blocks_that_share_registers_are_launched_with_all_that_they_share() {
    stage_tests::shared_registers(&Overlap);
}

#[test]
fn heads_that_do_not_fill_their_group_are_computed_too() {
    stage_tests::groups_of_heads(&Overlap, "overlap-lazy-64x128", Dtype::F16);
}

#[test]
fn rows_that_do_not_fill_their_blocks_are_computed_once() {
    stage_tests::rows_of_blocks(&Overlap, "overlap-lazy-256x64", Dtype::F16);
}

#[test]
fn lazy_presets_look_for_no_maxima_in_further_tiles() {
    stage_tests::lazy_maxima(&Overlap, &["overlap-lazy"]);
}
