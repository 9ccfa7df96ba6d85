use super::*;
use crate::judge::Named;
use crate::record::Place;
use crate::record::meta::Refusal;
use crate::testing::{CPASYNC, GPU, SCALAR, US, WMMA, emulated, ladder, mission, timed};
use Verdict::{Ambiguous, Fail, NoData, Pass};
use common::claim::Base;
use common::problem::Dtype;
use common::verdict::{GateId, GateResult};

/// The pair of wmma-qk over scalar with these speedups of p50, p90 and mean, each 1 % wide.
fn pair(speedups: [f64; 3]) -> Row {
    let metrics = [Metric::SpeedupP50, Metric::SpeedupP90, Metric::SpeedupMean];
    let row = Row::new(WMMA, mission(), Source::Gpu)
        .against(SCALAR)
        .figure(Metric::Noise, 0.003);
    metrics
        .into_iter()
        .zip(speedups)
        .fold(row, |row, (metric, ratio)| {
            row.figure(
                metric,
                (ratio, ratio - 0.005 * ratio, ratio + 0.005 * ratio),
            )
        })
}

fn judged(record: &Record, stage: usize, claim: usize) -> Option<(Verdict, String)> {
    let stage = &record.meta.stages[stage];
    judge(record, stage, &stage.claims[claim]).map(|finding| (finding.verdict, finding.reason))
}

/// The claim of speed is 1.5x.
#[test]
fn each_figure_must_reach_the_claim_with_its_whole_interval() {
    const NAN: f64 = f64::NAN;
    for (speedups, expected) in [
        ([1.6, 1.6, 1.6], Pass),
        ([1.508, 1.508, 1.508], Pass),
        ([1.5, 1.6, 1.6], Ambiguous),
        ([1.6, 1.6, 1.501], Ambiguous),
        ([1.6, 1.4, 1.6], Fail),
        ([1.5, 1.4, 1.6], Fail),
        ([NAN, 1.6, 1.6], Ambiguous),
    ] {
        let (verdict, reason) = judged(&timed(US).with(pair(speedups)), 0, 0).unwrap();
        assert_eq!(verdict, expected, "{speedups:?}: {reason}");
    }
    let (_, reason) = judged(&timed(US).with(pair([1.6, 1.4, 1.6])), 0, 0).unwrap();
    let words = "p50 1.600x [1.592, 1.608], p90 1.400x [1.393, 1.407], mean 1.600x [1.592, 1.608], claim 1.50x";
    assert_eq!(reason, words);
    // The interval is 6 % above the claim.
    for (noise, expected) in [
        (0.019, Pass),
        (0.05, Pass),
        (0.07, Ambiguous),
        (NAN, Ambiguous),
    ] {
        assert_eq!(
            judged(
                &timed(US).with(pair([1.6; 3]).figure(Metric::Noise, noise)),
                0,
                0
            )
            .unwrap()
            .0,
            expected
        );
    }
    let impossible = GateResult::judge(GateId::L1, false, "impossible: below 3 us");
    let (verdict, reason) =
        judged(&timed(US).with(pair([1.6; 3]).verdict(&impossible)), 0, 0).unwrap();
    assert_eq!(
        (verdict, &*reason),
        (Fail, "impossible: below 3 us"),
        "whatever the ratio"
    );
    assert_eq!(
        judged(&timed(US).without(|row| row.against.is_some()), 0, 0),
        None,
        "not timed side by side"
    );
    assert_eq!(judged(&emulated(), 0, 0), None);
}

