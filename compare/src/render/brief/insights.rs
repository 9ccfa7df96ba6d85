//! What counters, ncu's and ptxas's figures suggest, by rules that stand in the sentences.

use crate::comparison::FIGURES;
use common::evidence::{Counters, Counting, Quantity};
use common::problem::{Dtype, claims_problem};
use common::record::{KernelBuild, Profiled, VariantBuild};

/// A larger share of conflicts among wavefronts costs time: the bound that the ladder's last stage sets itself (E1).
const CONFLICT_SHARE: f64 = 0.05;

/// This close to what launch bounds leave, a kernel has no registers for another idea.
const REGISTERS_LEFT: u32 = 8;

/// Sectors per 32 bytes asked for; 1 is perfect.
const SECTOR_EXCESS: f64 = 1.1;

/// From this share of a warp's time on, a reason to stall is worth an idea of its own.
const STALL_SHARE: f64 = 0.2;

/// ncu's stall figures, and what shortens the wait.
const STALLS: [(&str, &str); 3] = [
    ("barrier stalls' share", "fewer block barriers, or more work between them"),
    ("long-scoreboard stalls' share", "copy earlier and deeper, so that global memory is not waited for"),
    ("short-scoreboard stalls' share", "fewer or wider accesses to shared memory, fewer exps in a row"),
];

/// What is known of a variant on mission, f16, full mask.
pub struct Known<'a> {
    /// As built.
    pub variant: Option<&'a VariantBuild>,
    /// By the emulator.
    pub counting: Option<&'a Counting>,
    /// By ncu.
    pub profiled: Option<&'a Profiled>,
    /// Of the GPU.
    pub multiprocessors: Option<u32>,
}

/// One sentence per rule that holds; one that says so where none does.
pub fn insights(known: &Known<'_>) -> Vec<String> {
    let launch = known.counting.and_then(|counting| counting.launch().ok());
    let mut found: Vec<String> = launch.into_iter().flat_map(of_counters).collect();
    found.extend(of_grid(known));
    found.extend(known.profiled.into_iter().flat_map(of_stalls));
    found.extend(known.variant.map(|variant| of_compiler(&variant.kernels)).unwrap_or_default());
    if found.is_empty() {
        found.push("No rule holds on what is known here.".to_string());
    }
    found
}

fn of_grid(known: &Known<'_>) -> Option<String> {
    let Counting::Counted { launch_blocks, .. } = known.counting? else { return None };
    let (blocks, places) = (*launch_blocks, u64::from(known.multiprocessors?));
    (blocks < places).then(|| {
        format!(
            "{blocks} blocks for {places} multiprocessors (rule: fewer than one each): the rest idles; smaller tiles, or keys \
             split over blocks."
        )
    })
}

fn of_stalls(launch: &Profiled) -> Vec<String> {
    let share = |label: &str| FIGURES.iter().find(|figure| figure.label == label)?.value(&launch.metrics);
    let found = STALLS.iter().filter_map(|(label, remedy)| Some((label, remedy, share(label)?)));
    found
        .filter(|(_, _, share)| *share >= STALL_SHARE)
        .map(|(label, remedy, share)| {
            format!("{label} {:.0} % (rule: from {:.0} %): {remedy}.", 100.0 * share, 100.0 * STALL_SHARE)
        })
        .collect()
}

