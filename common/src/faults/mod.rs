//! Planted numeric faults: outputs of broken kernels, on which the gates are tested.

use crate::format::Format;
use crate::gate::{Evidence, c8, numeric_gates};
use crate::image::UNWRITTEN;
use crate::inputs::{Family, Inputs};
use crate::problem::{Dtype, Mask, Problem, Shape, parse_shape};
use crate::reference::{Probability, Reference, reference};
use crate::verdict::{GateId, GateResult};
use rayon::prelude::*;
use std::collections::BTreeSet;

mod model;
pub mod served;

pub use model::Model;
#[cfg(test)]
pub(crate) use model::ShownValues;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Fault {
        Zeros = "zeros",
        /// Row i of the output is row i of V.
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
        /// The scales of the first batch count for every batch (P5).
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
        /// A row takes its neighbour's maximum: right wherever neither over- nor underflows.
        NeighbourState = "state of a neighbouring row",
        OneRowOff = "one row off by 2 %",
        ProbabilityTruncated = "P truncated",
        SumInHalf = "row sum in half",
        AccumulatorInHalf = "O rounded to half once a tile",
        /// O is cut off towards 0, to the bits that FP8 tensor cores keep: the loss grows with the
        /// keys where V has a mean.
        AccumulatorCutOff = "O cut off to 13 bits once a tile",
        OutputTruncated = "output truncated",
        /// Inputs and outputs pass through f16: none is above 65504 or below 2^-25.
        ThroughF16 = "bf16 through f16",
        /// Base 2 instead of e.
        LseInBase2 = "LSE in base 2",
        /// The maximum is of unscaled scores.
        LseUnscaled = "LSE of unscaled scores",
        /// The logarithm of the sum alone.
        LseWithoutMaximum = "LSE without the maximum",
        /// The log-sum-exp belongs to the row before.
        LseOfNeighbour = "LSE of a neighbouring row",
        /// A row without a key has a finite log-sum-exp.
        LseOfEmptyRow = "finite LSE of an empty row",
        LseUnset = "LSE not written",
    }
}

impl Fault {
    /// Returns whether the fault is one of log-sum-exps: gate C8 must kill it, and the output is
    /// right.
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

    /// Returns whether the fault changes anything of this problem in the default [`Model`].
    pub fn applies_to(self, problem: &Problem) -> bool {
        let Shape {
            batch,
            heads_q,
            heads_kv,
            seq_q,
            seq_kv,
            ..
        } = problem.shape;
        let tile_keys = Model::for_dtype(problem.dtype).block_n;
        match self {
            Fault::StaleTile | Fault::MissingRescale | Fault::UnweightedMerge => seq_kv > tile_keys,
            Fault::UnmaskedPadding => !seq_kv.is_multiple_of(tile_keys),
            Fault::CodecMismatch => problem.dtype == Dtype::E4m3,
            Fault::ScalesOfFirstBatch => problem.dtype == Dtype::E4m3 && batch > 1,
            Fault::ThroughF16 => problem.dtype == Dtype::Bf16,
            // The 8 bits of bf16 show nothing of it.
            Fault::AccumulatorCutOff => problem.dtype != Dtype::Bf16,
            Fault::NeighbourState | Fault::LseOfNeighbour => seq_q > 1,
            Fault::CausalOffByOne => problem.mask == Mask::Causal && seq_kv > 1,
            Fault::WrongKeyHead => heads_kv > 1 && heads_q > heads_kv,
            Fault::EmptyRowAveraged | Fault::LseOfEmptyRow => {
                problem.mask == Mask::Causal && seq_q > seq_kv
            }
            _ => true,
        }
    }
}

