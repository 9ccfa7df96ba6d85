use super::*;
use crate::judge::verdict;
use crate::testing::{ladder, scenario};
use serde_json::Value;
use std::collections::BTreeSet;

fn value(found: &impl Serialize) -> Value {
    serde_json::to_value(found).unwrap()
}

/// The names of all fields, but for those of rows, which are columns.
fn fields(value: &Value, names: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                names.insert(name.clone());
                if !["summary", "cases", "timed"].contains(&&**name) {
                    fields(value, names);
                }
            }
        }
        Value::Array(all) => all.iter().for_each(|value| fields(value, names)),
        _ => {}
    }
}

fn diff(line: &str) -> Value {
    let (base, new) = scenario::sides(line);
    let pair = diff::compare(&base.table, &new.table, true, &ladder());
    let overall = verdict::of_differences(&pair.differences);
    let comparison = pages::diff::Comparison {
        base: "main".into(),
        new: "HEAD".into(),
        pairs: vec![("nvidia-h200".into(), pair)],
        notes: vec![],
        overall,
    };
    value(&Diff::from(&comparison))
}

fn run(words: &str) -> Value {
    let run = scenario::run(words);
    let report = verdict::report(crate::judge::View::alone(&run));
    value(&Run::new(
        &report,
        &report.overall(),
        Path::new("target/compare/x"),
    ))
}

fn candidate() -> Value {
    let of = scenario::candidate(
        "C1 pass | C2 pass | C3 pass | C5 pass | C6 pass; mine.py:attention | mission f16 full | peers | p50 10; \
         flash-attn | all | peers | note not installed",
    );
    value(&Candidate::from(&of))
}

#[test]
fn a_difference_has_its_figures_as_numbers() {
    let found = diff("emulated => same; counted wmma 1048576 32");
    assert_eq!(found["schema"], "compare.diff/1");
    assert_eq!(
        (&found["verdict"], &found["exit"]),
        (&"REGRESSION".into(), &1.into())
    );
    let differences = found["comparisons"][0]["differences"].as_array().unwrap();
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
    let found = run("emulated; wmma all: C3 fail");
    assert_eq!(
        (&found["verdict"], &found["exit"]),
        (&"FAIL".into(), &1.into())
    );
    assert_eq!(found["rows"], "target/compare/x/rows.jsonl");
    let variants = found["variants"].as_array().unwrap();
    let failed = variants
        .iter()
        .find(|variant| variant["state"] == "fail")
        .unwrap();
    assert_eq!(failed["gates"][0], "C3");
}

#[test]
fn a_candidate_has_its_rows_as_a_table_has_them() {
    let found = candidate();
    assert_eq!(
        (&found["verdict"], &found["exit"]),
        (&"PASS".into(), &0.into())
    );
    assert_eq!(found["timed"][0]["p50"], 10);
    assert_eq!(found["not_timed"][0], "flash-attn: not installed");
}

#[test]
fn every_field_is_documented() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/rows.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## JSON of commands\n").unwrap();
    let mut names = BTreeSet::new();
    let all = [
        diff("emulated => same; counted wmma 1048576 32"),
        run("emulated; - cpasync mission; measurable E1"),
        candidate(),
    ];
    all.iter().for_each(|value| fields(value, &mut names));
    let lacks = names
        .iter()
        .filter(|name| !section.contains(&format!("`{name}`")));
    let lacks = Vec::from_iter(lacks);
    assert!(lacks.is_empty(), "docs/rows.md does not name {lacks:?}");
}
