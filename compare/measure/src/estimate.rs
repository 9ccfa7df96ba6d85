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
    pub cases: usize,
    /// The time of the whole run.
    pub seconds: f64,
    /// The number of times that were taken: of kernels, each alone, and of random problems.
    pub timings: usize,
    /// The part of the seconds in which kernels were timed, alone and in pairs, and what they left
    /// was judged.
    pub timing_seconds: f64,
}

/// The work of a run, done or planned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    pub cases: usize,
    pub timings: usize,
}

/// The time that a run spent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spent {
    pub total: Duration,
    /// The part in which kernels were timed.
    pub timing: Duration,
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
    (one.tier, one.backend) == (other.tier, other.backend)
}

/// Estimates a run: `1,234 cases: about 3 min, by the last such run here (1,180 in 170 s)`; without
/// such a run the cases alone.
pub fn line(before: &[Took], tier: Tier, backend: BackendKind, planned: Work) -> String {
    let cases = format!("{} cases", common::metric::grouped(planned.cases as u64));
    let last = before
        .iter()
        .find(|took| (took.tier, took.backend) == (tier, backend));
    if let Some(took) = last
        && let Some(seconds) = took.seconds_of(planned)
    {
        return format!(
            "{cases}: about {}, by the last such run here ({} in {})",
            duration(seconds),
            common::metric::grouped(took.cases as u64),
            duration(took.seconds)
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

impl Took {
    /// Makes the record of a run that did this work.
    pub fn new(tier: Tier, backend: BackendKind, done: Work, spent: Spent) -> Self {
        Self {
            tier,
            backend,
            cases: done.cases,
            seconds: spent.total.as_secs_f64(),
            timings: done.timings,
            timing_seconds: spent.timing.as_secs_f64(),
        }
    }

    /// Estimates the time of another run: that of cases by their number, and that of timing by the
    /// number of timings. Returns nothing where this run had too few of either.
    fn seconds_of(&self, planned: Work) -> Option<f64> {
        if self.cases == 0 || self.cases * LEAST_SHARE < planned.cases {
            return None;
        }
        let checking_seconds = (self.seconds - self.timing_seconds).max(0.0);
        let seconds_per_case = checking_seconds / self.cases as f64;
        let checking = seconds_per_case * planned.cases as f64;
        if planned.timings == 0 {
            return Some(checking);
        }
        if self.timings == 0 {
            return None;
        }
        let seconds_per_timing = self.timing_seconds / self.timings as f64;
        Some(checking + seconds_per_timing * planned.timings as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    /// Makes the work of cases without timings.
    fn cases(cases: usize) -> Work {
        Work { cases, timings: 0 }
    }

    /// Makes the record of a run in the emulator.
    fn took(tier: Tier, done: usize, seconds: u64) -> Took {
        let spent = Spent {
            total: Duration::from_secs(seconds),
            timing: Duration::ZERO,
        };
        Took::new(tier, BackendKind::Emulated, cases(done), spent)
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
        let older = text.replace("timing_seconds", "sustained_seconds");
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

    /// Estimates a run on a GPU, after one that took 100 s for 1,000 cases, and `timing_seconds`
    /// for `timings`.
    fn after_timed_run(timings: usize, timing_seconds: u64, planned: Work) -> String {
        let done = Work {
            cases: 1000,
            timings,
        };
        let spent = Spent {
            total: Duration::from_secs(100 + timing_seconds),
            timing: Duration::from_secs(timing_seconds),
        };
        let before = [Took::new(Tier::T2, BackendKind::Cuda, done, spent)];
        let text = line(&before, Tier::T2, BackendKind::Cuda, planned);
        match text.split_once(", by") {
            Some((estimate, _)) => estimate.to_string(),
            None => text,
        }
    }

    #[test]
    fn timing_takes_as_long_per_timing_as_in_the_last_run() {
        let as_before = Work {
            cases: 1000,
            timings: 40,
        };
        assert_eq!(
            after_timed_run(40, 80, as_before),
            "1,000 cases: about 3 min"
        );
        let few_timings = Work {
            cases: 500,
            timings: 10,
        };
        assert_eq!(
            after_timed_run(40, 80, few_timings),
            "500 cases: about 70 s"
        );
    }

    #[test]
    fn a_run_without_timings_takes_the_time_of_its_cases() {
        assert_eq!(after_timed_run(40, 80, cases(500)), "500 cases: about 50 s");
    }

    /// It has as many timings as cases, which take most of its time.
    #[test]
    fn a_run_of_few_cases_that_are_all_timed_is_estimated_by_its_timings() {
        let all_timed = Work {
            cases: 64,
            timings: 64,
        };
        assert_eq!(
            after_timed_run(100, 500, all_timed),
            "64 cases: about 5 min"
        );
    }

    #[test]
    fn timing_is_not_estimated_by_a_run_that_timed_nothing() {
        let timed = Work {
            cases: 500,
            timings: 10,
        };
        assert_eq!(
            after_timed_run(0, 0, timed),
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
