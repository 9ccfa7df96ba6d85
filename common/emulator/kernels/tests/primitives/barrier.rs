use emulator::{Fault, Schedule};
use emulator_kernels::entry;

use crate::support::{Run, SCHEDULES, at, line};

#[test]
fn syncthreads_orders_the_whole_block() {
    let input: Vec<i32> = (0..3 * 200).collect();
    let run = Run::new(entry::reverse, 200)
        .blocks(3)
        .shared(800)
        .input(0, &input)
        .number(0, 5);
    let expected: Vec<i32> = input
        .chunks(200)
        .flat_map(|block| block.iter().rev().copied())
        .collect();
    for schedule in SCHEDULES {
        let (output, _, report) = run
            .clone()
            .schedule(schedule)
            .outputs::<i32>(600, 0)
            .unwrap();
        assert_eq!(output, expected, "{schedule:?}");
        assert_eq!(report.barriers, 3 * 10);
        assert_eq!(report.blocks, 3);
    }
}

#[test]
fn a_missing_syncthreads_shows_as_a_difference_between_schedules() {
    // It shows because some order reads before the write. That no order happens to do so proves nothing: the verdict
    // on a missing barrier belongs to the happens-before check, which does not depend on the order that was run.
    let input: Vec<i32> = (0..64).collect();
    let run = Run::new(entry::reverse_without_barrier, 64)
        .shared(256)
        .input(0, &input);
    let outputs =
        SCHEDULES.map(|schedule| run.clone().schedule(schedule).output::<i32>(64).unwrap());
    assert_ne!(outputs[0], outputs[1]);
    assert!(
        outputs[0].contains(&-1),
        "reads of what nobody has written yet give poison"
    );
}

#[test]
fn a_barrier_that_one_thread_left_out_is_divergent() {
    for schedule in SCHEDULES {
        let run = Run::new(entry::barrier_missed_by_one, 128)
            .number(0, 37)
            .schedule(schedule);
        let fault = run.output::<i32>(0).unwrap_err();
        let Fault::DivergentBarrier { block, waits } = &fault else {
            panic!("{fault}")
        };
        assert_eq!((*block, &waits.exited[..]), ([0; 3], &[37][..]));
        assert_eq!(
            fault.to_string(),
            format!(
                "divergent __syncthreads in block [0, 0, 0]: warps 0, 2-3 and threads 32-36, 38-63 wait at {} \
                 (__syncthreads), thread 37 has exited. All threads of a block must reach the same one",
                at("barrier.cu", "// one is missing")
            )
        );
        // And the next launch on the same OS thread works.
        run.number(0, -1).output::<i32>(0).unwrap();
    }
}

#[test]
fn barriers_at_two_lines_are_divergent() {
    let fault = Run::new(entry::barrier_at_two_lines, 64)
        .output::<i32>(0)
        .unwrap_err();
    let Fault::DivergentBarrier { waits, .. } = &fault else {
        panic!("{fault}")
    };
    assert_eq!(
        waits.to_string(),
        format!(
            "warp 0 waits at {} (__syncthreads), warp 1 waits at {} (__syncthreads)",
            at("barrier.cu", "// warp 0"),
            at("barrier.cu", "// the others")
        )
    );
    Run::new(entry::barrier_at_two_lines, 32)
        .output::<i32>(0)
        .unwrap();
}

#[test]
fn a_lane_that_skips_its_warp_is_a_deadlock() {
    for (kernel, operation, line) in [
        (
            entry::warp_waits_for_a_lane_at_the_barrier as emulator::Entry,
            "__syncwarp",
            line("barrier.cu", "!= 5) __syncwarp"),
        ),
        (
            entry::shuffle_waits_for_a_lane_at_the_barrier,
            "__shfl_xor_sync",
            line("barrier.cu", "__shfl_xor_sync"),
        ),
    ] {
        for schedule in SCHEDULES {
            let fault = Run::new(kernel, 32)
                .schedule(schedule)
                .output::<i32>(32)
                .unwrap_err();
            let Fault::Deadlock { waits, .. } = &fault else {
                panic!("{fault}")
            };
            let [warp, barrier] = &waits.waiting[..] else {
                panic!("{fault}")
            };
            assert_eq!(
                (warp.operation.as_str(), warp.place.line, warp.threads.len()),
                (operation, line, 31)
            );
            assert_eq!(
                (barrier.operation.as_str(), &barrier.threads[..]),
                ("__syncthreads", &[5][..])
            );
        }
    }
}

#[test]
fn a_run_repeats_itself() {
    let input: Vec<i32> = (0..4096).collect();
    let run = Run::new(entry::reverse, 128)
        .blocks(32)
        .shared(512)
        .input(0, &input)
        .number(0, 3);
    let run = run.schedule(Schedule::Shuffled(11));
    let first = run.outputs::<i32>(4096, 0).unwrap();
    for _ in 0..5 {
        assert_eq!(run.outputs::<i32>(4096, 0).unwrap(), first);
    }
}
