//! C2, as accurate as the precision allows, and C3, every row right.

use super::{C2_OUTPUT_ULPS, C2_PLAIN_FACTOR, Errors, at};
use crate::verdict::{GateId, GateResult};

/// Judges C2: the largest error is within [`C2_PLAIN_FACTOR`] times the same-precision baseline's
/// plus [`C2_OUTPUT_ULPS`], and the root mean square of row errors within about
/// [`C2_ROWS_FACTOR`](super::C2_ROWS_FACTOR) times the baseline's.
pub fn c2(errors: &Errors) -> GateResult {
    let (bound, rows_bound) = (errors.c2_bound(), errors.c2_rows_bound());
    let reason = format!(
        "max error {:.3e} at {}, bound {bound:.3e} = {C2_PLAIN_FACTOR} x {:.3e} (baseline, P in \
         {}) + {C2_OUTPUT_ULPS} {} ulp of {:.3e}; rows off by {:.3e} (root mean square), \
         bound {rows_bound:.3e}, baseline {:.3e}",
        errors.max_abs,
        at(errors.max_abs_at),
        errors.baseline_max_abs,
        errors.probability.name(),
        errors.output.name(),
        errors.output.ulp(errors.reference_max_abs),
        errors.rms_row_rel,
        errors.baseline_rms_row_rel,
    );
    let ok = errors.max_abs <= bound && errors.rms_row_rel <= rows_bound;
    GateResult::judge(GateId::C2, ok, reason + &sample_note(errors))
}

/// Judges C3: every row's relative error in the 2-norm is within the bound of P's type and the
/// output's; a row whose reference is zero is exactly zero.
pub fn c3(errors: &Errors) -> GateResult {
    if let Some(index) = errors.nonzero_in_zero_row {
        let reason = format!(
            "element {} is not 0 in a row whose reference is exactly 0",
            at(index)
        );
        return GateResult::fail(GateId::C3, reason);
    }
    let ([b, h, s], bound) = (errors.max_row_rel_at, errors.c3_bound());
    let reason = format!(
        "worst row [{b}, {h}, {s}] is off by {:.3e} of its norm, bound {bound:.1e} (P in {})",
        errors.max_row_rel,
        errors.probability.name(),
    );
    GateResult::judge(
        GateId::C3,
        errors.max_row_rel <= bound,
        reason + &sample_note(errors),
    )
}

fn sample_note(errors: &Errors) -> String {
    if errors.sampled {
        format!(" ({} sampled rows)", errors.rows)
    } else {
        String::new()
    }
}
