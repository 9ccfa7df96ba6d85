//! What a report says of each hazard. Verdicts are the same under every schedule, since they do not depend on the order that
//! was run; `detectors` has the table of them all.

use emulator::TraceReport;
use emulator::trace::{Hazard, HazardKind};
use emulator_kernels::traced;

use crate::support::{Run, SCHEDULES, at};

/// The hazards of `run`, which must be of the same kinds and between the same places under every schedule.
pub fn hazards(run: &Run) -> Vec<Hazard> {
    let input: Vec<f32> = (0..4096).map(|i| i as f32).collect();
    let reports: Vec<TraceReport> = SCHEDULES
        .iter()
        .map(|&schedule| {
            run.clone()
                .input(0, &input)
                .schedule(schedule)
                .trace([8192, 0])
        })
        .collect();
    let places = |report: &TraceReport| -> Vec<(HazardKind, Vec<String>)> {
        let places = |hazard: &Hazard| {
            let sides = [&hazard.first, &hazard.second].into_iter().flatten();
            let mut places: Vec<String> = sides.map(|side| side.places[0].to_string()).collect();
            places.sort();
            (hazard.kind, places)
        };
        let mut all: Vec<_> = report.hazards.iter().map(places).collect();
        all.sort();
        all.dedup();
        all
    };
    for (report, schedule) in reports.iter().zip(SCHEDULES) {
        assert_eq!(places(report), places(&reports[0]), "{schedule:?}");
    }
    reports[0].hazards.clone()
}

pub fn assert_clean(run: &Run, what: &str) {
    let found = hazards(run);
    assert!(found.is_empty(), "{what}: {}", found[0]);
}

/// The one hazard, as a sentence.
pub fn only(run: &Run, kind: HazardKind) -> String {
    let found = hazards(run);
    let texts: Vec<String> = found.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 1, "{texts:#?}");
    assert_eq!(found[0].kind, kind, "{texts:?}");
    texts[0].clone()
}

#[test]
fn a_barrier_that_only_one_branch_has() {
    let run = |barrier| {
        Run::new(traced::barrier_in_one_branch, 64)
            .shared(256)
            .number(0, barrier)
    };
    let text = only(&run(0), HazardKind::Race);
    assert!(text.contains(&at("hazards.cu", "// the score")), "{text}");
    assert!(text.contains(&at("hazards.cu", "// the softmax")), "{text}");
    assert!(
        text.contains("a __syncthreads() is missing after the write"),
        "{text}"
    );
    assert_clean(&run(1), "with the barrier");
}

#[test]
fn the_last_tile_of_a_pipeline_is_not_covered_by_the_usual_wait() {
    let run = |tiles, last_wait, empty_group| {
        let run = Run::new(traced::copied_one_ahead, 64).shared(2048);
        run.number(0, tiles)
            .number(1, last_wait)
            .number(2, empty_group)
    };
    // One tile alone is the small shape.
    for tiles in [1, 2, 5] {
        let text = only(&run(tiles, 0, 0), HazardKind::ReadInFlight);
        let wait = at("hazards.cu", "// but not for the last tile");
        assert!(
            text.contains(&format!(
                "The wait_group<1> at {wait} leaves the newest 1 group(s) in flight"
            )),
            "{text}"
        );
        assert!(
            text.contains("on the last tile wait for all (wait_group<0>)"),
            "{text}"
        );
        assert!(
            text.contains(&at("hazards.cu", "// a tile"))
                && text.contains(&at("hazards.cu", "// reads a copied tile")),
            "{text}"
        );
        assert_clean(&run(tiles, 1, 0), "waits for all on the last tile");
        assert_clean(&run(tiles, 0, 1), "commits an empty group on the last tile");
    }
}

