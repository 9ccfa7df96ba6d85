//! Text for a terminal or a log: no colours, no line wider than asked.

use super::{Block, Document, Table};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

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
    let cells = |column: usize| shown.iter().map(move |row| &row[column]);
    // The longest cell, or word, of each column.
    let longest = |column: usize, of_words: bool| {
        let texts = cells(column).chain([&columns[column]]);
        let parts = texts.flat_map(|text| match of_words {
            true => text.split_whitespace().collect(),
            false => vec![text.as_str()],
        });
        parts.map(|part| part.chars().count()).max().unwrap_or(0)
    };
    let fits = |widths: &[usize]| {
        let drawn = widths.iter().map(|width| width + " | ".len());
        drawn.sum::<usize>() + "|".len() <= usize::from(width)
    };
    let all = 0..columns.len();
    let narrowest = all
        .clone()
        .map(|column| longest(column, false).min(NARROWEST_COLUMN));
    if !fits(&narrowest.collect::<Vec<_>>()) {
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
    drawn.set_header(&columns).add_rows(&shown);
    // Names can be copied if they are whole.
    let words: Vec<usize> = all.map(|column| longest(column, true)).collect();
    if fits(&words) {
        for (column, word) in words.into_iter().enumerate() {
            let width = Width::Fixed((word + " ".len() * 2) as u16);
            let constraint = ColumnConstraint::LowerBoundary(width);
            let column = drawn.column_mut(column).into_iter();
            column.for_each(|column| {
                column.set_constraint(constraint);
            });
        }
    }
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
    fn a_name_is_not_broken_where_its_column_can_hold_it() {
        let table = Table::of([row! {
            "variant" => "wmma-qk-32x128-k2",
            "why" => "a reason that is long enough to fill all the lines of a narrow table",
            "where" => "a place that is also described in rather more words than are needed",
        }]);
        let text = of(Block::Table(table), 60);
        assert!(text.contains("| wmma-qk-32x128-k2 |"), "{text}");
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
