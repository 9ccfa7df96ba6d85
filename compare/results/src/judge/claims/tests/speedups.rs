//! Claims of speed over a family and over peers.

use super::*;
use common::claim::Rival;

/// The speedups of a pair.
#[derive(Clone, Copy)]
struct Speedups {
    p50: f64,
    p90: f64,
    mean: f64,
}

impl Speedups {
    const fn even(speedup: f64) -> Self {
        Self {
            p50: speedup,
            p90: speedup,
            mean: speedup,
        }
    }

    /// Returns the row of a pair whose speedups have intervals of 1 %.
    fn pair(self, subject: &str, base: &str) -> Row {
        let wide = |speedup: f64| (speedup, 0.995 * speedup, 1.005 * speedup);
        Row::new(subject, pair_with(base))
            .figure(Metric::Noise, 0.003)
            .figure(Metric::SpeedupP50, wide(self.p50))
            .figure(Metric::SpeedupP90, wide(self.p90))
            .figure(Metric::SpeedupMean, wide(self.mean))
    }
}

/// Returns a run in which [`WMMA`] is faster than [`SCALAR`]; it claims 1.5x.
fn with_speedups(p50: f64, p90: f64, mean: f64) -> Run {
    let speedups = Speedups { p50, p90, mean };
    timed(US).with_row(speedups.pair(WMMA, SCALAR))
}

/// Returns a run whose speedups are beyond the claim.
fn fast() -> Run {
    with_speedups(1.6, 1.6, 1.6)
}

#[test]
fn a_claim_that_every_interval_reaches_holds() {
    let run = fast();
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    PASS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x
    ");
}

#[test]
fn a_claim_that_the_low_end_of_every_interval_reaches_holds() {
    let run = with_speedups(1.508, 1.508, 1.508);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    PASS: p50 1.508x [1.500, 1.516], p90 1.508x [1.500, 1.516], mean 1.508x [1.500, 1.516], claim 1.50x
    ");
}

#[test]
fn a_median_whose_interval_crosses_the_claim_is_ambiguous() {
    let run = with_speedups(1.5, 1.6, 1.6);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    AMBIGUOUS: p50 1.500x [1.492, 1.508], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x
    ");
}

#[test]
fn a_mean_whose_interval_crosses_the_claim_is_ambiguous() {
    let run = with_speedups(1.6, 1.6, 1.501);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    AMBIGUOUS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.501x [1.493, 1.509], claim 1.50x
    ");
}

#[test]
fn a_90th_percentile_below_the_claim_fails_it() {
    let run = with_speedups(1.6, 1.4, 1.6);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    FAIL: p50 1.600x [1.592, 1.608], p90 1.400x [1.393, 1.407], mean 1.600x [1.592, 1.608], claim 1.50x
    ");
}

#[test]
fn a_figure_below_the_claim_fails_it_though_another_is_ambiguous() {
    let run = with_speedups(1.5, 1.4, 1.6);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    FAIL: p50 1.500x [1.492, 1.508], p90 1.400x [1.393, 1.407], mean 1.600x [1.592, 1.608], claim 1.50x
    ");
}

#[test]
fn a_median_that_is_no_number_is_ambiguous() {
    let run = with_speedups(f64::NAN, 1.6, 1.6);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    AMBIGUOUS: p50 NaNx [NaN, NaN], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x
    ");
}

#[test]
fn noise_below_the_margin_leaves_a_claim() {
    let run = fast().with_figure(WMMA, pair_with(SCALAR), Metric::Noise, 0.05);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    PASS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x ± noise of 5.0 %
    ");
}

