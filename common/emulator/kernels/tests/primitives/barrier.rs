use emulator::Schedule;

use crate::launch::{SCHEDULES, launch, place};

#[test]
fn syncthreads_orders_the_whole_block() {
    let input: Vec<i32> = (0..3 * 200).collect();
    let run = launch("reverse<<<3, 200, 800>>>(5)").input(0, &input);
    let expected: Vec<i32> = input
        .chunks(200)
        .flat_map(|block| block.iter().rev().copied())
        .collect();
    assert_eq!(run.same::<i32>(600), expected);
    let counted = run.trace([2400, 0]).counted;
    assert_eq!((counted.sum.barriers, counted.launch_blocks), (3 * 10, 3));
}

#[test]
fn a_missing_syncthreads_shows_as_a_difference_between_schedules() {
    // Some order reads before the write. That no order happens to do so would prove nothing: the
    // verdict on a missing barrier is the happens-before check's.
    let input: Vec<i32> = (0..64).collect();
    let run = launch("reverse<<<1, 64, 256>>>(1)").input(0, &input);
    let without = |words| {
        let broken = run.clone().suppress(place("barrier.cu", words));
        SCHEDULES.map(|schedule| {
            let scheduled = broken.clone().schedule(schedule);
            scheduled.output::<i32>(64).unwrap()
        })
    };
    let outputs = without("// all have written");
    assert_ne!(outputs[0], outputs[1]);
    assert!(
        outputs[0].contains(&-1),
        "reads of what nobody has written yet give poison"
    );
    // One round only: nothing comes after the other barrier.
    assert_eq!(
        without("// all have read"),
        SCHEDULES.map(|_| input.iter().rev().copied().collect::<Vec<_>>())
    );
}

#[test]
fn a_run_repeats_itself() {
    let input: Vec<i32> = (0..4096).collect();
    let run = launch("reverse<<<32, 128, 512>>>(3)")
        .input(0, &input)
        .schedule(Schedule::Shuffled(11));
    let first = run.trace([4 * 4096, 0]);
    for _ in 0..5 {
        assert_eq!(run.trace([4 * 4096, 0]), first);
        assert_eq!(
            run.output::<i32>(4096).unwrap(),
            input
                .chunks(128)
                .flat_map(|block| block.iter().rev().copied())
                .collect::<Vec<_>>()
        );
    }
}
