//! Each warp reads both operands, of A what an [`OperandRule`] says, by the async proxy, from the
//! issue of the product until a wait covers it. One wait speaks for all four warps, since it returns
//! only when all have issued the product.

use std::ops::Range;

use super::clocks::Agent;
use super::held::Held;
use super::hint::Hint;
use super::operation::{Bytes, Fetch, Fork};
use super::order::Actor;
use super::{HazardKind, How, Judge, Side};

const WARPS: u32 = 4;

impl Judge {
    fn warpgroup(&mut self, warp: u32) -> Agent {
        let index = (warp / WARPS) as usize;
        if self.warpgroups.len() <= index {
            self.warpgroups.resize(index + 1, None);
        }
        if let Some(agent) = self.warpgroups[index] {
            return agent;
        }
        let agent = self.agent();
        self.warpgroups[index] = Some(agent);
        agent
    }

    pub(crate) fn issue_product(
        &mut self,
        warp: u32,
        site: u32,
        number: u64,
        macs: u64,
        operands: Vec<Range<usize>>,
    ) {
        self.outcome.counters.tensor_ops += 1;
        self.outcome.counters.tensor_macs += macs;
        let agent = self.warpgroup(warp);
        let fork = Fork {
            agent,
            clock: number as u32 + 1,
            first: warp * 32,
            count: 32,
            site,
        };
        for bytes in operands {
            self.fork_shared(&fork, How::WgmmaRead, bytes);
        }
    }

    /// Names the tile that a warp's last product reads as its B, of which a part is at `address` of
    /// shared memory.
    pub(crate) fn names_tile(&mut self, warp: u32, address: usize) {
        let tile = self.fetched(address).and_then(Fetch::tile);
        self.deeds.names(warp * 32, tile);
    }

    pub(crate) fn products_complete(&mut self, warp: u32, covered: u64) {
        let agent = self.warpgroup(warp);
        for thread in warp * 32..warp * 32 + 32 {
            self.complete(thread, agent, covered as u32);
        }
    }

    pub(crate) fn held_registers(&mut self, thread: u32, is_write: bool, site: u32, held: Held) {
        let first = Side {
            actor: Actor::Warp(thread / 32),
            how: How::WgmmaRegisters,
            site: held.issued,
        };
        let second = Side {
            actor: Actor::Thread(thread),
            how: if is_write { How::Write } else { How::Read },
            site,
        };
        self.report_pair(
            HazardKind::HeldRegisters,
            first,
            second,
            Bytes::global(0, 0),
            Hint::Held(held),
        );
    }
}
