//! Figures that moved, before → after: a row per kernel and place, and a column per kind of figure.

use super::short;
use crate::document::{Cell, Table, Text, row};
use crate::judge::diff::{Change, Difference, What};
use crate::judge::list::{distinct, grouped, joined};
use crate::pages::columns::column;
use crate::table::Subject;
use common::metric::{Better, Metric};

/// A row: all that moved of a kernel, at the places where it moved alike.
pub struct Line {
    kernel: Subject,
    at: Vec<String>,
    verdict: String,
    cells: Vec<(&'static str, Cell)>,
}

/// The column that a difference stands in, if it is of a figure.
fn title(difference: &Difference) -> Option<&'static str> {
    match difference.what {
        What::Metric(metric) => Some(column(metric).0),
        _ => None,
    }
}

/// Latencies: each problem is a row of its own, with what decided.
pub fn times(differences: &[&Difference]) -> Vec<Line> {
    let line = |d: &&Difference| {
        let ratio = d.ratio.map(|ratio| format!("{:.2}x", ratio.value));
        let words = [Some(word(d.change).to_string()), ratio];
        Line {
            kernel: d.subject.clone(),
            at: vec![d.place().to_string()],
            verdict: format!("{}: {}", joined(words.into_iter().flatten(), ", "), d.why),
            cells: vec![(title(d).unwrap_or_default(), before_after(d).into())],
        }
    };
    differences.iter().map(line).collect()
}

/// All other figures.
pub fn figures(differences: &[&Difference]) -> Vec<Line> {
    let titles = titles(differences);
    let by_place = grouped(differences.iter().map(|d| ((&d.subject, d.place()), *d)));
    let lines = by_place.into_iter().map(|((kernel, place), moved)| {
        let worst = moved.iter().map(|d| d.change).min();
        let cells = titles.iter().map(|&title| (title, cell(title, &moved)));
        let verdict = worst.map_or("", word);
        ((kernel, verdict, Vec::from_iter(cells)), place)
    });
    let merged = grouped(lines).into_iter();
    merged
        .map(|((kernel, verdict, cells), places)| Line {
            kernel: kernel.clone(),
            at: places.into_iter().map(|place| place.to_string()).collect(),
            verdict: verdict.to_string(),
            cells,
        })
        .collect()
}

/// In the order of the registry.
pub fn titles(differences: &[&Difference]) -> Vec<&'static str> {
    let has = |metric: &&Metric| {
        let mut all = differences.iter();
        all.any(|d| d.what == What::Metric(**metric))
    };
    distinct(
        Metric::ALL
            .iter()
            .filter(has)
            .map(|metric| column(*metric).0),
    )
}

/// The figures of a column. What is worse is strong.
fn cell(column_title: &str, moved: &[&Difference]) -> Cell {
    let here = Vec::from_iter(moved.iter().filter(|d| title(d) == Some(column_title)));
    if here.is_empty() {
        return Cell::Missing;
    }
    let mut text = Text::default();
    for (index, difference) in here.into_iter().enumerate() {
        let What::Metric(metric) = difference.what else {
            continue;
        };
        let separator = if index > 0 { "; " } else { "" };
        let part = match column(metric).1 {
            "" => String::new(),
            part => format!("{part} "),
        };
        text = text.plain(format!("{separator}{part}"));
        text = match difference.change {
            Change::Worse => text.strong(before_after(difference)),
            _ => text.plain(before_after(difference)),
        };
        let is_overruled = difference.change == Change::Informational
            && metric.spec().better != Better::Informational;
        if is_overruled {
            text = text.plain(format!(" ({})", difference.why));
        }
    }
    text.into()
}

/// `96 → 80`
fn before_after(difference: &Difference) -> String {
    let shown = |value: &Option<String>| value.clone().unwrap_or("–".to_string());
    format!("{} → {}", shown(&difference.base), shown(&difference.new))
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Informational => "changed",
        other => other.word(),
    }
}

/// Without the columns that none of these lines fills.
pub fn table(lines: &[Line]) -> Table {
    let row = |line: &Line| {
        let named = row! { "kernel" => short(&line.kernel), "at" => joined(&line.at, ", ") };
        let cells = line
            .cells
            .iter()
            .map(|(title, cell)| (title.to_string(), cell.clone()));
        let verdict = row! { "verdict" => &*line.verdict };
        named.into_iter().chain(cells).chain(verdict).collect()
    };
    Table::of(lines.iter().map(row)).filled()
}

#[cfg(test)]
mod tests;
