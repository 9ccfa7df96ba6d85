//! The ladder beside its peers: whose figures are shown, whether they still hold, and fast_p.

use super::{Committed, is_green, summary_of};
use common::gate;
use common::problem::{Dtype, Problem};
use common::record::{Ceilings, Gpu, OurArm, PeerFigures, PeerOutcome, PeerProblem, Peers, Record, StageBuild};
use common::timing::roofline;
use serde::Serialize;

/// The speed-ups of fast_p.
const P: [f64; 3] = [1.0, 1.5, 2.0];

/// The peer that fast_p is about: what a user gets who chooses nothing.
const DEFAULT: &str = "torch-default";

/// KernelBench runs a program on this many random inputs before it calls it correct.
const INPUTS: usize = 5;

/// The newest figures of peers.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Against {
    /// The committed record that they are from; `None` for this run's.
    pub record: Option<String>,
    /// What has changed since, stage by stage, or that it was another GPU.
    pub stale: Vec<String>,
    /// The figures.
    pub peers: Peers,
    /// What 100 % is, in FLOP/s, and who says so.
    pub matrix_peak: Option<(f64, String)>,
    /// fast_p of the last stage that was timed.
    pub fast: Option<FastP>,
}

/// The share of f16 problems on which a stage is right and more than p times as fast as PyTorch's default.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FastP {
    /// The stage.
    pub stage: String,
    /// Problems on which both were timed.
    pub of: usize,
    /// p, and how many problems.
    pub faster: Vec<(f64, usize)>,
}

/// Peers of the run, else of the newest committed record that has them.
pub fn against(
    stages: &[StageBuild],
    subject: Option<(&str, &Record)>,
    is_run: bool,
    committed: &[Committed],
) -> Option<Against> {
    let run = subject.filter(|_| is_run).map(|(_, record)| record);
    let of_run = run.and_then(|record| Some((None, record, record.peers.as_ref()?)));
    let newest =
        || committed.iter().rev().find_map(|(name, record)| Some((Some(name.clone()), record, record.peers.as_ref()?)));
    let (name, record, peers) = of_run.or_else(newest)?;
    let here = run.and_then(|record| record.meta.machine.gpu.name());
    Some(Against {
        record: name,
        stale: stale(stages, peers, here),
        peers: peers.clone(),
        matrix_peak: matrix_peak(Some(peers), &record.meta.machine.gpu),
        fast: fast_p(record, peers),
    })
}

fn stale(stages: &[StageBuild], peers: &Peers, here: Option<&str>) -> Vec<String> {
    let mut stale: Vec<String> = Vec::new();
    for arm in peers.problems.iter().flat_map(|problem| &problem.ours) {
        let is_current = stages.iter().any(|stage| (&stage.id, &stage.identity) == (&arm.stage, &arm.identity));
        let why = format!("{} has changed since", arm.stage);
        if !is_current && !stale.contains(&why) {
            stale.push(why);
        }
    }
    let elsewhere = here.filter(|here| *here != peers.gpu);
    stale.extend(elsewhere.map(|here| format!("measured on another GPU than this run's {here}")));
    stale
}

/// The f16 matrix peak that shares are of: as measured beside the peers, else as others measured it on such a GPU.
pub fn matrix_peak(peers: Option<&Peers>, gpu: &Gpu) -> Option<(f64, String)> {
    if let Some(Ceilings::Measured { matrix_flops, .. }) = peers.map(|peers| &peers.ceilings) {
        return Some((*matrix_flops, "PyTorch's product of f16 matrices of 8192 x 8192, in the same session".into()));
    }
    let reached = roofline::reached(gpu.name()?)?;
    Some((reached.f16_flops, format!("not measured in this record; {}", reached.source)))
}

/// FLOP/s of one launch.
pub fn flops_per_second(problem: &Problem, us: f64) -> f64 {
    problem.flops() as f64 / us * 1e6
}

/// The figures of a peer, where its output is right.
pub fn right<'a>(problem: &'a PeerProblem, peer: &str) -> Option<&'a PeerFigures> {
    let arm = problem.peers.iter().find(|arm| arm.peer == peer)?;
    let PeerOutcome::Timed { figures, .. } = &arm.outcome else { return None };
    (!gate::any_failed(&figures.after)).then_some(figures)
}

/// `peer / ours` of medians, with its interval, where both are right.
pub fn over<'a>(problem: &'a PeerProblem, peer: &str, ours: &OurArm) -> Option<&'a common::timing::stats::Ratio> {
    let arm = problem.peers.iter().find(|arm| arm.peer == peer)?;
    let PeerOutcome::Timed { over, .. } = &arm.outcome else { return None };
    let over = over.iter().find(|over| (&over.stage, &over.variant) == (&ours.stage, &ours.variant))?;
    Some(&over.ratios.p50)
}

fn fast_p(record: &Record, peers: &Peers) -> Option<FastP> {
    let stage = &peers.problems.iter().filter_map(|problem| problem.ours.last()).next()?.stage;
    let mut speedups = Vec::new();
    for problem in peers.problems.iter().filter(|problem| problem.dtype == Dtype::F16) {
        let Some(ours) = problem.ours.iter().find(|arm| arm.stage == *stage) else { continue };
        if right(problem, DEFAULT).is_none() {
            continue;
        }
        let summary = summary_of(record, &ours.stage, &ours.variant);
        let is_right = summary.is_some_and(|summary| is_green(summary) && summary.checked >= INPUTS);
        // Ours has no ratio where the timed buffers are wrong.
        speedups.push(over(problem, DEFAULT, ours).filter(|_| is_right).map_or(0.0, |ratio| ratio.value));
    }
    let faster = P.map(|p| (p, speedups.iter().filter(|&&speedup| speedup > p).count())).to_vec();
    (!speedups.is_empty()).then(|| FastP { stage: stage.clone(), of: speedups.len(), faster })
}
