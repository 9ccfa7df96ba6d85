//! TMA: where a box lies, what lies outside of the tensor, and every way to use it wrongly.

use emulator::trace::{Hazard, HazardKind};
use emulator::{Entry, Fault, Schedule, TensorMap};
use emulator_kernels::{entry, traced};

use crate::gpu::Gpu;
use crate::hazards::{assert_clean, only};
use crate::support::{Buffer, Run, SCHEDULES, at};

/// Rows of 32 floats, 8 of them in a box of 1,024 bytes; one head per 16 rows.
pub const TILES: TensorMap = TensorMap {
    base: 0,
    extents: [32, 128, 1, 1],
    strides: [128, 128 * 16, 128 * 16],
    box_columns: 32,
    box_rows: 8,
    swizzle: 128,
    element_bytes: 4,
};

/// A ring of `tiles` tiles with what is broken, as bits of `RingBreak` in `cu/tma.cu`.
pub fn ring(entry: Entry, tiles: i32, breaks: i32) -> Run {
    let run = Run::new(entry, 96)
        .shared(5120)
        .number(0, tiles)
        .number(1, breaks);
    run.map(Buffer::Input, TILES).map(
        Buffer::Input,
        TensorMap {
            box_rows: 4,
            ..TILES
        },
    )
}

pub fn refill(entry: Entry, tiles: i32, breaks: i32) -> Run {
    Run::new(entry, 32)
        .shared(2048)
        .number(0, tiles)
        .number(1, breaks)
        .map(Buffer::Input, TILES)
}

/// Each block has two tiles of the output.
pub fn store_tiles(entry: Entry, breaks: i32) -> Run {
    let run = Run::new(entry, 64)
        .blocks(2)
        .shared(4096)
        .number(0, 2)
        .number(1, breaks);
    run.map(Buffer::Input, TILES).map(
        Buffer::Output,
        TensorMap {
            extents: [32, 16, 4, 1],
            ..TILES
        },
    )
}

pub fn misused(entry: Entry, byte: i32, map: i32, row: i32, is_store: bool) -> Run {
    let run = Run::new(entry, 32)
        .shared(4096)
        .number(0, byte)
        .number(1, map)
        .number(2, row)
        .number(3, is_store.into());
    run.map(Buffer::Input, TILES).map(Buffer::Output, TILES)
}

/// A box of 8 rows, of which the map has `rows`, and the first 4 are elements.
pub fn rows_of_elements(entry: Entry, rows: u64) -> Run {
    let map = TensorMap {
        extents: [32, rows, 1, 1],
        ..TILES
    };
    Run::new(entry, 96)
        .shared(5120)
        .number(0, 1)
        .map(Buffer::Input, map)
        .elements(0..512)
}

/// A load at this column of words.
pub fn at_column(entry: Entry, column: i32) -> Run {
    misused(entry, 1024, 0, 0, false).number(3, 2 * column)
}

fn input() -> Vec<f32> {
    (0..4096).map(|i| i as f32).collect()
}

fn found(run: &Run, schedule: Schedule) -> Vec<Hazard> {
    run.clone()
        .input(0, &input())
        .schedule(schedule)
        .trace([8192, 0])
        .hazards
}

/// A tensor of `bytes`-wide elements that hold their own index, not dense, and boxes of 16 rows.
struct Tensor {
    map: TensorMap,
    input: Vec<u8>,
}

impl Tensor {
    fn new(swizzle: u32, element_bytes: u32) -> Self {
        let columns = 2 * swizzle / element_bytes;
        let row = u64::from(2 * swizzle) + 32;
        let extents = [columns.into(), 21, 3, 2];
        let strides = [row, 25 * row, 80 * row];
        let (box_columns, box_rows) = (swizzle / element_bytes, 16);
        let map = TensorMap {
            base: 64,
            extents,
            strides,
            box_columns,
            box_rows,
            swizzle,
            element_bytes,
        };
        // Bytes at odd distances, so that none stands for another one nearby.
        let input = (0..64 + 160 * row)
            .map(|i| (i * 7 + i / 256 * 3 + i / 65536) as u8)
            .collect();
        Self { map, input }
    }

