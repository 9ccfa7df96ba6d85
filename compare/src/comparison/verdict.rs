//! The verdict line, what to do about it, and the exit code.

use super::claims::Standing;
use super::{Change, Direction, Failure, Missing, Row, RowState, needs_sanitizer};
use common::faults::{Caught, Fault};
use common::record::{Planted, Record, Scope};
use common::suppression::Synchronisation;
use common::verdict::GateId;
use std::fmt;

/// What the process exits with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Every gate passes; refuted claims have a negative record.
    Pass,
    /// A correctness, hazard or resource gate failed, or a claim did without a negative record.
    Fail,
    /// Wrong usage, unreadable input, or an environment that cannot do what was asked.
    Usage,
    /// AMBIGUOUS, or NO DATA where data was required.
    Undecided,
}

impl Exit {
    /// The exit code.
    pub fn code(self) -> u8 {
        match self {
            Exit::Pass => 0,
            Exit::Fail => 1,
            Exit::Usage => 2,
            Exit::Undecided => 3,
        }
    }
}

/// What to think and to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    /// The exit code's meaning.
    pub exit: Exit,
    /// One word: PASS, FAIL, AMBIGUOUS, INCOMPLETE or STALE.
    pub word: &'static str,
    /// One line.
    pub line: String,
    /// What to do, most urgent first.
    pub actions: Vec<String>,
}

impl fmt::Display for Overall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word, self.line)
    }
}

/// What the verdict is drawn from.
pub struct Facts<'a> {
    /// The record.
    pub subject: Option<&'a Record>,
    /// Whether it is this run's.
    pub is_run: bool,
    /// The variants.
    pub rows: &'a [Row],
    /// The claims, of speed and of evidence.
    pub claims: &'a [Standing<'a>],
    /// Failed gates.
    pub failures: &'a [Failure],
    /// Missing data.
    pub missing: &'a [Missing],
    /// Differences from committed records.
    pub changes: &'a [Change],
    /// Planted faults.
    pub planted: &'a Planted,
    /// Synchronisation sites that were left out.
    pub synchronisation: &'a Synchronisation,
}

/// `1 gate`, `2 gates`.
fn count(n: usize, singular: &str, plural: &str) -> String {
    format!("{n} {}", if n == 1 { singular } else { plural })
}

/// Draws the verdict.
pub fn overall(facts: &Facts<'_>) -> Overall {
    let mut actions = Vec::new();
    let broken = broken(facts, &mut actions);
    let undecided = undecided(facts, &mut actions);
    let worse = facts.changes.iter().filter(|change| change.direction == Direction::Worse).count();
    if worse > 0 {
        actions.push(format!("Look at {} against the committed records.", count(worse, "regression", "regressions")));
    }
    for claim in facts.claims {
        if let Some(record) = claim.refuted_by {
            let title = &claim.title;
            actions.push(format!("{title} passes now although {record} refutes it: accept this run and promote."));
        }
    }
    let lacks_c7 = |record: &Record| record.sanitizer.is_none() && needs_sanitizer(&record.meta);
    if facts.is_run && broken.is_empty() && facts.subject.is_some_and(lacks_c7) {
        actions.push("Complete this record with gate C7 before it is accepted: `compare sanitize`.".to_string());
    }
    let stale = facts.rows.iter().filter(|row| matches!(row.state, RowState::Stale { .. })).count();
    if stale > 0 {
        actions.push("Kernels have changed since the committed record: run `compare` again.".to_string());
    }
    let (exit, word, mut line) = if !broken.is_empty() {
        (Exit::Fail, "FAIL", broken.join("; "))
    } else if let Some((word, line)) = undecided {
        (Exit::Undecided, word, line)
    } else if stale > 0 {
        (
            Exit::Pass,
            "STALE",
            format!("{} measured on other versions of the kernels", count(stale, "row was", "rows were")),
        )
    } else {
        (Exit::Pass, "PASS", passed(facts))
    };
    if let Some(device) = facts.subject.and_then(|record| record.meta.device) {
        line += &format!(" (limited to what {device} offers)");
    }
    if actions.is_empty() {
        actions.push("No action needed.".to_string());
    }
    Overall { exit, word, line, actions }
}

/// A planted fault, or the correct model that stands beside them.
pub fn subject_name(subject: &Caught) -> &'static str {
    subject.fault.map_or("correct model", Fault::name)
}

