//! TMA: where a box lies, what lies outside of the tensor, and every way to use it wrongly.

use emulator::{Fault, Schedule, TensorMap};

use crate::launch::{Buffer, SCHEDULES, TILES, bytes_of, hazards, launch, place};
use crate::ptx::Case;

/// A tensor that is not dense, with elements of `element_bytes` and boxes of 16 rows.
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

    /// Returns the tensor's byte at a byte of a row; none outside.
    fn at(&self, at: [i64; 4]) -> Option<usize> {
        let [columns, rows, heads, batches] = self.map.extents;
        let row_bytes = columns * u64::from(self.map.element_bytes);
        let extents = [row_bytes, rows, heads, batches];
        let [per_row, per_head, per_batch] = self.map.strides;
        let mut offset = 64;
        for (axis, stride) in [1, per_row, per_head, per_batch].into_iter().enumerate() {
            if !(0..extents[axis] as i64).contains(&at[axis]) {
                return None;
            }
            offset += at[axis] * stride as i64;
        }
        Some(offset as usize)
    }

    /// Returns, for each byte of the box in shared memory, the byte of the tensor. By the figure of
    /// the PTX ISA, 16-byte chunk c of row r of 128 bytes lies at chunk c ^ (r % 8); of 64 bytes:
    /// two rows share 128 bytes, c ^ (r / 2 % 4).
    fn layout(&self, at: [i32; 4]) -> Vec<Option<usize>> {
        let [column, first_row, head, batch] = at.map(i64::from);
        let span = self.map.swizzle as usize;
        let mut layout = vec![None; 16 * span];
        for row in 0..16 {
            for byte in 0..span {
                let turn = if span == 128 { row % 8 } else { row / 2 % 4 };
                let place = row * span + ((byte / 16) ^ turn) * 16 + byte % 16;
                let start = column * i64::from(self.map.element_bytes);
                layout[place] = self.at([start + byte as i64, first_row + row as i64, head, batch]);
            }
        }
        layout
    }
}

/// The places of whole boxes, and of boxes that begin or end outside.
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

/// A box of a tensor.
struct TensorBox {
    /// The place of each byte in the tensor, if it has one there.
    layout: Vec<Option<usize>>,
    load: Case,
    /// None where the box begins before the tensor.
    store: Option<Case>,
}

/// Returns each box of each tensor.
fn boxes() -> Vec<TensorBox> {
    let mut boxes = Vec::new();
    for (swizzle, element_bytes) in [(64, 1), (64, 2), (128, 1), (128, 2), (128, 4)] {
        let tensor = Tensor::new(swizzle, element_bytes);
        boxes.extend(PLACES.map(|place| {
            let is_stored = place.iter().all(|&at| at >= 0);
            TensorBox {
                layout: tensor.layout(place),
                load: tensor.load(place),
                store: is_stored.then(|| tensor.store(place)),
            }
        }));
    }
    boxes
}

impl Tensor {
    /// Loads the box at `place`.
    fn load(&self, place: [i32; 4]) -> Case {
        let mut expected = Vec::new();
        for from in self.layout(place) {
            expected.push(from.map_or(0, |byte| self.input[byte]));
        }
        let text = format!("tma_box<<<1, 64, 3072>>>({})", expected.len());
        self.case(text, &self.input, place, Buffer::Input, expected)
    }

    /// Stores a box there.
    fn store(&self, place: [i32; 4]) -> Case {
        let layout = self.layout(place);
        let box_bytes: Vec<u8> = (0..layout.len())
            .map(|i| (i * 5 + i / 256 + 1) as u8)
            .collect();
        let mut expected = vec![0; self.input.len()];
        for (place_in_tensor, &byte) in layout.iter().zip(&box_bytes) {
            if let Some(to) = place_in_tensor {
                expected[*to] = byte;
            }
        }
        let text = format!("tma_store_box<<<1, 64, 3072>>>({})", box_bytes.len());
        self.case(text, &box_bytes, place, Buffer::Output, expected)
    }

