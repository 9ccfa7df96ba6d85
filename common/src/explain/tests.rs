use super::ends::miscounted_keys;
use super::steps::group_by_warp;
use super::*;
use crate::faults::{Fault, Model, ShownValues, model_output};
use crate::inputs::{Family, Inputs};
use crate::probability::Probability;
use crate::problem::{Dtype, Mask, Problem, parse_shape};
use emulator::Place;
use emulator::trace::{Does, How, Observed, Passed, Seen, Step as Marked, TensorRead};

const TILE: usize = 16;

/// A row of a problem that the model of a kernel computes.
#[derive(Clone, Copy, Debug)]
struct Row {
    shape: &'static str,
    dtype: Dtype,
    mask: Mask,
    family: Family,
    /// Batch, head and query row.
    row: [usize; 3],
}

/// A row of several tiles, with a ragged last one and grouped heads.
const ROW: Row = Row {
    shape: "2x4:2x70:75x64",
    dtype: Dtype::F16,
    mask: Mask::Full,
    family: Family::Normal,
    row: [1, 2, 31],
};

impl Row {
    /// Explains the row as a kernel with `fault` computes it.
    fn explained(self, fault: Option<Fault>) -> Explained {
        let shape = parse_shape(self.shape).unwrap();
        let problem = Problem::new(shape, self.dtype, self.mask).unwrap();
        let inputs = Inputs::generate(&problem, self.family, 0);
        let [batch, head, query] = self.row;
        let number = (batch * shape.heads_q + head) * shape.seq_q + query;
        let output = model_output(&inputs, fault);
        let case = Case {
            inputs: &inputs,
            row: self.row,
            probability: Probability::half(self.dtype),
            is_shared: false,
            output: Some(&output[number * shape.head_dim..][..shape.head_dim]),
        };
        let mut shown = observations(problem.visible_keys(query) as i32);
        shown.values = self.observed(&inputs, number, fault);
        explain(&case, &shown)
    }

    /// Returns what the model shows of the row with the dense number `number`.
    fn observed(self, inputs: &Inputs, number: usize, fault: Option<Fault>) -> Vec<Observed> {
        let rows: Vec<usize> = (0..inputs.q.len() / inputs.problem.shape.head_dim).collect();
        let model = Model::for_dtype(self.dtype);
        let finished = model.finished(inputs, &rows, fault, |row| [row]);
        let row = &finished[number];
        let mut observed = Vec::new();
        for ShownValues { tile, what, values } in &row.state.shown.values {
            // The model scales scores as it makes them.
            let scale = if *what == Seen::Score {
                row.score_scale
            } else {
                1.0
            };
            for (index, &value) in (0..).zip(values) {
                observed.push(Observed {
                    what: *what,
                    tile: *tile as i32,
                    index,
                    element: index,
                    value: value / scale,
                    block: [0; 3],
                    thread: 0,
                    place: 0,
                    way: 0,
                });
            }
        }
        observed
    }
}

#[test]
fn a_right_row_has_no_deviation() {
    for dtype in Dtype::ALL {
        for family in Family::for_dtype(dtype) {
            for (mask, row) in [
                (Mask::Full, [1, 3, 5]),
                (Mask::Causal, [0, 1, 69]),
                (Mask::Causal, [1, 0, 0]),
            ] {
                let case = Row {
                    dtype,
                    mask,
                    family,
                    row,
                    ..ROW
                };
                assert_eq!(case.explained(None).deviation, None, "{case:?}");
            }
        }
    }
}

#[test]
fn the_number_closest_to_its_bound_is_known_for_a_right_row() {
    let case = Row {
        shape: "1x1x8:75x64",
        row: [0, 0, 5],
        ..ROW
    };
    let closest = case.explained(None).closest.unwrap();
    assert!(closest.share > 0.01 && closest.share <= 1.0, "{closest:?}");
    assert_eq!(case.explained(Some(Fault::DroppedTile)).closest, None);
}

