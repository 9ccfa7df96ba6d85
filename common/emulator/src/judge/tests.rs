//! The judge against brute force: random small programs, whose accesses are ordered if an explicit
//! graph has a path from one to the other.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use crate::cluster::Cluster;
use crate::schedule::Random;

use super::clocks::{Agent, Clocks, FenceRule, Signal};
use super::copies::{self, Copies};
use super::hazard::HazardKind;
use super::memory::Memory;
use super::operand_rule::OperandRule;
use super::order::How;
use super::requests::MatrixCount;
use super::{Fork, Judge, Matrix, Outcome, Setup, StrongOrder};

/// Lanes 0 to 2 of two warps.
const THREADS: [u32; 6] = [0, 1, 2, 32, 33, 34];
const BYTES: usize = 4;
const BASE: usize = 0x1000_0000;
const CASES: u32 = 4000;
/// The threads of whole warps: a named barrier takes no less.
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

/// An act of one thread: with a signal, with one byte, or with none.
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
    /// The thread waits for all groups but the newest.
    Wait(usize),
    /// TMA brings a byte; all such are one agent's.
    Fetch(usize),
    /// The thread learns that all boxes requested so far are there.
    Told,
    StoreRead(usize),
    StoreWait,
    /// The thread fences for the async proxy.
    Fence,
    /// A strong operation.
    Strong {
        at: usize,
        how: How,
    },
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

fn by_thread(threads: &[u32], acts: impl Strategy<Value = Act>) -> impl Strategy<Value = Op> {
    let any_thread = prop::sample::select(threads.to_vec());
    (any_thread, acts).prop_map(|(thread, act)| Op::By(thread, act))
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
    let at = |act: fn(usize) -> Act| by_thread(&COPIERS, (0..BYTES).prop_map(act));
    let signal = |threads, act: fn(usize) -> Act| by_thread(threads, (0..2usize).prop_map(act));
    prop_oneof![
        8 => by_thread(&THREADS, access),
        4 => matrix,
        4 => (0..2u32, 1..8u32).prop_map(|(warp, mask)| Op::SyncWarp { warp, mask }),
        3 => Just(Op::Barrier),
        3 => at(Act::Issue),
        3 => by_thread(&COPIERS, Just(Act::Commit)),
        3 => by_thread(&COPIERS, (0..2usize).prop_map(Act::Wait)),
        1 => any::<[bool; 2]>().prop_map(|waits| Op::Named { waits }),
        2 => signal(&THREADS, Act::Arrive),
        3 => signal(&COPIERS, Act::ArriveAfterCopies),
        3 => signal(&THREADS, Act::Observe),
        3 => at(Act::Fetch),
        3 => by_thread(&THREADS, Just(Act::Told)),
        2 => at(Act::StoreRead),
        2 => by_thread(&COPIERS, Just(Act::StoreWait)),
        3 => by_thread(&THREADS, Just(Act::Fence)),
    ]
}

/// A strong operation on a byte, without an order of its own.
fn strong_op() -> impl Strategy<Value = Op> {
    let kinds = prop::sample::select(vec![How::StrongRead, How::StrongWrite, How::Atomic]);
    by_thread(
        &THREADS,
        (0..BYTES, kinds).prop_map(|(at, how)| Act::Strong { at, how }),
    )
}

#[derive(Clone, Default)]
struct Groups<T> {
    copies: Vec<T>,
    /// The copies issued when each group was closed that is not yet waited for.
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

/// A signal, and the threads whose copies arrive at it with how many each had issued.
type Arrivals = (Signal, Vec<(u32, usize)>);

/// The judge, and what the threads of a program have asked of it so far.
struct Run {
    judge: Judge,
    groups: Vec<Groups<u32>>,
    landed: BTreeSet<u32>,
    signals: [Arrivals; 2],
    fetcher: Agent,
    fetched: u32,
    /// The agent of each thread's stores.
    storers: [Option<Storer>; ALL],
}

/// An agent that stores, and the number of stores that it has issued.
#[derive(Clone, Copy)]
struct Storer {
    agent: Agent,
    issued: u32,
}

fn fork(agent: Agent, clock: u32, first: u32, site: u32) -> Fork {
    Fork {
        agent,
        clock,
        first,
        count: 1,
        site,
    }
}

impl Run {
    fn new(fence_rule: FenceRule) -> Self {
        let mut judge = Judge::default();
        judge.start(Setup {
            memory: Arc::new(Memory::default()),
            block: [0; 3],
            cluster: Cluster::of_one_block(ALL as u32, BASE..BASE + BYTES),
            harmless: [0..0, 0..0],
            program: 0..0,
            watch: None,
            fence_rule,
            operand_rule: OperandRule::default(),
            deeds: vec![],
            asked_byte: None,
            between: Default::default(),
            cluster_number: 0,
            history: None,
            ends_at_hazard: false,
        });
        let fetcher = judge.agent();
        Self {
            judge,
            groups: vec![Groups::default(); ALL],
            landed: BTreeSet::new(),
            signals: Default::default(),
            fetcher,
            fetched: 0,
            storers: [None; ALL],
        }
    }

