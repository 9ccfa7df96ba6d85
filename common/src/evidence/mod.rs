//! Evidence claims: why a stage says that it is faster, as figures that anyone can check (gate E1).
//!
//! A stage states them as data beside its claims of speed, before anything is measured. All figures are of the claims'
//! problems: the mission shape, full mask, f16 and E4M3.

mod count;

pub use count::{Counting, count};
pub use emulator::trace::Counters;

use crate::problem::Dtype;
use crate::stage::Base;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Figures of one family of variants that must come out as predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct EvidenceClaim {
    /// The family of this stage's variants that it speaks of: `cpasync`. Every one of them is judged.
    pub family: &'static str,
    /// What is looked at. Each is judged by itself.
    pub quantities: &'static [Quantity],
    /// What is predicted of each.
    pub relation: Relation<Base>,
    /// With which element types; each is judged by itself, E4M3 on the family's default and first variants.
    pub dtypes: &'static [Dtype],
    /// Why it must be so, as a phrase: `the same tiles are read, only earlier`.
    pub why: &'static str,
}

/// What is predicted of a quantity. `B` names the base: [`Base`] in a stage, owned strings in a record.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "relation", rename_all = "snake_case")]
pub enum Relation<B> {
    /// `at_least * base <= value <= at_most * base`: for 0 both ends demand 0. Each variant is compared with the base
    /// variant of the same preset, which is what follows the family in its name; where no variant of the family has
    /// such a twin, the default variants of both families are compared (the stage's default, else the first).
    Ratio {
        /// What it is compared with.
        base: B,
        /// Lower end; equal to `at_most` for an exact ratio.
        at_least: f64,
        /// Upper end.
        at_most: f64,
    },
    /// `value >= bound`.
    AtLeast {
        /// The bound, in the quantity's unit.
        bound: f64,
    },
    /// `value <= bound`.
    AtMost {
        /// The bound, in the quantity's unit.
        bound: f64,
    },
}

impl<B> Relation<B> {
    /// The quantity does not change.
    pub const fn equal_to(base: B) -> Self {
        Relation::Ratio { base, at_least: 1.0, at_most: 1.0 }
    }

    /// The quantity is exactly `factor` times that of the base.
    pub const fn times(factor: f64, base: B) -> Self {
        Relation::Ratio { base, at_least: factor, at_most: factor }
    }

    /// Whether `value` is as predicted, beside the base's `base` where there is one. NaN never is, nor is a ratio
    /// without a base.
    pub fn holds(&self, value: f64, base: Option<f64>) -> bool {
        match self {
            Relation::Ratio { at_least, at_most, .. } => {
                base.is_some_and(|base| at_least * base <= value && value <= at_most * base)
            }
            Relation::AtLeast { bound } => value >= *bound,
            Relation::AtMost { bound } => value <= *bound,
        }
    }
}

/// Where a quantity comes from: what it takes to judge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The emulator's counters; needs its traced build, and neither GPU nor nvcc.
    Counters,
    /// What `kernel.cu` declares; always there.
    Declared,
    /// ptxas; needs nvcc.
    Compiler,
    /// ncu's counters; needs a GPU, and the permission to profile.
    Profile,
}

