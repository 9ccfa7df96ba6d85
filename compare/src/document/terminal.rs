//! Text for a terminal or a log: no colours, no line wider than asked.

use super::{Block, Document, Table};
use comfy_table::{CellAlignment, ColumnConstraint, ContentArrangement, Width, presets};

/// Width of a terminal that does not report its own.
pub const WIDTH: u16 = 100;
/// A table that would need narrower columns is written as a list.
const NARROWEST_COLUMN: usize = 12;
/// Titles of columns, and the line below them.
const HEADER_LINES: usize = 2;

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
            Block::Heading { level: ..=2, text } => wrapped(&format!("== {text} =="), width),
            Block::Heading { text, .. } => wrapped(&format!("-- {text} --"), width),
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

/// A table's cells as text.
struct Grid {
    columns: Vec<Column>,
}

struct Column {
    title: String,
    cells: Vec<String>,
    is_numeric: bool,
}

/// Characters of the longest of these texts.
fn longest<'a>(texts: impl Iterator<Item = &'a str>) -> usize {
    let lengths = texts.map(|text| text.chars().count());
    lengths.max().unwrap_or(0)
}

/// `title: cell` of each column at a row, but for empty cells.
fn named(columns: &[Column], at: usize) -> String {
    let filled = columns.iter().filter(|column| !column.cells[at].is_empty());
    let named = filled.map(|column| format!("{}: {}", column.title, column.cells[at]));
    named.collect::<Vec<_>>().join("; ")
}

impl Column {
    fn texts(&self) -> impl Iterator<Item = &str> {
        self.cells.iter().chain([&self.title]).map(String::as_str)
    }

    /// The longest word.
    fn word(&self) -> usize {
        longest(self.texts().flat_map(str::split_whitespace))
    }

    /// The longest cell, or the title.
    fn widest(&self) -> usize {
        longest(self.texts())
    }

    /// As narrow as it may be drawn: titles wrap between words.
    fn narrowest(&self) -> usize {
        let cells = longest(self.cells.iter().map(String::as_str));
        let title = longest(self.title.split_whitespace());
        cells.max(title).min(NARROWEST_COLUMN)
    }

    fn is_the_same_in_all_rows(&self) -> bool {
        self.cells.len() > 1 && self.cells.iter().all(|cell| *cell == self.cells[0])
    }
}

impl Grid {
    fn of(table: &Table) -> Self {
        let column = |(at, title): (usize, &String)| {
            let cells = table.rows.iter().map(|row| row[at].shown().to_string());
            Column {
                title: printable(title),
                cells: cells.map(|cell| printable(&cell)).collect(),
                is_numeric: table.is_numeric(at),
            }
        };
        Self {
            columns: table.columns.iter().enumerate().map(column).collect(),
        }
    }

    fn fits(&self, least: fn(&Column) -> usize, width: u16) -> bool {
        let drawn = self
            .columns
            .iter()
            .map(|column| least(column) + " | ".len());
        drawn.sum::<usize>() + "|".len() <= usize::from(width)
    }

    /// Takes out the columns, but for the first, that are the same in all rows.
    fn take_same(&mut self) -> Vec<Column> {
        let others = self.columns.len().min(1)..;
        let same = |column: &mut Column| column.is_the_same_in_all_rows();
        self.columns.extract_if(others, same).collect()
    }

    fn rows(&self) -> std::ops::Range<usize> {
        0..self.columns.first().map_or(0, |first| first.cells.len())
    }

    /// Each row is its first cell, then the others with their titles.
    fn list(&self, width: u16) -> String {
        let Some((first, others)) = self.columns.split_first() else {
            return String::new();
        };
        let row = |at: usize| {
            wrapped(&first.cells[at], width) + "\n" + &hanging("  ", &named(others, at), width)
        };
        self.rows().map(row).collect::<Vec<_>>().join("\n")
    }

    fn drawn(&self, width: u16) -> String {
        let mut drawn = comfy_table::Table::new();
        drawn
            .load_style(presets::ASCII_MARKDOWN)
            .set_content_arrangement(ContentArrangement::Dynamic)
            .set_width(width);
        drawn.set_header(self.columns.iter().map(|column| &column.title));
        let row = |at: usize| self.columns.iter().map(move |column| &column.cells[at]);
        drawn.add_rows(self.rows().map(row));
        // Names can be copied if they are whole.
        let are_whole = self.fits(Column::word, width);
        for (of, column) in self.columns.iter().zip(drawn.column_iter_mut()) {
            if are_whole {
                let width = Width::Fixed((of.word() + " ".len() * 2) as u16);
                column.set_constraint(ColumnConstraint::LowerBoundary(width));
            }
            if of.is_numeric {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        drawn.to_string()
    }
}

/// Where a cell would take several lines, columns that are the same in all rows stand above the others; where these do not fit side by
/// side, or take fewer lines so, each row is a list.
fn table(table: &Table, width: u16) -> String {
    let mut grid = Grid::of(table);
    let same = match grid.fits(Column::widest, width) {
        true => vec![],
        false => grid.take_same(),
    };
    let above = named(&same, 0);
    let above = match above.is_empty() {
        true => above,
        false => wrapped(&format!("In all rows: {above}"), width) + "\n\n",
    };
    let list = grid.list(width);
    let drawn = (grid.fits(Column::narrowest, width)).then(|| grid.drawn(width));
    let is_short = |drawn: &String| drawn.lines().count() <= list.lines().count() + HEADER_LINES;
    above + &drawn.filter(is_short).unwrap_or(list)
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
        let alone = of(Block::Table(Table::of([rows[0].clone()])), 44);
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
