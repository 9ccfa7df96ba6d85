//! Loads, stores, atomics, addresses.

use std::fmt::Write;

use super::{Plan, loads, stores};
use crate::experiment::{Experiment, Format};
use crate::operands::Holds;

/// A place of 16 bytes for each thread.
const PLACES: &str = ".shared .align 128 .b8 places[2048];\n";

/// Takes this thread's place to `%r60`.
const PLACE: &str = "mov.u32 %r61, %tid.x;\nshl.b32 %r61, %r61, 4;\n\
                     mov.u32 %r60, places;\nadd.u32 %r60, %r60, %r61;\n";

fn vectors() -> Experiment {
    let body = "ld.global.nc.L1::evict_last.v4.f32 {%r0, %r1, %r2, %r3}, [%from+16];\n".to_owned()
        + &stores(0, 4)
        + "ld.global.v2.b64 {%d0, %d1}, [%from+32];\nst.global.v2.b64 [%to+32], {%d1, %d0};\n";
    let row = "ld.global.nc.L1::evict_last.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16]";
    Plan::new(row, 6, body).on(&[Holds::Integer(64); 6])
}

/// Loads of all widths, to registers of 64 bits.
fn widths() -> Experiment {
    let mut body = PLACE.to_owned() + "ld.global.b64 %d0, [%from];\nst.shared.b64 [%r60], %d0;\n";
    let all = ["s8", "u8", "b8", "s16", "u16", "b16", "s32", "u32", "b64"];
    for (word, of) in all.into_iter().enumerate() {
        let offset = match of {
            "b64" => 0,
            "s32" | "u32" => 4,
            "s16" | "u16" | "b16" => 2,
            _ => 3,
        };
        let _ = writeln!(
            body,
            "ld.shared.{of} %d1, [%r60+{offset}];\nst.global.b64 [%to+{}], %d1;",
            8 * word
        );
    }
    Plan::new("ld.shared.s8 %r1, [%r2]", all.len(), body)
        .variables(PLACES)
        .on(&[Holds::Integer(64)])
}

fn private() -> [Experiment; 2] {
    let parameter = "ld.param.u64 %d0, [results];\nsub.s64 %d0, %d0, %all_to;\n\
                     ld.param.u32 %r0, [sets];\nst.global.b64 [%to], %d0;\n\
                     st.global.b32 [%to+8], %r0;\n";
    let local = loads(2)
        + "mov.u64 %d0, mine;\nst.local.u32 [%d0], %r0;\nst.local.u32 [%d0+4], %r1;\n\
           and.b32 %r2, %r0, 4;\ncvt.u64.u32 %d1, %r2;\nadd.s64 %d0, %d0, %d1;\n\
           ld.local.u32 %r3, [%d0];\n"
        + &stores(3, 1);
    [
        Plan::new("ld.param.u64 %rd1, [argument]", 2, parameter).on(&[Holds::Integer(32)]),
        Plan::new("ld.local.u32 %r1, [%rd1]", 1, local)
            .variables(".local .align 8 .b8 mine[8];\n")
            .on(&[Holds::Integer(32); 2]),
    ]
}

fn narrow_stores() -> Experiment {
    let body = loads(2)
        + "ld.global.b16 %h0, [%from];\nst.global.u16 [%to+2], %h0;\nst.global.u8 [%to+5], %r1;\n\
           st.global.b64 [%to+8], -1;\nst.global.u16 [%to+12], %h0;\nst.global.s8 [%to+9], %r1;\n";
    Plan::new("st.global.u16 [%rd1], %rs1", 2, body).on(&[Holds::Integer(32); 2])
}

fn shared_pairs() -> Experiment {
    let body = PLACE.to_owned()
        + "ld.global.b64 %d0, [%from];\nld.global.b64 %d1, [%from+8];\n\
           st.shared.v2.u64 [%r60], {%d0, %d1};\nld.shared.v4.u32 {%r0, %r1, %r2, %r3}, [%r60];\n"
        + &stores(0, 4);
    Plan::new("st.shared.v2.u64 [%r1], {%rd1, %rd2}", 4, body)
        .variables(PLACES)
        .on(&[Holds::Integer(64); 2])
}

