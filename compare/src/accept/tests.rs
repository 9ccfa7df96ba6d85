use super::*;
use crate::record::meta::{Gpu, Machine, Tier};
use crate::testing::ladder;
use common::check::{CaseKey, CaseResult, Outcome, Source};
use common::device::BackendKind;
use common::gate::Errors;
use common::inputs::Family;
use common::problem::{Dtype, Mask, Shape};
use common::reference::Probability;
use common::suppression::{Presets, Synchronisation};
use common::telemetry::Conditions;
use common::timing::stats::Summary;
use common::timing::{Comparison, HostCheck, Measurement, Rotation, WarmUp};
use common::verdict::{GateId, GateResult};
use tempfile::TempDir;

const NAME: &str = "20261120T183000Z-nvidia-h200";
const STAGE: &str = "stage0-scalar";
const VARIANT: &str = "wmma-qk-32x64";

fn passed() -> Vec<GateResult> {
    use GateId::{C1, C2, C3, C4, C5, C6};
    [C1, C2, C3, C4, C5, C6].map(|gate| GateResult::judge(gate, true, "fine")).to_vec()
}

fn case(seed: u64) -> CaseResult {
    let errors = Errors {
        rows: 4096,
        sampled: false,
        probability: Probability::F32,
        max_abs: 1e-4,
        max_abs_at: [0; 4],
        mean_abs: 1e-5,
        max_row_rel: 1e-4,
        max_row_rel_at: [0; 3],
        rms_row_rel: 2e-4,
        allclose: 0.01,
        allclose_at: [0; 4],
        nonzero_in_zero_row: None,
        plain_max_abs: 1e-4,
        plain_rms_row_rel: 2e-4,
        plain_rows: 4000.0,
        largest_score: 10.0,
        reference_max_abs: 1.0,
        end_to_end: None,
    };
    let key = CaseKey {
        stage: STAGE.into(),
        variant: VARIANT.into(),
        backend: BackendKind::Cuda,
        shape_name: "mission".into(),
        shape: Shape::bhsd(1, 8, 512, 64),
        dtype: Dtype::F16,
        mask: Mask::Full,
        source: Source::Seeded { family: Family::Normal, seed },
    };
    // As a record has them that was written and read.
    let gates = passed().into_iter().map(|gate| GateResult { reason: String::new(), ..gate }).collect();
    CaseResult { key, outcome: Outcome::Checked { errors, gates } }
}

fn timing(samples: &[f64]) -> Timing {
    let summary = Summary::of(samples).unwrap();
    Timing {
        stage: STAGE.into(),
        variant: VARIANT.into(),
        identity: format!("{STAGE}-identity"),
        dtype: Dtype::F16,
        mask: Mask::Full,
        shape_name: "mission".into(),
        shape: Shape::bhsd(1, 8, 512, 64),
        measurement: Measurement {
            label: format!("{STAGE}/{VARIANT}"),
            rotation: Rotation::of(4, 1 << 20, 1 << 19, 50 << 20),
            launches_per_sample: 20,
            requested_samples: samples.len(),
            warm_up: WarmUp { launches: 100, ms: 500.0 },
            device: summary,
            device_us: samples.to_vec(),
            single: summary,
            single_us: samples.to_vec(),
            host_check: HostCheck { event_ms: 20.0, wall_ms: 20.1, launch_us: samples[0] },
            conditions: [(); 2].map(|()| Conditions::Absent { reason: "literal".into() }),
        },
        samples: Samples::Raw,
        after: passed(),
    }
}

