//! `compare accept`: checks a record and takes it into `results/` for committing, small enough to be committed.

use crate::judge::verdict::{self, Exit};
use crate::judge::{self, Known, best, claims, state};
use crate::measure::machine;
use crate::record::meta::{Git, Progress, Scope};
use crate::record::store::read_all;
use crate::record::{Negative, Record, Refuted, StoreError};
use clap::Args;
use common::limits::Limited;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A committed record takes at most this many bytes: people read its diff.
pub const MOST_BYTES: usize = 1_000_000;

/// The flags of `accept`.
#[derive(Clone, Debug, Args)]
pub struct AcceptArgs {
    /// The record: a folder that `compare run` wrote, here or on another machine
    #[arg(value_name = "DIR")]
    pub record: PathBuf,
    /// Where committed records are [default: results/ of the workspace]
    #[arg(long, value_name = "DIR")]
    pub into: Option<PathBuf>,
    /// The record refutes the claims that fail in it; say why. Wrong results, hazards and broken caps stay refused
    #[arg(long, value_name = "REASON")]
    pub negative: Option<String>,
}

/// Why a record is not taken. All of these are wrong usage: nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The record, or a committed one, cannot be read.
    #[error("the record cannot be taken; give a folder that `compare run` wrote")]
    Store(#[from] StoreError),
    /// The folder has no name to take over.
    #[error("{} has no name that a record can have; give the folder itself, such as target/compare/20261120T183000Z-nvidia-h200", path.display())]
    Unnamed {
        /// The path as given.
        path: PathBuf,
    },
    /// There is no `results/`.
    #[error(
        "the current folder is not inside the workspace; go there, or name the folder of committed records with --into DIR"
    )]
    NoWorkspace,
    /// The run did not come to its end.
    #[error(
        "{name} is of a run that was ended, with {finished} of {planned} cases; let `compare run --into` it finish"
    )]
    Partial {
        /// The record.
        name: String,
        /// Cases finished.
        finished: usize,
        /// Cases planned.
        planned: usize,
    },
    /// Nobody could say which source its figures are of.
    #[error("{name} was put together by runs of more than one source ({}); run all of it from one commit without uncommitted changes", sources.join(", "))]
    Mixture {
        /// The record.
        name: String,
        /// Their sources.
        sources: Vec<String>,
    },
    /// What it says of a device, that device did not run.
    #[error(transparent)]
    Limited(#[from] Limited),
    /// Nobody could find the lines that it names.
    #[error(
        "{name} was made by a program without debug information, so that hazards in it name no source lines; build it unstripped (no \
         `strip`, no CARGO_PROFILE_*_DEBUG=0) and run `compare` again"
    )]
    NoSourceLines {
        /// The record.
        name: String,
    },
    /// Gate C7 is part of a whole run on a GPU.
    #[error(
        "{name} has no gate C7 for {} variants, first {first}; complete it on its GPU with `compare sanitize`, then accept it",
        variants.len(), first = variants[0]
    )]
    Unsanitized {
        /// The record.
        name: String,
        /// What compute-sanitizer did not look at; at least one.
        variants: Vec<String>,
    },
    /// A correctness, hazard or resource gate failed, or one on the buffers that were timed.
    #[error("{name} has failed gates, which cannot be waived; fix the kernels and run again:{}", bullets(failures))]
    Gates {
        /// The record.
        name: String,
        /// Each with its place and its reason.
        failures: Vec<String>,
    },
    /// The gates let a planted fault pass, fail the correct model, or nobody knows whether some synchronisation is needed.
    #[error("the self-test of {name} fails; fix it (`compare selftest`) and run again:{}", bullets(wrong))]
    SelfTest {
        /// The record.
        name: String,
        /// What is wrong.
        wrong: Vec<String>,
    },
    /// Claims failed, and nobody said why.
    #[error(
        "{name} has failed claims; improve the kernel, or take the record as their refutation with --negative REASON:{}",
        bullets(claims)
    )]
    Claims {
        /// The record.
        name: String,
        /// The claims.
        claims: Vec<String>,
    },
    /// A refutation without a reason.
    #[error("--negative needs a reason in words: why are the claims not met?")]
    NoReason,
    /// A refutation of nothing.
    #[error("no claim fails in {name}, so there is nothing to refute; leave --negative out")]
    NothingRefuted {
        /// The record.
        name: String,
    },
    /// It was taken before.
    #[error("{} exists already and committed records are not overwritten; remove it first, or choose another place with --into", target.display())]
    Exists {
        /// The folder.
        target: PathBuf,
    },
    /// Too large.
    #[error("{name} takes {bytes} bytes, {MOST_BYTES} at most; narrow the run (`compare --help`)")]
    TooLarge {
        /// The record.
        name: String,
        /// Its size.
        bytes: usize,
    },
    /// The folder cannot be moved to its place.
    #[error("cannot write {}; choose another place with --into", target.display())]
    Unwritable {
        /// The folder.
        target: PathBuf,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

fn bullets(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}

/// A record that is in its place.
#[derive(Clone, Debug, PartialEq)]
pub struct Accepted {
    /// The folder.
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
        writeln!(f, "accepted as {} ({} KB)", self.target.display(), self.bytes.div_ceil(1000))?;
        writeln!(f, "{}", self.verdict)?;
        for claim in &self.refuted {
            writeln!(f, "refutes {}: {}: {}", claim.stage, claim.claim, claim.evidence)?;
        }
        self.remarks.iter().try_for_each(|remark| writeln!(f, "note: {remark}"))?;
        write!(f, "commit it, then `compare render`")
    }
}

