//! Claims: what this run says of each, what a committed record said, and whether a negative record settles it.

use super::Committed;
use common::record::{ClaimResult, ClaimTerms, Gpu, Record, RefutedClaim, StageBuild};
use common::verdict::{GateId, Verdict};
use serde::Serialize;

/// One claim of a stage.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ClaimRow {
    /// The stage.
    pub stage: String,
    /// What it promises.
    pub terms: ClaimTerms,
    /// What is known.
    pub state: ClaimState,
}

impl ClaimRow {
    /// `stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk`.
    pub fn title(&self) -> String {
        let ClaimTerms { family, base_stage, base_family, at_least } = &self.terms;
        format!("{}: {family} >= {at_least:.2}x over {base_stage} {base_family}", self.stage)
    }
}

/// What is known of a claim.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "status", rename_all = "snake_case")]
pub enum ClaimState {
    /// This run judged it.
    Judged(ClaimResult),
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
        result: ClaimResult,
    },
    /// A committed record judged it, and the kernel is the same.
    Committed {
        /// The record.
        record: String,
        /// Its GPU.
        gpu: String,
        /// Its judgement.
        result: ClaimResult,
    },
    /// A committed record judged it on a kernel that has changed since, or on another GPU.
    Stale {
        /// The record.
        record: String,
        /// Its GPU.
        gpu: String,
        /// Its judgement.
        result: ClaimResult,
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
    let claims = record.performance.iter().flat_map(|performance| &performance.claims);
    let latency = claims.filter(|claim| claim.result.verdict == Verdict::Fail).map(|claim| RefutedClaim {
        gate: GateId::L1,
        stage: claim.stage.clone(),
        family: claim.terms.family.clone(),
        identity: claim.identity.clone(),
        evidence: format!("{} against {}: {}", claim.variant, claim.base_variant, claim.result.reason),
    });
    let identity = |id: &str| {
        let stage = record.meta.stages.iter().find(|stage| stage.id == id);
        stage.map(|stage| stage.identity.clone()).unwrap_or_default()
    };
    let rows = record.evidence.rows.iter();
    let refuted = rows.filter(|row| row.result.gate == GateId::E1 && row.result.verdict == Verdict::Fail);
    let evidence = refuted.map(|row| RefutedClaim {
        gate: GateId::E1,
        stage: row.stage.clone(),
        family: row.variant.clone(),
        identity: identity(&row.stage),
        evidence: format!("{} ({}): {}; {}", row.what, row.source, row.value, row.result.reason),
    });
    latency.chain(evidence).collect()
}

/// A negative record that covers `claim`: the same gate, stage, family, identity and GPU. The newest decides.
pub fn negative_for<'a>(
    claim: &RefutedClaim,
    gpu: &Gpu,
    committed: &'a [Committed],
) -> Option<(&'a str, &'a str, &'a RefutedClaim)> {
    committed.iter().rev().find_map(|(name, record)| {
        let negative = record.negative.as_ref()?;
        let same_gpu = claim.gate == GateId::E1 || negative.gpu.as_deref() == gpu.name();
        let same = |other: &&RefutedClaim| {
            (other.gate, &other.stage, &other.family, &other.identity)
                == (claim.gate, &claim.stage, &claim.family, &claim.identity)
        };
        let refuted = negative.claims.iter().filter(|_| same_gpu).find(same)?;
        Some((name.as_str(), negative.reason.as_str(), refuted))
    })
}

fn judged<'a>(record: &'a Record, stage: &str, terms: &ClaimTerms) -> Option<&'a ClaimResult> {
    let claims = record.performance.iter().flat_map(|performance| &performance.claims);
    claims.rev().find(|claim| claim.stage == stage && claim.terms == *terms)
}

/// One row per claim of the ladder as built now.
pub fn rows(
    stages: &[StageBuild],
    subject: Option<(&str, &Record)>,
    is_run: bool,
    committed: &[Committed],
) -> Vec<ClaimRow> {
    let row = |stage: &StageBuild, terms: &ClaimTerms| ClaimRow {
        stage: stage.id.clone(),
        terms: terms.clone(),
        state: state(stage, terms, subject.filter(|_| is_run).map(|(_, record)| record), committed),
    };
    stages.iter().flat_map(|stage| stage.claims.iter().map(move |terms| row(stage, terms))).collect()
}

fn state(stage: &StageBuild, terms: &ClaimTerms, run: Option<&Record>, committed: &[Committed]) -> ClaimState {
    let refuted = |identity: &str| RefutedClaim {
        gate: GateId::L1,
        stage: stage.id.clone(),
        family: terms.family.clone(),
        identity: identity.to_string(),
        evidence: String::new(),
    };
    if let Some((run, result)) = run.and_then(|run| judged(run, &stage.id, terms).map(|result| (run, result))) {
        let negative = negative_for(&refuted(&result.identity), &run.meta.machine.gpu, committed);
        return match (negative, result.result.verdict) {
            (Some((record, ..)), Verdict::Pass) => {
                ClaimState::UnexpectedPass { record: record.to_string(), result: result.clone() }
            }
            (Some((record, reason, _)), Verdict::Fail) => ClaimState::Negative {
                record: record.to_string(),
                reason: reason.to_string(),
                evidence: result.result.reason.clone(),
            },
            _ => ClaimState::Judged(result.clone()),
        };
    }
    let here = run.map(|run| &run.meta.machine.gpu);
    let mut stale = None;
    for (name, record) in committed.iter().rev() {
        let Some(result) = judged(record, &stage.id, terms) else { continue };
        let (record_name, gpu) = (name.clone(), record.meta.machine.gpu.name().unwrap_or("an unknown GPU").to_string());
        let why = if result.identity != stage.identity {
            Some("the kernel has changed since".to_string())
        } else {
            let other = here.and_then(Gpu::name).filter(|name| *name != gpu);
            other.map(|other| format!("measured on another GPU than this run's {other}"))
        };
        if let Some(why) = why {
            let result = result.clone();
            stale = stale.or(Some(ClaimState::Stale { record: record_name, gpu, result, why }));
            continue;
        }
        if let Some((record, reason, claim)) =
            negative_for(&refuted(&stage.identity), &record.meta.machine.gpu, committed)
        {
            return ClaimState::Negative {
                record: record.to_string(),
                reason: reason.to_string(),
                evidence: claim.evidence.clone(),
            };
        }
        return ClaimState::Committed { record: record_name, gpu, result: result.clone() };
    }
    stale.unwrap_or_else(|| ClaimState::NoData {
        reason: "not timed in this run, and no committed record has it".into(),
    })
}
