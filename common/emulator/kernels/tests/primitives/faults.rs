use emulator::{Fault, Place};
use emulator_kernels::entry;

use crate::support::{Run, SCHEDULES, at, line};

#[test]
fn a_trap_names_its_thread_and_place() {
    for schedule in SCHEDULES {
        // Blocks 3 to 49 trap; the report does not depend on which of them ran first.
        let run = Run::new(entry::trap_in_one_thread, 64)
            .blocks(50)
            .number(0, 3)
            .schedule(schedule);
        let fault = run.output::<i32>(0).unwrap_err();
        let Fault::Trap {
            block,
            thread,
            message,
            place,
        } = fault
        else {
            panic!("{fault}")
        };
        assert_eq!(
            (block, thread, message.as_str()),
            ([3, 0, 0], 33, "__trap() was called")
        );
        assert_eq!(
            place,
            Place {
                file: "cu/faults.cu".into(),
                line: line("faults.cu", "__trap()")
            }
        );
        run.number(0, 50).output::<i32>(0).unwrap();
    }
}

#[test]
fn an_assertion_stops_the_launch_and_not_the_process() {
    let fault = Run::new(entry::failing_assert, 32)
        .output::<i32>(0)
        .unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!(
            "block [0, 0, 0], thread 2: assertion `threadIdx.x != 2` failed at {}",
            at("faults.cu", "assert(threadIdx")
        )
    );
    Run::new(entry::failing_assert, 2).output::<i32>(0).unwrap();
}

#[test]
fn launches_keep_working_after_many_faults() {
    for _ in 0..200 {
        Run::new(entry::failing_assert, 1024)
            .blocks(2)
            .output::<i32>(0)
            .unwrap_err();
    }
    let input: Vec<i32> = (0..128).collect();
    let run = Run::new(entry::reverse, 128)
        .shared(512)
        .input(0, &input)
        .number(0, 2);
    assert_eq!(run.output::<i32>(128).unwrap(), input);
}
