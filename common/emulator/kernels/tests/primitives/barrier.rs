use emulator::Schedule;

use crate::launch::{SCHEDULES, launch};

#[test]
fn syncthreads_orders_the_whole_block() {
    let input: Vec<i32> = (0..3 * 200).collect();
    let run = launch("reverse<<<3, 200, 800>>>(5)").input(0, &input);
    let expected: Vec<i32> = input
        .chunks(200)
        .flat_map(|block| block.iter().rev().copied())
        .collect();
    assert_eq!(run.same::<i32>(600), expected);
    let report = run.outputs::<i32>(600, 0).unwrap().2;
    assert_eq!((report.barriers, report.blocks), (3 * 10, 3));
}

#[test]
fn a_missing_syncthreads_shows_as_a_difference_between_schedules() {
    // Some order reads before the write. That no order happens to do so would prove nothing: the verdict on a missing
    // barrier is the happens-before check's.
    let input: Vec<i32> = (0..64).collect();
    let run = launch("reverse_without_barrier<<<1, 64, 256>>>()").input(0, &input);
    let outputs =
        SCHEDULES.map(|schedule| run.clone().schedule(schedule).output::<i32>(64).unwrap());
    assert_ne!(outputs[0], outputs[1]);
    assert!(
        outputs[0].contains(&-1),
        "reads of what nobody has written yet give poison"
    );
}

#[test]
fn a_run_repeats_itself() {
    let input: Vec<i32> = (0..4096).collect();
    let run = launch("reverse<<<32, 128, 512>>>(3)").input(0, &input);
    let run = run.schedule(Schedule::Shuffled(11));
    let first = run.outputs::<i32>(4096, 0).unwrap();
    for _ in 0..5 {
        assert_eq!(run.outputs::<i32>(4096, 0).unwrap(), first);
    }
}
