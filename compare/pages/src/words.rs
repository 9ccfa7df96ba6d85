//! The words of pages: for states, verdicts, claims and names.

use common::verdict::{GateId, Verdict};
use results::judge::claims::Claimed;
use results::judge::state::State;
use results::table::Subject;
use results::table::session::Git;

/// The words for states of variants, in the order of a summary.
pub const STATES: [&str; 5] = ["fail", "pass", "stale", "not measured", "not run"];

/// The words for claims, in the order of a summary.
pub const STANDINGS: [&str; 7] = [
    "holds",
    "holds, on record as refuted",
    "refuted, not on record",
    "refuted",
    "undecided",
    "stale",
    "not measured",
];

/// Returns the word for the state of a variant.
pub fn state_word(state: &State) -> &'static str {
    match state {
        State::Green => "pass",
        State::Failed(_) => "fail",
        State::NoData(_) => "not measured",
        State::Stale => "stale",
        State::NotRun(_) => "not run",
    }
}

/// Returns the state with the gates that it is about: `fail C2`.
pub fn state_with_gates(state: &State) -> String {
    let gates: &[GateId] = match state {
        State::Failed(gates) | State::NoData(gates) => gates,
        State::Green | State::Stale | State::NotRun(_) => &[],
    };
    let mut words = state_word(state).to_string();
    for gate in gates {
        words += &format!(" {gate}");
    }
    words
}

/// Returns the word for a gate's verdict.
pub fn gate_word(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Pass => "pass",
        Verdict::Fail => "fail",
        Verdict::NoData => "not measured",
        // Its evidence does not decide.
        Verdict::Ambiguous => "undecided",
    }
}

/// Returns the word for how a claim stands.
pub fn standing(claim: &Claimed) -> &'static str {
    match claim.verdict() {
        None if claim.is_unexpected().is_some() => "holds, on record as refuted",
        None => "refuted",
        Some(_) if claim.is_stale => "stale",
        Some(Verdict::Pass) => "holds",
        Some(Verdict::Fail) => "refuted, not on record",
        Some(Verdict::Ambiguous) => "undecided",
        Some(Verdict::NoData) => "not measured",
    }
}

/// Returns `stage5/swizzle-32x64`: the number identifies the stage.
pub fn short_name(subject: &Subject) -> String {
    match (subject.stage().split_once('-'), subject.name()) {
        (Some((stage, _)), name) if !name.is_empty() => format!("{stage}/{name}"),
        _ => subject.to_string(),
    }
}

/// Names the commit that a session measured.
pub fn commit(git: &Git) -> String {
    match git {
        Git::Commit { sha, dirty, .. } => {
            let changes = if *dirty {
                " with uncommitted changes"
            } else {
                ""
            };
            format!("commit {sha:.12}{changes}")
        }
        Git::Unknown { reason } => format!("source unknown: {reason}"),
    }
}
