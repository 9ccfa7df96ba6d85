use super::elites::{KEPT, Known, Ranked};
use super::*;
use crate::comparison;
use crate::measure::builds::BuiltKernel;
use crate::plan::Plan;
use crate::render::markdown;
use crate::testing::{case, ladder, resummarise, timed};
use clap::Parser;
use common::check::Outcome;
use common::device::BackendKind;
use common::problem::{Dtype, Mask, Problem, claims_problem};
use common::resources::{PtxasEntry, judge_distinct};
use common::verdict::{GateId, GateResult};
use kernel_build::report::Resources;

const GPU: &str = "NVIDIA H200";

fn run_args(list: &[&str]) -> RunArgs {
    crate::cli::Cli::parse_from(["compare"].iter().chain(list)).run
}

/// Both stages of the literal ladder on mission, f16, full mask.
fn mission() -> Plan {
    plan::tune(&ladder(), &run_args(&["--shapes", "mission", "--dtypes", "f16", "--masks", "full"])).unwrap()
}

fn compiled(arch: &str, code: &str) -> BuiltKernel {
    let result = GateResult::judge(GateId::R1, true, "within the caps");
    let resources = Resources { registers: 100, ..Resources::default() };
    let ptxas = PtxasEntry { arch: arch.into(), sass_sha256: code.into(), resources };
    BuiltKernel { ptxas, occupancy: None, result }
}

/// A run on a GPU of [`ladder`], each instance compiled to code of its own.
fn built() -> Record {
    let mut record = timed([32.0, 20.0, 15.0]);
    for variant in record.meta.stages.iter_mut().flat_map(|stage| &mut stage.variants) {
        for kernel in &mut variant.kernels {
            let code = |arch: &str| format!("{arch} {}", kernel.facts.symbol);
            kernel.built = ["sm_89", "sm_90a"].map(|arch| compiled(arch, &code(arch))).to_vec();
        }
    }
    record
}

fn lines(rankings: &[Ranking]) -> Vec<String> {
    let ranked = |ranking: &Ranking| ranking.ranked.iter().map(|row| row.variant.clone()).collect::<Vec<_>>().join(" ");
    let refused = |ranking: &Ranking| {
        let words = ranking.refused.iter().map(|refused| {
            format!("{} {}: {}", if refused.is_wrong { "FAIL" } else { "NO DATA" }, refused.variant, refused.reason)
        });
        words.collect::<Vec<_>>().join("; ")
    };
    rankings.iter().map(|ranking| format!("{}: {} | {}", ranking.stage, ranked(ranking), refused(ranking))).collect()
}

#[test]
fn every_preset_is_gated_by_t0_and_on_what_it_is_timed_on() {
    let plan = mission();
    assert_eq!(plan.timings.len(), 3);
    // T0 and mission, whether or not the variant is the stage's default.
    let of = |variant: &str| plan.cases.iter().filter(|case| case.key.variant == variant).count();
    assert_eq!((of("scalar-32x64"), of("cpasync-32x64")), (6, 6), "five of T0 are of f16 with the full mask");
    let whole = plan::tune(&ladder(), &run_args(&["--shapes", "mission"])).unwrap();
    assert_eq!(whole.cases.iter().filter(|case| case.key.variant == "scalar-32x64").count(), 4 + 10 + 6);
    assert_eq!(whole.timings.len(), 3 * 4);
    let default = plan::tune(&ladder(), &run_args(&[])).unwrap();
    let t2 = plan::plan(&ladder(), &run_args(&[]), BackendKind::Cuda, None).unwrap();
    let tuned = |timing: &plan::PlannedTiming| default.timings.contains(timing);
    assert!(default.timings.len() == t2.timings.len() && t2.timings.iter().all(tuned), "what T2 times is tuned");
}

#[test]
fn green_presets_are_ranked_by_device_time_and_say_which_code_ran() {
    let rankings = rank(&mission().timings, &built());
    assert_eq!(lines(&rankings), ["stage0-scalar: wmma-qk-32x64 scalar-32x64 | ", "stage1-cpasync: cpasync-32x64 | "]);
    let best = &rankings[0].ranked[0];
    assert_eq!(best.sass_sha256.as_deref(), Some("sm_90a wmma_qk_32x64_f16_d64"));
    insta::assert_snapshot!(table::text(&rankings));
}

