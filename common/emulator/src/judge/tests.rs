//! The judge against brute force: random small programs, whose accesses are ordered if an explicit
//! graph has a path from one to the other.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use proptest::prelude::*;

use crate::cluster::Cluster;
use crate::schedule::Random;

use super::clocks::{Clocks, Signal};
use super::copies::{self, Copies};
use super::hazard::HazardKind;
use super::memory::Memory;
use super::order::How;
use super::requests::MatrixCount;
use super::{Fork, Judge, Matrix, Outcome, Setup};

/// Lanes 0 to 2 of two warps.
const THREADS: [u32; 6] = [0, 1, 2, 32, 33, 34];
const BYTES: usize = 4;
const BASE: usize = 0x1000_0000;
const CASES: u32 = 4000;
/// Of whole warps: a named barrier takes no less.
const ALL: usize = 64;

#[derive(Clone, Debug)]
enum Op {
    By(u32, Act),
    /// `same`: each lane touches the same bytes in all such accesses at one place.
    Matrix {
        warp: u32,
        at: usize,
        write: bool,
        same: bool,
    },
    SyncWarp {
        warp: u32,
        mask: u32,
    },
    Barrier,
    /// Both warps arrive; those that wait learn what both did.
    Named {
        waits: [bool; 2],
    },
}

/// What one thread does: with a signal, with one byte, or with none.
#[derive(Clone, Copy, Debug)]
enum Act {
    Access {
        at: usize,
        bytes: usize,
        write: bool,
    },
    Arrive(usize),
    ArriveAfterCopies(usize),
    Observe(usize),
    Issue(usize),
    Commit,
    /// For all groups but the newest.
    Wait(usize),
    /// TMA brings a byte; all such are one agent's.
    Fetch(usize),
    /// The thread learns that all boxes requested so far are there.
    Told,
    StoreRead(usize),
    StoreWait,
    /// For the async proxy.
    Fence,
}

fn lanes(warp: u32, mask: u32) -> Vec<u32> {
    (0..3)
        .filter(|lane| mask >> lane & 1 == 1)
        .map(|lane| warp * 32 + lane)
        .collect()
}

impl Op {
    fn participants(&self) -> Vec<u32> {
        match *self {
            Op::By(thread, act) => match act {
                // What has been requested so far is what is told.
                Act::Fetch(_) | Act::Told => vec![thread, 2000],
                // The signal keeps its order as if it were a thread.
                Act::Arrive(signal) | Act::ArriveAfterCopies(signal) | Act::Observe(signal) => {
                    vec![thread, 1000 + signal as u32]
                }
                _ => vec![thread],
            },
            Op::Matrix { warp, .. } => lanes(warp, 7),
            Op::SyncWarp { warp, mask } => lanes(warp, mask),
            Op::Barrier | Op::Named { .. } => THREADS.to_vec(),
        }
    }
}

fn by(threads: &[u32], act: impl Strategy<Value = Act>) -> impl Strategy<Value = Op> {
    let thread = prop::sample::select(threads.to_vec());
    (thread, act).prop_map(|(thread, act)| Op::By(thread, act))
}

