//! Problems that are won or lost beside peers.

use super::*;
use common::timing::Change::{Ambiguous, Faster, Slower};

/// Returns a time as a page shows it, without its unit.
fn shown(row: &Row) -> String {
    let shown = Metric::P50.show(row.value(Metric::P50).unwrap());
    shown.trim_end_matches(" µs").to_string()
}

/// Returns a line for each problem of these sessions: ours, the fastest peer and the outcome.
fn outcomes(sessions: &[Run]) -> String {
    let (stages, table) = (ladder(), table_of_sessions(sessions));
    let view = View::committed(&stages, &table);
    let mut outcomes = Vec::new();
    for problem in problems(&view) {
        let rival = problem.fastest.unwrap();
        let outcome = outcome(rival.over.estimate(Metric::SpeedupP50));
        let (shape, ours) = (&problem.place.shape, problem.ours);
        let [us, theirs] = [ours, rival.time].map(shown);
        outcomes.push(format!(
            "{shape}: {} {us}, {} {theirs}, {outcome:?} in {}",
            ours.subject, rival.time.subject, ours.session
        ));
    }
    lines(outcomes)
}

fn torch_default(us: f64) -> PeerArm<'static> {
    PeerArm::right("torch-default", us)
}

/// Returns a session that timed a peer on two problems.
fn older() -> Run {
    timed(US)
        .peers("mission", 10.0, &[torch_default(30.0)])
        .peers("big", 10.0, &[torch_default(5.0)])
}

/// Returns a session that timed a faster peer on one of the two problems.
fn newer() -> Run {
    timed(US).peers("mission", 10.0, &[torch_default(20.0)])
}

