use super::*;
use crate::table::session::Refusal;
use crate::table::{Place, Run, Table};
use crate::testing::{
    CPASYNC, SCALAR, US, WMMA, emulated, instances, ladder, mission, samples, table, timed,
};
use Verdict::{Ambiguous, Fail, NoData, Pass};
use common::claim::Base;
use common::problem::Dtype;
use common::verdict::{GateId, GateResult};

/// The pair of a variant over scalar with these speedups of p50, p90 and mean, each 1 % wide.
fn pair(subject: &str, speedups: [f64; 3]) -> Row {
    let metrics = [Metric::SpeedupP50, Metric::SpeedupP90, Metric::SpeedupMean];
    let wide = speedups.map(|ratio| (ratio, 0.995 * ratio, 1.005 * ratio));
    Row::new(subject, mission(), Source::Gpu)
        .against(SCALAR)
        .figure(Metric::Noise, 0.003)
        .with_figures(metrics.into_iter().zip(wide))
}

fn finding(run: &Run, stage: usize, claim: usize) -> Option<Finding> {
    let stage = &run.session.stages[stage];
    judge(&Known::alone(run), stage, &stage.claims[claim]).map(|(finding, _)| finding)
}

fn judged(run: &Run, stage: usize, claim: usize) -> String {
    match finding(run, stage, claim) {
        Some(finding) => format!("{}: {}", finding.verdict, finding.reason),
        None => "not measured".into(),
    }
}

/// The claim of speed is 1.5x.
#[test]
fn each_figure_must_reach_the_claim_with_its_whole_interval() {
    const NAN: f64 = f64::NAN;
    let verdict = |row: Row| finding(&timed(US).with(row), 0, 0).unwrap();
    for (speedups, noise, expected) in [
        ([1.6, 1.6, 1.6], 0.003, Pass),
        ([1.508, 1.508, 1.508], 0.003, Pass),
        ([1.5, 1.6, 1.6], 0.003, Ambiguous),
        ([1.6, 1.6, 1.501], 0.003, Ambiguous),
        ([1.6, 1.4, 1.6], 0.003, Fail),
        ([1.5, 1.4, 1.6], 0.003, Fail),
        ([NAN, 1.6, 1.6], 0.003, Ambiguous),
        // The interval is 6 % above the claim.
        ([1.6; 3], 0.05, Pass),
        ([1.6; 3], 0.07, Ambiguous),
        ([1.6; 3], NAN, Ambiguous),
    ] {
        let found = verdict(pair(WMMA, speedups).figure(Metric::Noise, noise));
        assert_eq!(found.verdict, expected, "{speedups:?}: {}", found.reason);
    }
    let reason = verdict(pair(WMMA, [1.6, 1.4, 1.6])).reason;
    let words = "p50 1.600x [1.592, 1.608], p90 1.400x [1.393, 1.407], mean 1.600x [1.592, 1.608], claim 1.50x";
    assert_eq!(reason, words);
    let mut no_noise = pair(WMMA, [1.6; 3]);
    no_noise.figures.remove(&Metric::Noise);
    assert_eq!(verdict(no_noise).verdict, Ambiguous);
    let impossible = GateResult::judge(GateId::L1, false, "impossible: below 3 us");
    let found = verdict(pair(WMMA, [1.6; 3]).verdict(&impossible));
    assert_eq!(
        (found.verdict, &*found.reason),
        (Fail, "impossible: below 3 us")
    );
    for not_timed in [timed(US).without(|row| row.against.is_some()), emulated()] {
        assert_eq!(finding(&not_timed, 0, 0), None, "not side by side");
    }
}