/// Returns a row in which `fault` shows.
fn row_with(fault: Fault) -> Row {
    match fault {
        Fault::ScalesOfFirstBatch => Row {
            dtype: Dtype::E4m3,
            family: Family::RandomScales,
            ..ROW
        },
        Fault::CodecMismatch => Row {
            dtype: Dtype::E4m3,
            ..ROW
        },
        Fault::CausalOffByOne => Row {
            mask: Mask::Causal,
            ..ROW
        },
        Fault::OneWrongElement | Fault::OneRowOff => Row {
            row: [1, 0, 0],
            ..ROW
        },
        Fault::NanLeft | Fault::InfinityLeft => Row {
            row: [1, 3, 69],
            ..ROW
        },
        Fault::MissingRescale => Row {
            family: Family::Large,
            ..ROW
        },
        Fault::MaximumFromZero => Row {
            family: Family::DeepNegative,
            ..ROW
        },
        Fault::EmptyRowAveraged => Row {
            shape: "1x2:1x61:35x64",
            mask: Mask::Causal,
            row: [0, 1, 3],
            ..ROW
        },
        _ => ROW,
    }
}

#[test]
fn each_planted_fault_has_its_signature() {
    use Quantity::{Keys, Maximum, Output, Result, Score, Sum};
    let tile = |index: usize| Some((index * TILE) as i64);
    for (fault, quantity, first_key) in [
        (Fault::Zeros, Result, None),
        (Fault::CopyOfValues, Result, None),
        (Fault::DroppedTile, Keys, None),
        (Fault::StaleTile, Output, tile(1)),
        (Fault::MissingRescale, Output, tile(3)),
        (Fault::UnmaskedPadding, Score, tile(4)),
        (Fault::ProbabilityInE4m3, Output, tile(0)),
        (Fault::OnePercentScale, Result, None),
        (Fault::OneWrongElement, Result, None),
        (Fault::NanLeft, Result, None),
        (Fault::InfinityLeft, Result, None),
        (Fault::CodecMismatch, Score, tile(0)),
        (Fault::ScalesOfFirstBatch, Maximum, tile(0)),
        (Fault::CausalOffByOne, Score, tile(2)),
        (Fault::SwappedKeysAndValues, Score, tile(0)),
        (Fault::WrongKeyHead, Score, tile(0)),
        (Fault::EmptyRowAveraged, Score, tile(0)),
        (Fault::MaximumFromZero, Maximum, tile(0)),
        (Fault::NeighbourState, Maximum, tile(0)),
        (Fault::OneRowOff, Result, None),
        (Fault::ProbabilityTruncated, Output, tile(0)),
        (Fault::SumInHalf, Sum, tile(0)),
        (Fault::AccumulatorInHalf, Output, tile(0)),
        (Fault::OutputTruncated, Result, None),
    ] {
        let explained = row_with(fault).explained(Some(fault));
        let deviation = explained
            .deviation
            .unwrap_or_else(|| panic!("{fault} is not seen"));
        let first_key_seen = deviation
            .at
            .map(|[chain, step]| explained.chains[chain].steps[step].tile);
        assert_eq!(
            (deviation.quantity, first_key_seen),
            (quantity, first_key),
            "{fault}: {deviation:?}"
        );
    }
}

#[test]
fn nan_is_never_right() {
    let number = Wrong {
        at: 0,
        kernel: f64::NAN,
        model: 1.0,
        bound: f64::INFINITY,
    };
    assert!(!number.is_right());
}

#[test]
fn infinities_are_right_where_they_agree() {
    let number = Wrong {
        at: 0,
        kernel: f64::NEG_INFINITY,
        model: f64::NEG_INFINITY,
        bound: f64::INFINITY,
    };
    assert!(number.is_right());
}

fn seen(what: Seen, index: i32, thread: u32, value: f32) -> Observed {
    Observed {
        what,
        tile: 0,
        index,
        element: 0,
        value,
        block: [0; 3],
        thread,
        place: 0,
        way: 0,
    }
}

