//! Where an output is off: what tells the author of a failed C2 or C3 which rows and columns to look at.

use super::{Errors, Evidence};
use crate::reference::row_index;
use crate::verdict::{GateId, GateResult};

/// Periods that tiles, warps and fragments make, smallest first.
const PERIODS: [usize; 9] = [2, 4, 8, 16, 32, 48, 64, 96, 128];

/// `result`, where it is a failed C2 or C3 with elements that are off by more than its bound: which ones.
pub(super) fn with_pattern(
    evidence: &Evidence<'_>,
    errors: &Errors,
    mut result: GateResult,
) -> GateResult {
    let extents = evidence.problem.shape.q_extents();
    let is_judged = matches!(result.gate, GateId::C2 | GateId::C3) && result.is_fail();
    if is_judged && evidence.output.len() == extents.iter().product::<usize>() {
        let bound = match result.gate {
            GateId::C2 => Bound::Element(errors.c2_bound()),
            _ => Bound::Row(errors.c3_bound()),
        };
        result.reason += &off(evidence, bound)
            .map(|off| format!("; {off}"))
            .unwrap_or_default();
    }
    result
}

/// What an element is off by more than.
#[derive(Clone, Copy)]
enum Bound {
    /// This.
    Element(f64),
    /// Its share of this part of the row's norm, in rows that are off by more than the whole.
    Row(f64),
}

fn off(evidence: &Evidence<'_>, bound: Bound) -> Option<String> {
    let Evidence {
        problem,
        reference,
        output,
        ..
    } = *evidence;
    let (extents, dim) = (problem.shape.q_extents(), problem.shape.head_dim);
    let mut measured = extents.map(|extent| vec![false; extent]);
    let mut found = measured.clone();
    let (mut count, mut elements) = (0, 0);
    for (&row, exact) in reference
        .rows
        .iter()
        .zip(reference.output.chunks_exact(dim))
    {
        let [b, h, s] = row_index(problem, row);
        let error = |d: usize| (f64::from(output[row * dim + d]) - exact[d]).abs();
        let norm = |values: &mut dyn Iterator<Item = f64>| {
            values.map(|value| value * value).sum::<f64>().sqrt()
        };
        let most = match bound {
            Bound::Element(most) => most,
            Bound::Row(part) => {
                let scale = norm(&mut exact.iter().copied()).max(super::c3_floor(problem));
                let is_within = norm(&mut (0..dim).map(error)) <= part * scale;
                if is_within {
                    f64::INFINITY
                } else {
                    part * scale / (dim as f64).sqrt()
                }
            }
        };
        for d in 0..dim {
            let is_off = error(d) > most || error(d).is_nan();
            elements += 1;
            count += usize::from(is_off);
            for (axis, index) in [b, h, s, d].into_iter().enumerate() {
                measured[axis][index] = true;
                found[axis][index] |= is_off;
            }
        }
    }
    if count == 0 || count == elements {
        return (count > 0).then(|| "all elements are off".to_string());
    }
    let axes = [(2, "rows"), (3, "columns"), (1, "heads"), (0, "batches")].into_iter();
    let axes = axes.filter(|&(axis, _)| extents[axis] > 1);
    let axes =
        axes.map(|(axis, name)| format!("{name} {}", describe(&found[axis], &measured[axis])));
    Some(format!(
        "{count} of {elements} elements are off: {}",
        axes.collect::<Vec<_>>().join(", ")
    ))
}

