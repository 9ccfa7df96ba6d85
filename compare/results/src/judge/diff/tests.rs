//! Comparisons of literal runs and of real sessions.

mod claims;
mod costs;
mod coverage;
mod errors;
mod gates;
mod latency;
mod missing;

use super::latency::failing;
use super::verdicts::turned;
use super::*;
use crate::judge::verdict::of_differences;
use crate::table::Figure;
use crate::table::digest::Texts;
use crate::table::session::Tier;
use crate::testing::{
    CPASYNC, IN_EMULATOR, ON_GPU, PeerArm, SCALAR, US, WMMA, counters, declared, emulated,
    instance, latency, mission, row, table, table_of_sessions, timed,
};
use common::verdict::{GateResult, Verdict};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns a run as a table, with what it says of its claims.
fn of_run(run: &Run, name: &str) -> Table {
    let mut table = table(&[run.clone().named(name)]);
    super::claims::restate(&mut table, &run.session.stages);
    table
}

fn differences(base: &Run, new: &Run) -> Vec<Difference> {
    let (old, now) = (of_run(base, "1"), of_run(new, "2"));
    let covers = covers(&base.session, &new.session);
    compare(&old, &now, covers, &new.session.stages).differences
}

/// Returns the exit code with its word, and all that changed.
fn moved(base: &Run, new: &Run) -> String {
    let compared = differences(base, new);
    let overall = of_differences(&compared);
    let mut lines = vec![format!("{} {}", overall.exit.code(), overall.word)];
    let changed = compared.iter().filter(|d| d.change != Change::Unchanged);
    lines.extend(changed.map(|d| {
        let required = if d.required { " (required)" } else { "" };
        format!("{} {} {}{required}", d.change.word(), d.subject, d.title())
    }));
    lines.join("\n")
}

/// Returns the verdict and the changes of a subject.
fn about_subject(all: &str, subject: &str) -> String {
    let mut kept = Vec::new();
    for (index, moved_line) in all.lines().enumerate() {
        // The first line is the verdict.
        if index == 0 || moved_line.contains(subject) {
            kept.push(moved_line);
        }
    }
    kept.join("\n")
}

#[test]
fn a_verdict_that_turns_says_how() {
    use Change::{Better, Missing, Unchanged, Undecided, Worse};
    use Verdict::{Ambiguous, Fail, NoData, Pass};
    for (was, is, expected) in [
        (None, Fail, Some(Worse)),
        (Some(Pass), Fail, Some(Worse)),
        (Some(NoData), Fail, Some(Worse)),
        (Some(Fail), Fail, Some(Unchanged)),
        (Some(Fail), Pass, Some(Better)),
        (Some(Pass), Ambiguous, Some(Undecided)),
        (Some(Pass), NoData, Some(Missing)),
        (Some(Fail), NoData, Some(Missing)),
        (Some(NoData), Pass, None),
        (None, Pass, None),
    ] {
        assert_eq!(turned(was, is), expected, "{was:?} {is:?}");
    }
}

#[test]
fn a_timed_run_against_itself_is_the_same() {
    let run = timed(US).built_throughout(96, 0).clean();
    assert_eq!(moved(&run, &run), "0 SAME");
}

#[test]
fn an_emulated_run_against_itself_is_the_same() {
    assert_eq!(moved(&emulated(), &emulated()), "0 SAME");
}

#[test]
fn a_run_with_peers_against_itself_is_the_same() {
    let run = timed(US).peers("mission", 10.0, &[PeerArm::right("torch-flash", 16.0)]);
    assert_eq!(moved(&run, &run), "0 SAME");
}

#[test]
fn times_at_random_problems_are_not_compared() {
    let base = timed(US).with_row(row("scalar | 1x1x17x64 f16 full | draw | p50 9"));
    let new = timed(US).with_row(row("scalar | 1x1x18x64 f16 full | draw | p50 9 | C2 fail"));
    assert_eq!(moved(&base, &new), "0 SAME");
}

#[test]
fn rows_of_one_session_say_nothing() {
    let committed = crate::testing::results().of_gpu("nvidia-h200");
    let compared = compare(&committed, &committed, true, &[]);
    assert!(compared.differences.is_empty());
}
