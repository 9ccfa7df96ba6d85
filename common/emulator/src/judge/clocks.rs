//! Vector clocks of one block's threads: which event of one thread another thread has been told of.
//!
//! A thread's own clock ticks whenever it takes part in synchronisation, so (thread, clock) names a stretch of its
//! program between two such points. A barrier of the whole block orders all that came before it with all that comes
//! after it: it starts a new *generation*, and events of older generations are known to everyone.
//!
//! cp.async copies that arrive at an mbarrier by themselves run beside their thread: nobody, not even that thread, knows
//! that they have landed but who observes the phase. Their clock is the number of the copy among those of its thread.

/// The clocks of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    threads: usize,
    /// Columns of `known`: the threads and, once any arrive by themselves, the copies of each thread.
    columns: usize,
    /// Row t: what thread t knows of each thread and of its copies; on the diagonal its own clock.
    known: Vec<u32>,
    generation: u32,
    joined: Vec<u32>,
}

/// What a thread leaves at a synchronisation object for those who come after it: an arrival at an mbarrier or at a
/// named barrier that does not wait.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signal {
    generation: u32,
    known: Vec<u32>,
}

impl Signal {
    /// Ready to take what a thread knows now.
    fn renew(&mut self, generation: u32, columns: usize) {
        if self.generation != generation {
            self.generation = generation;
            self.known.clear();
        }
        self.known.resize(columns, 0);
    }
}

impl Clocks {
    /// Starts a block of `threads` threads; `generation` must be above all generations used before.
    pub(crate) fn start(&mut self, threads: usize, generation: u32) {
        self.threads = threads;
        self.columns = threads;
        self.generation = generation;
        self.clear();
    }

    fn clear(&mut self) {
        let (threads, columns) = (self.threads, self.columns);
        self.known.clear();
        self.known.resize(threads * columns, 0);
        (0..threads).for_each(|t| self.known[t * columns + t] = 1);
    }

    fn row(&mut self, thread: u32) -> &mut [u32] {
        &mut self.known[thread as usize * self.columns..][..self.columns]
    }

    /// Events of other generations are ordered before everything that comes now.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The thread's own clock.
    #[inline]
    pub(crate) fn clock(&self, thread: u32) -> u32 {
        self.known[thread as usize * (self.columns + 1)]
    }

    /// Whether `thread` has been told of what `other` did at `clock` (of this generation).
    #[inline]
    pub(crate) fn knows(&self, thread: u32, other: u32, clock: u32) -> bool {
        self.known[thread as usize * self.columns + other as usize] >= clock
    }

    /// `thread` issues a copy: whoever learns of that copy later learns what the thread did up to now.
    pub(crate) fn issue_copy(&mut self, thread: u32) {
        self.row(thread)[thread as usize] += 1;
    }

    /// Whether `thread` has been told that copy number `copy` of `other` has landed.
    pub(crate) fn knows_copy(&self, thread: u32, other: u32, copy: u32) -> bool {
        self.columns > self.threads && self.knows(thread, self.threads as u32 + other, copy)
    }

    /// `thread` has waited, as wait_group does, for its copies up to number `copy`. It is a point of synchronisation, too.
    pub(crate) fn wait_for_copies(&mut self, thread: u32, copy: u32) {
        if self.columns > self.threads {
            let column = self.threads + thread as usize;
            let known = &mut self.row(thread)[column];
            *known = copy.max(*known);
        }
        self.row(thread)[thread as usize] += 1;
    }

    /// The copies of `thread` up to number `copy` have landed: who waits for the signal learns it.
    pub(crate) fn release_copies(&mut self, thread: u32, copy: u32, signal: &mut Signal) {
        signal.renew(self.generation, self.columns);
        let known = &mut signal.known[self.threads + thread as usize];
        *known = copy.max(*known);
    }

    /// All `participants` meet: what each did before is known to all of them after.
    pub(crate) fn meet(&mut self, participants: impl Iterator<Item = u32> + Clone) {
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.resize(self.columns, 0);
        for thread in participants.clone() {
            joined.iter_mut().zip(self.row(thread)).for_each(|(most, &mut known)| *most = (*most).max(known));
        }
        for thread in participants {
            let row = self.row(thread);
            row.copy_from_slice(&joined);
            row[thread as usize] += 1;
        }
        self.joined = joined;
    }

