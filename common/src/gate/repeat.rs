//! C5: deterministic.

use crate::inputs::index_of;
use crate::problem::Problem;
use crate::verdict::{GateId, GateResult};

/// One of several outputs of the same launch.
#[derive(Clone, Copy, Debug)]
pub struct Repeat<'a> {
    /// What was different about it: "repeat 3", "schedule reversed".
    pub label: &'a str,
    /// The dense output.
    pub output: &'a [f32],
}

/// C5: all outputs have the same bits (NaN payloads and signs of zero included) as the first. One output alone is no
/// evidence.
pub fn c5(problem: &Problem, repeats: &[Repeat<'_>]) -> GateResult {
    let Some((first, rest)) = repeats.split_first().filter(|(_, rest)| !rest.is_empty()) else {
        return GateResult::no_data(GateId::C5, "fewer than two runs");
    };
    let extents = problem.shape.q_extents();
    for other in rest {
        if other.output.len() != first.output.len() {
            let (a, b) = (first.output.len(), other.output.len());
            let reason = format!("{} has {a} elements, {} has {b}", first.label, other.label);
            return GateResult::judge(GateId::C5, false, reason);
        }
        let differs = |i: &usize| first.output[*i].to_bits() != other.output[*i].to_bits();
        let count = (0..first.output.len()).filter(differs).count();
        if let Some(element) = (0..first.output.len()).find(differs) {
            let reason = format!(
                "{count} of {} elements differ between {} and {}, first at {}: {:e} and {:e}",
                first.output.len(),
                first.label,
                other.label,
                super::at(index_of(extents, element)),
                first.output[element],
                other.output[element],
            );
            return GateResult::judge(GateId::C5, false, reason);
        }
    }
    let labels: Vec<&str> = repeats.iter().map(|repeat| repeat.label).collect();
    let shown = if labels.len() <= 4 {
        labels.join(", ")
    } else {
        format!("{} to {}", labels[0], labels[labels.len() - 1])
    };
    GateResult::judge(
        GateId::C5,
        true,
        format!("{} runs bitwise equal: {shown}", labels.len()),
    )
}
