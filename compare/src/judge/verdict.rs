//! The verdict over all, what to do about it, and the exit code: of a report, and of a comparison of two sets of records.

use super::claims::{self, Claimed, Status};
use super::diff::{Change, Difference, Group, SELF_TEST};
use super::list::tallied;
use super::missing::{self, Missing};
use super::state::{self, Failure, State, is_sanitized, needs_sanitizer};
use super::{Known, diff};
use crate::record::{Of, On, Record, Subject};
use common::verdict::GateId;
use std::borrow::Cow;
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
    /// Ctrl-C, with everything that was finished written.
    Interrupted,
}

impl Exit {
    pub fn of(has_failed: bool, is_undecided: bool) -> Self {
        match (has_failed, is_undecided) {
            (true, _) => Exit::Fail,
            (false, true) => Exit::Undecided,
            (false, false) => Exit::Pass,
        }
    }

    pub fn code(self) -> u8 {
        match self {
            Exit::Pass => 0,
            Exit::Fail => 1,
            Exit::Usage => 2,
            Exit::Undecided => 3,
            Exit::Interrupted => 130,
        }
    }
}

/// What to think and to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    pub exit: Exit,
    /// One word: PASS, FAIL, AMBIGUOUS, INCOMPLETE or STALE; of a comparison SAME, IMPROVED, REGRESSION, MIXED and the like.
    pub word: &'static str,
    pub line: String,
    /// Most urgent first.
    pub actions: Vec<String>,
}

impl Overall {
    fn new(exit: Exit, word: &'static str, line: String, mut actions: Vec<String>) -> Self {
        if actions.is_empty() {
            actions.push("No action needed.".to_string());
        }
        Self {
            exit,
            word,
            line,
            actions,
        }
    }
}

impl fmt::Display for Overall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.word, self.line)
    }
}

/// `1 gate`, `2 gates`.
pub fn count(n: usize, singular: &str, plural: &str) -> String {
    format!("{n} {}", if n == 1 { singular } else { plural })
}

/// All that is judged of a run or a committed record, ready to be laid out.
pub struct Report<'a> {
    pub known: Known<'a>,
    pub overall: Overall,
    /// One per variant, in the order of the ladder.
    pub states: Vec<(Subject, State)>,
    pub claims: Vec<Claimed>,
    pub failures: Vec<Failure>,
    pub missing: Vec<Missing>,
    /// What differs from the newest record that can be compared: its name, the differences, their verdict.
    pub since: Option<Since<'a>>,
}

/// The subject of a report beside an earlier record.
pub struct Since<'a> {
    pub name: &'a str,
    pub record: Cow<'a, Record>,
    pub differences: Vec<Difference>,
    /// The same that `compare diff` says of the two.
    pub overall: Overall,
}

impl Report<'_> {
    /// What the record should have.
    pub fn required(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|missing| missing.required)
    }
}

impl Since<'_> {
    pub fn worse(&self) -> impl Iterator<Item = &Difference> {
        self.differences
            .iter()
            .filter(|difference| difference.change == Change::Worse)
    }
}

