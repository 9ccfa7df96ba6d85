//! GitHub's Markdown: CommonMark with tables.

use super::{Block, Span, Table, Text};

/// Renders a page as Markdown.
pub fn markdown(blocks: &[Block]) -> String {
    let parts: Vec<String> = blocks.iter().map(block).collect();
    parts.join("\n\n") + "\n"
}

fn block(block: &Block) -> String {
    match block {
        Block::Heading { level, text } => {
            let marks = "#".repeat((*level).clamp(1, 6).into());
            format!("{marks} {}", inline(text, Place::Line))
        }
        Block::Paragraph(text) => inline(text, Place::Line),
        Block::Bullets(items) => bullets(items),
        Block::Table(content) => table(content),
    }
}

fn bullets(items: &[Text]) -> String {
    let mut lines = Vec::new();
    for item in items {
        lines.push(format!("- {}", inline(item, Place::Line)));
    }
    lines.join("\n")
}

fn table(table: &Table) -> String {
    let mut titles = Vec::new();
    let mut rule = String::from("|");
    for (column, title) in table.columns.iter().enumerate() {
        titles.push(escape(title, Place::Cell));
        rule += if table.is_numeric(column) {
            "---:|"
        } else {
            "---|"
        };
    }
    let mut lines = vec![table_line(&titles), rule];
    for row in &table.rows {
        let cells: Vec<String> = row
            .iter()
            .map(|cell| inline(&cell.shown(), Place::Cell))
            .collect();
        lines.push(table_line(&cells));
    }
    lines.join("\n")
}

fn table_line(cells: &[String]) -> String {
    format!("| {} |", cells.join(" | "))
}

/// The place of a text, on which it depends what is markup.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Line,
    Cell,
}

fn inline(text: &Text, place: Place) -> String {
    let mut line = String::new();
    for span in &text.0 {
        line += &match span {
            Span::Plain(content) => escape(content, place),
            Span::Strong(content) if content.trim().is_empty() => String::new(),
            Span::Strong(content) => format!("**{}**", escape(content.trim(), place)),
            Span::Code(content) => code(content, place),
            Span::Link { text: title, file } => format!("[{title}]({file})"),
        };
    }
    line
}

/// A character with its neighbours.
struct Context<'a> {
    /// The text before it, escaped.
    written: &'a str,
    before: Option<char>,
    character: char,
    after: Option<char>,
    place: Place,
}

impl Context<'_> {
    /// Whether the character would be markup, at the start of a line the begin of a heading, a
    /// quotation or a list, too.
    fn is_markup(&self) -> bool {
        let is_in_line = self.place == Place::Line;
        match self.character {
            '`' | '\\' | '~' => true,
            '*' | '<' | '&' => !self.stands_between(char::is_whitespace),
            '_' => !self.stands_between(char::is_alphanumeric),
            // A link may follow.
            '!' => self.after.is_none(),
            ']' => self.after == Some('('),
            '|' => self.place == Place::Cell,
            '#' | '>' | '[' | '-' | '+' => is_in_line && self.before.is_none(),
            '.' | ')' => is_in_line && self.ends_number_of_list(),
            _ => false,
        }
    }

    fn stands_between(&self, is_kind: fn(char) -> bool) -> bool {
        self.before.is_some_and(is_kind) && self.after.is_some_and(is_kind)
    }

    fn ends_number_of_list(&self) -> bool {
        self.after.is_none_or(|next| next == ' ')
            && self.before.is_some()
            && self.written.chars().all(|digit| digit.is_ascii_digit())
    }
}

/// Escapes what would be markup.
fn escape(text: &str, place: Place) -> String {
    let line = one_line(text);
    let mut escaped = String::with_capacity(line.len());
    let mut before = None;
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let context = Context {
            written: &escaped,
            before,
            character,
            after: characters.peek().copied(),
            place,
        };
        if context.is_markup() {
            escaped.push('\\');
        }
        escaped.push(character);
        before = Some(character);
    }
    escaped
}

/// Returns the text as code, fenced by more backticks than it contains.
fn code(text: &str, place: Place) -> String {
    let mut line = one_line(text);
    if line.is_empty() {
        return line;
    }
    let longest = line
        .split(|c| c != '`')
        .map(str::len)
        .max()
        .unwrap_or_default();
    if place == Place::Cell {
        line = line.replace('|', "\\|");
    }
    let fence = "`".repeat(longest + 1);
    let space = if longest > 0 { " " } else { "" };
    format!("{fence}{space}{line}{space}{fence}")
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row;
    use pulldown_cmark::{Event, Options, Parser};

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
        assert_eq!(code("a|b", Place::Cell), "`a\\|b`");
        assert_eq!(code("a|`b", Place::Line), "`` a|`b ``");
    }

    /// Returns the text that a parser reads; what it takes for markup within is shown in full.
    fn parsed(markdown: &str) -> String {
        let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH;
        let mut text = String::new();
        for event in Parser::new_ext(markdown, options) {
            match event {
                Event::Text(part) => text += &part,
                Event::Start(_) | Event::End(_) => {}
                other => text += &format!("{other:?}"),
            }
        }
        text
    }

    #[test]
    fn a_parser_reads_the_text_that_was_written() {
        let pieces = [
            "*", "_", "`", "<b>", "a", " ", "[", "](x)", "\\", "|", "&amp;", "~", "#", "-", "1.",
            "!", "<!--", "=",
        ];
        for index in 0..pieces.len().pow(4) {
            let joined: String = (0..4)
                .map(|position| pieces[index / pieces.len().pow(position) % pieces.len()])
                .collect();
            let text = joined.trim();
            let plain = Text::default().plain(text);
            let line = block(&Block::Paragraph(plain.clone()));
            assert_eq!(parsed(&line), text, "{line}");
            let cell = block(&Block::Table(Table::from_rows([row! { "" => plain }])));
            assert_eq!(parsed(&cell), text, "{cell}");
        }
    }
}
