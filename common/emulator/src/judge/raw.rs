//! Hazards as a block finds them: numbers only, each pair of places once.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::extent::BlockIndex;

use super::hazard::HazardKind;
use super::hint::Hint;
use super::operation::Bytes;
use super::order::How;
use super::requests::Space;
use super::side::Side;

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

    pub(super) fn sides(&self) -> impl Iterator<Item = Side> + use<> {
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

/// A hazard, and the block in which it was first seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct SeenHazard {
    pub(super) block: BlockIndex,
    pub(super) raw: Raw,
    /// The number of its cluster in the launch.
    cluster: u32,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Hazards {
    seen: BTreeMap<Key, SeenHazard>,
}

impl Hazards {
    /// Returns whether `add` would keep the hazard, and not only count it.
    pub(crate) fn lacks(&self, raw: &Raw) -> bool {
        self.seen
            .get(&raw.key())
            .is_none_or(|known| raw.replaces(&known.raw))
    }

    /// Adds a hazard. Of equal pairs the first is kept, but one between two warps goes before one
    /// within a warp.
    pub(crate) fn add(&mut self, block: BlockIndex, raw: Raw) {
        let cluster = 0;
        let known = self.seen.entry(raw.key()).or_insert(SeenHazard {
            block,
            raw: Raw { times: 0, ..raw },
            cluster,
        });
        let times = known.raw.times + raw.times;
        if raw.replaces(&known.raw) {
            *known = SeenHazard {
                block,
                raw,
                cluster,
            };
        }
        known.raw.times = times;
    }

    /// Returns the bytes of all pairs; a node of the tree is at least half full.
    pub(super) fn history_bytes(&self) -> usize {
        2 * self.seen.len() * size_of::<(Key, SeenHazard)>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    #[cfg(test)]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Raw> {
        self.seen.values().map(|known| &known.raw)
    }

    /// Adds the hazards of the cluster with this number in the launch. Clusters may come in any
    /// order: of equal pairs that of the first cluster is kept, but one between two warps goes before
    /// one within a warp.
    pub(crate) fn merge(&mut self, of_cluster: Self, cluster: u32) {
        for (key, hazard) in of_cluster.seen {
            let seen = SeenHazard { cluster, ..hazard };
            let known = self.seen.entry(key).or_insert(SeenHazard {
                raw: Raw {
                    times: 0,
                    ..seen.raw
                },
                ..seen
            });
            let times = known.raw.times + seen.raw.times;
            let is_earlier = cluster < known.cluster && !known.raw.replaces(&seen.raw);
            if is_earlier || seen.raw.replaces(&known.raw) {
                *known = seen;
            }
            known.raw.times = times;
        }
    }

    /// Drops reads of uninitialised bytes where the missing order of a write is reported: had the
    /// write run first, the bytes would have been set.
    pub(crate) fn drop_consequences(&mut self) {
        let mut racing_reads = Vec::new();
        for SeenHazard { raw, .. } in self.seen.values() {
            if raw.kind != HazardKind::Race {
                continue;
            }
            for side in raw.sides() {
                if !side.how.is_write() {
                    racing_reads.push(side.site);
                }
            }
        }
        self.seen.retain(|_, SeenHazard { raw, .. }| {
            raw.kind != HazardKind::UninitialisedShared || !racing_reads.contains(&raw.first.site)
        });
    }

    pub(super) fn seen_hazards(&self) -> impl Iterator<Item = &SeenHazard> {
        self.seen.values()
    }

    pub(crate) fn is_out_of_bounds(&self) -> bool {
        self.seen
            .values()
            .any(|known| known.raw.kind == HazardKind::OutOfBounds)
    }
}
