//! Rankings as a page. Pure.

use super::ranking::Ranking;
use crate::judge::list::distinct;
use crate::page::{Block, Document, Table, row};
use crate::pages::{list, share, some, us};
use crate::record::tuning_cache::{Entry, KEPT};

/// Digits of a code's hash that are shown.
const HASH_DIGITS: usize = 12;

/// Variants that are wrong, once each: one that fails has no place on any problem.
pub fn failures<'a>(rankings: impl IntoIterator<Item = &'a Ranking>) -> Vec<String> {
    let of = |ranking: &Ranking| {
        let wrong = ranking.refused.iter().filter(|refused| refused.is_wrong);
        wrong
            .map(|refused| {
                format!(
                    "{}/{}: {}",
                    ranking.entry.stage, refused.variant, refused.reason
                )
            })
            .collect::<Vec<_>>()
    };
    distinct(rankings.into_iter().flat_map(of))
}

/// Why a ranking is a guess.
pub fn missing(ranking: &Ranking) -> String {
    let Ranking { entry, refused } = ranking;
    let (untimed, all) = (entry.untimed, entry.best.len() + refused.len());
    format!(
        "{}: {untimed} of {all} variants were not timed",
        title(entry)
    )
}

fn title(
    Entry {
        stage,
        shape_name,
        dtype,
        mask,
        ..
    }: &Entry,
) -> String {
    format!("{stage}, {shape_name} {dtype} {mask}")
}

/// Every ranking: its places, and who has none.
pub fn document(rankings: &[Ranking]) -> Document {
    let mut blocks = Vec::new();
    for Ranking { entry, refused } in rankings {
        let places = entry.best.iter().enumerate().map(|(index, ranked)| {
            let code = ranked
                .sass_sha256
                .as_ref()
                .map_or("translated PTX", |hash| {
                    hash.get(..HASH_DIGITS).unwrap_or(hash)
                });
            let place = (index < KEPT).then(|| (index + 1).to_string());
            row! {
                "kept" => place.unwrap_or_default(),
                "variant" => &ranked.variant,
                "p50 µs" => us(ranked.p50_us),
                "p90 µs" => us(ranked.p90_us),
                "of the best" => share(ranked.p50_us / entry.best[0].p50_us),
                "machine code" => code,
            }
        });
        let refused = refused.iter().map(|refused| {
            let word = if refused.is_wrong { "FAIL" } else { "NO DATA" };
            format!("{word} {}: {}", refused.variant, refused.reason)
        });
        blocks.push(Block::section(title(entry)));
        blocks.extend(some(Table::of(places)).into_iter().chain(list(refused)));
    }
    Document::of(blocks)
}