fn op(widest: usize) -> impl Strategy<Value = Op> {
    // Few, so that a copy is often committed and waited for.
    const COPIERS: [u32; 2] = [0, 32];
    let access = (0..BYTES, 1..=widest, any::<bool>()).prop_map(|(at, bytes, write)| Act::Access {
        at: at.min(BYTES - bytes),
        bytes,
        write,
    });
    let matrix = (0..2u32, 0..BYTES - 1, any::<bool>(), any::<bool>()).prop_map(
        |(warp, at, write, same)| Op::Matrix {
            warp,
            at,
            write,
            same,
        },
    );
    let at = |act: fn(usize) -> Act| by(&COPIERS, (0..BYTES).prop_map(act));
    let signal = |threads, act: fn(usize) -> Act| by(threads, (0..2usize).prop_map(act));
    prop_oneof![
        8 => by(&THREADS, access),
        4 => matrix,
        4 => (0..2u32, 1..8u32).prop_map(|(warp, mask)| Op::SyncWarp { warp, mask }),
        3 => Just(Op::Barrier),
        3 => at(Act::Issue),
        3 => by(&COPIERS, Just(Act::Commit)),
        3 => by(&COPIERS, (0..2usize).prop_map(Act::Wait)),
        1 => any::<[bool; 2]>().prop_map(|waits| Op::Named { waits }),
        2 => signal(&THREADS, Act::Arrive),
        3 => signal(&COPIERS, Act::ArriveAfterCopies),
        3 => signal(&THREADS, Act::Observe),
        3 => at(Act::Fetch),
        3 => by(&THREADS, Just(Act::Told)),
        2 => at(Act::StoreRead),
        2 => by(&COPIERS, Just(Act::StoreWait)),
        3 => by(&THREADS, Just(Act::Fence)),
    ]
}

#[derive(Clone, Default)]
struct Groups<T> {
    copies: Vec<T>,
    /// Per group not yet waited for: copies issued when it was closed.
    committed: Vec<usize>,
}

impl<T: Copy> Groups<T> {
    fn commit(&mut self) {
        self.committed.push(self.copies.len());
    }

    fn wait(&mut self, newest: usize) -> Option<&[T]> {
        let covered = self.committed.len().saturating_sub(newest);
        let end = self.committed.drain(..covered).next_back()?;
        Some(&self.copies[..end])
    }
}

fn judge(program: &[(usize, Op)]) -> Outcome {
    let mut judge = Judge::default();
    judge.start(Setup {
        memory: Arc::new(Memory::default()),
        block: [0; 3],
        cluster: Cluster::of_one_block(ALL as u32, BASE..BASE + BYTES),
        harmless: [0..0, 0..0],
        program: 0..0,
        watch: None,
    });
    let mut groups: Vec<Groups<u32>> = vec![Groups::default(); ALL];
    let mut has_landed = BTreeSet::new();
    let mut signals: [(Signal, Vec<(u32, usize)>); 2] = Default::default();
    let (fetcher, mut fetched) = (judge.agent(), 0);
    let mut storers = [None; ALL];
    for &(index, ref op) in program {
        let site = index as u32 + 1;
        let fork = |agent, clock, first| Fork {
            agent,
            clock,
            first,
            count: 1,
            site,
        };
        match *op {
            Op::By(thread, act) => {
                let own = &mut groups[thread as usize];
                match act {
                    Act::Access { at, bytes, write } => judge
                        .access(thread, BASE + at, bytes, write, false, site)
                        .unwrap(),
                    Act::Arrive(signal) => judge.arrive(thread, &mut signals[signal].0),
                    Act::ArriveAfterCopies(signal) => {
                        let (signal, copies) = &mut signals[signal];
                        judge.arrive_after_copies(thread, site, signal);
                        copies.push((thread, own.copies.len()));
                    }
                    Act::Observe(signal) => {
                        let (signal, copies) = &mut signals[signal];
                        for (copier, issued) in copies.drain(..) {
                            let mine = &groups[copier as usize].copies[..issued];
                            mine.iter()
                                .filter(|&&tag| has_landed.insert(tag))
                                .for_each(|&tag| judge.landed(tag));
                            judge.release_copies(copier, issued as u64, signal);
                        }
                        judge.observe(thread, signal);
                    }
                    Act::Issue(at) => {
                        let tag = judge.issue(thread, BASE + at, 0, 1, 0, site).unwrap();
                        own.copies.push(tag);
                    }
                    Act::Commit => {
                        own.commit();
                        judge.commit(thread);
                    }
                    Act::Wait(newest) => {
                        let covered = own.wait(newest);
                        let tags = covered
                            .iter()
                            .copied()
                            .flatten()
                            .filter(|&&tag| has_landed.insert(tag));
                        tags.for_each(|&tag| judge.landed(tag));
                        let count = covered.map(|tags| tags.len() as u64);
                        judge.waited(thread, newest as u32, count, site);
                    }
                    Act::Fetch(at) => {
                        fetched += 1;
                        judge.fork_shared(
                            &fork(fetcher, fetched, thread),
                            How::TmaWrite,
                            at..at + 1,
                        );
                    }
                    Act::Told => judge.complete(thread, fetcher, fetched),
                    Act::StoreRead(at) => {
                        let (agent, clock) =
                            storers[thread as usize].get_or_insert_with(|| (judge.agent(), 0));
                        *clock += 1;
                        judge.fork_shared(
                            &fork(*agent, *clock, thread),
                            How::StoreRead,
                            at..at + 1,
                        );
                    }
                    Act::StoreWait => {
                        if let Some((agent, clock)) = storers[thread as usize] {
                            judge.complete(thread, agent, clock);
                        }
                    }
                    Act::Fence => judge.fence_proxy(thread),
                }
            }
            Op::Matrix {
                warp,
                at,
                write,
                same,
            } => {
                let matrix = Matrix {
                    warp,
                    lanes: 7,
                    rows: &[BASE + at],
                    row_bytes: 2,
                    element_bytes: 2,
                    write,
                    count: MatrixCount::Ldmatrix,
                    distribution: if same { at as u64 + 1 } else { 0 },
                    site,
                };
                judge.matrix(&matrix).unwrap();
            }
            Op::SyncWarp { warp, mask } => judge.warp_barrier(warp, mask),
            Op::Barrier => judge.barrier(0, site),
            Op::Named { waits } => {
                let mut signal = Signal::default();
                (0..2).for_each(|warp| judge.arrive_at_named(warp, &mut signal));
                (0..2)
                    .filter(|&warp| waits[warp as usize])
                    .for_each(|warp| judge.leave_named(warp, &signal));
            }
        }
    }
    judge.finish(0)
}

