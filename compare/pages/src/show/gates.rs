//! Every variant, its gates and largest errors.

use super::Show;
use crate::blocks::table_block;
use crate::cells::figure_cells;
use crate::words::{short_name, state_with_gates};
use common::metric::Metric;
use document::{Block, Table, TableRow, row};
use results::judge::state::{State, summary};
use results::table::{Row, Subject};

/// The figures that are shown beside a state. A largest error alone says little: inputs of the
/// family wide-range have outputs of 1e10.
const ERRORS: [Metric; 4] = [
    Metric::Cases,
    Metric::ErrorOfBound,
    Metric::RowErrorOfBound,
    Metric::MaxError,
];

impl Show<'_> {
    /// Returns the states, failures first.
    pub(super) fn gates(&self) -> Vec<Block> {
        let states = self.report.states.iter();
        let mut shown: Vec<&(Subject, State)> = states
            .filter(|(subject, _)| self.covers(subject.stage()))
            .collect();
        shown.sort_by_key(|(_, state)| rank(state));
        let rows = shown
            .into_iter()
            .map(|(subject, state)| self.gates_row(subject, state));
        table_block(Table::from_rows(rows))
    }

    fn gates_row(&self, subject: &Subject, state: &State) -> TableRow {
        let view = &self.report.view;
        let summary = summary(view, subject, view.backend());
        let place = match state {
            State::NotRun(why) => why.clone(),
            State::Failed(_) => self.failures_of(subject),
            _ => summary
                .and_then(|row: &Row| row.note.clone())
                .unwrap_or_default(),
        };
        let mut cells = row! {
            "variant" => short_name(subject),
            "verdict" => state_with_gates(state),
        };
        cells.extend(figure_cells(summary, &ERRORS));
        cells.push(("where".into(), place.into()));
        cells
    }

    fn failures_of(&self, subject: &Subject) -> String {
        let mut failures = Vec::new();
        for failure in &self.report.failures {
            if failure.subject == *subject {
                failures.push(format!("{}: {}", failure.gate, failure.reason));
            }
        }
        failures.join("; ")
    }
}

fn rank(state: &State) -> u8 {
    match state {
        State::Failed(_) => 0,
        State::NoData(_) | State::Stale => 1,
        State::Green => 2,
        State::NotRun(_) => 3,
    }
}
