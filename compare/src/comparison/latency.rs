//! Which latency a row shows, where it comes from, and what it is compared with. A ratio never mixes two records.

use super::peers::matrix_peak;
use super::{Committed, is_green, summary_of};
use common::problem::{Dtype, Mask, Shape};
use common::record::{Gpu, Record, StageBuild, Timing, TimingScope};
use common::verdict::Verdict;
use serde::Serialize;

/// The latency of a variant on the claims' problem: mission, f16, full mask.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum Latency {
    /// Measured, on a green variant.
    Measured {
        /// The numbers.
        figures: Figures,
        /// Whose numbers.
        origin: Origin,
    },
    /// Measured, and not shown.
    Withheld {
        /// Why.
        reason: String,
    },
    /// Not measured.
    NoData {
        /// Why.
        reason: String,
    },
}

/// Device times in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figures {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// Mean.
    pub mean: f64,
    /// Standard deviation.
    pub std: f64,
    /// Median of single launches between two events.
    pub single_p50: f64,
    /// What the cache held: `warm L2`.
    pub cache: &'static str,
    /// Against the best green variant of the predecessor.
    pub vs_previous: Option<Speedup>,
    /// Against the best green variant of the first stage's default family.
    pub vs_first: Option<Speedup>,
}

/// `base / new` of medians in one record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Speedup {
    /// The base: `stage0-scalar/wmma-qk-32x64`.
    pub base: String,
    /// The ratio; above 1 is faster.
    pub ratio: f64,
}

impl Speedup {
    /// The same as a reduction of time in percent: 20 where the ratio is 1.25.
    pub fn reduction_percent(&self) -> f64 {
        100.0 * (1.0 - 1.0 / self.ratio)
    }
}

/// Whose number it is.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "of", rename_all = "snake_case")]
pub enum Origin {
    /// This run's.
    Run,
    /// A committed record's, of the kernel as it is now.
    Committed {
        /// The record.
        record: String,
        /// Its GPU.
        gpu: String,
    },
    /// A committed record's that no longer holds.
    Stale {
        /// The record.
        record: String,
        /// Its GPU.
        gpu: String,
        /// What has changed.
        why: String,
    },
}

/// The best green variant of each stage on one problem.
#[derive(Clone, Debug, PartialEq)]
pub struct ByShape {
    /// The shape's name.
    pub shape_name: String,
    /// Its extents.
    pub shape: Shape,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
    /// Per stage of the ladder: variant, median in microseconds, origin.
    pub best: Vec<Option<(String, f64, Origin)>>,
}

/// Whether a timing is of the problem on which claims about `dtype` are stated.
pub fn is_mission(timing: &Timing, dtype: Dtype) -> bool {
    (timing.shape_name.as_str(), timing.dtype, timing.mask) == ("mission", dtype, Mask::Full)
}

/// Timings of `record` that may be shown: green in the same record, and green after timing.
fn shown(record: &Record) -> impl Iterator<Item = &Timing> {
    let timings = record.performance.iter().flat_map(|performance| &performance.timings);
    timings.filter(|timing| withheld(record, timing).is_none())
}

/// Why a timing may not be shown.
pub fn withheld(record: &Record, timing: &Timing) -> Option<String> {
    let place = format!("{}/{}", timing.stage, timing.variant);
    match summary_of(record, &timing.stage, &timing.variant) {
        None => return Some(format!("{place} was not checked in the run that timed it")),
        Some(summary) if !is_green(summary) => {
            return Some(format!("{place} is not green on C1-C6 and B1 in the run that timed it"));
        }
        Some(_) => {}
    }
    let broken = timing.after.iter().find(|gate| gate.verdict == Verdict::Fail)?;
    Some(format!("{place}: {} failed on the timed buffers: {}", broken.gate, broken.reason))
}

fn figures(record: &Record, stages: &[StageBuild], stage: &StageBuild, timing: &Timing) -> Figures {
    let speedup = |base: Option<&Timing>| {
        base.map(|base| Speedup {
            base: format!("{}/{}", base.stage, base.variant),
            ratio: base.measurement.device.p50 / timing.measurement.device.p50,
        })
    };
    let previous = stage.predecessor.as_ref().and_then(|id| best(record, id, |_| true));
    let first = stages.first().and_then(|first| {
        let family = first.variant(&first.default_variant).map(|variant| variant.family.as_str());
        best(record, &first.id, |name| first.variant(name).map(|variant| variant.family.as_str()) == family)
    });
    let device = &timing.measurement.device;
    Figures {
        p50: device.p50,
        p90: device.p90,
        mean: device.mean,
        std: device.std,
        single_p50: timing.measurement.single.p50,
        cache: timing.measurement.rotation.state.label(),
        vs_previous: speedup(previous),
        vs_first: speedup(first),
    }
}

/// The fastest shown variant of a stage on mission with f16.
pub fn best<'a>(record: &'a Record, stage: &str, takes: impl Fn(&str) -> bool) -> Option<&'a Timing> {
    shown(record)
        .filter(|timing| timing.stage == stage && is_mission(timing, Dtype::F16) && takes(&timing.variant))
        .min_by(|a, b| a.measurement.device.p50.total_cmp(&b.measurement.device.p50))
}

