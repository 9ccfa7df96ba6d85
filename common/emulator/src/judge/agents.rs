//! Asynchronous operations of TMA and wgmma, which reach memory by the async proxy. One is judged when it is issued, with what
//! its threads know then; nobody knows of its end before its agent has completed it, so that a read of what TMA brings is a
//! hazard until the reader knows of the phase's end, whoever ran first.

use std::ops::Range;
use std::sync::Arc;

use super::clocks::Agent;
use super::hazard::HazardKind;
use super::memory::Access;
use super::operation::{Fork, Made, UnderWay, Written};
use super::order::{Actor, How};
use super::raw::{Hint, Side};
use super::requests::Space;
use super::{Content, Judge, Stop};

/// Operations under way before the complete ones are looked for.
const MANY_UNDER_WAY: usize = 256;

impl Judge {
    pub(crate) fn agent(&mut self) -> Agent {
        self.order.agent()
    }

    fn forked(fork: &Fork, how: How) -> Made {
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
        Made {
            clock,
            ..Made::by(actor, how, site)
        }
    }

    pub(crate) fn fork_shared(&mut self, fork: &Fork, how: How, range: Range<usize>) {
        let made = Self::forked(fork, how);
        if self.touch(Space::Shared, range.start as u32, range.len(), made) {
            self.push_under_way(
                made,
                fork.agent,
                Space::Shared,
                range.start as u32,
                range.len(),
            );
        }
    }

    /// `bytes` bytes of global memory. Returns their place, if they count.
    pub(crate) fn fork_global(
        &mut self,
        fork: &Fork,
        how: How,
        address: usize,
        bytes: usize,
    ) -> Result<Option<u32>, Stop> {
        let made = Self::forked(fork, how);
        let Some((Space::Global, place)) = self.place(address, bytes, made)? else {
            return Ok(None);
        };
        if !self.touch(Space::Global, place, bytes, made) {
            return Ok(None);
        }
        let memory = Arc::clone(&self.setup().memory);
        if memory
            .locate(place)
            .is_some_and(|(allocation, _)| allocation.access == Access::Output)
        {
            self.push_under_way(made, fork.agent, Space::Global, place, bytes);
        }
        Ok(Some(place))
    }

    pub(crate) fn complete(&mut self, thread: u32, agent: Agent, clock: u32) {
        self.order.complete(thread, agent, clock);
    }

    pub(crate) fn fence_proxy(&mut self, thread: u32) {
        self.order.fence(thread);
    }

    fn push_under_way(&mut self, made: Made, agent: Agent, space: Space, start: u32, bytes: usize) {
        if self.under_way.len() >= MANY_UNDER_WAY && self.under_way.len().is_power_of_two() {
            self.forget_complete();
        }
        self.under_way.push(UnderWay {
            made,
            agent,
            space,
            start,
            bytes: bytes as u32,
        });
    }

    /// What anybody knows to be complete, all know after the block's next barrier.
    fn forget_complete(&mut self) {
        let order = &self.order;
        self.under_way
            .retain(|it| !order.is_complete(it.agent, it.made.clock));
    }

    pub(super) fn keep_under_way(&mut self) {
        self.forget_complete();
        for &UnderWay {
            made,
            space,
            start,
            bytes,
            ..
        } in &self.under_way
        {
            let event = self
                .order
                .agent_event(made.actor, made.clock, made.site, made.how);
            match space {
                Space::Shared => {
                    let cells = self.shared[start as usize..][..bytes as usize].iter_mut();
                    self.order.survive(cells, event);
                }
                Space::Global => self
                    .global
                    .survive(&mut self.order, start, bytes as usize, event),
            }
        }
    }

    /// The generic writes there must have been fenced by their writer, and who issues the operation must know of that. Else a
    /// read may miss the write, and a write may be lost below it.
    pub(super) fn check_fences(&mut self, range: Range<usize>, made: Made) {
        if self.content[range.clone()]
            .iter()
            .all(|&content| content == Content::Fetched)
        {
            return;
        }
        let (mut last, mut is_fenced) = (None, true);
        let mut unfenced: Option<(Written, Range<usize>)> = None;
        for at in range {
            let written = self.written[at];
            if !matches!(self.content[at], Content::Value | Content::Copied) {
                continue;
            }
            if last != Some(written) {
                last = Some(written);
                is_fenced = self
                    .order
                    .is_fenced(written.actor(), written.fences, made.actor);
            }
            if is_fenced {
                continue;
            }
            match &mut unfenced {
                Some((known, bytes)) if *known == written => bytes.end = at + 1,
                _ => {
                    if let Some((written, bytes)) = unfenced.replace((written, at..at + 1)) {
                        self.report_unfenced(written, bytes, made);
                    }
                }
            }
        }
        if let Some((written, bytes)) = unfenced {
            self.report_unfenced(written, bytes, made);
        }
    }

    fn report_unfenced(&mut self, written: Written, bytes: Range<usize>, made: Made) {
        let actor = written.actor();
        let first = Side {
            actor,
            how: written.how,
            site: written.site,
        };
        let sides = (first, Some(made.side()));
        self.found(
            HazardKind::MissingProxyFence,
            sides,
            Space::Shared,
            bytes.start as u32,
            bytes.len() as u32,
            Hint::NotFenced,
        );
    }
}