/// One variant, ten cases, one timing, a claim that holds.
fn good() -> Record {
    let stages = ladder();
    let samples: Vec<f64> = (0..400).map(|i| 20.0 + f64::from(i % 7) * 0.01).collect();
    let gates = passed().into_iter().map(|result| GateSummary { result, passed: 10, of: 10 });
    let variant = VariantSummary {
        stage: STAGE.into(),
        variant: VARIANT.into(),
        identity: stages[0].identity.clone(),
        checked: 10,
        unsupported: 0,
        failed: 0,
        gates: gates.collect(),
        worst: None,
    };
    let slower: Vec<f64> = samples.iter().map(|us| us * 2.0).collect();
    let claim = ClaimResult {
        stage: STAGE.into(),
        terms: stages[0].claims[0].clone(),
        variant: VARIANT.into(),
        base_variant: "scalar-32x64".into(),
        identity: stages[0].identity.clone(),
        comparison: Comparison::of(&slower, &samples).unwrap(),
        same_preset: None,
        result: GateResult::judge(GateId::L1, true, "2.00x >= 1.50x"),
    };
    let gpu = Gpu::Present {
        name: "NVIDIA H200".into(),
        arch: "sm_90".into(),
        driver: "580.1".into(),
        multiprocessors: 132,
        shared_opt_in_bytes: 232_448,
    };
    Record {
        meta: BuildMeta {
            schema: SCHEMA,
            started: "2026-11-20T18:30:00Z".into(),
            progress: Progress::Complete { cases: 10, seconds: 60 },
            tool_version: "0.1.0".into(),
            command: vec!["compare".into()],
            git: Git::Commit { sha: "0123abcd".into(), dirty: false },
            machine: Machine { name: "nvidia-h200".into(), platform: "linux x86_64".into(), processors: 16, gpu },
            tier: Tier::T2,
            backend: BackendKind::Cuda,
            scope: Scope::Whole,
            device: None,
            toggles: Default::default(),
            source_lines: true,
            gates: vec![],
            stages,
        },
        correctness: Correctness {
            schema: SCHEMA,
            variants: vec![variant],
            cases: (0..10).map(case).collect(),
            omitted_cases: 0,
            planted: Planted::NotTried { reason: "not in this test".into() },
            synchronisation: Synchronisation::default(),
        },
        performance: Some(Performance {
            schema: SCHEMA,
            method: "literal".into(),
            timings: vec![timing(&samples)],
            claims: vec![claim],
            scopes: vec![],
        }),
        evidence: Evidence { schema: SCHEMA, rows: vec![], absent: vec![], counters: vec![], claims: vec![] },
        negative: None,
        profile: None,
        sanitizer: Some(crate::testing::sanitized(STAGE, VARIANT, [Verdict::Pass; 2])),
        peers: None,
    }
}

fn with_failed_claim() -> Record {
    let mut record = good();
    let claims = &mut record.performance.as_mut().unwrap().claims;
    claims[0].result = GateResult::judge(GateId::L1, false, "1.20x < 1.50x");
    record
}

/// Writes the record as a run would, and what it takes to accept it.
fn written(record: &Record) -> (TempDir, AcceptArgs) {
    let root = TempDir::new().unwrap();
    let folder = root.path().join("target").join(NAME);
    record.write(&folder).unwrap();
    let into = Some(root.path().join("results"));
    (root, AcceptArgs { record: folder, into, negative: None })
}

fn refused(record: &Record, negative: Option<&str>) -> String {
    let (_root, mut args) = written(record);
    args.negative = negative.map(str::to_string);
    let error = accept(&args).unwrap_err().to_string();
    let left = std::fs::read_dir(args.into.unwrap()).map_or(0, |entries| entries.count());
    assert_eq!(left, 0, "a refused record leaves nothing behind");
    error
}

#[test]
fn a_good_record_is_taken_as_it_is() {
    let (_root, args) = written(&good());
    let accepted = accept(&args).unwrap();
    assert_eq!(read_all(args.into.as_ref().unwrap()).unwrap(), [(NAME.to_string(), good())]);
    assert_eq!((accepted.omitted_samples, accepted.omitted_cases), (0, 0));
    assert_eq!((accepted.remarks.len(), accepted.refuted.len()), (0, 0));
    assert!(accepted.to_string().starts_with("accepted as "), "{accepted}");
    assert!(accepted.to_string().contains("PASS: 1 variant is green"), "{accepted}");
    let entries = std::fs::read_dir(args.into.as_ref().unwrap()).unwrap().count();
    assert_eq!(entries, 1, "no temporary folder is left");
    assert!(matches!(accept(&args), Err(AcceptError::Exists { .. })));
}