/// The variant that speaks for a stage: the fastest shown one on mission in the first record that timed the kernel as it
/// is now, of those that the device can run; the default where there is none.
pub fn headline<'a>(
    stage: &'a StageBuild,
    subject: Option<(&'a str, &'a Record)>,
    is_run: bool,
    committed: &'a [Committed],
) -> &'a str {
    let records = sources(subject, is_run, committed);
    let runs = |name: &str| stage.variant(name).is_some_and(|variant| variant.claims_kernel(Dtype::F16).is_some());
    let mut bests = records.into_iter().filter_map(|(_, record)| best(record, &stage.id, runs));
    bests.find(|timing| timing.identity == stage.identity).map_or(&stage.default_variant, |timing| &timing.variant)
}

/// Whose number a timing of the committed record `name` is, seen from a run on `here`.
fn origin(name: &str, record: &Record, timing: &Timing, stage: &StageBuild, here: Option<&Gpu>) -> Origin {
    let gpu = record.meta.machine.gpu.name().unwrap_or("an unknown GPU").to_string();
    let other_machine = here.and_then(Gpu::name).filter(|name| *name != gpu);
    let record = name.to_string();
    if timing.identity != stage.identity {
        Origin::Stale { record, gpu, why: "the kernel has changed since".into() }
    } else if let Some(other) = other_machine {
        Origin::Stale { record, why: format!("measured on another GPU than this run's {other}"), gpu }
    } else {
        Origin::Committed { record, gpu }
    }
}

/// The records to look for a latency in, best first: the run's, then the committed ones, newest first.
fn sources<'a>(
    subject: Option<(&'a str, &'a Record)>,
    is_run: bool,
    committed: &'a [Committed],
) -> Vec<(Option<&'a str>, &'a Record)> {
    let run = subject.filter(|_| is_run).map(|(_, record)| (None, record));
    run.into_iter().chain(committed.iter().rev().map(|(name, record)| (Some(name.as_str()), record))).collect()
}

/// The latency of a variant: this run's, else the newest committed one of the kernel as it is now, else the newest.
pub fn of_variant(
    stage: &StageBuild,
    variant: &str,
    subject: Option<(&str, &Record)>,
    is_run: bool,
    committed: &[Committed],
) -> Latency {
    let here = subject.filter(|_| is_run).map(|(_, record)| &record.meta.machine.gpu);
    let mut stale = None;
    for (name, record) in sources(subject, is_run, committed) {
        let timings = record.performance.iter().flat_map(|performance| &performance.timings);
        let found = timings.rev().find(|t| is_mission(t, Dtype::F16) && t.stage == stage.id && t.variant == variant);
        let Some(timing) = found else { continue };
        if let Some(reason) = withheld(record, timing) {
            if name.is_none() {
                return Latency::Withheld { reason };
            }
            continue;
        }
        let figures = figures(record, &record.meta.stages, recorded_stage(record, stage), timing);
        let origin = name.map_or(Origin::Run, |name| origin(name, record, timing, stage, here));
        let latency = Latency::Measured { figures, origin: origin.clone() };
        match origin {
            Origin::Stale { .. } => stale = stale.or(Some(latency)),
            _ => return latency,
        }
    }
    stale.unwrap_or_else(|| Latency::NoData { reason: no_latency(subject, is_run) })
}

fn recorded_stage<'a>(record: &'a Record, stage: &'a StageBuild) -> &'a StageBuild {
    record.meta.stages.iter().find(|recorded| recorded.id == stage.id).unwrap_or(stage)
}

fn no_latency(subject: Option<(&str, &Record)>, is_run: bool) -> String {
    match subject.filter(|_| is_run).map(|(_, record)| &record.meta.machine.gpu) {
        Some(Gpu::Absent { reason }) => format!("no GPU here ({reason}), and no committed record has it"),
        Some(Gpu::Present { .. }) => "not timed in this run, and no committed record has it".into(),
        None => "no committed record has it".into(),
    }
}

/// Device time of each stage's best variant on every problem that was timed, in the first record that timed any, what that
/// record did not time, and the matrix peak of its GPU in FLOP/s with its source.
pub fn by_shape(
    stages: &[StageBuild],
    subject: Option<(&str, &Record)>,
    is_run: bool,
    committed: &[Committed],
) -> (Vec<ByShape>, Vec<TimingScope>, Option<(f64, String)>) {
    let here = subject.filter(|_| is_run).map(|(_, record)| &record.meta.machine.gpu);
    let timed = |record: &Record| shown(record).next().is_some();
    let Some((name, record)) = sources(subject, is_run, committed).into_iter().find(|(_, record)| timed(record)) else {
        return Default::default();
    };
    let mut rows: Vec<ByShape> = Vec::new();
    for timing in shown(record) {
        let Some(index) = stages.iter().position(|stage| stage.id == timing.stage) else { continue };
        let key = (&timing.shape_name, timing.dtype, timing.mask);
        let at = rows.iter().position(|row| (&row.shape_name, row.dtype, row.mask) == key).unwrap_or_else(|| {
            rows.push(ByShape {
                shape_name: timing.shape_name.clone(),
                shape: timing.shape,
                dtype: timing.dtype,
                mask: timing.mask,
                best: vec![None; stages.len()],
            });
            rows.len() - 1
        });
        let p50 = timing.measurement.device.p50;
        let best = &mut rows[at].best[index];
        if best.as_ref().is_none_or(|(_, other, _)| p50 < *other) {
            let origin = name.map_or(Origin::Run, |name| origin(name, record, timing, &stages[index], here));
            *best = Some((timing.variant.clone(), p50, origin));
        }
    }
    let scopes = record.performance.iter().flat_map(|performance| performance.scopes.clone()).collect();
    let peak = matrix_peak(record.peers.as_ref(), &record.meta.machine.gpu);
    (rows, scopes, peak)
}
