//! What stops a launch, in words that a kernel's author can act on.

use std::fmt;

use crate::cluster::Cluster;
use crate::extent::BlockIndex;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    pub file: String,
    pub line: u32,
}

impl fmt::Display for Place {
    /// Prints file name and folder: enough to find it, and the same on every machine.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self
            .file
            .rmatch_indices('/')
            .nth(1)
            .map_or(0, |(slash, _)| slash + 1);
        write!(f, "{}:{}", &self.file[start..], self.line)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Party {
    pub thread: u32,
    pub operation: String,
    pub place: Place,
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "thread {} called {} at {}",
            self.thread, self.operation, self.place
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub operation: String,
    pub place: Place,
    /// The linear indices in the block, ascending; those of the cluster's other blocks follow on.
    pub threads: Vec<u32>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Waits {
    pub waiting: Vec<Waiting>,
    pub exited: Vec<u32>,
    /// The threads of a block; those of the cluster's other blocks are numbered on.
    pub threads: u32,
}

impl Waits {
    /// Adds a thread's wait to those of the threads that wait at the same place for the same.
    pub(crate) fn add(&mut self, waiting: Waiting) {
        for known in &mut self.waiting {
            if known.place == waiting.place && known.operation == waiting.operation {
                known.threads.extend(waiting.threads);
                return;
            }
        }
        self.waiting.push(waiting);
    }
}

impl fmt::Display for Waits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, waiting) in self.waiting.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let waits = if is_plural(&waiting.threads, self.threads) {
                "wait"
            } else {
                "waits"
            };
            let who = name_threads(&waiting.threads, self.threads);
            write!(
                f,
                "{comma}{who} {waits} at {} ({})",
                waiting.place, waiting.operation
            )?;
        }
        if !self.exited.is_empty() {
            let have = if is_plural(&self.exited, self.threads) {
                "have"
            } else {
                "has"
            };
            write!(
                f,
                ", {} {have} exited",
                name_threads(&self.exited, self.threads)
            )?;
        }
        Ok(())
    }
}

fn is_plural(threads: &[u32], all: u32) -> bool {
    let (Some(first), Some(last)) = (threads.first(), threads.last()) else {
        return false;
    };
    let is_contiguous = threads.len() == 32 && *last == first + 31;
    let is_warp = is_contiguous && first.is_multiple_of(32);
    threads.len() > 1 && (!is_warp || all <= 32)
}

/// Names threads of a cluster, those behind the first block with the rank of theirs.
fn name_threads(threads: &[u32], all: u32) -> String {
    if threads.last().is_none_or(|&last| last < all) {
        return name_threads_of_block(threads, all);
    }
    let mut names = Vec::new();
    for members in threads.chunk_by(|a, b| a / all == b / all) {
        let local: Vec<u32> = members.iter().map(|thread| thread % all).collect();
        names.push(format!(
            "{} of the cluster's block {}",
            name_threads_of_block(&local, all),
            members[0] / all
        ));
    }
    names.join(" and ")
}

/// Names threads of a block: whole warps as warps, and the rest.
fn name_threads_of_block(threads: &[u32], all: u32) -> String {
    if threads.len() == all as usize {
        return match all {
            1 => "the only thread".to_owned(),
            _ => format!("all {all} threads"),
        };
    }
    let (mut warps, mut rest) = (Vec::new(), Vec::new());
    for &thread in threads {
        let warp = thread / 32;
        if !has_whole_warp(threads, warp, all) {
            rest.push(thread);
        } else if warps.last() != Some(&warp) {
            warps.push(warp);
        }
    }
    let mut parts = Vec::new();
    if !warps.is_empty() {
        parts.push(name_ranges("warp", &warps));
    }
    if !rest.is_empty() {
        parts.push(name_ranges("thread", &rest));
    }
    parts.join(" and ")
}

fn has_whole_warp(threads: &[u32], warp: u32, all: u32) -> bool {
    let lanes = (all - warp * 32).min(32);
    let mut members = warp * 32..warp * 32 + lanes;
    lanes > 1 && members.all(|thread| threads.binary_search(&thread).is_ok())
}

