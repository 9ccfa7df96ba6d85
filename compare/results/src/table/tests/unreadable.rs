//! Files that cannot be read, with the place and the reason.

use super::*;

/// Returns why a run cannot be read whose file was changed, without the folder.
fn refusal(file: &str, change: impl Fn(&Path, &str)) -> String {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(folder.path()).unwrap();
    let path = folder.path().join(file);
    let text = fs::read_to_string(&path).unwrap();
    change(&path, &text);
    let error = Run::read(folder.path(), &timed(US).session.stages).unwrap_err();
    let source = error.source().map(|source| format!(": {source}"));
    let words = format!("{error}{}", source.unwrap_or_default());
    words.replace(&folder.path().display().to_string(), "RUN")
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap()
}

#[test]
fn a_row_with_a_wrong_column_is_named_by_its_line() {
    let refusal = refusal(ROWS, |path, text| {
        fs::write(path, format!("{text}{{\"subject\": 1}}")).unwrap();
    });
    insta::assert_snapshot!(refusal, @"RUN/rows.jsonl: line 16 is malformed: column `subject`: invalid type: integer `1`, expected a string");
}

#[test]
fn a_row_that_is_cut_is_named_by_its_line_behind_empty_ones() {
    let refusal = refusal(ROWS, |path, text| {
        fs::write(path, format!("\r\n{}\r\n{{", first_line(text))).unwrap();
    });
    insta::assert_snapshot!(refusal, @"RUN/rows.jsonl: line 3 is malformed: EOF while parsing an object at line 1 column 1");
}

#[test]
fn a_row_that_is_there_twice_is_named() {
    let refusal = refusal(ROWS, |path, text| {
        fs::write(path, [first_line(text); 2].join("\n")).unwrap();
    });
    insta::assert_snapshot!(refusal, @"RUN/rows.jsonl: duplicate row of self-test on : correct model by self-test");
}

#[test]
fn rows_that_were_lost_are_counted() {
    let refusal = refusal(ROWS, |path, text| {
        fs::write(path, first_line(text)).unwrap();
    });
    insta::assert_snapshot!(refusal, @"RUN/rows.jsonl has 1 of the 15 rows that were written; copy the run again");
}

#[test]
fn a_file_of_rows_that_is_gone_has_none() {
    let refusal = refusal(ROWS, |path, _| fs::remove_file(path).unwrap());
    insta::assert_snapshot!(refusal, @"RUN/rows.jsonl has 0 of the 15 rows that were written; copy the run again");
}

#[test]
fn a_folder_in_place_of_rows_cannot_be_read() {
    let refusal = refusal(ROWS, |path, _| {
        fs::remove_file(path).unwrap();
        fs::create_dir(path).unwrap();
    });
    insta::assert_snapshot!(refusal, @"cannot read RUN/rows.jsonl: Is a directory (os error 21)");
}

#[test]
fn a_session_that_is_cut_is_named_by_its_line() {
    let refusal = refusal(files::SESSION, |path, _| fs::write(path, "{").unwrap());
    insta::assert_snapshot!(refusal, @"RUN/session.json: line 1 is malformed: EOF while parsing an object at line 1 column 1");
}

#[test]
fn a_folder_without_a_session_is_no_run() {
    let refusal = refusal(files::SESSION, |path, _| fs::remove_file(path).unwrap());
    insta::assert_snapshot!(refusal, @"RUN is not a run: it has no session.json; name a folder that `compare run` of this version wrote");
}

#[test]
fn a_run_that_lost_one_row_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    timed(US).write(folder.path()).unwrap();
    let path = folder.path().join(ROWS);
    let rows = fs::read_to_string(&path).unwrap();
    let all_but_one: Vec<&str> = rows.lines().skip(1).collect();
    fs::write(&path, all_but_one.join("\n")).unwrap();
    let error = Run::read(folder.path(), &timed(US).session.stages).unwrap_err();
    assert!(
        error
            .to_string()
            .ends_with("has 14 of the 15 rows that were written; copy the run again"),
        "{error}"
    );
}

#[test]
fn a_session_without_a_name_is_named_by_its_line() {
    let mut sessions = Table::default();
    let error = sessions
        .parse(SESSIONS, b"\n{}\n", Path::new(SESSIONS))
        .unwrap_err();
    assert!(
        error.to_string().contains("sessions.jsonl: line 2"),
        "{error}"
    );
}

#[test]
fn a_column_of_another_version_is_left_out() {
    let mut read = Table::default();
    let text = serde_json::to_string(&emulated().table.rows().next()).unwrap();
    let newer = text.replace("\"by\"", "\"other\":1,\"by\"");
    read.parse(ROWS, newer.as_bytes(), Path::new(ROWS)).unwrap();
    assert_eq!(read.rows().next(), emulated().table.rows().next());
}