struct Made {
    op: usize,
    bytes: Range<usize>,
    write: bool,
    nodes: Vec<usize>,
    /// Warp and place of accesses that give each lane the same bytes.
    same: Option<(u32, usize)>,
    /// Who makes it; none where TMA does.
    by: Option<u32>,
}

struct Graph {
    accesses: Vec<Made>,
    before: Vec<BTreeSet<usize>>,
    fences: Vec<(u32, usize)>,
    /// Where each thread was last, and where it last took part in synchronisation.
    last: [Option<usize>; ALL],
    last_sync: [Option<usize>; ALL],
}

impl Graph {
    fn new(program: &[(usize, Op)]) -> Self {
        let mut graph = Self {
            accesses: Vec::new(),
            before: Vec::new(),
            fences: Vec::new(),
            last: [None; ALL],
            last_sync: [None; ALL],
        };
        let mut groups: Vec<Groups<usize>> = vec![Groups::default(); ALL];
        let mut arrivals = [Vec::new(), Vec::new()];
        let (mut fetches, mut stores) = (Vec::new(), vec![Vec::new(); ALL]);
        // What each thread was told to be done, and what it left of that at a signal that its
        // copies arrive at.
        let (mut told, mut told_of) = (vec![Vec::new(); ALL], [Vec::new(), Vec::new()]);
        for &(op_index, ref op) in program {
            let made = |bytes, write, nodes, by| Made {
                op: op_index,
                bytes,
                write,
                nodes,
                same: None,
                by,
            };
            match *op {
                Op::By(thread, act) => {
                    let own = thread as usize;
                    match act {
                        Act::Access { at, bytes, write } => {
                            let nodes = vec![graph.of_thread(thread)];
                            let access = made(at..at + bytes, write, nodes, Some(thread));
                            graph.accesses.push(access);
                        }
                        Act::Arrive(signal) => arrivals[signal].push(graph.meet(&[thread], [])),
                        Act::ArriveAfterCopies(signal) => {
                            arrivals[signal].extend(&groups[own].copies);
                            arrivals[signal].extend(graph.last_sync[own]);
                            told_of[signal].extend(&told[own]);
                        }
                        Act::Observe(signal) => {
                            let node = graph.meet(&[thread], arrivals[signal].iter().copied());
                            graph.before[node].extend(&told_of[signal]);
                        }
                        Act::Issue(at) => {
                            let issue = graph.of_thread(thread);
                            // The copy takes place at some time after it.
                            let copy = graph.node([issue]);
                            groups[own].copies.push(copy);
                            let access = made(at..at + 1, true, vec![copy], Some(thread));
                            graph.accesses.push(access);
                        }
                        Act::Fetch(at) | Act::StoreRead(at) => {
                            let issue = graph.of_thread(thread);
                            let done = graph.node([issue]);
                            let write = matches!(act, Act::Fetch(_));
                            let requests = if write {
                                &mut fetches
                            } else {
                                &mut stores[own]
                            };
                            requests.push(done);
                            let access = made(at..at + 1, write, vec![done], None);
                            graph.accesses.push(access);
                        }
                        Act::Told | Act::StoreWait => {
                            let is_told = matches!(act, Act::Told);
                            let done = if is_told { &fetches } else { &stores[own] };
                            let node = graph.of_thread(thread);
                            // Nothing of what came before them.
                            graph.before[node].extend(done);
                            told[own].extend(done);
                        }
                        Act::Fence => {
                            let node = graph.of_thread(thread);
                            graph.fences.push((thread, node));
                        }
                        Act::Commit => groups[own].commit(),
                        Act::Wait(newest) => {
                            if let Some(covered) = groups[own].wait(newest) {
                                graph.meet(&[thread], covered.iter().copied());
                            }
                        }
                    }
                }
                Op::Matrix {
                    warp,
                    at,
                    write,
                    same,
                } => {
                    let lanes = lanes(warp, 7).into_iter();
                    let nodes = lanes.map(|thread| graph.of_thread(thread)).collect();
                    graph.accesses.push(Made {
                        same: same.then_some((warp, at)),
                        ..made(at..at + 2, write, nodes, Some(warp * 32))
                    });
                }
                Op::SyncWarp { .. } | Op::Barrier => _ = graph.meet(&op.participants(), []),
                Op::Named { waits } => {
                    let arrivals = THREADS.map(|thread| graph.meet(&[thread], []));
                    let mut waiting = THREADS.to_vec();
                    waiting.retain(|&thread| waits[thread as usize / 32]);
                    graph.meet(&waiting, arrivals);
                }
            }
        }
        graph
    }

