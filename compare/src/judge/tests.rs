//! Reports over several records, and what the committed ones say.

use super::best::{Latency, best_of, by_problem, latency, speedups, variant};
use super::claims::Claimed;
use super::diff::{Change, differences};
use super::state::{State, compiled};
use super::verdict::{Exit, Report, of_differences, report};
use super::*;
use crate::pages::ladder as ladder_page;
use crate::record::meta::{Came, GateScope, Measurable, Progress, Refusal, Scope};
use crate::record::{On, Place, Relation, Row, Source, Subject};
use crate::testing::{
    CPASYNC, GPU, SCALAR, US, VARIANTS, WMMA, committed, emulated, ladder, mission, timed,
};
use common::metric::{LATENCY_CHANGE, Metric};
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, GateResult, Verdict};

fn named(name: &str, record: Record) -> Named {
    (name.to_string(), record)
}

/// What `ask` says of a report of `run` of the literal ladder beside `committed`.
fn of<T>(run: Option<&Record>, committed: &[Named], ask: impl Fn(&Report<'_>) -> T) -> T {
    let stages = run.map_or(ladder(), |run| run.meta.stages.clone());
    ask(&report(Known {
        stages: &stages,
        run: run.map(|run| ("run", run)),
        committed,
    }))
}

fn exit(report: &Report<'_>) -> (Exit, &'static str) {
    (report.overall.exit, report.overall.word)
}

fn place() -> Place {
    Place::claims(Dtype::F16)
}

#[test]
fn a_green_run_passes_with_nothing_to_do() {
    of(Some(&emulated()), &[], |report| {
        assert_eq!(exit(report), (Exit::Pass, "PASS"));
        assert_eq!(report.overall.to_string(), "PASS: 3 variants are green");
        assert_eq!(report.overall.actions, ["No action needed."]);
    });
    of(Some(&timed(US)), &[], |report| {
        assert_eq!(exit(report), (Exit::Pass, "PASS"));
        let sanitize =
            "Complete this record with gate C7 before it is accepted: `compare sanitize`.";
        assert_eq!(report.overall.actions, [sanitize]);
    });
    assert_eq!(
        [Exit::Pass, Exit::Fail, Exit::Usage, Exit::Inconclusive].map(Exit::code),
        [0, 1, 2, 3]
    );
}

#[test]
fn the_first_failure_is_named_and_each_kind_has_its_advice() {
    let hazard = GateResult::judge(GateId::H1, false, "race in block [0, 0, 0]");
    let mut hazardous = emulated();
    *hazardous.summary_mut(SCALAR) = hazardous.summary_mut(SCALAR).clone().verdict(&hazard);
    let mut unlisted = crate::testing::suppressed().sites[0].clone();
    unlisted.listed = None;
    let unlisted = emulated().with(crate::measure::rows::site(&unlisted));
    for (record, line, action) in [
        (
            emulated().failing(WMMA, GateId::C3),
            "1 gate fails, first C3 of stage0-scalar/wmma-qk-32x64",
            "Fix the gates",
        ),
        (
            hazardous,
            "1 gate fails, first H1 of stage0-scalar/scalar-32x64: race in block [0, 0, 0]",
            "Fix the gates",
        ),
        (
            unlisted,
            "1 self-test fails (S1), first stage0-scalar/scalar: __syncthreads stage0-scalar/kernel.cu:159: ",
            "Trust no PASS",
        ),
        (
            timed([24.0, 20.0, 15.0]).clean(),
            "1 claim fails without a negative record, first stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar",
            "Improve the stage",
        ),
        (
            emulated().counted(CPASYNC, 1_048_577, 0),
            "1 claim fails without a negative record, first stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk",
            "Improve the stage",
        ),
    ] {
        of(Some(&record), &[], |report| {
            assert_eq!(exit(report), (Exit::Fail, "FAIL"));
            assert!(
                report.overall.line.starts_with(line),
                "{}",
                report.overall.line
            );
            assert!(
                report.overall.actions[0].starts_with(action) && report.overall.actions.len() == 1
            );
        });
    }
    // Where the record has the failing case, the advice says how to look at it.
    let on = On::Case(place(), "normal:0".into());
    let failed = GateResult::judge(GateId::C3, false, "off");
    let case = Row::new(WMMA, on, Source::Emulator).verdict(&failed);
    let other = On::Case(place(), "normal:1".into());
    let other = Row::new(WMMA, other, Source::Emulator);
    let with_case = emulated().failing(WMMA, GateId::C3).with(other).with(case);
    of(Some(&with_case), &[], |report| {
        let explain = "`compare explain --stage stage0-scalar --variant wmma-qk-32x64 --problem 'mission f16 full normal:0'`";
        assert!(
            report.overall.actions[0].contains(explain),
            "{:?}",
            report.overall.actions
        );
    });
    // A committed refutation settles a claim; one that passes again is announced.
    let negative = [named(
        "a",
        timed([24.0, 20.0, 15.0]).clean().refuting("P.V dominates"),
    )];
    of(
        Some(&timed([24.0, 20.0, 15.0]).clean()),
        &negative,
        |report| assert_eq!(exit(report), (Exit::Pass, "PASS")),
    );
    of(Some(&timed(US).clean()), &negative, |report| {
        assert!(
            report
                .overall
                .actions
                .iter()
                .any(|action| action.contains("passes now although a refutes it"))
        );
    });
    let noisy = timed(US).clean().with(
        Row::new(WMMA, mission(), Source::Gpu)
            .against(SCALAR)
            .figure(Metric::SpeedupP50, 1.6)
            .figure(Metric::Noise, 0.5),
    );
    of(Some(&noisy), &[], |report| {
        assert_eq!(exit(report), (Exit::Inconclusive, "AMBIGUOUS"))
    });
}

/// One pair of records, one verdict: whether COMPARE.md, `compare diff` or `compare accept` asks.
#[test]
fn a_report_and_a_comparison_agree_on_what_changed() {
    let base = || timed(US).clean().built(96, 0);
    for (new, word) in [
        (base(), "SAME"),
        (timed([32.0, 21.0, 15.0]).clean().built(96, 0), "REGRESSION"),
        (timed([30.0, 19.0, 14.0]).clean().built(96, 0), "IMPROVED"),
        (timed([30.0, 21.0, 15.0]).clean().built(96, 0), "MIXED"),
        (
            base().sanitized(WMMA, [Verdict::Pass, Verdict::Fail]),
            "REGRESSION",
        ),
        (
            base().without(|row| row.by == Source::ComputeSanitizer),
            "INCOMPLETE",
        ),
        (timed(US).clean().built(96, 8), "REGRESSION"),
        (base().counted(WMMA, 1_048_576, 0), "SAME"),
        (base().counted(WMMA, 1_048_576, 32), "REGRESSION"),
    ] {
        let direct = differences(&base(), &new, LATENCY_CHANGE);
        of(Some(&new), &[named("old", base())], |report| {
            let since = report.since.as_ref().unwrap();
            assert_eq!(
                (since.name, &since.differences, &since.overall),
                ("old", &direct, &of_differences(&direct))
            );
            assert_eq!(since.overall.word, word);
            let looks = report
                .overall
                .actions
                .iter()
                .any(|action| action.starts_with("Look at "));
            assert_eq!(
                looks,
                since.overall.exit == Exit::Fail,
                "{word}: {:?}",
                report.overall.actions
            );
        });
    }
    let worse = |us, committed: &[Named]| {
        of(Some(&timed(us).clean()), committed, |report| {
            let changes = report.since.as_ref().map(|since| {
                since
                    .differences
                    .iter()
                    .filter(|d| d.change != Change::Same)
            });
            changes.map_or(vec![], |changes| {
                changes
                    .map(|d| {
                        format!(
                            "{} {} {}",
                            format!("{:?}", d.change).to_uppercase(),
                            d.subject,
                            d.what
                        )
                    })
                    .collect()
            })
        })
    };
    let old = [named("old", timed(US).clean())];
    assert_eq!(
        worse([32.0, 21.0, 15.0], &old),
        [format!("WORSE {WMMA} p50")]
    );
    assert_eq!(
        worse([32.0, 20.1, 15.0], &old),
        [""; 0],
        "half a percent is no change"
    );
    assert_eq!(
        worse(
            [32.0, 21.0, 15.0],
            &[named("old", timed(US).on_gpu("NVIDIA L4"))]
        ),
        [""; 0],
        "of another GPU"
    );
}

#[test]
fn the_verdict_on_differences_is_the_worst_of_them() {
    let difference = |change: Change, required: bool| {
        let found = differences(
            &emulated(),
            &emulated().failing(WMMA, GateId::C3),
            LATENCY_CHANGE,
        );
        let mut one = found.into_iter().find(|d| d.what == "gate C3").unwrap();
        (one.change, one.required) = (change, required);
        one
    };
    use Change::{Ambiguous, Better, Differs, Missing, Same, Worse};
    for (changes, exit, word, line) in [
        (
            &[][..],
            Exit::Inconclusive,
            "NO DATA",
            "nothing can be compared",
        ),
        (
            &[(Missing, false)],
            Exit::Inconclusive,
            "NO DATA",
            "nothing can be compared",
        ),
        (
            &[(Missing, true), (Worse, false)],
            Exit::Fail,
            "REGRESSION",
            "1 worse, 1 not compared",
        ),
        (
            &[(Missing, true), (Better, false)],
            Exit::Inconclusive,
            "INCOMPLETE",
            "1 not compared, 1 better",
        ),
        (
            &[(Missing, false), (Better, false)],
            Exit::Pass,
            "IMPROVED",
            "1 not compared, 1 better",
        ),
        (
            &[(Ambiguous, false), (Better, false)],
            Exit::Inconclusive,
            "AMBIGUOUS",
            "1 undecided, 1 better",
        ),
        (
            &[(Worse, false), (Better, false), (Same, false)],
            Exit::Fail,
            "MIXED",
            "1 worse, 1 better, 1 the same",
        ),
        (
            &[(Differs, false), (Same, false), (Same, false)],
            Exit::Pass,
            "SAME",
            "1 neither better nor worse, 2 the same",
        ),
    ] {
        let differences: Vec<_> = changes
            .iter()
            .map(|&(change, required)| difference(change, required))
            .collect();
        let overall = of_differences(&differences);
        assert_eq!(
            (overall.exit, overall.word, &*overall.line),
            (exit, word, line)
        );
        assert_eq!(
            overall.actions == ["No action needed."],
            exit == Exit::Pass,
            "{:?}",
            overall.actions
        );
    }
}

/// What a whole record lacks: the first line of it that is required.
#[test]
fn data_that_a_whole_tier_should_have_is_required() {
    let first = |record: &Record| {
        of(Some(record), &[], |report| {
            let missing = report.missing.iter().find(|missing| missing.required);
            missing.map(|missing| {
                assert_eq!(exit(report), (Exit::Inconclusive, "INCOMPLETE"));
                format!("{}: {}", missing.what, missing.why)
            })
        })
    };
    let without = |gate| {
        let mut record = emulated();
        record.summary_mut(WMMA).verdicts.remove(&gate);
        record
    };
    let unsupported = |subjects: &[&str], refused: bool| {
        let mut record = emulated();
        for subject in subjects {
            let on = On::Case(place(), "normal:0".into());
            record
                .cases
                .push(Row::new(*subject, on.clone(), Source::Emulator).note("too large"));
            record
                .summary_mut(subject)
                .figures
                .insert(Metric::CasesUnsupported, 1_u32.into());
            if refused {
                record
                    .summary_mut(subject)
                    .figures
                    .insert(Metric::Cases, 0_u32.into());
                record.summary_mut(subject).verdicts.clear();
            }
        }
        for subject in VARIANTS
            .iter()
            .filter(|subject| !subjects.contains(subject))
        {
            let row = Row::new(
                *subject,
                On::Case(place(), "normal:0".into()),
                Source::Emulator,
            );
            record
                .cases
                .push(row.verdict(&GateResult::judge(GateId::C1, true, "fine")));
        }
        record
    };
    let e1 = |measurable| {
        let mut record =
            emulated().without(|row| row.subject.as_str() == CPASYNC && row.on == mission());
        record.scope(GateId::E1, measurable);
        record
    };
    let no_e1 = e1(Measurable::No {
        reason: "no traced build".into(),
    });
    let untimed = timed(US).clean().without(|row| row.against.is_some());
    let of_cpasync = "stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk";
    let table = [
        (emulated(), None),
        (
            without(GateId::C5),
            Some(format!("{WMMA}: C5: none of its cases had this evidence")),
        ),
        (
            emulated().changed(|meta| {
                meta.progress = Progress::Partial {
                    finished: 3,
                    planned: 9,
                }
            }),
            Some("6 of 9 cases: the run was interrupted".into()),
        ),
        // Peers are no part of the tier: what of them there is holds.
        (
            emulated().changed(|meta| meta.peers = Some(Came { to: 3, planned: 9 })),
            None,
        ),
        (
            e1(Measurable::Yes),
            Some(format!(
                "{of_cpasync}: not measured in this run, and no committed record has it"
            )),
        ),
        (no_e1.clone(), None),
        (
            untimed,
            Some(
                "stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed"
                    .into(),
            ),
        ),
        // Of each stage, one variant must take each problem.
        (unsupported(&[SCALAR], true), None),
        (
            unsupported(&[CPASYNC], true),
            Some(
                "stage1-cpasync: mission f16 full: no variant supports it; every stage must".into(),
            ),
        ),
        (
            unsupported(&[CPASYNC], true).changed(|meta| {
                meta.scope = Scope::Selected {
                    flags: vec!["--variants x".into()],
                }
            }),
            None,
        ),
        (
            unsupported(&VARIANTS, true).changed(|meta| {
                meta.scope = Scope::Selected {
                    flags: vec!["--variants x".into()],
                }
            }),
            Some("every case: no variant of this run supports any of its problems".into()),
        ),
    ];
    for (at, (record, expected)) in table.into_iter().enumerate() {
        assert_eq!(first(&record), expected, "row {at}");
    }
    assert_eq!(
        of(None, &[], exit),
        (Exit::Inconclusive, "INCOMPLETE"),
        "nothing at all"
    );
    // A committed record of the same kernel stands in; where nothing can be counted, one line says so for all claims.
    of(
        Some(&e1(Measurable::Yes)),
        &[named("a", emulated())],
        |report| assert_eq!(exit(report), (Exit::Pass, "PASS")),
    );
    of(Some(&no_e1), &[], |report| {
        let lines: Vec<_> = report
            .missing
            .iter()
            .filter(|missing| missing.what.contains("E1"))
            .collect();
        assert_eq!((lines.len(), &*lines[0].why), (1, "no traced build"));
        assert!(
            report
                .missing
                .iter()
                .all(|missing| !missing.what.contains("global bytes read"))
        );
    });
    // A claim about what nvcc says is required where R1 is.
    let misses_registers = |measurable| {
        let mut record = emulated().changed(|meta| {
            let claim = &mut meta.stages[1].claims[1];
            claim.metric = Metric::Registers;
            claim.relation = Relation::AtMost { bound: 96.0 };
        });
        record.scope(GateId::R1, measurable);
        of(Some(&record), &[], |report| {
            report
                .required()
                .any(|missing| missing.what.contains("registers"))
        })
    };
    assert!(misses_registers(Measurable::Yes));
    assert!(!misses_registers(Measurable::No {
        reason: "no nvcc".into()
    }));
    // What the sanitizer added is not missing.
    let c7 = GateScope {
        gate: GateId::C7,
        measurable: Measurable::No {
            reason: "not run".into(),
        },
    };
    let says_c7 = |record: Record| {
        let record = record.changed(|meta| meta.gates.push(c7.clone()));
        of(Some(&record), &[], |report| {
            report
                .missing
                .iter()
                .any(|missing| missing.what == "gate C7")
        })
    };
    assert_eq!(
        (says_c7(timed(US)), says_c7(timed(US).clean())),
        (true, false)
    );
}

#[test]
fn the_fastest_green_variant_is_the_best_of_its_stage() {
    let best = |stages: &[StageMeta], run: Option<&Record>, committed: &[Named]| -> Vec<String> {
        let known = Known {
            stages,
            run: run.map(|run| ("run", run)),
            committed,
        };
        stages
            .iter()
            .map(|stage| variant(&known, stage).to_string())
            .collect()
    };
    let [scalar, wmma, cpasync] = ["scalar-32x64", "wmma-qk-32x64", "cpasync-32x64"];
    let fast_scalar = [named("a", timed([19.0, 20.0, 15.0]))];
    let mut changed = ladder();
    changed[0].identity = "changed".into();
    let mut refusing = ladder();
    refusing[0].variants.remove(0);
    assert_eq!(
        best(&ladder(), Some(&emulated()), &[]),
        [wmma, cpasync],
        "without a time, the defaults"
    );
    assert_eq!(
        best(&ladder(), Some(&timed(US)), &fast_scalar),
        [wmma, cpasync],
        "this run's times"
    );
    assert_eq!(
        best(&ladder(), Some(&emulated()), &fast_scalar),
        [scalar, cpasync],
        "else the committed ones"
    );
    assert_eq!(
        best(
            &ladder(),
            Some(&timed([19.0, 20.0, 15.0]).failing(SCALAR, GateId::C3)),
            &[]
        ),
        [wmma, cpasync],
        "what is wrong is not fast"
    );
    assert_eq!(
        best(&changed, Some(&emulated()), &fast_scalar),
        [scalar, cpasync],
        "that of the kernel before is the best guess"
    );
    assert_eq!(
        best(&refusing, Some(&emulated()), &fast_scalar),
        [wmma, cpasync],
        "the device refuses it"
    );
    // Of two that are equal, the first in the order of the rows.
    let tie = timed([20.0, 20.0, 15.0]);
    assert_eq!(
        best(&ladder(), Some(&tie), &[])[0],
        tie.rows
            .iter()
            .find(|row| row.under.is_some())
            .unwrap()
            .subject
            .name()
    );
    let record = timed(US);
    assert_eq!(
        best_of(&record, &ladder()[0], "scalar", &place()).map(|row| row.subject.as_str()),
        Some(SCALAR)
    );
    assert!(
        best_of(
            &record,
            &ladder()[0],
            "scalar",
            &Place::new("mission", Dtype::F16, Mask::Causal)
        )
        .is_none()
    );
    let of_cpasync = record
        .row(&CPASYNC.into(), &mission(), Source::Gpu)
        .unwrap();
    let ratios = speedups(&record, of_cpasync)
        .map(|found| found.map(|(base, ratio)| format!("{base} {ratio:.3}")));
    assert_eq!(
        ratios,
        [Some(format!("{WMMA} 1.334")), Some(format!("{WMMA} 1.334"))]
    );
}

#[test]
fn a_latency_is_the_runs_or_a_committed_one_that_is_marked() {
    let of = |stages: &[StageMeta], run: &Record, committed: &[Named]| {
        let known = Known {
            stages,
            run: Some(("run", run)),
            committed,
        };
        match latency(&known, &WMMA.into(), &place()) {
            Latency::Measured { row, origin, .. } => {
                let us = row.value(Metric::P50).unwrap();
                format!(
                    "{us} {}{}",
                    if origin.is_stale() { "STALE " } else { "" },
                    origin.record().unwrap_or("run")
                )
            }
            Latency::Withheld(why) => why,
            Latency::NoData => "none".into(),
        }
    };
    let mut changed = ladder();
    changed[0].identity = "changed".into();
    let committed = [named("a", timed(US)), named("b", timed([32.0, 22.0, 15.0]))];
    let failed_after = |mut record: Record| {
        let row = record.row_mut(WMMA, &mission(), Source::Gpu);
        *row = row
            .clone()
            .verdict(&GateResult::judge(GateId::C5, false, "they differ"));
        record
    };
    let not_green = format!("{WMMA} is not green on C1-C6 and B1 in the run that timed it");
    for (stages, run, committed, expected) in [
        (
            ladder(),
            timed([32.0, 21.0, 15.0]),
            &committed[..],
            "21.02 run".to_string(),
        ),
        (ladder(), emulated(), &committed, "22.02 b".into()),
        (
            changed.clone(),
            emulated(),
            &committed,
            "22.02 STALE b".into(),
        ),
        (
            ladder(),
            emulated().on_gpu("NVIDIA L4"),
            &committed,
            "22.02 STALE b".into(),
        ),
        (
            ladder(),
            timed(US).failing(WMMA, GateId::C3),
            &committed,
            not_green.clone(),
        ),
        (
            ladder(),
            failed_after(timed(US)),
            &committed,
            format!("{WMMA}: C5 failed on the timed buffers: they differ"),
        ),
        (
            ladder(),
            emulated(),
            &[named("c", timed(US).failing(WMMA, GateId::B1))],
            "none".into(),
        ),
        (
            ladder(),
            emulated().changed(|meta| meta.device = "sm_89".parse().ok()),
            &committed,
            "none".into(),
        ),
    ] {
        assert_eq!(of(&stages, &run, committed), expected);
    }
}

#[test]
fn a_limited_ladder_has_no_figure_of_another_device() {
    let earlier = [named("20261120-h200", timed([12.0, 20.0, 15.0]))];
    let refusing = emulated()
        .without(|row| row.subject.as_str() == SCALAR)
        .changed(|meta| {
            meta.stages[0].variants.remove(0);
            meta.stages[0].claims.clear();
            meta.stages[0].refused.push(Refusal {
                variant: "scalar-32x64".into(),
                reason: "too large".into(),
            });
        });
    let limited = refusing
        .clone()
        .changed(|meta| meta.device = "sm_89".parse().ok());
    for (run, has_figures, line) in [
        (refusing, true, "2 variants are green"),
        (
            limited,
            false,
            "2 variants are green (limited to what sm_89 offers)",
        ),
    ] {
        of(Some(&run), &earlier, |report| {
            assert_eq!(
                (exit(report), &*report.overall.line),
                ((Exit::Pass, "PASS"), line)
            );
            assert_eq!(
                variant(&report.known, &report.known.stages[0]),
                "wmma-qk-32x64"
            );
            assert_eq!(
                matches!(
                    latency(&report.known, &WMMA.into(), &place()),
                    Latency::Measured { .. }
                ),
                has_figures
            );
            assert_eq!(!by_problem(&report.known).is_empty(), has_figures);
        });
    }
}

#[test]
fn without_a_run_the_newest_committed_record_that_timed_something_is_the_subject() {
    let records = [named("a", timed(US).clean()), named("b", emulated())];
    of(None, &records, |report| {
        assert_eq!(
            (report.known.subject().map(|(name, _)| name), exit(report)),
            (Some("a"), (Exit::Pass, "PASS"))
        );
    });
    of(None, &records[1..], |report| {
        assert_eq!(report.known.subject().map(|(name, _)| name), Some("b"))
    });
    let stages: Vec<StageMeta> = ladder()
        .into_iter()
        .map(|stage| StageMeta {
            identity: "new".into(),
            ..stage
        })
        .collect();
    let overall = report(Known {
        stages: &stages,
        run: None,
        committed: &records,
    })
    .overall;
    assert_eq!(
        (overall.exit, overall.word, &*overall.line),
        (
            Exit::Pass,
            "STALE",
            "3 variants were measured on other versions of their kernels, first stage0-scalar/scalar-32x64"
        )
    );
}

#[test]
fn fast_p_counts_problems_on_which_ours_is_right_and_faster_than_the_default() {
    let on = |record: Record, shape: &str, us: f64, is_right| {
        record.peers(
            shape,
            10.0,
            &[("torch-default", us, is_right), ("torch-math", 99.0, true)],
        )
    };
    let mut record = [
        ("mission", 25.0, true),
        ("long", 16.0, true),
        ("stretch", 14.9, true),
        ("wide", 9.0, true),
    ]
    .into_iter()
    .fold(timed(US), |record, (shape, us, is_right)| {
        on(record, shape, us, is_right)
    });
    let fast = |record: &Record| {
        of(Some(record), &[], |report| {
            peers::beside(&report.known).unwrap().fast.unwrap()
        })
    };
    let of_four = |faster: [usize; 3]| peers::FastP {
        of: 4,
        faster: [1.0, 1.5, 2.0].into_iter().zip(faster).collect(),
    };
    assert_eq!(
        fast(&record),
        of_four([0, 0, 0]),
        "one case is fewer than five inputs"
    );
    record
        .summary_mut(CPASYNC)
        .figures
        .insert(Metric::Cases, 5_u32.into());
    assert_eq!(fast(&record), of_four([3, 2, 1]));
    // A default that is wrong has no ratio; a kernel that is wrong is not fast.
    let wrong_default = on(record.clone(), "big", 50.0, false);
    assert_eq!(fast(&wrong_default).of, 5);
    assert_eq!(
        fast(&record.clone().failing(CPASYNC, GateId::C5)),
        of_four([0, 0, 0])
    );
    // Problems beside the fastest right peer; a run that never asked shows the committed session, and marks another kernel's.
    let fastest = |report: &Report<'_>| -> Vec<String> {
        let beside = peers::beside(&report.known).unwrap();
        let words = |problem: &peers::Problem<'_>| {
            let fastest = problem
                .fastest
                .as_ref()
                .map(|(peer, _)| peer.subject.to_string());
            format!("{} {}", problem.place, fastest.unwrap_or_default())
        };
        beside.problems.iter().map(words).collect()
    };
    assert!(
        of(Some(&wrong_default), &[], fastest).contains(&"big f16 full torch-math".to_string())
    );
    let committed = [named("a", record)];
    let origin = |run: &Record| {
        of(Some(run), &committed, |report| {
            peers::beside(&report.known).unwrap().origin
        })
    };
    assert_eq!(
        origin(&timed(US)),
        Origin::Committed {
            record: "a".into(),
            gpu: GPU.into(),
            stale: None,
        }
    );
    assert!(origin(&timed(US).changed(|meta| meta.stages[1].identity = "new".into())).is_stale());
    assert!(of(Some(&timed(US)), &[], |report| peers::beside(
        &report.known
    )
    .is_none()));
}

