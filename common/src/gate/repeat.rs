//! C5: deterministic.

use crate::inputs::index_of;
use crate::problem::Problem;
use crate::reference::row_index;
use crate::verdict::{GateId, GateResult};

#[derive(Clone, Copy, Debug)]
pub struct Repeat<'a> {
    pub label: &'a str,
    pub output: &'a [f32],
    /// Where they were asked for.
    pub lse: Option<&'a [f32]>,
}

fn difference(
    what: &str,
    arrays: &[(&str, &[f32])],
    place: impl Fn(usize) -> String,
) -> Option<String> {
    let (&(first_label, first), rest) = arrays.split_first()?;
    rest.iter().find_map(|&(label, other)| {
        if first.len() != other.len() {
            let (a, b) = (first.len(), other.len());
            return Some(format!("{first_label} has {a} {what}, {label} has {b}"));
        }
        let differs = |i: &usize| first[*i].to_bits() != other[*i].to_bits();
        let mut differing = (0..first.len()).filter(differs);
        let at = differing.next()?;
        Some(format!(
            "{} of {} {what} differ between {first_label} and {label}, first at {}: {:e} and {:e}",
            1 + differing.count(),
            first.len(),
            place(at),
            first[at],
            other[at],
        ))
    })
}

/// All outputs and log-sum-exps have the first's bits, NaN payloads and signs of zero included. A single output is no evidence.
pub fn c5(problem: &Problem, repeats: &[Repeat<'_>]) -> GateResult {
    if repeats.len() < 2 {
        return GateResult::no_data(GateId::C5, "fewer than two runs");
    }
    let all = repeats.iter();
    let outputs: Vec<_> = all.clone().map(|run| (run.label, run.output)).collect();
    let lses: Vec<_> = all.filter_map(|run| Some((run.label, run.lse?))).collect();
    let extents = problem.shape.q_extents();
    let element = |at: usize| super::at(index_of(extents, at));
    let row = |at: usize| format!("row {:?}", row_index(problem, at));
    let difference = difference("elements", &outputs, element)
        .or_else(|| difference("log-sum-exps", &lses, row));
    if let Some(reason) = difference {
        return GateResult::fail(GateId::C5, reason);
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
