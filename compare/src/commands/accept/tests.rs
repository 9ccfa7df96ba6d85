use super::*;
use choice::testing::{LARGE, drawn_run};
use common::choice::Model;
use common::verdict::{GateId, Verdict};
use results::judge::regret::Regret;
use results::table::session::Git;
use results::table::{Figure, ProblemPlace, Relation};
use results::table::{Row, Source, kernels};
use results::testing::{
    self, CPASYNC, GPU, ON_GPU, PeerArm, SCALAR, US, WMMA, counters, emulated, mission, row,
    samples, site, table, timed,
};
use std::path::Path;
use tempfile::TempDir;

/// The folder of its GPU's table.
const FOLDER: &str = "nvidia-h200";

/// Returns a whole run on a GPU, completed by `compare sanitize`.
fn good() -> Run {
    timed(US).clean()
}

/// Returns such a run, which refutes a claim: wmma-qk is 1.2x as fast as scalar, and claims 1.5x.
fn slow() -> Run {
    timed([24.0, 20.0, 15.0]).clean()
}

/// The tables with a run that was accepted, and what `accept` prints.
#[derive(Debug)]
struct Merged {
    results: Results,
    lines: Vec<String>,
}

fn merge_into(before: &Results, run: &Run) -> anyhow::Result<Merged> {
    let mut results = before.clone();
    let lines = merge(run, &[], &mut results, &Table::default())?;
    Ok(Merged { results, lines })
}

fn accepted(run: &Run, before: &Results) -> Results {
    merge_into(before, run).unwrap().results
}

fn refused(run: &Run) -> String {
    let error = merge_into(&Results::default(), run).expect_err("it is refused");
    format!("{error:#}")
}

fn text(results: &Results) -> Vec<(String, String)> {
    let mut texts = Vec::new();
    for file in results.files() {
        texts.push((file.path, String::from_utf8(file.bytes).unwrap()));
    }
    texts
}

#[test]
fn an_interrupted_run_is_refused() {
    assert_eq!(
        refused(&good().partial(9, 10)),
        "20261120T183000Z-linux was interrupted after 9 of 10 cases; run the stages that are \
         missing again (`--stages`)"
    );
}

/// Ctrl-C while pairs are timed loses nothing that came before.
#[test]
fn a_run_that_was_stopped_after_its_cases_is_accepted_and_says_what_it_did_not_time() {
    let stopped = good().without_pair(CPASYNC).partial(10, 10);
    let merged = merge_into(&Results::default(), &stopped).unwrap();
    let said = "20261120T183000Z-linux was stopped before it timed 1 claim, first of \
                stage1-cpasync: `compare --full --stages 1` measures them";
    assert!(
        merged.lines.contains(&said.to_string()),
        "{:?}",
        merged.lines
    );
}

#[test]
fn a_run_that_was_stopped_is_refused_without_the_gates_of_a_variant() {
    let error = refused(&good().without_row(WMMA, ON_GPU).partial(10, 10));
    assert!(
        error.starts_with(
            "20261120T183000Z-linux lacks what it should have measured; run again what is \
             missing:\n  \
             stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran"
        ),
        "{error}"
    );
}

#[test]
fn a_run_that_came_to_its_end_is_refused_without_a_pair() {
    assert_eq!(
        refused(&good().without_pair(CPASYNC)),
        "20261120T183000Z-linux lacks what it should have measured; run again what is missing:\n  \
         stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed"
    );
}

#[test]
fn a_run_on_a_smaller_device_is_refused() {
    assert_eq!(
        refused(&good().limited_to("sm_89")),
        "20261120T183000Z-linux is limited to what sm_89 offers and is not kept: run without \
         --device and ATTENTION_DEVICE"
    );
}

#[test]
fn a_run_of_a_dirty_tree_is_refused() {
    assert_eq!(
        refused(&good().dirty()),
        "20261120T183000Z-linux was built from 0123456789ab with uncommitted changes; commit \
         them, and run again"
    );
}

#[test]
fn a_run_of_unknown_source_is_refused() {
    let unknown = good().changed(|session| {
        session.git = Git::Unknown {
            reason: "no git".into(),
        };
    });
    assert_eq!(
        refused(&unknown),
        "the source of 20261120T183000Z-linux is unknown (no git); run it in a git checkout"
    );
}

#[test]
fn a_run_of_a_program_without_debug_information_is_refused() {
    assert_eq!(
        refused(&good().stripped()),
        "20261120T183000Z-linux was made by a program without debug information, so that \
         hazards in it name no source lines; build it unstripped (no `strip`, no \
         CARGO_PROFILE_*_DEBUG=0) and run `compare` again"
    );
}

#[test]
fn a_run_of_other_sources_is_refused() {
    assert_eq!(
        refused(&good().with_later_identity(1, "yesterday")),
        "20261120T183000Z-linux lacks what it should have measured; run again what is missing:\n  \
         stage1-cpasync/cpasync-32x64: every gate: none of its cases ran\n  \
         stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed\n  \
         stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured"
    );
}

