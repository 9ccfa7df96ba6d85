//! Vector clocks of one block's threads: which event of one thread another thread has been told of.
//!
//! A thread's own clock ticks whenever it takes part in synchronisation, so (thread, clock) names a stretch of its
//! program between two such points. A barrier of the whole block orders all that came before it with all that comes
//! after it: it starts a new *generation*, and events of older generations are known to everyone.

/// The clocks of one block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clocks {
    threads: usize,
    /// Row t: what thread t knows of each thread; on the diagonal its own clock.
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

impl Clocks {
    /// Starts a block of `threads` threads; `generation` must be above all generations used before.
    pub(crate) fn start(&mut self, threads: usize, generation: u32) {
        self.threads = threads;
        self.generation = generation;
        self.clear();
    }

    fn clear(&mut self) {
        let threads = self.threads;
        self.known.clear();
        self.known.resize(threads * threads, 0);
        (0..threads).for_each(|t| self.known[t * threads + t] = 1);
    }

    /// Events of other generations are ordered before everything that comes now.
    pub(crate) fn generation(&self) -> u32 {
        self.generation
    }

    /// The thread's own clock.
    #[inline]
    pub(crate) fn clock(&self, thread: u32) -> u32 {
        self.known[thread as usize * (self.threads + 1)]
    }

    /// Whether `thread` has been told of what `other` did at `clock` (of this generation).
    #[inline]
    pub(crate) fn knows(&self, thread: u32, other: u32, clock: u32) -> bool {
        self.known[thread as usize * self.threads + other as usize] >= clock
    }

    /// All `participants` meet: what each did before is known to all of them after.
    pub(crate) fn meet(&mut self, participants: impl Iterator<Item = u32> + Clone) {
        let threads = self.threads;
        let mut joined = std::mem::take(&mut self.joined);
        joined.clear();
        joined.resize(threads, 0);
        for thread in participants.clone() {
            let row = &self.known[thread as usize * threads..][..threads];
            joined.iter_mut().zip(row).for_each(|(most, &known)| *most = (*most).max(known));
        }
        for thread in participants {
            let row = &mut self.known[thread as usize * threads..][..threads];
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
        if signal.generation != self.generation {
            signal.generation = self.generation;
            signal.known.clear();
        }
        signal.known.resize(self.threads, 0);
        let row = &mut self.known[thread as usize * self.threads..][..self.threads];
        signal.known.iter_mut().zip(&*row).for_each(|(most, &known)| *most = (*most).max(known));
        row[thread as usize] += 1;
    }

    /// `thread` has waited for `signal`. A signal of an older generation says nothing new.
    pub(crate) fn acquire(&mut self, thread: u32, signal: &Signal) {
        if signal.generation == self.generation && !signal.known.is_empty() {
            let row = &mut self.known[thread as usize * self.threads..][..self.threads];
            row.iter_mut().zip(&signal.known).for_each(|(most, &known)| *most = (*most).max(known));
            row[thread as usize] += 1;
        }
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
}
