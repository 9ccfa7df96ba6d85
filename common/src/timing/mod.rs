//! Timing: plans, measurements, verdicts; pure. Each arm has two figures, never mixed: *device
//! time*, a CUDA graph of N launches over rotating input sets, divided by N; *single launch*, one
//! launch between two events, which an idle stream and the events lengthen.

pub mod claim;
pub mod race;
pub mod roofline;
pub mod stats;
pub mod sustained;
#[cfg(test)]
mod testing;

use crate::telemetry::Reading;
use stats::Summary;
use std::thread;
use std::time::Duration;
use sustained::Sustained;

pub use claim::{Change, Comparison};
pub use roofline::SpeedOfLight;
pub use sustained::Regime;

named! {
    /// The state of L2 when a launch begins.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum CacheState {
        /// All sets, inputs and outputs, fit in half of the cache.
        Warm = "warm L2",
        /// A part of the inputs may be resident.
        Partial = "partial L2",
        /// The inputs span at least three times the cache.
        Cold = "cold L2",
    }
}

/// The sets of buffers that a graph's launches rotate over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rotation {
    pub sets: usize,
    pub input_bytes: u64,
    pub l2_bytes: u64,
    pub state: CacheState,
}

/// The most sets of a warm rotation.
const WARM_SETS: u64 = 4;
/// The least bytes of the inputs of a cold rotation.
const COLD_BYTES: u64 = 200_000_001;

impl Rotation {
    /// Returns a warm rotation: sets that together fit easily, or one set. Sizes are in bytes.
    pub fn choose(input_bytes: u64, output_bytes: u64, l2_bytes: u64) -> Self {
        let set = (input_bytes + output_bytes).max(1);
        let sets = (l2_bytes / 4 / set).clamp(1, WARM_SETS);
        Self::new(sets as usize, input_bytes, output_bytes, l2_bytes)
    }

    /// Returns a cold rotation: its inputs have left the cache when their turn comes again.
    pub fn cold(input_bytes: u64, output_bytes: u64, l2_bytes: u64) -> Self {
        let sets = COLD_BYTES.max(3 * l2_bytes).div_ceil(input_bytes.max(1));
        Self::new(sets as usize, input_bytes, output_bytes, l2_bytes)
    }

    /// Returns a rotation over so many sets, with the state of the cache that follows.
    pub fn new(sets: usize, input_bytes: u64, output_bytes: u64, l2_bytes: u64) -> Self {
        let n = sets as u64;
        let state = if 2 * n * (input_bytes + output_bytes) <= l2_bytes {
            CacheState::Warm
        } else if n * input_bytes >= 3 * l2_bytes {
            CacheState::Cold
        } else {
            CacheState::Partial
        };
        Self {
            sets,
            input_bytes,
            l2_bytes,
            state,
        }
    }

    /// Returns the input bytes of a launch that cross device memory, whatever the cache kept.
    pub fn uncached_input_bytes(&self) -> f64 {
        let all = self.sets as u64 * self.input_bytes;
        all.saturating_sub(self.l2_bytes) as f64 / self.sets.max(1) as f64
    }
}

/// How long a measurement takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub samples: usize,
    pub warm_up_launches: usize,
    /// The least time before the first sample: clocks settle.
    pub warm_up: Duration,
    pub sample_time: Duration,
    /// The time for which an arm is launched before its graph is built: an idle GPU takes 100 ms to
    /// raise its clocks.
    pub settling: Duration,
    /// The wall-clock time for one measurement's samples, over all arms; at least
    /// [`Plan::LEAST_SAMPLES`] are taken.
    pub budget: Duration,
    /// The sustained time of the fastest kernel that an arm alone is compared with, in microseconds:
    /// see [`Plan::is_beaten`].
    pub rival_us: Option<f64>,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            samples: 500,
            warm_up_launches: 100,
            warm_up: Duration::from_millis(500),
            sample_time: Duration::from_micros(200),
            settling: Duration::from_millis(100),
            budget: Duration::from_secs(20),
            rival_us: None,
        }
    }
}

impl Plan {
    /// The warm-up before the first reading of the power, whose mean is over some ten milliseconds.
    const BEFORE_READING: Duration = Duration::from_millis(50);

    /// The fewest samples, whatever the budget.
    pub const LEAST_SAMPLES: usize = 20;

    /// The factor by which a burst is longer than a rival's sustained time without doubt: medians of
    /// both repeat to 1 %.
    const BEATEN: f64 = 1.05;

    /// The most launches per sample: a graph node costs memory and time to upload.
    const MOST_LAUNCHES: usize = 4096;

    /// Returns the plan of the warm-up after which the power is read for the first time: one that is
    /// at the limit settles in its turns.
    pub fn before_reading(&self) -> Self {
        Self {
            warm_up: self.warm_up.min(Self::BEFORE_READING),
            warm_up_launches: 1,
            ..self.clone()
        }
    }

