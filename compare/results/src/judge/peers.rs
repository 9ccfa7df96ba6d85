//! Ours against peers: which figures are shown, and what is won and lost.

use super::View;
use super::best::{self, p50};
use super::list::{count, distinct, tallied};
use crate::table::{Figure, ProblemPlace, Row, Subject, Table};
use common::metric::Metric;
use common::problem::Dtype;
use common::timing::Change;

/// The peer that PyTorch chooses by itself.
pub const DEFAULT: &str = "torch-default";

/// A peer whose output is right.
#[derive(Clone, Copy, Debug)]
pub struct Rival<'a> {
    pub time: &'a Row,
    /// Our speedup over it.
    pub over: &'a Row,
}

/// A problem with the fastest of ours, and the fastest peer whose output is right. Both are of one
/// session.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub place: &'a ProblemPlace,
    pub ours: &'a Row,
    /// The fastest peer, unless none was right.
    pub fastest: Option<Rival<'a>>,
}

/// Judges ours against a peer by the interval of peer's time / ours; neither faster nor slower
/// where that contains 1.
pub fn outcome(ratio: Figure) -> Change {
    Change::from_ratio(&ratio.ratio(), 0.0)
}

/// Returns the outcome of ours against a peer, as pages name it.
pub fn word(outcome: Change) -> &'static str {
    match outcome {
        Change::Faster => "faster",
        Change::Slower => "slower",
        Change::Same | Change::Ambiguous => "undecided",
    }
}

/// Returns `64 problems: 59 faster, 3 slower, 2 undecided`.
pub fn score(ratios: &[Figure]) -> String {
    let outcomes = ratios.iter().map(|ratio| word(outcome(*ratio)));
    let tally = tallied(outcomes, &["faster", "slower", "undecided"]);
    format!("{}: {tally}", count(ratios.len(), "problem", "problems"))
}

/// Returns whether a row is about a variant of the ladder.
pub fn is_ours(view: &View<'_>, row: &Row) -> bool {
    view.stage(row.subject.stage()).is_some()
}

/// Returns the times that were taken in turn on a problem, ours and theirs.
pub fn arms<'a>(table: &'a Table, problem: &ProblemPlace) -> impl Iterator<Item = &'a Row> {
    table
        .peer_times()
        .filter(move |row| row.problem() == Some(problem))
}

/// Returns the fastest peer whose output is right, of those that `is_rival` accepts and that were
/// timed in the regime of ours.
pub fn fastest<'a>(
    table: &'a Table,
    ours: &Row,
    is_rival: impl Fn(&Subject) -> bool,
) -> Option<Rival<'a>> {
    let problem = ours.problem()?;
    let mut rivals = Vec::new();
    for time in arms(table, problem) {
        if !is_rival(&time.subject) {
            continue;
        }
        // A wrong peer has no speedup, nor is one of ours timed against another.
        let Some(over) = table.peer_pair(&ours.subject, &time.subject, problem) else {
            continue;
        };
        if over.regime() == ours.regime() {
            rivals.push(Rival { time, over });
        }
    }
    rivals.into_iter().min_by(|a, b| a.us().total_cmp(&b.us()))
}

/// The peers without which nobody knows which is the fastest: for halves, and for E4M3. FlashInfer
/// is not among them: it compiles what it is called for, where nvcc is. It alone takes K and V in
/// E4M3 under queries of halves, so that no other is required there.
const REQUIRED: [&str; 2] = ["flash-attn-3", "flash-attn-4"];
const REQUIRED_OF_E4M3: [&str; 2] = ["flash-attn-3-fp8", "cudnn-fp8"];

/// Returns whether nothing is claimed over the fastest peer without this one.
pub fn is_required(peer: &str) -> bool {
    REQUIRED.contains(&peer) || REQUIRED_OF_E4M3.contains(&peer)
}

/// Returns the required peers that the session of ours has nothing about: neither a time on the
/// problem nor a reason why they do not take it.
pub fn absent(table: &Table, ours: &Row) -> Vec<&'static str> {
    let Some(problem) = ours.problem() else {
        return Vec::new();
    };
    if problem.has_cache_of_codes() {
        return Vec::new();
    }
    let mut absent = Vec::from(match problem.dtype {
        Dtype::E4m3 => REQUIRED_OF_E4M3,
        Dtype::F16 | Dtype::Bf16 => REQUIRED,
    });
    for row in arms(table, problem) {
        if row.session == ours.session {
            absent.retain(|peer| row.subject.as_str() != *peer);
        }
    }
    absent
}

