use emulator::trace::{Hazard, HazardKind};
use emulator::{Fault, Schedule};
use emulator_kernels::{entry, traced};

use crate::hazards::{assert_clean, only};
use crate::support::{Run, SCHEDULES, at};

fn found(run: &Run, schedule: Schedule) -> Vec<Hazard> {
    let input: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    run.clone()
        .input(0, &input)
        .schedule(schedule)
        .trace([512, 0])
        .hazards
}

/// A ring of `tiles` tiles with what is broken, as bits of `Break` in `cu/mbarrier.cu`.
fn ring(tiles: i32, breaks: i32) -> Run {
    Run::new(traced::ring, 96)
        .shared(32 + 256)
        .number(0, tiles)
        .number(1, breaks)
}

#[test]
fn a_ring_with_full_and_empty_barriers_is_clean() {
    for tiles in [1, 2, 3, 8] {
        assert_clean(&ring(tiles, 0), "copies that arrive by themselves");
        let run = Run::new(traced::ring_by_stores, 64)
            .shared(32 + 256)
            .number(0, tiles);
        assert_clean(&run, "stores, and a producer that asks again and again");
        assert_clean(
            &run.number(1, 1000),
            "the same with a watchdog that has no cause to bark",
        );
    }
    let counted = ring(4, 0)
        .input(0, &[0f32; 128])
        .trace([256, 0])
        .counted
        .sum;
    assert_eq!(
        (counted.mbarrier_arrivals, counted.mbarrier_waits),
        (4 * (32 + 64), 4 * (32 + 64))
    );
}

#[test]
fn every_way_to_break_the_ring_is_found_and_named() {
    use HazardKind::{BarrierObject, Deadlock, Race, ReadInFlight, Stopped, UninitialisedShared};
    let never = "Each phase of an mbarrier needs exactly as many arrivals as mbarrier_init names";
    let unseen = "while no thread has observed the end of phase 0";
    let race_of_waiters = "an mbarrier_wait for the phase is missing in this thread";
    let breaks: [(i32, &[HazardKind], &str); 13] = [
        (
            1,
            &[Race, ReadInFlight, UninitialisedShared],
            "no thread has observed the end of that phase: mbarrier_wait for it",
        ),
        (
            2,
            &[Race, ReadInFlight],
            "it must be waited for (and a barrier must follow) before they are written again",
        ),
        (4, &[Deadlock], "phase 0, parity 0, has 0 of 64 arrivals"),
        (8, &[Deadlock], "phase 0, parity 0, has 32 of 33 arrivals"),
        (
            16,
            &[ReadInFlight, Race],
            "mbarrier_wait for it is missing before this access",
        ),
        (32, &[Deadlock], never),
        (
            64,
            &[Race, Stopped],
            "a __syncthreads() is missing after mbarrier_init",
        ),
        (
            128,
            &[Stopped],
            "it is not initialised yet: one thread calls mbarrier_init",
        ),
        (
            256,
            &[Race, Stopped],
            "more threads arrive than the 32 that mbarrier_init at",
        ),
        (
            512,
            &[ReadInFlight],
            "The thread that issued the copy has not waited for it",
        ),
        (
            1024,
            &[Race, ReadInFlight, UninitialisedShared],
            race_of_waiters,
        ),
        (
            2048,
            &[BarrierObject],
            "only mbarrier operations may touch them",
        ),
        (4096, &[Deadlock], "has 0 of 32 arrivals"),
    ];
    for (bit, kinds, sentence) in breaks {
        let mut texts = Vec::new();
        for schedule in SCHEDULES {
            let hazards = found(&ring(5, bit), schedule);
            assert!(
                hazards.iter().any(|hazard| kinds.contains(&hazard.kind)),
                "break {bit}, {schedule:?}: {hazards:?}"
            );
            texts.extend(hazards.iter().map(ToString::to_string));
        }
        assert!(
            texts.iter().any(|text| text.contains(sentence)),
            "break {bit}: {texts:#?}"
        );
    }
    // A slot that two read, but one frees: under one schedule the producer's copy meets a reader, under another the second
    // reader's arrival is one too many.
    assert!(SCHEDULES.iter().any(|&schedule| {
        found(&ring(5, 256), schedule)
            .iter()
            .any(|it| it.missing.contains(unseen))
    }));
}