    /// Returns the plan of a burst before sustained times, which replace it: as long as the check of
    /// the timer takes.
    pub fn before_sustained(&self) -> Self {
        Self {
            samples: Self::LEAST_SAMPLES,
            ..self.clone()
        }
    }

    /// Returns whether an arm whose burst takes so long is slower than its rival in the sustained
    /// regime, too: clocks sink there, and no launch takes less time than in the burst.
    pub fn is_beaten(&self, burst_us: f64) -> bool {
        self.rival_us
            .is_some_and(|rival_us| burst_us > Self::BEATEN * rival_us)
    }

    /// Returns the number of launches of a sample in whole rotations over `sets` sets, so that a
    /// graph never works on fewer sets than its label claims.
    pub fn launches_per_sample(&self, launch_us: f64, sets: usize) -> usize {
        let filling = (self.sample_time.as_secs_f64() * 1e6 / launch_us.max(0.05)).ceil() as usize;
        let rotation = sets.max(1);
        let launches = filling.clamp(rotation, Self::MOST_LAUNCHES.max(rotation));
        launches.div_ceil(rotation) * rotation
    }

    /// Returns the number of samples per arm, even, where one sample of every arm together takes
    /// `round_us` microseconds.
    pub fn samples_within_budget(&self, round_us: f64) -> usize {
        let affordable = (self.budget.as_secs_f64() * 1e6 / round_us.max(1.0)) as usize;
        affordable
            .clamp(Self::LEAST_SAMPLES, self.samples.max(Self::LEAST_SAMPLES))
            .next_multiple_of(2)
    }
}

/// Returns the order of one or two arms within a round: A, or A B B A, in which a drift cancels.
pub fn order(arms: usize) -> &'static [usize] {
    if arms == 1 { &[0] } else { &[0, 1, 1, 0] }
}

/// The time of the same work by events and by the host's clock.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostCheck {
    pub event_ms: f64,
    /// The time from before the first event to after the last has been seen.
    pub wall_ms: f64,
    /// The time per launch by events in this one long run; the samples' median must agree.
    pub launch_us: f64,
}

impl HostCheck {
    /// Takes the check again while the host alone is late, not while the GPU claims more time than
    /// passed: a host whose cores others want is late often, but not [`Self::TRIES`] times. A timer
    /// that encloses less than the work is late each time.
    pub fn retried<E>(
        pause: Duration,
        mut take: impl FnMut() -> Result<Self, E>,
    ) -> Result<Self, E> {
        let mut check = take()?;
        for _ in 1..Self::TRIES {
            if !check.is_host_late() {
                break;
            }
            thread::sleep(pause);
            check = take()?;
        }
        Ok(check)
    }

    pub const TRIES: usize = 10;

    /// Returns whether the host saw the work much later than the events.
    fn is_host_late(&self) -> bool {
        self.wall_ms > self.event_ms * 1.05 + 1.0
    }

    /// Describes how the clocks contradict each other, if they do. The host sees what the events
    /// enclose plus its own latency (1 ms); long run and samples may differ by 25 % and 0.5 us,
    /// which covers clocks that sink under load.
    pub fn contradiction(&self, sampled_us: f64) -> Option<String> {
        let Self {
            event_ms,
            wall_ms,
            launch_us,
        } = *self;
        let clocks_agree = event_ms <= wall_ms * 1.01 + 0.02 && !self.is_host_late();
        if !clocks_agree {
            return Some(format!(
                "events enclose {event_ms:.3} ms, the host's clock {wall_ms:.3} ms"
            ));
        }
        let runs_agree = (launch_us - sampled_us).abs() <= 0.25 * launch_us.max(sampled_us) + 0.5;
        if !runs_agree {
            return Some(format!(
                "a long run takes {launch_us:.3} us per launch, the samples' median is \
                 {sampled_us:.3} us"
            ));
        }
        None
    }
}

/// The times of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub rotation: Rotation,
    /// The microseconds per launch in a graph.
    pub device: Summary,
    pub single: Summary,
    /// The state of the GPU after the warm-up and after the last sample.
    pub conditions: [Reading; 2],
    /// The counted time, where the kernel reached the power limit and was timed sustained: `device`
    /// summarises it. Otherwise `device` summarises the burst.
    pub sustained: Option<Sustained>,
}

