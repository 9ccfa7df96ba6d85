//! What `compare explain` says of a kernel that takes one problem for another: with a window, a sink, a cap or lengths that
//! are not the problem's.

use common::device::Staged;
use common::device::emulated::execute;
use common::explain::{Case, Deviation, Quantity, explain, investigate};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::probability::Probability;
use common::problem::{Dtype, Mask, Problem, parse_shape};
use emulator::Schedule;
use stage_tests::load;
use stage14_served::Served;

/// The row that is explained: batch, head and query row.
const ROW: [usize; 3] = [1, 1, 40];

fn inputs(shape: &str) -> Inputs {
    let problem = Problem::new(parse_shape(shape).unwrap(), Dtype::F16, Mask::Causal).unwrap();
    Inputs::generate(&problem, Family::Normal, 0)
}

/// Explains the row as one of the problem `asked`, where the kernel has computed that of the problem `taken`; Q, K and V are the
/// same.
fn deviation(taken: &str, asked: &str) -> Option<Deviation> {
    let stage = load(&Served);
    let (taken_inputs, asked_inputs) = (inputs(taken), inputs(asked));
    let problem = taken_inputs.problem;
    let prepared = stage.prepare(stage.default_variant(), &problem).unwrap();
    let staged = Staged::new(&taken_inputs, Layout::Strided);
    let execution = execute(&prepared, &staged, Schedule::InOrder, None).unwrap();
    let output = staged.values(&execution.output);
    let [batch, head, query] = ROW;
    let number = (batch * problem.shape.heads_q + head) * problem.shape.seq_q + query;
    let seen = investigate(&prepared, &taken_inputs, None, Some(ROW)).unwrap();
    let case = Case {
        inputs: &asked_inputs,
        row: ROW,
        probability: Probability::F16,
        is_shared: false,
        output: Some(&output[number * problem.shape.head_dim..][..problem.shape.head_dim]),
    };
    explain(&case, &seen.traced.observations).deviation
}

/// Returns the first quantity that is wrong, and the first of its keys or columns.
fn first_wrong(taken: &str, asked: &str) -> (Quantity, i64) {
    let deviation = deviation(taken, asked).expect("the problems differ");
    (deviation.quantity, deviation.wrong[0].at)
}

#[test]
fn a_right_kernel_deviates_nowhere() {
    let shape = "2x2x300x64+window=20:*+sinks+cap=30";
    assert_eq!(deviation(shape, shape), None);
}

#[test]
fn a_window_that_is_one_key_wider_shows_in_the_score_of_that_key() {
    let wrong = first_wrong("2x2x300x64+window=21:*", "2x2x300x64+window=20:*");
    assert_eq!(wrong, (Quantity::Score, 40 - 21));
}

#[test]
fn a_window_that_is_one_key_narrower_shows_in_the_score_of_that_key() {
    let wrong = first_wrong("2x2x300x64+window=19:*", "2x2x300x64+window=20:*");
    assert_eq!(wrong, (Quantity::Score, 40 - 20));
}

#[test]
fn a_sink_that_takes_no_weight_shows_in_what_is_stored() {
    let (quantity, _) = first_wrong("2x2x300x64", "2x2x300x64+sinks");
    assert_eq!(quantity, Quantity::Result);
}

#[test]
fn a_score_that_is_not_capped_is_wrong() {
    let (quantity, _) = first_wrong("2x2x300x64", "2x2x300x64+cap=2");
    assert_eq!(quantity, Quantity::Score);
}

#[test]
fn another_cap_is_wrong() {
    let (quantity, _) = first_wrong("2x2x300x64+cap=3", "2x2x300x64+cap=2");
    assert_eq!(quantity, Quantity::Score);
}

#[test]
fn a_key_behind_the_sequence_shows_in_its_score() {
    // Of lengths that begin at 0 the second sequence has none.
    let deviation = deviation("2x2x300x64", "2x2x300x64+used=even:0:1").expect("lengths differ");
    assert_eq!(deviation.quantity, Quantity::Score);
}
