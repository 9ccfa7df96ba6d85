use super::*;
use common::faults::{Fault, model_lse, model_output};
use common::gate::{Evidence, c8, numeric_gates};
use common::inputs::Inputs;
use common::reference::{Probability, reference};
use common::verdict::GateResult;
use rayon::prelude::*;
use results::table::{Claim, ProblemPlace};
use results::testing::scenario::each;
use results::testing::{instances, ladder, of_e4m3_alone};

use BackendKind::{Cuda, Emulated};

fn request(flags: &str) -> Request {
    crate::testing::request(flags.split_whitespace())
}

fn planned(flags: &str, backend: BackendKind) -> Plan {
    plan(&ladder(), &request(flags), backend).unwrap()
}

/// A line for each case.
fn lines(plan: &Plan) -> String {
    let cases = plan.cases.iter();
    joined(
        cases.map(|case| format!("{} {} {:?}", case.subject.name(), case.place(), case.mode)),
        "\n",
    )
}

fn lines_with(plan: &Plan, words: &[&str]) -> String {
    let all = lines(plan);
    let has_all = |line: &&str| words.iter().all(|words| line.contains(words));
    joined(all.lines().filter(has_all), "\n")
}

#[test]
fn tier0_is_five_problems_extreme_logits_and_other_scales_on_the_default_variant() {
    let plan = planned("--quick --stages stage0-scalar", Emulated);
    assert_eq!(plan.tier, Tier::T0);
    insta::assert_snapshot!(lines(&plan), @r"
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
    // The same of a variant that is asked for by name.
    let named = planned("--quick --variants scalar-32x64", Emulated);
    assert_eq!(named.cases.len(), plan.cases.len());
}

/// Every variant meets what T0 has for every gate, its own rings, and the claims' problem or one
/// like it.
#[test]
fn tier1_is_the_default_and_has_every_variant() {
    let plan = planned("--variants scalar-32x64", Emulated);
    assert_eq!(plan.tier, Tier::T1);
    // 10 + 6 + 13 of T0; a ring for each dtype, one with rising maxima, and a deep one; the claims'
    // problem, and for each dtype one like it.
    assert_eq!(plan.cases.len(), 10 + 6 + 13 + 4 + 1 + 2);
    assert!(plan.cases.iter().all(|case| !case.is_late));
    let of_claims = lines_with(&plan, &["full normal:0 Plain"]);
    let of_claims = joined(
        of_claims
            .lines()
            .filter(|line| line.contains(" mission ") || line.contains(" 1x2x256x64 ")),
        "\n",
    );
    // Of 32x64 tiles: seven and one key.
    let rings = lines_with(&plan, &[":449x64", " TracedOnce"]);
    insta::assert_snapshot!(of_claims + "\n" + &rings, @"
    scalar-32x64 1x2x256x64 f16 full normal:0 Plain
    scalar-32x64 mission f16 full normal:0 Plain
    scalar-32x64 1x2x256x64 e4m3 full normal:0 Plain
    scalar-32x64 1x1x17:449x64 f16 full normal:0 TracedOnce
    scalar-32x64 1x1x17:449x64 e4m3 causal normal:0 TracedOnce
    scalar-32x64 1x1x17:449x64 f16 full large:0 TracedOnce
    ");
    // Every variant of every stage runs the same list, but for a default one's deep ring and the
    // claims' problem.
    let whole = planned("", Emulated);
    let cases = ["scalar", "wmma-qk", "cpasync"].map(|family| {
        lines_with(&whole, &[&format!("{family}-32x64 ")])
            .lines()
            .count()
    });
    assert_eq!(cases, [34, 36, 36]);
    assert_eq!(whole.cases.len(), 34 + 36 + 36);
    assert!(whole.scope.is_all());
    // Every variant is traced on T0's problems and its rings; a default one on T0's under every
    // schedule, as by name.
    let traced = |plan: &Plan, variant: &str| {
        [" Traced", " TracedOnce"].map(|mode| {
            let all = lines_with(plan, &[variant]);
            all.lines().filter(|line| line.ends_with(mode)).count()
        })
    };
    // With f16 under every schedule, with E4M3 under one.
    assert_eq!(traced(&whole, "wmma-qk-32x64"), [4, 10], "a deeper ring");
    // In f16, and one ring.
    assert_eq!(traced(&whole, "scalar-32x64"), [0, 6]);
    assert_eq!(traced(&plan, "scalar-32x64")[0], 4);
    let full = planned("--full", Emulated);
    assert_eq!(traced(&full, "scalar-32x64"), [0, 13]);
    assert_eq!(traced(&full, "wmma-qk-32x64"), [8, 6]);
}

/// What `--full` adds kills none of the planted faults alone, with any element type.
#[test]
fn the_cases_of_a_variant_that_is_no_default_kill_every_planted_fault() {
    let plan = planned("", Emulated);
    let of_bf16 = {
        let mut stages = ladder();
        for variant in stages.iter_mut().flat_map(|stage| &mut stage.variants) {
            variant.kernels = instances(&variant.name, &Dtype::ALL);
        }
        let request = request("--stages stage0-scalar --dtypes bf16");
        super::plan(&stages, &request, Emulated).unwrap()
    };
    let cases = plan
        .cases
        .iter()
        .filter(|case| case.subject.name() == "scalar-32x64");
    // The claims' problem would take the model long.
    let cases = cases
        .chain(&of_bf16.cases)
        .filter(|case| !case.problem.has_claims());
    let cases: Vec<&PlannedCase> = cases.collect();
    // Which faults were tried with the element type of a case, and whether they failed a gate.
    let found: Vec<Vec<(Fault, Dtype, bool)>> = cases.par_iter().map(|case| killed(case)).collect();
    let found = found.concat();
    let tried = distinct(found.iter().map(|(fault, dtype, _)| (*fault, *dtype)));
    for (fault, dtype) in &tried {
        let is_killed = found.contains(&(*fault, *dtype, true));
        assert!(is_killed, "{fault:?} of {dtype} survives");
    }
    let faults = distinct(tried.iter().map(|(fault, _)| *fault));
    assert_eq!(faults.len(), Fault::ALL.len());
}

fn killed(case: &PlannedCase) -> Vec<(Fault, Dtype, bool)> {
    let Source::Seeded { family, seed } = case.source else {
        panic!("no file is given")
    };
    let problem = &case.problem;
    let inputs = Inputs::generate(problem, family, seed);
    let reference = reference(&inputs, Probability::half(problem.dtype)).unwrap();
    let faults = Fault::ALL.into_iter();
    let faults = faults.filter(|fault| fault.applies_to(problem));
    let is_killed = |fault: Fault| {
        let output = model_output(&inputs, Some(fault));
        let evidence = Evidence {
            problem,
            family: Some(family),
            reference: &reference,
            output: &output,
        };
        let (_, gates) = numeric_gates(&evidence);
        let lse = || c8(problem, &reference, &model_lse(&inputs, Some(fault)));
        gates.iter().any(GateResult::is_fail) || fault.is_of_lse() && lse().is_fail()
    };
    faults
        .map(|fault| (fault, problem.dtype, is_killed(fault)))
        .collect()
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
        let cases = || plan.cases.iter().filter(|case| case.subject == subject);
        let is_traced = |mode| matches!(mode, Mode::Traced | Mode::TracedOnce);
        assert!(cases().any(|case| is_traced(case.mode)), "H1: {subject}");
        let is_of_c4 = |case: &&PlannedCase| {
            case.problem.dtype != Dtype::E4m3 || case.problem == claims_problem(Dtype::E4m3)
        };
        let takes = |case: &&PlannedCase| variant.takes(case.problem.dtype);
        assert!(
            cases().filter(takes).any(|case| is_of_c4(&case)),
            "C4: {subject}"
        );
        let is_counted = plan.counted.iter().any(|(of, _)| *of == subject);
        assert!(is_counted, "E1: {subject}");
    }
}

#[test]
fn the_default_on_a_gpu_has_the_same_cases_and_times_the_problems_of_claims() {
    let plan = planned("", Cuda);
    assert_eq!(plan.tier, Tier::T1);
    let in_emulator = planned("", Emulated);
    // And the claims' problem with E4M3, and with f16 on the one that is no default.
    assert_eq!(plan.cases.len(), in_emulator.cases.len() + 3 + 1);
    let problems = plan.timings.iter();
    let problems = distinct(problems.map(|(problem, _)| ProblemPlace::of(problem).to_string()));
    assert_eq!(problems, ["mission f16 full", "mission e4m3 full"]);
    assert_eq!(plan.timings.len(), 3 * 2);
    assert_eq!(plan.counted, in_emulator.counted);
}

#[test]
fn full_adds_all_families_and_seeds() {
    let plan = planned("--full --variants scalar-32x64", Emulated);
    assert_eq!(plan.tier, Tier::T2);
    // T1's; small: 3 seeds x (9 + 11 families) less the two that T0 has; 3 extreme families x 2
    // dtypes on small and on 7 keys; two more seeds of mission, and one of E4M3.
    let by_default = planned("--variants scalar-32x64", Emulated).cases;
    assert_eq!(plan.cases.len(), by_default.len() + 3 * 20 - 2 + 2 * 6 + 3);
    let all = lines(&plan);
    let both = plan.cases.iter().zip(&by_default);
    assert!(
        both.into_iter()
            .all(|(full, case)| full.place() == case.place())
    );
    for line in [
        "scalar-32x64 mission f16 full normal:2 Plain",
        "scalar-32x64 small e4m3 full zero-head:1 Plain",
        "scalar-32x64 1x1x7x64 e4m3 causal huge:0 Plain",
    ] {
        assert!(all.contains(line), "{line}");
    }
}

#[test]
fn what_full_adds_on_a_gpu_comes_after_all_times() {
    let plan = planned("--full --stages 0,1", Cuda);
    let rounds = plan.rounds();
    let shown = rounds.iter().map(|round| {
        let stages = round.cases.iter().map(|case| case.subject.stage());
        let late = round.cases.iter().filter(|case| case.is_late).count();
        let timed = round.timings.iter().map(|(_, subject)| subject.stage());
        (distinct(stages), late == round.cases.len(), distinct(timed))
    });
    let [first, second] = ["stage0-scalar", "stage1-cpasync"];
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            (vec![first], false, vec![first]),
            (vec![second], false, vec![second]),
            (vec![first, second], true, vec![]),
        ]
    );
    let timed: usize = rounds.iter().map(|round| round.timings.len()).sum();
    let cases: usize = rounds.iter().map(|round| round.cases.len()).sum();
    assert_eq!((timed, cases), (plan.timings.len(), plan.cases.len()));
    // Before any time a variant has the default's cases.
    let first: usize = rounds[..2].iter().map(|round| round.cases.len()).sum();
    assert_eq!(first, planned("--stages 0,1", Cuda).cases.len());
}

