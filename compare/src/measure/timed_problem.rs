//! A problem on the GPU with what its outputs are judged by: what is timed, by `run`, `tune` and `peers`.

use common::check;
use common::device::Staged;
use common::device::cuda::{CudaDevice, CudaError, InputPool, RotatedOutput};
use common::e4m3::E4m3;
use common::format::Format;
use common::gate::{self, Evidence, Repeat};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::Problem;
use common::reference::{Probability, Reference, reference};
use common::timing::SpeedOfLight;
use common::verdict::{GateId, GateResult, Verdict};
use std::collections::HashMap;
use std::rc::Rc;

/// Input sets of one problem on the device, and what their outputs are judged by.
pub struct TimedProblem {
    pub problem: Problem,
    pub pool: Rc<InputPool>,
    /// What they hold: seeds 0 and 1, or 0 alone where the pool has a single set.
    pub inputs: Vec<Inputs>,
    /// One per input set, for each type of P that was timed.
    references: HashMap<Probability, Vec<Reference>>,
}

/// What the gates say of all outputs of one arm.
pub struct Judged {
    /// The largest error against FP64; NaN where there is no output.
    pub max_abs: f64,
    /// The first failure of each gate, or one pass for all.
    pub gates: Vec<GateResult>,
}

impl TimedProblem {
    /// Generates and uploads normal inputs.
    pub fn new(device: &CudaDevice, problem: &Problem) -> Result<Self, CudaError> {
        Self::of(device, problem, |inputs| inputs)
    }

    /// The same of normal inputs that `change` has changed.
    pub fn of(
        device: &CudaDevice,
        problem: &Problem,
        change: fn(Inputs) -> Inputs,
    ) -> Result<Self, CudaError> {
        // A problem that takes more than an eighth of the cache is rotated over one set: see Rotation::choose.
        let seeds = if 8 * problem.min_bytes() <= device.info().l2_bytes {
            2
        } else {
            1
        };
        let mut inputs: Vec<Inputs> = (0..seeds)
            .map(|seed| change(Inputs::generate(problem, Family::Normal, seed)))
            .collect();
        let staged = inputs
            .iter()
            .map(|inputs| Staged::new(inputs, Layout::Packed))
            .collect();
        let pool = device.pool(staged)?;
        inputs.truncate(pool.contents().len());
        Ok(Self {
            problem: *problem,
            pool,
            inputs,
            references: HashMap::new(),
        })
    }

    /// The one in `held`, if it is of `problem`; else a new one, in its place.
    pub fn renewed<'b>(
        held: &'b mut Option<Self>,
        device: &CudaDevice,
        problem: &Problem,
    ) -> Result<&'b mut Self, CudaError> {
        if held.as_ref().is_none_or(|held| held.problem != *problem) {
            *held = Some(Self::new(device, problem)?);
        }
        Ok(held.as_mut().expect("it was just put there"))
    }

    /// What no kernel can beat on it, an empty one that takes `zero_us` included.
    pub fn speed_of_light(&self, device: &CudaDevice, zero_us: f64) -> SpeedOfLight {
        SpeedOfLight::roofline(&self.problem, &device.info().name, self.pool.rotation())
            .with_zero_line(zero_us)
    }

    fn references(&mut self, probability: Probability) -> &[Reference] {
        let inputs = &self.inputs;
        self.references.entry(probability).or_insert_with(|| {
            inputs
                .iter()
                .map(|inputs| reference(inputs, probability).expect("generated inputs are finite"))
                .collect()
        })
    }

    /// C1 to C3, C5 and C6 on the buffers that were timed.
    pub fn judge(&mut self, outputs: &[RotatedOutput], probability: Probability) -> Judged {
        let mut gates: Vec<GateResult> = Vec::new();
        let mut max_abs = Vec::new();
        let (problem, pool) = (self.problem, Rc::clone(&self.pool));
        for (index, (reference, staged)) in self
            .references(probability)
            .iter()
            .zip(pool.contents())
            .enumerate()
        {
            let of_input: Vec<&RotatedOutput> = outputs
                .iter()
                .filter(|output| output.input == index)
                .collect();
            let dense: Vec<Vec<f32>> = of_input
                .iter()
                .map(|output| staged.values(&output.execution.output))
                .collect();
            for (output, dense) in of_input.iter().zip(&dense) {
                let (error, numeric) = numeric(&problem, reference, dense);
                max_abs.push(error);
                gates.extend(
                    numeric
                        .into_iter()
                        .filter(|result| result.gate != GateId::C4),
                );
                gates.push(gate::c6(
                    &check::buffers(staged, &output.execution).collect::<Vec<_>>(),
                ));
            }
            // Equal outputs were merged: more than one means that launches differ.
            if dense.len() > 1 {
                let repeats: Vec<Repeat<'_>> = dense
                    .iter()
                    .map(|output| Repeat {
                        label: "timed buffers",
                        output,
                        lse: None,
                    })
                    .collect();
                gates.push(gate::c5(&problem, &repeats));
            }
        }
        summary(max_abs, gates)
    }

    /// C1 to C4 on outputs that are not ours, dense, each with the number of the inputs that it is of, of a program that holds
    /// P in `probability`. One that held its output in E4M3 too, under `e4m3_scale`, is judged by a baseline that did the same.
    pub fn judge_dense(
        &mut self,
        outputs: &[(usize, Vec<f32>)],
        probability: Probability,
        e4m3_scale: Option<f32>,
    ) -> Judged {
        let problem = self.problem;
        let references = self.references(probability);
        // An output that could not be read has the wrong length, which every gate fails.
        let judged = outputs.iter().map(|(input, output)| match e4m3_scale {
            None => numeric(&problem, &references[*input], output),
            Some(scale) => numeric(&problem, &in_e4m3(&references[*input], scale), output),
        });
        let (max_abs, gates): (Vec<f64>, Vec<[GateResult; 4]>) = judged.unzip();
        summary(max_abs, gates.concat())
    }
}

