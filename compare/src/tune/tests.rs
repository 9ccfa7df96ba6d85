use super::*;
use crate::measure::builds::StageBuild;
use crate::measure::plan::{Plan, PlannedTiming};
use crate::record::StoreError;
use crate::record::meta::{Gpu, Refusal};
use crate::record::tuning_cache::{Entry, KEPT, Known, Ranked};
use crate::record::{Judged, On, tuning_cache};
use crate::testing::{CPASYNC, GPU, US, WMMA, builds, instance, mission as on_mission, timed};
use clap::Parser;
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::{Dtype, Mask, Problem, claims_problem};
use common::verdict::GateResult;

fn request(list: &[&str]) -> plan::Request {
    crate::cli::Cli::parse_from(["compare"].iter().chain(list))
        .run
        .request
}

fn tune_args(list: &[&str]) -> TuneArgs {
    match crate::cli::Cli::parse_from(["compare", "tune"].iter().chain(list)).command {
        Some(crate::cli::Command::Tune(args)) => args,
        other => panic!("{other:?}"),
    }
}

fn planned(list: &[&str]) -> Plan {
    let plan::Request {
        chosen, problems, ..
    } = request(list);
    plan::tune(&builds(), &chosen, &problems).unwrap()
}

/// Both stages of the literal ladder on mission, f16, full mask.
fn mission() -> Plan {
    planned(&["--shapes", "mission", "--dtypes", "f16", "--masks", "full"])
}

/// A run on a GPU, each instance compiled to code of its own.
fn built() -> Record {
    timed(US).built(96, 0)
}

fn lines(rankings: &[Ranking]) -> Vec<String> {
    let ranked = |ranking: &Ranking| {
        ranking
            .entry
            .best
            .iter()
            .map(|row| row.variant.clone())
            .collect::<Vec<_>>()
            .join(" ")
    };
    let refused = |ranking: &Ranking| {
        let words = ranking.refused.iter().map(|refused| {
            format!(
                "{} {}: {}",
                if refused.is_wrong { "FAIL" } else { "NO DATA" },
                refused.variant,
                refused.reason
            )
        });
        words.collect::<Vec<_>>().join("; ")
    };
    rankings
        .iter()
        .map(|ranking| {
            format!(
                "{}: {} | {}",
                ranking.entry.stage,
                ranked(ranking),
                refused(ranking)
            )
        })
        .collect()
}

#[test]
fn every_preset_is_gated_by_t0_and_on_what_it_is_timed_on() {
    let plan = mission();
    assert_eq!(plan.timings.len(), 3);
    // T0 and mission, whether or not the variant is the stage's default.
    let of = |variant: &str| {
        plan.cases
            .iter()
            .filter(|case| case.subject.name() == variant)
            .count()
    };
    assert_eq!(
        (of("scalar-32x64"), of("cpasync-32x64")),
        (9, 9),
        "eight of T0 are of f16 with the full mask"
    );
    let whole = planned(&["--shapes", "mission"]);
    assert_eq!(
        whole
            .cases
            .iter()
            .filter(|case| case.subject.name() == "scalar-32x64")
            .count(),
        4 + 10 + 6 + 10
    );
    assert_eq!(whole.timings.len(), 3 * 4);
    let default = planned(&[]);
    let t2 = plan::plan(&builds(), &request(&[]), BackendKind::Cuda).unwrap();
    let tuned = |timing: &PlannedTiming| default.timings.contains(timing);
    assert!(
        default.timings.len() == t2.timings.len() && t2.timings.iter().all(tuned),
        "what T2 times is tuned"
    );
}

#[test]
fn green_presets_are_ranked_by_device_time_and_say_which_code_ran() {
    let rankings = rank(&mission().timings, &built());
    assert_eq!(
        lines(&rankings),
        [
            "stage0-scalar: wmma-qk-32x64 scalar-32x64 | ",
            "stage1-cpasync: cpasync-32x64 | "
        ]
    );
    assert_eq!(
        rankings[0].entry.best[0].sass_sha256,
        Some(format!("sass of {WMMA}"))
    );
    let elsewhere = rank(
        &mission().timings,
        &built().changed(|meta| match &mut meta.machine.gpu {
            Gpu::Present { arch, .. } => *arch = "sm_120".into(),
            Gpu::Absent { .. } => unreachable!(),
        }),
    );
    assert_eq!(
        elsewhere[0].entry.best[0].sass_sha256, None,
        "the driver translated PTX"
    );
    let table = terminal(&table::document(&rankings[..1]), WIDTH);
    for line in [
        "stage0-scalar, mission f16 full ==\n\n| kept | variant       | p50 µs | p90 µs | of the best | machine code |\n",
        "\n| 1    | wmma-qk-32x64 |  20.02 |  20.04 |      1.000x | sass of stag |\n",
        "\n| 2    | scalar-32x64  |  32.03 |  32.06 |      1.600x | sass of stag |\n",
    ] {
        assert!(table.contains(line), "{table}");
    }
}

