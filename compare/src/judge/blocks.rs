//! Blocks of a kernel that an SM holds.

use crate::table::{Place, Row, Source, Table};
use common::metric::Metric;
use common::resources::multiprocessor;

/// Returns how many blocks an occupancy is, of an instance whose declaration the table has and whose architecture is known.
pub fn per_sm(table: &Table, instance: &Row, occupancy: f64) -> Option<u32> {
    let Place::Instance {
        dtype,
        head_dim,
        arch: Some(arch),
    } = &instance.place
    else {
        return None;
    };
    let declaration = Place::Instance {
        dtype: *dtype,
        head_dim: *head_dim,
        arch: None,
    };
    let declared = table.row(&instance.subject, &declaration, Source::Kernel)?;
    let threads = declared.value(Metric::Threads)?;
    let of_sm = multiprocessor(arch)?.threads;
    Some((occupancy * f64::from(of_sm) / threads).round() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scenario::row;
    use crate::testing::table;

    #[test]
    fn an_occupancy_is_a_number_of_blocks_where_threads_and_architecture_are_known() {
        let declared = row("wmma | f16 d64 | kernel | threads 128");
        let mut table = table(&[]);
        table.append(declared);
        let of = |place: &str, occupancy| {
            let instance = row(&format!("wmma | {place} | ptxas | occupancy {occupancy}"));
            per_sm(&table, &instance, occupancy)
        };
        assert_eq!(of("f16 d64 sm_90a", 0.25), Some(4));
        assert_eq!(of("f16 d64 sm_89", 0.08333), Some(1));
        assert_eq!(of("f16 d64 sm_90a", 0.0), Some(0));
        assert_eq!(of("f16 d64 compute_80", 0.25), None);
        assert_eq!(of("bf16 d64 sm_90a", 0.25), None);
        assert_eq!(of("f16 d64", 0.25), None);
    }
}
