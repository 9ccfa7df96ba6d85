//! Changes to literal runs, one method each, which read as a sentence in the order in which they
//! are made.

use super::{VARIANTS, instance};
use crate::table::session::{DeviceCompiler, Git, Gpu, Progress, Tier};
use crate::table::{
    Figure, Judged, Kind, Negative, Relation, Row, Run, Session, Source, StageMeta, Subject,
};
use common::metric::Metric;
use common::verdict::{GateId, Verdict};

/// The reason of a verdict that has no other.
const REASON: &str = "too large";

/// Changes to single rows. They panic where the run has no such row.
impl Run {
    /// Changes the row of a subject.
    pub fn with_row_changed(
        mut self,
        subject: &str,
        kind: Kind,
        change: impl FnOnce(&mut Row),
    ) -> Self {
        change(self.row_mut(subject, kind));
        self
    }

    /// Sets what a gate says of a subject.
    pub fn with_gate(self, subject: &str, kind: Kind, gate: GateId, verdict: Verdict) -> Self {
        let reason = match verdict {
            Verdict::Pass => "",
            Verdict::Fail | Verdict::Ambiguous | Verdict::NoData => REASON,
        };
        self.with_row_changed(subject, kind, |row| {
            row.verdicts.insert(gate, Judged::new(verdict, reason));
        })
    }

    /// Lets a gate fail a subject for a reason.
    pub fn with_failure(self, subject: &str, kind: Kind, gate: GateId, reason: &str) -> Self {
        self.with_row_changed(subject, kind, |row| {
            row.verdicts
                .insert(gate, Judged::new(Verdict::Fail, reason));
        })
    }

    /// Takes a gate's verdict on a subject away.
    pub fn without_gate(self, subject: &str, kind: Kind, gate: GateId) -> Self {
        self.with_row_changed(subject, kind, |row| {
            let verdict = row.verdicts.remove(&gate);
            assert!(verdict.is_some(), "{subject} has no verdict of {gate}");
        })
    }

    /// Sets a figure of a subject.
    pub fn with_figure(
        self,
        subject: &str,
        kind: Kind,
        metric: Metric,
        value: impl Into<Figure>,
    ) -> Self {
        self.with_row_changed(subject, kind, |row| {
            row.figures.insert(metric, value.into());
        })
    }

    /// Takes a figure of a subject away.
    pub fn without_figure(self, subject: &str, kind: Kind, metric: Metric) -> Self {
        self.with_row_changed(subject, kind, |row| {
            let figure = row.figures.remove(&metric);
            assert!(figure.is_some(), "{subject} has no {}", metric.label());
        })
    }

    /// Sets the conditions under which a subject was timed.
    pub fn with_conditions(self, subject: &str, kind: Kind, conditions: &str) -> Self {
        self.with_row_changed(subject, kind, |row| {
            row.conditions = Some(conditions.into());
        })
    }

    /// Sets the machine code of a variant, also in the rows that are about it.
    pub fn with_code(self, subject: &str, code: &str) -> Self {
        let compiled = self.with_row_changed(subject, instance(), |row| {
            row.code = Some(code.into());
        });
        compiled.changed(|_| ())
    }

    /// Takes the machine code of a variant away, also from the rows that are about it.
    pub fn without_code(self, subject: &str) -> Self {
        let compiled = self.with_row_changed(subject, instance(), |row| row.code = None);
        compiled.changed(|_| ())
    }

    /// Changes the run once for each variant of the literal ladder.
    pub fn for_each_variant(self, change: impl Fn(Self, &str) -> Self) -> Self {
        VARIANTS.into_iter().fold(self, change)
    }
}

/// Rows that are taken out.
impl Run {
    /// Removes rows, of which there has to be one.
    fn without_any(self, is_gone: impl Fn(&Row) -> bool) -> Self {
        let is_there = self.table.rows().any(&is_gone);
        assert!(is_there, "there is no row to remove");
        self.without(is_gone)
    }

    /// Removes the row of a subject.
    pub fn without_row(mut self, subject: &str, kind: Kind) -> Self {
        let key = Row::new(subject, kind).key();
        assert!(self.table.get(&key).is_some(), "no row {key}");
        self.table.retain(|row| row.key() != key);
        self
    }

