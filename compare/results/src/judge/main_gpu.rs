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
    use crate::testing::{CPASYNC, PeerArm, US, ladder, table_of_sessions, timed};

    /// Returns the tables of two GPU models.
    fn results_of_two(h200: Run, l4: Run) -> Results {
        let mut results = Results::default();
        for (name, run) in [("nvidia-h200", h200), ("nvidia-l4", l4)] {
            results.gpus.insert(name.into(), table_of_sessions(&[run]));
        }
        results
    }

    /// Returns a run that has more rows and no claim of speed judged.
    fn without_pairs() -> Run {
        timed(US)
            .clean()
            .peers("mission", 10.0, &[PeerArm::right("torch-flash", 16.0)])
            .without_pairs()
    }

    #[test]
    fn it_has_most_claims_judged_though_the_first_has_more_rows() {
        let results = results_of_two(without_pairs(), timed(US));
        assert_eq!(main_gpu(&results, &ladder()), Some("nvidia-l4"));
    }

    #[test]
    fn it_has_most_claims_judged_though_the_second_has_more_rows() {
        let results = results_of_two(timed(US), without_pairs());
        assert_eq!(main_gpu(&results, &ladder()), Some("nvidia-h200"));
    }

    #[test]
    fn claims_of_former_kernels_do_not_count() {
        let stages = timed(US).rebuilt().session.stages;
        let results = results_of_two(timed(US), timed(US).rebuilt().without_subject(CPASYNC));
        assert_eq!(main_gpu(&results, &stages), Some("nvidia-l4"));
    }

    #[test]
    fn there_is_none_without_tables() {
        assert_eq!(main_gpu(&Results::default(), &[]), None);
    }
}
