//! Arrivals at mbarriers of other blocks of the cluster. A block may not end before one has come:
//! some thread of it must know of the arrival when it exits.

use crate::site::Site;

use super::Judge;
use super::arrival::RemoteArrival;

impl Judge {
    /// Notes an arrival of a thread in block `rank`, before the thread publishes it.
    pub(crate) fn arrives_in(&mut self, rank: u32, thread: u32, offset: usize, site: Site) {
        let clock = self.order.clock(thread);
        self.remote_arrivals.push(RemoteArrival {
            thread,
            rank,
            offset,
            site,
            clock,
        });
    }

    /// Notes that a thread exits: its block ends after the arrivals that it knows of.
    pub(crate) fn exits(&mut self, thread: u32) {
        let rank = self.setup().cluster.rank(thread);
        let order = &self.order;
        self.remote_arrivals
            .retain(|it| it.rank != rank || !order.has_learned(thread, it.thread, it.clock));
    }

    /// Returns an arrival of which no thread of its block knew when it exited.
    pub(crate) fn late_arrival(&self) -> Option<RemoteArrival> {
        self.remote_arrivals.first().copied()
    }
}