#[test]
fn a_run_with_a_gate_that_fails_is_refused() {
    assert_eq!(
        refused(&slow().with_gate(WMMA, ON_GPU, GateId::C3, Verdict::Fail)),
        "20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and \
         run again:\n  \
         stage0-scalar/wmma-qk-32x64 C3: too large"
    );
}

#[test]
fn a_run_with_spills_is_refused() {
    assert_eq!(
        refused(&good().built_throughout(96, 8)),
        "20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and \
         run again:\n  \
         stage0-scalar/scalar-32x64 R1: sm_90a: spilled bytes 8 > 0\n  \
         stage0-scalar/wmma-qk-32x64 R1: sm_90a: spilled bytes 8 > 0\n  \
         stage1-cpasync/cpasync-32x64 R1: sm_90a: spilled bytes 8 > 0"
    );
}

#[test]
fn a_run_that_the_sanitizer_finds_broken_is_refused() {
    assert_eq!(
        refused(&good().with_gate(CPASYNC, Kind::Sanitized, GateId::C7, Verdict::Fail)),
        "20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and \
         run again:\n  \
         stage1-cpasync/cpasync-32x64 C7: too large"
    );
}

#[test]
fn a_run_with_a_time_that_is_impossible_is_refused() {
    assert_eq!(
        refused(&good().with_failure(
            WMMA,
            testing::latency(),
            GateId::L1,
            "impossible: below 3 us"
        )),
        "20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and \
         run again:\n  \
         stage0-scalar/wmma-qk-32x64 L1: mission f16 full as timed: impossible: below 3 us"
    );
}

#[test]
fn a_run_with_timed_outputs_that_differ_is_refused() {
    assert_eq!(
        refused(&good().with_failure(WMMA, testing::latency(), GateId::C5, "they differ")),
        "20261120T183000Z-linux has failed gates, which cannot be waived; fix the kernels and \
         run again:\n  \
         stage0-scalar/wmma-qk-32x64 C5: mission f16 full as timed: they differ"
    );
}

#[test]
fn a_full_run_without_the_sanitizer_is_refused() {
    let sanitized_in_part = good()
        .without_row(WMMA, Kind::Sanitized)
        .without_row(CPASYNC, Kind::Sanitized);
    assert_eq!(
        refused(&sanitized_in_part),
        "20261120T183000Z-linux has no gate C7 for 2 variants, first \
         stage0-scalar/wmma-qk-32x64; complete it on its GPU with `compare sanitize`, then \
         accept it"
    );
}

#[test]
fn a_run_of_one_stage_without_the_sanitizer_is_refused() {
    assert_eq!(
        refused(&timed(US).of_stages(&["0"])),
        "20261120T183000Z-linux has no gate C7 for 3 variants, first \
         stage0-scalar/scalar-32x64; complete it on its GPU with `compare sanitize`, then \
         accept it"
    );
}

#[test]
fn a_run_with_a_planted_fault_that_survives_is_refused() {
    let zeros = Kind::Fault("zeros".into());
    assert_eq!(
        refused(&good().with_failure("self-test", zeros, GateId::S1, "no gate fails")),
        "the self-test of 20261120T183000Z-linux fails; fix it (`compare selftest`) and run \
         again:\n  \
         self-test on : zeros by self-test: no gate fails"
    );
}

#[test]
fn a_run_with_a_mutant_that_survives_is_refused() {
    let reason = "its mutant survives";
    let surviving = good().with_failure("stage0-scalar/scalar", site(), GateId::S1, reason);
    assert_eq!(
        refused(&surviving),
        "the self-test of 20261120T183000Z-linux fails; fix it (`compare selftest`) and run \
         again:\n  \
         stage0-scalar/scalar on : __syncthreads stage0-scalar/kernel.cu:159 by self-test: its \
         mutant survives"
    );
}

#[test]
fn a_run_without_the_cases_of_a_variant_is_refused() {
    assert_eq!(
        refused(&good().without_row(WMMA, ON_GPU)),
        "20261120T183000Z-linux lacks what it should have measured; run again what is missing:\n  \
         stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran\n  \
         stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed\n  \
         stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed"
    );
}

#[test]
fn a_run_without_rows_is_refused() {
    assert_eq!(
        refused(&good().without(|_| true)),
        "20261120T183000Z-linux lacks what it should have measured; run again what is missing:\n  \
         stage0-scalar/scalar-32x64: every gate: none of its cases ran\n  \
         stage0-scalar/wmma-qk-32x64: every gate: none of its cases ran\n  \
         stage1-cpasync/cpasync-32x64: every gate: none of its cases ran\n  \
         stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar: it was not timed\n  \
         stage0-scalar: wmma-qk: global bytes read as in stage0-scalar scalar: not measured\n  \
         stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk: it was not timed\n  \
         stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured"
    );
}

