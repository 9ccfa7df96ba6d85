//! A stage's build and what the compilers printed. Holds no absolute path and no time: equal
//! sources give equal reports.

use serde::{Deserialize, Serialize};

/// The record of a stage's build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildReport {
    /// SHA-256 over kernel.cu, the device headers it reaches and nvcc's flags. Needs no nvcc;
    /// decides STALE.
    pub identity: String,
    /// The compiler of the emulated build. Counters are exact per major version of GCC.
    pub compiler: HostCompiler,
    /// The GPU code, or the reason why there is none.
    pub gpu: GpuBuild,
}

/// The compiler of the emulated build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostCompiler {
    /// The major version, where the compiler reports one.
    pub major: Option<u32>,
    /// The first line of `--version`.
    pub description: String,
}

/// The GPU code that nvcc compiled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum GpuBuild {
    /// Code that is embedded in the crate.
    Built(GpuCode),
    /// No GPU code.
    Absent {
        /// The reason why there is none.
        reason: String,
        /// The action that would change it.
        remedy: String,
    },
}

impl GpuBuild {
    /// Returns whether there is machine code for an architecture: `sm_90a`.
    pub fn has_code_for(&self, name: &str) -> bool {
        match self {
            Self::Built(code) => code.architectures.iter().any(|build| build.name == name),
            Self::Absent { .. } => false,
        }
    }
}

/// An image of GPU code and how it was compiled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuCode {
    /// The version of nvcc: `13.0.88`.
    pub nvcc: String,
    /// The flags common to all architectures, but for include folders.
    pub flags: Vec<String>,
    /// The machine code, in the order of `ATTENTION_CUDA_ARCHS`.
    pub architectures: Vec<ArchitectureBuild>,
    /// The PTX for GPUs without machine code: `compute_80`.
    pub ptx: Vec<String>,
}

/// The machine code for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchitectureBuild {
    /// The name of the architecture: `sm_90a`.
    pub name: String,
    /// The kernels, sorted by symbol.
    pub entries: Vec<EntryBuild>,
}

/// One kernel for one architecture.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryBuild {
    /// The kernel's name in the fatbin.
    pub symbol: String,
    pub sass_sha256: String,
    pub resources: Resources,
    /// Warnings of ptxas that it did not do as the kernel asks: products made synchronous,
    /// setmaxnreg ignored.
    #[serde(default)]
    pub warnings: Vec<String>,
}

/// The resources of one entry, as ptxas printed them; zero where it prints nothing for zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resources {
    /// The number of registers per thread.
    pub registers: u32,
    /// Bytes written by register spills, per thread.
    pub spill_store_bytes: u32,
    /// Bytes read back by register spills, per thread.
    pub spill_load_bytes: u32,
    pub stack_frame_bytes: u32,
    /// Bytes of static shared memory per block. The runtime reserves more on sm_90; that is not
    /// counted here.
    pub static_shared_bytes: u32,
}
