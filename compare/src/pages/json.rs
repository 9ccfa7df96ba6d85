//! `--json` of a run: the judgements, and the rows behind them.

use crate::judge::verdict::{Overall, Report};
use serde_json::{Value, json};

pub fn overall(of: &Overall) -> Value {
    json!({ "word": of.word, "line": of.line, "exit": of.exit.code(), "actions": of.actions })
}

pub fn json(report: &Report<'_>) -> Value {
    let states = report
        .states
        .iter()
        .map(|(subject, state)| json!({ "subject": subject, "state": state }));
    let since = report.since.as_ref().map(
        |since| json!({ "record": since.name, "verdict": overall(&since.overall), "differences": since.differences }),
    );
    let subject = report.known.subject();
    let rows = subject
        .into_iter()
        .flat_map(|(_, record)| record.rows.iter().chain(&record.cases));
    json!({
        "schema": crate::record::store::SCHEMA,
        "record": subject.map(|(name, _)| name),
        "verdict": overall(&report.overall),
        "states": states.collect::<Vec<_>>(),
        "claims": report.claims,
        "failures": report.failures,
        "missing": report.missing,
        "since": since,
        "meta": subject.map(|(_, record)| &record.meta),
        "rows": rows.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::{Known, verdict};
    use crate::pages::testing::record;

    #[test]
    fn rows_and_judgements_stand_side_by_side() {
        let run = record();
        let known = Known {
            stages: &run.meta.stages,
            run: Some(("run", &run)),
            committed: &[],
        };
        let value = json(&verdict::report(known));
        assert_eq!(value["rows"].as_array().unwrap().len(), run.rows.len());
        assert_eq!(value["states"][0]["state"]["status"], "green");
        assert_eq!(
            [
                &value["verdict"]["word"],
                &value["claims"][0]["finding"]["verdict"]
            ],
            ["PASS", "pass"]
        );
    }
}