/// The indices that are `set`, among those that are `known`: "all", "64-79", "8-15 of every 16", "5 between 3 and 97".
fn describe(set: &[bool], known: &[bool]) -> String {
    let is_exactly =
        |chosen: &dyn Fn(usize) -> bool| (0..set.len()).all(|i| !known[i] || set[i] == chosen(i));
    let indices: Vec<usize> = (0..set.len()).filter(|&i| set[i]).collect();
    let (Some(&first), Some(&last)) = (indices.first(), indices.last()) else {
        return "none".into();
    };
    let range = |first: usize, last: usize| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    if is_exactly(&|_| true) {
        return "all".into();
    }
    if is_exactly(&|i| (first..=last).contains(&i)) {
        return range(first, last);
    }
    for period in PERIODS
        .into_iter()
        .take_while(|period| 2 * period <= set.len())
    {
        let mut phases: Vec<usize> = indices.iter().map(|i| i % period).collect();
        phases.sort_unstable();
        phases.dedup();
        let (low, high) = (phases[0], phases[phases.len() - 1]);
        if high - low + 1 < period && is_exactly(&|i| (low..=high).contains(&(i % period))) {
            return format!("{} of every {period}", range(low, high));
        }
    }
    format!("{} between {first} and {last}", indices.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Dtype, Mask, Problem, Shape};
    use crate::reference::{Probability, reference};

    fn among(len: usize, set: impl Fn(usize) -> bool) -> String {
        describe(&(0..len).map(set).collect::<Vec<_>>(), &vec![true; len])
    }

    #[test]
    fn indices_are_told_by_range_or_period() {
        assert_eq!(among(64, |_| true), "all");
        assert_eq!(among(64, |_| false), "none");
        assert_eq!(
            (among(64, |i| i == 5), among(113, |i| i >= 64)),
            ("5".into(), "64-112".into())
        );
        assert_eq!(
            (among(64, |i| i % 8 == 3), among(113, |i| i % 16 > 7)),
            ("3 of every 8".into(), "8-15 of every 16".into())
        );
        assert_eq!(
            among(256, |i| (64..80).contains(&(i % 128))),
            "64-79 of every 128"
        );
        assert_eq!(among(64, |i| [3, 7, 12].contains(&i)), "3 between 3 and 12");
        // Of a sample, only what was measured counts.
        let known: Vec<bool> = (0..64).map(|i| i % 5 == 0).collect();
        let set: Vec<bool> = (0..64).map(|i| i % 5 == 0 && i >= 20).collect();
        assert_eq!(describe(&set, &known), "20-60");
    }

    /// What C2 and C3 say where `spoil` says by how much element `[b, h, s, d]` is off.
    fn reasons(spoil: impl Fn([usize; 4]) -> f64) -> [String; 2] {
        let shape = Shape {
            batch: 1,
            heads_q: 2,
            heads_kv: 1,
            seq_q: 48,
            seq_kv: 64,
            head_dim: 64,
        };
        let problem = Problem::new(shape, Dtype::F16, Mask::Full).unwrap();
        let reference = reference(
            &Inputs::generate(&problem, Family::Normal, 0),
            Probability::F16,
        )
        .unwrap();
        let spoilt = |(i, exact): (usize, &f64)| {
            let index = [0, i / (48 * 64), i / 64 % 48, i % 64];
            (exact + spoil(index)) as f32
        };
        let output: Vec<f32> = reference.output.iter().enumerate().map(spoilt).collect();
        let evidence = Evidence {
            problem: &problem,
            family: None,
            reference: &reference,
            output: &output,
        };
        let (_, [_, c2, c3, _]) = crate::gate::numeric_gates(&evidence);
        [c2, c3].map(|gate| {
            if gate.is_fail() {
                gate.reason
            } else {
                String::new()
            }
        })
    }

    #[test]
    fn a_failed_gate_says_which_rows_and_columns_are_off() {
        assert_eq!(reasons(|_| 0.0), ["", ""]);
        let [c2, c3] = reasons(|[_, h, s, d]| {
            if h == 1 && s % 16 >= 8 && d >= 32 {
                0.1
            } else {
                0.0
            }
        });
        let off = "; 768 of 6144 elements are off: rows 8-15 of every 16, columns 32-63, heads 1";
        assert!(c2.ends_with(off) && c3.ends_with(off), "{c2}\n{c3}");
        let [c2, _] = reasons(|[_, _, s, d]| if s == 17 && d == 40 { f64::NAN } else { 0.0 });
        assert!(
            c2.ends_with("; 2 of 6144 elements are off: rows 17, columns 40, heads all"),
            "{c2}"
        );
        assert!(reasons(|_| 1.0)[0].ends_with("; all elements are off"));
        // Within C2 in every element, and yet whole rows are off.
        let [c2, c3] = reasons(|[_, _, s, _]| if s < 16 { 0.0008 } else { 0.0 });
        assert!(
            c2.contains("(root mean square), bound ") && !c2.contains("elements are off"),
            "{c2}"
        );
        assert!(
            c3.ends_with("elements are off: rows 0-15, columns all, heads all"),
            "{c3}"
        );
    }
}
