//! Copies of a thread that it waits for.

use super::{Plan, stores};
use crate::experiment::{Experiment, THREADS};
use crate::operands::{Draw, Holds};

/// A slot of 16 bytes for each thread, at `%r60`, and an mbarrier, at `%r62`.
const PLACES: &str = ".shared .align 128 .b8 slots[2048];\n.shared .align 8 .b8 objects[1024];\n";
const PLACE: &str = "mov.u32 %r61, %tid.x;\nshl.b32 %r60, %r61, 4;\nmov.u32 %r62, slots;\n\
                     add.u32 %r60, %r60, %r62;\nshl.b32 %r61, %r61, 3;\nmov.u32 %r62, objects;\n\
                     add.u32 %r62, %r62, %r61;\n\
                     mov.b32 %r9, 7;\nst.shared.v4.b32 [%r60], {%r9, %r9, %r9, %r9};\n";

fn landed() -> String {
    "ld.shared.v4.b32 {%r0, %r1, %r2, %r3}, [%r60];\n".to_owned() + &stores(0, 4)
}

/// Copies some of 4 bytes, and zeros behind them.
fn words() -> Experiment {
    let body = PLACE.to_owned()
        + "ld.global.b32 %r10, [%from+8];\n\
           cp.async.ca.shared.global [%r60], [%from], 4, %r10;\ncp.async.wait_all;\n"
        + &landed();
    let plan = Plan::new("cp.async.ca.shared.global [%r1], [%rd1], 4, %r2", 4, body)
        .also(&["cp.async.wait_all"])
        .variables(PLACES);
    let mut draw = plan.draw();
    let sets = 0..plan.sets;
    let operands = sets.flat_map(|_| word_and_bytes(&mut draw)).collect();
    plan.with(2, operands)
}

fn word_and_bytes(draw: &mut Draw) -> [u64; 2] {
    [draw.word(), draw.below(5)]
}

/// Commits two groups, and reads the first when one may be under way.
fn groups() -> Experiment {
    let body = PLACE.to_owned()
        + "cp.async.cg.shared.global.L2::128B [%r60], [%from], 16;\ncp.async.commit_group;\n\
           cp.async.commit_group;\ncp.async.wait_group 1;\n"
        + &landed();
    Plan::new(
        "cp.async.cg.shared.global.L2::128B [%r1], [%rd1], 16",
        4,
        body,
    )
    .also(&["cp.async.commit_group", "cp.async.wait_group 1"])
    .variables(PLACES)
    .on(&[Holds::Integer(64); 2])
}

/// Copies that arrive at an mbarrier.
fn arrivals() -> Experiment {
    let body = PLACE.to_owned()
        + "mbarrier.init.shared.b64 [%r62], 1;\n\
           cp.async.cg.shared.global [%r60], [%from], 16;\n\
           cp.async.mbarrier.arrive.noinc.shared.b64 [%r62];\n\
           again:\n\
           mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r62], 0;\n@!%p0 bra again;\n"
        + &landed();
    Plan::new("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1]", 4, body)
        .variables(PLACES)
        .sets(THREADS as usize)
        .on(&[Holds::Integer(64); 2])
}

pub fn experiments() -> Vec<Experiment> {
    vec![words(), groups(), arrivals()]
}