    /// The byte of the tensor at a byte of a row, none outside.
    fn at(&self, [byte, row, head, batch]: [i64; 4]) -> Option<usize> {
        let TensorMap {
            extents,
            strides,
            element_bytes,
            ..
        } = self.map;
        let extents = [
            extents[0] * u64::from(element_bytes),
            extents[1],
            extents[2],
            extents[3],
        ];
        let inside = [byte, row, head, batch]
            .into_iter()
            .zip(extents)
            .all(|(at, extent)| (0..extent as i64).contains(&at));
        let [row, head, batch] = [
            row * strides[0] as i64,
            head * strides[1] as i64,
            batch * strides[2] as i64,
        ];
        inside.then_some((64 + byte + row + head + batch) as usize)
    }

    /// For each byte of the box as the kernel sees it, the byte of the tensor. The layout of 128 bytes is that of PTX ISA's
    /// figure: 16-byte chunk c of row r lies at chunk c ^ (r % 8); of 64 bytes: two rows share 128 bytes, c ^ (r / 2 % 4).
    fn layout(&self, at: [i32; 4]) -> Vec<Option<usize>> {
        let span = self.map.swizzle as usize;
        let mut layout = vec![None; 16 * span];
        for row in 0..16 {
            for byte in 0..span {
                let turn = if span == 128 { row % 8 } else { row / 2 % 4 };
                let place = row * span + ((byte / 16) ^ turn) * 16 + byte % 16;
                let first = i64::from(at[0]) * i64::from(self.map.element_bytes);
                let [row, head, batch] =
                    [i64::from(at[1]) + row as i64, at[2].into(), at[3].into()];
                layout[place] = self.at([first + byte as i64, row, head, batch]);
            }
        }
        layout
    }
}

/// Whole boxes, and such that begin or end outside.
const PLACES: [[i32; 4]; 13] = [
    [0, 0, 0, 0],
    [0, 5, 2, 1],
    [16, 3, 1, 0],
    [0, 6, 0, 1],
    [0, 20, 2, 1],
    [0, 21, 0, 0],
    [0, -5, 1, 1],
    [0, -16, 1, 1],
    [-16, -1, 0, 0],
    [48, 10, 0, 0],
    [80, 10, 0, 0],
    [0, 0, 3, 0],
    [0, 0, -1, 1],
];

fn tensors() -> Vec<Tensor> {
    [(64, 1), (64, 2), (128, 1), (128, 2), (128, 4)]
        .map(|(swizzle, bytes)| Tensor::new(swizzle, bytes))
        .into()
}

impl Tensor {
    /// A launch that brings the box at `place`, and what it gives.
    fn load(&self, entry: Entry, place: [i32; 4]) -> (Run, Vec<u8>) {
        let bytes = self
            .layout(place)
            .into_iter()
            .map(|from| from.map_or(0, |from| self.input[from]));
        let expected: Vec<u8> = bytes.collect();
        let run = Run::new(entry, 64)
            .shared(1024 + 2048)
            .input(0, &self.input)
            .input(2, &place);
        (
            run.map(Buffer::Input, self.map)
                .number(0, expected.len() as i32),
            expected,
        )
    }

    /// One that stores a box there.
    fn store(&self, entry: Entry, place: [i32; 4]) -> (Run, Vec<u8>) {
        let layout = self.layout(place);
        let box_bytes: Vec<u8> = (0..layout.len())
            .map(|i| (i * 5 + i / 256 + 1) as u8)
            .collect();
        let mut expected = vec![0; self.input.len()];
        layout
            .iter()
            .zip(&box_bytes)
            .for_each(|(to, &byte)| _ = to.map(|to| expected[to] = byte));
        let run = Run::new(entry, 64)
            .shared(1024 + 2048)
            .input(0, &box_bytes)
            .input(2, &place);
        (
            run.map(Buffer::Output, self.map)
                .number(0, box_bytes.len() as i32),
            expected,
        )
    }
}

#[test]
fn a_box_lies_in_shared_memory_as_documented() {
    for tensor in tensors() {
        for place in PLACES {
            let inside = tensor.layout(place).iter().flatten().count() as u64;
            for schedule in SCHEDULES {
                let (run, expected) = tensor.load(entry::tma_box, place);
                let output: Vec<u8> = run.schedule(schedule).output(expected.len()).unwrap();
                assert!(
                    output == expected,
                    "{:?} at {place:?}, {schedule:?}",
                    tensor.map
                );
                let (run, _) = tensor.load(traced::tma_box, place);
                let report = run.schedule(schedule).trace([expected.len(), 0]);
                assert_eq!(report.hazards, [], "{:?} at {place:?}", tensor.map);
                assert_eq!(report.counted.sum.tma_read_bytes, inside);
                assert_eq!(
                    report.counted.sum.shared_async_write.bytes,
                    expected.len() as u64
                );
            }
        }
    }
}

