//! What is common to all rows of a run.

use super::plan::{Mode, Plan};
use common::device::BackendKind;
use common::stage::LoadedStage;
use common::verdict::GateId;
use results::builds::device_compiler;
use results::table::session::{DeviceCompiler, Git, Machine, Progress};
use results::table::{Row, Run, Session, StageMeta};
use std::collections::BTreeMap;

/// The facts about a run that are known before anything is measured.
pub struct Start<'a> {
    /// The name of its folder.
    pub name: &'a str,
    /// The sources that the program was built of.
    pub git: Git,
    pub plan: &'a Plan,
    pub stages: &'a [LoadedStage],
    pub builds: &'a [StageMeta],
    pub machine: Machine,
}

/// Makes a new run, with what was built and nothing measured yet.
pub fn begin(start: Start<'_>) -> Run {
    let Start {
        name,
        git,
        plan,
        stages,
        builds,
        machine,
    } = start;
    let first = &stages.first().expect("the ladder has a stage").report;
    let mut compilers = stages
        .iter()
        .map(|stage| device_compiler(&stage.report.gpu));
    let not_compiled = compilers.find_map(|compiler| match compiler {
        DeviceCompiler::Absent { reason } => Some(reason),
        DeviceCompiler::Built { .. } => None,
    });
    let mut run = Run::new(Session {
        name: name.to_string(),
        progress: Progress::Partial {
            finished: 0,
            planned: plan.cases.len(),
        },
        git,
        machine,
        tier: plan.tier,
        backend: plan.backend,
        scope: plan.scope.clone(),
        host_compiler: first.compiler.description.clone(),
        device_compiler: device_compiler(&first.gpu),
        device: None,
        source_lines: stages.iter().all(LoadedStage::has_source_lines),
        unmeasurable: unmeasurable(builds, plan, not_compiled.as_deref()),
        tools: Default::default(),
        rows: 0,
        stages: builds.to_vec(),
        input: None,
    });
    run.extend(builds.iter().flat_map(Row::built));
    run
}

/// A condition without which a gate cannot be measured.
struct Need {
    gate: GateId,
    is_met: bool,
    /// The reason if it is not met.
    reason: String,
}

impl Need {
    fn new(gate: GateId, is_met: bool, reason: &str) -> Self {
        Self {
            gate,
            is_met,
            reason: reason.to_string(),
        }
    }
}

/// Returns the gates that this machine, backend and tier cannot measure, each with its first
/// reason.
fn unmeasurable(
    builds: &[StageMeta],
    plan: &Plan,
    not_compiled: Option<&str>,
) -> BTreeMap<GateId, String> {
    let mut unmeasurable = BTreeMap::new();
    let sanitized = Need::new(
        GateId::C7,
        false,
        "compute-sanitizer has not run; `compare sanitize` on a GPU completes this run",
    );
    let needs_code = |gate| {
        let reason = not_compiled.unwrap_or_default();
        Need::new(gate, not_compiled.is_none(), reason)
    };
    let needs = [sanitized, needs_code(GateId::R1), needs_code(GateId::B2)]
        .into_iter()
        .chain(needs_of_backends(plan))
        .chain(needs_of_stages(builds, plan));
    for need in needs.filter(|need| !need.is_met) {
        unmeasurable.entry(need.gate).or_insert(need.reason);
    }
    unmeasurable
}

/// Returns the needs that the backend and the cases decide.
fn needs_of_backends(plan: &Plan) -> [Need; 6] {
    let has = |modes: &[Mode]| plan.cases.iter().any(|case| modes.contains(&case.mode));
    [
        Need::new(
            GateId::B1,
            plan.backend != BackendKind::Emulated,
            "only one backend ran; a run on a GPU compares its outputs with the emulator's",
        ),
        Need::new(
            GateId::B1,
            has(&[Mode::Both]),
            "no case of this run ran on both backends; the cases of a tier do",
        ),
        Need::new(
            GateId::B2,
            plan.cases.iter().any(|case| case.runs_ptx),
            "PTX is interpreted beside a small case in the emulator; a run of a tier with \
             --backend emulated has one of each variant",
        ),
        Need::new(
            GateId::H1,
            plan.backend != BackendKind::Cuda,
            "hazards are found by the emulator; run with --backend emulated",
        ),
        Need::new(
            GateId::H1,
            has(&[Mode::Traced, Mode::TracedOnce]),
            "no problem is small enough to be traced",
        ),
        Need::new(
            GateId::L1,
            !plan.timings.is_empty(),
            "latency is measured only on a GPU, and not with --iters 0",
        ),
    ]
}

/// Returns the needs that the stages of the run decide.
fn needs_of_stages(builds: &[StageMeta], plan: &Plan) -> [Need; 3] {
    let mut writes_lse = false;
    let mut has_evidence = false;
    for stage in builds.iter().filter(|stage| plan.has_stage(&stage.id)) {
        has_evidence |= stage.claims.iter().any(|claim| !claim.is_of_speed());
        for variant in &stage.variants {
            writes_lse |= variant.kernels.iter().any(|kernel| kernel.facts.lse);
        }
    }
    [
        Need::new(
            GateId::C8,
            writes_lse,
            "no kernel of this run writes log-sum-exps",
        ),
        Need::new(
            GateId::E1,
            has_evidence,
            "no stage of this run states evidence claims",
        ),
        Need::new(
            GateId::E1,
            !plan.counted.is_empty(),
            "evidence claims are about mission with the full mask, which this run does not have",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::plan;
    use crate::testing::request;
    use results::testing::ladder;

    /// Returns the reason why hazards are not found in a run on one shape.
    fn reason_without_hazards(shape: &str, backend: BackendKind) -> Option<String> {
        let plan = plan(&ladder(), &request().shapes([shape]), backend).unwrap();
        unmeasurable(&ladder(), &plan, None).remove(&GateId::H1)
    }

    #[test]
    fn hazards_are_found_by_the_emulator_where_a_traced_problem_is_in_the_plan() {
        let reason = reason_without_hazards("1x1x17x64", BackendKind::Emulated);
        assert_eq!(reason, None);
    }

    #[test]
    fn hazards_are_not_found_on_large_problems() {
        let reason = reason_without_hazards("mission", BackendKind::Emulated).unwrap();
        assert!(reason.contains("no problem is small enough"), "{reason}");
    }

    #[test]
    fn hazards_are_not_found_on_a_gpu() {
        let reason = reason_without_hazards("1x1x17x64", BackendKind::Cuda).unwrap();
        assert!(reason.contains("run with --backend emulated"), "{reason}");
    }
}
