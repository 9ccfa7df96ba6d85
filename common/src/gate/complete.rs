//! C1: finite and complete.

use super::{Evidence, at, wrong_length};
use crate::format::SHARE;
use crate::image::UNWRITTEN;
use crate::inputs::index_of;
use crate::verdict::{GateId, GateResult};
use rayon::prelude::*;

/// Judges C1: none of the [`UNWRITTEN`] from before the launch is left, no other NaN, no infinity.
/// Every element counts, also where the reference is a sample.
pub fn c1(evidence: &Evidence<'_>) -> GateResult {
    if let Some(result) = wrong_length(GateId::C1, evidence) {
        return result;
    }
    let extents = evidence.problem.shape.q_extents();
    let unwritten = evidence.problem.dtype.output().decode(UNWRITTEN);
    // Rows that no sequence has are zero in the output, and nobody's to write.
    let elements = evidence.problem.query_rows() * evidence.problem.shape.head_dim;
    // What was never written is NaN, too.
    let is_complete = evidence
        .output
        .par_chunks(SHARE)
        .all(|block| block.iter().all(|element| element.is_finite()));
    if is_complete {
        let reason = format!("all {elements} elements written and finite");
        return GateResult::judge(GateId::C1, true, reason);
    }
    let mut complaints = Vec::new();
    for kind in ["never written", "NaN", "infinite"] {
        let is_of_kind = |element: &f32| complaint(*element, unwritten) == Some(kind);
        if let Some(first) = evidence.output.iter().position(is_of_kind) {
            let count = evidence.output.iter().filter(|x| is_of_kind(x)).count();
            let place = at(index_of(extents, first));
            complaints.push(format!("{count} {kind}, first at {place}"));
        }
    }
    let reason = format!("of {elements} elements {}", complaints.join("; "));
    GateResult::fail(GateId::C1, reason)
}

fn complaint(element: f32, unwritten: f32) -> Option<&'static str> {
    if element.to_bits() == unwritten.to_bits() {
        Some("never written")
    } else if element.is_nan() {
        Some("NaN")
    } else if element.is_infinite() {
        Some("infinite")
    } else {
        None
    }
}
