//! Text for a terminal or a log: no colours, no line wider than asked.

use super::{Block, Document, Table};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

/// Width of a terminal that does not report its own.
pub const WIDTH: u16 = 100;
/// Titles of columns, and the line below them.
const HEADER_LINES: usize = 2;

pub fn terminal(document: &Document, width: u16) -> String {
    let mut parts = Vec::new();
    if !document.title.is_empty() {
        parts.push(wrapped(&document.title, width));
    }
    let verdict = document.verdict.as_ref();
    parts.extend(verdict.map(|verdict| wrapped(verdict, width)));
    let drawn = document.blocks.iter().map(|block| match block {
        Block::Heading { level: ..=2, text } => wrapped(&format!("== {text} =="), width),
        Block::Heading { text, .. } => wrapped(&format!("-- {text} --"), width),
        Block::Paragraph(text) => wrapped(&text.to_string(), width),
        Block::Bullets(items) => items
            .iter()
            .map(|item| hanging("- ", &item.to_string(), width))
            .collect::<Vec<_>>()
            .join("\n"),
        Block::Table(of) => table(of, width),
    });
    parts.extend(drawn);
    parts.join("\n\n") + "\n"
}

struct Column {
    title: String,
    cells: Vec<String>,
    is_numeric: bool,
}

impl Column {
    /// Characters of the longest of its texts' `parts`.
    fn longest<'a>(&'a self, parts: impl Fn(&'a str) -> Vec<&'a str>) -> usize {
        let texts = self.cells.iter().chain([&self.title]);
        let parts = texts.flat_map(|text| parts(text));
        parts.map(|part| part.chars().count()).max().unwrap_or(0)
    }

    /// The longest word: names can be copied if they are whole.
    fn narrowest(&self) -> usize {
        self.longest(|text| text.split_whitespace().collect())
    }

    fn widest(&self) -> usize {
        self.longest(|text| vec![text])
    }

    fn is_the_same_in_all_rows(&self) -> bool {
        self.cells.len() > 1 && self.cells.iter().all(|cell| *cell == self.cells[0])
    }
}

/// `title: cell` of each column at a row, but for empty cells and dashes.
fn named(columns: &[Column], at: usize) -> String {
    let filled = columns
        .iter()
        .filter(|column| !["", "–"].contains(&&*column.cells[at]));
    let named = filled.map(|column| format!("{}: {}", column.title, column.cells[at]));
    named.collect::<Vec<_>>().join("; ")
}

/// Where a cell would take several lines, columns that are the same in all rows stand above the others; where these do not fit side by
/// side, or take fewer lines so, each row is a list: its first cell, then the others with their titles.
fn table(table: &Table, width: u16) -> String {
    let column = |(at, title): (usize, &String)| Column {
        title: printable(title),
        cells: (table.rows.iter())
            .map(|row| printable(&row[at].shown().to_string()))
            .collect(),
        is_numeric: table.is_numeric(at),
    };
    let mut columns: Vec<Column> = table.columns.iter().enumerate().map(column).collect();
    let fits = |columns: &[Column], least: fn(&Column) -> usize| {
        let drawn = columns.iter().map(|column| least(column) + " | ".len());
        drawn.sum::<usize>() + "|".len() <= usize::from(width)
    };
    let mut above = String::new();
    if !fits(&columns, Column::widest) {
        let others = columns.len().min(1)..;
        let same = columns.extract_if(others, |column| column.is_the_same_in_all_rows());
        let same: Vec<Column> = same.collect();
        if !same.is_empty() {
            above = wrapped(&format!("In all rows: {}", named(&same, 0)), width) + "\n\n";
        }
    }
    let row = |at: usize| {
        let first = wrapped(&columns[0].cells[at], width);
        first + "\n" + &hanging("  ", &named(&columns[1..], at), width)
    };
    let rows = (0..table.rows.len()).map(row);
    let list = rows.collect::<Vec<_>>().join("\n");
    let drawn = fits(&columns, Column::narrowest).then(|| drawn(&columns, width));
    let is_short = |drawn: &String| drawn.lines().count() <= list.lines().count() + HEADER_LINES;
    above + &drawn.filter(is_short).unwrap_or(list)
}

fn drawn(columns: &[Column], width: u16) -> String {
    let mut drawn = comfy_table::Table::new();
    drawn
        .load_style(presets::ASCII_MARKDOWN)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width);
    drawn.set_header(columns.iter().map(|column| &column.title));
    let rows = columns.first().map_or(0, |first| first.cells.len());
    let row = |at: usize| columns.iter().map(move |column| &column.cells[at]);
    drawn.add_rows((0..rows).map(row));
    for (of, column) in columns.iter().zip(drawn.column_iter_mut()) {
        let width = Width::Fixed((of.narrowest() + " ".len() * 2) as u16);
        column.set_constraint(ColumnConstraint::LowerBoundary(width));
        if of.is_numeric {
            column.set_cell_alignment(CellAlignment::Right);
        }
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
    use crate::document::{Cell, row};

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
                    (0..columns).map(|column| (title(column), Cell::Figure(figure(column))));
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
            "why" => "a reason that takes more than one line",
            "where" => "a place that takes more than one line",
        }]);
        let text = of(Block::Table(table), 60);
        assert!(text.contains("| wmma-qk-32x128-k2 |"), "{text}");
    }

    #[test]
    fn a_table_that_is_too_wide_is_a_list() {
        let table = Table::of([row! {
            "variant" => "swizzle-32x256",
            "verdict" => "AMBIGUOUS L1",
            "p50" => Cell::Missing,
            "why" => "its interval holds 1",
        }]);
        let expected = "swizzle-32x256\n  verdict: AMBIGUOUS L1; why: its\n  interval holds 1\n";
        assert_eq!(of(Block::Table(table), 36), expected);
    }

    #[test]
    fn a_table_of_long_texts_is_a_list_where_that_is_shorter() {
        let long = "figures with their intervals, in rather more words than a column holds";
        let table = Table::of([row! {
            "claim" => "faster than another stage by a tenth, for a reason",
            "measured" => long,
            "because" => long,
        }]);
        let expected = format!(
            "faster than another stage by a tenth, for a reason\n  measured: {long};\n  because: {long}\n"
        );
        assert_eq!(of(Block::Table(table), 84), expected);
    }

    #[test]
    fn what_all_rows_share_stands_above_a_table_that_is_too_wide() {
        let row = |variant: &str, why: &str| {
            row! {
                "variant" => variant,
                "limit" => "168",
                "R1" => "PASS",
                "note" => "",
                "because of" => why,
            }
        };
        let rows = [row("wmma", "nothing at all"), row("mma", "a spill of it")];
        let narrow = "In all rows: limit: 168; R1: PASS\n\n| variant | because of     |\n";
        let text = of(Block::Table(Table::of(rows.clone())), 44);
        assert!(text.starts_with(narrow), "{text}");
        let wide = of(Block::Table(Table::of(rows.clone())), 80);
        assert!(
            wide.starts_with("| variant | limit | R1   | note | because of"),
            "{wide}"
        );
        let alone = of(Block::Table(Table::of([rows[0].clone()])), 36);
        assert!(
            alone.starts_with("wmma\n  limit: 168; R1: PASS; because of:"),
            "{alone}"
        );
    }

    #[test]
    fn what_moves_the_cursor_is_not_printed() {
        assert_eq!(
            of(Block::paragraph("a\x1b[31mb\tc\nd"), 80),
            "a [31mb c d\n"
        );
    }
}
