//! `compare diff`, which is also the comment on a pull request: the verdict, which kernels have
//! changed, what is missing, and all that has moved, before → after.

mod headlines;
mod kernels;
mod moved;

pub use headlines::worse;

use super::blocks::{Titled, bullets, changes_table, first_bullets, first_items, sections};
use super::cells::or_empty;
use super::ladder;
use common::verdict::GateId;
use document::{Block, Table, row};
use moved::Line;
use results::judge::diff::{self, Change, Difference, Group, What};
use results::judge::list::{Grouped, count, distinct, grouped, joined};
use results::judge::terms::{Concession, Eased};
use results::judge::verdict::{Overall, withheld};

/// The most lines of each kind in all tables together, in a comment on a pull request.
const MAX_GATES: usize = 12;
const MAX_FIGURES: usize = 16;
const MAX_NEW: usize = 8;
const MAX_EASED: usize = 12;
const MAX_MISSING: usize = 5;

/// The command that shows everything.
const COMMAND: &str = "compare diff BASE NEW";

/// The comparison of two sides, as `compare diff` shows it.
pub struct Comparison {
    pub base: String,
    pub new: String,
    /// The terms that the new side eases, where both are known.
    pub concessions: Vec<Concession>,
    /// The comparisons of what both sides have, with their names.
    pub pairs: Vec<(String, diff::Comparison)>,
    /// GPU models that only one side has figures of, and what is not known about a side.
    pub notes: Vec<String>,
    pub overall: Overall,
}

/// Returns everything, or the first lines of each kind.
pub fn document(comparison: &Comparison, is_whole: bool) -> Vec<Block> {
    let overall = &comparison.overall;
    let mut blocks = vec![
        Block::strong(overall.to_string()),
        Block::paragraph(kernels::changed_line(comparison)),
    ];
    let moves = [
        headlines::worse_line(comparison),
        headlines::improved_line(comparison),
    ];
    blocks.extend(moves.into_iter().flatten().map(Block::paragraph));
    blocks.push(Block::paragraph(headlines::checked_line(comparison)));
    blocks.extend([
        Block::bullets(headlines::actions(comparison)),
        Block::paragraph(format!(
            "`{}` against `{}` (base); a ratio is base / new, so that below 1x is slower; – did not \
             move; the main loop is counted without the loops in it.",
            comparison.new, comparison.base
        )),
    ]);
    let limits = Limits {
        is_whole,
        tables: comparison.pairs.len(),
    };
    blocks.extend(eased(&comparison.concessions, limits));
    for (name, pair) in &comparison.pairs {
        let parts = pair_sections(pair, limits);
        if comparison.pairs.len() > 1 && !parts.is_empty() {
            blocks.push(Block::section(&**name));
        }
        blocks.extend(parts);
    }
    blocks.extend(bullets(&comparison.notes));
    blocks
}

/// Returns what a reviewer checks beside the figures: claims that are refuted or ask for less, sites
/// that no gate needs, and caps that have risen.
fn eased(concessions: &[Concession], limits: Limits) -> Vec<Block> {
    let (caps, others): (Vec<_>, Vec<_>) = concessions
        .iter()
        .partition(|concession| concession.kind == Eased::Cap);
    sections(
        Block::subsection,
        [
            Titled::new("New negatives and waivers", eased_blocks(&others, limits)),
            Titled::new("Raised caps", eased_blocks(&caps, limits)),
        ],
    )
}

fn eased_blocks(concessions: &[&Concession], limits: Limits) -> Vec<Block> {
    first_items(
        concessions,
        limits.share(MAX_EASED),
        |shown_lines| Block::Table(table_of_eased(shown_lines)),
        COMMAND,
    )
}

fn table_of_eased(concessions: &[&Concession]) -> Table {
    let mut rows = Vec::new();
    for concession in concessions {
        rows.push(row! {
            "stage" => ladder::short(&concession.stage),
            "what" => &concession.what,
            "change" => &concession.change,
            "why" => or_empty(concession.why.as_deref()),
        });
    }
    Table::from_rows(rows)
}

/// How many lines a table may have.
#[derive(Clone, Copy)]
struct Limits {
    is_whole: bool,
    tables: usize,
}

impl Limits {
    /// Returns the share that a table has of `max` lines.
    fn share(self, max: usize) -> usize {
        if self.is_whole {
            usize::MAX
        } else {
            (max / self.tables.max(1)).max(2)
        }
    }
}

fn pair_sections(pair: &diff::Comparison, limits: Limits) -> Vec<Block> {
    let times = moved::times(&shown(&pair.differences, Group::Latency));
    let figures_of =
        |group| figure_blocks(&moved::figures(&shown(&pair.differences, group)), limits);
    let mut blocks = sections(
        Block::subsection,
        [
            Titled::new("Gates and claims", gates(pair, limits)),
            Titled::new("Missing data", required(pair, limits)),
            Titled::new("Time", figure_blocks(&times, limits)),
            Titled::new(
                "Registers, shared memory and code",
                figures_of(Group::Resources),
            ),
            Titled::new("Counters", figures_of(Group::Counters)),
            Titled::new("Errors", figures_of(Group::Errors)),
            Titled::new("New", added(pair, limits)),
        ],
    );
    blocks.extend(drift(pair));
    blocks
}