    fn case(
        &self,
        text: String,
        input: &[u8],
        place: [i32; 4],
        buffer: Buffer,
        expected: Vec<u8>,
    ) -> Case {
        let places = bytes_of(&place);
        let mut case = Case::new(text, [input.to_vec(), vec![], places], expected);
        case.run = case.run.map(buffer, self.map);
        case
    }
}

/// Returns boxes at all places, and launches that give what the first schedule gives.
pub fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for TensorBox { load, store, .. } in boxes() {
        cases.push(load);
        cases.extend(store);
    }
    let mut launches = Vec::new();
    for tiles in [1, 2, 3, 8] {
        for breaks in [
            "0",
            "256+512",
            "4096",
            "8192",
            "16384",
            "32768+65536",
            "262144+524288",
        ] {
            let text = format!("tma_ring<<<1, 96, 5120>>>({tiles}, {breaks})");
            launches.push((text, 64));
        }
        for breaks in [0, 16] {
            let text = format!("tma_refill<<<1, 32, 2048>>>({tiles}, {breaks})");
            launches.push((text, 32));
        }
    }
    for breaks in [0, 1024] {
        let text = format!("tma_store_tiles<<<2, 64, 4096>>>(2, {breaks})");
        launches.push((text, 1024));
    }
    cases.extend(launches.into_iter().map(|(text, floats)| {
        let expected = launch(&text).output(4 * floats).unwrap();
        Case::new(text, [], expected)
    }));
    cases
}

#[test]
fn bytes_of_a_box_are_counted_as_far_as_they_lie_in_the_tensor() {
    for tensor_box in boxes() {
        let TensorBox {
            layout,
            load,
            store,
        } = tensor_box;
        let inside = layout.iter().flatten().count() as u64;
        let loaded = load.run.counted(layout.len());
        assert_eq!(
            (loaded.tma_read_bytes, loaded.shared_async_write.bytes),
            (inside, layout.len() as u64)
        );
        if let Some(case) = store {
            let stored = case.run.counted(case.expected.len());
            assert_eq!(stored.tma_write_bytes, inside);
        }
    }
}

#[test]
fn every_lane_sums_all_boxes() {
    let run = launch("tma_ring<<<1, 96, 5120>>>(4, 0)");
    let sum: f32 = (0..256 * 4).map(|i| i as f32).sum();
    assert_eq!(run.output::<f32>(64).unwrap(), [sum; 64]);
    let counted = run.counted(256);
    let (read, write) = (counted.global_read, counted.shared_async_write);
    assert_eq!((counted.tma_read_bytes, read.bytes), (4096, 4096));
    assert_eq!((read.requests, read.sectors), (4, 128));
    assert_eq!(
        (write.bytes, write.wavefronts, write.conflicts()),
        (4096, 32, 0)
    );
    let waits = (counted.mbarrier_arrivals, counted.mbarrier_waits);
    assert_eq!(waits, (4 * 65, 4 * 65));
}

#[test]
fn a_warp_that_comes_late_may_miss_the_phase_of_a_slot_that_another_one_frees() {
    // Whether warp 2 waits in time is the schedule's to say: under most it does.
    let starving = (0..8).map(Schedule::Starving);
    let schedules: Vec<Schedule> = SCHEDULES.into_iter().chain(starving).collect();
    let missed = |text| {
        let run = launch(text);
        let fault = |&schedule: &Schedule| run.clone().schedule(schedule).output::<f32>(64).err();
        schedules.iter().filter_map(fault).collect::<Vec<Fault>>()
    };
    let faults = missed("tma_ring<<<1, 96, 5120>>>(8, 262144)");
    assert!((1..schedules.len()).contains(&faults.len()), "{faults:#?}");
    for fault in faults {
        // It looks for the first time when the next phase has ended, too, or for the second time.
        let text = fault.to_string();
        assert!(
            text.contains(&place("tma.cu", "// for a tile").to_string())
                && (text.contains("has 0 of 1 arrivals")
                    || text.contains("it can't tell them apart by parity")),
            "{text}"
        );
    }
    assert_eq!(missed("tma_ring<<<1, 96, 5120>>>(8, 262144+524288)"), []);
}