impl Rival<'_> {
    /// Returns what the peer took when it was timed with ours. Its own row may be of another
    /// regime: the fastest of ours has one of its own.
    fn us(&self) -> f64 {
        if self.time.regime() == self.over.regime() {
            p50(self.time)
        } else {
            p50(self.over) * self.over.estimate(Metric::SpeedupP50).value
        }
    }
}

/// Returns the fastest right arm that `is_eligible`, of those that were timed in turn with ours, in
/// its regime.
pub fn beside<'a>(
    table: &'a Table,
    ours: &Row,
    is_eligible: impl Fn(&Row) -> bool,
) -> Option<&'a Row> {
    let mut eligible = Vec::new();
    for row in arms(table, ours.problem()?) {
        let is_in_turn = row.session == ours.session && row.regime() == ours.regime();
        let is_right = row.has(Metric::P50) && row.failure().is_none();
        if is_in_turn && is_right && is_eligible(row) {
            eligible.push(row);
        }
    }
    eligible
        .into_iter()
        .min_by(|a, b| p50(a).total_cmp(&p50(b)))
}

/// Returns the fastest of ours on a problem, as timed against peers, of those that are eligible and
/// whose output is right. Where one was timed sustained, it is one of those: bursts at the power
/// limit are shorter.
pub fn ours<'a>(
    view: &'a View<'_>,
    problem: &ProblemPlace,
    is_eligible: impl Fn(&Row) -> bool,
) -> Option<&'a Row> {
    let mut eligible = Vec::new();
    for row in arms(&view.table, problem) {
        if is_ours(view, row) && is_eligible(row) && row.failure().is_none() {
            eligible.push(row);
        }
    }
    eligible.into_iter().min_by(|a, b| {
        let sustained_first = b.regime().cmp(&a.regime());
        sustained_first.then(p50(a).total_cmp(&p50(b)))
    })
}

/// The least gain of a variant over the one that was timed beside peers for which that one is not
/// called our fastest. Times of one kernel in two sessions differ by less.
const LEAD: f64 = 1.08;

/// Returns every problem that was timed against peers, in the newest session that did so: by
/// element type, size and mask. A problem on which a row of ours failed is left out, and no older
/// figure hides that; so is one on which a faster variant of ours was never timed beside them.
pub fn problems<'a>(view: &'a View<'_>) -> Vec<Problem<'a>> {
    let mut problems = timed_problems(view);
    problems.retain(|problem| faster_alone(view, problem).is_none());
    problems
}

/// Returns the latencies of our fastest variants where another variant was timed beside peers
/// instead.
pub fn missed<'a>(view: &'a View<'_>) -> Vec<&'a Row> {
    let mut missed = Vec::new();
    for problem in timed_problems(view) {
        if !view.is_stale(problem.ours) {
            missed.extend(faster_alone(view, &problem));
        }
    }
    missed
}

/// Returns the latency of our fastest variant on a problem, if that was timed alone and leads the
/// one that was timed beside peers. Both latencies are of one regime.
fn faster_alone<'a>(view: &'a View<'_>, problem: &Problem<'a>) -> Option<&'a Row> {
    let own = view.table.latency(&problem.ours.subject, problem.place)?;
    let mut leading = Vec::new();
    for row in view.table.latencies() {
        let is_alike = row.problem() == Some(problem.place) && row.regime() == own.regime();
        if is_alike && p50(row) * LEAD < p50(own) {
            leading.push(row);
        }
    }
    leading
        .into_iter()
        .filter(|row| !view.is_stale(row) && best::withheld(view, row).is_none())
        .min_by(|a, b| p50(a).total_cmp(&p50(b)))
}

fn timed_problems<'a>(view: &'a View<'_>) -> Vec<Problem<'a>> {
    let mut places = distinct(view.table.peer_times().filter_map(Row::problem));
    places.sort_by_key(|place| (place.dtype, place.size(), place.mask, place.cold, *place));
    let mut problems = Vec::new();
    for place in places {
        let sessions = arms(&view.table, place).map(|row| &row.session);
        let newest = sessions.max();
        if let Some(ours) = ours(view, place, |row| Some(&row.session) == newest) {
            problems.push(Problem {
                place,
                ours,
                fastest: fastest(&view.table, ours, |_| true),
            });
        }
    }
    problems
}
