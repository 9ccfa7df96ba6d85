//! `compare accept`: checks a record and takes it into `results/` for committing, small enough to be committed.

use crate::judge::list::grouped;
use crate::judge::missing::Missing;
use crate::judge::verdict::{self, Exit, Report};
use crate::judge::{self, Known, best, claims, peers, state};
use crate::measure::machine;
use crate::record::files::{PARTIAL, name_of};
use crate::record::meta::{Git, Progress, Scope};
use crate::record::store::read_all;
use crate::record::{Negative, Of, Record, Refuted, Row};
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::limits::Limited;
use common::metric::Metric;
use std::fmt;
use std::path::{Path, PathBuf};

/// A committed record takes at most this many bytes: people read its diff.
pub const MOST_BYTES: usize = 1_000_000;

/// So many of the fastest variants of each problem keep all figures of their latency in a committed record.
const LEADING: usize = 3;

/// What the others keep: what `diff` judges them by.
const OF_OTHERS: [Metric; 3] = [Metric::P50, Metric::P90, Metric::SmMhz];

/// What is shown of what was timed beside a candidate.
const OF_RIVALS: [Metric; 4] = [
    Metric::P50,
    Metric::SingleP50,
    Metric::HostP50,
    Metric::MaxError,
];

pub const EXAMPLES: &str = "\
Of the ladder's record, by `compare run`: it has ended, no gate fails, no claim does without --negative, nor the self-test; of a
full run on a GPU every variant has gate C7 (`compare sanitize`). Of a candidate's, by `compare candidate`: it has ended, and
all that it takes is green. A candidate has no C7, claims or caps; nothing is said of the ladder from its record.
Passing cases, samples and most of what was slow stay with the run; what is left takes at most 1 MB.

Examples:
  compare accept target/compare/20261120T183000Z-nvidia-h200
  compare accept target/compare/20261120T183000Z-nvidia-h200 --negative \"the copies hide nothing at this length\"
  compare accept target/candidate/20261120T183000Z-nvidia-h200

Exit codes:
  0  taken; commit the folder with what `compare render` writes
  2  refused, with the reason, or wrong usage";

/// The flags of `accept`.
#[derive(Clone, Debug, Args)]
pub struct AcceptArgs {
    /// The record: a folder that `compare run` or `compare candidate` wrote, here or on another machine
    #[arg(value_name = "DIR")]
    pub record: PathBuf,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// The record refutes the claims that fail in it; say why. Wrong results, hazards and broken caps stay refused
    #[arg(long, value_name = "REASON")]
    pub negative: Option<String>,
}

/// A record that is in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    pub target: PathBuf,
    /// Bytes of all its files.
    pub bytes: usize,
    /// The claims that it refutes.
    pub refuted: Vec<Refuted>,
    /// The verdict on it.
    pub verdict: String,
    /// What a reviewer should know of it.
    pub remarks: Vec<String>,
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "accepted as {} ({} KB)",
            self.target.display(),
            self.bytes.div_ceil(1000)
        )?;
        writeln!(f, "{}", self.verdict)?;
        for claim in &self.refuted {
            writeln!(
                f,
                "refutes {}: {}: {}",
                claim.stage, claim.claim, claim.evidence
            )?;
        }
        self.remarks
            .iter()
            .try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        write!(f, "commit it, then `compare render`")
    }
}

/// Checks the record that `args` name and copies it to where committed records are.
pub fn accept(args: &AcceptArgs) -> anyhow::Result<Accepted> {
    accept_within(args, MOST_BYTES)
}

