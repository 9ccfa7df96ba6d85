//! Claims, of speed (L1) and of evidence (E1): what this run says of each, what a committed record said, and whether a
//! negative record settles it.

use super::Committed;
use super::evidence::both;
use common::evidence::Source;
use common::record::{
    ClaimResult, ClaimTerms, EvidenceResult, EvidenceTerms, Gpu, PeerClaimResult, PeerClaimTerms, Record, RefutedClaim,
    StageBuild,
};
use common::verdict::{GateId, GateResult, Verdict};
use serde::Serialize;
use std::borrow::Cow;
use std::fmt;

/// A claim as judged in a record.
pub trait Judgement: Clone {
    /// The claim.
    type Terms: Clone + fmt::Display;

    /// All that `stage` claims.
    fn claimed(stage: &StageBuild) -> &[Self::Terms];
    /// All that `record` judged.
    fn judged(record: &Record) -> Cow<'_, [Self]>;
    /// Whether the figures are of the GPU that they were measured on, and of no other.
    fn is_of_a_gpu(&self) -> bool;
    /// Whether it is about `terms` of `stage`; reworded reasons make no other claim.
    fn is_of(&self, stage: &str, terms: &Self::Terms) -> bool;
    /// The stage's identity when it was judged.
    fn identity(&self) -> &str;
    /// The verdict.
    fn result(&self) -> &GateResult;
    /// The way a negative record lists it, with what was measured.
    fn refuted(&self) -> RefutedClaim;
}

impl Judgement for ClaimResult {
    type Terms = ClaimTerms;

    fn claimed(stage: &StageBuild) -> &[ClaimTerms] {
        &stage.claims
    }

    fn judged(record: &Record) -> Cow<'_, [Self]> {
        record.performance.as_ref().map_or(&[][..], |performance| &performance.claims).into()
    }

    fn is_of_a_gpu(&self) -> bool {
        true
    }

    fn is_of(&self, stage: &str, terms: &ClaimTerms) -> bool {
        self.stage == stage && self.terms == *terms
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn result(&self) -> &GateResult {
        &self.result
    }

    fn refuted(&self) -> RefutedClaim {
        RefutedClaim {
            gate: GateId::L1,
            stage: self.stage.clone(),
            family: self.terms.family.clone(),
            what: self.terms.to_string(),
            identity: self.identity.clone(),
            evidence: format!("{} against {}: {}", self.variant, self.base_variant, self.result.reason),
        }
    }
}

impl Judgement for PeerClaimResult {
    type Terms = PeerClaimTerms;

    fn claimed(stage: &StageBuild) -> &[PeerClaimTerms] {
        &stage.peer_claims
    }

    fn judged(record: &Record) -> Cow<'_, [Self]> {
        record.peers.as_ref().map_or(&[][..], |peers| &peers.claims).into()
    }

    fn is_of_a_gpu(&self) -> bool {
        true
    }

    /// A goal is shown and never judged.
    fn is_of(&self, stage: &str, terms: &PeerClaimTerms) -> bool {
        let PeerClaimTerms { family, shape, mask, rival, at_least, goal: _ } = &self.terms;
        self.stage == stage
            && (family, shape, mask, rival, at_least)
                == (&terms.family, &terms.shape, &terms.mask, &terms.rival, &terms.at_least)
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn result(&self) -> &GateResult {
        &self.result
    }

    fn refuted(&self) -> RefutedClaim {
        RefutedClaim {
            gate: GateId::L1,
            stage: self.stage.clone(),
            family: self.terms.family.clone(),
            what: self.terms.to_string(),
            identity: self.identity.clone(),
            evidence: format!("{} against {}: {}", self.variant, self.peer, self.result.reason),
        }
    }
}

impl Judgement for EvidenceResult {
    type Terms = EvidenceTerms;

    fn claimed(stage: &StageBuild) -> &[EvidenceTerms] {
        &stage.evidence
    }

