//! The registry of metrics: the name, unit, direction, threshold with its source, and gate of every
//! figure.

use crate::verdict::GateId;
#[cfg(feature = "emulated")]
use emulator::trace::Counters;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The unit of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Us,
    /// Nanoseconds, shown in microseconds.
    Ns,
    Mhz,
    Watts,
    /// Millijoules.
    Energy,
    Celsius,
    /// Bytes, sectors, instructions, cases.
    Count,
    /// 0 to 1, shown in percent.
    Share,
    /// One thing over another.
    Ratio,
    Error,
    Rate,
}

impl Unit {
    /// Writes a value with its unit; what is no number is written as such.
    pub fn show(self, value: f64) -> String {
        match self {
            Unit::Count if value.is_finite() => grouped(value.round() as u64),
            Unit::Count => value.to_string(),
            Unit::Share => format!("{:.1} %", 100.0 * value),
            Unit::Us => format!("{} µs", significant(value)),
            Unit::Ns => format!("{} µs", significant(value / 1e3)),
            Unit::Mhz => format!("{value:.0} MHz"),
            Unit::Watts => format!("{value:.0} W"),
            Unit::Energy => format!("{} mJ", significant(value)),
            Unit::Celsius => format!("{value:.0} °C"),
            Unit::Ratio => format!("{value:.3}"),
            Unit::Error => format!("{value:.1e}"),
            Unit::Rate => format!("{:.1} T/s", value / 1e12),
        }
    }
}

/// The direction in which a figure gets better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    Lower,
    Higher,
    /// Neither: another metric decides what a difference is worth.
    Informational,
}

/// The condition under which two values differ.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Threshold {
    /// Any difference.
    Exact,
    /// Any difference, for better or worse unless the latency of the same kernel shows the
    /// opposite.
    ExactUnlessLatency,
    /// A whole 95 % interval of the ratio beyond this share.
    Interval(f64),
    /// A larger difference than this.
    Absolute(f64),
    /// None: the figure is context.
    NotCompared,
}

/// The origin of a metric's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Counters,
    Declared,
    Compiler,
    /// cuobjdump on nvcc's output; a quick run does not call it.
    MachineCode,
    /// ncu: a GPU, and the permission to profile.
    Profile,
    Gpu,
}

/// The entry of a metric in the registry.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spec {
    pub label: &'static str,
    pub unit: Unit,
    pub better: Better,
    pub threshold: Threshold,
    pub because: &'static str,
    pub source: Source,
    pub gate: Option<GateId>,
    /// Whether ncu reads what the emulator counts, so that claims are judged on a GPU, too. Other
    /// counters mean something else to ncu.
    pub is_judged_by_ncu: bool,
    /// The part and the whole of a share.
    pub parts: Option<(Metric, Metric)>,
}

/// Makes the spec of a figure from a GPU, without a gate.
const fn spec(
    label: &'static str,
    unit: Unit,
    better: Better,
    threshold: Threshold,
    because: &'static str,
) -> Spec {
    Spec {
        label,
        unit,
        better,
        threshold,
        because,
        source: Source::Gpu,
        gate: None,
        is_judged_by_ncu: false,
        parts: None,
    }
}

impl Spec {
    const fn judged_by(self, gate: GateId) -> Self {
        Self {
            gate: Some(gate),
            ..self
        }
    }

    const fn from(self, source: Source) -> Self {
        Self { source, ..self }
    }

    const fn also_by_ncu(self) -> Self {
        Self {
            is_judged_by_ncu: true,
            ..self
        }
    }
}

const fn context(label: &'static str, unit: Unit) -> Spec {
    not_compared(label, unit, "context of other figures")
}

const fn not_compared(label: &'static str, unit: Unit, because: &'static str) -> Spec {
    spec(
        label,
        unit,
        Better::Informational,
        Threshold::NotCompared,
        because,
    )
}

const fn latency(label: &'static str) -> Spec {
    context(label, Unit::Us).judged_by(GateId::L1)
}

const fn speedup(label: &'static str) -> Spec {
    Spec {
        better: Better::Higher,
        ..not_compared(label, Unit::Ratio, "the claim's own bound").judged_by(GateId::L1)
    }
}

const fn share_of_bound(label: &'static str, gate: GateId) -> Spec {
    const BECAUSE: &str = "kernels that add in another order differ by a few percent of the bound";
    spec(
        label,
        Unit::Share,
        Better::Lower,
        Threshold::Absolute(ERROR_MARGIN),
        BECAUSE,
    )
    .judged_by(gate)
}

