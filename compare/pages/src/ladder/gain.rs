//! What a stage gains over another.

use super::short;
use crate::cells::short_ratio;
use crate::words::standing;
use common::metric::Metric;
use common::verdict::Verdict;
use document::Cell;
use results::judge::View;
use results::judge::claims::{self, Claimed};
use results::judge::verdict::Report;
use results::table::{ProblemPlace, Relation, Role, Row, StageMeta, Subject};

/// The gain of a stage on a problem, and its claim there.
pub struct Gain<'a> {
    /// The stage that the gain is over, unless a table has it in the row above.
    over: Option<&'a str>,
    pub measured: Option<&'a Row>,
    pub claim: Option<&'a Claimed>,
}

/// Returns the gain that a stage claims on a problem over its predecessor, else over another stage;
/// where it claims none, what was measured over its predecessor. What is stale, or was wrong, is
/// not measured.
pub fn gain<'a>(report: &'a Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Gain<'a> {
    let view = &report.view;
    let predecessor = stage.predecessor.as_deref();
    let mut gain = if let Some(ClaimedGain { claimed, base }) = claimed_gain(report, stage, place) {
        Gain {
            over: Some(base),
            measured: claimed.pair().filter(|row| counts(view, row)),
            claim: Some(claimed),
        }
    } else {
        let base = predecessor.and_then(|id| view.stage(id));
        let pair = base.and_then(|base_stage| claims::fastest_pair(view, stage, base_stage, place));
        let measured = pair.filter(|row| counts(view, row));
        Gain {
            over: measured.and_then(Row::base).map(Subject::stage),
            measured,
            claim: None,
        }
    };
    // A table has the rung before in the row above.
    if stage.role == Role::Rung && gain.over == predecessor {
        gain.over = None;
    }
    gain
}

/// Whether a ratio is of kernels as they are now, and both were right.
fn counts(view: &View<'_>, pair: &Row) -> bool {
    pair.failure().is_none() && !view.is_stale(pair)
}

/// A claim over another stage.
#[derive(Clone, Copy)]
struct ClaimedGain<'a> {
    claimed: &'a Claimed,
    base: &'a str,
}

/// Returns the claim of a stage on a problem over its predecessor, else over another stage.
fn claimed_gain<'a>(
    report: &'a Report<'_>,
    stage: &StageMeta,
    place: &ProblemPlace,
) -> Option<ClaimedGain<'a>> {
    let mut claims = Vec::new();
    for claimed in &report.claims {
        let Relation::Faster { base, .. } = &claimed.claim.relation else {
            continue;
        };
        let is_own = claimed.stage == stage.id && claimed.claim.place == *place;
        if is_own && base.stage != stage.id {
            claims.push(ClaimedGain {
                claimed,
                base: base.stage,
            });
        }
    }
    let predecessor = stage.predecessor.as_deref();
    claims
        .into_iter()
        .min_by_key(|claim| Some(claim.base) != predecessor)
}

/// Returns what a stage claims on a problem over its own families: `2.46x over mma-linear, claimed
/// 1.05x: holds`.
pub fn own_gains(report: &Report<'_>, stage: &StageMeta, place: &ProblemPlace) -> Vec<String> {
    let mut sentences = Vec::new();
    for claimed in &report.claims {
        let Relation::Faster { base, .. } = &claimed.claim.relation else {
            continue;
        };
        let is_own = claimed.stage == stage.id && base.stage == stage.id;
        let pair = claimed.pair().filter(|row| counts(&report.view, row));
        let ratio = pair.and_then(|row| row.value(Metric::SpeedupP50));
        if let Some(measured) = ratio.filter(|_| is_own && claimed.claim.place == *place) {
            sentences.push(format!(
                "{} over {}, {}",
                short_ratio(measured),
                base.family,
                claim_sentence(claimed)
            ));
        }
    }
    sentences
}

/// Returns `claimed 1.10x: refuted`.
fn claim_sentence(claim: &Claimed) -> String {
    format!("claimed {:.2}x: {}", at_least(claim), standing(claim))
}

impl Gain<'_> {
    /// Returns the measured ratio, if there is one.
    pub fn ratio(&self) -> Option<f64> {
        self.measured?.value(Metric::SpeedupP50)
    }

    /// Returns `1.08x (1.10 ✗)`, `0.80x`, of a branch `1.11x over stage6 (1.03)`; nothing if it was
    /// neither claimed nor measured.
    pub fn cell(&self) -> Cell {
        let mut words = Vec::new();
        words.extend(self.ratio().map(short_ratio));
        words.extend(self.over.map(|base| format!("over {}", short(base))));
        words.extend(self.claim.map(|claim| self.claim_words(claim)));
        let line = words.join(" ");
        if line.is_empty() {
            Cell::Empty
        } else if self.claim.is_none() {
            Cell::Figure(line)
        } else {
            line.into()
        }
    }

    /// Returns `1.07x over stage0, claimed 1.10x: refuted`; nothing if it was neither claimed nor
    /// measured.
    pub fn sentence(&self) -> Option<String> {
        let measured_base = self.measured.and_then(Row::base);
        let mut words = Vec::new();
        if let Some((ratio, base)) = self.ratio().zip(measured_base) {
            words.push(format!(
                "{} over {}",
                short_ratio(ratio),
                short(base.stage())
            ));
        }
        words.extend(self.claim.map(claim_sentence));
        (!words.is_empty()).then(|| words.join(", "))
    }

    fn claim_words(&self, claim: &Claimed) -> String {
        let mark = match claim.verdict() {
            _ if self.measured.is_none() => "",
            None | Some(Verdict::Fail) => " ✗",
            Some(Verdict::Ambiguous) => " ?",
            Some(Verdict::Pass | Verdict::NoData) => "",
        };
        format!("({:.2}{mark})", at_least(claim))
    }
}

/// Returns the least ratio that a claim of speed promises.
pub fn at_least(claim: &Claimed) -> f64 {
    match claim.claim.relation {
        Relation::Faster { at_least, .. } | Relation::FasterThanPeer { at_least, .. } => at_least,
        _ => f64::NAN,
    }
}
