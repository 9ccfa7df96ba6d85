//! Literal stages and runs for tests, here and in the crates that read results: one builder, and
//! changes to what it builds. No program calls this. It is compiled always: a feature would compile
//! these crates twice, once for tests and once for the program.

pub mod scenario;

use crate::table::measured::ToolFindings;
use crate::table::session::{DeviceCompiler, Git, Gpu, KernelBuild, Machine, Progress, Tier};
use crate::table::{
    CasePlace, Claim, Instance, Kind, ProblemPlace, Relation, Results, Row, Run, Session,
    StageMeta, Table, VariantMeta,
};
use common::claim::{Base, Rival};
use common::device::BackendKind;
use common::faults::{Caught, Fault};
use common::format::Format;
use common::gate::Errors;
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::reference::Probability;
use common::resources::{Caps, KernelFacts};
use common::stage::Role;
use common::suppression::{Finding, SiteResult, Suppressed};
use common::timing::stats::Summary;
use common::timing::{Comparison, SpeedOfLight};
use common::verdict::{GateId, GateResult, Verdict};
use std::path::Path;

pub const SCALAR: &str = "stage0-scalar/scalar-32x64";
pub const WMMA: &str = "stage0-scalar/wmma-qk-32x64";
pub const CPASYNC: &str = "stage1-cpasync/cpasync-32x64";
pub const VARIANTS: [&str; 3] = [SCALAR, WMMA, CPASYNC];

pub const GPU: &str = "NVIDIA H200";

/// Medians of [`VARIANTS`] with which both claims of the ladder hold.
pub const US: [f64; 3] = [32.0, 20.0, 15.0];

/// The element types of the stages of the literal ladder.
pub const DTYPES: [Dtype; 2] = [Dtype::F16, Dtype::E4m3];

pub const C1_TO_C6: [GateId; 6] = [
    GateId::C1,
    GateId::C2,
    GateId::C3,
    GateId::C4,
    GateId::C5,
    GateId::C6,
];

pub fn mission() -> ProblemPlace {
    ProblemPlace::claims(Dtype::F16)
}

pub fn mission_case(input: &str) -> CasePlace {
    CasePlace {
        problem: mission(),
        input: input.into(),
    }
}

/// Returns the kind of the rows that [`Run::built`] adds.
pub fn instance() -> Kind {
    Kind::Compiled {
        instance: Instance {
            dtype: Dtype::F16,
            head_dim: 64,
        },
        arch: "sm_90a".into(),
    }
}

/// Two stages, of which each claims to be faster than the family before, and to read as many bytes.
/// Built without nvcc.
pub fn ladder() -> Vec<StageMeta> {
    let stages = [
        (
            "stage0-scalar",
            "tiled softmax",
            &["scalar", "wmma-qk"][..],
            "scalar",
            1.5,
        ),
        (
            "stage1-cpasync",
            "K and V copied one tile ahead",
            &["cpasync"],
            "wmma-qk",
            1.1,
        ),
    ];
    let stage =
        |(id, idea, families, slower, at_least): (&str, &str, &[&str], &'static str, f64)| {
            let family = families.last().expect("a stage has variants").to_string();
            let base = Base {
                stage: "stage0-scalar",
                family: slower,
            };
            let claim = |metric, relation, why: &str| Claim {
                family: family.clone(),
                metric,
                relation,
                place: ProblemPlace::claims(Dtype::F16),
                gpu: None,
                why: why.into(),
            };
            let faster = Relation::Faster { base, at_least };
            let equal = Relation::Ratio {
                base,
                at_least: 1.0,
                at_most: 1.0,
            };
            let variant = |family: &&str| VariantMeta {
                name: format!("{family}-32x64"),
                family: family.to_string(),
                kernels: instances(&format!("{family}-32x64"), &DTYPES),
            };
            StageMeta {
                id: id.into(),
                idea: idea.into(),
                predecessor: Some(base.stage.to_string()).filter(|of| of != id),
                role: Role::Rung,
                default_variant: format!("{family}-32x64"),
                identity: format!("{id}-identity"),
                claims: vec![
                    claim(Metric::P50, faster, ""),
                    claim(Metric::GlobalReadBytes, equal, "the same tiles are read"),
                ],
                variants: families.iter().map(variant).collect(),
                negatives: vec![],
                refused: vec![],
            }
        };
    stages.map(stage).into()
}

/// The ladder, whose last stage claims 1.5x over the fastest of PyTorch and 1x over its flash too.
pub fn claiming() -> Vec<StageMeta> {
    let mut stages = ladder();
    let claim = |rival, at_least| Claim {
        family: "cpasync".into(),
        metric: Metric::P50,
        relation: Relation::FasterThanPeer { rival, at_least },
        place: ProblemPlace::claims(Dtype::F16),
        gpu: None,
        why: String::new(),
    };
    stages[1].claims.extend([
        claim(Rival::FastestPyTorch, 1.5),
        claim(Rival::PyTorchFlash, 1.0),
    ]);
    stages
}