#[test]
fn what_was_limited_to_a_smaller_device_is_refused() {
    let mut record = good();
    record.meta.device = "sm_89".parse().ok();
    let error = refused(&record, None);
    assert!(error.contains("is limited to what sm_89 offers and is not kept: run without --device"), "{error}");
}

#[test]
fn a_selection_or_a_dirty_source_is_taken_with_a_note() {
    let mut record = good();
    record.meta.scope = Scope::Selected { flags: vec!["--shapes mission".into()] };
    record.meta.git = Git::Commit { sha: "0123abcd".into(), dirty: true };
    let (_root, args) = written(&record);
    let text = accept(&args).unwrap().to_string();
    assert!(text.contains("note: it covers only what was selected: --shapes mission"), "{text}");
    assert!(text.contains("with uncommitted changes"), "{text}");
}

#[test]
fn an_interrupted_run_is_refused() {
    let mut record = good();
    record.meta.progress = Progress::Partial { finished: 3, planned: 10 };
    assert!(refused(&record, None).contains("ended after 3 of 10 cases"));
}

#[test]
fn failed_gates_are_refused_and_no_reason_excuses_them() {
    let mut wrong = with_failed_claim();
    wrong.correctness.variants[0].gates[2].result = GateResult::judge(GateId::C3, false, "row error 0.1 > 2e-3");
    for negative in [None, Some("the kernel is new")] {
        let error = refused(&wrong, negative);
        assert!(error.contains("stage0-scalar/wmma-qk-32x64 C3: row error 0.1 > 2e-3"), "{error}");
    }
    let mut impossible = good();
    let after = &mut impossible.performance.as_mut().unwrap().timings[0].after;
    after.push(GateResult::judge(GateId::L1, false, "impossible: below 3 us"));
    assert!(refused(&impossible, None).contains("mission as timed, L1: impossible"));
}

#[test]
fn a_whole_run_on_a_gpu_that_no_sanitizer_saw_is_refused_and_others_are_not() {
    let mut record = good();
    record.sanitizer.as_mut().unwrap().checks.iter_mut().for_each(|check| check.identity = "another".into());
    let error = refused(&record, None);
    assert!(error.contains("no gate C7 for 1 variants, first stage0-scalar/wmma-qk-32x64"), "{error}");
    assert!(error.contains("`compare sanitize`"), "{error}");
    record.sanitizer = None;
    refused(&record, None);
    let taken = |change: &dyn Fn(&mut Record)| {
        let mut record = record.clone();
        change(&mut record);
        let (_root, args) = written(&record);
        accept(&args).unwrap();
    };
    taken(&|record| record.meta.scope = Scope::Selected { flags: vec!["--shapes mission".into()] });
    taken(&|record| record.meta.backend = BackendKind::Emulated);
    // A device with too little memory takes none of the variant's cases.
    taken(&|record| {
        let variant = &mut record.correctness.variants[0];
        (variant.checked, variant.unsupported) = (0, 10);
    });
}

#[test]
fn a_record_of_a_stripped_program_is_refused() {
    let mut record = good();
    record.meta.source_lines = false;
    let error = refused(&record, None);
    assert!(error.contains("without debug information") && error.contains("build it unstripped"), "{error}");
    assert!(refused(&record, Some("the kernel is new")).contains("without debug information"), "no reason excuses it");
}

