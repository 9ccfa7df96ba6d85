//! Asynchronous operations of TMA and wgmma, which reach memory by the async proxy. One is judged
//! when it is issued, with what its threads know then; nobody knows of its end before its agent has
//! completed it, so that a read of what TMA brings is a hazard until the reader knows of the
//! phase's end, whoever ran first.

use std::ops::Range;

use super::clocks::{Agent, FenceRule};
use super::hazard::HazardKind;
use super::hint::{AsyncHint, Hint};
use super::memory::Access;
use super::operation::{Bytes, Fork, Operation, UnderWay, Written};
use super::order::{Actor, How};
use super::requests::Space;
use super::side::Side;
use super::{Content, Judge, Stop};

/// The number of operations under way from which on the complete ones are looked for.
const MANY_UNDER_WAY: usize = 256;

/// Bytes that one writer has written without a fence.
struct Unfenced {
    written: Written,
    bytes: Range<usize>,
}

impl Judge {
    pub(crate) fn agent(&mut self) -> Agent {
        self.order.agent()
    }

    fn forked(fork: &Fork, how: How) -> Operation {
        let &Fork {
            agent,
            clock,
            first,
            count,
            site,
        } = fork;
        let actor = Actor::Agent {
            agent,
            first: first as u16,
            count: count as u16,
        };
        Operation {
            clock,
            ..Operation::new(actor, how, site)
        }
    }

    pub(crate) fn fork_shared(&mut self, fork: &Fork, how: How, range: Range<usize>) {
        let operation = Self::forked(fork, how);
        self.deeds.issue(fork.agent, fork.clock, fork.first);
        let bytes = Bytes::shared(range);
        if self.touch(bytes.space, bytes.start, bytes.count as usize, operation) {
            self.push_under_way(operation, fork.agent, bytes);
        }
    }

    /// Judges an agent's access to global memory. Returns its place, if it counts.
    pub(crate) fn fork_global(
        &mut self,
        fork: &Fork,
        how: How,
        address: usize,
        bytes: usize,
    ) -> Result<Option<u32>, Stop> {
        let operation = Self::forked(fork, how);
        let Some(accessed) = self.place(address, bytes, operation)? else {
            return Ok(None);
        };
        if accessed.space != Space::Global {
            return Ok(None);
        }
        let place = accessed.start;
        if !self.touch(Space::Global, place, bytes, operation) {
            return Ok(None);
        }
        let allocation = self.setup().memory.locate(place);
        let is_output = allocation.is_some_and(|(it, _)| it.access == Access::Output);
        if is_output {
            self.push_under_way(operation, fork.agent, Bytes::global(place, bytes));
        }
        Ok(Some(place))
    }

    pub(crate) fn complete(&mut self, thread: u32, agent: Agent, clock: u32) {
        self.deeds.complete(thread, agent, clock);
        self.order.complete(thread, agent, clock);
    }

    pub(crate) fn fence_proxy(&mut self, thread: u32) {
        self.order.fence(thread);
    }

    fn push_under_way(&mut self, operation: Operation, agent: Agent, bytes: Bytes) {
        if self.under_way.len() >= MANY_UNDER_WAY && self.under_way.len().is_power_of_two() {
            self.forget_complete();
        }
        self.under_way.push(UnderWay {
            operation,
            agent,
            bytes,
        });
    }

    /// Forgets what is complete: what anybody knows of, all know after the block's next barrier.
    fn forget_complete(&mut self) {
        let order = &self.order;
        self.under_way
            .retain(|it| !order.is_complete(it.agent, it.operation.clock));
    }

    pub(super) fn keep_under_way(&mut self) {
        self.forget_complete();
        for UnderWay {
            operation, bytes, ..
        } in &self.under_way
        {
            let event = self.order.agent_event(
                operation.actor,
                operation.clock,
                operation.site,
                operation.how,
            );
            let (start, count) = (bytes.start, bytes.count as usize);
            match bytes.space {
                Space::Shared => {
                    let cells = self.shared[start as usize..][..count].iter_mut();
                    self.order.survive(cells, event);
                }
                Space::Global => self.global.survive(&mut self.order, start, count, event),
            }
        }
    }

    /// Reports generic writes in `range` that an operation of the async proxy may miss, or be lost
    /// below: each must have been fenced, and who issues the operation must know of that.
    pub(super) fn check_fences(&mut self, range: Range<usize>, operation: Operation) {
        let (mut last, mut is_fenced) = (None, true);
        let mut unfenced: Option<Unfenced> = None;
        for at in range {
            if !matches!(self.content[at], Content::Value | Content::Copied) {
                continue;
            }
            let writer = self.written[at];
            if last != Some(writer) {
                last = Some(writer);
                is_fenced = self
                    .order
                    .is_fenced(writer.actor(), writer.number, operation.actor);
            }
            if is_fenced {
                continue;
            }
            match &mut unfenced {
                Some(known) if known.written == writer => known.bytes.end = at + 1,
                _ => {
                    let next = Unfenced {
                        written: writer,
                        bytes: at..at + 1,
                    };
                    if let Some(known) = unfenced.replace(next) {
                        self.report_unfenced(known, operation);
                    }
                }
            }
        }
        if let Some(last_bytes) = unfenced {
            self.report_unfenced(last_bytes, operation);
        }
    }

    fn report_unfenced(&mut self, unfenced: Unfenced, operation: Operation) {
        let Unfenced { written, bytes } = unfenced;
        let first = Side {
            actor: written.actor(),
            how: written.how,
            site: written.site,
        };
        let hint = match self.setup().fence_rule {
            FenceRule::Writer => AsyncHint::NotFenced,
            FenceRule::Path => AsyncHint::NoFence,
        };
        self.report_pair(
            HazardKind::MissingProxyFence,
            first,
            operation.side(),
            Bytes::shared(bytes),
            Hint::Async(hint),
        );
    }
}
