//! `compare diff`, which is also the comment on a pull request: what to do, what is new, what is worse, what is better.

use super::{changes, first_lines, first_of, list, sections};
use crate::document::Block;
use crate::judge::diff::{self, Change, Difference, What};
use crate::judge::list::{count, distinct};
use crate::judge::verdict::Overall;

/// The most lines of each kind in all tables together, in a comment on a pull request.
const MOST_WORSE: usize = 15;
const MOST_BETTER: usize = 8;
const MOST_NEW: usize = 8;
const MOST_MISSING: usize = 5;

const HOW: &str = "compare diff BASE NEW";

pub struct Comparison {
    pub base: String,
    pub new: String,
    /// By name of what both sides have.
    pub pairs: Vec<(String, diff::Comparison)>,
    /// GPU models that only one side has figures of, and what is not known of a side.
    pub notes: Vec<String>,
    pub overall: Overall,
}

fn of(comparison: &diff::Comparison, change: Change) -> Vec<&Difference> {
    let all = comparison.differences.iter();
    all.filter(|difference| difference.change == change)
        .collect()
}

/// Everything, or the first of each kind.
pub fn document(comparison: &Comparison, is_whole: bool) -> Vec<Block> {
    let overall = &comparison.overall;
    let mut blocks = vec![
        Block::strong(overall.to_string()),
        Block::bullets(overall.actions.clone()),
        Block::paragraph(format!(
            "`{}` against `{}` (base).",
            comparison.new, comparison.base
        )),
    ];
    let share = |most: usize| match is_whole {
        true => usize::MAX,
        false => (most / comparison.pairs.len().max(1)).max(2),
    };
    for (name, pair) in &comparison.pairs {
        if comparison.pairs.len() > 1 {
            blocks.push(Block::section(&**name));
        }
        let required = required(&pair.differences, share(MOST_MISSING));
        let parts = [
            ("Missing data", required),
            ("Worse", table(pair, Change::Worse, share(MOST_WORSE))),
            ("New", added(pair, share(MOST_NEW))),
            ("Improved", table(pair, Change::Better, share(MOST_BETTER))),
        ];
        blocks.extend(sections(Block::subsection, parts));
        blocks.extend(drift(pair));
    }
    blocks.extend(list(&comparison.notes));
    blocks
}

/// Gates before figures, and large changes before small ones.
fn table(pair: &diff::Comparison, change: Change, most: usize) -> Vec<Block> {
    let mut changed = of(pair, change);
    let moved = |d: &Difference| d.ratio.map_or(0.0, |ratio| ratio.value.ln().abs());
    changed.sort_by(|a, b| a.group.cmp(&b.group).then(moved(b).total_cmp(&moved(a))));
    first_of(&changed, most, |of| Block::Table(changes(of)), HOW)
}

fn required(differences: &[Difference], most: usize) -> Vec<Block> {
    let required = differences.iter().filter(|difference| difference.required);
    let lines = required.map(|d| format!("{}: {}: {}", d.subject, d.title(), d.why).into());
    first_lines(lines, most, HOW)
}

fn added(pair: &diff::Comparison, most: usize) -> Vec<Block> {
    let new = of(pair, Change::Informational).into_iter();
    let new = new.filter(|d| d.what == What::Variant && d.base.is_none());
    // A variant is new once, whatever sources say of it.
    let names = distinct(new.map(|d| d.subject.to_string()));
    let lines = names.into_iter().map(Into::into);
    first_lines(lines, most, "compare show gates latencies")
}

/// What the latencies of unchanged kernels say.
fn drift(diff::Comparison { drift, .. }: &diff::Comparison) -> Option<Block> {
    (drift.kernels > 0).then(|| {
        Block::paragraph(format!(
            "{} of unchanged kernels moved by {:+.1} % in the median, 95 of 100 of them within {:.1} % of that.",
            count(drift.kernels, "latency", "latencies"),
            100.0 * (1.0 / drift.shift - 1.0),
            100.0 * drift.spread
        ))
    })
}
