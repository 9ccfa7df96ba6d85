//! A document laid out once, printed as Markdown or for a terminal.

use super::markdown::cells::{escape, row, rule};
use std::fmt::Write as _;
use std::io::{self, Write as _};

/// A part of a document.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// A line that Markdown does not show, by which a program finds its own comment again.
    Marker(String),
    /// A heading.
    Heading(String),
    /// What must be read.
    Strong(String),
    /// A paragraph.
    Text(String),
    /// A list.
    Bullets(Vec<String>),
    /// A table: its head, and its rows.
    Table(Vec<&'static str>, Vec<Vec<String>>),
    /// What not everyone needs: one line, and what is behind it. A terminal shows the line alone.
    Folded(String, Vec<Block>),
}

/// As Markdown.
pub fn markdown(blocks: &[Block]) -> String {
    let mut out = String::new();
    for block in blocks {
        let _ = match block {
            Block::Marker(name) => writeln!(out, "<!-- {name} -->"),
            Block::Heading(text) => writeln!(out, "## {}\n", escape(text)),
            Block::Strong(text) => writeln!(out, "**{}**\n", escape(text)),
            Block::Text(text) => writeln!(out, "{}\n", escape(text)),
            Block::Bullets(items) => {
                let items: String = items.iter().map(|item| format!("- {}\n", escape(item))).collect();
                writeln!(out, "{items}")
            }
            Block::Table(head, rows) => {
                let rows: String =
                    rows.iter().map(|cells| row(&cells.iter().map(String::as_str).collect::<Vec<_>>())).collect();
                writeln!(out, "{}{}{rows}", row(head), rule(head.len()))
            }
            Block::Folded(summary, blocks) => {
                writeln!(out, "<details><summary>{}</summary>\n\n{}</details>\n", escape(summary), markdown(blocks))
            }
        };
    }
    out.trim_end().to_string() + "\n"
}

/// For a terminal, without colours: it may be a log.
pub fn terminal(blocks: &[Block]) -> String {
    let mut out = String::new();
    for block in blocks {
        let _ = match block {
            Block::Marker(_) => Ok(()),
            Block::Heading(text) => writeln!(out, "{text}"),
            Block::Strong(text) | Block::Text(text) => writeln!(out, "{text}\n"),
            Block::Bullets(items) => {
                writeln!(out, "{}", items.iter().map(|item| format!("  {item}\n")).collect::<String>())
            }
            Block::Table(head, rows) => {
                let mut table = comfy_table::Table::new();
                table.load_style(comfy_table::presets::ASCII_MARKDOWN);
                table.set_header(head.clone());
                table.add_rows(rows.iter().cloned());
                writeln!(out, "{table}\n")
            }
            Block::Folded(summary, _) => writeln!(out, "{summary} (in --format markdown or json)\n"),
        };
    }
    out.trim_end().to_string() + "\n"
}

/// Writes to standard output. A reader that has seen enough (`| head`) is no error.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn blocks() -> Vec<Block> {
        vec![
            Block::Marker("mine".into()),
            Block::Strong("PASS: a | b".into()),
            Block::Bullets(vec!["do".into(), "not".into()]),
            Block::Heading("Rows".into()),
            Block::Table(vec!["what", "is"], vec![vec!["x".into(), "1 | 2".into()]]),
            Block::Folded("3 more".into(), vec![Block::Text("here".into())]),
        ]
    }

    #[test]
    fn markdown_folds_and_escapes() {
        let expected = "<!-- mine -->\n**PASS: a \\| b**\n\n- do\n- not\n\n## Rows\n\n| what | is |\n|---|---|\n| x | 1 \\| 2 |\n\n\
                        <details><summary>3 more</summary>\n\nhere\n</details>\n";
        assert_eq!(markdown(&blocks()), expected);
    }

    #[test]
    fn a_terminal_gets_no_markup() {
        let expected = "PASS: a | b\n\n  do\n  not\n\nRows\n| what | is    |\n|------|-------|\n| x    | 1 | 2 |\n\n3 more (in \
                        --format markdown or json)\n";
        assert_eq!(terminal(&blocks()), expected);
    }
}