#[test]
fn a_producer_whose_slots_are_never_freed_waits_in_vain() {
    let run = |watchdog, last| {
        let run = Run::new(traced::ring_by_stores, 64).shared(32 + 256);
        run.number(0, 9).number(1, watchdog).number(2, last)
    };
    let text = only(&run(0, 2), HazardKind::Deadlock);
    let asks = at("mbarrier.cu", "// asks for a free slot");
    assert!(
        text.contains(&format!(
            "warp 0 waits at {asks} (mbarrier_test_wait, again and again, the mbarrier at byte 16: phase 1, parity 1, has 0 \
             of 32 arrivals)"
        )),
        "{text}"
    );
    let text = only(&run(50, 2), HazardKind::Stopped);
    assert!(
        text.contains(&format!(
            "__trap() was called at {}",
            at("mbarrier.cu", "// the watchdog")
        )),
        "{text}"
    );
    let plain = Run::new(entry::ring_by_stores, 64)
        .shared(32 + 256)
        .input(0, &[0f32; 288])
        .number(0, 9)
        .number(2, 2);
    assert!(matches!(
        plain.output::<f32>(32),
        Err(Fault::WaitNeverObserved { .. })
    ));
}

#[test]
fn copies_that_arrive_speak_for_themselves_alone() {
    let run = |arrives| {
        Run::new(traced::store_before_copies_arrive, 64)
            .shared(16 + 256)
            .number(0, arrives)
    };
    let text = only(&run(0), HazardKind::Race);
    let [store, read] =
        ["// an ordinary store", "// reads both"].map(|text| at("mbarrier.cu", text));
    assert!(text.contains(&store) && text.contains(&read), "{text}");
    assert_clean(&run(1), "the thread arrives for its store, too");
}

#[test]
fn a_waiter_that_nobody_waits_for_may_miss_its_phase() {
    let run = |waits| {
        Run::new(traced::phase_that_a_waiter_misses, 96)
            .shared(16)
            .number(0, waits)
    };
    let texts: Vec<String> = SCHEDULES
        .iter()
        .flat_map(|&schedule| found(&run(0), schedule))
        .map(|it| it.to_string())
        .collect();
    assert!(
        texts.iter().any(|text| text.contains("phase 0, for which it waits, has ended and phase 1 as well")),
        "{texts:#?}"
    );
    assert_clean(&run(1), "who ends the next phase waits for all");
}

#[test]
fn misuse_is_a_fault_with_its_place() {
    let fault = |byte, arrivals, parity, how| {
        let run = Run::new(entry::mbarrier_misused, 32).shared(1024);
        let run = run
            .number(0, byte)
            .number(1, arrivals)
            .number(2, parity)
            .number(3, how);
        let outcomes = SCHEDULES.map(|schedule| run.clone().schedule(schedule).output::<i32>(0));
        outcomes
            .into_iter()
            .next()
            .unwrap()
            .map(|_| ())
            .map_err(|fault| fault.to_string())
    };
    assert_eq!(fault(0, 1, 0, 0), Ok(()));
    let [init, again, arrive, wait] =
        ["// init", "// once more", "// arrive", "// wait"].map(|text| at("mbarrier.cu", text));
    let refused = |byte: i32, arrivals: i32, parity: i32, how: i32, place: &str, reason: &str| {
        let text = fault(byte, arrivals, parity, how).unwrap_err();
        assert!(
            text.contains(&format!(
                "at {place}, mbarrier at byte {byte} of shared memory: {reason}"
            )),
            "{text}"
        );
    };
    for arrivals in [0, 1 << 20] {
        refused(
            0,
            arrivals,
            0,
            0,
            &init,
            &format!("it asks for {arrivals} arrivals a phase, and 1 to 1048575"),
        );
    }
    refused(
        1024,
        1,
        0,
        0,
        &init,
        "its 8 bytes are not in shared memory, of which the launch declared 1024",
    );
    refused(
        0,
        1,
        2,
        0,
        &wait,
        "it waits for parity 2, and a phase has parity 0 or 1",
    );
    refused(
        0,
        1,
        0,
        1,
        &again,
        &format!("it is initialised already, at {init}"),
    );
    refused(
        64,
        1,
        0,
        2,
        &wait,
        "its bytes were overwritten since mbarrier_init: a tile overlaps the object",
    );
    refused(0, 1, 0, 3, &arrive, "it ends phase");
    assert!(
        fault(4, 1, 0, 0)
            .unwrap_err()
            .contains("the object of mbarrier_init is")
    );
    assert!(
        fault(0, 2, 0, 0)
            .unwrap_err()
            .contains("phase 0, parity 0, has 1 of 2 arrivals")
    );
}
