//! Figures computed from ncu's metrics: each is a sum of metrics times a factor, divided by the sum of others. The metric names are
//! those of sm_90.

use crate::table::Row;
use common::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// How one figure is computed from ncu's metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formula {
    pub metric: Metric,
    pub sum: &'static [&'static str],
    pub factor: f64,
    /// Metrics whose sum divides it; empty for 1.
    pub over: &'static [&'static str],
    /// What the figure means on the GPU.
    pub meaning: &'static str,
}

const fn sum(metric: Metric, sum: &'static [&'static str], meaning: &'static str) -> Formula {
    Formula {
        metric,
        sum,
        factor: 1.0,
        over: &[],
        meaning,
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.factor != 1.0 {
            write!(f, "{} × ", self.factor)?;
        }
        let sum = |names: &[&str]| match names {
            [name] => name.to_string(),
            names => format!("({})", names.join(" + ")),
        };
        f.write_str(&sum(self.sum))?;
        match self.over {
            [] => Ok(()),
            over => write!(f, " / {}", sum(over)),
        }
    }
}

impl Formula {
    const fn times(self, factor: f64) -> Self {
        Self { factor, ..self }
    }

    const fn over(self, over: &'static [&'static str]) -> Self {
        Self { over, ..self }
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

pub fn names() -> Vec<&'static str> {
    let of_one = |formula: &'static Formula| formula.sum.iter().chain(formula.over);
    let names: BTreeSet<&str> = FORMULAS.iter().flat_map(of_one).copied().collect();
    names.into_iter().collect()
}

const PERCENT: f64 = 0.01;
const LOADED_BYTES: &str = "smsp__sass_data_bytes_mem_global_op_ld.sum";
const COPIED_BYTES: &str = "smsp__sass_data_bytes_mem_global_op_ldgsts.sum";
const READ_SECTORS: &str = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum";
const LOAD_WAVEFRONTS: &str = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum";
const LOAD_CONFLICTS: &str = "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum";
const WARP_LATENCY: &str = "smsp__average_warp_latency_per_inst_issued.ratio";

/// Removes the counters that miss copies by TMA, which no thread loads, and products by wgmma, which ncu does not count.
pub fn without_unseen(mut row: Row) -> Row {
    for metric in [
        Metric::GlobalReadBytes,
        Metric::GlobalReadSectors,
        Metric::SectorsPerRead,
    ] {
        row.figures.remove(&metric);
    }
    let products = [Metric::TensorMacs, Metric::TensorOps];
    row.figures
        .retain(|metric, figure| !products.contains(metric) || figure.value > 0.0);
    row.note("ncu's counters see neither copies by TMA nor products by wgmma")
}