#[test]
fn given_problems_come_one_after_the_other() {
    let plan = planned(
        "--shapes 1x1x17x64,1x1x9x64 --dtypes f16 --masks full",
        Cuda,
    );
    let rounds = plan.rounds();
    let shown = rounds.iter().map(|round| {
        let cases = round.cases.iter();
        let cases = cases.map(|case| (case.problem.shape.seq_q, case.subject.stage()));
        let timed = round.timings.iter();
        let timed = timed.map(|(problem, subject)| (problem.shape.seq_q, subject.stage()));
        assert_eq!(distinct(timed), distinct(cases.clone()));
        distinct(cases)
    });
    let [first, second] = ["stage0-scalar", "stage1-cpasync"];
    let each = [(17, first), (17, second), (9, first), (9, second)].map(|one| vec![one]);
    assert_eq!(shown.collect::<Vec<_>>(), [&each[..], &[vec![]]].concat());
    let emulated = planned("--shapes 1x1x17x64,1x1x9x64", Emulated);
    assert_eq!(emulated.rounds().len(), 1);
}

#[test]
fn bf16_is_checked_on_default_variants() {
    let mut stages = ladder();
    for variant in stages.iter_mut().flat_map(|stage| &mut stage.variants) {
        variant.kernels = instances(&variant.name, &Dtype::ALL);
    }
    let of = |flags: &str| {
        let plan = plan(&stages, &request(flags), Emulated).unwrap();
        lines_with(&plan, &[" bf16 "])
    };
    let tier0 = of("--quick --stages stage0-scalar");
    insta::assert_snapshot!(tier0, @r"
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
    let tier1 = of("--stages stage0-scalar");
    // The same cases, traced under one schedule.
    let once = tier0.replace(" Traced\n", " TracedOnce\n");
    assert!(tier1.starts_with(&once), "{tier1}");
    // A ring, and what is like mission.
    assert_eq!(tier1.lines().count(), tier0.lines().count() + 2, "{tier1}");
    let families = Family::for_dtype(Dtype::Bf16).len();
    let extreme = Family::EXTREME.len();
    // On small and on 7 keys, and mission.
    let more = 3 * (families - extreme) + 2 * extreme + 1;
    let full = of("--full --stages stage0-scalar");
    assert_eq!(full.lines().count(), tier1.lines().count() + more, "{full}");
    for line in [
        "wmma-qk-32x64 mission bf16 full normal:0 Plain",
        "wmma-qk-32x64 1x1x17:449x64 bf16 causal normal:0 TracedOnce",
    ] {
        assert!(full.contains(line), "{line}");
    }
    let tier2 = plan(
        &stages,
        &request("--full --stages stage0-scalar --dtypes bf16"),
        Cuda,
    )
    .unwrap();
    let timed = tier2
        .timings
        .iter()
        .map(|(of, _)| ProblemPlace::of(of).to_string());
    let expected = [
        "mission bf16 full",
        "long bf16 full",
        "mission bf16 causal",
        "long bf16 causal",
    ];
    assert_eq!(distinct(timed), expected);
}

#[test]
fn a_variant_without_bf16_is_given_none_though_its_stage_takes_it() {
    let mut stages = ladder();
    let [scalar, wmma] = &mut stages[0].variants[..] else {
        panic!("stage 0 has two variants")
    };
    scalar.kernels = instances(&scalar.name, &[Dtype::F16]);
    wmma.kernels = instances(&wmma.name, &Dtype::ALL);
    let is_given_bf16 = |variant: &str| {
        let flags = format!("--variants {variant} --shapes 1x1x17x64");
        let plan = plan(&stages, &request(&flags), Emulated).unwrap();
        lines(&plan).contains(" bf16 ")
    };
    assert!(is_given_bf16("wmma-qk-32x64"));
    assert!(!is_given_bf16("scalar-32x64"));
}

#[test]
fn masks_of_bf16_alternate_between_edge_shapes_and_begin_with_full() {
    let mut stages = ladder();
    for variant in stages.iter_mut().flat_map(|stage| &mut stage.variants) {
        variant.kernels = instances(&variant.name, &Dtype::ALL);
    }
    let flags = "--full --stages stage0-scalar --dtypes bf16";
    let plan = plan(&stages, &request(flags), Cuda).unwrap();
    let masks = |shape: Shape| {
        let cases = plan.cases.iter().map(|case| case.problem);
        distinct(cases.filter(|of| of.shape == shape).map(|of| of.mask))
    };
    let [first, second, third, ..] = edge_shapes()[..] else {
        panic!("there are edge shapes");
    };
    assert_eq!(masks(first), [Mask::Full]);
    assert_eq!(masks(second), [Mask::Causal]);
    assert_eq!(masks(third), [Mask::Full]);
}

#[test]
fn random_problems_follow_few_cases_and_are_all_that_is_timed() {
    let plan = planned("--random-problems 2", Cuda);
    assert_eq!(plan.tier, Tier::T0);
    assert_eq!((plan.draws.len(), plan.timings.len()), (2, 0));
}

#[test]
fn what_the_traced_build_cannot_watch_is_run_plain() {
    let mode = |shape: &str| {
        let flags = format!("--shapes {shape} --masks causal --dtypes f16");
        planned(&flags, Emulated).cases[0].mode
    };
    assert_eq!(mode("1x1x64:1x64"), Mode::TracedOnce);
    // One score, in tensors of gigabytes.
    assert_eq!(mode("1x1x16777216:1x64"), Mode::Plain);
}

#[test]
fn full_has_every_small_shape_on_a_gpu() {
    let plan = planned("--full --variants scalar-32x64", Cuda);
    assert_eq!(plan.tier, Tier::T2);
    // T0's five shapes and three of short rows are computed on both backends, under every family of
    // each dtype, and the extreme families on 131:5 keys; T0's thirteen others; and the rings.
    let families: usize = [Dtype::F16, Dtype::E4m3]
        .map(|dtype| Family::for_dtype(dtype).len())
        .iter()
        .sum();
    let both = |plan: &Plan| lines_with(plan, &[" Both"]).lines().count();
    assert_eq!(both(&plan), 8 * families + 6 + 13 + 4);
    assert!(
        plan.cases
            .iter()
            .all(|case| matches!(case.mode, Mode::Device | Mode::Both))
    );
    assert_eq!(both(&planned("--quick --variants scalar-32x64", Cuda)), 10);
    let count = |pick: &dyn Fn(&ProblemPlace) -> bool| {
        plan.cases
            .iter()
            .filter(|case| pick(&ProblemPlace::of(&case.problem)))
            .count()
    };
    // Named: 2 masks x (12 + 14 families) x (2 shapes x 5 seeds + 4 shapes x 1 seed).
    assert_eq!(
        count(&|place| of_kind(Kind::Small).any(|named| named.name == place.shape)),
        2 * 26 * 14
    );
    // Many keys, and what is like mission, in both dtypes; edge shapes: both dtypes and masks;
    // under every family T0's four that have no name, and short rows; the extreme families on 131:5
    // and 7 keys; what T0 has of other scales and whole tiles; the rings.
    assert_eq!(
        count(&|place| !place.shape.starts_with(char::is_alphabetic)),
        2 + 2 + edge_shapes().len() * 4 + 7 * families + 12 + 13 + 4
    );
    // Timed: mission, mission_b2, stretch, long and wide, both dtypes and masks.
    assert_eq!(plan.timings.len(), 5 * 4);
    assert_eq!(planned("--full --iters 0", Cuda).timings, []);
    // Rows that see no key, and heads of which one has zeros, depend on the mask.
    for short in ["1x2:1x65:7x64 f16 causal", "1x4x65:5x64 f16 full"] {
        let line = format!("scalar-32x64 {short} normal:0 Both");
        assert!(lines(&plan).contains(&line), "{line}");
    }
}

#[test]
fn shapes_seeds_and_families_replace_the_tier() {
    let plan = planned(
        "--variants scalar-32x64 --shapes 1x8:2x65x64 --families large,zero-head --seeds 7 --masks causal",
        Emulated,
    );
    insta::assert_snapshot!(lines(&plan), @r"
    scalar-32x64 1x8:2x65x64 f16 causal large:7 Traced
    scalar-32x64 1x8:2x65x64 e4m3 causal large:7 Traced
    scalar-32x64 1x8:2x65x64 e4m3 causal zero-head:7 Traced
    ");
    let selection = plan.scope;
    let written = serde_json::to_value(&selection).unwrap();
    assert_eq!(
        serde_json::from_value::<Selection>(written).unwrap(),
        selection
    );
    assert_eq!(
        selection.to_string(),
        [
            "--variants scalar-32x64",
            "--shapes 1x8:2x65x64",
            "--masks causal",
            "--seeds 7",
            "--families large,zero-head"
        ]
        .join(" ")
    );
    let large = planned("--shapes mission --dtypes f16", Emulated);
    assert!(large.cases.iter().all(|case| case.mode == Mode::Plain));
    let timed = planned("--shapes 1x4x256x64 --variants scalar-32x64", Cuda);
    assert_eq!(timed.timings.len(), 4);
}

#[test]
fn a_plan_without_cases_is_an_error() {
    let error = plan(
        &ladder(),
        &request("--families zero-head --dtypes f16"),
        Emulated,
    );
    let says = "no case matches all of --dtypes f16 --families zero-head; drop one of these flags";
    assert_eq!(error.unwrap_err().to_string(), says);
}

#[test]
fn a_stage_of_e4m3_alone_is_asked_for_nothing_else() {
    let mut builds = of_e4m3_alone(1);
    let of = |builds: &[StageMeta], flags: &str| {
        plan(builds, &request(flags), Emulated).map_err(|error| error.to_string())
    };
    let e4m3 = of(&builds, "--stages stage1-cpasync").unwrap();
    assert!(
        e4m3.cases
            .iter()
            .all(|case| case.problem.dtype == Dtype::E4m3)
    );
    // Rising maxima over a ring of tiles, in its own element type.
    let rises = lines_with(&e4m3, &["x64 e4m3", " large:0 Traced"]);
    assert_ne!(rises, "", "{}", lines(&e4m3));
    assert_eq!(
        of(&builds, "--stages stage1-cpasync --dtypes f16,bf16").unwrap_err(),
        "no case is left to run: no chosen stage has f16 or bf16"
    );
    let mut limited = ladder();
    limited[1].variants.clear();
    let why = "it needs sm_90";
    limited[1].refused = vec![("cpasync-32x64".into(), why.into())];
    assert_eq!(
        of(&limited, "--stages stage1-cpasync").unwrap_err(),
        "no case is left to run: the device cannot run cpasync-32x64: it needs sm_90"
    );
    // A variant alone that lacks f16 is asked, and refuses.
    let [first, second] = &mut builds[0].variants[..] else {
        panic!("two variants")
    };
    first
        .kernels
        .retain(|kernel| kernel.facts.dtype == Dtype::E4m3);
    assert!(second.takes(Dtype::F16));
    let lines = lines(&of(&builds, "--quick --variants scalar-32x64").unwrap());
    assert!(lines.contains("scalar-32x64 small f16 full normal:0 Traced\n"));
}

#[test]
fn an_input_file_is_the_only_problem() {
    let file = GivenTensors {
        name: "a.safetensors".into(),
        shape: Shape::bhsd(1, 2, 40, 64),
        dtype: Dtype::E4m3,
    };
    let request = Request {
        file: Some(file),
        ..request("--stages stage1-cpasync")
    };
    let plan = plan(&ladder(), &request, Emulated).unwrap();
    assert_eq!(
        lines(&plan),
        "cpasync-32x64 1x2x40x64 e4m3 full a.safetensors Traced"
    );
    let selection = plan.scope;
    assert!(selection.to_string().ends_with(" --input a.safetensors"));
}

#[test]
fn what_is_counted_has_the_claims_problem_among_its_cases_or_is_compared_with_what_has() {
    let found = each(
        "--backend auto
        --stages stage1-cpasync
        --variants scalar-32x64
        --dtypes f16
        --quick
        --masks causal
        --shapes small",
        |flags| {
            let counted = planned(flags, Emulated).counted;
            assert_eq!(counted, planned(flags, Cuda).counted);
            let counted = counted.iter();
            joined(
                counted.map(|(of, dtype)| format!("{} {dtype}", of.name())),
                ", ",
            )
        },
    );
    insta::assert_snapshot!(found, @r"
    --backend auto
        scalar-32x64 f16, scalar-32x64 e4m3, wmma-qk-32x64 f16, wmma-qk-32x64 e4m3, cpasync-32x64 f16, cpasync-32x64 e4m3
    --stages stage1-cpasync
        wmma-qk-32x64 f16, cpasync-32x64 f16, cpasync-32x64 e4m3
    --variants scalar-32x64
        scalar-32x64 f16, scalar-32x64 e4m3
    --dtypes f16
        scalar-32x64 f16, wmma-qk-32x64 f16, cpasync-32x64 f16
    --quick
        -
    --masks causal
        -
    --shapes small
        -
    ");
}

/// Of a stage's second element type a part; and what claims on it compare, else they would have no
/// data.
#[test]
fn what_is_counted_with_e4m3_is_compared_with_what_is_counted_too() {
    let stages = stages::builds().unwrap();
    let counted = plan(&stages, &request(""), Emulated).unwrap().counted;
    let has = |stage: &StageMeta, variant: &VariantMeta| {
        counted.contains(&(stage.subject(&variant.name), Dtype::E4m3))
    };
    let of = |id: &str| {
        let stage = by_id(&stages, id).unwrap();
        let variants = stage.variants.iter();
        variants
            .map(|variant| has(stage, variant))
            .collect::<Vec<_>>()
    };
    assert_eq!(of("stage10-fp8"), [true; 3]);
    assert!(of("stage7-wgmma").contains(&true) && of("stage7-wgmma").contains(&false));
    let of_e4m3 = |(_, claim): &(&StageMeta, &Claim)| {
        claim.place.dtype == Dtype::E4m3 && !claim.is_of_speed()
    };
    for (stage, claim) in claims(&stages).filter(of_e4m3) {
        for pair in comparisons(&stages, stage, claim).unwrap() {
            let new = pair.new.variant;
            let base = pair.base.filter(|_| has(stage, new));
            let is_counted = base.is_none_or(|base| has(base.stage, base.variant));
            assert!(is_counted, "{claim}: {}", new.name);
        }
    }
}

#[test]
fn both_sides_of_a_claim_about_a_problem_that_is_no_case_are_timed_there() {
    let timed = |shape: &str| -> Vec<String> {
        let mut all = ladder();
        let claim = all[1]
            .claims
            .iter_mut()
            .find(|claim| matches!(claim.relation, Relation::Faster { .. }))
            .unwrap();
        claim.place = ProblemPlace::new(shape, Dtype::Bf16, Mask::Causal);
        let timings = plan(&all, &request("--full"), Cuda).unwrap().timings;
        let no_cases = timings
            .iter()
            .filter(|(problem, _)| ["big", "decode_8k"].contains(&&*problem.shape.name()));
        no_cases
            .map(|(problem, subject)| format!("{} {}", subject.name(), problem.mask))
            .collect()
    };
    for shape in ["big", "decode_8k"] {
        let timed = timed(shape);
        for side in ["cpasync-32x64 causal", "wmma-qk-32x64 causal"] {
            assert!(timed.contains(&side.to_string()), "{shape}: {timed:?}");
        }
    }
    assert_eq!(timed("mission"), [""; 0]);
}

/// What ends within minutes times what the claims are about unless they name a problem.
#[test]
fn claims_about_other_problems_are_timed_by_full_alone() {
    let mut all = ladder();
    let claims = all[1].claims.iter_mut();
    let mut of_speed = claims.filter(|claim| matches!(claim.relation, Relation::Faster { .. }));
    of_speed.next().unwrap().place = ProblemPlace::new("big", Dtype::F16, Mask::Causal);
    let is_timed = |arguments: &str| {
        let plan = plan(&all, &request(arguments), Cuda).unwrap();
        let mut problems = plan.timings.iter().map(|(problem, _)| problem);
        problems.any(|problem| problem.shape == named("big"))
    };
    assert!(is_timed("--full"));
    assert!(!is_timed(""));
}
