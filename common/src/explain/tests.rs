use super::*;
use crate::faults::{Fault, Model, model_output};
use crate::inputs::Family;
use crate::problem::{Mask, Problem, parse_shape};
use emulator::Place;
use emulator::trace::{Does, How, Observed, Passed, Seen, Step as Marked};

const TILE: usize = 16;

fn explained(
    shape: &str,
    dtype: Dtype,
    mask: Mask,
    family: Family,
    row: [usize; 3],
    fault: Option<Fault>,
) -> Explained {
    let extents = parse_shape(shape).unwrap();
    let problem = Problem::new(extents, dtype, mask).unwrap();
    let inputs = Inputs::generate(&problem, family, 0);
    let number = (row[0] * extents.heads_q + row[1]) * extents.seq_q + row[2];
    let rows: Vec<usize> = (0..inputs.q.len() / extents.head_dim).collect();
    let of_rows = Model::of(dtype).finished(&inputs, &rows, fault, |state, scale, _| {
        [(state.shown, scale)]
    });
    let mut shown = observations(problem.visible_keys(row[2]) as i32);
    let (of_row, scale) = &of_rows[number];
    for (tile, what, values) in of_row {
        // The model scales scores as it makes them.
        let scale = if *what == Seen::Score { *scale } else { 1.0 };
        shown
            .values
            .extend((0..).zip(values).map(|(index, &value)| Observed {
                what: *what,
                tile: *tile as i32,
                index,
                element: index,
                value: value / scale,
                block: [0; 3],
                thread: 0,
                place: 0,
                way: 0,
            }));
    }
    let output = model_output(&inputs, fault);
    let output = &output[number * extents.head_dim..][..extents.head_dim];
    let case = Case {
        inputs: &inputs,
        row,
        probability: Probability::half(dtype),
        is_shared: false,
        output: Some(output),
    };
    explain(&case, &shown)
}

#[test]
fn nothing_is_said_of_a_right_row() {
    for dtype in Dtype::ALL {
        for family in Family::for_dtype(dtype) {
            for (mask, row) in [
                (Mask::Full, [1, 3, 5]),
                (Mask::Causal, [0, 1, 69]),
                (Mask::Causal, [1, 0, 0]),
            ] {
                let found = explained("2x4:2x70:75x64", dtype, mask, family, row, None).deviation;
                assert_eq!(found, None, "{dtype} {family} {mask} {row:?}");
            }
        }
    }
}

#[test]
fn what_comes_closest_to_its_bound_is_known_of_a_right_row() {
    let shape = "1x1x8:75x64";
    let of = |fault| {
        explained(
            shape,
            Dtype::F16,
            Mask::Full,
            Family::Normal,
            [0, 0, 5],
            fault,
        )
    };
    let closest = of(None).closest.unwrap();
    assert!(closest.share > 0.01 && closest.share <= 1.0, "{closest:?}");
    assert_eq!(of(Some(Fault::DroppedTile)).closest, None);
}

#[test]
fn each_planted_fault_has_its_signature() {
    use Quantity::{Keys, Maximum, Output, Result, Score, Sum};
    let tile = |at: usize| Some((at * TILE) as i64);
    for (fault, quantity, first) in [
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
        let (mut shape, mut dtype, mut mask, mut family) =
            ("2x4:2x70:75x64", Dtype::F16, Mask::Full, Family::Normal);
        let mut row = [1, 2, 31];
        match fault {
            Fault::ScalesOfFirstBatch => (dtype, family) = (Dtype::E4m3, Family::RandomScales),
            Fault::CodecMismatch => dtype = Dtype::E4m3,
            Fault::CausalOffByOne => mask = Mask::Causal,
            Fault::OneWrongElement | Fault::OneRowOff => row = [1, 0, 0],
            Fault::NanLeft | Fault::InfinityLeft => row = [1, 3, 69],
            Fault::MissingRescale => family = Family::Large,
            Fault::MaximumFromZero => family = Family::DeepNegative,
            Fault::EmptyRowAveraged => {
                (shape, mask, row) = ("1x2:1x61:35x64", Mask::Causal, [0, 1, 3]);
            }
            _ => {}
        }
        let Explained {
            chains, deviation, ..
        } = explained(shape, dtype, mask, family, row, Some(fault));
        let found = deviation.unwrap_or_else(|| panic!("{fault} is not seen"));
        let tile = |[chain, step]: [usize; 2]| chains[chain].steps[step].tile;
        assert_eq!(
            (found.quantity, found.at.map(tile)),
            (quantity, first),
            "{fault}: {found:?}"
        );
    }
}

