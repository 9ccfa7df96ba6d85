//! Items of which no row sees a key.

use common::check::{Target, check, failures};
use common::inputs::Family;
use common::problem::{Dtype, Mask, Problem, parse_shape};
use common::tier0::SCHEDULES;
use emulator::Schedule;
use stage_tests::load;
use stage14_served::Served;

/// Of a tile without keys nothing was loaded, and O has 96 of its 128 columns: TMA stores those alone.
#[test]
fn rows_without_keys_are_stored_from_what_was_written() {
    let stage = load(&Served);
    let shape = parse_shape("1x1x65:1x96").unwrap();
    let plain = Problem::new(shape, Dtype::F16, Mask::Causal).unwrap();
    for variant in stage.variants() {
        let problem = plain.in_cache(stage.cache_of(variant)).unwrap();
        let target = Target::Emulated {
            schedules: &SCHEDULES,
            traced: &[Schedule::InOrder],
            suppress: None,
        };
        let outcome = check(&stage, variant, &problem, Family::Normal, target);
        assert_eq!(failures(outcome), [], "{variant}");
    }
}