fn figure_blocks(lines: &[Line], limits: Limits) -> Vec<Block> {
    first_items(
        lines,
        limits.share(MAX_FIGURES),
        |shown_lines| Block::Table(moved::table(shown_lines)),
        COMMAND,
    )
}

/// Returns what has moved in a group, the worst first, causes before their effects, else in the order
/// of the ladder. Errors of a kernel that fails a gate are no figures: the gates say them.
fn shown(differences: &[Difference], group: Group) -> Vec<&Difference> {
    let failing = match group {
        Group::Errors => withheld(differences),
        _ => vec![],
    };
    let mut shown = Vec::new();
    for difference in differences {
        let has_moved = !matches!(difference.change, Change::Missing | Change::Unchanged);
        if difference.group == group && has_moved && !failing.contains(&&difference.subject) {
            shown.push(difference);
        }
    }
    shown.sort_by_key(|difference| (difference.change, !names_cause(difference)));
    shown
}

/// Returns whether a gate names the places in the kernel that are at fault: of a race, the outputs
/// that are wrong by it are effects.
fn names_cause(difference: &Difference) -> bool {
    matches!(
        difference.what,
        What::Gate(GateId::H1 | GateId::C6 | GateId::C7)
    )
}

/// Returns gates and claims whose verdict differs, and what is gone. A gate of a variant that fails
/// in many cases is one line unless all is shown: its first says in how many.
fn gates(pair: &diff::Comparison, limits: Limits) -> Vec<Block> {
    let mut changed = shown(&pair.differences, Group::Gates);
    changed.retain(|difference| !is_new_variant(difference));
    if !limits.is_whole {
        changed = first_of_each_gate(changed);
    }
    first_items(
        &changed,
        limits.share(MAX_GATES),
        |changes| Block::Table(changes_table(changes)),
        COMMAND,
    )
}

fn first_of_each_gate(differences: Vec<&Difference>) -> Vec<&Difference> {
    let mut kept: Vec<&Difference> = Vec::new();
    for difference in differences {
        let is_told = difference.is_gate()
            && kept.iter().any(|earlier| {
                (&earlier.subject, earlier.what, earlier.change)
                    == (&difference.subject, difference.what, difference.change)
            });
        if !is_told {
            kept.push(difference);
        }
    }
    kept
}

fn is_new_variant(difference: &Difference) -> bool {
    difference.change == Change::Informational
        && difference.what == What::Variant
        && difference.base.is_none()
}

/// Returns the data that is missing, a line for each variant and reason.
fn required(pair: &diff::Comparison, limits: Limits) -> Vec<Block> {
    let withheld = withheld(&pair.differences);
    let missing = pair
        .differences
        .iter()
        .filter(|difference| difference.required)
        .map(|difference| {
            let subject = &difference.subject;
            let why = if withheld.contains(&subject) {
                "not measured, since a gate fails"
            } else {
                &*difference.why
            };
            ((subject, why), difference.title())
        });
    let mut lines = Vec::new();
    for Grouped {
        key: (subject, why),
        values: titles,
    } in grouped(missing)
    {
        let what = match &titles[..] {
            [first, _, _, ..] if !limits.is_whole => {
                format!("{first}, and {} more", titles.len() - 1)
            }
            _ => joined(titles, ", "),
        };
        lines.push(format!("{subject}: {what}: {why}").into());
    }
    first_bullets(lines, limits.share(MAX_MISSING), COMMAND)
}

fn added(pair: &diff::Comparison, limits: Limits) -> Vec<Block> {
    let differences = pair.differences.iter();
    let new = differences.filter(|difference| is_new_variant(difference));
    // A variant is new once, whatever sources have figures of it.
    let names = distinct(new.map(|difference| difference.subject.to_string()));
    first_bullets(
        names.into_iter().map(Into::into),
        limits.share(MAX_NEW),
        "compare show gates latencies",
    )
}

/// Returns how far the latencies of unchanged kernels moved.
fn drift(diff::Comparison { drift, .. }: &diff::Comparison) -> Option<Block> {
    if drift.kernels == 0 {
        return None;
    }
    Some(Block::paragraph(format!(
        "{} of unchanged kernels moved by {:+.1} % in the median, \
         19 of 20 of them within {:.1} % of that.",
        count(drift.kernels, "latency", "latencies"),
        100.0 * (1.0 / drift.shift - 1.0),
        100.0 * drift.spread
    )))
}

#[cfg(test)]
mod tests;
