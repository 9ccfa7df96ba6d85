//! Timing sessions at the power limit: arms replay their graphs for seconds, in turns.

use super::super::CudaError;
use super::Session;
use crate::telemetry::Reading;
use crate::timing::sustained::{self, CHUNK, Chunk, Stand, SustainedArms};
use std::time::{Duration, Instant};

impl Session<'_, '_> {
    /// Times the arms of the session sustained, if one of them reached the power limit before its
    /// samples or `after` them.
    pub(super) fn sustain_at_limit(
        &self,
        after: &[Reading],
    ) -> Result<Option<SustainedArms>, CudaError> {
        let mut graphs = Graphs {
            session: self,
            start: Instant::now(),
        };
        let readings = self.before.iter().chain(after);
        sustained::sustain_at_limit(readings, &mut graphs, self.arms.len())
    }
}

/// The graphs of a session's arms.
struct Graphs<'s, 'a, 'd> {
    session: &'s Session<'a, 'd>,
    start: Instant,
}

impl Stand for Graphs<'_, '_, '_> {
    type Error = CudaError;

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn chunk(&mut self, arm: usize) -> Result<Chunk, CudaError> {
        self.session.arms[arm].chunk(CHUNK)
    }
}