#[test]
fn presets_that_are_not_green_have_no_place() {
    let first = |record: Record| lines(&rank(&mission().timings, &record)).remove(0);
    let fail = |gate, reason: &str| GateResult::judge(gate, false, reason);
    let mut after = built();
    let row = after.row_mut(WMMA, &on_mission(), Source::Gpu);
    *row = row.clone().verdict(&fail(GateId::C5, "they differ"));
    let mut spills = built();
    spills.row_mut(WMMA, &instance(), Source::Ptxas).judge(
        GateId::R1,
        Judged::from(&fail(GateId::R1, "sm_90a: spilled bytes 8 > 0")),
    );
    let untimed =
        |row: &Row| row.subject.as_str() == WMMA && row.by == Source::Gpu && row.on == on_mission();
    let mut refuses = built().without(untimed);
    let on = On::Case(on_mission().problem().unwrap().clone(), "normal:0".into());
    refuses
        .cases
        .push(Row::new(WMMA, on, Source::Gpu).note("a head does not fit"));
    // As it is committed: without cases. The device refuses the instance, or another one.
    let committed = |declares: bool| {
        let refusal = Refusal {
            variant: "wmma-qk-32x64".into(),
            reason: "f16 d64 needs 164 KB; the device has 99 KB".into(),
        };
        let record = built()
            .without(untimed)
            .changed(|meta| meta.stages[0].refused.push(refusal));
        let declared = On::Instance {
            dtype: Dtype::F16,
            head_dim: 64,
            arch: None,
        };
        if declares {
            record.with(Row::new(WMMA, declared, Source::Kernel))
        } else {
            record
        }
    };
    let mut takes_none = committed(false);
    takes_none.summary_mut(WMMA).verdicts.clear();
    for (record, says) in [
        (
            built().failing(WMMA, GateId::C3),
            "FAIL wmma-qk-32x64: C3: too large",
        ),
        (
            after,
            "FAIL wmma-qk-32x64: stage0-scalar/wmma-qk-32x64: C5 failed on the timed buffers: they differ",
        ),
        (
            spills,
            "FAIL wmma-qk-32x64: R1: sm_90a: spilled bytes 8 > 0",
        ),
        // A preset that does not take a problem is not wrong.
        (refuses, "NO DATA wmma-qk-32x64: a head does not fit"),
        (
            committed(false),
            "NO DATA wmma-qk-32x64: f16 d64 needs 164 KB; the device has 99 KB",
        ),
        (
            takes_none,
            "NO DATA wmma-qk-32x64: f16 d64 needs 164 KB; the device has 99 KB",
        ),
        (committed(true), "NO DATA wmma-qk-32x64: it was not timed"),
        (
            built().without(untimed),
            "NO DATA wmma-qk-32x64: it was not timed",
        ),
    ] {
        assert_eq!(
            first(record),
            format!("stage0-scalar: scalar-32x64 | {says}")
        );
    }
    let rankings = rank(&mission().timings, &built().failing(WMMA, GateId::C3));
    assert_eq!(
        table::failures(&[&rankings[..], &rankings].concat()),
        ["stage0-scalar/wmma-qk-32x64: C3: too large"]
    );
}

