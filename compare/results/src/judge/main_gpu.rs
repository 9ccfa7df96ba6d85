//! Which GPU model COMPARE.md is about.

use super::View;
use super::claims::claims;
use crate::table::{Results, StageMeta};
use common::verdict::Verdict;

/// Returns the GPU model on which most claims are judged for the stages as they are: the one that
/// COMPARE.md is about.
pub fn main_gpu<'a>(results: &'a Results, stages: &[StageMeta]) -> Option<&'a str> {
    let names = results.gpus.keys();
    names
        .max_by_key(|name| judged_claims(results, name, stages))
        .map(String::as_str)
}

/// Returns how many claims hold, do not, or are undecided, of kernels as they are.
fn judged_claims(results: &Results, gpu: &str, stages: &[StageMeta]) -> usize {
    let table = results.of_gpu(gpu);
    claims(&View::committed(stages, &table))
        .iter()
        .filter(|claimed| !claimed.is_stale && claimed.finding.verdict != Verdict::NoData)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Run;
    use crate::testing::scenario::run;
    use crate::testing::table;

    /// Returns the tables of two GPU models.
    fn of_two(h200: &str, l4: &str) -> Results {
        let mut results = Results::default();
        for (name, words) in [("nvidia-h200", h200), ("nvidia-l4", l4)] {
            let measured: Run = run(words).named("1");
            results.gpus.insert(name.into(), table(&[measured]));
        }
        results
    }

    #[test]
    fn it_has_most_claims_judged_though_another_has_more_rows() {
        let stages = run("timed").session.stages;
        let without_pairs = "timed; clean; peers mission 10 torch-flash 16; - pair";
        let first_lacks_pairs = of_two(without_pairs, "timed");
        assert_eq!(main_gpu(&first_lacks_pairs, &stages), Some("nvidia-l4"));
        let second_lacks_pairs = of_two("timed", without_pairs);
        assert_eq!(main_gpu(&second_lacks_pairs, &stages), Some("nvidia-h200"));
    }

    #[test]
    fn claims_of_former_kernels_do_not_count() {
        let stages = run("timed; rebuilt").session.stages;
        let results = of_two("timed", "timed; rebuilt; - cpasync");
        assert_eq!(main_gpu(&results, &stages), Some("nvidia-l4"));
    }

    #[test]
    fn there_is_none_without_tables() {
        assert_eq!(main_gpu(&Results::default(), &[]), None);
    }
}