const fn count(label: &'static str, better: Better, because: &'static str) -> Spec {
    spec(label, Unit::Count, better, Threshold::Exact, because)
}

const fn resource(label: &'static str) -> Spec {
    const BECAUSE: &str = "inside its cap occupancy and latency say what it is worth";
    count(label, Better::Informational, BECAUSE)
        .judged_by(GateId::R1)
        .from(Source::Compiler)
}

const fn spill(label: &'static str) -> Spec {
    const BECAUSE: &str = "memory traffic that the source does not ask for";
    count(label, Better::Lower, BECAUSE)
        .judged_by(GateId::R1)
        .from(Source::Compiler)
}

/// Makes the spec of a figure of machine code: latency decides what a difference is worth.
const fn code(label: &'static str) -> Spec {
    const BECAUSE: &str = "the same compiler makes the same code of the same source";
    count(label, Better::Informational, BECAUSE)
        .judged_by(GateId::E1)
        .from(Source::MachineCode)
}

/// Makes the spec of a counter of which more may be better.
const fn counter(label: &'static str) -> Spec {
    const BECAUSE: &str = "deterministic; more may be better";
    count(label, Better::Informational, BECAUSE)
        .judged_by(GateId::E1)
        .from(Source::Counters)
}

/// Makes the spec of a counter of which less is better.
const fn cost(label: &'static str) -> Spec {
    Spec {
        better: Better::Lower,
        threshold: Threshold::ExactUnlessLatency,
        because: "deterministic, and only a cost",
        ..counter(label)
    }
}

/// Makes the spec of a share of counters that are compared themselves.
const fn share(label: &'static str, part: Metric, whole: Metric) -> Spec {
    Spec {
        parts: Some((part, whole)),
        ..not_compared(label, Unit::Share, "its parts are compared")
    }
    .judged_by(GateId::E1)
    .from(Source::Counters)
}

const fn profiled(label: &'static str, unit: Unit) -> Spec {
    const BECAUSE: &str = "hardware counters differ from launch to launch";
    not_compared(label, unit, BECAUSE).from(Source::Profile)
}

/// The change of a latency that counts: two measurements of the same code in one process differ by
/// up to 1.6 % in the first committed records.
pub const LATENCY_CHANGE: f64 = 0.02;

/// The share of its gate's bound below which a change of an error does not count.
const ERROR_MARGIN: f64 = 0.1;