    /// All threads of the block meet: a new generation. Returns it.
    pub(crate) fn meet_all(&mut self) -> u32 {
        self.generation += 1;
        self.clear();
        self.generation
    }

    /// `thread` arrives at `signal` and goes on: who waits for the signal learns what it did so far.
    pub(crate) fn release(&mut self, thread: u32, signal: &mut Signal) {
        self.tell(thread, signal, self.clock(thread));
        self.row(thread)[thread as usize] += 1;
    }

    /// Copies of `thread` will arrive at `signal`: who waits for it learns what came before them, but nothing of what the
    /// thread itself did since it issued the last of them or took part in synchronisation.
    pub(crate) fn release_before_copies(&mut self, thread: u32, signal: &mut Signal) {
        if self.columns == self.threads {
            self.columns = 2 * self.threads;
            let rows = std::mem::take(&mut self.known);
            for row in rows.chunks(self.threads) {
                self.known.extend_from_slice(row);
                self.known.resize(self.known.len() + self.threads, 0);
            }
        }
        self.tell(thread, signal, self.clock(thread) - 1);
    }

    /// Adds to `signal` what `thread` knows, and of itself what it did up to `own`.
    fn tell(&mut self, thread: u32, signal: &mut Signal, own: u32) {
        signal.renew(self.generation, self.columns);
        let known_of_it = signal.known[thread as usize];
        signal.known.iter_mut().zip(self.row(thread)).for_each(|(most, &mut known)| *most = (*most).max(known));
        signal.known[thread as usize] = known_of_it.max(own);
    }

    /// `thread` has waited for `signal`. A signal of an older generation says nothing new.
    pub(crate) fn acquire(&mut self, thread: u32, signal: &Signal) {
        let is_new = signal.generation == self.generation;
        let row = self.row(thread);
        if is_new {
            row.iter_mut().zip(&signal.known).for_each(|(most, &known)| *most = (*most).max(known));
        }
        row[thread as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(threads: usize) -> Clocks {
        let mut clocks = Clocks::default();
        clocks.start(threads, 1);
        clocks
    }

    #[test]
    fn those_who_meet_know_of_each_other_and_of_nobody_else() {
        let mut clocks = clocks(4);
        let before = clocks.clock(0);
        clocks.meet([0, 1].into_iter());
        assert!(clocks.knows(1, 0, before) && !clocks.knows(2, 0, before));
        assert!(!clocks.knows(1, 0, clocks.clock(0)), "what comes after the meeting is new");
        clocks.meet([1, 2].into_iter());
        assert!(clocks.knows(2, 0, before), "knowledge is passed on");
        assert!(!clocks.knows(3, 0, before));
    }

    #[test]
    fn a_signal_orders_one_way() {
        let mut clocks = clocks(3);
        let (first, second) = (clocks.clock(0), clocks.clock(1));
        let mut signal = Signal::default();
        clocks.release(0, &mut signal);
        let after = clocks.clock(0);
        clocks.acquire(1, &signal);
        assert!(clocks.knows(1, 0, first) && !clocks.knows(1, 0, after));
        assert!(!clocks.knows(0, 1, second), "who arrives learns nothing");
        clocks.meet_all();
        clocks.acquire(2, &signal);
        assert!(!clocks.knows(2, 0, clocks.clock(0)), "a signal from before a barrier of all says nothing new");
    }

    #[test]
    fn copies_are_known_to_who_observed_them_and_not_to_their_thread() {
        let mut clocks = clocks(3);
        let written_before = clocks.clock(0);
        clocks.issue_copy(0);
        let written_since = clocks.clock(0);
        let mut signal = Signal::default();
        clocks.release_before_copies(0, &mut signal);
        clocks.release_copies(0, 4, &mut signal);
        clocks.acquire(2, &signal);
        assert!(clocks.knows_copy(2, 0, 4) && !clocks.knows_copy(2, 0, 5) && !clocks.knows_copy(0, 0, 4));
        assert!(clocks.knows(2, 0, written_before) && !clocks.knows(2, 0, written_since));
        clocks.meet([1, 2].into_iter());
        assert!(clocks.knows_copy(1, 0, 4), "knowledge is passed on");
        clocks.wait_for_copies(0, 3);
        assert!(clocks.knows_copy(0, 0, 3) && !clocks.knows_copy(0, 0, 4), "a wait_group covers the older ones");
    }
}