fn of_counters(launch: &Counters) -> Vec<String> {
    let value = |quantity: Quantity| quantity.counted(launch).unwrap_or(0.0);
    let mut found = Vec::new();
    for (what, conflicts, wavefronts) in [
        ("reads", Quantity::SharedReadConflicts, Quantity::SharedReadWavefronts),
        ("writes", Quantity::SharedWriteConflicts, Quantity::SharedWriteWavefronts),
        ("writes by cp.async", Quantity::AsyncWriteConflicts, Quantity::AsyncWriteWavefronts),
    ] {
        let share = value(conflicts) / value(wavefronts).max(1.0);
        if share > CONFLICT_SHARE {
            let (share, bound) = (100.0 * share, 100.0 * CONFLICT_SHARE);
            found.push(format!(
                "Bank conflicts are {share:.0} % of the wavefronts of shared-memory {what} (rule: above {bound:.0} %): pad or \
                 swizzle what is read."
            ));
        }
    }
    for (what, bytes, sectors) in [
        ("read", Quantity::GlobalReadBytes, Quantity::GlobalReadSectors),
        ("written", Quantity::GlobalWriteBytes, Quantity::GlobalWriteSectors),
    ] {
        let excess = 32.0 * value(sectors) / value(bytes).max(1.0);
        if excess > SECTOR_EXCESS {
            found.push(format!(
                "Global memory is {what} in {excess:.2} times the sectors that its bytes fill (rule: above {SECTOR_EXCESS}): \
                 neighbouring lanes should touch neighbouring 16 bytes."
            ));
        }
    }
    let copied = value(Quantity::AsyncCopyShare);
    if copied < 0.5 {
        found.push(format!(
            "{:.0} % of the global bytes come by cp.async (rule: below half): the rest waits in registers.",
            100.0 * copied
        ));
    }
    let (macs, needed) = (value(Quantity::TensorMacs), needed_macs());
    if macs < needed {
        found.push(format!(
            "{:.0} % of the multiply-adds run on tensor cores (rule: all of Q·Kᵀ and P·V).",
            100.0 * macs / needed
        ));
    }
    found
}

/// Multiply-adds of Q·Kᵀ and of P·V on the claims' problem.
fn needed_macs() -> f64 {
    let shape = claims_problem(Dtype::F16).shape;
    2.0 * (shape.batch * shape.heads_q * shape.seq_q * shape.seq_kv * shape.head_dim) as f64
}

fn of_compiler(kernels: &[KernelBuild]) -> Vec<String> {
    let [mut spilled, mut full, mut alone] = [vec![], vec![], vec![]];
    for (kernel, built) in kernels.iter().flat_map(|kernel| kernel.built.iter().map(move |built| (kernel, built))) {
        let place = format!("{} d{} on {}", kernel.facts.dtype, kernel.facts.head_dim, built.ptxas.arch);
        let used = &built.ptxas.resources;
        let limit = kernel.facts.register_limit();
        if used.registers + REGISTERS_LEFT > limit {
            full.push(format!("{place} ({} of {limit})", used.registers));
        }
        if let Some(occupancy) = built.occupancy.filter(|occupancy| occupancy.blocks == 1) {
            alone.push(format!("{place} ({})", occupancy.limit.label()));
        }
        if used.spill_store_bytes + used.spill_load_bytes > 0 {
            spilled.push(place);
        }
    }
    let said = [
        (spilled, "Spills (rule: none): fewer live values, or fewer blocks per multiprocessor".to_string()),
        (
            full,
            format!(
                "Registers at the limit of the launch bounds (rule: fewer than {REGISTERS_LEFT} left): another live value may spill"
            ),
        ),
        (alone, "One block fits, limited as named (rule: nothing hides its barriers)".to_string()),
    ];
    let holds = said.into_iter().filter(|(places, _)| !places.is_empty());
    holds.map(|(places, what)| format!("{what}: {}.", places.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{built, counted, profiled, timed};

    #[test]
    fn each_rule_speaks_where_it_holds() {
        let record = built(timed([3.0, 2.0, 1.0]), 124, 4);
        let counters = counted("s", "v", 1_048_576, 12_288);
        let profiled = profiled("s", "v", &[("barrier", 3.0), ("latency", 10.0)]);
        let known = Known {
            variant: Some(&record.meta.stages[0].variants[0]),
            counting: Some(&counters.counting),
            profiled: Some(&profiled),
            multiprocessors: Some(132),
        };
        insta::assert_snapshot!(insights(&known).join("\n"));
    }

    #[test]
    fn where_none_holds_it_is_said() {
        let known = Known { variant: None, counting: None, profiled: None, multiprocessors: Some(132) };
        assert_eq!(insights(&known), ["No rule holds on what is known here."]);
    }

    #[test]
    fn every_stall_is_a_figure_of_ncu() {
        for (label, _) in STALLS {
            assert!(FIGURES.iter().any(|figure| figure.label == label), "{label}");
        }
    }
}
