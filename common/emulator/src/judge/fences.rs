//! Proxy fences by the letter of the PTX ISA: the async proxy sees a store if a fence stands
//! anywhere on a path of synchronisation from the store to the operation that reads it, in whatever
//! thread (memory consistency model, proxy-preserved base causality order).
//!
//! A *moment* counts the points of synchronisation of all threads, fences among them, in the order
//! in which they run. A store keeps the moment at which it ran. Whoever learns from a thread what it
//! has done until a point of synchronisation learns its moment, and so which of its stores those
//! are.

use crate::heap::of_list;

/// The moments of all threads that one of them, or a signal, knows of.
#[derive(Clone, Debug, Default)]
pub(super) struct Moments {
    /// The moment until which the stores of each thread are known.
    known: Vec<u32>,
    /// The moment until which the stores of each thread are known to be fenced.
    fenced: Vec<u32>,
}

impl Moments {
    fn nothing(threads: usize) -> Self {
        Self {
            known: vec![0; threads],
            fenced: vec![0; threads],
        }
    }

    fn join(&mut self, other: &Self) {
        raise(&mut self.known, &other.known);
        raise(&mut self.fenced, &other.fenced);
    }

    pub(super) fn bytes(&self) -> usize {
        of_list(&self.known) + of_list(&self.fenced)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) {
        self.known.clear();
        self.fenced.clear();
    }
}

/// Raises each moment to that of `other`.
fn raise(moments: &mut Vec<u32>, other: &[u32]) {
    if moments.len() < other.len() {
        moments.resize(other.len(), 0);
    }
    for (moment, &known) in moments.iter_mut().zip(other) {
        *moment = known.max(*moment);
    }
}

/// The stores and fences of each other that the threads of a block know of.
#[derive(Clone, Debug, Default)]
pub(super) struct FencePaths {
    /// The present moment.
    now: u32,
    /// The moment of the last barrier of the whole block: stores until then are known to everyone.
    met: u32,
    threads: Vec<Moments>,
    /// The moments that each thread has fenced since its last point of synchronisation; empty if
    /// there are none.
    unpublished: Vec<Vec<u32>>,
}

impl FencePaths {
    pub(super) fn new(threads: usize) -> Self {
        Self {
            threads: vec![Moments::nothing(threads); threads],
            unpublished: vec![Vec::new(); threads],
            ..Self::default()
        }
    }

    /// Returns the moment that a store keeps.
    pub(super) fn now(&self) -> u32 {
        self.now
    }

    /// Begins a new moment at a point of synchronisation, at which a thread publishes what it has
    /// fenced.
    pub(super) fn tick(&mut self, thread: u32) {
        self.advance(thread);
        self.publish(thread);
    }

    /// Begins a new moment, until which a thread knows its own stores.
    fn advance(&mut self, thread: u32) {
        self.now += 1;
        let own = thread as usize;
        self.threads[own].known[own] = self.now;
    }

    fn publish(&mut self, thread: u32) {
        let own = thread as usize;
        raise(&mut self.threads[own].fenced, &self.unpublished[own]);
        self.unpublished[own].clear();
    }

    /// Fences what a thread has stored and what it knows of others' stores.
    pub(super) fn fence(&mut self, thread: u32) {
        self.advance(thread);
        let own = thread as usize;
        let known = self.threads[own].known.iter();
        self.unpublished[own] = known.map(|&moment| moment.max(self.met)).collect();
    }

    /// Returns whether `reader` knows of a fence behind what `writer` stored at a moment.
    pub(super) fn covers(&self, reader: u32, writer: u32, stored: u32) -> bool {
        let published = self.threads[reader as usize].fenced[writer as usize];
        let own = self.unpublished[reader as usize].get(writer as usize);
        published > stored || own.is_some_and(|&fenced| fenced > stored)
    }

    /// Adds to a signal what a thread knows, up to its last point of synchronisation.
    pub(super) fn tell(&self, thread: u32, signal: &mut Moments) {
        signal.join(&self.threads[thread as usize]);
    }

    /// Tells a thread what a signal has published.
    pub(super) fn learn(&mut self, thread: u32, signal: &Moments) {
        self.threads[thread as usize].join(signal);
    }

    /// Tells each of the participants what all of them know.
    pub(super) fn meet(&mut self, participants: impl Iterator<Item = u32> + Clone) {
        let mut union = Moments::default();
        for thread in participants.clone() {
            self.tick(thread);
            union.join(&self.threads[thread as usize]);
        }
        for thread in participants {
            self.threads[thread as usize].clone_from(&union);
        }
    }

    /// Tells all threads what any of them knows.
    pub(super) fn meet_all(&mut self) {
        self.now += 1;
        self.met = self.now;
        for thread in 0..self.threads.len() as u32 {
            self.publish(thread);
        }
        let mut fenced = Vec::new();
        for moments in &self.threads {
            raise(&mut fenced, &moments.fenced);
        }
        for moments in &mut self.threads {
            moments.fenced.clone_from(&fenced);
        }
    }
}
