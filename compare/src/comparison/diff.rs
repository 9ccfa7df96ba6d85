//! What differs between two records: the one notion of "changed", for `compare diff` and for COMPARE.md.
//!
//! Gates, resources and counters are exact; latencies are compared by interval and threshold, errors by their bounds.
//! What cannot be compared as if it were the same (another GPU, driver, shape, compiler, backend) becomes NO DATA with a
//! reason. Where latency was measured on both sides, it has the last word on what registers and counters are worth.

mod accuracy;
mod counters;
mod gates;
mod latency;
mod presence;
mod resources;
mod stages;
mod verdict;

pub use accuracy::ERROR_MARGIN;
pub use latency::{LATENCY_CHANGE, latencies};
pub use presence::outdated;
pub use stages::{Pair, StageLine};
pub use verdict::{Difference, Harness, HarnessChange, overall};

pub use accuracy::errors;
pub use counters::counters;
pub use gates::gates;
pub use resources::resources;

use super::summary_of;
use common::evidence::Quantity;
use common::problem::{Dtype, Mask};
use common::record::Record;
use common::timing::stats::Ratio;
use common::verdict::GateId;
use serde::{Serialize, Serializer};
use std::fmt;

/// What became of one figure. In the order in which a reader needs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A gate fails now, or a figure that has a good side moved to the other.
    Worse,
    /// The latency grew.
    Slower,
    /// The evidence does not decide.
    Ambiguous,
    /// There is nothing to compare, or it must not be compared.
    NoData,
    /// The opposite of [`Class::Worse`].
    Better,
    /// The latency fell.
    Faster,
    /// It differs, which by itself is neither good nor bad.
    Changed,
    /// No difference beyond the threshold.
    Same,
}

impl Class {
    /// All, in order.
    pub const ALL: [Class; 8] = [
        Class::Worse,
        Class::Slower,
        Class::Ambiguous,
        Class::NoData,
        Class::Better,
        Class::Faster,
        Class::Changed,
        Class::Same,
    ];

    /// As printed.
    pub fn label(self) -> &'static str {
        match self {
            Class::Worse => "WORSE",
            Class::Slower => "SLOWER",
            Class::Ambiguous => "AMBIGUOUS",
            Class::NoData => "NO DATA",
            Class::Better => "BETTER",
            Class::Faster => "FASTER",
            Class::Changed => "CHANGED",
            Class::Same => "SAME",
        }
    }

    /// Whether it is a regression.
    pub fn is_worse(self) -> bool {
        matches!(self, Class::Worse | Class::Slower)
    }

    /// Whether it is an improvement.
    pub fn is_better(self) -> bool {
        matches!(self, Class::Better | Class::Faster)
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Why a row has its class: a code for people who filter, a sentence stands beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// Both sides have the same value.
    Equal,
    /// A gate or claim fails that did not fail before.
    NewlyFailing,
    /// A gate or claim passes that failed before.
    NewlyPassing,
    /// A gate or claim no longer decides.
    NewlyUndecided,
    /// Evidence of the base that the new record should have and lacks.
    NewlyMissing,
    /// A refuted claim that the new record's own refutation covers.
    RefutedAndRecorded,
    /// What the new side no longer declares.
    Removed,
    /// Only one side has it, and the other need not.
    OneSideOnly,
    /// The whole interval lies within the threshold.
    WithinThreshold,
    /// The whole interval lies beyond the threshold.
    BeyondThreshold,
    /// The interval crosses the threshold.
    CrossesThreshold,
    /// So it does, but it holds 1 too, and both sides timed the same kernel.
    SameKernel,
    /// Beyond the threshold, but not beyond the samples' own noise.
    WithinNoise,
    /// The time moved as the multiprocessors' clock did.
    ClockMoved,
    /// A side is not green, so it has no latency.
    NotGreen,
    /// Different GPUs.
    OtherGpu,
    /// Different drivers.
    OtherDriver,
    /// A name stands for different extents.
    OtherShape,
    /// Different states of the L2 cache.
    OtherCache,
    /// Different compilers.
    OtherCompiler,
    /// Different backends.
    OtherBackend,
    /// Different sets of cases.
    OtherCases,
    /// The kernel has changed since the record was made.
    OtherKernel,
    /// A run that did not come to its end.
    Unfinished,
    /// Spills or stack.
    Spills,
    /// Occupancy or wasted traffic moved, and no latency contradicts.
    CostMoved,
    /// A cost moved one way and the measured latency the other.
    LatencyDecides,
    /// It differs inside its caps, or has no good side.
    NoGoodSide,
    /// An error grew or fell by more than the margin, or crossed its bound.
    BeyondMargin,
    /// An error moved by less than the margin.
    WithinMargin,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The names of the JSON, so that there is one spelling.
        let name = serde_json::to_value(self).ok();
        f.pad(name.as_ref().and_then(|name| name.as_str()).unwrap_or_default())
    }
}

