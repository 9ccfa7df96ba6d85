//! Random cases on kernels that are wrong for one combination of what is drawn: each is found, and
//! shrunk to what its fault needs. The kernels are Rust functions in the place of emulated entries.

mod fake;

use common::fuzz::{self, Answer, Case, RunError};
use common::params::{AttentionKernel, AttentionMaps, AttentionParams, AttentionTensor};
use common::problem::{Dtype, Problem};
use common::stage::{Artifacts, Attention, Kernel, LoadedStage, StageInfo};
use common::verdict::{GateId, GateResult};
use fake::{INFO, Records, artifacts};
use half::f16;
use std::ffi::{CStr, c_void};
use std::sync::OnceLock;

const SEED: u64 = 20_261_128;
const DIM: i64 = 64;

struct Fake;

impl Attention for Fake {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }
    fn artifacts(&self) -> &'static Artifacts {
        static ARTIFACTS: OnceLock<Artifacts> = OnceLock::new();
        ARTIFACTS.get_or_init(|| artifacts(table::<0>, table::<1>))
    }
    fn grid(&self, _: &Kernel, _: &Problem) -> [u32; 3] {
        [1; 3]
    }
}

type Body = unsafe extern "C" fn(*const AttentionParams);

struct Variant {
    name: &'static CStr,
    /// The plain and the traced build.
    bodies: [Body; 2],
}

const VARIANTS: [Variant; 6] = [
    variant::<CORRECT>(c"correct"),
    variant::<HEADS>(c"heads"),
    variant::<DIAGONAL>(c"diagonal"),
    variant::<STRIDE>(c"stride"),
    variant::<BEHIND>(c"behind"),
    variant::<ALIGNED>(c"aligned"),
];

const fn variant<const FAULT: u8>(name: &'static CStr) -> Variant {
    Variant {
        name,
        bodies: [kernel::<FAULT, false>, kernel::<FAULT, true>],
    }
}

const CORRECT: u8 = 0;
/// Query heads take key heads by turns, and not in groups.
const HEADS: u8 = 1;
/// The causal diagonal begins in the first corner, not in the last.
const DIAGONAL: u8 = 2;
/// Heads of V are taken to follow each other.
const STRIDE: u8 = 3;
/// The last of some rows that are no whole tile is followed by one more.
const BEHIND: u8 = 4;
/// Keys are taken to begin on a boundary of 32 bytes.
const ALIGNED: u8 = 5;

unsafe extern "C" fn table<const TRACED: usize>(
    count: *mut i32,
    _maps: *mut *const AttentionMaps,
    _clusters: *mut *const i32,
) -> *const AttentionKernel {
    static RECORDS: [OnceLock<Records>; 2] = [const { OnceLock::new() }; 2];
    let table = RECORDS[TRACED].get_or_init(|| {
        let mut records = Vec::new();
        for Variant { name, bodies } in VARIANTS {
            records.push(AttentionKernel {
                family: name.as_ptr(),
                variant: name.as_ptr(),
                symbol: name.as_ptr(),
                dtype: 0,
                head_dim: DIM as i32,
                block_m: 64,
                block_n: 64,
                threads: 32,
                min_blocks: 1,
                dynamic_shared_bytes: 128,
                probability_dtype: 32,
                lse: 1,
                emulated: Some(bodies[TRACED]),
            });
        }
        Records(records)
    });
    // SAFETY: the caller passes a valid pointer.
    unsafe { table.hand_out(count) }
}

unsafe extern "C-unwind" {
    fn __tsan_write2(address: *mut c_void);
    fn __tsan_write4(address: *mut c_void);
    /// Returns the slot of the running CUDA thread, whose context begins with its index in the
    /// block.
    safe fn emulator_current_slot() -> *mut *const u32;
}

/// Address of a row's first element.
fn row(tensor: &AttentionTensor, [batch, head, row]: [i64; 3]) -> *mut f16 {
    let [b, h, s] = [tensor.batch_stride, tensor.head_stride, tensor.row_stride];
    let element = batch * b + head * h + row * s;
    tensor.data.cast::<f16>().wrapping_offset(element as isize)
}