    fn node(&mut self, after: impl IntoIterator<Item = usize>) -> usize {
        let mut before = BTreeSet::new();
        for node in after {
            before.extend(self.before[node].iter().copied().chain([node]));
        }
        self.before.push(before);
        self.before.len() - 1
    }

    fn of_thread(&mut self, thread: u32) -> usize {
        let node = self.node(self.last[thread as usize]);
        self.last[thread as usize] = Some(node);
        node
    }

    /// Threads synchronise with each other and with `others`.
    fn meet(&mut self, threads: &[u32], others: impl IntoIterator<Item = usize>) -> usize {
        let last = self.last;
        let last = threads.iter().filter_map(|&thread| last[thread as usize]);
        let node = self.node(last.chain(others));
        for &thread in threads {
            self.last[thread as usize] = Some(node);
            self.last_sync[thread as usize] = Some(node);
        }
        node
    }

    fn ordered(&self, first: &Made, second: &Made) -> bool {
        let is_before = |then: usize, now: usize| self.before[now].contains(&then);
        if first.same.is_some() && first.same == second.same {
            return first
                .nodes
                .iter()
                .zip(&second.nodes)
                .all(|(&then, &now)| is_before(then, now));
        }
        second
            .nodes
            .iter()
            .all(|&now| first.nodes.iter().all(|&then| is_before(then, now)))
    }

