//! The registers that a warpgroup that loads gives to those that compute; see `stage-tests`.

use stage14_served::Served;

#[test]
fn blocks_that_share_registers_are_launched_with_all_that_they_share() {
    stage_tests::shared_registers(&Served);
}