fn name_ranges(noun: &str, numbers: &[u32]) -> String {
    let mut ranges = Vec::new();
    for range in numbers.chunk_by(|number, next| number + 1 == *next) {
        let (first, last) = (range[0], range[range.len() - 1]);
        ranges.push(if first == last {
            first.to_string()
        } else {
            format!("{first}-{last}")
        });
    }
    let plural = if numbers.len() == 1 { "" } else { "s" };
    format!("{noun}{plural} {}", ranges.join(", "))
}

/// Returns a value behind a word, if there is one.
fn after(word: &str, value: &Option<impl fmt::Display>) -> String {
    let mut text = String::new();
    if let Some(shown) = value {
        text = format!("{word}{shown}");
    }
    text
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// No thread of the block can go on, for more than `__syncthreads` alone.
    #[error(
        "block {block:?} can't go on: {waits}. Every thread that a barrier or mask names must \
         reach it"
    )]
    Deadlock { block: BlockIndex, waits: Waits },
    /// A wait for an mbarrier's phase that nobody is left to end, or for variables that nobody
    /// changes.
    #[error("block {block:?} can't go on: {waits}. {rule}")]
    WaitNeverObserved {
        block: BlockIndex,
        waits: Waits,
        rule: String,
    },
    /// `__syncthreads` was not reached by all threads of the block, or not at one place.
    #[error(
        "divergent __syncthreads in block {block:?}: {waits}. All threads of a block must reach \
         the same one"
    )]
    DivergentBarrier { block: BlockIndex, waits: Waits },
    #[error("block {block:?}: {first}{}: {rule}", after(", but ", .second))]
    CollectiveMismatch {
        block: BlockIndex,
        /// The lane that arrived first, or the only one concerned.
        first: Box<Party>,
        second: Option<Box<Party>>,
        rule: String,
    },
    /// A warp-wide operation can't be carried out, such as a shuffle from a lane that takes no
    /// part.
    #[error("block {block:?}: {party}: {reason}")]
    InvalidCollective {
        block: BlockIndex,
        party: Box<Party>,
        reason: String,
    },
    #[error(
        "block {block:?} wrote to byte {offset} of shared memory, but the launch declared \
         {declared} bytes of it (found when the block had ended)"
    )]
    SharedOverflow {
        block: BlockIndex,
        declared: usize,
        offset: usize,
    },
    /// More shared memory than the largest supported GPU has.
    #[error(
        "the launch asks for {requested} bytes of dynamic shared memory; a block can have {limit}"
    )]
    SharedTooLarge { requested: usize, limit: usize },
    #[error("launch refused: {reason}")]
    BadLaunch { reason: String },
    /// The system gives the process no more memory or address space, which says nothing of the
    /// kernel.
    #[error("{what}: {error}")]
    NoMemory { what: String, error: String },
    /// What the judge remembers of a cluster exceeds the selection's limit.
    #[error("what the judge remembers of a block's accesses takes more than {limit} bytes")]
    Outgrown { limit: usize },
    /// `__trap()`, a failed `assert`, an undefined use of an intrinsic, or a division by zero.
    #[error("block {block:?}, thread {thread}: {message} at {place}")]
    Trap {
        block: BlockIndex,
        thread: u32,
        message: String,
        place: Place,
    },
    #[error(
        "block {block:?}, thread {thread}: {operand} is {value:#x}, not a multiple of {required} \
         bytes, at {place}"
    )]
    Misaligned {
        block: BlockIndex,
        thread: u32,
        operand: String,
        value: u64,
        required: u64,
        place: Place,
    },
    /// An access to unmapped memory, or to an element that an array does not have.
    #[error("block {block:?}, thread {thread}: {access}, at {place}")]
    OutOfBounds {
        block: BlockIndex,
        thread: u32,
        access: String,
        place: Place,
    },
    #[error("block {block:?}, thread {thread}: cp.async at {place}: {reason}")]
    AsyncCopy {
        block: BlockIndex,
        thread: u32,
        reason: String,
        place: Place,
    },
    #[error(
        "block {block:?}, thread {thread}: {operation} at {place}, mbarrier at byte {offset} of \
         shared memory: {reason}"
    )]
    Mbarrier {
        block: BlockIndex,
        thread: u32,
        operation: String,
        offset: usize,
        reason: String,
        place: Place,
    },
    #[error("block {block:?}{}: {operation} at {place}: {reason}", after(", thread ", .thread))]
    Tma {
        block: BlockIndex,
        /// The thread; none where all are concerned.
        thread: Option<u32>,
        operation: String,
        reason: String,
        place: Place,
    },
    /// A traced block made an impossible access; the hazards of the trace say which.
    #[error("block {block:?} was stopped at an access that can't be made")]
    Hazard { block: BlockIndex },
}

