//! Gate R1: compares a kernel's share of an SM with committed caps and hardware limits.

use crate::maps::BoxRows;
use crate::probability::Probability;
use crate::problem::Dtype;
use crate::verdict::{GateId, GateResult};
use kernel_build::report::Resources;
use std::collections::BTreeMap;

/// The facts that an instance declares about itself.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelFacts {
    pub symbol: String,
    pub dtype: Dtype,
    pub head_dim: usize,
    pub block_m: usize,
    pub block_n: usize,
    pub threads: u32,
    pub min_blocks: u32,
    pub dynamic_shared_bytes: usize,
    pub boxes: Option<BoxRows>,
    /// The number of blocks in a cluster, neighbours in x of the grid; 1 without clusters.
    pub cluster: u32,
    /// The caps, if `caps.csv` has a line.
    pub caps: Option<Caps>,
    pub probability: Probability,
    pub lse: bool,
}

/// The caps of an instance, committed in the stage's `caps.csv`. No compiler reads them: growth
/// fails gate R1 instead of going unseen below launch bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    pub register_cap: u32,
    pub shared_cap_bytes: usize,
}

pub type CapsBySymbol<'a> = BTreeMap<&'a str, Caps>;

impl Caps {
    /// The first line of `caps.csv`.
    pub const HEAD: &str = "symbol,registers,shared_bytes";

    /// The architectures of a plain build, whose registers are capped. Others may take more without
    /// a spill: sm_120 up to 21.
    pub const ARCHITECTURES: [&str; 2] = ["sm_89", "sm_90a"];

    /// Returns the worst architecture's registers, rounded up to 8, plus 8; shared memory rounded
    /// up to 1 KB.
    pub fn with_headroom(facts: &KernelFacts, entries: &[PtxasEntry]) -> Self {
        let mut registers = 0;
        let mut most_shared_bytes = 0;
        for entry in entries {
            registers = registers.max(entry.resources.registers);
            most_shared_bytes = most_shared_bytes.max(shared_bytes(facts, entry));
        }
        Self {
            register_cap: registers.next_multiple_of(8) + 8,
            shared_cap_bytes: most_shared_bytes.next_multiple_of(1024),
        }
    }

    /// Reads a `caps.csv`: [`Self::HEAD`], then a line per instance.
    ///
    /// # Errors
    ///
    /// The first line that is malformed.
    pub fn parse(text: &str) -> Result<CapsBySymbol<'_>, &str> {
        text.lines()
            .filter(|line| *line != Self::HEAD)
            .map(|line| Self::parse_line(line).ok_or(line))
            .collect()
    }

    fn parse_line(line: &str) -> Option<(&str, Self)> {
        let (symbol, numbers) = line.split_once(',')?;
        let (registers, shared_bytes) = numbers.split_once(',')?;
        let caps = Self {
            register_cap: registers.parse().ok()?,
            shared_cap_bytes: shared_bytes.parse().ok()?,
        };
        Some((symbol, caps))
    }
}

/// The report of ptxas on an instance for one architecture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxasEntry {
    pub arch: String,
    pub sass_sha256: String,
    pub resources: Resources,
    /// The warnings that ptxas did not do as the kernel asks.
    pub warnings: Vec<String>,
}

/// The limits of an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    pub threads: u32,
    pub blocks: u32,
    pub registers: u32,
    /// The shared memory of all blocks, reserved parts included.
    pub shared_bytes: usize,
    pub shared_opt_in_bytes: usize,
}

/// The shared memory that the driver reserves for every block (compute capability 8.0 and later).
pub const RESERVED_SHARED_BYTES: usize = 1024;

const REGISTER_UNIT: u32 = 256;

/// The bytes in which shared memory is allocated.
const SHARED_UNIT: usize = 128;

/// The SMs of all architectures: CUDA C++ Programming Guide, "Technical Specifications per Compute
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

/// Makes the limits of an SM, with shared memory in KiB.
const fn limits(threads: u32, blocks: u32, shared: usize, opt_in: usize) -> Multiprocessor {
    Multiprocessor {
        threads,
        blocks,
        registers: 65_536,
        shared_bytes: shared << 10,
        shared_opt_in_bytes: opt_in << 10,
    }
}

pub fn multiprocessor(arch: &str) -> Option<Multiprocessor> {
    let name = arch.trim_end_matches(['a', 'f']);
    let (_, limits) = ARCHITECTURES
        .into_iter()
        .find(|(known, _)| *known == name)?;
    Some(limits)
}

/// The warps of an SM.
#[derive(Debug, PartialEq)]
struct Warps {
    /// The number that it holds of a kernel.
    resident: u32,
    /// The number that it could hold.
    most: u32,
}

