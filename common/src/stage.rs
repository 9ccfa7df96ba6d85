//! What a stage is: an idea, its predecessor, its claims as data, its compiled variants, and the trait that ties them to
//! a device.

use crate::claim::Claim;
use crate::limits::DeviceLimits;
use crate::maps::BoxRows;
use crate::params::{self, AttentionKernel, AttentionMaps};
use crate::problem::{Dtype, Problem};
use crate::reference::Probability;
use crate::resources::{Caps, KernelFacts, PtxasEntry};
use kernel_build::report::{ArchitectureBuild, BuildReport, GpuBuild};
use std::ffi::CStr;
use std::fmt;
use std::ops::Deref;

/// Returns the instances that `kernel.cu` declares; writes their number, and for each what its launches need: maps (null where
/// all take parameters alone) and the blocks of a cluster (null where there are no clusters).
pub type Table = unsafe extern "C" fn(
    *mut i32,
    *mut *const AttentionMaps,
    *mut *const i32,
) -> *const AttentionKernel;

/// What the build script of a stage leaves in the crate (`OUT_DIR/artifacts.rs`).
pub struct Artifacts {
    /// The compiled instances.
    pub kernels: Table,
    /// The same table of the traced build, whose accesses are judged and counted; `None` where the C++ compiler can't
    /// make it.
    pub traced_kernels: Option<Table>,
    /// GPU code for every architecture built, or `None` where the build found no nvcc.
    pub fatbin: Option<&'static [u8]>,
    /// [`BuildReport`] as JSON.
    pub report_json: &'static str,
    /// The stage's `caps.csv`.
    pub caps: &'static str,
    /// The only architectures that have its instructions, `sm_90a`; empty: all.
    pub architectures: &'static [&'static str],
    /// The device sources: paths relative to the workspace root, as in [`BuildReport::identity_files`], and their text.
    pub sources: &'static [(&'static str, &'static str)],
}

/// The fixed facts of a stage.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageInfo {
    /// The crate's name: `stage0-scalar`.
    pub id: &'static str,
    /// The one idea, as a phrase.
    pub idea: &'static str,
    /// The stage whose `kernel.cu` this one is a diff of.
    pub predecessor: Option<&'static str>,
    /// The variant that tests and quick runs use where the device can run it: `wmma-qk-32x64`; see
    /// [`LoadedStage::default_variant`].
    pub default_variant: &'static str,
    /// What the stage claims.
    pub claims: &'static [Claim],
    /// Synchronisation that stands in `kernel.cu` although its mutant survives.
    pub redundant: &'static [Redundant],
}

/// A synchronisation site (barrier, wait, arrive, commit) of one family that every instance does without, and why it is
/// there all the same. [`crate::suppression`] demands that each such site is listed, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redundant {
    /// The family that does without it: `scalar`.
    pub family: &'static str,
    /// Words of the call's line, or of the comment directly above it, that no other site of the family has.
    pub site: &'static str,
    /// Why it stands there, as a sentence.
    pub reason: &'static str,
}

/// One compiled instance: a variant for one dtype and head size.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The code path: `wmma-qk`.
    pub family: String,
    /// The preset: `wmma-qk-32x64`.
    pub variant: String,
    /// What `kernel.cu` declares of it.
    pub facts: KernelFacts,
    /// One CUDA thread of the emulated build.
    #[cfg(feature = "emulated")]
    pub emulated: emulator::Entry,
    /// The same of the traced build, for [`crate::device::emulated::trace`] alone.
    #[cfg(feature = "emulated")]
    pub traced: Option<emulator::Entry>,
}

impl Deref for Kernel {
    type Target = KernelFacts;

    fn deref(&self) -> &KernelFacts {
        &self.facts
    }
}

