//! A kernel that is wrong with all its synchronisation fails a gate, and nothing is said of its sites.

use common::params::{AttentionKernel, AttentionMaps, AttentionParams};
use common::stage::{Artifacts, Attention, LoadedStage, StageInfo};
use common::suppression::{Presets, suppress_each};
use common::verdict::{GateId, Verdict};
use std::ffi::c_void;
use std::sync::OnceLock;

unsafe extern "C-unwind" {
    fn __tsan_write4(address: *mut c_void);
}

/// Every thread of every block writes the same element.
unsafe extern "C" fn races(params: *const AttentionParams) {
    // SAFETY: the emulator passes the parameters of the launch; the access is only reported, not made.
    unsafe { __tsan_write4((*params).o.data) };
}

unsafe extern "C" fn table(
    count: *mut i32,
    _maps: *mut *const AttentionMaps,
    _clusters: *mut *const i32,
) -> *const AttentionKernel {
    struct Record(AttentionKernel);
    // SAFETY: it holds pointers to string literals and a function, and is never written again.
    unsafe impl Send for Record {}
    // SAFETY: as above.
    unsafe impl Sync for Record {}
    static RECORD: OnceLock<Record> = OnceLock::new();
    // SAFETY: the caller passes a valid pointer.
    unsafe { *count = 1 };
    let record = || {
        Record(AttentionKernel {
            family: c"racy".as_ptr(),
            variant: c"racy_16x16".as_ptr(),
            symbol: c"racy".as_ptr(),
            dtype: 0,
            head_dim: 64,
            block_m: 16,
            block_n: 16,
            threads: 64,
            min_blocks: 1,
            dynamic_shared_bytes: 128,
            probability_dtype: 32,
            lse: 0,
            emulated: Some(races),
        })
    };
    &raw const RECORD.get_or_init(record).0
}

struct Racy;

impl Attention for Racy {
    fn info(&self) -> &'static StageInfo {
        &StageInfo {
            id: "stage-racy",
            idea: "wrong on purpose",
            predecessor: None,
            default_variant: "racy-16x16",
            claims: &[],
            redundant: &[],
        }
    }

    fn artifacts(&self) -> &'static Artifacts {
        &Artifacts {
            kernels: table,
            traced_kernels: Some(table),
            fatbin: None,
            report_json: r#"{"version":1,"stage":"stage-racy","identity":"0","identity_files":[],
                "emulated":{"compiler":{"family":"none","major":null,"description":"none"},"flags":[]},
                "gpu":{"status":"absent","reason":"not built","remedy":"none"}}"#,
            sources: &[],
            caps: "",
            architectures: &[],
        }
    }
}

#[test]
fn a_hazard_of_the_whole_kernel_is_a_failed_gate() {
    let stage = LoadedStage::load(&Racy).unwrap();
    let tried = suppress_each(&[&stage], Presets::OnePerFamily, |_| ()).unwrap();
    assert_eq!(
        tried.wrong(),
        [""; 0],
        "no list of redundant sites heals it"
    );
    let [broken] = &tried.broken[..] else {
        panic!("{tried:?}")
    };
    assert_eq!(
        (broken.stage.as_str(), broken.variant.as_str()),
        ("stage-racy", "racy-16x16")
    );
    assert_eq!(
        (broken.result.gate, broken.result.verdict),
        (GateId::H1, Verdict::Fail)
    );
    let reason = &broken.result.reason;
    let start = "racy-16x16 1x1x17:113x64 f16 full normal with all its synchronisation: race in block [0, 0, 0], bytes ";
    assert!(
        reason.starts_with(start) && reason.contains("of o (row [0, 0, 0])"),
        "{reason}"
    );
}
