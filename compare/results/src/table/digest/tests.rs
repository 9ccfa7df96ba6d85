use super::*;
use crate::table::names::{DRAWS, ROWS, SESSIONS};
use crate::table::{Results, Run, Table};
use crate::testing::{CPASYNC, SCALAR, US, WMMA, row, table_of_sessions, timed};
use std::fs;
use std::path::Path;

const FOLDER: &str = "nvidia-h200";

/// Tables of two sessions, of which the second measured one variant again.
fn results() -> Results {
    let first = timed(US).with_row(row("scalar | 1x1x17x64 f16 full | draw | draw 0 | p50 9"));
    let second = timed([31.0, 19.0, 14.0]).without_subject(SCALAR);
    let mut results = Results::default();
    results.put(Some(FOLDER), &table_of_sessions(&[first, second]));
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

#[test]
fn a_time_that_is_halved_is_refused() {
    let folder = Folder::new();
    folder.halve();
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 2 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn a_row_under_another_session_is_refused() {
    let folder = Folder::new();
    folder.replace(ROWS, r#""session":"1""#, r#""session":"2""#);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '2', and another)
    ");
}

#[test]
fn a_row_under_an_unknown_session_is_refused() {
    let folder = Folder::new();
    folder.replace(ROWS, r#""session":"1""#, r#""session":"3""#);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '3', and another)
    ");
}

#[test]
fn a_gate_that_is_turned_is_refused() {
    let folder = Folder::new();
    folder.replace(ROWS, r#""C1":"pass""#, r#""C1":"fail""#);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn a_row_of_another_kernel_is_refused() {
    let folder = Folder::new();
    folder.replace(ROWS, r#""identity":""#, r#""identity":"0"#);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn a_row_that_is_taken_out_is_refused() {
    let folder = Folder::new();
    folder.take_out(ROWS, 2);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 2 was taken out after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn a_row_that_is_added_is_refused() {
    let folder = Folder::new();
    folder.edit(ROWS, |text| {
        let second = text.lines().nth(1).unwrap();
        format!("{text}{}\n", second.replace("/scalar", "/another"))
    });
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 9 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn times_that_are_all_changed_are_refused() {
    let folder = Folder::new();
    for column in ["p50", "p50_low", "p50_high"] {
        let digit_before = format!("\"{column}\":2");
        folder.edit(ROWS, |text| {
            text.replace(&format!("\"{column}\":"), &digit_before)
        });
    }
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 2 was changed or added after `compare accept` wrote it (session '1', and another)
    ");
}

#[test]
fn rows_that_are_deleted_are_refused() {
    let folder = Folder::new();
    fs::remove_file(folder.path(ROWS)).unwrap();
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/rows.jsonl: line 1 was taken out after `compare accept` wrote it (session '1', and another)
    ");
}

#[test]
fn a_random_time_that_is_changed_is_refused() {
    let folder = Folder::new();
    folder.replace(DRAWS, "9.0", "8.0");
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/draws.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn random_times_that_are_taken_out_are_refused() {
    let folder = Folder::new();
    folder.take_out(DRAWS, 1);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/draws.jsonl: line 1 was taken out after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn another_gpu_of_a_session_is_refused() {
    let folder = Folder::new();
    folder.replace(SESSIONS, "NVIDIA H200", "NVIDIA H100");
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/sessions.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn another_driver_of_a_session_is_refused() {
    let folder = Folder::new();
    folder.replace(SESSIONS, "580", "581");
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/sessions.jsonl: line 1 was changed or added after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn a_session_that_is_taken_out_is_refused() {
    let folder = Folder::new();
    folder.take_out(SESSIONS, 1);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/sessions.jsonl: line 1 was taken out after `compare accept` wrote it (session '1')
    ");
}

#[test]
fn a_digest_that_is_changed_is_refused() {
    let folder = Folder::new();
    folder.replace(DIGESTS, r#"sha256":""#, r#"sha256":"0"#);
    insta::assert_snapshot!(folder.refused(), @"nvidia-h200/digests.jsonl: line 2 is not the digest of the session's rows (session '1')");
}

#[test]
fn a_digest_that_is_taken_out_is_refused() {
    let folder = Folder::new();
    folder.take_out(DIGESTS, 2);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/digests.jsonl: line 2 is the last, and none is the digest of the session (session '1')
    ");
}

#[test]
fn a_format_that_is_taken_out_is_refused() {
    let folder = Folder::new();
    folder.take_out(DIGESTS, 1);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/digests.jsonl is not of the format that this version reads; use the version that wrote it
    ");
}

#[test]
fn another_format_is_refused() {
    let folder = Folder::new();
    folder.replace(DIGESTS, r#""format":1"#, r#""format":2"#);
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200/digests.jsonl is not of the format that this version reads; use the version that wrote it
    ");
}

#[test]
fn digests_that_are_deleted_are_refused() {
    let folder = Folder::new();
    fs::remove_file(folder.path(DIGESTS)).unwrap();
    insta::assert_snapshot!(folder.refused(), @"
    nvidia-h200 has no digests.jsonl, which tells edited figures from measured ones; take it back with `git checkout`; tables from before it existed are compared as revisions (`compare diff REVISION HEAD`)
    ");
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

/// Returns the digest of each of these sessions in a table that is written.
fn digests(sessions: &[Run]) -> BTreeMap<String, String> {
    let folder = tempfile::tempdir().unwrap();
    let mut results = Results::default();
    results.put(Some(FOLDER), &table_of_sessions(sessions));
    results.write(folder.path()).unwrap();
    let read = Results::read(folder.path()).unwrap();
    assert_eq!(read.files(), results.files());
    Texts::read(&folder.path().join(FOLDER)).unwrap().digests()
}

#[test]
fn a_later_session_that_replaces_rows_changes_the_digest_of_an_older_one_and_no_other() {
    let first = timed(US).without_subject(SCALAR);
    let second = timed(US)
        .without_subject(WMMA)
        .without_subject(CPASYNC)
        .with_row(row("scalar | mission f16 full | gpu | p50 9"));
    let third = timed(US).without_subject(SCALAR).without_subject(WMMA);
    let before = digests(&[first.clone(), second.clone()]);
    let after = digests(&[first, second, third]);
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
