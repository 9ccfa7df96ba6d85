//! Runs an experiment here.

use std::ffi::c_void;

use emulator::{Launch, Schedule};
use ptx::{Invocation, Module};

use crate::experiment::{Experiment, THREADS};

/// A line of memory on the boundary that the driver's allocations have at least.
#[derive(Clone, Copy)]
#[repr(align(128))]
struct Line([u64; 16]);

/// Words on that boundary.
struct Aligned(Vec<Line>);

impl Aligned {
    fn new(words: &[u64]) -> Self {
        let mut lines = vec![Line([0; 16]); words.len().div_ceil(16)];
        for (line, chunk) in lines.iter_mut().zip(words.chunks(16)) {
            line.0[..chunk.len()].copy_from_slice(chunk);
        }
        Self(lines)
    }

    fn address(&mut self) -> u64 {
        self.0.as_mut_ptr() as u64
    }
}

unsafe extern "C-unwind" fn no_body(_: *const c_void) {}

/// Returns the words of all results.
pub fn run(experiment: &Experiment) -> Vec<u64> {
    let name = &experiment.row;
    let module = Module::parse("experiment.ptx", &experiment.text)
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let program = module
        .entry("experiment")
        .unwrap_or_else(|error| panic!("{name}: {error}"));
    let sets = experiment.sets();
    let count = sets * experiment.results.len();
    let mut operands = Aligned::new(&experiment.operands);
    let mut results = Aligned::new(&vec![0; count]);
    let parameters = [operands.address(), results.address(), sets as u64];
    // SAFETY: three parameters of 8, 8 and 4 bytes; the buffers outlive the launch.
    let invocation = unsafe { Invocation::new(&program, parameters.as_ptr().cast(), 0) };
    let launch = invocation.launch(&Launch {
        entry: no_body,
        params: std::ptr::null(),
        grid: [experiment.blocks, 1, 1],
        block: [THREADS, 1, 1],
        cluster: experiment.blocks,
        dynamic_shared_bytes: 0,
        schedule: Schedule::InOrder,
        patience: 20 * Launch::PATIENCE,
    });
    // SAFETY: an experiment stays in its sets and results.
    let ran = unsafe { emulator::launch(&launch, None) };
    ran.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    let words = results.0.iter().flat_map(|line| line.0);
    words.take(count).collect()
}
