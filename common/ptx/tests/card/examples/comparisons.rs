//! Control flow, comparisons, packs.

use std::fmt::Write;

use super::{Plan, loads, stores};
use crate::experiment::Experiment;
use crate::operands::{Draw, Holds};

const ALL: [&str; 6] = ["eq", "ne", "lt", "le", "gt", "ge"];
const UNORDERED: [&str; 8] = ["equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

/// Returns the instructions that put each relation's result into a bit of `%r40`.
fn relations(names: &[&str], of: &str, left: &str, right: &str) -> String {
    let mut text = "mov.b32 %r40, 0;\n".to_owned();
    for (bit, name) in names.iter().enumerate() {
        let _ = writeln!(
            text,
            "setp.{name}.{of} %p0, {left}, {right};\nselp.b32 %r41, {}, 0, %p0;\n\
             or.b32 %r40, %r40, %r41;",
            1u32 << bit
        );
    }
    text
}

fn store_bits(word: usize) -> String {
    format!("st.global.b32 [%to+{}], %r40;\n", 8 * word)
}

fn integers() -> Experiment {
    let mut body = String::from(
        "ld.global.b64 %d0, [%from];\nld.global.b64 %d1, [%from+8];\n\
         cvt.u32.u64 %r0, %d0;\ncvt.u32.u64 %r1, %d1;\n\
         cvt.u16.u64 %h0, %d0;\ncvt.u16.u64 %h1, %d1;\n",
    );
    let mut word = 0;
    for (letter, bits) in [('h', 16), ('r', 32), ('d', 64)] {
        for sign in ['u', 's', 'b'] {
            let mut names = ALL.to_vec();
            match sign {
                'b' => names.truncate(2),
                'u' => names.extend(["lo", "ls", "hi", "hs"]),
                _ => {}
            }
            let [left, right] = [0, 1].map(|index| format!("%{letter}{index}"));
            body += &relations(&names, &format!("{sign}{bits}"), &left, &right);
            body += &store_bits(word);
            word += 1;
        }
    }
    let plan = Plan::new("setp.lt.s32 %p1, %r1, %r2", word, body);
    let mut draw = plan.draw();
    let mut operands = Vec::new();
    for _ in 0..plan.sets {
        operands.extend(pair(Holds::Integer(64), &mut draw));
    }
    plan.with(2, operands)
}

/// Draws two operands, of which every fourth pair is equal.
fn pair(holds: Holds, draw: &mut Draw) -> [u64; 2] {
    let first = holds.draw(draw);
    let second = holds.draw(draw);
    [first, if draw.below(4) == 0 { first } else { second }]
}

fn floats() -> Experiment {
    let names = [ALL.as_slice(), UNORDERED.as_slice()].concat();
    let mut body = String::from(
        "ld.global.b32 %r0, [%from];\nld.global.b32 %r1, [%from+8];\n\
         ld.global.b64 %d0, [%from+16];\nld.global.b64 %d1, [%from+24];\n\
         ld.global.b16 %h0, [%from+32];\nld.global.b16 %h1, [%from+40];\n\
         ld.global.b16 %h2, [%from+48];\nld.global.b16 %h3, [%from+56];\n",
    );
    let types = [
        ("f32", ["%r0", "%r1"]),
        ("ftz.f32", ["%r0", "%r1"]),
        ("f64", ["%d0", "%d1"]),
        ("f16", ["%h0", "%h1"]),
        ("bf16", ["%h2", "%h3"]),
    ];
    for (word, (of, [left, right])) in types.into_iter().enumerate() {
        body += &relations(&names, of, left, right);
        body += &store_bits(word);
    }
    let plan = Plan::new("setp.ltu.ftz.f32 %p1, %f1, %f2", types.len(), body);
    let mut draw = plan.draw();
    let mut operands = Vec::new();
    for _ in 0..plan.sets {
        for holds in [Holds::F32, Holds::F64, Holds::F16, Holds::Bf16] {
            operands.extend(pair(holds, &mut draw));
        }
    }
    plan.with(8, operands)
}

fn combined() -> Experiment {
    let mut body = loads(2) + "setp.ne.b32 %p3, %r1, 0;\nmov.b32 %r40, 0;\n";
    let mut bit = 0;
    for combination in ["and", "or", "xor"] {
        for negation in ["", "!"] {
            let _ = writeln!(
                body,
                "setp.ne.{combination}.b32 %p1|%p2, %r0, 0, {negation}%p3;"
            );
            for predicate in ["%p1", "%p2"] {
                let _ = writeln!(
                    body,
                    "selp.b32 %r41, {}, 0, {predicate};\nor.b32 %r40, %r40, %r41;",
                    1u32 << bit
                );
                bit += 1;
            }
        }
    }
    body += &store_bits(0);
    Plan::new("setp.ne.and.b32 %p1|%p2, %r1, 0, !%p3", 1, body)
        .on(&[Holds::Predicate, Holds::Predicate])
}

fn branches() -> Experiment {
    let body = loads(1)
        + "setp.lt.s32 %p0, %r0, 0;\n@%p0 bra negative;\n\
           add.s32 %r1, %r0, 1;\nbra there;\n\
           negative:\nsub.s32 %r1, 5, %r0;\n\
           there:\n"
        + &stores(1, 1);
    Plan::new("bra end", 1, body).on(&[Holds::Integer(32)])
}

/// Threads that end before others have stored all of their results.
fn endings(row: &'static str) -> Experiment {
    let body = loads(1) + "setp.eq.b32 %p0, %r0, 0;\n" + &format!("@%p0 {row};\n") + &stores(0, 1);
    Plan::new(row, 1, body).on(&[Holds::Integer(32)])
}

fn packs() -> [Experiment; 2] {
    let wide = "ld.global.b64 %d0, [%from];\n\
                mov.b64 {%r0, %r1}, %d0;\nmov.b64 %d1, {%r1, %r0};\n\
                mov.b64 {%h0, %h1, %h2, %h3}, %d0;\nmov.b64 %d2, {%h1, %h3, %h0, %h2};\n\
                st.global.b32 [%to], %r0;\nst.global.b32 [%to+8], %r1;\n\
                st.global.b64 [%to+16], %d1;\nst.global.b64 [%to+24], %d2;\n";
    let narrow = loads(1)
        + "mov.b32 {%h0, %h1}, %r0;\nmov.b32 %r1, {%h1, %h0};\nst.global.b16 [%to+8], %h0;\n"
        + &stores(1, 1);
    [
        Plan::new("mov.b64 {%r1, %r2}, %rd1", 4, wide).on(&[Holds::Integer(64)]),
        Plan::new("mov.b32 %r1, {%rs1, %rs2}", 2, narrow).on(&[Holds::Integer(32)]),
    ]
}

pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![
        branches(),
        endings("ret"),
        endings("exit"),
        integers(),
        floats(),
        combined(),
    ];
    all.extend(packs());
    all
}
