//! Claims of speed: over another family of ours, by interleaved pairs, and over peers.

use super::{Evidence, Finding};
use crate::judge::best::{Latency, best_of, latency, p50};
use crate::judge::{View, peers};
use crate::table::{Claim, ProblemPlace, Row, StageMeta, Subject, Table, VariantMeta};
use common::claim::Rival;
use common::metric::Metric;
use common::timing::claim;
use common::timing::stats::Ratios;
use common::verdict::Verdict;
use std::cmp::Ordering;

/// The variants that a claim of speed over another family compares. A run times them against each
/// other.
#[derive(Clone, Debug, PartialEq)]
pub struct Arms {
    /// The best variant of our family.
    pub new: Subject,
    /// The best variant of the other family.
    pub base: Subject,
    /// The variant of the other family with the preset of ours.
    pub same_preset: Option<Subject>,
}

/// Returns the arms of a claim that is about this GPU, once both families were timed.
pub fn arms(view: &View<'_>, stage: &StageMeta, claim: &Claim) -> Option<Arms> {
    if !view.is_asked_about(claim) {
        return None;
    }
    let base = claim.relation.base()?;
    let base_stage = view.stage(base.stage)?;
    let new = &best_of(view, stage, &claim.family, &claim.place)?.subject;
    let fastest_base = &best_of(view, base_stage, base.family, &claim.place)?.subject;
    Some(Arms {
        new: new.clone(),
        base: fastest_base.clone(),
        same_preset: same_preset(view, stage, claim, new),
    })
}

/// Returns the variant of the claim's base with the preset of ours.
fn same_preset(
    view: &View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    new: &Subject,
) -> Option<Subject> {
    let base = claim.relation.base()?;
    let base_stage = view.stage(base.stage)?;
    let preset = stage.variant(new.name()).map_or("", VariantMeta::preset);
    let variant = base_stage.same_preset(base.family, preset)?;
    Some(base_stage.subject(&variant.name))
}

/// Judges a claim of speed over another family by the pair of the fastest arms.
pub(super) fn over_family<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    at_least: f64,
) -> Option<Evidence<'a>> {
    let base = claim.relation.base()?;
    let base_stage = view.stage(base.stage)?;
    let ours = Vec::from_iter(stage.family_subjects(&claim.family));
    let theirs = Vec::from_iter(base_stage.family_subjects(base.family));
    let row = fastest_of(view, &ours, &theirs, &claim.place)?;
    let mut finding = judge(row, at_least);
    if let Some(same) = same_preset(view, stage, claim, &row.subject)
        && let Some(pair) = view.table.pair(&row.subject, &same, &claim.place)
    {
        finding.same_preset = pair.value(Metric::SpeedupP50);
    }
    Some(Evidence { finding, row })
}

/// Judges a claim by the pair of ours and the fastest peer of the rival's whose output is right. It
/// does not hold where a required peer was not there, which may be faster.
pub(super) fn over_peer<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    claim: &Claim,
    rival: Rival,
    at_least: f64,
) -> Option<Evidence<'a>> {
    let family = Vec::from_iter(stage.family_subjects(&claim.family));
    let ours = peers::ours(view, &claim.place, |row| family.contains(&row.subject))?;
    let fastest = peers::fastest(&view.table, ours, |peer| rival.is(peer.as_str()))?;
    let mut finding = judge(fastest.over, at_least);
    let mut absent = peers::absent(&view.table, ours);
    absent.retain(|peer| rival.is(peer));
    if finding.verdict == Verdict::Pass && !absent.is_empty() {
        finding.verdict = Verdict::Ambiguous;
        finding.reason += &format!(", without {}", absent.join(" and "));
        finding.absent = absent;
    }
    Some(Evidence {
        finding,
        row: fastest.over,
    })
}

/// Judges a speedup of at least `at_least` on p50, p90 and mean, by the rule of [`claim::judge`]. A
/// row that failed a gate fails the claim: it is faster than the speed of light, or its output was
/// wrong while it was timed.
fn judge(row: &Row, at_least: f64) -> Finding {
    if let Some(reason) = row.failure() {
        return Finding::new(Verdict::Fail, reason);
    }
    let ratios = Ratios {
        p50: row.estimate(Metric::SpeedupP50).ratio(),
        p90: row.estimate(Metric::SpeedupP90).ratio(),
        mean: row.estimate(Metric::SpeedupMean).ratio(),
    };
    let noise = row.value(Metric::Noise).unwrap_or(f64::NAN);
    let result = claim::judge(&ratios, noise, at_least);
    Finding::new(result.verdict, result.reason)
}

/// Returns the pair of the fastest variants of two stages on a problem, whatever was claimed of it.
pub fn fastest_pair<'a>(
    view: &'a View<'_>,
    stage: &StageMeta,
    base: &StageMeta,
    problem: &ProblemPlace,
) -> Option<&'a Row> {
    let ours = Vec::from_iter(stage.subjects());
    let theirs = Vec::from_iter(base.subjects());
    fastest_of(view, &ours, &theirs, problem)
}

/// Returns the pair of the arms that are fastest alone: the run's before committed ones, and those
/// of kernels as they are now before stale ones. A session of few variants decides nothing about
/// the others, so that its age comes last.
fn fastest_of<'a>(
    view: &'a View<'_>,
    ours: &[Subject],
    theirs: &[Subject],
    problem: &ProblemPlace,
) -> Option<&'a Row> {
    let mut ranked = Vec::new();
    for new in ours {
        for base in theirs {
            if let Some(row) = view.table.pair(new, base, problem)
                && is_right(view, new, problem)
                && is_right(view, base, problem)
            {
                ranked.push((PairRank::new(view, row, base, problem), row));
            }
        }
    }
    let best = ranked.into_iter().max_by(|(a, _), (b, _)| a.compare(b));
    best.map(|(_, row)| row)
}

/// Returns whether nothing is known to be wrong with a variant: what is wrong is not fast.
fn is_right(view: &View<'_>, subject: &Subject, problem: &ProblemPlace) -> bool {
    !matches!(latency(view, subject, problem), Some(Latency::Withheld(_)))
}

/// The rank of a pair among those of two families.
struct PairRank<'a> {
    is_of_run: bool,
    is_current: bool,
    session: &'a str,
    /// The times of the arms alone.
    new_us: f64,
    base_us: f64,
}

impl<'a> PairRank<'a> {
    fn new(view: &View<'_>, pair: &'a Row, base: &Subject, problem: &ProblemPlace) -> Self {
        Self {
            is_of_run: view.is_of_run(pair),
            is_current: !view.is_stale(pair),
            session: &pair.session,
            new_us: us(&view.table, &pair.subject, problem),
            base_us: us(&view.table, base, problem),
        }
    }

    /// Compares two pairs: the greater one decides.
    fn compare(&self, other: &Self) -> Ordering {
        let age = |rank: &Self| (rank.is_of_run, rank.is_current);
        age(self)
            .cmp(&age(other))
            .then(other.new_us.total_cmp(&self.new_us))
            .then(other.base_us.total_cmp(&self.base_us))
            .then(self.session.cmp(other.session))
    }
}

fn us(table: &Table, subject: &Subject, problem: &ProblemPlace) -> f64 {
    table.latency(subject, problem).map_or(f64::INFINITY, p50)
}
