//! Figures computed from ncu's metrics: each is a sum of metrics times a factor, divided by the sum of others. The metric names are
//! those of sm_90; docs/rows.md says what each figure means.

use crate::table::Row;
use common::metric::Metric;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Formula {
    pub metric: Metric,
    pub sum: &'static [&'static str],
    pub factor: f64,
    /// Metrics whose sum divides it; empty for 1.
    pub over: &'static [&'static str],
}

const fn sum(metric: Metric, sum: &'static [&'static str]) -> Formula {
    Formula {
        metric,
        sum,
        factor: 1.0,
        over: &[],
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
    // A multiply-add is two operations.
    sum(
        Metric::TensorMacs,
        &["sm__ops_path_tensor_op_hmma_src_fp16_dst_fp32_sparsity_off.sum"],
    )
    .times(0.5),
    sum(
        Metric::TensorOps,
        &["sm__inst_executed_pipe_tensor_op_hmma.sum"],
    ),
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
        let macs = formula(Metric::TensorMacs).unwrap();
        assert_eq!(macs.value(&values(&[(macs.sum[0], 8.0)])), Some(4.0));
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

    /// So that a figure can be repeated by hand.
    #[test]
    fn each_metric_has_one_formula_of_its_unit_which_is_documented() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/rows.md");
        let page = std::fs::read_to_string(page).unwrap();
        for formula in &FORMULAS {
            let sum = |names: &[&str]| match names {
                [name] => name.to_string(),
                names => format!("({})", names.join(" + ")),
            };
            let factor = match formula.factor {
                1.0 => String::new(),
                factor => format!("{factor} × "),
            };
            let over = match formula.over {
                [] => String::new(),
                over => format!(" / {}", sum(over)),
            };
            let (name, of) = (formula.metric.name(), sum(formula.sum));
            let line = format!("| `{name}` | `{factor}{of}{over}` | ");
            assert!(page.contains(&line), "{line}");
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
