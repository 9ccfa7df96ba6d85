//! What the figures of the emulator, ncu and ptxas suggest. Each sentence states its rule.

use crate::judge::Known;
use crate::table::session::{Gpu, first_place};
use crate::table::{On, Row, Source, Subject};
use common::metric::Metric;
use common::resources;

/// With fewer registers left within its launch bounds, a kernel has no room for another live value.
const REGISTERS_LEFT: f64 = 8.0;

/// A figure, times `scale`, over another: above `bound` it costs time.
struct Rule {
    by: Source,
    title: &'static str,
    figure: Metric,
    scale: f64,
    over: Option<Metric>,
    bound: f64,
    remedy: &'static str,
}

/// Of every wavefront; the bound is that of stage 5's claim.
const CONFLICTS: Rule = Rule {
    by: Source::Emulator,
    title: "Bank conflicts per wavefront of shared-memory reads",
    figure: Metric::SharedReadConflicts,
    scale: 1.0,
    over: Some(Metric::SharedReadWavefronts),
    bound: 0.05,
    remedy: "pad or swizzle the tile",
};

/// For each 32 bytes requested; 1 is ideal.
const SECTORS: Rule = Rule {
    by: Source::Emulator,
    title: "Sectors per 32 bytes of global reads",
    figure: Metric::GlobalReadSectors,
    scale: 32.0,
    over: Some(Metric::GlobalReadBytes),
    bound: 1.1,
    remedy: "neighbouring lanes should access neighbouring 16 bytes",
};

/// Of a warp's time.
const STALL: Rule = Rule {
    by: Source::Ncu,
    title: "Share of time stalled at block barriers",
    figure: Metric::BarrierStallShare,
    scale: 1.0,
    over: None,
    bound: 0.2,
    remedy: "fewer block barriers, or more work between them",
};

const RULES: [Rule; 8] = [
    CONFLICTS,
    Rule {
        title: "Bank conflicts per wavefront of shared-memory writes",
        figure: Metric::SharedWriteConflicts,
        over: Some(Metric::SharedWriteWavefronts),
        ..CONFLICTS
    },
    Rule {
        title: "Bank conflicts per wavefront of writes by cp.async",
        figure: Metric::AsyncWriteConflicts,
        over: Some(Metric::AsyncWriteWavefronts),
        ..CONFLICTS
    },
    SECTORS,
    Rule {
        title: "Sectors per 32 bytes of global writes",
        figure: Metric::GlobalWriteSectors,
        over: Some(Metric::GlobalWriteBytes),
        ..SECTORS
    },
    STALL,
    Rule {
        title: "Share of time stalled on global memory",
        figure: Metric::LongScoreboardShare,
        remedy: "copy earlier or with more stages in flight, to hide its latency",
        ..STALL
    },
    Rule {
        title: "Share of time stalled on shared memory",
        figure: Metric::ShortScoreboardShare,
        remedy: "fewer or wider accesses, fewer back-to-back exponentials",
        ..STALL
    },
];

impl Rule {
    fn sentence(&self, row: &Row) -> Option<String> {
        let whole = self.over.map_or(1.0, |over| row.value(over).unwrap_or(0.0));
        let value = self.scale * row.value(self.figure)? / whole.max(1.0);
        let (title, bound, remedy) = (self.title, self.bound, self.remedy);
        (value > bound).then(|| format!("{title}: {value:.2} (rule: above {bound}): {remedy}."))
    }
}

/// A sentence for each rule that applies on mission, full mask, in the stage's first element type; one that says so if none does.
pub fn insights(known: &Known<'_>, subject: &Subject) -> Vec<String> {
    let on = On::Problem(first_place(known.stage(subject.stage())));
    let row = |by: Source| known.table.row(subject, &on, by);
    let mut found: Vec<String> = RULES
        .iter()
        .filter_map(|rule| rule.sentence(row(rule.by)?))
        .collect();
    if let Some(counted) = row(Source::Emulator) {
        found.extend(of_counters(counted));
        found.extend(of_grid(known, counted));
    }
    found.extend(row(Source::Ncu).and_then(of_memory));
    found.extend(of_compiler(known, subject));
    if found.is_empty() {
        found.push("No rule applies to the figures.".to_string());
    }
    found
}

fn of_memory(profiled: &Row) -> Option<String> {
    let dram = profiled.value(Metric::DramThroughput)?;
    let tensor = profiled.value(Metric::TensorPipeActive)?;
    (dram > 0.8 && tensor < 0.4).then(|| {
        format!(
            "DRAM at {:.0} % of its peak, tensor cores at {:.0} % (rule: above 80 and below 40): copy asynchronously, reuse tiles from L2.",
            100.0 * dram,
            100.0 * tensor
        )
    })
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

/// What does not take the asynchronous way to shared memory, or not the tensor cores.
fn of_counters(row: &Row) -> Vec<String> {
    let value = |metric: Metric| row.value(metric).unwrap_or(0.0);
    let asynchronous = value(Metric::AsyncCopyShare) + value(Metric::TmaReadShare);
    let copies = (row.has(Metric::AsyncCopyBytes) && asynchronous < 0.5).then(|| {
        format!(
            "{:.0} % of the global bytes are copied by cp.async or TMA (rule: below half): the rest goes through registers.",
            100.0 * asynchronous
        )
    });
    // Of Q·Kᵀ and of P·V: two operations each.
    let problem = row.on.problem().and_then(|place| place.problem());
    let share = row.value(Metric::TensorMacs).zip(problem);
    let share = share.map(|(macs, problem)| 200.0 * macs / problem.flops() as f64);
    let products = share.filter(|share| *share < 100.0).map(|share| {
        format!(
            "{share:.0} % of the multiply-adds run on tensor cores (rule: all of Q·Kᵀ and P·V)."
        )
    });
    copies.into_iter().chain(products).collect()
}

fn of_compiler(known: &Known<'_>, subject: &Subject) -> Vec<String> {
    let [mut spilled, mut full] = [vec![], vec![]];
    for row in known.table.of(subject, Source::Ptxas) {
        if let Some(limit) = known.table.declared(row).and_then(register_limit)
            && let Some(used) = row.value(Metric::Registers)
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
    let rules = [(spilled, spills), (full, pressure)].into_iter();
    let applies = rules.filter(|(places, _)| !places.is_empty());
    applies
        .map(|(places, rule)| format!("{rule}: {}.", places.join(", ")))
        .collect()
}

/// Registers that launch bounds leave to a thread.
fn register_limit(declared: &Row) -> Option<f64> {
    let [threads, blocks] = [Metric::Threads, Metric::MinBlocks].map(|of| declared.value(of));
    Some(resources::register_limit(threads? as u32, blocks? as u32).into())
}
