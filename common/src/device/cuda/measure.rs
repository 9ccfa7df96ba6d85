//! Timing sessions: arms whose graphs are replayed in turns.

mod sustained;

use super::arm::microseconds;
use super::{Arm, CudaDevice, CudaError, RotatedOutput};
use crate::telemetry::Reading;
use crate::timing::race::race;
use crate::timing::stats::{Summary, percentile};
use crate::timing::sustained::{Load, Sustained};
use crate::timing::{self, Comparison, HostCheck, Measurement, Plan, Regime, falsifying_variable};
use cudarc::driver::sys::{self, CUlimit, CUresult};
use cudarc::driver::{CudaEvent, DriverError};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// An arm's times, and outputs that are to be judged.
#[derive(Clone, Debug)]
pub struct Timed {
    pub measurement: Measurement,
    /// The outputs that the timed launches left, then those of one more replay after fresh poison.
    pub outputs: Vec<RotatedOutput>,
}

/// Two arms that were timed in turns.
#[derive(Clone, Debug)]
pub struct TimedPair {
    pub comparison: Comparison,
    /// The readings of the new arm, where one arm reached the power limit and both were timed
    /// sustained. Otherwise the comparison is that of the burst.
    pub sustained: Option<Load>,
    pub base_outputs: Vec<RotatedOutput>,
    pub new_outputs: Vec<RotatedOutput>,
}

/// The time of an arm, or why it has none; see [`CudaDevice::rank`].
pub type RankedArm = Result<Ranked, CudaError>;

/// The time of one of many arms; see [`CudaDevice::rank`].
#[derive(Clone, Debug)]
pub struct Ranked {
    pub us: f64,
    /// The outputs of one replay after fresh poison, of one set for each contents.
    pub outputs: Vec<RotatedOutput>,
}

/// The length of a run for a telemetry reading and a host check.
const LONG_RUN_US: f64 = 20_000.0;

/// The time that a host which was late gets before the timer is checked again.
const LATE_HOST_PAUSE: Duration = Duration::from_millis(100);

impl CudaDevice {
    pub fn measure<'d>(&'d self, arm: &mut Arm<'d>, plan: &Plan) -> Result<Timed, CudaError> {
        let session = Session::start(self, vec![arm], plan)?;
        let samples = session.device_samples()?;
        Ok(session.end(samples)?.swap_remove(0))
    }

    /// Times two arms on the same inputs, interleaved (A B B A); once more if the first session is
    /// too noisy to decide a claim.
    pub fn measure_pair<'d>(
        &'d self,
        base: &mut Arm<'d>,
        new: &mut Arm<'d>,
        plan: &Plan,
    ) -> Result<TimedPair, CudaError> {
        let shares_pool = match (&base.pool, &new.pool) {
            (Some(a), Some(b)) => Rc::ptr_eq(a, b),
            (None, None) => true,
            _ => false,
        };
        if !shares_pool {
            return Err(CudaError::Unlike {
                base: base.label(),
                new: new.label(),
            });
        }
        let launch = Box::new(new.kernel.name.clone());
        let compare = |samples: &[Vec<f64>]| {
            Comparison::new(&samples[0], &samples[1]).map_err(|error| CudaError::Samples {
                launch: launch.clone(),
                error,
            })
        };
        let session = Session::start(self, vec![base, new], plan)?;
        let mut samples = session.device_samples()?;
        let mut comparison = compare(&samples)?;
        if comparison.is_noisy() {
            samples = session.device_samples()?;
            comparison = compare(&samples)?;
        }
        let mut timed = session.end(samples)?;
        let timed_new = timed.swap_remove(1);
        let timed_base = timed.swap_remove(0);
        let mut sustained = None;
        if let (Some(base_counted), Some(new_counted)) = (
            &timed_base.measurement.sustained,
            &timed_new.measurement.sustained,
        ) {
            comparison = compare(&[base_counted.us.clone(), new_counted.us.clone()])?;
            sustained = Some(new_counted.load);
        }
        Ok(TimedPair {
            comparison,
            sustained,
            base_outputs: timed_base.outputs,
            new_outputs: timed_new.outputs,
        })
    }

    /// Times arms to rank them, not to judge a claim, in a [`race`] out of which the `chosen` arm
    /// never drops. An arm that fails has its error in place of a time.
    ///
    /// # Errors
    ///
    /// The GPU cannot be used any more.
    pub fn rank<'d>(
        &'d self,
        arms: Vec<Result<Arm<'d>, CudaError>>,
        chosen: Option<usize>,
        plan: &Plan,
    ) -> Result<Vec<RankedArm>, CudaError> {
        self.prepare_to_time()?;
        let events = self.timing_events(2)?;
        let mut prepared: Vec<Result<Arm<'d>, CudaError>> = Vec::new();
        for slot in arms {
            prepared.push(slot.and_then(|mut arm| {
                arm.build_graph(plan)?;
                Ok(arm)
            }));
            self.check_usable()?;
        }
        let samples = race(prepared.len(), chosen, |index| {
            // After a hang every further launch would wait for the watchdog.
            self.check_usable().ok()?;
            let sample = prepared[index].as_ref().ok()?.sample(&events);
            match sample {
                Ok(us) => Some(us),
                Err(error) => {
                    prepared[index] = Err(error);
                    None
                }
            }
        });
        self.check_usable()?;
        let ranked = prepared
            .into_iter()
            .zip(samples)
            .map(|(arm, us)| arm?.rank(us, &events))
            .collect();
        self.check_usable()?;
        Ok(ranked)
    }

    /// Times an empty kernel both ways: what the method itself costs.
    pub fn zero_line(&self, plan: &Plan) -> Result<Measurement, CudaError> {
        Ok(self.measure(&mut self.noop_arm(None)?, plan)?.measurement)
    }

    pub(super) fn prepare_to_time(&self) -> Result<(), CudaError> {
        if let Some((variable, remedy)) = falsifying_variable(|name| std::env::var(name).ok()) {
            return Err(CudaError::Environment { variable, remedy });
        }
        self.reset_persisting_l2()
    }

    /// Returns all of L2 to normal use: an earlier process may have set a part aside.
    fn reset_persisting_l2(&self) -> Result<(), CudaError> {
        let reset = self.context.bind_to_thread().and_then(|()| {
            // SAFETY: takes nothing and acts on the current context, which was just bound.
            unsafe { sys::cuCtxResetPersistingL2Cache() }.result()?;
            self.context
                .set_limit(CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
        });
        match reset {
            // A GPU without the feature has nothing to reset.
            Err(DriverError(
                CUresult::CUDA_ERROR_NOT_SUPPORTED | CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT,
            )) => Ok(()),
            Err(error) => Err(self.driver_error("resetting the persisting L2 cache", error)),
            Ok(()) => Ok(()),
        }
    }
}