/// A figure of one instance, as compiled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Instance {
    /// Element type.
    pub dtype: Dtype,
    /// 64 or 128.
    pub head_dim: usize,
    /// `sm_90a`.
    pub arch: String,
}

impl fmt::Display for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} d{} {}", self.dtype, self.head_dim, self.arch)
    }
}

/// A problem that is timed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The shape's name, or its extents.
    pub shape: String,
    /// Elements per row.
    pub head_dim: usize,
    /// Element type.
    pub dtype: Dtype,
    /// The mask.
    pub mask: Mask,
}

/// What is compared.
#[derive(Clone, Debug, PartialEq)]
pub enum Metric {
    /// The run as a whole.
    Run,
    /// The variant itself.
    Variant,
    /// A gate's verdict.
    Gate(GateId),
    /// A claim, of speed or of evidence, in words.
    Claim(String),
    /// The planted faults and the synchronisation sites: gates on the gates.
    GatesOnGates,
    /// An error, by the gate that bounds it.
    Error(GateId),
    /// Median device time; `None` stands for all problems of a stage.
    Latency(Option<Problem>),
    /// Something that ptxas or kernel.cu says of an instance; `None` stands for all instances of a stage.
    Resource(&'static str, Option<Instance>),
    /// A counter of the emulator; `None` stands for all of a variant or stage.
    Counter(Option<Quantity>),
}

impl Metric {
    /// The table that it belongs to.
    pub fn group(&self) -> Group {
        match self {
            Metric::Run | Metric::Variant | Metric::Gate(_) | Metric::Claim(_) | Metric::GatesOnGates => Group::Gates,
            Metric::Error(_) => Group::Errors,
            Metric::Latency(_) => Group::Latency,
            Metric::Resource(..) => Group::Resources,
            Metric::Counter(_) => Group::Counters,
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Metric::Run => f.write_str("whole run"),
            Metric::Variant => f.write_str("variant"),
            Metric::Gate(gate) => write!(f, "gate {gate}"),
            Metric::Claim(title) => write!(f, "claim {title}"),
            Metric::GatesOnGates => f.write_str("gates on the gates"),
            Metric::Error(GateId::C3) => f.write_str("largest error of a row (C3)"),
            Metric::Error(gate) => write!(f, "largest error ({gate})"),
            Metric::Latency(Some(Problem { shape, dtype, mask, .. })) => write!(f, "p50 on {shape} {dtype} {mask}"),
            Metric::Latency(None) => f.write_str("latency"),
            Metric::Resource(what, Some(instance)) => write!(f, "{what} ({instance})"),
            Metric::Resource(what, None) => f.write_str(what),
            Metric::Counter(Some(quantity)) => write!(f, "{quantity}"),
            Metric::Counter(None) => f.write_str("counters"),
        }
    }
}

impl Serialize for Metric {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What rows are sorted and laid out by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Gates, claims, and whether a variant is there at all.
    Gates,
    /// Latency.
    Latency,
    /// Accuracy.
    Errors,
    /// Registers, spills, shared memory, occupancy.
    Resources,
    /// The emulator's counters.
    Counters,
}

/// One figure on both sides.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The stage; empty for what concerns the whole record.
    pub stage: String,
    /// The variant; absent for what concerns the whole stage.
    pub variant: Option<String>,
    /// The figure.
    pub metric: Metric,
    /// Its table.
    pub group: Group,
    /// What became of it.
    pub class: Class,
    /// Why, as a code.
    pub reason: Reason,
    /// The base's value, where it has one.
    pub base: Option<String>,
    /// The new value, where there is one.
    pub new: Option<String>,
    /// `base / new` with its interval, for latencies.
    pub ratio: Option<Ratio>,
    /// Why, in words, with the threshold.
    pub note: String,
    /// NO DATA that there should be: the exit code is 3.
    pub required: bool,
}

