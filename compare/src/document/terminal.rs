//! Text for a terminal or a log: no colours, lines as wide as the terminal.

use super::{Block, Cell, Table};
use std::fs::File;
use std::io::{self, IsTerminal};
use std::process::Command;

/// Characters of a line where none are known, as of a pipe.
const WIDTH: usize = 100;

/// Narrower lines hold no word.
const LEAST_WIDTH: usize = 40;

/// Returns the width that standard output asks for: the variable COLUMNS, else the terminal's own, else [`WIDTH`].
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

/// Of `24 80`, rows and columns.
fn parse_columns(size: &str) -> Option<usize> {
    size.split_whitespace().nth(1)?.parse().ok()
}

fn choose_width(columns: Option<&str>, terminal: impl Fn() -> Option<usize>) -> usize {
    let given = columns.and_then(|columns| columns.parse().ok());
    let view = given.or_else(terminal).filter(|width| *width > 0);
    view.map_or(WIDTH, |width| width.max(LEAST_WIDTH))
}

/// Returns the text in lines of 100 characters; a word that is longer has a line of its own.
pub fn terminal(blocks: &[Block]) -> String {
    render(blocks, WIDTH)
}

/// Returns the text in lines of `width` characters.
pub fn render(blocks: &[Block], width: usize) -> String {
    let wrapped = |mark: &str, text: String| wrapped(mark, &text, width);
    let parts = blocks.iter().map(|block| match block {
        Block::Heading { level: 1, text } => wrapped("", text.to_string()),
        Block::Heading { level: 2, text } => wrapped("", format!("== {text} ==")),
        Block::Heading { text, .. } => wrapped("", format!("-- {text} --")),
        Block::Paragraph(text) => wrapped("", text.to_string()),
        Block::Bullets(items) => {
            let items = items.iter().map(|item| wrapped("- ", item.to_string()));
            items.collect::<Vec<_>>().join("\n")
        }
        Block::Table(of) => table(of, width),
    });
    parts.collect::<Vec<_>>().join("\n\n") + "\n"
}

