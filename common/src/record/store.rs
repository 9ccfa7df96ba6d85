//! The folder of a record: read whole, written file by file, each file replaced at once or not at all.

use super::{BuildMeta, Correctness, Evidence, Negative, Peers, Performance, Profile, Record, SCHEMA, Sanitizer};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The file of [`BuildMeta`].
pub const BUILD_META: &str = "build_meta.json";
/// The file of [`Correctness`].
pub const CORRECTNESS: &str = "correctness_summary.json";
/// The file of [`Performance`].
pub const PERFORMANCE: &str = "perf_baseline.json";
/// The file of [`Evidence`].
pub const EVIDENCE: &str = "evidence.json";
/// The file of [`Negative`].
pub const NEGATIVE: &str = "negative.json";
/// The file of [`Profile`].
pub const PROFILE: &str = "profile.json";
/// The file of [`Sanitizer`].
pub const SANITIZER: &str = "sanitizer.json";
/// The file of [`Peers`].
pub const PEERS: &str = "peers.json";

/// All files that a record can have.
pub const FILES: [&str; 8] = [BUILD_META, CORRECTNESS, PERFORMANCE, EVIDENCE, NEGATIVE, PROFILE, SANITIZER, PEERS];

/// Why a record cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file or folder cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{} is not a record file", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// The record was written by another version.
    #[error("{} has schema {found}; this program reads schema {SCHEMA}", path.display())]
    Schema {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// Links that are followed from one to the next, at most; as many as Linux follows.
const MOST_LINKS: usize = 40;

/// Where a write to `path` goes: at the end of its symbolic links, whether or not there is a file yet.
pub fn destination(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = folder_of(&path).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("its links lead to each other"))
}

/// The folder that a file lies in.
pub fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Whether `path` leads to a device, a pipe or a socket, which take bytes and are not replaced.
pub fn is_stream(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| !metadata.is_file() && !metadata.is_dir())
}

/// Replaces the file at `path` with `bytes`, at once: a reader sees the old file or the new one, never a part. A link stays
/// one, and a device or pipe is written to as it is.
pub fn write_atomically(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let fail = |source| StoreError::Write { path: path.to_path_buf(), source };
    if is_stream(path) {
        let stream = fs::OpenOptions::new().write(true).open(path);
        return stream.and_then(|mut stream| stream.write_all(bytes)).map_err(fail);
    }
    let path = &destination(path).map_err(fail)?;
    let name = path.file_name().ok_or_else(|| fail(io::Error::new(io::ErrorKind::InvalidInput, "not a file name")))?;
    let parent = folder_of(path);
    fs::create_dir_all(parent).map_err(fail)?;
    if path.is_dir() {
        return Err(fail(io::Error::new(io::ErrorKind::IsADirectory, "is a folder")));
    }
    // The process id keeps two runs apart; a name with a leading dot is skipped by everything that lists records.
    let temporary = parent.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    written.map_err(|source| {
        let _ = fs::remove_file(&temporary);
        fail(source)
    })
}

/// Writes `value` as JSON, one level of the top arrays per line, so that a diff shows the rows that changed.
pub fn write_json(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    write_atomically(path, &to_json(value))
}

/// The bytes that [`write_json`] writes.
pub fn to_json(value: &impl Serialize) -> Vec<u8> {
    let value = serde_json::to_value(value).expect("records hold no maps with keys that are not strings");
    let mut text = String::new();
    write_value(&mut text, &value, 0);
    text.push('\n');
    text.into_bytes()
}

/// Objects are split over lines to this depth, arrays of objects always; deeper values are compact.
const SPLIT_DEPTH: usize = 1;

