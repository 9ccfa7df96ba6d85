//! A stage, and the trait that ties it to a device.

use crate::claim::{Claim, Where};
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

/// The instances that `kernel.cu` declares, with their number, maps (null where all take parameters alone) and clusters'
/// blocks (null where there are none).
pub type Table = unsafe extern "C" fn(
    *mut i32,
    *mut *const AttentionMaps,
    *mut *const i32,
) -> *const AttentionKernel;

pub struct Artifacts {
    pub kernels: Table,
    /// `None` without the feature `emulated`.
    pub traced_kernels: Option<Table>,
    /// GPU code for every architecture built; `None` without nvcc.
    pub fatbin: Option<&'static [u8]>,
    pub report_json: &'static str,
    pub caps: &'static str,
    /// Architectures that have its instructions (`sm_90a`); empty: all.
    pub architectures: &'static [&'static str],
    /// Device sources: paths from the workspace root, and text.
    pub sources: &'static [(&'static str, &'static str)],
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageInfo {
    pub id: &'static str,
    pub idea: &'static str,
    /// Whose `kernel.cu` this one is a diff of.
    pub predecessor: Option<&'static str>,
    pub role: Role,
    /// For tests and quick runs: `wmma-qk-32x64`; see [`LoadedStage::default_variant`].
    pub default_variant: &'static str,
    pub claims: &'static [Claim],
    pub redundant: &'static [Redundant],
}

/// The place of a stage in the ladder, which is a tree: pages show the main path and the branches apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// A rung of the main path.
    Rung,
    /// A branch for one kind of problem, which is shown there and nowhere else.
    Branch {
        /// `small grids`.
        purpose: &'static str,
        on: Where,
    },
}

/// A synchronisation site that every instance of a family does without; [`crate::suppression`] demands that each is listed, and
/// no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redundant {
    pub family: &'static str,
    /// Words of the call's line, or of the comment above it, that no other site of the family has.
    pub site: &'static str,
    pub reason: &'static str,
}

#[derive(Clone, Debug)]
pub struct Kernel {
    /// The code path: `wmma-qk`.
    pub family: String,
    /// The preset: `wmma-qk-32x64`.
    pub variant: String,
    pub facts: KernelFacts,
    /// None of a stage that was built without its feature `emulated`.
    #[cfg(feature = "emulated")]
    pub emulated: Option<emulator::Entry>,
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
    #[error("{reason}")]
    ByItself { reason: String },
    #[error("{stage} has no variant '{variant}'; it has {known}")]
    Variant {
        stage: &'static str,
        variant: String,
        known: String,
    },
    #[error("{variant} is not compiled for {dtype} with head_dim {head_dim}")]
    Instance {
        variant: String,
        dtype: Dtype,
        head_dim: usize,
    },
    #[error("{variant} does not support this problem: {reason}")]
    Problem { variant: String, reason: String },
    #[error(
        "{variant} writes no log-sum-exps; ask for the output alone, or take a variant of another stage"
    )]
    Lse { variant: String },
    #[error("{variant} needs {needed}; the device has {available}")]
    Device {
        variant: String,
        needed: String,
        available: String,
    },
}

/// An instance and its grid.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    pub kernel: &'a Kernel,
    /// Blocks: query tiles, query heads, batch, unless the stage says otherwise.
    pub grid: [u32; 3],
    /// Whether it writes log-sum-exps; see [`Prepared::with_lse`].
    pub lse: bool,
}

impl Prepared<'_> {
    /// With log-sum-exps. Errors: a kernel that writes none.
    pub fn with_lse(self) -> Result<Self, Unsupported> {
        if !self.kernel.lse {
            let variant = self.kernel.variant.clone();
            return Err(Unsupported::Lse { variant });
        }
        Ok(Self { lse: true, ..self })
    }
}

pub trait Attention: Sync {
    fn info(&self) -> &'static StageInfo;

    fn artifacts(&self) -> &'static Artifacts;

    /// Whether the queries of all heads that read the same keys are rows of the same blocks.
    fn packs_heads(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// Blocks: one per tile of rows, query head (or key head, where those are packed) and batch; tiles in whole clusters.
    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        let shape = &problem.shape;
        let (rows, heads) = if self.packs_heads(kernel) {
            (shape.seq_q * shape.heads_q / shape.heads_kv, shape.heads_kv)
        } else {
            (shape.seq_q, shape.heads_q)
        };
        let tiles = rows.div_ceil(kernel.block_m) as u32;
        [
            tiles.next_multiple_of(kernel.cluster),
            heads as u32,
            shape.batch as u32,
        ]
    }

    /// Refuses a problem that a preset cannot hold; another preset must.
    fn accepts(&self, _kernel: &Kernel, _problem: &Problem) -> Result<(), Unsupported> {
        Ok(())
    }
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {problem}")]
pub struct LoadError {
    pub stage: &'static str,
    pub problem: String,
}

pub struct LoadedStage {
    pub attention: &'static dyn Attention,
    pub kernels: Vec<Kernel>,
    pub report: BuildReport,
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
                    kernel.traced = traced.emulated;
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