/// Drawn if a line holds a row; else each row is a list: its first cell, then those that are filled with their titles.
fn table(table: &Table, most: usize) -> String {
    let titles: Vec<String> = table.columns.iter().map(|title| printable(title)).collect();
    let row = |row: &Vec<Cell>| {
        row.iter()
            .map(|cell| printable(&cell.shown().to_string()))
            .collect()
    };
    let rows: Vec<Vec<String>> = table.rows.iter().map(row).collect();
    let width = |at: usize| {
        let texts = rows.iter().map(|row| &row[at]).chain([&titles[at]]);
        texts.map(|text| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..titles.len()).map(width).collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate();
        let cells = cells.map(|(at, (cell, &width))| match table.is_numeric(at) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        format!("| {} |", cells.collect::<Vec<_>>().join(" | "))
    };
    let list = |row: &Vec<String>| {
        let filled = titles.iter().zip(row).skip(1);
        let filled = filled.filter(|(_, cell)| !["", "–"].contains(&&***cell));
        let named = filled.map(|(title, cell)| format!("{title}: {cell}"));
        let named = named.collect::<Vec<_>>().join("; ");
        format!(
            "{}\n{}",
            wrapped("", &row[0], most),
            wrapped("  ", &named, most)
        )
    };
    let head = line(&titles);
    let lines: Vec<String> = match head.chars().count() <= most {
        true => {
            let rule = widths.iter().map(|width| "-".repeat(width + 2));
            let rule = format!("|{}|", rule.collect::<Vec<_>>().join("|"));
            [head, rule]
                .into_iter()
                .chain(rows.iter().map(line))
                .collect()
        }
        false => rows.iter().map(list).collect(),
    };
    lines.join("\n")
}

/// Words after a mark, and as far from the margin on further lines.
fn wrapped(mark: &str, text: &str, most: usize) -> String {
    let (mut lines, mut line) = (Vec::new(), mark.to_string());
    let margin = " ".repeat(mark.len());
    for word in printable(text).split_whitespace() {
        let is_begun = line.len() > mark.len();
        if is_begun && line.chars().count() + 1 + word.chars().count() > most {
            lines.push(std::mem::replace(&mut line, margin.clone()));
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines.join("\n")
}

/// Output of tools may contain escape sequences.
fn printable(text: &str) -> String {
    text.replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::row;

    fn of(block: Block) -> String {
        terminal(&[block])
    }

    #[test]
    fn no_line_is_wider_than_a_terminal_and_no_word_is_broken() {
        let phrase = "a reason of several words and an_identifier_that_is_longer_than_most_columns_are – → µs ";
        let words = |text: &str| Vec::from_iter(text.split_whitespace().map(String::from));
        for columns in [1, 2, 3, 5, 7, 8, 10, 14, 20, 40] {
            for length in [1, 3, 11, 12, 13, 30, 80, 88] {
                let cell: String = phrase.chars().cycle().skip(columns).take(length).collect();
                let title = |column: usize| format!("column {column}");
                let texts = (0..columns).map(|column| (title(column), cell.as_str().into()));
                let figure = |column: usize| 10_u64.pow(column as u32 % 20).to_string();
                let figures =
                    (0..columns).map(|column| (title(column), Cell::Figure(figure(column))));
                let table = Table::of([texts.collect(), figures.collect()]);
                for block in [Block::Table(table), Block::bullets([[&*cell; 9].join(" ")])] {
                    let text = of(block);
                    let widest = text.lines().map(|line| line.chars().count()).max();
                    assert!(
                        widest <= Some(WIDTH),
                        "{columns} columns of {length}:\n{text}"
                    );
                    assert!(
                        words(&cell).iter().all(|word| text.contains(word)),
                        "{text}"
                    );
                }
            }
        }
        let long = "x".repeat(WIDTH + 1);
        assert_eq!(
            of(Block::bullets([format!("a {long} b")])),
            format!("- a\n  {long}\n  b\n")
        );
    }

    #[test]
    fn a_table_that_is_too_wide_is_a_list() {
        let table = |why: &str| {
            Block::Table(Table::of([row! {
                "variant" => "swizzle-32x256",
                "verdict" => "AMBIGUOUS L1",
                "p50" => Cell::Missing,
                "why" => why,
            }]))
        };
        let why = "its interval contains 1";
        let drawn = "| swizzle-32x256 | AMBIGUOUS L1 | –   | its interval contains 1 |\n";
        assert!(of(table(why)).ends_with(drawn), "{}", of(table(why)));
        let list = format!(
            "swizzle-32x256\n  verdict: AMBIGUOUS L1; why: {why}, {why}, its interval\n  contains 1\n"
        );
        let long = [why; 3].join(", ");
        assert_eq!(of(table(&long)), list);
    }

    #[test]
    fn a_wide_terminal_draws_the_table_that_a_narrow_one_lists() {
        let table = Table::of([row! { "variant" => "a".repeat(60), "why" => "b".repeat(60) }]);
        let block = [Block::Table(table)];
        assert!(render(&block, 140).contains("| why "));
        assert!(render(&block, 120).contains("\n  why: "));
    }

    #[test]
    fn the_width_is_that_of_columns_then_of_the_terminal_and_100_in_a_pipe() {
        let terminal = || Some(140);
        let pipe = || None;
        for (columns, terminal_width, of_pipe) in [
            (None, 140, 100),
            (Some("80"), 80, 80),
            (Some("wide"), 140, 100),
            (Some("0"), 100, 100),
            (Some("5"), 40, 40),
        ] {
            let found = [choose_width(columns, terminal), choose_width(columns, pipe)];
            assert_eq!(found, [terminal_width, of_pipe], "{columns:?}");
        }
        assert_eq!(
            choose_width(None, || Some(0)),
            100,
            "a terminal that does not know"
        );
        assert_eq!(parse_columns("24 80\n"), Some(80));
        assert_eq!(parse_columns(""), None);
    }

    #[test]
    fn what_moves_the_cursor_is_not_printed() {
        assert_eq!(of(Block::paragraph("a\x1b[31mb\tc\nd")), "a [31mb c d\n");
    }
}