impl Arm<'_> {
    pub fn graph_launches(&mut self, plan: &Plan) -> Result<usize, CudaError> {
        self.device.prepare_to_time()?;
        self.build_graph(plan)?;
        Ok(self.timed_graph()?.launches)
    }

    /// Summarises samples, and fills the outputs once more.
    fn rank(mut self, mut samples: Vec<f64>, events: &[CudaEvent]) -> RankedArm {
        samples.sort_unstable_by(f64::total_cmp);
        self.poison()?;
        self.sample(events)?;
        let contents = match &self.pool {
            Some(pool) => pool.contents().len(),
            None => 0,
        };
        let mut outputs = Vec::new();
        self.collect_outputs_of(contents, &mut outputs)?;
        Ok(Ranked {
            us: percentile(&samples, 0.5),
            outputs,
        })
    }
}

/// The samples of each arm, in microseconds.
type SamplesOfArms = Vec<Vec<f64>>;

/// Arms with graphs built and clocks warm.
struct Session<'a, 'd> {
    device: &'d CudaDevice,
    arms: Vec<&'a mut Arm<'d>>,
    /// The order of the arms within a round.
    order: &'static [usize],
    plan: Plan,
    /// The number of launches in each arm's graph.
    launches: usize,
    /// One event more than `order` is long.
    events: Vec<CudaEvent>,
    /// The device time of one round.
    round: Duration,
    /// The time for which the stream is held while the host submits a round, so that no sample
    /// waits for the host.
    lead_in: Duration,
    warmed: WarmUp,
    /// The conditions of each arm before the samples.
    before: Vec<Reading>,
}

/// The rounds before the first sample.
#[derive(Default)]
struct WarmUp {
    length: Duration,
    /// The launches of each arm.
    launches: usize,
}

