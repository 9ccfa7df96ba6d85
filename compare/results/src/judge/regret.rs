//! The regret of the library's choice: its time over that of the fastest variant of all stages,
//! whether or not the library has it.

use super::View;
use crate::table::{Kind, Row, Table};
use common::metric::Metric;
use std::fmt;

/// The most that the choice may cost on average.
const MEAN_GOAL: f64 = 1.02;

/// The most that the choice may cost on any problem.
const WORST_GOAL: f64 = 1.10;

/// The subject of the regret's row.
const LIBRARY: &str = "attention-ladder";

/// The cost of the library's choices on random problems, beside the fastest variant of each.
#[derive(Clone, Debug, PartialEq)]
pub struct Regret {
    /// The number of random problems where what was chosen has a time of a right output.
    pub problems: usize,
    /// The number of all random problems.
    pub drawn: usize,
    pub mean: f64,
    pub worst: f64,
    /// The problem of the worst choice, what was chosen, and what is the fastest.
    pub at: String,
}

impl Regret {
    /// Returns each goal that is missed, with what was measured.
    pub fn missed(&self) -> Vec<String> {
        let mut missed = Vec::new();
        if self.mean > MEAN_GOAL {
            let ratio = self.mean_ratio();
            missed.push(format!("{ratio} on average (goal {MEAN_GOAL:.2})"));
        }
        if self.worst > WORST_GOAL {
            let ratio = self.worst_ratio();
            missed.push(format!("{ratio} at worst (goal {WORST_GOAL:.2})"));
        }
        let untimed = self.drawn - self.problems;
        if untimed > 0 {
            let drawn = self.drawn;
            missed.push(format!(
                "no right time of what it chooses on {untimed} of {drawn} random problems"
            ));
        }
        missed
    }

    fn mean_ratio(&self) -> String {
        format!("{:.3}x the fastest variant's time", self.mean)
    }

    fn worst_ratio(&self) -> String {
        format!("{:.3}x", self.worst)
    }

    /// Returns the row that keeps it.
    pub fn row(&self) -> Row {
        Row::new(LIBRARY, Kind::Regret)
            .figure(Metric::RegretMean, self.mean)
            .figure(Metric::RegretWorst, self.worst)
            .figure(Metric::Cases, self.problems)
            .figure(Metric::Draw, self.drawn)
            .note(&self.at)
    }

    /// Returns the regret that the report is about: of a run, the one that the run itself judged.
    pub fn reported(view: &View<'_>) -> Option<Self> {
        let row = Self::row_of(&view.table)?;
        if view.is_reported(row) {
            Self::read(row)
        } else {
            None
        }
    }

    /// Returns the regret that the table has.
    pub fn of_table(table: &Table) -> Option<Self> {
        Self::read(Self::row_of(table)?)
    }

    fn row_of(table: &Table) -> Option<&Row> {
        table.row(&LIBRARY.into(), Kind::Regret)
    }

    fn read(row: &Row) -> Option<Self> {
        Some(Self {
            problems: row.value(Metric::Cases)? as usize,
            drawn: row.value(Metric::Draw)? as usize,
            mean: row.value(Metric::RegretMean)?,
            worst: row.value(Metric::RegretWorst)?,
            at: row.note.clone().unwrap_or_default(),
        })
    }
}

impl fmt::Display for Regret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} on average (goal {MEAN_GOAL:.2} {}), {} at worst (goal {WORST_GOAL:.2} {}; \
             chosen, then fastest: {})",
            self.mean_ratio(),
            mark(self.mean <= MEAN_GOAL),
            self.worst_ratio(),
            mark(self.worst <= WORST_GOAL),
            self.at
        )?;
        match self.drawn - self.problems {
            0 => write!(f, "; over {} random problems", self.drawn),
            untimed => write!(
                f,
                "; over {} of {} random problems: on {untimed} what it chooses was not timed, \
                 or is wrong ✗",
                self.problems, self.drawn
            ),
        }
    }
}

fn mark(is_kept: bool) -> char {
    if is_kept { '✓' } else { '✗' }
}
