//! Gate R1: what a kernel takes from an SM, against its committed caps and the hardware's limits.
//!
//! Pure: the facts come from `kernel.cu`, `caps.csv` and ptxas, the verdict from arithmetic.

use crate::maps::BoxRows;
use crate::problem::Dtype;
use crate::reference::Probability;
use crate::verdict::{GateId, GateResult};
use kernel_build::report::Resources;
use std::collections::BTreeMap;

/// What `kernel.cu` declares about one instance.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelFacts {
    /// The entry's name.
    pub symbol: String,
    /// Element type of Q, K and V.
    pub dtype: Dtype,
    /// 64 or 128.
    pub head_dim: usize,
    /// Query rows per block.
    pub block_m: usize,
    /// Keys per tile.
    pub block_n: usize,
    /// Threads per block.
    pub threads: u32,
    /// The least number of blocks per SM, as the compiler is told.
    pub min_blocks: u32,
    /// Dynamic shared memory of a launch.
    pub dynamic_shared_bytes: usize,
    /// The boxes of its tensor maps; none where it takes parameters alone.
    pub boxes: Option<BoxRows>,
    /// Blocks of a cluster, neighbours in x of the grid; 1: none.
    pub cluster: u32,
    /// What it may take; none where the stage's `caps.csv` has no line for it.
    pub caps: Option<Caps>,
    /// The type of P where it meets V.
    pub probability: Probability,
    /// Whether it writes log-sum-exps where they are wanted.
    pub lse: bool,
}

impl KernelFacts {
    /// Registers that launch bounds leave a thread: what would be more is spilled.
    pub fn register_limit(&self) -> u32 {
        register_limit(self.threads, self.min_blocks)
    }
}

/// Registers that an SM's 65,536 leave each of `threads` threads of `min_blocks` blocks: a multiple of 8, at most 255.
pub fn register_limit(threads: u32, min_blocks: u32) -> u32 {
    (65_536 / (threads * min_blocks).max(1) / 8 * 8).min(255)
}

/// What an instance may take at most, as committed in the `caps.csv` of its stage. Launch bounds are set apart from it, and no
/// compiler reads it: growth fails gate R1 instead of going unseen below a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Registers per thread.
    pub register_cap: u32,
    /// Shared memory per block, static and dynamic.
    pub shared_cap_bytes: usize,
}

impl Caps {
    /// The first line of a `caps.csv`.
    pub const HEAD: &str = "symbol,registers,shared_bytes";

    /// What a plain build makes, and whose registers the caps are of. Others may take more without a spill: sm_120 up to 21
    /// over them.
    pub const ARCHITECTURES: [&str; 2] = ["sm_89", "sm_90a"];

    /// For what an instance takes now: the registers of the worst architecture, rounded up to 8, plus 8; shared memory rounded
    /// up to 1 KB.
    pub fn of(facts: &KernelFacts, entries: &[PtxasEntry]) -> Self {
        let registers = entries
            .iter()
            .map(|entry| entry.resources.registers)
            .max()
            .unwrap_or(0);
        let shared = entries
            .iter()
            .map(|entry| shared_bytes(facts, entry))
            .max()
            .unwrap_or(0);
        Self {
            register_cap: registers.next_multiple_of(8) + 8,
            shared_cap_bytes: shared.next_multiple_of(1024),
        }
    }

    /// Reads a `caps.csv`: [`Self::HEAD`], then a line per instance. An error is the line that is none.
    pub fn parse(text: &str) -> Result<BTreeMap<&str, Self>, &str> {
        let read = |line| {
            let [symbol, registers, shared] =
                <[&str; 3]>::try_from(str::split(line, ',').collect::<Vec<_>>()).ok()?;
            Some((
                symbol,
                Self {
                    register_cap: registers.parse().ok()?,
                    shared_cap_bytes: shared.parse().ok()?,
                },
            ))
        };
        text.lines()
            .filter(|line| *line != Self::HEAD)
            .map(|line| read(line).ok_or(line))
            .collect()
    }
}

