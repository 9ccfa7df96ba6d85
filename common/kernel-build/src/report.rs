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
    /// The PTX for GPUs without machine code: `compute_89`.
    pub ptx: Vec<String>,
}

impl GpuCode {
    /// Returns whether an image runs on GPUs of a compute capability, times ten: machine code of
    /// its major version up to it (of `sm_90a`, on that alone), or PTX up to it (CUDA C++
    /// Programming Guide, application compatibility).
    pub fn runs_on(&self, capability: u32) -> bool {
        let machine = self.architectures.iter().any(|build| {
            Version::parse(&build.name)
                .is_some_and(|version| version.has_machine_code_for(capability))
        });
        let ptx = self.ptx.iter().any(|name| {
            Version::parse(name).is_some_and(|version| version.has_ptx_for(capability))
        });
        machine || ptx
    }

    /// Returns the names of the images: `sm_89, sm_90a, compute_89`.
    pub fn images(&self) -> String {
        let machine = self.architectures.iter().map(|build| build.name.as_str());
        let ptx = self.ptx.iter().map(String::as_str);
        machine.chain(ptx).collect::<Vec<_>>().join(", ")
    }
}

/// The version that an architecture's name ends with.
struct Version {
    /// The compute capability times ten.
    capability: u32,
    /// Whether it is of one capability (`a`) rather than of those after it, too.
    is_exact: bool,
}

impl Version {
    /// Reads the version of `sm_90a`.
    fn parse(name: &str) -> Option<Self> {
        let (_, text) = name.split_once('_')?;
        Some(Self {
            capability: text.trim_end_matches(['a', 'f']).parse().ok()?,
            is_exact: text.ends_with('a'),
        })
    }

    fn has_machine_code_for(&self, capability: u32) -> bool {
        let is_of_family = self.capability / 10 == capability / 10 && self.capability <= capability;
        is_of_family && (!self.is_exact || self.capability == capability)
    }

    fn has_ptx_for(&self, capability: u32) -> bool {
        self.capability <= capability && (!self.is_exact || self.capability == capability)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the compute capabilities, times ten, on which images run.
    fn capabilities_of(machine: &[&str], ptx: &[&str]) -> Vec<u32> {
        let architectures = machine.iter().map(|name| ArchitectureBuild {
            name: name.to_string(),
            entries: vec![],
        });
        let code = GpuCode {
            nvcc: "13.0.88".to_string(),
            flags: vec![],
            architectures: architectures.collect(),
            ptx: ptx.iter().map(|name| name.to_string()).collect(),
        };
        let mut known = vec![75, 80, 86, 89, 90, 100, 103, 120];
        known.retain(|capability| code.runs_on(*capability));
        known
    }

    #[test]
    fn machine_code_runs_on_its_major_version_from_its_minor_on() {
        assert_eq!(capabilities_of(&["sm_86"], &[]), [86, 89]);
    }

    #[test]
    fn code_for_one_architecture_runs_on_no_other() {
        assert_eq!(capabilities_of(&["sm_90a"], &["compute_100a"]), [90, 100]);
    }

    #[test]
    fn machine_code_of_a_family_runs_on_its_later_members() {
        assert_eq!(capabilities_of(&["sm_100f"], &[]), [100, 103]);
    }

    #[test]
    fn ptx_runs_on_every_later_gpu() {
        let all = capabilities_of(&["sm_90a"], &["compute_89"]);
        assert_eq!(all, [89, 90, 100, 103, 120]);
    }
}
