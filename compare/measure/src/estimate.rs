//! How long a run will take, by the last one like it on this machine.

use common::device::BackendKind;
use results::table::files::write_atomically;
use results::table::session::Tier;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Below a folder of runs; whatever lists those skips it.
const FILE: &str = ".took.json";

/// A run of fewer cases than this part of the planned ones tells nothing: most of its time was its
/// start.
const LEAST_SHARE: usize = 10;

/// The time that a run took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    pub tier: Tier,
    pub backend: BackendKind,
    pub done: Work,
    pub spent: Spent,
}

/// The work of a run, done or planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Work {
    pub cases: usize,
    /// The kernels that are timed alone, in less than a second each.
    pub small: usize,
    /// The kernels that are timed alone on problems that take longer.
    pub large: usize,
    /// The random problems on which all variants are timed.
    pub random: usize,
}

/// The time that a run spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spent {
    pub total: Duration,
    /// The parts in which [`Work::small`], [`Work::large`] and [`Work::random`] were timed and
    /// judged.
    pub small: Duration,
    pub large: Duration,
    pub random: Duration,
    /// The part in which kernels were timed in pairs. How many there are shows only then.
    pub pairs: Duration,
}

/// Reads what runs below `folder` took: the last of each kind. Nothing where there is none, or a
/// file of another version.
pub fn read(folder: &Path) -> Vec<Took> {
    let text = std::fs::read(folder.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Keeps what a run took in place of the last like it. That it cannot be kept is no reason to end a
/// run.
pub fn keep(folder: &Path, took: Took) {
    let mut all = read(folder);
    all.retain(|other| !is_alike(other, &took));
    all.push(took);
    if let Ok(text) = serde_json::to_vec(&all) {
        let _ = write_atomically(&folder.join(FILE), &text);
    }
}

fn is_alike(one: &Took, other: &Took) -> bool {
    one.is_of(other.tier, other.backend, other.done)
}

/// Estimates a run: `1,234 cases: about 3 min, by the last such run here (1,180 in 170 s)`; without
/// such a run the cases alone.
pub fn line(before: &[Took], tier: Tier, backend: BackendKind, planned: Work) -> String {
    let cases = format!("{} cases", common::metric::grouped(planned.cases as u64));
    let last = before
        .iter()
        .find(|took| took.is_of(tier, backend, planned));
    if let Some(took) = last
        && let Some(seconds) = took.seconds_of(planned)
    {
        return format!(
            "{cases}: about {}, by the last such run here ({} in {})",
            duration(seconds),
            common::metric::grouped(took.done.cases as u64),
            duration(took.spent.total.as_secs_f64())
        );
    }
    format!("{cases}; how long they take is said once some have run")
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{:.0} s", s.ceil()),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

impl Work {
    /// Returns the number of kernels that are timed alone.
    fn alone(&self) -> usize {
        self.small + self.large
    }
}

impl Took {
    /// Returns whether it tells about such work: a run on random problems has few cases, whatever
    /// its tier.
    fn is_of(&self, tier: Tier, backend: BackendKind, work: Work) -> bool {
        let has_random = self.done.random > 0;
        (self.tier, self.backend, has_random) == (tier, backend, work.random > 0)
    }

    /// Estimates the time of another run: that of cases and that of each kind of timing by their
    /// number, and that of pairs by the number of kernels that are timed alone. Returns nothing
    /// where this run had too few cases, or none of a kind that is planned.
    fn seconds_of(&self, planned: Work) -> Option<f64> {
        let Self { done, spent, .. } = self;
        if done.cases * LEAST_SHARE < planned.cases {
            return None;
        }
        let timing = spent.small + spent.large + spent.random + spent.pairs;
        let checking = spent.total.saturating_sub(timing);
        let mut seconds = 0.0;
        for (time, done_number, planned_number) in [
            (checking, done.cases, planned.cases),
            (spent.small, done.small, planned.small),
            (spent.large, done.large, planned.large),
            (spent.random, done.random, planned.random),
            (spent.pairs, done.alone(), planned.alone()),
        ] {
            if planned_number == 0 {
                continue;
            }
            if done_number == 0 {
                return None;
            }
            seconds += time.as_secs_f64() / done_number as f64 * planned_number as f64;
        }
        Some(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Makes the work of cases without timings.
    fn cases(cases: usize) -> Work {
        Work {
            cases,
            ..Work::default()
        }
    }

    /// Makes the record of a run in the emulator.
    fn took(tier: Tier, done: usize, seconds: u64) -> Took {
        Took {
            tier,
            backend: BackendKind::Emulated,
            done: cases(done),
            spent: Spent {
                total: Duration::from_secs(seconds),
                ..Spent::default()
            },
        }
    }

    /// Estimates a run in the emulator after one of each of two tiers.
    fn after_two_tiers(tier: Tier, planned: usize) -> String {
        let before = [took(Tier::T1, 1000, 180), took(Tier::T0, 70, 7)];
        line(&before, tier, BackendKind::Emulated, cases(planned))
    }

    #[test]
    fn a_file_of_another_version_is_read_as_none() {
        let folder = tempfile::tempdir().unwrap();
        keep(folder.path(), took(Tier::T1, 1000, 180));
        let path = folder.path().join(FILE);
        let text = std::fs::read_to_string(&path).unwrap();
        let older = text.replace("pairs", "timing_seconds");
        assert_ne!(older, text);
        std::fs::write(&path, older).unwrap();
        assert_eq!(read(folder.path()), []);
    }

    #[test]
    fn a_run_takes_as_long_per_case_as_the_last_like_it() {
        assert_eq!(
            after_two_tiers(Tier::T1, 2000),
            "2,000 cases: about 6 min, by the last such run here (1,000 in 3 min)"
        );
        assert_eq!(
            after_two_tiers(Tier::T0, 5),
            "5 cases: about 1 s, by the last such run here (70 in 7 s)"
        );
    }

    #[test]
    fn a_run_of_a_tier_that_has_not_run_is_not_estimated() {
        assert_eq!(
            after_two_tiers(Tier::T2, 40_000),
            "40,000 cases; how long they take is said once some have run"
        );
    }

    #[test]
    fn a_run_on_a_gpu_is_not_estimated_by_one_in_the_emulator() {
        let before = [took(Tier::T1, 1000, 180)];
        assert_eq!(
            line(&before, Tier::T1, BackendKind::Cuda, cases(3)),
            "3 cases; how long they take is said once some have run"
        );
    }

    /// Estimates a run on a GPU, after one that took 100 s for 1,000 cases, and `spent` for the
    /// timings that are `done`.
    fn after_timed_run(done: Work, spent: Spent, planned: Work) -> String {
        let timing = spent.small + spent.large + spent.random + spent.pairs;
        let before = [Took {
            tier: Tier::T2,
            backend: BackendKind::Cuda,
            done: Work {
                cases: 1000,
                ..done
            },
            spent: Spent {
                total: Duration::from_secs(100) + timing,
                ..spent
            },
        }];
        let text = line(&before, Tier::T2, BackendKind::Cuda, planned);
        match text.split_once(", by") {
            Some((estimate, _)) => estimate.to_string(),
            None => text,
        }
    }

    /// Estimates after a run that took 20 s for 40 small timings, and 60 s for 15 large ones.
    fn after_small_and_large(planned: Work) -> String {
        let done = Work {
            small: 40,
            large: 15,
            ..Work::default()
        };
        let spent = Spent {
            small: Duration::from_secs(20),
            large: Duration::from_secs(60),
            ..Spent::default()
        };
        after_timed_run(done, spent, planned)
    }

    #[test]
    fn timing_takes_as_long_per_timing_as_in_the_last_run() {
        let as_before = Work {
            cases: 1000,
            small: 40,
            large: 15,
            random: 0,
        };
        assert_eq!(after_small_and_large(as_before), "1,000 cases: about 3 min");
    }

    #[test]
    fn large_timings_are_estimated_by_large_ones_and_small_by_small() {
        let small = Work {
            cases: 100,
            small: 100,
            ..Work::default()
        };
        assert_eq!(after_small_and_large(small), "100 cases: about 60 s");
        let large = Work {
            cases: 100,
            large: 100,
            ..Work::default()
        };
        assert_eq!(after_small_and_large(large), "100 cases: about 7 min");
    }

    #[test]
    fn pairs_are_as_many_as_kernels_that_are_timed_alone() {
        let done = Work {
            small: 40,
            ..Work::default()
        };
        let spent = Spent {
            small: Duration::from_secs(20),
            pairs: Duration::from_secs(40),
            ..Spent::default()
        };
        let half = Work {
            cases: 100,
            small: 20,
            ..Work::default()
        };
        assert_eq!(after_timed_run(done, spent, half), "100 cases: about 40 s");
    }

    #[test]
    fn random_problems_are_estimated_by_random_problems() {
        let done = Work {
            random: 100,
            ..Work::default()
        };
        let spent = Spent {
            random: Duration::from_secs(120),
            ..Spent::default()
        };
        let planned = Work {
            cases: 100,
            random: 240,
            ..Work::default()
        };
        assert_eq!(
            after_timed_run(done, spent, planned),
            "100 cases: about 5 min"
        );
        assert_eq!(
            after_small_and_large(planned),
            "100 cases; how long they take is said once some have run"
        );
    }

    #[test]
    fn a_run_without_timings_takes_the_time_of_its_cases() {
        assert_eq!(after_small_and_large(cases(500)), "500 cases: about 50 s");
    }

    #[test]
    fn timing_is_not_estimated_by_a_run_that_timed_nothing() {
        let timed = Work {
            cases: 500,
            small: 10,
            ..Work::default()
        };
        assert_eq!(
            after_timed_run(Work::default(), Spent::default(), timed),
            "500 cases; how long they take is said once some have run"
        );
    }

    #[test]
    fn the_last_of_each_kind_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), []);
        let other = took(Tier::T0, 5, 1);
        let last = took(Tier::T1, 10, 30);
        keep(folder.path(), took(Tier::T1, 10, 20));
        keep(folder.path(), other.clone());
        keep(folder.path(), last.clone());
        assert_eq!(read(folder.path()), [other, last]);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(read(folder.path()), []);
    }

    #[test]
    fn a_run_of_one_case_tells_nothing_of_two_thousand() {
        let before = [took(Tier::T1, 1, 1)];
        assert_eq!(
            line(&before, Tier::T1, BackendKind::Emulated, cases(2000)),
            "2,000 cases; how long they take is said once some have run"
        );
    }
}