#[test]
fn a_claim_is_about_the_fastest_green_variants_with_its_own_element_type() {
    let k2 = "stage0-scalar/wmma-qk-32x64-k2";
    let mut record = timed(US).with(pair([1.6; 3]));
    let variant = VariantMeta {
        name: "wmma-qk-32x64-k2".into(),
        ..record.meta.stages[0].variants[1].clone()
    };
    record.meta.stages[0].variants.push(variant);
    let summary = record.summary_mut(WMMA).clone();
    record = record
        .with(Row {
            subject: k2.into(),
            ..summary
        })
        .sampled(k2, mission(), &crate::testing::samples(18.0));
    assert_eq!(
        judged(&record, 0, 0),
        None,
        "the fastest pair was not timed side by side"
    );
    let faster = Row {
        subject: k2.into(),
        ..pair([1.8; 3])
    };
    let both = record.with(faster);
    let of = |record: &Record| {
        let stage = &record.meta.stages[0];
        judge(record, stage, &stage.claims[0])
            .and_then(|found| found.pair)
            .map(|pair| (pair.new.to_string(), pair.speedup))
    };
    assert_eq!(of(&both), Some((k2.to_string(), 1.8)));
    // What is wrong is not fast.
    assert_eq!(
        of(&both.clone().failing(k2, GateId::C2)),
        Some((WMMA.to_string(), 1.6))
    );
    let mut e4m3 = both;
    e4m3.meta.stages[0].claims[0].on = Place::claims(Dtype::E4m3);
    assert_eq!(of(&e4m3), None);
}

#[test]
fn claims_against_peers_are_about_the_fastest_right_rival() {
    let flash = |us| ("torch-flash", us, true);
    // Peers with what they take and whether they are right; ours takes 10 us -> rival and verdict of 1.5x over the fastest of
    // PyTorch, and of 1x over its flash.
    type Claim<'a> = Option<(&'a str, Verdict)>;
    type Case<'a> = (&'a [(&'a str, f64, bool)], [Claim<'a>; 2]);
    let table: [Case<'_>; 6] = [
        (
            &[flash(20.0), ("torch-cudnn", 16.0, true)],
            [Some(("torch-cudnn", Pass)), Some(("torch-flash", Pass))],
        ),
        (
            &[flash(20.0), ("torch-cudnn", 14.0, true)],
            [Some(("torch-cudnn", Fail)), Some(("torch-flash", Pass))],
        ),
        // Faster and wrong does not count, and others than PyTorch are no rivals of these claims.
        (
            &[flash(20.0), ("torch-cudnn", 5.0, false)],
            [Some(("torch-flash", Pass)), Some(("torch-flash", Pass))],
        ),
        (
            &[flash(20.0), ("flash-attn-4", 5.0, true)],
            [Some(("torch-flash", Pass)), Some(("torch-flash", Pass))],
        ),
        (
            &[flash(9.0)],
            [Some(("torch-flash", Fail)), Some(("torch-flash", Fail))],
        ),
        (
            &[("torch-cudnn", 16.0, true)],
            [Some(("torch-cudnn", Pass)), None],
        ),
    ];
    for (peers, expected) in table {
        let record = timed(US).peers("mission", 10.0, peers);
        let stage = &record.meta.stages[1];
        let found = [2, 3].map(|claim| judge(&record, stage, &stage.claims[claim]));
        let found = found
            .map(|found| found.map(|found| (found.pair.unwrap().base.to_string(), found.verdict)));
        assert_eq!(
            found,
            expected.map(|of| of.map(|(peer, verdict)| (peer.to_string(), verdict))),
            "{peers:?}"
        );
    }
    let elsewhere = timed(US).peers("long", 10.0, &[flash(20.0)]);
    assert!(
        [2, 3]
            .iter()
            .all(|&claim| judged(&elsewhere, 1, claim).is_none())
    );
}

/// The counters of cpasync-32x64 as ncu has them.
fn by_ncu(record: Record, bytes: [f64; 2]) -> Record {
    let row = |subject, bytes: f64| {
        Row::new(subject, mission(), Source::Ncu).figure(Metric::GlobalReadBytes, bytes)
    };
    record
        .with(row(WMMA, bytes[0]))
        .with(row(CPASYNC, bytes[1]))
}