/// Computes an output `[batch, heads_q, seq_q, head_dim]`, dense, with a fault where it applies.
pub fn model_output(inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
    let format = inputs.problem.dtype.output();
    match fault {
        Some(Fault::Zeros) => vec![0.0; inputs.q.len()],
        Some(Fault::CopyOfValues) => copy_of_values(inputs),
        Some(Fault::OnePercentScale) => {
            let mut output = run_model(inputs, None);
            scale(&mut output, 1.01, format);
            output
        }
        Some(Fault::OneRowOff) => {
            let mut output = run_model(inputs, None);
            scale(middle_row(inputs, &mut output), 1.02, format);
            output
        }
        Some(Fault::OneWrongElement) => {
            let mut output = run_model(inputs, None);
            break_largest(middle_row(inputs, &mut output), format);
            output
        }
        Some(Fault::NanLeft) => with_last(run_model(inputs, None), format.decode(UNWRITTEN)),
        Some(Fault::InfinityLeft) => with_last(run_model(inputs, None), f32::INFINITY),
        _ => run_model(inputs, fault),
    }
}

fn run_model(inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
    let model = Model::for_dtype(inputs.problem.dtype);
    model.output(inputs, &model::all_rows(inputs), fault)
}

fn scale(values: &mut [f32], factor: f32, format: Format) {
    for value in values {
        *value = format.round(*value * factor);
    }
}

/// Returns the middle row, or the first later one that is not zero.
fn middle_row<'a>(inputs: &Inputs, output: &'a mut [f32]) -> &'a mut [f32] {
    let dim = inputs.problem.shape.head_dim;
    let half = output.len() / dim / 2 * dim;
    let live = output[half..]
        .chunks(dim)
        .position(|row| row.iter().any(|&x| x != 0.0))
        .unwrap_or(0);
    &mut output[half + live * dim..][..dim]
}

/// Sets the largest element of a row to 0.
fn break_largest(row: &mut [f32], format: Format) {
    let largest = row.iter_mut().max_by(|a, b| a.abs().total_cmp(&b.abs()));
    if let Some(element) = largest {
        // In an all-zero output, 0 would be right.
        *element = if *element == 0.0 {
            format.smallest_normal() as f32
        } else {
            0.0
        };
    }
}

fn with_last(mut output: Vec<f32>, value: f32) -> Vec<f32> {
    if let Some(last) = output.last_mut() {
        *last = value;
    }
    output
}

/// Computes log-sum-exps `[batch, heads_q, seq_q]`, dense, with a fault of theirs.
pub fn model_lse(inputs: &Inputs, fault: Option<Fault>) -> Vec<f32> {
    let mut log_sum_exps = Model::for_dtype(inputs.problem.dtype).lse(inputs, fault);
    match fault {
        Some(Fault::LseOfNeighbour) => {
            for head in log_sum_exps.chunks_mut(inputs.problem.shape.seq_q) {
                head.rotate_right(1);
            }
            log_sum_exps
        }
        Some(Fault::LseUnset) => {
            let poison = u32::from(UNWRITTEN) << 16 | u32::from(UNWRITTEN);
            with_last(log_sum_exps, f32::from_bits(poison))
        }
        _ => log_sum_exps,
    }
}

/// Computes an output whose row i is row min(i, seq_kv − 1) of V, of the right head.
fn copy_of_values(inputs: &Inputs) -> Vec<f32> {
    let Shape {
        batch,
        heads_q,
        heads_kv,
        seq_q,
        seq_kv,
        head_dim,
        ..
    } = inputs.problem.shape;
    let format = inputs.problem.dtype.output();
    let values = inputs.v.dequantised();
    let mut output = Vec::with_capacity(inputs.q.len());
    for row in 0..batch * heads_q * seq_q {
        let (head, query) = (row / seq_q, row % seq_q);
        let kv_head = head / heads_q * heads_kv + head % heads_q / (heads_q / heads_kv);
        let source = (kv_head * seq_kv + query.min(seq_kv - 1)) * head_dim;
        let copied = values[source..][..head_dim].iter();
        output.extend(copied.map(|&value| format.round(value as f32)));
    }
    output
}

