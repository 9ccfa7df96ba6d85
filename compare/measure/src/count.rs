//! Records counters of a plan's variants in the emulator, whatever its backend: the basis of
//! evidence claims (E1).

use super::execute::Executor;
use super::sink::{ExecuteError, Sink};
use common::device::Staged;
use common::evidence::count;
use common::image::Layout;
use common::inputs::{Family, Inputs};
use common::problem::{Dtype, claims_problem};
use results::table::{Row, Run};
use std::collections::HashMap;

impl Executor<'_> {
    /// Counts what the plan names, and adds a row for each.
    pub fn evidence(&self, run: &mut Run, sink: &mut dyn Sink) -> Result<(), ExecuteError> {
        let planned = &self.plan.counted;
        let mut staged_inputs = HashMap::new();
        for (done, (subject, dtype)) in planned.iter().enumerate() {
            sink.on_start("counting", subject.as_str(), done, planned.len());
            let inputs = staged_inputs.entry(*dtype);
            let staged = inputs.or_insert_with(|| staged_claims_problem(*dtype));
            let stage = self.stage(subject.stage());
            let counted = match stage.prepare(subject.name(), &staged.problem) {
                Ok(prepared) => count(&prepared, staged),
                Err(unsupported) => Err(unsupported.into()),
            };
            run.append(Row::counters(subject.clone(), *dtype, &counted));
            sink.on_rows_added(run)?;
        }
        Ok(())
    }
}

/// Returns the inputs of the claims' problem of an element type.
fn staged_claims_problem(dtype: Dtype) -> Staged {
    let inputs = Inputs::generate(&claims_problem(dtype), Family::Normal, 0);
    Staged::new(&inputs, Layout::Packed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::metric::{self, Metric};
    use common::verdict::Verdict;
    use results::builds::builds;
    use results::judge::View;
    use results::judge::claims::{Finding, claims};
    use results::table::{Claim, Kind, ProblemPlace, Relation, StageMeta, Subject};
    use results::testing;

    /// A run with the counters of both variants of a stage.
    struct CountedStage {
        stage: StageMeta,
        run: Run,
    }

    impl CountedStage {
        fn new() -> Self {
            let stages = stages::load().unwrap();
            assert!(stages[0].has_source_lines());
            let stage = builds(&stages[..1])[0].clone();
            let mut run = testing::emulated()
                .without(|_| true)
                .changed(|session| session.stages = vec![stage.clone()]);
            for variant in ["scalar-32x64", "wmma-qk-32x64"] {
                for dtype in [Dtype::F16, Dtype::E4m3] {
                    let prepared = stages[0].prepare(variant, &claims_problem(dtype)).unwrap();
                    let counting = count(&prepared, &staged_claims_problem(dtype));
                    let subject = Subject::variant(&stage.id, variant);
                    run.append(Row::counters(subject, dtype, &counting));
                }
            }
            Self { stage, run }
        }

        /// Returns the stage's claims of counters.
        fn claims(&self) -> Vec<&Claim> {
            let claims = self.stage.claims.iter();
            claims
                .filter(|claim| claim.metric.source() == metric::Source::Counters)
                .collect()
        }

        /// Judges a claim as the stage's only one.
        fn judge(&self, claim: &Claim) -> Finding {
            let claiming = [StageMeta {
                claims: vec![claim.clone()],
                ..self.stage.clone()
            }];
            let view = View {
                stages: &claiming,
                ..View::alone(&self.run)
            };
            claims(&view).remove(0).finding
        }
    }

    /// Returns a claim that is false where this one is true.
    fn lie(claim: &Claim) -> Claim {
        let mut lie = claim.clone();
        match &mut lie.relation {
            Relation::Ratio {
                at_least, at_most, ..
            } => {
                *at_least = *at_most + 0.5;
                *at_most += 1.0;
            }
            Relation::AtLeast { bound } => *bound += 1.0,
            Relation::AtMost { bound } => *bound = -1.0,
            of_speed => unreachable!("{of_speed:?}"),
        }
        lie
    }

    #[test]
    fn two_blocks_of_a_launch_are_traced() {
        let counted = CountedStage::new();
        let kind = Kind::Counters(ProblemPlace::claims(Dtype::F16));
        let subject = Subject::variant(&counted.stage.id, "wmma-qk-32x64");
        let row = counted.run.table.row(&subject, kind).unwrap();
        assert_eq!(row.value(Metric::TracedBlocks), Some(2.0));
        assert_eq!(row.value(Metric::LaunchBlocks), Some(128.0));
        assert_eq!(row.value(Metric::Tiles), Some(1024.0));
    }

    #[test]
    fn true_predictions_of_a_real_stage_pass_and_planted_false_ones_fail() {
        let counted = CountedStage::new();
        let claims = counted.claims();
        for dtype in [Dtype::F16, Dtype::E4m3] {
            let with_dtype = claims.iter().filter(|claim| claim.place.dtype == dtype);
            assert!(with_dtype.count() >= 3, "{dtype}: {claims:?}");
        }
        for claim in claims {
            let correct = counted.judge(claim);
            let reason = correct.reason;
            assert_eq!(correct.verdict, Verdict::Pass, "{claim}: {reason}");
            let lie = lie(claim);
            let lying = counted.judge(&lie);
            assert_eq!(lying.verdict, Verdict::Fail, "{lie}: {}", lying.reason);
            let unknown = Claim {
                metric: Metric::BarrierStallShare,
                ..claim.clone()
            };
            assert_eq!(counted.judge(&unknown).verdict, Verdict::NoData);
        }
    }
}
