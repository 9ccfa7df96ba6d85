//! `report.html`: COMPARE.md as one page that needs nothing but itself, with its charts in it, for light and dark grounds
//! and narrow screens. What a browser would have to load, or run, is not in it.

use super::Picture;
use super::charts::svg::{CLASSES, DARK, LIGHT, escape};
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd, html};

/// Lines of raw markup that reports have; other markup in them is text, such as a reason that quotes `<x>`.
const MARKUP: [&str; 3] = ["<details><summary>", "</details>", "<!--"];

const STYLE: &str = include_str!("html/style.css");

/// The page that says what `markdown` says; `pictures` are those that it shows.
pub fn page(markdown: &str, pictures: &[Picture]) -> String {
    let events: Vec<Event<'_>> = Parser::new_ext(markdown, Options::ENABLE_TABLES).collect();
    let headings = headings(&events);
    let classes = column_classes(&events);
    let mut body = String::new();
    html::push_html(&mut body, transformed(events, &headings, pictures).into_iter());
    let verdict = markdown.lines().find_map(|line| line.strip_prefix("**")?.strip_suffix("**")).unwrap_or("no verdict");
    let word = verdict.split(':').next().unwrap_or(verdict);
    let links: String =
        headings.iter().map(|(id, title)| format!("<li><a href=\"#{id}\">{}</a></li>", escape(title))).collect();
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>{word}: the attention ladder</title>\n\
         <style>:root{{{LIGHT}}}@media(prefers-color-scheme:dark){{:root{{{DARK}}}}}{CLASSES}\n{STYLE}</style>\n</head>\n\
         <body class=\"{}\">\n<main>\n<nav aria-label=\"Sections\"><ul>{links}</ul></nav>\n{}</main>\n</body>\n</html>\n",
        escape(&word.to_lowercase()),
        with_boxes(&with_verdicts(&body), &classes)
    )
}

/// Id and title of each section.
fn headings(events: &[Event<'_>]) -> Vec<(String, String)> {
    let mut headings: Vec<(String, String)> = Vec::new();
    let mut open = false;
    for event in events {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H2, .. }) => {
                open = true;
                headings.push(Default::default());
            }
            Event::End(TagEnd::Heading(_)) => open = false,
            Event::Text(text) | Event::Code(text) if open => {
                if let Some((id, title)) = headings.last_mut() {
                    title.push_str(text);
                    *id = title.to_lowercase().replace(|c: char| !c.is_ascii_alphanumeric(), "-");
                }
            }
            _ => {}
        }
    }
    headings
}

/// Sections get their ids, pictures are drawn, and markup that reports do not have becomes text.
fn transformed<'a>(events: Vec<Event<'a>>, headings: &[(String, String)], pictures: &[Picture]) -> Vec<Event<'a>> {
    let mut ids = headings.iter().map(|(id, _)| id.clone());
    let mut within_picture = false;
    let mut out = Vec::with_capacity(events.len());
    for event in events {
        match event {
            Event::Start(Tag::Heading { level: HeadingLevel::H2, classes, attrs, .. }) => {
                let id = ids.next().map(CowStr::from);
                out.push(Event::Start(Tag::Heading { level: HeadingLevel::H2, id, classes, attrs }));
            }
            Event::Start(Tag::Image { dest_url, .. }) => {
                within_picture = true;
                if let Some(picture) = pictures.iter().find(|picture| picture.path == *dest_url) {
                    out.push(Event::InlineHtml(figure(picture).into()));
                }
            }
            Event::End(TagEnd::Image) => within_picture = false,
            _ if within_picture => {}
            Event::Html(text) | Event::InlineHtml(text) => {
                let known = text.trim().is_empty() || MARKUP.iter().any(|markup| text.starts_with(markup));
                out.push(if known { Event::Html(summary_escaped(&text).into()) } else { Event::Text(text) });
            }
            other => out.push(other),
        }
    }
    out
}

