//! Planted faults of kernels that take sequences as they are served: outputs on which the gates are
//! tested.

use crate::gate::{Evidence, numeric_gates};
use crate::inputs::{Inputs, Operand};
use crate::problem::{Problem, Shape};
use crate::reference::{Probability, Reference, attend_baseline_of, row_index};
use crate::sequences::{Sequence, sinks};
use crate::serving::{Lengths, Serving};
use crate::verdict::GateResult;

named! {
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum ServedFault {
        /// A row sees one key more on the left.
        WindowWiderLeft = "window one key wider on the left",
        /// A row sees one key less on the left.
        WindowNarrowerLeft = "window one key narrower on the left",
        /// A row sees one key more on the right.
        WindowWiderRight = "window one key wider on the right",
        /// The sink takes no weight.
        SinkIgnored = "sink ignored",
        /// The sink of the next head takes weight.
        SinkOfNextHead = "sink of the next head",
        /// The sink has the first key's value.
        SinkHasValue = "sink with a value",
        /// Scores are not capped.
        SoftcapIgnored = "softcap ignored",
        /// A sequence has the keys of the next one's length.
        LengthOfNextSequence = "length of the next sequence",
        /// The last key of each sequence is not read.
        LastKeyMissing = "last key missing",
        /// The page table is read one entry further on.
        NextPage = "page table one entry off",
        /// Rows of a page are read one further on.
        NextRowOfPage = "row of a page one off",
        /// Queries are those of the row before, as with starts that are one too small.
        StartOneOff = "start one off",
        /// The scales of K and V are those of the next key head.
        ScaleOfNextHead = "scales of the next key head",
        /// The scales of K and V are those of the first sequence.
        ScaleOfFirstSequence = "scales of the first sequence",
        /// K has the scales of V, and V those of K.
        ScalesExchanged = "scales of K and V exchanged",
        /// Scores are of codes.
        KeyScaleIgnored = "scale of K ignored",
        /// Outputs are of codes.
        ValueScaleIgnored = "scale of V ignored",
    }
}

impl ServedFault {
    /// Returns whether the fault changes anything of a problem.
    pub fn applies_to(self, problem: &Problem) -> bool {
        let Shape {
            batch,
            heads_kv,
            serving,
            ..
        } = problem.shape;
        let has_scales = serving.cache.is_some();
        let sequences = problem.shape.sequences();
        match self {
            ServedFault::WindowWiderLeft | ServedFault::WindowNarrowerLeft => {
                serving.window.left.is_some()
            }
            ServedFault::WindowWiderRight => serving.window.right.is_some(),
            ServedFault::SinkIgnored | ServedFault::SinkOfNextHead | ServedFault::SinkHasValue => {
                serving.sinks
            }
            ServedFault::SoftcapIgnored => serving.softcap.is_some(),
            ServedFault::LengthOfNextSequence | ServedFault::LastKeyMissing => {
                serving.lengths != Lengths::Equal && sequences.len() > 1
            }
            ServedFault::NextPage | ServedFault::NextRowOfPage => serving.page_rows.is_some(),
            ServedFault::StartOneOff => {
                matches!(serving.lengths, Lengths::Packed(_)) && problem.shape.seq_q > 1
            }
            ServedFault::ScaleOfNextHead => has_scales && heads_kv > 1,
            ServedFault::ScaleOfFirstSequence => has_scales && batch > 1,
            ServedFault::ScalesExchanged
            | ServedFault::KeyScaleIgnored
            | ServedFault::ValueScaleIgnored => has_scales,
        }
    }

    /// Computes an output `[batch, heads_q, seq_q, head_dim]`, dense, of a kernel with the fault.
    pub fn output(self, inputs: &Inputs, reference: &Reference) -> Vec<f32> {
        let mut broken = Broken {
            inputs: inputs.clone(),
            sequences: inputs.problem.shape.sequences(),
            sinks: sinks(&inputs.problem.shape),
        };
        broken.plant(self);
        let mut computed = broken.output(reference);
        if self == ServedFault::SinkHasValue {
            add_values_of_sinks(&mut computed, inputs, reference);
        }
        inputs.problem.dtype.output().round_all(&mut computed);
        spread(&computed, inputs, reference)
    }
}