    /// Order as to one byte: who comes after TMA's write of it comes after what that came after.
    fn ordered_at(&self, byte: usize, first: &Made, second: &Made) -> bool {
        let between = |it: &&Made| it.by.is_none() && it.write && it.bytes.start == byte;
        self.ordered(first, second)
            || self
                .accesses
                .iter()
                .filter(between)
                .any(|write| self.ordered(first, write) && self.ordered_at(byte, write, second))
    }

    /// Bytes read by TMA stores or written by TMA loads whose last writer has not fenced since, as
    /// far as the issuer knows.
    fn unfenced(&self) -> BTreeSet<usize> {
        let is_unfenced = |by_tma: &Made| {
            let byte = by_tma.bytes.start;
            let before = |write: &&Made| {
                write.write && write.bytes.start == byte && self.ordered_at(byte, write, by_tma)
            };
            let writes: Vec<&Made> = self.accesses.iter().filter(before).collect();
            let is_last = |write: &Made| {
                writes
                    .iter()
                    .all(|other| !self.ordered_at(byte, write, other))
            };
            let last = writes.iter().find(|write| is_last(write));
            let Some((write, writer)) = last.and_then(|write| Some((write, write.by?))) else {
                return false;
            };
            let is_fence = |&(thread, fence): &(u32, usize)| {
                thread == writer
                    && self.before[fence].contains(&write.nodes[0])
                    && self.before[by_tma.nodes[0]].contains(&fence)
            };
            !self.fences.iter().any(is_fence)
        };
        let by_tma = self.accesses.iter().filter(|made| made.by.is_none());
        by_tma
            .filter(|made| is_unfenced(made))
            .map(|made| made.op)
            .collect()
    }

    /// Unordered conflicting accesses, with the bytes that they share.
    fn conflicts(&self) -> Vec<((usize, usize), Vec<usize>)> {
        let mut conflicts = Vec::new();
        for (index, second) in self.accesses.iter().enumerate() {
            for first in &self.accesses[..index] {
                let (one, other) = (&first.bytes, &second.bytes);
                let bytes = one.start.max(other.start)..one.end.min(other.end);
                let is_open = |byte: &usize| {
                    !self.ordered_at(*byte, first, second) && !self.ordered_at(*byte, second, first)
                };
                let bytes: Vec<usize> = bytes.filter(is_open).collect();
                if !bytes.is_empty() && (first.write || second.write) {
                    conflicts.push(((first.op.min(second.op), first.op.max(second.op)), bytes));
                }
            }
        }
        conflicts
    }

    /// Reads that some byte's writes do not all precede.
    fn uninitialised_reads(&self) -> BTreeSet<usize> {
        let is_set = |read: &Made, byte: usize| {
            self.accesses.iter().any(|made| {
                made.write && made.bytes.contains(&byte) && self.ordered_at(byte, made, read)
            })
        };
        let reads = self.accesses.iter().filter(|made| !made.write);
        reads
            .filter(|read| read.bytes.clone().any(|byte| !is_set(read, byte)))
            .map(|read| read.op)
            .collect()
    }
}

fn found(outcome: &Outcome) -> Vec<((usize, usize), Vec<usize>)> {
    let conflicts = outcome
        .hazards
        .iter()
        .filter(|raw| raw.kind != HazardKind::MissingProxyFence)
        .filter_map(|raw| {
            let (first, second) = (raw.first.site as usize - 1, raw.second?.site as usize - 1);
            let bytes = raw.offset as usize..(raw.offset + raw.bytes) as usize;
            Some(((first.min(second), first.max(second)), bytes.collect()))
        });
    conflicts.collect()
}

