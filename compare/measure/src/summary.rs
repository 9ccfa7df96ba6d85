//! Summarises the cases of each variant in one row.

use super::plan::PlannedCase;
use common::gate;
use common::metric::Metric;
use common::verdict::{GateId, Verdict};
use results::judge::state::rank;
use results::table::{Judged, Kind, Row, Run, Subject};
use std::collections::{BTreeMap, HashMap};

/// Updates the summary row of each variant from its cases, and from the self-test if that found it
/// broken. A variant has one once all cases `planned` for it have been run or one of them fails: an
/// interrupted run leaves whole variants.
pub fn summarise(run: &mut Run, planned: &[PlannedCase]) {
    let mut remaining: HashMap<&Subject, usize> = HashMap::new();
    for case in planned {
        *remaining.entry(&case.subject).or_default() += 1;
    }
    let mut by_variant: HashMap<&Subject, Vec<&Row>> = HashMap::new();
    for case in run.cases() {
        by_variant.entry(&case.subject).or_default().push(case);
        if let Some(count) = remaining.get_mut(&case.subject) {
            *count = count.saturating_sub(1);
        }
    }
    for row in run.table.self_tests() {
        by_variant.entry(&row.subject).or_default().push(row);
    }
    let mut summaries = Vec::new();
    for subject in run.variants() {
        let Some(rows) = by_variant.get(&subject) else {
            continue;
        };
        let is_whole = remaining.get(&subject).is_none_or(|count| *count == 0);
        if is_whole || rows.iter().any(|row| row.failure().is_some()) {
            let kind = Kind::Checked(run.session.backend);
            summaries.push(summary(subject, kind, rows));
        }
    }
    run.extend(summaries);
}

/// Makes the row of a variant over all its cases.
pub fn summary(subject: Subject, kind: Kind, rows: &[&Row]) -> Row {
    let mut row = Row::new(subject, kind);
    let mut checked = 0_usize;
    let mut unsupported = 0_usize;
    let mut failed = 0_usize;
    for case in rows {
        if !is_case(case) {
            continue;
        }
        match case.value(Metric::MaxError) {
            None if case.verdicts.is_empty() => unsupported += 1,
            None => failed += 1,
            Some(max_error) => {
                checked += 1;
                row = with_worse_errors(row, case, max_error);
            }
        }
    }
    row = row
        .figure(Metric::Cases, checked)
        .figure(Metric::CasesUnsupported, unsupported)
        .figure(Metric::CasesFailed, failed);
    let mut by_gate: BTreeMap<GateId, Vec<CaseVerdict<'_>>> = BTreeMap::new();
    for case in rows {
        for (gate, judged) in &case.verdicts {
            let verdict = CaseVerdict { row: case, judged };
            by_gate.entry(*gate).or_default().push(verdict);
        }
    }
    for (gate, verdicts) in by_gate {
        row.judge(gate, fold(&verdicts));
    }
    row
}

/// Takes over the errors of a case that are worse than those of the row.
fn with_worse_errors(mut row: Row, case: &Row, max_error: f64) -> Row {
    if is_worse(&row, Metric::MaxError, max_error) {
        for metric in [Metric::MaxError, Metric::MaxRowError] {
            row = row.figure(metric, case.value(metric).unwrap_or(max_error));
        }
        row = row.note(case.place().to_string());
    }
    for metric in [Metric::ErrorOfBound, Metric::RowErrorOfBound] {
        if let Some(value) = case.value(metric)
            && is_worse(&row, metric, value)
        {
            row = row.figure(metric, value);
        }
    }
    row
}

fn is_case(row: &Row) -> bool {
    row.kind.is_case()
}

/// Returns whether an error is worse than the row's. NaN is worse than any error, and any error is
/// worse than none.
fn is_worse(row: &Row, metric: Metric, error: f64) -> bool {
    row.value(metric)
        .is_none_or(|worst| gate::is_worse(worst, error))
}

/// The verdict of a gate on one row.
struct CaseVerdict<'a> {
    row: &'a Row,
    judged: &'a Judged,
}