fn write_value(out: &mut String, value: &serde_json::Value, depth: usize) {
    use serde_json::Value;
    match value {
        Value::Object(fields) if depth < SPLIT_DEPTH && !fields.is_empty() => {
            out.push_str("{\n");
            for (i, (name, field)) in fields.iter().enumerate() {
                out.push_str(if i == 0 { " " } else { ",\n " });
                out.push_str(&Value::String(name.clone()).to_string());
                out.push_str(": ");
                write_value(out, field, depth + 1);
            }
            out.push_str("\n}");
        }
        Value::Array(items) if depth <= SPLIT_DEPTH && items.iter().any(Value::is_object) => {
            out.push_str("[\n");
            for (i, item) in items.iter().enumerate() {
                out.push_str(if i == 0 { "  " } else { ",\n  " });
                out.push_str(&item.to_string());
            }
            out.push_str("\n ]");
        }
        other => out.push_str(&other.to_string()),
    }
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, StoreError> {
    let bytes = fs::read(path).map_err(|source| StoreError::Read { path: path.to_path_buf(), source })?;
    let malformed = |source| StoreError::Malformed { path: path.to_path_buf(), source };
    let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(malformed)?;
    if let Some(found) = value.get("schema").and_then(serde_json::Value::as_u64).filter(|&v| v != u64::from(SCHEMA)) {
        return Err(StoreError::Schema { path: path.to_path_buf(), found });
    }
    serde_json::from_value(value).map_err(malformed)
}

/// The file at `path`, if there is one, of this [`SCHEMA`]. One that is there and cannot be read is an error.
pub fn read_optional<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    match read_json(path) {
        Err(StoreError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        read => read.map(Some),
    }
}

/// The end of the name of a record's folder while its run goes on, and after it was interrupted. What lists records skips it.
pub const PARTIAL: &str = ".partial";

/// Whether a folder of this name is listed among records.
pub fn is_listed(name: &str) -> bool {
    !name.starts_with('.') && !name.ends_with(PARTIAL)
}

/// The folder of a record that is being made. No other run has it, or will have the name it gets.
#[derive(Debug)]
pub struct Unfinished {
    folder: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    /// Makes a folder in `dir` for a record that will be called `name`, or `name-2` and so on where that is taken.
    pub fn create(dir: &Path, name: &str) -> Result<Self, StoreError> {
        let fail = |path: &Path, source| StoreError::Write { path: path.to_path_buf(), source };
        fs::create_dir_all(dir).map_err(|source| fail(dir, source))?;
        let mut number = 1;
        loop {
            let name = if number == 1 { name.to_string() } else { format!("{name}-{number}") };
            let (target, folder) = (dir.join(&name), dir.join(name + PARTIAL));
            match fs::create_dir(&folder) {
                // Looked for after the folder was made: a run that finishes meanwhile has made its own before.
                Ok(()) if target.symlink_metadata().is_err() => return Ok(Self { folder, target }),
                Ok(()) => fs::remove_dir(&folder).map_err(|source| fail(&folder, source))?,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(fail(&folder, source)),
            }
            number += 1;
        }
    }

    /// Where the record is meanwhile.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What it will be called.
    pub fn name(&self) -> String {
        self.target.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
    }

    /// Gives the folder its name, now that everything is in it.
    pub fn finish(self) -> Result<PathBuf, StoreError> {
        let Self { folder, target } = self;
        fs::rename(&folder, &target).map_err(|source| StoreError::Write { path: target.clone(), source })?;
        Ok(target)
    }
}

impl Record {
    /// Reads the record in `dir`.
    pub fn read(dir: &Path) -> Result<Self, StoreError> {
        Ok(Self {
            meta: read_json::<BuildMeta>(&dir.join(BUILD_META))?,
            correctness: read_json::<Correctness>(&dir.join(CORRECTNESS))?,
            performance: read_optional::<Performance>(&dir.join(PERFORMANCE))?,
            evidence: read_json::<Evidence>(&dir.join(EVIDENCE))?,
            negative: read_optional::<Negative>(&dir.join(NEGATIVE))?,
            profile: read_optional::<Profile>(&dir.join(PROFILE))?,
            sanitizer: read_optional::<Sanitizer>(&dir.join(SANITIZER))?,
            peers: read_optional::<Peers>(&dir.join(PEERS))?,
        })
    }

    /// The record's files, name and bytes, in the order in which they are written. [`BUILD_META`] is the last: it says how
    /// much is finished, which must not be more than the others hold when a run is killed between two files.
    pub fn files(&self) -> Vec<(&'static str, Vec<u8>)> {
        let mut files = vec![(CORRECTNESS, to_json(&self.correctness)), (EVIDENCE, to_json(&self.evidence))];
        files.extend(self.performance.as_ref().map(|performance| (PERFORMANCE, to_json(performance))));
        files.extend(self.negative.as_ref().map(|negative| (NEGATIVE, to_json(negative))));
        files.extend(self.profile.as_ref().map(|profile| (PROFILE, to_json(profile))));
        files.extend(self.sanitizer.as_ref().map(|sanitizer| (SANITIZER, to_json(sanitizer))));
        files.extend(self.peers.as_ref().map(|peers| (PEERS, to_json(peers))));
        files.push((BUILD_META, to_json(&self.meta)));
        files
    }

    /// Writes every file of the record into `dir`.
    pub fn write(&self, dir: &Path) -> Result<(), StoreError> {
        self.files().iter().try_for_each(|(name, bytes)| write_atomically(&dir.join(name), bytes))
    }
}

/// Whether `dir` is a folder with a record in it.
fn is_record(dir: &Path) -> Result<bool, StoreError> {
    let path = dir.join(BUILD_META);
    match fs::metadata(&path) {
        Ok(_) => Ok(true),
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(source) => Err(StoreError::Read { path, source }),
    }
}

/// The records in `dir`, oldest first, by folder name; none if there is no such folder.
pub fn read_all(dir: &Path) -> Result<Vec<(String, Record)>, StoreError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(StoreError::Read { path: dir.to_path_buf(), source }),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|source| StoreError::Read { path: dir.to_path_buf(), source })?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_listed(&name) && is_record(&entry.path())? {
            names.push(name);
        }
    }
    names.sort();
    names.into_iter().map(|name| Record::read(&dir.join(&name)).map(|record| (name, record))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::BackendKind;
    use crate::record::{Git, Gpu, Machine, Planted, Progress, Scope, Tier, VariantSummary, WorstError};
    use crate::suppression::{Finding, Presets, SiteResult, Suppressed, Synchronisation};
    use crate::verdict::GateId;

    /// A folder of this test's own.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("attention-record-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn record() -> Record {
        let gpu = Gpu::Absent { reason: "no driver".into() };
        let summary = VariantSummary {
            stage: "stage0-scalar".into(),
            variant: "scalar-32x64".into(),
            identity: "a1".into(),
            checked: 1,
            unsupported: 0,
            failed: 0,
            gates: vec![],
            worst: Some(WorstError { max_abs: 1e-4, max_row: 2e-4, at: "small f16 full normal:0".into() }),
        };
        Record {
            meta: BuildMeta {
                schema: SCHEMA,
                started: "2026-11-20T18:30:00Z".into(),
                progress: Progress::Complete { cases: 1, seconds: 2 },
                tool_version: "0.1.0".into(),
                command: vec!["compare".into()],
                git: Git::Unknown { reason: "no checkout".into() },
                machine: Machine { name: "linux".into(), platform: "linux x86_64".into(), processors: 2, gpu },
                tier: Tier::T1,
                backend: BackendKind::Emulated,
                scope: Scope::Whole,
                device: None,
                toggles: [("CXX".to_string(), "g++".to_string())].into(),
                source_lines: true,
                gates: vec![],
                stages: vec![],
            },
            correctness: Correctness {
                schema: SCHEMA,
                variants: vec![summary],
                cases: vec![],
                omitted_cases: 0,
                planted: Planted::NotTried { reason: "not asked for".into() },
                synchronisation: Synchronisation::Tried { presets: Presets::All, suppressed: suppressed() },
            },
            performance: None,
            evidence: Evidence { schema: SCHEMA, rows: vec![], absent: vec![], counters: vec![], claims: vec![] },
            negative: None,
            profile: None,
            sanitizer: None,
            peers: None,
        }
    }

    fn suppressed() -> Suppressed {
        let site = |finding, listed: Option<&str>| SiteResult {
            stage: "stage0-scalar".into(),
            family: "scalar".into(),
            operation: "__syncthreads".into(),
            place: "stage0-scalar/kernel.cu:168".into(),
            purpose: "K and V may be overwritten.".into(),
            finding,
            listed: listed.map(String::from),
        };
        let caught = Finding::Caught { gate: GateId::H1, what: "race".into(), at: "scalar-32x64".into() };
        let sites = vec![site(caught, None), site(Finding::Survived { cases: 4 }, Some("the next one is enough"))];
        Suppressed { sites, errors: vec!["a useless entry".into()], ..Suppressed::default() }
    }

    #[test]
    fn a_record_from_before_sites_were_left_out_is_read() {
        let folder = Folder::new("older");
        record().write(&folder.0).unwrap();
        let path = folder.0.join(CORRECTNESS);
        let mut correctness: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        correctness.as_object_mut().unwrap().remove("synchronisation").unwrap();
        fs::write(&path, correctness.to_string()).unwrap();
        let read = Record::read(&folder.0).unwrap();
        assert_eq!(read.correctness.synchronisation, Synchronisation::default());
        assert_eq!(read.correctness.synchronisation.wrong(), [""; 0]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let folder = Folder::new("round-trip");
        record().write(&folder.0).unwrap();
        assert_eq!(Record::read(&folder.0).unwrap(), record());
        let mut names: Vec<_> = fs::read_dir(&folder.0).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(
            names,
            [BUILD_META, CORRECTNESS, EVIDENCE],
            "what was not measured has no file, and nothing temporary is left"
        );
    }

    #[test]
    fn a_write_that_ends_halfway_does_not_say_that_more_is_finished() {
        let folder = Folder::new("halfway");
        record().write(&folder.0).unwrap();
        let before = fs::read(folder.0.join(BUILD_META)).unwrap();
        let mut grown = record();
        grown.meta.progress = Progress::Partial { finished: 99, planned: 100 };
        // The last file before the one that says so cannot be written.
        fs::remove_file(folder.0.join(EVIDENCE)).unwrap();
        fs::create_dir(folder.0.join(EVIDENCE)).unwrap();
        assert!(matches!(grown.write(&folder.0), Err(StoreError::Write { .. })));
        assert_eq!(fs::read(folder.0.join(BUILD_META)).unwrap(), before);
    }

    #[test]
    fn an_error_that_is_no_number_survives() {
        let folder = Folder::new("nan");
        let mut record = record();
        record.correctness.variants[0].worst.as_mut().unwrap().max_abs = f64::NAN;
        record.write(&folder.0).unwrap();
        let read = Record::read(&folder.0).unwrap();
        assert!(read.correctness.variants[0].worst.as_ref().unwrap().max_abs.is_nan());
    }

    #[test]
    fn other_versions_and_other_files_are_refused() {
        let folder = Folder::new("refused");
        let failed = || Record::read(&folder.0).unwrap_err();
        assert!(matches!(failed(), StoreError::Read { .. }));
        let mut newer = record();
        newer.meta.schema = SCHEMA + 1;
        newer.write(&folder.0).unwrap();
        assert!(matches!(failed(), StoreError::Schema { found: 2, .. }));
        record().write(&folder.0).unwrap();
        fs::write(folder.0.join(EVIDENCE), "{\"schema\": 1").unwrap();
        assert!(matches!(failed(), StoreError::Malformed { .. }));
    }

    #[test]
    fn a_part_that_cannot_be_read_is_not_absent() {
        let folder = Folder::new("unreadable");
        let dir = folder.0.join("record");
        record().write(&dir).unwrap();
        for part in [PERFORMANCE, NEGATIVE, PROFILE, SANITIZER, PEERS, BUILD_META] {
            let _ = fs::remove_file(dir.join(part));
            fs::create_dir(dir.join(part)).unwrap();
            let one = Record::read(&dir).unwrap_err();
            let all = read_all(&folder.0).unwrap_err();
            for error in [one, all] {
                assert!(matches!(&error, StoreError::Read { path, .. } if path.ends_with(part)), "{part}: {error}");
            }
            fs::remove_dir(dir.join(part)).unwrap();
        }
    }

    #[test]
    fn records_of_before_evidence_was_counted_are_read() {
        let folder = Folder::new("before-counters");
        record().write(&folder.0).unwrap();
        let [evidence, negative] = [EVIDENCE, NEGATIVE].map(|name| folder.0.join(name));
        fs::write(evidence, r#"{"schema": 1, "rows": [], "absent": []}"#).unwrap();
        let claim = r#"{"gate": "L1", "stage": "s", "family": "f", "identity": "i", "evidence": "e"}"#;
        fs::write(negative, format!(r#"{{"schema": 1, "reason": "r", "gpu": null, "claims": [{claim}]}}"#)).unwrap();
        let read = Record::read(&folder.0).unwrap();
        assert_eq!((read.evidence.counters, read.evidence.claims), (vec![], vec![]));
        assert_eq!(read.negative.unwrap().claims[0].what, "");
        let claim = r#"{"family": "f", "base_stage": "s", "base_family": "b", "at_least": 1.1}"#;
        let claim: crate::record::ClaimTerms = serde_json::from_str(claim).unwrap();
        assert_eq!((claim.dtype, claim.to_string().as_str()), (crate::problem::Dtype::F16, "f >= 1.10x over s b"));
    }

    #[test]
    fn a_file_is_replaced_whole_or_not_at_all() {
        let folder = Folder::new("atomic");
        let path = folder.0.join("COMPARE.md");
        write_atomically(&path, b"old").unwrap();
        write_atomically(&path, b"new").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(matches!(write_atomically(&folder.0, b"x"), Err(StoreError::Write { .. })), "a folder is in the way");
        assert!(matches!(write_atomically(&path.join("below"), b"x"), Err(StoreError::Write { .. })));
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_devices_and_pipes_written_in_place() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = Folder::new("in-place");
        let [file, link, pipe] = ["file", "link", "pipe"].map(|name| folder.0.join(name));
        symlink("file", &link).unwrap();
        for text in [b"created", b"changed"] {
            write_atomically(&link, text).unwrap();
            assert_eq!(fs::read(&file).unwrap(), text);
            assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "the link is still one");
        }
        symlink("loop", folder.0.join("loop")).unwrap();
        assert!(matches!(write_atomically(&folder.0.join("loop"), b"x"), Err(StoreError::Write { .. })));

        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let reader = std::thread::spawn({
            let pipe = pipe.clone();
            move || fs::read(pipe).unwrap()
        });
        write_atomically(&pipe, b"through").unwrap();
        assert_eq!(reader.join().unwrap(), b"through");
        assert!(fs::metadata(&pipe).unwrap().file_type().is_fifo());

        // A link keeps the machine's own devices out of it, should this test ever fail.
        for (device, is_ok) in [("/dev/null", true), ("/dev/full", false)] {
            let link = folder.0.join(device.rsplit('/').next().unwrap());
            symlink(device, &link).unwrap();
            assert_eq!(write_atomically(&link, b"x").is_ok(), is_ok, "{device}");
            assert!(fs::metadata(device).unwrap().file_type().is_char_device(), "{device}");
        }
    }

    #[test]
    fn runs_of_one_moment_have_folders_of_their_own() {
        let folder = Folder::new("moment");
        let runs: Vec<Unfinished> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..4).map(|_| scope.spawn(|| Unfinished::create(&folder.0, "run").unwrap())).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        for run in runs {
            record().write(run.folder()).unwrap();
            let (name, path) = (run.name(), run.finish().unwrap());
            assert_eq!(path, folder.0.join(name));
        }
        let interrupted = Unfinished::create(&folder.0, "run").unwrap();
        record().write(interrupted.folder()).unwrap();
        assert_eq!(interrupted.folder(), folder.0.join("run-5.partial"));
        let names: Vec<String> = read_all(&folder.0).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["run", "run-2", "run-3", "run-4"]);
        assert_eq!(Record::read(interrupted.folder()).unwrap(), record(), "by its path it is read");
    }

    #[test]
    fn records_are_listed_oldest_first_without_leftovers() {
        let folder = Folder::new("list");
        for name in
            ["20261121T000000Z-b", "20261120T000000Z-a", ".20261122T000000Z-c.1.tmp", "20261123T000000Z-d.partial"]
        {
            record().write(&folder.0.join(name)).unwrap();
        }
        fs::create_dir(folder.0.join("not-a-record")).unwrap();
        let names: Vec<String> = read_all(&folder.0).unwrap().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["20261120T000000Z-a", "20261121T000000Z-b"]);
        assert_eq!(read_all(&folder.0.join("nowhere")).unwrap(), []);
    }
}
