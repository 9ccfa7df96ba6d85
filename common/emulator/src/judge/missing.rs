//! The words for what is missing where two accesses are a hazard.

use crate::site::Places;

use super::hint::{AsyncHint, BoundsHint, CopyHint, Hint};
use super::memory::Memory;
use super::order::How;
use super::raw::Raw;

impl Hint {
    /// Returns the words for what is missing in `raw`, whose hint this is.
    pub(super) fn missing(self, raw: &Raw, memory: &Memory, places: &mut Places) -> String {
        let text = match self {
            Self::SyncWarp => {
                "Nothing orders two lanes of a warp but a __syncwarp() that both reach (shuffles, \
                 votes and matrix operations do not): put one after the write, or before it if \
                 the old value is still being read"
            }
            Self::MatrixSync => {
                "Which lane touches which element of the matrix is open, so a __syncwarp() must \
                 stand between a matrix access and what any lane, even the same one, does with \
                 its bytes"
            }
            Self::Barrier => {
                "Nothing orders the two warps: a __syncthreads() (or a barrier that both arrive \
                 at) is missing after the write, or before it if the buffer is still in use (its \
                 readers must signal that it is free)"
            }
            Self::BarrierAfterWrite { same_warp } => {
                let alternative = if same_warp {
                    ""
                } else {
                    " (or a barrier at which the writer arrives and the reader waits)"
                };
                return format!(
                    "The read may come before the write: a {} is missing after the \
                     write{alternative}",
                    meeting(same_warp)
                );
            }
            Self::Blocks => {
                "Blocks of one launch are concurrent and nothing orders them: each must write its \
                 own bytes"
            }
            Self::BarrierNotSeen if raw.other_block.is_some() => {
                "Nothing tells this thread that the other block has initialised the mbarrier: its \
                 cluster_arrive() after mbarrier_init is missing, or this block's cluster_wait()"
            }
            Self::BarrierNotSeen => {
                "Nothing tells this thread that the mbarrier is initialised: a __syncthreads() is \
                 missing after mbarrier_init"
            }
            Self::BarrierObject => {
                "These bytes are an mbarrier since its mbarrier_init: only mbarrier operations \
                 may touch them; if they belong to a tile too, the layout of shared memory \
                 overlaps"
            }
            Self::Uninitialised => {
                "No thread of the block has written these bytes: either what fills the tile \
                 leaves them out (compare the threads that run the loop with its step), or they \
                 hold no data and must be zeroed, or not be read"
            }
            Self::Copy(hint) => return hint.missing(places),
            Self::Async(hint) => hint.missing(raw),
            Self::Held(held) => return held.missing(places),
            Self::Bounds(hint) => return hint.missing(raw, memory),
        };
        text.to_owned()
    }
}

fn meeting(same_warp: bool) -> &'static str {
    if same_warp {
        "__syncwarp()"
    } else {
        "__syncthreads()"
    }
}

impl CopyHint {
    fn missing(self, places: &mut Places) -> String {
        let text = match self {
            Self::BarrierAfterWait { same_warp, early } => {
                return missing_after_wait(same_warp, early, places);
            }
            Self::NotWaited => {
                "The thread that issued the copy has not waited for it: cp_async_wait_group is \
                 missing before this access (and, for other threads, a barrier after the wait)"
            }
            Self::OthersWait { wait } => {
                return format!(
                    "The wait_group at {} covers only copies that the waiting thread issued \
                     itself: the thread that issued this one must wait, and a barrier must follow",
                    places.name(wait)
                );
            }
            Self::NotCommitted { wait } => {
                return format!(
                    "The copy is in no group, so the wait_group at {} does not cover it: \
                     cp_async_commit is missing before the wait",
                    places.name(wait)
                );
            }
            Self::LeftUnderWay {
                wait,
                newest,
                same_warp,
            } => {
                return format!(
                    "The wait_group<{newest}> at {} leaves the newest {newest} group(s) in \
                     flight, and this copy is in one of them: it must leave fewer; on the last \
                     tile wait for all (wait_group<0>), or commit an empty group where there is \
                     nothing left to copy. Or, if the copying thread waits again before this \
                     access, a {} is missing behind that wait",
                    places.name(wait),
                    meeting(same_warp)
                );
            }
            Self::PhaseNotObserved { arrive } => {
                return format!(
                    "The copy arrives by itself at the mbarrier at {}, and no thread has observed \
                     the end of that phase: mbarrier_wait for it is missing before this access",
                    places.name(arrive)
                );
            }
            Self::PhaseObservedByOthers => {
                "Who observes the end of the copy's phase knows that it has landed, and nobody \
                 else: an mbarrier_wait for the phase is missing in this thread (or a barrier \
                 with one that has waited)"
            }
            Self::BufferInUse => {
                "A cp.async into these bytes is still in flight: it must be waited for (and a \
                 barrier must follow) before they are written again"
            }
            Self::SourceInUse => {
                "A cp.async in flight may read these bytes before or after this write: wait for \
                 the copy first"
            }
        };
        text.to_owned()
    }
}

