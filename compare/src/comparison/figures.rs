//! What is drawn from ncu's metrics: figures with a unit, and the emulator's quantity that each stands beside.

use common::evidence::Quantity;
use std::collections::BTreeMap;

/// How a figure is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Whole things: instructions, sectors, bytes.
    Count,
    /// A part of a whole, 0 to 1, shown in percent.
    Share,
    /// One thing per another.
    Ratio,
    /// Nanoseconds, shown in microseconds.
    Time,
}

/// One figure: the sum of metrics, each times a factor, over the sum of others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// As printed.
    pub label: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// ncu's metrics and their factors.
    pub metrics: &'static [(&'static str, f64)],
    /// What the sum is divided by; empty for 1.
    pub over: &'static [&'static str],
    /// What it means.
    pub meaning: &'static str,
    /// The emulator's quantity that it stands beside, or that only ncu has.
    pub quantity: Option<Quantity>,
    /// Whether evidence claims about the quantity are judged on it.
    pub judges: bool,
    /// Whether the table of all variants has it.
    pub in_overview: bool,
}

const PERCENT: f64 = 0.01;

/// Beside no quantity of the emulator.
const fn figure(
    label: &'static str,
    unit: Unit,
    metrics: &'static [(&'static str, f64)],
    meaning: &'static str,
) -> Figure {
    Figure { label, unit, metrics, over: &[], meaning, quantity: None, judges: false, in_overview: false }
}

/// The same as the emulator's `quantity`, counted on the GPU.
const fn counted(
    quantity: Quantity,
    metrics: &'static [(&'static str, f64)],
    over: &'static [&'static str],
    meaning: &'static str,
) -> Figure {
    let unit = if quantity.is_share() { Unit::Share } else { Unit::Count };
    Figure {
        label: quantity.label(),
        unit,
        metrics,
        over,
        meaning,
        quantity: Some(quantity),
        judges: true,
        in_overview: false,
    }
}

impl Figure {
    const fn in_overview(self) -> Self {
        Self { in_overview: true, ..self }
    }

    const fn over(self, over: &'static [&'static str]) -> Self {
        Self { over, ..self }
    }

    /// Beside `quantity`, but of another definition, so that no claim is judged on it.
    const fn beside(self, quantity: Quantity) -> Self {
        Self { quantity: Some(quantity), judges: false, ..self }
    }

    /// Its value; `None` where ncu has no value for one of the metrics, or the whole that it is a part of is 0.
    pub fn value(&self, metrics: &BTreeMap<String, f64>) -> Option<f64> {
        let sum = |names: &mut dyn Iterator<Item = (&str, f64)>| -> Option<f64> {
            names.map(|(name, factor)| Some(metrics.get(name)? * factor)).sum()
        };
        let value = sum(&mut self.metrics.iter().copied())?;
        if self.over.is_empty() {
            return Some(value);
        }
        let whole = sum(&mut self.over.iter().map(|name| (*name, 1.0)))?;
        (whole > 0.0).then(|| value / whole)
    }

    /// A value in words.
    pub fn show(&self, value: f64) -> String {
        match self.unit {
            Unit::Count => Quantity::GlobalReadBytes.show(value.round()),
            Unit::Share => Quantity::Occupancy.show(value),
            Unit::Ratio => format!("{value:.2}"),
            Unit::Time => format!("{:.2} µs", value / 1e3),
        }
    }
}

/// The figure that claims about `quantity` are judged on, where ncu measures it.
pub fn judging(quantity: Quantity) -> Option<&'static Figure> {
    FIGURES.iter().find(|figure| figure.judges && figure.quantity == Some(quantity))
}

