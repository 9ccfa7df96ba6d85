use super::*;
use crate::judge::choice::Regret;
use crate::measure::rows;
use crate::table::session::{Git, Selection, Tier};
use crate::table::{Figure, Judged, On, Subject};
use crate::testing::{
    CPASYNC, GPU, LARGE, SCALAR, US, VARIANTS, WMMA, drawn_run, emulated, mission, samples,
    suppressed, timed,
};
use common::choice::Model;
use common::faults::{Caught, Fault};
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, GateResult, Verdict};
use std::path::Path;
use tempfile::TempDir;

/// The folder of its GPU's table.
const FOLDER: &str = "nvidia-h200";

/// wmma-qk is 1.2x as fast as scalar here; 1.5x are claimed.
const REFUTES: [f64; 3] = [24.0, 20.0, 15.0];

/// A whole run on a GPU, completed by `compare sanitize`.
fn good() -> Run {
    timed(US).clean()
}

fn merged(run: &Run, results: &Results) -> anyhow::Result<Accepted> {
    merge(run, results, &Table::default(), None)
}

fn accepted(run: &Run, results: &Results) -> Results {
    merged(run, results).unwrap().results
}

fn refused(run: &Run, reason: Option<&str>) -> String {
    let refused = merge(run, &Results::default(), &Table::default(), reason);
    format!("{:#}", refused.err().expect("it is refused"))
}

fn text(results: &Results) -> Vec<(String, String)> {
    let files = results.files().into_iter();
    files
        .map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap()))
        .collect()
}

#[test]
fn what_is_no_evidence_is_refused_and_cannot_be_waived() {
    let other_kernels = |mut run: Run| {
        run.session.stages[1].identity = "of yesterday".into();
        run
    };
    let figure = |metric: Metric, us: f64| {
        let mut run = good();
        let row = run.row_mut(SCALAR, &mission(), Source::Gpu);
        row.figures.insert(metric, us.into());
        run
    };
    // Of a pair, the arm that is not the row's own.
    let fast_base = {
        let mut run = good();
        let pair = run.table.rows().find(|row| row.against.is_some());
        let mut pair = pair.unwrap().clone();
        pair.figures.insert(Metric::Min, 0.5.into());
        run.append(pair);
        run
    };
    let timed_wrong = |gate, reason: &str| {
        let mut run = good();
        let judged = Judged::from(&GateResult::judge(gate, false, reason));
        run.row_mut(WMMA, &mission(), Source::Gpu)
            .judge(gate, judged);
        run
    };
    let mut unlisted = suppressed().sites[0].clone();
    unlisted.listed = None;
    let escaped = Caught {
        fault: Some(Fault::DroppedTile),
        cases: 8,
        cases_failed: 0,
        gates_that_failed: vec![],
        survived: vec![],
    };
    let commit = |sha: &str, dirty| Git::Commit {
        sha: sha.into(),
        dirty,
        changes: None,
    };
    let racecheck = [Verdict::Pass, Verdict::Fail];
    let is_of_sanitizer = |row: &Row| row.by == Source::ComputeSanitizer;
    for (run, says) in [
        (
            good().changed(|session| {
                session.progress = Progress::Partial {
                    finished: 9,
                    planned: 10,
                }
            }),
            "was interrupted after 9 of 10 cases",
        ),
        (
            good().changed(|session| session.device = "sm_89".parse().ok()),
            "is limited to what sm_89 offers and is not kept: run without --device",
        ),
        (
            good().changed(|session| session.git = commit("0123456789abcdef", true)),
            "was built from 0123456789ab with uncommitted changes; commit them",
        ),
        (
            good().changed(|session| {
                session.git = Git::Unknown {
                    reason: "no git".into(),
                }
            }),
            "the source of 20261120T183000Z-linux is unknown (no git)",
        ),
        (
            good().changed(|session| session.source_lines = false),
            "hazards in it name no source lines; build it unstripped",
        ),
        (
            other_kernels(good()),
            "measured other kernels than the sources' of stage1-cpasync",
        ),
        // 537 MFLOP take 0.54 µs at the peak of an H200.
        (
            figure(Metric::P50, 0.5),
            "scalar-32x64 on mission f16 full by GPU: 0.5 µs, and nothing can take less than 0.5",
        ),
        (
            figure(Metric::FloorUs, 32.03),
            "by GPU: 32.03 µs, and nothing can take less than 32.030 µs",
        ),
        (
            fast_base,
            "wmma-qk-32x64 on mission f16 full by GPU against stage0-scalar/scalar-32x64: 0.5 µs, and nothing",
        ),
        (
            timed(REFUTES).clean().failing(WMMA, GateId::C3),
            "stage0-scalar/wmma-qk-32x64 C3: too large",
        ),
        (
            good().built(96, 8),
            "stage0-scalar/scalar-32x64 R1: sm_90a: spilled bytes 8 > 0",
        ),
        (
            good().sanitized(CPASYNC, racecheck),
            "C7: racecheck: planted",
        ),
        (
            timed_wrong(GateId::L1, "impossible: below 3 us"),
            "wmma-qk-32x64 L1: mission f16 full as timed: impossible",
        ),
        (
            timed_wrong(GateId::C5, "they differ"),
            "wmma-qk-32x64 C5: mission f16 full as timed: they differ",
        ),
        (
            good().without(|row| is_of_sanitizer(row) && row.subject != Subject::from(SCALAR)),
            "no gate C7 for 2 variants, first stage0-scalar/wmma-qk-32x64; complete it on its GPU with `compare sanitize`",
        ),
        (
            good().without(is_of_sanitizer).changed(|session| {
                session.scope = Selection {
                    stages: vec!["0".into()],
                    ..Selection::default()
                };
            }),
            "no gate C7 for 3 variants",
        ),
        (
            good().with(rows::planted(&escaped)),
            "self-test on : dropped tile by self-test: no gate fails",
        ),
        (good().with(rows::site(&unlisted)), "its mutant survives"),
        (
            good().without(|row| {
                row.on == On::All && row.by == Source::Gpu && row.subject == Subject::from(WMMA)
            }),
            "wmma-qk-32x64: every gate: none of its cases ran",
        ),
        (
            good().with(
                Row::new(SCALAR, On::Named("x".into()), Source::Ncu).note("x".repeat(MOST_BYTES)),
            ),
            "1000000 at most; narrow the run",
        ),
    ] {
        for reason in [None, Some("the kernel is new")] {
            // A reason without a failed claim is refused too, but later than all of these.
            let error = refused(&run, reason);
            let is_size = says.contains("narrow") && reason.is_some();
            assert!(is_size || error.contains(says), "{says}: {error}");
        }
    }
    refused(&good().without(|_| true), None);
}