/// One entry of one architecture, as the build reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxasEntry {
    /// `sm_90a`.
    pub arch: String,
    /// Hash of its machine code.
    pub sass_sha256: String,
    /// What ptxas printed.
    pub resources: Resources,
    /// Where it did not do as the kernel asks, in its words.
    pub warnings: Vec<String>,
}

/// The limits of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Resident threads.
    pub threads: u32,
    /// Resident blocks.
    pub blocks: u32,
    /// Registers.
    pub registers: u32,
    /// Shared memory of all resident blocks, the reserved parts included.
    pub shared_bytes: usize,
    /// Shared memory that one block may opt in to.
    pub shared_opt_in_bytes: usize,
}

/// Shared memory that the driver adds to every block (compute capability 8.0 and later).
pub const RESERVED_SHARED_BYTES: usize = 1024;

/// Registers are handed out to whole warps in units of this many.
const REGISTER_UNIT: u32 = 256;

/// Shared memory is handed out in units of this many bytes.
const SHARED_UNIT: usize = 128;

/// The architectures whose limits are known, and these: CUDA C++ Programming Guide, "Technical Specifications per Compute
/// Capability".
pub const ARCHITECTURES: [(&str, Multiprocessor); 9] = [
    ("sm_80", limits(2048, 32, 164, 163)),
    ("sm_86", limits(1536, 16, 100, 99)),
    ("sm_87", limits(1536, 16, 164, 163)),
    ("sm_89", limits(1536, 24, 100, 99)),
    ("sm_90", limits(2048, 32, 228, 227)),
    ("sm_100", limits(2048, 32, 228, 227)),
    ("sm_103", limits(2048, 32, 228, 227)),
    ("sm_120", limits(1536, 24, 100, 99)),
    ("sm_121", limits(1536, 24, 100, 99)),
];

/// Shared memory in KiB.
const fn limits(threads: u32, blocks: u32, shared: usize, opt_in: usize) -> Multiprocessor {
    Multiprocessor {
        threads,
        blocks,
        registers: 65_536,
        shared_bytes: shared << 10,
        shared_opt_in_bytes: opt_in << 10,
    }
}

/// The limits of `arch` (`sm_89`, `sm_90a`), if they are known.
pub fn multiprocessor(arch: &str) -> Option<Multiprocessor> {
    let name = arch.trim_end_matches(['a', 'f']);
    let (_, limits) = ARCHITECTURES
        .into_iter()
        .find(|(known, _)| *known == name)?;
    Some(limits)
}

/// How many blocks fit on an SM, and what stops the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occupancy {
    /// Resident blocks.
    pub blocks: u32,
    /// Resident warps.
    pub warps: u32,
    /// Warps that the SM could hold.
    pub max_warps: u32,
    /// What stops the next block.
    pub limit: Limit,
}

named! {
    /// What stops the next block.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Limit {
        /// Resident blocks.
        Blocks = "blocks",
        /// Resident threads.
        Threads = "threads",
        /// Registers.
        Registers = "registers",
        /// Shared memory.
        SharedMemory = "shared memory",
    }
}

impl Occupancy {
    /// Resident warps as a share of the possible ones, in percent.
    pub fn percent(&self) -> f64 {
        100.0 * f64::from(self.warps) / f64::from(self.max_warps)
    }
}

/// Theoretical occupancy of a kernel. `shared_bytes` is static and dynamic without the reserved part.
pub fn occupancy(
    sm: &Multiprocessor,
    threads: u32,
    registers: u32,
    shared_bytes: usize,
) -> Occupancy {
    let warps = threads.div_ceil(32);
    let registers_per_warp = (registers.max(1) * 32).next_multiple_of(REGISTER_UNIT);
    // Each of the four partitions holds whole warps, so warps are counted per partition and multiplied.
    let warps_by_registers = (sm.registers / 4 / registers_per_warp) * 4;
    let shared_per_block = (shared_bytes + RESERVED_SHARED_BYTES).next_multiple_of(SHARED_UNIT);
    let limits = [
        (sm.blocks, Limit::Blocks),
        (sm.threads / (warps * 32), Limit::Threads),
        (warps_by_registers / warps, Limit::Registers),
        (
            (sm.shared_bytes / shared_per_block) as u32,
            Limit::SharedMemory,
        ),
    ];
    let (blocks, limit) = limits
        .into_iter()
        .min_by_key(|(blocks, _)| *blocks)
        .expect("four limits");
    Occupancy {
        blocks,
        warps: blocks * warps,
        max_warps: sm.threads / 32,
        limit,
    }
}

