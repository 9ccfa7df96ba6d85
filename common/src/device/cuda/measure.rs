//! Sampling: device time of graphs, single launches, and the checks around them.

use super::arm::microseconds;
use super::{Arm, CudaDevice, CudaError, RotatedOutput};
use crate::telemetry::Conditions;
use crate::timing::stats::{SampleError, Summary, percentile};
use crate::timing::{Comparison, HostCheck, Measurement, Plan, falsifying_variable, order};
use cudarc::driver::CudaEvent;
use cudarc::driver::sys::{self, CUlimit, CUresult};
use std::rc::Rc;
use std::time::{Duration, Instant};

/// One arm, measured, and what lies in the buffers that were timed.
#[derive(Clone, Debug)]
pub struct Timed {
    /// The figures.
    pub measurement: Measurement,
    /// Every rotated output, first as the timed launches left it, then as one more replay of the timed graph fills it
    /// after fresh poison. Equal ones are merged. The gates must judge all of them before a figure is printed.
    pub outputs: Vec<RotatedOutput>,
}

/// Two arms, interleaved.
#[derive(Clone, Debug)]
pub struct TimedPair {
    /// The figures.
    pub comparison: Comparison,
    /// The outputs of the base, as [`Timed::outputs`].
    pub base_outputs: Vec<RotatedOutput>,
    /// The outputs of the candidate.
    pub new_outputs: Vec<RotatedOutput>,
}

/// What one launch into an idle stream costs, in microseconds, sample by sample.
#[derive(Clone, Debug, PartialEq)]
pub struct Calls {
    /// Between the events before and after it.
    pub single_us: Vec<f64>,
    /// Of the host, until the launch is in the stream.
    pub host_us: Vec<f64>,
}

/// Device time that a telemetry reading and a host check are taken over.
const LONG_RUN_US: f64 = 20_000.0;

impl CudaDevice {
    /// Times one arm.
    pub fn measure<'d>(&'d self, arm: &mut Arm<'d>, plan: &Plan) -> Result<Timed, CudaError> {
        let session = Session::start(self, vec![arm], plan)?;
        let samples = session.device_samples()?;
        let mut timed = session.end(samples)?;
        // A session ends with one entry per arm.
        timed.pop().ok_or(CudaError::Sets {
            sets: 0,
            problems: 0,
        })
    }

    /// Times two arms on the same inputs, interleaved (A B B A), on graphs built beforehand. A comparison that is too
    /// noisy to decide a claim is repeated once.
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
        let (Some(new), Some(base)) = (timed.pop(), timed.pop()) else {
            return Err(CudaError::Sets {
                sets: 0,
                problems: 0,
            });
        };
        Ok(TimedPair {
            comparison,
            base_outputs: base.outputs,
            new_outputs: new.outputs,
        })
    }

    /// Times an empty kernel both ways: what the method itself costs.
    pub fn zero_line(&self, plan: &Plan) -> Result<Measurement, CudaError> {
        Ok(self.measure(&mut self.noop_arm(None)?, plan)?.measurement)
    }

    /// Refuses an environment that falsifies timings, and brings the L2 cache into its usual state.
    pub(super) fn prepare_to_time(&self) -> Result<(), CudaError> {
        if let Some((variable, remedy)) = falsifying_variable(|name| std::env::var(name).ok()) {
            return Err(CudaError::Environment { variable, remedy });
        }
        self.reset_persisting_l2()
    }

    /// Frees the part of the L2 cache that an earlier process may have set aside, and sets none aside.
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
    /// Launches of the graph that `plan` asks for, built now if need be.
    pub fn graph_launches(&mut self, plan: &Plan) -> Result<usize, CudaError> {
        self.device.prepare_to_time()?;
        self.build_graph(plan)?;
        Ok(self.timed_graph()?.launches)
    }

    /// Calls the kernel `samples` times, each time when the one before has ended.
    pub fn calls(&mut self, samples: usize) -> Result<Calls, CudaError> {
        let (start, end) = (self.device.timing_event()?, self.device.timing_event()?);
        let mut calls = Calls {
            single_us: Vec::with_capacity(samples),
            host_us: Vec::with_capacity(samples),
        };
        for _ in 0..samples {
            self.device.record(&start)?;
            calls
                .host_us
                .push(CudaDevice::host_us(|| self.enqueue_next())?);
            self.device.record(&end)?;
            self.device.wait(&end, &self.kernel.name, Duration::ZERO)?;
            calls.single_us.push(self.device.elapsed_us(&start, &end)?);
        }
        Ok(calls)
    }
}

