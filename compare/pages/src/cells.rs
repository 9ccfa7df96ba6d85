//! Cells of tables: figures with their digits and units, and dashes.

use super::words::{gate_word, short_name};
use common::metric::{Metric, Unit};
use common::verdict::{GateId, Verdict};
use document::{Cell, TableRow, row};
use results::judge::claims::Claimed;
use results::table::{Figure, Judged, Row};
use std::fmt::Display;

/// Returns a cell with the text of a value.
pub fn text(content: impl Display) -> Cell {
    content.to_string().into()
}

/// Returns the cell, or a dash where there is none.
pub fn or_dash(content: Option<impl Into<Cell>>) -> Cell {
    content.map_or(Cell::Missing, Into::into)
}

/// Returns the cell, or an empty one where there is none.
pub fn or_empty(content: Option<impl Into<Cell>>) -> Cell {
    content.map_or(Cell::Empty, Into::into)
}

/// Returns a cell with its note, if there is one, in parentheses.
pub fn noted(content: impl Into<Cell>, note: Option<&str>) -> Cell {
    let cell = content.into();
    match note {
        Some(words) => cell.noted(words),
        None => cell,
    }
}

/// Returns a row's figure with the digits and unit of its metric, a ratio with its interval; a dash
/// if the row has none.
pub fn figure_cell(row: Option<&Row>, metric: Metric) -> Cell {
    let Some(measured) = row else {
        return Cell::Missing;
    };
    if metric.spec().unit == Unit::Ratio
        && let Some(ratio) = measured.figures.get(&metric)
    {
        return ratio_cell(*ratio, 3);
    }
    match measured.value(metric) {
        Some(value) => Cell::Figure(metric.show(value)),
        None => Cell::Missing,
    }
}

/// Returns the figures of several metrics, under their labels.
pub fn figure_cells(row: Option<&Row>, metrics: &[Metric]) -> TableRow {
    let mut cells = TableRow::new();
    for metric in metrics {
        cells.push((metric.to_string(), figure_cell(row, *metric)));
    }
    cells
}

/// Returns what a row has of `metrics`, with verdicts and notes.
pub fn row_cells(row: &Row, metrics: &[Metric]) -> TableRow {
    let mut cells = row! {
        "what" => row.place().to_string().trim_start_matches(": "),
        "where" => short_name(&row.subject),
        "against" => or_dash(row.base().map(short_name)),
    };
    cells.extend(figure_cells(Some(row), metrics));
    for gate in GateId::ALL {
        let verdict = row.verdicts.get(&gate).map(verdict_cell);
        cells.push((gate.to_string(), or_dash(verdict)));
    }
    let mut notes: Vec<&str> = row.note.as_deref().into_iter().collect();
    for judged in row.verdicts.values() {
        notes.push(&judged.reason);
    }
    notes.retain(|note| !note.is_empty());
    let note = (!notes.is_empty()).then(|| notes.join(". "));
    cells.push(("notes".into(), or_dash(note)));
    cells
}

fn verdict_cell(judged: &Judged) -> Cell {
    let word = gate_word(judged.verdict).into();
    match (judged.passed, judged.of) {
        (Some(passed), Some(all)) => Cell::noted(word, format!("{passed} of {all}")),
        _ => word,
    }
}

/// Returns microseconds, for a column whose title has the unit.
pub fn us_cell(value: f64) -> Cell {
    Cell::Figure(three_digits(value))
}

/// Returns a ratio with its interval, if it has one.
pub fn ratio_cell(ratio: impl Into<Figure>, digits: usize) -> Cell {
    let Figure { value, interval } = ratio.into();
    let mut shown = format!("{value:.digits$}x");
    if let Some((low, high)) = interval {
        shown += &format!(" [{low:.digits$}, {high:.digits$}]");
    }
    Cell::Figure(shown)
}

/// Returns as many digits as a difference needs to count: `4.40`, `16.3`, `492`, `1938`.
pub fn three_digits(value: f64) -> String {
    format!("{value:.*}", decimals(value))
}

/// Returns how many decimals three digits have.
pub fn decimals(value: f64) -> usize {
    if value.abs() >= 99.95 {
        0
    } else if value.abs() >= 9.995 {
        1
    } else {
        // NaN, too.
        2
    }
}

/// Returns a ratio with as many digits as three that count: `1.08x`, `0.977x`.
pub fn short_ratio(ratio: f64) -> String {
    if ratio < 0.9995 {
        format!("{ratio:.3}x")
    } else {
        format!("{ratio:.2}x")
    }
}

/// Returns the ratio that was measured of a claim of speed; where it does not decide, the least of
/// p50, p90 and mean with its interval and noise.
pub fn measured_ratio(claim: &Claimed) -> Cell {
    let Some(pair) = claim.pair() else {
        return Cell::Empty;
    };
    if claim.verdict() == Some(Verdict::Ambiguous) {
        return undecided_ratio(pair);
    }
    Cell::Figure(short_ratio(pair.estimate(Metric::SpeedupP50).value))
}

fn undecided_ratio(pair: &Row) -> Cell {
    let mut least = Metric::SpeedupP50;
    for metric in [Metric::SpeedupP90, Metric::SpeedupMean] {
        let low = pair.estimate(metric).ends().0;
        if low.total_cmp(&pair.estimate(least).ends().0).is_lt() {
            least = metric;
        }
    }
    let ratio = ratio_cell(pair.estimate(least), 2);
    let noise = 100.0 * pair.value(Metric::Noise).unwrap_or(f64::NAN);
    let label = least.to_string();
    let name = label.trim_start_matches("speedup ");
    format!("{name} {} ± {noise:.1} %", ratio.shown()).into()
}