impl Fault {
    /// Translates the thread numbers of a cluster, `threads` per block, whose first block has the
    /// index `first_block`.
    pub(crate) fn localise(mut self, threads: u32, first_block: BlockIndex) -> Self {
        let localise = |thread: &mut u32| {
            let rank = *thread / threads;
            *thread %= threads;
            let [x, y, z] = first_block;
            [x + rank, y, z]
        };
        match &mut self {
            Self::CollectiveMismatch {
                block,
                first,
                second,
                ..
            } => {
                if let Some(party) = second {
                    localise(&mut party.thread);
                }
                *block = localise(&mut first.thread);
            }
            Self::InvalidCollective { block, party, .. } => *block = localise(&mut party.thread),
            Self::Trap { block, thread, .. }
            | Self::Misaligned { block, thread, .. }
            | Self::OutOfBounds { block, thread, .. }
            | Self::AsyncCopy { block, thread, .. }
            | Self::Tma {
                block,
                thread: Some(thread),
                ..
            } => *block = localise(thread),
            Self::Mbarrier {
                block,
                thread,
                offset,
                ..
            } => {
                *block = localise(thread);
                *offset = Cluster::within_block(*offset);
            }
            Self::DivergentBarrier { .. }
            | Self::Deadlock { .. }
            | Self::WaitNeverObserved { .. } => {} // `Waits` names blocks
            Self::Tma { .. } | Self::Hazard { .. } | Self::SharedOverflow { .. } => {}
            Self::SharedTooLarge { .. }
            | Self::BadLaunch { .. }
            | Self::NoMemory { .. }
            | Self::Outgrown { .. } => {}
        }
        self
    }

    /// Returns the block at fault; none if the launch was refused as a whole.
    pub fn block(&self) -> Option<BlockIndex> {
        match self {
            Self::Deadlock { block, .. }
            | Self::WaitNeverObserved { block, .. }
            | Self::DivergentBarrier { block, .. }
            | Self::CollectiveMismatch { block, .. }
            | Self::InvalidCollective { block, .. }
            | Self::SharedOverflow { block, .. }
            | Self::Trap { block, .. }
            | Self::Misaligned { block, .. }
            | Self::OutOfBounds { block, .. }
            | Self::AsyncCopy { block, .. }
            | Self::Mbarrier { block, .. }
            | Self::Tma { block, .. }
            | Self::Hazard { block } => Some(*block),
            Self::SharedTooLarge { .. }
            | Self::BadLaunch { .. }
            | Self::NoMemory { .. }
            | Self::Outgrown { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_show_the_folder_but_not_the_machine() {
        let shown = |file: &str| {
            let place = Place {
                file: file.to_owned(),
                line: 88,
            };
            place.to_string()
        };
        let whole = "/somewhere/stage1-cpasync/kernel.cu";
        assert_eq!(shown(whole), "stage1-cpasync/kernel.cu:88");
        assert_eq!(shown("kernel.cu"), "kernel.cu:88");
    }

    #[test]
    fn whole_warps_are_named_as_warps() {
        let name = |threads: std::ops::Range<u32>, all| name_threads(&Vec::from_iter(threads), all);
        assert_eq!(name(32..128, 128), "warps 1-3");
        assert_eq!(name(0..128, 128), "all 128 threads");
        assert_eq!(name_threads(&[0, 5, 6, 7], 128), "threads 0, 5-7");
        assert_eq!(name(31..64, 128), "warp 1 and thread 31");
        assert_eq!(name(32..40, 40), "warp 1", "the last warp may be short");
    }
}
