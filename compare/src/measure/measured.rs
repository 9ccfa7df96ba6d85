//! What a run has measured so far, and who is told of it.

use super::distinction::Case;
use super::plan::{Plan, PlannedCase};
use super::rows;
use super::summary::summarise;
use crate::measure::builds::{StageBuild, metas};
use crate::measure::machine::{self, Timestamp};
use crate::record::meta::{GateScope, Machine, Progress};
use crate::record::store::SCHEMA;
use crate::record::{Meta, On, Record, Row};
use common::check::Outcome;
use common::device::cuda::CudaError;
use common::reference::ReferenceError;
use common::suppression::Broken;
use std::collections::{BTreeSet, HashMap, HashSet};

/// Why a run could not go on.
#[derive(Debug, thiserror::Error)]
pub enum ExecuteError {
    /// There is nothing to compare with.
    #[error("{case}: no reference")]
    Reference {
        case: String,
        #[source]
        source: ReferenceError,
    },
    /// A sticky CUDA error: nothing can run on the GPU in this process.
    #[error(
        "{case}: {reason}; a sticky CUDA error: this process cannot go on, what was finished is in the record"
    )]
    Sticky { case: String, reason: String },
    /// Timing failed as a whole.
    #[error("timing failed")]
    Timing(#[from] CudaError),
    /// Nobody wants more, or the sink of results failed.
    #[error(transparent)]
    Sink(#[from] SinkError),
}

/// Whoever takes the results takes no more.
#[derive(Debug, thiserror::Error)]
pub enum SinkError {
    /// Ctrl-C: what has ended is kept.
    #[error("interrupted")]
    Interrupted,
    /// The record or an output cannot be written.
    #[error("{what}")]
    Unwritable {
        /// What could not be written.
        what: String,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Takes what happens, as it happens.
pub trait Sink {
    /// `label` starts; `done` of `total` steps of this kind are finished.
    fn starts(&mut self, kind: &'static str, label: &str, done: usize, total: usize);
    /// A case ended with this output, where it has one.
    fn output(&mut self, _: &PlannedCase, _: &[f32]) -> Result<(), SinkError> {
        Ok(())
    }
    /// It has grown; the sink may bring its summaries up to date, or want no more.
    fn grown(&mut self, _: &mut Measured) -> Result<(), SinkError> {
        Ok(())
    }
}

/// What a run has measured so far.
pub struct Measured {
    /// Kernels that fail a gate with all their synchronisation in place.
    pub broken: Vec<Broken>,
    /// Every case is a row of it.
    pub record: Record,
    /// Stages whose summaries stand as an earlier run has left them.
    pub settled: BTreeSet<String>,
}

impl Measured {
    pub fn new(record: Record) -> Self {
        Self {
            broken: vec![],
            record,
            settled: BTreeSet::new(),
        }
    }

    /// A record of what `plan` sets out to do, with what was built, before any of it is done.
    pub fn begin(
        started: &Timestamp,
        plan: &Plan,
        builds: &[StageBuild],
        machine: Machine,
        gates: Vec<GateScope>,
        source_lines: bool,
    ) -> Self {
        let mut record = Record::new(Meta {
            schema: SCHEMA,
            started: started.iso(),
            progress: Progress::Partial {
                finished: 0,
                planned: plan.cases.len(),
            },
            tool_version: env!("CARGO_PKG_VERSION").to_string(),
            command: machine::command_line(),
            git: machine::git(),
            machine,
            tier: plan.tier,
            backend: plan.backend,
            scope: plan.scope.clone(),
            device: None,
            toggles: machine::toggles(),
            source_lines,
            gates,
            tools: Default::default(),
            methods: Default::default(),
            left_out: vec![],
            peers: None,
            rows: 0,
            shapes: Default::default(),
            stages: metas(builds),
            joined: vec![],
            negative: None,
        });
        record.extend(builds.iter().flat_map(rows::built));
        Self::new(record)
    }

    /// The rows of cases, those that did not pass first.
    fn cases(&self) -> impl Iterator<Item = &Row> {
        let of_cases = |row: &&Row| matches!(row.on, On::Case(..));
        self.record
            .rows
            .iter()
            .filter(of_cases)
            .chain(&self.record.cases)
    }

    /// Cases that have ended.
    pub fn finished(&self) -> usize {
        self.cases().count()
    }

    /// Says that the run goes on, or was ended, and how far it has come.
    pub fn goes_on(&mut self, planned: usize) {
        let finished = self.finished();
        self.record.meta.progress = Progress::Partial { finished, planned };
    }

    /// Says that the run has come to its end.
    pub fn has_ended(&mut self, seconds: u64) {
        let cases = self.finished();
        self.record.meta.progress = Progress::Complete { cases, seconds };
    }

    /// What of `planned` the record has not, or not as thoroughly; what it has of that is dropped, to be replaced.
    pub fn missing<'p>(&mut self, planned: &'p [PlannedCase]) -> Vec<&'p PlannedCase> {
        let known: HashMap<_, _> = self
            .cases()
            .map(|row| ((&row.subject, &row.on), row))
            .collect();
        let has = |case: &&PlannedCase| {
            known
                .get(&(&case.subject, &case.on()))
                .is_some_and(|row| row.verdicts.is_empty() || case.mode.is_covered(row))
        };
        let missing: Vec<&PlannedCase> = planned.iter().filter(|case| !has(case)).collect();
        if missing.len() < planned.len() {
            let again: HashSet<_> = missing
                .iter()
                .map(|case| (case.subject.clone(), case.on()))
                .collect();
            let stays = |row: &Row| !again.contains(&(row.subject.clone(), row.on.clone()));
            self.record.rows.retain(stays);
            self.record.cases.retain(stays);
        }
        missing
    }

    /// Brings the rows of variants up to date with their cases.
    pub fn summarise(&mut self, stages: &[StageBuild]) {
        let meta = &self.record.meta;
        let cases: Vec<_> = self.cases().filter_map(|row| Case::of(row, meta)).collect();
        let stages = stages
            .iter()
            .filter(|stage| !self.settled.contains(&stage.id));
        let rows = summarise(stages, &cases, &self.broken, meta.backend);
        self.record.extend(rows);
    }

    /// A case that passed is context, and stays with the run.
    pub fn append(&mut self, case: &PlannedCase, outcome: &Outcome) {
        self.record.names(&case.place.shape, case.problem.shape);
        let by = self.record.meta.backend.into();
        let row = Row::new(&case.subject, case.on(), by);
        let row = rows::of_outcome(row, outcome);
        if row.failure().is_none() {
            self.record.cases.push(row)
        } else {
            self.record.append(row)
        }
    }
}
