//! What stages have in common whose kernels are Rust functions in the place of emulated entries.

use common::params::AttentionKernel;
use common::stage::{Artifacts, Role, StageInfo, Table};

pub const INFO: StageInfo = StageInfo {
    id: "stage-fake",
    idea: "wrong on purpose",
    predecessor: None,
    role: Role::Rung,
    default_variant: "correct",
    claims: &[],
    redundant: &[],
};

/// Returns what a build without GPU code makes of the two tables.
pub fn artifacts(kernels: Table, traced_kernels: Table) -> Artifacts {
    Artifacts {
        kernels,
        traced_kernels: Some(traced_kernels),
        fatbin: None,
        ptx: None,
        report_json: r#"{"identity":"0","compiler":{"major":null,"description":"none"},
            "gpu":{"status":"absent","reason":"not built","remedy":"none"}}"#,
        caps: "",
        architectures: &[],
        sources: &[],
    }
}

pub struct Records(pub Vec<AttentionKernel>);
// SAFETY: the records hold pointers to string literals and functions, and are never written again.
unsafe impl Send for Records {}
// SAFETY: as above.
unsafe impl Sync for Records {}

impl Records {
    /// Hands the records out as a stage's table does.
    ///
    /// # Safety
    /// `count` is valid for a write.
    pub unsafe fn hand_out(&self, count: *mut i32) -> *const AttentionKernel {
        // SAFETY: the caller's promise.
        unsafe { *count = self.0.len() as i32 };
        self.0.as_ptr()
    }
}