    /// Removes all rows of a subject, its pairs with slower ones included.
    pub fn without_subject(self, subject: &str) -> Self {
        self.without_any(|row| row.subject.as_str() == subject)
    }

    /// Removes all rows of a stage.
    pub fn without_rows_of_stage(self, stage: &str) -> Self {
        self.without_any(|row| row.subject.stage() == stage)
    }

    /// Removes what a source says.
    pub fn without_source(self, source: Source) -> Self {
        self.without_any(|row| row.source() == source)
    }

    /// Keeps what a source says, and nothing else.
    pub fn of_source(self, source: Source) -> Self {
        self.without_any(|row| row.source() != source)
    }

    /// Removes the times of two arms against each other.
    pub fn without_pairs(self) -> Self {
        self.without_any(|row| row.base().is_some())
    }

    /// Removes the times of a subject against others.
    pub fn without_pair(self, subject: &str) -> Self {
        self.without_any(|row| row.base().is_some() && row.subject.as_str() == subject)
    }

    /// Removes the gates over all cases.
    pub fn without_checks(self) -> Self {
        self.without_any(|row| matches!(row.kind, Kind::Checked(_)))
    }

    /// Removes the counters.
    pub fn without_counters(self) -> Self {
        self.without_any(|row| matches!(row.kind, Kind::Counters(_)))
    }

    /// Removes what was timed on the GPU, alone and in pairs.
    pub fn without_times(self) -> Self {
        self.without_any(|row| matches!(row.kind, Kind::Latency(_) | Kind::Pair { .. }))
    }
}

/// What a run was asked for, and where it ran.
impl Run {
    /// Limits the run to these stages.
    pub fn of_stages(self, stages: &[&str]) -> Self {
        self.changed(|session| {
            session.scope.stages = stages.iter().map(ToString::to_string).collect();
        })
    }

    /// Limits the run to these variants.
    pub fn of_variants(self, variants: &[&str]) -> Self {
        self.changed(|session| {
            session.scope.variants = variants.iter().map(ToString::to_string).collect();
        })
    }

    /// Sets the tier.
    pub fn of_tier(self, tier: Tier) -> Self {
        self.changed(|session| session.tier = tier)
    }

    /// Interrupts the run.
    pub fn partial(self, finished: usize, planned: usize) -> Self {
        self.changed(|session| session.progress = Progress::Partial { finished, planned })
    }

    /// Sets the GPU model on which the run was made.
    pub fn on_card(self, name: &str) -> Self {
        self.on_gpu(name).changed(|_| ())
    }

    /// Sets the driver of the GPU.
    pub fn with_driver(self, version: &str) -> Self {
        self.changed(|session| match &mut session.machine.gpu {
            Gpu::Present { driver, .. } => *driver = version.into(),
            Gpu::Absent { .. } => panic!("no GPU"),
        })
    }

    /// Limits the run to what a device offers.
    pub fn limited_to(self, device: &str) -> Self {
        self.changed(|session| {
            session.device = Some(device.parse().expect("the name of a device"));
        })
    }

    /// Sets the architectures that nvcc compiled for.
    pub fn with_archs(self, names: &[&str]) -> Self {
        self.changed(|session| match &mut session.device_compiler {
            DeviceCompiler::Built { archs, .. } => {
                *archs = names.iter().map(ToString::to_string).collect();
            }
            DeviceCompiler::Absent { .. } => panic!("no nvcc"),
        })
    }

    /// Lets a gate be measured, as far as the session knows.
    pub fn with_measurable(self, gate: GateId) -> Self {
        self.changed(|session| {
            session.unmeasurable.remove(&gate);
        })
    }

    /// Says why a gate cannot be measured.
    pub fn with_unmeasurable(self, gate: GateId, reason: &str) -> Self {
        self.changed(|session| {
            session.unmeasurable.insert(gate, reason.into());
        })
    }

    /// Takes the lines of sources out of the program.
    pub fn stripped(self) -> Self {
        self.changed(|session| session.source_lines = false)
    }

