//! What warps do in what order. A thread's step is the length of the longest chain of operations
//! that lead to where it is: its own, and those that it has been told of. So steps follow the
//! judge's order alone, never the order in which the emulator happened to run.

use std::collections::HashMap;

use super::clocks::Agent;

/// An operation of a warp, by its first lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawDeed {
    /// Of the cluster.
    pub(crate) warp: u32,
    pub(crate) operation: &'static str,
    pub(crate) site: u32,
    pub(crate) object: u32,
    pub(crate) begin: u64,
    pub(crate) end: u64,
    pub(crate) tile: Option<RawTile>,
}

/// A tile that TMA copies, or that a product reads where TMA has copied it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawTile {
    /// The place of its first row in global memory.
    pub(crate) place: u32,
    /// Tiles of its height before it in its head.
    pub(crate) number: u32,
}

/// A call that a thread makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Doing {
    pub(crate) thread: u32,
    pub(crate) operation: &'static str,
    pub(crate) site: u32,
    /// The barrier's offset in its block's shared memory or its number, or how many groups may be
    /// in flight.
    pub(crate) object: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Deeds {
    /// The operations that are noted.
    wanted: Vec<&'static str>,
    threads: Vec<Thread>,
    /// The steps of each agent's operations, with their clocks.
    agents: HashMap<Agent, Vec<Issued>>,
    list: Vec<RawDeed>,
}

