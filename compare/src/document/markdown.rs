//! GitHub's Markdown: CommonMark with tables.

use super::{Block, Document, Span, Table, Text};

pub fn markdown(document: &Document) -> String {
    let mut parts = Vec::new();
    parts.extend(document.marker.map(|name| format!("<!-- {name} -->")));
    if !document.title.is_empty() {
        parts.push(format!("# {}", escape(&document.title, Place::Line)));
    }
    parts.extend(
        document
            .verdict
            .as_ref()
            .map(|verdict| format!("**{}**", within(&verdict.to_string(), Place::Line))),
    );
    parts.push(blocks(&document.blocks));
    parts.join("\n\n").trim_end().to_string() + "\n"
}

/// Blocks alone, such as a table within another file.
pub fn blocks(blocks: &[Block]) -> String {
    blocks.iter().map(block).collect::<Vec<_>>().join("\n\n")
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
    let span = |(index, span): (usize, &Span)| match span {
        Span::Plain(text) if index > 0 && place == Place::Line => within(text, place),
        Span::Plain(text) => escape(text, place),
        Span::Strong(text) if text.trim().is_empty() => String::new(),
        Span::Strong(text) => format!("**{}**", within(text.trim(), place)),
        Span::Code(text) => code(text, place),
        Span::Link { text, file } => format!("[{text}]({file})"),
    };
    text.0.iter().enumerate().map(span).collect()
}

/// At the start of a line, text must not begin a heading, a quotation or a list either.
fn escape(text: &str, place: Place) -> String {
    let escaped = within(text, place);
    let rest = escaped.trim_start_matches(|c: char| c.is_ascii_digit());
    let digits = escaped.len() - rest.len();
    let mut chars = rest.chars();
    let begins_block = place == Place::Line
        && match (chars.next(), chars.next()) {
            (Some('#' | '>' | '['), _) => digits == 0,
            (Some(c @ ('-' | '+')), next) => {
                digits == 0 && next.is_none_or(|next| next == ' ' || next == c)
            }
            (Some('.' | ')'), next) => digits > 0 && next.is_none_or(|next| next == ' '),
            _ => false,
        };
    if begins_block {
        format!("{}\\{rest}", &escaped[..digits])
    } else {
        escaped
    }
}

/// Escapes each character that would be markup between its neighbours.
fn within(text: &str, place: Place) -> String {
    let text = one_line(text);
    let mut out = String::with_capacity(text.len());
    let (mut before, mut chars) = (None::<char>, text.chars().peekable());
    while let Some(c) = chars.next() {
        let after = chars.peek().copied();
        let both = |is: fn(char) -> bool| before.is_some_and(is) && after.is_some_and(is);
        let is_markup = match c {
            '`' => true,
            '\\' => after.is_none_or(|c| c.is_ascii_punctuation()),
            '<' => after.is_none_or(|c| c.is_ascii_alphabetic() || "/!?".contains(c)),
            '&' => after.is_none_or(|c| c.is_ascii_alphanumeric() || c == '#'),
            '*' | '~' => !both(char::is_whitespace),
            '_' => !both(char::is_whitespace) && !both(char::is_alphanumeric),
            // A link may follow.
            '!' => after.is_none_or(|c| c == '['),
            ']' => after.is_some_and(|c| c == '('),
            '|' => place == Place::Cell,
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
        for text in [
            "sm_90a, fast_1.5",
            "3 < 4 & 5 > 2",
            "a * b",
            "1.75x [1.736, 1.755]",
            "-3 %",
            "C:\\x",
            "PASS! 37",
            "2.5 µs",
        ] {
            assert_eq!(escape(text, Place::Line), text);
        }
        for (text, escaped) in [
            (
                "<b> &lt; *x* _y_ ~z~ `c`",
                "\\<b> \\&lt; \\*x\\* \\_y\\_ \\~z\\~ \\`c\\`",
            ),
            ("[x](y) ![z](w)", "\\[x\\](y) \\![z\\](w)"),
            ("a\\*b\nc", "a\\\\\\*b c"),
            ("# x", "\\# x"),
            ("- x", "\\- x"),
            ("---", "\\---"),
            ("12. x", "12\\. x"),
            ("a | b", "a | b"),
        ] {
            assert_eq!(escape(text, Place::Line), escaped);
        }
        assert_eq!(escape("- | [", Place::Cell), "- \\| [");
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
