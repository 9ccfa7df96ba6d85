//! Blocks of a kernel that an SM holds.

use crate::table::{Compiled, Row, Table};
use common::metric::Metric;
use common::resources::multiprocessor;

/// Returns how many blocks an occupancy amounts to, of a compiled instance whose declaration the
/// table has and whose architecture is known.
pub fn per_sm(table: &Table, row: &Row, occupancy: f64) -> Option<u32> {
    let compiled = Compiled::new(row)?;
    let declared = table.declared(&row.subject, compiled.instance)?;
    let threads = declared.value(Metric::Threads)?;
    let sm = multiprocessor(compiled.arch)?;
    let blocks = occupancy * f64::from(sm.threads) / threads;
    Some(blocks.round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{row, table};

    #[test]
    fn an_occupancy_is_a_number_of_blocks_where_threads_and_architecture_are_known() {
        let declared = row("wmma | f16 d64 | kernel | threads 128");
        let mut table = table(&[]);
        table.append(declared);
        let blocks = |place: &str, occupancy| {
            let instance = row(&format!("wmma | {place} | ptxas | occupancy {occupancy}"));
            per_sm(&table, &instance, occupancy)
        };
        assert_eq!(blocks("f16 d64 sm_90a", 0.25), Some(4));
        assert_eq!(blocks("f16 d64 sm_89", 0.08333), Some(1));
        assert_eq!(blocks("f16 d64 sm_90a", 0.0), Some(0));
        assert_eq!(blocks("f16 d64 compute_80", 0.25), None);
        assert_eq!(blocks("bf16 d64 sm_90a", 0.25), None);
        let uncompiled = row("wmma | f16 d64 | kernel | occupancy 0.25");
        assert_eq!(per_sm(&table, &uncompiled, 0.25), None);
    }
}
