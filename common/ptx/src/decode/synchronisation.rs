//! Barriers, fences, mbarriers, and what lanes exchange.

use super::{Decoder, Result, Text};
use crate::step::{Op, Reduction, Shuffle, ShuffleMode, Vote, VoteMode, Wait};

impl Decoder<'_> {
    pub(super) fn synchronisation(&mut self, text: &Text<'_>) -> Result<Op> {
        match text.opcode {
            "bar.sync"
            | "barrier.sync"
            | "barrier.sync.aligned"
            | "barrier.cta.sync"
            | "barrier.cta.sync.aligned"
            | "bar.cta.sync" => self.block_barrier(text),
            "bar.arrive"
            | "barrier.arrive"
            | "barrier.arrive.aligned"
            | "bar.cta.arrive"
            | "barrier.cta.arrive"
            | "barrier.cta.arrive.aligned" => Ok(Op::NamedBarrier {
                id: self.integer(text, 0)?,
                threads: self.integer(text, 1)?,
                waits: false,
            }),
            "bar.warp.sync" => Ok(Op::SyncWarp(self.integer(text, 0)?)),
            "barrier.cluster.arrive"
            | "barrier.cluster.arrive.aligned"
            | "barrier.cluster.arrive.release"
            | "barrier.cluster.arrive.release.aligned" => {
                Ok(Op::ClusterArrive { is_relaxed: false })
            }
            "barrier.cluster.arrive.relaxed" | "barrier.cluster.arrive.relaxed.aligned" => {
                Ok(Op::ClusterArrive { is_relaxed: true })
            }
            "barrier.cluster.wait"
            | "barrier.cluster.wait.aligned"
            | "barrier.cluster.wait.acquire"
            | "barrier.cluster.wait.acquire.aligned" => Ok(Op::ClusterWait),
            "fence.proxy.async"
            | "fence.proxy.async.shared::cta"
            | "fence.proxy.async.shared::cluster"
            | "fence.proxy.async.global" => Ok(Op::FenceProxyAsync),
            "fence.mbarrier_init.release.cluster" => Ok(Op::FenceMbarrierInit),
            "setmaxnreg.inc.sync.aligned.u32" | "setmaxnreg.dec.sync.aligned.u32" => {
                Ok(Op::SetRegisters {
                    count: self.number(text, 0)?,
                    takes: text.opcode.contains(".inc."),
                })
            }
            _ if is_plain_fence(text.opcode) => Ok(Op::Nothing),
            _ if text.opcode.starts_with("mbarrier.") => self.mbarrier(text),
            _ => Err(text.unknown()),
        }
    }

    /// Decodes a barrier of all threads, or of as many as it says.
    fn block_barrier(&mut self, text: &Text<'_>) -> Result<Op> {
        text.demand_operands(1, 2)?;
        if text.operands.len() == 1 && text.operand(0)? == "0" {
            return Ok(Op::Barrier);
        }
        if text.operands.len() == 1 {
            return Err(text.invalid("a barrier other than 0 of all threads is not implemented"));
        }
        Ok(Op::NamedBarrier {
            id: self.integer(text, 0)?,
            threads: self.integer(text, 1)?,
            waits: true,
        })
    }

    fn mbarrier(&mut self, text: &Text<'_>) -> Result<Op> {
        let plain = text
            .opcode
            .replace(".shared::cta", ".shared")
            .replace(".release.cta", "")
            .replace(".acquire.cta", "");
        match plain.as_str() {
            "mbarrier.init.shared.b64" => Ok(Op::MbarrierInit {
                object: self.address_at(text, 0)?,
                arrivals: self.integer(text, 1)?,
            }),
            "mbarrier.arrive.shared.b64" => self.mbarrier_arrive(text, false),
            "mbarrier.arrive.shared::cluster.b64"
            | "mbarrier.arrive.release.cluster.shared::cluster.b64" => {
                self.mbarrier_arrive(text, true)
            }
            "mbarrier.arrive.expect_tx.shared.b64" => Ok(Op::MbarrierArriveExpect {
                object: self.address_at(text, 1)?,
                bytes: self.integer(text, 2)?,
            }),
            "mbarrier.test_wait.parity.shared.b64" => self.mbarrier_wait(text, Wait::Test),
            "mbarrier.try_wait.parity.shared.b64" => self.mbarrier_wait(text, Wait::Try),
            "mbarrier.try_wait.parity.acquire.cluster.shared.b64" => {
                self.mbarrier_wait(text, Wait::TryCluster)
            }
            _ => Err(text.unknown()),
        }
    }

    fn mbarrier_arrive(&mut self, text: &Text<'_>, in_cluster: bool) -> Result<Op> {
        let count = match text.operands.len() {
            0..=2 => self.bits(1),
            _ => self.integer(text, 2)?,
        };
        Ok(Op::MbarrierArrive {
            object: self.address_at(text, 1)?,
            count,
            in_cluster,
        })
    }

    fn mbarrier_wait(&mut self, text: &Text<'_>, wait: Wait) -> Result<Op> {
        text.demand_operands(3, 4)?;
        Ok(Op::MbarrierWait {
            wait,
            to: self.target(text, 0)?,
            object: self.address_at(text, 1)?,
            parity: self.integer(text, 2)?,
        })
    }

    pub(super) fn exchange(&mut self, text: &Text<'_>) -> Result<Op> {
        match text.opcode {
            "shfl.sync.up.b32" => self.shuffle(text, ShuffleMode::Up),
            "shfl.sync.down.b32" => self.shuffle(text, ShuffleMode::Down),
            "shfl.sync.bfly.b32" => self.shuffle(text, ShuffleMode::Butterfly),
            "shfl.sync.idx.b32" => self.shuffle(text, ShuffleMode::Index),
            "vote.sync.all.pred" => self.vote(text, VoteMode::All),
            "vote.sync.any.pred" => self.vote(text, VoteMode::Any),
            "vote.sync.uni.pred" => self.vote(text, VoteMode::Uniform),
            "vote.sync.ballot.b32" => self.vote(text, VoteMode::Ballot),
            "elect.sync" => {
                let [leader, elected] = self.target_pair(text, 0)?;
                Ok(Op::Elect {
                    leader: leader.unwrap_or(self.sink()),
                    to: elected.ok_or_else(|| text.invalid("it names no predicate"))?,
                    mask: self.integer(text, 1)?,
                })
            }
            "redux.sync.add.s32" | "redux.sync.add.u32" => self.redux(text, Reduction::Add),
            "redux.sync.min.u32" => self.redux(text, Reduction::Min),
            "redux.sync.max.u32" => self.redux(text, Reduction::Max),
            "redux.sync.min.s32" => self.redux(text, Reduction::MinSigned),
            "redux.sync.max.s32" => self.redux(text, Reduction::MaxSigned),
            "redux.sync.and.b32" => self.redux(text, Reduction::And),
            "redux.sync.or.b32" => self.redux(text, Reduction::Or),
            "redux.sync.xor.b32" => self.redux(text, Reduction::Xor),
            _ => Err(text.unknown()),
        }
    }

    fn shuffle(&mut self, text: &Text<'_>, mode: ShuffleMode) -> Result<Op> {
        text.demand_operands(5, 5)?;
        let [to, is_in_range] = self.target_pair(text, 0)?;
        Ok(Op::Shuffle(Box::new(Shuffle {
            mode,
            to: to.unwrap_or(self.sink()),
            is_in_range,
            value: self.integer(text, 1)?,
            lane: self.integer(text, 2)?,
            clamp: self.integer(text, 3)?,
            mask: self.integer(text, 4)?,
        })))
    }

    fn vote(&mut self, text: &Text<'_>, mode: VoteMode) -> Result<Op> {
        text.demand_operands(3, 3)?;
        let operand = text.operand(1)?;
        let name = operand.trim_start_matches('!');
        Ok(Op::Vote(Box::new(Vote {
            mode,
            to: self.target(text, 0)?,
            predicate: self.value(text, name, "pred")?,
            is_negated: name.len() != operand.len(),
            mask: self.integer(text, 2)?,
        })))
    }

    fn redux(&mut self, text: &Text<'_>, reduction: Reduction) -> Result<Op> {
        text.demand_operands(3, 3)?;
        Ok(Op::Redux {
            reduction,
            to: self.target(text, 0)?,
            value: self.integer(text, 1)?,
            mask: self.integer(text, 2)?,
        })
    }
}

/// A fence orders a thread's own accesses for others; here no flag in memory orders anything, so it
/// does nothing.
fn is_plain_fence(opcode: &str) -> bool {
    let mut parts = opcode.split('.');
    let is_scope = |part: &str| matches!(part, "cta" | "cluster" | "gpu" | "gl" | "sys");
    match parts.next() {
        Some("membar") => parts.all(is_scope),
        Some("fence") => match parts.next() {
            Some("acq_rel" | "sc") => parts.all(is_scope),
            Some(part) => is_scope(part) && parts.next().is_none(),
            None => true,
        },
        _ => false,
    }
}