/// A measurement in progress: arms with graphs built and clocks warm.
struct Session<'a, 'd> {
    device: &'d CudaDevice,
    arms: Vec<&'a mut Arm<'d>>,
    /// Which arm is sampled when within a round.
    order: &'static [usize],
    plan: &'a Plan,
    /// One more than `order` is long.
    events: Vec<CudaEvent>,
    /// What one round takes on the device.
    round: Duration,
    /// How long the stream is held while the host submits a round, so that no sample waits for the host.
    lead_in: Duration,
    before: Vec<Conditions>,
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
        let launches = arms
            .iter()
            .filter_map(|arm| arm.graph.as_ref())
            .map(|graph| graph.launches)
            .max();
        for arm in &mut arms {
            if let Some(launches) = launches.filter(|_| order.len() > 1) {
                arm.resize_graph(launches)?;
            }
        }
        let events = (0..=order.len())
            .map(|_| device.timing_event())
            .collect::<Result<Vec<_>, _>>()?;
        let mut round_us = 0.0;
        for &arm in order {
            let graph = arms[arm].timed_graph()?;
            round_us += graph.launch_us * graph.launches as f64;
        }
        let mut session = Self {
            device,
            arms,
            order,
            plan,
            events,
            round: microseconds(round_us),
            lead_in: Duration::ZERO,
            before: Vec::new(),
        };
        session.warm_up()?;
        session.before = session.conditions_under_load()?;
        Ok(session)
    }

    /// Replays rounds until clocks have settled, and learns how long the host takes to submit one.
    fn warm_up(&mut self) -> Result<(), CudaError> {
        let start = Instant::now();
        let (mut submissions, mut rounds) = (Vec::new(), 0);
        let fewest = self.launches_per_round().into_iter().min().unwrap_or(1);
        loop {
            submissions.push(CudaDevice::host_us(|| self.submit_round())?);
            self.wait_round()?;
            rounds += 1;
            let elapsed = start.elapsed();
            let enough =
                elapsed >= self.plan.warm_up && rounds * fewest >= self.plan.warm_up_launches;
            if enough || elapsed >= self.plan.warm_up.max(self.plan.budget / 2) {
                break;
            }
        }
        submissions.sort_unstable_by(f64::total_cmp);
        let lead_in = (1.5 * percentile(&submissions, 0.9) + 10.0).clamp(20.0, 5_000.0);
        self.lead_in = microseconds(lead_in);
        Ok(())
    }

    /// Launches of every arm in one round.
    fn launches_per_round(&self) -> Vec<usize> {
        let launches = |arm: usize| {
            self.arms[arm]
                .graph
                .as_ref()
                .map_or(0, |graph| graph.launches)
        };
        (0..self.arms.len())
            .map(|arm| self.order.iter().filter(|&&a| a == arm).count() * launches(arm))
            .collect()
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
        // With two arms a hang is laid to the candidate, the arm that is new.
        let name = &self.arms[self.arms.len() - 1].kernel.name;
        self.device.wait(
            &self.events[self.order.len()],
            name,
            2 * self.round + self.lead_in,
        )
    }

    /// Device time per launch, in microseconds, of every arm: as many rounds as the plan and its budget give.
    fn device_samples(&self) -> Result<Vec<Vec<f64>>, CudaError> {
        let per_arm = self.order.len() / self.arms.len();
        let round_us = (self.round + self.lead_in).as_secs_f64() * 1e6 + 30.0;
        let samples = self.plan.samples_within_budget(round_us / per_arm as f64);
        let mut taken = vec![Vec::with_capacity(samples); self.arms.len()];
        let timed = |arm: &&mut Arm<'d>| Ok(arm.timed_graph()?.launches);
        let launches = self
            .arms
            .iter()
            .map(timed)
            .collect::<Result<Vec<_>, CudaError>>()?;
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
            share_out(&round_us, self.order, &launches, &mut taken);
        }
        Ok(taken)
    }

    /// Microseconds between two events around one launch into an idle stream, of every arm, in the same order.
    fn single_samples(&mut self) -> Result<Vec<Vec<f64>>, CudaError> {
        let mut launch_us = 0.0f64;
        for arm in &self.arms {
            launch_us = launch_us.max(arm.timed_graph()?.launch_us);
        }
        let plan = Plan {
            budget: self.plan.budget / 4,
            ..self.plan.clone()
        };
        let per_arm = self.order.len() / self.arms.len();
        let samples = plan.samples_within_budget((launch_us + 30.0) * self.arms.len() as f64);
        let mut taken = vec![Vec::with_capacity(samples); self.arms.len()];
        let (start, end) = (&self.events[0], &self.events[1]);
        for _ in 0..samples.div_ceil(per_arm) {
            for &arm in self.order {
                self.device.record(start)?;
                self.arms[arm].enqueue_next()?;
                self.device.record(end)?;
                self.device.wait(
                    end,
                    &self.arms[arm].kernel.name,
                    microseconds(2.0 * launch_us),
                )?;
                taken[arm].push(self.device.elapsed_us(start, end)?);
            }
        }
        Ok(taken)
    }

    /// Replays of `arm` that fill [`LONG_RUN_US`], submitted between the first two events, while `meanwhile` runs on
    /// the host.
    fn long_run<T>(
        &self,
        arm: &Arm<'d>,
        meanwhile: impl FnOnce() -> T,
    ) -> Result<(f64, usize, T), CudaError> {
        let graph = arm.timed_graph()?;
        let replay_us = graph.launch_us * graph.launches as f64;
        let replays = (LONG_RUN_US / replay_us).ceil().clamp(1.0, 1000.0) as usize;
        self.device.record(&self.events[0])?;
        for _ in 0..replays {
            arm.replay()?;
        }
        self.device.record(&self.events[1])?;
        let result = meanwhile();
        self.device.wait(
            &self.events[1],
            &arm.kernel.name,
            microseconds(2.0 * replays as f64 * replay_us),
        )?;
        let event_us = self.device.elapsed_us(&self.events[0], &self.events[1])?;
        Ok((event_us, replays * graph.launches, result))
    }

    fn conditions_under_load(&self) -> Result<Vec<Conditions>, CudaError> {
        self.arms
            .iter()
            .map(|arm| Ok(self.long_run(arm, || self.device.conditions())?.2))
            .collect()
    }

    fn host_check(&self, arm: &Arm<'d>) -> Result<HostCheck, CudaError> {
        let start = Instant::now();
        let (event_us, launches, ()) = self.long_run(arm, || ())?;
        let wall_ms = start.elapsed().as_secs_f64() * 1e3;
        Ok(HostCheck {
            event_ms: event_us / 1e3,
            wall_ms,
            launch_us: event_us / launches as f64,
        })
    }

    /// Takes the single launches and the checks, and the outputs last of all.
    fn end(mut self, device_samples: Vec<Vec<f64>>) -> Result<Vec<Timed>, CudaError> {
        let single_samples = self.single_samples()?;
        let checks = self
            .arms
            .iter()
            .map(|arm| self.host_check(arm))
            .collect::<Result<Vec<_>, _>>()?;
        let after = self.conditions_under_load()?;
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
            let device = summary(&device_us)?;
            if let Some(reason) = checks[index].contradiction(device.p50) {
                return Err(CudaError::Timer { launch, reason });
            }
            let mut outputs = Vec::new();
            arm.collect_outputs(&mut outputs)?;
            arm.poison()?;
            arm.replay()?;
            self.device.finish(&arm.kernel.name, 2 * self.round)?;
            arm.collect_outputs(&mut outputs)?;
            let measurement = Measurement {
                label: arm.label(),
                rotation: arm.rotation(),
                single: summary(&single_us)?,
                single_us,
                device,
                device_us,
                conditions: [self.before[index].clone(), after[index].clone()],
            };
            timed.push(Timed {
                measurement,
                outputs,
            });
        }
        Ok(timed)
    }
}

/// Gives every arm its samples of one round, as time per launch: `round_us` are the round's replays in the order in which
/// `order` names their arms, of `launches` each.
fn share_out(round_us: &[f64], order: &[usize], launches: &[usize], taken: &mut [Vec<f64>]) {
    for (&us, &arm) in round_us.iter().zip(order) {
        taken[arm].push(us / launches[arm] as f64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_replay_of_a_round_is_a_sample_of_its_own_arm() {
        let mut taken = vec![Vec::new(); 2];
        for round_us in [[10.0, 40.0, 44.0, 12.0], [14.0, 48.0, 52.0, 16.0]] {
            share_out(&round_us, order(2), &[2, 4], &mut taken);
        }
        assert_eq!(
            taken,
            [vec![5.0, 6.0, 7.0, 8.0], vec![10.0, 11.0, 12.0, 13.0]]
        );
    }
}
