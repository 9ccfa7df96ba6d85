//! The overall verdict, what to do about it, and the exit code: of a report, and of a comparison of
//! two tables.

use super::claims::{self, Claimed};
use super::diff::{Change, Difference, Group, What};
use super::list::{count, distinct, joined, tallied};
use super::missing::{self, Missing};
use super::regret::Regret;
use super::state::{self, Failure, State};
use super::{View, diff, gaps};
use crate::table::{CasePlace, Kind, ProblemPlace, Run, Source, Subject, Table};
use common::verdict::{GateId, Verdict};
use std::collections::BTreeMap;
use std::fmt;

/// The outcome of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Every gate passes, and each claim that fails is recorded as refuted.
    Pass,
    /// A gate failed, or a claim that is not recorded as refuted.
    Fail,
    /// Wrong usage, unreadable input, or a machine that cannot do what was asked.
    Usage,
    Inconclusive,
    /// An interrupt by Ctrl-C; what had finished is written.
    Interrupted,
}

impl Exit {
    /// Returns the exit of what has failed or is undecided; failures come first.
    pub fn of(has_failed: bool, is_inconclusive: bool) -> Self {
        if has_failed {
            Exit::Fail
        } else if is_inconclusive {
            Exit::Inconclusive
        } else {
            Exit::Pass
        }
    }

    /// Returns the exit code of the process.
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

/// The action where nothing is failed, stale, undecided or missing.
pub const NOTHING: &str = "No action needed.";

/// The verdict on a whole report or comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct Overall {
    pub exit: Exit,
    /// PASS, FAIL, UNDECIDED, NOT MEASURED or STALE; of a comparison FAIL, SAME, IMPROVED,
    /// REGRESSION, MIXED and the like.
    pub word: &'static str,
    pub line: String,
    /// The actions, most urgent first.
    pub actions: Vec<String>,
}

impl Overall {
    /// Returns the verdict on a comparison of a table with itself.
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

/// The answers to all questions about a view.
pub struct Report<'a> {
    pub view: View<'a>,
    /// The state of each variant, in the order of the ladder.
    pub states: Vec<(Subject, State)>,
    pub claims: Vec<Claimed>,
    pub failures: Vec<Failure>,
    pub missing: Vec<Missing>,
    /// The changes that a run makes in the committed table.
    pub since: Option<Since>,
    /// The library's choice on problems, where that is asked for.
    pub chosen: BTreeMap<ProblemPlace, Subject>,
}

/// The changes since the newest session of a committed table.
pub struct Since {
    pub session: String,
    pub changes: Vec<Difference>,
}

impl Since {
    /// Returns the number of changes for the worse.
    fn regressions(&self) -> usize {
        let worse = self.changes.iter().filter(|d| d.change == Change::Worse);
        worse.count()
    }
}

/// The regressions since a session, at least one.
pub struct Regressed<'a> {
    pub count: usize,
    pub session: &'a str,
}

impl Report<'_> {
    /// Returns the missing evidence without which the report decides nothing.
    pub fn required(&self) -> impl Iterator<Item = &Missing> {
        self.missing.iter().filter(|missing| missing.required)
    }

    /// Returns how much is worse, if anything is, and since when.
    pub fn regressed(&self) -> Option<Regressed<'_>> {
        let since = self.since.as_ref()?;
        let count = since.regressions();
        (count > 0).then_some(Regressed {
            count,
            session: &since.session,
        })
    }

    /// Returns the verdict: the first concern that the report raises, or PASS.
    pub fn overall(&self) -> Overall {
        let concerns = concerns(self);
        let has_failed = concerns.iter().any(|concern| concern.exit == Exit::Fail);
        let mut actions: Vec<String> = concerns
            .iter()
            .map(|concern| concern.action.clone())
            .collect();
        actions.extend(advice(self, has_failed));
        let mut overall = match concerns.first() {
            Some(first) => {
                let alike = concerns.iter().filter(|concern| concern.word == first.word);
                let line = joined(alike.map(Concern::line), "; ");
                Overall::new(first.exit, first.word, line, actions)
            }
            None => self.unconcerned(actions),
        };
        if let Some(device) = self.view.run.and_then(|run| run.device) {
            overall.line += &format!(" (limited to what {device} offers)");
        }
        overall
    }

    /// Returns the verdict where nothing keeps it from PASS but a lack of green variants.
    fn unconcerned(&self, actions: Vec<String>) -> Overall {
        let green = self
            .states
            .iter()
            .filter(|(_, state)| *state == State::Green)
            .count();
        if green == 0 {
            let line = "no variant has evidence".to_string();
            return Overall::new(Exit::Inconclusive, "NOT MEASURED", line, actions);
        }
        let (singular, plural) = ("variant passes every gate", "variants pass every gate");
        Overall::new(Exit::Pass, "PASS", count(green, singular, plural), actions)
    }
}

