//! What a report consists of.

use std::fmt::{self, Display};

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Document {
    /// A comment that readers do not see, by which a program finds its own Markdown again.
    pub marker: Option<&'static str>,
    /// Markdown and terminals show none where it is empty.
    pub title: String,
    pub verdict: Option<Verdict>,
    pub blocks: Vec<Block>,
}

/// `PASS: 37 variants are green`
#[derive(Clone, Debug, PartialEq)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tone {
    Good,
    Bad,
    /// Somebody has to decide or to measure.
    Open,
    Neutral,
}

impl Tone {
    pub fn name(self) -> &'static str {
        match self {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Open => "open",
            Tone::Neutral => "neutral",
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
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
        Block::Heading { level: 2, text: title.into() }
    }

    pub fn paragraph(text: impl Into<Text>) -> Self {
        Block::Paragraph(text.into())
    }

    pub fn bullets<T: Into<Text>>(items: impl IntoIterator<Item = T>) -> Self {
        Block::Bullets(items.into_iter().map(T::into).collect())
    }

    pub fn folded(summary: impl Into<Text>, blocks: Vec<Block>) -> Self {
        Block::Folded { summary: summary.into(), blocks }
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
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

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub columns: Vec<String>,
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    pub fn new<T: Into<String>>(columns: impl IntoIterator<Item = T>) -> Self {
        Self { columns: columns.into_iter().map(T::into).collect(), rows: Vec::new() }
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
        let mut kinds = self.rows.iter().filter_map(|row| row.get(column)?.is_figure()).peekable();
        kinds.peek().is_some() && kinds.all(|is_figure| is_figure)
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    Text(Text),
    /// `34,077`
    Count(u64),
    /// `9.537 µs`
    Number {
        value: f64,
        digits: Digits,
        unit: &'static str,
    },
    /// `1.747x [1.736, 1.755]`
    Interval {
        value: f64,
        low: f64,
        high: f64,
        digits: Digits,
        unit: &'static str,
    },
    /// Base / new of a time: `1.54x (−35 %)`.
    Ratio(f64),
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Digits {
    /// After the point.
    Fixed(usize),
    /// In all, but no more after the point than a number between 1 and 10 has: 0.043, 9.537, 16.99, 317.6.
    Significant(usize),
    /// After the point of `3.4e-1`.
    Scientific(usize),
}

impl Digits {
    fn of(self, value: f64) -> String {
        match self {
            _ if !value.is_finite() => value.to_string(),
            Digits::Fixed(digits) => format!("{value:.digits$}"),
            Digits::Scientific(digits) => format!("{value:.digits$e}"),
            Digits::Significant(digits) => {
                let before_point = value.abs().max(1.0).log10() as usize + 1;
                format!("{value:.0$}", digits.saturating_sub(before_point))
            }
        }
    }
}

impl Cell {
    pub fn number(value: f64, digits: Digits, unit: &'static str) -> Self {
        Cell::Number { value, digits, unit }
    }

    pub fn change(from: impl Into<Cell>, to: impl Into<Cell>) -> Self {
        Cell::Change { from: Box::new(from.into()), to: Box::new(to.into()) }
    }

    pub fn noted(self, note: impl Into<Text>) -> Self {
        Cell::Noted { cell: Box::new(self), note: note.into() }
    }

    /// What readers see, the same in all formats.
    pub fn shown(&self) -> Text {
        match self {
            Cell::Text(text) => text.clone(),
            Cell::Count(count) => thousands(*count).into(),
            Cell::Number { value, digits, unit } => (digits.of(*value) + &suffix(unit)).into(),
            Cell::Interval { value, low, high, digits, unit } => {
                format!("{}{} [{}, {}]", digits.of(*value), suffix(unit), digits.of(*low), digits.of(*high)).into()
            }
            Cell::Ratio(ratio) => speedup(*ratio).into(),
            Cell::Verdict(_, word) => word.as_str().into(),
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
            Cell::Count(_) | Cell::Number { .. } | Cell::Interval { .. } | Cell::Ratio(_) => Some(true),
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

fn suffix(unit: &str) -> String {
    match unit {
        "" | "x" => unit.to_string(),
        _ => format!(" {unit}"),
    }
}

fn thousands(count: u64) -> String {
    let digits = count.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

fn speedup(ratio: f64) -> String {
    let percent = (100.0 / ratio - 100.0).round();
    if !percent.is_finite() {
        return format!("{ratio:.2}x");
    }
    format!("{ratio:.2}x ({}{:.0} %)", if percent < 0.0 { '−' } else { '+' }, percent.abs())
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
        self.0.push(Span::Link { text: text.into(), href: href.into() });
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

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text::default().plain(text)
    }
}

impl From<&String> for Text {
    fn from(text: &String) -> Self {
        Text::default().plain(text)
    }
}

impl From<String> for Text {
    fn from(text: String) -> Self {
        Text::default().plain(text)
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
    let is_web = ["https://", "http://"].iter().any(|scheme| href.starts_with(scheme));
    let is_local = !href.starts_with('/') && !href.split(['/', '?', '#']).next()?.contains(':');
    let is_plain = !href.contains(|c: char| c.is_control() || c.is_whitespace() || c == '\\');
    ((is_web || is_local) && is_plain).then_some(href)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_shown_with_their_digits_and_units() {
        let us = |value| Cell::number(value, Digits::Significant(4), "µs");
        for (cell, expected) in [
            (Cell::Count(0), "0"),
            (Cell::Count(999), "999"),
            (Cell::Count(1_234_567), "1,234,567"),
            (us(0.0431), "0.043 µs"),
            (us(0.0), "0.000 µs"),
            (us(9.5372), "9.537 µs"),
            (us(-16.994), "-16.99 µs"),
            (us(12345.6), "12346 µs"),
            (us(f64::NAN), "NaN µs"),
            (Cell::number(0.34, Digits::Scientific(1), ""), "3.4e-1"),
            (Cell::number(25.0, Digits::Fixed(0), "%"), "25 %"),
            (Cell::Ratio(1.54), "1.54x (−35 %)"),
            (Cell::Ratio(0.8), "0.80x (+25 %)"),
            (Cell::Ratio(1.001), "1.00x (+0 %)"),
            (Cell::Ratio(0.0), "0.00x"),
            (Cell::Ratio(f64::NAN), "NaNx"),
            (Cell::change(us(1.0), us(1.00001)), "1.000 µs"),
            (Cell::change(Cell::Missing("new".into()), us(1.0)), "– → 1.000 µs"),
        ] {
            assert_eq!(cell.shown().to_string(), expected, "{cell:?}");
        }
    }

    #[test]
    fn columns_of_figures_are_known_by_their_cells() {
        let mut table = Table::new(["words", "figures", "mixed", "missing"]);
        let missing = || Cell::Missing("not timed".into());
        table.push(vec!["a".into(), missing(), Cell::Count(1), missing()]);
        table.push(vec!["b".into(), Cell::change(missing(), Cell::Ratio(1.0)), "none".into(), missing()]);
        assert_eq!([0, 1, 2, 3, 4].map(|column| table.is_numeric(column)), [false, true, false, false, false]);
    }

    #[test]
    fn links_lead_to_the_web_or_to_what_lies_beside() {
        for href in ["https://a.b/c:d", "http://a", "results/x.json", "../a#b:c", "#claims", "a?b=c:d"] {
            assert_eq!(target(href), Some(href));
        }
        for href in
            ["javascript:x", " javascript:x", "java\tscript:x", "data:text/html,x", "//a.b", "/etc", "\\\\a", "a b"]
        {
            assert_eq!(target(href), None, "{href}");
        }
    }
}
