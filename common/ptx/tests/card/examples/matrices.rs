//! Matrix copies and products of a warp.

use std::fmt::Write;

use super::{Plan, loads, registers, stores};
use crate::experiment::{Experiment, Format, Model, THREADS};
use crate::operands::Draw;

/// A place of 4 KB for each warp, whose address `%r60` takes; `%r61` is the lane.
const PLACES: &str = ".shared .align 128 .b8 places[16384];\n";
const PLACE: &str = "mov.u32 %r61, %tid.x;\nshr.u32 %r60, %r61, 5;\nshl.b32 %r60, %r60, 12;\n\
                     mov.u32 %r62, places;\nadd.u32 %r60, %r60, %r62;\nand.b32 %r61, %r61, 31;\n";

const FORMS: [(&str, usize); 6] = [
    ("x4", 4),
    ("x4.trans", 4),
    ("x2", 2),
    ("x2.trans", 2),
    ("x1", 1),
    ("x1.trans", 1),
];

fn any(draw: &mut Draw) -> u64 {
    draw.word()
}

/// Each lane writes a row of 16 bytes, and names the row of another one.
fn matrix_loads() -> Experiment {
    let mut body = PLACE.to_owned()
        + &loads(4)
        + "shl.b32 %r63, %r61, 4;\nadd.u32 %r63, %r60, %r63;\n\
           st.shared.v4.b32 [%r63], {%r0, %r1, %r2, %r3};\nbar.warp.sync -1;\n\
           xor.b32 %r64, %r61, 21;\nshl.b32 %r64, %r64, 4;\nadd.u32 %r64, %r60, %r64;\n";
    let mut word = 0;
    for (form, count) in FORMS {
        let _ = writeln!(
            body,
            "ldmatrix.sync.aligned.m8n8.{form}.shared.b16 {{{}}}, [%r64];",
            registers(10 + word, count)
        );
        word += count;
    }
    body += &stores(10, word);
    body += "bar.warp.sync -1;\n";
    let row = "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%r1, %r2, %r3, %r4}, [%r5]";
    Plan::new(row, word, body).variables(PLACES).drawn(4, any)
}

/// Lanes store to the rows of others, and read their own.
fn matrix_stores() -> Experiment {
    let mut body = PLACE.to_owned()
        + &loads(4)
        + "shl.b32 %r63, %r61, 4;\nadd.u32 %r63, %r60, %r63;\n\
           xor.b32 %r64, %r61, 21;\nshl.b32 %r64, %r64, 4;\nadd.u32 %r64, %r60, %r64;\n\
           mov.b32 %r9, 7;\nst.shared.v4.b32 [%r63], {%r9, %r9, %r9, %r9};\nbar.warp.sync -1;\n";
    for (index, (form, count)) in FORMS.into_iter().enumerate() {
        let _ = writeln!(
            body,
            "stmatrix.sync.aligned.m8n8.{form}.shared.b16 [%r64], {{{}}};\nbar.warp.sync -1;\n\
             ld.shared.v4.b32 {{%r10, %r11, %r12, %r13}}, [%r63];\nbar.warp.sync -1;",
            registers(0, count)
        );
        for word in 0..4 {
            let to = 8 * (4 * index + word);
            let _ = writeln!(body, "st.global.b32 [%to+{to}], %r{};", 10 + word);
        }
    }
    let row = "stmatrix.sync.aligned.m8n8.x2.shared.b16 [%r5], {%r1, %r2}";
    let results = 4 * FORMS.len();
    Plan::new(row, results, body)
        .variables(PLACES)
        .drawn(4, any)
}

/// What the elements of a product are.
#[derive(Clone, Copy)]
struct Elements {
    /// Draws as many as a word of 32 bits has.
    draw: fn(&mut Draw) -> u64,
    /// Draws a summand of FP32.
    summand: fn(&mut Draw) -> u64,
}

fn small_f16(draw: &mut Draw) -> u64 {
    let small = [
        0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x8000, 0xbc00, 0xc000, 0xc200,
    ];
    small[draw.below(9) as usize] | small[draw.below(9) as usize] << 16
}

fn small_bf16(draw: &mut Draw) -> u64 {
    let small = [
        0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x8000, 0xbf80, 0xc000, 0xc040,
    ];
    small[draw.below(9) as usize] | small[draw.below(9) as usize] << 16
}

fn small_e4m3(draw: &mut Draw) -> u64 {
    let small = [0, 0x38, 0x40, 0x44, 0x48, 0x80, 0xb8, 0xc0, 0xc4];
    (0..4).fold(0, |word, _| word << 8 | small[draw.below(9) as usize])
}

