//! References of large problems on a GPU. Their kernel (`attend.cu`) is compared with the host
//! before the first and on each.

use super::agree::agree;
use super::layout::{Layout, Rounding};
use super::{
    Attended, Attention, Host, Probability, Reference, ReferenceError, Widened, baseline_scales,
    compose, exact_scales, judged_rows, reference,
};
use crate::device::cuda::CudaDevice;
use crate::inputs::{Family, Inputs};
use crate::problem::{Dtype, Mask, Problem, Shape};
use crate::serving::Serving;

mod image {
    include!(concat!(env!("OUT_DIR"), "/gpu.rs"));
}

pub use image::FATBIN;

/// The number of visible scores up to which the host computes the reference: in a second on two
/// processors, where 2^28 take a minute. So most problems that gates judge need no GPU, and it is
/// used where it saves more than it costs.
pub const MOST_HOST_SCORES: u64 = 1 << 22;

/// The arithmetic of a call.
pub(crate) trait Real: super::panels::Real {
    /// The kernel's entry.
    const ENTRY: &'static str;
}

impl Real for f64 {
    const ENTRY: &'static str = "reference_f64";
}

impl Real for f32 {
    const ENTRY: &'static str = "reference_f32";
}

impl Attention for CudaDevice {
    fn exact(
        &self,
        problem: &Problem,
        rows: &[usize],
        values: &[Vec<f64>; 3],
    ) -> Result<Attended<f64>, ReferenceError> {
        Ok(self.attend(problem, &exact_layout(problem, rows, values))?)
    }

    fn baseline(
        &self,
        inputs: &Inputs,
        rows: &[usize],
        p: Probability,
    ) -> Result<Vec<f32>, ReferenceError> {
        let codes = [&inputs.q, &inputs.k, &inputs.v].map(|operand| operand.codes());
        let layout = baseline_layout(inputs, &codes, rows, p);
        Ok(self.attend(&inputs.problem, &layout)?.output)
    }
}

/// Lays out FP64 attention on dense values.
pub fn exact_layout<'a>(
    problem: &Problem,
    rows: &[usize],
    [q, k, v]: &'a [Vec<f64>; 3],
) -> Layout<'a, f64> {
    let unrounded = Rounding::from(Probability::F32);
    Layout::new(problem, rows, [q, k, v], unrounded, |_, _| {
        exact_scales(problem)
    })
}

/// Lays out the baseline on the codes of Q, K and V.
pub fn baseline_layout<'a>(
    inputs: &Inputs,
    [q, k, v]: &'a [Vec<f32>; 3],
    rows: &[usize],
    p: Probability,
) -> Layout<'a, f32> {
    Layout::new(&inputs.problem, rows, [q, k, v], p.into(), |b, h| {
        baseline_scales(inputs, b, h).map(f64::from)
    })
}

impl CudaDevice {
    /// Returns whether [`CudaDevice::reference`] uses the GPU: for more than [`MOST_HOST_SCORES`],
    /// where there is code for one and tensors are dense.
    pub fn makes_reference(&self, problem: &Problem) -> bool {
        FATBIN.is_some() && problem.is_dense() && problem.scores() > MOST_HOST_SCORES
    }

    /// Computes a [`reference()`], on the GPU if it [makes](CudaDevice::makes_reference) that of the
    /// problem. The kernel is compared with the host on small problems before
    /// the first, and on each at three of its rows.
    ///
    /// # Errors
    ///
    /// Values that are not the host's.
    pub fn reference(&self, inputs: &Inputs, p: Probability) -> Result<Reference, ReferenceError> {
        let Inputs { problem, .. } = inputs;
        if !self.makes_reference(problem) {
            return reference(inputs, p);
        }
        self.check_references()?;
        let widened = Widened::new(inputs)?;
        let on_gpu = compose(self, inputs, &widened, p, judged_rows(problem))?;
        let on_host = compose(&Host, inputs, &widened, p, ends(&on_gpu.rows))?;
        agree(problem, &on_host, &on_gpu)?;
        Ok(on_gpu)
    }

    /// Compares references of all rows of [`small_cases`] with the host's, once.
    fn check_references(&self) -> Result<(), ReferenceError> {
        if self.references_agree.get() {
            return Ok(());
        }
        for (problem, p) in small_cases() {
            let inputs = Inputs::generate(&problem, Family::Shifted, 0);
            let widened = Widened::new(&inputs)?;
            let on_host = compose(&Host, &inputs, &widened, p, judged_rows(&problem))?;
            let on_gpu = compose(self, &inputs, &widened, p, on_host.rows.clone())?;
            agree(&problem, &on_host, &on_gpu)?;
        }
        self.references_agree.set(true);
        Ok(())
    }
}

/// Returns the first, the middle and the last of `rows`, each once.
fn ends(rows: &[usize]) -> Vec<usize> {
    let places = [0, rows.len() / 2, rows.len() - 1];
    let mut end_rows: Vec<usize> = places.map(|place| rows[place]).to_vec();
    end_rows.dedup();
    end_rows
}

/// Returns the problems on which the kernel is checked: each mask, element type and type of P;
/// grouped heads; keys beyond one round of a block's threads; tiles with fewer rows; rows without a
/// key.
pub fn small_cases() -> Vec<(Problem, Probability)> {
    let two_batches = |heads: [usize; 2], seqs: [usize; 2], head_dim| Shape {
        batch: 2,
        heads_q: heads[0],
        heads_kv: heads[1],
        seq_q: seqs[0],
        seq_kv: seqs[1],
        head_dim,
        serving: Serving::DENSE,
    };
    let shapes = [
        two_batches([4, 2], [19, 7], 64),
        two_batches([3, 1], [6, 300], 128),
        two_batches([2, 2], [1, 1], 64),
    ];
    let mut cases = Vec::new();
    for shape in shapes {
        for dtype in Dtype::ALL {
            let mut types = Probability::declarable(dtype).to_vec();
            if dtype == Dtype::E4m3 {
                types.push(Probability::E4m3);
            }
            for mask in Mask::ALL {
                let problem = Problem::new(shape, dtype, mask).expect("shapes of this function");
                cases.extend(types.iter().map(|&p| (problem, p)));
            }
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_have_each_mask_type_and_a_row_without_a_key() {
        let cases = small_cases();
        for mask in Mask::ALL {
            for dtype in Dtype::ALL {
                let p = Probability::of_operands(dtype);
                let has_case = cases
                    .iter()
                    .any(|case| (case.0.mask, case.0.dtype, case.1) == (mask, dtype, p));
                assert!(has_case, "{mask} {dtype}");
            }
        }
        let mut problems = cases.iter().map(|case| &case.0);
        assert!(problems.any(|problem| problem.visible_keys(0) == 0));
    }

    #[test]
    fn cases_are_small() {
        for (problem, _) in small_cases() {
            assert!(problem.scores() < MOST_HOST_SCORES, "{problem:?}");
        }
    }

    #[test]
    fn ends_are_three_rows_at_most_each_once() {
        assert_eq!(ends(&[3, 4, 8, 9, 11]), [3, 8, 11]);
        assert_eq!(ends(&[3, 4]), [3, 4]);
        assert_eq!(ends(&[3]), [3]);
    }
}
