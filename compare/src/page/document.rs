//! What a report consists of.

use serde::{Serialize, Serializer};
use std::fmt::{self, Display};

/// Written as JSON, each block and cell is an object with its kind as the one name.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Document {
    /// A comment that readers do not see, by which a program finds its own Markdown again.
    #[serde(skip)]
    pub marker: Option<&'static str>,
    /// Markdown and terminals show none where it is empty.
    pub title: String,
    pub verdict: Option<Verdict>,
    pub blocks: Vec<Block>,
}

impl Document {
    /// Without a title and a verdict.
    pub fn of(blocks: Vec<Block>) -> Self {
        Self {
            blocks,
            ..Self::default()
        }
    }
}

/// `PASS: 37 variants are green`
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Verdict {
    pub tone: Tone,
    pub word: String,
    pub why: String,
}

/// The cells of a row, each of anything that a cell can be.
macro_rules! row {
    ($($cell:expr),* $(,)?) => { vec![$($crate::page::Cell::from($cell)),*] };
}
pub(crate) use row;

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word, self.why)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tone {
    Good,
    Bad,
    /// Somebody has to decide or to measure.
    Open,
    Neutral,
}

impl Tone {
    /// `good`
    pub fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Level 2 is a section, which a page lists; the document's title is level 1.
    Heading {
        level: u8,
        text: Text,
    },
    Paragraph(Text),
    Bullets(Vec<Text>),
    Table(Table),
    /// Lines over the same points, where the format draws; a table has the figures.
    Chart(Chart),
    /// Details behind one line. A terminal shows the line alone.
    Folded {
        summary: Text,
        blocks: Vec<Block>,
    },
}

impl Block {
    pub fn section(title: impl Into<Text>) -> Self {
        Block::Heading {
            level: 2,
            text: title.into(),
        }
    }

    pub fn paragraph(text: impl Into<Text>) -> Self {
        Block::Paragraph(text.into())
    }

    pub fn bullets<T: Into<Text>>(items: impl IntoIterator<Item = T>) -> Self {
        Block::Bullets(items.into_iter().map(T::into).collect())
    }

    pub fn folded(summary: impl Into<Text>, blocks: Vec<Block>) -> Self {
        Block::Folded {
            summary: summary.into(),
            blocks,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chart {
    pub title: String,
    pub x_axis: String,
    pub y_axis: String,
    /// From 0 to this.
    pub y_end: f64,
    /// Of the points, from left to right.
    pub points: Vec<String>,
    pub lines: Vec<Vec<f64>>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new<T: Into<String>>(columns: impl IntoIterator<Item = T>) -> Self {
        Self {
            columns: columns.into_iter().map(T::into).collect(),
            rows: Vec::new(),
        }
    }

    /// A table of these rows, each with a cell for each column.
    pub fn of<T: Into<String>>(
        columns: impl IntoIterator<Item = T>,
        rows: impl IntoIterator<Item = Vec<Cell>>,
    ) -> Self {
        let mut table = Self::new(columns);
        rows.into_iter().for_each(|cells| table.push(cells));
        table
    }

    /// Adds a row with a cell for each column.
    pub fn push(&mut self, cells: Vec<Cell>) {
        debug_assert_eq!(cells.len(), self.columns.len(), "{cells:?}");
        self.rows.push(cells);
    }

    /// Whether what there is in the column is figures, which are aligned on the right.
    pub fn is_numeric(&self, column: usize) -> bool {
        let mut kinds = self
            .rows
            .iter()
            .filter_map(|row| row.get(column)?.is_figure())
            .peekable();
        kinds.peek().is_some() && kinds.all(|is_figure| is_figure)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cell {
    Text(Text),
    /// `34,077`, `9.537 µs`, `1.747x [1.736, 1.755]`: a number, its interval where it has one, and how they are written.
    Figure {
        value: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<(f64, f64)>,
        text: String,
    },
    /// `GREEN`, `FAIL C2`
    Verdict(Tone, String),
    /// `9.537 µs → 9.312 µs`; once where both look the same.
    Change {
        from: Box<Cell>,
        to: Box<Cell>,
    },
    /// `9.537 µs (wmma-pv-32x128)`
    Noted {
        cell: Box<Cell>,
        note: Text,
    },
    /// A dash; the reason is for those who ask.
    Missing(String),
}

impl Cell {
    pub fn figure(value: f64, text: impl Into<String>) -> Self {
        Cell::Figure {
            value,
            interval: None,
            text: text.into(),
        }
    }

    pub fn change(from: impl Into<Cell>, to: impl Into<Cell>) -> Self {
        Cell::Change {
            from: Box::new(from.into()),
            to: Box::new(to.into()),
        }
    }

    pub fn noted(self, note: impl Into<Text>) -> Self {
        Cell::Noted {
            cell: Box::new(self),
            note: note.into(),
        }
    }

    /// What readers see, the same in all formats.
    pub fn shown(&self) -> Text {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Figure { text, .. } | Cell::Verdict(_, text) => text.into(),
            Cell::Change { from, to } => match (from.shown(), to.shown()) {
                (from, to) if from == to => to,
                (from, to) => from.plain(" → ").text(to),
            },
            Cell::Noted { cell, note } => cell.shown().plain(" (").text(note.clone()).plain(")"),
            Cell::Missing(_) => "–".into(),
        }
    }

    /// The tone of a verdict; of a change, that of what it is now.
    pub fn tone(&self) -> Option<Tone> {
        match self {
            Cell::Verdict(tone, _) => Some(*tone),
            Cell::Change { to: cell, .. } | Cell::Noted { cell, .. } => cell.tone(),
            _ => None,
        }
    }

    /// `None` for what is missing.
    fn is_figure(&self) -> Option<bool> {
        match self {
            Cell::Figure { .. } => Some(true),
            Cell::Text(_) | Cell::Verdict(..) | Cell::Noted { .. } => Some(false),
            Cell::Change { from, to } => to.is_figure().or(from.is_figure()),
            Cell::Missing(_) => None,
        }
    }
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::Text(text.into())
    }
}

/// A line of text: `Text::from("run ").code("compare diff").plain(" again")`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(pub Vec<Span>);

#[derive(Clone, Debug, PartialEq)]
pub enum Span {
    Plain(String),
    Strong(String),
    Code(String),
    Link { text: String, href: String },
}

impl Text {
    pub fn strong(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Strong(text.into()));
        self
    }

    pub fn code(mut self, text: impl Into<String>) -> Self {
        self.0.push(Span::Code(text.into()));
        self
    }

    pub fn link(mut self, text: impl Into<String>, href: impl Into<String>) -> Self {
        self.0.push(Span::Link {
            text: text.into(),
            href: href.into(),
        });
        self
    }

    pub fn plain(mut self, text: impl Into<String>) -> Self {
        let text = text.into();
        match self.0.last_mut() {
            Some(Span::Plain(before)) => before.push_str(&text),
            _ if text.is_empty() => {}
            _ => self.0.push(Span::Plain(text)),
        }
        self
    }

    pub fn text(self, text: Text) -> Self {
        text.0.into_iter().fold(self, |mut all, span| match span {
            Span::Plain(text) => all.plain(text),
            span => {
                all.0.push(span);
                all
            }
        })
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        Text::default().plain(text)
    }
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Without markup.
impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|span| match span {
            Span::Plain(text) | Span::Strong(text) | Span::Code(text) => f.write_str(text),
            Span::Link { text, href } => match target(href) {
                Some(href) if !href.starts_with('#') => write!(f, "{text} ({href})"),
                _ => f.write_str(text),
            },
        })
    }
}