fn small_summand(draw: &mut Draw) -> u64 {
    (draw.below(33) as f32 - 16.0).to_bits().into()
}

/// Numbers from 1 to 2.
fn positive_f16(draw: &mut Draw) -> u64 {
    0x3c00_3c00 | draw.word() & 0x03ff_03ff
}

fn positive_e4m3(draw: &mut Draw) -> u64 {
    0x3838_3838 | draw.word() & 0x0707_0707
}

fn positive_summand(draw: &mut Draw) -> u64 {
    0x3f80_0000 | draw.word() & 0x007f_ffff
}

const SMALL_F16: Elements = Elements {
    draw: small_f16,
    summand: small_summand,
};
const SMALL_BF16: Elements = Elements {
    draw: small_bf16,
    summand: small_summand,
};
const SMALL_E4M3: Elements = Elements {
    draw: small_e4m3,
    summand: small_summand,
};
const POSITIVE_F16: Elements = Elements {
    draw: positive_f16,
    summand: positive_summand,
};
const POSITIVE_E4M3: Elements = Elements {
    draw: positive_e4m3,
    summand: positive_summand,
};

const PRODUCT_F16: &str = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, \
                           %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}";
const PRODUCT_E4M3: &str = "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, \
                            %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}";

/// Plans a product of a warp; `mma` is the instruction's shape and types.
fn product(row: &'static str, part: &'static str, mma: &str) -> Plan {
    let body = loads(10)
        + &format!(
            "mma.sync.aligned.{mma} {{{}}}, {{{}}}, {{{}}}, {{{}}};\n",
            registers(10, 4),
            registers(0, 4),
            registers(4, 2),
            registers(6, 4)
        )
        + &stores(10, 4);
    Plan::new(row, 0, body)
        .part(part)
        .results(vec![Format::F32; 4])
        .sets(2 * THREADS as usize)
}

fn with_elements(plan: Plan, elements: Elements) -> Experiment {
    let mut draw = plan.draw();
    let mut operands = Vec::new();
    for _ in 0..plan.sets {
        operands.extend((0..6).map(|_| (elements.draw)(&mut draw)));
        operands.extend((0..4).map(|_| (elements.summand)(&mut draw)));
    }
    plan.with(10, operands)
}

fn products() -> Vec<Experiment> {
    let (f16, bf16) = (
        "m16n8k16.row.col.f32.f16.f16.f32",
        "m16n8k16.row.col.f32.bf16.bf16.f32",
    );
    let e4m3 = "m16n8k32.row.col.f32.e4m3.e4m3.f32";
    vec![
        with_elements(product(PRODUCT_F16, "exact sums", f16), SMALL_F16),
        with_elements(product(PRODUCT_F16, "exact sums of BF16", bf16), SMALL_BF16),
        sums_of_f16(f16),
        with_elements(product(PRODUCT_E4M3, "exact sums", e4m3), SMALL_E4M3),
        sums_of_e4m3(e4m3),
    ]
}

const POSITIVE: &str = "rounded sums of positive numbers";

/// Plans sums of which the card keeps the upper bits. Here each of 16 is rounded, by half an ulp.
fn sums_of_f16(mma: &str) -> Experiment {
    let plan = product(PRODUCT_F16, POSITIVE, mma).within(9);
    let experiment = with_elements(plan, POSITIVE_F16);
    let exact = exact_sums(&experiment, 16, f16_from_one).into_iter();
    let cut_off = exact.map(|sum| {
        let near = sum as f32;
        let is_above = f64::from(near) > sum;
        u64::from(near.to_bits()) - u64::from(is_above)
    });
    let model = Model {
        says: "exact sums, cut off",
        results: cut_off.collect(),
    };
    experiment.modelled(model)
}

/// Plans sums that the card rounds once. Here each of 32 is.
fn sums_of_e4m3(mma: &str) -> Experiment {
    let plan = product(PRODUCT_E4M3, POSITIVE, mma).within(17);
    let experiment = with_elements(plan, POSITIVE_E4M3);
    let exact = exact_sums(&experiment, 8, e4m3_from_one).into_iter();
    let model = Model {
        says: "exact sums, rounded once",
        results: exact.map(|sum| (sum as f32).to_bits().into()).collect(),
    };
    experiment.modelled(model)
}

/// Returns a number from 1 to 2 of F16.
fn f16_from_one(code: u64) -> f64 {
    1.0 + (code & 0x3ff) as f64 / 1024.0
}

/// Returns a number from 1 to 2 of E4M3.
fn e4m3_from_one(code: u64) -> f64 {
    1.0 + (code & 7) as f64 / 8.0
}