/// Judges everything.
pub fn report(known: Known<'_>) -> Report<'_> {
    let states: Vec<(Subject, State)> = (known.stages.iter())
        .flat_map(|stage| stage.subjects().map(move |subject| (stage, subject)))
        .map(|(stage, subject)| (subject.clone(), state::state(&known, stage, &subject)))
        .collect();
    let claims = claims::claims(&known);
    let failures = known.record().map(state::failures).unwrap_or_default();
    let missing = missing::missing(&known, &states, &claims);
    let since = diff::since(&known).map(|(name, record, differences)| {
        let overall = of_differences(&differences);
        Since {
            name,
            record,
            differences,
            overall,
        }
    });
    let mut report = Report {
        known,
        overall: Overall::new(Exit::Undecided, "NO DATA", String::new(), vec![]),
        states,
        claims,
        failures,
        missing,
        since,
    };
    report.overall = of_report(&report);
    report
}

fn of_report(report: &Report<'_>) -> Overall {
    let mut actions = Vec::new();
    let broken = broken(report, &mut actions);
    let undecided = open(report, &mut actions);
    let subject = report.known.record();
    if let Some(since) = report
        .since
        .as_ref()
        .filter(|since| since.overall.exit == Exit::Fail)
    {
        let worse = count(since.worse().count(), "regression", "regressions");
        actions.push(format!("Look at {worse} since {}.", since.name));
    }
    for claimed in &report.claims {
        if let Status::UnexpectedPass { record, .. } = &claimed.status {
            let title = claimed.title();
            actions.push(format!(
                "{title} passes now although {record} refutes it: accept this run and promote."
            ));
        }
    }
    let is_run = report.known.run.is_some();
    if is_run
        && broken.is_empty()
        && subject.is_some_and(|record| !is_sanitized(record) && needs_sanitizer(record))
    {
        actions.push(
            "Complete this record with gate C7 before it is accepted: `compare sanitize`."
                .to_string(),
        );
    }
    let stale = report
        .states
        .iter()
        .filter(|(_, state)| *state == State::Stale)
        .count();
    if stale > 0 {
        actions.push(
            "Kernels have changed since the committed record: run `compare` again.".to_string(),
        );
    }
    let (exit, word, mut line) = if !broken.is_empty() {
        (Exit::Fail, "FAIL", broken.join("; "))
    } else if let Some((word, line)) = undecided {
        (Exit::Undecided, word, line)
    } else if stale > 0 {
        let rows = count(stale, "variant was", "variants were");
        (
            Exit::Pass,
            "STALE",
            format!("{rows} measured on other versions of the kernels"),
        )
    } else {
        passed(report)
    };
    if let Some(device) = subject.and_then(|record| record.meta.device) {
        line += &format!(" (limited to what {device} offers)");
    }
    Overall::new(exit, word, line, actions)
}

fn broken(report: &Report<'_>, actions: &mut Vec<String>) -> Vec<String> {
    let mut broken = Vec::new();
    if let Some(first) = report.failures.first() {
        let n = count(report.failures.len(), "gate fails", "gates fail");
        let hazard = if first.gate == GateId::H1 {
            format!(": {}", first.reason)
        } else {
            String::new()
        };
        broken.push(format!(
            "{n}, first {} of {}{hazard}",
            first.gate, first.subject
        ));
        actions.push("Fix the gates that fail; do not merge.".to_string());
        actions.extend(
            report
                .known
                .subject()
                .filter(|(_, record)| record.meta.of() == Of::Ladder)
                .and_then(|(_, record)| explanation(record, first)),
        );
    }
    let subject = report.known.record().into_iter();
    let wrong: Vec<_> = subject.flat_map(state::self_test).collect();
    if let Some(first) = wrong.first() {
        let reason = first.failure().unwrap_or_default();
        let n = count(wrong.len(), "self-test fails", "self-tests fail");
        broken.push(format!(
            "{n} (S1), first {}{}: {reason}",
            first.subject, first.on
        ));
        actions.push(
            "Trust no PASS until the gates kill every planted fault; remove the synchronisation that no gate misses, or list \
             it with its reason."
                .to_string(),
        );
    }
    let unmet: Vec<&Claimed> = report
        .claims
        .iter()
        .filter(|claimed| claimed.is_broken())
        .collect();
    if let Some(first) = unmet.first() {
        let n = count(unmet.len(), "claim fails", "claims fail");
        broken.push(format!(
            "{n} without a negative record, first {}",
            first.title()
        ));
        actions.push(
            "Improve the stage, or record the claim as refuted: `compare accept DIR --negative REASON`.".to_string(),
        );
    }
    broken
}

/// The command that explains the case in which a gate fails: numbers and hazards, which the emulator has, too.
fn explanation(record: &Record, failure: &Failure) -> Option<String> {
    let row = record.rows.iter().find(|row| {
        row.subject == failure.subject
            && matches!(row.on, On::Case(..))
            && row.failed().any(|(gate, _)| gate == failure.gate)
    })?;
    let (stage, variant) = (failure.subject.stage(), failure.subject.name());
    let case = match &row.on {
        On::Case(place, input) if input.contains(':') => format!("--problem '{place} {input}'"),
        On::Case(place, file) => format!("--input {file} --mask {}", place.mask),
        _ => return None,
    };
    Some(format!(
        "See where it first goes wrong: `compare explain --stage {stage} --variant {variant} {case}`."
    ))
}

fn open(report: &Report<'_>, actions: &mut Vec<String>) -> Option<(&'static str, String)> {
    let mut ambiguous: Vec<String> = Vec::new();
    for (subject, state) in &report.states {
        if let State::Ambiguous(gates) = state {
            ambiguous.extend(gates.iter().map(|gate| format!("{gate} of {subject}")));
        }
    }
    ambiguous.extend(
        report
            .claims
            .iter()
            .filter(|claimed| claimed.is_ambiguous())
            .map(Claimed::title),
    );
    let missing: Vec<&Missing> = report.required().collect();
    if !ambiguous.is_empty() {
        actions.push("Run again on a quiet machine, or with more samples (`--iters`).".to_string());
    }
    if !missing.is_empty() {
        actions.push("Find out why required data is missing.".to_string());
    }
    match (ambiguous.first(), missing.first()) {
        (Some(first), _) => Some((
            "AMBIGUOUS",
            format!(
                "{} undecided, first {first}",
                count(ambiguous.len(), "is", "are")
            ),
        )),
        (None, Some(first)) => {
            let n = count(missing.len(), "row is", "rows are");
            Some((
                "INCOMPLETE",
                format!(
                    "{n} missing that this record should have, first {}",
                    first.what
                ),
            ))
        }
        (None, None) => None,
    }
}

fn passed(report: &Report<'_>) -> (Exit, &'static str, String) {
    let green = report
        .states
        .iter()
        .filter(|(_, state)| *state == State::Green)
        .count();
    match green {
        0 => (
            Exit::Undecided,
            "NO DATA",
            "no variant has evidence".to_string(),
        ),
        _ => (
            Exit::Pass,
            "PASS",
            count(green, "variant is green", "variants are green"),
        ),
    }
}

/// `6 worse, 84 better`, in the order of [`Change`].
pub fn counts<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> String {
    let found = differences.into_iter();
    tallied(
        found.map(|difference| difference.change.word()),
        &Change::ALL.map(Change::word),
    )
}

/// The verdict on a comparison. A regression fails; without one, what is undecided or missing leaves it undecided.
pub fn of_differences(differences: &[Difference]) -> Overall {
    let count = |change: Change| differences.iter().filter(|d| d.change == change).count();
    let required = differences.iter().filter(|d| d.required).count();
    let (worse, better) = (count(Change::Worse), count(Change::Better));
    // The self-test says nothing of the kernels.
    let compared = differences
        .iter()
        .filter(|d| d.change != Change::Missing && d.what != SELF_TEST)
        .count();
    let (exit, word) = match (worse, better) {
        (1.., 0) => (Exit::Fail, "REGRESSION"),
        (1.., _) => (Exit::Fail, "MIXED"),
        _ if required > 0 => (Exit::Undecided, "INCOMPLETE"),
        _ if compared == 0 => (Exit::Undecided, "NO DATA"),
        _ if count(Change::Ambiguous) > 0 => (Exit::Undecided, "AMBIGUOUS"),
        (0, 1..) => (Exit::Pass, "IMPROVED"),
        (0, 0) => (Exit::Pass, "SAME"),
    };
    let line = match (compared + worse, differences.iter().find(|d| d.required)) {
        (0, Some(first)) => format!("nothing can be compared: {}", first.why),
        (0, None) => "nothing can be compared".to_string(),
        _ => counts(differences),
    };
    let is_worse = |is_gate: bool| {
        let mut worse = differences.iter().filter(|d| d.change == Change::Worse);
        worse.any(|d| (d.group == Group::Gates) == is_gate)
    };
    let advice = [
        (is_worse(true), "Fix what newly fails; do not merge."),
        (
            required > 0,
            "Find out why data is missing that the base had, or say that it is meant to be.",
        ),
        (
            is_worse(false),
            "Look at the regressions; take them back, or say in the change what they buy.",
        ),
        (
            count(Change::Ambiguous) > 0,
            "Time the undecided latencies again on a quiet GPU, both sides in one session (A B B A).",
        ),
        (
            compared == 0,
            "Run both sides on one machine with the same flags, or name records of the same GPU, driver and backend.",
        ),
    ];
    let advice = advice.into_iter().filter(|(is_due, _)| *is_due);
    let actions = advice.map(|(_, what)| what.to_string()).collect();
    Overall::new(exit, word, line, actions)
}
