mod sustained;

use super::arm::microseconds;
use super::{Arm, CudaDevice, CudaError, RotatedOutput};
use crate::telemetry::Reading;
use crate::timing::stats::{SampleError, Summary, percentile};
use crate::timing::sustained::Load;
use crate::timing::{Comparison, HostCheck, Measurement, Plan, falsifying_variable, order};
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::{self, CUlimit, CUresult};
use std::rc::Rc;
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct Timed {
    pub measurement: Measurement,
    /// As the timed launches left them, then as one more replay fills them after fresh poison; all to be judged.
    pub outputs: Vec<RotatedOutput>,
}

#[derive(Clone, Debug)]
pub struct TimedPair {
    pub comparison: Comparison,
    /// What was read of the new arm, where one arm reached the power limit and both were timed
    /// sustained. Otherwise the comparison is of the burst.
    pub sustained: Option<Load>,
    pub base_outputs: Vec<RotatedOutput>,
    pub new_outputs: Vec<RotatedOutput>,
}

/// What one of many arms takes; see [`CudaDevice::rank`].
#[derive(Clone, Debug)]
pub struct Ranked {
    pub us: f64,
    /// As [`Timed::outputs`], of one set for each contents.
    pub outputs: Vec<RotatedOutput>,
}

/// Samples of an arm that is ranked.
const ROUNDS: usize = 9;

/// An arm that takes this many times as long as the fastest has one sample.
const HOPELESS: f64 = 2.0;

/// For a telemetry reading and a host check.
const LONG_RUN_US: f64 = 20_000.0;

impl CudaDevice {
    pub fn measure<'d>(&'d self, arm: &mut Arm<'d>, plan: &Plan) -> Result<Timed, CudaError> {
        let session = Session::start(self, vec![arm], plan)?;
        let samples = session.device_samples()?;
        Ok(session.end(samples)?.swap_remove(0))
    }

    /// Two arms on the same inputs, interleaved (A B B A). Repeated once if too noisy to decide a claim.
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
        let name = Box::new(new.kernel.name.clone());
        let compare = |samples: &[Vec<f64>]| {
            Comparison::of(&samples[0], &samples[1]).map_err(|error| CudaError::Samples {
                launch: name.clone(),
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
        let (new, base) = (timed.swap_remove(1), timed.swap_remove(0));
        let (base_load, new_load) = (&base.measurement.sustained, &new.measurement.sustained);
        let mut sustained = None;
        if let (Some(base), Some(new)) = (base_load, new_load) {
            comparison = compare(&[base.us.clone(), new.us.clone()])?;
            sustained = Some(new.load);
        }
        Ok(TimedPair {
            comparison,
            sustained,
            base_outputs: base.outputs,
            new_outputs: new.outputs,
        })
    }

    /// To rank arms, not to judge a claim. An arm that fails has its error in place of a time. Errors: the GPU cannot be used
    /// any more.
    pub fn rank<'d>(
        &'d self,
        arms: Vec<Result<Arm<'d>, CudaError>>,
        plan: &Plan,
    ) -> Result<Vec<Result<Ranked, CudaError>>, CudaError> {
        self.prepare_to_time()?;
        let events = self.timing_events(2)?;
        let built = arms.into_iter().map(|arm| {
            let mut arm = arm?;
            arm.poison()?;
            arm.build_graph(plan)?;
            Ok((arm, Vec::new()))
        });
        let mut arms: Vec<Result<(Arm<'d>, Vec<f64>), CudaError>> = built.collect();
        // The first round warms up.
        for round in 0..=ROUNDS {
            let firsts = arms.iter().flatten().filter_map(|(_, us)| us.first());
            let hopeless = HOPELESS * firsts.copied().fold(f64::INFINITY, f64::min);
            for slot in &mut arms {
                let Ok((arm, us)) = slot else { continue };
                if us.first().is_some_and(|first| *first > hopeless) {
                    continue;
                }
                match arm.sample(&events) {
                    Ok(_) if round == 0 => {}
                    Ok(sample) => us.push(sample),
                    Err(error) => *slot = Err(error),
                }
            }
            self.check_usable()?;
        }
        let ranked = arms.into_iter().map(|slot| {
            let (mut arm, mut us) = slot?;
            us.sort_unstable_by(f64::total_cmp);
            arm.poison()?;
            arm.sample(&events)?;
            let mut outputs = Vec::new();
            let contents = arm.pool.as_ref().map_or(0, |pool| pool.contents().len());
            arm.collect_outputs_of(contents, &mut outputs)?;
            Ok(Ranked {
                us: percentile(&us, 0.5),
                outputs,
            })
        });
        let ranked = ranked.collect();
        self.check_usable()?;
        Ok(ranked)
    }

    /// An empty kernel, both ways: what the method itself costs.
    pub fn zero_line(&self, plan: &Plan) -> Result<Measurement, CudaError> {
        Ok(self.measure(&mut self.noop_arm(None)?, plan)?.measurement)
    }

    pub(super) fn prepare_to_time(&self) -> Result<(), CudaError> {
        if let Some((variable, remedy)) = falsifying_variable(|name| std::env::var(name).ok()) {
            return Err(CudaError::Environment { variable, remedy });
        }
        self.reset_persisting_l2()
    }

    /// An earlier process may have set a part aside.
    fn reset_persisting_l2(&self) -> Result<(), CudaError> {
        let bound = self.context.bind_to_thread();
        let reset = bound.and_then(|()| {
            // SAFETY: takes nothing and acts on the current context, which was just bound.
            unsafe { sys::cuCtxResetPersistingL2Cache() }.result()?;
            self.context
                .set_limit(CUlimit::CU_LIMIT_PERSISTING_L2_CACHE_SIZE, 0)
        });
        match reset {
            // A GPU without the feature has nothing to reset.
            Err(error)
                if matches!(
                    error.0,
                    CUresult::CUDA_ERROR_NOT_SUPPORTED | CUresult::CUDA_ERROR_UNSUPPORTED_LIMIT
                ) =>
            {
                Ok(())
            }
            other => {
                other.map_err(|error| self.driver_error("resetting the persisting L2 cache", error))
            }
        }
    }
}

impl Arm<'_> {
    pub fn graph_launches(&mut self, plan: &Plan) -> Result<usize, CudaError> {
        self.device.prepare_to_time()?;
        self.build_graph(plan)?;
        Ok(self.timed_graph()?.launches)
    }
}

