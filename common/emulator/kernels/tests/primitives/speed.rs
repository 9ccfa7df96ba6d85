//! What the emulator costs; printed, and bounded loosely. `cargo test --release -p emulator-kernels -- --ignored
//! --nocapture` shows the figures.

use std::time::Instant;

use emulator::{Entry, Schedule};
use emulator_kernels::entry;

use crate::support::Run;

#[test]
#[ignore = "a measurement"]
fn cost_of_a_switch() {
    for (name, kernel, repeats) in
        [("__syncthreads", entry::barriers_only as Entry, 20_000), ("__shfl_xor_sync", entry::shuffles_only, 20_000)]
    {
        for threads in [32, 128, 256, 1024] {
            for schedule in [Schedule::InOrder, Schedule::Reversed, Schedule::Shuffled(1)] {
                let run = Run::new(kernel, threads).number(0, repeats * 128 / threads as i32).schedule(schedule);
                let start = Instant::now();
                let (_, _, report) = run.outputs::<i32>(1, 0).unwrap();
                let each = start.elapsed().as_secs_f64() * 1e9 / report.switches as f64;
                println!("{name}, {threads} threads, {schedule:?}: {each:.1} ns a switch");
            }
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn cost_of_the_mission_shapes_parts() {
    // 128 blocks of 128 threads: 2 x 134 million multiply-adds, or as many on tensor cores.
    for (name, kernel, repeats) in [
        ("scalar fma", entry::fma_only as Entry, 256),
        ("wmma with two loads", entry::wmma_only, 128),
        ("ldmatrix and two mma", entry::mma_only, 256),
    ] {
        let run = Run::new(kernel, 128).blocks(128).shared(4096).number(0, repeats);
        let start = Instant::now();
        let (_, _, report) = run.outputs::<i32>(1, 0).unwrap();
        println!("{name}: {:.2} s, {} switches", start.elapsed().as_secs_f64(), report.switches);
    }
}