/// A launch that a stage will not make.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// What is not a stage, a candidate, refuses in its own words.
    #[error("{reason}")]
    ByItself {
        /// Its words.
        reason: String,
    },
    /// No such variant.
    #[error("{stage} has no variant '{variant}'; it has {known}")]
    Variant {
        /// The stage asked.
        stage: &'static str,
        /// The variant asked for.
        variant: String,
        /// What there is, comma-separated.
        known: String,
    },
    /// The variant exists, but not for this dtype and head size.
    #[error("{variant} is not compiled for {dtype} with head_dim {head_dim}")]
    Instance {
        /// The variant asked for.
        variant: String,
        /// The dtype asked for.
        dtype: Dtype,
        /// The head size asked for.
        head_dim: usize,
    },
    /// The preset cannot hold this problem.
    #[error("{variant} does not take this problem: {reason}")]
    Problem {
        /// The variant asked for.
        variant: String,
        /// Which limit, and its value.
        reason: String,
    },
    /// The kernel writes no log-sum-exps.
    #[error(
        "{variant} writes no log-sum-exps; ask for the output alone, or take a variant of another stage"
    )]
    Lse {
        /// The variant asked for.
        variant: String,
    },
    /// The device lacks something.
    #[error("{variant} needs {needed}; the device has {available}")]
    Device {
        /// The variant asked for.
        variant: String,
        /// What is needed.
        needed: String,
        /// What there is.
        available: String,
    },
}

/// A launch that is ready: which instance, over which grid.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    /// The instance.
    pub kernel: &'a Kernel,
    /// Thread blocks in x (query tiles), y (query heads) and z (batch), unless the stage says otherwise.
    pub grid: [u32; 3],
    /// Whether it writes log-sum-exps beside the output; [`Prepared::with_lse`] asks for them.
    pub lse: bool,
}

impl Prepared<'_> {
    /// The same launch with log-sum-exps. Errors: a kernel that writes none.
    pub fn with_lse(self) -> Result<Self, Unsupported> {
        if !self.kernel.lse {
            let variant = self.kernel.variant.clone();
            return Err(Unsupported::Lse { variant });
        }
        Ok(Self { lse: true, ..self })
    }
}

/// One stage of the ladder.
pub trait Attention: Sync {
    /// Its fixed facts.
    fn info(&self) -> &'static StageInfo;

    /// What its build script produced.
    fn artifacts(&self) -> &'static Artifacts;

    /// Thread blocks of a launch: one per query tile, query head and batch; of query tiles as many as make whole clusters.
    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        let shape = &problem.shape;
        let tiles = shape.seq_q.div_ceil(kernel.block_m) as u32;
        [
            tiles.next_multiple_of(kernel.cluster),
            shape.heads_q as u32,
            shape.batch as u32,
        ]
    }

    /// Refuses a problem that a preset cannot hold. A stage must have a preset for every problem.
    fn accepts(&self, _kernel: &Kernel, _problem: &Problem) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// Why a stage's compiled table cannot be used: a fault of the stage's `kernel.cu` or of its build.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {problem}")]
pub struct LoadError {
    /// The stage.
    pub stage: &'static str,
    /// What is wrong, with its place.
    pub problem: String,
}

/// A stage with its table and build report read and checked.
pub struct LoadedStage {
    /// The stage.
    pub attention: &'static dyn Attention,
    /// Its instances, in the order of `kernel.cu`.
    pub kernels: Vec<Kernel>,
    /// How it was built, and what the compiler said.
    pub report: BuildReport,
    /// What launches are limited to, if anything.
    pub device: Option<DeviceLimits>,
}

impl fmt::Debug for LoadedStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedStage")
            .field("id", &self.info().id)
            .field("kernels", &self.kernels.len())
            .finish()
    }
}

/// Must equal `AttentionTable::CAPACITY` of the emulator's `attn/variant.cuh`.
const TABLE_CAPACITY: i32 = 256;

