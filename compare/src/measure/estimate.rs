//! How long a run will take, by the last one like it on this machine.

use crate::table::files::write_atomically;
use crate::table::session::Tier;
use common::device::BackendKind;
use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;

/// Below a folder of runs; whatever lists those skips it.
const FILE: &str = ".took.json";

/// A run of fewer cases than this part of the planned ones tells nothing: most of its time was its start.
const LEAST_SHARE: usize = 10;

/// What a run took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Took {
    pub tier: Tier,
    pub backend: BackendKind,
    pub cases: usize,
    pub seconds: f64,
}

/// Reads what runs below `folder` took: the last of each kind. Nothing where there is none, or a file of another version.
pub fn read(folder: &Path) -> Vec<Took> {
    let text = std::fs::read(folder.join(FILE)).unwrap_or_default();
    serde_json::from_slice(&text).unwrap_or_default()
}

/// Keeps what a run took in place of the last like it. That it cannot be kept is no reason to end a run.
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

/// `1,234 cases: about 3 min, by the last such run here (1,180 in 170 s)`; without such a run the cases alone.
pub fn line(before: &[Took], tier: Tier, backend: BackendKind, cases: usize) -> String {
    let planned = format!("{} cases", common::metric::grouped(cases as u64));
    let last = before
        .iter()
        .find(|took| (took.tier, took.backend) == (tier, backend));
    match last.filter(|took| took.cases > 0 && took.cases * LEAST_SHARE >= cases) {
        Some(Took {
            cases: of, seconds, ..
        }) => format!(
            "{planned}: about {}, by the last such run here ({} in {})",
            duration(seconds / *of as f64 * cases as f64),
            common::metric::grouped(*of as u64),
            duration(*seconds)
        ),
        None => format!("{planned}; how long they take is said once some have run"),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s < 90.0 => format!("{:.0} s", s.ceil()),
        s if s < 5400.0 => format!("{:.0} min", s / 60.0),
        s => format!("{:.1} h", s / 3600.0),
    }
}

impl Took {
    pub fn new(tier: Tier, backend: BackendKind, cases: usize, time: Duration) -> Self {
        Self {
            tier,
            backend,
            cases,
            seconds: time.as_secs_f64(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn took(tier: Tier, cases: usize, seconds: u64) -> Took {
        let time = Duration::from_secs(seconds);
        Took::new(tier, BackendKind::Emulated, cases, time)
    }

    #[test]
    fn a_run_takes_as_long_per_case_as_the_last_like_it() {
        let before = [took(Tier::T1, 1000, 180), took(Tier::T0, 70, 7)];
        let of = |tier, cases| line(&before, tier, BackendKind::Emulated, cases);
        let says = "2,000 cases: about 6 min, by the last such run here (1,000 in 3 min)";
        assert_eq!(of(Tier::T1, 2000), says);
        let says = "5 cases: about 1 s, by the last such run here (70 in 7 s)";
        assert_eq!(of(Tier::T0, 5), says);
        let says = "40,000 cases; how long they take is said once some have run";
        assert_eq!(of(Tier::T2, 40_000), says);
        let on_gpu = line(&before, Tier::T1, BackendKind::Cuda, 3);
        assert_eq!(
            on_gpu,
            "3 cases; how long they take is said once some have run"
        );
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
            line(&before, Tier::T1, BackendKind::Emulated, 2000),
            "2,000 cases; how long they take is said once some have run"
        );
    }
}
