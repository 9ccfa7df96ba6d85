use super::*;
use crate::judge::choice::Regret;
use crate::table::{Source, kernels};
use crate::testing::scenario::{self, each, run};
use crate::testing::{CPASYNC, GPU, LARGE, SCALAR, drawn_run, mission, samples, table};
use common::choice::Model;
use tempfile::TempDir;

/// The folder of its GPU's table.
const FOLDER: &str = "nvidia-h200";

/// A whole run on a GPU, completed by `compare sanitize`.
fn good() -> Run {
    run("timed; clean")
}

fn merged(run: &Run, results: &Results) -> anyhow::Result<(Results, Vec<String>)> {
    let mut results = results.clone();
    let lines = merge(run, &mut results, &Table::default())?;
    Ok((results, lines))
}

fn accepted(run: &Run, results: &Results) -> Results {
    merged(run, results).unwrap().0
}

fn refused(run: &Run) -> String {
    let refused = merged(run, &Results::default());
    format!("{:#}", refused.expect_err("it is refused"))
}

fn text(results: &Results) -> Vec<(String, String)> {
    let files = results.files().into_iter();
    files
        .map(|(path, bytes)| (path, String::from_utf8(bytes).unwrap()))
        .collect()
}

#[test]
fn what_is_no_evidence_is_refused() {
    let found = each(
        "timed; clean; partial 9 10
        timed; clean; device sm_89
        timed; clean; dirty
        timed; clean; no-git no git
        timed; clean; stripped
        timed; clean; sources 1 yesterday
        timed 24 20 15; clean; wmma gpu all: C3 fail
        timed; clean; built 96 8
        timed; clean; cpasync compute-sanitizer: C7 fail
        timed; clean; wmma gpu mission !pair: L1 fail impossible: below 3 us
        timed; clean; wmma gpu mission !pair: C5 fail they differ
        timed; clean; - compute-sanitizer !scalar
        timed; stages 0
        timed; clean; zeros: S1 fail no gate fails
        timed; clean; scalar self-test: S1 fail its mutant survives
        timed; clean; - wmma gpu all
        timed; clean; - !nothing",
        |line| refused(&run(line)),
    );
    insta::assert_snapshot!(found, @"
    timed; clean; partial 9 10
        20261120T183000Z-linux was interrupted after 9 of 10 cases; run the stages that are missing again (`--stages`)
    timed; clean; device sm_89
        20261120T183000Z-linux is limited to what sm_89 offers and is not kept: run without --device and ATTENTION_DEVICE
    timed; clean; dirty
        20261120T183000Z-linux was built from 0123456789ab with uncommitted changes; commit them, and run again
    timed; clean; no-git no git
        the source of 20261120T183000Z-linux is unknown (no git); run it in a git checkout
    timed; clean; stripped
        20261120T183000Z-linux was made by a program without debug information, so that hazards in it name no source lines; build it unstripped (no `strip`, no CARGO_PROFILE_*_DEBUG=0) and run `compare` again
    timed; clean; sources 1 yesterday
        20261120T183000Z-linux lacks what it should have measured; run again what is missing:
          stage1-cpasync/cpasync-32x64: every gate: none of its cases ran
          stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
          stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured
    timed 24 20 15; clean; wmma gpu all: C3 fail
        20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and run again:
          stage0-scalar/wmma-qk-32x64 C3: too large
    timed; clean; built 96 8
        20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and run again:
          stage0-scalar/scalar-32x64 R1: sm_90a: spilled bytes 8 > 0
          stage0-scalar/wmma-qk-32x64 R1: sm_90a: spilled bytes 8 > 0
          stage1-cpasync/cpasync-32x64 R1: sm_90a: spilled bytes 8 > 0
    timed; clean; cpasync compute-sanitizer: C7 fail
        20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and run again:
          stage1-cpasync/cpasync-32x64 C7: too large
    timed; clean; wmma gpu mission !pair: L1 fail impossible: below 3 us
        20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and run again:
          stage0-scalar/wmma-qk-32x64 L1: mission f16 full as timed: impossible: below 3 us
    timed; clean; wmma gpu mission !pair: C5 fail they differ
        20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and run again:
          stage0-scalar/wmma-qk-32x64 C5: mission f16 full as timed: they differ
    timed; clean; - compute-sanitizer !scalar
        20261120T183000Z-linux has no gate C7 for 2 variants, first stage0-scalar/wmma-qk-32x64; complete it on its GPU with `compare sanitize`, then accept it
    timed; stages 0
        20261120T183000Z-linux has no gate C7 for 3 variants, first stage0-scalar/scalar-32x64; complete it on its GPU with `compare sanitize`, then accept it
    timed; clean; zeros: S1 fail no gate fails
        the self-test of 20261120T183000Z-linux fails; fix it (`compare selftest`) and run again:
          self-test on : zeros by self-test: no gate fails
    timed; clean; scalar self-test: S1 fail its mutant survives
        the self-test of 20261120T183000Z-linux fails; fix it (`compare selftest`) and run again:
          stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test: its mutant survives
    timed; clean; - wmma gpu all
        20261120T183000Z-linux lacks what it should have measured; run again what is missing:
          stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran
          stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
          stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
    timed; clean; - !nothing
        20261120T183000Z-linux lacks what it should have measured; run again what is missing:
          stage0-scalar/scalar-32x64: every gate: none of its cases ran
          stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran
          stage1-cpasync/cpasync-32x64: every gate: none of its cases ran
          stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed
          stage0-scalar: wmma-qk: global bytes read as in stage0-scalar scalar: not measured
          stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed
          stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured
    ");
    let large = Row::new(SCALAR, Kind::Profile(mission())).note("x".repeat(MOST_BYTES));
    let error = refused(&good().with(large.clone()));
    assert!(error.contains("1000000 at most; narrow the run"), "{error}");
    // What others measured does not count.
    let mut results = accepted(&good(), &Results::default());
    results.table_mut(FOLDER).append(large);
    accepted(&good().named("2"), &results);
}

/// 537 MFLOP take 0.54 µs at the peak of an H200. Of a pair the least time may be that of the arm that is not the row's own.
#[test]
fn a_time_that_cannot_be_is_refused_by_name_where_it_is_read() {
    let folder = TempDir::new().unwrap();
    let into = folder.path().join("results");
    let accepted = |run: PathBuf, into: Option<PathBuf>| {
        let args = AcceptArgs {
            runs: vec![run],
            refit: false,
            into,
        };
        format!("{:#}", accept(&args).unwrap_err())
    };
    let fast = "0.5 µs, and nothing can take less than 0.543 µs on NVIDIA H200";
    for (figure, says) in [
        ("p50 0", "p50 is 0, which cannot be measured"),
        ("p50 -1", "p50 is -1"),
        ("p50 NaN", "p50 is NaN"),
        ("p50 inf", "p50 is NaN"),
        ("p50 3 3.5 4", "p50 is 3 [3.5, 4]"),
        ("p50 0.5", fast),
        ("min 0.5", fast),
        (
            "floor_us 32.03",
            "32.03 µs, and nothing can take less than 32.030 µs",
        ),
    ] {
        let path = folder.path().join(figure);
        let run = run(&format!("timed; clean; scalar gpu mission: {figure}"));
        run.write(&path).unwrap();
        let error = accepted(path, Some(into.clone()));
        let place = "stage0-scalar/scalar-32x64 on mission f16 full by gpu";
        for says in ["rows.jsonl: line ", place, says] {
            assert!(error.contains(says), "{says}: {error}");
        }
        assert!(!into.exists(), "nothing is left behind");
    }
    let error = accepted("no/such/run".into(), None);
    assert!(error.contains("no/such/run is not a run"), "{error}");
}

#[test]
fn a_session_of_another_gpu_model_is_refused_and_has_a_table_of_its_own() {
    let results = accepted(&good(), &Results::default());
    let other = "timed; clean; named 20261121T183000Z-nvidia-h100; card NVIDIA H100";
    let error = merged(&run(other), &results).err().unwrap().to_string();
    for says in [
        "was measured on NVIDIA H100 (",
        "and the table is of NVIDIA H200 (",
    ] {
        assert!(error.contains(says), "{error}");
    }
    let other = run(&format!("{other}; machine nvidia-h100"));
    let results = accepted(&other, &results);
    let folders: Vec<&str> = results.gpus.keys().map(String::as_str).collect();
    assert_eq!(folders, ["nvidia-h100", FOLDER]);
    // What was built last is of the other session.
    accepted(&good().named("20261122T183000Z-nvidia-h200"), &results);
}

#[test]
fn accepting_twice_changes_nothing_and_cases_stay_with_the_run() {
    let run = run(
        "timed; clean; peers mission 15 torch-default 40; + scalar | mission f16 full normal:0 | gpu | C1 pass",
    );
    let (once, lines) = merged(&run, &Results::default()).unwrap();
    let twice = accepted(&run, &once);
    assert!(text(&once) == text(&twice));
    let has = |is: fn(&Row) -> bool| once.gpus[FOLDER].rows().any(is);
    assert!(!has(|row| row.kind.is_case()));
    let is_ratio = |row: &Row| matches!(&row.kind, Kind::PeerPair { base, .. } if base.as_str() == "torch-default");
    assert!(has(is_ratio), "ratios to peers stay");
    assert!(has(|row| row.source() == Source::Claim), "claims are rows");
    assert!(once.build.rows().all(|row| row.kind.is_of_build()));
    let says = "accepted 20261120T183000Z-linux (";
    assert!(lines[0].starts_with(says), "{lines:?}");
    let folder = TempDir::new().unwrap();
    once.write(folder.path()).unwrap();
    assert!(text(&Results::read(folder.path()).unwrap()) == text(&twice));
}

/// Each run is accepted on top of those before it.
#[test]
fn a_row_replaces_that_of_its_key_and_what_is_no_longer_declared_goes() {
    let results = std::cell::RefCell::new(Results::default());
    let found = each(
        "timed; clean; named 1; scalar gpu all: cases 9
        timed 40 20 15; clean; - stage1-cpasync; named 2; stages 0
        timed; clean; named 3; refused wmma; - pair; claims 0 0; claims 1 0",
        |line| {
            let now = accepted(&run(line), &results.borrow());
            results.replace(now);
            let results = results.borrow();
            let table = &results.gpus[FOLDER];
            let of = |subject: &str| {
                let row = table.latency(&subject.into(), &mission());
                row.map(|row| (row.value(Metric::P50).unwrap(), &*row.session))
            };
            let checked = table.checked(&SCALAR.into(), BackendKind::Cuda).unwrap();
            let all = table.rows().chain(results.build.rows());
            let of_wmma = all.filter(|row| {
                row.key().to_string().contains("wmma-qk") || row.source() == Source::Claim
            });
            format!(
                "{:?} (checked in {}) {:?}, {} rows of wmma-qk and claims",
                of(SCALAR),
                checked.session,
                of(CPASYNC),
                of_wmma.count()
            )
        },
    );
    insta::assert_snapshot!(found, @r#"
    timed; clean; named 1; scalar gpu all: cases 9
        Some((32.03, "1")) (checked in 1) Some((15.01, "1")), 11 rows of wmma-qk and claims
    timed 40 20 15; clean; - stage1-cpasync; named 2; stages 0
        Some((40.04, "2")) (checked in 1) Some((15.01, "1")), 11 rows of wmma-qk and claims
    timed; clean; named 3; refused wmma; - pair; claims 0 0; claims 1 0
        Some((32.03, "3")) (checked in 1) Some((15.01, "3")), 0 rows of wmma-qk and claims
    "#);
}

#[test]
fn what_does_not_lead_its_problem_keeps_what_it_is_judged_by() {
    let slower = good().sampled("stage0-scalar/none", mission(), &[50.0, 51.0, 52.0]);
    let mut before = slower.table.clone();
    let older = "slower | mission f16 full | gpu | session 1 | p50 60 59 61 | mean 60";
    before.append(scenario::row(older));
    let mut table = before.clone();
    keep_leading(&mut table, &slower.session.name);
    let changed: Vec<&Row> = (table.rows())
        .filter(|row| before.get(&row.key()) != Some(row))
        .collect();
    assert_eq!(changed.len(), 1, "three lead");
    assert_eq!(changed[0].subject.name(), "none");
    let kept: Vec<Metric> = changed[0].figures.keys().copied().collect();
    assert_eq!(kept, OF_OTHERS);
}

#[test]
fn ratios_to_peers_that_are_not_the_fastest_are_left_out() {
    let peers = [
        ("flash-attn-4", 20.0, true),
        ("cudnn", 5.0, false),
        ("torch-flash", 40.0, true),
        ("torch-cudnn", 30.0, true),
        ("flash-attn-3", 25.0, true),
    ];
    let mut table = good().peers("mission", 10.0, &peers).table;
    let times = table.peer_times().count();
    keep_fastest_peers(&mut table);
    let ratios = table.rows_by(Source::Peers).filter_map(|row| row.base());
    let paired_with = joined(ratios, " ");
    assert_eq!(paired_with, "flash-attn-4 torch-cudnn torch-flash");
    assert_eq!(table.peer_times().count(), times);
}

/// Interrupted in its timings if its claims were measured; by the emulator, of a tier that needs no C7, and of a device with too little
/// memory for a variant's cases.
#[test]
fn runs_that_have_what_they_need_are_accepted() {
    let found = each(
        "timed; clean; partial 10 10
        timed; tier 0
        timed; clean; - compute-sanitizer !scalar; wmma gpu all: cases 0 | cases_unsupported 10; cpasync gpu all: cases 0 | cases_unsupported 10
        emulated",
        |line| {
            let results = accepted(&run(line), &Results::default());
            let build = results.build.is_empty();
            format!("{:?} {build}", results.gpus.keys().collect::<Vec<_>>())
        },
    );
    insta::assert_snapshot!(found, @r#"
    timed; clean; partial 10 10
        ["nvidia-h200"] false
    timed; tier 0
        ["nvidia-h200"] false
    timed; clean; - compute-sanitizer !scalar; wmma gpu all: cases 0 | cases_unsupported 10; cpasync gpu all: cases 0 | cases_unsupported 10
        ["nvidia-h200"] false
    emulated
        [] false
    "#);
    let error = refused(&run("timed; clean; tier 1"));
    assert!(
        error.contains("is of tier T1, a part of the cases"),
        "{error}"
    );
    let error = refused(&run("timed; clean; partial 10 10; - cpasync mission"));
    let says = "cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed";
    assert!(error.contains(says), "{error}");
    // What the table has of these kernels, a run need not measure again.
    let view = accepted(&run("emulated; named 1"), &Results::default());
    accepted(&run("emulated; - cpasync mission; measurable E1"), &view);
}

/// Of a run of some stages, with the gates that it fails; of a whole run everything is required.
#[test]
fn what_has_changed_since_is_left_out() {
    let changed = "clean; cpasync compute-sanitizer: C7 fail; sources 1 yesterday";
    let some = run(&format!("timed; stages 0 1; {changed}"));
    let (some, lines) = merged(&some, &Results::default()).unwrap();
    let left_out = "left out, measured on other kernels than the sources': stage1-cpasync/cpasync-32x64; run them again with this build";
    assert!(lines.iter().any(|line| line == left_out), "{lines:?}");
    let table = &some.gpus[FOLDER];
    let measured = |stage: &str| {
        table
            .rows()
            .any(|row| row.subject.stage() == stage && row.source() == Source::Gpu)
    };
    assert!(measured("stage0-scalar") && !measured("stage1-cpasync"));
    let whole = refused(&run(&format!("timed; {changed}")));
    assert!(
        whole.contains("cpasync-32x64: every gate: none of its cases ran"),
        "{whole}"
    );
    let none = refused(&run(
        "timed; clean; stages 0 1; sources 0 yesterday; sources 1 yesterday",
    ));
    assert!(
        none.contains("measured no kernel of these sources"),
        "{none}"
    );
}

#[test]
fn what_is_known_of_the_same_machine_code_is_of_the_sources_as_they_are() {
    let built = run("timed; built 96 0").table;
    let merged = |words: &str, results: &Results| {
        let run = run(&format!("{words}; built 96 0; clean"));
        let mut results = results.clone();
        merge(&run, &mut results, &built).unwrap();
        (run.session.stages, results)
    };
    let (_, view) = merged("timed; named 1", &Results::default());
    for backend in ["timed", "emulated"] {
        let later = format!("{backend}; named 2; stages 0; - cpasync; sources 1 rewritten");
        let (stages, view) = merged(&later, &view);
        let rows = view.gpus[FOLDER].rows();
        let of_the_other: Vec<&Row> = rows.filter(|row| row.session == "1").collect();
        assert!(!of_the_other.is_empty());
        let is_stale = |row: &&Row| kernels::is_stale(&stages, row);
        assert_eq!(of_the_other.into_iter().find(is_stale), None, "{backend}");
    }
}

/// wmma-qk is 1.2x as fast as scalar in 24 and 20 µs; 1.5x are claimed.
#[test]
fn a_failed_claim_is_refused_with_the_entry_that_refutes_it() {
    let before = accepted(&good().named("20261119T183000Z-linux"), &Results::default());
    let found = each(
        "timed 24 20 15; clean
        timed 24 20 15; clean; refuted 0 0
        timed 24 20 15; clean; refuted 0 0 NVIDIA L4
        timed; clean; refuted 0 0
        timed 24 20 19; clean; refuted 0 0
        timed; clean; counted cpasync 1048577 0
        timed; clean; at-most 1 1 barrier_stall_share 0.1; + cpasync | mission f16 full | ncu | barrier_stall_share 0.2",
        |line| match merged(&run(line), &before) {
            Ok((_, lines)) => lines[1].clone(),
            Err(error) => error.to_string(),
        },
    );
    insta::assert_snapshot!(found, @r#"
    timed 24 20 15; clean
        20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
          stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar, in stage0-scalar/negatives.json:
        {
          "claim": "wmma-qk p50 over stage0-scalar scalar on mission f16 full",
          "gpu": "NVIDIA H200",
          "measured": "wmma-qk-32x64 against stage0-scalar/scalar-32x64: p50 1.200x [1.200, 1.201], p90 1.200x [1.200, 1.201], mean 1.200x [1.200, 1.201], claim 1.50x (20261120T183000Z-linux)",
          "why": ""
        }
    timed 24 20 15; clean; refuted 0 0
        SAME: 1 changed (informational), 40 unchanged
    timed 24 20 15; clean; refuted 0 0 NVIDIA L4
        20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
          stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar, in stage0-scalar/negatives.json:
        {
          "claim": "wmma-qk p50 over stage0-scalar scalar on mission f16 full",
          "gpu": "NVIDIA H200",
          "measured": "wmma-qk-32x64 against stage0-scalar/scalar-32x64: p50 1.200x [1.200, 1.201], p90 1.200x [1.200, 1.201], mean 1.200x [1.200, 1.201], claim 1.50x (20261120T183000Z-linux)",
          "why": ""
        }
    timed; clean; refuted 0 0
        SAME: 41 unchanged
    timed 24 20 19; clean; refuted 0 0
        20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
          stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk, in stage1-cpasync/negatives.json:
        {
          "claim": "cpasync p50 over stage0-scalar wmma-qk on mission f16 full",
          "gpu": "NVIDIA H200",
          "measured": "cpasync-32x64 against stage0-scalar/wmma-qk-32x64: p50 1.053x [1.052, 1.053], p90 1.053x [1.052, 1.053], mean 1.053x [1.052, 1.053], claim 1.10x (20261120T183000Z-linux)",
          "why": ""
        }
    timed; clean; counted cpasync 1048577 0
        20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
          stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk, in stage1-cpasync/negatives.json:
        {
          "claim": "cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full",
          "measured": "cpasync-32x64 1,048,577 / wmma-qk-32x64 1,048,576 = 1.000x (20261120T183000Z-linux)",
          "why": ""
        }
    timed; clean; at-most 1 1 barrier_stall_share 0.1; + cpasync | mission f16 full | ncu | barrier_stall_share 0.2
        20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
          stage1-cpasync: cpasync: barrier stalls' share <= 10.0 %, in stage1-cpasync/negatives.json:
        {
          "claim": "cpasync barrier stalls' share at most on mission f16 full",
          "gpu": "NVIDIA H200",
          "measured": "ncu FAIL: cpasync-32x64 20.0 % (20261120T183000Z-linux)",
          "why": ""
        }
    "#);
}

#[test]
fn a_run_with_random_problems_refits_the_choice_and_its_regret_is_a_row() {
    let drawn = scenario::row("scalar | 1x1x17x64 f16 full | draw | draw 0 | p50 9");
    let kept = accepted(&good().with(drawn.clone()), &Results::default());
    assert!(kept.gpus[FOLDER].get(&drawn.key()).is_some());
    let loaded = crate::stages::library().unwrap();
    let run = drawn_run(&loaded, 90).sampled(LARGE, mission(), &samples(9.0));
    let stages = &run.session.stages;
    let mut results = Results::default();
    assert!(refit(&mut results, FOLDER, stages, &loaded).is_none());
    results.put(Some(FOLDER), &table(std::slice::from_ref(&run)));
    let before = results.gpus[FOLDER].clone();
    let (file, lines) = refit(&mut results, FOLDER, stages, &loaded).unwrap();
    let model: Model = serde_json::from_str(&file).unwrap();
    assert_eq!(
        (&*model.gpu, model.capability, model.multiprocessors),
        (GPU, 90, 132)
    );
    assert!(file.lines().count() > 8 && file.len() < 10_000);
    let last = lines.last().unwrap();
    assert!(
        last.contains("the library's choice takes 1.0")
            && !last.contains('✗')
            && last.contains("over 90 random problems"),
        "{last}"
    );
    let after = &results.gpus[FOLDER];
    let regret = Regret::view(after).unwrap();
    let rows = [&before, after].map(|table| table.rows().count());
    assert_eq!((rows[1], regret.problems), (rows[0] + 1, 90));
    let row = after.row(&"attention-ladder".into(), Kind::Regret);
    assert_eq!(row.unwrap().session, run.session.name);
    // Another GPU of the capability, with few problems of its own.
    let few = drawn_run(&loaded, 3).sampled(LARGE, mission(), &samples(9.0));
    let mut both = results.clone();
    both.put(Some("another"), &table(&[few]));
    let (file, _) = refit(&mut both, "another", stages, &loaded).unwrap();
    let of_few: Model = serde_json::from_str(&file).unwrap();
    assert_eq!(of_few.costs.len(), model.costs.len());
}
