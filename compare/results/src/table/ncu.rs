//! Figures computed from ncu's metrics: each is a sum of metrics times a factor, divided by the sum
//! of others. A chip has names of its own for some of them; docs/rows.md says what each figure
//! means.

use super::row::Row;
use common::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};

/// GPUs for which ncu has the same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chips {
    /// GA100, GA102 and their kin: compute capability 8.0, 8.6 and 8.7.
    Ampere,
    /// AD102 and its kin: 8.9.
    Ada,
    /// GH100: 9.0.
    Hopper,
    /// GB100 and its kin: 10.0 to 11.0.
    Blackwell,
    /// GB202 and its kin: 12.0 and 12.1.
    BlackwellGraphics,
}

impl Chips {
    /// All chips with formulas of their own.
    pub const ALL: [Self; 5] = [
        Self::Ampere,
        Self::Ada,
        Self::Hopper,
        Self::Blackwell,
        Self::BlackwellGraphics,
    ];

    /// Returns the chips of a compute capability times ten: 89.
    pub fn new(capability: u32) -> Self {
        match capability {
            ..89 => Self::Ampere,
            89 => Self::Ada,
            90..100 => Self::Hopper,
            100..120 => Self::Blackwell,
            120.. => Self::BlackwellGraphics,
        }
    }
}

/// The way in which a metric is computed from those of Nsight Compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formula {
    pub metric: Metric,
    pub sum: &'static [&'static str],
    pub factor: f64,
    /// Metrics whose sum divides it; empty for 1.
    pub over: &'static [&'static str],
    /// The chips for which the names are ncu's.
    pub chips: &'static [Chips],
}

const fn sum(metric: Metric, sum: &'static [&'static str]) -> Formula {
    Formula {
        metric,
        sum,
        factor: 1.0,
        over: &[],
        chips: &Chips::ALL,
    }
}

impl Formula {
    const fn times(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    const fn over(self, over: &'static [&'static str]) -> Self {
        Self { over, ..self }
    }

    const fn place(self, chips: &'static [Chips]) -> Self {
        Self { chips, ..self }
    }

    /// Whether it is computed from the metric `name`.
    pub fn needs(&self, name: &str) -> bool {
        self.sum.contains(&name) || self.over.contains(&name)
    }

    /// Its value; `None` if ncu lacks one of the metrics, or the divisor is 0.
    pub fn value(&self, metrics: &BTreeMap<String, f64>) -> Option<f64> {
        let add = |names: &[&str]| -> Option<f64> {
            names.iter().map(|name| metrics.get(*name).copied()).sum()
        };
        let value = self.factor * add(self.sum)?;
        if self.over.is_empty() {
            return Some(value);
        }
        let whole = add(self.over)?;
        (whole > 0.0).then(|| value / whole)
    }
}

/// Returns the formulas for a GPU of these chips: one of each metric at most.
pub fn formulas(chips: Chips) -> impl Iterator<Item = &'static Formula> {
    FORMULAS
        .iter()
        .filter(move |formula| formula.chips.contains(&chips))
}

/// Returns what ncu is asked for on a GPU of these chips.
pub fn names(chips: Chips) -> Vec<&'static str> {
    let names: BTreeSet<&str> = formulas(chips)
        .flat_map(|formula| formula.sum.iter().chain(formula.over))
        .copied()
        .collect();
    names.into_iter().collect()
}

const PERCENT: f64 = 0.01;
const LOADED_BYTES: &str = "smsp__sass_data_bytes_mem_global_op_ld.sum";
const COPIED_BYTES: &str = "smsp__sass_data_bytes_mem_global_op_ldgsts.sum";
const READ_SECTORS: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum";
const LOAD_WAVEFRONTS: &str = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum";
const LOAD_CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum";
const WARP_LATENCY: &str = "smsp__average_warp_latency_per_inst_issued.ratio";

/// Removes the counters of reads that miss copies by TMA, which no thread loads.
pub fn without_unseen(mut row: Row) -> Row {
    for metric in [
        Metric::GlobalReadBytes,
        Metric::GlobalReadSectors,
        Metric::SectorsPerRead,
    ] {
        row.figures.remove(&metric);
    }
    row.note("ncu's counters of global reads do not see copies by TMA")
}

const F16: &str = "sm__ops_path_tensor_src_fp16_dst_fp32_sparsity_off.sum";
const BF16: &str = "sm__ops_path_tensor_src_bf16_dst_fp32_sparsity_off.sum";
const FP8: &str = "sm__ops_path_tensor_src_fp8_sparsity_off.sum";
const HMMA_F16: &str = "sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum";
const HMMA_BF16: &str = "sm__ops_path_tensor_op_hmma_src_bf16_dst_fp32_sparsity_off.sum";
const HGMMA_F16: &str = "sm__ops_path_tensor_op_hgmma_src_fp16_sparsity_off.sum";
const HGMMA_BF16: &str = "sm__ops_path_tensor_op_hgmma_src_bf16_dst_fp32_sparsity_off.sum";
const HMMA_INSTRUCTIONS: &str = "sm__inst_executed_pipe_tensor_op_hmma.sum";