    /// What the emulator and ncu say together.
    fn judged(record: &Record) -> Cow<'_, [Self]> {
        let Some(profile) = &record.profile else { return Cow::Borrowed(&record.evidence.claims) };
        let of_ncu = |counted: &Self| {
            let same = |ncu: &&Self| ncu.is_of(&counted.stage, &counted.terms) && ncu.identity == counted.identity;
            profile.claims.iter().find(same)
        };
        record.evidence.claims.iter().map(|counted| both(counted, of_ncu(counted))).collect()
    }

    fn is_of_a_gpu(&self) -> bool {
        self.terms.quantity.source() == Source::Profile
    }

    fn is_of(&self, stage: &str, terms: &EvidenceTerms) -> bool {
        let EvidenceTerms { family, quantity, relation, dtype, why: _ } = &self.terms;
        self.stage == stage
            && (family, quantity, relation, dtype) == (&terms.family, &terms.quantity, &terms.relation, &terms.dtype)
    }

    fn identity(&self) -> &str {
        &self.identity
    }

    fn result(&self) -> &GateResult {
        &self.result
    }

    fn refuted(&self) -> RefutedClaim {
        RefutedClaim {
            gate: GateId::E1,
            stage: self.stage.clone(),
            family: self.terms.family.clone(),
            what: self.terms.to_string(),
            identity: self.identity.clone(),
            evidence: self.result.reason.clone(),
        }
    }
}

/// One claim of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimRow<J: Judgement> {
    /// The stage.
    pub stage: String,
    /// What it promises.
    pub terms: J::Terms,
    /// What is known.
    pub state: ClaimState<J>,
}

impl<J: Judgement> ClaimRow<J> {
    /// `stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk`.
    pub fn title(&self) -> String {
        format!("{}: {}", self.stage, self.terms)
    }

    /// The row without its figures.
    pub fn standing(&self) -> Standing<'_> {
        let verdict = match &self.state {
            ClaimState::Judged(judged) | ClaimState::Committed { judged, .. } => Some(judged.result().verdict),
            _ => None,
        };
        Standing {
            title: self.title(),
            fails: verdict == Some(Verdict::Fail),
            is_ambiguous: matches!(&self.state, ClaimState::Judged(_)) && verdict == Some(Verdict::Ambiguous),
            is_open: matches!(&self.state, ClaimState::Committed { .. }) && verdict == Some(Verdict::Ambiguous),
            is_negative: matches!(&self.state, ClaimState::Negative { .. }),
            refuted_by: match &self.state {
                ClaimState::UnexpectedPass { record, .. } => Some(record),
                _ => None,
            },
        }
    }
}

/// All that an overall verdict needs of a claim.
#[derive(Clone, Debug, PartialEq)]
pub struct Standing<'a> {
    /// The claim in words.
    pub title: String,
    /// It fails, and no committed record refutes it.
    pub fails: bool,
    /// This run does not decide it.
    pub is_ambiguous: bool,
    /// The committed record did not decide it, which is no fault of this run.
    pub is_open: bool,
    /// It fails, as a committed record says.
    pub is_negative: bool,
    /// The record that refutes it although it passes now.
    pub refuted_by: Option<&'a str>,
}

/// What is known of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ClaimState<J> {
    /// This run judged it.
    Judged(J),
    /// It fails, and a committed record says so, with evidence: not promoted, and not an error.
    Negative {
        /// The record.
        record: String,
        /// Why, in words.
        reason: String,
        /// What was measured.
        evidence: String,
    },
    /// It passes although a committed record refutes it: the record should go.
    UnexpectedPass {
        /// The record.
        record: String,
        /// This run's judgement.
        judged: J,
    },
    /// A committed record judged it, and the kernel is the same.
    Committed {
        /// The record.
        record: String,
        /// Its GPU.
        gpu: String,
        /// Its judgement.
        judged: J,
    },
    /// A committed record judged it on a kernel that has changed since, or on another GPU.
    Stale {
        /// The record.
        record: String,
        /// Its GPU.
        gpu: String,
        /// Its judgement.
        judged: J,
        /// What has changed.
        why: String,
    },
    /// Nobody judged it.
    NoData {
        /// Why.
        reason: String,
    },
}

/// Claims that failed in `record`, as a negative record would list them.
pub fn failed_claims(record: &Record) -> Vec<RefutedClaim> {
    fn failed<J: Judgement>(record: &Record) -> Vec<RefutedClaim> {
        J::judged(record).iter().filter(|judged| judged.result().verdict == Verdict::Fail).map(J::refuted).collect()
    }
    [failed::<ClaimResult>(record), failed::<PeerClaimResult>(record), failed::<EvidenceResult>(record)].concat()
}