#[test]
fn a_session_that_is_too_large_is_refused() {
    let large = Row::new(SCALAR, Kind::Profile(mission())).note("x".repeat(MAX_SESSION_BYTES));
    let error = refused(&good().with_row(large.clone()));
    assert!(error.contains("2000000 at most; narrow the run"), "{error}");
    // What others measured does not count.
    let mut results = accepted(&good(), &Results::default());
    results.table_mut(FOLDER).append(large);
    accepted(&good().named("2"), &results);
}

/// Returns the error of `accept` for a run's folder.
fn refused_folder(run: &Path, results: Option<&Path>) -> String {
    let args = AcceptArgs {
        runs: vec![run.to_path_buf()],
        refit: false,
        results: results.map(Path::to_path_buf),
    };
    format!("{:#}", accept(&args).unwrap_err())
}

#[test]
fn without_a_table_of_a_gpu_there_is_nothing_to_refit() {
    let folder = TempDir::new().unwrap();
    let args = AcceptArgs {
        runs: Vec::new(),
        refit: true,
        results: Some(folder.path().join("none")),
    };
    let error = accept(&args).unwrap_err().to_string();
    assert!(error.contains("accept a run first"), "{error}");
}

#[test]
fn tables_are_worked_on_by_one_at_a_time() {
    let folder = TempDir::new().unwrap();
    let held = lock(folder.path()).unwrap();
    let other = File::open(folder.path()).unwrap();
    let refusal = other.try_lock().unwrap_err();
    assert!(matches!(refusal, TryLockError::WouldBlock), "{refusal}");
    drop(held);
    other.try_lock().unwrap();
}

#[test]
fn a_folder_that_is_no_run_is_refused() {
    let error = refused_folder(Path::new("no/such/run"), None);
    assert!(error.contains("no/such/run is not a run"), "{error}");
}

/// Checks that a run with this figure is refused by name where it is read.
#[track_caller]
fn assert_cannot_be(metric: Metric, figure: impl Into<Figure>, message: &str) {
    let folder = TempDir::new().unwrap();
    let results = folder.path().join("results");
    let path = folder.path().join("run");
    let run = good().with_figure(SCALAR, testing::latency(), metric, figure);
    run.write(&path).unwrap();
    let error = refused_folder(&path, Some(&results));
    let place = "stage0-scalar/scalar-32x64 on mission f16 full by gpu";
    for part in ["rows.jsonl: line ", place, message] {
        assert!(error.contains(part), "{part}: {error}");
    }
    assert!(!results.exists(), "nothing is left behind");
}

#[test]
fn a_time_that_is_no_positive_number_is_refused() {
    assert_cannot_be(Metric::P50, 0.0, "p50 is 0, which cannot be measured");
    assert_cannot_be(Metric::P50, -1.0, "p50 is -1");
    assert_cannot_be(Metric::P50, f64::NAN, "p50 is NaN");
    assert_cannot_be(Metric::P50, f64::INFINITY, "p50 is NaN");
}

#[test]
fn a_time_outside_its_interval_is_refused() {
    assert_cannot_be(Metric::P50, (3.0, 3.5, 4.0), "p50 is 3 [3.5, 4]");
}

/// 537 MFLOP take 0.54 µs at the peak of an H200. Of a pair the least time may be that of the arm
/// that is not the row's own.
#[test]
fn a_time_below_the_peak_of_its_gpu_is_refused() {
    let fast = "0.5 µs, and nothing can take less than 0.543 µs on NVIDIA H200";
    assert_cannot_be(Metric::P50, 0.5, fast);
    assert_cannot_be(Metric::Min, 0.5, fast);
}

#[test]
fn a_time_at_its_floor_is_refused() {
    assert_cannot_be(
        Metric::FloorUs,
        32.03,
        "32.03 µs, and nothing can take less than 32.030 µs",
    );
}

/// Returns a whole run on another GPU model.
fn run_on_h100() -> Run {
    good()
        .named("20261121T183000Z-nvidia-h100")
        .on_card("NVIDIA H100")
}

