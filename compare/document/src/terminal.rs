//! Text for a terminal or a log: no colours, lines as wide as the terminal.

use super::{Block, Cell, Table};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::process::Command;

/// The characters of a line whose width is unknown, as of a pipe.
const WIDTH: usize = 100;

/// The least characters of a line: narrower ones hold no word.
const MIN_WIDTH: usize = 40;

/// Returns the width that standard output asks for: the variable COLUMNS, else the terminal's own,
/// else [`WIDTH`].
pub fn width() -> usize {
    let columns = std::env::var("COLUMNS").ok();
    choose_width(columns.as_deref(), terminal_width)
}

/// Asks `stty`: a crate that asks the kernel would be two more for one number.
fn terminal_width() -> Option<usize> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let terminal = File::open("/dev/tty").ok()?;
    let size = Command::new("stty")
        .arg("size")
        .stdin(terminal)
        .output()
        .ok()?;
    parse_columns(&String::from_utf8_lossy(&size.stdout))
}

/// Parses `24 80`, rows and columns.
fn parse_columns(size: &str) -> Option<usize> {
    size.split_whitespace().nth(1)?.parse().ok()
}

fn choose_width(columns: Option<&str>, terminal: impl Fn() -> Option<usize>) -> usize {
    let variable = columns.and_then(|number| number.parse().ok());
    match variable.or_else(terminal) {
        None | Some(0) => WIDTH,
        Some(width) => width.max(MIN_WIDTH),
    }
}

/// Returns the text in lines of 100 characters; a word that is longer has a line of its own.
pub fn terminal(blocks: &[Block]) -> String {
    render(blocks, WIDTH)
}

/// Returns the text in lines of `width` characters.
pub fn render(blocks: &[Block], width: usize) -> String {
    let mut parts = Vec::new();
    for block in blocks {
        parts.push(match block {
            Block::Heading { level: 1, text } => wrapped("", &text.to_string(), width),
            Block::Heading { level: 2, text } => wrapped("", &format!("== {text} =="), width),
            Block::Heading { text, .. } => wrapped("", &format!("-- {text} --"), width),
            Block::Paragraph(text) => wrapped("", &text.to_string(), width),
            Block::Bullets(items) => {
                let lines = items
                    .iter()
                    .map(|item| wrapped("- ", &item.to_string(), width));
                Vec::from_iter(lines).join("\n")
            }
            Block::Table(content) => table(content, width),
        });
    }
    parts.join("\n\n") + "\n"
}

/// Returns the table as it is drawn if a line holds a row; else each row as a list.
fn table(table: &Table, max_width: usize) -> String {
    let printed = PrintedTable::new(table);
    let head = printed.line(&printed.titles);
    if head.chars().count() > max_width {
        let lists = printed.rows.iter().map(|row| printed.list(row, max_width));
        return Vec::from_iter(lists).join("\n");
    }
    let mut lines = vec![head, printed.rule()];
    for row in &printed.rows {
        lines.push(printed.line(row));
    }
    lines.join("\n")
}

/// A table as text that can be printed.
struct PrintedTable {
    titles: Vec<String>,
    rows: Vec<Vec<String>>,
    widths: Vec<usize>,
    is_numeric: Vec<bool>,
}

impl PrintedTable {
    fn new(table: &Table) -> Self {
        let titles: Vec<String> = table.columns.iter().map(|title| printable(title)).collect();
        let mut widths: Vec<usize> = titles.iter().map(|title| title.chars().count()).collect();
        let mut rows = Vec::new();
        for cells in &table.rows {
            let row: Vec<String> = cells.iter().map(printable_cell).collect();
            for (width, text) in widths.iter_mut().zip(&row) {
                *width = text.chars().count().max(*width);
            }
            rows.push(row);
        }
        Self {
            is_numeric: (0..titles.len())
                .map(|column| table.is_numeric(column))
                .collect(),
            titles,
            rows,
            widths,
        }
    }

    /// Returns a line of the drawn table, with figures on the right of their columns.
    fn line(&self, row: &[String]) -> String {
        let mut cells = Vec::new();
        for (column, text) in row.iter().enumerate() {
            let width = self.widths[column];
            cells.push(if self.is_numeric[column] {
                format!("{text:>width$}")
            } else {
                format!("{text:width$}")
            });
        }
        format!("| {} |", cells.join(" | "))
    }

    /// Returns the line below the titles.
    fn rule(&self) -> String {
        let dashes = self.widths.iter().map(|width| "-".repeat(width + 2));
        format!("|{}|", Vec::from_iter(dashes).join("|"))
    }

    /// Returns a row's first cell, then below it those that are filled with their titles.
    fn list(&self, row: &[String], max_width: usize) -> String {
        let mut filled = Vec::new();
        for (title, text) in self.titles.iter().zip(row).skip(1) {
            if !text.is_empty() && text != "–" {
                filled.push(format!("{title}: {text}"));
            }
        }
        let first = wrapped("", &row[0], max_width);
        let others = wrapped("  ", &filled.join("; "), max_width);
        format!("{first}\n{others}")
    }
}