/// A negative record that covers `claim`: the same gate, stage, family, terms and identity, and the same GPU where its
/// figures are of one. The newest decides. One that was written before terms were covers all of the family.
fn negative_for<'a>(
    claim: &RefutedClaim,
    gpu: Option<&Gpu>,
    committed: &'a [Committed],
) -> Option<(&'a str, &'a str, &'a RefutedClaim)> {
    committed.iter().rev().find_map(|(name, record)| {
        let negative = record.negative.as_ref()?;
        let same_gpu = gpu.is_none_or(|gpu| negative.gpu.as_deref() == gpu.name());
        let same = |other: &&RefutedClaim| {
            (other.gate, &other.stage, &other.family, &other.identity)
                == (claim.gate, &claim.stage, &claim.family, &claim.identity)
                && (other.what.is_empty() || other.what == claim.what)
        };
        let refuted = negative.claims.iter().filter(|_| same_gpu).find(same)?;
        Some((name.as_str(), negative.reason.as_str(), refuted))
    })
}

/// One row per claim of the ladder as built now.
pub fn rows<J: Judgement>(
    stages: &[StageBuild],
    subject: Option<(&str, &Record)>,
    is_run: bool,
    committed: &[Committed],
) -> Vec<ClaimRow<J>> {
    let run = subject.filter(|_| is_run).map(|(_, record)| record);
    let row = |stage: &StageBuild, terms: &J::Terms| ClaimRow {
        stage: stage.id.clone(),
        terms: terms.clone(),
        state: state(stage, terms, run, committed),
    };
    stages.iter().flat_map(|stage| J::claimed(stage).iter().map(move |terms| row(stage, terms))).collect()
}

fn state<J: Judgement>(
    stage: &StageBuild,
    terms: &J::Terms,
    run: Option<&Record>,
    committed: &[Committed],
) -> ClaimState<J> {
    let find = |record: &Record| J::judged(record).iter().rev().find(|judged| judged.is_of(&stage.id, terms)).cloned();
    let has_data = |judged: &J| judged.result().verdict != Verdict::NoData;
    let negative = |judged: &J, record: &Record| {
        let gpu = judged.is_of_a_gpu().then_some(&record.meta.machine.gpu);
        negative_for(&judged.refuted(), gpu, committed)
            .map(|(record, reason, refuted)| (record.to_string(), reason.to_string(), refuted.evidence.clone()))
    };
    let of_run = run.and_then(|run| Some((run, find(run)?)));
    if let Some((run, judged)) = of_run.clone().filter(|(_, judged)| has_data(judged)) {
        return match (negative(&judged, run), judged.result().verdict) {
            (Some((record, ..)), Verdict::Pass) => ClaimState::UnexpectedPass { record, judged },
            (Some((record, reason, _)), Verdict::Fail) => {
                ClaimState::Negative { record, reason, evidence: judged.result().reason.clone() }
            }
            _ => ClaimState::Judged(judged),
        };
    }
    let here = run.map(|run| &run.meta.machine.gpu);
    let mut stale = None;
    for (name, other) in committed.iter().rev() {
        let Some(judged) = find(other).filter(has_data) else { continue };
        let (record, gpu) = (name.clone(), other.meta.machine.gpu.name().unwrap_or("no GPU").to_string());
        let elsewhere = here.and_then(Gpu::name).filter(|name| judged.is_of_a_gpu() && *name != gpu);
        let why = match elsewhere {
            _ if judged.identity() != stage.identity => Some("the kernel has changed since".to_string()),
            Some(here) => Some(format!("measured on another GPU than this run's {here}")),
            None => None,
        };
        if let Some(why) = why {
            stale = stale.or(Some(ClaimState::Stale { record, gpu, judged, why }));
            continue;
        }
        return match negative(&judged, other) {
            Some((record, reason, evidence)) => ClaimState::Negative { record, reason, evidence },
            None => ClaimState::Committed { record, gpu, judged },
        };
    }
    let why_not = || match of_run {
        Some((_, judged)) => judged.result().reason.clone(),
        None => "not measured in this run, and no committed record has it".to_string(),
    };
    stale.unwrap_or_else(|| ClaimState::NoData { reason: why_not() })
}