#[test]
fn a_session_of_another_gpu_model_is_refused() {
    let results = accepted(&good(), &Results::default());
    let error = merge_into(&results, &run_on_h100())
        .err()
        .unwrap()
        .to_string();
    for part in [
        "was measured on NVIDIA H100 (",
        "and the table is of NVIDIA H200 (",
    ] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn another_gpu_model_has_a_table_of_its_own() {
    let of_h200 = accepted(&good(), &Results::default());
    let elsewhere = run_on_h100().changed(|session| {
        session.machine.name = "nvidia-h100".into();
    });
    let of_both = accepted(&elsewhere, &of_h200);
    let folders: Vec<&str> = of_both.gpus.keys().map(String::as_str).collect();
    assert_eq!(folders, ["nvidia-h100", FOLDER]);
    // What was built last is of the other session.
    accepted(&good().named("20261122T183000Z-nvidia-h200"), &of_both);
}

/// Returns a whole run beside a slower peer.
fn beside_torch_default() -> Run {
    good().peers("mission", 15.0, &[PeerArm::right("torch-default", 40.0)])
}

#[test]
fn accepting_twice_changes_nothing() {
    let run = beside_torch_default();
    let first = accepted(&run, &Results::default());
    let second = accepted(&run, &first);
    assert!(text(&first) == text(&second));
    let folder = TempDir::new().unwrap();
    first.write(folder.path()).unwrap();
    assert!(text(&Results::read(folder.path()).unwrap()) == text(&second));
}

#[test]
fn cases_stay_with_the_run_and_ratios_and_claims_are_rows() {
    let case = row("scalar | mission f16 full normal:0 | gpu | C1 pass");
    let run = beside_torch_default().with_row(case);
    let Merged { results, lines } = merge_into(&Results::default(), &run).unwrap();
    let has = |is_wanted: fn(&Row) -> bool| results.gpus[FOLDER].rows().any(is_wanted);
    assert!(!has(|row| row.kind.is_case()));
    assert!(has(|row| {
        row.source() == Source::Peers && row.base() == Some(&"torch-default".into())
    }));
    assert!(has(|row| row.source() == Source::Claim));
    assert!(results.build.rows().all(|row| row.kind.is_of_build()));
    let start = "accepted 20261120T183000Z-linux (";
    assert!(lines[0].starts_with(start), "{lines:?}");
}

fn large() -> ProblemPlace {
    ProblemPlace {
        shape: "big".into(),
        ..mission()
    }
}

/// Returns the tables after a run that also timed SCALAR on a large problem, and another one after
/// its kernel changed.
fn after_its_kernel_changed(next: Run) -> Results {
    let before = good().named("1").sampled(SCALAR, large(), &[5000.0; 20]);
    let first = accepted(&before, &Results::default());
    accepted(&next.named("2").with_identity(0, "new"), &first)
}

/// Returns whether a table has a time of SCALAR on that problem.
fn has_large_time(results: &Results) -> bool {
    let table = &results.gpus[FOLDER];
    table.latency(&SCALAR.into(), &large()).is_some()
}

#[test]
fn a_former_kernels_time_that_a_whole_run_did_not_take_again_goes() {
    assert!(!has_large_time(&after_its_kernel_changed(good())));
}

#[test]
fn a_former_kernels_time_stays_beside_a_run_of_some_stages() {
    let some = good().of_stages(&["0"]);
    assert!(has_large_time(&after_its_kernel_changed(some)));
}

#[test]
fn a_former_kernels_time_stays_beside_a_run_that_was_stopped() {
    let stopped = good().partial(10, 10);
    assert!(has_large_time(&after_its_kernel_changed(stopped)));
}

#[test]
fn a_time_of_a_kernel_as_it_is_stays_beside_a_whole_run() {
    let before = good().named("1").sampled(SCALAR, large(), &[5000.0; 20]);
    let first = accepted(&before, &Results::default());
    assert!(has_large_time(&accepted(&good().named("2"), &first)));
}

/// Returns the latency of a variant on mission, and the session that measured it.
fn latency(results: &Results, subject: &str) -> (f64, String) {
    let table = &results.gpus[FOLDER];
    let row = table.latency(&subject.into(), &mission()).unwrap();
    (row.value(Metric::P50).unwrap(), row.session.clone())
}

/// Returns the session that checked SCALAR.
fn session_of_checks(results: &Results) -> &str {
    let table = &results.gpus[FOLDER];
    let row = table.checked(&SCALAR.into(), BackendKind::Cuda).unwrap();
    &row.session
}

/// Returns the number of rows that are about wmma-qk, or are claims.
fn rows_of_wmma_and_claims(results: &Results) -> usize {
    let rows = results.gpus[FOLDER].rows().chain(results.build.rows());
    rows.filter(|row| row.key().to_string().contains("wmma-qk") || row.source() == Source::Claim)
        .count()
}

/// Each run is accepted on top of those before it.
#[test]
fn a_row_replaces_that_of_its_key_and_what_is_no_longer_declared_goes() {
    let nine_cases = good()
        .named("1")
        .with_figure(SCALAR, ON_GPU, Metric::Cases, 9.0);
    let first = accepted(&nine_cases, &Results::default());
    assert_eq!(latency(&first, SCALAR), (32.03, "1".into()));
    assert_eq!(latency(&first, CPASYNC), (15.01, "1".into()));
    assert_eq!(session_of_checks(&first), "1");
    assert_eq!(rows_of_wmma_and_claims(&first), 11);

    let slower_stage0 = timed([40.0, 20.0, 15.0])
        .clean()
        .without_rows_of_stage("stage1-cpasync")
        .named("2")
        .of_stages(&["0"]);
    let second = accepted(&slower_stage0, &first);
    assert_eq!(latency(&second, SCALAR), (40.04, "2".into()));
    assert_eq!(latency(&second, CPASYNC), (15.01, "1".into()));
    assert_eq!(session_of_checks(&second), "1");
    assert_eq!(rows_of_wmma_and_claims(&second), 11);

    let without_wmma = good()
        .named("3")
        .without_variant(WMMA)
        .without_pairs()
        .without_claims();
    let third = accepted(&without_wmma, &second);
    assert_eq!(latency(&third, SCALAR), (32.03, "3".into()));
    assert_eq!(latency(&third, CPASYNC), (15.01, "3".into()));
    assert_eq!(session_of_checks(&third), "1");
    assert_eq!(rows_of_wmma_and_claims(&third), 0);
}

#[test]
fn what_does_not_lead_its_problem_keeps_what_it_is_judged_by() {
    let slower = good().sampled("stage0-scalar/none", mission(), &[50.0, 51.0, 52.0]);
    let mut before = slower.table.clone();
    let at_limit = before
        .rows()
        .find(|row| row.subject.name() == "none" && row.is_latency())
        .expect("it was sampled")
        .clone()
        .figure(Metric::PowerW, 690.0)
        .figure(Metric::PowerLimitW, 700.0)
        .figure(Metric::EnergyMj, 400.0);
    before.append(at_limit);
    let older = "slower | mission f16 full | gpu | session 1 | p50 60 59 61 | mean 60";
    before.append(row(older));
    let mut table = before.clone();
    keep_leading(&mut table, &slower.session.name);
    let changed: Vec<&Row> = table
        .rows()
        .filter(|row| before.get(&row.key()) != Some(row))
        .collect();
    assert_eq!(changed.len(), 1, "three lead");
    assert_eq!(changed[0].subject.name(), "none");
    let kept: Vec<Metric> = changed[0].figures.keys().copied().collect();
    assert_eq!(kept, METRICS_OF_SLOWER_VARIANTS);
}

#[test]
fn ratios_to_peers_that_are_not_the_fastest_are_left_out() {
    let peers = [
        PeerArm::right("flash-attn-4", 20.0),
        PeerArm::wrong("cudnn", 5.0),
        PeerArm::right("torch-flash", 40.0),
        PeerArm::right("torch-cudnn", 30.0),
        PeerArm::right("flash-attn-3", 25.0),
    ];
    let mut table = good().peers("mission", 10.0, &peers).table;
    let times = table.peer_times().count();
    keep_fastest_peers(&mut table);
    let rivals: Vec<&str> = table
        .rows_by(Source::Peers)
        .filter_map(|row| Some(row.base()?.as_str()))
        .collect();
    assert_eq!(rivals, ["flash-attn-4", "torch-cudnn", "torch-flash"]);
    assert_eq!(table.peer_times().count(), times);
}

/// Checks that a run is accepted, into the table of its GPU and that of the build.
#[track_caller]
fn assert_accepted_on_gpu(run: &Run) {
    let results = accepted(run, &Results::default());
    assert_eq!(results.gpus.keys().collect::<Vec<_>>(), [FOLDER]);
    assert!(!results.build.is_empty());
}

#[test]
fn a_run_interrupted_in_its_timings_is_accepted_if_its_claims_were_measured() {
    assert_accepted_on_gpu(&good().partial(10, 10));
}

#[test]
fn a_run_interrupted_in_its_timings_is_refused_if_its_counters_were_not_measured() {
    let in_part = good()
        .partial(10, 10)
        .without_row(CPASYNC, counters())
        .without_row(CPASYNC, testing::latency())
        .without_pair(CPASYNC);
    assert_eq!(
        refused(&in_part),
        "20261120T183000Z-linux lacks what it should have measured; run again what is missing:\n  \
         stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk: not measured"
    );
}

#[test]
fn a_run_of_a_tier_that_needs_no_sanitizer_is_accepted() {
    assert_accepted_on_gpu(&timed(US).of_tier(Tier::T0));
}

#[test]
fn a_run_of_a_tier_of_a_part_of_the_cases_is_refused() {
    let error = refused(&good().of_tier(Tier::T1));
    let reason = "is of tier T1, a part of the cases";
    assert!(error.contains(reason), "{error}");
}

/// Returns a whole run of tier T2 of what nvcc built.
fn built() -> Run {
    timed(US).built_throughout(96, 0).clean().named("1")
}

/// Returns a run of a part of the cases, which is not sanitized.
fn part_of_the_cases() -> Run {
    timed(US)
        .built_throughout(96, 0)
        .of_tier(Tier::T1)
        .named("2")
}

/// Returns the tables with a run of tier T2.
fn with_all_cases() -> Results {
    accepted(&built(), &Results::default())
}

/// Returns why a run is refused beside these tables.
fn refused_beside(run: &Run, before: &Results) -> String {
    let error = merge_into(before, run).expect_err("it is refused");
    format!("{error:#}")
}

#[test]
fn a_run_of_a_part_of_the_cases_is_accepted_beside_all_of_the_same_machine_code() {
    let after = accepted(&part_of_the_cases(), &with_all_cases());
    let sessions = &after.gpus[FOLDER].sessions;
    assert!(sessions.contains_key("2"), "its times are kept");
}

#[test]
fn a_run_of_a_part_of_the_cases_of_other_machine_code_is_refused() {
    let other_code = part_of_the_cases().with_code(WMMA, "other");
    let error = refused_beside(&other_code, &with_all_cases());
    let reason = "2 is of tier T1, a part of the cases that a table's gates stand for, and no table \
                  has all of them for the same machine code on a GPU of its architecture; accept a \
                  run of `compare --full --iters 0 --stages stage0-scalar` before it";
    assert_eq!(error, reason);
}

#[test]
fn cases_of_given_problems_do_not_stand_for_all() {
    let mut selection = built();
    selection.session.scope.shapes = vec!["mission".into()];
    let before = accepted(&selection, &Results::default());
    let error = refused_beside(&part_of_the_cases(), &before);
    assert!(error.contains("2 is of tier T1"), "{error}");
}

#[test]
fn a_part_of_the_cases_does_not_stand_for_all() {
    let part = accepted(&part_of_the_cases(), &with_all_cases());
    let mut without_all = part.clone();
    let table = without_all.gpus.get_mut(FOLDER).unwrap();
    for session in table.sessions.values_mut() {
        session.tier = Tier::T1;
    }
    let error = refused_beside(&part_of_the_cases().named("3"), &without_all);
    assert!(error.contains("3 is of tier T1"), "{error}");
}

#[test]
fn runs_that_two_gpus_began_in_the_same_second_are_both_kept() {
    let stage0 = built().of_stages(&["0"]).without_subject(CPASYNC);
    let first = accepted(&stage0, &Results::default());
    let second = built()
        .of_stages(&["1"])
        .without_subject(SCALAR)
        .without_subject(WMMA);
    let both = accepted(&second, &first);
    let names = |results: &Results| Vec::from_iter(results.gpus[FOLDER].sessions.keys().cloned());
    assert_eq!(names(&both), ["1", "1-2"]);
    assert_eq!(
        names(&accepted(&second, &both)),
        ["1", "1-2"],
        "it is the same run"
    );
}

#[test]
fn a_run_that_is_accepted_with_it_may_have_gate_c7_of_the_same_machine_code() {
    let all_cases = timed(US).built_throughout(96, 0).named("1");
    let sanitized = part_of_the_cases().clean();
    let mut results = Results::default();
    let runs = [all_cases.clone(), sanitized];
    for run in &runs {
        merge(run, &runs, &mut results, &Table::default()).unwrap();
    }
    let other_code = [timed(US)
        .built_throughout(96, 0)
        .clean()
        .with_code(CPASYNC, "other")];
    let error = merge(
        &all_cases,
        &other_code,
        &mut Results::default(),
        &Table::default(),
    );
    let reason = "1 has no gate C7 for 1 variant, first stage1-cpasync/cpasync-32x64";
    assert!(error.unwrap_err().to_string().contains(reason));
}

#[test]
fn a_run_on_a_device_with_too_little_memory_for_a_variants_cases_is_accepted() {
    let mut run = good();
    for subject in [WMMA, CPASYNC] {
        run = run
            .without_row(subject, Kind::Sanitized)
            .with_figure(subject, ON_GPU, Metric::Cases, 0.0)
            .with_figure(subject, ON_GPU, Metric::CasesUnsupported, 10.0);
    }
    assert_accepted_on_gpu(&run);
}

#[test]
fn a_run_in_the_emulator_is_accepted_into_the_table_of_the_build() {
    let results = accepted(&emulated(), &Results::default());
    assert!(results.gpus.is_empty());
    assert!(!results.build.is_empty());
}

#[test]
fn what_the_table_has_of_these_kernels_a_run_need_not_measure_again() {
    let results = accepted(&emulated().named("1"), &Results::default());
    let uncounted = emulated()
        .without_row(CPASYNC, counters())
        .with_measurable(GateId::E1);
    accepted(&uncounted, &results);
}

/// Returns a whole run that fails a gate of a stage that has changed since.
fn failed_and_changed() -> Run {
    good()
        .with_gate(CPASYNC, Kind::Sanitized, GateId::C7, Verdict::Fail)
        .with_later_identity(1, "yesterday")
}

/// It is left out with the gates that it fails.
#[test]
fn a_stage_that_has_changed_since_is_left_out_of_a_run_of_some_stages() {
    let part = good()
        .of_stages(&["0", "1"])
        .with_gate(CPASYNC, Kind::Sanitized, GateId::C7, Verdict::Fail)
        .with_later_identity(1, "yesterday");
    let Merged { results, lines } = merge_into(&Results::default(), &part).unwrap();
    let left_out = "left out, measured on other kernels than the sources': \
                    stage1-cpasync/cpasync-32x64; run them again with this build";
    assert!(lines.iter().any(|line| line == left_out), "{lines:?}");
    let is_measured = |stage: &str| {
        let mut rows = results.gpus[FOLDER].rows();
        rows.any(|row| row.subject.stage() == stage && row.source() == Source::Gpu)
    };
    assert!(is_measured("stage0-scalar"));
    assert!(!is_measured("stage1-cpasync"));
}

#[test]
fn of_a_whole_run_every_stage_is_required() {
    let error = refused(&failed_and_changed());
    let reason = "cpasync-32x64: every gate: none of its cases ran";
    assert!(error.contains(reason), "{error}");
}

#[test]
fn a_run_of_which_every_stage_has_changed_since_is_refused() {
    let changed = good()
        .of_stages(&["0", "1"])
        .with_later_identity(0, "yesterday")
        .with_later_identity(1, "yesterday");
    let error = refused(&changed);
    let reason = "measured no kernel of these sources";
    assert!(error.contains(reason), "{error}");
}

#[test]
fn what_is_known_of_the_same_machine_code_is_of_the_sources_as_they_are() {
    let table_of_build = timed(US).built_throughout(96, 0).table;
    let mut results = Results::default();
    merge(&built(), &[], &mut results, &table_of_build).unwrap();
    for run in [timed(US), emulated()] {
        let later = run
            .named("2")
            .of_stages(&["0"])
            .without_subject(CPASYNC)
            .with_later_identity(1, "rewritten")
            .built_throughout(96, 0)
            .clean();
        let mut merged_results = results.clone();
        merge(&later, &[], &mut merged_results, &table_of_build).unwrap();
        let rows = merged_results.gpus[FOLDER].rows();
        let of_first: Vec<&Row> = rows.filter(|row| row.session == "1").collect();
        assert!(!of_first.is_empty());
        for row in of_first {
            let is_stale = kernels::is_stale(&later.session.stages, row);
            assert!(!is_stale, "{:?}: {}", later.session.backend, row.key());
        }
    }
}

/// Returns the outcome of accepting a run on top of a good one: what it changes, or why it is
/// refused.
fn outcome(run: &Run) -> String {
    let before = accepted(&good().named("20261119T183000Z-linux"), &Results::default());
    match merge_into(&before, run) {
        Ok(merged) => merged.lines[1].clone(),
        Err(error) => error.to_string(),
    }
}

/// Nobody has to ask for it.
#[test]
fn what_is_worse_is_named() {
    let before = accepted(&good().named("20261119T183000Z-linux"), &Results::default());
    let slower = timed([32.0, 20.0, 18.0]).clean().with_identity(1, "new");
    let lines = merge_into(&before, &slower).unwrap().lines;
    let named =
        "Worse: p50 15.01 µs → 18.02 µs, +20.1 % (stage1/cpasync-32x64 on mission f16 full).";
    assert!(lines.contains(&named.to_string()), "{lines:?}");
}

/// wmma-qk is 1.2x as fast as scalar in 24 and 20 µs; 1.5x are claimed.
const REFUTED_SPEED: &str = r#"20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
  stage0-scalar: wmma-qk >= 1.50x over stage0-scalar scalar, in stage0-scalar/negatives.json:
{
  "claim": "wmma-qk p50 over stage0-scalar scalar on mission f16 full",
  "gpu": "NVIDIA H200",
  "measured": "wmma-qk-32x64 against stage0-scalar/scalar-32x64: p50 1.200x [1.200, 1.201], p90 1.200x [1.200, 1.201], mean 1.200x [1.200, 1.201], claim 1.50x (20261120T183000Z-linux)",
  "why": ""
}"#;

#[test]
fn a_failed_claim_is_refused_with_the_entry_that_refutes_it() {
    assert_eq!(outcome(&slow()), REFUTED_SPEED);
}

#[test]
fn a_failed_claim_that_is_on_record_is_accepted() {
    assert_eq!(
        outcome(&slow().with_refuted_claim(0, 0)),
        "SAME: 1 changed (informational), 40 unchanged"
    );
}

#[test]
fn a_failed_claim_that_is_on_record_for_another_gpu_is_refused() {
    let elsewhere = slow().with_claim_refuted_on("NVIDIA L4", 0, 0);
    assert_eq!(outcome(&elsewhere), REFUTED_SPEED);
}

#[test]
fn a_claim_that_holds_and_is_on_record_as_refuted_is_accepted() {
    let refuted = good().with_refuted_claim(0, 0);
    assert_eq!(outcome(&refuted), "SAME: 41 unchanged");
}

#[test]
fn a_failed_claim_beside_one_on_record_is_refused() {
    let two_fail = timed([24.0, 20.0, 19.0]).clean().with_refuted_claim(0, 0);
    insta::assert_snapshot!(outcome(&two_fail), @r#"
    20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
      stage1-cpasync: cpasync >= 1.10x over stage0-scalar wmma-qk, in stage1-cpasync/negatives.json:
    {
      "claim": "cpasync p50 over stage0-scalar wmma-qk on mission f16 full",
      "gpu": "NVIDIA H200",
      "measured": "cpasync-32x64 against stage0-scalar/wmma-qk-32x64: p50 1.053x [1.052, 1.053], p90 1.053x [1.052, 1.053], mean 1.053x [1.052, 1.053], claim 1.10x (20261120T183000Z-linux)",
      "why": ""
    }
    "#);
}

#[test]
fn a_failed_claim_of_counters_is_refused_for_every_gpu() {
    insta::assert_snapshot!(outcome(&good().counted(CPASYNC, 1_048_577, 0)), @r#"
    20261120T183000Z-linux has failed claims; improve the kernels, or record why they fail, and accept it again:
      stage1-cpasync: cpasync: global bytes read as in stage0-scalar wmma-qk, in stage1-cpasync/negatives.json:
    {
      "claim": "cpasync global bytes read against stage0-scalar wmma-qk on mission f16 full",
      "measured": "cpasync-32x64 1,048,577 / wmma-qk-32x64 1,048,576 = 1.000x (20261120T183000Z-linux)",
      "why": ""
    }
    "#);
}

#[test]
fn a_failed_claim_of_a_profiler_is_refused() {
    let bound = Relation::AtMost { bound: 0.1 };
    let profile = row("cpasync | mission f16 full | ncu | barrier_stall_share 0.2");
    let profiled = good()
        .with_bound(1, 1, Metric::BarrierStallShare, bound)
        .with_row(profile);
    insta::assert_snapshot!(outcome(&profiled), @r#"
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
fn a_random_problem_is_a_row() {
    let random = row("scalar | 1x1x17x64 f16 full | draw | draw 0 | p50 9");
    let results = accepted(&good().with_row(random.clone()), &Results::default());
    assert!(results.gpus[FOLDER].get(&random.key()).is_some());
}

/// Returns a session on random problems.
fn session_on_random_problems(count: usize) -> Run {
    let library = stages::library().unwrap();
    drawn_run(&library, count).sampled(LARGE, mission(), &samples(9.0))
}

fn refitted(results: &mut Results, gpu: &str) -> Option<Choice> {
    let library = stages::library().unwrap();
    let stages = session_on_random_problems(0).session.stages;
    refit(results, gpu, &stages, &library)
}

#[test]
fn a_gpu_without_random_problems_has_no_choice() {
    assert!(refitted(&mut Results::default(), FOLDER).is_none());
}

#[test]
fn a_run_with_random_problems_refits_the_choice_and_its_regret_is_a_row() {
    let run = session_on_random_problems(90);
    let mut results = Results::default();
    results.put(Some(FOLDER), &table(std::slice::from_ref(&run)));
    let rows_before = results.gpus[FOLDER].rows().count();
    let choice = refitted(&mut results, FOLDER).unwrap();
    assert_eq!(choice.gpu, FOLDER);
    let model: Model = serde_json::from_str(&choice.text).unwrap();
    assert_eq!(model.gpu, GPU);
    assert_eq!(model.capability, 90);
    assert_eq!(model.multiprocessors, 132);
    assert!(choice.text.lines().count() > 8);
    assert!(choice.text.len() < 10_000);
    let regret_line = choice.remarks.last().unwrap();
    for part in ["the library's choice takes 1.0", "over 90 random problems"] {
        assert!(regret_line.contains(part), "{regret_line}");
    }
    assert!(!regret_line.contains('✗'), "{regret_line}");
    let after = &results.gpus[FOLDER];
    assert_eq!(after.rows().count(), rows_before + 1);
    assert_eq!(Regret::of_table(after).unwrap().problems, 90);
    let row = after.row(&"attention-ladder".into(), Kind::Regret);
    assert_eq!(row.unwrap().session, run.session.name);
}

#[test]
fn a_refit_drops_what_the_sources_no_longer_declare() {
    let run = good();
    let mut results = Results::default();
    results.put(Some(FOLDER), &table(std::slice::from_ref(&run)));
    assert!(rows_of_wmma_and_claims(&results) > 0);
    let mut stages = run.session.stages.clone();
    for stage in &mut stages {
        stage.variants.retain(|variant| variant.family != "wmma-qk");
        stage.claims.clear();
    }
    refresh(&mut results, &stages, &Table::default());
    assert_eq!(rows_of_wmma_and_claims(&results), 0);
    assert_eq!(latency(&results, CPASYNC).0, 15.01);
}

#[test]
fn another_gpu_of_the_capability_with_few_problems_has_as_many_costs() {
    let mut results = Results::default();
    let many = session_on_random_problems(90);
    results.put(Some(FOLDER), &table(&[many]));
    let of_many = refitted(&mut results, FOLDER).unwrap();
    let few = session_on_random_problems(3);
    results.put(Some("another"), &table(&[few]));
    let of_few = refitted(&mut results, "another").unwrap();
    let costs = |choice: &Choice| {
        let model: Model = serde_json::from_str(&choice.text).unwrap();
        model.costs.len()
    };
    assert_eq!(costs(&of_few), costs(&of_many));
}
