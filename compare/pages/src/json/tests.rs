use super::*;
use common::verdict::{GateId, Verdict};
use results::judge::verdict;
use results::testing::{CPASYNC, IN_EMULATOR, WMMA, counters, emulated, ladder, row};
use serde_json::Value;
use std::collections::BTreeSet;

fn value(object: &impl Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

/// The fields that hold rows, whose fields are columns.
const ROWS: [&str; 3] = ["summary", "cases", "timed"];

/// Adds the names of all fields, but for those of rows.
fn add_fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                names.insert(name.clone());
                if !ROWS.contains(&&**name) {
                    add_fields(field, names);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                add_fields(item, names);
            }
        }
        _ => {}
    }
}

/// Returns the comparison of a run with one that has bank conflicts.
fn diff() -> Value {
    let base = emulated();
    let new = emulated().counted(WMMA, 1_048_576, 32);
    let pair = diff::compare(&base.table, &new.table, true, &ladder());
    let overall = verdict::of_differences(&pair.differences);
    let comparison = crate::diff::Comparison {
        concessions: vec![],
        base: "main".into(),
        new: "HEAD".into(),
        pairs: vec![("nvidia-h200".into(), pair)],
        notes: vec![],
        overall,
    };
    value(&Diff::from(&comparison))
}

fn value_of_run(run: &results::table::Run) -> Value {
    let report = verdict::report(results::judge::View::alone(run));
    value(&Run::new(
        &report,
        &report.overall(),
        Path::new("target/compare/x"),
    ))
}

fn candidate() -> Value {
    let mut candidate =
        results::testing::candidate("C1 pass | C2 pass | C3 pass | C5 pass | C6 pass");
    candidate.add(row("mine.py:attention | mission f16 full | peers | p50 10"));
    candidate.add(row("flash-attn | all | peers | note not installed"));
    value(&Candidate::from(&candidate))
}

#[test]
fn a_difference_has_its_figures_as_numbers() {
    let object = diff();
    assert_eq!(object["schema"], "compare.diff/1");
    assert_eq!(object["verdict"], "REGRESSION");
    assert_eq!(object["exit"], 1);
    let differences = object["comparisons"][0]["differences"].as_array().unwrap();
    let conflicts = differences
        .iter()
        .find(|difference| difference["metric"] == "shared_read_conflicts")
        .unwrap();
    assert_eq!(conflicts["figures"]["base"], 0.0);
    assert_eq!(conflicts["figures"]["new"], 32.0);
    assert_eq!(conflicts["change"], "worse");
    assert_eq!(conflicts["group"], "counters");
    assert_eq!(conflicts["on"], "mission f16 full");
}

#[test]
fn a_run_says_its_verdict_and_where_its_rows_are() {
    let red = emulated().with_gate(WMMA, IN_EMULATOR, GateId::C3, Verdict::Fail);
    let object = value_of_run(&red);
    assert_eq!(object["verdict"], "FAIL");
    assert_eq!(object["exit"], 1);
    assert_eq!(object["rows"], "target/compare/x/rows.jsonl");
    let variants = object["variants"].as_array().unwrap();
    let failed = variants
        .iter()
        .find(|variant| variant["state"] == "fail")
        .unwrap();
    assert_eq!(failed["gates"][0], "C3");
}

#[test]
fn a_candidate_has_its_rows_as_a_table_has_them() {
    let object = candidate();
    assert_eq!(object["verdict"], "PASS");
    assert_eq!(object["exit"], 0);
    assert_eq!(object["timed"][0]["p50"], 10);
    assert_eq!(object["not_timed"][0], "flash-attn: not installed");
}

#[test]
fn every_field_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rows.md");
    let page = std::fs::read_to_string(path).unwrap();
    let (_, section) = page.split_once("\n## JSON of commands\n").unwrap();
    let incomplete = emulated()
        .without_row(CPASYNC, counters())
        .with_measurable(GateId::E1);
    let mut names = BTreeSet::new();
    for object in [diff(), value_of_run(&incomplete), candidate()] {
        add_fields(&object, &mut names);
    }
    for name in names {
        let word = format!("`{name}`");
        assert!(section.contains(&word), "docs/rows.md does not name {name}");
    }
}
