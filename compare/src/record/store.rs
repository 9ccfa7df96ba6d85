//! The folder of a record: `meta.json` and `rows.jsonl`, one row per line, sorted, so that the same rows give the same bytes. The
//! run's own folder also has `cases.jsonl`, passing cases as rows, and `samples.jsonl`, which are never committed.

use super::error::StoreError;
use super::files::{is_listed, read, write_atomically};
use super::meta::{Meta, Progress, Scope, by_id};
use super::row::{On, Row, Source, Subject};
use common::metric::Metric;
use common::problem::{Dtype, Shape};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::Path;

/// The version of the format; any other is refused. Version 1 had a file for each kind of figure.
pub const SCHEMA: u32 = 2;

pub const META: &str = "meta.json";
pub const ROWS: &str = "rows.jsonl";
pub const CASES: &str = "cases.jsonl";
pub const SAMPLES: &str = "samples.jsonl";

/// The first file of a record of version 1.
const OLD_META: &str = "build_meta.json";

/// Everything that one run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub meta: Meta,
    /// What is committed.
    pub rows: Vec<Row>,
    /// Passing cases; empty in a committed record.
    pub cases: Vec<Row>,
    /// Raw samples; empty in a committed record.
    pub samples: Vec<Samples>,
}

/// Device times of one row, in the order taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Samples {
    pub subject: Subject,
    pub on: On,
    pub by: Source,
    /// Nanoseconds per launch.
    pub device_ns: Vec<f64>,
}

impl Samples {
    /// Identifies the samples within a record.
    pub fn key(&self) -> (&Subject, &On, Source) {
        (&self.subject, &self.on, self.by)
    }
}

impl Record {
    pub fn new(meta: Meta) -> Self {
        Self {
            meta,
            rows: vec![],
            cases: vec![],
            samples: vec![],
        }
    }

    /// Adds a row, rounded as records are, in place of one with the same key.
    pub fn append(&mut self, mut row: Row) {
        for (metric, figure) in &mut row.figures {
            *figure = figure.rounded(*metric);
        }
        match self.rows.iter_mut().find(|other| other.key() == row.key()) {
            Some(other) => *other = row,
            None => self.rows.push(row),
        }
    }

