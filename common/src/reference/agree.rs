//! Compares a GPU's reference with the host's, where both were computed.

use super::{Disagreement, Reference, row_index};
use crate::problem::Problem;

/// The largest difference between values of FP64, in units of the larger of the host's value and
/// the root mean square of V (for a log-sum-exp, 1).
///
/// Both sides compute the same operations in the same order, but for exp and ln, which are an ulp
/// off at most: 4e-16 in a weight, and about the root of n times 1e-16 in n sums of such. A wrong
/// key, mask or scale is off by far more.
pub const MOST_APART: f64 = 1e-12;

/// Compares all rows of the host's reference with the GPU's, which has them among its own. Values
/// may differ by [`MOST_APART`], and in the baseline by one step of the output's format.
///
/// # Errors
///
/// The first value that is further off.
pub fn agree(problem: &Problem, host: &Reference, gpu: &Reference) -> Result<(), Disagreement> {
    for (index, &row) in host.rows.iter().enumerate() {
        for pair in pairs(problem, host, index, gpu) {
            if pair.is_close() {
                continue;
            }
            let Problem {
                shape, dtype, mask, ..
            } = problem;
            return Err(Disagreement {
                problem: format!("{shape} {dtype} {mask}, P in {}", host.probability),
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
    /// Returns whether the difference is within the bound. NaN is close to nothing. The log-sum-exp
    /// of a row without a key is infinite, and nothing but the same infinity is close to it.
    fn is_close(&self) -> bool {
        self.gpu == self.host || self.host.is_finite() && (self.gpu - self.host).abs() <= self.bound
    }
}

/// Returns all values of the host's row number `index`; where the GPU has none, its value is NaN.
fn pairs(problem: &Problem, host: &Reference, index: usize, gpu: &Reference) -> Vec<Pair> {
    let dim = problem.shape.head_dim;
    let format = problem.dtype.output();
    let gpu_index = gpu.rows.binary_search(&host.rows[index]).ok();
    let unit = host.value_rms[index];
    let gpu_lse = gpu_index.and_then(|row| gpu.lse.get(row));
    let mut pairs = vec![exact_pair("log-sum-exp", gpu_lse, host.lse[index], 1.0)];
    for column in 0..dim {
        let host_element = index * dim + column;
        // An index that no array has, where the GPU does not have the row.
        let gpu_element = gpu_index.map_or(usize::MAX, |row| row * dim + column);
        pairs.push(exact_pair(
            "output",
            gpu.output.get(gpu_element),
            host.output[host_element],
            unit,
        ));
        if let Some(unquantised) = &host.unquantised {
            let gpu_values = gpu.unquantised.as_deref().unwrap_or_default();
            pairs.push(exact_pair(
                "unquantised output",
                gpu_values.get(gpu_element),
                unquantised[host_element],
                unit,
            ));
        }
        let host_baseline = f64::from(host.baseline[host_element]);
        let gpu_baseline = gpu.baseline.get(gpu_element);
        pairs.push(Pair {
            what: "baseline",
            gpu: gpu_baseline.map_or(f64::NAN, |&value| f64::from(value)),
            host: host_baseline,
            bound: format.ulp(host_baseline),
        });
    }
    pairs
}

/// Pairs values of FP64, whose bound has the unit of the larger of `unit` and the host's.
fn exact_pair(what: &'static str, gpu: Option<&f64>, host: f64, unit: f64) -> Pair {
    Pair {
        what,
        gpu: gpu.copied().unwrap_or(f64::NAN),
        host,
        bound: MOST_APART * unit.max(host.abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{reference, reference_of_rows};
    use super::*;
    use crate::inputs::{Family, Inputs};
    use crate::probability::Probability;
    use crate::problem::{Dtype, Mask, Shape};
    use crate::serving::Serving;

    /// Returns a causal problem with rows that see no key.
    fn problem() -> Problem {
        let shape = Shape {
            batch: 1,
            heads_q: 2,
            heads_kv: 1,
            seq_q: 9,
            seq_kv: 5,
            head_dim: 64,
            serving: Serving::DENSE,
        };
        Problem::new(shape, Dtype::E4m3, Mask::Causal).unwrap()
    }

    fn inputs() -> Inputs {
        Inputs::generate(&problem(), Family::Shifted, 0)
    }

    /// The value that a message names, and its row.
    #[derive(Debug, PartialEq)]
    struct Named {
        what: &'static str,
        row: [usize; 3],
    }

    /// Returns the value and row that are named after `break_it` changed the GPU's reference.
    fn named_after(break_it: fn(&mut Reference)) -> Option<Named> {
        let host = reference(&inputs(), Probability::F32).unwrap();
        let mut gpu = host.clone();
        break_it(&mut gpu);
        let outcome = agree(&problem(), &host, &gpu);
        let error = outcome.err()?;
        Some(Named {
            what: error.what,
            row: error.row,
        })
    }

    #[test]
    fn the_same_reference_agrees() {
        assert_eq!(named_after(|_| ()), None);
    }

    #[test]
    fn a_difference_of_the_last_bits_agrees() {
        assert_eq!(named_after(|gpu| gpu.output[8 * 64] *= 1.0 + 1e-14), None);
    }

    #[test]
    fn an_output_that_is_a_little_off_is_named_with_its_row() {
        let named = named_after(|gpu| gpu.output[(9 + 8) * 64 + 3] += 1e-10);
        assert_eq!(
            named,
            Some(Named {
                what: "output",
                row: [0, 1, 8]
            })
        );
    }

    #[test]
    fn an_output_that_is_no_number_is_named() {
        let named = named_after(|gpu| gpu.output[8 * 64] = f64::NAN);
        assert_eq!(
            named,
            Some(Named {
                what: "output",
                row: [0, 0, 8]
            })
        );
    }

    #[test]
    fn a_value_in_a_row_without_keys_is_named() {
        let named = named_after(|gpu| gpu.output[64] = 1e-9);
        assert_eq!(
            named,
            Some(Named {
                what: "output",
                row: [0, 0, 1]
            })
        );
    }

    #[test]
    fn a_log_sum_exp_in_a_row_without_keys_is_named() {
        let named = named_after(|gpu| gpu.lse[0] = 0.0);
        assert_eq!(
            named,
            Some(Named {
                what: "log-sum-exp",
                row: [0, 0, 0]
            })
        );
    }

    #[test]
    fn a_log_sum_exp_that_is_a_little_off_is_named() {
        let named = named_after(|gpu| gpu.lse[5] += 1e-11);
        assert_eq!(
            named,
            Some(Named {
                what: "log-sum-exp",
                row: [0, 0, 5]
            })
        );
    }

    #[test]
    fn a_baseline_two_steps_off_is_named_and_one_step_is_not() {
        let named = named_after(|gpu| gpu.baseline[8 * 64] = f32::NAN);
        assert_eq!(
            named,
            Some(Named {
                what: "baseline",
                row: [0, 0, 8]
            })
        );
        let host = reference(&inputs(), Probability::F32).unwrap();
        let value = host.baseline[8 * 64];
        let ulp = problem().dtype.output().ulp(f64::from(value));
        let agrees = |steps: f64| {
            let mut gpu = host.clone();
            gpu.baseline[8 * 64] = value + (steps * ulp) as f32;
            agree(&problem(), &host, &gpu).is_ok()
        };
        assert!(agrees(1.0));
        assert!(!agrees(2.0));
    }

    #[test]
    fn an_output_of_unrounded_values_that_is_missing_is_named() {
        let named = named_after(|gpu| gpu.unquantised = None);
        assert_eq!(
            named,
            Some(Named {
                what: "unquantised output",
                row: [0, 0, 0]
            })
        );
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
    fn the_message_names_what_differs_where_and_what_to_do() {
        let host = reference(&inputs(), Probability::F32).unwrap();
        let mut gpu = host.clone();
        gpu.output[8 * 64] = 0.0;
        let text = agree(&problem(), &host, &gpu).unwrap_err().to_string();
        for part in [
            "e4m3 causal, P in f32: the output at row [0, 0, 8] is 0e0 by the GPU's reference",
            "run again with another driver, nvcc or GPU",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }
}
