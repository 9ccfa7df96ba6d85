use super::notes::{NOTE_BYTES, NOTES, NotesError, WARPS, read};
use super::*;

/// The low half of a clock that is about to turn over.
const CLOCK: u32 = u32::MAX - 100;

const BARRIER: u32 = 0x14010;

/// Notes as a kernel leaves them.
struct Memory {
    bytes: Vec<u8>,
    taken: [usize; WARPS],
}

/// A note that is taken at clocks since [`CLOCK`].
#[derive(Clone, Copy)]
struct Taken {
    what: What,
    line: u32,
    begin: u32,
    end: u32,
    argument: u32,
}

impl Taken {
    fn new(what: What, begin: u32, end: u32) -> Self {
        Self {
            what,
            line: 0,
            begin,
            end,
            argument: 0,
        }
    }

    fn about(self, argument: u32) -> Self {
        Self { argument, ..self }
    }

    fn at(self, line: u32) -> Self {
        Self { line, ..self }
    }
}

impl Memory {
    fn new() -> Self {
        Self {
            bytes: vec![0; NOTES * WARPS * NOTE_BYTES],
            taken: [0; WARPS],
        }
    }

    fn take(&mut self, warp: usize, note: Taken) -> &mut Self {
        let words = [
            CLOCK.wrapping_add(note.begin),
            CLOCK.wrapping_add(note.end),
            note.what as u32 | note.line << 8,
            note.argument,
        ];
        let start = (self.taken[warp] * WARPS + warp) * NOTE_BYTES;
        for (word, at) in words.iter().zip((start..).step_by(4)) {
            self.bytes[at..at + 4].copy_from_slice(&word.to_le_bytes());
        }
        self.taken[warp] += 1;
        self
    }

    fn read(&self, warps: usize) -> Result<Timeline, NotesError> {
        read(&self.bytes, warps, SOURCES, None)
    }
}

const SOURCES: Sources<'static> = Sources(&[
    ("stage/kernel.cu", "\n  attn::mbarrier_wait_tx(&full, 0);\n"),
    (
        "attn/box_tile.cuh",
        "\n// mbarrier_wait_txt(\n  tma_load(box, map);\n",
    ),
]);

/// A warp that loads a tile, and one that multiplies by it.
fn two_warps() -> Memory {
    let mut memory = Memory::new();
    memory
        .take(0, Taken::new(What::Entered, 0, 0).about(1000))
        .take(0, Taken::new(What::ArriveExpectTx, 10, 10).about(BARRIER))
        .take(0, Taken::new(What::TmaLoad, 12, 20).about(BARRIER).at(3))
        .take(0, Taken::new(What::Left, 50, 50).about(1025))
        .take(1, Taken::new(What::Entered, 4, 4).about(1002))
        .take(
            1,
            Taken::new(What::MbarrierWait, 10, 610).about(BARRIER).at(2),
        )
        .take(1, Taken::new(What::WarpgroupProduct, 620, 640))
        .take(1, Taken::new(What::ProductCommit, 640, 640))
        .take(1, Taken::new(What::ProductWait, 650, 900))
        .take(1, Taken::new(What::Exponential, 920, 1000))
        .take(1, Taken::new(What::Left, 1004, 1004).about(1502));
    memory
}

#[test]
fn clocks_count_from_the_first_warp_and_may_turn_over() {
    let timeline = two_warps().read(2).unwrap();
    assert_eq!((timeline.warps, timeline.spans.len()), (2, 11));
    assert_eq!(timeline.end(), 1004);
    let wait = &timeline.spans[5];
    assert_eq!((wait.warp, wait.begin, wait.end), (1, 10, 610));
    assert_eq!(wait.barrier(), Some(Barrier::Shared(BARRIER)));
    // Warp 1 takes 1000 clocks in 500 ns.
    assert_eq!(timeline.axis, Axis::Clocks { mhz: Some(2000.0) });
}

#[test]
fn a_call_is_found_by_its_line_and_its_name() {
    let timeline = two_warps().read(2).unwrap();
    let site = timeline.spans[5].site.as_ref().unwrap();
    assert_eq!((&*site.file, site.line), ("stage/kernel.cu", 2));
    assert_eq!(site.text, "attn::mbarrier_wait_tx(&full, 0);");
    let load = timeline.spans[2].site.as_ref().unwrap();
    assert_eq!((&*load.file, load.line), ("attn/box_tile.cuh", 3));
    assert_eq!(SOURCES.find(What::MbarrierWait, 3), None);
    assert_eq!(SOURCES.find(What::MbarrierWait, 0), None);
}

#[test]
fn a_wait_was_ended_by_the_last_copy_before_its_end() {
    let mut memory = two_warps();
    // Of the next phase.
    memory.take(0, Taken::new(What::TmaLoad, 700, 710).about(BARRIER));
    memory.take(0, Taken::new(What::TmaLoad, 710, 720).about(BARRIER + 8));
    let timeline = memory.read(2).unwrap();
    let [link] = timeline.links()[..] else {
        panic!("one wait has a cause: {:?}", timeline.links());
    };
    let (cause, wait) = (&timeline.spans[link.cause], &timeline.spans[link.wait]);
    assert_eq!((cause.what, cause.begin), (What::TmaLoad, 12));
    assert_eq!(wait.what, What::MbarrierWait);
}