/// The later ones of hazards of a kind.
fn ops_of(outcome: &Outcome, kind: HazardKind) -> BTreeSet<usize> {
    let found = outcome.hazards.iter().filter(|raw| raw.kind == kind);
    let site = found.map(|raw| raw.second.unwrap_or(raw.first).site);
    site.map(|site| site as usize - 1).collect()
}

fn bytes(conflicts: &[((usize, usize), Vec<usize>)]) -> BTreeSet<usize> {
    conflicts
        .iter()
        .flat_map(|(_, bytes)| bytes.iter().copied())
        .collect()
}

fn reordered(program: &[(usize, Op)], seed: u64) -> Vec<(usize, Op)> {
    let mut random = Random::new(seed);
    let mut rest: Vec<(usize, Op)> = program.to_vec();
    let mut result = Vec::new();
    while !rest.is_empty() {
        let is_ready = |index: &usize| {
            let mine = rest[*index].1.participants();
            let mut earlier = rest[..*index].iter().flat_map(|(_, op)| op.participants());
            !earlier.any(|thread| mine.contains(&thread))
        };
        let ready: Vec<usize> = (0..rest.len()).filter(is_ready).collect();
        result.push(rest.remove(ready[random.next() as usize % ready.len()]));
    }
    result
}

fn numbered(ops: Vec<Op>) -> Vec<(usize, Op)> {
    ops.into_iter().enumerate().collect()
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn a_byte_is_raced_for_exactly_if_no_path_orders_its_accesses(
        ops in prop::collection::vec(op(1), 1..40).prop_map(|ops| {
            ops.into_iter().filter(|op| !matches!(op, Op::Matrix { .. })).collect::<Vec<_>>()
        }),
        seed: u64,
    ) {
        let program = numbered(ops);
        let expected = Graph::new(&program).conflicts();
        let actual = found(&judge(&program));
        for (pair, _) in &actual {
            prop_assert!(expected.iter().any(|(other, _)| other == pair), "false alarm {:?} in {:?}", pair, program);
        }
        prop_assert_eq!(bytes(&actual), bytes(&expected), "{:?}", program);
        // And whatever order was run.
        let other = reordered(&program, seed);
        prop_assert_eq!(bytes(&found(&judge(&other))), bytes(&expected), "{:?}", other);
    }

    #[test]
    fn a_write_is_missing_its_fence_exactly_if_no_path_leads_over_one(
        ops in prop::collection::vec(op(1), 1..40).prop_map(|ops| {
            let is_simple = |op: &Op| !matches!(op, Op::Matrix { .. } | Op::By(_, Act::ArriveAfterCopies(_)));
            ops.into_iter().filter(is_simple).collect::<Vec<_>>()
        }),
        seed: u64,
    ) {
        let program = numbered(ops);
        let graph = Graph::new(&program);
        if graph.conflicts().is_empty() {
            for order in [program.clone(), reordered(&program, seed)] {
                let outcome = judge(&order);
                prop_assert_eq!(ops_of(&outcome, HazardKind::MissingProxyFence), graph.unfenced(), "{:?}", order);
            }
        }
    }

    #[test]
    fn wide_accesses_and_matrices_are_judged_as_the_graph_says(
        ops in prop::collection::vec(op(3), 1..40),
        seed: u64,
    ) {
        let program = numbered(ops);
        let graph = Graph::new(&program);
        let expected = graph.conflicts();
        for order in [program.clone(), reordered(&program, seed)] {
            let outcome = judge(&order);
            let actual = found(&outcome);
            for (pair, _) in &actual {
                prop_assert!(expected.iter().any(|(other, _)| other == pair), "false alarm {:?} \
                                                                               in {:?}", pair, order);
            }
            prop_assert_eq!(actual.is_empty(), expected.is_empty(), "{:?}", order);
            if expected.is_empty() {
                prop_assert_eq!(ops_of(&outcome, HazardKind::UninitialisedShared), graph.uninitialised_reads(), "{:?}", order);
            }
        }
    }
}

