use super::*;
use crate::testing::request;
use common::faults::{Fault, model_lse, model_output};
use common::gate::{Evidence, c8, numeric_gates};
use common::inputs::Inputs;
use common::reference::{Probability, reference};
use common::verdict::GateResult;
use rayon::prelude::*;
use results::testing::{instances, ladder, of_e4m3_alone};

use BackendKind::{Cuda, Emulated};
use Dtype::{Bf16, E4m3, F16};

fn planned(request: Request, backend: BackendKind) -> Plan {
    plan(&ladder(), &request, backend).unwrap()
}

/// Returns the ladder, of which every variant takes every element type.
fn ladder_of_all_dtypes() -> Vec<StageMeta> {
    let mut stages = ladder();
    for variant in stages.iter_mut().flat_map(|stage| &mut stage.variants) {
        variant.kernels = instances(&variant.name, &Dtype::ALL);
    }
    stages
}

/// Returns a line for each case.
fn lines<'a>(cases: impl IntoIterator<Item = &'a PlannedCase>) -> String {
    let mut lines = Vec::new();
    for case in cases {
        let name = case.subject.name();
        lines.push(format!("{name} {} {:?}", case.place(), case.mode));
    }
    lines.join("\n")
}

/// Returns the cases of a variant.
fn cases_of<'a>(plan: &'a Plan, variant: &str) -> Vec<&'a PlannedCase> {
    let mut cases: Vec<&PlannedCase> = plan.cases.iter().collect();
    cases.retain(|case| case.subject.name() == variant);
    cases
}

/// Returns the cases of an element type.
fn cases_with(plan: &Plan, dtype: Dtype) -> Vec<&PlannedCase> {
    let mut cases: Vec<&PlannedCase> = plan.cases.iter().collect();
    cases.retain(|case| case.problem.dtype == dtype);
    cases
}

/// Counts the cases that run in this mode.
fn count(cases: &[&PlannedCase], mode: Mode) -> usize {
    cases.iter().filter(|case| case.mode == mode).count()
}

/// Returns the problems that are timed, each once.
fn timed_places(plan: &Plan) -> Vec<String> {
    let problems = plan.timings.iter().map(|(problem, _)| problem);
    distinct(problems.map(|problem| ProblemPlace::of(problem).to_string()))
}

