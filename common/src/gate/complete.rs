//! C1: finite and complete.

use super::{Evidence, at, wrong_length};
use crate::image::UNWRITTEN;
use crate::inputs::index_of;
use crate::verdict::{GateId, GateResult};

/// C1: none of the [`UNWRITTEN`] of before the launch is left, no other NaN, no infinity. Every element, also where the
/// reference is a sample.
pub fn c1(evidence: &Evidence<'_>) -> GateResult {
    if let Some(result) = wrong_length(GateId::C1, evidence) {
        return result;
    }
    let extents = evidence.problem.shape.q_extents();
    let unwritten = evidence.problem.dtype.output().decode(UNWRITTEN);
    let mut complaints = Vec::new();
    for kind in ["never written", "NaN", "infinite"] {
        let mut of_kind = evidence
            .output
            .iter()
            .enumerate()
            .filter(|(_, x)| complaint(**x, unwritten) == Some(kind));
        if let Some((first, _)) = of_kind.next() {
            complaints.push(format!(
                "{} {kind}, first at {}",
                1 + of_kind.count(),
                at(index_of(extents, first))
            ));
        }
    }
    let elements = evidence.output.len();
    if complaints.is_empty() {
        GateResult::judge(
            GateId::C1,
            true,
            format!("all {elements} elements written and finite"),
        )
    } else {
        GateResult::fail(
            GateId::C1,
            format!("of {elements} elements {}", complaints.join("; ")),
        )
    }
}

fn complaint(element: f32, unwritten: f32) -> Option<&'static str> {
    match element {
        x if x.to_bits() == unwritten.to_bits() => Some("never written"),
        x if x.is_nan() => Some("NaN"),
        x if x.is_infinite() => Some("infinite"),
        _ => None,
    }
}