#[test]
fn missing_waits_show_in_the_plain_build() {
    let sum: f32 = (0..5 * 256).map(|i| i as f32).sum();
    for breaks in ["1", "2", "32", "256", "8+16384"] {
        let run = launch(&format!("tma_ring<<<1, 96, 5120>>>(5, {breaks})"));
        let wrong = SCHEDULES.map(|schedule| {
            let output = run.clone().schedule(schedule).output::<f32>(64);
            output.map_or(true, |sums| sums != [sum; 64])
        });
        assert!(wrong.contains(&true), "break {breaks}: {wrong:?}");
    }
}

#[test]
fn what_a_load_overwrites_is_counted_word_by_word() {
    // Once for each word that another lane has cleared than the one before, by the first of the
    // three loads alone.
    for (breaks, times) in [("64", 256), ("64+256", 248)] {
        let reported = hazards(&format!("tma_refill<<<1, 32, 2048>>>(3, {breaks})"));
        let counts: Vec<u64> = reported.iter().map(|(hazard, _)| hazard.times).collect();
        assert_eq!(counts, [times]);
    }
}

#[test]
fn a_stored_tile_is_turned_by_its_swizzle() {
    let as_it_lies: Vec<f32> = (0..1024).map(|i| (i % 512) as f32).collect();
    let turned: Vec<f32> = (0..1024)
        .map(|i| i % 512 / 32 * 32 + ((i / 4 % 8) ^ (i / 32 % 8)) * 4 + i % 4)
        .map(|i| i as f32)
        .collect();
    for (breaks, expected) in [(0, turned), (1024, as_it_lies)] {
        let run = launch(&format!("tma_store_tiles<<<2, 64, 4096>>>(2, {breaks})"));
        assert!(run.output::<f32>(1024).unwrap() == expected, "{breaks}");
    }
}

#[test]
fn maps_are_checked_where_they_are_used() {
    // Boxes of 64 bytes repeat their swizzle after 512.
    let narrow = TensorMap {
        extents: [16, 64, 1, 1],
        box_columns: 16,
        box_rows: 16,
        swizzle: 64,
        ..TILES
    };
    let load_at = |byte| {
        let run = launch(&format!("tma_misused<<<1, 32, 4096>>>({byte}, 2)"));
        run.map(Buffer::Input, narrow).output::<f32>(4)
    };
    assert!(load_at(1536).is_ok());
    let misaligned = load_at(1280);
    assert!(matches!(
        misaligned,
        Err(Fault::Misaligned { required: 512, .. })
    ));
    let garbage = |words: [u64; 16]| {
        let run = launch("tma_misused<<<1, 32, 4096>>>(1024)").input(1, &words);
        run.output::<f32>(4).unwrap_err().to_string()
    };
    assert!(
        garbage([0; 16]).contains("its tensor map is all zeros: the variant does not ask for one")
    );
    assert!(garbage([77; 16]).contains("none that was encoded for the emulator"));
}

#[test]
fn one_lane_is_elected_and_not_always_the_same_one() {
    let leaders = SCHEDULES.map(|schedule| {
        let run = launch("elect_one<<<1, 64, 0>>>(32)").schedule(schedule);
        let elected = run.output::<i32>(64).unwrap();
        assert_eq!(elected[..32], elected[32..]);
        assert_eq!(elected.iter().sum::<i32>(), 2);
        elected.iter().position(|&mark| mark == 1).unwrap()
    });
    assert!(leaders.contains(&0) && leaders.contains(&31), "{leaders:?}");
}
