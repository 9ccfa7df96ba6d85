//! A stage, and the trait that ties it to a device.

use crate::claim::{Claim, Where};
use crate::limits::{DeviceLimits, Shortfall};
use crate::maps::BoxRows;
use crate::params::{self, AttentionKernel, AttentionMaps};
use crate::probability::Probability;
use crate::problem::{Dtype, Problem, Shape};
use crate::resources::{Caps, KernelFacts, PtxasEntry};
use crate::serving::Cache;
use kernel_build::report::{BuildReport, GpuBuild};
use std::ffi::CStr;
use std::fmt;
use std::ops::Deref;

/// A function that returns the instances that `kernel.cu` declares, with their number, maps (null
/// where all take parameters alone) and clusters' blocks (null where there are none).
pub type Table = unsafe extern "C" fn(
    *mut i32,
    *mut *const AttentionMaps,
    *mut *const i32,
) -> *const AttentionKernel;

/// The products of a stage's build script.
pub struct Artifacts {
    pub kernels: Table,
    /// `None` without the feature `emulated`.
    pub traced_kernels: Option<Table>,
    /// The GPU code for every architecture built; `None` without nvcc.
    pub fatbin: Option<&'static [u8]>,
    /// The file, on the machine that built it, of the PTX that the machine code for sm_90a was
    /// assembled from; `None` without nvcc or the feature `emulated`.
    pub ptx: Option<&'static str>,
    pub report_json: &'static str,
    pub caps: &'static str,
    /// The architectures that have its instructions (`sm_90a`); empty: all.
    pub architectures: &'static [&'static str],
    /// The device sources: paths from the workspace root, and text.
    pub sources: &'static [(&'static str, &'static str)],
}

/// The declarations of a stage about itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StageInfo {
    pub id: &'static str,
    pub idea: &'static str,
    /// The stage whose `kernel.cu` this one changes.
    pub predecessor: Option<&'static str>,
    pub role: Role,
    /// The variant for tests and quick runs: `wmma-qk-32x64`; see [`LoadedStage::default_variant`].
    pub default_variant: &'static str,
    pub claims: &'static [Claim],
    pub redundant: &'static [Redundant],
}

/// The place of a stage in the ladder, which is a tree: pages show the main path and the branches
/// apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Role {
    /// A rung of the main path.
    Rung,
    /// A branch for one kind of problem, which is shown there and nowhere else.
    Branch {
        /// `small grids`.
        purpose: &'static str,
        problem: Where,
    },
}

/// A synchronisation site that every instance of a family does without; [`crate::suppression`]
/// demands that each is listed, and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Redundant {
    pub family: &'static str,
    /// Words of the call's line, or of the comment above it, that no other site of the family has.
    pub site: &'static str,
    pub reason: &'static str,
}

/// An instance: a preset compiled for an element type and a head size.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// The code path: `wmma-qk`.
    pub family: String,
    /// The preset: `wmma-qk-32x64`.
    pub variant: String,
    pub facts: KernelFacts,
    /// The plain build; none in a stage that was built without its feature `emulated`.
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
    #[error(
        "{variant} takes equal sequences in dense tensors with a head_dim of 64 or 128 alone, not \
         {shape}; take a variant of a stage that serves them"
    )]
    Serving { variant: String, shape: Shape },
    #[error(
        "{variant} reads K and V in {reads}, not in {given}; take a variant that reads {given}"
    )]
    Cache {
        variant: String,
        reads: Dtype,
        given: Dtype,
    },
    #[error("{variant} does not support this problem: {reason}")]
    Problem { variant: String, reason: String },
    #[error(
        "{variant} writes no log-sum-exps; ask for the output alone, or take a variant of \
         another stage"
    )]
    Lse { variant: String },
    #[error("{variant} needs {needed}; the device has {available}")]
    Device {
        variant: String,
        needed: String,
        available: String,
    },
}

