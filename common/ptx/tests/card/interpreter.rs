//! Runs an experiment here.

use std::ffi::c_void;

use emulator::{Launch, Schedule};
use ptx::{Invocation, Module};

use crate::experiment::{Experiment, THREADS};

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
    let mut results = vec![0u64; sets * experiment.results.len()];
    let parameters = [
        experiment.operands.as_ptr() as u64,
        results.as_mut_ptr() as u64,
        sets as u64,
    ];
    // SAFETY: three parameters of 8, 8 and 4 bytes; the buffers outlive the launch.
    let invocation = unsafe { Invocation::new(&program, parameters.as_ptr().cast(), 0) };
    let launch = invocation.launch(&Launch {
        entry: no_body,
        params: std::ptr::null(),
        grid: [1; 3],
        block: [THREADS, 1, 1],
        cluster: 1,
        dynamic_shared_bytes: 0,
        schedule: Schedule::InOrder,
        patience: 20 * Launch::PATIENCE,
    });
    // SAFETY: an experiment stays in its sets and results.
    let ran = unsafe { emulator::launch(&launch, None) };
    ran.unwrap_or_else(|fault| panic!("{name}: {fault}"));
    results
}
