//! From samples taken in turns to figures, ratios and verdicts. Pure.

use common::gate;
use common::problem::Dtype;
use common::record::{
    OurArm, Over, PeerArm, PeerClaimResult, PeerClaimTerms, PeerFigures, PeerOutcome, PeerProblem, StageBuild,
};
use common::timing::claim::NOISE_LIMIT;
use common::timing::stats::{Ratios, SampleError, Summary};
use common::timing::{Comparison, Floor, claim};

/// Samples of `arms` arms, at least `samples` of each, in rounds of `0 1 … n n … 1 0`: of any two arms each round has
/// two samples, mirrored around its middle, so that a drift within it cancels as in A B B A.
pub fn rounds<E>(
    arms: usize,
    samples: usize,
    mut sample: impl FnMut(usize) -> Result<f64, E>,
) -> Result<Vec<Vec<f64>>, E> {
    let mut taken = vec![Vec::new(); arms];
    for _ in 0..samples.div_ceil(2) {
        for arm in (0..arms).chain((0..arms).rev()) {
            taken[arm].push(sample(arm)?);
        }
    }
    Ok(taken)
}

/// Whether an arm is too noisy to decide a claim.
pub fn is_noisy(samples: &[Vec<f64>]) -> bool {
    // Written so that samples which cannot be summarised are noisy.
    !samples.iter().all(|arm| Summary::of(arm).is_ok_and(|summary| summary.noise() <= NOISE_LIMIT))
}

/// One arm's samples and what the gates say of its output.
pub struct Sampled {
    /// Device time, in rounds.
    pub device_us: Vec<f64>,
    /// Single calls between two events.
    pub single_us: Vec<f64>,
    /// Of the host.
    pub host_us: Vec<f64>,
    /// The gates.
    pub judged: crate::timed_problem::Judged,
}

impl Sampled {
    /// Summarises them.
    pub fn figures(&self) -> Result<PeerFigures, SampleError> {
        Ok(PeerFigures {
            device: Summary::of(&self.device_us)?,
            single: Summary::of(&self.single_us)?,
            host: Summary::of(&self.host_us)?,
            max_abs: self.judged.max_abs,
            after: self.judged.gates.clone(),
        })
    }

    fn is_right(&self) -> bool {
        !gate::any_failed(&self.judged.gates)
    }
}

/// A peer with its time over each of ours. A side whose output is wrong has no ratio.
pub fn peer_arm(peer: &str, theirs: &Sampled, ours: &[(OurArm, Sampled)]) -> Result<PeerArm, SampleError> {
    let right = ours.iter().filter(|(_, sampled)| sampled.is_right() && theirs.is_right());
    let over = right.map(|(arm, sampled)| {
        Ok(Over {
            stage: arm.stage.clone(),
            variant: arm.variant.clone(),
            ratios: Ratios::of(&theirs.device_us, &sampled.device_us)?,
        })
    });
    let over = over.collect::<Result<Vec<_>, SampleError>>()?;
    Ok(PeerArm { peer: peer.to_string(), outcome: PeerOutcome::Timed { figures: theirs.figures()?, over } })
}

/// A peer that was not timed.
pub fn absent(peer: &str, reason: impl Into<String>) -> PeerArm {
    PeerArm { peer: peer.to_string(), outcome: PeerOutcome::NoData { reason: reason.into() } }
}

/// The claims that `problem` decides. Where the rival or the family was not timed, or either is wrong, there is no result.
pub fn claims(stages: &[StageBuild], problem: &PeerProblem, floor: &Floor) -> Vec<PeerClaimResult> {
    let about = |terms: &&PeerClaimTerms| problem.is_of(&terms.shape, Dtype::F16, terms.mask);
    let of_stage = |stage: &StageBuild| -> Vec<PeerClaimResult> {
        stage.peer_claims.iter().filter(about).filter_map(|terms| judge(stage, terms, problem, floor)).collect()
    };
    stages.iter().flat_map(of_stage).collect()
}

fn judge(stage: &StageBuild, terms: &PeerClaimTerms, problem: &PeerProblem, floor: &Floor) -> Option<PeerClaimResult> {
    let ours = problem.ours.iter().find(|arm| {
        arm.stage == stage.id && stage.variant(&arm.variant).is_some_and(|variant| variant.family == terms.family)
    })?;
    let rivals = problem.peers.iter().filter(|arm| terms.rival.is(&arm.peer)).filter_map(|arm| {
        let PeerOutcome::Timed { figures, over } = &arm.outcome else { return None };
        let over = over.iter().find(|over| (&over.stage, &over.variant) == (&ours.stage, &ours.variant))?;
        Some((arm, figures, over))
    });
    let (peer, figures, over) = rivals.min_by(|a, b| a.1.device.p50.total_cmp(&b.1.device.p50))?;
    let comparison = Comparison { base: figures.device, new: ours.figures.device, ratios: over.ratios };
    Some(PeerClaimResult {
        stage: stage.id.clone(),
        terms: terms.clone(),
        variant: ours.variant.clone(),
        peer: peer.peer.clone(),
        identity: ours.identity.clone(),
        comparison,
        result: claim::judge(&comparison, terms.at_least, floor),
    })
}