/// Checks the record that `args` name and copies it to where committed records are.
pub fn accept(args: &AcceptArgs) -> Result<Accepted, AcceptError> {
    accept_within(args, MOST_BYTES)
}

fn accept_within(args: &AcceptArgs, most_bytes: usize) -> Result<Accepted, AcceptError> {
    let mut record = Record::read(&args.record)?;
    let name = folder_name(&args.record).ok_or_else(|| AcceptError::Unnamed { path: args.record.clone() })?;
    let into =
        args.into.clone().or_else(|| Some(machine::workspace()?.join("results"))).ok_or(AcceptError::NoWorkspace)?;
    let target = into.join(&name);
    if target.symlink_metadata().is_ok() {
        return Err(AcceptError::Exists { target });
    }
    let verdict = judge(&name, &record, &read_all(&into)?, args.negative.is_some())?;
    record.meta.negative = args.negative.as_deref().map(|reason| negative(&name, &record, reason)).transpose()?;
    // Passing cases and raw samples stay with the run.
    (record.cases, record.samples) = Default::default();
    let bytes = record.committed().iter().map(|(_, bytes)| bytes.len()).sum();
    if bytes > most_bytes {
        return Err(AcceptError::TooLarge { name, bytes });
    }
    write_at_once(&record, &into, &name)?;
    let remarks = remarks(&record);
    let refuted = record.meta.negative.map(|negative| negative.claims).unwrap_or_default();
    Ok(Accepted { target, bytes, refuted, verdict, remarks })
}

/// The folder's own name, also where it was given as `.`; names with a leading dot are not listed as records.
fn folder_name(folder: &Path) -> Option<String> {
    let name = folder.canonicalize().ok()?.file_name()?.to_str()?.to_string();
    (!name.starts_with('.')).then_some(name)
}