/// What an evidence claim can be about. The emulator's counters are defined in its glossary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Quantity {
    /// Bytes that lanes read from global memory, cp.async included.
    GlobalReadBytes,
    /// 32-byte sectors of those reads.
    GlobalReadSectors,
    /// Of the bytes read, those that pass through registers: not by cp.async.
    PlainReadBytes,
    /// Bytes that cp.async reads.
    AsyncCopyBytes,
    /// Their share of all bytes read, 0 to 1.
    AsyncCopyShare,
    /// Bytes that lanes write to global memory.
    GlobalWriteBytes,
    /// 32-byte sectors of those writes.
    GlobalWriteSectors,
    /// Reads of shared memory, in requests of one warp.
    SharedReadRequests,
    /// Bytes of those reads.
    SharedReadBytes,
    /// Cycles of the banks that they take.
    SharedReadWavefronts,
    /// Of those, the ones that bank conflicts add.
    SharedReadConflicts,
    /// Their share of the wavefronts of reads, 0 to 1; 0 where nothing is read.
    SharedReadConflictShare,
    /// Writes of shared memory in requests of one warp, cp.async's not included.
    SharedWriteRequests,
    /// Bytes of those writes.
    SharedWriteBytes,
    /// Cycles of the banks that they take.
    SharedWriteWavefronts,
    /// Of those, the ones that bank conflicts add.
    SharedWriteConflicts,
    /// Their share of the wavefronts of writes, 0 to 1; 0 where nothing is written.
    SharedWriteConflictShare,
    /// Cycles of the banks that cp.async's writes take.
    AsyncWriteWavefronts,
    /// Of those, the ones that bank conflicts add.
    AsyncWriteConflicts,
    /// Matrix multiply-accumulate instructions, per warp.
    TensorOps,
    /// Multiply-adds in them.
    TensorMacs,
    /// Shuffles, per warp.
    Shuffles,
    /// Votes, per warp.
    Votes,
    /// `__syncwarp`, per warp.
    WarpBarriers,
    /// `__syncthreads`, per block.
    BlockBarriers,
    /// Named barriers, per warp that arrives.
    NamedBarriers,
    /// Arrivals at mbarriers, per thread.
    MbarrierArrivals,
    /// Waits for mbarriers, per thread.
    MbarrierWaits,
    /// Exponentials, per thread.
    Exps,
    /// Dynamic shared memory of a block.
    DynamicSharedBytes,
    /// Registers per thread; judged for each architecture that was built.
    Registers,
    /// Theoretical occupancy: resident warps over possible ones, 0 to 1; for each architecture that was built.
    Occupancy,
    /// Of the cycles between a warp's instructions, the share that it waits at a barrier, 0 to 1.
    BarrierStallShare,
    /// Cycles in which the tensor pipe is active, over those in which a multiprocessor has work, 0 to 1.
    TensorPipeActive,
}

impl Quantity {
    /// Every quantity that the emulator counts, in the order of the tables.
    pub const COUNTED: [Quantity; 29] = [
        Quantity::GlobalReadBytes,
        Quantity::GlobalReadSectors,
        Quantity::PlainReadBytes,
        Quantity::AsyncCopyBytes,
        Quantity::AsyncCopyShare,
        Quantity::GlobalWriteBytes,
        Quantity::GlobalWriteSectors,
        Quantity::SharedReadRequests,
        Quantity::SharedReadBytes,
        Quantity::SharedReadWavefronts,
        Quantity::SharedReadConflicts,
        Quantity::SharedReadConflictShare,
        Quantity::SharedWriteRequests,
        Quantity::SharedWriteBytes,
        Quantity::SharedWriteWavefronts,
        Quantity::SharedWriteConflicts,
        Quantity::SharedWriteConflictShare,
        Quantity::AsyncWriteWavefronts,
        Quantity::AsyncWriteConflicts,
        Quantity::TensorOps,
        Quantity::TensorMacs,
        Quantity::Shuffles,
        Quantity::Votes,
        Quantity::WarpBarriers,
        Quantity::BlockBarriers,
        Quantity::NamedBarriers,
        Quantity::MbarrierArrivals,
        Quantity::MbarrierWaits,
        Quantity::Exps,
    ];