fn accept_within(args: &AcceptArgs, most_bytes: usize) -> anyhow::Result<Accepted> {
    let record = Record::read(&args.record);
    let mut record = record.context(
        "the record cannot be taken; give a folder that `compare run` or `compare candidate` wrote",
    )?;
    let name = name_of(&args.record);
    ensure!(
        !name.is_empty() && !name.starts_with('.'),
        "{} has no name that a record can have; give the folder itself, such as target/compare/20261120T183000Z-nvidia-h200",
        args.record.display()
    );
    ensure!(
        !name.ends_with(PARTIAL),
        "{name} is of a run that was ended or has not ended yet; let `compare run --into` it finish, or run `compare candidate` again"
    );
    let into = match &args.into {
        Some(into) => into.clone(),
        None => machine::root("--into DIR")?.join("results"),
    };
    let target = into.join(&name);
    ensure!(
        target.symlink_metadata().is_err(),
        "{} exists already and committed records are not overwritten; remove it first, or choose another place with --into",
        target.display()
    );
    let of = record.meta.of();
    let mut remarks = remarks(&record);
    let verdict = match of {
        Of::Ladder => {
            let committed = read_all(&into, Of::Ladder)?;
            let without = peers::without(&record, committed.iter().rev().map(|(_, record)| record));
            remarks.extend(without.map(|without| {
                format!("its session with peers was timed {without}: run `compare peers` where it is installed")
            }));
            judge(&name, &record, &committed, args.negative.is_some())?
        }
        Of::Candidate => judge_candidate(&name, &record)?,
    };
    record.meta.negative = args
        .negative
        .as_deref()
        .map(|reason| negative(&name, &record, reason))
        .transpose()?;
    // What no reader of a change needs stays with the run: passing cases, raw samples, and most of what is slow.
    (record.cases, record.samples) = Default::default();
    match of {
        Of::Ladder => keep_leading(&mut record.rows, LEADING),
        Of::Candidate => keep_compared(&mut record),
    }
    let bytes = record
        .committed()
        .iter()
        .map(|(_, bytes)| bytes.len())
        .sum();
    ensure!(
        bytes <= most_bytes,
        "{name} takes {bytes} bytes, {MOST_BYTES} at most; narrow the run (`compare --help`)"
    );
    write_at_once(&record, &into, &name)?;
    let refuted = record
        .meta
        .negative
        .map(|negative| negative.claims)
        .unwrap_or_default();
    Ok(Accepted {
        target,
        bytes,
        refuted,
        verdict,
        remarks,
    })
}

/// Leaves of the latencies that are none of the `leading` fastest of their problem no more than [`OF_OTHERS`].
fn keep_leading(rows: &mut [Row], leading: usize) {
    let latencies = rows.iter_mut().filter(|row| best::is_latency(row));
    let by_problem = latencies.map(|row| (row.on.clone(), row));
    for (_, mut rows) in grouped(by_problem) {
        rows.sort_by(|a, b| best::p50(a).total_cmp(&best::p50(b)));
        for row in rows.into_iter().skip(leading) {
            row.figures.retain(|metric, _| OF_OTHERS.contains(metric));
        }
    }
}

/// Leaves of what was timed beside a candidate no more than it is compared by.
fn keep_compared(record: &mut Record) {
    let stages = &record.meta.stages;
    let is_rival = |row: &&mut Row| stages.iter().all(|stage| stage.id != row.subject.stage());
    for rival in record.rows.iter_mut().filter(is_rival) {
        rival.figures.retain(|metric, _| OF_RIVALS.contains(metric));
    }
}

/// What a report says of a candidate's record, unless that keeps it out.
fn judge_candidate(name: &str, record: &Record) -> anyhow::Result<String> {
    ensure!(
        matches!(record.meta.progress, Progress::Complete { .. }),
        "{name} is of a run that was ended; run `compare candidate` again"
    );
    let report = verdict::report(Known::alone(name, record));
    none(
        gates(&report),
        &format!("{name} has failed gates; fix the candidate and run `compare candidate` again"),
    )?;
    ensure!(
        report.overall.exit == Exit::Pass,
        "{name} is not green ({}); run `compare candidate` on problems that it takes",
        report.overall
    );
    Ok(report.overall.to_string())
}

/// The gates that fail in a report, in words.
fn gates(report: &Report<'_>) -> impl Iterator<Item = String> {
    report
        .failures
        .iter()
        .map(|f| format!("{} {}: {}", f.subject, f.gate, f.reason))
}

/// What a report says of the ladder's record, unless that keeps it out. Failed claims do, unless they are `waived`.
fn judge(
    name: &str,
    record: &Record,
    committed: &[judge::Named],
    waived: bool,
) -> anyhow::Result<String> {
    if let Progress::Partial { finished, planned } = record.meta.progress {
        bail!(
            "{name} is of a run that was ended, with {finished} of {planned} cases; let `compare run --into` it finish"
        );
    }
    let sources = sources(record);
    ensure!(
        record.meta.joined.is_empty() || sources.len() < 2,
        "{name} was put together by runs of more than one source ({}); run all of it from one commit without uncommitted changes",
        sources.join(", ")
    );
    Limited::refuse(name, record.meta.device)?;
    ensure!(
        record.meta.source_lines,
        "{name} was made by a program without debug information, so that hazards in it name no source lines; build it unstripped (no \
         `strip`, no CARGO_PROFILE_*_DEBUG=0) and run `compare` again"
    );
    let known = Known {
        stages: &record.meta.stages,
        run: Some((name, record)),
        committed,
    };
    let report = verdict::report(known);
    none(
        gates(&report),
        &format!("{name} has failed gates, which cannot be waived; fix the kernels and run again"),
    )?;
    let unsanitized = state::unsanitized(record);
    if let Some(first) = unsanitized.first() {
        bail!(
            "{name} has no gate C7 for {} variants, first {first}; complete it on its GPU with `compare sanitize`, then accept it",
            unsanitized.len()
        );
    }
    let wrong = state::self_test(record).map(|row| {
        format!(
            "{}{}: {}",
            row.subject,
            row.on,
            row.failure().unwrap_or_default()
        )
    });
    none(
        wrong,
        &format!("the self-test of {name} fails; fix it (`compare selftest`) and run again"),
    )?;
    complete(
        name,
        &report,
        "run again what is missing with `compare run --into`",
    )?;
    // What is left to fail is a claim that no committed record refutes.
    if report.overall.exit == Exit::Fail && !waived {
        let claims = refuted(record)
            .into_iter()
            .map(|r| format!("\n  {}: {}: {}", r.stage, r.claim, r.evidence));
        let why =
            "improve the kernel, or take the record as their refutation with --negative REASON";
        bail!(
            "{name} has failed claims; {why}:{}",
            claims.collect::<String>()
        );
    }
    Ok(report.overall.to_string())
}

