//! Claims of speed (L1) and of counters (E1): what the table shows of each, and whether it is
//! recorded as refuted. One path from a stage's constant to its verdict.

mod figures;
mod speed;

pub use figures::{NCU_TOLERANCE, comparisons};
pub use speed::{arms, fastest_pair};

use super::View;
use crate::table::session;
use crate::table::{Claim, Judged, Kind, Negative, Relation, Row, StageMeta, Subject, Table};
use common::metric;
use common::verdict::{GateId, Verdict};

/// The verdict on a claim, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    pub verdict: Verdict,
    pub reason: String,
    /// The speedup over the same-preset baseline.
    pub same_preset: Option<f64>,
    /// The required peers that were not timed beside ours, without which a claim over the fastest
    /// peer that would hold is undecided.
    pub absent: Vec<&'static str>,
}

impl Finding {
    fn new(verdict: Verdict, reason: impl Into<String>) -> Self {
        Self {
            verdict,
            reason: reason.into(),
            same_preset: None,
            absent: Vec::new(),
        }
    }
}

/// A finding, and a row that it rests on.
struct Evidence<'a> {
    finding: Finding,
    row: &'a Row,
}

/// Judges a claim of `stage` by the table; `None` if it has no rows for it.
fn judge<'a>(view: &'a View<'_>, stage: &StageMeta, claim: &Claim) -> Option<Evidence<'a>> {
    match &claim.relation {
        Relation::Faster { at_least, .. } => speed::over_family(view, stage, claim, *at_least),
        Relation::FasterThanPeer {
            rival, at_least, ..
        } => speed::over_peer(view, stage, claim, *rival, *at_least),
        Relation::Ratio { .. } | Relation::AtLeast { .. } | Relation::AtMost { .. } => {
            figures::by_all_instruments(view, stage, claim)
        }
    }
}

/// A claim of a stage, with what the table shows of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Claimed {
    pub stage: String,
    pub claim: Claim,
    /// The finding; NO DATA if the table has no rows for it.
    pub finding: Finding,
    pub row: Option<Row>,
    /// Whether the finding is of this invocation's run.
    pub is_of_run: bool,
    pub is_stale: bool,
    /// The refutation beside the stage. If the finding is PASS all the same, it is out of date.
    pub negative: Option<Negative>,
}

impl Claimed {
    /// Returns `stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk`.
    pub fn title(&self) -> String {
        format!("{}: {}", self.stage, self.claim)
    }

    /// Returns the two arms that were timed for a claim of speed.
    pub fn pair(&self) -> Option<&Row> {
        self.row.as_ref().filter(|row| row.base().is_some())
    }

    /// Returns the session that measured what decides the claim.
    pub fn session(&self) -> Option<&str> {
        self.row.as_ref().map(|row| row.session.as_str())
    }

    /// Returns the verdict of a claim that is not recorded as refuted.
    pub fn verdict(&self) -> Option<Verdict> {
        self.negative.is_none().then_some(self.finding.verdict)
    }

    /// Returns whether it fails, nothing refutes it, and its kernels have not changed since.
    pub fn is_broken(&self) -> bool {
        self.verdict() == Some(Verdict::Fail) && !self.is_stale
    }

    /// Returns whether the run that is judged leaves the claim undecided.
    pub fn is_ambiguous(&self) -> bool {
        self.verdict() == Some(Verdict::Ambiguous) && self.is_of_run
    }

    /// Returns the record that refutes the claim, if the claim passes nevertheless.
    pub fn is_unexpected(&self) -> Option<&Negative> {
        let passes = self.finding.verdict == Verdict::Pass && !self.is_stale;
        self.negative.as_ref().filter(|_| passes)
    }

    /// Returns the refutation that may be recorded, on the GPU of the report, once somebody has
    /// found out why.
    pub fn refutation(&self, gpu: Option<&str>) -> Negative {
        let mut measured = String::new();
        if let Some(pair) = self.pair()
            && let Some(base) = pair.base()
        {
            measured += &format!("{} against {base}: ", pair.subject.name());
        }
        let session = self.session().unwrap_or_default();
        measured += &format!("{} ({session})", self.finding.reason);
        let is_of_gpu =
            self.claim.is_of_speed() || self.claim.metric.source() == metric::Source::Profile;
        Negative {
            claim: self.claim.id(),
            gpu: gpu.filter(|_| is_of_gpu).map(String::from),
            measured,
            why: String::new(),
        }
    }

    /// Returns it as a row of the table, so that two tables are compared by it.
    pub fn row(&self) -> Row {
        let gate = if self.claim.is_of_speed() {
            GateId::L1
        } else {
            GateId::E1
        };
        let subject = Subject::variant(&self.stage, &self.claim.family);
        let mut row = Row::new(subject, Kind::Claim(self.claim.id()));
        row.session = self.session().unwrap_or_default().to_string();
        row.note = self.negative.as_ref().map(|negative| negative.why.clone());
        row.judge(
            gate,
            Judged::new(self.finding.verdict, &self.finding.reason),
        );
        row
    }
}

/// Replaces what the table says of every claim by what it shows now.
pub fn restate(table: &mut Table, stages: &[StageMeta]) {
    let claims = claims(&View::committed(stages, table));
    table.retain(|row| !matches!(row.kind, Kind::Claim(_)));
    table.extend(claims.iter().map(Claimed::row));
}

/// Returns all claims of the ladder, as the table shows them.
pub fn claims(view: &View<'_>) -> Vec<Claimed> {
    // Each look for the newest session goes through many rows.
    let gpu = view.gpu();
    session::claims(view.stages)
        .map(|(stage, claim)| claimed(view, gpu, stage, claim))
        .collect()
}

fn claimed(view: &View<'_>, gpu: Option<&str>, stage: &StageMeta, claim: &Claim) -> Claimed {
    let mut claimed = Claimed {
        stage: stage.id.clone(),
        claim: claim.clone(),
        row: None,
        is_of_run: false,
        is_stale: false,
        finding: unmeasured(claim, gpu),
        negative: negative(stage, claim, gpu).cloned(),
    };
    if !claim.is_about(gpu) {
        return claimed;
    }
    if let Some(Evidence { finding, row }) = judge(view, stage, claim) {
        claimed.is_of_run = view.is_of_run(row);
        claimed.is_stale = view.is_stale(row);
        claimed.row = Some(row.clone());
        claimed.finding = finding;
    }
    claimed
}

/// Returns the record that a claim is refuted on a GPU.
fn negative<'a>(stage: &'a StageMeta, claim: &Claim, gpu: Option<&str>) -> Option<&'a Negative> {
    let id = claim.id();
    stage.negatives.iter().find(|negative| {
        let is_here = negative.gpu.is_none() || negative.gpu.as_deref() == gpu;
        negative.claim == id && is_here
    })
}

fn unmeasured(claim: &Claim, gpu: Option<&str>) -> Finding {
    let reason = match &claim.gpu {
        Some(other) if !claim.is_about(gpu) => {
            format!("predicted for an {other} alone; `compare run` there measures it")
        }
        _ => "not measured".to_string(),
    };
    Finding::new(Verdict::NoData, reason)
}

#[cfg(test)]
mod tests;
