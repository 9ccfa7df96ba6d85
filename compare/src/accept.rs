//! `compare accept`: checks a record and takes it into `results/` for committing, small enough to be committed.

use crate::cli::AcceptArgs;
use crate::comparison::{self, Committed, Exit, failed_claims, subject_name};
use crate::machine;
use common::record::store::{StoreError, read_all};
use common::record::{Git, Negative, Planted, Progress, Record, RefutedClaim, SCHEMA, Samples, Scope};
use common::verdict::Verdict;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A committed record takes at most this many bytes, over all its files.
pub const MOST_BYTES: usize = 2_000_000;

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
        "the workspace that this binary was built in is gone; name the folder of committed records with --into DIR"
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
            writeln!(f, "refutes {} of {} {}: {}", claim.gate, claim.stage, claim.family, claim.evidence)?;
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
    if let Planted::Tried { subjects } = &record.correctness.planted {
        let subjects: Vec<_> = subjects.iter().filter(|subject| !subject.as_it_should()).map(subject_name).collect();
        if !subjects.is_empty() {
            return Err(AcceptError::Misjudged { name, subjects });
        }
    }
    // What is left to fail is a claim that no committed record refutes.
    if report.overall.exit == Exit::Fail && !excused {
        let claim =
            |claim: &RefutedClaim| format!("{} of {} {}: {}", claim.gate, claim.stage, claim.family, claim.evidence);
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
mod tests {
    use super::*;
    use crate::testing::ladder;
    use common::check::{CaseKey, CaseResult, Outcome, Source};
    use common::device::BackendKind;
    use common::gate::Errors;
    use common::inputs::Family;
    use common::problem::{Dtype, Mask, Shape};
    use common::record::{
        BuildMeta, ClaimResult, Correctness, Evidence, GateSummary, Gpu, Machine, Performance, Tier, Timing,
        VariantSummary,
    };
    use common::reference::Probability;
    use common::telemetry::Conditions;
    use common::timing::stats::Summary;
    use common::timing::{Comparison, HostCheck, Measurement, Rotation, WarmUp};
    use common::verdict::{GateId, GateResult};
    use tempfile::TempDir;

    const NAME: &str = "20261120T183000Z-nvidia-h200";
    const STAGE: &str = "stage0-scalar";
    const VARIANT: &str = "wmma-qk-32x64";

    fn passed() -> Vec<GateResult> {
        use GateId::{C1, C2, C3, C4, C5, C6};
        [C1, C2, C3, C4, C5, C6].map(|gate| GateResult::judge(gate, true, "fine")).to_vec()
    }

    fn case(seed: u64) -> CaseResult {
        let errors = Errors {
            rows: 4096,
            sampled: false,
            probability: Probability::F32,
            max_abs: 1e-4,
            max_abs_at: [0; 4],
            mean_abs: 1e-5,
            max_row_rel: 1e-4,
            max_row_rel_at: [0; 3],
            allclose: 0.01,
            allclose_at: [0; 4],
            nonzero_in_zero_row: None,
            plain_max_abs: 1e-4,
            reference_max_abs: 1.0,
            end_to_end: None,
        };
        let key = CaseKey {
            stage: STAGE.into(),
            variant: VARIANT.into(),
            backend: BackendKind::Cuda,
            shape_name: "mission".into(),
            shape: Shape::bhsd(1, 8, 512, 64),
            dtype: Dtype::F16,
            mask: Mask::Full,
            source: Source::Seeded { family: Family::Normal, seed },
        };
        CaseResult { key, outcome: Outcome::Checked { errors, gates: passed() } }
    }

    fn timing(samples: &[f64]) -> Timing {
        let summary = Summary::of(samples).unwrap();
        Timing {
            stage: STAGE.into(),
            variant: VARIANT.into(),
            identity: format!("{STAGE}-identity"),
            dtype: Dtype::F16,
            mask: Mask::Full,
            shape_name: "mission".into(),
            shape: Shape::bhsd(1, 8, 512, 64),
            measurement: Measurement {
                label: format!("{STAGE}/{VARIANT}"),
                rotation: Rotation::of(4, 1 << 20, 1 << 19, 50 << 20),
                launches_per_sample: 20,
                requested_samples: samples.len(),
                warm_up: WarmUp { launches: 100, ms: 500.0 },
                device: summary,
                device_us: samples.to_vec(),
                single: summary,
                single_us: samples.to_vec(),
                host_check: HostCheck { event_ms: 20.0, wall_ms: 20.1, launch_us: samples[0] },
                conditions: [(); 2].map(|()| Conditions::Absent { reason: "literal".into() }),
            },
            samples: Samples::Raw,
            after: passed(),
        }
    }

    /// One variant, ten cases, one timing, a claim that holds.
    fn good() -> Record {
        let stages = ladder();
        let samples: Vec<f64> = (0..400).map(|i| 20.0 + f64::from(i % 7) * 0.01).collect();
        let gates = passed().into_iter().map(|result| GateSummary { result, passed: 10, of: 10 });
        let variant = VariantSummary {
            stage: STAGE.into(),
            variant: VARIANT.into(),
            identity: stages[0].identity.clone(),
            checked: 10,
            unsupported: 0,
            failed: 0,
            gates: gates.collect(),
            worst: None,
        };
        let slower: Vec<f64> = samples.iter().map(|us| us * 2.0).collect();
        let claim = ClaimResult {
            stage: STAGE.into(),
            terms: stages[0].claims[0].clone(),
            variant: VARIANT.into(),
            base_variant: "scalar-32x64".into(),
            identity: stages[0].identity.clone(),
            comparison: Comparison::of(&slower, &samples).unwrap(),
            same_preset: None,
            result: GateResult::judge(GateId::L1, true, "2.00x >= 1.50x"),
        };
        let gpu = Gpu::Present {
            name: "NVIDIA H200".into(),
            arch: "sm_90".into(),
            driver: "580.1".into(),
            multiprocessors: 132,
            shared_opt_in_bytes: 232_448,
        };
        Record {
            meta: BuildMeta {
                schema: SCHEMA,
                started: "2026-11-20T18:30:00Z".into(),
                progress: Progress::Complete { cases: 10, seconds: 60 },
                tool_version: "0.1.0".into(),
                command: vec!["compare".into()],
                git: Git::Commit { sha: "0123abcd".into(), dirty: false },
                machine: Machine { name: "nvidia-h200".into(), platform: "linux x86_64".into(), processors: 16, gpu },
                tier: Tier::T2,
                backend: BackendKind::Cuda,
                scope: Scope::Whole,
                toggles: Default::default(),
                gates: vec![],
                stages,
            },
            correctness: Correctness {
                schema: SCHEMA,
                variants: vec![variant],
                cases: (0..10).map(case).collect(),
                omitted_cases: 0,
                planted: Planted::NotTried { reason: "not in this test".into() },
            },
            performance: Some(Performance {
                schema: SCHEMA,
                method: "literal".into(),
                timings: vec![timing(&samples)],
                claims: vec![claim],
            }),
            evidence: Evidence { schema: SCHEMA, rows: vec![], absent: vec![] },
            negative: None,
        }
    }

    fn with_failed_claim() -> Record {
        let mut record = good();
        let claims = &mut record.performance.as_mut().unwrap().claims;
        claims[0].result = GateResult::judge(GateId::L1, false, "1.20x < 1.50x");
        record
    }

    /// Writes the record as a run would, and what it takes to accept it.
    fn written(record: &Record) -> (TempDir, AcceptArgs) {
        let root = TempDir::new().unwrap();
        let folder = root.path().join("target").join(NAME);
        record.write(&folder).unwrap();
        let into = Some(root.path().join("results"));
        (root, AcceptArgs { record: folder, into, negative: None })
    }

    fn refused(record: &Record, negative: Option<&str>) -> String {
        let (_root, mut args) = written(record);
        args.negative = negative.map(str::to_string);
        let error = accept(&args).unwrap_err().to_string();
        let left = std::fs::read_dir(args.into.unwrap()).map_or(0, |entries| entries.count());
        assert_eq!(left, 0, "a refused record leaves nothing behind");
        error
    }

    #[test]
    fn a_good_record_is_taken_as_it_is() {
        let (_root, args) = written(&good());
        let accepted = accept(&args).unwrap();
        assert_eq!(read_all(args.into.as_ref().unwrap()).unwrap(), [(NAME.to_string(), good())]);
        assert_eq!((accepted.omitted_samples, accepted.omitted_cases), (0, 0));
        assert_eq!((accepted.remarks.len(), accepted.refuted.len()), (0, 0));
        assert!(accepted.to_string().starts_with("accepted as "), "{accepted}");
        assert!(accepted.to_string().contains("PASS: 1 variant is green"), "{accepted}");
        let entries = std::fs::read_dir(args.into.as_ref().unwrap()).unwrap().count();
        assert_eq!(entries, 1, "no temporary folder is left");
        assert!(matches!(accept(&args), Err(AcceptError::Exists { .. })));
    }

    #[test]
    fn a_selection_or_a_dirty_source_is_taken_with_a_note() {
        let mut record = good();
        record.meta.scope = Scope::Selected { flags: vec!["--shapes mission".into()] };
        record.meta.git = Git::Commit { sha: "0123abcd".into(), dirty: true };
        let (_root, args) = written(&record);
        let text = accept(&args).unwrap().to_string();
        assert!(text.contains("note: it covers only what was selected: --shapes mission"), "{text}");
        assert!(text.contains("with uncommitted changes"), "{text}");
    }

    #[test]
    fn an_interrupted_run_is_refused() {
        let mut record = good();
        record.meta.progress = Progress::Partial { finished: 3, planned: 10 };
        assert!(refused(&record, None).contains("ended after 3 of 10 cases"));
    }

    #[test]
    fn failed_gates_are_refused_and_no_reason_excuses_them() {
        let mut wrong = with_failed_claim();
        wrong.correctness.variants[0].gates[2].result = GateResult::judge(GateId::C3, false, "row error 0.1 > 2e-3");
        for negative in [None, Some("the kernel is new")] {
            let error = refused(&wrong, negative);
            assert!(error.contains("stage0-scalar/wmma-qk-32x64 C3: row error 0.1 > 2e-3"), "{error}");
        }
        let mut impossible = good();
        let after = &mut impossible.performance.as_mut().unwrap().timings[0].after;
        after.push(GateResult::judge(GateId::L1, false, "impossible: below 3 us"));
        assert!(refused(&impossible, None).contains("mission as timed, L1: impossible"));
    }

    #[test]
    fn gates_that_misjudge_are_refused() {
        let mut record = good();
        let fault = Some(common::faults::Fault::DroppedTile);
        let escaped = common::faults::Caught { fault, cases: 8, cases_failed: 0, gates_that_failed: vec![] };
        record.correctness.planted = Planted::Tried { subjects: vec![escaped] };
        assert!(refused(&record, None).contains("misjudge dropped tile"));
    }

    #[test]
    fn failed_claims_need_a_reason_and_a_reason_needs_failed_claims() {
        let error = refused(&with_failed_claim(), None);
        assert!(error.contains("--negative REASON:\n  L1 of stage0-scalar wmma-qk"), "{error}");
        assert!(error.contains("1.20x < 1.50x"), "{error}");
        assert!(refused(&with_failed_claim(), Some("  ")).contains("needs a reason"));
        assert!(refused(&good(), Some("memory-bound")).contains("nothing to refute"));

        let (_root, mut args) = written(&with_failed_claim());
        args.negative = Some("memory-bound at this length".into());
        let accepted = accept(&args).unwrap();
        let negative = Record::read(&accepted.target).unwrap().negative.unwrap();
        assert_eq!(negative.reason, "memory-bound at this length");
        assert_eq!(negative.gpu.as_deref(), Some("NVIDIA H200"));
        assert_eq!(negative.claims, failed_claims(&with_failed_claim()));
        assert_eq!(accepted.refuted, negative.claims);

        // The same failure in a later record is settled by the first.
        let later = args.record.with_file_name("20261121T183000Z-nvidia-h200");
        with_failed_claim().write(&later).unwrap();
        let accepted = accept(&AcceptArgs { record: later, negative: None, ..args }).unwrap();
        assert_eq!(Record::read(&accepted.target).unwrap().negative, None);
    }

    #[test]
    fn a_large_record_loses_samples_first_and_passing_cases_next() {
        let record = good();
        let whole = size(&record);
        let (_root, args) = written(&record);
        let shrunk = accept_within(&args, whole - 1).unwrap();
        assert_eq!((shrunk.omitted_samples, shrunk.omitted_cases), (1, 0));
        assert!(shrunk.bytes < whole);
        let kept = Record::read(&shrunk.target).unwrap();
        let timing = &kept.performance.as_ref().unwrap().timings[0];
        assert_eq!((timing.samples.clone(), timing.measurement.device_us.len()), (Samples::Omitted, 0));
        assert_eq!(timing.measurement.device, record.performance.as_ref().unwrap().timings[0].measurement.device);
        assert_eq!(kept.correctness, record.correctness);

        let mut with_failure = record.clone();
        with_failure.correctness.cases[4].outcome = Outcome::Unsupported { reason: "head_dim".into() };
        let (_root, args) = written(&with_failure);
        let least = accept_within(&args, shrunk.bytes / 2 + size(&record) / 100).unwrap();
        assert_eq!(least.omitted_cases, 9);
        let kept = Record::read(&least.target).unwrap().correctness;
        assert_eq!((kept.cases.len(), kept.omitted_cases, kept.variants[0].checked), (1, 9, 10));
        assert!(least.to_string().contains("9 passing cases"), "{least}");

        let (_root, args) = written(&record);
        assert!(matches!(accept_within(&args, 100), Err(AcceptError::TooLarge { .. })));
    }

    #[test]
    fn what_is_no_record_is_refused() {
        let root = TempDir::new().unwrap();
        let args = AcceptArgs { record: root.path().to_path_buf(), into: None, negative: None };
        assert!(matches!(accept(&args), Err(AcceptError::Store(_))));
    }
}