/// Computes how many warps of a kernel an SM holds. `shared_bytes` are static and dynamic, without
/// the reserved part.
fn occupancy(sm: &Multiprocessor, threads: u32, registers: u32, shared_bytes: usize) -> Warps {
    let warps = threads.div_ceil(32);
    let registers_per_warp = (registers.max(1) * 32).next_multiple_of(REGISTER_UNIT);
    // Each of the four partitions holds whole warps, so warps are counted per partition and
    // multiplied.
    let warps_by_registers = (sm.registers / 4 / registers_per_warp) * 4;
    let shared_per_block = (shared_bytes + RESERVED_SHARED_BYTES).next_multiple_of(SHARED_UNIT);
    let blocks = sm
        .blocks
        .min(sm.threads / (warps * 32))
        .min(warps_by_registers / warps)
        .min((sm.shared_bytes / shared_per_block) as u32);
    Warps {
        resident: blocks * warps,
        most: sm.threads / 32,
    }
}

/// Returns the static shared memory that a kernel declares: from sm_90 on, some versions of ptxas
/// count the reserved bytes as static ones.
fn declared_static_bytes(entry: &PtxasEntry) -> usize {
    let bytes = entry.resources.static_shared_bytes as usize;
    let digits: String = entry.arch.chars().filter(char::is_ascii_digit).collect();
    let number: u32 = digits.parse().unwrap_or(0);
    if number >= 90 && bytes >= RESERVED_SHARED_BYTES {
        bytes - RESERVED_SHARED_BYTES
    } else {
        bytes
    }
}

/// Returns the shared memory of a block, without the reserved part.
fn shared_bytes(facts: &KernelFacts, entry: &PtxasEntry) -> usize {
    declared_static_bytes(entry) + facts.dynamic_shared_bytes
}

/// Returns the share of an SM's warps that a kernel can fill.
pub fn occupancy_of(facts: &KernelFacts, entry: &PtxasEntry) -> Option<f64> {
    let sm = multiprocessor(&entry.arch)?;
    let shared = shared_bytes(facts, entry);
    let warps = occupancy(&sm, facts.threads, entry.resources.registers, shared);
    // Multiplied and divided by 100, so that the bits are those of the figures in records.
    Some(100.0 * f64::from(warps.resident) / f64::from(warps.most) / 100.0)
}

/// Judges gate R1. What the architecture cannot hold does not fail: it is `Unsupported` there.
pub fn judge(facts: &KernelFacts, entry: &PtxasEntry) -> GateResult {
    let Some(caps) = facts.caps else {
        return GateResult::fail(
            GateId::R1,
            format!(
                "{}: {} has no line in the stage's caps.csv; add it: UPDATE_CAPS=1 cargo test \
                 -p STAGE resources",
                entry.arch, facts.symbol
            ),
        );
    };
    let broken = broken_limits(facts, entry, caps);
    if !broken.is_empty() {
        return GateResult::fail(GateId::R1, format!("{}: {}", entry.arch, broken.join("; ")));
    }
    let register_cap = if is_capped(entry) {
        format!("cap {}", caps.register_cap)
    } else {
        "no cap there".to_string()
    };
    let shared = shared_bytes(facts, entry);
    let mut summary = format!(
        "{}: {} registers ({register_cap}), {shared} shared bytes (cap {}), no spill, no stack",
        entry.arch, entry.resources.registers, caps.shared_cap_bytes
    );
    // The opt-in limit already leaves the reserved bytes out.
    if let Some(sm) = multiprocessor(&entry.arch)
        && shared > sm.shared_opt_in_bytes
    {
        summary += &format!("; unsupported there: it has {}", sm.shared_opt_in_bytes);
    }
    GateResult::judge(GateId::R1, true, summary)
}

fn is_capped(entry: &PtxasEntry) -> bool {
    Caps::ARCHITECTURES.contains(&entry.arch.as_str())
}

/// Returns the limits that a kernel exceeds, and what ptxas warned about.
fn broken_limits(facts: &KernelFacts, entry: &PtxasEntry, caps: Caps) -> Vec<String> {
    let used = &entry.resources;
    let spilled = used.spill_store_bytes + used.spill_load_bytes;
    let register_cap = if is_capped(entry) {
        caps.register_cap as usize
    } else {
        usize::MAX
    };
    let limits = [
        ("spilled bytes", spilled as usize, 0),
        ("stack bytes", used.stack_frame_bytes as usize, 0),
        ("registers", used.registers as usize, register_cap),
        (
            "declared static shared bytes",
            declared_static_bytes(entry),
            0,
        ),
        (
            "shared bytes over the cap:",
            shared_bytes(facts, entry),
            caps.shared_cap_bytes,
        ),
    ];
    let mut broken = Vec::new();
    for (name, value, most) in limits {
        if value > most {
            broken.push(format!("{name} {value} > {most}"));
        }
    }
    for warning in &entry.warnings {
        broken.push(format!("ptxas: {warning}"));
    }
    broken
}

#[cfg(test)]
mod tests;