/// An instance that is ready to launch, and its grid.
#[derive(Clone, Debug)]
pub struct Prepared<'a> {
    pub kernel: &'a Kernel,
    /// The blocks: query tiles, query heads, batch, unless the stage says otherwise. Those of a
    /// persistent kernel are items of its blocks' schedule; see [`Prepared::blocks`].
    pub grid: [u32; 3],
    /// Whether blocks stay on their multiprocessor and take one item after the other.
    pub is_persistent: bool,
    /// Whether a block has some of the first and some of the last rows.
    pub deals_rows: bool,
    /// Whether it writes log-sum-exps; see [`Prepared::with_lse`].
    pub lse: bool,
}

impl Prepared<'_> {
    /// Returns the blocks of a launch on so many multiprocessors: at most as many as these hold, all
    /// in x, of a persistent kernel, and the grid of every other.
    pub fn blocks(&self, multiprocessors: u32) -> [u32; 3] {
        if !self.is_persistent {
            return self.grid;
        }
        let resident = u64::from(multiprocessors * self.kernel.min_blocks);
        [self.items().min(resident) as u32, 1, 1]
    }

    /// Returns the number of items of a launch, however many blocks take them.
    pub fn items(&self) -> u64 {
        self.grid.iter().map(|&size| u64::from(size)).product()
    }

    /// Asks for log-sum-exps.
    ///
    /// # Errors
    ///
    /// A kernel that writes none.
    pub fn with_lse(self) -> Result<Self, Unsupported> {
        if !self.kernel.lse {
            return Err(Unsupported::Lse {
                variant: self.kernel.variant.clone(),
            });
        }
        Ok(Self { lse: true, ..self })
    }
}

/// A stage, as its crate implements it.
pub trait Attention: Sync {
    fn info(&self) -> &'static StageInfo;

    fn artifacts(&self) -> &'static Artifacts;

