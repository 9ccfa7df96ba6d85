//! What a page consists of.

use serde::{Serialize, Serializer};
use std::fmt::{self, Display};

/// In JSON each block and cell is an object whose only key is its kind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Document {
    /// A hidden comment by which a program recognises the Markdown that it wrote.
    #[serde(skip)]
    pub marker: Option<&'static str>,
    /// May be empty: then Markdown and terminals show no title.
    pub title: String,
    pub verdict: Option<Verdict>,
    pub blocks: Vec<Block>,
}

impl Document {
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
    pub word: String,
    pub why: String,
}

impl Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word, self.why)
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Block {
    /// Level 1 is the document's title, level 2 a section.
    Heading {
        level: u8,
        text: Text,
    },
    Paragraph(Text),
    Bullets(Vec<Text>),
    Table(Table),
}

impl Block {
    pub fn section(title: impl Into<Text>) -> Self {
        Block::Heading {
            level: 2,
            text: title.into(),
        }
    }

    pub fn subsection(title: impl Into<Text>) -> Self {
        Block::Heading {
            level: 3,
            text: title.into(),
        }
    }

    pub fn paragraph(text: impl Into<Text>) -> Self {
        Block::Paragraph(text.into())
    }

    pub fn bullets<T: Into<Text>>(items: impl IntoIterator<Item = T>) -> Self {
        Block::Bullets(items.into_iter().map(T::into).collect())
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// A row of a table: the title of each column, and the cell in it.
pub type TableRow = Vec<(String, Cell)>;

/// A [`TableRow`], of any text for titles and anything that a cell can be.
macro_rules! row {
    ($($title:expr => $cell:expr),* $(,)?) => {
        vec![$((String::from($title), $crate::document::Cell::from($cell))),*]
    };
}
pub(crate) use row;

impl Table {
    /// Every row must have the columns of the first.
    pub fn of(rows: impl IntoIterator<Item = TableRow>) -> Self {
        let mut table = Self::default();
        for row in rows {
            let (columns, cells): (Vec<_>, Vec<_>) = row.into_iter().unzip();
            debug_assert!(table.rows.is_empty() || table.columns == columns);
            table.columns = columns;
            table.rows.push(cells);
        }
        table
    }

    /// Without the columns that no row fills.
    pub fn filled(mut self) -> Self {
        let is_filled = |column: &usize| {
            let mut rows = self.rows.iter();
            rows.any(|row| !matches!(row[*column], Cell::Missing(_)))
        };
        let filled: Vec<usize> = (0..self.columns.len()).filter(is_filled).collect();
        let pick = |cells: &[Cell]| filled.iter().map(|&column| cells[column].clone()).collect();
        self.rows = self.rows.iter().map(|row| pick(row)).collect();
        self.columns = filled
            .iter()
            .map(|&column| self.columns[column].clone())
            .collect();
        self
    }

    /// Whether the column holds figures and nothing else: these are aligned right.
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
    /// `34,077`, `9.537 µs`, `1.747x [1.736, 1.755]`: a number, its interval if it has one, and both as text.
    Figure {
        value: f64,
        #[serde(skip_serializing_if = "Option::is_none")]
        interval: Option<(f64, f64)>,
        text: String,
    },
    /// `9.537 µs (wmma-pv-32x128)`
    Noted {
        cell: Box<Cell>,
        note: Text,
    },
    /// Shown as a dash; JSON has the reason.
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

    pub fn noted(self, note: impl Into<Text>) -> Self {
        Cell::Noted {
            cell: Box::new(self),
            note: note.into(),
        }
    }

    pub fn shown(&self) -> Text {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Figure { text, .. } => text.into(),
            Cell::Noted { cell, note } => cell.shown().plain(" (").text(note.clone()).plain(")"),
            Cell::Missing(_) => "–".into(),
        }
    }

    /// `None` if it is missing.
    fn is_figure(&self) -> Option<bool> {
        match self {
            Cell::Figure { .. } => Some(true),
            Cell::Text(_) | Cell::Noted { .. } => Some(false),
            Cell::Missing(_) => None,
        }
    }
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::Text(text.into())
    }
}

/// A line of text. `Text::from("run `compare diff` again")` takes what is between backticks as code; [`Text::plain`] takes
/// text as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(pub Vec<Span>);

#[derive(Clone, Debug, PartialEq)]
pub enum Span {
    Plain(String),
    Strong(String),
    Code(String),
    /// To a file of this repository. Nothing that was read becomes a link.
    Link {
        text: String,
        file: String,
    },
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

    pub fn link(mut self, text: impl Into<String>, file: impl Into<String>) -> Self {
        let (text, file) = (text.into(), file.into());
        self.0.push(Span::Link { text, file });
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
        let (text, mut all) = (text.into(), Text::default());
        let mut rest = text.as_str();
        while let Some((plain, code, after)) = before_code(rest) {
            all = all.plain(plain).code(code);
            rest = after;
        }
        all.plain(rest)
    }
}

/// Splits "a `b` c" into a, b and c.
fn before_code(text: &str) -> Option<(&str, &str, &str)> {
    let (plain, rest) = text.split_once('`')?;
    let (code, after) = rest.split_once('`')?;
    Some((plain, code, after))
}

impl Serialize for Text {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|span| match span {
            Span::Plain(text) | Span::Strong(text) | Span::Code(text) | Span::Link { text, .. } => {
                f.write_str(text)
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_figures_are_known_by_their_cells() {
        let missing = || Cell::Missing("not timed".into());
        let table = Table::of([
            row! {
                "words" => "a",
                "figures" => missing(),
                "mixed" => Cell::figure(1.0, "1"),
                "missing" => missing(),
            },
            row! {
                "words" => "b",
                "figures" => Cell::figure(1.0, "1x"),
                "mixed" => "none",
                "missing" => missing(),
            },
        ]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|column| table.is_numeric(column)),
            [false, true, false, false, false]
        );
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        let code = |text: &str| Span::Code(text.into());
        let plain = |text: &str| Span::Plain(text.into());
        for (text, expected) in [
            (
                "run `a b` now",
                vec![plain("run "), code("a b"), plain(" now")],
            ),
            ("`a``b`", vec![code("a"), code("b")]),
            ("it`s", vec![plain("it`s")]),
            ("", vec![]),
        ] {
            assert_eq!(Text::from(text).0, expected);
        }
    }
}
