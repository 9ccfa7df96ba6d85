//! Hazards as a block finds them: numbers only, each pair of places once.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::fault::Place;
use crate::grid::BlockIndex;
use crate::site::Places;

use super::hazard::{Hazard, HazardAccess, HazardKind};
use super::hint::{AsyncHint, BoundsHint, Hint};
use super::memory::Memory;
use super::operation::Bytes;
use super::order::{Actor, Event, How};
use super::requests::Space;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) actor: Actor,
    pub(crate) how: How,
    pub(crate) site: u32,
}

impl Side {
    /// Translates the thread number of `cluster`, whose first block is `block`. Returns the block.
    fn localise(&mut self, cluster: &Cluster, block: BlockIndex) -> BlockIndex {
        let rank = cluster.rank(self.actor.thread());
        self.actor = self.actor.localise(cluster.threads);
        [block[0] + rank, block[1], block[2]]
    }
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

#[derive(Clone, Copy, Debug)]
pub(crate) struct Raw {
    pub(crate) kind: HazardKind,
    pub(crate) first: Side,
    pub(crate) second: Option<Side>,
    /// The block of the second side, if it is another one.
    pub(crate) other_block: Option<BlockIndex>,
    pub(crate) space: Space,
    pub(crate) offset: u32,
    pub(crate) bytes: u32,
    /// The place and length of a copy's source in global memory.
    pub(crate) source: Option<(u32, u32)>,
    pub(crate) hint: Hint,
    pub(crate) times: u64,
}

type Key = (HazardKind, (u32, How), Option<(u32, How)>);

impl Raw {
    pub(crate) fn new(
        kind: HazardKind,
        first: Side,
        second: Option<Side>,
        bytes: Bytes,
        hint: Hint,
    ) -> Self {
        Self {
            kind,
            first,
            second,
            other_block: None,
            space: bytes.space,
            offset: bytes.start,
            bytes: bytes.count,
            source: None,
            hint,
            times: 1,
        }
    }

    fn sides(&self) -> impl Iterator<Item = Side> + use<> {
        [Some(self.first), self.second].into_iter().flatten()
    }

    /// Returns whether it says more than `known`, an equal pair: between two warps it names the
    /// barrier that heals both.
    fn replaces(&self, known: &Self) -> bool {
        known.hint.is_within_warp() && !self.hint.is_within_warp()
    }