#[test]
fn waits_cover_nobody_elses_copies() {
    let run = |producer_waits, barrier| {
        let run = Run::new(traced::copied_by_a_producer, 96).shared(512);
        run.number(0, producer_waits).number(1, barrier)
    };
    let text = only(&run(0, 1), HazardKind::ReadInFlight);
    let wait = at("hazards.cu", "// its own groups only");
    assert!(
        text.contains(&format!(
            "The wait_group at {wait} covers only copies that the waiting thread issued itself"
        )),
        "{text}"
    );
    assert!(
        text.contains(&at("hazards.cu", "// the producer's"))
            && text.contains(&at("hazards.cu", "// the consumers'"))
    );
    assert_clean(&run(1, 1), "the producer waits and a barrier follows");
}

#[test]
fn a_wait_tells_nobody_else() {
    let run = Run::new(traced::copied_by_a_producer, 64)
        .shared(512)
        .number(0, 1)
        .number(1, 0);
    for schedule in SCHEDULES {
        let report = run
            .clone()
            .input(0, &[0f32; 256])
            .schedule(schedule)
            .trace([8192, 0]);
        // Under one schedule the consumers come after the wait, under another before the copy: a race either way.
        let kinds: Vec<HazardKind> = report.hazards.iter().map(|hazard| hazard.kind).collect();
        assert!(
            kinds.contains(&HazardKind::Race) || kinds.contains(&HazardKind::ReadInFlight),
            "{kinds:?}"
        );
    }
}

#[test]
fn hazards_of_helpers_name_their_callers_the_operand_and_both_remedies() {
    let run = |lax, barrier| {
        Run::new(traced::tiles_by_helpers, 64)
            .shared(2048)
            .number(0, lax)
            .number(1, barrier)
    };
    assert_clean(&run(0, 1), "a wait and a barrier for each tile");
    let called = |helper, caller| {
        format!(
            "{} < {}",
            at("hazards.cu", helper),
            at("hazards.cu", caller)
        )
    };
    let copied = called("// a chunk", "copy(0); // the first tile");
    let read = called("// the other warp's rows", "// from the first tile");
    for (lax, barrier) in [(1, 1), (0, 0)] {
        for schedule in SCHEDULES {
            let report = run(lax, barrier)
                .input(0, &[0f32; 512])
                .schedule(schedule)
                .trace([8192, 0]);
            assert!(!report.hazards.is_empty(), "{lax} {barrier} {schedule:?}");
            for hazard in &report.hazards {
                let text = hazard.to_string();
                assert!(text.contains(&read), "{text}");
                // Without a barrier the reader may come before the copy is even issued, and finds nothing at all.
                if hazard.kind != HazardKind::UninitialisedShared {
                    assert!(text.contains(&copied), "{text}");
                }
            }
        }
    }
    let found = hazards_in_order(&run(1, 1));
    let wait = at("hazards.cu", "// one too lax");
    let early = found
        .iter()
        .find(|hazard| hazard.kind == HazardKind::ReadInFlight)
        .unwrap()
        .to_string();
    assert!(
        early.contains("bytes 0-15 of shared memory, copied from bytes 0-15 of in 0"),
        "{early}"
    );
    assert!(
        early.contains(&format!(
            "The wait_group<2> at {wait} leaves the newest 2 group(s) in flight"
        )),
        "{early}"
    );
    assert!(
        early.contains(
            "Or, if the copying thread waits again before this access, a __syncthreads()"
        ),
        "{early}"
    );
    // The other warp comes when the first one has waited for the next tile.
    let late = found
        .iter()
        .find(|hazard| hazard.kind == HazardKind::Race)
        .unwrap()
        .to_string();
    assert!(
        late.contains(
            "a __syncthreads() is missing between that wait and this access; or, if there is one"
        ),
        "{late}"
    );
    assert!(
        late.contains(&format!(
            "behind the wait_group<2> at {wait}, that wait is too early"
        )),
        "{late}"
    );
}

fn hazards_in_order(run: &Run) -> Vec<Hazard> {
    run.clone().input(0, &[0f32; 512]).trace([8192, 0]).hazards
}