/// Judges a run on top of the committed table of its GPU model.
pub fn report_of_run<'a>(run: &'a Run, committed: &Table) -> Report<'a> {
    Report {
        since: since(run, committed),
        ..report(View::of_run(run, committed))
    }
}

/// Judges what a run checked itself: what the committed table has beside it decides nothing, but
/// for what the run changes there.
pub fn report_of_checks<'a>(run: &'a Run, committed: &Table) -> Report<'a> {
    let checked = run
        .table
        .rows()
        .filter(|row| row.kind == Kind::Checked(run.session.backend));
    let stages = distinct(checked.map(|row| row.subject.stage()));
    let mut report = report(View::alone(run));
    // Whatever a whole run lacks is missing.
    report
        .claims
        .retain(|claim| claim.row.is_some() && stages.contains(&&*claim.stage));
    Report {
        since: since(run, committed),
        ..report
    }
}

fn since(run: &Run, committed: &Table) -> Option<Since> {
    if run.session.device.is_some() {
        return None;
    }
    let newest = committed.newest()?;
    let accepted = diff::accepted(run, committed);
    let comparison = diff::compare(committed, &accepted, false, &run.session.stages);
    Some(Since {
        session: newest.name.clone(),
        changes: comparison.differences,
    })
}

/// Judges a committed table, or a run without anything to compare it with.
pub fn report(view: View<'_>) -> Report<'_> {
    let mut states = Vec::new();
    for stage in view.stages {
        for subject in stage.subjects() {
            let state = state::state(&view, stage, &subject);
            states.push((subject, state));
        }
    }
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

/// Something that keeps a report from PASS, and all things that it is true of.
struct Concern {
    exit: Exit,
    word: &'static str,
    /// The predicate of one thing.
    singular: &'static str,
    /// The predicate of several.
    plural: &'static str,
    things: Vec<String>,
    action: String,
}

impl Concern {
    fn line(&self) -> String {
        let subject = count(self.things.len(), self.singular, self.plural);
        format!("{subject}, first {}", self.things[0])
    }
}

/// Returns the concerns that are about anything, most urgent first.
fn concerns(report: &Report<'_>) -> Vec<Concern> {
    let mut concerns = vec![
        failed_gates(report),
        failed_self_tests(report),
        broken_claims(report),
        missed_goals(report),
        undecided_claims(report),
        missing_rows(report),
        stale_variants(report),
    ];
    concerns.retain(|concern| !concern.things.is_empty());
    concerns
}

fn failed_gates(report: &Report<'_>) -> Concern {
    let things = report.failures.iter().map(|failure| {
        let named = format!("{} of {}", failure.gate, failure.subject);
        if failure.gate == GateId::H1 {
            format!("{named}: {}", failure.reason)
        } else {
            named
        }
    });
    let explanation = explanation(report).unwrap_or_default();
    Concern {
        exit: Exit::Fail,
        word: "FAIL",
        singular: "gate fails",
        plural: "gates fail",
        things: things.collect(),
        action: format!("Fix the gates that fail; do not merge.{explanation}"),
    }
}

fn failed_self_tests(report: &Report<'_>) -> Concern {
    let things = state::self_test(&report.view.table).map(|row| {
        let reason = row.failure().unwrap_or_default();
        format!("{}{}: {reason}", row.subject, row.place())
    });
    Concern {
        exit: Exit::Fail,
        word: "FAIL",
        singular: "self-test fails (S1)",
        plural: "self-tests fail (S1)",
        things: things.collect(),
        action: "Trust no PASS until every self-test passes; each that fails says why.".into(),
    }
}

fn broken_claims(report: &Report<'_>) -> Concern {
    Concern {
        exit: Exit::Fail,
        word: "FAIL",
        singular: "claim fails and is not recorded as refuted",
        plural: "claims fail and are not recorded as refuted",
        things: titles(report, Claimed::is_broken),
        action: "Improve the stage, or record in its negatives.json why the claim fails: \
                 `compare accept` prints the entry."
            .into(),
    }
}

fn missed_goals(report: &Report<'_>) -> Concern {
    let regret = Regret::reported(&report.view);
    Concern {
        exit: Exit::Fail,
        word: "FAIL",
        singular: "goal of the library's choice is missed",
        plural: "goals of the library's choice are missed",
        things: regret.as_ref().map_or(vec![], Regret::missed),
        action: "Give the library a better choice: on a GPU `compare --random-problems 160 --backend cuda` \
                 judges it, and `compare accept` fits it to that run."
            .into(),
    }
}

fn undecided_claims(report: &Report<'_>) -> Concern {
    Concern {
        exit: Exit::Inconclusive,
        word: "UNDECIDED",
        singular: "claim is undecided",
        plural: "claims are undecided",
        things: titles(report, Claimed::is_ambiguous),
        action: "Run again on a quiet machine, or with more samples (`--iters`).".into(),
    }
}

fn missing_rows(report: &Report<'_>) -> Concern {
    // `accept` takes full runs.
    let (of_run, tier) = match report.view.run {
        Some(_) => (" --run DIR", ""),
        None => ("", " --full"),
    };
    let stages = distinct(report.required().filter_map(|row| row.stage.as_deref()));
    let measure = if stages.is_empty() {
        "Run what is missing".to_string()
    } else {
        format!(
            "Measure what is missing: `compare{tier} --stages {}`",
            joined(stages.into_iter().map(gaps::number), ",")
        )
    };
    Concern {
        exit: Exit::Inconclusive,
        word: "NOT MEASURED",
        singular: "required row is missing",
        plural: "required rows are missing",
        things: report.required().map(|row| row.what.clone()).collect(),
        action: format!("{measure}. `compare show missing{of_run}` lists it with the reasons."),
    }
}

fn stale_variants(report: &Report<'_>) -> Concern {
    let stale = report
        .states
        .iter()
        .filter(|(_, state)| *state == State::Stale);
    Concern {
        exit: Exit::Pass,
        word: "STALE",
        singular: "variant was measured on another version of its kernel",
        plural: "variants were measured on other versions of their kernels",
        things: stale.map(|(subject, _)| subject.to_string()).collect(),
        action: "Kernels have changed since they were measured: run `compare` again.".into(),
    }
}

fn titles(report: &Report<'_>, is_concern: fn(&Claimed) -> bool) -> Vec<String> {
    let claims = report.claims.iter().filter(|claimed| is_concern(claimed));
    claims.map(Claimed::title).collect()
}

/// Returns what to do beside what the concerns ask for.
fn advice(report: &Report<'_>, has_failed: bool) -> Vec<String> {
    let mut advice = Vec::new();
    if let Some(Regressed { count: n, session }) = report.regressed() {
        let regressions = count(n, "regression", "regressions");
        advice.push(format!(
            "Look at the {regressions} since {session}: `compare diff results DIR`."
        ));
    }
    for claimed in &report.claims {
        if claimed.is_unexpected().is_some() {
            advice.push(format!(
                "{} passes now although it is recorded as refuted: take it out of \
                 {}/negatives.json.",
                claimed.title(),
                claimed.stage
            ));
        }
    }
    if report.view.run.is_some() && !has_failed && !state::unsanitized(&report.view).is_empty() {
        advice.push(
            "Complete this run with gate C7 before it is accepted: `compare sanitize`.".into(),
        );
    }
    advice.extend(gaps::actions(&report.view, &report.missing, &report.claims));
    advice
}

/// Returns the command that explains the first failure, if its case is a row: numerics and hazards
/// can be reproduced in the emulator.
fn explanation(report: &Report<'_>) -> Option<String> {
    let failure = report.failures.first()?;
    let flags = report
        .view
        .table
        .about(&failure.subject)
        .filter(|row| row.says(failure.gate) == Some(Verdict::Fail))
        .find_map(|row| match &row.kind {
            Kind::Case(_, case) => Some(case_flags(report, case)),
            _ => None,
        })?;
    let (stage, variant) = (failure.subject.stage(), failure.subject.name());
    Some(format!(
        " See where it first goes wrong: `compare explain --stage {stage} --variant {variant} \
         {flags}`."
    ))
}

/// Returns the flags of `compare explain` that name a case.
fn case_flags(report: &Report<'_>, case: &CasePlace) -> String {
    let CasePlace { problem, input } = case;
    if input.contains(':') {
        return format!("--problem '{problem} {input}'");
    }
    let file = match report.view.run.and_then(|run| run.input.as_ref()) {
        Some(path) => path.to_string_lossy(),
        None => input.into(),
    };
    format!("--input {} --mask {}", shell_word(&file), problem.mask)
}

/// Quotes a word as a POSIX shell reads it.
pub fn shell_word(text: &str) -> String {
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Returns whether a shell takes a character as it is.
fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || "-_./,:=@%+".contains(c)
}

/// Returns `6 worse, 84 improved`, in the order of [`Change`].
pub fn counts<'a>(differences: impl IntoIterator<Item = &'a Difference>) -> String {
    let words = differences
        .into_iter()
        .map(|difference| difference.change.word());
    tallied(words, &Change::ALL.map(Change::word))
}

/// The numbers of differences that decide a comparison.
struct Counts {
    /// Gates that fail now.
    failing: usize,
    worse: usize,
    better: usize,
    inconclusive: usize,
    required: usize,
    /// Those that two sides have. The self-test says nothing about the kernels.
    compared: usize,
}

impl Counts {
    fn new(differences: &[Difference]) -> Self {
        let count = |change| differences.iter().filter(|d| d.change == change).count();
        let compared = differences
            .iter()
            .filter(|d| d.change != Change::Missing && d.source() != Source::SelfTest);
        Self {
            failing: differences.iter().filter(|d| fails_now(d)).count(),
            worse: count(Change::Worse),
            better: count(Change::Better),
            inconclusive: count(Change::Undecided),
            required: differences.iter().filter(|d| d.required).count(),
            compared: compared.count(),
        }
    }

    fn word(&self) -> (Exit, &'static str) {
        match (self.worse, self.better) {
            _ if self.failing > 0 => (Exit::Fail, "FAIL"),
            (1.., 0) => (Exit::Fail, "REGRESSION"),
            (1.., _) => (Exit::Fail, "MIXED"),
            _ if self.required > 0 => (Exit::Inconclusive, "INCOMPLETE"),
            _ if self.compared == 0 => (Exit::Inconclusive, "NOT MEASURED"),
            _ if self.inconclusive > 0 => (Exit::Inconclusive, "UNDECIDED"),
            (0, 1..) => (Exit::Pass, "IMPROVED"),
            (0, 0) => (Exit::Pass, "SAME"),
        }
    }
}

/// Returns the verdict on a comparison: a regression fails; without one, missing or undecided
/// data leaves it undecided.
pub fn of_differences(differences: &[Difference]) -> Overall {
    let numbers = Counts::new(differences);
    let (exit, word) = numbers.word();
    let first_required = differences.iter().find(|d| d.required);
    let line = match first_required {
        _ if numbers.compared + numbers.worse > 0 => counts(differences),
        Some(first) => format!("nothing can be compared: {}", first.why),
        None => "nothing can be compared".to_string(),
    };
    Overall::new(exit, word, line, actions(differences, &numbers))
}

/// Returns whether a gate fails that passed before, or was not there.
fn fails_now(difference: &Difference) -> bool {
    difference.change == Change::Worse && difference.is_gate()
}

/// Returns the kernels of which a gate fails now that their times and counters are withheld for.
pub fn withheld(differences: &[Difference]) -> Vec<&Subject> {
    let gates = differences
        .iter()
        .filter(|difference| fails_now(difference) && withholds(difference.what));
    distinct(gates.map(|difference| &difference.subject))
}

/// Returns whether a kernel that fails the gate is not measured further. The resources of a build
/// and compute-sanitizer are judged apart from its runs.
fn withholds(what: What) -> bool {
    matches!(what, What::Gate(gate) if !matches!(gate, GateId::R1 | GateId::C7))
}

/// Returns whether data is missing that no failing gate withholds. A claim may be over a kernel
/// that fails, so that none counts where one does.
fn lacks_data(differences: &[Difference]) -> bool {
    let withheld = withheld(differences);
    differences.iter().any(|difference| {
        let is_withheld = if difference.is_claim() {
            !withheld.is_empty()
        } else {
            withheld.contains(&&difference.subject)
        };
        difference.required && !is_withheld
    })
}

fn actions(differences: &[Difference], numbers: &Counts) -> Vec<String> {
    let withheld = withheld(differences);
    let mut worse = differences.iter().filter(|d| d.change == Change::Worse);
    let is_gate_worse = worse.clone().any(|d| d.group == Group::Gates);
    // The figures of a kernel that fails a gate mean nothing.
    let is_figure_worse = worse.any(|d| d.group != Group::Gates && !withheld.contains(&&d.subject));
    let advice = [
        (is_gate_worse, "Fix what newly fails; do not merge."),
        (
            lacks_data(differences),
            "Measure what the base has and this lacks (`compare --full`, then `compare accept`), or \
             state in the change that it is intended.",
        ),
        (
            is_figure_worse,
            "Look at the regressions: undo them, or state in the change what they buy.",
        ),
        (
            numbers.inconclusive > 0,
            "Time the undecided latencies again on a quiet GPU, both sides interleaved in one \
             session (A B B A).",
        ),
        (
            numbers.compared == 0,
            "Run both sides on one machine with the same flags, or name tables of the same GPU, \
             driver and backend.",
        ),
    ];
    advice
        .into_iter()
        .filter(|(is_due, _)| *is_due)
        .map(|(_, action)| action.to_string())
        .collect()
}
