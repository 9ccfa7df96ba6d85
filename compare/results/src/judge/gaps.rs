//! Gaps of a table or run that somebody could close, each with the command that measures it.

use super::View;
use super::claims::Claimed;
use super::list::{count, distinct, joined};
use super::missing::Missing;
use super::peers;
use crate::table::{Kind, ProblemPlace, Row};
use common::metric::{self, Metric};
use common::problem::Dtype;
use common::verdict::Verdict;

/// Returns what closes each gap: of a run, the command that shows what its machine lacks; of a
/// table, the commands that measure on its GPU what is stale, undecided or absent.
pub fn actions(view: &View<'_>, missing: &[Missing], claims: &[Claimed]) -> Vec<String> {
    if view.run.is_some() {
        return elsewhere(missing).into_iter().collect();
    }
    let gpu = view.gpu();
    let open: Vec<&Claimed> = claims
        .iter()
        .filter(|claimed| is_open(claimed, gpu))
        .collect();
    let (beside_peers, of_tiers): (Vec<_>, Vec<_>) = stale(view)
        .into_iter()
        .partition(|row| is_beside_peers(&row.kind));
    [
        stale_times(&of_tiers),
        stale_times_beside_peers(&beside_peers),
        undecided_pairs(&open),
        open_peers(&open),
        missed_peers(view),
        profiles(&open),
    ]
    .into_iter()
    .flatten()
    .collect()
}

fn elsewhere(missing: &[Missing]) -> Option<String> {
    let optional = missing.iter().filter(|thing| !thing.required);
    let things = optional.count();
    if things == 0 {
        return None;
    }
    let subject = count(things, "thing was", "things were");
    Some(format!(
        "{subject} not measured here: `compare show missing --run DIR` says what each takes."
    ))
}

fn stale_times(stale: &[&Row]) -> Option<String> {
    let command = command("compare --full", stages_and_problems(stale))?;
    let figures = count(stale.len(), "figure", "figures");
    Some(format!(
        "Measure the {figures} that are stale again: `{command}`, then `compare accept`."
    ))
}

/// Returns the command for times beside peers, which no tier takes.
fn stale_times_beside_peers(stale: &[&Row]) -> Option<String> {
    let command = peers_command("compare peers", stale)?;
    let figures = count(stale.len(), "figure", "figures");
    Some(format!(
        "Measure the {figures} beside peers that are stale again, after a run of their stages: \
         `{command}`, then `compare accept`."
    ))
}

fn undecided_pairs(open: &[&Claimed]) -> Option<String> {
    let undecided = open
        .iter()
        .filter(|claimed| claimed.verdict() == Some(Verdict::Ambiguous))
        .filter(|claimed| claimed.claim.relation.base().is_some());
    let command = command(
        "compare --full --iters 2000",
        undecided.map(|claimed| stage_and_problem(claimed)),
    )?;
    Some(format!(
        "Decide claims over other stages with more samples: `{command}`."
    ))
}

fn open_peers(open: &[&Claimed]) -> Option<String> {
    let over_peers = open
        .iter()
        .filter(|claimed| claimed.claim.is_of_speed())
        .filter(|claimed| claimed.claim.relation.base().is_none());
    let command = command(
        "compare peers --iters 100",
        over_peers.map(|claimed| stage_and_problem(claimed)),
    )?;
    Some(format!(
        "Decide claims over peers, after a run of their stages: `{command}`."
    ))
}

fn missed_peers(view: &View<'_>) -> Option<String> {
    let missed = peers::missed(view);
    let command = peers_command("compare peers --iters 100", &missed)?;
    let places = count(missed.len(), "problem", "problems");
    Some(format!(
        "Time our fastest variant beside peers on {places} where another was: `{command}`."
    ))
}

/// Returns the command that times these rows' stages beside peers on their problems. Where nothing
/// is claimed, peers are timed in f16 unless element types are asked for.
fn peers_command(program: &str, rows: &[&Row]) -> Option<String> {
    let mut line = command(program, stages_and_problems(rows))?;
    let mut dtypes = distinct(rows.iter().filter_map(|row| Some(row.problem()?.dtype)));
    if dtypes != [Dtype::F16] {
        dtypes.sort();
        line += &format!(" --dtypes {}", joined(dtypes, ","));
    }
    Some(line)
}

