//! Vector clocks of one block's threads: which event of one thread another thread has been told of.
//!
//! A thread's own clock ticks whenever it takes part in synchronisation, so (thread, clock) names a
//! stretch of its program. A barrier of the whole block starts a new *generation*: events of older
//! generations are known to everyone.
//!
//! What runs asynchronously is an *agent* with a column of its own. Its events are known to nobody,
//! not even to the issuing thread, until somebody is told by what completes them. A barrier of the
//! block passes that knowledge on; it completes nothing. An agent's clock counts its operations in
//! order of completion: a thread's copies that arrive at an mbarrier, the bytes that TMA brings to
//! an mbarrier, a warpgroup's groups of wgmma, a thread's groups of TMA stores.
//!
//! Proxy fences have a column per thread, in which the clock counts all fences of the block: a
//! write remembers how many there had been and asks for a later one. Under
//! [`FenceRule::Path`] they are [`FencePaths`] instead. A fence covers a copy that arrives at an
//! mbarrier only if its thread knew that the copy had landed, so such copies have a second column
//! per thread: the copies that a fence stands behind. What a thread fences it publishes at its next
//! point of synchronisation: an mbarrier that its copies arrive at by themselves tells nothing of it.

use super::fences::{FencePaths, Moments};
use crate::heap::of_list;

/// The rule by which the async proxy sees what threads have stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FenceRule {
    /// The thread that stored has fenced before it meets who starts the operation: the order that
    /// the CUDA C++ Programming Guide gives (asynchronous data copies with TMA).
    #[default]
    Writer,
    /// A fence of any thread stands on the way from the store to the operation (PTX ISA,
    /// proxy-preserved base causality order).
    Path,
}

/// A column of the clocks beyond the threads'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Agent(u16);

#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    threads: usize,
    /// The columns in use: the threads, then agents and fences on demand.
    used: usize,
    columns: usize,
    /// The first column of the threads' copies.
    copies: Option<usize>,
    /// The first column of the threads' copies behind which a fence stands.
    fenced_copies: Option<usize>,
    /// The first column of the threads' fences.
    fences: Option<usize>,
    fence: u32,
    /// What each thread has fenced since its last point of synchronisation.
    unpublished: Vec<Fenced>,
    /// The fences under [`FenceRule::Path`].
    paths: Option<FencePaths>,
    /// Row t: what thread t knows of each column; on the diagonal its own clock.
    known: Vec<u32>,
    /// The most that any thread knows of each column of an agent.
    completed: Vec<u32>,
    generation: u32,
    joined: Vec<u32>,
}

/// What a thread has fenced.
#[derive(Clone, Debug, Default)]
struct Fenced {
    /// The number of the thread's last fence under [`FenceRule::Writer`]; 0 if there is none.
    number: u32,
    /// The copies of each thread that it knew to have landed; empty if there are none.
    copies: Vec<u32>,
}

/// The knowledge that an arrival at an mbarrier or named barrier publishes to those who come after
/// it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signal {
    generation: u32,
    known: Vec<u32>,
    /// Empty unless the rule is [`FenceRule::Path`].
    moments: Moments,
    /// The latest step of those who have arrived; see [`super::deeds`].
    pub(crate) step: u64,
}

impl Signal {
    pub(super) fn history_bytes(&self) -> usize {
        size_of::<Self>() + of_list(&self.known) + self.moments.bytes()
    }

    fn renew(&mut self, generation: u32, columns: usize) {
        if self.generation != generation {
            self.generation = generation;
            self.known.clear();
            self.moments.clear();
        }
        self.known.resize(columns, 0);
    }
}

impl Clocks {
    /// Starts anew. `generation` must be above all generations used before.
    pub(crate) fn start(&mut self, threads: usize, generation: u32, rule: FenceRule) {
        (self.threads, self.used, self.columns) = (threads, threads, threads);
        (self.copies, self.fenced_copies) = (None, None);
        (self.fences, self.fence) = (None, 0);
        self.paths = match rule {
            FenceRule::Writer => None,
            FenceRule::Path => Some(FencePaths::new(threads)),
        };
        self.generation = generation;
        self.unpublished.clear();
        self.unpublished.resize_with(threads, Fenced::default);
        self.completed.clear();
        self.clear();
    }

    /// Returns the bytes of the columns of agents: those of the threads grow with the launch alone.
    pub(super) fn history_bytes(&self) -> usize {
        let of_threads = self.threads * self.threads * size_of::<u32>();
        of_list(&self.known).saturating_sub(of_threads) + of_list(&self.completed)
    }

