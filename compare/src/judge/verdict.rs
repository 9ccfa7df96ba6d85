//! The overall verdict, what to do about it, and the exit code: of a report, and of a comparison of two tables.

use super::choice::Regret;
use super::claims::{self, Claimed};
use super::diff::{Change, Difference, Group};
use super::list::{count, distinct, joined, tallied};
use super::missing::{self, Missing};
use super::state::{self, Failure, State};
use super::{View, diff, gaps};
use crate::table::{Place, ProblemPlace, Row, Run, Source, Subject, Table};
use common::verdict::GateId;
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Every gate passes, and each claim that fails is recorded as refuted.
    Pass,
    /// A gate failed, or a claim that is not recorded as refuted.
    Fail,
    /// Wrong usage, unreadable input, or a machine that cannot do what was asked.
    Usage,
    Inconclusive,
    /// Ctrl-C; what had finished is written.
    Interrupted,
}

impl Exit {
    pub fn of(has_failed: bool, is_inconclusive: bool) -> Self {
        match (has_failed, is_inconclusive) {
            (true, _) => Exit::Fail,
            (false, true) => Exit::Inconclusive,
            (false, false) => Exit::Pass,
        }
    }

    pub fn code(self) -> u8 {
        match self {
            Exit::Pass => 0,
            Exit::Fail => 1,
            Exit::Usage => 2,
            Exit::Inconclusive => 3,
            Exit::Interrupted => 130,
        }
    }
}

/// What is to be done where nothing is failed, stale, undecided or missing.
pub const NOTHING: &str = "No action needed.";

#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    pub exit: Exit,
    /// PASS, FAIL, UNDECIDED, NOT MEASURED or STALE; of a comparison SAME, IMPROVED, REGRESSION, MIXED and the like.
    pub word: &'static str,
    pub line: String,
    /// Most urgent first.
    pub actions: Vec<String>,
}

impl Overall {
    /// Of a comparison of a table with itself.
    pub fn same_table() -> Self {
        let line = "both sides have the same table".to_string();
        Self::new(Exit::Pass, "SAME", line, vec![])
    }

    fn new(exit: Exit, word: &'static str, line: String, mut actions: Vec<String>) -> Self {
        if actions.is_empty() {
            actions.push(NOTHING.to_string());
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

pub struct Report<'a> {
    pub view: View<'a>,
    /// One per variant, in the order of the ladder.
    pub states: Vec<(Subject, State)>,
    pub claims: Vec<Claimed>,
    pub failures: Vec<Failure>,
    pub missing: Vec<Missing>,
    /// Of a run, the newest session of the committed table, and what the run changes in that table.
    pub since: Option<(String, Vec<Difference>)>,
    /// What the library chooses on problems, where that is asked for.
    pub chosen: BTreeMap<ProblemPlace, Subject>,
}

impl Report<'_> {
    pub fn required(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|missing| missing.required)
    }

    /// How much is worse, if anything is, and since when.
    pub fn regressed(&self) -> Option<(usize, &str)> {
        let (since, changes) = self.since.as_ref()?;
        let worse = changes.iter().filter(|d| d.change == Change::Worse);
        let worse = worse.count();
        (worse > 0).then_some((worse, since))
    }

    pub fn overall(&self) -> Overall {
        let concerns = concerns(self);
        let has_failed = concerns.iter().any(|concern| concern.exit == Exit::Fail);
        let actions = concerns.iter().map(|concern| concern.action.clone());
        let actions = actions.chain(advice(self, has_failed)).collect();
        let green = self.states.iter();
        let green = green.filter(|(_, state)| *state == State::Green);
        let (exit, word, mut line) = match (concerns.first(), green.count()) {
            (Some(Concern { exit, word, .. }), _) => {
                let alike = concerns.iter().filter(|concern| concern.word == *word);
                (*exit, *word, joined(alike.map(Concern::line), "; "))
            }
            (None, 0) => (
                Exit::Inconclusive,
                "NOT MEASURED",
                "no variant has evidence".into(),
            ),
            (None, n) => (
                Exit::Pass,
                "PASS",
                count(n, "variant passes every gate", "variants pass every gate"),
            ),
        };
        if let Some(device) = self.view.run.and_then(|run| run.device) {
            line += &format!(" (limited to what {device} offers)");
        }
        Overall::new(exit, word, line, actions)
    }
}

/// Judges a run on top of the committed table of its GPU model.
pub fn report_of_run<'a>(run: &'a Run, committed: &Table) -> Report<'a> {
    Report {
        since: since(run, committed),
        ..report(View::of_run(run, committed))
    }
}

