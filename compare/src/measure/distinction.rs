//! What distinguishes the cases that fail a gate from those that pass it: mask, dtype, size, ragged edges, grouped heads, inputs.

use crate::judge::list::joined;
use crate::record::{Meta, On, Place, Row};
use common::metric::Metric;
use std::collections::BTreeSet;

/// More values of one kind than this are not listed.
const LISTED: usize = 2;

/// `fails in 12 of 40 cases: exactly those with causal mask; all with e4m3`, for cases of one variant with these `declared`
/// instances.
pub fn tell_apart(meta: &Meta, declared: &[&Row], failing: &[&Row], passing: &[&Row]) -> String {
    let of = failing.len() + passing.len();
    let traits = |cases: &[&Row]| -> Vec<[String; KINDS]> {
        let of_case = |case: &&Row| traits(meta, declared, case);
        cases.iter().filter_map(of_case).collect()
    };
    let (failed, passed) = (traits(failing), traits(passing));
    let words = (0..KINDS).filter_map(|kind| {
        let values =
            |cases: &[[String; KINDS]]| cases.iter().map(|traits| traits[kind].clone()).collect();
        distinguishes(&values(&failed), &values(&passed))
    });
    let words = joined(words, "; ");
    let colon = if words.is_empty() { "" } else { ": " };
    format!("fails in {} of {of} cases{colon}{words}", failing.len())
}

/// What one kind of trait says about failure, given its values in the failing and in the passing cases.
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

/// The traits of a case; `None` for other rows.
fn traits(meta: &Meta, declared: &[&Row], case: &Row) -> Option<[String; KINDS]> {
    let On::Case(Place { shape, dtype, mask }, input) = &case.on else {
        return None;
    };
    let shape = meta.shape(shape)?;
    let is_instance = |row: &&&Row| matches!(&row.on, On::Instance { dtype: of, head_dim, .. } if (of, *head_dim) == (dtype, shape.head_dim));
    let tile = (declared.iter().find(is_instance))
        .map(|row| [Metric::TileM, Metric::TileN].map(|side| row.estimate(side).value as usize));
    // The seed of generated inputs is no trait.
    let inputs = match input.rsplit_once(':') {
        Some((family, seed)) if seed.parse::<u64>().is_ok() => family,
        _ => input,
    };
    let choose = |is: Option<bool>, yes: &str, no: &str| match is {
        Some(true) => yes.to_string(),
        Some(false) => no.to_string(),
        None => String::new(),
    };
    let [rows, keys] = tile.map_or([None; 2], |tile| tile.map(Some));
    let heads = match (shape.heads_q, shape.heads_kv) {
        (1, 1) => "one head",
        (_, 1) => "multi-query heads",
        (q, kv) if q == kv => "a KV head per query head",
        _ => "grouped-query heads",
    };
    Some([
        format!("{mask} mask"),
        dtype.to_string(),
        format!("head_dim {}", shape.head_dim),
        choose(
            rows.map(|rows| shape.seq_q.is_multiple_of(rows)),
            "whole tiles of rows",
            "a ragged tile of rows",
        ),
        choose(
            keys.map(|keys| shape.seq_kv.is_multiple_of(keys)),
            "whole tiles of keys",
            "a ragged tile of keys",
        ),
        choose(
            keys.map(|keys| shape.seq_kv <= keys),
            "one tile of keys",
            "several tiles of keys",
        ),
        heads.to_string(),
        choose(Some(shape.batch == 1), "batch 1", "several batches"),
        choose(
            Some(shape.seq_q == shape.seq_kv),
            "seq_q = seq_kv",
            "seq_q other than seq_kv",
        ),
        format!("inputs {inputs}"),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Source;
    use common::inputs::Family;
    use common::problem::{Dtype, Mask, Shape};

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

    /// What is said where those cases fail that `fails` picks, of tiles of 16 rows and 64 keys.
    fn said(fails: impl Fn(&Place, &Shape, &str) -> bool) -> String {
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
        let declared = Dtype::ALL.map(|dtype| {
            let on = On::Instance {
                dtype,
                head_dim: 64,
                arch: None,
            };
            Row::new("stage9/mma", on, Source::Kernel)
                .figure(Metric::TileM, 16_usize)
                .figure(Metric::TileN, 64_usize)
        });
        let (failing, passing): (Vec<&Row>, Vec<&Row>) = all.iter().partition(|case| {
            let On::Case(place, input) = &case.on else {
                unreachable!()
            };
            fails(place, &meta.shape(&place.shape).unwrap(), input)
        });
        tell_apart(&meta, &declared.each_ref(), &failing, &passing)
    }

    #[test]
    fn what_all_failing_cases_share_is_named() {
        let causal = said(|place, _, _| place.mask == Mask::Causal);
        assert_eq!(
            causal,
            "fails in 9 of 21 cases: exactly those with causal mask; all with inputs normal"
        );
        let both = said(|place, _, _| place.mask == Mask::Causal && place.dtype == Dtype::E4m3);
        assert_eq!(
            both,
            "fails in 3 of 21 cases: all with causal mask; all with e4m3; all with inputs normal"
        );
        let grouped = said(|_, shape, _| shape.heads_kv == 2);
        assert!(
            grouped.contains("all with a ragged tile of rows; all with a ragged tile of keys"),
            "{grouped}"
        );
        assert!(
            grouped.contains("; exactly those with grouped-query heads;"),
            "{grouped}"
        );
        let large = said(|_, _, input| input == "large:0");
        assert!(
            large.ends_with("; exactly those with inputs large"),
            "{large}"
        );
    }

    #[test]
    fn what_always_or_never_fails_is_named() {
        let ragged = said(|place, shape, _| shape.seq_q == 113 || place.dtype == Dtype::E4m3);
        assert!(
            ragged.starts_with(
                "fails in 15 of 21 cases: every one with e4m3; every one with a ragged"
            ),
            "{ragged}"
        );
        let but_one_head = said(|place, shape, _| {
            shape.heads_q > 1 && (place.dtype == Dtype::F16 || place.mask == Mask::Full)
        });
        assert!(
            but_one_head.contains("; none with one head;"),
            "{but_one_head}"
        );
        assert_eq!(said(|_, _, _| true), "fails in 21 of 21 cases");
    }
}