macro_rules! metrics {
    ($($(#[$doc:meta])* $metric:ident: $spec:expr,)*) => {
        /// A kind of figure; the emulator's glossary defines what it counts.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum Metric {
            $($(#[$doc])* $metric,)*
        }

        impl Metric {
            pub const ALL: &[Metric] = &[$(Metric::$metric,)*];

            pub const fn spec(self) -> Spec {
                match self {
                    $(Metric::$metric => $spec,)*
                }
            }
        }
    };
}

metrics! {
    /// The device time of one launch in a CUDA graph.
    P50: spec(
        "p50",
        Unit::Us,
        Better::Lower,
        Threshold::Interval(LATENCY_CHANGE),
        "between two sessions 96 of 100 kernels that have not changed differ by less",
    )
    .judged_by(GateId::L1),
    P90: latency("p90"),
    Mean: latency("mean"),
    Std: context("std", Unit::Us),
    Min: context("min", Unit::Us),
    Samples: context("samples", Unit::Count),
    /// The time of one launch between two events.
    SingleP50: context("single launch p50", Unit::Us),
    /// The host's time for one call, which only enqueues.
    HostP50: context("host call p50", Unit::Us),
    SmMhz: context("SM clock", Unit::Mhz),
    /// The power of the board: at one moment of a long run after the samples; of a sustained row
    /// the mean of its counted time.
    PowerW: context("power", Unit::Watts),
    /// The limit that the GPU keeps to: a kernel that reaches nine tenths of it in its burst is
    /// timed sustained.
    PowerLimitW: context("power limit", Unit::Watts),
    /// The energy of the board over the counted time of a sustained row, by its launches.
    EnergyMj: context("energy per launch", Unit::Energy),
    Celsius: context("temperature", Unit::Celsius),
    /// `base / new` of two arms, A B B A; so are the two below.
    SpeedupP50: speedup("speedup p50"),
    SpeedupP90: speedup("speedup p90"),
    SpeedupMean: speedup("speedup mean"),
    /// `(p90 - p50) / p50` of the noisier arm; above gate L1's limit, the ratio's drift, where that
    /// is less.
    Noise: context("noise", Unit::Share),
    /// The roofline, or an empty launch.
    FloorUs: context("speed of light", Unit::Us),
    /// The number of a random problem in its run.
    Draw: context("random problem", Unit::Count),
    /// The time of the library's choice over that of the fastest variant, over random problems; so
    /// is the next.
    RegretMean: context("regret", Unit::Ratio),
    RegretWorst: context("worst regret", Unit::Ratio),
    /// The largest error from FP64, over all cases.
    MaxError: context("max error", Unit::Error),
    /// The largest error of a row, relative to its size.
    MaxRowError: context("max row error", Unit::Error),
    ErrorOfBound: share_of_bound("error of its bound", GateId::C2),
    RowErrorOfBound: share_of_bound("row error of its bound", GateId::C3),
    Cases: context("cases", Unit::Count),
    CasesUnsupported: context("cases not supported", Unit::Count),
    CasesFailed: context("launches failed", Unit::Count),
    TileM: context("query rows per block", Unit::Count),
    TileN: context("keys per tile", Unit::Count),
    Threads: context("threads", Unit::Count),
    MinBlocks: context("minimum blocks per SM", Unit::Count),
    DynamicSharedBytes: resource("dynamic shared bytes").from(Source::Declared),
    RegisterCap: context("register cap", Unit::Count),
    SharedCapBytes: context("shared-memory cap", Unit::Count),
    Registers: resource("registers"),
    SpillBytes: spill("spilled bytes"),
    StackBytes: spill("stack bytes"),
    StaticSharedBytes: resource("static shared bytes"),
    CodeBytes: code("bytes of machine code"),
    /// LDL and STL: spills, and arrays that are indexed at run time.
    LocalAccesses: code("local-memory instructions in the code"),
    /// The instructions of the main loop without inner loops.
    LoopInstructions: code("instructions in the main loop"),
    LoopMacs: code("tensor multiply-adds of a warp in the main loop"),
    LoopHmma: code("HMMA in the main loop"),
    LoopHgmma: code("HGMMA in the main loop"),
    LoopQgmma: code("QGMMA in the main loop"),
    LoopLdsm: code("LDSM in the main loop"),
    LoopLds: code("LDS in the main loop"),
    LoopSts: code("STS, STSM in the main loop"),
    LoopLdgsts: code("LDGSTS in the main loop"),
    LoopTma: code("UTMALDG, UBLKCP in the main loop"),
    LoopMufu: code("MUFU in the main loop"),
    LoopFma: code("FFMA, HFMA2 in the main loop"),
    LoopShuffles: code("SHFL in the main loop"),
    LoopBarriers: code("BAR, SYNCS in the main loop"),
    Occupancy: spec(
        "occupancy",
        Unit::Share,
        Better::Higher,
        Threshold::ExactUnlessLatency,
        "resident warps hide latency, unless the latency says otherwise",
    )
    .from(Source::Compiler),
    /// The bytes that lanes read, cp.async included.
    GlobalReadBytes: counter("global bytes read").also_by_ncu(),
    GlobalReadSectors: cost("global sectors read"),
    PlainReadBytes: counter("global bytes read through registers").also_by_ncu(),
    AsyncCopyBytes: counter("cp.async bytes").also_by_ncu(),
    AsyncCopyShare: share(
        "cp.async share of global bytes read",
        Metric::AsyncCopyBytes,
        Metric::GlobalReadBytes,
    )
    .also_by_ncu(),
    TmaReadBytes: counter("bytes read by TMA"),
    TmaReadShare: share(
        "TMA's share of global bytes read",
        Metric::TmaReadBytes,
        Metric::GlobalReadBytes,
    ),
    GlobalWriteBytes: counter("global bytes written").also_by_ncu(),
    GlobalWriteSectors: cost("global sectors written"),
    SharedReadRequests: counter("shared-load requests"),
    SharedReadBytes: counter("shared bytes read"),
    SharedReadWavefronts: counter("shared-load wavefronts"),
    SharedReadConflicts: cost("shared-load bank conflicts"),
    SharedReadConflictShare: share(
        "bank conflicts' share of shared-load wavefronts",
        Metric::SharedReadConflicts,
        Metric::SharedReadWavefronts,
    )
    .also_by_ncu(),
    SharedWriteRequests: counter("shared-store requests"),
    SharedWriteBytes: counter("shared bytes written"),
    SharedWriteWavefronts: counter("shared-store wavefronts"),
    SharedWriteConflicts: cost("shared-store bank conflicts"),
    SharedWriteConflictShare: share(
        "bank conflicts' share of shared-store wavefronts",
        Metric::SharedWriteConflicts,
        Metric::SharedWriteWavefronts,
    ),
    AsyncWriteWavefronts: counter("cp.async shared wavefronts"),
    AsyncWriteConflicts: cost("cp.async bank conflicts"),
    TensorOps: counter("tensor operations"),
    TensorMacs: counter("tensor multiply-adds").also_by_ncu(),
    Shuffles: counter("shuffles"),
    Votes: counter("votes"),
    WarpBarriers: counter("warp barriers"),
    BlockBarriers: counter("block barriers"),
    NamedBarriers: counter("named barriers"),
    MbarrierArrivals: counter("mbarrier arrivals"),
    MbarrierWaits: counter("mbarrier waits"),
    Exps: counter("exponentials"),
    TracedBlocks: context("traced blocks", Unit::Count),
    LaunchBlocks: context("blocks of the launch", Unit::Count),
    Tiles: context("tiles of the launch", Unit::Count),
    ProfiledNs: profiled("time under ncu", Unit::Ns),
    SmThroughput: profiled("SM throughput", Unit::Share),
    DramThroughput: profiled("DRAM throughput", Unit::Share),
    DramBytes: profiled("DRAM bytes", Unit::Count),
    AchievedOccupancy: profiled("achieved occupancy", Unit::Share),
    TensorPipeActive: profiled("tensor pipe active", Unit::Share)
        .judged_by(GateId::E1)
        .also_by_ncu(),
    SectorsPerRead: profiled("sectors per global read", Unit::Ratio),
    L2SectorsRead: profiled("L2 sectors read", Unit::Count),
    L2HitRate: profiled("L2 hit rate", Unit::Share),
    LocalInstructions: profiled("local-memory instructions", Unit::Count),
    BarrierStallShare: profiled("barrier stalls' share", Unit::Share)
        .judged_by(GateId::E1)
        .also_by_ncu(),
    LongScoreboardShare: profiled("long-scoreboard stalls' share", Unit::Share),
    ShortScoreboardShare: profiled("short-scoreboard stalls' share", Unit::Share),
    /// The speed of a matrix product of the same library in the same session.
    MatrixFlops: context("matrix product", Unit::Rate),
    CopyBytesPerSecond: context("copy", Unit::Rate),
}

impl Metric {
    pub const fn label(self) -> &'static str {
        self.spec().label
    }

    pub fn name(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(name)) => name,
            _ => String::new(),
        }
    }

    pub const fn source(self) -> Source {
        self.spec().source
    }

    /// Returns the metrics that the emulator counts, in the order of the tables.
    pub fn all_counted() -> impl Iterator<Item = Metric> {
        Metric::ALL
            .iter()
            .copied()
            .filter(|metric| metric.source() == Source::Counters)
    }

    pub const fn is_share(self) -> bool {
        matches!(self.spec().unit, Unit::Share)
    }

    /// Writes a value: `16,777,216`, `4.9 %`, `5.274 µs`.
    pub fn show(self, value: f64) -> String {
        self.spec().unit.show(value)
    }

    /// Returns the value that the emulator counted; `None` for what it does not count.
    #[cfg(feature = "emulated")]
    pub fn counted(self, counters: &Counters) -> Option<f64> {
        let Counters {
            global_read,
            global_write,
            shared_read,
            shared_write,
            shared_async_write,
            ..
        } = counters;
        if let Some((part, whole)) = self.spec().parts {
            let part_count = part.counted(counters)?;
            let whole_count = whole.counted(counters)?;
            return Some(if whole_count == 0.0 {
                0.0
            } else {
                part_count / whole_count
            });
        }
        let count = match self {
            Metric::GlobalReadBytes => global_read.bytes,
            Metric::GlobalReadSectors => global_read.sectors,
            Metric::PlainReadBytes => {
                global_read.bytes - counters.async_copy_bytes - counters.tma_read_bytes
            }
            Metric::AsyncCopyBytes => counters.async_copy_bytes,
            Metric::TmaReadBytes => counters.tma_read_bytes,
            Metric::GlobalWriteBytes => global_write.bytes,
            Metric::GlobalWriteSectors => global_write.sectors,
            Metric::SharedReadRequests => shared_read.requests,
            Metric::SharedReadBytes => shared_read.bytes,
            Metric::SharedReadWavefronts => shared_read.wavefronts,
            Metric::SharedReadConflicts => shared_read.conflicts(),
            Metric::SharedWriteRequests => shared_write.requests,
            Metric::SharedWriteBytes => shared_write.bytes,
            Metric::SharedWriteWavefronts => shared_write.wavefronts,
            Metric::SharedWriteConflicts => shared_write.conflicts(),
            Metric::AsyncWriteWavefronts => shared_async_write.wavefronts,
            Metric::AsyncWriteConflicts => shared_async_write.conflicts(),
            Metric::TensorOps => counters.tensor_ops,
            Metric::TensorMacs => counters.tensor_macs,
            Metric::Shuffles => counters.shuffles,
            Metric::Votes => counters.votes,
            Metric::WarpBarriers => counters.warp_barriers,
            Metric::BlockBarriers => counters.barriers,
            Metric::NamedBarriers => counters.named_barriers,
            Metric::MbarrierArrivals => counters.mbarrier_arrivals,
            Metric::MbarrierWaits => counters.mbarrier_waits,
            Metric::Exps => counters.exps,
            _ => return None,
        };
        Some(count as f64)
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Writes a value with four significant digits, or three decimals.
pub fn significant(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 1000.0 => 0,
        v if v >= 100.0 => 1,
        v if v >= 10.0 => 2,
        _ => 3,
    };
    format!("{value:.decimals$}")
}

/// Writes a count in groups of three digits.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        let digits_left = digits.len() - index;
        if index > 0 && digits_left.is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_and_labels_are_distinct_and_read_back() {
        let labels: BTreeSet<&str> = Metric::ALL.iter().map(|metric| metric.label()).collect();
        assert_eq!(labels.len(), Metric::ALL.len());
        for &metric in Metric::ALL {
            let name = serde_json::to_value(metric).unwrap();
            assert_eq!(name, metric.name());
            assert_eq!(serde_json::from_value::<Metric>(name).unwrap(), metric);
        }
    }

    #[test]
    fn values_are_shown_as_people_write_them() {
        for (value, expected) in [
            (0.0, "0"),
            (999.0, "999"),
            (1000.0, "1,000"),
            (17_301_504.0, "17,301,504"),
        ] {
            assert_eq!(Metric::GlobalReadBytes.show(value), expected);
        }
        assert_eq!(Metric::SharedReadConflictShare.show(0.0494), "4.9 %");
        assert_eq!(Metric::P50.show(5.2741), "5.274 µs");
        assert_eq!(Metric::ProfiledNs.show(32_384.0), "32.38 µs");
    }

    #[test]
    fn the_counted_metrics_are_all_that_have_a_value() {
        let mut counters = Counters {
            async_copy_bytes: 24,
            tma_read_bytes: 4,
            tensor_ops: 2,
            ..Counters::default()
        };
        counters.global_read.bytes = 32;
        counters.shared_read.wavefronts = 40;
        counters.shared_read.ideal_wavefronts = 30;
        assert_eq!(Metric::all_counted().count(), 31);
        for &metric in Metric::ALL {
            let is_counted = metric.counted(&Counters::default()).is_some();
            assert_eq!(is_counted, metric.source() == Source::Counters, "{metric}");
        }
        for (metric, expected) in [
            (Metric::PlainReadBytes, 4.0),
            (Metric::TmaReadShare, 0.125),
            (Metric::AsyncCopyShare, 0.75),
            (Metric::SharedReadConflicts, 10.0),
            (Metric::SharedReadConflictShare, 0.25),
            (Metric::TensorOps, 2.0),
        ] {
            assert_eq!(metric.counted(&counters), Some(expected), "{metric}");
        }
        assert_eq!(
            Metric::AsyncCopyShare.counted(&Counters::default()),
            Some(0.0),
            "nothing is read"
        );
        assert_eq!(Metric::Registers.counted(&counters), None);
    }

    #[test]
    fn metrics_have_their_sources() {
        assert_eq!(Metric::Registers.source(), Source::Compiler);
        assert_eq!(Metric::DynamicSharedBytes.source(), Source::Declared);
        assert_eq!(Metric::BarrierStallShare.source(), Source::Profile);
        assert_eq!(Metric::P50.source(), Source::Gpu);
    }

    #[test]
    fn a_metric_that_is_judged_has_a_reason() {
        for &metric in Metric::ALL {
            let Spec {
                better,
                threshold,
                because,
                ..
            } = metric.spec();
            assert!(!because.is_empty(), "{metric}");
            // Only a metric that is not informational can be a regression, and only what is
            // compared.
            let is_compared = threshold != Threshold::NotCompared;
            assert!(
                is_compared || metric.spec().gate.is_some() || better == Better::Informational,
                "{metric}"
            );
        }
    }
}
