//! What claims of speed come to in microseconds: the time that a claim promises, and the base that a goal needs.

use super::View;
use super::best::{best_of, p50};
use super::claims::Claimed;
use super::peers;
use crate::table::{ProblemPlace, Relation, Subject};

/// A claim of speed over another family, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Target<'a> {
    pub claimed: &'a Claimed,
    /// How many times as fast as its base the family is claimed to be.
    pub at_least: f64,
    pub base: Subject,
    pub base_us: f64,
    /// Of the fastest variant of the family, if it was timed under the conditions of the base.
    pub measured_us: Option<f64>,
    /// What the time should be: the fastest peer's, or what was asked for.
    pub goal_us: Option<f64>,
}

impl Target<'_> {
    /// Returns the time that the claim promises.
    pub fn claimed_us(&self) -> f64 {
        self.base_us / self.at_least
    }

    /// Returns what the base must stay below for a claim that just holds to reach the goal.
    pub fn needed_base_us(&self) -> Option<f64> {
        self.goal_us.map(|goal| goal * self.at_least)
    }

    /// Returns whether the claim, as far as it is promised, reaches the goal from this base.
    pub fn is_reached(&self) -> Option<bool> {
        self.needed_base_us().map(|needed| self.base_us < needed)
    }
}

/// Returns the claims whose base was timed, with the same goal for all or the fastest peer's time on each problem.
pub fn targets<'a>(
    view: &View<'_>,
    claims: impl IntoIterator<Item = &'a Claimed>,
    goal_us: Option<f64>,
) -> Vec<Target<'a>> {
    let target = |claimed: &'a Claimed| {
        let claim = &claimed.claim;
        let Relation::Faster { base, at_least } = &claim.relation else {
            return None;
        };
        let before = best_of(view, view.stage(base.stage)?, base.family, &claim.place)?;
        let stage = view.stage(&claimed.stage)?;
        let ours = best_of(view, stage, &claim.family, &claim.place)
            .filter(|row| row.conditions == before.conditions);
        Some(Target {
            claimed,
            at_least: *at_least,
            base: before.subject.clone(),
            base_us: p50(before),
            measured_us: ours.map(p50),
            goal_us: goal_us.or_else(|| fastest_peer(view, &claim.place)),
        })
    };
    claims.into_iter().filter_map(target).collect()
}

fn fastest_peer(view: &View<'_>, place: &ProblemPlace) -> Option<f64> {
    let theirs = peers::arms(&view.table).filter(|row| !peers::is_ours(view, row));
    let right = theirs.filter(|row| row.place.problem() == Some(place) && row.failure().is_none());
    let times = right.map(p50).filter(|us| us.is_finite());
    times.min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::claims::claims;
    use crate::judge::list::joined;
    use crate::testing::scenario::{self, each};

    /// Of stage 1's claim to be 1.1 times as fast as stage 0, which takes 20 µs.
    #[test]
    fn a_claim_is_a_time_and_a_goal_needs_a_base() {
        let found = each(
            "timed
            timed; peers mission 15 torch-flash 18.5
            timed; peers mission 15 torch-flash 16
            timed; peers mission 15 torch-flash 16!
            timed; - wmma",
            |words| {
                let run = scenario::run(words);
                let view = View::alone(&run);
                let claims = claims(&view);
                let of_last = claims
                    .iter()
                    .filter(|claimed| claimed.stage == "stage1-cpasync");
                let line = |target: &Target<'_>| {
                    format!(
                        "{:.1} µs, reached: {:?}",
                        target.claimed_us(),
                        target.is_reached()
                    )
                };
                joined(targets(&view, of_last, None).iter().map(line), "\n")
            },
        );
        insta::assert_snapshot!(found, @"
        timed
            18.2 µs, reached: None
        timed; peers mission 15 torch-flash 18.5
            18.2 µs, reached: Some(true)
        timed; peers mission 15 torch-flash 16
            18.2 µs, reached: Some(false)
        timed; peers mission 15 torch-flash 16!
            18.2 µs, reached: None
        timed; - wmma
            -
        ");
        let run = scenario::run("timed");
        let view = View::alone(&run);
        let claims = claims(&view);
        let asked = targets(&view, &claims, Some(10.0));
        assert!(
            asked
                .iter()
                .all(|target| target.needed_base_us() == Some(10.0 * target.at_least))
        );
    }
}