/// What a thread sees of its own strong accesses.
fn strong() -> [Experiment; 3] {
    let global = loads(1)
        + "st.release.gpu.global.u32 [%to], %r0;\nld.acquire.gpu.global.u32 %r1, [%to];\n\
           st.global.b32 [%to+8], %r1;\n";
    let relaxed = PLACE.to_owned()
        + &loads(1)
        + "st.relaxed.cta.shared.u32 [%r60], %r0;\nld.relaxed.cta.shared.u32 %r1, [%r60];\n"
        + &stores(1, 1);
    let volatile = PLACE.to_owned()
        + &loads(1)
        + "st.volatile.shared.u32 [%r60], %r0;\nld.volatile.shared.u32 %r1, [%r60];\n"
        + &stores(1, 1);
    [
        Plan::new("st.release.gpu.global.u32 [%rd1], %r1", 2, global)
            .also(&["ld.acquire.gpu.global.u32 %r1, [%rd1]"])
            .on(&[Holds::Integer(32)]),
        Plan::new("ld.relaxed.cta.shared.u32 %r1, [%r2]", 1, relaxed)
            .variables(PLACES)
            .on(&[Holds::Integer(32)]),
        Plan::new("ld.volatile.shared.u32 %r1, [%r2]", 1, volatile)
            .variables(PLACES)
            .on(&[Holds::Integer(32)]),
    ]
}

/// One update of a word: its name behind `atom.global.`, and what word and value hold.
struct Update {
    name: &'static str,
    holds: Holds,
    format: Format,
}

const fn update(name: &'static str, holds: Holds, format: Format) -> Update {
    Update {
        name,
        holds,
        format,
    }
}

const SUMS: [Update; 6] = [
    update("gpu.acq_rel.add.f32", Holds::F32, Format::F32),
    update("add.f64", Holds::F64, Format::F64),
    update("add.u32", Holds::Integer(32), Format::Bits),
    update("add.s32", Holds::Integer(32), Format::Bits),
    update("add.u64", Holds::Integer(64), Format::Bits),
    update("exch.b64", Holds::Integer(64), Format::Bits),
];

const EXTREMES: [Update; 12] = [
    update(
        "relaxed.gpu.global.max.s32",
        Holds::Integer(32),
        Format::Bits,
    ),
    update("global.min.s32", Holds::Integer(32), Format::Bits),
    update("global.max.u32", Holds::Integer(32), Format::Bits),
    update("global.min.u32", Holds::Integer(32), Format::Bits),
    update("global.max.s64", Holds::Integer(64), Format::Bits),
    update("global.min.u64", Holds::Integer(64), Format::Bits),
    update("global.inc.u32", Holds::Integer(32), Format::Bits),
    update("global.dec.u32", Holds::Integer(32), Format::Bits),
    update("global.and.b32", Holds::Integer(32), Format::Bits),
    update("global.or.b64", Holds::Integer(64), Format::Bits),
    update("global.xor.b32", Holds::Integer(32), Format::Bits),
    update("global.add.f32", Holds::F32, Format::F32),
];

const HALVES: [Update; 4] = [
    update("global.add.noftz.f16x2", Holds::F16x2, Format::F16x2),
    update("global.add.noftz.bf16x2", Holds::Bf16x2, Format::Bf16x2),
    update("global.add.noftz.f16", Holds::F16, Format::F16),
    update("global.add.noftz.bf16", Holds::Bf16, Format::Bf16),
];

/// Returns the register class, and the width in bits, of what an operand holds.
fn class(holds: Holds) -> (char, u32) {
    match holds {
        Holds::F64 | Holds::Integer(64) => ('d', 64),
        Holds::F16 | Holds::Bf16 => ('h', 16),
        _ => ('r', 32),
    }
}

/// Returns the instructions that bring a word to memory and update it by a value.
fn updated(update: &Update, word: usize, call: &str) -> String {
    let (class, bits) = class(update.holds);
    let (from, to) = (16 * word, 8 * word);
    format!(
        "ld.global.b{bits} %{class}0, [%from+{from}];\nld.global.b{bits} %{class}1, [%from+{}];\n\
         st.global.b{bits} [%to+{to}], %{class}0;\n{call}[%to+{to}], %{class}1;\n",
        from + 8
    )
}

/// Each thread updates words of its own, from an operand and by another one.
fn atomics() -> [Experiment; 3] {
    let mut body = String::new();
    for (word, sum) in SUMS.iter().enumerate() {
        let class = class(sum.holds);
        let call = format!("atom.global.{} %{}2, ", sum.name, class.0);
        body += &updated(sum, word, &call);
        let _ = writeln!(
            body,
            "st.global.b{} [%to+{}], %{}2;",
            class.1,
            8 * (SUMS.len() + word),
            class.0
        );
    }
    let row = "atom.global.gpu.acq_rel.add.f32 %f1, [%rd1], %f2";
    let formats: Vec<Format> = SUMS.iter().map(|sum| sum.format).collect();
    let twice = [formats.clone(), formats].concat();
    let pairs: Vec<Holds> = SUMS.iter().flat_map(|sum| [sum.holds; 2]).collect();
    [
        Plan::new(row, 0, body).results(twice).on(&pairs),
        reductions("red.relaxed.gpu.global.max.s32 [%rd1], %r1", &EXTREMES),
        reductions("red.global.add.noftz.f16x2 [%rd1], %r1", &HALVES),
    ]
}