/// The reference of a program that writes E4M3 codes of its outputs times `scale`.
fn in_e4m3(reference: &Reference, scale: f32) -> Reference {
    let round = |&value: &f32| Format::F16.round(E4m3::from_f32(value * scale).to_f32() / scale);
    Reference {
        baseline: reference.baseline.iter().map(round).collect(),
        ..reference.clone()
    }
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

fn summary(max_abs: Vec<f64>, mut gates: Vec<GateResult>) -> Judged {
    gates.sort_by_key(|result| (result.gate, result.verdict != Verdict::Fail));
    gates.dedup_by_key(|result| result.gate);
    let worse = |worst: f64, error: f64| {
        if gate::is_worse(worst, error) {
            error
        } else {
            worst
        }
    };
    Judged {
        max_abs: max_abs.into_iter().reduce(worse).unwrap_or(f64::NAN),
        gates,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::problem::{Dtype, Mask, Shape};
    use common::verdict::{GateId, Verdict};

    /// What cuDNN's FP8 attention writes on Hopper is right for a program that holds outputs in E4M3, and wrong for one that
    /// does not; a wrong output is wrong for both.
    #[test]
    fn an_output_in_e4m3_is_judged_by_a_baseline_in_e4m3() {
        let problem = Problem::new(Shape::bhsd(1, 2, 64, 64), Dtype::E4m3, Mask::Full).unwrap();
        let inputs = Inputs::generate(&problem, Family::Normal, 0).with_one_scale();
        assert!(
            [&inputs.q, &inputs.k, &inputs.v]
                .iter()
                .all(|of| of.scales.iter().all(|&scale| scale == of.scales[0]))
        );
        let reference = reference(&inputs, Probability::E4m3).unwrap();
        let coded = in_e4m3(&reference, 64.0);
        let verdicts = |reference: &Reference, output: &[f32]| {
            numeric(&problem, reference, output)
                .1
                .map(|result| result.verdict == Verdict::Fail)
        };
        let output = coded.baseline.clone();
        assert!(
            verdicts(&reference, &output).contains(&true)
                && !verdicts(&coded, &output).contains(&true)
        );
        let halved: Vec<f32> = output.iter().map(|value| value / 2.0).collect();
        assert!(verdicts(&coded, &halved).contains(&true));
    }

    #[test]
    fn no_number_is_the_largest_error_and_a_failure_wins_over_a_pass() {
        for errors in [
            [f64::NAN, 1.0, 2.0],
            [1.0, f64::NAN, 2.0],
            [1.0, 2.0, f64::NAN],
        ] {
            assert!(
                summary(errors.to_vec(), vec![]).max_abs.is_nan(),
                "{errors:?}"
            );
        }
        assert_eq!(summary(vec![1.0, 3.0, 2.0], vec![]).max_abs, 3.0);
        assert!(summary(vec![], vec![]).max_abs.is_nan());
        let gates = [true, false, true].map(|ok| GateResult::judge(GateId::C2, ok, ""));
        let judged = summary(vec![1.0], gates.to_vec());
        assert_eq!(
            judged
                .gates
                .iter()
                .map(|gate| gate.verdict)
                .collect::<Vec<_>>(),
            [Verdict::Fail]
        );
    }
}