    fn clear(&mut self) {
        let (threads, columns) = (self.threads, self.columns);
        self.known.clear();
        self.known.resize(threads * columns, 0);
        for thread in 0..threads {
            self.known[thread * columns + thread] = 1;
        }
    }

    /// Adds columns of which nobody knows anything; returns the first.
    fn add_columns(&mut self, count: usize) -> usize {
        let first = self.used;
        self.used += count;
        if self.used > self.columns {
            let columns = self.used.next_multiple_of(16);
            let rows = std::mem::take(&mut self.known);
            for row in rows.chunks(self.columns) {
                self.known.extend_from_slice(row);
                self.known
                    .resize(self.known.len() + columns - self.columns, 0);
            }
            self.columns = columns;
        }
        first
    }

    /// Returns the first of these columns, one for each thread; without them, adds some.
    fn columns_of_threads(&mut self, first: Option<usize>) -> usize {
        first.unwrap_or_else(|| self.add_columns(self.threads))
    }

    pub(crate) fn agent(&mut self) -> Agent {
        Agent(self.add_columns(1) as u16)
    }

    pub(crate) fn complete(&mut self, thread: u32, agent: Agent, clock: u32) {
        let column = usize::from(agent.0);
        let known = &mut self.row(thread)[column];
        *known = clock.max(*known);
        self.completed.resize(self.columns, 0);
        self.completed[column] = clock.max(self.completed[column]);
    }

    pub(crate) fn knows_agent(&self, thread: u32, agent: Agent, clock: u32) -> bool {
        self.knows(thread, agent.0.into(), clock)
    }

    pub(crate) fn is_complete(&self, agent: Agent, clock: u32) -> bool {
        let most = self.completed.get(usize::from(agent.0));
        most.copied().unwrap_or(0) >= clock
    }

    pub(crate) fn fence(&mut self, thread: u32) {
        self.fence_copies(thread);
        if let Some(paths) = &mut self.paths {
            paths.fence(thread);
            return;
        }
        self.fence += 1;
        self.unpublished[thread as usize].number = self.fence;
    }

    /// Fences the copies that a thread knows to have landed: its own or, by paths, anybody's.
    fn fence_copies(&mut self, thread: u32) {
        let Some(copies) = self.copies else {
            return;
        };
        let first = thread as usize * self.columns + copies;
        let known = &self.known[first..][..self.threads];
        let fenced = &mut self.unpublished[thread as usize].copies;
        match self.paths {
            Some(_) => *fenced = known.to_vec(),
            None => {
                fenced.resize(self.threads, 0);
                fenced[thread as usize] = known[thread as usize];
            }
        }
    }

    /// Makes what a thread has fenced a part of what it publishes.
    fn publish_fences(&mut self, thread: u32) {
        let Fenced { number, copies } = std::mem::take(&mut self.unpublished[thread as usize]);
        if number > 0 {
            let first = self.columns_of_threads(self.fences);
            self.fences = Some(first);
            self.row(thread)[first + thread as usize] = number;
        }
        if !copies.is_empty() {
            let first = self.columns_of_threads(self.fenced_copies);
            self.fenced_copies = Some(first);
            join(&mut self.row(thread)[first..], &copies);
        }
    }

    /// Returns whether `reader` knows of a fence behind a copy that arrived at an mbarrier.
    pub(crate) fn knows_fenced_copy(&self, reader: u32, copier: u32, copy: u32) -> bool {
        let own = self.unpublished[reader as usize]
            .copies
            .get(copier as usize);
        own.is_some_and(|&fenced| fenced >= copy)
            || self
                .fenced_copies
                .is_some_and(|first| self.knows(reader, first as u32 + copier, copy))
    }

    /// Returns the number that a store keeps: of fences until then or, by paths, of its moment.
    #[inline]
    pub(crate) fn fences(&self) -> u32 {
        self.paths.as_ref().map_or(self.fence, FencePaths::now)
    }

    /// Returns whether `reader` knows of a fence behind a store of `writer` that kept this number.
    pub(crate) fn knows_fence(&self, reader: u32, writer: u32, fences: u32) -> bool {
        if let Some(paths) = &self.paths {
            return paths.covers(reader, writer, fences);
        }
        let is_own = reader == writer && self.unpublished[reader as usize].number > fences;
        is_own
            || self
                .fences
                .is_some_and(|first| self.knows(reader, first as u32 + writer, fences + 1))
    }

    /// Ticks a thread's clock at a point of synchronisation.
    fn tick(&mut self, thread: u32) {
        self.publish_fences(thread);
        self.row(thread)[thread as usize] += 1;
        if let Some(paths) = &mut self.paths {
            paths.tick(thread);
        }
    }

