use super::*;
use crate::table::names::{DRAWS, ROWS, SESSIONS};
use crate::table::{Results, Table};
use crate::testing::scenario::{each, view};
use std::fs;
use std::path::Path;

const FOLDER: &str = "nvidia-h200";

/// Tables of two sessions, of which the second measured one variant again.
fn results() -> Results {
    let (_, table) = view(
        "timed; + scalar | 1x1x17x64 f16 full | draw | draw 0 | p50 9 & timed 31 19 14; - scalar !pair",
    );
    let mut results = Results::default();
    results.put(Some(FOLDER), &table);
    results
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        results().write(folder.path()).unwrap();
        Self(folder)
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.path().join(FOLDER).join(file)
    }

    fn text(&self, file: &str) -> String {
        fs::read_to_string(self.path(file)).unwrap()
    }

    fn edit(&self, file: &str, edit: impl Fn(&str) -> String) {
        let before = self.text(file);
        let after = edit(&before);
        assert_ne!(before, after, "{file}");
        fs::write(self.path(file), after).unwrap();
    }

    fn replace(&self, file: &str, from: &str, to: &str) {
        self.edit(file, |text| text.replacen(from, to, 1));
    }

    /// Halves a time, with its interval.
    fn halve(&self) {
        let times = |us: [&str; 3]| {
            format!(
                "\"p50\":{},\"p50_low\":{},\"p50_high\":{}",
                us[0], us[1], us[2]
            )
        };
        let (from, to) = (["32.03", "32.01", "32.04"], ["16.01", "16", "16.02"]);
        self.replace(ROWS, &times(from), &times(to));
    }

    fn take_out(&self, file: &str, line: usize) {
        self.edit(file, |text| {
            let mut left = String::new();
            for (index, kept) in text.lines().enumerate() {
                if index + 1 != line {
                    left += &format!("{kept}\n");
                }
            }
            left
        });
    }

    fn read(&self) -> Result<Results> {
        Results::read(self.0.path())
    }

    /// Returns what reading it says, without the folder and what follows from where it is.
    fn refused(&self) -> String {
        let folder = self.0.path().join("").display().to_string();
        let refusal = self.read().expect_err("it is refused").to_string();
        let error = refusal.replace(&folder, "");
        let end = error.find("; a figure is measured").unwrap_or(error.len());
        error[..end].to_string()
    }
}

#[test]
fn what_accept_wrote_is_read() {
    let folder = Folder::new();
    assert_eq!(folder.read().unwrap().files(), results().files());
    let digests = folder.text(DIGESTS);
    assert_eq!(digests.lines().count(), 3, "{digests}");
    assert!(digests.starts_with("{\"format\":1}\n{\"session\":\"1\",\"sha256\":\""));
}

/// `FILE | WHAT IS DONE`; the first line of rows.jsonl that has a time is of session 1.
#[test]
fn an_edit_is_refused_with_file_line_and_session() {
    let answers = each(
        "rows.jsonl | halve
        rows.jsonl | \"session\":\"1\" => \"session\":\"2\"
        rows.jsonl | \"session\":\"1\" => \"session\":\"3\"
        rows.jsonl | \"C1\":\"pass\" => \"C1\":\"fail\"
        rows.jsonl | \"identity\":\" => \"identity\":\"0
        rows.jsonl | take out 2
        rows.jsonl | double 2
        rows.jsonl | all p50
        rows.jsonl | delete
        draws.jsonl | 9.0 => 8.0
        draws.jsonl | take out 1
        sessions.jsonl | NVIDIA H200 => NVIDIA H100
        sessions.jsonl | 580 => 581
        sessions.jsonl | take out 1
        digests.jsonl | sha256\":\" => sha256\":\"0
        digests.jsonl | take out 2
        digests.jsonl | take out 1
        digests.jsonl | \"format\":1 => \"format\":2
        digests.jsonl | delete",
        |line| {
            let (file, edit) = line.split_once(" | ").unwrap();
            let folder = Folder::new();
            match edit.split_once(" => ") {
                Some((from, to)) => folder.replace(file, from, to),
                None if edit == "delete" => fs::remove_file(folder.path(file)).unwrap(),
                None if edit == "halve" => folder.halve(),
                None if edit == "all p50" => {
                    let columns = ["p50", "p50_low", "p50_high"].map(|of| format!("\"{of}\":"));
                    for column in columns {
                        let slow = format!("{column}2");
                        folder.edit(file, |text| text.replace(&column, &slow));
                    }
                }
                None if edit == "double 2" => folder.edit(file, |text| {
                    let second = text.lines().nth(1).unwrap();
                    format!("{text}{}\n", second.replace("/scalar", "/another"))
                }),
                None => {
                    folder.take_out(file, edit.trim_start_matches("take out ").parse().unwrap())
                }
            }
            folder.refused()
        },
    );
    insta::assert_snapshot!(answers, @r#"
    rows.jsonl | halve
        nvidia-h200/rows.jsonl: line 2 was changed or added after `compare accept` wrote it (session '1')
    rows.jsonl | "session":"1" => "session":"2"
        nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '2', and another)
    rows.jsonl | "session":"1" => "session":"3"
        nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '3', and another)
    rows.jsonl | "C1":"pass" => "C1":"fail"
        nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    rows.jsonl | "identity":" => "identity":"0
        nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    rows.jsonl | take out 2
        nvidia-h200/rows.jsonl: line 2 was taken out after `compare accept` wrote it (session '1')
    rows.jsonl | double 2
        nvidia-h200/rows.jsonl: line 9 was changed or added after `compare accept` wrote it (session '1')
    rows.jsonl | all p50
        nvidia-h200/rows.jsonl: line 2 was changed or added after `compare accept` wrote it (session '1', and another)
    rows.jsonl | delete
        nvidia-h200/rows.jsonl: line 1 was taken out after `compare accept` wrote it (session '1', and another)
    draws.jsonl | 9.0 => 8.0
        nvidia-h200/draws.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    draws.jsonl | take out 1
        nvidia-h200/draws.jsonl: line 1 was taken out after `compare accept` wrote it (session '1')
    sessions.jsonl | NVIDIA H200 => NVIDIA H100
        nvidia-h200/sessions.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    sessions.jsonl | 580 => 581
        nvidia-h200/sessions.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    sessions.jsonl | take out 1
        nvidia-h200/sessions.jsonl: line 1 was taken out after `compare accept` wrote it (session '1')
    digests.jsonl | sha256":" => sha256":"0
        nvidia-h200/digests.jsonl: line 2 is not the digest of the session's rows (session '1')
    digests.jsonl | take out 2
        nvidia-h200/digests.jsonl: line 2 is the last, and none is the digest of the session (session '1')
    digests.jsonl | take out 1
        nvidia-h200/digests.jsonl is not of the format that this version reads; use the version that wrote it
    digests.jsonl | "format":1 => "format":2
        nvidia-h200/digests.jsonl is not of the format that this version reads; use the version that wrote it
    digests.jsonl | delete
        nvidia-h200 has no digests.jsonl, which tells edited figures from measured ones; take it back with `git checkout`; tables from before it existed are compared as revisions (`compare diff REVISION HEAD`)
    "#);
}

