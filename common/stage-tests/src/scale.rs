//! The scales of scores that FP8 tensor cores are given.

use crate::load;
use common::device::Staged;
use common::device::emulated::execute;
use common::e4m3::E4m3;
use common::image::Layout;
use common::inputs::{Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::Attention;
use emulator::Schedule;
use std::f32::consts::LOG2_E;

const ROWS: usize = 64;

/// Returns inputs in which one of every 32 columns of Q and K is 448, of K in turn with both signs:
/// products are large, and scores small. The others of the odd keys have products of 7.5, all lost
/// beside it, those of the even ones the same sum in two products, of which 1 is lost: keys of equal
/// weight, and V of 1 and -1 add up to 0.
fn inputs(head_dim: usize, softmax_scale: f32) -> Inputs {
    let shape = Shape::bhsd(1, 1, ROWS, head_dim);
    let problem = Problem::with_scale(shape, Dtype::E4m3, Mask::Full, softmax_scale).unwrap();
    let operand = |value: &dyn Fn(usize, usize) -> f32| {
        let codes = (0..ROWS * head_dim)
            .map(|i| E4m3::from_f32(value(i / head_dim, i % head_dim)).to_bits());
        Operand::from_parts(shape.q_extents(), Dtype::E4m3, codes.collect(), vec![1.0]).unwrap()
    };
    let q = operand(&|_, column| if column % 32 == 0 { 448.0 } else { 2.0 });
    let k = operand(&|key, column| match (key % 2, column % 32) {
        (_, 0) if column / 32 % 2 == 0 => 448.0,
        (_, 0) => -448.0,
        (0, 1) => 112.0,
        (0, 2) => 0.5,
        (1, 1..=30) => 3.75,
        _ => 0.0,
    });
    let v = operand(&|key, _| if key % 2 == 0 { 1.0 } else { -1.0 });
    Inputs::from_parts(&problem, q, k, v).unwrap()
}

/// Fails unless FP8 tensor cores sum a head's codes up to the largest scale of scores of its size,
/// and no further.
pub fn largest_scale(attention: &'static dyn Attention) {
    let stage = load(attention);
    for (head_dim, largest) in [(64, 0.0625f32 / 528.0), (128, 0.0625 / 1056.0)] {
        for (fraction, is_exact) in [(0.999, false), (1.001, true)] {
            let inputs = inputs(head_dim, largest * fraction / LOG2_E);
            for variant in stage.variants() {
                let prepared = stage.prepare(variant, &inputs.problem).unwrap();
                let staged = Staged::new(&inputs, Layout::Packed);
                let executed = execute(&prepared, &staged, Schedule::InOrder, None).unwrap();
                let output = staged.values(&executed.output);
                assert_eq!(
                    output.iter().all(|&o| o == 0.0),
                    is_exact,
                    "{variant}, head_dim {head_dim}, {fraction} of its largest scale: {}",
                    output[0]
                );
            }
        }
    }
}