#[test]
fn the_last_warp_at_a_barrier_ends_the_others_waits() {
    let mut memory = Memory::new();
    for (warp, begin) in [(0, 10), (1, 90), (2, 40)] {
        memory.take(warp, Taken::new(What::NamedSync, begin, 100).about(3));
    }
    let timeline = memory.read(3).unwrap();
    let causes: Vec<usize> = timeline
        .links()
        .iter()
        .map(|link| timeline.spans[link.cause].warp)
        .collect();
    assert_eq!(causes, [1, 1, 1]);
}

#[test]
fn a_product_is_in_flight_until_the_wait_that_covers_it() {
    let mut memory = Memory::new();
    for (what, at, pending) in [
        (What::WarpgroupProduct, 10, 0),
        (What::ProductCommit, 20, 0),
        (What::WarpgroupProduct, 30, 0),
        (What::ProductCommit, 40, 0),
        (What::ProductWait, 100, 1),
        (What::ProductWait, 200, 0),
    ] {
        memory.take(0, Taken::new(what, at, at + 5).about(pending));
    }
    let flights = memory.read(1).unwrap().flights();
    // Clocks count from the first note.
    let times: Vec<[u64; 2]> = flights.iter().map(|it| [it.begin, it.end]).collect();
    assert_eq!(times, [[0, 95], [20, 195]]);
}

#[test]
fn warps_have_roles_and_parts_of_their_time() {
    let timeline = two_warps().read(2).unwrap();
    let [loads, computes] = &shares(&timeline)[..] else {
        panic!("two roles");
    };
    assert_eq!((loads.role, loads.warps), (Role::Loads, 1));
    assert_eq!(loads.of(Category::Copies), 8.0 / 50.0);
    assert_eq!(computes.role, Role::Computes);
    assert_eq!(computes.of(Category::WaitForCopies), 0.6);
    assert_eq!(computes.of(Category::WaitForReaders), 0.0);
    assert_eq!(computes.of(Category::WaitForProducts), 0.25);
    assert_eq!(computes.of(Category::Products), 0.02);
    assert_eq!(computes.of(Category::Exponentials), 0.08);
    assert_eq!(computes.in_flight, 0.28);
    assert!((computes.rest() - 0.05).abs() < 1e-12);
}

#[test]
fn a_barrier_that_counts_no_copies_is_one_for_readers() {
    let mut memory = Memory::new();
    memory
        .take(0, Taken::new(What::MbarrierWait, 0, 100).about(BARRIER))
        .take(1, Taken::new(What::Arrive, 90, 90).about(BARRIER));
    let timeline = memory.read(2).unwrap();
    assert_eq!(shares(&timeline)[0].of(Category::WaitForReaders), 1.0);
}

#[test]
fn begin_and_end_the_wrong_way_round_are_refused() {
    let mut memory = two_warps();
    memory.take(1, Taken::new(What::MbarrierWait, 1200, 1100));
    assert_eq!(
        memory.read(2).unwrap_err().to_string(),
        "note 7 of warp 1 (wait for an mbarrier) ends 100 clocks before it begins"
    );
}

#[test]
fn notes_that_overlap_are_refused() {
    let mut memory = two_warps();
    memory.take(1, Taken::new(What::MbarrierWait, 900, 1100));
    assert!(matches!(
        memory.read(2),
        Err(NotesError::Overlap {
            warp: 1,
            index: 7,
            ..
        })
    ));
}

#[test]
fn a_note_that_begins_some_clocks_too_early_begins_where_it_may() {
    let mut memory = two_warps();
    memory.take(1, Taken::new(What::MbarrierWait, 1000, 1100));
    let timeline = memory.read(2).unwrap();
    let last = timeline.spans.last().unwrap();
    assert_eq!((last.begin, last.end), (1004, 1100));
}

#[test]
fn codes_of_other_headers_and_other_sizes_are_refused() {
    let mut memory = Memory::new();
    memory.take(0, Taken::new(What::Entered, 0, 1));
    assert!(matches!(
        read(&[0; 16], 1, SOURCES, None),
        Err(NotesError::Size { .. })
    ));
    assert_eq!(Memory::new().read(2), Err(NotesError::None));
    memory.bytes[8] = 99;
    assert_eq!(
        memory.read(1),
        Err(NotesError::Code {
            warp: 0,
            index: 0,
            code: 99
        })
    );
}

#[test]
fn a_note_without_an_end_is_left_out_where_it_is_the_last_and_refused_elsewhere() {
    let mut memory = two_warps();
    let end = |note: usize| (note * WARPS + 1) * NOTE_BYTES + 4;
    memory.bytes[end(6)..end(6) + 4].fill(0);
    assert_eq!(memory.read(2).unwrap().of_warp(1).count(), 6);
    memory.bytes[end(4)..end(4) + 4].fill(0);
    assert!(matches!(
        memory.read(2),
        Err(NotesError::Backwards {
            warp: 1,
            index: 4,
            ..
        })
    ));
}

#[test]
fn a_warp_whose_notes_are_full_is_named() {
    let mut memory = two_warps();
    for index in 0..NOTES as u32 {
        memory.take(2, Taken::new(What::Arrive, index, index));
    }
    let timeline = memory.read(3).unwrap();
    assert_eq!(timeline.cut, [2]);
    assert_eq!(timeline.of_warp(2).count(), NOTES);
}

#[test]
fn every_code_is_its_own() {
    for what in What::ALL {
        assert_eq!(What::of_code(what as u8), Some(what));
    }
    assert_eq!(What::of_code(0), None);
}