/// An instance for each element type at head_dim 64.
pub fn instances(variant: &str, dtypes: &[Dtype]) -> Vec<KernelBuild> {
    let facts = |dtype: &Dtype| KernelFacts {
        symbol: format!("{}_{dtype}_d64", variant.replace('-', "_")),
        dtype: *dtype,
        head_dim: 64,
        block_m: 32,
        block_n: 64,
        threads: 128,
        min_blocks: 4,
        dynamic_shared_bytes: 37_376,
        boxes: None,
        cluster: 1,
        caps: Some(Caps {
            register_cap: 128,
            shared_cap_bytes: 48 << 10,
        }),
        probability: Probability::F32,
        lse: false,
    };
    let kernel = |dtype| KernelBuild {
        facts: facts(dtype),
        built: vec![],
    };
    dtypes.iter().map(kernel).collect()
}

pub fn of_e4m3_alone(stage: usize) -> Vec<StageMeta> {
    let mut stages = ladder();
    for variant in &mut stages[stage].variants {
        variant.kernels = instances(&variant.name, &[Dtype::E4m3]);
    }
    stages
}

/// One site that is needed, and one that is listed as redundant.
pub fn suppressed() -> Suppressed {
    let site = |family: &str, finding, listed: Option<&str>| SiteResult {
        stage: "stage0-scalar".into(),
        family: family.into(),
        operation: "__syncthreads".into(),
        place: "stage0-scalar/kernel.cu:159".into(),
        finding,
        listed: listed.map(String::from),
    };
    let what = "race: writes at stage0-scalar/kernel.cu:157, reads a matrix at \
                stage0-scalar/kernel.cu:101"
        .to_string();
    let at = "wmma-qk-32x64 1x1x33:321x64 f16 full".to_string();
    let redundant = Some("scalar reads Q behind the barriers around the first K and V");
    let sites = vec![
        site("scalar", Finding::Survived { cases: 4 }, redundant),
        site(
            "wmma-qk",
            Finding::Killed {
                gate: GateId::H1,
                what,
                at,
            },
            None,
        ),
    ];
    Suppressed {
        sites,
        ..Suppressed::default()
    }
}

/// One case of a variant on `mission`; `broken` fails.
pub fn case(subject: &str, backend: BackendKind, broken: Option<GateId>) -> Row {
    let judge = |gate| {
        GateResult::judge(
            gate,
            broken != Some(gate),
            if broken == Some(gate) {
                "too large"
            } else {
                "fine"
            },
        )
    };
    let errors = Errors {
        rows: 4096,
        sampled: false,
        probability: Probability::F32,
        output: Format::F16,
        max_abs: 1.2e-4,
        max_abs_at: [0, 1, 2, 3],
        mean_abs: 1e-5,
        max_row_rel: 3e-4,
        max_row_rel_at: [0, 1, 2],
        rms_row_rel: 2e-4,
        allclose: 0.01,
        allclose_at: [0, 1, 2, 3],
        nonzero_in_zero_row: None,
        baseline_max_abs: 1e-4,
        baseline_rms_row_rel: 2e-4,
        baseline_rows: 4000.0,
        rms_step: 1e-6,
        largest_score: 10.0,
        reference_max_abs: 0.4,
        end_to_end: None,
    };
    let kind = Kind::Case(backend, mission_case("normal:0"));
    Row::new(subject, kind).judged(&errors, &C1_TO_C6.map(judge))
}

/// Returns the session of a whole emulated run that came to its end; no gate has a scope yet.
pub fn session(stages: Vec<StageMeta>) -> Session {
    let gpu = Gpu::Absent {
        reason: "no NVIDIA driver".into(),
    };
    Session {
        name: "20261120T183000Z-linux".into(),
        progress: Progress::Complete { cases: 3 },
        git: Git::Commit {
            sha: "0123456789abcdef".into(),
            dirty: false,
        },
        machine: Machine {
            name: "linux".into(),
            platform: "linux x86_64".into(),
            gpu,
        },
        tier: Tier::T1,
        backend: BackendKind::Emulated,
        scope: Default::default(),
        host_compiler: "g++ (GCC) 12.2.0".into(),
        device_compiler: DeviceCompiler::Absent {
            reason: "nvcc was not found; run scripts/cuda-toolkit".into(),
        },
        device: None,
        source_lines: true,
        unmeasurable: Default::default(),
        tools: Default::default(),
        rows: 0,
        stages,
        input: None,
    }
}

