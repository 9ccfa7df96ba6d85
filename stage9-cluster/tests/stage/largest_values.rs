//! A block sends its part of an output, divided by its own sum: that may exceed every half.

use common::device::Staged;
use common::device::emulated::execute;
use common::gate::{Evidence, numeric_gates};
use common::image::Layout;
use common::inputs::{Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::{Probability, reference};
use emulator::Schedule;
use stage9_cluster::Cluster;
use std::f32::consts::LN_2;

/// V is the largest half for keys of which one block has all its own, and 0 for the others; weights
/// of 1 and a little more than 1/2, which in half the rows round up: the block's sum over its keys,
/// divided by that of their weights, exceeds every half.
fn inputs(head_dim: usize) -> Inputs {
    let shape = Shape {
        seq_kv: 203,
        ..Shape::bhsd(1, 1, 33, head_dim)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    let operand = |extents: [usize; 4], value: &dyn Fn(usize) -> f32| {
        let rows = extents[2];
        let values = (0..rows * head_dim).map(|i| value(i / head_dim));
        Operand::rounded(extents, Dtype::F16, values.collect(), None)
    };
    let logit = LN_2 / (head_dim as f32).sqrt();
    Inputs {
        problem,
        q: operand(shape.q_extents(), &|row| 1.0 - row as f32 / 512.0),
        k: operand(shape.kv_extents(), &|key| match key % 64 {
            0 => 0.0,
            _ => -logit,
        }),
        v: operand(shape.kv_extents(), &|key| {
            if key < 64 { 0.0 } else { 65_504.0 }
        }),
    }
}

#[test]
fn a_quotient_beyond_the_largest_half_is_sent() {
    let stage = stage_tests::load(&Cluster);
    for head_dim in [64, 128] {
        let inputs = inputs(head_dim);
        let prepared = stage.prepare("cluster-64x256", &inputs.problem).unwrap();
        let staged = Staged::new(&inputs, Layout::Packed);
        let executed = execute(&prepared, &staged, Schedule::InOrder, None).unwrap();
        let evidence = Evidence {
            problem: &inputs.problem,
            family: None,
            reference: &reference(&inputs, Probability::F16).unwrap(),
            output: &staged.values(&executed.output),
        };
        for gate in numeric_gates(&evidence).1 {
            assert!(
                !gate.is_fail(),
                "head_dim {head_dim}: {}: {}",
                gate.gate,
                gate.reason
            );
        }
    }
}
