//! What a page consists of.

use std::fmt::{self, Display};

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
    pub fn title(title: &str) -> Self {
        Block::Heading {
            level: 1,
            text: Text::default().plain(title),
        }
    }

    /// `PASS: 37 variants pass every gate`
    pub fn strong(text: impl Into<String>) -> Self {
        Block::Paragraph(Text::default().strong(text))
    }

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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

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
        let is_filled = |column: usize| self.rows.iter().any(|row| !row[column].is_blank());
        let filled: Vec<bool> = (0..self.columns.len()).map(is_filled).collect();
        fn retain<T>(cells: &mut Vec<T>, filled: &[bool]) {
            let mut is_filled = filled.iter();
            cells.retain(|_| is_filled.next() == Some(&true));
        }
        retain(&mut self.columns, &filled);
        self.rows.iter_mut().for_each(|row| retain(row, &filled));
        self
    }

    /// Whether the column holds figures and nothing else: these are aligned right.
    pub fn is_numeric(&self, column: usize) -> bool {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let mut cells = cells.filter(|cell| !cell.is_blank()).peekable();
        cells.peek().is_some() && cells.all(|cell| matches!(cell, Cell::Figure(_)))
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(Text),
    /// `34,077`, `9.537 µs`, `1.747x [1.736, 1.755]`
    Figure(String),
    /// A dash.
    Missing,
    /// Nothing, where the page says what that means.
    Empty,
}

impl Cell {
    fn is_blank(&self) -> bool {
        matches!(self, Cell::Missing | Cell::Empty)
    }

    /// `9.537 µs (wmma-pv-32x128)`
    pub fn noted(self, note: impl Display) -> Self {
        self.shown().plain(format!(" ({note})")).into()
    }

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
    pub fn strong(self, text: impl Into<String>) -> Self {
        self.with(Span::Strong(text.into()))
    }

    pub fn link(self, text: impl Into<String>, file: impl Into<String>) -> Self {
        let (text, file) = (text.into(), file.into());
        self.with(Span::Link { text, file })
    }

    pub fn plain(self, text: impl Into<String>) -> Self {
        self.with(Span::Plain(text.into()))
    }

    fn with(mut self, span: Span) -> Self {
        self.0.push(span);
        self
    }
}

impl<T: Into<String>> From<T> for Text {
    fn from(text: T) -> Self {
        let text = text.into();
        let mut parts: Vec<&str> = text.split('`').collect();
        // A backtick without its fellow is text.
        let last = parts.len().is_multiple_of(2).then(|| parts.pop()).flatten();
        let part = |(index, part): (usize, &&str)| match index % 2 {
            0 => Span::Plain(part.to_string()),
            _ => Span::Code(part.to_string()),
        };
        let mut all = Text(parts.iter().enumerate().map(part).collect());
        if let Some(last) = last {
            all = all.plain(format!("`{last}"));
        }
        all
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
        let row = |words: &str, figures, mixed| row! { "words" => words, "figures" => figures, "mixed" => mixed, "missing" => Cell::Missing };
        let one = || Cell::Figure("1".into());
        let table = Table::of([
            row("a", Cell::Missing, one()),
            row("b", one(), "none".into()),
        ]);
        assert_eq!(
            [0, 1, 2, 3, 4].map(|column| table.is_numeric(column)),
            [false, true, false, false, false]
        );
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
