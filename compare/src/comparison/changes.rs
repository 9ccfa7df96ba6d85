//! What differs from the committed records: faster, slower, fatter, wrong.

use super::latency::withheld;
use super::{Committed, differing, summary_of};
use common::evidence::Quantity;
use common::record::{BuiltKernel, KernelBuild, Record, StageBuild, Timing, VariantCounters};
use common::resources::KernelFacts;
use common::verdict::Verdict;
use serde::Serialize;
use std::fmt;

/// A median that moved by less than this, or whose interval overlaps the old one, has not changed.
pub const LATENCY_CHANGE: f64 = 0.02;

/// A largest error that grew by less than this factor has not changed.
pub const ERROR_GROWTH: f64 = 1.5;

/// Which way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// A regression.
    Worse,
    /// An improvement.
    Better,
    /// Neither by itself: what it is worth, the latency says.
    Differs,
}

impl fmt::Display for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Direction::Worse => "worse",
            Direction::Better => "better",
            Direction::Differs => "differs",
        })
    }
}

/// One difference from a committed record.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// Which way.
    pub direction: Direction,
    /// `stage0-scalar/wmma-qk-32x64`.
    pub place: String,
    /// `p50 on mission f16 full`.
    pub what: String,
    /// The committed value.
    pub from: String,
    /// The value now.
    pub to: String,
    /// The committed record.
    pub against: String,
}

/// All differences between `subject` and the newest committed records that can be compared with it, regressions first.
pub fn against(subject: (&str, &Record), committed: &[Committed]) -> Vec<Change> {
    let (name, record) = subject;
    // A committed record that stands in for a run is compared with those before it.
    let earlier: Vec<&Committed> = committed.iter().take_while(|(other, _)| other.as_str() != name).collect();
    let newest =
        |comparable: &dyn Fn(&Record) -> bool| earlier.iter().rev().find(|(_, other)| comparable(other)).copied();
    let mut changes = Vec::new();
    if let Some(old) =
        newest(&|other| other.meta.backend == record.meta.backend && !other.correctness.variants.is_empty())
    {
        gates_and_errors(record, old, &mut changes);
    }
    let gpu = record.meta.machine.gpu.name();
    if let Some(old) =
        newest(&|other| gpu.is_some() && other.meta.machine.gpu.name() == gpu && other.performance.is_some())
    {
        latencies(record, old, &mut changes);
    }
    if let Some(old) = newest(&|other| other.meta.stages.iter().any(has_gpu_code)) {
        compiled(record, old, &mut changes);
    }
    if let Some(old) = newest(&|other| !other.evidence.counters.is_empty()) {
        counters(record, old, &mut changes);
    }
    changes.sort_by_key(|change| change.direction);
    changes
}

fn has_gpu_code(stage: &StageBuild) -> bool {
    stage.variants.iter().flat_map(|variant| &variant.kernels).any(|kernel| !kernel.built.is_empty())
}

fn gates_and_errors(record: &Record, (name, old): &Committed, changes: &mut Vec<Change>) {
    for before in &old.correctness.variants {
        let Some(after) = summary_of(record, &before.stage, &before.variant) else { continue };
        let place = format!("{}/{}", before.stage, before.variant);
        let mut push = |direction, what: String, from: String, to: String| {
            changes.push(Change { direction, place: place.clone(), what, from, to, against: name.clone() });
        };
        for gate in &before.gates {
            let Some(now) = after.gates.iter().find(|other| other.result.gate == gate.result.gate) else { continue };
            let direction = match (gate.result.verdict, now.result.verdict) {
                (Verdict::Pass, Verdict::Fail) => Direction::Worse,
                (Verdict::Fail, Verdict::Pass) => Direction::Better,
                _ => continue,
            };
            let what = format!("gate {}", gate.result.gate);
            push(direction, what, gate.result.verdict.to_string(), now.result.verdict.to_string());
        }
        // Different tiers run different cases, and a larger set has a larger worst case.
        if let (true, Some(was), Some(is)) =
            (old.meta.tier == record.meta.tier && old.meta.scope == record.meta.scope, &before.worst, &after.worst)
        {
            let what = "largest error".to_string();
            let (from, to) = (format!("{:.2e}", was.max_abs), format!("{:.2e} at {}", is.max_abs, is.at));
            if is.max_abs.is_nan() || is.max_abs > was.max_abs * ERROR_GROWTH {
                push(Direction::Worse, what, from, to);
            } else if is.max_abs * ERROR_GROWTH < was.max_abs {
                push(Direction::Better, what, from, to);
            }
        }
    }
}