#[test]
fn a_record_that_timed_all_is_ranked_without_a_gpu() {
    assert_eq!(
        rank(&ranking::of_record(&built()), &built()),
        rank(&mission().timings, &built())
    );
    let some = built()
        .without(|row| row.subject.as_str() == WMMA && row.by == Source::Gpu && row.on != On::All);
    let rankings = rank(&ranking::of_record(&some), &some);
    let whole: Vec<bool> = rankings.iter().map(Ranking::is_whole).collect();
    assert_eq!(
        whole,
        [false, true],
        "a ranking of some variants does not say which is the best"
    );

    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("nvidia-h200.json");
    let tuned = |name: &str, record: &Record| {
        let from = folder.path().join(name);
        record.write(&from).unwrap();
        let path = |path: &Path| path.to_str().unwrap().to_string();
        let args = tune_args(&["--record", &path(&from), "--out", &path(&out)]);
        tune(&args)
            .or_else(|error| error.downcast::<NoData>().map(Answer::from))
            .unwrap()
    };
    let ranked = tuned("some", &some);
    let skipped = "a guess: stage0-scalar, mission f16 full: 1 of 2 variants were not timed";
    assert_eq!(
        (ranked.exit, ranked.notes.as_slice()),
        (Exit::Pass, &[skipped.to_string()][..])
    );
    let kept = tuning_cache::read(&out).unwrap().unwrap();
    assert_eq!(
        kept.entries
            .iter()
            .map(|entry| (entry.stage.as_str(), entry.timed, entry.untimed))
            .collect::<Vec<_>>(),
        [("stage0-scalar", 1, 1), ("stage1-cpasync", 1, 0)]
    );
    assert_eq!(
        (&kept.entries[0].tuned, kept.entries[0].shape),
        (&some.meta.started, claims_problem(Dtype::F16).shape)
    );
    let mut shared = built();
    let same = GateResult::judge(
        GateId::R1,
        false,
        format!("{} scalar-32x64: what tells them apart", rows::SAME_CODE),
    );
    shared
        .row_mut(CPASYNC, &instance(), Source::Ptxas)
        .judge(GateId::R1, Judged::from(&same));
    let refused = tuned("shared", &shared);
    let reason = format!(
        "{CPASYNC} (f16 d64 sm_90a): the same machine code as scalar-32x64: what tells them apart"
    );
    assert_eq!(
        (refused.exit, refused.text.lines().last()),
        (Exit::Fail, Some(&*format!("  {reason}")))
    );
    let untimed = built().without(|row| row.figures.contains_key(&Metric::P50));
    for (name, record) in [
        ("untimed", untimed),
        ("candidate", crate::testing::candidate()),
    ] {
        let empty = tuned(name, &record);
        assert_eq!(empty.exit, Exit::Undecided);
        assert!(
            empty
                .text
                .ends_with("has no timings; run `compare` on a GPU"),
            "{}",
            empty.text
        );
    }
    assert_eq!(shared_code(&built().rows), [""; 0]);
}

fn ranking(stage: &str, problem: Problem, variants: &[(&str, f64)]) -> Entry {
    let ranked = |&(variant, us): &(&str, f64)| Ranked {
        variant: variant.into(),
        p50_us: us,
        p90_us: us,
        sass_sha256: None,
    };
    Entry {
        stage: stage.into(),
        identity: format!("{stage}-identity"),
        shape_name: problem.shape.to_string(),
        shape: problem.shape,
        dtype: problem.dtype,
        mask: problem.mask,
        tuned: String::new(),
        timed: 0,
        untimed: 0,
        best: variants.iter().map(ranked).collect(),
    }
}

fn shape(text: &str) -> Problem {
    Problem::new(
        common::problem::parse_shape(text).unwrap().1,
        Dtype::F16,
        Mask::Full,
    )
    .unwrap()
}

