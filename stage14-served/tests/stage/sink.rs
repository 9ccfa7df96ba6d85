//! Rows under a sink that is far above their scores.

use common::fuzz::{Case, run};
use common::verdict::GateResult;
use stage_tests::load;
use stage14_served::Served;

/// The row's only key weighs about 2^-130: a bf16 output holds its products with V, and an exponential whose subnormal results are
/// flushed to 0 would not.
#[test]
fn weights_that_are_subnormal_give_subnormal_outputs() {
    let line = "1x2x1:58x128+window=0:*+sinks bf16 full all-negative:199 scale=1";
    let case: Case = line.parse().unwrap();
    let stage = load(&Served);
    for variant in stage.variants() {
        let checked = run(&stage, variant, &case, None).unwrap();
        let failed: Vec<_> = checked.gates.iter().filter(|gate| gate.is_fail()).collect();
        assert_eq!(failed, Vec::<&GateResult>::new(), "{variant}");
    }
}