    /// Keeps the raw samples of a row, in place of earlier ones.
    pub fn keep(&mut self, samples: Samples) {
        self.samples.retain(|other| other.key() != samples.key());
        self.samples.push(samples);
    }

    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        rows.into_iter().for_each(|row| self.append(row));
    }

    /// Notes the extents behind a shape's name.
    pub fn names(&mut self, name: &str, shape: Shape) {
        if name != shape.to_string() {
            self.meta.shapes.insert(name.to_string(), shape);
        }
    }

    pub fn stage(&self, id: &str) -> Option<&super::StageMeta> {
        by_id(&self.meta.stages, id)
    }

    /// The identity of a stage's kernel.
    pub fn identity(&self, stage: &str) -> Option<&str> {
        self.stage(stage).map(|stage| stage.identity.as_str())
    }

    /// The row of a subject at a place, from one source.
    pub fn row(&self, subject: &Subject, on: &On, by: Source) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.key() == (subject, on, by, None))
    }

    /// The rows of a subject's instances for this dtype and head size, with their architectures.
    pub fn instances<'a>(
        &'a self,
        subject: &Subject,
        by: Source,
        dtype: Dtype,
        head_dim: usize,
    ) -> impl Iterator<Item = (Option<&'a str>, &'a Row)> {
        let rows = self.of(subject, by);
        rows.filter_map(move |row| match &row.on {
            On::Instance {
                dtype: of,
                head_dim: dim,
                arch,
            } if (*of, *dim) == (dtype, head_dim) => Some((arch.as_deref(), row)),
            _ => None,
        })
    }

    /// The row of what `kernel.cu` declares for a compiled instance.
    pub fn declared(&self, compiled: &Row) -> Option<&Row> {
        let mut on = compiled.on.clone();
        if let On::Instance { arch, .. } = &mut on {
            *arch = None;
        }
        self.row(&compiled.subject, &on, Source::Kernel)
    }

    /// The row of two interleaved arms.
    pub fn pair(&self, new: &Subject, base: &Subject, on: &On, by: Source) -> Option<&Row> {
        self.rows
            .iter()
            .find(|row| row.key() == (new, on, by, Some(base)))
    }

    /// Whether it measured this version of the stage's kernel, so that its figures are not STALE.
    pub fn is_of(&self, stage: &super::StageMeta) -> bool {
        self.identity(&stage.id) == Some(&stage.identity)
    }

    /// Whether both have the same source of the subject's kernel, or neither has its stage.
    pub fn has_source_of(&self, other: &Record, subject: &Subject) -> bool {
        self.identity(subject.stage()) == other.identity(subject.stage())
    }

    /// Whether both have the same kernel of the subject, by source or by machine code, or neither has its stage.
    pub fn has_kernel_of(&self, other: &Record, subject: &Subject) -> bool {
        let has_code_of = || {
            let code = self.machine_code(subject);
            !code.is_empty() && code == other.machine_code(subject)
        };
        self.has_source_of(other, subject) || has_code_of()
    }

    /// The hash of the machine code of each instance that was built.
    fn machine_code(&self, subject: &Subject) -> BTreeMap<String, &str> {
        self.of(subject, Source::Ptxas)
            .filter_map(|row| Some((row.on.to_string(), row.sass.as_deref()?)))
            .collect()
    }

    /// Whether only stages were selected, so that it covers those completely.
    pub fn is_of_stages(&self) -> bool {
        let Scope::Selected { flags } = &self.meta.scope else {
            return false;
        };
        let is_of_stages = |flag: &String| flag.starts_with("--stages ") || flag == Scope::AND;
        flags.iter().all(is_of_stages)
    }

    /// This record of some stages, completed with the other stages of `older`, which is of the same GPU and backend.
    pub fn on_top_of(mut self, older: &Record) -> Self {
        let stages: BTreeSet<String> = (self.rows.iter())
            .filter(|row| row.on == On::All)
            .map(|row| row.subject.stage().to_string())
            .collect();
        let (ours, theirs) = (&mut self.meta, &older.meta);
        for stage in &mut ours.stages {
            if !stages.contains(&stage.id)
                && let Some(then) = older.stage(&stage.id)
            {
                *stage = then.clone();
            }
        }
        let left_out = theirs.left_out.iter();
        let left_out = left_out.filter(|scope| !stages.contains(&scope.stage));
        ours.left_out.extend(left_out.cloned());
        for (name, shape) in &theirs.shapes {
            ours.shapes.entry(name.clone()).or_insert(*shape);
        }
        (ours.scope, ours.tier) = (theirs.scope.clone(), theirs.tier.min(ours.tier));
        let declared: BTreeSet<&str> = (ours.stages.iter().chain(&theirs.stages))
            .map(|stage| stage.id.as_str())
            .collect();
        // Rows of no stage, such as those of peers or the self-test, come from the newest record that has their source.
        let sources: BTreeSet<Source> = (self.rows.iter())
            .filter(|row| !declared.contains(row.subject.stage()))
            .map(|row| row.by)
            .collect();
        let is_ours = |subject: &Subject, by: Source| match declared.contains(subject.stage()) {
            true => stages.contains(subject.stage()),
            false => sources.contains(&by),
        };
        self.rows.retain(|row| is_ours(&row.subject, row.by));
        self.samples.retain(|of| is_ours(&of.subject, of.by));
        let rows = older.rows.iter();
        self.rows
            .extend(rows.filter(|row| !is_ours(&row.subject, row.by)).cloned());
        let samples = older.samples.iter();
        self.samples
            .extend(samples.filter(|of| !is_ours(&of.subject, of.by)).cloned());
        self
    }

    /// The rows of all cases, failing ones first.
    pub fn all_cases(&self) -> impl Iterator<Item = &Row> {
        let is_case = |row: &&Row| matches!(row.on, On::Case(..));
        self.rows.iter().filter(is_case).chain(&self.cases)
    }

    /// Notes that the run goes on or was interrupted, and how far it got.
    pub fn goes_on(&mut self, planned: usize) {
        let finished = self.all_cases().count();
        self.meta.progress = Progress::Partial { finished, planned };
    }

    /// Notes that the run is complete.
    pub fn has_ended(&mut self, seconds: u64) {
        let cases = self.all_cases().count();
        self.meta.progress = Progress::Complete { cases, seconds };
    }

    /// Its variants, in the order of the ladder.
    pub fn variants(&self) -> impl Iterator<Item = Subject> {
        self.meta.stages.iter().flat_map(super::StageMeta::subjects)
    }

    pub fn by(&self, source: Source) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.by == source)
    }

    /// The raw samples of a row.
    pub fn samples(&self, subject: &Subject, on: &On, by: Source) -> Option<&Samples> {
        self.samples.iter().find(|of| of.key() == (subject, on, by))
    }

    /// The rows of a subject from one source.
    pub fn of<'a>(&'a self, subject: &Subject, by: Source) -> impl Iterator<Item = &'a Row> {
        self.by(by).filter(move |row| row.subject == *subject)
    }

    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        let meta = read_meta(folder)?;
        let rows: Vec<Row> = lines(&folder.join(ROWS), row)?;
        let mut keys: Vec<_> = rows.iter().map(Row::key).collect();
        keys.sort();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            let row = format!("{} on {} by {}", pair[0].0, pair[0].1, pair[0].2);
            return Err(StoreError::Twice {
                path: folder.join(ROWS),
                row,
            });
        }
        if rows.len() < meta.rows {
            return Err(StoreError::Lost {
                path: folder.join(ROWS),
                found: rows.len(),
                written: meta.rows,
            });
        }
        let meta = Meta { rows: 0, ..meta };
        Ok(Self {
            meta,
            rows,
            cases: lines(&folder.join(CASES), row)?,
            samples: lines(&folder.join(SAMPLES), |line| serde_json::from_slice(line))?,
        })
    }

    /// The files that are committed: names and bytes. The metadata comes last: if a run is killed between two files, it must not
    /// count more than the rows hold.
    pub fn committed(&self) -> [(&'static str, Vec<u8>); 2] {
        let mut rows: Vec<&Row> = self.rows.iter().collect();
        rows.sort_by(|a, b| a.key().cmp(&b.key()));
        let meta = Meta {
            rows: rows.len(),
            ..self.meta.clone()
        };
        let mut meta =
            serde_json::to_string_pretty(&meta).expect("meta data has no map keys but strings");
        meta.push('\n');
        [(ROWS, to_lines(rows)), (META, meta.into_bytes())]
    }

    /// Writes all files.
    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let write = |name: &str, bytes: &[u8]| write_atomically(&folder.join(name), bytes);
        if !self.samples.is_empty() {
            write(SAMPLES, &to_lines(&self.samples))?;
        }
        let [(rows, of_rows), (meta, of_meta)] = self.committed();
        // If there are fewer rows than before, the file that counts them goes first, so that a kill between the two leaves none missing.
        if read_meta(folder).is_ok_and(|before| before.rows > self.rows.len()) {
            write(meta, &of_meta)?;
        }
        write(rows, &of_rows)?;
        // An existing file is rewritten even if no case passes any more.
        if !self.cases.is_empty() || folder.join(CASES).is_file() {
            write(CASES, &to_lines(&self.cases))?;
        }
        write(meta, &of_meta)
    }
}

