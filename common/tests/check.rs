//! The whole path of a case, and of a synchronisation site left out, with stages that are wrong in
//! known ways: each must be caught by the gate that is there for it. The kernels are Rust functions
//! in the place of emulated entries.

mod fake;

use common::check::{NoOutput, Outcome, StagedInputs, Target, both_backends, check};
use common::inputs::{Family, Inputs};
use common::limits::DeviceLimits;
use common::params::{self, AttentionKernel, AttentionMaps, AttentionParams};
use common::problem::{Dtype, Mask, Problem, Shape};
use common::stage::{Artifacts, Attention, Kernel, LoadedStage, Redundant, StageInfo, Unsupported};
use common::suppression::{Finding, Presets, suppress_each};
use common::tier0::SCHEDULES;
use common::verdict::{GateId, Verdict};
use emulator::Schedule;
use fake::{INFO, Records, artifacts};
use half::f16;
use std::ffi::{CStr, c_char, c_void};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

struct Fake;

impl Attention for Fake {
    fn info(&self) -> &'static StageInfo {
        &INFO
    }
    fn artifacts(&self) -> &'static Artifacts {
        static ARTIFACTS: OnceLock<Artifacts> = OnceLock::new();
        ARTIFACTS.get_or_init(|| artifacts(table::<0>, table::<1>))
    }
    fn accepts(&self, kernel: &Kernel, _: &Problem) -> Result<(), Unsupported> {
        match kernel.variant.as_str() {
            "refuses" => Err(Unsupported::Problem {
                variant: "refuses".into(),
                reason: "on principle".into(),
            }),
            _ => Ok(()),
        }
    }
}

type Body = unsafe extern "C" fn(*const AttentionParams);

/// Those whose name begins with `lse` say that they write log-sum-exps.
const VARIANTS: [(&CStr, Body); 18] = [
    (c"correct", correct),
    (c"writes_nothing", nothing),
    (c"writes_zeros", zeros),
    (c"writes_behind_the_row", behind_the_row),
    (c"writes_behind_a_packed_row", behind_a_packed_row),
    (c"changes_an_input", changes_an_input),
    (c"differs_by_call", differs_by_call),
    (c"wrong_on_packed_rows", wrong_on_packed_rows),
    (c"wrong_past_2_to_the_31", wrong_past_2_to_the_31),
    (c"hazardous_when_traced_again", correct),
    (c"other_when_traced", correct),
    (c"traced_in_part", correct),
    (c"refuses", nothing),
    (c"lse_right", correct),
    (c"lse_unset", unset_lse),
    (c"lse_behind_the_last", lse_behind_the_last),
    (c"lse_spoils_the_output", lse_spoils_the_output),
    (c"lse_differs_by_call", lse_differs_by_call),
];

/// The variants of [`Synchronised`]: two warps, tiles of 16 rows. Those whose name begins with
/// `scaled` are E4M3.
const SYNCHRONISED: [(&CStr, Body); 9] = [
    (c"racy", races),
    (c"idle", nothing),
    (c"scaled", waits_at_large_scales),
    (c"scaled_racy", races_at_large_scales),
    (c"scaled_ordered", strays_out_of_order),
    (c"scaled_reversed", strays_in_reverse),
    (c"ordered", waits_for_nothing),
    (c"ordered_too", writes_in_order),
    (c"rising", writes_many_large_tiles_in_order),
];

/// 0: plain; 1: traced, where some report their stores and the others are as if they had not been
/// instrumented, which gate H1 must notice; 2: of [`Synchronised`].
unsafe extern "C" fn table<const WHICH: usize>(
    count: *mut i32,
    _maps: *mut *const AttentionMaps,
    _clusters: *mut *const i32,
) -> *const AttentionKernel {
    static RECORDS: [OnceLock<Records>; 3] = [const { OnceLock::new() }; 3];
    let records = RECORDS[WHICH].get_or_init(|| match WHICH {
        2 => Records::new(&SYNCHRONISED, (16, 64), |_, body| body),
        _ => Records::new(&VARIANTS, (1024, 32), |name, body| match name.to_bytes() {
            b"correct" | b"wrong_past_2_to_the_31" if WHICH == 1 => traced_correct,
            b"hazardous_when_traced_again" if WHICH == 1 => traced_later,
            b"other_when_traced" if WHICH == 1 => traced_other,
            b"traced_in_part" if WHICH == 1 => traced_in_part,
            _ => body,
        }),
    });
    // SAFETY: the caller passes a valid pointer.
    unsafe { records.hand_out(count) }
}