/// The inputs that a kernel with a fault takes for those that it was given.
struct Broken {
    inputs: Inputs,
    sequences: Vec<Sequence>,
    sinks: Vec<f32>,
}

impl Broken {
    fn plant(&mut self, fault: ServedFault) {
        let Serving {
            window, page_rows, ..
        } = self.inputs.problem.shape.serving;
        match fault {
            ServedFault::WindowWiderLeft => self.serving().window.left = moved(window.left, 1),
            ServedFault::WindowNarrowerLeft => self.serving().window.left = moved(window.left, -1),
            ServedFault::WindowWiderRight => self.serving().window.right = moved(window.right, 1),
            ServedFault::SinkIgnored => self.sinks.clear(),
            ServedFault::SinkOfNextHead => self.sinks.rotate_left(1),
            ServedFault::SoftcapIgnored => self.serving().softcap = None,
            ServedFault::LengthOfNextSequence => exchange_keys(&mut self.sequences),
            ServedFault::LastKeyMissing => {
                for sequence in &mut self.sequences {
                    sequence.keys = sequence.keys.saturating_sub(1);
                }
            }
            ServedFault::NextPage => self.rotate_keys(page_rows.map_or(1, usize::from)),
            ServedFault::NextRowOfPage => self.rotate_keys(1),
            ServedFault::StartOneOff => {
                let queries = |sequence: &Sequence| sequence.queries;
                rotate_rows(&mut self.inputs.q, &self.sequences, queries, 1);
            }
            ServedFault::SinkHasValue => {}
            ServedFault::ScaleOfNextHead => self.change_scales(|scales, heads| {
                for of_sequence in scales.chunks_exact_mut(heads) {
                    of_sequence.rotate_left(1);
                }
            }),
            ServedFault::ScaleOfFirstSequence => self.change_scales(|scales, heads| {
                for index in heads..scales.len() {
                    scales[index] = scales[index % heads];
                }
            }),
            ServedFault::ScalesExchanged => {
                let Inputs { k, v, .. } = &mut self.inputs;
                std::mem::swap(&mut k.scales, &mut v.scales);
            }
            ServedFault::KeyScaleIgnored => self.inputs.k.scales.fill(1.0),
            ServedFault::ValueScaleIgnored => self.inputs.v.scales.fill(1.0),
        }
    }

    /// Changes the scales of K and of V, given the number of heads.
    fn change_scales(&mut self, change: impl Fn(&mut [f32], usize)) {
        for operand in [&mut self.inputs.k, &mut self.inputs.v] {
            let [_, heads, ..] = operand.extents;
            change(&mut operand.scales, heads);
        }
    }

    fn serving(&mut self) -> &mut Serving {
        &mut self.inputs.problem.shape.serving
    }

    fn rotate_keys(&mut self, step: usize) {
        for operand in [&mut self.inputs.k, &mut self.inputs.v] {
            rotate_rows(operand, &self.sequences, |sequence| sequence.keys, step);
        }
    }

    /// Computes the rows of the reference, before their last rounding.
    fn output(&self, reference: &Reference) -> Vec<f32> {
        let p = Probability::half(self.inputs.problem.dtype);
        let Self {
            inputs,
            sequences,
            sinks,
        } = self;
        attend_baseline_of(sequences, sinks, inputs, &reference.rows, p).output
    }
}

/// Returns a side of a window that is `keys` wider.
fn moved(bound: Option<u32>, keys: i32) -> Option<u32> {
    bound.map(|most| most.saturating_add_signed(keys))
}

/// Gives each sequence the number of keys of the next one.
fn exchange_keys(sequences: &mut [Sequence]) {
    let mut keys: Vec<usize> = sequences.iter().map(|sequence| sequence.keys).collect();
    keys.rotate_left(1);
    for (sequence, count) in sequences.iter_mut().zip(keys) {
        sequence.keys = count;
    }
}