#[test]
fn presets_that_are_not_green_have_no_place() {
    let mut wrong = built();
    wrong.correctness.cases.push(case("stage0-scalar", "wmma-qk-32x64", BackendKind::Cuda, Some(GateId::C3)));
    resummarise(&mut wrong);
    let expected = "stage0-scalar: scalar-32x64 | FAIL wmma-qk-32x64: C3: fails in 1 of 2 cases; first mission f16 full normal:0: too large";
    let rankings = rank(&mission().timings, &wrong);
    assert_eq!(lines(&rankings)[0], expected);
    let failed = ["stage0-scalar/wmma-qk-32x64: C3: fails in 1 of 2 cases; first mission f16 full normal:0: too large"];
    assert_eq!(table::failures(&[&rankings[..], &rankings].concat()), failed);

    let mut after = built();
    after.performance.as_mut().unwrap().timings[1].after = vec![GateResult::judge(GateId::C5, false, "they differ")];
    let line = &lines(&rank(&mission().timings, &after))[0];
    assert!(
        line.ends_with("FAIL wmma-qk-32x64: stage0-scalar/wmma-qk-32x64: C5 failed on the timed buffers: they differ")
    );

    let mut spills = built();
    let kernel = &mut spills.meta.stages[0].variants[1].kernels[0];
    kernel.built[1].result = GateResult::judge(GateId::R1, false, "sm_90a: spilled bytes 8 > 0");
    let line = &lines(&rank(&mission().timings, &spills))[0];
    assert!(line.ends_with("| FAIL wmma-qk-32x64: R1: sm_90a: spilled bytes 8 > 0"), "{line}");

    let mut refuses = built();
    refuses.correctness.cases[1].outcome = Outcome::Unsupported { reason: "a head does not fit".into() };
    refuses.performance.as_mut().unwrap().timings.remove(1);
    resummarise(&mut refuses);
    let line = &lines(&rank(&mission().timings, &refuses))[0];
    assert!(line.contains(" wmma-qk-32x64: "), "{line}");
    assert!(!line.contains("FAIL"), "a preset that does not take a problem is not wrong: {line}");
}

#[test]
fn a_record_that_timed_all_is_ranked_without_a_gpu() {
    let record = built();
    assert_eq!(rank(&elites::of_record(&record), &record), rank(&mission().timings, &record));
    let mut some = built();
    some.performance.as_mut().unwrap().timings.remove(1);
    let rankings = rank(&elites::of_record(&some), &some);
    assert_eq!(lines(&rankings)[0], "stage0-scalar: scalar-32x64 | NO DATA wmma-qk-32x64: it was not timed");
    let whole: Vec<bool> = rankings.iter().map(Ranking::is_whole).collect();
    assert_eq!(whole, [false, true], "a ranking of some variants says nothing of the best");

    let folder = tempfile::tempdir().unwrap();
    let (from, out) = (folder.path().join("record"), folder.path().join("nvidia-h200.json"));
    some.write(&from).unwrap();
    let path = |path: &Path| path.to_str().unwrap().to_string();
    let tuned = |from: &Path| {
        let words = ["compare", "tune", "--record", &path(from), "--out", &path(&out)];
        let Some(crate::cli::Command::Tune(args)) = crate::cli::Cli::parse_from(words).command else { unreachable!() };
        tune(&args)
    };
    let Ok(Tuned::Written { skipped, .. }) = tuned(&from) else { panic!("it is ranked") };
    assert_eq!(skipped, ["stage0-scalar, mission f16 full: 1 of 2 variants were not timed"]);
    let kept = Elites::read(&out).unwrap().unwrap();
    assert_eq!(kept.entries.iter().map(|entry| entry.stage.as_str()).collect::<Vec<_>>(), ["stage1-cpasync"]);
    assert_eq!(kept.entries[0].tuned, some.meta.started);
    let mut shared = built();
    shared.meta.stages[1].distinct = GateResult::judge(GateId::R1, false, "a and b compile to the same code");
    shared.write(&folder.path().join("shared")).unwrap();
    let Ok(Tuned::SharedCode { reasons }) = tuned(&folder.path().join("shared")) else { panic!("a knob does nothing") };
    assert_eq!(reasons, ["stage1-cpasync: a and b compile to the same code"]);
    some.performance = None;
    some.write(&folder.path().join("untimed")).unwrap();
    let Ok(Tuned::NoData { reason }) = tuned(&folder.path().join("untimed")) else {
        panic!("there is nothing to rank")
    };
    assert!(reason.ends_with("has no timings; run `compare` on a GPU"), "{reason}");
}