    /// Returns whether the queries of all heads that read the same keys are rows of the same
    /// blocks.
    fn packs_heads(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// Returns whether a block has some of the first and some of the last rows, so that under the
    /// causal mask all blocks have the same work.
    fn deals_rows(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// Returns whether blocks stay on their multiprocessor: the grid then counts items, which as
    /// many blocks as fit share.
    fn is_persistent(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// Returns the blocks: one per tile of rows, query head (or key head, where those are packed)
    /// and batch; tiles in whole clusters.
    fn grid(&self, kernel: &Kernel, problem: &Problem) -> [u32; 3] {
        let Shape {
            batch,
            heads_q,
            heads_kv,
            seq_q,
            ..
        } = problem.shape;
        let (rows, heads) = if self.packs_heads(kernel) {
            (seq_q * heads_q / heads_kv, heads_kv)
        } else {
            (seq_q, heads_q)
        };
        let tiles = rows.div_ceil(kernel.block_m) as u32;
        [
            tiles.next_multiple_of(kernel.cluster),
            heads as u32,
            batch as u32,
        ]
    }

    /// Returns whether kernels take sequences as they are served
    /// ([`Serving`](crate::serving::Serving)) with any head_dim up to what they are compiled for, not
    /// [dense](Shape::is_dense) tensors alone.
    fn serves(&self, _kernel: &Kernel) -> bool {
        false
    }

    /// Returns the type of K and V that kernels read, and no other, where it is not that of Q.
    fn cache(&self, _kernel: &Kernel) -> Option<Cache> {
        None
    }

    /// Refuses a problem that a preset cannot hold; another preset must.
    fn accepts(&self, _kernel: &Kernel, _problem: &Problem) -> Result<(), Unsupported> {
        Ok(())
    }
}

/// A stage whose artifacts contradict themselves.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{stage}: {problem}")]
pub struct LoadError {
    pub stage: &'static str,
    pub problem: String,
}

/// A stage with its instances, tied to a device if there is one.
pub struct LoadedStage {
    pub attention: &'static dyn Attention,
    pub kernels: Vec<Kernel>,
    pub report: BuildReport,
    pub device: Option<DeviceLimits>,
    #[cfg(feature = "emulated")]
    ptx: std::sync::OnceLock<Result<ptx::Module, NoPtx>>,
}

/// The reason why there is no PTX of a stage to interpret.
#[cfg(feature = "emulated")]
#[derive(Clone, Debug, thiserror::Error)]
pub enum NoPtx {
    #[error("it was built without nvcc, or not for sm_90a")]
    NotBuilt,
    #[error("the PTX stays on the machine that built it: {path}: {reason}")]
    Elsewhere { path: &'static str, reason: String },
    #[error(transparent)]
    Unreadable(#[from] ptx::ParseError),
}

impl fmt::Debug for LoadedStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadedStage")
            .field("id", &self.info().id)
            .field("kernels", &self.kernels.len())
            .finish()
    }
}

/// The capacity of the emulated table: `AttentionTable::CAPACITY` of the emulator's
/// `attn/variant.cuh`.
const TABLE_CAPACITY: i32 = 256;

impl LoadedStage {
    pub fn load(attention: &'static dyn Attention) -> Result<Self, LoadError> {
        let info = attention.info();
        let artifacts = attention.artifacts();
        let fail = |problem| LoadError {
            stage: info.id,
            problem,
        };
        let read = |table| read_table(table).map_err(|error| fail(error.to_string()));
        let report = serde_json::from_str(artifacts.report_json)
            .map_err(|error| fail(format!("the build report is not readable: {error}")))?;
        let mut kernels = read(artifacts.kernels)?;
        let caps = Caps::parse(artifacts.caps)
            .map_err(|line| fail(format!("caps.csv: '{line}' is not `{}`", Caps::HEAD)))?;
        for kernel in &mut kernels {
            kernel.facts.caps = caps.get(kernel.symbol.as_str()).copied();
        }
        #[cfg(feature = "emulated")]
        if let Some(table) = artifacts.traced_kernels {
            for traced in read(table)? {
                let plain = kernels
                    .iter_mut()
                    .find(|kernel| kernel.symbol == traced.symbol);
                if let Some(kernel) = plain {
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
            #[cfg(feature = "emulated")]
            ptx: std::sync::OnceLock::new(),
        })
    }

    /// Returns the PTX that the machine code for sm_90a was assembled from.
    #[cfg(feature = "emulated")]
    pub fn ptx(&self) -> Result<&ptx::Module, &NoPtx> {
        self.ptx.get_or_init(|| self.read_ptx()).as_ref()
    }

    #[cfg(feature = "emulated")]
    fn read_ptx(&self) -> Result<ptx::Module, NoPtx> {
        let path = self.attention.artifacts().ptx.ok_or(NoPtx::NotBuilt)?;
        let text = std::fs::read_to_string(path).map_err(|error| NoPtx::Elsewhere {
            path,
            reason: error.to_string(),
        })?;
        let name = format!("{}.ptx", self.info().id);
        Ok(ptx::Module::parse(&name, &text)?)
    }

    pub fn info(&self) -> &'static StageInfo {
        self.attention.info()
    }

    /// Returns whether the program has source lines, which H1 needs: not where it was stripped.
    #[cfg(feature = "emulated")]
    pub fn has_source_lines(&self) -> bool {
        self.kernels
            .first()
            .and_then(|kernel| kernel.traced)
            .is_some_and(emulator::trace::has_source_line)
    }

    /// Returns whether any instance supports an element type; all stages support f16 and E4M3.
    pub fn takes(&self, dtype: Dtype) -> bool {
        self.kernels.iter().any(|kernel| kernel.dtype == dtype)
    }

    /// Returns the presets in the order of their declaration.
    pub fn variants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = Vec::new();
        for kernel in &self.kernels {
            if !names.contains(&kernel.variant.as_str()) {
                names.push(&kernel.variant);
            }
        }
        names
    }

    /// Returns one preset per family: the stage's default, else the first declared, of those that
    /// the device can run for every dtype and head size, if any.
    pub fn family_variants(&self) -> Vec<&str> {
        let mut chosen: Vec<&Kernel> = Vec::new();
        for kernel in &self.kernels {
            let of_family = chosen
                .iter_mut()
                .find(|known| known.family == kernel.family);
            match of_family {
                Some(known) if self.rank(kernel) > self.rank(known) => *known = kernel,
                Some(_) => {}
                None => chosen.push(kernel),
            }
        }
        let names = chosen.into_iter();
        names.map(|kernel| kernel.variant.as_str()).collect()
    }

    /// Returns what decides which preset stands for its family: whether the device runs it, then
    /// whether it is the stage's default.
    fn rank(&self, kernel: &Kernel) -> (bool, bool) {
        let is_default = kernel.variant == self.info().default_variant;
        (self.runs(&kernel.variant), is_default)
    }

    /// Returns the type of K and V that a variant reads, where it is not that of Q.
    pub fn cache_of(&self, variant: &str) -> Option<Cache> {
        let mut kernels = self.kernels.iter();
        let kernel = kernels.find(|kernel| kernel.variant == variant)?;
        self.attention.cache(kernel)
    }

    pub fn family_of(&self, variant: &str) -> Option<&str> {
        self.kernels
            .iter()
            .find(|kernel| kernel.variant == variant)
            .map(|kernel| kernel.family.as_str())
    }

    /// Returns the stage's default, or the first of its family that the device can run for every
    /// dtype and head size.
    pub fn default_variant(&self) -> &str {
        let declared = self.info().default_variant;
        self.family_variants()
            .into_iter()
            .find(|variant| self.family_of(variant) == self.family_of(declared))
            .unwrap_or(declared)
    }

    /// Returns whether the device runs every instance of a preset.
    fn runs(&self, variant: &str) -> bool {
        self.kernels
            .iter()
            .all(|kernel| kernel.variant != variant || self.refuse(kernel).is_ok())
    }

    /// Refuses an instance that the device cannot run.
    pub fn refuse(&self, kernel: &Kernel) -> Result<(), Unsupported> {
        match self.shortfall(kernel) {
            None => Ok(()),
            Some(shortfall) => Err(Unsupported::Device {
                variant: kernel.variant.clone(),
                needed: shortfall.needed,
                available: shortfall.available,
            }),
        }
    }

    /// Returns what the device lacks for an instance; `None` where it runs.
    pub fn shortfall(&self, kernel: &Kernel) -> Option<Shortfall> {
        let device = self.device?;
        let architectures = self.attention.artifacts().architectures;
        if !architectures.is_empty() && !architectures.iter().any(|arch| device.is(arch)) {
            return Some(Shortfall {
                needed: architectures.join(" or "),
                available: device.to_string(),
            });
        }
        device.shortfall(kernel)
    }

    /// Returns what ptxas reported for each architecture; nothing without nvcc.
    pub fn ptxas_entries(&self, kernel: &Kernel) -> Vec<PtxasEntry> {
        let GpuBuild::Built(code) = &self.report.gpu else {
            return Vec::new();
        };
        let mut entries = Vec::new();
        for arch in &code.architectures {
            let mut entries_of_arch = arch.entries.iter();
            if let Some(entry) = entries_of_arch.find(|entry| entry.symbol == kernel.symbol) {
                entries.push(PtxasEntry {
                    arch: arch.name.clone(),
                    sass_sha256: entry.sass_sha256.clone(),
                    resources: entry.resources,
                    warnings: entry.warnings.clone(),
                });
            }
        }
        entries
    }

    /// Returns a preset's instance for the problem's dtype and head size, with its grid.
    pub fn prepare(&self, variant: &str, problem: &Problem) -> Result<Prepared<'_>, Unsupported> {
        if self.family_of(variant).is_none() {
            return Err(Unsupported::Variant {
                stage: self.info().id,
                variant: variant.to_string(),
                known: self.variants().join(", "),
            });
        }
        let (dtype, head_dim) = (problem.dtype, problem.shape.compiled_head_dim());
        let instance = self.kernels.iter().find(|kernel| {
            kernel.variant == variant && (kernel.dtype, kernel.head_dim) == (dtype, head_dim)
        });
        let Some(kernel) = instance else {
            return Err(Unsupported::Instance {
                variant: variant.to_string(),
                dtype,
                head_dim,
            });
        };
        self.launch(kernel, problem)
    }

    /// Returns an instance for the problem's dtype and head size with its grid.
    pub fn launch<'a>(
        &self,
        kernel: &'a Kernel,
        problem: &Problem,
    ) -> Result<Prepared<'a>, Unsupported> {
        self.refuse(kernel)?;
        if !problem.is_dense() && !self.attention.serves(kernel) {
            return Err(Unsupported::Serving {
                variant: kernel.variant.clone(),
                shape: problem.shape,
            });
        }
        let cache = self.attention.cache(kernel);
        if problem.shape.serving.cache != cache {
            return Err(Unsupported::Cache {
                variant: kernel.variant.clone(),
                reads: cache.map_or(kernel.dtype, Cache::dtype),
                given: problem.kv_dtype(),
            });
        }
        self.attention.accepts(kernel, problem)?;
        Ok(Prepared {
            kernel,
            grid: self.attention.grid(kernel, problem),
            is_persistent: self.attention.is_persistent(kernel),
            deals_rows: self.attention.deals_rows(kernel),
            lse: false,
        })
    }
}

