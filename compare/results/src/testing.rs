//! Literal stages and runs for tests, here and in the crates that read results: one builder, and
//! changes to what it builds. No program calls this.
//!
//! It is compiled always. A crate of its own would depend on `results`, and the unit tests here
//! could not use it: to them the rows it builds would be of another crate, the one without
//! `cfg(test)`. A feature would compile `results` and all crates above it twice, once for tests and
//! once for the program.

mod changes;
mod rows;

pub use rows::{candidate, row};

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

/// The first variant of the literal ladder.
pub const SCALAR: &str = "stage0-scalar/scalar-32x64";
/// The second variant of the literal ladder.
pub const WMMA: &str = "stage0-scalar/wmma-qk-32x64";
/// The only variant of the second stage.
pub const CPASYNC: &str = "stage1-cpasync/cpasync-32x64";
/// All variants of the literal ladder.
pub const VARIANTS: [&str; 3] = [SCALAR, WMMA, CPASYNC];

/// The GPU model of timed runs.
pub const GPU: &str = "NVIDIA H200";

/// The medians of [`VARIANTS`] with which both claims of the ladder hold.
pub const US: [f64; 3] = [32.0, 20.0, 15.0];

/// The element types of the stages of the literal ladder.
pub const DTYPES: [Dtype; 2] = [Dtype::F16, Dtype::E4m3];

/// The gates of each case.
pub const C1_TO_C6: [GateId; 6] = [
    GateId::C1,
    GateId::C2,
    GateId::C3,
    GateId::C4,
    GateId::C5,
    GateId::C6,
];

/// Returns the problem that claims are about.
pub fn mission() -> ProblemPlace {
    ProblemPlace::claims(Dtype::F16)
}

/// Returns a case of [`mission`].
pub fn mission_case(input: &str) -> CasePlace {
    CasePlace {
        problem: mission(),
        input: input.into(),
    }
}

/// The kind of the row of all cases of a variant in the emulator.
pub const IN_EMULATOR: Kind = Kind::Checked(BackendKind::Emulated);

/// The kind of the row of all cases of a variant on a GPU.
pub const ON_GPU: Kind = Kind::Checked(BackendKind::Cuda);

/// Returns the kind of a time on [`mission`].
pub fn latency() -> Kind {
    Kind::Latency(mission())
}

/// Returns the kind of the counters on [`mission`].
pub fn counters() -> Kind {
    Kind::Counters(mission())
}

/// Returns the kind of a time on [`mission`] against a slower variant.
pub fn pair_with(base: &str) -> Kind {
    Kind::Pair {
        problem: mission(),
        base: base.into(),
    }
}

/// Returns the kind of a time on [`mission`] beside peers.
pub fn time_beside_peers() -> Kind {
    Kind::PeerTime(mission())
}

