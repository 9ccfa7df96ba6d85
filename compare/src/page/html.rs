//! A self-contained page: no scripts, nothing for a browser to load.

use super::{Block, Cell, Document, Span, Table, Text, Tone};

const LIGHT: &str = "--ground:#fff;--text:#1c2128;--faint:#57606a;--line:#d8dee4";
const DARK: &str = "--ground:#12161b;--text:#e6edf3;--faint:#9aa4af;--line:#353c44";

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

const STYLE: &str = include_str!("style.css");

/// A cell with more characters may wrap.
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

/// `claims-against-peers`; a second section with the same title gets another dash.
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
        // Drawing it would take a script.
        Block::Diagram(_) => String::new(),
    }
}

/// In a box that scrolls sideways and takes the keyboard focus.
fn table(table: &Table) -> String {
    let class = |column: usize| match table.is_numeric(column) {
        true => "number",
        false => "",
    };
    let classes: Vec<&str> = (0..table.columns.len()).map(class).collect();
    let head = table.columns.iter().zip(&classes).map(|(title, class)| {
        let attributes = attribute("class", class);
        format!("<th scope=\"col\"{attributes}>{}</th>", escape(title))
    });
    let mut rows = format!("<tr>{}</tr>\n", head.collect::<String>());
    for row in &table.rows {
        let cells = row.iter().zip(&classes).map(|(of, class)| cell(of, class));
        rows += &format!("<tr>{}</tr>\n", cells.collect::<String>());
    }
    format!("<div class=\"scroll\" tabindex=\"0\"><table>\n{rows}</table></div>\n")
}

fn cell(cell: &Cell, class: &str) -> String {
    let shown = cell.shown();
    let phrase = (shown.to_string().chars().count() > PHRASE).then_some("phrase");
    let tone = cell.tone().map(Tone::name);
    let classes = [Some(class), phrase, tone.as_deref()];
    let classes: Vec<&str> = classes
        .into_iter()
        .flatten()
        .filter(|class| !class.is_empty())
        .collect();
    let classes = classes.join(" ");
    let reason = match cell {
        Cell::Missing(reason) => reason,
        _ => "",
    };
    format!(
        "<td{}{}>{}</td>",
        attribute("class", &classes),
        attribute("title", reason),
        inline(&shown)
    )
}

/// Nothing if the value is empty.
fn attribute(name: &str, value: &str) -> String {
    if value.is_empty() {
        String::new()
    } else {
        format!(" {name}=\"{}\"", escape(value))
    }
}

fn inline(text: &Text) -> String {
    let span = |span: &Span| match span {
        Span::Plain(text) => escape(text),
        Span::Strong(text) => format!("<strong>{}</strong>", escape(text)),
        Span::Code(text) => format!("<code>{}</code>", escape(text)),
        Span::Link(file) => format!("<a href=\"{file}\">{file}</a>"),
    };
    text.0.iter().map(span).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::{Tone, Verdict, markdown, row};
    use pulldown_cmark::{Event, Options, Parser};

    /// The same text at every place that takes any.
    fn everywhere(text: &str) -> Document {
        let string = || text.to_string();
        let all = || Text::default().plain(text).strong(text).code(text);
        let verdict = || Cell::Verdict(Tone::Bad, string());
        let table = Table::of([row! {
            text => all(),
            text => verdict(),
            text => verdict().noted(all()),
            text => Cell::Missing(string()),
        }]);
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
            blocks,
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