#[test]
fn counters_are_judged_exactly_by_the_emulator_and_within_a_tenth_by_ncu() {
    let bytes = 1_048_576.0;
    for (record, expected, words) in [
        (
            emulated(),
            Pass,
            "cpasync-32x64 1,048,576 / wmma-qk-32x64 1,048,576 = 1.000x",
        ),
        (
            emulated().counted(CPASYNC, 1_048_577, 0),
            Fail,
            "cpasync-32x64 1,048,577 / wmma-qk-32x64 1,048,576 = 1.000x",
        ),
        (
            by_ncu(timed(US), [bytes, 1.09 * bytes]),
            Pass,
            "1.000x; ncu PASS: cpasync-32x64 1,142,948",
        ),
        (
            by_ncu(timed(US), [bytes, 1.11 * bytes]),
            Fail,
            "1.000x; ncu FAIL: cpasync-32x64 1,163,919",
        ),
        (
            by_ncu(emulated().counted(CPASYNC, 9, 0), [bytes; 2]),
            Fail,
            "ncu PASS",
        ),
        (
            by_ncu(emulated().counted(CPASYNC, 1_048_576, 0), [0.0, bytes]),
            Fail,
            "ncu FAIL",
        ),
    ] {
        let (verdict, reason) = judged(&record, 1, 1).unwrap();
        assert!(
            verdict == expected && reason.contains(words),
            "{verdict}: {reason}"
        );
    }
    let without = |subject: &str| {
        emulated().without(|row| row.subject.as_str() == subject && row.on == mission())
    };
    assert_eq!(judged(&without(CPASYNC), 1, 1), None);
    assert_eq!(
        judged(&without(WMMA), 1, 1),
        Some((NoData, format!("{WMMA}: not counted in this run")))
    );
    let (verdict, reason) = judged(&by_ncu(without(WMMA), [bytes; 2]), 1, 1).unwrap();
    assert!(verdict == Pass && reason.starts_with("ncu: "), "{reason}");
    let not_traced = without(CPASYNC)
        .with(Row::new(CPASYNC, mission(), Source::Emulator).note("no traced build"));
    assert_eq!(
        judged(&not_traced, 1, 1),
        Some((NoData, format!("{CPASYNC}: no traced build")))
    );
    let hazard = GateResult::judge(GateId::H1, false, "race at kernel.cu:88");
    let hazardous =
        without(CPASYNC).with(Row::new(CPASYNC, mission(), Source::Emulator).verdict(&hazard));
    assert_eq!(
        judged(&hazardous, 1, 1),
        Some((NoData, format!("{CPASYNC}: race at kernel.cu:88")))
    );
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
    let record = timed(US).counted(CPASYNC, 524_288, 32).built(96, 0);
    for (metric, relation, expected) in [
        (Metric::GlobalReadBytes, ratio(0.5, 0.5), Pass),
        (Metric::GlobalReadBytes, ratio(0.51, 0.8), Fail),
        (Metric::GlobalReadBytes, ratio(0.3, 0.49), Fail),
        (Metric::GlobalReadBytes, ratio(0.3, f64::NAN), Fail),
        // 0 of 0 is as predicted; 32 of 0 is not, whatever the factor.
        (Metric::SpillBytes, ratio(1.0, 1.0), Pass),
        (Metric::SharedReadConflicts, ratio(0.0, 9.0), Fail),
        (
            Metric::SharedReadConflictShare,
            Relation::AtMost { bound: 0.25 },
            Pass,
        ),
        (
            Metric::SharedReadConflictShare,
            Relation::AtMost { bound: 0.24 },
            Fail,
        ),
        (Metric::Registers, Relation::AtMost { bound: 96.0 }, Pass),
        (Metric::Occupancy, Relation::AtLeast { bound: 0.32 }, Fail),
        (
            Metric::DynamicSharedBytes,
            Relation::AtMost { bound: 1.0 },
            NoData,
        ),
        (
            Metric::BarrierStallShare,
            Relation::AtMost { bound: 0.1 },
            NoData,
        ),
    ] {
        let claim = claim(metric, relation);
        let finding = evidence(&record, &record.meta.stages[1], &claim, Source::Emulator).unwrap();
        assert_eq!(finding.verdict, expected, "{claim}: {}", finding.reason);
    }
    let unbuilt = claim(Metric::Registers, Relation::AtMost { bound: 96.0 });
    let found = evidence(&timed(US), &ladder()[1], &unbuilt, Source::Emulator).unwrap();
    assert_eq!(
        (found.verdict, found.reason),
        (
            NoData,
            format!("{CPASYNC}: no GPU code was built, or its machine code could not be read")
        )
    );
}

