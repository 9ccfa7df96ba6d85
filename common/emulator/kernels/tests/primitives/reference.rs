//! The kernel that computes large references on a GPU, on small problems and against the host's.

use common::inputs::{Family, Inputs, Operand};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::Disagreement;
use common::reference::agree::agree;
use common::reference::gpu::{baseline_layout, exact_layout, small_cases};
use common::reference::layout::{Layout, Params, THREADS};
use common::reference::{Probability, Reference, reference, reference_of_rows};
use common::serving::Serving;
use emulator::Schedule;

use crate::launch::{Plain, SCHEDULES, launch};

// SAFETY: addresses and 32-bit numbers without padding.
unsafe impl Plain for Params {}

/// The results of the kernel of references.
struct Attended<T> {
    output: Vec<T>,
    lse: Vec<f64>,
}

fn attend<T: Copy + Default>(
    kernel: &str,
    layout: &Layout<'_, T>,
    schedule: Schedule,
) -> Attended<T> {
    let blocks = layout.tiles.len();
    let mut weights = vec![T::default(); blocks * layout.weights_of_tile()];
    let mut output = vec![T::default(); layout.q.len()];
    let mut lse = vec![0.0; layout.rows()];
    let params = Params {
        q: layout.q.as_ptr().cast(),
        keys: layout.keys.as_ptr().cast(),
        values: layout.values.as_ptr().cast(),
        tiles: layout.tiles.as_ptr(),
        weights: weights.as_mut_ptr().cast(),
        out: output.as_mut_ptr().cast(),
        lse: lse.as_mut_ptr(),
        seq_kv: layout.seq_kv as i32,
        head_dim: layout.head_dim as i32,
        rounding: layout.rounding,
    };
    launch(&format!("{kernel}<<<{blocks}, {THREADS}, 0>>>()"))
        .input(0, &[params])
        .schedule(schedule)
        .output::<u8>(0)
        .unwrap_or_else(|fault| panic!("{kernel}, {schedule:?}: {fault}"));
    Attended { output, lse }
}

/// Computes what a GPU would in place of `host`.
fn emulated(inputs: &Inputs, host: &Reference, schedule: Schedule) -> Reference {
    let (problem, rows) = (&inputs.problem, &host.rows);
    let operands = [&inputs.q, &inputs.k, &inputs.v];
    let exact = |values: &[Vec<f64>; 3]| {
        attend(
            "reference_f64",
            &exact_layout(problem, rows, values),
            schedule,
        )
    };
    let Attended { output, lse } = exact(&operands.map(Operand::dequantised));
    let codes = operands.map(Operand::codes);
    let layout = baseline_layout(inputs, &codes, rows, host.probability);
    let mut baseline = attend("reference_f32", &layout, schedule).output;
    problem.dtype.output().round_all(&mut baseline);
    let unquantised =
        (problem.dtype == Dtype::E4m3).then(|| exact(&operands.map(unquantised_values)).output);
    Reference {
        output,
        lse,
        baseline,
        unquantised,
        ..host.clone()
    }
}

fn unquantised_values(operand: &Operand) -> Vec<f64> {
    let values = operand.unquantised.as_ref().unwrap();
    values.iter().map(|&value| f64::from(value)).collect()
}

fn compare(problem: &Problem, family: Family, p: Probability) -> Result<(), Disagreement> {
    let inputs = Inputs::generate(problem, family, 0);
    let host = reference(&inputs, p).unwrap();
    agree(problem, &host, &emulated(&inputs, &host, SCHEDULES[0]))
}

fn problem(seqs: [usize; 2], dtype: Dtype, mask: Mask) -> Problem {
    let shape = Shape {
        batch: 1,
        heads_q: 2,
        heads_kv: 1,
        seq_q: seqs[0],
        seq_kv: seqs[1],
        head_dim: 64,
        serving: Serving::DENSE,
    };
    Problem::new(shape, dtype, mask).unwrap()
}

#[test]
fn it_computes_the_hosts_references() {
    for (problem, p) in small_cases() {
        compare(&problem, Family::Shifted, p).unwrap_or_else(|error| panic!("{error}"));
    }
}

#[test]
fn it_computes_the_hosts_references_of_each_family() {
    for dtype in Dtype::ALL {
        let problem = problem([5, 9], dtype, Mask::Causal);
        for family in Family::for_dtype(dtype) {
            compare(&problem, family, Probability::of_operands(dtype))
                .unwrap_or_else(|error| panic!("{family}: {error}"));
        }
    }
}

#[test]
fn its_bits_are_those_of_every_schedule() {
    let problem = problem([7, 150], Dtype::E4m3, Mask::Causal);
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let host = reference(&inputs, Probability::E4m3).unwrap();
    let [first, others @ ..] = SCHEDULES.map(|schedule| emulated(&inputs, &host, schedule));
    for (schedule, other) in SCHEDULES[1..].iter().zip(others) {
        assert!(first == other, "{schedule:?}");
    }
}

#[test]
fn it_computes_rows_that_are_apart() {
    let problem = problem([40, 33], Dtype::F16, Mask::Causal);
    let inputs = Inputs::generate(&problem, Family::Normal, 0);
    let rows = vec![0, 3, 8, 9, 39, 47, 79];
    let host = reference_of_rows(&inputs, Probability::F16, rows).unwrap();
    let gpu = emulated(&inputs, &host, SCHEDULES[0]);
    agree(&problem, &host, &gpu).unwrap_or_else(|error| panic!("{error}"));
}

/// A change of a table of tiles that makes it wrong.
type Mistake = fn(&mut Layout<'_, f64>);

// A table of tiles has a fault for each thing that it says.
#[test]
fn a_wrong_tile_is_not_the_hosts_reference() {
    let problem = problem([9, 5], Dtype::F16, Mask::Causal);
    let inputs = Inputs::generate(&problem, Family::Shifted, 0);
    let host = reference(&inputs, Probability::F16).unwrap();
    let values = [&inputs.q, &inputs.k, &inputs.v].map(Operand::dequantised);
    let judge = |break_it: Mistake| {
        let mut layout = exact_layout(&problem, &host.rows, &values);
        break_it(&mut layout);
        let Attended { output, lse } = attend("reference_f64", &layout, SCHEDULES[0]);
        let gpu = Reference {
            output,
            lse,
            ..host.clone()
        };
        agree(&problem, &host, &gpu).is_ok()
    };
    assert!(judge(|_| ()));
    // A row without a key sees one; a row that sees one sees none; the last key is forgotten; and a
    // scale is wrong in its 30th bit.
    let faults: [Mistake; 4] = [
        |layout| layout.tiles[0].visible[0] = 1,
        |layout| layout.tiles[1].visible[0] -= 1,
        |layout| layout.tiles[2].visible[0] -= 1,
        |layout| layout.tiles[2].score_scale *= 1.0 + 1e-9,
    ];
    for (number, fault) in faults.into_iter().enumerate() {
        assert!(!judge(fault), "fault {number}");
    }
}
