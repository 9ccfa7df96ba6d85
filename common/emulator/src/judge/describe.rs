//! The description of hazards, from numbers to places and words.

use std::cmp::Ordering;

use crate::extent::BlockIndex;
use crate::fault::Place;
use crate::site::Places;

use super::hazard::{Hazard, HazardAccess, HazardKind};
use super::hint::{AsyncHint, BoundsHint, Hint};
use super::memory::Memory;
use super::order::{Actor, How};
use super::raw::{Hazards, Raw, SeenHazard};
use super::requests::Space;
use super::side::Side;

/// Describes the hazards in an order that does not depend on the numbers. One place of the
/// source may be several places of the program, unrolled or inlined; they are reported as one.
pub(crate) fn describe_all(hazards: &Hazards, memory: &Memory, places: &mut Places) -> Vec<Hazard> {
    let mut described = Vec::new();
    for SeenHazard { block, raw, .. } in hazards.seen_hazards() {
        let hazard = describe(*block, raw, memory, places);
        described.push(Described {
            pair: Pair::new(&hazard),
            is_within_warp: raw.hint.is_within_warp(),
            hazard,
        });
    }
    described.sort_by(Described::order);
    let mut reported: Vec<Hazard> = Vec::new();
    let mut last_pair = None;
    for Described { pair, hazard, .. } in described {
        match reported.last_mut() {
            Some(kept) if last_pair.as_ref() == Some(&pair) => kept.times += hazard.times,
            _ => reported.push(hazard),
        }
        last_pair = Some(pair);
    }
    reported
}

/// The kind and places of a hazard: equal ones are reported once.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    kind: HazardKind,
    sides: [Option<SideOfPair>; 2],
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SideOfPair {
    places: Vec<Place>,
    does: String,
}

impl Pair {
    fn new(hazard: &Hazard) -> Self {
        let mut sides = [&hazard.first, &hazard.second].map(|access| {
            let side = access.as_ref()?;
            Some(SideOfPair {
                places: side.places.clone(),
                does: side.does.clone(),
            })
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

fn describe_side(side: Side, block: BlockIndex, places: &mut Places) -> HazardAccess {
    HazardAccess {
        does: side.how.verb().to_owned(),
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
