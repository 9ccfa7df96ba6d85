//! Cases that `compare fuzz` found.

use crate::load;
use common::fuzz::{Case, run};
use common::stage::Attention;
use common::verdict::GateResult;

/// Fails unless every variant passes all gates on a case, as `compare fuzz --case` takes it without
/// the variant: with K and V of the type that it takes under f16 and bf16.
pub fn found_case(attention: &'static dyn Attention, line: &str) {
    let plain: Case = line.parse().unwrap();
    let stage = load(attention);
    for variant in stage.variants() {
        let case = Case {
            problem: plain.problem.in_cache(stage.cache_of(variant)).unwrap(),
            ..plain
        };
        let checked = run(&stage, variant, &case, None).unwrap();
        let failed: Vec<_> = checked.gates.iter().filter(|gate| gate.is_fail()).collect();
        assert_eq!(failed, Vec::<&GateResult>::new(), "{variant} {line}");
    }
}
