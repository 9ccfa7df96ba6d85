use emulator::Fault;

use crate::launch::{faults, launch, place};

#[test]
fn a_trap_names_its_thread_and_place() {
    // Blocks 3 to 49 trap; the report does not depend on which of them ran first.
    let trap = Fault::Trap {
        block: [3, 0, 0],
        thread: 33,
        message: "__trap() was called".into(),
        place: place("faults.cu", "__trap()"),
    };
    let stops = faults("trap_in_one_thread<<<50, 64, 0>>>(3)");
    assert!(
        stops.iter().all(|fault| *fault == Some(trap.clone())),
        "{stops:?}"
    );
}

#[test]
fn launches_keep_working_after_many_faults() {
    for _ in 0..200 {
        for text in [
            "failing_assert<<<2, 1024, 0>>>()",
            "divides<<<2, 1024, 0>>>()",
        ] {
            launch(text).output::<i32>(0).unwrap_err();
        }
    }
    let input: Vec<i32> = (0..128).collect();
    let run = launch("reverse<<<1, 128, 512>>>(2)").input(0, &input);
    assert_eq!(run.output::<i32>(128).unwrap(), input);
}
