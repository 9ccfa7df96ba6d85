//! One page that needs nothing but itself: no script, nothing that a browser would load.

use super::document::target;
use super::{Block, Cell, Document, Span, Table, Text, Tone};

/// Colours on a light ground, and on a dark one.
const LIGHT: &str = "--ground:#fff;--text:#1c2128;--faint:#57606a;--line:#d8dee4";
const DARK: &str = "--ground:#12161b;--text:#e6edf3;--faint:#9aa4af;--line:#353c44";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = include_str!("style.css");

/// A cell of more characters may take several lines.
const PHRASE: usize = 48;

pub fn page(document: &Document) -> String {
    let (mut ids, mut links, mut body) = (Vec::new(), String::new(), String::new());
    for of in &document.blocks {
        if let Block::Heading { level: 2, text } = of {
            let (id, title) = (new_id(&ids, text), inline(text));
            links += &format!(
                "<li><a href=\"#{id}\">{}</a></li>",
                escape(&text.to_string())
            );
            body += &format!("<h2 id=\"{id}\">{title}</h2>\n");
            ids.push(id);
        } else {
            body += &block(of);
        }
    }
    let (mut title, mut verdict) = (escape(&document.title), String::new());
    if let Some(of) = &document.verdict {
        let (tone, word, why) = (of.tone.name(), escape(&of.word), escape(&of.why));
        title = format!("{word}: {title}");
        verdict = format!("<p class=\"verdict {tone}\"><strong>{word}</strong>: {why}</p>\n");
    }
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>{title}</title>\n\
         <style>:root{{{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}\n{STYLE}</style>\n</head>\n\
         <body>\n<main>\n<nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n<h1>{}</h1>\n{verdict}{body}</main>\n</body>\n\
         </html>\n",
        escape(&document.title)
    )
}

/// `claims-against-peers`, and a dash more for a second section of that title.
fn new_id(ids: &[String], title: &Text) -> String {
    let title = title.to_string().to_lowercase();
    let words = title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty());
    let mut id = words.collect::<Vec<_>>().join("-");
    while id.is_empty() || ids.contains(&id) {
        id.push('-');
    }
    id
}

fn block(of: &Block) -> String {
    match of {
        Block::Heading { level, text } => {
            let level = (*level).clamp(2, 6);
            format!("<h{level}>{}</h{level}>\n", inline(text))
        }
        Block::Paragraph(text) => format!("<p>{}</p>\n", inline(text)),
        Block::Bullets(items) => {
            let items: String = items
                .iter()
                .map(|item| format!("<li>{}</li>", inline(item)))
                .collect();
            format!("<ul>{items}</ul>\n")
        }
        Block::Table(of) => table(of),
        // A page without scripts draws nothing.
        Block::Chart(_) => String::new(),
        Block::Folded { summary, blocks } => {
            let body: String = blocks.iter().map(block).collect();
            format!(
                "<details><summary>{}</summary>\n{body}</details>\n",
                inline(summary)
            )
        }
    }
}

/// In a box of its own, which scrolls sideways and can be reached by keyboard.
fn table(table: &Table) -> String {
    let is_numeric: Vec<bool> = (0..table.columns.len())
        .map(|column| table.is_numeric(column))
        .collect();
    let class = |column: usize| {
        if is_numeric.get(column) == Some(&true) {
            "number"
        } else {
            ""
        }
    };
    let head = table.columns.iter().enumerate().map(|(column, title)| {
        let attributes = attribute("class", class(column));
        format!("<th scope=\"col\"{attributes}>{}</th>", escape(title))
    });
    let mut rows = format!("<tr>{}</tr>\n", head.collect::<String>());
    for row in &table.rows {
        let cells = row
            .iter()
            .enumerate()
            .map(|(column, of)| cell(of, class(column)));
        rows += &format!("<tr>{}</tr>\n", cells.collect::<String>());
    }
    format!("<div class=\"scroll\" tabindex=\"0\"><table>\n{rows}</table></div>\n")
}

