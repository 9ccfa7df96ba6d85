use std::time::Duration;

use emulator::trace::HazardKind;
use emulator::{Entry, Fault, Place};
use emulator_kernels::{entry, traced};

use crate::hazards::only;
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
fn what_the_processor_refuses_stops_the_launch_and_not_the_process() {
    let fault = |entry, number| {
        let run = Run::new(entry, 1).shared(16).input(0, &[1.0_f32; 16]);
        let fault = run.number(0, number).output::<f32>(1).unwrap_err();
        fault.to_string()
    };
    for (entry, line) in [
        (entry::far_from_any_memory as Entry, "[-(int64_t("),
        (
            entry::copy_from_far,
            "attn::cp_async<16>(shared<float>(), source)",
        ),
    ] {
        let (text, place) = (fault(entry, 1), at("faults.cu", line));
        let address = text
            .strip_prefix("block [0, 0, 0], thread 0: address 0x")
            .and_then(|rest| rest.strip_suffix(&format!(", where no memory is, at {place}")));
        assert!(
            address.is_some_and(|digits| u64::from_str_radix(digits, 16).is_ok()),
            "{text}"
        );
    }
    assert_eq!(
        fault(entry::divides, 0),
        format!(
            "block [0, 0, 0], thread 0: a division by zero, or one whose result has too many bits at {}",
            at("faults.cu", "KERNEL(divides)")
        )
    );
}

#[test]
fn a_loop_without_end_stops_the_launch_and_is_named() {
    let patience = Duration::from_millis(100);
    let run = Run::new(entry::loops_for_ever, 64).patience(patience);
    let fault = run.number(0, 1).output::<i32>(64).unwrap_err();
    assert_eq!(
        fault.to_string(),
        format!(
            "block [0, 0, 0], thread 0: a loop without end, or too much work for one thread: after 0.1 s of processor time it has not \
             waited for any other at {}",
            at("faults.cu", "do { times")
        )
    );
}

#[test]
fn an_element_that_an_array_does_not_have_is_named() {
    let run = Run::new(traced::sum_of_registers, 1).input(0, &[1.0_f32; 16]);
    assert_eq!(
        only(&run.number(0, 9), HazardKind::OutOfBounds),
        format!(
            "out of bounds in block [0, 0, 0]: block [0, 0, 0], thread 0: element 8 of float [8], at {}",
            at("faults.cu", "sum += registers[i]")
        )
    );
}

#[test]
fn launches_keep_working_after_many_faults() {
    for _ in 0..200 {
        for entry in [entry::failing_assert as Entry, entry::divides] {
            Run::new(entry, 1024)
                .blocks(2)
                .output::<i32>(0)
                .unwrap_err();
        }
    }
    let input: Vec<i32> = (0..128).collect();
    let run = Run::new(entry::reverse, 128)
        .shared(512)
        .input(0, &input)
        .number(0, 2);
    assert_eq!(run.output::<i32>(128).unwrap(), input);
}
