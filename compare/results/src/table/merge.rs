//! A table: rows by key, with the sessions that measured them, and how a session is merged into it.

use super::digest::Texts;
use super::draws;
use super::error::{Result, StoreError};
use super::files::{TableFile, checked_lines, lines, read, to_lines};
use super::kind::{Instance, Kind, Place, ProblemPlace, Source};
use super::names::{DRAWS, FILES, ROWS, SESSIONS};
use super::row::{Key, Row, TooFast};
use super::session::{Session, StageMeta, by_id};
use super::subject::Subject;
use common::device::BackendKind;
use common::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// Rows by key, with the sessions that measured them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    /// All rows but those of [`Table::draws`].
    rows: BTreeMap<Key, Row>,
    /// The times at random problems. There are six times as many as others, and what looks for
    /// another kind of row passes over all others.
    draws: BTreeMap<Key, Row>,
    pub sessions: BTreeMap<String, Session>,
}

/// The rows by name.
impl Table {
    /// Returns all rows, in the order of their keys, those of random problems behind the others.
    pub fn rows(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().chain(self.draws.values())
    }

    /// Returns all rows, to be changed in anything but their keys.
    pub(super) fn rows_mut(&mut self) -> impl Iterator<Item = &mut Row> {
        self.rows.values_mut().chain(self.draws.values_mut())
    }

    /// Returns the keys of all rows, as [`Table::rows`] has them.
    pub fn keys(&self) -> impl Iterator<Item = &Key> {
        self.rows.keys().chain(self.draws.keys())
    }

    /// Returns whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.draws.is_empty()
    }

    /// Returns the row of a key.
    pub fn get(&self, key: &Key) -> Option<&Row> {
        match key.kind {
            Kind::RandomTime(_) => self.draws.get(key),
            _ => self.rows.get(key),
        }
    }

    /// Returns the row of a key, which a test changes.
    pub(crate) fn get_mut(&mut self, key: &Key) -> Option<&mut Row> {
        self.with(&key.kind).get_mut(key)
    }

    /// Returns the rows that those of a kind are among.
    fn with(&mut self, kind: &Kind) -> &mut BTreeMap<Key, Row> {
        match kind {
            Kind::RandomTime(_) => &mut self.draws,
            _ => &mut self.rows,
        }
    }

    /// Adds a row as it is. Returns the one of the same key that was there.
    fn insert(&mut self, row: Row) -> Option<Row> {
        self.with(&row.kind).insert(row.key(), row)
    }

    /// Returns the row of a subject and kind.
    pub fn row(&self, subject: &Subject, kind: Kind) -> Option<&Row> {
        self.get(&Key {
            subject: subject.clone(),
            kind,
        })
    }

    /// Returns the gates of a variant over all its cases.
    pub fn checked(&self, subject: &Subject, backend: BackendKind) -> Option<&Row> {
        self.row(subject, Kind::Checked(backend))
    }

    /// Returns the time of a variant alone on a GPU, if it was measured.
    pub fn latency(&self, subject: &Subject, problem: &ProblemPlace) -> Option<&Row> {
        self.row(subject, Kind::Latency(problem.clone()))
            .filter(|row| row.is_latency())
    }

    /// Returns the interleaved pair of two variants on a GPU.
    pub fn pair(&self, new: &Subject, base: &Subject, problem: &ProblemPlace) -> Option<&Row> {
        let kind = Kind::Pair {
            problem: problem.clone(),
            base: base.clone(),
        };
        self.row(new, kind)
    }

    /// Returns the pair of one of ours or a candidate with a peer.
    pub fn peer_pair(
        &self,
        ours: &Subject,
        peer: &Subject,
        problem: &ProblemPlace,
    ) -> Option<&Row> {
        let kind = Kind::PeerPair {
            problem: problem.clone(),
            base: peer.clone(),
        };
        self.row(ours, kind)
    }

    /// Returns what a kernel declares of an instance.
    pub fn declared(&self, subject: &Subject, instance: Instance) -> Option<&Row> {
        self.row(subject, Kind::Declared(instance))
    }

    /// Returns the rows of one source.
    pub fn rows_by(&self, source: Source) -> impl Iterator<Item = &Row> {
        self.rows().filter(move |row| row.source() == source)
    }

    /// Returns the times of variants alone on a GPU.
    pub fn latencies(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(|row| row.is_latency())
    }

    /// Returns the times of peers and of ours that were taken in turn.
    pub fn peer_times(&self) -> impl Iterator<Item = &Row> {
        self.rows
            .values()
            .filter(|row| matches!(row.kind, Kind::PeerTime(_)))
    }

    /// Returns the times at random problems.
    pub fn random_times(&self) -> impl Iterator<Item = &Row> {
        self.draws.values()
    }

    /// Returns the findings of compute-sanitizer.
    pub fn sanitized(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(|row| row.kind == Kind::Sanitized)
    }

    /// Returns what the self-test found of the harness and of synchronisation sites.
    pub fn self_tests(&self) -> impl Iterator<Item = &Row> {
        self.rows_by(Source::SelfTest)
    }

    /// Returns the rows of single cases.
    pub fn cases(&self) -> impl Iterator<Item = &Row> {
        self.rows.values().filter(|row| row.kind.is_case())
    }

    /// Returns the rows of a subject, but for random problems.
    pub fn about<'a>(&'a self, subject: &Subject) -> impl Iterator<Item = &'a Row> + use<'a> {
        let first = Key {
            subject: subject.clone(),
            kind: Kind::FIRST,
        };
        let wanted = subject.clone();
        self.rows
            .range(first..)
            .map(|(_, row)| row)
            .take_while(move |row| row.subject == wanted)
    }

    /// Returns a subject's compiled instances, for all element types, head sizes and architectures.
    pub fn compiled<'a>(
        &'a self,
        subject: &Subject,
    ) -> impl Iterator<Item = Compiled<'a>> + use<'a> {
        self.about(subject).filter_map(Compiled::new)
    }

    /// Returns an instance of a subject as it was compiled for each architecture.
    pub fn compiled_instance<'a>(
        &'a self,
        subject: &Subject,
        instance: Instance,
    ) -> impl Iterator<Item = Compiled<'a>> + use<'a> {
        self.compiled(subject)
            .filter(move |compiled| compiled.instance == instance)
    }
}

