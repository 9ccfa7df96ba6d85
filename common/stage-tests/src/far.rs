//! From which maximum on scores are scaled exactly, and how.

use crate::load;
use common::device::Staged;
use common::device::emulated::execute;
use common::image::Layout;
use common::inputs::{Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::Attention;
use emulator::Schedule;

/// Rows of Q: the largest maxima of the half-open interval differ from row to row.
const ROWS: usize = 160;

const KEYS: usize = 64;

/// Two columns of Q and K are not 0: `q(row)` times `k`, and in even keys 8 times 4, one step of f32 at 2^28. V is 1 in even keys.
fn inputs(q: &dyn Fn(usize) -> f32, k: f32, odd: f32) -> Inputs {
    let shape = Shape {
        seq_kv: KEYS,
        ..Shape::bhsd(1, 1, ROWS, 64)
    };
    let problem =
        Problem::new(shape, Dtype::F16, Mask::Full).expect("these are extents of a problem");
    let operand = |extents: [usize; 4], value: &dyn Fn(usize, usize) -> f32| {
        let values = (0..extents[2] * 64).map(|i| value(i / 64, i % 64));
        Operand::rounded(extents, Dtype::F16, values.collect(), None)
    };
    Inputs {
        problem,
        q: operand(shape.q_extents(), &|row, column| match column {
            0 => q(row),
            1 => 8.0,
            _ => 0.0,
        }),
        k: operand(shape.kv_extents(), &|key, column| match column {
            0 => k,
            1 if key % 2 == 0 => 4.0,
            _ => 0.0,
        }),
        v: operand(shape.kv_extents(), &|key, _| {
            if key % 2 == 0 { 1.0 } else { odd }
        }),
    }
}

/// Fails unless maxima below 2^28 (of scores in base 2) keep the scale of the softmax, where keys that differ by one step of f32 still
/// share the weight, and those from 2^28 on are subtracted exactly.
pub fn far_maxima(attention: &'static dyn Attention) {
    let stage = load(attention);
    // 2^28 times 0.18 is 2^25.5, and the step of 32 then 5.77: the odd keys weigh 2^-5.77.
    let near = inputs(&|_| 16384.0, 16384.0, 0.0);
    let of_near = 1.0 / (1.0 + (-32.0 * 0.125 * std::f32::consts::LOG2_E).exp2());
    // From 1.64e9 to 2.4e9, times 0.18: all in the first octave of far maxima. All keys weigh the same.
    let far = inputs(&|row| 32768.0 + 96.0 * row as f32, 49984.0, 1.0);
    for kernel in stage
        .kernels
        .iter()
        .filter(|kernel| kernel.dtype == Dtype::F16 && kernel.head_dim == 64)
    {
        for (inputs, expected, tolerance) in [(&near, of_near, 1e-3), (&far, 1.0, 0.0)] {
            let prepared = stage
                .prepare(&kernel.variant, &inputs.problem)
                .expect("the variant has this kernel");
            let staged = Staged::new(inputs, Layout::Packed);
            let executed =
                execute(&prepared, &staged, Schedule::InOrder).expect("the emulator runs it");
            let output = staged.values(&executed.output);
            let off = |o: &f32| (o - expected).abs();
            let worst = output
                .iter()
                .max_by(|a, b| off(a).total_cmp(&off(b)))
                .expect("there are rows");
            assert!(
                off(worst) <= tolerance,
                "{}: {worst} instead of {expected}",
                kernel.variant
            );
        }
    }
}
