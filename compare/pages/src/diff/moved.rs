//! Figures that moved, before → after: a row per kernel and place, and a column per kind of figure.

use crate::columns::{Column, column};
use crate::words::short_name;
use common::metric::{Better, Metric};
use document::{Cell, Table, Text, row};
use results::judge::diff::{Change, Difference, What};
use results::judge::list::{Grouped, distinct, grouped};
use results::table::Subject;

/// A row: all that moved of a kernel, at the places where it moved alike.
pub struct Line {
    kernel: Subject,
    places: Vec<String>,
    verdict: String,
    cells: Vec<(&'static str, Cell)>,
}

/// Returns the column that a difference stands in, if it is one of a figure.
fn title(difference: &Difference) -> Option<&'static str> {
    match difference.what {
        What::Metric(metric) => Some(column(metric).title),
        _ => None,
    }
}

/// Returns the lines of latencies: each problem is a row of its own, with what decided.
pub fn times(differences: &[&Difference]) -> Vec<Line> {
    let mut lines = Vec::new();
    for difference in differences {
        let mut verdict = word(difference.change).to_string();
        if let Some(ratio) = difference.ratio {
            verdict += &format!(", {:.2}x", ratio.value);
        }
        let title = title(difference).unwrap_or_default();
        lines.push(Line {
            kernel: difference.subject.clone(),
            places: vec![difference.place().to_string()],
            verdict: format!("{verdict}: {}", difference.why),
            cells: vec![(title, before_after(difference).into())],
        });
    }
    lines
}

/// Returns the lines of all other figures.
pub fn figures(differences: &[&Difference]) -> Vec<Line> {
    let titles = titles(differences);
    let by_place = grouped(
        differences
            .iter()
            .map(|difference| ((&difference.subject, difference.place()), *difference)),
    );
    let mut alike = Vec::new();
    for Grouped {
        key: (kernel, place),
        values: moved,
    } in by_place
    {
        let worst = moved.iter().map(|difference| difference.change).min();
        let cells = titles.iter().map(|title| (*title, cell(title, &moved)));
        let key = (kernel, worst.map_or("", word), Vec::from_iter(cells));
        alike.push((key, place));
    }
    let mut lines = Vec::new();
    for Grouped {
        key: (kernel, verdict, cells),
        values: places,
    } in grouped(alike)
    {
        lines.push(Line {
            kernel: kernel.clone(),
            places: places.into_iter().map(|place| place.to_string()).collect(),
            verdict: verdict.to_string(),
            cells,
        });
    }
    lines
}

/// Returns the titles of columns, in the order of the registry.
pub fn titles(differences: &[&Difference]) -> Vec<&'static str> {
    let mut titles = Vec::new();
    for metric in Metric::ALL {
        let wanted = What::Metric(*metric);
        if differences
            .iter()
            .any(|difference| difference.what == wanted)
        {
            titles.push(column(*metric).title);
        }
    }
    distinct(titles)
}

/// Returns the figures of a column. What is worse is strong.
fn cell(column_title: &str, moved: &[&Difference]) -> Cell {
    let mut text = Text::default();
    for difference in moved {
        let What::Metric(metric) = difference.what else {
            continue;
        };
        let Column { title, part } = column(metric);
        if title != column_title {
            continue;
        }
        if !text.0.is_empty() {
            text = text.plain("; ");
        }
        if !part.is_empty() {
            text = text.plain(format!("{part} "));
        }
        text = with_figures(text, difference, metric);
    }
    if text.0.is_empty() {
        Cell::Missing
    } else {
        text.into()
    }
}

fn with_figures(text: Text, difference: &Difference, metric: Metric) -> Text {
    let figures = before_after(difference);
    match difference.change {
        Change::Worse => text.strong(figures),
        Change::Informational if metric.spec().better != Better::Informational => {
            text.plain(format!("{figures} ({})", difference.why))
        }
        _ => text.plain(figures),
    }
}

/// Returns `96 → 80`.
fn before_after(difference: &Difference) -> String {
    let base = difference.base.as_deref().unwrap_or("–");
    let new = difference.new.as_deref().unwrap_or("–");
    format!("{base} → {new}")
}

fn word(change: Change) -> &'static str {
    match change {
        Change::Informational => "changed",
        other => other.word(),
    }
}

/// Returns the table without the columns that none of these lines fills.
pub fn table(lines: &[Line]) -> Table {
    let mut rows = Vec::new();
    for line in lines {
        let mut cells = row! {
            "kernel" => short_name(&line.kernel),
            "at" => line.places.join(", "),
        };
        for (title, cell) in &line.cells {
            cells.push((title.to_string(), cell.clone()));
        }
        cells.push(("verdict".into(), line.verdict.as_str().into()));
        rows.push(cells);
    }
    Table::from_rows(rows).filled()
}

#[cfg(test)]
mod tests;