fn shown(values: Vec<Observed>) -> Observations {
    Observations {
        values,
        ..observations(3)
    }
}

fn inputs_of_three_keys() -> Inputs {
    let shape = parse_shape("1x1x1:3x64").unwrap();
    let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
    Inputs::generate(&problem, Family::Normal, 0)
}

fn first_row(inputs: &Inputs) -> Case<'_> {
    Case {
        inputs,
        row: [0; 3],
        probability: Probability::F16,
        is_shared: false,
        output: None,
    }
}

#[test]
fn a_score_is_what_the_last_lane_showed_and_an_output_the_sum_of_all_lanes() {
    let (first, last) = (0, 1);
    let chains = group_by_warp(&shown(vec![
        seen(Seen::Score, 0, first, 1.0),
        seen(Seen::Score, 0, last, 2.0),
        seen(Seen::Output, 0, first, 1.0),
        seen(Seen::Output, 0, last, 2.0),
    ]));
    let step = &chains[0].steps[0];
    assert_eq!(step.scores[&0].any(), 2.0);
    assert_eq!(step.output[&0].sum(), 3.0);
}

#[test]
fn a_key_that_counts_in_two_warps_is_wrong() {
    let (inputs, warps) = (inputs_of_three_keys(), [0, 32]);
    let shown = shown(vec![
        seen(Seen::Score, 0, warps[0], 0.0),
        seen(Seen::Score, 1, warps[0], 0.0),
        seen(Seen::Score, 1, warps[1], 0.0),
        seen(Seen::Score, 2, warps[1], 0.0),
    ]);
    let operands = Operands::new(&first_row(&inputs));
    let deviation = miscounted_keys(&operands, &group_by_warp(&shown), &shown).expect("it is seen");
    let [wrong] = deviation.wrong[..] else {
        panic!("{deviation:?}")
    };
    assert_eq!((wrong.at, wrong.kernel, wrong.model), (1, 2.0, 1.0));
}

#[test]
fn of_two_warps_that_are_wrong_in_one_tile_the_earlier_quantity_is_named() {
    let (inputs, warps) = (inputs_of_three_keys(), [0, 32]);
    let shown = shown(vec![
        seen(Seen::State, 0, warps[0], f32::NAN),
        seen(Seen::Score, 0, warps[1], f32::NAN),
    ]);
    let explained = explain(&first_row(&inputs), &shown);
    let deviation = explained.deviation.expect("it is seen");
    assert_eq!(deviation.quantity, Quantity::Score);
    assert_eq!(deviation.at, Some([1, 0]));
}

fn line(does: Does, line: u32) -> Passed {
    Passed {
        does,
        places: places(line),
    }
}

fn places(line: u32) -> Vec<Place> {
    vec![Place {
        file: "kernel.cu".into(),
        line,
    }]
}

/// Returns what a kernel passed: steps on lines 20 to 50, reads with a product on 55 and without on
/// 60. `visible` keys are counted on 10, K and V brought on 5 and 6; joins, merges and stores are
/// on 70, 80 and 90; values are shown on 99.
fn observations(visible: i32) -> Observations {
    let step = |step, at| line(Does::Step(step), at);
    Observations {
        places: vec![places(99)],
        ways: vec![vec![
            step(Marked::Mask, 20),
            step(Marked::Exponential, 30),
            step(Marked::Sum, 40),
            step(Marked::Rescale, 50),
            line(Does::Access(How::MatrixRead), 55),
            line(Does::Access(How::Read), 60),
        ]],
        reads: vec![
            TensorRead {
                tensor: "k".into(),
                places: places(5),
            },
            TensorRead {
                tensor: "v".into(),
                places: places(6),
            },
        ],
        visible: vec![(visible, step(Marked::Visible, 10))],
        stores: vec![places(90)],
        ends: vec![step(Marked::Join, 70), step(Marked::Merge, 80)],
        ..Observations::default()
    }
}

fn lines(look: &[Suspect]) -> Vec<u32> {
    look.iter().map(|suspect| suspect.places[0].line).collect()
}

