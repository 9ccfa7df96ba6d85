//! C8: log-sum-exps right.

use super::{C8_LSE, C8_SCORES, SCORE_ROUNDING};
use crate::problem::Problem;
use crate::reference::{Reference, row_index};
use crate::verdict::{GateId, GateResult};

/// Judges C8: every log-sum-exp (`[batch, heads_q, seq_q]`, dense) is within [`C8_LSE`] of FP64's
/// or what f32 loses of the largest score ([`C8_SCORES`]), and -inf for a row without a visible
/// key.
pub fn c8(problem: &Problem, reference: &Reference, lse: &[f32]) -> GateResult {
    let [batch, heads, rows, _] = problem.shape.q_extents();
    if lse.len() != batch * heads * rows {
        let reason = format!(
            "{} log-sum-exps, the problem has {} rows",
            lse.len(),
            batch * heads * rows
        );
        return GateResult::fail(GateId::C8, reason);
    }
    let scores = C8_SCORES * SCORE_ROUNDING * reference.largest_score;
    let mut worst: Option<Judged> = None;
    for (&row, &exact) in reference.rows.iter().zip(&reference.lse) {
        let error = share_of_bound(lse[row].into(), exact, scores);
        // Among equals the last one counts.
        let is_worst = worst
            .as_ref()
            .is_none_or(|known| known.error.abs().total_cmp(&error.abs()).is_le());
        if is_worst {
            worst = Some(Judged { row, exact, error });
        }
    }
    let Some(Judged { row, exact, error }) = worst else {
        return GateResult::no_data(GateId::C8, "no rows");
    };
    let [b, h, s] = row_index(problem, row);
    let reason = format!(
        "worst log-sum-exp: row [{b}, {h}, {s}] has {:e}, FP64 {exact:e}: off by {error:.2} of the \
         bound, the larger of {C8_LSE:.0e} (relative or absolute) and {scores:.1e} (f32 scores)",
        lse[row]
    );
    GateResult::judge(GateId::C8, error <= 1.0, reason)
}

/// A row and the part of its bound that its error takes.
struct Judged {
    row: usize,
    exact: f64,
    error: f64,
}

/// Returns the part of its bound that an error takes; NaN is the worst. `scores` is what f32 loses
/// of the largest score.
fn share_of_bound(value: f64, exact: f64, scores: f64) -> f64 {
    if exact != f64::NEG_INFINITY {
        let bound = (C8_LSE * exact.abs().max(1.0)).max(scores);
        (value - exact).abs() / bound
    } else if value == exact {
        0.0
    } else {
        f64::INFINITY
    }
}
