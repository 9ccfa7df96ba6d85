//! What is known of the kernels: rows by key, with the sessions that measured them. `results/<gpu>/` has one table per GPU model,
//! `results/build/` the one of what depends on sources and compilers alone. `accept` merges sessions into them; git is their history.

use super::digest::{Texts, of_choice, verify_choice};
use super::draws;
use super::error::StoreError;
use super::files::{entries, is_run, lines, read, to_lines, write_atomically};
use super::names::{DIGESTS, DRAWS, FILES, ROWS, SESSIONS};
use super::row::{Key, Place, Row, Source, Subject};
use super::session::{Session, StageMeta, by_id};
use common::metric::Metric;
use common::problem::Dtype;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub const BUILD: &str = "build";

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    pub(super) rows: BTreeMap<Key, Row>,
    pub sessions: BTreeMap<String, Session>,
}

impl Table {
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values()
    }

    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.rows.keys()
    }

    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub fn get(&self, key: &Key) -> Option<&Row> {
        self.rows.get(key)
    }

    /// Adds a row, rounded as tables are, in place of one with the same key.
    pub fn append(&mut self, row: Row) {
        self.rows.insert(row.key(), row.rounded());
    }

    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        rows.into_iter().for_each(|row| self.append(row));
    }

    pub fn retain(&mut self, stays: impl Fn(&Row) -> bool) {
        self.rows.retain(|_, row| stays(row));
    }

    pub fn row(&self, subject: &Subject, place: &Place, source: Source) -> Option<&Row> {
        self.arms(subject, place, source, None)
    }

    pub fn pair(
        &self,
        new: &Subject,
        base: &Subject,
        place: &Place,
        source: Source,
    ) -> Option<&Row> {
        self.arms(new, place, source, Some(base))
    }

    fn arms(
        &self,
        subject: &Subject,
        place: &Place,
        source: Source,
        paired_with: Option<&Subject>,
    ) -> Option<&Row> {
        self.get(&Key {
            subject: subject.clone(),
            place: place.clone(),
            source,
            paired_with: paired_with.cloned(),
        })
    }

    pub fn rows_by(&self, source: Source) -> impl Iterator<Item = &Row> {
        self.rows().filter(move |row| row.source == source)
    }

    pub fn about<'a>(&'a self, subject: &Subject) -> impl Iterator<Item = &'a Row> + use<'a> {
        let subject = subject.clone();
        let first = Key {
            subject: subject.clone(),
            place: Place::All,
            source: Source::Kernel,
            paired_with: None,
        };
        let rows = self.rows.range(first..).map(|(_, row)| row);
        rows.take_while(move |row| row.subject == subject)
    }

    pub fn of<'a>(
        &'a self,
        subject: &Subject,
        source: Source,
    ) -> impl Iterator<Item = &'a Row> + use<'a> {
        self.about(subject).filter(move |row| row.source == source)
    }

    /// The rows of a subject's instances for this dtype and head size, with their architectures.
    pub fn instances<'a>(
        &'a self,
        subject: &Subject,
        source: Source,
        dtype: Dtype,
        head_dim: usize,
    ) -> impl Iterator<Item = (Option<&'a str>, &'a Row)> + use<'a> {
        let rows = self.of(subject, source);
        rows.filter_map(move |row| match &row.place {
            Place::Instance {
                dtype: other,
                head_dim: dim,
                arch,
            } if (*other, *dim) == (dtype, head_dim) => Some((arch.as_deref(), row)),
            _ => None,
        })
    }

    pub fn session(&self, row: &Row) -> Option<&Session> {
        self.sessions.get(&row.session)
    }

    /// The sessions that measured on the GPU of the table. What the compiler says may be of a session on another GPU.
    pub fn sessions_on_gpu(&self) -> impl Iterator<Item = &Session> {
        let rows = self.rows_by(Source::Gpu);
        rows.filter_map(|row| self.session(row))
    }

    pub fn newest_on_gpu(&self) -> Option<&Session> {
        self.sessions_on_gpu().max_by_key(|session| &session.name)
    }

    /// The newest session on the GPU of the table, else the newest one.
    pub fn newest(&self) -> Option<&Session> {
        let newest = || self.sessions.values().next_back();
        self.newest_on_gpu().or_else(newest)
    }

    /// The architecture of the machine code that the GPU of the table runs, else that of its newest session on any GPU: `sm_90a`.
    pub fn compiled_arch(&self) -> Option<&str> {
        let mut sessions = self.sessions.values().rev();
        let on_gpu = self.newest_on_gpu().and_then(Session::compiled_arch);
        on_gpu.or_else(|| sessions.find_map(Session::compiled_arch))
    }

    /// Adds what a session measured. On one problem the peers, and the stages that a session timed against them, are of that session; so
    /// is a self-test of one stage, and so is a random problem. What was read of the same machine code stays where the session did not read it.
    /// What the compiler says again keeps its session, so that a session adds what it has found out.
    pub fn merge(&mut self, session: &Session, measured: &Table) {
        let against_peers = |stage: &str, place: &Place| {
            let mut rows = measured
                .rows_by(Source::Peers)
                .filter(|row| row.place == *place);
            let is_kernel = by_id(&session.stages, stage).is_some();
            rows.any(|row| !is_kernel || row.subject.stage() == stage)
        };
        let tested: BTreeSet<&str> = (measured.rows_by(Source::SelfTest))
            .map(|row| row.subject.stage())
            .collect();
        let drawn: BTreeSet<&Place> = measured
            .rows_by(Source::Draw)
            .map(|row| &row.place)
            .collect();
        self.rows.retain(|key, _| match key.source {
            Source::Draw => !drawn.contains(&key.place),
            Source::Peers => !against_peers(key.subject.stage(), &key.place),
            Source::SelfTest => !tested.contains(key.subject.stage()),
            _ => true,
        });
        for row in measured.rows() {
            let mut row = row.clone();
            let before = self.get(&row.key());
            if let Some(before) = before.filter(|_| row.source == Source::Ptxas)
                && row.code.is_some()
                && before.code == row.code
            {
                row.complete(before);
            }
            let is_said_again = |before: &Row| {
                let session = before.session.clone();
                *before
                    == Row {
                        session,
                        ..row.clone()
                    }
            };
            if row.source == Source::Ptxas && before.is_some_and(is_said_again) {
                continue;
            }
            self.rows.insert(row.key(), row);
        }
        let name = session.name.clone();
        self.sessions.insert(name, session.clone());
    }

    /// Whether it has verdicts on the same kernel over more cases than the row, which passed.
    pub fn covers(&self, row: &Row) -> bool {
        let cases = |row: &Row| row.value(Metric::Cases);
        let has_more = |before: &Row| before.identity == row.identity && cases(before) > cases(row);
        row.place == Place::All
            && row.failure().is_none()
            && self.get(&row.key()).is_some_and(has_more)
    }

    /// Drops what `stages` no longer declare, and sessions that no row names.
    pub fn prune(&mut self, stages: &[StageMeta]) {
        self.rows.retain(|key, row| {
            let is_declared = |stage: &StageMeta, name: &str| {
                let is_family = matches!(key.source, Source::SelfTest | Source::Claim);
                name.is_empty()
                    || stage.variant(name).is_some()
                    || is_family && stage.family(name).next().is_some()
            };
            let subjects = std::iter::once(&key.subject).chain(&key.paired_with);
            // Peers and the harness are of no stage.
            let kernels: Vec<bool> = subjects
                .filter_map(|subject| {
                    let stage = by_id(stages, subject.stage())?;
                    Some(is_declared(stage, subject.name()))
                })
                .collect();
            // A stage that is gone was identified as well.
            let identified = row.identity.iter().flat_map(|both| both.split('+')).count();
            identified <= kernels.len() && kernels.into_iter().all(|is_declared| is_declared)
        });
        self.drop_sessions();
    }

    fn drop_sessions(&mut self) {
        let named: BTreeSet<&String> = self.rows.values().map(|row| &row.session).collect();
        self.sessions.retain(|name, _| named.contains(name));
    }

    /// Reads the table that a folder's files are, edited or not.
    pub fn parsed(texts: &Texts) -> Result<Self, StoreError> {
        let mut table = Self::default();
        for file in FILES {
            table.parse(file, texts.file(file), &texts.path(file))?;
        }
        Ok(table)
    }

    /// Refuses times of another GPU than the newest session's, or of a session that is not there.
    fn of_one_gpu(&self, folder: &Path) -> Result<(), StoreError> {
        let gpu = |session: Option<&Session>| {
            let gpu = session.and_then(Session::gpu);
            gpu.unwrap_or("an unknown GPU").to_string()
        };
        let newest = gpu(self.newest_on_gpu());
        let timed = self.rows().filter(|row| row.has(Metric::P50));
        let mut timed = timed.map(|row| (row, gpu(self.session(row))));
        match timed.find(|(_, gpu)| *gpu != newest) {
            None => Ok(()),
            Some((row, gpu)) => Err(StoreError::Unlike {
                path: folder.to_path_buf(),
                row: row.key().to_string(),
                gpu,
                newest,
            }),
        }
    }

    pub(super) fn read_file(&mut self, path: &Path, file: &str) -> Result<(), StoreError> {
        let bytes = read(path)?.unwrap_or_default();
        self.parse(file, &bytes, path)
    }

    /// Reads the text of one of its [`FILES`]; `path` is for messages.
    pub fn parse(&mut self, file: &str, text: &[u8], path: &Path) -> Result<(), StoreError> {
        let rows = match file {
            ROWS => lines(text, path, |row| self.too_fast(row))?,
            DRAWS => {
                let wrong = |line: &draws::Rows| line.0.iter().find_map(|row| self.too_fast(row));
                let lines = lines(text, path, wrong)?.into_iter();
                lines.flat_map(|draws::Rows(rows)| rows).collect()
            }
            _ => {
                let sessions = lines::<Session>(text, path, |_| None)?.into_iter();
                (self.sessions).extend(sessions.map(|session| (session.name.clone(), session)));
                vec![]
            }
        };
        for row in rows {
            let key = row.key();
            if self.rows.insert(key.clone(), row).is_some() {
                return Err(StoreError::Twice {
                    path: path.to_path_buf(),
                    row: key.to_string(),
                });
            }
        }
        Ok(())
    }

    fn too_fast(&self, row: &Row) -> Option<String> {
        row.too_fast(self.session(row)?.gpu()?)
    }

    /// Its files but the digests: names and bytes. The same rows give the same bytes.
    pub fn files(&self) -> [(&'static str, Vec<u8>); 3] {
        let (draws, rows) = draws::split(self.rows());
        let sessions = self.sessions.values().map(Session::committed);
        [
            (ROWS, to_lines(rows)),
            (DRAWS, to_lines(draws)),
            (SESSIONS, to_lines(sessions)),
        ]
    }

    /// The rows that `is_kept`, with their sessions.
    pub fn part(&self, is_kept: impl Fn(&Row) -> bool) -> Self {
        let mut part = self.clone();
        part.retain(is_kept);
        part.drop_sessions();
        part
    }

    /// `other` has no row of the same key.
    pub fn join(&mut self, other: Table) {
        self.rows.extend(other.rows);
        self.sessions.extend(other.sessions);
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Results {
    pub build: Table,
    /// By the name of their folder: `nvidia-h200`.
    pub gpus: BTreeMap<String, Table>,
    /// The digests of the choices that were fitted to the tables, by the same names.
    choices: BTreeMap<String, String>,
}

impl Results {
    /// Reads the tables below `folder`, each of which is as `accept` wrote it; none if there is no such folder.
    pub fn read(folder: &Path) -> Result<Self, StoreError> {
        let mut results = Self::default();
        for path in entries(folder)? {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            let is_table = [ROWS, DIGESTS].iter().any(|file| path.join(file).is_file());
            if is_table && !is_run(&path) && !name.starts_with('.') {
                let texts = Texts::read(&path)?;
                results.add(&name, &texts)?;
                results.verify(&name, &texts)?;
                results.table_mut(&name).of_one_gpu(&path)?;
            }
        }
        Ok(results)
    }

    /// Reads a folder's table.
    pub fn add(&mut self, folder: &str, texts: &Texts) -> Result<(), StoreError> {
        *self.table_mut(folder) = Table::parsed(texts)?;
        Ok(())
    }

    /// Refuses a folder whose files are not as `accept` wrote them.
    pub fn verify(&mut self, folder: &str, texts: &Texts) -> Result<(), StoreError> {
        let choice = texts.verify()?;
        self.choices
            .extend(choice.map(|choice| (folder.to_string(), choice)));
        Ok(())
    }

    /// Keeps the digest of the choice that was fitted to a table.
    pub fn choose(&mut self, gpu: &str, text: &str) {
        self.choices
            .insert(gpu.to_string(), of_choice(text.as_bytes()));
    }

    /// Refuses a choice in `folder` that is not what was fitted to its table.
    pub fn verify_choices(&self, folder: &Path) -> Result<(), StoreError> {
        self.gpus.keys().try_for_each(|gpu| {
            let path = folder.join(format!("{gpu}.json"));
            let text = read(&path)?;
            let written = self.choices.get(gpu).map(String::as_str);
            verify_choice(&path, text.as_deref(), written)
        })
    }

    /// Whether both have the same rows of the same sessions, but for random problems, which are not compared.
    pub fn has_rows_of(&self, other: &Self) -> bool {
        let compared = |results: &Self| {
            let tables = results
                .gpus
                .iter()
                .map(|(name, table)| (name.clone(), table));
            let tables = tables.chain([(BUILD.to_string(), &results.build)]);
            let compared = tables.map(|(name, table)| {
                let mut table = table.clone();
                table.retain(|row| row.source != Source::Draw);
                (name, table)
            });
            compared.collect::<Vec<_>>()
        };
        compared(self) == compared(other)
    }

    pub fn table_mut(&mut self, folder: &str) -> &mut Table {
        match folder {
            BUILD => &mut self.build,
            gpu => self.gpus.entry(gpu.to_string()).or_default(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.build.is_empty() && self.gpus.is_empty()
    }

    /// Everything that is known of one GPU model's figures, and of the build.
    pub fn of_gpu(&self, name: &str) -> Table {
        let mut table = self.build.clone();
        if let Some(gpu) = self.gpus.get(name) {
            table.join(gpu.clone());
        }
        table
    }

    /// Splits a table of one GPU model into the part of the build and that of the GPU, and keeps both.
    pub fn put(&mut self, gpu: Option<&str>, table: &Table) {
        self.build = table.part(|row| row.source.is_of_build());
        if let Some(gpu) = gpu {
            let measured = table.part(|row| !row.source.is_of_build());
            self.gpus.insert(gpu.to_string(), measured);
        }
    }

    /// The files of all tables: paths below `results/`, and bytes.
    pub fn files(&self) -> Vec<(String, Vec<u8>)> {
        let build = std::iter::once((BUILD, &self.build));
        let gpus = self.gpus.iter().map(|(name, table)| (name.as_str(), table));
        let tables = build.chain(gpus).filter(|(_, table)| !table.is_empty());
        tables
            .flat_map(|(folder, table)| {
                let files = table.files();
                let texts = Texts {
                    folder: folder.into(),
                    files: BTreeMap::from(
                        files.clone().map(|(name, text)| (name.to_string(), text)),
                    ),
                };
                let choice = self.choices.get(folder).map(String::as_str);
                let digested = texts.digested(choice);
                let files = files.into_iter().chain(digested);
                files.map(move |(name, bytes)| (format!("{folder}/{name}"), bytes))
            })
            .collect()
    }

    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let files = self.files();
        files
            .iter()
            .try_for_each(|(path, bytes)| write_atomically(&folder.join(path), bytes))
    }
}