#[test]
fn a_store_writes_what_lies_in_the_tensor() {
    for tensor in tensors() {
        for place in PLACES
            .into_iter()
            .filter(|place| place.iter().all(|&at| at >= 0))
        {
            let inside = tensor.layout(place).iter().flatten().count() as u64;
            for schedule in SCHEDULES {
                let (run, expected) = tensor.store(entry::tma_store_box, place);
                let output: Vec<u8> = run.schedule(schedule).output(expected.len()).unwrap();
                assert!(
                    output == expected,
                    "{:?} at {place:?}, {schedule:?}",
                    tensor.map
                );
                let (run, _) = tensor.store(traced::tma_store_box, place);
                let report = run.schedule(schedule).trace([expected.len(), 0]);
                assert_eq!(report.hazards, [], "{:?} at {place:?}", tensor.map);
                assert_eq!(report.counted.sum.tma_write_bytes, inside);
            }
        }
    }
}

#[test]
fn boxes_are_the_same_on_a_real_gpu() {
    let Some(gpu) = Gpu::open().filter(|gpu| gpu.has("tma_box")) else {
        return;
    };
    let same = |name: &str, (run, expected): (Run, Vec<u8>), what: &dyn std::fmt::Debug| {
        assert!(
            gpu.launch(name, &run, expected.len()) == expected,
            "{name}: {what:?}"
        );
    };
    for tensor in tensors() {
        for place in PLACES {
            same(
                "tma_box",
                tensor.load(entry::tma_box, place),
                &(tensor.map, place),
            );
            if place.iter().all(|&at| at >= 0) {
                same(
                    "tma_store_box",
                    tensor.store(entry::tma_store_box, place),
                    &(tensor.map, place),
                );
            }
        }
    }
    let emulated = |run: Run, floats: usize| {
        let run = run.input(0, &input());
        let output: Vec<u8> = run.output(4 * floats).unwrap();
        (run, output)
    };
    for breaks in [0, 256 | 512, 4096, 8192, 16384, 32768 | 65536] {
        (1..8).for_each(|tiles| {
            same(
                "tma_ring",
                emulated(ring(entry::tma_ring, tiles, breaks), 64),
                &(tiles, breaks),
            )
        });
    }
    for breaks in [0, 16] {
        (1..8).for_each(|tiles| {
            same(
                "tma_refill",
                emulated(refill(entry::tma_refill, tiles, breaks), 32),
                &breaks,
            )
        });
    }
    for breaks in [0, 1024] {
        same(
            "tma_store_tiles",
            emulated(store_tiles(entry::tma_store_tiles, breaks), 1024),
            &breaks,
        );
    }
}

#[test]
fn a_ring_of_boxes_is_clean_in_all_its_forms() {
    let sum = |tiles: usize| input()[..tiles * 256].iter().sum::<f32>();
    for (breaks, what) in [
        (0, "full and empty mbarriers"),
        (256 | 512, "one lane waits and meets its warp"),
        (4096, "expected after it was asked for"),
        (8192, "tries that fail at times"),
        (16384, "two boxes for a phase"),
        (32768 | 65536, "one lane frees the slot of all"),
    ] {
        for tiles in [1, 2, 3, 8] {
            assert_clean(&ring(traced::tma_ring, tiles, breaks), what);
            for schedule in SCHEDULES {
                let run = ring(entry::tma_ring, tiles, breaks)
                    .input(0, &input())
                    .schedule(schedule);
                assert_eq!(
                    run.output::<f32>(64).unwrap(),
                    [sum(tiles as usize); 64],
                    "{what}, {schedule:?}"
                );
            }
        }
    }
    let counted = ring(traced::tma_ring, 4, 0)
        .input(0, &input())
        .trace([256, 0])
        .counted
        .sum;
    assert_eq!(
        (
            counted.tma_read_bytes,
            counted.global_read.bytes,
            counted.global_read.requests
        ),
        (4096, 4096, 4)
    );
    assert_eq!(
        (
            counted.global_read.sectors,
            counted.shared_async_write.bytes
        ),
        (128, 4096)
    );
    assert_eq!(
        (
            counted.shared_async_write.wavefronts,
            counted.shared_async_write.conflicts()
        ),
        (32, 0)
    );
    assert_eq!(
        (counted.mbarrier_arrivals, counted.mbarrier_waits),
        (4 * 65, 4 * 65)
    );
}

