//! The Markdown as a self-contained page: no scripts, nothing for a browser to load.

use super::{Document, markdown};
use pulldown_cmark::{Options, Parser};

const STYLE: &str = include_str!("style.css");

pub fn page(document: &Document) -> String {
    let title = document.verdict.as_ref().unwrap_or(&document.title);
    let text = markdown::markdown(document);
    let mut body = String::new();
    pulldown_cmark::html::push_html(&mut body, Parser::new_ext(&text, Options::ENABLE_TABLES));
    let title = title.replace('&', "&amp;").replace('<', "&lt;");
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <meta name=\"color-scheme\" content=\"light dark\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::{Block, Cell, Table, Text, row};

    /// The same text at every place that takes any.
    fn everywhere(text: &str) -> Document {
        let string = || text.to_string();
        let all = || Text::from(format!("`{text}`")).plain(text).strong(text);
        let table = Table::of([row! {
            text => all(),
            text => Cell::Figure(string()),
            text => Cell::from(string()).noted(text),
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
            title: string(),
            verdict: Some(string()),
            blocks,
        }
    }

    fn tags(page: &str) -> Vec<&str> {
        let tags = page.split('<').skip(1);
        tags.map(|tag| tag.split('>').next().unwrap_or_default())
            .collect()
    }

    #[test]
    fn no_text_becomes_markup() {
        let hostile = "\"onload=\"x\"></td></summary><script>x()</script>&lt;";
        let harmless = "x".repeat(hostile.len());
        let (hostile, harmless) = (everywhere(hostile), everywhere(&harmless));
        let page = page(&harmless);
        assert_eq!(tags(&super::page(&hostile)), tags(&page));
        for part in ["default-src 'none'; style-src", "<title>xxx", "<table>"] {
            assert!(page.contains(part), "{part}");
        }
    }
}
