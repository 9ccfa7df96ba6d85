//! Products of a warpgroup, which is the block of an experiment.

use std::fmt::Write;

use super::{Plan, loads, registers, stores};
use crate::experiment::{Experiment, Format, THREADS};
use crate::operands::Draw;

const MATRICES: &str = ".shared .align 1024 .b8 a[8192];\n.shared .align 1024 .b8 b[2048];\n";

/// Rows of 128 bytes, swizzled, in groups of 8.
const DESCRIPTOR: &str = "0x4000004000010000";

/// What each thread brings: words of A (in shared memory, or in registers), words of B, summands.
#[derive(Clone, Copy)]
struct Operands {
    a: usize,
    b: usize,
}

/// Returns the instructions that store `count` words of each thread from `%r{first}` up.
fn fill(matrix: &str, first: usize, count: usize) -> String {
    let mut text = format!(
        "mov.u32 %r60, %tid.x;\nmul.lo.u32 %r60, %r60, {};\nmov.u32 %r61, {matrix};\n\
         add.u32 %r60, %r60, %r61;\n",
        4 * count
    );
    for word in 0..count {
        let _ = writeln!(
            text,
            "st.shared.b32 [%r60+{}], %r{};",
            4 * word,
            first + word
        );
    }
    text
}

fn descriptor(matrix: &str, register: &str) -> String {
    format!(
        "mov.u32 %r60, {matrix};\ncvt.u64.u32 %d4, %r60;\nshr.u64 %d4, %d4, 4;\n\
         or.b64 {register}, %d4, {DESCRIPTOR};\n"
    )
}

/// Plans a product `instruction d, a, b` with A in shared memory or in `%r0` to `%r3`.
fn product(row: &'static str, instruction: &str, flags: &str, operands: Operands) -> Plan {
    let Operands { a, b } = operands;
    let in_registers = a == 4;
    let mut body = loads(a + b + 4);
    let left = if in_registers {
        format!("{{{}}}", registers(0, 4))
    } else {
        body += &fill("a", 0, a);
        body += &descriptor("a", "%d0");
        "%d0".to_owned()
    };
    body += &fill("b", a, b);
    body += &descriptor("b", "%d1");
    let sums = registers(a + b, 4);
    let _ = writeln!(
        body,
        "setp.eq.b32 %p0, 0, 0;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n\
         wgmma.fence.sync.aligned;\n\
         wgmma.mma_async.sync.aligned.{instruction} {{{sums}}}, {left}, %d1, %p0, {flags};\n\
         wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;"
    );
    body += &stores(a + b, 4);
    body += "bar.sync 0;\n";
    Plan::new(row, 0, body)
        .variables(MATRICES)
        .results(vec![Format::F32; 4])
        .sets(2 * THREADS as usize)
}

fn with_elements(plan: Plan, operands: Operands, element: fn(&mut Draw) -> u64) -> Experiment {
    let mut draw = plan.draw();
    let mut words = Vec::new();
    for _ in 0..plan.sets {
        words.extend((0..operands.a + operands.b).map(|_| element(&mut draw)));
        words.extend((0..4).map(|_| u64::from((draw.below(33) as f32 - 16.0).to_bits())));
    }
    plan.with(operands.a + operands.b + 4, words)
}

fn small_bf16(draw: &mut Draw) -> u64 {
    let small = [
        0, 0x3f80, 0x4000, 0x4040, 0x4080, 0x8000, 0xbf80, 0xc000, 0xc040,
    ];
    small[draw.below(9) as usize] | small[draw.below(9) as usize] << 16
}

/// Draws four codes of E4M3; 0x7f, a NaN, becomes 448.
fn any_e4m3(draw: &mut Draw) -> u64 {
    let word = draw.word();
    (0..4).fold(0, |all, byte| {
        let code = word >> (8 * byte) & 0xff;
        let number = if code & 0x7f == 0x7f { code - 1 } else { code };
        all | number << (8 * byte)
    })
}

fn small_e4m3(draw: &mut Draw) -> u64 {
    let small = [0, 0x38, 0x40, 0x44, 0x48, 0x80, 0xb8, 0xc0, 0xc4];
    (0..4).fold(0, |word, _| word << 8 | small[draw.below(9) as usize])
}

const BF16: &str = "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1, %f2, %f3, %f4}, \
                    %rd1, %rd2, %p1, 1, 1, 0, 1";
const E4M3: &str = "wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3 {%f1, %f2, %f3, %f4}, \
                    {%r1, %r2, %r3, %r4}, %rd2, %p1, 1, 1";

pub fn experiments() -> Vec<Experiment> {
    let bf16 = "m64n8k16.f32.bf16.bf16";
    let e4m3 = "m64n8k32.f32.e4m3.e4m3";
    let shared = Operands { a: 16, b: 4 };
    let in_registers = Operands { a: 4, b: 2 };
    let straight = product(BF16, bf16, "1, 1, 0, 0", shared)
        .part("exact sums")
        .also(&[
            "fence.proxy.async.shared::cta",
            "wgmma.fence.sync.aligned",
            "wgmma.commit_group.sync.aligned",
            "wgmma.wait_group.sync.aligned 0",
        ]);
    let transposed = product(BF16, bf16, "1, 1, 0, 1", shared).part("exact sums, B transposed");
    let exact = product(E4M3, e4m3, "1, 1", in_registers).part("exact sums");
    let rounded = product(E4M3, e4m3, "1, 1", in_registers).part("rounded sums");
    vec![
        with_elements(straight, shared, small_bf16),
        with_elements(transposed, shared, small_bf16),
        with_elements(exact, in_registers, small_e4m3),
        with_elements(rounded, in_registers, any_e4m3),
    ]
}