#[test]
fn problems_come_by_size_with_the_fastest_peer_that_is_right() {
    let math = PeerArm::right("torch-math", 99.0);
    let run = timed(US)
        .peers("mission", 10.0, &[torch_default(25.0), math])
        .peers("long", 10.0, &[torch_default(16.0), math])
        .peers("wide", 10.0, &[torch_default(9.0), math])
        .peers("big", 10.0, &[PeerArm::wrong("torch-default", 50.0), math]);
    insta::assert_snapshot!(outcomes(&[run]), @"
    mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 25.02, Faster in 1
    wide: stage1-cpasync/cpasync-32x64 10.01, torch-default 9.009, Slower in 1
    long: stage1-cpasync/cpasync-32x64 10.01, torch-default 16.02, Faster in 1
    big: stage1-cpasync/cpasync-32x64 10.01, torch-math 99.10, Faster in 1
    ");
}

#[test]
fn a_problem_is_shown_as_the_newest_session_timed_it() {
    insta::assert_snapshot!(outcomes(&[older(), newer()]), @"
    mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 20.02, Faster in 2
    big: stage1-cpasync/cpasync-32x64 10.01, torch-default 5.005, Slower in 1
    ");
}

#[test]
fn a_problem_on_which_ours_was_wrong_is_not_shown() {
    let time_on_big = Kind::PeerTime(ProblemPlace::new("big", Dtype::F16, Mask::Full));
    let wrong = newer().peers("big", 10.0, &[torch_default(5.0)]).with_gate(
        CPASYNC,
        time_on_big,
        GateId::C2,
        Verdict::Fail,
    );
    insta::assert_snapshot!(outcomes(&[older(), wrong]), @"mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 20.02, Faster in 2");
}

#[test]
fn a_faster_variant_of_an_older_session_does_not_stand_for_ours() {
    let faster = older().beside(WMMA, &mission(), 2.0, &[torch_default(30.0)]);
    insta::assert_snapshot!(outcomes(&[faster, newer()]), @"
    mission: stage1-cpasync/cpasync-32x64 10.01, torch-default 20.02, Faster in 2
    big: stage1-cpasync/cpasync-32x64 10.01, torch-default 5.005, Slower in 1
    ");
}

#[test]
fn an_outcome_needs_the_whole_interval_on_one_side_of_1() {
    for (ratio, expected) in [
        ((1.2, 1.1, 1.3), Faster),
        ((1.002, 1.001, 1.003), Faster),
        ((1.2, 1.0, 1.3), Ambiguous),
        ((0.9, 0.8, 1.0), Ambiguous),
        ((0.9, 0.8, 0.99), Slower),
    ] {
        assert_eq!(outcome(Figure::from(ratio)), expected, "{ratio:?}");
    }
}

/// Returns a session in which the fastest of ours and of the peers in bursts were timed sustained
/// too. A slower one of ours and a slower peer, which were not, look faster than they.
fn partly_sustained() -> Run {
    let peers = [
        PeerArm::right("flash-attn-3", 12.0),
        PeerArm::right("torch-cudnn", 13.0),
    ];
    let ratio = Row::new(
        CPASYNC,
        Kind::PeerPair {
            problem: mission(),
            base: "flash-attn-3".into(),
        },
    )
    .conditions(SUSTAINED)
    .figure(Metric::P50, 15.0)
    .figure(Metric::SpeedupP50, (1.2, 1.19, 1.21));
    timed(US)
        .peers("mission", 10.0, &peers)
        .beside(WMMA, &mission(), 11.0, &peers)
        .with_conditions(CPASYNC, time_beside_peers(), SUSTAINED)
        .with_figure(CPASYNC, time_beside_peers(), Metric::P50, 15.0)
        .with_conditions("flash-attn-3", time_beside_peers(), SUSTAINED)
        .with_figure("flash-attn-3", time_beside_peers(), Metric::P50, 18.0)
        .with_row(ratio)
}

const SUSTAINED: &str = "warm L2, sustained";

#[test]
fn a_problem_at_the_power_limit_is_won_or_lost_in_the_sustained_regime() {
    let (stages, table) = (ladder(), table_of_sessions(&[partly_sustained()]));
    let view = View::committed(&stages, &table);
    let problems = problems(&view);
    let [problem] = &problems[..] else {
        panic!("one problem")
    };
    let rival = problem.fastest.unwrap();
    assert_eq!(problem.ours.subject.as_str(), CPASYNC);
    assert_eq!(rival.time.subject.as_str(), "flash-attn-3");
    assert_eq!(rival.over.value(Metric::SpeedupP50), Some(1.2));
}

#[test]
fn a_peer_in_bursts_stands_beside_no_sustained_time() {
    let (stages, table) = (ladder(), table_of_sessions(&[partly_sustained()]));
    let view = View::committed(&stages, &table);
    let ours = problems(&view)[0].ours;
    for (peer, is_beside) in [("flash-attn-3", true), ("torch-cudnn", false)] {
        let found = peers::beside(&view.table, ours, |row| row.subject.as_str() == peer);
        assert_eq!(found.is_some(), is_beside, "{peer}");
    }
}

#[test]
fn a_family_that_was_timed_in_bursts_alone_is_compared_with_the_bursts_of_all_peers() {
    let (stages, table) = (ladder(), table_of_sessions(&[partly_sustained()]));
    let view = View::committed(&stages, &table);
    let wmma = peers::ours(&view, &mission(), |row| row.subject.as_str() == WMMA).unwrap();
    let rival = peers::fastest(&view.table, wmma, |_| true).unwrap();
    assert_eq!(rival.time.subject.as_str(), "flash-attn-3");
    assert_eq!(rival.over.regime(), Regime::Burst);
}

/// The problems of a session in which [`WMMA`] was timed beside a peer.
#[derive(Debug, PartialEq)]
struct Timed {
    /// The number of problems that count.
    problems: usize,
    /// Our variants that are faster alone.
    missed: Vec<String>,
}

fn timed_beside_peer(alone: Run) -> Timed {
    let peer = [PeerArm::right("flash-attn-3", 12.0)];
    let run = alone.beside(WMMA, &mission(), 20.0, &peer);
    let (stages, table) = (ladder(), table_of_sessions(&[run]));
    let view = View::committed(&stages, &table);
    let missed = peers::missed(&view);
    Timed {
        problems: problems(&view).len(),
        missed: missed.iter().map(|row| row.subject.to_string()).collect(),
    }
}

#[test]
fn a_problem_on_which_another_variant_was_timed_beside_peers_is_neither_won_nor_lost() {
    let expected = Timed {
        problems: 0,
        missed: vec![CPASYNC.to_string()],
    };
    assert_eq!(timed_beside_peer(timed(US)), expected);
}

#[test]
fn a_variant_that_is_hardly_faster_alone_leaves_a_problem_as_it_was_timed() {
    let expected = Timed {
        problems: 1,
        missed: vec![],
    };
    assert_eq!(timed_beside_peer(timed([32.0, 20.0, 19.0])), expected);
}

#[test]
fn a_variant_that_is_faster_alone_and_not_green_counts_for_nothing() {
    let red = timed(US).with_gate(CPASYNC, ON_GPU, GateId::C3, Verdict::Fail);
    let expected = Timed {
        problems: 1,
        missed: vec![],
    };
    assert_eq!(timed_beside_peer(red), expected);
}
