//! The folder of a run: `session.json` and `rows.jsonl`. Its rows of single cases are never
//! committed.

use super::error::{Result, StoreError};
use super::files::{SESSION, entries, is_run, read, to_lines, write_atomically};
use super::kernels;
use super::kind::Kind;
use super::merge::Table;
use super::names::ROWS;
use super::row::Row;
use super::session::{Progress, Session, StageMeta};
use super::subject::Subject;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The rows that one session measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub session: Session,
    pub table: Table,
}

/// A run as it stands for the sources as they are now.
pub struct Rebased {
    pub run: Run,
    /// The subjects whose rows are missing, because they were measured on other kernels.
    pub left_out: BTreeSet<Subject>,
}

/// Returns the measured subjects of stale rows, but for those that kept rows stand for: a variant
/// that lost only rows without machine code, single cases, keeps its verdicts.
fn subjects_left_out(stale: &Table, kept: &Table) -> BTreeSet<Subject> {
    let identified: BTreeSet<&Subject> = kept
        .rows()
        .filter(|row| !row.kind.is_of_build() && row.identity.is_some())
        .map(|row| &row.subject)
        .collect();
    stale
        .rows()
        .filter(|row| !row.kind.is_of_build())
        .filter(|row| row.code.is_some() || !identified.contains(&row.subject))
        .map(|row| row.subject.clone())
        .collect()
}

impl Run {
    /// Returns a run without rows.
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
        if !matches!(row.kind, Kind::Compiled { .. }) {
            row.code = kernels::code(&self.table, self.session.compiled_arch(), &row);
        }
        self.table.append(row);
    }

    /// Gives the session, and its rows, another name.
    pub fn rename(&mut self, name: &str) {
        self.session.name = name.into();
        let mut renamed = Table::default();
        for mut row in self.table.rows().cloned() {
            row.session = name.into();
            renamed.append(row);
        }
        renamed.sessions.insert(name.into(), self.session.clone());
        self.table = renamed;
    }

    /// Adds rows, as [`Run::append`] does.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            self.append(row);
        }
    }

    /// Returns the rows of single cases.
    pub fn cases(&self) -> impl Iterator<Item = &Row> {
        self.table.cases()
    }

    /// Returns whether it measured any kernel of its sources.
    pub fn has_evidence(&self) -> bool {
        let mut rows = self.table.rows();
        rows.any(|row| row.identity.is_some() && !row.kind.is_of_build())
    }

    /// Notes that the run goes on or was interrupted, and how far it got.
    pub fn goes_on(&mut self, planned: usize) {
        let finished = self.cases().count();
        self.session.progress = Progress::Partial { finished, planned };
    }

    /// Returns the variants of the session's stages.
    pub fn variants(&self) -> impl Iterator<Item = Subject> {
        self.session.stages.iter().flat_map(StageMeta::subjects)
    }

    /// Returns what it shows of the kernels in `built`, the sources' own build. Rows of the same
    /// machine code are of these kernels, and its resources are judged by the caps of the sources.
    pub fn on_current_sources(&self, built: &Table) -> Rebased {
        let mut run = self.clone();
        let stages = &self.session.stages;
        run.table
            .restamp_on(self.session.compiled_arch(), stages, built);
        let mut stale = run.table.clone();
        stale.retain(|row| kernels::is_stale(stages, row));
        run.table.retain(|row| !kernels::is_stale(stages, row));
        let left_out = subjects_left_out(&stale, &run.table);
        run.take_resources(built);
        Rebased { run, left_out }
    }

    /// Replaces what the compiler reported by what it reports of the sources' build, where both
    /// have the same machine code.
    fn take_resources(&mut self, built: &Table) {
        for row in built.rows() {
            let Some(before) = self.table.get(&row.key()) else {
                continue;
            };
            if before.code == row.code {
                let mut current = row.clone();
                current.session.clone_from(&self.session.name);
                current.complete(before);
                self.table.append(current);
            }
        }
    }

    /// Reads the folder of a run, which was made from these stages.
    pub fn read(folder: &Path, stages: &[StageMeta]) -> Result<Self> {
        let mut session = read_session(folder)?;
        let mut table = Table::default();
        table.sessions.insert(session.name.clone(), session.clone());
        table.read_file(&folder.join(ROWS), ROWS)?;
        table.sessions.clear();
        let rows = table.rows().count();
        if rows < session.rows {
            return Err(StoreError::Lost {
                path: folder.join(ROWS),
                found: rows,
                written: session.rows,
            });
        }
        session.stages = stages.to_vec();
        Ok(Self { session, table })
    }

    /// Writes all files. The session comes last: if the run is killed between two files, it must
    /// not count more rows than there are.
    pub fn write(&self, folder: &Path) -> Result<()> {
        let write = |name: &str, bytes: &[u8]| write_atomically(&folder.join(name), bytes);
        let session = Session {
            rows: self.table.rows().count(),
            ..self.session.clone()
        };
        write(ROWS, &to_lines(self.table.rows()))?;
        let mut text =
            serde_json::to_string_pretty(&session).expect("a session has no map keys but strings");
        text.push('\n');
        write(SESSION, text.as_bytes())
    }
}

fn read_session(folder: &Path) -> Result<Session> {
    let path = folder.join(SESSION);
    let text = read(&path)?.ok_or_else(|| StoreError::NoRun {
        path: folder.to_path_buf(),
    })?;
    let session: Session = serde_json::from_slice(&text).map_err(StoreError::malformed(&path))?;
    for (what, name) in [
        ("session", &session.name),
        ("machine", &session.machine.name),
    ] {
        if !is_folder_name(name) {
            return Err(StoreError::Name {
                path,
                what,
                name: name.clone(),
            });
        }
    }
    Ok(session)
}

/// Returns whether files can be kept under this name: it leads nowhere else, and nowhere hidden.
fn is_folder_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\\', '\0'])
}

/// Returns the newest finished run in a folder of runs: names begin with the time.
pub fn newest_run(folder: &Path) -> Result<Option<PathBuf>> {
    let mut newest: Option<PathBuf> = None;
    for path in entries(folder)? {
        if is_run(&path) && matches!(read_session(&path)?.progress, Progress::Complete { .. }) {
            newest = newest.max(Some(path));
        }
    }
    Ok(newest)
}
