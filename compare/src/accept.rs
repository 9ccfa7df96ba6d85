//! `compare accept`: checks a record and takes it into `results/` for committing, small enough to be committed.

use crate::cli::AcceptArgs;
use crate::comparison::{self, Committed, Exit, failed_claims, subject_name};
use crate::machine;
use common::limits::Limited;
use common::record::store::{StoreError, read_all};
use common::record::{Git, Negative, Planted, Progress, Record, RefutedClaim, SCHEMA, Samples, Scope};
use common::verdict::Verdict;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A committed record takes at most this many bytes, over all its files. A run of six stages that times every preset takes
/// 5 MB with all samples and cases, of which git stores 1 MB: they are the evidence, and worth that.
pub const MOST_BYTES: usize = 6_000_000;

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
    #[error("{name} is of a run that ended after {finished} of {planned} cases; run `compare` again and let it finish")]
    Partial {
        /// The record.
        name: String,
        /// Cases finished.
        finished: usize,
        /// Cases planned.
        planned: usize,
    },
    /// What it says of a device, that device did not run.
    #[error(transparent)]
    Limited(#[from] Limited),
    /// Nobody could find the lines that it speaks of.
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
    #[error("{name} has failed gates, which no reason excuses; fix the kernels and run again:{}", bullets(failures))]
    Gates {
        /// The record.
        name: String,
        /// Each with its place and its reason.
        failures: Vec<String>,
    },
    /// The gates let a planted fault pass, or failed the correct model.
    #[error("the gates of {name} misjudge {}; mend them (`compare selftest`) and run again", subjects.join(", "))]
    Misjudged {
        /// The record.
        name: String,
        /// What they misjudge.
        subjects: Vec<&'static str>,
    },
    /// Nobody knows whether some synchronisation is needed.
    #[error(
        "{name} has synchronisation that no gate misses, or a wrong list of it; mend it and run again:{}",
        bullets(wrong)
    )]
    Synchronisation {
        /// The record.
        name: String,
        /// What is wrong and what to do.
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
    /// Too large even without what may be left out.
    #[error(
        "{name} takes {bytes} bytes without samples and passing cases, {MOST_BYTES} at most; narrow the run (`compare --help`)"
    )]
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
    /// Timings whose raw samples were left out.
    pub omitted_samples: usize,
    /// Passing cases that were left out.
    pub omitted_cases: usize,
    /// The claims that it refutes.
    pub refuted: Vec<RefutedClaim>,
    /// The verdict on it.
    pub verdict: String,
    /// What a reviewer should know of it.
    pub remarks: Vec<String>,
}

impl fmt::Display for Accepted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "accepted as {} ({} KB)", self.target.display(), self.bytes.div_ceil(1000))?;
        writeln!(f, "{}", self.verdict)?;
        if self.omitted_samples > 0 {
            writeln!(
                f,
                "left out to keep it small: the raw samples of {} timings; their summaries are kept",
                self.omitted_samples
            )?;
        }
        if self.omitted_cases > 0 {
            writeln!(f, "left out to keep it small: {} passing cases; the summaries count them", self.omitted_cases)?;
        }
        for claim in &self.refuted {
            writeln!(f, "refutes {} of {}: {}: {}", claim.gate, claim.stage, claim.what, claim.evidence)?;
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
    record.negative = args.negative.as_deref().map(|reason| negative(&name, &record, reason)).transpose()?;
    let (omitted_samples, omitted_cases) = shrink(&mut record, most_bytes);
    let bytes = size(&record);
    if bytes > most_bytes {
        return Err(AcceptError::TooLarge { name, bytes });
    }
    write_at_once(&record, &into, &name)?;
    let remarks = remarks(&record);
    let refuted = record.negative.map(|negative| negative.claims).unwrap_or_default();
    Ok(Accepted { target, bytes, omitted_samples, omitted_cases, refuted, verdict, remarks })
}

