//! Literal stages and records for the tests of this crate.

pub mod peers;

use crate::comparison::{Measured, judge_evidence, summarise};
use common::check::{CaseKey, CaseResult, Outcome, Source};
use common::device::BackendKind;
use common::evidence::{Counters, Counting, Quantity, Relation};
use common::faults::{Caught, Fault};
use common::gate::Errors;
use common::inputs::Family;
use common::problem::{Dtype, Mask, Shape};
use common::record::{
    BaseTerms, BuildMeta, BuiltKernel, ClaimResult, ClaimTerms, Correctness, DeviceCompiler, Evidence, EvidenceTerms,
    GateScope, Git, Gpu, KernelBuild, Machine, Measurable, Performance, Planted, Profile, Profiled, Progress, Record,
    SCHEMA, Samples, Sanitizer, SanitizerCheck, Scope, StageBuild, Tier, Timing, VariantBuild, VariantCounters,
};
use common::reference::Probability;
use common::resources::{self, Caps, KernelFacts, PtxasEntry};
use common::suppression::{Finding, Presets, SiteResult, Suppressed, Synchronisation};
use common::telemetry::{Conditions, Reading};
use common::timing::stats::Summary;
use common::timing::{Comparison, Floor, HostCheck, Measurement, Rotation, WarmUp, claim};
use common::verdict::{GateId, GateResult, Verdict};
use kernel_build::report::Resources;
use std::collections::BTreeMap;

/// A ladder of two stages: two variants and a claim of each kind in the first, one of each in the second. Built without
/// nvcc.
pub fn ladder() -> Vec<StageBuild> {
    vec![
        stage(
            "stage0-scalar",
            "tiled online softmax, scalar P·V",
            None,
            &[("scalar", "scalar-32x64"), ("wmma-qk", "wmma-qk-32x64")],
            "wmma-qk-32x64",
            ("wmma-qk", "stage0-scalar", "scalar", 1.5),
        ),
        stage(
            "stage1-cpasync",
            "K and V copied one tile ahead",
            Some("stage0-scalar"),
            &[("cpasync", "cpasync-32x64")],
            "cpasync-32x64",
            ("cpasync", "stage0-scalar", "wmma-qk", 1.1),
        ),
    ]
}

fn stage(
    id: &str,
    idea: &str,
    predecessor: Option<&str>,
    variants: &[(&str, &str)],
    default_variant: &str,
    claim: (&str, &str, &str, f64),
) -> StageBuild {
    let (family, base_stage, base_family, at_least) = claim;
    let reason = "nvcc was not found; run scripts/cuda-toolkit, or set NVCC or CUDA_HOME".to_string();
    StageBuild {
        id: id.into(),
        idea: idea.into(),
        predecessor: predecessor.map(Into::into),
        default_variant: default_variant.into(),
        claims: vec![ClaimTerms {
            family: family.into(),
            base_stage: base_stage.into(),
            base_family: base_family.into(),
            at_least,
            dtype: Dtype::F16,
        }],
        peer_claims: vec![],
        evidence: vec![EvidenceTerms {
            family: family.into(),
            quantity: Quantity::GlobalReadBytes,
            relation: Relation::equal_to(BaseTerms { stage: base_stage.into(), family: base_family.into() }),
            dtype: Dtype::F16,
            why: "the same tiles are read".into(),
        }],
        identity: format!("{id}-identity"),
        host_compiler: "g++ (GCC) 12.2.0".into(),
        device_compiler: DeviceCompiler::Absent { reason },
        distinct: resources::judge_distinct([]),
        variants: variants.iter().map(|(family, name)| variant(family, name)).collect(),
        refused: vec![],
    }
}

/// One site that is needed, and one that is listed as redundant.
pub fn suppressed() -> Suppressed {
    let site = |family: &str, finding, listed: Option<&str>| SiteResult {
        stage: "stage0-scalar".into(),
        family: family.into(),
        operation: "__syncthreads".into(),
        place: "stage0-scalar/kernel.cu:159".into(),
        purpose: "Q was written by all threads and is read by every warp.".into(),
        finding,
        listed: listed.map(String::from),
    };
    let what = "race: writes at stage0-scalar/kernel.cu:157, reads a matrix at stage0-scalar/kernel.cu:101";
    let at = "wmma-qk-32x64 1x1x33:321x64 f16 full".to_string();
    let needed = Finding::Caught { gate: GateId::H1, what: what.into(), at };
    let redundant = Some("scalar reads Q behind the barriers around the first K and V");
    let sites = vec![site("scalar", Finding::Survived { cases: 4 }, redundant), site("wmma-qk", needed, None)];
    Suppressed { sites, ..Suppressed::default() }
}

