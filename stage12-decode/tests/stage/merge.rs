//! How parts of the keys are merged: maxima that only one part has, in the first or second row of a
//! pair that a thread holds.

use common::check::{StagedInputs, Target, failures, launch};
use common::inputs::{Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::reference;
use emulator::Schedule;
use stage12_decode::Decode;
use std::sync::Arc;

const TARGET: Target<'_> = Target::Emulated {
    schedules: &[Schedule::InOrder, Schedule::Reversed],
    traced: &[],
    suppress: None,
};

/// Each team of each variant has one of these tiles of 64 keys at least: the first team the first,
/// the last team the last.
const KEYS: usize = 4096;
const TILE: usize = 64;

/// Judges every variant on two octets of rows, one row of each pair. Only rows of `octet` see
/// anything of K, of which `key(index)` is one column; V is 1 for the keys that `counts` and 0 for
/// others.
fn right(octet: usize, key: impl Fn(usize) -> f32, counts: impl Fn(usize) -> bool) {
    let shape = Shape {
        seq_kv: KEYS,
        ..Shape::bhsd(1, 1, 16, 64)
    };
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    let operand = |extents: [usize; 4], value: &dyn Fn(usize, usize) -> f32| {
        let values = (0..extents[2] * 64).map(|at| value(at / 64, at % 64));
        Operand::rounded(extents, Dtype::F16, values.collect(), None)
    };
    let first_column = |is_there: bool, column: usize, value: f32| {
        if is_there && column == 0 { value } else { 0.0 }
    };
    let inputs = Inputs {
        problem,
        q: operand(shape.q_extents(), &|row, column| {
            first_column(row / 8 == octet, column, 16.0)
        }),
        k: operand(shape.kv_extents(), &|index, column| {
            first_column(true, column, key(index))
        }),
        v: operand(shape.kv_extents(), &|index, _| {
            if counts(index) { 1.0 } else { 0.0 }
        }),
    };
    let stage = stage_tests::load(&Decode);
    let staged = Arc::new(StagedInputs::new(&inputs, None));
    for variant in stage.variants() {
        let launched = launch(&stage, variant, &staged, TARGET).unwrap();
        let reference = reference(&inputs, launched.probability).unwrap();
        let failed = failures(Ok(launched.judge(&reference)));
        assert_eq!(failed, [], "{variant}");
    }
}

fn is_in_the_first_part(key: usize) -> bool {
    key < TILE
}

fn is_in_the_last_part(key: usize) -> bool {
    key >= KEYS - TILE
}

/// Scores of 12 where `is_large`, else of 0: one large key weighs more than all others.
fn score(is_large: bool) -> f32 {
    if is_large { 6.0 } else { 0.0 }
}

#[test]
fn the_first_part_may_have_the_maximum_of_the_first_row_of_a_pair() {
    right(
        0,
        |key| score(is_in_the_first_part(key)),
        is_in_the_first_part,
    );
}

#[test]
fn the_first_part_may_have_the_maximum_of_the_second_row_of_a_pair() {
    right(
        1,
        |key| score(is_in_the_first_part(key)),
        is_in_the_first_part,
    );
}

#[test]
fn the_last_part_may_have_the_maximum_of_the_first_row_of_a_pair() {
    right(
        0,
        |key| score(is_in_the_last_part(key)),
        is_in_the_last_part,
    );
}

#[test]
fn the_last_part_may_have_the_maximum_of_the_second_row_of_a_pair() {
    right(
        1,
        |key| score(is_in_the_last_part(key)),
        is_in_the_last_part,
    );
}

/// No sum of a part may be compared with a maximum of 0, which none of them has.
#[test]
fn all_scores_of_all_parts_may_be_very_negative() {
    for octet in [0, 1] {
        right(octet, |_| -1000.0, |key| key % 2 == 0);
    }
}

#[test]
fn one_part_may_be_far_less_negative_than_the_others() {
    let is_near = |key: usize| is_in_the_last_part(key);
    for octet in [0, 1] {
        right(
            octet,
            |key| if is_near(key) { -900.0 } else { -1000.0 },
            is_near,
        );
    }
}
