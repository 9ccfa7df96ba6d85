//! What the trace of a launch knows of its tensors: rows are elements, guard bands and gaps are
//! not. The kernels here are Rust functions that report their accesses as the traced build of a
//! stage does.

use common::device::Staged;
use common::device::emulated::{Selection, trace};
use common::evidence::{CountedLaunch, NotCounted, count};
use common::gate::{Traced, h1};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::params::AttentionParams;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::Probability;
use common::resources::{Caps, KernelFacts};
use common::serving::Serving;
use common::stage::{Kernel, Prepared};
use common::verdict::Verdict;
use emulator::trace::HazardKind;
use emulator::{Schedule, TraceReport};
use std::ffi::c_void;

unsafe extern "C-unwind" {
    fn __tsan_read2(address: *mut c_void);
    fn __tsan_read4(address: *mut c_void);
    fn __tsan_write2(address: *mut c_void);
}

/// Row of head 1 of K that [`reads_row`] reads.
static ROW: std::sync::Mutex<i64> = std::sync::Mutex::new(0);

/// A kernel of one access, which is only reported, not made.
macro_rules! kernel {
    ($name:ident, $access:ident, |$params:ident| $address:expr) => {
        unsafe extern "C-unwind" fn $name(params: *const c_void) {
            // SAFETY: the emulator passes the parameters of the launch.
            unsafe {
                let $params = &*params.cast::<AttentionParams>();
                $access($address.cast());
            }
        }
    };
}
kernel!(reads_row, __tsan_read2, |params| {
    let row = params.k.head_stride + *ROW.lock().unwrap() * params.k.row_stride;
    params.k.data.cast::<u16>().wrapping_offset(row as isize)
});
kernel!(reads_a_scale, __tsan_read4, |params| params
    .v
    .scales
    .cast_mut()
    .wrapping_add(1));
kernel!(reads_a_scale_too_many, __tsan_read4, |params| params
    .v
    .scales
    .cast_mut()
    .wrapping_add(2));
kernel!(writes_an_input, __tsan_write2, |params| params.q.data);
kernel!(reads_an_element, __tsan_read2, |params| params.q.data);

fn fake(entry: emulator::Entry, dtype: Dtype) -> Kernel {
    Kernel {
        family: "fake".into(),
        variant: "fake".into(),
        facts: KernelFacts {
            symbol: "fake".into(),
            dtype,
            head_dim: 64,
            block_m: 16,
            block_n: 16,
            threads: 32,
            min_blocks: 1,
            dynamic_shared_bytes: 0,
            boxes: None,
            cluster: 1,
            caps: Some(Caps {
                register_cap: 64,
                shared_cap_bytes: 0,
            }),
            probability: Probability::F32,
            lse: true,
        },
        emulated: Some(entry),
        traced: Some(entry),
    }
}

/// Two heads of `seq_q` queries and 7 keys.
fn staged(seq_q: usize, dtype: Dtype) -> Staged {
    let shape = Shape {
        batch: 1,
        heads_q: 2,
        heads_kv: 2,
        seq_q,
        seq_kv: 7,
        head_dim: 64,
        serving: Serving::DENSE,
    };
    let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
    Staged::new(
        &Inputs::generate(&problem, Family::Normal, 0),
        Layout::Strided,
    )
}

fn traced(entry: emulator::Entry, dtype: Dtype) -> TraceReport {
    let kernel = fake(entry, dtype);
    let prepared = Prepared {
        kernel: &kernel,
        grid: [1; 3],
        is_persistent: false,
        deals_rows: false,
        lse: false,
    };
    trace(
        &prepared,
        &staged(5, dtype),
        Schedule::InOrder,
        &Selection::default(),
    )
    .unwrap()
}

#[test]
fn rows_are_elements_and_what_lies_between_is_not() {
    let read = |row| {
        *ROW.lock().unwrap() = row;
        traced(reads_row, Dtype::F16)
    };
    for row in [0, 6] {
        assert_eq!(read(row).hazards, [], "row {row}");
    }
    let past = read(7);
    assert_eq!(past.hazards[0].kind, HazardKind::OutOfBounds);
    let text = past.hazards[0].to_string();
    assert!(
        text.contains("32 bytes past the end of row [0, 1, 6] of k"),
        "{text}"
    );
    assert!(
        read(-1).hazards[0]
            .to_string()
            .contains("past the end of row [0, 0, 6] of k")
    );
    let strided = Traced {
        label: "strided",
        report: &past,
    };
    let gate = h1(&[strided], 0);
    assert_eq!(gate.verdict, Verdict::Fail);
    assert!(
        gate.reason
            .starts_with("strided: out of bounds in block [0, 0, 0], bytes "),
        "{}",
        gate.reason
    );
}

#[test]
fn scales_and_inputs_are_bounded_too() {
    assert_eq!(traced(reads_a_scale, Dtype::E4m3).hazards, []);
    let of_scales = traced(reads_a_scale_too_many, Dtype::E4m3).hazards[0].to_string();
    assert!(of_scales.contains("out of bounds"), "{of_scales}");
    let of_input = traced(writes_an_input, Dtype::F16).hazards[0].to_string();
    assert!(of_input.contains("of q"), "{of_input}");
    assert!(
        of_input.contains("kernels read it and nothing else"),
        "{of_input}"
    );
}

#[test]
fn a_launch_is_counted_from_two_blocks_only_where_all_are_alike() {
    let count_of = |kernel: &Kernel, seq_q: usize, grid| {
        let prepared = Prepared {
            kernel,
            grid,
            is_persistent: false,
            deals_rows: false,
            lse: false,
        };
        count(&prepared, &staged(seq_q, Dtype::F16))
    };
    let kernel = fake(reads_an_element, Dtype::F16);
    // Tiles of 16 queries and 16 keys; every thread of every block reads one element of 2 bytes.
    for (seq_q, grid, traced, blocks) in [
        (48, [3, 2, 1], 2, 6),
        (47, [3, 2, 1], 6, 6),
        (48, [2, 1, 1], 2, 2),
    ] {
        let CountedLaunch {
            counters,
            traced_blocks,
            launch_blocks,
            tiles,
        } = count_of(&kernel, seq_q, grid).unwrap();
        assert_eq!(
            (traced_blocks, launch_blocks, tiles),
            (traced, blocks, 6),
            "{seq_q}, {grid:?}"
        );
        assert_eq!(
            counters.global_read.bytes,
            blocks * 32 * 2,
            "{seq_q}, {grid:?}"
        );
    }
    let broken = count_of(&fake(writes_an_input, Dtype::F16), 48, [3, 2, 1]);
    assert!(
        matches!(&broken, Err(NotCounted::Hazard(reason)) if reason.contains("of q")),
        "{broken:?}"
    );
}
