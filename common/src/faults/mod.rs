//! Planted numeric faults: outputs of broken kernels, on which the gates are tested.

use crate::gate::{Evidence, c8, numeric_gates};
use crate::image::UNWRITTEN;
use crate::inputs::{Family, Inputs};
use crate::problem::{Dtype, Mask, Problem, parse_shape};
use crate::reference::{Probability, Reference, reference};
use crate::verdict::{GateId, GateResult};
use rayon::prelude::*;
use std::collections::BTreeSet;

mod model;

pub use model::Model;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Fault {
        Zeros = "zeros",
        /// Row i is row i of V.
        CopyOfValues = "copy of V",
        DroppedTile = "dropped tile",
        /// P of tile t meets V of tile t − 1.
        StaleTile = "stale tile",
        /// The accumulator keeps its scale when the running maximum grows.
        MissingRescale = "missing rescale",
        /// Two parts of the keys are added up, each under its own maximum.
        UnweightedMerge = "parts merged unweighted",
        /// Keys past the end of a ragged last tile count with score 0.
        UnmaskedPadding = "unmasked padding",
        /// P in E4M3, in a kernel that declares 16 bits.
        ProbabilityInE4m3 = "P rounded to FP8",
        OnePercentScale = "1 % scale",
        /// The largest of the middle row is 0.
        OneWrongElement = "one wrong element",
        NanLeft = "NaN left",
        InfinityLeft = "infinity left",
        /// E4M3 encoded for 127.5 levels a side and decoded for 127: 0.4 % gain and bias (P4).
        CodecMismatch = "codec mismatch",
        /// For every batch (P5).
        ScalesOfFirstBatch = "scales of batch 0",
        CausalOffByOne = "causal off by one",
        /// K and V change places (P30).
        SwappedKeysAndValues = "K and V swapped",
        /// Grouped queries read head h mod heads_kv instead of h / group.
        WrongKeyHead = "wrong key head",
        /// A row that sees no key gives the mean of V: a finite "minus infinity" (P29).
        EmptyRowAveraged = "empty row averaged",
        /// The running maximum starts at 0: P of rows far below it vanishes.
        MaximumFromZero = "running maximum starts at 0",
        /// Right wherever neither over- nor underflows.
        NeighbourState = "state of a neighbouring row",
        OneRowOff = "one row off by 2 %",
        ProbabilityTruncated = "P truncated",
        SumInHalf = "row sum in half",
        AccumulatorInHalf = "O rounded to half once a tile",
        /// Towards 0, to the bits that FP8 tensor cores keep: the loss grows with the keys where V has a mean.
        AccumulatorCutOff = "O cut off to 13 bits once a tile",
        OutputTruncated = "output truncated",
        /// Inputs and outputs: none is above 65504 or below 2^-25.
        ThroughF16 = "bf16 through f16",
        /// Base 2 instead of e.
        LseInBase2 = "LSE in base 2",
        /// The maximum is of unscaled scores.
        LseUnscaled = "LSE of unscaled scores",
        /// The logarithm of the sum alone.
        LseWithoutMaximum = "LSE without the maximum",
        /// The row before.
        LseOfNeighbour = "LSE of a neighbouring row",
        /// Of a row without a key.
        LseOfEmptyRow = "finite LSE of an empty row",
        LseUnset = "LSE not written",
    }
}

impl Fault {
    /// Whether gate C8 must kill it; the output is right.
    pub fn is_of_lse(self) -> bool {
        use Fault::*;
        matches!(
            self,
            LseInBase2
                | LseUnscaled
                | LseWithoutMaximum
                | LseOfNeighbour
                | LseOfEmptyRow
                | LseUnset
        )
    }

