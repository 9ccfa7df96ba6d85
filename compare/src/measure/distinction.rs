//! What tells the cases that fail a gate from those that pass it: mask, dtype, size, ragged edges, grouped heads, inputs.

use crate::record::{Meta, On, Place, Row};
use common::problem::Shape;
use std::collections::BTreeSet;

/// At most so many values of one kind are worth listing.
const LISTED: usize = 2;

/// A case as its row says it, with the extents of its shape.
#[derive(Clone, Copy)]
pub struct Case<'a> {
    pub row: &'a Row,
    pub place: &'a Place,
    pub input: &'a str,
    pub shape: Shape,
}

impl<'a> Case<'a> {
    /// The case that a row is of; nothing for rows of another kind.
    pub fn of(row: &'a Row, meta: &Meta) -> Option<Self> {
        let On::Case(place, input) = &row.on else {
            return None;
        };
        Some(Self {
            row,
            place,
            input,
            shape: meta.shape(&place.shape)?,
        })
    }
}

/// `fails in 12 of 40 cases: exactly those that are causal; all e4m3; none one tile of keys`. `tile` gives the rows and
/// keys of the tile that computes a case, where it is known.
pub fn tell_apart(
    failing: &[&Case<'_>],
    passing: &[&Case<'_>],
    tile: impl Fn(&Case<'_>) -> Option<[usize; 2]>,
) -> String {
    let of = failing.len() + passing.len();
    let traits = |cases: &[&Case<'_>]| {
        cases
            .iter()
            .map(|case| traits(case, tile(case)))
            .collect::<Vec<_>>()
    };
    let (failing, passing) = (traits(failing), traits(passing));
    let mut words = Vec::new();
    for kind in 0..failing.first().map_or(0, |traits| traits.len()) {
        let values =
            |cases: &[[String; KINDS]]| cases.iter().map(|traits| traits[kind].clone()).collect();
        words.extend(distinguishes(&values(&failing), &values(&passing)));
    }
    let colon = if words.is_empty() { "" } else { ": " };
    format!(
        "fails in {} of {of} cases{colon}{}",
        failing.len(),
        words.join("; ")
    )
}

/// What one kind of trait says, whose values the failing and the passing cases have.
fn distinguishes(failing: &BTreeSet<String>, passing: &BTreeSet<String>) -> Option<String> {
    let list = |values: &mut dyn Iterator<Item = &String>| {
        let values: Vec<&str> = values.map(String::as_str).collect();
        (1..=LISTED)
            .contains(&values.len())
            .then(|| values.join(" or "))
    };
    if passing.is_empty() {
        return None;
    }
    if failing.is_disjoint(passing) {
        return list(&mut failing.iter()).map(|only| format!("exactly those with {only}"));
    }
    if failing.len() == 1 && passing.len() > 1 {
        return list(&mut failing.iter()).map(|all| format!("all with {all}"));
    }
    let always =
        list(&mut failing.difference(passing)).map(|always| format!("every one with {always}"));
    let never = list(&mut passing.difference(failing)).map(|never| format!("none with {never}"));
    always.or(never)
}

/// Kinds of traits.
const KINDS: usize = 10;

fn traits(case: &Case<'_>, tile: Option<[usize; 2]>) -> [String; KINDS] {
    let (Place { dtype, mask, .. }, shape) = (case.place, &case.shape);
    // Of generated inputs the seed says nothing.
    let inputs = match case.input.rsplit_once(':') {
        Some((family, seed)) if seed.parse::<u64>().is_ok() => family,
        _ => case.input,
    };
    let choose = |is: bool, yes: &str, no: &str| if is { yes.to_string() } else { no.to_string() };
    let of_tile = |words: &dyn Fn([usize; 2]) -> String| tile.map(words).unwrap_or_default();
    let heads = match (shape.heads_q, shape.heads_kv) {
        (1, 1) => "one head",
        (_, 1) => "one KV head for several heads",
        (q, kv) if q == kv => "a KV head for each head",
        _ => "several KV heads, each for several heads",
    };
    [
        format!("{mask} mask"),
        dtype.to_string(),
        format!("head_dim {}", shape.head_dim),
        of_tile(&|[rows, _]| {
            choose(
                shape.seq_q.is_multiple_of(rows),
                "whole tiles of rows",
                "a ragged tile of rows",
            )
        }),
        of_tile(&|[_, keys]| {
            choose(
                shape.seq_kv.is_multiple_of(keys),
                "whole tiles of keys",
                "a ragged tile of keys",
            )
        }),
        of_tile(&|[_, keys]| {
            choose(
                shape.seq_kv <= keys,
                "one tile of keys",
                "several tiles of keys",
            )
        }),
        heads.to_string(),
        choose(shape.batch == 1, "batch 1", "several batches"),
        choose(
            shape.seq_q == shape.seq_kv,
            "seq_q = seq_kv",
            "seq_q other than seq_kv",
        ),
        format!("inputs {inputs}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Source;
    use common::inputs::Family;
    use common::problem::{Dtype, Mask};

    fn row(
        dtype: Dtype,
        mask: Mask,
        [heads_q, heads_kv]: [usize; 2],
        seq: usize,
        family: Family,
    ) -> Row {
        let shape = Shape {
            batch: 1,
            heads_q,
            heads_kv,
            seq_q: seq,
            seq_kv: seq,
            head_dim: 64,
        };
        let on = On::Case(
            Place::new(&shape.to_string(), dtype, mask),
            format!("{family}:0"),
        );
        Row::new("stage9/mma", on, Source::Emulator)
    }

    /// What is said where those cases fail that `fails` picks.
    fn said(fails: impl Fn(&Case<'_>) -> bool) -> String {
        let mut all = Vec::new();
        for dtype in Dtype::ALL {
            for mask in Mask::ALL {
                for (heads, seq) in [([1, 1], 64), ([2, 1], 113), ([4, 2], 113)] {
                    all.push(row(dtype, mask, heads, seq, Family::Normal));
                }
            }
            all.push(row(dtype, Mask::Full, [1, 1], 64, Family::Large));
        }
        let meta = crate::testing::meta(vec![]);
        let all: Vec<Case<'_>> = all.iter().filter_map(|row| Case::of(row, &meta)).collect();
        let (failing, passing): (Vec<&Case<'_>>, Vec<&Case<'_>>) =
            all.iter().partition(|case| fails(case));
        tell_apart(&failing, &passing, |_| Some([16, 64]))
    }

    #[test]
    fn what_all_failing_cases_share_is_named() {
        let causal = said(|case| case.place.mask == Mask::Causal);
        assert_eq!(
            causal,
            "fails in 9 of 21 cases: exactly those with causal mask; all with inputs normal"
        );
        let both = said(|case| case.place.mask == Mask::Causal && case.place.dtype == Dtype::E4m3);
        assert_eq!(
            both,
            "fails in 3 of 21 cases: all with causal mask; all with e4m3; all with inputs normal"
        );
        let grouped = said(|case| case.shape.heads_kv == 2);
        assert!(
            grouped.contains("all with a ragged tile of rows; all with a ragged tile of keys"),
            "{grouped}"
        );
        assert!(
            grouped.contains("; exactly those with several KV heads, each for several heads;"),
            "{grouped}"
        );
        let large = said(|case| case.input == "large:0");
        assert!(
            large.ends_with("; exactly those with inputs large"),
            "{large}"
        );
    }

    #[test]
    fn what_always_or_never_fails_is_named() {
        let ragged = said(|case| case.shape.seq_q == 113 || case.place.dtype == Dtype::E4m3);
        assert!(
            ragged.starts_with(
                "fails in 15 of 21 cases: every one with e4m3; every one with a ragged"
            ),
            "{ragged}"
        );
        let but_one_head = said(|case| {
            case.shape.heads_q > 1
                && (case.place.dtype == Dtype::F16 || case.place.mask == Mask::Full)
        });
        assert!(
            but_one_head.contains("; none with one head;"),
            "{but_one_head}"
        );
        assert_eq!(said(|_| true), "fails in 21 of 21 cases");
    }
}