    fn op(&mut self, op: &Op, site: u32) {
        match *op {
            Op::By(thread, act) => self.act(thread, act, site),
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
                self.judge.matrix(&matrix).unwrap();
            }
            Op::SyncWarp { warp, mask } => self.judge.warp_barrier(warp, mask),
            Op::Barrier => self.judge.barrier(0, site),
            Op::Named { waits } => {
                let mut signal = Signal::default();
                for warp in 0..2 {
                    self.judge.arrive_at_named(warp, &mut signal);
                }
                for warp in (0..2).filter(|&warp| waits[warp as usize]) {
                    self.judge.leave_named(warp, &signal);
                }
            }
        }
    }

    fn act(&mut self, thread: u32, act: Act, site: u32) {
        let own = &mut self.groups[thread as usize];
        let judge = &mut self.judge;
        match act {
            Act::Access { at, bytes, write } => judge
                .access(thread, BASE + at, bytes, write, false, site)
                .unwrap(),
            Act::Arrive(number) => judge.arrive(thread, &mut self.signals[number].0),
            Act::ArriveAfterCopies(number) => {
                let (signal, copies) = &mut self.signals[number];
                judge.arrive_after_copies(thread, site, signal);
                copies.push((thread, own.copies.len()));
            }
            Act::Observe(number) => self.observe(thread, number),
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
                for &tag in covered.into_iter().flatten() {
                    if self.landed.insert(tag) {
                        judge.landed(tag);
                    }
                }
                let count = covered.map(|tags| tags.len() as u64);
                judge.waited(thread, newest as u32, count, site);
            }
            Act::Fetch(at) => {
                self.fetched += 1;
                let fetch = fork(self.fetcher, self.fetched, thread, site);
                judge.fork_shared(&fetch, How::TmaWrite, at..at + 1);
            }
            Act::Told => judge.complete(thread, self.fetcher, self.fetched),
            Act::StoreRead(at) => {
                let storer = self.storers[thread as usize].get_or_insert_with(|| Storer {
                    agent: judge.agent(),
                    issued: 0,
                });
                storer.issued += 1;
                let store = fork(storer.agent, storer.issued, thread, site);
                judge.fork_shared(&store, How::StoreRead, at..at + 1);
            }
            Act::StoreWait => {
                if let Some(storer) = self.storers[thread as usize] {
                    judge.complete(thread, storer.agent, storer.issued);
                }
            }
            Act::Fence => judge.fence_proxy(thread),
            Act::Strong { at, how } => {
                let answer = judge.strong(thread, BASE + at, 1, how, StrongOrder::RELAXED, site);
                assert_eq!(answer, Ok(()));
            }
        }
    }

    fn observe(&mut self, thread: u32, number: usize) {
        let (signal, copies) = &mut self.signals[number];
        for (copier, issued) in copies.drain(..) {
            for &tag in &self.groups[copier as usize].copies[..issued] {
                if self.landed.insert(tag) {
                    self.judge.landed(tag);
                }
            }
            self.judge.release_copies(copier, issued as u64, signal);
        }
        self.judge.observe(thread, signal);
    }
}

fn judge(program: &[(usize, Op)]) -> Outcome {
    judge_by(FenceRule::Writer, program)
}

fn judge_by(rule: FenceRule, program: &[(usize, Op)]) -> Outcome {
    let mut run = Run::new(rule);
    for (index, op) in program {
        run.op(op, *index as u32 + 1);
    }
    run.judge.finish(0)
}

