//! How often our fastest variant is faster than the fastest peer.

use crate::cells::short_ratio;
use common::metric::Metric;
use common::timing::Change;
use results::judge::View;
use results::judge::peers;
use results::table::{Figure, ProblemPlace, Row};
use std::collections::BTreeSet;

/// The most problems that are named.
const MAX_NAMED: usize = 6;

/// The fastest peer's time / ours on a problem.
struct Ratio<'a> {
    figure: Figure,
    /// The required peers that were not there.
    absent: Vec<&'static str>,
    peer: &'a Row,
    place: &'a ProblemPlace,
}

impl Ratio<'_> {
    fn outcome(&self) -> Change {
        peers::outcome(self.figure)
    }
}

/// Returns `faster on 63 of 64 problems, from 0.95x to 2.99x; slower: big_wide e4m3 full (0.95x
/// cudnn-fp8); on 2 more our fastest was not timed beside them`.
pub fn score(view: &View<'_>) -> Option<String> {
    let ratios = sorted_ratios(view);
    let lowest = ratios.first()?.figure.value;
    let highest = ratios.last()?.figure.value;
    let (faster, partly): (Vec<_>, Vec<_>) = with_outcome(&ratios, Change::Faster)
        .into_iter()
        .partition(|ratio| ratio.absent.is_empty());
    let slower = with_outcome(&ratios, Change::Slower);
    let mut undecided = with_outcome(&ratios, Change::Same);
    undecided.extend(with_outcome(&ratios, Change::Ambiguous));
    let mut line = format!(
        "our fastest variant is faster than the fastest peer on {} of {} problems, from {} to {}",
        faster.len(),
        ratios.len(),
        short_ratio(lowest),
        short_ratio(highest)
    );
    for (word, named) in [("slower", slower), ("undecided", undecided)] {
        if !named.is_empty() {
            line += &format!("; {word}: {}", names(&named));
        }
    }
    if !partly.is_empty() {
        let absent: BTreeSet<&str> = partly
            .iter()
            .flat_map(|ratio| ratio.absent.iter().copied())
            .collect();
        line += &format!(
            "; on {} more faster than those that were there, without {}",
            partly.len(),
            Vec::from_iter(absent).join(" or ")
        );
    }
    let missed = peers::missed(view).len();
    if missed > 0 {
        line += &format!("; on {missed} more our fastest was not timed beside them");
    }
    Some(line)
}

/// Returns the ratios of kernels as they are now, in ascending order.
fn sorted_ratios<'a>(view: &'a View<'_>) -> Vec<Ratio<'a>> {
    let mut ratios = Vec::new();
    for problem in peers::problems(view) {
        if view.is_stale(problem.ours) {
            continue;
        }
        if let Some(rival) = problem.fastest {
            ratios.push(Ratio {
                figure: rival.over.estimate(Metric::SpeedupP50),
                absent: peers::absent(&view.table, problem.ours),
                peer: rival.time,
                place: problem.place,
            });
        }
    }
    ratios.sort_by(|a, b| a.figure.value.total_cmp(&b.figure.value));
    ratios
}

fn with_outcome<'r, 'a>(ratios: &'r [Ratio<'a>], outcome: Change) -> Vec<&'r Ratio<'a>> {
    ratios
        .iter()
        .filter(|ratio| ratio.outcome() == outcome)
        .collect()
}

/// Returns the first problems with their ratios, and how many more there are.
fn names(ratios: &[&Ratio<'_>]) -> String {
    let mut names = Vec::new();
    for ratio in ratios.iter().take(MAX_NAMED) {
        let value = short_ratio(ratio.figure.value);
        names.push(format!("{} ({value} {})", ratio.place, ratio.peer.subject));
    }
    let hidden = ratios.len().saturating_sub(MAX_NAMED);
    if hidden > 0 {
        names.push(format!("and {hidden} more"));
    }
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use results::judge::View;
    use results::testing::{PeerArm, US, timed};

    #[test]
    fn a_problem_that_a_required_peer_did_not_take_part_in_is_counted_apart() {
        let run = timed(US)
            .peers("long", 10.0, &[PeerArm::right("flash-attn-3", 15.0)])
            .peers("big", 10.0, &[PeerArm::right("flash-attn-3", 5.0)])
            .without_flash()
            .peers("mission", 10.0, &[PeerArm::right("flash-attn-3", 20.0)]);
        insta::assert_snapshot!(score(&View::alone(&run)).unwrap(), @"our fastest variant is faster than the fastest peer on 1 of 3 problems, from 0.500x to 2.00x; slower: big f16 full (0.500x flash-attn-3); on 1 more faster than those that were there, without flash-attn-4");
    }
}