/// Judges one gate over all rows: FAIL if any fails, else AMBIGUOUS if any is, else PASS if any
/// passes, else NO DATA; with the reason of the first that decides and, if only some cases fail,
/// how many.
fn fold(verdicts: &[CaseVerdict<'_>]) -> Judged {
    let deciding = verdicts
        .iter()
        .min_by_key(|of_row| rank(of_row.judged.verdict))
        .expect("the gate has results");
    let verdict = deciding.judged.verdict;
    let failing = count_cases(verdicts, Verdict::Fail);
    let passing = count_cases(verdicts, Verdict::Pass);
    let no_data = verdicts
        .iter()
        .filter(|of_row| of_row.judged.verdict == Verdict::NoData)
        .count();
    let mut reason = String::new();
    if verdict != Verdict::Pass {
        if failing > 0 && failing + passing > 1 {
            reason = format!("fails in {failing} of {} cases; first ", failing + passing);
        }
        if is_case(deciding.row) {
            reason += &format!("{}: ", deciding.row.place());
        }
        reason += &deciding.judged.reason;
    }
    Judged {
        verdict,
        passed: Some(passing),
        of: Some(verdicts.len() - no_data),
        reason,
    }
}

/// Counts the cases with a verdict.
fn count_cases(verdicts: &[CaseVerdict<'_>], verdict: Verdict) -> usize {
    verdicts
        .iter()
        .filter(|of_row| of_row.judged.verdict == verdict && is_case(of_row.row))
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Mode;
    use common::check;
    use common::device::BackendKind;
    use common::inputs::Family;
    use common::problem::{Dtype, claims_problem};
    use results::judge::list::joined;
    use results::table::Place;
    use results::testing::{self, CPASYNC, SCALAR, WMMA, row};

    /// Rows of cases of seed 0, 1, …, or of what a self-test found.
    fn rows(cases: &[&str]) -> Vec<Row> {
        let mut rows = Vec::new();
        for (seed, words) in cases.iter().enumerate() {
            rows.push(match words.strip_prefix("self-test ") {
                Some(verdict) => row(&format!("wmma | : as it is | self-test | {verdict}")),
                None => row(&format!(
                    "wmma | mission f16 full normal:{seed} | emulator | {words}"
                )),
            });
        }
        rows
    }

    /// Asserts the figures, verdicts and note of a variant with these cases.
    fn assert_summary(cases: &[&str], expected: &[&str]) {
        let rows = rows(cases);
        let row = summary(
            WMMA.into(),
            Kind::Checked(BackendKind::Emulated),
            &Vec::from_iter(&rows),
        );
        let mut lines = Vec::new();
        for (metric, figure) in &row.figures {
            lines.push(format!("{metric} {}", figure.value));
        }
        for (gate, judged) in &row.verdicts {
            let mut line = format!("{gate} {}", judged.verdict);
            if let (Some(passed), Some(all)) = (judged.passed, judged.of) {
                line += &format!(" {passed}/{all}");
            }
            line += &format!(" {}", judged.reason);
            lines.push(line.trim_end().to_string());
        }
        lines.extend(row.note);
        assert_eq!(lines, expected);
    }

    #[test]
    fn one_right_case_passes() {
        assert_summary(
            &["max_error 1 | C5 pass"],
            &[
                "max error 1",
                "max row error 1",
                "cases 1",
                "cases not supported 0",
                "launches failed 0",
                "C5 PASS 1/1",
                "mission f16 full normal:0",
            ],
        );
    }

    #[test]
    fn a_gate_that_never_had_data_has_none() {
        assert_summary(
            &["C5 no_data", "C5 no_data"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 2",
                "C5 NO DATA 0/0 mission f16 full normal:0: too large",
            ],
        );
    }

    #[test]
    fn cases_without_data_do_not_hide_a_pass() {
        assert_summary(
            &["C5 no_data", "C5 pass", "C5 pass"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 3",
                "C5 PASS 2/2",
            ],
        );
    }

    #[test]
    fn an_undecided_case_is_worse_than_a_pass() {
        assert_summary(
            &["C5 pass", "C5 ambiguous", "C5 no_data"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 3",
                "C5 AMBIGUOUS 1/2 mission f16 full normal:1: too large",
            ],
        );
    }

    #[test]
    fn a_single_case_that_fails_has_no_count() {
        assert_summary(
            &["C5 fail"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 1",
                "C5 FAIL 0/1 mission f16 full normal:0: too large",
            ],
        );
    }

    #[test]
    fn the_first_failing_case_decides_and_all_are_counted() {
        assert_summary(
            &["C5 ambiguous", "C5 fail", "C5 pass"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 3",
                "C5 FAIL 1/3 fails in 1 of 2 cases; first mission f16 full normal:1: too large",
            ],
        );
    }

    #[test]
    fn every_case_fails() {
        assert_summary(
            &["C5 fail", "C5 fail", "C5 fail"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 3",
                "C5 FAIL 0/3 fails in 3 of 3 cases; first mission f16 full normal:0: too large",
            ],
        );
    }

    #[test]
    fn each_error_is_the_worst_of_all_cases() {
        assert_summary(
            &[
                "max_error 1 | error_of_bound 0.1",
                "max_error 3 | max_row_error 5 | error_of_bound 0.2",
                "max_error 2 | error_of_bound 0.3",
            ],
            &[
                "max error 3",
                "max row error 5",
                "error of its bound 0.3",
                "cases 3",
                "cases not supported 0",
                "launches failed 0",
                "mission f16 full normal:1",
            ],
        );
    }

    #[test]
    fn no_number_is_worse_than_any_error() {
        assert_summary(
            &["max_error 1", "max_error NaN", "max_error 2"],
            &[
                "max error NaN",
                "max row error NaN",
                "cases 3",
                "cases not supported 0",
                "launches failed 0",
                "mission f16 full normal:1",
            ],
        );
    }

    #[test]
    fn no_number_is_worse_than_infinity_behind_it() {
        assert_summary(
            &["max_error NaN", "max_error inf", "max_error 2"],
            &[
                "max error NaN",
                "max row error NaN",
                "cases 3",
                "cases not supported 0",
                "launches failed 0",
                "mission f16 full normal:0",
            ],
        );
    }

    #[test]
    fn no_number_is_worse_than_infinity_before_it() {
        assert_summary(
            &["max_error 1", "max_error inf", "max_error NaN"],
            &[
                "max error NaN",
                "max row error NaN",
                "cases 3",
                "cases not supported 0",
                "launches failed 0",
                "mission f16 full normal:2",
            ],
        );
    }

    #[test]
    fn launches_that_failed_and_unsupported_cases_are_counted_apart() {
        assert_summary(
            &[
                "max_error 1",
                "C1 fail the launch failed: deadlock",
                "note too long",
                "max_error 2",
            ],
            &[
                "max error 2",
                "max row error 2",
                "cases 2",
                "cases not supported 1",
                "launches failed 1",
                "C1 FAIL 0/1 mission f16 full normal:1: the launch failed: deadlock",
                "mission f16 full normal:3",
            ],
        );
    }

    #[test]
    fn a_self_test_fails_a_variant_whose_cases_pass() {
        assert_summary(
            &["max_error 1 | H1 pass", "self-test H1 fail race"],
            &[
                "max error 1",
                "max row error 1",
                "cases 1",
                "cases not supported 0",
                "launches failed 0",
                "H1 FAIL 1/2 race",
                "mission f16 full normal:0",
            ],
        );
    }

    #[test]
    fn a_self_test_alone_fails_a_variant() {
        assert_summary(
            &["self-test H1 fail race"],
            &[
                "cases 0",
                "cases not supported 0",
                "launches failed 0",
                "H1 FAIL 0/1 race",
            ],
        );
    }

    #[test]
    fn a_variant_is_summed_up_once_all_of_its_cases_have_run_or_one_is_red() {
        let planned = [WMMA, WMMA, SCALAR].map(|subject| PlannedCase {
            subject: subject.into(),
            source: check::Source::Seeded {
                family: Family::Normal,
                seed: 0,
            },
            problem: claims_problem(Dtype::F16),
            mode: Mode::Plain,
            is_late: false,
            runs_ptx: false,
        });
        let summed = |cases: &[&str]| {
            let mut run = testing::emulated().without(|_| true);
            run.extend(rows(cases));
            summarise(&mut run, &planned);
            let rows = run.table.rows().filter(|row| row.place() == Place::All);
            joined(rows.map(|row| &row.subject), ", ")
        };
        assert_eq!(summed(&["max_error 1"]), "");
        assert_eq!(summed(&["max_error 1", "max_error 1"]), WMMA);
        assert_eq!(summed(&["C2 fail"]), WMMA);
        assert_eq!(summed(&["self-test H1 fail"]), WMMA);
        let mut run = testing::timed(testing::US).without(|row| row.place() == Place::All);
        run.append(testing::case(CPASYNC, BackendKind::Cuda, None));
        summarise(&mut run, &[]);
        assert!(
            run.table
                .checked(&CPASYNC.into(), BackendKind::Cuda)
                .is_some()
        );
    }
}