fn missing_after_wait(same_warp: bool, early: Option<(u32, u32)>, places: &mut Places) -> String {
    let missing = format!(
        "The wait_group of the thread that issued a cp.async tells nobody else that it has \
         landed: a {} is missing between that wait and this access",
        meeting(same_warp)
    );
    let Some((wait, newest)) = early else {
        return missing;
    };
    format!(
        "{missing}; or, if there is one behind the wait_group<{newest}> at {}, that wait is too \
         early: it left the newest {newest} group(s) in flight, and this copy was in one of them",
        places.name(wait)
    )
}

impl AsyncHint {
    fn missing(self, raw: &Raw) -> &'static str {
        match self {
            Self::FetchNotObserved => {
                "What tma_load brings is there for who knows that its phase has ended: an \
                 mbarrier_wait_tx for that phase, by parity, is missing in this thread (or a \
                 barrier with one that has waited); or the phase ended without these bytes, \
                 because mbarrier_arrive_expect_tx announced fewer"
            }
            Self::FetchUnderWay => {
                "A tma_load into these bytes is under way until its phase has ended: wait for \
                 that (mbarrier_wait_tx) before they are written again"
            }
            Self::SlotInUse { loads: false } => {
                "The tma_load may write these bytes before the other access is over: who uses the \
                 slot must say that it is free when it has done so, and the thread that issues \
                 the load must wait for that (an mbarrier of free slots, or a barrier)"
            }
            Self::SlotInUse { loads: true } => {
                "Two tma_load write these bytes, and nothing says which comes last: the thread \
                 that issues the second must know that the phase of the first has ended"
            }
            Self::StoreNotRead => {
                "A tma_store reads these bytes until the thread that issued it has waited: its \
                 tma_store_commit and tma_store_wait_read are missing before this access (and, \
                 for other threads, a barrier after the wait)"
            }
            Self::StoreNotWritten => {
                "A tma_store writes these bytes until the thread that issued it has waited for its \
                 group as a whole (cp.async.bulk.wait_group without .read: \
                 tma_store_wait_read says that shared memory was read, and nothing of the writes): \
                 such a wait is missing before this access (and, for other threads, a barrier \
                 after it)"
            }
            Self::NotFenced => not_fenced(raw),
            Self::NoFence => {
                "The async proxy sees a store only behind a fence.proxy.async that stands between \
                 the two: it is missing in the thread that wrote, after the write (of a cp.async: \
                 after that thread has waited for the copy) and before it meets who starts the \
                 operation, or in who starts it, after they have met"
            }
            Self::OperandInUse => {
                "wgmma reads its operands until a wgmma_wait that covers its group has returned, \
                 in this thread or in one that this thread has met since: such a wait is missing, \
                 leaves too many groups in flight, or the product is in no group (wgmma_commit)"
            }
        }
    }
}

/// Returns the words for a write whose own thread has not fenced it.
fn not_fenced(raw: &Raw) -> &'static str {
    if raw.first.how == How::CopyWrite {
        return "The async proxy sees what a cp.async has written behind a fence_proxy_async() \
                that its thread calls once it knows of the copy's end: after its \
                cp_async_wait_group, or after it has observed the phase that the copy arrives \
                at. A fence before that covers nothing";
    }
    if raw.second.is_some_and(|side| side.how == How::TmaWrite) {
        return "What a thread stores before a tma_load into the same bytes may land on top of \
                the box, unless that thread's fence_proxy_async() stands between: it is missing \
                after the write, in the thread that wrote, and before the barrier at which it \
                meets who starts the load (a fence of that one, or one after the barrier, covers \
                nothing)";
    }
    "The async proxy does not see what a thread stores before that thread's fence_proxy_async(): \
     it is missing after the write, in the thread that wrote, and before the barrier at which it \
     meets who starts the read (a fence of that one, or one after the barrier, covers nothing)"
}

impl BoundsHint {
    fn missing(self, raw: &Raw, memory: &Memory) -> String {
        match self {
            Self::BehindShared { declared } => format!(
                "The launch declares {declared} bytes of dynamic shared memory: a row, column or \
                 stage index is one too high, or the layout is larger than what is passed"
            ),
            Self::GuardBand => {
                let mut outside = String::new();
                if let Some((allocation, offset)) = memory.locate(raw.offset) {
                    outside = allocation.where_outside(offset);
                }
                format!(
                    "That is {outside}, where no element is: compare the row with seq_q or seq_kv \
                     before the access"
                )
            }
            Self::InputWritten => "It is an input: kernels read it and nothing else".to_owned(),
            Self::ProgramWritten => {
                "It outlives the launch, and all blocks share it: what a launch leaves there is \
                 among no launch's arguments, so that the next one, or another order of blocks, \
                 may give something else. Keep it in registers or in shared memory, or let the \
                 caller pass a buffer for it"
                    .to_owned()
            }
            Self::Nowhere { .. } => {
                "The address is in no buffer of the launch, and the block was stopped here"
                    .to_owned()
            }
            Self::Alignment { .. } => format!(
                "An access of {} bytes needs an address that is a multiple of it, and the block \
                 was stopped here: check the row pitch and the column",
                raw.bytes
            ),
        }
    }
}
