//! Producer and consumer roles that earlier kernels got wrong, each found in one run.

use emulator::trace::HazardKind;
use emulator_kernels::traced;

use crate::hazards::{assert_clean, hazards, only};
use crate::support::{Run, at};

#[test]
fn a_helper_for_the_whole_block_that_one_warp_calls() {
    let run = |steps_by_warp| {
        Run::new(traced::tile_copied_by_one_warp, 128)
            .shared(2048)
            .number(0, steps_by_warp)
    };
    let text = only(&run(0), HazardKind::UninitialisedShared);
    assert!(
        text.contains(&at("roles.cu", "// consumes a chunk")),
        "{text}"
    );
    assert!(
        text.contains("compare the threads that run the loop with its step"),
        "{text}"
    );
    assert!(
        text.ends_with("(96 times)"),
        "three quarters of the tile: {text}"
    );
    assert_clean(&run(1), "the loop steps by the threads that copy");
}

#[test]
fn roles_with_unequal_numbers_of_block_barriers() {
    let run = |equal| {
        Run::new(traced::roles_with_unequal_barriers, 128)
            .shared(2048)
            .number(0, equal)
    };
    let [filled, drained] =
        ["// it is filled", "// it is drained"].map(|text| at("roles.cu", text));
    // The consumers read on while the producer fills, which is a race, until they stand at different barriers.
    let found = hazards(&run(0));
    assert_eq!(
        found.iter().map(|it| it.kind).collect::<Vec<_>>(),
        [HazardKind::Race, HazardKind::DivergentBarrier]
    );
    let text = found[1].to_string();
    let waits = format!(
        "warp 0 waits at {filled} (__syncthreads), warps 1-3 wait at {drained} (__syncthreads)"
    );
    assert!(
        text.contains(&waits) && text.ends_with("All threads of a block must reach the same one"),
        "{text}"
    );
    assert_clean(&run(1), "both roles have both barriers");
}

#[test]
fn flags_order_nothing_and_end_no_wait() {
    let run = |nobody_sets| {
        Run::new(traced::roles_with_flags, 64)
            .shared(2048)
            .number(0, nobody_sets)
    };
    let raises = hazards(&run(0));
    let places: Vec<String> = raises.iter().map(ToString::to_string).collect();
    for (one, other) in [
        ("// raises the flag", "// watches the flag"),
        ("// fills the tile", "// drains the tile"),
    ] {
        let both = |text: &String| {
            text.contains(&at("roles.cu", one)) && text.contains(&at("roles.cu", other))
        };
        assert!(places.iter().any(both), "{places:#?}");
    }
    assert!(
        raises.iter().all(|hazard| hazard.kind == HazardKind::Race),
        "{places:#?}"
    );
    let watches = at("roles.cu", "// watches the flag");
    assert_eq!(
        only(&run(1), HazardKind::Deadlock),
        format!(
            "deadlock in block [0, 0, 0]: block [0, 0, 0] can't go on: warp 1 waits at {watches} (reads the same variables \
             again and again), warp 0 has exited. No thread is left that would change what is read there. And a flag in \
             memory orders nothing: signal by an mbarrier or a named barrier"
        )
    );
}
