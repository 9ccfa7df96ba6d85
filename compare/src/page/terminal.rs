//! Text for a terminal or a log: no colours, no line wider than asked.

use super::{Block, Document, Table};
use comfy_table::{CellAlignment, ContentArrangement, presets};

/// Width of a terminal that does not report its own.
pub const WIDTH: u16 = 100;
/// A table that would need narrower columns is written as a list.
const NARROWEST_COLUMN: usize = 12;

pub fn terminal(document: &Document, width: u16) -> String {
    let mut parts = Vec::new();
    if !document.title.is_empty() {
        parts.push(wrapped(&document.title, width));
    }
    parts.extend(
        document
            .verdict
            .as_ref()
            .map(|verdict| wrapped(&verdict.to_string(), width)),
    );
    let drawn = document.blocks.iter().filter_map(|block| {
        Some(match block {
            Block::Heading { text, .. } => wrapped(&format!("== {text} =="), width),
            Block::Paragraph(text) => wrapped(&text.to_string(), width),
            Block::Bullets(items) => items
                .iter()
                .map(|item| hanging("- ", &item.to_string(), width))
                .collect::<Vec<_>>()
                .join("\n"),
            Block::Table(of) => table(of, width),
            Block::Diagram(_) => return None,
        })
    });
    parts.extend(drawn);
    parts.join("\n\n") + "\n"
}

/// If the columns do not fit side by side, each row is a list: its first cell, then the others with their titles.
fn table(table: &Table, width: u16) -> String {
    let shown: Vec<Vec<String>> = table
        .rows
        .iter()
        .map(|row| {
            row.iter()
                .map(|cell| printable(&cell.shown().to_string()))
                .collect()
        })
        .collect();
    let columns: Vec<String> = table.columns.iter().map(|title| printable(title)).collect();
    let widths = columns.iter().enumerate().map(|(column, title)| {
        let cells = shown.iter().map(|row| &row[column]).chain([title]);
        let widest = cells.map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).min(NARROWEST_COLUMN) + " | ".len()
    });
    if widths.sum::<usize>() + "|".len() > usize::from(width) {
        let named = |row: &Vec<String>| {
            let cells = row
                .iter()
                .zip(&columns)
                .skip(1)
                .map(|(cell, title)| format!("{title}: {cell}"));
            wrapped(&row[0], width)
                + "\n"
                + &hanging("  ", &cells.collect::<Vec<_>>().join("; "), width)
        };
        return shown.iter().map(named).collect::<Vec<_>>().join("\n");
    }
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_style(presets::ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    drawn.set_header(&columns).add_rows(shown);
    for column in (0..columns.len()).filter(|column| table.is_numeric(*column)) {
        drawn
            .column_mut(column)
            .into_iter()
            .for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    }
    drawn.to_string()
}

/// Text with a mark before it and its further lines indented.
fn hanging(mark: &str, text: &str, width: u16) -> String {
    let lines = wrapped(text, width.saturating_sub(mark.len() as u16));
    let lines = lines
        .lines()
        .enumerate()
        .map(|(at, line)| format!("{}{line}", if at == 0 { mark } else { "  " }));
    lines.collect::<Vec<_>>().join("\n")
}

/// Wraps text as a table wraps the text of a cell.
fn wrapped(text: &str, width: u16) -> String {
    let mut cell = comfy_table::Table::new();
    cell.load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    cell.add_row([printable(text)]);
    cell.column_mut(0).into_iter().for_each(|column| {
        column.set_padding((0, 0));
    });
    cell.trim_fmt()
}

/// Output of tools may contain escape sequences.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Cell, row};

    fn of(block: Block, width: u16) -> String {
        terminal(
            &Document {
                blocks: vec![block],
                ..Default::default()
            },
            width,
        )
    }

    #[test]
    fn no_line_is_wider_than_asked() {
        let phrase = "a reason of several words and an_identifier_that_is_longer_than_most_columns_are – → µs ";
        for columns in [1, 2, 3, 5, 7, 8, 10, 14, 20, 40] {
            for length in [1, 3, 11, 12, 13, 30, 80, 88] {
                let cell: String = phrase.chars().cycle().skip(columns).take(length).collect();
                let title = |column: usize| format!("column {column}");
                let words = (0..columns).map(|column| (title(column), cell.as_str().into()));
                let figure = |column: usize| 10_u64.pow(column as u32 % 20).to_string();
                let figures =
                    (0..columns).map(|column| (title(column), Cell::figure(0.0, figure(column))));
                let table = Table::of([words.collect(), figures.collect()]);
                for (width, block) in [
                    (100, Block::Table(table)),
                    (40, Block::bullets([cell.repeat(4)])),
                ] {
                    let text = of(block, width);
                    let widest = text.lines().map(|line| line.chars().count()).max();
                    assert!(
                        widest <= Some(width.into()),
                        "{columns} columns of {length}:\n{text}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_table_that_is_too_wide_is_a_list() {
        let table = Table::of([row! {
            "variant" => "swizzle-32x256",
            "verdict" => "AMBIGUOUS L1",
            "why" => "its interval holds 1",
        }]);
        let expected = "swizzle-32x256\n  verdict: AMBIGUOUS L1; why: its\n  interval holds 1\n";
        assert_eq!(of(Block::Table(table), 36), expected);
    }

    #[test]
    fn what_moves_the_cursor_is_not_printed() {
        assert_eq!(
            of(Block::paragraph("a\x1b[31mb\tc\nd"), 80),
            "a [31mb c d\n"
        );
    }
}
