//! Hazards as a block finds them: numbers only, each pair of places once.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::fault::Place;
use crate::site::Places;

use super::hazard::{Hazard, HazardAccess, HazardKind};
use super::held::Held;
use super::memory::Memory;
use super::order::{Actor, Event, How};
use super::requests::Space;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) actor: Actor,
    pub(crate) how: How,
    pub(crate) site: u32,
}

impl From<Event> for Side {
    fn from(event: Event) -> Self {
        Self {
            actor: event.actor,
            how: event.how,
            site: event.site,
        }
    }
}

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
    /// The copy has landed, but only its own thread knows. `early`: the last wait that had left it in flight, and the number
    /// of groups that it leaves.
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
    /// Somebody has, but not who makes this access.
    PhaseObservedByOthers,
    /// A thread uses a barrier object without knowing of its initialisation.
    BarrierNotSeen,
    BarrierObject,
    /// A buffer is written while a copy into it is in flight.
    BufferInUse,
    /// The source of an in-flight copy is overwritten.
    SourceInUse,
    /// A TMA box is read by who does not know of the phase's end.
    FetchNotObserved,
    /// A TMA box is written, likewise.
    FetchUnderWay,
    /// TMA is to bring bytes to a place in use; `loads`: by another load.
    SlotInUse {
        loads: bool,
    },
    /// The source of a TMA store is overwritten.
    StoreNotRead,
    /// The writer has not fenced, or too late for the reader to know.
    NotFenced,
    /// An operand of wgmma is overwritten.
    OperandInUse,
    Held(Held),
    Blocks,
    Uninitialised,
    BehindShared {
        declared: u32,
    },
    GuardBand,
    InputWritten,
    ProgramWritten,
    /// In no allocation at all.
    Nowhere {
        address: usize,
    },
    Alignment {
        address: usize,
    },
}

impl Hint {
    fn is_within_warp(self) -> bool {
        let same = matches!(
            self,
            Self::BarrierAfterWrite { same_warp: true }
                | Self::BarrierAfterWait {
                    same_warp: true,
                    ..
                }
        );
        same || matches!(self, Self::SyncWarp | Self::MatrixSync)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) kind: HazardKind,
    pub(crate) first: Side,
    pub(crate) second: Option<Side>,
    /// Of the second side, if another one.
    pub(crate) other_block: Option<[u32; 3]>,
    pub(crate) space: Space,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// Place and length of a copy's source in global memory.
    pub(crate) source: Option<(u32, u32)>,
    pub(crate) hint: Hint,
    pub(crate) times: u64,
}

type Key = (HazardKind, (u32, How), Option<(u32, How)>);

impl Raw {
    /// Whether it says more than `known`, an equal pair: between two warps it names the barrier that heals both.
    fn replaces(&self, known: &Self) -> bool {
        known.hint.is_within_warp() && !self.hint.is_within_warp()
    }

    /// Translates thread numbers of `cluster`, whose first block is `block`. Returns the block of the first side.
    pub(crate) fn of_blocks(&mut self, cluster: &Cluster, block: [u32; 3]) -> [u32; 3] {
        let of = |side: &mut Side| {
            let rank = cluster.rank(side.actor.thread());
            side.actor = side.actor.of_block(cluster.threads);
            [block[0] + rank, block[1], block[2]]
        };
        let first = of(&mut self.first);
        self.other_block = self
            .second
            .as_mut()
            .map(of)
            .filter(|&second| second != first);
        if self.space == Space::Shared {
            self.offset = Cluster::within_block(self.offset as usize) as u32;
        }
        first
    }