#[test]
fn a_warp_that_comes_late_may_miss_the_phase_of_a_slot_that_another_one_frees() {
    // Whether warp 2 waits in time is the schedule's to say: under most it does.
    let starving = (0..8).map(Schedule::Starving);
    let schedules: Vec<Schedule> = SCHEDULES.into_iter().chain(starving).collect();
    let missed = |breaks: i32| {
        let of = |schedule: &Schedule| {
            let run = ring(entry::tma_ring, 8, breaks).input(0, &input());
            run.schedule(*schedule).output::<f32>(64).err()
        };
        schedules.iter().filter_map(of).collect::<Vec<Fault>>()
    };
    let faults = missed(262144);
    assert!((1..schedules.len()).contains(&faults.len()), "{faults:#?}");
    for fault in faults {
        // It looks for the first time when the next phase has ended, too, or for the second time.
        let text = fault.to_string();
        assert!(
            text.contains(&at("tma.cu", "// for a tile"))
                && (text.contains("has 0 of 1 arrivals")
                    || text.contains("it can't tell them apart by parity")),
            "{text}"
        );
    }
    assert_eq!(missed(262144 | 524288), []);
    assert_clean(
        &ring(traced::tma_ring, 8, 262144 | 524288),
        "the warps meet before one of them frees the slot",
    );
}

#[test]
fn every_way_to_break_the_ring_is_found_and_named() {
    use HazardKind::{Deadlock, Race, ReadInFlight, Stopped, UninitialisedShared};
    let not_observed = "an mbarrier_wait_tx for that phase, by parity, is missing in this thread";
    let in_use = "who uses the slot must say that it is free";
    let breaks: [(i32, &[HazardKind], &str); 15] = [
        (1, &[ReadInFlight, Race, UninitialisedShared], not_observed),
        (2, &[Race, Stopped], "Two tma_load write these bytes"),
        (4, &[Deadlock], "phase 0, parity 0, has 0 of 64 arrivals"),
        (
            8,
            &[Deadlock],
            "512 bytes expected by mbarrier_arrive_expect_tx, 1024 brought by tma_load",
        ),
        (
            16,
            &[Deadlock],
            "exactly the bytes that mbarrier_arrive_expect_tx expects",
        ),
        (
            16,
            &[Deadlock],
            "2048 bytes expected by mbarrier_arrive_expect_tx, 1024 brought by tma_load",
        ),
        (
            32,
            &[ReadInFlight, Deadlock, Stopped],
            "the phase ended without these bytes",
        ),
        (
            64,
            &[ReadInFlight, Deadlock, UninitialisedShared],
            not_observed,
        ),
        (
            128,
            &[Stopped],
            "TMA does not know of it: the thread that initialised it",
        ),
        (
            256,
            &[ReadInFlight, Race, UninitialisedShared],
            not_observed,
        ),
        (
            1024,
            &[Deadlock],
            "mbarrier_wait_tx, the mbarrier at byte 16: phase 0, parity 0, has 0 of 64 arrivals",
        ),
        (2048, &[Race], "Two tma_load write these bytes"),
        (32768, &[Race], in_use),
        (
            131072,
            &[Race, Stopped],
            "a __syncthreads() is missing after mbarrier_init",
        ),
        (
            8 | 16384,
            &[ReadInFlight, Deadlock, Stopped],
            "the phase ended without these bytes",
        ),
    ];
    for (bits, kinds, sentence) in breaks {
        let mut texts = Vec::new();
        for schedule in SCHEDULES {
            let hazards = found(&ring(traced::tma_ring, 5, bits), schedule);
            let is_found = hazards.iter().any(|hazard| kinds.contains(&hazard.kind));
            assert!(is_found, "break {bits}, {schedule:?}: {hazards:#?}");
            texts.extend(hazards.iter().map(ToString::to_string));
        }
        assert!(
            texts.iter().any(|text| text.contains(sentence)),
            "break {bits}: {texts:#?}"
        );
    }
}