fn reductions(row: &'static str, updates: &[Update]) -> Experiment {
    let bodies = updates.iter().enumerate();
    let body: String = bodies
        .map(|(word, one)| updated(one, word, &format!("red.{} ", one.name)))
        .collect();
    let formats = updates.iter().map(|one| one.format).collect();
    let pairs: Vec<Holds> = updates.iter().flat_map(|one| [one.holds; 2]).collect();
    Plan::new(row, 0, body).results(formats).on(&pairs)
}

/// Swaps where half of the words are the expected ones, and sums in shared memory.
fn swaps() -> Experiment {
    let body = PLACE.to_owned()
        + &loads(4)
        + "and.b32 %r4, %r3, 1;\nsetp.ne.b32 %p0, %r4, 0;\nselp.b32 %r5, %r0, %r1, %p0;\n\
           st.shared.b32 [%r60], %r0;\natom.shared.cas.b32 %r6, [%r60], %r5, %r2;\n\
           ld.shared.b32 %r7, [%r60];\n\
           ld.global.b64 %d0, [%from];\nld.global.b64 %d1, [%from+8];\n\
           selp.b64 %d2, %d0, %d1, %p0;\n\
           st.shared.b64 [%r60], %d0;\natom.shared.cas.b64 %d3, [%r60], %d2, %d1;\n\
           ld.shared.b64 %d4, [%r60];\n\
           ld.global.b32 %r10, [%from+32];\nld.global.b32 %r11, [%from+40];\n\
           st.shared.b32 [%r60], %r10;\natom.shared.add.f32 %r8, [%r60], %r11;\n\
           ld.shared.b32 %r9, [%r60];\n"
        + &stores(6, 4)
        + "st.global.b64 [%to+32], %d3;\nst.global.b64 [%to+40], %d4;\n";
    let bits = Format::Bits;
    let results = vec![bits, bits, Format::F32, Format::F32, bits, bits];
    let word = Holds::Integer(64);
    Plan::new("atom.shared.cas.b32 %r1, [%r2], %r3, %r4", 6, body)
        .variables(PLACES)
        .results(results)
        .on(&[word, word, word, word, Holds::F32, Holds::F32])
}

fn addresses() -> [Experiment; 3] {
    let shared = PLACE.to_owned()
        + &loads(1)
        + "cvt.u64.u32 %d0, %r60;\ncvta.shared.u64 %d1, %d0;\nst.u32 [%d1], %r0;\n\
           cvta.to.shared.u64 %d2, %d1;\nld.shared.u32 %r1, [%d2];\nsub.s64 %d3, %d2, %d0;\n\
           st.global.b64 [%to+8], %d3;\n"
        + &stores(1, 1);
    let global = "cvta.global.u64 %d0, %from;\nld.u32 %r0, [%d0];\n\
                  cvta.to.global.u64 %d1, %d0;\nsub.s64 %d2, %d1, %from;\n\
                  st.global.b64 [%to+8], %d2;\n"
        .to_owned()
        + &stores(0, 1);
    let spaces = PLACE.to_owned()
        + "cvt.u64.u32 %d0, %r60;\ncvta.shared.u64 %d1, %d0;\ncvta.global.u64 %d2, %from;\n\
           ld.global.b32 %r0, [%from];\nsetp.ne.b32 %p2, %r0, 0;\nselp.b64 %d3, %d1, %d2, %p2;\n\
           isspacep.shared %p0, %d3;\nselp.b32 %r1, 1, 0, %p0;\n"
        + &stores(1, 1);
    [
        Plan::new("cvta.to.shared.u64 %rd1, %rd2", 2, shared)
            .variables(PLACES)
            .on(&[Holds::Integer(32)]),
        Plan::new("cvta.global.u64 %rd1, %rd2", 2, global).on(&[Holds::Integer(32)]),
        Plan::new("isspacep.shared %p1, %rd1", 1, spaces)
            .variables(PLACES)
            .on(&[Holds::Predicate]),
    ]
}

pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        vectors(),
        widths(),
        narrow_stores(),
        shared_pairs(),
        swaps(),
    ];
    all.extend(private());
    all.extend(strong());
    all.extend(atomics());
    all.extend(addresses());
    all
}
