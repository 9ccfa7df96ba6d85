//! The regret of a choice: its time over that of the fastest variant of all stages, whether or not
//! the library has it.

use super::fit::fit;
use super::{FOLDS, chosen, fold_of, gpu_of, judged_times};
use crate::judge::View;
use crate::judge::best::p50;
use crate::judge::list::grouped;
use crate::table::{Kind, ProblemPlace, Row, Table};
use common::choice::{Chooser, Model};
use common::metric::Metric;
use common::stage::LoadedStage;
use std::fmt;

/// The most that the choice may cost on average.
const MEAN_GOAL: f64 = 1.02;

/// The most that the choice may cost on any problem.
const WORST_GOAL: f64 = 1.10;

/// The subject of the regret's row.
const LIBRARY: &str = "attention-ladder";

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
    #[cfg(test)]
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

/// Returns the regret of the models, on the random problems that are judged. `stages` are the
/// library's: it can choose no other, but is measured by the fastest of all.
pub fn regret(view: &View<'_>, stages: &[LoadedStage], models: &[Model]) -> Option<Regret> {
    let chooser = Chooser::new(stages, models, &gpu_of(view)?);
    regret_of(view, stages, |_| &chooser)
}

/// Returns the regret of the fit to `tables`: each part of the first table's problems is judged by
/// a fit that has not seen it.
pub fn unseen_regret(tables: &[View<'_>], stages: &[LoadedStage]) -> Option<Regret> {
    let view = tables.first()?;
    let gpu = gpu_of(view)?;
    let mut choosers = Vec::new();
    for fold in 0..FOLDS {
        let fitted = fit(tables, stages, Some(fold))?;
        choosers.push(Chooser::new(stages, &[fitted.model], &gpu));
    }
    regret_of(view, stages, |fold| &choosers[fold])
}

/// The cost of a choice on one problem.
struct Choice {
    ratio: f64,
    description: String,
}

/// Returns the regret of the choices, with the chooser of each part of the random problems.
fn regret_of<'a>(
    view: &View<'_>,
    stages: &[LoadedStage],
    chooser_of_fold: impl Fn(usize) -> &'a Chooser,
) -> Option<Regret> {
    let rows = judged_times(&view.table);
    let by_place = grouped(rows.filter_map(|row| Some((row.problem()?, row))));
    let mut choices = Vec::new();
    for (place, times) in &by_place {
        let Some(fold) = times.first().and_then(|row| fold_of(row)) else {
            continue;
        };
        choices.extend(judge_choice(chooser_of_fold(fold), stages, place, times));
    }
    let worst = choices.iter().max_by(|a, b| a.ratio.total_cmp(&b.ratio))?;
    let sum: f64 = choices.iter().map(|choice| choice.ratio).sum();
    Some(Regret {
        problems: choices.len(),
        drawn: by_place.len(),
        mean: sum / choices.len() as f64,
        worst: worst.ratio,
        at: worst.description.clone(),
    })
}

/// Returns what the choice costs on one problem; none if what is chosen was not timed.
fn judge_choice(
    chooser: &Chooser,
    stages: &[LoadedStage],
    place: &ProblemPlace,
    rows: &[&Row],
) -> Option<Choice> {
    let subject = chosen(chooser, stages, place)?;
    let own = rows.iter().find(|row| row.subject == subject)?;
    let fastest = rows.iter().min_by(|a, b| p50(a).total_cmp(&p50(b)))?;
    Some(Choice {
        ratio: p50(own) / p50(fastest),
        description: format!(
            "{place}: {subject} {:.1} µs, {} {:.1} µs",
            p50(own),
            fastest.subject,
            p50(fastest)
        ),
    })
}