#[test]
fn missing_waits_show_in_the_plain_build() {
    let sum: f32 = input()[..5 * 256].iter().sum();
    for breaks in [1, 2, 32, 256, 8 | 16384] {
        let wrong = SCHEDULES.map(|schedule| {
            let run = ring(entry::tma_ring, 5, breaks)
                .input(0, &input())
                .schedule(schedule);
            run.output::<f32>(64).map_or(true, |sums| sums != [sum; 64])
        });
        assert!(wrong.contains(&true), "break {breaks}: {wrong:?}");
    }
}

#[test]
fn a_read_before_its_phase_names_both_places_and_what_was_brought() {
    let hazards = SCHEDULES
        .iter()
        .flat_map(|&schedule| found(&ring(traced::tma_ring, 1, 1), schedule));
    let text = hazards
        .map(|it| it.to_string())
        .find(|text| text.starts_with("read of"))
        .unwrap();
    let [load, read] = ["// brings a tile", "// reads a tile"].map(|text| at("tma.cu", text));
    assert!(
        text.starts_with("read of an in-flight copy (missing wait) in block [0, 0, 0]"),
        "{text}"
    );
    assert!(
        text.contains(&format!("writes by tma_load at {load}")) && text.contains(&read),
        "{text}"
    );
    assert!(
        text.contains(" of shared memory, copied from bytes 0-127 of in 0:"),
        "{text}"
    );
}

#[test]
fn a_slot_is_filled_again_by_who_has_read_it() {
    for tiles in [1, 2, 7] {
        assert_clean(
            &refill(traced::tma_refill, tiles, 0),
            "each lane waits; thread 0 refills after a __syncwarp",
        );
        assert_clean(
            &refill(traced::tma_refill, tiles, 16),
            "one lane waits, and all meet it",
        );
    }
    let [fills, reads] = ["// fills the slot", "// reads the slot"].map(|text| at("tma.cu", text));
    for schedule in SCHEDULES {
        let text = found(&refill(traced::tma_refill, 3, 1 | 16), schedule)[0].to_string();
        // Which of the two it is depends on who came first.
        assert!(
            (text.starts_with("race") || text.starts_with("read of an in-flight copy"))
                && text.contains(&fills)
                && text.contains(&reads),
            "{text}"
        );
    }
    for (bit, stores) in [(2, "// a store before"), (4, "// a store meanwhile")] {
        for schedule in SCHEDULES {
            let text = found(&refill(traced::tma_refill, 2, bit), schedule)[0].to_string();
            assert!(
                text.starts_with("race")
                    && text.contains(&fills)
                    && text.contains(&at("tma.cu", stores)),
                "{text}"
            );
        }
    }
    for schedule in SCHEDULES {
        let hazards = found(&refill(traced::tma_refill, 2, 32), schedule);
        let is_found = hazards
            .iter()
            .any(|hazard| hazard.kind == HazardKind::ReadInFlight);
        assert!(is_found, "a __syncthreads waits for no box: {schedule:?}");
        let fault = refill(entry::tma_refill, 2, 8)
            .input(0, &input())
            .schedule(schedule)
            .output::<f32>(32)
            .unwrap_err();
        assert!(
            fault.to_string().contains(&format!(
                "tma_load at {fills}: the block has ended, and no thread"
            )),
            "{fault}"
        );
    }
}

#[test]
fn what_a_load_overwrites_needs_its_writers_fence() {
    assert_clean(
        &refill(traced::tma_refill, 3, 64 | 128),
        "each lane fences what it has cleared",
    );
    let fills = at("tma.cu", "// fills the slot");
    let clears = at("tma.cu", "// clears the slot");
    for breaks in [64, 64 | 256] {
        for schedule in SCHEDULES {
            let hazards = found(&refill(traced::tma_refill, 3, breaks), schedule);
            let [hazard] = &hazards[..] else {
                panic!("{breaks}, {schedule:?}: {hazards:#?}")
            };
            assert_eq!(hazard.kind, HazardKind::MissingProxyFence);
            // Once for each word that another lane has cleared than the one before, by the first of the three loads alone.
            assert_eq!(hazard.times, if breaks == 64 { 256 } else { 248 });
            let text = hazard.to_string();
            assert!(
                text.contains(&clears)
                    && text.contains(&fills)
                    && text.contains("may land on top of the box"),
                "{text}"
            );
        }
    }
}

