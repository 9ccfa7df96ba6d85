//! What differs from the committed records: faster, slower, fatter, wrong. [`diff`](super::diff) says what a difference
//! is; here it is said against the newest committed record that can be compared, part by part.

use super::Committed;
use super::diff::{self, Class, LATENCY_CHANGE, Metric, Row, lines};
use common::record::{Record, StageBuild};
use serde::Serialize;
use std::fmt;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A regression.
    Worse,
    /// An improvement.
    Better,
    /// Neither by itself: what it is worth, the latency says.
    Differs,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Direction::Worse => "worse",
            Direction::Better => "better",
            Direction::Differs => "differs",
        })
    }
}

impl Direction {
    /// `None` for what does not differ, or nobody knows.
    fn of(class: Class) -> Option<Self> {
        match class {
            Class::Worse | Class::Slower => Some(Direction::Worse),
            Class::Better | Class::Faster => Some(Direction::Better),
            Class::Changed => Some(Direction::Differs),
            Class::Same | Class::Ambiguous | Class::NoData => None,
        }
    }
}

/// One difference from a committed record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which way.
    pub direction: Direction,
    /// `stage0-scalar/wmma-qk-32x64`.
    pub place: String,
    /// `p50 on mission f16 full`.
    pub what: String,
    /// The committed value.
    pub from: String,
    /// The value now.
    pub to: String,
    /// The committed record.
    pub against: String,
}

/// All differences between `subject` and the newest committed records that can be compared with it, regressions first.
pub fn against(subject: (&str, &Record), committed: &[Committed]) -> Vec<Change> {
    let (name, record) = subject;
    // A committed record that stands in for a run is compared with those before it.
    let earlier: Vec<&Committed> = committed.iter().take_while(|(other, _)| other.as_str() != name).collect();
    let newest =
        |comparable: &dyn Fn(&Record) -> bool| earlier.iter().rev().find(|(_, other)| comparable(other)).copied();
    let mut changes = Vec::new();
    if let Some((name, old)) =
        newest(&|other| other.meta.backend == record.meta.backend && !other.correctness.variants.is_empty())
    {
        let mut gates = diff::gates(old, record);
        // Claims have a table of their own, which knows every negative record.
        gates.retain(|row| !matches!(row.metric, Metric::Claim(_)));
        changes.extend(said(name, gates));
        changes.extend(said(name, diff::errors(old, record)));
    }
    let gpu = record.meta.machine.gpu.name();
    let timed = newest(&|other| gpu.is_some() && other.meta.machine.gpu.name() == gpu && other.performance.is_some());
    let latencies = timed.map_or(Vec::new(), |(_, old)| diff::latencies(old, record, LATENCY_CHANGE));
    if let Some((name, old)) = newest(&|other| other.meta.stages.iter().any(has_gpu_code)) {
        let known = timed.is_some_and(|(timed, _)| timed == name).then_some(&latencies[..]);
        changes.extend(said(name, diff::resources(old, record, known.unwrap_or_default())));
    }
    if let Some((name, old)) = newest(&|other| !other.evidence.counters.is_empty()) {
        let known = timed.is_some_and(|(timed, _)| timed == name).then_some(&latencies[..]);
        changes.extend(said(name, diff::counters(old, record, known.unwrap_or_default())));
    }
    if let Some((name, _)) = timed {
        changes.extend(said(name, latencies));
    }
    changes.sort_by_key(|change| change.direction);
    changes
}

fn has_gpu_code(stage: &StageBuild) -> bool {
    stage.variants.iter().flat_map(|variant| &variant.kernels).any(|kernel| !kernel.built.is_empty())
}

fn said(against: &str, rows: Vec<Row>) -> Vec<Change> {
    let change = |line: diff::Line| {
        Some(Change {
            direction: Direction::of(line.row.class)?,
            place: line.row.place(),
            what: line.what,
            from: line.base,
            to: match &line.row.ratio {
                Some(ratio) => format!("{} ({:+.1} %)", line.new, 100.0 * (1.0 / ratio.value - 1.0)),
                None => line.new,
            },
            against: against.to_string(),
        })
    };
    lines(&rows).into_iter().filter_map(change).collect()
}
