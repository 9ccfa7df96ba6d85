//! Blocks that several pages have: lists, sections, and tables of claims and of changes.

use super::words::{short_name, standing};
use document::{Block, Cell, Table, TableRow, Text, row};
use results::judge::claims::Claimed;
use results::judge::diff::Difference;

/// Blocks below a title.
pub struct Titled {
    title: String,
    blocks: Vec<Block>,
}

impl Titled {
    /// Puts blocks below a title.
    pub fn new(title: impl Into<String>, blocks: Vec<Block>) -> Self {
        Self {
            title: title.into(),
            blocks,
        }
    }
}

/// Returns the parts below their headings, without those that are empty.
pub fn sections(
    heading: impl Fn(String) -> Block,
    parts: impl IntoIterator<Item = Titled>,
) -> Vec<Block> {
    let mut blocks = Vec::new();
    for part in parts {
        if !part.blocks.is_empty() {
            blocks.push(heading(part.title));
            blocks.extend(part.blocks);
        }
    }
    blocks
}

/// Returns the blocks, or a sentence that says why there are none.
pub fn or_sentence(blocks: Vec<Block>, otherwise: &str) -> Vec<Block> {
    if blocks.is_empty() {
        vec![Block::paragraph(otherwise)]
    } else {
        blocks
    }
}

/// Returns the lines as a list; nothing if there are none.
pub fn bullets<T: Into<Text>>(lines: impl IntoIterator<Item = T>) -> Vec<Block> {
    first_bullets(lines.into_iter().map(T::into), usize::MAX, "")
}

/// Returns the table; nothing if it has no rows.
pub fn table_block(table: Table) -> Vec<Block> {
    if table.rows.is_empty() {
        vec![]
    } else {
        vec![Block::Table(table)]
    }
}

/// Returns the first `max` lines, and a command that shows the others.
pub fn first_bullets(
    lines: impl IntoIterator<Item = Text>,
    max: usize,
    command: &str,
) -> Vec<Block> {
    let texts: Vec<Text> = lines.into_iter().collect();
    first_items(&texts, max, |shown| Block::Bullets(shown.to_vec()), command)
}

/// Returns the first `max` items, as a table or list, and a command that shows the others.
pub fn first_items<T>(
    items: &[T],
    max: usize,
    lay_out: impl Fn(&[T]) -> Block,
    command: &str,
) -> Vec<Block> {
    let shown = &items[..items.len().min(max)];
    let hidden = items.len() - shown.len();
    let mut blocks = Vec::new();
    if !shown.is_empty() {
        blocks.push(lay_out(shown));
    }
    if hidden > 0 {
        blocks.push(Block::paragraph(format!("{hidden} more: `{command}`.")));
    }
    blocks
}

/// Returns claims as a table, with the columns that `more_columns` adds.
pub fn claims_table(claims: &[&Claimed], more_columns: impl Fn(&Claimed) -> TableRow) -> Table {
    let mut rows = Vec::new();
    for claim in claims {
        let mut cells = row! {
            "claim" => claim.title(),
            "verdict" => standing(claim),
            "measured" => &claim.finding.reason,
        };
        cells.extend(more_columns(claim));
        rows.push(cells);
    }
    Table::from_rows(rows)
}

/// Returns differences as a table: where, what, how far, and what decides.
pub fn changes_table(changes: &[&Difference]) -> Table {
    let mut rows = Vec::new();
    for change in changes {
        let ratio = match change.ratio {
            Some(ratio) => format!("{:.2}x; ", ratio.value),
            None => String::new(),
        };
        rows.push(row! {
            "where" => short_name(&change.subject),
            "what" => change.title(),
            "was → is" => was_is_cell(change),
            "why" => ratio + &change.why,
        });
    }
    Table::from_rows(rows)
}

fn was_is_cell(change: &Difference) -> Cell {
    match (&change.base, &change.new) {
        (Some(was), Some(is)) => format!("{was} → {is}").into(),
        (None, Some(is)) => is.into(),
        (Some(was), None) => format!("{was} → –").into(),
        (None, None) => Cell::Missing,
    }
}