    fn row(&mut self, thread: u32) -> &mut [u32] {
        &mut self.known[thread as usize * self.columns..][..self.columns]
    }

    /// Returns the present generation: events of others come before everything now.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    #[inline]
    pub(crate) fn clock(&self, thread: u32) -> u32 {
        self.known[thread as usize * (self.columns + 1)]
    }

    #[inline]
    pub(crate) fn knows(&self, thread: u32, other: u32, clock: u32) -> bool {
        self.known[thread as usize * self.columns + other as usize] >= clock
    }

    /// Ticks a thread's clock: whoever learns of the copy later learns what the thread did up to
    /// now.
    pub(crate) fn issue_copy(&mut self, thread: u32) {
        self.tick(thread);
    }

    pub(crate) fn knows_copy(&self, thread: u32, other: u32, copy: u32) -> bool {
        self.copies
            .is_some_and(|first| self.knows(thread, first as u32 + other, copy))
    }

    /// Makes a thread wait for its copies up to number `copy`, which is a point of synchronisation,
    /// too.
    pub(crate) fn wait_for_copies(&mut self, thread: u32, copy: u32) {
        if let Some(first) = self.copies {
            let known = &mut self.row(thread)[first + thread as usize];
            *known = copy.max(*known);
        }
        self.tick(thread);
    }

    pub(crate) fn release_copies(&mut self, thread: u32, copy: u32, signal: &mut Signal) {
        signal.renew(self.generation, self.columns);
        let first = self.copies.expect("they have been announced");
        let known = &mut signal.known[first + thread as usize];
        *known = copy.max(*known);
    }

    pub(crate) fn meet(&mut self, participants: impl Iterator<Item = u32> + Clone) {
        for thread in participants.clone() {
            self.publish_fences(thread);
        }
        let mut union = std::mem::take(&mut self.joined);
        union.clear();
        union.resize(self.columns, 0);
        for thread in participants.clone() {
            join(&mut union, self.row(thread));
        }
        for thread in participants.clone() {
            let row = self.row(thread);
            row.copy_from_slice(&union);
            row[thread as usize] += 1;
        }
        self.joined = union;
        if let Some(paths) = &mut self.paths {
            paths.meet(participants);
        }
    }

    /// Begins a new generation. What anybody knows of agents and fences all know now.
    pub(crate) fn meet_all(&mut self) {
        self.generation += 1;
        if let Some(paths) = &mut self.paths {
            paths.meet_all();
        }
        for thread in 0..self.threads as u32 {
            self.publish_fences(thread);
        }
        let agents = self.threads..self.columns;
        if agents.is_empty() {
            self.clear();
            return;
        }
        let mut union = std::mem::take(&mut self.joined);
        union.clear();
        union.resize(agents.len(), 0);
        for row in self.known.chunks(self.columns) {
            join(&mut union, &row[agents.clone()]);
        }
        self.clear();
        for row in self.known.chunks_mut(self.columns) {
            row[agents.clone()].copy_from_slice(&union);
        }
        self.joined = union;
    }

    pub(crate) fn release(&mut self, thread: u32, signal: &mut Signal) {
        let own = self.clock(thread);
        self.tick(thread);
        self.tell(thread, signal, own);
    }

    /// Publishes what came before the copies, but nothing of what the thread did since it issued
    /// the last of them or last synchronised.
    pub(crate) fn release_before_copies(&mut self, thread: u32, signal: &mut Signal) {
        self.copies = Some(self.columns_of_threads(self.copies));
        self.tell(thread, signal, self.clock(thread) - 1);
    }

    /// Adds to `signal` what `thread` knows, and of itself what it did up to `own`.
    fn tell(&mut self, thread: u32, signal: &mut Signal, own: u32) {
        signal.renew(self.generation, self.columns);
        let known_of_it = signal.known[thread as usize];
        join(&mut signal.known, self.row(thread));
        signal.known[thread as usize] = known_of_it.max(own);
        if let Some(paths) = &self.paths {
            paths.tell(thread, &mut signal.moments);
        }
    }

    /// Tells a thread what a signal has published. One of an older generation says nothing new.
    pub(crate) fn acquire(&mut self, thread: u32, signal: &Signal) {
        if signal.generation == self.generation {
            join(self.row(thread), &signal.known);
            if let Some(paths) = &mut self.paths {
                paths.learn(thread, &signal.moments);
            }
        }
        self.tick(thread);
    }
}

/// Raises each clock of `row` to that of `other`.
#[inline]
fn join(row: &mut [u32], other: &[u32]) {
    for (clock, &known) in row.iter_mut().zip(other) {
        *clock = known.max(*clock);
    }
}