/// Where a link may lead: a web page, a file beside the document, or a place in it. Any other link is shown as its text.
pub fn target(href: &str) -> Option<&str> {
    let is_web = ["https://", "http://"]
        .iter()
        .any(|scheme| href.starts_with(scheme));
    let is_local = !href.starts_with('/') && !href.split(['/', '?', '#']).next()?.contains(':');
    let is_plain = !href.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\');
    ((is_web || is_local) && is_plain).then_some(href)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_does_not_show_is_one_figure() {
        let us = |value: f64| Cell::figure(value, format!("{value:.3} µs"));
        for (cell, expected) in [
            (Cell::change(us(1.0), us(1.00001)), "1.000 µs"),
            (Cell::change(us(1.0), us(1.1)), "1.000 µs → 1.100 µs"),
            (
                Cell::change(Cell::Missing("new".into()), us(1.0)),
                "– → 1.000 µs",
            ),
        ] {
            assert_eq!(cell.shown().to_string(), expected, "{cell:?}");
        }
    }

    #[test]
    fn columns_of_figures_are_known_by_their_cells() {
        let mut table = Table::new(["words", "figures", "mixed", "missing"]);
        let missing = || Cell::Missing("not timed".into());
        table.push(vec![
            "a".into(),
            missing(),
            Cell::figure(1.0, "1"),
            missing(),
        ]);
        table.push(vec![
            "b".into(),
            Cell::change(missing(), Cell::figure(1.0, "1x")),
            "none".into(),
            missing(),
        ]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|column| table.is_numeric(column)),
            [false, true, false, false, false]
        );
    }

    #[test]
    fn links_lead_to_the_web_or_to_what_lies_beside() {
        for href in [
            "https://a.b/c:d",
            "http://a",
            "results/x.json",
            "../a#b:c",
            "#claims",
            "a?b=c:d",
        ] {
            assert_eq!(target(href), Some(href));
        }
        for href in [
            "javascript:x",
            " javascript:x",
            "java\tscript:x",
            "data:text/html,x",
            "//a.b",
            "/etc",
            "\\\\a",
            "a b",
        ] {
            assert_eq!(target(href), None, "{href}");
        }
    }
}
