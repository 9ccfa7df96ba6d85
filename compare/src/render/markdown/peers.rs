//! The ladder beside its peers.

use super::cells::{escape, folded, microseconds, row, rule};
use crate::comparison::peers::{flops_per_second, over, right};
use crate::comparison::{Against, Report};
use common::gate;
use common::problem::{Dtype, Problem, claims_problem};
use common::record::{Ceilings, OurArm, PeerFigures, PeerOutcome, PeerProblem};
use common::verdict::Verdict;
use std::fmt::Write;

/// How it was measured, a row per problem, and every arm folded.
pub fn peers(report: &Report) -> String {
    let Some(against) = &report.peers else {
        return "NO DATA: not measured; `compare peers` completes a record on a GPU, with a Python that has PyTorch.\n"
            .to_string();
    };
    let peers = &against.peers;
    let mut out = String::new();
    let software: Vec<String> = peers.software.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let source =
        against.record.as_ref().map(|record| format!(" From the committed record {record}.")).unwrap_or_default();
    let _ = writeln!(out, "{}: {}.{source}\n", escape(&peers.gpu), escape(&software.join(", ")));
    for stale in &against.stale {
        let _ = writeln!(out, "- STALE: {}.", escape(stale));
    }
    match &peers.ceilings {
        Ceilings::Measured { matrix_flops, copy_bytes } => {
            let _ = writeln!(
                out,
                "- Reached in the same session: {} TFLOP/s by a product of f16 matrices (100 % below), {:.2} TB/s by a copy.",
                teraflops(*matrix_flops),
                copy_bytes / 1e12
            );
        }
        Ceilings::NoData { reason } => {
            let _ = writeln!(out, "- What the GPU reaches is NO DATA: {}.", escape(reason));
        }
    }
    let _ = writeln!(out, "{}", fast(against));
    out.push_str(&summary(against));
    let _ = write!(
        out,
        "\nRatios are peer / ours of medians with 95 % intervals; above 1, ours is faster. {}.\n\n{}",
        capitalised(&peers.method),
        folded("Every peer on every problem", &details(against))
    );
    out
}

/// How the last stage stands beside PyTorch on the problem of the claims, under each mask; nothing where nobody asked.
pub fn headline(report: &Report) -> Option<String> {
    let against = report.peers.as_ref().filter(|against| against.stale.is_empty())?;
    let claims = claims_problem(Dtype::F16);
    let asked = against.peers.problems.iter().filter(|p| (p.shape, p.dtype) == (claims.shape, claims.dtype));
    let line = |problem: &PeerProblem| {
        let ours = problem.ours.last().filter(|ours| !gate::any_failed(&ours.figures.after))?;
        let (peer, theirs) = fastest(problem, |peer| peer.starts_with("torch-"))?;
        Some(format!(
            "{} {}: {} ({} {} µs, {peer} {} µs)",
            problem.shape_name,
            problem.mask,
            ratio(problem, peer, ours),
            ours.variant,
            microseconds(ours.figures.device.p50),
            microseconds(theirs.device.p50)
        ))
    };
    let lines: Vec<String> = asked.filter_map(line).collect();
    let from = against.record.as_ref().map(|record| format!(", in the committed record {record}")).unwrap_or_default();
    (!lines.is_empty()).then(|| format!("Over the fastest of PyTorch, timed in turns{from}: {}.", lines.join("; ")))
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default()
}

fn teraflops(flops: f64) -> String {
    format!("{:.0}", flops / 1e12)
}

fn fast(against: &Against) -> String {
    let Some(fast) = &against.fast else { return String::new() };
    let shares: Vec<String> = fast
        .faster
        .iter()
        .map(|(p, count)| format!("fast_{p} {:.0} % ({count} of {})", 100.0 * *count as f64 / fast.of as f64, fast.of))
        .collect();
    format!(
        "- {} against torch-default, f16 problems on which it is right (green on all cases of the record, at least 5 inputs, \
         and on the timed buffers) and more than p times as fast: {}.\n",
        fast.stage,
        shares.join(", ")
    )
}

/// What is computed; records hold valid problems.
fn problem_of(problem: &PeerProblem) -> Option<Problem> {
    Problem::new(problem.shape, problem.dtype, problem.mask).ok()
}

/// TFLOP/s, and the share of the peak.
fn efficiency(against: &Against, problem: &PeerProblem, us: f64) -> [String; 2] {
    let Some(flops) = problem_of(problem).map(|problem| flops_per_second(&problem, us)) else {
        return ["–", "–"].map(String::from);
    };
    let share = against.matrix_peak.as_ref().map(|(peak, _)| format!("{:.1} %", 100.0 * flops / peak));
    [teraflops(flops), share.unwrap_or_else(|| "–".into())]
}