/// A row of [`Kind::Compiled`], with what it is of.
#[derive(Clone, Copy, Debug)]
pub struct Compiled<'a> {
    pub instance: Instance,
    pub arch: &'a str,
    pub row: &'a Row,
}

impl<'a> Compiled<'a> {
    /// Returns the instance that a row is about; `None` if it is no compiled one.
    pub fn new(row: &'a Row) -> Option<Self> {
        let Kind::Compiled { instance, arch } = &row.kind else {
            return None;
        };
        Some(Self {
            instance: *instance,
            arch,
            row,
        })
    }
}

/// The sessions.
impl Table {
    /// Returns the session that measured a row.
    pub fn session(&self, row: &Row) -> Option<&Session> {
        self.sessions.get(&row.session)
    }

    /// Returns the sessions that measured on the GPU of the table. What the compiler reports may be
    /// of a session on another GPU.
    pub fn sessions_on_gpu(&self) -> impl Iterator<Item = &Session> {
        let rows = self.rows_by(Source::Gpu);
        rows.filter_map(|row| self.session(row))
    }

    /// Returns the newest session that ran on a GPU.
    pub fn newest_on_gpu(&self) -> Option<&Session> {
        // The newest has many rows, so that one is found soon.
        let mut newest_first = self.sessions.values().rev();
        newest_first.find(|session| {
            let mut rows = self.rows_by(Source::Gpu);
            rows.any(|row| row.session == session.name)
        })
    }

    /// Returns the newest session on the GPU of the table, else the newest one.
    pub fn newest(&self) -> Option<&Session> {
        self.newest_on_gpu()
            .or_else(|| self.sessions.values().next_back())
    }

    /// Returns the architecture of the machine code that the GPU of the table runs, else that of
    /// its newest session on any GPU: `sm_90a`.
    pub fn compiled_arch(&self) -> Option<&str> {
        let on_gpu = self.newest_on_gpu().and_then(Session::compiled_arch);
        on_gpu.or_else(|| {
            let mut newest_first = self.sessions.values().rev();
            newest_first.find_map(Session::compiled_arch)
        })
    }

    fn drop_sessions(&mut self) {
        let rows = self.rows.values().chain(self.draws.values());
        let named: BTreeSet<&String> = rows.map(|row| &row.session).collect();
        self.sessions.retain(|name, _| named.contains(name));
    }
}

/// Changes of the rows.
impl Table {
    /// Adds a row, rounded as tables are, in place of one with the same key.
    pub fn append(&mut self, row: Row) {
        self.insert(row.rounded());
    }

    /// Adds rows, in place of those with the same keys.
    pub fn extend(&mut self, rows: impl IntoIterator<Item = Row>) {
        for row in rows {
            self.append(row);
        }
    }

