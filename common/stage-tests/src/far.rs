//! From which maximum on scores are scaled exactly, and how.

use crate::load;
use common::check::{StagedInputs, Target, failures, launch};
use common::device::Staged;
use common::device::emulated::execute;
use common::image::Layout;
use common::inputs::{Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::reference;
use common::stage::{Attention, Kernel, LoadedStage};
use common::verdict::GateId;
use emulator::Schedule;
use std::sync::Arc;

/// Two columns of Q and K are not 0: `q(row)` and 8 times `k(key)`. All of V's row of a key is
/// `v(key)`.
fn inputs(
    [rows, keys]: [usize; 2],
    q: &dyn Fn(usize) -> f32,
    k: &dyn Fn(usize) -> [f32; 2],
    v: &dyn Fn(usize) -> f32,
) -> Inputs {
    let shape = Shape {
        seq_kv: keys,
        ..Shape::bhsd(1, 1, rows, 64)
    };
    let problem =
        Problem::new(shape, Dtype::F16, Mask::Full).expect("these are extents of a problem");
    let operand = |extents: [usize; 4], value: &dyn Fn(usize, usize) -> f32| {
        let values = (0..extents[2] * 64).map(|i| value(i / 64, i % 64));
        Operand::rounded(extents, Dtype::F16, values.collect(), None)
    };
    Inputs {
        problem,
        q: operand(shape.q_extents(), &|row, column| {
            value_or_0([q(row), 8.0], column)
        }),
        k: operand(shape.kv_extents(), &|key, column| {
            value_or_0(k(key), column)
        }),
        v: operand(shape.kv_extents(), &|key, _| v(key)),
    }
}

/// Returns whether a kernel takes [`inputs`], of which no cache holds keys that differ by one step.
fn takes_inputs(stage: &LoadedStage, kernel: &Kernel) -> bool {
    let is_cached = stage.attention.cache(kernel).is_some();
    (kernel.dtype, kernel.head_dim) == (Dtype::F16, 64) && !is_cached
}

fn value_or_0(values: [f32; 2], column: usize) -> f32 {
    values.get(column).copied().unwrap_or(0.0)
}

fn is_even(key: usize) -> bool {
    key.is_multiple_of(2)
}

/// Returns 4 for even keys, which times the 8 of Q is one step of f32 at 2^28.
fn step(key: usize) -> f32 {
    if is_even(key) { 4.0 } else { 0.0 }
}

fn one_if(condition: bool) -> f32 {
    if condition { 1.0 } else { 0.0 }
}

/// Returns inputs in which one of a thread's two rows, 8 apart, is far, the second and then the
/// first. All keys weigh the same; V of the first half is 1.
fn some_rows_are_far(keys: usize) -> Inputs {
    inputs(
        [32, keys],
        &|row| match row / 8 {
            1 | 2 => 32768.0,
            _ => 1.0,
        },
        &|_| [49984.0, 0.0],
        &|key| one_if(key < keys / 2),
    )
}

/// Returns inputs whose scores go from 1.64e9 to 2.4e9, times 0.18, above 0 or below: all in the
/// first octave of far maxima, and the largest of it differ from row to row. All keys weigh the
/// same, and all of V is 1.
fn all_rows_are_far(sign: f32) -> Inputs {
    inputs(
        [160, 64],
        &|row| sign * (32768.0 + 96.0 * row as f32),
        &|key| [49984.0, step(key)],
        &|_| 1.0,
    )
}

/// Fails unless the log-sum-exps of rows whose maxima are far are those of their scores (gate C8),
/// where other rows of the thread are not far, and where all are.
pub fn far_log_sum_exps(attention: &'static dyn Attention) {
    let stage = load(attention);
    let target = Target::Emulated {
        schedules: &[Schedule::InOrder],
        traced: &[],
        suppress: None,
    };
    for inputs in [
        some_rows_are_far(256),
        all_rows_are_far(1.0),
        all_rows_are_far(-1.0),
    ] {
        let staged = Arc::new(StagedInputs::new(&inputs, None));
        let variants = stage
            .kernels
            .iter()
            .filter(|kernel| kernel.lse && takes_inputs(&stage, kernel));
        for kernel in variants {
            let launched =
                launch(&stage, &kernel.variant, &staged, target).expect("the emulator runs it");
            let reference =
                reference(&inputs, launched.probability).expect("these inputs are finite");
            let failed = failures(Ok(launched.judge(&reference)));
            let wrong = failed.iter().find(|result| result.gate == GateId::C8);
            assert_eq!(wrong, None, "{}", kernel.variant);
        }
    }
}

/// Inputs whose outputs are all one value.
struct Case {
    inputs: Inputs,
    expected: f32,
    tolerance: f32,
}

/// Fails unless maxima below 2^28 (of scores in base 2) keep the scale of the softmax, where keys
/// that differ by one step of f32 still share the weight, those from 2^28 on are subtracted
/// exactly, and rows see both in either order; and unless a maximum is raised before an exponential
/// is too large for a half.
pub fn far_maxima(attention: &'static dyn Attention) {
    let stage = load(attention);
    let mut cases = vec![near_maxima(), half_of_keys_is_seen()];
    for sign in [1.0, -1.0] {
        cases.push(Case {
            inputs: all_rows_are_far(sign),
            expected: 1.0,
            tolerance: 0.0,
        });
    }
    for far_score in [1.0, -1.0] {
        for is_far_first in [true, false] {
            cases.push(mixed_maxima(far_score, is_far_first));
        }
    }
    for row_octet in [0, 1] {
        for is_large_first in [true, false] {
            cases.push(risen_maxima(row_octet, is_large_first));
        }
    }
    for kernel in &stage.kernels {
        if !takes_inputs(&stage, kernel) {
            continue;
        }
        for case in &cases {
            judge_case(&stage, &kernel.variant, case);
        }
    }
}

/// Returns maxima just below 2^28.
fn near_maxima() -> Case {
    // 2^28 times 0.18 is 2^25.5, and the step of 32 then 5.77: the odd keys weigh 2^-5.77.
    let weight = (-32.0 * 0.125 * std::f32::consts::LOG2_E).exp2();
    Case {
        inputs: inputs(
            [16, 64],
            &|_| 16384.0,
            &|key| [16384.0, step(key)],
            &|key| one_if(is_even(key)),
        ),
        expected: 1.0 / (1.0 + weight),
        tolerance: 1e-3,
    }
}

fn half_of_keys_is_seen() -> Case {
    Case {
        inputs: some_rows_are_far(2048),
        expected: 0.5,
        tolerance: 1e-3,
    }
}

/// Returns rows that see far scores in one half of the keys and near ones in the other.
fn mixed_maxima(far_score: f32, is_far_first: bool) -> Case {
    let is_far = |key: usize| (key < 1024) == is_far_first;
    let score = |key| {
        if is_far(key) {
            far_score * 49984.0
        } else {
            1.0
        }
    };
    Case {
        inputs: inputs([16, 2048], &|_| 32768.0, &|key| [score(key), 0.0], &|key| {
            one_if(is_far(key) == (far_score > 0.0))
        }),
        expected: 1.0,
        tolerance: 1e-3,
    }
}

/// Returns rows of which half of a warp's see scores of 0 and, in the other half of the keys, of
/// 17: under a maximum of 0 no half holds 2^17.
fn risen_maxima(row_octet: usize, is_large_first: bool) -> Case {
    Case {
        inputs: inputs(
            [16, 2048],
            &|row| one_if(row / 8 == row_octet),
            &|key| {
                [
                    if (key < 1024) == is_large_first {
                        94.0
                    } else {
                        0.0
                    },
                    0.0,
                ]
            },
            &|_| 1.0,
        ),
        expected: 1.0,
        tolerance: 1e-3,
    }
}

fn judge_case(stage: &LoadedStage, variant: &str, case: &Case) {
    let prepared = stage
        .prepare(variant, &case.inputs.problem)
        .expect("the variant has this kernel");
    let staged = Staged::new(&case.inputs, Layout::Packed);
    let executed =
        execute(&prepared, &staged, Schedule::InOrder, None).expect("the emulator runs it");
    let output = staged.values(&executed.output);
    assert!(!output.is_empty(), "there are rows");
    for value in output {
        assert!(
            (value - case.expected).abs() <= case.tolerance,
            "{variant}: {value} instead of {}",
            case.expected
        );
    }
}
