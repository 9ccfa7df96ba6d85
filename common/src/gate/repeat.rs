//! C5: deterministic.

use crate::format::SHARE;
use crate::inputs::index_of;
use crate::problem::Problem;
use crate::reference::row_index;
use crate::verdict::{GateId, GateResult};
use rayon::prelude::*;

/// The results of one of several launches.
#[derive(Clone, Copy, Debug)]
pub struct Repeat<'a> {
    pub label: &'a str,
    pub output: &'a [f32],
    /// The log-sum-exps, where they were asked for.
    pub lse: Option<&'a [f32]>,
}

/// A launch's array of elements.
struct Labelled<'a> {
    label: &'a str,
    values: &'a [f32],
}

/// Describes the first array whose bits are not those of the first. `place` names an index.
fn difference(
    what: &str,
    arrays: &[Labelled<'_>],
    place: impl Fn(usize) -> String,
) -> Option<String> {
    let (first, others) = arrays.split_first()?;
    others
        .iter()
        .find_map(|other| difference_of_two(what, first, other, &place))
}

fn difference_of_two(
    what: &str,
    first: &Labelled<'_>,
    other: &Labelled<'_>,
    place: impl Fn(usize) -> String,
) -> Option<String> {
    let (a, b) = (first.values, other.values);
    if a.len() != b.len() {
        return Some(format!(
            "{} has {} {what}, {} has {}",
            first.label,
            a.len(),
            other.label,
            b.len()
        ));
    }
    let differing: Vec<usize> = (0..a.len())
        .into_par_iter()
        .with_min_len(SHARE)
        .filter(|&index| a[index].to_bits() != b[index].to_bits())
        .collect();
    let at = *differing.first()?;
    Some(format!(
        "{} of {} {what} differ between {} and {}, first at {}: {:e} and {:e}",
        differing.len(),
        a.len(),
        first.label,
        other.label,
        place(at),
        a[at],
        b[at],
    ))
}

/// Judges C5: all outputs and log-sum-exps have the first's bits, NaN payloads and signs of zero
/// included. A single output is no evidence.
pub fn c5(problem: &Problem, repeats: &[Repeat<'_>]) -> GateResult {
    if repeats.len() < 2 {
        return GateResult::no_data(GateId::C5, "fewer than two runs");
    }
    let (mut outputs, mut lses) = (Vec::new(), Vec::new());
    for &Repeat { label, output, lse } in repeats {
        outputs.push(Labelled {
            label,
            values: output,
        });
        lses.extend(lse.map(|values| Labelled { label, values }));
    }
    let extents = problem.shape.q_extents();
    let mismatch = difference("elements", &outputs, |element| {
        super::at(index_of(extents, element))
    })
    .or_else(|| {
        difference("log-sum-exps", &lses, |row| {
            format!("row {:?}", row_index(problem, row))
        })
    });
    if let Some(reason) = mismatch {
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