#[test]
fn stores_need_the_writers_fence_and_the_issuers_wait() {
    // What the threads write in order is swizzled when it comes to global memory.
    let turned = |i: usize| i % 512 / 32 * 32 + ((i / 4 % 8) ^ (i / 32 % 8)) * 4 + i % 4;
    for (breaks, what) in [
        (0, "all fence, meet, and one stores"),
        (1024, "TMA has brought the tile"),
    ] {
        let expected: Vec<f32> = (0..1024)
            .map(|i| if breaks == 0 { turned(i) } else { i % 512 } as f32)
            .collect();
        assert_clean(&store_tiles(traced::tma_store_tiles, breaks), what);
        for schedule in SCHEDULES {
            let run = store_tiles(entry::tma_store_tiles, breaks)
                .input(0, &input())
                .schedule(schedule);
            assert!(
                run.output::<f32>(1024).unwrap() == expected,
                "{what}, {schedule:?}"
            );
        }
    }
    let sites = |first, second| [at("tma.cu", first), at("tma.cu", second)];
    let names = |breaks: i32, kind: HazardKind, [first, second]: [String; 2], sentence: &str| {
        let text = only(&store_tiles(traced::tma_store_tiles, breaks), kind);
        assert!(
            text.contains(&first) && text.contains(&second) && text.contains(sentence),
            "{breaks}: {text}"
        );
    };
    let stores = || sites("// a tile", "// stores a tile");
    let fence = HazardKind::MissingProxyFence;
    names(
        1,
        fence,
        stores(),
        "it is missing after the write, in the thread that wrote",
    );
    names(4, fence, stores(), "one after the barrier, covers nothing");
    names(
        16,
        HazardKind::Race,
        stores(),
        "a __syncthreads() (or a barrier that both arrive at) is missing",
    );
    names(
        512,
        HazardKind::Race,
        sites("// stores a tile", "// stores a tile"),
        "each must write its own bytes",
    );
    names(
        2048,
        HazardKind::Race,
        sites("// stores a tile", "// reads back"),
        "",
    );
    // Of who only thread 0 may have fenced, it has done so for itself.
    let texts: Vec<String> = found(&store_tiles(traced::tma_store_tiles, 2), Schedule::InOrder)
        .iter()
        .map(ToString::to_string)
        .collect();
    assert!(
        !texts.is_empty()
            && texts
                .iter()
                .all(|text| text.contains("fence_proxy_async()")),
        "{texts:#?}"
    );
    for (bit, sentence) in [
        (32, "the store is in no group: tma_store_commit is missing"),
        (
            64,
            "the thread has exited without a tma_store_wait_read that covers it",
        ),
        (
            128,
            "the thread has exited without a tma_store_wait_read that covers it",
        ),
        (
            256,
            "the thread has exited without a tma_store_wait_read that covers it",
        ),
    ] {
        for schedule in SCHEDULES {
            let run = store_tiles(entry::tma_store_tiles, bit)
                .input(0, &input())
                .schedule(schedule);
            let fault = run.output::<f32>(1024).unwrap_err();
            assert!(
                fault.to_string().contains(sentence),
                "{bit}, {schedule:?}: {fault}"
            );
            let kinds: Vec<_> = found(&store_tiles(traced::tma_store_tiles, bit), schedule)
                .iter()
                .map(|it| it.kind)
                .collect();
            assert_eq!(
                kinds,
                [HazardKind::Race, HazardKind::Stopped],
                "{bit}, {schedule:?}"
            );
        }
    }
}

#[test]
fn boxes_outside_of_elements_are_out_of_bounds() {
    let run = |rows| rows_of_elements(traced::tma_ring, rows);
    let text = only(&run(8), HazardKind::OutOfBounds);
    assert!(
        text.contains("bytes 512-639 of in 0") && text.contains("reads by tma_load"),
        "{text}"
    );
    assert_clean(&run(4), "the map ends where the elements do");
}

