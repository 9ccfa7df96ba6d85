//! The questions asked of a table, each answered once: the best variant, STALE, claims,
//! differences, missing data, and the overall verdict. Pure functions: nothing here reads a clock,
//! a file or a device.
//!
//! A figure is *STALE* if its kernel has changed since it was measured. It is shown as such, and
//! decides nothing.

pub mod best;
pub mod blocks;
pub mod candidate;
pub mod claims;
pub mod diff;
pub mod drift;
mod former;
pub mod gaps;
pub mod list;
pub mod main_gpu;
pub mod missing;
pub mod peers;
pub mod regret;
pub mod state;
pub mod targets;
pub mod terms;
pub mod verdict;

use crate::table::kernels::is_stale;
use crate::table::session::{Tier, by_id};
use crate::table::{Claim, Row, Run, Session, StageMeta, Table};
use common::device::BackendKind;
use std::borrow::Cow;

/// The subject of a report: stages, a table, and the run that was added to it.
#[derive(Clone)]
pub struct View<'a> {
    pub stages: &'a [StageMeta],
    /// One GPU model's table, with the rows of the run in place of committed ones.
    pub table: Cow<'a, Table>,
    pub run: Option<&'a Session>,
}

impl<'a> View<'a> {
    /// Returns the view of a committed table, without a run.
    pub fn committed(stages: &'a [StageMeta], table: &'a Table) -> Self {
        Self {
            stages,
            table: Cow::Borrowed(table),
            run: None,
        }
    }

    /// Returns the view of a run by itself.
    pub fn alone(run: &'a Run) -> Self {
        Self {
            stages: &run.session.stages,
            table: Cow::Borrowed(&run.table),
            run: Some(&run.session),
        }
    }

    /// Returns a run on top of what `table` has of the same GPU model. A run limited to a smaller
    /// device is not mixed with figures of real ones.
    pub fn of_run(run: &'a Run, table: &Table) -> Self {
        if run.session.device.is_some() {
            return Self::alone(run);
        }
        let mut merged = table.clone();
        merged.merge(&run.session, &run.table);
        Self {
            table: Cow::Owned(merged),
            ..Self::alone(run)
        }
    }

    /// Returns the stage of this id.
    pub fn stage(&self, id: &str) -> Option<&'a StageMeta> {
        by_id(self.stages, id)
    }

    /// Returns the session that the report is about: the run, else the newest one of the table.
    pub fn session(&self) -> Option<&Session> {
        self.run.or_else(|| self.table.newest())
    }

    /// Returns whether a kernel that the row is about has changed since.
    pub fn is_stale(&self, row: &Row) -> bool {
        is_stale(self.stages, row)
    }

    /// Returns the stages that have changed since rows were measured.
    pub fn stale_stages(&self) -> Vec<&str> {
        let stale = self.table.rows().filter(|row| self.is_stale(row));
        list::distinct(stale.map(|row| row.subject.stage()))
    }

    /// Returns whether the report is about the row: of a run, one of the run's; of a committed
    /// table any.
    pub fn is_reported(&self, row: &Row) -> bool {
        self.run.is_none_or(|run| run.name == row.session)
    }

    /// Returns whether nothing was selected, so that what is not there is missing.
    pub fn is_whole(&self) -> bool {
        self.run.is_none_or(|run| run.scope.is_all())
    }

    /// Returns whether the report is about a run of the quickest tier.
    pub fn is_quick(&self) -> bool {
        self.run.is_some_and(|run| run.tier == Tier::T0)
    }

    /// Returns whether the run that is judged measured the row.
    pub fn is_of_run(&self, row: &Row) -> bool {
        self.run.is_some_and(|run| run.name == row.session)
    }

    /// Returns what judges the cases of the report: the run's backend; of a committed table the
    /// GPU.
    pub fn backend(&self) -> BackendKind {
        self.run.map_or(BackendKind::Cuda, |run| run.backend)
    }

    /// Returns the run if it is one on a GPU, else the newest session on the GPU of the table.
    pub fn on_gpu(&self) -> Option<&Session> {
        let run = self.run.filter(|run| run.backend == BackendKind::Cuda);
        run.or_else(|| self.table.newest_on_gpu())
    }

    /// Returns the GPU model that times are of.
    pub fn gpu(&self) -> Option<&str> {
        self.on_gpu().and_then(Session::gpu)
    }

    /// Returns whether a claim is about all GPUs, or about the model that times are of.
    pub fn is_asked_about(&self, claim: &Claim) -> bool {
        claim.gpu.is_none() || claim.is_about(self.gpu())
    }
}

#[cfg(test)]
mod tests;
