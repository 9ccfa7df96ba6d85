//! Latencies on both sides, by the interval of the ratio of the medians.

use super::{Change, Difference, Join, Judgement, What, unequal};
use crate::judge::best::p50;
use crate::judge::drift::{Drift, FEWEST, clock, is_of_one_kernel};
use crate::table::{Row, Table};
use common::device::BackendKind;
use common::metric::{LATENCY_CHANGE, Metric};
use common::timing::Change as Decided;
use common::timing::stats::{Interval, Ratio};

impl Join<'_> {
    pub(super) fn latency(&self, old: &Row, new: &Row) -> Difference {
        let what = What::Metric(Metric::P50);
        let conditions = [old, new].map(|row| row.conditions.as_deref().unwrap_or("unknown"));
        let reason = self
            .incomparable(old, new)
            .or_else(|| unequal(conditions[0], conditions[1]))
            .or_else(|| failing(self.base, old))
            .or_else(|| failing(self.new, new));
        if let Some(why) = reason {
            return self.difference(new, what, Judgement::new(Change::Missing, why));
        }
        let ratio = ratio(old, new);
        let judgement = self.judge_latency(&ratio, old, new);
        let [was, is] = [old, new].map(p50);
        let (shown_base, shown_new) = (Metric::P50.show(was), Metric::P50.show(is));
        let difference = self
            .difference(new, what, judgement)
            .values(Some(shown_base), Some(shown_new))
            .figures(was, Some(is));
        Difference {
            ratio: Some(ratio),
            ..difference
        }
    }

    fn judge_latency(&self, ratio: &Ratio, old: &Row, new: &Row) -> Judgement {
        if old.session == new.session && p50(old) != p50(new) {
            let why = "one session has two times of it: it was edited, or measured again under the \
                       same name";
            return Judgement::new(Change::Undecided, why);
        }
        if is_of_one_kernel(old, new) {
            let why = "the kernel has not changed: what moved is the machine or the harness";
            return Judgement::new(Change::Unchanged, why);
        }
        self.judge_changed(ratio, old, new)
    }

    /// Judges a latency whose kernel has changed. What the session adds to all kernels is not this
    /// kernel's.
    fn judge_changed(&self, ratio: &Ratio, old: &Row, new: &Row) -> Judgement {
        let margin = Margin::new(&self.drift);
        let relative = scaled(ratio, 1.0 / self.drift.shift);
        let in_time = Decided::from_ratio(&relative, margin.limit);
        let in_cycles = self.in_cycles(ratio, old, new);
        match in_time {
            Decided::Same => self.judge_same(&margin, in_cycles, old, new),
            Decided::Ambiguous => {
                let why = format!("the interval crosses {margin}");
                Judgement::new(Change::Undecided, why)
            }
            Decided::Faster | Decided::Slower => {
                let noise = noise(old).max(noise(new));
                let beyond_noise = Decided::from_ratio(&relative, margin.limit.max(noise));
                if beyond_noise != in_time {
                    let percent = 100.0 * noise;
                    let why = format!(
                        "beyond {margin}, but not beyond the samples' noise of {percent:.1} %"
                    );
                    return Judgement::new(Change::Undecided, why);
                }
                if in_cycles.is_some_and(|decided| decided != in_time) {
                    let clocks = clocks(old, new);
                    let why = format!("beyond {margin} in time, but not in cycles: {clocks}");
                    return Judgement::new(Change::Undecided, why);
                }
                let change = if in_time == Decided::Faster {
                    Change::Better
                } else {
                    Change::Worse
                };
                Judgement::new(change, format!("beyond {margin}"))
            }
        }
    }

    /// Judges a latency that is the same in time. Without unchanged kernels nothing else shows what
    /// a faster clock hides.
    fn judge_same(
        &self,
        margin: &Margin,
        in_cycles: Option<Decided>,
        old: &Row,
        new: &Row,
    ) -> Judgement {
        let word = match in_cycles {
            Some(Decided::Faster) => "faster",
            Some(Decided::Slower) => "slower",
            Some(Decided::Same | Decided::Ambiguous) | None => "",
        };
        if word.is_empty() || self.drift.kernels >= FEWEST {
            return Judgement::new(Change::Unchanged, format!("within {margin}"));
        }
        let clocks = clocks(old, new);
        let why = format!("within {margin} in time, but {word} in cycles: {clocks}");
        Judgement::new(Change::Undecided, why)
    }

    /// Judges a latency in cycles: a change of the clock is not the kernel's. What unchanged
    /// kernels moved by in time contains that change already, so that here they are compared in
    /// cycles, too. `None` where a clock is not known, or theirs are not.
    fn in_cycles(&self, ratio: &Ratio, old: &Row, new: &Row) -> Option<Decided> {
        let (was, is) = clock(old).zip(clock(new))?;
        let Drift {
            kernels,
            shift,
            spread,
        } = self.drift_in_cycles;
        if kernels < FEWEST && self.drift.kernels >= FEWEST {
            return None;
        }
        let limit = LATENCY_CHANGE.max(spread);
        Some(Decided::from_ratio(&scaled(ratio, was / is / shift), limit))
    }
}

/// The share that a latency must move by to count, and the unchanged kernels that it rests on.
struct Margin {
    limit: f64,
    drift: Drift,
}

impl Margin {
    fn new(drift: &Drift) -> Self {
        Self {
            limit: LATENCY_CHANGE.max(drift.spread),
            drift: *drift,
        }
    }
}

impl std::fmt::Display for Margin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} %", 100.0 * self.limit)?;
        let kernels = self.drift.kernels;
        if self.limit > self.drift.spread {
            Ok(())
        } else if kernels < FEWEST {
            f.write_str(", the usual variation between sessions")
        } else {
            write!(
                f,
                ", as far as 95 of 100 of {kernels} unchanged kernels moved"
            )
        }
    }
}

/// Returns the noise of a row's samples: the share by which p90 lies above p50.
fn noise(row: &Row) -> f64 {
    let median = p50(row);
    row.value(Metric::P90)
        .map_or(0.0, |p90| (p90 - median) / median)
}

fn clocks(old: &Row, new: &Row) -> String {
    let [was, is] = [old, new].map(|row| clock(row).unwrap_or_default());
    format!("{was:.0} MHz against {is:.0} MHz")
}

fn ratio(old: &Row, new: &Row) -> Ratio {
    let [from, to] = [old, new].map(|row| row.estimate(Metric::P50));
    let ((from_low, from_high), (to_low, to_high)) = (from.ends(), to.ends());
    Ratio {
        value: from.value / to.value,
        interval: Interval {
            low: from_low / to_high,
            high: from_high / to_low,
        },
    }
}

fn scaled(ratio: &Ratio, scale: f64) -> Ratio {
    Ratio {
        value: ratio.value * scale,
        interval: Interval {
            low: ratio.interval.low * scale,
            high: ratio.interval.high * scale,
        },
    }
}

/// Returns why a latency says nothing, if its kernel is wrong.
pub(super) fn failing(table: &Table, row: &Row) -> Option<String> {
    let mut judged = Vec::new();
    if let Some(checked) = table.checked(&row.subject, BackendKind::Cuda)
        && checked.identity == row.identity
    {
        judged.push(checked);
    }
    judged.push(row);
    let (gate, _) = judged.into_iter().flat_map(Row::failed).next()?;
    Some(format!("{} fails {gate}", row.subject))
}
