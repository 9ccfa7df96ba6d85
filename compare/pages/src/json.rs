//! The output of `--json`: an object for programs, with the words and figures of the page.
//! docs/rows.md names every field.

use common::metric::Metric;
use common::verdict::{GateId, Verdict as Judgement};
use results::judge::candidate;
use results::judge::claims::Claimed;
use results::judge::diff::{self, Change, Difference, Group, Kernel, Moved, What};
use results::judge::state::State;
use results::judge::terms::Concession;
use results::judge::verdict::{Overall, Report};
use results::table::{Place, Row, Source, Subject};
use serde::Serialize;
use std::path::Path;

/// The form of the object: its number rises when a field goes or changes its meaning.
#[derive(Serialize)]
enum Schema {
    #[serde(rename = "compare.diff/1")]
    Diff,
    #[serde(rename = "compare.run/1")]
    Run,
    #[serde(rename = "compare.candidate/1")]
    Candidate,
}

/// The verdict, as every command has it.
#[derive(Serialize)]
struct Verdict<'a> {
    verdict: &'a str,
    exit: u8,
    line: &'a str,
    actions: &'a [String],
}

impl<'a> From<&'a Overall> for Verdict<'a> {
    fn from(overall: &'a Overall) -> Self {
        Self {
            verdict: overall.word,
            exit: overall.exit.code(),
            line: &overall.line,
            actions: &overall.actions,
        }
    }
}

/// The object of `compare diff`.
#[derive(Serialize)]
pub struct Diff<'a> {
    schema: Schema,
    #[serde(flatten)]
    verdict: Verdict<'a>,
    base: &'a str,
    new: &'a str,
    notes: &'a [String],
    concessions: &'a [Concession],
    comparisons: Vec<Pair<'a>>,
}

#[derive(Serialize)]
struct Pair<'a> {
    name: &'a str,
    kernels: &'a [Kernel],
    differences: Vec<Entry<'a>>,
    unchanged: usize,
}

/// One difference.
#[derive(Serialize)]
struct Entry<'a> {
    subject: &'a str,
    #[serde(rename = "on")]
    place: String,
    #[serde(rename = "by")]
    source: Source,
    group: Group,
    change: Change,
    metric: Option<Metric>,
    gate: Option<GateId>,
    base: Option<&'a str>,
    new: Option<&'a str>,
    figures: Option<Moved>,
    ratio: Option<[f64; 3]>,
    required: bool,
    why: &'a str,
}

impl<'a> From<&'a crate::diff::Comparison> for Diff<'a> {
    fn from(comparison: &'a crate::diff::Comparison) -> Self {
        Self {
            schema: Schema::Diff,
            verdict: (&comparison.overall).into(),
            base: &comparison.base,
            new: &comparison.new,
            notes: &comparison.notes,
            concessions: &comparison.concessions,
            comparisons: comparison.pairs.iter().map(Pair::from).collect(),
        }
    }
}

impl<'a> From<&'a (String, diff::Comparison)> for Pair<'a> {
    fn from((name, pair): &'a (String, diff::Comparison)) -> Self {
        let mut entries = Vec::new();
        let mut unchanged = 0;
        for difference in &pair.differences {
            if difference.change == Change::Unchanged {
                unchanged += 1;
            } else {
                entries.push(Entry::from(difference));
            }
        }
        Self {
            name,
            kernels: &pair.kernels,
            differences: entries,
            unchanged,
        }
    }
}

impl<'a> From<&'a Difference> for Entry<'a> {
    fn from(difference: &'a Difference) -> Self {
        let (metric, gate) = match difference.what {
            What::Metric(metric) => (Some(metric), None),
            What::Gate(gate) => (None, Some(gate)),
            What::Row(_) | What::Variant => (None, None),
        };
        Self {
            subject: difference.subject.as_str(),
            place: difference.place().to_string(),
            source: difference.source(),
            group: difference.group,
            change: difference.change,
            metric,
            gate,
            base: difference.base.as_deref(),
            new: difference.new.as_deref(),
            figures: difference.figures,
            ratio: difference
                .ratio
                .as_ref()
                .map(|ratio| [ratio.value, ratio.interval.low, ratio.interval.high]),
            required: difference.required,
            why: &difference.why,
        }
    }
}