/// An access of a program, as the graph has it.
struct GraphAccess {
    op: usize,
    bytes: Range<usize>,
    write: bool,
    nodes: Vec<usize>,
    /// The warp and place of accesses that give each lane the same bytes.
    same: Option<(u32, usize)>,
    /// The thread that makes it; none where TMA does.
    thread: Option<u32>,
    strong: bool,
}

#[derive(Default)]
struct Graph {
    accesses: Vec<GraphAccess>,
    before: Vec<BTreeSet<usize>>,
    fences: Vec<(u32, usize)>,
    /// The last node of each thread.
    last: Vec<Option<usize>>,
    /// The last node at which each thread took part in synchronisation.
    last_sync: Vec<Option<usize>>,
    groups: Vec<Groups<usize>>,
    arrivals: [Vec<usize>; 2],
    fetches: Vec<usize>,
    stores: Vec<Vec<usize>>,
    /// The operations that each thread was told to be done.
    told: Vec<Vec<usize>>,
    /// The operations that threads left of that at each signal that their copies arrive at.
    told_at: [Vec<usize>; 2],
}

impl Graph {
    fn new(program: &[(usize, Op)]) -> Self {
        let mut graph = Self {
            last: vec![None; ALL],
            last_sync: vec![None; ALL],
            groups: vec![Groups::default(); ALL],
            stores: vec![Vec::new(); ALL],
            told: vec![Vec::new(); ALL],
            ..Self::default()
        };
        for (index, op) in program {
            graph.add(*index, op);
        }
        graph
    }

    fn add(&mut self, index: usize, op: &Op) {
        match *op {
            Op::By(thread, act) => self.add_act(index, thread, act),
            Op::Matrix {
                warp,
                at,
                write,
                same,
            } => {
                let mut nodes = Vec::new();
                for thread in lanes(warp, 7) {
                    nodes.push(self.of_thread(thread));
                }
                self.accesses.push(GraphAccess {
                    op: index,
                    bytes: at..at + 2,
                    write,
                    nodes,
                    same: same.then_some((warp, at)),
                    thread: Some(warp * 32),
                    strong: false,
                });
            }
            Op::SyncWarp { .. } | Op::Barrier => {
                self.meet(&op.participants(), []);
            }
            Op::Named { waits } => {
                let arrivals = THREADS.map(|thread| self.meet(&[thread], []));
                let mut waiting = THREADS.to_vec();
                waiting.retain(|&thread| waits[thread as usize / 32]);
                self.meet(&waiting, arrivals);
            }
        }
    }

    fn add_act(&mut self, index: usize, thread: u32, act: Act) {
        let own = thread as usize;
        match act {
            Act::Access { at, bytes, write } => {
                let node = self.of_thread(thread);
                self.add_access(index, at..at + bytes, write, node, Some(thread));
            }
            Act::Arrive(signal) => {
                let node = self.meet(&[thread], []);
                self.arrivals[signal].push(node);
            }
            Act::ArriveAfterCopies(signal) => {
                self.arrivals[signal].extend(&self.groups[own].copies);
                self.arrivals[signal].extend(self.last_sync[own]);
                self.told_at[signal].extend(&self.told[own]);
            }
            Act::Observe(signal) => {
                let node = self.meet(&[thread], self.arrivals[signal].clone());
                self.before[node].extend(&self.told_at[signal]);
            }
            Act::Issue(at) => {
                let issue = self.of_thread(thread);
                // The copy takes place at some time after it.
                let copy = self.node([issue]);
                self.groups[own].copies.push(copy);
                self.add_access(index, at..at + 1, true, copy, Some(thread));
            }
            Act::Fetch(at) => {
                let issue = self.of_thread(thread);
                let done = self.node([issue]);
                self.fetches.push(done);
                self.add_access(index, at..at + 1, true, done, None);
            }
            Act::StoreRead(at) => {
                let issue = self.of_thread(thread);
                let done = self.node([issue]);
                self.stores[own].push(done);
                self.add_access(index, at..at + 1, false, done, None);
            }
            Act::Told => self.tell(thread, &self.fetches.clone()),
            Act::StoreWait => self.tell(thread, &self.stores[own].clone()),
            Act::Fence => {
                let node = self.of_thread(thread);
                self.fences.push((thread, node));
            }
            Act::Strong { at, how } => {
                let node = self.of_thread(thread);
                self.add_access(index, at..at + 1, how.is_write(), node, Some(thread));
                self.accesses.last_mut().expect("it was added").strong = true;
            }
            Act::Commit => self.groups[own].commit(),
            Act::Wait(newest) => {
                let covered = self.groups[own].wait(newest).map(<[usize]>::to_vec);
                if let Some(copies) = covered {
                    self.meet(&[thread], copies);
                }
            }
        }
    }

