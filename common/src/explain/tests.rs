use super::*;
use crate::e4m3::E4m3;
use crate::faults::Fault;
use crate::inputs::Family;
use crate::problem::{Mask, Problem, parse_shape};
use emulator::Place;
use emulator::trace::{Does, How, Observed, Passed, Seen, Step as Marked};

const TILE: usize = 16;

struct Kernel<'a> {
    inputs: &'a Inputs,
    row: [usize; 3],
    fault: Option<Fault>,
    shown: Observations,
}

impl Kernel<'_> {
    fn show(&mut self, what: Seen, tile: usize, values: impl IntoIterator<Item = (usize, f32)>) {
        for (element, (index, value)) in values.into_iter().enumerate() {
            self.shown.values.push(Observed {
                what,
                tile: tile as i32,
                index: index as i32,
                element: element as i32,
                value,
                block: [0; 3],
                thread: 0,
                place: 0,
                way: 0,
            });
        }
    }

    fn is(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn run(&mut self) -> Vec<f32> {
        let format = self.inputs.problem.dtype.output();
        let (inputs, [b, h, s]) = (self.inputs, self.row);
        let shape = inputs.problem.shape;
        let dim = shape.head_dim;
        let group = shape.heads_q / shape.heads_kv;
        let head = if self.is(Fault::WrongKeyHead) {
            h % shape.heads_kv
        } else {
            h / group
        };
        let batch = if self.is(Fault::ScalesOfFirstBatch) {
            0
        } else {
            b
        };
        let scale = |operand: &Operand, heads: usize, head: usize| {
            operand
                .scales
                .get(batch * heads + head)
                .copied()
                .unwrap_or(1.0)
        };
        let scale_log2 = inputs.problem.softmax_scale
            * std::f32::consts::LOG2_E
            * scale(&inputs.q, shape.heads_q, h)
            * scale(&inputs.k, shape.heads_kv, head);
        let (mut q, k, v) = (inputs.q.codes(), inputs.k.codes(), inputs.v.codes());
        if self.is(Fault::CodecMismatch) {
            let decode = |code: f32| ((code / E4m3::MAX + 1.0) * 127.5 - 128.0) / 127.0 * E4m3::MAX;
            q.iter_mut().for_each(|code| *code = decode(*code));
        }
        let q_row = &q[((b * shape.heads_q + h) * shape.seq_q + s) * dim..][..dim];
        let at = |of: &[f32], key: usize, d: usize| {
            of.get(((b * shape.heads_kv + head) * shape.seq_kv + key) * dim + d)
                .copied()
                .unwrap_or(0.0)
        };
        let mut visible = inputs.problem.visible_keys(s);
        match self.fault {
            Some(Fault::CausalOffByOne) => visible = (visible + 1).min(shape.seq_kv),
            Some(Fault::EmptyRowAveraged) if visible == 0 => visible = shape.seq_kv,
            _ => {}
        }
        let (mut max, mut sum) = (f32::MIN, 0.0f32);
        if self.is(Fault::MaximumFromZero) {
            max = 0.0;
        }
        let mut o = vec![0.0f32; dim];
        for tile in (0..visible.max(1)).step_by(TILE) {
            if self.is(Fault::DroppedTile) && tile == TILE {
                continue;
            }
            let of_scores = if self.is(Fault::SwappedKeysAndValues) {
                &v
            } else {
                &k
            };
            let mut p: Vec<f32> = (0..TILE)
                .map(|key| match tile + key {
                    key if key < visible => {
                        (0..dim).map(|d| q_row[d] * at(of_scores, key, d)).sum()
                    }
                    key if self.is(Fault::UnmaskedPadding) && key >= shape.seq_kv => 0.0,
                    _ => f32::NEG_INFINITY,
                })
                .collect();
            self.show(Seen::Score, tile, p.iter().copied().enumerate());
            let mut new = p.iter().map(|score| score * scale_log2).fold(max, f32::max);
            if self.is(Fault::NeighbourState) {
                new += 3.0;
            }
            let factor = (max - new).exp2();
            p.iter_mut()
                .for_each(|p| *p = (*p * scale_log2 - new).exp2());
            sum = sum * factor + p.iter().sum::<f32>();
            if self.is(Fault::SumInHalf) {
                sum = format.round(sum);
            }
            max = new;
            self.show(Seen::State, tile, [(0, max), (0, sum)]);
            self.show(Seen::Probability, tile, p.iter().copied().enumerate());
            for p in &mut p {
                *p = match self.fault {
                    Some(Fault::ProbabilityInE4m3) => E4m3::from_f32(*p * 256.0).to_f32() / 256.0,
                    Some(Fault::ProbabilityTruncated) => format.toward_zero((*p).into()),
                    _ => format.round(*p),
                };
            }
            let stale = if self.is(Fault::StaleTile) {
                tile.min(TILE)
            } else {
                0
            };
            for (d, o) in o.iter_mut().enumerate() {
                let factor = if self.is(Fault::MissingRescale) {
                    1.0
                } else {
                    factor
                };
                let of_tile = (0..TILE).map(|key| p[key] * at(&v, tile - stale + key, d));
                *o = *o * factor + of_tile.sum::<f32>();
                if self.is(Fault::AccumulatorInHalf) {
                    *o = format.round(*o);
                }
            }
            self.show(Seen::Output, tile, o.iter().copied().enumerate());
        }
        let inverse = if sum > 0.0 {
            scale(&inputs.v, shape.heads_kv, head) / sum
        } else {
            0.0
        };
        let mut output: Vec<f32> = o.iter().map(|o| format.round(o * inverse)).collect();
        let scaled = |factor: f32| {
            o.iter()
                .map(|o| format.round(o * inverse * factor))
                .collect()
        };
        match self.fault {
            Some(Fault::Zeros) => output.fill(0.0),
            Some(Fault::CopyOfValues) => {
                output = (0..dim)
                    .map(|d| format.round(at(&v, s, d) * scale(&inputs.v, shape.heads_kv, head)))
                    .collect();
            }
            Some(Fault::OnePercentScale) => output = scaled(1.01),
            Some(Fault::OneRowOff) => output = scaled(1.02),
            Some(Fault::OneWrongElement) => output[7] = 0.0,
            Some(Fault::NanLeft) => output[dim - 1] = f32::NAN,
            Some(Fault::InfinityLeft) => output[dim - 1] = f32::INFINITY,
            Some(Fault::OutputTruncated) => {
                output = o
                    .iter()
                    .map(|o| format.toward_zero((o * inverse).into()))
                    .collect();
            }
            _ => {}
        }
        output
    }
}

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
    let mut kernel = Kernel {
        inputs: &inputs,
        row,
        fault,
        shown: observations(problem.visible_keys(row[2]) as i32),
    };
    let output = kernel.run();
    let case = Case {
        inputs: &inputs,
        row,
        probability: Probability::half(dtype),
        is_shared: false,
        output: Some(&output),
    };
    explain(&case, &kernel.shown)
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
        (Fault::CodecMismatch, Dtype::E4m3, Mask::Full, [55, 5]),
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