#[test]
fn a_time_that_is_no_positive_number_in_its_interval_is_refused_by_name() {
    for (figure, says) in [
        (Figure::from(0.0), "p50 is 0, which cannot be measured"),
        ((-1.0).into(), "p50 is -1"),
        (f64::NAN.into(), "p50 is NaN"),
        (f64::INFINITY.into(), "p50 is NaN"),
        ((3.0, 3.5, 4.0).into(), "p50 is 3 [3.5, 4]"),
    ] {
        let mut run = good();
        let row = run.row_mut(SCALAR, &mission(), Source::Gpu);
        row.figures.insert(Metric::P50, figure);
        let folder = TempDir::new().unwrap();
        run.write(&folder.path().join("run")).unwrap();
        let into = folder.path().join("results");
        let args = AcceptArgs {
            runs: vec![folder.path().join("run")],
            into: Some(into.clone()),
            negative: None,
        };
        let error = format!("{:#}", accept(&args).unwrap_err());
        assert!(
            error.contains("the run cannot be accepted")
                && error.contains("stage0-scalar/scalar-32x64 on mission f16 full by GPU")
                && error.contains(says),
            "{says}: {error}"
        );
        assert!(!into.exists(), "nothing is left behind");
    }
    let nowhere = AcceptArgs {
        runs: vec!["no/such/run".into()],
        into: None,
        negative: None,
    };
    let error = format!("{:#}", accept(&nowhere).unwrap_err());
    assert!(error.contains("no/such/run is not a run"), "{error}");
}