#[test]
fn misuse_is_a_fault_with_its_place() {
    let fault = |byte, map, row, is_store| {
        let run = misused(entry::tma_misused, byte, map, row, is_store).input(0, &input());
        run.output::<f32>(1024)
            .map(|_| ())
            .map_err(|fault| fault.to_string())
    };
    let [load, store] = ["// misused load", "// misused store"].map(|text| at("tma.cu", text));
    for is_store in [false, true] {
        assert_eq!(fault(1024, is_store.into(), 0, is_store), Ok(()));
        assert_eq!(fault(3072, is_store.into(), 3, is_store), Ok(()));
        let (name, place) = if is_store {
            ("tma_store", &store)
        } else {
            ("tma_load", &load)
        };
        let refused = |byte, map, sentence: &str| {
            let text = fault(byte, map, 0, is_store).unwrap_err();
            assert!(text.contains(sentence) && text.contains(place), "{text}");
        };
        refused(
            3584,
            0,
            "its box of 1024 bytes at byte 3584 is not in shared memory, of which the launch declared 4096",
        );
        refused(
            1 << 24,
            0,
            "its box of 1024 bytes at an address elsewhere is not in shared memory",
        );
        refused(1536, 0, &format!("the box of {name} is"));
        refused(1024, -1, "its tensor map is null");
    }
    assert!(
        fault(1024, 1, -1, true)
            .unwrap_err()
            .contains("it starts at [0, -1, 0, 0] (column, row, head, batch)")
    );
    assert_eq!(
        fault(1024, 0, -9, false),
        Ok(()),
        "a load may start before the tensor"
    );
    let column = |column| {
        at_column(entry::tma_misused, column)
            .input(0, &input())
            .output::<f32>(4)
            .map(|_| ())
    };
    for odd in [2, -3, 37] {
        let text = column(odd).unwrap_err().to_string();
        assert!(
            text.contains(&format!("it starts at byte {} of a row", 4 * odd))
                && text.contains(&load),
            "{text}"
        );
    }
    assert_eq!([-4, 4, 64].map(column), [Ok(()), Ok(()), Ok(())]);
    // Boxes of 64 bytes repeat their swizzle after 512.
    let narrow = TensorMap {
        extents: [16, 64, 1, 1],
        box_columns: 16,
        box_rows: 16,
        swizzle: 64,
        ..TILES
    };
    let run = |byte| {
        let run = Run::new(entry::tma_misused, 32)
            .shared(4096)
            .number(0, byte)
            .map(Buffer::Input, narrow);
        run.input(0, &input()).output::<f32>(4)
    };
    assert!(run(1536).is_ok() && matches!(run(1280), Err(Fault::Misaligned { required: 512, .. })));
    let garbage = |words: [u64; 16]| {
        let run = Run::new(entry::tma_misused, 32)
            .shared(4096)
            .input(0, &input())
            .input(1, &words);
        run.number(0, 1024)
            .output::<f32>(4)
            .unwrap_err()
            .to_string()
    };
    assert!(
        garbage([0; 16]).contains("its tensor map is all zeros: the variant does not ask for one")
    );
    assert!(garbage([77; 16]).contains("none that was encoded for the emulator"));
}

#[test]
fn what_is_expected_is_bounded() {
    let run = |bytes: i32, times: i32| {
        let run = Run::new(entry::tma_expects, 32)
            .shared(8)
            .number(0, bytes)
            .number(1, times);
        run.output::<u8>(0)
            .map(|_| ())
            .map_err(|fault| fault.to_string())
    };
    assert_eq!(run((1 << 20) - 1, 1), Ok(()));
    assert_eq!(run(1 << 18, 3), Ok(()));
    let text = run(1 << 18, 4).unwrap_err();
    assert!(
        text.contains(
            "it expects 262144 bytes after 786432 in the same phase, and 0 to 1048575 are possible"
        ),
        "{text}"
    );
    assert!(run(-16, 1).unwrap_err().contains("it expects -16 bytes"));
}

#[test]
fn one_lane_is_elected_and_not_always_the_same_one() {
    let leaders = SCHEDULES.map(|schedule| {
        let run = Run::new(entry::elect_one, 64)
            .number(0, 32)
            .schedule(schedule);
        let elected = run.output::<i32>(64).unwrap();
        assert_eq!(elected[..32], elected[32..]);
        assert_eq!(elected.iter().sum::<i32>(), 2);
        elected.iter().position(|&elected| elected == 1).unwrap()
    });
    assert!(leaders.contains(&0) && leaders.contains(&31), "{leaders:?}");
    let fault = Run::new(entry::elect_one, 32)
        .number(0, 31)
        .output::<i32>(32)
        .unwrap_err();
    assert!(fault.to_string().contains("elect_one at"), "{fault}");
}
