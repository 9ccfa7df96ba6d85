//! Counts the variants of a plan in the emulator, whatever backend the plan is for: what evidence claims (E1) are judged on.

use super::execute::Executor;
use super::measured::{Measured, Sink, SinkError};
use super::plan::Plan;
use super::rows;
use crate::record::meta::by_id;
use crate::record::{On, Source, Subject};
use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};

/// What is counted: BF16 moves, multiplies and waits as f16 does.
const COUNTED: [Dtype; 2] = [Dtype::F16, Dtype::E4m3];

impl Executor<'_> {
    /// Counts what `plan` wants counted.
    pub fn evidence(
        &self,
        plan: &Plan,
        measured: &mut Measured,
        sink: &mut dyn Sink,
    ) -> Result<(), SinkError> {
        if plan.counted.is_empty() {
            return Ok(());
        }
        let problems = COUNTED.map(claims_problem);
        let staged = problems.map(|problem| {
            Staged::new(
                &Inputs::generate(&problem, Family::Normal, 0),
                Layout::Packed,
            )
        });
        measured.record.names("mission", problems[0].shape);
        for (done, subject) in plan.counted.iter().enumerate() {
            sink.starts("counted", subject.as_str(), done, plan.counted.len());
            let stage = self.stage(subject.stage());
            let first = by_id(self.builds, subject.stage()).map(|build| build.meta.first_dtype());
            for (dtype, staged) in COUNTED.into_iter().zip(&staged) {
                let is_due = match dtype {
                    Dtype::E4m3 => plan.counts_e4m3() && self.speaks(subject),
                    Dtype::F16 | Dtype::Bf16 => first == Some(dtype),
                };
                if !is_due {
                    continue;
                }
                let on = On::claims(dtype);
                if measured
                    .record
                    .row(subject, &on, Source::Emulator)
                    .is_some()
                {
                    continue; // an earlier run has it
                }
                let counted = match stage.prepare(subject.name(), &staged.problem) {
                    Ok(prepared) => count(&prepared, staged),
                    Err(unsupported) => Err(unsupported.into()),
                };
                measured
                    .record
                    .append(rows::counters(subject.clone(), dtype, &counted));
            }
            sink.grown(measured)?;
        }
        Ok(())
    }

    /// Whether a variant is counted with E4M3: of each family the default and the first, since presets share the code that
    /// the element type changes, and a count of all would take as long again as f16's.
    fn speaks(&self, subject: &Subject) -> bool {
        let Some(stage) = by_id(self.builds, subject.stage()) else {
            return false;
        };
        let variant = stage.variant(subject.name());
        let family = variant.map_or("", |variant| &variant.family);
        let spoken_for = [stage.default_of(family), stage.family(family).next()];
        let mut speakers = spoken_for.into_iter().flatten();
        speakers.any(|speaker| speaker.name == subject.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::claims::evidence;
    use crate::measure::builds::builds;
    use crate::record::{Claim, On, Relation, Source, StageMeta};
    use crate::{registry, testing};
    use common::metric::{self, Metric};
    use common::verdict::Verdict;

    /// Stage 0 as it is, counted: what it predicts is true, the same predictions turned false are caught, and a kernel
    /// that cannot be traced is evidence of nothing.
    #[test]
    fn true_predictions_of_a_real_stage_pass_and_planted_false_ones_fail() {
        let stages = registry::load().unwrap();
        assert!(stages[0].has_source_lines());
        let stage = builds(&stages[..1])[0].meta.clone();
        let mut record = testing::emulated()
            .without(|_| true)
            .changed(|meta| meta.stages = vec![stage.clone()]);
        for variant in ["scalar-32x64", "wmma-qk-32x64"] {
            for dtype in [Dtype::F16, Dtype::E4m3] {
                let problem = claims_problem(dtype);
                let staged = Staged::new(
                    &Inputs::generate(&problem, Family::Normal, 0),
                    Layout::Packed,
                );
                let counting = count(&stages[0].prepare(variant, &problem).unwrap(), &staged);
                record.append(rows::counters(
                    Subject::variant(&stage.id, variant),
                    dtype,
                    &counting,
                ));
            }
        }
        let on = On::claims(Dtype::F16);
        let row = record
            .row(
                &Subject::variant(&stage.id, "wmma-qk-32x64"),
                &on,
                Source::Emulator,
            )
            .unwrap();
        if !stages[0].is_traced() {
            assert!(row.figures.is_empty() && row.note.is_some());
            return;
        }
        let blocks = [Metric::TracedBlocks, Metric::LaunchBlocks, Metric::Tiles]
            .map(|metric| row.value(metric));
        assert_eq!(blocks, [2.0, 128.0, 1024.0].map(Some));
        let judged = |stage: &StageMeta, claim: &Claim| {
            evidence(&record, stage, claim, Source::Emulator).unwrap()
        };
        let counted: Vec<&Claim> = stage
            .claims
            .iter()
            .filter(|claim| claim.metric.source() == metric::Source::Counters)
            .collect();
        let with = |dtype| {
            counted
                .iter()
                .filter(|claim| claim.on.dtype == dtype)
                .count()
        };
        assert!(
            with(Dtype::F16) >= 3 && with(Dtype::E4m3) >= 3,
            "{counted:?}"
        );
        for claim in counted {
            let correct = judged(&stage, claim);
            assert_eq!(
                correct.verdict,
                Verdict::Pass,
                "{claim}: {}",
                correct.reason
            );
            let mut lie = claim.clone();
            match &mut lie.relation {
                Relation::Ratio {
                    at_least, at_most, ..
                } => (*at_least, *at_most) = (*at_most + 0.5, *at_most + 1.0),
                Relation::AtLeast { bound } => *bound += 1.0,
                Relation::AtMost { bound } => *bound = -1.0,
                of_speed => unreachable!("{of_speed:?}"),
            }
            let lying = judged(&stage, &lie);
            assert_eq!(lying.verdict, Verdict::Fail, "{lie}: {}", lying.reason);
            let unknown = Claim {
                metric: Metric::BarrierStallShare,
                ..claim.clone()
            };
            assert_eq!(judged(&stage, &unknown).verdict, Verdict::NoData);
        }
    }
}