/// Faults caught, and faults planted.
pub fn caught(subjects: &[Caught]) -> (usize, usize) {
    let faults = subjects.iter().filter(|subject| subject.fault.is_some());
    let caught = faults.clone().filter(|subject| subject.as_it_should()).count();
    (caught, faults.count())
}

fn broken(facts: &Facts<'_>, actions: &mut Vec<String>) -> Vec<String> {
    let mut broken = Vec::new();
    if let Some(first) = facts.failures.first() {
        let n = count(facts.failures.len(), "gate fails", "gates fail");
        let hazard = match first.result.gate {
            GateId::H1 => format!(": {}", first.result.reason),
            _ => String::new(),
        };
        broken.push(format!("{n}, first {} of {}{hazard}", first.result.gate, first.place));
        actions.push("Fix the failed gates below; do not merge.".to_string());
    }
    if let Planted::Tried { subjects } = facts.planted {
        let wrong: Vec<&str> = subjects.iter().filter(|subject| !subject.as_it_should()).map(subject_name).collect();
        if !wrong.is_empty() {
            broken.push(format!("the gates misjudge: {}", wrong.join(", ")));
            actions.push("Trust no PASS until the gates catch every planted fault.".to_string());
        }
    }
    let wrong = facts.synchronisation.wrong();
    if let Some(first) = wrong.first() {
        let n = count(wrong.len(), "synchronisation site is not", "synchronisation sites are not");
        broken.push(format!("{n} as listed, first {first}"));
        actions.push(
            "Remove the synchronisation that no gate misses, or list it with its reason; list none that is needed."
                .to_string(),
        );
    }
    let unmet: Vec<&Standing<'_>> = facts.claims.iter().filter(|claim| claim.fails).collect();
    if let Some(first) = unmet.first() {
        let n = count(unmet.len(), "claim fails", "claims fail");
        broken.push(format!("{n} without a negative record, first {}", first.title));
        actions.push(
            "Improve the stage, or record the claim as refuted: `compare accept DIR --negative REASON`.".to_string(),
        );
    }
    broken
}

fn undecided(facts: &Facts<'_>, actions: &mut Vec<String>) -> Option<(&'static str, String)> {
    let mut ambiguous: Vec<String> = Vec::new();
    for row in facts.rows {
        if let RowState::Ambiguous(gates) = &row.state {
            ambiguous.extend(gates.iter().map(|gate| format!("{gate} of {}/{}", row.stage, row.variant)));
        }
    }
    ambiguous.extend(facts.claims.iter().filter(|claim| claim.is_ambiguous).map(|claim| claim.title.clone()));
    let missing: Vec<&Missing> = facts.missing.iter().filter(|missing| missing.required).collect();
    if !ambiguous.is_empty() {
        actions.push("Run again on a quiet machine, or with more samples (`--iters`).".to_string());
    }
    if !missing.is_empty() {
        actions.push("Find out why the data below is missing.".to_string());
    }
    match (ambiguous.first(), missing.first()) {
        (Some(first), _) => {
            Some(("AMBIGUOUS", format!("{} undecided, first {first}", count(ambiguous.len(), "is", "are"))))
        }
        (None, Some(first)) => {
            let n = count(missing.len(), "row is", "rows are");
            Some(("INCOMPLETE", format!("{n} missing that this run should have, first {}", first.what)))
        }
        (None, None) => None,
    }
}

fn passed(facts: &Facts<'_>) -> String {
    let green = facts.rows.iter().filter(|row| row.state == RowState::Green).count();
    let negative = facts.claims.iter().filter(|claim| claim.is_negative).count();
    let scope = match facts.subject.map(|record| &record.meta.scope) {
        Some(Scope::Selected { .. }) => " of what was selected",
        _ => "",
    };
    let mut line = format!("{} green{scope}", count(green, "variant is", "variants are"));
    if negative > 0 {
        line.push_str(&format!(", {} refuted and recorded as such", count(negative, "claim is", "claims are")));
    }
    if !facts.is_run {
        line.push_str(" in the committed record");
    }
    let open = facts.claims.iter().filter(|claim| claim.is_open).count();
    if open > 0 {
        let leaves = if facts.is_run { "; the committed record leaves" } else { ", which leaves" };
        line.push_str(&format!("{leaves} {} AMBIGUOUS", count(open, "claim", "claims")));
    }
    line
}
