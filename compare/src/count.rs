//! Counts the variants of a plan in the emulator and judges the evidence claims (E1), whatever backend the plan is for.

use crate::comparison::{Measured, judge_evidence};
use crate::execute::{Executor, Sink, SinkError};
use crate::plan::Plan;
use common::device::Staged;
use common::evidence::{Counting, count};
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::claims_problem;
use common::record::{Record, VariantCounters};

impl Executor<'_> {
    /// Counts what `plan` wants counted into `record`, and judges what its stages predict.
    pub fn evidence(&self, plan: &Plan, record: &mut Record, sink: &mut dyn Sink) -> Result<(), SinkError> {
        if plan.counted.is_empty() {
            return Ok(());
        }
        let problem = claims_problem();
        let staged = Staged::new(&Inputs::generate(&problem, Family::Normal, 0), Layout::Packed);
        for (done, (stage_id, variant)) in plan.counted.iter().enumerate() {
            sink.starts("counted", &format!("{stage_id}/{variant}"), done, plan.counted.len());
            let stage = self.stage(stage_id);
            let counting = match stage.prepare(variant, &problem) {
                Ok(prepared) => count(&prepared, &staged),
                Err(unsupported) => Counting::NotCounted { reason: unsupported.to_string() },
            };
            let (stage_id, variant, identity) = (stage_id.clone(), variant.clone(), stage.report.identity.clone());
            record.evidence.counters.push(VariantCounters { stage: stage_id, variant, identity, counting });
            sink.grown(record)?;
        }
        let measured = Measured::Emulator(&record.evidence.counters);
        let judged = self.builds.iter().filter(|stage| plan.judges_evidence_of(stage));
        record.evidence.claims = judged.flat_map(|stage| judge_evidence(stage, self.builds, measured)).collect();
        sink.grown(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builds::builds;
    use crate::registry;
    use common::evidence::{Quantity, Relation};
    use common::record::{EvidenceResult, EvidenceTerms};
    use common::verdict::Verdict;

    /// Stage 0 as it is, counted: what it predicts is true, the same predictions turned false are caught, and a kernel
    /// that cannot be traced is evidence of nothing.
    #[test]
    fn true_predictions_of_a_real_stage_pass_and_planted_false_ones_fail() {
        let stages = registry::load().unwrap();
        let ladder = builds(&stages[..1]);
        let problem = claims_problem();
        let staged = Staged::new(&Inputs::generate(&problem, Family::Normal, 0), Layout::Packed);
        let counters: Vec<VariantCounters> = ["scalar-32x64", "wmma-qk-32x64"]
            .map(|variant| VariantCounters {
                stage: ladder[0].id.clone(),
                variant: variant.into(),
                identity: ladder[0].identity.clone(),
                counting: count(&stages[0].prepare(variant, &problem).unwrap(), &staged),
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
        assert!(honest.len() >= 3, "{honest:?}");
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