#[test]
fn a_number_that_is_none_is_never_right() {
    let wrong = |kernel: f64, model: f64| Wrong {
        at: 0,
        kernel,
        model,
        bound: f64::INFINITY,
    };
    assert!(!is_right(&wrong(f64::NAN, 1.0)));
    assert!(is_right(&wrong(f64::NEG_INFINITY, f64::NEG_INFINITY)));
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

/// Steps on lines 20 to 50, reads with a product on 55 and without on 60; `visible` keys are counted on 10, K and V brought
/// on 5 and 6; joins, merges and stores on 70, 80 and 90; values shown on 99.
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
        reads: vec![("k".into(), places(5)), ("v".into(), places(6))],
        visible: vec![(visible, step(Marked::Visible, 10))],
        stores: vec![places(90)],
        ends: vec![step(Marked::Join, 70), step(Marked::Merge, 80)],
        ..Observations::default()
    }
}

fn lines(look: &[Suspect]) -> Vec<u32> {
    look.iter().map(|suspect| suspect.places[0].line).collect()
}

/// The step that makes the value, then where it is shown; of a mask first where keys were miscounted.
#[test]
fn a_wrong_value_leads_to_the_step_that_makes_it() {
    let named = |quantity, doubt, visible| {
        let look = look::look(&observations(visible), quantity, &Cell::default(), doubt, 5);
        lines(&look)
    };
    let here = |quantity| named(quantity, Doubt::Here, 5);
    assert_eq!(here(Quantity::Score), [20, 99, 10]);
    assert_eq!(named(Quantity::Score, Doubt::Here, 4), [10, 20, 99]);
    assert_eq!(here(Quantity::Probability), [30, 99, 60]);
    assert_eq!(here(Quantity::Sum), [40, 99, 60]);
    assert_eq!(here(Quantity::Rescaled), [50, 99, 60]);
    assert_eq!(here(Quantity::Maximum), [99, 60]);
    let score = |doubt| named(Quantity::Score, doubt, 5);
    assert_eq!(score(Doubt::Product(None)), [55, 99]);
    assert_eq!(score(Doubt::Product(Some("k"))), [55, 5, 99]);
}

#[test]
fn a_wrong_result_leads_to_the_store_the_sum_or_the_merge() {
    let named = |output: [f64; 4]| {
        let all: Vec<Wrong> = [1.0, -2.0, 3.0, 4.0]
            .into_iter()
            .zip(output)
            .map(|(model, kernel)| Wrong {
                at: 0,
                kernel,
                model,
                bound: 1e-3,
            })
            .collect();
        let wrong: Vec<Wrong> = all.iter().copied().filter(|w| !is_right(w)).collect();
        lines(&look::look_at_end(&observations(5), &all, &wrong))
    };
    assert_eq!(named([0.0; 4]), [90, 80, 70]);
    assert_eq!(named([f64::NAN; 4]), [90, 80, 70]);
    assert_eq!(named([1.0, -2.0, 3.5, 4.0]), [90, 80, 70]);
    assert_eq!(named([1.1, -2.2, 3.3, 4.4]), [70, 80, 90]);
    assert_eq!(named([1.1, -2.0, 3.5, 4.0]), [80, 70, 90]);
}

#[test]
fn a_fault_of_an_operand_is_told_from_a_mask_and_a_rounding() {
    for (fault, dtype, mask, first) in [
        (Fault::WrongKeyHead, Dtype::F16, Mask::Full, [55, 5]),
        (Fault::SwappedKeysAndValues, Dtype::F16, Mask::Full, [55, 5]),
        (Fault::StaleTile, Dtype::F16, Mask::Full, [55, 6]),
        (Fault::CodecMismatch, Dtype::E4m3, Mask::Full, [55, 99]),
        (Fault::CausalOffByOne, Dtype::F16, Mask::Causal, [20, 99]),
        (Fault::SumInHalf, Dtype::F16, Mask::Full, [40, 99]),
        (
            Fault::ProbabilityTruncated,
            Dtype::F16,
            Mask::Full,
            [99, 60],
        ),
        (Fault::AccumulatorInHalf, Dtype::F16, Mask::Full, [99, 60]),
    ] {
        let (shape, row) = ("2x4:2x70:75x64", [1, 2, 31]);
        let found = explained(shape, dtype, mask, Family::Normal, row, Some(fault));
        let deviation = found.deviation.expect("it is seen");
        assert_eq!(lines(&deviation.look)[..2], first, "{fault}: {deviation:?}");
    }
}
