//! A problem on the GPU, with its references: what `run` and `peers` time.

use super::timer::Timer;
use common::check;
use common::device::Staged;
use common::device::cuda::{CudaError, InputPool, RotatedOutput};
use common::e4m3::E4m3;
use common::format::Format;
use common::gate::{self, Evidence, Repeat};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::Problem;
use common::reference::{Probability, Reference, ReferenceError};
use common::timing::SpeedOfLight;
use common::verdict::{GateId, GateResult, Verdict};
use rayon::prelude::*;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::rc::Rc;

/// The input sets of one problem on the device, and the references for their outputs.
pub struct TimedProblem {
    pub problem: Problem,
    pub pool: Rc<InputPool>,
    /// The sets in the pool: seeds 0 and 1, or only 0.
    pub inputs: Vec<Inputs>,
    /// The references for each type of P, one per input set.
    references: HashMap<Probability, Vec<Reference>>,
}

/// The judgement of a kernel's outputs.
pub struct Judged {
    /// The largest error against FP64; NaN without an output.
    pub max_abs: f64,
    /// The first failure of each gate, or one pass.
    pub gates: Vec<GateResult>,
}

/// The outputs that a kernel left which was timed.
#[derive(Clone, Copy)]
pub struct TimedOutputs<'a> {
    pub outputs: &'a [RotatedOutput],
    /// The type in which the kernel holds P.
    pub probability: Probability,
}

/// An output without gaps between its rows.
#[derive(Clone, Debug, PartialEq)]
pub struct DenseOutput {
    /// The index of the input set that it was computed from.
    pub set: usize,
    pub values: Vec<f32>,
}

impl TimedProblem {
    /// Makes a problem that is read from the cache where it fits; decode is read from device
    /// memory.
    pub fn new(device: &dyn Timer, problem: &Problem) -> Result<Self, CudaError> {
        Self::with_inputs(device, problem, false, |inputs| inputs)
    }

    /// Makes the same, with inputs changed by `change`, and from device memory if `is_cold` or that
    /// is where decode has them.
    pub fn with_inputs(
        device: &dyn Timer,
        problem: &Problem,
        is_cold: bool,
        change: fn(Inputs) -> Inputs,
    ) -> Result<Self, CudaError> {
        // A problem that takes more than an eighth of the cache is rotated over one set: see
        // Rotation::choose.
        let seeds = if 8 * problem.min_bytes() <= device.info().l2_bytes {
            2
        } else {
            1
        };
        let mut inputs = Vec::new();
        let mut staged = Vec::new();
        for seed in 0..seeds {
            let set = change(Inputs::generate(problem, Family::Normal, seed));
            staged.push(Staged::new(&set, Layout::Packed));
            inputs.push(set);
        }
        let pool = device.pool(staged, is_cold || problem.shape.is_decode())?;
        inputs.truncate(pool.contents().len());
        Ok(Self {
            problem: *problem,
            pool,
            inputs,
            references: HashMap::new(),
        })
    }

    /// Returns the least time that is possible; an empty kernel takes `zero_us`.
    pub fn speed_of_light(&self, device: &dyn Timer, zero_us: f64) -> SpeedOfLight {
        SpeedOfLight::roofline(&self.problem, &device.info().name, self.pool.rotation())
            .with_zero_line(zero_us)
    }

    fn references(
        &mut self,
        timer: &dyn Timer,
        probability: Probability,
    ) -> Result<&[Reference], ReferenceError> {
        let place = match self.references.entry(probability) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let mut references = Vec::new();
                for set in &self.inputs {
                    references.push(timer.reference(set, probability)?);
                }
                place.insert(references)
            }
        };
        Ok(place)
    }

    /// Judges C1 to C3, C5 and C6 on the buffers that were timed.
    pub fn judge(
        &mut self,
        timer: &dyn Timer,
        outputs: &[RotatedOutput],
        probability: Probability,
    ) -> Result<Judged, ReferenceError> {
        let pool = Rc::clone(&self.pool);
        let references = self.references(timer, probability)?;
        Ok(judge_buffers(pool.contents(), references, outputs))
    }

    /// Judges likewise what each of many kernels left, on all processors.
    pub fn judge_all(
        &mut self,
        timer: &dyn Timer,
        kernels: &[TimedOutputs<'_>],
    ) -> Result<Vec<Judged>, ReferenceError> {
        for kernel in kernels {
            self.references(timer, kernel.probability)?;
        }
        let (contents, references) = (self.pool.contents(), &self.references);
        let judged = kernels
            .par_iter()
            .map(|kernel| judge_buffers(contents, &references[&kernel.probability], kernel.outputs))
            .collect();
        Ok(judged)
    }

    /// Judges C1 to C4 on outputs of a program that holds P in `probability`. A program that holds
    /// its output in E4M3 with `e4m3_scale` is compared with a baseline that does the same.
    pub fn judge_dense(
        &mut self,
        timer: &dyn Timer,
        outputs: &[DenseOutput],
        probability: Probability,
        e4m3_scale: Option<f32>,
    ) -> Result<Judged, ReferenceError> {
        let problem = self.problem;
        let references = self.references(timer, probability)?;
        Ok(judge(&problem, references, outputs, e4m3_scale))
    }
}