/// The verdicts on one fault over all cases of [`selftest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caught {
    /// `None` for the correct model.
    pub fault: Option<Fault>,
    /// The number of cases to which the fault applies.
    pub cases: usize,
    pub cases_failed: usize,
    /// The gates that failed in at least one case, ascending.
    pub gates_that_failed: Vec<GateId>,
    /// The element types of which no case failed.
    pub survived: Vec<Dtype>,
}

/// The gates that failed on one fault in one case.
#[derive(Clone, Debug)]
struct CaseVerdict {
    dtype: Dtype,
    failed: Vec<GateId>,
}

impl Caught {
    fn new(fault: Option<Fault>, cases: &[CaseVerdict]) -> Self {
        let gates_that_failed: BTreeSet<GateId> = cases
            .iter()
            .flat_map(|case| &case.failed)
            .copied()
            .collect();
        Self {
            fault,
            cases: cases.len(),
            cases_failed: cases.iter().filter(|case| !case.failed.is_empty()).count(),
            gates_that_failed: gates_that_failed.into_iter().collect(),
            survived: Dtype::ALL
                .into_iter()
                .filter(|&dtype| survives(cases, dtype))
                .collect(),
        }
    }

    /// Returns whether the gates catch the fault with every element type, or pass the correct
    /// model.
    pub fn is_as_expected(&self) -> bool {
        match self.fault {
            Some(_) => !self.gates_that_failed.is_empty() && self.survived.is_empty(),
            None => self.gates_that_failed.is_empty(),
        }
    }
}

/// Returns whether there are cases of an element type, and none of them failed.
fn survives(cases: &[CaseVerdict], dtype: Dtype) -> bool {
    let mut of_dtype = cases.iter().filter(|case| case.dtype == dtype).peekable();
    of_dtype.peek().is_some() && of_dtype.all(|case| case.failed.is_empty())
}

/// Returns small problems, ragged ones with grouped heads and two batches, ones with more queries
/// than keys, and ones of the mission's kind.
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
            let problem = parse_shape(shape)
                .and_then(|extents| Problem::new(extents, dtype, mask))
                .expect("the self-test states valid problems");
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

/// Puts the correct model, first, and every fault through gates C1 to C4 and, for log-sum-exps, C8.
pub fn selftest() -> Vec<Caught> {
    let mut subjects: Vec<Option<Fault>> = vec![None];
    subjects.extend(Fault::ALL.map(Some));
    let per_case: Vec<Vec<Option<CaseVerdict>>> = selftest_cases()
        .into_par_iter()
        .map(|(problem, family)| judge_subjects(&subjects, &problem, family))
        .collect();
    let mut caught = Vec::new();
    for (index, &fault) in subjects.iter().enumerate() {
        let cases: Vec<CaseVerdict> = per_case
            .iter()
            .filter_map(|verdicts| verdicts[index].clone())
            .collect();
        caught.push(Caught::new(fault, &cases));
    }
    caught
}

/// Judges each subject on one problem: none where a fault does not apply.
fn judge_subjects(
    subjects: &[Option<Fault>],
    problem: &Problem,
    family: Family,
) -> Vec<Option<CaseVerdict>> {
    let inputs = Inputs::generate(problem, family, 0);
    let exact =
        reference(&inputs, Probability::half(problem.dtype)).expect("generated inputs are finite");
    let mut verdicts = Vec::new();
    for &fault in subjects {
        if fault.is_some_and(|planted| !planted.applies_to(problem)) {
            verdicts.push(None);
            continue;
        }
        let gates = judge(&inputs, family, &exact, fault);
        verdicts.push(Some(CaseVerdict {
            dtype: problem.dtype,
            failed: gates
                .iter()
                .filter(|gate| gate.is_fail())
                .map(|gate| gate.gate)
                .collect(),
        }));
    }
    verdicts
}

#[cfg(test)]
mod tests;
