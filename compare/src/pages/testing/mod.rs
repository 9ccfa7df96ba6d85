//! A small literal run.

use crate::table::session::{DeviceCompiler, Git, Gpu, Machine, Measurable, Progress};
use crate::table::{Claim, On, Place, Relation, Row, Run, Session, Source, StageMeta, VariantMeta};
pub use crate::testing::{instance, mission};
use common::claim::Base;
use common::device::BackendKind;
use common::metric::Metric;
use common::problem::{Dtype, Mask};
use common::verdict::{GateId, GateResult};

pub const BASE: &str = "stage0-scalar/scalar-32x64";
pub const BEST: &str = "stage1-mma/mma-32x64";
pub const OTHER: &str = "stage1-mma/mma-64x64";

/// Two stages, three variants, all green and timed; a claim that holds; 1.5x over a peer on mission and 0.8x on long.
pub fn run() -> Run {
    let claim = Claim {
        family: "mma".into(),
        metric: Metric::P50,
        relation: Relation::Faster {
            base: Base {
                stage: "stage0-scalar".into(),
                family: "scalar".into(),
            },
            at_least: 1.5,
        },
        on: Place::claims(Dtype::F16),
        why: String::new(),
    };
    let stages = vec![
        stage("stage0-scalar", None, "scalar", &["scalar-32x64"], vec![]),
        stage(
            "stage1-mma",
            Some("stage0-scalar"),
            "mma",
            &["mma-32x64", "mma-64x64"],
            vec![claim],
        ),
    ];
    let mut run = Run::new(session(stages));
    for (subject, p50) in [(BASE, 10.0), (BEST, 5.0), (OTHER, 6.0)] {
        for row in of_variant(subject, p50) {
            run.append(row);
        }
    }
    let speedup = |row: Row, ratio: f64| {
        let interval = (ratio, ratio - 0.01, ratio + 0.01);
        let row = row
            .figure(Metric::SpeedupP50, interval)
            .figure(Metric::SpeedupP90, interval);
        row.figure(Metric::SpeedupMean, interval)
            .figure(Metric::Noise, 0.01)
    };
    run.append(speedup(
        Row::new(BEST, mission(), Source::Gpu).against(BASE),
        2.0,
    ));
    for (shape, ours, theirs) in [("mission", 5.0, 7.5), ("long", 30.0, 24.0)] {
        let on = || On::Problem(Place::new(shape, Dtype::F16, Mask::Full));
        let coarse = if shape == "mission" { 2e-2 } else { 2e-4 };
        for (subject, p50, error) in [(BEST, ours, 1e-4), ("torch-default", theirs, coarse)] {
            let row = Row::new(subject, on(), Source::Peers).figure(Metric::P50, p50);
            run.append(row.figure(Metric::MaxError, error));
        }
        run.append(speedup(
            Row::new(BEST, on(), Source::Peers).against("torch-default"),
            theirs / ours,
        ));
    }
    let fault = Row::new(
        "self-test",
        On::Named("skipped rescaling".into()),
        Source::SelfTest,
    );
    run.append(
        fault
            .figure(Metric::Cases, 4_usize)
            .figure(Metric::CasesFailed, 3_usize)
            .note("in words"),
    );
    run
}

fn of_variant(subject: &str, p50: f64) -> [Row; 4] {
    let pass = |row: Row, gate| row.verdict(&GateResult::judge(gate, true, ""));
    let gates = [
        GateId::C1,
        GateId::C2,
        GateId::C3,
        GateId::C5,
        GateId::C6,
        GateId::H1,
    ];
    let all = Row::new(subject, On::All, Source::Gpu).figure(Metric::Cases, 40_usize);
    let all = all
        .figure(Metric::MaxError, 1e-3)
        .figure(Metric::ErrorOfBound, 0.4)
        .note("mission f16 full normal:0");
    [
        gates.into_iter().fold(all, pass),
        Row::new(subject, mission(), Source::Gpu)
            .under("warm L2")
            .figure(Metric::P50, (p50, p50 - 0.001, p50 + 0.001))
            .figure(Metric::P90, p50 + 0.01),
        pass(
            Row::new(subject, instance(), Source::Ptxas)
                .figure(Metric::Registers, 128_u32)
                .figure(Metric::SpillBytes, 0_u32)
                .figure(Metric::Occupancy, 0.25),
            GateId::R1,
        ),
        Row::new(subject, mission(), Source::Emulator)
            .figure(Metric::SharedReadConflicts, 12_288_u32)
            .figure(Metric::SharedReadWavefronts, 49_152_u32)
            .figure(Metric::LaunchBlocks, 128_u32),
    ]
}

fn stage(
    id: &str,
    predecessor: Option<&str>,
    family: &str,
    names: &[&str],
    claims: Vec<Claim>,
) -> StageMeta {
    let variant = |name: &&str| VariantMeta {
        name: name.to_string(),
        family: family.into(),
        kernels: crate::testing::instances(name, &[Dtype::F16]),
    };
    StageMeta {
        id: id.into(),
        idea: "one idea".into(),
        predecessor: predecessor.map(String::from),
        default_variant: names[0].into(),
        identity: format!("{id}-identity"),
        host_compiler: "g++ 12".into(),
        device_compiler: DeviceCompiler::Absent {
            reason: "nvcc was not found".into(),
        },
        claims,
        variants: names.iter().map(variant).collect(),
        negatives: vec![],
        refused: vec![],
    }
}

fn session(stages: Vec<StageMeta>) -> Session {
    let gates = [
        GateId::C1,
        GateId::C2,
        GateId::C3,
        GateId::C5,
        GateId::C6,
        GateId::H1,
        GateId::R1,
        GateId::L1,
    ];
    let gpu = Gpu::Present {
        name: "NVIDIA H200".into(),
        uuid: String::new(),
        arch: "sm_90".into(),
        driver: "580".into(),
        multiprocessors: 132,
        shared_opt_in_bytes: 232_448,
    };
    Session {
        progress: Progress::Complete {
            cases: 120,
            seconds: 9,
        },
        git: Git::Commit {
            sha: "25f6c2b1d61c0123".into(),
            dirty: false,
            changes: None,
        },
        machine: Machine {
            name: "h200".into(),
            platform: "linux x86_64".into(),
            processors: 16,
            gpu,
        },
        backend: BackendKind::Cuda,
        gates: gates.map(|gate| (gate, Measurable::Yes)).into(),
        ..crate::testing::session(stages)
    }
}

/// The row of a subject at a place, to be changed.
pub fn row<'a>(run: &'a mut Run, subject: &str, on: &On, by: Source) -> &'a mut Row {
    run.row_mut(subject, on, by)
}