impl LoadedStage {
    /// Reads the table and the build report of `attention`.
    pub fn load(attention: &'static dyn Attention) -> Result<Self, LoadError> {
        let (info, artifacts) = (attention.info(), attention.artifacts());
        let fail = |problem| LoadError {
            stage: info.id,
            problem,
        };
        let report = serde_json::from_str(artifacts.report_json)
            .map_err(|error| fail(format!("the build report is not readable: {error}")))?;
        let mut kernels = read_table(artifacts.kernels).map_err(fail)?;
        let caps = Caps::parse(artifacts.caps)
            .map_err(|line| fail(format!("caps.csv: '{line}' is not `{}`", Caps::HEAD)))?;
        for kernel in &mut kernels {
            kernel.facts.caps = caps.get(kernel.symbol.as_str()).copied();
        }
        #[cfg(feature = "emulated")]
        if let Some(table) = artifacts.traced_kernels {
            for traced in read_table(table).map_err(fail)? {
                let mut plain = kernels.iter_mut();
                if let Some(kernel) = plain.find(|kernel| kernel.symbol == traced.symbol) {
                    kernel.traced = Some(traced.emulated);
                }
            }
        }
        let default = info.default_variant;
        if !kernels.iter().any(|kernel| kernel.variant == default) {
            return Err(fail(format!(
                "the default variant '{default}' is not declared in kernel.cu"
            )));
        }
        Ok(Self {
            attention,
            kernels,
            report,
            device: None,
        })
    }