/// All formulas, in the order of the tables.
pub static FORMULAS: [Formula; 34] = [
    sum(Metric::ProfiledNs, &["gpu__time_duration.sum"]),
    sum(
        Metric::SmThroughput,
        &["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
    )
    .times(PERCENT),
    sum(
        Metric::DramThroughput,
        &["dram__throughput.avg.pct_of_peak_sustained_elapsed"],
    )
    .times(PERCENT),
    sum(Metric::DramBytes, &["dram__bytes.sum"]),
    sum(
        Metric::AchievedOccupancy,
        &["sm__warps_active.avg.pct_of_peak_sustained_active"],
    )
    .times(PERCENT),
    sum(
        Metric::TensorPipeActive,
        &["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"],
    )
    .times(PERCENT),
    // A multiply-add is two operations. Products of codes have a path of their own.
    sum(Metric::TensorMacs, &[F16, BF16])
        .times(0.5)
        .place(&[Chips::Ampere]),
    sum(Metric::TensorMacs, &[F16, BF16, FP8])
        .times(0.5)
        .place(&[Chips::Ada]),
    sum(
        Metric::TensorMacs,
        &[HMMA_F16, HMMA_BF16, HGMMA_F16, HGMMA_BF16, FP8],
    )
    .times(0.5)
    .place(&[Chips::Hopper]),
    sum(
        Metric::TensorMacs,
        &[
            HMMA_F16,
            HMMA_BF16,
            "sm__ops_path_tensor_src_fp4_fp6_fp8_dst_fp32.sum",
        ],
    )
    .times(0.5)
    .place(&[Chips::Blackwell]),
    sum(
        Metric::TensorMacs,
        &[
            HMMA_F16,
            HMMA_BF16,
            "sm__ops_path_tensor_src_fp8_dst_fp32_sparsity_off.sum",
        ],
    )
    .times(0.5)
    .place(&[Chips::BlackwellGraphics]),
    sum(Metric::TensorOps, &[HMMA_INSTRUCTIONS]).place(&[Chips::Ampere, Chips::Ada]),
    sum(
        Metric::TensorOps,
        &[
            HMMA_INSTRUCTIONS,
            "sm__inst_executed_pipe_tensor_op_gmma.sum",
        ],
    )
    .place(&[Chips::Hopper]),
    sum(
        Metric::TensorOps,
        &["sm__inst_executed_pipe_tensor_subpipe_hmma_op_hmma.sum"],
    )
    .place(&[Chips::Blackwell, Chips::BlackwellGraphics]),
    sum(
        Metric::TmaReadBytes,
        &["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"],
    )
    .place(&[Chips::Hopper, Chips::Blackwell, Chips::BlackwellGraphics]),
    sum(Metric::GlobalReadBytes, &[LOADED_BYTES, COPIED_BYTES]),
    sum(Metric::PlainReadBytes, &[LOADED_BYTES]),
    sum(Metric::AsyncCopyBytes, &[COPIED_BYTES]),
    sum(Metric::AsyncCopyShare, &[COPIED_BYTES]).over(&[LOADED_BYTES, COPIED_BYTES]),
    sum(
        Metric::GlobalWriteBytes,
        &["smsp__sass_data_bytes_mem_global_op_st.sum"],
    ),
    sum(Metric::GlobalReadSectors, &[READ_SECTORS]),
    sum(Metric::SectorsPerRead, &[READ_SECTORS])
        .over(&["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]),
    sum(
        Metric::L2SectorsRead,
        &["lts__t_sectors_srcunit_tex_op_read.sum"],
    ),
    sum(Metric::L2HitRate, &["lts__t_sector_hit_rate.pct"]).times(PERCENT),
    sum(
        Metric::SharedReadRequests,
        &[
            "smsp__sass_inst_executed_op_shared_ld.sum",
            "smsp__sass_inst_executed_op_ldsm.sum",
        ],
    ),
    sum(Metric::SharedReadWavefronts, &[LOAD_WAVEFRONTS]),
    sum(Metric::SharedReadConflicts, &[LOAD_CONFLICTS]),
    sum(Metric::SharedReadConflictShare, &[LOAD_CONFLICTS]).over(&[LOAD_WAVEFRONTS]),
    sum(
        Metric::SharedWriteWavefronts,
        &["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
    ),
    sum(
        Metric::AsyncWriteWavefronts,
        &["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"],
    ),
    sum(
        Metric::LocalInstructions,
        &["smsp__sass_inst_executed_op_local.sum"],
    ),
    sum(
        Metric::BarrierStallShare,
        &["smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"],
    )
    .over(&[WARP_LATENCY]),
    sum(
        Metric::LongScoreboardShare,
        &["smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"],
    )
    .over(&[WARP_LATENCY]),
    sum(
        Metric::ShortScoreboardShare,
        &["smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio"],
    )
    .over(&[WARP_LATENCY]),
];

#[cfg(test)]
mod tests;
