//! The record that a run writes to: a new one, or an existing one that it resumes or adds to (`compare run --into`).

use super::builds::{StageBuild, metas};
use super::machine::{self, Timestamp};
use super::plan::{Plan, PlannedCase};
use super::rows;
use crate::record::meta::{GateScope, Joined, Machine, Measurable, Progress, Scope};
use crate::record::store::SCHEMA;
use crate::record::{Meta, Record, Row};
use std::collections::{HashMap, HashSet};

/// A new record for `plan`, with what was built and nothing measured yet.
pub fn begin(
    started: &Timestamp,
    plan: &Plan,
    builds: &[StageBuild],
    machine: Machine,
    gates: Vec<GateScope>,
    source_lines: bool,
) -> Record {
    let mut record = Record::new(Meta {
        schema: SCHEMA,
        started: started.iso(),
        progress: Progress::Partial {
            finished: 0,
            planned: plan.cases.len(),
        },
        tool_version: env!("CARGO_PKG_VERSION").to_string(),
        command: machine::command_line(),
        git: machine::git(),
        machine,
        tier: plan.tier,
        backend: plan.backend,
        scope: plan.scope.clone(),
        device: None,
        toggles: machine::toggles(),
        source_lines,
        gates,
        tools: Default::default(),
        methods: Default::default(),
        left_out: vec![],
        peers: None,
        rows: 0,
        shapes: Default::default(),
        stages: metas(builds),
        joined: vec![],
        negative: None,
    });
    record.extend(builds.iter().flat_map(rows::built));
    record
}

/// The planned cases that the record lacks or has checked less thoroughly. The latter are dropped from it, to be replaced.
pub fn missing<'p>(record: &mut Record, planned: &'p [PlannedCase]) -> Vec<&'p PlannedCase> {
    let known: HashMap<_, _> = (record.all_cases())
        .map(|row| ((&row.subject, &row.on), row))
        .collect();
    let has = |case: &&PlannedCase| {
        known
            .get(&(&case.subject, &case.on()))
            .is_some_and(|row| row.verdicts.is_empty() || case.mode.is_covered(row))
    };
    let missing: Vec<&PlannedCase> = planned.iter().filter(|case| !has(case)).collect();
    if missing.len() < planned.len() {
        let again: HashSet<_> = missing
            .iter()
            .map(|case| (case.subject.clone(), case.on()))
            .collect();
        let stays = |row: &Row| !again.contains(&(row.subject.clone(), row.on.clone()));
        record.rows.retain(stays);
        record.cases.retain(stays);
    }
    missing
}

/// Why a record cannot be added to. Nothing was run.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct JoinError(String);

/// The record `before`, ready for the run of `now` to add to it. Refused unless both are of the same build and machine, since
/// their figures could not be compared otherwise.
pub fn join(before: Record, now: Record) -> Result<Record, JoinError> {
    let (mut joined, now) = (before, now.meta);
    let differ = differences(&joined.meta, &now);
    if !differ.is_empty() {
        return Err(JoinError(format!(
            "the record is of {}; run without --into, and compare the records with `compare diff`",
            differ.join(" and ")
        )));
    }
    let was_interrupted = match joined.meta.progress {
        Progress::Partial { .. } => true,
        Progress::Complete { cases, .. } if joined.all_cases().count() < cases => {
            return Err(JoinError(
                "committed records keep no passing cases, so that what is missing cannot be told; add to the record that its run \
                 left below target/"
                    .to_string(),
            ));
        }
        Progress::Complete { .. } => false,
    };
    let meta = &joined.meta;
    let (command, tier, scope) = match meta.joined.last() {
        Some(last) => (&last.command, last.tier, &last.scope),
        None => (&meta.command, meta.tier, &meta.scope),
    };
    // Only its own flags say what an interrupted run still lacks.
    if was_interrupted && (tier, scope) != (now.tier, &now.scope) {
        return Err(JoinError(format!(
            "the run was interrupted; finish it first, with its own flags: {} --into DIR",
            command.join(" ")
        )));
    }
    if !was_interrupted {
        cover(&mut joined.meta, &now);
    }
    joined.meta.joined.push(Joined {
        started: now.started,
        command: now.command,
        git: now.git,
        tier: now.tier,
        scope: now.scope,
    });
    Ok(joined)
}

/// What must be the same and is not.
fn differences(before: &Meta, now: &Meta) -> Vec<String> {
    let changed = (now.stages.iter()).filter(|stage| !before.stages.contains(stage));
    let changed: Vec<&str> = changed.map(|stage| stage.id.as_str()).collect();
    let kernels = (!changed.is_empty()).then(|| format!("other kernels ({})", changed.join(", ")));
    let is_same_build = before.tool_version == now.tool_version
        && before.toggles == now.toggles
        && before.source_lines == now.source_lines
        && before.stages.len() == now.stages.len();
    let others = [
        ("another build", is_same_build),
        (
            "another GPU or driver",
            before.machine.gpu == now.machine.gpu,
        ),
        (
            "another machine",
            before.machine.platform == now.machine.platform,
        ),
        ("another backend", before.backend == now.backend),
        ("another --device", before.device == now.device),
    ];
    let differ = others.iter().filter(|(_, is_same)| !is_same);
    kernels
        .into_iter()
        .chain(differ.map(|(what, _)| what.to_string()))
        .collect()
}

