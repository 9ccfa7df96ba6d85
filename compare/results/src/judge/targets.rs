//! What claims of speed amount to in microseconds: the time that a claim promises, and the base
//! that a goal needs.

use super::View;
use super::best::{best_of, p50};
use super::claims::Claimed;
use super::peers;
use crate::table::{ProblemPlace, Relation, Subject};

/// A claim of speed over another family, in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Target<'a> {
    pub claimed: &'a Claimed,
    /// The speedup over its base that is claimed of the family.
    pub at_least: f64,
    pub base: Subject,
    pub base_us: f64,
    /// The time of the fastest variant of the family, if it was timed under the conditions of the
    /// base.
    pub measured_us: Option<f64>,
    /// The time to reach: the fastest peer's, or what was asked for.
    pub goal_us: Option<f64>,
}

impl Target<'_> {
    /// Returns the time that the claim promises.
    pub fn claimed_us(&self) -> f64 {
        self.base_us / self.at_least
    }

    /// Returns the time that the base must stay below for a claim that just holds to reach the
    /// goal.
    pub fn needed_base_us(&self) -> Option<f64> {
        self.goal_us.map(|goal| goal * self.at_least)
    }

    /// Returns whether the claim, as far as it is promised, reaches the goal from this base.
    pub fn is_reached(&self) -> Option<bool> {
        self.needed_base_us().map(|needed| self.base_us < needed)
    }
}

/// Returns the claims whose base was timed, with the same goal for all or the fastest peer's time
/// on each problem.
pub fn targets<'a>(
    view: &View<'_>,
    claims: impl IntoIterator<Item = &'a Claimed>,
    goal_us: Option<f64>,
) -> Vec<Target<'a>> {
    let mut targets = Vec::new();
    for claimed in claims {
        targets.extend(target(view, claimed, goal_us));
    }
    targets
}

fn target<'a>(view: &View<'_>, claimed: &'a Claimed, goal_us: Option<f64>) -> Option<Target<'a>> {
    let claim = &claimed.claim;
    let Relation::Faster { base, at_least } = &claim.relation else {
        return None;
    };
    let before = best_of(view, view.stage(base.stage)?, base.family, &claim.place)?;
    let stage = view.stage(&claimed.stage)?;
    let mut measured_us = None;
    if let Some(ours) = best_of(view, stage, &claim.family, &claim.place)
        && ours.conditions == before.conditions
    {
        measured_us = Some(p50(ours));
    }
    Some(Target {
        claimed,
        at_least: *at_least,
        base: before.subject.clone(),
        base_us: p50(before),
        measured_us,
        goal_us: goal_us.or_else(|| fastest_peer(view, &claim.place)),
    })
}

fn fastest_peer(view: &View<'_>, problem: &ProblemPlace) -> Option<f64> {
    peers::arms(&view.table, problem)
        .filter(|row| !peers::is_ours(view, row) && row.failure().is_none())
        .map(p50)
        .filter(|us| us.is_finite())
        .min_by(f64::total_cmp)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::claims::claims;
    use crate::judge::list::joined;
    use crate::testing::scenario::{self, each};
    use crate::testing::{US, timed};

    /// Asks about stage 1's claim to be 1.1 times as fast as stage 0, which takes 20 µs.
    #[test]
    fn a_claim_is_a_time_and_a_goal_needs_a_base() {
        let answers = each(
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
                let targets = targets(&view, of_last, None);
                let lines = targets.iter().map(|target| {
                    let (us, is_reached) = (target.claimed_us(), target.is_reached());
                    format!("{us:.1} µs, reached: {is_reached:?}")
                });
                joined(lines, "\n")
            },
        );
        insta::assert_snapshot!(answers, @"
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
        let run = timed(US);
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