/// Returns a variable of the environment that would falsify the timing, and what to do about it.
pub fn falsifying_variable(
    lookup: impl Fn(&str) -> Option<String>,
) -> Option<(&'static str, &'static str)> {
    const VARIABLES: [(&str, &str); 3] = [
        (
            "CUDA_INJECTION64_PATH",
            "a profiler is loaded into the process and lengthens every call; unset it to time",
        ),
        (
            "CUDA_LAUNCH_BLOCKING",
            "every launch waits for the one before; unset it to time",
        ),
        (
            "COMPUTE_PROFILE",
            "the driver's profiler lengthens every launch; unset it to time",
        ),
    ];
    VARIABLES
        .into_iter()
        .find(|(name, _)| lookup(name).is_some_and(|value| !value.is_empty() && value != "0"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_burst_before_sustained_times_takes_the_fewest_samples() {
        let plan = Plan::default();
        let fast_us = 1.0;
        assert_eq!(plan.samples_within_budget(fast_us), plan.samples);
        let short = plan.before_sustained();
        assert_eq!(short.samples_within_budget(fast_us), Plan::LEAST_SAMPLES);
        assert_eq!(short.budget, plan.budget);
    }

    #[test]
    fn a_burst_that_is_longer_than_a_rivals_sustained_time_is_beaten() {
        let alone = Plan::default();
        assert!(!alone.is_beaten(1e9), "there is no rival");
        let beside = Plan {
            rival_us: Some(100.0),
            ..alone
        };
        assert!(!beside.is_beaten(104.0), "it may be as fast");
        assert!(beside.is_beaten(106.0));
    }

    #[test]
    fn rotations_are_labelled_by_their_size() {
        // input bytes, output bytes -> sets, state
        let table = [
            (3 * MIB / 2, MIB / 2, 4, CacheState::Warm),
            (12 * MIB, 4 * MIB, 1, CacheState::Warm),
            (4 * MIB, MIB, 2, CacheState::Warm),
            (48 * MIB, 16 * MIB, 1, CacheState::Partial),
            (200 * MIB, 64 * MIB, 1, CacheState::Cold),
            (0, 0, 4, CacheState::Warm),
        ];
        for (input, output, sets, state) in table {
            let rotation = Rotation::choose(input, output, 50 * MIB);
            assert_eq!(
                (rotation.sets, rotation.state),
                (sets, state),
                "{input} {output}"
            );
        }
    }

    #[test]
    fn cold_rotations_have_as_many_sets_as_leave_the_cache() {
        // Mission, decode over 1,024 keys, over 8,192 in E4M3, and inputs that are cold alone;
        // caches of 50 MiB and of 100.
        for (input, l2, sets) in [
            (3 * MIB / 2, 50 * MIB, 128),
            (33_619_968, 50 * MIB, 6),
            (134_250_496, 50 * MIB, 2),
            (200_000_001, 50 * MIB, 1),
            (200_000_001, 100 * MIB, 2),
        ] {
            let rotation = Rotation::cold(input, 1 << 16, l2);
            assert_eq!((rotation.sets, rotation.state), (sets, CacheState::Cold));
        }
    }

    #[test]
    fn the_state_of_the_cache_follows_from_what_the_sets_span() {
        let state = |sets, input, output| {
            let rotation = Rotation::new(sets, input, output, 50 * MIB);
            rotation.state
        };
        assert_eq!(state(100, 3 * MIB / 2, MIB / 2), CacheState::Cold);
        assert_eq!(state(512, 12 << 10, 4 << 10), CacheState::Warm);
        assert_eq!(state(512, 96 << 10, 32 << 10), CacheState::Partial);
        assert_eq!(state(1, 20 * MIB, 10 * MIB), CacheState::Partial);
        assert_eq!(state(1, 100 * MIB, MIB), CacheState::Partial);
    }

    /// The 200 MB that every rotation spans are three times a cache of 50 MiB, and twice one of 100
    /// MB.
    #[test]
    fn a_cold_rotation_spans_three_times_a_cache_of_100_mb() {
        let (input, cache) = (10_000_000, 100_000_000);
        let rotation = Rotation::cold(input, 0, cache);
        assert_eq!((rotation.sets, rotation.state), (30, CacheState::Cold));
        let one_less = Rotation::new(29, input, 0, cache);
        assert_eq!(one_less.state, CacheState::Partial);
    }

    #[test]
    fn only_what_exceeds_the_cache_is_surely_uncached() {
        let uncached = |sets, input_bytes| {
            Rotation::new(sets, input_bytes, MIB, 50 * MIB).uncached_input_bytes()
        };
        assert_eq!(uncached(4, MIB), 0.0);
        assert_eq!(uncached(100, MIB), MIB as f64 / 2.0);
        assert_eq!(uncached(1, 200 * MIB), (150 * MIB) as f64);
    }

    #[test]
    fn graphs_hold_whole_rotations() {
        let plan = Plan::default();
        // launch us, sets -> launches
        let table = [
            (10.0, 1, 20),
            (10.0, 4, 20),
            (9.0, 4, 24),
            (10.0, 100, 100),
            (0.6, 1, 334),
            (0.0, 1, 4000),
            (1e6, 1, 1),
            (1e6, 4, 4),
            (0.1, 3, 2001),
            (10.0, 5000, 5000),
        ];
        for (launch_us, sets, launches) in table {
            assert_eq!(
                plan.launches_per_sample(launch_us, sets),
                launches,
                "{launch_us} us, {sets} sets"
            );
        }
    }

    #[test]
    fn a_drift_within_a_round_moves_both_arms_alike() {
        let mut samples = [vec![], vec![]];
        for (slot, &arm) in [order(2); 20].concat().iter().enumerate() {
            samples[arm].push(10.0 + 0.1 * slot as f64);
        }
        assert_eq!(order(1), [0]);
        let Comparison { base, new, .. } = Comparison::new(&samples[0], &samples[1]).unwrap();
        assert_eq!((base.samples, new.samples), (40, 40));
        assert!(
            (base.mean / new.mean - 1.0).abs() < 1e-12,
            "{base:?} {new:?}"
        );
    }

    #[test]
    fn slow_kernels_get_fewer_samples() {
        let plan = Plan::default();
        assert_eq!(plan.samples_within_budget(400.0), 500);
        assert_eq!(plan.samples_within_budget(200_000.0), 100);
        assert_eq!(plan.samples_within_budget(600_000.0), 34, "33 are odd");
        assert_eq!(plan.samples_within_budget(1e9), Plan::LEAST_SAMPLES);
        assert_eq!(
            Plan { samples: 5, ..plan }.samples_within_budget(400.0),
            Plan::LEAST_SAMPLES
        );
    }

    #[test]
    fn a_check_is_repeated_only_while_the_host_is_late() {
        assert_eq!(retried(&[20.1]), (1, true));
        assert_eq!(retried(&[23.0, 20.1]), (2, true));
        assert_eq!(retried(&[15.0, 20.1]), (1, false));
    }

    #[test]
    fn a_host_that_is_always_late_contradicts_the_timer() {
        let mut walls_ms = [23.0; HostCheck::TRIES + 1];
        assert_eq!(retried(&walls_ms), (HostCheck::TRIES, false));
        walls_ms[HostCheck::TRIES - 1] = 20.1;
        assert_eq!(retried(&walls_ms), (HostCheck::TRIES, true));
    }

    /// Checks 20 ms by events against these walls. Returns the number of checks taken, and whether
    /// the last one agrees.
    fn retried(walls_ms: &[f64]) -> (usize, bool) {
        let mut count = 0;
        let check = HostCheck::retried(Duration::ZERO, || {
            count += 1;
            Ok::<_, ()>(HostCheck {
                event_ms: 20.0,
                wall_ms: walls_ms[count - 1],
                launch_us: 10.0,
            })
        });
        let agrees = check.unwrap().contradiction(10.0).is_none();
        (count, agrees)
    }

    #[test]
    fn clocks_must_agree() {
        // event ms, wall ms, long run us, samples us -> agrees
        let table = [
            (20.0, 20.1, 10.0, 10.1, true),
            (20.0, 21.5, 10.0, 10.1, true),
            (20.0, 40.0, 10.0, 10.1, false),
            (20.0, 15.0, 10.0, 10.1, false),
            (0.0, 20.0, 10.0, 10.1, false),
            (20.0, 20.1, 10.0, 5.0, false),
            (20.0, 20.1, 5.0, 10.0, false),
            (20.0, 20.1, 10.0, 7.2, true),
            (20.0, 20.1, 0.7, 0.6, true),
            (f64::NAN, 20.1, 10.0, 10.0, false),
            (20.0, 20.1, f64::NAN, 10.0, false),
        ];
        for (event_ms, wall_ms, launch_us, sampled, agrees) in table {
            let check = HostCheck {
                event_ms,
                wall_ms,
                launch_us,
            };
            assert_eq!(
                check.contradiction(sampled).is_none(),
                agrees,
                "{check:?} against {sampled}"
            );
        }
    }

    #[test]
    fn profilers_are_refused() {
        let refused = |variable: &'static str, value: &'static str| {
            let found_variable =
                falsifying_variable(|name| (name == variable).then(|| value.to_string()));
            found_variable.map(|(name, _)| name)
        };
        assert_eq!(falsifying_variable(|_| None), None);
        assert_eq!(
            refused("CUDA_INJECTION64_PATH", "/lib/cupti.so"),
            Some("CUDA_INJECTION64_PATH")
        );
        assert_eq!(refused("CUDA_INJECTION64_PATH", ""), None);
        assert_eq!(
            refused("CUDA_LAUNCH_BLOCKING", "1"),
            Some("CUDA_LAUNCH_BLOCKING")
        );
        assert_eq!(refused("CUDA_LAUNCH_BLOCKING", "0"), None);
        assert_eq!(refused("PATH", "/bin"), None);
    }
}
