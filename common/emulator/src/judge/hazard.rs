use std::fmt;

use crate::extent::BlockIndex;
use crate::fault::Place;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HazardKind {
    /// Two unordered accesses to one byte, at least one a write.
    Race,
    /// A cp.async's or TMA's destination is read before the wait that covers it.
    ReadInFlight,
    /// The async proxy (wgmma, TMA) reads or overwrites generic writes without the writer's fence.
    MissingProxyFence,
    /// A thread touches accumulators, or writes registers of A, of a product in flight.
    HeldRegisters,
    UninitialisedShared,
    /// An access outside of the declared shared memory, of a tensor's elements, or of a thread's
    /// own array.
    OutOfBounds,
    Misaligned,
    /// Bytes of an mbarrier are accessed by anything but its own operations.
    BarrierObject,
    /// `__syncthreads` that not all threads reach, or not at one place.
    DivergentBarrier,
    Deadlock,
    /// Anything else that stops the kernel, such as a trap.
    Stopped,
}

impl HazardKind {
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HazardAccess {
    /// The verb: "reads", "writes", "reads a matrix", "writes by cp.async".
    pub does: String,
    pub block: BlockIndex,
    /// The linear index in the block; none for a whole warp.
    pub thread: Option<u32>,
    pub warp: u32,
    /// The source line, and the lines that called it, innermost first.
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

struct Inlined<'a>(&'a [Place]);

impl fmt::Display for Inlined<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, place) in self.0.iter().enumerate() {
            write!(f, "{}{place}", if index == 0 { "" } else { " < " })?;
        }
        Ok(())
    }
}

/// A hazard as it is reported: every pair of places once. Between blocks, of each byte and kind of
/// access only the first two clusters' places are reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hazard {
    pub kind: HazardKind,
    /// The first block in which it was seen.
    pub block: BlockIndex,
    /// The bytes: "bytes 128-131 of shared memory".
    pub memory: String,
    /// The access that the emulator happened to make first; in a race both sides count the same.
    pub first: Option<HazardAccess>,
    pub second: Option<HazardAccess>,
    pub missing: String,
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
