//! The judge and wgmma: each warp reads both operands as a whole, by the async proxy, from when it issues the product until
//! a wait covers that. One wait speaks for all four warps, since it returns only when all have issued the product.

use super::agents::Fork;
use super::clocks::Agent;
use super::order::Actor;
use super::raw::Hint;
use super::{HazardKind, How, Judge, Side, Space};
use crate::wgmma::Issued;

const WARPS: u32 = 4;

/// Registers that a product in flight holds, or one that is complete, but named by no wait.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held {
    /// Registers of A; else accumulators.
    pub(crate) is_fragment: bool,
    /// Where the product is issued.
    pub(crate) issued: u32,
    pub(crate) why: Why,
}

/// Why they are held.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Why {
    /// Nobody has committed the product.
    NotCommitted,
    /// No wait has come since.
    NotWaited,
    /// The last one left so many groups in flight.
    LeftInFlight { wait: u32, newest: u32 },
    /// The product is complete, but no wait has named the accumulators.
    NotNamed,
}

impl Held {
    pub(super) fn memory(&self) -> &'static str {
        if self.is_fragment { "registers of A" } else { "accumulators" }
    }

    pub(super) fn missing(&self, at: &mut impl FnMut(u32) -> String) -> String {
        match self.why {
            Why::NotCommitted => {
                "The product is in no group, so no wait covers it: wgmma_commit is missing behind it, and a wgmma_wait \
                 before this access"
                    .into()
            }
            Why::NotWaited => "The product is in flight: a wgmma_wait that covers its group is missing before this \
                               access"
                .into(),
            Why::LeftInFlight { wait, newest } => format!(
                "The wgmma_wait<{newest}> at {} leaves the newest {newest} group(s) in flight, and the product is in one of \
                 them: it must leave fewer",
                at(wait)
            ),
            Why::NotNamed => {
                "The product is complete, but the compiler has not been told: the wgmma_wait that covers it \
                              must name these accumulators"
                    .into()
            }
        }
    }
}

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

    /// A warp issues its part of a product.
    pub(crate) fn issue_product(&mut self, warp: u32, site: u32, issued: &Issued) {
        self.outcome.counters.tensor_ops += 1;
        self.outcome.counters.tensor_macs += issued.macs;
        let agent = self.warpgroup(warp);
        let fork = Fork { agent, clock: issued.number as u32 + 1, first: warp * 32, count: 32, site };
        for bytes in issued.operands() {
            self.fork_shared(&fork, How::WgmmaRead, bytes);
        }
    }

    /// The wait of a warp is over: its warpgroup's first `covered` products are complete.
    pub(crate) fn products_complete(&mut self, warp: u32, covered: u64) {
        let agent = self.warpgroup(warp);
        (warp * 32..warp * 32 + 32).for_each(|thread| self.complete(thread, agent, covered as u32));
    }

    /// A thread touches registers that a product holds.
    pub(crate) fn held_registers(&mut self, thread: u32, is_write: bool, site: u32, held: Held) {
        let first = Side { actor: Actor::Warp(thread / 32), how: How::WgmmaRegisters, site: held.issued };
        let how = if is_write { How::Write } else { How::Read };
        let second = Side { actor: Actor::Thread(thread), how, site };
        let sides = (first, Some(second));
        self.found(HazardKind::HeldRegisters, sides, Space::Global, 0, 0, Hint::Held(held));
    }
}
