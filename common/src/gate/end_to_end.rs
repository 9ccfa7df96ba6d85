//! C4: the end-to-end gates of the ladder's first documents.

use super::{
    C4_E4M3_BAD, C4_E4M3_BAD_SHARE, C4_E4M3_MEAN, Errors, Evidence, SEEDS_MAX, SEEDS_MEAN, at,
    c4_share, wrong_length,
};
use crate::inputs::Family;
use crate::problem::{Dtype, Mask, Problem, SHAPES};
use crate::verdict::{GateId, GateResult};

/// The shapes on which E4M3 is gated end to end: their rows average over enough keys.
const E4M3_SHAPES: [&str; 2] = ["mission", "long"];

/// Judges C4. In f16 and bf16: allclose to FP64 on the inputs as stored. In E4M3: mean error and
/// share of bad elements, from FP64 on the values before quantisation, on normal, full mask,
/// mission and long; elsewhere NO DATA, with the numbers in [`Errors::end_to_end`].
pub fn c4(evidence: &Evidence<'_>, errors: &Errors) -> GateResult {
    if let Some(result) = wrong_length(GateId::C4, evidence) {
        return result;
    }
    match evidence.problem.dtype {
        Dtype::F16 | Dtype::Bf16 => judge_allclose(evidence, errors),
        Dtype::E4m3 => judge_e4m3(evidence, errors),
    }
}

fn judge_allclose(evidence: &Evidence<'_>, errors: &Errors) -> GateResult {
    let tolerance = c4_share(evidence.problem.dtype.output());
    let reason = format!(
        "worst |o - r| / ({tolerance} rms(V) + {tolerance} |r|) is {:.3e} at {}, bound 1",
        errors.allclose,
        at(errors.allclose_at),
    );
    GateResult::judge(GateId::C4, errors.allclose <= 1.0, reason)
}

fn judge_e4m3(evidence: &Evidence<'_>, errors: &Errors) -> GateResult {
    let Some(end) = &errors.end_to_end else {
        return GateResult::no_data(
            GateId::C4,
            "real tensors: the values before quantisation are not known",
        );
    };
    if let Some(why) = why_e4m3_is_not_gated(evidence) {
        return GateResult::no_data(GateId::C4, format!("not gated for {why}"));
    }
    let seeds = if end.meets_seeds { "met" } else { "missed" };
    let numbers = format!(
        "mean error {:.3e}, bound {C4_E4M3_MEAN}; {:.3} % above {C4_E4M3_BAD}, bound {:.0} %; \
         max {:.3e} at {} (for information: max {SEEDS_MAX}, mean {SEEDS_MEAN}, 1 % {seeds})",
        end.mean_abs,
        100.0 * end.bad_share,
        100.0 * C4_E4M3_BAD_SHARE,
        end.max_abs,
        at(end.max_abs_at),
    );
    let ok = end.mean_abs <= C4_E4M3_MEAN && end.bad_share <= C4_E4M3_BAD_SHARE;
    GateResult::judge(GateId::C4, ok, numbers)
}

fn why_e4m3_is_not_gated(evidence: &Evidence<'_>) -> Option<String> {
    match evidence.family {
        Some(Family::Normal) => {}
        Some(family) => return Some(format!("the {family} family")),
        None => return Some("real tensors".to_string()),
    }
    let Problem { shape, mask, .. } = *evidence.problem;
    if mask != Mask::Full {
        return Some(format!("the {mask} mask"));
    }
    let is_gated = SHAPES
        .iter()
        .any(|named| E4M3_SHAPES.contains(&named.name) && named.shape == shape);
    if is_gated {
        None
    } else {
        Some(format!("shape {shape}"))
    }
}