/// Static shared memory that the kernel itself declares. From sm_90 on, some versions of ptxas count the reserved bytes
/// as static ones.
fn declared_static_bytes(entry: &PtxasEntry) -> usize {
    let bytes = entry.resources.static_shared_bytes as usize;
    let number: u32 = entry
        .arch
        .chars()
        .filter(char::is_ascii_digit)
        .collect::<String>()
        .parse()
        .unwrap_or(0);
    if number >= 90 && bytes >= RESERVED_SHARED_BYTES {
        bytes - RESERVED_SHARED_BYTES
    } else {
        bytes
    }
}

/// Shared memory per block, without the reserved part.
fn shared_bytes(facts: &KernelFacts, entry: &PtxasEntry) -> usize {
    declared_static_bytes(entry) + facts.dynamic_shared_bytes
}

/// The occupancy of an instance, where the architecture is known.
pub fn occupancy_of(facts: &KernelFacts, entry: &PtxasEntry) -> Option<Occupancy> {
    let sm = multiprocessor(&entry.arch)?;
    Some(occupancy(
        &sm,
        facts.threads,
        entry.resources.registers,
        shared_bytes(facts, entry),
    ))
}

/// Gate R1 on one instance for one architecture. An instance that the architecture cannot hold does not fail: it is
/// refused there before launch, as `Unsupported`, and the reason says so.
pub fn judge(facts: &KernelFacts, entry: &PtxasEntry) -> GateResult {
    let (used, shared) = (&entry.resources, shared_bytes(facts, entry));
    let Some(caps) = facts.caps else {
        let remedy = "add it: UPDATE_CAPS=1 cargo test -p STAGE resources";
        return GateResult::fail(
            GateId::R1,
            format!(
                "{}: {} has no line in the stage's caps.csv; {remedy}",
                entry.arch, facts.symbol
            ),
        );
    };
    let mut broken = Vec::new();
    let mut at_most = |name: &str, value: usize, most: usize| {
        if value > most {
            broken.push(format!("{name} {value} > {most}"));
        }
    };
    at_most(
        "spilled bytes",
        (used.spill_store_bytes + used.spill_load_bytes) as usize,
        0,
    );
    at_most("stack bytes", used.stack_frame_bytes as usize, 0);
    let capped = Caps::ARCHITECTURES.contains(&entry.arch.as_str());
    at_most(
        "registers",
        used.registers as usize,
        if capped {
            caps.register_cap as usize
        } else {
            usize::MAX
        },
    );
    at_most(
        "declared static shared bytes",
        declared_static_bytes(entry),
        0,
    );
    at_most("shared bytes over the cap:", shared, caps.shared_cap_bytes);
    broken.extend(
        entry
            .warnings
            .iter()
            .map(|warning| format!("ptxas: {warning}")),
    );
    let of_arch = multiprocessor(&entry.arch).map(|sm| sm.shared_opt_in_bytes);
    // The opt-in limit already leaves the reserved bytes out.
    let refused = of_arch.filter(|&limit| shared > limit);
    let cap = if capped {
        format!("cap {}", caps.register_cap)
    } else {
        "no cap there".to_string()
    };
    let summary = format!(
        "{}: {} registers ({cap}), {shared} shared bytes (cap {}), no spill, no stack",
        entry.arch, used.registers, caps.shared_cap_bytes
    );
    if broken.is_empty() {
        let refused = refused.map_or(String::new(), |limit| {
            format!("; unsupported there: it has {limit}")
        });
        GateResult::judge(GateId::R1, true, summary + &refused)
    } else {
        GateResult::fail(GateId::R1, format!("{}: {}", entry.arch, broken.join("; ")))
    }
}

#[cfg(test)]
mod tests;
