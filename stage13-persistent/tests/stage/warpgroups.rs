//! The tests of stages with a warpgroup that loads; see `stage-tests`.

use common::problem::Dtype;
use stage13_persistent::Persistent;

#[test]
fn blocks_that_share_registers_are_launched_with_all_that_they_share() {
    stage_tests::shared_registers(&Persistent);
}

#[test]
fn no_further_tile_looks_for_maxima() {
    stage_tests::lazy_maxima(&Persistent, &["persistent", "packed"]);
}

#[test]
fn rows_that_do_not_fill_an_item_are_those_of_no_other() {
    stage_tests::rows_of_blocks(&Persistent, "persistent-128x128", Dtype::F16);
    stage_tests::rows_of_blocks(&Persistent, "persistent-256x64", Dtype::Bf16);
}