/// The folder's own name, also where it was given as `.`; names with a leading dot are not listed as records.
fn folder_name(folder: &Path) -> Option<String> {
    let name = folder.canonicalize().ok()?.file_name()?.to_str()?.to_string();
    (!name.starts_with('.')).then_some(name)
}

/// The verdict line of a record that may be committed. `excused` says that a reason for failed claims was given.
fn judge(name: &str, record: &Record, committed: &[Committed], excused: bool) -> Result<String, AcceptError> {
    let name = name.to_string();
    if let Progress::Partial { finished, planned } = record.meta.progress {
        return Err(AcceptError::Partial { name, finished, planned });
    }
    Limited::refuse(&name, record.meta.device)?;
    if !record.meta.source_lines {
        return Err(AcceptError::NoSourceLines { name });
    }
    let report = comparison::report(&record.meta.stages, Some((&name, record)), committed);
    let mut failures: Vec<String> =
        report.failures.iter().map(|f| format!("{} {}: {}", f.place, f.result.gate, f.result.reason)).collect();
    for timing in record.performance.iter().flat_map(|performance| &performance.timings) {
        let failed = timing.after.iter().filter(|gate| gate.verdict == Verdict::Fail);
        let place = format!("{}/{} {}", timing.stage, timing.variant, timing.shape_name);
        failures.extend(failed.map(|gate| format!("{place} as timed, {}: {}", gate.gate, gate.reason)));
    }
    if !failures.is_empty() {
        return Err(AcceptError::Gates { name, failures });
    }
    let variants = comparison::unsanitized(record);
    if !variants.is_empty() {
        return Err(AcceptError::Unsanitized { name, variants });
    }
    if let Planted::Tried { subjects } = &record.correctness.planted {
        let subjects: Vec<_> = subjects.iter().filter(|subject| !subject.as_it_should()).map(subject_name).collect();
        if !subjects.is_empty() {
            return Err(AcceptError::Misjudged { name, subjects });
        }
    }
    let wrong = record.correctness.synchronisation.wrong();
    if !wrong.is_empty() {
        return Err(AcceptError::Synchronisation { name, wrong });
    }
    // What is left to fail is a claim that no committed record refutes.
    if report.overall.exit == Exit::Fail && !excused {
        let claim =
            |claim: &RefutedClaim| format!("{} of {}: {}: {}", claim.gate, claim.stage, claim.what, claim.evidence);
        return Err(AcceptError::Claims { name, claims: failed_claims(record).iter().map(claim).collect() });
    }
    Ok(report.overall.to_string())
}

fn negative(name: &str, record: &Record, reason: &str) -> Result<Negative, AcceptError> {
    let (reason, claims) = (reason.trim().to_string(), failed_claims(record));
    if reason.is_empty() {
        return Err(AcceptError::NoReason);
    }
    if claims.is_empty() {
        return Err(AcceptError::NothingRefuted { name: name.to_string() });
    }
    let gpu = record.meta.machine.gpu.name().map(str::to_string);
    Ok(Negative { schema: SCHEMA, reason, gpu, claims })
}

fn size(record: &Record) -> usize {
    record.files().iter().map(|(_, bytes)| bytes.len()).sum()
}

/// Leaves out raw samples, then passing cases, as far as needed. Returns how many of each.
fn shrink(record: &mut Record, most_bytes: usize) -> (usize, usize) {
    let (mut samples, mut cases) = (0, 0);
    if size(record) > most_bytes {
        for timing in record.performance.iter_mut().flat_map(|performance| &mut performance.timings) {
            timing.measurement.device_us.clear();
            timing.measurement.single_us.clear();
            timing.samples = Samples::Omitted;
            samples += 1;
        }
    }
    if size(record) > most_bytes {
        let correctness = &mut record.correctness;
        let all = correctness.cases.len();
        correctness.cases.retain(|case| !case.is_green());
        cases = all - correctness.cases.len();
        correctness.omitted_cases += cases;
    }
    (samples, cases)
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