#[test]
fn where_no_checksum_tells_the_line_the_session_is_named() {
    let without_sums = Folder::new();
    without_sums.halve();
    fs::remove_file(without_sums.path(SUMS)).unwrap();
    let without = without_sums.refused();
    let without_row_and_its_sum = Folder::new();
    without_row_and_its_sum.take_out(ROWS, 1);
    let sums = without_row_and_its_sum.text(SUMS);
    let header = sums.lines().position(|line| line == ROWS);
    without_row_and_its_sum.take_out(SUMS, header.unwrap() + 2);
    let refusal = without_row_and_its_sum.refused();
    insta::assert_snapshot!(format!("{without}\n{refusal}"), @"
    nvidia-h200/digests.jsonl: line 2 is not the digest of the session's rows (session '1')
    nvidia-h200/digests.jsonl: line 2 is not the digest of the session's rows (session '1')
    ");
}

#[test]
fn white_space_and_the_order_of_lines_are_no_figures() {
    let folder = Folder::new();
    for file in [ROWS, SESSIONS, DRAWS, DIGESTS] {
        let text = folder.text(file);
        let reversed: Vec<&str> = text.lines().rev().collect();
        fs::write(folder.path(file), reversed.join("  \r\n\n")).unwrap();
    }
    assert_eq!(folder.read().unwrap().files(), results().files());
}

#[test]
fn a_later_session_that_replaces_rows_changes_the_digest_of_an_older_one_and_no_other() {
    let digests = |words: &str| {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::default();
        results.put(Some(FOLDER), &view(words).1);
        results.write(folder.path()).unwrap();
        assert_eq!(
            Results::read(folder.path()).unwrap().files(),
            results.files()
        );
        Texts {
            folder: PathBuf::new(),
            files: FILES
                .iter()
                .map(|file| {
                    (
                        file.to_string(),
                        fs::read(folder.path().join(FOLDER).join(file)).unwrap(),
                    )
                })
                .collect(),
        }
        .digests()
    };
    let first =
        "timed; - scalar & timed; - wmma; - cpasync; + scalar | mission f16 full | gpu | p50 9";
    let (before, after) = (
        digests(first),
        digests(&format!("{first} & timed; - scalar; - wmma")),
    );
    assert_ne!(before["1"], after["1"], "rows of it were replaced");
    assert_eq!(before["2"], after["2"]);
    assert!(!before.contains_key("3") && after.contains_key("3"));
}

#[test]
fn a_choice_is_what_was_fitted_to_its_table() {
    let folder = Folder::new();
    let choices = tempfile::tempdir().unwrap();
    let path = choices.path().join(format!("{FOLDER}.json"));
    let check = || {
        let results = folder.read().unwrap();
        let refused = results.verify_choices(choices.path()).err();
        refused.map(|error| {
            error
                .to_string()
                .contains("is not what `compare accept` fitted")
        })
    };
    assert_eq!(check(), None, "neither is there");
    fs::write(&path, "fitted").unwrap();
    assert_eq!(check(), Some(true), "no fit is known");
    let mut results = folder.read().unwrap();
    results.choose(FOLDER, "fitted");
    results.write(folder.0.path()).unwrap();
    assert_eq!(check(), None);
    // Tables that are written again keep it.
    folder.read().unwrap().write(folder.0.path()).unwrap();
    assert_eq!(check(), None);
    fs::write(&path, "edited").unwrap();
    assert_eq!(check(), Some(true));
    fs::remove_file(&path).unwrap();
    assert_eq!(check(), Some(true));
}

#[test]
fn the_committed_choices_are_those_that_were_fitted_to_the_committed_tables() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = crate::testing::results();
    results
        .verify_choices(&root.join(crate::workspace::CHOICE))
        .unwrap();
    assert!(!results.gpus.values().any(Table::is_empty));
}
