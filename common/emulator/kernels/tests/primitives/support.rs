//! Launching a test kernel with buffers of the sizes that it documents.

use std::path::Path;

use emulator::{Fault, Report, Schedule};
use emulator_kernels::KernelParams;

/// The schedules that every correct kernel must give the same bits under.
pub const SCHEDULES: [Schedule; 4] =
    [Schedule::InOrder, Schedule::Reversed, Schedule::Shuffled(1), Schedule::Shuffled(2)];

/// The one line of `cu/FILE` that contains `text`.
pub fn line(file: &str, text: &str) -> u32 {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("cu").join(file);
    let source = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<usize> = (1..).zip(source.lines()).filter(|(_, line)| line.contains(text)).map(|(n, _)| n).collect();
    assert_eq!(lines.len(), 1, "{text:?} in {file}");
    lines[0] as u32
}

/// `cu/FILE:LINE`, as a fault names it.
pub fn at(file: &str, text: &str) -> String {
    format!("cu/{file}:{}", line(file, text))
}

/// A launch of a test kernel, its buffers owned.
#[derive(Clone, Debug)]
pub struct Run {
    entry: emulator::Entry,
    grid: [u32; 3],
    block: [u32; 3],
    dynamic_shared_bytes: usize,
    inputs: [Vec<u64>; 3],
    numbers: [i32; 4],
    schedule: Schedule,
}

impl Run {
    /// One block of `threads` threads of `entry`, without shared memory, in order.
    pub fn new(entry: emulator::Entry, threads: u32) -> Self {
        Self {
            entry,
            grid: [1; 3],
            block: [threads, 1, 1],
            dynamic_shared_bytes: 0,
            inputs: Default::default(),
            numbers: [0; 4],
            schedule: Schedule::InOrder,
        }
    }

    /// gridDim and blockDim.
    pub fn dims(mut self, grid: [u32; 3], block: [u32; 3]) -> Self {
        (self.grid, self.block) = (grid, block);
        self
    }

    /// A one-dimensional grid.
    pub fn blocks(mut self, blocks: u32) -> Self {
        self.grid = [blocks, 1, 1];
        self
    }

    /// Dynamic shared memory.
    pub fn shared(mut self, bytes: usize) -> Self {
        self.dynamic_shared_bytes = bytes;
        self
    }

    /// Buffer `in[index]`.
    pub fn input<T: Plain>(mut self, index: usize, values: &[T]) -> Self {
        let bytes = std::mem::size_of_val(values);
        let mut words = vec![0u64; bytes.div_ceil(8)];
        // SAFETY: both ranges are `bytes` long, and any bytes are valid u64s.
        unsafe { values.as_ptr().cast::<u8>().copy_to_nonoverlapping(words.as_mut_ptr().cast(), bytes) };
        self.inputs[index] = words;
        self
    }

    /// `n[index]`.
    pub fn number(mut self, index: usize, value: i32) -> Self {
        self.numbers[index] = value;
        self
    }

    /// Who runs next.
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.schedule = schedule;
        self
    }

    /// Runs the kernel with `out[0]` of `len` elements, which start as zero.
    pub fn output<T: Plain>(&self, len: usize) -> Result<Vec<T>, Fault> {
        Ok(self.outputs(len, 0)?.0)
    }

    /// As [`Run::output`], with two buffers and the report.
    pub fn outputs<T: Plain>(&self, len0: usize, len1: usize) -> Result<(Vec<T>, Vec<T>, Report), Fault> {
        // 16-byte elements, so that vector types and cp.async find their alignment.
        let inputs: Vec<Vec<u128>> = self.inputs.iter().map(|words| align(words)).collect();
        let words = |len: usize| vec![0u128; (len * size_of::<T>()).div_ceil(16).max(1)];
        let (mut out0, mut out1) = (words(len0), words(len1));
        let params = KernelParams {
            input: [0, 1, 2].map(|index: usize| inputs[index].as_ptr().cast()),
            output: [out0.as_mut_ptr().cast(), out1.as_mut_ptr().cast()],
            numbers: self.numbers,
        };
        let launch = emulator::Launch {
            entry: self.entry,
            params: (&raw const params).cast(),
            grid: self.grid,
            block: self.block,
            dynamic_shared_bytes: self.dynamic_shared_bytes,
            schedule: self.schedule,
        };
        // SAFETY: the entry is one of this crate's kernels, the params are theirs, and the caller gives buffers of the
        // size that the kernel says.
        let report = unsafe { emulator::launch(&launch)? };
        let read = |words: &[u128], len: usize| -> Vec<T> {
            // SAFETY: `words` has at least `len` elements of T, and any bytes are a valid T.
            unsafe { std::slice::from_raw_parts(words.as_ptr().cast::<T>(), len) }.to_vec()
        };
        Ok((read(&out0, len0), read(&out1, len1), report))
    }
}

fn align(words: &[u64]) -> Vec<u128> {
    let pair = |pair: &[u64]| u128::from(pair[0]) | u128::from(pair.get(1).copied().unwrap_or(0)) << 64;
    words.chunks(2).map(pair).collect()
}

/// Numbers: every bit pattern is a value, and there is no padding.
///
/// # Safety
/// The above must hold.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty)*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Plain for $type {}
    )* };
}
plain! { u8 u16 u32 u64 i32 f32 f64 }
