//! Figures of one kind share a column.

use common::metric::Metric;
use results::table::Row;

/// The column of a figure.
#[derive(Clone, Copy)]
pub struct Column {
    pub title: &'static str,
    /// The name of the figure in its column; a figure that is alone there needs none.
    pub part: &'static str,
}

/// Returns the column in which a metric is shown.
pub fn column(metric: Metric) -> Column {
    use Metric::*;
    let (title, part) = match metric {
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
    };
    Column { title, part }
}

/// The title of the column of a main loop's instructions.
const MAIN_LOOP: &str = "main loop";

/// Returns `372 instructions: HMMA 32, LDSM 36`, without the classes that do not occur; nothing
/// where no code was read.
pub fn main_loop(row: &Row) -> Option<String> {
    let instructions = row.value(Metric::LoopInstructions)?;
    let mut classes = Vec::new();
    for metric in Metric::ALL {
        let Column { title, part } = column(*metric);
        if title != MAIN_LOOP || *metric == Metric::LoopInstructions {
            continue;
        }
        match row.value(*metric) {
            Some(value) if value > 0.0 => classes.push(format!("{part} {}", metric.show(value))),
            _ => {}
        }
    }
    Some(format!(
        "{} instructions: {}",
        Metric::LoopInstructions.show(instructions),
        classes.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::testing::row;

    #[test]
    fn a_main_loop_is_its_classes_that_occur() {
        let read = row(
            "wmma | f16 d64 sm_90a | ptxas | loop_instructions 372 | loop_macs 65536 | \
             loop_hmma 32 | loop_hgmma 0 | loop_lds 15",
        );
        let summary = "372 instructions: multiply-adds 65,536, HMMA 32, LDS 15";
        assert_eq!(main_loop(&read).as_deref(), Some(summary));
    }

    #[test]
    fn a_kernel_whose_code_was_not_read_has_no_main_loop() {
        let unread = row("wmma | f16 d64 sm_90a | ptxas | registers 96");
        assert_eq!(main_loop(&unread), None);
    }
}