/// Judges what a run checked itself: what the committed table has beside it decides nothing, but for what the run changes there.
pub fn report_of_checks<'a>(run: &'a Run, committed: &Table) -> Report<'a> {
    let is_checked =
        |row: &&Row| row.place == Place::All && row.source == run.session.backend.into();
    let checked = run.table.rows().filter(is_checked);
    let ran = distinct(checked.map(|row| row.subject.stage()));
    let mut report = report(View::alone(run));
    // Whatever a whole run lacks is missing.
    report
        .claims
        .retain(|claim| claim.row.is_some() && ran.contains(&&*claim.stage));
    Report {
        since: since(run, committed),
        ..report
    }
}

fn since(run: &Run, committed: &Table) -> Option<(String, Vec<Difference>)> {
    let newest = committed
        .newest()
        .filter(|_| run.session.device.is_none())?;
    let accepted = diff::accepted(run, committed);
    let comparison = diff::compare(committed, &accepted, false, &run.session.stages);
    Some((newest.name.clone(), comparison.differences))
}

/// Judges a committed table, or a run without anything to compare it with.
pub fn report(view: View<'_>) -> Report<'_> {
    let stages = view.stages.iter();
    let variants = stages.flat_map(|stage| stage.subjects().map(move |subject| (stage, subject)));
    let judged = |(stage, subject)| {
        let state = state::state(&view, stage, &subject);
        (subject, state)
    };
    let states: Vec<(Subject, State)> = variants.map(judged).collect();
    let claims = claims::claims(&view);
    let failures = state::failures(&view);
    let missing = missing::missing(&view, &states, &claims);
    Report {
        view,
        states,
        claims,
        failures,
        missing,
        since: None,
        chosen: BTreeMap::new(),
    }
}

/// What keeps a report from PASS: some things of one kind.
struct Concern {
    exit: Exit,
    word: &'static str,
    /// What is said of one and of several.
    says: [&'static str; 2],
    of: Vec<String>,
    action: String,
}

impl Concern {
    fn line(&self) -> String {
        let [one, many] = self.says;
        format!("{}, first {}", count(self.of.len(), one, many), self.of[0])
    }
}

/// Most urgent first.
fn concerns(report: &Report<'_>) -> Vec<Concern> {
    let concern = |exit, word, says, of: Vec<String>, action: &str| Concern {
        exit,
        word,
        says,
        of,
        action: action.to_string(),
    };
    let failures = report.failures.iter().map(|failure| {
        let hazard = match failure.gate {
            GateId::H1 => format!(": {}", failure.reason),
            _ => String::new(),
        };
        format!("{} of {}{hazard}", failure.gate, failure.subject)
    });
    let wrong = state::self_test(&report.view.table).map(|row| {
        let reason = row.failure().unwrap_or_default();
        format!("{}{}: {reason}", row.subject, row.place)
    });
    let titles = |is: fn(&Claimed) -> bool| {
        report
            .claims
            .iter()
            .filter(move |of| is(of))
            .map(Claimed::title)
    };
    let stale = report
        .states
        .iter()
        .filter(|(_, state)| *state == State::Stale);
    let explanation = explanation(report).unwrap_or_default();
    // `accept` takes full runs.
    let (of_run, tier) = match report.view.run {
        Some(_) => (" --run DIR", ""),
        None => ("", " --full"),
    };
    let lacking = distinct(report.required().filter_map(|of| of.stage.as_deref()));
    let measure = match lacking.is_empty() {
        true => "Run what is missing".to_string(),
        false => format!(
            "Measure what is missing: `compare{tier} --stages {}`",
            joined(lacking, ",")
        ),
    };
    let all = [
        concern(
            Exit::Fail,
            "FAIL",
            ["gate fails", "gates fail"],
            failures.collect(),
            &format!("Fix the gates that fail; do not merge.{explanation}"),
        ),
        concern(
            Exit::Fail,
            "FAIL",
            ["self-test fails (S1)", "self-tests fail (S1)"],
            wrong.collect(),
            "Trust no PASS until every self-test passes; each that fails says why.",
        ),
        concern(
            Exit::Fail,
            "FAIL",
            [
                "claim fails and is not recorded as refuted",
                "claims fail and are not recorded as refuted",
            ],
            titles(Claimed::is_broken).collect(),
            "Improve the stage, or record in its negatives.json why the claim fails: `compare accept` prints the entry.",
        ),
        concern(
            Exit::Fail,
            "FAIL",
            [
                "goal of the library's choice is missed",
                "goals of the library's choice are missed",
            ],
            Regret::reported(&report.view).map_or(vec![], |regret| regret.missed()),
            "Give the library a better choice: on a GPU `compare --regret 160 --backend cuda` judges it, and `compare accept` fits it to \
             that run.",
        ),
        concern(
            Exit::Inconclusive,
            "UNDECIDED",
            ["claim is undecided", "claims are undecided"],
            titles(Claimed::is_ambiguous).collect(),
            "Run again on a quiet machine, or with more samples (`--iters`).",
        ),
        concern(
            Exit::Inconclusive,
            "NOT MEASURED",
            ["required row is missing", "required rows are missing"],
            report
                .required()
                .map(|missing| missing.what.clone())
                .collect(),
            &format!("{measure}. `compare show missing{of_run}` lists it with the reasons."),
        ),
        concern(
            Exit::Pass,
            "STALE",
            [
                "variant was measured on another version of its kernel",
                "variants were measured on other versions of their kernels",
            ],
            stale.map(|(subject, _)| subject.to_string()).collect(),
            "Kernels have changed since they were measured: run `compare` again.",
        ),
    ];
    all.into_iter()
        .filter(|concern| !concern.of.is_empty())
        .collect()
}

fn advice(report: &Report<'_>, has_failed: bool) -> Vec<String> {
    let regressed = report.regressed().map(|(worse, since)| {
        let worse = count(worse, "regression", "regressions");
        format!("Look at the {worse} since {since}: `compare diff results DIR`.")
    });
    let unexpected = report.claims.iter().filter_map(|claimed| {
        claimed.is_unexpected()?;
        let title = claimed.title();
        Some(format!(
            "{title} passes now although it is recorded as refuted: take it out of {}/negatives.json.",
            claimed.stage
        ))
    });
    let lacks_sanitizer =
        report.view.run.is_some() && !has_failed && !state::unsanitized(&report.view).is_empty();
    let sanitize = lacks_sanitizer.then(|| {
        "Complete this run with gate C7 before it is accepted: `compare sanitize`.".to_string()
    });
    regressed
        .into_iter()
        .chain(unexpected)
        .chain(sanitize)
        .chain(gaps::actions(report))
        .collect()
}

/// The command that explains the first failure, if its case is a row: numerics and hazards can be reproduced in the emulator.
fn explanation(report: &Report<'_>) -> Option<String> {
    let failure = report.failures.first()?;
    let is_failing = |row: &&Row| {
        let mut failed = row.failed();
        failed.any(|(gate, _)| gate == failure.gate)
    };
    let mut cases = (report.view.table.about(&failure.subject))
        .filter(is_failing)
        .filter_map(|row| match &row.place {
            Place::Case(place, input) if input.contains(':') => {
                Some(format!("--problem '{place} {input}'"))
            }
            Place::Case(place, file) => {
                let given = report.view.run.and_then(|run| run.input.as_ref());
                let path = given.map_or(file.into(), |path| path.to_string_lossy());
                Some(format!(
                    "--input {} --mask {}",
                    shell_word(&path),
                    place.mask
                ))
            }
            _ => None,
        });
    let case = cases.next()?;
    let (stage, variant) = (failure.subject.stage(), failure.subject.name());
    Some(format!(
        " See where it first goes wrong: `compare explain --stage {stage} --variant {variant} {case}`."
    ))
}

/// As a POSIX shell reads it.
pub fn shell_word(text: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./,:=@%+".contains(c);
    match !text.is_empty() && text.chars().all(is_plain) {
        true => text.into(),
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// `6 worse, 84 improved`, in the order of [`Change`].
pub fn counts<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> String {
    let found = differences.into_iter();
    tallied(
        found.map(|difference| difference.change.word()),
        &Change::ALL.map(Change::word),
    )
}

/// The verdict on a comparison: a regression fails; without one, missing or inconclusive data leaves it inconclusive.
pub fn of_differences(differences: &[Difference]) -> Overall {
    let count = |change: Change| differences.iter().filter(|d| d.change == change).count();
    let required = differences.iter().filter(|d| d.required).count();
    let (worse, better) = (count(Change::Worse), count(Change::Better));
    // The self-test says nothing about the kernels.
    let compared = differences
        .iter()
        .filter(|d| d.change != Change::Missing && d.source != Source::SelfTest)
        .count();
    let (exit, word) = match (worse, better) {
        (1.., 0) => (Exit::Fail, "REGRESSION"),
        (1.., _) => (Exit::Fail, "MIXED"),
        _ if required > 0 => (Exit::Inconclusive, "INCOMPLETE"),
        _ if compared == 0 => (Exit::Inconclusive, "NO DATA"),
        _ if count(Change::Inconclusive) > 0 => (Exit::Inconclusive, "AMBIGUOUS"),
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
            "Measure what the base has and this lacks, or state in the change that it is intended.",
        ),
        (
            is_worse(false),
            "Look at the regressions: undo them, or state in the change what they buy.",
        ),
        (
            count(Change::Inconclusive) > 0,
            "Time the inconclusive latencies again on a quiet GPU, both sides interleaved in one session (A B B A).",
        ),
        (
            compared == 0,
            "Run both sides on one machine with the same flags, or name tables of the same GPU, driver and backend.",
        ),
    ];
    let advice = advice.into_iter().filter(|(is_due, _)| *is_due);
    let actions = advice.map(|(_, what)| what.to_string()).collect();
    Overall::new(exit, word, line, actions)
}