    fn add_access(
        &mut self,
        op: usize,
        bytes: Range<usize>,
        write: bool,
        node: usize,
        thread: Option<u32>,
    ) {
        self.accesses.push(GraphAccess {
            op,
            bytes,
            write,
            nodes: vec![node],
            same: None,
            thread,
            strong: false,
        });
    }

    /// Tells a thread that operations are done, and nothing of what came before them.
    fn tell(&mut self, thread: u32, done: &[usize]) {
        let node = self.of_thread(thread);
        self.before[node].extend(done);
        self.told[thread as usize].extend(done);
    }

    fn node(&mut self, after: impl IntoIterator<Item = usize>) -> usize {
        let mut before = BTreeSet::new();
        for node in after {
            before.extend(&self.before[node]);
            before.insert(node);
        }
        self.before.push(before);
        self.before.len() - 1
    }

    fn of_thread(&mut self, thread: u32) -> usize {
        let node = self.node(self.last[thread as usize]);
        self.last[thread as usize] = Some(node);
        node
    }

    /// Makes threads synchronise with each other and with `others`.
    fn meet(&mut self, threads: &[u32], others: impl IntoIterator<Item = usize>) -> usize {
        let mut after: Vec<usize> = others.into_iter().collect();
        for &thread in threads {
            after.extend(self.last[thread as usize]);
        }
        let node = self.node(after);
        for &thread in threads {
            self.last[thread as usize] = Some(node);
            self.last_sync[thread as usize] = Some(node);
        }
        node
    }

