use super::*;
use crate::render::charts;

/// Every tag that is opened is closed, in order, and `<`, `>` and `&` stand for nothing else.
fn well_formed(page: &str) -> Result<(), String> {
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").ok_or("no doctype")?;
    while let Some(start) = rest.find('<') {
        if rest[..start].contains('>') && open.last().is_none_or(|tag| tag != "style") {
            return Err(format!("a stray > in {}", &rest[..start]));
        }
        let end = start + rest[start..].find('>').ok_or("a tag that does not end")?;
        let tag = &rest[start + 1..end];
        let name: String = tag.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '/').collect();
        let is_name = name.trim_start_matches('/').starts_with(|c: char| c.is_ascii_alphabetic());
        if !is_name || tag.matches('"').count() % 2 == 1 {
            return Err(format!("<{tag}> is no tag"));
        }
        match name.strip_prefix('/') {
            Some(name) if open.pop().as_deref() == Some(name) => {}
            Some(name) => return Err(format!("</{name}> closes something else")),
            None if tag.ends_with('/') => {}
            None => open.push(name),
        }
        rest = &rest[end + 1..];
    }
    if open.is_empty() { Ok(()) } else { Err(format!("{open:?} stay open")) }
}

/// Attributes and rules that make a browser load or run something.
fn loads(page: &str) -> Option<&'static str> {
    ["src=", "srcset=", "<script", "<link", "<iframe", "@import", "url(", "http://", "https://", "href=\"/", " on"]
        .into_iter()
        .find(|what| match *what {
            // Handlers, not words of the text.
            " on" => page.contains(" onload=") || page.contains(" onclick="),
            what => page.contains(what),
        })
}

fn of(markdown: &str) -> String {
    page(markdown, &[])
}

#[test]
fn a_report_is_a_whole_page_that_loads_nothing() {
    let path = std::path::Path::new("COMPARE.md");
    let files = crate::render::files(&charts::tests::timed(), path);
    let text = &files.iter().find(|file| file.path.ends_with("report.html")).unwrap().text;
    assert_eq!(well_formed(text), Ok(()));
    assert_eq!(loads(text), None);
    for part in [
        "<svg viewBox",
        "<title id=\"ladder-title\">",
        "<th scope=\"col\">",
        "lang=\"en\"",
        "prefers-color-scheme:dark",
    ] {
        assert!(text.contains(part), "{part}");
    }
    assert_eq!(text.matches("<svg").count(), 5);
    assert_eq!(text.matches("<table").count(), text.matches("class=\"scroll\" tabindex").count());
}

#[test]
fn text_that_looks_like_markup_stays_text() {
    let page = of(
        "# C\n\n**FAIL: `a<b>` & <script>x</script>**\n\n## S <img src=x>\n\n| a | b |\n|---|---|\n| <b onload=1> | 3 < 4 |\n\n<iframe src=\"x\">\n\n<details><summary>1 < 2</summary>\n\nbody\n\n</details>\n",
    );
    assert_eq!(well_formed(&page), Ok(()));
    for markup in ["<script", "<img", "<b ", "<iframe"] {
        assert!(!page.contains(markup), "{markup} in {page}");
    }
    assert!(page.contains("<summary>1 &lt; 2</summary>") && page.contains("3 &lt; 4"), "{page}");
}

#[test]
fn columns_of_numbers_and_phrases_are_known_by_their_cells() {
    let phrase = "a reason ".repeat(6);
    let table = format!("| a | b | c | d |\n|---|---|---|---|\n| x | 1.5 | – | 4 µs |\n| 2 | −3 % | – | {phrase} |\n");
    assert!(of(&table).contains("<table class=\"n2 n3 w4\">"), "{}", of(&table));
}

#[test]
fn verdicts_have_their_colour_and_the_page_its_word() {
    let page = of("# C\n\n**STALE: old**\n\n| v |\n|---|\n| GREEN |\n| FAIL C2 |\n| NO DATA |\n");
    for part in [
        "<body class=\"stale\">",
        "<td class=\"good\">GREEN</td>",
        "<td class=\"bad\">FAIL C2</td>",
        "<td class=\"open\">NO DATA</td>",
    ] {
        assert!(page.contains(part), "{part} in {page}");
    }
}

#[test]
fn the_checks_of_this_file_see_what_is_broken() {
    let good = of("# C\n\ntext\n");
    assert_eq!(well_formed(&good), Ok(()));
    for (with, error) in
        [("<p>text", "closes something else"), ("a > b", "stray"), ("a < b", "is no tag"), ("</b>", "closes")]
    {
        let broken = good.replace("<p>text</p>", with);
        assert!(well_formed(&broken).is_err_and(|found| found.contains(error)), "{with}: {:?}", well_formed(&broken));
    }
    assert_eq!(loads("<a href=\"https://x\">"), Some("https://"));
    assert_eq!(loads("<img src=\"x\"/>"), Some("src="));
}