#[test]
fn a_slot_that_is_filled_again_while_it_is_read() {
    let run = |free_slot, slots| {
        let run = Run::new(traced::ring_without_free_slots, 64).shared(256);
        run.number(0, 4).number(1, free_slot).number(2, slots - 1)
    };
    let text = only(&run(0, 1), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// fills"))
            && text.contains(&at("hazards.cu", "// drains")),
        "{text}"
    );
    assert!(
        text.contains(
            "before it if the buffer is still in use (its readers must signal that it is free)"
        ),
        "{text}"
    );
    assert_clean(&run(1, 1), "a barrier frees the slot");
    assert_clean(
        &run(0, 2),
        "two slots: the barrier of the next tile frees this one",
    );
}

#[test]
fn rows_that_nobody_wrote_and_rows_that_are_not_there() {
    let run = |written, read| {
        Run::new(traced::rows_one_too_many, 32)
            .shared(1024)
            .number(0, written)
            .number(1, read)
    };
    let text = only(&run(7, 8), HazardKind::UninitialisedShared);
    assert!(
        text.contains("of shared memory") && text.contains(&at("hazards.cu", "// a row")),
        "{text}"
    );
    let text = only(&run(8, 9), HazardKind::OutOfBounds);
    assert!(
        text.contains("The launch declares 1024 bytes of dynamic shared memory"),
        "{text}"
    );
    assert_clean(&run(8, 8), "all rows, none beyond");
}

#[test]
fn a_row_behind_the_last_one() {
    let run = |row| {
        Run::new(traced::row_of_input, 32)
            .elements(512..2048)
            .number(0, row)
    };
    let text = only(&run(4), HazardKind::OutOfBounds);
    assert!(
        text.contains("bytes 2048-2063 of in 0") && text.contains(&at("hazards.cu", "// the row")),
        "{text}"
    );
    assert!(
        text.contains("compare the row with seq_q or seq_kv before the access"),
        "{text}"
    );
    only(&run(0), HazardKind::OutOfBounds);
    assert_clean(&run(3), "the last row");
    assert_clean(&run(1), "the first row");
    let far = hazards(&run(1 << 20));
    assert!(
        far[0]
            .missing
            .starts_with("The address is in no buffer of the launch"),
        "{}",
        far[0]
    );
}

#[test]
fn a_vector_at_an_address_that_is_not_its_multiple() {
    let run = |byte| Run::new(traced::vector_at, 32).shared(2048).number(0, byte);
    for byte in [4, 8, 17] {
        let text = only(&run(byte), HazardKind::Misaligned);
        assert!(text.contains(&at("hazards.cu", "// 16 bytes")), "{text}");
        assert!(
            text.contains("An access of 16 bytes needs an address that is a multiple of it"),
            "{text}"
        );
    }
    assert_clean(&run(16), "a multiple of 16");
}

#[test]
fn matrices_belong_to_the_whole_warp() {
    let store = |sync| {
        Run::new(traced::matrix_then_lanes, 32)
            .shared(1024)
            .number(0, sync)
    };
    let text = only(&store(0), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// the matrix"))
            && text.contains(&at("hazards.cu", "// its elements")),
        "{text}"
    );
    assert!(
        text.contains("a __syncwarp() must stand between a matrix access and what any lane"),
        "{text}"
    );
    assert_clean(&store(1), "store_matrix_sync, __syncwarp, read");

    let load = |sync| {
        Run::new(traced::lanes_then_matrix, 32)
            .shared(512)
            .number(0, sync)
    };
    let text = only(&load(0), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// the elements"))
            && text.contains(&at("hazards.cu", "// of the matrix"))
    );
    assert_clean(&load(1), "write, __syncwarp, load_matrix_sync");

    let rows = |sync| {
        Run::new(traced::lanes_then_ldmatrix, 32)
            .shared(2048)
            .number(0, sync)
            .number(1, 16)
    };
    let text = only(&rows(0), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// one row of a matrix"))
            && text.contains(&at("hazards.cu", "// the matrices")),
        "{text}"
    );
    assert!(
        text.contains("a __syncwarp() must stand between a matrix access and what any lane"),
        "{text}"
    );
    assert_clean(&rows(1), "write, __syncwarp, ldmatrix");
    assert_clean(
        &Run::new(traced::matrix_in_place, 32).shared(1024),
        "each lane stores what it has loaded",
    );
}