/// Every metric that the figures need, each once.
pub fn metrics() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for figure in &FIGURES {
        for name in figure.metrics.iter().map(|(name, _)| *name).chain(figure.over.iter().copied()) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

const LOADED_BYTES: &str = "smsp__sass_data_bytes_mem_global_op_ld.sum";
const COPIED_BYTES: &str = "smsp__sass_data_bytes_mem_global_op_ldgsts.sum";
const LOAD_WAVEFRONTS: &str = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum";
const LOAD_CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum";
const TENSOR_OPS: &str = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum";
const WARP_LATENCY: &str = "smsp__average_warp_latency_per_inst_issued.ratio";
const BARRIER: &str = "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio";
const LONG_SCOREBOARD: &str = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio";
const SHORT_SCOREBOARD: &str = "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio";

/// All figures, in the order of the tables. The metrics are those that the ladder's first documents asked for, under the
/// names that they have on sm_90.
pub static FIGURES: [Figure; 27] = [
    figure(
        "time under ncu",
        Unit::Time,
        &[("gpu__time_duration.sum", 1.0)],
        "one launch with cold caches; no latency to compare with the ladder's",
    )
    .in_overview(),
    figure(
        "SM throughput",
        Unit::Share,
        &[("sm__throughput.avg.pct_of_peak_sustained_elapsed", PERCENT)],
        "of the busiest unit of a multiprocessor, of its peak",
    ),
    figure(
        "DRAM throughput",
        Unit::Share,
        &[("dram__throughput.avg.pct_of_peak_sustained_elapsed", PERCENT)],
        "of its peak",
    )
    .in_overview(),
    figure("DRAM bytes", Unit::Count, &[("dram__bytes.sum", 1.0)], "read and written, with a cold L2").in_overview(),
    figure(
        "achieved occupancy",
        Unit::Share,
        &[("sm__warps_active.avg.pct_of_peak_sustained_active", PERCENT)],
        "warps resident on a multiprocessor with work, of those possible",
    )
    .in_overview(),
    counted(
        Quantity::TensorPipeActive,
        &[("sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active", PERCENT)],
        &[],
        "of the cycles in which a multiprocessor has work",
    )
    .in_overview(),
    counted(
        Quantity::TensorMacs,
        // A multiply-add is two operations.
        &[(TENSOR_OPS, 0.5)],
        &[],
        "f16 products with f32 sums",
    ),
    figure(
        "tensor instructions",
        Unit::Count,
        &[("sm__inst_executed_pipe_tensor_op_hmma.sum", 1.0)],
        "HMMA per warp, and the HFMA2.MMA that nvcc writes constants with",
    )
    .beside(Quantity::TensorOps),
    counted(
        Quantity::GlobalReadBytes,
        &[(LOADED_BYTES, 1.0), (COPIED_BYTES, 1.0)],
        &[],
        "by loads and cp.async, as the instructions ask",
    ),
    counted(Quantity::PlainReadBytes, &[(LOADED_BYTES, 1.0)], &[], "by loads"),
    counted(Quantity::AsyncCopyBytes, &[(COPIED_BYTES, 1.0)], &[], "by cp.async"),
    counted(Quantity::AsyncCopyShare, &[(COPIED_BYTES, 1.0)], &[LOADED_BYTES, COPIED_BYTES], "of the bytes read"),
    counted(
        Quantity::GlobalWriteBytes,
        &[("smsp__sass_data_bytes_mem_global_op_st.sum", 1.0)],
        &[],
        "by stores, as the instructions ask",
    ),
    figure(
        "global sectors read",
        Unit::Count,
        &[("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1.0)],
        "32 bytes each, that L1 looks up",
    )
    .beside(Quantity::GlobalReadSectors),
    figure(
        "sectors per global read",
        Unit::Ratio,
        &[("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", 1.0)],
        "16 is all of a request of 16 bytes a lane",
    )
    .over(&["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]),
    figure("L2 sectors read", Unit::Count, &[("lts__t_sectors_srcunit_tex_op_read.sum", 1.0)], "that reach L2")
        .beside(Quantity::GlobalReadSectors),
    figure("L2 hit rate", Unit::Share, &[("lts__t_sector_hit_rate.pct", PERCENT)], "of sectors, from a cold cache")
        .in_overview(),
    figure(
        "shared-load requests",
        Unit::Count,
        &[("smsp__sass_inst_executed_op_shared_ld.sum", 1.0), ("smsp__sass_inst_executed_op_ldsm.sum", 1.0)],
        "loads and ldmatrix, as nvcc joins them",
    )
    .beside(Quantity::SharedReadRequests),
    figure("shared-load wavefronts", Unit::Count, &[(LOAD_WAVEFRONTS, 1.0)], "of loads and ldmatrix")
        .beside(Quantity::SharedReadWavefronts)
        .in_overview(),
    figure("shared-load bank conflicts", Unit::Count, &[(LOAD_CONFLICTS, 1.0)], "wavefronts more than needed")
        .beside(Quantity::SharedReadConflicts),
    counted(Quantity::SharedReadConflictShare, &[(LOAD_CONFLICTS, 1.0)], &[LOAD_WAVEFRONTS], "of those wavefronts")
        .in_overview(),
    figure(
        "shared-store wavefronts",
        Unit::Count,
        &[("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum", 1.0)],
        "of stores",
    )
    .beside(Quantity::SharedWriteWavefronts),
    figure(
        "cp.async shared wavefronts",
        Unit::Count,
        &[("smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum", 1.0)],
        "of cp.async's writes",
    )
    .beside(Quantity::AsyncWriteWavefronts),
    figure(
        "local-memory instructions",
        Unit::Count,
        &[("smsp__sass_inst_executed_op_local.sum", 1.0)],
        "spills and stack; 0 is right",
    ),
    counted(Quantity::BarrierStallShare, &[(BARRIER, 1.0)], &[WARP_LATENCY], "named barriers included, mbarriers not")
        .in_overview(),
    figure("long-scoreboard stalls' share", Unit::Share, &[(LONG_SCOREBOARD, 1.0)], "waits for global memory")
        .over(&[WARP_LATENCY])
        .in_overview(),
    figure(
        "short-scoreboard stalls' share",
        Unit::Share,
        &[(SHORT_SCOREBOARD, 1.0)],
        "waits for shared memory, exp and the like",
    )
    .over(&[WARP_LATENCY])
    .in_overview(),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn values(list: &[(&str, f64)]) -> BTreeMap<String, f64> {
        list.iter().map(|(name, value)| (name.to_string(), *value)).collect()
    }

    #[test]
    fn figures_are_sums_over_sums_and_absent_where_a_metric_is() {
        let share = judging(Quantity::AsyncCopyShare).unwrap();
        assert_eq!(share.value(&values(&[(LOADED_BYTES, 25.0), (COPIED_BYTES, 75.0)])), Some(0.75));
        assert_eq!(share.value(&values(&[(LOADED_BYTES, 0.0), (COPIED_BYTES, 0.0)])), None, "a part of nothing");
        assert_eq!(share.value(&values(&[(COPIED_BYTES, 75.0)])), None);
        assert_eq!(
            judging(Quantity::TensorMacs).unwrap().value(&values(&[(TENSOR_OPS, 268_435_456.0)])),
            Some(134_217_728.0)
        );
        assert_eq!(share.show(0.75), "75.0 %");
        assert_eq!(FIGURES[0].show(32_384.0), "32.38 µs");
    }

    #[test]
    fn no_quantity_is_judged_on_two_figures() {
        for figure in FIGURES.iter().filter(|figure| figure.judges) {
            let quantity = figure.quantity.unwrap();
            assert_eq!(judging(quantity).unwrap().label, figure.label);
            assert_eq!(FIGURES.iter().filter(|other| other.judges && other.quantity == Some(quantity)).count(), 1);
        }
    }
}
