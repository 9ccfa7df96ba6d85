//! What the trace of a launch knows of its tensors: rows are elements, margins and gaps are not. The kernels here are
//! Rust functions that report their accesses as the traced build of a stage does.

use common::device::Staged;
use common::device::emulated::{Selection, trace};
use common::gate::{Traced, h1};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::params::AttentionParams;
use common::problem::{Dtype, Mask, Problem, Shape};
use common::reference::Probability;
use common::resources::KernelFacts;
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

unsafe extern "C-unwind" fn reads_row(params: *const c_void) {
    // SAFETY: the emulator passes the parameters of the launch; the access is only reported, not made.
    unsafe {
        let k = &(*params.cast::<AttentionParams>()).k;
        let row = *ROW.lock().unwrap();
        __tsan_read2(k.data.cast::<u8>().wrapping_offset((k.head_stride + row * k.row_stride) as isize * 2).cast());
    }
}

unsafe extern "C-unwind" fn reads_a_scale(params: *const c_void) {
    // SAFETY: as above.
    unsafe { __tsan_read4((*params.cast::<AttentionParams>()).v.scales.cast_mut().wrapping_add(1).cast()) };
}

unsafe extern "C-unwind" fn reads_a_scale_too_many(params: *const c_void) {
    // SAFETY: as above.
    unsafe { __tsan_read4((*params.cast::<AttentionParams>()).v.scales.cast_mut().wrapping_add(2).cast()) };
}

unsafe extern "C-unwind" fn writes_an_input(params: *const c_void) {
    // SAFETY: as above.
    unsafe { __tsan_write2((*params.cast::<AttentionParams>()).q.data) };
}

fn traced(entry: emulator::Entry, dtype: Dtype) -> TraceReport {
    let shape = Shape { batch: 1, heads_q: 2, heads_kv: 2, seq_q: 5, seq_kv: 7, head_dim: 64 };
    let problem = Problem::new(shape, dtype, Mask::Full).unwrap();
    let kernel = Kernel {
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
            register_cap: 64,
            shared_cap_bytes: 0,
            probability: Probability::F32,
        },
        emulated: entry,
        traced: Some(entry),
    };
    let staged = Staged::new(&Inputs::generate(&problem, Family::Normal, 0), Layout::Strided);
    let prepared = Prepared { kernel: &kernel, grid: [1; 3] };
    trace(&prepared, &staged, Schedule::InOrder, &Selection::default()).unwrap().unwrap()
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
    assert!(text.contains("16 bytes past the end of row [0, 1, 6] of k"), "{text}");
    assert!(read(-1).hazards[0].to_string().contains("past the end of row [0, 0, 6] of k"));
    let gate = h1(&[Traced { label: "strided", report: &past }]);
    assert_eq!(gate.verdict, Verdict::Fail);
    assert!(gate.reason.starts_with("strided: out of bounds in block [0, 0, 0], bytes "), "{}", gate.reason);
}

#[test]
fn scales_and_inputs_are_bounded_too() {
    assert_eq!(traced(reads_a_scale, Dtype::E4m3).hazards, []);
    let text = traced(reads_a_scale_too_many, Dtype::E4m3).hazards[0].to_string();
    assert!(text.contains("out of bounds"), "{text}");
    let text = traced(writes_an_input, Dtype::F16).hazards[0].to_string();
    assert!(text.contains("of q") && text.contains("kernels read it and nothing else"), "{text}");
}