/// Returns the words after a mark, and as far from the margin on further lines.
fn wrapped(mark: &str, text: &str, max_width: usize) -> String {
    let margin = " ".repeat(mark.len());
    let mut lines = Vec::new();
    let mut line = mark.to_string();
    let mut width = mark.len();
    for word in printable(text).split_whitespace() {
        let word_width = word.chars().count();
        let has_words = line.len() > mark.len();
        if has_words && width + 1 + word_width > max_width {
            lines.push(line);
            line = margin.clone();
            width = margin.len();
        } else if has_words {
            line.push(' ');
            width += 1;
        }
        line.push_str(word);
        width += word_width;
    }
    lines.push(line);
    lines.join("\n")
}

fn printable_cell(cell: &Cell) -> String {
    printable(&cell.shown().to_string())
}

/// Replaces control characters: output of tools may contain escape sequences.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;

    fn printed(block: Block) -> String {
        terminal(&[block])
    }

    /// Returns a table with a row of equal texts and a row of figures of all lengths.
    fn table_of(columns: usize, text: &str) -> Table {
        let title = |column: usize| format!("column {column}");
        let texts = (0..columns).map(|column| (title(column), text.into()));
        let figures = (0..columns).map(|column| {
            let figure = 10_u64.pow(column as u32 % 20).to_string();
            (title(column), Cell::Figure(figure))
        });
        Table::from_rows([texts.collect(), figures.collect()])
    }

    /// Returns a table of one row.
    fn table_with_reason(why: &str) -> Block {
        Block::Table(Table::from_rows([row! {
            "variant" => "swizzle-32x256",
            "verdict" => "AMBIGUOUS L1",
            "p50" => Cell::Missing,
            "why" => why,
        }]))
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_and_no_word_is_broken() {
        let phrase = "a reason of several words and \
                      an_identifier_that_is_longer_than_most_columns_are – → µs ";
        for columns in [1, 2, 3, 5, 7, 8, 10, 14, 20, 40] {
            for length in [1, 3, 11, 12, 13, 30, 80, 88] {
                let cell: String = phrase.chars().cycle().skip(columns).take(length).collect();
                let table = Block::Table(table_of(columns, &cell));
                let bullets = Block::bullets([[&*cell; 9].join(" ")]);
                for block in [table, bullets] {
                    let text = printed(block);
                    let widest = text.lines().map(|line| line.chars().count()).max();
                    assert!(
                        widest <= Some(WIDTH),
                        "{columns} columns of {length}:\n{text}"
                    );
                    for word in cell.split_whitespace() {
                        assert!(text.contains(word), "{text}");
                    }
                }
            }
        }
        let long = "x".repeat(WIDTH + 1);
        let bullets = Block::bullets([format!("a {long} b")]);
        assert_eq!(printed(bullets), format!("- a\n  {long}\n  b\n"));
    }

    #[test]
    fn a_table_that_is_too_wide_is_a_list() {
        let why = "its interval contains 1";
        let drawn = printed(table_with_reason(why));
        let last_line = "| swizzle-32x256 | AMBIGUOUS L1 | –   | its interval contains 1 |\n";
        assert!(drawn.ends_with(last_line), "{drawn}");
        let long = [why; 3].join(", ");
        let list = format!(
            "swizzle-32x256\n  \
             verdict: AMBIGUOUS L1; why: {why}, {why}, its interval\n  \
             contains 1\n"
        );
        assert_eq!(printed(table_with_reason(&long)), list);
    }

    #[test]
    fn a_wide_terminal_draws_the_table_that_a_narrow_one_lists() {
        let table =
            Table::from_rows([row! { "variant" => "a".repeat(60), "why" => "b".repeat(60) }]);
        let block = [Block::Table(table)];
        assert!(render(&block, 140).contains("| why "));
        assert!(render(&block, 120).contains("\n  why: "));
    }

    #[test]
    fn the_width_is_that_of_columns_then_of_the_terminal_and_100_in_a_pipe() {
        for (columns, terminal_width, pipe_width) in [
            (None, 140, 100),
            (Some("80"), 80, 80),
            (Some("wide"), 140, 100),
            (Some("0"), 100, 100),
            (Some("5"), 40, 40),
        ] {
            assert_eq!(
                choose_width(columns, || Some(140)),
                terminal_width,
                "{columns:?}"
            );
            assert_eq!(choose_width(columns, || None), pipe_width, "{columns:?}");
        }
        // A terminal that does not know its width.
        assert_eq!(choose_width(None, || Some(0)), 100);
        assert_eq!(parse_columns("24 80\n"), Some(80));
        assert_eq!(parse_columns(""), None);
    }

    #[test]
    fn what_moves_the_cursor_is_not_printed() {
        let paragraph = Block::paragraph("a\x1b[31mb\tc\nd");
        assert_eq!(printed(paragraph), "a [31mb c d\n");
    }
}