impl Row {
    fn new(stage: &str, variant: Option<&str>, metric: Metric, class: Class, reason: Reason) -> Self {
        Self {
            stage: stage.to_string(),
            variant: variant.map(Into::into),
            group: metric.group(),
            metric,
            class,
            reason,
            base: None,
            new: None,
            ratio: None,
            note: String::new(),
            required: false,
        }
    }

    fn values(mut self, base: impl fmt::Display, new: impl fmt::Display) -> Self {
        (self.base, self.new) = (Some(base.to_string()), Some(new.to_string()));
        self
    }

    fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// `stage0-scalar/wmma-qk-32x64`.
    pub fn place(&self) -> String {
        match (&self.variant, self.stage.is_empty()) {
            (_, true) => "the record".to_string(),
            (Some(variant), _) => format!("{}/{variant}", self.stage),
            (None, _) => self.stage.clone(),
        }
    }
}

/// Everything that `base` and `new` say of the same thing, in the order of the ladder and, within a stage, gates first
/// and the worst class first. `threshold` is the latency's (0.02: 2 %).
pub fn rows(base: &Record, new: &Record, threshold: f64) -> Vec<Row> {
    let latencies = latencies(base, new, threshold);
    let mut rows = presence::presence(base, new);
    rows.extend(gates(base, new));
    rows.extend(errors(base, new));
    rows.extend(resources(base, new, &latencies));
    rows.extend(counters(base, new, &latencies));
    rows.extend(latencies);
    let ids: Vec<&str> = new.meta.stages.iter().chain(&base.meta.stages).map(|stage| stage.id.as_str()).collect();
    rows.sort_by_key(|row| (ids.iter().position(|id| *id == row.stage), row.group, row.class));
    rows
}

/// One or more rows as one line of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The first row, which stands for all.
    pub row: Row,
    /// The figures: `registers (f16 d64 sm_89); registers (f16 d64 sm_90a)`.
    pub what: String,
    /// Their values in the base, in the same order.
    pub base: String,
    /// Their new values.
    pub new: String,
}

/// Rows as lines. Resources and counters of one variant with one class and reason share a line.
pub fn lines<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for row in rows {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "–".into());
        let line =
            Line { row: row.clone(), what: row.metric.to_string(), base: value(&row.base), new: value(&row.new) };
        let shares = |other: &&mut Line| {
            let key = |row: &Row| (row.stage.clone(), row.variant.clone(), row.class, row.reason);
            row.group == other.row.group && key(row) == key(&other.row)
        };
        let mergeable = matches!(row.group, Group::Resources | Group::Counters);
        match lines.iter_mut().find(shares).filter(|_| mergeable) {
            Some(other) => {
                for (text, more) in
                    [(&mut other.what, line.what), (&mut other.base, line.base), (&mut other.new, line.new)]
                {
                    *text += "; ";
                    *text += &more;
                }
            }
            None => lines.push(line),
        }
    }
    lines
}

#[cfg(test)]
mod tests;