    /// The stage's fixed facts.
    pub fn info(&self) -> &'static StageInfo {
        self.attention.info()
    }

    /// Whether every instance has a traced build, for gate H1.
    #[cfg(feature = "emulated")]
    pub fn is_traced(&self) -> bool {
        self.kernels.iter().all(|kernel| kernel.traced.is_some())
    }

    /// Whether hazards in the emulated kernels can be told by source line: not where the program was stripped.
    #[cfg(feature = "emulated")]
    pub fn has_source_lines(&self) -> bool {
        let entry = |kernel: &Kernel| kernel.traced.unwrap_or(kernel.emulated);
        self.kernels
            .first()
            .is_some_and(|kernel| emulator::trace::has_source_line(entry(kernel)))
    }

    /// Whether any instance takes this dtype; all stages take f16 and E4M3.
    pub fn takes(&self, dtype: Dtype) -> bool {
        self.kernels.iter().any(|kernel| kernel.dtype == dtype)
    }

    /// The names of the variants, in the order of `kernel.cu`.
    pub fn variants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for kernel in &self.kernels {
            if !names.contains(&kernel.variant.as_str()) {
                names.push(&kernel.variant);
            }
        }
        names
    }

    /// One variant of each family, in the order of `kernel.cu`: the stage's default where it is of that family, else the
    /// first that is declared; of those that the device can run for every dtype and head size, if there are such.
    pub fn family_variants(&self) -> Vec<&str> {
        let mut chosen: Vec<(&Kernel, _)> = Vec::new();
        for kernel in &self.kernels {
            let rank = (
                self.runs(&kernel.variant),
                kernel.variant == self.info().default_variant,
            );
            match chosen
                .iter_mut()
                .find(|(known, _)| known.family == kernel.family)
            {
                Some(known) if rank > known.1 => *known = (kernel, rank),
                Some(_) => {}
                None => chosen.push((kernel, rank)),
            }
        }
        let chosen = chosen.into_iter();
        chosen.map(|(kernel, _)| kernel.variant.as_str()).collect()
    }

    /// The family of `variant`, if there is such a variant.
    pub fn family_of(&self, variant: &str) -> Option<&str> {
        let mut kernels = self.kernels.iter();
        let kernel = kernels.find(|kernel| kernel.variant == variant)?;
        Some(&kernel.family)
    }

    /// The variant that tests and quick runs use: the stage's own, or on a device that cannot run it for every dtype and
    /// head size the first of its family that the device can.
    pub fn default_variant(&self) -> &str {
        let named = self.info().default_variant;
        self.family_variants()
            .into_iter()
            .find(|variant| self.family_of(variant) == self.family_of(named))
            .unwrap_or(named)
    }

    /// Whether the device can run every instance of `variant`.
    fn runs(&self, variant: &str) -> bool {
        self.kernels
            .iter()
            .all(|kernel| kernel.variant != variant || self.refuse(kernel).is_ok())
    }

    /// Refuses `kernel` where the device cannot run it.
    pub fn refuse(&self, kernel: &Kernel) -> Result<(), Unsupported> {
        match self.lacks(kernel) {
            None => Ok(()),
            Some((needed, available)) => Err(Unsupported::Device {
                variant: kernel.variant.clone(),
                needed,
                available,
            }),
        }
    }

    /// What `kernel` needs and the device has not, and what it has; `None` where it can run it.
    pub fn lacks(&self, kernel: &Kernel) -> Option<(String, String)> {
        let (device, only) = (self.device?, self.attention.artifacts().architectures);
        if !only.is_empty() && !only.iter().any(|arch| device.is(arch)) {
            return Some((only.join(" or "), device.to_string()));
        }
        device.lacks(kernel)
    }

    /// What ptxas reported of `kernel`, one entry per architecture; empty where the build found no nvcc.
    pub fn ptxas_entries(&self, kernel: &Kernel) -> Vec<PtxasEntry> {
        let GpuBuild::Built(code) = &self.report.gpu else {
            return Vec::new();
        };
        let of_arch = |arch: &ArchitectureBuild| {
            let entry = arch
                .entries
                .iter()
                .find(|entry| entry.symbol == kernel.symbol)?;
            let (sass_sha256, warnings) = (entry.sass_sha256.clone(), entry.warnings.clone());
            Some(PtxasEntry {
                arch: arch.name.clone(),
                sass_sha256,
                resources: entry.resources,
                warnings,
            })
        };
        code.architectures.iter().filter_map(of_arch).collect()
    }

    /// The instance of `variant` for the dtype and head size of `problem`, with its grid; or why there is none.
    pub fn prepare(&self, variant: &str, problem: &Problem) -> Result<Prepared<'_>, Unsupported> {
        let mut of_variant = self
            .kernels
            .iter()
            .filter(|kernel| kernel.variant == variant)
            .peekable();
        if of_variant.peek().is_none() {
            return Err(Unsupported::Variant {
                stage: self.info().id,
                variant: variant.to_string(),
                known: self.variants().join(", "),
            });
        }
        let (dtype, head_dim) = (problem.dtype, problem.shape.head_dim);
        let kernel = of_variant
            .find(|kernel| (kernel.dtype, kernel.head_dim) == (dtype, head_dim))
            .ok_or_else(|| Unsupported::Instance {
                variant: variant.to_string(),
                dtype,
                head_dim,
            })?;
        self.refuse(kernel)?;
        self.attention.accepts(kernel, problem)?;
        Ok(Prepared {
            kernel,
            grid: self.attention.grid(kernel, problem),
            lse: false,
        })
    }
}

/// The instances that `kernel.cu` declares; or what is wrong with its table.
fn read_table(table: Table) -> Result<Vec<Kernel>, String> {
    let (mut count, mut maps, mut clusters) = (0, std::ptr::null(), std::ptr::null());
    // SAFETY: the function is the one that the stage's build script generated; it only writes its arguments and returns
    // the address of a static table that constructors filled before `main`.
    let records = unsafe { table(&mut count, &mut maps, &mut clusters) };
    if count > TABLE_CAPACITY {
        return Err(format!(
            "kernel.cu declares {count} instances, the emulated table holds {TABLE_CAPACITY}; raise AttentionTable::CAPACITY"
        ));
    }
    // SAFETY: the tables hold `count` initialised records each and live as long as the program; only the first is always
    // there.
    let read = |index| unsafe {
        read_record(
            &*records.add(index),
            (!maps.is_null()).then(|| &*maps.add(index)),
            (!clusters.is_null()).then(|| *clusters.add(index)),
        )
    };
    (0..count as usize).map(read).collect()
}

