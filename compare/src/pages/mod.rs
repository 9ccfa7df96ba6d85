//! What people read: each page is composed here from what [`crate::judge`] says, as blocks
//! for every format.

pub mod candidate;
pub mod diff;
pub mod explain;
mod figure;
pub mod files;
mod generated;
pub mod ladder;
pub mod metrics;
pub mod names;
pub mod report;
pub mod self_test;
pub mod show;
pub mod summary;

use crate::document::{Block, Cell, Table, TableRow, Text, row};
use crate::judge::claims::Claimed;
use crate::judge::diff::Difference;
use crate::judge::list::{count, joined};
use crate::judge::state::State;
use crate::table::session::Git;
use crate::table::{Figure, Row, Subject};
use common::metric::{Metric, Unit, significant};
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

fn stale(figure: Cell, is_stale: bool) -> Cell {
    noted(figure, is_stale.then_some("STALE"))
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
            (Some(passed), Some(all)) => text(judged.verdict).noted(format!("{passed} of {all}")),
            _ => text(judged.verdict),
        });
        (gate.to_string(), or_dash(judged))
    };
    let reasons = row.verdicts.values().map(|judged| &judged.reason);
    let notes = row.note.iter().chain(reasons);
    let notes = joined(notes.filter(|note| !note.is_empty()), ". ");
    let notes = Some(notes).filter(|notes| !notes.is_empty());
    [
        row! {
            "what" => row.on.to_string().trim_start_matches(": "),
            "where" => short(&row.subject),
            "against" => or_dash(row.against.as_ref().map(short)),
        },
        each(Some(row), metrics),
        GateId::ALL.map(verdict).into(),
        row! { "notes" => or_dash(notes) },
    ]
    .concat()
}

/// Microseconds, for a column whose title has the unit.
fn us(value: f64) -> Cell {
    Cell::Figure(significant(value))
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
        State::Green => "GREEN",
        State::Failed(_) => "FAIL",
        State::NoData(_) => "NO DATA",
        State::Stale => "STALE",
        State::NotRun(_) => "not run",
    }
}

/// `FAIL C2`
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
        None if of.is_unexpected().is_some() => "PASS (unexpected)",
        None => "NEGATIVE",
        Some(_) if of.is_stale => "STALE",
        Some(Verdict::Pass) => "PASS",
        Some(Verdict::Fail) => "FAIL",
        Some(Verdict::Ambiguous) => "AMBIGUOUS",
        Some(Verdict::NoData) => "NO DATA",
    }
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

/// Of variants and of claims.
const WORDS: [&str; 9] = [
    "FAIL",
    "GREEN",
    "PASS",
    "PASS (unexpected)",
    "NEGATIVE",
    "AMBIGUOUS",
    "STALE",
    "NO DATA",
    "not run",
];

/// Where, what, how far, and what decides.
fn changes(changes: &[&Difference]) -> Table {
    let row = |of: &&Difference| {
        let values = match (&of.base, &of.new) {
            (Some(was), Some(is)) => format!("{was} → {is}").into(),
            (None, Some(is)) => is.into(),
            _ => Cell::Missing,
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
