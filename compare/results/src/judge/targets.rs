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
    use crate::table::Run;
    use crate::testing::{PeerArm, US, WMMA, timed};

    /// Returns the times that the second stage claims, 1.1 times as fast as the first, which takes
    /// 20 µs, and whether a goal is reached.
    fn goals(run: &Run) -> Vec<String> {
        let view = View::alone(run);
        let claims = claims(&view);
        let second = claims
            .iter()
            .filter(|claimed| claimed.stage == "stage1-cpasync");
        let mut goals = Vec::new();
        for target in targets(&view, second, None) {
            let (us, is_reached) = (target.claimed_us(), target.is_reached());
            goals.push(format!("{us:.1} µs, reached: {is_reached:?}"));
        }
        goals
    }

    /// Returns a run in which the second stage takes 15 µs beside a peer.
    fn beside(peer: PeerArm<'_>) -> Run {
        timed(US).peers("mission", 15.0, &[peer])
    }

    #[test]
    fn a_claim_is_a_time_without_a_peer() {
        assert_eq!(goals(&timed(US)), ["18.2 µs, reached: None"]);
    }

    #[test]
    fn a_goal_is_reached_beside_a_slow_peer() {
        let run = beside(PeerArm::right("torch-flash", 18.5));
        assert_eq!(goals(&run), ["18.2 µs, reached: Some(true)"]);
    }

    #[test]
    fn a_goal_is_not_reached_beside_a_fast_peer() {
        let run = beside(PeerArm::right("torch-flash", 16.0));
        assert_eq!(goals(&run), ["18.2 µs, reached: Some(false)"]);
    }

    #[test]
    fn a_wrong_peer_sets_no_goal() {
        let run = beside(PeerArm::wrong("torch-flash", 16.0));
        assert_eq!(goals(&run), ["18.2 µs, reached: None"]);
    }

    #[test]
    fn a_claim_without_a_time_of_its_base_is_no_time() {
        assert!(goals(&timed(US).without_subject(WMMA)).is_empty());
    }

    #[test]
    fn a_given_time_says_what_the_base_may_take() {
        let run = timed(US);
        let view = View::alone(&run);
        let claims = claims(&view);
        let asked = targets(&view, &claims, Some(10.0));
        assert!(!asked.is_empty());
        for target in asked {
            assert_eq!(target.needed_base_us(), Some(10.0 * target.at_least));
        }
    }
}