/// Returns the exact sums of products of numbers from 1 to 2, in the order of the experiment's
/// results; `bits` is the width of an element.
fn exact_sums(experiment: &Experiment, bits: usize, value: fn(u64) -> f64) -> Vec<f64> {
    let sets: Vec<&[u64]> = experiment.operands.chunks(10).collect();
    let mut all = Vec::new();
    for warp in sets.chunks(32) {
        for (lane, set) in warp.iter().enumerate() {
            for result in 0..4 {
                let (lower, column) = (result / 2, 2 * (lane % 4) + result % 2);
                let mut sum = f64::from(f32::from_bits(set[6 + result] as u32));
                // A row of A, and a column of B, are two words of each of four lanes.
                for word in 0..8 {
                    let (of_four, half) = (word % 4, word / 4);
                    let a = warp[lane / 4 * 4 + of_four][lower + 2 * half];
                    let b = warp[column * 4 + of_four][4 + half];
                    let shifts = (0..32).step_by(bits);
                    let products = shifts.map(|shift| value(a >> shift) * value(b >> shift));
                    sum += products.sum::<f64>();
                }
                all.push(sum);
            }
        }
    }
    all
}

/// A shape of `wmma`: rows, columns, and the words of A and B that a lane writes.
struct Shape {
    name: &'static str,
    row: &'static str,
    rows: usize,
    columns: usize,
}

const SHAPES: [Shape; 3] = [
    Shape {
        name: "m16n16k16",
        row: "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {%r1, %r2, %r3, %r4, %r5, %r6, \
              %r7, %r8}, [%r9], %r10",
        rows: 16,
        columns: 16,
    },
    Shape {
        name: "m8n32k16",
        row: "wmma.mma.sync.aligned.row.col.m8n32k16.f32.f32 {%f1, %f2, %f3, %f4, %f5, %f6, %f7, \
              %f8}, {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, {%r1, %r2, %r3, %r4, %r5, %r6, %r7, \
              %r8}, {%f1, %f2, %f3, %f4, %f5, %f6, %f7, %f8}",
        rows: 8,
        columns: 32,
    },
    Shape {
        name: "m32n8k16",
        row: "wmma.store.d.sync.aligned.row.m32n8k16.shared.f32 [%r9], {%f1, %f2, %f3, %f4, %f5, \
              %f6, %f7, %f8}, %r10",
        rows: 32,
        columns: 8,
    },
];

/// A product of fragments: A by rows at 0, B by columns at 1024, D by rows at 2048.
fn fragments(shape: &Shape) -> Experiment {
    let [a, b] = [shape.rows, shape.columns].map(|extent| extent / 4);
    let Shape { name, columns, .. } = shape;
    let mut body = PLACE.to_owned() + &loads(a + b) + "shl.b32 %r63, %r61, 2;\n";
    body += "add.u32 %r63, %r60, %r63;\n";
    for word in 0..a + b {
        let offset = if word < a {
            128 * word
        } else {
            1024 + 128 * (word - a)
        };
        let _ = writeln!(body, "st.shared.b32 [%r63+{offset}], %r{word};");
    }
    let _ = writeln!(
        body,
        "bar.warp.sync -1;\nadd.u32 %r64, %r60, 1024;\nadd.u32 %r65, %r60, 2048;\n\
         wmma.load.a.sync.aligned.row.{name}.shared.f16 {{{a}}}, [%r60], 16;\n\
         wmma.load.b.sync.aligned.col.{name}.shared.f16 {{{b}}}, [%r64], 16;\n\
         mov.b32 %r36, 0;\n\
         wmma.mma.sync.aligned.row.col.{name}.f32.f32 {{{d}}}, {{{a}}}, {{{b}}}, {{{zeros}}};\n\
         wmma.store.d.sync.aligned.row.{name}.shared.f32 [%r65], {{{d}}}, {columns};\n\
         bar.warp.sync -1;",
        a = registers(10, 8),
        b = registers(18, 8),
        d = registers(26, 8),
        zeros = ["%r36"; 8].join(", "),
    );
    for word in 0..8 {
        let _ = writeln!(
            body,
            "ld.shared.b32 %r40, [%r63+{}];\nst.global.b32 [%to+{}], %r40;",
            2048 + 128 * word,
            8 * word
        );
    }
    body += "bar.warp.sync -1;\n";
    Plan::new(shape.row, 0, body)
        .part("exact sums")
        .variables(PLACES)
        .results(vec![Format::F32; 8])
        .sets(2 * THREADS as usize)
        .drawn(a + b, small_f16)
}

pub fn experiments() -> Vec<Experiment> {
    let mut all = vec![matrix_loads(), matrix_stores()];
    all.extend(products());
    all.extend(SHAPES.iter().map(fragments));
    all
}
