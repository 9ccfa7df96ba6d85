//! Rows made of measurements: a constructor for each kind that is measured.

use super::kind::{CORRECT_MODEL, Instance, Kind, ProblemPlace};
use super::ncu::{self, Chips};
use super::row::{Judged, Row};
use super::session::{BuiltKernel, KernelBuild, StageMeta};
use super::subject::Subject;
use common::check::{NoOutput, Outcome};
use common::evidence::{CountedLaunch, NotCounted};
use common::faults::{Caught, Fault};
use common::gate::Errors;
use common::metric::Metric;
use common::problem::Dtype;
use common::resources::{self, KernelFacts};
use common::suppression::{Broken, Finding, SiteResult, Suppressed};
use common::telemetry::Reading;
use common::timing::stats::Summary;
use common::timing::sustained::Load;
use common::timing::{Comparison, Measurement, SpeedOfLight};
use common::verdict::{GateId, GateResult, Verdict};
use std::collections::BTreeMap;

/// The number of digits of a hash of machine code that a row keeps.
const CODE_DIGITS: usize = 16;

/// The beginning of R1's reason where two variants compile to the same code.
pub const SAME_CODE: &str = "the same machine code as";

/// The subject of self-test rows that are about no kernel.
const HARNESS: &str = "self-test";

/// Constructors for the results of the compiler.
impl Row {
    /// Returns what kernel.cu declares of a stage's instances, and what ptxas reports of each for
    /// each architecture (gate R1).
    pub fn built(stage: &StageMeta) -> Vec<Self> {
        let mut rows = Vec::new();
        for variant in &stage.variants {
            let subject = stage.subject(&variant.name);
            for KernelBuild { facts, built } in &variant.kernels {
                rows.push(Self::declared(subject.clone(), facts));
                for kernel in built {
                    rows.push(Self::compiled(subject.clone(), facts, kernel));
                }
            }
        }
        fail_shared_code(&mut rows);
        rows
    }

    fn declared(subject: Subject, facts: &KernelFacts) -> Self {
        let row = Self::new(subject, Kind::Declared(facts.into()))
            .figure(Metric::TileM, facts.block_m)
            .figure(Metric::TileN, facts.block_n)
            .figure(Metric::Threads, facts.threads)
            .figure(Metric::MinBlocks, facts.min_blocks)
            .figure(Metric::DynamicSharedBytes, facts.dynamic_shared_bytes);
        match &facts.caps {
            Some(caps) => row
                .figure(Metric::RegisterCap, caps.register_cap)
                .figure(Metric::SharedCapBytes, caps.shared_cap_bytes),
            None => row,
        }
    }

    fn compiled(subject: Subject, facts: &KernelFacts, kernel: &BuiltKernel) -> Self {
        let BuiltKernel { ptxas, code } = kernel;
        let resources = &ptxas.resources;
        let spilled = resources.spill_store_bytes + resources.spill_load_bytes;
        let kind = Kind::Compiled {
            instance: facts.into(),
            arch: ptxas.arch.clone(),
        };
        let mut row = Self::new(subject, kind)
            .figure(Metric::Registers, resources.registers)
            .figure(Metric::SpillBytes, spilled)
            .figure(Metric::StackBytes, resources.stack_frame_bytes)
            .figure(Metric::StaticSharedBytes, resources.static_shared_bytes)
            .with_figures(code.iter().copied())
            .verdict(&resources::judge(facts, ptxas));
        row.code = Some(ptxas.sass_sha256.chars().take(CODE_DIGITS).collect());
        match resources::occupancy_of(facts, ptxas) {
            Some(occupancy) => row.figure(Metric::Occupancy, occupancy),
            None => row,
        }
    }
}

impl From<&KernelFacts> for Instance {
    fn from(facts: &KernelFacts) -> Self {
        Self {
            dtype: facts.dtype,
            head_dim: facts.head_dim,
        }
    }
}

/// Fails two variants that compile to the same code, which are one (gate R1): each names the other.
fn fail_shared_code(rows: &mut [Row]) {
    let sharing: Vec<Vec<String>> = rows.iter().map(|row| sharing_code(row, rows)).collect();
    for (row, names) in rows.iter_mut().zip(sharing) {
        if !names.is_empty() {
            let reason = format!(
                "{SAME_CODE} {}: what tells them apart does nothing",
                names.join(", ")
            );
            row.judge(GateId::R1, Judged::new(Verdict::Fail, reason));
        }
    }
}