    /// Translates thread numbers of `cluster`, whose first block is `block`. Returns the block of
    /// the first side.
    pub(crate) fn localise(&mut self, cluster: &Cluster, block: BlockIndex) -> BlockIndex {
        let first = self.first.localise(cluster, block);
        if let Some(side) = &mut self.second {
            let second = side.localise(cluster, block);
            self.other_block = (second != first).then_some(second);
        }
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
pub(crate) struct Hazards {
    /// Each hazard, with the block in which it was first seen.
    seen: BTreeMap<Key, (BlockIndex, Raw)>,
}

impl Hazards {
    /// Returns whether `add` would keep the hazard, and not only count it.
    pub(crate) fn lacks(&self, raw: &Raw) -> bool {
        self.seen
            .get(&raw.key())
            .is_none_or(|(_, known)| raw.replaces(known))
    }

    /// Adds a hazard. Of equal pairs the first is kept, but one between two warps goes before one
    /// within a warp.
    pub(crate) fn add(&mut self, block: BlockIndex, raw: Raw) {
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
        for (block, raw) in later.seen.into_values() {
            self.add(block, raw);
        }
    }

    /// Drops reads of uninitialised bytes where the missing order of a write is reported: had the
    /// write run first, the bytes would have been set.
    pub(crate) fn drop_consequences(&mut self) {
        let mut racing_reads = Vec::new();
        for (_, raw) in self.seen.values() {
            if raw.kind != HazardKind::Race {
                continue;
            }
            for side in raw.sides() {
                if !side.how.is_write() {
                    racing_reads.push(side.site);
                }
            }
        }
        self.seen.retain(|_, (_, raw)| {
            raw.kind != HazardKind::UninitialisedShared || !racing_reads.contains(&raw.first.site)
        });
    }

    /// Describes the hazards in an order that does not depend on the numbers. One place of the
    /// source may be several places of the program, unrolled or inlined; they are reported as one.
    pub(crate) fn describe(&self, memory: &Memory, places: &mut Places) -> Vec<Hazard> {
        let mut described = Vec::new();
        for (block, raw) in self.seen.values() {
            let hazard = describe(*block, raw, memory, places);
            described.push(Described {
                pair: Pair::new(&hazard),
                is_within_warp: raw.hint.is_within_warp(),
                hazard,
            });
        }
        described.sort_by(Described::order);
        let mut hazards: Vec<Hazard> = Vec::new();
        let mut last_pair = None;
        for Described { pair, hazard, .. } in described {
            match hazards.last_mut() {
                Some(kept) if last_pair.as_ref() == Some(&pair) => kept.times += hazard.times,
                _ => hazards.push(hazard),
            }
            last_pair = Some(pair);
        }
        hazards
    }

    pub(crate) fn is_out_of_bounds(&self) -> bool {
        self.seen
            .values()
            .any(|(_, raw)| raw.kind == HazardKind::OutOfBounds)
    }
}

/// The kind and places of a hazard: equal ones are reported once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    kind: HazardKind,
    sides: [Option<(Vec<Place>, String)>; 2],
}

impl Pair {
    fn new(hazard: &Hazard) -> Self {
        let mut sides = [&hazard.first, &hazard.second].map(|access| {
            let side = access.as_ref()?;
            Some((side.places.clone(), side.does.clone()))
        });
        sides.sort();
        Self {
            kind: hazard.kind,
            sides,
        }
    }
}

struct Described {
    pair: Pair,
    is_within_warp: bool,
    hazard: Hazard,
}

impl Described {
    fn order(&self, other: &Self) -> Ordering {
        self.pair
            .cmp(&other.pair)
            .then(self.is_within_warp.cmp(&other.is_within_warp))
            .then_with(|| self.hazard.block.cmp(&other.hazard.block))
            .then_with(|| self.hazard.memory.cmp(&other.hazard.memory))
            .then_with(|| self.hazard.missing.cmp(&other.hazard.missing))
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

fn describe_side(side: Side, block: BlockIndex, places: &mut Places) -> HazardAccess {
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

fn describe(block: BlockIndex, raw: &Raw, memory: &Memory, places: &mut Places) -> Hazard {
    let first = describe_side(raw.first, block, places);
    let second = raw
        .second
        .map(|side| describe_side(side, raw.other_block.unwrap_or(block), places));
    let mut missing = raw.hint.missing(raw, memory, places);
    if raw.sides().any(|side| side.how == How::StoreAsync) {
        missing = missing
            .replace("tma_load", "store_async")
            .replace("mbarrier_wait_tx", "mbarrier_wait_cluster");
        if let Hint::Async(AsyncHint::FetchNotObserved) = raw.hint {
            missing += ". (Any other wait acquires at the scope of the block: it says nothing of \
                        what another block stores)";
        }
    }
    Hazard {
        kind: raw.kind,
        block,
        memory: describe_memory(raw, memory),
        first: Some(first),
        second,
        missing,
        times: raw.times,
    }
}

/// Describes the bytes of a hazard and, if they are copied, their source.
fn describe_memory(raw: &Raw, memory: &Memory) -> String {
    let mut description = match raw.hint {
        Hint::Bounds(BoundsHint::Nowhere { address } | BoundsHint::Alignment { address }) => {
            format!("address {address:#x}")
        }
        Hint::Bounds(BoundsHint::ProgramWritten) => "a variable of the program".to_owned(),
        Hint::Held(held) => held.memory().to_owned(),
        _ => describe_bytes(raw.space, raw.offset, raw.bytes, memory),
    };
    if let Some((place, bytes)) = raw.source {
        description += ", copied from ";
        description += &describe_bytes(Space::Global, place, bytes, memory);
    }
    description
}

fn describe_bytes(space: Space, place: u32, bytes: u32, memory: &Memory) -> String {
    let range = |start: usize| match bytes {
        0 | 1 => format!("byte {start}"),
        _ => format!("bytes {start}-{}", start + bytes as usize - 1),
    };
    if space == Space::Shared {
        return format!("{} of shared memory", range(place as usize));
    }
    let Some((allocation, offset)) = memory.locate(place) else {
        return String::new();
    };
    format!("{} of {}", range(offset), allocation.name_at(offset))
}
