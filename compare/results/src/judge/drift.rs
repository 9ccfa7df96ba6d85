//! What a session adds by itself: kernels that have not changed are timed again in every session,
//! and show how far latencies move without a reason in the kernel.

use super::best::p50;
use crate::table::{Row, Table};
use common::metric::Metric;

/// The share of unchanged kernels whose latencies stay within [`Drift::spread`].
const COVERED: f64 = 0.95;

/// The distance that unchanged kernels moved where too few were timed to tell: 1 in 100 moved
/// further in 4,400 pairs of latencies of 13 sessions on H200s.
const UNMEASURED: f64 = 0.03;

/// The number of unchanged kernels that it takes to tell.
pub const FEWEST: usize = 20;

/// How unchanged kernels moved between two tables, in time or in cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// The number of latencies of unchanged kernels that both have, of different sessions.
    pub kernels: usize,
    pub shift: f64,
    /// The distance from the median within which 95 of 100 lie, as a share.
    pub spread: f64,
}

/// Returns whether both rows are of the same kernels, by source or by machine code.
pub fn is_of_one_kernel(old: &Row, new: &Row) -> bool {
    let has_one_identity = old.identity.is_some() && old.identity == new.identity;
    let has_one_code = old.code.is_some() && old.code == new.code;
    has_one_identity || has_one_code
}

/// Returns the SM clock that was recorded with a latency, in MHz.
pub fn clock(row: &Row) -> Option<f64> {
    row.value(Metric::SmMhz).filter(|mhz| *mhz > 0.0)
}

/// Returns a latency in cycles of its clock; NaN where none was recorded.
pub fn cycles(row: &Row) -> f64 {
    p50(row) * clock(row).unwrap_or(f64::NAN)
}

impl Drift {
    /// Compares what unchanged kernels took, by `cost`: [`p50`] or [`cycles`].
    pub fn between(base: &Table, new: &Table, cost: fn(&Row) -> f64) -> Self {
        let mut logarithms = Vec::new();
        for row in new.latencies() {
            let Some(old) = base.get(&row.key()) else {
                continue;
            };
            let is_control = old.session != row.session
                && old.conditions == row.conditions
                && is_of_one_kernel(old, row);
            let logarithm = (cost(old) / cost(row)).ln();
            if is_control && logarithm.is_finite() {
                logarithms.push(logarithm);
            }
        }
        Self::from_logarithms(logarithms)
    }

    /// Computes it from logarithms of base / new.
    fn from_logarithms(mut logarithms: Vec<f64>) -> Self {
        let kernels = logarithms.len();
        if kernels < FEWEST {
            return Self {
                kernels,
                shift: 1.0,
                spread: UNMEASURED,
            };
        }
        logarithms.sort_by(f64::total_cmp);
        let median = logarithms[kernels / 2];
        let mut distances: Vec<f64> = logarithms
            .iter()
            .map(|logarithm| (logarithm - median).abs())
            .collect();
        distances.sort_by(f64::total_cmp);
        let rank = (COVERED * kernels as f64).ceil() as usize;
        Self {
            kernels,
            shift: median.exp(),
            spread: distances[rank.clamp(1, kernels) - 1].exp() - 1.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Row;
    use crate::testing::row;

    #[test]
    fn the_median_is_the_shift_and_outliers_do_not_widen_the_spread() {
        let moved: Vec<f64> = (0..100)
            .map(|i| 0.01 + 0.0002 * f64::from(i - 50))
            .chain([0.3, -0.3])
            .collect();
        let drift = Drift::from_logarithms(moved);
        assert_eq!(drift.kernels, 102);
        assert!((drift.shift - 1.01).abs() < 1e-3, "{drift:?}");
        assert!((0.009..0.011).contains(&drift.spread), "{drift:?}");
    }

    #[test]
    fn few_kernels_say_nothing() {
        let drift = Drift::from_logarithms(vec![0.1; FEWEST - 1]);
        assert_eq!((drift.shift, drift.spread), (1.0, UNMEASURED));
        assert_eq!(
            Drift::from_logarithms(vec![0.1; FEWEST]).shift,
            0.1_f64.exp()
        );
        // 95 of 100 are 29 of 30.
        let of_thirty = Drift::from_logarithms([vec![0.0; 28], vec![0.1, 0.2]].concat());
        assert_eq!(of_thirty.spread, 0.1_f64.exp() - 1.0);
    }

    /// Returns a time of one session, at 1980 MHz.
    fn before() -> Row {
        time().figure(Metric::SmMhz, 1980.0)
    }

    /// Returns a time without a clock.
    fn time() -> Row {
        row("s/v | mission f16 full | gpu | under warm L2 | p50 2 | identity this | session 1")
    }

    /// Returns a time of another session.
    fn later() -> Row {
        Row {
            session: "2".into(),
            ..time()
        }
    }

    /// Returns the number of controls in time and in cycles between [`before`] and this.
    fn controls(now: Row) -> [usize; 2] {
        let tables = [before(), now].map(|row| {
            let mut table = Table::default();
            table.append(row);
            table
        });
        [p50, cycles].map(|cost| Drift::between(&tables[0], &tables[1], cost).kernels)
    }

    #[test]
    fn the_same_kernel_in_another_session_is_a_control() {
        let clocked = later().figure(Metric::SmMhz, 1886.0);
        assert_eq!(controls(clocked), [1, 1]);
    }

    #[test]
    fn a_kernel_without_a_clock_is_no_control_in_cycles() {
        assert_eq!(controls(later()), [1, 0]);
    }

    #[test]
    fn a_kernel_in_the_same_session_is_no_control() {
        assert_eq!(controls(time()), [0, 0]);
    }

    #[test]
    fn a_kernel_under_other_conditions_is_no_control() {
        for conditions in ["cold L2", "warm L2, sustained"] {
            assert_eq!(controls(later().conditions(conditions)), [0, 0]);
        }
    }

    #[test]
    fn another_kernel_is_no_control() {
        let other = Row {
            identity: Some("other".into()),
            ..later()
        };
        assert_eq!(controls(other), [0, 0]);
    }

    #[test]
    fn a_time_that_is_no_number_is_no_control() {
        assert_eq!(controls(later().figure(Metric::P50, f64::NAN)), [0, 0]);
    }
}
