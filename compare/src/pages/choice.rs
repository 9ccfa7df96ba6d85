//! `attention-ladder/choice/<gpu>.json`: the fastest variants of each stage and problem, by which the library chooses.

use crate::judge::Known;
use crate::judge::best::{self, p50};
use crate::table::Row;
use serde_json::json;

/// How many variants of a stage are kept for a problem: the library takes the first that supports what is asked.
const KEPT: usize = 3;

/// The file of one GPU model; figures of kernels that have changed since do not count.
pub fn file(known: &Known<'_>) -> String {
    let gpu = json!(known.gpu().unwrap_or_default());
    let mut entries = Vec::new();
    for stage in known.stages {
        for (place, rows) in best::leading(known, stage, usize::MAX) {
            let fresh = rows.into_iter().filter(|row| !known.is_stale(row));
            let timed = |row: &Row| json!({ "variant": row.subject.name(), "p50_us": p50(row) });
            let best: Vec<_> = fresh.take(KEPT).map(timed).collect();
            let Some(shape) = place.extents().filter(|_| !best.is_empty()) else {
                continue;
            };
            let entry = json!({
                "stage": stage.id,
                "shape": shape,
                "dtype": place.dtype,
                "mask": place.mask,
                "best": best,
            });
            entries.push(format!("\n  {entry}"));
        }
    }
    format!(
        "{{\n \"gpu\": {gpu},\n \"entries\": [{}\n ]\n}}\n",
        entries.join(",")
    )
}
