//! `compare accept`: checks a record and copies what is to be committed of it into `results/`.

use crate::answer::Answer;
use crate::judge::list::{distinct, grouped};
use crate::judge::missing::Missing;
use crate::judge::verdict::{self, Exit, Report};
use crate::judge::{self, Known, best, claims, state};
use crate::measure::machine;
use crate::record::files::{PARTIAL, name_of};
use crate::record::meta::{Git, Progress, Scope};
use crate::record::store::read_all;
use crate::record::{Negative, Record, Refuted, Row};
use anyhow::{Context, bail, ensure};
use clap::Args;
use common::limits::Limited;
use common::metric::Metric;
use std::path::{Path, PathBuf};

/// The largest committed record, in bytes: people read its diff.
pub const MOST_BYTES: usize = 1_000_000;

/// How many of the fastest variants of each problem keep all their latency figures in a committed record.
const LEADING: usize = 3;

/// What the others keep, by which `diff` judges them.
const OF_OTHERS: [Metric; 3] = [Metric::P50, Metric::P90, Metric::SmMhz];

pub const EXAMPLES: &str = "\
Required of a record: the run is complete; no gate, self-test or claim fails (claims may with --negative); after a full run on a GPU
every variant has gate C7 (`compare sanitize`). Passing cases, samples and details of slow variants stay with the run; the rest takes
at most 1 MB.

Examples:
  compare accept target/compare/20261120T183000Z-nvidia-h200
  compare accept target/compare/20261120T183000Z-nvidia-h200 --negative \"the copies hide nothing at this length\"

Exit codes:
  0  accepted; commit the folder together with what `compare render` writes
  2  refused, with the reason, or wrong usage";

/// The flags of `accept`.
#[derive(Clone, Debug, Args)]
pub struct AcceptArgs {
    /// The record: a folder that `compare run` wrote, here or on another machine
    #[arg(value_name = "DIR")]
    pub record: PathBuf,
    /// Copy the record below this folder [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// Commit the record as a refutation of the claims that fail in it, for this reason. Wrong results, hazards and broken caps are
    /// refused all the same
    #[arg(long, value_name = "REASON")]
    pub negative: Option<String>,
}

/// Checks the record that `args` name and copies it to the committed records.
pub fn accept(args: &AcceptArgs) -> anyhow::Result<Answer> {
    accept_within(args, MOST_BYTES).map(Answer::pass)
}

fn accept_within(args: &AcceptArgs, most_bytes: usize) -> anyhow::Result<String> {
    let record = Record::read(&args.record);
    let mut record =
        record.context("the record cannot be accepted; give a folder that `compare run` wrote")?;
    let name = name_of(&args.record);
    ensure!(
        !name.is_empty() && !name.starts_with('.'),
        "{} has no name that a record can have; give the folder itself, such as target/compare/20261120T183000Z-nvidia-h200",
        args.record.display()
    );
    ensure!(
        !name.ends_with(PARTIAL),
        "{name} comes from a run that was interrupted or still goes on; run again, and accept the record of that run"
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
    let remarks = remarks(&record);
    let committed = read_all(&into)?;
    let verdict = judge(&name, &record, &committed, args.negative.is_some())?;
    record.meta.negative = args
        .negative
        .as_deref()
        .map(|reason| negative(&name, &record, reason))
        .transpose()?;
    // A reviewer needs no passing cases, raw samples or details of slow variants; those stay with the run.
    (record.cases, record.samples) = Default::default();
    keep_leading(&mut record.rows, LEADING);
    let files = record.committed();
    let bytes: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    ensure!(
        bytes <= most_bytes,
        "{name} takes {bytes} bytes, {MOST_BYTES} at most; narrow the run (`compare --help`)"
    );
    write_at_once(&record, &into, &name)?;
    let refuted = (record.meta.negative.iter())
        .flat_map(|negative| &negative.claims)
        .map(|of| format!("refutes {}: {}: {}", of.stage, of.claim, of.evidence));
    let lines = refuted.chain(remarks.iter().map(|remark| format!("note: {remark}")));
    Ok(format!(
        "accepted as {} ({} KB)\n{verdict}\n{}commit it, then `compare render`",
        target.display(),
        bytes.div_ceil(1000),
        lines.map(|line| line + "\n").collect::<String>()
    ))
}

/// Reduces the latencies that are not among the `leading` fastest of their problem to [`OF_OTHERS`].
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

/// The gates that fail in a report, one line each.
fn gates(report: &Report<'_>) -> impl Iterator<Item = String> {
    report
        .failures
        .iter()
        .map(|f| format!("{} {}: {}", f.subject, f.gate, f.reason))
}

/// The verdict on a record, or why it is refused. Failed claims are a reason unless they are `waived`.
fn judge(
    name: &str,
    record: &Record,
    committed: &[judge::Named],
    waived: bool,
) -> anyhow::Result<String> {
    if let Progress::Partial { finished, planned } = record.meta.progress {
        bail!(
            "{name} comes from an interrupted run, with {finished} of {planned} cases; run again, and accept the record of that run"
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
    none(
        report.required().map(Missing::to_string),
        &format!("{name} lacks what it should have measured; run again what is missing"),
    )?;
    // The only failures left are claims that no committed record refutes.
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

/// Refuses a record if anything was found.
fn none(found: impl Iterator<Item = String>, why: &str) -> anyhow::Result<()> {
    let lines: String = found.map(|line| format!("\n  {line}")).collect();
    ensure!(lines.is_empty(), "{why}:{lines}");
    Ok(())
}

/// The source versions of the runs that made the record. Uncommitted changes without a hash are never the same version.
fn sources(record: &Record) -> Vec<String> {
    let meta = &record.meta;
    let added = meta.joined.iter().map(|run| (&run.started, &run.git));
    let source = |(started, git): (&String, &Git)| match git {
        Git::Commit {
            sha, dirty: false, ..
        } => sha.clone(),
        Git::Commit {
            sha,
            changes: Some(changes),
            ..
        } => format!("{sha} with changes {changes}"),
        Git::Commit { sha, .. } => format!("{sha} with changes of {started}"),
        Git::Unknown { .. } => format!("an unknown source of {started}"),
    };
    distinct(
        [(&meta.started, &meta.git)]
            .into_iter()
            .chain(added)
            .map(source),
    )
}

/// The claims that fail in the record, with the measurements.
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

/// Writes all files beside the target and renames the folder, so that a partial record is never seen.
fn write_at_once(record: &Record, into: &Path, name: &str) -> anyhow::Result<()> {
    let temporary = into.join(format!(".{name}.{}.tmp", std::process::id()));
    let renamed = || Ok(std::fs::rename(&temporary, into.join(name))?);
    let written = record
        .write(&temporary)
        .map_err(anyhow::Error::from)
        .and_then(|()| renamed());
    if written.is_err() {
        // It may not exist.
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