/// A whole emulated run of [`ladder`]: every variant green on one case and counted, the self-test
/// as it should be.
pub fn emulated() -> Run {
    use GateId::{B1, C7, C8, H1, L1, R1};
    let unmeasurable = [B1, C7, C8, H1, L1, R1].map(|gate| (gate, "not here".into()));
    let mut run = Run::new(Session {
        unmeasurable: unmeasurable.into(),
        ..session(ladder())
    });
    for subject in VARIANTS {
        run = run
            .with(checked(subject, BackendKind::Emulated))
            .counted(subject, 1_048_576, 0);
    }
    let model = Caught {
        fault: None,
        cases: 4,
        cases_failed: 0,
        gates_that_failed: vec![],
        survived: vec![],
    };
    let fault = Caught {
        fault: Some(Fault::ALL[0]),
        cases_failed: 4,
        gates_that_failed: vec![GateId::C2],
        ..model.clone()
    };
    let mut run = run.with(Row::fault(&model)).with(Row::fault(&fault));
    run.extend(suppressed().sites.iter().map(Row::site));
    run
}

/// All cases of a variant: one, and it is green.
pub fn checked(subject: &str, backend: BackendKind) -> Row {
    let row = Row::new(subject, Kind::Checked(backend))
        .figure(Metric::Cases, 1_u32)
        .figure(Metric::MaxError, 1.2e-4)
        .figure(Metric::ErrorOfBound, 0.17)
        .figure(Metric::RowErrorOfBound, 0.15)
        .note("mission f16 full normal:0");
    row.with_verdicts(&C1_TO_C6.map(|gate| GateResult::judge(gate, true, "fine")))
}

/// Samples around `us`, 0.1 % apart, the same every time.
pub fn samples(us: f64) -> Vec<f64> {
    (0..40)
        .map(|i| us * (1.0 + 0.001 * f64::from(i % 3)))
        .collect()
}

/// The same ladder on a GPU, with a latency for each of [`VARIANTS`] and the pairs of both claims.
pub fn timed(us: [f64; 3]) -> Run {
    let mut run = emulated().on_gpu(GPU);
    (run.session.backend, run.session.tier) = (BackendKind::Cuda, Tier::T2);
    run.session.machine.name = "nvidia-h200".into();
    run.session.unmeasurable.remove(&GateId::L1);
    run.table
        .retain(|row| !matches!(row.kind, Kind::Checked(_)));
    for (subject, us) in VARIANTS.into_iter().zip(us) {
        run =
            run.with(checked(subject, BackendKind::Cuda))
                .sampled(subject, mission(), &samples(us));
    }
    let pair = |new: &str, new_us: f64, base: &str, base_us: f64| {
        let comparison = Comparison::new(&samples(base_us), &samples(new_us)).unwrap();
        let speed_of_light = SpeedOfLight::default();
        Row::pair(
            new.into(),
            base.into(),
            mission(),
            &comparison,
            &speed_of_light,
        )
    };
    run.with(pair(WMMA, us[1], SCALAR, us[0]))
        .with(pair(CPASYNC, us[2], WMMA, us[1]))
}

pub fn results() -> Results {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    Results::read(&results).unwrap()
}

/// The sessions merged into one table, oldest first.
pub fn table(runs: &[Run]) -> Table {
    let mut table = Table::default();
    for run in runs {
        table.merge(&run.session, &run.table);
    }
    table
}

impl Run {
    pub fn with(mut self, row: Row) -> Self {
        self.append(row);
        self
    }

    pub fn without(mut self, is_gone: impl Fn(&Row) -> bool) -> Self {
        self.table.retain(|row| !is_gone(row));
        self
    }

    /// Changes the session as if it had been measured so from the start.
    pub fn changed(mut self, change: impl FnOnce(&mut Session)) -> Self {
        change(&mut self.session);
        let rows: Vec<Row> = self.table.rows().cloned().collect();
        self.extend(rows);
        self
    }

    pub fn named(self, name: &str) -> Self {
        self.changed(|session| {
            session.name = name.into();
        })
    }

    pub fn row_mut(&mut self, subject: &str, kind: Kind) -> &mut Row {
        let key = Row::new(subject, kind).key();
        self.table.get_mut(&key).expect("the record has this row")
    }

    pub fn on_gpu(mut self, name: &str) -> Self {
        self.session.machine.gpu = Gpu::Present {
            name: name.into(),
            uuid: String::new(),
            arch: "sm_90".into(),
            driver: "580.159.04".into(),
            multiprocessors: 132,
        };
        self
    }