/// A summary is text, too.
fn summary_escaped(line: &str) -> String {
    let inner = line.trim_end().strip_prefix("<details><summary>").and_then(|rest| rest.strip_suffix("</summary>"));
    match inner {
        Some(text) => format!("<details><summary>{}</summary>\n", escape(text)),
        None if line.starts_with("<!--") => String::new(),
        None => line.to_string(),
    }
}

/// A picture under its title, which scrolls where it is wider than the screen.
fn figure(picture: &Picture) -> String {
    let title = escape(&picture.chart.title);
    format!(
        "<span class=\"figure\"><strong>{title}</strong><span class=\"scroll\">{}</span></span>",
        picture.chart.inline()
    )
}

/// A cell of more characters than this is a phrase, which may take several lines.
const PHRASE: usize = 48;
/// A cell of more characters than this is no number, whatever it starts with: `20261121T112118Z-nvidia-h200`.
const NUMBER: usize = 24;

/// For each table, a class for each column of numbers and of phrases: `n4 n5 w6`.
fn column_classes(events: &[Event<'_>]) -> Vec<String> {
    let mut tables: Vec<Vec<Column>> = Vec::new();
    let (mut column, mut in_head, mut cell) = (0, false, String::new());
    for event in events {
        match event {
            Event::Start(Tag::Table(alignments)) => tables.push(vec![Column::default(); alignments.len()]),
            Event::Start(Tag::TableHead) => in_head = true,
            Event::End(TagEnd::TableHead) => in_head = false,
            Event::Start(Tag::TableRow) => column = 0,
            Event::Start(Tag::TableCell) => cell.clear(),
            Event::Text(text) | Event::Code(text) => cell.push_str(text),
            Event::End(TagEnd::TableCell) if !in_head => {
                let (first, length) = (cell.chars().next().unwrap_or('–'), cell.chars().count());
                let is_number = (first.is_ascii_digit() || "–−-+?".contains(first)) && length <= NUMBER;
                if let Some(column) = tables.last_mut().and_then(|table| table.get_mut(column)) {
                    column.has_word |= !is_number;
                    column.has_phrase |= length > PHRASE;
                }
                column += 1;
            }
            _ => {}
        }
    }
    let class = |(index, column): (usize, &Column)| match column {
        Column { has_phrase: true, .. } => Some(format!("w{}", index + 1)),
        Column { has_word: false, .. } => Some(format!("n{}", index + 1)),
        _ => None,
    };
    let classes = |table: Vec<Column>| table.iter().enumerate().filter_map(class).collect::<Vec<_>>().join(" ");
    tables.into_iter().map(classes).collect()
}

/// What is in the cells of a column.
#[derive(Clone, Copy, Debug, Default)]
struct Column {
    has_word: bool,
    has_phrase: bool,
}

/// Tables in boxes of their own, which scroll sideways; heads say what they head.
fn with_boxes(body: &str, classes: &[String]) -> String {
    let mut parts = body.split("<table>");
    let mut out = parts.next().unwrap_or_default().to_string();
    for (part, class) in parts.zip(classes) {
        // A box that scrolls can be reached by keyboard.
        out.push_str("<div class=\"scroll\" tabindex=\"0\">");
        out.push_str(&if class.is_empty() { "<table>".to_string() } else { format!("<table class=\"{class}\">") });
        out.push_str(part);
    }
    out.replace("</table>", "</table></div>").replace("<th>", "<th scope=\"col\">")
}

/// Cells that are a verdict have its colour.
fn with_verdicts(body: &str) -> String {
    const COLOURS: [(&str, &str); 8] = [
        ("GREEN", "good"),
        ("PASS", "good"),
        ("FAIL", "bad"),
        ("SLOWER", "bad"),
        ("WORSE", "bad"),
        ("NEGATIVE", "open"),
        ("AMBIGUOUS", "open"),
        ("NO DATA", "open"),
    ];
    let mut out = body.to_string();
    for (word, class) in COLOURS {
        out = out.replace(&format!("<td>{word}</td>"), &format!("<td class=\"{class}\">{word}</td>"));
        if class == "bad" {
            out = out.replace(&format!("<td>{word} "), &format!("<td class=\"{class}\">{word} "));
        }
    }
    out
}

#[cfg(test)]
mod tests;