fn variant(family: &str, name: &str) -> VariantBuild {
    let kernel = |dtype: Dtype| KernelBuild {
        facts: KernelFacts {
            symbol: format!("{}_{dtype}_d64", name.replace('-', "_")),
            dtype,
            head_dim: 64,
            block_m: 32,
            block_n: 64,
            threads: 128,
            min_blocks: 4,
            dynamic_shared_bytes: 37_376,
            caps: Some(Caps { register_cap: 128, shared_cap_bytes: 48 * 1024 }),
            probability: Probability::F32,
        },
        built: vec![],
    };
    VariantBuild { name: name.into(), family: family.into(), kernels: Dtype::ALL.map(kernel).into() }
}

/// A whole emulated run of [`ladder`]: every variant green on one case.
pub fn emulated() -> Record {
    let stages = ladder();
    let no = |reason: &str| Measurable::No { reason: reason.into() };
    let gates = [GateId::C1, GateId::C2, GateId::C3, GateId::C4, GateId::C5, GateId::C6];
    let mut scopes: Vec<GateScope> =
        gates.iter().map(|&gate| GateScope { gate, measurable: Measurable::Yes }).collect();
    scopes.push(GateScope { gate: GateId::R1, measurable: no("no nvcc; run scripts/cuda-toolkit") });
    scopes.push(GateScope { gate: GateId::E1, measurable: Measurable::Yes });
    scopes.push(GateScope { gate: GateId::L1, measurable: no("latency is measured on a GPU") });
    let mut record = Record {
        meta: BuildMeta {
            schema: SCHEMA,
            started: "2026-11-20T18:30:00Z".into(),
            progress: Progress::Complete { cases: 3, seconds: 4 },
            tool_version: "0.1.0".into(),
            command: vec!["compare".into()],
            git: Git::Commit { sha: "0123456789abcdef".into(), dirty: false },
            machine: Machine {
                name: "linux-x86-64".into(),
                platform: "linux x86_64".into(),
                processors: 2,
                gpu: Gpu::Absent { reason: "no NVIDIA driver".into() },
            },
            tier: Tier::T1,
            backend: BackendKind::Emulated,
            scope: Scope::Whole,
            device: None,
            toggles: BTreeMap::new(),
            source_lines: true,
            gates: scopes,
            stages: stages.clone(),
        },
        correctness: Correctness {
            schema: SCHEMA,
            variants: vec![],
            cases: vec![],
            omitted_cases: 0,
            planted: Planted::Tried {
                subjects: vec![
                    Caught { fault: None, cases: 4, cases_failed: 0, gates_that_failed: vec![] },
                    Caught {
                        fault: Some(Fault::ALL[0]),
                        cases: 4,
                        cases_failed: 4,
                        gates_that_failed: vec![GateId::C2, GateId::C3],
                    },
                ],
            },
            synchronisation: Synchronisation::Tried { presets: Presets::OnePerFamily, suppressed: suppressed() },
        },
        performance: None,
        evidence: Evidence {
            schema: SCHEMA,
            rows: vec![],
            absent: vec![GateResult::no_data(GateId::C7, "compute-sanitizer was not run")],
            counters: vec![
                counted("stage0-scalar", "scalar-32x64", 1_048_576, 0),
                counted("stage0-scalar", "wmma-qk-32x64", 1_048_576, 12_288),
                counted("stage1-cpasync", "cpasync-32x64", 1_048_576, 0),
            ],
            claims: vec![],
        },
        negative: None,
        profile: None,
        sanitizer: None,
        peers: None,
    };
    for stage in &stages {
        for variant in &stage.variants {
            record.correctness.cases.push(case(&stage.id, &variant.name, BackendKind::Emulated, None));
        }
    }
    resummarise(&mut record);
    rejudge(&mut record);
    record
}

/// Counters of a launch of 128 blocks: bytes read from global memory, and bank conflicts of shared loads beside 96
/// ideal wavefronts.
pub fn counted(stage: &str, variant: &str, bytes: u64, conflicts: u64) -> VariantCounters {
    let mut launch = Counters::default();
    (launch.global_read.bytes, launch.global_read.sectors) = (bytes, bytes / 32);
    (launch.shared_read.wavefronts, launch.shared_read.ideal_wavefronts) = (96 + conflicts, 96);
    VariantCounters {
        stage: stage.into(),
        variant: variant.into(),
        identity: format!("{stage}-identity"),
        counting: Counting::Counted { launch, traced_blocks: 2, launch_blocks: 128, tiles: 1024 },
        e4m3: None,
    }
}

