//! Rows in words, as a reader of tables sees them:
//! `subject | place | source [base] | column value | …`. `scalar`, `wmma` and `cpasync` are the
//! variants of the literal ladder.

use super::{CPASYNC, GPU, SCALAR, WMMA};
use crate::judge::candidate::Candidate;
use crate::table::{Figure, Judged, Row, Subject, Table};
use common::metric::Metric;
use common::verdict::{GateId, Verdict};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

const SHORT: [(&str, &str); 3] = [("scalar", SCALAR), ("wmma", WMMA), ("cpasync", CPASYNC)];

/// Reads a row in words, by the columns that a file has of it.
pub fn row(text: &str) -> Row {
    let mut parts = text.split('|').map(str::trim);
    let mut part = || parts.next().expect("subject | place | source");
    let (name, place, source_and_base) = (part(), part(), part());
    let mut columns = place_columns(place);
    columns.insert("subject".into(), subject(name).as_str().into());
    let mut arms = source_and_base.split_whitespace();
    columns.insert("by".into(), arms.next().expect("a source").into());
    if let Some(base) = arms.next() {
        columns.insert("against".into(), subject(base).as_str().into());
    }
    let mut row: Row = serde_json::from_value(columns.into()).expect(text);
    parts.for_each(|change| set(&mut row, change));
    row
}

/// Returns a candidate whose gates over all cases are these columns, without a time.
pub fn candidate(gates: &str) -> Candidate {
    Candidate {
        device: GPU.into(),
        summary: row(&format!("mine.py:attention | all | peers | {gates}")),
        cases: vec![],
        timed: Table::default(),
        is_interrupted: false,
    }
}

fn subject(name: &str) -> Subject {
    let view = SHORT.iter().find(|(short, _)| *short == name);
    view.map_or(name, |(_, full)| full).into()
}

/// Returns the columns of a place, which is written as pages show it.
fn place_columns(text: &str) -> Map<String, Value> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let columns = match words[..] {
        ["all"] => json!({}),
        [":", ..] => json!({"item": words[1..].join(" ")}),
        [dtype, dim @ ("d64" | "d128")] => {
            json!({"dtype": dtype, "head_dim": dim[1..].parse::<usize>().unwrap()})
        }
        [dtype, dim @ ("d64" | "d128"), arch] => {
            let head_dim: usize = dim[1..].parse().unwrap();
            json!({"dtype": dtype, "head_dim": head_dim, "arch": arch})
        }
        [shape, dtype, mask] => json!({"shape": shape, "dtype": dtype, "mask": mask}),
        [shape, dtype, mask, input] => {
            json!({"shape": shape, "dtype": dtype, "mask": mask, "input": input})
        }
        _ => panic!("no place: {text}"),
    };
    columns.as_object().expect("columns").clone()
}

fn value<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

fn metric(name: &str) -> Option<Metric> {
    let mut all = Metric::ALL.iter().copied();
    all.find(|metric| metric.name() == name)
}

/// Sets a column: `C3 fail too large`, `p50 5 4.9 5.1`, `note words`; `none` takes it away.
fn set(row: &mut Row, change: &str) {
    let (column, text) = change.split_once(' ').expect("COLUMN VALUE");
    let value = match text {
        "none" => None,
        _ => Some(text.to_string()),
    };
    if let Ok(gate) = column.parse::<GateId>() {
        set_verdict(row, gate, text);
        return;
    }
    match (column, metric(column)) {
        ("under", _) => row.conditions = value,
        ("note", _) => row.note = value,
        ("code", _) => row.code = value,
        ("identity", _) => row.identity = value,
        ("session", _) => row.session = text.into(),
        (_, Some(metric)) => {
            row.figures.remove(&metric);
            if value.is_some() {
                row.figures.insert(metric, figure(text));
            }
        }
        _ => panic!("no column: {column}"),
    }
}

fn set_verdict(row: &mut Row, gate: GateId, text: &str) {
    let (word, words_after) = text.split_once(' ').unwrap_or((text, ""));
    row.verdicts.remove(&gate);
    let Some(verdict) = value::<Verdict>(word) else {
        return;
    };
    let reason = match verdict {
        Verdict::Pass => "",
        _ if words_after.is_empty() => "too large",
        _ => words_after,
    };
    row.verdicts.insert(gate, Judged::new(verdict, reason));
}

/// Reads `5`, or with an interval `5 4.9 5.1`.
fn figure(text: &str) -> Figure {
    let numbers: Vec<f64> = text
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    match numbers[..] {
        [value] => value.into(),
        [value, low, high] => (value, low, high).into(),
        _ => panic!("no figure: {text}"),
    }
}
