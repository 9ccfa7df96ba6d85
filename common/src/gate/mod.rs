//! The gates on numbers, buffers and hazards: pure functions from evidence to a verdict with a
//! reason. Each compares `error <= bound`, so that NaN fails. `common/docs/error-budgets.md` has
//! what correct kernels measure.

use crate::format::Format;
use crate::inputs::Family;
use crate::problem::Problem;
use crate::reference::Reference;
use crate::verdict::{GateId, GateResult};

mod accuracy;
mod backends;
mod buffers;
mod complete;
mod end_to_end;
mod front_ends;
mod hazards;
mod lse;
mod measure;
mod repeat;

pub use accuracy::{c2, c3};
pub use backends::{b1, b1_measured};
pub use buffers::{Buffer, Role, c6};
pub use complete::c1;
pub use end_to_end::c4;
pub use front_ends::b2;
pub use hazards::{Traced, h1};
pub use lse::c8;
pub use measure::{EndToEnd, Errors, is_worse};
pub use repeat::{Repeat, c5};

/// C2: the factor of the same-precision baseline's largest error. FlashAttention's tests, 2x since
/// the first version (`tests/test_flash_attn.py`).
pub const C2_PLAIN_FACTOR: f64 = 2.0;
/// C2: the ulps on top, of the output's format at the largest reference value: both sides round
/// their output once, and a baseline may be right by luck. FlashAttention-3's tests, `atol = 2 *
/// |ref + 0.3 - 0.3 - ref|`.
pub const C2_OUTPUT_ULPS: f64 = 2.0;
/// C2: the factor of the same-precision baseline's root mean square of row errors: it shows a
/// rounding too many, or a truncation, far inside every bound on single elements. Correct kernels
/// measure at most 1.00 over thousands of rows of normal; P or the output truncated, or the sum or
/// the accumulator in half, at least 1.35.
pub const C2_ROWS_FACTOR: f64 = 1.15;
/// C2: an addition to that factor, over [`Errors::baseline_rows`]. Correct kernels measure up to
/// 2.46 in two rows, 1.39 in seven, 1.16 in 17, 1.05 in 32 (worst of 40 to 200 seeds, huge left
/// out).
pub const C2_ROWS_NOISE: f64 = 4.0;
/// C2 and C3: the relative rounding of scores: f32 scores are off by about this times
/// [`Errors::largest_score`], weights by as much of themselves: 1e-6 for logits of 10, more than
/// [`C3_ROW`] for near ties between logits of 30,000.
pub const SCORE_ROUNDING: f64 = 1.0 / (1u64 << 24) as f64;
/// C3: the relative error of a row in the 2-norm, with P in f16 or f32 and output in f16.
pub const C3_ROW: f64 = 2e-3;
/// C3: the same with P or the output in bf16, which has 3 bits less: as far above the worst of
/// correct kernels as [`C3_ROW`] is.
pub const C3_ROW_BF16: f64 = 1.6e-2;
/// C3: the same for kernels that declare P in E4M3.
pub const C3_ROW_E4M3_P: f64 = 6e-2;
/// C4, f16: `rtol` of `|o - r| <= atol + rtol * |r|`, the gate of the ladder's first documents,
/// which had V of N(0, 1). `atol` is this times the root mean square of the row's V: the same at
/// every scale.
pub const C4_F16: f64 = 1e-2;
/// C4, bf16: PyTorch's own relative tolerance (`torch.testing.assert_close`), two ulps; [`C4_F16`]
/// is less than one rounding of P and one of the output may make.
pub const C4_BF16: f64 = 1.6e-2;
/// C4: the least `atol`, in subnormal steps of the output's format.
const C4_LEAST_STEPS: f64 = 2.0;
/// C4, E4M3: the mean absolute error from unquantised FP64. Mismatched codecs measured 0.013 to
/// 0.018, a matched one at most 0.0035.
pub const C4_E4M3_MEAN: f64 = 0.005;
/// C4, E4M3: the error above which an element is bad.
pub const C4_E4M3_BAD: f64 = 0.06;
/// C4, E4M3: the largest share of bad elements.
pub const C4_E4M3_BAD_SHARE: f64 = 0.01;
/// C8: the relative or, below 1, absolute error. f32 holds the largest score to 6e-8; lg2.approx
/// adds up to 2e-6 over 2^17 keys.
pub const C8_LSE: f64 = 1e-5;
/// C8: the factor of [`SCORE_ROUNDING`] of the largest score, if that is more: a logit that is
/// small because its products cancel is known no better. An NVIDIA H200's tensor cores measure up
/// to 2.6 (FP16 products as in huge, 5e8 of them).
pub const C8_SCORES: f64 = 4.0;
/// B1: the factor of the worst of correct variants ([`b1_measured`]).
pub const B1_FACTOR: f64 = 3.0;
/// The first documents' bound on the mean error for a linear codec; printed beside C4, never
/// judged.
pub const SEEDS_MEAN: f64 = 0.02;
/// The first documents' bound on the largest error; printed likewise.
pub const SEEDS_MAX: f64 = 0.06;