impl Records {
    fn new(
        variants: &[(&'static CStr, Body)],
        (block_m, threads): (i32, i32),
        body_of: impl Fn(&CStr, Body) -> Body,
    ) -> Self {
        let mut records = Vec::new();
        for &(name, body) in variants {
            let dtype = if name.to_bytes().starts_with(b"scaled") {
                params::AttentionDtype_ATTENTION_E4M3 as i32
            } else {
                0
            };
            records.push(AttentionKernel {
                family: match name.to_bytes() {
                    b"ordered_too" => c"ordered".as_ptr(),
                    _ => name.as_ptr() as *const c_char,
                },
                variant: name.as_ptr() as *const c_char,
                symbol: name.as_ptr() as *const c_char,
                dtype,
                head_dim: 64,
                block_m,
                block_n: 16,
                threads,
                min_blocks: 1,
                dynamic_shared_bytes: 128,
                probability_dtype: 32,
                lse: i32::from(name.to_bytes().starts_with(b"lse")),
                emulated: Some(body_of(name, body)),
            });
        }
        Self(records)
    }
}

unsafe extern "C-unwind" {
    fn __tsan_write2(address: *mut c_void);
    fn __tsan_write4(address: *mut c_void);
    /// Returns the slot of the running CUDA thread, whose context begins with its index in the
    /// block.
    safe fn emulator_current_slot() -> *mut *const u32;
    fn emulator_barrier(thread: *const u32, site: Site);
}

/// A place in a source, as `emulator/abi.h` declares it.
#[repr(C)]
struct Site(*const c_char, u32, u32);

fn thread() -> (*const u32, u32) {
    // SAFETY: the slot is of this OS thread, on which a CUDA thread is running.
    unsafe {
        let thread = *emulator_current_slot();
        (thread, *thread)
    }
}

/// `__syncthreads` on the first line of `fake.cu`.
fn wait_for_all() {
    // SAFETY: the thread is the running one, and the file's name lives for ever.
    unsafe { emulator_barrier(thread().0, Site(c"fake.cu".as_ptr(), 1, 0)) };
}

/// A kernel of parameters `$p`.
macro_rules! kernel {
    ($(#[$doc:meta])* $name:ident, |$p:ident| $body:expr) => {
        $(#[$doc])*
        unsafe extern "C" fn $name(params: *const AttentionParams) {
            // SAFETY: the launch passes live parameters, whose tensors and guard bands hold what is
            // written here, inputs on the emulator, too; what is only reported is not made.
            unsafe {
                let $p = &*params;
                $body
            }
        }
    };
}

/// Address of output element [0, 0, row, d] (one batch and head in these tests).
fn o(p: &AttentionParams, row: i64, d: i64) -> *mut f16 {
    p.o.data
        .cast::<f16>()
        .wrapping_offset((row * p.o.row_stride + d) as isize)
}

/// The first thread reports the stores of all rows but the first `missing`.
unsafe fn report(p: &AttentionParams, missing: i64) {
    if thread().1 == 0 {
        let elements = (missing..p.seq_q.into()).flat_map(|row| (0..64).map(move |d| (row, d)));
        // SAFETY: what is reported lies in the output.
        elements.for_each(|(row, d)| unsafe { __tsan_write2(o(p, row, d).cast()) });
    }
}

/// Reports a store behind the last row.
unsafe fn stray(p: &AttentionParams) {
    // SAFETY: what is reported is not made.
    unsafe { __tsan_write2(o(p, p.seq_q.into(), 0).cast()) };
}

kernel!(traced_correct, |p| {
    correct(p);
    report(p, 0);
});

kernel!(
    /// From the second launch on a store behind the last row.
    traced_later,
    |p| {
        static LAUNCHES: AtomicU32 = AtomicU32::new(0);
        traced_correct(p);
        if thread().1 == 0 && LAUNCHES.fetch_add(1, Ordering::Relaxed) > 0 {
            stray(p);
        }
    }
);

kernel!(
    /// Writes another last bit.
    traced_other,
    |p| {
        traced_correct(p);
        *o(p, 0, 0).cast::<u16>() ^= 1;
    }
);

kernel!(traced_in_part, |p| {
    correct(p);
    report(p, 2);
});

kernel!(
    /// Every thread of every block writes the same element.
    races,
    |p| __tsan_write4(p.o.data)
);

/// A problem of E4M3 has a scale for its only head.
unsafe fn has_large_scales(p: &AttentionParams) -> bool {
    // SAFETY: see above.
    unsafe { *p.q.scales > 0.02 }
}

kernel!(waits_at_large_scales, |p| if has_large_scales(p) {
    wait_for_all();
});

kernel!(races_at_large_scales, |p| if has_large_scales(p) {
    races(p);
});

kernel!(
    /// The last warp strays if it comes before the first.
    strays_out_of_order,
    |p| {
        let is_first_before = was_first_before(p);
        if thread().1 == 63 && !is_first_before {
            stray(p);
        }
    }
);

kernel!(
    /// The first warp strays if the last comes before it: no barrier helps.
    strays_in_reverse,
    |p| {
        let first = o(p, 0, 0);
        match thread().1 {
            63 => first.write(f16::ZERO),
            0 if first.read() == f16::ZERO => stray(p),
            _ => {}
        }
        wait_for_all();
    }
);

kernel!(waits_for_nothing, |p| {
    wait_for_all();
    if thread().1 == 63 {
        correct(p);
    }
});

kernel!(
    /// The last warp writes, if the first has told it to. No access is reported: without the
    /// barrier only a schedule shows it.
    writes_in_order,
    |p| {
        let is_first_before = was_first_before(p);
        if thread().1 == 63 {
            if is_first_before {
                correct(p);
            } else {
                zeros(p);
            }
        }
    }
);

kernel!(
    /// Needs its barrier for more than 14 tiles of large scores alone.
    writes_many_large_tiles_in_order,
    |p| {
        let query = p.q.data.cast::<f16>();
        let is_large = (0..64).any(|d| f32::from(query.offset(d).read()) > 8.0);
        if is_large && p.seq_kv > 14 * 16 {
            writes_in_order(p);
        } else {
            waits_for_nothing(p);
        }
    }
);

/// Whether the first thread of the block came before a barrier; it leaves a 0 where nothing was
/// written.
unsafe fn was_first_before(p: &AttentionParams) -> bool {
    let first = o(p, 0, 0);
    // SAFETY: an element of the output.
    unsafe {
        if thread().1 == 0 {
            first.write(f16::ZERO);
        }
        wait_for_all();
        first.read() == f16::ZERO
    }
}

kernel!(
    /// Every thread writes the whole output: slow, and right.
    correct,
    |p| {
        let at = |t: &common::params::AttentionTensor, row: i64, d: i64| {
            let element = t.data.cast::<f16>().offset((row * t.row_stride + d) as isize);
            f64::from((*element).to_f32())
        };
        for row in 0..i64::from(p.seq_q) {
            let keys = match p.mask {
                0 => i64::from(p.seq_kv),
                _ => row + 1 + i64::from(p.seq_kv - p.seq_q),
            };
            let mut scores = Vec::new();
            for key in 0..keys {
                let products = (0..64).map(|d| at(&p.q, row, d) * at(&p.k, key, d));
                scores.push(products.sum::<f64>() * f64::from(p.softmax_scale));
            }
            let max = scores.iter().cloned().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - max).exp()).collect();
            // A row without keys has no weights, and 0 is right.
            let sum = weights.iter().sum::<f64>().max(f64::MIN_POSITIVE);
            if !p.lse.is_null() {
                let lse = p.lse.offset(row as isize);
                lse.write((max + sum.ln()) as f32);
            }
            for d in 0..64 {
                let value: f64 = weights
                    .iter()
                    .enumerate()
                    .map(|(key, w)| w * at(&p.v, key as i64, d))
                    .sum();
                o(p, row, d).write(f16::from_f64(value / sum));
            }
        }
    }
);

unsafe extern "C" fn nothing(_: *const AttentionParams) {}

kernel!(zeros, |p| for row in 0..i64::from(p.seq_q) {
    (0..64).for_each(|d| o(p, row, d).write(f16::ZERO));
});

kernel!(behind_the_row, |p| {
    correct(p);
    o(p, p.seq_q.into(), 0).write(f16::ONE);
});

kernel!(behind_a_packed_row, |p| if p.o.row_stride == 64 {
    behind_the_row(p);
} else {
    correct(p);
});

kernel!(changes_an_input, |p| {
    correct(p);
    let behind = i64::from(p.seq_kv) * p.k.row_stride;
    p.k.data
        .cast::<f16>()
        .offset(behind as isize)
        .write(f16::ONE);
});

/// 0 or 1, another one from launch to launch of 32 threads.
fn of_launch(calls: &AtomicU32) -> u32 {
    calls.fetch_add(1, Ordering::Relaxed) / 32 % 2
}

kernel!(differs_by_call, |p| {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    correct(p);
    *o(p, 0, 0).cast::<u16>() ^= of_launch(&CALLS) as u16;
});

kernel!(unset_lse, |p| {
    let mut p = *p;
    p.lse = std::ptr::null_mut();
    correct(&p);
});

kernel!(lse_behind_the_last, |p| {
    correct(p);
    if !p.lse.is_null() {
        p.lse.offset(p.seq_q as isize).write(0.0);
    }
});

kernel!(
    /// Only between launches that are asked for log-sum-exps.
    lse_differs_by_call,
    |p| {
        static CALLS: AtomicU32 = AtomicU32::new(0);
        correct(p);
        if !p.lse.is_null() {
            *p.lse.cast::<u32>() ^= of_launch(&CALLS);
        }
    }
);

kernel!(lse_spoils_the_output, |p| {
    correct(p);
    if !p.lse.is_null() {
        *o(p, 0, 0).cast::<u16>() ^= 1;
    }
});

kernel!(wrong_on_packed_rows, |p| if p.k.row_stride == 64 {
    zeros(p);
} else {
    correct(p);
});

kernel!(wrong_past_2_to_the_31, |p| {
    let last_key = p.k.row_stride * i64::from(p.seq_kv - 1);
    if last_key > i64::from(i32::MAX) {
        zeros(p);
    } else {
        correct(p);
    }
});

fn problem() -> Problem {
    Problem::new(Shape::bhsd(1, 1, 5, 64), Dtype::F16, Mask::Full).unwrap()
}

fn outcome(variant: &str) -> Outcome {
    outcome_on(None, variant, &[])
}

fn outcome_on(device: Option<DeviceLimits>, variant: &str, traced: &[Schedule]) -> Outcome {
    let mut stage = LoadedStage::load(&Fake).unwrap();
    stage.device = device;
    let target = Target::Emulated {
        schedules: &SCHEDULES,
        traced,
        suppress: None,
    };
    check(&stage, variant, &problem(), Family::Normal, target)
}

/// The gates that a case fails.
fn failed(variant: &str, traced: &[Schedule]) -> String {
    let gates = outcome_on(None, variant, traced).unwrap().gates;
    let failed = gates.iter().filter(|result| result.is_fail());
    failed.map(|result| format!(" {}", result.gate)).collect()
}

/// Plain, and traced. A plain case's first launch has rows that are apart, as gates on numbers
/// need; every second one has packed rows, as timing has, and one writes log-sum-exps, where the
/// kernel says that it can. A traced case says what the judge found, and is launched once more with
/// rows so far apart that 32 bits do not hold their offsets.
#[test]
fn each_wrong_stage_fails_at_the_gate_that_is_there_for_it() {
    let mut lines = String::new();
    for (name, _) in VARIANTS {
        let variant = name.to_str().unwrap().replace('_', "-");
        if variant != "refuses" {
            let plain = failed(&variant, &[]);
            let traced = failed(&variant, &SCHEDULES);
            lines += &format!("{variant}:{plain};{traced}\n");
        }
    }
    // H1: nothing shows that a kernel that was not instrumented was watched.
    insta::assert_snapshot!(lines, @r"
    correct:;
    writes-nothing: C1 C2 C3 C4; C1 C2 C3 C4 H1
    writes-zeros: C2 C3 C4; C2 C3 C4 H1
    writes-behind-the-row: C6; C6 H1
    writes-behind-a-packed-row: C6; C6 H1
    changes-an-input: C6; C6 H1
    differs-by-call: C5; C5 H1
    wrong-on-packed-rows: C5; C5 H1
    wrong-past-2-to-the-31:; C5
    hazardous-when-traced-again:; H1
    other-when-traced:; C5
    traced-in-part:; H1
    lse-right:; H1
    lse-unset: C8; C8 H1
    lse-behind-the-last: C6; C6 H1
    lse-spoils-the-output: C5; C5 H1
    lse-differs-by-call: C5; C5 H1
    ");
}

#[test]
fn log_sum_exps_are_judged_where_a_kernel_writes_them() {
    let c8 = |variant: &str| {
        let gates = outcome(variant).unwrap().gates;
        let c8 = gates.into_iter().find(|result| result.gate == GateId::C8);
        c8.map(|result| result.verdict)
    };
    assert_eq!(c8("correct"), None, "it writes none: the gate says nothing");
    assert_eq!(c8("lse-right"), Some(Verdict::Pass));
}

#[test]
fn log_sum_exps_of_a_kernel_that_writes_none_are_refused() {
    let stage = LoadedStage::load(&Fake).unwrap();
    let asked = |variant| stage.prepare(variant, &problem()).unwrap().with_lse();
    assert!(asked("lse-right").unwrap().lse);
    let refused = asked("correct").unwrap_err();
    assert!(matches!(&refused, Unsupported::Lse { variant } if variant == "correct"));
    assert_eq!(
        refused.to_string(),
        "correct writes no log-sum-exps; ask for the output alone, or take a variant of another \
         stage"
    );
}

#[test]
fn refused_launches_are_not_failures_and_have_a_reason() {
    let reason = |variant| match outcome(variant) {
        Err(NoOutput::Unsupported(reason)) => reason.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(reason("refuses").contains("on principle"));
    assert!(reason("no-such").contains("correct, writes-nothing"));
    // Nothing to compare a GPU's output with is a failure.
    let stage = LoadedStage::load(&Fake).unwrap();
    let inputs = Inputs::generate(&problem(), Family::Normal, 0);
    let staged = Arc::new(StagedInputs::new(&inputs, Some(Family::Normal)));
    let b1 = both_backends(&stage, "refuses", &staged, &[]).unwrap();
    assert!(b1.is_fail() && b1.reason.contains("on principle"), "{b1:?}");
}

#[test]
fn what_the_device_cannot_run_is_refused_before_launch_and_what_it_can_is_judged() {
    let outcome_with = |capability, shared_opt_in_bytes| {
        let device = DeviceLimits {
            capability,
            shared_opt_in_bytes,
        };
        // Judged, it would fail.
        match outcome_on(Some(device), "writes-zeros", &[]) {
            Err(NoOutput::Unsupported(reason)) => reason.to_string(),
            Ok(_) => "judged".to_string(),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(outcome_with(89, 128), "judged");
    assert_eq!(
        outcome_with(89, 127),
        "writes-zeros needs 128 bytes of shared memory; the device has 127 (sm_89)"
    );
    assert_eq!(
        outcome_with(75, 128),
        "writes-zeros needs compute capability 8.0; the device has compute capability 7.5"
    );
    assert_eq!(outcome_with(80, 128), "judged");
}

#[test]
fn a_missing_default_variant_is_an_error_of_the_stage() {
    struct NoDefault;
    const WRONG: StageInfo = StageInfo {
        default_variant: "absent",
        ..INFO
    };
    impl Attention for NoDefault {
        fn info(&self) -> &'static StageInfo {
            &WRONG
        }
        fn artifacts(&self) -> &'static Artifacts {
            Fake.artifacts()
        }
    }
    let error = LoadedStage::load(&NoDefault).unwrap_err();
    assert_eq!(
        error.problem,
        "the default variant 'absent' is not declared in kernel.cu"
    );
}

struct Synchronised(&'static StageInfo);

const ORDERED: StageInfo = StageInfo {
    id: "stage-synchronised",
    default_variant: "ordered",
    redundant: &[
        Redundant {
            family: "scaled",
            site: "barrier",
            reason: "nothing is read behind it",
        },
        Redundant {
            family: "scaled",
            site: "commit",
            reason: "it is gone",
        },
    ],
    ..INFO
};

impl Attention for Synchronised {
    fn info(&self) -> &'static StageInfo {
        self.0
    }
    fn artifacts(&self) -> &'static Artifacts {
        static ARTIFACTS: OnceLock<Artifacts> = OnceLock::new();
        ARTIFACTS.get_or_init(|| Artifacts {
            kernels: table::<2>,
            traced_kernels: Some(table::<2>),
            sources: &[("fake.cu", "barrier();")],
            ..*Fake.artifacts()
        })
    }
    /// One block, which is told once.
    fn grid(&self, _: &Kernel, _: &Problem) -> [u32; 3] {
        [1; 3]
    }
}

/// A hazard with all sites is a failed gate, whichever case or schedule has it, and nothing is said
/// of them; a family that reaches none is an error; a site that only large scales reach is tried,
/// the traced build under other schedules too; and one whose lack no access shows is tried under
/// every schedule of the plain build, in the other presets too.
#[test]
fn each_family_has_its_sites_left_out_or_says_why_not() {
    let stage = LoadedStage::load(&Synchronised(&ORDERED)).unwrap();
    let tried = suppress_each(&stage, Presets::OnePerFamily);
    let [broken, large, reversed] = &tried.broken[..] else {
        panic!("{tried:?}")
    };
    assert_eq!((&*broken.variant, broken.result.gate), ("racy", GateId::H1));
    let reason = &broken.result.reason;
    let start = "racy 1x1x17:113x64 f16 full normal with all its synchronisation: \
                 race in block [0, 0, 0], bytes ";
    assert!(reason.starts_with(start), "{reason}");
    assert!(reason.contains("of o (row [0, 0, 0])"), "{reason}");
    for (other, variant) in [(large, "scaled-racy"), (reversed, "scaled-reversed")] {
        assert_eq!((&*other.variant, other.result.gate), (variant, GateId::H1));
    }
    let [idle] = &tried.errors[..] else {
        panic!("{tried:?}")
    };
    assert!(tried.sites.iter().all(|site| site.remedy().is_none()));
    assert!(
        idle.starts_with("idle: no barrier, wait, arrive or commit was reached"),
        "{idle}"
    );
    let [scaled, scaled_ordered, ordered, rising] = &tried.sites[..] else {
        panic!("{tried:?}")
    };
    assert_eq!(
        (&*scaled.family, &scaled.finding),
        ("scaled", &Finding::Survived { cases: 1 })
    );
    for (site, expected, variant) in [
        (scaled_ordered, GateId::H1, "scaled-ordered "),
        (ordered, GateId::C5, "ordered-too "),
        (rising, GateId::C5, "rising 1x1x17:257x64 f16 full large"),
    ] {
        let Finding::Killed { gate, at, .. } = &site.finding else {
            panic!("{site:?}")
        };
        assert_eq!(*gate, expected, "{site:?}");
        assert!(at.starts_with(variant), "{site:?}");
    }
}

#[test]
fn a_listing_that_names_no_site_is_wrong_where_every_preset_is_tried() {
    let stage = LoadedStage::load(&Synchronised(&ORDERED)).unwrap();
    let errors = suppress_each(&stage, Presets::All).errors;
    let is_named = errors
        .iter()
        .any(|error| error.contains("entry for scaled, 'commit'"));
    assert!(is_named, "{errors:?}");
}
