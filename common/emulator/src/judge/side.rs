//! One side of a hazard.

use crate::cluster::Cluster;
use crate::extent::BlockIndex;

use super::order::{Actor, Event, How};

/// One access of a hazard.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Side {
    pub(crate) actor: Actor,
    pub(crate) how: How,
    pub(crate) site: u32,
}

impl Side {
    /// Translates the thread number of `cluster`, whose first block is `block`. Returns the block.
    pub(super) fn localise(&mut self, cluster: &Cluster, block: BlockIndex) -> BlockIndex {
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