#[test]
fn the_file_keeps_three_and_what_was_not_tuned_again() {
    let (a, b) = (shape("1x8x2048x64"), shape("1x8x512x128"));
    let mut cache = TuningCache::none(GPU);
    let four = [("p", 1.0), ("q", 2.0), ("r", 3.0), ("s", 4.0)];
    cache.put(&ranking("stage1-cpasync", a, &four), "first");
    cache.put(&ranking("stage0-scalar", a, &four[..1]), "first");
    cache.put(&ranking("stage0-scalar", a, &four[1..3]), "second");
    cache.put(&ranking("stage0-scalar", b, &four[..2]), "second");
    let shown = |cache: &TuningCache| -> Vec<String> {
        let names = |best: &[Ranked]| {
            best.iter()
                .map(|row| row.variant.clone())
                .collect::<String>()
        };
        let line = |e: &Entry| {
            format!(
                "{} {} {} {} of {}",
                e.stage,
                e.shape,
                e.tuned,
                names(&e.best),
                e.timed
            )
        };
        cache.entries.iter().map(line).collect()
    };
    let expected = [
        "stage0-scalar 1x8x2048x64 second qr of 2",
        "stage0-scalar 1x8x512x128 second pq of 2",
        "stage1-cpasync 1x8x2048x64 first pqr of 4",
    ];
    assert_eq!(
        (shown(&cache), KEPT),
        (expected.map(String::from).to_vec(), 3)
    );
    // Nothing is green any more: what was known is no longer true.
    cache.put(&ranking("stage1-cpasync", a, &[]), "third");
    assert_eq!(shown(&cache), expected[..2]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune/nvidia-h200.json");
    assert_eq!(tuning_cache::read(&path).unwrap(), None);
    tuning_cache::write(&path, &cache).unwrap();
    let lines = std::fs::read_to_string(&path).unwrap().lines().count();
    assert_eq!(lines, cache.entries.len() + 6);
    assert_eq!(tuning_cache::read(&path).unwrap(), Some(cache));
    let machine = timed(US).meta.machine;
    let args = tune_args(&["--out", path.to_str().unwrap()]);
    assert_eq!(open(&args, &machine).unwrap().1.gpu, GPU);
    tuning_cache::write(&path, &TuningCache::none("NVIDIA L4")).unwrap();
    let error = open(&args, &machine).unwrap_err().to_string();
    assert!(error.ends_with(
        "is the tuning cache of NVIDIA L4, and this is NVIDIA H200; give another file with --out"
    ));
    std::fs::write(
        &path,
        r#"{"schema": 99, "gpu": "NVIDIA H200", "entries": []}"#,
    )
    .unwrap();
    assert!(matches!(
        tuning_cache::read(&path),
        Err(StoreError::Schema {
            found: Some(99),
            reads: 1,
            ..
        })
    ));
}

#[test]
fn an_entry_holds_for_the_kernel_that_was_tuned() {
    let mut cache = TuningCache::none(GPU);
    let (mut stage, problem) = (builds().remove(0), claims_problem(Dtype::F16));
    cache.put(
        &ranking(&stage.id, problem, &[("scalar-32x64", 1.0)]),
        "now",
    );
    assert!(
        matches!(cache.of(&stage.id, &stage.identity, &problem), Known::Fresh([best]) if best.variant == "scalar-32x64")
    );
    assert_eq!(
        cache.of(
            &stage.id,
            &stage.identity,
            &Problem {
                mask: Mask::Causal,
                ..problem
            }
        ),
        Known::Absent
    );
    let other = &builds()[1];
    assert_eq!(
        cache.of(&other.id, &other.identity, &problem),
        Known::Absent
    );
    stage.meta.identity = "another".into();
    assert_eq!(cache.of(&stage.id, &stage.identity, &problem), Known::Stale);
}

#[test]
fn a_run_times_the_cache_beside_mission_and_says_what_it_left_out() {
    let ladder = builds();
    let all = plan::plan(&ladder, &request(&[]), BackendKind::Cuda).unwrap();
    let mut cache = TuningCache::none(GPU);
    for name in ["mission", "long"] {
        cache.put(
            &ranking("stage0-scalar", shape(name), &[("wmma-qk-32x64", 1.0)]),
            "now",
        );
    }
    let kept = |arguments: &[&str], ladder: &[StageBuild]| {
        let request = request(arguments);
        let mut plan = plan::plan(ladder, &request, BackendKind::Cuda).unwrap();
        keep_best(&mut plan, &request, ladder, &cache, "tune/nvidia-h200.json");
        plan
    };
    let plan = kept(&[], &ladder);
    let left_out: Vec<_> = all
        .timings
        .iter()
        .filter(|timing| !plan.timings.contains(timing))
        .collect();
    assert!(
        left_out
            .iter()
            .all(|timing| timing.subject.name() == "scalar-32x64" && !timing.problem.has_claims())
    );
    assert!(
        left_out.iter().any(
            |timing| (timing.place.shape.as_str(), timing.problem.mask) == ("long", Mask::Full)
        )
    );
    assert_eq!(
        left_out.len(),
        18,
        "a problem that is not tuned goes by those that are; those of the claims are for all"
    );
    let [scope] = &plan.timing_scopes[..] else {
        panic!("{:?}", plan.timing_scopes)
    };
    assert_eq!(
        (scope.stage.as_str(), scope.left_out, scope.of),
        ("stage0-scalar", 18, 40)
    );
    let why = "beside the problems of the claims, only the best variants in tune/nvidia-h200.json were timed";
    assert_eq!(scope.why, why);

    let mut changed = ladder.clone();
    changed[0].meta.identity = "changed".into();
    let stale = kept(&[], &changed);
    assert_eq!(
        stale.timings, all.timings,
        "a stale entry leaves nothing out"
    );
    assert!(stale.timing_scopes[0].why.contains("STALE") && stale.timing_scopes[0].left_out == 0);

    for (asked, timings) in [
        (["--shapes", "long"], 3 * 4),
        (["--variants", "scalar-32x64"], 5 * 4),
    ] {
        let plan = kept(&asked, &ladder);
        assert_eq!(
            (plan.timings.len(), plan.timing_scopes.len()),
            (timings, 0),
            "{asked:?}: what is named is timed"
        );
    }
}