/// Moves the rows of each sequence in each head `step` rows ahead, those at the start to the end.
fn rotate_rows(
    operand: &mut Operand,
    sequences: &[Sequence],
    count: impl Fn(&Sequence) -> usize,
    step: usize,
) {
    let [_, heads, room, dim] = operand.extents;
    let row_bytes = dim * operand.dtype.bytes();
    for (index, head) in operand.bytes.chunks_exact_mut(room * row_bytes).enumerate() {
        let rows = count(&sequences[index / heads]);
        let offset = step % rows.max(1) * row_bytes;
        head[..rows * row_bytes].rotate_left(offset);
    }
}

/// Adds the first key's value, with the weight of each row's sink.
fn add_values_of_sinks(output: &mut [f32], inputs: &Inputs, reference: &Reference) {
    let shape = inputs.problem.shape;
    let (logits, values) = (sinks(&shape), inputs.v.dequantised());
    let dim = shape.head_dim;
    for (number, row_values) in output.chunks_exact_mut(dim).enumerate() {
        let [b, h, _] = row_index(&inputs.problem, reference.rows[number]);
        let head_kv = b * shape.heads_kv + h / (shape.heads_q / shape.heads_kv);
        let first_key = head_kv * shape.seq_kv * dim;
        let weight = (f64::from(logits[h]) - reference.lse[number]).exp();
        for (d, value) in row_values.iter_mut().enumerate() {
            *value += (weight * values[first_key + d]) as f32;
        }
    }
}

/// Puts the rows of the reference where they are in a whole output.
fn spread(rows: &[f32], inputs: &Inputs, reference: &Reference) -> Vec<f32> {
    let dim = inputs.problem.shape.head_dim;
    let mut output = vec![0.0; inputs.q.len()];
    for (row, values) in reference.rows.iter().zip(rows.chunks_exact(dim)) {
        output[row * dim..(row + 1) * dim].copy_from_slice(values);
    }
    output
}

/// Returns whether gates C1 to C4 fail an output.
pub fn is_killed(inputs: &Inputs, reference: &Reference, output: &[f32]) -> bool {
    let evidence = Evidence {
        problem: &inputs.problem,
        family: None,
        reference,
        output,
    };
    numeric_gates(&evidence).1.iter().any(GateResult::is_fail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::Family;
    use crate::reference::reference;
    use crate::serving::Cache;
    use crate::tier0;

    /// Returns each case of tier 0, with and without a cache, with inputs and their reference.
    fn references() -> Vec<(Inputs, Reference)> {
        let mut cases = tier0::served();
        let in_cache = cases
            .iter()
            .filter_map(|case| case.in_cache(Some(Cache::E4m3)));
        cases.extend(in_cache.collect::<Vec<_>>());
        let referenced = cases.into_iter().map(|case| {
            let inputs = Inputs::generate(&case.problem, Family::Normal, 0);
            let p = Probability::half(case.problem.dtype);
            let exact = reference(&inputs, p).unwrap();
            (inputs, exact)
        });
        referenced.collect()
    }

    #[test]
    fn every_fault_is_killed_with_every_type_that_is_served() {
        let cases = references();
        for fault in ServedFault::ALL {
            for dtype in [crate::problem::Dtype::F16, crate::problem::Dtype::Bf16] {
                let is_caught = cases.iter().any(|(inputs, exact)| {
                    inputs.problem.dtype == dtype
                        && fault.applies_to(&inputs.problem)
                        && is_killed(inputs, exact, &fault.output(inputs, exact))
                });
                assert!(is_caught, "{fault} with {dtype}");
            }
        }
    }

    #[test]
    fn what_is_right_is_not_killed() {
        for (inputs, exact) in references() {
            let output = spread(&exact.baseline, &inputs, &exact);
            assert!(!is_killed(&inputs, &exact, &output), "{:?}", inputs.problem);
        }
    }
}