/// Refuses a record without what it should have measured: what is not there cannot fail.
fn complete(name: &str, report: &Report<'_>, remedy: &str) -> anyhow::Result<()> {
    none(
        report.required().map(Missing::to_string),
        &format!("{name} lacks what it should have measured; {remedy}"),
    )
}

/// Refuses a record of which there is anything to say.
fn none(found: impl Iterator<Item = String>, why: &str) -> anyhow::Result<()> {
    let lines: String = found.map(|line| format!("\n  {line}")).collect();
    ensure!(lines.is_empty(), "{why}:{lines}");
    Ok(())
}

/// The sources of the runs that made the record, each once. Of uncommitted changes without a hash no two runs are of one.
fn sources(record: &Record) -> Vec<String> {
    let runs = std::iter::once((&record.meta.started, &record.meta.git));
    let runs = runs.chain(
        record
            .meta
            .joined
            .iter()
            .map(|joined| (&joined.started, &joined.git)),
    );
    let mut sources: Vec<String> = runs
        .map(|(started, git)| match git {
            Git::Commit {
                sha, dirty: false, ..
            } => sha.clone(),
            Git::Commit { sha, changes, .. } => match changes {
                Some(changes) => format!("{sha} with changes {changes}"),
                None => format!("{sha} with changes of {started}"),
            },
            Git::Unknown { .. } => format!("an unknown source of {started}"),
        })
        .collect();
    sources.dedup();
    sources
}

/// Claims that fail in the record, with what was measured.
fn refuted(record: &Record) -> Vec<Refuted> {
    let refuted = claims::failed(record).map(|(stage, claim, finding)| Refuted {
        stage: stage.id.clone(),
        claim: claim.to_string(),
        evidence: match &finding.pair {
            Some(pair) => format!(
                "{} against {}: {}",
                pair.new.name(),
                pair.base,
                finding.reason
            ),
            None => finding.reason,
        },
    });
    refuted.collect()
}

fn negative(name: &str, record: &Record, reason: &str) -> anyhow::Result<Negative> {
    let (reason, claims) = (reason.trim().to_string(), refuted(record));
    ensure!(
        !reason.is_empty(),
        "--negative needs a reason in words: why are the claims not met?"
    );
    ensure!(
        !claims.is_empty(),
        "no claim fails in {name}, so there is nothing to refute; leave --negative out"
    );
    Ok(Negative { reason, claims })
}

/// Writes all files beside the target and renames the folder: a half record is never seen, let alone committed.
fn write_at_once(record: &Record, into: &Path, name: &str) -> anyhow::Result<()> {
    let temporary = into.join(format!(".{name}.{}.tmp", std::process::id()));
    let renamed = || Ok(std::fs::rename(&temporary, into.join(name))?);
    let written = record
        .write(&temporary)
        .map_err(anyhow::Error::from)
        .and_then(|()| renamed());
    if written.is_err() {
        // It may never have come to be.
        let _ = std::fs::remove_dir_all(&temporary);
    }
    written.with_context(|| {
        format!(
            "cannot write {}; choose another place with --into",
            into.join(name).display()
        )
    })
}

fn remarks(record: &Record) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Scope::Selected { flags } = &record.meta.scope {
        remarks.push(format!(
            "it covers only what was selected: {}",
            flags.join(" ")
        ));
    }
    match &record.meta.git {
        Git::Commit { dirty: false, .. } => {}
        Git::Commit { sha, .. } => {
            remarks.push(format!("it was built from {sha} with uncommitted changes"))
        }
        Git::Unknown { reason } => remarks.push(format!("its source is unknown: {reason}")),
    }
    remarks
}

#[cfg(test)]
mod tests;
