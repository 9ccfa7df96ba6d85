//! What people read: each page is composed here from what [`crate::judge`] says, as blocks
//! for every format.

pub mod candidate;
mod columns;
pub mod counted;
pub mod diff;
pub mod explain;
mod figure;
pub mod files;
mod generated;
pub mod json;
pub mod ladder;
pub mod metrics;
pub mod names;
pub mod report;
pub mod self_test;
pub mod shared;
pub mod show;
pub mod summary;

use crate::document::{Block, Cell, Table, TableRow, Text, row};
use crate::judge::claims::Claimed;
use crate::judge::diff::Difference;
use crate::judge::list::{count, joined};
use crate::judge::state::State;
use crate::table::session::Git;
use crate::table::{Figure, Row, Subject};
use common::metric::{Metric, Unit};
use common::verdict::{GateId, Verdict};
use std::fmt::Display;

fn text(of: impl Display) -> Cell {
    of.to_string().into()
}

fn or_dash(found: Option<impl Into<Cell>>) -> Cell {
    found.map_or(Cell::Missing, Into::into)
}

fn noted(cell: impl Into<Cell>, note: Option<&str>) -> Cell {
    match note {
        Some(note) => cell.into().noted(note),
        None => cell.into(),
    }
}

/// A figure with the digits and unit of its metric.
fn figure(metric: Metric, value: f64) -> Cell {
    Cell::Figure(metric.show(value))
}

/// The figure of a row, of a ratio with its interval; a dash if it has none.
fn of(row: Option<&Row>, metric: Metric) -> Cell {
    let ratio = row.and_then(|row| row.figures.get(&metric));
    let ratio = ratio.filter(|_| metric.spec().unit == Unit::Ratio);
    let value = row.and_then(|row| row.value(metric));
    or_dash(ratio.map_or_else(
        || value.map(|value| figure(metric, value)),
        |ratio| Some(times(*ratio, 3)),
    ))
}

/// The figures of several metrics, under their labels.
fn each(row: Option<&Row>, metrics: &[Metric]) -> TableRow {
    let cell = |metric: &Metric| (metric.to_string(), of(row, *metric));
    metrics.iter().map(cell).collect()
}

/// What a row has of `metrics`, with verdicts and notes.
fn cells(row: &Row, metrics: &[Metric]) -> TableRow {
    let verdict = |gate: GateId| {
        let judged = row.verdicts.get(&gate);
        let judged = judged.map(|judged| match (judged.passed, judged.of) {
            (Some(passed), Some(all)) => {
                Cell::from(gate_word(judged.verdict)).noted(format!("{passed} of {all}"))
            }
            _ => gate_word(judged.verdict).into(),
        });
        (gate.to_string(), or_dash(judged))
    };
    let reasons = row.verdicts.values().map(|judged| &judged.reason);
    let notes = row.note.iter().chain(reasons);
    let notes = joined(notes.filter(|note| !note.is_empty()), ". ");
    let notes = Some(notes).filter(|notes| !notes.is_empty());
    [
        row! {
            "what" => row.place().to_string().trim_start_matches(": "),
            "where" => short(&row.subject),
            "against" => or_dash(row.base().map(short)),
        },
        each(Some(row), metrics),
        GateId::ALL.map(verdict).into(),
        row! { "notes" => or_dash(notes) },
    ]
    .concat()
}

/// Microseconds, for a column whose title has the unit.
fn us(value: f64) -> Cell {
    Cell::Figure(three_digits(value))
}

/// As many digits as a difference needs to count: `4.40`, `16.3`, `492`, `1938`.
fn three_digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    format!("{value:.decimals$}")
}

/// A ratio with as many digits as three that count: `1.08x`, `0.977x`.
fn brief(ratio: f64) -> String {
    match ratio < 0.9995 {
        true => format!("{ratio:.3}x"),
        false => format!("{ratio:.2}x"),
    }
}

fn or_empty(found: Option<impl Into<Cell>>) -> Cell {
    found.map_or(Cell::Empty, Into::into)
}

/// A ratio with its interval, if it has one.
fn times(of: impl Into<Figure>, digits: usize) -> Cell {
    let Figure { value, interval } = of.into();
    let interval = interval.map_or(String::new(), |(low, high)| {
        format!(" [{low:.digits$}, {high:.digits$}]")
    });
    Cell::Figure(format!("{value:.digits$}x{interval}"))
}

fn word(of: &State) -> &'static str {
    match of {
        State::Green => "pass",
        State::Failed(_) => "fail",
        State::NoData(_) => "not measured",
        State::Stale => "stale",
        State::NotRun(_) => "not run",
    }
}

/// What a gate says: three words, and one where its evidence does not decide.
fn gate_word(of: Verdict) -> &'static str {
    match of {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NoData => "not measured",
        Verdict::Ambiguous => "undecided",
    }
}

/// `fail C2`
fn state(of: &State) -> String {
    let gates: &[GateId] = match of {
        State::Failed(gates) | State::NoData(gates) => gates,
        _ => &[],
    };
    let gates = gates.iter().map(GateId::to_string);
    joined([word(of).to_string()].into_iter().chain(gates), " ")
}

fn standing(of: &Claimed) -> &'static str {
    match of.verdict() {
        None if of.is_unexpected().is_some() => "holds, on record as refuted",
        None => "refuted",
        Some(_) if of.is_stale => "stale",
        Some(Verdict::Pass) => "holds",
        Some(Verdict::Fail) => "refuted, not on record",
        Some(Verdict::Ambiguous) => "undecided",
        Some(Verdict::NoData) => "not measured",
    }
}