    /// Whether it changes anything of this problem in the default [`Model`].
    pub fn applies_to(self, problem: &Problem) -> bool {
        let shape = problem.shape;
        let block_n = Model::of(problem.dtype).block_n;
        match self {
            Fault::StaleTile | Fault::MissingRescale | Fault::UnweightedMerge => {
                shape.seq_kv > block_n
            }
            Fault::UnmaskedPadding => !shape.seq_kv.is_multiple_of(block_n),
            Fault::CodecMismatch => problem.dtype == Dtype::E4m3,
            Fault::ScalesOfFirstBatch => problem.dtype == Dtype::E4m3 && shape.batch > 1,
            Fault::ThroughF16 => problem.dtype == Dtype::Bf16,
            Fault::AccumulatorCutOff => problem.dtype != Dtype::Bf16, // whose 8 bits show nothing of it
            Fault::NeighbourState | Fault::LseOfNeighbour => shape.seq_q > 1,
            Fault::CausalOffByOne => problem.mask == Mask::Causal && shape.seq_kv > 1,
            Fault::WrongKeyHead => shape.heads_kv > 1 && shape.heads_q > shape.heads_kv,
            Fault::EmptyRowAveraged | Fault::LseOfEmptyRow => {
                problem.mask == Mask::Causal && shape.seq_q > shape.seq_kv
            }
            _ => true,
        }
    }
}

/// `[batch, heads_q, seq_q, head_dim]`, dense, with a fault where it applies.
pub fn model_output(inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
    let (dtype, format) = (inputs.problem.dtype, inputs.problem.dtype.output());
    let run = |fault| Model::of(dtype).output(inputs, &model::all_rows(inputs), fault);
    let dim = inputs.problem.shape.head_dim;
    let Some(fault) = fault else {
        return run(None);
    };
    match fault {
        Fault::Zeros => vec![0.0; inputs.q.len()],
        Fault::CopyOfValues => copy_of_values(inputs),
        Fault::OnePercentScale => run(None)
            .into_iter()
            .map(|value| format.round(value * 1.01))
            .collect(),
        Fault::OneWrongElement | Fault::OneRowOff => {
            let mut output = run(None);
            let half = output.len() / dim / 2 * dim;
            // The middle row, or the first later one that is not zero.
            let live = output[half..]
                .chunks(dim)
                .position(|row| row.iter().any(|&x| x != 0.0))
                .unwrap_or(0);
            let row = &mut output[half + live * dim..][..dim];
            if fault == Fault::OneRowOff {
                row.iter_mut()
                    .for_each(|value| *value = format.round(*value * 1.02));
            } else if let Some(largest) = row.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs()))
            {
                // In an all-zero output, 0 would be right.
                *largest = if *largest == 0.0 {
                    format.smallest_normal() as f32
                } else {
                    0.0
                };
            }
            output
        }
        Fault::NanLeft | Fault::InfinityLeft => {
            let mut output = run(None);
            if let Some(last) = output.last_mut() {
                *last = if fault == Fault::NanLeft {
                    format.decode(UNWRITTEN)
                } else {
                    f32::INFINITY
                };
            }
            output
        }
        _ => run(Some(fault)),
    }
}

/// `[batch, heads_q, seq_q]`, dense, with a fault of theirs.
pub fn model_lse(inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
    let mut lse = Model::of(inputs.problem.dtype).lse(inputs, fault);
    match fault {
        Some(Fault::LseOfNeighbour) => lse
            .chunks_mut(inputs.problem.shape.seq_q)
            .for_each(|head| head.rotate_right(1)),
        Some(Fault::LseUnset) => {
            if let Some(last) = lse.last_mut() {
                *last = f32::from_bits(u32::from(UNWRITTEN) << 16 | u32::from(UNWRITTEN));
            }
        }
        _ => {}
    }
    lse
}

/// Row i of O is row min(i, seq_kv − 1) of V, of the right head.
fn copy_of_values(inputs: &Inputs) -> Vec<f32> {
    let shape = inputs.problem.shape;
    let format = inputs.problem.dtype.output();
    let values = inputs.v.dequantised();
    let (dim, group) = (shape.head_dim, shape.heads_q / shape.heads_kv);
    let source = |row: usize| {
        let (head, s) = (row / shape.seq_q, row % shape.seq_q);
        let kv_head = head / shape.heads_q * shape.heads_kv + head % shape.heads_q / group;
        (kv_head * shape.seq_kv + s.min(shape.seq_kv - 1)) * dim
    };
    let rows = 0..shape.batch * shape.heads_q * shape.seq_q;
    rows.flat_map(|row| {
        values[source(row)..][..dim]
            .iter()
            .map(|&value| format.round(value as f32))
    })
    .collect()
}