    pub fn info(&self) -> &'static StageInfo {
        self.attention.info()
    }

    /// Not where the program was stripped; H1 needs them.
    #[cfg(feature = "emulated")]
    pub fn has_source_lines(&self) -> bool {
        self.kernels
            .first()
            .and_then(|kernel| kernel.traced)
            .is_some_and(emulator::trace::has_source_line)
    }

    /// Whether any instance supports it; all stages support f16 and E4M3.
    pub fn takes(&self, dtype: Dtype) -> bool {
        self.kernels.iter().any(|kernel| kernel.dtype == dtype)
    }

    pub fn variants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for kernel in &self.kernels {
            if !names.contains(&kernel.variant.as_str()) {
                names.push(&kernel.variant);
            }
        }
        names
    }

    /// The stage's default, else the first declared, of those that the device can run for every dtype and head size, if any.
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

    pub fn family_of(&self, variant: &str) -> Option<&str> {
        let mut kernels = self.kernels.iter();
        let kernel = kernels.find(|kernel| kernel.variant == variant)?;
        Some(&kernel.family)
    }

    /// The stage's own, or the first of its family that the device can run for every dtype and head size.
    pub fn default_variant(&self) -> &str {
        let named = self.info().default_variant;
        self.family_variants()
            .into_iter()
            .find(|variant| self.family_of(variant) == self.family_of(named))
            .unwrap_or(named)
    }

    /// Every instance, on the device.
    fn runs(&self, variant: &str) -> bool {
        self.kernels
            .iter()
            .all(|kernel| kernel.variant != variant || self.refuse(kernel).is_ok())
    }

    /// An error where the device cannot run it.
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

    pub fn lacks(&self, kernel: &Kernel) -> Option<(String, String)> {
        let (device, only) = (self.device?, self.attention.artifacts().architectures);
        if !only.is_empty() && !only.iter().any(|arch| device.is(arch)) {
            return Some((only.join(" or "), device.to_string()));
        }
        device.lacks(kernel)
    }

    /// What ptxas reported, by architecture; empty without nvcc.
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

    /// The instance for the problem's dtype and head size, with its grid.
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
        self.launch(kernel, problem)
    }

    /// The same of an instance that is for the problem's dtype and head size.
    pub fn launch<'a>(
        &self,
        kernel: &'a Kernel,
        problem: &Problem,
    ) -> Result<Prepared<'a>, Unsupported> {
        self.refuse(kernel)?;
        self.attention.accepts(kernel, problem)?;
        Ok(Prepared {
            kernel,
            grid: self.attention.grid(kernel, problem),
            lse: false,
        })
    }
}

/// The error is what is wrong with the table.
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

/// C identifiers have underscores.
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
    let emulated = record.emulated.map(|entry| {
        // SAFETY: both types are C function pointers that take one pointer; the entry reads its argument as
        // AttentionParams or as AttentionLaunch, which begins with them, and C++ code compiled with exceptions may unwind
        // through it.
        unsafe {
            std::mem::transmute::<
                unsafe extern "C" fn(*const params::AttentionParams),
                emulator::Entry,
            >(entry)
        }
    });
    Ok(Kernel {
        family: hyphenated(family),
        variant: hyphenated(variant),
        facts,
        #[cfg(feature = "emulated")]
        emulated,
        #[cfg(feature = "emulated")]
        traced: emulated, // until the traced table is read
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Staged, emulated};
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::{Mask, Shape};

    /// `cargo test -p common -p attention-ladder`: the features of one are those of both, and no stage's is among them.
    #[test]
    fn a_stage_without_emulated_kernels_is_read_and_refuses_to_be_emulated() {
        let record = AttentionKernel {
            family: c"mma".as_ptr(),
            variant: c"mma_64x64".as_ptr(),
            symbol: c"stage_mma_64x64".as_ptr(),
            dtype: params::AttentionDtype_ATTENTION_F16 as i32,
            head_dim: 64,
            block_m: 64,
            block_n: 64,
            threads: 128,
            min_blocks: 1,
            dynamic_shared_bytes: 1024,
            probability_dtype: params::AttentionProbability_ATTENTION_P_F16 as i32,
            lse: 1,
            emulated: None,
        };
        let kernel = read_record(&record, None, None).unwrap();
        let problem = Problem::new(Shape::bhsd(1, 1, 1, 64), Dtype::F16, Mask::Full).unwrap();
        let staged = Staged::new(
            &Inputs::generate(&problem, Family::Normal, 0),
            Layout::Packed,
        );
        let prepared = Prepared {
            kernel: &kernel,
            grid: [1; 3],
            lse: false,
        };
        let launched = emulated::execute(&prepared, &staged, emulator::Schedule::InOrder, None);
        let reason = launched.unwrap_err().to_string();
        assert!(
            reason.contains("without its feature `emulated`"),
            "{reason}"
        );
    }
}