fn to_lines<T: Serialize>(items: impl IntoIterator<Item = T>) -> Vec<u8> {
    let mut bytes = Vec::new();
    for item in items {
        serde_json::to_writer(&mut bytes, &item).expect("rows have no map keys but strings");
        bytes.push(b'\n');
    }
    bytes
}

/// The parsed lines of a file; none if it does not exist.
fn lines<T>(
    path: &Path,
    parse: impl Fn(&[u8]) -> Result<T, serde_json::Error>,
) -> Result<Vec<T>, StoreError> {
    let bytes = read(path)?.unwrap_or_default();
    let lines = bytes.split(|byte| *byte == b'\n').enumerate();
    let parse = |(index, line): (usize, &[u8])| {
        parse(line).map_err(|source| StoreError::Malformed {
            path: path.to_path_buf(),
            line: index + 1,
            source,
        })
    };
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(parse)
        .collect()
}

/// Parses a row. Figures whose metric the registry no longer has are kept under their old names.
fn row(line: &[u8]) -> Result<Row, serde_json::Error> {
    serde_json::from_slice(line).or_else(|error| {
        let mut value: Value = serde_json::from_slice(line)?;
        let figures = value
            .get_mut("figures")
            .and_then(Value::as_object_mut)
            .map(std::mem::take);
        let (known, retired): (Map<String, Value>, Map<String, Value>) = figures
            .unwrap_or_default()
            .into_iter()
            .partition(|(name, _)| is_metric(name));
        if retired.is_empty() {
            return Err(error);
        }
        value["figures"] = known.into();
        match value.get_mut("retired").and_then(Value::as_object_mut) {
            Some(before) => before.extend(retired),
            None => value["retired"] = retired.into(),
        }
        serde_json::from_value(value)
    })
}

