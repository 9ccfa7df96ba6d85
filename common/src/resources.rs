//! Gate R1: a kernel's share of an SM against committed caps and hardware limits.

use crate::maps::BoxRows;
use crate::problem::Dtype;
use crate::reference::Probability;
use crate::verdict::{GateId, GateResult};
use kernel_build::report::Resources;
use std::collections::BTreeMap;

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
    /// Blocks, neighbours in x of the grid; 1: none.
    pub cluster: u32,
    /// None where `caps.csv` has no line.
    pub caps: Option<Caps>,
    pub probability: Probability,
    pub lse: bool,
}

/// Committed in the stage's `caps.csv`. No compiler reads them: growth fails gate R1 instead of going unseen below launch
/// bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    pub register_cap: u32,
    pub shared_cap_bytes: usize,
}

impl Caps {
    pub const HEAD: &str = "symbol,registers,shared_bytes";

    /// Of a plain build, whose registers are capped. Others may take more without a spill: sm_120 up to 21.
    pub const ARCHITECTURES: [&str; 2] = ["sm_89", "sm_90a"];

    /// The worst architecture's registers, rounded up to 8, plus 8; shared memory rounded up to 1 KB.
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

    /// A `caps.csv`: [`Self::HEAD`], then a line per instance. An error is the line that is none.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PtxasEntry {
    pub arch: String,
    pub sass_sha256: String,
    pub resources: Resources,
    /// Where ptxas did not do as the kernel asks.
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Multiprocessor {
    pub threads: u32,
    pub blocks: u32,
    pub registers: u32,
    /// Shared memory of all blocks, reserved parts included.
    pub shared_bytes: usize,
    pub shared_opt_in_bytes: usize,
}

/// By the driver, for every block (compute capability 8.0 and later).
pub const RESERVED_SHARED_BYTES: usize = 1024;

const REGISTER_UNIT: u32 = 256;

/// Bytes in which shared memory is handed out.
const SHARED_UNIT: usize = 128;

/// CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
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

pub fn multiprocessor(arch: &str) -> Option<Multiprocessor> {
    let name = arch.trim_end_matches(['a', 'f']);
    let (_, limits) = ARCHITECTURES
        .into_iter()
        .find(|(known, _)| *known == name)?;
    Some(limits)
}

/// Warps that an SM holds of a kernel, and that it could hold. `shared_bytes`: static and dynamic, without the reserved part.
fn occupancy(sm: &Multiprocessor, threads: u32, registers: u32, shared_bytes: usize) -> (u32, u32) {
    let warps = threads.div_ceil(32);
    let registers_per_warp = (registers.max(1) * 32).next_multiple_of(REGISTER_UNIT);
    // Each of the four partitions holds whole warps, so warps are counted per partition and multiplied.
    let warps_by_registers = (sm.registers / 4 / registers_per_warp) * 4;
    let shared_per_block = (shared_bytes + RESERVED_SHARED_BYTES).next_multiple_of(SHARED_UNIT);
    let blocks = sm
        .blocks
        .min(sm.threads / (warps * 32))
        .min(warps_by_registers / warps)
        .min((sm.shared_bytes / shared_per_block) as u32);
    (blocks * warps, sm.threads / 32)
}

/// From sm_90 on, some versions of ptxas count the reserved bytes as static ones.
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

/// Per block, without the reserved part.
fn shared_bytes(facts: &KernelFacts, entry: &PtxasEntry) -> usize {
    declared_static_bytes(entry) + facts.dynamic_shared_bytes
}

pub fn occupancy_of(facts: &KernelFacts, entry: &PtxasEntry) -> Option<f64> {
    let sm = multiprocessor(&entry.arch)?;
    let shared = shared_bytes(facts, entry);
    let (warps, most) = occupancy(&sm, facts.threads, entry.resources.registers, shared);
    // By way of percent: the bits of the figures that records hold.
    Some(100.0 * f64::from(warps) / f64::from(most) / 100.0)
}

/// What the architecture cannot hold does not fail: it is `Unsupported` there.
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
