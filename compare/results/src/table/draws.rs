//! Times at random problems as a table keeps them.
//!
//! A line of `draws.jsonl` has the problems of one session, element type and head size, and what
//! each variant takes there. As rows they would be most of a table, and name a kernel's code again
//! at every problem.

use super::kind::{Kind, ProblemPlace};
use super::row::{Impossible, Row};
use super::subject::Subject;
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A line. `shape`, `mask`, `draw` and each `p50` have one value for each problem.
#[derive(Clone, Deserialize, Serialize)]
pub struct Line {
    session: String,
    dtype: Dtype,
    shape: Vec<String>,
    mask: Vec<Mask>,
    /// Numbers of the random problems.
    draw: Vec<u64>,
    kernels: Vec<Kernel>,
}

#[derive(Clone, Deserialize, Serialize)]
struct Kernel {
    #[serde(flatten)]
    build: Build,
    /// The time at each problem; null where there is none.
    p50: Vec<Option<f64>>,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
struct Build {
    subject: Subject,
    identity: Option<String>,
    code: Option<String>,
}

/// A random problem, by its number. Lines list their problems in this order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RandomProblem<'a> {
    draw: u64,
    place: &'a ProblemPlace,
}

/// The session, element type and head size that one line is about.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct LineKey<'a> {
    session: &'a str,
    dtype: Dtype,
    head_dim: usize,
}

/// A row that consists of a time at a random problem, and nothing else.
struct PlainTime<'a> {
    line: LineKey<'a>,
    problem: RandomProblem<'a>,
    p50: f64,
}

/// The times of one kernel at random problems.
type Times<'a> = BTreeMap<RandomProblem<'a>, f64>;

/// The kernels of one line, with their times.
type Kernels<'a> = BTreeMap<Build, Times<'a>>;

impl Build {
    fn new(row: &Row) -> Self {
        Self {
            subject: row.subject.clone(),
            identity: row.identity.clone(),
            code: row.code.clone(),
        }
    }

    /// Returns the row of a time at a problem, still without its session.
    fn row(&self, place: ProblemPlace, draw: u64, p50: f64) -> Row {
        let row = Row::new(self.subject.clone(), Kind::RandomTime(place));
        Row {
            identity: self.identity.clone(),
            code: self.code.clone(),
            ..row.figure(Metric::P50, p50).figure(Metric::Draw, draw)
        }
    }
}

impl<'a> PlainTime<'a> {
    /// Returns the time of a row; `None` if the row has more to say.
    fn new(row: &'a Row) -> Option<Self> {
        let Kind::RandomTime(place) = &row.kind else {
            return None;
        };
        let draw = row.value(Metric::Draw)? as u64;
        let p50 = row.value(Metric::P50)?;
        let warm = ProblemPlace::new(&place.shape, place.dtype, place.mask);
        let plain = Row {
            session: row.session.clone(),
            ..Build::new(row).row(warm, draw, p50)
        };
        if plain != *row {
            return None;
        }
        Some(Self {
            line: LineKey {
                session: &row.session,
                dtype: place.dtype,
                head_dim: place.extents()?.head_dim,
            },
            problem: RandomProblem { draw, place },
            p50,
        })
    }
}

/// The rows of a table, by the file that keeps them.
pub struct Split<'a> {
    pub lines: Vec<Line>,
    pub rows: Vec<&'a Row>,
}

/// Splits rows in times at random problems, as lines, and those that have more to say.
pub fn split<'a>(rows: impl Iterator<Item = &'a Row>) -> Split<'a> {
    let mut by_line = BTreeMap::<LineKey<'_>, Kernels<'_>>::new();
    let mut others = Vec::new();
    for row in rows {
        let Some(time) = PlainTime::new(row) else {
            others.push(row);
            continue;
        };
        let kernels = by_line.entry(time.line).or_default();
        let times = kernels.entry(Build::new(row)).or_default();
        times.insert(time.problem, time.p50);
    }
    let mut lines = Vec::new();
    for (key, kernels) in &by_line {
        lines.push(line(key, kernels));
    }
    Split {
        lines,
        rows: others,
    }
}

fn line(key: &LineKey<'_>, kernels: &Kernels<'_>) -> Line {
    let problems: BTreeSet<&RandomProblem<'_>> = kernels.values().flat_map(Times::keys).collect();
    let mut line = Line {
        session: key.session.to_string(),
        dtype: key.dtype,
        shape: Vec::new(),
        mask: Vec::new(),
        draw: Vec::new(),
        kernels: Vec::new(),
    };
    for RandomProblem { draw, place } in &problems {
        line.shape.push(place.shape.clone());
        line.mask.push(place.mask);
        line.draw.push(*draw);
    }
    for (build, times) in kernels {
        let p50 = problems.iter().map(|problem| times.get(problem).copied());
        line.kernels.push(Kernel {
            build: build.clone(),
            p50: p50.collect(),
        });
    }
    line
}

/// A reason why a line is no list of times.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    #[error("a list of {values} values, of {problems} problems")]
    Length { values: usize, problems: usize },
    #[error(transparent)]
    Impossible(#[from] Impossible),
}

/// The rows of a line, each of which can be.
#[derive(Deserialize)]
#[serde(try_from = "Line")]
pub struct Rows(pub Vec<Row>);

impl TryFrom<Line> for Rows {
    type Error = LineError;

    fn try_from(line: Line) -> Result<Self, LineError> {
        line.verify_lengths()?;
        let mut rows = Vec::new();
        for Kernel { build, p50 } in &line.kernels {
            for (index, time) in p50.iter().enumerate() {
                let Some(us) = *time else { continue };
                let (shape, mask) = (&line.shape[index], line.mask[index]);
                let place = ProblemPlace::new(shape, line.dtype, mask);
                let mut row = build.row(place, line.draw[index], us);
                row.session.clone_from(&line.session);
                if let Some(impossible) = row.impossible() {
                    return Err(impossible.into());
                }
                rows.push(row);
            }
        }
        Ok(Self(rows))
    }
}

impl Line {
    /// Refuses a line whose lists have different lengths.
    fn verify_lengths(&self) -> Result<(), LineError> {
        let problems = self.shape.len();
        let times = self.kernels.iter().map(|kernel| kernel.p50.len());
        for values in times.chain([self.mask.len(), self.draw.len()]) {
            if values != problems {
                return Err(LineError::Length { values, problems });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