fn is_metric(name: &str) -> bool {
    serde_json::from_value::<Metric>(name.into()).is_ok()
}

/// Sets aside claims whose metric the registry no longer has.
fn retire_claims(meta: &mut Value) {
    for stage in meta
        .get_mut("stages")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let claims = stage.get_mut("claims").and_then(Value::as_array_mut);
        let is_retired = |claim: &mut Value| {
            claim["metric"]
                .as_str()
                .is_some_and(|name| !is_metric(name))
        };
        let retired: Vec<Value> = claims
            .into_iter()
            .flat_map(|claims| claims.extract_if(.., is_retired))
            .collect();
        match stage.get_mut("retired").and_then(Value::as_array_mut) {
            _ if retired.is_empty() => {}
            Some(before) => before.extend(retired),
            None => stage["retired"] = retired.into(),
        }
    }
}

fn read_meta(folder: &Path) -> Result<Meta, StoreError> {
    let path = folder.join(META);
    let Some(text) = read(&path)? else {
        return Err(match read(&folder.join(OLD_META))? {
            Some(_) => StoreError::Schema {
                path: folder.to_path_buf(),
                found: Some(1),
                reads: SCHEMA,
            },
            None => StoreError::NoRecord {
                path: folder.to_path_buf(),
            },
        });
    };
    let malformed = StoreError::malformed(&path);
    let mut value: Value = serde_json::from_slice(&text).map_err(&malformed)?;
    retire_claims(&mut value);
    match value["schema"].as_u64() {
        Some(found) if found == u64::from(SCHEMA) => {
            serde_json::from_value(value).map_err(malformed)
        }
        found => Err(StoreError::Schema {
            path: path.clone(),
            found,
            reads: SCHEMA,
        }),
    }
}

/// Whether `folder` holds a record, of whatever format.
pub fn is_record(folder: &Path) -> bool {
    [META, OLD_META]
        .iter()
        .any(|file| folder.join(file).is_file())
}

/// The finished records in `folder`, oldest first by folder name; none if there is no such folder.
pub fn read_all(folder: &Path) -> Result<Vec<(String, Record)>, StoreError> {
    read_each(folder)?
        .into_iter()
        .map(|(name, record)| record.map(|record| (name, record)))
        .collect()
}

/// The name of a record's folder, and the record or why it cannot be read.
pub type Found = (String, Result<Record, StoreError>);

/// The same, with the reason for each that cannot be read.
pub fn read_each(folder: &Path) -> Result<Vec<Found>, StoreError> {
    let read = |name: String| {
        let record = Record::read(&folder.join(&name));
        (name, record)
    };
    Ok(names(folder)?.into_iter().map(read).collect())
}

/// The folder names of these records.
pub fn names(folder: &Path) -> Result<Vec<String>, StoreError> {
    let fail = StoreError::read(folder);
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(vec![]),
        entries => entries.map_err(&fail)?,
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(&fail)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if is_listed(&name) && is_record(&entry.path()) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests;
