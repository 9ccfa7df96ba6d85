//! GitHub's Markdown: CommonMark with tables.

use super::{Block, Span, Table, Text};

pub fn markdown(blocks: &[Block]) -> String {
    blocks.iter().map(block).collect::<Vec<_>>().join("\n\n") + "\n"
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading { level, text } => {
            format!(
                "{} {}",
                "#".repeat((*level).clamp(1, 6).into()),
                inline(text, Place::Line)
            )
        }
        Block::Paragraph(text) => inline(text, Place::Line),
        Block::Bullets(items) => items
            .iter()
            .map(|item| format!("- {}", inline(item, Place::Line)))
            .collect::<Vec<_>>()
            .join("\n"),
        Block::Table(of) => table(of),
    }
}

fn table(table: &Table) -> String {
    let line = |cells: Vec<String>| format!("| {} |", cells.join(" | "));
    let head = table
        .columns
        .iter()
        .map(|title| escape(title, Place::Cell))
        .collect();
    let rule = |column: usize| match table.is_numeric(column) {
        true => "---:|",
        false => "---|",
    };
    let rule: String = (0..table.columns.len()).map(rule).collect();
    let rows = table.rows.iter().map(|row| {
        line(
            row.iter()
                .map(|cell| inline(&cell.shown(), Place::Cell))
                .collect(),
        )
    });
    [line(head), format!("|{rule}")]
        .into_iter()
        .chain(rows)
        .collect::<Vec<_>>()
        .join("\n")
}

/// What is markup depends on where the text stands.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Line,
    Cell,
}

fn inline(text: &Text, place: Place) -> String {
    let span = |span: &Span| match span {
        Span::Plain(text) => escape(text, place),
        Span::Strong(text) if text.trim().is_empty() => String::new(),
        Span::Strong(text) => format!("**{}**", escape(text.trim(), place)),
        Span::Code(text) => code(text, place),
        Span::Link { text, file } => format!("[{text}]({file})"),
    };
    text.0.iter().map(span).collect()
}

/// Escapes what would be markup, at the start of a line what would begin a heading, a quotation or a list, too.
fn escape(text: &str, place: Place) -> String {
    let text = one_line(text);
    let mut out = String::with_capacity(text.len());
    let (mut before, mut chars) = (None::<char>, text.chars().peekable());
    while let Some(c) = chars.next() {
        let after = chars.peek().copied();
        let both = |is: fn(char) -> bool| before.is_some_and(is) && after.is_some_and(is);
        let is_markup = match c {
            '`' | '\\' | '~' => true,
            '*' | '<' | '&' => !both(char::is_whitespace),
            '_' => !both(char::is_alphanumeric),
            // A link may follow.
            '!' => after.is_none(),
            ']' => after == Some('('),
            '|' => place == Place::Cell,
            '#' | '>' | '[' | '-' | '+' => place == Place::Line && before.is_none(),
            '.' | ')' if after.is_none_or(|c| c == ' ') => {
                place == Place::Line && before.is_some() && out.chars().all(|c| c.is_ascii_digit())
            }
            _ => false,
        };
        if is_markup {
            out.push('\\');
        }
        out.push(c);
        before = Some(c);
    }
    out
}

/// Fenced by more backticks than it contains.
fn code(text: &str, place: Place) -> String {
    let text = one_line(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let (fence, space) = ("`".repeat(longest + 1), if longest > 0 { " " } else { "" });
    let text = if place == Place::Cell {
        text.replace('|', "\\|")
    } else {
        text
    };
    if text.is_empty() {
        text
    } else {
        format!("{fence}{space}{text}{space}{fence}")
    }
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_would_be_markup_is_escaped() {
        for (text, escaped) in [
            ("sm_90a * 2.5 | 3 > 1", "sm_90a * 2.5 | 3 > 1"),
            ("1.75x [1.736, 1.755]!?", "1.75x [1.736, 1.755]!?"),
            (".", "."),
            (
                "<b> &lt; *x* _y_ ~z~ `c`",
                "\\<b> \\&lt; \\*x\\* \\_y\\_ \\~z\\~ \\`c\\`",
            ),
            ("[x](y) z!", "\\[x\\](y) z\\!"),
            ("a\\*b\nc", "a\\\\\\*b c"),
            ("---", "\\---"),
            ("12. x", "12\\. x"),
        ] {
            assert_eq!(escape(text, Place::Line), escaped);
        }
        assert_eq!(escape("- | 2.1 [", Place::Cell), "- \\| 2.1 [");
        assert_eq!(
            [code("a|b", Place::Cell), code("a|`b", Place::Line)],
            ["`a\\|b`", "`` a|`b ``"]
        );
    }

    #[test]
    fn a_parser_reads_the_text_that_was_written() {
        use crate::document::row;
        use pulldown_cmark::{Event, Options, Parser};
        let pieces = [
            "*", "_", "`", "<b>", "a", " ", "[", "](x)", "\\", "|", "&amp;", "~", "#", "-", "1.",
            "!", "<!--", "=",
        ];
        let read = |markdown: &str| -> String {
            Parser::new_ext(
                markdown,
                Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH,
            )
            .filter_map(|event| match event {
                Event::Text(text) => Some(text.to_string()),
                Event::Start(_) | Event::End(_) => None,
                other => Some(format!("{other:?}")),
            })
            .collect()
        };
        for index in 0..pieces.len().pow(4) {
            let text: String = (0..4)
                .map(|place| pieces[index / pieces.len().pow(place) % pieces.len()])
                .collect();
            let text = text.trim();
            let plain = Text::default().plain(text);
            let line = block(&Block::Paragraph(plain.clone()));
            assert_eq!(read(&line), text, "{line}");
            let cell = block(&Block::Table(Table::of([row! { "" => plain }])));
            assert_eq!(read(&cell), text, "{cell}");
        }
    }
}