/// The ratio that was measured of a claim of speed; where it does not decide, the least of p50, p90 and mean with its interval and noise.
fn measured(of: &Claimed) -> Cell {
    let Some(pair) = of.pair() else {
        return Cell::Empty;
    };
    if of.verdict() != Some(Verdict::Ambiguous) {
        return Cell::Figure(brief(pair.estimate(Metric::SpeedupP50).value));
    }
    let metrics = [Metric::SpeedupP50, Metric::SpeedupP90, Metric::SpeedupMean];
    let low = |metric: &Metric| pair.estimate(*metric).ends().0;
    let least = metrics.into_iter().min_by(|a, b| low(a).total_cmp(&low(b)));
    let least = least.unwrap_or(Metric::SpeedupP50);
    let noise = 100.0 * pair.value(Metric::Noise).unwrap_or(f64::NAN);
    let ratio = times(pair.estimate(least), 2);
    let least = least.to_string();
    let least = least.trim_start_matches("speedup ");
    format!("{least} {} ± {noise:.1} %", ratio.shown()).into()
}

/// Claims as a table, with `more` columns.
fn claims(claims: &[&Claimed], more: impl Fn(&Claimed) -> TableRow) -> Table {
    let row = |of: &&Claimed| {
        let shown = row! {
            "claim" => of.title(),
            "verdict" => standing(of),
            "measured" => &of.finding.reason,
        };
        [shown, more(of)].concat()
    };
    Table::of(claims.iter().map(row))
}

/// Of variants.
const STATES: [&str; 5] = ["fail", "pass", "stale", "not measured", "not run"];

/// Of claims.
const STANDINGS: [&str; 7] = [
    "holds",
    "holds, on record as refuted",
    "refuted, not on record",
    "refuted",
    "undecided",
    "stale",
    "not measured",
];

/// Where, what, how far, and what decides.
fn changes(changes: &[&Difference]) -> Table {
    let row = |of: &&Difference| {
        let values = match (&of.base, &of.new) {
            (Some(was), Some(is)) => format!("{was} → {is}").into(),
            (None, Some(is)) => is.into(),
            (Some(was), None) => format!("{was} → –").into(),
            (None, None) => Cell::Missing,
        };
        let ratio = of.ratio.map(|ratio| format!("{:.2}x; ", ratio.value));
        row! {
            "where" => short(&of.subject),
            "what" => of.title(),
            "was → is" => values,
            "why" => ratio.unwrap_or_default() + &of.why,
        }
    };
    Table::of(changes.iter().map(row))
}

/// `stage5/swizzle-32x64`: the number identifies the stage.
fn short(subject: &Subject) -> String {
    match (subject.stage().split_once('-'), subject.name()) {
        (Some((stage, _)), name) if !name.is_empty() => format!("{stage}/{name}"),
        _ => subject.to_string(),
    }
}

/// Sections by title, without those that are empty.
fn sections<T>(
    heading: impl Fn(T) -> Block,
    of: impl IntoIterator<Item = (T, Vec<Block>)>,
) -> Vec<Block> {
    let titled = |(title, blocks): (T, Vec<Block>)| {
        let title = (!blocks.is_empty()).then(|| heading(title));
        title.into_iter().chain(blocks)
    };
    of.into_iter().flat_map(titled).collect()
}

/// What was found, or a line that says why there is nothing.
fn or_line(found: Vec<Block>, otherwise: &str) -> Vec<Block> {
    if found.is_empty() {
        vec![Block::paragraph(otherwise)]
    } else {
        found
    }
}

/// Lines as a list; nothing if there are none.
pub fn list<T: Into<Text>>(lines: impl IntoIterator<Item = T>) -> Vec<Block> {
    let lines: Vec<Text> = lines.into_iter().map(T::into).collect();
    first_lines(lines, usize::MAX, "")
}

pub fn some(table: Table) -> Vec<Block> {
    if table.rows.is_empty() {
        vec![]
    } else {
        vec![Block::Table(table)]
    }
}

/// The first `most` lines, and a command that shows the others.
fn first_lines(lines: impl IntoIterator<Item = Text>, most: usize, how: &str) -> Vec<Block> {
    let lines: Vec<Text> = lines.into_iter().collect();
    first_of(&lines, most, |lines| Block::Bullets(lines.to_vec()), how)
}

/// The same of items, as a table or list.
fn first_of<T>(items: &[T], most: usize, lay_out: impl Fn(&[T]) -> Block, how: &str) -> Vec<Block> {
    let shown = &items[..items.len().min(most)];
    let hidden = items.len() - shown.len();
    let more = (hidden > 0).then(|| Block::paragraph(format!("{hidden} more: `{how}`.")));
    let shown = (!shown.is_empty()).then(|| lay_out(shown));
    shown.into_iter().chain(more).collect()
}

fn commit(git: &Git) -> String {
    match git {
        Git::Commit { sha, dirty, .. } => {
            let changes = if *dirty {
                " with uncommitted changes"
            } else {
                ""
            };
            format!("commit {sha:.12}{changes}")
        }
        Git::Unknown { reason } => format!("source unknown: {reason}"),
    }
}

#[cfg(test)]
mod tests;