/// Arms with graphs built and clocks warm.
struct Session<'a, 'd> {
    device: &'d CudaDevice,
    arms: Vec<&'a mut Arm<'d>>,
    /// Of the arms within a round.
    order: &'static [usize],
    plan: &'a Plan,
    launches: usize,
    /// One more than `order` is long.
    events: Vec<CudaEvent>,
    /// Device time of one round.
    round: Duration,
    /// While the host submits a round, so that no sample waits for the host.
    lead_in: Duration,
    before: Vec<Reading>,
}

impl<'a, 'd> Session<'a, 'd> {
    fn start(
        device: &'d CudaDevice,
        mut arms: Vec<&'a mut Arm<'d>>,
        plan: &'a Plan,
    ) -> Result<Self, CudaError> {
        let order = order(arms.len());
        device.check_usable()?;
        if let Some(arm) = arms.iter().find(|arm| !std::ptr::eq(arm.device, device)) {
            return Err(CudaError::Foreign { arm: arm.label() });
        }
        device.prepare_to_time()?;
        for arm in &mut arms {
            arm.poison()?;
            arm.build_graph(plan)?;
        }
        // Equal graphs: a replay costs some microseconds of its own, which would favour the arm with more launches.
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
            plan,
            launches,
            events: device.timing_events(order.len() + 1)?,
            round: microseconds(round_us),
            lead_in: Duration::ZERO,
            before: Vec::new(),
        };
        session.warm_up()?;
        session.before = session.conditions_under_load()?;
        Ok(session)
    }

    /// Until clocks have settled, and learns how long the host takes to submit a round.
    fn warm_up(&mut self) -> Result<(), CudaError> {
        let start = Instant::now();
        let (mut submissions, mut launched) = (Vec::new(), 0);
        loop {
            submissions.push(CudaDevice::host_us(|| self.submit_round())?);
            self.wait_round()?;
            launched += self.replays_per_arm() * self.launches;
            let elapsed = start.elapsed();
            let enough = elapsed >= self.plan.warm_up && launched >= self.plan.warm_up_launches;
            if enough || elapsed >= self.plan.warm_up.max(self.plan.budget / 2) {
                break;
            }
        }
        submissions.sort_unstable_by(f64::total_cmp);
        let lead_in = (1.5 * percentile(&submissions, 0.9) + 10.0).clamp(20.0, 5_000.0);
        self.lead_in = microseconds(lead_in);
        Ok(())
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
        let name = &self.arms[self.arms.len() - 1].kernel.name;
        self.device.wait(
            &self.events[self.order.len()],
            name,
            2 * self.round + self.lead_in,
        )
    }

    fn device_samples(&self) -> Result<Vec<Vec<f64>>, CudaError> {
        let per_arm = self.replays_per_arm();
        let round_us = (self.round + self.lead_in).as_secs_f64() * 1e6 + 30.0;
        let samples = self.plan.samples_within_budget(round_us / per_arm as f64);
        let mut taken = vec![Vec::with_capacity(samples); self.arms.len()];
        for _ in 0..samples.div_ceil(per_arm) {
            self.device.enqueue_spin(self.lead_in)?;
            self.submit_round()?;
            self.wait_round()?;
            let between = |events: &[CudaEvent]| self.device.elapsed_us(&events[0], &events[1]);
            let round_us = self
                .events
                .windows(2)
                .map(between)
                .collect::<Result<Vec<_>, _>>()?;
            share_out(&round_us, self.order, self.launches, &mut taken);
        }
        Ok(taken)
    }

    fn single_samples(&self) -> Result<Vec<Vec<f64>>, CudaError> {
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
        let mut taken = vec![Vec::with_capacity(samples); self.arms.len()];
        for _ in 0..samples.div_ceil(per_arm) {
            for &at in self.order {
                let (arm, expected) = (&self.arms[at], microseconds(2.0 * launch_us));
                let (us, ()) = arm.time(&self.events, expected, || arm.enqueue_next())?;
                taken[at].push(us);
            }
        }
        Ok(taken)
    }

    /// Replays of `arm` that fill [`LONG_RUN_US`]: microseconds, launches, and what `meanwhile` returned, beside which the
    /// second event is not punctual.
    fn long_run<T>(
        &self,
        arm: &Arm<'d>,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(f64, usize, T), CudaError> {
        let replay_us = arm.timed_graph()?.launch_us * self.launches as f64;
        let replays = (LONG_RUN_US / replay_us).ceil().clamp(1.0, 1000.0) as usize;
        let expected = microseconds(2.0 * replays as f64 * replay_us);
        let (us, result) = arm.time(&self.events, expected, || {
            (0..replays).try_for_each(|_| arm.replay())?;
            Ok(meanwhile())
        })?;
        Ok((us, replays * self.launches, result))
    }

    fn conditions_under_load(&self) -> Result<Vec<Reading>, CudaError> {
        self.arms
            .iter()
            .map(|arm| Ok(self.long_run(arm, || self.device.conditions())?.2))
            .collect()
    }

    fn host_check(&self, arm: &Arm<'d>) -> Result<HostCheck, CudaError> {
        HostCheck::retried(|| {
            let start = Instant::now();
            let (event_us, launches, ()) = self.long_run(arm, || ())?;
            Ok(HostCheck {
                event_ms: event_us / 1e3,
                wall_ms: start.elapsed().as_secs_f64() * 1e3,
                launch_us: event_us / launches as f64,
            })
        })
    }

    fn end(mut self, device_samples: Vec<Vec<f64>>) -> Result<Vec<Timed>, CudaError> {
        let single_samples = self.single_samples()?;
        let checks = self
            .arms
            .iter()
            .map(|arm| self.host_check(arm))
            .collect::<Result<Vec<_>, _>>()?;
        let after = self.conditions_under_load()?;
        let mut sustained = self.sustain_at_limit(&after)?.map(Vec::into_iter);
        let mut timed = Vec::with_capacity(self.arms.len());
        for (index, (device_us, single_us)) in
            device_samples.into_iter().zip(single_samples).enumerate()
        {
            let arm = &mut *self.arms[index];
            let launch = Box::new(arm.kernel.name.clone());
            let summary = |samples: &[f64]| {
                Summary::of(samples).map_err(|error: SampleError| CudaError::Samples {
                    launch: launch.clone(),
                    error,
                })
            };
            let mut device = summary(&device_us)?;
            if let Some(reason) = checks[index].contradiction(device.p50) {
                return Err(CudaError::Timer { launch, reason });
            }
            let sustained = sustained.as_mut().and_then(Iterator::next);
            if let Some(sustained) = &sustained {
                device = summary(&sustained.us)?;
            }
            let mut outputs = Vec::new();
            arm.collect_outputs(&mut outputs)?;
            arm.poison()?;
            arm.replay()?;
            self.device.finish(&arm.kernel.name, 2 * self.round)?;
            arm.collect_outputs(&mut outputs)?;
            let measurement = Measurement {
                rotation: arm.rotation(),
                single: summary(&single_us)?,
                device,
                conditions: [self.before[index], after[index]],
                sustained,
            };
            timed.push(Timed {
                measurement,
                outputs,
            });
        }
        Ok(timed)
    }
}

/// Time per launch of every arm: `round_us` are one round's replays in `order`, of `launches` each.
fn share_out(round_us: &[f64], order: &[usize], launches: usize, taken: &mut [Vec<f64>]) {
    for (&us, &arm) in round_us.iter().zip(order) {
        taken[arm].push(us / launches as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replay_of_a_round_is_a_sample_of_its_own_arm() {
        let mut taken = vec![Vec::new(); 2];
        for round_us in [[10.0, 40.0, 44.0, 12.0], [14.0, 48.0, 52.0, 16.0]] {
            share_out(&round_us, order(2), 2, &mut taken);
        }
        assert_eq!(
            taken,
            [vec![5.0, 6.0, 7.0, 8.0], vec![20.0, 22.0, 24.0, 26.0]]
        );
    }
}
