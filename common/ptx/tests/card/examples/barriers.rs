//! Barriers and mbarriers, by what threads see of each other's writes, and by phases.

use super::{Plan, loads, stores};
use crate::experiment::{Experiment, THREADS};
use crate::operands::{Draw, Holds};

/// A word for each thread; `%r60` is the address of this one's, `%r61` the thread.
const PLACES: &str = ".shared .align 128 .b8 places[512];\n";
const PLACE: &str = "mov.u32 %r61, %tid.x;\nshl.b32 %r60, %r61, 2;\nmov.u32 %r62, places;\n\
                     add.u32 %r60, %r60, %r62;\n";

/// Each thread reads the word of another one, whose number differs in the bits of `mask`.
fn exchange(row: &'static str, before: &str, barrier: &str, mask: u32) -> Plan {
    let body = PLACE.to_owned()
        + &loads(1)
        + before
        + &format!(
            "st.shared.b32 [%r60], %r0;\n{barrier}\n\
             xor.b32 %r63, %r61, {mask};\nshl.b32 %r63, %r63, 2;\nadd.u32 %r63, %r62, %r63;\n\
             ld.shared.b32 %r1, [%r63];\n"
        )
        + &stores(1, 1)
        + "bar.sync 0;\n";
    Plan::new(row, 1, body).variables(PLACES)
}

/// The first warp of two writes and goes on; the second waits, and reads.
fn arrival() -> Experiment {
    let body = PLACE.to_owned()
        + &loads(1)
        + "shr.u32 %r2, %r61, 6;\nadd.u32 %r2, %r2, 1;\n\
           and.b32 %r3, %r61, 32;\nsetp.ne.b32 %p0, %r3, 0;\nmov.b32 %r1, 9;\n\
           @%p0 bra reader;\n\
           st.shared.b32 [%r60], %r0;\nbar.arrive %r2, 64;\nbra both;\n\
           reader:\nbar.sync %r2, 64;\n\
           ld.shared.b32 %r1, [%r60+-128];\n\
           both:\n"
        + &stores(1, 1)
        + "bar.sync 0;\n";
    Plan::new("bar.arrive 1, 64", 1, body)
        .variables(PLACES)
        .on(&[Holds::Integer(32)])
}

fn exchanges() -> Vec<Experiment> {
    let word = [Holds::Integer(32)];
    let halves = "shr.u32 %r2, %r61, 6;\nadd.u32 %r2, %r2, 1;\n";
    vec![
        exchange("bar.sync 0", "", "bar.sync 0;", 127).on(&word),
        exchange(
            "barrier.sync.aligned 1, 64",
            halves,
            "barrier.sync.aligned %r2, 64;",
            63,
        )
        .on(&word),
        exchange(
            "bar.warp.sync 0xffffffff",
            "",
            "bar.warp.sync 0xffffffff;",
            31,
        )
        .on(&word),
        arrival(),
        exchange(
            "barrier.cluster.arrive.release.aligned",
            "",
            "barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;",
            127,
        )
        .also(&["barrier.cluster.wait.acquire.aligned"])
        .on(&word),
    ]
}

/// An mbarrier for each thread; `%r60` is the address of this one's.
const OBJECTS: &str = ".shared .align 16 .b8 objects[1024];\n.shared .align 16 .b8 slots[2048];\n";
const OBJECT: &str = "mov.u32 %r61, %tid.x;\nshl.b32 %r60, %r61, 3;\nmov.u32 %r62, objects;\n\
                      add.u32 %r60, %r60, %r62;\n";

fn arrivals(draw: &mut Draw) -> u64 {
    1 + draw.below(4)
}

/// Arrives eight times, and tests both parities before and after each.
fn phases() -> Experiment {
    let test = "mbarrier.test_wait.parity.shared.b64 %p0, [%r60], 0;\n\
                mbarrier.test_wait.parity.shared.b64 %p1, [%r60], 1;\n\
                selp.b32 %r2, 1, 0, %p0;\nselp.b32 %r3, 2, 0, %p1;\n\
                shl.b32 %r1, %r1, 2;\nor.b32 %r1, %r1, %r2;\nor.b32 %r1, %r1, %r3;\n";
    let mut body = OBJECT.to_owned()
        + &loads(1)
        + "mbarrier.init.shared.b64 [%r60], %r0;\nmov.b32 %r1, 0;\n"
        + test;
    for _ in 0..8 {
        body += "mbarrier.arrive.shared.b64 _, [%r60];\n";
        body += test;
    }
    body += &stores(1, 1);
    Plan::new("mbarrier.init.shared.b64 [%r1], 1", 1, body)
        .also(&[
            "mbarrier.arrive.shared.b64 _, [%r1]",
            "mbarrier.test_wait.parity.shared.b64 %p1, [%r1], 0",
        ])
        .variables(OBJECTS)
        .sets(THREADS as usize)
        .drawn(1, arrivals)
}

/// Waits until a phase is over, which it is after as many arrivals as the object counts.
fn waits() -> Experiment {
    let body = OBJECT.to_owned()
        + &loads(1)
        + "mbarrier.init.shared.b64 [%r60], 1;\nmov.b32 %r1, 0;\n\
           mbarrier.arrive.shared.b64 _, [%r60];\n\
           again:\n\
           mbarrier.try_wait.parity.shared::cta.b64 %p0, [%r60], 0;\n@!%p0 bra again;\n\
           mbarrier.test_wait.parity.shared.b64 %p1, [%r60], 1;\nselp.b32 %r1, 1, 0, %p1;\n"
        + &stores(0, 2);
    let row = "mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0";
    Plan::new(row, 2, body)
        .variables(OBJECTS)
        .sets(THREADS as usize)
        .on(&[Holds::Integer(32)])
}

/// Each block of a cluster stores 16 bytes to the other one and waits for those that it gets; the
/// second changes its first word. Hopper has the instruction in a cluster's launch alone.
pub fn asynchronous_store() -> Experiment {
    let body = OBJECT.to_owned()
        + &loads(4)
        + "mov.u32 %r65, %cluster_ctarank;\nxor.b32 %r0, %r0, %r65;\n\
           setp.ne.b32 %p2, %r65, 0;\nxor.b32 %r65, %r65, 1;\n\
           mbarrier.init.shared.b64 [%r60], 1;\nfence.mbarrier_init.release.cluster;\n\
           barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;\n\
           mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r60], 16;\n\
           shl.b32 %r63, %r61, 4;\nmov.u32 %r64, slots;\nadd.u32 %r63, %r64, %r63;\n\
           mapa.shared::cluster.u32 %r66, %r63, %r65;\nmapa.shared::cluster.u32 %r67, %r60, %r65;\n\
           st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r66], {%r0, %r1, %r2, \
           %r3}, [%r67];\n\
           again:\n\
           mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p0, [%r60], 0;\n\
           @!%p0 bra again;\n\
           @%p2 bra stored;\n\
           ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%r63];\n"
        + &stores(4, 4)
        + "stored:\n";
    let row = "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {%r2, %r3, \
               %r4, %r5}, [%r6]";
    Plan::new(row, 4, body)
        .clustered()
        .also(&[
            "fence.mbarrier_init.release.cluster",
            "barrier.cluster.arrive.relaxed.aligned",
            "mapa.shared::cluster.u32 %r1, %r2, %r3",
            "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 1024",
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r1], 0",
        ])
        .variables(OBJECTS)
        .sets(THREADS as usize)
        .on(&[Holds::Integer(32); 4])
}

pub fn experiments() -> Vec<Experiment> {
    let mut all = exchanges();
    all.extend([phases(), waits()]);
    all
}