/// Returns the other variants that have the machine code of a row.
fn sharing_code(row: &Row, rows: &[Row]) -> Vec<String> {
    if row.code.is_none() {
        return Vec::new();
    }
    rows.iter()
        .filter(|other| (&other.code, &other.kind) == (&row.code, &row.kind))
        .filter(|other| other.subject != row.subject)
        .map(|other| other.subject.name().to_string())
        .collect()
}

/// Constructors for the results of gates and timers.
impl Row {
    /// Adds the outcome of a case. A case without verdicts is unsupported.
    pub fn outcome(self, outcome: &Outcome) -> Self {
        match outcome {
            Ok(checked) => self.judged(&checked.errors, &checked.gates),
            Err(why @ (NoOutput::Unsupported(_) | NoOutput::NoMemory(_))) => {
                self.note(why.to_string())
            }
            Err(NoOutput::Failed { reason, .. }) => self.verdict(&not_launched(reason)),
        }
    }

    /// Adds the largest errors of an output, also as shares of the bounds of C2 and C3, and its
    /// verdicts.
    pub fn judged(self, errors: &Errors, gates: &[GateResult]) -> Self {
        let of_bound = errors.max_abs / errors.c2_bound();
        let row_of_bound = errors.max_row_rel / errors.c3_bound();
        self.figure(Metric::MaxError, errors.max_abs)
            .figure(Metric::MaxRowError, errors.max_row_rel)
            .figure(Metric::ErrorOfBound, of_bound)
            .figure(Metric::RowErrorOfBound, row_of_bound)
            .with_verdicts(gates)
    }

    /// Adds device times, and the gates that fail on the timed buffers (`after`).
    pub fn timed(self, device: &Summary, after: &[GateResult]) -> Self {
        self.figure(Metric::P50, device)
            .figure(Metric::P90, device.p90)
            .figure(Metric::Mean, device.mean)
            .figure(Metric::Std, device.std)
            .figure(Metric::Samples, device.samples)
            .with_verdicts(failed(after))
    }

    /// Returns the time of a variant alone on a GPU.
    pub fn latency(
        subject: Subject,
        problem: ProblemPlace,
        measurement: &Measurement,
        after: &[GateResult],
    ) -> Self {
        let mut row = Self::new(subject, Kind::Latency(problem))
            .timed(&measurement.device, after)
            .conditions(measurement.rotation.state.name())
            .figure(Metric::SingleP50, measurement.single.p50);
        if let Some(sustained) = &measurement.sustained {
            return row.sustained_by(&sustained.load);
        }
        let [first, last] = &measurement.conditions;
        if let (Some(first_mhz), Some(last_mhz)) = (clock(first), clock(last)) {
            row = row.figure(Metric::SmMhz, (first_mhz + last_mhz) / 2.0);
        }
        row.read(Metric::PowerW, last.power_w)
            .read(Metric::PowerLimitW, last.power_limit_w)
            .read(Metric::Celsius, last.celsius.map(f64::from))
    }

    /// Adds a figure that a device may not report.
    fn read(self, metric: Metric, value: Option<f64>) -> Self {
        match value {
            Some(reading) => self.figure(metric, reading),
            None => self,
        }
    }

    /// Adds the sustained regime to a row whose times are of it, and what was read meanwhile.
    pub fn sustained_by(self, load: &Load) -> Self {
        self.sustained()
            .read(Metric::SmMhz, load.sm_mhz)
            .read(Metric::PowerW, load.power_w)
            .read(Metric::PowerLimitW, load.power_limit_w)
            .read(Metric::EnergyMj, load.energy_mj)
            .read(Metric::Celsius, load.celsius.map(f64::from))
    }

    /// Returns the times of two variants that were interleaved (A B B A) on a GPU.
    pub fn pair(
        new: Subject,
        base: Subject,
        problem: ProblemPlace,
        comparison: &Comparison,
        speed_of_light: &SpeedOfLight,
    ) -> Self {
        Self::new(new, Kind::Pair { problem, base }).compared(comparison, speed_of_light)
    }

    /// Returns the time of one of ours or a candidate over that of a peer, which were interleaved.
    pub fn peer_pair(
        ours: Subject,
        peer: Subject,
        problem: ProblemPlace,
        comparison: &Comparison,
        speed_of_light: &SpeedOfLight,
    ) -> Self {
        let kind = Kind::PeerPair {
            problem,
            base: peer,
        };
        Self::new(ours, kind).compared(comparison, speed_of_light)
    }