    /// Keeps the rows that `stays` accepts.
    pub fn retain(&mut self, stays: impl Fn(&Row) -> bool) {
        self.rows.retain(|_, row| stays(row));
        self.draws.retain(|_, row| stays(row));
    }

    /// Adds what a session measured, and drops what it measured anew as a whole. What was read of
    /// the same machine code stays where the session did not read it. What the compiler reports
    /// again keeps its session, so that a session adds what it has found out.
    pub fn merge(&mut self, session: &Session, measured: &Table) {
        let renewed = Renewed::new(session, measured);
        self.rows.retain(|key, _| !renewed.contains(key));
        self.draws.retain(|key, _| !renewed.contains(key));
        for mut row in measured.rows().cloned() {
            if let Kind::Compiled { .. } = row.kind
                && let Some(before) = self.get(&row.key())
            {
                if row.code.is_some() && before.code == row.code {
                    row.complete(before);
                }
                if is_repeated(&row, before) {
                    continue;
                }
            }
            self.insert(row);
        }
        let name = session.name.clone();
        self.sessions.insert(name, session.clone());
    }

    /// Returns whether it has verdicts on the same kernel over more cases than the row, which
    /// passed.
    pub fn covers(&self, row: &Row) -> bool {
        if row.place() != Place::All || row.failure().is_some() {
            return false;
        }
        let Some(before) = self.get(&row.key()) else {
            return false;
        };
        before.identity == row.identity && before.value(Metric::Cases) > row.value(Metric::Cases)
    }

    /// Drops what `stages` no longer declare, and sessions that no row names.
    pub fn prune(&mut self, stages: &[StageMeta]) {
        self.retain(|row| is_declared(row, stages));
        self.drop_sessions();
    }

    /// Returns the rows that `is_kept`, with their sessions.
    pub fn part(&self, is_kept: impl Fn(&Row) -> bool) -> Self {
        let mut part = self.clone();
        part.retain(is_kept);
        part.drop_sessions();
        part
    }

    /// Adds the rows of `other`, which has none of the same key.
    pub fn join(&mut self, other: Table) {
        self.rows.extend(other.rows);
        self.draws.extend(other.draws);
        self.sessions.extend(other.sessions);
    }
}

/// Returns whether two rows differ in nothing but their session.
fn is_repeated(row: &Row, before: &Row) -> bool {
    let mut repeated = row.clone();
    repeated.session.clone_from(&before.session);
    repeated == *before
}

/// The parts that a session measures anew as a whole: nothing older stays of them.
struct Renewed<'a> {
    /// The random problems.
    problems: BTreeSet<&'a ProblemPlace>,
    /// The stages whose synchronisation was tested, and the harness.
    tested: BTreeSet<&'a str>,
    /// The places with peers, and the stages of the session that were timed there.
    peers: BTreeMap<Place<'a>, BTreeSet<&'a str>>,
    stages: &'a [StageMeta],
}

impl<'a> Renewed<'a> {
    fn new(session: &'a Session, measured: &'a Table) -> Self {
        let mut peers: BTreeMap<Place<'_>, BTreeSet<&str>> = BTreeMap::new();
        for row in measured.rows_by(Source::Peers) {
            let timed = peers.entry(row.place()).or_default();
            timed.insert(row.subject.stage());
        }
        Self {
            problems: measured.random_times().filter_map(Row::problem).collect(),
            tested: measured
                .self_tests()
                .map(|row| row.subject.stage())
                .collect(),
            peers,
            stages: &session.stages,
        }
    }

    fn contains(&self, key: &Key) -> bool {
        let stage = key.subject.stage();
        match &key.kind {
            Kind::RandomTime(problem) => self.problems.contains(problem),
            Kind::Fault(_) | Kind::Site(_) | Kind::Timer(_) => self.tested.contains(stage),
            Kind::PeerSession
            | Kind::PeerTime(_)
            | Kind::PeerPair { .. }
            | Kind::CandidateCase(_) => {
                // The peers themselves are of the session that timed any of them.
                self.peers.get(&key.kind.place()).is_some_and(|timed| {
                    timed.contains(stage) || by_id(self.stages, stage).is_none()
                })
            }
            // The one row of the session replaces it by its key.
            Kind::Regret
            | Kind::Declared(_)
            | Kind::Compiled { .. }
            | Kind::Checked(_)
            | Kind::Case(..)
            | Kind::Counters(_)
            | Kind::Latency(_)
            | Kind::Pair { .. }
            | Kind::Profile(_)
            | Kind::Sanitized
            | Kind::Claim(_)
            | Kind::GivenOutput(_) => false,
        }
    }
}