#[test]
fn two_presets_with_one_machine_code_are_no_choice() {
    let ladder = built().meta.stages;
    let judged = |ladder: &[StageBuild]| {
        let mut stage = ladder[0].clone();
        let kernels =
            stage.variants.iter().flat_map(|variant| variant.kernels.iter().map(move |kernel| (variant, kernel)));
        let entries = kernels.flat_map(|(variant, kernel)| {
            kernel.built.iter().map(move |built| (variant.name.as_str(), &kernel.facts, &built.ptxas))
        });
        stage.distinct = judge_distinct(entries);
        shared_code([&stage])
    };
    assert_eq!(judged(&ladder), [""; 0]);
    let mut same = ladder.clone();
    same[0].variants[1].kernels[0].built[1].ptxas.sass_sha256 = "sm_90a scalar_32x64_f16_d64".into();
    assert_eq!(judged(&same), ["stage0-scalar: sm_90a: scalar-32x64 and wmma-qk-32x64 compile to the same code"]);
}

fn ranking(stage: &str, problem: Problem, variants: &[(&str, f64)]) -> Ranking {
    let ranked =
        |&(variant, us): &(&str, f64)| Ranked { variant: variant.into(), p50_us: us, p90_us: us, sass_sha256: None };
    Ranking {
        stage: stage.into(),
        identity: format!("{stage}-identity"),
        shape_name: problem.shape.to_string(),
        problem,
        ranked: variants.iter().map(ranked).collect(),
        refused: vec![],
    }
}

fn shape(text: &str) -> Problem {
    Problem::new(common::problem::parse_shape(text).unwrap().1, Dtype::F16, Mask::Full).unwrap()
}

