//! `compare run --into`: a record that is added to, by the run that was interrupted or by a later one.

use super::measured::Measured;
use crate::record::meta::{Joined, Measurable, Progress, Scope, Tier};
use crate::record::{Meta, Record};

/// Why a record cannot be added to. Nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum JoinError {
    /// Figures of the two beside each other would say nothing.
    #[error("{name} is of {}; run without --into, and compare the records with `compare diff`", differ.join(" and "))]
    Other {
        name: String,
        /// `another build (stage5-swizzle)`; at least one.
        differ: Vec<String>,
    },
    /// Other flags than its own do not say what it still lacks.
    #[error(
        "{name} did not come to its end; finish it first, with its own flags: {command} --into DIR"
    )]
    Unfinished {
        name: String,
        /// The command that began it.
        command: String,
    },
    /// What it has cannot be told from what it lacks.
    #[error(
        "{name} has no passing cases in it, as committed records have none; add to the one that its run left below target/"
    )]
    Committed { name: String },
}

/// What `now` sets out to add to `before`, called `name`: refused where the two are not of one build and one machine.
pub fn join(name: &str, before: Record, now: Measured) -> Result<Measured, JoinError> {
    let name = name.to_string();
    let differ = differences(&before.meta, &now.record.meta);
    if !differ.is_empty() {
        return Err(JoinError::Other { name, differ });
    }
    let was_interrupted = matches!(before.meta.progress, Progress::Partial { .. });
    if was_interrupted
        && last_request(&before.meta) != (now.record.meta.tier, &now.record.meta.scope)
    {
        let last = before
            .meta
            .joined
            .last()
            .map_or(&before.meta.command, |joined| &joined.command);
        return Err(JoinError::Unfinished {
            name,
            command: last.join(" "),
        });
    }
    let mut joined = Measured::new(before);
    if matches!(joined.record.meta.progress, Progress::Complete { cases, .. } if joined.finished() < cases)
    {
        return Err(JoinError::Committed { name });
    }
    let now = now.record.meta;
    match was_interrupted {
        true => joined.record.meta.joined.push(added(now)),
        false => add(&mut joined.record.meta, now),
    }
    Ok(joined)
}

fn added(now: Meta) -> Joined {
    let Meta {
        started,
        command,
        git,
        tier,
        scope,
        ..
    } = now;
    Joined {
        started,
        command,
        git,
        tier,
        scope,
    }
}

/// What the last run set out to do.
fn last_request(meta: &Meta) -> (Tier, &Scope) {
    meta.joined
        .last()
        .map_or((meta.tier, &meta.scope), |joined| {
            (joined.tier, &joined.scope)
        })
}

/// What must be equal and is not.
fn differences(before: &Meta, now: &Meta) -> Vec<String> {
    let changed = now
        .stages
        .iter()
        .filter(|stage| before.stages.iter().all(|other| other != *stage));
    let stages: Vec<&str> = changed.map(|stage| stage.id.as_str()).collect();
    let is_same_build = (
        &before.tool_version,
        &before.toggles,
        before.source_lines,
        before.stages.len(),
    ) == (
        &now.tool_version,
        &now.toggles,
        now.source_lines,
        now.stages.len(),
    );
    let same = [
        ("another build".to_string(), is_same_build),
        (
            format!("other kernels ({})", stages.join(", ")),
            stages.is_empty(),
        ),
        (
            "another GPU or driver".to_string(),
            before.machine.gpu == now.machine.gpu,
        ),
        (
            "another machine".to_string(),
            before.machine.platform == now.machine.platform,
        ),
        ("another backend".to_string(), before.backend == now.backend),
        ("another --device".to_string(), before.device == now.device),
    ];
    same.into_iter()
        .filter(|(_, is_same)| !is_same)
        .map(|(what, _)| what)
        .collect()
}

/// What the two runs covered together: the whole of the higher tier that one of them covered whole, else what either
/// selected.
fn add(meta: &mut Meta, now: Meta) {
    let whole = |scope: &Scope| *scope == Scope::Whole;
    (meta.tier, meta.scope) = match (whole(&meta.scope), whole(&now.scope)) {
        (true, true) => (meta.tier.max(now.tier), Scope::Whole),
        (true, false) => (meta.tier, Scope::Whole),
        (false, true) => (now.tier, Scope::Whole),
        (false, false) => {
            let flags = |scope: &Scope| match scope {
                Scope::Whole => vec![],
                Scope::Selected { flags } => flags.clone(),
            };
            let (mut all, more) = (flags(&meta.scope), flags(&now.scope));
            if all != more {
                all.push(Scope::AND.to_string());
                all.extend(more);
            }
            (meta.tier.max(now.tier), Scope::Selected { flags: all })
        }
    };
    for gate in &mut meta.gates {
        let is_measured = |scope: &&crate::record::meta::GateScope| {
            scope.gate == gate.gate && scope.measurable == Measurable::Yes
        };
        if now.gates.iter().any(|scope| is_measured(&scope)) {
            gate.measurable = Measurable::Yes;
        }
    }
    meta.joined.push(added(now));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::meta::{Git, Gpu};
    use crate::testing::{emulated, timed};

    fn begun() -> Measured {
        let progress = Progress::Complete {
            cases: 0,
            seconds: 0,
        };
        Measured::new(
            emulated()
                .without(|_| true)
                .changed(|meta| meta.progress = progress),
        )
    }

    fn refused(before: Record, now: Measured) -> String {
        join("a", before, now)
            .err()
            .expect("it is refused")
            .to_string()
    }

    #[test]
    fn another_build_gpu_or_backend_is_refused_by_name() {
        let changed = begun()
            .record
            .changed(|meta| meta.stages[1].identity = "another".into());
        let said = refused(changed, begun());
        assert!(
            said.starts_with("a is of other kernels (stage1-cpasync); run without --into"),
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
        assert!(
            refused(gpu(), Measured::new(driver(gpu()))).contains("is of another GPU or driver;")
        );
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
        let other = begun().record.changed(|meta| {
            meta.scope = Scope::Selected {
                flags: vec!["--stages 0".into()],
            }
        });
        let said = refused(partial(begun().record), Measured::new(other));
        assert!(
            said.contains("did not come to its end; finish it first, with its own flags: "),
            "{said}"
        );
        assert!(join("a", partial(begun().record), begun()).is_ok());
        // The same of a run that was adding to a record.
        let selected = |stage: &str| {
            let flags = vec![format!("--stages {stage}")];
            Measured::new(
                begun()
                    .record
                    .changed(|meta| meta.scope = Scope::Selected { flags }),
            )
        };
        let joined = join("a", begun().record, selected("0")).unwrap();
        let again = join("a", partial(joined.record.clone()), selected("0")).unwrap();
        assert_eq!(
            (again.record.meta.joined.len(), again.record.meta.scope),
            (2, joined.record.meta.scope.clone())
        );
        assert!(refused(partial(joined.record), selected("1")).contains("finish it first"));
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
        assert!(refused(committed, begun()).contains("as committed records have none"));
    }

    #[test]
    fn what_two_runs_cover_is_said_of_the_record() {
        let selected = |flag: &str| Scope::Selected {
            flags: vec![flag.to_string()],
        };
        let covered = |first: Scope, second: Scope| {
            let mut meta = begun().record.changed(|meta| meta.scope = first).meta;
            let mut now = begun().record.changed(|meta| meta.scope = second).meta;
            now.git = Git::Unknown {
                reason: "no git".into(),
            };
            add(&mut meta, now);
            assert_eq!(meta.joined.len(), 1);
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