/// Judges as [`TimedProblem::judge`] does, by the staged inputs and the reference of each set.
fn judge_buffers(
    contents: &[Staged],
    references: &[Reference],
    outputs: &[RotatedOutput],
) -> Judged {
    let problem = &contents[0].problem;
    let dense: Vec<DenseOutput> = outputs
        .par_iter()
        .map(|output| DenseOutput {
            set: output.input,
            values: contents[output.input].values(&output.execution.output),
        })
        .collect();
    let Judged { max_abs, mut gates } = judge(problem, references, &dense, None);
    gates.retain(|result| result.gate != GateId::C4);
    for output in outputs {
        let buffers: Vec<_> = check::buffers(&contents[output.input], &output.execution).collect();
        gates.push(gate::c6(&buffers));
    }
    for input in 0..contents.len() {
        let repeats: Vec<Repeat<'_>> = dense
            .iter()
            .filter(|output| output.set == input)
            .map(|output| Repeat {
                label: "timed buffers",
                output: &output.values,
                lse: None,
            })
            .collect();
        // Equal outputs were merged: more than one means that launches differ.
        if repeats.len() > 1 {
            gates.push(gate::c5(problem, &repeats));
        }
    }
    Judged {
        max_abs,
        gates: one_of_each(gates),
    }
}

/// Judges as [`TimedProblem::judge_dense`] does, by one reference per input set.
fn judge(
    problem: &Problem,
    references: &[Reference],
    outputs: &[DenseOutput],
    e4m3_scale: Option<f32>,
) -> Judged {
    // An output that could not be read has the wrong length, which every gate fails.
    let judged: Vec<_> = outputs
        .par_iter()
        .map(|DenseOutput { set, values }| match e4m3_scale {
            None => numeric(problem, &references[*set], values),
            Some(scale) => numeric(problem, &in_e4m3(&references[*set], scale), values),
        })
        .collect();
    let mut max_abs = None;
    let mut gates = Vec::new();
    for (error, results) in judged {
        max_abs = Some(max_abs.map_or(error, |largest| worse(largest, error)));
        gates.extend(results);
    }
    Judged {
        max_abs: max_abs.unwrap_or(f64::NAN),
        gates: one_of_each(gates),
    }
}

/// Returns the reference for a program that rounds its outputs, times `scale`, to E4M3.
fn in_e4m3(reference: &Reference, scale: f32) -> Reference {
    let mut rounded = reference.clone();
    for value in &mut rounded.baseline {
        *value = Format::F16.round(E4m3::from_f32(*value * scale).to_f32() / scale);
    }
    rounded
}

fn numeric(problem: &Problem, reference: &Reference, output: &[f32]) -> (f64, [GateResult; 4]) {
    let (errors, gates) = gate::numeric_gates(&Evidence {
        problem,
        family: Some(Family::Normal),
        reference,
        output,
    });
    (errors.max_abs, gates)
}

/// Returns the larger error; NaN is larger than any.
fn worse(one: f64, other: f64) -> f64 {
    if gate::is_worse(one, other) {
        other
    } else {
        one
    }
}

/// Returns the first failure of each gate, or its first other result.
fn one_of_each(mut gates: Vec<GateResult>) -> Vec<GateResult> {
    gates.sort_by_key(|result| (result.gate, result.verdict != Verdict::Fail));
    gates.dedup_by_key(|result| result.gate);
    gates
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::problem::{Dtype, Mask, Shape};
    use common::reference::reference;
    use common::verdict::{GateId, Verdict};

    /// The output of cuDNN's FP8 attention on Hopper is right for a program that holds outputs in
    /// E4M3, and wrong for one that does not; a wrong output is wrong for both.
    #[test]
    fn an_output_in_e4m3_is_judged_by_a_baseline_in_e4m3() {
        let problem = Problem::new(Shape::bhsd(1, 2, 64, 64), Dtype::E4m3, Mask::Full).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 0).with_one_scale();
        for operand in [&inputs.q, &inputs.k, &inputs.v] {
            for scale in &operand.scales {
                assert_eq!(*scale, operand.scales[0]);
            }
        }
        let references = [reference(&inputs, Probability::E4m3).unwrap()];
        let fails = |values: &[f32], scale| {
            let output = DenseOutput {
                set: 0,
                values: values.to_vec(),
            };
            let judged = judge(&problem, &references, &[output], scale);
            judged.gates.iter().any(GateResult::is_fail)
        };
        let rounded = in_e4m3(&references[0], 64.0).baseline;
        assert!(fails(&rounded, None));
        assert!(!fails(&rounded, Some(64.0)));
        let halved: Vec<f32> = rounded.iter().map(|value| value / 2.0).collect();
        assert!(fails(&halved, Some(64.0)));
    }

    #[test]
    fn no_number_is_the_largest_error_and_a_failure_wins_over_a_pass() {
        let worst = |errors: [f64; 3]| errors.into_iter().reduce(worse).unwrap();
        for errors in [
            [f64::NAN, 1.0, 2.0],
            [1.0, f64::NAN, 2.0],
            [1.0, 2.0, f64::NAN],
        ] {
            assert!(worst(errors).is_nan(), "{errors:?}");
        }
        assert_eq!(worst([1.0, 3.0, 2.0]), 3.0);
        let gates = [true, false, true].map(|ok| GateResult::judge(GateId::C2, ok, ""));
        let [only] = &one_of_each(gates.to_vec())[..] else {
            panic!("one gate")
        };
        assert_eq!(only.verdict, Verdict::Fail);
    }
}
