use super::*;
use crate::document::markdown::markdown;
use crate::judge::verdict::of_differences;
use crate::testing::ladder;
use crate::testing::scenario::{each, sides};

fn compared(line: &str) -> Comparison {
    let (base, new) = sides(line);
    let pair = diff::compare(&base.table, &new.table, true, &ladder());
    Comparison {
        base: "main".into(),
        new: "HEAD".into(),
        overall: of_differences(&pair.differences),
        pairs: vec![("nvidia-h200".into(), pair)],
        notes: vec![],
    }
}

#[test]
fn one_line_says_which_kernels_have_changed_and_what_moved() {
    let found = each(
        "emulated => same
        emulated => same; identity 1 new
        timed; built 96 0 => same; identity 1 new; built 80 0
        timed => same; identity 0 new; identity 1 new
        emulated => same; identity 1 new; counted cpasync 1048576 32
        emulated; variant cpasync cpasync-64x64 => same; - cpasync-64x64
        emulated; - cpasync-32x64 => emulated
        timed; identity 0 a; identity 1 b; named 1 => timed 32 20 13",
        |line| changed_line(&compared(line)).to_string(),
    );
    insta::assert_snapshot!(found, @"
    emulated => same
        Changed by this request: no kernel. 3 kernels are the same. No figure has moved.
    emulated => same; identity 1 new
        Changed by this request: stage1-cpasync (1 kernel). 2 kernels are the same. No figure has moved.
    timed; built 96 0 => same; identity 1 new; built 80 0
        Changed by this request: in sources alone, with the same machine code, stage1-cpasync (1 kernel). 2 kernels are the same. Moved: registers, occupancy (blocks).
    timed => same; identity 0 new; identity 1 new
        Changed by this request: stage0-scalar (2 kernels), stage1-cpasync (1 kernel). No figure has moved.
    emulated => same; identity 1 new; counted cpasync 1048576 32
        Changed by this request: stage1-cpasync (1 kernel). 2 kernels are the same. Moved: shared wavefronts, bank conflicts.
    emulated; variant cpasync cpasync-64x64 => same; - cpasync-64x64
        Changed by this request: gone stage1/cpasync-64x64. 3 kernels are the same. No figure has moved.
    emulated; - cpasync-32x64 => emulated
        Changed by this request: new stage1-cpasync (1 kernel). 2 kernels are the same. No figure has moved.
    timed; identity 0 a; identity 1 b; named 1 => timed 32 20 13
        Changed by this request: stage0-scalar (2 kernels), stage1-cpasync (1 kernel). Moved: p50.
    ");
}

#[test]
fn many_stages_are_counted_and_some_variants_of_one_are_named() {
    let subject = |name: &str| Subject::from(name);
    let kernels = ["s3/a", "s3/b", "s4/a"].map(subject);
    let kernels = Vec::from_iter(&kernels);
    let of = |all: usize| kernel_names(&kernels, |stage| if stage == "s3" { all } else { 1 });
    assert_eq!(of(2), "s3 (2 kernels), s4 (1 kernel)");
    assert_eq!(of(3), "s3/a, s3/b, s4 (1 kernel)");
    let many = Vec::from_iter((0..6).map(|n| subject(&format!("s{n}/a"))));
    let many = Vec::from_iter(&many);
    assert_eq!(kernel_names(&many, |_| 1), "6 kernels of 6 stages");
}

/// As of a stage whose padding was taken away: registers, shared bytes, conflicts and time, in one row per kernel and place.
#[test]
fn all_that_moved_of_a_kernel_is_shown_and_nothing_else() {
    let base = "timed; + cpasync | f16 d64 | kernel | threads 128 | dynamic_shared_bytes 55296; \
                + cpasync | f16 d64 sm_90a | ptxas | registers 96 | occupancy 0.25 | loop_instructions 372 | loop_hmma 32 | loop_lds 15";
    let new = "same; named 9; identity 1 new; cpasync kernel: dynamic_shared_bytes 47104; \
               cpasync ptxas: registers 80 | occupancy 0.3125 | loop_instructions 360 | loop_lds 12; \
               cpasync mission emulator: shared_read_conflicts 196608 | shared_read_wavefronts 900000; \
               cpasync mission gpu !pair: p50 18 17.99 18.01";
    let page = markdown(&document(&compared(&format!("{base} => {new}")), true));
    for says in [
        "**Changed by this request:** stage1-cpasync (1 kernel). 2 kernels are the same. Moved: p50, shared bytes, registers, main loop, \
         occupancy (blocks), shared wavefronts, bank conflicts.",
        "### Time\n\n| kernel | at | p50 | verdict |",
        "| stage1/cpasync-32x64 | mission f16 full | 15.01 µs → 18.00 µs | worse, 0.83x: beyond ",
        "| kernel | at | shared bytes | registers | main loop | occupancy (blocks) | verdict |",
        "| stage1/cpasync-32x64 | f16 d64 | 55,296 → 47,104 | – | – | – | changed |",
        "| f16 d64 sm_90a | – | 96 → 80 | instructions 372 → 360; LDS 15 → 12 | 25.0 % (4 per SM) → 31.2 % (5 per SM) (the measured",
        "| stage1/cpasync-32x64 | mission f16 full | loads 96 → 900,000 | loads **0 → 196,608** | worse |",
    ] {
        assert!(page.contains(says), "{says}: {page}");
    }
    for same in ["HMMA", "threads", "stage0", "global"] {
        let (_, tables) = page.split_once("###").unwrap();
        assert!(!tables.contains(same), "{same}: {page}");
    }
}

#[test]
fn a_kernel_whose_figures_are_the_same_has_no_row() {
    let page = markdown(&document(
        &compared("emulated => same; identity 1 new"),
        true,
    ));
    assert!(!page.contains("###"), "{page}");
}

#[test]
fn what_is_gone_and_what_is_new_is_named() {
    let gone = "emulated; variant cpasync cpasync-64x64 => same; - cpasync-64x64";
    let page = markdown(&document(&compared(gone), true));
    let says = "| stage1/cpasync-64x64 | variant | declared → – | the new side does not declare it: removed or renamed |";
    assert!(page.contains(says), "{page}");
    let new = "emulated; - cpasync-32x64 => emulated";
    let page = markdown(&document(&compared(new), true));
    assert!(
        page.contains("### New\n\n- stage1-cpasync/cpasync-32x64"),
        "{page}"
    );
}
