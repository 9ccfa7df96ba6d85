//! Rows under a sink that is far above their scores.

use stage14_served::Served;

/// The row's only key weighs about 2^-130: a bf16 output holds its products with V, and an exponential whose subnormal results are
/// flushed to 0 would not.
#[test]
fn weights_that_are_subnormal_give_subnormal_outputs() {
    stage_tests::found_case(
        &Served,
        "1x2x1:58x128+window=0:*+sinks bf16 full all-negative:199 scale=1",
    );
}
