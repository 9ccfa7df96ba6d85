//! From what was measured to rows.

use super::builds::StageBuild;
use super::ncu::FORMULAS;
use super::summary::input;
use crate::record::{Judged, On, Place, Row, Source, Subject};
use common::check::{CaseResult, Outcome};
use common::device::BackendKind;
use common::evidence::Counting;
use common::faults::{Caught, Fault};
use common::gate::Errors;
use common::metric::Metric;
use common::problem::Dtype;
use common::suppression::{Finding, SiteResult};
use common::telemetry::Conditions;
use common::timing::stats::{Ratios, Summary};
use common::timing::{Comparison, Floor, Measurement};
use common::verdict::{GateId, GateResult};
use std::collections::BTreeMap;

/// What kernel.cu declares of a stage's instances, and what ptxas reports of each for each architecture (gate R1).
pub fn built(stage: &StageBuild) -> Vec<Row> {
    let mut rows = Vec::new();
    for variant in &stage.variants {
        let subject = || Subject::variant(&stage.id, &variant.name);
        for kernel in &variant.kernels {
            let facts = &kernel.facts;
            let on = |arch: Option<&str>| On::Instance {
                dtype: facts.dtype,
                head_dim: facts.head_dim,
                arch: arch.map(String::from),
            };
            let mut declared = Row::new(subject(), on(None), Source::Kernel)
                .figure(Metric::TileM, facts.block_m)
                .figure(Metric::TileN, facts.block_n)
                .figure(Metric::Threads, facts.threads)
                .figure(Metric::MinBlocks, facts.min_blocks)
                .figure(Metric::DynamicSharedBytes, facts.dynamic_shared_bytes);
            if let Some(caps) = &facts.caps {
                declared = declared
                    .figure(Metric::RegisterCap, caps.register_cap)
                    .figure(Metric::SharedCapBytes, caps.shared_cap_bytes);
            }
            rows.push(declared);
            for built in &kernel.built {
                let found = &built.ptxas.resources;
                let mut row = Row::new(subject(), on(Some(&built.ptxas.arch)), Source::Ptxas)
                    .figure(Metric::Registers, found.registers)
                    .figure(Metric::SpillBytes, found.spill_store_bytes + found.spill_load_bytes)
                    .figure(Metric::StackBytes, found.stack_frame_bytes)
                    .figure(Metric::StaticSharedBytes, found.static_shared_bytes)
                    .verdict(&built.result);
                row.sass = Some(built.ptxas.sass_sha256.chars().take(16).collect());
                if let Some(occupancy) = built.occupancy {
                    row = row.figure(Metric::Occupancy, occupancy.percent() / 100.0);
                }
                rows.push(row);
            }
        }
    }
    share_code(&mut rows);
    rows
}

/// How the reason begins.
pub const SAME_CODE: &str = "the same machine code as";

/// Two variants that compile to the same code are one (gate R1): both fail, each naming the other.
fn share_code(rows: &mut [Row]) {
    let mut by_code: BTreeMap<(String, String), Vec<usize>> = BTreeMap::new();
    for (at, row) in rows.iter().enumerate() {
        if let Some(sass) = &row.sass {
            by_code.entry((row.on.to_string(), sass.clone())).or_default().push(at);
        }
    }
    for alike in by_code.into_values().filter(|alike| alike.len() > 1) {
        for &at in &alike {
            let others: Vec<&str> =
                alike.iter().filter(|other| **other != at).map(|&other| rows[other].subject.name()).collect();
            let reason = format!("{SAME_CODE} {}: what tells them apart does nothing", others.join(", "));
            let result = GateResult::judge(GateId::R1, false, reason);
            rows[at].judge(GateId::R1, Judged::from(&result));
        }
    }
}

pub fn backend(kind: BackendKind) -> Source {
    match kind {
        BackendKind::Emulated => Source::Emulator,
        BackendKind::Cuda => Source::Gpu,
    }
}

