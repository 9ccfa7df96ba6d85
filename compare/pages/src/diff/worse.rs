//! What is worse, in one line: a reviewer reads it before any table.

use super::{Comparison, shown};
use crate::words::short_name;
use document::Text;
use results::judge::diff::{Change, Difference, Group, What};
use results::judge::list::{Grouped, count, grouped, joined};

/// The most gates and figures that are named.
const MAX_NAMED: usize = 4;

/// The groups in which something can be worse, in the order of the tables.
const GROUPS: [Group; 5] = [
    Group::Gates,
    Group::Latency,
    Group::Resources,
    Group::Counters,
    Group::Errors,
];

/// Returns which gates and figures are worse, each with its first place; `None` if nothing is.
pub fn worse_line(comparison: &Comparison) -> Option<Text> {
    let mut worse = Vec::new();
    for (_, pair) in &comparison.pairs {
        for group in GROUPS {
            let mut differences = shown(pair, group);
            differences.retain(|difference| difference.change == Change::Worse);
            worse.extend(differences);
        }
    }
    let by_what = grouped(
        worse
            .into_iter()
            .map(|difference| (what(difference), difference)),
    );
    if by_what.is_empty() {
        return None;
    }
    let mut named = Vec::new();
    for Grouped { key, values } in by_what.iter().take(MAX_NAMED) {
        named.push(entry(key, values));
    }
    let more = match by_what.len() - named.len() {
        0 => String::new(),
        hidden => format!("; and {hidden} more"),
    };
    Some(
        Text::default()
            .strong("Worse:")
            .plain(format!(" {}{more}.", joined(named, "; "))),
    )
}

/// Returns what is worse, without its place.
fn what(difference: &Difference) -> String {
    match difference.what {
        What::Row(_) | What::Variant => difference.title(),
        What::Gate(_) | What::Metric(_) => difference.what.to_string(),
    }
}

/// Returns how often this is worse, and how far at the first place.
fn entry(what: &str, differences: &[&Difference]) -> String {
    let Some(first) = differences.first() else {
        return what.to_string();
    };
    let was = first.base.as_deref().unwrap_or("–");
    let is = first.new.as_deref().unwrap_or("–");
    let others = match differences.len() {
        1 => String::new(),
        number => format!(" and {}", count(number - 1, "more", "more")),
    };
    format!(
        "{what} {was} → {is} ({}{}{others})",
        short_name(&first.subject),
        first.title().strip_prefix(what).unwrap_or_default(),
    )
}
