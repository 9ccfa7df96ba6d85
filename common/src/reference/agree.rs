//! Whether a GPU's reference is the host's, where both were computed.

use super::{Reference, row_index};
use crate::problem::Problem;

/// How far apart values of FP64 may be, in units of the larger of the host's value and the root mean square of V (of a
/// log-sum-exp, of 1). Both sides compute the same operations in the same order, but for exp and ln, which are an ulp off at most:
/// 4e-16 in a weight, and about the root of n times 1e-16 in n sums of such. A wrong key, mask or scale is off by far more.
pub const MOST_APART: f64 = 1e-12;

#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error(
    "{problem}: the {what} at row [{}, {}, {}] is {gpu:e} by the GPU's reference and {host:e} by the host's, more than {bound:e} \
     apart: references of large problems cannot be trusted on this GPU; run again with another driver, nvcc or GPU, or smaller \
     problems alone (--shapes), whose references the host computes",
    row[0], row[1], row[2]
)]
pub struct Disagreement {
    /// Shape, dtype, mask and the type of P.
    pub problem: String,
    /// "output", "log-sum-exp", "baseline" or "unquantised output".
    pub what: &'static str,
    /// `[b, h, s]`.
    pub row: [usize; 3],
    pub gpu: f64,
    pub host: f64,
    pub bound: f64,
}

/// Compares all rows of the host's reference with the GPU's, which has them among its own, and names the first value that is
/// further off than it may be: [`MOST_APART`], and in the baseline one step of the output's format.
pub fn agree(problem: &Problem, host: &Reference, gpu: &Reference) -> Result<(), Disagreement> {
    let named = || {
        format!(
            "{} {} {}, P in {}",
            problem.shape, problem.dtype, problem.mask, host.probability
        )
    };
    for (index, &row) in host.rows.iter().enumerate() {
        let pairs = pairs(problem, (host, index), gpu);
        if let Some(pair) = pairs.into_iter().find(|pair| !pair.is_close()) {
            return Err(Disagreement {
                problem: named(),
                what: pair.what,
                row: row_index(problem, row),
                gpu: pair.gpu,
                host: pair.host,
                bound: pair.bound,
            });
        }
    }
    Ok(())
}

/// One value on both sides.
struct Pair {
    what: &'static str,
    gpu: f64,
    host: f64,
    bound: f64,
}

impl Pair {
    /// NaN is close to nothing. The log-sum-exp of a row without a key is infinite, and nothing but
    /// the same infinity is close to it.
    fn is_close(&self) -> bool {
        self.gpu == self.host || self.host.is_finite() && (self.gpu - self.host).abs() <= self.bound
    }
}