/// All formulas, in the order of the tables.
pub static FORMULAS: [Formula; 27] = [
    sum(
        Metric::ProfiledNs,
        &["gpu__time_duration.sum"],
        "one launch with cold caches; no latency of the ladder",
    ),
    sum(
        Metric::SmThroughput,
        &["sm__throughput.avg.pct_of_peak_sustained_elapsed"],
        "of the busiest unit of an SM, of its peak",
    )
    .times(PERCENT),
    sum(
        Metric::DramThroughput,
        &["dram__throughput.avg.pct_of_peak_sustained_elapsed"],
        "of its peak",
    )
    .times(PERCENT),
    sum(
        Metric::DramBytes,
        &["dram__bytes.sum"],
        "read and written, with a cold L2",
    ),
    sum(
        Metric::AchievedOccupancy,
        &["sm__warps_active.avg.pct_of_peak_sustained_active"],
        "warps resident on an SM with work, of those possible",
    )
    .times(PERCENT),
    sum(
        Metric::TensorPipeActive,
        &["sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active"],
        "of the cycles in which an SM has work",
    )
    .times(PERCENT),
    // A multiply-add is two operations.
    sum(
        Metric::TensorMacs,
        &["sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum"],
        "f16 products with f32 sums",
    )
    .times(0.5),
    sum(
        Metric::TensorOps,
        &["sm__inst_executed_pipe_tensor_op_hmma.sum"],
        "HMMA per warp, and the HFMA2.MMA that nvcc writes constants with",
    ),
    sum(
        Metric::GlobalReadBytes,
        &[LOADED_BYTES, COPIED_BYTES],
        "by loads and cp.async, as the instructions ask",
    ),
    sum(Metric::PlainReadBytes, &[LOADED_BYTES], "by loads"),
    sum(Metric::AsyncCopyBytes, &[COPIED_BYTES], "by cp.async"),
    sum(Metric::AsyncCopyShare, &[COPIED_BYTES], "of the bytes read")
        .over(&[LOADED_BYTES, COPIED_BYTES]),
    sum(
        Metric::GlobalWriteBytes,
        &["smsp__sass_data_bytes_mem_global_op_st.sum"],
        "by stores, as the instructions ask",
    ),
    sum(
        Metric::GlobalReadSectors,
        &[READ_SECTORS],
        "32 bytes each, that L1 looks up",
    ),
    sum(
        Metric::SectorsPerRead,
        &[READ_SECTORS],
        "16 is all of a request of 16 bytes a lane",
    )
    .over(&["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]),
    sum(
        Metric::L2SectorsRead,
        &["lts__t_sectors_srcunit_tex_op_read.sum"],
        "that reach L2",
    ),
    sum(
        Metric::L2HitRate,
        &["lts__t_sector_hit_rate.pct"],
        "of sectors, from a cold cache",
    )
    .times(PERCENT),
    sum(
        Metric::SharedReadRequests,
        &[
            "smsp__sass_inst_executed_op_shared_ld.sum",
            "smsp__sass_inst_executed_op_ldsm.sum",
        ],
        "loads and ldmatrix, as nvcc joins them",
    ),
    sum(
        Metric::SharedReadWavefronts,
        &[LOAD_WAVEFRONTS],
        "of loads and ldmatrix",
    ),
    sum(
        Metric::SharedReadConflicts,
        &[LOAD_CONFLICTS],
        "wavefronts more than needed",
    ),
    sum(
        Metric::SharedReadConflictShare,
        &[LOAD_CONFLICTS],
        "of those wavefronts",
    )
    .over(&[LOAD_WAVEFRONTS]),
    sum(
        Metric::SharedWriteWavefronts,
        &["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_st.sum"],
        "of stores",
    ),
    sum(
        Metric::AsyncWriteWavefronts,
        &["smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ldgsts.sum"],
        "of cp.async's writes",
    ),
    sum(
        Metric::LocalInstructions,
        &["smsp__sass_inst_executed_op_local.sum"],
        "spills and stack; 0 is right",
    ),
    sum(
        Metric::BarrierStallShare,
        &["smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio"],
        "named barriers included, mbarriers not",
    )
    .over(&[WARP_LATENCY]),
    sum(
        Metric::LongScoreboardShare,
        &["smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"],
        "waits for global memory",
    )
    .over(&[WARP_LATENCY]),
    sum(
        Metric::ShortScoreboardShare,
        &["smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio"],
        "waits for shared memory, exp and the like",
    )
    .over(&[WARP_LATENCY]),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn formula(metric: Metric) -> Option<&'static Formula> {
        FORMULAS.iter().find(|formula| formula.metric == metric)
    }
    use crate::table::{On, Source};
    use common::metric::Unit;

    #[test]
    fn figures_are_sums_over_sums_and_absent_where_a_metric_is() {
        let values = |list: &[(&str, f64)]| {
            list.iter()
                .map(|(name, value)| (name.to_string(), *value))
                .collect()
        };
        let share = formula(Metric::AsyncCopyShare).unwrap();
        assert_eq!(
            share.value(&values(&[(LOADED_BYTES, 25.0), (COPIED_BYTES, 75.0)])),
            Some(0.75)
        );
        assert_eq!(
            share.value(&values(&[(LOADED_BYTES, 0.0), (COPIED_BYTES, 0.0)])),
            None,
            "a part of nothing"
        );
        assert_eq!(share.value(&values(&[(COPIED_BYTES, 75.0)])), None);
        assert_eq!(
            share.to_string(),
            format!("{COPIED_BYTES} / ({LOADED_BYTES} + {COPIED_BYTES})")
        );
        let macs = formula(Metric::TensorMacs).unwrap().to_string();
        assert!(macs.starts_with("0.5 × sm__ops_path_tensor"), "{macs}");
    }

    #[test]
    fn what_ncu_does_not_see_is_absent_and_not_0() {
        let row = |macs: f64| {
            let row = Row::new("stage6-tma/tma-32x256-k4", On::All, Source::Ncu);
            row.figure(Metric::GlobalReadBytes, 0.0)
                .figure(Metric::TensorMacs, macs)
                .figure(Metric::L2HitRate, 0.5)
        };
        let left = |macs| {
            without_unseen(row(macs))
                .figures
                .into_keys()
                .collect::<Vec<_>>()
        };
        assert_eq!(left(8.0), [Metric::TensorMacs, Metric::L2HitRate]);
        assert_eq!(left(0.0), [Metric::L2HitRate]);
    }

    #[test]
    fn each_metric_has_one_formula_of_its_unit() {
        for formula in &FORMULAS {
            assert_eq!(
                FORMULAS
                    .iter()
                    .filter(|other| other.metric == formula.metric)
                    .count(),
                1,
                "{}",
                formula.metric
            );
            let is_part = !formula.over.is_empty() || formula.factor == PERCENT;
            let unit = formula.metric.spec().unit;
            assert_eq!(
                is_part,
                matches!(unit, Unit::Share | Unit::Ratio),
                "{}",
                formula.metric
            );
        }
    }
}