/// One output of one case.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    pub problem: &'a Problem,
    pub family: Option<Family>,
    pub reference: &'a Reference,
    /// The values of the output's codes, `[batch, heads_q, seq_q, head_dim]`, dense, every row,
    /// sampled reference or not.
    pub output: &'a [f32],
}

/// Judges C1 to C4. An output of the wrong length fails all.
pub fn numeric_gates(evidence: &Evidence<'_>) -> (Errors, [GateResult; 4]) {
    let errors = Errors::measure(evidence);
    let gates = [
        c1(evidence),
        c2(&errors),
        c3(&errors),
        c4(evidence, &errors),
    ];
    (errors, gates)
}

/// Returns the least norm of a row for C3: `sqrt(head_dim)` times the output format's smallest
/// normal value, below which it has fewer bits.
pub fn c3_floor(problem: &Problem) -> f64 {
    (problem.shape.head_dim as f64).sqrt() * problem.dtype.output().smallest_normal()
}

/// Returns the relative tolerance of C4.
fn c4_share(format: Format) -> f64 {
    match format {
        Format::F16 => C4_F16,
        Format::Bf16 => C4_BF16,
    }
}

/// Returns the absolute tolerance of C4 in f16 and bf16, for an element with reference `exact`,
/// where V has the root mean square `value_rms`.
pub fn c4_tolerance(format: Format, value_rms: f64, exact: f64) -> f64 {
    C4Tolerance::new(format, value_rms).at(exact)
}

/// The tolerance of C4 in a row. What its elements share is computed once: gates spend most of
/// their time on elements.
#[derive(Clone, Copy)]
struct C4Tolerance {
    absolute: f64,
    relative: f64,
}

impl C4Tolerance {
    fn new(format: Format, value_rms: f64) -> Self {
        let relative = c4_share(format);
        let least = C4_LEAST_STEPS * format.ulp(0.0);
        Self {
            absolute: (relative * value_rms).max(least),
            relative,
        }
    }

    /// Returns the tolerance of an element with this reference.
    fn at(self, exact: f64) -> f64 {
        self.absolute + self.relative * exact.abs()
    }
}

fn at(index: [usize; 4]) -> String {
    let [b, h, s, d] = index;
    format!("[{b}, {h}, {s}, {d}]")
}

fn wrong_length(gate: GateId, evidence: &Evidence<'_>) -> Option<GateResult> {
    let expected: usize = evidence.problem.shape.q_extents().iter().product();
    let actual = evidence.output.len();
    if actual == expected {
        return None;
    }
    let reason = format!("{actual} output elements, the problem has {expected}");
    Some(GateResult::fail(gate, reason))
}

#[cfg(test)]
mod tests;