#[test]
fn the_fastest_right_arms_of_the_newest_session_decide() {
    let k2 = "stage0-scalar/wmma-qk-32x64-k2";
    let mut run = timed(US).with(pair(WMMA, [1.6; 3]));
    let mut variant = run.session.stages[0].variants[1].clone();
    variant.name = "wmma-qk-32x64-k2".into();
    run.session.stages[0].variants.push(variant);
    let mut summary = run.summary_mut(WMMA).clone();
    summary.subject = k2.into();
    let both = (run.with(summary))
        .sampled(k2, mission(), &samples(18.0))
        .with(pair(k2, [1.8; 3]));
    let of = |table: &Table| {
        let known = Known::committed(&both.session.stages, table);
        let found = judge(&known, &known.stages[0], &known.stages[0].claims[0]);
        found.map(|(finding, _)| {
            let pair = finding.pair.unwrap();
            (pair.new.to_string(), pair.speedup)
        })
    };
    let decides = |subject: &str, speedup| Some((subject.to_string(), speedup));
    assert_eq!(of(&both.table), decides(k2, 1.8));
    // What is wrong is not fast.
    let wrong = both.clone().failing(k2, GateId::C2);
    assert_eq!(of(&wrong.table), decides(WMMA, 1.6));
    let untimed = |row: &Row| row.subject.as_str() == k2 && row.against.is_some();
    assert_eq!(of(&both.clone().without(untimed).table), decides(WMMA, 1.6));
    let sessions = [
        both.clone().named("1"),
        timed(US).named("2").with(pair(WMMA, [1.7; 3])),
    ];
    assert_eq!(of(&table(&sessions)), decides(WMMA, 1.7));
    // Of two bases the faster is compared with.
    let fast = "stage0-scalar/scalar-16x64";
    let mut bases = both.clone();
    let mut variant = bases.session.stages[0].variants[0].clone();
    variant.name = "scalar-16x64".into();
    bases.session.stages[0].variants.push(variant);
    let mut summary = bases.summary_mut(SCALAR).clone();
    summary.subject = fast.into();
    let bases = (bases.with(summary))
        .sampled(fast, mission(), &samples(28.0))
        .with(pair(k2, [1.55; 3]).against(fast));
    let found = finding(&bases, 0, 0).unwrap().pair.unwrap();
    assert_eq!((found.base, found.speedup), (fast.into(), 1.55));
    // The base with the same preset is another figure.
    assert_eq!(
        finding(&timed(US), 0, 0).unwrap().pair.unwrap().same_preset,
        Some(1.6)
    );
    let mut e4m3 = both.clone();
    e4m3.session.stages[0].claims[0].on = Place::claims(Dtype::E4m3);
    assert_eq!(finding(&e4m3, 0, 0), None);
    let known = Known::alone(&both);
    let stage = &both.session.stages[0];
    let arms = arms(&known, stage, &stage.claims[0]).unwrap();
    assert_eq!((arms.0, arms.1, arms.2), (k2.into(), SCALAR.into(), None));
}

#[test]
fn claims_against_peers_are_about_the_fastest_right_rival() {
    let flash = |us| ("torch-flash", us, true);
    let of = |run: &Run| {
        [2, 3].map(|claim| {
            let found = finding(run, 1, claim)?;
            Some(format!("{} {}", found.pair.unwrap().base, found.verdict))
        })
    };
    // Ours takes 10 us; the claims are 1.5x over the fastest of PyTorch, and 1x over its flash.
    for (peers, [fastest, over_flash]) in [
        (
            &[flash(20.0), ("torch-cudnn", 16.0, true)][..],
            ["torch-cudnn PASS", "torch-flash PASS"],
        ),
        (
            &[flash(20.0), ("torch-cudnn", 14.0, true)],
            ["torch-cudnn FAIL", "torch-flash PASS"],
        ),
        // Faster and wrong does not count, and others than PyTorch are no rivals of these claims.
        (
            &[flash(20.0), ("torch-cudnn", 5.0, false)],
            ["torch-flash PASS"; 2],
        ),
        (
            &[flash(20.0), ("flash-attn-4", 5.0, true)],
            ["torch-flash PASS"; 2],
        ),
        (&[flash(9.0)], ["torch-flash FAIL"; 2]),
        (&[("torch-cudnn", 16.0, true)], ["torch-cudnn PASS", ""]),
    ] {
        let expected =
            [fastest, over_flash].map(|of| Some(of.to_string()).filter(|of| !of.is_empty()));
        assert_eq!(
            of(&timed(US).peers("mission", 10.0, peers)),
            expected,
            "{peers:?}"
        );
    }
    assert_eq!(
        of(&timed(US).peers("long", 10.0, &[flash(20.0)])),
        [None, None]
    );
    // A slower one of ours does not stand for the family.
    let slower = "stage1-cpasync/cpasync-64x64";
    let mut run = timed(US).peers("mission", 10.0, &[flash(20.0)]);
    let mut variant = run.session.stages[1].variants[0].clone();
    variant.name = "cpasync-64x64".into();
    run.session.stages[1].variants.push(variant);
    let run = run.beside(slower, "mission", 30.0, &[flash(20.0)]);
    assert_eq!(of(&run)[1].as_deref(), Some("torch-flash PASS"));
}