impl<'a, 'd> Session<'a, 'd> {
    fn start(
        device: &'d CudaDevice,
        mut arms: Vec<&'a mut Arm<'d>>,
        plan: &Plan,
    ) -> Result<Self, CudaError> {
        let order = timing::order(arms.len());
        device.check_usable()?;
        if let Some(arm) = arms.iter().find(|arm| !std::ptr::eq(arm.device, device)) {
            return Err(CudaError::Foreign { arm: arm.label() });
        }
        device.prepare_to_time()?;
        for arm in &mut arms {
            arm.poison()?;
            arm.build_graph(plan)?;
        }
        // Equal graphs: a replay costs some microseconds of its own, which would favour the arm
        // with more launches.
        let mut launches = 0;
        for arm in &arms {
            launches = launches.max(arm.timed_graph()?.launches);
        }
        if arms.len() > 1 {
            for arm in &mut arms {
                arm.resize_graph(launches)?;
            }
        }
        let mut round_us = 0.0;
        for &arm in order {
            round_us += arms[arm].timed_graph()?.launch_us * launches as f64;
        }
        let mut session = Self {
            device,
            arms,
            order,
            plan: plan.clone(),
            launches,
            events: device.timing_events(order.len() + 1)?,
            round: microseconds(round_us),
            lead_in: Duration::ZERO,
            warmed: WarmUp::default(),
            before: Vec::new(),
        };
        session.warm_up(&plan.before_reading())?;
        session.before = session.conditions_under_load()?;
        if Regime::needed(&session.before) == Regime::Sustained {
            session.plan = session.plan.before_sustained();
        } else if !session.is_warm(plan) {
            session.warm_up(plan)?;
            session.before = session.conditions_under_load()?;
        }
        Ok(session)
    }

    /// Runs rounds until clocks have settled, and learns how long the host takes to submit one.
    fn warm_up(&mut self, plan: &Plan) -> Result<(), CudaError> {
        let longest = plan.warm_up.max(plan.budget / 2);
        let mut submissions_us = Vec::new();
        loop {
            let start = Instant::now();
            submissions_us.push(CudaDevice::host_us(|| self.submit_round())?);
            self.wait_round()?;
            self.warmed.launches += self.replays_per_arm() * self.launches;
            self.warmed.length += start.elapsed();
            if self.is_warm(plan) || self.warmed.length >= longest {
                break;
            }
        }
        submissions_us.sort_unstable_by(f64::total_cmp);
        let lead_in_us = 1.5 * percentile(&submissions_us, 0.9) + 10.0;
        self.lead_in = microseconds(lead_in_us.clamp(20.0, 5_000.0));
        Ok(())
    }

    fn is_warm(&self, plan: &Plan) -> bool {
        self.warmed.length >= plan.warm_up && self.warmed.launches >= plan.warm_up_launches
    }

    fn replays_per_arm(&self) -> usize {
        self.order.len() / self.arms.len()
    }

    fn submit_round(&self) -> Result<(), CudaError> {
        self.device.record(&self.events[0])?;
        for (&arm, end) in self.order.iter().zip(&self.events[1..]) {
            self.arms[arm].replay()?;
            self.device.record(end)?;
        }
        Ok(())
    }

    fn wait_round(&self) -> Result<(), CudaError> {
        // With two arms a hang is attributed to the candidate, the new arm.
        let candidate = &self.arms[self.arms.len() - 1];
        let end = &self.events[self.order.len()];
        let expected = 2 * self.round + self.lead_in;
        self.device.wait(end, &candidate.kernel.name, expected)
    }

    fn device_samples(&self) -> Result<SamplesOfArms, CudaError> {
        let per_arm = self.replays_per_arm();
        let expected_us = (self.round + self.lead_in).as_secs_f64() * 1e6 + 30.0;
        let samples = self
            .plan
            .samples_within_budget(expected_us / per_arm as f64);
        let mut samples_of_arms = vec![Vec::with_capacity(samples); self.arms.len()];
        for _ in 0..samples.div_ceil(per_arm) {
            self.device.enqueue_spin(self.lead_in)?;
            self.submit_round()?;
            self.wait_round()?;
            let mut round_us = Vec::with_capacity(self.order.len());
            for ends in self.events.windows(2) {
                round_us.push(self.device.elapsed_us(&ends[0], &ends[1])?);
            }
            share_out(&round_us, self.order, self.launches, &mut samples_of_arms);
        }
        Ok(samples_of_arms)
    }

    fn single_samples(&self) -> Result<SamplesOfArms, CudaError> {
        let mut launch_us = 0.0f64;
        for arm in &self.arms {
            launch_us = launch_us.max(arm.timed_graph()?.launch_us);
        }
        let plan = Plan {
            budget: self.plan.budget / 4,
            ..self.plan.clone()
        };
        let per_arm = self.replays_per_arm();
        let samples = plan.samples_within_budget((launch_us + 30.0) * self.arms.len() as f64);
        let expected = microseconds(2.0 * launch_us);
        let mut samples_of_arms = vec![Vec::with_capacity(samples); self.arms.len()];
        for _ in 0..samples.div_ceil(per_arm) {
            for &index in self.order {
                let arm = &self.arms[index];
                let launch = arm.time(&self.events, expected, || arm.enqueue_next())?;
                samples_of_arms[index].push(launch.us);
            }
        }
        Ok(samples_of_arms)
    }