#[test]
fn gates_that_misjudge_are_refused() {
    let mut record = good();
    let fault = Some(common::faults::Fault::DroppedTile);
    let escaped = common::faults::Caught { fault, cases: 8, cases_failed: 0, gates_that_failed: vec![] };
    record.correctness.planted = Planted::Tried { subjects: vec![escaped] };
    assert!(refused(&record, None).contains("misjudge dropped tile"));
}

#[test]
fn synchronisation_that_no_gate_misses_is_refused() {
    let mut record = good();
    let mut suppressed = crate::testing::suppressed();
    suppressed.sites[0].listed = None;
    record.correctness.synchronisation = Synchronisation::Tried { presets: Presets::OnePerFamily, suppressed };
    let error = refused(&record, None);
    assert!(error.contains("scalar at stage0-scalar/kernel.cu:159") && error.contains("no gate misses it"), "{error}");
}

#[test]
fn failed_claims_need_a_reason_and_a_reason_needs_failed_claims() {
    let error = refused(&with_failed_claim(), None);
    assert!(error.contains("--negative REASON:\n  L1 of stage0-scalar: wmma-qk >= "), "{error}");
    assert!(error.contains("1.20x < 1.50x"), "{error}");
    assert!(refused(&with_failed_claim(), Some("  ")).contains("needs a reason"));
    assert!(refused(&good(), Some("memory-bound")).contains("nothing to refute"));

    let (_root, mut args) = written(&with_failed_claim());
    args.negative = Some("memory-bound at this length".into());
    let accepted = accept(&args).unwrap();
    let negative = Record::read(&accepted.target).unwrap().negative.unwrap();
    assert_eq!(negative.reason, "memory-bound at this length");
    assert_eq!(negative.gpu.as_deref(), Some("NVIDIA H200"));
    assert_eq!(negative.claims, failed_claims(&with_failed_claim()));
    assert_eq!(accepted.refuted, negative.claims);

    // The same failure in a later record is settled by the first.
    let later = args.record.with_file_name("20261121T183000Z-nvidia-h200");
    with_failed_claim().write(&later).unwrap();
    let accepted = accept(&AcceptArgs { record: later, negative: None, ..args }).unwrap();
    assert_eq!(Record::read(&accepted.target).unwrap().negative, None);
}

#[test]
fn a_large_record_loses_samples_first_and_passing_cases_next() {
    let record = good();
    let whole = size(&record);
    let (_root, args) = written(&record);
    let shrunk = accept_within(&args, whole - 1).unwrap();
    assert_eq!((shrunk.omitted_samples, shrunk.omitted_cases), (1, 0));
    assert!(shrunk.bytes < whole);
    let kept = Record::read(&shrunk.target).unwrap();
    let timing = &kept.performance.as_ref().unwrap().timings[0];
    assert_eq!((timing.samples.clone(), timing.measurement.device_us.len()), (Samples::Omitted, 0));
    assert_eq!(timing.measurement.device, record.performance.as_ref().unwrap().timings[0].measurement.device);
    assert_eq!(kept.correctness, record.correctness);

    let mut with_failure = record.clone();
    with_failure.correctness.cases[4].outcome = Outcome::Unsupported { reason: "head_dim".into() };
    let (_root, args) = written(&with_failure);
    let least = accept_within(&args, shrunk.bytes - 500).unwrap();
    assert_eq!(least.omitted_cases, 9);
    let kept = Record::read(&least.target).unwrap().correctness;
    assert_eq!((kept.cases.len(), kept.omitted_cases, kept.variants[0].checked), (1, 9, 10));
    assert!(least.to_string().contains("9 passing cases"), "{least}");

    let (_root, args) = written(&record);
    assert!(matches!(accept_within(&args, 100), Err(AcceptError::TooLarge { .. })));
}

#[test]
fn what_is_no_record_is_refused() {
    let root = TempDir::new().unwrap();
    let args = AcceptArgs { record: root.path().to_path_buf(), into: None, negative: None };
    assert!(matches!(accept(&args), Err(AcceptError::Store(_))));
}
