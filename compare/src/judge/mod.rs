//! Questions about rows, each asked once: which variant is best, is a row STALE, is a claim kept, what differs, what is
//! missing, and the verdict over all. Pure functions; nothing here reads a clock, a file or a device.
//!
//! Words: a *run* is the record of this invocation. A *committed* record is one in `results/`. A figure is *STALE* when the
//! kernel that it was measured on has another identity than the one built now, or another GPU measured this time; it is
//! shown with its origin and never enters a ratio with a figure of another record.

pub mod best;
pub mod claims;
pub mod diff;
pub mod history;
pub mod list;
pub mod missing;
pub mod peers;
pub mod state;
pub mod verdict;

use crate::record::meta::{Gpu, by_id};
use crate::record::{Record, StageMeta};
use common::device::BackendKind;
use serde::Serialize;

/// A committed record: the name of its folder, and what is in it.
pub type Named = (String, Record);

/// What the questions are asked of.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The ladder as it is built now.
    pub stages: &'a [StageMeta],
    /// This invocation's record.
    pub run: Option<(&'a str, &'a Record)>,
    /// Of the ladder, oldest first.
    pub committed: &'a [Named],
}

impl<'a> Known<'a> {
    /// A record by itself.
    pub fn alone(name: &'a str, record: &'a Record) -> Self {
        Self {
            stages: &record.meta.stages,
            run: Some((name, record)),
            committed: &[],
        }
    }

    /// The record that a report is of: the run's; else the newest committed one that timed something, else the newest.
    pub fn subject(&self) -> Option<(&'a str, &'a Record)> {
        let timed = self
            .committed
            .iter()
            .rev()
            .find(|(_, record)| is_timed(record));
        self.run.or_else(|| {
            timed
                .or(self.committed.last())
                .map(|(name, record)| (name.as_str(), record))
        })
    }

    /// The same without its name.
    pub fn record(&self) -> Option<&'a Record> {
        self.subject().map(|(_, record)| record)
    }

    /// Where to look for a figure, best first: the run, then the committed records, newest first. What is limited to a
    /// smaller device is not shown beside devices that were there.
    pub fn sources(&self) -> Vec<(Option<&'a str>, &'a Record)> {
        let run = self.run.map(|(_, record)| (None, record));
        let is_limited = self
            .subject()
            .is_some_and(|(_, record)| record.meta.device.is_some());
        let committed = if is_limited { &[] } else { self.committed };
        run.into_iter()
            .chain(
                committed
                    .iter()
                    .rev()
                    .map(|(name, record)| (Some(name.as_str()), record)),
            )
            .collect()
    }

    pub fn stage(&self, id: &str) -> Option<&'a StageMeta> {
        by_id(self.stages, id)
    }

    /// Whose figures those of `stage` in a record are. Figures of a GPU are of that GPU alone.
    pub fn origin(&self, name: Option<&str>, record: &Record, stage: &str, of_gpu: bool) -> Origin {
        let Some(name) = name else { return Origin::Run };
        let (record_name, gpu) = (name.to_string(), place(record));
        let here = self.run.and_then(|(_, run)| run.meta.gpu());
        if record.identity(stage) != self.stage(stage).map(|now| now.identity.as_str()) {
            Origin::Stale {
                record: record_name,
                gpu,
                why: "the kernel has changed since".into(),
            }
        } else if let Some(here) = here.filter(|here| of_gpu && **here != *gpu) {
            Origin::Stale {
                record: record_name,
                why: format!("measured on another GPU than this run's {here}"),
                gpu,
            }
        } else {
            Origin::Committed {
                record: record_name,
                gpu,
            }
        }
    }
}

/// The GPU of a record, or that it has none.
pub fn place(record: &Record) -> String {
    match (record.meta.backend, &record.meta.machine.gpu) {
        (BackendKind::Cuda, Gpu::Present { name, .. }) => name.clone(),
        (BackendKind::Cuda, Gpu::Absent { .. }) => "an unknown GPU".into(),
        (BackendKind::Emulated, _) => "the emulator".into(),
        (BackendKind::Cpu, _) => "the processor".into(),
    }
}

/// Whether the record has a latency.
pub fn is_timed(record: &Record) -> bool {
    best::timed(record).next().is_some()
}

/// Whose figure it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Origin {
    Run,
    /// A committed record's, of the kernel as it is now.
    Committed {
        record: String,
        gpu: String,
    },
    /// A committed record's that no longer holds.
    Stale {
        record: String,
        gpu: String,
        why: String,
    },
}

impl Origin {
    pub fn is_stale(&self) -> bool {
        matches!(self, Origin::Stale { .. })
    }

    /// The record that it is from, where that is not the run's.
    pub fn record(&self) -> Option<&str> {
        match self {
            Origin::Run => None,
            Origin::Committed { record, .. } | Origin::Stale { record, .. } => Some(record),
        }
    }
}

#[cfg(test)]
mod tests;
