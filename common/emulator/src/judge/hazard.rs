//! Hazards as data, and in words that name what is missing.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fault::Place;

/// What kind of hazard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HazardKind {
    /// Two accesses to one byte, at least one a write, that nothing orders.
    Race,
    /// What a cp.async or TMA brings is read before the wait that covers it.
    ReadInFlight,
    /// The async proxy (wgmma, TMA) reads or overwrites what was written by the generic one, without the writer's fence between.
    MissingProxyFence,
    /// A thread touches accumulators, or writes registers of A, of a product that is in flight.
    HeldRegisters,
    /// Shared memory is read that nobody has written.
    UninitialisedShared,
    /// An access outside of what there is: of shared memory as the launch declared it, of the elements of a tensor, or of a
    /// thread's own array.
    OutOfBounds,
    /// An address that is not a multiple of the access's size.
    Misaligned,
    /// Bytes of an mbarrier are read or written by anything but its own operations.
    BarrierObject,
    /// `__syncthreads` that not all threads reach, or not at one place.
    DivergentBarrier,
    /// Threads that wait for each other for ever.
    Deadlock,
    /// Anything else that stops the kernel: a trap, a shuffle from a lane that is not there.
    Stopped,
}

impl HazardKind {
    /// As printed.
    pub fn label(self) -> &'static str {
        match self {
            Self::Race => "race",
            Self::ReadInFlight => "read of an in-flight copy (missing wait)",
            Self::MissingProxyFence => "write that the async proxy does not see (missing fence)",
            Self::HeldRegisters => "registers that wgmma holds",
            Self::UninitialisedShared => "read of uninitialised shared memory",
            Self::OutOfBounds => "out of bounds",
            Self::Misaligned => "misaligned access",
            Self::BarrierObject => "access to a barrier object",
            Self::DivergentBarrier => "divergent barrier",
            Self::Deadlock => "deadlock",
            Self::Stopped => "stopped",
        }
    }
}

/// One side of a hazard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HazardAccess {
    /// What it does: "reads", "writes", "reads a matrix", "writes by cp.async".
    pub does: String,
    /// blockIdx.
    pub block: [u32; 3],
    /// Linear index in the block; none where a whole warp makes the access.
    pub thread: Option<u32>,
    /// The warp.
    pub warp: u32,
    /// Where, and from where that was inlined: innermost first.
    pub places: Vec<Place>,
}

impl fmt::Display for HazardAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.thread {
            Some(thread) => write!(f, "thread {thread} (warp {})", self.warp)?,
            None => write!(f, "warp {} as a whole", self.warp)?,
        }
        write!(f, " {} at {}", self.does, Inlined(&self.places))
    }
}

/// One access to shared or global memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoggedAccess {
    /// Who and where.
    pub access: HazardAccess,
    /// Which bytes: "bytes 16-31 of q".
    pub memory: String,
}

/// A place and the places from which it was inlined.
struct Inlined<'a>(&'a [Place]);

impl fmt::Display for Inlined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.0.iter().enumerate() {
            write!(f, "{}{place}", if index == 0 { "" } else { " < " })?;
        }
        Ok(())
    }
}

/// One hazard: every pair of places is reported once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hazard {
    /// What kind.
    pub kind: HazardKind,
    /// blockIdx of the first block in which it was seen.
    pub block: [u32; 3],
    /// Which bytes: "bytes 128-131 of shared memory".
    pub memory: String,
    /// The access that the emulator happened to make first; of a race both sides count the same.
    pub first: Option<HazardAccess>,
    /// The access that it is in conflict with.
    pub second: Option<HazardAccess>,
    /// What is missing, or wrong, in a sentence.
    pub missing: String,
    /// How often it was seen.
    pub times: u64,
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in block {:?}", self.kind.label(), self.block)?;
        if !self.memory.is_empty() {
            write!(f, ", {}", self.memory)?;
        }
        f.write_str(": ")?;
        if let Some(first) = &self.first {
            write!(f, "{first}")?;
        }
        if let Some(second) = &self.second {
            write!(f, "; {second}")?;
            if second.block != self.block {
                write!(f, " in block {:?}", second.block)?;
            }
        }
        if self.first.is_some() {
            f.write_str(". ")?;
        }
        f.write_str(&self.missing)?;
        if self.times > 1 {
            write!(f, " ({} times)", self.times)?;
        }
        Ok(())
    }
}
