//! Reports of tables and of runs on top of them.

mod figures;
mod missing;
mod outcomes;
mod verdicts;

use super::best::{Latency, best_of, subject};
use super::diff::{About, Change, Difference, Group, What};
use super::peers::{outcome, problems};
use super::verdict::{
    Exit, Overall, Since, of_differences, report, report_of_checks, report_of_run,
};
use super::*;
use crate::table::{Figure, Kind, ProblemPlace, Run, Table};
use crate::testing::{
    CPASYNC, GPU, IN_EMULATOR, ON_GPU, PeerArm, SCALAR, US, VARIANTS, WMMA, counters, emulated,
    ladder, latency, mission, mission_case, row, site, table, table_of_sessions, time_beside_peers,
    timed,
};
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::timing::Regime;
use common::verdict::{GateId, GateResult, Verdict};

fn lines(of: impl IntoIterator<Item = impl ToString>) -> String {
    list::joined(of.into_iter().map(|line| line.to_string()), "\n")
}

/// Returns whether the checks of a run answer for a claim of the second stage.
fn is_claimed_by_checks(run: &Run) -> bool {
    let report = report_of_checks(run, &Table::default());
    let mut claims = report.claims.iter();
    claims.any(|claimed| claimed.stage == "stage1-cpasync")
}

#[test]
fn checks_answer_for_claims_of_a_stage_whose_gates_ran() {
    assert!(is_claimed_by_checks(&emulated()));
}

#[test]
fn checks_answer_for_no_claim_of_a_stage_whose_gates_did_not_run() {
    let unchecked = emulated().without_row(CPASYNC, IN_EMULATOR);
    assert!(!is_claimed_by_checks(&unchecked));
}