fn latencies(record: &Record, (name, old): &Committed, changes: &mut Vec<Change>) {
    for after in record.performance.iter().flat_map(|performance| &performance.timings) {
        let same = |before: &&Timing| {
            (&before.stage, &before.variant, &before.shape_name, before.dtype, before.mask)
                == (&after.stage, &after.variant, &after.shape_name, after.dtype, after.mask)
                && before.measurement.rotation.state == after.measurement.rotation.state
        };
        let before = old.performance.iter().flat_map(|performance| &performance.timings).rfind(same);
        let Some(before) = before else { continue };
        // A variant that is not green has no latency to speak of.
        if withheld(record, after).is_some() || withheld(old, before).is_some() {
            continue;
        }
        let (was, is) = (&before.measurement.device, &after.measurement.device);
        let apart = was.p50_interval.high < is.p50_interval.low || is.p50_interval.high < was.p50_interval.low;
        let ratio = is.p50 / was.p50;
        if !apart || (ratio - 1.0).abs() < LATENCY_CHANGE {
            continue;
        }
        changes.push(Change {
            direction: if ratio > 1.0 { Direction::Worse } else { Direction::Better },
            place: format!("{}/{}", after.stage, after.variant),
            what: format!("p50 on {} {} {}", after.shape_name, after.dtype, after.mask),
            from: format!("{:.2} us", was.p50),
            to: format!("{:.2} us ({:+.1} %)", is.p50, 100.0 * (ratio - 1.0)),
            against: name.clone(),
        });
    }
}

/// Counters are exact, so every difference is one. Bank conflicts and sectors are waste, whichever way a kernel works;
/// of the other counters more may be better, such as tensor operations.
fn direction(quantity: Quantity, from: f64, to: f64) -> Direction {
    let is_waste = matches!(
        quantity,
        Quantity::SharedReadConflicts
            | Quantity::SharedWriteConflicts
            | Quantity::AsyncWriteConflicts
            | Quantity::GlobalReadSectors
            | Quantity::GlobalWriteSectors
    );
    match (is_waste, to > from) {
        (true, true) => Direction::Worse,
        (true, false) => Direction::Better,
        (false, _) => Direction::Differs,
    }
}

fn counters(record: &Record, (name, old): &Committed, changes: &mut Vec<Change>) {
    for before in &old.evidence.counters {
        let same = |after: &&VariantCounters| (&after.stage, &after.variant) == (&before.stage, &before.variant);
        let Some(after) = record.evidence.counters.iter().find(same) else { continue };
        // Counters are exact for one compiler only.
        let compiler = |record: &Record| {
            let stage = record.meta.stages.iter().find(|stage| stage.id == before.stage);
            stage.map(|stage| stage.host_compiler.clone())
        };
        let (Ok(was), Ok(is)) = (before.counting.launch(), after.counting.launch()) else { continue };
        if compiler(record) != compiler(old) {
            continue;
        }
        let differing = differing(was, is);
        // One line per variant and direction.
        for wanted in [Direction::Worse, Direction::Better, Direction::Differs] {
            let of_direction =
                differing.iter().filter(|(quantity, from, to)| direction(*quantity, *from, *to) == wanted);
            let (mut what, mut from, mut to) = (Vec::new(), Vec::new(), Vec::new());
            for (quantity, was, is) in of_direction {
                what.push(quantity.to_string());
                from.push(quantity.show(*was));
                to.push(quantity.show(*is));
            }
            if !what.is_empty() {
                changes.push(Change {
                    direction: wanted,
                    place: format!("{}/{}", before.stage, before.variant),
                    what: what.join("; "),
                    from: from.join("; "),
                    to: to.join("; "),
                    against: name.clone(),
                });
            }
        }
    }
}

fn compiled(record: &Record, (name, old): &Committed, changes: &mut Vec<Change>) {
    for (place, facts_before, before) in kernels(old) {
        let found = kernels(record)
            .into_iter()
            .find(|(other, _, built)| *other == place && built.ptxas.arch == before.ptxas.arch);
        let Some((_, facts_after, after)) = found else { continue };
        let (was, is) = (&before.ptxas.resources, &after.ptxas.resources);
        let spilled = |built: &BuiltKernel| {
            (built.ptxas.resources.spill_store_bytes + built.ptxas.resources.spill_load_bytes) as usize
        };
        let figures = [
            ("registers", was.registers as usize, is.registers as usize),
            ("spilled bytes", spilled(before), spilled(after)),
            ("stack bytes", was.stack_frame_bytes as usize, is.stack_frame_bytes as usize),
            ("dynamic shared bytes", facts_before.dynamic_shared_bytes, facts_after.dynamic_shared_bytes),
        ];
        for (what, from, to) in figures.into_iter().filter(|(_, from, to)| from != to) {
            changes.push(Change {
                direction: if to > from { Direction::Worse } else { Direction::Better },
                place: place.clone(),
                what: format!("{what} ({})", after.ptxas.arch),
                from: from.to_string(),
                to: to.to_string(),
                against: name.clone(),
            });
        }
    }
}

fn kernels(record: &Record) -> Vec<(String, &KernelFacts, &BuiltKernel)> {
    let mut kernels = Vec::new();
    for stage in &record.meta.stages {
        for KernelBuild { facts, built } in stage.variants.iter().flat_map(|variant| &variant.kernels) {
            kernels.extend(built.iter().map(|built| (format!("{}/{}", stage.id, facts.symbol), facts, built)));
        }
    }
    kernels
}