fn cell(cell: &Cell, class: &str) -> String {
    let shown = cell.shown();
    let phrase = if shown.to_string().chars().count() > PHRASE {
        "phrase"
    } else {
        ""
    };
    let classes = format!(
        "{class} {phrase} {}",
        cell.tone().map(Tone::name).unwrap_or_default()
    );
    let classes = classes.split_whitespace().collect::<Vec<_>>().join(" ");
    let reason = if let Cell::Missing(reason) = cell {
        reason
    } else {
        ""
    };
    format!(
        "<td{}{}>{}</td>",
        attribute("class", &classes),
        attribute("title", reason),
        inline(&shown)
    )
}

/// None where it would be empty.
fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!(" {name}=\"{}\"", escape(value))
    }
}

pub fn inline(text: &Text) -> String {
    let span = |span: &Span| match span {
        Span::Plain(text) => escape(text),
        Span::Strong(text) => format!("<strong>{}</strong>", escape(text)),
        Span::Code(text) => format!("<code>{}</code>", escape(text)),
        Span::Link { text, href } => match target(href) {
            Some(href) => format!("<a href=\"{}\">{}</a>", escape(href), escape(text)),
            None => escape(text),
        },
    };
    text.0.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Tone, Verdict, markdown};
    use pulldown_cmark::{Event, Options, Parser};

    /// The same text at every place that takes any.
    fn everywhere(text: &str) -> Document {
        let string = || text.to_string();
        let all = || {
            Text::from(text)
                .strong(text)
                .code(text)
                .link(text, format!("results/{text}"))
        };
        let verdict = || Cell::Verdict(Tone::Bad, string());
        let mut table = Table::new([text; 5]);
        table.push(vec![
            all().into(),
            verdict(),
            Cell::change(verdict(), Cell::Missing(string())),
            verdict().noted(all()),
            Cell::Missing(string()),
        ]);
        let blocks = vec![
            Block::section(all()),
            Block::Heading {
                level: 3,
                text: all(),
            },
            Block::paragraph(all()),
            Block::bullets([all()]),
            Block::Table(table),
        ];
        Document {
            marker: None,
            title: string(),
            verdict: Some(Verdict {
                tone: Tone::Bad,
                word: string(),
                why: string(),
            }),
            blocks: [blocks.clone(), vec![Block::folded(all(), blocks)]].concat(),
        }
    }

    /// The names of the tags, and how many quotes and ends of tags there are.
    fn skeleton(page: &str) -> (Vec<&str>, usize, usize) {
        let names = page
            .split('<')
            .skip(1)
            .map(|tag| tag.split([' ', '>']).next().unwrap_or_default())
            .collect();
        (names, page.matches('"').count(), page.matches('>').count())
    }

    #[test]
    fn no_text_becomes_markup() {
        let hostile = "\"onload=\"x\"></td></summary><script>x()</script>&lt;";
        let harmless = "x".repeat(hostile.len());
        let (hostile, harmless) = (everywhere(hostile), everywhere(&harmless));
        assert_eq!(skeleton(&page(&hostile)), skeleton(&page(&harmless)));
        let text = markdown::markdown(&hostile);
        for event in Parser::new_ext(&text, Options::ENABLE_TABLES) {
            assert!(
                !matches!(&event, Event::Html(markup) | Event::InlineHtml(markup) if markup.contains("<script")),
                "{text}"
            );
        }
    }

    #[test]
    fn a_link_that_runs_something_is_text() {
        let text = Text::from("a ")
            .link("b", "javascript:c()")
            .link("d", "https://e?\"f=g&h");
        assert_eq!(
            inline(&text),
            "a b<a href=\"https://e?&quot;f=g&amp;h\">d</a>"
        );
    }

    #[test]
    fn sections_have_ids_of_their_own() {
        let blocks = ["A & b", "a-B", "–", "A b"].map(Block::section).to_vec();
        let page = page(&Document {
            blocks,
            ..Default::default()
        });
        for id in ["a-b", "a-b-", "-", "a-b--"] {
            assert!(
                page.contains(&format!("<h2 id=\"{id}\">"))
                    && page.contains(&format!("href=\"#{id}\"")),
                "{id}"
            );
        }
    }
}