/// C identifiers have underscores where names on the command line have hyphens.
fn hyphenated(text: &CStr) -> String {
    text.to_string_lossy().replace('_', "-")
}

fn read_record(
    record: &AttentionKernel,
    maps: Option<&AttentionMaps>,
    cluster: Option<i32>,
) -> Result<Kernel, String> {
    // SAFETY: the three names are string literals of the emulated build.
    let [family, variant, symbol] =
        [record.family, record.variant, record.symbol].map(|name| unsafe { CStr::from_ptr(name) });
    let symbol = symbol.to_string_lossy().into_owned();
    let fail = |problem: String| format!("record of {symbol}: {problem}");
    let positive = |name: &str, value: i32| {
        u32::try_from(value)
            .ok()
            .filter(|&v| v > 0)
            .ok_or_else(|| fail(format!("{name} = {value} is not positive")))
    };
    let dtype = match record.dtype as u32 {
        params::AttentionDtype_ATTENTION_F16 => Dtype::F16,
        params::AttentionDtype_ATTENTION_E4M3 => Dtype::E4m3,
        params::AttentionDtype_ATTENTION_BF16 => Dtype::Bf16,
        other => return Err(fail(format!("unknown dtype {other}"))),
    };
    let probability = match record.probability_dtype as u32 {
        params::AttentionProbability_ATTENTION_P_F32 => Probability::F32,
        params::AttentionProbability_ATTENTION_P_F16 => Probability::F16,
        params::AttentionProbability_ATTENTION_P_BF16 => Probability::Bf16,
        params::AttentionProbability_ATTENTION_P_E4M3 => Probability::E4m3,
        other => return Err(fail(format!("unknown type of P, {other}"))),
    };
    let declarable = Probability::declarable(dtype);
    if !declarable.contains(&probability) {
        let names: Vec<&str> = declarable.iter().map(|p| p.name()).collect();
        return Err(fail(format!(
            "P of {dtype} is declared as {}, not as {}",
            names.join(" or "),
            probability.name()
        )));
    }
    #[cfg(feature = "emulated")]
    let entry = record
        .emulated
        .ok_or_else(|| fail("no emulated entry".to_string()))?;
    let threads = positive("threads", record.threads)?;
    if !threads.is_multiple_of(32) || threads > 1024 {
        return Err(fail(format!(
            "{threads} threads are not whole warps of at most 1,024 threads"
        )));
    }
    let facts = KernelFacts {
        dtype,
        head_dim: positive("head_dim", record.head_dim)? as usize,
        block_m: positive("block_m", record.block_m)? as usize,
        block_n: positive("block_n", record.block_n)? as usize,
        threads,
        min_blocks: positive("min_blocks", record.min_blocks)?,
        dynamic_shared_bytes: positive("dynamic_shared_bytes", record.dynamic_shared_bytes)?
            as usize,
        boxes: maps.and_then(BoxRows::read),
        cluster: cluster.map_or(1, |blocks| blocks.max(1) as u32),
        caps: None,
        probability,
        lse: record.lse != 0,
        symbol,
    };
    #[cfg(feature = "emulated")]
    // SAFETY: both types are C function pointers that take one pointer; the entry reads its argument as
    // AttentionParams or as AttentionLaunch, which begins with them, and C++ code compiled with exceptions may unwind
    // through it.
    let emulated = unsafe {
        std::mem::transmute::<unsafe extern "C" fn(*const params::AttentionParams), emulator::Entry>(
            entry,
        )
    };
    Ok(Kernel {
        family: hyphenated(family),
        variant: hyphenated(variant),
        facts,
        #[cfg(feature = "emulated")]
        emulated,
        #[cfg(feature = "emulated")]
        traced: None,
    })
}
