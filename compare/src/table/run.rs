//! The folder of a run: `session.json` and `rows.jsonl`. Its rows of single cases are never committed.

use super::error::StoreError;
use super::files::{SESSION, entries, is_run, read, to_lines, write_atomically};
use super::kernels;
use super::merge::Table;
use super::names::ROWS;
use super::row::{Place, Row, Source, Subject};
use super::session::{Progress, Session, StageMeta};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub session: Session,
    pub table: Table,
}

impl Run {
    pub fn new(session: Session) -> Self {
        Self {
            session,
            table: Table::default(),
        }
    }

    /// Adds a row, in place of one with the same key.
    pub fn append(&mut self, mut row: Row) {
        row.session = self.session.name.clone();
        row.identity = kernels::identity(&self.session.stages, &row);
        // What the compiler made has its own code.
        if row.source != Source::Ptxas {
            row.code = kernels::code(&self.table, self.session.compiled_arch(), &row);
        }
        self.table.append(row);
    }

    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        rows.into_iter().for_each(|row| self.append(row));
    }

    pub fn cases(&self) -> impl Iterator<Item = &Row> {
        let is_case = |row: &&Row| matches!(row.place, Place::Case(..));
        self.table.rows().filter(is_case)
    }

    pub fn has_evidence(&self) -> bool {
        let is_measured = |row: &Row| row.identity.is_some() && !row.source.is_of_build();
        self.table.rows().any(is_measured)
    }

    /// Notes that the run goes on or was interrupted, and how far it got.
    pub fn goes_on(&mut self, planned: usize) {
        let finished = self.cases().count();
        self.session.progress = Progress::Partial { finished, planned };
    }

    pub fn variants(&self) -> impl Iterator<Item = Subject> {
        self.session.stages.iter().flat_map(StageMeta::subjects)
    }

    /// What it says of the kernels in `built`, the sources' own build, and whose rows are left out because they are of others. Rows of
    /// the same machine code are of these kernels, and its resources are judged by the caps of the sources.
    pub fn of_sources(&self, built: &Table) -> (Self, BTreeSet<Subject>) {
        let mut run = self.clone();
        let (arch, stages) = (self.session.compiled_arch(), &self.session.stages);
        run.table.restamp_on(arch, stages, built);
        let is_other = |row: &Row| kernels::is_stale(stages, row);
        let subjects = |table: &Table, is: &dyn Fn(&Row) -> bool| -> BTreeSet<Subject> {
            let rows = table
                .rows()
                .filter(|row| !row.source.is_of_build() && is(row));
            rows.map(|row| row.subject.clone()).collect()
        };
        let others = subjects(&run.table, &|row| is_other(row));
        let compiled = subjects(&run.table, &|row| is_other(row) && row.code.is_some());
        run.table.retain(|row| !is_other(row));
        // What has only lost rows without machine code, single cases, keeps its verdicts.
        let left_out =
            &(&others - &subjects(&run.table, &|row| row.identity.is_some())) | &compiled;
        for row in built.rows() {
            let mut row = row.clone();
            row.session.clone_from(&self.session.name);
            if let Some(before) = run.table.get(&row.key())
                && before.code == row.code
            {
                row.complete(before);
                run.table.append(row);
            }
        }
        (run, left_out)
    }

    /// Reads the folder of a run; `stages` are those that it is of.
    pub fn read(folder: &Path, stages: &[StageMeta]) -> Result<Self, StoreError> {
        let mut session = session(folder)?;
        let mut table = Table::default();
        table.sessions.insert(session.name.clone(), session.clone());
        table.read_file(&folder.join(ROWS), ROWS)?;
        table.sessions.clear();
        let found = table.rows().count();
        if found < session.rows {
            return Err(StoreError::Lost {
                path: folder.join(ROWS),
                found,
                written: session.rows,
            });
        }
        session.stages = stages.to_vec();
        Ok(Self { session, table })
    }

    /// Writes all files. The session comes last: if the run is killed between two files, it must not count more rows than there are.
    pub fn write(&self, folder: &Path) -> Result<(), StoreError> {
        let write = |name: &str, bytes: &[u8]| write_atomically(&folder.join(name), bytes);
        let session = Session {
            rows: self.table.rows().count(),
            ..self.session.clone()
        };
        write(ROWS, &to_lines(self.table.rows()))?;
        let mut session =
            serde_json::to_string_pretty(&session).expect("a session has no map keys but strings");
        session.push('\n');
        write(SESSION, session.as_bytes())
    }
}

fn session(folder: &Path) -> Result<Session, StoreError> {
    let path = folder.join(SESSION);
    let text = read(&path)?.ok_or_else(|| StoreError::NoRun {
        path: folder.to_path_buf(),
    })?;
    serde_json::from_slice(&text).map_err(StoreError::malformed(&path))
}

/// The newest finished run in a folder of runs: names begin with the time.
pub fn newest_run(folder: &Path) -> Result<Option<PathBuf>, StoreError> {
    let mut newest: Option<PathBuf> = None;
    for path in entries(folder)? {
        if is_run(&path) && matches!(session(&path)?.progress, Progress::Complete { .. }) {
            newest = newest.max(Some(path));
        }
    }
    Ok(newest)
}