/// The verdicts on one fault over all cases of [`selftest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// `None` for the correct model.
    pub fault: Option<Fault>,
    pub cases: usize,
    pub cases_failed: usize,
    /// In at least one case, ascending.
    pub gates_that_failed: Vec<GateId>,
    pub survived: Vec<Dtype>,
}

impl Caught {
    fn of(fault: Option<Fault>, failed: &[(Dtype, Vec<GateId>)]) -> Self {
        let gates_that_failed: BTreeSet<GateId> = failed
            .iter()
            .flat_map(|(_, gates)| gates)
            .copied()
            .collect();
        let survives = |dtype: &Dtype| {
            let mut of_dtype = failed.iter().filter(|(of, _)| of == dtype).peekable();
            of_dtype.peek().is_some() && of_dtype.all(|(_, gates)| gates.is_empty())
        };
        Self {
            fault,
            cases: failed.len(),
            cases_failed: failed.iter().filter(|(_, gates)| !gates.is_empty()).count(),
            gates_that_failed: gates_that_failed.into_iter().collect(),
            survived: Dtype::ALL.into_iter().filter(survives).collect(),
        }
    }

    pub fn as_it_should(&self) -> bool {
        match self.fault {
            Some(_) => !self.gates_that_failed.is_empty() && self.survived.is_empty(),
            None => self.gates_that_failed.is_empty(),
        }
    }
}

/// Small, ragged with grouped heads and two batches, more queries than keys, and the mission's kind.
fn selftest_cases() -> Vec<(Problem, Family)> {
    let mut cases = Vec::new();
    for dtype in Dtype::ALL {
        let every = Family::for_dtype(dtype);
        let of_mission = [Family::Normal, Family::AllNegative, Family::Large];
        let shapes = [
            ("1x1x32x64", Mask::Full, &every[..]),
            ("2x4:2x29:75x64", Mask::Causal, &every),
            ("1x2:1x61:35x128", Mask::Causal, &every),
            ("1x2x256x64", Mask::Full, &of_mission),
        ];
        for (shape, mask, families) in shapes {
            let problem = parse_shape(shape).and_then(|shape| Problem::new(shape, dtype, mask));
            let problem = problem.expect("the self-test states valid problems");
            cases.extend(families.iter().map(|&family| (problem, family)));
        }
    }
    cases
}

fn judge(
    inputs: &Inputs,
    family: Family,
    reference: &Reference,
    fault: Option<Fault>,
) -> Vec<GateResult> {
    let output = model_output(inputs, fault);
    let evidence = Evidence {
        problem: &inputs.problem,
        family: Some(family),
        reference,
        output: &output,
    };
    let mut gates = numeric_gates(&evidence).1.to_vec();
    if fault.is_none_or(Fault::is_of_lse) {
        gates.push(c8(&inputs.problem, reference, &model_lse(inputs, fault)));
    }
    gates
}

/// The correct model, first, and every fault through gates C1 to C4 and, for log-sum-exps, C8.
pub fn selftest() -> Vec<Caught> {
    let subjects: Vec<Option<Fault>> = std::iter::once(None).chain(Fault::ALL.map(Some)).collect();
    let selftest_cases = selftest_cases();
    let per_case: Vec<Vec<Option<Vec<GateId>>>> = selftest_cases
        .par_iter()
        .map(|&(problem, family)| {
            let inputs = Inputs::generate(&problem, family, 0);
            let reference = reference(&inputs, Probability::half(problem.dtype));
            let reference = reference.expect("generated inputs are finite");
            subjects
                .iter()
                .map(|subject| {
                    if subject.is_some_and(|fault| !fault.applies_to(&problem)) {
                        return None;
                    }
                    let gates = judge(&inputs, family, &reference, *subject);
                    let failed = gates.iter().filter(|gate| gate.is_fail());
                    Some(failed.map(|gate| gate.gate).collect())
                })
                .collect()
        })
        .collect();
    subjects
        .iter()
        .enumerate()
        .map(|(i, &fault)| {
            let cases = selftest_cases.iter().zip(&per_case);
            let failed: Vec<(Dtype, Vec<GateId>)> = cases
                .filter_map(|((problem, _), case)| Some((problem.dtype, case[i].clone()?)))
                .collect();
            Caught::of(fault, &failed)
        })
        .collect()
}

#[cfg(test)]
mod tests;