    /// Adds the ratios of two arms, and the speed of light of their problem: a time below it fails
    /// gate L1.
    fn compared(self, comparison: &Comparison, speed_of_light: &SpeedOfLight) -> Self {
        let least = comparison.new.min.min(comparison.base.min);
        self.figure(Metric::SpeedupP50, comparison.ratios.p50)
            .figure(Metric::SpeedupP90, comparison.ratios.p90)
            .figure(Metric::SpeedupMean, comparison.ratios.mean)
            .figure(Metric::P50, comparison.new.p50)
            .figure(Metric::Min, least)
            .figure(Metric::Noise, comparison.noise())
            .figure(Metric::FloorUs, speed_of_light.us())
            .with_verdicts(&speed_of_light.impossible(least))
    }

    /// Returns a peer that was not timed: on a problem, or on none because it is not installed.
    pub fn absent_peer(
        peer: &str,
        problem: Option<ProblemPlace>,
        reason: impl Into<String>,
    ) -> Self {
        let kind = problem.map_or(Kind::PeerSession, Kind::PeerTime);
        Self::new(peer, kind).note(reason)
    }
}

/// Returns the verdict of C1 on a launch that failed or never ended.
pub fn not_launched(reason: &str) -> GateResult {
    GateResult::fail(GateId::C1, format!("the launch failed: {reason}"))
}

/// Returns the results that fail.
pub fn failed(results: &[GateResult]) -> impl Iterator<Item = &GateResult> {
    results
        .iter()
        .filter(|result| result.verdict == Verdict::Fail)
}

/// Returns the SM clock of a reading in MHz, if it was read.
fn clock(reading: &Reading) -> Option<f64> {
    reading.sm_mhz.filter(|&mhz| mhz > 0).map(f64::from)
}

/// The findings of one of compute-sanitizer's tools on a variant.
pub struct ToolFindings {
    pub tool: &'static str,
    /// The number of launches that ended.
    pub launched: usize,
    pub result: GateResult,
}

/// Constructors for the results of other instruments.
impl Row {
    /// Returns what the emulator counts on the claims' problem.
    pub fn counters(
        subject: Subject,
        dtype: Dtype,
        counted: &Result<CountedLaunch, NotCounted>,
    ) -> Self {
        let row = Self::new(subject, Kind::Counters(ProblemPlace::claims(dtype)));
        let launch = match counted {
            Ok(launch) => launch,
            Err(NotCounted::Hazard(reason)) => {
                return row.verdict(&GateResult::fail(GateId::H1, reason));
            }
            Err(reason) => return row.note(reason.to_string()),
        };
        let metrics = Metric::all_counted().filter(|metric| !metric.is_share());
        let values = metrics.map(|metric| {
            let value = metric.counted(&launch.counters);
            (metric, value.unwrap_or(f64::NAN))
        });
        row.with_figures(values)
            .figure(Metric::TracedBlocks, launch.traced_blocks)
            .figure(Metric::LaunchBlocks, launch.launch_blocks)
            .figure(Metric::Tiles, launch.tiles)
    }

    /// Returns the figures of Nsight Compute.
    pub fn profile(
        subject: Subject,
        problem: ProblemPlace,
        chips: Chips,
        metrics: &BTreeMap<String, f64>,
    ) -> Self {
        let row = Self::new(subject, Kind::Profile(problem)).conditions("cold caches");
        let read = ncu::formulas(chips)
            .filter_map(|formula| Some((formula.metric, formula.value(metrics)?)));
        row.with_figures(read)
    }

    /// Returns what compute-sanitizer found on a variant: the worst of its tools.
    pub fn sanitized(subject: impl Into<Subject>, tools: &[ToolFindings]) -> Self {
        let launches: usize = tools.iter().map(|findings| findings.launched).sum();
        let row = Self::new(subject, Kind::Sanitized).figure(Metric::Cases, launches);
        for verdict in [Verdict::Fail, Verdict::NoData, Verdict::Pass] {
            if let Some(worst) = with_verdict(tools, verdict).next() {
                return row.judged_by_tool(worst, tools);
            }
        }
        row
    }

    /// Adds what the tool that found most found, as the verdict of all tools.
    fn judged_by_tool(mut self, worst: &ToolFindings, tools: &[ToolFindings]) -> Self {
        let mut judged = Judged::from(&worst.result);
        judged.passed = Some(with_verdict(tools, Verdict::Pass).count());
        judged.of = Some(tools.len());
        if !judged.reason.is_empty() {
            judged.reason = format!("{}: {}", worst.tool, judged.reason);
        }
        self.judge(GateId::C7, judged);
        self
    }
}