    /// Adds changes to the sources that are not committed.
    pub fn dirty(self) -> Self {
        self.changed(|session| {
            session.git = Git::Commit {
                sha: "0123456789abcdef".into(),
                dirty: true,
            };
        })
    }
}

/// The sources of a run.
impl Run {
    /// Adds what nvcc would have built, and the code to every row that is about it.
    pub fn built_throughout(self, registers: u32, spills: u32) -> Self {
        self.built(registers, spills).changed(|_| ())
    }

    /// Sets the identity of a stage's sources.
    pub fn with_identity(self, stage: usize, identity: &str) -> Self {
        self.changed(|session| session.stages[stage].identity = identity.into())
    }

    /// Changes all sources.
    pub fn rebuilt(self) -> Self {
        self.changed(|session| {
            for stage in &mut session.stages {
                stage.identity.insert_str(0, "new-");
            }
        })
    }

    /// Keeps the first claims of a stage alone.
    pub fn with_first_claims(self, stage: usize, count: usize) -> Self {
        self.changed(|session| session.stages[stage].claims.truncate(count))
    }

    /// Removes all claims.
    pub fn without_claims(self) -> Self {
        self.changed(|session| {
            for stage in &mut session.stages {
                stage.claims.clear();
            }
        })
    }

    /// Replaces what a claim of a stage promises.
    pub fn with_bound(
        self,
        stage: usize,
        claim: usize,
        metric: Metric,
        relation: Relation,
    ) -> Self {
        self.changed(|session| {
            let replaced = &mut session.stages[stage].claims[claim];
            replaced.metric = metric;
            replaced.relation = relation;
        })
    }

    /// Adds a variant `name` of the model's stage, with the rows of the model but its pairs.
    pub fn with_variant(mut self, model: &str, name: &str) -> Self {
        let subject_of_model = Subject::from(model);
        let stage = stage_mut(&mut self.session, &subject_of_model);
        let mut variant = stage.variant(subject_of_model.name()).unwrap().clone();
        variant.name = name.into();
        stage.variants.push(variant);
        let rows: Vec<Row> = self.table.about(&subject_of_model).cloned().collect();
        for mut row in rows {
            if row.base().is_none() {
                row.subject = Subject::variant(subject_of_model.stage(), name);
                self.append(row);
            }
        }
        self
    }

    /// Removes a variant, which the device refuses.
    pub fn without_variant(self, name: &str) -> Self {
        let refused = Subject::from(name);
        let remaining = self.without(|row| row.subject == refused);
        remaining.changed(|session| {
            let stage = stage_mut(session, &refused);
            let reason = (refused.name().into(), "too large".into());
            stage
                .variants
                .retain(|variant| variant.name != refused.name());
            stage.refused.push(reason);
        })
    }
}

/// Changes of the sources after the run was made.
impl Run {
    /// Changes the sources of a stage. It comes last: each change of the session takes the sources
    /// for those that were measured.
    pub fn with_later_identity(mut self, stage: usize, identity: &str) -> Self {
        self.session.stages[stage].identity = identity.into();
        self
    }

    /// Records that a claim is refuted.
    pub fn with_refuted_claim(mut self, stage: usize, claim: usize) -> Self {
        refute(&mut self.session.stages[stage], claim, None);
        self
    }

    /// Records that a claim is refuted on one GPU model.
    pub fn with_claim_refuted_on(mut self, gpu: &str, stage: usize, claim: usize) -> Self {
        refute(&mut self.session.stages[stage], claim, Some(gpu.into()));
        self
    }
}

fn stage_mut<'a>(session: &'a mut Session, subject: &Subject) -> &'a mut StageMeta {
    let mut stages = session.stages.iter_mut();
    let stage = stages.find(|stage| stage.id == subject.stage());
    stage.expect("a stage of the ladder")
}

/// Records that a claim is refuted, on one GPU model or on all.
fn refute(stage: &mut StageMeta, claim: usize, gpu: Option<String>) {
    stage.negatives.push(Negative {
        claim: stage.claims[claim].id(),
        gpu,
        measured: String::new(),
        why: "it waits".into(),
    });
}