    fn ordered(&self, first: &GraphAccess, second: &GraphAccess) -> bool {
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

    /// Returns the order as to one byte: who comes after TMA's write of it comes after what that
    /// came after.
    fn ordered_at(&self, byte: usize, first: &GraphAccess, second: &GraphAccess) -> bool {
        if self.ordered(first, second) {
            return true;
        }
        self.accesses.iter().any(|between| {
            between.thread.is_none()
                && between.write
                && between.bytes.start == byte
                && self.ordered(first, between)
                && self.ordered_at(byte, between, second)
        })
    }

    /// Returns the bytes read by TMA stores or written by TMA loads of which no fence covers the
    /// last write, as far as the issuer knows.
    fn unfenced(&self, rule: FenceRule) -> BTreeSet<usize> {
        let mut ops = BTreeSet::new();
        for access in &self.accesses {
            if access.thread.is_none() && self.is_unfenced(access, rule) {
                ops.insert(access.op);
            }
        }
        ops
    }

    fn is_unfenced(&self, by_tma: &GraphAccess, rule: FenceRule) -> bool {
        let byte = by_tma.bytes.start;
        let writes: Vec<&GraphAccess> = self
            .accesses
            .iter()
            .filter(|access| access.write && access.bytes.start == byte)
            .filter(|access| self.ordered_at(byte, access, by_tma))
            .collect();
        let last = writes.iter().find(|write| {
            writes
                .iter()
                .all(|other| !self.ordered_at(byte, write, other))
        });
        let Some((write, writer)) = last.and_then(|write| Some((write, write.thread?))) else {
            return false;
        };
        !self.fences.iter().any(|&(thread, fence)| {
            let counts = match rule {
                FenceRule::Writer => thread == writer,
                FenceRule::Path => true,
            };
            counts
                && self.before[fence].contains(&write.nodes[0])
                && self.before[by_tma.nodes[0]].contains(&fence)
        })
    }

    /// Returns the unordered conflicting accesses, with the bytes that they share.
    fn conflicts(&self) -> Vec<Conflict> {
        let mut conflicts = Vec::new();
        for (index, second) in self.accesses.iter().enumerate() {
            for first in &self.accesses[..index] {
                let bytes = self.open_bytes(first, second);
                let are_strong = first.strong && second.strong;
                if !bytes.is_empty() && (first.write || second.write) && !are_strong {
                    let pair = (first.op.min(second.op), first.op.max(second.op));
                    conflicts.push((pair, bytes));
                }
            }
        }
        conflicts
    }

    /// Returns the bytes that two accesses share and for which they are not ordered.
    fn open_bytes(&self, first: &GraphAccess, second: &GraphAccess) -> Vec<usize> {
        let start = first.bytes.start.max(second.bytes.start);
        let end = first.bytes.end.min(second.bytes.end);
        (start..end)
            .filter(|&byte| !self.ordered_at(byte, first, second))
            .filter(|&byte| !self.ordered_at(byte, second, first))
            .collect()
    }

    /// Returns the reads that some byte's writes do not all precede.
    fn uninitialised_reads(&self) -> BTreeSet<usize> {
        let mut reads = BTreeSet::new();
        for read in self.accesses.iter().filter(|access| !access.write) {
            if read.bytes.clone().any(|byte| !self.is_set(byte, read)) {
                reads.insert(read.op);
            }
        }
        reads
    }

    fn is_set(&self, byte: usize, read: &GraphAccess) -> bool {
        self.accesses.iter().any(|access| {
            access.write && access.bytes.contains(&byte) && self.ordered_at(byte, access, read)
        })
    }
}

/// Two operations, and the bytes for which they conflict.
type Conflict = ((usize, usize), Vec<usize>);

/// Returns the conflicts that the judge has reported.
fn reported(outcome: &Outcome) -> Vec<Conflict> {
    let mut conflicts = Vec::new();
    for raw in outcome.hazards.iter() {
        let Some(later) = raw.second else {
            continue;
        };
        if raw.kind != HazardKind::MissingProxyFence {
            let (first, second) = (raw.first.site as usize - 1, later.site as usize - 1);
            let bytes = raw.offset as usize..(raw.offset + raw.bytes) as usize;
            let pair = (first.min(second), first.max(second));
            conflicts.push((pair, bytes.collect()));
        }
    }
    conflicts
}

/// Returns the later operations of hazards of a kind.
fn ops_of(outcome: &Outcome, kind: HazardKind) -> BTreeSet<usize> {
    let hazards = outcome.hazards.iter().filter(|raw| raw.kind == kind);
    hazards
        .map(|raw| raw.second.unwrap_or(raw.first).site as usize - 1)
        .collect()
}

fn bytes(conflicts: &[Conflict]) -> BTreeSet<usize> {
    conflicts
        .iter()
        .flat_map(|(_, bytes)| bytes.iter().copied())
        .collect()
}

/// Returns a program in another order that each thread, signal and agent sees as the same one.
fn reordered(program: &[(usize, Op)], seed: u64) -> Vec<(usize, Op)> {
    let mut random = Random::new(seed);
    let mut rest: Vec<(usize, Op)> = program.to_vec();
    let mut result = Vec::new();
    while !rest.is_empty() {
        let ready: Vec<usize> = (0..rest.len())
            .filter(|&index| is_ready(&rest, index))
            .collect();
        result.push(rest.remove(ready[random.next() as usize % ready.len()]));
    }
    result
}

fn is_ready(rest: &[(usize, Op)], index: usize) -> bool {
    let participants = rest[index].1.participants();
    let mut earlier = rest[..index].iter().flat_map(|(_, op)| op.participants());
    !earlier.any(|thread| participants.contains(&thread))
}

fn numbered(ops: Vec<Op>) -> Vec<(usize, Op)> {
    ops.into_iter().enumerate().collect()
}

/// Returns the configuration of the random tests. Their seed is that of the day: each day brings
/// other programs, and what passes once passes again on that day.
fn config() -> ProptestConfig {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH);
    let day = since_epoch.map_or(0, |time| time.as_secs() / (24 * 60 * 60));
    ProptestConfig {
        failure_persistence: None,
        rng_seed: RngSeed::Fixed(day),
        ..ProptestConfig::with_cases(CASES)
    }
}

/// Checks that each conflict that the judge reports is one of the graph's.
fn assert_no_false_alarm(
    reported: &[Conflict],
    expected: &[Conflict],
    program: &[(usize, Op)],
) -> Result<(), TestCaseError> {
    for (pair, _) in reported {
        let is_expected = expected.iter().any(|(other, _)| other == pair);
        prop_assert!(is_expected, "false alarm {:?} in {:?}", pair, program);
    }
    Ok(())
}