#[test]
fn noise_beyond_the_margin_leaves_a_claim_ambiguous() {
    let run = fast().with_figure(WMMA, pair_with(SCALAR), Metric::Noise, 0.07);
    insta::assert_snapshot!(judged(&run, 0, 0), @"
    AMBIGUOUS: p50 1.600x [1.592, 1.608], p90 1.600x [1.592, 1.608], mean 1.600x [1.592, 1.608], claim 1.50x ± noise of 7.0 %
    ");
}

#[test]
fn noise_that_is_no_number_leaves_a_claim_ambiguous() {
    let run = fast().with_figure(WMMA, pair_with(SCALAR), Metric::Noise, f64::NAN);
    insta::assert_snapshot!(judged(&run, 0, 0), @"AMBIGUOUS: no figure for the noise");
}

#[test]
fn a_pair_without_its_noise_leaves_a_claim_ambiguous() {
    let run = fast().without_figure(WMMA, pair_with(SCALAR), Metric::Noise);
    insta::assert_snapshot!(judged(&run, 0, 0), @"AMBIGUOUS: no figure for the noise");
}

#[test]
fn a_time_that_cannot_be_fails_a_claim() {
    let run = fast().with_failure(
        WMMA,
        pair_with(SCALAR),
        GateId::L1,
        "impossible: below 3 us",
    );
    insta::assert_snapshot!(judged(&run, 0, 0), @"FAIL: impossible: below 3 us");
}

#[test]
fn a_claim_of_speed_is_not_judged_without_a_pair() {
    for run in [timed(US).without_pairs(), emulated()] {
        assert_eq!(finding(&run, 0, 0), None, "not side by side");
    }
}

/// A second variant of the claiming family.
const WMMA_K2: &str = "stage0-scalar/wmma-qk-32x64-k2";
/// A second variant of the base.
const FAST_SCALAR: &str = "stage0-scalar/scalar-16x64";

/// Returns a session of two variants of the claiming family, both over the base of one preset.
fn with_two_variants() -> Run {
    timed(US)
        .with_variant(WMMA, "wmma-qk-32x64-k2")
        .with_figure(WMMA_K2, latency(), Metric::P50, 18.0)
        .with_row(Speedups::even(1.6).pair(WMMA, SCALAR))
        .with_row(Speedups::even(1.8).pair(WMMA_K2, SCALAR))
}

/// Returns a session that timed one of the two variants.
fn without_second_variant() -> Run {
    timed(US)
        .with_variant(WMMA, "wmma-qk-32x64-k2")
        .without_subject(WMMA_K2)
        .with_row(Speedups::even(1.7).pair(WMMA, SCALAR))
}

/// The pair that decides a claim.
#[derive(Debug, PartialEq)]
struct Deciding {
    subject: String,
    base: String,
    speedup: f64,
    same_preset: Option<f64>,
}

/// Asserts which pair decides the first claim after these sessions.
#[track_caller]
fn assert_deciding(sources: &Run, sessions: &[Run], expected: &Deciding) {
    let table = table_of_sessions(sessions);
    let stages = &sources.session.stages;
    let view = View::committed(stages, &table);
    let Evidence { finding, row } = judge(&view, &stages[0], &stages[0].claims[0]).unwrap();
    let deciding = Deciding {
        subject: row.subject.to_string(),
        base: row.base().unwrap().to_string(),
        speedup: row.value(Metric::SpeedupP50).unwrap(),
        same_preset: finding.same_preset,
    };
    assert_eq!(deciding, *expected);
}

fn second_variant_decides() -> Deciding {
    Deciding {
        subject: WMMA_K2.into(),
        base: SCALAR.into(),
        speedup: 1.8,
        same_preset: None,
    }
}

/// Returns the pair of the variant that has the same preset as the base.
fn first_variant_decides() -> Deciding {
    Deciding {
        subject: WMMA.into(),
        base: SCALAR.into(),
        speedup: 1.6,
        same_preset: Some(1.6),
    }
}

#[test]
fn the_fastest_variant_of_a_family_decides() {
    let run = with_two_variants();
    assert_deciding(&run, std::slice::from_ref(&run), &second_variant_decides());
}

#[test]
fn a_variant_that_fails_a_gate_does_not_decide() {
    let red = with_two_variants().with_gate(WMMA_K2, ON_GPU, GateId::C2, Verdict::Fail);
    assert_deciding(&with_two_variants(), &[red], &first_variant_decides());
}

#[test]
fn a_variant_without_a_pair_does_not_decide() {
    let alone = with_two_variants().without_pair(WMMA_K2);
    assert_deciding(&with_two_variants(), &[alone], &first_variant_decides());
}

#[test]
fn a_newer_session_of_slower_variants_does_not_decide() {
    let sessions = [with_two_variants(), without_second_variant()];
    assert_deciding(&with_two_variants(), &sessions, &second_variant_decides());
}

#[test]
fn a_newer_session_of_other_kernels_does_not_decide() {
    let sessions = [with_two_variants(), without_second_variant().rebuilt()];
    assert_deciding(&with_two_variants(), &sessions, &second_variant_decides());
}

#[test]
fn the_fastest_variant_of_the_base_decides() {
    let run = with_two_variants()
        .with_variant(SCALAR, "scalar-16x64")
        .with_figure(FAST_SCALAR, latency(), Metric::P50, 28.0)
        .with_row(Speedups::even(1.55).pair(WMMA_K2, FAST_SCALAR));
    let sources = with_two_variants().with_variant(SCALAR, "scalar-16x64");
    let expected = Deciding {
        subject: WMMA_K2.into(),
        base: FAST_SCALAR.into(),
        speedup: 1.55,
        same_preset: None,
    };
    assert_deciding(&sources, &[run], &expected);
}

#[test]
fn the_arms_of_a_claim_are_the_fastest_of_both_families() {
    let run = with_two_variants();
    let view = View::alone(&run);
    let stage = &run.session.stages[0];
    let arms = arms(&view, stage, &stage.claims[0]).unwrap();
    let expected = speed::Arms {
        new: WMMA_K2.into(),
        base: SCALAR.into(),
        same_preset: None,
    };
    assert_eq!(arms, expected);
}

#[test]
fn a_claim_is_not_judged_by_times_of_another_element_type() {
    let mut run = with_two_variants();
    run.session.stages[0].claims[0].place = ProblemPlace::claims(Dtype::E4m3);
    assert_eq!(finding(&run, 0, 0), None);
}

/// What becomes of a claim of one variant.
#[derive(Debug, PartialEq)]
struct Outcome {
    verdict: Verdict,
    has_arms: bool,
    is_missed: bool,
}

/// Returns what becomes of the claim of one variant, on one GPU model or on all.
fn outcome_on(gpu: Option<&str>, timed: Run) -> Outcome {
    let run = timed.changed(|session| {
        let claim = &mut session.stages[0].claims[0];
        claim.family = "wmma-qk-32x64".into();
        claim.gpu = gpu.map(String::from);
    });
    let view = View::alone(&run);
    let stage = &run.session.stages[0];
    let has_arms = arms(&view, stage, &stage.claims[0]).is_some();
    let report = crate::judge::verdict::report(view);
    let title = report.claims[0].title();
    let mut missing = report.missing.iter();
    Outcome {
        verdict: report.claims[0].finding.verdict,
        has_arms,
        is_missed: missing.any(|lack| lack.required && lack.what == title),
    }
}

#[test]
fn a_claim_of_one_variant_is_judged_on_its_gpu() {
    for here in [None, Some(GPU)] {
        let expected = Outcome {
            verdict: Verdict::Pass,
            has_arms: true,
            is_missed: false,
        };
        assert_eq!(outcome_on(here, fast()), expected, "{here:?}");
    }
}

#[test]
fn a_claim_of_one_variant_is_missed_on_its_gpu() {
    for here in [None, Some(GPU)] {
        let expected = Outcome {
            verdict: Verdict::NoData,
            has_arms: true,
            is_missed: true,
        };
        let outcome = outcome_on(here, timed(US).without_pairs());
        assert_eq!(outcome, expected, "{here:?}");
    }
}

#[test]
fn a_claim_of_another_gpu_is_neither_timed_nor_missed() {
    for run in [fast(), timed(US).without_pairs()] {
        let expected = Outcome {
            verdict: Verdict::NoData,
            has_arms: false,
            is_missed: false,
        };
        assert_eq!(outcome_on(Some("NVIDIA L4"), run), expected);
    }
}

/// Returns the base and the verdict of the claims over peers: 1.5x over the fastest of PyTorch and
/// 1x over its flash.
fn claims_over_peers(run: &Run) -> [String; 2] {
    let (view, stage) = (View::alone(run), &run.session.stages[1]);
    [2, 3].map(|claim| match judge(&view, stage, &stage.claims[claim]) {
        Some(Evidence { finding, row }) => {
            format!("{} {}", row.base().unwrap(), finding.verdict)
        }
        None => "none".into(),
    })
}

/// A second variant of the family that claims to beat peers.
const WIDE: &str = "stage1-cpasync/cpasync-64x64";

/// Returns the run in which [`CPASYNC`] takes 10 µs on mission beside these peers.
fn beside(peers: &[PeerArm<'_>]) -> Run {
    timed(US).peers("mission", 10.0, peers)
}

#[test]
fn claims_over_peers_hold_over_the_fastest_and_over_flash() {
    let run = beside(&[
        PeerArm::right("torch-flash", 20.0),
        PeerArm::right("torch-cudnn", 16.0),
    ]);
    assert_eq!(
        claims_over_peers(&run),
        ["torch-cudnn PASS", "torch-flash PASS"]
    );
}

#[test]
fn a_claim_over_the_fastest_fails_where_another_than_flash_is_too_fast() {
    let run = beside(&[
        PeerArm::right("torch-flash", 20.0),
        PeerArm::right("torch-cudnn", 14.0),
    ]);
    assert_eq!(
        claims_over_peers(&run),
        ["torch-cudnn FAIL", "torch-flash PASS"]
    );
}

#[test]
fn a_peer_that_is_wrong_is_no_rival() {
    let run = beside(&[
        PeerArm::right("torch-flash", 20.0),
        PeerArm::wrong("torch-cudnn", 5.0),
    ]);
    assert_eq!(
        claims_over_peers(&run),
        ["torch-flash PASS", "torch-flash PASS"]
    );
}

#[test]
fn a_peer_that_is_not_of_pytorch_is_no_rival() {
    let run = beside(&[
        PeerArm::right("torch-flash", 20.0),
        PeerArm::right("flash-attn-4", 5.0),
    ]);
    assert_eq!(
        claims_over_peers(&run),
        ["torch-flash PASS", "torch-flash PASS"]
    );
}

#[test]
fn claims_over_peers_fail_where_flash_is_faster() {
    let run = beside(&[PeerArm::right("torch-flash", 9.0)]);
    assert_eq!(
        claims_over_peers(&run),
        ["torch-flash FAIL", "torch-flash FAIL"]
    );
}

#[test]
fn a_claim_over_flash_is_not_judged_without_it() {
    let run = beside(&[PeerArm::right("torch-cudnn", 16.0)]);
    assert_eq!(claims_over_peers(&run), ["torch-cudnn PASS", "none"]);
}

#[test]
fn claims_over_peers_are_not_judged_on_another_problem() {
    let run = timed(US).peers("long", 10.0, &[PeerArm::right("torch-flash", 20.0)]);
    assert_eq!(claims_over_peers(&run), ["none", "none"]);
}

#[test]
fn a_slower_variant_does_not_stand_for_the_family_beside_peers() {
    let run = beside(&[PeerArm::right("torch-flash", 20.0)])
        .with_variant(CPASYNC, "cpasync-64x64")
        .beside(
            WIDE,
            &mission(),
            30.0,
            &[PeerArm::right("torch-flash", 20.0)],
        );
    assert_eq!(
        claims_over_peers(&run),
        ["torch-flash PASS", "torch-flash PASS"]
    );
}

#[test]
fn a_claim_over_peers_of_one_variant_is_judged_by_it_alone() {
    let flash = [PeerArm::right("torch-flash", 25.0)];
    let mut run = timed(US)
        .peers("mission", 20.0, &flash)
        .with_variant(CPASYNC, "cpasync-64x64")
        .beside(WIDE, &mission(), 10.0, &flash);
    assert!(judged(&run, 1, 2).starts_with("PASS"));
    run.session.stages[1].claims[2].family = "cpasync-32x64".into();
    assert!(judged(&run, 1, 2).starts_with("FAIL"));
}

/// Returns the verdict of a claim of 1x over the fastest peer.
fn claim_over_the_fastest(run: &Run) -> Finding {
    let (view, stage) = (View::alone(run), &run.session.stages[1]);
    let mut claim = stage.claims[2].clone();
    claim.relation = Relation::FasterThanPeer {
        rival: Rival::FastestPeer,
        at_least: 1.0,
    };
    judge(&view, stage, &claim).unwrap().finding
}

#[test]
fn a_claim_over_the_fastest_peer_does_not_hold_where_a_required_one_was_not_there() {
    let run = beside(&[PeerArm::right("flash-attn-3", 12.0)]);
    let finding = claim_over_the_fastest(&run);
    assert_eq!(finding.verdict, Verdict::Ambiguous);
    assert_eq!(finding.absent, ["flash-attn-4"]);
    let reason = finding.reason;
    assert!(reason.ends_with(", without flash-attn-4"), "{reason}");
    assert_eq!(
        claim_over_the_fastest(&run.without_flash()).verdict,
        Verdict::Pass
    );
}

#[test]
fn flash_attention_is_not_required_where_the_cache_is_in_e4m3() {
    let mut run = timed(US).peers("fp8_cache", 10.0, &[PeerArm::right("flashinfer", 12.0)]);
    run.session.stages[1].claims[2].place.shape = "fp8_cache".into();
    assert_eq!(claim_over_the_fastest(&run).verdict, Verdict::Pass);
}

#[test]
fn a_claim_over_the_fastest_peer_that_fails_needs_no_other() {
    let run = beside(&[PeerArm::right("flash-attn-3", 9.0)]);
    assert_eq!(claim_over_the_fastest(&run).verdict, Verdict::Fail);
}
