//! The remedy that is missing where two accesses are a hazard.

use super::held::Held;

/// The missing remedy. Sites are numbers of [`crate::site`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hint {
    /// Two lanes of a warp are unordered.
    SyncWarp,
    /// A warp's matrix access and a lane are unordered.
    MatrixSync,
    /// Two warps are unordered.
    Barrier,
    /// The bytes had never been written when they were read: the write is meant to come first.
    BarrierAfterWrite {
        same_warp: bool,
    },
    /// Two blocks of a launch are unordered.
    Blocks,
    /// A thread uses a barrier object without knowing of its initialisation.
    BarrierNotSeen,
    BarrierObject,
    Copy(CopyHint),
    Async(AsyncHint),
    Held(Held),
    Uninitialised,
    Bounds(BoundsHint),
}

/// The missing remedy where a cp.async takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CopyHint {
    /// The copy has landed, but only its own thread knows. `early`: the last wait that had left it
    /// in flight, and the number of groups that it leaves.
    BarrierAfterWait {
        same_warp: bool,
        early: Option<(u32, u32)>,
    },
    NotWaited,
    /// The reader waited, but another thread issued the copy.
    OthersWait {
        wait: u32,
    },
    /// No wait covers a copy that was never committed.
    NotCommitted {
        wait: u32,
    },
    /// The last wait left the newest groups in flight, the copy's among them.
    LeftUnderWay {
        wait: u32,
        newest: u32,
        same_warp: bool,
    },
    /// The copy arrives at an mbarrier, and nobody has observed the end of the phase.
    PhaseNotObserved {
        arrive: u32,
    },
    /// Somebody has observed it, but not who makes this access.
    PhaseObservedByOthers,
    /// A buffer is written while a copy into it is in flight.
    BufferInUse,
    /// The source of an in-flight copy is overwritten.
    SourceInUse,
}

/// The missing remedy where TMA or wgmma takes part.
#[derive(Clone, Copy, Debug)]
pub(crate) enum AsyncHint {
    /// A TMA box is read by who does not know of the phase's end.
    FetchNotObserved,
    /// A TMA box is written, likewise.
    FetchUnderWay,
    /// TMA is to bring bytes to a place in use; `loads`: by another load.
    SlotInUse { loads: bool },
    /// The source of a TMA store is overwritten.
    StoreNotRead,
    /// The bytes that a TMA store writes are read or written before the store is complete.
    StoreNotWritten,
    /// The writer has not fenced, or too late for the reader to know.
    NotFenced,
    /// No fence stands between the write and the operation.
    NoFence,
    /// An operand of wgmma is overwritten.
    OperandInUse,
}

/// The fault of an address.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BoundsHint {
    BehindShared {
        declared: u32,
    },
    GuardBand,
    InputWritten,
    ProgramWritten,
    /// The address lies in no allocation at all.
    Nowhere {
        address: usize,
    },
    Alignment {
        address: usize,
    },
}

impl Hint {
    pub(super) fn is_within_warp(self) -> bool {
        match self {
            Self::SyncWarp | Self::MatrixSync => true,
            Self::BarrierAfterWrite { same_warp } => same_warp,
            Self::Copy(CopyHint::BarrierAfterWait { same_warp, .. }) => same_warp,
            _ => false,
        }
    }
}