    fn key(&self) -> Key {
        let first = (self.first.site, self.first.how);
        match self.second.map(|side| (side.site, side.how)) {
            Some(second) => (self.kind, first.min(second), Some(first.max(second))),
            None => (self.kind, first, None),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Found {
    /// With the block in which each was first seen.
    seen: BTreeMap<Key, ([u32; 3], Raw)>,
}

impl Found {
    /// Whether `add` would keep it, and not only count.
    pub(crate) fn lacks(&self, raw: &Raw) -> bool {
        self.seen
            .get(&raw.key())
            .is_none_or(|(_, known)| raw.replaces(known))
    }

    /// Of equal pairs the first is kept, but one between two warps goes before one within a warp.
    pub(crate) fn add(&mut self, block: [u32; 3], raw: Raw) {
        let (known_block, known) = self
            .seen
            .entry(raw.key())
            .or_insert((block, Raw { times: 0, ..raw }));
        let times = known.times + raw.times;
        if raw.replaces(known) {
            (*known_block, *known) = (block, raw);
        }
        known.times = times;
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Raw> {
        self.seen.values().map(|(_, raw)| raw)
    }

    /// Adds the hazards of a later block.
    pub(crate) fn merge(&mut self, later: Self) {
        later
            .seen
            .into_values()
            .for_each(|(block, raw)| self.add(block, raw));
    }

    /// Drops reads of uninitialised bytes where the missing order of a write is reported: had the write run first, the bytes
    /// would have been set.
    pub(crate) fn drop_consequences(&mut self) {
        let read = |side: &Side| (!side.how.is_write()).then_some(side.site);
        let explained: Vec<u32> = self
            .seen
            .values()
            .filter(|(_, raw)| raw.kind == HazardKind::Race)
            .flat_map(|(_, raw)| [Some(raw.first), raw.second])
            .filter_map(|side| read(&side?))
            .collect();
        self.seen.retain(|_, (_, raw)| {
            raw.kind != HazardKind::UninitialisedShared || !explained.contains(&raw.first.site)
        });
    }

    /// By place: the order does not depend on the numbers. One place of the source may be several places of the program,
    /// unrolled or inlined; they are reported as one.
    pub(crate) fn describe(&self, memory: &Memory, places: &mut Places) -> Vec<Hazard> {
        type Sides = (HazardKind, [Option<(Vec<Place>, String)>; 2]);
        let describe = |(block, raw): &([u32; 3], Raw)| {
            let hazard = describe(*block, raw, memory, places);
            let side = |side: &Option<HazardAccess>| {
                side.as_ref().map(|it| (it.places.clone(), it.does.clone()))
            };
            let mut sides = [side(&hazard.first), side(&hazard.second)];
            sides.sort();
            let sides: Sides = (hazard.kind, sides);
            (sides, raw.hint.is_within_warp(), hazard)
        };
        let mut hazards: Vec<(Sides, bool, Hazard)> = self.seen.values().map(describe).collect();
        hazards.sort_by(
            |(sides, within, hazard), (other_sides, other_within, other)| {
                let rest =
                    |hazard: &Hazard| (hazard.block, hazard.memory.clone(), hazard.missing.clone());
                sides
                    .cmp(other_sides)
                    .then(within.cmp(other_within))
                    .then_with(|| rest(hazard).cmp(&rest(other)))
            },
        );
        hazards.dedup_by(|(sides, _, hazard), (kept_sides, _, kept)| {
            let same = sides == kept_sides;
            kept.times += if same { hazard.times } else { 0 };
            same
        });
        hazards.into_iter().map(|(_, _, hazard)| hazard).collect()
    }

    pub(crate) fn is_out_of_bounds(&self) -> bool {
        self.seen
            .values()
            .any(|(_, raw)| raw.kind == HazardKind::OutOfBounds)
    }
}

pub(crate) fn does(how: How) -> &'static str {
    match how {
        How::Read => "reads",
        How::Write => "writes",
        How::CopyRead => "reads by cp.async",
        How::CopyWrite => "writes by cp.async",
        How::MatrixRead => "reads a matrix",
        How::MatrixWrite => "writes a matrix",
        How::BarrierInit => "initialises an mbarrier",
        How::BarrierUse => "uses an mbarrier",
        How::TmaRead => "reads by tma_load",
        How::TmaWrite => "writes by tma_load",
        How::StoreRead => "reads by tma_store",
        How::StoreWrite => "writes by tma_store",
        How::StoreAsync => "writes by store_async",
        How::WgmmaRead => "reads an operand of wgmma",
        How::WgmmaRegisters => "has given registers to wgmma",
    }
}

fn describe_side(side: Side, block: [u32; 3], places: &mut Places) -> HazardAccess {
    HazardAccess {
        does: does(side.how).to_owned(),
        block,
        thread: match side.actor {
            Actor::Thread(thread) | Actor::Copies(thread) => Some(thread),
            Actor::Agent {
                first, count: 1, ..
            } => Some(first.into()),
            Actor::Agent { .. } | Actor::Warp(_) => None,
        },
        warp: side.actor.warp(),
        places: places.get(side.site),
    }
}

fn describe(block: [u32; 3], raw: &Raw, memory: &Memory, places: &mut Places) -> Hazard {
    let first = describe_side(raw.first, block, places);
    let second = raw
        .second
        .map(|side| describe_side(side, raw.other_block.unwrap_or(block), places));
    let bytes = match raw.hint {
        Hint::Nowhere { address } | Hint::Alignment { address } => format!("address {address:#x}"),
        Hint::Held(held) => held.memory().into(),
        Hint::ProgramWritten => "a variable of the program".into(),
        _ => describe_bytes(raw.space, raw.offset, raw.bytes, memory),
    };
    let copied = |(place, bytes)| {
        format!(
            ", copied from {}",
            describe_bytes(Space::Global, place, bytes, memory)
        )
    };
    let bytes = bytes + &raw.source.map(copied).unwrap_or_default();
    let (kind, mut missing, times) = (raw.kind, missing(raw, memory, places), raw.times);
    if [Some(raw.first), raw.second]
        .into_iter()
        .flatten()
        .any(|side| side.how == How::StoreAsync)
    {
        missing = missing
            .replace("tma_load", "store_async")
            .replace("mbarrier_wait_tx", "mbarrier_wait_cluster");
        if let Hint::FetchNotObserved = raw.hint {
            missing += ". (Any other wait acquires at the scope of the block: it says nothing of what another block stores)";
        }
    }
    Hazard {
        kind,
        block,
        memory: bytes,
        first: Some(first),
        second,
        missing,
        times,
    }
}

fn describe_bytes(space: Space, offset: u32, bytes: u32, memory: &Memory) -> String {
    let range = |start: usize| match bytes {
        0 | 1 => format!("byte {start}"),
        bytes => format!("bytes {start}-{}", start + bytes as usize - 1),
    };
    match (space, memory.locate(offset)) {
        (Space::Shared, _) => format!("{} of shared memory", range(offset as usize)),
        (Space::Global, Some((allocation, offset))) => {
            format!("{} of {}", range(offset), allocation.name_at(offset))
        }
        (Space::Global, None) => String::new(),
    }
}

fn missing(raw: &Raw, memory: &Memory, places: &mut Places) -> String {
    let mut at = |site: u32| {
        places
            .get(site)
            .last()
            .map(ToString::to_string)
            .unwrap_or_default()
    };
    let meeting = |same_warp| {
        if same_warp {
            "__syncwarp()"
        } else {
            "__syncthreads()"
        }
    };
    match raw.hint {
        Hint::SyncWarp => "Nothing orders two lanes of a warp but a __syncwarp() that both reach (shuffles, votes and \
                           matrix operations do not): put one after the write, or before it if the old value is still \
                           being read"
            .into(),
        Hint::MatrixSync => "Which lane touches which element of the matrix is open, so a __syncwarp() must stand \
                             between a matrix access and what any lane, even the same one, does with its bytes"
            .into(),
        Hint::Barrier => {
            "Nothing orders the two warps: a __syncthreads() (or a barrier that both arrive at) is missing \
                          after the write, or before it if the buffer is still in use (its readers must signal that it \
                          is free)"
                .into()
        }
        Hint::BarrierAfterWrite { same_warp } => {
            let else_where =
                if same_warp { "" } else { " (or a barrier at which the writer arrives and the reader waits)" };
            format!(
                "The read may come before the write: a {} is missing after the write{else_where}",
                meeting(same_warp)
            )
        }
        Hint::BarrierAfterWait { same_warp, early } => {
            let missing = format!(
                "The wait_group of the thread that issued a cp.async tells nobody else that it has landed: a {} is \
                 missing between that wait and this access",
                meeting(same_warp)
            );
            match early {
                None => missing,
                Some((wait, newest)) => format!(
                    "{missing}; or, if there is one behind the wait_group<{newest}> at {}, that wait is too early: it left \
                     the newest {newest} group(s) in flight, and this copy was in one of them",
                    at(wait)
                ),
            }
        }
        Hint::NotWaited => {
            "The thread that issued the copy has not waited for it: cp_async_wait_group is missing before \
                            this access (and, for other threads, a barrier after the wait)"
                .into()
        }
        Hint::OthersWait { wait } => format!(
            "The wait_group at {} covers only copies that the waiting thread issued itself: the thread that issued this \
             one must wait, and a barrier must follow",
            at(wait)
        ),
        Hint::NotCommitted { wait } => format!(
            "The copy is in no group, so the wait_group at {} does not cover it: cp_async_commit is missing before the wait",
            at(wait)
        ),
        Hint::LeftUnderWay { wait, newest, same_warp } => format!(
            "The wait_group<{newest}> at {} leaves the newest {newest} group(s) in flight, and this copy is in one of \
             them: it must leave fewer; on the last tile wait for all (wait_group<0>), or commit an empty group where \
             there is nothing left to copy. Or, if the copying thread waits again before this access, a {} is missing \
             behind that wait",
            at(wait),
            meeting(same_warp)
        ),
        Hint::PhaseNotObserved { arrive } => format!(
            "The copy arrives by itself at the mbarrier at {}, and no thread has observed the end of that phase: \
             mbarrier_wait for it is missing before this access",
            at(arrive)
        ),
        Hint::PhaseObservedByOthers => "Who observes the end of the copy's phase knows that it has landed, and nobody \
                                        else: an mbarrier_wait for the phase is missing in this thread (or a barrier \
                                        with one that has waited)"
            .into(),
        Hint::BarrierNotSeen if raw.other_block.is_some() => {
            "Nothing tells this thread that the other block has initialised the mbarrier: its cluster_arrive() after \
             mbarrier_init is missing, or this block's cluster_wait()"
                .into()
        }
        Hint::BarrierNotSeen => "Nothing tells this thread that the mbarrier is initialised: a __syncthreads() is \
                                 missing after mbarrier_init"
            .into(),
        Hint::BarrierObject => {
            "These bytes are an mbarrier since its mbarrier_init: only mbarrier operations may touch \
                                them; if they belong to a tile too, the layout of shared memory overlaps"
                .into()
        }
        Hint::BufferInUse => {
            "A cp.async into these bytes is still in flight: it must be waited for (and a barrier must \
                              follow) before they are written again"
                .into()
        }
        Hint::SourceInUse => {
            "A cp.async in flight may read these bytes before or after this write: wait for the copy first".into()
        }
        Hint::FetchNotObserved => "What tma_load brings is there for who knows that its phase has ended: an \
                                   mbarrier_wait_tx for that phase, by parity, is missing in this thread (or a barrier with \
                                   one that has waited); or the phase ended without these bytes, because \
                                   mbarrier_arrive_expect_tx announced fewer"
            .into(),
        Hint::FetchUnderWay => "A tma_load into these bytes is under way until its phase has ended: wait for that \
                                (mbarrier_wait_tx) before they are written again"
            .into(),
        Hint::SlotInUse { loads: false } => "The tma_load may write these bytes before the other access is over: who uses \
                                             the slot must say that it is free when it has done so, and the thread that \
                                             issues the load must wait for that (an mbarrier of free slots, or a barrier)"
            .into(),
        Hint::SlotInUse { loads: true } => "Two tma_load write these bytes, and nothing says which comes last: the thread \
                                            that issues the second must know that the phase of the first has ended"
            .into(),
        Hint::StoreNotRead => "A tma_store reads these bytes until the thread that issued it has waited: its \
                               tma_store_commit and tma_store_wait_read are missing before this access (and, for other \
                               threads, a barrier after the wait)"
            .into(),
        Hint::NotFenced if raw.second.is_some_and(|side| side.how == How::TmaWrite) => {
            "What a thread stores before a tma_load into the same bytes may land on top of the box, unless that thread's \
             fence_proxy_async() stands between: it is missing after the write, in the thread that wrote, and before the \
             barrier at which it meets who starts the load (a fence of that one, or one after the barrier, covers nothing)"
                .into()
        }
        Hint::NotFenced => "The async proxy does not see what a thread stores before that thread's fence_proxy_async(): it is \
                            missing after the write, in the thread that wrote, and before the barrier at which it meets who \
                            starts the read (a fence of that one, or one after the barrier, covers nothing)"
            .into(),
        Hint::OperandInUse => "wgmma reads its operands until a wgmma_wait that covers its group has returned, in this thread \
                               or in one that this thread has met since: such a wait is missing, leaves too many groups in \
                               flight, or the product is in no group (wgmma_commit)"
            .into(),
        Hint::Held(held) => held.missing(&mut at),
        Hint::Blocks => {
            "Blocks of one launch are concurrent and nothing orders them: each must write its own bytes".into()
        }
        Hint::Uninitialised => {
            "No thread of the block has written these bytes: either what fills the tile leaves them \
                                out (compare the threads that run the loop with its step), or they hold no data and \
                                must be zeroed, or not be read"
                .into()
        }
        Hint::BehindShared { declared } => format!(
            "The launch declares {declared} bytes of dynamic shared memory: a row, column or stage index is one too high, \
             or the layout is larger than what is passed"
        ),
        Hint::GuardBand => {
            let outside = memory.locate(raw.offset).map(|(allocation, offset)| allocation.where_outside(offset));
            let outside = outside.unwrap_or_default();
            format!("That is {outside}, where no element is: compare the row with seq_q or seq_kv before the access")
        }
        Hint::InputWritten => "It is an input: kernels read it and nothing else".into(),
        Hint::ProgramWritten => {
            "It outlives the launch, and all blocks share it: what a launch leaves there is among no launch's arguments, so \
             that the next one, or another order of blocks, may give something else. Keep it in registers or in shared \
             memory, or let the caller pass a buffer for it"
                .into()
        }
        Hint::Nowhere { .. } => "The address is in no buffer of the launch, and the block was stopped here".into(),
        Hint::Alignment { .. } => format!(
            "An access of {} bytes needs an address that is a multiple of it, and the block was stopped here: check the \
             row pitch and the column",
            raw.bytes
        ),
    }
}
