//! A stage's build and what the compilers printed. Holds no absolute path and no time: equal sources give equal reports.

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReport {
    /// SHA-256 over kernel.cu, the device headers it reaches and nvcc's flags. Needs no nvcc; decides STALE.
    pub identity: String,
    /// Of the emulated build. Counters are exact per major version of GCC.
    pub compiler: HostCompiler,
    /// Or why there is none.
    pub gpu: GpuBuild,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCompiler {
    /// Major version, where the compiler tells one.
    pub major: Option<u32>,
    /// First line of `--version`.
    pub description: String,
}

/// By nvcc.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum GpuBuild {
    /// Embedded in the crate.
    Built(GpuCode),
    Absent {
        /// Why not.
        reason: String,
        /// What to do about it.
        remedy: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCode {
    /// `13.0.88`.
    pub nvcc: String,
    /// Flags common to all architectures, but for include folders.
    pub flags: Vec<String>,
    /// In the order of `ATTENTION_CUDA_ARCHS`.
    pub architectures: Vec<ArchitectureBuild>,
    /// PTX for GPUs without machine code: `compute_80`.
    pub ptx: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchitectureBuild {
    /// `sm_90a`.
    pub name: String,
    /// Sorted by symbol.
    pub entries: Vec<EntryBuild>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryBuild {
    /// Its name in the fatbin.
    pub symbol: String,
    pub sass_sha256: String,
    pub resources: Resources,
    /// Where it did not do as the kernel asks: products made synchronous, setmaxnreg ignored.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// Of one entry, as ptxas printed; zero where it prints nothing for zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Bytes written by register spills, per thread.
    pub spill_store_bytes: u32,
    /// Bytes read back by register spills, per thread.
    pub spill_load_bytes: u32,
    pub stack_frame_bytes: u32,
    /// Bytes of static shared memory per block. The runtime reserves more on sm_90; that is not in here.
    pub static_shared_bytes: u32,
}
