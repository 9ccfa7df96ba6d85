//! How long a run will take, by the last one like it on this machine.

use common::device::BackendKind;
use common::timing::{Regime, sustained};
use results::table::files::write_atomically;
use results::table::session::Tier;
use results::table::{Run, Source};
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
    pub seconds: f64,
    /// The number of kernels that were timed, each alone.
    #[serde(default)]
    pub timings: usize,
    /// The part of the seconds in which kernels took turns at the power limit, alone and in pairs.
    #[serde(default)]
    pub sustained_seconds: f64,
}

/// The work that a run is going to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Planned {
    pub cases: usize,
    pub timings: usize,
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
pub fn line(before: &[Took], tier: Tier, backend: BackendKind, planned: Planned) -> String {
    let cases = format!("{} cases", common::metric::grouped(planned.cases as u64));
    let last = before
        .iter()
        .find(|took| (took.tier, took.backend) == (tier, backend));
    match last.filter(|took| took.cases > 0 && took.cases * LEAST_SHARE >= planned.cases) {
        Some(took) => format!(
            "{cases}: about {}, by the last such run here ({} in {})",
            duration(took.seconds_of(planned)),
            common::metric::grouped(took.cases as u64),
            duration(took.seconds)
        ),
        None => format!("{cases}; how long they take is said once some have run"),
    }
}

/// Returns the time in which the kernels and pairs of a run took turns at the power limit.
pub fn sustained(run: &Run) -> Duration {
    let rows = run.table.rows_by(Source::Gpu);
    let sustained = rows.filter(|row| row.regime() == Regime::Sustained);
    sustained
        .map(|row| match row.base() {
            Some(_) => sustained::duration(2),
            None => sustained::duration(1),
        })
        .sum()
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{:.0} s", s.ceil()),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

impl Took {
    pub fn new(tier: Tier, backend: BackendKind, planned: Planned, time: Duration) -> Self {
        Self {
            tier,
            backend,
            cases: planned.cases,
            seconds: time.as_secs_f64(),
            timings: planned.timings,
            sustained_seconds: 0.0,
        }
    }

    pub fn sustained(self, time: Duration) -> Self {
        Self {
            sustained_seconds: time.as_secs_f64(),
            ..self
        }
    }

    /// Estimates what another run takes: cases by cases, and turns at the power limit by kernels
    /// that are timed.
    fn seconds_of(&self, planned: Planned) -> f64 {
        let checking = (self.seconds - self.sustained_seconds).max(0.0) / self.cases as f64;
        let sustained = self.sustained_seconds / self.timings.max(1) as f64;
        checking * planned.cases as f64 + sustained * planned.timings as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::testing::scenario;

    fn planned(cases: usize, timings: usize) -> Planned {
        Planned { cases, timings }
    }

    fn took(tier: Tier, cases: usize, seconds: u64) -> Took {
        let time = Duration::from_secs(seconds);
        Took::new(tier, BackendKind::Emulated, planned(cases, 0), time)
    }

    #[test]
    fn a_run_takes_as_long_per_case_as_the_last_like_it() {
        let before = [took(Tier::T1, 1000, 180), took(Tier::T0, 70, 7)];
        for (tier, cases, expected) in [
            (
                Tier::T1,
                2000,
                "2,000 cases: about 6 min, by the last such run here (1,000 in 3 min)",
            ),
            (
                Tier::T0,
                5,
                "5 cases: about 1 s, by the last such run here (70 in 7 s)",
            ),
            (
                Tier::T2,
                40_000,
                "40,000 cases; how long they take is said once some have run",
            ),
        ] {
            let estimate = line(&before, tier, BackendKind::Emulated, planned(cases, 0));
            assert_eq!(estimate, expected);
        }
        let on_gpu = line(&before, Tier::T1, BackendKind::Cuda, planned(3, 0));
        assert_eq!(
            on_gpu,
            "3 cases; how long they take is said once some have run"
        );
    }

    /// 100 s for 1,000 cases, and 80 for 40 kernels.
    #[test]
    fn turns_at_the_power_limit_count_by_the_kernels_that_are_timed() {
        let time = Duration::from_secs(180);
        let took = Took::new(Tier::T2, BackendKind::Cuda, planned(1000, 40), time);
        let before = [took.sustained(Duration::from_secs(80))];
        let estimate = |cases, timings| {
            let line = line(
                &before,
                Tier::T2,
                BackendKind::Cuda,
                planned(cases, timings),
            );
            let (estimate, _) = line.split_once(", by").unwrap();
            estimate.to_string()
        };
        assert_eq!(estimate(1000, 40), "1,000 cases: about 3 min");
        assert_eq!(estimate(500, 0), "500 cases: about 50 s");
        assert_eq!(estimate(500, 10), "500 cases: about 70 s");
    }

    #[test]
    fn a_sustained_kernel_takes_two_seconds_and_a_pair_four() {
        assert_eq!(sustained(&scenario::run("timed")), Duration::ZERO);
        let run = scenario::run(
            "timed; cpasync mission gpu !pair: under warm L2, sustained; \
             cpasync mission gpu pair: under warm L2, sustained",
        );
        assert_eq!(sustained(&run), Duration::from_secs(6));
    }

    #[test]
    fn the_last_of_each_kind_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()), []);
        let (first, other, last) = (
            took(Tier::T1, 10, 20),
            took(Tier::T0, 5, 1),
            took(Tier::T1, 10, 30),
        );
        for took in [&first, &other, &last] {
            keep(folder.path(), took.clone());
        }
        assert_eq!(read(folder.path()), [other, last]);
        std::fs::write(folder.path().join(FILE), "{").unwrap();
        assert_eq!(read(folder.path()), []);
    }

    #[test]
    fn a_run_of_one_case_tells_nothing_of_two_thousand() {
        let before = [took(Tier::T1, 1, 1)];
        assert_eq!(
            line(&before, Tier::T1, BackendKind::Emulated, planned(2000, 0)),
            "2,000 cases; how long they take is said once some have run"
        );
    }
}
