//! What the figures of the emulator, ncu and ptxas suggest. Each sentence states its rule.

use crate::judge::Known;
use crate::record::meta::{Gpu, first_place};
use crate::record::{On, Place, Row, Source, Subject};
use common::metric::Metric;
use common::resources;

/// A larger share of bank conflicts among wavefronts costs time: the bound of stage 5's claim.
const CONFLICT_SHARE: f64 = 0.05;

/// With fewer registers left within its launch bounds, a kernel has no room for another live value.
const REGISTERS_LEFT: f64 = 8.0;

/// Sectors for each 32 bytes requested; 1 is ideal.
const SECTOR_EXCESS: f64 = 1.1;

/// A stall reason is worth attention from this share of a warp's time.
const STALL_SHARE: f64 = 0.2;

/// What reduces a stall.
const STALLS: [(Metric, &str); 3] = [
    (
        Metric::BarrierStallShare,
        "fewer block barriers, or more work between them",
    ),
    (
        Metric::LongScoreboardShare,
        "copy earlier or with more stages in flight, to hide the latency of global memory",
    ),
    (
        Metric::ShortScoreboardShare,
        "fewer or wider accesses to shared memory, fewer back-to-back exponentials",
    ),
];

/// A sentence for each rule that applies on mission, full mask, in the stage's first element type; one that says so if none does.
pub fn insights(known: &Known<'_>, subject: &Subject) -> Vec<String> {
    let place = first_place(known.stage(subject.stage()));
    let on = On::Problem(place.clone());
    let counted = known.table.row(subject, &on, Source::Emulator);
    let counters = counted.map(|row| of_counters(&place, row));
    let grid = counted.and_then(|row| of_grid(known, row));
    let stalls = known.table.row(subject, &on, Source::Ncu).map(of_stalls);
    let mut found = counters.unwrap_or_default();
    found.extend(grid.into_iter().chain(stalls.unwrap_or_default()));
    found.extend(of_compiler(known, subject));
    if found.is_empty() {
        found.push("No rule applies to the figures.".to_string());
    }
    found
}

fn of_grid(known: &Known<'_>, counted: &Row) -> Option<String> {
    let Gpu::Present {
        multiprocessors: sms,
        ..
    } = &known.session()?.machine.gpu
    else {
        return None;
    };
    let blocks = counted.value(Metric::LaunchBlocks)?;
    (blocks < f64::from(*sms)).then(|| {
        format!(
            "{blocks} blocks for {sms} SMs (rule: fewer than one each): the others idle; use smaller tiles or split-KV."
        )
    })
}

fn of_stalls(row: &Row) -> Vec<String> {
    let sentence = |(metric, remedy): (Metric, &str)| {
        let share = row.value(metric).filter(|share| *share >= STALL_SHARE)?;
        let (share, from) = (100.0 * share, 100.0 * STALL_SHARE);
        Some(format!(
            "{metric} {share:.0} % (rule: from {from:.0} %): {remedy}."
        ))
    };
    STALLS.into_iter().filter_map(sentence).collect()
}

fn of_counters(place: &Place, row: &Row) -> Vec<String> {
    let value = |metric: Metric| row.value(metric).unwrap_or(0.0);
    let mut found = Vec::new();
    for (what, conflicts, wavefronts) in [
        (
            "reads",
            Metric::SharedReadConflicts,
            Metric::SharedReadWavefronts,
        ),
        (
            "writes",
            Metric::SharedWriteConflicts,
            Metric::SharedWriteWavefronts,
        ),
        (
            "writes by cp.async",
            Metric::AsyncWriteConflicts,
            Metric::AsyncWriteWavefronts,
        ),
    ] {
        let share = value(conflicts) / value(wavefronts).max(1.0);
        if share > CONFLICT_SHARE {
            let (share, bound) = (100.0 * share, 100.0 * CONFLICT_SHARE);
            found.push(format!(
                "Bank conflicts are {share:.0} % of the wavefronts of shared-memory {what} (rule: above {bound:.0} %): pad or \
                 swizzle the tile."
            ));
        }
    }
    for (what, bytes, sectors) in [
        ("read", Metric::GlobalReadBytes, Metric::GlobalReadSectors),
        (
            "written",
            Metric::GlobalWriteBytes,
            Metric::GlobalWriteSectors,
        ),
    ] {
        let excess = 32.0 * value(sectors) / value(bytes).max(1.0);
        if excess > SECTOR_EXCESS {
            found.push(format!(
                "Global memory is {what} in {excess:.2} times the sectors that the bytes need (rule: above {SECTOR_EXCESS}): \
                 neighbouring lanes should access neighbouring 16 bytes."
            ));
        }
    }
    let asynchronous = value(Metric::AsyncCopyShare) + value(Metric::TmaReadShare);
    if row.has(Metric::AsyncCopyBytes) && asynchronous < 0.5 {
        found.push(format!(
            "{:.0} % of the global bytes are copied by cp.async or TMA (rule: below half): the rest goes through registers.",
            100.0 * asynchronous
        ));
    }
    // Of Q·Kᵀ and of P·V.
    let shape = place.extents();
    let needed =
        shape.map(|s| 2.0 * (s.batch * s.heads_q * s.seq_q * s.seq_kv * s.head_dim) as f64);
    if let (Some(macs), Some(needed)) = (row.value(Metric::TensorMacs), needed)
        && macs < needed
    {
        let share = 100.0 * macs / needed;
        found.push(format!(
            "{share:.0} % of the multiply-adds run on tensor cores (rule: all of Q·Kᵀ and P·V)."
        ));
    }
    found
}

/// Registers that launch bounds leave to a thread.
pub fn register_limit(declared: &Row) -> Option<f64> {
    let [threads, blocks] = [Metric::Threads, Metric::MinBlocks].map(|of| declared.value(of));
    Some(resources::register_limit(threads? as u32, blocks? as u32).into())
}

fn of_compiler(known: &Known<'_>, subject: &Subject) -> Vec<String> {
    let [mut spilled, mut full] = [vec![], vec![]];
    for row in known.table.of(subject, Source::Ptxas) {
        let limit = known.table.declared(row).and_then(register_limit);
        if let (Some(used), Some(limit)) = (row.value(Metric::Registers), limit)
            && used + REGISTERS_LEFT > limit
        {
            full.push(format!("{} ({used} of {limit})", row.on));
        }
        if row.value(Metric::SpillBytes) > Some(0.0) {
            spilled.push(row.on.to_string());
        }
    }
    let spills = "Spills (rule: none): fewer live values, or fewer blocks per SM".to_string();
    let pressure = format!(
        "Registers at the limit of the launch bounds (rule: fewer than {REGISTERS_LEFT} left): another live value may spill"
    );
    let said = [(spilled, spills), (full, pressure)].into_iter();
    let applies = said.filter(|(places, _)| !places.is_empty());
    applies
        .map(|(places, what)| format!("{what}: {}.", places.join(", ")))
        .collect()
}
