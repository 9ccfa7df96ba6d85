//! The questions asked of rows, each answered once: the best variant, STALE, claims, differences, missing data, and the overall
//! verdict. Pure functions: nothing here reads a clock, a file or a device.
//!
//! A *run* is the record of this invocation, a *committed* record one in `results/`. A figure is *STALE* if its kernel has changed
//! since, or if it was measured on another GPU than this run's. It is shown with its origin, and never enters a ratio with a figure
//! of another record.

pub mod best;
pub mod candidate;
pub mod claims;
pub mod diff;
pub mod list;
pub mod missing;
pub mod peers;
pub mod state;
pub mod verdict;

use crate::record::meta::{Gpu, by_id};
use crate::record::{Record, StageMeta};
use common::device::BackendKind;
use serde::Serialize;

/// A record, and the name of its folder.
pub type Named = (String, Record);

/// What is known: the questions are asked of this.
#[derive(Clone, Copy)]
pub struct Known<'a> {
    /// The ladder as it is built now.
    pub stages: &'a [StageMeta],
    /// The record of this invocation.
    pub run: Option<(&'a str, &'a Record)>,
    /// Committed records of the ladder, oldest first.
    pub committed: &'a [Named],
}

impl<'a> Known<'a> {
    /// One record and nothing else.
    pub fn alone(name: &'a str, record: &'a Record) -> Self {
        Self {
            stages: &record.meta.stages,
            run: Some((name, record)),
            committed: &[],
        }
    }

    /// The record that a report is about: the run; else the newest committed one that timed something, else the newest.
    pub fn subject(&self) -> Option<(&'a str, &'a Record)> {
        let mut newest_first = self.committed.iter().rev();
        let timed = newest_first.find(|(_, record)| is_timed(record));
        let committed = timed.or(self.committed.last());
        self.run
            .or(committed.map(|(name, record)| (name.as_str(), record)))
    }

    pub fn record(&self) -> Option<&'a Record> {
        self.subject().map(|(_, record)| record)
    }

    /// Where to look for a figure: first the run, then the committed records, newest first. A run limited to a smaller device is
    /// not mixed with records of real ones.
    pub fn sources(&self) -> Vec<(Option<&'a str>, &'a Record)> {
        let is_limited = |record: &Record| record.meta.device.is_some();
        let committed = match self.record().is_some_and(is_limited) {
            true => &[],
            false => self.committed,
        };
        let committed = committed.iter().rev();
        let committed = committed.map(|(name, record)| (Some(name.as_str()), record));
        let run = self.run.map(|(_, record)| (None, record));
        run.into_iter().chain(committed).collect()
    }

    /// The same without their names.
    pub fn records(&self) -> impl Iterator<Item = &'a Record> + use<'a> {
        self.sources().into_iter().map(|(_, record)| record)
    }

    pub fn stage(&self, id: &str) -> Option<&'a StageMeta> {
        by_id(self.stages, id)
    }

    /// Where figures of `stage` are from, and whether they still hold. Those measured on a GPU hold for that GPU only.
    pub fn origin(&self, name: Option<&str>, record: &Record, stage: &str, of_gpu: bool) -> Origin {
        let Some(name) = name else { return Origin::Run };
        let gpu = place(record);
        let is_other = |here: &&str| of_gpu && **here != *gpu;
        let here = self.run.and_then(|(_, run)| run.meta.gpu());
        let now = self.stage(stage).map(|now| now.identity.as_str());
        let stale = match here.filter(is_other) {
            _ if record.identity(stage) != now => Some("the kernel has changed since".to_string()),
            Some(here) => Some(format!("measured on another GPU than this run's {here}")),
            None => None,
        };
        Origin::Committed {
            record: name.to_string(),
            gpu,
            stale,
        }
    }
}

/// The GPU of a record, or what it ran on instead.
pub fn place(record: &Record) -> String {
    match (record.meta.backend, &record.meta.machine.gpu) {
        (BackendKind::Cuda, Gpu::Present { name, .. }) => name.clone(),
        (BackendKind::Cuda, Gpu::Absent { .. }) => "an unknown GPU".into(),
        (BackendKind::Emulated, _) => "the emulator".into(),
    }
}

/// Whether the record has any latency.
pub fn is_timed(record: &Record) -> bool {
    best::timed(record).next().is_some()
}

/// Where a figure is from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Origin {
    Run,
    Committed {
        record: String,
        gpu: String,
        /// Why it no longer holds, if so.
        stale: Option<String>,
    },
}

impl Origin {
    pub fn is_stale(&self) -> bool {
        matches!(self, Origin::Committed { stale: Some(_), .. })
    }

    /// The committed record.
    pub fn record(&self) -> Option<&str> {
        match self {
            Origin::Run => None,
            Origin::Committed { record, .. } => Some(record),
        }
    }

    /// ``record `20261124T021435Z-nvidia-h200` (NVIDIA H200; STALE: the kernel has changed since)``, of a committed one.
    pub fn cited(&self) -> Option<String> {
        let Origin::Committed { record, gpu, stale } = self else {
            return None;
        };
        let stale = stale.iter().map(|why| format!("; STALE: {why}"));
        Some(format!(
            "record `{record}` ({gpu}{})",
            stale.collect::<String>()
        ))
    }
}

#[cfg(test)]
mod tests;