/// The first thread computes all rows, in FP64.
unsafe extern "C" fn kernel<const FAULT: u8, const TRACED: bool>(params: *const AttentionParams) {
    // SAFETY: the launch passes live parameters, whose tensors and guard bands hold what is read
    // and written here; the slot is of this OS thread, on which a CUDA thread is running.
    unsafe {
        if **emulator_current_slot() != 0 {
            return;
        }
        let p = &*params;
        for batch in 0..i64::from(p.batch) {
            for head in 0..i64::from(p.heads_q) {
                for query in 0..i64::from(p.seq_q) {
                    attend::<FAULT, TRACED>(p, [batch, head, query]);
                }
            }
        }
    }
}

/// Writes one row of the output and its log-sum-exp.
unsafe fn attend<const FAULT: u8, const TRACED: bool>(p: &AttentionParams, at: [i64; 3]) {
    let [batch, head, query] = at;
    let keys = keys::<FAULT>(p, query);
    let key_head = match FAULT {
        HEADS => head % i64::from(p.heads_kv),
        _ => head / i64::from(p.heads_q / p.heads_kv),
    };
    // SAFETY: as in the kernel.
    unsafe {
        let q = elements(row(&p.q, at));
        let score = |key: i64| {
            let mut k = row(&p.k, [batch, key_head, key]);
            if FAULT == ALIGNED {
                k = k.map_addr(|address| address / 32 * 32);
            }
            let products = q.iter().zip(elements(k)).map(|(a, b)| a * b);
            products.sum::<f64>() * f64::from(p.softmax_scale)
        };
        let scores: Vec<f64> = (0..keys).map(score).collect();
        let max = scores.iter().copied().fold(f64::MIN, f64::max);
        let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
        // A row without keys has no weights, and 0 is right.
        let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let mut total = [0.0; DIM as usize];
        for (key, weight) in weights.iter().enumerate() {
            let values = value_row::<FAULT>(p, [batch, key_head, key as i64]);
            for (column, value) in total.iter_mut().zip(elements(values)) {
                *column += weight * value;
            }
        }
        write::<TRACED>(row(&p.o, at), &total.map(|column| column / sum));
        let is_last = query + 1 == i64::from(p.seq_q);
        if FAULT == BEHIND && is_last && query >= 16 && query % 16 != 15 {
            row(&p.o, [batch, head, query + 1]).write(f16::ONE);
        }
        if !p.lse.is_null() {
            let dense = (batch * i64::from(p.heads_q) + head) * i64::from(p.seq_q) + query;
            let lse = p.lse.offset(dense as isize);
            if TRACED {
                __tsan_write4(lse.cast());
            }
            let no_key = if keys == 0 { f64::NEG_INFINITY } else { max };
            lse.write((no_key + sum.ln()) as f32);
        }
    }
}

/// How many the query sees.
fn keys<const FAULT: u8>(p: &AttentionParams, query: i64) -> i64 {
    let (queries, keys) = (i64::from(p.seq_q), i64::from(p.seq_kv));
    match (p.mask, FAULT) {
        (0, _) => keys,
        (_, DIAGONAL) => (query + 1).min(keys),
        _ => (query + 1 + keys - queries).clamp(0, keys),
    }
}

fn value_row<const FAULT: u8>(p: &AttentionParams, at: [i64; 3]) -> *mut f16 {
    let mut v = p.v;
    if FAULT == STRIDE {
        v.head_stride = v.row_stride * i64::from(p.seq_kv);
    }
    row(&v, at)
}

unsafe fn elements(row: *const f16) -> [f64; DIM as usize] {
    // SAFETY: the caller's row has as many elements.
    std::array::from_fn(|d| unsafe { row.add(d).read() }.to_f64())
}

unsafe fn write<const TRACED: bool>(row: *mut f16, values: &[f64; DIM as usize]) {
    for (d, value) in values.iter().enumerate() {
        // SAFETY: the caller's row has as many elements.
        unsafe {
            if TRACED {
                __tsan_write2(row.add(d).cast());
            }
            row.add(d).write(f16::from_f64(*value));
        }
    }
}