/// Combines the scopes of two runs: the whole of the highest tier that either covered whole, else both selections.
fn cover(meta: &mut Meta, now: &Meta) {
    let higher = meta.tier.max(now.tier);
    (meta.tier, meta.scope) = match (&meta.scope, &now.scope) {
        (Scope::Whole, Scope::Whole) => (higher, Scope::Whole),
        (Scope::Whole, _) => (meta.tier, Scope::Whole),
        (_, Scope::Whole) => (now.tier, Scope::Whole),
        (Scope::Selected { flags }, Scope::Selected { flags: more }) => {
            let mut flags = flags.clone();
            if flags != *more {
                flags.push(Scope::AND.to_string());
                flags.extend_from_slice(more);
            }
            (higher, Scope::Selected { flags })
        }
    };
    for gate in &mut meta.gates {
        let is_measured =
            |scope: &GateScope| scope.gate == gate.gate && scope.measurable == Measurable::Yes;
        if now.gates.iter().any(is_measured) {
            gate.measurable = Measurable::Yes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::meta::Gpu;
    use crate::testing::{emulated, timed};

    fn begun() -> Record {
        let progress = Progress::Complete {
            cases: 0,
            seconds: 0,
        };
        emulated()
            .without(|_| true)
            .changed(|meta| meta.progress = progress)
    }

    fn refused(before: Record, now: Record) -> String {
        join(before, now).unwrap_err().to_string()
    }

    #[test]
    fn another_build_gpu_or_backend_is_refused_by_name() {
        let changed = begun().changed(|meta| meta.stages[1].identity = "another".into());
        let said = refused(changed, begun());
        assert!(
            said.starts_with("the record is of other kernels (stage1-cpasync); run without --into"),
            "{said}"
        );
        let said = refused(timed(crate::testing::US), begun());
        assert!(
            said.contains("another GPU or driver") && said.contains("another backend"),
            "{said}"
        );
        let driver = |record: Record| {
            record.changed(|meta| match &mut meta.machine.gpu {
                Gpu::Present { driver, .. } => *driver = "1.2".into(),
                Gpu::Absent { .. } => unreachable!(),
            })
        };
        let gpu = || timed(crate::testing::US);
        assert!(refused(gpu(), driver(gpu())).contains("is of another GPU or driver;"));
    }

    #[test]
    fn an_interrupted_run_goes_on_with_its_own_flags_alone() {
        let partial = |record: Record| {
            record.changed(|meta| {
                meta.progress = Progress::Partial {
                    finished: 1,
                    planned: 2,
                }
            })
        };
        let other = begun().changed(|meta| {
            meta.scope = Scope::Selected {
                flags: vec!["--stages 0".into()],
            }
        });
        let said = refused(partial(begun()), other);
        assert!(
            said.contains("the run was interrupted; finish it first, with its own flags: "),
            "{said}"
        );
        assert!(join(partial(begun()), begun()).is_ok());
        // The same of a run that was adding to a record.
        let selected = |stage: &str| {
            let flags = vec![format!("--stages {stage}")];
            begun().changed(|meta| meta.scope = Scope::Selected { flags })
        };
        let joined = join(begun(), selected("0")).unwrap();
        let again = join(partial(joined.clone()), selected("0")).unwrap();
        assert_eq!(
            (again.meta.joined.len(), again.meta.scope),
            (2, joined.meta.scope.clone())
        );
        assert!(refused(partial(joined), selected("1")).contains("finish it first"));
    }

    #[test]
    fn a_record_without_its_passing_cases_is_refused() {
        let mut committed = emulated();
        committed.cases.clear();
        let on = crate::record::On::Case(
            crate::record::Place::claims(common::problem::Dtype::F16),
            "normal:0".into(),
        );
        committed.rows.push(crate::record::Row::new(
            crate::testing::SCALAR,
            on,
            crate::record::Source::Emulator,
        ));
        assert!(refused(committed, begun()).contains("committed records keep no passing cases"));
    }

    #[test]
    fn what_two_runs_cover_is_said_of_the_record() {
        let selected = |flag: &str| Scope::Selected {
            flags: vec![flag.to_string()],
        };
        let covered = |first: Scope, second: Scope| {
            let mut meta = begun().changed(|meta| meta.scope = first).meta;
            let now = begun().changed(|meta| meta.scope = second).meta;
            cover(&mut meta, &now);
            meta.scope
        };
        assert_eq!(covered(Scope::Whole, selected("--stages 1")), Scope::Whole);
        assert_eq!(covered(selected("--stages 1"), Scope::Whole), Scope::Whole);
        assert_eq!(
            covered(selected("--stages 1"), selected("--stages 1")),
            selected("--stages 1")
        );
        let flags = ["--stages 0", "and", "--stages 1"]
            .map(String::from)
            .to_vec();
        assert_eq!(
            covered(selected("--stages 0"), selected("--stages 1")),
            Scope::Selected { flags }
        );
    }
}
