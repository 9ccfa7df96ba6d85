//! Exchanges of lanes.

use std::fmt::Write;

use super::{Plan, SETS, loads, stores};
use crate::experiment::Experiment;
use crate::operands::{Draw, Holds};

/// Value, lane, and clamp with the mask of segments.
fn shuffles() -> Vec<Experiment> {
    let rows = [
        ("shfl.sync.bfly.b32 %r1|%p1, %r2, 1, 31, -1", "bfly"),
        ("shfl.sync.idx.b32 %r1, %r2, 1, 31, -1", "idx"),
        ("shfl.sync.up.b32 %r1, %r2, 1, 0, -1", "up"),
        ("shfl.sync.down.b32 %r1, %r2, 1, 31, -1", "down"),
    ];
    rows.map(|(row, mode)| {
        let body = loads(3)
            + &format!(
                "and.b32 %r2, %r2, 0x1f1f;\n\
                 shfl.sync.{mode}.b32 %r3|%p0, %r0, %r1, %r2, -1;\n\
                 selp.b32 %r4, 1, 0, %p0;\n"
            )
            + &stores(3, 2);
        Plan::new(row, 2, body).on(&[Holds::Integer(32); 3])
    })
    .into()
}

/// Draws a predicate for each lane of a warp: of all, of none, of all but one, of one, of some.
fn predicates(draw: &mut Draw) -> [u64; 32] {
    let kind = draw.below(6);
    let special = draw.below(32);
    std::array::from_fn(|lane| match kind {
        0 => 1,
        1 => 0,
        2 => u64::from(lane as u64 != special),
        3 => u64::from(lane as u64 == special),
        _ => draw.below(2),
    })
}

fn votes() -> Vec<Experiment> {
    let rows = [
        ("vote.sync.any.pred %p1, %p2, -1", "any.pred %p1, %p0"),
        ("vote.sync.all.pred %p1, !%p2, -1", "all.pred %p1, !%p0"),
        ("vote.sync.uni.pred %p1, %p2, -1", "uni.pred %p1, %p0"),
        ("vote.sync.ballot.b32 %r1, %p2, -1", "ballot.b32 %r1, %p0"),
    ];
    rows.map(|(row, call)| {
        let to_bits = if call.starts_with("ballot") {
            ""
        } else {
            "selp.b32 %r1, 1, 0, %p1;\n"
        };
        let body = loads(1)
            + &format!("setp.ne.b32 %p0, %r0, 0;\nvote.sync.{call}, -1;\n{to_bits}")
            + &stores(1, 1);
        let plan = Plan::new(row, 1, body);
        let mut draw = plan.draw();
        let operands = (0..SETS / 32).flat_map(|_| predicates(&mut draw)).collect();
        plan.with(1, operands)
    })
    .into()
}

fn reductions() -> Experiment {
    let mut body = loads(1);
    let all = [
        "add.u32", "min.u32", "max.u32", "add.s32", "min.s32", "max.s32", "and.b32", "or.b32",
        "xor.b32",
    ];
    for (word, name) in all.into_iter().enumerate() {
        let _ = writeln!(body, "redux.sync.{name} %r{}, %r0, -1;", word + 1);
    }
    body += &stores(1, all.len());
    Plan::new("redux.sync.max.s32 %r1, %r2, -1", all.len(), body).on(&[Holds::Integer(32)])
}

/// Counts the lanes that are elected: which one is, is open.
fn election() -> Experiment {
    let body = "elect.sync _|%p0, -1;\nvote.sync.ballot.b32 %r0, %p0, -1;\npopc.b32 %r1, %r0;\n"
        .to_owned()
        + &stores(1, 1);
    Plan::new("elect.sync _|%p1, -1", 1, body)
        .part("lanes elected")
        .on(&[Holds::Predicate])
}

pub fn experiments() -> Vec<Experiment> {
    let mut all = shuffles();
    all.extend(votes());
    all.extend([reductions(), election()]);
    all
}