#[test]
fn a_session_of_another_gpu_model_is_refused_and_has_a_table_of_its_own() {
    let results = accepted(&good(), &Results::default());
    let other = || {
        let later = good().named("20261121T183000Z-nvidia-h100");
        later.on_gpu("NVIDIA H100")
    };
    let error = merged(&other(), &results).err().unwrap().to_string();
    assert!(
        error.ends_with("was measured on NVIDIA H100, and the table is of NVIDIA H200"),
        "{error}"
    );
    let other = other().changed(|session| session.machine.name = "nvidia-h100".into());
    let results = accepted(&other, &results);
    let folders: Vec<&str> = results.gpus.keys().map(String::as_str).collect();
    assert_eq!(folders, ["nvidia-h100", FOLDER]);
    // What was built last is of the other session.
    accepted(&good().named("20261122T183000Z-nvidia-h200"), &results);
}

#[test]
fn accepting_twice_changes_nothing_and_cases_stay_with_the_run() {
    let case = crate::testing::case(SCALAR, Source::Gpu, None);
    let run = good()
        .peers("mission", 15.0, &[("torch-default", 40.0, true)])
        .with(case);
    let once = merged(&run, &Results::default()).unwrap();
    let twice = accepted(&run, &once.results);
    assert!(text(&once.results) == text(&twice));
    let rows: Vec<&Row> = once.results.gpus[FOLDER].rows().collect();
    assert!(!rows.iter().any(|row| matches!(row.on, On::Case(..))));
    assert!(
        rows.iter()
            .any(|row| row.by == Source::Peers && row.against == Some("torch-default".into())),
        "ratios to peers stay"
    );
    assert!(
        rows.iter().any(|row| row.by == Source::Claim),
        "claims are rows"
    );
    let of_build = once.results.build.rows();
    assert!(of_build.filter(|row| !row.by.is_of_build()).count() == 0);
    assert!(
        once.lines[0].starts_with("accepted 20261120T183000Z-linux ("),
        "{:?}",
        once.lines
    );
    let folder = TempDir::new().unwrap();
    once.results.write(folder.path()).unwrap();
    assert!(text(&Results::read(folder.path()).unwrap()) == text(&twice));
}

#[test]
fn a_row_replaces_that_of_its_key_and_what_is_no_longer_declared_goes() {
    const LATER: &str = "20261121T183000Z-nvidia-h200";
    let first = accepted(&good(), &Results::default());
    let of_scalar = |results: &Results| {
        let table = &results.gpus[FOLDER];
        let row = table.row(&SCALAR.into(), &mission(), Source::Gpu).unwrap();
        (row.value(Metric::P50), row.session.clone())
    };
    // Of one stage, selected.
    let is_of_first = |row: &Row| row.subject.stage() == "stage0-scalar";
    let selected = timed([40.0, 20.0, 15.0])
        .clean()
        .without(|row| !is_of_first(row))
        .named(LATER)
        .changed(|session| {
            session.scope = Selection {
                stages: vec!["0".into()],
                ..Selection::default()
            }
        });
    let second = accepted(&selected, &first);
    assert_eq!(of_scalar(&first).0, Some(32.03));
    assert_eq!(of_scalar(&second), (Some(40.04), LATER.into()));
    let table = &second.gpus[FOLDER];
    let other = table.row(&CPASYNC.into(), &mission(), Source::Gpu).unwrap();
    assert_eq!(other.session, "20261120T183000Z-linux");
    let changes = table.sessions[LATER].changes.clone().unwrap();
    assert_eq!(changes.since, "20261120T183000Z-linux");

    let mut fewer = good().named("20261122T183000Z-nvidia-h200");
    fewer.session.stages[0].claims.clear();
    fewer.session.stages[1].claims.clear();
    fewer.session.stages[0].variants.truncate(1);
    let fewer = fewer.without(|row| row.subject == Subject::from(WMMA) || row.against.is_some());
    let third = accepted(&fewer, &second);
    let all = third
        .gpus
        .values()
        .chain([&third.build])
        .flat_map(Table::rows);
    let names = |row: &Row| row.key().to_string().contains("wmma-qk") || row.by == Source::Claim;
    let left: Vec<String> = all
        .filter(|row| names(row))
        .map(|row| row.key().to_string())
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(
        third.gpus[FOLDER].sessions.len(),
        1,
        "no row names the others"
    );
}