/// The verdict line of a record that may be committed. `waived` says that a reason for failed claims was given.
fn judge(name: &str, record: &Record, committed: &[judge::Named], waived: bool) -> Result<String, AcceptError> {
    let name = name.to_string();
    if let Progress::Partial { finished, planned } = record.meta.progress {
        return Err(AcceptError::Partial { name, finished, planned });
    }
    let sources = sources(record);
    if !record.meta.joined.is_empty() && sources.len() > 1 {
        return Err(AcceptError::Mixture { name, sources });
    }
    Limited::refuse(&name, record.meta.device)?;
    if !record.meta.source_lines {
        return Err(AcceptError::NoSourceLines { name });
    }
    let known = Known { stages: &record.meta.stages, run: Some((&name, record)), committed };
    let report = verdict::report(known);
    let mut failures: Vec<String> =
        report.failures.iter().map(|f| format!("{} {}: {}", f.subject, f.gate, f.reason)).collect();
    for row in best::timed(record) {
        failures.extend(
            row.failed()
                .map(|(gate, judged)| format!("{} {} as timed, {gate}: {}", row.subject, row.on, judged.reason)),
        );
    }
    if !failures.is_empty() {
        return Err(AcceptError::Gates { name, failures });
    }
    let variants: Vec<String> = state::unsanitized(record).iter().map(|subject| subject.to_string()).collect();
    if !variants.is_empty() {
        return Err(AcceptError::Unsanitized { name, variants });
    }
    let wrong: Vec<String> = (state::self_test(record))
        .map(|row| {
            let reason = row.failure().unwrap_or_default();
            format!("{}{}: {reason}", row.subject, row.on)
        })
        .collect();
    if !wrong.is_empty() {
        return Err(AcceptError::SelfTest { name, wrong });
    }
    // What is left to fail is a claim that no committed record refutes.
    if report.overall.exit == Exit::Fail && !waived {
        let claims = refuted(record).into_iter().map(|r| format!("{}: {}: {}", r.stage, r.claim, r.evidence)).collect();
        return Err(AcceptError::Claims { name, claims });
    }
    Ok(report.overall.to_string())
}

/// The sources of the runs that made the record, each once. With uncommitted changes no two runs are of one.
fn sources(record: &Record) -> Vec<String> {
    let runs = std::iter::once((&record.meta.started, &record.meta.git));
    let runs = runs.chain(record.meta.joined.iter().map(|joined| (&joined.started, &joined.git)));
    let mut sources: Vec<String> = runs
        .map(|(started, git)| match git {
            Git::Commit { sha, dirty: false } => sha.clone(),
            Git::Commit { sha, dirty: true } => format!("{sha} with changes of {started}"),
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
            Some(pair) => format!("{} against {}: {}", pair.new.name(), pair.base, finding.reason),
            None => finding.reason,
        },
    });
    refuted.collect()
}

fn negative(name: &str, record: &Record, reason: &str) -> Result<Negative, AcceptError> {
    let (reason, claims) = (reason.trim().to_string(), refuted(record));
    if reason.is_empty() {
        return Err(AcceptError::NoReason);
    }
    if claims.is_empty() {
        return Err(AcceptError::NothingRefuted { name: name.to_string() });
    }
    Ok(Negative { reason, claims })
}

/// Writes all files beside the target and renames the folder: a half record is never seen, let alone committed.
fn write_at_once(record: &Record, into: &Path, name: &str) -> Result<(), AcceptError> {
    let target = into.join(name);
    let temporary = into.join(format!(".{name}.{}.tmp", std::process::id()));
    let written = match record.write(&temporary) {
        Ok(()) => std::fs::rename(&temporary, &target).map_err(|source| AcceptError::Unwritable { target, source }),
        Err(StoreError::Write { source, .. }) => Err(AcceptError::Unwritable { target, source }),
        Err(error) => Err(error.into()),
    };
    if written.is_err() {
        // It may never have come to be.
        let _ = std::fs::remove_dir_all(&temporary);
    }
    written
}

fn remarks(record: &Record) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Scope::Selected { flags } = &record.meta.scope {
        remarks.push(format!("it covers only what was selected: {}", flags.join(" ")));
    }
    match &record.meta.git {
        Git::Commit { dirty: false, .. } => {}
        Git::Commit { sha, dirty: true } => remarks.push(format!("it was built from {sha} with uncommitted changes")),
        Git::Unknown { reason } => remarks.push(format!("its source is unknown: {reason}")),
    }
    remarks
}

#[cfg(test)]
mod tests;
