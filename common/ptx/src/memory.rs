//! The host memory that a judgement takes at most, said before it begins.

use std::fmt;

use emulator::Launch;
use emulator::footprint::{Footprint, Traced};

use crate::case::{ALIGNMENT, Buffer, Case, SCHEDULES};
use crate::execute::bytes_of_thread;
use crate::program::Program;

/// The code of this program that is read when it first runs, and what the allocator keeps.
const PROGRAM_BYTES: u64 = 12 << 20;

/// The bytes of an order that is explored: its delays, and where it has ended.
const ORDER_BYTES: u64 = 64;

/// The means of a judgement, beside the launch and its kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Means {
    /// The number of OS threads that run blocks.
    pub workers: usize,
    /// The most orders that are explored.
    pub orders: usize,
}

/// The bytes of host memory that a judgement takes at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The blocks of the grid.
    pub blocks: u64,
    /// The blocks that run at once.
    pub at_once: u64,
    /// The buffers of a launch, and copies of outputs that are compared.
    pub buffers: u64,
    /// The parts that a traced launch takes beside them.
    pub footprint: Footprint,
    /// The bytes of the program itself, and of the orders that are explored.
    pub rest: u64,
}

/// A part of a bound that is larger than all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Largest {
    Buffers,
    /// Shadow memory of outputs.
    Outputs,
    /// Stacks, clocks and shared memory of the blocks that run at once.
    BlocksAtOnce,
    /// The memory of accesses.
    History,
    /// The records of each block.
    Blocks,
}

impl Largest {
    /// Says what makes it smaller.
    pub fn remedy(self) -> &'static str {
        match self {
            Self::Buffers => "make the buffers smaller",
            Self::Outputs => {
                "make the outputs smaller, and leave `output` away where nothing is stored"
            }
            Self::BlocksAtOnce => "take fewer threads in a block, or less shared memory",
            Self::History => "take fewer threads in a block",
            Self::Blocks => "take fewer blocks in `grid`",
        }
    }
}

impl Bound {
    /// Returns the sum of all parts.
    pub fn bytes(&self) -> u64 {
        let parts = [self.buffers, self.footprint.bytes(), self.rest];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Returns the part that a smaller launch should make smaller first.
    pub fn largest(&self) -> Largest {
        let footprint = &self.footprint;
        let at_once = footprint.threads.saturating_add(footprint.shared);
        let parts = [
            (self.buffers, Largest::Buffers),
            (footprint.outputs, Largest::Outputs),
            (at_once, Largest::BlocksAtOnce),
            (footprint.history, Largest::History),
            (footprint.rest, Largest::Blocks),
        ];
        let largest = parts.into_iter().max_by_key(|(bytes, _)| *bytes);
        largest.map_or(Largest::Buffers, |(_, part)| part)
    }
}

impl Case {
    /// Returns the bytes that a judgement of this case takes at most. What is remembered of accesses
    /// is held to that where the case has a limit for it.
    pub fn bound(&self, program: &Program, means: &Means) -> Bound {
        let plain = self.launch(SCHEDULES[0]);
        let statics = program.static_shared_bytes() as usize;
        let launch = Launch {
            dynamic_shared_bytes: statics.saturating_add(self.dynamic_shared_bytes),
            ..plain
        };
        let outputs = self.sum(|buffer| buffer.is_output);
        let traced = Traced {
            allocated: self
                .sum(|_| true)
                .saturating_add(program.globals.len() as u64),
            outputs: outputs.saturating_add(program.globals.len() as u64),
            allocations: self.buffers.len() as u64 + 1,
            places: program.steps.len() as u64,
            thread_bytes: bytes_of_thread(program),
            history: self.history_bytes(program) as u64,
            workers: means.workers.max(1) as u64,
        };
        let footprint = Footprint::of(&launch, &traced);
        let blocks = emulator::footprint::blocks(&launch);
        Bound {
            blocks,
            at_once: footprint.at_once.saturating_mul(self.cluster.max(1).into()),
            buffers: self.bytes_of_buffers(outputs),
            footprint,
            rest: (means.orders as u64)
                .saturating_mul(ORDER_BYTES)
                .saturating_add(PROGRAM_BYTES),
        }
    }

    /// Returns the bytes of the buffers that are wanted.
    fn sum(&self, is_wanted: impl Fn(&Buffer) -> bool) -> u64 {
        let wanted = self.buffers.iter().filter(|buffer| is_wanted(buffer));
        wanted.map(Buffer::bytes).fold(0, u64::saturating_add)
    }

    /// Returns the bytes of a launch's buffers: one more while it is filled, the outputs of the first
    /// schedule and of the present one, and the values of one that is compared with what it should
    /// have.
    fn bytes_of_buffers(&self, outputs: u64) -> u64 {
        let boundaries = (self.buffers.len() as u64 + 1) * ALIGNMENT as u64;
        let sizes = self.buffers.iter().map(Buffer::bytes);
        let values = self.buffers.iter().map(|buffer| {
            let elements = if buffer.is_output { buffer.elements } else { 0 };
            (elements as u64).saturating_mul(size_of::<f64>() as u64)
        });
        [
            self.sum(|_| true),
            boundaries,
            sizes.max().unwrap_or(0),
            outputs.saturating_mul(2),
            values.max().unwrap_or(0),
        ]
        .into_iter()
        .fold(0, u64::saturating_add)
    }
}

/// A number of bytes as people read it: `1.2 GiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// The units of [`Bytes`], each with its size as a power of two.
const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (unit, shift) in UNITS {
            if self.0 >> shift > 0 {
                let size = self.0 as f64 / (1u64 << shift) as f64;
                return write!(f, "{size:.1} {unit}");
            }
        }
        write!(f, "{} bytes", self.0)
    }
}

/// A text that is no number of bytes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no size; take a number with KiB, MiB, GiB or TiB, such as 1.5GiB")]
pub struct NoSize(String);

impl std::str::FromStr for Bytes {
    type Err = NoSize;

    fn from_str(text: &str) -> Result<Self, NoSize> {
        let refusal = || NoSize(text.to_owned());
        let known = UNITS.into_iter().find(|(unit, _)| text.ends_with(unit));
        let (unit, shift) = known.ok_or_else(refusal)?;
        let number: f64 = text[..text.len() - unit.len()]
            .trim()
            .parse()
            .map_err(|_| refusal())?;
        if !number.is_finite() || number < 0.0 {
            return Err(refusal());
        }
        // Too large a number becomes the largest.
        Ok(Self((number * (1u64 << shift) as f64) as u64))
    }
}