#[test]
fn a_shuffle_orders_nothing() {
    let run = |shuffle| {
        Run::new(traced::warp_ping_pong, 64)
            .shared(256)
            .number(0, shuffle)
    };
    let text = only(&run(1), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// ping")) && text.contains(&at("hazards.cu", "// pong")),
        "{text}"
    );
    assert!(text.contains("__syncwarp()"), "{text}");
    assert_clean(&run(0), "half warps that meet by themselves");
}

#[test]
fn copies_that_are_not_waited_for() {
    let run = |commit, wait| {
        Run::new(traced::copy_without, 32)
            .shared(512)
            .number(0, commit)
            .number(1, wait)
    };
    let text = only(&run(0, 1), HazardKind::ReadInFlight);
    assert!(
        text.contains("cp_async_commit is missing before the wait"),
        "{text}"
    );
    let text = only(&run(1, 0), HazardKind::ReadInFlight);
    assert!(
        text.contains("cp_async_wait_group is missing before this access"),
        "{text}"
    );
    assert_clean(&run(1, 1), "committed and waited for");
    assert_clean(
        &Run::new(traced::groups_of_ones_own, 32).shared(2048),
        "several groups in flight",
    );
}

#[test]
fn a_copys_source_is_in_use_until_the_wait() {
    let run = |waits| {
        Run::new(traced::copy_source_overwritten, 32)
            .shared(512)
            .number(0, waits)
    };
    let text = only(&run(0), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// from the source"))
            && text.contains(&at("hazards.cu", "// to the source"))
    );
    assert!(text.contains("wait for the copy first"), "{text}");
    assert_clean(&run(1), "after the wait");
}

#[test]
fn blocks_are_concurrent() {
    let run = |own| {
        Run::new(traced::blocks_overlap, 32)
            .blocks(3)
            .number(0, own)
    };
    let text = only(&run(0), HazardKind::Race);
    assert!(
        text.contains("in block [0, 0, 0]") && text.contains("in block [1, 0, 0]"),
        "{text}"
    );
    assert!(
        text.contains("Blocks of one launch are concurrent"),
        "{text}"
    );
    assert_clean(&run(1), "each its own word");

    let run = |own| {
        Run::new(traced::blocks_hand_over, 32)
            .blocks(3)
            .number(0, own)
    };
    let text = only(&run(0), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// hands over"))
            && text.contains(&at("hazards.cu", "// takes over")),
        "{text}"
    );
    assert_clean(&run(1), "each reads its own word");
}

#[test]
fn global_memory_is_ordered_by_barriers_too() {
    let run = |barrier| Run::new(traced::global_within_block, 64).number(0, barrier);
    let text = only(&run(0), HazardKind::Race);
    assert!(
        text.contains(&at("hazards.cu", "// sets"))
            && text.contains(&at("hazards.cu", "= flag[0]; // reads")),
        "{text}"
    );
    assert_clean(&run(1), "after a barrier");
}

#[test]
fn barriers_and_masks_that_are_not_met() {
    let found = hazards(&Run::new(traced::barrier_missed_by_one, 64).number(0, 5));
    assert_eq!(found[0].kind, HazardKind::DivergentBarrier);
    assert!(
        found[0]
            .to_string()
            .contains(&at("barrier.cu", "// one is missing")),
        "{}",
        found[0]
    );
    let found = hazards(&Run::new(traced::warp_waits_for_a_lane_at_the_barrier, 32));
    assert_eq!(found[0].kind, HazardKind::Deadlock);
    let found = hazards(&Run::new(traced::shuffle_from_exited_lane, 32));
    assert_eq!(found[0].kind, HazardKind::Stopped);
}
