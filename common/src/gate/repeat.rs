//! C5: deterministic.

use crate::inputs::index_of;
use crate::problem::Problem;
use crate::reference::row_index;
use crate::verdict::{GateId, GateResult};

/// One of several outputs of the same launch.
#[derive(Clone, Copy, Debug)]
pub struct Repeat<'a> {
    /// What was different about it: "repeat 3", "schedule reversed".
    pub label: &'a str,
    /// The dense output.
    pub output: &'a [f32],
    /// Its log-sum-exps, where they were asked for.
    pub lse: Option<&'a [f32]>,
}

/// Of values that should have the same bits: how many differ, and the first that does.
fn differing(first: &[f32], other: &[f32]) -> Option<(usize, usize)> {
    let differs = |i: &usize| first[*i].to_bits() != other[*i].to_bits();
    let mut all = (0..first.len()).filter(differs);
    let at = all.next()?;
    Some((1 + all.count(), at))
}

/// C5: all outputs have the same bits (NaN payloads and signs of zero included) as the first, and so have the log-sum-exps of the
/// runs that were asked for them. One output alone is no evidence.
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
        if let Some((count, element)) = differing(first.output, other.output) {
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
    let mut lses = repeats
        .iter()
        .filter_map(|repeat| Some((repeat.label, repeat.lse?)));
    if let Some((first_label, first)) = lses.next() {
        for (label, other) in lses {
            if first.len() != other.len() {
                let (a, b) = (first.len(), other.len());
                let reason = format!("{first_label} has {a} log-sum-exps, {label} has {b}");
                return GateResult::judge(GateId::C5, false, reason);
            }
            if let Some((count, row)) = differing(first, other) {
                let [b, h, s] = row_index(problem, row);
                let reason = format!(
                    "{count} of {} log-sum-exps differ between {first_label} and {label}, first of row [{b}, {h}, {s}]: \
                     {:e} and {:e}",
                    first.len(),
                    first[row],
                    other[row],
                );
                return GateResult::judge(GateId::C5, false, reason);
            }
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