fn stages_and_problems<'a>(rows: &[&'a Row]) -> impl Iterator<Item = (&'a str, &'a ProblemPlace)> {
    rows.iter()
        .filter_map(|row| Some((row.subject.stage(), row.problem()?)))
}

fn stage_and_problem(claimed: &Claimed) -> (&str, &ProblemPlace) {
    (&claimed.stage, &claimed.claim.place)
}

fn profiles(open: &[&Claimed]) -> Option<String> {
    let mut profiled = Vec::new();
    for claimed in open {
        let is_by_ncu = claimed.claim.metric.source() == metric::Source::Profile;
        if is_by_ncu && !claimed.claim.is_of_speed() {
            let place = &claimed.claim.place;
            if let Some(base) = claimed.claim.relation.base() {
                profiled.push((base.stage, place));
            }
            profiled.push(stage_and_problem(claimed));
        }
    }
    let command = command("compare profile", profiled.into_iter())?;
    Some(format!(
        "Judge what only ncu measures, after a run on the GPU: `{command}`."
    ))
}

/// Returns whether a claim about this GPU neither holds nor is refuted.
fn is_open(claimed: &Claimed, gpu: Option<&str>) -> bool {
    let is_undecided = matches!(
        claimed.verdict(),
        Some(Verdict::Ambiguous | Verdict::NoData)
    );
    is_undecided && !claimed.is_stale && claimed.claim.is_about(gpu)
}

/// Returns the timed figures of kernels that have changed since: latencies, pairs, and times beside
/// peers.
pub fn stale<'a>(view: &'a View<'_>) -> Vec<&'a Row> {
    figures(view).filter(|row| view.is_stale(row)).collect()
}

/// Returns the timed figures of a table.
pub fn figures<'a>(view: &'a View<'_>) -> impl Iterator<Item = &'a Row> {
    view.table
        .rows()
        .filter(|row| row.has(Metric::P50) && is_time(&row.kind))
}

fn is_beside_peers(kind: &Kind) -> bool {
    matches!(kind, Kind::PeerTime(_) | Kind::PeerPair { .. })
}

/// Returns whether a row is the time of kernels on a problem that is measured again when they
/// change.
fn is_time(kind: &Kind) -> bool {
    match kind {
        Kind::Latency(_) | Kind::Pair { .. } | Kind::PeerTime(_) | Kind::PeerPair { .. } => true,
        Kind::Declared(_)
        | Kind::Compiled { .. }
        | Kind::Checked(_)
        | Kind::Case(..)
        | Kind::Counters(_)
        | Kind::RandomTime(_)
        | Kind::Regret
        | Kind::PeerSession
        | Kind::CandidateCase(_)
        | Kind::Profile(_)
        | Kind::Sanitized
        | Kind::Fault(_)
        | Kind::Site(_)
        | Kind::Timer(_)
        | Kind::Claim(_)
        | Kind::GivenOutput(_) => false,
    }
}

/// Returns the command that measures these stages on these problems; nothing where there is
/// nothing.
pub fn command<'a>(
    program: &str,
    measured: impl Iterator<Item = (&'a str, &'a ProblemPlace)>,
) -> Option<String> {
    let (mut numbers, mut problems) = (Vec::new(), Vec::new());
    for (stage, problem) in measured {
        numbers.push(number(stage));
        problems.push(problem);
    }
    if numbers.is_empty() {
        return None;
    }
    numbers.sort_by_key(|number| (number.len(), *number));
    problems.sort_by_key(|problem| (problem.size(), *problem));
    let shapes = distinct(problems.iter().map(|problem| &*problem.shape));
    let mut line = format!(
        "{program} --stages {} --shapes {}",
        joined(distinct(numbers), ","),
        joined(shapes, ",")
    );
    // A shape is planned with the masks that it usually has, unless masks are asked for.
    let mut timed = problems.iter().filter_map(|place| place.problem());
    if timed.any(|problem| !problem.has_usual_mask()) {
        let masks = distinct(problems.iter().map(|problem| problem.mask));
        line += &format!(" --masks {}", joined(masks, ","));
    }
    Some(line)
}

