//! Writes a run while it is measured.

use crate::progress::Progress;
use anyhow::Context;
use measure::estimate::Spent;
use measure::interrupt::interrupted;
use measure::plan::PlannedCase;
use measure::sink::{ExecuteError, LARGE_TIMING, PAIR, RANDOM_PROBLEM, Sink, TIMING};
use measure::summary::summarise;
use results::table::Run;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The least time between two writes of the run while cases run; a kill loses no more than this.
const WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// The least share of the time that is not spent on writing, in times of a write: a full run is
/// large.
const WRITE_SHARE: u32 = 20;

/// The writer of a run while it goes on, which also reports how far it is.
pub struct Recorder<'a> {
    folder: &'a Path,
    planned: &'a [PlannedCase],
    write_after: Instant,
    interrupted: Arc<AtomicBool>,
    progress: Progress,
}

impl<'a> Recorder<'a> {
    /// Begins to record a run in `folder` that will have the `planned` cases. From here on, Ctrl-C
    /// ends the run instead of the process.
    pub fn new(folder: &'a Path, planned: &'a [PlannedCase]) -> anyhow::Result<Self> {
        Ok(Self {
            folder,
            planned,
            write_after: Instant::now() + WRITE_INTERVAL,
            interrupted: interrupted().context("cannot wait for signals")?,
            progress: Progress::default(),
        })
    }

    /// Returns how long a run of this length was in the steps so far.
    pub fn spent(&self, total: Duration) -> Spent {
        Spent {
            total,
            small: self.progress.spent(TIMING),
            large: self.progress.spent(LARGE_TIMING),
            random: self.progress.spent(RANDOM_PROBLEM),
            pairs: self.progress.spent(PAIR),
        }
    }
}

impl Sink for Recorder<'_> {
    fn on_start(&mut self, kind: &'static str, label: &str, done: usize, total: usize) {
        self.progress.step(kind, label, done, total);
    }

    fn on_rows_added(&mut self, run: &mut Run) -> Result<(), ExecuteError> {
        if self.interrupted.load(Ordering::Relaxed) {
            // The command writes the run before it ends.
            return Err(ExecuteError::Interrupted);
        }
        let start = Instant::now();
        if start < self.write_after {
            return Ok(());
        }
        run.goes_on(self.planned.len());
        summarise(run, self.planned);
        run.write(self.folder)?;
        self.write_after = Instant::now() + WRITE_INTERVAL.max(WRITE_SHARE * start.elapsed());
        Ok(())
    }
}
