//! What is common to all rows of a run.

use super::builds::device_compiler;
use super::machine;
use super::plan::{Mode, Plan};
use crate::table::session::{DeviceCompiler, Machine, Progress};
use crate::table::{Row, Run, Session, StageMeta};
use common::device::BackendKind;
use common::stage::LoadedStage;
use common::verdict::GateId;
use std::collections::BTreeMap;

/// A new run for `plan`, with what was built and nothing measured yet.
pub fn begin(
    name: &str,
    plan: &Plan,
    stages: &[LoadedStage],
    builds: &[StageMeta],
    machine: Machine,
) -> Run {
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
        git: machine::git(),
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

/// Which gates this machine, backend and tier cannot measure, and why.
fn unmeasurable(
    builds: &[StageMeta],
    plan: &Plan,
    not_compiled: Option<&str>,
) -> BTreeMap<GateId, String> {
    let ran = || builds.iter().filter(|stage| plan.has_stage(&stage.id));
    let mut kernels = ran()
        .flat_map(|stage| &stage.variants)
        .flat_map(|variant| &variant.kernels);
    let writes_lse = kernels.any(|kernel| kernel.facts.lse);
    let has_evidence = ran().any(|stage| stage.claims.iter().any(|claim| !claim.is_of_speed()));
    let has = |modes: &[Mode]| plan.cases.iter().any(|case| modes.contains(&case.mode));
    // What a gate needs, and the reason if that is missing.
    let needs = [
        (
            GateId::C7,
            false,
            "compute-sanitizer has not run; `compare sanitize` on a GPU completes this run",
        ),
        (
            GateId::C8,
            writes_lse,
            "no kernel of this run writes log-sum-exps",
        ),
        (
            GateId::B1,
            plan.backend != BackendKind::Emulated,
            "only one backend ran; a run on a GPU compares its outputs with the emulator's",
        ),
        (
            GateId::B1,
            has(&[Mode::Both]),
            "no case of this run ran on both backends; the cases of a tier do",
        ),
        (
            GateId::H1,
            plan.backend != BackendKind::Cuda,
            "hazards are found by the emulator; run with --backend emulated",
        ),
        (
            GateId::H1,
            has(&[Mode::Traced, Mode::TracedOnce]),
            "no problem is small enough to be traced",
        ),
        (
            GateId::R1,
            not_compiled.is_none(),
            not_compiled.unwrap_or_default(),
        ),
        (
            GateId::L1,
            !plan.timings.is_empty(),
            "latency is measured only on a GPU, and not with --iters 0",
        ),
        (
            GateId::E1,
            has_evidence,
            "no stage of this run states evidence claims",
        ),
        (
            GateId::E1,
            !plan.counted.is_empty(),
            "evidence claims are about mission with the full mask, which this run does not have",
        ),
    ];
    // The first reason of each.
    let unmet = needs.into_iter().rev().filter(|(_, is_met, _)| !is_met);
    unmet
        .map(|(gate, _, reason)| (gate, reason.to_string()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::Cli;
    use crate::measure::plan::plan;
    use crate::testing::ladder;
    use clap::Parser;

    #[test]
    fn hazards_are_found_by_the_emulator_where_a_traced_problem_is_in_the_plan() {
        use BackendKind::{Cuda, Emulated};
        for (shape, backend, expected) in [
            ("1x1x17x64", Emulated, None),
            ("mission", Emulated, Some("no problem is small enough")),
            ("1x1x17x64", Cuda, Some("run with --backend emulated")),
        ] {
            let request = Cli::parse_from(["compare", "--shapes", shape]).run.request;
            let plan = plan(&ladder(), &request, backend).unwrap();
            let found = unmeasurable(&ladder(), &plan, None).remove(&GateId::H1);
            let reason = found.as_deref().unwrap_or_default();
            assert!(
                found.is_some() == expected.is_some() && reason.contains(expected.unwrap_or("")),
                "{shape} {backend:?}: {found:?}"
            );
        }
    }
}