/// The gates that the case fails; none if the kernel is for another head size.
fn failures(stage: &LoadedStage, variant: &str, case: &Case) -> Vec<GateResult> {
    match fuzz::run(stage, variant, case, None) {
        Ok(checked) => checked
            .gates
            .into_iter()
            .filter(GateResult::is_fail)
            .collect(),
        Err(RunError::NoOutput(common::check::NoOutput::Unsupported(_))) => vec![],
        Err(error) => panic!("{case}: {error}"),
    }
}

/// A fault that random cases found.
#[derive(Debug, PartialEq)]
struct FoundFault {
    /// The number of the first case that fails.
    index: u64,
    gate: GateId,
    /// The text of the smallest case.
    smallest: String,
}

/// Finds the first of 40 drawn cases that fails, and shrinks it. The text of the smallest case,
/// read again, fails the same gate.
fn find_fault(variant: &str) -> Option<FoundFault> {
    let stage = LoadedStage::load(&Fake).unwrap();
    for index in 0..40 {
        let drawn = fuzz::draw(SEED, index, &[Dtype::F16]);
        if let Some(failure) = failures(&stage, variant, &drawn).first() {
            return Some(FoundFault {
                index,
                gate: failure.gate,
                smallest: smallest(&stage, variant, drawn, failure.gate),
            });
        }
    }
    None
}

fn smallest(stage: &LoadedStage, variant: &str, first: Case, gate: GateId) -> String {
    let fails = |case: &Case| {
        let mut failed = failures(stage, variant, case).into_iter();
        failed.any(|result| result.gate == gate)
    };
    let shrunk = fuzz::shrink(first, 1_000, |case| {
        if fails(case) {
            Answer::Fails
        } else {
            Answer::Passes
        }
    });
    assert!(shrunk.is_smallest, "{shrunk:?}");
    let text = shrunk.case.to_string();
    let again: Case = text.parse().unwrap();
    assert!(fails(&again), "{text}");
    text
}

#[test]
fn a_kernel_that_is_right_passes_every_case() {
    assert_eq!(find_fault("correct"), None);
}

#[test]
fn a_wrong_head_needs_two_groups_of_two() {
    let fault = find_fault("heads").unwrap();
    assert_eq!(fault.smallest, "1x4:2x1x64 f16 full normal:0");
    assert!(fault.index < 20, "{fault:?}");
}

#[test]
fn a_wrong_diagonal_needs_a_mask_and_one_key_more() {
    let fault = find_fault("diagonal").unwrap();
    assert_eq!(fault.smallest, "1x1x1:2x64 f16 causal normal:0");
    assert!(fault.index < 20, "{fault:?}");
}

#[test]
fn a_wrong_stride_needs_a_second_head_and_another_order() {
    let fault = find_fault("stride").unwrap();
    assert_eq!(fault.smallest, "1x2x1x64 f16 full normal:0 v=bshd");
    assert!(fault.index < 20, "{fault:?}");
}

#[test]
fn a_row_too_many_needs_as_many_rows_as_show_it() {
    let fault = find_fault("behind").unwrap();
    assert_eq!(fault.gate, GateId::C6);
    assert_eq!(fault.smallest, "1x1x17:1x64 f16 full normal:0");
    assert!(fault.index < 20, "{fault:?}");
}

#[test]
fn a_wrong_alignment_needs_a_gap() {
    let fault = find_fault("aligned").unwrap();
    assert_eq!(fault.smallest, "1x1x1:2x64 f16 full normal:0 k=bhsd/s16");
    assert!(fault.index < 20, "{fault:?}");
}

#[test]
fn a_small_case_is_judged_for_hazards() {
    let stage = LoadedStage::load(&Fake).unwrap();
    let case: Case = "1x1x17:1x64 f16 full normal:0".parse().unwrap();
    assert!(case.is_small());
    let checked = fuzz::run(&stage, "correct", &case, None).unwrap();
    let mut gates = checked.gates.iter();
    assert!(gates.any(|result| result.gate == GateId::H1));
}
