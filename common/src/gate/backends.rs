//! B1: both backends agree.

use super::measure::Worst;
use super::{B1_FACTOR, c3_floor};
use crate::inputs::Family;
use crate::problem::{Dtype, Problem};
use crate::reference::row_index;
use crate::verdict::{GateId, GateResult};

/// Returns the worst row of correct variants on tier T2's cases, seeds 0 to 3, NVIDIA H200 and
/// emulator, in the unit of [`b1`]; 0 where the dtype has no such family
/// (`common/docs/error-budgets.md`). Few rows of bf16 differ at all, so that all families but huge
/// have the worst of any.
pub fn b1_measured(dtype: Dtype, family: Family) -> f64 {
    let [f16, e4m3] = match family {
        Family::Normal => [3.87e-4, 4.14e-4],
        Family::Shifted => [3.94e-4, 1.99e-4],
        Family::AllNegative => [4.86e-4, 2.66e-4],
        Family::DeepNegative => [5.91e-4, 3.14e-4],
        Family::Large => [6.36e-4, 1.42e-4],
        Family::Huge => [1.49e-3, 6.92e-4],
        Family::MixedScale => [7.23e-4, 2.87e-4],
        Family::Peaked => [3.93e-4, 2.31e-4],
        Family::Sink => [7.74e-4, 2.31e-4],
        Family::Outliers => [4.10e-4, 3.36e-4],
        Family::Saturated => [0.0, 2.50e-4],
        Family::RandomScales => [0.0, 3.22e-4],
        // Normal's: so is a head without zeros (3e-6 on T2's short rows). The others measure 0:
        // weights and sums are exact.
        Family::ZeroHead => [0.0, 4.14e-4],
        // Not measured: normal's, though weights are 0 and 1; and a step of the least normal half
        // in every fourth element.
        Family::Colossal => [3.87e-4, 4.14e-4],
        Family::Subnormal => [4.88e-4, 0.0],
        // Normal's, whose logits it has.
        Family::WideRange => [3.87e-4, 0.0],
    };
    match dtype {
        Dtype::E4m3 => e4m3,
        Dtype::F16 | Dtype::Bf16 if !Family::for_dtype(dtype).contains(&family) => 0.0,
        Dtype::F16 => f16,
        Dtype::Bf16 if family == Family::Huge => 4.24e-3,
        Dtype::Bf16 => 2.55e-3,
    }
}

/// Judges B1: no row of the GPU's output differs from the emulator's by more than [`B1_FACTOR`]
/// times what correct variants measure, in the 2-norm, relative to the emulator's row. It shows
/// what one compiler gets wrong, also where the reference's tolerance is wide.
pub fn b1(problem: &Problem, family: Family, gpu: &[f32], emulated: &[f32]) -> GateResult {
    let dim = problem.shape.head_dim;
    let expected: usize = problem.shape.q_extents().iter().product();
    if [gpu.len(), emulated.len()] != [expected; 2] {
        let reason = format!(
            "{} and {} output elements, the problem has {expected}",
            gpu.len(),
            emulated.len()
        );
        return GateResult::fail(GateId::B1, reason);
    }
    let mut worst = Worst::new(0);
    let rows = gpu.chunks_exact(dim).zip(emulated.chunks_exact(dim));
    for (row, (gpu_row, emulated_row)) in rows.enumerate() {
        let pairs = gpu_row.iter().zip(emulated_row);
        let difference = norm(pairs.map(|(&a, &b)| f64::from(a) - f64::from(b)));
        let size = norm(emulated_row.iter().map(|&value| f64::from(value)));
        worst.offer(difference / size.max(c3_floor(problem)), row);
    }
    let measured = b1_measured(problem.dtype, family);
    let bound = B1_FACTOR * measured;
    let [b, h, s] = row_index(problem, worst.at);
    let reason = format!(
        "row [{b}, {h}, {s}] differs from the emulator's by {:.3e} of its norm, \
         bound {bound:.2e} = {B1_FACTOR} x {measured:.2e} (correct variants)",
        worst.value,
    );
    GateResult::judge(GateId::B1, worst.value <= bound, reason)
}

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|value| value * value).sum::<f64>().sqrt()
}