/// One case.
pub fn case(case: &CaseResult) -> Row {
    let key = &case.key;
    let on = On::Case(Place::new(&key.shape_name, key.dtype, key.mask), input(key));
    let row = Row::new(Subject::variant(&key.stage, &key.variant), on, backend(key.backend));
    match &case.outcome {
        Outcome::Checked { errors, gates } => {
            gates.iter().fold(with_errors(row, errors), |row, gate| row.verdict(gate))
        }
        Outcome::Unsupported { reason } => row.note(reason),
        Outcome::Failed { reason } => {
            row.verdict(&GateResult::judge(GateId::C1, false, format!("the launch failed: {reason}")))
        }
    }
}

fn with_errors(row: Row, errors: &Errors) -> Row {
    row.figure(Metric::MaxError, errors.max_abs)
        .figure(Metric::MaxRowError, errors.max_row_rel)
        .figure(Metric::ErrorOfBound, errors.max_abs / errors.c2_bound())
        .figure(Metric::RowErrorOfBound, errors.max_row_rel / errors.c3_bound())
}

fn with_summary(row: Row, device: &Summary) -> Row {
    row.figure(Metric::P50, (device.p50, device.p50_interval.low, device.p50_interval.high))
        .figure(Metric::P90, device.p90)
        .figure(Metric::Mean, device.mean)
        .figure(Metric::Std, device.std)
        .figure(Metric::Samples, device.samples)
}

/// One timed arm, and what the gates say of the buffers that were timed.
pub fn timing(subject: Subject, place: Place, measurement: &Measurement, after: &[GateResult]) -> Row {
    let mut row = with_summary(Row::new(subject, On::Problem(place), Source::Gpu), &measurement.device)
        .under(measurement.rotation.state.label())
        .figure(Metric::SingleP50, measurement.single.p50);
    let clocks = measurement.conditions.iter().filter_map(|conditions| match conditions {
        Conditions::Read(reading) => reading.sm_mhz.filter(|&mhz| mhz > 0),
        Conditions::Absent { .. } => None,
    });
    if let [first, last] = clocks.map(f64::from).collect::<Vec<_>>()[..] {
        row = row.figure(Metric::SmMhz, (first + last) / 2.0);
    }
    failed(after).fold(row, |row, result| row.verdict(result))
}

fn failed(results: &[GateResult]) -> impl Iterator<Item = &GateResult> {
    results.iter().filter(|result| result.verdict == common::verdict::Verdict::Fail)
}

/// Two arms alternated A B B A, and what no kernel can beat on the problem.
pub fn pair(new: Subject, base: Subject, place: Place, by: Source, pair: &Comparison, floor: &Floor) -> Row {
    with_ratios(Row::new(new, On::Problem(place), by).against(base), &pair.ratios)
        .figure(Metric::P50, pair.new.p50)
        .figure(Metric::Min, pair.new.min.min(pair.base.min))
        .figure(Metric::Noise, pair.noise())
        .figure(Metric::FloorUs, floor.us())
}

fn with_ratios(row: Row, ratios: &Ratios) -> Row {
    let figures =
        [(Metric::SpeedupP50, ratios.p50), (Metric::SpeedupP90, ratios.p90), (Metric::SpeedupMean, ratios.mean)];
    figures
        .into_iter()
        .fold(row, |row, (metric, ratio)| row.figure(metric, (ratio.value, ratio.interval.low, ratio.interval.high)))
}

/// What was sampled of one arm, ours or a peer's, in the session with peers.
pub struct PeerArm {
    pub device: Summary,
    /// Of one call between two events.
    pub single: Summary,
    /// The host's time for one call, which only enqueues.
    pub host: Summary,
    /// Against FP64.
    pub max_error: f64,
    /// The gates on the buffers that were timed.
    pub after: Vec<GateResult>,
}

pub fn peer_arm(subject: impl Into<Subject>, place: Place, arm: &PeerArm, cache: &str) -> Row {
    let row = with_summary(Row::new(subject, On::Problem(place), Source::Peers), &arm.device)
        .under(cache)
        .figure(Metric::SingleP50, arm.single.p50)
        .figure(Metric::HostP50, arm.host.p50)
        .figure(Metric::MaxError, arm.max_error);
    failed(&arm.after).fold(row, |row, result| row.verdict(result))
}