    pub fn sampled(self, subject: &str, problem: ProblemPlace, us: &[f64]) -> Self {
        let summary = Summary::new(us).unwrap();
        let row = Row::new(subject, Kind::Latency(problem))
            .conditions("warm L2")
            .figure(Metric::P50, &summary)
            .figure(Metric::P90, summary.p90)
            .figure(Metric::Samples, summary.samples)
            .figure(Metric::SmMhz, 1980_u32);
        self.with(row)
    }

    /// Bytes read from global memory, and bank conflicts of shared loads beside 96 ideal
    /// wavefronts.
    pub fn counted(self, subject: &str, bytes: u64, conflicts: u64) -> Self {
        let row = Row::new(subject, Kind::Counters(mission()))
            .figure(Metric::GlobalReadBytes, bytes)
            .figure(Metric::GlobalReadSectors, bytes / 32)
            .figure(Metric::SharedReadWavefronts, 96 + conflicts)
            .figure(Metric::SharedReadConflicts, conflicts)
            .figure(Metric::TracedBlocks, 2_u32);
        self.with(row)
    }

    /// Adds what nvcc would have built for sm_90a: the f16 instance of each variant with these
    /// registers and spilled bytes.
    pub fn built(mut self, registers: u32, spills: u32) -> Self {
        let compiler = DeviceCompiler::Built {
            nvcc: "13.0.88".into(),
            flags: vec![],
            archs: vec!["sm_90a".into()],
        };
        self.session.device_compiler = compiler;
        let row = |subject: &str| {
            let result = GateResult::judge(GateId::R1, spills == 0, "sm_90a: spilled bytes 8 > 0");
            // 128 threads: 96 and 104 registers fit 5 and 4 blocks.
            let blocks = f64::from((512 / registers).min(16));
            let mut row = Row::new(subject, instance())
                .figure(Metric::Registers, registers)
                .figure(Metric::SpillBytes, spills)
                .figure(Metric::Occupancy, blocks / 16.0)
                .verdict(&result);
            row.code = Some(format!("code of {subject}"));
            row
        };
        VARIANTS
            .into_iter()
            .fold(self, |run, subject| run.with(row(subject)))
    }

    /// Adds what compute-sanitizer found in a variant under memcheck and racecheck.
    pub fn sanitized(self, subject: &str, verdicts: [Verdict; 2]) -> Self {
        let tools = ["memcheck", "racecheck"].into_iter().zip(verdicts);
        let findings = |(tool, verdict)| ToolFindings {
            tool,
            launched: 2,
            result: GateResult {
                gate: GateId::C7,
                verdict,
                reason: "planted".into(),
            },
        };
        let findings: Vec<ToolFindings> = tools.map(findings).collect();
        self.with(Row::sanitized(subject, &findings))
    }

    /// After `compare sanitize`, which found nothing.
    pub fn clean(self) -> Self {
        VARIANTS.into_iter().fold(self, |run, subject| {
            run.sanitized(subject, [Verdict::Pass; 2])
        })
    }

    /// A session with peers on a problem, f16 and full mask: cpasync-32x64 takes `ours`
    /// microseconds; peers by name with what they take and whether they are right. The ladder
    /// claims something of them.
    pub fn peers(mut self, shape: &str, ours: f64, peers: &[(&str, f64, bool)]) -> Self {
        self.session.stages[1].claims = claiming().remove(1).claims;
        let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
        self.beside(CPASYNC, &place, ours, peers)
    }

    /// The same of any subject and problem.
    pub fn beside(
        mut self,
        subject: &str,
        place: &ProblemPlace,
        us: f64,
        peers: &[(&str, f64, bool)],
    ) -> Self {
        self = self.with(peer_time(subject, place, us, true));
        for &(peer, peer_us, is_right) in peers {
            self = self.with(peer_time(peer, place, peer_us, is_right));
            // A wrong peer has no ratio.
            if is_right {
                let comparison = Comparison::new(&samples(peer_us), &samples(us)).unwrap();
                self = self.with(Row::peer_pair(
                    subject.into(),
                    peer.into(),
                    place.clone(),
                    &comparison,
                    &SpeedOfLight::default(),
                ));
            }
        }
        self
    }
}

/// Returns the time of an arm in turn with others; a wrong one fails C2.
fn peer_time(subject: &str, problem: &ProblemPlace, us: f64, is_right: bool) -> Row {
    let gates = [GateId::C1, GateId::C2, GateId::C3]
        .map(|gate| GateResult::judge(gate, is_right || gate != GateId::C2, "too large"));
    let [device, host] = [us, 20.0].map(|us| Summary::new(&samples(us)).unwrap());
    Row::new(subject, Kind::PeerTime(problem.clone()))
        .timed(&device, &gates)
        .conditions("warm L2")
        .figure(Metric::HostP50, host.p50)
        .figure(Metric::MaxError, 1.5e-4)
}