/// Variants as `family-preset`; the base's are those of `base`.
#[test]
fn presets_are_compared_with_their_own_and_with_no_other() {
    let variants = |family: &str, presets: &[&str], takes: &[Dtype]| -> Vec<VariantMeta> {
        let variant = |preset: &&str| VariantMeta {
            name: format!("{family}-{preset}"),
            family: family.into(),
            takes_claims: takes.into(),
        };
        presets.iter().map(variant).collect()
    };
    let compared = |base: Vec<VariantMeta>, new: Vec<VariantMeta>| -> Result<Vec<String>, String> {
        let mut stages = ladder();
        (stages[0].variants, stages[1].variants) = (base, new);
        let found = super::compared(&stages, &stages[1], &stages[1].claims[1])?;
        let words = |(new, base): Compared<'_>| {
            format!("{} {}", new.name, base.map_or("", |(_, base)| &base.name))
        };
        Ok(found.into_iter().map(words).collect())
    };
    let both = Dtype::ALL;
    let (wmma, new) = (
        variants("wmma-qk", &["32x64", "64x64"], &both),
        variants("cpasync", &["64x64", "16x16"], &both),
    );
    assert_eq!(
        compared(wmma.clone(), new),
        Ok(vec!["cpasync-64x64 wmma-qk-64x64".into()])
    );
    // Without a preset in common, the defaults.
    let other = variants("cpasync", &["16x16", "16x32"], &both);
    assert_eq!(
        compared(wmma, other.clone()),
        Ok(vec!["cpasync-16x16 wmma-qk-32x64".into()])
    );
    // The base's preset of the same name, where the device can run it on the claims' problem.
    let small = variants("wmma-qk", &["16x16"], &[]);
    let base = [small, variants("wmma-qk", &["64x64"], &both)].concat();
    assert_eq!(
        compared(base, other.clone()),
        Ok(vec!["cpasync-16x16 wmma-qk-64x64".into()])
    );
    assert_eq!(
        compared(vec![], other),
        Err("stage0-scalar has no family wmma-qk".into())
    );
}

fn statuses(run: Option<&Record>, committed: &[Named]) -> Vec<Claimed> {
    let stages = ladder();
    let known = Known {
        stages: &stages,
        run: run.map(|run| ("run", run)),
        committed,
    };
    claims(&known)
}

fn word(of: &Claimed) -> String {
    let verdict = of.finding.verdict;
    match &of.refuted {
        Some(by) if verdict == Pass => format!("PASS although {}", by.record),
        Some(by) => format!("NEGATIVE {}", by.record),
        None if verdict == NoData => "NO DATA".into(),
        None if of.origin.is_stale() => format!("STALE {verdict}"),
        None => format!("{} {verdict}", of.origin.record().unwrap_or("run")),
    }
}