/// What the emulator counts of a variant on the claims' problem.
pub fn counters(subject: Subject, dtype: Dtype, counting: &Counting) -> Row {
    let row = Row::new(subject, On::Problem(Place::claims(dtype)), Source::Emulator);
    match counting {
        Counting::Counted { launch, traced_blocks, launch_blocks, tiles } => {
            let counted = Metric::all_counted().filter(|metric| !metric.is_share());
            let row = counted.fold(row, |row, metric| row.figure(metric, metric.counted(launch).unwrap_or(f64::NAN)));
            row.figure(Metric::TracedBlocks, *traced_blocks)
                .figure(Metric::LaunchBlocks, *launch_blocks)
                .figure(Metric::Tiles, *tiles)
        }
        Counting::Hazardous { reason } => row.verdict(&GateResult::judge(GateId::H1, false, reason)),
        Counting::NotCounted { reason } => row.note(reason),
    }
}

/// What ncu read of one launch.
pub fn profiled(subject: Subject, place: Place, metrics: &BTreeMap<String, f64>) -> Row {
    let row = Row::new(subject, On::Problem(place), Source::Ncu).under("cold caches");
    let read = FORMULAS.iter().filter_map(|formula| Some((formula.metric, formula.value(metrics)?)));
    read.fold(row, |row, (metric, value)| row.figure(metric, value))
}

/// What compute-sanitizer found on a variant: its tools, each with the gate's result.
pub fn sanitized(subject: Subject, tools: &[(&str, &GateResult)], launches: usize) -> Row {
    use common::verdict::Verdict;
    let with = |verdict: Verdict| tools.iter().filter(move |(_, result)| result.verdict == verdict);
    let mut row = Row::new(subject, On::All, Source::ComputeSanitizer).figure(Metric::Cases, launches);
    let worst = with(Verdict::Fail).chain(with(Verdict::NoData)).chain(with(Verdict::Pass)).next();
    if let Some((tool, result)) = worst {
        let result = GateResult { reason: format!("{tool}: {}", result.reason), ..(*result).clone() };
        row.judge(GateId::C7, Judged::from(&result).cases(with(Verdict::Pass).count(), tools.len()));
    }
    row
}

/// What the gates make of a planted fault (gate S1): it must fail one of them, and the correct model none.
pub fn planted(found: &Caught) -> Row {
    let gates: Vec<String> = found.gates_that_failed.iter().map(GateId::to_string).collect();
    let by = if gates.is_empty() { "no gate fails".to_string() } else { format!("failed by {}", gates.join(" ")) };
    Row::new("self-test", On::Named(fault_name(found).to_string()), Source::SelfTest)
        .figure(Metric::Cases, found.cases)
        .figure(Metric::CasesFailed, found.cases_failed)
        .verdict(&GateResult::judge(GateId::S1, found.as_it_should(), by.clone()))
        .note(by)
}

/// What happens without one synchronisation site of a family (gate S1): a gate fails, or the stage lists it as redundant.
pub fn site(site: &SiteResult) -> Row {
    let found = match &site.finding {
        Finding::Caught { gate, what, .. } => format!("killed by {gate}: {what}"),
        Finding::Survived { cases } => match &site.listed {
            Some(reason) => format!("survives {cases} cases; listed as redundant: {reason}"),
            None => format!("survives {cases} cases"),
        },
    };
    let remedy = site.remedy();
    let result = GateResult::judge(GateId::S1, remedy.is_none(), remedy.unwrap_or_default());
    Row::new(
        Subject::variant(&site.stage, &site.family),
        On::Named(format!("{} {}", site.operation, site.place)),
        Source::SelfTest,
    )
    .verdict(&result)
    .note(found)
}

/// A part of the self-test that could not be tried.
pub fn not_tested(what: &str, why: &str) -> Row {
    Row::new("self-test", On::Named(what.to_string()), Source::SelfTest).verdict(&GateResult::no_data(GateId::S1, why))
}

/// A list of redundant synchronisation that does not fit the kernel.
pub fn wrong_list(error: &str) -> Row {
    let row = Row::new("self-test", On::Named(error.to_string()), Source::SelfTest);
    row.verdict(&GateResult::judge(GateId::S1, false, error))
}

/// A planted fault, or the correct model that stands beside them.
pub fn fault_name(subject: &Caught) -> &'static str {
    subject.fault.map_or("correct model", Fault::name)
}
