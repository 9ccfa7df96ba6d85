use emulator::trace::HazardKind;
use emulator::{Entry, Fault};
use emulator_kernels::{entry, traced};

use crate::hazards::{assert_clean, only};
use crate::support::{Run, SCHEDULES, at};

#[test]
fn pairs_of_warps_meet_without_the_others() {
    let mut values: Vec<i32> = (0..128).collect();
    for _ in 0..3 {
        let paired: Vec<i32> = (0..128).map(|i| values[i] + values[i ^ 32]).collect();
        values = (0..128).map(|i| paired[i] + paired[127 - i]).collect();
    }
    let run = |kernel| Run::new(kernel, 128).shared(512).number(0, 3);
    for schedule in SCHEDULES {
        let output: Vec<i32> = run(entry::named_barriers_of_pairs)
            .schedule(schedule)
            .output(128)
            .unwrap();
        assert_eq!(output, values, "{schedule:?}");
    }
    assert_clean(
        &run(traced::named_barriers_of_pairs),
        "barriers of two and of four warps, used again and again",
    );
    let counted = run(traced::named_barriers_of_pairs)
        .trace([512, 0])
        .counted
        .sum;
    assert_eq!(
        (counted.named_barriers, counted.barriers),
        (3 * 16, 0),
        "per warp that arrives"
    );
}

#[test]
fn a_named_barrier_orders_who_arrives_before_who_waits() {
    let run = |leaves_out| {
        Run::new(traced::row_by_named_barrier, 64)
            .shared(128)
            .number(0, leaves_out)
    };
    assert_clean(&run(0), "one arrives, the other waits");
    for leaves_out in [2, 3, 4] {
        let text = only(&run(leaves_out), HazardKind::Race);
        let [writer, reader] = ["= threadIdx.x; // by warp 0", "// by warp 1"]
            .map(|text| at("named_barrier.cu", text));
        assert!(text.contains(&writer) && text.contains(&reader), "{text}");
    }
    let place = at("named_barrier.cu", "// the reader's");
    assert_eq!(
        only(&run(1), HazardKind::Deadlock),
        format!(
            "deadlock in block [0, 0, 0]: block [0, 0, 0] can't go on: warp 1 waits at {place} (named_barrier_sync, barrier \
             3, 32 of 64 threads have arrived), warp 0 has exited. Every thread that a barrier or mask names must reach it"
        )
    );
}

fn fault(kernel: Entry, threads: u32) -> Fault {
    let faults = SCHEDULES.map(|schedule| {
        Run::new(kernel, threads)
            .schedule(schedule)
            .output::<i32>(32)
            .unwrap_err()
    });
    faults.into_iter().next().unwrap()
}

#[test]
fn misuse_is_a_fault_with_its_places() {
    let [three, two] =
        ["// of three warps", "// of two warps"].map(|text| at("named_barrier.cu", text));
    assert_eq!(
        fault(entry::named_barrier_of_two_counts, 96).to_string(),
        format!(
            "block [0, 0, 0]: thread 0 called named_barrier_sync at {three}, but thread 32 called named_barrier_sync at \
             {two}: barrier 1 can't wait for 96 threads and for 64 at once: all that take part name the same number"
        )
    );
    let place = at("named_barrier.cu", "KERNEL(named_barrier_of_too_many)");
    assert_eq!(
        fault(entry::named_barrier_of_too_many, 64).to_string(),
        format!(
            "block [0, 0, 0]: thread 0 called named_barrier_sync at {place}: it waits for 1024 threads, but the block has \
             only 64"
        )
    );
    for barrier in [0, 16, -1] {
        let run = Run::new(entry::named_barrier_that_is_not_there, 32).number(0, barrier);
        let text = run.output::<i32>(0).unwrap_err().to_string();
        assert!(
            text.contains("assertion `id >= 1 && id <= 15` failed"),
            "{text}"
        );
    }
    let text = fault(entry::named_barriers_differ, 32).to_string();
    assert!(
        text.contains("barrier, number of threads) must be the same in all lanes"),
        "{text}"
    );
    let text = fault(entry::named_barrier_by_half_a_warp, 64).to_string();
    assert!(
        text.ends_with("it needs all lanes of its mask, but thread 16 has exited"),
        "{text}"
    );
}

#[test]
fn a_signal_that_is_given_again_before_it_is_answered() {
    let run = |late| {
        Run::new(entry::named_barrier_twice, 64)
            .number(0, late)
            .output::<i32>(0)
    };
    let place = at("named_barrier.cu", "// without an answer");
    let text = run(1).unwrap_err().to_string();
    assert!(
        text.contains(&format!("named_barrier_arrive at {place}")),
        "{text}"
    );
    assert!(
        text.contains("a second arrival of warp 0 at barrier 1 before its first has been answered"),
        "{text}"
    );
}