/// The right peer with the least device time, among those that `takes` accepts.
fn fastest(problem: &PeerProblem, takes: impl Fn(&str) -> bool) -> Option<(&str, &PeerFigures)> {
    let named = problem.peers.iter().filter(|arm| takes(&arm.peer));
    let timed = named.filter_map(|arm| Some((arm.peer.as_str(), right(problem, &arm.peer)?)));
    timed.min_by(|a, b| a.1.device.p50.total_cmp(&b.1.device.p50))
}

fn ratio(problem: &PeerProblem, peer: &str, ours: &OurArm) -> String {
    over(problem, peer, ours).map_or("–".to_string(), |ratio| {
        format!("{:.2}x [{:.3}, {:.3}]", ratio.value, ratio.interval.low, ratio.interval.high)
    })
}

fn summary(against: &Against) -> String {
    let head = [
        "shape",
        "dtype",
        "mask",
        "ours",
        "µs",
        "TFLOP/s",
        "of peak",
        "fastest of PyTorch",
        "µs",
        "ratio",
        "fastest of all",
        "µs",
        "ratio",
        "host µs, ours",
        "host µs, torch-default",
    ];
    let mut rows = vec![row(&head), rule(head.len())];
    for problem in &against.peers.problems {
        let Some(ours) = problem.ours.last() else { continue };
        let us = ours.figures.device.p50;
        let wrong = if gate::any_failed(&ours.figures.after) { " WRONG" } else { "" };
        let mut cells = vec![problem.shape_name.clone(), problem.dtype.to_string(), problem.mask.to_string()];
        cells.push(format!("{}/{}{wrong}", ours.stage, ours.variant));
        cells.push(if wrong.is_empty() { microseconds(us) } else { "–".into() });
        cells.extend(efficiency(against, problem, us));
        for takes in [|peer: &str| peer.starts_with("torch-"), |_: &str| true] {
            match fastest(problem, takes) {
                Some((peer, figures)) => {
                    cells.extend([peer.into(), microseconds(figures.device.p50), ratio(problem, peer, ours)]);
                }
                None => cells.extend(["NO DATA", "–", "–"].map(String::from)),
            }
        }
        cells.push(format!("{:.1}", ours.figures.host.p50));
        let host = right(problem, "torch-default").map(|figures| format!("{:.1}", figures.host.p50));
        cells.push(host.unwrap_or_else(|| "–".into()));
        rows.push(row(&cells.iter().map(String::as_str).collect::<Vec<_>>()));
    }
    rows.concat()
}

fn details(against: &Against) -> String {
    let head = [
        "shape",
        "dtype",
        "mask",
        "what",
        "device µs",
        "p90",
        "TFLOP/s",
        "of peak",
        "single µs",
        "host µs",
        "max error",
        "gates",
        "over ours",
    ];
    let mut rows = vec![row(&head), rule(head.len())];
    for problem in &against.peers.problems {
        let place = || vec![problem.shape_name.clone(), problem.dtype.to_string(), problem.mask.to_string()];
        let mut push = |cells: Vec<String>| {
            rows.push(row(&place().iter().chain(&cells).map(String::as_str).collect::<Vec<_>>()));
        };
        for arm in &problem.ours {
            let name = format!("{}/{}", arm.stage, arm.variant);
            push(figures(against, problem, name, &arm.figures, "–".into()));
        }
        for arm in &problem.peers {
            match (&arm.outcome, problem.ours.last()) {
                (PeerOutcome::Timed { figures: theirs, .. }, ours) => {
                    let ratio = ours.map_or("–".into(), |ours| ratio(problem, &arm.peer, ours));
                    push(figures(against, problem, arm.peer.clone(), theirs, ratio));
                }
                (PeerOutcome::NoData { reason }, _) => {
                    let mut cells = vec![arm.peer.clone()];
                    cells.extend(["NO DATA", "", "", "", "", "", "", ""].map(String::from));
                    cells.push(reason.clone());
                    push(cells);
                }
            }
        }
    }
    rows.concat()
}

/// The cells of one arm. A time whose output is wrong is not shown.
fn figures(
    against: &Against,
    problem: &PeerProblem,
    name: String,
    figures: &PeerFigures,
    ratio: String,
) -> Vec<String> {
    let failed: Vec<String> = figures
        .after
        .iter()
        .filter(|gate| gate.verdict == Verdict::Fail)
        .map(|gate| format!("FAIL {}: {}", gate.gate, gate.reason))
        .collect();
    let mut cells = vec![name];
    if failed.is_empty() {
        cells.extend([figures.device.p50, figures.device.p90].map(microseconds));
        cells.extend(efficiency(against, problem, figures.device.p50));
        cells.extend([figures.single.p50, figures.host.p50].map(|us| format!("{us:.1}")));
    } else {
        cells.extend(["–"; 6].map(String::from));
    }
    cells.push(format!("{:.1e}", figures.max_abs));
    cells.push(if failed.is_empty() { "PASS".into() } else { failed.join("; ") });
    cells.push(ratio);
    cells
}