#[test]
fn the_file_keeps_three_and_what_was_not_tuned_again() {
    let (a, b) = (shape("1x8x2048x64"), shape("1x8x512x128"));
    let mut elites = Elites::none(GPU);
    let four = [("p", 1.0), ("q", 2.0), ("r", 3.0), ("s", 4.0)];
    elites.merge(&[ranking("stage1-cpasync", a, &four), ranking("stage0-scalar", a, &four[..1])], "first");
    elites.merge(&[ranking("stage0-scalar", a, &four[1..3]), ranking("stage0-scalar", b, &four[..2])], "second");
    let shown = |elites: &Elites| -> Vec<String> {
        let names = |best: &[Ranked]| best.iter().map(|row| row.variant.clone()).collect::<String>();
        let line = |e: &elites::Entry| format!("{} {} {} {} of {}", e.stage, e.shape, e.tuned, names(&e.best), e.timed);
        elites.entries.iter().map(line).collect()
    };
    let expected = [
        "stage0-scalar 1x8x2048x64 second qr of 2",
        "stage0-scalar 1x8x512x128 second pq of 2",
        "stage1-cpasync 1x8x2048x64 first pqr of 4",
    ];
    assert_eq!((shown(&elites), KEPT), (expected.map(String::from).to_vec(), 3));
    // Nothing is green any more: what was known is no longer true.
    elites.merge(&[ranking("stage1-cpasync", a, &[])], "third");
    assert_eq!(shown(&elites), expected[..2]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tune/nvidia-h200.json");
    assert_eq!(Elites::read(&path).unwrap(), None);
    write_json(&path, &elites).unwrap();
    assert_eq!(Elites::read(&path).unwrap(), Some(elites));
    let gpu = timed([1.0; 3]).meta.machine.gpu;
    assert_eq!(open(&path, &gpu).unwrap().gpu, GPU);
    write_json(&path, &Elites::none("NVIDIA L4")).unwrap();
    let error = open(&path, &gpu).unwrap_err().to_string();
    assert!(error.ends_with("holds the elites of NVIDIA L4, and this is NVIDIA H200; give another file with --out"));
    std::fs::write(&path, r#"{"schema": 99, "gpu": "NVIDIA H200", "entries": []}"#).unwrap();
    assert!(matches!(Elites::read(&path), Err(StoreError::Schema { found: 99, .. })));
}

#[test]
fn an_entry_holds_for_the_kernel_that_was_tuned() {
    let mut elites = Elites::none(GPU);
    let (mut stage, problem) = (ladder().remove(0), claims_problem(Dtype::F16));
    elites.merge(&[ranking(&stage.id, problem, &[("scalar-32x64", 1.0)])], "now");
    assert!(matches!(elites.of(&stage, &problem), Known::Fresh([best]) if best.variant == "scalar-32x64"));
    assert_eq!(elites.of(&stage, &Problem { mask: Mask::Causal, ..problem }), Known::Absent);
    assert_eq!(elites.of(&ladder()[1], &problem), Known::Absent);
    stage.identity = "another".into();
    assert_eq!(elites.of(&stage, &problem), Known::Stale);
}

#[test]
fn a_run_times_the_elites_beside_mission_and_says_what_it_left_out() {
    let ladder = ladder();
    let all = plan::plan(&ladder, &run_args(&[]), BackendKind::Cuda, None).unwrap();
    let mut elites = Elites::none(GPU);
    for name in ["mission", "long"] {
        elites.merge(&[ranking("stage0-scalar", shape(name), &[("wmma-qk-32x64", 1.0)])], "now");
    }
    let kept = |arguments: &[&str], ladder: &[StageBuild]| {
        let args = run_args(arguments);
        let mut plan = plan::plan(ladder, &args, BackendKind::Cuda, None).unwrap();
        keep_elites(&mut plan, &args, ladder, &elites, "tune/nvidia-h200.json");
        plan
    };
    let plan = kept(&[], &ladder);
    let left_out: Vec<_> = all.timings.iter().filter(|timing| !plan.timings.contains(timing)).collect();
    assert!(left_out.iter().all(|timing| timing.variant == "scalar-32x64" && !timing.problem.has_claims()));
    assert!(left_out.iter().any(|timing| (timing.shape_name.as_str(), timing.problem.mask) == ("long", Mask::Full)));
    assert_eq!(
        left_out.len(),
        18,
        "a problem that is not tuned goes by those that are; those of the claims are for all"
    );
    let [scope] = &plan.timing_scopes[..] else { panic!("{:?}", plan.timing_scopes) };
    assert_eq!((scope.stage.as_str(), scope.left_out, scope.of), ("stage0-scalar", 18, 40));

    let mut changed = ladder.clone();
    changed[0].identity = "changed".into();
    let stale = kept(&[], &changed);
    assert_eq!(stale.timings, all.timings, "a stale entry leaves nothing out");
    assert!(stale.timing_scopes[0].why.contains("STALE") && stale.timing_scopes[0].left_out == 0);

    for (asked, timings) in [(["--shapes", "long"], 3 * 4), (["--variants", "scalar-32x64"], 5 * 4)] {
        let plan = kept(&asked, &ladder);
        assert_eq!((plan.timings.len(), plan.timing_scopes.len()), (timings, 0), "{asked:?}: what is named is timed");
    }

    let mut record = timed([32.0, 20.0, 15.0]);
    record.performance.as_mut().unwrap().scopes = plan.timing_scopes;
    let text = markdown::report(&comparison::report(&ladder, Some(("run", &record)), &[]), &[]);
    let expected = "- stage0-scalar: 18 of 40 timings (a variant on a problem) left out: beside the problems of the claims, only \
                    the best variants in tune/nvidia-h200.json were timed.\n";
    assert!(text.contains(expected), "{text}");
}