#[test]
fn a_lane_owns_its_elements_only_within_its_warp() {
    let store = |warp| Op::Matrix {
        warp,
        at: 0,
        write: true,
        same: true,
    };
    assert_eq!(found(&judge(&numbered(vec![store(0), store(0)]))), []);
    assert_eq!(
        found(&judge(&numbered(vec![store(0), store(1)]))),
        [((0, 1), vec![0, 1])]
    );
}

/// Who is told that thread 0's store has read a byte is not told that thread 0 has.
#[test]
fn an_agents_end_says_nothing_of_what_came_before_it() {
    let access = |write| Act::Access {
        at: 0,
        bytes: 1,
        write,
    };
    let program = numbered(vec![
        Op::By(0, access(false)),
        Op::By(0, Act::StoreRead(0)),
        Op::By(0, Act::StoreWait),
        Op::By(0, Act::ArriveAfterCopies(0)),
        Op::By(32, Act::Observe(0)),
        Op::By(32, access(true)),
    ]);
    assert_eq!(Graph::new(&program).conflicts(), [((0, 5), vec![0])]);
    assert_eq!(found(&judge(&program)), [((0, 5), vec![0])]);
}

#[test]
fn each_lane_of_a_warp_that_stored_a_matrix_must_have_fenced() {
    let is_unfenced = |lanes: u32| {
        let store = Op::Matrix {
            warp: 0,
            at: 0,
            write: true,
            same: false,
        };
        let fences = (0..lanes).map(|thread| Op::By(thread, Act::Fence));
        let mut program = vec![store];
        program.extend(fences);
        program.extend([Op::Barrier, Op::By(0, Act::StoreRead(0))]);
        let outcome = judge(&numbered(program));
        !ops_of(&outcome, HazardKind::MissingProxyFence).is_empty()
    };
    assert_eq!([0, 31, 32].map(is_unfenced), [true, true, false]);
}

#[test]
fn a_copy_holds_the_bytes_that_it_writes_and_reads_and_no_others() {
    let read = Act::Access {
        at: 0,
        bytes: 3,
        write: false,
    };
    let program = numbered(vec![Op::By(0, Act::Issue(1)), Op::By(32, read)]);
    assert_eq!(found(&judge(&program)), [((0, 1), vec![1])]);
    let mut known = Copies::default();
    known.start(1, 4);
    known.issue(copies::Copy::new(0, 1, 0..4, 8..12));
    let is_read = |place| known.reads(place, 2).is_some();
    assert_eq!([6, 7, 11, 12].map(is_read), [false, true, true, false]);
}

#[test]
fn what_is_known_stays_known() {
    let (mut clocks, mut signal) = (Clocks::default(), Signal::default());
    clocks.start(1, 1);
    let agent = clocks.agent();
    clocks.release_before_copies(0, &mut signal);
    for number in [2, 1] {
        clocks.complete(0, agent, number);
        clocks.wait_for_copies(0, number);
        clocks.release_copies(0, number + 1, &mut signal);
    }
    assert!(clocks.knows_agent(0, agent, 2) && clocks.knows_copy(0, 0, 2));
    clocks.acquire(0, &signal);
    assert!(clocks.knows_copy(0, 0, 3));
}

#[test]
fn random_programs_are_a_fair_test() {
    // Neither all racy nor all clean, or the tests above would show little.
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;
    let mut runner = TestRunner::deterministic();
    let programs = prop::collection::vec(op(3), 1..40);
    let racy = (0..500)
        .filter(|_| {
            let program = numbered(programs.new_tree(&mut runner).unwrap().current());
            !Graph::new(&program).conflicts().is_empty()
        })
        .count();
    assert!((100..=490).contains(&racy), "{racy} of 500");
}
