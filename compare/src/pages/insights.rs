//! What counters, ncu's and ptxas's figures suggest, by rules that stand in the sentences.

use crate::record::meta::{Gpu, first_place};
use crate::record::{On, Place, Record, Row, Source, Subject};
use common::metric::Metric;

/// A larger share of conflicts among wavefronts costs time: the bound that the ladder's last stage sets itself (E1).
const CONFLICT_SHARE: f64 = 0.05;

/// This close to what launch bounds leave, a kernel has no registers for another idea.
const REGISTERS_LEFT: f64 = 8.0;

/// Sectors per 32 bytes asked for; 1 is perfect.
const SECTOR_EXCESS: f64 = 1.1;

/// From this share of a warp's time on, a reason to stall is worth an idea of its own.
const STALL_SHARE: f64 = 0.2;

/// What shortens a wait.
const STALLS: [(Metric, &str); 3] = [
    (
        Metric::BarrierStallShare,
        "fewer block barriers, or more work between them",
    ),
    (
        Metric::LongScoreboardShare,
        "copy earlier and deeper, so that global memory is not waited for",
    ),
    (
        Metric::ShortScoreboardShare,
        "fewer or wider accesses to shared memory, fewer exponentials in a row",
    ),
];

/// One sentence per rule that holds on mission under the full mask, in the stage's first element type; one that says so where none
/// does.
pub fn insights(record: &Record, subject: &Subject) -> Vec<String> {
    let place = first_place(record.stage(subject.stage()));
    let on = On::Problem(place.clone());
    let counted = record.row(subject, &on, Source::Emulator);
    let mut found: Vec<String> = counted
        .into_iter()
        .flat_map(|row| of_counters(record, &place, row))
        .collect();
    found.extend(counted.and_then(|row| of_grid(record, row)));
    found.extend(
        record
            .row(subject, &on, Source::Ncu)
            .into_iter()
            .flat_map(of_stalls),
    );
    found.extend(of_compiler(record, subject));
    if found.is_empty() {
        found.push("No rule holds on what is known here.".to_string());
    }
    found
}

fn of_grid(record: &Record, counted: &Row) -> Option<String> {
    let Gpu::Present {
        multiprocessors: sms,
        ..
    } = &record.meta.machine.gpu
    else {
        return None;
    };
    let blocks = counted.value(Metric::LaunchBlocks)?;
    (blocks < f64::from(*sms)).then(|| {
        format!(
            "{blocks} blocks for {sms} SMs (rule: fewer than one each): the rest idles; smaller tiles, or split keys."
        )
    })
}

fn of_stalls(row: &Row) -> Vec<String> {
    let found = STALLS
        .iter()
        .filter_map(|(metric, remedy)| Some((metric, remedy, row.value(*metric)?)));
    let holds = found.filter(|(_, _, share)| *share >= STALL_SHARE);
    holds
        .map(|(metric, remedy, share)| {
            format!(
                "{metric} {:.0} % (rule: from {:.0} %): {remedy}.",
                100.0 * share,
                100.0 * STALL_SHARE
            )
        })
        .collect()
}

fn of_counters(record: &Record, place: &Place, row: &Row) -> Vec<String> {
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
                 swizzle what is read."
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
                "Global memory is {what} in {excess:.2} times the sectors that its bytes fill (rule: above {SECTOR_EXCESS}): \
                 neighbouring lanes should touch neighbouring 16 bytes."
            ));
        }
    }
    if row.has(Metric::AsyncCopyBytes) && value(Metric::AsyncCopyShare) < 0.5 {
        found.push(format!(
            "{:.0} % of the global bytes come by cp.async (rule: below half): the rest waits in registers.",
            100.0 * value(Metric::AsyncCopyShare)
        ));
    }
    // Of Q·Kᵀ and of P·V.
    let shape = record.meta.shapes.get(&place.shape);
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
    let threads = declared.value(Metric::Threads)? * declared.value(Metric::MinBlocks)?;
    Some((65_536 / (threads as u32).max(1) / 8 * 8).min(255).into())
}

fn of_compiler(record: &Record, subject: &Subject) -> Vec<String> {
    let [mut spilled, mut full] = [vec![], vec![]];
    for row in record.of(subject, Source::Ptxas) {
        let limit = record.declared(row).and_then(register_limit);
        if let (Some(used), Some(limit)) = (row.value(Metric::Registers), limit)
            && used + REGISTERS_LEFT > limit
        {
            full.push(format!("{} ({used} of {limit})", row.on));
        }
        if row
            .value(Metric::SpillBytes)
            .is_some_and(|bytes| bytes > 0.0)
        {
            spilled.push(row.on.to_string());
        }
    }
    let said = [
        (
            spilled,
            "Spills (rule: none): fewer live values, or fewer blocks per SM".to_string(),
        ),
        (
            full,
            format!(
                "Registers at the limit of the launch bounds (rule: fewer than {REGISTERS_LEFT} left): another live value may spill"
            ),
        ),
    ];
    let holds = said.into_iter().filter(|(places, _)| !places.is_empty());
    holds
        .map(|(places, what)| format!("{what}: {}.", places.join(", ")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pages::testing::{BEST, instance, mission, record, row};
    use common::problem::Dtype;

    #[test]
    fn each_rule_speaks_where_it_holds() {
        let mut record = record();
        row(&mut record, BEST, &instance(), Source::Ptxas)
            .figures
            .insert(Metric::SpillBytes, 64.0.into());
        let counted = row(&mut record, BEST, &mission(), Source::Emulator);
        for (metric, value) in [
            (Metric::GlobalReadBytes, 1_048_576.0),
            (Metric::GlobalReadSectors, 65_536.0),
            (Metric::AsyncCopyBytes, 262_144.0),
            (Metric::TensorMacs, 134_217_728.0),
        ] {
            counted.figures.insert(metric, value.into());
        }
        record
            .append(Row::new(BEST, mission(), Source::Ncu).figure(Metric::BarrierStallShare, 0.3));
        let declared = On::Instance {
            dtype: Dtype::F16,
            head_dim: 64,
            arch: None,
        };
        let declared = Row::new(BEST, declared, Source::Kernel);
        record.append(
            declared
                .figure(Metric::Threads, 128_u32)
                .figure(Metric::MinBlocks, 4_u32),
        );
        insta::assert_snapshot!(insights(&record, &BEST.into()).join("\n"), @r##"
Bank conflicts are 25 % of the wavefronts of shared-memory reads (rule: above 5 %): pad or swizzle what is read.
Global memory is read in 2.00 times the sectors that its bytes fill (rule: above 1.1): neighbouring lanes should touch neighbouring 16 bytes.
25 % of the global bytes come by cp.async (rule: below half): the rest waits in registers.
50 % of the multiply-adds run on tensor cores (rule: all of Q·Kᵀ and P·V).
128 blocks for 132 SMs (rule: fewer than one each): the rest idles; smaller tiles, or split keys.
barrier stalls' share 30 % (rule: from 20 %): fewer block barriers, or more work between them.
Spills (rule: none): fewer live values, or fewer blocks per SM: f16 d64 sm_90a.
Registers at the limit of the launch bounds (rule: fewer than 8 left): another live value may spill: f16 d64 sm_90a (128 of 128).
"##);
        assert_eq!(
            insights(&record, &"stage1-mma/none".into()),
            ["No rule holds on what is known here."]
        );
    }
}
