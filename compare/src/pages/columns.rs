//! Figures of one kind share a column.

use crate::table::Row;
use common::metric::Metric;

/// The column of a figure, and its name there, which a figure that is alone in its column does not need.
pub fn column(metric: Metric) -> (&'static str, &'static str) {
    use Metric::*;
    match metric {
        DynamicSharedBytes => ("shared bytes", ""),
        StaticSharedBytes => ("shared bytes", "static"),
        SpillBytes => ("spills", "bytes"),
        StackBytes => ("spills", "stack"),
        LocalAccesses => ("spills", "LDL, STL"),
        CodeBytes => ("code bytes", ""),
        Occupancy => ("occupancy (blocks)", ""),
        LoopInstructions => ("main loop", "instructions"),
        LoopMacs => ("main loop", "multiply-adds"),
        LoopHmma => ("main loop", "HMMA"),
        LoopHgmma => ("main loop", "HGMMA"),
        LoopQgmma => ("main loop", "QGMMA"),
        LoopLdsm => ("main loop", "LDSM"),
        LoopLds => ("main loop", "LDS"),
        LoopSts => ("main loop", "STS"),
        LoopLdgsts => ("main loop", "LDGSTS"),
        LoopTma => ("main loop", "TMA"),
        LoopMufu => ("main loop", "MUFU"),
        LoopFma => ("main loop", "FMA"),
        LoopShuffles => ("main loop", "SHFL"),
        LoopBarriers => ("main loop", "BAR"),
        SharedReadConflicts => ("bank conflicts", "loads"),
        SharedWriteConflicts => ("bank conflicts", "stores"),
        AsyncWriteConflicts => ("bank conflicts", "cp.async"),
        SharedReadWavefronts => ("shared wavefronts", "loads"),
        SharedWriteWavefronts => ("shared wavefronts", "stores"),
        AsyncWriteWavefronts => ("shared wavefronts", "cp.async"),
        SharedReadRequests => ("shared requests", "loads"),
        SharedWriteRequests => ("shared requests", "stores"),
        SharedReadBytes => ("shared traffic", "bytes read"),
        SharedWriteBytes => ("shared traffic", "written"),
        GlobalReadBytes => ("global bytes", "read"),
        PlainReadBytes => ("global bytes", "through registers"),
        AsyncCopyBytes => ("global bytes", "cp.async"),
        TmaReadBytes => ("global bytes", "TMA"),
        GlobalWriteBytes => ("global bytes", "written"),
        GlobalReadSectors => ("global sectors", "read"),
        GlobalWriteSectors => ("global sectors", "written"),
        TensorMacs => ("tensor", "multiply-adds"),
        TensorOps => ("tensor", "operations"),
        BlockBarriers => ("barriers", "block"),
        WarpBarriers => ("barriers", "warp"),
        NamedBarriers => ("barriers", "named"),
        MbarrierArrivals => ("barriers", "mbarrier arrivals"),
        MbarrierWaits => ("barriers", "mbarrier waits"),
        Shuffles => ("warp exchange", "shuffles"),
        Votes => ("warp exchange", "votes"),
        other => (other.label(), ""),
    }
}

/// The title of the column of a main loop's instructions.
const MAIN_LOOP: &str = "main loop";

/// Returns `372 instructions: HMMA 32, LDSM 36`, without the classes that do not occur; nothing where no code was read.
pub fn main_loop(row: &Row) -> Option<String> {
    let all = row.value(Metric::LoopInstructions)?;
    let is_class =
        |metric: &&Metric| **metric != Metric::LoopInstructions && column(**metric).0 == MAIN_LOOP;
    let classes = Metric::ALL.iter().filter(is_class);
    let classes = classes.filter_map(|metric| {
        let value = row.value(*metric).filter(|value| *value > 0.0)?;
        Some(format!("{} {}", column(*metric).1, metric.show(value)))
    });
    let classes = Vec::from_iter(classes).join(", ");
    Some(format!(
        "{} instructions: {classes}",
        Metric::LoopInstructions.show(all)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::row;

    #[test]
    fn a_main_loop_is_its_classes_that_occur() {
        let found =
            |words: &str| main_loop(&row(&format!("wmma | f16 d64 sm_90a | ptxas | {words}")));
        let says = "372 instructions: multiply-adds 65,536, HMMA 32, LDS 15";
        let words =
            "loop_instructions 372 | loop_macs 65536 | loop_hmma 32 | loop_hgmma 0 | loop_lds 15";
        assert_eq!(found(words).as_deref(), Some(says));
        assert_eq!(found("registers 96"), None);
    }
}