#[test]
fn counters_are_judged_exactly_by_the_emulator_and_within_a_tenth_by_ncu() {
    let bytes = 1_048_576.0;
    let by_ncu = |run: Run, [base, ours]: [f64; 2]| {
        let row = |subject, bytes: f64| {
            Row::new(subject, mission(), Source::Ncu).figure(Metric::GlobalReadBytes, bytes)
        };
        run.with(row(WMMA, base)).with(row(CPASYNC, ours))
    };
    let without = |subject: &str| {
        emulated().without(|row| row.subject.as_str() == subject && row.on == mission())
    };
    let instead = |row: Row| without(CPASYNC).with(row);
    let untraced = || Row::new(CPASYNC, mission(), Source::Emulator);
    let hazard = GateResult::judge(GateId::H1, false, "race at kernel.cu:88");
    let lines = [
        emulated(),
        emulated().counted(CPASYNC, 1_048_577, 0),
        by_ncu(timed(US), [bytes, 1.09 * bytes]),
        by_ncu(timed(US), [bytes, 1.11 * bytes]),
        by_ncu(emulated().counted(CPASYNC, 9, 0), [bytes; 2]),
        by_ncu(emulated(), [0.0, bytes]),
        without(CPASYNC),
        without(WMMA),
        by_ncu(without(WMMA), [bytes; 2]),
        instead(untraced().note("no traced build")),
        instead(untraced().verdict(&hazard)),
    ]
    .map(|run| judged(&run, 1, 1) + "\n");
    insta::assert_snapshot!(lines.concat(), @"
    PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    FAIL: cpasync-32x64 1,048,577 / wmma-qk-32x64 1,048,576 = 1.000x
    PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu PASS: cpasync-32x64 1,142,948 / wmma-qk-32x64 1,048,576 = 1.090x
    FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,163,919 / wmma-qk-32x64 1,048,576 = 1.110x
    FAIL: cpasync-32x64 9 / wmma-qk-32x64 1,048,576 = 0.000x; ncu PASS: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x; ncu FAIL: cpasync-32x64 1,048,576 / wmma-qk-32x64 0
    not measured
    NO DATA: stage0-scalar/wmma-qk-32x64: not counted in this run
    PASS: ncu: cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x
    NO DATA: stage1-cpasync/cpasync-32x64: no traced build
    NO DATA: stage1-cpasync/cpasync-32x64: race at kernel.cu:88
    ");
}

/// A broken prediction is not hidden by a figure that another variant lacks, whichever of them comes first.
#[test]
fn what_is_broken_fails_whatever_is_missing() {
    let mut stages = ladder();
    let family = &mut stages[1].variants;
    family.push(VariantMeta {
        name: "cpasync-64x64".into(),
        ..family[0].clone()
    });
    stages[1].claims[1].relation = Relation::AtMost { bound: 1.0 };
    let names = [
        "stage1-cpasync/cpasync-32x64",
        "stage1-cpasync/cpasync-64x64",
    ];
    for [broken, lacking] in [names, [names[1], names[0]]] {
        let run = emulated()
            .changed(|session| session.stages = stages.clone())
            .counted(broken, 2, 0)
            .with(Row::new(lacking, mission(), Source::Emulator));
        let found = finding(&run, 1, 1).unwrap();
        assert_eq!(found.verdict, Fail, "{lacking} has none: {}", found.reason);
        let run = run.with(Row::new(broken, mission(), Source::Emulator));
        assert_eq!(finding(&run, 1, 1).unwrap().verdict, NoData);
    }
}

#[test]
fn a_bound_holds_at_its_end_and_a_tenth_is_for_exact_ratios_by_ncu_alone() {
    let ratio = |at_least, at_most| Relation::Ratio {
        base: Base {
            stage: String::new(),
            family: String::new(),
        },
        at_least,
        at_most,
    };
    let (emulator, ncu) = (Source::Emulator, Source::Ncu);
    for (relation, value, base, by, expected) in [
        (ratio(1.0, 1.0), 1.09, Some(1.0), ncu, true),
        (ratio(1.0, 1.0), 1.09, Some(1.0), emulator, false),
        (ratio(0.5, 1.0), 1.05, Some(1.0), ncu, false),
        (ratio(0.5, 1.0), 1.0, Some(1.0), ncu, true),
        (ratio(0.5, 1.0), 0.7, None, ncu, false),
        (Relation::AtLeast { bound: 2.0 }, 2.0, None, ncu, true),
        (Relation::AtLeast { bound: 2.0 }, 1.99, None, ncu, false),
        (Relation::AtMost { bound: 2.0 }, 2.0, None, ncu, true),
        (Relation::AtMost { bound: 2.0 }, f64::NAN, None, ncu, false),
    ] {
        assert_eq!(
            holds(&relation, value, base, by),
            expected,
            "{relation:?} {value} {by}"
        );
    }
}

/// Claims of one figure each, of every kind of relation and source.
#[test]
fn bounds_hold_where_the_figure_is() {
    let claim = |metric, relation| Claim {
        family: "cpasync".into(),
        metric,
        relation,
        on: Place::claims(Dtype::F16),
        why: String::new(),
    };
    let ratio = |at_least, at_most| Relation::Ratio {
        base: Base {
            stage: "stage0-scalar".into(),
            family: "wmma-qk".into(),
        },
        at_least,
        at_most,
    };
    let at_most = |bound| Relation::AtMost { bound };
    let run = timed(US).counted(CPASYNC, 524_288, 32).built(96, 0);
    let found = |run: &Run, claim: &Claim| {
        let stage = &run.session.stages[1];
        let known = Known::alone(run);
        let (found, _) = evidence(&known, stage, claim, Source::Emulator).unwrap();
        found
    };
    for (metric, relation, expected) in [
        (Metric::GlobalReadBytes, ratio(0.5, 0.5), Pass),
        (Metric::GlobalReadBytes, ratio(0.51, 0.8), Fail),
        (Metric::GlobalReadBytes, ratio(0.3, 0.49), Fail),
        (Metric::GlobalReadBytes, ratio(0.3, f64::NAN), Fail),
        // 0 of 0 is as predicted; 32 of 0 is not, whatever the factor.
        (Metric::SpillBytes, ratio(1.0, 1.0), Pass),
        (Metric::SharedReadConflicts, ratio(0.0, 9.0), Fail),
        (Metric::SharedReadConflictShare, at_most(0.25), Pass),
        (Metric::SharedReadConflictShare, at_most(0.24), Fail),
        (Metric::Registers, at_most(96.0), Pass),
        (Metric::Occupancy, Relation::AtLeast { bound: 0.32 }, Fail),
        (Metric::DynamicSharedBytes, at_most(1.0), NoData),
        (Metric::BarrierStallShare, at_most(0.1), NoData),
    ] {
        let claim = claim(metric, relation);
        let found = found(&run, &claim);
        assert_eq!(found.verdict, expected, "{claim}: {}", found.reason);
    }
    // Of different architectures nothing is compared.
    let mut elsewhere = run.clone();
    let is_ours = |row: &Row| row.subject.as_str() == CPASYNC && row.by == Source::Ptxas;
    let mut ours = run.table.rows().find(|row| is_ours(row)).unwrap().clone();
    if let On::Instance { arch, .. } = &mut ours.on {
        *arch = Some("sm_89".into());
    }
    elsewhere = elsewhere.without(is_ours).with(ours);
    let compiled = found(&elsewhere, &claim(Metric::Registers, ratio(1.0, 1.0)));
    assert_eq!(compiled.verdict, NoData, "{}", compiled.reason);
    let unbuilt = found(&timed(US), &claim(Metric::Registers, at_most(96.0)));
    assert!(
        unbuilt.reason.contains("no GPU code was built"),
        "{unbuilt:?}"
    );
}

/// Variants as `family-preset` of the base and of ours, and what is compared with what.
#[test]
fn presets_are_compared_with_their_own_and_with_no_other() {
    let variants = |family: &str, presets: &[&str], takes: &[Dtype]| -> Vec<VariantMeta> {
        let variant = |preset: &&str| VariantMeta {
            name: format!("{family}-{preset}"),
            family: family.into(),
            kernels: instances(preset, takes),
        };
        presets.iter().map(variant).collect()
    };
    let (all, none) = (Dtype::ALL, [].as_slice());
    let base = |presets: &[&str]| variants("wmma-qk", presets, &all);
    let refused = [variants("wmma-qk", &["16x16"], none), base(&["64x64"])].concat();
    for (base, new, expected) in [
        (
            base(&["32x64", "64x64"]),
            &["64x64", "16x16"],
            Ok("cpasync-64x64 wmma-qk-64x64"),
        ),
        // Without a preset in common, the defaults.
        (
            base(&["32x64", "64x64"]),
            &["16x16", "16x32"],
            Ok("cpasync-16x16 wmma-qk-32x64"),
        ),
        // The base's preset of the same name only where the device can run it on the claims' problem.
        (
            refused,
            &["16x16", "16x32"],
            Ok("cpasync-16x16 wmma-qk-64x64"),
        ),
        (
            vec![],
            &["16x16", "16x32"],
            Err("stage0-scalar has no family wmma-qk"),
        ),
    ] {
        let mut stages = ladder();
        (stages[0].variants, stages[1].variants) = (base, variants("cpasync", new, &all));
        let found = compared(&stages, &stages[1], &stages[1].claims[1]);
        let found = found.map(|found| {
            let [(new, base)] = found[..] else {
                panic!("{}", found.len())
            };
            format!("{} {}", new.name, base.unwrap().1.name)
        });
        assert_eq!(found, expected.map(String::from).map_err(String::from));
    }
}

/// What a device refuses is no base.
#[test]
fn a_base_that_was_not_built_is_named() {
    let run = timed(US)
        .changed(|session| {
            session.stages[0].variants.remove(0);
            session.stages[0].refused.push(Refusal {
                variant: "scalar-32x64".into(),
                reason: "too large".into(),
            });
        })
        .without(|row| row.subject.as_str() == SCALAR);
    assert_eq!(judged(&run, 0, 0), "not measured");
    assert_eq!(
        judged(&run, 0, 1),
        "NO DATA: stage0-scalar has no family scalar"
    );
}

/// The claim of a family over another, of speed and of counters: of a run on top of a committed session.
#[test]
fn a_status_is_the_runs_or_the_tables_and_stale_where_a_kernel_has_changed() {
    let slow = || timed([24.0, 20.0, 15.0]);
    let reading = || emulated().counted(WMMA, 1_048_577, 0);
    let other = |run: Run| run.changed(|session| session.stages[0].identity = "another".into());
    let untimed = || timed(US).without(|row| row.against.is_some());
    // Of the sources: refuted on the H200, and whatever the GPU.
    let refuted = slow().refuting("P.V dominates").session.stages;
    let misread = reading().refuting("it reads ahead").session.stages;
    let mut elsewhere = refuted.clone();
    elsewhere[0].negatives[0].gpu = Some("NVIDIA L4".into());
    let mut other_words = refuted.clone();
    other_words[0].negatives[0].claim.push('x');
    let as_of =
        |stages: &[StageMeta], run: Run| run.changed(|session| session.stages = stages.to_vec());
    let word = |of: &Claimed| {
        let from = match (of.is_of_run, of.is_stale) {
            (true, _) => "run ",
            (false, true) => "STALE ",
            (false, false) => "",
        };
        let negative = of.negative.as_ref().map_or("", |_| ", refuted");
        let passes = of.is_unexpected().map_or("", |_| ", unexpected");
        let breaks = if of.is_broken() { ", broken" } else { "" };
        format!("{from}{}{negative}{passes}{breaks}", of.finding.verdict)
    };
    let lines = [
        (timed(US), None),
        (slow(), None),
        (emulated(), None),
        (emulated(), Some(timed(US))),
        (emulated(), Some(slow())),
        (emulated(), Some(other(timed(US)))),
        (emulated(), Some(other(slow()))),
        (untimed(), Some(timed(US))),
        (as_of(&refuted, slow()), None),
        (as_of(&refuted, emulated()), Some(slow())),
        (as_of(&refuted, timed(US)), Some(slow())),
        (as_of(&elsewhere, slow()), None),
        (as_of(&other_words, slow()), None),
        (as_of(&misread, timed(US).counted(WMMA, 1_048_577, 0)), None),
        (as_of(&misread, emulated()), None),
        (as_of(&refuted, emulated()), Some(other(timed(US)))),
        (
            emulated().without(|row| row.on == mission()),
            Some(emulated()),
        ),
    ]
    .map(|(run, committed)| {
        let committed: Vec<Run> = committed.into_iter().map(|of| of.named("1")).collect();
        let run = run.named("2");
        let known = Known::of_run(&run, &table(&committed));
        let [speed, counters] = [0, 1].map(|at| word(&claims(&known)[at]));
        format!("{speed}; {counters}\n")
    });
    insta::assert_snapshot!(lines.concat(), @"
    run PASS; run PASS
    run FAIL, broken; run PASS
    NO DATA; run PASS
    PASS; run PASS
    FAIL, broken; run PASS
    STALE PASS; run PASS
    STALE FAIL; run PASS
    PASS; run PASS
    run FAIL, refuted; run PASS
    FAIL, refuted; run PASS
    run PASS, refuted, unexpected; run PASS
    run FAIL, broken; run PASS
    run FAIL, broken; run PASS
    run PASS; run FAIL, refuted
    NO DATA; run PASS, refuted, unexpected
    STALE PASS, refuted; run PASS
    NO DATA; PASS
    ");
    // A figure of another version of a kernel makes the finding stale, whatever the others are of.
    let mut stages = ladder();
    let family = &mut stages[1].variants;
    family.push(VariantMeta {
        name: "cpasync-64x64".into(),
        ..family[0].clone()
    });
    stages[1].claims[1].relation = Relation::AtMost { bound: 1e9 };
    let mut before = stages.clone();
    before[1].identity = "another".into();
    let sessions = table(&[
        as_of(
            &before,
            emulated().counted("stage1-cpasync/cpasync-64x64", 1, 0),
        )
        .named("1"),
        as_of(&stages, emulated()).named("2"),
    ]);
    assert!(claims(&Known::committed(&stages, &sessions))[3].is_stale);
    // What an earlier session left open is not this run's.
    let open = timed([30.0, 20.0, 15.0]);
    let is_ambiguous = |known: &Known<'_>| claims(known)[0].is_ambiguous();
    assert!(is_ambiguous(&Known::alone(&open)));
    let (run, before) = (emulated().named("2"), table(&[open.named("1")]));
    assert!(!is_ambiguous(&Known::of_run(&run, &before)));
    // Stage 1 over stage 0, whose kernel has changed.
    let sessions = [other(timed(US)).named("1")];
    let of_base =
        |stages: &[StageMeta]| word(&claims(&Known::committed(stages, &table(&sessions)))[2]);
    assert_eq!(
        [of_base(&ladder()), of_base(&sessions[0].session.stages)],
        ["STALE PASS", "PASS"]
    );
    // A newer figure of another kernel does not hide one of the kernels as they are.
    let sessions = [timed(US).named("1"), other(slow()).named("2")];
    assert_eq!(
        word(&claims(&Known::committed(&ladder(), &table(&sessions[..1])))[0]),
        "PASS"
    );
    assert_eq!(
        word(&claims(&Known::committed(&ladder(), &table(&sessions)))[0]),
        "STALE FAIL"
    );
}

#[test]
fn a_table_has_one_row_for_each_claim_as_it_is_now() {
    let mut table = table(&[timed([24.0, 20.0, 15.0])]);
    let states = |table: &Table| {
        let rows = table.by(Source::Claim).map(|row| {
            let verdict = row.verdicts.values().next().unwrap().verdict;
            format!("{} {verdict} {}", row.subject, row.note.is_some())
        });
        rows.collect::<Vec<_>>()
    };
    let mut stages = ladder();
    restate(&mut table, &stages);
    assert_eq!(states(&table).len(), 4);
    assert!(states(&table).contains(&"stage0-scalar/wmma-qk FAIL false".into()));
    stages = timed([24.0, 20.0, 15.0])
        .refuting("P.V dominates")
        .session
        .stages;
    stages[1].claims.clear();
    restate(&mut table, &stages);
    assert_eq!(states(&table).len(), 2);
    assert!(states(&table).contains(&"stage0-scalar/wmma-qk FAIL true".into()));
}