/// The ladder's first claim, of speed, and its second, of counters: of a run beside one committed record.
#[test]
fn a_status_is_the_runs_or_a_records_of_the_same_kernel_and_gpu() {
    let slow = || timed([24.0, 20.0, 15.0]);
    let negative = || slow().refuting("P.V dominates");
    let reading = || emulated().counted(WMMA, 1_048_577, 0);
    let other = |record: Record| record.changed(|meta| meta.stages[0].identity = "another".into());
    let table = [
        (Some(timed(US)), None, "run PASS", "run PASS"),
        (Some(slow()), None, "run FAIL", "run PASS"),
        (Some(emulated()), None, "NO DATA", "run PASS"),
        (Some(emulated()), Some(timed(US)), "a PASS", "run PASS"),
        (
            Some(emulated()),
            Some(other(timed(US))),
            "STALE PASS",
            "run PASS",
        ),
        (
            Some(
                timed(US)
                    .on_gpu("NVIDIA L4")
                    .without(|row| row.against.is_some()),
            ),
            Some(timed(US)),
            "STALE PASS",
            "run PASS",
        ),
        (None, Some(slow()), "a FAIL", "a PASS"),
        // A refutation is of one version of the kernel on one GPU, and in these words.
        (Some(slow()), Some(negative()), "NEGATIVE a", "run PASS"),
        (Some(emulated()), Some(negative()), "NEGATIVE a", "run PASS"),
        (None, Some(negative()), "NEGATIVE a", "a PASS"),
        (
            Some(slow()),
            Some(other(negative())),
            "run FAIL",
            "run PASS",
        ),
        (
            Some(slow()),
            Some(negative().on_gpu("NVIDIA L4")),
            "run FAIL",
            "run PASS",
        ),
        (
            Some(slow()),
            Some(
                negative()
                    .changed(|meta| meta.negative.as_mut().unwrap().claims[0].claim.push('x')),
            ),
            "run FAIL",
            "run PASS",
        ),
        (
            Some(timed(US)),
            Some(negative()),
            "PASS although a",
            "run PASS",
        ),
        // Counters of the emulator are the same on every machine.
        (
            Some(timed(US).counted(WMMA, 1_048_577, 0)),
            Some(reading().refuting("it reads ahead")),
            "run PASS",
            "NEGATIVE a",
        ),
        (
            Some(emulated()),
            Some(reading().refuting("it reads ahead")),
            "NO DATA",
            "PASS although a",
        ),
        (
            Some(reading()),
            Some(other(reading().refuting("it reads ahead"))),
            "NO DATA",
            "run FAIL",
        ),
        (
            Some(emulated().without(|row| row.on == mission())),
            Some(emulated()),
            "NO DATA",
            "a PASS",
        ),
    ];
    for (at, (run, committed, speed, counters)) in table.into_iter().enumerate() {
        let committed: Vec<Named> = committed
            .map(|record| ("a".to_string(), record))
            .into_iter()
            .collect();
        let found = statuses(run.as_ref(), &committed);
        assert_eq!(
            (word(&found[0]), word(&found[1])),
            (speed.to_string(), counters.to_string()),
            "row {at}"
        );
    }
    // A stale figure stands only where there is no other.
    let both = [
        ("a".to_string(), timed(US)),
        ("b".to_string(), other(slow())),
    ];
    assert_eq!(word(&statuses(None, &both)[0]), "a PASS");
    assert_eq!(word(&statuses(None, &both[1..])[0]), "STALE FAIL");
    // And it breaks nothing.
    let stages = ladder();
    let is_broken = |committed: &[Named]| {
        let known = Known {
            stages: &stages,
            run: None,
            committed,
        };
        claims(&known)[0].is_broken()
    };
    let of_now = [("c".to_string(), slow())];
    assert_eq!((is_broken(&both[1..]), is_broken(&of_now)), (false, true));
}

/// The ladder's third claim: stage 1 over stage 0, whose kernel changes.
#[test]
fn a_claim_over_a_base_that_has_changed_is_stale_and_so_is_its_refutation() {
    let other = |record: Record| record.changed(|meta| meta.stages[0].identity = "another".into());
    let of = |run: Option<&Record>, record: Record| {
        word(&statuses(run, &[("a".to_string(), record)])[2])
    };
    assert_eq!(of(None, timed(US)), "a PASS");
    assert_eq!(of(None, other(timed(US))), "STALE PASS");
    let slow = || timed([30.0, 20.0, 19.5]);
    let run = slow();
    assert_eq!(of(Some(&run), slow().refuting("they wait")), "NEGATIVE a");
    assert_eq!(
        of(Some(&run), other(slow().refuting("they wait"))),
        "run FAIL"
    );
}

#[test]
fn a_newer_record_in_which_a_refuted_claim_holds_is_believed() {
    let records = [
        (
            "a".to_string(),
            timed([24.0, 20.0, 15.0]).refuting("P.V dominates"),
        ),
        ("b".to_string(), timed(US)),
    ];
    assert_eq!(word(&statuses(None, &records)[0]), "b PASS");
}

#[test]
fn what_a_device_refuses_is_no_base() {
    let mut record = timed(US).changed(|meta| {
        meta.stages[0].variants.remove(0);
        meta.stages[0].refused.push(Refusal {
            variant: "scalar-32x64".into(),
            reason: "too large".into(),
        });
    });
    record = record.without(|row| row.subject.as_str() == SCALAR);
    assert_eq!(judged(&record, 0, 0), None);
    assert_eq!(
        judged(&record, 0, 1),
        Some((NoData, "stage0-scalar has no family scalar".into()))
    );
    assert_eq!(record.meta.machine.gpu.name(), Some(GPU));
}
