//! C8: log-sum-exps right.

use super::C8_LSE;
use crate::problem::Problem;
use crate::reference::{Reference, row_index};
use crate::verdict::{GateId, GateResult};

/// C8: every row's log-sum-exp, of `lse` (`[batch, heads_q, seq_q]`, dense), is within [`C8_LSE`] of FP64's, and -inf for a row
/// that sees no key.
pub fn c8(problem: &Problem, reference: &Reference, lse: &[f32]) -> GateResult {
    let [batch, heads, rows, _] = problem.shape.q_extents();
    if lse.len() != batch * heads * rows {
        let reason = format!(
            "{} log-sum-exps, the problem has {} rows",
            lse.len(),
            batch * heads * rows
        );
        return GateResult::judge(GateId::C8, false, reason);
    }
    // Of the bound; NaN is the worst.
    let error = |row: usize, exact: f64| {
        let (found, size) = (f64::from(lse[row]), exact.abs().max(1.0));
        match exact == f64::NEG_INFINITY {
            true if found == exact => 0.0,
            true => f64::INFINITY,
            false => (found - exact).abs() / size,
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
        "log-sum-exp of row [{b}, {h}, {s}] is {:e}, FP64 {exact:e}: off by {error:.1e}, bound {C8_LSE:.0e}",
        lse[row]
    );
    GateResult::judge(GateId::C8, error <= C8_LSE, reason)
}
