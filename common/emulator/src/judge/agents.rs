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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cluster::Cluster;
    use crate::judge::clocks::Signal;
    use crate::judge::memory::Memory;
    use crate::judge::{Outcome, Setup};

    const BASE: usize = 0x1000_0000;

    fn judge() -> Judge {
        let mut judge = Judge::default();
        judge.start(Setup {
            memory: Arc::new(Memory::default()),
            block: [0; 3],
            cluster: Cluster {
                blocks: 1,
                threads: 64,
                start: BASE,
                declared: 64,
            },
            harmless: [0..0, 0..0],
            program: 0..0,
            log: false,
            watch: None,
        });
        judge
    }

    fn fork(agent: Agent, clock: u32, first: u32) -> Fork {
        Fork {
            agent,
            clock,
            first,
            count: 1,
            site: 90,
        }
    }

    fn kinds(outcome: &Outcome) -> Vec<(HazardKind, u32, u32)> {
        outcome
            .found
            .iter()
            .map(|raw| (raw.kind, raw.offset, raw.bytes))
            .collect()
    }

    /// Thread 0 starts a load into bytes 0-15, `between` happens, thread 33 reads them.
    fn read_after(between: impl FnOnce(&mut Judge, Agent)) -> Vec<(HazardKind, u32, u32)> {
        let mut judge = judge();
        let agent = judge.agent();
        judge.fork_shared(&fork(agent, 1, 0), How::TmaWrite, 0..16);
        between(&mut judge, agent);
        judge.access(33, BASE + 4, 4, false, true, 7).unwrap();
        kinds(&judge.finish(0))
    }

    #[test]
    fn what_tma_brings_is_known_to_who_is_told_of_the_phase() {
        let early = [(HazardKind::ReadInFlight, 4, 4)];
        assert_eq!(read_after(|_, _| ()), early);
        assert_eq!(read_after(|judge, agent| judge.complete(33, agent, 1)), []);
        assert_eq!(
            read_after(|judge, agent| judge.complete(32, agent, 1)),
            early,
            "another thread"
        );
        assert_eq!(
            read_after(|judge, _| judge.barrier(0, 8)),
            early,
            "a barrier does not wait for it"
        );
        assert_eq!(
            read_after(|judge, _| (0..3).for_each(|_| judge.barrier(0, 8))),
            early
        );
        let observed_by_one = |judge: &mut Judge, agent| {
            judge.complete(32, agent, 1);
            judge.barrier(0, 8);
        };
        assert_eq!(
            read_after(observed_by_one),
            [],
            "but passes on what one of its threads was told"
        );
        let passed_on = |judge: &mut Judge, agent| {
            let mut signal = Signal::default();
            judge.complete(1, agent, 1);
            judge.arrive(1, &mut signal);
            judge.observe(33, &signal);
        };
        assert_eq!(read_after(passed_on), []);
    }

    #[test]
    fn a_slot_is_filled_again_after_its_readers() {
        let run = |freed: bool, barrier: bool| {
            let mut judge = judge();
            let agent = judge.agent();
            judge.fork_shared(&fork(agent, 1, 0), How::TmaWrite, 0..16);
            judge.complete(33, agent, 1);
            judge.access(33, BASE, 16, false, true, 7).unwrap();
            let mut signal = Signal::default();
            if freed {
                judge.arrive(33, &mut signal);
                judge.observe(0, &signal);
            }
            if barrier {
                judge.barrier(0, 8);
            }
            judge.fork_shared(&fork(agent, 2, 0), How::TmaWrite, 0..16);
            kinds(&judge.finish(0))
        };
        assert_eq!((run(true, false), run(false, true)), (vec![], vec![]));
        assert_eq!(
            run(false, false),
            [(HazardKind::Race, 0, 16); 2],
            "neither the reader nor the first load is over"
        );
    }

    #[test]
    fn reads_of_an_agent_last_until_they_are_complete() {
        let run = |waits: &[u32], barrier: bool| {
            let mut judge = judge();
            let (tma, wgmma) = (judge.agent(), judge.agent());
            judge.fork_shared(&fork(tma, 1, 0), How::TmaWrite, 0..16);
            (32..34).for_each(|thread| judge.complete(thread, tma, 1));
            let group = Fork {
                agent: wgmma,
                clock: 3,
                first: 32,
                count: 2,
                site: 91,
            };
            judge.fork_shared(&group, How::WgmmaRead, 0..16);
            for &clock in waits {
                judge.complete(33, wgmma, clock);
            }
            if barrier {
                judge.barrier(0, 8);
            }
            judge.access(33, BASE, 4, true, true, 7).unwrap();
            kinds(&judge.finish(0))
        };
        assert_eq!((run(&[3], false), run(&[4], true)), (vec![], vec![]));
        let race = [(HazardKind::Race, 0, 4)];
        assert_eq!(
            (run(&[], false), run(&[2], false), run(&[2], true)),
            (race.to_vec(), race.to_vec(), race.to_vec())
        );
    }

    #[test]
    fn generic_writes_reach_the_async_proxy_by_the_writers_fence() {
        let run = |events: &[&str]| {
            let mut judge = judge();
            let agent = judge.agent();
            judge.access(33, BASE, 4, true, true, 7).unwrap();
            for event in events {
                match *event {
                    "fence" => judge.fence_proxy(33),
                    "other's fence" => judge.fence_proxy(0),
                    "write" => judge.access(33, BASE, 4, true, true, 6).unwrap(),
                    _ => judge.barrier(0, 8),
                }
            }
            judge.fork_shared(&fork(agent, 1, 0), How::StoreRead, 0..4);
            kinds(&judge.finish(0))
        };
        let unfenced = [(HazardKind::MissingProxyFence, 0, 4)];
        assert_eq!(run(&["fence", "barrier"]), []);
        assert_eq!(run(&["fence", "barrier", "barrier"]), []);
        assert_eq!(run(&["barrier", "fence", "barrier"]), []);
        assert_eq!(run(&["barrier"]), unfenced);
        assert_eq!(
            run(&["barrier", "fence"]),
            unfenced,
            "nobody knows of the fence"
        );
        assert_eq!(
            run(&["barrier", "other's fence"]),
            unfenced,
            "by who issues the read"
        );
        assert_eq!(run(&["fence", "write", "barrier"]), unfenced);
        assert_eq!(
            run(&["fence"]),
            [(HazardKind::Race, 0, 4)],
            "a fence orders nothing"
        );
    }
}