fn with_verdict(tools: &[ToolFindings], verdict: Verdict) -> impl Iterator<Item = &ToolFindings> {
    tools
        .iter()
        .filter(move |findings| findings.result.verdict == verdict)
}

/// Constructors for the results of the self-test (gate S1).
impl Row {
    /// Returns the rows of planted faults, of sites, of kernels that are wrong with all sites in
    /// place, and of wrong entries of the lists of redundant sites.
    pub fn self_test(faults: &[Caught], suppressed: &Suppressed) -> Vec<Self> {
        let mut rows: Vec<Self> = faults.iter().map(Self::fault).collect();
        rows.extend(suppressed.sites.iter().map(Self::site));
        rows.extend(suppressed.broken.iter().map(Self::broken_kernel));
        for error in &suppressed.errors {
            let row = Self::new(HARNESS, Kind::Fault(error.clone()));
            let failure = GateResult::fail(GateId::S1, error);
            rows.push(row.verdict(&failure));
        }
        rows
    }

    /// Returns the row of a planted fault, which must fail a gate, or of the correct model beside
    /// the faults, which must fail none.
    pub fn fault(caught: &Caught) -> Self {
        let gates = words(&caught.gates_that_failed, " ");
        let survived = words(&caught.survived, ", ");
        let finding = if gates.is_empty() {
            "no gate fails".to_string()
        } else if survived.is_empty() {
            format!("failed by {gates}")
        } else {
            format!("failed by {gates}, but not with {survived}")
        };
        let name = caught.fault.map_or(CORRECT_MODEL, Fault::name);
        let verdict = GateResult::judge(GateId::S1, caught.is_as_expected(), &finding);
        Self::new(HARNESS, Kind::Fault(name.to_string()))
            .verdict(&verdict)
            .figure(Metric::Cases, caught.cases)
            .figure(Metric::CasesFailed, caught.cases_failed)
            .note(finding)
    }

    /// Returns the row of a synchronisation site: without it a gate must fail, or the stage must
    /// list it as redundant.
    pub fn site(site: &SiteResult) -> Self {
        let subject = Subject::variant(&site.stage, &site.family);
        let kind = Kind::Site(format!("{} {}", site.operation, site.place));
        let remedy = site.remedy();
        let is_right = remedy.is_none();
        let verdict = GateResult::judge(GateId::S1, is_right, remedy.unwrap_or_default());
        let row = Self::new(subject, kind).verdict(&verdict);
        match &site.finding {
            // One failing case is enough and ends the search.
            Finding::Killed { gate, what, at } => row
                .figure(Metric::CasesFailed, 1_usize)
                .note(format!("killed by {gate}: {what} ({at})")),
            Finding::Survived { cases } => {
                let mut note = format!("survives {cases} cases");
                if let Some(reason) = &site.listed {
                    note += &format!("; listed as redundant: {reason}");
                }
                row.figure(Metric::Cases, *cases)
                    .figure(Metric::CasesFailed, 0_usize)
                    .note(note)
            }
        }
    }

    /// Returns the row of a kernel that fails a gate with all its synchronisation in place.
    fn broken_kernel(broken: &Broken) -> Self {
        let subject = Subject::variant(&broken.stage, &broken.variant);
        let gate = broken.result.gate;
        Self::new(subject, Kind::Site("as it is".to_string()))
            .verdict(&broken.result)
            .note(format!("fails {gate} with all synchronisation in place"))
    }

    /// Returns the row of a check of the timer.
    pub fn timer_check(name: &str, is_right: bool, expected: &str) -> Self {
        let reason = format!("expected {expected}");
        Self::new(HARNESS, Kind::timer(name)).verdict(&GateResult::judge(
            GateId::S1,
            is_right,
            reason,
        ))
    }

    /// Returns the row that stands for all checks of the timer, which were not made.
    pub fn untested_timer(reason: &str) -> Self {
        Self::new(HARNESS, Kind::whole_timer()).verdict(&GateResult::no_data(GateId::S1, reason))
    }
}

fn words<T: ToString>(items: &[T], separator: &str) -> String {
    let words: Vec<String> = items.iter().map(ToString::to_string).collect();
    words.join(separator)
}

#[cfg(test)]
mod tests;