/// How far a thread has come.
#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    step: u64,
    /// Whether it is in a wait.
    waits: bool,
    /// The last operation and its object.
    last: Option<(&'static str, u32)>,
    /// The index in the list of the last operation; a warp's first lane has one.
    listed: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Issued {
    clock: u32,
    step: u64,
}

impl Deeds {
    pub(crate) fn start(&mut self, wanted: Vec<&'static str>, threads: u32) {
        let noted = if wanted.is_empty() { 0 } else { threads };
        *self = Self {
            wanted,
            threads: vec![Thread::default(); noted as usize],
            ..Self::default()
        };
    }

    pub(crate) fn is_on(&self) -> bool {
        !self.wanted.is_empty()
    }

    pub(crate) fn finish(&mut self) -> Vec<RawDeed> {
        std::mem::take(&mut self.list)
    }

    /// Returns the thread's step; 0 while nothing is noted.
    pub(crate) fn step(&self, thread: u32) -> u64 {
        let known = self.threads.get(thread as usize);
        known.map_or(0, |it| it.step)
    }

    /// Returns the latest step of threads.
    pub(crate) fn latest(&self, threads: impl Iterator<Item = u32>) -> u64 {
        threads.map(|thread| self.step(thread)).max().unwrap_or(0)
    }

    /// Brings a thread to a step of others.
    pub(crate) fn learn(&mut self, thread: u32, step: u64) {
        if let Some(known) = self.threads.get_mut(thread as usize) {
            known.step = step.max(known.step);
        }
    }

    /// Brings threads to the latest step of any of them.
    pub(crate) fn meet(&mut self, threads: impl Iterator<Item = u32> + Clone) {
        let latest = self.latest(threads.clone());
        for thread in threads {
            self.learn(thread, latest);
        }
    }

    /// Keeps the step at which a thread has issued an agent's operation.
    pub(crate) fn issue(&mut self, agent: Agent, clock: u32, thread: u32) {
        if self.is_on() {
            let step = self.step(thread);
            let issued = self.agents.entry(agent).or_default();
            issued.push(Issued { clock, step });
        }
    }

    /// Tells a thread of an agent's operations up to `clock`.
    pub(crate) fn complete(&mut self, thread: u32, agent: Agent, clock: u32) {
        let known = self.agents.get(&agent).into_iter().flatten();
        let steps = known.filter(|issued| issued.clock <= clock);
        if let Some(step) = steps.map(|issued| issued.step).max() {
            self.learn(thread, step);
        }
    }

    /// Takes an operation of one step. Several of one kind after each other are one.
    pub(crate) fn does(&mut self, doing: Doing) {
        let Some(thread) = self.thread_of(&doing) else {
            return;
        };
        let last = Some((doing.operation, doing.object));
        if thread.last != last {
            let begin = thread.step;
            (thread.step, thread.last) = (begin + 1, last);
            self.note(doing, begin, begin + 1);
        }
    }

    /// Takes an operation of no step.
    pub(crate) fn marks(&mut self, doing: Doing) {
        if let Some(thread) = self.thread_of(&doing) {
            thread.last = Some((doing.operation, doing.object));
            let at = thread.step;
            self.note(doing, at, at);
        }
    }

    /// Takes the begin of a wait.
    pub(crate) fn begins(&mut self, doing: Doing) {
        self.marks(doing);
        if let Some(thread) = self.thread_of(&doing) {
            thread.waits = true;
        }
    }

    /// Ends the thread's wait, after it has learned what ended it.
    pub(crate) fn ends(&mut self, thread: u32) {
        let waiting = self.threads.get_mut(thread as usize);
        let Some(waiter) = waiting.filter(|it| it.waits) else {
            return;
        };
        waiter.waits = false;
        waiter.step += 1;
        if let Some(index) = waiter.listed {
            self.list[index].end = waiter.step;
        }
    }

    /// Says which tile the thread's last operation is about. Of several it is the first.
    pub(crate) fn names(&mut self, thread: u32, tile: Option<RawTile>) {
        let known = self.threads.get(thread as usize);
        if let Some(index) = known.and_then(|it| it.listed) {
            let named = &mut self.list[index].tile;
            *named = named.or(tile);
        }
    }

    /// Returns the thread of a call, if the operation is one of those wanted.
    fn thread_of(&mut self, doing: &Doing) -> Option<&mut Thread> {
        let is_wanted = self.wanted.contains(&doing.operation);
        let thread = self.threads.get_mut(doing.thread as usize);
        thread.filter(|_| is_wanted)
    }

    /// Adds to the list what a warp's first lane does.
    fn note(&mut self, doing: Doing, begin: u64, end: u64) {
        if !doing.thread.is_multiple_of(32) {
            return;
        }
        self.threads[doing.thread as usize].listed = Some(self.list.len());
        self.list.push(RawDeed {
            warp: doing.thread / 32,
            operation: doing.operation,
            site: doing.site,
            object: doing.object,
            begin,
            end,
            tile: None,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: &str = "wait";
    const WORK: &str = "work";

    fn deeds() -> Deeds {
        let mut deeds = Deeds::default();
        deeds.start(vec![WAIT, WORK], 64);
        deeds
    }

    fn doing(thread: u32, operation: &'static str, object: u32) -> Doing {
        Doing {
            thread,
            operation,
            site: 0,
            object,
        }
    }

    /// Returns warp, begin and end of what was noted.
    fn noted(deeds: &mut Deeds) -> Vec<[u64; 3]> {
        let list = deeds.finish();
        list.iter()
            .map(|deed| [u64::from(deed.warp), deed.begin, deed.end])
            .collect()
    }

    #[test]
    fn a_wait_ends_after_what_it_was_told_of() {
        let mut deeds = deeds();
        deeds.begins(doing(32, WAIT, 0));
        for object in 0..3 {
            deeds.does(doing(0, WORK, object));
        }
        let told = deeds.step(0);
        deeds.learn(32, told);
        deeds.ends(32);
        assert_eq!(
            noted(&mut deeds),
            [[1, 0, 4], [0, 0, 1], [0, 1, 2], [0, 2, 3]]
        );
    }

    #[test]
    fn a_lane_that_runs_ahead_tells_its_warp_nothing() {
        let mut deeds = deeds();
        deeds.begins(doing(0, WAIT, 0));
        deeds.learn(1, 9);
        deeds.ends(0);
        assert_eq!(noted(&mut deeds), [[0, 0, 1]]);
    }

    #[test]
    fn operations_of_one_kind_after_each_other_are_one() {
        let mut deeds = deeds();
        for object in [7, 7, 8] {
            deeds.does(doing(0, WORK, object));
        }
        deeds.marks(doing(0, WAIT, 0));
        deeds.does(doing(0, WORK, 8));
        assert_eq!(
            noted(&mut deeds),
            [[0, 0, 1], [0, 1, 2], [0, 2, 2], [0, 2, 3]]
        );
    }

    #[test]
    fn threads_that_meet_go_on_from_the_latest_step() {
        let mut deeds = deeds();
        deeds.does(doing(0, WORK, 0));
        deeds.does(doing(0, WORK, 1));
        deeds.meet([0, 33].into_iter());
        assert_eq!((deeds.step(0), deeds.step(33), deeds.step(1)), (2, 2, 0));
    }

    #[test]
    fn what_nobody_asked_for_is_no_step() {
        let mut deeds = deeds();
        deeds.does(doing(0, "other", 0));
        assert_eq!(deeds.step(0), 0);
        assert!(deeds.finish().is_empty());
    }
}