/// Returns the lines to look at for a wrong value of a row that sees 5 keys, of which the kernel
/// counted `counted`.
fn lines_of_value(quantity: Quantity, doubt: Doubt, counted: i32) -> Vec<u32> {
    let cell = Cell::default();
    lines(&look::suspects_of_value(
        &observations(counted),
        quantity,
        &cell,
        doubt,
        5,
    ))
}

#[test]
fn a_wrong_value_leads_to_the_step_that_makes_it_and_to_where_it_is_shown() {
    let here = |quantity| lines_of_value(quantity, Doubt::Here, 5);
    assert_eq!(here(Quantity::Score), [20, 99, 10]);
    assert_eq!(here(Quantity::Probability), [30, 99, 60]);
    assert_eq!(here(Quantity::Sum), [40, 99, 60]);
    assert_eq!(here(Quantity::Rescaled), [50, 99, 60]);
    assert_eq!(here(Quantity::Maximum), [99, 60]);
}

#[test]
fn a_miscount_of_keys_comes_before_the_mask() {
    let look = lines_of_value(Quantity::Score, Doubt::Here, 4);
    assert_eq!(look, [10, 20, 99]);
}

#[test]
fn a_wrong_product_leads_to_its_reads_and_to_what_brings_its_operand() {
    let score = |doubt| lines_of_value(Quantity::Score, doubt, 5);
    assert_eq!(score(Doubt::Product(None)), [55, 99]);
    assert_eq!(score(Doubt::Product(Some("k"))), [55, 5, 99]);
}

/// Returns the lines to look at where `stored` takes the place of 1, −2, 3 and 4.
fn lines_of_result(stored: [f64; 4]) -> Vec<u32> {
    let all: Vec<Wrong> = [1.0, -2.0, 3.0, 4.0]
        .into_iter()
        .zip(stored)
        .map(|(model, kernel)| Wrong {
            at: 0,
            kernel,
            model,
            bound: 1e-3,
        })
        .collect();
    let wrong = Wrong::only_wrong(all.iter().copied());
    lines(&look::suspects_at_end(&observations(5), &all, &wrong))
}

#[test]
fn a_wrong_result_leads_to_the_store_the_sum_or_the_merge() {
    assert_eq!(lines_of_result([0.0; 4]), [90, 80, 70]);
    assert_eq!(lines_of_result([f64::NAN; 4]), [90, 80, 70]);
    assert_eq!(lines_of_result([1.0, -2.0, 3.5, 4.0]), [90, 80, 70]);
    assert_eq!(lines_of_result([1.1, -2.2, 3.3, 4.4]), [70, 80, 90]);
    assert_eq!(lines_of_result([1.1, -2.0, 3.5, 4.0]), [80, 70, 90]);
}

#[test]
fn a_fault_of_an_operand_is_distinguished_from_a_mask_and_a_rounding() {
    let (f16, e4m3) = (Dtype::F16, Dtype::E4m3);
    for (fault, dtype, mask, first_lines) in [
        (Fault::WrongKeyHead, f16, Mask::Full, [55, 5]),
        (Fault::SwappedKeysAndValues, f16, Mask::Full, [55, 5]),
        (Fault::StaleTile, f16, Mask::Full, [55, 6]),
        (Fault::CodecMismatch, e4m3, Mask::Full, [55, 99]),
        (Fault::CausalOffByOne, f16, Mask::Causal, [20, 99]),
        (Fault::SumInHalf, f16, Mask::Full, [40, 99]),
        (Fault::ProbabilityTruncated, f16, Mask::Full, [99, 60]),
        (Fault::AccumulatorInHalf, f16, Mask::Full, [99, 60]),
    ] {
        let case = Row { dtype, mask, ..ROW };
        let deviation = case.explained(Some(fault)).deviation;
        let look = deviation.expect("the fault shows").look;
        assert_eq!(lines(&look)[..2], first_lines, "{fault}: {look:?}");
    }
}