/// Returns the kind of what `kernel.cu` declares of [`instance`].
pub fn declared() -> Kind {
    Kind::Declared(Instance {
        dtype: Dtype::F16,
        head_dim: 64,
    })
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

/// Returns two stages, of which each claims to be faster than the family before, and to read as
/// many bytes. They are built without nvcc.
pub fn ladder() -> Vec<StageMeta> {
    let scalar = StageMeta {
        id: "stage0-scalar".into(),
        idea: "tiled softmax".into(),
        predecessor: None,
        role: Role::Rung,
        default_variant: "wmma-qk-32x64".into(),
        identity: "stage0-scalar-identity".into(),
        claims: claims_over("scalar", "wmma-qk", 1.5),
        variants: vec![variant("scalar"), variant("wmma-qk")],
        negatives: vec![],
        refused: vec![],
    };
    let cpasync = StageMeta {
        id: "stage1-cpasync".into(),
        idea: "K and V copied one tile ahead".into(),
        predecessor: Some("stage0-scalar".into()),
        role: Role::Rung,
        default_variant: "cpasync-32x64".into(),
        identity: "stage1-cpasync-identity".into(),
        claims: claims_over("wmma-qk", "cpasync", 1.1),
        variants: vec![variant("cpasync")],
        negatives: vec![],
        refused: vec![],
    };
    vec![scalar, cpasync]
}

/// Returns the variant of a family.
fn variant(family: &str) -> VariantMeta {
    let name = format!("{family}-32x64");
    VariantMeta {
        family: family.to_string(),
        serves: false,
        cache: None,
        kernels: instances(&name, &DTYPES),
        name,
    }
}

/// Returns the claims of a family: at least so much faster than a slower one of the first stage,
/// and as many bytes read.
fn claims_over(slower: &'static str, family: &str, at_least: f64) -> Vec<Claim> {
    let base = Base {
        stage: "stage0-scalar",
        family: slower,
    };
    let claim = |metric, relation, why: &str| Claim {
        family: family.into(),
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
    vec![
        claim(Metric::P50, faster, ""),
        claim(Metric::GlobalReadBytes, equal, "the same tiles are read"),
    ]
}

/// Returns the ladder, whose last stage claims 1.5x over the fastest of PyTorch and 1x over its
/// flash too.
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

/// Returns an instance for each element type at head_dim 64.
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

/// Returns the ladder, of which one stage has kernels for e4m3 alone.
pub fn of_e4m3_alone(stage: usize) -> Vec<StageMeta> {
    let mut stages = ladder();
    for variant in &mut stages[stage].variants {
        variant.kernels = instances(&variant.name, &[Dtype::E4m3]);
    }
    stages
}

/// Returns one site that is needed, and one that is listed as redundant.
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

/// Returns the kind of the rows of the sites of [`suppressed`].
pub fn site() -> Kind {
    Kind::Site("__syncthreads stage0-scalar/kernel.cu:159".into())
}

/// Returns one case of a variant on `mission`; `broken` fails.
pub fn case(subject: &str, backend: BackendKind, broken: Option<GateId>) -> Row {
    let judge = |gate| {
        if broken == Some(gate) {
            GateResult::judge(gate, false, "too large")
        } else {
            GateResult::judge(gate, true, "fine")
        }
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

/// Returns a whole emulated run of [`ladder`]: every variant green on one case and counted, the self-test
/// as it should be.
pub fn emulated() -> Run {
    use GateId::{B1, B2, C7, C8, H1, L1, R1};
    let unmeasurable = [B1, B2, C7, C8, H1, L1, R1].map(|gate| (gate, "not here".into()));
    let mut run = Run::new(Session {
        unmeasurable: unmeasurable.into(),
        ..session(ladder())
    });
    for subject in VARIANTS {
        run = run
            .with_row(checked(subject, BackendKind::Emulated))
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
    run.append(Row::fault(&model));
    run.append(Row::fault(&fault));
    run.extend(suppressed().sites.iter().map(Row::site));
    run
}

/// Returns the row of all cases of a variant: one, and it is green.
pub fn checked(subject: &str, backend: BackendKind) -> Row {
    let row = Row::new(subject, Kind::Checked(backend))
        .figure(Metric::Cases, 1_u32)
        .figure(Metric::MaxError, 1.2e-4)
        .figure(Metric::ErrorOfBound, 0.17)
        .figure(Metric::RowErrorOfBound, 0.15)
        .note("mission f16 full normal:0");
    row.with_verdicts(&C1_TO_C6.map(|gate| GateResult::judge(gate, true, "fine")))
}

/// Returns samples around `us`, 0.1 % apart, the same every time.
pub fn samples(us: f64) -> Vec<f64> {
    (0..40)
        .map(|i| us * (1.0 + 0.001 * f64::from(i % 3)))
        .collect()
}

/// Returns a run of the same ladder on a GPU, with a latency for each of [`VARIANTS`] and the pairs of both claims.
pub fn timed(us: [f64; 3]) -> Run {
    let mut run = emulated().on_gpu(GPU);
    (run.session.backend, run.session.tier) = (BackendKind::Cuda, Tier::T2);
    run.session.machine.name = "nvidia-h200".into();
    run.session.unmeasurable.remove(&GateId::L1);
    run.table
        .retain(|row| !matches!(row.kind, Kind::Checked(_)));
    for (subject, p50) in VARIANTS.into_iter().zip(us) {
        run.append(checked(subject, BackendKind::Cuda));
        run = run.sampled(subject, mission(), &samples(p50));
    }
    for (base, new) in [(0, 1), (1, 2)] {
        let comparison = Comparison::new(&samples(us[base]), &samples(us[new])).unwrap();
        run.append(Row::pair(
            VARIANTS[new].into(),
            VARIANTS[base].into(),
            mission(),
            &comparison,
            &SpeedOfLight::default(),
        ));
    }
    run
}

/// Returns the committed tables.
pub fn results() -> Results {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results");
    Results::read(&results).unwrap()
}

/// Returns the table that runs are merged into, oldest first.
pub fn table(runs: &[Run]) -> Table {
    let mut table = Table::default();
    for run in runs {
        table.merge(&run.session, &run.table);
    }
    table
}

/// Returns the table of sessions, oldest first, which are named `1`, `2` and so on.
pub fn table_of_sessions(sessions: &[Run]) -> Table {
    let mut runs = Vec::new();
    for (session, number) in sessions.iter().zip(1..) {
        runs.push(session.clone().named(&number.to_string()));
    }
    table(&runs)
}

impl Run {
    /// Adds a row.
    pub fn with_row(mut self, row: Row) -> Self {
        self.append(row);
        self
    }

    /// Removes rows.
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

    /// Names the session.
    pub fn named(self, name: &str) -> Self {
        self.changed(|session| {
            session.name = name.into();
        })
    }

    /// Returns the row of a subject, to be changed.
    pub fn row_mut(&mut self, subject: &str, kind: Kind) -> &mut Row {
        let key = Row::new(subject, kind).key();
        self.table.get_mut(&key).expect("the record has this row")
    }

    /// Sets the GPU of the session, of this model.
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

    /// Adds the latency of a variant alone, by its samples.
    pub fn sampled(self, subject: &str, problem: ProblemPlace, us: &[f64]) -> Self {
        let summary = Summary::new(us).unwrap();
        let row = Row::new(subject, Kind::Latency(problem))
            .conditions("warm L2")
            .figure(Metric::P50, &summary)
            .figure(Metric::P90, summary.p90)
            .figure(Metric::Samples, summary.samples)
            .figure(Metric::SmMhz, 1980_u32);
        self.with_row(row)
    }

    /// Adds what was counted: bytes read from global memory, and bank conflicts of shared loads
    /// beside 96 ideal wavefronts.
    pub fn counted(self, subject: &str, bytes: u64, conflicts: u64) -> Self {
        let row = Row::new(subject, Kind::Counters(mission()))
            .figure(Metric::GlobalReadBytes, bytes)
            .figure(Metric::GlobalReadSectors, bytes / 32)
            .figure(Metric::SharedReadWavefronts, 96 + conflicts)
            .figure(Metric::SharedReadConflicts, conflicts)
            .figure(Metric::TracedBlocks, 2_u32);
        self.with_row(row)
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
        let result = GateResult::judge(GateId::R1, spills == 0, "sm_90a: spilled bytes 8 > 0");
        // 128 threads: 96 and 104 registers fit 5 and 4 blocks.
        let blocks = f64::from((512 / registers).min(16));
        for subject in VARIANTS {
            let mut row = Row::new(subject, instance())
                .figure(Metric::Registers, registers)
                .figure(Metric::SpillBytes, spills)
                .figure(Metric::Occupancy, blocks / 16.0)
                .verdict(&result);
            row.code = Some(format!("code of {subject}"));
            self.append(row);
        }
        self
    }

    /// Adds what compute-sanitizer found in a variant under memcheck and racecheck.
    pub fn sanitized(self, subject: &str, verdicts: [Verdict; 2]) -> Self {
        let mut findings = Vec::new();
        for (tool, verdict) in ["memcheck", "racecheck"].into_iter().zip(verdicts) {
            findings.push(ToolFindings {
                tool,
                launched: 2,
                result: GateResult {
                    gate: GateId::C7,
                    verdict,
                    reason: "planted".into(),
                },
            });
        }
        self.with_row(Row::sanitized(subject, &findings))
    }

    /// Adds what `compare sanitize` writes where it finds nothing.
    pub fn clean(mut self) -> Self {
        for subject in VARIANTS {
            self = self.sanitized(subject, [Verdict::Pass; 2]);
        }
        self
    }

    /// Adds a session with peers on a problem, f16 and full mask, where cpasync-32x64 takes `ours`
    /// microseconds. The ladder claims something of the peers.
    pub fn peers(mut self, shape: &str, ours: f64, peers: &[PeerArm<'_>]) -> Self {
        self.session.stages[1].claims = claiming().remove(1).claims;
        let place = ProblemPlace::new(shape, Dtype::F16, Mask::Full);
        self.beside(CPASYNC, &place, ours, peers)
    }

    /// Adds such a session, of any subject and problem and without a claim.
    pub fn beside(
        mut self,
        subject: &str,
        place: &ProblemPlace,
        us: f64,
        peers: &[PeerArm<'_>],
    ) -> Self {
        self.append(PeerArm::right(subject, us).row(place));
        for peer in peers {
            self.append(peer.row(place));
            // A wrong peer has no ratio.
            if peer.is_right {
                let comparison = Comparison::new(&samples(peer.us), &samples(us)).unwrap();
                self.append(Row::peer_pair(
                    subject.into(),
                    peer.name.into(),
                    place.clone(),
                    &comparison,
                    &SpeedOfLight::default(),
                ));
            }
        }
        self
    }
}

impl Run {
    /// Adds that FlashAttention does not take the problems on which it was not timed.
    pub fn without_flash(mut self) -> Self {
        let times: Vec<Row> = self.table.peer_times().cloned().collect();
        for place in times.iter().filter_map(Row::problem) {
            for peer in ["flash-attn-3", "flash-attn-4"] {
                let row = Row::absent_peer(peer, Some(place.clone()), "it does not take it");
                if self.table.get(&row.key()).is_none() {
                    self.append(row);
                }
            }
        }
        self
    }
}

/// An arm that is timed in turn with others.
#[derive(Clone, Copy)]
pub struct PeerArm<'a> {
    name: &'a str,
    us: f64,
    is_right: bool,
}

impl<'a> PeerArm<'a> {
    /// Returns an arm whose output is right.
    pub fn right(name: &'a str, us: f64) -> Self {
        Self {
            name,
            us,
            is_right: true,
        }
    }

    /// Returns an arm whose output fails C2.
    pub fn wrong(name: &'a str, us: f64) -> Self {
        Self {
            name,
            us,
            is_right: false,
        }
    }

    fn row(&self, place: &ProblemPlace) -> Row {
        let gates = [
            GateResult::judge(GateId::C1, true, "too large"),
            GateResult::judge(GateId::C2, self.is_right, "too large"),
            GateResult::judge(GateId::C3, true, "too large"),
        ];
        let device = Summary::new(&samples(self.us)).unwrap();
        let host = Summary::new(&samples(20.0)).unwrap();
        Row::new(self.name, Kind::PeerTime(place.clone()))
            .timed(&device, &gates)
            .conditions("warm L2")
            .figure(Metric::HostP50, host.p50)
            .figure(Metric::MaxError, 1.5e-4)
    }
}
