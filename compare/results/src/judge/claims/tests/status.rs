//! What becomes of claims by a run and by the sessions before it.

use super::*;

/// Returns whose a claim is, its verdict and what follows from it.
fn status(claimed: &Claimed) -> String {
    let origin = match (claimed.is_of_run, claimed.is_stale) {
        (true, _) => "run ",
        (false, true) => "STALE ",
        (false, false) => "",
    };
    let mut words = format!("{origin}{}", claimed.finding.verdict);
    for (holds, word) in [
        (claimed.negative.is_some(), ", refuted"),
        (claimed.is_unexpected().is_some(), ", unexpected"),
        (claimed.is_broken(), ", broken"),
        (claimed.is_ambiguous(), ", open"),
    ] {
        if holds {
            words += word;
        }
    }
    words
}

/// Returns a run that refutes the first claim: wmma-qk is 1.2x as fast as scalar, and claims 1.5x.
fn refuting() -> Run {
    timed([24.0, 20.0, 15.0])
}

/// Returns what becomes of the first two claims, of speed and of counters, by a run on top of
/// these sessions.
fn statuses(run: Run, sessions: &[Run]) -> [String; 2] {
    let named = run.named("9");
    let table = table_of_sessions(sessions);
    let claims = claims(&View::of_run(&named, &table));
    [status(&claims[0]), status(&claims[1])]
}

#[test]
fn claims_are_the_runs_where_it_measured_them() {
    let run = timed(US);
    assert_eq!(statuses(run, &[]), ["run PASS", "run PASS"]);
}

#[test]
fn a_claim_that_fails_is_broken() {
    let run = refuting();
    assert_eq!(statuses(run, &[]), ["run FAIL, broken", "run PASS"]);
}

#[test]
fn a_claim_that_is_ambiguous_is_open() {
    let run = timed([30.0, 20.0, 15.0]);
    assert_eq!(statuses(run, &[]), ["run AMBIGUOUS, open", "run PASS"]);
}

#[test]
fn a_claim_that_nobody_measured_has_no_data() {
    let run = emulated();
    assert_eq!(statuses(run, &[]), ["NO DATA", "run PASS"]);
}

#[test]
fn a_claim_that_a_session_measured_is_the_tables() {
    let run = emulated();
    assert_eq!(statuses(run, &[timed(US)]), ["PASS", "run PASS"]);
}

#[test]
fn a_claim_that_a_session_refuted_is_broken() {
    let run = emulated();
    assert_eq!(statuses(run, &[refuting()]), ["FAIL, broken", "run PASS"]);
}

#[test]
fn a_claim_that_a_session_left_ambiguous_is_not_open_in_the_run() {
    let run = emulated();
    assert_eq!(
        statuses(run, &[timed([30.0, 20.0, 15.0])]),
        ["AMBIGUOUS", "run PASS"]
    );
}

#[test]
fn a_claim_about_former_kernels_is_stale() {
    let run = emulated();
    assert_eq!(
        statuses(run, &[timed(US).with_identity(0, "another")]),
        ["STALE PASS", "run PASS"]
    );
}

#[test]
fn a_claim_that_former_kernels_broke_is_stale_and_not_broken() {
    let run = emulated();
    assert_eq!(
        statuses(run, &[refuting().with_identity(0, "another")]),
        ["STALE FAIL", "run PASS"]
    );
}

#[test]
fn a_claim_that_the_run_did_not_time_is_the_tables() {
    let run = timed(US).without_pairs();
    assert_eq!(statuses(run, &[timed(US)]), ["PASS", "run PASS"]);
}

#[test]
fn a_claim_that_fails_and_is_recorded_is_not_broken() {
    let run = refuting().with_refuted_claim(0, 0);
    assert_eq!(statuses(run, &[]), ["run FAIL, refuted", "run PASS"]);
}

#[test]
fn a_record_of_the_sources_holds_for_the_table() {
    let run = emulated().with_refuted_claim(0, 0);
    assert_eq!(statuses(run, &[refuting()]), ["FAIL, refuted", "run PASS"]);
}

#[test]
fn a_claim_that_holds_and_is_recorded_is_unexpected() {
    let run = timed(US).with_refuted_claim(0, 0);
    assert_eq!(
        statuses(run, &[refuting()]),
        ["run PASS, refuted, unexpected", "run PASS"]
    );
}

#[test]
fn a_record_of_another_gpu_does_not_hold_here() {
    let run = refuting().with_claim_refuted_on("NVIDIA L4", 0, 0);
    assert_eq!(statuses(run, &[]), ["run FAIL, broken", "run PASS"]);
}

#[test]
fn a_record_of_one_claim_does_not_hold_for_another() {
    let run = refuting().with_refuted_claim(0, 1);
    assert_eq!(
        statuses(run, &[]),
        ["run FAIL, broken", "run PASS, refuted, unexpected"]
    );
}

