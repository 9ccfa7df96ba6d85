//! What a page consists of.

use std::fmt::{self, Display};

/// A part of a page.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Level 1 is the page's title, level 2 a section.
    Heading {
        level: u8,
        text: Text,
    },
    Paragraph(Text),
    Bullets(Vec<Text>),
    Table(Table),
}

impl Block {
    /// Returns the page's title.
    pub fn title(title: &str) -> Self {
        Block::Heading {
            level: 1,
            text: Text::default().plain(title),
        }
    }

    /// Returns a bold paragraph: `PASS: 37 variants pass every gate`.
    pub fn strong(text: impl Into<String>) -> Self {
        Block::Paragraph(Text::default().strong(text))
    }

    /// Returns the title of a section.
    pub fn section(title: impl Into<Text>) -> Self {
        Block::Heading {
            level: 2,
            text: title.into(),
        }
    }

    /// Returns the title of a part of a section.
    pub fn subsection(title: impl Into<Text>) -> Self {
        Block::Heading {
            level: 3,
            text: title.into(),
        }
    }

    /// Returns a paragraph.
    pub fn paragraph(text: impl Into<Text>) -> Self {
        Block::Paragraph(text.into())
    }

    /// Returns a list with a bullet for each item.
    pub fn bullets<T: Into<Text>>(items: impl IntoIterator<Item = T>) -> Self {
        Block::Bullets(items.into_iter().map(T::into).collect())
    }
}

/// A table with a title for each column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

/// The cells of a row, each with the title of its column.
pub type TableRow = Vec<(String, Cell)>;

/// Builds a [`TableRow`] from pairs of a title and anything that a cell can be.
#[macro_export]
macro_rules! row {
    ($($title:expr => $cell:expr),* $(,)?) => {
        vec![$((String::from($title), $crate::Cell::from($cell))),*]
    };
}

impl Table {
    /// Builds a table. Every row must have the columns of the first.
    pub fn from_rows(rows: impl IntoIterator<Item = TableRow>) -> Self {
        let mut table = Self::default();
        for row in rows {
            let (columns, cells): (Vec<_>, Vec<_>) = row.into_iter().unzip();
            debug_assert!(table.rows.is_empty() || table.columns == columns);
            table.columns = columns;
            table.rows.push(cells);
        }
        table
    }

    /// Returns the table without the columns that no row fills.
    pub fn filled(mut self) -> Self {
        let mut is_filled = vec![false; self.columns.len()];
        for row in &self.rows {
            for (column, cell) in row.iter().enumerate() {
                is_filled[column] |= !cell.is_blank();
            }
        }
        self.retain_columns(&is_filled);
        self
    }

    /// Returns the table without the columns of these titles.
    pub fn without(mut self, titles: &[&str]) -> Self {
        let mut is_kept = Vec::new();
        for title in &self.columns {
            is_kept.push(!titles.contains(&title.as_str()));
        }
        self.retain_columns(&is_kept);
        self
    }

    fn retain_columns(&mut self, is_kept: &[bool]) {
        retain_columns(&mut self.columns, is_kept);
        for row in &mut self.rows {
            retain_columns(row, is_kept);
        }
    }

    /// Whether the column holds figures and nothing else: these are aligned right.
    pub fn is_numeric(&self, column: usize) -> bool {
        let mut has_figure = false;
        for row in &self.rows {
            match row.get(column) {
                Some(Cell::Figure(_)) => has_figure = true,
                Some(Cell::Text(_)) => return false,
                Some(Cell::Missing | Cell::Empty) | None => {}
            }
        }
        has_figure
    }
}

fn retain_columns<T>(cells: &mut Vec<T>, is_kept: &[bool]) {
    let mut columns = is_kept.iter();
    cells.retain(|_| columns.next() == Some(&true));
}

/// A cell of a table.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(Text),
    /// `34,077`, `9.537 µs`, `1.747x [1.736, 1.755]`
    Figure(String),
    /// A figure that is not there, shown as a dash.
    Missing,
    /// A cell without text, where the page explains what that means.
    Empty,
}

impl Cell {
    fn is_blank(&self) -> bool {
        matches!(self, Cell::Missing | Cell::Empty)
    }

    /// Adds a note in parentheses: `9.537 µs (wmma-pv-32x128)`.
    pub fn noted(self, note: impl Display) -> Self {
        self.shown().plain(format!(" ({note})")).into()
    }

    /// Returns the text that a page shows for the cell.
    pub fn shown(&self) -> Text {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Figure(text) => Text::default().plain(text),
            Cell::Missing => "–".into(),
            Cell::Empty => Text::default(),
        }
    }
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Cell::Text(text.into())
    }
}

/// A line of text. `Text::from("run `compare diff` again")` takes what is between backticks as
/// code; [`Text::plain`] takes text as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Text(pub Vec<Span>);

/// A part of a line of text.
#[derive(Clone, Debug, PartialEq)]
pub enum Span {
    Plain(String),
    Strong(String),
    Code(String),
    /// A link to a file of this repository. Nothing that was read from outside becomes a link.
    Link {
        text: String,
        file: String,
    },
}

impl Text {
    /// Adds bold text.
    pub fn strong(self, text: impl Into<String>) -> Self {
        self.push(Span::Strong(text.into()))
    }

    /// Adds a link to a file of this repository.
    pub fn link(self, text: impl Into<String>, file: impl Into<String>) -> Self {
        self.push(Span::Link {
            text: text.into(),
            file: file.into(),
        })
    }

    /// Adds text as it is, backticks included.
    pub fn plain(self, text: impl Into<String>) -> Self {
        self.push(Span::Plain(text.into()))
    }

    fn push(mut self, span: Span) -> Self {
        self.0.push(span);
        self
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        let source = text.into();
        let parts: Vec<&str> = source.split('`').collect();
        // A backtick without its fellow is text.
        let has_unpaired_backtick = parts.len().is_multiple_of(2);
        let mut spans = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let is_last = index + 1 == parts.len();
            spans.push(if is_last && has_unpaired_backtick {
                Span::Plain(format!("`{part}"))
            } else if index.is_multiple_of(2) {
                Span::Plain(part.to_string())
            } else {
                Span::Code(part.to_string())
            });
        }
        Text(spans)
    }
}

impl Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for span in &self.0 {
            let (Span::Plain(text)
            | Span::Strong(text)
            | Span::Code(text)
            | Span::Link { text, .. }) = span;
            f.write_str(text)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_of_figures_are_known_by_their_cells() {
        let figure = Cell::Figure("1".into());
        let table = Table::from_rows([
            row! {
                "words" => "a",
                "figures" => Cell::Missing,
                "mixed" => figure.clone(),
                "missing" => Cell::Missing,
            },
            row! {
                "words" => "b",
                "figures" => figure,
                "mixed" => "none",
                "missing" => Cell::Missing,
            },
        ]);
        let is_numeric = [0, 1, 2, 3, 4].map(|column| table.is_numeric(column));
        assert_eq!(is_numeric, [false, true, false, false, false]);
        assert_eq!(table.filled().columns, ["words", "figures", "mixed"]);
    }

    #[test]
    fn what_stands_between_backticks_is_code() {
        let code = |text: &str| Span::Code(text.into());
        let plain = |text: &str| Span::Plain(text.into());
        for (text, expected) in [
            ("run `a` now", vec![plain("run "), code("a"), plain(" now")]),
            ("`a``b", vec![plain(""), code("a"), plain(""), plain("`b")]),
        ] {
            assert_eq!(Text::from(text).0, expected);
        }
    }
}
