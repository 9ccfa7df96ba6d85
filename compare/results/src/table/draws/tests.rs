use super::*;
use crate::table::files::TableFile;
use crate::table::merge::Table;
use crate::table::names::{DRAWS, ROWS};
use std::path::Path;

fn row(line: &str) -> Row {
    serde_json::from_str(line).unwrap()
}

fn read(files: &[TableFile]) -> Result<Table, String> {
    let mut table = Table::default();
    for TableFile { path, bytes } in files {
        let parsed = table.parse(path, bytes, Path::new(path));
        parsed.map_err(|error| format!("{:#}", anyhow::Error::from(error)))?;
    }
    Ok(table)
}

/// A variant without a time at a problem, or of two machine codes; a row with a verdict, of
/// other conditions, or of none of these.
#[test]
fn times_at_random_problems_are_lines_and_read_back() {
    let draw = |subject: &str, shape: &str, rest: &str| {
        row(&format!(
            r#"{{"subject":"{subject}","shape":"{shape}","dtype":"f16","mask":"causal","by":"draw","session":"1","identity":"i","code":"c",{rest}}}"#
        ))
    };
    let mut table = Table::default();
    table.extend([
        draw("s/v", "1x2x512x64", r#""p50":5.274,"draw":7"#),
        draw("s/w", "1x2x512x64", r#""p50":216,"draw":7"#),
        draw("s/w", "1x2:1x1:99x64", r#""p50":3.1,"draw":12"#),
        draw("s/v", "1x2x512x128", r#""p50":9,"draw":3"#),
        draw(
            "s/v",
            "1x2x16x64",
            r#""p50":9,"draw":5,"C2":"fail","C2_reason":"max error 1""#,
        ),
        draw("s/v", "1x2x32x64", r#""p50":9,"draw":5,"cold":true"#),
        draw("s/v", "1x2x48x64", r#""draw":6,"note":"not supported""#),
        row(
            r#"{"subject":"s/v","shape":"mission","dtype":"f16","mask":"full","by":"gpu","p50":5}"#,
        ),
    ]);
    let mut other = draw("s/v", "1x2:1x1:99x64", r#""p50":3,"draw":12"#);
    other.code = None;
    table.append(other);
    let files = table.files();
    insta::assert_snapshot!(String::from_utf8_lossy(&files[1].bytes), @r#"
    {"session":"1","dtype":"f16","shape":["1x2x512x64","1x2:1x1:99x64"],"mask":["causal","causal"],"draw":[7,12],"kernels":[{"subject":"s/v","identity":"i","code":null,"p50":[null,3.0]},{"subject":"s/v","identity":"i","code":"c","p50":[5.274,null]},{"subject":"s/w","identity":"i","code":"c","p50":[216.0,3.1]}]}
    {"session":"1","dtype":"f16","shape":["1x2x512x128"],"mask":["causal"],"draw":[3],"kernels":[{"subject":"s/v","identity":"i","code":"c","p50":[9.0]}]}
    "#);
    let new_lines = files[0].bytes.iter().filter(|byte| **byte == b'\n');
    assert_eq!(new_lines.count(), 4);
    assert_eq!(read(&files).unwrap(), table);
}

const LINE: &str = r#"{"session":"1","dtype":"f16","shape":["1x2x512x64","1x2x16x64"],"mask":["full","full"],"draw":[7,8],"kernels":[{"subject":"s/v","identity":"i","code":"c","p50":[5,6.5]}]}"#;

fn draws(line: &str) -> TableFile {
    TableFile::new(DRAWS, line.as_bytes().to_vec())
}

/// Returns why [`LINE`] is refused once a part of it is replaced.
#[track_caller]
fn refusal(from: &str, to: &str) -> String {
    assert!(LINE.contains(from));
    read(&[draws(&LINE.replace(from, to))]).unwrap_err()
}

#[test]
fn a_line_of_times_is_a_row_for_each_problem() {
    assert_eq!(read(&[draws(LINE)]).unwrap().rows().count(), 2);
}

#[test]
fn a_list_with_too_few_times_is_refused() {
    let refusal = refusal("[5,6.5]", "[5]");
    insta::assert_snapshot!(refusal, @"draws.jsonl: line 1 is malformed: a list of 1 values, of 2 problems");
}

#[test]
fn a_list_with_too_few_masks_is_refused() {
    let refusal = refusal(r#"["full","full"]"#, r#"["full"]"#);
    insta::assert_snapshot!(refusal, @"draws.jsonl: line 1 is malformed: a list of 1 values, of 2 problems");
}

#[test]
fn a_list_with_too_many_draws_is_refused() {
    let refusal = refusal("[7,8]", "[7,8,9]");
    insta::assert_snapshot!(refusal, @"draws.jsonl: line 1 is malformed: a list of 3 values, of 2 problems");
}

#[test]
fn a_time_of_nothing_is_refused() {
    let refusal = refusal("[5,6.5]", "[5,0]");
    insta::assert_snapshot!(refusal, @"
    draws.jsonl: line 1 is malformed: s/v on 1x2x16x64 f16 full by draw: p50 is 0, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_time_below_nothing_is_refused() {
    let refusal = refusal("[5,6.5]", "[-5,6.5]");
    insta::assert_snapshot!(refusal, @"
    draws.jsonl: line 1 is malformed: s/v on 1x2x512x64 f16 full by draw: p50 is -5, which cannot be measured: it must be a positive number inside its interval; measure it again
    ");
}

#[test]
fn a_time_in_words_is_refused() {
    let refusal = refusal("[5,6.5]", r#"[5,"fast"]"#);
    insta::assert_snapshot!(refusal, @r#"
    draws.jsonl: line 1 is malformed: invalid type: string "fast", expected f64 at line 1 column 169
    "#);
}

#[test]
fn a_problem_that_is_there_twice_is_refused() {
    let refusal = refusal("1x2x16x64", "1x2x512x64");
    insta::assert_snapshot!(refusal, @"draws.jsonl: duplicate row of s/v on 1x2x512x64 f16 full by draw");
}

#[test]
fn an_unknown_mask_is_refused() {
    let refusal = refusal(r#""full","full""#, r#""full","most""#);
    insta::assert_snapshot!(refusal, @"
    draws.jsonl: line 1 is malformed: unknown variant `most`, expected `full` or `causal` at line 1 column 85
    ");
}

#[test]
fn a_time_that_is_among_the_rows_too_is_refused() {
    let twice = serde_json::to_vec(read(&[draws(LINE)]).unwrap().rows().next().unwrap());
    let rows = TableFile::new(ROWS, twice.unwrap());
    let error = read(&[draws(LINE), rows]).unwrap_err();
    assert!(error.contains("duplicate row"), "{error}");
}