    /// Replays `arm` for [`LONG_RUN_US`] and calls `meanwhile` once the replays are submitted;
    /// beside it the second event is not punctual.
    fn long_run<T>(
        &self,
        arm: &Arm<'d>,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<LongRun<T>, CudaError> {
        let replay_us = arm.timed_graph()?.launch_us * self.launches as f64;
        let replays = (LONG_RUN_US / replay_us).ceil().clamp(1.0, 1000.0) as usize;
        let expected = microseconds(2.0 * replays as f64 * replay_us);
        let submitted = arm.time(&self.events, expected, || {
            (0..replays).try_for_each(|_| arm.replay())?;
            Ok(meanwhile())
        })?;
        Ok(LongRun {
            us: submitted.us,
            launches: replays * self.launches,
            result: submitted.result,
        })
    }

    fn conditions_under_load(&self) -> Result<Vec<Reading>, CudaError> {
        let mut readings = Vec::with_capacity(self.arms.len());
        for arm in &self.arms {
            let run = self.long_run(arm, || self.device.conditions())?;
            readings.push(run.result);
        }
        Ok(readings)
    }

    fn host_check(&self, arm: &Arm<'d>) -> Result<HostCheck, CudaError> {
        HostCheck::retried(LATE_HOST_PAUSE, || {
            let start = Instant::now();
            let run = self.long_run(arm, || ())?;
            Ok(HostCheck {
                event_ms: run.us / 1e3,
                wall_ms: start.elapsed().as_secs_f64() * 1e3,
                launch_us: run.us / run.launches as f64,
            })
        })
    }

    /// Ends the session: times single launches, checks the timer, and collects outputs.
    fn end(mut self, device_samples: SamplesOfArms) -> Result<Vec<Timed>, CudaError> {
        let samples_of_singles = self.single_samples()?;
        let mut checks = Vec::with_capacity(self.arms.len());
        for arm in &self.arms {
            checks.push(self.host_check(arm)?);
        }
        let after = self.conditions_under_load()?;
        let mut bursts = Vec::with_capacity(self.arms.len());
        for (arm, samples) in self.arms.iter().zip(&device_samples) {
            bursts.push(summary(arm, samples)?);
        }
        let mut sustained_arms = None;
        if !self.plan.is_beaten(bursts[0].p50) {
            sustained_arms = self.sustain_at_limit(&after)?.map(Vec::into_iter);
        }
        let mut timed = Vec::with_capacity(self.arms.len());
        for (index, arm) in self.arms.iter_mut().enumerate() {
            let mut device = bursts[index];
            if let Some(reason) = checks[index].contradiction(device.p50) {
                return Err(CudaError::Timer {
                    launch: Box::new(arm.kernel.name.clone()),
                    reason,
                });
            }
            let counted = sustained_arms.as_mut().and_then(Iterator::next);
            if let Some(Sustained { us, .. }) = &counted {
                device = summary(arm, us)?;
            }
            let mut outputs = Vec::new();
            arm.collect_outputs(&mut outputs)?;
            arm.poison()?;
            arm.replay()?;
            self.device.finish(&arm.kernel.name, 2 * self.round)?;
            arm.collect_outputs(&mut outputs)?;
            let measurement = Measurement {
                rotation: arm.rotation(),
                single: summary(arm, &samples_of_singles[index])?,
                device,
                conditions: [self.before[index], after[index]],
                sustained: counted,
            };
            timed.push(Timed {
                measurement,
                outputs,
            });
        }
        Ok(timed)
    }
}

/// A run of replays that is long enough for telemetry and for the host's clock.
struct LongRun<T> {
    us: f64,
    launches: usize,
    /// The value that was returned meanwhile.
    result: T,
}

fn summary(arm: &Arm<'_>, samples: &[f64]) -> Result<Summary, CudaError> {
    Summary::new(samples).map_err(|error| CudaError::Samples {
        launch: Box::new(arm.kernel.name.clone()),
        error,
    })
}

/// Adds the times per launch of one round to the samples of its arms: `round_us` are the replays in
/// `order`, of `launches` each.
fn share_out(
    round_us: &[f64],
    order: &[usize],
    launches: usize,
    samples_of_arms: &mut SamplesOfArms,
) {
    for (&us, &arm) in round_us.iter().zip(order) {
        samples_of_arms[arm].push(us / launches as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replay_of_a_round_is_a_sample_of_its_own_arm() {
        let mut samples_of_arms = vec![Vec::new(); 2];
        for round_us in [[10.0, 40.0, 44.0, 12.0], [14.0, 48.0, 52.0, 16.0]] {
            share_out(&round_us, timing::order(2), 2, &mut samples_of_arms);
        }
        assert_eq!(
            samples_of_arms,
            [vec![5.0, 6.0, 7.0, 8.0], vec![20.0, 22.0, 24.0, 26.0]]
        );
    }
}
