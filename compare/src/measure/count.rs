//! Counts the variants of a plan in the emulator, whatever backend the plan is for: what evidence claims (E1) are judged on.

use super::execute::{Executor, Measured, Sink, SinkError};
use super::plan::Plan;
use super::rows;
use crate::record::Subject;
use common::device::Staged;
use common::evidence::{Counting, count};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};

impl Executor<'_> {
    /// Counts what `plan` wants counted.
    pub fn evidence(&self, plan: &Plan, measured: &mut Measured, sink: &mut dyn Sink) -> Result<(), SinkError> {
        if plan.counted.is_empty() {
            return Ok(());
        }
        let problems = Dtype::ALL.map(claims_problem);
        let staged =
            problems.map(|problem| Staged::new(&Inputs::generate(&problem, Family::Normal, 0), Layout::Packed));
        measured.record.names("mission", problems[0].shape);
        for (done, (stage_id, variant)) in plan.counted.iter().enumerate() {
            let subject = Subject::variant(stage_id, variant);
            sink.starts("counted", subject.as_str(), done, plan.counted.len());
            let stage = self.stage(stage_id);
            for (dtype, staged) in Dtype::ALL.into_iter().zip(&staged) {
                if dtype == Dtype::E4m3 && !(plan.counts_e4m3() && self.speaks(stage_id, variant)) {
                    continue;
                }
                let counting = match stage.prepare(variant, &staged.problem) {
                    Ok(prepared) => count(&prepared, staged),
                    Err(unsupported) => Counting::NotCounted { reason: unsupported.to_string() },
                };
                measured.record.append(rows::counters(subject.clone(), dtype, &counting));
            }
            sink.grown(measured)?;
        }
        Ok(())
    }

    /// Whether a variant is counted with E4M3 too: of each family the default and the first, since presets share the code that
    /// the element type changes, and a count of all would take as long again as f16's.
    fn speaks(&self, stage: &str, variant: &str) -> bool {
        let stage = self.builds.iter().find(|build| build.id == stage);
        stage.is_some_and(|stage| {
            let family = stage.variant(variant).map_or("", |variant| variant.family.as_str());
            let spoken_for = [stage.default_of(family), stage.family(family).next()];
            spoken_for.into_iter().flatten().any(|speaker| speaker.name == variant)
        })
    }
}

#[cfg(test)]
#[cfg(any())]
mod tests {
    use super::*;
    use crate::builds::builds;
    use crate::registry;
    use common::evidence::{Quantity, Relation};
    use common::verdict::Verdict;

    /// Stage 0 as it is, counted: what it predicts is true, the same predictions turned false are caught, and a kernel
    /// that cannot be traced is evidence of nothing.
    #[test]
    fn true_predictions_of_a_real_stage_pass_and_planted_false_ones_fail() {
        let stages = registry::load().unwrap();
        assert!(stages[0].has_source_lines());
        let ladder = builds(&stages[..1]);
        let counted = |variant: &str, dtype: Dtype| {
            let problem = claims_problem(dtype);
            let staged = Staged::new(&Inputs::generate(&problem, Family::Normal, 0), Layout::Packed);
            count(&stages[0].prepare(variant, &problem).unwrap(), &staged)
        };
        let counters: Vec<VariantCounters> = ["scalar-32x64", "wmma-qk-32x64"]
            .map(|variant| VariantCounters {
                stage: ladder[0].id.clone(),
                variant: variant.into(),
                identity: ladder[0].identity.clone(),
                counting: counted(variant, Dtype::F16),
                e4m3: Some(counted(variant, Dtype::E4m3)),
            })
            .into();
        if !stages[0].is_traced() {
            assert!(matches!(counters[0].counting, Counting::NotCounted { .. }));
            return;
        }
        let Counting::Counted { traced_blocks, launch_blocks, tiles, .. } = &counters[1].counting else { panic!() };
        assert_eq!((*traced_blocks, *launch_blocks, *tiles), (2, 128, 1024));
        let judged = |ladder: &[_]| judge_evidence(&ladder[0], ladder, Measured::Emulator(&counters));
        let of_counters = |results: Vec<EvidenceResult>| -> Vec<EvidenceResult> {
            results.into_iter().filter(|result| result.terms.quantity.counted(&Default::default()).is_some()).collect()
        };
        let honest = of_counters(judged(&ladder));
        let with = |dtype| honest.iter().filter(|judged| judged.terms.dtype == dtype).count();
        assert!(with(Dtype::F16) >= 3 && with(Dtype::E4m3) >= 3, "{honest:?}");
        for result in &honest {
            assert_eq!(result.result.verdict, Verdict::Pass, "{}: {}", result.terms, result.result.reason);
        }
        let mut lying = ladder.clone();
        for terms in &mut lying[0].evidence {
            terms.relation = match terms.relation.clone() {
                Relation::Ratio { base, at_most, .. } => {
                    Relation::Ratio { base, at_least: at_most + 0.5, at_most: at_most + 1.0 }
                }
                Relation::AtLeast { bound } => Relation::AtLeast { bound: bound + 1.0 },
                Relation::AtMost { .. } => Relation::AtMost { bound: -1.0 },
            };
        }
        for result in of_counters(judged(&lying)) {
            assert_eq!(result.result.verdict, Verdict::Fail, "{}: {}", result.terms, result.result.reason);
        }
        let unknown = EvidenceTerms { quantity: Quantity::BarrierStallShare, ..ladder[0].evidence[0].clone() };
        lying[0].evidence = vec![unknown];
        assert_eq!(judged(&lying)[0].result.verdict, Verdict::NoData);
    }
}