/// Returns `5` of `stage5-swizzle`, as `--stages` takes it.
pub fn number(stage: &str) -> &str {
    let (short, _) = stage.split_once('-').unwrap_or((stage, ""));
    match short.strip_prefix("stage") {
        Some(number) if number.parse::<u32>().is_ok() => number,
        _ => stage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::verdict::report;
    use crate::table::{Relation, Run};
    use crate::testing::{
        CPASYNC, PeerArm, SCALAR, US, WMMA, emulated, pair_with, table_of_sessions, timed,
    };
    use common::metric::Metric;
    use common::problem::{Mask, Problem, parse_shape};

    fn place(shape: &str, mask: Mask) -> ProblemPlace {
        let extents = parse_shape(shape).unwrap();
        ProblemPlace::of(&Problem::new(extents, Dtype::F16, mask).unwrap())
    }

    #[test]
    fn a_shape_under_its_usual_mask_is_asked_for_without_masks() {
        let verify = place("verify", Mask::Causal);
        assert_eq!(
            command("compare", [("stage12-decode", &verify)].into_iter()).unwrap(),
            "compare --stages 12 --shapes verify"
        );
    }

    #[test]
    fn a_mask_that_a_shape_usually_does_not_have_is_asked_for() {
        let verify = place("verify", Mask::Full);
        assert_eq!(
            command("compare", [("stage12-decode", &verify)].into_iter()).unwrap(),
            "compare --stages 12 --shapes verify --masks full"
        );
    }

    /// Returns what is to be done after one session.
    fn actions_after(sources: &Run, session: Run) -> String {
        let table = table_of_sessions(&[session]);
        let report = report(View::committed(&sources.session.stages, &table));
        joined(actions(&report.view, &report.missing, &report.claims), "\n")
    }

    #[test]
    fn a_whole_table_leaves_nothing_to_be_measured() {
        let session = timed(US).clean();
        assert_eq!(actions_after(&emulated(), session), "");
    }

    #[test]
    fn figures_of_a_stage_that_has_changed_are_measured_again() {
        let session = timed(US).clean();
        insta::assert_snapshot!(actions_after(&emulated().with_identity(1, "new"), session), @"
        Measure the 2 figures that are stale again: `compare --full --stages 1 --shapes mission`, then `compare accept`.
        ");
    }

    #[test]
    fn figures_beside_peers_are_measured_again_by_peers() {
        let session =
            timed(US)
                .clean()
                .peers("mission", 10.0, &[PeerArm::right("torch-default", 15.0)]);
        insta::assert_snapshot!(actions_after(&emulated().with_identity(1, "new"), session), @"
        Measure the 2 figures that are stale again: `compare --full --stages 1 --shapes mission`, then `compare accept`.
        Measure the 2 figures beside peers that are stale again, after a run of their stages: `compare peers --stages 1 --shapes mission`, then `compare accept`.
        ");
    }

    /// Without it they would stay: peers are timed in f16 where nothing is claimed.
    #[test]
    fn an_element_type_that_peers_are_not_timed_in_is_asked_for() {
        let place = ProblemPlace::new("mission", Dtype::E4m3, Mask::Full);
        let peers = [PeerArm::right("torch-default", 15.0)];
        let session = timed(US).clean().beside(CPASYNC, &place, 10.0, &peers);
        let actions = actions_after(&emulated().with_identity(1, "new"), session);
        assert!(
            actions.contains("`compare peers --stages 1 --shapes mission --dtypes e4m3`"),
            "{actions}"
        );
    }

    #[test]
    fn what_only_ncu_measures_is_profiled_on_the_claims_problem() {
        let claims_stalls = |run: Run| {
            run.with_bound(
                1,
                0,
                Metric::BarrierStallShare,
                Relation::AtMost { bound: 0.1 },
            )
        };
        let session = claims_stalls(timed(US).clean());
        insta::assert_snapshot!(actions_after(&claims_stalls(emulated()), session), @"
        Judge what only ncu measures, after a run on the GPU: `compare profile --stages 1 --shapes mission`.
        ");
    }

    #[test]
    fn a_claim_that_noise_hides_is_measured_again() {
        let session = timed(US)
            .clean()
            .with_figure(WMMA, pair_with(SCALAR), Metric::Noise, 0.5);
        insta::assert_snapshot!(actions_after(&emulated(), session), @"
        Decide claims over other stages with more samples: `compare --full --iters 2000 --stages 0 --shapes mission`.
        ");
    }

    #[test]
    fn a_table_with_peers_leaves_nothing_to_be_measured() {
        let session =
            timed(US)
                .clean()
                .peers("mission", 10.0, &[PeerArm::right("torch-default", 15.0)]);
        assert_eq!(actions_after(&emulated(), session), "");
    }
}