#[test]
fn what_does_not_lead_its_problem_keeps_what_it_is_judged_by() {
    let slower = good().sampled("stage0-scalar/none", mission(), &[50.0, 51.0, 52.0]);
    let mut table = slower.table.clone();
    keep_leading(&mut table, &slower.session.name);
    let changed: Vec<&Row> = (table.rows())
        .filter(|row| slower.table.get(&row.key()) != Some(row))
        .collect();
    assert_eq!(changed.len(), 1, "three lead");
    assert_eq!(changed[0].subject.name(), "none");
    let kept: Vec<Metric> = changed[0].figures.keys().copied().collect();
    assert_eq!(kept, OF_OTHERS);
}

#[test]
fn a_run_that_was_interrupted_in_its_timings_is_accepted_if_its_claims_were_measured() {
    let interrupted = good().changed(|session| {
        session.progress = Progress::Partial {
            finished: 10,
            planned: 10,
        }
    });
    accepted(&interrupted, &Results::default());
    let lacks = report_of_run(&interrupted, &Table::default()).missing;
    let lacks: Vec<String> = lacks.iter().map(Missing::to_string).collect();
    let says = "some timings: the run was interrupted";
    assert!(lacks.iter().any(|of| of == says), "{lacks:?}");
    let is_timing = |row: &Row| row.subject == CPASYNC.into() && row.on == mission();
    let untimed = interrupted.without(is_timing);
    let error = refused(&untimed, None);
    assert!(
        error.contains("cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed"),
        "{error}"
    );
}

#[test]
fn runs_that_need_no_sanitizer_are_accepted() {
    let without = || timed(US);
    let mut unsupported = without();
    for subject in VARIANTS {
        let row = unsupported.summary_mut(subject);
        row.figures.extend([
            (Metric::Cases, 0_u32.into()),
            (Metric::CasesUnsupported, 10_u32.into()),
        ]);
    }
    // A device with too little memory takes none of a variant's cases.
    let supported = unsupported.summary_mut(SCALAR);
    supported.figures.insert(Metric::Cases, 1_u32.into());
    let unsupported = unsupported.sanitized(SCALAR, [Verdict::Pass; 2]);
    for run in [
        emulated(),
        without().changed(|session| session.tier = Tier::T1),
        unsupported,
    ] {
        accepted(&run, &Results::default());
    }
    let emulated = accepted(&emulated(), &Results::default());
    assert!(emulated.gpus.is_empty() && !emulated.build.is_empty());
}

#[test]
fn a_failed_claim_needs_a_reason_and_stands_beside_its_stage_until_it_holds() {
    let title = "stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: ";
    let failing = || timed(REFUTES).clean();
    let error = refused(&failing(), None);
    assert!(
        error.contains(&format!("--negative REASON:\n  {title}")),
        "{error}"
    );
    assert!(refused(&failing(), Some("  ")).contains("needs a reason"));
    assert!(refused(&good(), Some("memory-bound")).contains("nothing to refute"));

    let reason = Some(" memory-bound at this length ");
    let first = merge(&failing(), &Results::default(), &Table::default(), reason).unwrap();
    let [(stage, negatives)] = &first.negatives[..] else {
        panic!("one stage: {:?}", first.negatives)
    };
    assert_eq!((stage.as_str(), negatives.len()), ("stage0-scalar", 1));
    let negative = &negatives[0];
    assert_eq!(
        negative.claim,
        "wmma-qk p50 over stage0-scalar scalar on mission f16 full"
    );
    assert_eq!(negative.gpu.as_deref(), Some("NVIDIA H200"));
    assert_eq!(negative.why, "memory-bound at this length");
    assert!(
        negative
            .measured
            .starts_with("wmma-qk-32x64 against stage0-scalar/scalar-32x64: p50 1.2")
            && negative.measured.ends_with("(20261120T183000Z-linux)"),
        "{}",
        negative.measured
    );
    assert!(
        first
            .lines
            .contains(&"stage0-scalar/negatives.json: 1 refuted claim".to_string())
    );

    let root = TempDir::new().unwrap();
    let file = root.path().join("stage0-scalar/negatives.json");
    negatives::write(root.path(), &first.negatives).unwrap();
    assert_eq!(
        negatives::of_stage(root.path(), "stage0-scalar").unwrap(),
        *negatives
    );
    assert_eq!(
        negatives::of_stage(root.path(), "stage1-cpasync").unwrap(),
        []
    );

    // The same failure in a later run is settled; that of another claim is not.
    let refuted = |run: Run| run.changed(|session| session.stages.clone_from(&first.stages));
    let refuting = |us: [f64; 3], day: &str| refuted(timed(us).clean().named(day));
    let again = merged(
        &refuting(REFUTES, "20261121T183000Z-nvidia-h200"),
        &first.results,
    )
    .unwrap();
    assert!(again.negatives.is_empty());
    let same = merged(&refuted(failing()), &first.results).unwrap();
    assert!(
        text(&same.results) == text(&first.results),
        "accepted twice"
    );
    let other = merged(
        &refuting([24.0, 20.0, 19.0], "20261122T183000Z-nvidia-h200"),
        &again.results,
    );
    assert!(
        other
            .err()
            .unwrap()
            .to_string()
            .contains("has failed claims")
    );

    // The claim holds: its refutation goes, and with the last one the file.
    let kept = merged(
        &refuting(US, "20261123T183000Z-nvidia-h200"),
        &again.results,
    )
    .unwrap();
    assert_eq!(kept.negatives, [("stage0-scalar".to_string(), vec![])]);
    negatives::write(root.path(), &kept.negatives).unwrap();
    assert!(!file.exists());
    negatives::write(root.path(), &kept.negatives).unwrap();
    std::fs::write(&file, "{").unwrap();
    let malformed = negatives::of_stage(root.path(), "stage0-scalar").unwrap_err();
    assert!(
        malformed
            .to_string()
            .contains("negatives.json: line 1 is malformed")
    );
}