/// Judges the evidence claims of the record's stages again.
pub fn rejudge(record: &mut Record) {
    let (stages, measured) = (&record.meta.stages, Measured::Emulator(&record.evidence.counters));
    record.evidence.claims = stages.iter().flat_map(|stage| judge_evidence(stage, stages, measured)).collect();
}

/// The same ladder on a GPU, with a latency for every variant and both claims judged. `us` are the medians of
/// scalar-32x64, wmma-qk-32x64 and cpasync-32x64.
pub fn timed(us: [f64; 3]) -> Record {
    let mut record = emulated();
    record.meta.backend = BackendKind::Cuda;
    record.meta.tier = Tier::T2;
    record.meta.machine.name = "nvidia-h200".into();
    record.meta.machine.gpu = Gpu::Present {
        name: "NVIDIA H200".into(),
        arch: "sm_90".into(),
        driver: "580.159.04".into(),
        multiprocessors: 132,
        shared_opt_in_bytes: 232_448,
    };
    for scope in &mut record.meta.gates {
        if scope.gate == GateId::L1 {
            scope.measurable = Measurable::Yes;
        }
    }
    for case in &mut record.correctness.cases {
        case.key.backend = BackendKind::Cuda;
    }
    let stages = ladder();
    let arms = [(0, "scalar-32x64"), (0, "wmma-qk-32x64"), (1, "cpasync-32x64")];
    let timings = arms.iter().zip(us).map(|(&(stage, variant), us)| timing(&stages[stage], variant, us)).collect();
    let claims = vec![
        claim(&stages[0], "wmma-qk-32x64", "scalar-32x64", us[0], us[1]),
        claim(&stages[1], "cpasync-32x64", "wmma-qk-32x64", us[1], us[2]),
    ];
    record.performance = Some(Performance { schema: SCHEMA, method: "graphs".into(), timings, claims, scopes: vec![] });
    record
}

/// A launch under ncu with a few metrics by short names.
pub fn profiled(stage: &str, variant: &str, metrics: &[(&str, f64)]) -> Profiled {
    let long = |name: &str| match name {
        "time" => "gpu__time_duration.sum",
        "loaded" => "smsp__sass_data_bytes_mem_global_op_ld.sum",
        "copied" => "smsp__sass_data_bytes_mem_global_op_ldgsts.sum",
        "wavefronts" => "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
        "conflicts" => "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
        "barrier" => "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
        "latency" => "smsp__average_warp_latency_per_inst_issued.ratio",
        other => panic!("{other}"),
    };
    Profiled {
        stage: stage.into(),
        variant: variant.into(),
        identity: format!("{stage}-identity"),
        dtype: Dtype::F16,
        mask: Mask::Full,
        shape_name: "mission".into(),
        shape: Shape::bhsd(1, 8, 512, 64),
        metrics: metrics.iter().map(|(name, value)| (long(name).to_string(), *value)).collect(),
    }
}

/// Adds a profile to `record` and judges its evidence claims on it.
pub fn profile(record: &mut Record, launches: Vec<Profiled>) {
    let stages = record.meta.stages.clone();
    let claims = stages.iter().flat_map(|stage| judge_evidence(stage, &stages, Measured::Ncu(&launches))).collect();
    let (tool, gpu) = ("ncu 2025.3.1.0".to_string(), "NVIDIA H200".to_string());
    let method = "one launch per variant".to_string();
    record.profile = Some(Profile { schema: SCHEMA, tool, method, gpu, launches, claims });
}

/// What compute-sanitizer found in a variant under memcheck and racecheck.
pub fn sanitized(stage: &str, variant: &str, verdicts: [Verdict; 2]) -> Sanitizer {
    let check = |(tool, verdict): (&str, Verdict)| SanitizerCheck {
        stage: stage.into(),
        variant: variant.into(),
        identity: format!("{stage}-identity"),
        tool: tool.into(),
        launches: 4,
        result: GateResult { gate: GateId::C7, verdict, reason: "planted".into() },
    };
    Sanitizer {
        schema: SCHEMA,
        tool: "compute-sanitizer 2026.4.0.0".into(),
        gpu: "NVIDIA H200".into(),
        problems: vec!["1x1x17x128 f16 causal".into()],
        blind_spots: vec!["racecheck sees shared memory alone".into()],
        checks: ["memcheck", "racecheck"].into_iter().zip(verdicts).map(check).collect(),
    }
}

/// Brings the summaries up to date with the cases.
pub fn resummarise(record: &mut Record) {
    record.correctness.variants = summarise(&record.meta.stages, &record.correctness);
}

