//! `--json` of a run: the judgements, and the rows behind them.

use crate::judge::verdict::{Overall, Report};
use serde_json::{Value, json};

pub fn overall(of: &Overall) -> Value {
    json!({ "word": of.word, "line": of.line, "exit": of.exit.code(), "actions": of.actions })
}

/// A run's report; `rows` has what this run measured.
pub fn json(report: &Report<'_>) -> Value {
    let states = report
        .states
        .iter()
        .map(|(subject, state)| json!({ "subject": subject, "state": state }));
    let rows = report.known.table.rows();
    let rows = rows.filter(|row| report.known.is_of_run(row));
    json!({
        "verdict": overall(&report.overall),
        "states": states.collect::<Vec<_>>(),
        "claims": report.claims,
        "failures": report.failures,
        "missing": report.missing,
        "since": report.since,
        "session": report.known.session(),
        "rows": rows.collect::<Vec<_>>(),
    })
}