#[test]
fn a_run_with_random_problems_refits_the_choice_and_its_regret_is_a_row() {
    let place = Place::new("1x1x17x64", Dtype::F16, Mask::Full);
    let drawn = Row::new(SCALAR, On::Problem(place), Source::Draw)
        .figure(Metric::Draw, 0_usize)
        .figure(Metric::P50, 9.0);
    let kept = accepted(&good().with(drawn.clone()), &Results::default());
    assert!(kept.gpus[FOLDER].get(&drawn.key()).is_some());
    let loaded = crate::stages::load().unwrap();
    let run = drawn_run(&loaded, 90).sampled(LARGE, mission(), &samples(9.0));
    let stages = &run.session.stages;
    let mut results = Results::default();
    assert!(refit(&mut results, FOLDER, stages, &loaded).is_none());
    let mut table = Table::default();
    table.merge(&run.session, &run.table);
    results.put(Some(FOLDER), &table);
    let before = results.gpus[FOLDER].clone();
    let refitted = refit(&mut results, FOLDER, stages, &loaded).unwrap();
    let model: Model = serde_json::from_str(&refitted.file).unwrap();
    assert_eq!(
        (&*model.gpu, model.capability, model.multiprocessors),
        (GPU, 90, 132)
    );
    assert!(refitted.file.lines().count() > 8 && refitted.file.len() < 10_000);
    let last = refitted.lines.last().unwrap();
    assert!(
        last.contains("PASS: the library's choice") && last.contains("over 30 random problems"),
        "{last}"
    );
    let after = &results.gpus[FOLDER];
    let regret = Regret::known(after).unwrap();
    assert_eq!(
        (after.rows().count(), regret.problems),
        (before.rows().count() + 1, 30)
    );
    let mut read = Table::default();
    read.parse(&after.files()[0].1, Path::new("rows.jsonl"))
        .unwrap();
    assert_eq!(Regret::known(&read), Some(regret));
    // Random problems are of one session, and no difference between two.
    let later = drawn_run(&loaded, 12).named("20261126T000000Z-nvidia-h200");
    let mut merged = after.clone();
    merged.merge(&later.session, &later.table);
    assert!(
        merged
            .by(Source::Draw)
            .all(|row| row.session == later.session.name)
    );
    assert_eq!(
        merged.by(Source::Draw).count(),
        later.table.by(Source::Draw).count()
    );
    assert_eq!(
        diff::of_accepting(after, &merged, stages).differences.len(),
        0
    );
}