/// One case on `mission`; `broken` fails.
pub fn case(stage: &str, variant: &str, backend: BackendKind, broken: Option<GateId>) -> CaseResult {
    let gates = [GateId::C1, GateId::C2, GateId::C3, GateId::C4, GateId::C5, GateId::C6];
    let judge =
        |gate| GateResult::judge(gate, broken != Some(gate), if broken == Some(gate) { "too large" } else { "fine" });
    let errors = Errors {
        rows: 4096,
        sampled: false,
        probability: Probability::F32,
        max_abs: 1.2e-4,
        max_abs_at: [0, 1, 2, 3],
        mean_abs: 1e-5,
        max_row_rel: 3e-4,
        max_row_rel_at: [0, 1, 2],
        rms_row_rel: 2e-4,
        allclose: 0.01,
        allclose_at: [0, 1, 2, 3],
        nonzero_in_zero_row: None,
        plain_max_abs: 1e-4,
        plain_rms_row_rel: 2e-4,
        plain_rows: 4000.0,
        largest_score: 10.0,
        reference_max_abs: 0.4,
        end_to_end: None,
    };
    CaseResult {
        key: CaseKey {
            stage: stage.into(),
            variant: variant.into(),
            backend,
            shape_name: "mission".into(),
            shape: Shape::bhsd(1, 8, 512, 64),
            dtype: Dtype::F16,
            mask: Mask::Full,
            source: Source::Seeded { family: Family::Normal, seed: 0 },
        },
        outcome: Outcome::Checked { errors, gates: gates.map(judge).to_vec() },
    }
}

/// Samples around `us`, 0.1 % apart, the same every time.
pub fn samples(us: f64) -> Vec<f64> {
    (0..40).map(|i| us * (1.0 + 0.001 * f64::from(i % 3))).collect()
}

fn timing(stage: &StageBuild, variant: &str, us: f64) -> Timing {
    let reading = || {
        let reading = Reading { sm_mhz: Some(1980), ..Reading::default() };
        Conditions::Read(reading)
    };
    let (device_us, single_us) = (samples(us), samples(us + 4.0));
    Timing {
        stage: stage.id.clone(),
        variant: variant.into(),
        identity: stage.identity.clone(),
        dtype: Dtype::F16,
        mask: Mask::Full,
        shape_name: "mission".into(),
        shape: Shape::bhsd(1, 8, 512, 64),
        measurement: Measurement {
            label: variant.into(),
            rotation: Rotation::of(4, 1_572_864, 524_288, 62_914_560),
            launches_per_sample: 20,
            requested_samples: 40,
            warm_up: WarmUp { launches: 100, ms: 500.0 },
            device: Summary::of(&device_us).unwrap(),
            device_us,
            single: Summary::of(&single_us).unwrap(),
            single_us,
            host_check: HostCheck { event_ms: 20.0, wall_ms: 20.1, launch_us: us },
            conditions: [reading(), reading()],
        },
        samples: Samples::Raw,
        after: vec![GateResult::judge(GateId::C1, true, "complete")],
    }
}

fn claim(stage: &StageBuild, variant: &str, base_variant: &str, base_us: f64, new_us: f64) -> ClaimResult {
    let terms = stage.claims[0].clone();
    let comparison = Comparison::of(&samples(base_us), &samples(new_us)).unwrap();
    let result = claim::judge(&comparison, terms.at_least, &Floor::none("literal samples"));
    assert_ne!(result.verdict, Verdict::NoData);
    ClaimResult {
        stage: stage.id.clone(),
        terms,
        variant: variant.into(),
        base_variant: base_variant.into(),
        identity: stage.identity.clone(),
        comparison,
        same_preset: None,
        result,
    }
}

/// `record` as nvcc would have built it for sm_90a: every f16 instance with these registers and spilled bytes, the
/// others with 64 and none.
pub fn built(mut record: Record, registers: u32, spills: u32) -> Record {
    for stage in &mut record.meta.stages {
        stage.device_compiler =
            DeviceCompiler::Built { nvcc: "13.0.88".into(), flags: vec![], archs: vec!["sm_90a".into()] };
        for kernel in stage.variants.iter_mut().flat_map(|variant| &mut variant.kernels) {
            let (registers, spills) = if kernel.facts.dtype == Dtype::F16 { (registers, spills) } else { (64, 0) };
            let ptxas = PtxasEntry {
                arch: "sm_90a".into(),
                sass_sha256: kernel.facts.symbol.clone(),
                resources: Resources { registers, spill_store_bytes: spills, ..Resources::default() },
            };
            let result = resources::judge(&kernel.facts, &ptxas);
            let occupancy = resources::occupancy_of(&kernel.facts, &ptxas);
            kernel.built = vec![BuiltKernel { ptxas, occupancy, result }];
        }
    }
    record
}
