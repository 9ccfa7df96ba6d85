//! Ours against peers: which figures are shown, and what is won and lost.

use super::View;
use super::best::p50;
use super::list::{count, distinct, tallied};
use crate::table::{Figure, ProblemPlace, Row, Source, Subject, Table};
use common::metric::Metric;
use common::timing::Change;

/// What PyTorch chooses by itself.
pub const DEFAULT: &str = "torch-default";

/// One problem: the fastest of ours, and the fastest peer whose output is right. Both are of one session.
#[derive(Clone, Debug)]
pub struct Problem<'a> {
    pub place: &'a ProblemPlace,
    pub ours: &'a Row,
    /// The fastest peer and our speedup over it, unless none was right.
    pub fastest: Option<(&'a Row, &'a Row)>,
}

/// Ours against a peer, by the interval of peer's time / ours; neither faster nor slower where that contains 1.
pub fn outcome(ratio: Figure) -> Change {
    Change::of(&ratio.ratio(), 0.0)
}

pub fn word(outcome: Change) -> &'static str {
    match outcome {
        Change::Faster => "faster",
        Change::Slower => "slower",
        Change::Same | Change::Ambiguous => "inconclusive",
    }
}

/// `64 problems: 59 faster, 3 slower, 2 inconclusive`
pub fn score(ratios: &[Figure]) -> String {
    let words = ratios.iter().map(|ratio| word(outcome(*ratio)));
    let words = tallied(words, &["faster", "slower", "inconclusive"]);
    format!("{}: {words}", count(ratios.len(), "problem", "problems"))
}

/// The arms that were timed interleaved, ours and theirs.
pub fn arms(table: &Table) -> impl Iterator<Item = &Row> {
    let is_arm = |row: &&Row| row.paired_with.is_none() && row.place.problem().is_some();
    table.rows_by(Source::Peers).filter(is_arm)
}

pub fn is_ours(view: &View<'_>, row: &Row) -> bool {
    view.stage(row.subject.stage()).is_some()
}

/// The fastest peer whose output is right, of those that `is_rival` accepts, and our speedup over it: of those that were timed in the
/// regime of ours.
pub fn fastest<'a>(
    table: &'a Table,
    ours: &Row,
    is_rival: impl Fn(&Subject) -> bool,
) -> Option<(&'a Row, &'a Row)> {
    let theirs = arms(table).filter(|row| row.place == ours.place && is_rival(&row.subject));
    let over = |peer: &Row| table.pair(&ours.subject, &peer.subject, &ours.place, peer.source);
    // A wrong peer has no speedup, nor is one of ours timed against another.
    let right = theirs.filter_map(|peer| Some((peer, over(peer)?)));
    let alike = right.filter(|(_, over)| over.regime() == ours.regime());
    alike.min_by(|a, b| theirs_us(a.0, a.1).total_cmp(&theirs_us(b.0, b.1)))
}

/// What a peer took when it was timed with ours. Its own row may be of another regime: the fastest of ours has one of its own.
fn theirs_us(peer: &Row, over: &Row) -> f64 {
    if peer.regime() == over.regime() {
        p50(peer)
    } else {
        p50(over) * over.estimate(Metric::SpeedupP50).value
    }
}

/// Returns the fastest right arm that `is` asks for, of those that were timed in turn with ours, in its regime.
pub fn beside<'a>(table: &'a Table, ours: &Row, is: impl Fn(&Row) -> bool) -> Option<&'a Row> {
    let arms = arms(table).filter(|row| {
        row.place == ours.place && row.session == ours.session && row.regime() == ours.regime()
    });
    let right = arms.filter(|row| row.failure().is_none() && row.has(Metric::P50) && is(row));
    right.min_by(|a, b| p50(a).total_cmp(&p50(b)))
}

/// The fastest of ours on a problem, as timed against peers, of those that are eligible and whose output is right. Where one was timed
/// sustained, of those: bursts at the power limit are shorter.
pub fn ours<'a>(
    view: &'a View<'_>,
    place: &ProblemPlace,
    is_eligible: impl Fn(&Row) -> bool,
) -> Option<&'a Row> {
    let ours = arms(&view.table).filter(|row| is_ours(view, row) && is_eligible(row));
    let right = ours.filter(|row| row.failure().is_none());
    let here = right.filter(|row| row.place.problem() == Some(place));
    here.min_by(|a, b| {
        let regimes = b.regime().cmp(&a.regime());
        regimes.then(p50(a).total_cmp(&p50(b)))
    })
}

/// Every problem that was timed against peers, in the newest session that did so: by element type, size and mask. A row of ours that
/// failed is none, and no older figure hides that.
pub fn problems<'a>(view: &'a View<'_>) -> Vec<Problem<'a>> {
    let mut places = distinct(arms(&view.table).filter_map(|row| row.place.problem()));
    places.sort_by_key(|place| (place.dtype, place.size(), place.mask, place.cold, *place));
    let problem = |place: &'a ProblemPlace| {
        let here = arms(&view.table).filter(|row| row.place.problem() == Some(place));
        let newest = here.map(|row| &row.session).max();
        let ours = ours(view, place, |row| Some(&row.session) == newest)?;
        Some(Problem {
            place,
            ours,
            fastest: fastest(&view.table, ours, |_| true),
        })
    };
    places.into_iter().filter_map(problem).collect()
}