/// The object of `compare run`.
#[derive(Serialize)]
pub struct Run<'a> {
    schema: Schema,
    #[serde(flatten)]
    verdict: Verdict<'a>,
    run: &'a Path,
    rows: std::path::PathBuf,
    variants: Vec<Variant<'a>>,
    claims: Vec<Claim<'a>>,
    missing: Vec<Missing<'a>>,
}

#[derive(Serialize)]
struct Variant<'a> {
    subject: &'a str,
    state: &'static str,
    gates: &'a [GateId],
}

#[derive(Serialize)]
struct Claim<'a> {
    stage: &'a str,
    claim: String,
    state: &'static str,
    measured: &'a str,
    why: &'a str,
}

#[derive(Serialize)]
struct Missing<'a> {
    what: &'a str,
    why: &'a str,
    required: bool,
}

impl<'a> Run<'a> {
    /// Collects what `--json` prints about a run.
    pub fn new(report: &'a Report<'_>, overall: &'a Overall, folder: &'a Path) -> Self {
        let mut missing = Vec::new();
        for finding in &report.missing {
            missing.push(Missing {
                what: &finding.what,
                why: &finding.why,
                required: finding.required,
            });
        }
        Self {
            schema: Schema::Run,
            verdict: overall.into(),
            run: folder,
            rows: folder.join("rows.jsonl"),
            variants: report.states.iter().map(Variant::from).collect(),
            claims: report.claims.iter().map(Claim::from).collect(),
            missing,
        }
    }
}

impl<'a> From<&'a (Subject, State)> for Variant<'a> {
    fn from((subject, state): &'a (Subject, State)) -> Self {
        Self {
            subject: subject.as_str(),
            state: state_of(state),
            gates: match state {
                State::Failed(gates) | State::NoData(gates) => gates,
                State::Green | State::Stale | State::NotRun(_) => &[],
            },
        }
    }
}

impl<'a> From<&'a Claimed> for Claim<'a> {
    fn from(claimed: &'a Claimed) -> Self {
        Self {
            stage: &claimed.stage,
            claim: claimed.title(),
            state: standing_of(claimed),
            measured: &claimed.finding.reason,
            why: &claimed.claim.why,
        }
    }
}

fn state_of(state: &State) -> &'static str {
    match state {
        State::Green => "pass",
        State::Failed(_) => "fail",
        State::NoData(_) => "not_measured",
        State::Stale => "stale",
        State::NotRun(_) => "not_run",
    }
}

fn standing_of(claimed: &Claimed) -> &'static str {
    match claimed.verdict() {
        None if claimed.is_unexpected().is_some() => "holds_though_recorded_as_refuted",
        None => "refuted",
        Some(_) if claimed.is_stale => "stale",
        Some(Judgement::Pass) => "holds",
        Some(Judgement::Fail) => "refuted_and_not_recorded",
        Some(Judgement::Ambiguous) => "undecided",
        Some(Judgement::NoData) => "not_measured",
    }
}

/// The object of `compare candidate`. Its rows have the columns of `rows.jsonl`.
#[derive(Serialize)]
pub struct Candidate<'a> {
    schema: Schema,
    verdict: String,
    exit: u8,
    device: &'a str,
    summary: &'a Row,
    cases: &'a [Row],
    timed: Vec<&'a Row>,
    failures: Vec<String>,
    unsupported: Vec<String>,
    not_timed: Vec<String>,
}

impl<'a> From<&'a candidate::Candidate> for Candidate<'a> {
    fn from(candidate: &'a candidate::Candidate) -> Self {
        let timed = candidate.timed.rows();
        Self {
            schema: Schema::Candidate,
            verdict: candidate.verdict().to_string(),
            exit: candidate.exit().code(),
            device: &candidate.device,
            summary: &candidate.summary,
            cases: &candidate.cases,
            timed: timed.filter(|row| row.place() != Place::All).collect(),
            failures: candidate.failures().collect(),
            unsupported: candidate.unsupported(),
            not_timed: candidate.not_timed(),
        }
    }
}

#[cfg(test)]
mod tests;