#[test]
fn what_the_newest_session_with_peers_lacks_is_of_an_older_one() {
    let beside = |record: Record, shape: &str, theirs: f64| {
        record.peers(shape, 10.0, &[("torch-default", theirs, true)])
    };
    // What was timed alone is not beside a peer.
    let alone = Row::new(
        CPASYNC,
        On::Problem(Place::new("long", Dtype::F16, Mask::Full)),
        Source::Peers,
    );
    let older = beside(beside(timed(US), "mission", 30.0), "big", 5.0)
        .with(alone.figure(Metric::PeakShare, 0.5));
    let committed = [
        named("older", older),
        named("newer", beside(timed(US), "mission", 20.0)),
    ];
    let said = |stages: &[StageMeta]| {
        let known = Known {
            stages,
            run: None,
            committed: &committed,
        };
        let beside = peers::beside(&known).unwrap();
        let of_problem = |problem: &peers::Problem<'_>| {
            let record = problem.origin.record().unwrap_or("the run");
            format!("{} of {record}", problem.place)
        };
        let problems: Vec<_> = beside.problems.iter().map(of_problem).collect();
        (problems, ladder_page::score(&known).unwrap().to_string())
    };
    let (problems, score) = said(&ladder());
    assert_eq!(
        problems,
        ["mission f16 full of newer", "big f16 full of older"]
    );
    assert!(
        score.contains("on 1 of 2 problems and slower on 1"),
        "{score}"
    );
    let lacks = "Not in the newest session: big f16 full from record older (NVIDIA H200).";
    assert!(score.contains(lacks), "{score}");
    // Of another GPU, and where the newest found ours wrong, there is nothing to show.
    let wrong = |mut record: Record| {
        let big = On::Problem(Place::new("big", Dtype::F16, Mask::Full));
        let is_wrong = GateResult::judge(GateId::C2, false, "wrong");
        let ours = record.row_mut(CPASYNC, &big, Source::Peers);
        ours.judge(GateId::C2, (&is_wrong).into());
        record
    };
    let problems = |older: Record, newer: Record| {
        let committed = [named("older", older), named("newer", newer)];
        of(None, &committed, |report| {
            peers::beside(&report.known).unwrap().problems.len()
        })
    };
    let (mission, big) = (
        || beside(timed(US), "mission", 20.0),
        |record| beside(record, "big", 5.0),
    );
    assert_eq!(problems(big(mission()), mission()), 2);
    assert_eq!(problems(big(mission()), wrong(big(mission()))), 1);
    assert_eq!(problems(big(mission()).on_gpu("NVIDIA L4"), mission()), 1);
    let mut changed = ladder();
    changed[1].identity = "changed".into();
    let (_, score) = said(&changed);
    let lacks = "Not in the newest session: big f16 full from record older (NVIDIA H200; STALE: ";
    assert!(
        score.starts_with("STALE") && score.contains(lacks),
        "{score}"
    );
}