/// Returns all values of the host's row number `index`; where the GPU has none, its value is NaN.
fn pairs(problem: &Problem, (host, index): (&Reference, usize), gpu: &Reference) -> Vec<Pair> {
    let (dim, format) = (problem.shape.head_dim, problem.dtype.output());
    let place = gpu.rows.binary_search(&host.rows[index]).ok();
    let unit = host.value_rms[index];
    let elements =
        (0..dim).map(|element| (index * dim + element, place.map(|it| it * dim + element)));
    let exact = |what, gpu: Option<f64>, host: f64, unit: f64| Pair {
        what,
        gpu: gpu.unwrap_or(f64::NAN),
        host,
        bound: MOST_APART * unit.max(host.abs()),
    };
    let lse = place.and_then(|place| gpu.lse.get(place)).copied();
    let mut pairs = vec![exact("log-sum-exp", lse, host.lse[index], 1.0)];
    for (here, there) in elements {
        let value = |values: &[f64]| there.and_then(|there| values.get(there)).copied();
        let (output, expected) = (value(&gpu.output), host.output[here]);
        pairs.push(exact("output", output, expected, unit));
        if let Some(expected) = &host.unquantised {
            let output = gpu.unquantised.as_deref().and_then(value);
            pairs.push(exact("unquantised output", output, expected[here], unit));
        }
        let baseline = there.and_then(|there| gpu.baseline.get(there)).copied();
        let expected = f64::from(host.baseline[here]);
        pairs.push(Pair {
            what: "baseline",
            gpu: baseline.map_or(f64::NAN, f64::from),
            host: expected,
            bound: format.ulp(expected),
        });
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::super::{Probability, reference, reference_of_rows};
    use super::*;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Dtype, Mask, Shape};

    /// Causal, with rows that see no key.
    fn problem() -> Problem {
        let shape = Shape {
            batch: 1,
            heads_q: 2,
            heads_kv: 1,
            seq_q: 9,
            seq_kv: 5,
            head_dim: 64,
        };
        Problem::new(shape, Dtype::E4m3, Mask::Causal).unwrap()
    }

    fn inputs() -> Inputs {
        Inputs::generate(&problem(), Family::Shifted, 0)
    }

    /// What is named when `break_it` was done to the GPU's reference.
    fn fault(break_it: fn(&mut Reference)) -> Option<(&'static str, [usize; 3])> {
        let host = reference(&inputs(), Probability::F32).unwrap();
        let mut gpu = host.clone();
        break_it(&mut gpu);
        let outcome = agree(&problem(), &host, &gpu);
        outcome.err().map(|error| (error.what, error.row))
    }

    #[test]
    fn the_same_reference_agrees() {
        assert_eq!(fault(|_| ()), None);
    }

    #[test]
    fn a_difference_of_the_last_bits_agrees() {
        assert_eq!(fault(|gpu| gpu.output[8 * 64] *= 1.0 + 1e-14), None);
    }

    #[test]
    fn an_output_that_is_a_little_off_is_named_with_its_row() {
        let found = fault(|gpu| gpu.output[(9 + 8) * 64 + 3] += 1e-10);
        assert_eq!(found, Some(("output", [0, 1, 8])));
    }

    #[test]
    fn an_output_that_is_no_number_is_named() {
        let found = fault(|gpu| gpu.output[8 * 64] = f64::NAN);
        assert_eq!(found, Some(("output", [0, 0, 8])));
    }

    #[test]
    fn a_value_in_a_row_without_keys_is_named() {
        let found = fault(|gpu| gpu.output[64] = 1e-9);
        assert_eq!(found, Some(("output", [0, 0, 1])));
    }

    #[test]
    fn a_log_sum_exp_in_a_row_without_keys_is_named() {
        let found = fault(|gpu| gpu.lse[0] = 0.0);
        assert_eq!(found, Some(("log-sum-exp", [0, 0, 0])));
    }

    #[test]
    fn a_log_sum_exp_that_is_a_little_off_is_named() {
        let found = fault(|gpu| gpu.lse[5] += 1e-11);
        assert_eq!(found, Some(("log-sum-exp", [0, 0, 5])));
    }

    #[test]
    fn a_baseline_two_steps_off_is_named_and_one_step_is_not() {
        let step = |gpu: &mut Reference, steps: f64| {
            let value = &mut gpu.baseline[8 * 64];
            let ulp = problem().dtype.output().ulp(f64::from(*value));
            *value += (steps * ulp) as f32;
        };
        assert_eq!(
            fault(|gpu| gpu.baseline[8 * 64] = f32::NAN),
            Some(("baseline", [0, 0, 8]))
        );
        let host = reference(&inputs(), Probability::F32).unwrap();
        let agrees = |steps| {
            let mut gpu = host.clone();
            step(&mut gpu, steps);
            agree(&problem(), &host, &gpu).is_ok()
        };
        assert!(agrees(1.0) && !agrees(2.0));
    }

    #[test]
    fn an_output_of_unrounded_values_that_is_missing_is_named() {
        let found = fault(|gpu| gpu.unquantised = None);
        assert_eq!(found, Some(("unquantised output", [0, 0, 0])));
    }

    #[test]
    fn rows_are_found_by_their_numbers() {
        let host = reference_of_rows(&inputs(), Probability::F32, vec![4, 17]).unwrap();
        let gpu = reference(&inputs(), Probability::F32).unwrap();
        assert_eq!(agree(&problem(), &host, &gpu), Ok(()));
        let lacks = reference_of_rows(&inputs(), Probability::F32, vec![4, 16]).unwrap();
        let error = agree(&problem(), &host, &lacks).unwrap_err();
        assert_eq!(error.row, [0, 1, 8]);
    }

    #[test]
    fn the_message_says_what_differs_where_and_what_to_do() {
        let host = reference(&inputs(), Probability::F32).unwrap();
        let mut gpu = host.clone();
        gpu.output[8 * 64] = 0.0;
        let text = agree(&problem(), &host, &gpu).unwrap_err().to_string();
        let says = [
            "e4m3 causal, P in f32: the output at row [0, 0, 8] is 0e0 by the GPU's reference",
            "run again with another driver, nvcc or GPU",
        ];
        assert!(says.iter().all(|says| text.contains(says)), "{text}");
    }
}