/// Checks that the judge reports the bytes of the graph's conflicts, whatever order was run.
fn assert_raced_as_the_graph_says(ops: Vec<Op>, seed: u64) -> Result<(), TestCaseError> {
    let program = numbered(ops);
    let expected = Graph::new(&program).conflicts();
    for order in [program.clone(), reordered(&program, seed)] {
        let actual = reported(&judge(&order));
        assert_no_false_alarm(&actual, &expected, &order)?;
        prop_assert_eq!(bytes(&actual), bytes(&expected), "{:?}", order);
    }
    Ok(())
}

/// Checks that, in a program without a race, a fence is missing where the graph lacks one.
fn assert_unfenced_as_the_graph_says(
    rule: FenceRule,
    ops: Vec<Op>,
    seed: u64,
) -> Result<(), TestCaseError> {
    let program = numbered(ops);
    let graph = Graph::new(&program);
    if graph.conflicts().is_empty() {
        for order in [program.clone(), reordered(&program, seed)] {
            let outcome = judge_by(rule, &order);
            let unfenced = ops_of(&outcome, HazardKind::MissingProxyFence);
            prop_assert_eq!(unfenced, graph.unfenced(rule), "{:?}", order);
        }
    }
    Ok(())
}

fn is_matrix(op: &Op) -> bool {
    matches!(op, Op::Matrix { .. })
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn a_byte_is_raced_for_exactly_if_no_path_orders_its_accesses(
        ops in prop::collection::vec(op(1), 1..40).prop_map(|mut ops| {
            ops.retain(|op| !is_matrix(op));
            ops
        }),
        seed: u64,
    ) {
        assert_raced_as_the_graph_says(ops, seed)?;
    }

    #[test]
    fn a_strong_operation_is_raced_for_by_weak_accesses_alone(
        ops in prop::collection::vec(prop_oneof![3 => op(1), 2 => strong_op()], 1..40)
            .prop_map(|mut ops| {
                ops.retain(|op| !is_matrix(op));
                ops
            }),
        seed: u64,
    ) {
        assert_raced_as_the_graph_says(ops, seed)?;
    }

    #[test]
    fn a_write_is_missing_its_fence_exactly_if_no_path_leads_over_its_writers(
        ops in prop::collection::vec(op(1), 1..40).prop_map(|mut ops| {
            ops.retain(|op| !is_matrix(op));
            ops
        }),
        seed: u64,
    ) {
        assert_unfenced_as_the_graph_says(FenceRule::Writer, ops, seed)?;
    }

    #[test]
    fn by_paths_a_write_is_missing_a_fence_exactly_if_no_thread_fences_on_the_way(
        ops in prop::collection::vec(op(1), 1..40).prop_map(|mut ops| {
            ops.retain(|op| !is_matrix(op));
            ops
        }),
        seed: u64,
    ) {
        assert_unfenced_as_the_graph_says(FenceRule::Path, ops, seed)?;
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
            let actual = reported(&outcome);
            assert_no_false_alarm(&actual, &expected, &order)?;
            prop_assert_eq!(actual.is_empty(), expected.is_empty(), "{:?}", order);
            if expected.is_empty() {
                let reads = ops_of(&outcome, HazardKind::UninitialisedShared);
                prop_assert_eq!(reads, graph.uninitialised_reads(), "{:?}", order);
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
    assert_eq!(reported(&judge(&numbered(vec![store(0), store(0)]))), []);
    assert_eq!(
        reported(&judge(&numbered(vec![store(0), store(1)]))),
        [((0, 1), vec![0, 1])]
    );
}

// A thread that is told that thread 0's store has read a byte is not told that thread 0 has.
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
    assert_eq!(reported(&judge(&program)), [((0, 5), vec![0])]);
}

// A thread that fences before it knows that its copy has landed fences nothing of it, even if
// somebody else has seen it land.
#[test]
fn a_fence_covers_the_copies_that_its_thread_knows_to_have_landed() {
    for rule in [FenceRule::Writer, FenceRule::Path] {
        for (fences_first, unfenced) in [(true, BTreeSet::from([5])), (false, BTreeSet::new())] {
            let (observe, fence) = (Op::By(32, Act::Observe(0)), Op::By(32, Act::Fence));
            let [fourth, fifth] = if fences_first {
                [fence, observe]
            } else {
                [observe, fence]
            };
            let program = numbered(vec![
                Op::By(32, Act::Issue(1)),
                Op::By(32, Act::ArriveAfterCopies(0)),
                Op::By(0, Act::Observe(0)),
                fourth,
                fifth,
                Op::By(32, Act::StoreRead(1)),
            ]);
            let missing = ops_of(&judge_by(rule, &program), HazardKind::MissingProxyFence);
            assert_eq!(missing, unfenced, "{rule:?}, fence first: {fences_first}");
        }
    }
}

/// Returns the operations that lack a fence, by either rule.
fn unfenced_by_both_rules(ops: Vec<Op>) -> [BTreeSet<usize>; 2] {
    let program = numbered(ops);
    [FenceRule::Writer, FenceRule::Path]
        .map(|rule| ops_of(&judge_by(rule, &program), HazardKind::MissingProxyFence))
}

// Copies arrive on their own at some time: that tells nobody of a fence that their thread makes
// meanwhile.
#[test]
fn an_arrival_of_copies_tells_nothing_of_a_fence_after_the_last_synchronisation() {
    let store = Act::Access {
        at: 0,
        bytes: 1,
        write: true,
    };
    let unfenced = unfenced_by_both_rules(vec![
        Op::By(0, store),
        Op::By(0, Act::Arrive(1)),
        Op::By(0, Act::Fence),
        Op::By(0, Act::ArriveAfterCopies(0)),
        Op::By(32, Act::Observe(0)),
        Op::By(32, Act::StoreRead(0)),
    ]);
    assert_eq!(unfenced, [BTreeSet::from([5]), BTreeSet::from([5])]);
}

#[test]
fn an_arrival_of_copies_tells_nothing_of_a_fence_behind_earlier_copies() {
    let unfenced = unfenced_by_both_rules(vec![
        Op::By(32, Act::Issue(0)),
        Op::By(32, Act::ArriveAfterCopies(0)),
        Op::By(32, Act::Observe(0)),
        Op::By(32, Act::Fence),
        Op::By(32, Act::ArriveAfterCopies(1)),
        Op::By(0, Act::Observe(1)),
        Op::By(0, Act::StoreRead(0)),
    ]);
    assert_eq!(unfenced, [BTreeSet::from([6]), BTreeSet::from([6])]);
}

#[test]
fn a_fence_is_known_to_its_own_thread_at_once_and_to_others_by_an_arrival() {
    let store = Act::Access {
        at: 0,
        bytes: 1,
        write: true,
    };
    let at_once = vec![
        Op::By(0, store),
        Op::By(0, Act::Fence),
        Op::By(0, Act::StoreRead(0)),
    ];
    let by_an_arrival = vec![
        Op::By(0, store),
        Op::By(0, Act::Fence),
        Op::By(0, Act::Arrive(0)),
        Op::By(32, Act::Observe(0)),
        Op::By(32, Act::StoreRead(0)),
    ];
    for ops in [at_once, by_an_arrival] {
        assert_eq!(unfenced_by_both_rules(ops), [const { BTreeSet::new() }; 2]);
    }
}

#[test]
fn each_lane_of_a_warp_that_stored_a_matrix_must_have_fenced() {
    for (fencing_lanes, is_hazard) in [(0, true), (31, true), (32, false)] {
        let store = Op::Matrix {
            warp: 0,
            at: 0,
            write: true,
            same: false,
        };
        let mut program = vec![store];
        for thread in 0..fencing_lanes {
            program.push(Op::By(thread, Act::Fence));
        }
        program.extend([Op::Barrier, Op::By(0, Act::StoreRead(0))]);
        let outcome = judge(&numbered(program));
        let hazards = ops_of(&outcome, HazardKind::MissingProxyFence);
        assert_eq!(!hazards.is_empty(), is_hazard, "{fencing_lanes} lanes");
    }
}

#[test]
fn a_copy_holds_the_bytes_that_it_writes_and_reads_and_no_others() {
    let read = Act::Access {
        at: 0,
        bytes: 3,
        write: false,
    };
    let program = numbered(vec![Op::By(0, Act::Issue(1)), Op::By(32, read)]);
    assert_eq!(reported(&judge(&program)), [((0, 1), vec![1])]);
    let mut known = Copies::default();
    known.start(1, 4);
    known.issue(copies::Copy::new(0, 1, 0..4, 8..12));
    let is_read = [6, 7, 11, 12].map(|place| known.reads(place, 2).is_some());
    assert_eq!(is_read, [false, true, true, false]);
}

#[test]
fn what_is_known_stays_known() {
    let (mut clocks, mut signal) = (Clocks::default(), Signal::default());
    clocks.start(1, 1, FenceRule::Writer);
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