    /// As printed.
    pub const fn label(self) -> &'static str {
        match self {
            Quantity::GlobalReadBytes => "global bytes read",
            Quantity::GlobalReadSectors => "global sectors read",
            Quantity::PlainReadBytes => "global bytes read through registers",
            Quantity::AsyncCopyBytes => "cp.async bytes",
            Quantity::AsyncCopyShare => "cp.async share of global bytes read",
            Quantity::GlobalWriteBytes => "global bytes written",
            Quantity::GlobalWriteSectors => "global sectors written",
            Quantity::SharedReadRequests => "shared-load requests",
            Quantity::SharedReadBytes => "shared bytes read",
            Quantity::SharedReadWavefronts => "shared-load wavefronts",
            Quantity::SharedReadConflicts => "shared-load bank conflicts",
            Quantity::SharedReadConflictShare => "bank conflicts' share of shared-load wavefronts",
            Quantity::SharedWriteRequests => "shared-store requests",
            Quantity::SharedWriteBytes => "shared bytes written",
            Quantity::SharedWriteWavefronts => "shared-store wavefronts",
            Quantity::SharedWriteConflicts => "shared-store bank conflicts",
            Quantity::SharedWriteConflictShare => "bank conflicts' share of shared-store wavefronts",
            Quantity::AsyncWriteWavefronts => "cp.async shared wavefronts",
            Quantity::AsyncWriteConflicts => "cp.async bank conflicts",
            Quantity::TensorOps => "tensor operations",
            Quantity::TensorMacs => "tensor multiply-adds",
            Quantity::Shuffles => "shuffles",
            Quantity::Votes => "votes",
            Quantity::WarpBarriers => "warp barriers",
            Quantity::BlockBarriers => "block barriers",
            Quantity::NamedBarriers => "named barriers",
            Quantity::MbarrierArrivals => "mbarrier arrivals",
            Quantity::MbarrierWaits => "mbarrier waits",
            Quantity::Exps => "exponentials",
            Quantity::DynamicSharedBytes => "dynamic shared bytes",
            Quantity::Registers => "registers",
            Quantity::Occupancy => "occupancy",
            Quantity::BarrierStallShare => "barrier stalls' share",
            Quantity::TensorPipeActive => "tensor pipe active",
        }
    }

    /// What it takes to judge it.
    pub fn source(self) -> Source {
        match self {
            Quantity::DynamicSharedBytes => Source::Declared,
            Quantity::Registers | Quantity::Occupancy => Source::Compiler,
            Quantity::BarrierStallShare | Quantity::TensorPipeActive => Source::Profile,
            _ => Source::Counters,
        }
    }

    /// Whether it is a part of a whole, 0 to 1, and not a count.
    pub const fn is_share(self) -> bool {
        matches!(
            self,
            Quantity::AsyncCopyShare
                | Quantity::SharedReadConflictShare
                | Quantity::SharedWriteConflictShare
                | Quantity::Occupancy
                | Quantity::BarrierStallShare
                | Quantity::TensorPipeActive
        )
    }

    /// A value in words: `16,777,216`, `4.9 %`.
    pub fn show(self, value: f64) -> String {
        if self.is_share() { format!("{:.1} %", 100.0 * value) } else { grouped(value as u64) }
    }

    /// Its value in `counters`; `None` for what the emulator does not count.
    pub fn counted(self, counters: &Counters) -> Option<f64> {
        let Counters { global_read, global_write, shared_read, shared_write, shared_async_write, .. } = counters;
        let share = |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let count = match self {
            Quantity::AsyncCopyShare => return Some(share(counters.async_copy_bytes, global_read.bytes)),
            Quantity::SharedReadConflictShare => return Some(share(shared_read.conflicts(), shared_read.wavefronts)),
            Quantity::SharedWriteConflictShare => {
                return Some(share(shared_write.conflicts(), shared_write.wavefronts));
            }
            Quantity::GlobalReadBytes => global_read.bytes,
            Quantity::GlobalReadSectors => global_read.sectors,
            Quantity::PlainReadBytes => global_read.bytes - counters.async_copy_bytes,
            Quantity::AsyncCopyBytes => counters.async_copy_bytes,
            Quantity::GlobalWriteBytes => global_write.bytes,
            Quantity::GlobalWriteSectors => global_write.sectors,
            Quantity::SharedReadRequests => shared_read.requests,
            Quantity::SharedReadBytes => shared_read.bytes,
            Quantity::SharedReadWavefronts => shared_read.wavefronts,
            Quantity::SharedReadConflicts => shared_read.conflicts(),
            Quantity::SharedWriteRequests => shared_write.requests,
            Quantity::SharedWriteBytes => shared_write.bytes,
            Quantity::SharedWriteWavefronts => shared_write.wavefronts,
            Quantity::SharedWriteConflicts => shared_write.conflicts(),
            Quantity::AsyncWriteWavefronts => shared_async_write.wavefronts,
            Quantity::AsyncWriteConflicts => shared_async_write.conflicts(),
            Quantity::TensorOps => counters.tensor_ops,
            Quantity::TensorMacs => counters.tensor_macs,
            Quantity::Shuffles => counters.shuffles,
            Quantity::Votes => counters.votes,
            Quantity::WarpBarriers => counters.warp_barriers,
            Quantity::BlockBarriers => counters.barriers,
            Quantity::NamedBarriers => counters.named_barriers,
            Quantity::MbarrierArrivals => counters.mbarrier_arrivals,
            Quantity::MbarrierWaits => counters.mbarrier_waits,
            Quantity::Exps => counters.exps,
            Quantity::DynamicSharedBytes
            | Quantity::Registers
            | Quantity::Occupancy
            | Quantity::BarrierStallShare
            | Quantity::TensorPipeActive => return None,
        };
        Some(count as f64)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// Thousands apart: `16,777,216`.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let first = digits.len() % 3;
    let groups = digits.as_bytes()[first..].chunks(3).map(String::from_utf8_lossy);
    let head = (first > 0).then(|| digits[..first].into());
    head.into_iter().chain(groups).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const BASE: Base = Base { stage: "stage0-scalar", family: "wmma-qk" };

    #[test]
    fn relations_hold_on_their_ends_and_not_beyond() {
        let halved = Relation::Ratio { base: BASE, at_least: 0.4, at_most: 0.5 };
        let table = [
            (Relation::equal_to(BASE), 7.0, Some(7.0), true),
            (Relation::equal_to(BASE), 8.0, Some(7.0), false),
            (Relation::equal_to(BASE), 6.0, Some(7.0), false),
            (Relation::equal_to(BASE), 0.0, Some(0.0), true),
            (Relation::equal_to(BASE), 1.0, Some(0.0), false),
            (Relation::equal_to(BASE), 7.0, None, false),
            (Relation::equal_to(BASE), f64::NAN, Some(f64::NAN), false),
            (Relation::times(2.0, BASE), 14.0, Some(7.0), true),
            (halved, 50.0, Some(100.0), true),
            (halved, 40.0, Some(100.0), true),
            (halved, 51.0, Some(100.0), false),
            (halved, 39.0, Some(100.0), false),
            (Relation::AtMost { bound: 0.05 }, 0.05, None, true),
            (Relation::AtMost { bound: 0.05 }, 0.051, None, false),
            (Relation::AtMost { bound: 0.05 }, f64::NAN, None, false),
            (Relation::AtLeast { bound: 3.0 }, 3.0, None, true),
            (Relation::AtLeast { bound: 3.0 }, 2.0, None, false),
            (Relation::AtLeast { bound: 3.0 }, f64::NAN, None, false),
        ];
        for (relation, value, base, expected) in table {
            assert_eq!(relation.holds(value, base), expected, "{relation:?}, {value}, {base:?}");
        }
    }

    #[test]
    fn values_are_shown_as_people_write_them() {
        for (value, expected) in [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (17_301_504.0, "17,301,504")] {
            assert_eq!(Quantity::GlobalReadBytes.show(value), expected);
        }
        assert_eq!(Quantity::SharedReadConflictShare.show(0.0494), "4.9 %");
    }

    #[test]
    fn the_counted_quantities_are_all_that_have_a_value_and_are_told_apart() {
        let mut counters = Counters { async_copy_bytes: 24, tensor_ops: 2, ..Counters::default() };
        counters.global_read.bytes = 32;
        counters.shared_read.wavefronts = 40;
        counters.shared_read.ideal_wavefronts = 30;
        for quantity in Quantity::COUNTED {
            assert_eq!(quantity.source(), Source::Counters, "{quantity}");
            assert!(quantity.counted(&counters).is_some(), "{quantity}");
        }
        let labels: BTreeSet<&str> = Quantity::COUNTED.into_iter().map(Quantity::label).collect();
        assert_eq!(labels.len(), Quantity::COUNTED.len());
        for (quantity, expected) in [
            (Quantity::PlainReadBytes, 8.0),
            (Quantity::AsyncCopyShare, 0.75),
            (Quantity::SharedReadConflicts, 10.0),
            (Quantity::SharedReadConflictShare, 0.25),
            (Quantity::TensorOps, 2.0),
        ] {
            assert_eq!(quantity.counted(&counters), Some(expected), "{quantity}");
        }
        assert_eq!(Quantity::AsyncCopyShare.counted(&Counters::default()), Some(0.0), "nothing is read");
        assert_eq!(Quantity::Registers.counted(&counters), None);
    }
}