#[test]
fn tier0_is_five_problems_extreme_logits_and_other_scales_on_the_default_variant() {
    let plan = planned(request().quick().stages(["stage0-scalar"]), Emulated);
    assert_eq!(plan.tier, Tier::T0);
    insta::assert_snapshot!(lines(&plan.cases), @r"
    wmma-qk-32x64 small f16 full normal:0 Traced
    wmma-qk-32x64 small e4m3 full normal:0 Traced
    wmma-qk-32x64 1x1x113:203x64 f16 causal normal:0 Traced
    wmma-qk-32x64 1x1x113:203x64 e4m3 causal normal:0 Traced
    wmma-qk-32x64 2x6:2x17x64 f16 full normal:0 TracedOnce
    wmma-qk-32x64 2x6:2x17x64 e4m3 full random-scales:0 TracedOnce
    wmma-qk-32x64 1x1x17x128 f16 causal normal:0 Traced
    wmma-qk-32x64 1x1x17x128 e4m3 causal normal:0 Traced
    wmma-qk-32x64 1x1x410:17x64 f16 causal normal:0 Traced
    wmma-qk-32x64 1x1x410:17x64 e4m3 causal normal:0 Traced
    wmma-qk-32x64 1x1x131:5x64 f16 full deep-negative:0 Plain
    wmma-qk-32x64 1x1x131:5x64 f16 full huge:0 Plain
    wmma-qk-32x64 1x1x131:5x64 f16 full mixed-scale:0 Plain
    wmma-qk-32x64 1x1x131:5x64 e4m3 full deep-negative:0 Plain
    wmma-qk-32x64 1x1x131:5x64 e4m3 full huge:0 Plain
    wmma-qk-32x64 1x1x131:5x64 e4m3 full mixed-scale:0 Plain
    wmma-qk-32x64 1x1x33:129x64@0.3 f16 full normal:0 Plain
    wmma-qk-32x64 1x1x33:129x128@0.3 f16 full normal:0 Plain
    wmma-qk-32x64 1x1x65:127x64 f16 full normal:0 Plain
    wmma-qk-32x64 1x1x65:127x64 f16 causal normal:0 Plain
    wmma-qk-32x64 1x1x64x64 f16 causal normal:0 Plain
    wmma-qk-32x64 1x1x33:129x64@0.3 e4m3 full normal:0 Plain
    wmma-qk-32x64 1x1x33:129x128@0.3 e4m3 full normal:0 Plain
    wmma-qk-32x64 1x1x65:127x64 e4m3 full normal:0 Plain
    wmma-qk-32x64 1x1x65:127x64 e4m3 causal normal:0 Plain
    wmma-qk-32x64 1x1x64x64 e4m3 causal normal:0 Plain
    wmma-qk-32x64 1x1x33:600x64 f16 causal colossal:0 Plain
    wmma-qk-32x64 1x1x33:600x64 e4m3 causal colossal:0 Plain
    wmma-qk-32x64 1x1x33:600x64 f16 causal subnormal:0 Plain
    ");
    assert!(plan.timings.is_empty());
}

#[test]
fn tier0_has_as_many_cases_of_a_variant_that_is_asked_for_by_name() {
    let by_default = planned(request().quick().stages(["stage0-scalar"]), Emulated);
    let by_name = planned(request().quick().variants(["scalar-32x64"]), Emulated);
    assert_eq!(by_name.cases.len(), by_default.cases.len());
}

#[test]
fn tier1_is_the_default_and_adds_rings_and_the_claims_problem() {
    let plan = planned(request().variants(["scalar-32x64"]), Emulated);
    assert_eq!(plan.tier, Tier::T1);
    // 10 + 6 + 13 of T0; a ring for each dtype, one with rising maxima, and a deep one; the claims'
    // problem, and for each dtype one like it.
    assert_eq!(plan.cases.len(), 10 + 6 + 13 + 4 + 1 + 2);
    assert!(plan.cases.iter().all(|case| !case.is_late));
}

#[test]
fn tier1_has_the_claims_problem_with_one_element_type_and_one_like_it_with_each() {
    let plan = planned(request().variants(["scalar-32x64"]), Emulated);
    let like_claims = plan
        .cases
        .iter()
        .filter(|case| ["mission", LIKE_CLAIMS].contains(&&*case.problem.shape.name()));
    insta::assert_snapshot!(lines(like_claims), @"
    scalar-32x64 1x2x256x64 f16 full normal:0 Plain
    scalar-32x64 mission f16 full normal:0 Plain
    scalar-32x64 1x2x256x64 e4m3 full normal:0 Plain
    ");
}

/// The tiles have 64 keys, of which a ring has seven and one more.
#[test]
fn tier1_has_a_ring_for_each_element_type_and_one_with_rising_maxima() {
    let plan = planned(request().variants(["scalar-32x64"]), Emulated);
    let rings = plan
        .cases
        .iter()
        .filter(|case| case.problem.shape.seq_kv == 449 && case.mode == Mode::TracedOnce);
    insta::assert_snapshot!(lines(rings), @"
    scalar-32x64 1x1x17:449x64 f16 full normal:0 TracedOnce
    scalar-32x64 1x1x17:449x64 e4m3 causal normal:0 TracedOnce
    scalar-32x64 1x1x17:449x64 f16 full large:0 TracedOnce
    ");
}

/// Only a default variant has a deep ring and the claims' problem.
#[test]
fn tier1_has_the_same_cases_of_every_variant_of_every_stage() {
    let plan = planned(request(), Emulated);
    let counts = ["scalar-32x64", "wmma-qk-32x64", "cpasync-32x64"]
        .map(|variant| cases_of(&plan, variant).len());
    assert_eq!(counts, [34, 36, 36]);
    assert_eq!(plan.cases.len(), 34 + 36 + 36);
    assert!(plan.scope.is_all());
}

#[test]
fn the_interpreter_runs_the_largest_small_case_of_each_element_type() {
    let plan = planned(request(), Emulated);
    insta::assert_snapshot!(lines(plan.cases.iter().filter(|case| case.runs_ptx)), @"
    scalar-32x64 1x1x113:203x64 f16 causal normal:0 TracedOnce
    scalar-32x64 1x1x113:203x64 e4m3 causal normal:0 Plain
    wmma-qk-32x64 1x1x113:203x64 e4m3 causal normal:0 TracedOnce
    wmma-qk-32x64 1x1x17:1089x64 f16 full normal:0 TracedOnce
    cpasync-32x64 1x1x113:203x64 e4m3 causal normal:0 TracedOnce
    cpasync-32x64 1x1x17:1089x64 f16 full normal:0 TracedOnce
    ");
}

#[test]
fn nothing_is_interpreted_on_a_gpu_or_of_a_candidate() {
    let plan = planned(request(), Cuda);
    assert!(plan.cases.iter().all(|case| !case.runs_ptx));
}

/// With f16 it is traced under every schedule, with E4M3 under one; its deeper ring under one.
#[test]
fn tier1_traces_a_default_variant_with_every_element_type() {
    let plan = planned(request(), Emulated);
    let cases = cases_of(&plan, "wmma-qk-32x64");
    assert_eq!(count(&cases, Mode::Traced), 4);
    assert_eq!(count(&cases, Mode::TracedOnce), 10);
}

#[test]
fn tier1_traces_another_variant_in_f16_and_on_one_ring() {
    let plan = planned(request(), Emulated);
    let cases = cases_of(&plan, "scalar-32x64");
    assert_eq!(count(&cases, Mode::Traced), 0);
    assert_eq!(count(&cases, Mode::TracedOnce), 6);
}

#[test]
fn tier1_traces_a_variant_that_is_asked_for_by_name_like_a_default_one() {
    let plan = planned(request().variants(["scalar-32x64"]), Emulated);
    assert_eq!(count(&cases_of(&plan, "scalar-32x64"), Mode::Traced), 4);
}

#[test]
fn tier2_traces_all_element_types_alike() {
    let plan = planned(request().full(), Emulated);
    let scalar = cases_of(&plan, "scalar-32x64");
    assert_eq!(count(&scalar, Mode::Traced), 0);
    assert_eq!(count(&scalar, Mode::TracedOnce), 13);
    let wmma = cases_of(&plan, "wmma-qk-32x64");
    assert_eq!(count(&wmma, Mode::Traced), 8);
    assert_eq!(count(&wmma, Mode::TracedOnce), 6);
}

/// What `--full` adds kills none of the planted faults alone, with any element type.
#[test]
fn the_cases_of_a_variant_that_is_no_default_kill_every_planted_fault() {
    let whole = planned(request(), Emulated);
    let bf16_request = request().stages(["stage0-scalar"]).dtypes([Bf16]);
    let bf16 = plan(&ladder_of_all_dtypes(), &bf16_request, Emulated).unwrap();
    let mut cases = cases_of(&whole, "scalar-32x64");
    cases.extend(&bf16.cases);
    // The claims' problem would take the model long.
    cases.retain(|case| !case.problem.has_claims());
    let trials: Vec<FaultTrial> = cases
        .par_iter()
        .flat_map(|case| fault_trials(case))
        .collect();
    for trial in &trials {
        let is_killed = trials
            .iter()
            .filter(|other| (other.fault, other.dtype) == (trial.fault, trial.dtype))
            .any(|other| other.is_killed);
        assert!(is_killed, "{:?} of {} survives", trial.fault, trial.dtype);
    }
    let faults = distinct(trials.iter().map(|trial| trial.fault));
    assert_eq!(faults.len(), Fault::ALL.len());
}

/// A fault that was tried on a case.
struct FaultTrial {
    fault: Fault,
    /// The element type of the case.
    dtype: Dtype,
    /// Whether it failed a gate.
    is_killed: bool,
}

fn fault_trials(case: &PlannedCase) -> Vec<FaultTrial> {
    let Source::Seeded { family, seed } = case.source else {
        panic!("no file is given")
    };
    let problem = &case.problem;
    let inputs = Inputs::generate(problem, family, seed);
    let reference = reference(&inputs, Probability::half(problem.dtype)).unwrap();
    let mut trials = Vec::new();
    for fault in Fault::ALL {
        if !fault.applies_to(problem) {
            continue;
        }
        let evidence = Evidence {
            problem,
            family: Some(family),
            reference: &reference,
            output: &model_output(&inputs, Some(fault)),
        };
        let (_, gates) = numeric_gates(&evidence);
        let mut is_killed = gates.iter().any(GateResult::is_fail);
        if !is_killed && fault.is_of_lse() {
            is_killed = c8(problem, &reference, &model_lse(&inputs, Some(fault))).is_fail();
        }
        trials.push(FaultTrial {
            fault,
            dtype: problem.dtype,
            is_killed,
        });
    }
    trials
}

/// Gate C4 judges E4M3 on the claims' problem alone.
#[test]
fn every_variant_has_a_case_for_every_gate_that_can_judge_it() {
    let mut stages = ladder();
    stages.push(StageMeta {
        id: "stage2-e4m3".into(),
        ..of_e4m3_alone(1).remove(1)
    });
    let plan = plan(&stages, &Request::default(), Emulated).unwrap();
    for (stage, variant) in Chosen::default().pick(&stages).unwrap() {
        let subject = stage.subject(&variant.name);
        let mut cases: Vec<&PlannedCase> = plan.cases.iter().collect();
        cases.retain(|case| case.subject == subject);
        let is_traced = cases
            .iter()
            .any(|case| matches!(case.mode, Mode::Traced | Mode::TracedOnce));
        assert!(is_traced, "H1: {subject}");
        let has_c4 = cases
            .iter()
            .filter(|case| variant.takes(case.problem.dtype))
            .any(|case| case.problem.dtype != E4m3 || case.problem == claims_problem(E4m3));
        assert!(has_c4, "C4: {subject}");
        let is_counted = plan.counted.iter().any(|(counted, _)| *counted == subject);
        assert!(is_counted, "E1: {subject}");
    }
}

#[test]
fn the_default_on_a_gpu_has_the_same_cases_and_times_the_problems_of_claims() {
    let plan = planned(request(), Cuda);
    assert_eq!(plan.tier, Tier::T1);
    let in_emulator = planned(request(), Emulated);
    // And the claims' problem with E4M3, and with f16 on the one that is no default.
    assert_eq!(plan.cases.len(), in_emulator.cases.len() + 3 + 1);
    assert_eq!(
        timed_places(&plan),
        ["mission f16 full", "mission e4m3 full"]
    );
    assert_eq!(plan.timings.len(), 3 * 2);
    assert_eq!(plan.counted, in_emulator.counted);
}

#[test]
fn full_adds_all_families_and_seeds() {
    let plan = planned(request().full().variants(["scalar-32x64"]), Emulated);
    assert_eq!(plan.tier, Tier::T2);
    // T1's; small: 3 seeds x (9 + 11 families) less the two that T0 has; 3 extreme families x 2
    // dtypes on small and on 7 keys; two more seeds of mission, and one of E4M3.
    let by_default = planned(request().variants(["scalar-32x64"]), Emulated).cases;
    assert_eq!(plan.cases.len(), by_default.len() + 3 * 20 - 2 + 2 * 6 + 3);
    for (full, default) in plan.cases.iter().zip(&by_default) {
        assert_eq!(full.place(), default.place());
    }
    let all = lines(&plan.cases);
    for line in [
        "scalar-32x64 mission f16 full normal:2 Plain",
        "scalar-32x64 small e4m3 full zero-head:1 Plain",
        "scalar-32x64 1x1x7x64 e4m3 causal huge:0 Plain",
    ] {
        assert!(all.contains(line), "{line}");
    }
}

/// What a round consists of.
#[derive(Debug, PartialEq)]
struct RoundOutline<'a> {
    /// The stages of its cases.
    checked: Vec<&'a str>,
    /// Whether all of its cases are late.
    is_late: bool,
    /// The stages that are timed.
    timed: Vec<&'a str>,
}

#[test]
fn what_full_adds_on_a_gpu_comes_after_all_times() {
    let plan = planned(request().full().stages(["0", "1"]), Cuda);
    let rounds = plan.rounds();
    let mut outlines = Vec::new();
    for round in &rounds {
        outlines.push(RoundOutline {
            checked: distinct(round.cases.iter().map(|case| case.subject.stage())),
            is_late: round.cases.iter().all(|case| case.is_late),
            timed: distinct(round.timings.iter().map(|(_, subject)| subject.stage())),
        });
    }
    let expected = [
        RoundOutline {
            checked: vec!["stage0-scalar"],
            is_late: false,
            timed: vec!["stage0-scalar"],
        },
        RoundOutline {
            checked: vec!["stage1-cpasync"],
            is_late: false,
            timed: vec!["stage1-cpasync"],
        },
        RoundOutline {
            checked: vec!["stage0-scalar", "stage1-cpasync"],
            is_late: true,
            timed: vec![],
        },
    ];
    assert_eq!(outlines, expected);
    let timed: usize = rounds.iter().map(|round| round.timings.len()).sum();
    assert_eq!(timed, plan.timings.len());
    let cases: usize = rounds.iter().map(|round| round.cases.len()).sum();
    assert_eq!(cases, plan.cases.len());
    // Before any time a variant has the default's cases.
    let by_default = planned(request().stages(["0", "1"]), Cuda);
    let early: usize = rounds[..2].iter().map(|round| round.cases.len()).sum();
    assert_eq!(early, by_default.cases.len());
}

#[test]
fn given_problems_come_one_after_the_other() {
    let two_problems = request()
        .shapes(["1x1x17x64", "1x1x9x64"])
        .dtypes([F16])
        .masks([Mask::Full]);
    let plan = planned(two_problems, Cuda);
    let mut checked = Vec::new();
    for round in plan.rounds() {
        let cases = round.cases.iter();
        let subjects = distinct(cases.map(|case| (case.problem.shape.seq_q, case.subject.stage())));
        let timings = round.timings.iter();
        let timed = timings.map(|(problem, subject)| (problem.shape.seq_q, subject.stage()));
        assert_eq!(distinct(timed), subjects);
        checked.push(subjects);
    }
    let expected = [
        vec![(17, "stage0-scalar")],
        vec![(17, "stage1-cpasync")],
        vec![(9, "stage0-scalar")],
        vec![(9, "stage1-cpasync")],
        vec![],
    ];
    assert_eq!(checked, expected);
}

#[test]
fn given_problems_are_one_round_in_the_emulator() {
    let plan = planned(request().shapes(["1x1x17x64", "1x1x9x64"]), Emulated);
    assert_eq!(plan.rounds().len(), 1);
}

/// Returns the lines of the cases with BF16 of stage 0 in the emulator.
fn bf16_lines(request: Request) -> String {
    let stage0 = request.stages(["stage0-scalar"]);
    let plan = plan(&ladder_of_all_dtypes(), &stage0, Emulated).unwrap();
    lines(cases_with(&plan, Bf16))
}

#[test]
fn tier0_checks_bf16_on_default_variants() {
    insta::assert_snapshot!(bf16_lines(request().quick()), @r"
    wmma-qk-32x64 2x6:2x17x64 bf16 full normal:0 TracedOnce
    wmma-qk-32x64 1x1x410:17x64 bf16 causal normal:0 Traced
    wmma-qk-32x64 1x1x131:5x64 bf16 full deep-negative:0 Plain
    wmma-qk-32x64 1x1x131:5x64 bf16 full huge:0 Plain
    wmma-qk-32x64 1x1x131:5x64 bf16 full mixed-scale:0 Plain
    wmma-qk-32x64 1x1x131:5x64 bf16 full wide-range:0 Plain
    wmma-qk-32x64 1x1x33:129x64@0.3 bf16 full normal:0 Plain
    wmma-qk-32x64 1x1x33:129x128@0.3 bf16 full normal:0 Plain
    wmma-qk-32x64 1x1x65:127x64 bf16 full normal:0 Plain
    wmma-qk-32x64 1x1x65:127x64 bf16 causal normal:0 Plain
    wmma-qk-32x64 1x1x64x64 bf16 causal normal:0 Plain
    wmma-qk-32x64 1x1x33:600x64 bf16 causal colossal:0 Plain
    ");
}

#[test]
fn tier1_checks_bf16_on_default_variants_under_one_schedule() {
    let tier0 = bf16_lines(request().quick());
    let tier1 = bf16_lines(request());
    let under_one_schedule = tier0.replace(" Traced\n", " TracedOnce\n");
    assert!(tier1.starts_with(&under_one_schedule), "{tier1}");
    // A ring, and what is like mission.
    assert_eq!(tier1.lines().count(), tier0.lines().count() + 2, "{tier1}");
}

#[test]
fn tier2_adds_all_families_of_bf16_and_mission() {
    let tier1 = bf16_lines(request());
    let tier2 = bf16_lines(request().full());
    let families = Family::for_dtype(Bf16).len();
    let extreme = Family::EXTREME.len();
    // On small and on 7 keys, and mission.
    let more = 3 * (families - extreme) + 2 * extreme + 1;
    assert_eq!(
        tier2.lines().count(),
        tier1.lines().count() + more,
        "{tier2}"
    );
    for line in [
        "wmma-qk-32x64 mission bf16 full normal:0 Plain",
        "wmma-qk-32x64 1x1x17:449x64 bf16 causal normal:0 TracedOnce",
    ] {
        assert!(tier2.contains(line), "{line}");
    }
}

/// Returns the plan of all that `--full` has of BF16 of stage 0 on a GPU.
fn full_plan_of_bf16() -> Plan {
    let full = request().full().stages(["stage0-scalar"]).dtypes([Bf16]);
    plan(&ladder_of_all_dtypes(), &full, Cuda).unwrap()
}

#[test]
fn full_times_bf16_on_the_shapes_with_both_masks() {
    let expected = [
        "mission bf16 full",
        "long bf16 full",
        "mission bf16 causal",
        "long bf16 causal",
    ];
    assert_eq!(timed_places(&full_plan_of_bf16()), expected);
}

#[test]
fn masks_of_bf16_alternate_between_edge_shapes_and_begin_with_full() {
    let plan = full_plan_of_bf16();
    let masks = |shape: Shape| {
        let problems = plan.cases.iter().map(|case| case.problem);
        let with_shape = problems.filter(|problem| problem.shape == shape);
        distinct(with_shape.map(|problem| problem.mask))
    };
    let [first, second, third, ..] = edge_shapes()[..] else {
        panic!("there are edge shapes");
    };
    assert_eq!(masks(first), [Mask::Full]);
    assert_eq!(masks(second), [Mask::Causal]);
    assert_eq!(masks(third), [Mask::Full]);
}

#[test]
fn a_variant_without_bf16_is_given_none_though_its_stage_takes_it() {
    let mut stages = ladder();
    let [scalar, wmma] = &mut stages[0].variants[..] else {
        panic!("stage 0 has two variants")
    };
    scalar.kernels = instances(&scalar.name, &[F16]);
    wmma.kernels = instances(&wmma.name, &Dtype::ALL);
    let is_given_bf16 = |variant: &str| {
        let named = request().variants([variant]).shapes(["1x1x17x64"]);
        let plan = plan(&stages, &named, Emulated).unwrap();
        !cases_with(&plan, Bf16).is_empty()
    };
    assert!(is_given_bf16("wmma-qk-32x64"));
    assert!(!is_given_bf16("scalar-32x64"));
}

#[test]
fn random_problems_follow_few_cases_and_are_all_that_is_timed() {
    let plan = planned(request().random_problems(2), Cuda);
    assert_eq!(plan.tier, Tier::T0);
    assert_eq!(plan.draws.len(), 2);
    assert_eq!(plan.timings, []);
}

/// Returns the mode of the cases of one shape in the emulator.
fn mode_in_emulator(shape: &str) -> Mode {
    let selection = request()
        .shapes([shape])
        .masks([Mask::Causal])
        .dtypes([F16]);
    planned(selection, Emulated).cases[0].mode
}

#[test]
fn a_small_selected_problem_is_traced() {
    assert_eq!(mode_in_emulator("1x1x64:1x64"), Mode::TracedOnce);
}

/// It has one score, in tensors of gigabytes.
#[test]
fn a_problem_that_the_traced_build_cannot_watch_is_run_plain() {
    assert_eq!(mode_in_emulator("1x1x16777216:1x64"), Mode::Plain);
}

/// Returns the number of families of f16 and of E4M3.
fn families() -> usize {
    Family::for_dtype(F16).len() + Family::for_dtype(E4m3).len()
}

#[test]
fn full_compares_both_backends_on_a_gpu() {
    let plan = planned(request().full().variants(["scalar-32x64"]), Cuda);
    assert_eq!(plan.tier, Tier::T2);
    // T0's five shapes and three of short rows are computed on both backends, under every family of
    // each dtype, and the extreme families on 131:5 keys; T0's thirteen others; and the rings.
    let cases = cases_of(&plan, "scalar-32x64");
    let both = count(&cases, Mode::Both);
    assert_eq!(both, 8 * families() + 6 + 13 + 4);
    assert_eq!(both + count(&cases, Mode::Device), plan.cases.len());
}

#[test]
fn quick_compares_both_backends_on_ten_problems() {
    let plan = planned(request().quick().variants(["scalar-32x64"]), Cuda);
    assert_eq!(count(&cases_of(&plan, "scalar-32x64"), Mode::Both), 10);
}

#[test]
fn full_has_every_small_shape_on_a_gpu() {
    let plan = planned(request().full().variants(["scalar-32x64"]), Cuda);
    let shapes: Vec<String> = plan
        .cases
        .iter()
        .map(|case| ProblemPlace::of(&case.problem).shape)
        .collect();
    // Named: 2 masks x (12 + 14 families) x (2 shapes x 5 seeds + 4 shapes x 1 seed).
    let small = shapes
        .iter()
        .filter(|shape| of_kind(Kind::Small).any(|named| named.name == **shape));
    assert_eq!(small.count(), 2 * 26 * 14);
    // Many keys, and what is like mission, in both dtypes; edge shapes: both dtypes and masks;
    // under every family T0's four that have no name, and short rows; the extreme families on 131:5
    // and 7 keys; what T0 has of other scales and whole tiles; the rings.
    let unnamed = shapes
        .iter()
        .filter(|shape| !shape.starts_with(char::is_alphabetic));
    assert_eq!(
        unnamed.count(),
        2 + 2 + edge_shapes().len() * 4 + 7 * families() + 12 + 13 + 4
    );
}

#[test]
fn full_times_small_shapes_with_both_element_types_and_masks() {
    let plan = planned(request().full().variants(["scalar-32x64"]), Cuda);
    // mission, mission_b2, stretch, long and wide, and big, where the table shows it.
    assert_eq!(plan.timings.len(), 5 * 4 + 1);
}

#[test]
fn nothing_is_timed_with_no_samples() {
    assert_eq!(planned(request().full().iters(0), Cuda).timings, []);
}

/// Rows that see no key, and heads of which one has zeros, depend on the mask.
#[test]
fn full_has_short_rows_with_the_mask_that_they_need() {
    let plan = planned(request().full().variants(["scalar-32x64"]), Cuda);
    for short in ["1x2:1x65:7x64 f16 causal", "1x4x65:5x64 f16 full"] {
        let line = format!("scalar-32x64 {short} normal:0 Both");
        assert!(lines(&plan.cases).contains(&line), "{line}");
    }
}

/// Returns a selection of one shape, by a seed and families of its own.
fn seeded_selection() -> Request {
    request()
        .variants(["scalar-32x64"])
        .shapes(["1x8:2x65x64"])
        .families([Family::Large, Family::ZeroHead])
        .seeds([7])
        .masks([Mask::Causal])
}

#[test]
fn shapes_seeds_and_families_replace_the_tier() {
    let plan = planned(seeded_selection(), Emulated);
    insta::assert_snapshot!(lines(&plan.cases), @r"
    scalar-32x64 1x8:2x65x64 f16 causal large:7 Traced
    scalar-32x64 1x8:2x65x64 e4m3 causal large:7 Traced
    scalar-32x64 1x8:2x65x64 e4m3 causal zero-head:7 Traced
    ");
}

#[test]
fn the_scope_of_a_plan_is_shown_as_its_flags_and_read_as_it_was_written() {
    let selection = planned(seeded_selection(), Emulated).scope;
    let written = serde_json::to_value(&selection).unwrap();
    let read: Selection = serde_json::from_value(written).unwrap();
    assert_eq!(read, selection);
    assert_eq!(
        selection.to_string(),
        "--variants scalar-32x64 --shapes 1x8:2x65x64 --masks causal --seeds 7 \
         --families large,zero-head"
    );
}

#[test]
fn a_large_selected_problem_is_run_plain() {
    let plan = planned(request().shapes(["mission"]).dtypes([F16]), Emulated);
    assert!(plan.cases.iter().all(|case| case.mode == Mode::Plain));
}

/// Returns the problems that a GPU times of one variant for these shapes.
fn timed_selection<const N: usize>(shapes: [&str; N], masks: &[Mask]) -> Vec<String> {
    let mut selection = request()
        .variants(["scalar-32x64"])
        .dtypes([F16])
        .shapes(shapes);
    selection.cases.problems.masks = masks.to_vec();
    timed_places(&planned(selection, Cuda))
}

#[test]
fn an_unnamed_shape_is_timed_with_both_element_types_and_masks() {
    let selection = request().shapes(["1x4x256x64"]).variants(["scalar-32x64"]);
    assert_eq!(planned(selection, Cuda).timings.len(), 4);
    assert_eq!(
        timed_selection(["1x4x256x64"], &[]),
        ["1x4x256x64 f16 full", "1x4x256x64 f16 causal"]
    );
}

#[test]
fn a_named_shape_is_timed_with_its_usual_masks() {
    assert_eq!(
        timed_selection(["vit_197", "unet_1024", "big"], &[]),
        [
            "vit_197 f16 full",
            "unet_1024 f16 full",
            "big f16 full",
            "big f16 causal",
        ]
    );
}

#[test]
fn a_named_shape_is_timed_with_the_masks_that_are_asked_for() {
    assert_eq!(
        timed_selection(["vit_197"], &[Mask::Causal]),
        ["vit_197 f16 causal"]
    );
    assert_eq!(
        timed_selection(["vit_197"], &Mask::ALL),
        ["vit_197 f16 full", "vit_197 f16 causal"]
    );
}

/// Returns the reason why no case is left to run.
fn refusal(stages: &[StageMeta], request: &Request) -> String {
    plan(stages, request, Emulated).unwrap_err().to_string()
}

#[test]
fn a_served_shape_is_refused_where_no_chosen_stage_takes_it() {
    let mut stages = ladder();
    stages[1].variants[0].serves = true;
    let served = request().shapes(["varlen_llm"]);
    let of_first = Request {
        chosen: Chosen {
            stages: vec![stages[0].id.clone()],
            ..Chosen::default()
        },
        ..served
    };
    assert_eq!(
        refusal(&stages, &of_first),
        format!(
            "no case is left to run: the chosen stages take dense tensors with a head_dim of 64 or \
             128 alone, not varlen_llm; \
             --stages {} takes it",
            stages[1].id
        )
    );
}

#[test]
fn served_cases_are_those_of_variants_that_take_them() {
    let mut stages = ladder();
    let has_served = |built: &[StageMeta]| {
        let planned = plan(built, &request(), Emulated).unwrap();
        planned.cases.iter().any(|case| !case.problem.is_dense())
    };
    assert!(!has_served(&stages));
    stages[1].variants[0].serves = true;
    assert!(has_served(&stages));
    let subject = stages[1].subject(&stages[1].variants[0].name);
    let planned = plan(&stages, &request(), Emulated).unwrap();
    let mut served = planned.cases.iter().filter(|case| !case.problem.is_dense());
    assert!(served.all(|case| case.subject == subject));
}

/// Returns the ladder, whose second stage has a variant that reads a cache and nothing else.
fn ladder_with_cache() -> Vec<StageMeta> {
    let mut stages = ladder();
    let variant = &mut stages[1].variants[0];
    (variant.serves, variant.cache) = (true, Some(Cache::E4m3));
    stages
}

#[test]
fn a_variant_that_reads_a_cache_has_the_cases_of_others_in_it() {
    let stages = ladder_with_cache();
    let subject = stages[1].subject(&stages[1].variants[0].name);
    let planned = plan(&stages, &request(), Emulated).unwrap();
    let mut own = planned.cases.iter().filter(|case| case.subject == subject);
    assert!(own.clone().count() > 20);
    let is_cached = |case: &PlannedCase| case.problem.shape.serving.cache.is_some();
    assert!(own.all(|case| is_cached(case) && case.problem.dtype != E4m3));
    let mut others = planned.cases.iter().filter(|case| case.subject != subject);
    assert!(!others.any(is_cached));
}

#[test]
fn a_shape_with_a_cache_is_of_the_variants_that_read_it() {
    let stages = ladder_with_cache();
    let in_cache = request().shapes(["1x1x32x64+cache=e4m3"]);
    let planned = plan(&stages, &in_cache, Emulated).unwrap();
    let subject = stages[1].subject(&stages[1].variants[0].name);
    assert!(planned.cases.iter().all(|case| case.subject == subject));
    let of_first = Request {
        chosen: Chosen {
            stages: vec![stages[0].id.clone()],
            ..Chosen::default()
        },
        ..in_cache
    };
    let message = refusal(&stages, &of_first);
    let words = format!(
        "not 1x1x32x64+cache=e4m3; --stages {} takes it",
        stages[1].id
    );
    assert!(message.contains(&words), "{message}");
}

#[test]
fn a_dense_shape_is_refused_by_a_variant_that_reads_a_cache_alone() {
    let stages = ladder_with_cache();
    let name = stages[1].variants[0].name.clone();
    let dense = Request {
        chosen: Chosen {
            variants: vec![name],
            ..Chosen::default()
        },
        ..request().shapes(["mission"])
    };
    let message = refusal(&stages, &dense);
    let words = "the chosen variants read K and V in a cache alone, and mission has none";
    assert!(message.contains(words), "{message}");
}

#[test]
fn a_plan_without_cases_is_an_error() {
    let no_case = request().families([Family::ZeroHead]).dtypes([F16]);
    assert_eq!(
        refusal(&ladder(), &no_case),
        "no case matches all of --dtypes f16 --families zero-head; drop one of these flags"
    );
}

#[test]
fn a_stage_of_e4m3_alone_is_asked_for_nothing_else() {
    let stages = of_e4m3_alone(1);
    let plan = plan(&stages, &request().stages(["stage1-cpasync"]), Emulated).unwrap();
    assert_eq!(cases_with(&plan, E4m3).len(), plan.cases.len());
    // Rising maxima over a ring of tiles, in its own element type.
    let large = Source::Seeded {
        family: Family::Large,
        seed: 0,
    };
    let rises = plan.cases.iter().any(|case| {
        let is_traced = matches!(case.mode, Mode::Traced | Mode::TracedOnce);
        case.source == large && case.problem.shape.head_dim == 64 && is_traced
    });
    assert!(rises, "{}", lines(&plan.cases));
}

#[test]
fn a_stage_without_the_element_types_that_are_asked_for_has_no_case() {
    let halves = request().stages(["stage1-cpasync"]).dtypes([F16, Bf16]);
    assert_eq!(
        refusal(&of_e4m3_alone(1), &halves),
        "no case is left to run: no chosen stage has f16 or bf16"
    );
}

#[test]
fn a_stage_that_the_device_cannot_run_has_no_case() {
    let mut limited = ladder();
    limited[1].variants.clear();
    limited[1].refused = vec![("cpasync-32x64".into(), "it needs sm_90".into())];
    assert_eq!(
        refusal(&limited, &request().stages(["stage1-cpasync"])),
        "no case is left to run: the device cannot run cpasync-32x64: it needs sm_90"
    );
}

#[test]
fn a_variant_that_alone_of_its_stage_lacks_f16_is_asked_and_refuses() {
    let mut stages = ladder();
    let [first, second] = &mut stages[0].variants[..] else {
        panic!("two variants")
    };
    first.kernels.retain(|kernel| kernel.facts.dtype == E4m3);
    assert!(second.takes(F16));
    let named = request().quick().variants(["scalar-32x64"]);
    let plan = plan(&stages, &named, Emulated).unwrap();
    let all = lines(&plan.cases);
    assert!(all.contains("scalar-32x64 small f16 full normal:0 Traced\n"));
}

#[test]
fn an_input_file_is_the_only_problem() {
    let file = GivenTensors {
        name: "a.safetensors".into(),
        shape: Shape::bhsd(1, 2, 40, 64),
        dtype: E4m3,
    };
    let plan = planned(request().stages(["stage1-cpasync"]).input(file), Emulated);
    assert_eq!(
        lines(&plan.cases),
        "cpasync-32x64 1x2x40x64 e4m3 full a.safetensors Traced"
    );
    let selection = plan.scope;
    assert!(selection.to_string().ends_with(" --input a.safetensors"));
}

/// Returns what a request counts, on whatever backend.
fn counted_by(request: Request) -> Vec<String> {
    let counted = planned(request.clone(), Emulated).counted;
    assert_eq!(counted, planned(request, Cuda).counted);
    let mut shown = Vec::new();
    for (subject, dtype) in counted {
        shown.push(format!("{} {dtype}", subject.name()));
    }
    shown
}

#[test]
fn every_variant_is_counted_by_default() {
    let expected = [
        "scalar-32x64 f16",
        "scalar-32x64 e4m3",
        "wmma-qk-32x64 f16",
        "wmma-qk-32x64 e4m3",
        "cpasync-32x64 f16",
        "cpasync-32x64 e4m3",
    ];
    assert_eq!(counted_by(request()), expected);
}

#[test]
fn what_a_chosen_stage_is_compared_with_is_counted_too() {
    assert_eq!(
        counted_by(request().stages(["stage1-cpasync"])),
        [
            "wmma-qk-32x64 f16",
            "cpasync-32x64 f16",
            "cpasync-32x64 e4m3"
        ]
    );
}

#[test]
fn a_variant_is_counted_alone_if_no_claim_compares_it() {
    assert_eq!(
        counted_by(request().variants(["scalar-32x64"])),
        ["scalar-32x64 f16", "scalar-32x64 e4m3"]
    );
}

#[test]
fn only_chosen_element_types_are_counted() {
    assert_eq!(
        counted_by(request().dtypes([F16])),
        ["scalar-32x64 f16", "wmma-qk-32x64 f16", "cpasync-32x64 f16"]
    );
}

#[test]
fn nothing_is_counted_by_quick() {
    assert_eq!(counted_by(request().quick()), [""; 0]);
}

#[test]
fn nothing_is_counted_without_the_mask_of_the_claims() {
    assert_eq!(counted_by(request().masks([Mask::Causal])), [""; 0]);
}

#[test]
fn nothing_is_counted_on_other_shapes_than_that_of_the_claims() {
    assert_eq!(counted_by(request().shapes(["small"])), [""; 0]);
}

/// With a stage's second element type a part of its variants is counted, and what claims compare
/// them with: else those would have no data.
#[test]
fn what_is_counted_with_e4m3_is_compared_with_what_is_counted_too() {
    let stages = stages::builds().unwrap();
    let counted = plan(&stages, &request(), Emulated).unwrap().counted;
    let is_counted = |stage: &StageMeta, variant: &VariantMeta| {
        counted.contains(&(stage.subject(&variant.name), E4m3))
    };
    let counted_variants = |id: &str| -> Vec<bool> {
        let stage = by_id(&stages, id).unwrap();
        let variants = stage.variants.iter();
        variants.map(|variant| is_counted(stage, variant)).collect()
    };
    assert_eq!(counted_variants("stage10-fp8"), [true; 3]);
    let spread = counted_variants("stage11-spread");
    assert!(spread.contains(&true) && spread.contains(&false));
    for (stage, claim) in claims(&stages) {
        if claim.place.dtype != E4m3 || claim.is_of_speed() {
            continue;
        }
        for pair in comparisons(&stages, stage, claim).unwrap() {
            let new = pair.new.variant;
            if let Some(base) = pair.base
                && is_counted(stage, new)
            {
                assert!(
                    is_counted(base.stage, base.variant),
                    "{claim}: {}",
                    new.name
                );
            }
        }
    }
}

/// Moves the claim of stage 1 about speed to another problem.
fn ladder_with_claim_on(place: ProblemPlace) -> Vec<StageMeta> {
    let mut stages = ladder();
    let claim = stages[1]
        .claims
        .iter_mut()
        .find(|claim| matches!(claim.relation, Relation::Faster { .. }))
        .expect("stage 1 claims to be faster");
    claim.place = place;
    stages
}

/// Returns what `--full` times on problems that it has no case of, where a claim is about this
/// shape.
fn timed_without_cases(shape: &str) -> Vec<String> {
    let stages = ladder_with_claim_on(ProblemPlace::new(shape, Bf16, Mask::Causal));
    let plan = plan(&stages, &request().full(), Cuda).unwrap();
    let mut timed = Vec::new();
    for (problem, subject) in &plan.timings {
        if ["big", "decode_8k"].contains(&&*problem.shape.name()) {
            timed.push(format!("{} {}", subject.name(), problem.mask));
        }
    }
    timed
}

#[test]
fn both_sides_of_a_claim_about_a_problem_that_is_no_case_are_timed_there() {
    for shape in ["big", "decode_8k"] {
        let timed = timed_without_cases(shape);
        for side in ["cpasync-32x64 causal", "wmma-qk-32x64 causal"] {
            assert!(timed.contains(&side.to_string()), "{shape}: {timed:?}");
        }
    }
}

/// Nothing but the default variants at the problem that the ladder's table shows.
#[test]
fn a_claim_about_a_problem_that_is_a_case_adds_no_other() {
    assert_eq!(
        timed_without_cases("mission"),
        ["wmma-qk-32x64 full", "cpasync-32x64 full"]
    );
}

/// No claim is about `big` there, and the table has a column of it.
#[test]
fn full_times_each_stage_where_the_table_shows_it() {
    let plan = planned(request().full(), Cuda);
    for stage in ladder() {
        let subject = stage.subject(&stage.default_variant);
        for place in stage.places() {
            let timed = plan
                .timings
                .iter()
                .any(|(problem, other)| *other == subject && place.problem() == Some(*problem));
            assert!(timed, "{subject} at {place}");
        }
    }
}

/// What ends within minutes times what the claims are about unless they name a problem.
#[test]
fn claims_about_other_problems_are_timed_by_full_alone() {
    let stages = ladder_with_claim_on(ProblemPlace::new("big", F16, Mask::Causal));
    let is_big_timed = |request: Request| {
        let plan = plan(&stages, &request, Cuda).unwrap();
        plan.timings
            .iter()
            .any(|(problem, _)| problem.shape == named("big"))
    };
    assert!(is_big_timed(request().full()));
    assert!(!is_big_timed(request()));
}

#[test]
fn the_work_of_a_plan_counts_small_and_large_timings_apart() {
    let plan = planned(request().full(), BackendKind::Cuda);
    let work = plan.work();
    assert_eq!(work.cases, plan.cases.len());
    assert_eq!(work.small + work.large, plan.timings.len());
    assert_eq!(work.random, 0);
    assert!(work.small > 0);
    let on_large = planned(request().shapes(["big", "decode_8k"]), BackendKind::Cuda).work();
    assert_eq!(on_large.small, 0);
    assert!(on_large.large > 0);
}

#[test]
fn the_work_of_a_plan_counts_random_problems() {
    let work = planned(request().random_problems(3), BackendKind::Cuda).work();
    assert_eq!((work.small, work.large, work.random), (0, 0, 3));
}
