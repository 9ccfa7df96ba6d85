//! C8: log-sum-exps right.

use super::{C8_LSE, C8_SCORES, SCORE_ROUNDING};
use crate::problem::Problem;
use crate::reference::{Reference, row_index};
use crate::verdict::{GateId, GateResult};

/// Every log-sum-exp (`[batch, heads_q, seq_q]`, dense) is within [`C8_LSE`] of FP64's or what f32 loses of the largest score
/// ([`C8_SCORES`]), and -inf for a row without a visible key.
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
    let bound = |exact: f64| (C8_LSE * exact.abs().max(1.0)).max(scores);
    // Of the bound; NaN is the worst.
    let error = |row: usize, exact: f64| {
        let found = f64::from(lse[row]);
        match exact == f64::NEG_INFINITY {
            true if found == exact => 0.0,
            true => f64::INFINITY,
            false => (found - exact).abs() / bound(exact),
        }
    };
    let errors = reference.rows.iter().zip(&reference.lse);
    let errors = errors.map(|(&row, &exact)| (error(row, exact), row, exact));
    let worst = errors.max_by(|(a, ..), (b, ..)| a.abs().total_cmp(&b.abs()));
    let Some((error, row, exact)) = worst else {
        return GateResult::no_data(GateId::C8, "no rows");
    };
    let [b, h, s] = row_index(problem, row);
    let reason = format!(
        "worst log-sum-exp: row [{b}, {h}, {s}] has {:e}, FP64 {exact:e}: off by {error:.2} of the bound, the larger of \
         {C8_LSE:.0e} (relative or absolute) and {scores:.1e} (f32 scores)",
        lse[row]
    );
    GateResult::judge(GateId::C8, error <= 1.0, reason)
}