#[test]
fn registers_are_those_of_what_runs_on_the_gpu() {
    let of_another = On::Instance {
        dtype: Dtype::F16,
        head_dim: 64,
        arch: Some("sm_80".into()),
    };
    let row = Row::new(WMMA, of_another, Source::Ptxas).figure(Metric::Registers, 40_u32);
    let mut built = timed(US).built(96, 0);
    built.rows.insert(0, row);
    assert_eq!(
        compiled(&built, &WMMA.into(), Metric::Registers),
        Some(96.0)
    );
}

#[test]
fn a_row_of_the_gpu_without_a_median_is_no_latency() {
    let mut record = timed(US);
    let row = record.row_mut(WMMA, &mission(), Source::Gpu);
    row.figures.remove(&Metric::P50);
    assert_eq!(best::time(&record, &WMMA.into(), &place()), None);
}

/// The committed records: what the ladder has come to, word for word.
#[test]
fn the_committed_records_say_what_was_measured() {
    let all = committed();
    for (name, record) in &all {
        let bytes: usize = record
            .committed()
            .iter()
            .map(|(_, bytes)| bytes.len())
            .sum();
        // 0.8 MB for six stages, and what accepts a record is a diff of 1 MB at most.
        let most = (800_000 * record.meta.stages.len().max(6) / 6).min(1_000_000);
        assert!(bytes <= most, "{name}: {bytes}");
        assert!(record.cases.is_empty() && record.samples.is_empty());
    }
    // Of the three that were made before rows, the ladder, claims and verdicts that they had then.
    let records: Vec<Named> = all.into_iter().take(3).collect();
    let (_, newest) = records.last().unwrap();
    let known = Known {
        stages: &newest.meta.stages,
        run: None,
        committed: &records,
    };
    let best: Vec<String> = (known.stages.iter())
        .map(|stage| {
            let name = variant(&known, stage);
            let Latency::Measured { row, origin, .. } =
                latency(&known, &Subject::variant(&stage.id, name), &place())
            else {
                panic!("{name}")
            };
            assert!(!origin.is_stale());
            format!("{name} {}", row.value(Metric::P50).unwrap())
        })
        .collect();
    assert_eq!(
        best,
        [
            "wmma-qk-32x128-k2 16.99",
            "cpasync-32x256-k2 15.57",
            "simd-pv-32x256-k2 14.72",
            "wmma-pv-32x128-k2 9.537",
            "warpspec-32x128-k2 9.312",
            "swizzle-32x256-k4 5.274",
        ]
    );
    let report = report(known);
    assert_eq!(exit(&report), (Exit::Pass, "PASS"), "{}", report.overall);
    assert_eq!(
        report
            .states
            .iter()
            .filter(|(_, state)| *state == State::Green)
            .count(),
        37
    );
    assert_eq!(
        known.stages.iter().flat_map(StageMeta::subjects).count(),
        37
    );
    assert_eq!(
        report
            .claims
            .iter()
            .filter(|of| of.refuted.is_some() && of.finding.verdict != Verdict::Pass)
            .count(),
        8
    );
    let is_open = |of: &&Claimed| of.verdict() == Some(Verdict::Ambiguous) && !of.origin.is_stale();
    let open: Vec<_> = report.claims.iter().filter(is_open).collect();
    assert_eq!(open.len(), 2, "{open:?}");
    let beside = peers::beside(&known).unwrap();
    let over = |mask: Mask| {
        let problem = beside
            .problems
            .iter()
            .find(|p| p.place == Place::new("mission", Dtype::F16, mask))
            .unwrap();
        problem
            .fastest
            .as_ref()
            .and_then(|(_, pair)| pair.value(Metric::SpeedupP50))
            .unwrap()
    };
    assert_eq!(
        [Mask::Full, Mask::Causal].map(|mask| format!("{:.3}", over(mask))),
        ["1.747", "1.775"]
    );
}
