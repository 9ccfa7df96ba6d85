//! Warps that come late, where rings of tiles are filled several times: who frees a slot must know
//! that all that wait for it have gone on, or a late one waits by parity for a phase that never
//! ends.

use crate::tier0::failures_on;
use common::inputs::Family;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::{Attention, LoadedStage};
use common::tier0::Case;
use emulator::Schedule;

/// The schedule in which another warp of each block is late.
const SCHEDULES: [Schedule; 1] = [Schedule::Starving(1)];

/// Few rows, so that most warps of a block have none, in several blocks; and more tiles than twice
/// the slots of the longest ring (6 of 64 keys or 4 of 128, and with E4M3 at head_dim 128 4 of 64).
fn problems() -> [(Problem, Family); 3] {
    let problem = |heads, seq_kv, head_dim, dtype| {
        let shape = Shape {
            seq_kv,
            ..Shape::bhsd(1, heads, 17, head_dim)
        };
        Problem::new(shape, dtype, Mask::Full).expect("these are valid")
    };
    [
        (problem(4, 1100, 64, Dtype::F16), Family::Normal),
        (problem(4, 800, 128, Dtype::E4m3), Family::Normal),
        // A kernel may choose its way by the scales of E4M3.
        (problem(4, 1100, 64, Dtype::E4m3), Family::Large),
    ]
}

/// Fails unless every variant is right where one warp of each block runs only when no other one
/// can.
pub fn late_warps(attention: &'static dyn Attention) {
    let stage = LoadedStage::load(attention).expect("the stage loads");
    let mut failures = Vec::new();
    for (plain, family) in problems() {
        for variant in stage.variants() {
            let Ok(problem) = plain.in_cache(stage.cache_of(variant)) else {
                continue;
            };
            let case = Case {
                problem,
                family,
                schedules: &SCHEDULES,
            };
            if stage.prepare(variant, &problem).is_ok() {
                failures.extend(failures_on(&stage, variant, &case, &[]));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
