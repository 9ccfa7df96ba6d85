//! Arms of both processes that take turns at the power limit.

use super::arm::{Arm, ArmError, Program};
use super::session::Python;
use common::device::cuda::CudaDevice;
use common::telemetry::Reading;
use common::timing::sustained::{CHUNK, Chunk, Stand};
use serde_json::json;
use std::thread;
use std::time::{Duration, Instant};

/// The time after which another process has submitted a chunk, and the GPU works on it.
const UNDER_LOAD: Duration = Duration::from_millis(20);

/// Arms that take turns.
pub(super) struct Turns<'t, 'a, 'p> {
    pub device: &'t CudaDevice,
    pub arms: Vec<&'t mut Arm<'a>>,
    /// The number of launches in each graph.
    pub launches: usize,
    pub pythons: &'t mut [&'p mut Python],
    pub start: Instant,
}

impl Stand for Turns<'_, '_, '_> {
    type Error = ArmError;

    fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    fn chunk(&mut self, index: usize) -> Result<Chunk, ArmError> {
        let Arm {
            subject,
            program,
            us: launch_us,
            ..
        } = &mut *self.arms[index];
        let (python, reported) = match program {
            Program::Ours { arm, .. } => return Ok(arm.chunk(CHUNK)?),
            Program::Theirs { python, reported } => (*python, reported),
        };
        let graph_us = *launch_us * self.launches as f64;
        let chunk_us = CHUNK.as_secs_f64() * 1e6;
        let replays = (chunk_us / graph_us.max(1.0)).ceil().max(1.0) as usize;
        let launches = replays * self.launches;
        let mut reading = Reading::default();
        let arguments = json!({ "peer": subject, "replays": replays });
        let start = Instant::now();
        let call_us: f64 = self.pythons[python]
            .ask_meanwhile("steady", arguments, || {
                thread::sleep(UNDER_LOAD);
                reading = self.device.conditions();
            })
            .map_err(|error| ArmError::Python {
                index: python,
                error: error.into(),
            })?;
        let us = call_us * launches as f64;
        reported.push(us / (start.elapsed().as_secs_f64() * 1e6));
        Ok(Chunk {
            us,
            launches,
            reading,
        })
    }
}