/// Something that is wrong with the table of a stage.
#[derive(Debug, thiserror::Error)]
enum TableError {
    #[error(
        "kernel.cu declares {count} instances, the emulated table holds {TABLE_CAPACITY}; \
         raise AttentionTable::CAPACITY"
    )]
    Full { count: i32 },
    #[error("record of {symbol}: {problem}")]
    Record {
        symbol: String,
        problem: RecordProblem,
    },
}

/// Something that is wrong with one record of a table.
#[derive(Debug, thiserror::Error)]
enum RecordProblem {
    #[error("{name} = {value} is not positive")]
    NotPositive { name: &'static str, value: i32 },
    #[error("unknown dtype {0}")]
    Dtype(u32),
    #[error("unknown type of P, {0}")]
    Probability(u32),
    #[error("P of {dtype} is declared as {declarable}, not as {}", declared.name())]
    Undeclarable {
        dtype: Dtype,
        declarable: String,
        declared: Probability,
    },
    #[error("{0} threads are not whole warps of at most 1,024 threads")]
    Threads(u32),
}

fn read_table(table: Table) -> Result<Vec<Kernel>, TableError> {
    let (mut count, mut maps, mut clusters) = (0, std::ptr::null(), std::ptr::null());
    // SAFETY: the function is the one that the stage's build script generated; it only writes its
    // arguments and returns the address of a static table that constructors filled before `main`.
    let records = unsafe { table(&mut count, &mut maps, &mut clusters) };
    if count > TABLE_CAPACITY {
        return Err(TableError::Full { count });
    }
    // SAFETY: the tables hold `count` initialised records each and live as long as the program;
    // only the first is always there.
    let read = |index| unsafe {
        read_record(
            &*records.add(index),
            (!maps.is_null()).then(|| &*maps.add(index)),
            (!clusters.is_null()).then(|| *clusters.add(index)),
        )
    };
    (0..count as usize).map(read).collect()
}

/// Returns a name with hyphens: C identifiers have underscores.
fn hyphenated(text: &CStr) -> String {
    text.to_string_lossy().replace('_', "-")
}

fn read_record(
    record: &AttentionKernel,
    maps: Option<&AttentionMaps>,
    cluster: Option<i32>,
) -> Result<Kernel, TableError> {
    // SAFETY: the three names are string literals of the emulated build.
    let [family, variant, symbol_name] =
        [record.family, record.variant, record.symbol].map(|name| unsafe { CStr::from_ptr(name) });
    let symbol = symbol_name.to_string_lossy().into_owned();
    let facts = read_facts(record, &symbol, maps, cluster)
        .map_err(|problem| TableError::Record { symbol, problem })?;
    #[cfg(feature = "emulated")]
    let emulated = record.emulated.map(|entry| {
        // SAFETY: both types are C function pointers that take one pointer; the entry reads its
        // argument as AttentionParams or as AttentionLaunch, which begins with them, and C++ code
        // compiled with exceptions may unwind through it.
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

fn read_facts(
    record: &AttentionKernel,
    symbol: &str,
    maps: Option<&AttentionMaps>,
    cluster: Option<i32>,
) -> Result<KernelFacts, RecordProblem> {
    let dtype = match record.dtype as u32 {
        params::AttentionDtype_ATTENTION_F16 => Dtype::F16,
        params::AttentionDtype_ATTENTION_E4M3 => Dtype::E4m3,
        params::AttentionDtype_ATTENTION_BF16 => Dtype::Bf16,
        other => return Err(RecordProblem::Dtype(other)),
    };
    let dynamic_shared_bytes = positive("dynamic_shared_bytes", record.dynamic_shared_bytes)?;
    Ok(KernelFacts {
        symbol: symbol.to_string(),
        dtype,
        head_dim: positive("head_dim", record.head_dim)? as usize,
        block_m: positive("block_m", record.block_m)? as usize,
        block_n: positive("block_n", record.block_n)? as usize,
        threads: read_threads(record.threads)?,
        min_blocks: positive("min_blocks", record.min_blocks)?,
        dynamic_shared_bytes: dynamic_shared_bytes as usize,
        boxes: maps.and_then(BoxRows::read),
        cluster: cluster.map_or(1, |blocks| blocks.max(1) as u32),
        caps: None,
        probability: read_probability(record.probability_dtype as u32, dtype)?,
        lse: record.lse != 0,
    })
}

fn read_probability(code: u32, dtype: Dtype) -> Result<Probability, RecordProblem> {
    let declared = match code {
        params::AttentionProbability_ATTENTION_P_F32 => Probability::F32,
        params::AttentionProbability_ATTENTION_P_F16 => Probability::F16,
        params::AttentionProbability_ATTENTION_P_BF16 => Probability::Bf16,
        params::AttentionProbability_ATTENTION_P_E4M3 => Probability::E4m3,
        other => return Err(RecordProblem::Probability(other)),
    };
    let declarable = Probability::declarable(dtype);
    if declarable.contains(&declared) {
        return Ok(declared);
    }
    let names: Vec<&str> = declarable.iter().map(|p| p.name()).collect();
    Err(RecordProblem::Undeclarable {
        dtype,
        declarable: names.join(" or "),
        declared,
    })
}

fn read_threads(value: i32) -> Result<u32, RecordProblem> {
    let threads = positive("threads", value)?;
    if threads.is_multiple_of(32) && threads <= 1024 {
        Ok(threads)
    } else {
        Err(RecordProblem::Threads(threads))
    }
}

fn positive(name: &'static str, value: i32) -> Result<u32, RecordProblem> {
    match u32::try_from(value) {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(RecordProblem::NotPositive { name, value }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::{Staged, emulated};
    use crate::image::Layout;
    use crate::inputs::{Family, Inputs};
    use crate::problem::Mask;

    /// A stage is built so by `cargo test -p common -p attention-ladder`: the features of one are
    /// those of both, and no stage's is among them.
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
            is_persistent: false,
            deals_rows: false,
            lse: false,
        };
        let fault = emulated::execute(&prepared, &staged, emulator::Schedule::InOrder, None);
        let reason = fault.unwrap_err().to_string();
        assert!(
            reason.contains("without its feature `emulated`"),
            "{reason}"
        );
    }
}