#[test]
fn a_claim_about_counters_that_fails_and_is_recorded_is_not_broken() {
    let run = timed(US)
        .counted(WMMA, 1_048_577, 0)
        .with_refuted_claim(0, 1);
    assert_eq!(statuses(run, &[]), ["run PASS", "run FAIL, refuted"]);
}

#[test]
fn a_claim_about_counters_that_holds_and_is_recorded_is_unexpected() {
    let run = emulated().with_refuted_claim(0, 1);
    assert_eq!(
        statuses(run, &[]),
        ["NO DATA", "run PASS, refuted, unexpected"]
    );
}

#[test]
fn a_record_of_a_stale_claim_is_not_unexpected() {
    let run = emulated().with_refuted_claim(0, 0);
    assert_eq!(
        statuses(run, &[timed(US).with_identity(0, "another")]),
        ["STALE PASS, refuted", "run PASS"]
    );
}

#[test]
fn a_claim_about_counters_that_the_run_did_not_count_is_the_tables() {
    let run = emulated().without_counters();
    assert_eq!(statuses(run, &[emulated()]), ["NO DATA", "PASS"]);
}

/// Returns what becomes of all claims of these sources by a committed table.
fn committed_statuses(sources: &Run, sessions: &[Run]) -> Vec<String> {
    let table = table_of_sessions(sessions);
    claims(&View::committed(&sources.session.stages, &table))
        .iter()
        .map(status)
        .collect()
}

#[test]
fn claims_about_kernels_that_have_not_changed_are_not_stale() {
    let statuses = committed_statuses(&emulated(), &[timed(US)]);
    assert_eq!(statuses, ["PASS", "PASS", "PASS", "PASS"]);
}

#[test]
fn claims_are_not_stale_by_the_sources_of_their_session() {
    let other = timed(US).with_identity(0, "another");
    let statuses = committed_statuses(&other, std::slice::from_ref(&other));
    assert_eq!(statuses, ["PASS", "PASS", "PASS", "PASS"]);
}

#[test]
fn a_claim_over_a_base_that_has_changed_is_stale() {
    let other = timed(US).with_identity(0, "another");
    let statuses = committed_statuses(&emulated(), &[other]);
    assert_eq!(statuses, ["STALE PASS", "STALE PASS", "STALE PASS", "PASS"]);
}

#[test]
fn a_claim_is_stale_if_one_of_two_figures_is_of_an_older_kernel() {
    let bound = Relation::AtMost { bound: 1e9 };
    let wide = emulated()
        .with_variant(CPASYNC, "cpasync-64x64")
        .with_bound(1, 1, Metric::GlobalReadBytes, bound);
    let older = wide.clone().with_identity(1, "another");
    let newer = wide.clone().without_subject("stage1-cpasync/cpasync-64x64");
    let statuses = committed_statuses(&wide, &[older, newer]);
    assert_eq!(statuses, ["NO DATA", "PASS", "NO DATA", "STALE PASS"]);
}

#[test]
fn a_newer_figure_of_another_kernel_makes_a_claim_stale() {
    let other = refuting().with_identity(0, "another");
    let statuses = committed_statuses(&emulated(), &[timed(US), other]);
    assert_eq!(statuses, ["STALE FAIL", "STALE PASS", "STALE PASS", "PASS"]);
}

/// Returns the rows of claims in a table of a session in which the first fails, stated by the
/// ladder and again by these stages.
fn restated(stages: &[StageMeta]) -> Vec<String> {
    let mut table = table_of_sessions(&[refuting()]);
    restate(&mut table, &ladder());
    restate(&mut table, stages);
    let mut lines = Vec::new();
    for row in table.rows_by(Source::Claim) {
        let (gate, judged) = row.verdicts.iter().next().unwrap();
        let refuted = if row.note.is_some() { ", refuted" } else { "" };
        lines.push(format!(
            "{} {gate} {}{refuted}",
            row.subject, judged.verdict
        ));
    }
    lines
}

#[test]
fn a_table_has_one_row_for_each_claim() {
    assert_eq!(
        restated(&ladder()),
        [
            "stage0-scalar/wmma-qk E1 PASS",
            "stage0-scalar/wmma-qk L1 FAIL",
            "stage1-cpasync/cpasync E1 PASS",
            "stage1-cpasync/cpasync L1 PASS",
        ]
    );
}

#[test]
fn a_table_has_claims_as_the_sources_have_them_now() {
    let sources = emulated().with_refuted_claim(0, 0).with_first_claims(1, 0);
    assert_eq!(
        restated(&sources.session.stages),
        [
            "stage0-scalar/wmma-qk E1 PASS",
            "stage0-scalar/wmma-qk L1 FAIL, refuted",
        ]
    );
}