/// Returns whether `stages` have all that the row is about. Peers and the harness belong to none.
fn is_declared(row: &Row, stages: &[StageMeta]) -> bool {
    let mut kernels = 0;
    for subject in std::iter::once(&row.subject).chain(row.base()) {
        let Some(stage) = by_id(stages, subject.stage()) else {
            continue;
        };
        if !declares(stage, subject.name(), &row.kind) {
            return false;
        }
        kernels += 1;
    }
    // A stage that is gone was identified as well.
    let identities = row.identity.iter().flat_map(|pair| pair.split('+'));
    identities.count() <= kernels
}

/// Returns whether a stage has a variant by this name with the kind's element type, or a family
/// where the kind is about families.
fn declares(stage: &StageMeta, name: &str, kind: &Kind) -> bool {
    if name.is_empty() {
        return true;
    }
    if let Some(variant) = stage.variant(name) {
        return kind.dtype().is_none_or(|dtype| variant.takes(dtype));
    }
    match kind {
        Kind::Fault(_) | Kind::Site(_) | Kind::Timer(_) | Kind::Claim(_) => {
            stage.family(name).next().is_some()
        }
        Kind::Declared(_)
        | Kind::Compiled { .. }
        | Kind::Checked(_)
        | Kind::Case(..)
        | Kind::Counters(_)
        | Kind::Latency(_)
        | Kind::Pair { .. }
        | Kind::RandomTime(_)
        | Kind::Regret
        | Kind::PeerSession
        | Kind::PeerTime(_)
        | Kind::PeerPair { .. }
        | Kind::CandidateCase(_)
        | Kind::Profile(_)
        | Kind::Sanitized
        | Kind::GivenOutput(_) => false,
    }
}

/// Reading and writing.
impl Table {
    /// Reads the table that a folder's files are, edited or not.
    pub fn parsed(texts: &Texts) -> Result<Self> {
        let mut table = Self::default();
        for file in FILES {
            table.parse(file, texts.file(file), &texts.path(file))?;
        }
        Ok(table)
    }

    /// Refuses times of another GPU than the newest session's, or of a session that is not there.
    pub(super) fn verify_one_gpu(&self, folder: &Path) -> Result<()> {
        let newest = gpu_name(self.newest_on_gpu());
        for row in self.rows().filter(|row| row.has(Metric::P50)) {
            let gpu = gpu_name(self.session(row));
            if gpu != newest {
                return Err(StoreError::Unlike {
                    path: folder.to_path_buf(),
                    row: row.key().to_string(),
                    gpu: gpu.to_string(),
                    newest: newest.to_string(),
                });
            }
        }
        Ok(())
    }

    pub(super) fn read_file(&mut self, path: &Path, file: &str) -> Result<()> {
        let bytes = read(path)?.unwrap_or_default();
        self.parse(file, &bytes, path)
    }

    /// Reads the text of one of its [`FILES`]; `path` is for messages.
    pub fn parse(&mut self, file: &str, text: &[u8], path: &Path) -> Result<()> {
        if file == SESSIONS {
            for session in lines::<Session>(text, path)? {
                self.sessions.insert(session.name.clone(), session);
            }
            return Ok(());
        }
        let rows = if file == DRAWS {
            let lines = checked_lines(text, path, |line: &draws::Rows| {
                line.0.iter().find_map(|row| self.too_fast(row))
            })?;
            lines.into_iter().flat_map(|line| line.0).collect()
        } else {
            checked_lines(text, path, |row| self.too_fast(row))?
        };
        for row in rows {
            let key = row.key();
            if self.insert(row).is_some() {
                return Err(StoreError::Twice {
                    path: path.to_path_buf(),
                    row: key.to_string(),
                });
            }
        }
        Ok(())
    }

    fn too_fast(&self, row: &Row) -> Option<TooFast> {
        row.too_fast(self.session(row)?.gpu()?)
    }

    /// Returns its files but the digests. The same rows give the same bytes.
    pub fn files(&self) -> [TableFile; 3] {
        let draws::Split { lines, rows } = draws::split(self.rows());
        let sessions = self.sessions.values().map(Session::committed);
        [
            TableFile::new(ROWS, to_lines(rows)),
            TableFile::new(DRAWS, to_lines(lines)),
            TableFile::new(SESSIONS, to_lines(sessions)),
        ]
    }
}

fn gpu_name(session: Option<&Session>) -> &str {
    let gpu = session.and_then(Session::gpu);
    gpu.unwrap_or("an unknown GPU")
}
